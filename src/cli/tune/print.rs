//! What `tune` prints: the overfit check, what a study would try, and the closing table.

use std::path::PathBuf;

use crate::terminal::{clock, say, thousands};
use crate::tuning::{Outline, OverfitCheck, Study, Trial, TrialEnd, setting_shown, shown};

/// Trials that the closing table shows.
const SHOWN: usize = 20;

/// The overfit check before the first trial.
pub(super) fn print_overfit_check(found: &OverfitCheck) {
    say(&format!(
        "overfit check: {} sequences learned by heart in {} steps at a rate of {:e}: training loss {:.3} nats, where \
         {:.3} is possible",
        found.sequences, found.steps, found.learning_rate, found.reached, found.least
    ));
}

/// What a study would try.
pub(super) fn print_outline(name: &str, outline: &Outline) {
    let proposer = outline.proposer();
    let first = outline.first();
    say(&format!("{name}: what a study would try, nothing is trained"));
    say(&format!(
        "  trials   {}{}, each of {} steps at the config's own batch size",
        proposer.trials(),
        if outline.seeds() > 1 { format!(" with {} seeds", outline.seeds()) } else { String::new() },
        thousands(outline.steps() as f64)
    ));
    let rungs = outline.rungs().iter().map(|&step| thousands(step as f64)).collect::<Vec<_>>().join(", ");
    let goes_on = match outline.rungs().len() {
        1 => String::new(),
        _ => format!("; one in {} goes on", proposer.eta),
    };
    say(&format!("  rungs    {rungs} steps{goes_on}"));
    let (sequences, all) = outline.study_sequences();
    say(&format!(
        "  in all   {} training sequences at most, of {} without rungs",
        thousands(sequences as f64),
        thousands(all as f64)
    ));
    if let (1.., Some(reason)) = (proposer.left_out, &proposer.reason) {
        let combinations = if proposer.left_out == 1 { "combination" } else { "combinations" };
        say(&format!("  left out {} {combinations} that the config refuses: {reason}", proposer.left_out));
    }
    for (number, trial) in first.trials.iter().enumerate() {
        say(&format!("  {number:03}      {}", setting_shown(&trial.setting)));
    }
}

/// The closing table, best first.
pub(super) fn print_study(study: &Study, ranked: &[&Trial], pictures: &[PathBuf]) {
    let keys = study.outline().proposer().keys();
    let number = |value: Option<f64>, digits: usize| {
        value.map_or_else(|| "-".to_string(), |value| format!("{value:.digits$}"))
    };
    let mut table = vec![["trial".to_string()].into_iter().collect::<Vec<_>>()];
    table[0]
        .extend(keys.iter().map(|key| key.split_once('.').map_or(key.clone(), |(_, name)| name.to_string())));
    table[0].extend(["loss", "gap", "last steps", "spikes", "parameters", "time", "ended"].map(String::from));
    for trial in ranked.iter().take(SHOWN) {
        let mut row = vec![format!("{:03}", trial.trial)];
        row.extend(keys.iter().map(|key| trial.setting.get(key).map(shown).unwrap_or_default()));
        let loss = match trial.loss_spread {
            Some(spread) => format!("{} ±{spread:.4}", number(trial.loss, 4)),
            None => number(trial.loss, 4),
        };
        row.extend([
            loss,
            number(trial.gap, 4),
            trial.train_spread.map_or_else(|| "-".to_string(), |spread| format!("±{spread:.4}")),
            trial.spikes.map_or_else(|| "-".to_string(), |spikes| spikes.to_string()),
            if trial.parameters > 0 { thousands(trial.parameters as f64) } else { "-".to_string() },
            if trial.seconds < 10.0 { format!("{:.1}s", trial.seconds) } else { clock(trial.seconds) },
            trial.ended.name().to_string(),
        ]);
        table.push(row);
    }
    let columns = table[0].len();
    let widths =
        (0..columns).map(|column| table.iter().map(|row| row[column].chars().count()).max().unwrap_or(0));
    let widths = widths.collect::<Vec<_>>();
    for row in &table {
        let cells = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:>width$}"));
        say(cells.collect::<Vec<_>>().join("  ").trim_end());
    }
    if ranked.len() > SHOWN {
        say(&format!("… and {} more in study.csv", ranked.len() - SHOWN));
    }
    if let (Some(why), failed @ 1..) = (
        study.results().first_failure(),
        ranked.iter().filter(|trial| trial.ended == TrialEnd::Failed).count(),
    ) {
        say(&format!(
            "{failed} could not be trained: {why}; remove trials/*.failed to try again with --resume"
        ));
    }
    let folder = study.folder();
    say(&format!("  study     {}", folder.path().display()));
    if !pictures.is_empty() {
        let names = pictures.iter().filter_map(|path| path.file_name()).map(|name| name.to_string_lossy());
        let names = names.collect::<Vec<_>>().join(", ");
        say(&format!("  pictures  {} ({names})", folder.plots().display()));
        say(&format!("  page      {}: open it in a browser", folder.report().display()));
    }
    if folder.best().exists() {
        say(&format!("  best      {}: `train` takes it", folder.best().display()));
    } else if !ranked.is_empty() && ranked.iter().all(|trial| trial.ended == TrialEnd::Diverged) {
        say("  best      none, for every trial diverged: search lower values of training.learning_rate");
    }
}

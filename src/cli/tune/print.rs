//! The output of `tune`: the overfit check, the outline of a study, and the final table.

use std::path::PathBuf;

use causal_attention_report::study::TrialEnd;

use crate::cli::train::print_pictures;
use crate::numbers::{clock, counted, thousands};
use crate::terminal::{say, table};
use crate::tuning::{Outline, OverfitCheck, Study, Trial, best, setting_shown, shown};

/// The maximum number of trials in the final table.
const MAX_TRIALS_SHOWN: usize = 20;

/// Prints the result of the overfit check before the first trial.
pub(super) fn print_overfit_check(found: &OverfitCheck) {
    say(&format!(
        "overfit check: {} memorised in {} at a learning rate of {:e}: training loss {:.3} nats per token \
         (lowest possible: {:.3})",
        counted(found.sequences, "sequence"),
        counted(found.steps, "step"),
        found.learning_rate,
        found.reached,
        found.least
    ));
}

/// Prints the outline of a study.
pub(super) fn print_outline(name: &str, outline: &Outline) {
    let (stages, seeds) = (&outline.stages, outline.tune.seeds);
    let rungs = outline.rungs().into_iter().map(|step| thousands(step as f64)).collect::<Vec<_>>();
    say(&format!("{name}: dry run, nothing is trained"));
    say(&format!(
        "  trials   {}{}, each of {} at the config's own batch size",
        thousands(stages.new_trials().iter().sum::<usize>() as f64),
        if seeds > 1 { format!(" with {seeds} seeds") } else { String::new() },
        counted(outline.steps(), "step")
    ));
    let promoted =
        if rungs.len() > 1 { format!("; the best 1 in {} continues", stages.eta) } else { String::new() };
    say(&format!("  rungs    at step {}{promoted}", rungs.join(", ")));
    let (sequences, all) = outline.study_sequences;
    say(&format!(
        "  total    {} at most ({} if every trial runs to its end)",
        counted(sequences, "training sequence"),
        thousands(all as f64)
    ));
    skipped(outline).iter().for_each(|skipped| say(&format!("  skipped  {skipped}")));
    for (number, trial) in stages.agenda(|_, _| None).trials.iter().enumerate() {
        say(&format!("  {number:03}      {}", setting_shown(&trial.setting)));
    }
}

/// Describes the combinations that the study skips, with the reason for the first one; `None` if it tries all.
pub(super) fn skipped(outline: &Outline) -> Option<String> {
    let refused = outline.stages.refused();
    let count = counted(refused.len(), "combination");
    refused.first().map(|reason| format!("{count} that the config rejects: {reason}"))
}

/// Prints the final table, best trial first, and the paths of the results.
pub(super) fn print_study(study: &Study, ranked: &[&Trial], pictures: &[PathBuf]) {
    print_table(&study.outline.stages.keys(), ranked);
    let failed = ranked.iter().filter(|trial| trial.ended == TrialEnd::Failed).count();
    if let (Some(why), 1..) = (study.first_failure(), failed) {
        say(&format!(
            "{} could not be trained (first reason: {why}); to retry, remove {}/trials/*.failed and pass --resume",
            counted(failed, "trial"),
            study.folder.path().display()
        ));
    }
    say(&format!("  study     {}", study.folder.path().display()));
    print_pictures(&study.folder, pictures);
    let best = best(&study.folder);
    if best.exists() {
        say(&format!("  best      {} (a config for `train`)", best.display()));
    } else if !ranked.is_empty() && ranked.iter().all(|trial| trial.ended == TrialEnd::Diverged) {
        say("  best      none: every trial diverged; search lower values of training.learning_rate");
    }
}

fn print_table(keys: &[String], ranked: &[&Trial]) {
    fn cell<T>(value: Option<T>, shown: impl Fn(T) -> String) -> String {
        value.map_or_else(|| "-".to_string(), shown)
    }
    let names = keys.iter().map(|key| key.split_once('.').map_or(key.as_str(), |(_, name)| name));
    let measured = ["loss", "gap", "train spread", "spikes", "parameters", "time", "ended"];
    let names: Vec<_> = ["trial"].into_iter().chain(names).chain(measured).collect();
    let row = |trial: &&Trial| {
        let setting = keys.iter().map(|key| trial.setting.get(key).map(shown).unwrap_or_default());
        let cost = &trial.cost;
        let spread = trial.score.loss_spread.map_or_else(String::new, |spread| format!(" ±{spread:.4}"));
        let parameters = Some(cost.parameters).filter(|&parameters| parameters > 0);
        let measured = [
            cell(trial.score.loss, |loss| format!("{loss:.4}")) + &spread,
            cell(trial.score.gap, |gap| format!("{gap:.4}")),
            cell(trial.stability.train_spread, |spread| format!("±{spread:.4}")),
            cell(trial.stability.spikes, |spikes| spikes.to_string()),
            cell(parameters, |parameters| thousands(parameters as f64)),
            if cost.seconds < 10.0 { format!("{:.1}s", cost.seconds) } else { clock(cost.seconds) },
            trial.ended.name().to_string(),
        ];
        [format!("{:03}", trial.trial)].into_iter().chain(setting).chain(measured).collect::<Vec<_>>()
    };
    table(
        &"r".repeat(names.len()),
        &names,
        &ranked.iter().take(MAX_TRIALS_SHOWN).map(row).collect::<Vec<_>>(),
    );
    if ranked.len() > MAX_TRIALS_SHOWN {
        say(&format!("… and {} more in study.csv", ranked.len() - MAX_TRIALS_SHOWN));
    }
}

//! `study.csv`: one row a trial.

use super::dimension::shown;
use super::trial::Trial;

/// Columns beside those of the searched keys. Losses are in nats per token.
const BEFORE: [&str; 2] = ["trial", "stage"];
const AFTER: [&str; 12] = [
    "ended",
    "loss",
    "loss_spread",
    "floor",
    "gap",
    "accuracy",
    "train_spread",
    "spikes",
    "parameters",
    "steps",
    "tokens",
    "seconds",
];

/// The table, its columns in a fixed order: the trial, the searched keys, how it ended.
pub fn csv<'a>(keys: &[String], trials: impl IntoIterator<Item = &'a Trial>) -> Vec<u8> {
    let number = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
    let mut writer = csv::Writer::from_writer(Vec::new());
    let header = BEFORE.into_iter().chain(keys.iter().map(String::as_str)).chain(AFTER);
    writer.write_record(header).expect("a header fits into memory");
    for trial in trials {
        let mut row = vec![trial.trial.to_string(), trial.stage.unwrap_or_default().to_string()];
        row.extend(keys.iter().map(|key| trial.setting.get(key).map(shown).unwrap_or_default()));
        row.push(trial.ended.name().to_string());
        let values =
            [trial.loss, trial.loss_spread, trial.floor, trial.gap, trial.accuracy, trial.train_spread];
        row.extend(values.map(number));
        let count = |count: Option<usize>| count.map_or_else(String::new, |count| count.to_string());
        let parameters = Some(trial.parameters).filter(|&parameters| parameters > 0);
        row.extend([trial.spikes, parameters, Some(trial.steps)].map(count));
        row.push(trial.tokens.to_string());
        row.push(format!("{:.3}", trial.seconds));
        writer.write_record(row).expect("a row fits into memory");
    }
    writer.into_inner().expect("a table fits into memory")
}

//! `study.csv`: one row a trial.

use super::dimension::shown;
use super::trial::Trial;

/// Columns behind those of the searched keys. Losses are in nats per token.
const MEASURED: [&str; 12] = [
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
    fn cell(value: Option<impl ToString>) -> String {
        value.map_or_else(String::new, |value| value.to_string())
    }
    let mut writer = csv::Writer::from_writer(Vec::new());
    let header = ["trial", "stage"].into_iter().chain(keys.iter().map(String::as_str)).chain(MEASURED);
    writer.write_record(header).expect("a header fits into memory");
    for trial in trials {
        let named = [trial.trial.to_string(), cell(trial.stage)];
        let setting = keys.iter().map(|key| cell(trial.setting.get(key).map(shown)));
        let measured = [
            trial.ended.name().to_string(),
            cell(trial.loss),
            cell(trial.loss_spread),
            cell(trial.floor),
            cell(trial.gap),
            cell(trial.accuracy),
            cell(trial.train_spread),
            cell(trial.spikes),
            cell(Some(trial.parameters).filter(|&parameters| parameters > 0)),
            trial.steps.to_string(),
            trial.tokens.to_string(),
            format!("{:.3}", trial.seconds),
        ];
        let row = named.into_iter().chain(setting).chain(measured);
        writer.write_record(row.collect::<Vec<_>>()).expect("a row fits into memory");
    }
    writer.into_inner().expect("a table fits into memory")
}

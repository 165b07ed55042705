//! `study.csv`: one row per trial.

use super::{
    dimension::shown,
    trial::{Trial, TrialScore},
};

/// The columns that follow the searched keys. Losses are in nats per token.
const RESULT_COLUMNS: &str =
    "ended,loss,loss_spread,floor,gap,accuracy,train_spread,spikes,parameters,steps,tokens,seconds";

/// Returns the table with its columns in a fixed order: the trial, the searched keys, the results.
pub fn csv<'a>(keys: &[String], trials: impl IntoIterator<Item = &'a Trial>) -> Vec<u8> {
    fn cell(value: Option<impl ToString>) -> String {
        value.map_or_else(String::new, |value| value.to_string())
    }
    let mut writer = csv::Writer::from_writer(Vec::new());
    let header = ["trial", "stage"].into_iter().chain(keys.iter().map(String::as_str));
    writer.write_record(header.chain(RESULT_COLUMNS.split(','))).expect("a header fits into memory");
    for trial in trials {
        let Trial { score, stability, cost, .. } = trial;
        let TrialScore { loss, loss_spread, floor, gap, accuracy } = *score;
        let losses = [loss, loss_spread, floor, gap, accuracy, stability.train_spread];
        let parameters = Some(cost.parameters).filter(|&parameters| parameters > 0);
        let mut row = vec![trial.trial.to_string(), cell(trial.stage)];
        row.extend(keys.iter().map(|key| cell(trial.setting.get(key).map(shown))));
        row.push(trial.ended.name().to_string());
        row.extend(losses.map(cell));
        row.extend([stability.spikes, parameters, Some(cost.steps)].map(cell));
        row.extend([cost.tokens.to_string(), format!("{:.3}", cost.seconds)]);
        writer.write_record(row).expect("a row fits into memory");
    }
    writer.into_inner().expect("a table fits into memory")
}

//! The few sequences that are learned by heart, and the least loss that is possible on them.

use std::collections::HashMap;

use crate::data::{Batch, Dataset, Loader, Order, Role};

/// The first sequences of the training set; of long ones the beginning.
pub fn few(dataset: &Dataset, targets: usize, sequences: usize) -> Batch {
    let rows = (targets / dataset.train.time().max(1)).clamp(1, sequences);
    let mut batch = Batch::default();
    Loader::new(dataset.train.clone(), rows, 0, Order::InOrder).batch(0, 0, &mut batch);
    let kept = batch.time.min(targets);
    if kept == batch.time {
        return batch;
    }
    Batch {
        inputs: shortened(&batch.inputs, batch.time, kept),
        targets: shortened(&batch.targets, batch.time, kept),
        roles: shortened(&batch.roles, batch.time, kept),
        time: kept,
        ..batch
    }
}

/// The first `kept` of each row of `time`.
fn shortened<T: Copy>(values: &[T], time: usize, kept: usize) -> Vec<T> {
    values.chunks(time).flat_map(|row| row[..kept].iter().copied()).collect()
}

/// The loss of a model that knows these very sequences: the mean entropy of what follows each prefix.
pub fn least_loss(batch: &Batch) -> f64 {
    // By source and prefix.
    let mut followers: HashMap<_, HashMap<u32, usize>> = HashMap::new();
    for row in 0..batch.rows {
        let source = batch
            .source
            .as_ref()
            .map_or(&[][..], |source| &source.tokens[row * source.time..(row + 1) * source.time]);
        for time in 0..batch.time {
            let place = row * batch.time + time;
            if batch.roles[place] == Role::Padding {
                continue;
            }
            let prefix = &batch.inputs[row * batch.time..=place];
            *followers.entry((source, prefix)).or_default().entry(batch.targets[place]).or_default() += 1;
        }
    }
    let (mut loss, mut targets) = (0.0, 0);
    for counts in followers.values() {
        let all = counts.values().sum::<usize>();
        targets += all;
        loss -= counts.values().map(|&count| count as f64 * (count as f64 / all as f64).ln()).sum::<f64>();
    }
    loss / targets.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_loss_is_the_entropy_of_what_follows_equal_prefixes() {
        // After 1 come 2 and 3; what follows them is certain.
        let batch = Batch {
            rows: 2,
            time: 2,
            inputs: vec![1, 2, 1, 3],
            targets: vec![2, 5, 3, 5],
            roles: vec![Role::Undetermined; 4],
            source: None,
        };
        assert!((least_loss(&batch) - 2f64.ln() / 2.0).abs() < 1e-12);
    }
}

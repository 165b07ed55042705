//! The order of an epoch, a pure function of (seed, epoch).

use std::sync::{Arc, Mutex, PoisonError};

use rand::{RngExt, seq::SliceRandom};

use super::batch::Batch;
use super::seed::{Purpose, generator};
use super::sequences::Sequences;

/// Makes the batches of training. Rows come each once an epoch, in an order drawn from (seed, epoch). A stream comes in
/// windows side by side from an offset drawn from (seed, epoch), in an order drawn alike, so that an epoch sees
/// everything but less than a window at either end, and in time every offset comes.
///
/// Any batch can be asked for at any time and from any thread, and is the same each time: a run
/// resumes in the middle of an epoch without reading what came before.
#[derive(Debug)]
pub struct Loader {
    sequences: Sequences,
    batch_size: usize,
    seed: u64,
    /// The order of the epoch asked for last.
    permutation: Mutex<Option<(usize, Arc<[u32]>)>>,
}

impl Loader {
    /// Batches of `batch_size` samples.
    ///
    /// # Panics
    /// When `batch_size` is zero.
    pub fn new(sequences: Sequences, batch_size: usize, seed: u64) -> Self {
        assert!(batch_size > 0, "a batch has at least one sample");
        Loader { sequences, batch_size, seed, permutation: Mutex::new(None) }
    }

    /// Batches an epoch.
    pub fn batches(&self) -> usize {
        self.sequences.len().div_ceil(self.batch_size)
    }

    /// All batches of an epoch.
    pub fn epoch(&self, epoch: usize) -> impl Iterator<Item = Batch> {
        (0..self.batches()).map(move |index| self.batch(epoch, index))
    }

    /// Whether an epoch has a batch of this number. Windows never end: behind the last [batch](Self::batches) of an
    /// epoch they lie anywhere, so that steps of several batches are full.
    pub fn holds(&self, index: usize) -> bool {
        self.sequences.window_starts().is_some() || index < self.batches()
    }

    /// Batch `index` of `epoch`.
    ///
    /// The last batch of an epoch holds what is left; of windows it is always full.
    ///
    /// # Panics
    /// When an epoch does not [hold](Self::holds) such a batch.
    pub fn batch(&self, epoch: usize, index: usize) -> Batch {
        assert!(self.holds(index), "batch {index} of {}", self.batches());
        let first = index * self.batch_size;
        let permutation = self.permutation(epoch);
        let places: Vec<_> = match self.sequences.window_starts() {
            None => {
                let samples = first..self.sequences.len().min(first + self.batch_size);
                permutation[samples].iter().map(|&sample| sample as usize).collect()
            }
            Some(starts) => {
                let length = self.sequences.time();
                // The epoch's windows stand side by side from a random offset on, so that an epoch sees
                // the stream but for its ends; what does not fit there is drawn anywhere.
                let random =
                    |draw: usize| generator(self.seed, Purpose::Windows, [epoch as u64, draw as u64]);
                let offset = random(0).random_range(0..length.min(starts.len()));
                let start = |row: usize| {
                    let window = permutation.get(row).map(|&window| offset + window as usize * length);
                    let inside = window.filter(|start| starts.contains(start));
                    inside.unwrap_or_else(|| random(row + 1).random_range(starts.clone()))
                };
                (first..first + self.batch_size).map(start).collect()
            }
        };
        match self.sequences.lengths() {
            Some([shortest, longest]) => {
                let mut random = generator(self.seed, Purpose::Lengths, [epoch as u64, index as u64]);
                let length = random.random_range(shortest as u64..=longest as u64) as usize;
                self.sequences.batch_at(length, &places)
            }
            None => self.sequences.batch(places.into_iter()),
        }
    }

    /// The order of an epoch; drawn once for as long as the same epoch is asked for.
    fn permutation(&self, epoch: usize) -> Arc<[u32]> {
        let mut cached = self.permutation.lock().unwrap_or_else(PoisonError::into_inner);
        match &*cached {
            Some((of, permutation)) if *of == epoch => permutation.clone(),
            _ => {
                let mut samples: Vec<u32> = (0..self.sequences.len() as u32).collect();
                samples.shuffle(&mut generator(self.seed, Purpose::Order, [epoch as u64, 0]));
                let permutation: Arc<[u32]> = samples.into();
                *cached = Some((epoch, permutation.clone()));
                permutation
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Role, sequences::Rows};

    /// 11 rows of different lengths: row `r` counts up from 100 r.
    fn ragged() -> Sequences {
        let mut rows = Rows::default();
        for row in 0..11 {
            rows.push(&(100 * row..100 * row + 2 + row % 5).collect::<Vec<u32>>());
        }
        Sequences::rows(rows)
    }

    fn stream(ids: u32, length: usize) -> Sequences {
        let mut stream = Rows::default();
        stream.push(&(0..ids).collect::<Vec<u32>>());
        Sequences::windows(Arc::new(stream), 2..ids as usize, length)
    }

    #[test]
    fn an_epoch_holds_every_row_once_and_its_order_follows_seed_and_epoch() {
        let loader = Loader::new(ragged(), 3, 7);
        let order = |loader: &Loader, epoch| -> Vec<u32> {
            let first =
                |batch: &Batch| batch.inputs.chunks(batch.time).map(|row| row[0] / 100).collect::<Vec<_>>();
            loader.epoch(epoch).flat_map(|batch| first(&batch)).collect()
        };
        let first = order(&loader, 0);
        let mut sorted = first.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..11).collect::<Vec<_>>());
        assert_ne!(first, sorted);
        assert_ne!(first, order(&loader, 1));
        assert_eq!(first, order(&loader, 0));
        assert_eq!(first, order(&Loader::new(ragged(), 5, 7), 0));
        assert_ne!(first, order(&Loader::new(ragged(), 3, 8), 0));
    }

    #[test]
    fn each_batch_draws_its_length_and_the_same_one_again() {
        use crate::data::{DataConfig, Task, load};
        let config = DataConfig {
            task: Task::Sort,
            length: 16,
            lengths: Some([4, 10]),
            train_samples: 60,
            valid_samples: 3,
            ..DataConfig::default()
        };
        let dataset = load(&config, 5).unwrap();
        assert_eq!((dataset.context(), dataset.valid.time()), (16, 16));
        let loader = Loader::new(dataset.train, 2, 5);
        let mut lengths = Vec::new();
        for batch in loader.epoch(0) {
            lengths.push(batch.time);
            assert_eq!(batch, loader.batch(0, lengths.len() - 1));
            // Half of the sequence, then the half in order.
            for (inputs, targets) in batch.inputs.chunks(batch.time).zip(batch.targets.chunks(batch.time)) {
                let mut prefix = inputs[..batch.time / 2].to_vec();
                prefix.sort_unstable();
                assert_eq!(targets[batch.time / 2..], prefix);
            }
        }
        let other: Vec<usize> = loader.epoch(1).map(|batch| batch.time).collect();
        assert_ne!(lengths, other);
        lengths.sort_unstable();
        lengths.dedup();
        assert_eq!(lengths, [4, 6, 8, 10]);
    }

    #[test]
    fn windows_of_a_drawn_length_lie_within_the_stream() {
        let mut config = crate::data::DataConfig { length: 7, lengths: Some([3, 19]), ..Default::default() };
        config.valid_fraction = 0.2;
        let mut ids = crate::data::ids::Ids::default();
        ids.extend(&(0..30).collect::<Vec<u32>>());
        let (train, valid) = Sequences::cut(&config, ids).unwrap();
        assert_eq!((train.longest(), train.time(), valid.time()), (19, 7, 5));
        let loader = Loader::new(train, 2, 5);
        let mut seen = Vec::new();
        for epoch in 0..60 {
            for batch in loader.epoch(epoch) {
                seen.push(batch.time);
                for (inputs, targets) in batch.inputs.chunks(batch.time).zip(batch.targets.chunks(batch.time))
                {
                    assert!(
                        inputs
                            .iter()
                            .zip(targets)
                            .all(|(input, target)| input + 1 == *target && *target < 24)
                    );
                }
            }
        }
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen, (3..=19).collect::<Vec<_>>());
    }

    #[test]
    fn targets_follow_inputs_and_the_rest_of_a_shorter_row_is_padding() {
        let batch = ragged().batches(3).next().unwrap();
        assert_eq!((batch.rows, batch.time), (3, 3));
        assert_eq!(batch.inputs, [0, 0, 0, 100, 101, 0, 200, 201, 202]);
        assert_eq!(batch.targets, [1, 0, 0, 101, 102, 0, 201, 202, 203]);
        let padded = batch.roles.iter().map(|&role| role == Role::Padding).collect::<Vec<_>>();
        assert_eq!(padded, [false, true, true, false, false, true, false, false, false]);
    }

    #[test]
    fn windows_in_order_hold_every_target_of_the_stream_once() {
        let sequences = stream(40, 7);
        let mut targets = Vec::new();
        for batch in sequences.batches(4) {
            for (target, role) in batch.targets.iter().zip(&batch.roles) {
                if *role != Role::Padding {
                    targets.push(*target);
                }
            }
        }
        assert_eq!(targets, (3..40).collect::<Vec<_>>());
        assert_eq!(sequences.targets(), 37);
    }

    #[test]
    fn windows_at_random_offsets_start_everywhere_and_do_not_depend_on_the_batch_size() {
        let row_starts = |batch_size, epochs| -> Vec<u32> {
            let loader = Loader::new(stream(23, 7), batch_size, 5);
            let starts = |batch: Batch| batch.inputs.chunks(7).map(|row| row[0]).collect::<Vec<_>>();
            (0..epochs).flat_map(|epoch| loader.epoch(epoch)).flat_map(starts).collect()
        };
        let mut seen = row_starts(3, 100);
        assert_eq!(row_starts(1, 1), seen[..3]);
        seen.sort_unstable();
        seen.dedup();
        // From the first id of the part to the last place with seven targets after it.
        assert_eq!(seen, (2..=15).collect::<Vec<_>>());
    }

    #[test]
    fn a_stream_shorter_than_a_window_is_one_shorter_window() {
        let sequences = stream(6, 7);
        assert_eq!((sequences.len(), sequences.time()), (1, 3));
        let shuffled = Loader::new(sequences.clone(), 1, 0).epoch(0).next().unwrap();
        for batch in [shuffled, sequences.batches(1).next().unwrap()] {
            assert_eq!((batch.inputs, batch.targets), (vec![2, 3, 4], vec![3, 4, 5]));
        }
    }

    #[test]
    fn sources_are_padded_and_hidden_beside_their_answers() {
        let (mut sources, mut answers) = (Rows::default(), Rows::default());
        for (source, answer) in [(&[1, 2, 3][..], &[9, 3, 2, 1, 9][..]), (&[4], &[9, 4, 9])] {
            sources.push(source);
            answers.push(answer);
        }
        let sequences = Sequences::pairs(sources, answers);
        assert_eq!((sequences.source_time(), sequences.time()), (Some(3), 4));
        let batch = sequences.batches(2).next().unwrap();
        let source = batch.source.unwrap();
        assert_eq!((source.time, source.tokens), (3, vec![1, 2, 3, 4, 0, 0]));
        assert_eq!(source.padding, [false, false, false, false, true, true]);
        assert_eq!(batch.inputs, [9, 3, 2, 1, 9, 4, 0, 0]);
        assert_eq!(batch.targets, [3, 2, 1, 9, 4, 9, 0, 0]);
    }
}

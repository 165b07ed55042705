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
mod tests;

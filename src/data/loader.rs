//! The order of an epoch, a pure function of (seed, epoch).

mod order;

use std::sync::{Arc, Mutex, PoisonError};

use rand::RngExt;

use self::order::Order;
use super::batch::Batch;
use super::seed::{Purpose, generator};
use super::sequences::Sequences;

/// Creates the training batches. Each row occurs once per epoch, in an order drawn from (seed, epoch). A stream is cut
/// into adjacent windows; the offset of the first window and the order of all windows are also drawn from (seed,
/// epoch). An epoch therefore covers the stream except for less than a window at either end, and over many epochs every
/// offset occurs.
///
/// Any batch can be requested at any time and from any thread, and is the same each time. A run can therefore resume in
/// the middle of an epoch without reading the earlier batches.
#[derive(Debug)]
pub struct Loader {
    sequences: Sequences,
    batch_size: usize,
    seed: u64,
    /// The order of the epoch requested last.
    order: Mutex<Option<(usize, Arc<Order>)>>,
}

impl Loader {
    /// Creates a loader with batches of `batch_size` samples.
    ///
    /// # Panics
    /// Panics if `batch_size` is zero.
    pub fn new(sequences: Sequences, batch_size: usize, seed: u64) -> Self {
        assert!(batch_size > 0, "a batch has at least one sample");
        Loader { sequences, batch_size, seed, order: Mutex::new(None) }
    }

    /// Returns the number of batches per epoch.
    pub fn batches(&self) -> usize {
        self.sequences.len().div_ceil(self.batch_size)
    }

    /// Returns all batches of an epoch.
    pub fn epoch(&self, epoch: usize) -> impl Iterator<Item = Batch> {
        (0..self.batches()).map(move |index| self.batch(epoch, index))
    }

    /// Returns true if an epoch has a batch with this index. A stream has a batch for every index: from
    /// [`batches`](Self::batches) on, all windows start at random offsets, so that a step with gradient accumulation is
    /// always full.
    pub fn holds(&self, index: usize) -> bool {
        self.sequences.window_starts().is_some() || index < self.batches()
    }

    /// Returns batch `index` of `epoch`.
    ///
    /// The last batch of rows holds the remaining samples; a batch of windows is always full.
    ///
    /// # Panics
    /// Panics if an epoch does not [hold](Self::holds) this batch.
    pub fn batch(&self, epoch: usize, index: usize) -> Batch {
        assert!(self.holds(index), "batch {index} is out of range: an epoch has {}", self.batches());
        let first = index * self.batch_size;
        let order = self.order(epoch);
        let offsets: Vec<_> = match self.sequences.window_starts() {
            None => {
                let samples = first..self.sequences.len().min(first + self.batch_size);
                samples.filter_map(|sample| order.get(sample)).collect()
            }
            Some(starts) => {
                let length = self.sequences.time();
                // Adjacent windows from a random offset cover the stream except for its ends. Rows beyond the last of
                // these windows start at random.
                let random =
                    |draw: usize| generator(self.seed, Purpose::Windows, [epoch as u64, draw as u64]);
                let offset = random(0).random_range(0..length.min(starts.len()));
                let start = |row: usize| {
                    let window = order.get(row).map(|window| offset + window * length);
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
                self.sequences.batch_at(length, &offsets)
            }
            None => self.sequences.batch(offsets.into_iter()),
        }
    }

    /// Returns the order of an epoch, which is drawn once and cached until another epoch is requested.
    fn order(&self, epoch: usize) -> Arc<Order> {
        let mut cached = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        match &*cached {
            Some((cached_epoch, order)) if *cached_epoch == epoch => order.clone(),
            _ => {
                let order = Arc::new(Order::draw(self.sequences.len(), self.seed, epoch));
                *cached = Some((epoch, order.clone()));
                order
            }
        }
    }
}

#[cfg(test)]
mod tests;

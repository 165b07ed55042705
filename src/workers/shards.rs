//! The shards of a step: equal parts of its sequences, each computed separately, with the same shapes on any worker.

use std::ops::Range;

use super::Workers;
use crate::config::TrainingConfig;
use crate::error::{Error, Result};

/// The number of shards of a step, and the shards computed by this worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shards {
    /// The number of shards, a power of two.
    pub count: usize,
    /// The shards of this worker.
    pub own: Range<usize>,
}

impl Shards {
    /// Returns a single shard with all sequences of a step.
    pub fn one() -> Self {
        Self { count: 1, own: 0..1 }
    }

    /// Divides the shards of a run of `config` equally among the workers.
    ///
    /// # Errors
    /// Returns [`Error::Key`] if the shards cannot be divided equally.
    pub fn new(config: &TrainingConfig, workers: &Workers) -> Result<Self> {
        let (count, num_workers) = (config.shards.unwrap_or(1), workers.count());
        let problem = match config.shards {
            Some(_) => {
                format!("cannot be divided among {num_workers} workers; use a power of two, up to {count}")
            }
            None => format!(
                "is the default, which cannot be divided among {num_workers} workers; start the run without mpirun"
            ),
        };
        Error::check_key(count.is_multiple_of(num_workers), "training.shards", count, problem)?;
        let each = count / num_workers;
        Ok(Self { count, own: workers.rank() * each..(workers.rank() + 1) * each })
    }

    /// Returns the range of a shard's rows in a batch of `rows` rows; a full batch has `full` rows. The last shards of
    /// a smaller batch may be empty.
    pub fn rows(&self, shard: usize, rows: usize, full: usize) -> Range<usize> {
        let each = full / self.count;
        (shard * each).min(rows)..if shard + 1 == self.count { rows } else { ((shard + 1) * each).min(rows) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_share_the_rows_of_any_batch() {
        let shards = Shards { count: 4, own: 0..4 };
        let rows = |rows| (0..4).map(|shard| shards.rows(shard, rows, 8)).collect::<Vec<_>>();
        assert_eq!(rows(8), [0..2, 2..4, 4..6, 6..8]);
        assert_eq!(rows(3), [0..2, 2..3, 3..3, 3..3]);
        assert_eq!(Shards::one().rows(0, 7, 32), 0..7);
    }
}

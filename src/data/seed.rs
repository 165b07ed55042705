//! Random generators, each a pure function of (seed, purpose, position).
//!
//! No generator is carried along from draw to draw of different things: whoever needs random
//! numbers makes a generator from the run's seed, what the numbers are for, and where they are
//! used. So a set does not change because another one was drawn before it, and a run resumes at
//! any place without replaying what came before.

use rand::SeedableRng;
pub use rand::rngs::ChaCha8Rng;

/// What random numbers are for. Numbers for one purpose are independent of those for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The sequences of the training set.
    TrainingSet = 1,
    /// The sequences of the validation set.
    ValidationSet = 2,
    /// What all sequences of a task share, as a transition matrix.
    Task = 3,
    /// The order of the samples of an epoch.
    Order = 4,
    /// The offsets of the windows of a batch.
    Windows = 5,
    /// Draws by which an expectation is estimated.
    Expectation = 6,
    /// The tokens that a model writes.
    Sampling = 7,
    /// The settings that a study tries.
    Tuning = 8,
    /// The length of each batch.
    Lengths = 9,
    /// The rows of a table that are for validation.
    Split = 10,
}

/// The generator for `purpose` at `position` (as epoch and batch) of the run with `seed`.
///
/// The four numbers are the key of ChaCha, a cipher whose output is the same on every machine.
pub fn generator(seed: u64, purpose: Purpose, position: [u64; 2]) -> ChaCha8Rng {
    let mut key = [0; 32];
    for (bytes, number) in key.chunks_exact_mut(8).zip([seed, purpose as u64, position[0], position[1]]) {
        bytes.copy_from_slice(&number.to_le_bytes());
    }
    ChaCha8Rng::from_seed(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::Rng;

    #[test]
    fn each_part_of_the_key_changes_the_numbers_and_the_same_key_repeats_them() {
        let first = |seed, purpose, position| generator(seed, purpose, position).next_u64();
        let here = first(3, Purpose::Order, [5, 7]);
        assert_eq!(here, first(3, Purpose::Order, [5, 7]));
        for other in [
            first(4, Purpose::Order, [5, 7]),
            first(3, Purpose::Windows, [5, 7]),
            first(3, Purpose::Order, [7, 5]),
            first(3, Purpose::Order, [5, 8]),
        ] {
            assert_ne!(here, other);
        }
    }

    #[test]
    fn the_numbers_are_the_same_on_every_machine() {
        let mut generator = generator(42, Purpose::TrainingSet, [0, 0]);
        // The first block of ChaCha with eight rounds and the key 42, 1, 0, 0, computed apart.
        let first = [2634808449, 2252095063, 3305629412, 649230165u32];
        assert_eq!(std::array::from_fn(|_| generator.next_u32()), first);
    }
}

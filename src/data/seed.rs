//! Random generators, each a pure function of (seed, purpose, position).
//!
//! Code that needs random numbers creates its own generator from the run's seed, the purpose of the numbers, and the
//! position at which they are used. A set therefore does not depend on sets drawn before it, and a run can resume at
//! any step without replaying earlier ones.

use rand::SeedableRng;
pub use rand::rngs::ChaCha8Rng;

/// The purpose of random numbers. Numbers for different purposes are independent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The sequences of the training set.
    TrainingSet = 1,
    /// The sequences of the validation set.
    ValidationSet = 2,
    /// The structure that all sequences of a task share, such as a transition matrix.
    Task = 3,
    /// The order of the samples of an epoch.
    Order = 4,
    /// The offsets of the windows of a batch.
    Windows = 5,
    /// Samples that estimate an expectation.
    Expectation = 6,
    /// The tokens that a model generates.
    Sampling = 7,
    /// The settings of the trials of a study.
    Tuning = 8,
    /// The length of each batch.
    Lengths = 9,
    /// The division of table rows into training and validation.
    Split = 10,
    /// The random tokens of a probe.
    Probe = 11,
}

/// Returns the generator for `purpose` at `position` (such as epoch and batch) of the run with `seed`.
///
/// The four numbers form the key of ChaCha, a cipher with the same output on every machine.
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
    fn generators_depend_on_seed_purpose_and_position() {
        let first = |seed, purpose, position| generator(seed, purpose, position).next_u64();
        let reference = first(3, Purpose::Order, [5, 7]);
        assert_eq!(reference, first(3, Purpose::Order, [5, 7]));
        for other in [
            first(4, Purpose::Order, [5, 7]),
            first(3, Purpose::Windows, [5, 7]),
            first(3, Purpose::Order, [7, 5]),
            first(3, Purpose::Order, [5, 8]),
        ] {
            assert_ne!(reference, other);
        }
    }

    #[test]
    fn numbers_are_the_same_on_every_machine() {
        let mut generator = generator(42, Purpose::TrainingSet, [0, 0]);
        // The first block of ChaCha with eight rounds and the key 42, 1, 0, 0, computed independently.
        let first = [2634808449, 2252095063, 3305629412, 649230165u32];
        assert_eq!(std::array::from_fn(|_| generator.next_u32()), first);
    }
}

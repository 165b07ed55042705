//! A sequence, a separator, and the reversed sequence.
//!
//! ```text
//! 7 1 4 4 | 4 4 1 7
//! ```
//!
//! **Mechanism of a solved model:** one head that attends two positions further back with each step: the answer at
//! position `n + k` is the token at `n - k`. With learned or sinusoidal positions, each position attends to its mirror
//! image, and the attention pattern is an anti-diagonal.
//!
//! [`transduction`](super::transduction) describes the samples for decoders and encoder-decoders, and the **floor**.

/// Reverses a sequence in place.
pub(super) fn answer(sequence: &mut [u32]) {
    sequence.reverse();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::config::{Count, DataConfig};
    use crate::data::tasks::enumeration::{all_sequences, assert_agrees};
    use crate::data::tasks::transduction;

    #[test]
    fn floor_matches_enumeration_of_prefixes() {
        for (vocab, length, prefix) in [(3, 7, 3), (2, 10, 5), (5, 2, 1)] {
            let config = DataConfig { vocab: Count::Of(vocab as usize), length, ..DataConfig::default() };
            let all: Vec<_> = all_sequences(vocab, prefix)
                .into_iter()
                .map(|start| {
                    let backwards = start.iter().rev();
                    let sample = start.iter().chain([&vocab]).chain(backwards).copied().collect();
                    (sample, f64::from(vocab).powi(-(prefix as i32)))
                })
                .collect();
            assert_agrees(&transduction::task(&config, answer).unwrap(), &all);
        }
    }

    #[test]
    fn lengths_without_room_for_answers_are_rejected() {
        let error = transduction::task(&DataConfig { length: 1, ..DataConfig::default() }, answer)
            .err()
            .unwrap()
            .to_string();
        assert_eq!(error, "`data.length` = 1 must be at least 2: a prefix and its answer");
    }
}

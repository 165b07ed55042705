//! A sequence, a separator, and the sequence in ascending order.
//!
//! ```text
//! 7 1 4 4 | 1 4 4 7
//! ```
//!
//! **Mechanism of a solved model:** each position of the answer attends to the smallest integer of the prefix that is
//! not below the current integer. A head finds this integer because its keys encode the order of the integers. Repeated
//! integers must be counted: a second head, or a feed-forward layer, counts the copies of the current integer in the
//! answer. In trained models, three heads of the first layer and both feed-forward layers work together.
//!
//! [`transduction`](super::transduction) describes the samples for decoders and encoder-decoders, and the **floor**.

/// Sorts a sequence in place.
pub(super) fn answer(sequence: &mut [u32]) {
    sequence.sort_unstable();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::config::{Count, DataConfig};
    use crate::data::tasks::enumeration::{all_sequences, assert_agrees};
    use crate::data::tasks::transduction;

    #[test]
    fn floor_matches_enumeration_of_prefixes() {
        let config = DataConfig { vocab: Count::Of(3), length: 9, ..DataConfig::default() };
        let all: Vec<_> = all_sequences(3, 4)
            .into_iter()
            .map(|start| {
                let ascending = (0..3).flat_map(|id| start.iter().filter(move |&&x| x == id));
                let sample = start.iter().chain([&3]).chain(ascending).copied().collect();
                (sample, 1.0 / 81.0)
            })
            .collect();
        assert_agrees(&transduction::task(&config, answer).unwrap(), &all);
    }
}

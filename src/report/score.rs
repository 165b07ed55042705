//! The range that shows the values of a score.

use super::range::{Range, round_up};
use crate::analysis::Score;

/// The range that shows `values` of a score: from 0, or from below where a value is negative; shares of
/// attention reach up to 1 as soon as one is half of it.
pub(crate) fn range(score: Score, values: impl Iterator<Item = f64> + Clone) -> Range {
    let finite = values.filter(|value| value.is_finite());
    let highest = finite.clone().fold(0.0, f64::max);
    let lowest = finite.fold(0.0, f64::min);
    let start = if lowest < 0.0 { -round_up(-lowest) } else { 0.0 };
    let end = match highest {
        _ if score.is_weight() && highest > 0.5 => highest.max(1.0),
        // Where all are below zero, nothing above it is shown.
        0.0 if start < 0.0 => 0.0,
        _ => round_up(highest),
    };
    Range { start, end }
}

/// The name of a head, as "layer 0, head 3".
pub(crate) fn head_name(layer: usize, head: usize) -> String {
    format!("layer {layer}, head {head}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_attention_are_shown_up_to_one_and_losses_below_zero() {
        assert_eq!(range(Score::Induction, [0.1, 0.7].into_iter()), Range { start: 0.0, end: 1.0 });
        assert_eq!(range(Score::First, [0.1, 0.19].into_iter()), Range { start: 0.0, end: 0.2 });
        assert_eq!(
            range(Score::Ablation, [-0.02, 1.7, f64::NAN].into_iter()),
            Range { start: -0.02, end: 2.0 }
        );
        assert_eq!(range(Score::Ablation, [-0.02, -0.01].into_iter()), Range { start: -0.02, end: 0.0 });
    }
}

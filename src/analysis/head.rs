//! Scores that say what a head does, from its attention weights alone.

/// The scores of one head on one sequence.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HeadScores {
    /// Mean weight on the token that followed the last earlier occurrence of the current one: what
    /// an induction head attends to (Olsson et al., 2022). Over the queries that have one; 0 where
    /// none has.
    pub induction: f64,
}

impl HeadScores {
    /// Scores the `weights` `[query, key]`, row-major, of a head over `tokens`.
    pub fn new(weights: &[f32], tokens: &[u32]) -> Self {
        let time = tokens.len();
        let mut sum = 0.0;
        let mut queries = 0;
        for query in 0..time {
            if let Some(last) = tokens[..query].iter().rposition(|&token| token == tokens[query]) {
                sum += f64::from(weights[query * time + last + 1]);
                queries += 1;
            }
        }
        Self { induction: sum / f64::from(queries.max(1)) }
    }
}

/// The head of a layer with the highest induction score; the first where they are equal.
pub fn most_inductive(layer: &[Vec<f32>], tokens: &[u32]) -> usize {
    let scores = layer.iter().map(|head| HeadScores::new(head, tokens).induction).collect::<Vec<_>>();
    let best = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    scores.iter().position(|&score| score == best).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn induction_is_the_weight_behind_the_last_occurrence() {
        let tokens = [5, 7, 5, 7];
        // Query 2 (token 5, last at 0) should look at 1; query 3 (token 7, last at 1) at 2.
        let mut induction = vec![0.0; 16];
        induction[2 * 4 + 1] = 1.0;
        induction[3 * 4 + 2] = 0.5;
        assert_eq!(HeadScores::new(&induction, &tokens).induction, 0.75);
        let uniform = vec![0.25; 16];
        assert_eq!(most_inductive(&[uniform, induction], &tokens), 1);
        assert_eq!(HeadScores::new(&[1.0; 4], &[1, 2]).induction, 0.0, "nothing repeats");
    }
}

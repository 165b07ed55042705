//! The gradients of sinks.
//!
//! A sink is a logit `z` of a head that takes part in the softmax without a value, so that a head can attend to nothing
//! (Miller, *Attention is off by one*, 2023; OpenAI, *gpt-oss*, 2025). Its weight `e^(z - l_i)` has the gradient
//! `-g_i . c_i`, hence `dz = -sum over i of e^(z - l_i) g_i . c_i`.

use super::{Attention, Saved};
use crate::vector::{sum_map, vectorized};

vectorized! {
    /// Computes the gradients of all sinks, `[heads]`.
    pub(super) fn gradients(
        simd; attention: &Attention<'_>, sinks: &[f32], saved: &Saved<'_>, gradients: &mut [f32],
    ) {
        let Attention { batch, query_time, heads, d_head, .. } = *attention;
        gradients.fill(0.0);
        for sequence in 0..batch {
            for (head, gradient) in gradients.iter_mut().enumerate() {
                let log_sum_exp = &saved.log_sum_exp[(sequence * heads + head) * query_time..][..query_time];
                let columns = head * d_head..(head + 1) * d_head;
                for (query, log_sum_exp) in log_sum_exp.iter().enumerate() {
                    let row = sequence * query_time + query;
                    let parts =
                        [saved.context, saved.context_gradient].map(|part| &part.row(row)[columns.clone()]);
                    let dot = sum_map(simd, parts, |[c, g]| c * g);
                    *gradient -= (sinks[head] - log_sum_exp).exp() * dot;
                }
            }
        }
    }
}

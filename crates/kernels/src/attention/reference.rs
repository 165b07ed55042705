//! Reference implementation of attention with all options, in double precision and with the full weight matrix.

use super::{Attention, HiddenPairs};
use crate::{dropout, testing::widened};

/// Queries, keys and values in separate tensors, the bias and the sinks.
#[derive(Clone)]
pub(super) struct Tensors {
    pub query: Vec<f64>,
    pub key: Vec<f64>,
    pub value: Vec<f64>,
    pub bias: Vec<f64>,
    pub sinks: Vec<f64>,
}

impl Tensors {
    pub(super) fn all(&self) -> [&[f64]; 5] {
        [&self.query, &self.key, &self.value, &self.bias, &self.sinks]
    }

    pub(super) fn all_mut(&mut self) -> [&mut [f64]; 5] {
        [&mut self.query, &mut self.key, &mut self.value, &mut self.bias, &mut self.sinks]
    }
}

/// The context, the log-sum-exp, and the gradients for a given gradient of the context.
pub(super) struct Results {
    pub context: Vec<f64>,
    pub log_sum_exp: Vec<f64>,
    pub gradients: Tensors,
}

impl Results {
    /// Creates zero results. The `rows` log-sum-exps are infinite, the value for a query that sees no key.
    fn zeros(tensors: &Tensors, rows: usize) -> Self {
        let [query, key, value, bias, sinks] = tensors.all().map(|tensor| vec![0.0; tensor.len()]);
        let log_sum_exp = vec![f64::INFINITY; rows];
        Self { context: query.clone(), log_sum_exp, gradients: Tensors { query, key, value, bias, sinks } }
    }
}

fn rotated(attention: &Attention, row: &[f64], position: usize, sign: f64) -> Vec<f64> {
    let Some(rotary) = attention.rotary else { return row.to_vec() };
    let pairs = attention.d_head / 2;
    let mut result = vec![0.0; row.len()];
    for pair in 0..pairs {
        let cosine = f64::from(rotary.cosines[position * pairs + pair]);
        let sine = sign * f64::from(rotary.sines[position * pairs + pair]);
        let (x, y) = (row[2 * pair], row[2 * pair + 1]);
        result[2 * pair] = x * cosine - y * sine;
        result[2 * pair + 1] = x * sine + y * cosine;
    }
    result
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn is_hidden(attention: &Attention, sequence: usize, query: usize, key: usize) -> bool {
    let row = sequence * attention.query_time + query;
    let visible = attention.visible.get(row % attention.visible.len().max(1));
    let is_visible = visible.is_none_or(|keys| (keys.first..keys.end).contains(&(key as u32)));
    !is_visible
        || attention.hidden.is_some_and(|HiddenPairs { hidden, shape: [sequences, queries, keys] }| {
            hidden[(sequence % sequences * queries + query % queries) * keys + key] != 0
        })
}

/// Returns the factor of each weight by dropout.
fn dropout_factors(attention: &Attention) -> Vec<f32> {
    let Attention { batch, query_time, key_time, heads, dropout, .. } = *attention;
    let ones = vec![1.0; batch * heads * query_time * key_time];
    let mut factors = ones.clone();
    if let Some(dropout) = dropout {
        dropout::apply(dropout, key_time, &ones, &mut factors);
    }
    factors
}

/// Computes the forward and backward pass.
pub(super) fn compute(attention: &Attention, tensors: &Tensors, context_gradient: &[f64]) -> Results {
    let Attention { batch, query_time, key_time, heads, key_value_heads, d_head, .. } = *attention;
    let first_query = attention.rotary.map_or(0, |rotary| rotary.first_query);
    let scale = attention.scores.scale.map_or((d_head as f64).sqrt().recip(), f64::from);
    let Tensors { query, key, value, bias, sinks } = tensors;
    let mut results = Results::zeros(tensors, batch * heads * query_time);
    let factors = dropout_factors(attention);
    for (sequence, head, i) in
        (0..batch).flat_map(|b| (0..heads).flat_map(move |h| (0..query_time).map(move |i| (b, h, i))))
    {
        let key_value_head = head / (heads / key_value_heads);
        let at_query = ((sequence * query_time + i) * heads + head) * d_head;
        let at_key = |j: usize| ((sequence * key_time + j) * key_value_heads + key_value_head) * d_head;
        let at_bias = |j: usize| head * (query_time + key_time - 1) + j + query_time - 1 - i;
        let row = (sequence * heads + head) * query_time + i;
        let factors = widened(&factors[row * key_time..][..key_time]);
        let q = rotated(attention, &query[at_query..][..d_head], first_query + i, 1.0);
        let keys: Vec<usize> = (0..key_time).filter(|&j| !is_hidden(attention, sequence, i, j)).collect();
        let rotated_keys: Vec<Vec<f64>> =
            (0..key_time).map(|j| rotated(attention, &key[at_key(j)..][..d_head], j, 1.0)).collect();
        let unbounded = |j: usize| scale * dot(&q, &rotated_keys[j]) + bias.get(at_bias(j)).unwrap_or(&0.0);
        let cap = attention.scores.softcap.map(f64::from);
        let score = |j: usize| cap.map_or(unbounded(j), |cap| cap * (unbounded(j) / cap).tanh());
        let sink = sinks.get(head).map_or(0.0, |sink| sink.exp());
        let log_sum_exp = (keys.iter().map(|&j| score(j).exp()).sum::<f64>() + sink).ln();
        let g = &context_gradient[at_query..][..d_head];
        if !keys.is_empty() || !sinks.is_empty() {
            results.log_sum_exp[row] = log_sum_exp;
        }
        let weight = |j: usize| (score(j) - log_sum_exp).exp();
        for &j in &keys {
            for c in 0..d_head {
                results.context[at_query + c] += factors[j] * weight(j) * value[at_key(j) + c];
            }
        }
        let average: f64 =
            keys.iter().map(|&j| weight(j) * factors[j] * dot(g, &value[at_key(j)..][..d_head])).sum();
        let mut dq = vec![0.0; d_head];
        for &j in &keys {
            let ds = weight(j) * (factors[j] * dot(g, &value[at_key(j)..][..d_head]) - average);
            let ds = ds * cap.map_or(1.0, |cap| 1.0 - (score(j) / cap).powi(2));
            let dk: Vec<f64> = q.iter().map(|q| scale * ds * q).collect();
            let dk = rotated(attention, &dk, j, -1.0);
            for c in 0..d_head {
                dq[c] += scale * ds * rotated_keys[j][c];
                results.gradients.key[at_key(j) + c] += dk[c];
                results.gradients.value[at_key(j) + c] += factors[j] * weight(j) * g[c];
            }
            if !bias.is_empty() {
                results.gradients.bias[at_bias(j)] += ds;
            }
        }
        if !sinks.is_empty() {
            results.gradients.sinks[head] -= (sinks[head] - log_sum_exp).exp() * average;
        }
        let dq = rotated(attention, &dq, first_query + i, -1.0);
        results.gradients.query[at_query..][..d_head].copy_from_slice(&dq);
    }
    results
}

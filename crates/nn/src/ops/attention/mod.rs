//! Scaled dot-product attention over heads (Vaswani et al., 2017, arXiv 1706.03762):
//! `softmax(Q K^T / sqrt(d_head) + bias) V`, with masks, positions and dropout.

#[cfg(test)]
mod agreement;
mod blocks;
mod fused;
mod rotate;

pub use rotate::rotate;

use burn::tensor::{Int, Tensor, backend::Backend};

use super::kernels::{Kernels, kernels};
use super::{Mask, dropout, host, masked_softmax, precision::matmul, softcap};
use crate::{Error, Result};

/// The options of an attention operation.
#[derive(Debug, Clone)]
pub struct AttentionOptions<B: Backend> {
    /// The number of query heads.
    pub heads: usize,
    /// The number of key and value heads, each shared by `heads / key_value_heads` query heads (Ainslie et al., 2023,
    /// arXiv 2305.13245).
    pub key_value_heads: usize,
    /// The mask, which hides keys from queries.
    pub mask: Mask<B>,
    /// The effect of positions on the scores.
    pub position: ScorePosition<B>,
    /// The probability of dropping a weight in training.
    pub dropout: f64,
    /// The factor of the products of queries and keys; `1 / sqrt(d_head)` if absent.
    pub scale: Option<f64>,
    /// The bound `c` of the scores with their bias, which become `c tanh(score / c)` (Gemma Team, 2024, arXiv
    /// 2408.00118).
    pub softcap: Option<f64>,
    /// The sink of each head, `[heads]`: a logit that takes part in the softmax like the score of a key whose value is
    /// zero, so that a head can attend to nothing (Miller, 2023, "Attention is off by one"; OpenAI, 2025, arXiv
    /// 2508.10925).
    pub sinks: Option<Tensor<B, 1>>,
}

impl<B: Backend> AttentionOptions<B> {
    /// Creates the options of plain attention, without dropout.
    pub fn new([heads, key_value_heads]: [usize; 2], mask: Mask<B>, position: ScorePosition<B>) -> Self {
        Self { heads, key_value_heads, mask, position, dropout: 0.0, scale: None, softcap: None, sinks: None }
    }
}

/// The effect of a position scheme on the scores.
#[derive(Debug, Clone)]
pub enum ScorePosition<B: Backend> {
    /// No effect.
    None,
    /// Rotates queries and keys by their position before the dot product; see [`rotate`]. If there are fewer queries
    /// than keys, the queries are the last positions.
    Rotation {
        /// The cosines of the angles, `[key_time, d_head / 2]`: constants without gradients.
        cosine: Tensor<B, 2>,
        /// The sines of the angles, with the same shape as `cosine`.
        sine: Tensor<B, 2>,
    },
    /// Adds to each score a bias that depends on the head and on the distance from query to key. The tensor is
    /// `[heads, query_time + key_time - 1]`; query `i` and key `j` use column `i - j + key_time - 1`.
    Bias(Tensor<B, 2>),
}

impl<B: Backend> ScorePosition<B> {
    /// Checks that the tables fit queries and keys of these sizes.
    ///
    /// # Errors
    /// [`Error::Shape`] with the shape of the table and the expected one.
    pub fn check(&self, heads: usize, d_head: usize, query_time: usize, key_time: usize) -> Result<()> {
        let (name, shape, wanted) = match self {
            ScorePosition::None => return Ok(()),
            ScorePosition::Rotation { cosine, sine } if cosine.dims() != sine.dims() => {
                ("table of sines", sine.dims(), cosine.dims())
            }
            ScorePosition::Rotation { .. } if !d_head.is_multiple_of(2) => {
                let problem = format!("heads of width {d_head} cannot be rotated; use an even width");
                return Err(Error::Shape(problem));
            }
            ScorePosition::Rotation { cosine, .. } => {
                ("table of cosines", cosine.dims(), [key_time, d_head / 2])
            }
            ScorePosition::Bias(bias) => {
                ("bias by distance", bias.dims(), [heads, query_time + key_time - 1])
            }
        };
        if shape == wanted {
            return Ok(());
        }
        Err(Error::Shape(format!("the {name} is {shape:?}, but must be {wanted:?}")))
    }
}

/// Queries, keys and values, each with its heads concatenated on the last axis.
#[derive(Debug, Clone)]
pub enum Projections<B: Backend> {
    /// All three concatenated, as a single projection of the input returns them:
    /// `[batch, time, (heads + 2 * key_value_heads) * d_head]`.
    Packed(Tensor<B, 3>),
    /// Queries `[batch, query_time, heads * d_head]`, then keys and values
    /// `[batch, key_time, key_value_heads * d_head]`.
    Separate([Tensor<B, 3>; 3]),
}

impl<B: Backend> Projections<B> {
    /// Returns the batch size and the number of queries.
    pub fn query_dims(&self) -> [usize; 2] {
        let (Self::Packed(query) | Self::Separate([query, _, _])) = self;
        let [batch, query_time, _] = query.dims();
        [batch, query_time]
    }

    /// Splits the projections into queries, keys and values; see [`Projections::Separate`].
    pub fn split(self, options: &AttentionOptions<B>) -> [Tensor<B, 3>; 3] {
        let packed = match self {
            Projections::Packed(packed) => packed,
            Projections::Separate(projections) => return projections,
        };
        let [_, _, width] = packed.dims();
        let d_head = width / (options.heads + 2 * options.key_value_heads);
        let (query, key_value) = (options.heads * d_head, options.key_value_heads * d_head);
        let part = |start: usize, width: usize| packed.clone().narrow(2, start, width);
        [part(0, query), part(query, key_value), part(query + key_value, key_value)]
    }
}

/// Computes attention of queries over keys and values. [`AttentionSteps`] does the same step by step, with access to
/// the attention weights.
///
/// # Shapes
/// The result is `[batch, query_time, heads * d_head]`.
pub fn attention<B: Backend>(projections: Projections<B>, options: AttentionOptions<B>) -> Tensor<B, 3> {
    if let Some(context) = fused::attention(&projections, &options) {
        return context;
    }
    let AttentionSteps { parts, mask, dropout } = AttentionSteps::new(projections, options);
    if !host::is_readable::<B>() && kernels() == Kernels::Fused {
        let by_blocks = blocks::attention(&parts, &mask, dropout, blocks::MAX_BLOCK_SCORES);
        if let Some(context) = by_blocks {
            return merge_heads(context);
        }
    }
    let (context, _) = reference(parts, &mask, dropout);
    merge_heads(context)
}

/// Attention in three steps of Burn's operations: scores, pattern, context.
#[derive(Debug, Clone)]
pub struct AttentionSteps<B: Backend> {
    parts: HeadParts<B>,
    mask: Mask<B>,
    dropout: f64,
}

impl<B: Backend> AttentionSteps<B> {
    /// Rotates queries and keys, and splits them and the values into heads.
    pub fn new(projections: Projections<B>, options: AttentionOptions<B>) -> Self {
        let (dropout, mask) = (options.dropout, options.mask.clone());
        Self { parts: HeadParts::new(projections.split(&options), options), mask, dropout }
    }

    /// Returns the scaled scores with the position bias, before mask and softmax.
    ///
    /// # Shapes
    /// `[batch, heads, query_time, key_time]`.
    pub fn scores(&self) -> Tensor<B, 4> {
        self.parts.scores()
    }

    /// Returns the attention weights for given scores: after mask, softmax and dropout.
    ///
    /// # Shapes
    /// `[batch, heads, query_time, key_time]`, in and out.
    pub fn pattern(&self, scores: Tensor<B, 4>) -> Tensor<B, 4> {
        dropout::run(masked_softmax(scores, &self.mask, self.parts.sinks.as_ref()), self.dropout)
    }

    /// Returns the weighted sum of the values. If there are fewer patterns than heads, adjacent heads with the same
    /// values share one.
    ///
    /// # Shapes
    /// `pattern` `[batch, heads, query_time, key_time]`; the result is `[batch, heads, query_time, d_head]`.
    pub fn context(&self, pattern: Tensor<B, 4>) -> Tensor<B, 4> {
        let value = self.parts.value.clone();
        let ([_, count, ..], [batch, heads, key_time, d_head]) = (pattern.dims(), value.dims());
        if count == heads {
            return matmul(pattern, value);
        }
        let first = value.reshape([batch, count, heads / count, key_time, d_head]).narrow(2, 0, 1);
        matmul(pattern, first.reshape([batch, count, key_time, d_head]))
    }
}

/// The queries, keys and values of all heads, ready for the dot product.
#[derive(Debug, Clone)]
struct HeadParts<B: Backend> {
    /// The rotated and scaled queries, `[batch, heads, query_time, d_head]`.
    query: Tensor<B, 4>,
    /// The rotated keys, `[batch, heads, key_time, d_head]`.
    key: Tensor<B, 4>,
    /// The values, with the same shape as the keys.
    value: Tensor<B, 4>,
    /// The bias by distance; see [`ScorePosition::Bias`].
    bias: Option<Tensor<B, 2>>,
    softcap: Option<f64>,
    sinks: Option<Tensor<B, 1>>,
}

impl<B: Backend> HeadParts<B> {
    fn new([query, key, value]: [Tensor<B, 3>; 3], options: AttentionOptions<B>) -> Self {
        let AttentionOptions { heads, key_value_heads, position, scale, softcap, sinks, .. } = options;
        let ([_, query_time, width], [_, key_time, _]) = (query.dims(), key.dims());
        let (mut query, mut key, mut bias) = (query, key, None);
        match position {
            ScorePosition::None => {}
            ScorePosition::Rotation { cosine, sine } => {
                let last = |table: &Tensor<B, 2>| table.clone().narrow(0, key_time - query_time, query_time);
                query = rotate(query, last(&cosine), last(&sine));
                key = rotate(key, cosine, sine);
            }
            ScorePosition::Bias(by_distance) => bias = Some(by_distance),
        }
        // Scaling the queries costs less than scaling the scores, with the same result.
        let scale = scale.unwrap_or_else(|| ((width / heads) as f64).powf(-0.5));
        let query = split_heads(query, heads) * scale;
        let [key, value] = [key, value].map(|part| repeat_heads(split_heads(part, key_value_heads), heads));
        Self { query, key, value, bias, softcap, sinks }
    }

    /// Returns the scores before mask and softmax, `[batch, heads, query_time, key_time]`.
    fn scores(&self) -> Tensor<B, 4> {
        let [query_time, key_time] = self.times();
        let scores = matmul(self.query.clone(), self.key.clone().swap_dims(2, 3));
        let scores = match &self.bias {
            Some(bias) => scores + spread_bias(bias.clone(), query_time, key_time).unsqueeze::<4>(),
            None => scores,
        };
        match self.softcap {
            Some(cap) => softcap(scores, cap),
            None => scores,
        }
    }

    /// Returns the numbers of queries and keys.
    fn times(&self) -> [usize; 2] {
        let ([_, _, query_time, _], [_, _, key_time, _]) = (self.query.dims(), self.key.dims());
        [query_time, key_time]
    }
}

/// Returns the contexts of the heads, `[batch, heads, query_time, d_head]`, and the weights as applied.
fn reference<B: Backend>(parts: HeadParts<B>, mask: &Mask<B>, dropout: f64) -> (Tensor<B, 4>, Tensor<B, 4>) {
    let weights = dropout::run(masked_softmax(parts.scores(), mask, parts.sinks.as_ref()), dropout);
    (matmul(weights.clone(), parts.value), weights)
}

/// Concatenates the heads: `[batch, heads, time, d_head]` to `[batch, time, heads * d_head]`.
pub fn merge_heads<B: Backend>(heads: Tensor<B, 4>) -> Tensor<B, 3> {
    let [batch, count, time, d_head] = heads.dims();
    heads.swap_dims(1, 2).reshape([batch, time, count * d_head])
}

/// Splits the last axis into heads: `[batch, time, heads * d_head]` to `[batch, heads, time, d_head]`.
pub fn split_heads<B: Backend>(input: Tensor<B, 3>, heads: usize) -> Tensor<B, 4> {
    let [batch, time, width] = input.dims();
    input.reshape([batch, time, heads, width / heads]).swap_dims(1, 2)
}

/// Repeats each key or value head for the group of query heads that share it: `[batch, key_value_heads, time, d_head]`
/// to `[batch, heads, time, d_head]`.
pub fn repeat_heads<B: Backend>(input: Tensor<B, 4>, heads: usize) -> Tensor<B, 4> {
    let [batch, key_value_heads, time, d_head] = input.dims();
    if key_value_heads == heads {
        return input;
    }
    let group = heads / key_value_heads;
    input
        .reshape([batch, key_value_heads, 1, time, d_head])
        .expand([batch, key_value_heads, group, time, d_head])
        .reshape([batch, heads, time, d_head])
}

/// Expands a bias by distance, `[heads, query_time + key_time - 1]`, to the scores, `[heads, query_time, key_time]`.
fn spread_bias<B: Backend>(by_distance: Tensor<B, 2>, query_time: usize, key_time: usize) -> Tensor<B, 3> {
    let [heads, distances] = by_distance.dims();
    let after_last = by_distance.clone().narrow(1, 0, 1).zeros_like();
    // Each row is the one above, moved by one column: what rows of one column more become if they are read without it.
    // An index per pair would be slower.
    Tensor::cat(vec![by_distance.flip([1]), after_last], 1)
        .reshape([heads, 1, distances + 1])
        .expand([heads, query_time, distances + 1])
        .reshape([heads, query_time * (distances + 1)])
        .narrow(1, query_time - 1, query_time * distances)
        .reshape([heads, query_time, distances])
        .narrow(2, 0, key_time)
}

/// Returns the column of the bias by distance for each pair, `[query_time * key_time]`.
fn bias_columns<B: Backend>(query_time: usize, key_time: usize, device: &B::Device) -> Tensor<B, 1, Int> {
    let query = Tensor::<B, 1, Int>::arange(0..query_time as i64, device).reshape([query_time, 1]);
    let key = Tensor::<B, 1, Int>::arange(0..key_time as i64, device).reshape([1, key_time]);
    (query - key + (key_time as i64 - 1)).reshape([query_time * key_time])
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Distribution, TensorData, Tolerance};
    use burn_ndarray::NdArray;

    type B = NdArray;

    fn random<const D: usize>(shape: [usize; D]) -> Tensor<B, D> {
        Tensor::random(shape, Distribution::Normal(0.0, 1.0), &Default::default())
    }

    fn options(mask: Mask<B>, position: ScorePosition<B>) -> AttentionOptions<B> {
        AttentionOptions::new([3, 3], mask, position)
    }

    #[test]
    fn bias_by_distance_is_added_to_its_pair() {
        let (query_time, key_time) = (2, 5);
        let bias = random([3, query_time + key_time - 1]);
        // With zero queries, the scores are the bias alone.
        let query = Tensor::zeros([1, query_time, 12], &Default::default());
        let steps = AttentionSteps::new(
            Projections::Separate([query, random([1, key_time, 12]), random([1, key_time, 12])]),
            options(Mask::none(), ScorePosition::Bias(bias.clone())),
        );
        let weights = steps.pattern(steps.scores());
        let bias: Vec<f32> = bias.into_data().to_vec().unwrap();
        let mut expected = Vec::new();
        for head in 0..3 {
            for query in 0..query_time {
                let column = |key: usize| head * (query_time + key_time - 1) + query + key_time - 1 - key;
                let row: Vec<f32> = (0..key_time).map(|key| bias[column(key)].exp()).collect();
                let sum: f32 = row.iter().sum();
                expected.extend(row.iter().map(|x| x / sum));
            }
        }
        let expected = TensorData::new(expected, [1, 3, query_time, key_time]);
        weights.into_data().assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-6));
    }

    #[test]
    fn last_queries_have_the_last_positions() {
        let (last, time) = (2, 7);
        let (query, key, value) = (random([5, time, 12]), random([5, time, 12]), random([5, time, 12]));
        let rotation = ScorePosition::Rotation { cosine: random([time, 2]), sine: random([time, 2]) };
        let bias = random([3, 2 * time - 1]);
        // The distances of the last queries are the later columns.
        let shorter = ScorePosition::Bias(bias.clone().narrow(1, time - last, time + last - 1));
        for (all, few) in [(rotation.clone(), rotation), (ScorePosition::Bias(bias), shorter)] {
            let attend = |query, position| {
                let projections = Projections::Separate([query, key.clone(), value.clone()]);
                attention(projections, options(Mask::causal(), position))
            };
            let all = attend(query.clone(), all).narrow(1, time - last, last);
            let few = attend(query.clone().narrow(1, time - last, last), few);
            few.into_data().assert_approx_eq::<f32>(&all.into_data(), Tolerance::absolute(1e-5));
        }
    }

    #[test]
    fn wrong_table_size_reports_both_shapes() {
        let bias = ScorePosition::Bias(random([3, 9]));
        assert!(bias.check(3, 4, 5, 5).is_ok());
        let message = bias.check(3, 4, 5, 7).unwrap_err().to_string();
        assert_eq!(message, "the bias by distance is [3, 9], but must be [3, 11]");
        let rotation = ScorePosition::Rotation { cosine: random([5, 2]), sine: random([5, 3]) };
        assert!(rotation.check(3, 4, 5, 5).is_err());
        let odd = Tensor::<NdArray, 2>::zeros([5, 1], &Default::default());
        let odd = ScorePosition::Rotation { cosine: odd.clone(), sine: odd };
        assert!(odd.check(3, 3, 5, 5).unwrap_err().to_string().contains("width 3"));
    }
}

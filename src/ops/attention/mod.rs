//! Scaled dot-product attention over heads (Vaswani et al., 2017, arXiv 1706.03762):
//! `softmax(Q K^T / sqrt(d_head) + bias) V`, with masks, positions and dropout.

#[cfg(test)]
mod agreement;
mod fused;

use burn::tensor::ops::FloatTensor;
use burn::tensor::{Int, Tensor, backend};

use super::dropout::{self, draw};
use super::precision::matmul;
use super::{Backend, IntoFloat, Mask, float, masked_softmax};
use crate::{Error, Result};

/// What an attention operation is told besides its tensors.
#[derive(Debug, Clone)]
pub struct AttentionOptions<B: backend::Backend> {
    /// Number of query heads.
    pub heads: usize,
    /// Number of key and value heads, each shared by `heads / key_value_heads` query heads
    /// (Ainslie et al., 2023, arXiv 2305.13245).
    pub key_value_heads: usize,
    /// Which keys each query may not see.
    pub mask: Mask<B>,
    /// What the positions do to the scores.
    pub position: ScorePosition<B>,
    /// Probability with which a weight is dropped while training.
    pub dropout: f64,
}

/// How a position scheme reaches the scores.
#[derive(Debug, Clone)]
pub enum ScorePosition<B: backend::Backend> {
    /// Not at all.
    None,
    /// Queries and keys are rotated by their position before they meet; see [`rotate`]. With
    /// fewer queries than keys, the queries are the last ones.
    Rotation {
        /// Cosines of the angles, `[key_time, d_head / 2]`.
        cosine: Tensor<B, 2>,
        /// Sines of the angles, `[key_time, d_head / 2]`.
        sine: Tensor<B, 2>,
    },
    /// A number is added to each score that depends on the head and on how far the key lies
    /// before the query: `[heads, query_time + key_time - 1]`, where column
    /// `i - j + key_time - 1` belongs to query `i` and key `j`.
    Bias(Tensor<B, 2>),
}

impl<B: backend::Backend> ScorePosition<B> {
    /// Whether the tables fit queries and keys of these sizes.
    ///
    /// # Errors
    /// [`Error::Shape`] naming the table's shape and the one that fits.
    pub fn check(&self, heads: usize, d_head: usize, query_time: usize, key_time: usize) -> Result<()> {
        let (name, shape, wanted) = match self {
            ScorePosition::None => return Ok(()),
            ScorePosition::Rotation { cosine, sine } if cosine.dims() != sine.dims() => {
                ("sines", sine.dims(), cosine.dims())
            }
            ScorePosition::Rotation { .. } if !d_head.is_multiple_of(2) => {
                let problem = format!("heads of width {d_head} cannot be rotated: pairs need an even width");
                return Err(Error::Shape(problem));
            }
            ScorePosition::Rotation { cosine, .. } => ("rotation", cosine.dims(), [key_time, d_head / 2]),
            ScorePosition::Bias(bias) => {
                ("bias by distance", bias.dims(), [heads, query_time + key_time - 1])
            }
        };
        if shape == wanted {
            return Ok(());
        }
        Err(Error::Shape(format!("the table of the {name} is {shape:?}, but it must be {wanted:?}")))
    }
}

/// Attention of queries over keys and values, all heads side by side on the last axis.
///
/// # Shapes
/// `query` `[batch, query_time, heads * d_head]`, `key` and `value`
/// `[batch, key_time, key_value_heads * d_head]`; the result is that of `query`.
pub fn attention<B: Backend>(
    query: Tensor<B, 3>,
    key: Tensor<B, 3>,
    value: Tensor<B, 3>,
    options: AttentionOptions<B>,
) -> Tensor<B, 3> {
    let [batch, query_time, width] = query.dims();
    let [_, key_time, _] = key.dims();
    let AttentionOptions { heads, key_value_heads, .. } = options;
    let sizes = fused::Sizes { batch, query_time, key_time, heads, key_value_heads, d_head: width / heads };
    let parts = [query, key, value].map(IntoFloat::into_float);
    match fused::attention::<B>(parts.iter(), sizes, &options) {
        Some(operation) => run(operation, parts, options),
        None => composed(parts.map(float), options).0,
    }
}

/// [`attention`], with the weights as they were applied (after dropout).
///
/// # Shapes
/// The weights are `[batch, heads, query_time, key_time]`.
pub fn attention_with_weights<B: Backend>(
    query: Tensor<B, 3>,
    key: Tensor<B, 3>,
    value: Tensor<B, 3>,
    options: AttentionOptions<B>,
) -> (Tensor<B, 3>, Tensor<B, 4>) {
    composed([query, key, value], options)
}

/// Self-attention from queries, keys and values that lie side by side, as one projection makes them.
///
/// # Shapes
/// `query_key_value` `[batch, time, (heads + 2 * key_value_heads) * d_head]`; the result is
/// `[batch, time, heads * d_head]`.
pub fn packed_attention<B: Backend>(
    query_key_value: Tensor<B, 3>,
    options: AttentionOptions<B>,
) -> Tensor<B, 3> {
    let [batch, time, width] = query_key_value.dims();
    let AttentionOptions { heads, key_value_heads, .. } = options;
    let d_head = width / (heads + 2 * key_value_heads);
    let sizes = fused::Sizes { batch, query_time: time, key_time: time, heads, key_value_heads, d_head };
    let packed = query_key_value.into_float();
    match fused::attention::<B>([&packed].into_iter(), sizes, &options) {
        Some(operation) => run(operation, [packed], options),
        None => packed_attention_with_weights(float(packed), options).0,
    }
}

/// [`packed_attention`], with the weights `[batch, heads, time, time]` as they were applied.
pub fn packed_attention_with_weights<B: Backend>(
    query_key_value: Tensor<B, 3>,
    options: AttentionOptions<B>,
) -> (Tensor<B, 3>, Tensor<B, 4>) {
    composed(split_packed(query_key_value, &options), options)
}

/// The three parts of a packed projection.
///
/// # Shapes
/// `[batch, time, (heads + 2 * key_value_heads) * d_head]` to
/// `[batch, time, heads * d_head]` and twice `[batch, time, key_value_heads * d_head]`.
pub fn split_packed<B: backend::Backend>(
    query_key_value: Tensor<B, 3>,
    options: &AttentionOptions<B>,
) -> [Tensor<B, 3>; 3] {
    let [_, _, width] = query_key_value.dims();
    let d_head = width / (options.heads + 2 * options.key_value_heads);
    let (query, key_value) = (options.heads * d_head, options.key_value_heads * d_head);
    let part = |start: usize, width: usize| query_key_value.clone().narrow(2, start, width);
    [part(0, query), part(query, key_value), part(query + key_value, key_value)]
}

/// Runs the fused form. The inputs of its gradient are the projections, and the bias if there is one.
fn run<B: Backend, const N: usize>(
    mut operation: fused::Attention<B::Host>,
    projections: [FloatTensor<B>; N],
    options: AttentionOptions<B>,
) -> Tensor<B, 3> {
    operation.dropout = draw::<B>(options.dropout, &B::float_device(&projections[0]));
    let bias = match options.position {
        ScorePosition::Bias(bias) => Some(bias.into_float()),
        ScorePosition::None | ScorePosition::Rotation { .. } => None,
    };
    let inputs: Vec<_> = projections.into_iter().map(Some).chain([bias]).collect();
    float(B::run(operation, &inputs))
}

fn composed<B: Backend>(
    [query, key, value]: [Tensor<B, 3>; 3],
    options: AttentionOptions<B>,
) -> (Tensor<B, 3>, Tensor<B, 4>) {
    let AttentionOptions { heads, key_value_heads, mask, position, dropout } = options;
    let [batch, query_time, width] = query.dims();
    let [_, key_time, _] = key.dims();
    let d_head = width / heads;

    let mut query = split_heads(query, heads); // [batch, heads, query_time, d_head]
    let mut key = split_heads(key, key_value_heads); // [batch, key_value_heads, key_time, d_head]
    let value = repeat_heads(split_heads(value, key_value_heads), heads);
    let mut bias = None;
    match position {
        ScorePosition::None => {}
        ScorePosition::Rotation { cosine, sine } => {
            let last = |table: &Tensor<B, 2>| table.clone().narrow(0, key_time - query_time, query_time);
            query = rotate(query, last(&cosine), last(&sine));
            key = rotate(key, cosine, sine);
        }
        ScorePosition::Bias(by_distance) => bias = Some(spread_bias(by_distance, query_time, key_time)),
    }
    let key = repeat_heads(key, heads);

    // Scaling the queries costs less than scaling the scores and gives the same.
    let scores = matmul(query * (d_head as f64).powf(-0.5), key.swap_dims(2, 3));
    let scores = match bias {
        Some(bias) => scores + bias.unsqueeze::<4>(),
        None => scores,
    };
    let weights = masked_softmax(scores, &mask); // [batch, heads, query_time, key_time]
    let weights = float::<B, 4>(dropout::run::<B>(weights.into_float(), dropout));
    let context = matmul(weights.clone(), value); // [batch, heads, query_time, d_head]
    (context.swap_dims(1, 2).reshape([batch, query_time, width]), weights)
}

/// Rotary positions on interleaved pairs (Su et al., 2021, arXiv 2104.09864): elements `2i` and
/// `2i + 1` of each head are one point in the plane, turned by the angle of time and pair.
///
/// # Shapes
/// `input` and the result `[batch, heads, time, d_head]`, tables `[time, d_head / 2]`.
pub fn rotate<B: backend::Backend>(
    input: Tensor<B, 4>,
    cosine: Tensor<B, 2>,
    sine: Tensor<B, 2>,
) -> Tensor<B, 4> {
    let [batch, heads, time, d_head] = input.dims();
    let pairs = input.reshape([batch, heads, time, d_head / 2, 2]);
    let table = |table: Tensor<B, 2>| table.reshape([1, 1, time, d_head / 2, 1]);
    let (cosine, sine) = (table(cosine), table(sine));
    let x = pairs.clone().narrow(4, 0, 1); // [batch, heads, time, d_head / 2, 1]
    let y = pairs.narrow(4, 1, 1);
    let turned =
        Tensor::cat(vec![x.clone() * cosine.clone() - y.clone() * sine.clone(), x * sine + y * cosine], 4);
    turned.reshape([batch, heads, time, d_head])
}

/// `[batch, time, heads * d_head]` to `[batch, heads, time, d_head]`.
fn split_heads<B: backend::Backend>(input: Tensor<B, 3>, heads: usize) -> Tensor<B, 4> {
    let [batch, time, width] = input.dims();
    input.reshape([batch, time, heads, width / heads]).swap_dims(1, 2)
}

/// Lets groups of query heads share a head: `[batch, key_value_heads, time, d_head]` to
/// `[batch, heads, time, d_head]`, each head repeated in its place.
fn repeat_heads<B: backend::Backend>(input: Tensor<B, 4>, heads: usize) -> Tensor<B, 4> {
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

/// A bias by distance, `[heads, query_time + key_time - 1]`, laid out over the scores,
/// `[heads, query_time, key_time]`.
fn spread_bias<B: backend::Backend>(
    by_distance: Tensor<B, 2>,
    query_time: usize,
    key_time: usize,
) -> Tensor<B, 3> {
    let [heads, _] = by_distance.dims();
    let device = by_distance.device();
    let query = Tensor::<B, 1, Int>::arange(0..query_time as i64, &device).reshape([query_time, 1]);
    let key = Tensor::<B, 1, Int>::arange(0..key_time as i64, &device).reshape([1, key_time]);
    let column = (query - key + (key_time as i64 - 1)).reshape([query_time * key_time]);
    by_distance.select(1, column).reshape([heads, query_time, key_time])
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
        AttentionOptions { heads: 3, key_value_heads: 3, mask, position, dropout: 0.0 }
    }

    #[test]
    fn a_bias_by_distance_lands_on_its_pair() {
        let (query_time, key_time) = (2, 5);
        let bias = random([3, query_time + key_time - 1]);
        // Without queries the scores are the bias alone.
        let (_, weights) = attention_with_weights(
            Tensor::zeros([1, query_time, 12], &Default::default()),
            random([1, key_time, 12]),
            random([1, key_time, 12]),
            options(Mask::none(), ScorePosition::Bias(bias.clone())),
        );
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
    fn the_last_queries_stand_at_the_last_places() {
        let (last, time) = (2, 7);
        let (query, key, value) = (random([5, time, 12]), random([5, time, 12]), random([5, time, 12]));
        let rotation = ScorePosition::Rotation { cosine: random([time, 2]), sine: random([time, 2]) };
        let bias = random([3, 2 * time - 1]);
        // The last queries' distances are the later columns.
        let shorter = ScorePosition::Bias(bias.clone().narrow(1, time - last, time + last - 1));
        for (all, few) in [(rotation.clone(), rotation), (ScorePosition::Bias(bias), shorter)] {
            let attend = |query, position| {
                attention(query, key.clone(), value.clone(), options(Mask::causal(), position))
            };
            let all = attend(query.clone(), all).narrow(1, time - last, last);
            let few = attend(query.clone().narrow(1, time - last, last), few);
            few.into_data().assert_approx_eq::<f32>(&all.into_data(), Tolerance::absolute(1e-5));
        }
    }

    #[test]
    fn tables_of_the_wrong_size_name_both_shapes() {
        let bias = ScorePosition::Bias(random([3, 9]));
        assert!(bias.check(3, 4, 5, 5).is_ok());
        let message = bias.check(3, 4, 5, 7).unwrap_err().to_string();
        assert_eq!(message, "the table of the bias by distance is [3, 9], but it must be [3, 11]");
        let rotation = ScorePosition::Rotation { cosine: random([5, 2]), sine: random([5, 3]) };
        assert!(rotation.check(3, 4, 5, 5).is_err());
        let odd = Tensor::<NdArray, 2>::zeros([5, 1], &Default::default());
        let odd = ScorePosition::Rotation { cosine: odd.clone(), sine: odd };
        assert!(odd.check(3, 3, 5, 5).unwrap_err().to_string().contains("width 3"));
    }
}

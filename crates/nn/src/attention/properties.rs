//! Property tests of attention with random shapes.

use burn::tensor::{Bool, Distribution, Int, Tensor, Tolerance};
use burn_ndarray::NdArray;
use proptest::prelude::*;
use proptest::sample::select;

use super::{
    Mask, MultiHeadAttention, MultiHeadAttentionConfig, SplitHeads, SplitHeadsConfig, StackedHeadsConfig,
};
use crate::model::ModelConfig;
use crate::ops::ScorePosition;
use crate::position::{Direction, Position, PositionScheme, PositionSettings, Widths};

type B = NdArray;

/// A shape with pairwise different sizes, so that a swapped axis cannot pass.
#[derive(Debug, Clone)]
struct Shape {
    batch: usize,
    time: usize,
    key_time: usize,
    heads: usize,
    key_value_heads: usize,
    d_head: usize,
}

fn shapes() -> impl Strategy<Value = Shape> {
    let sizes = (2usize..5, 2usize..12, 2usize..12, 1usize..4, 1usize..4, 1usize..6);
    sizes
        .prop_map(|(batch, time, key_time, key_value_heads, group, half)| Shape {
            batch,
            time,
            key_time,
            heads: key_value_heads * group,
            key_value_heads,
            d_head: 2 * half,
        })
        .prop_filter("all sizes differ", |shape| {
            let Shape { batch, time, key_time, heads, key_value_heads, d_head } = *shape;
            let mut sizes = vec![batch, time, key_time, heads, d_head];
            // A single head is as wide as the model, and without grouping there are as many key-value heads as query
            // heads.
            sizes.extend((heads > 1).then_some(heads * d_head));
            sizes.extend((key_value_heads != heads).then_some(key_value_heads));
            (0..sizes.len()).all(|i| !sizes[..i].contains(&sizes[i]))
        })
}

fn schemes() -> impl Strategy<Value = PositionScheme> {
    // Schemes that add vectors to the embeddings are nothing to attention.
    let adds_vectors = |scheme: &PositionScheme| {
        use PositionScheme::{Learned, RandomSinusoidal, Sinusoidal};
        matches!(scheme, Learned | Sinusoidal | RandomSinusoidal)
    };
    select(PositionScheme::ALL.into_iter().filter(|scheme| !adds_vectors(scheme)).collect::<Vec<_>>())
}

fn random<const D: usize>(shape: [usize; D]) -> Tensor<B, D> {
    Tensor::random(shape, Distribution::Normal(0.0, 1.0), &Default::default())
}

fn hidden<const D: usize>(shape: [usize; D]) -> Tensor<B, D, Bool> {
    random(shape).greater_elem(0.3)
}

fn fused(shape: &Shape) -> MultiHeadAttention<B> {
    MultiHeadAttentionConfig::new(shape.heads * shape.d_head, shape.heads)
        .with_key_value_heads(Some(shape.key_value_heads))
        .init(&Default::default())
        .unwrap()
}

fn split(width: usize, heads: usize) -> SplitHeads<B> {
    SplitHeadsConfig::new(width, width, heads).with_bias(true).init(&Default::default()).unwrap()
}

fn scores(scheme: PositionScheme, shape: &Shape) -> ScorePosition<B> {
    let Shape { heads, d_head, time, .. } = *shape;
    let rotation = ModelConfig::default().rotation();
    let widths = Widths { d_model: heads * d_head, heads, d_head, rotation, largest_position: 2048 };
    let (direction, device) = (Direction::Causal, &Default::default());
    let settings = PositionSettings { widths, context: time, direction, device };
    let position: Option<Position<B>> = scheme.init(&settings);
    position.map_or(ScorePosition::None, |position| position.scores(shape.time, shape.time))
}

fn close<const D: usize>(a: Tensor<B, D>, b: Tensor<B, D>) {
    a.into_data().assert_approx_eq::<f32>(&b.into_data(), Tolerance::absolute(1e-5));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn future_tokens_cannot_change_past_contexts(shape in shapes(), scheme in schemes(), at in 0.0..1.0) {
        let attention = fused(&shape);
        let position = scores(scheme, &shape);
        let width = shape.heads * shape.d_head;
        let past = 1 + (at * (shape.time - 1) as f64) as usize;
        let x = random([shape.batch, shape.time, width]);
        let later = random([shape.batch, shape.time - past, width]);
        let changed = match shape.time - past {
            0 => x.clone(),
            _ => Tensor::cat(vec![x.clone().narrow(1, 0, past), later], 1),
        };
        let contexts = |x| {
            let output = attention.forward(x, &Mask::causal(), &position).unwrap();
            output.narrow(1, 0, past).into_data()
        };
        prop_assert_eq!(contexts(x), contexts(changed));
    }

    #[test]
    fn weights_sum_to_one_and_skip_masked_keys(shape in shapes()) {
        let Shape { batch, time, key_time, heads, d_head, .. } = shape;
        let width = heads * d_head;
        let attention = split(width, heads);
        let (query, memory) = (random([batch, time, width]), random([batch, key_time, width]));
        let (queries, keys) = (hidden([batch, time]), hidden([batch, key_time]));
        let pairs = hidden([batch, time, key_time]);
        let mask = Mask::<B> { causal: time <= key_time, ..Mask::none() }
            .hide_queries(queries.clone())
            .hide_keys(keys.clone())
            .hide_pairs(pairs.clone());
        let memory = attention.project_memory(memory.clone(), memory, mask.clone()).unwrap();
        let (_, weights) = attention.forward_memory_with_weights(query, &memory).unwrap();

        let weights: Vec<f32> = weights.into_data().to_vec().unwrap();
        let [queries, keys] = [queries, keys].map(|mask| mask.into_data().to_vec::<bool>().unwrap());
        let pairs = pairs.into_data().to_vec::<bool>().unwrap();
        for (row, weights) in weights.chunks(key_time).enumerate() {
            let (entry, query) = (row / time / heads, row % time);
            let hides = |key: usize| {
                queries[entry * time + query]
                    || keys[entry * key_time + key]
                    || pairs[(entry * time + query) * key_time + key]
                    || (mask.causal && key > query + key_time - time)
            };
            let mut visible = false;
            for (key, &weight) in weights.iter().enumerate() {
                if hides(key) {
                    prop_assert_eq!(weight, 0.0);
                }
                visible |= !hides(key);
            }
            let sum: f32 = weights.iter().sum();
            prop_assert!((sum - if visible { 1.0 } else { 0.0 }).abs() < 1e-5, "{}", sum);
        }
    }

    #[test]
    fn a_query_without_visible_keys_gets_zeros(shape in shapes()) {
        let Shape { batch, time, key_time, heads, d_head, .. } = shape;
        let width = heads * d_head;
        let mut attention = split(width, heads);
        attention.output.bias = None;
        let everything = Tensor::<B, 2, Int>::ones([batch, key_time], &Default::default()).equal_elem(1);
        let memory = random([batch, key_time, width]);
        let query = random([batch, time, width]);
        let memory = attention.project_memory(memory.clone(), memory, Mask::none().hide_keys(everything)).unwrap();
        let output = attention.forward_memory(query, &memory).unwrap();
        // The zeros may have either sign.
        prop_assert_eq!(output.dims(), [batch, time, width]);
        prop_assert!(output.into_data().iter::<f32>().all(|value| value == 0.0));
    }

    #[test]
    fn stacked_split_and_fused_heads_agree(shape in shapes(), bias: bool, projected: bool) {
        let Shape { batch, time, heads, d_head, .. } = shape;
        let width = heads * d_head;
        let device = Default::default();
        let x = random([batch, time, width]);
        let stacked = StackedHeadsConfig::new(width, d_head, heads, time)
            .with_d_out(projected.then_some(width))
            .with_bias(bias)
            .init::<B>(&device)
            .unwrap();
        let split = stacked.to_split();
        let fused = split.to_fused().unwrap();
        let expected = stacked.forward(x.clone()).unwrap();
        close(expected.clone(), split.forward(x.clone()).unwrap());
        close(expected.clone(), fused.forward(x.clone(), &Mask::causal(), &ScorePosition::None).unwrap());
        close(expected.clone(), fused.to_split().forward(x.clone()).unwrap());
        close(expected, split.to_stacked(time).unwrap().forward(x.clone()).unwrap());

        let wide = SplitHeadsConfig::new(width, 2 * width, heads).init::<B>(&device).unwrap();
        close(wide.forward(x.clone()).unwrap(), wide.to_stacked(time).unwrap().forward(x).unwrap());
    }

    #[test]
    fn grouped_query_attention_matches_expanded_heads(shape in shapes()) {
        let shared = fused(&shape);
        let x = random([shape.batch, shape.time, shape.heads * shape.d_head]);
        let expected = shared.forward(x.clone(), &Mask::causal(), &ScorePosition::None).unwrap();
        close(expected, shared.to_split().forward(x).unwrap());
    }

    #[test]
    fn batch_order_does_not_change_outputs(shape in shapes(), scheme in schemes()) {
        let attention = fused(&shape);
        let position = scores(scheme, &shape);
        let x = random([shape.batch, shape.time, shape.heads * shape.d_head]);
        let padding = hidden([shape.batch, shape.time]);
        let attend = |x, padding| {
            let mask = Mask::causal().hide_keys(padding);
            attention.forward(x, &mask, &position).unwrap()
        };
        let flipped = attend(x.clone().flip([0]), padding.clone().flip([0]));
        close(attend(x, padding).flip([0]), flipped);
    }

    #[test]
    fn padding_content_does_not_change_outputs(shape in shapes(), scheme in schemes()) {
        let attention = fused(&shape);
        let position = scores(scheme, &shape);
        let Shape { batch, time, heads, d_head, .. } = shape;
        let x = random([batch, time, heads * d_head]);
        let padding = hidden([batch, time]);
        let positions = padding.clone().unsqueeze_dim::<3>(2).expand([batch, time, heads * d_head]);
        let other = x.clone().mask_where(positions.clone(), random([batch, time, heads * d_head]));
        // The output at a padding position itself is irrelevant.
        let attend = |x| {
            let mask = Mask::none().hide_keys(padding.clone());
            attention.forward(x, &mask, &position).unwrap().mask_fill(positions.clone(), 0.0).into_data()
        };
        prop_assert_eq!(attend(x), attend(other));
    }

    #[test]
    fn last_queries_attend_as_in_full_sequence(shape in shapes(), last in 1usize..12) {
        let Shape { batch, time, heads, d_head, .. } = shape;
        let last = last.min(time);
        let width = heads * d_head;
        let attention = split(width, heads);
        let x = random([batch, time, width]);
        let memory = attention.project_memory(x.clone(), x.clone(), Mask::causal()).unwrap();
        let attend = |query| attention.forward_memory(query, &memory).unwrap();
        let end = |all: Tensor<B, 3>| all.narrow(1, time - last, last);
        close(end(attend(x.clone())), attend(end(x.clone())));
    }
}

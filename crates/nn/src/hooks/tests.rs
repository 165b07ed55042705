//! Tests that hooks receive every activation, change only what they replace, and cost nothing if they want nothing.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::process::Command;

use burn::module::Module;
use burn::tensor::{Distribution, Int, Tolerance};
use burn_flex::Flex;
use burn_ndarray::NdArray;

use super::*;
use crate::attention::{AttentionGate, Mask, MultiHeadAttention, Sinks};
use crate::model::block::{Block, BlockInput};
use crate::model::{Architecture, Inputs, Model, ModelConfig, Sizes, Source};
use crate::ops::{self, Activation, Norm, Projections, ScorePosition};
use crate::position::PositionScheme;

type B = NdArray;

/// An allocator that counts the allocations of each thread.
struct CountingAllocator;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

#[expect(unsafe_code, reason = "counting allocations requires an allocator that wraps the system's")]
// SAFETY: all calls go to the system's allocator unchanged.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller upholds the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the contract of `dealloc`, and `pointer` came from the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: CountingAllocator = CountingAllocator;

fn allocations<T>(work: impl Fn() -> T) -> usize {
    // The first call fills the buffer pool.
    drop(work());
    let before = ALLOCATIONS.with(Cell::get);
    drop(work());
    ALLOCATIONS.with(Cell::get) - before
}

/// Hooks that want every activation and change none.
#[derive(Default)]
struct Everything(Vec<(HookSite, Vec<usize>)>);

impl<B: Backend> Hooks<B> for Everything {
    fn wants(&self, _site: HookSite) -> bool {
        true
    }

    fn hook(&mut self, site: HookSite, activation: Tensor<B, 3>) -> Tensor<B, 3> {
        self.0.push((site, activation.dims().to_vec()));
        activation
    }

    fn hook_heads(&mut self, site: HookSite, activation: Tensor<B, 4>) -> Tensor<B, 4> {
        self.0.push((site, activation.dims().to_vec()));
        activation
    }
}

/// Hooks that reverse and scale the last axis of the activation at one site.
struct Distorted(HookSite);

impl<B: Backend> Hooks<B> for Distorted {
    fn wants(&self, site: HookSite) -> bool {
        site == self.0
    }

    fn hook(&mut self, _site: HookSite, activation: Tensor<B, 3>) -> Tensor<B, 3> {
        activation.flip([2]) * 20.0
    }

    fn hook_heads(&mut self, _site: HookSite, activation: Tensor<B, 4>) -> Tensor<B, 4> {
        activation.flip([3]) * 20.0
    }
}

fn tokens() -> Tensor<B, 2, Int> {
    Tensor::from_ints([[3, 1, 4, 1, 5, 9, 2], [6, 5, 3, 5, 8, 9, 7]], &Default::default())
}

fn model(config: &ModelConfig) -> (Model<B>, Inputs<B>) {
    let reads_source = config.architecture == Architecture::EncoderDecoder;
    let sizes = Sizes { vocab: 13, context: 7, source_context: reads_source.then_some(5) };
    let source = reads_source.then(|| Source { tokens: tokens().narrow(1, 0, 5), lengths: vec![4, 5] });
    (config.init(sizes, &Default::default()).unwrap(), Inputs { source, ..Inputs::tokens(tokens()) })
}

fn configs() -> Vec<ModelConfig> {
    let plain = ModelConfig { d_model: 20, heads: 5, ..ModelConfig::default() };
    let of = |architecture| ModelConfig { architecture, ..plain.clone() };
    vec![
        of(Architecture::OneLayer),
        of(Architecture::Decoder),
        of(Architecture::EncoderDecoder),
        ModelConfig { norm: crate::model::NormPlacement::Post, ..plain.clone() },
        ModelConfig {
            key_value_heads: 1,
            activation: Activation::Swiglu,
            qk_norm: true,
            position: PositionScheme::Rotary,
            ..plain.clone()
        },
        ModelConfig {
            norm: crate::model::NormPlacement::Sandwich,
            parallel: true,
            sinks: Sinks::Learned,
            attention_gate: AttentionGate::Head,
            attention_softcap: Some(2.0),
            ..plain.clone()
        },
        ModelConfig {
            norm: crate::model::NormPlacement::Output,
            attention_gate: AttentionGate::Elementwise,
            ..plain.clone()
        },
        ModelConfig {
            differential: true,
            key_value_heads: 1,
            sinks: Sinks::Learned,
            attention_gate: AttentionGate::Head,
            position: PositionScheme::Rotary,
            ..plain.clone()
        },
        ModelConfig {
            architecture: Architecture::EncoderDecoder,
            differential: true,
            qk_norm: true,
            position: PositionScheme::Relative,
            ..plain
        },
    ]
}

#[test]
fn hooks_without_changes_keep_the_logits() {
    for config in configs() {
        let (model, inputs) = model(&config);
        let expected = model.forward(inputs.clone()).unwrap();
        let found = model.forward_hooked(inputs, &mut Everything::default()).unwrap();
        found.into_data().assert_approx_eq::<f32>(&expected.into_data(), Tolerance::absolute(1e-5));
    }
}

#[test]
fn every_site_is_visited_once_with_its_shape() {
    use AttentionPoint::{Key, Output, Pattern, Query, Scores, Value};
    use HookPoint::{CrossAttention, SelfAttention};
    let (model, inputs) = model(&configs()[2]);
    let mut seen = Everything::default();
    model.forward_hooked(inputs, &mut seen).unwrap();
    let inner = ModelConfig { d_model: 20, ..ModelConfig::default() }.inner_width();
    let attention = |point: fn(AttentionPoint) -> HookPoint, rows: usize, columns: usize| {
        [
            (Query, [rows, 4]),
            (Key, [columns, 4]),
            (Value, [columns, 4]),
            (Scores, [rows, columns]),
            (Pattern, [rows, columns]),
            (Output, [rows, 20]),
        ]
        .map(|(part, [rows, columns])| (point(part), vec![2, 5, rows, columns]))
    };
    let mut expected = Vec::new();
    for (stack, time) in [(Stack::Encoder, 5), (Stack::Decoder, 7)] {
        let layers = ModelConfig::default().layers;
        let residual = |point| [(point, vec![2, time, 20])];
        let at = |layer: usize, points: &[(HookPoint, Vec<usize>)]| {
            let site = |(point, shape): &(HookPoint, Vec<usize>)| {
                (HookSite { stack, layer, point: *point }, shape.clone())
            };
            points.iter().map(site).collect::<Vec<_>>()
        };
        expected.extend(at(0, &residual(HookPoint::Embedding)));
        for layer in 0..layers {
            expected.extend(at(layer, &residual(HookPoint::ResidualPre)));
            expected.extend(at(layer, &attention(SelfAttention, time, time)));
            if stack == Stack::Decoder {
                expected.extend(at(layer, &attention(CrossAttention, time, 5)));
            }
            expected.extend(at(layer, &residual(HookPoint::ResidualMid)));
            expected.extend(at(layer, &[(HookPoint::FeedForwardHidden, vec![2, time, inner])]));
            expected.extend(at(layer, &residual(HookPoint::FeedForwardOutput)));
            expected.extend(at(layer, &residual(HookPoint::ResidualPost)));
        }
        expected.extend(at(layers - 1, &residual(HookPoint::Final)));
    }
    assert_eq!(seen.0, expected);
}

#[test]
fn patterns_of_differential_heads_are_differences_of_parts() {
    struct Maps(Vec<Tensor<B, 4>>);
    impl Hooks<B> for Maps {
        fn wants(&self, site: HookSite) -> bool {
            let points = [AttentionPoint::Parts, AttentionPoint::Pattern];
            site.layer == 1 && points.map(HookPoint::SelfAttention).contains(&site.point)
        }

        fn hook_heads(&mut self, _site: HookSite, activation: Tensor<B, 4>) -> Tensor<B, 4> {
            self.0.push(activation.clone());
            activation
        }
    }
    let (model, inputs) = model(&configs()[7]);
    let mut maps = Maps(Vec::new());
    model.forward_hooked(inputs, &mut maps).unwrap();
    let [parts, pattern] = <[_; 2]>::try_from(maps.0).unwrap();
    assert_eq!((parts.dims(), pattern.dims()), ([2, 10, 7, 7], [2, 5, 7, 7]));
    let Model::Decoder(decoder) = &model else { panic!() };
    let lambda = decoder.blocks[1].attention.differential.as_ref().unwrap().lambda().into_scalar();
    for head in 0..5 {
        let [first, second] = [0, 1].map(|part| parts.clone().narrow(1, 2 * head + part, 1));
        let expected = (first - second * lambda).into_data();
        pattern
            .clone()
            .narrow(1, head, 1)
            .into_data()
            .assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-6));
    }
}

#[test]
fn a_replaced_activation_changes_the_logits() {
    for config in configs() {
        let (model, inputs) = model(&config);
        let mut seen = Everything::default();
        let plain = model.forward_hooked(inputs.clone(), &mut seen).unwrap();
        for (site, _) in seen.0 {
            let changed = model.forward_hooked(inputs.clone(), &mut Distorted(site)).unwrap();
            let difference = (changed - plain.clone()).abs().max().into_scalar();
            assert!(difference > 1e-5, "{site:?} {difference}");
        }
    }
}

#[test]
fn hook_replaces_the_input_of_one_head() {
    struct Reads(AttentionPoint, Vec<Tensor<B, 4>>);
    impl Hooks<B> for Reads {
        fn wants(&self, site: HookSite) -> bool {
            site.layer == 1 && site.point == HookPoint::SelfAttention(self.0)
        }

        fn hook_heads(&mut self, _site: HookSite, activation: Tensor<B, 4>) -> Tensor<B, 4> {
            self.1.push(activation.clone());
            activation
        }

        fn input(&mut self, reader: HookSite, head: usize, residual: &Tensor<B, 3>) -> Option<Tensor<B, 3>> {
            let is_target = self.wants(reader) && head == 3 && !self.1.is_empty();
            is_target.then(|| residual.clone().flip([2]))
        }
    }
    let (model, inputs) = model(&configs()[4]);
    for point in [AttentionPoint::Query, AttentionPoint::Key, AttentionPoint::Value] {
        let mut hooks = Reads(point, Vec::new());
        for _ in 0..2 {
            model.forward_hooked(inputs.clone(), &mut hooks).unwrap();
        }
        let [plain, changed] = <[_; 2]>::try_from(hooks.1).unwrap();
        let difference: Vec<f32> = (changed - plain).abs().max_dims(&[0, 2, 3]).into_data().to_vec().unwrap();
        for (head, difference) in difference.into_iter().enumerate() {
            assert_eq!(difference > 1e-3, head == 3, "{point:?} {head} {difference}");
        }
    }
}

#[test]
fn the_default_hook_adds_no_allocation() {
    // All threads share the kernels' buffer pool, so other tests would change the counts: a separate process counts.
    const COUNTS: &str = "CAUSAL_ATTENTION_NN_COUNTS_ALLOCATIONS";
    if std::env::var_os(COUNTS).is_none() {
        let mut alone = Command::new(std::env::current_exe().unwrap());
        alone.args(["--exact", "hooks::tests::the_default_hook_adds_no_allocation"]).env(COUNTS, "1");
        let output = alone.output().unwrap();
        let report = String::from_utf8_lossy(&output.stdout);
        return assert!(output.status.success() && report.contains("1 passed"), "{report}");
    }
    let device = Default::default();
    let config = ModelConfig { d_model: 20, heads: 5, ..ModelConfig::default() };
    let block = Block::<Flex>::new(&config, 0, false, &device).unwrap().no_grad();
    let x = Tensor::<Flex, 3>::random([2, 7, 20], Distribution::Default, &device);
    let (mask, position) = (Mask::causal(), ScorePosition::None);
    let hooked = || {
        let x = x.clone();
        let input = BlockInput { x, memory: None, mask: &mask, position: &position, cache: None };
        block.forward(input, BlockHooks::standalone(&mut NoHooks)).unwrap()
    };
    let by_hand = || {
        let normalised = |norm: &Norm<Flex>, x: &Tensor<Flex, 3>| norm.forward(x.clone());
        let MultiHeadAttention { qkv, output, dropout, .. } = &block.attention;
        let projections = ops::linear(qkv, normalised(&block.attention_norm, &x));
        let options = block.attention.options(mask.clone(), position.clone());
        let context = ops::attention(Projections::Packed(projections), options);
        let x = ops::linear_residual(output, dropout, context, Some(x.clone()));
        let input = normalised(&block.feed_forward_norm, &x);
        let layer = &block.feed_forward;
        ops::feed_forward([&layer.up, &layer.down], layer.activation, &layer.dropout, input, x)
    };
    assert_eq!(hooked().into_data(), by_hand().into_data());
    assert_eq!(allocations(hooked), allocations(by_hand));
}

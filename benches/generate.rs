//! Measures token-by-token generation with a randomly initialised GPT-2 of 124 million parameters, or a Llama of 135
//! million. Prints one line of JSON.
//!
//! `cargo bench --bench generate -- llama`; `--new 128 --prompt 64` set the lengths. A step has to read every weight
//! once, so the limit is the memory bandwidth, which is measured as well.

use std::time::Instant;

use burn_ndarray::NdArray;
use causal_attention::backend::compute;
use causal_attention::config::TrainingConfig;
use causal_attention::data::Vocabulary;
use causal_attention::generation::{Options, Prompt, Sampling, generate};
use causal_attention::kernels::{allocator::LineAlignedAllocator, team};
use causal_attention::model::{Architecture, Initialisation, Model, ModelConfig, Sizes};
use causal_attention::ops::{Activation, NormKind};
use causal_attention::position::PositionScheme;
use causal_attention::terminal::say;

/// The allocator of the program.
#[global_allocator]
static ALLOCATOR: LineAlignedAllocator = LineAlignedAllocator;

fn main() {
    let length = |name: &str, default| {
        let mut arguments = std::env::args().skip_while(|argument| argument != name).skip(1);
        arguments.next().map_or(default, |value| value.parse().expect("a number"))
    };
    let (prompt, new) = (length("--prompt", 64), length("--new", 128));
    assert!(
        prompt > 0 && new > 1 && prompt + new <= 1024,
        "--prompt must be at least 1, --new at least 2, and their sum at most 1024"
    );
    let is_llama = std::env::args().any(|argument| argument == "llama");
    let vocab = if is_llama { 49_152 } else { 50_257 };
    let sizes = Sizes { vocab, context: 1024, source_context: None };
    let config = architecture(is_llama);
    let device = Default::default();
    let model: Model<NdArray> = config.init(sizes, &device).expect("valid sizes");
    let vocabulary = Vocabulary::integers(sizes.vocab, &[]);
    let tokens = (0..prompt as u32).map(|i| (i * 7919) % vocab as u32).collect();
    let prompt = Prompt { tokens, ..Prompt::default() };
    let options = Options { sampling: Sampling::GREEDY, max_new: new, ..Options::default() };

    // The bandwidth is measured before and after the generation that it is compared with.
    let before = bandwidth();
    let mut best: Option<(f64, Vec<f64>)> = None;
    for _ in 0..3 {
        let start = Instant::now();
        let mut times = Vec::with_capacity(new);
        let watch = |_, _: &str| {
            times.push(start.elapsed().as_secs_f64());
            Ok(())
        };
        let written = || generate((&model, sizes), &vocabulary, &prompt, &options, &device, watch);
        compute(&TrainingConfig::default(), written).expect("the prompt fits the context");
        let seconds = start.elapsed().as_secs_f64();
        if best.as_ref().is_none_or(|(fastest, _)| seconds < *fastest) {
            best = Some((seconds, times));
        }
    }
    let bandwidth = (before + bandwidth()) / 2.0;
    let (seconds, times) = best.expect("three rounds");

    // A step reads all weights except learned positions. The token embedding is also the output layer.
    let positions = if config.position.ends_with_context() { sizes.context * config.d_model } else { 0 };
    let bytes = 4.0 * (config.parameters::<burn_flex::Flex>(sizes) - positions) as f64;
    let steps: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let (limit, step) = (bytes / bandwidth, median(steps.clone()));
    let quarter = (steps.len() / 4).max(1);
    say(&format!(
        "{{\"tokens_per_second\": {:.2}, \"prefill_ms\": {:.1}, \"step_ms\": {:.2}, \"first_steps_ms\": {:.2}, \
         \"last_steps_ms\": {:.2}, \"bandwidth_gb_per_s\": {:.1}, \"limit_ms\": {:.2}, \"step_over_limit\": {:.2}}}",
        new as f64 / seconds,
        times[0] * 1e3,
        step * 1e3,
        mean(&steps[..quarter]) * 1e3,
        mean(&steps[steps.len() - quarter..]) * 1e3,
        bandwidth / 1e9,
        limit * 1e3,
        step / limit,
    ));
}

/// Returns the architecture of SmolLM2-135M, a Llama, or of GPT-2 small.
fn architecture(is_llama: bool) -> ModelConfig {
    let gpt2 = ModelConfig {
        architecture: Architecture::Decoder,
        d_model: 768,
        heads: 12,
        layers: 12,
        activation: Activation::GeluTanh,
        tie_embeddings: true,
        initialisation: Initialisation::Normal,
        ..ModelConfig::default()
    };
    let llama = ModelConfig {
        d_model: 576,
        heads: 9,
        key_value_heads: 3,
        layers: 30,
        position: PositionScheme::Rotary,
        rope_theta: 100_000.0,
        norm_kind: NormKind::Rms,
        activation: Activation::Swiglu,
        d_inner: 1536,
        bias: false,
        ..gpt2.clone()
    };
    if is_llama { llama } else { gpt2 }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Returns the bytes per second that all cores together read from memory: the median of seven sums over 512 MiB.
fn bandwidth() -> f64 {
    let numbers = vec![1.0f32; 1 << 27];
    let read = |piece: &[f32]| {
        let mut sums = [0.0; 64];
        for part in piece.chunks_exact(64) {
            sums.iter_mut().zip(part).for_each(|(sum, x)| *sum += x);
        }
        sums.iter().sum::<f32>()
    };
    let read_all = |_| {
        let start = Instant::now();
        let sums = team::map(numbers.chunks(1 << 16).collect(), read);
        assert!(sums.iter().sum::<f32>() > 0.0);
        size_of_val(&numbers[..]) as f64 / start.elapsed().as_secs_f64()
    };
    let speeds = compute(&TrainingConfig::default(), || Ok((0..7).map(read_all).collect()));
    median(speeds.expect("threads can be started"))
}

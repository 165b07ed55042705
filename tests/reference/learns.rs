//! Every architecture and every position scheme learns a tiny task down to its entropy floor.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use burn::module::AutodiffModule;
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::tensor::{Bool, Int, Tensor, TensorData, backend::Backend};
use burn_autodiff::Autodiff;
use burn_flex::Flex;
use causal_attention::model::{Architecture, Inputs, Model, ModelConfig, Sizes, Source, loss};
use causal_attention::position::PositionScheme;
use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};

use crate::kinds;

type B = Autodiff<Flex>;

const VOCAB: usize = 7;
const BATCH: usize = 32;
const TIME: usize = 9;

/// The inputs of a model, its targets, and the mask of targets excluded from the loss.
type Batch = (Inputs<B>, Tensor<B, 2, Int>, Option<Tensor<B, 2, Bool>>);

/// Trains until the mean loss of the last ten batches is within 0.1 nats of `floor`.
fn train_to_floor(
    config: ModelConfig,
    sizes: Sizes,
    floor: f64,
    steps: usize,
    batch: impl Fn(&mut ChaCha8Rng) -> Batch,
) -> Model<B> {
    // All tests share the random number generator of the backend.
    static GENERATOR_LOCK: Mutex<()> = Mutex::new(());
    let mut model: Model<B> = {
        let _guard = GENERATOR_LOCK.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        B::seed(&Default::default(), 7);
        config.init(sizes, &Default::default()).unwrap()
    };
    let mut adam = AdamConfig::new().with_epsilon(1e-8).init::<B, Model<B>>();
    let mut random = ChaCha8Rng::seed_from_u64(7);
    let mut losses = Vec::new();
    for _ in 0..steps {
        let (inputs, targets, hidden) = batch(&mut random);
        let padding = hidden.clone().map_or(0, |hidden| hidden.int().sum().into_scalar() as usize);
        let counted = targets.dims().iter().product::<usize>() - padding;
        let loss = loss::cross_entropy(model.forward(inputs).unwrap(), targets, hidden, 0.0).unwrap();
        let loss = loss / counted as f64;
        losses.push(f64::from(loss.clone().into_scalar()));
        let last = &losses[losses.len().saturating_sub(10)..];
        if losses.len() > 10 && last.iter().sum::<f64>() / 10.0 < floor + 0.1 {
            return model;
        }
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = adam.step(3e-3, model, gradients);
    }
    panic!("{config:?}: {:?} after {steps} steps, but the floor is {floor}", losses.last());
}

fn small(architecture: Architecture, position: PositionScheme) -> ModelConfig {
    ModelConfig { architecture, position, d_model: 32, heads: 8, ..ModelConfig::default() }
}

/// Creates a tensor from rows of ids.
fn ids(rows: &[Vec<i64>]) -> Tensor<B, 2, Int> {
    let shape = [rows.len(), rows[0].len()];
    Tensor::from_data(TensorData::new(rows.concat(), shape), &Default::default())
}

/// Returns a batch of sequences of `TIME + 1` tokens, each predicted from the previous ones.
fn next_tokens(sequence: impl FnMut() -> Vec<i64>) -> Batch {
    let tokens = ids(&std::iter::repeat_with(sequence).take(BATCH).collect::<Vec<_>>());
    (Inputs::tokens(tokens.clone().narrow(1, 0, TIME)), tokens.narrow(1, 1, TIME), None)
}

/// Trains on sequences in which each token is the previous one plus three, so only the last token matters.
fn learns_successors(config: ModelConfig) {
    let sizes = Sizes { vocab: VOCAB, context: TIME, source_context: None };
    train_to_floor(config, sizes, 0.0, 300, |random| {
        next_tokens(|| {
            let first = random.random_range(0..VOCAB as i64);
            (0..=TIME as i64).map(|position| (first + 3 * position) % VOCAB as i64).collect()
        })
    });
}

/// Trains on sequences in which each token repeats the one three positions earlier: the first two targets are random,
/// the others determined.
fn learns_a_period(config: ModelConfig) {
    let sizes = Sizes { vocab: VOCAB, context: TIME, source_context: None };
    let floor = 2.0 * (VOCAB as f64).ln() / TIME as f64;
    train_to_floor(config, sizes, floor, 1000, |random| {
        next_tokens(|| {
            let motif: [i64; 3] = std::array::from_fn(|_| random.random_range(0..VOCAB as i64));
            motif.into_iter().cycle().take(TIME + 1).collect()
        })
    });
}

#[test]
fn successors_are_learned_without_positions() {
    learns_successors(small(Architecture::OneLayer, PositionScheme::None));
    learns_successors(small(Architecture::Decoder, PositionScheme::None));
}

#[test]
fn decoders_of_every_kind_learn() {
    let base = small(Architecture::Decoder, PositionScheme::None);
    let kinds =
        [kinds::configs_covering_all_pairs(&base), kinds::variants_covering_all_pairs(&base)].concat();
    let next = AtomicUsize::new(0);
    let learn = || {
        while let Some(kind) = kinds.get(next.fetch_add(1, Ordering::Relaxed)) {
            match kind.position {
                PositionScheme::None => learns_successors(kind.clone()),
                _ => learns_a_period(kind.clone()),
            }
        }
    };
    // This test takes most of the time of its file.
    std::thread::scope(|scope| (0..2).for_each(|_| drop(scope.spawn(learn))));
    // Random positions carry no information in this task and act as noise, which the model learns to ignore.
    learns_successors(small(Architecture::Decoder, PositionScheme::RandomSinusoidal));
}

const START: usize = 5;
const END: usize = 6;
const MAX_LENGTH: usize = 4;

/// Returns a source of two to four digits below 5, padded with zeros, and its length.
fn source(random: &mut ChaCha8Rng) -> (Vec<i64>, usize) {
    let length = random.random_range(2..=MAX_LENGTH);
    let digits = |index| if index < length { random.random_range(0..5) } else { 0 };
    ((0..MAX_LENGTH).map(digits).collect(), length)
}

fn padding_mask(lengths: &[usize], time: usize) -> Tensor<B, 2, Bool> {
    causal_attention::attention::mask::padding_mask(lengths, time, &Default::default())
}

/// Returns a batch of sources with reversed answers.
fn reversals(random: &mut ChaCha8Rng) -> Batch {
    let (sources, lengths): (Vec<_>, Vec<_>) = (0..BATCH).map(|_| source(random)).unzip();
    let (mut inputs, mut targets) = (Vec::new(), Vec::new());
    for (source, &length) in sources.iter().zip(&lengths) {
        let answer = source[..length].iter().rev().copied();
        let padding = std::iter::repeat_n(0, MAX_LENGTH - length);
        inputs.push(std::iter::once(START as i64).chain(answer.clone()).chain(padding.clone()).collect());
        targets.push(answer.chain([END as i64]).chain(padding).collect());
    }
    let target_lengths: Vec<usize> = lengths.iter().map(|length| length + 1).collect();
    let source = Source { tokens: ids(&sources), lengths };
    let inputs = Inputs { source: Some(source), ..Inputs::tokens(ids(&inputs)) };
    (inputs, ids(&targets), Some(padding_mask(&target_lengths, MAX_LENGTH + 1)))
}

#[test]
fn encoder_decoder_learns_to_reverse_and_stop() {
    let sizes = Sizes { vocab: VOCAB, context: MAX_LENGTH + 1, source_context: Some(MAX_LENGTH) };
    let config = small(Architecture::EncoderDecoder, PositionScheme::Learned);
    // The negative floor requires a loss below 0.02, at which hardly any answer is wrong.
    let model = train_to_floor(config, sizes, -0.08, 1000, reversals).valid();

    let mut random = ChaCha8Rng::seed_from_u64(11);
    let (sources, lengths): (Vec<_>, Vec<_>) = (0..BATCH).map(|_| source(&mut random)).unzip();
    let batch = Source { tokens: ids(&sources).inner(), lengths: lengths.clone() };
    // The argmax token at each step, up to the first end token.
    let mut cache = model.start(Some(batch)).unwrap();
    let mut next = ids(&vec![vec![START as i64]; BATCH]).inner();
    let mut answers = vec![Vec::new(); BATCH];
    for _ in 0..=MAX_LENGTH {
        next = model.read(next, &mut cache).unwrap().argmax(1); // [batch, 1]
        for (answer, token) in answers.iter_mut().zip(next.clone().into_data().iter::<i64>()) {
            answer.push(token);
        }
    }
    let correct = (0..BATCH).filter(|&row| {
        let reversed = sources[row][..lengths[row]].iter().rev();
        reversed.eq(answers[row].iter().take_while(|&&token| token != END as i64))
    });
    let correct = correct.count();
    assert!(correct >= BATCH - 2, "{correct} of {BATCH} answers are correct");
}

//! Hand-set circuits, and models without a circuit.

mod cut;
mod kinds;
mod questions;

use super::*;
use crate::analysis::Sample;
use crate::data::Role;
use crate::data::seed::{Purpose, generator};
use crate::model::{Decoder, Model, ModelConfig, Sizes};
use crate::ops::NormKind;
use crate::position::Position;
use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::Tensor;
use burn_ndarray::NdArray;
use rand::{RngExt, rngs::ChaCha8Rng};

type B = NdArray;

const VOCAB: usize = 7;
const TIME: usize = 12;
/// Offsets of the subspaces in the residual stream: token, previous token, predicted token and position.
const TOKEN: usize = 0;
const PREVIOUS: usize = VOCAB;
const NEXT: usize = 2 * VOCAB;
const POSITION: usize = 3 * VOCAB;
const D_MODEL: usize = POSITION + TIME;
const HEADS: usize = 2;

/// Creates a matrix with `value` at the given rows and columns, and zero elsewhere.
fn matrix(
    shape: [usize; 2],
    entries: impl IntoIterator<Item = [usize; 2]>,
    value: f32,
) -> Param<Tensor<B, 2>> {
    let mut values = vec![0.0; shape[0] * shape[1]];
    entries.into_iter().for_each(|[row, column]| values[row * shape[1] + column] = value);
    Param::from_tensor(Tensor::<B, 1>::from_floats(values.as_slice(), &Default::default()).reshape(shape))
}

/// Returns a decoder whose heads and feed-forward layers all output zero.
fn silent(layers: usize) -> Decoder<B> {
    let config = ModelConfig {
        d_model: D_MODEL,
        heads: HEADS,
        d_head: TIME,
        layers,
        norm_kind: NormKind::Rms,
        bias: false,
        feed_forward: 1,
        ..ModelConfig::default()
    };
    let sizes = Sizes { vocab: VOCAB, context: TIME, source_context: None };
    let Model::Decoder(mut model) = config.init::<B>(sizes, &Default::default()).unwrap() else {
        panic!("the config specifies a decoder")
    };
    let same = |rows: usize, from: usize| (0..rows).map(move |i| [i, from + i]);
    model.embedding.token.weight = matrix([VOCAB, D_MODEL], same(VOCAB, TOKEN), 1.0);
    let Some(Position::Learned(learned)) = &mut model.position else { panic!("positions are learned") };
    learned.weight = matrix([TIME, D_MODEL], same(TIME, POSITION), 1.0);
    let head = model.head.as_mut().unwrap();
    head.weight = matrix([D_MODEL, VOCAB], (0..VOCAB).map(|i| [NEXT + i, i]), 4.0);
    for block in &mut model.blocks {
        block.attention.qkv.weight = matrix([D_MODEL, 3 * HEADS * TIME], [], 0.0);
        block.attention.output.weight = matrix([HEADS * TIME, D_MODEL], [], 0.0);
        block.feed_forward.down.weight = matrix([D_MODEL, D_MODEL], [], 0.0);
    }
    model
}

/// Sets a head to match the subspaces at `query` and `key`, both `width` wide: entry `i` of the key matches entry
/// `i + shift` of the query. The head writes the attended token to the subspace at `to`.
fn set_head(
    model: &mut Decoder<B>,
    [layer, head]: [usize; 2],
    [query, key, width]: [usize; 3],
    shift: usize,
    to: usize,
) {
    let attention = &mut model.blocks[layer].attention;
    let column = |projection: usize, i: usize| (projection * HEADS + head) * TIME + i;
    let ones = (0..width).map(|i| [query + i, column(0, i)]);
    let ones = ones.chain((0..width - shift).map(|i| [key + i, column(1, i + shift)]));
    let queries_and_keys = matrix([D_MODEL, 3 * HEADS * TIME], ones, 2.5).val();
    let values =
        matrix([D_MODEL, 3 * HEADS * TIME], (0..VOCAB).map(|i| [TOKEN + i, column(2, i)]), 1.0).val();
    attention.qkv.weight = Param::from_tensor(queries_and_keys + values);
    let output = (0..VOCAB).map(|i| [head * TIME + i, to + i]);
    attention.output.weight = matrix([HEADS * TIME, D_MODEL], output, 1.0);
}

/// Creates sequences of repeated motifs of distinct tokens; the targets in the first period are padding.
fn motifs(period: usize) -> Vec<Sample> {
    let motif = |first: usize, step: usize| {
        let token = |position: usize| ((first + position % period * step) % VOCAB) as u32;
        let role = |position| if position < period { Role::Padding } else { Role::Determined };
        Sample {
            inputs: (0..TIME).map(token).collect(),
            targets: (1..=TIME).map(token).collect(),
            roles: (0..TIME).map(role).collect(),
            source: None,
            documents: None,
        }
    };
    (0..VOCAB).flat_map(|first| (1..VOCAB).map(move |step| motif(first, step))).collect()
}

fn explained_on(model: Decoder<B>, periods: &[usize]) -> Explanation {
    let samples: Vec<_> = periods.iter().flat_map(|&period| motifs(period)).collect();
    explain(&Model::Decoder(model), &samples, ExplanationContext::default(), &Default::default()).unwrap()
}

/// Returns the explanation of a hand-set induction circuit, with its path.
pub(crate) fn explained_induction() -> Explanation {
    explained_on(induction_model(), &[3, 5])
}

fn induction_model() -> Decoder<B> {
    let mut model = silent(2);
    // Layer 0 head 1 attends to the previous position; layer 1 head 0 matches its token with the previous tokens.
    set_head(&mut model, [0, 1], [POSITION, POSITION, TIME], 1, PREVIOUS);
    set_head(&mut model, [1, 0], [TOKEN, PREVIOUS, VOCAB], 0, NEXT);
    model
}

#[test]
fn handmade_induction_circuit_is_found_with_its_path() {
    let found = explained_induction();
    assert_eq!(found.components.len(), 2, "{:?}", found.sentences);
    let component =
        |layer, head| found.components.iter().find(|it| (it.layer, it.head) == (layer, Some(head))).unwrap();
    assert_eq!(component(0, 1).kinds, [HeadKind::PreviousToken, HeadKind::Positional]);
    assert_eq!(component(1, 0).kinds, [HeadKind::Induction, HeadKind::Copying]);
    let [edge, others @ ..] = found.edges.as_slice() else { panic!("no path was found") };
    // Without the previous token in the reader's input, the norm makes the other values larger, which lowers the loss.
    assert!(others.iter().all(|other| other.ablated < found.gain.model), "{others:?}");
    assert_eq!((edge.from, edge.to, edge.input), ((0, Some(1)), (1, Some(0)), Some(HeadInput::Key)));
    // The sender's output has seven directions, and the reader's subspace includes all of them.
    let [composition, random] = [edge.composition, edge.random].map(Option::unwrap);
    assert!((composition - 7f64.sqrt().recip()).abs() < 1e-5, "{edge:?}");
    assert!(composition > 2.0 * random && edge.ablated > found.gain.model + 1.0, "{edge:?}");
    assert!((found.gain.shares.faithfulness - 1.0).abs() < 1e-4 && found.gain.model < 0.2, "{found:?}");
    let patching = found.views.patching.as_ref().unwrap();
    // The exchange changes the copied token, not the position it is copied from.
    assert!((patching.heads[1][0] - 1.0).abs() < 1e-3, "{patching:?}");
    let others = patching.heads[0].iter().chain(&patching.heads[1][1..]).chain(&patching.feed_forward);
    assert!(
        others.clone().count() == 5 && others.into_iter().all(|share| share.abs() < 1e-5),
        "{patching:?}"
    );
    let [.., before, last] = found.views.lens.loss.as_slice() else { panic!("{:?}", found.views.lens) };
    assert!(last + 1.0 < *before, "only the second layer makes the prediction: {:?}", found.views.lens.loss);
    let contribution = |name: &str| found.views.attribution.iter().find(|it| it.part == name).unwrap().mean;
    assert!(
        contribution("layer 1 head 0") > 2.0 && contribution("layer 0 head 1").abs() < 1e-4,
        "{:?}",
        found.views.attribution
    );
    let path = "Layer 1 head 0 reads the output of layer 0 head 1 through its keys";
    assert!(found.sentences.iter().any(|sentence| sentence.starts_with(path)), "{:?}", found.sentences);
}

#[test]
fn circuits_among_many_components_are_found_by_gradients() {
    let mut model = silent(8);
    set_head(&mut model, [2, 1], [POSITION, POSITION, TIME], 1, PREVIOUS);
    set_head(&mut model, [5, 0], [TOKEN, PREVIOUS, VOCAB], 0, NEXT);
    let found = explained_on(model, &[3, 5]);
    let heads: Vec<_> = found.components.iter().map(|it| (it.layer, it.head)).collect();
    assert_eq!(heads, [(2, Some(1)), (5, Some(0))], "{:?}", found.sentences);
    assert!(
        (found.gain.shares.faithfulness - 1.0).abs() < 1e-4 && found.components[0].interval.is_some(),
        "{found:?}"
    );
}

#[test]
fn patching_finds_both_heads_of_the_circuit() {
    let mut model = silent(2);
    set_head(&mut model, [0, 1], [POSITION, POSITION, TIME], 1, PREVIOUS);
    set_head(&mut model, [1, 0], [TOKEN, PREVIOUS, VOCAB], 0, NEXT);
    // Tokens 0 and 2 are exchanged: the earlier 0 is followed by 1 in the clean sequence, and by 3 in the corrupted
    // one.
    let pair = Pair { clean: vec![0, 1, 2, 3, 0], corrupted: vec![2, 1, 0, 3, 0], answers: [1, 3] };
    let found = Patching::new(&model, &[pair], &Default::default()).unwrap().unwrap();
    assert!(found.heads[0][1] > 0.9 && found.heads[1][0] > 0.9, "{found:?}");
    assert!([found.heads[0][0], found.heads[1][1]].iter().all(|share| share.abs() < 1e-5), "{found:?}");
    assert!(found.stream[0][0] > 0.1 && found.stream[1][1] > 0.1, "one position later: {found:?}");
}

#[test]
fn handmade_previous_token_copy_is_one_head() {
    let mut model = silent(2);
    set_head(&mut model, [1, 0], [POSITION, POSITION, TIME], 1, NEXT);
    let found = explained_on(model, &[2]);
    let [component] = found.components.as_slice() else { panic!("{:?}", found.components) };
    assert_eq!((component.layer, component.head), (1, Some(0)));
    // With a period of two, the token after the earlier occurrence equals the previous token.
    let kinds = &component.kinds;
    assert!(kinds.starts_with(&[HeadKind::PreviousToken]) && kinds.ends_with(&[HeadKind::Copying]));
    assert!(found.edges.is_empty(), "{:?}", found.edges);
}

/// Draws all matrices uniformly, as in the initialisation of linear layers, times a factor.
struct Draw(ChaCha8Rng, f32);

impl ModuleMapper<B> for Draw {
    fn map_float<const D: usize>(&mut self, parameter: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        // Gains of norms start at one.
        if D == 1 {
            return parameter;
        }
        let size = self.1 / (D_MODEL as f32).sqrt();
        parameter.map(|it| {
            let shape = it.shape();
            let values: Vec<f32> =
                (0..shape.num_elements()).map(|_| self.0.random_range(-size..size)).collect();
            Tensor::<B, 1>::from_floats(values.as_slice(), &Default::default()).reshape(shape)
        })
    }
}

fn randomly_initialised(seed: u64) -> Model<B> {
    randomly_initialised_with(seed, 1.0)
}

fn randomly_initialised_with(seed: u64, size: f32) -> Model<B> {
    Model::Decoder(silent(2)).map(&mut Draw(generator(seed, Purpose::Expectation, [0, 0]), size))
}

fn sequence(tokens: &[u32]) -> Sample {
    let (inputs, targets) = (tokens[..tokens.len() - 1].to_vec(), tokens[1..].to_vec());
    Sample { roles: vec![Role::Unknown; inputs.len()], inputs, targets, source: None, documents: None }
}

fn no_circuit(model: &Model<B>, samples: &[Sample]) -> Option<String> {
    let found = explain(model, samples, ExplanationContext::default(), &Default::default()).unwrap();
    assert_eq!(found.gain.no_circuit.is_some(), found.components.is_empty(), "{:?}", found.sentences);
    assert_eq!(found.views.lens.loss.len(), 3, "the lens does not need a circuit");
    found.gain.no_circuit
}

#[test]
fn untrained_weights_have_no_circuit() {
    let inputs: [&[u32]; 4] = [
        &[3, 1, 4, 1, 5, 2, 6, 5, 3, 5],
        &[0, 1, 2, 0, 1, 2, 0, 1, 2],
        &[2, 6],
        &[1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6],
    ];
    for (seed, size) in (0..100).flat_map(|seed| [1.0, 4.0, 16.0].map(|size| (seed, size))) {
        let model = randomly_initialised_with(seed, size);
        for tokens in inputs {
            assert!(no_circuit(&model, &[sequence(tokens)]).is_some(), "seed {seed}, {size}, {tokens:?}");
        }
        let reason = no_circuit(&model, &motifs(5)).unwrap_or_else(|| panic!("seed {seed}, {size}"));
        assert!(reason.contains("rule out chance"), "{reason}");
    }
}

#[test]
fn a_model_without_working_components_has_no_circuit() {
    let reason = no_circuit(&Model::Decoder(silent(2)), &motifs(5)).unwrap();
    assert!(reason.contains("a gain of") && reason.ends_with("explain it on more tokens"), "{reason}");
}

/// Returns the induction circuit with an additional head that copies the previous token.
fn with_harmful_head(strength: f32) -> Decoder<B> {
    let mut model = silent(2);
    set_head(&mut model, [0, 1], [POSITION, POSITION, TIME], 1, PREVIOUS);
    set_head(&mut model, [1, 0], [TOKEN, PREVIOUS, VOCAB], 0, NEXT);
    let mut other = silent(2);
    set_head(&mut other, [1, 1], [POSITION, POSITION, TIME], 1, NEXT);
    let attention = &mut model.blocks[1].attention;
    let other = &other.blocks[1].attention;
    attention.qkv.weight = Param::from_tensor(attention.qkv.weight.val() + other.qkv.weight.val());
    attention.output.weight =
        Param::from_tensor(attention.output.weight.val() + other.output.weight.val() * strength);
    model
}

#[test]
fn harmful_components_are_kept_and_reported() {
    let found = explained_on(with_harmful_head(0.95), &[3, 5]);
    assert!(
        (found.gain.shares.faithfulness - 1.0).abs() <= 0.05,
        "neither more nor less: {:?}",
        found.sentences
    );
    let harmful = found.components.iter().find(|it| (it.layer, it.head) == (1, Some(1)));
    let harmful = harmful.unwrap_or_else(|| panic!("the harmful head is missing: {:?}", found.sentences));
    assert!(harmful.ablated < found.gain.model - 0.1, "{harmful:?}");
    let sentence = found.sentences.iter().find(|it| it.starts_with("Layer 1 head 1")).unwrap();
    assert!(
        sentence.contains("lowers the loss from") && sentence.contains("makes the model worse"),
        "{sentence}"
    );
}

#[test]
fn a_constant_input_has_no_circuit() {
    let mut model = silent(2);
    set_head(&mut model, [0, 1], [POSITION, POSITION, TIME], 1, PREVIOUS);
    set_head(&mut model, [1, 0], [TOKEN, PREVIOUS, VOCAB], 0, NEXT);
    let reason = no_circuit(&Model::Decoder(model), &[sequence(&[4; 11])]).unwrap();
    assert!(reason.contains("are one token"), "{reason}");
}

#[test]
fn an_induction_head_is_found_on_one_input() {
    let mut model = silent(2);
    set_head(&mut model, [0, 1], [POSITION, POSITION, TIME], 1, PREVIOUS);
    set_head(&mut model, [1, 0], [TOKEN, PREVIOUS, VOCAB], 0, NEXT);
    let mut input = sequence(&[3, 1, 4, 0, 5, 3, 1, 4, 0, 5, 3, 1, 4]);
    // The first occurrence of a motif is unpredictable.
    input.roles[..5].fill(Role::Padding);
    let found = explain(&Model::Decoder(model), &[input], ExplanationContext::default(), &Default::default())
        .unwrap();
    let induction = found.components.iter().find(|it| it.kinds.contains(&HeadKind::Induction));
    assert_eq!(induction.map(|it| (it.layer, it.head)), Some((1, Some(0))), "{:?}", found.sentences);
}

#[test]
fn too_long_sequences_are_rejected_up_front() {
    let model = silent(2);
    let long = [sequence(&[3; 12])];
    assert!(check_memory(&model, &long, 1e9).is_ok());
    let error = check_memory(&model, &long, 1e4).unwrap_err().to_string();
    assert!(error.contains("1 sequence of 11 tokens") && error.ends_with("shorten the input"), "{error}");
}

#[test]
fn sequences_are_truncated_to_free_memory() {
    let model = silent(2);
    let config = crate::data::DataConfig { length: TIME, ..Default::default() };
    let data = crate::data::load(&config, 0).unwrap();
    let (full, note) = affordable_samples(&model, &data.valid, f64::INFINITY);
    assert!(full.len() > 2 && full[0].inputs.len() == data.valid.time() && note.is_none(), "{note:?}");
    let (truncated, note) = affordable_samples(&model, &data.valid, 1.5e5);
    let note = note.expect("the sequences are truncated");
    assert!(
        truncated[0].inputs.len() < data.valid.time() && truncated.len() == 2,
        "{} of {}",
        truncated[0].inputs.len(),
        truncated.len()
    );
    assert!(note.starts_with(&format!("only the first {} of", truncated[0].inputs.len())), "{note}");
}

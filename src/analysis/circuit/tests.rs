//! Hand-set circuits, and models without a circuit.

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
/// Offsets in the residual stream: the token, the previous token, the predicted token, the position.
const TOKEN: usize = 0;
const BEFORE: usize = VOCAB;
const NEXT: usize = 2 * VOCAB;
const PLACE: usize = 3 * VOCAB;
const D_MODEL: usize = PLACE + TIME;
const HEADS: usize = 2;

/// Creates a matrix with `size` at these rows and columns, and zero elsewhere.
fn matrix(shape: [usize; 2], ones: impl IntoIterator<Item = [usize; 2]>, size: f32) -> Param<Tensor<B, 2>> {
    let mut values = vec![0.0; shape[0] * shape[1]];
    ones.into_iter().for_each(|[row, column]| values[row * shape[1] + column] = size);
    Param::from_tensor(Tensor::<B, 1>::from_floats(values.as_slice(), &Default::default()).reshape(shape))
}

/// A decoder whose heads and feed-forward layers all output zero.
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
        panic!("the config asks for a decoder")
    };
    let same = |rows: usize, from: usize| (0..rows).map(move |i| [i, from + i]);
    model.embedding.token.weight = matrix([VOCAB, D_MODEL], same(VOCAB, TOKEN), 1.0);
    let Some(Position::Learned(learned)) = &mut model.position else { panic!("positions are learned") };
    learned.weight = matrix([TIME, D_MODEL], same(TIME, PLACE), 1.0);
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
fn set(model: &mut Decoder<B>, [layer, head]: [usize; 2], looks: [usize; 3], shift: usize, to: usize) {
    let [query, key, width] = looks;
    let attention = &mut model.blocks[layer].attention;
    let column = |part: usize, i: usize| (part * HEADS + head) * TIME + i;
    let ones = (0..width).map(|i| [query + i, column(0, i)]);
    let ones = ones.chain((0..width - shift).map(|i| [key + i, column(1, i + shift)]));
    let reads = matrix([D_MODEL, 3 * HEADS * TIME], ones, 2.5).val();
    let values =
        matrix([D_MODEL, 3 * HEADS * TIME], (0..VOCAB).map(|i| [TOKEN + i, column(2, i)]), 1.0).val();
    attention.qkv.weight = Param::from_tensor(reads + values);
    let writes = (0..VOCAB).map(|i| [head * TIME + i, to + i]);
    attention.output.weight = matrix([HEADS * TIME, D_MODEL], writes, 1.0);
}

/// Repeated motifs of distinct tokens; the first period does not count.
fn motifs(period: usize) -> Vec<Sample> {
    let motif = |first: usize, step: usize| {
        let token = |place: usize| ((first + place % period * step) % VOCAB) as u32;
        let role = |place| if place < period { Role::Padding } else { Role::Determined };
        Sample {
            inputs: (0..TIME).map(token).collect(),
            targets: (1..=TIME).map(token).collect(),
            roles: (0..TIME).map(role).collect(),
            source: None,
        }
    };
    (0..VOCAB).flat_map(|first| (1..VOCAB).map(move |step| motif(first, step))).collect()
}

fn explained_on(model: Decoder<B>, periods: &[usize]) -> Explanation {
    let samples: Vec<_> = periods.iter().flat_map(|&period| motifs(period)).collect();
    explain(&Model::Decoder(model), &samples, Origin::default(), &Default::default()).unwrap()
}

/// The explanation of a hand-set induction circuit, with its path.
pub(crate) fn explained_induction() -> Explanation {
    let mut model = silent(2);
    // Layer 0 head 1 attends to the previous position; layer 1 head 0 matches its token with the previous tokens.
    set(&mut model, [0, 1], [PLACE, PLACE, TIME], 1, BEFORE);
    set(&mut model, [1, 0], [TOKEN, BEFORE, VOCAB], 0, NEXT);
    explained_on(model, &[3, 5])
}

#[test]
fn handmade_induction_circuit_is_found_with_its_path() {
    let found = explained_induction();
    let parts: Vec<_> = found.components.iter().map(|part| (part.layer, part.head)).collect();
    assert_eq!(parts.len(), 2, "{:?}", found.sentences);
    let part = |layer, head| {
        found.components.iter().find(|part| (part.layer, part.head) == (layer, Some(head))).unwrap()
    };
    assert_eq!(part(0, 1).kinds, [Kind::PreviousToken, Kind::Positional]);
    assert_eq!(part(1, 0).kinds, [Kind::Induction, Kind::Copying]);
    let [edge, others @ ..] = found.edges.as_slice() else { panic!("no path was found") };
    // Without the previous token in the reader's input, the norm makes the other values larger, which lowers the loss.
    assert!(others.iter().all(|other| other.path_ablated_loss < found.loss), "{others:?}");
    assert_eq!((edge.from, edge.to, edge.input), ([0, 1], [1, 0], Input::Key));
    // Seven directions are written, and the reader's subspace includes all of them.
    assert!((edge.composition - 7f64.sqrt().recip()).abs() < 1e-5, "{edge:?}");
    assert!(edge.composition > 2.0 * edge.random && edge.path_ablated_loss > found.loss + 1.0, "{edge:?}");
    assert!((found.gain_kept - 1.0).abs() < 1e-4 && found.loss < 0.2, "{found:?}");
    let patching = found.patching.as_ref().unwrap();
    // The exchange changes the copied token, not the position it is copied from.
    assert!((patching.heads[1][0] - 1.0).abs() < 1e-3, "{patching:?}");
    assert_eq!((&patching.heads[0], patching.heads[1][1]), (&vec![0.0; 2], 0.0));
    assert_eq!(patching.feed_forward, [0.0; 2]);
    let [.., before, last] = found.lens.loss.as_slice() else { panic!("{:?}", found.lens) };
    assert!(last + 1.0 < *before, "only the second layer makes the prediction: {:?}", found.lens.loss);
    let adds = |part: &str| found.attribution.iter().find(|it| it.part == part).unwrap().mean;
    assert!(adds("layer 1 head 0") > 2.0 && adds("layer 0 head 1").abs() < 1e-4, "{:?}", found.attribution);
    assert!(
        found
            .sentences
            .iter()
            .any(|sentence| sentence.starts_with("It reads layer 0 head 1 through its keys"))
    );
}

#[test]
fn patching_finds_both_heads_of_the_circuit() {
    let mut model = silent(2);
    set(&mut model, [0, 1], [PLACE, PLACE, TIME], 1, BEFORE);
    set(&mut model, [1, 0], [TOKEN, BEFORE, VOCAB], 0, NEXT);
    // The keys are exchanged: a 0 is followed by 1 or by 3.
    let pair = Pair { clean: vec![0, 1, 2, 3, 0], corrupted: vec![2, 1, 0, 3, 0], answers: [1, 3] };
    let found = Patching::new(&model, &[pair], &Default::default()).unwrap().unwrap();
    assert!(found.heads[0][1] > 0.9 && found.heads[1][0] > 0.9, "{found:?}");
    assert_eq!([found.heads[0][0], found.heads[1][1]], [0.0; 2]);
    assert!(found.stream[0][0] > 0.1 && found.stream[1][1] > 0.1, "one place on: {found:?}");
}

#[test]
fn handmade_previous_token_copy_is_one_head() {
    let mut model = silent(2);
    set(&mut model, [1, 0], [PLACE, PLACE, TIME], 1, NEXT);
    let found = explained_on(model, &[2]);
    let [part] = found.components.as_slice() else { panic!("{:?}", found.components) };
    assert_eq!((part.layer, part.head), (1, Some(0)));
    // With a period of two the previous token is also what followed the same token earlier.
    assert!(part.kinds.starts_with(&[Kind::PreviousToken]) && part.kinds.ends_with(&[Kind::Copying]));
    assert!(found.edges.is_empty(), "{:?}", found.edges);
}

/// Draws all parameters uniformly, as linear layers are initialised.
struct Draw(ChaCha8Rng);

impl ModuleMapper<B> for Draw {
    fn map_float<const D: usize>(&mut self, parameter: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        // Gains of norms start at one.
        if D == 1 {
            return parameter;
        }
        let size = 1.0 / (D_MODEL as f32).sqrt();
        parameter.map(|it| {
            let shape = it.shape();
            let values: Vec<f32> =
                (0..shape.num_elements()).map(|_| self.0.random_range(-size..size)).collect();
            Tensor::<B, 1>::from_floats(values.as_slice(), &Default::default()).reshape(shape)
        })
    }
}

/// A randomly initialised model.
fn untrained(seed: u64) -> Model<B> {
    Model::Decoder(silent(2)).map(&mut Draw(generator(seed, Purpose::Expectation, [0, 0])))
}

fn sequence(tokens: &[u32]) -> Sample {
    let (inputs, targets) = (tokens[..tokens.len() - 1].to_vec(), tokens[1..].to_vec());
    Sample { roles: vec![Role::Unknown; inputs.len()], inputs, targets, source: None }
}

fn refusal(model: &Model<B>, samples: &[Sample]) -> Option<String> {
    let found = explain(model, samples, Origin::default(), &Default::default()).unwrap();
    assert_eq!(found.no_circuit.is_some(), found.components.is_empty(), "{:?}", found.sentences);
    assert_eq!(found.lens.loss.len(), 3, "the lens needs no circuit");
    found.no_circuit
}

#[test]
fn untrained_weights_have_no_circuit() {
    let inputs: [&[u32]; 4] = [
        &[3, 1, 4, 1, 5, 2, 6, 5, 3, 5],
        &[0, 1, 2, 0, 1, 2, 0, 1, 2],
        &[2, 6],
        &[1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6],
    ];
    for seed in 0..12 {
        let model = untrained(seed);
        for tokens in inputs {
            let told = refusal(&model, &[sequence(tokens)]);
            assert!(told.is_some(), "seed {seed}, {tokens:?}");
        }
        let told = refusal(&model, &motifs(5)).unwrap_or_else(|| panic!("seed {seed}"));
        assert!(told.contains("rule out chance"), "{told}");
    }
}

#[test]
fn a_model_without_working_components_has_no_circuit() {
    let told = refusal(&Model::Decoder(silent(2)), &motifs(5)).unwrap();
    assert!(told.contains("a gain of") && told.ends_with("explain it on more tokens"), "{told}");
}

/// The induction circuit, and a head that also copies the previous token.
fn with_harmful_head(strength: f32) -> Decoder<B> {
    let mut model = silent(2);
    set(&mut model, [0, 1], [PLACE, PLACE, TIME], 1, BEFORE);
    set(&mut model, [1, 0], [TOKEN, BEFORE, VOCAB], 0, NEXT);
    let mut other = silent(2);
    set(&mut other, [1, 1], [PLACE, PLACE, TIME], 1, NEXT);
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
    assert!((found.gain_kept - 1.0).abs() <= 0.05, "from above and from below: {:?}", found.sentences);
    let harmful = found.components.iter().find(|part| (part.layer, part.head) == (1, Some(1)));
    let harmful = harmful.unwrap_or_else(|| panic!("the model computes with it: {:?}", found.sentences));
    assert!(harmful.mean_ablated_loss < found.loss - 0.1, "{harmful:?}");
    let told = found.sentences.iter().find(|it| it.starts_with("Layer 1 head 1")).unwrap();
    assert!(told.contains("lowers the loss from") && told.contains("makes the model worse"), "{told}");
}

#[test]
fn a_constant_input_has_no_circuit() {
    let mut model = silent(2);
    set(&mut model, [0, 1], [PLACE, PLACE, TIME], 1, BEFORE);
    set(&mut model, [1, 0], [TOKEN, BEFORE, VOCAB], 0, NEXT);
    let told = refusal(&Model::Decoder(model), &[sequence(&[4; 11])]).unwrap();
    assert!(told.contains("same token"), "{told}");
}

#[test]
fn an_induction_head_is_found_on_one_input() {
    let mut model = silent(2);
    set(&mut model, [0, 1], [PLACE, PLACE, TIME], 1, BEFORE);
    set(&mut model, [1, 0], [TOKEN, BEFORE, VOCAB], 0, NEXT);
    let mut input = sequence(&[3, 1, 4, 0, 5, 3, 1, 4, 0, 5, 3, 1, 4]);
    // The first pass of a motif is unpredictable.
    input.roles[..5].fill(Role::Padding);
    let found = explain(&Model::Decoder(model), &[input], Origin::default(), &Default::default()).unwrap();
    let induction = found.components.iter().find(|part| part.kinds.contains(&Kind::Induction));
    assert_eq!(induction.map(|part| (part.layer, part.head)), Some((1, Some(0))), "{:?}", found.sentences);
}

#[test]
fn memory_is_asked_for_before_it_is_used() {
    let model = silent(2);
    let long = [sequence(&[3; 12])];
    assert!(check_memory(&model, &long, 1e9).is_ok());
    let refused = check_memory(&model, &long, 1e4).unwrap_err().to_string();
    assert!(
        refused.contains("1 sequence of 11 tokens") && refused.ends_with("shorten the input"),
        "{refused}"
    );
}

#[test]
fn sequences_are_cut_where_memory_ends() {
    let model = silent(2);
    let config = crate::data::DataConfig { length: TIME, ..Default::default() };
    let data = crate::data::load(&config, 0).unwrap();
    let (whole, told) = affordable(&model, &data.valid, f64::INFINITY);
    assert!(whole.len() > 2 && whole[0].inputs.len() == data.valid.time() && told.is_none(), "{told:?}");
    let (cut, told) = affordable(&model, &data.valid, 1.5e5);
    let told = told.expect("something is left out");
    assert!(
        cut[0].inputs.len() < data.valid.time() && cut.len() == 2,
        "{} of {}",
        cut[0].inputs.len(),
        cut.len()
    );
    assert!(told.starts_with(&format!("only the first {} of", cut[0].inputs.len())), "{told}");
}

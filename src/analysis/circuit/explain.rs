//! Explains a decoder by leaving out: which parts make its prediction, and which of them feed which.

use super::bench::{Bench, loss_of, parts};
use super::explanation::{Component, Edge, Explanation};
use super::kind::{cross_kinds, kinds};
use super::lens::{Lens, attribute};
use super::pass::{Site, explained};
use super::patching::{Pair, Patching};
use super::sentences::sentences;
use super::tuned::Translator;
use super::weights::{HeadMatrices, HeadWeights, Input, to_embedding};
use crate::analysis::view::floats;
use crate::analysis::{HeadTallies, Sample};
use crate::data::{Role, Sequences, tasks::SequenceTask};
use crate::model::{Decoder, Model};
use crate::ops;
use crate::terminal::fixed;
use crate::{Error, Result};

/// The share of the gain over the baseline that a circuit keeps.
const KEPT: f64 = 0.95;
/// The least share of the gain that is lost without a path that is told.
const LEAST_EDGE: f64 = 0.02;
/// The heads, those worth most first, between which paths are looked for.
const MOST_HEADS: usize = 12;
/// The copying score of a head that copies; random weights have about 0.
const COPYING: f64 = 0.5;
/// The least gain over the baseline that there is to explain, in nats.
const LEAST_GAIN: f64 = 0.05;
/// Floating-point operations that an explanation may take, and the most tokens that it looks at.
const OPERATIONS: usize = 600_000_000_000;
const MOST_TOKENS: usize = 2_048;
/// Training targets that the unigram counts.
const MOST_COUNTED: usize = 1 << 22;

/// The sequences of a set that a model is explained on: as many as can be afforded, at least two where there are.
pub fn affordable<B: ops::Backend>(model: &Decoder<B>, set: &Sequences) -> Vec<Sample> {
    use burn::module::Module;
    let parts = parts(model).count();
    // A part is left out four times, and a weight multiplied and added once a token.
    let tokens = OPERATIONS / (8 * parts * model.num_params()).max(1);
    Sample::first(set, (tokens.min(MOST_TOKENS) / set.time().max(1)).max(2))
}

/// The loss on the targets of `samples` of a predictor that knows how often each of `vocab` tokens is a target of the
/// training set, and counts each once more.
pub fn unigram(train: &Sequences, samples: &[Sample], vocab: usize) -> f64 {
    let mut counts = vec![1.0; vocab];
    // The beginning of a large set says enough.
    let batches = MOST_COUNTED / (64 * train.time()).max(1) + 1;
    for batch in train.batches(64).take(batches) {
        for (&target, role) in batch.targets.iter().zip(&batch.roles) {
            counts[target as usize] += f64::from(*role != Role::Padding);
        }
    }
    let all = counts.iter().sum::<f64>();
    let targets = samples.iter().flat_map(|sample| sample.targets.iter().zip(&sample.roles));
    let counted = targets.filter(|(_, role)| **role != Role::Padding);
    let losses: Vec<f64> = counted.map(|(&target, _)| (all / counts[target as usize]).ln()).collect();
    losses.iter().sum::<f64>() / losses.len().max(1) as f64
}

/// What is known of where sequences come from.
#[derive(Clone, Copy, Default)]
pub struct Origin<'a> {
    /// What the unigram of the training set loses on them.
    pub unigram: Option<f64>,
    /// The training set.
    pub train: Option<&'a Sequences>,
    /// The task that drew them.
    pub task: Option<&'a dyn SequenceTask>,
}

/// Explains a model on `samples`.
///
/// # Errors
/// Where the model is none that [`explained`] takes, there is nothing to predict, or it predicts no better than the
/// baseline.
pub fn explain<B: ops::Backend>(
    model: &Model<B>,
    samples: &[Sample],
    Origin { unigram, train, task }: Origin,
    device: &B::Device,
) -> Result<Explanation> {
    let model = explained(model)?;
    let bench = Bench::new(model, samples, device)?;
    if bench.batch.tokens == 0 {
        return Err(Error::Input("there is no target to explain: give at least two tokens".into()));
    }
    let all: Vec<Site> = bench.means.iter().map(|(site, _)| *site).collect();
    let loss = loss_of(bench.whole.logits.clone(), &bench.batch);
    let baseline = unigram.map_or_else(|| bench.loss_without(&all), Ok)?;
    let gain = baseline - loss;
    if gain.is_nan() || gain < LEAST_GAIN {
        let of = if unigram.is_some() {
            "the unigram"
        } else {
            "the model without its heads and feed-forward layers"
        };
        return Err(Error::Input(format!(
            "the model's loss of {} nats is no {LEAST_GAIN} below the {} nats of {of}: there is no gain to explain; train \
             it longer",
            fixed(loss, 3),
            fixed(baseline, 3)
        )));
    }

    let ranked = bench.ranked(&all, &[])?;
    let (kept, loss_of_circuit) = bench.smallest(ranked.clone(), baseline - KEPT * gain)?;
    let logits = to_embedding(model);
    let matrices = HeadMatrices::all(model);
    let random_weights = matrices[0][0].random_weights(&logits);
    let say = |heads: &Vec<HeadMatrices<B>>| heads.iter().map(|head| head.weights(&logits)).collect();
    let weights: Vec<Vec<HeadWeights>> = matrices.iter().map(say).collect();

    let mut tallies = HeadTallies::default();
    let patterns = (0..model.blocks.len()).map(|layer| bench.whole.all_heads(Site::Pattern(layer, 0)));
    let maps: Vec<_> = patterns.map(|pattern| (pattern.dims()[1], floats(pattern))).collect();
    tallies.add_batch(&maps, &samples.iter().map(|sample| sample.inputs.as_slice()).collect::<Vec<_>>());
    let scores = tallies.scores();

    // From the part worth most on.
    let worth = ranked.iter().rev().filter(|(_, site)| kept.contains(site));
    let component = |&(loss_without, site): &(f64, Site)| {
        let (layer, cross, head, kinds) = match site {
            Site::Head(layer, head) => {
                let separator = bench.separator([layer, head], samples);
                let copies = weights[layer][head].copying >= COPYING;
                let uneven = bench.unevenness(Site::Pattern(layer, head));
                (layer, false, Some(head), kinds(&scores[layer][head], separator, uneven, copies))
            }
            Site::Cross(layer, head) => {
                let looks = bench.looks_at([layer, head], samples);
                let uneven = bench.unevenness(Site::CrossPattern(layer, head));
                (layer, true, Some(head), cross_kinds(looks, uneven))
            }
            Site::FeedForward(layer) => (layer, false, None, Vec::new()),
            _ => unreachable!("parts are heads and feed-forward layers"),
        };
        Component { layer, head, cross, feed_forward: head.is_none(), kinds, loss_without }
    };
    let components: Vec<Component> = worth.map(component).collect();

    let cross = HeadMatrices::cross(model);
    let edges = paths(&bench, &components, [&matrices, &cross], loss + LEAST_EDGE * gain)?;
    let maps = train.map(|train| Translator::all(model, train, device)).transpose()?.flatten();
    let pairs = match task {
        // What an encoder-decoder answers stands in its source.
        _ if model.encoder.is_some() => Vec::new(),
        Some(task) => Pair::of_task(task, samples),
        None => Pair::by_exchange(model, samples, device)?,
    };
    let mut explanation = Explanation {
        sequences: samples.len(),
        targets: bench.batch.tokens,
        loss,
        baseline,
        is_unigram: unigram.is_some(),
        loss_of_circuit,
        gain_kept: (baseline - loss_of_circuit) / gain,
        components,
        edges,
        sentences: Vec::new(),
        lens: Lens::new(model, &bench.whole, &bench.batch, &[]),
        tuned_lens: maps.map(|maps| Lens::new(model, &bench.whole, &bench.batch, &maps)),
        attribution: attribute(model, &bench.whole, &bench.batch),
        patching: Patching::new(model, &pairs, device)?,
        weights,
        random_weights,
        cross_heads: cross.iter().map(Vec::len).sum(),
        inputs: samples[0].inputs.clone(),
        next: samples[0].targets.clone(),
    };
    explanation.sentences = sentences(&explanation, &scores);
    Ok(explanation)
}

/// The paths between the heads of a circuit without which the loss is at least `least`, from the one worth most on.
/// Matrices of the heads are those of self-attention and of cross-attention.
fn paths<B: ops::Backend>(
    bench: &Bench<B>,
    components: &[Component],
    [matrices, cross]: [&[Vec<HeadMatrices<B>>]; 2],
    least: f64,
) -> Result<Vec<Edge>> {
    let heads = components.iter().filter_map(|part| Some((part, part.head?)));
    let heads: Vec<(&Component, usize)> = heads.take(MOST_HEADS).collect();
    let look_up = |part: &Component, head: usize| match part.cross {
        false => (Site::Head(part.layer, head), &matrices[part.layer][head]),
        true => (Site::Cross(part.layer, head), &cross[part.layer][head]),
    };
    let chance = matrices[0][0].random_composition();
    let mut edges = Vec::new();
    for &(from, from_head) in &heads {
        let (sender, written) = look_up(from, from_head);
        let without = bench.without_alone(sender)?;
        // The cross-attention of a layer comes behind its other heads.
        let is_behind = |to: &Component| (from.layer, from.cross) < (to.layer, to.cross);
        for &(to, to_head) in heads.iter().filter(|(to, _)| is_behind(to)) {
            let (reader, read) = look_up(to, to_head);
            let all = [Input::Query, Input::Key, Input::Value];
            // Keys and values of the cross-attention are the encoder's.
            let inputs = if to.cross { &all[..1] } else { &all };
            if bench.loss_with_inputs(reader, inputs, &without)? < least {
                continue;
            }
            for &input in inputs {
                let loss_without = bench.loss_with_inputs(reader, &[input], &without)?;
                if loss_without >= least {
                    edges.push(Edge {
                        from: [from.layer, from_head],
                        to: [to.layer, to_head],
                        from_cross: from.cross,
                        to_cross: to.cross,
                        input,
                        composition: read.composition(written, input),
                        random: chance,
                        loss_without,
                    });
                }
            }
        }
    }
    edges.sort_by(|a, b| b.loss_without.total_cmp(&a.loss_without));
    Ok(edges)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::circuit::Kind;
    use crate::model::{ModelConfig, Sizes};
    use crate::ops::NormKind;
    use crate::position::Position;
    use burn::module::Param;
    use burn::tensor::Tensor;
    use burn_ndarray::NdArray;

    type B = NdArray;

    const VOCAB: usize = 7;
    const TIME: usize = 12;
    /// Where the parts of the stream begin: the token, the token before, the token to predict, the position.
    const TOKEN: usize = 0;
    const BEFORE: usize = VOCAB;
    const NEXT: usize = 2 * VOCAB;
    const PLACE: usize = 3 * VOCAB;
    const D_MODEL: usize = PLACE + TIME;
    const HEADS: usize = 2;

    /// Ones of this size at these rows and columns.
    fn matrix(
        shape: [usize; 2],
        ones: impl IntoIterator<Item = [usize; 2]>,
        size: f32,
    ) -> Param<Tensor<B, 2>> {
        let mut values = vec![0.0; shape[0] * shape[1]];
        ones.into_iter().for_each(|[row, column]| values[row * shape[1] + column] = size);
        Param::from_tensor(Tensor::<B, 1>::from_floats(values.as_slice(), &Default::default()).reshape(shape))
    }

    /// A decoder all of whose heads and feed-forward layers write nothing.
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

    /// Lets a head look from what stands at `query` to where it stands at `key`, `shift` later in the latter's part of
    /// `width`, and write the token there to `to`.
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

    /// Motifs of distinct tokens, repeated; the first period does not count.
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
        let unigram = Some((VOCAB as f64).ln());
        let samples: Vec<_> = periods.iter().flat_map(|&period| motifs(period)).collect();
        explain(
            &Model::Decoder(model),
            &samples,
            Origin { unigram, ..Origin::default() },
            &Default::default(),
        )
        .unwrap()
    }

    #[test]
    fn an_induction_circuit_set_by_hand_is_found_with_its_path() {
        let mut model = silent(2);
        // Layer 0 head 1 looks one place back; layer 1 head 0 for its own token among the tokens before.
        set(&mut model, [0, 1], [PLACE, PLACE, TIME], 1, BEFORE);
        set(&mut model, [1, 0], [TOKEN, BEFORE, VOCAB], 0, NEXT);
        let found = explained_on(model, &[3, 5]);
        let parts: Vec<_> = found.components.iter().map(|part| (part.layer, part.head)).collect();
        assert_eq!(parts.len(), 2, "{:?}", found.sentences);
        let part = |layer, head| {
            found.components.iter().find(|part| (part.layer, part.head) == (layer, Some(head))).unwrap()
        };
        assert_eq!(part(0, 1).kinds, [Kind::PreviousToken, Kind::Positional]);
        assert_eq!(part(1, 0).kinds, [Kind::Induction, Kind::Copying]);
        let [edge] = found.edges.as_slice() else { panic!("{:?}", found.edges) };
        assert_eq!((edge.from, edge.to, edge.input), ([0, 1], [1, 0], Input::Key));
        // Seven directions are written, and all that is read is among them.
        assert!((edge.composition - 7f64.sqrt().recip()).abs() < 1e-5, "{edge:?}");
        assert!(edge.composition > 2.0 * edge.random && edge.loss_without > found.loss + 1.0, "{edge:?}");
        assert!((found.gain_kept - 1.0).abs() < 1e-4 && found.loss < 0.2, "{found:?}");
        let patching = found.patching.as_ref().unwrap();
        // What was exchanged is what is copied, not where it is found.
        assert!((patching.heads[1][0] - 1.0).abs() < 1e-3, "{patching:?}");
        assert_eq!((&patching.heads[0], patching.heads[1][1]), (&vec![0.0; 2], 0.0));
        assert_eq!(patching.feed_forward, [0.0; 2]);
        let [.., before, last] = found.lens.loss.as_slice() else { panic!("{:?}", found.lens) };
        assert!(last + 1.0 < *before, "only the second layer makes the prediction: {:?}", found.lens.loss);
        let adds = |part: &str| found.attribution.iter().find(|it| it.part == part).unwrap().mean;
        assert!(
            adds("layer 1 head 0") > 2.0 && adds("layer 0 head 1").abs() < 1e-4,
            "{:?}",
            found.attribution
        );
        assert!(
            found
                .sentences
                .iter()
                .any(|sentence| sentence.starts_with("It reads layer 0 head 1 by its keys"))
        );
    }

    #[test]
    fn patching_finds_the_head_that_reads_and_the_one_that_it_reads() {
        let mut model = silent(2);
        set(&mut model, [0, 1], [PLACE, PLACE, TIME], 1, BEFORE);
        set(&mut model, [1, 0], [TOKEN, BEFORE, VOCAB], 0, NEXT);
        // The keys are exchanged: what stands behind a 0 is a 1, or a 3.
        let pair = Pair { clean: vec![0, 1, 2, 3, 0], corrupted: vec![2, 1, 0, 3, 0], answers: [1, 3] };
        let found = Patching::new(&model, &[pair], &Default::default()).unwrap().unwrap();
        assert!(found.heads[0][1] > 0.9 && found.heads[1][0] > 0.9, "{found:?}");
        assert_eq!([found.heads[0][0], found.heads[1][1]], [0.0; 2]);
        assert!(found.stream[0][0] > 0.1 && found.stream[1][1] > 0.1, "one place on: {found:?}");
    }

    #[test]
    fn a_copy_of_the_token_before_set_by_hand_is_one_head() {
        let mut model = silent(2);
        set(&mut model, [1, 0], [PLACE, PLACE, TIME], 1, NEXT);
        let found = explained_on(model, &[2]);
        let [part] = found.components.as_slice() else { panic!("{:?}", found.components) };
        assert_eq!((part.layer, part.head), (1, Some(0)));
        // With a period of two the token before is what followed the same token earlier, too.
        assert!(part.kinds.starts_with(&[Kind::PreviousToken]) && part.kinds.ends_with(&[Kind::Copying]));
        assert!(found.edges.is_empty(), "{:?}", found.edges);
    }

    #[test]
    fn a_model_that_predicts_nothing_has_no_circuit() {
        let model = Model::Decoder(silent(2));
        let error = explain(
            &model,
            &motifs(5),
            Origin { unigram: Some(1.0), ..Origin::default() },
            &Default::default(),
        )
        .unwrap_err()
        .to_string();
        assert!(error.contains("no 0.05 below the 1.000 nats of the unigram"), "{error}");
        let error =
            explain(&model, &motifs(5)[..1], Origin::default(), &Default::default()).unwrap_err().to_string();
        assert!(error.contains("no gain to explain"), "{error}");
    }
}

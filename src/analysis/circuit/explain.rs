//! Explains a decoder by ablation: the components that make its prediction, and the connections between them.

use burn::tensor::backend::Backend;

use super::bench::{Ablated, Bench, mean};
use super::certify::check_certifiable;
use super::criteria::{CircuitGain, Minimality, Shares};
use super::explanation::{
    Basis, Component, Cut, Edge, Explanation, HeadAnalysis, NeuronAnalysis, TestedConnections, Views,
};
use super::full_values::FullValues;
use super::gain::{Gain, TOLERANCE};
use super::lens::{Lens, attribute};
use super::memory::tuned_lens_skip_reason;
use super::pairs::Pair;
use super::pass::{Site, explainable};
use super::patching::Patching;
use super::paths::{FoundConnections, MIN_EDGE_EFFECT, paths};
use super::question::Question;
use super::repeat::Repeated;
use super::search::{Found, Pruned};
use super::sentences::sentences;
use super::tuned::Translator;
use super::watch::{ExplanationStage, Unwatched, Watch};
use super::weight_analysis::{WeightAnalysis, identified};
use crate::analysis::view::floats;
use crate::analysis::{HeadScores, HeadTallies, Sample};
use crate::data::{Role, Sequences, Vocabulary, tasks::SequenceTask};
use crate::model::Model;
use crate::{Error, Result};

/// The origin of the sequences. Unknown fields are `None`.
#[derive(Clone, Default)]
pub struct ExplanationContext<'a> {
    /// The unigram baseline's losses on the sequences' targets, as [`unigram`](super::unigram) returns them.
    pub unigram: Option<Vec<f64>>,
    /// The training set.
    pub train: Option<&'a Sequences>,
    /// The task that generated the sequences.
    pub task: Option<&'a dyn SequenceTask>,
    /// A note if the sequences are truncated.
    pub truncation_note: Option<String>,
    /// The question about the targets.
    pub question: Question,
    /// True to explain only the targets that the model predicts better than the unigram baseline, by at least a standard
    /// error.
    pub selects_targets: bool,
    /// True to evaluate all smaller circuits too, which takes up to two to the number of components passes.
    pub certifies: bool,
    /// The vocabulary, whose tokens sentences name.
    pub vocabulary: Option<&'a Vocabulary>,
    /// The number of tokens in each copy, for [`repeated_sequences`](super::repeated_sequences).
    pub repeated: Option<usize>,
    /// Follows the explanation, and may end it early.
    pub watch: Option<&'a dyn Watch>,
}

/// Explains a model on `samples`. If the gain over a baseline may be due to chance, the explanation states the reason
/// instead of a circuit.
///
/// # Errors
/// Returns an error if the model is not [`explainable`], or if all targets are padding.
pub fn explain<B: Backend>(
    model: &Model<B>,
    samples: &[Sample],
    context: ExplanationContext,
    device: &B::Device,
) -> Result<Explanation> {
    let ExplanationContext { unigram, question, .. } = &context;
    let model = explainable(model)?;
    if context.certifies {
        check_certifiable(model)?;
    }
    let mut bench = Bench::new(model, samples, question, device)?;
    if bench.batch.tokens == 0 {
        return Err(Error::Input("no target to explain; pass at least two tokens".into()));
    }
    let mut gain = Gain::new(&bench, (samples, question), unigram.clone())?;
    // A selection by the model's own loss is weak evidence against chance, so the gain is tested on all targets, unless
    // that of the selected ones is large.
    let is_gain = gain.no_circuit.is_none() || gain.is_in_selection();
    let selected = (context.selects_targets && is_gain).then(|| gain.select(samples));
    let samples = selected.as_deref().unwrap_or(samples);
    if selected.is_some() {
        bench = Bench::new(model, samples, question, device)?;
        gain = Gain::new(&bench, (samples, question), None)?;
        // All targets were evidence against chance already.
        gain.no_circuit = gain.too_small();
    }
    bench.watch = context.watch.unwrap_or(&Unwatched);
    explained(&bench, samples, gain, &context)
}

/// Explains the gain of a model.
fn explained<B: Backend>(
    bench: &Bench<B>,
    samples: &[Sample],
    mut gain: Gain,
    context: &ExplanationContext,
) -> Result<Explanation> {
    let scores = scores(bench, samples);
    let repeated = context.repeated.map(|length| Repeated::new(bench, &scores, length));
    let found = match gain.no_circuit.is_none() {
        true => Some(search(bench, &gain, repeated.as_ref(), context.certifies)?),
        false => None,
    };
    let (weights, is_cut) = WeightAnalysis::new(bench);
    let weights_cut = is_cut.then_some(ExplanationStage::Weights);
    let mut circuit = match found {
        Some(mut found) => {
            found.cut.extend(weights_cut);
            Circuit::new(bench, samples, (&gain, &weights, &scores), found)?
        }
        None => Circuit::none(&gain, weights_cut),
    };
    if gain.no_circuit.is_none() && circuit.components.is_empty() {
        let reason = "the search ended before any component was ablated alone; allow it more time";
        gain.no_circuit = Some(reason.to_string());
    }
    let stages = &mut circuit.cut.stages;
    let full_values = FullValues::new(bench, samples);
    let mut views = views(bench, full_values.groups(), stages);
    views.tuned_lens = tuned_lens((bench, full_values.groups()), context.train, stages)?;
    if gain.no_circuit.is_none() {
        views.direct = bench.direct_effects(&circuit.components, &full_values);
        let device = bench.full.logits.device();
        let pairs = pairs(bench, samples, (context.task, &context.question), &device)?;
        let (patching, is_cut) = Patching::watched(bench.model, &pairs, &device, bench.watch)?;
        views.patching = patching;
        stages.extend(is_cut.then_some(ExplanationStage::Patching));
    }
    let mut explanation = Explanation {
        basis: basis(samples, bench.batch.tokens, context.truncation_note.clone()),
        gain: circuit_gain(gain, &circuit, &context.question),
        components: circuit.components,
        edges: circuit.edges,
        connections: circuit.connections,
        cut: (!circuit.cut.stages.is_empty()).then_some(circuit.cut),
        sentences: Vec::new(),
        random_effects: None,
        repeated,
        neurons: NeuronAnalysis::default(),
        views,
        heads: HeadAnalysis {
            cross_heads: weights.cross.iter().map(Vec::len).sum(),
            weights: weights.heads,
            random_weights: weights.random,
        },
    };
    explanation.sentences = sentences(&explanation, &scores, context.vocabulary);
    Ok(explanation)
}

/// Searches for the circuit. On repeated tokens, it prefers the induction heads.
fn search<B: Backend>(
    bench: &Bench<B>,
    gain: &Gain,
    repeated: Option<&Repeated>,
    certifies: bool,
) -> Result<Found> {
    let (full, tolerance) = (gain.model, TOLERANCE * gain.size());
    let preferred: Vec<Site> = repeated.map(Repeated::induction_heads).unwrap_or_default();
    let mut found = bench.search(full, tolerance, &preferred)?;
    if certifies {
        found.pruned = bench.certify(found.pruned, full, tolerance)?;
        found.cut.extend(found.pruned.smaller_sets.is_none().then_some(ExplanationStage::Proof));
        found.alone = bench.ablated_alone(&found.pruned, found.alone, full)?;
    }
    Ok(found)
}

/// Trains the tuned lens, if the training set is known and short enough. Adds to the stages that ended early.
fn tuned_lens<B: Backend>(
    (Bench { model, full, batch, watch, .. }, groups): (&Bench<B>, &[usize]),
    train: Option<&Sequences>,
    cut: &mut Vec<ExplanationStage>,
) -> Result<Option<Lens>> {
    let Some(train) = train.filter(|train| tuned_lens_skip_reason(model, train).is_none()) else {
        return Ok(None);
    };
    let ends = || watch.ends(ExplanationStage::TunedLens);
    let maps = Translator::all(model, train, &ends, &full.logits.device())?;
    cut.extend((maps.is_none() && ends()).then_some(ExplanationStage::TunedLens));
    Ok(maps.map(|maps| Lens::new(model, full, (batch, groups), &maps)))
}

/// Returns the effects of the components, without those that take long, for targets of these groups. Adds to the stages that
/// ended early.
fn views<B: Backend>(bench: &Bench<B>, groups: &[usize], cut: &mut Vec<ExplanationStage>) -> Views {
    let Bench { model, full, batch, watch, .. } = bench;
    let ends = || watch.ends(ExplanationStage::Lens);
    let lens = Lens::until(model, full, (batch, groups), &ends);
    let lens_after_attention = Lens::after_attention(model, full, (batch, groups), &ends);
    cut.extend((lens.is_none() || lens_after_attention.is_none()).then_some(ExplanationStage::Lens));
    Views {
        lens: lens.unwrap_or_default(),
        tuned_lens: None,
        lens_after_attention: lens_after_attention.unwrap_or_default(),
        attribution: attribute(model, full, (batch, groups), (bench.answers(), bench.against.as_ref())),
        direct: Vec::new(),
        patching: None,
    }
}

/// Returns clean and corrupted sequences for activation patching.
fn pairs<B: Backend>(
    bench: &Bench<B>,
    samples: &[Sample],
    (task, question): (Option<&dyn SequenceTask>, &Question),
    device: &B::Device,
) -> Result<Vec<Pair>> {
    match task {
        // The answer of an encoder-decoder depends on its source.
        _ if bench.model.encoder.is_some() => Ok(Vec::new()),
        _ if question.of_answers => Ok(Pair::of_answers(bench, samples, question)),
        Some(task) => Pair::of_task(bench.model, task, samples, device),
        None => Pair::by_exchange(bench.model, samples, device),
    }
}

fn basis(samples: &[Sample], targets: usize, left_out: Option<String>) -> Basis {
    let roles = samples[0].roles.iter().enumerate();
    Basis {
        weights_sha256: None,
        left_out,
        sequences: samples.len(),
        targets,
        inputs: samples[0].inputs.clone(),
        next: samples[0].targets.clone(),
        positions: roles.filter(|(_, role)| **role != Role::Padding).map(|(position, _)| position).collect(),
    }
}

fn circuit_gain(gain: Gain, circuit: &Circuit, question: &Question) -> CircuitGain {
    let mut found = CircuitGain {
        quantity: question.quantity(),
        ablation: question.ablation(),
        model: gain.model,
        baseline: gain.baseline,
        baseline_of: gain.baseline_of,
        circuit: circuit.value,
        complement: circuit.complement,
        shares: Shares::default(),
        smaller_sets: circuit.smaller_sets,
        ablated_alone: circuit.ablated_alone,
        no_circuit: gain.no_circuit,
    };
    if found.no_circuit.is_none() {
        let [of_circuit, of_complement] =
            circuit.intervals.map(|change| change.map(|change| found.share_interval(change)));
        found.shares = Shares {
            faithfulness: found.share(circuit.value),
            faithfulness_interval: of_circuit,
            complement_share: found.share(circuit.complement),
            complement_interval: of_complement,
        };
    }
    found
}

/// Scores the heads on `samples`, `[layer][head]`.
pub(super) fn scores<B: Backend>(bench: &Bench<B>, samples: &[Sample]) -> Vec<Vec<HeadScores>> {
    let mut tallies = HeadTallies::default();
    let patterns = (0..bench.model.blocks.len()).map(|layer| bench.full.all_heads(Site::Pattern(layer, 0)));
    let maps: Vec<_> = patterns.map(|pattern| (pattern.dims()[1], floats(pattern))).collect();
    tallies.add_batch(&maps, &samples.iter().map(Sample::documents).collect::<Vec<_>>());
    tallies.scores()
}

/// A circuit and its quantity.
struct Circuit {
    components: Vec<Component>,
    edges: Vec<Edge>,
    connections: TestedConnections,
    /// The quantity with all other components ablated.
    value: f64,
    /// The quantity with the components ablated.
    complement: f64,
    /// The 95 % intervals of the changes from the full model to these two.
    intervals: [Option<[f64; 2]>; 2],
    /// The number of smaller sets that were all evaluated.
    smaller_sets: Option<usize>,
    /// The number of components that were ablated alone.
    ablated_alone: usize,
    cut: Cut,
}

impl Circuit {
    /// Returns the circuit without components.
    fn none(gain: &Gain, cut: Option<ExplanationStage>) -> Self {
        let (value, complement) = (gain.all_ablated, gain.model);
        Self {
            components: Vec::new(),
            edges: Vec::new(),
            connections: TestedConnections::default(),
            value,
            complement,
            intervals: [None; 2],
            smaller_sets: None,
            ablated_alone: 0,
            cut: Cut { stages: cut.into_iter().collect(), unconfirmed: 0 },
        }
    }

    fn new<B: Backend>(
        bench: &Bench<B>,
        samples: &[Sample],
        (gain, weights, scores): (&Gain, &WeightAnalysis<B>, &[Vec<HeadScores>]),
        Found { alone, ablated_alone, pruned, of_kind, estimates, cut: mut stages }: Found,
    ) -> Result<Self> {
        let Pruned { kept, value, smaller_sets } = pruned;
        let full_values = FullValues::new(bench, samples);
        let component = |alone: &Ablated| {
            let without = kept.iter().find(|(site, _)| *site == alone.site)?.1.as_deref();
            let interval = full_values.interval(&alone.values);
            let (layer, cross, head, (kinds, kind_scores)) =
                identified(bench, samples, (weights, scores), alone.site);
            let (feed_forward, ablated) = (head.is_none(), alone.mean());
            let estimated = estimates.iter().find(|(site, _)| *site == alone.site).map(|(_, it)| *it);
            let minimality = Minimality {
                without: without.map(mean),
                without_interval: without.and_then(|values| full_values.interval(values)),
                without_kind: of_kind.iter().find(|(site, _)| *site == alone.site).map(|(_, it)| *it),
            };
            Some(Component {
                layer,
                head,
                cross,
                feed_forward,
                kinds,
                kind_scores,
                estimated,
                ablated,
                interval,
                minimality,
                attends: bench.attended(alone.site, samples),
            })
        };
        // The most important component comes first.
        let components: Vec<Component> = alone.iter().rev().filter_map(component).collect();
        let matrices = [&weights.matrices[..], &weights.cross];
        let FoundConnections { edges, tested, is_cut } =
            paths(bench, &components, matrices, (&full_values, MIN_EDGE_EFFECT * gain.size()))?;
        stages.extend(is_cut.then_some(ExplanationStage::Connections));
        let circuit = bench.values_ablated(&bench.except(&kept))?;
        let complement = bench.values_ablated(&kept.iter().map(|(site, _)| *site).collect::<Vec<_>>())?;
        let intervals = [&circuit, &complement].map(|values| full_values.interval(values));
        let cut = Cut { stages, unconfirmed: kept.len() - components.len() };
        Ok(Self {
            components,
            edges,
            connections: tested,
            value,
            complement: mean(&complement),
            intervals,
            smaller_sets,
            ablated_alone,
            cut,
        })
    }
}

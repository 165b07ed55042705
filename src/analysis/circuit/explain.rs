//! Explains a decoder by ablation: the components that make its prediction, and the connections between them.

use burn::tensor::backend::Backend;

use super::bench::{Ablated, Bench};
use super::explanation::{Basis, CircuitGain, Component, Edge, Explanation, HeadAnalysis, Views};
use super::gain::{Gain, TOLERANCE, groups, interval};
use super::kind::{cross_kinds, kinds};
use super::lens::{Lens, attribute};
use super::memory::tuned_lens_skip_reason;
use super::neurons::NeuronAnalysis;
use super::pass::{Site, explainable};
use super::patching::{Pair, Patching};
use super::question::Question;
use super::repeat::Repeated;
use super::search::Pruned;
use super::sentences::sentences;
use super::tuned::Translator;
use super::weights::{HeadInput, HeadMatrices, HeadWeights, to_embedding};
use crate::analysis::view::floats;
use crate::analysis::{HeadScores, HeadTallies, Sample};
use crate::data::{Role, Sequences, tasks::SequenceTask};
use crate::model::{Decoder, Model};
use crate::{Error, Result};

/// The minimum change for which an ablated path is reported, as a share of the gain.
const MIN_EDGE_EFFECT: f64 = 0.02;
/// The maximum number of heads between which paths are searched, the most important first.
const MAX_PATH_HEADS: usize = 12;
/// The minimum copying score of a copying head; random weights score about 0.
const MIN_COPYING_SCORE: f64 = 0.5;

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
    /// The number of tokens in each copy, for [`repeated_sequences`](super::repeated_sequences).
    pub repeated: Option<usize>,
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
    let ExplanationContext {
        unigram,
        train,
        task,
        truncation_note,
        question,
        selects_targets,
        certifies,
        repeated,
    } = context;
    let model = explainable(model)?;
    let mut bench = Bench::new(model, samples, &question, device)?;
    if bench.batch.tokens == 0 {
        return Err(Error::Input("no target to explain; pass at least two tokens".into()));
    }
    let mut gain = Gain::new(&bench, samples, unigram)?;
    // A selection by the model's own loss is no evidence against chance, so the gain is tested on all targets.
    let selected = (selects_targets && gain.no_circuit.is_none()).then(|| gain.select(samples));
    let samples = selected.as_deref().unwrap_or(samples);
    if selected.is_some() {
        bench = Bench::new(model, samples, &question, device)?;
        gain = Gain::new(&bench, samples, None)?;
        gain.no_circuit = None;
    }
    let weights = Weights::new(model);
    let scores = scores(&bench, samples);
    let has_circuit = gain.no_circuit.is_none();
    let circuit = match has_circuit {
        true => Circuit::new(&bench, samples, (&gain, &weights, &scores), certifies)?,
        false => Circuit::none(&gain),
    };
    let train = train.filter(|train| tuned_lens_skip_reason(model, train).is_none());
    let maps = train.map(|train| Translator::all(model, train, device)).transpose()?.flatten();
    let pairs = if has_circuit { pairs(&bench, samples, (task, &question), device)? } else { Vec::new() };
    let mut explanation = Explanation {
        basis: basis(samples, bench.batch.tokens, truncation_note),
        gain: circuit_gain(gain, &circuit, &question),
        components: circuit.components,
        edges: circuit.edges,
        sentences: Vec::new(),
        random_effects: None,
        repeated: repeated.map(|length| Repeated::new(&bench, &scores, length)),
        neurons: NeuronAnalysis::default(),
        views: views(&bench, maps.as_deref(), &pairs, device)?,
        heads: HeadAnalysis {
            cross_heads: weights.cross.iter().map(Vec::len).sum(),
            weights: weights.heads,
            random_weights: weights.random,
        },
    };
    explanation.sentences = sentences(&explanation, &scores);
    Ok(explanation)
}

/// Returns the effects of the components, with a tuned lens if there are `maps`.
fn views<B: Backend>(
    bench: &Bench<B>,
    maps: Option<&[Translator<B>]>,
    pairs: &[Pair],
    device: &B::Device,
) -> Result<Views> {
    let Bench { model, full, batch, against, .. } = bench;
    Ok(Views {
        lens: Lens::new(model, full, batch, &[]),
        tuned_lens: maps.map(|maps| Lens::new(model, full, batch, maps)),
        lens_after_attention: Lens::after_attention(model, full, batch),
        attribution: attribute(model, full, batch, against.as_ref()),
        patching: Patching::new(model, pairs, device)?,
    })
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
        faithfulness: 0.0,
        complement_share: 0.0,
        smaller_sets: circuit.smaller_sets,
        no_circuit: gain.no_circuit,
    };
    if found.no_circuit.is_none() {
        found.faithfulness = found.share(circuit.value);
        found.complement_share = found.share(circuit.complement);
    }
    found
}

/// Scores the heads on `samples`, `[layer][head]`.
fn scores<B: Backend>(bench: &Bench<B>, samples: &[Sample]) -> Vec<Vec<HeadScores>> {
    let mut tallies = HeadTallies::default();
    let patterns = (0..bench.model.blocks.len()).map(|layer| bench.full.all_heads(Site::Pattern(layer, 0)));
    let maps: Vec<_> = patterns.map(|pattern| (pattern.dims()[1], floats(pattern))).collect();
    tallies.add_batch(&maps, &samples.iter().map(Sample::documents).collect::<Vec<_>>());
    tallies.scores()
}

/// The weight analysis of a decoder, which needs no input.
struct Weights<B: Backend> {
    /// The matrices of the self-attention heads, `[layer][head]`.
    matrices: Vec<Vec<HeadMatrices<B>>>,
    /// The matrices of the cross-attention heads, `[layer][head]`.
    cross: Vec<Vec<HeadMatrices<B>>>,
    heads: Vec<Vec<HeadWeights>>,
    random: HeadWeights,
}

impl<B: Backend> Weights<B> {
    fn new(model: &Decoder<B>) -> Self {
        let logits = to_embedding(model);
        let [vocab, _] = model.embedding.token.weight.dims();
        let matrices = HeadMatrices::all(model);
        let layer_weights =
            |heads: &Vec<HeadMatrices<B>>| heads.iter().map(|head| head.weights(&logits, vocab)).collect();
        let heads = matrices.iter().map(layer_weights).collect();
        let random = matrices[0][0].random_weights(&logits, vocab);
        Self { cross: HeadMatrices::cross(model), matrices, heads, random }
    }
}

/// A circuit and its quantity.
struct Circuit {
    components: Vec<Component>,
    edges: Vec<Edge>,
    /// The quantity with all other components ablated.
    value: f64,
    /// The quantity with the components ablated.
    complement: f64,
    /// The number of smaller sets that were all evaluated.
    smaller_sets: Option<usize>,
}

impl Circuit {
    /// Returns the circuit without components.
    fn none(gain: &Gain) -> Self {
        let (value, complement) = (gain.all_ablated, gain.model);
        Self { components: Vec::new(), edges: Vec::new(), value, complement, smaller_sets: None }
    }

    fn new<B: Backend>(
        bench: &Bench<B>,
        samples: &[Sample],
        (gain, weights, scores): (&Gain, &Weights<B>, &[Vec<HeadScores>]),
        certifies: bool,
    ) -> Result<Self> {
        let (full, size) = (gain.model, (gain.baseline - gain.model).abs());
        let (ranked, mut found) = bench.search(full, TOLERANCE * size)?;
        if certifies {
            found = bench.certify(found, full, TOLERANCE * size)?;
        }
        let Pruned { kept, value, smaller_sets } = found;
        let full_values = bench.values(bench.full.logits.clone());
        let groups = groups(samples, bench.quantity);
        let component = |alone: &Ablated| {
            let without = kept.iter().find(|it| it.site == alone.site)?.mean();
            let changes: Vec<f64> =
                alone.values.iter().zip(&full_values).map(|(ablated, full)| ablated - full).collect();
            let site = alone.site;
            let (layer, cross, head, kinds) = match site {
                Site::Head(layer, head) => {
                    let separator = bench.separator_weight([layer, head], samples);
                    let copies = weights.heads[layer][head].copying >= MIN_COPYING_SCORE;
                    let variation = bench.pattern_variation(Site::Pattern(layer, head));
                    (layer, false, Some(head), kinds(&scores[layer][head], separator, variation, copies))
                }
                Site::Cross(layer, head) => {
                    let weights = bench.source_weights([layer, head], samples);
                    let variation = bench.pattern_variation(Site::CrossPattern(layer, head));
                    (layer, true, Some(head), cross_kinds(weights, variation))
                }
                Site::FeedForward(layer) => (layer, false, None, Vec::new()),
                _ => unreachable!("components are heads and feed-forward layers"),
            };
            Some(Component {
                layer,
                head,
                cross,
                feed_forward: head.is_none(),
                kinds,
                ablated: alone.mean(),
                interval: interval(&changes, &groups),
                without,
            })
        };
        // The most important component comes first.
        let components: Vec<Component> = ranked.iter().rev().filter_map(component).collect();
        let edges = paths(bench, &components, weights, (full, MIN_EDGE_EFFECT * size))?;
        let complement = bench.ablated(&kept.iter().map(|it| it.site).collect::<Vec<_>>())?;
        Ok(Self { components, edges, value, complement, smaller_sets })
    }
}

/// Returns the paths between a circuit's heads whose ablation changes the full model's quantity by at least
/// `min_change`, up or down. The most important come first.
fn paths<B: Backend>(
    bench: &Bench<B>,
    components: &[Component],
    Weights { matrices, cross, .. }: &Weights<B>,
    (full, min_change): (f64, f64),
) -> Result<Vec<Edge>> {
    let heads = components.iter().filter_map(|component| Some((component, component.head?)));
    let heads: Vec<(&Component, usize)> = heads.take(MAX_PATH_HEADS).collect();
    let look_up = |component: &Component, head: usize| match component.cross {
        false => (Site::Head(component.layer, head), &matrices[component.layer][head]),
        true => (Site::Cross(component.layer, head), &cross[component.layer][head]),
    };
    let random = matrices[0][0].random_composition();
    let is_small = |value: f64| (value - full).abs() < min_change;
    let mut edges = Vec::new();
    for &(from, from_head) in &heads {
        let (sender, sender_matrices) = look_up(from, from_head);
        let ablated = bench.run_with_frozen_heads(sender)?;
        // The cross-attention of a layer comes after its self-attention.
        let is_later = |to: &Component| (from.layer, from.cross) < (to.layer, to.cross);
        for &(to, to_head) in heads.iter().filter(|(to, _)| is_later(to)) {
            let (reader, reader_matrices) = look_up(to, to_head);
            let all = [HeadInput::Query, HeadInput::Key, HeadInput::Value];
            // Keys and values of the cross-attention come from the encoder.
            let inputs = if to.cross { &all[..1] } else { &all };
            if is_small(bench.with_inputs(reader, inputs, &ablated)?) {
                continue;
            }
            for &input in inputs {
                let ablated_value = bench.with_inputs(reader, &[input], &ablated)?;
                if !is_small(ablated_value) {
                    edges.push(Edge {
                        from: [from.layer, from_head],
                        to: [to.layer, to_head],
                        from_cross: from.cross,
                        to_cross: to.cross,
                        input,
                        composition: reader_matrices.composition(sender_matrices, input),
                        random,
                        ablated: ablated_value,
                    });
                }
            }
        }
    }
    let change = |edge: &Edge| (edge.ablated - full).abs();
    edges.sort_by(|a, b| change(b).total_cmp(&change(a)));
    Ok(edges)
}

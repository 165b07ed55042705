//! The connections between the components of a circuit, by path patching (Wang et al., 2022, arXiv 2211.00593).
//!
//! The model runs with one component, the sender, ablated and all other heads frozen. The input of a later component, the
//! receiver, changes in that pass. Patching the changed input into the intact model gives the quantity without this path.
//! Of many connections, gradients at the receivers' inputs select those that are patched (attribution patching, as for
//! [`estimates`](super::estimates)): `(changed - intact) · dq/d(input)`.

use std::collections::BTreeMap;

use burn::tensor::{Tensor, backend::Backend};

use super::bench::{Bench, mean};
use super::chance::RandomEffect;
use super::estimates::{Gradients, reader_gradients};
use super::explanation::{Component, Edge, TestedConnections};
use super::full_values::FullValues;
use super::pass::{Recorded, Replacements, Site};
use super::variants::VariantPass;
use super::watch::ExplanationStage;
use super::weights::{HeadInput, HeadMatrices};
use crate::Result;
use crate::analysis::view::floats;

/// The minimum change for which an ablated path is reported, as a share of the gain.
pub(super) const MIN_EDGE_EFFECT: f64 = 0.02;
/// The maximum number of components between which all connections are patched, the most important first. Between more
/// components, gradients select the connections.
const MAX_EXHAUSTIVE_COMPONENTS: usize = 16;
/// The minimum estimate of a selected connection, as a share of the minimum effect.
const MIN_ESTIMATE: f64 = 0.5;
/// The maximum number of selected connections, those with the largest estimates.
const MAX_SELECTED: usize = 128;
/// The number of connections that are patched before the stage may end.
const PATCHED_TOGETHER: usize = 32;

/// A component as the end of a connection.
#[derive(Clone, Copy)]
struct PathEnd<'a> {
    component: &'a Component,
    site: Site,
}

impl<'a> PathEnd<'a> {
    fn new(component: &'a Component) -> Self {
        Self { component, site: component.site() }
    }

    /// Returns the position in the model: components read the outputs of those with a smaller one.
    fn order(&self) -> (usize, usize) {
        match self.site {
            Site::Cross(layer, _) => (layer, 1),
            Site::FeedForward(layer) => (layer, 2),
            _ => (self.component.layer, 0),
        }
    }

    /// Returns the activations through which the component reads the residual stream. Keys and values of cross-attention
    /// come from the encoder. The output of a feed-forward layer depends on its input alone.
    fn inputs(&self) -> Vec<(Option<HeadInput>, Site)> {
        use HeadInput::{Key, Query, Value};
        match self.site {
            Site::Head(layer, head) => vec![
                (Some(Query), Site::Query(layer, head)),
                (Some(Key), Site::Key(layer, head)),
                (Some(Value), Site::Value(layer, head)),
            ],
            Site::Cross(layer, head) => vec![(Some(Query), Site::CrossQuery(layer, head))],
            site => vec![(None, site)],
        }
    }
}

/// A connection that may matter.
struct PathCandidate<'a, B: Backend> {
    from: PathEnd<'a>,
    to: PathEnd<'a>,
    input: Option<HeadInput>,
    /// The estimated change of the quantity; 0 if all connections are patched.
    estimate: f64,
    /// The input of the receiver with the sender ablated.
    changed: (Site, Tensor<B, 3>),
}

/// The connections of a circuit.
pub(super) struct FoundConnections {
    /// The connections whose ablation changes the quantity, the most important first.
    pub edges: Vec<Edge>,
    pub tested: TestedConnections,
    /// True if the stage ended before all selected connections were patched.
    pub is_cut: bool,
}

/// Returns the paths between the components of a circuit whose ablation changes the full model's quantity by at least
/// `min_change`, up or down.
///
/// # Errors
/// Same as [`run`](super::run).
pub(super) fn paths<B: Backend>(
    bench: &Bench<B>,
    components: &[Component],
    [self_attention, cross_attention]: [&[Vec<HeadMatrices<B>>]; 2],
    (full_values, min_change): (&FullValues, f64),
) -> Result<FoundConnections> {
    let (ends, is_exhaustive) = ends(bench, components);
    let search = PathSearch::new(bench, &ends, is_exhaustive, MIN_ESTIMATE * min_change)?;
    let (mut candidates, possible, is_complete) = search.candidates()?;
    search.select(&mut candidates, MAX_SELECTED);
    let full = full_values.mean();
    let (values, random) = (search.patched(&candidates)?, self_attention[0][0].random_composition());
    let patched = values.iter().flatten().count();
    let matrices = |end: &PathEnd| match end.site {
        Site::Head(layer, head) => Some(&self_attention[layer][head]),
        Site::Cross(layer, head) => Some(&cross_attention[layer][head]),
        _ => None,
    };
    let edge =
        |(PathCandidate { from, to, input, estimate, .. }, values): (&PathCandidate<B>, Option<Vec<f64>>)| {
            let values = values.filter(|values| (mean(values) - full).abs() >= min_change)?;
            let scored = matrices(from).zip(matrices(to)).zip(*input);
            let composition = scored.map(|((from, to), input)| to.composition(from, input));
            let [from, to] = [from.component, to.component];
            Some(Edge {
                from: (from.layer, from.head),
                to: (to.layer, to.head),
                from_cross: from.cross,
                to_cross: to.cross,
                input: *input,
                composition,
                random: composition.map(|_| random),
                estimated: (!is_exhaustive).then_some(*estimate),
                ablated: mean(&values),
                interval: full_values.interval(&values),
            })
        };
    let mut edges: Vec<Edge> = candidates.iter().zip(values).filter_map(edge).collect();
    let change = |edge: &Edge| (edge.ablated - full).abs();
    edges.sort_by(|a, b| change(b).total_cmp(&change(a)));
    let is_cut = !is_complete || patched < candidates.len();
    Ok(FoundConnections { edges, tested: TestedConnections { possible, patched }, is_cut })
}

/// Returns the largest change of the `full` quantity when a single connection between components is ablated: of all, or of
/// the `count` with the largest estimates.
///
/// # Errors
/// Same as [`run`](super::run).
pub(super) fn largest_change<B: Backend>(
    bench: &Bench<B>,
    components: &[Component],
    (full, count): (f64, usize),
) -> Result<RandomEffect> {
    let (ends, is_exhaustive) = ends(bench, components);
    let search = PathSearch::new(bench, &ends, is_exhaustive, 0.0)?;
    let (mut candidates, ..) = search.candidates()?;
    search.select(&mut candidates, count);
    let values = search.patched(&candidates)?;
    let changes = values.iter().flatten().map(|values| (mean(values) - full).abs());
    Ok(RandomEffect { largest: changes.fold(0.0, f64::max), tested: values.iter().flatten().count() })
}

/// Returns the components between which connections are tested, and true if all of these connections are.
fn ends<'a, B: Backend>(bench: &Bench<B>, components: &'a [Component]) -> (Vec<PathEnd<'a>>, bool) {
    let is_exhaustive = components.len() <= MAX_EXHAUSTIVE_COMPONENTS || bench.model.encoder.is_some();
    let mut ends: Vec<PathEnd> = components.iter().map(PathEnd::new).collect();
    if is_exhaustive {
        ends.truncate(MAX_EXHAUSTIVE_COMPONENTS);
    }
    (ends, is_exhaustive)
}

/// The search for connections between components.
struct PathSearch<'a, B: Backend> {
    bench: &'a Bench<'a, B>,
    ends: &'a [PathEnd<'a>],
    /// The gradients that select connections; `None` to select all.
    gradients: Option<Gradients<B>>,
    min_estimate: f64,
}

impl<'a, B: Backend> PathSearch<'a, B> {
    fn new(
        bench: &'a Bench<'a, B>,
        ends: &'a [PathEnd<'a>],
        is_exhaustive: bool,
        min_estimate: f64,
    ) -> Result<Self> {
        let gradients = if is_exhaustive { None } else { Some(reader_gradients(bench)?) };
        Ok(Self { bench, ends, gradients, min_estimate })
    }

    /// Keeps the connections with the largest estimates, if there are estimates.
    fn select(&self, candidates: &mut Vec<PathCandidate<B>>, count: usize) {
        if self.gradients.is_some() {
            candidates.sort_by(|a, b| b.estimate.abs().total_cmp(&a.estimate.abs()));
            candidates.truncate(count);
        }
    }

    /// Returns the connections that may matter, the number of possible connections, and false if the stage ended before all
    /// senders were ablated.
    fn candidates(&self) -> Result<(Vec<PathCandidate<'a, B>>, usize, bool)> {
        let reads = |to: &PathEnd, from: &PathEnd| {
            let [to_layer, from_layer] = [to, from].map(|end| end.site.layer(0));
            // In a parallel block, the feed-forward layer reads the residual stream before the heads.
            let is_parallel =
                matches!(to.site, Site::FeedForward(layer) if self.bench.model.blocks[layer].parallel);
            from.order() < to.order() && !(is_parallel && from_layer == to_layer)
        };
        let readers = |from: &PathEnd| self.ends.iter().copied().filter(|to| reads(to, from)).collect();
        let readers: Vec<Vec<PathEnd>> = self.ends.iter().map(readers).collect();
        let possible = readers.iter().flatten().map(|to| to.inputs().len()).sum();
        let (mut found, mut done) = (Vec::new(), 0);
        let frozen = self.bench.frozen_pass();
        let variants: Vec<_> = self.ends.iter().map(|from| self.bench.ablation(&[from.site])).collect();
        for batch in frozen.batches(&variants) {
            self.bench.watch.report(ExplanationStage::Connections, done, 2 * self.ends.len());
            if self.bench.watch.ends(ExplanationStage::Connections) {
                return Ok((found, possible, false));
            }
            done += batch.numbers.len();
            if batch.numbers.iter().all(|&number| readers[number].is_empty()) {
                continue;
            }
            let pass = frozen.run_batch(&batch, &variants, Recorded::Readers)?;
            let estimates = self.gradients.as_ref().map(|gradients| self.estimates(&pass, gradients));
            for (at, &number) in batch.numbers.iter().enumerate() {
                for &to in &readers[number] {
                    for (input, site) in to.inputs() {
                        let of_variant =
                            |it: &BTreeMap<Site, Vec<f64>>| it.get(&site).map_or(0.0, |it| it[at]);
                        let estimate = estimates.as_ref().map_or(f64::INFINITY, of_variant);
                        if estimate.abs() >= self.min_estimate {
                            let changed = (site, self.of_variant(&pass, site, at));
                            found.push(PathCandidate {
                                from: self.ends[number],
                                to,
                                input,
                                estimate,
                                changed,
                            });
                        }
                    }
                }
            }
            // More are not patched.
            if found.len() > 2 * MAX_SELECTED {
                self.select(&mut found, MAX_SELECTED);
            }
        }
        Ok((found, possible, true))
    }

    /// Returns a copy of the activation at `site` in one variant of a batch.
    fn of_variant(&self, pass: &VariantPass<B>, site: Site, variant: usize) -> Tensor<B, 3> {
        let heads = pass.all_heads(site).expect("readers are recorded");
        let [batch, _] = self.bench.batch.targets.dims();
        let own = heads.clone().narrow(0, variant * batch, batch).narrow(1, site.head(), 1);
        // A view would hold the activations of the whole batch.
        Tensor::from_data(own.squeeze_dim::<3>(1).into_data(), &heads.device())
    }

    /// Returns the estimated change of the quantity in each variant, by the input of a receiver.
    fn estimates(&self, pass: &VariantPass<B>, gradients: &Gradients<B>) -> BTreeMap<Site, Vec<f64>> {
        let mut found = BTreeMap::new();
        for layer in 0..self.bench.model.blocks.len() {
            let sites: [fn(usize, usize) -> Site; 4] =
                [Site::Query, Site::Key, Site::Value, |layer, _| Site::FeedForward(layer)];
            for site in sites {
                let first = site(layer, 0);
                let Some((changed, gradient)) = pass.all_heads(first).zip(gradients.all_heads(first)) else {
                    continue;
                };
                let [batch, heads, time, width] = gradient.dims();
                let variants = changed.dims()[0] / batch;
                let change = changed.clone() - self.bench.full.all_heads(first).repeat_dim(0, variants);
                let products = change * gradient.clone().repeat_dim(0, variants);
                let sums = products.reshape([variants, batch, heads, time * width]).sum_dim(3).sum_dim(1);
                let sums = floats(sums); // [variants, heads]
                for head in 0..heads {
                    let of_head = sums.iter().skip(head).step_by(heads).map(|&sum| f64::from(sum));
                    found.insert(site(layer, head), of_head.collect());
                }
            }
        }
        found
    }

    /// Returns the quantity at each target with each connection ablated; `None` after the stage has ended.
    fn patched(&self, candidates: &[PathCandidate<B>]) -> Result<Vec<Option<Vec<f64>>>> {
        let (base, watch) = (self.bench.full_pass(), self.bench.watch);
        let mut found = Vec::new();
        for part in candidates.chunks(PATCHED_TOGETHER) {
            let variants: Vec<Replacements<B>> = part.iter().map(|it| vec![it.changed.clone()]).collect();
            let first = found.len();
            let values = self.bench.values_of_variants(&base, &variants, |count| {
                // Ablating the senders is the first half of the stage.
                let senders = self.ends.len();
                let done = senders + senders * (first + count) / candidates.len();
                watch.report(ExplanationStage::Connections, done, 2 * senders);
                !watch.ends(ExplanationStage::Connections)
            })?;
            found.extend(values);
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::Sample;
    use crate::analysis::circuit::testing::noisy_model;
    use crate::analysis::circuit::{Question, explainable};
    use crate::data::Role;
    use crate::model::{ModelConfig, Sizes};

    #[test]
    fn estimates_are_changes_of_inputs_times_gradients() {
        let config = ModelConfig { d_model: 20, heads: 5, key_value_heads: 1, ..ModelConfig::default() };
        let model = noisy_model(&config, Sizes { vocab: 13, context: 7, source_context: None }, 0.3);
        let sample = |inputs: [u32; 7]| Sample {
            targets: inputs.iter().map(|token| token / 2).collect(),
            roles: vec![Role::Unknown; 7],
            inputs: inputs.to_vec(),
            source: None,
            documents: None,
        };
        let samples = [[3, 1, 4, 1, 5, 9, 2], [6, 5, 3, 5, 8, 9, 7]].map(sample);
        let (question, device) = (Question::default(), Default::default());
        let bench = Bench::new(explainable(&model).unwrap(), &samples, &question, &device).unwrap();
        let component = |(layer, head): (usize, Option<usize>)| Component {
            layer,
            head,
            cross: false,
            feed_forward: head.is_none(),
            kinds: Vec::new(),
            kind_scores: Vec::new(),
            estimated: None,
            ablated: 0.0,
            interval: None,
            minimality: Default::default(),
            attends: Vec::new(),
        };
        let all = [(0, Some(1)), (0, Some(4)), (0, None), (1, Some(2)), (1, None)].map(component);
        let ends: Vec<PathEnd> = all.iter().map(PathEnd::new).collect();
        let gradients = reader_gradients(&bench).unwrap();
        let search = PathSearch { bench: &bench, ends: &ends, gradients: Some(gradients), min_estimate: 0.0 };
        let (found, possible, is_complete) = search.candidates().unwrap();
        // Two heads into each later component, the feed-forward layer of layer 0 into those of layer 1, and so on.
        assert_eq!((found.len(), possible, is_complete), (2 * (1 + 3 + 1) + (3 + 1) + 1, found.len(), true));
        for PathCandidate { from, estimate, changed: (site, changed), .. } in &found {
            let change = changed.clone() - bench.full.at(*site);
            let gradient = search.gradients.as_ref().unwrap().at(*site).unwrap();
            let expected = f64::from(floats((change * gradient).sum())[0]);
            assert!((estimate - expected).abs() < 1e-5, "{} {site}: {estimate} {expected}", from.site);
            assert_ne!(*estimate, 0.0);
        }
    }
}

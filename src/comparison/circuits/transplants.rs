//! Heads of the reference in the place of the matched heads of the other runs.

use std::path::Path;

use burn::tensor::backend::AutodiffBackend;
use serde::Serialize;

use super::CircuitComparison;
use super::consensus::{ConsensusComponent, MatchedComponent};
use crate::analysis::circuit::{HeadTransplant, affordable_samples, alignment, explainable, transplant};
use crate::backend::{self, Device, Job, choose, compute_as_run};
use crate::comparison::{ComparedRun, Comparison};
use crate::config::Config;
use crate::data::Dataset;
use crate::error::{Error, Result, ensure};
use crate::training::{RunFolder, dataset_of, has_different_data};
use crate::weights::native;

/// A head of the reference in the place of the matched head of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunTransplant {
    /// The name of the run.
    pub run: String,
    /// The losses, on the sequences of the run's validation set that `explain` uses.
    #[serde(flatten)]
    pub transplant: HeadTransplant,
    /// The share of the rise of the loss by the ablation that the head of the reference recovers.
    pub recovered: f64,
    /// The largest share that another head of the same layer of the reference recovers.
    pub recovered_by_others: Option<f64>,
    /// True if the residual streams were aligned by the embeddings; false for runs that started from the same weights.
    pub is_aligned: bool,
}

/// The minimum rise of the loss by the ablation of a head, as a share of the loss, for which a share of it has a meaning.
const MIN_RISE: f64 = 0.01;

/// Puts each self-attention head of the reference's circuit in the place of the matched head of every other run whose
/// circuit has it.
pub(super) fn transplants(found: &CircuitComparison, comparison: &Comparison) -> Result<Vec<RunTransplant>> {
    let run = |name: &str| comparison.runs.iter().find(|run| run.name == name);
    let mut transplants = Vec::new();
    for name in found.runs.iter().filter(|name| **name != found.reference) {
        let (Some(donor), Some(recipient)) = (run(&found.reference), run(name)) else { continue };
        let pairs = pairs(found, name);
        if pairs.is_empty() {
            continue;
        }
        check_same_tokens(donor, recipient)?;
        let is_aligned = !have_same_start(donor, recipient);
        let of_run = |transplant: HeadTransplant| RunTransplant {
            run: name.clone(),
            recovered: transplant.recovered(transplant.transplanted),
            recovered_by_others: transplant.best_other.map(|loss| transplant.recovered(loss)),
            transplant,
            is_aligned,
        };
        let has_effect = |it: &HeadTransplant| it.ablated - it.loss >= MIN_RISE * it.loss;
        let of_pairs = of_pairs([recipient, donor], &pairs, is_aligned)?;
        transplants.extend(of_pairs.into_iter().filter(has_effect).map(of_run));
    }
    Ok(transplants)
}

/// Returns the layer, the head of a run and the head of the reference of each matched pair in both circuits.
fn pairs(found: &CircuitComparison, run: &str) -> Vec<[usize; 3]> {
    let in_circuit = |matched: &[MatchedComponent], name: &str| {
        matched.iter().find(|it| it.run == name && it.effect.is_some()).and_then(|it| it.head)
    };
    let pair = |component: &ConsensusComponent| {
        let [own, reference] = [run, &found.reference].map(|name| in_circuit(&component.matched, name));
        Some([component.node.layer, own?, reference?])
    };
    found.components.iter().filter(|component| !component.node.cross).filter_map(pair).collect()
}

/// Puts the heads of a donor in the place of those of a recipient, on the device that its config names.
fn of_pairs(
    [recipient, donor]: [&ComparedRun; 2],
    pairs: &[[usize; 3]],
    is_aligned: bool,
) -> Result<Vec<HeadTransplant>> {
    let folder = RunFolder::open(&recipient.path)?;
    let config = Config::load_own(&folder.config())?;
    let device = choose(config.training.backend, config.training.device.as_ref())?;
    let dataset = dataset_of(&config, &folder)?;
    ensure(!has_different_data(&folder, &dataset), Error::Input, || {
        format!(
            "the data of the run `{}` has changed, and heads are transplanted only on the original data; restore the \
             file, or omit --transplant",
            recipient.path.display()
        )
    })?;
    let job = Transplanting {
        runs: [&recipient.path, &donor.path],
        config: &config,
        device: &device,
        dataset: &dataset,
        pairs,
        is_aligned,
    };
    backend::run(&device, job)
}

/// Rejects runs whose residual streams cannot be aligned.
fn check_same_tokens(donor: &ComparedRun, recipient: &ComparedRun) -> Result<()> {
    let vocabulary = |run: &ComparedRun| std::fs::read(RunFolder::at(&run.path).vocabulary()).ok();
    let width = |run: &ComparedRun| run.provenance.config.model.d_model;
    let names = format!("`{}` and `{}`", donor.name, recipient.name);
    ensure(vocabulary(donor) == vocabulary(recipient), Error::Input, || {
        format!("the runs {names} have different vocabularies, which --transplant aligns; omit it")
    })?;
    ensure(width(donor) == width(recipient), Error::Input, || {
        format!(
            "the runs {names} differ in model.d_model, so heads cannot be transplanted; omit --transplant"
        )
    })
}

/// Returns true if two runs started from the same weights, so that their residual streams have the same basis.
fn have_same_start(one: &ComparedRun, other: &ComparedRun) -> bool {
    let [one, other] = [one, other].map(|run| &run.provenance);
    let from = one.start.is_some() && one.start == other.start;
    let is_fresh = one.start.is_none() && other.start.is_none();
    let [first, second] = [one, other].map(|run| &run.config);
    let is_same_draw = first.run.seed == second.run.seed
        && first.model == second.model
        && first.data.length == second.data.length;
    from || is_fresh && is_same_draw
}

struct Transplanting<'a> {
    runs: [&'a Path; 2],
    config: &'a Config,
    device: &'a Device,
    dataset: &'a Dataset,
    pairs: &'a [[usize; 3]],
    is_aligned: bool,
}

impl Job for Transplanting<'_> {
    type Output = Vec<HeadTransplant>;

    fn run<B: AutodiffBackend>(self, device: B::Device) -> Result<Self::Output> {
        let on_device = device.clone();
        compute_as_run::<B, _>(&self.config.training, self.device, &device, || {
            let load = |path: &Path| {
                let weights = RunFolder::open(path)?.best_weights()?;
                native::load_model::<B::InnerBackend>(&weights, &on_device)
            };
            let [recipient, donor] = self.runs.map(load);
            let ((recipient, _), (donor, _)) = (recipient?, donor?);
            let models = [explainable(&recipient)?, explainable(&donor)?];
            let (samples, _) = affordable_samples(models[0], &self.dataset.valid, backend::free_memory());
            let rotation = self.is_aligned.then(|| alignment(models[1], models[0]));
            transplant(models, self.pairs, &samples, rotation, &on_device)
        })
    }
}

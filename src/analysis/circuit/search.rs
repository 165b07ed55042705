//! The search for a circuit: components are ablated until ablating any other one changes the quantity too much.

use burn::tensor::backend::Backend;

use super::bench::{Ablated, Bench};
use super::estimates::{estimates, local_estimates};
use super::pass::Site;
use super::redundant::OfKind;
use super::variants::BasePass;
use super::watch::ExplanationStage;
use crate::Result;

/// The maximum number of components that are ablated one by one. With more components, several are ablated together
/// while the loss stays within the tolerance.
pub(super) const MAX_SINGLE_ABLATIONS: usize = 16;

/// The number of components with the largest estimates that are ablated alone before the search, so that these effects are
/// known if the search ends early.
const FIRST_SINGLE_ABLATIONS: usize = 16;

/// The minimum number of components that a step by estimates must ablate, so that further ones follow.
const MIN_PROGRESS: usize = 8;

/// The maximum change of a component that is ranked again before others, as a multiple of the tolerance.
const MAX_NEAR_CHANGE: f64 = 2.0;

/// A circuit.
#[derive(Debug)]
pub(super) struct Pruned {
    /// The components, each with the quantity at each target when it is ablated together with all components outside the
    /// circuit; `None` if the search ended before.
    pub kept: Vec<(Site, Option<Vec<f64>>)>,
    /// The quantity with all components outside the circuit ablated.
    pub value: f64,
    /// The number of smaller sets of components that were all evaluated, none of which is a circuit; `None` after a greedy
    /// search.
    pub smaller_sets: Option<usize>,
}

/// The result of a search.
pub(super) struct Found {
    /// Components of the circuit, each with the quantity when it alone is ablated. The component whose ablation changes the
    /// quantity least comes first. Components may be missing if the search ended early.
    pub alone: Vec<Ablated>,
    /// The number of components that were ablated alone, in the circuit or not.
    pub ablated_alone: usize,
    pub pruned: Pruned,
    /// The preferred components.
    pub of_kind: Vec<OfKind>,
    /// The estimated change when each component alone is ablated; empty for a model with few components.
    pub estimates: Vec<(Site, f64)>,
    /// The stages that ended early.
    pub cut: Vec<ExplanationStage>,
}

/// Orders components such that the estimated changes of all up to any component add up to at most the tolerance, given
/// the change so far, and the smallest come first. Leaves out components that do not fit.
fn in_order(mut estimates: Vec<(Site, f64)>, mut change: f64, tolerance: f64) -> Vec<Site> {
    estimates.sort_by(|a, b| a.1.abs().total_cmp(&b.1.abs()));
    let mut ordered = Vec::new();
    while let Some(at) = estimates.iter().position(|(_, estimate)| (change + estimate).abs() <= tolerance) {
        let (site, estimate) = estimates.remove(at);
        change += estimate;
        ordered.push(site);
    }
    ordered
}

impl<B: Backend> Bench<'_, B> {
    /// Ranks components by the quantity when each is ablated in addition to what `base` ablates. The component whose
    /// ablation changes the full model's quantity least comes first. Components are missing if the stage ends early.
    pub fn rank(
        &self,
        base: &BasePass<B>,
        components: &[Site],
        full: f64,
        (stage, done, all): (ExplanationStage, usize, usize),
    ) -> Result<Vec<Ablated>> {
        let variants: Vec<_> = components.iter().map(|&site| self.ablation(&[site])).collect();
        let values = self.values_of_variants(base, &variants, |count| {
            self.watch.report(stage, done + count, all);
            !self.watch.ends(stage)
        })?;
        let ablated = components.iter().zip(values);
        let mut ranked: Vec<Ablated> =
            ablated.filter_map(|(&site, values)| Some(Ablated { site, values: values? })).collect();
        let change = |it: &Ablated| (it.mean() - full).abs();
        ranked.sort_by(|a, b| change(a).total_cmp(&change(b)));
        Ok(ranked)
    }

    /// Returns the largest change of the `full` quantity when one of up to `count` components is ablated, and the number of
    /// components that were. Of many components, these are the ones with the largest estimates.
    pub fn largest_change(&self, full: f64, count: usize) -> Result<(f64, usize)> {
        let all: Vec<Site> = self.replacements.iter().map(|(site, _)| *site).collect();
        let candidates = match all.len() <= MAX_SINGLE_ABLATIONS || self.model.encoder.is_some() {
            true => all,
            false => {
                let mut estimates = estimates(self)?;
                estimates.sort_by(|a, b| b.1.abs().total_cmp(&a.1.abs()));
                estimates.into_iter().take(count).map(|(site, _)| site).collect()
            }
        };
        let progress = (ExplanationStage::RandomWeights, 0, candidates.len());
        let ranked = self.rank(&self.full_pass(), &candidates, full, progress)?;
        Ok((ranked.last().map_or(0.0, |it| (it.mean() - full).abs()), ranked.len()))
    }

    /// Searches for a circuit. Of many components, most are ruled out by gradients before any is ablated together with
    /// them. The `preferred` components, which are of one kind, of which the strongest comes first, stay if they
    /// contribute while the others, or the stronger half of the others, are ablated.
    pub fn search(&self, full: f64, tolerance: f64, preferred: &[Site]) -> Result<Found> {
        let all: Vec<Site> = self.replacements.iter().map(|(site, _)| *site).collect();
        let (base, stage) = (self.full_pass(), ExplanationStage::Components);
        if all.len() <= MAX_SINGLE_ABLATIONS || self.model.encoder.is_some() {
            let ranked = self.rank(&base, &all, full, (stage, 0, all.len()))?;
            if ranked.len() < all.len() {
                let kept = all.into_iter().map(|site| (site, None)).collect();
                let pruned = Pruned { kept, value: full, smaller_sets: None };
                return Ok(Found {
                    ablated_alone: ranked.len(),
                    alone: ranked,
                    pruned,
                    of_kind: Vec::new(),
                    estimates: Vec::new(),
                    cut: vec![stage],
                });
            }
            let (pruned, is_complete) = self.prune(ranked.clone(), Vec::new(), (full, tolerance))?;
            let alone = self.ablated_alone(&pruned, ranked, full)?;
            let cut = if is_complete { Vec::new() } else { vec![stage] };
            let (ablated_alone, of_kind) = (all.len(), Vec::new());
            return Ok(Found { alone, ablated_alone, pruned, of_kind, estimates: Vec::new(), cut });
        }
        let mut estimates = estimates(self)?;
        estimates.sort_by(|a, b| b.1.abs().total_cmp(&a.1.abs()));
        let first: Vec<Site> = estimates.iter().take(FIRST_SINGLE_ABLATIONS).map(|(site, _)| *site).collect();
        let alone = self.rank(&base, &first, full, (stage, 0, all.len()))?;
        let ablated = self.prune_by_estimates(estimates.clone(), (full, tolerance), preferred)?;
        let (pruned, of_kind, is_complete) = self.prune_but(ablated, (full, tolerance), preferred)?;
        let mut cut: Vec<ExplanationStage> = (!is_complete).then_some(stage).into_iter().collect();
        let known: Vec<Site> = alone.iter().map(|it| it.site).collect();
        let alone = self.ablated_alone(&pruned, alone, full)?;
        let ablated_alone = known.len() + alone.iter().filter(|it| !known.contains(&it.site)).count();
        cut.extend((alone.len() < pruned.kept.len()).then_some(ExplanationStage::SingleAblations));
        Ok(Found { alone, ablated_alone, pruned, of_kind, estimates, cut })
    }

    /// Prunes the components that are not `ablated`, except those of the `preferred` ones that contribute. Returns false if
    /// the search ended before.
    fn prune_but(
        &self,
        ablated: Vec<Site>,
        (full, tolerance): (f64, f64),
        preferred: &[Site],
    ) -> Result<(Pruned, Vec<OfKind>, bool)> {
        let (pruned, is_complete) = self.prune_remaining(ablated, (full, tolerance), preferred)?;
        if !is_complete || preferred.is_empty() {
            return Ok((pruned, Vec::new(), is_complete));
        }
        let ablated: Vec<Site> = self.except(&pruned.kept);
        let Some(of_kind) = self.contributing(preferred, &ablated, tolerance)? else {
            return Ok((pruned, Vec::new(), false));
        };
        let spared: Vec<Site> = of_kind.iter().map(|(site, _)| *site).collect();
        let (mut pruned, is_complete) = match spared.len() == preferred.len() {
            true => (pruned, true),
            false => self.prune_remaining(ablated, (full, tolerance), &spared)?,
        };
        let ablated = self.except(&pruned.kept);
        let base = self.full_pass().with(&self.ablation(&ablated))?;
        let progress = (ExplanationStage::Components, ablated.len(), self.replacements.len());
        let ranked = self.rank(&base, &spared, full, progress)?;
        let is_complete = is_complete && ranked.len() == spared.len();
        for (site, without) in pruned.kept.iter_mut().filter(|(site, _)| spared.contains(site)) {
            *without = ranked.iter().find(|it| it.site == *site).map(|it| it.values.clone());
        }
        Ok((pruned, of_kind, is_complete))
    }

    /// Returns the components outside a circuit.
    pub fn except(&self, kept: &[(Site, Option<Vec<f64>>)]) -> Vec<Site> {
        let all = self.replacements.iter().map(|(site, _)| *site);
        all.filter(|site| kept.iter().all(|(kept, _)| kept != site)).collect()
    }

    /// Prunes the components that are neither `ablated` nor `spared`. Returns false if the search ended before.
    fn prune_remaining(
        &self,
        ablated: Vec<Site>,
        (full, tolerance): (f64, f64),
        spared: &[Site],
    ) -> Result<(Pruned, bool)> {
        let all = self.replacements.iter().map(|(site, _)| *site);
        let remaining = all.filter(|site| !ablated.contains(site) && !spared.contains(site));
        let remaining: Vec<Site> = remaining.collect();
        let progress = (ExplanationStage::Components, ablated.len(), self.replacements.len());
        let base = self.full_pass().with(&self.ablation(&ablated))?;
        let ranked = self.rank(&base, &remaining, full, progress)?;
        let (mut pruned, is_complete) = match ranked.len() == remaining.len() {
            true => self.prune(ranked, ablated, (full, tolerance))?,
            false => (self.pruned(&remaining, &ranked, self.ablated(&ablated)?), false),
        };
        pruned.kept.extend(spared.iter().map(|&site| (site, None)));
        Ok((pruned, is_complete))
    }

    /// Ablates each component of a circuit alone, except those that are `known`. The component whose ablation changes the
    /// full model's quantity least comes first. Components are missing if the stage ends early.
    pub fn ablated_alone(&self, pruned: &Pruned, known: Vec<Ablated>, full: f64) -> Result<Vec<Ablated>> {
        let sites = pruned.kept.iter().map(|(site, _)| *site);
        let is_unknown = |site: &Site| known.iter().all(|it| it.site != *site);
        let unknown: Vec<Site> = sites.clone().filter(is_unknown).collect();
        let progress = (ExplanationStage::SingleAblations, sites.len() - unknown.len(), sites.len());
        let mut alone = self.rank(&self.full_pass(), &unknown, full, progress)?;
        alone.extend(known.into_iter().filter(|it| sites.clone().any(|site| site == it.site)));
        let change = |it: &Ablated| (it.mean() - full).abs();
        alone.sort_by(|a, b| change(a).total_cmp(&change(b)));
        Ok(alone)
    }

    /// Returns the circuit of the `kept` components, of which some are `ranked`.
    pub fn pruned(&self, kept: &[Site], ranked: &[Ablated], value: f64) -> Pruned {
        let without = |site: &Site| ranked.iter().find(|it| it.site == *site).map(|it| it.values.clone());
        let kept = kept.iter().map(|site| (*site, without(site))).collect();
        Pruned { kept, value, smaller_sets: None }
    }

    /// Returns components, none of them `spared`, whose ablation together keeps the quantity within the tolerance of the full
    /// model's. Repeatedly ablates as many of the components with the smallest estimates as possible, at first those of
    /// the full model.
    fn prune_by_estimates(
        &self,
        mut estimates: Vec<(Site, f64)>,
        (full, tolerance): (f64, f64),
        spared: &[Site],
    ) -> Result<Vec<Site>> {
        let (all, mut ablated, mut value) = (estimates.len(), Vec::<Site>::new(), full);
        while !self.watch.ends(ExplanationStage::Components) {
            let before = ablated.len();
            estimates.retain(|(site, _)| !spared.contains(site));
            (ablated, value) = self.ablate_by((ablated, value), estimates, (full, tolerance))?;
            self.watch.report(ExplanationStage::Components, ablated.len(), all);
            if ablated.len() < before + MIN_PROGRESS || all - ablated.len() <= MAX_SINGLE_ABLATIONS {
                break;
            }
            estimates = local_estimates(self, &ablated)?;
        }
        Ok(ablated)
    }

    /// Ablates as many of the `ranked` components as possible, in addition to the `ablated` ones. Returns all ablated
    /// components, and the quantity.
    fn ablate_ranked(
        &self,
        ranked: &[Ablated],
        (ablated, value): (Vec<Site>, f64),
        (full, tolerance): (f64, f64),
    ) -> Result<(Vec<Site>, f64)> {
        let near = ranked.iter().filter(|it| (it.mean() - full).abs() <= tolerance);
        let changes = near.map(|it| (it.site, it.mean() - value)).collect();
        self.ablate_by((ablated, value), changes, (full, tolerance))
    }

    /// Ablates as many components as possible, in addition to the `ablated` ones, in an order in which their estimated
    /// `changes` add up to at most the tolerance. Returns all ablated components, and the quantity.
    fn ablate_by(
        &self,
        (ablated, value): (Vec<Site>, f64),
        changes: Vec<(Site, f64)>,
        (full, tolerance): (f64, f64),
    ) -> Result<(Vec<Site>, f64)> {
        let mut ordered = in_order(changes, value - full, tolerance);
        if ordered.len() > 1 {
            // The changes often add up, so that all can be ablated.
            let all = [&ablated[..], &ordered].concat();
            let value_of_all = self.ablated(&all)?;
            if (value_of_all - full).abs() <= tolerance {
                return Ok((all, value_of_all));
            }
            ordered.pop();
        }
        self.ablate_most((ablated, value), ordered, (full, tolerance))
    }

    /// Ablates as many of the `ordered` components as possible, from the first, in addition to the `ablated` ones. Returns all
    /// ablated components, and the quantity.
    fn ablate_most(
        &self,
        (ablated, mut value): (Vec<Site>, f64),
        ordered: Vec<Site>,
        (full, tolerance): (f64, f64),
    ) -> Result<(Vec<Site>, f64)> {
        // The largest number of candidates that can be ablated, between those that can and those that cannot.
        let (mut possible, mut candidates) = (ablated.len(), [ablated, ordered].concat());
        let mut impossible = candidates.len() + 1;
        while impossible - possible > 1 && !self.watch.ends(ExplanationStage::Components) {
            let count = usize::midpoint(possible, impossible);
            let value_of_count = self.ablated(&candidates[..count])?;
            match (value_of_count - full).abs() <= tolerance {
                true => (possible, value) = (count, value_of_count),
                false => impossible = count,
            }
        }
        candidates.truncate(possible);
        Ok((candidates, value))
    }

    /// Of many `ranked` components, ablates more of those that changed the quantity least, in addition to the `ablated`
    /// ones, until the next of them cannot be. Repeatedly ranks a few of them again. Returns all ablated components, and the
    /// quantity.
    fn ablate_nearest(
        &self,
        ranked: &[Ablated],
        (mut ablated, mut value): (Vec<Site>, f64),
        (full, tolerance): (f64, f64),
    ) -> Result<(Vec<Site>, f64)> {
        let all = self.replacements.len();
        let mut nearest: Vec<Site> = ranked.iter().map(|it| it.site).collect();
        nearest.retain(|site| !ablated.contains(site));
        while nearest.len() > MAX_SINGLE_ABLATIONS && !self.watch.ends(ExplanationStage::Components) {
            let base = self.full_pass().with(&self.ablation(&ablated))?;
            let progress = (ExplanationStage::Components, ablated.len(), all);
            let again = self.rank(&base, &nearest[..MAX_SINGLE_ABLATIONS], full, progress)?;
            let before = ablated.len();
            (ablated, value) = self.ablate_ranked(&again, (ablated, value), (full, tolerance))?;
            if ablated.len() == before {
                break;
            }
            // Those that change the quantity too much come last.
            let later = nearest.split_off(MAX_SINGLE_ABLATIONS);
            let is_near = |it: &Ablated| (it.mean() - full).abs() <= MAX_NEAR_CHANGE * tolerance;
            let (near, far): (Vec<_>, Vec<_>) = again.iter().partition(|it| is_near(it));
            let [near, far] = [near, far].map(|part| part.into_iter().map(|it| it.site).collect::<Vec<_>>());
            nearest = [near, later, far].concat();
            nearest.retain(|site| !ablated.contains(site));
        }
        Ok((ablated, value))
    }

    /// Prunes components, as ranked by [`rank`](Self::rank) in addition to the `ablated` ones. Stops when ablating any
    /// further component changes the full model's quantity by more than `tolerance`, up or down. Returns false if the search
    /// ended before.
    ///
    /// A better quantity is no reason to ablate a component: a circuit without a harmful component differs from what the
    /// model computes.
    fn prune(
        &self,
        mut ranked: Vec<Ablated>,
        mut ablated: Vec<Site>,
        (full, tolerance): (f64, f64),
    ) -> Result<(Pruned, bool)> {
        let all = ranked.len() + ablated.len();
        let mut value = if ablated.is_empty() { full } else { self.ablated(&ablated)? };
        loop {
            let is_possible = ranked.first().is_some_and(|it| (it.mean() - full).abs() <= tolerance);
            let before = ablated.len();
            let candidates = if ranked.len() <= MAX_SINGLE_ABLATIONS { 1 } else { ranked.len() };
            let candidates = &ranked[..candidates.min(ranked.len())];
            (ablated, value) = self.ablate_ranked(candidates, (ablated, value), (full, tolerance))?;
            let kept: Vec<Site> =
                ranked.iter().map(|it| it.site).filter(|site| !ablated.contains(site)).collect();
            if ablated.len() == before || kept.is_empty() {
                let is_complete = !is_possible || kept.is_empty();
                return Ok((self.pruned(&kept, &ranked, value), is_complete));
            }
            (ablated, value) = self.ablate_nearest(&ranked, (ablated, value), (full, tolerance))?;
            let kept: Vec<Site> =
                ranked.iter().map(|it| it.site).filter(|site| !ablated.contains(site)).collect();
            let base = self.full_pass().with(&self.ablation(&ablated))?;
            ranked = self.rank(&base, &kept, full, (ExplanationStage::Components, ablated.len(), all))?;
            if ranked.len() < kept.len() {
                return Ok((self.pruned(&kept, &ranked, value), false));
            }
        }
    }
}

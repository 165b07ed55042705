//! The search for a circuit: components are ablated until ablating any other one changes the quantity too much.

use burn::tensor::backend::Backend;

use super::bench::{Ablated, Bench};
use super::estimates::estimates;
use super::pass::Site;
use crate::error::{Error, Result, ensure};

/// The maximum number of components that are ablated one by one. With more components, several are ablated together
/// while the loss stays within the tolerance.
const MAX_SINGLE_ABLATIONS: usize = 16;

/// A circuit.
#[derive(Debug)]
pub(super) struct Pruned {
    /// The components, each with the quantity when it is ablated together with all components outside the circuit.
    pub kept: Vec<Ablated>,
    /// The quantity with all components outside the circuit ablated.
    pub value: f64,
    /// The number of smaller sets of components that were all evaluated, none of which is a circuit; `None` after a greedy
    /// search.
    pub smaller_sets: Option<usize>,
}

impl<B: Backend> Bench<'_, B> {
    /// Ranks components by the quantity when each is ablated in addition to all `ablated` ones. The component whose
    /// ablation changes the full model's quantity least comes first.
    fn rank(&self, components: &[Site], ablated: &[Site], full: f64) -> Result<Vec<Ablated>> {
        let ablate = |&site: &Site| {
            let values = self.values_with(&self.ablations(&[ablated, &[site]].concat()))?;
            Ok(Ablated { site, values })
        };
        let mut ranked = components.iter().map(ablate).collect::<Result<Vec<_>>>()?;
        let change = |it: &Ablated| (it.mean() - full).abs();
        ranked.sort_by(|a, b| change(a).total_cmp(&change(b)));
        Ok(ranked)
    }

    /// Returns the largest change of the `full` quantity when a single component is ablated. Of many components, the one with
    /// the largest estimate is ablated.
    pub fn largest_change(&self, full: f64) -> Result<f64> {
        let all: Vec<Site> = self.replacements.iter().map(|(site, _)| *site).collect();
        let candidates = match all.len() <= MAX_SINGLE_ABLATIONS {
            true => all,
            false => {
                let estimates = estimates(self, &[])?.into_iter();
                let largest = estimates.max_by(|a, b| a.1.abs().total_cmp(&b.1.abs()));
                largest.into_iter().map(|(site, _)| site).collect()
            }
        };
        let ranked = self.rank(&candidates, &[], full)?;
        Ok(ranked.last().map_or(0.0, |it| (it.mean() - full).abs()))
    }

    /// Searches for a circuit. Returns at least its components, each with the quantity when it alone is ablated, in the
    /// order of [`rank`](Self::rank); and the circuit.
    ///
    /// Of many components, most are ruled out by gradients before any is ablated alone.
    pub fn search(&self, full: f64, tolerance: f64) -> Result<(Vec<Ablated>, Pruned)> {
        let all: Vec<Site> = self.replacements.iter().map(|(site, _)| *site).collect();
        if all.len() <= MAX_SINGLE_ABLATIONS || self.model.encoder.is_some() {
            let ranked = self.rank(&all, &[], full)?;
            let pruned = self.prune(ranked.clone(), Vec::new(), (full, tolerance))?;
            return Ok((ranked, pruned));
        }
        let ablated = self.prune_by_estimates(all.len(), (full, tolerance))?;
        let remaining: Vec<Site> = all.into_iter().filter(|site| !ablated.contains(site)).collect();
        let ranked = self.rank(&remaining, &ablated, full)?;
        let pruned = self.prune(ranked, ablated, (full, tolerance))?;
        let kept: Vec<Site> = pruned.kept.iter().map(|it| it.site).collect();
        Ok((self.rank(&kept, &[], full)?, pruned))
    }

    /// Returns the smallest circuit: evaluates all sets of components that are smaller than the `found` circuit, in the order
    /// of their size, until one of a size stays within the tolerance. Of several, the closest to the full model counts.
    ///
    /// # Errors
    /// If the model has more than [`MAX_SINGLE_ABLATIONS`] components.
    pub fn certify(&self, found: Pruned, full: f64, tolerance: f64) -> Result<Pruned> {
        let all: Vec<Site> = self.replacements.iter().map(|(site, _)| *site).collect();
        ensure(all.len() <= MAX_SINGLE_ABLATIONS, Error::Input, || {
            format!(
                "the model has {} components, and all smaller circuits can be evaluated only for up to \
                 {MAX_SINGLE_ABLATIONS}; search without this proof",
                all.len()
            )
        })?;
        let members = |set: u32| {
            all.iter().enumerate().filter(move |(at, _)| set >> at & 1 == 1).map(|(_, site)| *site)
        };
        let mut evaluated = 0;
        for size in 0..found.kept.len() as u32 {
            let mut closest: Option<(f64, f64, Vec<Site>)> = None;
            let sets: Vec<u32> = (0..1 << all.len()).filter(|set: &u32| set.count_ones() == size).collect();
            for set in &sets {
                let ablated: Vec<Site> = members(!set & ((1 << all.len()) - 1)).collect();
                let value = self.ablated(&ablated)?;
                let distance = (value - full).abs();
                if distance <= tolerance && closest.as_ref().is_none_or(|(nearest, ..)| distance < *nearest) {
                    closest = Some((distance, value, ablated));
                }
            }
            if let Some((_, value, ablated)) = closest {
                let kept: Vec<Site> = all.iter().copied().filter(|site| !ablated.contains(site)).collect();
                let kept = self.rank(&kept, &ablated, full)?;
                return Ok(Pruned { kept, value, smaller_sets: Some(evaluated) });
            }
            evaluated += sets.len();
        }
        Ok(Pruned { smaller_sets: Some(evaluated), ..found })
    }

    /// Returns components whose ablation together keeps the quantity within the tolerance of the full model's. Repeatedly
    /// ablates as many of the components with the smallest estimates as possible.
    fn prune_by_estimates(&self, all: usize, (full, tolerance): (f64, f64)) -> Result<Vec<Site>> {
        let mut ablated: Vec<Site> = Vec::new();
        while all - ablated.len() > MAX_SINGLE_ABLATIONS {
            let mut estimates = estimates(self, &ablated)?;
            estimates.sort_by(|a, b| a.1.abs().total_cmp(&b.1.abs()));
            let candidates: Vec<Site> =
                ablated.iter().copied().chain(estimates.into_iter().map(|(site, _)| site)).collect();
            // The largest number of candidates that can be ablated, between those that can and those that cannot.
            let (mut possible, mut impossible) = (ablated.len(), all + 1);
            while impossible - possible > 1 {
                let count = usize::midpoint(possible, impossible);
                match (self.ablated(&candidates[..count])? - full).abs() <= tolerance {
                    true => possible = count,
                    false => impossible = count,
                }
            }
            if possible == ablated.len() {
                break;
            }
            ablated = candidates[..possible].to_vec();
        }
        Ok(ablated)
    }

    /// Prunes components, as ranked by [`rank`](Self::rank) in addition to the `ablated` ones. Stops when ablating any
    /// further component changes the full model's quantity by more than `tolerance`, up or down.
    ///
    /// A better quantity is no reason to ablate a component: a circuit without a harmful component differs from what the
    /// model computes.
    fn prune(
        &self,
        mut ranked: Vec<Ablated>,
        mut ablated: Vec<Site>,
        (full, tolerance): (f64, f64),
    ) -> Result<Pruned> {
        let mut value = if ablated.is_empty() { full } else { self.ablated(&ablated)? };
        let is_near = |value: f64| (value - full).abs() <= tolerance;
        loop {
            let mut count = ranked.iter().take_while(|it| is_near(it.mean())).count();
            if ranked.len() <= MAX_SINGLE_ABLATIONS {
                count = count.min(1);
            }
            while count > 0 {
                let sites = ranked[..count].iter().map(|it| it.site);
                let candidates: Vec<Site> = ablated.iter().copied().chain(sites).collect();
                let ablated_value = self.ablated(&candidates)?;
                if is_near(ablated_value) {
                    (ablated, value) = (candidates, ablated_value);
                    break;
                }
                count /= 2;
            }
            if count == 0 || count == ranked.len() {
                return Ok(Pruned { kept: ranked.split_off(count), value, smaller_sets: None });
            }
            let kept: Vec<Site> = ranked[count..].iter().map(|it| it.site).collect();
            ranked = self.rank(&kept, &ablated, full)?;
        }
    }
}

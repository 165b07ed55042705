//! The proof that a circuit is the smallest one.

use burn::tensor::backend::Backend;

use super::bench::{Bench, components, mean};
use super::pass::Site;
use super::search::{MAX_SINGLE_ABLATIONS, Pruned};
use super::watch::ExplanationStage;
use crate::error::{Error, Result, ensure};
use crate::model::Decoder;

/// Checks that all smaller circuits of a model can be evaluated.
///
/// # Errors
/// If the model has more than [`MAX_SINGLE_ABLATIONS`] components.
pub(super) fn check_certifiable<B: Backend>(model: &Decoder<B>) -> Result<()> {
    let count = components(model).count();
    ensure(count <= MAX_SINGLE_ABLATIONS, Error::Input, || {
        format!(
            "the model has {count} components, and all smaller circuits can be evaluated only for up to \
             {MAX_SINGLE_ABLATIONS}; search without this proof"
        )
    })
}

impl<B: Backend> Bench<'_, B> {
    /// Returns the smallest circuit: evaluates all sets of components that are smaller than the `found` circuit, in the order
    /// of their size, until one of a size stays within the tolerance. Of several, the closest to the full model counts.
    ///
    /// # Errors
    /// Same as [`run`](super::run). The model passes [`check_certifiable`].
    pub fn certify(&self, found: Pruned, full: f64, tolerance: f64) -> Result<Pruned> {
        let all: Vec<Site> = self.replacements.iter().map(|(site, _)| *site).collect();
        let members = |set: u32| {
            all.iter().enumerate().filter(move |(at, _)| set >> at & 1 == 1).map(|(_, site)| *site)
        };
        let (mut evaluated, base) = (0, self.full_pass());
        for size in 0..found.kept.len() as u32 {
            let sets: Vec<u32> = (0..1 << all.len()).filter(|set: &u32| set.count_ones() == size).collect();
            let ablated = |set: &u32| members(!set & ((1 << all.len()) - 1)).collect::<Vec<_>>();
            let variants: Vec<_> = sets.iter().map(|set| self.ablation(&ablated(set))).collect();
            let values = self.values_of_variants(&base, &variants, |count| {
                self.watch.report(ExplanationStage::Proof, evaluated + count, 1 << all.len());
                !self.watch.ends(ExplanationStage::Proof)
            })?;
            let values: Vec<f64> = values.into_iter().flatten().map(|values| mean(&values)).collect();
            if values.len() < sets.len() {
                return Ok(found);
            }
            let near = sets.iter().zip(values).filter(|(_, value)| (value - full).abs() <= tolerance);
            let closest = near.min_by(|a, b| (a.1 - full).abs().total_cmp(&(b.1 - full).abs()));
            if let Some((set, value)) = closest {
                let kept: Vec<Site> = members(*set).collect();
                let progress = (ExplanationStage::Proof, evaluated, 1 << all.len());
                let base = base.with(&self.ablation(&ablated(set)))?;
                let ranked = self.rank(&base, &kept, full, progress)?;
                let pruned = self.pruned(&kept, &ranked, value);
                return Ok(Pruned { smaller_sets: Some(evaluated), ..pruned });
            }
            evaluated += sets.len();
        }
        Ok(Pruned { smaller_sets: Some(evaluated), ..found })
    }
}

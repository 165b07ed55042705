//! Heads that replace each other: ablating one changes little, because the others do the same.

use burn::tensor::backend::Backend;

use super::bench::{Bench, mean};
use super::gain::TOLERANCE;
use super::pass::Site;
use super::watch::ExplanationStage;
use crate::Result;

/// The minimum share of the gain that a head contributes while the others of its kind, or the stronger half of them, are
/// ablated. Wang et al. (2022, arXiv 2211.00593, section 4.2) require such an effect for some subset of each component.
const MIN_SHARE: f64 = 0.01;

/// A head, with the quantity when all heads of its kind are ablated, and when all but this one are.
pub(super) type OfKind = (Site, [f64; 2]);

impl<B: Backend> Bench<'_, B> {
    /// Returns the `heads` of a kind, of which the strongest comes first, that contribute while the others or the
    /// stronger half of the others are ablated, all in addition to the `ablated` components. `None` if the search ended
    /// before.
    pub fn contributing(
        &self,
        heads: &[Site],
        ablated: &[Site],
        tolerance: f64,
    ) -> Result<Option<Vec<OfKind>>> {
        let base = self.full_pass().with(&self.ablation(ablated))?;
        let others = |head: &Site| heads.iter().copied().filter(|it| it != head).collect::<Vec<_>>();
        let stronger = |head| others(head).into_iter().take(heads.len() / 2).collect::<Vec<_>>();
        let and_itself = |head| [stronger(head), vec![*head]].concat();
        let sets_of = |head| [others(head), stronger(head), and_itself(head)];
        let sets = std::iter::once(heads.to_vec()).chain(heads.iter().flat_map(sets_of));
        let variants: Vec<_> = sets.map(|set| self.ablation(&set)).collect();
        let stage = ExplanationStage::Components;
        let values = self.values_of_variants(&base, &variants, |_| !self.watch.ends(stage))?;
        let Some(values) = values.into_iter().collect::<Option<Vec<_>>>() else { return Ok(None) };
        let means: Vec<f64> = values.iter().map(|values| mean(values)).collect();
        let (none, of_heads) = means.split_first().expect("the first set");
        let min_change = MIN_SHARE / TOLERANCE * tolerance;
        let found =
            heads.iter().zip(of_heads.as_chunks().0).filter(|(_, [with, with_half, without_half])| {
                (with - none).abs() >= min_change || (without_half - with_half).abs() >= min_change
            });
        Ok(Some(found.map(|(&head, [with, ..])| (head, [*none, *with])).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::Sample;
    use crate::analysis::circuit::testing::noisy_model;
    use crate::analysis::circuit::{Question, explainable};
    use crate::model::{ModelConfig, Sizes};

    #[test]
    fn preferred_heads_stay_if_they_contribute() {
        let config = ModelConfig { d_model: 20, heads: 5, layers: 3, ..ModelConfig::default() };
        let sizes = Sizes { vocab: 11, context: 8, source_context: None };
        let model = noisy_model(&config, sizes, 0.2);
        let samples = [Sample::of_inputs(vec![3, 1, 4, 1, 5, 9, 2, 6])];
        let (model, question) = (explainable(&model).unwrap(), Question::default());
        let bench = Bench::new(model, &samples, &question, &Default::default()).unwrap();
        let heads = [Site::Head(0, 0), Site::Head(1, 3), Site::Head(2, 1)];
        let outside = [Site::FeedForward(0), Site::Head(1, 0)];

        let found = bench.contributing(&heads, &outside, 1e-9).unwrap().unwrap();
        assert_eq!(found.len(), 3);
        let mut by_the_half = 0;
        for (head, [none, with]) in found {
            let others: Vec<Site> = heads.into_iter().filter(|it| *it != head).collect();
            let ablated = |set: &[Site]| bench.ablated(&[&outside[..], set].concat()).unwrap();
            assert!((none - ablated(&heads)).abs() < 1e-5 && (with - ablated(&others)).abs() < 1e-5);
            // Of two others, the first one is the stronger half.
            let half = others[0];
            let [alone, among] = [with - none, ablated(&[half]) - ablated(&[half, head])].map(f64::abs);
            by_the_half += usize::from(among > 1.1 * alone);
            let stays_within = |change: f64| {
                let found = bench.contributing(&heads, &outside, change * TOLERANCE / MIN_SHARE).unwrap();
                found.unwrap().iter().any(|(found, _)| *found == head)
            };
            assert!(stays_within(0.99 * alone.max(among)) && !stays_within(1.01 * alone.max(among)));
        }
        assert_eq!(by_the_half, 1);
        assert_eq!(bench.contributing(&heads, &outside, 1e9).unwrap().unwrap(), []);

        let heads = [Site::Head(0, 1), Site::Head(1, 4), Site::Head(2, 3)];
        // Within this tolerance, the search without preferences keeps none of them.
        let full = bench.ablated(&[]).unwrap();
        let kept = |preferred: &[Site]| {
            let found = bench.search(full, 0.1, preferred).unwrap();
            let is_preferred = |(site, _): &(Site, Option<Vec<f64>>)| heads.contains(site);
            (found.pruned.kept.into_iter().filter(is_preferred).collect::<Vec<_>>(), found.of_kind)
        };
        assert_eq!(kept(&[]).0, []);
        let (kept, of_kind) = kept(&heads);
        assert!(matches!(kept[..], [(Site::Head(1, 4), Some(_))]), "{kept:?}");
        assert!(matches!(of_kind[..], [(Site::Head(1, 4), _)]), "{of_kind:?}");
    }
}

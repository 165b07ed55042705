//! The effect of a component by its path to the output alone: its part of the last residual stream is replaced, and all other
//! components keep their outputs (path patching to the logits; Wang et al., 2022, section 3.1).

use burn::tensor::backend::Backend;

use super::bench::{Bench, mean};
use super::chance::RandomEffect;
use super::explanation::{Component, DirectEffect};
use super::full_values::FullValues;
use super::pass::Site;
use super::stream_parts::StreamParts;

impl<B: Backend> Bench<'_, B> {
    /// Returns the effects of the components of a circuit by their paths to the output alone.
    pub fn direct_effects(&self, components: &[Component], full: &FullValues) -> Vec<DirectEffect> {
        let parts = StreamParts::new(self.model, &self.full);
        let effect = |it: &Component| {
            let values = self.without_direct_path(it.site(), &parts);
            DirectEffect {
                layer: it.layer,
                head: it.head,
                cross: it.cross,
                ablated: mean(&values),
                interval: full.interval(&values),
            }
        };
        components.iter().map(effect).collect()
    }

    /// Returns the largest change of the quantity from `full`, up or down, when the path of a single component to the output is
    /// ablated.
    pub fn largest_direct_change(&self, full: f64) -> RandomEffect {
        let parts = StreamParts::new(self.model, &self.full);
        let change = |(site, _): &(Site, _)| (mean(&self.without_direct_path(*site, &parts)) - full).abs();
        let largest = self.replacements.iter().map(change).fold(0.0, f64::max);
        RandomEffect { largest, tested: self.replacements.len() }
    }

    /// Returns the quantity at each target that counts when only the path of a component to the output is ablated.
    fn without_direct_path(&self, site: Site, parts: &StreamParts<B>) -> Vec<f64> {
        let change = self.replacement(site) - self.full.at(site);
        let stream = self.full.at(Site::Logits) + parts.normed(change, site);
        self.values_after(stream, 0).concat()
    }
}

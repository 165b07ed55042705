//! Activation patching: at some positions, activations take their values from another pass (Meng et al., 2022, arXiv
//! 2202.05262).

use std::collections::BTreeMap;

use burn::tensor::{Tensor, TensorData, backend::Backend};

use super::{AttentionPoint, HookPoint, HookSite, Hooks, ReplacedOutput};

/// Recorded activations that replace those at some positions of a sequence. The default patch replaces nothing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Patch {
    sites: BTreeMap<HookSite, PatchedSite>,
}

/// The replacement at one site.
#[derive(Debug, Clone, PartialEq)]
struct PatchedSite {
    /// The recorded activation, `[heads, time, columns]`.
    values: TensorData,
    /// Each replaced position, with the recorded position whose value it takes.
    positions: Vec<[usize; 2]>,
}

impl Patch {
    /// Replaces the activation at a site of a decoder. Each pair in `positions` is a position of the patched sequence and
    /// the position in `values` whose row it takes. Scores and attention weights have a column for each key, so both
    /// positions must be equal; only the columns of visible keys are replaced.
    ///
    /// # Shapes
    /// `values` is the activation of one sequence: `[time, width]`, or `[heads, time, columns]`.
    pub fn insert(&mut self, site: HookSite, mut values: TensorData, positions: Vec<[usize; 2]>) {
        if let [time, width] = values.shape[..] {
            values.shape = vec![1, time, width].into();
        }
        self.sites.insert(site, PatchedSite { values, positions });
    }

    /// Returns true if any of these sites is replaced.
    pub fn replaces(&self, is_site: impl Fn(&HookSite) -> bool) -> bool {
        self.sites.keys().any(is_site)
    }

    /// Returns hooks for a pass whose first token, and first key, is at position `start` of the patched sequence. The
    /// `inner` hooks get the replaced activations.
    pub fn hooks<'a, B: Backend>(&'a self, start: usize, inner: &'a mut dyn Hooks<B>) -> PatchedHooks<'a, B> {
        PatchedHooks { patch: self, start, inner }
    }
}

/// Hooks that apply a [`Patch`] before other hooks.
pub struct PatchedHooks<'a, B: Backend> {
    patch: &'a Patch,
    start: usize,
    inner: &'a mut dyn Hooks<B>,
}

impl<B: Backend> PatchedHooks<'_, B> {
    /// Replaces the patched positions of an activation, `[batch, heads, time, columns]`.
    fn replaced(&self, site: HookSite, mut activation: Tensor<B, 4>) -> Tensor<B, 4> {
        use AttentionPoint::{Parts, Pattern, Scores};
        let Some(PatchedSite { values, positions }) = self.patch.sites.get(&site) else { return activation };
        let [batch, heads, time, width] = activation.dims();
        let values = Tensor::<B, 3>::from_data(values.clone(), &activation.device());
        for &[position, source] in positions {
            let Some(row) = position.checked_sub(self.start).filter(|&row| row < time) else { continue };
            let [columns, source_columns] = match site.point {
                HookPoint::SelfAttention(Scores | Parts | Pattern) => [0..row + 1, self.start..position + 1],
                _ => [0..width, 0..width],
            };
            let new = values.clone().slice([0..heads, source..source + 1, source_columns]);
            let new = new.unsqueeze_dim::<4>(0).expand([batch, heads, 1, columns.len()]);
            activation = activation.slice_assign([0..batch, 0..heads, row..row + 1, columns], new);
        }
        activation
    }
}

impl<B: Backend> Hooks<B> for PatchedHooks<'_, B> {
    fn wants(&self, site: HookSite) -> bool {
        let patched = self.patch.sites.get(&site);
        let is_read = |it: &PatchedSite| it.positions.iter().any(|[position, _]| *position >= self.start);
        self.inner.wants(site) || patched.is_some_and(is_read)
    }

    fn hook(&mut self, site: HookSite, activation: Tensor<B, 3>) -> Tensor<B, 3> {
        let activation = self.replaced(site, activation.unsqueeze_dim(1)).squeeze_dim(1);
        if self.inner.wants(site) { self.inner.hook(site, activation) } else { activation }
    }

    fn hook_heads(&mut self, site: HookSite, activation: Tensor<B, 4>) -> Tensor<B, 4> {
        let activation = self.replaced(site, activation);
        if self.inner.wants(site) { self.inner.hook_heads(site, activation) } else { activation }
    }

    fn replaced_output(&mut self, site: HookSite, dims: [usize; 3]) -> Option<ReplacedOutput<B>> {
        self.inner.replaced_output(site, dims)
    }

    fn input(&mut self, reader: HookSite, head: usize, residual: &Tensor<B, 3>) -> Option<Tensor<B, 3>> {
        self.inner.input(reader, head, residual)
    }
}

//! Hooks: read or replace activations during a forward pass.
//!
//! Every forward pass of a model runs through the same code, which asks a [`Hooks`] value at each [`HookSite`] whether
//! it wants the activation there. Activations that nobody wants are not computed separately, so [`NoHooks`] costs
//! nothing and attention stays fused. The sites follow the hook points of TransformerLens.
//!
//! ```
//! use burn::prelude::*;
//! use burn_flex::Flex;
//! use causal_attention_nn::hooks::{AttentionPoint, HookPoint, HookSite, Hooks};
//! use causal_attention_nn::prelude::*;
//!
//! /// Keeps the attention weights of layer 1, and zero-ablates its feed-forward layer.
//! struct Probe(Option<Tensor<Flex, 4>>);
//!
//! impl Hooks<Flex> for Probe {
//!     fn wants(&self, site: HookSite) -> bool {
//!         let points = [HookPoint::SelfAttention(AttentionPoint::Pattern), HookPoint::FeedForwardOutput];
//!         site.layer == 1 && points.contains(&site.point)
//!     }
//!
//!     fn hook(&mut self, _site: HookSite, activation: Tensor<Flex, 3>) -> Tensor<Flex, 3> {
//!         activation.zeros_like()
//!     }
//!
//!     fn hook_heads(&mut self, _site: HookSite, activation: Tensor<Flex, 4>) -> Tensor<Flex, 4> {
//!         self.0.insert(activation).clone()
//!     }
//! }
//!
//! let sizes = Sizes { vocab: 11, context: 7, source_context: None };
//! let model = ModelConfig::default().init::<Flex>(sizes, &Default::default())?;
//! let mut probe = Probe(None);
//! let tokens = Tensor::from_ints([[3, 1, 4, 1, 5]], &Default::default());
//! let logits = model.forward_hooked(Inputs::tokens(tokens), &mut probe)?;
//! assert_eq!(logits.dims(), [1, 5, 11]);
//! assert_eq!(probe.0.unwrap().dims(), [1, ModelConfig::default().heads, 5, 5]);
//! # Ok::<(), causal_attention_nn::Error>(())
//! ```

mod names;
mod patch;
mod writer;

pub use patch::{Patch, PatchedHooks};
pub use writer::ResidualWriter;

use burn::tensor::{Tensor, backend::Backend};

/// A stack of blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stack {
    /// The encoder of an encoder-decoder.
    Encoder,
    /// The decoder, present in every model.
    Decoder,
}

/// An activation of an attention layer. Query heads that share keys and values each get their own copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AttentionPoint {
    /// Queries before the rotary rotation, `[batch, heads, query_time, d_head]`.
    Query,
    /// Keys before the rotary rotation, `[batch, heads, key_time, d_head]`.
    Key,
    /// Values, `[batch, heads, key_time, d_head]`.
    Value,
    /// Scaled scores with the position bias, before mask and softmax, `[batch, heads, query_time, key_time]`. Heads of
    /// differential attention have two each, like [`Parts`](Self::Parts).
    Scores,
    /// The two softmax maps of each head of differential attention, after dropout, `[batch, 2 * heads, query_time,
    /// key_time]`: first and second map of the first head, then those of the next one. Other attention does not reach this
    /// point.
    Parts,
    /// Attention weights after mask, softmax and dropout, `[batch, heads, query_time, key_time]`: in differential attention,
    /// the differences of the maps, which can be negative.
    Pattern,
    /// Head outputs without the bias of the output projection, `[batch, heads, query_time, d_model]`.
    Output,
}

/// An activation of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HookPoint {
    /// Embedded tokens with their positions, `[batch, time, d_model]`.
    Embedding,
    /// The residual stream before a block, `[batch, time, d_model]`.
    ResidualPre,
    /// Self-attention.
    SelfAttention(AttentionPoint),
    /// Cross-attention over the output of the encoder.
    CrossAttention(AttentionPoint),
    /// The residual stream between the attention and the feed-forward layer, `[batch, time, d_model]`.
    ResidualMid,
    /// The hidden activation of the feed-forward layer, after its activation function, `[batch, time, d_inner]`.
    FeedForwardHidden,
    /// The output of the feed-forward layer, before the residual connection, `[batch, time, d_model]`.
    FeedForwardOutput,
    /// The residual stream after a block, `[batch, time, d_model]`.
    ResidualPost,
    /// The residual stream before the final norm and the output layer, `[batch, time, d_model]`.
    Final,
}

/// The location of an activation in a model. It is displayed by its name, such as `attn.3.pattern`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HookSite {
    /// The stack.
    pub stack: Stack,
    /// The zero-based index of the block in its stack: the first block for [`HookPoint::Embedding`], the last one for
    /// [`HookPoint::Final`].
    pub layer: usize,
    /// The activation.
    pub point: HookPoint,
}

/// The outputs of heads, or of a feed-forward layer, that hooks replace before they are computed.
#[derive(Debug, Clone)]
pub struct ReplacedOutput<B: Backend> {
    /// 1 for each computed output and 0 for each replaced one, `[batch, heads]` or `[1, heads]`; `None` if all are
    /// replaced. A feed-forward layer counts as a single head.
    pub computed: Option<Tensor<B, 2>>,
    /// The sum of the replacements over the heads, in a shape that broadcasts to `[batch, time, d_model]`.
    pub sum: Tensor<B, 3>,
}

/// Reads or replaces activations. The default methods change nothing.
pub trait Hooks<B: Backend> {
    /// Returns true if [`hook`](Self::hook) or [`hook_heads`](Self::hook_heads) should be called with the activation at
    /// `site`.
    fn wants(&self, site: HookSite) -> bool {
        let _ = site;
        false
    }

    /// Reads an activation of the residual stream or a feed-forward layer, and returns its replacement.
    ///
    /// # Shapes
    /// `[batch, time, width]`, in and out.
    fn hook(&mut self, site: HookSite, activation: Tensor<B, 3>) -> Tensor<B, 3> {
        let _ = site;
        activation
    }

    /// Reads an activation of all heads of an attention layer, and returns its replacement.
    ///
    /// # Shapes
    /// `[batch, heads, rows, columns]`, in and out; see [`AttentionPoint`].
    fn hook_heads(&mut self, site: HookSite, activation: Tensor<B, 4>) -> Tensor<B, 4> {
        let _ = site;
        activation
    }

    /// Returns replacements for outputs of attention heads or of a feed-forward layer, or `None` to compute all. `site` is
    /// an [`AttentionPoint::Output`] or [`HookPoint::FeedForwardOutput`] that the hooks do not [want](Self::wants), and
    /// `dims` are batch, heads and time. The layer then stays fused, unlike with [`hook_heads`](Self::hook_heads).
    fn replaced_output(&mut self, site: HookSite, dims: [usize; 3]) -> Option<ReplacedOutput<B>> {
        let _ = (site, dims);
        None
    }

    /// Returns a replacement for `residual`, for a single reader, or `None` to keep it: path patching (Wang et al.,
    /// 2022, arXiv 2211.00593). Readers are the [`AttentionPoint::Query`], `Key` and `Value` of each `head`,
    /// [`HookPoint::FeedForwardHidden`] and [`HookPoint::Final`]; for the last two, `head` is 0.
    ///
    /// # Shapes
    /// `[batch, time, d_model]`, in and out.
    fn input(&mut self, reader: HookSite, head: usize, residual: &Tensor<B, 3>) -> Option<Tensor<B, 3>> {
        let _ = (reader, head, residual);
        None
    }
}

/// Hooks that want no activation.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoHooks;

impl<B: Backend> Hooks<B> for NoHooks {}

/// The hooks of a model at one of its blocks.
pub struct BlockHooks<'a, B: Backend> {
    /// The hooks.
    pub hooks: &'a mut dyn Hooks<B>,
    /// The stack of the block.
    pub stack: Stack,
    /// The zero-based index of the block in its stack.
    pub layer: usize,
}

impl<'a, B: Backend> BlockHooks<'a, B> {
    /// Creates the hooks of a standalone block, which counts as the first block of a decoder.
    pub fn standalone(hooks: &'a mut dyn Hooks<B>) -> Self {
        Self { hooks, stack: Stack::Decoder, layer: 0 }
    }

    fn site(&self, point: HookPoint) -> HookSite {
        HookSite { stack: self.stack, layer: self.layer, point }
    }

    /// Returns true if the activation at `point` is wanted.
    pub fn wants(&self, point: HookPoint) -> bool {
        self.hooks.wants(self.site(point))
    }

    /// Passes an activation through the hooks if they want it.
    ///
    /// # Shapes
    /// `[batch, time, width]`, in and out.
    pub fn apply(&mut self, point: HookPoint, activation: Tensor<B, 3>) -> Tensor<B, 3> {
        let site = self.site(point);
        if self.hooks.wants(site) { self.hooks.hook(site, activation) } else { activation }
    }

    /// Passes an activation of all heads through the hooks if they want it.
    ///
    /// # Shapes
    /// `[batch, heads, rows, columns]`, in and out.
    pub fn apply_heads(&mut self, point: HookPoint, activation: Tensor<B, 4>) -> Tensor<B, 4> {
        let site = self.site(point);
        if self.hooks.wants(site) { self.hooks.hook_heads(site, activation) } else { activation }
    }

    /// Returns replacements for the outputs at `point`, unless the hooks want them; see [`Hooks::replaced_output`].
    pub fn replaced_output(&mut self, point: HookPoint, dims: [usize; 3]) -> Option<ReplacedOutput<B>> {
        let site = self.site(point);
        if self.hooks.wants(site) { None } else { self.hooks.replaced_output(site, dims) }
    }

    /// Returns a replacement for `residual`, for a single reader; see [`Hooks::input`].
    pub fn input(&mut self, reader: HookPoint, head: usize, residual: &Tensor<B, 3>) -> Option<Tensor<B, 3>> {
        let site = self.site(reader);
        self.hooks.input(site, head, residual)
    }

    /// Borrows the same hooks again, to pass them to a callee.
    pub fn reborrow(&mut self) -> BlockHooks<'_, B> {
        BlockHooks { hooks: &mut *self.hooks, stack: self.stack, layer: self.layer }
    }
}

#[cfg(test)]
mod tests;

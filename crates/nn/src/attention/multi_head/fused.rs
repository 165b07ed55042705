//! Multi-head self-attention with one projection for queries, keys and values: the form that
//! models use.
//!
//! ```text
//! [Q | K | V] = x W_qkv
//! head_h      = softmax(Q_h K_g^T / sqrt(d_head)) V_g
//! output      = [head_1 | .. | head_n] W_output
//! ```
//!
//! With as many key heads as query heads `g = h`. With fewer, a group of query heads shares one:
//! grouped-query attention (Ainslie et al., 2023, arXiv 2305.13245), multi-query attention where
//! there is only one (Shazeer, 2019, arXiv 1911.02150).
//!
//! With `qk_norm` each head's query and key pass an RMS norm before they are turned and meet (Henry et al., 2020, arXiv
//! 2010.04245; with gains as in Qwen3), which bounds the scores however large the projections grow.

use burn::config::Config;
use burn::module::{Module, ParamId};
use burn::nn::{Dropout, DropoutConfig, Linear, LinearConfig};
use burn::tensor::{Tensor, backend::Backend};

use super::width_of_head;
use crate::attention::hooked::{self, AttentionHooks, with_weights};
use crate::attention::{KeyValueCache, check_dropout, check_residual, check_width};
use crate::hooks::{AttentionPoint, NoHooks};
use crate::ops::{self, AttentionOptions, Mask, Norm, Projections, ScorePosition, merge_heads};
use crate::role::{self, ParamRole, ParamRoles};
use crate::{Error, Result, error::ensure};

/// What a [`MultiHeadAttention`] is built from.
#[derive(Config, Debug)]
pub struct MultiHeadAttentionConfig {
    /// Width of input and output.
    pub d_model: usize,
    /// Number of query heads.
    pub heads: usize,
    /// Width of a head. If absent `d_model / heads`, which must then divide.
    pub d_head: Option<usize>,
    /// Number of key and value heads; divides `heads`. As many as `heads` if absent.
    pub key_value_heads: Option<usize>,
    /// Probability of dropping a weight, and of dropping an element of the output.
    #[config(default = 0.0)]
    pub dropout: f64,
    /// Whether the projections have biases.
    #[config(default = true)]
    pub bias: bool,
    /// Whether that of queries, keys and values has one; as `bias` if absent.
    pub query_key_value_bias: Option<bool>,
    /// Whether that of the output has one; as `bias` if absent.
    pub output_bias: Option<bool>,
    /// The epsilon of norms of queries and keys; there are none if absent.
    pub qk_norm: Option<f64>,
}

/// The input of a [`MultiHeadAttention`].
pub struct AttentionInput<'a, B: Backend> {
    /// `[batch, time, d_model]`.
    pub input: Tensor<B, 3>,
    /// The residual connection, to which the output is added, `[batch, time, d_model]`.
    pub residual: Option<Tensor<B, 3>>,
    /// The keys that each query may not see.
    pub mask: &'a Mask<B>,
    /// The influence of positions on the scores.
    pub position: &'a ScorePosition<B>,
    /// Keys and values of earlier positions, which the input's positions follow and see.
    pub cache: Option<&'a mut KeyValueCache<B>>,
}

impl<'a, B: Backend> AttentionInput<'a, B> {
    /// An input without residual connection and cache.
    pub fn new(input: Tensor<B, 3>, mask: &'a Mask<B>, position: &'a ScorePosition<B>) -> Self {
        Self { input, residual: None, mask, position, cache: None }
    }
}

/// The projections that read the input.
const READERS: [AttentionPoint; 3] = [AttentionPoint::Query, AttentionPoint::Key, AttentionPoint::Value];

/// Multi-head self-attention with one fused projection.
#[derive(Module, Debug)]
pub struct MultiHeadAttention<B: Backend> {
    /// Queries, keys and values side by side: `d_model` to `(heads + 2 * key_value_heads) * d_head`.
    pub qkv: Linear<B>,
    /// Of each head's query.
    pub query_norm: Option<Norm<B>>,
    /// Of each head's key.
    pub key_norm: Option<Norm<B>>,
    /// Mixes the heads: `heads * d_head` to `d_model`.
    pub output: Linear<B>,
    /// On the weights, and on the output.
    pub dropout: Dropout,
    /// Number of query heads.
    pub heads: usize,
    /// Number of key and value heads.
    pub key_value_heads: usize,
    /// Width of one head.
    pub d_head: usize,
}

impl MultiHeadAttentionConfig {
    /// Whether these sizes make an attention.
    ///
    /// # Errors
    /// [`Error::Argument`] where a size is zero or does not divide the other.
    pub fn check(&self) -> Result<()> {
        self.head_width()?;
        let (shared, problem) = (self.shared_heads(), format!("must divide `heads` = {}", self.heads));
        let divides = shared > 0 && self.heads.is_multiple_of(shared);
        Error::check(divides, "key_value_heads", shared, problem)?;
        check_dropout(self.dropout)
    }

    /// The module, with Burn's lazy initialisation.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub fn init<B: Backend>(&self, device: &B::Device) -> Result<MultiHeadAttention<B>> {
        self.check()?;
        let linear =
            |d_input, d_output, bias| LinearConfig::new(d_input, d_output).with_bias(bias).init(device);
        let (d_head, key_value_heads) = (self.head_width()?, self.shared_heads());
        let norm = || self.qk_norm.map(|epsilon| Norm::rms(d_head, epsilon, device));
        let qkv_bias = self.query_key_value_bias.unwrap_or(self.bias);
        Ok(MultiHeadAttention {
            qkv: linear(self.d_model, (self.heads + 2 * key_value_heads) * d_head, qkv_bias),
            query_norm: norm(),
            key_norm: norm(),
            output: linear(self.heads * d_head, self.d_model, self.output_bias.unwrap_or(self.bias)),
            dropout: DropoutConfig::new(self.dropout).init(),
            heads: self.heads,
            key_value_heads,
            d_head,
        })
    }

    fn head_width(&self) -> Result<usize> {
        width_of_head(self.d_model, self.heads, self.d_head)
    }

    fn shared_heads(&self) -> usize {
        self.key_value_heads.unwrap_or(self.heads)
    }
}

impl<B: Backend> ParamRoles for MultiHeadAttention<B> {
    fn visit_roles(&self, visit: &mut dyn FnMut(ParamId, ParamRole)) {
        let Self { qkv, query_norm, key_norm, output, dropout: _, heads, key_value_heads, d_head } = self;
        let [queries, keys] = [heads, key_value_heads].map(|heads| heads * d_head);
        role::reading(qkv, vec![queries, keys, keys], visit);
        query_norm.visit_roles(visit);
        key_norm.visit_roles(visit);
        role::writing(output, visit);
    }
}

impl<B: Backend> MultiHeadAttention<B> {
    /// Attends within one sequence.
    ///
    /// # Shapes
    /// `[batch, time, d_model]`, in and out.
    ///
    /// # Errors
    /// [`Error::Shape`] where input, mask or position do not fit the module or each other.
    pub fn forward(
        &self,
        input: Tensor<B, 3>,
        mask: &Mask<B>,
        position: &ScorePosition<B>,
    ) -> Result<Tensor<B, 3>> {
        self.forward_hooked(AttentionInput::new(input, mask, position), AttentionHooks::alone(&mut NoHooks))
    }

    /// [`Self::forward`], with the weights as they were applied.
    ///
    /// # Shapes
    /// `[batch, time, d_model]`, in and out; the weights are `[batch, heads, time, time]`.
    ///
    /// # Errors
    /// As [`Self::forward`].
    pub fn forward_with_weights(
        &self,
        input: Tensor<B, 3>,
        mask: &Mask<B>,
        position: &ScorePosition<B>,
    ) -> Result<(Tensor<B, 3>, Tensor<B, 4>)> {
        with_weights(|hooks| self.forward_hooked(AttentionInput::new(input, mask, position), hooks))
    }

    /// [`Self::forward`] with residual connection, cache and hooks, fused where the backend has kernels and no hook
    /// wants an activation.
    ///
    /// # Shapes
    /// `[batch, time, d_model]`.
    ///
    /// # Errors
    /// As [`Self::forward`], where the residual has another shape than the input, and where hooks want queries, keys
    /// or values of heads that share keys, next to a cache.
    pub fn forward_hooked(
        &self,
        attention: AttentionInput<'_, B>,
        mut hooks: AttentionHooks<'_, B>,
    ) -> Result<Tensor<B, 3>> {
        let AttentionInput { input, residual, mask, position, cache } = attention;
        let [batch, time, _] = input.dims();
        let key_time = time + cache.as_ref().map_or(0, |cache| cache.time());
        check_residual(residual.as_ref(), input.dims())?;
        let [d_model, _] = self.qkv.weight.shape().dims();
        check_width("input", input.dims(), d_model)?;
        mask.check(batch, time, key_time)?;
        position.check(self.heads, self.d_head, time, key_time)?;

        let mut options = self.options(mask.clone(), position.clone());
        let mut projections = self.project(input);
        if !hooks.inputs.is_empty() || hooks.wants(&READERS) {
            ensure(cache.is_none() || self.heads == self.key_value_heads, Error::Shape, || {
                "hooks on queries, keys or values of heads that share keys take no cache".to_string()
            })?;
            projections = self.hooked(projections, &options, &mut hooks);
            options.key_value_heads = self.heads;
        }
        if let Some(cache) = cache {
            projections = cache.extend(projections, &mut options)?;
        }
        Ok(hooked::attend(projections, options, (&self.output, &self.dropout), residual, &mut hooks))
    }

    /// Passes queries, keys and values through the hooks, each head with its own keys and values.
    fn hooked(
        &self,
        projections: Projections<B>,
        options: &AttentionOptions<B>,
        hooks: &mut AttentionHooks<'_, B>,
    ) -> Projections<B> {
        let counts = [self.heads, self.key_value_heads, self.key_value_heads];
        let by_heads = |parts: [Tensor<B, 3>; 3], at: usize| {
            let [query, key, value] = parts;
            let part = [query, key, value].into_iter().nth(at).expect("there are three");
            hooked::by_heads(part, counts[at], self.heads)
        };
        let parts = projections.split(options);
        Projections::Separate([0, 1, 2].map(|at| {
            let project = |input| by_heads(self.project(input).split(options), at);
            merge_heads(hooks.project(READERS[at], by_heads(parts.clone(), at), project))
        }))
    }

    /// Queries, keys and values of an input, `[batch, time, d_model]`; positions have not turned them yet.
    pub fn project(&self, input: Tensor<B, 3>) -> Projections<B> {
        let qkv = ops::linear(&self.qkv, input); // [batch, time, (heads + 2 * key_value_heads) * d_head]
        Projections::Packed(match (&self.query_norm, &self.key_norm) {
            (Some(query), Some(key)) => {
                ops::normalise_heads(qkv, [query, key], &self.options(Mask::none(), ScorePosition::None))
            }
            _ => qkv,
        })
    }

    /// How its queries, keys and values meet.
    pub fn options(&self, mask: Mask<B>, position: ScorePosition<B>) -> AttentionOptions<B> {
        let Self { heads, key_value_heads, .. } = *self;
        AttentionOptions { heads, key_value_heads, mask, position, dropout: self.dropout.prob }
    }
}

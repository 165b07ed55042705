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
use crate::attention::{KeyValueCache, check_dropout, check_residual, check_width};
use crate::ops::{self, AttentionOptions, Mask, Norm, Projections, ScorePosition};
use crate::role::{self, ParamRole, ParamRoles};
use crate::{Error, Result};

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
        self.forward_residual(None, input, mask, position, None, None)
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
        let mut maps = Vec::with_capacity(1);
        let output = self.forward_residual(None, input, mask, position, None, Some(&mut maps))?;
        Ok((output, maps.remove(0)))
    }

    /// `residual + forward(input)`, in one operation where the backend has it. With a cache the input's places
    /// follow those that are kept there, which they see too. The weights are added to `maps` where asked for.
    ///
    /// # Shapes
    /// `residual` and `input` `[batch, time, d_model]`, as the result; a map is `[batch, heads, time, key_time]`.
    ///
    /// # Errors
    /// As [`Self::forward`], and where the residual has another shape than the input.
    pub fn forward_residual(
        &self,
        residual: Option<Tensor<B, 3>>,
        input: Tensor<B, 3>,
        mask: &Mask<B>,
        position: &ScorePosition<B>,
        cache: Option<&mut KeyValueCache<B>>,
        maps: Option<&mut Vec<Tensor<B, 4>>>,
    ) -> Result<Tensor<B, 3>> {
        let [batch, time, _] = input.dims();
        let key_time = time + cache.as_ref().map_or(0, |cache| cache.time());
        check_residual(residual.as_ref(), input.dims())?;
        let [d_model, _] = self.qkv.weight.shape().dims();
        check_width("input", input.dims(), d_model)?;
        mask.check(batch, time, key_time)?;
        position.check(self.heads, self.d_head, time, key_time)?;

        let mut options = self.options(mask.clone(), position.clone());
        let mut projections = self.project(input);
        if let Some(cache) = cache {
            projections = cache.extend(projections, &mut options)?;
        }
        let context = ops::attention(projections, options, maps); // [batch, time, heads * d_head]
        Ok(ops::linear_residual(&self.output, &self.dropout, context, residual))
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

//! Multi-head self-attention with one projection for queries, keys and values: the form used in models.
//!
//! ```text
//! [Q | K | V] = x W_qkv
//! head_h      = softmax(Q_h K_g^T / sqrt(d_head)) V_g
//! output      = [head_1 | .. | head_n] W_output
//! ```
//!
//! With as many key heads as query heads, `g = h`. With fewer, each group of query heads shares one key head:
//! grouped-query attention (Ainslie et al., 2023, arXiv 2305.13245), or multi-query attention if there is only one
//! (Shazeer, 2019, arXiv 1911.02150).
//!
//! With `qk_norm`, an RMS norm is applied to each head's query and key before the rotary rotation (Henry et al., 2020,
//! arXiv 2010.04245; with gains as in Qwen3), or to the queries and keys of all heads together (OLMo 2, arXiv
//! 2501.00656). It bounds the scores however large the projections grow.

use burn::config::Config;
use burn::module::{Module, ParamId};
use burn::nn::{Dropout, DropoutConfig, Linear, LinearConfig};
use burn::tensor::{Tensor, backend::Backend};

use super::{AttentionGate, QkNormConfig, ScoreConfig, ScoreFunction, width_of_head};
use crate::attention::differential::{Differential, DifferentialConfig};
use crate::attention::hooked::{self, AttentionHooks, HeadOutput, with_weights};
use crate::attention::{KeyValueCache, check_dropout, check_residual, check_width};
use crate::display::display_line;
use crate::hooks::{AttentionPoint, NoHooks};
use crate::ops::{self, AttentionOptions, Mask, Norm, Projections, ScorePosition, merge_heads};
use crate::role::{self, ParamRole, ParamRoles};
use crate::{Error, Result, error::ensure};

/// The configuration of a [`MultiHeadAttention`].
#[derive(Config, Debug)]
pub struct MultiHeadAttentionConfig {
    /// The width of input and output.
    pub d_model: usize,
    /// The number of query heads.
    pub heads: usize,
    /// The width of a head; `d_model / heads` if absent, which must then be an integer.
    pub d_head: Option<usize>,
    /// The number of key and value heads, which must divide `heads`; equal to `heads` if absent.
    pub key_value_heads: Option<usize>,
    /// The probability of dropping an attention weight, and of dropping an element of the output.
    #[config(default = 0.0)]
    pub dropout: f64,
    /// True if the projections have biases.
    #[config(default = true)]
    pub bias: bool,
    /// True if the projection of queries, keys and values has a bias; defaults to `bias`.
    pub query_key_value_bias: Option<bool>,
    /// True if the output projection has a bias; defaults to `bias`.
    pub output_bias: Option<bool>,
    /// The norms of queries and keys; none if absent.
    pub qk_norm: Option<QkNormConfig>,
    /// The settings of the scores and of their softmax.
    #[config(default = "ScoreConfig::new()")]
    pub scores: ScoreConfig,
    /// The gates of the heads' outputs.
    #[config(default = "AttentionGate::None")]
    pub gate: AttentionGate,
    /// The settings of differential attention; plain attention if absent.
    pub differential: Option<DifferentialConfig>,
}

/// The input of a [`MultiHeadAttention`].
pub struct AttentionInput<'a, B: Backend> {
    /// The input, `[batch, time, d_model]`.
    pub input: Tensor<B, 3>,
    /// The residual to which the output is added, `[batch, time, d_model]`.
    pub residual: Option<Tensor<B, 3>>,
    /// The mask, which hides keys from queries.
    pub mask: &'a Mask<B>,
    /// The effect of positions on the scores.
    pub position: &'a ScorePosition<B>,
    /// The KV cache of earlier positions, which precede the input's positions.
    pub cache: Option<&'a mut KeyValueCache<B>>,
}

impl<'a, B: Backend> AttentionInput<'a, B> {
    /// Creates an input without a residual connection or a cache.
    pub fn new(input: Tensor<B, 3>, mask: &'a Mask<B>, position: &'a ScorePosition<B>) -> Self {
        Self { input, residual: None, mask, position, cache: None }
    }
}

/// The projections that read the attention's input.
const READERS: [AttentionPoint; 3] = [AttentionPoint::Query, AttentionPoint::Key, AttentionPoint::Value];

/// Multi-head self-attention with one fused projection.
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct MultiHeadAttention<B: Backend> {
    /// The projection to concatenated queries, keys and values: `d_model` to `(heads + 2 * key_value_heads) * d_head`.
    pub qkv: Linear<B>,
    /// The norm of each head's query, or of the queries of all heads together.
    pub query_norm: Option<Norm<B>>,
    /// The norm of each head's key, or of the keys of all heads together.
    pub key_norm: Option<Norm<B>>,
    /// The settings of the scores and of their softmax.
    pub scores: ScoreFunction<B>,
    /// The projection of the input to the gates of the heads' outputs.
    pub gate: Option<Linear<B>>,
    /// The subtraction of two maps per head; plain attention if absent.
    pub differential: Option<Differential<B>>,
    /// The output projection, which mixes the heads: `heads * d_head` to `d_model`.
    pub output: Linear<B>,
    /// The dropout of the attention weights and of the output.
    pub dropout: Dropout,
    /// The number of query heads.
    pub heads: usize,
    /// The number of key and value heads.
    pub key_value_heads: usize,
    /// The width of one head.
    pub d_head: usize,
}

display_line!(MultiHeadAttention, self => {
    d_model: self.qkv.weight.lazy_shape().dims::<2>()[0],
    heads: self.heads,
    key_value_heads: self.key_value_heads,
    d_head: self.d_head,
    qk_norm: self.query_norm.is_some(),
    sinks: self.scores.kind,
    gate: self.gate.is_some(),
    differential: self.differential.is_some(),
    query_key_value_bias: self.qkv.bias.is_some(),
    output_bias: self.output.bias.is_some(),
    dropout: self.dropout.prob,
});

impl MultiHeadAttentionConfig {
    /// Checks that the sizes form a valid attention.
    ///
    /// # Errors
    /// [`Error::Argument`] if a size is zero or does not divide the size it must divide, or if another number is
    /// outside its range.
    pub fn check(&self) -> Result<()> {
        self.head_width()?;
        let (shared, problem) = (self.shared_heads(), format!("must divide `heads` = {}", self.heads));
        let divides = self.heads.is_multiple_of(shared);
        Error::check(divides, "key_value_heads", shared, problem)?;
        self.qk_norm.as_ref().map_or(Ok(()), QkNormConfig::check)?;
        self.scores.check()?;
        let width = self.head_width()?;
        let problem = format!(
            "splits each head into two halves, but heads are {width} wide; set `d_head` to an even number"
        );
        let divides = self.differential.is_none() || width.is_multiple_of(2);
        Error::check(divides, "differential", true, problem)?;
        check_dropout(self.dropout)
    }

    /// Returns the module, with Burn's lazy initialisation.
    ///
    /// # Errors
    /// Same as [`Self::check`].
    pub fn init<B: Backend>(&self, device: &B::Device) -> Result<MultiHeadAttention<B>> {
        self.check()?;
        let linear =
            |d_input, d_output, bias| LinearConfig::new(d_input, d_output).with_bias(bias).init(device);
        let (d_head, key_value_heads) = (self.head_width()?, self.shared_heads());
        let norm = |heads: usize| self.qk_norm.as_ref().map(|norm| norm.init(heads, d_head, device));
        let qkv_bias = self.query_key_value_bias.unwrap_or(self.bias);
        Ok(MultiHeadAttention {
            qkv: linear(self.d_model, (self.heads + 2 * key_value_heads) * d_head, qkv_bias),
            query_norm: norm(self.heads),
            key_norm: norm(key_value_heads),
            scores: self.scores.init(self.maps(), device),
            gate: self.gate.projection([self.d_model, self.heads, d_head], self.bias, device),
            differential: self.differential.as_ref().map(|it| it.init(d_head, device)),
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

    /// Returns the number of softmax maps.
    fn maps(&self) -> usize {
        if self.differential.is_some() { 2 * self.heads } else { self.heads }
    }

    fn shared_heads(&self) -> usize {
        self.key_value_heads.unwrap_or(self.heads)
    }
}

impl<B: Backend> ParamRoles for MultiHeadAttention<B> {
    fn visit_roles(&self, visit: &mut dyn FnMut(ParamId, ParamRole)) {
        let Self {
            qkv,
            query_norm,
            key_norm,
            scores,
            gate,
            differential,
            output,
            dropout: _,
            heads,
            key_value_heads,
            d_head,
        } = self;
        let [queries, keys] = [heads, key_value_heads].map(|heads| heads * d_head);
        role::visit_reader(qkv, vec![queries, keys, keys], visit);
        query_norm.visit_roles(visit);
        key_norm.visit_roles(visit);
        scores.visit_roles(visit);
        if let Some(gate) = gate {
            let [_, width] = gate.weight.lazy_shape().dims();
            role::visit_reader(gate, vec![width], visit);
        }
        differential.visit_roles(visit);
        role::visit_writer(output, visit);
    }
}

impl<B: Backend> MultiHeadAttention<B> {
    /// Lets the tokens of a sequence attend to each other.
    ///
    /// # Shapes
    /// `[batch, time, d_model]`, in and out.
    ///
    /// # Errors
    /// [`Error::Shape`] if input, mask or position do not fit the module or each other.
    pub fn forward(
        &self,
        input: Tensor<B, 3>,
        mask: &Mask<B>,
        position: &ScorePosition<B>,
    ) -> Result<Tensor<B, 3>> {
        self.forward_hooked(
            AttentionInput::new(input, mask, position),
            AttentionHooks::standalone(&mut NoHooks),
        )
    }

    /// Like [`Self::forward`], and also returns the attention weights as applied.
    ///
    /// # Shapes
    /// `[batch, time, d_model]`, in and out; the weights are `[batch, heads, time, time]`.
    ///
    /// # Errors
    /// Same as [`Self::forward`].
    pub fn forward_with_weights(
        &self,
        input: Tensor<B, 3>,
        mask: &Mask<B>,
        position: &ScorePosition<B>,
    ) -> Result<(Tensor<B, 3>, Tensor<B, 4>)> {
        with_weights(|hooks| self.forward_hooked(AttentionInput::new(input, mask, position), hooks))
    }

    /// Like [`Self::forward`], with a residual connection, cache and hooks. Uses the fused kernels if
    /// the backend has them and no hook wants an activation.
    ///
    /// # Shapes
    /// `[batch, time, d_model]`.
    ///
    /// # Errors
    /// Same as [`Self::forward`]. Additionally [`Error::Shape`] if the shapes of residual and input differ. Hooks on
    /// queries, keys or values of heads that share keys are an error if there is a cache.
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

        if cache.is_none()
            && let Some(output) =
                hooks.all_replaced([batch, time], self.heads, (&self.output, residual.as_ref()))
        {
            return Ok(output);
        }
        let mut options = self.options(mask.clone(), position.clone());
        let gates = self.gate.as_ref().map(|gate| ops::linear(gate, input.clone()));
        let mut projections = self.project(input);
        if !hooks.inputs.is_empty() || hooks.wants(&READERS) {
            ensure(cache.is_none() || self.heads == self.key_value_heads, Error::Shape, || {
                "hooks on queries, keys or values of grouped heads cannot be used with a cache".to_string()
            })?;
            projections = self.hooked(projections, &options, &mut hooks);
            options.key_value_heads = self.heads;
        }
        if let Some(differential) = &self.differential {
            projections = differential.divide_heads(projections, &mut options);
        }
        if let Some(cache) = cache {
            projections = cache.extend(projections, &mut options)?;
        }
        let differential = self.differential.as_ref();
        let output = HeadOutput { projection: &self.output, dropout: &self.dropout, gates, differential };
        Ok(hooked::attend(projections, options, output, residual, &mut hooks))
    }

    /// Passes queries, keys and values through the hooks, with separate keys and values for each head.
    fn hooked(
        &self,
        projections: Projections<B>,
        options: &AttentionOptions<B>,
        hooks: &mut AttentionHooks<'_, B>,
    ) -> Projections<B> {
        let counts = [self.heads, self.key_value_heads, self.key_value_heads];
        let by_heads = |parts: [Tensor<B, 3>; 3], at: usize| {
            let [query, key, value] = parts;
            let part = [query, key, value].into_iter().nth(at).expect("one of three projections");
            hooked::split_and_repeat_heads(part, counts[at], self.heads)
        };
        let parts = projections.split(options);
        Projections::Separate([0, 1, 2].map(|at| {
            let project = |input| by_heads(self.project(input).split(options), at);
            merge_heads(hooks.project(READERS[at], by_heads(parts.clone(), at), project))
        }))
    }

    /// Returns the queries, keys and values of an input `[batch, time, d_model]`, before the rotary rotation.
    pub fn project(&self, input: Tensor<B, 3>) -> Projections<B> {
        let qkv = ops::linear(&self.qkv, input); // [batch, time, (heads + 2 * key_value_heads) * d_head]
        let (Some(query), Some(key)) = (&self.query_norm, &self.key_norm) else {
            return Projections::Packed(qkv);
        };
        let options = self.options(Mask::none(), ScorePosition::None);
        if self.normalises_all_heads() {
            let [queries, keys, values] = Projections::Packed(qkv).split(&options);
            return Projections::Separate([query.forward(queries), key.forward(keys), values]);
        }
        Projections::Packed(ops::normalise_heads(qkv, [query, key], &options))
    }

    /// Returns true if one norm covers the queries of all heads.
    pub fn normalises_all_heads(&self) -> bool {
        self.query_norm.as_ref().is_some_and(|norm| norm.gamma.lazy_shape().dims() != [self.d_head])
    }

    /// Returns the options of this attention for [`ops::attention()`]; with differential attention, those before its heads
    /// are divided.
    pub fn options(&self, mask: Mask<B>, position: ScorePosition<B>) -> AttentionOptions<B> {
        let Self { heads, key_value_heads, .. } = *self;
        let maps = if self.differential.is_some() { 2 * heads } else { heads };
        AttentionOptions {
            dropout: self.dropout.prob,
            scale: self.scores.scale,
            softcap: self.scores.softcap,
            sinks: self.scores.sink_logits(maps, &self.qkv.weight.device()),
            ..AttentionOptions::new([heads, key_value_heads], mask, position)
        }
    }
}

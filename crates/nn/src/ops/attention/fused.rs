//! Fused attention, forward and backward.

use burn::tensor::{Tensor, backend::Backend};

use super::{AttentionOptions, Projections, ScorePosition};
use crate::kernels;
use crate::kernels::attention::rotary::RotaryTables;
use crate::kernels::attention::{self as kernel, Attention as Kernel, HiddenPairs, KeyRange, ScoreOptions};
use crate::kernels::dropout::Dropout;
use crate::kernels::matrix::Matrix;
use crate::kernels::pool::{self, Buffer};
use crate::ops::dropout::draw;
use crate::ops::fused::{fused, input};
use crate::ops::host::{self, Floats};
use crate::ops::operation::{Input, Operation, gradients, inputs};
use crate::ops::precision::precision;

/// Computes attention with the kernels; returns `None` if they do not support it.
pub fn attention<B: Backend>(
    projections: &Projections<B>,
    options: &AttentionOptions<B>,
) -> Option<Tensor<B, 3>> {
    let precision = precision().kernel_precision()?;
    let (query, key, value) = match projections {
        Projections::Packed(packed) => (packed, None, None),
        Projections::Separate([query, key, value]) => (query, input(key), input(value)),
    };
    let (bias, cosine, sine) = match &options.position {
        ScorePosition::None => (None, None, None),
        ScorePosition::Rotation { cosine, sine } => (None, input(cosine), input(sine)),
        ScorePosition::Bias(bias) => (input(bias), None, None),
    };
    let [_, query_time, _] = query.dims();
    fused(
        AttentionInputs {
            query: input(query),
            key,
            value,
            bias,
            cosine,
            sine,
            sinks: options.sinks.as_ref().and_then(input),
        },
        |inputs: &AttentionInputs<Input>| {
            let key_time = inputs.key.get().map_or(query_time, |key| key.shape()[1]);
            let mask = options.mask.lower(query_time, key_time);
            let pairs = match mask.pairs {
                Some(pairs) => Some((pairs.dims(), host::bools::<B>(pairs.into_primitive())?)),
                None => None,
            };
            let mut bias = inputs.bias.numbers().map(<[f32]>::to_vec);
            reverse_rows(bias.as_deref_mut(), options.heads);
            Some(Attention {
                heads: options.heads,
                key_value_heads: options.key_value_heads,
                visible: mask.visible.unwrap_or_default(),
                pairs,
                bias,
                dropout: draw::<B>(options.dropout, &query.device()),
                precision,
                scale: options.scale.map(|scale| scale as f32),
                softcap: options.softcap.map(|cap| cap as f32),
            })
        },
    )
}

inputs! {
    /// The inputs of fused attention. `query` is the packed projection if `key` and `value` are absent; `bias` is the
    /// bias by distance.
    AttentionInputs<7> { query, key, value, bias, cosine, sine, sinks }
}

/// The fused attention of all heads.
#[derive(Debug, Clone)]
struct Attention {
    heads: usize,
    key_value_heads: usize,
    /// The visible keys of each query, as the kernel takes them.
    visible: Vec<KeyRange>,
    /// The hidden pairs and their shape.
    pairs: Option<([usize; 3], Vec<u8>)>,
    /// The bias by distance in the kernel's order, which is reversed.
    bias: Option<Vec<f32>>,
    /// The dropout of the weights.
    dropout: Option<Dropout>,
    precision: kernels::Precision,
    /// The factor of the products of queries and keys, and the bound of the scores.
    scale: Option<f32>,
    softcap: Option<f32>,
}

impl Attention {
    fn kernel<'a>(&'a self, inputs: &'a AttentionInputs<Input>) -> Kernel<'a> {
        let [batch, query_time, width] = inputs.query.shape().dims();
        let (key_time, packed_heads) = match inputs.key.get() {
            Some(key) => (key.shape()[1], self.heads),
            None => (query_time, self.heads + 2 * self.key_value_heads),
        };
        let rotary = inputs.cosine.numbers().zip(inputs.sine.numbers());
        let first_query = key_time.saturating_sub(query_time);
        Kernel {
            key_value_heads: self.key_value_heads,
            visible: &self.visible,
            hidden: self.pairs.as_ref().map(|(shape, hidden)| HiddenPairs { hidden, shape: *shape }),
            rotary: rotary.map(|(cosines, sines)| RotaryTables { cosines, sines, first_query }),
            dropout: self.dropout,
            precision: self.precision,
            scores: ScoreOptions {
                scale: self.scale,
                bias: self.bias.as_deref(),
                softcap: self.softcap,
                sinks: inputs.sinks.numbers(),
            },
            ..Kernel::new(batch, query_time, key_time, self.heads, width / packed_heads)
        }
    }
}

fn parts<'a>(attention: &Kernel, inputs: &'a AttentionInputs<Input>) -> [Matrix<'a>; 3] {
    let others = inputs.key.numbers().zip(inputs.value.numbers());
    attention.parts(inputs.query.slice(), others.map(|(key, value)| [key, value]))
}

impl Operation<7> for Attention {
    type Inputs<T> = AttentionInputs<T>;
    /// The context and the log-sum-exp.
    type Saved = (Floats, Buffer);

    const BACKWARD_INPUTS: AttentionInputs<bool> = AttentionInputs {
        query: true,
        key: true,
        value: true,
        bias: true,
        cosine: true,
        sine: true,
        sinks: true,
    };

    fn forward(&self, inputs: &AttentionInputs<Input>) -> (Floats, Self::Saved) {
        let attention = self.kernel(inputs);
        let shape = [attention.batch, attention.query_time, attention.heads * attention.d_head];
        let mut context = pool::take(shape.iter().product());
        let mut log_sum_exp = pool::take(attention.batch * attention.heads * attention.query_time);
        kernel::forward(&attention, parts(&attention, inputs), &mut context, &mut log_sum_exp);
        let context = inputs.query.with_values(context, shape);
        (context.clone(), (context, log_sum_exp))
    }

    fn backward(
        &self,
        inputs: &AttentionInputs<Input>,
        (context, log_sum_exp): Self::Saved,
        gradient: &Floats,
    ) -> AttentionInputs<Option<Floats>> {
        let has_constant_angles = !inputs.cosine.needs_gradient && !inputs.sine.needs_gradient;
        assert!(has_constant_angles, "the angles of a rotation are constants");
        let attention = self.kernel(inputs);
        let rows = |data| Matrix::new(data, attention.heads * attention.d_head);
        let saved = kernel::Saved {
            context: rows(context.slice()),
            log_sum_exp: &log_sum_exp,
            context_gradient: rows(gradient.slice()),
        };
        let found =
            gradients::<Self, 7>(inputs, |AttentionInputs { query, key, value, bias, sinks, .. }| {
                let mut bias = bias.filter(|_| inputs.bias.needs_gradient);
                let query = query.expect("query or packed projection is never absent");
                let gradients = attention.parts_mut(query, key.zip(value).map(|(key, value)| [key, value]));
                kernel::backward(
                    &attention,
                    parts(&attention, inputs),
                    saved,
                    gradients,
                    bias.as_deref_mut(),
                );
                reverse_rows(bias, self.heads);
                if let Some(sinks) = sinks.filter(|_| inputs.sinks.needs_gradient) {
                    kernel::sink_gradients(&attention, &saved, sinks);
                }
            });
        context.recycle();
        found
    }
}

fn reverse_rows(bias: Option<&mut [f32]>, rows: usize) {
    if let Some(bias) = bias {
        bias.chunks_exact_mut(bias.len() / rows).for_each(<[f32]>::reverse);
    }
}

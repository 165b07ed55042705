//! Scaled dot-product attention.

use burn::tensor::ops::FloatTensor;
use burn::tensor::{Shape, TensorMetadata};

use super::Operation;
use crate::kernels::attention::rotary::Rotary;
use crate::kernels::attention::{Attention as Kernel, Gradients, Inputs, Saved, backward, forward};
use crate::kernels::{dropout::Dropout, pool};
use crate::ops::host::Floats;
use crate::ops::precision::{Precision, precision};
use crate::ops::{AttentionOptions, Backend, IntoFloat, Mask, ScorePosition};

/// Attention of all heads.
#[derive(Debug, Clone)]
pub struct Attention<B: Backend> {
    projections: Projections<B>,
    sizes: Sizes,
    causal: bool,
    /// Hidden keys, `[batch, key_time]`.
    key_padding: Option<Vec<u8>>,
    /// Hidden pairs, `[batch, query_time, key_time]`.
    pairs: Option<Vec<u8>>,
    /// Cosines and sines.
    rotation: Option<[Floats<B>; 2]>,
    /// The bias by distance in the kernel's order, which is the other way round.
    bias: Option<Vec<f32>>,
    dropout: Option<Dropout>,
    /// Context and log-sum-exp.
    saved: Option<[Floats<B>; 2]>,
}

#[derive(Debug, Clone)]
enum Projections<B: Backend> {
    Packed(Floats<B>),
    Separate { query: Floats<B>, key: Floats<B>, value: Floats<B> },
}

#[derive(Debug, Clone, Copy)]
struct Sizes {
    batch: usize,
    query_time: usize,
    key_time: usize,
    heads: usize,
    key_value_heads: usize,
    d_head: usize,
}

/// From three projections; they are the inputs of the gradient, and the bias if there is one.
pub fn attention<B: Backend>(
    query: &FloatTensor<B>,
    key: &FloatTensor<B>,
    value: &FloatTensor<B>,
    options: &AttentionOptions<B>,
) -> Option<Attention<B>> {
    let ([batch, query_time, width], [_, key_time, _]) = (query.shape().dims(), key.shape().dims());
    let AttentionOptions { heads, key_value_heads, .. } = *options;
    let sizes = Sizes { batch, query_time, key_time, heads, key_value_heads, d_head: width / heads };
    let [query, key, value] = [Floats::new(query)?, Floats::new(key)?, Floats::new(value)?];
    Attention::new(Projections::Separate { query, key, value }, sizes, options)
}

/// From one packed projection; it is the input of the gradient, and the bias if there is one.
pub fn packed_attention<B: Backend>(
    query_key_value: &FloatTensor<B>,
    options: &AttentionOptions<B>,
) -> Option<Attention<B>> {
    let [batch, time, width] = query_key_value.shape().dims();
    let AttentionOptions { heads, key_value_heads, .. } = *options;
    let d_head = width / (heads + 2 * key_value_heads);
    let sizes = Sizes { batch, query_time: time, key_time: time, heads, key_value_heads, d_head };
    Attention::new(Projections::Packed(Floats::new(query_key_value)?), sizes, options)
}

impl<B: Backend> Attention<B> {
    fn new(projections: Projections<B>, sizes: Sizes, options: &AttentionOptions<B>) -> Option<Self> {
        if precision() != Precision::F32 {
            return None;
        }
        let (mut rotation, mut bias) = (None, None);
        match &options.position {
            ScorePosition::None => {}
            ScorePosition::Rotation { cosine, sine } => {
                let table = |table: &burn::tensor::Tensor<B, 2>| Floats::new(&table.clone().into_float());
                rotation = Some([table(cosine)?, table(sine)?]);
            }
            ScorePosition::Bias(by_distance) => {
                let by_distance = Floats::<B>::new(&by_distance.clone().into_float())?;
                bias = Some(each_row_reversed(by_distance.slice(), by_distance.width()));
            }
        }
        let Mask { causal, queries, keys, pairs } = &options.mask;
        // One mask for all sequences is spread by the composed operation.
        let batches = [queries.as_ref().map(|part| part.dims()[0]), keys.as_ref().map(|part| part.dims()[0])];
        let batches = batches.into_iter().chain([pairs.as_ref().map(|part| part.dims()[0])]).flatten();
        if batches.into_iter().any(|batch| batch != sizes.batch) {
            return None;
        }
        let read = |part: burn::tensor::ops::BoolTensor<B>| B::bools(&part);
        let key_padding = match keys {
            Some(keys) => Some(read(keys.clone().into_primitive())?),
            None => None,
        };
        let pairs = match pairs {
            Some(pairs) => Some(read(pairs.clone().into_primitive())?),
            None => None,
        };
        let pairs = match queries {
            Some(queries) => Some(with_queries(&read(queries.clone().into_primitive())?, pairs, &sizes)),
            None => pairs,
        };
        Some(Self {
            projections,
            sizes,
            causal: *causal,
            key_padding,
            pairs,
            rotation,
            bias,
            dropout: None,
            saved: None,
        })
    }

    /// With dropout of the weights.
    pub fn dropped(self, dropout: Option<Dropout>) -> Self {
        Self { dropout, ..self }
    }

    fn kernel(&self) -> Kernel<'_> {
        let Sizes { batch, query_time, key_time, heads, key_value_heads, d_head } = self.sizes;
        Kernel {
            key_value_heads,
            first_query: key_time.saturating_sub(query_time),
            causal: self.causal,
            key_padding: self.key_padding.as_deref(),
            mask: self.pairs.as_deref(),
            bias: self.bias.as_deref(),
            rotary: self
                .rotation
                .as_ref()
                .map(|[cosines, sines]| Rotary { cosines: cosines.slice(), sines: sines.slice() }),
            dropout: self.dropout,
            ..Kernel::new(batch, query_time, key_time, heads, d_head)
        }
    }
}

impl<B: Backend> Projections<B> {
    fn parts(&self) -> Vec<&Floats<B>> {
        match self {
            Self::Packed(packed) => vec![packed],
            Self::Separate { query, key, value } => vec![query, key, value],
        }
    }

    fn inputs(&self, kernel: &Kernel) -> Inputs<'_> {
        match self {
            Self::Packed(packed) => Inputs::packed(kernel, packed.slice()),
            Self::Separate { query, key, value } => {
                Inputs::separate(kernel, query.slice(), key.slice(), value.slice())
            }
        }
    }

    fn recycle(self) {
        match self {
            Self::Packed(packed) => packed.recycle(),
            Self::Separate { query, key, value } => [query, key, value].into_iter().for_each(Floats::recycle),
        }
    }
}

impl<B: Backend> Operation<B> for Attention<B> {
    fn forward(&mut self, keep: bool) -> FloatTensor<B> {
        let Sizes { batch, query_time, heads, d_head, .. } = self.sizes;
        let mut context = pool::take(batch * query_time * heads * d_head);
        let mut log_sum_exp = pool::take(batch * heads * query_time);
        let kernel = self.kernel();
        forward(&kernel, self.projections.inputs(&kernel), &mut context, &mut log_sum_exp);
        let beside = self.projections.parts()[0];
        let context = beside.keep(context, Shape::from([batch, query_time, heads * d_head]));
        let output = context.tensor();
        if keep {
            self.saved = Some([beside.keep(log_sum_exp, [batch * heads * query_time]), context]);
        }
        output
    }

    fn backward(self, gradient: FloatTensor<B>, wanted: &[bool]) -> Vec<Option<FloatTensor<B>>> {
        let gradient = Floats::<B>::contiguous(gradient);
        let [log_sum_exp, context] = self.saved.as_ref().expect("forward has run");
        let kernel = self.kernel();
        let parts = self.projections.parts();
        let mut buffers: Vec<_> = parts.iter().map(|part| pool::take(part.slice().len())).collect();
        let bias_is_wanted = wanted.get(parts.len()).is_some_and(|&wanted| wanted);
        let mut for_bias = self.bias.as_ref().filter(|_| bias_is_wanted).map(|bias| pool::take(bias.len()));
        let gradients = match buffers.as_mut_slice() {
            [packed] => Gradients::packed(&kernel, packed, for_bias.as_deref_mut()),
            [query, key, value] => Gradients::separate(&kernel, query, key, value, for_bias.as_deref_mut()),
            _ => unreachable!("projections are packed or three"),
        };
        let saved = Saved {
            context: context.slice(),
            log_sum_exp: log_sum_exp.slice(),
            context_gradient: gradient.slice(),
        };
        backward(&kernel, self.projections.inputs(&kernel), saved, gradients);

        let mut gradients: Vec<_> = (parts.iter().zip(buffers))
            .map(|(part, values)| Some(part.place(values, part.shape())))
            .collect();
        if self.bias.is_some() {
            let heads = self.sizes.heads;
            gradients.push(for_bias.map(|values| {
                let distances = values.len() / heads;
                let by_distance = each_row_reversed(&values, distances);
                crate::ops::host::tensor::<B>(
                    by_distance,
                    [heads, distances],
                    &B::float_device(&parts[0].tensor()),
                )
            }));
        }
        gradient.recycle();
        self.saved.into_iter().flatten().for_each(Floats::recycle);
        self.projections.recycle();
        gradients
    }
}

fn each_row_reversed(values: &[f32], width: usize) -> Vec<f32> {
    values.chunks_exact(width).flat_map(|row| row.iter().rev()).copied().collect()
}

/// Hides all pairs of the hidden queries.
fn with_queries(queries: &[u8], pairs: Option<Vec<u8>>, sizes: &Sizes) -> Vec<u8> {
    let Sizes { batch, query_time, key_time, .. } = *sizes;
    let mut pairs = pairs.unwrap_or_else(|| vec![0; batch * query_time * key_time]);
    for (row, hidden) in pairs.chunks_exact_mut(key_time).zip(queries) {
        if *hidden != 0 {
            row.fill(1);
        }
    }
    pairs
}

//! Attention by the kernels, forward and backward.

use burn::tensor::ops::FloatTensor;
use burn::tensor::{Bool, Shape, Tensor};

use super::{AttentionOptions, ScorePosition};
use crate::kernels::attention::rotary::Rotary;
use crate::kernels::attention::{Attention as Kernel, Gradients, Inputs, Saved, backward, forward};
use crate::kernels::{dropout::Dropout, pool};
use crate::ops::host::tensor;
use crate::ops::precision::{Precision, precision};
use crate::ops::{Backend, Floats, HostAccess, IntoFloat, Mask, Operation};

/// Attention of all heads.
#[derive(Debug, Clone)]
pub struct Attention<B: HostAccess> {
    /// Query, key and value, or one tensor of all three.
    projections: Vec<Floats<B>>,
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
    /// Dropout of the weights.
    pub dropout: Option<Dropout>,
    /// Context and log-sum-exp.
    saved: Option<[Floats<B>; 2]>,
}

#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    pub batch: usize,
    pub query_time: usize,
    pub key_time: usize,
    pub heads: usize,
    pub key_value_heads: usize,
    pub d_head: usize,
}

/// The operation without dropout, from three projections or a packed one; none where the kernels do not serve
/// it. A rotation that is learned has no fused gradient.
pub fn attention<'a, A: Backend>(
    projections: impl Iterator<Item = &'a FloatTensor<A>>,
    sizes: Sizes,
    options: &AttentionOptions<A>,
) -> Option<Attention<A::Host>> {
    if precision() != Precision::F32 {
        return None;
    }
    let projections = projections.map(|part| Floats::new(A::host(part))).collect::<Option<Vec<_>>>()?;
    let (mut rotation, mut bias) = (None, None);
    match &options.position {
        ScorePosition::None => {}
        ScorePosition::Rotation { cosine, sine } => {
            let table = |table: &Tensor<A, 2>| {
                let table = table.clone().into_float();
                if A::is_tracked(&table) { None } else { Floats::new(A::host(&table)) }
            };
            rotation = Some([table(cosine)?, table(sine)?]);
        }
        ScorePosition::Bias(by_distance) => {
            let by_distance = Floats::<A::Host>::new(A::host(&by_distance.clone().into_float()))?;
            bias = Some(each_row_reversed(by_distance.slice(), by_distance.width()));
        }
    }
    let Mask { causal, queries, keys, pairs } = &options.mask;
    let queries = read::<A, 2>(queries, sizes.batch)?;
    let keys = read::<A, 2>(keys, sizes.batch)?;
    let pairs = read::<A, 3>(pairs, sizes.batch)?;
    let pairs = match queries {
        Some(queries) => Some(with_queries(&queries, pairs, &sizes)),
        None => pairs,
    };
    let (causal, dropout, saved) = (*causal, None, None);
    Some(Attention { projections, sizes, causal, key_padding: keys, pairs, rotation, bias, dropout, saved })
}

/// A part of a mask; none where the kernels do not serve it. One mask for all sequences is spread by the
/// composed operation.
#[expect(clippy::option_option, reason = "a part may be absent, and one that is there may not be served")]
fn read<A: Backend, const D: usize>(
    part: &Option<Tensor<A, D, Bool>>,
    batch: usize,
) -> Option<Option<Vec<u8>>> {
    let Some(part) = part else { return Some(None) };
    if part.dims()[0] != batch {
        return None;
    }
    A::Host::bools(&part.clone().into_primitive()).map(Some)
}

impl<B: HostAccess> Attention<B> {
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

    fn inputs(&self, kernel: &Kernel) -> Inputs<'_> {
        match self.projections.as_slice() {
            [packed] => Inputs::packed(kernel, packed.slice()),
            [query, key, value] => Inputs::separate(kernel, query.slice(), key.slice(), value.slice()),
            _ => unreachable!("projections are packed or three"),
        }
    }
}

impl<B: HostAccess> Operation<B> for Attention<B> {
    fn forward(&mut self, keep: bool) -> FloatTensor<B> {
        let Sizes { batch, query_time, heads, d_head, .. } = self.sizes;
        let mut context = pool::take(batch * query_time * heads * d_head);
        let mut log_sum_exp = pool::take(batch * heads * query_time);
        let kernel = self.kernel();
        forward(&kernel, self.inputs(&kernel), &mut context, &mut log_sum_exp);
        let beside = &self.projections[0];
        let context = beside.keep(context, Shape::from([batch, query_time, heads * d_head]));
        let output = context.tensor();
        if keep {
            self.saved = Some([beside.keep(log_sum_exp, [batch * heads * query_time]), context]);
        }
        output
    }

    fn backward(self, gradient: &Floats<B>, wanted: &[bool]) -> Vec<Option<FloatTensor<B>>> {
        let [log_sum_exp, context] = self.saved.as_ref().expect("forward has run");
        let kernel = self.kernel();
        let parts = &self.projections;
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
        backward(&kernel, self.inputs(&kernel), saved, gradients);

        let mut gradients: Vec<_> = (parts.iter().zip(buffers))
            .map(|(part, values)| Some(part.place(values, part.shape())))
            .collect();
        if self.bias.is_some() {
            let heads = self.sizes.heads;
            gradients.push(for_bias.map(|values| {
                let distances = values.len() / heads;
                let by_distance = each_row_reversed(&values, distances);
                tensor::<B>(by_distance, [heads, distances], &B::float_device(&parts[0].tensor()))
            }));
        }
        self.saved.into_iter().flatten().for_each(Floats::recycle);
        self.projections.into_iter().for_each(Floats::recycle);
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

//! The outputs that a pass replaces before they are computed, so that attention and feed-forward layers stay fused.

use std::collections::HashMap;
use std::hash::Hash;

use burn::tensor::{Tensor, backend::Backend};

use crate::hooks::ReplacedOutput;

/// Returns the replaced outputs of the heads of a layer, or of a feed-forward layer, at `sites`: those replaced `in_all`
/// sequences, and in each of the `variants`, which follow each other in a batch of `rows` sequences. `None` if there are
/// none.
pub(super) fn replaced_output<B: Backend, S: Eq + Hash>(
    in_all: &HashMap<S, Tensor<B, 3>>,
    variants: &[&Vec<(S, Tensor<B, 3>)>],
    sites: &[S],
    [rows, time]: [usize; 2],
) -> Option<ReplacedOutput<B>> {
    let at = |site: &S, variant: &[(S, Tensor<B, 3>)]| {
        let own = variant.iter().find(|(replaced, _)| replaced == site).map(|(_, new)| new);
        own.or_else(|| in_all.get(site)).cloned()
    };
    let of_variant = |variant: &[(S, Tensor<B, 3>)]| sites.iter().map(|site| at(site, variant)).collect();
    let differ = variants.iter().any(|variant| variant.iter().any(|(site, _)| sites.contains(site)));
    let replaced: Vec<Vec<Option<Tensor<B, 3>>>> = match differ {
        true => variants.iter().map(|variant| of_variant(variant)).collect(),
        false => vec![of_variant(&[])],
    };
    let first = replaced.iter().flatten().flatten().next()?;
    let (size, [_, _, width], device) = (rows / variants.len().max(1), first.dims(), first.device());
    let computed = replaced.iter().flatten().any(Option::is_none).then(|| {
        let copies = if differ { size } else { 1 };
        let mask = replaced.iter().flat_map(|heads| std::iter::repeat_n(heads, copies)).flatten();
        let mask: Vec<f32> = mask.map(|new| f32::from(new.is_none())).collect();
        Tensor::<B, 1>::from_floats(mask.as_slice(), &device).reshape([replaced.len() * copies, sites.len()])
    });
    let sums = replaced.into_iter().map(|heads| {
        let sum = heads.into_iter().flatten().reduce(|sum, new| sum + new);
        sum.unwrap_or_else(|| Tensor::zeros([1, 1, width], &device))
    });
    let sum = match differ {
        true => Tensor::cat(sums.map(|sum| sum.expand([size, time, width])).collect(), 0),
        false => {
            let sum = sums.last().expect("one sum for all variants");
            if sum.dims()[0] > 1 { sum.repeat_dim(0, rows / size) } else { sum }
        }
    };
    Some(ReplacedOutput { computed, sum })
}

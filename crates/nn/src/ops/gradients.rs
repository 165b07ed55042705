//! Gradients outside the graph: their sums, and conversions from and to numbers on the host.

use burn::tensor::ops::FloatTensor;
use burn::tensor::{Shape, TensorData, backend::Backend};

use super::float;
use super::host::{self, Floats};
use crate::kernels::{pool, sums};

/// Returns the sum of tensors of one shape, added along a binary tree in their order: `(a + b) + (c + d)` and so on. If
/// the kernels can read all tensors, the sum takes one pass and the memory of the first.
///
/// # Panics
/// If `parts` is empty.
pub fn sum<B: Backend>(parts: Vec<FloatTensor<B>>) -> FloatTensor<B> {
    if !parts.iter().all(|part| host::slice::<B>(part).is_some()) {
        let sum = sum_in_order(parts.into_iter().map(Some), B::float_add);
        return sum.expect("a sum has at least one part");
    }
    let device = B::float_device(&parts[0]);
    let mut parts = parts.into_iter().map(Floats::contiguous::<B>);
    let first = parts.next().expect("a sum has at least one part");
    let (shape, others, mut sum) = (first.shape(), parts.collect::<Vec<_>>(), first.into_vec());
    sums::add_all(&mut sum, &others.iter().map(Floats::slice).collect::<Vec<_>>());
    others.into_iter().for_each(Floats::recycle);
    host::tensor::<B>(sum, shape, &device)
}

/// Appends the elements of a tensor to `to`, in row-major order.
pub fn append<B: Backend>(gradient: FloatTensor<B>, to: &mut Vec<f32>) {
    if host::slice::<B>(&gradient).is_some() {
        let gradient = Floats::contiguous::<B>(gradient);
        to.extend_from_slice(gradient.slice());
        return gradient.recycle();
    }
    to.extend(float::<B, 1>(gradient).into_data().iter::<f32>());
}

/// Creates a tensor with these elements.
pub fn from_numbers<B: Backend>(numbers: &[f32], shape: Shape, device: &B::Device) -> FloatTensor<B> {
    let mut values = pool::take(numbers.len());
    values.copy_from_slice(numbers);
    B::float_from_data(TensorData::new(values.into_vec(), shape), device)
}

/// Returns the sum of `parts` along a binary tree over their indices: `add` joins neighbours, then their sums. A
/// missing part adds nothing, so the number of parts need not be a power of two.
pub fn sum_in_order<T>(parts: impl Iterator<Item = Option<T>>, mut add: impl FnMut(T, T) -> T) -> Option<T> {
    let mut sums: Vec<(u32, Option<T>)> = Vec::new();
    let mut join = |left, right| match (left, right) {
        (Some(left), Some(right)) => Some(add(left, right)),
        (left, right) => left.or(right),
    };
    for part in parts {
        let (mut level, mut sum) = (0, part);
        while let Some((_, left)) = sums.pop_if(|(of, _)| *of == level) {
            sum = join(left, sum);
            level += 1;
        }
        sums.push((level, sum));
    }
    sums.into_iter().map(|(_, sum)| sum).rev().reduce(|right, left| join(left, right)).flatten()
}

#[cfg(test)]
mod tests {
    use burn_ndarray::NdArray;

    use super::*;
    use crate::kernels::random::random;
    use crate::ops::primitive;
    use burn::tensor::Tensor;

    #[test]
    fn parts_are_added_along_a_binary_tree() {
        let written = |parts: &[&str]| {
            let parts = parts.iter().map(|part| (!part.is_empty()).then(|| part.to_string()));
            sum_in_order(parts, |a, b| format!("({a}{b})")).unwrap_or_default()
        };
        assert_eq!(written(&["a"]), "a");
        assert_eq!(written(&["a", "b", "c", "d"]), "((ab)(cd))");
        assert_eq!(written(&["a", "b", "c", "d", "e", "f", "g", "h"]), "(((ab)(cd))((ef)(gh)))");
        assert_eq!(written(&["a", "b", "c", ""]), "((ab)c)");
        assert_eq!(written(&["", ""]), "");
    }

    #[test]
    fn single_pass_sum_matches_tree_reduction_bitwise() {
        for (count, length) in [(1, 5), (2, 100_000), (3, 7), (5, 4_097), (8, 12_345)] {
            let parts = || (0..count).map(|part| random(part + 1, length));
            let device = Default::default();
            let tensor = |numbers: Vec<f32>| Tensor::<NdArray, 1>::from_data(numbers.as_slice(), &device);
            let sum = sum::<NdArray>(parts().map(|part| primitive(tensor(part))).collect());
            let tree_sum = sum_in_order(parts().map(Some), |mut left, right| {
                left.iter_mut().zip(right).for_each(|(left, right)| *left += right);
                left
            });
            let mut numbers = Vec::new();
            append::<NdArray>(sum, &mut numbers);
            assert_eq!(Some(numbers), tree_sum, "{count} of {length}");
        }
    }
}

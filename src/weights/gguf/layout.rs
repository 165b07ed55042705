//! The differences between the layout of a tensor in a file and in transformers.

use burn::tensor::TensorData;

use crate::weights::file::{LazyTensor, transposed};

/// The layout of a tensor in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TensorLayout {
    /// The layout in transformers.
    Same,
    /// `[out, in]`, where transformers has `[in, out]`.
    Transposed,
    /// One more than in transformers, whose norms scale by $1 + w$.
    PlusOne,
    /// The rows of each query head are rotated pairs, where transformers has the first of all pairs, then the second.
    InterleavedQueries,
    /// Same as [`Self::InterleavedQueries`], for keys.
    InterleavedKeys,
    /// The rows are all queries, then all keys, then all values, where transformers has those of a head together.
    SplitHeads,
}

impl TensorLayout {
    /// Converts a tensor to transformers' layout; returns `None` if its rows do not fit the number of heads.
    pub fn converted(self, tensor: LazyTensor, heads: usize) -> Option<LazyTensor> {
        let rows = tensor.shape[0];
        let fits = |parts: usize| heads > 0 && rows.is_multiple_of(parts * heads);
        match self {
            Self::Same => Some(tensor),
            Self::Transposed => {
                let shape = tensor.shape.iter().rev().copied().collect();
                Some(LazyTensor::new(tensor.name.clone(), shape, move || tensor.read().map(transposed)))
            }
            Self::PlusOne => {
                let minus_one = |data: TensorData| {
                    let values = data.iter::<f32>().map(|value| value - 1.0).collect::<Vec<_>>();
                    TensorData::new(values, data.shape)
                };
                let (name, shape) = (tensor.name.clone(), tensor.shape.clone());
                Some(LazyTensor::new(name, shape, move || tensor.read().map(minus_one)))
            }
            Self::InterleavedQueries | Self::InterleavedKeys => fits(2).then(|| {
                let width = rows / heads;
                with_rows(tensor, move |row| {
                    let (head, at) = (row / width, row % width);
                    let (second, pair) = (at / (width / 2), at % (width / 2));
                    head * width + 2 * pair + second
                })
            }),
            Self::SplitHeads => fits(3).then(|| {
                let width = rows / heads / 3;
                with_rows(tensor, move |row| {
                    let (head, at) = (row / (3 * width), row % (3 * width));
                    (at / width * heads + head) * width + at % width
                })
            }),
        }
    }
}

/// Reorders the rows of a tensor; `source` maps a row to its index in `tensor`.
fn with_rows(tensor: LazyTensor, source: impl Fn(usize) -> usize + 'static) -> LazyTensor {
    let (name, shape) = (tensor.name.clone(), tensor.shape.clone());
    LazyTensor::new(name, shape, move || {
        let data = tensor.read()?;
        let values = data.as_slice::<f32>().expect("weights are 32-bit floats");
        let width = values.len() / tensor.shape[0];
        let rows = (0..tensor.shape[0]).map(|row| source(row) * width);
        let values = rows.flat_map(|start| &values[start..start + width]).copied().collect::<Vec<_>>();
        Ok(TensorData::new(values, tensor.shape.clone()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Converts a matrix whose rows are numbered.
    fn rows(layout: TensorLayout, count: usize, heads: usize) -> Option<Vec<f32>> {
        let values = (0..count).flat_map(|row| [row as f32; 3]).collect::<Vec<_>>();
        let tensor = LazyTensor::from_data("a".into(), TensorData::new(values, [count, 3]));
        let converted = layout.converted(tensor, heads)?.read().unwrap();
        Some(converted.as_slice::<f32>().unwrap().chunks(3).map(|row| row[2]).collect())
    }

    #[test]
    fn rows_are_in_the_order_of_transformers() {
        let pairs = [0., 2., 4., 1., 3., 5., 6., 8., 10., 7., 9., 11.];
        assert_eq!(rows(TensorLayout::InterleavedQueries, 12, 2).unwrap(), pairs);
        // Two heads of width 2: queries are 0 to 3, keys 4 to 7, values 8 to 11.
        let by_head = [0., 1., 4., 5., 8., 9., 2., 3., 6., 7., 10., 11.];
        assert_eq!(rows(TensorLayout::SplitHeads, 12, 2).unwrap(), by_head);
        for heads in [0, 4, 7] {
            assert_eq!(rows(TensorLayout::InterleavedKeys, 12, heads), None, "{heads}");
        }
    }

    #[test]
    fn values_are_those_of_transformers() {
        let tensor = |shape: Vec<usize>| {
            LazyTensor::from_data("a".into(), TensorData::new(vec![1f32, 2., 3., 4., 5., 6.], shape))
        };
        let converted = TensorLayout::Transposed.converted(tensor(vec![2, 3]), 0).unwrap();
        assert_eq!(converted.shape, [3, 2]);
        assert_eq!(converted.read().unwrap(), TensorData::new(vec![1f32, 4., 2., 5., 3., 6.], [3, 2]));
        let converted = TensorLayout::PlusOne.converted(tensor(vec![6]), 0).unwrap();
        assert_eq!(converted.read().unwrap(), TensorData::new(vec![0f32, 1., 2., 3., 4., 5.], [6]));
    }
}

//! Positions in packed documents: they count from 0 in each document.

use burn::tensor::{Int, Tensor, TensorData, backend::Backend};

/// The lengths of the documents of a batch, in order. A document that is cut at the end of its sequence has the length
/// of its part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentPositions {
    lengths: Vec<usize>,
}

impl DocumentPositions {
    /// Finds the documents of a batch, given the document of each token, `[batch][time]`. Adjacent tokens of a sequence
    /// with the same number form a document.
    pub fn new(documents: &[Vec<u32>]) -> Self {
        let parts = documents.iter().flat_map(|sequence| sequence.chunk_by(|a, b| a == b));
        Self { lengths: parts.map(<[u32]>::len).collect() }
    }

    /// Returns the number of tokens of the longest document.
    pub fn longest(&self) -> usize {
        self.lengths.iter().copied().max().unwrap_or(0)
    }

    /// Returns the length of each document.
    pub(super) fn lengths(&self) -> &[usize] {
        &self.lengths
    }

    /// Returns the rows of `table`, `[positions, d_model]`, for every token: `[batch * time, d_model]`.
    pub(super) fn select<B: Backend>(&self, table: Tensor<B, 2>) -> Tensor<B, 2> {
        let positions = self.lengths.iter().flat_map(|&length| 0..length as i64).collect();
        select(table, positions)
    }
}

/// Returns the rows of `table` at `positions`.
pub(super) fn select<B: Backend>(table: Tensor<B, 2>, positions: Vec<i64>) -> Tensor<B, 2> {
    let (count, device) = (positions.len(), table.device());
    table.select(0, Tensor::<B, 1, Int>::from_data(TensorData::new(positions, [count]), &device))
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn_ndarray::NdArray;

    #[test]
    fn positions_restart_at_each_document_and_sequence() {
        let documents = DocumentPositions::new(&[vec![4, 4, 7, 4, 4], vec![4, 4, 4, 4, 9]]);
        assert_eq!((documents.lengths(), documents.longest()), (&[2, 1, 2, 4, 1][..], 4));
        let table = Tensor::<NdArray, 1, Int>::arange(0..7, &Default::default()).float().reshape([7, 1]);
        let rows = documents.select(table).into_data().to_vec::<f32>().unwrap();
        assert_eq!(rows, [0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 1.0, 2.0, 3.0, 0.0]);
    }
}

//! Packs a native parameter from foreign tensors, and unpacks it again.

use super::super::file::LazyTensor;
use crate::error::Result;
use burn::tensor::TensorData;

/// A native parameter: the columns of one foreign tensor, or the concatenated columns of several.
#[derive(Debug, Clone)]
pub struct TensorEntry {
    /// The native name.
    pub ours: String,
    /// The number of rows; `None` for a vector.
    pub rows: Option<usize>,
    /// The foreign tensors that the parameter consists of.
    pub parts: Vec<TensorPart>,
}

/// A foreign tensor.
#[derive(Debug, Clone)]
pub struct TensorPart {
    /// The foreign name.
    pub theirs: String,
    /// The number of columns in the native parameter.
    pub columns: usize,
    /// True if the foreign layout is `[out, in]`, the transpose of the native one.
    pub is_transposed: bool,
    /// The order of the columns.
    pub order: ColumnOrder,
}

/// The order of the columns of a foreign tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnOrder {
    /// The native order.
    Native,
    /// Heads of this width with rotary positions.
    Rotary(RotatedHead),
    /// Same as [`Self::Rotary`] up to a column, then the native order.
    RotaryUntil {
        /// The number of columns of heads with rotary positions.
        columns: usize,
        /// Their heads.
        head: RotatedHead,
    },
    /// The query, key and value of the first head, then those of the next one, and so on, instead of all queries first.
    ByHead {
        /// The number of heads.
        heads: usize,
        /// The columns of a query or key.
        head: RotatedHead,
    },
}

/// The columns of a head with rotary positions. The foreign layout rotates the pairs (i, i + rotated / 2), the native one
/// the neighbours (2i, 2i + 1), so the rotated columns of a head are permuted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RotatedHead {
    /// The width of the head.
    pub width: usize,
    /// The number of its first columns that are rotated.
    pub rotated: usize,
}

impl RotatedHead {
    /// Returns the native column of a foreign column.
    fn native(self, column: usize) -> usize {
        let half = (self.rotated / 2).max(1);
        if column < self.rotated { 2 * (column % half) + column / half } else { column }
    }
}

impl ColumnOrder {
    /// Returns the native column of a foreign column.
    fn native(self, column: usize) -> usize {
        match self {
            Self::Native => column,
            Self::RotaryUntil { columns, .. } if column >= columns => column,
            Self::Rotary(head) | Self::RotaryUntil { head, .. } => {
                column / head.width * head.width + head.native(column % head.width)
            }
            Self::ByHead { heads, head } => {
                let (part, column, of_head) =
                    (column / head.width % 3, column % head.width, column / (3 * head.width));
                // Values are not rotated.
                let column = if part < 2 { head.native(column) } else { column };
                (part * heads + of_head) * head.width + column
            }
        }
    }
}

/// Returns the entries of a module that concatenates foreign modules. A linear layer or a table has `rows`; a norm has
/// a weight, and a bias if `has_bias`.
pub fn module(
    ours: &str,
    rows: Option<usize>,
    has_bias: bool,
    parts: &[TensorPart],
) -> impl Iterator<Item = TensorEntry> {
    let [weight, bias] = if rows.is_some() { ["weight", "bias"] } else { ["gamma", "beta"] };
    let entry = |name: &str, theirs: &str, rows| {
        let part =
            |part: &TensorPart| TensorPart { theirs: format!("{}.{theirs}", part.theirs), ..part.clone() };
        TensorEntry { ours: format!("{ours}.{name}"), rows, parts: parts.iter().map(part).collect() }
    };
    let bias = has_bias.then(|| entry(bias, "bias", None));
    [entry(weight, "weight", rows)].into_iter().chain(bias)
}

impl TensorEntry {
    /// Returns the native shape.
    pub fn shape(&self) -> Vec<usize> {
        let columns = self.parts.iter().map(|part| part.columns).sum();
        self.rows.into_iter().chain([columns]).collect()
    }

    /// Returns the foreign shape of a part.
    pub fn shape_of(&self, part: &TensorPart) -> Vec<usize> {
        match (self.rows, part.is_transposed) {
            (None, _) => vec![part.columns],
            (Some(rows), true) => vec![part.columns, rows],
            (Some(rows), false) => vec![rows, part.columns],
        }
    }

    /// Returns true if the parameter is a single foreign tensor with the same layout.
    fn is_identity(&self) -> bool {
        matches!(&self.parts[..], [part] if part.order == ColumnOrder::Native && (self.rows.is_none() || !part.is_transposed))
    }

    /// Packs the parameter from the tensors of its parts. Each tensor is read once, when the parameter is read.
    pub fn packed(self, theirs: Vec<LazyTensor>) -> LazyTensor {
        let (name, shape) = (self.ours.clone(), self.shape());
        if self.is_identity() {
            return theirs.into_iter().next().expect("an entry has a part").renamed(name);
        }
        LazyTensor::new(name, shape.clone(), move || {
            let mut ours = vec![0.0; shape.iter().product()];
            for (at, tensor) in theirs.iter().enumerate() {
                let data = tensor.read()?;
                let theirs = data.as_slice::<f32>().expect("weights are 32-bit floats");
                self.pairs(at, |native, foreign| ours[native] = theirs[foreign]);
            }
            Ok(TensorData::new(ours, shape.clone()))
        })
    }

    /// Unpacks the tensors of the parts from the parameter.
    pub fn unpacked(self, ours: LazyTensor) -> Vec<LazyTensor> {
        if self.is_identity() {
            return vec![ours.renamed(self.parts[0].theirs.clone())];
        }
        let part = |at: usize| {
            let (entry, ours) = (self.clone(), ours.clone());
            let part = &self.parts[at];
            let shape = self.shape_of(part);
            LazyTensor::new(part.theirs.clone(), shape.clone(), move || -> Result<_> {
                let data = ours.read()?;
                let ours = data.as_slice::<f32>().expect("weights are 32-bit floats");
                let mut theirs = vec![0.0; shape.iter().product()];
                entry.pairs(at, |native, foreign| theirs[foreign] = ours[native]);
                Ok(TensorData::new(theirs, shape.clone()))
            })
        };
        (0..self.parts.len()).map(part).collect()
    }

    /// Calls `pair` with the two indices of each value of a part: in the parameter, and in the foreign tensor.
    fn pairs(&self, part: usize, mut pair: impl FnMut(usize, usize)) {
        let columns: usize = self.parts.iter().map(|part| part.columns).sum();
        let start: usize = self.parts[..part].iter().map(|part| part.columns).sum();
        let part = &self.parts[part];
        let rows = self.rows.unwrap_or(1);
        for column in 0..part.columns {
            let native = start + part.order.native(column);
            for row in 0..rows {
                let foreign =
                    if part.is_transposed { column * rows + row } else { row * part.columns + column };
                pair(row * columns + native, foreign);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lazy(name: &str, shape: &[usize], first: u16) -> LazyTensor {
        let values: Vec<_> = (first..).map(f32::from).take(shape.iter().product()).collect();
        LazyTensor::from_data(name.into(), TensorData::new(values, shape.to_vec()))
    }

    #[test]
    fn packing_interleaves_rotary_halves_and_unpacks() {
        // Two rows: two heads of four columns with rotary positions, and three columns without.
        let part = |theirs: &str, columns, order| TensorPart {
            theirs: theirs.into(),
            columns,
            is_transposed: true,
            order,
        };
        let rotary = ColumnOrder::Rotary(RotatedHead { width: 4, rotated: 4 });
        let parts = vec![part("q", 8, rotary), part("v", 3, ColumnOrder::Native)];
        let entry = TensorEntry { ours: "qkv".into(), rows: Some(2), parts };
        assert_eq!(entry.shape(), [2, 11]);
        let theirs = vec![lazy("q", &[8, 2], 0), lazy("v", &[3, 2], 100)];
        let ours = entry.clone().packed(theirs.clone());
        let expected =
            [[0, 4, 2, 6, 8, 12, 10, 14, 100, 102, 104], [1, 5, 3, 7, 9, 13, 11, 15, 101, 103, 105]];
        assert_eq!(
            ours.read().unwrap().to_vec::<f32>().unwrap(),
            expected.as_flattened().iter().map(|&i| i as f32).collect::<Vec<_>>()
        );
        for (again, theirs) in entry.unpacked(ours).iter().zip(&theirs) {
            assert_eq!((&again.name, again.read().unwrap()), (&theirs.name, theirs.read().unwrap()));
        }
    }

    #[test]
    fn queries_keys_and_values_by_head_are_grouped_by_kind() {
        // Two heads of width 4, of which the first two columns are rotated: a permutation without effect for two columns.
        let by_head = |rotated| ColumnOrder::ByHead { heads: 2, head: RotatedHead { width: 4, rotated } };
        let native: Vec<usize> = (0..24).map(|column| by_head(2).native(column)).collect();
        let starts = [0, 8, 16, 4, 12, 20];
        let expected: Vec<usize> = starts.iter().flat_map(|start| *start..start + 4).collect();
        assert_eq!(native, expected);
        let native: Vec<usize> = (0..12).map(|column| by_head(4).native(column)).collect();
        assert_eq!(native, [0, 2, 1, 3, 8, 10, 9, 11, 16, 17, 18, 19]);
    }
}

//! How a parameter is put together from the tensors of another program, and taken apart again.

use super::super::file::LazyTensor;
use crate::error::Result;
use burn::tensor::TensorData;

/// A parameter here: side by side, the columns of one tensor there or of several.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Its name here.
    pub ours: String,
    /// Its rows; none where it is a vector.
    pub rows: Option<usize>,
    /// What it is made of.
    pub parts: Vec<Part>,
}

/// A tensor there.
#[derive(Debug, Clone)]
pub struct Part {
    /// Its name there.
    pub theirs: String,
    /// Its columns here.
    pub columns: usize,
    /// Whether it lies there as `[out, in]`, the transpose of what lies here.
    pub is_transposed: bool,
    /// The width of its heads, where rotary positions turn them. They turn the pairs (i, i + width / 2) there and the
    /// neighbours (2i, 2i + 1) here, so the columns of a head are in another order.
    pub turned: Option<usize>,
}

/// The parameters of a module that is made of modules there, side by side: of a linear layer or a table, which has
/// rows, or of a norm the weight, and the bias where it has one.
pub fn module(
    ours: &str,
    rows: Option<usize>,
    has_bias: bool,
    parts: &[Part],
) -> impl Iterator<Item = Entry> {
    let [weight, bias] = if rows.is_some() { ["weight", "bias"] } else { ["gamma", "beta"] };
    let entry = |name: &str, theirs: &str, rows| {
        let part = |part: &Part| Part { theirs: format!("{}.{theirs}", part.theirs), ..part.clone() };
        Entry { ours: format!("{ours}.{name}"), rows, parts: parts.iter().map(part).collect() }
    };
    let bias = has_bias.then(|| entry(bias, "bias", None));
    [entry(weight, "weight", rows)].into_iter().chain(bias)
}

impl Entry {
    /// Its shape here.
    pub fn shape(&self) -> Vec<usize> {
        let columns = self.parts.iter().map(|part| part.columns).sum();
        self.rows.into_iter().chain([columns]).collect()
    }

    /// The shape of a part there.
    pub fn shape_of(&self, part: &Part) -> Vec<usize> {
        match (self.rows, part.is_transposed) {
            (None, _) => vec![part.columns],
            (Some(rows), true) => vec![part.columns, rows],
            (Some(rows), false) => vec![rows, part.columns],
        }
    }

    /// Whether it is one tensor there, which lies as it does here.
    fn is_the_same(&self) -> bool {
        matches!(&self.parts[..], [part] if part.turned.is_none() && (self.rows.is_none() || !part.is_transposed))
    }

    /// The parameter out of its parts' tensors. Each is read once, when the parameter is.
    pub fn packed(self, theirs: Vec<LazyTensor>) -> LazyTensor {
        let (name, shape) = (self.ours.clone(), self.shape());
        if self.is_the_same() {
            return theirs.into_iter().next().expect("an entry has a part").renamed(name);
        }
        LazyTensor::new(name, shape.clone(), move || {
            let mut ours = vec![0.0; shape.iter().product()];
            for (at, tensor) in theirs.iter().enumerate() {
                let data = tensor.read()?;
                let theirs = data.as_slice::<f32>().expect("weights are 32-bit floats");
                self.pairs(at, |here, there| ours[here] = theirs[there]);
            }
            Ok(TensorData::new(ours, shape.clone()))
        })
    }

    /// The parts' tensors out of the parameter.
    pub fn unpacked(self, ours: LazyTensor) -> Vec<LazyTensor> {
        if self.is_the_same() {
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
                entry.pairs(at, |here, there| theirs[there] = ours[here]);
                Ok(TensorData::new(theirs, shape.clone()))
            })
        };
        (0..self.parts.len()).map(part).collect()
    }

    /// Calls `pair` with the places of each number of a part: in the parameter, and in the part's own tensor.
    fn pairs(&self, part: usize, mut pair: impl FnMut(usize, usize)) {
        let columns: usize = self.parts.iter().map(|part| part.columns).sum();
        let start: usize = self.parts[..part].iter().map(|part| part.columns).sum();
        let part = &self.parts[part];
        let rows = self.rows.unwrap_or(1);
        for column in 0..part.columns {
            let here = start
                + part.turned.map_or(column, |width| {
                    let (head, i) = (column / width, column % width);
                    let half = width / 2;
                    head * width + 2 * (i % half) + i / half
                });
            for row in 0..rows {
                let there =
                    if part.is_transposed { column * rows + row } else { row * part.columns + column };
                pair(row * columns + here, there);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lazy(name: &str, shape: &[usize], first: u16) -> LazyTensor {
        let values: Vec<_> = (first..).map(f32::from).take(shape.iter().product()).collect();
        LazyTensor::held(name.into(), TensorData::new(values, shape.to_vec()))
    }

    #[test]
    fn halves_become_neighbours_and_parts_stand_side_by_side_and_all_come_back() {
        // Two heads of four columns that rotate, and three that do not, of two rows.
        let part = |theirs: &str, columns, turned| Part {
            theirs: theirs.into(),
            columns,
            is_transposed: true,
            turned,
        };
        let parts = vec![part("q", 8, Some(4)), part("v", 3, None)];
        let entry = Entry { ours: "qkv".into(), rows: Some(2), parts };
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
}

//! The tensors of a family of models: their names in other programs, ours, and how they lie.

use std::collections::BTreeMap;
use std::path::Path;

use burn::tensor::TensorData;

use super::listed;
use super::native::Tensors;
use crate::error::{Error, Result};

/// One tensor.
#[derive(Debug)]
pub struct Entry {
    /// Its name elsewhere.
    pub theirs: String,
    /// Its name here.
    pub ours: String,
    /// Its shape here.
    pub shape: Vec<usize>,
    /// Whether it is the transpose of ours.
    pub is_transposed: bool,
}

/// The tensors of a model under our names. `origin` is the file that errors name, `family` what it should hold.
///
/// # Errors
/// One that lists up to 32 tensors that are missing, left over or of another shape.
pub fn import(
    entries: Vec<Entry>,
    mut theirs: BTreeMap<String, TensorData>,
    family: &str,
    origin: &Path,
) -> Result<Tensors> {
    let mut ours = Vec::new();
    let mut problems = Vec::new();
    for Entry { theirs: name, ours: our_name, mut shape, is_transposed } in entries {
        if is_transposed {
            shape.reverse();
        }
        match theirs.remove(&name) {
            None => problems.push(format!("`{name}` is missing")),
            Some(data) if data.shape.to_vec() != shape => {
                problems.push(format!("`{name}` is {:?}, not {shape:?}", data.shape.to_vec()))
            }
            Some(data) => ours.push((our_name, if is_transposed { transposed(data) } else { data })),
        }
    }
    problems.extend(theirs.keys().map(|name| format!("`{name}` is left over")));
    match problems.is_empty() {
        true => Ok(ours),
        false => {
            let problem = format!("holds no such {family}: {}", listed(&problems));
            Err(Error::file(origin, None, None, problem))
        }
    }
}

/// The tensors of a model under their names. One that `has_biases` not computes as if these were zeros, which are
/// added.
pub fn export(entries: Vec<Entry>, ours: Tensors, has_biases: bool) -> Result<Tensors> {
    let mut ours: BTreeMap<String, TensorData> = ours.into_iter().collect();
    let their = |entry: Entry| match ours.remove(&entry.ours) {
        Some(data) if entry.is_transposed => Ok((entry.theirs, transposed(data))),
        Some(data) => Ok((entry.theirs, data)),
        None if entry.shape.len() == 1 && !has_biases => {
            Ok((entry.theirs, TensorData::zeros::<f32, _>(entry.shape)))
        }
        None => Err(Error::Failed(format!("the weights lack `{}`", entry.ours))),
    };
    entries.into_iter().map(their).collect()
}

/// The transpose of a matrix: from PyTorch's layout of a linear layer, `[out, in]`, to Burn's,
/// `[in, out]`, and back. What is no matrix stays as it is.
pub fn transposed(data: TensorData) -> TensorData {
    let [rows, columns] = data.shape[..] else { return data };
    let values: Vec<f32> = data.iter::<f32>().collect();
    let columns_first = (0..columns).flat_map(|column| (0..rows).map(move |row| row * columns + column));
    TensorData::new(columns_first.map(|at| values[at]).collect::<Vec<_>>(), [columns, rows])
}

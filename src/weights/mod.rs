//! Weights from and to files.
//!
//! | file | holds |
//! |---|---|
//! | [`native`] | the project's own naming: each parameter under its path in the model |
//! | [`checkpoint`] | the tensors of other programs' files: safetensors, shards, PyTorch |
//! | [`gpt2`] | GPT-2's naming, which nanoGPT shares, and its config |
//! | [`export`](mod@export) | a model as files for another program |
//! | `file` | the bytes of a weights file |
//! | [`import`](mod@import) | a model out of another program's files |
//! | [`tokenizer`] | the tokenizer that comes along |

pub mod checkpoint;
pub mod export;
mod file;
pub mod gpt2;
pub mod import;
pub mod native;
pub mod tokenizer;

use burn::tensor::TensorData;

/// What is wrong with a file's tensors, on one line: the first of it, and how much more there is.
fn listed(problems: &[String]) -> String {
    const SHOWN: usize = 32;
    let shown = problems[..problems.len().min(SHOWN)].join(", ");
    match problems.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown}, and {more} more"),
    }
}

/// The transpose of a matrix: from PyTorch's layout of a linear layer, `[out, in]`, to Burn's,
/// `[in, out]`, and back. What is no matrix stays as it is.
fn transposed(data: TensorData) -> TensorData {
    let [rows, columns] = data.shape[..] else { return data };
    let values: Vec<f32> = data.iter::<f32>().collect();
    let columns_first = (0..columns).flat_map(|column| (0..rows).map(move |row| row * columns + column));
    TensorData::new(columns_first.map(|at| values[at]).collect::<Vec<_>>(), [columns, rows])
}

//! Import, export and storage of weights.
//!
//! | file | holds |
//! |---|---|
//! | [`mod@file`] | the bytes of a weights file, and its tensors |
//! | [`native`] | the native format: each parameter under its path in the model |
//! | [`foreign`] | tensors in foreign files: safetensors, shards, PyTorch |
//! | [`companions`] | metadata next to foreign weights: special tokens, generation settings |
//! | [`families`] | names and configs of foreign models: GPT-2, Llama and related families |
//! | [`gguf`] | tensors, config and tokenizer of GGUF files |
//! | [`export`](mod@export) | exports a model for another program |
//! | [`import`](mod@import) | imports a model of another program |
//! | [`tokenizer`] | the tokenizer next to the weights |

pub mod companions;
pub mod export;
pub mod families;
pub mod file;
pub mod foreign;
pub mod gguf;
pub mod import;
pub mod native;
pub mod tokenizer;

use std::path::Path;

use burn::tensor::TensorData;

use crate::error::{Error, Result};

/// Refuses the file `origin` if its tensors have any problems. The error consists of `summary`, the first problems, and
/// the number of further ones, on one line.
fn refuse(origin: &Path, problems: &[String], summary: &str) -> Result<()> {
    const MAX_SHOWN: usize = 32;
    let mut shown = problems[..problems.len().min(MAX_SHOWN)].join(", ");
    if problems.len() > MAX_SHOWN {
        shown += &format!(", and {} more", problems.len() - MAX_SHOWN);
    }
    if problems.is_empty() { Ok(()) } else { Err(Error::file(origin, format!("{summary}: {shown}"))) }
}

/// The error for non-finite weights, which come from a diverged run or a damaged file.
const NOT_FINITE: &str = "contains non-finite weights (its training diverged, or the file is damaged; copy or export \
                          it again)";

/// Returns the name of a tensor with non-finite values, in backquotes; `None` if all values are finite.
fn not_finite(name: &str, data: &TensorData) -> Option<String> {
    let is_finite = |values: &[f32]| values.iter().all(|value| value.is_finite());
    (!data.as_slice().is_ok_and(is_finite)).then(|| format!("`{name}`"))
}

//! Weights from and to files.
//!
//! | file | holds |
//! |---|---|
//! | [`mod@file`] | the bytes of a weights file, and the tensors in it |
//! | [`native`] | the project's own naming: each parameter under its path in the model |
//! | [`checkpoint`] | the tensors of other programs' files: safetensors, shards, PyTorch |
//! | [`companions`] | what else those files say: special tokens, how texts are generated |
//! | [`families`] | the names and configs of other programs' models: GPT-2, Llama and those like it |
//! | [`export`](mod@export) | a model as files for another program |
//! | [`import`](mod@import) | a model out of another program's files |
//! | [`tokenizer`] | the tokenizer that comes along |

pub mod checkpoint;
pub mod companions;
pub mod export;
pub mod families;
pub mod file;
pub mod import;
pub mod native;
pub mod tokenizer;

use std::path::Path;

use burn::tensor::TensorData;

use crate::error::{Error, Result};

/// Refuses the file `origin` for what is wrong with its tensors, where anything is: `told` comes before the first
/// problems, and how many more there are, on one line.
fn refuse(origin: &Path, problems: &[String], told: &str) -> Result<()> {
    const SHOWN: usize = 32;
    let mut shown = problems[..problems.len().min(SHOWN)].join(", ");
    if problems.len() > SHOWN {
        shown += &format!(", and {} more", problems.len() - SHOWN);
    }
    if problems.is_empty() { Ok(()) } else { Err(Error::file(origin, format!("{told}: {shown}"))) }
}

/// What is said of weights that are no numbers: they come from a run that diverged, or from a damaged file.
const NOT_FINITE: &str = "holds weights that are not finite, for its training has diverged, or the file is damaged; copy \
                          or export it anew. They are in";

/// The name of a tensor that holds such.
fn not_finite(name: &str, data: &TensorData) -> Option<String> {
    let is_finite = |values: &[f32]| values.iter().all(|value| value.is_finite());
    (!data.as_slice().is_ok_and(is_finite)).then(|| format!("`{name}`"))
}

//! Weights from and to files.
//!
//! | file | holds |
//! |---|---|
//! | [`mod@file`] | the bytes of a weights file, and the tensors in it |
//! | [`native`] | the project's own naming: each parameter under its path in the model |
//! | [`checkpoint`] | the tensors of other programs' files: safetensors, shards, PyTorch |
//! | [`gpt2`] | GPT-2's names, which nanoGPT shares, and its config |
//! | [`export`](mod@export) | a model as files for another program |
//! | [`import`](mod@import) | a model out of another program's files |
//! | [`tokenizer`] | the tokenizer that comes along |

pub mod checkpoint;
pub mod export;
pub mod file;
pub mod gpt2;
pub mod import;
pub mod native;
pub mod tokenizer;

use std::{borrow::Borrow, path::Path};

use burn::tensor::TensorData;

use crate::error::{Error, Result};

/// Refuses the file `origin` for what is wrong with its tensors, where anything is: `told` says it of the first
/// problems, and how many more there are, on one line.
fn refuse(origin: &Path, problems: &[String], told: impl Fn(&str) -> String) -> Result<()> {
    const SHOWN: usize = 32;
    let mut shown = problems[..problems.len().min(SHOWN)].join(", ");
    if problems.len() > SHOWN {
        shown += &format!(", and {} more", problems.len() - SHOWN);
    }
    if problems.is_empty() { Ok(()) } else { Err(Error::file(origin, told(&shown))) }
}

/// Refuses weights that are no numbers: they come from a run that diverged, or from a damaged file.
fn check_finite<'a, D: Borrow<TensorData>>(
    origin: &Path,
    tensors: impl Iterator<Item = Result<(&'a String, D)>>,
) -> Result<()> {
    let mut broken = Vec::new();
    for tensor in tensors {
        let (name, data) = tensor?;
        let values = data.borrow().as_slice::<f32>();
        if !values.is_ok_and(|values| values.iter().all(|value| value.is_finite())) {
            broken.push(format!("`{name}`"));
        }
    }
    refuse(origin, &broken, |names| {
        format!(
            "holds weights that are not finite, in {names}: its training has diverged, or the file is damaged; copy \
             or export it anew"
        )
    })
}

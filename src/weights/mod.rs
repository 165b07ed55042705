//! Weights from and to files.
//!
//! | file | holds |
//! |---|---|
//! | [`mod@file`] | the bytes of a weights file, and the tensors in it |
//! | [`native`] | the project's own naming: each parameter under its path in the model |
//! | [`checkpoint`] | the tensors of other programs' files: safetensors, shards, PyTorch |
//! | [`mapping`] | tensors from other names and layouts to ours, and back |
//! | [`gpt2`] | GPT-2's names, which nanoGPT shares, and its config |
//! | [`export`](mod@export) | a model as files for another program |
//! | [`import`](mod@import) | a model out of another program's files |
//! | [`tokenizer`] | the tokenizer that comes along |

pub mod checkpoint;
pub mod export;
pub mod file;
pub mod gpt2;
pub mod import;
pub mod mapping;
pub mod native;
pub mod tokenizer;

/// What is wrong with a file's tensors, on one line: the first of it, and how much more there is.
fn listed(problems: &[String]) -> String {
    const SHOWN: usize = 32;
    let shown = problems[..problems.len().min(SHOWN)].join(", ");
    match problems.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown}, and {more} more"),
    }
}

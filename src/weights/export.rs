//! A model as files that another program reads: the weights, a small `config.json`, and what the
//! ids stand for.

use burn::tensor::TensorData;
use serde_json::{Value, json};

use super::native::{self, Description, Tensors};
use super::{gpt2, transposed};
use crate::data::Vocabulary;
use crate::error::Result;

/// The naming and layout of the weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// This program's own names, and Burn's layout: linear weights are [in, out].
    Safetensors,
    /// GPT-2's names and layout, as transformers and nanoGPT load them.
    Gpt2,
    /// PyTorch's names of parameters, and its layout: linear weights are [out, in].
    PytorchNames,
}

impl Format {
    /// The name on the command line, and of the folder that an export makes.
    pub fn name(self) -> &'static str {
        match self {
            Self::Safetensors => "safetensors",
            Self::Gpt2 => "gpt2",
            Self::PytorchNames => "pytorch-names",
        }
    }
}

/// The files of an export: name and contents.
pub type Files = Vec<(&'static str, Vec<u8>)>;

/// A model as files.
///
/// # Errors
/// [`Error::Key`](crate::error::Error::Key) where the format has no word for what the model computes.
pub fn export(
    description: &Description,
    tensors: Tensors,
    vocabulary: &Vocabulary,
    format: Format,
) -> Result<Files> {
    let own = || serde_json::to_value(description).expect("a description holds plain values");
    let (weights, config) = match format {
        Format::Safetensors => (native::to_bytes(&tensors, Some(description))?, own()),
        Format::Gpt2 => {
            let (tensors, config) = gpt2::export(description, tensors, vocabulary)?;
            (for_pytorch(&tensors)?, config)
        }
        Format::PytorchNames => {
            let tensors: Tensors =
                tensors.into_iter().map(|(name, data)| pytorch_tensor(name, data)).collect();
            (for_pytorch(&tensors)?, own())
        }
    };
    let pretty = |value: &Value| serde_json::to_vec_pretty(value).expect("JSON can be written");
    let vocabulary = json!(vocabulary);
    let mut files = vec![
        ("model.safetensors", weights),
        ("config.json", pretty(&config)),
        ("vocabulary.json", pretty(&vocabulary)),
    ];
    if let Some(tokenizer) = vocabulary.get("tokenizer") {
        files.push(("tokenizer.json", pretty(tokenizer)));
    }
    Ok(files)
}

/// A parameter by PyTorch's name and in its layout.
fn pytorch_tensor(name: String, data: TensorData) -> (String, TensorData) {
    // Tables have a row an entry in PyTorch too.
    let is_table = ["embedding.weight", "embedding.token.weight", "position.weight"]
        .iter()
        .any(|table| name.ends_with(table));
    if let Some(norm) = name.strip_suffix(".gamma") {
        return (format!("{norm}.weight"), data);
    }
    if let Some(norm) = name.strip_suffix(".beta") {
        return (format!("{norm}.bias"), data);
    }
    if is_table { (name, data) } else { (name, transposed(data)) }
}

/// Named tensors as the bytes of a safetensors file with the entry of metadata that transformers
/// looks for.
fn for_pytorch(tensors: &Tensors) -> Result<Vec<u8>> {
    native::serialize(tensors, Some(("format".to_string(), "pt".to_string())))
}

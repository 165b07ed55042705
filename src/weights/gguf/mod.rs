//! GGUF, the format of llama.cpp: weights, config and tokenizer in one file.
//!
//! This module translates a file to what transformers stores for the same model: tensors under transformers' names and
//! in its layout, the contents of a `config.json`, and a tokenizer.
//!
//! | file | holds |
//! |---|---|
//! | `header` | the metadata, and the type, shape and position of each tensor |
//! | `element` | the types of tensors, and their conversion to 32-bit floats |
//! | `architectures` | the names of tensors and keys, one table for each architecture |
//! | `layout` | the differences in layout |
//! | `config` | the contents of a `config.json` |
//! | `rotation` | the settings of rotary positions |
//! | `tokenizer`, `merges` | the tokenizer |

mod architectures;
mod config;
mod element;
mod header;
mod layout;
mod merges;
mod rotation;
mod tokenizer;

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use self::architectures::GgufArchitecture;
use self::header::{GgufHeader, StoredTensor};
use self::layout::TensorLayout;
use super::file::{LazyTensor, WeightsFile};
use super::foreign::finite;
use crate::data::Vocabulary;
use crate::error::Result;

/// An open GGUF file.
#[derive(Debug)]
pub struct Gguf {
    file: WeightsFile,
    header: GgufHeader,
    architecture: &'static GgufArchitecture,
}

impl Gguf {
    /// Opens the GGUF file among `files`; returns `None` if there is none.
    ///
    /// # Errors
    /// Returns an error if the header is damaged, if there are other files or other parts of the model, or if the
    /// architecture or the type of a tensor is not supported.
    pub fn open(files: &[WeightsFile]) -> Result<Option<Self>> {
        let mut found = None;
        for file in files {
            if header::is_gguf(file)? {
                found = Some(file);
            }
        }
        let Some(file) = found else { return Ok(None) };
        if files.len() > 1 {
            return Err(file.error("is GGUF, which holds a complete model; pass only this file"));
        }
        let header = GgufHeader::read(file)?;
        if let Some(parts @ 2..) = header.size("split.count") {
            return Err(file.error(format!(
                "is one of {parts} parts; merge them with `llama-gguf-split --merge FIRST_PART OUT` and pass the result"
            )));
        }
        let Some(name) = header.text("general.architecture") else {
            return Err(file.error("lacks the key `general.architecture`; convert the model again"));
        };
        match architectures::named(name) {
            Some(architecture) => Ok(Some(Self { file: file.clone(), header, architecture })),
            None => Err(file.error(format!(
                "`general.architecture` is \"{name}\"; the supported architectures are {}",
                architectures::names()
            ))),
        }
    }

    /// Returns the tensors under transformers' names and in its layout, each read on demand.
    ///
    /// # Errors
    /// Returns an error if the number of heads does not match a tensor.
    pub fn tensors(&self) -> Result<BTreeMap<String, LazyTensor>> {
        let parameters = self.header.tensors.iter().filter(|tensor| tensor.name != rotation::FACTORS);
        let named = |tensor: LazyTensor| (tensor.name.clone(), tensor);
        parameters.map(|stored| self.translated(stored).map(named)).collect()
    }

    /// Translates a tensor; one with an unknown name keeps it.
    fn translated(&self, stored: &StoredTensor) -> Result<LazyTensor> {
        let (name, layout) =
            self.architecture.translate(&stored.name).unwrap_or((stored.name.clone(), TensorLayout::Same));
        let tensor = finite(&self.file, stored.lazy(&self.file));
        let key = |end: &str| format!("{}.attention.{end}", self.architecture.name);
        let (queries, keys) = (key("head_count"), key("head_count_kv"));
        let heads = if layout == TensorLayout::InterleavedKeys && self.header.metadata.contains_key(&keys) {
            keys
        } else {
            queries
        };
        let converted = layout.converted(tensor, self.header.size(&heads).unwrap_or(0));
        let tensor = converted.ok_or_else(|| {
            let heads = self.header.metadata.get(&heads).map_or("missing".into(), |heads| format!("{heads}"));
            let (name, rows) = (&stored.name, stored.shape[0]);
            self.file.error(format!(
                "`{name}` has {rows} rows, which do not fit the number of heads ({heads}); convert the model again"
            ))
        })?;
        Ok(tensor.renamed(name))
    }

    /// Returns the contents of the `config.json` that transformers has for the model.
    ///
    /// # Errors
    /// Returns an error that names a key which is not supported.
    pub fn config(&self) -> Result<Value> {
        config::config(&self.file, &self.header, self.architecture)
    }

    /// Returns the vocabulary of the file's tokenizer; `None` if it has none.
    ///
    /// # Errors
    /// Returns an error if the tokenizer is damaged or of an unsupported kind.
    pub fn vocabulary(&self) -> Result<Option<Vocabulary>> {
        tokenizer::vocabulary(&self.file, &self.header, self.architecture)
    }

    /// Returns the contents of the `tokenizer_config.json` that transformers has for the tokenizer, if there is one.
    pub fn tokenizer_config(&self) -> Option<Map<String, Value>> {
        tokenizer::config(&self.header)
    }

    /// Returns the chat template.
    pub fn chat_template(&self) -> Option<&str> {
        self.header.text("tokenizer.chat_template")
    }
}

#[cfg(test)]
mod tests;

//! What distinguishes the files of a family.

use std::collections::BTreeMap;

use serde_json::Value;

use super::entry::TensorEntry;
use super::keys::Keys;
use crate::error::Result;
use crate::model::ModelConfig;
use crate::weights::file::LazyTensor;
use crate::weights::native::Description;

/// A key of `[model]` that a family restricts, a flag, and the required value. The flag is true if the family cannot
/// express the model's value.
pub(super) type Obstacle = (&'static str, bool, &'static str);

/// The config and the tensors of a family. Adding a family is one file that implements it, or
/// [`super::llama::LlamaLike`], and its line in [`super::Family`].
pub(super) trait Layout: Sync {
    /// Returns the family's `model_type`.
    fn name(&self) -> &'static str;

    /// Returns the default begin-of-text and end-of-text tokens of the family's config.
    fn default_ids(&self) -> [Option<u32>; 2] {
        [None; 2]
    }

    /// Returns the keys of a config that most families refuse, but [`Self::read`] reads.
    fn own_keys(&self) -> &'static [&'static str] {
        &[]
    }

    /// Returns the keys of `[model]` that most families cannot express, but this one can.
    fn expresses(&self) -> &'static [&'static str] {
        &[]
    }

    /// Returns the prefix of all tensor names except the head's.
    fn prefix(&self) -> &'static str;

    /// Returns the name of the head's weight.
    fn head(&self) -> &'static str {
        "lm_head.weight"
    }

    /// Returns the name of the token embedding's weight, without the prefix.
    fn table(&self) -> &'static str;

    /// Returns true if positions are rotary.
    fn is_rotary(&self) -> bool {
        true
    }

    /// Returns native keys and the matching keys of a config.
    fn keys(&self) -> &'static [(&'static str, &'static str)];

    /// Reads the model description from a config; sizes that it omits may be inferred from the tensors.
    ///
    /// # Errors
    /// Returns an error if a key is missing or has an unsupported value.
    fn read(&self, keys: Keys, tensors: &BTreeMap<String, LazyTensor>) -> Result<Description>;

    /// Returns the entries of all tensors of a model. `has_biases` is true if the file has biases where the model may
    /// have none.
    fn entries(&self, description: &Description, has_biases: bool) -> Vec<TensorEntry>;

    /// Lists the keys that the family restricts.
    fn obstacles(&self, model: &ModelConfig) -> Vec<Obstacle>;

    /// Returns the contents of a `config.json`.
    fn write(&self, description: &Description) -> Value;
}

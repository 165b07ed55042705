//! What distinguishes the files of a group of families.

use std::collections::BTreeMap;

use serde_json::Value;

use super::entry::TensorEntry;
use super::keys::Keys;
use super::{Family, gpt_neox, gpt2, llama};
use crate::error::Result;
use crate::model::ModelConfig;
use crate::weights::file::LazyTensor;
use crate::weights::native::Description;

/// A key of `[model]` that a family restricts, a flag, and the required value. The flag is true if the family cannot
/// express the model's value.
pub(super) type Obstacle = (&'static str, bool, &'static str);

/// The configs and tensors of families with the same names. Adding families is one file that implements it, and their
/// lines in [`Family`].
pub(super) trait Layout {
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
    fn read(&self, family: Family, keys: Keys, tensors: &BTreeMap<String, LazyTensor>)
    -> Result<Description>;

    /// Returns the entries of all tensors of a model.
    fn entries(&self, family: Family, description: &Description, has_biases: bool) -> Vec<TensorEntry>;

    /// Lists the keys that a family restricts.
    fn obstacles(&self, family: Family, model: &ModelConfig) -> Vec<Obstacle>;

    /// Returns the contents of a `config.json`.
    fn write(&self, family: Family, description: &Description) -> Value;
}

impl Family {
    /// Returns the layout of the family's files.
    pub(super) fn layout(self) -> &'static dyn Layout {
        match self {
            Self::Gpt2 | Self::Nanogpt => &gpt2::Gpt2,
            Self::Llama | Self::Mistral | Self::Qwen2 | Self::Qwen3 | Self::Smollm3 => &llama::Llama,
            Self::GptNeox => &gpt_neox::GptNeox,
        }
    }
}

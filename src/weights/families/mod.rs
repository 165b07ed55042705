//! Model families of other programs: the names of their weights, and the keys of their `config.json`.
//!
//! | file | holds |
//! |---|---|
//! | `entry` | packs a native parameter from foreign tensors, and unpacks it |
//! | `gemma` | Gemma 2 and Gemma 3 |
//! | `gpt2` | GPT-2, and nanoGPT's layout of it |
//! | `gpt_neo` | GPT-Neo and TinyStories |
//! | `gpt_neox` | GPT-NeoX and Pythia |
//! | `keys` | typed access to the keys of a config |
//! | `layout` | what distinguishes the files of a family |
//! | `llama` | Llama, and what the families related to it share |
//! | `mistral`, `olmo2`, `phi3`, `qwen`, `smollm3` | families related to Llama |
//! | `obstacles` | the keys of `[model]` that few families or none can express |
//! | `rope` | the keys of rotary positions |
//! | `spans` | which layers have a window |
//! | `unsupported` | config options that are not supported |

mod entry;
mod gemma;
mod gpt2;
mod gpt_neo;
mod gpt_neox;
pub(super) mod keys;
mod layout;
mod llama;
mod mistral;
mod obstacles;
mod olmo2;
mod phi3;
mod qwen;
mod rope;
mod smollm3;
mod spans;
mod unsupported;

use std::{collections::BTreeMap, path::Path};

use burn::tensor::TensorData;
use serde_json::{Value, json};

use super::file::LazyTensor;
use super::native::Description;
use super::refuse;
use crate::error::{Error, Result};
use crate::model::{Architecture, ModelConfig};
use clap::ValueEnum;
use keys::Keys;
use layout::Layout;

/// A family of models. If a model fits several, it is exported as the first one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Family {
    /// GPT-2 from transformers: one or more safetensors files, or a PyTorch file.
    Gpt2,
    /// Llama from transformers, including SmolLM2 and TinyLlama.
    Llama,
    /// Qwen2 and Qwen2.5 from transformers.
    Qwen2,
    /// Qwen3 from transformers.
    Qwen3,
    /// Mistral from transformers, with its sliding window.
    Mistral,
    /// SmolLM3 from transformers, with its layers without rotary positions.
    Smollm3,
    /// GPT-NeoX and Pythia from transformers.
    #[value(alias = "gpt_neox")]
    GptNeox,
    /// GPT-Neo and TinyStories from transformers.
    #[value(alias = "gpt_neo")]
    GptNeo,
    /// Gemma 2 from transformers.
    Gemma2,
    /// Gemma 3 from transformers, without images.
    #[value(alias = "gemma3_text")]
    Gemma3,
    /// OLMo 2 from transformers.
    Olmo2,
    /// Phi-3 and Phi-4-mini from transformers.
    Phi3,
    /// A nanoGPT checkpoint (PyTorch file).
    Nanogpt,
}

impl Family {
    /// Returns the layout of the family's files.
    fn layout(self) -> &'static dyn Layout {
        match self {
            Self::Gpt2 => &gpt2::Gpt2 { is_nanogpt: false },
            Self::Llama => &llama::Llama,
            Self::Qwen2 => &qwen::Qwen2,
            Self::Qwen3 => &qwen::Qwen3,
            Self::Mistral => &mistral::Mistral,
            Self::Smollm3 => &smollm3::Smollm3,
            Self::GptNeox => &gpt_neox::GptNeox,
            Self::GptNeo => &gpt_neo::GptNeo,
            Self::Gemma2 => &gemma::Gemma2,
            Self::Gemma3 => &gemma::Gemma3,
            Self::Olmo2 => &olmo2::Olmo2,
            Self::Phi3 => &phi3::Phi3,
            Self::Nanogpt => &gpt2::Gpt2 { is_nanogpt: true },
        }
    }

    /// Iterates over the families that a `config.json` can name.
    pub(super) fn named() -> impl Iterator<Item = Self> {
        Self::value_variants().iter().copied().filter(|family| *family != Self::Nanogpt)
    }

    /// Returns the family's `model_type`.
    pub fn name(self) -> &'static str {
        self.layout().name()
    }

    /// Returns the default begin-of-text and end-of-text tokens of the family's config.
    pub fn default_ids(self) -> [Option<u32>; 2] {
        self.layout().default_ids()
    }

    /// Returns the family that a config names.
    ///
    /// # Errors
    /// Returns an error if the config names no family, or an unknown one.
    pub fn named_by(config: &Value, config_path: &Path) -> Result<Self> {
        let keys = Keys::new(config, config_path)?;
        let names = Self::named().map(Self::name).collect::<Vec<_>>().join(", ");
        let Some(name) = keys.text("model_type")? else {
            if serde_json::from_value::<Description>(config.clone()).is_ok() {
                let problem = "is from an export with --format pytorch-names, which cannot be imported; export the run \
                               with --format safetensors";
                return Err(keys.error(problem));
            }
            return Err(
                keys.error("lacks the key `model_type`; specify the family of the model with --format")
            );
        };
        Self::named().find(|family| family.name() == name).ok_or_else(|| {
            keys.refused(
                "model_type",
                format!("\"{name}\""),
                &format!("; the supported families are {names}"),
            )
        })
    }

    /// Replaces native keys in the text of a problem with the keys of the foreign config.
    fn with_foreign_keys(self, keys: Keys, problem: String) -> String {
        let family_keys = self.layout().keys();
        let within = ["rope_parameters", "rope_scaling"].into_iter().find(|key| keys.value(key).is_some());
        let family_keys = family_keys.iter().map(|(ours, theirs)| (ours, theirs.to_string()));
        let rotary_keys = rope::KEYS.iter().map(|(ours, theirs)| match within {
            Some(within) if *ours != "rope_theta" || keys.value(theirs).is_none() => {
                (ours, format!("{within}.{theirs}"))
            }
            _ => (ours, theirs.to_string()),
        });
        let problem = problem.replace("`model.position` = \"rotary\"", "`head_dim`: a rotary position");
        family_keys.chain(rotary_keys).fold(problem, |problem, (ours, theirs)| {
            problem.replace(&format!("`model.{ours}`"), &format!("`{theirs}`"))
        })
    }

    /// Returns the keys that this family cannot express, each with the value that it requires.
    fn obstacles(self, model: &ModelConfig) -> Vec<(&'static str, &'static str)> {
        let layout = self.layout();
        let architecture = ("architecture", model.architecture != Architecture::Decoder, "\"decoder\"");
        let others = obstacles::of_most(model).into_iter();
        let others = others.filter(|(key, ..)| !layout.expresses().contains(key));
        let all = [architecture].into_iter().chain(layout.obstacles(model)).chain(others);
        all.filter_map(|(key, differs, theirs)| differs.then_some((key, theirs))).collect()
    }

    /// Returns true if a model has none of the keys that distinguish this family from those that precede it.
    fn is_plain(self, model: &ModelConfig) -> bool {
        let special = self.layout().expresses();
        let is_used = |(key, differs, _): &(&str, bool, &str)| *differs && special.contains(key);
        !special.is_empty() && !obstacles::of_most(model).iter().any(is_used)
    }
}

/// Returns true for a tensor that is not a parameter, but a buffer of old files.
pub fn is_buffer(name: &str) -> bool {
    gpt2::is_mask(name) || llama::is_computed(name) || gpt_neox::is_buffer(name)
}

/// Strips the prefixes of wrappers: `torch.compile`, data parallelism, and the model with a head.
fn bare(name: &str) -> String {
    let prefixes = ["_orig_mod.", "module.", "transformer.", "model.", "gpt_neox."];
    prefixes.iter().fold(name, |name, prefix| name.strip_prefix(prefix).unwrap_or(name)).to_string()
}

/// The error for a config that ties a head which has separate weights.
const NOT_TIED: &str = ", but `lm_head.weight` differs from the embedding table; set the key to false, or remove the \
                        head";

/// Returns true if there is a head that is not a copy of the token embedding.
fn has_separate_head(tensors: &BTreeMap<String, LazyTensor>, layout: &dyn Layout) -> Result<bool> {
    let (Some(head), Some(table)) = (tensors.get(layout.head()), tensors.get(layout.table())) else {
        return Ok(false);
    };
    Ok(head.shape != table.shape || head.read()?.bytes != table.read()?.bytes)
}

/// Converts a foreign model to native names. `config` is the contents of a `config.json` or nanoGPT's `model_args`, and
/// its path; `origin` is the file named in errors about tensors. The weights are read on demand.
///
/// # Errors
/// Returns an error if the config has an unsupported option, or an error that lists up to 32 tensors that are missing,
/// unexpected or of a different shape.
pub fn import(
    family: Family,
    tensors: BTreeMap<String, LazyTensor>,
    (config, config_path): (&Value, &Path),
    origin: &Path,
) -> Result<(Vec<LazyTensor>, Description)> {
    let keys = Keys::new(config, config_path)?;
    unsupported::refuse(family, keys)?;
    let mut tensors: BTreeMap<_, _> =
        tensors.into_iter().map(|(name, tensor)| (bare(&name), tensor)).collect();
    let layout = family.layout();
    let description = layout.read(keys, &tensors)?;
    description
        .model
        .check()
        .map_err(|error| keys.error(family.with_foreign_keys(keys, Error::from(error).to_string())))?;
    if description.model.tie_embeddings {
        // A GPT-2 head with separate weights counts as untied.
        if layout.is_rotary() && has_separate_head(&tensors, layout)? {
            return Err(keys.refused("tie_word_embeddings", true, NOT_TIED));
        }
        tensors.remove(layout.head());
    }
    let (mut ours, mut problems) = (Vec::new(), Vec::new());
    for entry in layout.entries(&description, description.model.bias) {
        let mut parts = Vec::new();
        for part in &entry.parts {
            let (name, shape) = (&part.theirs, entry.shape_of(part));
            match tensors.remove(name) {
                None => problems.push(format!("`{name}` is missing")),
                Some(tensor) if tensor.shape != shape => {
                    problems.push(format!("`{name}` has shape {:?}, not {shape:?}", tensor.shape));
                }
                Some(tensor) => parts.push(tensor),
            }
        }
        if parts.len() == entry.parts.len() {
            ours.push(entry.packed(parts));
        }
    }
    problems.extend(tensors.keys().map(|name| format!("`{name}` is unexpected")));
    refuse(origin, &problems, &format!("is not a valid {} model", family.name()))?;
    Ok((ours, description))
}

/// The number of families that an error about a model which fits none lists.
const CLOSEST: usize = 4;

/// Returns the family that can express a model.
///
/// # Errors
/// Returns an error that lists the obstacles of the closest families.
pub fn fitting(model: &ModelConfig) -> Result<Family> {
    let needs = needs(model);
    let each = needs.iter().take(CLOSEST).map(|(family, needed)| {
        let needed: Vec<_> = needed.iter().map(|(key, theirs)| format!("{key} = {theirs}")).collect();
        format!("{} needs {}", family.name(), needed.join(", "))
    });
    match &needs[0] {
        (closest, needed) if needed.is_empty() => Ok(*closest),
        _ => Err(Error::Input(format!(
            "the model fits no transformers family: in [model], {}; export with --format safetensors or \
             pytorch-names",
            each.collect::<Vec<_>>().join("; ")
        ))),
    }
}

/// Describes the transformers families that a model can be exported as; if there is none, the requirements of the
/// closest one.
pub fn describe_fit(model: &ModelConfig) -> String {
    let needs = needs(model);
    let fitting: Vec<_> =
        needs.iter().filter(|(_, needed)| needed.is_empty()).map(|(family, _)| family.name()).collect();
    if !fitting.is_empty() {
        return format!("to transformers as {}", fitting.join(" or "));
    }
    let (family, needed) = &needs[0];
    let needed: Vec<_> = needed.iter().map(|(key, theirs)| format!("`model.{key}` = {theirs}")).collect();
    format!("not to transformers; the closest family, {}, needs {}", family.name(), needed.join(", "))
}

/// Returns the keys that must change for each family, with the required values; the family with the fewest keys first.
/// If several fit, those are left out whose special keys the model does not use.
fn needs(model: &ModelConfig) -> Vec<(Family, Vec<(&'static str, &'static str)>)> {
    let mut needs: Vec<_> = Family::named().map(|family| (family, family.obstacles(model))).collect();
    needs.sort_by_key(|(family, needed)| (needed.len(), family.is_plain(model)));
    let is_distinct = needs.iter().any(|(family, needed)| needed.is_empty() && !family.is_plain(model));
    needs.retain(|(family, _)| !is_distinct || !family.is_plain(model));
    needs
}

/// Refuses a model that a family cannot express.
fn check_fit(family: Family, model: &ModelConfig) -> Result<()> {
    let values = json!(model);
    let obstacles: Vec<_> = family
        .obstacles(model)
        .into_iter()
        .map(|(key, theirs)| format!("`model.{key}` = {} must be {theirs}", values[key]))
        .collect();
    if obstacles.is_empty() {
        return Ok(());
    }
    Err(Error::Input(format!(
        "the model does not fit {}: {}; export with --format safetensors or pytorch-names",
        family.name(),
        obstacles.join(", ")
    )))
}

/// Converts a model to a family's naming and layout, with the contents of its `config.json` except for special token
/// ids.
///
/// # Errors
/// Returns an error that names the keys which the family cannot express.
pub fn export(
    family: Family,
    description: &Description,
    tensors: Vec<LazyTensor>,
) -> Result<(Vec<LazyTensor>, Value)> {
    check_fit(family, &description.model)?;
    let layout = family.layout();
    let mut ours: BTreeMap<_, _> = tensors.into_iter().map(|tensor| (tensor.name.clone(), tensor)).collect();
    let mut theirs = Vec::new();
    for entry in layout.entries(description, true) {
        let tensor = match ours.remove(&entry.ours) {
            Some(tensor) => tensor,
            // A model without biases is equivalent to one whose biases are zero.
            None if entry.rows.is_none() => {
                LazyTensor::from_data(entry.ours.clone(), TensorData::zeros::<f32, _>(entry.shape()))
            }
            None => return Err(Error::Failed(format!("the weights lack `{}`", entry.ours))),
        };
        theirs.extend(entry.unpacked(tensor));
    }
    let theirs = theirs.into_iter().map(|tensor| match &*tensor.name {
        name if name == layout.head() => tensor,
        name => {
            let name = format!("{}{name}", layout.prefix());
            tensor.renamed(name)
        }
    });
    let config = layout.write(description);
    Ok((theirs.collect(), config))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::{Activation, NormKind};
    use crate::position::PositionScheme;

    #[test]
    fn unmet_requirements_are_listed_closest_family_first() {
        let alibi = ModelConfig { position: PositionScheme::Alibi, ..ModelConfig::default() };
        let error = fitting(&alibi).unwrap_err().to_string();
        let start = "in [model], gpt2 needs position = \"learned\"; gpt_neox needs position = \"rotary\"; ";
        assert!(error.contains(start), "{error}");
        assert!(error.len() < 490, "the closest families fit on the line: {} bytes", error.len());
        let words = describe_fit(&alibi);
        assert_eq!(
            words,
            "not to transformers; the closest family, gpt2, needs `model.position` = \"learned\""
        );
        let learned = ModelConfig { position: PositionScheme::Learned, ..ModelConfig::default() };
        assert_eq!(
            (fitting(&learned).unwrap(), &*describe_fit(&learned)),
            (Family::Gpt2, "to transformers as gpt2")
        );
        let rotary = ModelConfig { position: PositionScheme::Rotary, ..ModelConfig::default() };
        assert_eq!(describe_fit(&rotary), "to transformers as gpt_neox");
        let llama =
            ModelConfig { norm_kind: NormKind::Rms, activation: Activation::Swiglu, bias: false, ..rotary };
        assert_eq!(describe_fit(&llama), "to transformers as llama");
        let windowed = ModelConfig { window: Some(4), ..llama };
        assert_eq!(describe_fit(&windowed), "to transformers as mistral or phi3");
    }
}

//! Model families of other programs: the names of their weights, and the keys of their `config.json`.
//!
//! | file | holds |
//! |---|---|
//! | `entry` | packs a native parameter from foreign tensors, and unpacks it |
//! | `gpt2` | GPT-2, and nanoGPT's layout of it |
//! | `keys` | typed access to the keys of a config |
//! | `llama` | Llama, Mistral, Qwen2, Qwen3 and SmolLM3 |
//! | `rope` | the keys of rotary positions |
//! | `unsupported` | config options that are not supported |

mod entry;
mod gpt2;
mod gpt_neox;
pub(super) mod keys;
mod layout;
mod llama;
mod obstacles;
mod rope;
mod unsupported;

use std::{collections::BTreeMap, path::Path};

use burn::tensor::TensorData;
use serde_json::{Value, json};

use super::file::LazyTensor;
use super::native::Description;
use super::refuse;
use crate::error::{Error, Result};
use crate::model::{Architecture, ModelConfig};
use crate::position::PositionScheme;
use keys::Keys;
use layout::Layout;

/// A family of models.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// GPT-2 in transformers' format.
    Gpt2,
    /// GPT-2 in nanoGPT's format.
    Nanogpt,
    /// Llama and models of its type: SmolLM and SmolLM2, TinyLlama.
    Llama,
    /// Mistral, with its sliding window.
    Mistral,
    /// Qwen2 and Qwen2.5.
    Qwen2,
    /// Qwen3.
    Qwen3,
    /// SmolLM3, with its layers without rotary positions.
    Smollm3,
    /// GPT-NeoX and Pythia.
    GptNeox,
}

impl Family {
    /// The families that `config.json` can name.
    const IMPORTED: [Self; 7] =
        [Self::Gpt2, Self::Llama, Self::Mistral, Self::Qwen2, Self::Qwen3, Self::Smollm3, Self::GptNeox];
    /// The families of models without a window whose layers all have rotary positions; a SmolLM3 or Mistral is a Llama then.
    const EXPORTED: [Self; 4] = [Self::Gpt2, Self::Llama, Self::Qwen2, Self::Qwen3];

    /// Returns the family's `model_type`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gpt2 | Self::Nanogpt => "gpt2",
            Self::Llama => "llama",
            Self::Mistral => "mistral",
            Self::Qwen2 => "qwen2",
            Self::Qwen3 => "qwen3",
            Self::Smollm3 => "smollm3",
            Self::GptNeox => "gpt_neox",
        }
    }

    /// Returns the default begin-of-text and end-of-text tokens of the family's config.
    pub fn default_ids(self) -> [Option<u32>; 2] {
        match self {
            Self::Gpt2 | Self::Nanogpt => [Some(50_256); 2],
            Self::Llama | Self::Mistral => [Some(1), Some(2)],
            Self::Qwen2 | Self::Qwen3 => [None; 2],
            Self::Smollm3 => [Some(128_000), Some(128_001)],
            Self::GptNeox => [Some(0), Some(2)],
        }
    }

    /// Returns the family that a config names.
    ///
    /// # Errors
    /// Returns an error if the config names no family, or an unknown one.
    pub fn named_by(config: &Value, config_path: &Path) -> Result<Self> {
        let keys = Keys::new(config, config_path)?;
        let names = Self::IMPORTED.map(Self::name).join(", ");
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
        Self::IMPORTED.into_iter().find(|family| family.name() == name).ok_or_else(|| {
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
        let own = self.layout().obstacles(self, model);
        let architecture = ("architecture", model.architecture != Architecture::Decoder, "\"decoder\"");
        let windows = [
            ("window", self != Self::Mistral && model.has_window(), "unset"),
            ("layer_pattern", self == Self::Mistral && model.has_global_layer(), "unset"),
            ("rotary_skip_every", self != Self::Smollm3 && skips_rotation(model), "unset"),
            ("rotary_fraction", self != Self::GptNeox && rotates_in_part(model), "unset"),
            ("parallel", self != Self::GptNeox && model.parallel, "false"),
        ];
        let all = [architecture].into_iter().chain(own).chain(obstacles::of_all(model)).chain(windows);
        all.filter_map(|(key, differs, theirs)| differs.then_some((key, theirs))).collect()
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
    let description = layout.read(family, keys, &tensors)?;
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
    for entry in layout.entries(family, &description, description.model.bias) {
        let mut parts = Vec::new();
        for part in &entry.parts {
            let (name, shape) = (&part.theirs, entry.shape_of(part));
            match tensors.remove(name) {
                None => problems.push(format!("`{name}` is missing")),
                Some(tensor) if tensor.shape != shape => {
                    problems.push(format!("`{name}` has shape {:?}, not {shape:?}", tensor.shape))
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

/// Returns the family that can express a model.
///
/// # Errors
/// Returns an error that lists the obstacles of each family, the closest family first.
pub fn fitting(model: &ModelConfig) -> Result<Family> {
    let needs = needs(model);
    let each = needs.iter().map(|(family, needed)| {
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
fn needs(model: &ModelConfig) -> Vec<(Family, Vec<(&'static str, &'static str)>)> {
    let families = match (model.has_window(), skips_rotation(model)) {
        (true, _) => &[Family::Mistral][..],
        (false, true) => &[Family::Smollm3],
        _ if model.parallel || rotates_in_part(model) => &[Family::GptNeox],
        (false, false) => &Family::EXPORTED,
    };
    let mut needs: Vec<_> = families.iter().map(|&family| (family, family.obstacles(model))).collect();
    needs.sort_by_key(|(_, needed)| needed.len());
    needs
}

/// Returns true if a layer of a model with rotary positions lacks them.
fn skips_rotation(model: &ModelConfig) -> bool {
    model.position == PositionScheme::Rotary && (0..model.layers).any(|layer| model.skips_rotation(layer))
}

/// Returns true if rotary positions rotate only a part of each head.
fn rotates_in_part(model: &ModelConfig) -> bool {
    model.position == PositionScheme::Rotary && model.rotary_fraction.is_some_and(|fraction| fraction < 1.0)
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
    for entry in layout.entries(family, description, true) {
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
    let config = layout.write(family, description);
    Ok((theirs.collect(), config))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unmet_requirements_are_listed_closest_family_first() {
        let alibi = ModelConfig { position: PositionScheme::Alibi, ..ModelConfig::default() };
        let error = fitting(&alibi).unwrap_err().to_string();
        let positions =
            ["gpt2 needs position = \"learned\"; ", "; llama needs ", "; qwen2 needs ", "qwen3 needs "]
                .map(|part| error.find(part).unwrap_or_else(|| panic!("{part}: {error}")));
        assert!(positions.iter().all(|&position| position >= positions[0]), "{error}");
        assert!(error.len() < 490, "all families fit on the line: {} bytes", error.len());
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
    }
}

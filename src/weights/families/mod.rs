//! The families of models that other programs know: the names of their weights, and the keys of their `config.json`.
//!
//! | file | holds |
//! |---|---|
//! | `entry` | how a parameter is put together from tensors there, and taken apart |
//! | `gpt2` | GPT-2, and nanoGPT's layout of it |
//! | `keys` | the keys of a config, read by name |
//! | `llama` | Llama, Qwen2, Qwen3 and SmolLM3 |
//! | `rope` | the keys of rotary positions |
//! | `unsupported` | what a config may ask for that is not computed here |

mod entry;
mod gpt2;
pub(super) mod keys;
mod llama;
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
use entry::Entry;
use keys::Keys;

/// A key of a model, whether a family has no word for its value, and what the family has.
type Obstacle = (&'static str, bool, &'static str);

/// A family of models.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// GPT-2 as transformers stores it.
    Gpt2,
    /// GPT-2 as nanoGPT stores it.
    Nanogpt,
    /// Llama, and what is called so: SmolLM and SmolLM2, TinyLlama.
    Llama,
    /// Qwen2 and Qwen2.5.
    Qwen2,
    /// Qwen3.
    Qwen3,
    /// SmolLM3, as far as all of its layers rotate.
    Smollm3,
}

impl Family {
    /// Those that `config.json` can name.
    const NAMED: [Self; 5] = [Self::Gpt2, Self::Llama, Self::Qwen2, Self::Qwen3, Self::Smollm3];
    /// Those that a model is written as: SmolLM3 whose layers all rotate is a Llama.
    const WRITTEN: [Self; 4] = [Self::Gpt2, Self::Llama, Self::Qwen2, Self::Qwen3];

    /// Its `model_type`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gpt2 | Self::Nanogpt => "gpt2",
            Self::Llama => "llama",
            Self::Qwen2 => "qwen2",
            Self::Qwen3 => "qwen3",
            Self::Smollm3 => "smollm3",
        }
    }

    /// The tokens that begin and end a text where a config says nothing of them.
    pub fn usual_ids(self) -> [Option<u32>; 2] {
        match self {
            Self::Gpt2 | Self::Nanogpt => [Some(50_256); 2],
            Self::Llama => [Some(1), Some(2)],
            Self::Qwen2 | Self::Qwen3 => [None; 2],
            Self::Smollm3 => [Some(128_000), Some(128_001)],
        }
    }

    /// The family that a config names.
    ///
    /// # Errors
    /// If it names none, or one that is not known here.
    pub fn named_by(config: &Value, place: &Path) -> Result<Self> {
        let keys = Keys::new(config, place)?;
        let names = Self::NAMED.map(Self::name).join(", ");
        let Some(name) = keys.text("model_type")? else {
            return Err(keys.error("has no key `model_type`: say by --format of which family the model is"));
        };
        Self::NAMED.into_iter().find(|family| family.name() == name).ok_or_else(|| {
            keys.refused("model_type", format!("\"{name}\""), &format!(": {names} can be imported"))
        })
    }

    /// What names of tensors begin with in a whole model, the head apart.
    fn prefix(self) -> &'static str {
        if matches!(self, Self::Gpt2 | Self::Nanogpt) { "transformer." } else { "model." }
    }

    /// What is wrong with a model's keys, said of those of the config that it was read from.
    fn in_its_keys(self, keys: Keys, problem: String) -> String {
        let its: &[_] = if self.prefix() == "model." { &llama::KEYS } else { &gpt2::KEYS };
        let within = ["rope_parameters", "rope_scaling"].into_iter().find(|key| keys.value(key).is_some());
        let its = its.iter().map(|(ours, theirs)| (ours, theirs.to_string()));
        let of_rotary = rope::KEYS.iter().map(|(ours, theirs)| match within {
            Some(within) if *ours != "rope_theta" || keys.value(theirs).is_none() => {
                (ours, format!("{within}.{theirs}"))
            }
            _ => (ours, theirs.to_string()),
        });
        let problem = problem.replace("`model.position` = \"rotary\"", "`head_dim`: a rotary position");
        its.chain(of_rotary).fold(problem, |problem, (ours, theirs)| {
            problem.replace(&format!("`model.{ours}`"), &format!("`{theirs}`"))
        })
    }

    /// The keys of a model that this family has no word for, each with what the family has.
    fn obstacles(self, model: &ModelConfig) -> Vec<(&'static str, &'static str)> {
        let own = match self {
            Self::Gpt2 | Self::Nanogpt => gpt2::obstacles(model),
            Self::Llama | Self::Qwen2 | Self::Qwen3 | Self::Smollm3 => llama::obstacles(self, model),
        };
        let architecture = ("architecture", model.architecture != Architecture::Decoder, "\"decoder\"");
        let of_all = [
            ("embedding_norm", model.embedding_norm, "false"),
            ("head_bias", model.head_bias && !model.tie_embeddings, "false"),
            ("embedding_scale", model.embedding_scale != 1.0, "1"),
            ("softcap", model.softcap != 0.0, "0"),
        ];
        let all = [architecture].into_iter().chain(own).chain(of_all);
        all.filter_map(|(key, differs, theirs)| differs.then_some((key, theirs))).collect()
    }

    fn entries(self, Description { model, sizes }: &Description, has_biases: bool) -> Vec<Entry> {
        match self {
            Self::Gpt2 | Self::Nanogpt => gpt2::entries(self, model, *sizes, has_biases),
            Self::Llama | Self::Qwen2 | Self::Qwen3 | Self::Smollm3 => llama::entries(model, *sizes),
        }
    }
}

/// Whether a tensor is no parameter, but something that old files carry along.
pub fn is_no_parameter(name: &str) -> bool {
    gpt2::is_mask(name) || llama::is_computed(name)
}

/// A name without what wrappers put before it: `torch.compile`, data parallelism, the model's head.
fn bare(name: &str) -> String {
    let prefixes = ["_orig_mod.", "module.", "transformer.", "model."];
    prefixes.iter().fold(name, |name, prefix| name.strip_prefix(prefix).unwrap_or(name)).to_string()
}

/// The problem of a config that ties a head which has weights of its own.
const NOT_TIED: &str = ", but `lm_head.weight` is not the table of the embedding: set it to false, or leave the head \
                        out";

/// Whether there is a head that is not the `table` of the embedding once more.
fn has_head_of_its_own(tensors: &BTreeMap<String, LazyTensor>, table: &str) -> Result<bool> {
    let (Some(head), Some(table)) = (tensors.get("lm_head.weight"), tensors.get(table)) else {
        return Ok(false);
    };
    Ok(head.shape != table.shape || head.read()?.bytes != table.read()?.bytes)
}

/// A model in a family's naming, made ours. `config` is the contents of a `config.json` or nanoGPT's `model_args`,
/// and where it stands; `origin` the file that errors about tensors name. The weights are read when they are asked for.
///
/// # Errors
/// Where the config asks for what this decoder does not do, and one that lists up to 32 tensors that are missing,
/// left over or of another shape.
pub fn import(
    family: Family,
    tensors: BTreeMap<String, LazyTensor>,
    (config, place): (&Value, &Path),
    origin: &Path,
) -> Result<(Vec<LazyTensor>, Description)> {
    let keys = Keys::new(config, place)?;
    unsupported::refuse(family, keys)?;
    let mut tensors: BTreeMap<_, _> =
        tensors.into_iter().map(|(name, tensor)| (bare(&name), tensor)).collect();
    let description = match family {
        Family::Gpt2 | Family::Nanogpt => gpt2::read(family, keys, &tensors)?,
        Family::Llama | Family::Qwen2 | Family::Qwen3 | Family::Smollm3 => llama::read(family, keys)?,
    };
    description
        .model
        .check()
        .map_err(|error| keys.error(family.in_its_keys(keys, Error::from(error).to_string())))?;
    if description.model.tie_embeddings {
        // Of GPT-2 such a head is none that is tied.
        if family.prefix() == "model." && has_head_of_its_own(&tensors, "embed_tokens.weight")? {
            return Err(keys.refused("tie_word_embeddings", true, NOT_TIED));
        }
        tensors.remove("lm_head.weight");
    }
    let (mut ours, mut problems) = (Vec::new(), Vec::new());
    for entry in family.entries(&description, description.model.bias) {
        let mut parts = Vec::new();
        for part in &entry.parts {
            let (name, shape) = (&part.theirs, entry.shape_of(part));
            match tensors.remove(name) {
                None => problems.push(format!("`{name}` is missing")),
                Some(tensor) if tensor.shape != shape => {
                    problems.push(format!("`{name}` is {:?}, not {shape:?}", tensor.shape))
                }
                Some(tensor) => parts.push(tensor),
            }
        }
        if parts.len() == entry.parts.len() {
            ours.push(entry.packed(parts));
        }
    }
    problems.extend(tensors.keys().map(|name| format!("`{name}` is left over")));
    refuse(origin, &problems, &format!("holds no such {}", family.name()))?;
    Ok((ours, description))
}

/// The family that fits a model.
///
/// # Errors
/// Lists what stands in the way of each family, the nearest one first.
pub fn fitting(model: &ModelConfig) -> Result<Family> {
    let needs = needs(model);
    let each = needs.iter().map(|(family, needed)| {
        let needed: Vec<_> = needed.iter().map(|(key, theirs)| format!("{key} = {theirs}")).collect();
        format!("{} needs {}", family.name(), needed.join(", "))
    });
    match &needs[0] {
        (nearest, needed) if needed.is_empty() => Ok(*nearest),
        _ => Err(Error::Input(format!(
            "the model fits no family of transformers: of [model] {}; export --format safetensors or pytorch-names \
             instead",
            each.collect::<Vec<_>>().join("; ")
        ))),
    }
}

/// The families of transformers that a model can be exported as; where there is none, what the nearest needs.
pub fn fit_in_words(model: &ModelConfig) -> String {
    let needs = needs(model);
    let fitting: Vec<_> =
        needs.iter().filter(|(_, needed)| needed.is_empty()).map(|(family, _)| family.name()).collect();
    if !fitting.is_empty() {
        return format!("to transformers as {}", fitting.join(" or "));
    }
    let (family, needed) = &needs[0];
    let needed: Vec<_> = needed.iter().map(|(key, theirs)| format!("`model.{key}` = {theirs}")).collect();
    format!("to transformers as no family; the nearest, {}, needs {}", family.name(), needed.join(", "))
}

/// The keys that each family needs another value of, with what it has; the family with the fewest first.
fn needs(model: &ModelConfig) -> Vec<(Family, Vec<(&'static str, &'static str)>)> {
    let mut needs = Family::WRITTEN.map(|family| (family, family.obstacles(model))).to_vec();
    needs.sort_by_key(|(_, needed)| needed.len());
    needs
}

/// Refuses a model that a family has no word for.
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
        "the model is not a {}: {}; export --format safetensors or pytorch-names instead",
        family.name(),
        obstacles.join(", ")
    )))
}

/// A model in a family's naming and layout, with the contents of its `config.json`, the ids of special tokens apart.
///
/// # Errors
/// Names the keys that make the model something else.
pub fn export(
    family: Family,
    description: &Description,
    tensors: Vec<LazyTensor>,
) -> Result<(Vec<LazyTensor>, Value)> {
    check_fit(family, &description.model)?;
    let mut ours: BTreeMap<_, _> = tensors.into_iter().map(|tensor| (tensor.name.clone(), tensor)).collect();
    let mut theirs = Vec::new();
    for entry in family.entries(description, true) {
        let tensor = match ours.remove(&entry.ours) {
            Some(tensor) => tensor,
            // A model without biases computes as if they were zeros.
            None if entry.rows.is_none() => {
                LazyTensor::held(entry.ours.clone(), TensorData::zeros::<f32, _>(entry.shape()))
            }
            None => return Err(Error::Failed(format!("the weights lack `{}`", entry.ours))),
        };
        theirs.extend(entry.unpacked(tensor));
    }
    let theirs = theirs.into_iter().map(|tensor| match &*tensor.name {
        "lm_head.weight" => tensor,
        name => {
            let name = format!("{}{name}", family.prefix());
            tensor.renamed(name)
        }
    });
    let config = match family {
        Family::Gpt2 | Family::Nanogpt => gpt2::write(description),
        Family::Llama | Family::Qwen2 | Family::Qwen3 | Family::Smollm3 => llama::write(family, description),
    };
    Ok((theirs.collect(), config))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::position::PositionScheme;

    #[test]
    fn each_family_says_what_it_needs_nearest_first() {
        let alibi = ModelConfig { position: PositionScheme::Alibi, ..ModelConfig::default() };
        let error = fitting(&alibi).unwrap_err().to_string();
        let places =
            ["gpt2 needs position = \"learned\"; ", "; llama needs ", "; qwen2 needs ", "qwen3 needs "]
                .map(|part| error.find(part).unwrap_or_else(|| panic!("{part}: {error}")));
        assert!(places.iter().all(|&place| place >= places[0]), "{error}");
        assert!(error.len() < 490, "no family is cut from the line: {} bytes", error.len());
        let words = fit_in_words(&alibi);
        assert_eq!(
            words,
            "to transformers as no family; the nearest, gpt2, needs `model.position` = \"learned\""
        );
        let learned = ModelConfig { position: PositionScheme::Learned, ..ModelConfig::default() };
        assert_eq!(
            (fitting(&learned).unwrap(), &*fit_in_words(&learned)),
            (Family::Gpt2, "to transformers as gpt2")
        );
    }

    #[test]
    fn every_key_of_a_model_is_known_to_the_families() {
        // A new key is asked for here: does it change what a model computes, so that a family must refuse it?
        let ModelConfig {
            architecture: _,
            d_model: _,
            heads: _,
            d_head: _,
            key_value_heads: _,
            layers: _,
            dropout: _,
            qk_norm: _,
            position: _,
            rope_theta: _,
            rope_scaling: _,
            rope_factor: _,
            rope_low_frequency_factor: _,
            rope_high_frequency_factor: _,
            rope_original_context: _,
            largest_position: _,
            norm: _,
            norm_kind: _,
            norm_epsilon: _,
            feed_forward: _,
            d_inner: _,
            activation: _,
            bias: _,
            query_key_value_bias: _,
            attention_output_bias: _,
            head_bias: _,
            tie_embeddings: _,
            embedding_scale: _,
            softcap: _,
            embedding_norm: _,
            embedding_norm_epsilon: _,
            initialisation: _,
            zero_projections: _,
        } = ModelConfig::default();
    }
}

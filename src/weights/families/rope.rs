//! Rotary position settings, at both locations in a `config.json`: `rope_theta` and `rope_scaling` up to transformers
//! 4, `rope_parameters` since 5.

use serde_json::{Value, json};

use super::keys::Keys;
use crate::error::Result;
use crate::model::ModelConfig;
use crate::position::RopeScaling;

/// The top-level keys of a family's rotary positions, with their defaults.
#[derive(Debug, Clone, Copy)]
pub(super) struct Base {
    /// The base of the frequencies.
    theta: (&'static str, f64),
    /// The fraction of a head that is rotated; `None` if a family rotates all of it.
    fraction: Option<(&'static str, f64)>,
}

impl Base {
    /// Creates the keys of a family that rotates whole heads.
    pub(super) fn new(key: &'static str, theta: f64) -> Self {
        Self { theta: (key, theta), fraction: None }
    }

    /// Adds the key of the fraction of a head that is rotated.
    pub(super) fn with_fraction(self, key: &'static str, default: f64) -> Self {
        Self { fraction: Some((key, default)), ..self }
    }
}

/// Reads the rotary settings of a config into `model`.
///
/// # Errors
/// Returns an error if a kind of scaling or one of its keys is not supported, or if both locations disagree.
pub(super) fn read(keys: Keys, base: Base, model: ModelConfig) -> Result<ModelConfig> {
    read_from(keys, [keys.object("rope_parameters")?, keys.object("rope_scaling")?], base, model)
}

/// Same as [`read`] with the objects of both locations.
///
/// # Errors
/// Same as [`read`].
pub(super) fn read_from(
    keys: Keys,
    objects: [Option<Keys>; 2],
    base: Base,
    model: ModelConfig,
) -> Result<ModelConfig> {
    let top = |key: &str| keys.number(key);
    let with = |object: Option<Keys>, model: &ModelConfig| -> Result<ModelConfig> {
        let value = |nested: &str, (key, default): (&str, f64)| -> Result<f64> {
            let (top, nested_value) = (top(key)?, object.map(|object| object.number(nested)).transpose()?);
            match (nested_value.flatten(), top, object) {
                (Some(value), Some(top), Some(object)) if value != top => {
                    let problem = format!(", but the top-level `{key}` is {top}");
                    Err(object.refused(nested, value, &problem))
                }
                (value, top, _) => Ok(value.or(top).unwrap_or(default)),
            }
        };
        let fraction = base.fraction.map(|key| value("partial_rotary_factor", key)).transpose()?;
        Ok(ModelConfig {
            rope_theta: value("rope_theta", base.theta)?,
            rotary_fraction: fraction.filter(|fraction| *fraction != 1.0),
            ..model.clone()
        })
    };
    let mut found: Option<ModelConfig> = None;
    for object in objects.into_iter().flatten() {
        if base.fraction.is_none() {
            object.only("partial_rotary_factor", &json!(1.0))?;
        }
        let read = scaling(keys, object, with(Some(object), &model)?)?;
        if found.as_ref().is_some_and(|other| *other != read) {
            return Err(keys.error("`rope_parameters` and `rope_scaling` disagree; remove one of them"));
        }
        found = Some(read);
    }
    found.map_or_else(|| with(None, &model), Ok)
}

/// Reads the scaling of an object.
fn scaling(top: Keys, object: Keys, model: ModelConfig) -> Result<ModelConfig> {
    // Old files use `type`, and some files have both names.
    let kind_key = if object.value("rope_type").is_some() { "rope_type" } else { "type" };
    let kind = object.text(kind_key)?.unwrap_or("default");
    let factors: &[&str] = match kind {
        "default" => &[],
        "linear" => &["factor"],
        "llama3" => &["factor", "low_freq_factor", "high_freq_factor"],
        _ => {
            let known = "; the supported types are default, linear and llama3";
            return Err(object.refused(kind_key, format!("\"{kind}\""), known));
        }
    };
    object.only("attention_factor", &json!(1.0))?;
    let original = "original_max_position_embeddings";
    let allowed = ["rope_type", "type", "rope_theta", "partial_rotary_factor", "attention_factor", original];
    let is_known = |name: &str| allowed.contains(&name) || factors.contains(&name);
    if let Some((name, value)) = object.values().find(|(name, _)| !is_known(name)) {
        let problem = format!(", which is not supported with `{kind_key}` \"{kind}\"");
        return Err(object.refused(name, value, &problem));
    }
    let factor = |name: &str| {
        let lacks = || object.lacking(name, &format!("rotary scaling of type {kind}"));
        object.number(name)?.ok_or_else(lacks)
    };
    Ok(match kind {
        "linear" => {
            ModelConfig { rope_scaling: RopeScaling::Linear, rope_factor: factor("factor")?, ..model }
        }
        "llama3" => ModelConfig {
            rope_scaling: RopeScaling::Llama3,
            rope_factor: factor("factor")?,
            rope_low_frequency_factor: factor("low_freq_factor")?,
            rope_high_frequency_factor: factor("high_freq_factor")?,
            rope_original_context: match object.size(original)? {
                Some(size) => size,
                None => top.required_size(original)?,
            },
            ..model
        },
        _ => model,
    })
}

/// Native keys and the matching keys of the nested object.
pub(super) const KEYS: [(&str, &str); 5] = [
    ("rope_theta", "rope_theta"),
    ("rope_factor", "factor"),
    ("rope_low_frequency_factor", "low_freq_factor"),
    ("rope_high_frequency_factor", "high_freq_factor"),
    ("rope_original_context", "original_max_position_embeddings"),
];

/// Returns the context length to write to a config. transformers warns about a llama3 scaling whose original context is
/// not shorter. In that case the context is extended to the range of the scaling, which does not change what a rotary
/// model computes.
pub(super) fn max_positions(model: &ModelConfig, context: usize) -> usize {
    let original = model.rope_original_context;
    match model.rope_scaling {
        RopeScaling::Llama3 if context <= original => {
            ((original as f64 * model.rope_factor).ceil() as usize).max(original + 1)
        }
        _ => context,
    }
}

/// Returns the values of `rope_parameters` and of `rope_scaling`.
pub(super) fn write(model: &ModelConfig) -> [Value; 2] {
    let scaling = match model.rope_scaling {
        RopeScaling::None => Value::Null,
        RopeScaling::Linear => json!({"rope_type": "linear", "factor": model.rope_factor}),
        RopeScaling::Llama3 => json!({
            "rope_type": "llama3",
            "factor": model.rope_factor,
            "low_freq_factor": model.rope_low_frequency_factor,
            "high_freq_factor": model.rope_high_frequency_factor,
            "original_max_position_embeddings": model.rope_original_context,
        }),
    };
    let mut parameters = if scaling.is_null() { json!({"rope_type": "default"}) } else { scaling.clone() };
    parameters["rope_theta"] = json!(model.rope_theta);
    [parameters, scaling]
}

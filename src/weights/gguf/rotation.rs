//! The settings of rotary positions.

use serde_json::{Map, Value, json};

use super::architectures::GgufArchitecture;
use super::header::GgufHeader;
use crate::error::Result;
use crate::weights::file::WeightsFile;

/// The divisors of the rotary frequencies, which are a tensor without parameters of its own.
pub(super) const FACTORS: &str = "rope_freqs.weight";

/// The settings with which Llama 3.1, 3.2 and 3.3 scale frequencies: the low and the high frequency factor, and the
/// original context.
const LLAMA3: (f64, f64, usize) = (1.0, 4.0, 8192);

/// Adds the settings of rotary positions to a config.
///
/// # Errors
/// Returns an error if the divisors of the frequencies cannot be read or are unknown.
pub(super) fn add(
    file: &WeightsFile,
    header: &GgufHeader,
    architecture: &GgufArchitecture,
    config: &mut Map<String, Value>,
) -> Result<()> {
    let Some([theta_key, fraction_key]) = architecture.rotation else { return Ok(()) };
    let key = |end: &str| format!("{}.rope.{end}", architecture.name);
    let value = |end: &str| header.metadata.get(&key(end));
    let theta = value("freq_base").and_then(Value::as_f64).unwrap_or(10_000.0);
    config.insert(theta_key.into(), json!(theta));
    let width = config.get("head_dim").and_then(Value::as_u64).map(|width| width as usize);
    if let (Some(rotated), Some(width)) = (header.size(&key("dimension_count")), width) {
        config.insert(fraction_key.into(), json!(rotated as f64 / width as f64));
    }
    if let Some(factors) = header.tensor(FACTORS) {
        let factors = factors.lazy(file).read()?;
        let factors = factors.as_slice::<f32>().expect("weights are 32-bit floats");
        let largest = factors.iter().fold(1f32, |largest, &factor| largest.max(factor));
        let (low, high, original) = LLAMA3;
        let is_llama3 = |(pair, &factor): (usize, &f32)| {
            let expected = divisor(theta.powf(-(pair as f64) / factors.len() as f64), f64::from(largest));
            (f64::from(factor) / expected - 1.0).abs() < 1e-3
        };
        if !factors.iter().enumerate().all(is_llama3) {
            return Err(file.error(format!(
                "`{FACTORS}` scales rotary frequencies in an unknown way; pass the config.json of the original model \
                 with --config"
            )));
        }
        if largest > 1.0 {
            let scaling = json!({"rope_type": "llama3", "factor": largest, "low_freq_factor": low,
                "high_freq_factor": high, "original_max_position_embeddings": original});
            config.insert("rope_scaling".into(), scaling);
        }
    }
    let factor = value("scaling.factor");
    let kind = match header.text(&key("scaling.type")) {
        Some("none") => None,
        None if header.tensor("rope_factors_long.weight").is_some() => Some("longrope"),
        None => factor.map(|_| "linear"),
        kind => kind,
    };
    if let Some(kind) = kind {
        let original = value("scaling.original_context_length");
        let mut scaling = json!({"rope_type": kind, "original_max_position_embeddings": original});
        if let Some(factor) = factor {
            scaling["factor"] = factor.clone();
        }
        config.insert("rope_scaling".into(), scaling);
    }
    Ok(())
}

/// Returns the number by which Llama 3 divides a frequency: 1 for high frequencies, `factor` for low ones.
fn divisor(frequency: f64, factor: f64) -> f64 {
    let (low, high, original) = LLAMA3;
    let rotations = original as f64 * frequency / std::f64::consts::TAU;
    let smooth = ((rotations - low) / (high - low)).clamp(0.0, 1.0);
    1.0 / ((1.0 - smooth) / factor + smooth)
}

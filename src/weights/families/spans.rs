//! Which layers have a window, as lists in configs.

use serde_json::{Value, json};

use super::keys::Keys;
use crate::error::Result;
use crate::model::{LayerSpan, ModelConfig};

/// The kinds of layers in `layer_types`.
const FULL: &str = "full_attention";
const SLIDING: &str = "sliding_attention";

/// Reads `layer_types`: true for each layer with a window. Without the key, `is_local` decides.
///
/// # Errors
/// Returns an error if the list has another length, or another kind of layer.
pub(super) fn read(keys: Keys, layers: usize, is_local: impl Fn(usize) -> bool) -> Result<Vec<bool>> {
    let Some(kinds) = keys.list("layer_types")? else { return Ok((0..layers).map(is_local).collect()) };
    let is_known = |kind: &Value| kind == SLIDING || kind == FULL;
    if kinds.len() != layers || !kinds.iter().all(is_known) {
        let problem = format!(", but must have {layers} values: \"{SLIDING}\" or \"{FULL}\"");
        return Err(keys.refused("layer_types", json!(kinds), &problem));
    }
    Ok(kinds.iter().map(|kind| kind == SLIDING).collect())
}

/// Returns `layer_types`.
pub(super) fn write(model: &ModelConfig) -> Value {
    let kind = |layer| if model.window_of(layer).is_some() { SLIDING } else { FULL };
    json!((0..model.layers).map(kind).collect::<Vec<_>>())
}

/// Puts the window of the local layers into `model`, unless it covers the context: it hides nothing in training then, and
/// generation reads no longer text.
pub(super) fn put(
    model: ModelConfig,
    window: Option<usize>,
    context: usize,
    is_local: &[bool],
) -> ModelConfig {
    let window = window.filter(|window| *window < context && is_local.contains(&true));
    let repeats = |period: &usize| is_local.iter().zip(is_local.iter().skip(*period)).all(|(a, b)| a == b);
    let period = (1..is_local.len()).find(repeats).unwrap_or(is_local.len());
    let span = |is_local: &bool| if *is_local { LayerSpan::Local } else { LayerSpan::Global };
    let has_pattern = window.is_some() && is_local.contains(&false);
    let layer_pattern = if has_pattern { is_local[..period].iter().map(span).collect() } else { Vec::new() };
    ModelConfig { window, layer_pattern, ..model }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortest_pattern_is_found() {
        use LayerSpan::{Global, Local};
        let pattern = |is_local: &[bool], window| {
            let model = put(ModelConfig::default(), Some(window), 64, is_local);
            (model.window, model.layer_pattern)
        };
        let [local, global] = [true, false];
        assert_eq!(pattern(&[local, global, local, global], 8), (Some(8), vec![Local, Global]));
        assert_eq!(pattern(&[local, local, global, local], 8), (Some(8), vec![Local, Local, Global]));
        assert_eq!(pattern(&[local, global, global], 8), (Some(8), vec![Local, Global, Global]));
        assert_eq!(pattern(&[local, local], 8), (Some(8), vec![]));
        assert_eq!(pattern(&[global, global], 8), (None, vec![]));
        assert_eq!(pattern(&[local, global], 64), (None, vec![]));
    }
}

//! The model embedded in its page: weights, description and vocabulary, with which the page's script runs it.

use burn::tensor::{DType, TensorData};
use burn_flex::Flex;
use causal_attention_report::page::LiveModel;
use serde_json::{Value, json};

use crate::analysis::Sample;
use crate::data::{Role, Vocabulary};
use crate::error::Result;
use crate::hooks::ResidualWriter;
use crate::model::{Architecture, Sizes};
use crate::numbers::thousands;
use crate::position::{PositionScheme, evaluation_positions};
use crate::weights::file::WeightsFile;
use crate::weights::native::{self, Description};

/// The maximum number of parameters stored in single precision.
const MAX_F32_PARAMETERS: usize = 1_000_000;
/// The maximum number of parameters stored in half precision; larger models would make the page too large.
const MAX_PARAMETERS: usize = 6_000_000;
/// The maximum number of start sequences.
pub const MAX_STARTS: usize = 300;
/// The maximum total number of tokens of the start sequences.
const MAX_START_TOKENS: usize = 30_000;
/// The maximum input length on the page for models with a shorter context.
const MAX_INPUT_LENGTH: usize = 512;

/// The mean output of each component over the stored validation sequences of a run, for mean ablation on its page.
#[derive(Debug, Default)]
pub struct StoredMeans {
    /// The number of sequences; 0 for a run without stored sequences.
    pub sequences: usize,
    /// The means, each `[d_model]`.
    pub outputs: Vec<(ResidualWriter, Vec<f32>)>,
}

/// Returns true if a page includes models of this size.
pub(super) fn fits(Description { model, sizes }: &Description) -> bool {
    model.parameters::<Flex>(*sizes) <= MAX_PARAMETERS
}

/// Returns the model from a weights file, with start sequences and mean outputs, or the reason why it does not fit into a
/// page.
///
/// # Errors
/// Returns an error if the weights cannot be read.
pub fn live_model(
    weights: &WeightsFile,
    vocabulary: &Vocabulary,
    (starts, means): (&[Sample], &StoredMeans),
) -> Result<Result<LiveModel, String>> {
    let description = native::description(weights)?;
    let parameters = description.model.parameters::<Flex>(description.sizes);
    if !fits(&description) {
        return Ok(Err(format!(
            "This page does not include the model: it has {} parameters, and pages include at most {}.",
            thousands(parameters as f64),
            thousands(MAX_PARAMETERS as f64)
        )));
    }
    let precision = if parameters > MAX_F32_PARAMETERS { DType::F16 } else { DType::F32 };
    let (mut numbers, mut tensors) = (Vec::new(), Vec::new());
    for tensor in weights.tensors()? {
        let data = tensor.read()?.convert_dtype(precision);
        // The largest finite half-precision number is 65,504.
        if data.iter::<f32>().any(|number| !number.is_finite()) {
            let problem = "This page does not include the model: its weights are not finite.";
            return Ok(Err(problem.to_string()));
        }
        numbers.extend_from_slice(data.as_bytes());
        tensors.push((tensor.name.clone(), tensor.shape.clone()));
    }
    for (component, mean) in &means.outputs {
        let data = TensorData::new(mean.clone(), [mean.len()]).convert_dtype(precision);
        numbers.extend_from_slice(data.as_bytes());
        tensors.push((format!("mean.{component}"), vec![mean.len()]));
    }
    let mut described = describe_weights(&description, &tensors, precision, (vocabulary, starts));
    described["stored_sequences"] = json!(means.sequences);
    Ok(Ok(LiveModel { description: described, numbers, starts: start_sequences(starts) }))
}

/// Returns the description of the weights.
fn describe_weights(
    Description { model, sizes }: &Description,
    tensors: &[(String, Vec<usize>)],
    precision: DType,
    (vocabulary, starts): (&Vocabulary, &[Sample]),
) -> Value {
    let mut config = json!(model);
    if model.position == PositionScheme::RandomSinusoidal && model.architecture != Architecture::OneLayer {
        config["draws"] = draws(model.largest_position, *sizes);
    }
    config["d_head"] = json!(model.head_width());
    config["key_value_heads"] =
        json!(if model.key_value_heads == 0 { model.heads } else { model.key_value_heads });
    let tensors: Vec<_> = tensors.iter().map(|(name, shape)| json!({"name": name, "shape": shape})).collect();
    let precision = if precision == DType::F32 { "f32" } else { "f16" };
    let mut tokenizer = tokenizer(vocabulary);
    // Sources that count have no padding before their end, and the first token of a document never counts.
    let has_sources = |sample: &Sample| {
        let begins_document = sample.documents.as_ref().is_some_and(|it| it.first() != it.get(1));
        sample.source.is_none() && sample.roles.first() == Some(&Role::Padding) && !begins_document
    };
    if starts.iter().any(has_sources) {
        let (begin, end) = vocabulary.answers().unwrap_or_default();
        tokenizer["answers"] = json!({"begin": begin, "end": end});
    }
    json!({
        "config": config, "sizes": sizes, "tensors": tensors, "precision": precision,
        "tokenizer": tokenizer,
    })
}

/// Returns the positions drawn by random sinusoidal positions in evaluation, by stack: for the context, and for each
/// longer sequence that the page accepts. Each position is stored as its distance from the previous one, which
/// compresses well.
fn draws(largest: usize, sizes: Sizes) -> Value {
    let distances = |time: usize| {
        let mut last = 0;
        let positions = evaluation_positions(time, largest).into_iter();
        positions.map(|position| position - std::mem::replace(&mut last, position)).collect::<Vec<_>>()
    };
    let of_stack = |context: usize| {
        let longest = largest.min(MAX_INPUT_LENGTH).max(context);
        (context..=longest).map(distances).collect::<Vec<_>>()
    };
    json!({"position": of_stack(sizes.context), "encoder.position": sizes.source_context.map(of_stack)})
}

/// Returns a vocabulary in the format of the page: the name of each token and, for GPT-2's byte-pair encoding, the
/// merges, or, for words, the unknown token. For other tokenizers, the page accepts token ids.
fn tokenizer(vocabulary: &Vocabulary) -> Value {
    let mut tokenizer = without_added_tokens(vocabulary);
    let names = |ids: &[u32]| ids.iter().map(|&id| vocabulary.token(id)).collect::<Vec<_>>();
    tokenizer["added"] = json!(vocabulary.added_tokens().map(names));
    tokenizer
}

fn without_added_tokens(vocabulary: &Vocabulary) -> Value {
    let ids = 0..vocabulary.size() as u32;
    let names: Vec<_> = ids.clone().map(|id| vocabulary.token(id)).collect();
    let stored = json!(vocabulary);
    let Some(tokenizer) = stored.get("tokenizer") else {
        // The characters as typed; the names show whitespace as symbols.
        let special = stored["special"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let characters = stored["characters"].as_str().map(|all| {
            json!(all.chars().map(String::from).chain(special.map(String::from)).collect::<Vec<_>>())
        });
        let pieces = characters.or_else(|| stored.get("symbols").cloned());
        if let Some(edges) = stored.get("edges") {
            let numbers: Vec<_> = ids.map(|id| vocabulary.decode(&[id])).collect();
            return json!({"kind": "symbols", "tokens": names, "pieces": numbers, "edges": edges});
        }
        return json!({"kind": stored["kind"], "tokens": names, "pieces": pieces});
    };
    let (model, pre_tokenizer) = (&tokenizer["model"], &tokenizer["pre_tokenizer"]);
    let is_supported = model["type"] == "BPE"
        && pre_tokenizer["type"] == "ByteLevel"
        && pre_tokenizer["add_prefix_space"] == false
        && pre_tokenizer["use_regex"] != false
        && tokenizer["normalizer"].is_null();
    let are_words = model["type"] == "WordLevel"
        && pre_tokenizer["type"] == "Whitespace"
        && tokenizer["normalizer"].is_null();
    if !is_supported && !are_words {
        return json!({"kind": "ids", "tokens": names});
    }
    let mut pieces = vec![Value::Null; names.len()];
    for (piece, id) in model["vocab"].as_object().into_iter().flatten() {
        if let Some(entry) = id.as_u64().and_then(|id| pieces.get_mut(id as usize)) {
            *entry = json!(piece);
        }
    }
    let added = tokenizer["added_tokens"].as_array().into_iter().flatten();
    let special: Vec<_> = added.map(|token| json!([token["content"], token["id"]])).collect();
    if are_words {
        let unknown = &model["unk_token"];
        return json!({"kind": "words", "tokens": names, "pieces": pieces, "special": special, "unknown": unknown});
    }
    let merges: Vec<Value> = model["merges"].as_array().into_iter().flatten().map(merge).collect();
    json!({"kind": "pairs", "tokens": names, "pieces": pieces, "merges": merges, "special": special})
}

/// Returns a merged pair; older files store it as one string.
fn merge(merge: &Value) -> Value {
    match merge.as_str().and_then(|pair| pair.split_once(' ')) {
        Some((left, right)) => json!([left, right]),
        None => merge.clone(),
    }
}

/// Returns the first start sequences, up to the maximum number of sequences and tokens. The page reads each as one
/// document, so a sample of several documents is represented by its longest one.
fn start_sequences(samples: &[Sample]) -> Vec<Value> {
    let mut tokens = 0;
    let fits = samples.iter().take(MAX_STARTS).take_while(|sample| {
        tokens += sample.longest_document().len() + sample.source.as_ref().map_or(0, Vec::len);
        tokens <= MAX_START_TOKENS
    });
    fits.map(|sample| json!({"tokens": sample.longest_document(), "source": sample.source})).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ModelConfig;
    use crate::weights::file::LazyTensor;

    /// Returns the embedded model of a file with these weights, with `d_model` as the width of its blocks.
    fn live(d_model: usize, numbers: Vec<f32>) -> std::result::Result<LiveModel, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        let model = ModelConfig { d_model, heads: 1, layers: 2, ..ModelConfig::default() };
        let sizes = Sizes { vocab: 7, context: 5, source_context: None };
        let data = TensorData::new(numbers.clone(), [numbers.len()]);
        let tensor = LazyTensor::from_data("head.bias".to_string(), data);
        native::write(&path, &[tensor], native::entry(&Description { model, sizes })).unwrap();
        live_model(
            &WeightsFile::open(path).unwrap(),
            &Vocabulary::integers(7, &[]),
            (&[], &StoredMeans::default()),
        )
        .unwrap()
    }

    #[test]
    fn parameter_count_decides_f32_f16_or_none() {
        let small = live(8, vec![1.0, -0.1]).unwrap();
        assert_eq!((&small.description["precision"], small.numbers.len()), (&json!("f32"), 8));
        // About 24 d_model^2 parameters.
        let half = live(256, vec![1.0, -0.1]).unwrap();
        assert_eq!(half.description["precision"], "f16");
        assert_eq!(half.numbers, [0x00, 0x3c, 0x66, 0xae]);
        let problem = live(512, vec![1.0]).unwrap_err();
        assert!(problem.contains("parameters, and pages include at most 6,000,000"), "{problem}");
    }

    #[test]
    fn non_finite_weights_are_excluded() {
        for (d_model, number) in [(8, f32::NAN), (8, f32::NEG_INFINITY), (256, 1e5)] {
            let problem = live(d_model, vec![1.0, number]).unwrap_err();
            assert!(problem.contains("its weights are not finite"), "{number}: {problem}");
        }
        assert!(live(8, vec![1e5]).is_ok(), "1e5 is finite in single precision");
    }
}

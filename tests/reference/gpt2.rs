//! A small GPT-2 from transformers: import of the checkpoint, all attention maps, and greedy tokens with and without a
//! KV cache.

use std::{fs, path::Path};

use burn::tensor::{Tensor, backend::Backend};
use burn_flex::Flex;
use burn_ndarray::NdArray;
use causal_attention::generation::{Options, Prompt, Sampling, generate};
use causal_attention::model::Inputs;
use causal_attention::weights::companions::Companions;
use causal_attention::weights::export::{ExportFormat, export};
use causal_attention::weights::families::Family;
use causal_attention::weights::file::LazyTensor;
use causal_attention::weights::import::{Imported, import};
use causal_attention::weights::native::{self, Tensors};

use crate::CLOSE;
use crate::case::{Case, with_both_kernels};

/// Writes the files as transformers does: the checkpoint with or without the prefix `transformer.`, and the config. The
/// sizes in the config are the shapes of the case's tensors; the number of heads is an axis of the expected maps.
fn write_checkpoint(case: &Case, folder: &Path, prefix: &str) {
    let [layers, _, heads, _, _] = case.shape::<5>("expected.attentions");
    let [vocab, d_model] = case.shape::<2>("weight.transformer.wte.weight");
    let [context, _] = case.shape::<2>("weight.transformer.wpe.weight");
    case.write_safetensors(&folder.join("model.safetensors"), |name| {
        name.strip_prefix("weight.transformer.").map(|name| format!("{prefix}{name}"))
    });
    let config = serde_json::json!({
        "model_type": "gpt2", "n_embd": d_model, "n_head": heads, "n_layer": layers,
        "n_positions": context, "vocab_size": vocab, "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5, "n_inner": null, "unknown_key": [1, 2],
    });
    fs::write(folder.join("config.json"), config.to_string()).unwrap();
}

/// Imports a folder in the detected format, and reads its weights.
fn read(folder: &Path) -> (Imported, Tensors) {
    let imported = import(&[folder.to_path_buf()], None, None, None).unwrap();
    let read = |tensor: &LazyTensor| (tensor.name.clone(), tensor.read().unwrap());
    let mut tensors: Tensors = imported.tensors.iter().map(read).collect();
    tensors.sort_by(|a, b| a.0.cmp(&b.0));
    (imported, tensors)
}

fn imported(case: &Case, prefix: &str) -> (Imported, Tensors) {
    let folder = tempfile::tempdir().unwrap();
    write_checkpoint(case, folder.path(), prefix);
    read(folder.path())
}

fn agrees<B: Backend>() {
    let (case, device) = (Case::read("gpt2"), Default::default());
    let (Imported { description, vocabulary, .. }, tensors) = imported(&case, "transformer.");
    let model = description.model.init::<B>(description.sizes, &device).unwrap();
    let model = native::apply(model, tensors, Path::new("gpt2")).unwrap();

    let inputs = Inputs::tokens(case.int("input.tokens"));
    let (logits, maps) = model.forward_with_maps(inputs.clone()).unwrap();
    case.assert_close("expected.logits", logits, CLOSE);
    case.assert_close("expected.logits", model.forward(inputs).unwrap(), CLOSE);
    let maps = Tensor::stack::<5>(maps.causal, 0); // [layers, batch, heads, time, time]
    case.assert_close("expected.attentions", maps, CLOSE);

    let tokens = |key| case.numbers(key).into_iter().map(|token| token as u32).collect::<Vec<_>>();
    let prompt = Prompt { tokens: tokens("input.prompt"), ..Prompt::default() };
    let expected = &tokens("expected.greedy")[prompt.tokens.len()..];
    assert_eq!(expected.len(), 24);
    for cache in [true, false] {
        let options = Options { sampling: Sampling::GREEDY, max_new: 24, cache, ..Options::default() };
        let generated =
            generate((&model, description.sizes), &vocabulary, &prompt, &options, &device, |_, _| Ok(()))
                .unwrap();
        assert_eq!(generated[0].tokens, expected, "with cache: {cache}");
    }
}

#[test]
fn imported_gpt2_matches_transformers() {
    with_both_kernels(agrees::<NdArray>);
    with_both_kernels(agrees::<Flex>);
}

#[test]
fn exports_reimport_bitwise() {
    let case = Case::read("gpt2");
    let (Imported { description, vocabulary, tensors: lazy, .. }, tensors) = imported(&case, "");
    let exported = |format| {
        let folder = tempfile::tempdir().unwrap();
        export(&description, lazy.clone(), &vocabulary, &Companions::default(), format)
            .unwrap()
            .write(folder.path())
            .unwrap();
        folder
    };
    for format in [ExportFormat::Family(Family::Gpt2), ExportFormat::Transformers, ExportFormat::Safetensors]
    {
        let (reimported, read) = read(exported(format).path());
        assert_eq!(reimported.is_native, format == ExportFormat::Safetensors);
        assert_eq!(reimported.description, description);
        assert!(reimported.description.model.tie_embeddings);
        assert_eq!(read, tensors, "{format:?}");
    }
    let plain = fs::read(exported(ExportFormat::PytorchNames).path().join("model.safetensors")).unwrap();
    let plain = safetensors::SafeTensors::deserialize(&plain).unwrap();
    assert_eq!(plain.len(), tensors.len());
    for (name, ours) in &tensors {
        let name = name.replace(".gamma", ".weight").replace(".beta", ".bias");
        let shape = plain.tensor(&name).unwrap().shape().to_vec();
        let is_linear = ours.shape.len() == 2 && !name.contains("embedding") && !name.contains("position");
        let expected = ours.shape.to_vec();
        assert_eq!(shape, if is_linear { expected.into_iter().rev().collect() } else { expected }, "{name}");
    }
}

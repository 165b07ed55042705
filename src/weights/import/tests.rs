//! Imports of foreign weights, intact and damaged.

use std::fs;

use super::*;
use crate::model::Inputs;
use crate::weights::file::WeightsFile;
use crate::weights::native::Tensors;
use burn::tensor::{DType, Int, Tensor, TensorData, Tolerance};
use burn_ndarray::NdArray;
use proptest::prelude::*;
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};

fn peers() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers")
}

fn nanogpt() -> Imported {
    import(&[peers().join("nanogpt.pt")], None, None, None).unwrap()
}

/// A tensor of a file: name, shape, type, bytes.
type Stored = (String, Vec<usize>, Dtype, Vec<u8>);

fn stored(imported: &Imported) -> Vec<Stored> {
    let (tensors, _) = exported(imported);
    let data = |tensor: LazyTensor| (tensor.name.clone(), tensor.shape.clone(), tensor.read().unwrap());
    let parts = tensors.into_iter().map(data);
    parts.map(|(name, shape, data)| (name, shape, Dtype::F32, data.as_bytes().to_vec())).collect()
}

fn exported(imported: &Imported) -> (Vec<LazyTensor>, Value) {
    families::export(Family::Gpt2, &imported.description, imported.tensors.clone()).unwrap()
}

fn write(path: &Path, tensors: &[Stored]) {
    let views = tensors
        .iter()
        .map(|(name, shape, dtype, bytes)| (name, TensorView::new(*dtype, shape.clone(), bytes).unwrap()));
    fs::write(path, safetensors::serialize(views, None).unwrap()).unwrap();
}

fn config(imported: &Imported) -> String {
    exported(imported).1.to_string()
}

fn sorted(tensors: &[LazyTensor]) -> Tensors {
    let mut tensors: Tensors =
        tensors.iter().map(|tensor| (tensor.name.clone(), tensor.read().unwrap())).collect();
    tensors.sort_by(|a, b| a.0.cmp(&b.0));
    tensors
}

#[test]
fn nanogpt_checkpoint_logits_match_pytorch() {
    let Imported { description, tensors, has_vocabulary, .. } = nanogpt();
    assert!(!has_vocabulary && description.model.tie_embeddings);
    let device = Default::default();
    let model = description.model.init::<NdArray>(description.sizes, &device).unwrap();
    let model = native::apply(model, sorted(&tensors), Path::new("nanogpt.pt")).unwrap();
    let bytes = fs::read(peers().join("nanogpt.safetensors")).unwrap();
    let expected = SafeTensors::deserialize(&bytes).unwrap();
    let data = |name: &str, dtype| {
        let view = expected.tensor(name).unwrap();
        TensorData::from_bytes_vec(view.data().to_vec(), view.shape().to_vec(), dtype)
    };
    let tokens = Tensor::<NdArray, 2, Int>::from_data(data("tokens", DType::I64), &device);
    let logits = model.forward(Inputs::tokens(tokens)).unwrap().into_data();
    logits.assert_approx_eq::<f32>(&data("logits", DType::F32), Tolerance::absolute(1e-4));
}

#[test]
fn streamed_safetensors_equal_the_serialized_bytes() {
    let Imported { description, tensors, .. } = nanogpt();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    native::write(&path, &tensors, native::entry(&description)).unwrap();
    let at_once = native::to_bytes(&sorted(&tensors), Some(&description)).unwrap();
    assert!(fs::read(&path).unwrap() == at_once);
    if cfg!(target_os = "linux") {
        let written = native::write(Path::new("/dev/full"), &tensors, native::entry(&description));
        let message = written.unwrap_err().to_string();
        assert!(message.contains("no space left on the disk; free some"), "{message}");
    }
}

#[test]
fn shards_and_unprefixed_names_import_equally() {
    let original = nanogpt();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("config.json"), config(&original)).unwrap();
    let mut tensors = stored(&original);
    for (name, ..) in &mut tensors {
        *name = name.trim_start_matches("transformer.").to_string();
    }
    tensors.push(("h.0.attn.bias".to_string(), vec![1, 1, 3, 3], Dtype::BOOL, vec![1; 9]));
    let (first, second) = tensors.split_at(7);
    let mut map = serde_json::Map::new();
    for (name, part) in [("a.safetensors", first), ("b.safetensors", second)] {
        write(&path(name), part);
        map.extend(part.iter().map(|(tensor, ..)| (tensor.clone(), name.into())));
    }
    let index = serde_json::json!({"metadata": {}, "weight_map": map});
    fs::write(path("model.safetensors.index.json"), index.to_string()).unwrap();
    for named in [vec![folder.path().to_path_buf()], vec![path("a.safetensors"), path("b.safetensors")]] {
        let again = import(&named, Some(ImportFormat::Family(Family::Gpt2)), None, None).unwrap();
        assert_eq!(sorted(&again.tensors), sorted(&original.tensors));
        assert_eq!(again.description.sizes, original.description.sizes);
    }
    let twice = import(
        &[path("a.safetensors"), path("a.safetensors")],
        Some(ImportFormat::Family(Family::Gpt2)),
        None,
        None,
    );
    assert!(twice.unwrap_err().to_string().contains("which is also in another file"));
    let half = import(&[path("a.safetensors")], Some(ImportFormat::Family(Family::Gpt2)), None, None)
        .unwrap_err()
        .to_string();
    assert!(half.contains("`ln_f.weight` is missing") && half.contains("`h.1.ln_2.bias` is missing"));
}

#[test]
fn pytorch_shard_index_is_found_in_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let shard = "pytorch_model-00001-of-00001.bin";
    fs::copy(peers().join("nanogpt.pt"), folder.path().join(shard)).unwrap();
    let read = foreign::open(&[peers().join("nanogpt.pt")]).unwrap();
    let (tensors, _) = foreign::read(&read, |_| false).unwrap();
    let map = serde_json::Map::from_iter(tensors.into_keys().map(|name| (name, shard.into())));
    let index = serde_json::json!({"metadata": {}, "weight_map": map});
    fs::write(folder.path().join("pytorch_model.bin.index.json"), index.to_string()).unwrap();
    let again =
        import(&[folder.path().to_path_buf()], Some(ImportFormat::Family(Family::Nanogpt)), None, None)
            .unwrap();
    assert_eq!(sorted(&again.tensors), sorted(&nanogpt().tensors));
}

#[test]
fn untied_head_is_kept_and_bf16_widened() {
    let original = nanogpt();
    let folder = tempfile::tempdir().unwrap();
    let mut gpt2_config: Value = serde_json::from_str(&config(&original)).unwrap();
    gpt2_config["tie_word_embeddings"] = false.into();
    fs::write(folder.path().join("config.json"), gpt2_config.to_string()).unwrap();
    let mut tensors = stored(&original);
    let head: Vec<u8> = (0..11 * 12).flat_map(|i| (i as f32 / 8.0).to_le_bytes()).collect();
    tensors.push(("lm_head.weight".to_string(), vec![11, 12], Dtype::F32, head));
    // Ones in bfloat16.
    let norm = tensors.iter_mut().find(|(name, ..)| name == "transformer.ln_f.weight").unwrap();
    (norm.2, norm.3) = (Dtype::BF16, [0x80, 0x3f].repeat(12));
    write(&folder.path().join("model.safetensors"), &tensors);
    let untied =
        import(&[folder.path().to_path_buf()], Some(ImportFormat::Family(Family::Gpt2)), None, None).unwrap();
    assert!(!untied.description.model.tie_embeddings);
    let tensors = sorted(&untied.tensors);
    let tensor = |name: &str| &tensors.iter().find(|(ours, _)| ours == name).unwrap().1;
    assert_eq!(tensor("norm.gamma").to_vec::<f32>().unwrap(), [1.0; 12]);
    assert_eq!(tensor("head.weight").shape.to_vec(), [12, 11]);
    assert_eq!(tensor("head.weight").to_vec::<f32>().unwrap()[..3], [0.0, 1.5, 3.0]);

    gpt2_config["tie_word_embeddings"] = true.into();
    fs::write(folder.path().join("config.json"), gpt2_config.to_string()).unwrap();
    let refused =
        import(&[folder.path().to_path_buf()], Some(ImportFormat::Family(Family::Gpt2)), None, None)
            .unwrap_err();
    assert!(refused.to_string().contains("`lm_head.weight` differs from the embedding table"), "{refused}");
}

#[test]
fn stored_copy_of_tied_head_is_accepted() {
    let original = nanogpt();
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("config.json"), config(&original)).unwrap();
    let mut tensors = stored(&original);
    let table = tensors.iter().find(|(name, ..)| name == "transformer.wte.weight").unwrap().clone();
    tensors.push(("lm_head.weight".to_string(), table.1, table.2, table.3));
    write(&folder.path().join("model.safetensors"), &tensors);
    let again = import(&[folder.path().to_path_buf()], None, None, None).unwrap();
    assert!(again.description.model.tie_embeddings);
    assert_eq!(sorted(&again.tensors), sorted(&original.tensors));
}

#[test]
fn tokenizer_imports_in_both_formats_if_it_fits() {
    let original = nanogpt();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("config.json"), config(&original)).unwrap();
    write(&path("model.safetensors"), &stored(&original));
    fs::write(path("vocab.json"), r#"{"a": 0, "b": 1, "Ġ": 2, "ab": 3, "<|endoftext|>": 4}"#).unwrap();
    fs::write(path("merges.txt"), "#version: 0.2\na b\n").unwrap();
    let pair =
        import(&[path("model.safetensors")], Some(ImportFormat::Family(Family::Gpt2)), None, None).unwrap();
    assert!(pair.has_vocabulary);
    assert_eq!(pair.vocabulary.encode("ab b<|endoftext|>").unwrap(), [3, 2, 1, 4]);
    assert_eq!(pair.vocabulary.decode(&[3, 2, 1]), "ab b");
    assert_eq!(pair.vocabulary.end(), Some(4));

    let stored = serde_json::to_value(&pair.vocabulary).unwrap();
    fs::write(path("other.json"), stored["tokenizer"].to_string()).unwrap();
    let json = import(
        &[path("model.safetensors")],
        Some(ImportFormat::Family(Family::Gpt2)),
        None,
        Some(&path("other.json")),
    );
    assert_eq!(json.unwrap().vocabulary, pair.vocabulary);

    let large: serde_json::Map<String, serde_json::Value> =
        (0u32..12).map(|id| (char::from(b'a' + id as u8).to_string(), id.into())).collect();
    fs::write(path("vocab.json"), serde_json::to_string(&large).unwrap()).unwrap();
    fs::write(path("merges.txt"), "").unwrap();
    let error = import(&[path("model.safetensors")], Some(ImportFormat::Family(Family::Gpt2)), None, None)
        .unwrap_err()
        .to_string();
    assert!(error.contains("has 12 tokens, but the model has only 11"), "{error}");
    let error = import(
        &[path("model.safetensors")],
        Some(ImportFormat::Family(Family::Gpt2)),
        None,
        Some(&path("config.json")),
    );
    assert!(error.unwrap_err().to_string().contains("is not a tokenizer"));
}

#[test]
fn compressed_pytorch_files_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ckpt.pt");
    let mut bytes = fs::read(peers().join("nanogpt.pt")).unwrap();
    // Marks the first record of the central directory as deflated.
    let record = bytes.windows(4).position(|window| window == b"PK\x01\x02").unwrap();
    bytes[record + 10] = 8;
    fs::write(&path, bytes).unwrap();
    let refused = import(&[path], Some(ImportFormat::Family(Family::Nanogpt)), None, None).unwrap_err();
    assert!(refused.to_string().contains("is not a PyTorch weights file"), "{refused}");
    assert_eq!(refused.exit_code(), 2);
}

#[test]
fn oversized_unused_pytorch_entries_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ckpt.pt");
    let bytes = fs::read(peers().join("nanogpt.pt")).unwrap();
    // The central directory record of an entry whose content is never read.
    let name = bytes.windows(16).rposition(|window| window == b"serialization_id").unwrap();
    let record = bytes[..name].windows(4).rposition(|window| window == b"PK\x01\x02").unwrap();
    for (size, is_refused) in [(50_000_000u32, false), (3_000_000_000, true)] {
        let mut bytes = bytes.clone();
        bytes[record + 24..record + 28].copy_from_slice(&size.to_le_bytes());
        fs::write(&path, bytes).unwrap();
        let read = import(std::slice::from_ref(&path), None, None, None).map(drop);
        assert_eq!(read.is_err(), is_refused, "{size}: {read:?}");
        if let Err(error) = read {
            let message = error.to_string();
            assert!(message.contains("it unpacks to 3.0 GB, far more than the"), "{message}");
            assert_eq!((error.exit_code(), message.lines().count()), (2, 1));
        }
    }
}

/// Damages a file: flips a bit of the byte `at`, or truncates the file there.
fn damaged(mut bytes: Vec<u8>, at: usize, bit: Option<u8>) -> Vec<u8> {
    let at = at % bytes.len();
    match bit {
        Some(bit) => bytes[at] ^= 1 << bit,
        None => bytes.truncate(at),
    }
    bytes
}

/// Values for config keys that expect a size or a flag.
const VALUES: [&str; 14] = [
    "null",
    "true",
    "0",
    "1",
    "3",
    "64",
    "1048576",
    "9007199254740992",
    "18446744073709551615",
    "-1",
    "1e300",
    "\"x\"",
    "[0, null]",
    "{\"a\": {}}",
];

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn arbitrary_configs_import_or_fail_cleanly(
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), 0..VALUES.len()), 1..4),
        family in 0..5usize,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let model = peers().join("families/llama");
        fs::copy(model.join("model.safetensors"), folder.path().join("model.safetensors")).unwrap();
        let config = fs::read(model.join("config.json")).unwrap();
        let mut config: serde_json::Map<String, Value> = serde_json::from_slice(&config).unwrap();
        let names = ["llama", "qwen2", "qwen3", "smollm3", "gpt2"];
        config.insert("model_type".into(), names[family].into());
        for key in ["n_embd", "n_layer", "n_head", "n_inner", "n_positions", "rope_scaling", "sliding_window"] {
            config.insert(key.into(), Value::Null);
        }
        for (key, value) in changes {
            let key = key.get(&config.keys().cloned().collect::<Vec<_>>()).clone();
            let value: Value = serde_json::from_str(VALUES[value]).unwrap();
            match config.get_mut("rope_parameters").and_then(Value::as_object_mut) {
                Some(rope) if key == "rope_parameters" => rope.insert("factor".into(), value),
                _ => config.insert(key, value),
            };
        }
        fs::write(folder.path().join("config.json"), json!(config).to_string()).unwrap();
        if let Err(error) = import(&[folder.path().to_path_buf()], None, None, None) {
            prop_assert_eq!(error.exit_code(), 2, "{}", error);
            prop_assert_eq!(error.to_string().lines().count(), 1, "{}", error);
        }
    }

    #[test]
    fn damaged_files_are_read_or_refused(
        which in 0..3usize,
        // Safetensors files have their names and structure at the start, PyTorch files at the end.
        at in prop_oneof![0usize..4000, any::<usize>()],
        bit in proptest::option::of(0u8..8),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        let original = nanogpt();
        let (bytes, naming) = match which {
            0 => (fs::read(peers().join("nanogpt.pt")).unwrap(), ImportFormat::Family(Family::Nanogpt)),
            1 => {
                fs::write(folder.path().join("config.json"), config(&original)).unwrap();
                write(&path, &stored(&original));
                (fs::read(&path).unwrap(), ImportFormat::Family(Family::Gpt2))
            }
            _ => {
                let description = Some(&original.description);
                (native::to_bytes(&sorted(&original.tensors), description).unwrap(), ImportFormat::Native)
            }
        };
        fs::write(&path, damaged(bytes, at, bit)).unwrap();
        for format in [Some(naming), None] {
            let read = import(std::slice::from_ref(&path), format, None, None)
                .and_then(|imported| imported.tensors.iter().try_for_each(|tensor| tensor.read().map(drop)));
            if let Err(error) = read {
                prop_assert_eq!(error.exit_code(), 2, "{}", error);
            }
        }
        if naming == ImportFormat::Native
            && let Err(error) = native::load_model::<NdArray>(&WeightsFile::open(&path).unwrap(), &Default::default())
        {
            prop_assert_eq!(error.exit_code(), 2, "{}", error);
        }
    }
}

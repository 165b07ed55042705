//! Whole files, intact and damaged.

use super::*;
use crate::error::Error;
use crate::weights::import::{Imported, import};

/// The bytes of a value with its type number.
type Metadata = (u32, Vec<u8>);

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

fn string(value: &str) -> Metadata {
    (8, text(value))
}

fn size(value: u32) -> Metadata {
    (4, value.to_le_bytes().to_vec())
}

/// A tensor with sizes (fastest first), type number, offset and bytes.
type Tensor = (&'static str, Vec<u64>, u32, u64, Vec<u8>);

/// Writes a file of version 3.
fn bytes(metadata: &[(&str, Metadata)], tensors: &[Tensor]) -> Vec<u8> {
    let mut bytes = [&b"GGUF"[..], &3u32.to_le_bytes()].concat();
    bytes.extend((tensors.len() as u64).to_le_bytes());
    bytes.extend((metadata.len() as u64).to_le_bytes());
    for (key, (kind, value)) in metadata {
        bytes.extend([&text(key)[..], &kind.to_le_bytes(), value].concat());
    }
    for (name, sizes, element, offset, _) in tensors {
        bytes.extend([&text(name)[..], &(sizes.len() as u32).to_le_bytes()].concat());
        bytes.extend(sizes.iter().flat_map(|size| size.to_le_bytes()));
        bytes.extend([&element.to_le_bytes()[..], &offset.to_le_bytes()].concat());
    }
    bytes.resize(bytes.len().next_multiple_of(32), 0);
    tensors.iter().for_each(|(.., values)| bytes.extend(values));
    bytes
}

fn open(bytes: &[u8]) -> Result<Option<Gguf>> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    std::fs::write(&path, bytes).unwrap();
    Gguf::open(&[WeightsFile::open(&path).unwrap()])
}

/// Asserts that a file is refused with one line that contains `expected`.
fn refuses(bytes: &[u8], expected: &str) {
    let error = open(bytes).err().unwrap_or_else(|| panic!("accepted instead of: {expected}"));
    let line = error.to_string();
    assert!(matches!(error, Error::File { .. }) && line.contains(expected) && !line.contains('\n'), "{line}");
}

fn llama() -> Vec<(&'static str, Metadata)> {
    vec![
        ("general.architecture", string("llama")),
        ("llama.block_count", size(2)),
        ("llama.embedding_length", size(8)),
        ("llama.attention.head_count", size(2)),
        ("llama.attention.layer_norm_rms_epsilon", (6, 1e-5f32.to_le_bytes().to_vec())),
    ]
}

fn table() -> Tensor {
    ("token_embd.weight", vec![2, 3], 0, 0, vec![0; 24])
}

#[test]
fn config_has_the_keys_of_transformers() {
    let more = [
        ("llama.rope.scaling.type", string("linear")),
        ("llama.rope.scaling.factor", (6, 2f32.to_le_bytes().to_vec())),
        ("llama.expert_count", size(0)),
        ("tokenizer.ggml.eos_token_id", size(2)),
    ];
    let gguf = open(&bytes(&[&llama()[..], &more].concat(), &[table()])).unwrap().unwrap();
    let expected = serde_json::json!({
        "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 8, "num_attention_heads": 2, "head_dim": 4,
        "rms_norm_eps": 1e-5, "vocab_size": 3, "tie_word_embeddings": true, "rope_theta": 10000.0,
        "rope_scaling": {"rope_type": "linear", "factor": 2.0, "original_max_position_embeddings": null},
        "attention_bias": false, "mlp_bias": false, "bos_token_id": null, "eos_token_id": 2, "pad_token_id": null,
    });
    assert_eq!(gguf.config().unwrap(), expected);
    assert!(gguf.vocabulary().unwrap().is_none() && gguf.tokenizer_config().is_none());

    let unknown = [&llama()[..], &[("llama.logit_scale", size(2))]].concat();
    let error = open(&bytes(&unknown, &[table()])).unwrap().unwrap().config().unwrap_err().to_string();
    assert!(error.contains("the key `llama.logit_scale` is not supported; pass the config.json"), "{error}");
}

#[test]
fn frequency_divisors_are_recognised() {
    // The divisors of Llama 3.2, of which few are neither 1 nor 32.
    let factors = |middle: f32| -> Tensor {
        let values = [[1f32; 2], [middle, 32.0]].concat();
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        ("rope_freqs.weight", vec![4], 0, 32, [vec![0; 8], bytes].concat())
    };
    let theta = ("llama.rope.freq_base", (6, 500_000f32.to_le_bytes().to_vec()));
    let metadata = [&llama()[..], &[theta]].concat();
    let config = |middle| open(&bytes(&metadata, &[table(), factors(middle)])).unwrap().unwrap().config();
    // 8192 positions are 1.8438 rotations of the frequency 1 / sqrt(500000), 0.2813 of the way from 1 to 4.
    let rotations = 8192.0 / 500_000f64.sqrt() / std::f64::consts::TAU;
    let smooth = (rotations - 1.0) / 3.0;
    let (known, unknown) = (config((1.0 / ((1.0 - smooth) / 32.0 + smooth)) as f32), config(2.0));
    let scaling = serde_json::json!({"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 8192});
    assert_eq!(known.unwrap()["rope_scaling"], scaling);
    let error = unknown.unwrap_err().to_string();
    assert!(error.contains("`rope_freqs.weight` scales rotary frequencies in an unknown way"), "{error}");
}

#[test]
fn unsupported_models_are_refused_by_name() {
    let quantised = ("blk.0.ffn_up.weight", vec![256], 10, 0, vec![0; 84]);
    let types = "`blk.0.ffn_up.weight` has the type Q2_K, but the supported types are F32, F16, Q4_0, Q4_1, Q8_0, Q4_K, Q5_K, Q6_K, BF16";
    refuses(&bytes(&llama(), &[quantised]), types);
    let falcon = [("general.architecture", string("falcon"))];
    refuses(
        &bytes(&falcon, &[]),
        "`general.architecture` is \"falcon\"; the supported architectures are llama, qwen2, ",
    );
    refuses(&bytes(&[], &[]), "lacks the key `general.architecture`");
    let part = [&llama()[..], &[("split.count", (2, vec![3, 0]))]].concat();
    refuses(&bytes(&part, &[]), "is one of 3 parts; merge them");
}

#[test]
fn damaged_files_are_refused() {
    let intact = bytes(&llama(), &[table()]);
    assert!(open(&intact).unwrap().is_some());
    assert!(open(b"GGML").unwrap().is_none());
    for length in [5, 12, 30, 60, intact.len() - 60] {
        refuses(&intact[..length], "is not a valid GGUF file: it ends within its header");
    }
    refuses(&intact[..intact.len() - 1], "`token_embd.weight` ends after the end of the file");

    let with = |at: usize, bytes: &[u8]| {
        let mut changed = intact.clone();
        changed[at..at + bytes.len()].copy_from_slice(bytes);
        changed
    };
    refuses(&with(4, &[0, 0, 0, 3]), "is big-endian; convert it with `gguf-convert-endian FILE little`");
    refuses(&with(4, &[1, 0, 0, 0]), "is GGUF of version 1");
    refuses(&with(8, &[0xff; 8]), "it declares 18446744073709551615 tensors");
    refuses(&with(16, &[0xff; 8]), "it declares 18446744073709551615 keys");
    refuses(&with(24, &[0xff; 8]), "it ends within its header");
    refuses(&with(32, &[0xff]), "a text in its header is not UTF-8");

    let list = |kind: u32, length: u64| (9, [&kind.to_le_bytes()[..], &length.to_le_bytes()].concat());
    for (value, problem) in [
        (list(0, 1 << 20), "it ends within its header"),
        (list(8, u64::MAX), "lists that are too long"),
        (list(9, 1), "lists of lists"),
        ((13, Vec::new()), "a value has the unknown type 13"),
    ] {
        refuses(&bytes(&[("a", value)], &[]), problem);
    }
    refuses(&bytes(&[("a", size(1)), ("a", size(1))], &[]), "it has the key `a` twice");
    refuses(&bytes(&[("general.alignment", size(0))], &[]), "`general.alignment` is not a power of two");
    refuses(&bytes(&[("general.alignment", string("32"))], &[]), "`general.alignment` is not a power of two");

    let tensor = |sizes: &[u64], element, offset| ("a", sizes.to_vec(), element, offset, vec![0; 64]);
    for (tensor, problem) in [
        (tensor(&[], 0, 0), "`a` has 0 dimensions"),
        (tensor(&[1; 5], 0, 0), "`a` has 5 dimensions"),
        (tensor(&[0, 3], 0, 0), "`a` has the impossible shape [0, 3]"),
        (tensor(&[1 << 40, 1 << 40], 0, 0), "`a` has the impossible shape"),
        (tensor(&[31], 8, 0), "`a` has the impossible shape [31]"),
        (tensor(&[1 << 62], 0, 0), "`a` ends after the end of the file"),
        (tensor(&[4], 0, u64::MAX), "`a` ends after the end of the file"),
        (tensor(&[4], 99, 0), "`a` has the type 99"),
    ] {
        refuses(&bytes(&[], &[tensor]), problem);
    }
    let [a, b] = ["a", "b"].map(|name| (name, vec![16], 0, 0, vec![0; 64]));
    refuses(&bytes(&[], &[a.clone(), b]), "`a` and `b` overlap");
    refuses(&bytes(&[], &[a.clone(), ("a", vec![4], 0, 64, vec![0; 64])]), "it has the tensor `a` twice");
}

#[test]
fn values_are_checked_when_a_tensor_is_read() {
    let nan = [vec![0; 20], f32::NAN.to_le_bytes().to_vec()].concat();
    let names = ["token_embd.weight", "blk.0.attn_q.weight"];
    let tensors = [
        (names[0], vec![2, 3], 0, 0, nan),
        (names[1], vec![2, 6], 0, 32, [vec![0; 8], vec![0; 48]].concat()),
    ];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    std::fs::write(&path, bytes(&llama(), &tensors[..1])).unwrap();
    let gguf = Gguf::open(&[WeightsFile::open(&path).unwrap()]).unwrap().unwrap();
    let tensors_of = gguf.tensors().unwrap();
    let error = tensors_of["model.embed_tokens.weight"].read().unwrap_err().to_string();
    assert!(error.contains("non-finite weights") && error.contains("`token_embd.weight`"), "{error}");
    // Six rows are not twice two heads.
    let error = open(&bytes(&llama(), &tensors)).unwrap().unwrap().tensors().unwrap_err().to_string();
    let expected = "`blk.0.attn_q.weight` has 6 rows, which do not fit the number of heads (2)";
    assert!(error.contains(expected), "{error}");
}

fn list(kind: u32, values: &[Vec<u8>]) -> Metadata {
    (9, [&kind.to_le_bytes()[..], &(values.len() as u64).to_le_bytes(), &values.concat()].concat())
}

/// Reads a vocabulary of tokens with their kinds.
fn vocabulary(tokens: &[(&str, i32)], more: Vec<(&'static str, Metadata)>) -> Result<Vocabulary> {
    let names: Vec<_> = tokens.iter().map(|(name, _)| text(name)).collect();
    let kinds: Vec<_> = tokens.iter().map(|(_, kind)| kind.to_le_bytes().to_vec()).collect();
    let tokens = [("tokenizer.ggml.tokens", list(8, &names)), ("tokenizer.ggml.token_type", list(5, &kinds))];
    let metadata = [&llama()[..], &tokens, &more].concat();
    Ok(open(&bytes(&metadata, &[table()]))?.unwrap().vocabulary()?.unwrap())
}

#[test]
fn byte_level_tokenizers_split_text_by_their_rules() {
    let tokens = [
        ("a", 1),
        ("b", 1),
        ("Ġ", 1),
        ("1", 1),
        ("2", 1),
        ("12", 1),
        ("ab", 1),
        ("<|end|>", 3),
        ("<think>", 4),
        ("[PAD9]", 5),
    ];
    let read = |pre: &str| {
        let merges = [text("a b"), text("1 2")];
        let metadata = [
            ("tokenizer.ggml.model", string("gpt2")),
            ("tokenizer.ggml.pre", string(pre)),
            ("tokenizer.ggml.merges", list(8, &merges)),
            ("tokenizer.ggml.bos_token_id", size(7)),
            ("tokenizer.ggml.eos_token_id", size(7)),
        ];
        vocabulary(&tokens, metadata.to_vec())
    };
    for (pre, digits, begin) in [
        ("gpt-2", &[5][..], None),
        ("olmo", &[5], None),
        ("smollm", &[3, 4], None),
        ("qwen2", &[3, 4], None),
        ("llama-bpe", &[5], Some(7)),
        ("dbrx", &[5], None),
    ] {
        let vocabulary = read(pre).unwrap();
        let expected = [&[6], digits, &[8, 0, 7]].concat();
        assert_eq!(vocabulary.encode("ab12<think>a<|end|>").unwrap(), expected, "{pre}");
        assert_eq!(
            vocabulary.encode_whole("ab").unwrap(),
            Vec::from_iter(begin.into_iter().chain([6])),
            "{pre}"
        );
        assert_eq!((vocabulary.end(), vocabulary.size()), (Some(7), 9), "{pre}");
        assert_eq!(vocabulary.end_declared_by(), Some("tokenizer.ggml.eos_token_id"));
    }
    let error = read("default").unwrap_err().to_string();
    let expected = "`tokenizer.ggml.pre` is \"default\", but only gpt-2, smollm, olmo, ";
    assert!(error.contains(expected) && error.contains("with --tokenizer"), "{error}");
    let bert = vec![("tokenizer.ggml.model", string("bert"))];
    let error = vocabulary(&tokens, bert).unwrap_err().to_string();
    assert!(error.contains("`tokenizer.ggml.model` is \"bert\", but only gpt2 and llama"), "{error}");
}

#[test]
fn sentence_piece_merges_by_score() {
    let tokens = [
        ("<unk>", 2),
        ("<s>", 3),
        ("</s>", 3),
        ("<0x0A>", 6),
        ("▁", 1),
        ("a", 1),
        ("b", 1),
        ("▁a", 1),
        ("ab", 1),
    ];
    let read = |scores: [f32; 2], more: &[(&'static str, Metadata)]| {
        let scores = [&[0.0; 4][..], &[-9.0; 3], &scores].concat();
        let scores: Vec<_> = scores.iter().map(|score: &f32| score.to_le_bytes().to_vec()).collect();
        let metadata = [
            ("tokenizer.ggml.model", string("llama")),
            ("tokenizer.ggml.scores", list(6, &scores)),
            ("tokenizer.ggml.bos_token_id", size(1)),
            ("tokenizer.ggml.eos_token_id", size(2)),
        ];
        vocabulary(&tokens, [&metadata[..], more].concat()).unwrap()
    };
    let by_score = read([-2.0, -1.0], &[]);
    assert_eq!(by_score.encode_whole("ab\n").unwrap(), [1, 4, 8, 3]);
    assert_eq!(by_score.decode(&[4, 8, 3]), "ab\n");
    assert_eq!(read([-1.0, -2.0], &[]).encode("ab").unwrap(), [7, 6]);
    let flags = ["tokenizer.ggml.add_space_prefix", "tokenizer.ggml.add_bos_token"];
    let flags = flags.map(|flag| (flag, (7, vec![0])));
    assert_eq!(read([-1.0, -2.0], &flags).encode_whole("ab a").unwrap(), [8, 7]);
}

#[test]
fn models_are_equal_to_their_safetensors() {
    let original = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/families/qwen3");
    let names = [
        ("model.", ""),
        ("embed_tokens", "token_embd"),
        ("layers.", "blk."),
        ("self_attn.o_proj", "attn_output"),
        ("self_attn.", "attn_"),
        ("mlp.", "ffn_"),
        ("_proj", ""),
        ("input_layernorm", "attn_norm"),
        ("post_attention_layernorm", "ffn_norm"),
    ];
    let (mut tensors, mut offset) = (Vec::new(), 0);
    for tensor in WeightsFile::open(original.join("model.safetensors")).unwrap().tensors().unwrap() {
        let name = names.iter().fold(tensor.name.clone(), |name, (theirs, ours)| name.replace(theirs, ours));
        let name = if name == "norm.weight" { "output_norm.weight".to_string() } else { name };
        let values = tensor.read().unwrap().as_bytes().to_vec();
        let sizes = tensor.shape.iter().rev().map(|&size| size as u64).collect();
        offset += values.len() as u64;
        tensors.push((&*name.leak(), sizes, 0, offset - values.len() as u64, values));
    }
    let config: Value =
        serde_json::from_slice(&std::fs::read(original.join("config.json")).unwrap()).unwrap();
    let sizes = [
        ("qwen3.context_length", "max_position_embeddings"),
        ("qwen3.block_count", "num_hidden_layers"),
        ("qwen3.embedding_length", "hidden_size"),
        ("qwen3.feed_forward_length", "intermediate_size"),
        ("qwen3.attention.head_count", "num_attention_heads"),
        ("qwen3.attention.head_count_kv", "num_key_value_heads"),
        ("qwen3.attention.key_length", "head_dim"),
    ];
    let sizes = sizes.map(|(ours, theirs)| (ours, size(config[theirs].as_u64().unwrap() as u32)));
    let number = |value: f32| (6, value.to_le_bytes().to_vec());
    let more = [
        ("general.architecture", string("qwen3")),
        ("qwen3.attention.layer_norm_rms_epsilon", number(1e-6)),
        ("qwen3.rope.freq_base", number(1e6)),
    ];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    std::fs::write(&path, bytes(&[&more[..], &sizes].concat(), &tensors)).unwrap();
    let [found, expected] = [path, original].map(|path| import(&[path], None, None, None).unwrap());
    assert_eq!(found.description, expected.description);
    let values = |imported: Imported| {
        let read = |tensor: &LazyTensor| (tensor.name.clone(), tensor.read().unwrap());
        imported.tensors.iter().map(read).collect::<Vec<_>>()
    };
    assert_eq!(values(found), values(expected));
}

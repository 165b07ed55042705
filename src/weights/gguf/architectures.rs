//! The supported architectures: the names of their tensors and keys, in llama.cpp and in transformers.
//!
//! An architecture is one entry of [`ARCHITECTURES`]. In the names of tensors, `#` is the index of the layer.

use serde_json::{Value, json};

use super::header::GgufHeader;
use super::layout::TensorLayout;

/// The names of a tensor in a file and in transformers, without `.weight` or `.bias`, and its layout in the file.
type TensorRow = (&'static str, &'static str, TensorLayout);

/// The names of a key in a file, after the name of the architecture, and in a `config.json`.
type KeyRow = (&'static str, &'static str);

/// An architecture.
#[derive(Debug)]
pub(super) struct GgufArchitecture {
    /// The name in `general.architecture`.
    pub name: &'static str,
    /// The `model_type` in transformers.
    pub model_type: &'static str,
    tensors: &'static [&'static [TensorRow]],
    keys: &'static [&'static [KeyRow]],
    /// The keys of a `config.json` with the base of rotary positions and with the rotated fraction of a head; `None`
    /// for learned positions.
    pub rotation: Option<[&'static str; 2]>,
    /// Returns further keys of the `config.json`.
    pub more: fn(&GgufHeader) -> Vec<(&'static str, Value)>,
}

/// The supported architectures.
static ARCHITECTURES: [GgufArchitecture; 10] = [
    GgufArchitecture {
        name: "llama",
        model_type: "llama",
        tensors: &[GATED, NORM, PRE_NORMS, INTERLEAVED],
        keys: &[SIZES],
        rotation: ROTATION,
        more: biases,
    },
    GgufArchitecture {
        name: "qwen2",
        model_type: "qwen2",
        tensors: &[GATED, NORM, PRE_NORMS, QUERIES_AND_KEYS],
        keys: &[SIZES],
        rotation: ROTATION,
        more: |_| Vec::new(),
    },
    GgufArchitecture {
        name: "qwen3",
        model_type: "qwen3",
        tensors: &[GATED, NORM, PRE_NORMS, QUERIES_AND_KEYS, QUERY_KEY_NORMS],
        keys: &[SIZES],
        rotation: ROTATION,
        more: biases,
    },
    GgufArchitecture {
        name: "smollm3",
        model_type: "smollm3",
        tensors: &[GATED, NORM, PRE_NORMS, INTERLEAVED],
        keys: &[SIZES],
        rotation: ROTATION,
        // llama.cpp always skips the rotation in every fourth layer.
        more: |header| [biases(header), vec![("no_rope_layer_interval", json!(4))]].concat(),
    },
    GgufArchitecture {
        name: "gpt2",
        model_type: "gpt2",
        tensors: &[GPT2],
        keys: &[GPT2_KEYS],
        rotation: None,
        more: |_| Vec::new(),
    },
    GgufArchitecture {
        name: "gptneox",
        model_type: "gpt_neox",
        tensors: &[GPT_NEOX],
        keys: &[SIZES, GPT_NEOX_KEYS],
        rotation: Some(["rotary_emb_base", "rotary_pct"]),
        more: |header| vec![("attention_bias", json!(header.tensor("blk.0.attn_qkv.bias").is_some()))],
    },
    GgufArchitecture {
        name: "gemma2",
        model_type: "gemma2",
        tensors: &[GATED, QUERIES_AND_KEYS, GEMMA_NORMS],
        keys: &[SIZES, GEMMA_KEYS],
        rotation: ROTATION,
        more: |header| vec![("query_pre_attn_scalar", query_scale(header, "gemma2", 46))],
    },
    GgufArchitecture {
        name: "gemma3",
        model_type: "gemma3_text",
        tensors: &[GATED, QUERIES_AND_KEYS, GEMMA_NORMS, GEMMA_QUERY_KEY_NORMS],
        keys: &[SIZES, GEMMA_KEYS],
        rotation: ROTATION,
        more: |header| vec![("query_pre_attn_scalar", query_scale(header, "gemma3", 62))],
    },
    GgufArchitecture {
        name: "olmo2",
        model_type: "olmo2",
        tensors: &[GATED, NORM, QUERIES_AND_KEYS, QUERY_KEY_NORMS, POST_NORMS],
        keys: &[SIZES],
        rotation: ROTATION,
        more: |_| Vec::new(),
    },
    GgufArchitecture {
        name: "phi3",
        model_type: "phi3",
        tensors: &[PHI3, NORM, PRE_NORMS],
        keys: &[SIZES],
        rotation: ROTATION,
        more: |_| Vec::new(),
    },
];

const ROTATION: Option<[&str; 2]> = Some(["rope_theta", "partial_rotary_factor"]);

/// The embedding, the head, and the layers of models with a gate; without norms, queries and keys.
const GATED: &[TensorRow] = &[
    ("token_embd", "model.embed_tokens", TensorLayout::Same),
    ("output", "lm_head", TensorLayout::Same),
    ("blk.#.attn_v", "model.layers.#.self_attn.v_proj", TensorLayout::Same),
    ("blk.#.attn_output", "model.layers.#.self_attn.o_proj", TensorLayout::Same),
    ("blk.#.ffn_gate", "model.layers.#.mlp.gate_proj", TensorLayout::Same),
    ("blk.#.ffn_up", "model.layers.#.mlp.up_proj", TensorLayout::Same),
    ("blk.#.ffn_down", "model.layers.#.mlp.down_proj", TensorLayout::Same),
];

const NORM: &[TensorRow] = &[("output_norm", "model.norm", TensorLayout::Same)];

const PRE_NORMS: &[TensorRow] = &[
    ("blk.#.attn_norm", "model.layers.#.input_layernorm", TensorLayout::Same),
    ("blk.#.ffn_norm", "model.layers.#.post_attention_layernorm", TensorLayout::Same),
];

const POST_NORMS: &[TensorRow] = &[
    ("blk.#.post_attention_norm", "model.layers.#.post_attention_layernorm", TensorLayout::Same),
    ("blk.#.post_ffw_norm", "model.layers.#.post_feedforward_layernorm", TensorLayout::Same),
];

const QUERIES_AND_KEYS: &[TensorRow] = &[
    ("blk.#.attn_q", "model.layers.#.self_attn.q_proj", TensorLayout::Same),
    ("blk.#.attn_k", "model.layers.#.self_attn.k_proj", TensorLayout::Same),
];

/// Queries and keys in the layout of Meta's Llama.
const INTERLEAVED: &[TensorRow] = &[
    ("blk.#.attn_q", "model.layers.#.self_attn.q_proj", TensorLayout::InterleavedQueries),
    ("blk.#.attn_k", "model.layers.#.self_attn.k_proj", TensorLayout::InterleavedKeys),
];

const QUERY_KEY_NORMS: &[TensorRow] = &[
    ("blk.#.attn_q_norm", "model.layers.#.self_attn.q_norm", TensorLayout::Same),
    ("blk.#.attn_k_norm", "model.layers.#.self_attn.k_norm", TensorLayout::Same),
];

const GEMMA_NORMS: &[TensorRow] = &[
    ("output_norm", "model.norm", TensorLayout::PlusOne),
    ("blk.#.attn_norm", "model.layers.#.input_layernorm", TensorLayout::PlusOne),
    ("blk.#.post_attention_norm", "model.layers.#.post_attention_layernorm", TensorLayout::PlusOne),
    ("blk.#.ffn_norm", "model.layers.#.pre_feedforward_layernorm", TensorLayout::PlusOne),
    ("blk.#.post_ffw_norm", "model.layers.#.post_feedforward_layernorm", TensorLayout::PlusOne),
];

const GEMMA_QUERY_KEY_NORMS: &[TensorRow] = &[
    ("blk.#.attn_q_norm", "model.layers.#.self_attn.q_norm", TensorLayout::PlusOne),
    ("blk.#.attn_k_norm", "model.layers.#.self_attn.k_norm", TensorLayout::PlusOne),
];

const PHI3: &[TensorRow] = &[
    ("token_embd", "model.embed_tokens", TensorLayout::Same),
    ("output", "lm_head", TensorLayout::Same),
    ("blk.#.attn_qkv", "model.layers.#.self_attn.qkv_proj", TensorLayout::Same),
    ("blk.#.attn_output", "model.layers.#.self_attn.o_proj", TensorLayout::Same),
    ("blk.#.ffn_up", "model.layers.#.mlp.gate_up_proj", TensorLayout::Same),
    ("blk.#.ffn_down", "model.layers.#.mlp.down_proj", TensorLayout::Same),
];

const GPT2: &[TensorRow] = &[
    ("token_embd", "transformer.wte", TensorLayout::Same),
    ("position_embd", "transformer.wpe", TensorLayout::Same),
    ("output_norm", "transformer.ln_f", TensorLayout::Same),
    ("output", "lm_head", TensorLayout::Same),
    ("blk.#.attn_norm", "transformer.h.#.ln_1", TensorLayout::Same),
    ("blk.#.attn_qkv", "transformer.h.#.attn.c_attn", TensorLayout::Transposed),
    ("blk.#.attn_output", "transformer.h.#.attn.c_proj", TensorLayout::Transposed),
    ("blk.#.ffn_norm", "transformer.h.#.ln_2", TensorLayout::Same),
    ("blk.#.ffn_up", "transformer.h.#.mlp.c_fc", TensorLayout::Transposed),
    ("blk.#.ffn_down", "transformer.h.#.mlp.c_proj", TensorLayout::Transposed),
];

const GPT_NEOX: &[TensorRow] = &[
    ("token_embd", "gpt_neox.embed_in", TensorLayout::Same),
    ("output_norm", "gpt_neox.final_layer_norm", TensorLayout::Same),
    ("output", "embed_out", TensorLayout::Same),
    ("blk.#.attn_norm", "gpt_neox.layers.#.input_layernorm", TensorLayout::Same),
    ("blk.#.attn_qkv", "gpt_neox.layers.#.attention.query_key_value", TensorLayout::SplitHeads),
    ("blk.#.attn_output", "gpt_neox.layers.#.attention.dense", TensorLayout::Same),
    ("blk.#.ffn_norm", "gpt_neox.layers.#.post_attention_layernorm", TensorLayout::Same),
    ("blk.#.ffn_up", "gpt_neox.layers.#.mlp.dense_h_to_4h", TensorLayout::Same),
    ("blk.#.ffn_down", "gpt_neox.layers.#.mlp.dense_4h_to_h", TensorLayout::Same),
];

const SIZES: &[KeyRow] = &[
    ("context_length", "max_position_embeddings"),
    ("block_count", "num_hidden_layers"),
    ("embedding_length", "hidden_size"),
    ("feed_forward_length", "intermediate_size"),
    ("attention.head_count", "num_attention_heads"),
    ("attention.head_count_kv", "num_key_value_heads"),
    ("attention.key_length", "head_dim"),
    ("attention.layer_norm_rms_epsilon", "rms_norm_eps"),
    ("attention.sliding_window", "sliding_window"),
    ("attention.causal", "is_causal"),
    ("expert_count", "num_local_experts"),
    ("expert_used_count", "num_experts_per_tok"),
];

const GEMMA_KEYS: &[KeyRow] = &[
    ("attn_logit_softcapping", "attn_logit_softcapping"),
    ("final_logit_softcapping", "final_logit_softcapping"),
    ("attention.sliding_window_pattern", "sliding_window_pattern"),
    ("rope.freq_base_swa", "rope_local_base_freq"),
];

const GPT2_KEYS: &[KeyRow] = &[
    ("context_length", "n_positions"),
    ("block_count", "n_layer"),
    ("embedding_length", "n_embd"),
    ("feed_forward_length", "n_inner"),
    ("attention.head_count", "n_head"),
    ("attention.layer_norm_epsilon", "layer_norm_epsilon"),
];

const GPT_NEOX_KEYS: &[KeyRow] =
    &[("attention.layer_norm_epsilon", "layer_norm_eps"), ("use_parallel_residual", "use_parallel_residual")];

/// Returns the flags of biases, which a file has only as tensors.
fn biases(header: &GgufHeader) -> Vec<(&'static str, Value)> {
    let has = |name| json!(header.tensor(name).is_some());
    vec![("attention_bias", has("blk.0.attn_q.bias")), ("mlp_bias", has("blk.0.ffn_up.bias"))]
}

/// Returns the key `query_pre_attn_scalar` of a Gemma, which a file lacks: the width of a head, but the quotient of the
/// width of the model and the number of heads in the 27B models, which are recognised by their number of layers.
fn query_scale(header: &GgufHeader, architecture: &str, layers_of_27b: usize) -> Value {
    let size = |key: &str| header.size(&format!("{architecture}.{key}"));
    match size("block_count") {
        Some(layers) if layers == layers_of_27b => {
            let heads = size("attention.head_count").filter(|heads| *heads > 0);
            json!(size("embedding_length").zip(heads).map(|(width, heads)| width / heads))
        }
        _ => json!(size("attention.key_length")),
    }
}

/// Returns the architecture of a name.
pub(super) fn named(name: &str) -> Option<&'static GgufArchitecture> {
    ARCHITECTURES.iter().find(|architecture| architecture.name == name)
}

/// Returns the names of all architectures.
pub(super) fn names() -> String {
    ARCHITECTURES.each_ref().map(|architecture| architecture.name).join(", ")
}

impl GgufArchitecture {
    /// Returns the key of a `config.json` for a key in a file.
    pub fn key(&self, name: &str) -> Option<&'static str> {
        self.keys.iter().copied().flatten().find(|(known, _)| *known == name).map(|(_, theirs)| *theirs)
    }

    /// Returns a tensor's name in transformers and its layout in the file; `None` if the tensor is unknown.
    pub fn translate(&self, name: &str) -> Option<(String, TensorLayout)> {
        let (stem, end) = name.rsplit_once('.')?;
        // The layer of `blk.12.attn_q` is 12.
        let layer = stem.strip_prefix("blk.").and_then(|rest| rest.split('.').next()).unwrap_or_default();
        let mut rows = self.tensors.iter().copied().flatten();
        let (_, theirs, layout) = rows.find(|(known, ..)| known.replace('#', layer) == stem)?;
        Some((format!("{}.{end}", theirs.replace('#', layer)), *layout))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_are_named_as_in_transformers() {
        for (architecture, ours, theirs) in [
            ("llama", "blk.12.attn_k.weight", Some("model.layers.12.self_attn.k_proj.weight")),
            ("llama", "output.weight", Some("lm_head.weight")),
            ("llama", "blk.12.attn_qkv.weight", None),
            ("llama", "blk.#.attn_k.weight", Some("model.layers.#.self_attn.k_proj.weight")),
            ("olmo2", "blk.0.post_ffw_norm.weight", Some("model.layers.0.post_feedforward_layernorm.weight")),
            ("gemma2", "blk.3.ffn_norm.weight", Some("model.layers.3.pre_feedforward_layernorm.weight")),
            ("gptneox", "blk.1.attn_qkv.bias", Some("gpt_neox.layers.1.attention.query_key_value.bias")),
        ] {
            let translated = named(architecture).unwrap().translate(ours);
            assert_eq!(translated.as_ref().map(|(name, _)| name.as_str()), theirs, "{ours}");
        }
        let (_, layout) = named("llama").unwrap().translate("blk.0.attn_k.bias").unwrap();
        assert_eq!(layout, TensorLayout::InterleavedKeys, "a bias is ordered as its weight");
    }
}

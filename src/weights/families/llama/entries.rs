//! The tensors of the families related to Llama.

use super::super::entry::{ColumnOrder, RotatedHead, TensorEntry, TensorPart, module};
use crate::model::{ModelConfig, NormPlacement, QkNormScope};
use crate::weights::native::Description;

/// Returns the entries of all tensors of a model. If it `is_packed`, queries, keys and values are one tensor, as well as gates
/// and inputs.
pub(super) fn all(Description { model, sizes }: &Description, is_packed: bool) -> Vec<TensorEntry> {
    let d_model = model.d_model;
    let table = TensorPart { is_transposed: false, ..part("embed_tokens", d_model, ColumnOrder::Native) };
    let mut entries =
        Vec::from_iter(module("norm", None, false, &[part("norm", d_model, ColumnOrder::Native)]));
    (0..model.layers).for_each(|layer| entries.extend(norms(model, layer)));
    entries.extend(module("embedding.token", Some(sizes.vocab), false, &[table]));
    if !model.tie_embeddings {
        let head = part("lm_head", sizes.vocab, ColumnOrder::Native);
        entries.extend(module("head", Some(d_model), false, &[head]));
    }
    (0..model.layers).for_each(|layer| entries.extend(linear_layers(model, layer, is_packed)));
    entries
}

fn part(theirs: &str, columns: usize, order: ColumnOrder) -> TensorPart {
    TensorPart { theirs: theirs.to_string(), columns, is_transposed: true, order }
}

/// Returns the columns of the queries, and of the keys.
fn widths(model: &ModelConfig) -> [usize; 2] {
    let shared = if model.key_value_heads == 0 { model.heads } else { model.key_value_heads };
    [model.heads, shared].map(|heads| heads * model.head_width())
}

/// Returns the columns of a head with rotary positions.
fn rotated(model: &ModelConfig) -> RotatedHead {
    let width = model.head_width();
    RotatedHead { width, rotated: model.rotation().width(width) }
}

/// Returns the entries of the norms of a layer.
fn norms(model: &ModelConfig, layer: usize) -> impl Iterator<Item = TensorEntry> {
    let residual: &[_] = match model.norm {
        NormPlacement::Sandwich => &[
            ("attention_norm", "input_layernorm"),
            ("output_norms.attention", "post_attention_layernorm"),
            ("feed_forward_norm", "pre_feedforward_layernorm"),
            ("output_norms.feed_forward", "post_feedforward_layernorm"),
        ],
        NormPlacement::Output => &[
            ("attention_norm", "post_attention_layernorm"),
            ("feed_forward_norm", "post_feedforward_layernorm"),
        ],
        NormPlacement::Pre | NormPlacement::Post => {
            &[("attention_norm", "input_layernorm"), ("feed_forward_norm", "post_attention_layernorm")]
        }
    };
    let residual = residual.iter().map(|(ours, theirs)| (*ours, *theirs, model.d_model, ColumnOrder::Native));
    let [queries, keys] = match model.qk_norm_scope {
        QkNormScope::Head => [model.head_width(); 2],
        QkNormScope::AllHeads => widths(model),
    };
    let order = ColumnOrder::Rotary(rotated(model));
    let of_attention = [
        ("attention.query_norm", "self_attn.q_norm", queries, order),
        ("attention.key_norm", "self_attn.k_norm", keys, order),
    ];
    residual.chain(of_attention.into_iter().filter(|_| model.qk_norm)).flat_map(
        move |(ours, theirs, columns, order)| {
            let part = part(&format!("layers.{layer}.{theirs}"), columns, order);
            module(&format!("blocks.{layer}.{ours}"), None, false, &[part]).collect::<Vec<_>>()
        },
    )
}

/// Returns the entries of the linear layers of a layer.
fn linear_layers(model: &ModelConfig, layer: usize, is_packed: bool) -> Vec<TensorEntry> {
    let (d_model, inner, [queries, keys]) = (model.d_model, model.inner_width(), widths(model));
    let qkv_bias = model.query_key_value_bias.unwrap_or(model.bias);
    let output_bias = model.attention_output_bias.unwrap_or(model.bias);
    let part = |theirs, columns, order| part(&format!("layers.{layer}.{theirs}"), columns, order);
    let plain = |theirs, columns| part(theirs, columns, ColumnOrder::Native);
    let head = rotated(model);
    let [qkv, up] = match is_packed {
        true => {
            let order = ColumnOrder::RotaryUntil { columns: queries + keys, head };
            let qkv = part("self_attn.qkv_proj", queries + 2 * keys, order);
            [vec![qkv], vec![plain("mlp.gate_up_proj", 2 * inner)]]
        }
        false => {
            let rotary = ColumnOrder::Rotary(head);
            let query_key =
                [part("self_attn.q_proj", queries, rotary), part("self_attn.k_proj", keys, rotary)];
            let qkv = query_key.into_iter().chain([plain("self_attn.v_proj", keys)]).collect();
            [qkv, vec![plain("mlp.gate_proj", inner), plain("mlp.up_proj", inner)]]
        }
    };
    let all = [
        ("attention.qkv", d_model, qkv_bias, qkv),
        ("attention.output", queries, output_bias, vec![plain("self_attn.o_proj", d_model)]),
        ("feed_forward.up", d_model, model.bias, up),
        ("feed_forward.down", inner, model.bias, vec![plain("mlp.down_proj", d_model)]),
    ];
    let module = |(ours, rows, has_bias, parts): (&str, usize, bool, Vec<TensorPart>)| {
        module(&format!("blocks.{layer}.{ours}"), Some(rows), has_bias, &parts).collect::<Vec<_>>()
    };
    all.into_iter().flat_map(module).collect()
}

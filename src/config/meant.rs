//! Suggestions for unknown keys: misspelt, in another section, or named as in other programs.

use super::names::keys_of;

/// The minimum similarity of names within a section.
const MIN_SIMILARITY: f64 = 0.8;

/// The minimum similarity across sections, which have more names that are similar by chance.
const MIN_SIMILARITY_ACROSS_SECTIONS: f64 = 0.92;

/// The keys, with their names in other programs and papers.
const SYNONYMS: [(&str, &[&str]); 50] = [
    ("run.name", &["run_name", "experiment", "experiment_name", "exp_name"]),
    ("run.seed", &["random_seed", "rng_seed", "manual_seed"]),
    ("run.from", &["init_from", "pretrained", "checkpoint", "from_pretrained"]),
    (
        "data.path",
        &["data", "file", "files", "dataset", "data_path", "data_dir", "train_file", "input", "corpus"],
    ),
    ("data.length", &["block_size", "context", "context_length", "context_size", "seq_len", "seq_length"]),
    ("data.length", &["sequence_length", "max_len", "max_length", "max_seq_len", "n_ctx", "n_positions"]),
    ("data.vocab", &["vocab_size", "vocabulary", "vocabulary_size", "n_vocab"]),
    ("data.documents", &["document_mask", "mask_documents", "separate_documents", "reset_position_ids"]),
    ("data.tokens", &["tokenizer", "tokenization", "tokeniser"]),
    ("data.valid_fraction", &["val_fraction", "val_split", "valid_split", "validation_split", "test_size"]),
    ("data.train_samples", &["samples", "n_samples", "num_samples", "n_train"]),
    (
        "model.d_model",
        &["hidden", "hidden_size", "hidden_dim", "n_embd", "embed_dim", "embedding_dim", "emb_dim"],
    ),
    ("model.d_model", &["embedding_size", "model_dim", "dim", "width", "d_embed", "n_embed"]),
    ("model.d_head", &["head_dim", "head_size", "d_k", "d_key", "dim_head"]),
    ("model.heads", &["n_head", "n_heads", "num_heads", "nhead", "num_attention_heads", "attention_heads"]),
    (
        "model.key_value_heads",
        &["n_kv_head", "n_kv_heads", "kv_heads", "num_key_value_heads", "num_kv_heads"],
    ),
    ("model.window", &["sliding_window", "window_size", "attention_window", "local_attention"]),
    ("model.rotary_fraction", &["partial_rotary_factor", "rotary_pct", "rotary_percent"]),
    ("model.rope_theta_local", &["rope_local_base_freq", "local_rope_theta"]),
    ("model.attention_softcap", &["attn_logit_softcapping", "attn_softcap", "logit_cap"]),
    ("model.attention_gate", &["gated_attention", "output_gate"]),
    ("model.differential", &["diff_attention", "differential_attention", "diff_attn"]),
    ("model.parallel", &["use_parallel_residual", "parallel_block", "parallel_residual"]),
    ("model.layer_pattern", &["layer_types", "attention_types", "sliding_window_pattern"]),
    (
        "model.layers",
        &["n_layer", "n_layers", "num_layers", "num_hidden_layers", "depth", "blocks", "n_blocks"],
    ),
    (
        "model.d_inner",
        &["d_ff", "d_mlp", "n_inner", "ffn_dim", "intermediate_size", "dim_feedforward", "mlp_dim"],
    ),
    ("model.feed_forward", &["mlp_ratio", "ffn_mult", "expansion"]),
    ("model.dropout", &["dropout_rate", "dropout_p", "p_dropout", "drop_rate", "attn_pdrop", "resid_pdrop"]),
    ("model.activation", &["activation_function", "hidden_act", "act", "act_fn", "nonlinearity"]),
    ("model.position", &["positional_encoding", "position_embedding", "pos_emb", "pos_enc", "positions"]),
    ("model.rope_theta", &["rope_base", "rotary_base", "rotary_emb_base"]),
    ("model.tie_embeddings", &["tie_word_embeddings", "tie_weights", "weight_tying", "tied"]),
    ("model.architecture", &["arch", "model_type", "model"]),
    ("model.initialisation", &["init", "initialization", "initializer"]),
    (
        "training.steps",
        &["max_steps", "max_iters", "iters", "iterations", "num_steps", "n_steps", "train_steps"],
    ),
    ("training.epochs", &["num_epochs", "max_epochs", "n_epochs", "num_train_epochs"]),
    (
        "training.batch_size",
        &["batch", "bs", "batchsize", "mini_batch", "train_batch_size", "micro_batch_size"],
    ),
    ("training.batch_size", &["per_device_train_batch_size"]),
    (
        "training.accumulate",
        &["gradient_accumulation_steps", "grad_accum", "grad_accum_steps", "accumulation_steps"],
    ),
    ("training.learning_rate", &["lr", "max_lr", "base_lr", "rate", "step_size"]),
    ("training.min_learning_rate", &["min_lr", "lr_min", "eta_min"]),
    ("training.warmup", &["warmup_steps", "warmup_iters", "warmup_ratio", "warm_up", "num_warmup_steps"]),
    ("training.schedule", &["scheduler", "lr_schedule", "lr_scheduler", "lr_scheduler_type", "lr_decay"]),
    ("training.weight_decay", &["wd", "decay", "l2"]),
    (
        "training.max_gradient_norm",
        &["grad_clip", "max_grad_norm", "clip", "clip_grad", "gradient_clip", "clip_norm"],
    ),
    ("training.epsilon", &["eps", "adam_epsilon", "adam_eps"]),
    ("training.validate_every", &["eval_interval", "eval_every", "eval_steps", "val_every", "valid_every"]),
    ("training.log_every", &["log_interval", "logging_steps", "log_steps", "print_every"]),
    ("training.checkpoint_every", &["save_every", "save_steps", "save_interval", "ckpt_every"]),
    ("training.precision", &["dtype", "amp", "mixed_precision", "fp16", "bf16"]),
];

/// Returns a name in the notation of keys: `Learning-Rate` becomes `learning_rate`.
pub fn normalised(name: &str) -> String {
    name.to_lowercase().replace('-', "_")
}

/// Returns all keys of this name, with their sections.
pub fn keys_named(name: &str) -> Vec<String> {
    let has = |section: &&&str| keys_of(section).contains(&name);
    keys_of("").iter().filter(has).map(|section| format!("{section}.{name}")).collect()
}

/// Returns the intended key of a name without a section, if the name is similar to a key.
pub fn nearest_key(name: &str) -> Option<String> {
    let name = normalised(name);
    let key_only = |key: String| key.contains('.').then_some(key);
    // For example `data_length`.
    let with_section = || {
        let (section, key) = name.split_once('_')?;
        keys_of(section).contains(&key).then(|| format!("{section}.{key}"))
    };
    keys_named(&name)
        .into_iter()
        .next()
        .or_else(with_section)
        .or_else(|| synonym(&name))
        .or_else(|| most_similar_key(&name, 0.88))
        .and_then(key_only)
}

/// Returns the intended key of an unknown name in a section. The first choice is a key of the section with this synonym
/// or with one different letter, then a key of exactly this name in another section, then any key with this synonym,
/// and last a similar key.
pub(super) fn intended_key(section: &str, name: &str) -> Option<String> {
    let name = normalised(name);
    let with_section =
        |known: &str| if section.is_empty() { known.to_string() } else { format!("{section}.{known}") };
    let is_typo = |known: &&&str| name.len() > 2 && strsim::damerau_levenshtein(&name, known) <= 1;
    let similar_in_section = || {
        let similarity = keys_of(section).iter().map(|&known| (strsim::jaro_winkler(&name, known), known));
        let nearest = similarity.max_by(|a, b| a.0.total_cmp(&b.0));
        nearest.filter(|&(similarity, _)| similarity >= MIN_SIMILARITY).map(|(_, known)| with_section(known))
    };
    let is_of_section = |key: &String| key.split('.').next() == Some(section);
    synonym(&name)
        .filter(is_of_section)
        .or_else(|| keys_of(section).iter().find(is_typo).map(|known| with_section(known)))
        .or_else(|| keys_named(&name).into_iter().next())
        .or_else(|| synonym(&name).filter(|_| keys_of("").contains(&section)))
        .or_else(similar_in_section)
        .or_else(|| synonym(&name))
        .or_else(|| most_similar_key(&name, MIN_SIMILARITY_ACROSS_SECTIONS))
}

/// Returns the key that has this name in other programs.
pub(super) fn synonym(name: &str) -> Option<String> {
    let (key, _) = SYNONYMS.iter().find(|(_, names)| names.contains(&name))?;
    Some(key.to_string())
}

/// Returns the key of any section with the highest similarity to a name, if it is at least `min_similarity`.
fn most_similar_key(name: &str, min_similarity: f64) -> Option<String> {
    let keys =
        keys_of("").iter().flat_map(|section| keys_of(section).iter().map(move |key| (*section, *key)));
    let similarity = keys.map(|(section, key)| (strsim::jaro_winkler(name, key), section, key));
    let (similarity, section, key) = similarity.max_by(|a, b| a.0.total_cmp(&b.0))?;
    (similarity >= min_similarity).then(|| format!("{section}.{key}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_from_other_programs_suggest_the_key() {
        for (section, name, expected) in [
            ("model", "head", "model.heads"),
            ("model", "hed", "model.heads"),
            ("model", "n_head", "model.heads"),
            ("model", "n_layer", "model.layers"),
            ("model", "layer", "model.layers"),
            ("model", "hidden", "model.d_model"),
            ("model", "hidden_size", "model.d_model"),
            ("model", "n_embd", "model.d_model"),
            ("model", "head_dim", "model.d_head"),
            ("model", "dropout_rate", "model.dropout"),
            ("model", "block_size", "data.length"),
            ("model", "vocab_size", "data.vocab"),
            ("training", "lr", "training.learning_rate"),
            ("training", "max_steps", "training.steps"),
            ("training", "max_iters", "training.steps"),
            ("training", "batch", "training.batch_size"),
            ("training", "dropout", "model.dropout"),
            ("training", "heads", "model.heads"),
            ("training", "grad_clip", "training.max_gradient_norm"),
            ("training", "eval_interval", "training.validate_every"),
            ("training", "warmup_steps", "training.warmup"),
            ("training", "optimiser", "training.optimizer"),
            ("data", "file", "data.path"),
            ("data", "seq_len", "data.length"),
            ("data", "steps", "training.steps"),
            ("run", "lr", "training.learning_rate"),
            ("", "modle", "model"),
        ] {
            assert_eq!(intended_key(section, name).as_deref(), Some(expected), "{section}.{name}");
        }
        assert_eq!(nearest_key("Max-Iters").as_deref(), Some("training.steps"));
        assert_eq!(nearest_key("learning-rat").as_deref(), Some("training.learning_rate"));
        assert_eq!(nearest_key("colour"), None);
    }

    #[test]
    fn synonyms_are_not_keys_and_name_real_keys() {
        for (key, names) in SYNONYMS {
            let (section, name) = key.split_once('.').unwrap();
            assert!(keys_of(section).contains(&name), "{key}");
            for name in names {
                // These are keys of another section as well.
                assert!(keys_named(name).is_empty() || ["samples", "dtype"].contains(name), "{name}");
            }
        }
    }
}

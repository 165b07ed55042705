#![no_main]

causal_attention_fuzz::fuzz!(tokenizer);

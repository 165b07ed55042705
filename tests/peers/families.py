"""Creates small randomly initialised models of transformers' model families, and compares exports with their outputs.

    python tests/peers/families.py make FOLDER [NAME...]
    python tests/peers/families.py compare EXPORT EXPECTED [EXPORT EXPECTED...]

`make` writes a folder for each NAME (by default, for all): the model as saved by `save_pretrained`, and
expected.safetensors. This file holds `tokens` [batch, time], `logits`, `attentions` [layers, batch, heads, time, time],
`greedy` and `generated`. `greedy` is the first five tokens of the first row and their greedy continuation by 32 tokens.
`generated` is the part of `greedy` that `generate` returns before a token ends the text. `compare` loads exports, which
must not cause a warning, and compares all results that the expected file contains. The folders families/llama and
families/qwen3 next to this file were written by

    python tests/peers/families.py make tests/peers/families llama qwen3

Exit code 77: transformers is not installed.
"""

import json
import logging
import sys
import warnings
from pathlib import Path

try:
    import torch
    from safetensors.torch import load_file, save_file
    from transformers import AutoModelForCausalLM
    from transformers import (Gemma2Config, Gemma3TextConfig, GPT2Config, GPTNeoConfig, GPTNeoXConfig, LlamaConfig,
                              MistralConfig, Olmo2Config, Phi3Config, Qwen2Config, Qwen3Config, SmolLM3Config)
    from transformers.utils import logging as transformers_logging
except ImportError as missing:
    print(missing)
    sys.exit(77)

SIZES = dict(vocab_size=29, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
             num_key_value_heads=1, max_position_embeddings=128, pad_token_id=None)
# Of the eight rotated pairs of a head, some keep their frequency, one is interpolated, and the others are divided by the
# factor.
LLAMA3 = dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                      original_max_position_embeddings=64)
UNGROUPED = {key: value for key, value in SIZES.items() if key != "num_key_value_heads"}


def rope(theta, **more):
    return dict(rope_type="default", rope_theta=theta) | more


# The config of each model, and the data type of its stored weights.
MODELS = {
    "llama": (LlamaConfig(**SIZES, head_dim=16, rope_parameters=LLAMA3), torch.bfloat16),
    "qwen3": (Qwen3Config(**SIZES | dict(hidden_size=18, num_attention_heads=4, num_key_value_heads=2), head_dim=8,
                          tie_word_embeddings=True, rope_parameters=rope(1e6)), torch.float32),
    "llama-biased": (LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True, tie_word_embeddings=True,
                                 hidden_act="gelu"), torch.float32),
    "llama-attention-biased": (LlamaConfig(**SIZES, attention_bias=True), torch.float32),
    "llama-inner-biased": (LlamaConfig(**SIZES, mlp_bias=True), torch.float32),
    "qwen3-biased": (Qwen3Config(**SIZES, head_dim=16, attention_bias=True), torch.float32),
    "llama-linear": (LlamaConfig(**SIZES | dict(num_key_value_heads=2), head_dim=12,
                                 rope_parameters=rope(10000.0, rope_type="linear", factor=3.0)), torch.float32),
    "llama-pytorch": (LlamaConfig(**SIZES), torch.float32),
    "llama-half": (LlamaConfig(**SIZES, rope_parameters=rope(500000.0)), torch.float16),
    "qwen2": (Qwen2Config(**SIZES, tie_word_embeddings=True, rope_parameters=rope(1e6)), torch.float32),
    "qwen2-untied": (Qwen2Config(**SIZES, rope_parameters=LLAMA3), torch.bfloat16),
    "qwen3-untied": (Qwen3Config(**SIZES, head_dim=16), torch.bfloat16),
    "mistral": (MistralConfig(**SIZES, head_dim=16, sliding_window=4), torch.float32),
    "smollm3": (SmolLM3Config(**SIZES, no_rope_layers=[1, 0]), torch.float32),
    "pythia": (GPTNeoXConfig(**UNGROUPED), torch.float16),
    "pythia-sequential": (GPTNeoXConfig(**UNGROUPED, rotary_pct=0.5, rotary_emb_base=500, use_parallel_residual=False,
                                        attention_bias=False, tie_word_embeddings=True), torch.float32),
    "tinystories": (GPTNeoConfig(vocab_size=29, hidden_size=16, num_layers=3, num_heads=2, window_size=4,
                                 attention_types=[[["global", "local"], 1], [["global"], 1]],
                                 max_position_embeddings=64), torch.float32),
    "gemma2": (Gemma2Config(**SIZES | dict(num_hidden_layers=4), head_dim=16, sliding_window=4,
                            query_pre_attn_scalar=24, attn_logit_softcapping=3.0, final_logit_softcapping=20.0),
               torch.float32),
    "gemma3": (Gemma3TextConfig(**SIZES | dict(num_hidden_layers=3), head_dim=16, sliding_window=4,
                                query_pre_attn_scalar=16, sliding_window_pattern=3, rope_parameters={
                                    "full_attention": rope(500.0, rope_type="linear", factor=2.0),
                                    "sliding_attention": rope(100.0)}), torch.bfloat16),
    "olmo2": (Olmo2Config(**SIZES), torch.float32),
    "olmo2-ungrouped": (Olmo2Config(**UNGROUPED, attention_bias=True,
                                    rope_parameters=rope(500000.0)), torch.float32),
    "phi3": (Phi3Config(**SIZES, sliding_window=4), torch.float32),
    "phi4": (Phi3Config(**SIZES | dict(num_attention_heads=1), tie_word_embeddings=True,
                        rope_parameters=rope(10000.0, partial_rotary_factor=0.75)), torch.float32),
    "gpt2": (GPT2Config(vocab_size=29, n_embd=16, n_layer=2, n_head=2, n_positions=64, n_inner=40,
                        activation_function="relu"), torch.float32),
    # Deep enough that `explain` estimates effects by gradients.
    "gpt2-large": (GPT2Config(vocab_size=29, n_embd=16, n_layer=6, n_head=4, n_positions=64, n_inner=40),
                  torch.float32),
    "qwen3-stacked": (Qwen3Config(**SIZES | dict(num_hidden_layers=6, num_attention_heads=4, num_key_value_heads=2),
                               head_dim=8, rope_parameters=rope(1e6)), torch.float32),
}


def attend(model, tokens):
    with torch.no_grad():
        computed = model(tokens, output_attentions=True, use_cache=False)
    return computed.logits, torch.stack(computed.attentions)


def load(folder, **options):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", **options)


def generate(model, greedy):
    prompt = greedy[None, :5].long()
    return model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=32, do_sample=False)[0]


def put(path, ids):
    path.write_text(json.dumps(json.loads(path.read_text()) | ids, indent=2) + "\n")


def make(folder, name):
    config, dtype = MODELS[name]
    torch.manual_seed(sum(map(ord, name)) + 1)
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for key, value in model.named_parameters():
            # The weights are large, so that attention is far from uniform. Gemma stores gains minus one, and scales
            # embeddings up.
            is_norm, is_gemma = "norm" in key or "ln_" in key, name.startswith("gemma")
            scale = 0.2 if is_norm else 0.1 if is_gemma and "embed" in key else 0.5
            mean = is_norm and key.endswith("weight") and not is_gemma
            value.copy_(mean + scale * torch.randn(value.shape))
    # Untied models are saved in several shards, all others in one file.
    model.to(dtype).save_pretrained(folder / name, max_shard_size="4KB" if name.endswith("untied") else "1GB")
    model = load(folder / name).eval()
    tokens = torch.randint(0, SIZES["vocab_size"], (2, 13))
    logits, attentions = attend(model, tokens)
    greedy = tokens[:1, :5]
    for _ in range(32):
        greedy = torch.cat([greedy, attend(model, greedy)[0][:, -1].argmax(-1, keepdim=True)], 1)
    # The continuation does not repeat a single token.
    assert len(greedy[0, 5:].unique()) > 3, (name, greedy)
    # A late token of the continuation ends the text; only generation_config.json declares it.
    new = list(dict.fromkeys(greedy[0, 5:17].tolist()))
    unused = next(id for id in range(29) if id not in greedy)
    ids = dict(bos_token_id=3, eos_token_id=unused, pad_token_id=6)
    put(folder / name / "config.json", ids)
    put(folder / name / "generation_config.json", ids | dict(eos_token_id=[unused, new[-1]]))
    generated = generate(load(folder / name).eval(), greedy[0])
    assert 7 < len(generated) <= 17, (name, generated)
    if name.endswith("pytorch"):
        torch.save(model.state_dict(), folder / name / "pytorch_model.bin")
        (folder / name / "model.safetensors").unlink()
    save_file({"tokens": tokens.int(), "logits": logits.contiguous(), "attentions": attentions.contiguous(),
               "greedy": greedy[0].int().contiguous(), "generated": generated.int()}, folder / name / "expected.safetensors")


def compare(export, expected):
    logged = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: logged.append(record.getMessage())
    transformers_logging.add_handler(handler)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model, loaded = load(export, output_loading_info=True)
        expected = load_file(expected)
        found = dict(zip(("logits", "attentions"), attend(model.eval(), expected["tokens"].long())))
    transformers_logging.remove_handler(handler)
    assert not logged and not caught, (export, logged, [str(warning.message) for warning in caught])
    assert not any(loaded.values()), (export, loaded)
    for key, value in found.items():
        if key not in expected:
            continue
        difference = ((value - expected[key]).abs().max() / expected[key].abs().max()).item()
        print(f"{export}: {model.config.model_type}: largest difference of {key}: {difference:.1e}")
        assert difference < 1e-5, (export, key, difference)
    if "generated" in expected:
        generated = generate(model, expected["greedy"])
        assert generated.tolist() == expected["generated"].tolist(), (export, generated, expected["generated"])


command, *arguments = sys.argv[1:]
if command == "make":
    for name in arguments[1:] or MODELS:
        make(Path(arguments[0]), name)
else:
    for export, expected in zip(arguments[::2], arguments[1::2], strict=True):
        compare(export, expected)

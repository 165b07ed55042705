"""Loads a GPT-2 that this project exported into transformers and compares the logits.

    python tests/peers/gpt2.py FOLDER EXPECTED

FOLDER holds model.safetensors and config.json, EXPECTED is a safetensors file with `tokens`
[batch, time] and `logits` [batch, time, vocab]. Exit code 77: transformers is not installed.
"""

import sys

try:
    import torch
    from safetensors.torch import load_file
    from transformers import GPT2LMHeadModel
except ImportError as missing:
    print(missing)
    sys.exit(77)

folder, expected = sys.argv[1:]
model, loaded = GPT2LMHeadModel.from_pretrained(folder, output_loading_info=True)
for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
    assert not loaded[kind], (kind, loaded[kind])
expected = load_file(expected)
with torch.no_grad():
    logits = model.eval()(expected["tokens"].long()).logits
difference = (logits - expected["logits"]).abs().max().item()
print(f"largest difference of {logits.numel()} logits: {difference:.2e}")
sys.exit(0 if difference < 1e-4 else 1)

"""Measures transformers' generate on the shape of `cargo bench --bench generate`; prints one line of JSON.

    python benches/pytorch_generate.py [gpt2|llama] [--prompt 64] [--new 128] [--threads 2]
"""

import argparse
import json
import time

import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

arguments = argparse.ArgumentParser()
arguments.add_argument("shape", nargs="?", choices=["gpt2", "llama"], default="gpt2")
arguments.add_argument("--prompt", type=int, default=64)
arguments.add_argument("--new", type=int, default=128)
arguments.add_argument("--threads", type=int, default=2)
arguments = arguments.parse_args()

torch.set_num_threads(arguments.threads)
torch.manual_seed(0)
if arguments.shape == "gpt2":
    model = GPT2LMHeadModel(GPT2Config(bos_token_id=None, eos_token_id=None))
else:
    # The shape of SmolLM2-135M.
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9,
        num_key_value_heads=3, tie_word_embeddings=True, bos_token_id=None, eos_token_id=None))
model.eval()
prompt = torch.randint(0, model.config.vocab_size, (1, arguments.prompt))
best = float("inf")
with torch.inference_mode():
    for _ in range(3):
        start = time.perf_counter()
        written = model.generate(
            prompt, attention_mask=torch.ones_like(prompt), do_sample=False, use_cache=True,
            min_new_tokens=arguments.new, max_new_tokens=arguments.new, pad_token_id=0)
        best = min(best, time.perf_counter() - start)
assert written.shape == (1, arguments.prompt + arguments.new), written.shape
print(json.dumps({"tokens_per_second": round(arguments.new / best, 2)}))

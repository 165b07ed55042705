"""Writes nanogpt.pt and nanogpt.safetensors next to this file: a small checkpoint as saved by nanoGPT
(compiled, with optimizer and arguments), and the logits of the same computation in PyTorch.

    python tests/peers/make_nanogpt.py
"""

from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

torch.manual_seed(5)
VOCAB, CONTEXT, WIDTH, HEADS, LAYERS = 11, 13, 12, 3, 2
model = {"wte.weight": torch.randn(VOCAB, WIDTH), "wpe.weight": torch.randn(CONTEXT, WIDTH)}
for layer in range(LAYERS):
    shapes = {"attn.c_attn": (3 * WIDTH, WIDTH), "attn.c_proj": (WIDTH, WIDTH),
              "mlp.c_fc": (4 * WIDTH, WIDTH), "mlp.c_proj": (WIDTH, 4 * WIDTH)}
    for name in ("ln_1", "ln_2"):
        model[f"h.{layer}.{name}.weight"] = 1 + 0.1 * torch.randn(WIDTH)
        model[f"h.{layer}.{name}.bias"] = 0.1 * torch.randn(WIDTH)
    for name, shape in shapes.items():
        model[f"h.{layer}.{name}.weight"] = 0.3 * torch.randn(shape)
        model[f"h.{layer}.{name}.bias"] = 0.1 * torch.randn(shape[0])
model["ln_f.weight"], model["ln_f.bias"] = 1 + 0.1 * torch.randn(WIDTH), 0.1 * torch.randn(WIDTH)


def part(name):
    return model[f"{name}.weight"], model[f"{name}.bias"]


tokens = torch.randint(0, VOCAB, (2, 7))
x = model["wte.weight"][tokens] + model["wpe.weight"][:7]
for layer in range(LAYERS):
    y = F.layer_norm(x, (WIDTH,), *part(f"h.{layer}.ln_1"))
    heads = (z.view(2, 7, HEADS, -1).transpose(1, 2) for z in F.linear(y, *part(f"h.{layer}.attn.c_attn")).split(WIDTH, 2))
    y = F.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).reshape(2, 7, WIDTH)
    x = x + F.linear(y, *part(f"h.{layer}.attn.c_proj"))
    y = F.layer_norm(x, (WIDTH,), *part(f"h.{layer}.ln_2"))
    x = x + F.linear(F.gelu(F.linear(y, *part(f"h.{layer}.mlp.c_fc"))), *part(f"h.{layer}.mlp.c_proj"))
logits = F.layer_norm(x, (WIDTH,), *part("ln_f")) @ model["wte.weight"].T

state = {f"_orig_mod.transformer.{name}": value for name, value in model.items()}
state["_orig_mod.lm_head.weight"] = model["wte.weight"]
parameters = [torch.nn.Parameter(value.clone()) for value in list(model.values())[2:4]]
optimizer = torch.optim.AdamW(parameters)
sum(parameter.sum() for parameter in parameters).backward()
optimizer.step()
arguments = dict(n_layer=LAYERS, n_head=HEADS, n_embd=WIDTH, block_size=CONTEXT, bias=True, vocab_size=VOCAB, dropout=0.0)
checkpoint = dict(model=state, optimizer=optimizer.state_dict(), model_args=arguments, iter_num=3,
                  best_val_loss=torch.tensor(2.5), config=dict(out_dir="out", compile=True, learning_rate=6e-4))
here = Path(__file__).parent
torch.save(checkpoint, here / "nanogpt.pt")
save_file({"tokens": tokens, "logits": logits.contiguous()}, here / "nanogpt.safetensors")

"""Writes muon.safetensors to tests/reference: twenty training steps of a small decoder (RMS norms, SwiGLU, one
key-value head shared by three query heads) with Muon and AdamW in PyTorch, in double precision.

    python tests/peers/make_muon.py
"""

from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

torch.manual_seed(7)
VOCAB, TIME, WIDTH, HEADS, HEAD, INNER, LAYERS, STEPS = 13, 11, 24, 3, 8, 40, 2, 20
RATE, DECAY, MOMENTUM, WARMUP, MAX_NORM = 2e-3, 0.1, 0.95, 10, 1.0

# The weights are laid out as in this program, [in, out], with fused matrices concatenated.
shapes = {"embedding.token.weight": (VOCAB, WIDTH), "position.weight": (TIME, WIDTH)}
sides = {}
for layer in range(LAYERS):
    at = f"blocks.{layer}."
    shapes |= {at + "attention_norm.gamma": (WIDTH,), at + "attention.qkv.weight": (WIDTH, (HEADS + 2) * HEAD),
               at + "attention.output.weight": (HEADS * HEAD, WIDTH), at + "feed_forward_norm.gamma": (WIDTH,),
               at + "feed_forward.up.weight": (WIDTH, 2 * INNER), at + "feed_forward.down.weight": (INNER, WIDTH)}
    sides |= {at + "attention.qkv.weight": [HEADS * HEAD, HEAD, HEAD], at + "attention.output.weight": [WIDTH],
              at + "feed_forward.up.weight": [INNER, INNER], at + "feed_forward.down.weight": [WIDTH]}
shapes |= {"norm.gamma": (WIDTH,), "head.weight": (WIDTH, VOCAB)}
weights = {name: (1 + 0.1 * torch.randn(shape) if name.endswith("gamma") else 0.2 * torch.randn(shape)).float()
           for name, shape in shapes.items()}
saved = {f"weight.{name}": value.clone() for name, value in weights.items()}
weights = {name: value.double().requires_grad_() for name, value in weights.items()}
batches = torch.randint(0, VOCAB, (STEPS, 5, TIME + 1))


def norm(x, name):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * weights[name]


def loss_of(tokens):
    x = weights["embedding.token.weight"][tokens[:, :-1]] + weights["position.weight"]
    for layer in range(LAYERS):
        at = f"blocks.{layer}."
        packed = norm(x, at + "attention_norm.gamma") @ weights[at + "attention.qkv.weight"]
        query, key, value = packed.split([HEADS * HEAD, HEAD, HEAD], 2)
        query = query.view(*query.shape[:2], HEADS, HEAD).transpose(1, 2)
        heads = F.scaled_dot_product_attention(query, key[:, None], value[:, None], is_causal=True)
        x = x + heads.transpose(1, 2).reshape(query.shape[0], TIME, -1) @ weights[at + "attention.output.weight"]
        gate, up = (norm(x, at + "feed_forward_norm.gamma") @ weights[at + "feed_forward.up.weight"]).chunk(2, 2)
        x = x + (F.silu(gate) * up) @ weights[at + "feed_forward.down.weight"]
    logits = norm(x, "norm.gamma") @ weights["head.weight"]
    return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def orthogonal(matrix):
    x = matrix / (matrix.norm() + 1e-7)
    for _ in range(5):
        gram = x @ x.T
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x * 0.2 * max(x.shape) ** 0.5


first = {name: torch.zeros_like(value) for name, value in weights.items()}
second = {name: torch.zeros_like(value) for name, value in weights.items()}
losses = []
for step in range(1, STEPS + 1):
    loss = loss_of(batches[step - 1])
    gradients = dict(zip(weights, torch.autograd.grad(loss, weights.values())))
    losses.append(loss.detach())
    total = torch.stack([gradient.norm() for gradient in gradients.values()]).norm()
    clip = min(1.0, MAX_NORM / (total + 1e-6))
    momentum = 0.85 + min((step - 1) / WARMUP, 1) * (MOMENTUM - 0.85)
    with torch.no_grad():
        for name, value in weights.items():
            gradient = gradients[name] * clip
            if value.dim() == 2:
                value *= 1 - RATE * DECAY
            if name in sides:
                first[name].lerp_(gradient, 1 - momentum)
                moved = gradient.lerp(first[name], momentum)
                value -= RATE * torch.cat([orthogonal(part) for part in moved.split(sides[name], 1)], 1)
            else:
                first[name].lerp_(gradient, 0.1)
                second[name].lerp_(gradient**2, 0.001)
                corrected = second[name] / (1 - 0.999**step)
                value -= RATE / (1 - 0.9**step) * first[name] / (corrected.sqrt() + 1e-8)
saved["input.batches"] = batches
saved["expected.losses"] = torch.stack(losses)
saved |= {f"expected.{name}": value.detach().float() for name, value in weights.items()}
folder = Path(__file__).resolve().parent.parent / "reference"
save_file({name: value.contiguous() for name, value in saved.items()}, folder / "muon.safetensors")

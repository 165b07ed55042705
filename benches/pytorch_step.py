"""Measures the training steps of benches/step.rs in PyTorch; prints one line of JSON with the fields of that benchmark.

    python benches/pytorch_step.py small --compile --threads 2
    python benches/pytorch_step.py small --compile --bf16

The decoder is the same: pre-norm blocks with one projection for queries, keys and values, exact GELU, learned
positions, no dropout; Adam at 1e-3; the loss is read at each step. "llama" has rotary positions, RMS norms, SwiGLU,
half as many key-value heads as query heads, and no biases. --bf16 computes the forward pass and the loss under
torch.autocast.
"""

import argparse
import json
import resource
import statistics
import time

import torch
from torch import nn
from torch.nn import functional

# The shapes by name: vocabulary, width, heads, layers, batch size, sequence length, steps per round.
SHAPES = {
    "one_layer": (10, 64, 8, 0, 32, 10, 200),
    "small": (65, 128, 4, 4, 12, 64, 20),
    "medium": (65, 384, 6, 6, 8, 256, 3),
    "llama": (65, 384, 8, 6, 8, 256, 3),
    "long": (65, 384, 6, 6, 1, 4096, 1),
    "default": (64, 64, 4, 2, 32, 64, 50),  # config.toml
}


class CausalAttention(nn.Module):
    def __init__(self, d_model, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.output = nn.Linear(d_model, d_model)

    def forward(self, x):
        batch, length, d_model = x.shape
        parts = self.qkv(x).view(batch, length, 3, self.heads, d_model // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)  # each [batch, heads, time, d_head]
        context = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.output(context.transpose(1, 2).reshape(batch, length, d_model))


class Block(nn.Module):
    def __init__(self, d_model, heads):
        super().__init__()
        self.attention_norm = nn.LayerNorm(d_model)
        self.attention = CausalAttention(d_model, heads)
        self.feed_forward_norm = nn.LayerNorm(d_model)
        self.feed_forward = nn.Sequential(
            nn.Linear(d_model, 4 * d_model), nn.GELU(), nn.Linear(4 * d_model, d_model)
        )

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.feed_forward_norm(x))


class Rotary(nn.Module):
    """The cosines and sines of all positions, and the rotation of the halves of a head."""

    def __init__(self, d_head, context):
        super().__init__()
        frequencies = 10000.0 ** (-torch.arange(0, d_head, 2) / d_head)
        angles = torch.outer(torch.arange(context), frequencies).repeat(1, 2)
        self.register_buffer("cosine", angles.cos())
        self.register_buffer("sine", angles.sin())

    def forward(self, x):
        first, second = x.chunk(2, -1)
        return x * self.cosine + torch.cat((-second, first), -1) * self.sine


class LlamaBlock(nn.Module):
    def __init__(self, d_model, heads, d_inner, rotary):
        super().__init__()
        self.heads, self.d_head = heads, d_model // heads
        self.attention_norm = nn.RMSNorm(d_model, eps=1e-5)
        self.qkv = nn.Linear(d_model, 2 * d_model, bias=False)
        self.output = nn.Linear(d_model, d_model, bias=False)
        self.feed_forward_norm = nn.RMSNorm(d_model, eps=1e-5)
        self.up = nn.Linear(d_model, 2 * d_inner, bias=False)
        self.down = nn.Linear(d_inner, d_model, bias=False)
        self.rotary = rotary

    def forward(self, x):
        batch, length, d_model = x.shape
        parts = self.qkv(self.attention_norm(x)).view(batch, length, 2 * self.heads, self.d_head).transpose(1, 2)
        query, key, value = parts.split((self.heads, self.heads // 2, self.heads // 2), 1)
        context = functional.scaled_dot_product_attention(
            self.rotary(query), self.rotary(key), value, is_causal=True, enable_gqa=True)
        x = x + self.output(context.transpose(1, 2).reshape(batch, length, d_model))
        gate, up = self.up(self.feed_forward_norm(x)).chunk(2, -1)
        return x + self.down(functional.silu(gate) * up)


class Llama(nn.Module):
    def __init__(self, vocab, d_model, heads, layers, context):
        super().__init__()
        self.tokens = nn.Embedding(vocab, d_model)
        rotary = Rotary(d_model // heads, context)
        blocks = [LlamaBlock(d_model, heads, 1024, rotary) for _ in range(layers)]
        self.body = nn.Sequential(*blocks, nn.RMSNorm(d_model, eps=1e-5))
        self.head = nn.Linear(d_model, vocab, bias=False)

    def forward(self, ids):
        return self.head(self.body(self.tokens(ids)))


class Decoder(nn.Module):
    """A decoder; without layers the one-layer decoder: embedding, attention, head."""

    def __init__(self, vocab, d_model, heads, layers, context):
        super().__init__()
        self.tokens = nn.Embedding(vocab, d_model)
        if layers:
            self.positions = nn.Parameter(0.02 * torch.randn(context, d_model))
            blocks = [Block(d_model, heads) for _ in range(layers)]
            self.body = nn.Sequential(*blocks, nn.LayerNorm(d_model))
        else:
            self.positions = None
            self.body = CausalAttention(d_model, heads)
        self.head = nn.Linear(d_model, vocab)

    def forward(self, ids):
        x = self.tokens(ids)
        if self.positions is not None:
            x = x + self.positions
        return self.head(self.body(x))


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("shape", choices=SHAPES)
    arguments.add_argument("--compile", action="store_true")
    arguments.add_argument("--bf16", action="store_true")
    arguments.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--steps", type=int, help="steps per round; by default, the steps of the shape")
    arguments = arguments.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)

    vocab, d_model, heads, layers, batch, length, steps = SHAPES[arguments.shape]
    steps = arguments.steps or steps
    model = (Llama if arguments.shape == "llama" else Decoder)(vocab, d_model, heads, layers, length)
    forward = torch.compile(model) if arguments.compile else model
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    ids = torch.randint(vocab, (batch, length + 1))

    def milliseconds(count):
        start = time.perf_counter()
        for _ in range(count):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, arguments.bf16):
                logits = forward(ids[:, :-1])
                loss = functional.cross_entropy(logits.reshape(-1, vocab), ids[:, 1:].reshape(-1))
            loss.backward()
            optimizer.step()
            loss.item()
        return (time.perf_counter() - start) / count * 1e3

    milliseconds(min(max(3, steps // 5), 50))
    middle = statistics.median(milliseconds(steps) for _ in range(arguments.rounds))
    print(
        json.dumps(
            {
                "shape": arguments.shape,
                "torch": torch.__version__ + (" compiled" if arguments.compile else ""),
                "precision": "bf16" if arguments.bf16 else "f32",
                "threads": arguments.threads,
                "ms_per_step": round(middle, 3),
                "tokens_per_second": round(batch * length / middle * 1e3),
                "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
            }
        )
    )


main()

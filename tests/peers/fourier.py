"""Compares the Fourier analysis of a run on modular addition with fast Fourier transforms in PyTorch.

    python tests/peers/fourier.py EXPORT FOURIER PAIRS

EXPORT is a folder that transformers loads as a GPT-2, FOURIER the `fourier.json` of its run, and PAIRS a JSON list of the
pairs of the training set. The comparison covers the shares of the frequencies in logits and embedding, the frequencies of
neurons, and the restricted and excluded loss.

Exit code 77: PyTorch or transformers is not installed.
"""

import json
import os
import sys

os.environ["HF_HUB_OFFLINE"] = "1"
try:
    import torch
    from agreement import check
    from transformers import AutoModelForCausalLM
except ImportError as missing:
    print(missing)
    sys.exit(77)

torch.set_grad_enabled(False)

export, fourier, pairs = sys.argv[1], json.load(open(sys.argv[2])), torch.tensor(json.load(open(sys.argv[3])))
model = AutoModelForCausalLM.from_pretrained(export).double()
n, keys = fourier["modulus"], torch.tensor(fourier["keys"])
first, second = torch.arange(n).repeat_interleave(n), torch.arange(n).repeat(n)
sums = (first + second) % n
hidden = []
model.transformer.h[0].mlp.act.register_forward_hook(lambda _module, _inputs, output: hidden.append(output[:, -1]))
logits = model(torch.stack([first, second, torch.full_like(first, n)], 1)).logits[:, -1]


def shares(table):
    energies = torch.fft.rfft(table, dim=0)[1:].abs().square().sum(1)
    return energies / energies.sum()


def loss(logits, targets):
    return torch.nn.functional.cross_entropy(logits, targets)


assert n % 2 == 1, "an even modulus has an alternating wave"
means = torch.zeros(n, logits.shape[1], dtype=torch.float64).index_add(0, sums, logits) / n
check("logits", fourier["logits"], shares(means))
check("embedding", fourier["embedding"], shares(model.transformer.wte.weight[:n]))

spectrum = torch.fft.rfft(means, dim=0)
waves, kept = torch.zeros_like(spectrum), torch.zeros_like(spectrum)
waves[keys], kept[keys], kept[0] = spectrum[keys], spectrum[keys], spectrum[0]
waves, kept = torch.fft.irfft(waves, n, dim=0), torch.fft.irfft(kept, n, dim=0)
best = fourier["best"]
in_training = pairs[:, 0] * n + pairs[:, 1]
check("restricted loss", best["restricted"], loss(kept, torch.arange(n)))
check("excluded loss", best["excluded"], loss((logits - waves[sums])[in_training], sums[in_training]))
check("training loss", best["training"], loss(logits[in_training], sums[in_training]))
squares = sum(parameter.square().sum() for parameter in model.parameters())
check("the sum of squared weights", best["squared_weights"] / squares, 1.0)

activations = hidden[0].T.reshape(-1, n, n)
energies = torch.fft.fft2(activations).abs().square()
energies[:, 0, 0] = 0
total = energies.sum((1, 2))
for neuron, found in enumerate(fourier["neurons"][0]):
    if found is None:
        check("a constant neuron", total[neuron], 0.0)
        continue

    def share(frequency):
        ends = [0, frequency, n - frequency]
        return energies[neuron][ends][:, ends].sum() / total[neuron]

    of_all = torch.stack([share(frequency) for frequency in range(1, n // 2 + 1)])
    check(f"neuron {neuron}", found["share"], of_all.max())
    check(f"the frequency of neuron {neuron}", found["share"], of_all[found["frequency"] - 1])
print("ok")

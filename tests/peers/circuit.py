"""Compares the analysis of an exported decoder by TransformerLens with `explain --json` of its run.

    python tests/peers/circuit.py EXPORT EXPLANATION

EXPORT is a folder that transformers loads as a GPT-2. EXPLANATION is the JSON of one sequence. The comparison covers the
logit lens, logit attribution, mean ablation, activation patching, path patching by one input, composition, singular
values and copying scores.

Exit code 77: TransformerLens is not installed.
"""

import json
import os
import sys

os.environ["HF_HUB_OFFLINE"] = "1"
try:
    import torch
    from agreement import check
    from transformer_lens.model_bridge import TransformerBridge
    from transformers import AutoModelForCausalLM
except ImportError as missing:
    print(missing)
    sys.exit(77)

torch.set_grad_enabled(False)

export, explained = sys.argv[1], json.load(open(sys.argv[2]))
hf = AutoModelForCausalLM.from_pretrained(export)
model = TransformerBridge.boot_transformers(export, hf_model=hf)
tokens, targets = torch.tensor([explained["inputs"]]), torch.tensor(explained["next"])
logits, cache = model.run_with_cache(tokens)
layers, heads = range(model.cfg.n_layers), range(model.cfg.n_heads)
positions = torch.tensor(explained["positions"])
loss = lambda logits: torch.nn.functional.cross_entropy(logits[0, positions], targets[positions]).item()
check("loss", loss(logits), explained["model"])

streams = [cache["resid_pre", layer] for layer in layers] + [cache["resid_post", layers[-1]]]
for depth, stream in enumerate(streams):
    lens = hf.lm_head(hf.transformer.ln_f(stream))[0].softmax(-1)
    check(f"lens {depth}", lens.gather(1, targets[:, None])[:, 0], explained["lens"]["probability"][depth])

# Folds the norms by hand: the compatibility mode of TransformerLens 4.3 changes the logits of this model.
centred = lambda weight, axis: weight - weight.mean(axis, keepdim=True)
final = hf.transformer.ln_f
unembedding = centred(final.weight[:, None] * centred(hf.lm_head.weight.T, 1), 0)
last = centred(streams[-1][0], 1)
divisor = (last.pow(2).mean(1, keepdim=True) + final.eps).sqrt()
direction = unembedding[:, targets].T / divisor
parts = {part["part"]: part["first"] for part in explained["attribution"]}
check("embedding", (streams[0][0] * direction).sum(1), parts["embedding"])
read, write = {}, {}
for layer in layers:
    block = hf.transformer.h[layer]
    folded = centred(block.ln_1.weight[:, None] * block.attn.c_attn.weight, 0)
    for head in heads:
        width = model.cfg.d_head
        read[layer, head] = [part[:, head * width:][:, :width] for part in folded.chunk(3, 1)]
        write[layer, head] = centred(block.attn.c_proj.weight[head * width:][:width], 1)
        context = cache["z", layer][0, :, head]
        check(f"head {layer} {head}", (context @ write[layer, head] * direction).sum(1), parts[f"layer {layer} head {head}"])
    check(f"feed-forward {layer}", (cache["mlp_out", layer][0] * direction).sum(1), parts[f"layer {layer} feed-forward"])

qk = lambda at: read[at][0] @ read[at][1].T
ov = lambda at: read[at][2] @ write[at]
for (layer, head) in read:
    weights = explained["weights"][layer][head]
    check("QK", torch.linalg.svdvals(qk((layer, head)))[:len(weights["qk"])], weights["qk"])
    check("OV", torch.linalg.svdvals(ov((layer, head)))[:len(weights["ov"])], weights["ov"])
    circuit = hf.transformer.wte.weight @ ov((layer, head)) @ unembedding
    eigenvalues = torch.linalg.eigvals(circuit.double())
    check("copying", eigenvalues.sum().real / eigenvalues.abs().sum(), weights["copying"])

# A feed-forward layer has no head.
between_heads = [edge for edge in explained["edges"] if None not in edge["from"] + edge["to"]]
for edge in between_heads:
    (start, end), sender = (tuple(edge["from"]), tuple(edge["to"])), ov(tuple(edge["from"]))
    reader = {"query": qk(end), "key": qk(end).T, "value": ov(end)}[edge["input"]]
    check(f"composition {edge}", (sender @ reader).norm() / sender.norm() / reader.norm(), edge["composition"])


def averaged(head):
    def hook(context, hook):
        context = context.clone()
        context[:, :, head] = context[:, :, head].mean(1, keepdim=True)
        return context
    return hook


for part in explained["components"]:
    if not part.get("feed_forward"):
        name = f"blocks.{part['layer']}.attn.hook_z"
        found = model.run_with_hooks(tokens, fwd_hooks=[(name, averaged(part["head"]))])
        check(f"ablation {part}", loss(found), part["ablated"])


def as_in(cache, head=None):
    def hook(value, hook):
        value = value.clone()
        value[:, :, head] = cache[hook.name][:, :, head]
        return value
    return hook


for edge in explained["edges"]:
    (layer, head), (to, reader) = edge["from"], edge["to"]
    name = f"blocks.{layer}.attn.hook_z" if head is not None else f"blocks.{layer}.hook_mlp_out"
    mean = averaged(head) if head is not None else lambda value, hook: value.mean(1, keepdim=True).expand_as(value)
    hooks = [(name, mean)]
    hooks += [(f"blocks.{at}.attn.hook_z", as_in(cache, [other for other in heads if (at, other) != (layer, head)]))
              for at in layers]
    with model.hooks(fwd_hooks=hooks):
        _, other = model.run_with_cache(tokens)
    if reader is None:
        patch = (f"blocks.{to}.hook_mlp_out", lambda value, hook: other[hook.name])
    else:
        patch = (f"blocks.{to}.attn.hook_{edge['input'][0]}", as_in(other, reader))
    found = model.run_with_hooks(tokens, fwd_hooks=[patch])
    check(f"path {edge}", loss(found), edge["ablated"])
patching = explained["patching"]
clean, corrupted = (torch.tensor([patching["pair"][which]]) for which in ("clean", "corrupted"))
clean_cache = model.run_with_cache(clean)[1]
clean_answer, other_answer = patching["pair"]["answers"]
difference = lambda logits: (logits[0, -1, clean_answer] - logits[0, -1, other_answer]).item()
clean_difference, corrupted_difference = difference(model(clean)), difference(model(corrupted))
check("clean", clean_difference, patching["clean"])
check("corrupted", corrupted_difference, patching["corrupted"])


def recovered(name, hook):
    patched = difference(model.run_with_hooks(corrupted, fwd_hooks=[(name, hook)]))
    return (patched - corrupted_difference) / (clean_difference - corrupted_difference)


def at_position(position):
    def hook(value, hook):
        value = value.clone()
        value[:, position] = clean_cache[hook.name][:, position]
        return value
    return hook


for layer in layers:
    for head in heads:
        found = recovered(f"blocks.{layer}.attn.hook_z", as_in(clean_cache, head))
        check(f"patched head {layer} {head}", found, patching["heads"][layer][head])
    found = recovered(f"blocks.{layer}.hook_mlp_out", lambda value, hook: clean_cache[hook.name])
    check(f"patched feed-forward {layer}", found, patching["feed_forward"][layer])
    for position in range(clean.shape[1]):
        found = recovered(f"blocks.{layer}.hook_resid_pre", at_position(position))
        check(f"patched stream {layer} {position}", found, patching["stream"][layer][position])
print(f"{len(parts)} components, {len(explained['edges'])} connections")

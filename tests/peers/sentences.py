"""Checks the sentences of `explain` against its numbers.

    python tests/peers/sentences.py [--program PROGRAM] RUN_OR_FILE...

A run folder is explained by the program (by default target/release/causal-attention) with `--json` and without, which writes
`circuit.json` to the folder. A file is the output of `explain --json`. Every sentence must be of a known form, and its
numbers, the direction of each change and the named ablation must match the fields. Each component and each connection has
exactly one sentence. The printed text must begin with the same sentences, and `circuit.json` must hold them too.
"""

import json
import os
import re
import subprocess
import sys

NUMBER = r"[+−]?[\d,]+(?:\.\d+)?"
NAMES = {"loss": "loss", "log_probability": "log-probability of the answer", "logit_difference": "logit difference"}
VERBS = {"mean": "mean-ablating", "resample": "resampling"}
PARTICIPLES = {"mean": "mean-ablated", "resample": "resampled from the corrupted sequence"}
INPUTS = {"query": "queries", "key": "keys", "value": "values"}
CUTS = {
    "components": "the circuit may contain components that do not matter",
    "proof": "the proof that no smaller circuit exists is unfinished",
    "single_ablations": "not all components were ablated alone",
    "weights": "the weights of the heads were not analysed",
    "lens": "the logit lens is missing",
    "connections": "not all connections were ablated",
    "tuned_lens": "the tuned lens was not trained",
    "patching": "activation patching was skipped",
    "neurons": "the neurons are unknown",
    "random_weights": "the effects of random weights are unknown",
}
KINDS = {
    "previous_token": "attends to the previous token",
    "induction": "attends to the token after an earlier occurrence",
    "duplicate": "attends to earlier occurrences",
    "itself": "attends to its own token",
    "first_token": "attends to the first token",
    "separator": "attends to one token wherever it occurs",
    "next_token": "attends to the next token of the source",
    "positional": "attends to the same positions",
    "copying": "copies tokens",
}


def number(text):
    return float(text.replace("−", "-").replace(",", "").replace("+", ""))


def close(text, value, digits=2):
    """Checks that a number was rounded to `digits`."""
    assert abs(number(text) - value) <= 0.5 * 10**-digits * (1 + 1e-6), f"{text} stands for {value}"


def percent(text, share):
    assert re.fullmatch(rf"{NUMBER} %", text), text
    close(text[:-2], 100 * share, 0)


class Explanation:
    def __init__(self, fields):
        self.fields = fields
        self.name = NAMES[fields["quantity"]]
        self.full = fields["model"]
        self.seen = []

    def effect(self, text, ablated):
        """Checks a sentence part such as "raises the loss from 1.20 to 1.94"."""
        name = re.escape(self.name)
        if found := re.fullmatch(rf"leaves the {name} at ({NUMBER})", text):
            close(found[1], self.full)
            close(found[1], ablated)
            return False
        found = re.fullmatch(rf"(raises|lowers) the {name} from ({NUMBER}) to ({NUMBER})", text)
        assert found, f"not an effect: {text}"
        close(found[2], self.full)
        close(found[3], ablated)
        assert found[2] != found[3] and (found[1] == "raises") == (ablated > self.full), text
        return True

    def share(self, value):
        return (value - self.fields["baseline"]) / (self.full - self.fields["baseline"])

    def is_better(self, ablated):
        return ablated < self.full if self.fields["quantity"] == "loss" else ablated > self.full

    def circuit(self, found):
        fields = self.fields
        components = fields["components"]
        heads = sum("head" in it for it in components)
        unconfirmed = fields.get("cut", {}).get("unconfirmed", 0)
        total = fields["cross_heads"] + sum(len(layer) + 1 for layer in fields["weights"])
        counts = [number(found[group]) for group in ("count", "total", "heads", "layers")]
        assert counts == [len(components) + unconfirmed, total, heads, len(components) - heads], counts
        assert number(found["unknown"] or "0") == unconfirmed, found[0]
        counts = [number(found["targets"]), number(found["sequences"] or "1")]
        assert counts == [fields["targets"], fields["sequences"]], found[0]
        percent(found["recovered"], fields["faithfulness"])
        percent(found["others"], fields["complement_share"])
        self.shares(found["of_circuit"], fields.get("faithfulness_interval"))
        self.shares(found["of_others"], fields.get("complement_interval"))
        assert (found["not"] is None) == (number(found["others"][:-2]) <= 5), found[0]
        assert fields["baseline_of"].split("_")[0] in found["baseline"].replace("-", "_"), found["baseline"]
        assert found["name"] == self.name and found["ablation"] == PARTICIPLES[fields["ablation"]], found[0]
        for group, key in [("circuit", "circuit"), ("model", "model"), ("value", "baseline")]:
            close(found[group], fields[key])
        assert abs(fields["faithfulness"] - self.share(fields["circuit"])) < 1e-9
        assert cut_or(fields, abs(fields["faithfulness"] - 1) <= 0.05 + 1e-9), "the circuit is not faithful"

    def shares(self, text, interval):
        """Checks the interval of a share."""
        assert bool(text) == bool(interval), text
        for bound, value in zip(re.findall(rf"{NUMBER} %(?! interval)", text or ""), interval or [], strict=True):
            percent(bound, value)

    def component(self, found):
        layer = int(found["layer"])
        head = found["head"] and int(found["head"])
        cross = "cross-attention" in found[0].split(";")[0]
        of_site = lambda it: (it["layer"], it.get("head"), it.get("cross", False)) == (layer, head, cross)
        [component] = [it for it in self.fields["components"] if of_site(it)]
        self.seen.append(("component", layer, head, cross))
        assert found["verb"].lower() == VERBS[self.fields["ablation"]], found["verb"]
        changes = self.effect(found["effect"], component["ablated"])
        self.interval(found, component)
        is_of_site = lambda it: (it["layer"], it.get("head"), it.get("cross", False)) == (layer, head, cross)
        [direct] = [it for it in self.fields["direct"] if is_of_site(it)]
        self.effect(found["direct"], direct["ablated"])
        is_worse = found["worse"] is not None
        low, high = component.get("interval", (1, 1))
        share = abs(component["ablated"] - self.full) / abs(self.full - self.fields["baseline"])
        is_certain = (low > 0 or high < 0) and share >= 0.01
        assert is_worse == (self.is_better(component["ablated"]) and is_certain), found[0]
        assert (found["without"] is not None) == ("without" in component), found[0]
        assert (found["only"] is not None) == ("without_kind" in component), found[0]
        for text, value in zip((found["none"], found["only"]), component.get("without_kind", [])):
            percent(text, self.share(value))
        if found["without"]:
            percent(found["without"], self.share(component["without"]))
            percent(found["instead"], self.fields["faithfulness"])
            change = component.get("without_interval")
            self.shares(found["of_without"], change and sorted(self.share(self.full + bound) for bound in change))
            gain = abs(self.full - self.fields["baseline"])
            is_needed = abs(component["without"] - self.full) > 0.05 * gain
            if "without_kind" in component:
                none, only = component["without_kind"]
                is_needed = is_needed or abs(only - none) >= 0.01 * gain
            assert cut_or(self.fields, is_needed), f"not minimal: {found[0]}"
        if head is not None:
            kinds = component["kinds"]
            assert found["behaviour"].count("attends") + found["behaviour"].count("copies") == len(kinds), found[0]
            assert all(KINDS[kind] in found["behaviour"] or cross for kind in kinds), found[0]
            assert kinds or found["behaviour"] == "is not of a known kind", found[0]
            self.evidence(found["behaviour"], component)
        self.where(found)

    def evidence(self, behaviour, component):
        """Checks the score, interval, number of queries and chance of each kind."""
        scores = component.get("kind_scores", [])
        assert [it["kind"] for it in scores] == [kind for kind in component["kinds"] if kind != "copying"], behaviour
        named = re.findall(EVIDENCE, behaviour)
        assert len(named) == len(scores), behaviour
        for (score, interval, low, high, queries, chance), it in zip(named, scores):
            close(score, it["score"])
            assert bool(chance) == (it["kind"] != "positional"), behaviour
            if chance:
                close(chance, it["chance"])
            assert number(queries) == it["queries"] and bool(interval) == ("interval" in it), behaviour
            for text, bound in zip((low, high), it.get("interval", [])):
                close(text, bound)

    def where(self, found):
        """Checks the targets over which an effect is averaged."""
        if found["position"]:
            assert self.fields["sequences"] == 1 and self.fields["positions"] == [int(found["position"])], found[0]
        else:
            assert number(found["targets"]) == self.fields["targets"], found[0]

    def interval(self, found, item):
        assert (found["interval"] is not None) == ("interval" in item), found[0]
        for text, bound in zip((found["low"], found["high"]), item.get("interval", [])):
            close(text, bound)

    def attended(self, found):
        [component] = [it for it in self.fields["components"]
                       if (it["layer"], it.get("head"), it.get("cross", False)) == (int(found[1]), int(found[2]), False)]
        assert int(found[3]) == len(self.fields["inputs"]) - 1 == self.fields["positions"][-1], found[0]
        named = re.findall(rf"\(position (\d+), weight ({NUMBER})\)", found[0])
        assert len(named) == len(component["attends"]) > 0, found[0]
        for (position, weight), it in zip(named, component["attends"]):
            assert int(position) == it["position"], found[0]
            close(weight, it["weight"])

    def edge(self, found):
        ends = []
        for group in ("to", "from"):
            layer, head = re.findall(r"\d+", found[group])[0], re.findall(r"head (\d+)", found[group])
            ends.append(([int(layer), int(head[0]) if head else None], "cross-attention" in found[group]))
        (to, to_cross), (start, from_cross) = ends
        of_ends = lambda it: (it["to"], it["from"], it.get("to_cross", False), it.get("from_cross", False)) == (
            to, start, to_cross, from_cross)
        [edge] = [it for it in self.fields["edges"] if of_ends(it) and INPUTS.get(it.get("input")) == found["input"]]
        self.seen.append(("edge", *map(str, (to, start, to_cross, from_cross, found["input"]))))
        assert found["verb"] == VERBS[self.fields["ablation"]], found["verb"]
        self.effect(found["effect"], edge["ablated"])
        self.where(found)
        self.interval(found, edge)
        assert abs(edge["ablated"] - self.full) >= 0.02 * abs(self.full - self.fields["baseline"]) * (1 - 1e-9), found[0]
        assert (found["composition"] is not None) == ("composition" in edge), found[0]
        if found["composition"]:
            close(found["composition"], edge["composition"])
            close(found["random"], edge["random"])

    def patching(self, found):
        patching = self.fields["patching"]
        close(found[2], patching["clean"])
        close(found[3], patching["corrupted"])
        assert (found[1] == "lowers") == (patching["corrupted"] < patching["clean"])
        assert number(found[4]) == patching["pairs"]
        layer = int(found[6])
        head = re.fullmatch(r"head (\d+)", found[5])
        share = patching["heads"][layer][int(head[1])] if head else patching["feed_forward"][layer]
        percent(found[7], share)
        kind = "head_intervals" if head else "feed_forward_intervals"
        assert (found[8] is not None) == (kind in patching) == (patching["pairs"] > 1), found[0]
        if found[8]:
            of_layer = patching[kind][layer]
            for text, bound in zip((found[9], found[10]), of_layer[int(head[1])] if head else of_layer):
                percent(text, bound)
        assert share == max(sum(patching["heads"], patching["feed_forward"])), found[0]

    def chance(self, found):
        effects = self.fields["random_effects"]
        assert found["name"] == self.name
        assert (number(found["count"]), number(found["targets"])) == (effects["components"], effects["targets"])
        close(found["largest"], effects["largest"])

    def random(self, kind, digits):
        def check(found):
            effect = self.fields["random_effects"][kind]
            assert number(found["count"]) == effect["tested"], found[0]
            close(found["largest"], effect["largest"], digits)
        return check

    def whole_model(self, found):
        fields = self.fields
        total = fields["cross_heads"] + sum(len(layer) + 1 for layer in fields["weights"])
        unconfirmed = fields.get("cut", {}).get("unconfirmed", 0)
        assert len(fields["components"]) + unconfirmed == total and found["name"] == self.name, found[0]
        assert (found["unknown"] is not None) == ("components" in fields.get("cut", {}).get("stages", [])), found[0]
        assert [number(found["targets"]), number(found["sequences"] or "1")] == [fields["targets"], fields["sequences"]]
        close(found["model"], fields["model"])
        close(found["value"], fields["baseline"])

    def small_effects(self, found):
        random, fields = self.fields["random_effects"], self.fields
        kinds = [("component", fields["components"], random["largest"]),
                 ("connection", fields["edges"], random.get("connections", {}).get("largest", 0)),
                 ("path", fields["direct"], random.get("direct", {}).get("largest", 0))]
        expected = []
        for name, items, largest in kinds:
            small = sum(abs(it["ablated"] - self.full) <= largest for it in items)
            expected += [(small, len(items), name)] if small else []
        named = re.findall(rf"({NUMBER}) of the ({NUMBER}) (component|connection|path)s?", found[1])
        assert [(number(small), number(count), name) for small, count, name in named] == expected, found[0]

    def random_circuit(self, found):
        assert found["name"] == self.name and number(found["count"]) == len(self.fields["components"]), found[0]
        assert found["one"] == found["all"] == PARTICIPLES[self.fields["ablation"]], found[0]
        for text, value in zip((found["model"], found["circuit"], found["ablated"]), self.fields["random_effects"]["circuit"]):
            close(text, value)

    def random_copies(self, found):
        for text, value in zip((found[1], found[2]), self.fields["random_effects"]["copies"]):
            close(text, value)

    def scores(self):
        """Returns the scores of kinds with their heads, as sentences name them."""
        for it in self.fields["components"]:
            cross = "cross-attention " if it.get("cross") else ""
            for score in it.get("kind_scores", []):
                kind = score["kind"].replace("_", "-")
                yield cross + kind, f"{kind} of layer {it['layer']} {cross}head {it['head']}", score

    def random_scores(self, found):
        """Checks the largest scores of random weights: of a repetition, and of the kinds of the circuit."""
        named = [item.rsplit(" ", 1) for item in found[1].split(", ")]
        known = {name.replace("_", "-"): value for name, value in self.fields["random_effects"]["kinds"]}
        for name, _, score in self.scores():
            assert name not in known or known[name] == score["random"], found[0]
            known[name] = score["random"]
        assert sorted(name for name, _ in named) == sorted(known), found[0]
        for name, text in named:
            close(text, known[name])

    def by_chance(self, found):
        lowest = lambda score: score.get("interval", [score["score"]])[0]
        expected = [head for _, head, score in self.scores() if score["random"] >= lowest(score)]
        copying = dict(self.fields["random_effects"]["kinds"]).get("copying")
        for it in self.fields["components"]:
            if "copying" in it["kinds"] and copying >= self.fields["weights"][it["layer"]][it["head"]]["copying"]:
                expected.append(f"copying of layer {it['layer']} head {it['head']}")
        assert sorted(found[1].split(", ")) == sorted(expected), found[0]

    def tested(self, found):
        connections = self.fields["connections"]
        assert (number(found[1]), number(found[2])) == (connections["possible"], connections["patched"])

    def proof(self, found):
        sets = self.fields["smaller_sets"]
        assert number(found[1] or "1") == sets, found[0]

    def greedy(self, _):
        assert "smaller_sets" not in self.fields

    def ended(self, found):
        assert found[1] == "; ".join(CUTS[stage] for stage in self.fields["cut"]["stages"]), found[0]

    def nothing(self, _):
        assert self.fields.get("no_circuit") and not self.fields["components"] and not self.fields["edges"]

    def selection(self, found):
        positions = []
        for run in found[1].split(", "):
            ends = [int(end) for end in run.split(" to ")]
            positions += range(ends[0], ends[-1] + 1)
        assert positions == self.fields["positions"], found[0]

    def copies(self, found):
        repeated = self.fields["repeated"]
        assert int(found[1]) == repeated["length"]
        close(found[2], repeated["first_copy"])
        close(found[5], repeated["second_copy"])
        for texts, interval in zip(((found[3], found[4]), (found[6], found[7])), repeated["copy_intervals"]):
            for text, bound in zip(texts, interval):
                close(text, bound)

    def kinds(self, found):
        heads = [it for it in self.fields["repeated"]["heads"] if it["kind"].replace("_", "-") == found[1]]
        named = re.findall(rf"(\d+)\.(\d+) \(({NUMBER}), ({NUMBER}) to ({NUMBER})\)", found[3] or "")
        assert len(named) == len(heads) and (found[3] is not None) == bool(heads), found[0]
        for (layer, head, weight, low, high), it in zip(named, heads):
            assert (int(layer), int(head)) == (it["layer"], it["head"])
            assert number(found[2]) == it["queries"], found[0]
            for text, value in zip((weight, low, high), (it["weight"], *it["interval"])):
                close(text, value)

    def check(self):
        for sentence in self.fields["sentences"]:
            matching = [(check, found) for pattern, check in FORMS if (found := re.fullmatch(pattern, sentence))]
            assert len(matching) == 1, f"{len(matching)} forms match: {sentence}"
            check, found = matching[0]
            try:
                check(self, found)
            except (AssertionError, ValueError, KeyError) as error:
                raise AssertionError(f"{sentence}\n  {type(error).__name__}: {error}") from error
        assert len(set(self.seen)) == len(self.seen), "a sentence is repeated"
        assert len(self.seen) == len(self.fields["components"]) + len(self.fields["edges"]), "a sentence is missing"


def cut_or(fields, condition):
    """Ignores a condition of complete searches if the search ended early."""
    return "cut" in fields or condition


SHARES = rf" \(95 % interval: {NUMBER} % to {NUMBER} %\)"
INTERVAL = rf"(?P<interval> \(95 % interval of the change: (?P<low>{NUMBER}) to (?P<high>{NUMBER})\))?"
WHERE = rf" (?:over (?P<targets>{NUMBER}) targets?|at position (?P<position>\d+))"
EVIDENCE = (rf"(?:weight|distance from uniform weights) ({NUMBER})(, 95 % interval ({NUMBER}) to ({NUMBER}),)? over ({NUMBER}) "
            rf"(?:query|queries)(?:, chance ({NUMBER}))?")
AFTER = (rf"(?P<verb>\S+) {{}}at all positions (?P<effect>(?:raises|lowers|leaves) the [^;,(]*?)" + WHERE + INTERVAL +
         rf"(?P<worse>, so it makes the model worse on (?:these sequences|this sequence))?"
         rf"(?:; \S+ only its path to the output (?P<direct>(?:raises|lowers|leaves) [^;(]*?))?"
         rf"(?:; without it, the circuit recovers (?P<without>{NUMBER} %)(?P<of_without>{SHARES})? instead of (?P<instead>{NUMBER} %))?"
         rf"(?:; with the other induction heads ablated, it recovers (?P<none>{NUMBER} %) without this one and "
         rf"(?P<only>{NUMBER} %) with it)?\.")
END = r"(?:layer \d+ (?:cross-attention )?head \d+|the feed-forward layer of layer \d+)"
ABLATING = "(?:mean-ablating|resampling)"
RANDOM = (rf"With random weights, {{}} any one of (?P<count>{NUMBER}) {{}} changes the {{}} by at most "
          rf"(?P<largest>{NUMBER})\.")
FORMS = [
    (rf"(?P<count>{NUMBER}) of (?P<total>{NUMBER}) components? \((?P<heads>{NUMBER}) heads?, (?P<layers>{NUMBER}) "
     rf"feed-forward layers?(?:, (?P<unknown>{NUMBER}) not ablated alone)?\) recover (?P<recovered>{NUMBER} %)(?P<of_circuit>{SHARES})? of the gain "
     rf"over (?P<baseline>[^:]*) on (?P<targets>{NUMBER}) targets?(?: of (?P<sequences>{NUMBER}) sequences)?: (?P<name>.*?) (?P<circuit>{NUMBER}) with all others (?P<ablation>[^,]*), "
     rf"(?P<model>{NUMBER}) for the full model, (?P<value>{NUMBER}) for the baseline; with these ablated, the others "
     rf"recover (?P<others>{NUMBER} %)(?P<of_others>{SHARES})?, so the circuit is "
     rf"(?:complete|(?P<not>not) complete: others do part of the task too)\.", Explanation.circuit),
    (rf"Layer (?P<layer>\d+) (?:cross-attention )?head (?P<head>\d+) (?P<behaviour>.*?); " + AFTER.format("it "),
     Explanation.component),
    (AFTER.format(r"the feed-forward layer of layer (?P<layer>\d+) (?P<head>(?!))?"), Explanation.component),
    (rf"(?P<to>{END.replace('layer ', '[Ll]ayer ', 1).replace('|the', '|[Tt]he')}) reads the output of (?P<from>{END})"
     rf"(?: through its (?P<input>queries|keys|values)(?: \([QKV]-composition (?P<composition>{NUMBER}), random weights "
     rf"(?P<random>{NUMBER}) on average\))?)?; (?P<verb>\S+) this path at all positions (?P<effect>[^(]*?){WHERE}{INTERVAL}\.",
     Explanation.edge),
    (r"Layer (\d+) head (\d+) attends from .* \(position (\d+)\) to .* \(position \d+, weight [^)]*\)\.",
     Explanation.attended),
    (rf"Exchanging the tokens that determine the answer (lowers|raises) the logit difference from ({NUMBER}) to "
     rf"({NUMBER}) \(({NUMBER}) pairs?\); restoring (.*) of layer (\d+) recovers ({NUMBER} %) of the change"
     rf"( \(95 % interval over the pairs: ({NUMBER} %) to ({NUMBER} %)\))?\.", Explanation.patching),
    (RANDOM.format(ABLATING, "connections?", "(?:.*)"), lambda it, found: it.random("connections", 2)(found)),
    (RANDOM.format(f"{ABLATING} the path to the output of", "components?", "(?:.*)"),
     lambda it, found: it.random("direct", 2)(found)),
    (rf"With random weights, the largest mean contribution of (?P<count>{NUMBER}) components? to the logits is "
     rf"(?P<largest>{NUMBER})\.", lambda it, found: it.random("attribution", 2)(found)),
    (RANDOM.format(ABLATING, "neurons?", "(?:.*)"), lambda it, found: it.random("neurons", 4)(found)),
    (RANDOM.format("restoring", f"components? in {NUMBER} pairs?", "logit difference"),
     lambda it, found: it.random("patching", 2)(found)),
    (r"With random weights, the largest scores of heads are: (.*)\.", Explanation.random_scores),
    (rf"With random weights, the (?P<name>.*) is (?P<model>{NUMBER}) for the model, (?P<circuit>{NUMBER}) with all but the "
     rf"same (?P<count>{NUMBER}) components? (?P<one>[^,]*), and (?P<ablated>{NUMBER}) with all (?P<all>[^,]*)\.",
     Explanation.random_circuit),
    (rf"With random weights, the loss is ({NUMBER}) nats on the first copy and ({NUMBER}) nats on the second\.",
     Explanation.random_copies),
    (r"The effects of (.*) are no larger than those with random weights, so they may be due to chance\.",
     Explanation.small_effects),
    (rf"(?:No component|(?P<unknown>It is unknown which components)) of the model can be omitted at this tolerance for the gain "
     rf"over [^:]* on (?P<targets>{NUMBER}) targets?(?: of (?P<sequences>{NUMBER}) sequences)?: (?P<name>.*?) "
     rf"(?P<model>{NUMBER}) for the full model, (?P<value>{NUMBER}) for the baseline\.", Explanation.whole_model),
    (r"These kinds are no evidence of learning, because a head with random weights scores as high: (.*)\.",
     Explanation.by_chance),
    (rf"With random weights, {ABLATING} any one of the (?P<count>{NUMBER}) components?(?: with the largest estimates, of {NUMBER},)? changes the (?P<name>.*) by at most "
     rf"(?P<largest>{NUMBER}) on the same (?P<targets>{NUMBER}) targets?\.", Explanation.chance),
    (rf"Of ({NUMBER}) possible connections? between these components, ({NUMBER}) with the largest estimated effects were "
     r"ablated\.", Explanation.tested),
    (rf"No smaller circuit exists at this tolerance: (?:the only smaller set|all ({NUMBER}) smaller sets) of components "
     r"(?:was|were) evaluated\.", Explanation.proof),
    (r"The search was greedy, so a smaller circuit may exist\.", Explanation.greedy),
    (r"The search ended early, so (.*)\.", Explanation.ended),
    (r"(?:Nothing to explain|Not explained): .*\.", Explanation.nothing),
    (r"The loss is that of the next tokens after the positions ([\d, to]+), where the model is better than the unigram "
     r"baseline\.", Explanation.selection),
    (rf"Random tokens, repeated after (\d+): the loss is ({NUMBER}) nats \(95 % interval: ({NUMBER}) to ({NUMBER})\) on the "
     rf"first copy and ({NUMBER}) nats \(95 % interval: ({NUMBER}) to ({NUMBER})\) on the second\.", Explanation.copies),
    (rf"Heads of the kind ([a-z-]+)(?:: none|, with their attention weight on average over ({NUMBER}) queries and its 95 % "
     r"interval over the sequences: (.*))\.", Explanation.kinds),
    (r"Question: .*", lambda *_: None),
]


def of_run(program, run):
    """Explains a run, and checks that printed text, JSON and file agree."""
    explain = [program, "explain", run]
    fields = json.loads(subprocess.run([*explain, "--json"], check=True, capture_output=True, text=True).stdout)
    printed = subprocess.run(explain, check=True, capture_output=True, text=True).stdout.splitlines()
    sentences = fields["sentences"]
    assert printed[:len(sentences)] == sentences, f"the printed text differs: {printed} {sentences}"
    with open(os.path.join(run, "circuit.json")) as file:
        assert json.load(file)["sentences"] == sentences, "circuit.json differs"
    return fields


def main(arguments):
    program, failed = "target/release/causal-attention", 0
    if arguments[:1] == ["--program"]:
        program, arguments = arguments[1], arguments[2:]
    for path in arguments:
        try:
            if os.path.isdir(path):
                fields = of_run(program, path)
            else:
                with open(path) as file:
                    fields = json.load(file)
            Explanation(fields).check()
            circuit = f"{len(fields['components'])} components" if fields["components"] else "no circuit"
            print(f"{path}: {len(fields['sentences'])} sentences, {circuit}", flush=True)
        except (AssertionError, subprocess.CalledProcessError) as error:
            failed += 1
            print(f"{path}: {error}{getattr(error, 'stderr', None) or ''}", flush=True)
    return f"{failed} of {len(arguments)} failed" if failed else 0


sys.exit(main(sys.argv[1:]))

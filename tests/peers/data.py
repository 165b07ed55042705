"""Compares how the program reads real files with pandas, NumPy and the tokenizers library: the size of both splits, the
vocabulary, the groups, the first sequences token by token, and the unigram and bigram entropy of the training set, which
depend on all of its tokens and on their order.

    python tests/peers/data.py PROGRAM FOLDER

PROGRAM is the program, and FOLDER holds the files below; a missing file is skipped with a notice.

| file | source |
|---|---|
| events_receipt.csv | github.com/process-intelligence-solutions/pm4py: tests/input_data/receipt.csv |
| events_running_example.csv | github.com/process-intelligence-solutions/pm4py: tests/input_data/running-example.csv |
| ratings.inter | github.com/RUCAIBox/RecBole: dataset/ml-100k/ml-100k.inter |
| clicks.csv | github.com/CRIPAC-DIG/SR-GNN: datasets/sample_train-item-views.csv |
| names.txt | github.com/karpathy/makemore: names.txt |
| sunspots.csv | PyPI statsmodels: statsmodels/datasets/sunspots/sunspots.csv |
| gsm8k.jsonl | github.com/openai/grade-school-math: grade_school_math/data/test.jsonl |
| multi30k.de.gz | github.com/multi30k/dataset: data/task1/raw/val.de.gz |
| ids_labels.jsonl | any objects with `input_ids` and `labels`, in which -100 marks targets that do not count |
| train.bin | written by data/shakespeare/prepare.py of github.com/karpathy/nanoGPT |
| tokenizer.json | the tokenizer of GPT-2, with which multi30k.de.gz is encoded too |

Exit code 77: a library is not installed.
"""

import gzip
import json
import math
import subprocess
import sys
from collections import Counter
from pathlib import Path

try:
    import numpy
    import pandas
    from tokenizers import Tokenizer
except ImportError as missing:
    print(missing)
    sys.exit(77)

program, folder = sys.argv[1], Path(sys.argv[2])

END, SEPARATOR = "<end>", "<sep>"


def described(path, sets):
    """Returns what `data --json` prints. The last sequences are held out, so that pandas can do the same."""
    command = [program, "data", "--json", "--set", f"data.path={path}"]
    for key in sets:
        command += ["--set", key]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, (path, run.stderr)
    return json.loads(run.stdout)


def divided(items):
    """Returns the first nine tenths, and the rest."""
    train = int(len(items) * 0.9 + 1e-9)
    return items[:train], items[train:]


def entropies(sequences, counted):
    """Returns H(x) and H(x_t | x_t-1) over the counted targets, in nats."""
    pairs = [
        pair
        for sequence, mask in zip(sequences, counted)
        for pair, is_counted in zip(zip(sequence, sequence[1:]), mask[1:])
        if is_counted
    ]
    targets, inputs = Counter(pair[1] for pair in pairs), Counter(pair[0] for pair in pairs)
    unigram = math.fsum(count * math.log(len(pairs) / count) for count in targets.values())
    bigram = math.fsum(count * math.log(inputs[pair[0]] / count) for pair, count in Counter(pairs).items())
    return unigram / len(pairs), bigram / len(pairs)


def rows(sequences, vocab, groups=None, counted=None, labels=str):
    """The expected description of sequences. `counted` marks the tokens that count as targets; None: all."""
    counted = counted or [[True] * len(sequence) for sequence in sequences]
    (train, valid), (train_counted, valid_counted) = divided(sequences), divided(counted)
    targets = [sum(sum(mask[1:]) for mask in masks) for masks in (train_counted, valid_counted)]
    samples = [[labels(token) for token in sequence] for sequence in train[:3]] if labels else None
    return {
        "samples": [len(train), len(valid)],
        "targets": targets,
        "vocab": vocab,
        "groups": groups,
        "first": samples,
        "entropies": entropies(train, train_counted),
    }


def stream(tokens, vocab, length):
    """The expected description of one sequence that is cut into windows, which cover all tokens but the first."""
    train, valid = divided(tokens)
    return {
        "samples": [-(-(len(part) - 1) // length) for part in (train, valid)],
        "targets": [len(part) - 1 for part in (train, valid)],
        "vocab": vocab,
        "groups": None,
        "first": None,
        "entropies": entropies([train], [[True] * len(train)]),
    }


def found(data):
    """The same of what the program prints."""
    return {
        "samples": [data[split]["samples"] for split in ("train", "valid")],
        "targets": [data[split]["targets"] for split in ("train", "valid")],
        "vocab": data["vocab"],
        "groups": data.get("table", {}).get("groups"),
        "first": [sample["tokens"] for sample in data["samples"]],
        "entropies": (data["unigram_entropy"], data["bigram_entropy"]),
    }


def agree(expected, other):
    if isinstance(expected, tuple):
        return all(math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12) for a, b in zip(expected, other))
    return expected is None or expected == other


def events(path, case, time, activity, separator=","):
    """Each case is a sequence that ends with an end token, unless all have the same length."""
    table = pandas.read_csv(path, sep=separator)
    if table[time].dtype == object:
        table[time] = pandas.to_datetime(table[time], utc=True, format="ISO8601")
    # Cases follow one another by their first rows; rows of equal times keep their order.
    cases = [group.sort_values(time, kind="stable")[activity].tolist() for _, group in table.groupby(case, sort=False)]
    end = len(set(map(len, cases))) > 1
    values = table[activity]
    vocab = values.nunique()
    if pandas.api.types.is_integer_dtype(values) and values.max() + 1 <= 4 * vocab:
        vocab = int(values.max()) + 1
    sets = [f"data.group_by={case}", f"data.order_by={time}", f"data.column={activity}", "data.source=table"]
    sequences = [events + [END] * end for events in cases]
    return sets + ["data.split=tail"], rows(sequences, vocab + end, len(cases))


def names(path):
    lines = path.read_text().splitlines()
    sets = ["data.source=table", "data.tokens=characters", "data.split=tail"]
    # A text begins with the token that ends texts.
    return sets, rows([[END, *line, END] for line in lines], len(set("".join(lines))) + 1)


def sunspots(path):
    numbers = pandas.read_csv(path)["SUNACTIVITY"]
    train = numpy.sort(divided(numbers)[0])
    at = numpy.array([len(train) * bin // 8 for bin in range(1, 8)])
    # An edge is the middle between a number and the next smaller one, so no number is on it.
    below = train[numpy.searchsorted(train, train[at]) - 1]
    edges = numpy.unique((below + train[at]) / 2)
    bins = numpy.searchsorted(edges, numbers, side="right").tolist()
    sets = ["data.column=SUNACTIVITY", "data.bins=8", "data.length=16"]
    return sets, stream(bins, len(edges) + 1, 16)


def pairs(path):
    table = pandas.read_json(path, lines=True)
    characters = set("".join(table["question"]) + "".join(table["answer"]))
    sequences, counted = [], []
    for question, answer in zip(table["question"], table["answer"]):
        sequences.append([END, *question, SEPARATOR, *answer, END])
        counted.append([False] * (len(question) + 2) + [True] * (len(answer) + 1))
    sets = ["data.source_column=question", "data.target_column=answer", "data.split=tail"]
    shown = {" ": "␣", "\n": "\\n", "\t": "\\t"}
    labels = lambda character: shown.get(character, character)
    return sets, rows(sequences, len(characters) + 2, counted=counted, labels=labels)


def text(path):
    characters = gzip.open(path, "rt", encoding="utf-8", newline="").read()
    return ["data.length=64"], stream(characters, len(set(characters)), 64)


def tokens(path):
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    ids = tokenizer.encode(gzip.open(path, "rt", encoding="utf-8", newline="").read(), add_special_tokens=False).ids
    sets = [f"data.tokens={folder / 'tokenizer.json'}", "data.length=32"]
    return sets, stream(ids, tokenizer.get_vocab_size(), 32)


def labels(path):
    table = pandas.read_json(path, lines=True)
    # Rows without a target that counts are left out.
    table = table[[any(label != -100 for label in row[1:]) for row in table["labels"]]]
    largest = max(id for row in table["input_ids"] for id in row)
    counted = [[label != -100 for label in row] for row in table["labels"]]
    sets = ["data.column=input_ids", "data.values=integers", "data.split=tail"]
    return sets, rows(table["input_ids"].tolist(), largest + 1, counted=counted)


def array(path):
    ids = numpy.fromfile(path, dtype=numpy.uint16).tolist()
    return ["data.length=64"], stream(ids, max(ids) + 1, 64)


failed = compared = 0
for name, expected_of in [
    ("events_receipt.csv", lambda path: events(path, "case:concept:name", "time:timestamp", "concept:name")),
    ("events_running_example.csv", lambda path: events(path, "case:concept:name", "time:timestamp", "concept:name")),
    ("ratings.inter", lambda path: events(path, "user_id:token", "timestamp:float", "item_id:token", "\t")),
    ("clicks.csv", lambda path: events(path, "session_id", "timeframe", "item_id", ";")),
    ("names.txt", names),
    ("sunspots.csv", sunspots),
    ("gsm8k.jsonl", pairs),
    ("multi30k.de.gz", text),
    ("multi30k.de.gz", tokens),
    ("ids_labels.jsonl", labels),
    ("train.bin", array),
]:
    path = folder / name
    if not path.exists():
        print(f"notice: skipping {name}, because it is missing")
        continue
    sets, expected = expected_of(path)
    printed = found(described(path, sets))
    compared += 1
    wrong = [key for key, value in expected.items() if not agree(value, printed[key])]
    failed += bool(wrong)
    for key in wrong:
        print(f"{name}: {key}: expected {expected[key]}, found {printed[key]}")
print(f"{compared - failed} of {compared} files agree")
sys.exit(bool(failed or not compared))

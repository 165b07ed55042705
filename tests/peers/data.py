"""Compares how the program reads real files with pandas, NumPy and the tokenizers library.

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
import subprocess
import sys
from pathlib import Path

try:
    import numpy
    import pandas
    from tokenizers import Tokenizer
except ImportError as missing:
    print(missing)
    sys.exit(77)

program, folder = sys.argv[1], Path(sys.argv[2])


def described(path, sets):
    """Returns the sequences, counted targets, tokens of the vocabulary, and groups, as `data --json` prints them."""
    command = [program, "data", "--json", "--set", f"data.path={path}"]
    for key in sets:
        command += ["--set", key]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, (path, run.stderr)
    data = json.loads(run.stdout)
    samples, targets = (data["train"][key] + data["valid"][key] for key in ["samples", "targets"])
    return samples, targets, data["vocab"], data.get("table", {}).get("groups")


def events(path, case, time, activity, separator=","):
    """Each case is a sequence that ends with an end token, unless all have the same length."""
    table = pandas.read_csv(path, sep=separator)
    lengths = table.groupby(case)[activity].size()
    end = int(lengths.nunique() > 1)
    values = table[activity]
    vocab = values.nunique()
    if pandas.api.types.is_integer_dtype(values) and values.max() + 1 <= 4 * vocab:
        vocab = int(values.max()) + 1
    targets = len(table) - len(lengths) * (1 - end)
    sets = [f"data.group_by={case}", f"data.order_by={time}", f"data.column={activity}", "data.source=table"]
    return sets, (len(lengths), targets, vocab + end, len(lengths))


def names(path):
    lines = path.read_text().splitlines()
    sets = ["data.source=table", "data.tokens=characters"]
    return sets, (len(lines), sum(map(len, lines)) + len(lines), len(set("".join(lines))) + 1, None)


def sunspots(path):
    numbers = pandas.read_csv(path)["SUNACTIVITY"]
    # Windows of 16 targets cover each split but for its first number.
    train = int(len(numbers) * 0.9)
    samples = sum(-(-(part - 1) // 16) for part in [train, len(numbers) - train])
    quantiles = numbers[:train].quantile([bin / 8 for bin in range(1, 8)]).nunique()
    return ["data.column=SUNACTIVITY", "data.bins=8", "data.length=16"], (samples, len(numbers) - 2, quantiles + 1, None)


def pairs(path):
    table = pandas.read_json(path, lines=True)
    characters = set("".join(table["question"]) + "".join(table["answer"]))
    targets = int(table["answer"].str.len().sum()) + len(table)
    sets = ["data.source_column=question", "data.target_column=answer"]
    return sets, (len(table), targets, len(characters) + 2, None)


def text(path):
    characters = gzip.open(path, "rt", encoding="utf-8", newline="").read()
    return ["data.length=64"], (None, len(characters) - 2, len(set(characters)), None)


def tokens(path):
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    ids = tokenizer.encode(gzip.open(path, "rt", encoding="utf-8", newline="").read(), add_special_tokens=False).ids
    return [f"data.tokens={folder / 'tokenizer.json'}"], (None, len(ids) - 2, tokenizer.get_vocab_size(), None)


def labels(path):
    table = pandas.read_json(path, lines=True)
    counted = [sum(label != -100 for label in row[1:]) for row in table["labels"]]
    largest = max(id for row in table["input_ids"] for id in row)
    sets = ["data.column=input_ids", "data.values=integers"]
    # Rows without a target that counts are left out.
    return sets, (sum(count > 0 for count in counted), sum(counted), largest + 1, None)


def array(path):
    ids = numpy.fromfile(path, dtype=numpy.uint16)
    return [], (None, len(ids) - 2, int(ids.max()) + 1, None)


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
    found = described(path, sets)
    compared += 1
    if any(value is not None and value != other for value, other in zip(expected, found)):
        failed += 1
        print(f"{name}: expected {expected}, found {found}")
print(f"{compared - failed} of {compared} files agree")
sys.exit(bool(failed or not compared))

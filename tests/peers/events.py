"""Reads the event file of a run with TensorBoard, and compares it with the run's folder.

    python tests/peers/events.py RUN EVENTS

RUN is the folder of a run, and EVENTS is the folder of its event file.

Exit code 77: TensorBoard is not installed.
"""

import csv
import math
import sys
from pathlib import Path

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError as missing:
    print(missing)
    sys.exit(77)

run, events = map(Path, sys.argv[1:])
accumulator = EventAccumulator(str(events), size_guidance={"scalars": 0, "images": 0, "tensors": 0},
                               purge_orphaned_data=False)
accumulator.Reload()
tags = accumulator.Tags()

with open(run / "metrics.csv", newline="") as file:
    rows = list(csv.DictReader(file))
for tag, split, column in [
    ("loss/train", "train", "loss"),
    ("loss/valid", "valid", "loss"),
    ("accuracy/train", "train", "accuracy"),
    ("accuracy/valid", "valid", "accuracy"),
    ("learning_rate", "train", "learning_rate"),
    ("gradient_norm", "train", "gradient_norm"),
]:
    expected = [(int(row["step"]), float(row[column])) for row in rows if row["split"] == split]
    found = [(event.step, event.value) for event in accumulator.Scalars(tag)]
    assert [step for step, _ in found] == [step for step, _ in expected], (tag, found, expected)
    for (step, value), (_, logged) in zip(found, expected):
        assert math.isclose(value, logged, rel_tol=1e-6), (tag, step, value, logged)
assert all(event.value > 0 for event in accumulator.Scalars("tokens_per_second"))
times = [event.wall_time for event in accumulator.Scalars("loss/train")]
assert times == sorted(times) and times[0] > 1e9, times

pictures = sorted(run.glob("plots/*.png"))
assert tags["images"] == [f"plots/{path.stem}" for path in pictures] and pictures, tags["images"]
for path in pictures:
    (image,) = accumulator.Images(f"plots/{path.stem}")
    data = path.read_bytes()
    assert image.encoded_image_string == data
    size = [int.from_bytes(data[at : at + 4], "big") for at in (16, 20)]
    assert [image.width, image.height] == size and size[0] > 100, size

(config,) = accumulator.Tensors("config")
lines = config.tensor_proto.string_val[0].decode().splitlines()
assert [line[4:] for line in lines] == (run / "config.toml").read_text().splitlines()
assert accumulator.SummaryMetadata("config").plugin_data.plugin_name == "text"

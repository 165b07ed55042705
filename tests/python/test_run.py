"""The module reads a run folder as plain Python data."""

import csv
import html
import re
import sys

import numpy
import pytest

import causal_attention
from causal_attention import RunError


def test_config_has_every_key(folder):
    config = causal_attention.run("small").config
    assert {"run", "data", "model", "training", "analysis"} <= config.keys()
    assert config["training"]["steps"] == causal_attention.run("small").summary["steps"]


def test_runs_are_found_by_name(folder):
    (folder.parent / "runs").mkdir()
    folder.rename(folder.parent / "runs" / "small")
    named = causal_attention.run("small")
    assert named.path.parts == ("runs", "small")
    assert repr(named) == f"causal_attention.run({str(named.path)!r})"


def test_metrics_are_numbers(folder):
    run = causal_attention.run(folder)
    with open(folder / "metrics.csv", newline="") as file:
        written = list(csv.DictReader(file))
    assert len(run.metrics) == len(written) > 2
    for row, cells in zip(run.metrics, written, strict=True):
        assert list(row) == list(cells)
        for column, value in row.items():
            assert ("" if value is None else value) == (type(value)(cells[column]) if cells[column] else "")
    assert {type(row["step"]) for row in run.metrics} == {int}
    valid = [row for row in run.metrics if row["split"] == "valid"]
    assert all(row["gradient_norm"] is None for row in valid)
    assert min(row["loss"] for row in valid) == pytest.approx(run.summary["best_valid_loss"])


def test_metrics_become_a_frame(folder):
    run = causal_attention.run(folder)
    frame = run.metrics.frame()
    assert list(frame.columns) == list(run.metrics[0])
    assert frame["loss"].tolist() == [row["loss"] for row in run.metrics]
    assert frame["step"].dtype.kind == "i"
    assert frame["gradient_norm"].dtype.kind == "f"


def test_weights_are_arrays(folder):
    run = causal_attention.run(folder)
    assert all(isinstance(weight, numpy.ndarray) for weight in run.weights.values())
    assert sum(weight.size for weight in run.weights.values()) == run.summary["parameters"]
    d_model = run.config["model"]["d_model"]
    assert run.weights["blocks.0.attention.output.weight"].shape == (d_model, d_model)


def test_notebooks_show_the_page(folder):
    frame = causal_attention.run(folder)._repr_html_()
    (page,) = re.findall(r'srcdoc="([^"]*)"', frame)
    assert frame.startswith("<iframe") and frame.endswith("</iframe>")
    assert html.unescape(page) == (folder / "report.html").read_text(encoding="utf-8")


def test_a_missing_page_is_explained(folder):
    (folder / "report.html").unlink()
    shown = html.unescape(causal_attention.run("small")._repr_html_())
    assert shown == '<p>`small` lacks report.html; run `causal-attention report "small"`</p>'


def error_of(read):
    with pytest.raises(RunError) as raised:
        read()
    message = str(raised.value)
    assert "\n" not in message
    return message


def test_other_folders_are_refused(folder):
    (folder.parent / "empty").mkdir()
    assert error_of(lambda: causal_attention.run("missing")) == (
        "no such run: `missing`; give a run folder, or its name in runs/"
    )
    assert error_of(lambda: causal_attention.run("empty")) == (
        "`empty` is not a run folder, because it lacks config.toml; give the folder of a run"
    )


@pytest.mark.parametrize(
    ("name", "content", "part"),
    [
        ("config.toml", b"[run\nname = 3", "config"),
        ("config.toml", b"\xff", "config"),
        ("summary.json", b'{"loss": ', "summary"),
        ("metrics.csv", b"", "metrics"),
        ("metrics.csv", b"step,split,loss\n1,train\n", "metrics"),
        ("metrics.csv", b"step,split,loss\n1,train,much\n", "metrics"),
        ("model.safetensors", b"no tensors", "weights"),
    ],
)
def test_damaged_files_are_named(folder, name, content, part):
    (folder / name).write_bytes(content)
    message = error_of(lambda: getattr(causal_attention.run(folder), part))
    assert message.startswith(f"cannot read `{folder / name}`: ") and message.endswith("; copy the file again")


@pytest.mark.parametrize(
    ("name", "part", "remedy"),
    [
        ("summary.json", "summary", "it is written when a run ends"),
        ("metrics.csv", "metrics", "only a trained run has one"),
        ("model.safetensors", "weights", "it is written at the first validation"),
    ],
)
def test_missing_files_are_named(folder, name, part, remedy):
    (folder / name).unlink()
    run = causal_attention.run("small")
    assert error_of(lambda: getattr(run, part)) == f"`small` lacks {name}; {remedy}"


def test_missing_packages_are_named(folder, monkeypatch):
    run = causal_attention.run(folder)
    for package in ["pandas", "safetensors"]:
        monkeypatch.setitem(sys.modules, package, None)
    assert error_of(run.metrics.frame) == "a frame needs pandas; run `pip install pandas`"
    assert error_of(lambda: run.weights) == (
        "weights need safetensors and NumPy; run `pip install safetensors numpy`"
    )

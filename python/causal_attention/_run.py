"""A run folder as plain Python data."""

from __future__ import annotations

import csv
import html
import json
import tomllib
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    import numpy
    import pandas

INTEGER_COLUMNS = {"step", "epoch", "tokens"}


class RunError(Exception):
    """A run that cannot be read; the message says what is wrong, where, and what to do."""


class Metrics(list[dict[str, Any]]):
    """The rows of `metrics.csv`, one dict per row; an empty cell is None."""

    def frame(self) -> pandas.DataFrame:
        """Returns the rows as a pandas frame."""
        try:
            import pandas
        except ImportError:
            raise RunError("a frame needs pandas; run `pip install pandas`") from None
        return pandas.DataFrame(self)


class Run:
    """A run folder. Its files are read when they are first used."""

    def __init__(self, path: Path) -> None:
        #: The run folder.
        self.path = path

    @cached_property
    def config(self) -> dict[str, Any]:
        """The config with every key, as used by the run."""
        try:
            return tomllib.loads(self._text("config.toml"))
        except tomllib.TOMLDecodeError as error:
            raise self._damaged("config.toml", error) from None

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The result of the run: losses, floor, accuracy, speed and warnings."""
        try:
            return json.loads(self._text("summary.json", "it is written when a run ends"))
        except json.JSONDecodeError as error:
            raise self._damaged("summary.json", error) from None

    @cached_property
    def metrics(self) -> Metrics:
        """The logged steps and the validations, in order."""
        text = self._text("metrics.csv", "only a trained run has one")
        try:
            return Metrics(_rows(text))
        except (ValueError, csv.Error) as error:
            raise self._damaged("metrics.csv", error) from None

    @cached_property
    def weights(self) -> dict[str, numpy.ndarray]:
        """The best weights, by name, as NumPy arrays."""
        try:
            from safetensors import SafetensorError
            from safetensors.numpy import load_file
        except ImportError:
            raise RunError("weights need safetensors and NumPy; run `pip install safetensors numpy`") from None
        try:
            return load_file(self._file("model.safetensors", "it is written at the first validation"))
        except SafetensorError as error:
            raise self._damaged("model.safetensors", error) from None

    def _repr_html_(self) -> str:
        """Shows the page of the run in a notebook, as a part of the notebook."""
        try:
            page = self._text("report.html", f'run `causal-attention report "{self.path}"`')
        except RunError as error:
            return f"<p>{html.escape(str(error))}</p>"
        title = html.escape(f"The page of {self.path.name}")
        size = 'width="100%" height="900" style="border: 0"'
        return f'<iframe title="{title}" {size} srcdoc="{html.escape(page)}"></iframe>'

    def __repr__(self) -> str:
        return f"causal_attention.run({str(self.path)!r})"

    def _file(self, name: str, remedy: str = "copy the complete folder") -> Path:
        """Returns the path of a file of the run."""
        file = self.path / name
        if not file.is_file():
            raise RunError(f"`{self.path}` lacks {name}; {remedy}")
        return file

    def _text(self, name: str, remedy: str = "copy the complete folder") -> str:
        """Returns the text of a file of the run."""
        file = self._file(name, remedy)
        try:
            return file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise self._damaged(name, error) from None

    def _damaged(self, name: str, error: Exception) -> RunError:
        cause = " ".join(str(error).split())
        return RunError(f"cannot read `{self.path / name}`: {cause}; copy the file again")


def run(path: str | os.PathLike[str]) -> Run:
    """Opens a run: a run folder, or its name in `runs/`.

    Raises RunError if there is no such run.
    """
    named = Path(path)
    for folder in (named, Path("runs") / named):
        if (folder / "config.toml").is_file():
            return Run(folder)
    if named.is_dir():
        raise RunError(f"`{named}` is not a run folder, because it lacks config.toml; give the folder of a run")
    raise RunError(f"no such run: `{named}`; give a run folder, or its name in runs/")


def _rows(text: str) -> Iterator[dict[str, Any]]:
    """Reads the rows of a `metrics.csv`."""
    lines = csv.reader(text.splitlines(), strict=True)
    header = next(lines, [])
    if "step" not in header:
        raise ValueError("the header lacks `step`")
    for number, row in enumerate(lines, start=2):
        if len(row) != len(header):
            raise ValueError(f"line {number} has {len(row)} cells, not {len(header)}")
        yield {column: _value(column, cell) for column, cell in zip(header, row)}


def _value(column: str, cell: str) -> int | float | str | None:
    if column == "split":
        return cell
    if cell == "":
        return None
    return int(cell) if column in INTEGER_COLUMNS else float(cell)

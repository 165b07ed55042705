"""Fixtures of the module's tests.

    CAUSAL_ATTENTION_RUN=runs/small pytest

CAUSAL_ATTENTION_RUN is the folder of a completed run. The tests need the wheel with its extra `analysis`, nbconvert and
ipykernel.
"""

import os
import shutil
from pathlib import Path

import pytest


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A copy of the run, as `small` in the current folder."""
    source = os.environ.get("CAUSAL_ATTENTION_RUN")
    if source is None:
        pytest.fail("CAUSAL_ATTENTION_RUN is not set; set it to the folder of a completed run", pytrace=False)
    copy = tmp_path / "small"
    shutil.copytree(Path(source).resolve(), copy)
    monkeypatch.chdir(tmp_path)
    return copy

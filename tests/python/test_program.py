"""`python -m causal_attention` runs the program, and a notebook shows a run."""

import html
import json
import re
import subprocess
import sys

import causal_attention.__main__ as main


def test_the_module_runs_the_program():
    command = [sys.executable, "-m", "causal_attention"]
    version = subprocess.run([*command, "--version"], capture_output=True, text=True)
    assert re.fullmatch(r"causal-attention \d+\.\d+\.\d+.*\n", version.stdout), version
    unknown = subprocess.run([*command, "forecast"], capture_output=True, text=True)
    assert unknown.returncode == 2 and "forecast" in unknown.stderr


def test_a_missing_program_is_reported(monkeypatch, capsys):
    monkeypatch.setattr(main, "program", lambda: None)
    assert main.main() == 2
    assert capsys.readouterr().err == (
        f"error: {main.NAME} is not installed; run `pip install --force-reinstall causal-attention`\n"
    )


def test_an_executed_notebook_shows_the_page(folder):
    source = 'import causal_attention\ncausal_attention.run("small")'
    cell = {"cell_type": "code", "metadata": {}, "source": source, "outputs": [], "execution_count": None}
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    notebook = folder.parent / "run.ipynb"
    notebook.write_text(json.dumps({"nbformat": 4, "nbformat_minor": 4, "metadata": kernel, "cells": [cell]}))
    command = [sys.executable, "-m", "nbconvert", "--to", "notebook", "--execute", "--inplace", "run.ipynb"]
    subprocess.run(command, cwd=folder.parent, check=True, timeout=120)
    (executed,) = json.loads(notebook.read_text())["cells"]
    (output,) = executed["outputs"]
    (page,) = re.findall(r'srcdoc="([^"]*)"', "".join(output["data"]["text/html"]))
    assert html.unescape(page) == (folder / "report.html").read_text(encoding="utf-8")
    assert "".join(output["data"]["text/plain"]) == "causal_attention.run('small')"

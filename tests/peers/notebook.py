"""Executes the Python code of docs/report.md in a notebook, as a reader would in Jupyter.

    python tests/peers/notebook.py REPORT DOCUMENT

REPORT is the page of a run, and DOCUMENT is docs/report.md. Each block of code must display a frame with the page.

Exit code 77: Jupyter is not installed.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import ipykernel
    import nbconvert
except ImportError as missing:
    print(missing)
    sys.exit(77)

report, document = map(Path, sys.argv[1:])
blocks = re.findall(r"```python\n(.*?)```", document.read_text(), re.DOTALL)
assert blocks and all(len(block.splitlines()) == 2 for block in blocks), blocks
cells = [{"cell_type": "code", "metadata": {}, "source": block, "outputs": [], "execution_count": None} for block in blocks]
kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
notebook = {"nbformat": 4, "nbformat_minor": 4, "metadata": kernel, "cells": cells}
with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    (page,) = {path for block in blocks for path in re.findall(r'"([^"]*report.html)"', block)}
    (folder / page).parent.mkdir(parents=True)
    shutil.copy(report, folder / page)
    (folder / "run.ipynb").write_text(json.dumps(notebook))
    command = [sys.executable, "-m", "nbconvert", "--to", "notebook", "--execute", "--inplace", "run.ipynb"]
    subprocess.run(command, cwd=folder, check=True, timeout=120)
    executed = json.loads((folder / "run.ipynb").read_text())
    for block, cell in zip(blocks, executed["cells"], strict=True):
        (output,) = cell["outputs"]
        html = "".join(output["data"]["text/html"])
        (source,) = re.findall(r'src="([^"]*)"', html)
        path, _, query = source.partition("?")
        assert "<iframe" in html and (folder / path).is_file(), html
        wanted = re.search(r'panel="([^"]*)"', block)
        assert query == (f"panel={wanted[1]}" if wanted else ""), source
print(f"{len(blocks)} frames")

"""Runs the program: `python -m causal_attention train`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

NAME = "causal-attention" + (sysconfig.get_config_var("EXE") or "")


def program() -> str | None:
    """Returns the path of the program that was installed with this module."""
    user = sysconfig.get_preferred_scheme("user")
    folders = [sysconfig.get_path("scripts"), sysconfig.get_path("scripts", scheme=user)]
    # `pip install --target` puts programs next to the modules.
    folders.append(str(Path(__file__).resolve().parent.parent / "bin"))
    installed = (str(Path(folder) / NAME) for folder in folders)
    return next((path for path in installed if os.path.isfile(path)), None) or shutil.which(NAME)


def main() -> int:
    """Replaces this process by the program; waits for it where processes cannot be replaced."""
    path = program()
    if path is None:
        print(f"error: {NAME} is not installed; run `pip install --force-reinstall causal-attention`", file=sys.stderr)
        return 2
    command = [path, *sys.argv[1:]]
    if sys.platform != "win32":
        os.execv(path, command)
    try:
        return subprocess.run(command).returncode
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())

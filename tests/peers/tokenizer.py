"""Loads the tokenizers of exports with transformers and compares their ids.

    python tests/peers/tokenizer.py FOLDER EXPECTED [FOLDER EXPECTED ...]

EXPECTED is a JSON file: `vocabulary`, the size of the vocabulary, and `texts`, each with its ids.
Exit code 77: transformers is not installed.
"""

import json
import sys

try:
    from transformers import AutoTokenizer
except ImportError as missing:
    print(missing)
    sys.exit(77)

for folder, path in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    with open(path, encoding="utf-8") as file:
        expected = json.load(file)
    assert len(tokenizer) == expected["vocabulary"], (folder, len(tokenizer), expected["vocabulary"])
    assert all(id < len(tokenizer) for id in tokenizer.all_special_ids), (folder, tokenizer.all_special_ids)
    for text, ids in expected["texts"].items():
        found = tokenizer(text)["input_ids"]
        assert found == ids, (folder, text, found, ids)
        assert tokenizer.decode(ids) == text, (folder, text, tokenizer.decode(ids))
    print(f"{folder}: {len(expected['texts'])} texts agree")

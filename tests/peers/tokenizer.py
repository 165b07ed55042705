"""Loads the tokenizer of an export with transformers and compares its ids.

    python tests/peers/tokenizer.py FOLDER EXPECTED

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

folder, expected = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(folder)
with open(expected, encoding="utf-8") as file:
    expected = json.load(file)
assert len(tokenizer) == expected["vocabulary"], (len(tokenizer), expected["vocabulary"])
assert all(id < len(tokenizer) for id in tokenizer.all_special_ids), tokenizer.all_special_ids
for text, ids in expected["texts"].items():
    found = tokenizer(text)["input_ids"]
    assert found == ids, (text, found, ids)
    assert tokenizer.decode(ids) == text, (text, tokenizer.decode(ids))
print(f"{len(expected['texts'])} texts agree")

"""Writes expanded.pt next to this file: weights as saved by `torch.save` from an expanded tensor, which stores a million
equal numbers as one. Does not need PyTorch.

    python tests/peers/make_expanded.py
"""

import collections
import pickle
import struct
import sys
import types
import zipfile
from pathlib import Path

torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
sys.modules |= {"torch": torch, "torch._utils": utils}


class FloatStorage:
    pass


def _rebuild_tensor_v2():
    pass


for module, value in ((torch, FloatStorage), (utils, _rebuild_tensor_v2)):
    value.__module__ = module.__name__
    setattr(module, value.__name__, value)


class Storage:
    pass


class Expanded:
    def __reduce__(self):
        shape, stride = (1000, 1000), (0, 0)
        return _rebuild_tensor_v2, (Storage(), 0, shape, stride, False, collections.OrderedDict())


class Pickler(pickle.Pickler):
    def persistent_id(self, value):
        return ("storage", FloatStorage, "0", "cpu", 1) if isinstance(value, Storage) else None


with zipfile.ZipFile(Path(__file__).with_name("expanded.pt"), "w") as archive:
    def add(name, content):
        archive.writestr(zipfile.ZipInfo(f"expanded/{name}"), content)

    with archive.open(zipfile.ZipInfo("expanded/data.pkl"), "w") as file:
        Pickler(file, protocol=2).dump({"wte.weight": Expanded()})
    add("byteorder", "little")
    add("data/0", struct.pack("<f", 0.5))
    add("version", "3\n")

"""The comparison of numbers in the scripts that import it."""

import torch

TOLERANCE = 1e-4


def check(what, found, expected):
    found, expected = (torch.as_tensor(value, dtype=torch.float64) for value in (found, expected))
    difference = (found - expected).abs().max().item()
    assert difference < TOLERANCE, f"{what}: differs by {difference}"

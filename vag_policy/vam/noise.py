"""Noise that a key determines: the same on every machine and device, and independent from key to key."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def seeded_normal(key: tuple[int, ...], shape: tuple[int, ...]) -> Tensor:
    """Standard normal float32 on the CPU, drawn from a generator of its own.

    Args:
        key: integers >= 0; any difference gives other numbers.
        shape: of the result.
    """
    words = np.random.SeedSequence(key).generate_state(1, np.uint64)
    generator = torch.Generator().manual_seed(int(words[0]) >> 1)  # seeds are signed
    return torch.randn(shape, generator=generator)

# SPDX-License-Identifier: BSD-3-Clause
"""Shapes and strides."""

from __future__ import annotations

import math
from typing import Sequence


def contiguous(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Returns the strides, in bytes, of an array in C's order."""
    return tuple(itemsize * math.prod(shape[at + 1 :]) for at in range(len(shape)))


def extent(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> int:
    """Returns the bytes from the first element to the end of the last. Raises ValueError if there is no such range."""
    if len(shape) != len(strides) or itemsize < 1:
        raise ValueError(f"shape {tuple(shape)} and strides {tuple(strides)} do not describe an array")
    if any(one < 1 for one in shape):
        raise ValueError(f"an array of the shape {tuple(shape)} has no memory")
    if any(one < 0 for one in strides):
        raise ValueError("an array with negative strides does not begin with its first element")
    return itemsize + sum((count - 1) * stride for count, stride in zip(shape, strides))

"""Functions of all pairs of rows of two arrays.

For tests of tiles on GPUs.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def squares(a: Any, b: Any) -> Any:
    return np.sum((a[:, None] - b[None]) ** 2, axis=-1)


def bells(a: Any, b: Any) -> Any:
    return np.exp(-0.05 * squares(a, b)) + np.arange(len(b))


def largest(a: Any, b: Any) -> Any:
    return np.max(np.abs(a[:, None] - b[None]), axis=-1)


def product(a: Any, b: Any) -> Any:
    return np.prod(1.0 + 0.01 * (a[:, None] * b[None]), axis=-1)


def all_of_them(a: Any, b: Any) -> Any:
    return np.sum(np.sqrt(squares(a, b)))


def weighted(a: Any, b: Any) -> Any:
    return np.sum((a[:, None] - b[None]) ** 2 * np.abs(a[0]), axis=-1)


def two_of_each(a: Any, b: Any) -> Any:
    c, d = a * 2.0, b + 1.0
    return np.sum(np.abs(a[:, None] - b[None]) * (c[:, None] + d[None]), axis=-1) * 2.0

"""The register of idioms, and the numbers that they are tried on.

For tests of interception and `jit`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

X = np.array([0.7, 1.3, 0.4, 2.1, 1.6, 0.9])
W = np.linspace(-1.0, 1.0, 6)
M = np.arange(36.0).reshape(6, 6) / 20

IDIOMS: dict[str, Callable[[Any], Any]] = {}


def idiom(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    IDIOMS[f.__name__.strip("_").replace("_", " ")] = f
    return f

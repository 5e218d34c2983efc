"""Float32 functions over all kinds of numbers: arguments, and errors of results in ulp.

For tests of the functions in ``native/cuda/adarray_quick.h``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

# The most that a result may be off, in units of the last place.
FUNCTIONS: dict[str, tuple[Callable[[Any], Any], float]] = {
    "sin": (np.sin, 2.0),
    "cos": (np.cos, 2.0),
    "log1p": (np.log1p, 2.0),
    "reciprocal": (lambda x: 1.0 / x, 0.5),
}
RARE = np.array(
    [
        0.0, -0.0, np.inf, -np.inf, np.nan, -1.0, -1.5, np.nextafter(np.float32(-1), 0),
        1e-45, -1e-45, 1e-38, 3.4e38, -3.4e38, 1.3e38, 7.2e4, -1e6, 0.5, 1.0, np.pi,
    ],
    np.float32,
)  # fmt: skip


def floats(each: int, seed: int = 0) -> np.ndarray:
    """Return `each` float32 numbers of every exponent, ordinary ones, and `RARE` among them."""
    rng = np.random.default_rng(seed)
    exponents = np.repeat(np.arange(512, dtype=np.uint32) << 23, each)
    some = (exponents | rng.integers(0, 1 << 23, exponents.size, np.uint32)).view(np.float32)
    x = np.concatenate([some, rng.normal(size=some.size).astype(np.float32), RARE])
    return rng.permutation(x)


def ulps(got: np.ndarray, x: np.ndarray, function: Callable[[Any], Any]) -> np.ndarray:
    """Return the errors of float32 results; infinities, nan and signs of zeros must be right."""
    with np.errstate(all="ignore"):
        wanted = function(x.astype(np.float64))
        rounded = wanted.astype(np.float32)
    special = ~np.isfinite(rounded)
    np.testing.assert_array_equal(got[special], rounded[special])
    zero = rounded == 0
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(rounded[zero]))
    errors = np.zeros(x.shape)
    rest = ~special
    off = np.abs(got[rest].astype(np.float64) - wanted[rest])
    errors[rest] = off / np.spacing(np.abs(rounded[rest])).astype(np.float64)
    return errors


def values(x: Any) -> list[Any]:
    """Return every function of `x`."""
    return [f(x) for f, _ in FUNCTIONS.values()]


def gradient(x: Any) -> Any:
    """Return what has sine and cosine of one argument, and totals."""
    return np.sum(np.sin(x) * 0.5 + np.log1p(x * x)), np.cos(x) * 0.5 + 1.0 / (1.0 + x * x)


def folds(x: Any) -> list[Any]:
    """Return sums of everything, of rows and of columns, in one precision."""
    y = np.log1p(np.abs(x)) + np.sin(x) ** 2
    return [np.sum(y), np.sum(y, axis=0), np.sum(y, axis=1), np.max(np.cos(x), axis=1)]


def matrix() -> np.ndarray:
    """Return rows of numbers, some of them rare but of finite results."""
    x = np.random.default_rng(1).normal(size=(9, 130)).astype(np.float32)
    x[::3, 5::29] = [[3e38, -2e38, 1e5, 1.0, 8e4]] * 3
    return x

"""The modified Bessel function of order 0, which NumPy has for its Kaiser window.

References
----------
- NIST Digital Library of Mathematical Functions, https://dlmf.nist.gov, 10.25.2 (series), 10.32.3
  (integral), 10.29 (derivative).
- L. N. Trefethen, J. A. C. Weideman, "The exponentially convergent trapezoidal rule", SIAM Review
  56 (2014), 385-458.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from adarray.base.errors import TraceError
from adarray.base.op import Op, Opaque, register
from adarray.batching.rules import pointwise
from adarray.core.dispatch import run
from adarray.core.protocol import finish, plain, traced
from adarray.ops.borrow import correct
from adarray.ops.common import always_array, s

# exp(x cos t) is integrated by the trapezoidal rule, whose relative error for a periodic
# function is about exp(-2 _NODES**2 / x): far below rounding before I1 overflows at 714.
_NODES = 256
_TERMS = 40  # of the power series, up to |x| = 8: the next one is below rounding


def _i1(x: Any) -> Any:
    """Return the modified Bessel function of order 1, the derivative of ``np.i0``.

    Below 8 it is its power series, whose terms have one sign; above, the mean of
    exp(x cos t) cos t over a circle.
    """
    x = x if hasattr(x, "dtype") else np.asarray(x)
    if x.dtype.kind == "c":
        raise TypeError("i1 not supported for complex values")
    size = np.abs(x)
    small = np.where(size < 8, x, 0)
    quarter = small * small / 4
    series = np.zeros_like(small)
    for k in range(_TERMS, 0, -1):
        series = (1 + series) * (quarter / (k * (k + 1)))
    t = (np.arange(_NODES, dtype=x.dtype) + x.dtype.type(0.5)) * x.dtype.type(np.pi / _NODES)
    large = np.where(size < 8, x.dtype.type(8), size)
    mean = np.mean(np.exp(large[..., None] * (np.cos(t) - 1)) * np.cos(t), axis=-1)
    half = np.exp(large / 2)  # exp(x) overflows before I1(x)
    with np.errstate(over="ignore"):
        r = np.where(size < 8, small / 2 * (1 + series), np.sign(x) * half * mean * half)
    return r.astype(x.dtype)[()]


def _over(out: Any, x: Any) -> Any:
    """Return I1(x) / x, 1/2 at 0."""
    zero = x == 0
    return np.where(zero, 0.5, out / (x + zero))


def _samples(rng: np.random.Generator) -> list[Any]:
    return [s(rng.uniform(-6, 6, size=(3, 4))), s(np.array([0.0, 9.0, -12.5])), s(np.float64(1.5))]


i1 = register(
    Op(
        "i1",
        _i1,
        Opaque(),
        [lambda g, out, x: g * (np.i0(x) - _over(out, x))],
        jvp=[lambda t, out, x: t * (np.i0(x) - _over(out, x))],
        samples=_samples,
        operands=("x",),
        batch=pointwise,
        note="the derivative of np.i0",
    )
)


def _slope(g: Any, out: Any, x: Any) -> Any:
    return g * run(i1, x)


i0 = register(
    Op(
        "i0",
        np.i0,
        Opaque(),
        [_slope],
        jvp=[_slope],
        samples=_samples,
        operands=("x",),
        batch=pointwise,
        zero_d=always_array,
    )
)


@functools.wraps(np.kaiser)
def _kaiser(M: Any, beta: Any) -> Any:
    """``np.kaiser``, which NumPy does not dispatch, for a traced shape parameter."""
    if traced(M):
        raise TraceError(
            "kaiser: operand 0, the number of points, is traced, and a length has no derivative; "
            "pass a plain number"
        )
    points = plain(M)
    if not traced(beta) or points <= 1:
        return finish(np.kaiser(points, plain(beta)), None, "kaiser")
    n, alpha = np.arange(0, points), (points - 1) / 2.0
    return np.i0(beta * np.sqrt(1 - ((n - alpha) / alpha) ** 2.0)) / np.i0(beta)


correct(np.kaiser, _kaiser)

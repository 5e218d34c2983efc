"""Derivatives along curves: Taylor mode beside nested forward mode.

For tests of `adarray.jet`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import adarray


def nested(f: Callable[..., Any], primals: Sequence[Any], series: Sequence[Any]) -> list[Any]:
    """Return the derivatives along a curve by forward mode in forward mode."""

    def along(t: Any) -> Any:
        moved = [
            x + sum(c * (t ** (k + 1) / math.factorial(k + 1)) for k, c in enumerate(s))
            for x, s in zip(primals, series, strict=True)
        ]
        return f(*moved)

    results, g = [], along
    for _ in range(len(series[0])):
        g = (lambda h: lambda t: adarray.jvp(h, (t,), (1.0,))[1])(g)
        results.append(g(0.0))
    return results


def check(f: Callable[..., Any], primals: Sequence[Any], series: Sequence[Any]) -> None:
    with np.errstate(all="ignore"):
        y, coefficients = adarray.jet(f, primals, series)
        expected = nested(f, primals, series)
        np.testing.assert_allclose(y, f(*primals), rtol=1e-12)
    for a, b in zip(coefficients, expected, strict=True):
        np.testing.assert_allclose(
            a, b, rtol=1e-6, atol=1e-7 * (1.0 + np.nanmax(np.abs(b), initial=0.0))
        )

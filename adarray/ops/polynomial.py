"""Polynomials given by their coefficients, the highest power first.

The functions of ``numpy.polynomial`` do not dispatch; `borrowed` gives bodies of theirs
that take ADArrays, which `adarray.numpy` and rebound modules put in their place.

References
----------
- J. H. Wilkinson, "Rounding Errors in Algebraic Processes", Prentice-Hall 1963, chapter 2 (how
  roots move with coefficients).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from adarray.base.op import Op, Opaque, register
from adarray.batching.rules import members
from adarray.core.protocol import plain
from adarray.ops import creation
from adarray.ops.borrow import borrow
from adarray.ops.common import composite_if_traced, s

borrow(
    np.poly, np.polyadd, np.polyder, np.polydiv, np.polyfit, np.polysub, np.polyval, np.vander
)  # fmt: skip


@composite_if_traced(np.polymul)
def _polymul(a1: Any, a2: Any) -> Any:
    """Convolve the coefficients; NumPy drops leading zeros on the way.

    Dropped at the end they change no derivative of the coefficients that are left.
    """
    length = len(np.polymul(plain(a1), plain(a2)))
    first, second = (np.atleast_1d(creation.asanyarray(a)) for a in (a1, a2))
    return np.convolve(first, second)[-length:]


@composite_if_traced(np.polyint)
def _polyint(p: Any, m: int = 1, k: Any = None) -> Any:
    """Integrate `m` times, with the constants `k`."""
    m = int(m)
    if m < 0:
        raise ValueError("Order of integral must be positive (see polyder)")
    constants = np.zeros(m) if k is None else np.atleast_1d(creation.asanyarray(k))
    if len(constants) == 1 and m > 1:
        constants = constants[0] * np.ones(m)
    if len(constants) < m:
        raise ValueError("k must be a scalar or a rank-1 array of length 1 or >m.")
    p = creation.asanyarray(p)
    for i in range(m):
        p = np.concatenate((p / np.arange(len(p), 0, -1), constants[i : i + 1]))
    return p


def _powers(out: Any, p: Any) -> tuple[Any, Any]:
    """Return the powers of each root that the coefficients multiply, and the slopes there."""
    n = p.shape[0]
    exponents = np.arange(n - 1, -1, -1)
    roots = np.reshape(out, (-1, 1))
    powers = np.concatenate(
        [np.ones_like(roots) if k == 0 else roots**k for k in exponents.tolist()], axis=1
    )
    slopes = np.sum(powers[:, 1:] * (p[:-1] * exponents[:-1]), axis=1)
    return powers, slopes


def _roots_vjp(g: Any, out: Any, p: Any) -> Any:
    powers, slopes = _powers(out, p)
    return -np.sum(np.reshape(g / slopes, (-1, 1)) * powers, axis=0)


def _roots_jvp(t: Any, out: Any, p: Any) -> Any:
    powers, slopes = _powers(out, p)
    return -np.sum(powers * t, axis=1) / slopes


roots = register(
    Op(
        "roots",
        np.roots,
        Opaque(),
        [_roots_vjp],
        jvp=[_roots_jvp],
        batch=members,
        samples=lambda rng: [
            s(np.poly([-1.3, 0.2, 2.5]) * rng.uniform(1, 2)),
            s(np.array([1.0, 0.3, 2.0, 0.5])),
            s(np.array([1.0, -3.0, 2.0, 0.0])),
            s(np.array([3.0])),
        ],
        operands=("p",),
        note="of simple roots; inf or nan at multiple ones",
    )
)

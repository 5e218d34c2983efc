"""Ranges of numbers between traced ends, and grids made of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from adarray.base.op import composite
from adarray.ops import creation
from adarray.ops.borrow import borrow

# NumPy's own bodies: ends, and the base of logspace, may be traced numbers or arrays.
borrow(np.linspace, np.logspace, np.geomspace)
borrow(np.ix_, views=True)


@composite(np.meshgrid)
def _meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> Any:
    """Spread each operand along an axis of its own: a copy, or a view with ``copy=False``."""
    if indexing not in ("xy", "ij"):
        raise ValueError("Valid values for `indexing` are 'xy' and 'ij'.")
    n = len(xi)
    order = [1, 0, *range(2, n)] if indexing == "xy" and n > 1 else list(range(n))
    axes = [
        np.reshape(creation.asanyarray(x), tuple(-1 if j == order[i] else 1 for j in range(n)))
        for i, x in enumerate(xi)
    ]
    if not sparse:
        axes = list(np.broadcast_arrays(*axes))  # which may be written into, with a warning
    return tuple(np.copy(x) for x in axes) if copy else tuple(axes)

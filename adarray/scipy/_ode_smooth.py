"""Whether the right-hand side of an ODE may have kinks at all.

It is run once, recorded, at the start. If it reads no value that moves (compares none, rounds
none), it is the same formula everywhere; and if the formula has smooth operations alone, steps need
not be tried for kinks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from adarray.base.levels import forget, remembered, restore
from adarray.base.watching import watched
from adarray.core.graph import LEAF, Node
from adarray.core.inplace import sync_if_view
from adarray.core.trace import Handle, tracing
from adarray.transforms.inputs import Inputs
from adarray.transforms.replay import mark
from adarray.transforms.running import prepared

Field = Callable[[Any, Any], Any]

_NAMES = """
add arctan arcsinh arctanh astype broadcast_to concatenate conjugate convolve copy cos cosh
cumprod cumsum deg2rad det diagonal divide einsum einsum_view exp exp2 expand_dims expm1 fft
flip getitem hfft i0 i1 ifft ihfft imag inv irfft log log10 log1p log2 logaddexp logaddexp2
matmul matvec mean moveaxis multiply negative positive power prod rad2deg ravel real
reciprocal repeat reshape rfft roll rot90 sin sinc sinh sliding_window_view solve sqrt square
squeeze subtract sum swapaxes tan tanh tile transpose tril triu vecdot vecmat view
"""
_SMOOTH = frozenset(_NAMES.split())
_PADS = ("constant", "edge", "linear_ramp", "mean", "reflect", "symmetric", "wrap")


def is_smooth(field: Field, t: float, y: Any) -> bool:
    """Whether a right-hand side has certainly no kinks, by a run at one point."""
    before = remembered()
    run = prepared(field, True)
    start = mark()
    try:
        with watched() as watch, tracing("solve_ivp") as level:
            inputs = Inputs("solve_ivp", (t, np.asarray(y)), (0, 1), level, field)
            result = run(*inputs.args)
            node = sync_if_view(result)._node if isinstance(result, Handle) else None
    except Exception as error:  # it takes plain values only, say
        forget(error)
        restore(before)
        return False
    return not watch.triggered and _all_smooth(node, start)


def _all_smooth(node: Node | None, start: Node) -> bool:
    """Whether all operations of a run are smooth; those before `start` are not of it."""
    seen: set[int] = set()
    stack = [] if node is None else [node]
    while stack:
        node = stack.pop()
        if node.order > start.order or node.order in seen or node.op is LEAF:
            continue
        seen.add(node.order)
        written = node.op.transfer is not None
        padded = node.op.name == "pad" and (node.params or {}).get("mode", "constant") in _PADS
        if not (node.op.name in _SMOOTH or written or padded):
            return False
        stack += [p for p in node.parents if p is not None]
    return True

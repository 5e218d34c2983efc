"""Forward mode: the driver. Tangents are pushed by `adarray.core.dispatch`, op by op.

References
----------
- R. E. Wengert, "A simple automatic derivative evaluation program", Commun. ACM 7 (1964), 463-464.
- A. Griewank, A. Walther, "Evaluating Derivatives", 2nd ed., SIAM 2008, chapter 3.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from adarray.arrays.adarray import ADArray
from adarray.base.aval import BATCHED, Symbolic, refuse_subclass
from adarray.base.errors import ShapeError
from adarray.base.memory import stand_in
from adarray.core.inplace import sync_if_view
from adarray.core.tangents import attach, tangent_of
from adarray.core.trace import Extras, Handle, placed, snapshot
from adarray.device import KINDS, adopt, is_device


def dual(x: Any, tangent: Any, level: int, name: str) -> Any:
    """Return `x` as an ADArray with a tangent at `level`.

    Raises
    ------
    ShapeError
        If the tangent's shape is not that of `x`.
    """
    tangent = refuse_subclass(tangent, name)
    if KINDS and type(tangent) in KINDS:
        tangent = adopt(tangent).copy()
    if isinstance(x, Handle):
        out = snapshot(sync_if_view(x))
    else:
        x = refuse_subclass(x, name)
        if KINDS and type(x) in KINDS:
            value = adopt(x).copy()
        else:
            value = x
            if not isinstance(x, (float, complex, np.generic)):
                value = stand_in(x, marked=True) if type(x) is np.ndarray else np.array(x)
        if isinstance(value, (np.ndarray, np.generic)) and not value.dtype.isnative:
            value = value.astype(value.dtype.newbyteorder("="))
        weak = isinstance(x, (float, complex)) and not isinstance(x, np.generic)
        value = placed(value)
        kind = Handle.number_class if weak else Handle.array_class
        out = kind(value, None, Extras(weak=True) if weak else None, True)
    if np.shape(tangent) != np.shape(out._plain):
        raise ShapeError(
            f"{name}: the tangent has shape {np.shape(tangent)} and its primal "
            f"{np.shape(out._plain)}; they must be equal"
        )
    if not isinstance(tangent, Handle):
        tangent = placed(np.array(tangent) if not is_device(tangent) else tangent)
    attach(out, level, tangent)
    return out


def split(y: Any, level: int) -> tuple[Any, Any]:
    """Return the primal and the tangent at `level` of a result; zeros where it has none."""
    if not isinstance(y, Handle):
        return y, _zero(np.asarray(y))
    sync_if_view(y)
    tangent: Any = tangent_of(y, level)
    primal = snapshot(y)
    if primal._x is not None:
        primal._x.tangents = tuple(t for t in primal._x.tangents if t.level != level)
    if tangent is None:
        v: Any = primal._plain
        if isinstance(v, Symbolic):
            known = v.value  # a Python number, maybe
            dtype = known.dtype if hasattr(known, "dtype") else np.result_type(known)
            v = np.zeros(np.shape(known), dtype)
        there = is_device(v) or type(v) in BATCHED
        tangent = ADArray(_zero(v if there else np.asarray(v)))
    return primal, tangent


def _zero(v: Any) -> Any:
    """Return the tangent of a constant: of its dtype, as all tangents; float64 for integers."""
    dtype = v.dtype if v.dtype.kind in "fc" else np.result_type(float, v.dtype)
    return np.zeros_like(v, dtype)[()]

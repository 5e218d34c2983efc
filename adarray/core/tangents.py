"""Tangents of forward mode: stored beside a value, one per level, and never in the graph.

References
----------
- J. M. Siskind, B. A. Pearlmutter, "Perturbation confusion and referential transparency: correct
  functional implementation of forward-mode AD", IFL 2005.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from adarray.base.aval import ARRAYS, Aval, Symbolic, aval_of
from adarray.base.levels import is_walked
from adarray.base.op import Op
from adarray.base.types import ArrayValue, Operands, Params
from adarray.core.graph import Node
from adarray.core.refusals import no_derivative
from adarray.core.trace import Extras, Handle, Tangent, extras, snapshot
from adarray.device import is_device

if TYPE_CHECKING:
    import numpy.typing as npt

T = TypeVar("T")


class SeriesProtocol(Protocol):
    """Pushes the coefficients of power series through operations."""

    def strip(self, x: T) -> T:
        """Return an operand without its coefficients."""

    def push(
        self, op: Op, operands: Operands, primals: Operands, params: Params, out: object
    ) -> object:
        """Give the result of an operation its coefficients, and return it."""


# Levels that hold the coefficients of a power series, with what pushes them (adarray.ad.series).
SERIES: dict[int, SeriesProtocol] = {}
_SMALL = 4096  # elements up to which a product is faster than a sum, and takes one thread


def strip(x: T, level: int) -> T:
    """Return the operand without its tangent at `level`."""
    if not isinstance(x, Handle) or x._x is None or not x._x.tangents:
        return x
    lower = tuple(t for t in x._x.tangents if t.level != level)
    rest = Extras(tangents=lower, weak=x._x.weak) if lower or x._x.weak else None
    return type(x)(x._plain, x._node, rest, x._frozen)


def tangent_of(x: object, level: int) -> Handle | None:
    """Return the tangent of an operand at `level`, None for zero."""
    if isinstance(x, Handle) and x._x is not None:
        for t in x._x.tangents:
            if t.level == level:
                return t.value
    return None


def unrecorded(x: T, level: int) -> T:
    """Return an operand as the tangent at `level` needs it, which only traces around that walk.

    What later ones record is walked from the value, never from the tangent.
    """
    if not isinstance(x, Handle) or x._node is None or is_walked(x._node.span[0], level):
        return x
    rest = None
    if x._x is not None and (x._x.tangents or x._x.weak):
        rest = Extras(tangents=x._x.tangents, weak=x._x.weak)
    return type(x)(x._plain, None, rest, True)


def save_tangents(node: Node, sources: Operands) -> None:
    """Save the tangents of the values that `node` saved, for forward over reverse mode."""
    saved = list(node.saved)
    for j, (v, source) in enumerate(zip(node.saved, sources, strict=False)):
        if isinstance(v, tuple) and isinstance(source, tuple):  # several results
            parts = tuple(_with_tangents(node, a, b) for a, b in zip(v, source, strict=True))
            changed = any(a is not b for a, b in zip(v, parts, strict=True))
            saved_value: object = parts
        else:
            saved_value = _with_tangents(node, v, source)
            changed = saved_value is not v
        if changed:
            saved[j] = saved_value
            node.saved = saved  # a list: some of the values are ADArrays


def _with_tangents(node: Node, v: Any, source: object) -> object:
    """Return the saved value `v` of `source` with the tangents that outer traces need."""
    if isinstance(v, Aval) or v is None or not isinstance(source, Handle):
        return v
    if source._x is None or not source._x.tangents:
        return v
    # A reverse walk differentiates only traces that were opened before its own.
    needed = [t for t in source._x.tangents if t.level < node.span[1]]
    if not needed:
        return v
    value = v._plain if isinstance(v, Handle) else v
    tangents = tuple(Tangent(t.level, _apart(t.value, node.span[1])) for t in needed)
    node.span = (min(node.span[0], tangents[0].level), node.span[1])
    return type(source)(value, None, Extras(tangents=tangents, weak=source._x.weak), True)


def _apart(tangent: Handle, level: int) -> Handle:
    """Return a tangent as a node of the trace `level` may save it.

    Its own node leads back to the node that saves it; it is dropped (no cycle is
    made) where it belongs to that trace only, which needs no more than the values.
    A tangent that an outer trace made keeps its node, which that trace walks.
    """
    own = snapshot(tangent)
    node = own._node
    if node is not None and node.span[1] == level and not is_walked(node.span[0], level):
        own._node = None
    return own


def attach(out: Handle, level: int, tangent: Any) -> None:
    """Give `out` the tangent at `level`, in its shape and dtype and apart from others."""
    shape, dtype = np.shape(out._plain), aval_of(out._plain).dtype
    if isinstance(tangent, Symbolic):
        tangent = type(out)(tangent)
    elif not isinstance(tangent, Handle):
        tangent = type(out)(tangent if is_device(tangent) else np.asarray(tangent)[()])
    elif not isinstance(tangent._plain, (np.ndarray, np.generic)):
        tangent = np.positive(tangent)  # that of a Python number has no shape
    if tangent._plain.shape != shape:
        tangent = np.broadcast_to(tangent, shape)
    if tangent._plain.dtype != dtype:
        if dtype.kind == "f" and tangent._plain.dtype.kind == "c":
            tangent = np.real(tangent)  # of a real function of complex numbers
        tangent = tangent.astype(dtype)
    if tangent._x is not None or type(tangent._plain) in ARRAYS:
        tangent = snapshot(tangent)
    x = extras(out)
    others = tuple(t for t in x.tangents if t.level != level)
    x.tangents = tuple(sorted((*others, Tangent(level, tangent)), key=lambda t: t.level))


def inexact(op: Op, v: ArrayValue) -> bool:
    """Whether the result `v` of `op` carries a tangent."""
    dtype = aval_of(v).dtype
    if dtype.kind not in "fc":
        no_derivative(op, np.empty((), dtype))
    return bool(dtype.kind in "fc")


def without_dropped(r: Any, weight: Callable[[], npt.ArrayLike]) -> object:
    """Return the tangent `r` of an operation that masks, 0 where the operand's weight is 0.

    The operand's own tangent may be infinite or nan there.
    """
    value = r._plain if isinstance(r, Handle) else r
    if not isinstance(value, Symbolic) and not is_device(value) and not np.isnan(value).any():
        return r
    return np.where(np.isnan(r) & np.equal(weight(), 0), 0, r)


def strong_zero(g: Any, r: Any) -> Any:
    """Return ``r = g * f'(x)`` with 0 in place of nan where `g` is 0.

    `g` is a tangent, or the cotangent of a result without effect on what is
    differentiated: an infinite derivative there must not turn zero into nan.
    """
    value = r._plain if isinstance(r, Handle) else r
    if isinstance(value, Symbolic):
        return np.where(np.isnan(r) & np.equal(g, 0), 0, r)
    if is_device(value) and r is value:
        product = value.library.strong_zero(g._plain if isinstance(g, Handle) else g, value)
        if product is not NotImplemented:
            return product
    if not is_device(value):
        if type(value) is not np.ndarray:
            if value == value:
                return r
        elif value.dtype.kind == "f":
            # A sum is nan where an element is, and reads each element once.
            if value.size < _SMALL and value.flags.forc:
                flat = value.ravel("K")
                total = np.dot(flat, flat)  # which takes no notice of overflow
            else:
                with np.errstate(over="ignore", invalid="ignore"):
                    total = np.add.reduce(value, axis=None)
            if total == total:
                return r
        elif not np.isnan(value).any():
            return r
    nan = np.isnan(value)
    zero = np.equal(g._plain if isinstance(g, Handle) else g, 0)
    return np.where(nan & zero, 0, r)[()]

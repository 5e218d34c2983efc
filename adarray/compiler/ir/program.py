"""Programs: what `jit` optimises and compiles.

A `Program` is a list of `Value`, each made by one primitive from values before it.
Values are pure: nothing is written in place here. Every value is, logically, an array in
C order; where its elements lie in memory is decided later.

Primitives, with their parameters:

=========  ==========================================================================
input      ``index``: position among the program's inputs. Any strides at run time.
const      ``value``: a Python or NumPy scalar; shape ``()``.
array      ``value``: an ndarray that never changes.
iota       ``axis``: element ``i`` along that axis is ``i``.
map        ``name``: a scalar function (`adarray.base.scalar`, or ``"cast"``). Operands
           broadcast as NumPy's; all of one dtype unless the function says otherwise
           (the condition of ``where`` is bool, comparisons give bool).
view       ``offset, strides``, counted in elements of the C-ordered operand: element
           ``(i, j, ...)`` is element ``offset + i*strides[0] + j*strides[1] + ...``.
           Slices, transposes, broadcasts, reshapes, diagonals and windows are views.
reduce     ``combine`` (``add multiply maximum minimum logical_and logical_or``) and
           ``axes``, which disappear.
place      operands ``base, value``; ``starts, steps``, one per axis, and ``add``: base
           with ``base[start::step]``, as far as value goes, set to value or added to.
join       ``axis``: operands one after the other.
gather     operands ``x, *indices``; ``axes`` of x that are indexed, ``position`` of the
           indices' axes in the result. Indices are int64 of one shape, not yet wrapped.
scatter    operands ``base, value, *indices``; ``axes, position, add``: the transpose of
           gather; of repeated indices the last one wins, or all add up.
scan       ``combine`` (``add multiply maximum minimum``), ``axis``.
dot        operands ``a, b``: `numpy.matmul` of two arrays of at least one axis.
call       ``function, args, kwargs``: anything else, run by NumPy; ``args`` and
           ``kwargs`` hold `Slot` where operands go. ``results``: a tuple of
           ``(shape, dtype)`` where there are several.
pick       ``index``: one result of a call with several.
=========  ==========================================================================

References
----------
- R. Cytron, J. Ferrante, B. K. Rosen, M. N. Wegman, F. K. Zadeck, "Efficiently computing static
  single assignment form and the control dependence graph", ACM Trans. Program. Lang. Syst. 13
  (1991), 451-490.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np

KINDS = frozenset({
    "input", "const", "array", "iota", "map", "view", "reduce", "place", "join", "gather",
    "scatter", "scan", "dot", "call", "pick",
})  # fmt: skip


class Slot:
    """Stands for operand number `index` in the arguments of a call."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Slot) and other.index == self.index

    def __hash__(self) -> int:
        return hash(("slot", self.index))

    def __repr__(self) -> str:
        return f"${self.index}"


class Value:
    """One array of a program. Immutable; compared by identity.

    Attributes
    ----------
    kind : str
        The primitive that makes it.
    args : tuple of Value
        Its operands.
    params : dict
        Its parameters, as the table above says.
    shape : tuple of int
    dtype : numpy.dtype
    origin : object or None
        The recorded call that it came from (operation, file and line), for `explain`.
    """

    __slots__ = ("args", "dtype", "kind", "origin", "params", "shape")

    def __init__(
        self,
        kind: str,
        args: tuple[Value, ...],
        params: dict[str, Any],
        shape: tuple[int, ...],
        dtype: Any,
        origin: Any = None,
    ) -> None:
        self.kind = kind
        self.args = args
        self.params = params
        self.shape = shape
        self.dtype = np.dtype(dtype)
        self.origin = origin

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes that it takes in memory."""
        return self.size * int(self.dtype.itemsize)

    def __repr__(self) -> str:
        what = self.params.get("name") or self.params.get("combine") or ""
        return f"<{self.kind}{' ' if what else ''}{what} {self.dtype}{list(self.shape)}>"


class Program:
    """Values in an order in which they can be computed.

    Attributes
    ----------
    inputs : list of Value
        Of kind ``input``, by index; also those that nothing reads.
    values : list of Value
        All values, operands before their users, inputs included.
    outputs : list of Value
        What the program returns; a value may stand here more than once.
    """

    __slots__ = ("inputs", "outputs", "values")

    def __init__(
        self, inputs: Iterable[Value], values: Iterable[Value], outputs: Iterable[Value]
    ) -> None:
        self.inputs = list(inputs)
        self.values = list(values)
        self.outputs = list(outputs)

    def __repr__(self) -> str:
        return f"<program of {len(self.values)} values>"


@lru_cache(1 << 14)
def c_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides, in elements, of an array of `shape` in C order."""
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return tuple(reversed(strides))


def text(program: Program) -> str:
    """Return a program as lines ``v3 float64[10] = map sin v1``, for people and tests."""
    names: dict[int, str] = {}
    lines = []
    for i, v in enumerate(program.values):
        names[id(v)] = f"v{i}"
        shown = []
        for key, value in v.params.items():
            if isinstance(value, np.ndarray):
                value = f"<{value.dtype}{list(value.shape)}>"
            elif key == "function":
                value = getattr(value, "__name__", value)
            shown.append(str(value) if key in ("name", "combine", "value") else f"{key}={value}")
        operands = [names[id(a)] for a in v.args]
        lines.append(f"v{i} {v.dtype}{list(v.shape)} = {' '.join([v.kind, *shown, *operands])}")
    lines.append(f"return {', '.join(names[id(v)] for v in program.outputs)}")
    return "\n".join(lines)

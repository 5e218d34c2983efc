"""Discrete Fourier transforms without norms and lengths of their own, for GPUs.

NumPy's functions differ in what they do beside the transform: they cut or fill up the operand,
conjugate, multiply by a factor that depends on the norm. Here that becomes values of the program,
which kernels compute with their neighbours, and the transform a call of `fourier`, which a GPU's
backend launches among the other steps of a plan. Transforms of one axis after the other become one
of several axes.

References
----------
- J. W. Cooley, J. W. Tukey, "An algorithm for the machine calculation of complex Fourier series",
  Math. Comp. 19 (1965), 297-301.
- NVIDIA, "cuFFT API Reference", 2025 (half-Hermitian layout of several axes).
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np

from adarray.base.types import Function
from adarray.compiler.ir.builder import PAIRS, Builder
from adarray.compiler.ir.primitives import (
    DType,
    GatherND,
    Map,
    PythonCall,
    Reduce,
    Slot,
    View,
)
from adarray.compiler.ir.program import Program, Value
from adarray.compiler.ir.target import GpuTarget, Target
from adarray.compiler.ir.uses import numeric
from adarray.compiler.rewrite.rebuild import rebuild, renewed

# From complex to complex numbers with negative or positive exponents; from real numbers to the
# half of their frequencies that tells all (negative), and back (positive).
Kind: TypeAlias = Literal["forward", "inverse", "half", "whole"]
MOST_AXES = 3  # of one transform
_REAL: dict[str, DType] = {
    "F": np.dtype("f"),
    "D": np.dtype("d"),
    "f": np.dtype("f"),
    "d": np.dtype("d"),
}
_Call: TypeAlias = tuple[Kind, bool]  # and whether numbers are conjugated
_CALLS: tuple[tuple[Function, _Call], ...] = (
    (np.fft.fft, ("forward", False)),
    (np.fft.ifft, ("inverse", False)),
    (np.fft.rfft, ("half", False)),
    (np.fft.irfft, ("whole", False)),
    (np.fft.ihfft, ("half", True)),
    (np.fft.hfft, ("whole", True)),
)
# What transforms of several axes begin with, go on with, and end with; their axes.
_FFTS = np.fft.fft, np.fft.fft, None
_INVERSE_FFTS = np.fft.ifft, np.fft.ifft, None
_HALF_FFTS = np.fft.rfft, np.fft.fft, None
_WHOLE_FFTS = None, np.fft.ifft, np.fft.irfft
_LAST_TWO = -2, -1
_SEVERAL: tuple[tuple[Function, tuple[Function | None, Function, Function | None], Any], ...] = (
    (np.fft.fftn, _FFTS, None), (np.fft.fft2, _FFTS, _LAST_TWO),
    (np.fft.ifftn, _INVERSE_FFTS, None), (np.fft.ifft2, _INVERSE_FFTS, _LAST_TWO),
    (np.fft.rfftn, _HALF_FFTS, None), (np.fft.rfft2, _HALF_FFTS, _LAST_TWO),
    (np.fft.irfftn, _WHOLE_FFTS, None), (np.fft.irfft2, _WHOLE_FFTS, _LAST_TWO),
)  # fmt: skip
# The norms with which NumPy multiplies by 1/n, or by 1; with others by sqrt(1/n).
_DIVIDING = {np.fft.fft: "forward", np.fft.rfft: "forward", np.fft.hfft: "forward"}
_NORMS = (None, "backward", "ortho", "forward")


@dataclass(frozen=True, slots=True)
class _Transform:
    """What a call computes, or several that follow each other.

    Attributes
    ----------
    kind : Kind
    operand : Value
        Of the first call.
    axes : tuple of int
        In ascending order; real numbers become half along the last one.
    length : int
        Of real or complex numbers along the axis of the first call, which may cut the operand.
    resized : int
        That axis.
    n : int
        Of real numbers along the last axis, for ``"half"`` and ``"whole"``.
    conjugated : bool
        Whether the operand of ``"whole"`` or the result of ``"half"`` is.
    scale : float
    """

    kind: Kind
    operand: Value
    axes: tuple[int, ...]
    length: int
    resized: int
    n: int
    conjugated: bool
    scale: float


def fourier_calls(program: Program, target: Target) -> Program:
    """Return the program with calls of `fourier` in place of NumPy's transforms, for a GPU."""
    if not isinstance(target, GpuTarget):
        return program
    program = _of_one_axis(program)
    transforms = {v: t for v in program.values if (t := _transform(v)) is not None}
    if not transforms:
        return program
    neighbours = _Neighbours(program)
    merged: set[Value] = set()
    for v in transforms:
        before = v.args[0]
        both = _together(transforms[before], transforms[v]) if before in transforms else None
        if both is not None and neighbours.reads_alone(v):
            transforms[v] = both
            merged.add(before)
    new: dict[Value, Value] = {}

    def rule(b: Builder, v: Value, args: tuple[Value, ...]) -> Value:
        if v in merged:
            new[v] = new.get(v.args[0], v.args[0])  # which nobody reads
        elif v in transforms:
            operand = transforms[v].operand
            early = not neighbours.kernels_read(v) and neighbours.kernel_writes(operand)
            new[v] = _written(b, v, transforms[v], new.get(operand, operand), early)
        else:
            new[v] = renewed(b, v, args)
        return new[v]

    return rebuild(program, rule)


# -- transforms of several axes ----------------------------------------------------------------


def _of_one_axis(program: Program) -> Program:
    """Return the program with a call for each axis of transforms of several."""
    several = {v: calls for v in program.values if (calls := _axes_of(v))}
    if not several:
        return program

    def rule(b: Builder, v: Value, args: tuple[Value, ...]) -> Value:
        if v not in several:
            return renewed(b, v, args)
        (x,) = args
        for function, n, axis, norm in several[v]:
            length = x.shape[axis] if n is None else n
            dtype = np.result_type(v.dtype, np.complex64)
            if function is np.fft.rfft:
                length = length // 2 + 1
            elif function is np.fft.irfft:
                dtype, length = v.dtype, v.shape[axis]
            shape = (*x.shape[:axis], length, *x.shape[axis + 1 :])
            call = PythonCall(function, (Slot(0),), {"n": n, "axis": axis, "norm": norm})
            x = b.make(call, (x,), shape, dtype)
        return x

    return rebuild(program, rule)


def _axes_of(v: Value) -> list[tuple[Function, int | None, int, Any]]:
    """Return the calls that a transform of several axes consists of, in order; else none.

    Each with its length, axis and norm.
    """
    call = v.primitive
    if not isinstance(call, PythonCall) or len(v.args) != 1 or call.args[:1] != (Slot(0),):
        return []
    known = next((x for x in _SEVERAL if call.function is x[0]), None)
    if known is None or v.dtype.char not in _REAL or not (v.size and v.args[0].size):
        return []
    names: dict[str, Any] = dict(zip(("s", "axes", "norm"), call.args[1:], strict=False))
    names |= call.kwargs
    _, (first, others, last), default = known
    s, axes, norm = names.pop("s", None), names.pop("axes", default), names.pop("norm", None)
    if any(x is not None for x in names.values()):
        return []
    if axes is None:
        axes = range(v.ndim) if s is None else range(v.ndim - len(s), v.ndim)
    axes = [int(k) % v.ndim for k in axes]
    lengths = [None if n in (None, -1) else int(n) for n in s or [None] * len(axes)]
    every = list(zip(lengths, axes, strict=True))
    if not every:
        return []
    if last is not None:  # to real numbers at the end
        functions = [others] * (len(every) - 1) + [last]
    else:
        functions = [first or others] + [others] * (len(every) - 1)
        every.reverse()
    return [(f, *x, norm) for f, x in zip(functions, every, strict=True)]


# -- which calls -------------------------------------------------------------------------------


def _transform(v: Value) -> _Transform | None:
    """Return what a value computes if it is a transform; else None."""
    call = v.primitive
    if not isinstance(call, PythonCall) or len(v.args) != 1 or call.args[:1] != (Slot(0),):
        return None
    known = next((c for f, c in _CALLS if call.function is f), None)
    if known is None or call.results is not None or v.dtype.char not in _REAL:
        return None
    names = dict(zip(("n", "axis", "norm"), call.args[1:], strict=False)) | dict(call.kwargs)
    axis, norm = names.pop("axis", -1), names.pop("norm", None)
    names.pop("n", None)
    (x,), (kind, conjugated) = v.args, known
    if norm not in _NORMS or not isinstance(axis, int) or not (v.size and x.size):
        return None
    if any(value is not None for value in names.values()):
        return None
    if not _suits(x, v, kind):
        return None
    axis %= v.ndim
    n = _length(call, x, v, axis, kind)
    across = n // 2 + 1 if kind == "whole" else n
    scale = 1.0
    if norm == "ortho":
        scale = 1 / math.sqrt(n)
    elif (norm or "backward") == _DIVIDING.get(call.function, "backward"):
        scale = 1 / n
    return _Transform(kind, x, (axis,), across, axis, n, conjugated, scale)


def _suits(x: Value, v: Value, kind: Kind) -> bool:
    """Whether operand and result have dtypes that are covered."""
    if kind == "half":
        return x.dtype.kind in "biuf" and x.dtype.char in "?bBhHiIlLqQefd"
    real = _REAL[v.dtype.char]
    if x.dtype.kind == "c":
        return _REAL.get(x.dtype.char) == real
    return x.dtype.char in "?bBhHiIlLqQefd"


def _length(call: PythonCall, x: Value, v: Value, axis: int, kind: Kind) -> int:
    """Return how many numbers a transform is of: of real ones where the other side is half."""
    if kind != "half":
        return v.shape[axis]
    n = call.kwargs.get("n", call.args[1] if len(call.args) > 1 else None)
    return x.shape[axis] if n is None else int(n)  # type: ignore[call-overload]


def _together(first: _Transform, then: _Transform) -> _Transform | None:
    """Return two transforms that follow each other as one; None if there is none."""
    kinds = first.kind, then.kind
    if kinds in (("forward", "forward"), ("inverse", "inverse")):
        kind = then.kind
    elif kinds == ("half", "forward") and not first.conjugated:
        kind = "half"
    elif kinds == ("inverse", "whole") and not then.conjugated:
        kind = "whole"
    else:
        return None
    axes = tuple(sorted((*first.axes, *then.axes)))
    adjacent = axes == tuple(range(axes[0], axes[0] + len(axes)))
    if not adjacent or len(axes) > MOST_AXES:
        return None
    half = first if kind == "half" else then if kind == "whole" else None
    if half is not None and half.axes[-1] != axes[-1]:
        return None
    shape = list(first.operand.shape)
    shape[first.resized] = first.length
    if kind == "half" and then.resized == first.axes[-1]:
        return None
    if shape[then.resized] != then.length:
        return None
    n = half.n if half is not None else then.n
    return replace(first, kind=kind, axes=axes, n=n, scale=first.scale * then.scale)


# -- calls in their place ----------------------------------------------------------------------


class _Neighbours:
    """Which values of a program kernels compute beside a transform."""

    def __init__(self, program: Program) -> None:
        self._outputs = frozenset(program.outputs)
        self._readers: dict[Value, list[Value]] = defaultdict(list)
        for v in program.values:
            for a in dict.fromkeys(v.args):
                self._readers[a].append(v)

    def reads_alone(self, v: Value) -> bool:
        """Whether nothing else reads the operand of a value."""
        (x,) = v.args
        return self._readers[x] == [v] and x not in self._outputs

    def kernels_read(self, v: Value) -> bool:
        """Whether kernels read a value, and nothing else does."""
        if v in self._outputs or not self._readers[v]:
            return False
        return all(
            self.kernels_read(r) if isinstance(r.primitive, View) else _in_kernel(r)
            for r in self._readers[v]
        )

    def kernel_writes(self, x: Value) -> bool:
        """Whether a kernel computes a value, for one reader."""
        while isinstance(x.primitive, View) and len(self._readers[x]) == 1:
            (x,) = x.args
        return len(self._readers[x]) == 1 and x not in self._outputs and _in_kernel(x)


def _in_kernel(v: Value) -> bool:
    """Whether a value is computed among others."""
    return isinstance(v.primitive, Map | Reduce | GatherND) and numeric(v.dtype)


def _written(b: Builder, v: Value, t: _Transform, x: Value, early: bool) -> Value:
    """Make the value of a transform, multiplied before it, if it is to be `early`, or after it."""
    real = _REAL[v.dtype.char]
    x = b.cast(x, real if t.kind == "half" else np.result_type(real, np.complex64))
    x = _resized(b, x, t.resized, t.length)
    if t.conjugated and t.kind == "whole":
        x = b.map("conjugate", x)
    if early:
        x = _scaled(b, x, t.scale)
    call = PythonCall(fourier, (Slot(0), t.kind, t.axes, t.n), {})
    result = b.make(call, (x,), v.shape, v.dtype)
    if t.conjugated and t.kind == "half":
        result = b.map("conjugate", result)
    return result if early else _scaled(b, result, t.scale)


def _scaled(b: Builder, x: Value, scale: float) -> Value:
    if scale == 1:
        return x
    if x.dtype in PAIRS:
        return b.paired(*(_scaled(b, part, scale) for part in b.parts(x)))
    return b.map("multiply", x, b.const(scale, x.dtype))


def _resized(b: Builder, x: Value, axis: int, length: int) -> Value:
    """Cut or fill up an operand."""
    have = x.shape[axis]
    if have >= length:
        return x if have == length else b.slice(x, axis, 0, length)
    shape = (*x.shape[:axis], length - have, *x.shape[axis + 1 :])
    return b.concatenate([x, b.full(shape, 0, x.dtype)], axis)


# -- what they compute, on plain arrays --------------------------------------------------------


def fourier(a: np.ndarray, kind: Kind, axes: tuple[int, ...], n: int) -> np.ndarray:
    """Return a transform along axes, without a factor.

    Parameters
    ----------
    a : ndarray
        Real for ``"half"``, else complex.
    kind : {"forward", "inverse", "half", "whole"}
    axes : tuple of int
        In ascending order, adjacent; real numbers become half along the last one.
    n : int
        Of real numbers along the last axis.
    """
    x: Any = a
    last = axes[-1]
    if kind == "half":
        x = np.fft.rfft(x, n, last, "backward")
    for axis in axes if kind in ("forward", "inverse") else axes[:-1]:
        if kind in ("forward", "half"):
            x = np.fft.fft(x, None, axis, "backward")
        else:
            x = np.fft.ifft(x, None, axis, "forward")
    return x if kind != "whole" else np.fft.irfft(x, n, last, "forward")

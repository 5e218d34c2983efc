"""Products of stacks of matrices of any strides: where they lie if cuBLAS can, else of copies."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import cupy
import numpy as np
from adarray_backends.cuda import cublas, rounding
from adarray_backends.cuda.cublas import Matrix

_HALVES = {"bf16": "bfloat16", "fp16": "float16"}
# Multiply-adds for each element that is read, from which converting operands before the
# product is faster than letting cuBLAS convert on the way.
REUSE = 1100
# Multiply-adds of a product and columns of its result from which on its first operand is copied
# if its columns lie close together: Tensor Cores take tf32 along rows, at twice the rate or nearly.
ACROSS = 1 << 30, 640
_CHARS = {"f": ("float32", 4), "d": ("float64", 8), "e": ("float16", 2)}


class MatrixStack(NamedTuple):
    """Matrices, or a vector, at an address: shape and strides in elements."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def stack_of(x: Any) -> MatrixStack:
    """Return a CuPy array as a `MatrixStack`."""
    size = x.itemsize
    return MatrixStack(x.data.ptr, x.shape, tuple(s // size for s in x.strides))


class _Axis(NamedTuple):
    """A leading axis: length, and the strides of the two operands and of the result."""

    length: int
    strides: tuple[int, int, int]


def _leading(a: MatrixStack, b: MatrixStack, out: MatrixStack) -> list[_Axis]:
    """Return the leading axes with those merged that are one axis in all three arrays."""
    lead = out.shape[:-2]
    columns = []
    for x in (a, b, out):
        shape, strides = x.shape[:-2], x.strides[:-2]
        padding = (0,) * (len(lead) - len(shape))
        columns.append(
            padding + tuple(0 if n == 1 else s for n, s in zip(shape, strides, strict=True))
        )
    axes: list[_Axis] = []
    for length, steps in zip(lead, zip(*columns, strict=True), strict=True):
        if length == 1:
            continue
        if axes and all(s == t * length for s, t in zip(axes[-1].strides, steps, strict=True)):
            axes[-1] = _Axis(axes[-1].length * length, steps)
        else:
            axes.append(_Axis(length, steps))
    return axes


def _matrices(
    a: MatrixStack, b: MatrixStack, out: MatrixStack
) -> tuple[MatrixStack, MatrixStack, MatrixStack]:
    """Return the operands with vectors as matrices of one row or column."""
    if len(a.shape) == 1:
        a = MatrixStack(a.address, (1, *a.shape), (0, *a.strides))
        out = MatrixStack(
            out.address, (*out.shape[:-1], 1, out.shape[-1]), (*out.strides[:-1], 0, 1)
        )
        if len(b.shape) == 1:
            raise ValueError("product: both operands are vectors")
    if len(b.shape) == 1:
        b = MatrixStack(b.address, (*b.shape, 1), (*b.strides, 0))
        out = MatrixStack(out.address, (*out.shape, 1), (*out.strides, 1))
    return a, b, out


def product(
    a: MatrixStack, b: MatrixStack, out: MatrixStack, dtype: str, precision: str = "float32",
    to: Any = cublas.DIRECT,
) -> None:  # fmt: skip
    """Write ``numpy.matmul(a, b)`` to `out`, in C order, on the current stream.

    Parameters
    ----------
    a, b, out : MatrixStack
        None of them empty, and at most one operand a vector.
    dtype : {"float32", "float64", "float16"}
    precision : {"float32", "tf32", "bf16", "fp16"}
        What float32 operands are rounded to; sums are float32.
    to : cublas.DirectCalls
        Takes the launches.
    """
    form = _single(*a[1:], *b[1:], *out[1:], dtype, precision)
    if form is not None:
        to.multiply(b.address, a.address, out.address, form)
    else:
        _general(*_matrices(a, b, out), dtype, precision, to)


def _half(m: int, n: int, dtype: str, precision: str) -> str:
    """Return what operands are converted to before the product; nothing if not."""
    worth = dtype == "float32" and m * n >= REUSE * (m + n)
    return _HALVES.get(precision, "") if worth else ""


@functools.lru_cache(maxsize=4096)
def _single(
    shape_a: tuple[int, ...], strides_a: tuple[int, ...], shape_b: tuple[int, ...],
    strides_b: tuple[int, ...], shape: tuple[int, ...], strides: tuple[int, ...], dtype: str,
    precision: str,
) -> tuple[int, ...] | None:  # fmt: skip
    """Return the numbers of a product that is a single call; None if it is not."""
    a, b, out = _matrices(MatrixStack(0, shape_a, strides_a), MatrixStack(0, shape_b, strides_b),
                          MatrixStack(0, shape, strides))  # fmt: skip
    if _half(*out.shape[-2:], dtype, precision) or not (_readable(a) and _readable(b)):
        return None
    if _across(a, b, dtype, precision):
        return None
    axes = _leading(a, b, out)
    if len(axes) > 1:
        return None
    (batch,) = axes or [_Axis(1, (0, 0, 0))]
    matrices = (
        Matrix(0, *x.shape[-2:], (x.strides[-2], x.strides[-1]), batch.length, step)
        for x, step in zip((a, b, out), batch.strides, strict=True)
    )
    return cublas.numbers(*matrices, dtype, precision)


def _general(
    a: MatrixStack, b: MatrixStack, out: MatrixStack, dtype: str, precision: str, to: Any
) -> None:
    """Multiply with several calls, or copies."""
    m, k = a.shape[-2:]
    n = b.shape[-1]
    half = _half(m, n, dtype, precision)
    wanted = half or dtype
    across = not half and _across(a, b, dtype, precision)
    rooms = [0, 0]
    for i, x in enumerate((a, b)):
        if half or not _readable(x):
            rooms[i] = _room(x, wanted)
    if across:
        rooms[0] = -(-4 * m * rounding.pitch_of(k) // 256) * 256
    if any(rooms):
        place = to.room(sum(rooms))
        if across:
            a = _transposed(a, place, to)
        elif rooms[0]:
            a = _copied(a, place, dtype, wanted, to)
        b = _copied(b, place + rooms[0], dtype, wanted, to) if rooms[1] else b
    axes = _leading(a, b, out)
    batch = max(axes, key=lambda x: x.length, default=_Axis(1, (0, 0, 0)))
    loops = [x for x in axes if x is not batch]
    sizes = rounding.size_of(wanted), rounding.size_of(wanted), rounding.size_of(dtype)
    shapes = (m, k), (k, n), (m, n)
    for index in itertools.product(*(range(x.length) for x in loops)):
        operands = [
            Matrix(
                x.address
                + sizes[i] * sum(j * ax.strides[i] for j, ax in zip(index, loops, strict=True)),
                *shapes[i],
                (x.strides[-2], x.strides[-1]),
                batch.length,
                batch.strides[i],
            )
            for i, x in enumerate((a, b, out))
        ]
        cublas.multiply(*operands, dtype, precision, half, to)  # type: ignore[arg-type]


def _readable(x: MatrixStack) -> bool:
    """Whether cuBLAS can read the matrices where they lie."""
    row, column = x.strides[-2:]
    rows, columns = x.shape[-2:]
    forward = all(s >= 0 for s in x.strides)
    return forward and cublas.suits(Matrix(x.address, rows, columns, (row, column)))


def _across(a: MatrixStack, b: MatrixStack, dtype: str, precision: str) -> bool:
    """Whether the first operand is worth transposing for Tensor Cores."""
    if dtype != "float32" or precision == "float32" or len(a.shape) > 2 or len(b.shape) > 2:
        return False
    (m, k), n = a.shape, b.shape[1]
    least, columns = ACROSS
    lies = m > 1 and k > 1 and a.strides[0] == 1 and a.strides[1] >= m
    return lies and n >= columns and m * n * k >= least


def _transposed(x: MatrixStack, to: int, through: Any) -> MatrixStack:
    """Return a copy of a matrix whose columns lie close together, with close rows."""
    m, k = x.shape
    rounding.transpose(x.address, to, k, m, x.strides[1], through)
    return MatrixStack(to, x.shape, (rounding.pitch_of(k), 1))


def _copied_axes(x: MatrixStack) -> tuple[list[tuple[int, int]], bool]:
    """Return lengths and strides of a copy's leading axes, and if it lies in columns.

    Axes along which nothing changes are not copied.
    """
    lead = [(n, s) for n, s in zip(x.shape[:-2], x.strides[:-2], strict=True) if n > 1 and s]
    row, column = (abs(s) for s in x.strides[-2:])
    return lead, x.shape[-2] > 1 and (row < column or x.shape[-1] == 1) and row > 0


def _room(x: MatrixStack, wanted: str) -> int:
    lead, transposed = _copied_axes(x)
    rows, columns = x.shape[-2:][::-1] if transposed else x.shape[-2:]
    count = math.prod(n for n, _ in lead) * rows * rounding.pitch_of(columns)
    return -(-count * rounding.size_of(wanted) // 256) * 256


def _copied(x: MatrixStack, to: int, stored: str, wanted: str, through: Any) -> MatrixStack:
    """Return a copy whose matrices are dense, in the order in which they lie."""
    lead, transposed = _copied_axes(x)
    inner = list(zip(x.shape[-2:], x.strides[-2:], strict=True))
    if transposed:
        inner.reverse()
    pitch = rounding.pitch_of(inner[1][0])
    size = inner[0][0] * pitch
    *loops, first, second = [(1, 0), (1, 0), *lead]  # the kernel knows two leading axes
    shape, strides = zip(first, second, *inner, strict=True)
    done = to
    for index in itertools.product(*(range(n) for n, _ in loops)):
        start = sum(j * s for j, (_, s) in zip(index, loops, strict=True))
        place = x.address + start * rounding.size_of(stored)
        rounding.copy(place, done, shape, strides, stored, wanted, through)
        done += first[0] * second[0] * size * rounding.size_of(wanted)
    steps, step = [], size
    for n, s in reversed(list(zip(x.shape[:-2], x.strides[:-2], strict=True))):
        varies = n > 1 and s
        steps.append(step if varies else 0)
        step *= n if varies else 1
    return MatrixStack(to, x.shape, (*reversed(steps), *((1, pitch) if transposed else (pitch, 1))))


# -- of CuPy's arrays ------------------------------------------------------------------------------


def suits(a: Any, b: Any) -> bool:
    """Whether `matmul` multiplies two arrays: stacks of matrices that are not empty.

    Products with vectors read a matrix once, whatever the precision: CuPy has fast ones.
    """
    return (
        a.dtype == b.dtype
        and a.dtype.char in _CHARS
        and a.ndim > 1
        and b.ndim > 1
        and a.size > 0
        and b.size > 0
        and a.shape[-1] == b.shape[-2]
    )


def matmul(a: Any, b: Any, precision: str) -> Any:
    """Return ``numpy.matmul`` of two arrays that suit."""
    shape_a, shape_b = a.shape, b.shape
    if len(shape_a) > 2 and len(shape_b) == 2 and a.flags.c_contiguous:  # one long product
        result = matmul(a.reshape(-1, shape_a[-1]), b, precision)
        return result.reshape(*shape_a[:-1], shape_b[-1])
    if len(shape_a) == 2 and len(shape_b) == 2:
        out = cupy.empty((shape_a[0], shape_b[1]), a.dtype)
    else:
        lead = np.broadcast_shapes(shape_a[:-2], shape_b[:-2])
        out = cupy.empty((*lead, shape_a[-2], shape_b[-1]), a.dtype)
    name, size = _CHARS[a.dtype.char]
    product(*(MatrixStack(x.data.ptr, x.shape, tuple([s // size for s in x.strides]))
              for x in (a, b, out)), name, precision)  # fmt: skip
    return out


def einsum(subscripts: str, a: Any, b: Any, precision: str) -> Any:
    """Return ``numpy.einsum`` of two arrays as one product; None if it is none.

    Axes are permuted, never copied, where cuBLAS can step through the groups of axes.
    """
    left, arrow, right = subscripts.replace(" ", "").partition("->")
    terms = left.split(",")
    if not arrow or "." in subscripts or len(terms) != 2:
        return None
    s, t = terms
    if len(set(s)) < len(s) or len(set(t)) < len(t) or len(s) != a.ndim or len(t) != b.ndim:
        return None
    summed = [c for c in s if c in t and c not in right]
    batch = [c for c in right if c in s and c in t]
    rows = [c for c in right if c in s and c not in t]
    columns = [c for c in right if c in t and c not in s]
    if set(s) != {*summed, *batch, *rows} or set(t) != {*summed, *batch, *columns}:
        return None
    if not summed or not rows or not columns:
        return None
    if any(a.shape[s.index(c)] != b.shape[t.index(c)] for c in (*summed, *batch)):
        return None
    x, y = _grouped(a, s, batch, rows, summed), _grouped(b, t, batch, summed, columns)
    if not suits(x, y):
        return None
    result = matmul(x, y, precision)
    shape = [a.shape[s.index(c)] for c in (*batch, *rows)]
    result = result.reshape(*shape, *(b.shape[t.index(c)] for c in columns))
    letters = [*batch, *rows, *columns]
    return result.transpose([letters.index(c) for c in right])


def _grouped(x: Any, term: str, batch: Sequence[str], *groups: Sequence[str]) -> Any:
    """Return a stack of matrices: batch axes, then two groups of axes, each as one."""
    order = [term.index(c) for c in (*batch, *groups[0], *groups[1])]
    transposed = x.transpose(order)
    sizes = [math.prod(x.shape[term.index(c)] for c in group) for group in groups]
    return transposed.reshape(*(x.shape[term.index(c)] for c in batch), *sizes)

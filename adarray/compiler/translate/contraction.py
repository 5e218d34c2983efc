"""Products summed over shared axes: matrix products, views, multiplications and sums."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from adarray.base.recording import Symbol
from adarray.compiler.ir import views
from adarray.compiler.ir.builder import PAIRS, Builder
from adarray.compiler.ir.program import Value, c_strides
from adarray.compiler.translate import (
    Translated,
    ValueCall,
    axes_of,
    function,
    ndim_of,
    of_pairs,
    record,
)
from adarray.compiler.translate.elementwise import apply_ufunc


def matmul(b: Builder, x: Value, y: Value) -> Value | None:
    """Return ``np.matmul(x, y)`` of floating-point or complex numbers of one dtype."""
    if x.ndim == 0 or y.ndim == 0:
        return None
    if x.shape[-1] == 1:  # nothing is summed
        left = b.reshape(x, x.shape[:-1])
        if y.ndim == 1:
            return b.map("multiply", left, b.reshape(y, ()))
        row = b.reshape(y, (*y.shape[:-2], y.shape[-1]))
        if x.ndim == 1:
            return b.map("multiply", left, row)
        row = b.reshape(row, (*row.shape[:-1], 1, row.shape[-1]))
        return b.map("multiply", x, row)
    return b.matmul(x, y)


def _floats(b: Builder, operands: Iterable[object], result: Symbol) -> list[Value] | None:
    """Return the operands in the result's dtype, if it is floating point or complex."""
    if result.dtype.kind != "f" and result.dtype not in PAIRS:
        return None
    return [b.value(x, result.dtype) for x in operands]


of_pairs(
    "matmul", "matvec", "vecmat", "vecdot", "einsum", np.dot, np.inner, np.vdot, np.outer,
    np.tensordot,
)  # fmt: skip


@record("matmul")
def _matmul(b: Builder, call: ValueCall) -> Translated:
    args = _floats(b, call.operands, call.result)
    return None if args is None else matmul(b, *args)


def _conjugate(b: Builder, x: Value) -> Value:
    return b.map("conjugate", x) if x.dtype in PAIRS else x


@record("matvec")
def _matvec(b: Builder, call: ValueCall) -> Translated:
    args = _floats(b, call.operands, call.result)
    if args is None:
        return None
    x, y = args
    if y.ndim == 1:
        return matmul(b, x, y)
    r = matmul(b, x, b.reshape(y, (*y.shape, 1)))
    return None if r is None else b.reshape(r, r.shape[:-1])


@record("vecmat")
def _vecmat(b: Builder, call: ValueCall) -> Translated:
    args = _floats(b, call.operands, call.result)
    if args is None:
        return None
    x, y = args
    if x.ndim == 1:
        return matmul(b, x, y)
    r = matmul(b, b.reshape(x, (*x.shape[:-1], 1, x.shape[-1])), y)
    return None if r is None else b.reshape(r, (*r.shape[:-2], r.shape[-1]))


@record("vecdot")
def _vecdot(b: Builder, call: ValueCall) -> Translated:
    args = _floats(b, call.operands, call.result)
    if args is None:
        return None
    x, y = args
    both = b.map("multiply", _conjugate(b, x), y)
    return b.reduce("add", both, (both.ndim - 1,))


# -- einsum ------------------------------------------------------------------------------------


@record("einsum")
def _einsum(b: Builder, call: ValueCall) -> Translated:
    args = _floats(b, call.operands, call.result)
    if args is None:
        return None
    subscripts = call.params["subscripts"]
    assert isinstance(subscripts, str)
    left, right = subscripts.split("->")
    return einsum(b, left.split(","), args, right)


def einsum(b: Builder, terms: Sequence[str], operands: Sequence[Value], right: str) -> Value | None:
    """Contract operands pair by pair, in the order that NumPy finds."""
    sizes: dict[str, int] = {}
    for term, x in zip(terms, operands, strict=True):
        for c, n in zip(term, x.shape, strict=True):
            sizes[c] = n if sizes.get(c, 1) == 1 else sizes[c]
    if any(sizes[c] not in (n, 1) and n != 1
           for t, x in zip(terms, operands, strict=True)
           for c, n in zip(t, x.shape, strict=True)):  # fmt: skip
        return None
    parts = [_diagonal(b, t, x) for t, x in zip(terms, operands, strict=True)]
    for step in _path(parts, right):
        chosen = [parts[k] for k in step]
        parts = [p for k, p in enumerate(parts) if k not in step]
        wanted = set(right).union(*(t for t, _ in parts))
        term, x = chosen[0]
        for k in range(1, len(chosen)):
            needed = wanted.union(*(t for t, _ in chosen[k + 1 :]))
            term, x = _pair(b, term, x, *chosen[k], needed)
        parts.append((term, x))
    term, x = _summed(b, *parts[0], set(right))
    if sorted(term) != sorted(right):
        return None
    x = b.transpose(x, [term.index(c) for c in right])
    return b.broadcast(x, tuple(sizes[c] for c in right))


def _path(parts: Sequence[tuple[str, Value]], right: str) -> list[tuple[int, ...]]:
    """Return which operands to contract in each step."""
    if len(parts) < 3:
        return [tuple(range(len(parts)))]
    text = ",".join(t for t, _ in parts) + "->" + right
    shapes = [np.broadcast_to(0.0, x.shape) for _, x in parts]
    path: list[tuple[int, ...]] = np.einsum_path(text, *shapes, optimize="greedy")[0][1:]
    return path


def _diagonal(b: Builder, term: str, x: Value) -> tuple[str, Value]:
    """Return the diagonal over letters that stand twice in a term."""
    letters = "".join(dict.fromkeys(term))
    if len(letters) == len(term):
        return term, x
    strides = c_strides(x.shape)
    lengths = dict(sorted(zip(term, x.shape, strict=True), key=lambda p: p[1]))
    steps = tuple(
        sum(s for t, s, n in zip(term, strides, x.shape, strict=True) if t == c and n != 1)
        for c in letters
    )
    return letters, b.view(x, 0, steps, tuple(lengths[c] for c in letters))


def _summed(b: Builder, term: str, x: Value, wanted: set[str]) -> tuple[str, Value]:
    """Sum over the letters that nothing else needs."""
    axes = tuple(i for i, c in enumerate(term) if c not in wanted)
    if not axes:
        return term, x
    return "".join(c for c in term if c in wanted), b.reduce("add", x, axes)


def _pair(b: Builder, s: str, x: Value, t: str, y: Value, wanted: set[str]) -> tuple[str, Value]:
    """Contract two operands, keeping the letters in `wanted`."""
    s, x = _summed(b, s, x, wanted | set(t))
    t, y = _summed(b, t, y, wanted | set(s))
    summed = [
        c for c in s if c in t and c not in wanted and _length(s, x, c) == _length(t, y, c) != 1
    ]
    batch = [c for c in s if c in t and c not in summed]
    rows = [c for c in s if c not in t]
    columns = [c for c in t if c not in s]
    letters = "".join(batch + rows + columns)
    if not summed or not (rows or columns):
        terms = b.map(
            "multiply", _spread(b, s, x, letters, summed), _spread(b, t, y, letters, summed)
        )
        r = b.reduce("add", terms, range(len(letters), terms.ndim))
    else:
        left = _grouped(b, s, x, batch, rows, summed)
        right = _grouped(b, t, y, batch, summed, columns)
        multiplied = matmul(b, left, right)
        assert multiplied is not None
        lead = views.broadcast_shape([left.shape[:-2], right.shape[:-2]])
        shape = (*lead, *(_length(s, x, c) for c in rows), *(_length(t, y, c) for c in columns))
        r = b.reshape(multiplied, shape)
    # A letter of length 1 on both sides that is not wanted is left over.
    return _summed(b, letters, r, wanted)


def _length(term: str, x: Value, letter: str) -> int:
    return x.shape[term.index(letter)]


def _spread(b: Builder, term: str, x: Value, letters: str, summed: Sequence[str]) -> Value:
    """Bring the axes of `x` in the order of `letters` and `summed`, of length 1 where missing."""
    wanted = [*letters, *summed]
    x = b.transpose(x, [term.index(c) for c in wanted if c in term])
    lengths = iter(x.shape)
    return b.reshape(x, tuple(next(lengths) if c in term else 1 for c in wanted))


def _grouped(
    b: Builder, term: str, x: Value, batch: list[str], first: list[str], second: list[str]
) -> Value:
    """Return a stack of matrices: batch axes, then two groups of axes, each as one."""
    order = [term.index(c) for c in (*batch, *first, *second)]
    sizes = [math.prod(_length(term, x, c) for c in group) for group in (first, second)]
    lead = tuple(_length(term, x, c) for c in batch)
    return b.reshape(b.transpose(x, order), (*lead, *sizes))


# -- functions without a record ----------------------------------------------------------------


@function(np.dot)
def _dot(b: Builder, call: ValueCall) -> Translated:
    args = call.bound("a", "b", "out")
    if args is None:
        return None
    if 0 in (ndim_of(args["a"]), ndim_of(args["b"])):
        return apply_ufunc(b, np.multiply, (args["a"], args["b"]))
    both = _floats(b, (args["a"], args["b"]), call.result)
    if both is None:
        return None
    x, y = both
    return contract(b, x, y, (x.ndim - 1,), (max(y.ndim - 2, 0),))


@function(np.inner)
def _inner(b: Builder, call: ValueCall) -> Translated:
    both = _floats(b, call.operands, call.result)
    if both is None or min(x.ndim for x in both) == 0:
        return None
    x, y = both
    return contract(b, x, y, (x.ndim - 1,), (y.ndim - 1,))


@function(np.vdot)
def _vdot(b: Builder, call: ValueCall) -> Translated:
    both = _floats(b, call.operands, call.result)
    if both is None:
        return None
    x, y = (b.reshape(v, (v.size,)) for v in both)
    return contract(b, _conjugate(b, x), y, (0,), (0,))


@function(np.outer)
def _outer(b: Builder, call: ValueCall) -> Translated:
    if len(call.operands) != 2 or call.params:
        return None
    x, y = (b.value(v) for v in call.operands)
    columns = b.reshape(x, (x.size, 1)), b.reshape(y, (1, y.size))
    return apply_ufunc(b, np.multiply, columns)


@function(np.tensordot)
def _tensordot(b: Builder, call: ValueCall) -> Translated:
    args = call.bound("a", "b", "axes")
    if args is None:
        return None
    both = _floats(b, (args["a"], args["b"]), call.result)
    if both is None:
        return None
    x, y = both
    axes = axes_of(args.get("axes", 2))
    if isinstance(axes, int):
        return contract(b, x, y, range(x.ndim - axes, x.ndim), range(axes))
    of_x, of_y = (np.atleast_1d(np.asarray(a, int)).tolist() for a in axes)
    return contract(b, x, y, [i % x.ndim for i in of_x], [i % y.ndim for i in of_y])


def contract(
    b: Builder, x: Value, y: Value, axes_x: Sequence[int], axes_y: Sequence[int]
) -> Value | None:
    """Sum products over pairs of axes; the other axes of `x`, then those of `y`, remain."""
    letters = [chr(97 + i) for i in range(x.ndim + y.ndim)]
    of_x, of_y = letters[: x.ndim], letters[x.ndim :]
    for i, k in zip(axes_x, axes_y, strict=True):
        of_y[k] = of_x[i]
    right = [c for i, c in enumerate(of_x) if i not in axes_x]
    right += [c for i, c in enumerate(of_y) if i not in axes_y]
    return einsum(b, ["".join(of_x), "".join(of_y)], [x, y], "".join(right))

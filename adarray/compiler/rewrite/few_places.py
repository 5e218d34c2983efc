"""Sums of many pieces at few places, on a GPU: each place adds up all pieces that are its own.

Threads that add to few elements wait for each other. A sum over all pieces, of zeros where a piece
goes elsewhere, is a fold like others: threads have a part of each sum, what they add is computed
in the same kernel, and the order does not vary.

References
----------
- J. Gómez-Luna, J. M. González-Linares, J. I. Benavides, N. Guil, "An optimized approach to
  histogram computation on GPU", Machine Vision and Applications 24 (2013), 899-908
  (privatisation).
"""

from __future__ import annotations

import numpy as np

from adarray.compiler.ir.builder import INT, Builder, number_of, uniform
from adarray.compiler.ir.primitives import ScatterND
from adarray.compiler.ir.program import Program, Value, c_strides
from adarray.compiler.ir.target import Target
from adarray.compiler.rewrite.rebuild import rebuild, renewed

PLACES = 16  # elements of a result that is folded, at most
PIECES = 1 << 14  # pieces, at least


def few_places(program: Program, target: Target) -> Program:
    """Return the program with folds in place of scatters of many pieces to few places."""
    if not target.along or not any(_is_fold(v) for v in program.values):
        return program
    return rebuild(program, _folded)


def _is_fold(v: Value) -> bool:
    p = v.primitive
    if not isinstance(p, ScatterND) or not p.add or v.dtype == np.bool_:
        return False
    first = p.axes[0] == p.position and p.axes == tuple(range(p.axes[0], p.axes[0] + len(p.axes)))
    # Of one place nothing would say which indices are in range.
    several = all(v.shape[a] > 1 for a in p.axes)
    return first and several and v.size <= PLACES and v.args[2].size >= PIECES


def _folded(b: Builder, v: Value, args: tuple[Value, ...]) -> Value:
    """Return the sums of all pieces, place by place."""
    p = v.primitive
    if not _is_fold(v) or not isinstance(p, ScatterND):
        return renewed(b, v, args)
    base, piece, *indices = args
    at, first, count = indices[0].shape, p.position, len(p.axes)
    extents = v.shape[first : first + count]
    here = b.full(at, 0, INT)
    for i, n, step in zip(indices, extents, c_strides(extents), strict=True):
        wrapped = b.gather(b.iota((n,), 0), [i], (0,), 0)  # refuses what is out of range
        here = b.map("add", here, b.map("multiply", wrapped, b.const(step, INT)))
    strides = c_strides(piece.shape)
    ahead, rest = strides[first : first + len(at)], (*strides[:first], *strides[first + len(at) :])
    numbers = b.iota((v.size,), 0)
    total = b.full((v.size,), 0, piece.dtype)
    for k, index in enumerate(np.ndindex(v.shape)):
        fixed = (*index[:first], *index[first + count :])
        offset = sum(i * s for i, s in zip(fixed, rest, strict=True))
        place = sum(
            i * s for i, s in zip(index[first : first + count], c_strides(extents), strict=True)
        )
        own = b.map("equal", here, b.const(place, INT))
        terms = b.map("where", own, b.view(piece, offset, ahead, at), b.const(0, piece.dtype))
        mine = b.map("equal", numbers, b.const(k, INT))
        total = b.map("where", mine, b.reduce("add", terms, range(len(at))), total)
    total = b.reshape(total, v.shape)
    start = uniform(base)
    return total if start is not None and number_of(start) == 0 else b.map("add", base, total)

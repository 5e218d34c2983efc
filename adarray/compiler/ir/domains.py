"""Which elements of its operands an element of a value reads.

An `AffineIndex` gives one index of an operand as ``const + sum(coef * index[axis])`` of the
reader's indices. Views, broadcasting, regions and pieces all come down to one map per axis, which
makes fusion a question of comparing maps.

References
----------
- R. Allen, K. Kennedy, "Optimizing Compilers for Modern Architectures", Morgan Kaufmann 2001.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

from adarray.compiler.ir.primitives import View
from adarray.compiler.ir.program import Value, c_strides
from adarray.compiler.ir.views import digits

Shape = tuple[int, ...]


class AffineIndex(NamedTuple):
    """One index as an affine function of others: ``terms`` are ``(axis, coefficient)``."""

    const: int
    terms: tuple[tuple[int, int], ...]


Maps = tuple[AffineIndex, ...]
ZERO = AffineIndex(0, ())
# Long programs repeat themselves: answers about maps that are remembered.
REMEMBERED = 1 << 14


class Access(NamedTuple):
    """What a value, seen through views, reads of the value at their root.

    Parameters
    ----------
    root : Value
        No view.
    maps : tuple of AffineIndex or None
        Index along each axis of the root; None where only `offset` and `strides` tell it.
    offset, strides
        The same, counted in elements of the root in C order.
    """

    root: Value
    maps: Maps | None
    offset: int
    strides: Shape


class Use(NamedTuple):
    """A reading of `root`, by indices of the reader's domain; see `Access`."""

    root: Value
    maps: Maps | None
    offset: int
    strides: Shape


@lru_cache(REMEMBERED)
def identity(shape: Shape) -> Maps:
    """Return maps of an array of `shape` onto itself."""
    return tuple(AffineIndex(0, ((a, 1),)) if n != 1 else ZERO for a, n in enumerate(shape))


@lru_cache(REMEMBERED)
def decompose(offset: int, strides: Shape, shape: Shape, base: Shape) -> Maps | None:
    """Return a view of an array of shape `base` as one map per axis, None if there is none."""
    radix = c_strides(base)
    low = digits(offset, radix) if base else []
    start, high = list(low), list(low)
    terms: list[list[tuple[int, int]]] = [[] for _ in base]
    for axis, (s, n) in enumerate(zip(strides, shape, strict=True)):
        if n == 1 or s == 0:
            continue
        for a, d in enumerate(digits(abs(s), radix)):
            if not d:
                continue
            d = d if s > 0 else -d
            terms[a].append((axis, d))
            (high if d > 0 else low)[a] += d * (n - 1)
    if 0 not in shape and (
        any(a < 0 for a in low) or any(b >= n for b, n in zip(high, base, strict=True))
    ):
        return None
    return tuple(AffineIndex(c, tuple(t)) for c, t in zip(start, terms, strict=True))


@lru_cache(REMEMBERED)
def substitute(maps: Maps, inner: Maps) -> Maps:
    """Return `maps` with each index replaced by what `inner` says it is."""
    substituted = []
    for m in maps:
        const, terms = m.const, dict[int, int]()
        for axis, coef in m.terms:
            const += coef * inner[axis].const
            for other, c in inner[axis].terms:
                terms[other] = terms.get(other, 0) + coef * c
        substituted.append(AffineIndex(const, tuple((a, c) for a, c in sorted(terms.items()) if c)))
    return tuple(substituted)


@lru_cache(REMEMBERED)
def linear(maps: Maps, strides: Shape) -> AffineIndex:
    """Return the element that `maps` reach in an array of the given strides, as one map."""
    const, terms = 0, dict[int, int]()
    for m, stride in zip(maps, strides, strict=True):
        const += m.const * stride
        for axis, coef in m.terms:
            terms[axis] = terms.get(axis, 0) + coef * stride
    return AffineIndex(const, tuple((a, c) for a, c in sorted(terms.items()) if c))


@lru_cache(REMEMBERED)
def strided(offset: int, strides: Shape) -> AffineIndex:
    """Return the element at some indices of what has these strides, as one map."""
    return AffineIndex(offset, tuple((a, s) for a, s in enumerate(strides) if s))


def whole(value: Value) -> Access:
    """Return the access of a value that is no view, to itself."""
    return Access(value, identity(value.shape), 0, c_strides(value.shape))


def through(view: View, value: Value, operand: Access) -> Access | None:
    """Return what a view reads of the root of its operand, None if no strides say it."""
    offset, strides = view.offset, view.strides
    below = value.args[0]
    maps = decompose(offset, strides, value.shape, below.shape)
    if maps is not None:
        step = linear(maps, operand.strides)
        coefs = dict(step.terms)
        along = tuple(coefs.get(a, 0) for a in range(value.ndim))
        inner = operand.maps and substitute(operand.maps, maps)
        return Access(operand.root, inner, operand.offset + step.const, along)
    if operand.strides == c_strides(below.shape) or below.size == 1:
        # The operand's elements follow one another, as in a reshape.
        offset += operand.offset
        maps = decompose(offset, strides, value.shape, operand.root.shape)
        return Access(operand.root, maps, offset, strides)
    return None


@lru_cache(REMEMBERED)
def _shifted(shape: Shape, lead: int) -> Maps:
    """Return maps of an array of `shape` onto itself behind `lead` more axes."""
    return tuple(AffineIndex(0, ((a + lead, 1),)) if n != 1 else ZERO for a, n in enumerate(shape))


def spread(access: Access, shape: Shape, ndim: int) -> Use:
    """Return `access`, of an operand of `shape`, by indices of `ndim` axes it broadcasts to."""
    lead = ndim - len(shape)
    if not shape:
        return Use(access.root, access.maps, access.offset, (0,) * ndim)
    if not lead and 1 not in shape:
        return Use(access.root, access.maps, access.offset, access.strides)
    maps = None if access.maps is None else substitute(access.maps, _shifted(shape, lead))
    strides = (0,) * lead + tuple(
        s if n != 1 else 0 for s, n in zip(access.strides, shape, strict=True)
    )
    return Use(access.root, maps, access.offset, strides)


@lru_cache(REMEMBERED)
def _behind(shape: Shape, offsets: Shape) -> Maps:
    """Return maps of an array of `shape` onto indices that are smaller by `offsets`."""
    return tuple(
        AffineIndex(-o, ((a, 1),)) if n != 1 else ZERO
        for a, (o, n) in enumerate(zip(offsets, shape, strict=True))
    )


def moved(access: Access, shape: Shape, offsets: Shape) -> Use:
    """Return `access`, of an operand of `shape`, by indices that are `offsets` larger."""
    maps = None if access.maps is None else substitute(access.maps, _behind(shape, offsets))
    strides = tuple(s if n != 1 else 0 for s, n in zip(access.strides, shape, strict=True))
    offset = access.offset - sum(s * o for s, o in zip(strides, offsets, strict=True))
    return Use(access.root, maps, offset, strides)


def aligned(m: AffineIndex, extent: int, shape: Shape) -> int:
    """Return the axis of `shape` that a map follows from end to end, -1 if there is none."""
    if m.const or len(m.terms) != 1:
        return -1
    axis, coef = m.terms[0]
    return axis if coef == 1 and axis < len(shape) and shape[axis] == extent else -1


def elements(shape: Shape) -> int:
    """Return the number of elements of an array of `shape`."""
    return math.prod(shape)

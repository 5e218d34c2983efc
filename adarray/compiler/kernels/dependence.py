"""Whether a kernel may write over memory that it reads: where its elements come from.

A kernel computes the elements of a piece in any order: threads share them, and vectors hold
several. What an element is computed from is read before that element is written, since it
depends on it. So a piece may be written over what it is computed from if no element of it
reads the place of *another* one. Both places are affine functions of an element's index; no
order, sign or step of either is special.

References
----------
- R. Allen, K. Kennedy, "Optimizing Compilers for Modern Architectures", Morgan Kaufmann 2001,
  chapters 2 and 3.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from math import gcd

from adarray.compiler.ir.domains import AffineIndex, Shape, decompose, identity, strided, substitute
from adarray.compiler.ir.primitives import Concatenate, Constant, Iota, Map, UpdateSlice, View
from adarray.compiler.ir.program import Value
from adarray.compiler.kernels.nodes import KernelNode, Operation, Ref

# Nodes whose elements are computed from elements at maps of their own indices.
ELEMENTWISE: frozenset[type[Operation]] = frozenset({
    Map, View, Constant, Iota, UpdateSlice, Concatenate,
})  # fmt: skip


def reads(ref: Ref, shape: Shape, memories: Collection[Value]) -> Iterable[AffineIndex | None]:
    """Yield which elements of some arrays the elements of a piece are computed from.

    Parameters
    ----------
    ref : Ref
        The piece, by its own indices.
    shape : tuple of int
        Of the piece.
    memories : collection of Value
        Those whose memory it is about.

    Yields
    ------
    AffineIndex or None
        An element, as a function of the index in the piece; None where nothing is known.
    """
    seen = set()
    stack = [(ref, identity(shape))]
    while stack:
        r, index = stack.pop()
        if r.memory is not None:
            if r.memory.value in memories:
                known = r.at is not None and all(a < len(index) for a, _ in r.at.terms)
                yield _at(r.at, index) if r.at is not None and known else None
            continue
        node = r.node
        assert node is not None
        if r.maps is None or any(a >= len(index) for m in r.maps for a, _ in m.terms):
            if _reaches(node, memories):
                yield None
            continue
        inner = substitute(r.maps, index)
        if (node, inner) in seen:
            continue
        seen.add((node, inner))
        if type(node.operation) in ELEMENTWISE and len(node.shape) == len(inner):
            stack += [(a, inner) for a in node.args]
        elif _reaches(node, memories):
            yield None


def _at(place: AffineIndex, index: tuple[AffineIndex, ...]) -> AffineIndex:
    """Return a place that is a function of indices which are functions themselves."""
    return substitute((place,), index)[0]


def _reaches(node: KernelNode, memories: Collection[Value]) -> bool:
    """Whether anything that a node is computed from is read from some arrays."""
    seen = {node}
    stack = [node]
    while stack:
        for r in stack.pop().args:
            if r.memory is not None and r.memory.value in memories:
                return True
            if r.node is not None and r.node not in seen:
                seen.add(r.node)
                stack.append(r.node)
    return False


def meets(read: AffineIndex | None, offset: int, strides: Shape, shape: Shape, base: Shape) -> bool:
    """Whether an element of a piece may be computed from the place of another one.

    Parameters
    ----------
    read : AffineIndex or None
        The element of an array that an element of the piece is computed from.
    offset, strides
        Where in the same array the elements of the piece are written: each in its own place.
    shape : tuple of int
        Of the piece.
    base : tuple of int
        Shape of the array, which lies in C order.

    Returns
    -------
    bool
        False only if it is certain.

    Examples
    --------
    >>> backwards = AffineIndex(4, ((0, -2),))
    >>> meets(backwards, 0, (2,), (3,), (5,)), meets(AffineIndex(1, ((0, 2),)), 0, (2,), (2,), (5,))
    (True, False)
    """
    if read is None:
        return True
    write = strided(offset, strides)
    coefs = dict(read.terms)
    steps = tuple(coefs.get(a, 0) for a in range(len(shape)))
    if apart(read, write, shape):
        return False
    if all(n == 1 or steps[a] == strides[a] for a, n in enumerate(shape)):
        return read.const != write.const
    reading = decompose(read.const, steps, shape, base)
    writing = decompose(offset, strides, shape, base)
    if reading is None or writing is None:
        return True
    same = set()
    for r, w in zip(reading, writing, strict=True):
        if apart(r, w, shape):
            return False
        if r == w and len(w.terms) == 1:  # equal places, so equal indices
            same.add(w.terms[0][0])
    return any(n != 1 and a not in same for a, n in enumerate(shape))


def apart(a: AffineIndex, b: AffineIndex, shape: Shape) -> bool:
    """Whether two functions of indices, each of its own, are never equal.

    Either their ranges do not meet, or no multiples of their steps bridge their distance.

    Examples
    --------
    >>> apart(AffineIndex(1, ((0, 2),)), AffineIndex(0, ((0, 4),)), (8,))
    True
    """
    if 0 in shape:
        return True
    (low, high), (least, most) = _range(a, shape), _range(b, shape)
    if high < least or most < low:
        return True
    step = gcd(*(c for m in (a, b) for k, c in m.terms if shape[k] != 1))
    distance = b.const - a.const
    return distance % step != 0 if step else distance != 0


def _range(m: AffineIndex, shape: Shape) -> tuple[int, int]:
    """Return the smallest and the largest value of a function of indices."""
    ends = [c * (shape[k] - 1) for k, c in m.terms]
    return m.const + sum(e for e in ends if e < 0), m.const + sum(e for e in ends if e > 0)


def overwrites(
    ref: Ref,
    shape: Shape,
    memories: Collection[Value],
    region: tuple[int, Shape],
    base: Shape,
) -> bool:
    """Whether to write a piece may change what others of its elements are computed from.

    Parameters
    ----------
    ref, shape, memories
        As for `reads`; the arrays share their memory with the one that is written.
    region : tuple
        Offset and strides of where the piece is written.
    base : tuple of int
        Shape of what is written into.
    """
    return any(meets(r, *region, shape, base) for r in reads(ref, shape, memories))

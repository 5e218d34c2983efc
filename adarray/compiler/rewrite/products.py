"""Matrix products: fewer operations, and one large product in place of many small ones.

A chain in another order adds its terms in another order. The error bound of a product of
matrices, elementwise a small multiple of ``|A| |B| |C|``, holds in either.

Sums of small products, as gradients of recurrent networks hold them, are one product of the
joined factors, which their makers write next to each other.

References
----------
- N. J. Higham, "Accuracy and Stability of Numerical Algorithms", 2nd ed., SIAM 2002, section 3.5
  (error bounds of products).
- T. C. Hu, M. T. Shing, "Computation of matrix chain products", SIAM J. Comput. 11 (1982), 362-373
  (the problem of which this solves three factors at a time).
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from adarray.compiler.ir.builder import Builder, uniform
from adarray.compiler.ir.program import Program, Value
from adarray.compiler.rewrite.rebuild import rebuild, renewed, uses

# Products are reordered if that saves at least this factor of the operations.
SAVING = 2
# Rows of one array are multiplied at once if there are this many products of them.
FEW = 4
# Multiplications of a product that is joined with others, and bytes of joined factors, at most:
# the larger ones gain nothing, and run faster while their factors are in the cache.
SMALL = 1 << 21
LARGE = 1 << 26


def products(program: Program) -> Program:
    """Return the program with its matrix products reordered, those of neighbouring rows as one."""
    if sum(v.kind == "dot" for v in program.values) < 2:
        return program
    count = uses(program)
    stacks = _stacks(program)
    sums = _sums(program, count)
    stacked: dict[int, Value] = {}
    new: dict[int, Value] = {}
    order: dict[int, int] = {}

    def rule(b: Builder, v: Value, args: tuple[Value, ...]) -> Value:
        made = None
        if id(v) in stacks:
            made = _part(b, stacks[id(v)], v, args, stacked)
        elif id(v) in sums:
            made = _sum(b, sums[id(v)], new, order)
        elif v.kind == "dot":
            made = _reordered(b, v, args, count)
        new[id(v)] = made = renewed(b, v, args) if made is None else made
        order.setdefault(id(made), len(order))
        return made

    return rebuild(program, rule)


# -- chains ------------------------------------------------------------------------------------


def _reordered(
    b: Builder, v: Value, args: tuple[Value, ...], count: dict[int, int]
) -> Value | None:
    """Return ``a @ (b @ c)`` for ``(a @ b) @ c``, or the other way, where that is cheaper."""
    left, right = args
    if left.ndim != 2 or right.ndim not in (1, 2):
        return None
    n, p = right.shape[0], right.shape[1] if right.ndim == 2 else 1
    if _inner(left, v.args[0], count):
        x, y = left.args
        m, k = x.shape
        if SAVING * (k * n * p + m * k * p) <= m * k * n + m * n * p:
            return b.dot(x, b.dot(y, right))
    if right.ndim == 2 and _inner(right, v.args[1], count):
        y, z = right.args
        m, k, n = left.shape[0], y.shape[0], y.shape[1]
        if SAVING * (m * k * n + m * n * p) <= k * n * p + m * k * p:
            return b.dot(b.dot(left, y), z)
    return None


def _inner(x: Value, before: Value, count: dict[int, int]) -> bool:
    """Whether a factor is itself a product of two matrices, for this one alone."""
    return x.kind == "dot" and count[id(before)] == 1 and all(a.ndim == 2 for a in x.args)


# -- rows of one matrix, multiplied by the same other ------------------------------------------


class Stack(NamedTuple):
    """Products ``x[i:j] @ y`` of neighbouring rows: `rows` in all, from element `offset`."""

    offset: int
    rows: int
    strides: tuple[int, ...]


def _stacks(program: Program) -> dict[int, tuple[Stack, int]]:
    """Return, by product, the stack that it belongs to and its first row in it."""
    groups: dict[tuple[int, int, tuple[int, ...]], list[Value]] = defaultdict(list)
    for v in program.values:
        if v.kind == "dot":
            x, y = v.args
            if x.kind == "view" and x.ndim == y.ndim == 2 and x.params["strides"][0] > 0:
                groups[id(x.args[0]), id(y), x.params["strides"]].append(v)
    found: dict[int, tuple[Stack, int]] = {}
    for (_, _, strides), group in groups.items():
        if len(group) < FEW:
            continue
        group.sort(key=lambda v: v.args[0].params["offset"])
        run = [group[0]]
        for v in group[1:]:
            if v.args[0].params["offset"] != _end(run[-1].args[0]):
                _add_stack(run, strides, found)
                run = []
            run.append(v)
        _add_stack(run, strides, found)
    return found


def _end(x: Value) -> int:
    """Return the offset of the row after the last one of a view of rows."""
    offset: int = x.params["offset"]
    stride: int = x.params["strides"][0]
    return offset + x.shape[0] * stride


def _add_stack(
    run: list[Value], strides: tuple[int, ...], found: dict[int, tuple[Stack, int]]
) -> None:
    if len(run) < FEW:
        return
    first = run[0].args[0].params["offset"]
    rows = sum(v.shape[0] for v in run)
    stack, at = Stack(first, rows, strides), 0
    for v in run:
        found[id(v)] = (stack, at)
        at += v.shape[0]


def _part(
    b: Builder,
    place: tuple[Stack, int],
    v: Value,
    args: tuple[Value, ...],
    stacked: dict[int, Value],
) -> Value | None:
    """Return the rows of a product of all rows, which is made where the first is needed."""
    stack, start = place
    if id(stack) not in stacked:
        x, y = args
        if x.kind != "view":
            return None
        shape = (stack.rows, x.shape[1])
        whole = b.view(x.args[0], stack.offset, stack.strides, shape)
        stacked[id(stack)] = b.dot(whole, y)
    return b.slice(stacked[id(stack)], 0, start, start + v.shape[0])


# -- sums of products --------------------------------------------------------------------------


class Sum(NamedTuple):
    """A sum: products of matrices, and other terms in their order."""

    dots: list[Value]
    others: list[Value]


def _sums(program: Program, count: dict[int, int]) -> dict[int, Sum]:
    """Return, by its last addition, each sum with several products that nothing else reads."""
    terms: dict[int, Sum] = {}
    for v in program.values:
        if v.kind != "map" or v.params["name"] != "add" or v.ndim != 2 or v.dtype.kind != "f":
            continue
        x, y = v.args
        if x.shape != v.shape or y.shape != v.shape:
            continue
        mine: Sum | None = None
        for a in (y, x) if id(y) in terms and id(x) not in terms else (x, y):
            inner = terms.pop(id(a), None) if count[id(a)] == 1 else None
            if inner is not None and mine is None:
                mine = inner  # the longer one goes on, so that all takes linear time
                continue
            mine = Sum([], []) if mine is None else mine
            if inner is not None:
                mine.dots.extend(inner.dots)
                mine.others.extend(inner.others)
            elif a.kind == "dot" and count[id(a)] == 1 and all(x.ndim == 2 for x in a.args):
                mine.dots.append(a)
            else:
                mine.others.append(a)
        assert mine is not None
        terms[id(v)] = mine
    return {i: t for i, t in terms.items() if _worth_joining(t)}


def _worth_joining(terms: Sum) -> bool:
    """Whether bringing the factors together costs less than adding up the products."""
    if len(terms.dots) < FEW:
        return False
    m, n = terms.dots[0].shape
    depths = [v.args[0].shape[1] for v in terms.dots]
    if max(depths) * m * n > SMALL:
        return False
    size = terms.dots[0].dtype.itemsize
    spread = sum(depths) * (m + n)
    return spread <= 4 * m * n * len(depths) and spread * size <= LARGE


def _sum(b: Builder, terms: Sum, new: dict[int, Value], order: dict[int, int]) -> Value | None:
    """Return a sum of products as one product of joined factors."""
    pairs = [new[id(v)] for v in terms.dots]
    if any(v.kind != "dot" for v in pairs):
        return None
    # In the order in which the left factors lie in memory, or were made.
    pairs.sort(key=lambda v: _where(v.args[0], order))
    total = b.dot(_joined(b, [v.args[0] for v in pairs], 1),
                  _joined(b, [v.args[1] for v in pairs], 0))  # fmt: skip
    for x in terms.others:
        total = b.map("add", total, new.get(id(x), x))  # inputs are not rebuilt
    return total


def _where(x: Value, order: dict[int, int]) -> tuple[int, int]:
    """Return when the array was made that `x` is a view of, and where in it `x` begins."""
    offset = 0
    while x.kind == "view":
        offset, x = x.params["offset"], x.args[0]
    return order.get(id(x), -1), offset


def _joined(b: Builder, parts: list[Value], axis: int) -> Value:
    """Join matrices; transposed ones as they lie in memory, neighbours not at all."""
    turns = [p.kind == "view" and p.params["strides"][0] == 1 for p in parts]
    # One number everywhere, as the state before the first step, may lie in any way.
    if any(turns) and all(t or uniform(p) is not None for t, p in zip(turns, parts, strict=True)):
        turned = [b.transpose(p, (1, 0)) for p in parts]
        return b.transpose(_joined(b, turned, 1 - axis), (1, 0))
    first = parts[0]
    if axis == 0 and all(p.kind == "view" and p.args[0] is first.args[0] for p in parts):
        strides = first.params["strides"]
        ends = [first.params["offset"], *map(_end, parts)]
        if all(p.params["strides"] == strides and p.params["offset"] == end
               for p, end in zip(parts, ends, strict=False)):  # fmt: skip
            shape = (sum(p.shape[0] for p in parts), first.shape[1])
            return b.view(first.args[0], first.params["offset"], strides, shape)
    return b.join(parts, axis)

"""Matrix products: fewer operations, and one large product in place of many small ones.

A chain in another order adds its terms in another order. The error bound of a product of
matrices, elementwise a small multiple of ``|A| |B| |C|``, holds in either.

Sums of small products, as gradients of recurrent networks hold them, are one product of the
concatenated factors, which their makers write next to each other.

References
----------
- N. J. Higham, "Accuracy and Stability of Numerical Algorithms", 2nd ed., SIAM 2002, section 3.5
  (error bounds of products).
- T. C. Hu, M. T. Shing, "Computation of matrix chain products", SIAM J. Comput. 11 (1982), 362-373
  (the problem of which this solves three factors at a time).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from adarray.compiler.ir.builder import Builder, uniform
from adarray.compiler.ir.primitives import Map, Matmul, Shape, View
from adarray.compiler.ir.program import Program, Value
from adarray.compiler.rewrite.rebuild import rebuild, renewed, uses

# Products are reordered if that saves at least this factor of the operations.
SAVING = 2
# Rows of one array are multiplied at once if there are this many products of them.
FEW = 4
# At most, multiplications of a product that becomes one with others, and bytes of its factors:
# the larger ones gain nothing, and run faster while their factors are in the cache.
SMALL = 1 << 21
LARGE = 1 << 26


def products(program: Program) -> Program:
    """Return the program with its matrix products reordered, those of neighbouring rows as one."""
    if sum(isinstance(v.primitive, Matmul) for v in program.values) < 2:
        return program
    count = uses(program)
    stacks = _stacks(program)
    sums = _sums(program, count)
    stacked: dict[RowStack, Value] = {}
    new: dict[Value, Value] = {}
    order: dict[Value, int] = {}

    def rule(b: Builder, v: Value, args: tuple[Value, ...]) -> Value:
        changed = None
        if v in stacks:
            changed = _part(b, stacks[v], v, args, stacked)
        elif v in sums:
            changed = _sum(b, sums[v], new, order)
        elif isinstance(v.primitive, Matmul):
            changed = _reordered(b, v, args, count)
        new[v] = changed = renewed(b, v, args) if changed is None else changed
        order.setdefault(changed, len(order))
        return changed

    return rebuild(program, rule)


# -- chains ------------------------------------------------------------------------------------


def _reordered(
    b: Builder, v: Value, args: tuple[Value, ...], count: Mapping[Value, int]
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
            return b.matmul(x, b.matmul(y, right))
    if right.ndim == 2 and _inner(right, v.args[1], count):
        y, z = right.args
        m, k, n = left.shape[0], y.shape[0], y.shape[1]
        if SAVING * (m * k * n + m * n * p) <= k * n * p + m * k * p:
            return b.matmul(b.matmul(left, y), z)
    return None


def _inner(x: Value, before: Value, count: Mapping[Value, int]) -> bool:
    """Whether a factor is itself a product of two matrices, for this one alone."""
    return (
        isinstance(x.primitive, Matmul) and count[before] == 1 and all(a.ndim == 2 for a in x.args)
    )


# -- rows of one matrix, multiplied by the same other ------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class RowStack:
    """Products ``x[i:j] @ y`` of neighbouring rows: `rows` in all, from element `offset`."""

    offset: int
    rows: int
    strides: Shape


# The view of rows in a product, and the product.
Rows = tuple[View, Value]


def _stacks(program: Program) -> dict[Value, tuple[RowStack, int]]:
    """Return, by product, the stack that it belongs to and its first row in it."""
    groups: dict[tuple[Value, Value, Shape], list[Rows]] = defaultdict(list)
    for v in program.values:
        if isinstance(v.primitive, Matmul):
            x, y = v.args
            p = x.primitive
            if isinstance(p, View) and x.ndim == y.ndim == 2 and p.strides[0] > 0:
                groups[x.args[0], y, p.strides].append((p, v))
    stacks: dict[Value, tuple[RowStack, int]] = {}
    for (_, _, strides), group in groups.items():
        if len(group) < FEW:
            continue
        group.sort(key=lambda rows: rows[0].offset)
        run = [group[0]]
        for rows in group[1:]:
            before, v = run[-1]
            if rows[0].offset != _end(before, v.shape[0]):
                _add_stack(run, strides, stacks)
                run = []
            run.append(rows)
        _add_stack(run, strides, stacks)
    return stacks


def _end(view: View, rows: int) -> int:
    """Return the offset of the row after the last one of a view of so many rows."""
    return view.offset + rows * view.strides[0]


def _add_stack(run: list[Rows], strides: Shape, stacks: dict[Value, tuple[RowStack, int]]) -> None:
    if len(run) < FEW:
        return
    stack, at = RowStack(run[0][0].offset, sum(v.shape[0] for _, v in run), strides), 0
    for _, v in run:
        stacks[v] = (stack, at)
        at += v.shape[0]


def _part(
    b: Builder,
    place: tuple[RowStack, int],
    v: Value,
    args: tuple[Value, ...],
    stacked: dict[RowStack, Value],
) -> Value | None:
    """Return the rows of a product of all rows, which is made where the first is needed."""
    stack, start = place
    if stack not in stacked:
        x, y = args
        if not isinstance(x.primitive, View):
            return None
        shape = (stack.rows, x.shape[1])
        whole = b.view(x.args[0], stack.offset, stack.strides, shape)
        stacked[stack] = b.matmul(whole, y)
    return b.slice(stacked[stack], 0, start, start + v.shape[0])


# -- sums of products --------------------------------------------------------------------------


class Sum(NamedTuple):
    """A sum: products of matrices, and other terms in their order."""

    matmuls: list[Value]
    others: list[Value]


def _sums(program: Program, count: Mapping[Value, int]) -> dict[Value, Sum]:
    """Return, by its last addition, each sum with several products that nothing else reads."""
    terms: dict[Value, Sum] = {}
    for v in program.values:
        if v.primitive != Map("add") or v.ndim != 2 or v.dtype.kind != "f":
            continue
        x, y = v.args
        if x.shape != v.shape or y.shape != v.shape:
            continue
        mine: Sum | None = None
        for a in (y, x) if y in terms and x not in terms else (x, y):
            inner = terms.pop(a, None) if count[a] == 1 else None
            if inner is not None and mine is None:
                mine = inner  # the longer one goes on, so that all takes linear time
                continue
            mine = Sum([], []) if mine is None else mine
            if inner is not None:
                mine.matmuls.extend(inner.matmuls)
                mine.others.extend(inner.others)
            elif (
                isinstance(a.primitive, Matmul)
                and count[a] == 1
                and all(x.ndim == 2 for x in a.args)
            ):
                mine.matmuls.append(a)
            else:
                mine.others.append(a)
        assert mine is not None
        terms[v] = mine
    return {i: t for i, t in terms.items() if _worth_joining(t)}


def _worth_joining(terms: Sum) -> bool:
    """Whether bringing the factors together costs less than adding up the products."""
    if len(terms.matmuls) < FEW:
        return False
    m, n = terms.matmuls[0].shape
    depths = [v.args[0].shape[1] for v in terms.matmuls]
    if max(depths) * m * n > SMALL:
        return False
    size = terms.matmuls[0].dtype.itemsize
    spread = sum(depths) * (m + n)
    return spread <= 4 * m * n * len(depths) and spread * size <= LARGE


def _sum(b: Builder, terms: Sum, new: dict[Value, Value], order: dict[Value, int]) -> Value | None:
    """Return a sum of products as one product of concatenated factors."""
    pairs = [new[v] for v in terms.matmuls]
    if any(not isinstance(v.primitive, Matmul) for v in pairs):
        return None
    # In the order in which the left factors lie in memory, or were made.
    pairs.sort(key=lambda v: _where(v.args[0], order))
    total = b.matmul(_concatenated(b, [v.args[0] for v in pairs], 1),
                  _concatenated(b, [v.args[1] for v in pairs], 0))  # fmt: skip
    for x in terms.others:
        total = b.map("add", total, new.get(x, x))  # inputs are not rebuilt
    return total


def _where(x: Value, order: Mapping[Value, int]) -> tuple[int, int]:
    """Return when the array was made that `x` is a view of, and where in it `x` begins."""
    offset = 0
    while isinstance(x.primitive, View):
        offset, x = x.primitive.offset, x.args[0]
    return order.get(x, -1), offset


def _concatenated(b: Builder, parts: list[Value], axis: int) -> Value:
    """Concatenate matrices; transposed ones as they lie in memory, neighbours not at all."""
    flipped = [isinstance(p.primitive, View) and p.primitive.strides[0] == 1 for p in parts]
    # One number everywhere, as the state before the first step, may lie in any way.
    if any(flipped) and all(
        t or uniform(p) is not None for t, p in zip(flipped, parts, strict=True)
    ):
        transposed = [b.transpose(p, (1, 0)) for p in parts]
        return b.transpose(_concatenated(b, transposed, 1 - axis), (1, 0))
    views = [p.primitive for p in parts if isinstance(p.primitive, View)]
    if axis == 0 and len(views) == len(parts) and len({p.args[0] for p in parts}) == 1:
        first = views[0]
        ends = [first.offset, *(_end(w, p.shape[0]) for w, p in zip(views, parts, strict=True))]
        if all(w.strides == first.strides and w.offset == end
               for w, end in zip(views, ends, strict=False)):  # fmt: skip
            shape = (sum(p.shape[0] for p in parts), parts[0].shape[1])
            return b.view(parts[0].args[0], first.offset, first.strides, shape)
    return b.concatenate(parts, axis)

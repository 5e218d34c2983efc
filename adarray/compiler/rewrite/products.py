"""Matrix products: fewer operations, and one large product in place of many small ones.

A chain in another order adds its terms in another order. The error bound of a product of
matrices, elementwise a small multiple of ``|A| |B| |C|``, holds in either.

Sums of small products, as gradients of recurrent networks hold them, are one product of the
concatenated factors, which their makers write next to each other. Two products with a factor in
common, as the gradient of ``x.T @ x`` has them, are one product by the sum of the others.

References
----------
- N. J. Higham, "Accuracy and Stability of Numerical Algorithms", 2nd ed., SIAM 2002, section 3.5
  (error bounds of products).
- T. C. Hu, M. T. Shing, "Computation of matrix chain products", SIAM J. Comput. 11 (1982), 362-373
  (the problem of which this solves three factors at a time).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from adarray.compiler.ir.builder import Builder, uniform
from adarray.compiler.ir.primitives import Map, Matmul, View
from adarray.compiler.ir.program import Program, Value, c_strides
from adarray.compiler.ir.uses import is_source, sweeps
from adarray.compiler.rewrite.product_costs import ON_CPU, ProductCosts, Work
from adarray.compiler.rewrite.rebuild import rebuild, renewed, uses

# Products are reordered if that saves at least this factor of the operations.
SAVING = 2
# Products become one if there are this many.
FEW = 4


def products(program: Program, costs: ProductCosts = ON_CPU) -> Program:
    """Return the program with its matrix products reordered, and sums of small ones as one."""
    # Without products of matrices, all is elementwise and keeps every bit.
    if sum(isinstance(v.primitive, Matmul) for v in program.values) < 2:
        return program
    count = uses(program)
    sums = _sums(program, count, costs)
    new: dict[Value, Value] = {}
    order: dict[Value, int] = {}

    def rule(b: Builder, v: Value, args: tuple[Value, ...]) -> Value:
        changed = None
        if v in sums:
            changed = _sum(b, sums[v], new, order)
        elif isinstance(v.primitive, Matmul):
            changed = _reordered(b, v, args, count)
        elif v.primitive == Map("add"):
            changed = _distributed(b, v, args, count)
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


# -- a factor in common -------------------------------------------------------------------------


def _distributed(
    b: Builder, v: Value, args: tuple[Value, ...], count: Mapping[Value, int]
) -> Value | None:
    """Return ``x @ (y + z)`` for ``x @ y + x @ z``, and ``(y + z) @ x`` likewise.

    Products by vectors are left to kernels, which read `x` once for all of them.
    """
    if v.ndim != 2 or v.dtype.kind not in "fc" or any(a.shape != v.shape for a in args):
        return None
    first, second = (_only_factors(b, *both, count) for both in zip(args, v.args, strict=True))
    if first is None or second is None:
        return None
    (a, y), (c, z) = first, second
    if _same(a, c):
        return b.matmul(a, b.map("add", y, z))
    if _same(y, z):
        return b.matmul(b.map("add", a, c), y)
    return None


def _only_factors(
    b: Builder, x: Value, before: Value, count: Mapping[Value, int]
) -> tuple[Value, Value] | None:
    """Return the factors of a product, or of a transposed one, that nothing else reads."""
    transposed = isinstance(x.primitive, View) and isinstance(before.primitive, View)
    product, own = (x.args[0], before.args[0]) if transposed else (x, before)
    if product.primitive != Matmul() or sweeps(product) or product.ndim != 2:
        return None
    if count[before] != 1 or count[own] != 1 or any(a.ndim != 2 for a in product.args):
        return None
    left, right = product.args
    if not transposed:
        return left, right
    if not _same(b.transpose(product, (1, 0)), x):
        return None
    return b.transpose(right, (1, 0)), b.transpose(left, (1, 0))


def _same(x: Value, y: Value) -> bool:
    """Whether two values are one, or the same view of one."""
    return x is y or (
        isinstance(x.primitive, View)
        and x.primitive == y.primitive
        and x.args[0] is y.args[0]
        and x.shape == y.shape
    )


# -- sums of products --------------------------------------------------------------------------


class Sum(NamedTuple):
    """A sum: products of matrices, outer ones of vectors too, and other terms in their order."""

    matmuls: list[Value]
    others: list[Value]


def _sums(program: Program, count: Mapping[Value, int], costs: ProductCosts) -> dict[Value, Sum]:
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
            elif count[a] == 1 and _factors(a) is not None:
                mine.matmuls.append(a)
            else:
                mine.others.append(a)
        assert mine is not None
        terms[v] = mine
    return {i: t for i, t in terms.items() if _worth_joining(t, costs)}


def _factors(v: Value) -> tuple[Value, Value] | None:
    """Return the matrices that a value is the product of; a column and a row if it is outer."""
    if v.ndim != 2 or len(v.args) != 2:
        return None
    a, b = v.args
    if isinstance(v.primitive, Matmul):
        return (a, b) if a.ndim == b.ndim == 2 else None
    if v.primitive != Map("multiply"):
        return None
    column, row = (v.shape[0], 1), (1, v.shape[1])
    for x, y in ((a, b), (b, a)):
        if x.shape == column and y.shape in (row, row[1:]):
            return x, y
    return None


def _worth_joining(terms: Sum, costs: ProductCosts) -> bool:
    """Whether bringing the factors together costs less than adding up the products."""
    if len(terms.matmuls) < FEW:
        return False
    m, n = terms.matmuls[0].shape
    depths = [v.args[0].shape[1] if isinstance(v.primitive, Matmul) else 1 for v in terms.matmuls]
    if max(depths) * m * n > costs.small:
        return False
    spread = sum(depths) * (m + n)
    if spread * terms.matmuls[0].dtype.itemsize > costs.large:
        return False
    if all(isinstance(v.primitive, Map) for v in terms.matmuls):
        # One loop over the sum would compute them, with a multiplication and a read for each.
        product = Work(sum(depths) * m * n, spread + m * n)
        return product.cost(costs) < costs.read * sum(depths) * m * n
    if costs.in_place:  # each product is a call, and so is each addition
        return costs.copy * _copied(terms.matmuls) < 2 * (len(depths) - 1) * costs.call
    return spread <= 4 * m * n * len(depths)


def _copied(matmuls: list[Value]) -> int:
    """Return how many elements are copied where the factors of products are concatenated.

    What a kernel computes is written in its place, if that is dense.
    """
    pairs = [factors for v in matmuls if (factors := _factors(v)) is not None]
    pairs.sort(key=lambda pair: _where(pair[0], {}))
    return sum(_apart(side, 1 - k) for k, side in enumerate(zip(*pairs, strict=True)))


def _apart(parts: Sequence[Value], axis: int) -> int:
    """Return how many elements of matrices do not lie where their concatenation has them."""
    lines = [_lines(p, axis) for p in parts]
    first = lines[0]
    at, together = first[1], True
    for p, (root, offset, step, dense) in zip(parts, lines, strict=True):
        together = together and root is first[0] and offset == at and step == first[2] and dense
        at = offset + step * p.shape[axis]
    if together:
        return 0
    return sum(
        p.size
        for p, (root, _, _, dense) in zip(parts, lines, strict=True)
        if not dense or root.size != p.size or is_source(root)
    )


def _lines(p: Value, axis: int) -> tuple[Value, int, int, bool]:
    """Return the array a matrix is a view of, where, its step along an axis, if lines are dense."""
    if not isinstance(p.primitive, View):
        return p, 0, c_strides(p.shape)[axis], axis == 0
    step, other = p.primitive.strides[axis], p.primitive.strides[1 - axis]
    return p.args[0], p.primitive.offset, step, other == 1 and step >= p.shape[1 - axis]


def _sum(b: Builder, terms: Sum, new: dict[Value, Value], order: dict[Value, int]) -> Value | None:
    """Return a sum of products as one product of concatenated factors."""
    pairs = []
    for v in terms.matmuls:
        factors = _factors(new[v])
        if factors is None:
            return None
        left, right = factors
        pairs.append((left, b.reshape(right, (left.shape[1], right.shape[-1]))))
    # In the order in which the left factors lie in memory, or were made.
    pairs.sort(key=lambda pair: _where(pair[0], order))
    left = concatenated(b, [x for x, _ in pairs], 1)
    total = b.matmul(left, concatenated(b, [y for _, y in pairs], 0))
    for x in terms.others:
        total = b.map("add", total, new.get(x, x))  # inputs are not rebuilt
    return total


def _where(x: Value, order: Mapping[Value, int]) -> tuple[int, int]:
    """Return when the array was made that `x` is a view of, and where in it `x` begins."""
    offset = 0
    while isinstance(x.primitive, View):
        offset, x = x.primitive.offset, x.args[0]
    return order.get(x, -1), offset


def concatenated(b: Builder, parts: list[Value], axis: int) -> Value:
    """Concatenate matrices; transposed ones as they lie in memory, neighbours not at all."""
    flipped = [isinstance(p.primitive, View) and p.primitive.strides[0] == 1 for p in parts]
    # One number everywhere, as the state before the first step, may lie in any way.
    if any(flipped) and all(
        t or uniform(p) is not None for t, p in zip(flipped, parts, strict=True)
    ):
        transposed = [b.transpose(p, (1, 0)) for p in parts]
        return b.transpose(concatenated(b, transposed, 1 - axis), (1, 0))
    rows = _neighbours(parts) if axis == 0 else None
    if rows is not None:
        shape = (sum(p.shape[0] for p in parts), parts[0].shape[1])
        return b.view(parts[0].args[0], rows.offset, rows.strides, shape)
    return b.concatenate(parts, axis)


def _neighbours(parts: list[Value]) -> View | None:
    """Return how the rows of matrices are read that follow each other in one array."""
    views = [p.primitive for p in parts if isinstance(p.primitive, View)]
    if len(views) < len(parts) or len({p.args[0] for p in parts}) > 1:
        return None
    first = views[0]
    strides, step = first.strides, first.strides[0]
    if len(views) > 1 and all(p.shape[0] == 1 for p in parts):  # their distance is no stride yet
        step = views[1].offset - first.offset
    begin = first.offset
    for view, p in zip(views, parts, strict=True):
        if view.strides != strides or view.offset != begin:
            return None
        begin += p.shape[0] * step
    if step == strides[0] or addressable(step, strides[1], len(parts), parts[0].shape[1]):
        return View(first.offset, (step, *strides[1:]))
    return None


def addressable(row: int, column: int, rows: int, columns: int) -> bool:
    """Whether libraries read a matrix of these strides: lines are dense, and do not overlap."""
    return (column == 1 and row >= columns) or (row == 1 and column >= rows)

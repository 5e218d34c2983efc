"""Products of rows and columns of arrays that a loop does not write: computed before it, by BLAS.

In the syntax tree that is lowered ``x[:, i] @ y[:, i + 1:n]`` is ``xy[i, i + 1:n]``, where ``xy``
is ``x.T @ y``: another variable of the loop. Its indices are those of the products, along axes of
the same extents, so what is read, and which errors there are, stays as it is.

A loop that adds up such a product by itself, ``for k in range(n): c[i, j] += a[i, k] * b[k, j]``,
is ``c[i, j] += ab[i, j]``.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np

from adarray.loops import names
from adarray.loops.contractions import Contraction, contractions
from adarray.loops.forms import ArrayForm, Form
from adarray.loops.names import Loop
from adarray.loops.policy import extent

# Expressions of which a part may not be evaluated, or for other variables.
_AT_TIMES = (ast.IfExp, ast.BoolOp, ast.Compare, ast.Lambda, ast.GeneratorExp, ast.ListComp)
_FLOATS = ("float32", "float64")
_FEWEST = 1 << 16  # scalar products: a loop with fewer is short
_DEEPEST = 16  # products of shorter vectors are no work for BLAS
_MEMORY = 2  # times as large as its factors: what a product may be
_USED = 4  # at least this part of an axis of a product is read
_LEAST_SUMMED = 1 << 18  # products that a loop adds up by itself, for which BLAS is called


@dataclass(frozen=True, slots=True)
class Factor:
    """One of the two arrays of a product, with rows that are multiplied.

    Parameters
    ----------
    array : str
    summed : int
        The axis that is summed over.
    """

    array: str
    summed: int

    def matrix(self, x: Any, summed: int) -> Any:
        """Return the array as a matrix in which axis `summed` is the one that is summed over."""
        return x if self.summed == summed else x.T


@dataclass(frozen=True, slots=True)
class Product:
    """A product of two arrays, all rows by all rows."""

    left: Factor
    right: Factor

    def form(self, forms: Mapping[str, Form]) -> ArrayForm:
        """Return the form of the product."""
        a, b = forms[self.left.array], forms[self.right.array]
        assert isinstance(a, ArrayForm)
        assert isinstance(b, ArrayForm)
        return ArrayForm(a.dtype, (a.shape[1 - self.left.summed], b.shape[1 - self.right.summed]))

    def value(self, values: Mapping[str, Any]) -> Any:
        """Return the product."""
        a, b = values[self.left.array], values[self.right.array]
        return np.matmul(self.left.matrix(a, 1), self.right.matrix(b, 0))


@dataclass(frozen=True, slots=True)
class _Rows:
    """An operand: rows of a factor, by their index along the axis that is not summed over."""

    factor: Factor
    index: ast.expr


def products(
    loop: Loop,
    forms: Mapping[str, Form],
    iterable: Any,
    traced: Set[str],
    read_later: Set[str] | None = None,
) -> tuple[Loop, dict[str, Product]]:
    """Return a loop that reads products of arrays, and these by their names.

    It is the loop itself if there are none. Arrays that it writes are not known here.

    Parameters
    ----------
    loop : For or While
    forms : mapping of str to Form
    iterable : object
        What it runs over.
    traced : set of str
        Variables that are recorded: a product of others would be a constant.
    read_later : set of str, optional
        Variables that are read behind the loop; None: loops that add up products stay as they
        are, since ``range`` is not Python's.
    """
    if not isinstance(loop, ast.For):
        return loop, {}
    finder = _Finder(loop, forms, traced)
    found: dict[int, tuple[Product, ast.expr]] = {}
    sums = {} if read_later is None else contractions(loop, forms, read_later)
    products_of = {id(c.product): k for k, c in sums.items()}
    for node, ranges in _steady(loop, iterable, forms, sums):
        operands = finder.rows(node)
        if operands is not None and finder.pays(operands, ranges, id(node) in products_of):
            left, right = operands
            shape = (left.index, right.index)
            index = ast.Tuple(list(map(copy.deepcopy, shape)), ast.Load())
            found[id(node)] = Product(left.factor, right.factor), index
    if not found:
        return loop, {}
    used = {n.id for n in ast.walk(loop) if isinstance(n, ast.Name)} | forms.keys()
    name_of: dict[Product, str] = {}
    for product, _ in found.values():
        name = f"{product.left.array}_{product.right.array}"
        while name in used:
            name += "_"
        if product not in name_of:
            name_of[product] = name
            used = used | {name}
    replacing = _Replacing(
        {k: (name_of[p], index) for k, (p, index) in found.items()},
        {k: c.statement for k, c in sums.items() if id(c.product) in found},
    )
    return replacing.loop(loop), {name: p for p, name in name_of.items()}


def _is_product(node: ast.AST) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult)


def _steady(
    loop: ast.For, iterable: Any, forms: Mapping[str, Form], sums: Mapping[int, Contraction]
) -> Iterator[tuple[ast.BinOp, dict[str, int]]]:
    """Yield products that each iteration of loops over ranges computes.

    With the extents of these loops, by their variables; of inner ones whose bounds are not known,
    that of the loop around them.
    """

    def inside(body: Sequence[ast.stmt], ranges: dict[str, int]) -> Any:
        for s in body:
            if isinstance(s, ast.For):
                if id(s) in sums:
                    yield from inside([sums[id(s)].statement], ranges)
                elif isinstance(s.target, ast.Name):
                    around = max(ranges.values(), default=0)
                    known = extent(s.iter, forms)
                    trips = around // 2 if known is None else known
                    yield from inside(s.body, ranges | {s.target.id: trips})
            elif isinstance(s, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr)):
                lazy = {
                    id(n) for c in ast.walk(s)
                    if isinstance(c, _AT_TIMES)
                    for n in ast.walk(c)
                }  # fmt: skip
                for n in ast.walk(s):
                    if isinstance(n, ast.BinOp) and _is_product(n) and id(n) not in lazy:
                        yield n, ranges

    if isinstance(iterable, range) and isinstance(loop.target, ast.Name):
        yield from inside(loop.body, {loop.target.id: len(iterable)})


class _Finder:
    """Looks for products in one loop."""

    def __init__(
        self, loop: ast.For, forms: Mapping[str, Form], traced: Set[str]
    ) -> None:  # fmt: skip
        self._forms = forms
        self._traced = traced
        self._bound = names.stored_in(loop)

    def rows(self, node: ast.BinOp) -> tuple[_Rows, _Rows] | None:
        """Return the operands of a product, None if it is not one of rows of fixed arrays."""
        left, right = self._operand(node.left, False), self._operand(node.right, True)
        if left is None or right is None:
            return None
        a, b = (self._forms[r.factor.array] for r in (left, right))
        assert isinstance(a, ArrayForm)
        assert isinstance(b, ArrayForm)
        same = a.dtype == b.dtype
        same = same and a.shape[left.factor.summed] == b.shape[right.factor.summed]
        recorded = not self._traced.isdisjoint((left.factor.array, right.factor.array))
        return (left, right) if same and recorded else None

    def _operand(self, e: ast.expr, second: bool) -> _Rows | None:
        """Return an operand as rows: ``x[i]``, ``x[:, i]``, ``x[:, a:b]`` and the like."""
        parts: list[ast.expr] = []
        if isinstance(e, ast.Subscript):
            parts = list(e.slice.elts) if isinstance(e.slice, ast.Tuple) else [e.slice]
            e = e.value
        form = self._forms.get(e.id) if isinstance(e, ast.Name) else None
        if not isinstance(e, ast.Name) or not isinstance(form, ArrayForm) or e.id in self._bound:
            return None
        if len(form.shape) != 2 or form.dtype not in _FLOATS or len(parts) > 2:
            return None
        parts += [ast.Slice() for _ in range(2 - len(parts))]
        if any(isinstance(p, (ast.Constant, ast.Tuple, ast.Starred)) for p in parts):
            return None  # of None and Ellipsis
        single = [not isinstance(p, ast.Slice) for p in parts]
        if all(single):
            return None
        summed = single.index(False) if any(single) else (0 if second else 1)
        whole, index = parts[summed], parts[1 - summed]
        if not isinstance(whole, ast.Slice) or whole.lower or whole.upper or whole.step:
            return None
        if isinstance(index, ast.Slice) and index.step is not None:
            return None
        return _Rows(Factor(e.id, summed), index)

    def pays(
        self, operands: tuple[_Rows, _Rows], ranges: dict[str, int], summed: bool = False
    ) -> bool:
        """Whether much of the product is read, and it is large, but not too large.

        It need not be as large where a loop adds it up by itself (`summed`).
        """
        counts, variables, sizes = [], [], []
        for r in operands:
            form = self._forms[r.factor.array]
            assert isinstance(form, ArrayForm)
            rows, depth = form.shape[1 - r.factor.summed], form.shape[r.factor.summed]
            sizes.append(rows * depth)
            counts.append(rows)
            if depth < _DEEPEST:
                return False
            if isinstance(r.index, ast.Slice):
                if self._is_narrow(r.index):
                    return False
                continue
            of = [n.id for n in ast.walk(r.index) if isinstance(n, ast.Name) and n.id in ranges]
            if len(of) != 1 or not _is_shifted(r.index) or ranges[of[0]] * _USED < rows:
                return False
            variables += of
        if not variables or len(set(variables)) < len(variables):  # the diagonal alone
            return False
        total = counts[0] * counts[1]
        large = total * depth >= _LEAST_SUMMED if summed else total >= _FEWEST
        return large and total <= _MEMORY * sum(sizes)

    def _is_narrow(self, part: ast.Slice) -> bool:
        """Whether both bounds of a slice move along: ``i:i + 3``."""
        low, high = part.lower, part.upper
        return (
            low is not None and high is not None
            and bool(names.read_in(low) & names.read_in(high) & self._bound)
        )  # fmt: skip


def _is_shifted(index: ast.expr) -> bool:
    """Whether an index is a name, or a name plus or minus something."""
    if isinstance(index, ast.BinOp) and isinstance(index.op, (ast.Add, ast.Sub)):
        return all(isinstance(n, (ast.Name, ast.Constant)) for n in (index.left, index.right))
    return isinstance(index, ast.Name)


class _Replacing(ast.NodeTransformer):
    """Copies a loop, with elements of products in the place of some nodes."""

    def __init__(
        self, found: Mapping[int, tuple[str, ast.expr]], sums: Mapping[int, ast.stmt]
    ) -> None:  # fmt: skip
        self._found = found
        self._sums = sums

    def loop(self, loop: ast.For) -> Loop:
        """Return the copy."""
        out = self._copied(loop)
        assert isinstance(out, ast.For)
        return out

    def _copied(self, node: ast.AST) -> ast.AST:
        node = self._sums.get(id(node), node)
        found = self._found.get(id(node))
        if found is not None and isinstance(node, ast.expr):
            name, index = found
            at = ast.Subscript(ast.Name(name, ast.Load()), index, ast.Load())
            return ast.fix_missing_locations(ast.copy_location(at, node))
        fields = {f: self._value(v) for f, v in ast.iter_fields(node)}
        return ast.copy_location(type(node)(**fields), node)

    def _value(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._value(v) for v in value]
        return self._copied(value) if isinstance(value, ast.AST) else value

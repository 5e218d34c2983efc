"""Products by one matrix that do not wait for each other, as one product.

A recurrent network multiplies its inputs of all steps by the same matrix, which one product does
before the first step; a layer applied to a list of arrays likewise. What waits for another such
product, as the state of the network does, stays in its step. Products of rows that lie next to
each other, or interleaved, in one array need no copy; others are concatenated where
`product_costs` says that it pays.

References
----------
- J. Appleyard, T. Kocisky, P. Blunsom, "Optimizing performance of recurrent neural networks on
  GPUs", arXiv:1604.01946 (2016), section 3.3 (products of several time steps as one).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple

from adarray.compiler.ir.builder import Builder
from adarray.compiler.ir.primitives import Concatenate, Matmul, Shape, View
from adarray.compiler.ir.program import Program, Value
from adarray.compiler.ir.uses import is_source
from adarray.compiler.rewrite.cse import cse
from adarray.compiler.rewrite.dead import dead
from adarray.compiler.rewrite.independence import Independence
from adarray.compiler.rewrite.product_costs import ON_CPU, ProductCosts, pays
from adarray.compiler.rewrite.products import FEW, addressable, concatenated
from adarray.compiler.rewrite.rebuild import rebuild, renewed

# Most groups of products with a common factor that are looked at, the largest first.
GROUPS = 64


def hoist(program: Program, costs: ProductCosts = ON_CPU) -> Program:
    """Return the program with products by one matrix that do not wait for each other as one."""
    if sum(isinstance(v.primitive, Matmul) for v in program.values) < FEW:
        return program
    program = dead(cse(program))
    graph = Independence(program)
    stacks: dict[Value, tuple[Stack, int]] = {}
    concatenations = _concatenations(program)
    for side, group in _groups(program):
        single = [v for v in group if v not in stacks]
        if len(single) < FEW:
            continue
        new = [
            stack
            for level in graph.levels(single)
            for stack in _stacks(side, level, concatenations, graph, costs)
        ]
        graph.unite([list(stack.products) for stack in new])
        stacks.update((v, (stack, k)) for stack in new for k, v in enumerate(stack.products))
    return _rebuilt(graph.ordered(), stacks) if stacks else program


# -- groups ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Side:
    """Which operand of products varies, and how the varying ones become one.

    Attributes
    ----------
    varying : int
        0 for rows ``x`` of ``x @ w``, 1 for columns or vectors of ``w @ x``.
    vectors : bool
        Whether the columns are vectors, which become rows: ``w @ x`` is ``x @ w.T``.
    """

    varying: int
    vectors: bool = False

    def rows(self, x: Value) -> int:
        """Return how many rows (columns) an operand has."""
        return 1 if x.ndim == 1 else x.shape[self.varying]


def _groups(program: Program) -> list[tuple[Side, list[Value]]]:
    """Return products with a common factor, the largest groups first."""
    groups: dict[tuple[Side, Value], list[Value]] = defaultdict(list)
    for v in program.values:
        if not isinstance(v.primitive, Matmul) or v.primitive.epilogue:
            continue
        a, b = v.args
        if a.ndim <= 2 and b.ndim == 2:
            groups[Side(0), b].append(v)
        if a.ndim == 2 and b.ndim <= 2:
            groups[Side(1, b.ndim == 1), a].append(v)
    large = [(side, vs) for (side, _), vs in groups.items() if len(vs) >= FEW]
    return sorted(large, key=lambda group: -len(group[1]))[:GROUPS]


def _concatenations(program: Program) -> dict[frozenset[Value], tuple[Value, ...]]:
    """Return the operands of concatenated rows, in their order, by their set."""
    return {
        frozenset(v.args): v.args
        for v in program.values
        if v.primitive == Concatenate(0) and len(set(v.args)) == len(v.args)
    }


# -- stacks ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Stack:
    """Products that are computed at once.

    Attributes
    ----------
    side : Side
    products : tuple of Value
    root : Value or None
        The array that all operands are views of; None if they are concatenated.
    offset : int
    strides : tuple of int
        Of the rows and their elements in it.
    interleaved : bool
        Whether the rows of the products alternate.
    """

    side: Side
    products: tuple[Value, ...]
    root: Value | None = None
    offset: int = 0
    strides: tuple[int, int] = (0, 0)
    interleaved: bool = False

    def starts(self) -> list[int]:
        """Return the first row of each product, and at last the number of rows."""
        rows = (self.side.rows(v.args[self.side.varying]) for v in self.products)
        return list(accumulate(rows, initial=0))


Concatenations = dict[frozenset[Value], tuple[Value, ...]]


def _stacks(
    side: Side, products: list[Value], concatenations: Concatenations, graph: Independence,
    costs: ProductCosts,
) -> Iterable[Stack]:  # fmt: skip
    """Yield stacks of products that do not wait for each other: what lies together, then others."""
    families: dict[tuple[Value, Shape], list[Value]] = defaultdict(list)
    apart: list[Value] = []
    for v in products:
        x = v.args[side.varying]
        if isinstance(x.primitive, View):
            families[x.args[0], x.primitive.strides].append(v)
        else:
            apart.append(v)
    for family in families.values():
        for run in _runs([_Rows.of(side, v) for v in family]):
            stack = _in_place(side, run) if len(run) >= FEW else None
            if stack is None:
                apart += [r.product for r in run]
            else:
                yield stack
    # Columns of matrices would be copied one by one.
    if len(apart) >= FEW and (side.varying == 0 or side.vectors):
        apart.sort(key=graph.position.__getitem__)
        stack = _copied(side, apart, concatenations, costs)
        if stack is not None:
            yield stack


class _Rows(NamedTuple):
    """The rows that a factor shows of an array: the first element, and the distances."""

    begin: int
    rows: int
    row: int
    column: int
    product: Value

    @classmethod
    def of(cls, side: Side, product: Value) -> _Rows:
        """Return those of a product."""
        x = product.args[side.varying]
        assert isinstance(x.primitive, View)
        strides = x.primitive.strides
        if x.ndim == 1:
            return cls(x.primitive.offset, 1, 0, strides[0], product)
        row, column = strides[side.varying], strides[1 - side.varying]
        return cls(x.primitive.offset, side.rows(x), row, column, product)


def _runs(family: list[_Rows]) -> Iterable[list[_Rows]]:
    """Yield what lies next to each other, or interleaved, or for single rows at equal distances."""
    family.sort(key=lambda r: r.begin)
    step = family[1].begin - family[0].begin if len(family) > 1 else 0
    equal = all(r.rows == family[0].rows for r in family)
    even = all(y.begin - x.begin == step for x, y in pairwise(family))
    if equal and even and family[0].rows > 1 and family[0].row == len(family) * step:
        yield family
        return
    run = family[:1]
    for r in family[1:]:
        last = run[-1]
        if r.rows == last.rows == 1:
            follows = len(run) < 2 or r.begin - last.begin == run[1].begin - run[0].begin
        else:
            follows = r.begin == last.begin + last.rows * last.row
        if not follows:
            yield run
            run = []
        run.append(r)
    yield run


def _in_place(side: Side, run: list[_Rows]) -> Stack | None:
    """Return the stack of products whose factors lie in one array; None if it cannot be read so."""
    first, step = run[0], run[1].begin - run[0].begin
    interleaved = first.rows > 1 and step != first.rows * first.row
    row = step if interleaved or first.rows == 1 else first.row
    products = tuple(r.product for r in run)
    depth = products[0].args[0].shape[-1]
    if addressable(row, first.column, sum(r.rows for r in run), depth):
        root = products[0].args[side.varying].args[0]
        return Stack(side, products, root, first.begin, (row, first.column), interleaved)
    return None


def _copied(
    side: Side, products: list[Value], concatenations: Concatenations, costs: ProductCosts
) -> Stack | None:
    """Return the stack of products whose factors are concatenated, if that pays."""
    factors = {v.args[side.varying]: v for v in products}
    order = concatenations.get(frozenset(factors))
    if order is not None:  # another product reads it anyway
        products = [factors[x] for x in order]
    stack = Stack(side, tuple(products))
    rows, common = stack.starts()[-1], products[0].args[1 - side.varying]
    depth = products[0].args[0].shape[-1]
    moved = rows * (depth + common.size // depth) + common.size
    # What a kernel computes is written in its place.
    copied = (
        0
        if order
        else sum(x.size for x in factors if isinstance(x.primitive, View) or is_source(x))
    )
    large = rows * depth * products[0].dtype.itemsize > costs.large
    return None if large or not pays(products, moved, copied, costs) else stack


# -- rebuilding --------------------------------------------------------------------------------


def _rebuilt(program: Program, stacks: dict[Value, tuple[Stack, int]]) -> Program:
    """Return the program with one product for each stack."""
    new: dict[Value, Value] = {}
    wholes: dict[Stack, tuple[Value, list[int]]] = {}

    def rule(b: Builder, v: Value, args: tuple[Value, ...]) -> Value:
        place = stacks.get(v)
        if place is None:
            new[v] = renewed(b, v, args)
            return new[v]
        stack, k = place
        if stack not in wholes:
            whole = _whole(b, stack, new, args[1 - stack.side.varying])
            wholes[stack] = whole, stack.starts()
        new[v] = _part(b, stack, k, *wholes[stack])
        return new[v]

    return rebuild(program, rule)


def _whole(b: Builder, stack: Stack, new: Mapping[Value, Value], common: Value) -> Value:
    """Return the product of all rows; inputs are not in `new`."""
    side, rows, root = stack.side, stack.starts()[-1], stack.root
    depth = common.shape[-1 if side.varying else 0]
    if root is not None:
        factor = b.view(new.get(root, root), stack.offset, stack.strides, (rows, depth))
    else:
        operands = [new.get(x, x) for x in (v.args[side.varying] for v in stack.products)]
        factor = concatenated(b, [b.reshape(x, (side.rows(x), depth)) for x in operands], 0)
    if side.varying == 0:
        return b.matmul(factor, common)
    if side.vectors:
        return b.matmul(factor, b.transpose(common, (1, 0)))
    return b.matmul(common, b.transpose(factor, (1, 0)))


def _part(b: Builder, stack: Stack, k: int, whole: Value, starts: list[int]) -> Value:
    """Return product number `k`."""
    axis = 1 if stack.side.varying and not stack.side.vectors else 0
    if stack.interleaved:
        part = b.slice(whole, axis, k, whole.shape[axis], len(stack.products))
    else:
        part = b.slice(whole, axis, starts[k], starts[k + 1])
    return b.reshape(part, stack.products[k].shape)

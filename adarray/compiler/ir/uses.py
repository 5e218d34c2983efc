"""What every kind of value reads, as uses of roots by indices of its domain.

The domain of a value is what its kernel runs over: its shape, but the shape of its operand
for a reduction.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from adarray.compiler.ir.domains import (
    Access,
    Map,
    Maps,
    Shape,
    Use,
    linear,
    moved,
    spread,
    substitute,
    through,
    whole,
)
from adarray.compiler.ir.program import Value, c_strides
from adarray.compiler.scalars.catalogue import FUNCTIONS

# Recomputing costs at most so much, in arithmetic operations.
CHEAP_SCALAR, MUCH = 64, 1 << 20
# Operands of a join that are chosen from element by element.
PIECES = 4
# Multiplications of a matrix product that is no work for a library.
SMALL_PRODUCT = 1024
NUMERIC = "?bhilqBHILQfd"
LEAVES = frozenset({"input", "array", "dot", "call", "pick", "scan", "reduce"})


def op_cost(value: Value) -> int:
    """Return what one element of a value costs, its operands given."""
    if value.kind != "map":
        return 2
    return FUNCTIONS[value.params["name"]].cost


def sweeps(value: Value) -> bool:
    """Whether a matrix product is computed by loops: one matrix is a vector, or all is small."""
    if value.kind != "dot" or not numeric(value.dtype) or "scale" in value.params:
        return False
    a, b = value.args
    rows = a.shape[-2] if a.ndim > 1 else 1
    columns = b.shape[-1] if b.ndim > 1 else 1
    if a.ndim > 2 and b.ndim > 2 and a.shape[:-2] != b.shape[:-2]:
        return False
    return min(rows, columns, a.shape[-1]) == 1 or value.size * a.shape[-1] <= SMALL_PRODUCT


def domain(value: Value) -> Shape:
    """Return the shape that the kernel of a value runs over."""
    if value.kind == "reduce":
        return value.args[0].shape
    if value.kind == "dot":
        return (*value.shape, value.args[0].shape[-1])
    return value.shape


def folded(value: Value) -> tuple[int, ...]:
    """Return the axes of the domain of a value that are folded."""
    if value.kind == "reduce":
        return tuple(a % value.args[0].ndim for a in value.params["axes"])
    return (value.ndim,) if value.kind == "dot" else ()


class Uses:
    """Accesses, uses and costs of the values of a program, found once.

    Values come in the program's order, by `add`.
    """

    def __init__(self) -> None:
        self.accesses: dict[int, Access] = {}
        self.cost: dict[int, int] = {}
        self.leaves: dict[int, tuple[Value, ...]] = {}
        self._uses: dict[int, tuple[Use, ...]] = {}
        self.stored_views: list[Value] = []

    def add(self, value: Value) -> None:
        """Take in the next value."""
        key = id(value)
        if value.kind == "view":
            below = self.access(value.args[0])
            found = through(value, below)
            if found is None:
                # No strides say it: what it looks at must lie in memory as itself.
                self.stored_views.append(value.args[0])
                found = through(value, whole(value.args[0]))
                assert found is not None
            self.accesses[key] = self._addressable(found)
            root = self.accesses[key].root
            self.cost[key] = self.cost[id(root)]
            self._inherit(value, (root,))
            return
        self.accesses[key] = whole(value)
        self.cost[key] = self._total_cost(value)
        if value.kind in ("const", "iota"):
            self.leaves[key] = ()
        elif value.kind == "map" and value.size == 1 and self.cost[key] <= CHEAP_SCALAR:
            self._inherit(value, value.args)

    def _inherit(self, value: Value, below: Iterable[Value]) -> None:
        """Note what a value that is recomputed wherever it is read reads in the end."""
        found: dict[int, Value] = {}
        for v in below:
            for leaf in self.leaves.get(id(v), (self.access(v).root,)):
                found[id(leaf)] = leaf
        if value.kind == "view" and id(below_root(self, value)) not in self.leaves:
            return
        if len(found) <= 8:
            self.leaves[id(value)] = tuple(found.values())

    def _addressable(self, access: Access) -> Access:
        """Return an access that can be made: of an input without C order, by its axes."""
        root = access.root
        known = access.maps is not None
        if known or (root.kind != "input" and id(root) not in self.leaves):
            return access
        if root.kind == "input" and root.params["strides"] == c_strides(root.shape):
            return access
        # Read a copy of the root in C order.
        copy = Value("view", (root,), {"offset": 0, "strides": c_strides(root.shape)}, root.shape,
                     root.dtype, root.origin)  # fmt: skip
        self.accesses[id(copy)] = whole(root)
        self.cost[id(copy)] = 0
        self.stored_views.append(copy)
        return Access(copy, None, access.offset, access.strides)

    def _total_cost(self, value: Value) -> int:
        if value.kind in LEAVES or value.kind in ("const", "iota"):
            return 0
        cost = op_cost(value)
        for a in value.args:
            cost += self.cost[id(a)]
        return min(MUCH, cost)

    def access(self, value: Value) -> Access:
        """Return what a value reads of its root: itself, unless it is a view."""
        return self.accesses[id(value)]

    def is_inline(self, value: Value) -> bool:
        """Whether a value that is no view is recomputed wherever it is read."""
        return id(value) in self.leaves

    def uses(self, value: Value) -> tuple[Use, ...]:
        """Return what a value reads, one use per operand."""
        found = self._uses.get(id(value))
        if found is None:
            self._uses[id(value)] = found = self._find(value)
        return found

    def copy_use(self, value: Value) -> tuple[Use, ...]:
        """Return what a view reads that is stored as an array of its own."""
        return (spread(self.access(value), value.shape, value.ndim),)

    def _find(self, value: Value) -> tuple[Use, ...]:
        ndim = len(domain(value))
        kind = value.kind
        if kind == "view":
            return self.copy_use(value)
        if kind in ("map", "reduce"):
            accesses = self.accesses
            return tuple([spread(accesses[id(a)], a.shape, ndim) for a in value.args])
        if kind == "dot":
            return self._product(value)
        if kind == "place":
            base, piece = value.args
            return (
                spread(self.access(base), base.shape, ndim),
                moved(self.access(piece), piece.shape, value.params["starts"]),
            )
        if kind == "join":
            return tuple(self._pieces(value))
        if kind == "gather":
            return self._gather(value)
        if kind == "scatter":
            return self._scatter(value)
        return ()

    def _product(self, value: Value) -> tuple[Use, ...]:
        """Return the uses of a product's operands; the last axis of the domain is summed."""
        a, b = value.args[:2]
        ndim = value.ndim + 1
        rows = value.ndim - 1 - (b.ndim > 1)
        columns = value.ndim - 1
        leads = value.ndim - (a.ndim > 1) - (b.ndim > 1)
        made = []
        for x, matrix in ((a, (rows, ndim - 1)), (b, (ndim - 1, columns))):
            own = matrix if x.ndim > 1 else (ndim - 1,)
            axes = (*range(leads - (x.ndim - len(own)), leads), *own)
            maps = tuple(
                Map(0, ((k, 1),) if n != 1 else ()) for k, n in zip(axes, x.shape, strict=True)
            )
            made.append(_compose(self.access(x), maps, ndim))
        return tuple(made)

    def _pieces(self, value: Value) -> Iterable[Use]:
        axis, at = value.params["axis"], 0
        for a in value.args:
            offsets = tuple(at if k == axis else 0 for k in range(value.ndim))
            yield moved(self.access(a), a.shape, offsets)
            at += a.shape[axis]

    def is_range(self, index: Value) -> int:
        """Return the axis along which `index` counts 0, 1, ..., -1 if it does not."""
        access = self.access(index)
        if access.root.kind != "iota" or access.maps is None:
            return -1
        axis: int = access.root.params["axis"]
        m = access.maps[axis]
        if m.const or len(m.terms) != 1 or m.terms[0][1] != 1:
            return -1
        return m.terms[0][0]

    def _gather(self, value: Value) -> tuple[Use, ...]:
        """Return uses of x and of the indices; axis ``ndim + k`` stands for index k."""
        x, indices = value.args[0], value.args[1:]
        axes, position, ndim = value.params["axes"], value.params["position"], value.ndim
        width = indices[0].ndim
        rest = [k for k in range(ndim) if not position <= k < position + width]
        maps: list[Map] = []
        for a, n in enumerate(x.shape):
            if a in axes:
                k = axes.index(a)
                ranged = self.is_range(indices[k])
                straight = ranged >= 0 and indices[k].shape[ranged] <= n
                maps.append(Map(0, ((position + ranged if straight else ndim + k, 1),)))
            else:
                at = rest.pop(0)
                maps.append(Map(0, ((at, 1),) if n != 1 else ()))
        read = _compose(self.access(x), tuple(maps), ndim + len(indices))
        return (read, *(self._shifted(i, position, ndim) for i in indices))

    def _shifted(self, index: Value, position: int, ndim: int) -> Use:
        maps = tuple(
            Map(0, ((a + position, 1),) if n != 1 else ()) for a, n in enumerate(index.shape)
        )
        return _compose(self.access(index), maps, ndim)

    def row_scatter(self, value: Value) -> int:
        """Return which index of a scatter counts along an axis, -1 if none does.

        Such a scatter writes each element at most once: it is a choice, element by element.
        """
        indices = value.args[2:]
        if not indices or indices[0].ndim != 1:
            return -1
        for k, i in enumerate(indices):
            if self.is_range(i) == 0 and i.shape[0] <= value.shape[value.params["axes"][k]]:
                return k
        return -1

    def _scatter(self, value: Value) -> tuple[Use, ...]:
        base, piece, *indices = value.args
        ndim = value.ndim
        read = spread(self.access(base), base.shape, ndim)
        counted = self.row_scatter(value)
        if counted < 0:
            return (read,)
        axes, position = value.params["axes"], value.params["position"]
        line = axes[counted]
        rest = [k for k in range(ndim) if k not in axes]
        order = [*rest[:position], line, *rest[position:]]
        maps = tuple(Map(0, ((order[a], 1),) if n != 1 else ()) for a, n in enumerate(piece.shape))
        at = (Map(0, ((line, 1),) if indices[0].size != 1 else ()),)
        return (
            read,
            _compose(self.access(piece), maps, ndim),
            *(_compose(self.access(i), at, ndim) for i in indices),
        )


def below_root(uses: Uses, value: Value) -> Value:
    """Return the root of a view."""
    return uses.access(value).root


def _compose(access: Access, maps: Maps, ndim: int) -> Use:
    """Return `access` with its axes replaced by `maps` onto `ndim` axes."""
    step = linear(maps, access.strides)
    found = dict(step.terms)
    strides = tuple(found.get(a, 0) for a in range(ndim))
    composed = None if access.maps is None else substitute(access.maps, maps)
    return Use(access.root, composed, access.offset + step.const, strides)


def numeric(dtype: Any) -> bool:
    """Whether kernels compute with a dtype."""
    return dtype.char in NUMERIC

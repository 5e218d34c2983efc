"""What every kind of value reads, as uses of roots by indices of its domain.

The domain of a value is what its kernel runs over: its shape, but the shape of its operand
for a reduction.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from adarray.compiler.ir.builder import PAIRS, PRINTABLE, WIDE
from adarray.compiler.ir.domains import (
    Access,
    AffineIndex,
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
from adarray.compiler.ir.primitives import (
    CallResult,
    Concatenate,
    Constant,
    ConstantArray,
    DType,
    GatherND,
    Iota,
    Map,
    Matmul,
    PrefixScan,
    Primitive,
    ProgramInput,
    PythonCall,
    Reduce,
    ScatterND,
    UpdateSlice,
    View,
)
from adarray.compiler.ir.program import Value, c_strides
from adarray.compiler.scalars.catalogue import FUNCTIONS

# Recomputing costs at most so much, in arithmetic operations.
CHEAP_SCALAR, MUCH = 64, 1 << 20
# Operands of a concatenation that are chosen from element by element.
PIECES = 4
# Multiplications of a matrix product that is no work for a library.
SMALL_PRODUCT = 1024
# What is read from memory, or has no cost.
LEAVES: frozenset[type[Primitive]] = frozenset({
    ProgramInput, Constant, ConstantArray, Iota, Reduce, PrefixScan, Matmul, PythonCall, CallResult,
})  # fmt: skip


def is_source(value: Value) -> bool:
    """Whether a value lies in memory before the first step: an input, or constants."""
    return isinstance(value.primitive, (ProgramInput, ConstantArray))


def op_cost(value: Value) -> int:
    """Return what one element of a value costs, its operands given."""
    if not isinstance(value.primitive, Map):
        return 2
    return FUNCTIONS[value.primitive.name].cost


def sweeps(value: Value) -> bool:
    """Whether a matrix product is computed by loops: one matrix is a vector, or all is small."""
    matmul = value.primitive
    if not isinstance(matmul, Matmul) or matmul.epilogue or not numeric(value.dtype):
        return False
    if value.dtype in WIDE:  # sums of loops would be rounded at every step
        return False
    a, b = value.args
    rows = a.shape[-2] if a.ndim > 1 else 1
    columns = b.shape[-1] if b.ndim > 1 else 1
    if a.ndim > 2 and b.ndim > 2 and a.shape[:-2] != b.shape[:-2]:
        return False
    small = matmul.loops or value.size * a.shape[-1] <= SMALL_PRODUCT
    return small or min(rows, columns, a.shape[-1]) == 1


def domain(value: Value) -> Shape:
    """Return the shape that the kernel of a value runs over."""
    if isinstance(value.primitive, Reduce):
        return value.args[0].shape
    if isinstance(value.primitive, Matmul):
        return (*value.shape, value.args[0].shape[-1])
    return value.shape


def folded(value: Value) -> tuple[int, ...]:
    """Return the axes of the domain of a value that are folded."""
    if isinstance(value.primitive, Reduce):
        return tuple(a % value.args[0].ndim for a in value.primitive.axes)
    return (value.ndim,) if isinstance(value.primitive, Matmul) else ()


class Uses:
    """Accesses, uses and costs of the values of a program, found once.

    Values come in the program's order, by `add`.
    """

    def __init__(self) -> None:
        self.accesses: dict[Value, Access] = {}
        self.cost: dict[Value, int] = {}
        self.leaves: dict[Value, tuple[Value, ...]] = {}
        self._uses: dict[Value, tuple[Use, ...]] = {}
        self.stored_views: list[Value] = []

    def add(self, value: Value) -> None:
        """Take in the next value."""
        primitive = value.primitive
        if isinstance(primitive, View):
            access = through(primitive, value, self.access(value.args[0]))
            if access is None:
                # No strides say it: what it shows must lie in memory as itself.
                self.stored_views.append(value.args[0])
                access = through(primitive, value, whole(value.args[0]))
                assert access is not None
            self.accesses[value] = access = self._addressable(access)
            self.cost[value] = self.cost[access.root]
            self._inherit(value, (access.root,))
            return
        self.accesses[value] = whole(value)
        self.cost[value] = cost = self._total_cost(value)
        if isinstance(primitive, Map):
            if value.size == 1 and cost <= CHEAP_SCALAR:
                self._inherit(value, value.args)
        elif isinstance(primitive, (Constant, Iota)):
            self.leaves[value] = ()

    def _inherit(self, value: Value, below: Iterable[Value]) -> None:
        """Note what a value that is recomputed wherever it is read reads in the end."""
        roots: dict[Value, None] = {}
        for v in below:
            roots.update(dict.fromkeys(self.leaves.get(v, (self.access(v).root,))))
        if isinstance(value.primitive, View) and self.access(value).root not in self.leaves:
            return
        if len(roots) <= 8:
            self.leaves[value] = tuple(roots)

    def _addressable(self, access: Access) -> Access:
        """Return an access that can be made: of an input without C order, by its axes."""
        root = access.root
        source = root.primitive if isinstance(root.primitive, ProgramInput) else None
        if access.maps is not None or (source is None and root not in self.leaves):
            return access
        c_order = c_strides(root.shape)
        if source is not None and source.strides == c_order:
            return access
        # Read a copy of the root in C order.
        copy = Value(View(0, c_order), (root,), root.shape, root.dtype, root.origin)
        self.accesses[copy] = whole(root)
        self.cost[copy] = 0
        self.stored_views.append(copy)
        return Access(copy, None, access.offset, access.strides)

    def _total_cost(self, value: Value) -> int:
        if type(value.primitive) in LEAVES:
            return 0
        cost = op_cost(value)
        for a in value.args:
            cost += self.cost[a]
        return min(MUCH, cost)

    def access(self, value: Value) -> Access:
        """Return what a value reads of its root: itself, unless it is a view."""
        return self.accesses[value]

    def is_inline(self, value: Value) -> bool:
        """Whether a value that is no view is recomputed wherever it is read."""
        return value in self.leaves

    def uses(self, value: Value) -> tuple[Use, ...]:
        """Return what a value reads, one use per operand."""
        reads = self._uses.get(value)
        if reads is None:
            self._uses[value] = reads = self._find(value)
        return reads

    def copy_use(self, value: Value) -> tuple[Use, ...]:
        """Return what a view reads that is stored as an array of its own."""
        return (spread(self.access(value), value.shape, value.ndim),)

    def _find(self, value: Value) -> tuple[Use, ...]:
        ndim = len(domain(value))
        match value.primitive:
            case Map() | Reduce():
                accesses = self.accesses
                return tuple([spread(accesses[a], a.shape, ndim) for a in value.args])
            case View():
                return self.copy_use(value)
            case Matmul():
                return self._product(value)
            case UpdateSlice() as p:
                base, piece = value.args
                return (
                    spread(self.access(base), base.shape, ndim),
                    moved(self.access(piece), piece.shape, p.starts),
                )
            case Concatenate() as p:
                return tuple(self._pieces(p.axis, value))
            case GatherND() as p:
                return self._gather(p, value)
            case ScatterND() as p:
                return self._scatter(p, value)
            case (
                ProgramInput()
                | Constant()
                | ConstantArray()
                | Iota()
                | PrefixScan()
                | PythonCall()
                | CallResult()
            ):
                return ()
            case _:
                assert_never(value.primitive)

    def _product(self, value: Value) -> tuple[Use, ...]:
        """Return the uses of a product's operands; the last axis of the domain is summed."""
        a, b = value.args[:2]
        ndim = value.ndim + 1
        rows = value.ndim - 1 - (b.ndim > 1)
        columns = value.ndim - 1
        leads = value.ndim - (a.ndim > 1) - (b.ndim > 1)
        reads = []
        for x, matrix in ((a, (rows, ndim - 1)), (b, (ndim - 1, columns))):
            own = matrix if x.ndim > 1 else (ndim - 1,)
            axes = (*range(leads - (x.ndim - len(own)), leads), *own)
            maps = tuple(
                AffineIndex(0, ((k, 1),) if n != 1 else ())
                for k, n in zip(axes, x.shape, strict=True)
            )
            reads.append(_compose(self.access(x), maps, ndim))
        return tuple(reads)

    def _pieces(self, axis: int, value: Value) -> Iterable[Use]:
        at = 0
        for a in value.args:
            offsets = tuple(at if k == axis else 0 for k in range(value.ndim))
            yield moved(self.access(a), a.shape, offsets)
            at += a.shape[axis]

    def is_range(self, index: Value) -> int:
        """Return the axis along which `index` counts 0, 1, ..., -1 if it does not."""
        access = self.access(index)
        counted = access.root.primitive
        if not isinstance(counted, Iota) or access.maps is None:
            return -1
        m = access.maps[counted.axis]
        if m.const or len(m.terms) != 1 or m.terms[0][1] != 1:
            return -1
        return m.terms[0][0]

    def _gather(self, p: GatherND, value: Value) -> tuple[Use, ...]:
        """Return uses of x and of the indices; axis ``ndim + k`` stands for index k."""
        x, indices = value.args[0], value.args[1:]
        axes, position, ndim = p.axes, p.position, value.ndim
        width = indices[0].ndim
        rest = [k for k in range(ndim) if not position <= k < position + width]
        maps: list[AffineIndex] = []
        for a, n in enumerate(x.shape):
            if a in axes:
                k = axes.index(a)
                ranged = self.is_range(indices[k])
                straight = ranged >= 0 and indices[k].shape[ranged] <= n
                maps.append(AffineIndex(0, ((position + ranged if straight else ndim + k, 1),)))
            else:
                at = rest.pop(0)
                maps.append(AffineIndex(0, ((at, 1),) if n != 1 else ()))
        read = _compose(self.access(x), tuple(maps), ndim + len(indices))
        return (read, *(self._shifted(i, position, ndim) for i in indices))

    def _shifted(self, index: Value, position: int, ndim: int) -> Use:
        maps = tuple(
            AffineIndex(0, ((a + position, 1),) if n != 1 else ())
            for a, n in enumerate(index.shape)
        )
        return _compose(self.access(index), maps, ndim)

    def row_scatter(self, p: ScatterND, value: Value) -> int:
        """Return which index of a scatter counts along an axis, -1 if none does.

        Such a scatter writes each element at most once: it is a choice, element by element.
        """
        indices = value.args[2:]
        if not indices or indices[0].ndim != 1:
            return -1
        for k, i in enumerate(indices):
            if self.is_range(i) == 0 and i.shape[0] <= value.shape[p.axes[k]]:
                return k
        return -1

    def _scatter(self, p: ScatterND, value: Value) -> tuple[Use, ...]:
        base, piece, *indices = value.args
        ndim = value.ndim
        read = spread(self.access(base), base.shape, ndim)
        counted = self.row_scatter(p, value)
        if counted < 0:
            return (read,)
        axes, position = p.axes, p.position
        line = axes[counted]
        rest = [k for k in range(ndim) if k not in axes]
        order = [*rest[:position], line, *rest[position:]]
        maps = tuple(
            AffineIndex(0, ((order[a], 1),) if n != 1 else ()) for a, n in enumerate(piece.shape)
        )
        at = (AffineIndex(0, ((line, 1),) if indices[0].size != 1 else ()),)
        return (
            read,
            _compose(self.access(piece), maps, ndim),
            *(_compose(self.access(i), at, ndim) for i in indices),
        )


def _compose(access: Access, maps: Maps, ndim: int) -> Use:
    """Return `access` with its axes replaced by `maps` onto `ndim` axes."""
    step = linear(maps, access.strides)
    coefs = dict(step.terms)
    strides = tuple(coefs.get(a, 0) for a in range(ndim))
    composed = None if access.maps is None else substitute(access.maps, maps)
    return Use(access.root, composed, access.offset + step.const, strides)


def numeric(dtype: DType) -> bool:
    """Whether kernels compute with a dtype, or move it."""
    return dtype in PRINTABLE or dtype in PAIRS

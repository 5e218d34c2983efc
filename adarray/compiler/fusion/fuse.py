"""Fusion: which values are computed by which kernel.

Values come in program order, and each joins a group that computes one of its operands, or
reads an array that it reads, if their axes agree and no cycle arises; else it founds a
group. So a group grows around an outer axis as long as everything in it runs row by row.

References
----------
- K. Kennedy, K. S. McKinley, "Maximizing loop parallelism and improving data locality via loop
  fusion and distribution", LCPC 1993.
- J. Ragan-Kelley et al., "Halide: a language and compiler for optimizing parallelism, locality, and
  recomputation in image processing pipelines", PLDI 2013.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import assert_never

from adarray.compiler.fusion.groups import TOTAL, AxisAssignment, Group, GroupKind
from adarray.compiler.fusion.turns import folds_in_turn
from adarray.compiler.ir.domains import Maps, Use, elements
from adarray.compiler.ir.primitives import (
    CallResult,
    Concatenate,
    Constant,
    ConstantArray,
    GatherND,
    Iota,
    Map,
    Matmul,
    PrefixScan,
    ProgramInput,
    PythonCall,
    Reduce,
    ScatterND,
    Shape,
    UpdateSlice,
    View,
)
from adarray.compiler.ir.program import Program, Value, c_strides
from adarray.compiler.ir.target import CPU, GpuTarget, Target
from adarray.compiler.ir.uses import PIECES, Uses, domain, folded, is_source, numeric, sweeps

# Groups beyond which none gets new predecessors once others depend on it.
MANY = 512
# Groups that a value tries to join.
TRIES = 8
# Rows below which a kernel does not fill a GPU, unless the loops in them are shared out, too.
FEW = 1024
# Elements for each result from which on a fold in two stages is two kernels.
STAGED = 1 << 16
# Rows as short as this, of which there are many.
NARROW_ROW, MANY_ROWS = 32, 1 << 16
# Rows of which each may be folded by a few threads: there are enough of them to fill a GPU.
ENOUGH = 8192


class Fusion:
    """Groups of a program.

    Parameters
    ----------
    program : Program
    late : mapping, optional
        Values that must not be computed before they are needed, each with a number; they join
        groups only that such values with the same number have founded.
    target : Target

    Attributes
    ----------
    groups : list of Group
        In an order in which they can run.
    owner : dict
        Group of each value that is computed in one.
    uses : Uses
    reasons : dict
        Why two values are in different groups.
    """

    def __init__(
        self,
        program: Program,
        late: Mapping[Value, int] | None = None,
        target: Target = CPU,
    ) -> None:
        self.program = program
        # Values up to so many elements are computed together whatever their axes are.
        self.most = target.small
        self.along = target.along
        self.target = target
        self.late = {**{v: -1 - k for v, k in program.apart.items()}, **(late or {})}
        self.apart = program.apart
        self.uses = Uses()
        self.groups: list[Group] = []
        self.owner: dict[Value, Group] = {}
        self.reasons: dict[tuple[Value, Value], str] = {}
        self.readers: dict[Value, list[Group]] = {}
        self.by_shape: dict[tuple[int, ...], Group] = {}
        self.small: list[Group] = []
        self.users_of_group: set[int] = set()
        self.values: list[Value] = []
        values = live(program)
        self.row_folds = _row_folds(values) if self.along else {}
        for value in values:
            self._take(value)
        for value in program.outputs:
            self._store_output(value)
        self.groups = _ordered(self.groups)

    # -- values ---------------------------------------------------------------------------

    def _take(self, value: Value) -> None:
        """Find a place for the next value."""
        self.uses.add(value)
        self.values.append(value)
        for view in self.uses.stored_views:
            self.store(view)
        self.uses.stored_views.clear()
        if is_source(value) or isinstance(value.primitive, View) or self.uses.is_inline(value):
            return
        if is_step(value, self.uses, self.most, self.along):
            self._step(value)
        else:
            self._fuse(value)

    def store(self, value: Value) -> Value:
        """Make sure that a value lies in memory as an array in C order; return it."""
        if value not in self.owner and not is_source(value):
            self._fuse(value)
        return value

    def _store_output(self, value: Value) -> None:
        """Make sure that an output can be a view of one buffer, without repetitions."""
        if isinstance(value.primitive, View) and self.returns_view(value):
            return
        self.store(value)

    def returns_view(self, value: Value) -> bool:
        """Whether an output is a permutation of a stored value's elements."""
        access = self.uses.access(value)
        if self.uses.is_inline(access.root) or access.root.size != value.size:
            return False
        if isinstance(access.root.primitive, ProgramInput) and access.maps is None:
            return False
        pairs = sorted(
            (abs(s), n) for s, n in zip(access.strides, value.shape, strict=True) if n != 1
        )
        step = 1
        for s, n in pairs:
            if s != step:
                return False
            step *= n
        return True

    # -- groups ---------------------------------------------------------------------------

    def _step(self, value: Value) -> None:
        """Give a value a step of its own; its operands must lie in memory."""
        self.uses.cost[value] = 0
        group = self._new("step")
        by_library = isinstance(value.primitive, (Matmul, PythonCall, CallResult))
        group.library = by_library or not computable(value)
        group.members.append(value)
        group.classes[value] = ()
        group.totals.add(value)
        for a in value.args:
            access = self.uses.access(a)
            if group.library and self.uses.is_inline(access.root):
                self.store(a)
                self._precede(group, self.owner[a])
                continue
            for leaf in self.uses.leaves.get(access.root, (access.root,)):
                if leaf in self.owner:
                    self._precede(group, self.owner[leaf])
        self.owner[value] = group

    def _new(self, kind: GroupKind) -> Group:
        group = Group(len(self.groups), kind)
        self.groups.append(group)
        return group

    def _precede(self, group: Group, first: Group) -> None:
        """Note that `first` runs before `group`."""
        added = first.before | 1 << first.index
        self.users_of_group.add(first.index)
        if added | group.before == group.before:
            return
        group.before |= added
        if group.index in self.users_of_group:
            bit = 1 << group.index
            for other in self.groups:
                if other.before & bit:
                    other.before |= group.before

    def _foreign(self, group: Group, uses: Iterable[Use]) -> list[Group] | None:
        """Return the groups that must run before a value joins; None if one cannot."""
        owners = []
        for use in uses:
            for leaf in self.uses.leaves.get(use.root, (use.root,)):
                owner = self.owner.get(leaf)
                if owner is None or (owner is group and group.has(leaf)):
                    continue
                if owner is group or owner.before >> group.index & 1:
                    return None
                owners.append(owner)
        if group.index in self.users_of_group and len(self.groups) > MANY:
            for f in owners:
                if (f.before | 1 << f.index) & ~group.before:
                    return None
        return owners

    def _candidates(self, value: Value, uses: tuple[Use, ...]) -> Iterator[Group]:
        """Yield the groups that a value may join, the likeliest first."""
        owners: dict[int, Group] = {}
        for use in uses:
            owner = self.owner.get(use.root)
            if owner is not None:
                owners[owner.index] = owner
            for leaf in self.uses.leaves.get(use.root, ()):
                owner = self.owner.get(leaf)
                if owner is not None:
                    owners[owner.index] = owner
        tried = [owners[k] for k in sorted(owners, reverse=True) if owners[k].kind != "step"][
            :TRIES
        ]
        yield from tried  # most values join the first one
        candidates: list[Group] = []
        shape = domain(value)
        if elements(shape) <= self.most:
            candidates += self.small[-2:]
        for use in uses:
            candidates += self.readers.get(use.root, ())[-2:]
        if shape in self.by_shape:
            candidates.append(self.by_shape[shape])
        for group in candidates:
            if len(tried) < TRIES and group.kind != "step" and group not in tried:
                tried.append(group)
                yield group

    def _fuse(self, value: Value) -> None:
        """Let a value join a group, or found one."""
        if not computable(value):
            self._step(value)
            return
        uses = self.uses.uses(value)
        small = elements(domain(value)) <= self.most
        batch = self.late.get(value)
        for group in self._candidates(value, uses):
            if batch is not None and self.late.get(group.members[0]) != batch:
                continue
            if group.kind == "small" and not small:
                continue
            if self.along and (
                self._is_second_stage(value, group) or self._sums_short_rows(value, group)
            ):
                self._note(uses, value, group, "threads share its sums in another way")
                continue
            before = self._foreign(group, uses)
            if before is None:
                self._note(uses, value, group, "it needs a result of the whole kernel")
                continue
            attempt = AxisAssignment(
                group, value, self.uses, self.along, bounded=value not in self.apart
            )
            if attempt.run() and self._suits(attempt, uses):
                self._commit(attempt, before)
                return
            self._note(uses, value, group, attempt.reason or "it runs along another axis")
        self._new_group(value, uses, small)

    def _suits(self, attempt: AxisAssignment, uses: tuple[Use, ...]) -> bool:
        """Whether a value that could join a group is computed well there."""
        if attempt.value in self.apart:
            return True
        if isinstance(self.target, GpuTarget) and folds_in_turn(attempt, self.target):
            return attempt.refuse(
                "threads would take turns at rows that are folded over several axes"
            )
        return self._runs_along(attempt, uses)

    def _runs_along(self, attempt: AxisAssignment, uses: tuple[Use, ...]) -> bool:
        """Whether the group's outer axis is the one that a value should have, if it matters."""
        group = attempt.group
        if not self.along or group.outer < 0 or sum(n != 1 for n in attempt.shape) < 2:
            return True
        outer = group.find(group.outer)
        mine = [a for a, c in enumerate(attempt.classes) if c >= 0 and group.find(c) == outer]
        if not mine:
            return True
        wanted = outer_axis(attempt.value, uses, True, self._folds_of(attempt.value))
        few = attempt.shape[wanted] < min(FEW, attempt.shape[mine[0]])
        # What it reads of the group lies nowhere yet, so nothing is gained by a kernel of few rows.
        return mine[0] == wanted or (few and not any(_decides(u, attempt) for u in attempt.outside))

    def _is_second_stage(self, value: Value, group: Group) -> bool:
        """Whether a value folds what a group has of many long rows to a few numbers.

        With it, the kernel would have no more rows than these.
        """
        if not isinstance(value.primitive, Reduce) or value.size == 1:
            return False
        first = self.uses.access(value.args[0]).root
        return (
            isinstance(first.primitive, Reduce)
            and self.owner.get(first) is group
            and first.size >= ENOUGH > value.size * FEW_ROWS
            and elements(domain(first)) >= STAGED * value.size
        )

    def _sums_short_rows(self, value: Value, group: Group) -> bool:
        """Whether a value sums up many short rows that a group computes of pieces of arrays.

        Rows that lie side by side are one loop for all threads, which have a column each. Where
        pieces keep them apart, a few threads of a warp add to sums in shared memory.
        """
        if not isinstance(value.primitive, Reduce) or not 1 < value.size <= NARROW_ROW:
            return False
        shape = domain(value)
        columns = [a for a, n in enumerate(shape) if n != 1][-1:]
        return (
            elements(shape) >= MANY_ROWS * value.size
            and not set(columns) & set(folded(value))
            and any(isinstance(m.primitive, Concatenate) for m in group.members)
        )

    def _folds_of(self, value: Value) -> frozenset[int]:
        """Return the axes that folds of arrays with the domain of a value are over."""
        return self.row_folds.get(domain(value), frozenset())

    def _note(self, uses: Iterable[Use], value: Value, group: Group, reason: str) -> None:
        for use in uses:
            if self.owner.get(use.root) is group:
                self.reasons[use.root, value] = reason

    def _new_group(self, value: Value, uses: tuple[Use, ...], small: bool) -> None:
        group = self._new("small" if small else "rows")
        if small:
            self.small.append(group)
        before = self._foreign(group, uses)
        assert before is not None
        attempt = AxisAssignment(group, value, self.uses)
        if not small:
            axis = 0  # of values that are apart, the one that is folded
            if value not in self.apart:
                axis = outer_axis(value, uses, self.along, self._folds_of(value))
            group.outer = group.new_class(domain(value)[axis])
            attempt.classes[axis] = group.outer
        fits = attempt.run()
        assert fits
        self._commit(attempt, before)

    def _commit(self, attempt: AxisAssignment, before: list[Group]) -> None:
        group, value = attempt.group, attempt.value
        attempt.commit()
        for first in before:
            self._precede(group, first)
        self.owner[value] = group
        self.by_shape[attempt.shape] = group
        for use in attempt.uses:
            if not group.has(use.root):
                known = self.readers.setdefault(use.root, [])
                if not known or known[-1] is not group:
                    known.append(group)


def _decides(use: Use, attempt: AxisAssignment) -> bool:
    """Whether an array in memory is large enough to decide the axis along which a value runs."""
    return use.maps is not None and 2 * use.root.size >= elements(attempt.shape)


def _row_folds(values: Iterable[Value]) -> dict[Shape, frozenset[int]]:
    """Return by shape the axes that folds are over, other than those of all elements."""
    axes: dict[Shape, frozenset[int]] = {}
    for v in values:
        if isinstance(v.primitive, Reduce) and v.size > 1:
            shape = v.args[0].shape
            axes[shape] = axes.get(shape, frozenset()) | frozenset(folded(v))
    return axes


def live(program: Program) -> list[Value]:
    """Return the values that outputs depend on, in order."""
    needed = set(program.outputs)
    for v in reversed(program.values):
        if v in needed:
            needed.update(v.args)
    return [v for v in program.values if v in needed]


def computable(value: Value) -> bool:
    """Whether kernels can compute a value: they know real numbers and truth values."""
    return all(map(numeric, [v.dtype for v in (value, *value.args)]))


# Iterations of a group's outer loop on a GPU, if another axis has many more.
LEAST = 64
# Rows that leave most of a GPU idle if a block takes each, and elements from which on they are so
# long that this takes more time than the kernels of a fold of all rows and of what follows it.
FEW_ROWS, LONG_ROW = 32, 1 << 18
# Elements that a GPU moves while it begins another kernel.
LAUNCH = 1 << 18


def is_step(value: Value, uses: Uses, small: int, along: bool = False) -> bool:
    """Whether a value has a step of its own; `small` ones of these have none.

    A small piece of a large array is written into that where it lies. Where it is of equal
    numbers, threads of a GPU (`along`) choose it element by element: a pass over memory less.
    """
    match value.primitive:
        case Map() | Reduce() | GatherND():
            return False
        case Matmul():
            return not sweeps(value)
        case PythonCall() | CallResult() | PrefixScan():
            return True
        case ScatterND() as p:
            return uses.row_scatter(p, value) < 0
        case UpdateSlice() as p:
            base, piece = value.args
            if any(s != 1 for s in p.steps):
                return True
            inline = uses.is_inline(uses.access(base).root)
            if along and (inline or value.size <= LAUNCH or _mostly_equal(base, uses)):
                return False
            return value.size > small and piece.size * (32 if inline else 4) <= value.size
        case Concatenate():
            return len(value.args) > PIECES
        case ProgramInput() | Constant() | ConstantArray() | Iota() | View():
            return False  # in memory, or computed where they are read
        case _:
            assert_never(value.primitive)


def _mostly_equal(base: Value, uses: Uses) -> bool:
    """Whether an array is of equal numbers but for a few pieces, as cotangents of ends are."""
    for _ in range(PIECES):
        root = uses.access(base).root
        if uses.is_inline(root):
            return True
        if not isinstance(root.primitive, UpdateSlice) or 4 * root.args[1].size > root.size:
            return False
        base = root.args[0]
    return False


def outer_axis(
    value: Value,
    uses: tuple[Use, ...],
    along: bool = False,
    folds: frozenset[int] = frozenset(),
) -> int:
    """Return the axis of a value's domain along which a new group runs.

    With `along`, arrays that are much smaller, or read at indices from memory, do not decide,
    and a short axis gives way to a long one: if there are rows enough without, to one that no
    `folds` of such arrays are over.
    """
    shape = domain(value)
    reach = [0] * len(shape)
    if along:
        large = [u for u in uses if u.maps is not None and 2 * u.root.size >= elements(shape)]
        uses = () if isinstance(value.primitive, GatherND) else tuple(large)
    largest = max((u.root.size for u in uses), default=0)
    for use in uses:
        if use.root.size == largest:
            strides = use.strides
            root = use.root.primitive
            if isinstance(root, ProgramInput) and use.maps is not None:
                strides = _strides(use.maps, root.strides, len(shape))
            reach = [max(r, abs(s)) for r, s in zip(reach, strides, strict=False)]
    if not any(reach):
        reach = list(c_strides(shape))
    axes = [a for a, n in enumerate(shape) if n != 1]
    summed = folded(value)
    others = [a for a in axes if a not in summed]
    best = max(axes, key=lambda a: (reach[a], -a))
    widest = max(others or axes, key=lambda a: shape[a])
    if best in summed and others and value.size > min(TOTAL, elements(shape) // 16):
        return widest
    few, many = shape[best] < 8, 64 * shape[best]
    # All blocks share the sum of all elements anyway, in the order of memory.
    of_rows = folds if value.size == 1 else folds | set(summed)
    if along and reach[axes[-1]] == 1 and _has_long_rows(shape, axes[-1], of_rows):
        return axes[-1]
    if along:
        # Not the last axis, which folds are over more often than not; nor one along which
        # everything large lies side by side.
        free = others[:-1] if others[-1:] == axes[-1:] else others
        rows = elements(tuple(shape[a] for a in axes if a not in folds))
        free = [a for a in free if reach[a] != 1 and not (rows >= ENOUGH and a in folds)]
        widest = max(free, key=lambda a: shape[a], default=best)
        few, many = shape[best] < LEAST, 8 * shape[best]
    elif summed or not others:
        return best
    return widest if few and shape[widest] >= many else best


def _has_long_rows(shape: Shape, last: int, folds: frozenset[int]) -> bool:
    """Whether there are few rows that something folds, and so long that blocks are to share them.

    Each is folded by one block otherwise, and most of a GPU has nothing to do.
    """
    few = 1 < elements(shape) // shape[last] <= FEW_ROWS
    return few and last in folds and shape[last] >= LONG_ROW


def _strides(maps: Maps, strides: Shape, ndim: int) -> Shape:
    """Return how far an input's element moves per step along each axis of the domain."""
    moves = [0] * ndim
    for m, s in zip(maps, strides, strict=True):
        for axis, coef in m.terms:
            if axis < ndim:
                moves[axis] += coef * s
    return tuple(moves)


def _ordered(groups: list[Group]) -> list[Group]:
    """Return groups in an order in which they can run, the first ones first."""
    done = 0
    order: list[Group] = []
    for group in groups:
        stack = [group]
        while stack:
            g = stack[-1]
            missing = g.before & ~done
            if done >> g.index & 1:
                stack.pop()
            elif missing:
                stack.append(groups[(missing & -missing).bit_length() - 1])
            else:
                order.append(g)
                done |= 1 << g.index
                stack.pop()
    return order

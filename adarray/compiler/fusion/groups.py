"""Groups: values that one kernel computes, and the axes that they share.

Every axis of a member belongs to a class, one loop of the kernel. The outer class is the
loop that threads share: all members have it but those that are folded over it (totals),
which only later groups can read. Small groups have no outer class, and no restrictions.

References
----------
- K. Kennedy, K. S. McKinley, "Maximizing loop parallelism and improving data locality via loop
  fusion and distribution", LCPC 1993.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from adarray.compiler.ir.domains import Use, aligned
from adarray.compiler.ir.primitives import Concatenate, ScatterND, UpdateSlice
from adarray.compiler.ir.program import Value
from adarray.compiler.ir.uses import Uses, domain, folded

# Members and arrays of a group; small ones have any number, and are cut (see `Division`).
MEMBERS, STREAMS = 500, 24
# Regions and pieces inside each other.
DEPTH = 3
# Regions that are written into one array one after the other, for threads of a GPU. Each reads
# the same element of that: it is one more choice, and not twice as many.
CHAIN = 64
# Times in a row that what is computed from others' neighbours is read at neighbouring places, by
# threads that compute it again at each: more often, and that is most of what they do.
AGAIN = 2
# Elements of a fold over the outer axis, of which every thread has its own.
TOTAL = 1 << 16
# Bytes of folds over the outer axis that a block goes through in every row: those of two blocks
# for each SM stay in the cache of a GPU.
UPDATED = 128 << 10
Classes = tuple[int, ...]
GroupKind: TypeAlias = Literal["rows", "small", "step", "line"]


class Group:
    """Values that are computed together.

    Attributes
    ----------
    kind : {"rows", "small", "step", "line"}
        A step holds one value that no other can join: a matrix product, a call. A line is computed
        strip by strip (see `adarray.compiler.stencil.line_groups`).
    outer : int
        Class of the axis shared among threads; -1 if there is none.
    members : list of Value
        In an order in which they can be computed.
    classes : dict
        By member: the class of each axis of its domain; -1 for those of length 1.
    totals : set of Value
        Members that are folded over the outer axis.
    library : bool
        Whether a step is no kernel, and reads its operands from memory.
    before : int
        Bit mask of the groups that must run earlier.
    """

    __slots__ = (
        "again", "before", "chains", "classes", "dead", "depth", "extents", "hints", "index",
        "kind", "library", "members", "outer", "parents", "places", "shape", "streams", "totals",
        "united",
    )  # fmt: skip

    def __init__(self, index: int, kind: GroupKind) -> None:
        self.index = index
        self.kind = kind
        self.outer = -1
        self.members: list[Value] = []
        self.classes: dict[Value, Classes] = {}
        self.depth: dict[Value, int] = {}
        self.chains: dict[Value, int] = {}
        self.again: dict[Value, int] = {}
        self.extents: list[int] = []
        self.parents: list[int] = []
        self.united = False
        self.totals: set[Value] = set()
        self.hints: dict[Value, Classes] = {}
        self.streams: set[Value] = set()
        self.shape: tuple[int, ...] = ()
        self.before = 0
        self.dead = False
        self.library = False
        self.places: dict[Value, int] | None = None

    def new_class(self, extent: int) -> int:
        """Return a class that no axis has yet."""
        self.extents.append(extent)
        self.parents.append(len(self.parents))
        return len(self.parents) - 1

    def find(self, c: int) -> int:
        """Return the class that stands for all that were united with `c`."""
        while c >= 0 and self.parents[c] != c:
            c = self.parents[c]
        return c

    def of(self, value: Value) -> Classes:
        """Return the classes of the domain of a member."""
        classes = self.classes[value]
        return tuple([self.find(c) for c in classes]) if self.united else classes

    def result(self, value: Value) -> Classes:
        """Return the classes of a member's own axes."""
        classes = self.of(value)
        axes = folded(value)
        return tuple(c for a, c in enumerate(classes) if a not in axes) if axes else classes

    def has(self, value: Value) -> bool:
        """Whether members can read `value` in the iteration that computes it."""
        return value in self.classes and value not in self.totals

    def unite(self, a: int, b: int) -> bool:
        """Make two classes one; False if some member has both."""
        for classes in self.classes.values():
            roots = {self.find(c) for c in classes}
            if a in roots and b in roots:
                return False
        self.parents[max(a, b)] = min(a, b)
        self.united = True
        return True


class AxisAssignment:
    """An attempt to give the axes of a value classes of a group.

    With `threads`, those of a GPU share a row. They compute again what they read of each other,
    which a row of one inner axis stands a few times, and rows of several axes not at all: their
    loops are to become one (see `spread`). Folds over the outer axis are `bounded` in size, where
    it is not sure that threads have their parts of them in registers.
    """

    def __init__(
        self,
        group: Group,
        value: Value,
        uses: Uses,
        threads: bool = False,
        bounded: bool = True,
    ) -> None:
        self.threads = threads
        self.bounded = bounded
        self.apart = threads and sum(n != 1 for n in domain(value)) > 2
        self.again = 0
        self.chain = 0
        self.group = group
        self.value = value
        self.shape = domain(value)
        self.all_uses = uses
        self.uses = uses.uses(value)
        # What it reads of members, in the iteration that computes them, and of memory.
        self.inside: list[Use] = []
        self.outside: list[Use] = []
        for use in self.uses:
            (self.inside if group.has(use.root) else self.outside).append(use)
        self.depth = 0
        self.classes = [-1] * len(self.shape)
        self.reason = ""

    def refuse(self, reason: str) -> bool:
        """Say why the value does not join."""
        self.reason = reason
        return False

    def run(self) -> bool:
        """Find classes for all axes; False, with a reason, if the value cannot join."""
        g = self.group
        small = g.outer < 0
        if not small and len(g.members) >= MEMBERS:
            return self.refuse("the kernel has as many operations as a kernel may have")
        for use in self.inside:
            if not self._follow(use, small):
                return False
        self.again = self._again()
        if self.threads and not small and self.again > AGAIN:
            return self.refuse("too much would be computed again at neighbouring places")
        if not small and self._reads_elsewhere():
            return self.refuse("its rows are read by other rows")
        for use in self.outside:
            self._take_hint(use)
        self._by_shape()
        if not small and g.outer not in self.classes:
            return self.refuse("they run over different outer axes")
        self.depth, self.chain = self._depth()
        if not small and self._too_many_streams():
            return self.refuse("the kernel reads as many arrays as a kernel may read")
        if self.depth > DEPTH or self.chain > CHAIN:
            return self.refuse("too many regions lie inside each other")
        if folded(self.value) and not self._fits():
            return self.refuse("the fold over the outer axis is too large for every thread")
        if folded(self.value) and self.threads and not small and self._updates_much():
            return self.refuse("sums over rows would be updated in memory in every row")
        for a, n in enumerate(self.shape):
            if n != 1 and self.classes[a] < 0:
                self.classes[a] = self._any_class(n, small)
        return True

    def _depth(self) -> tuple[int, int]:
        """Return how many regions and pieces lie inside each other, in one loop nest.

        Beside it, how many are written into one array: for threads of a GPU those lie side by side.
        """
        if folded(self.value):
            return 0, 0
        below = chain = 0
        update = self.value.primitive
        beside = isinstance(update, UpdateSlice) and self.threads
        for k, use in enumerate(self.uses):
            if not self.group.has(use.root) or use.maps is None:
                continue
            if any(
                n != 1 and aligned(m, n, self.shape) < 0
                for m, n in zip(use.maps, use.root.shape, strict=True)
            ):
                continue
            longest = self.group.chains[use.root]
            on_base = beside and k == 0 and longest > 0
            below = max(below, self.group.depth[use.root] - on_base)
            chain = max(chain, longest)
        region = isinstance(update, (UpdateSlice, Concatenate, ScatterND))
        return below + region, (chain + 1 if beside else 0) if region else chain

    def _again(self) -> int:
        """Return how often in a row members are read at other places than where it is computed."""
        most = 0
        for use in self.inside:
            if folded(use.root):
                continue  # it is computed once a row
            shifted = use.maps is None or any(
                n != 1 and aligned(m, n, self.shape) < 0
                for m, n in zip(use.maps, use.root.shape, strict=True)
            )
            most = max(most, self.group.again[use.root] + shifted)
        return most

    def _too_many_streams(self) -> bool:
        new = {u.root for u in self.outside}
        # Each region of a chain reads what is written there, and nothing later does.
        return bool(new) and len(self.group.streams | new) > STREAMS + self.chain

    def _fits(self) -> bool:
        axes = folded(self.value)
        if self.group.outer < 0 or not any(self.classes[a] == self.group.outer for a in axes):
            return True
        return not self.bounded or self.value.size <= TOTAL

    def _updates_much(self) -> bool:
        """Whether rows that are folded themselves would go through large sums over rows each time.

        Without folds of rows, each thread has its part of such sums in registers.
        """
        g = self.group
        axes = folded(self.value)
        totals = sum(t.nbytes for t in g.totals if t.size > 1)
        if any(self.classes[a] == g.outer for a in axes):
            if self.value.size == 1 or totals + self.value.nbytes <= UPDATED:
                return False
            return any(folded(m) and m not in g.totals for m in g.members)
        return totals > UPDATED

    def _reads_elsewhere(self) -> bool:
        """Whether a number that is computed where it is read needs a certain row of a member."""
        g = self.group
        return any(
            g.has(leaf) and g.outer in map(g.find, (c for c in g.result(leaf) if c >= 0))
            for use in self.outside
            for leaf in self.all_uses.leaves.get(use.root, ())
        )

    def _follow(self, use: Use, small: bool) -> bool:
        """Give axes the classes of a member that is read."""
        g = self.group
        classes = g.result(use.root)
        if use.maps is None:
            return self.refuse("it is read across its axes")
        for c, m, n in zip(classes, use.maps, use.root.shape, strict=True):
            if c < 0:
                continue
            axis = aligned(m, n, self.shape)
            if axis < 0:
                if c == g.outer:
                    return self.refuse("its rows are read by other rows")
                if self.apart and not small:
                    return self.refuse("its elements are read by threads that compute others")
                continue
            have = self.classes[axis]
            if have == c:
                continue
            if have >= 0:
                if small:
                    continue
                if g.outer in (have, c) or not g.unite(have, c):
                    return self.refuse("an axis would be two axes at once")
                c = g.find(c)
                self.classes = [g.find(k) for k in self.classes]
            if c in self.classes[:axis] + self.classes[axis + 1 :]:
                if small:
                    continue
                return self.refuse("two axes would be one")
            self.classes[axis] = c
        return True

    def _take_hint(self, use: Use) -> None:
        """Give axes the classes by which the group already reads an array."""
        hint = self.group.hints.get(use.root)
        if hint is None or use.maps is None:
            return
        for c, m, n in zip(hint, use.maps, use.root.shape, strict=True):
            axis = aligned(m, n, self.shape)
            c = self.group.find(c)
            if c >= 0 and axis >= 0 and self.classes[axis] < 0 and c not in self.classes:
                self.classes[axis] = c

    def _by_shape(self) -> None:
        """Give axes the classes of the first member, where that has the same shape."""
        g = self.group
        if not g.members or g.shape != self.shape:
            return
        first = g.of(g.members[0])
        for c, f in zip(self.classes, first, strict=True):
            if c not in (-1, f):
                return
        self.classes = list(first)

    def _any_class(self, extent: int, small: bool) -> int:
        g = self.group
        if small or extent > 1:
            for c in range(len(g.extents)):
                if (
                    g.extents[c] == extent
                    and g.parents[c] == c
                    and c != g.outer
                    and c not in self.classes
                ):
                    return c
        return g.new_class(extent)

    def commit(self) -> None:
        """Add the value to the group."""
        g = self.group
        value = self.value
        if not g.members:
            g.shape = self.shape
        g.members.append(value)
        g.depth[value] = self.depth
        g.chains[value] = self.chain
        g.again[value] = self.again
        g.classes[value] = tuple(self.classes)
        if g.outer >= 0 and any(self.classes[a] == g.outer for a in folded(value)):
            g.totals.add(value)
        for use in self.outside:
            if use.maps is None:
                continue
            g.streams.add(use.root)
            if use.root not in g.hints:
                hint = []
                for m, n in zip(use.maps, use.root.shape, strict=True):
                    axis = aligned(m, n, self.shape)
                    hint.append(self.classes[axis] if axis >= 0 else -1)
                g.hints[use.root] = tuple(hint)

"""The trace tree: a node is the straight segment between two guards.

Recordings of one signature share their beginnings. Each outcome of a guard has a
child of its own; a path from the root to a leaf is one way through the function.

References
----------
- A. Gal, M. Franz, "Incremental dynamic code generation with trace trees", report ICS-TR-06-16,
  University of California, Irvine, 2006.
- A. Gal et al., "Trace-based just-in-time type specialization for dynamic languages", PLDI 2009.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from adarray.base.engines import CompiledPlan
from adarray.base.recording import Call, Guard, Symbol
from adarray.jitting.recording.record import RecordedRun
from adarray.jitting.shared.constants import constant
from adarray.jitting.shared.devices import OnDevice
from adarray.jitting.shared.keys import (
    HashedKey,
    Same,
    call_key,
    guard_key,
    outcome_key,
    same_call,
    symbols_in,
)
from adarray.jitting.tree.leaf import TreeLeaf
from adarray.jitting.tree.recompute import recomputed

Strides = tuple[int, ...] | None


# Paths, for each different end of a path, that a tree may have.
MANY = 64


class Proof:
    """That one recording shows what each run does, so far as the recording itself can tell.

    What it cannot tell is who owns the plain arrays that its operations read. Those that the run
    has made are gone before the next call; as long as one is there, somebody may write into it.
    """

    __slots__ = ("_operands",)

    def __init__(self, operands: list[Any]) -> None:
        self._operands = [weakref.ref(x) for x in operands]

    def holds(self) -> bool:
        """Whether nobody has any of the arrays."""
        if self._operands:
            self._operands = [x for x in self._operands if x() is not None]
        return not self._operands


class TreeNode:
    """One segment, the guard that ends it, and what follows.

    Attributes
    ----------
    calls : list of Call
    guard : Guard or None
        None at the end of the function.
    leaf : TreeLeaf or None
        Set where `guard` is None.
    children : dict
        Outcome of the guard -> node.
    sources, targets : tuple of int
        Numbers of the values that the segment reads from outside and hands on.
    live : set of int
        Numbers of the values that are read below it.
    seen : int
        How many recordings agreed on it.
    proof : Proof or None
        Why one recording of it is enough, if it is.
    compiled : (tuple of int, callable) or None
        Targets, and what computes them: arrays of `sources` -> arrays of these targets.
    before, after, plan, executable, seconds, eager
        What the stages made of it and how long they took, for `explain`.

    Notes
    -----
    References go down the tree only: what was compiled, and the memory that it keeps, is freed
    with the last reference to the jitted function, not when the collector comes by.
    """

    def __init__(
        self,
        tree: Tree,
        path: Path,
        part: PendingSegment,
        parent: TreeNode | None,
        leaf: TreeLeaf | None,
        proof: Proof | None = None,
    ) -> None:
        self.proof = proof
        self._tree = weakref.ref(tree)
        self._parent = None if parent is None else weakref.ref(parent)
        self._single = parent is None and leaf is not None
        self.path = path
        again = recomputed(part, path) if leaf is not None and parent is not None else []
        self.calls = [*again, *part.calls]
        self.part = part
        self.guard = part.guard
        self.first, self.stop = part.first, part.stop
        self.leaf = leaf
        self.children: dict[Hashable, TreeNode] = {}
        self.seen = 1
        self.uses, order = _uses(part, path, leaf, again)
        self.sources = tuple(sorted(order) if parent is None else order)
        self.live: set[int] = set()
        self._dead: tuple[int, tuple[int, ...]] = -1, ()
        self.targets: tuple[int, ...] = ()
        self.compiled: tuple[tuple[int, ...], Callable[[list[Any]], list[Any]]] | None = None
        self.runs = 0
        self.eager = ""
        self.before: Any = None
        self.after: Any = None
        self.plan: Any = None
        self.executable: CompiledPlan | None = None
        self.seconds: dict[str, float] = {}

    @property
    def tree(self) -> Tree:
        """The tree, which lives as long as somebody runs it."""
        tree = self._tree()
        assert tree is not None
        return tree

    @property
    def parent(self) -> TreeNode | None:
        """The segment before; None at the root."""
        return None if self._parent is None else self._parent()

    @functools.cached_property
    def body(self) -> Hashable:
        """What the segment computes, wherever it stands; equal ones share an executable."""
        if self._single:
            return Same(self.path)
        return relative_key(self.calls, (self.first, self.stop), self.path, self.sources, self.tree)

    @property
    def events(self) -> list[Call | Guard]:
        """The calls of the segment, and the guard that ends it."""
        return [*self.calls, *([self.guard] if self.guard is not None else [])]

    @property
    def agreed(self) -> bool:
        """Whether two recordings agreed on it, here or where it stands besides."""
        return self.seen >= 2 or self.body in self.tree.trusted

    @property
    def ready(self) -> bool:
        """Whether it is known well enough to be compiled."""
        return (self.proof is not None and self.proof.holds()) or self.agreed

    def agrees(self, part: PendingSegment, leaf: TreeLeaf | None) -> bool:
        """Whether a recording does here what this segment does."""
        if (leaf is None) != (self.leaf is None) or self.differing(part) >= 0:
            return False
        numbers, others = self.part.path.numbers, part.path.numbers
        if guard_key(self.guard, numbers) != guard_key(part.guard, others):
            return False
        return leaf is None or self.leaf is None or leaf.key() == self.leaf.key()

    def differing(self, part: PendingSegment) -> int:
        """Return the number of the first call that is not the same in `part`; -1 if all are."""
        own, other = self.part.calls, part.calls
        numbers, others = self.part.path.numbers, part.path.numbers
        for i, (a, b) in enumerate(zip(own, other, strict=False)):
            if not same_call(a, numbers, b, others):
                return i
        return -1 if len(own) == len(other) else min(len(own), len(other))

    def wanted(self) -> tuple[int, ...]:
        """Return the numbers of the values that the segment must hand on."""
        need = set(self.live)
        if self.leaf is not None:
            need.update(self.leaf.numbers())
        need.update(_guarded(self.guard, self.path))
        return tuple(sorted(n for n in need if self.first <= n < self.stop))

    def dead(self) -> tuple[int, ...]:
        """Return the numbers of the values that nothing reads once its guard has been read."""
        many, numbers = self._dead
        if many != len(self.live):  # which only grows
            known = {*self.uses, *self.targets}
            if self.guard is not None and self.guard.call is not None:
                results = (self.path.numbers[id(s)] for s in self.guard.call.results)
                known.update(n for n in results if isinstance(n, int))
            if self.parent is not None:
                known |= self.parent.live
            inputs = len(self.tree.strides)  # which are the caller's
            numbers = tuple(sorted(n for n in known - self.live if n >= inputs))
            self._dead = len(self.live), numbers
        return numbers

    def __repr__(self) -> str:
        return f"<segment of {len(self.calls)} calls, {self.guard!r}>"


class PendingSegment:
    """One segment of a recording, before it finds its node."""

    __slots__ = ("calls", "first", "guard", "outcome", "path", "stop")

    def __init__(self, calls: list[Call], guard: Guard | None, path: Path, first: int) -> None:
        self.calls = calls
        self.guard = guard
        self.first = first
        self.stop = first + sum(len(c.results) for c in calls)
        self.path = path
        self.outcome = outcome_key(guard.kind, guard.outcome) if guard is not None else None


class Path:
    """A recording with its values numbered: inputs first, then results as they come.

    Attributes
    ----------
    symbols : list of Symbol
        By number.
    numbers : dict
        From the identity of a symbol to its number; of a captured constant to its key.
    constants : dict of Symbol to ndarray
    """

    def __init__(self, recorded: RecordedRun) -> None:
        recording = recorded.recording
        self.recording = recording  # keeps the symbols, whose identities are keys, alive
        self.symbols: list[Symbol] = list(recording.inputs)
        self.numbers: dict[int, Hashable] = {id(s): i for i, s in enumerate(self.symbols)}
        self.constants: dict[Symbol, np.ndarray] = {}
        for symbol, _, value in recording.captures:
            self.constants[symbol], self.numbers[id(symbol)] = constant(value)
        recording.captures.clear()  # they hold the arrays themselves, and copies
        self.n_inputs = len(self.symbols)
        # What made a value, of calls with one result.
        self.producers: dict[int, Call] = {}
        self.parts: list[PendingSegment] = []
        calls: list[Call] = []
        first = len(self.symbols)
        for event in recording.events:
            if isinstance(event, Call):
                self._number(event)
                calls.append(event)
                continue
            self.parts.append(PendingSegment(calls, event, self, first))
            calls = []
            if event.call is not None:
                self._number(event.call)
            first = len(self.symbols)
        self.parts.append(PendingSegment(calls, None, self, first))
        self.leaf = TreeLeaf(recorded, self.numbers, self.constants)

    def _number(self, call: Call) -> None:
        if len(call.results) == 1:
            self.producers[len(self.symbols)] = call
        for symbol in call.results:
            self.numbers[id(symbol)] = len(self.symbols)
            self.symbols.append(symbol)


def _uses(
    part: PendingSegment, path: Path, leaf: TreeLeaf | None, again: list[Call]
) -> tuple[set[int], list[int]]:
    """Return the earlier values that a segment needs, and those that its calls read, in order."""
    numbers, first = path.numbers, part.first
    recomputed = {id(s) for call in again for s in call.results}
    order: dict[int, None] = {}
    for call in (*again, *part.calls):
        for s in symbols_in(call.args) + symbols_in(call.params):
            n = numbers[id(s)]
            if isinstance(n, int) and n < first and id(s) not in recomputed:
                order[n] = None
    uses = set(order)
    late = [*_guarded(part.guard, path), *(leaf.numbers() if leaf is not None else ())]
    uses.update(n for n in late if n < first)
    return uses, list(order)


def _guarded(guard: Guard | None, path: Path) -> list[int]:
    """Return the numbers of the values that a guard, or a call in Python, needs."""
    if guard is None:
        return []
    symbols = symbols_in(guard.symbol)
    if guard.call is not None:
        symbols += symbols_in(guard.call.args) + symbols_in(guard.call.params)
    return [n for s in symbols if isinstance(n := path.numbers[id(s)], int)]


def relative_key(
    calls: list[Call], span: tuple[int, int], path: Path, sources: tuple[int, ...], tree: Tree
) -> Hashable:
    """Return the key of a segment wherever it stands on its path, and on any path."""
    numbers: dict[int, Hashable] = {id(s): path.numbers[id(s)] for s in path.constants}
    forms = []
    for i, n in enumerate(sources):
        s = path.symbols[n]
        numbers[id(s)] = -1 - i
        forms.append((s.shape, s.dtype.str, s.weak, tree.strides_of(n)))
    for call in calls:  # also those of earlier segments that run again here
        for s in call.results:
            numbers[id(s)] = ("again", len(numbers))
    for n in range(*span):
        numbers[id(path.symbols[n])] = n - span[0]
    return HashedKey((tuple([call_key(c, numbers) for c in calls]), tuple(forms)))


class Tree:
    """The paths of one signature.

    Parameters
    ----------
    strides : list
        Strides in elements of each input that is not in C order; None for the others.
    max_paths : int

    Attributes
    ----------
    root : TreeNode or None
    eager : str
        Why nothing is compiled any more; "" while it is.
    """

    def __init__(self, strides: list[Strides], max_paths: int) -> None:
        self.strides = strides
        self.max_paths = max_paths
        self.donated: tuple[int, ...] = ()  # inputs that the caller gives up
        # Where its calls compute, if not on the host.
        self.device: OnDevice | None = None
        self.root: TreeNode | None = None
        self.eager = ""
        self.paths = 0
        # How paths end: a loop that ends after more iterations ends as it did before.
        self.ends: set[Hashable] = set()
        self.recordings = 0
        self.seconds = 0.0  # that recording took
        self.replaced = 0
        # Segments on which two recordings agreed, wherever they stand.
        self.trusted: set[Hashable] = set()
        # Executables by what they compute, shared by equal segments such as loop bodies.
        self.shared: dict[Hashable, Any] = {}
        self.lock = threading.RLock()

    def strides_of(self, number: int) -> Strides:
        """Return the strides of a value; None if it is in C order."""
        return self.strides[number] if number < len(self.strides) else None

    def insert(self, recorded: RecordedRun, proof: Proof | None = None) -> None:
        """Add one recording; set `eager` if that shows that nothing can be compiled.

        With a `proof`, no second one has to agree with it.
        """
        path = Path(recorded)
        with self.lock:
            self.recordings += 1
            branch = self._walk(path, proof)
            if branch is not None and branch.leaf is not None:
                self.paths += 1
                self.ends.add(branch.body)
                self._bound(branch)
            if branch is not None:
                _spread(branch)
            path.parts.clear()  # they hold the path

    def _bound(self, branch: TreeNode) -> None:
        """Set `eager` if there are too many paths, or outcomes of a guard."""
        node, ways = branch.parent, len(self.ends)
        guard = node.guard if node is not None else None
        while node is not None:
            if len(node.children) > ways:
                guard, ways = node.guard, len(node.children)
            node = node.parent
        if ways > self.max_paths or self.paths > MANY * self.max_paths:
            self.eager = (
                f"it took more than {self.max_paths} paths; the last one split where "
                f"Python read a value{_at(guard)}. Use np.where in place of the "
                "branch, or pass a larger max_paths"
            )

    def _walk(self, path: Path, proof: Proof | None) -> TreeNode | None:
        """Follow a recording from the root, adding nodes; return the last one."""
        node, parent, outcome = self.root, None, None
        for i, part in enumerate(path.parts):
            leaf = path.leaf if part.guard is None else None
            if node is not None and not node.agrees(part, leaf):
                self.replaced += 1
                if self.replaced > 2:
                    self.eager = (
                        "two runs on the same signature and the same captured values differed"
                        f"{_difference(node, part)}; a value that changes from call to call must "
                        "be an argument, or a np.random.Generator that is one"
                    )
                    return None
                self.paths -= _count_leaves(node)
                node = None
            if node is None:
                return self._attach(path, i, parent, outcome, proof)
            node.seen += 1
            if node.seen == 2:
                self.trusted.add(node.body)
            parent, outcome = node, part.outcome
            node = node.children.get(outcome) if part.guard is not None else None
        return None

    def _attach(
        self, path: Path, i: int, parent: TreeNode | None, outcome: Hashable, proof: Proof | None
    ) -> TreeNode:
        """Add the parts of a path from number `i` on below `parent`; return the last node."""
        for part in path.parts[i:]:
            leaf = path.leaf if part.guard is None else None
            node = TreeNode(self, path, part, parent, leaf, proof)
            if parent is None:
                self.root = node
            else:
                parent.children[outcome] = node
            parent, outcome = node, part.outcome
        assert parent is not None
        return parent

    def nodes(self) -> list[TreeNode]:
        """Return all nodes, parents before their children."""
        nodes = [self.root] if self.root is not None else []
        for node in nodes:
            nodes.extend(node.children.values())
        return nodes


def _spread(node: TreeNode | None) -> None:
    """Tell the nodes above what is read below them; those that hand on too little recompile."""
    while node is not None:
        wanted = node.wanted()
        if not set(wanted) <= set(node.targets):
            node.targets = wanted
            node.compiled = None
        parent = node.parent
        if parent is not None:
            parent.live |= node.uses | {n for n in node.live if n < node.first}
        node = parent


def _count_leaves(node: TreeNode) -> int:
    nodes = [node]
    for n in nodes:
        nodes.extend(n.children.values())
    return sum(n.leaf is not None for n in nodes)


def _at(event: Call | Guard | None) -> str:
    where = event.where if event is not None else None
    return "" if where is None else f" (file {where[0]}, line {where[1]})"


def _difference(node: TreeNode, part: PendingSegment) -> str:
    """Return where a recording left a segment that it should have followed."""
    i = node.differing(part)
    if i >= 0:
        call = part.calls[i] if i < len(part.calls) else node.part.calls[i]
        return f", in {call!r}{_at(call)}"
    return f", at {part.guard!r}{_at(part.guard)}" if part.guard is not None else ", in the result"

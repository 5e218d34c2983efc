"""What the reverse half of an adjoint reads, and where it comes from.

A value that is read in the reverse sweep stays in its variable if it was computed outside of loops.
In a loop it is computed again if all that it takes is at hand: parameters, loop variables, memory
that does not change any more. Everything else goes to the tape at the end of an iteration, and
comes back in the opposite order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from adarray.compiler.ir.loopir import Expr, Var
from adarray.compiler.ir.threads import operands, variables
from adarray.kernels.ssa import (
    Carried,
    Def,
    Exchange,
    Item,
    Node,
    Phi,
    Place,
    Read,
    SsaLoop,
    SsaProgram,
    Write,
)


@dataclass(slots=True)
class Slice:
    """A part of a program that runs forward: names of values, and nodes that do something."""

    names: set[str] = field(default_factory=set)
    nodes: set[int] = field(default_factory=set)  # by id
    waits: bool = False

    def has(self, node: Node) -> bool:
        """Whether a node belongs to it."""
        return id(node) in self.nodes


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """What of a kernel of one thread is restored in the reverse sweep.

    Attributes
    ----------
    buffers : frozenset of str
        Memories that are in the reverse sweep what they were in the forward sweep.
    writes : frozenset of int
        Writes of these, by order, that put the old value on the tape.
    taped : frozenset of str
        Values that go to the tape although they follow from such memory: they are read where
        it holds something else.
    revisits : bool
        Whether results of functions are read where they have been written to.
    sums : frozenset of int
        Reads, by order, of an element that their loop does not write: what iterations add to the
        derivative is added up in a variable.
    vector : frozenset of int
        Loops, by number, whose reverse iterations are independent but for sums.
    steady : frozenset of int
        Writes, by order, that only add to an element that no other access in their loop touches.
    final : bool
        Whether all that the reverse sweep reads of written memory is what the kernel left there.
    """

    buffers: frozenset[str] = frozenset()
    writes: frozenset[int] = frozenset()
    taped: frozenset[str] = frozenset()
    revisits: bool = False
    sums: frozenset[int] = frozenset()
    vector: frozenset[int] = frozenset()
    steady: frozenset[int] = frozenset()
    final: bool = False


class Needs:
    """Collects what is read in the reverse sweep.

    Parameters
    ----------
    program : SsaProgram
    private : set of (str, int)
        Memories, each with the number of a loop, of which an iteration reads nothing but what
        it wrote: they are filled again in the reverse sweep.
    plan : RestorePlan, optional

    Attributes
    ----------
    reloaded : set of str
        Reads of restored memory that the reverse half carries out again.
    revisited : set of int
        Writes, by order, that left what it reads.
    forced : set of str
        Values that a plan must put on the tape, and this one does not.
    """

    def __init__(
        self,
        program: SsaProgram,
        private: set[tuple[str, int]],
        plan: RestorePlan | None = None,
    ) -> None:
        self.program = program
        self.plan = plan or RestorePlan()
        self.arrays = plan is not None  # on the tape, as only one thread has them
        self.reloaded: set[str] = set()
        self.revisited: set[int] = set()
        self.forced: set[str] = set()
        self._late: dict[str, bool] = {}
        self._filled: set[str] = set()  # all of whose writes the forward half carries out
        # Writes that leave a value in memory as it is, by its name.
        self.stored: dict[str, list[Write]] = {}
        for n in program.nodes:
            if isinstance(n, Write) and n.combine is None and isinstance(n.value, Var):
                v = program.values.get(n.value.name)
                if isinstance(v, Def) and v.block == n.block:
                    self.stored.setdefault(v.name, []).append(n)
        self.private = private
        self.forward = Slice()
        self.replays: dict[int, Slice] = {}
        self.required: dict[int | None, set[str]] = {}
        self.taped: dict[int, list[str]] = {}
        self.memory: set[str] = set()  # whose contents the forward part makes
        buffers = {b.name for b in program.kernel.buffers}
        self.shared = {s.name for s in program.kernel.shared}
        self.outer = buffers | self.shared

    # -- demands of the reverse half -----------------------------------------------------------

    def read(self, e: Expr) -> None:
        """Note that the reverse half reads an expression."""
        for name in sorted(variables(e)):  # the order on the tape is part of the text
            self.require(name)

    def require(self, name: str) -> None:
        """Note that the reverse half reads a value in iterations of the loop where it was made."""
        if name not in self.program.values:
            return  # a parameter, or an index of the thread
        home = self.program.home(name)
        known = self.required.setdefault(home.number if home else None, set())
        if name in known:
            return
        known.add(name)
        if home is None:
            self.make(name)
        else:
            self._again(name, home)

    def _again(self, name: str, home: SsaLoop) -> None:
        """Have a value at hand in the reverse iteration of its loop."""
        v = self.program.values[name]
        if v is home:
            return  # its variable
        late = self.late(name)
        if late:
            self.forced.add(name)
        if late or name in self.plan.taped:
            self._tape(name, home)
            return
        replay = self.replays.setdefault(home.number, Slice())
        if isinstance(v, Def):
            replay.names.add(name)
            self._guards(v)
            self.read(v.value)
        elif isinstance(v, Read) and self._stable(v, home):
            replay.names.add(name)
            self._guards(v)
            self.read(v.index)
            if (v.buffer, home.number) in self.private:
                self._refill(v.buffer, home)
        elif isinstance(v, Phi):
            replay.names.add(name)
            self._guards(v.branch)
            for e in (v.branch.condition, v.then, v.orelse):
                self.read(e)
        else:
            self._tape(name, home)

    def _tape(self, name: str, home: SsaLoop) -> None:
        self.taped.setdefault(home.number, []).append(name)
        self.make(name)
        self._run(home)

    # -- restored memory -----------------------------------------------------------------------

    def late(self, name: str) -> bool:
        """Whether a value follows from memory that its iteration overwrites.

        In the reverse iteration it is at hand only where what came later has been restored.
        """
        if name not in self._late:
            self._late[name] = False
            self._late[name] = self._follows(name)
        return self._late[name]

    def _follows(self, name: str) -> bool:
        if not self.plan.buffers or name in self.plan.taped or name not in self.program.values:
            return False
        home = self.program.home(name)
        v = self.program.values[name]
        if home is None or not isinstance(v, (Def, Read, Phi)):
            return False
        if isinstance(v, Read):
            if any((v.buffer, x.number) in self.private for x in v.loops):
                return False
            if v.buffer not in self.plan.buffers and self._changes(v):
                return False
            if v.buffer in self.plan.buffers and self._overwrites(home, v.buffer):
                return True
        if any(map(self.late, _direct(v, name))):
            return True
        written = (w.buffer in self.plan.buffers for w in self.stored.get(name, ()))
        return self.plan.revisits and any(written) and self._takes_more(name)

    def _takes_more(self, name: str) -> bool:
        """Whether a value takes something that is not simply there in the reverse sweep."""
        if name not in self.program.values or self.program.home(name) is None:
            return False
        v = self.program.values[name]
        if isinstance(v, (SsaLoop, Phi)):
            return False
        if isinstance(v, Def):
            return any(map(self._takes_more, _direct(v, name)))
        return not isinstance(v, Read) or self._changes(v)

    def _overwrites(self, loop: SsaLoop, buffer: str) -> bool:
        """Whether iterations of a loop put what a memory held on the tape."""
        return any(
            w.order in self.plan.writes and loop in w.loops for w in self.program.writes(buffer)
        )

    def reload(self, v: Read) -> None:
        """Have a read of memory carried out again where it is what it was."""
        self.reloaded.add(v.name)
        self._fill(v.buffer, v)

    def revisit(self, w: Write) -> None:
        """Have a value read from where a write left it."""
        self.revisited.add(w.order)
        self._do(w)

    def restore(self) -> None:
        """Have the forward half carry out all writes that put something on the tape."""
        for n in self.program.nodes:
            if n.order in self.plan.writes:
                assert isinstance(n, Write)
                self._do(n)

    def _guards(self, node: Item) -> None:
        for b in node.branches:
            self.read(b.condition)

    def _stable(self, v: Read, home: SsaLoop) -> bool:
        """Whether an element holds in the reverse sweep what it held when it was read."""
        for loop in v.loops:
            if (v.buffer, loop.number) in self.private:
                if loop is not home:
                    self._refill(v.buffer, loop)
                return True
        if v.buffer in self.plan.buffers:
            self.reload(v)
            return True
        if self._changes(v):
            return False
        if self.program.writes(v.buffer):
            if v.buffer not in self.outer and self._declared_in_loop(v.buffer):
                return False
            self._fill(v.buffer, v)
        return True

    def _changes(self, v: Read) -> bool:
        """Whether a memory may be written after it was read."""
        return any(
            w.order > v.order or set(w.loops) & set(v.loops) for w in self.program.writes(v.buffer)
        )

    def _declared_in_loop(self, buffer: str) -> bool:
        return any(
            isinstance(n, Place) and n.name == buffer and n.loops for n in self.program.nodes
        )

    def _refill(self, buffer: str, loop: SsaLoop) -> None:
        """Have a memory written again in each reverse iteration of a loop."""
        replay = self.replays.setdefault(loop.number, Slice())
        replay.waits |= buffer in self.shared
        for w in self.program.writes(buffer):
            if not replay.has(w):
                self._forward_in(w, loop, replay)

    def _forward_in(self, node: Node, loop: SsaLoop, replay: Slice) -> None:
        """Add a node, with what it takes, to what runs again in iterations of a loop."""
        replay.nodes.add(id(node))
        stack = list(_direct(node, "")) if isinstance(node, Write) else []
        at = node.loops.index(loop)
        for inside in node.loops[at + 1 :]:
            stack += self._loop_names(inside)
            replay.nodes.add(id(inside))
            for b in inside.branches:
                stack += variables(b.condition)
        for b in node.branches:
            stack += variables(b.condition)
        while stack:
            name = stack.pop()
            if name not in self.program.values or name in replay.names:
                continue
            home = self.program.home(name)
            if home is None or home is loop or home in loop.loops:
                self.require(name)
                continue
            replay.names.add(name)
            v = self.program.values[name]
            stack += _direct(v, name)
            if isinstance(v, SsaLoop):
                continue
            if isinstance(v, Carried):
                replay.nodes.add(id(v.loop))
                stack += self._loop_names(v.loop)

    def _loop_names(self, loop: SsaLoop) -> set[str]:
        names = variables(loop.start) | variables(loop.stop)
        return names | ({loop.condition.name} if loop.condition else set())

    # -- the forward half ----------------------------------------------------------------------

    def make(self, name: str) -> None:
        """Have the forward half compute a value."""
        if name not in self.program.values or name in self.forward.names:
            return
        self.forward.names.add(name)
        v = self.program.values[name]
        for n in _direct(v, name):
            self.make(n)
        if isinstance(v, SsaLoop):
            self._run(v)
        elif isinstance(v, Carried):
            self.forward.names |= {v.name, v.out}
            self._run(v.loop)
        elif isinstance(v, Phi):
            self._reach(v.branch)
        else:
            self._reach(v)
        if isinstance(v, Read):
            self._fill(v.buffer, v)
        elif isinstance(v, Write):
            self._do(v)
            self._fill(v.buffer, v)

    def _run(self, loop: SsaLoop) -> None:
        """Have the forward half run a loop."""
        if self.forward.has(loop):
            return
        self.forward.nodes.add(id(loop))
        for name in self._loop_names(loop):
            self.make(name)
        self._reach(loop)

    def _reach(self, node: Item) -> None:
        """Have the forward half come to a node."""
        for b in node.branches:
            for name in variables(b.condition):
                self.make(name)
        if node.loops:
            self._run(node.loops[-1])

    def final(self, writes_follow: Callable[[Write, Read | Write], bool]) -> bool:
        """Whether the forward half does nothing but fill memory with what it holds at the end.

        `writes_follow` says whether a write may touch what was read, or written, before it.
        """
        buffers = {b.name for b in self.program.kernel.buffers}
        if self.plan.writes or any(self.taped.values()) or not self.memory <= buffers:
            return False
        again = self.reloaded | {n for p in self.replays.values() for n in p.names}
        for name in self.memory:
            for a in self.program.accesses(name):
                read = a.name in again if isinstance(a, Read) else a.order in self.revisited
                if read and any(writes_follow(w, a) for w in self.program.writes(name)):
                    return False
        return bool(self.memory) and all(map(self._plain, self.required.get(None, ())))

    def _plain(self, name: str) -> bool:
        """Whether a value outside of loops takes no memory that is written, and no loop."""
        if name not in self.program.values:
            return True
        v = self.program.values[name]
        if isinstance(v, Read) and self.program.writes(v.buffer):
            return False
        if not isinstance(v, (Def, Read, Phi)):
            return False
        return all(map(self._plain, _direct(v, name)))

    def _fill(self, buffer: str, reader: Read | Write) -> None:
        """Have the forward half write what a read may see."""
        if buffer in self._filled:
            return
        writes = self.program.writes(buffer)
        for w in writes:
            if w.order < reader.order or set(w.loops) & set(reader.loops):
                self._do(w)
        if all(map(self.forward.has, writes)):
            self._filled.add(buffer)

    def _do(self, w: Write) -> None:
        if self.forward.has(w):
            return
        self.forward.nodes.add(id(w))
        self.memory.add(w.buffer)
        self.forward.waits |= w.buffer in self.outer
        for name in variables(w.index) | variables(w.value):
            self.make(name)
        self._reach(w)
        if w.combine is not None:
            self._fill(w.buffer, w)


def _direct(v: object, name: str) -> set[str]:
    """Return the names that the definition of a value reads."""
    if isinstance(v, Def):
        return variables(v.value)
    if isinstance(v, Read):
        return variables(v.index)
    if isinstance(v, Exchange):
        return {n for e in operands(v.op) for n in variables(e)}
    if isinstance(v, Write):
        return variables(v.index) | variables(v.value)
    if isinstance(v, Phi):
        return variables(v.then) | variables(v.orelse) | variables(v.branch.condition)
    if isinstance(v, Carried):
        return variables(v.first) | variables(v.next)
    assert isinstance(v, SsaLoop)
    return variables(v.start) | variables(v.stop) if name == v.var else set()


def candidates(program: SsaProgram) -> list[tuple[str, SsaLoop]]:
    """Return memories that iterations of a loop may write before they read them.

    All accesses lie in the loop, and in each iteration writes come first.
    """
    memories = []
    inside = {b.name for b in program.kernel.buffers}
    for name in dict.fromkeys(n.buffer for n in program.nodes if isinstance(n, (Read, Write))):
        if name in inside:
            continue
        accesses = program.accesses(name)
        common = [x for x in accesses[0].loops if all(x in a.loops for a in accesses)]
        if not common:
            continue
        loop = common[-1]
        writes = [a for a in accesses if isinstance(a, Write)]
        reads = [a for a in accesses if isinstance(a, Read)]
        if not reads or any(w.combine for w in writes) or not writes:
            continue
        early = max(w.order for w in writes) < min(r.order for r in reads)
        mixed = any(
            set(w.loops) & set(r.loops) - set(loop.loops) - {loop} for w in writes for r in reads
        )
        if early and not mixed and _repeatable(program, writes, loop, set()):
            memories.append((name, loop))
    return memories


def _repeatable(program: SsaProgram, writes: list[Write], loop: SsaLoop, seen: set[str]) -> bool:
    """Whether what is written inside of loops of an iteration can be made without a tape."""
    stack = []
    for w in writes:
        stack += list(variables(w.index) | variables(w.value))
        for b in w.branches:
            stack += variables(b.condition)
        for x in w.loops[w.loops.index(loop) + 1 :]:
            if x.var is None:
                return False
            stack += variables(x.start) | variables(x.stop)
    while stack:
        name = stack.pop()
        if name in seen or name not in program.values:
            continue
        seen.add(name)
        home = program.home(name)
        if home is None or home is loop or home in loop.loops:
            continue
        v = program.values[name]
        if isinstance(v, (Carried, Write, Exchange)):
            return False
        if isinstance(v, Read) and program.writes(v.buffer):
            return False
        stack += _direct(v, name)
    return True

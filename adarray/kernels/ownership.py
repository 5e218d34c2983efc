"""Which buffers' elements belong to one thread each, so that nothing need be added as one step.

Where the indices of a buffer follow from the launch alone, a kernel is made of what they take. It
runs once for a launch, and notes for each element the first and the last thread that touch it, and
how often.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from adarray.compiler.ir.loopir import Apply, Const, Expr, Let, Param, Var
from adarray.compiler.ir.threads import (
    BLOCK,
    SIZES,
    THREAD,
    Atomic,
    Stmt,
    ThreadKernel,
    if_,
    variables,
)
from adarray.kernels import build
from adarray.kernels.forward import ForwardPart
from adarray.kernels.geometry import Launch
from adarray.kernels.needs import Slice, _direct
from adarray.kernels.simplify import simplified
from adarray.kernels.ssa import (
    Branch,
    Carried,
    Def,
    Exchange,
    Item,
    Node,
    Phi,
    Read,
    SsaLoop,
    SsaProgram,
    Write,
)

_ME = "owner__me"
_WIDE = ("int32", "uint32", "int64", "uint64")


class Ownership(NamedTuple):
    """Who touches the elements of buffers in a launch.

    Attributes
    ----------
    alone : frozenset of str
        Buffers of whose elements no two threads, or blocks, touch the same.
    once : frozenset of str
        Those of them of whose elements none is read or written more than once.
    """

    alone: frozenset[str] = frozenset()
    once: frozenset[str] = frozenset()


def first(name: str) -> str:
    """Return the name of the array of the first threads that touch a buffer's elements."""
    return f"{name}__first"


def last(name: str) -> str:
    """Return the name of the array of the last ones."""
    return f"{name}__last"


def touches(name: str) -> str:
    """Return the name of the array that says how often a buffer's elements are touched."""
    return f"{name}__touches"


def size(name: str) -> str:
    """Return the name of the number of a buffer's elements."""
    return f"{name}__size"


class _Known:
    """Finds what follows from a launch alone."""

    def __init__(self, program: SsaProgram) -> None:
        self.program = program
        self.follows: dict[str, bool] = {}
        self.tables = {t.name for t in program.kernel.tables}

    def name(self, name: str) -> bool:
        """Whether a value does."""
        if name not in self.follows:
            self.follows[name] = True  # in a circle of carried values, the others decide
            v = self.program.values.get(name)
            if v is None:
                floats = {n for n, d in self.program.kernel.scalars if d.startswith("float")}
                self.follows[name] = name not in floats
            elif isinstance(v, (Write, Exchange)) or (
                isinstance(v, Read) and v.buffer not in self.tables
            ):
                self.follows[name] = False
            else:
                deeper = _direct(v, name)
                if isinstance(v, SsaLoop) and v.condition is not None:
                    deeper = deeper | {v.condition.name}
                self.follows[name] = all(map(self.name, deeper))
        return self.follows[name]

    def expr(self, e: Expr) -> bool:
        """Whether an expression does."""
        return all(map(self.name, variables(e)))

    def loop(self, n: SsaLoop) -> bool:
        """Whether the iterations of a loop do."""
        names = variables(n.start) | variables(n.stop)
        return all(map(self.name, names)) and (n.condition is None or self.name(n.condition.name))


class _Probe(ForwardPart):
    """Writes what the indices of some buffers take."""

    def __init__(self, program: SsaProgram, part: Slice, buffers: set[str], known: _Known) -> None:
        super().__init__(program, part, set(), lambda n: n, {}, set())
        self.buffers = buffers
        self.known = known

    def _block(self, nodes: list[Node], out: list[Stmt], base: list[Stmt], depth: int) -> None:
        for n in nodes:
            if isinstance(n, (Read, Write)) and n.buffer not in self.known.tables:
                if n.buffer in self.buffers:
                    self._touch(n.buffer, n.index, out)
            else:
                super()._block([n], out, base, depth)

    def _branch(self, n: Branch, out: list[Stmt], base: list[Stmt], depth: int) -> None:
        if self.known.expr(n.condition):
            super()._branch(n, out, base, depth)
            return
        # Whichever way threads go, they touch no more than both ways do.
        for part in (n.body, n.orelse):
            inside: list[Stmt] = []
            self._block(part, inside, base, depth + 1)
            if inside:
                out.append(if_(Const("bool", True), tuple(inside)))

    def _touch(self, buffer: str, index: Expr, out: list[Stmt]) -> None:
        inside = build.both(
            build.compare("less_equal", build.index(0), index),
            build.compare("less", index, Var("int64", size(buffer))),
        )
        me = Var("int64", _ME)
        notes = (
            Atomic(first(buffer), index, "minimum", me),
            Atomic(last(buffer), index, "maximum", me),
            Atomic(touches(buffer), index, "add", build.index(1)),
        )
        out.append(if_(inside, notes))


def _me(blocks: bool) -> Expr:
    """Return the number of a block, or of a thread of the grid."""

    def at(name: str) -> Expr:
        return build.cast(Var("uint32", name), "int64")

    def row(kind: str, sizes: str) -> Expr:
        e: Expr = at(f"{kind}.z")
        for axis in "yx":
            e = build.add(build.multiply(e, at(f"{sizes}.{axis}")), at(f"{kind}.{axis}"))
        return e

    block = row("blockIdx", "gridDim")
    if blocks:
        return block
    threads = at("blockDim.x")
    for axis in "yz":
        threads = build.multiply(threads, at(f"blockDim.{axis}"))
    return build.add(build.multiply(block, threads), row("threadIdx", "blockDim"))


def _slice(program: SsaProgram, buffers: set[str], known: _Known) -> Slice:
    """Return what the indices of buffers take, and the branches and loops around accesses."""
    part = Slice()
    stack: list[str] = []

    def reach(item: Item, loops: list[SsaLoop]) -> None:
        """Have the slice come to an item."""
        for x in loops:
            part.nodes.add(id(x))
            stack.extend(variables(x.start) | variables(x.stop))
            stack.extend([x.condition.name] if x.condition else [])
        for b in [b for x in loops for b in x.branches] + list(item.branches):
            if known.expr(b.condition):
                stack.extend(variables(b.condition))

    for name in buffers:
        for a in program.accesses(name):
            stack += variables(a.index)
            reach(a, list(a.loops))
    while stack:
        name = stack.pop()
        v = program.values.get(name)
        if v is None or name in part.names:
            continue
        part.names.add(name)
        stack += _direct(v, name)
        if isinstance(v, Carried):
            part.names |= {v.name, v.out}
        around: Item = v.branch if isinstance(v, Phi) else v.loop if isinstance(v, Carried) else v
        reach(around, [*around.loops, *([around] if isinstance(around, SsaLoop) else [])])
    return part


def probe(program: SsaProgram, names: set[str], blocks: bool) -> tuple[ThreadKernel, set[str]]:
    """Return a kernel that finds who touches elements of buffers, and which of them it probes.

    Parameters
    ----------
    program : SsaProgram
    names : set of str
        Buffers.
    blocks : bool
        Whether it notes blocks, in the place of threads.
    """
    known = _Known(program)
    buffers = set()
    for name in names:
        accesses = program.accesses(name)
        if accesses and all(
            known.expr(a.index) and all(map(known.loop, a.loops)) for a in accesses
        ):
            buffers.add(name)
    part = _slice(program, buffers, known)
    body = _Probe(program, part, buffers, known).statements(program.body)
    whole = (Let(_ME, _me(blocks)), *body)
    params = tuple(
        Param(f(n), "int64", "inout") for n in sorted(buffers) for f in (first, last, touches)
    )
    scalars = (*program.kernel.scalars, *((size(n), "int64") for n in sorted(buffers)))
    order = (*(p.name for p in params), *(n for n, _ in scalars))
    kernel = ThreadKernel(
        f"{program.kernel.name}_owners", params, scalars, order, (), whole, program.kernel.tables
    )
    return simplified(kernel), buffers


def distinct(program: SsaProgram, launch: Launch) -> frozenset[str]:
    """Return buffers with one access whose index differs from thread to thread.

    That is seen without a run, where indices are sums of multiples of the thread's coordinates.
    """
    names = set()
    for b in program.kernel.buffers:
        accesses = program.accesses(b.name)
        if len(accesses) == 1 and not accesses[0].loops:
            multiples = _multiples(program, accesses[0].index, dict(launch.integers), launch)
            if multiples is not None and _differ(multiples, launch):
                names.add(b.name)
    return frozenset(names)


def _multiples(
    program: SsaProgram, e: Expr, integers: dict[str, int], launch: Launch
) -> dict[str, int] | None:
    """Return how often an index has each coordinate, and by "" what it has besides.

    None where it is no sum of such, or has parts below 0, which wrap around in unsigned numbers.
    """
    known: int | None = None
    if isinstance(e, Const) and isinstance(e.value, int):
        known = e.value
    elif isinstance(e, Var):
        kind, _, axis = e.name.partition(".")
        v = program.values.get(e.name)
        if e.name in (*THREAD, *BLOCK):
            return {e.name: 1}
        if e.name in SIZES:
            known = (launch.block if kind == "blockDim" else launch.grid)["xyz".index(axis)]
        elif isinstance(v, Def):
            return _multiples(program, v.value, integers, launch)
        else:
            known = integers.get(e.name)
    elif isinstance(e, Apply) and e.name in ("cast", "add", "multiply") and e.dtype in _WIDE:
        parts = [_multiples(program, a, integers, launch) for a in e.args]
        first, last = parts[0], parts[-1]
        if first is None or last is None or e.name == "cast":
            return first
        if e.name == "add":
            return {n: first.get(n, 0) + last.get(n, 0) for n in first.keys() | last.keys()}
        if first.keys() != {""}:
            first, last = last, first
        return {n: first[""] * k for n, k in last.items()} if first.keys() == {""} else None
    return None if known is None or known < 0 else {"": known}


def _differ(multiples: dict[str, int], launch: Launch) -> bool:
    """Whether a sum of multiples of coordinates is another number for each thread."""
    sizes = {f"threadIdx.{a}": n for a, n in zip("xyz", launch.block, strict=True)}
    sizes |= {f"blockIdx.{a}": n for a, n in zip("xyz", launch.grid, strict=True)}
    most = 0
    for step, count in sorted((multiples.get(n, 0), c) for n, c in sizes.items() if c > 1):
        if step <= most:
            return False
        most += step * (count - 1)
    return most + multiples.get("", 0) < 1 << 31


def owned(notes: dict[str, Any], buffers: set[str]) -> Ownership:
    """Return who touches elements of buffers, from what the kernel noted."""
    alone, once = set(), set()
    for name in buffers:
        low, high = notes[first(name)], notes[last(name)]
        if not bool(((high >= 0) & (high != low)).any()):
            alone.add(name)
            if not bool((notes[touches(name)] > 1).any()):
                once.add(name)
    return Ownership(frozenset(alone), frozenset(once))

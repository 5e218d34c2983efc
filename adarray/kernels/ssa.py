"""Kernels in static single assignment, with their structure kept: what derivatives are made of.

Every scalar has one definition. Loads and functions whose value a derivative reads have names of
their own. Where branches meet, a `Phi` chooses; a loop has `Carried` values.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from adarray.compiler.ir import threads
from adarray.compiler.ir.loopir import (
    Apply,
    Assign,
    Const,
    Expr,
    For,
    If,
    Let,
    Load,
    Local,
    Store,
    Var,
)
from adarray.compiler.ir.threads import (
    Atomic,
    Barrier,
    Comment,
    Stmt,
    ThreadKernel,
    WarpOp,
    While,
    all_statements,
    variables,
)
from adarray.errors import KernelError
from adarray.kernels import build
from adarray.kernels.functions import NAMED


@dataclass(eq=False, slots=True)
class Item:
    """What all nodes have.

    Attributes
    ----------
    order : int
        Grows along the text.
    block : int
        Number of the block that it stands in.
    loops : tuple of SsaLoop
        Those around it, outermost first.
    branches : tuple of Branch
        Those around it, since the innermost loop.
    """

    order: int = 0
    block: int = 0
    loops: tuple[SsaLoop, ...] = ()
    branches: tuple[Branch, ...] = ()

    @property
    def home(self) -> SsaLoop | None:
        """Innermost loop around it."""
        return self.loops[-1] if self.loops else None


@dataclass(eq=False, slots=True)
class Def(Item):
    """A value: an expression without loads."""

    name: str = ""
    value: Expr = field(default_factory=lambda: build.index(0))


@dataclass(eq=False, slots=True)
class Read(Item):
    """A value: an element of memory."""

    name: str = ""
    dtype: str = ""
    buffer: str = ""
    index: Expr = field(default_factory=lambda: build.index(0))


@dataclass(eq=False, slots=True)
class Write(Item):
    """Memory is set; with `combine`, it is combined as one step, and `result` is what was there."""

    buffer: str = ""
    index: Expr = field(default_factory=lambda: build.index(0))
    value: Expr = field(default_factory=lambda: build.index(0))
    combine: str | None = None
    result: str | None = None


@dataclass(eq=False, slots=True)
class Exchange(Item):
    """A value: what the threads of a warp exchange or combine; see `WarpOp`."""

    op: WarpOp = field(default_factory=lambda: WarpOp("", "idx", build.index(0), build.index(0)))

    @property
    def name(self) -> str:
        """Name of the value."""
        return self.op.name

    @property
    def dtype(self) -> str:
        """Dtype of the value."""
        return self.op.dtype


@dataclass(eq=False, slots=True)
class Wait(Item):
    """A barrier; with `warp`, of a warp."""

    warp: bool = False


@dataclass(eq=False, slots=True)
class Place(Item):
    """An array of the thread."""

    name: str = ""
    dtype: str = ""
    size: int = 0


@dataclass(eq=False, slots=True)
class Phi:
    """A value that a branch chooses."""

    name: str
    dtype: str
    then: Expr
    orelse: Expr
    branch: Branch


@dataclass(eq=False, slots=True)
class Branch(Item):
    """Two ways to go on."""

    condition: Expr = field(default_factory=lambda: build.index(0))
    body: list[Node] = field(default_factory=list)
    orelse: list[Node] = field(default_factory=list)
    phis: list[Phi] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class Carried:
    """A value that iterations pass on: `name` at the begin of one, `out` behind the loop."""

    name: str
    dtype: str
    first: Expr
    next: Expr
    out: str
    loop: SsaLoop


@dataclass(eq=False, slots=True)
class SsaLoop(Item):
    """A loop: it counts `var`, or goes on while the carried value `condition` holds."""

    var: str | None = None
    start: Expr = field(default_factory=lambda: build.index(0))
    stop: Expr = field(default_factory=lambda: build.index(0))
    condition: Carried | None = None
    trips: str = ""  # name of the number of iterations, of the latter kind
    body: list[Node] = field(default_factory=list)
    carried: list[Carried] = field(default_factory=list)
    number: int = 0
    kind: str = "serial"


Node = Def | Read | Exchange | Write | Wait | Place | Branch | SsaLoop
# What a name stands for.
Meaning = Def | Read | Exchange | Write | Phi | Carried | SsaLoop


@dataclass(eq=False, slots=True)
class SsaProgram:
    """A kernel in static single assignment.

    Attributes
    ----------
    values : dict
        What defines each name. The names of a loop are its variable and its number of
        iterations; those of a carried value its two.
    skips : frozenset of str
        Functions of which the adjoint passes a cotangent of 0 on as 0 where the derivative is
        infinite or nan: of what is overwritten or not chosen, as a walk back over what was
        computed does.
    """

    kernel: ThreadKernel
    body: list[Node]
    values: dict[str, Meaning]
    nodes: list[Node]
    skips: frozenset[str] = frozenset()
    _accesses: dict[str, list[Read | Write]] = field(default_factory=dict)
    _writes: dict[str, list[Write]] = field(default_factory=dict)

    def home(self, name: str) -> SsaLoop | None:
        """Return the innermost loop in whose iterations a value is made."""
        v = self.values[name]
        if isinstance(v, Phi):
            return v.branch.home
        if isinstance(v, Carried):
            return v.loop if name == v.name else v.loop.home
        if isinstance(v, SsaLoop):
            return v if name == v.var else v.home
        return v.home

    def accesses(self, buffer: str) -> list[Read | Write]:
        """Return what reads and writes a memory."""
        if not self._accesses:
            for n in self.nodes:
                if isinstance(n, (Read, Write)):
                    self._accesses.setdefault(n.buffer, []).append(n)
        return self._accesses.get(buffer, [])

    def writes(self, buffer: str) -> list[Write]:
        """Return what writes a memory."""
        if buffer not in self._writes:
            self._writes[buffer] = [n for n in self.accesses(buffer) if isinstance(n, Write)]
        return self._writes[buffer]


class _Maker:
    def __init__(self, kernel: ThreadKernel) -> None:
        self.kernel = kernel
        self.values: dict[str, Meaning] = {}
        self.nodes: list[Node] = []
        self.loops: list[SsaLoop] = []
        self.branches: list[list[Branch]] = [[]]
        self.blocks: list[list[Node]] = [[]]
        self.numbers = [0]
        self.count = 0
        self.env: dict[str, Expr] = {}
        # Reads whose elements hold still what they held, by memory and index.
        self.reads: dict[tuple[str, Expr], str] = {}
        self.written = _written(kernel.body)
        names = {n for n, _ in kernel.scalars} | {b.name for b in kernel.buffers}
        self.names = names | {s.name for s in kernel.shared}
        self.names |= {
            s.name for s in all_statements(kernel.body) if isinstance(s, Local) and s.size
        }

    def fresh(self, name: str) -> str:
        """Return a new name."""
        unique, n = name, 0
        while unique in self.names:
            n += 1
            unique = f"{name}{'' if name[-1].isalpha() else '_'}{n}"
        self.names.add(unique)
        return unique

    def add(self, node: Node) -> None:
        """Add a node to the innermost block."""
        node.order = len(self.nodes)
        node.block = self.numbers[-1]
        node.loops = tuple(self.loops)
        node.branches = tuple(self.branches[-1])
        self.nodes.append(node)
        self.blocks[-1].append(node)

    # -- expressions -----------------------------------------------------------------------

    def expr(self, e: Expr) -> Expr:
        """Return an expression over names of values, after naming loads and functions."""
        if isinstance(e, Var):
            return self.env.get(e.name, e)
        if isinstance(e, Load):
            index = self.expr(e.index)
            known = self.reads.get((e.buffer, index))
            if known is not None:
                return Var(e.dtype, known)
            node = Read(
                name=self.fresh(f"{e.buffer}_v"), dtype=e.dtype, buffer=e.buffer, index=index
            )
            self.values[node.name] = node
            self.add(node)
            self.reads[e.buffer, index] = node.name
            return Var(e.dtype, node.name)
        if isinstance(e, Apply):
            args = tuple(self.expr(a) for a in e.args)
            value = Apply(e.dtype, e.name, args)
            if e.name in NAMED and not all(isinstance(a, Const) for a in args):
                return self.define(f"{e.name}_v", value)
            return value
        return e

    def define(self, name: str, value: Expr) -> Expr:
        """Return a value by name."""
        if isinstance(value, (Const, Var)):
            return value
        node = Def(name=self.fresh(name), value=value)
        self.values[node.name] = node
        self.add(node)
        return Var(value.dtype, node.name)

    def assigned(self, name: str, value: Expr) -> Expr:
        """Return the value that a variable is set to."""
        if isinstance(value, Apply) and value.name in NAMED:
            args = tuple(self.expr(a) for a in value.args)
            return self.define(name, Apply(value.dtype, value.name, args))
        return self.define(name, self.expr(value))

    # -- statements ------------------------------------------------------------------------

    def block(self, body: tuple[Stmt, ...]) -> None:
        """Convert statements."""
        for s in body:
            self.statement(s)

    def statement(self, s: Stmt) -> None:
        """Convert one statement."""
        if isinstance(s, (Let, Assign)):
            self.env[s.name] = self.assigned(s.name, s.value)
        elif isinstance(s, Local):
            if s.size is not None:
                assert isinstance(s.size, Const)
                self.add(Place(name=s.name, dtype=s.dtype, size=int(s.size.value)))
            elif s.init is None:
                self.env[s.name] = build.const(0, s.dtype)
            else:
                self.env[s.name] = self.assigned(s.name, s.init)
        elif isinstance(s, Store):
            index = self.expr(s.index)
            self.add(Write(buffer=s.buffer, index=index, value=self.expr(s.value)))
            self.forget({s.buffer})
        elif isinstance(s, Atomic):
            self._atomic(s)
        elif isinstance(s, If):
            self._if(s)
        elif isinstance(s, (For, While)):
            self._loop(s)
        elif isinstance(s, WarpOp):
            self._exchange(s)
        elif isinstance(s, Barrier):
            self.add(Wait(warp=s.warp))
            self.forget(self.written)
        elif not isinstance(s, Comment):
            raise KernelError("derivatives of a kernel that has a tape are not of reverse mode")

    def _atomic(self, s: Atomic) -> None:
        node = Write(buffer=s.buffer, index=self.expr(s.index), combine=s.combine)
        node.value = self.expr(s.value)
        if s.result is not None:
            node.result = self.fresh(s.result)
            self.values[node.result] = node
            self.env[s.result] = Var(s.value.dtype, node.result)
        self.add(node)
        self.forget({s.buffer})

    def _exchange(self, s: WarpOp) -> None:
        value, lane = self.expr(s.value), self.expr(s.lane)
        mask = None if s.mask is None else self.expr(s.mask)
        exchange = replace(s, name=self.fresh(s.name), value=value, lane=lane, mask=mask)
        node = Exchange(op=exchange)
        self.values[exchange.name] = node
        self.env[s.name] = Var(exchange.dtype, exchange.name)
        self.add(node)

    def _part(self, body: tuple[Stmt, ...]) -> tuple[list[Node], dict[str, Expr]]:
        before, reads = dict(self.env), dict(self.reads)
        inner = self._inner(body)
        after, self.env = self.env, before
        self.reads = reads
        return inner, after

    def _inner(self, body: tuple[Stmt, ...]) -> list[Node]:
        """Convert statements as a block of their own."""
        self.count += 1
        self.numbers.append(self.count)
        self.blocks.append([])
        self.block(body)
        self.numbers.pop()
        return self.blocks.pop()

    def forget(self, buffers: set[str]) -> None:
        """Note that memory may have changed."""
        self.reads = {k: v for k, v in self.reads.items() if k[0] not in buffers}

    def _if(self, s: If) -> None:
        node = Branch(condition=self.define("test", self.expr(s.condition)))
        self.add(node)
        self.branches[-1].append(node)
        node.body, then = self._part(s.body)
        node.orelse, orelse = self._part(s.orelse)
        self.branches[-1].pop()
        self.forget(_written((s,)))
        for name in self.env:
            a, b = then[name], orelse[name]
            if a == b:
                self.env[name] = a  # perhaps another value than before, and the same in both parts
            else:
                phi = Phi(self.fresh(name), a.dtype, a, b, node)
                node.phis.append(phi)
                self.values[phi.name] = phi
                self.env[name] = Var(a.dtype, phi.name)

    def _loop(self, s: For | While) -> None:
        node = SsaLoop(number=len([n for n in self.nodes if isinstance(n, SsaLoop)]))
        if isinstance(s, For):
            node.kind = s.kind
            node.start = self.define("start", self.expr(s.start))
            node.stop = self.define("stop", self.expr(s.stop))
            node.var = self.fresh(s.var)
            self.values[node.var] = node
        self.add(node)
        changed = {t.name for t in all_statements(s.body) if isinstance(t, Assign)}
        before = dict(self.env)
        for name in [n for n in self.env if n in changed]:
            first = self.env[name]
            c = Carried(self.fresh(name), first.dtype, first, first, self.fresh(name), node)
            node.carried.append(c)
            self.values[c.name] = self.values[c.out] = c
            before[name] = Var(first.dtype, c.name)
            if isinstance(s, While) and name == s.condition:
                node.condition = c
        inner = dict(before)
        if isinstance(s, For):
            assert node.var is not None
            inner[s.var] = Var("int64", node.var)
        elif node.condition is None:
            raise KernelError("a loop's condition never changes: it does not end", s.line)
        else:
            node.trips = self.fresh("trips")
            self.values[node.trips] = node
        self.loops.append(node)
        self.branches.append([])
        self.forget(_written((s,)))
        reads = dict(self.reads)
        self.env, outside = inner, self.env
        node.body = self._inner(s.body)
        after, self.env = self.env, outside
        self.reads = reads
        self.branches.pop()
        self.loops.pop()
        names = [n for n in self.env if n in changed]
        for name, c in zip(names, node.carried, strict=True):
            c.next = after[name]
            self.env[name] = Var(c.dtype, c.out)


def _written(body: tuple[Stmt, ...]) -> set[str]:
    """Return the memories that statements write."""
    statements = list(all_statements(body))
    return {s.buffer for s in statements if isinstance(s, (Store, Atomic))}


def program(kernel: ThreadKernel, skips: frozenset[str] = frozenset()) -> SsaProgram:
    """Return a kernel in static single assignment; see `SsaProgram`."""
    maker = _Maker(kernel)
    maker.block(kernel.body)
    return SsaProgram(kernel, maker.blocks[0], maker.values, maker.nodes, skips)


def dtype_of(program: SsaProgram, name: str) -> str:
    """Return the dtype of a value."""
    v = program.values[name]
    if isinstance(v, (Def, Write)):
        return v.value.dtype
    return "int64" if isinstance(v, SsaLoop) else v.dtype


def operands(node: Node) -> set[str]:
    """Return the names that a node reads itself."""
    if isinstance(node, Def):
        return variables(node.value)
    if isinstance(node, Read):
        return variables(node.index)
    if isinstance(node, Exchange):
        return {n for e in threads.operands(node.op) for n in variables(e)}
    if isinstance(node, Write):
        return variables(node.index) | variables(node.value)
    if isinstance(node, Branch):
        return variables(node.condition)
    if isinstance(node, SsaLoop):
        return variables(node.start) | variables(node.stop)
    return set()


def inner(node: Node) -> list[list[Node]]:
    """Return the blocks of a node."""
    if isinstance(node, Branch):
        return [node.body, node.orelse]
    return [node.body] if isinstance(node, SsaLoop) else []

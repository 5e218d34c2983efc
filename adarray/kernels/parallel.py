"""Loops of one thread whose iterations several threads of a processor share.

A loop is shared if no iteration touches an element that another one writes. What iterations only
add to is no obstacle: sums in variables and in few elements get a place for each part of the
loop, and are added up in the order of the parts; where only iterations close to each other meet,
as in adjoints of stencils, all parts leave out their last iterations, and make up for them when
the others are through. So results depend on the number of threads, and on nothing else.
(Allen and Kennedy, *Optimizing Compilers for Modern Architectures*, 2001, chapters 5 and 6.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from adarray.compiler.ir.loopir import (
    Apply,
    Assign,
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
    Comment,
    Pop,
    Push,
    Recall,
    Record,
    Shared,
    Stmt,
    ThreadKernel,
    While,
    all_statements,
    for_,
    if_,
    inside,
    reads,
    with_bodies,
)
from adarray.kernels import build
from adarray.kernels.carried import ADDED, STEADY, carried
from adarray.kernels.nests import Access, Loop, Nests, assigned, summed

PARALLEL = "parallel"
LEAST_WORK = 60_000  # expressions that a loop evaluates: some ten microseconds
_UNEVEN = 4  # parts for each thread where iterations are not of the same length
_ROWS = 4  # iterations for each thread of the inner loop of a nest that runs in waves, at least
_COPIED = 8  # expressions for each element of the sums that parts keep, at least
_MOST = 1 << 23  # elements that all parts of a loop keep
_FIT = (Let, Local, Assign, Store, If, For, While, Comment)
TAPE = (Push, Pop, Record, Recall)


@dataclass(slots=True)
class Shares:
    """How a loop is shared.

    Attributes
    ----------
    parts : int
    chunk : int
        Iterations of a part, but of the last ones; 0 where that is not known.
    apart : int
        Iterations at the end of each part that wait for all other parts; 0: none.
    variables : dict
        Variables from outside that iterations set, by name: the dtype, and what is done to them
        (`adarray.kernels.carried`).
    ranges : dict
        The first element and the number of elements of memory that iterations add to, by name.
    backwards : bool
        Whether parts are those of the last iterations first, as of the loop whose tape this one
        reads.
    """

    parts: int
    chunk: int
    apart: int
    variables: dict[str, tuple[str, str, Any]]
    ranges: dict[str, tuple[int, int]] = field(default_factory=dict)
    backwards: bool = False


@dataclass(slots=True)
class Waves:
    """How two loops are shared of which no iteration is independent.

    The inner one is cut into blocks, two for each thread. A block runs once the same block of the
    outer iteration before has run, and the one behind that: all blocks that may run at the same
    time are a wave. (Wolfe, *Loop skewing: the wavefront method revisited*, 1986.)
    """

    threads: int


class Sharing:
    """Finds out how the loops of a kernel may be shared.

    Parameters
    ----------
    body : tuple of Stmt
        Of one thread of a processor; names are declared once.
    integers : mapping of str to int
        Parameters that are known.
    threads : int
    """

    def __init__(
        self, body: tuple[Stmt, ...], integers: Mapping[str, int], threads: int
    ) -> None:  # fmt: skip
        self.nests = Nests(body, integers)
        self.threads = threads
        self.chosen: dict[int, Shares] = {}
        self.waves: dict[int, Waves] = {}
        self._dtypes = {
            s.name: s.value.dtype if isinstance(s, Let) else s.dtype
            for s in all_statements(body)
            if isinstance(s, (Let, Local, Pop))
        }
        self._by_var = {s.var: s for s in all_statements(body) if isinstance(s, For)}
        self._choose(body)

    def _choose(self, body: Iterable[Stmt]) -> None:
        for s in body:
            if isinstance(s, For) and (id(s) in self.chosen or self._takes(s)):
                continue
            if isinstance(s, For) and self._runs_in_waves(s):
                self.waves[id(s)] = Waves(self.threads)
                continue
            for part in inside(s):
                self._choose(part)

    def _takes(self, s: For) -> bool:
        """Choose a loop if it may be shared, with the one that reads its tape."""
        if self._work(s) < LEAST_WORK:
            return False
        if not is_taped(s.body):
            shares = self._shares(self.nests.loops[id(s)])
            if shares is not None:
                self.chosen[id(s)] = shares
            return shares is not None
        back = self._by_var.get(f"{s.var}__back")
        if back is None or not _mirrors(s.body, back.body):
            return False
        loops = [self.nests.loops[id(x)] for x in (s, back)]
        trips = loops[0].exact
        if trips is None or trips != loops[1].exact or not build.is_zero(s.start):
            return False
        both = [self._shares(loop, True) for loop in loops]
        if both[0] is None or both[1] is None or not build.is_zero(back.start):
            return False
        parts = max(both[0].parts, both[1].parts)
        chunk = -(-trips // parts)
        for x, shares, backwards in zip((s, back), both, (False, True), strict=True):
            assert shares is not None
            shares.parts, shares.chunk, shares.backwards = -(-trips // chunk), chunk, backwards
            self.chosen[id(x)] = shares
        return True

    def _work(self, s: Stmt) -> float:
        """Return about how many expressions a statement evaluates."""
        own = 1.0 + sum(1 for _ in reads(s))
        inner = sum(self._work(t) for part in inside(s) for t in part)
        return own + (self.nests.loops[id(s)].trips if isinstance(s, For) else 1.0) * inner

    def _shares(self, loop: Loop, taped: bool = False) -> Shares | None:
        """Return how a loop may be shared, if it may; a `taped` one has no part that waits."""
        fit = (*_FIT, *TAPE) if taped else _FIT
        if not all(isinstance(s, fit) for s in all_statements(loop.node.body)):
            return None
        if loop.trips < self.threads:
            return None
        variables: dict[str, tuple[str, str, Any]] = {}
        names = assigned(loop.node.body)
        for n in sorted(names):
            dtype = self._dtypes[n]
            kind = carried(loop.node.body, n, dtype, names)
            if kind is None:
                return None
            variables[n] = (dtype, *kind)
        parts = self.threads * (1 if self._is_even(loop) else _UNEVEN)
        chunk = 0 if taped else -(-(loop.exact or 0) // parts)
        shares = Shares(parts, chunk, 0, variables)
        return shares if self._separate(loop, shares) else None

    def _runs_in_waves(self, s: For) -> bool:
        """Whether a nest of two loops may be shared in waves, and pays."""
        parts = nest_of(s)
        if parts is None:
            return False
        outer, inner = self.nests.loops[id(s)], self.nests.loops[id(parts[0])]
        trips, rows = outer.exact, inner.exact
        if trips is None or rows is None or trips < 2 or rows < _ROWS * self.threads:
            return False
        # All iterations of the outer loop have the same inner ones.
        if any(b.factor(outer.symbol) for b in (*inner.low, *inner.high)):
            return False
        body = parts[0].body
        if not all(isinstance(t, _FIT) for t in all_statements(body)) or assigned(body):
            return False
        if self._work(s) < 2 * (trips + self.threads) * LEAST_WORK:
            return False
        if self._shares(inner) is not None:
            return False
        block = -(-rows // (2 * self.threads))
        accesses = self.nests.inside(s.body)
        if any(a.writes for t in parts[1] for a in self.nests.accesses.get(id(t), ())):
            return False
        pairs = [(a, b) for a in accesses for b in accesses
                 if (a.writes or b.writes) and a.buffer == b.buffer]  # fmt: skip
        own = {t.name for t in all_statements(body) if isinstance(t, Local)}
        pairs = [(a, b) for a, b in pairs if a.buffer not in own]
        if any(inner not in x.loops for pair in pairs for x in pair):
            return False
        return any(
            lag <= block
            and not any(self.nests.overtakes(a, b, outer, inner, lag) for a, b in pairs)
            for lag in (1, 2, 4)
        )

    def _is_even(self, loop: Loop) -> bool:
        """Whether all iterations are of the same length, as far as loops inside tell."""
        inner = [s for s in all_statements(loop.node.body) if isinstance(s, For)]
        return all(self.nests.loops[id(s)].exact is not None for s in inner)

    def _separate(self, loop: Loop, shares: Shares) -> bool:
        """Find what keeps iterations from touching the same elements; whether there is a way."""
        by_buffer: dict[str, list[Access]] = {}
        for a in self.nests.inside(loop.node.body):
            by_buffer.setdefault(a.buffer, []).append(a)
        own = {s.name for s in all_statements(loop.node.body) if isinstance(s, Local)}
        for s in all_statements(loop.node.body):
            if isinstance(s, (Record, Recall)):
                own |= {n for n, _ in s.arrays}
        for buffer, accesses in by_buffer.items():
            if buffer in own:
                continue
            clashes = [
                (a, b) for a in accesses for b in accesses
                if (a.writes or b.writes) and self.nests.meet_later(a, b, loop)
            ]  # fmt: skip
            if not clashes:
                continue
            if not all(a.sums and b.sums for a, b in clashes):
                return False
            distance = self._distance(loop, clashes, shares.chunk // 2)
            if distance is not None:
                shares.apart = max(shares.apart, distance)
                continue
            elements = self._range(accesses)
            if elements is None or not all(a.sums for a in accesses):
                return False
            many = elements[1] * shares.parts
            if many > _MOST or many * _COPIED > self._work(loop.node):
                return False
            shares.ranges[buffer] = elements
        return True

    def _distance(
        self, loop: Loop, clashes: list[tuple[Access, Access]], most: int
    ) -> int | None:  # fmt: skip
        """Return how far apart iterations are at most that touch the same element."""
        distance = 1
        while distance <= most:
            if not any(self.nests.meet_beyond(a, b, loop, distance) for a, b in clashes):
                return distance
            distance *= 2
        return None

    def _range(self, accesses: list[Access]) -> tuple[int, int] | None:
        """Return the first element that is touched, and the number of those up to the last."""
        bounds = [self.nests.bounds(a) for a in accesses]
        low = [b[0] for b in bounds if b[0] is not None]
        high = [b[1] for b in bounds if b[1] is not None]
        if len(low) < len(bounds) or len(high) < len(bounds):
            return None
        return min(low), max(0, max(high) - min(low) + 1)


class _Writing:
    """Writes loops that are shared."""

    def __init__(self, sharing: Sharing, shared: tuple[Shared, ...]) -> None:
        self.sharing = sharing
        self.shared = [*shared]
        self.dtypes: dict[str, str] = {}
        self.count = 0

    def block(self, body: Iterable[Stmt]) -> list[Stmt]:
        """Return statements with loops that are shared."""
        out: list[Stmt] = []
        for s in body:
            shares = self.sharing.chosen.get(id(s))
            waves = self.sharing.waves.get(id(s))
            if isinstance(s, For) and shares is not None:
                out += self._loop(s, shares)
            elif isinstance(s, For) and waves is not None:
                self.count += 1
                parts = nest_of(s)
                assert parts is not None
                out += _in_waves(s, *parts, waves, self.count)
            else:
                out.append(with_bodies(s, self.block))
        return out

    def _loop(self, s: For, shares: Shares) -> list[Stmt]:
        self.count += 1
        tag = f"{s.var}__p{self.count}"
        part, phase = Var("int64", tag), Var("int64", f"{tag}_phase")
        parts = build.index(shares.parts)
        trips = build.call("maximum", "int64", build.subtract(s.stop, s.start), build.index(0))
        rounded = build.add(trips, build.index(shares.parts - 1))
        size = Let(f"{tag}_size", build.call("quotient", "int64", rounded, parts))
        chunk = Var("int64", size.name)
        first = build.add(s.start, build.multiply(part, chunk))
        last = build.add(first, chunk)
        if shares.backwards:
            last = build.subtract(s.stop, build.multiply(part, chunk))
            first = build.call("maximum", "int64", build.subtract(last, chunk), s.start)
        if shares.apart:
            wait = build.index(shares.apart)
            first = build.add(first, build.multiply(phase, build.subtract(chunk, wait)))
            before = build.multiply(build.subtract(build.index(1), phase), wait)
            last = build.subtract(last, before)
        stop = last if shares.backwards else build.call("minimum", "int64", s.stop, last)
        out: list[Stmt] = [size]
        names: dict[str, str] = {}
        begin: list[Stmt] = []
        end: list[Stmt] = []
        behind: list[Stmt] = []
        for k, (name, (dtype, kind, constant)) in enumerate(shares.variables.items()):
            own, places = f"{tag}_s{k}", f"{tag}_s{k}_all"
            names[name] = own
            value = build.const(0, dtype) if kind == ADDED else Var(dtype, name)
            begin.append(Local(own, dtype, None, value))
            if kind == STEADY:
                continue
            self.shared.append(Shared(places, dtype, 2 * shares.parts))
            at = build.add(part, build.multiply(phase, parts)) if shares.apart else part
            end.append(Store(places, at, Var(dtype, own)))
            many = shares.parts * (2 if shares.apart else 1)
            behind.append(_gathered(f"{own}_k", places, many, name, (dtype, kind, constant)))
        memory: dict[str, tuple[str, Expr]] = {}
        for k, (buffer, (low, many)) in enumerate(shares.ranges.items()):
            own = f"{tag}_a{k}"
            dtype = self.dtypes[buffer]
            self.shared.append(Shared(own, dtype, shares.parts * many))
            shift = build.subtract(build.multiply(part, build.index(many)), build.index(low))
            memory[buffer] = own, shift
            at = Var("int64", f"{own}_z")
            place = build.add(build.multiply(part, build.index(many)), at)
            clear = for_(at.name, build.index(0), build.index(many),
                         [Store(own, place, build.const(0, dtype))])  # fmt: skip
            if shares.apart:
                first_phase = build.compare("equal", phase, build.index(0))
                begin.append(if_(first_phase, [clear]))
            else:
                begin.append(clear)
            behind.append(_added(own, buffer, dtype, low, many, shares.parts))
        body = renamed(s.body, names, memory)
        loop = for_(s.var, first, stop, body, s.kind)
        shared = for_(part.name, build.index(0), parts, [*begin, loop, *end], PARALLEL)
        if shares.apart:
            out.append(for_(phase.name, build.index(0), build.index(2), [shared]))
        else:
            out.append(shared)
        return [*out, *behind]


def _gathered(
    var: str, places: str, many: int, name: str, variable: tuple[str, str, Any]
) -> Stmt:  # fmt: skip
    """Return a loop that sets a variable by what all parts have left of it."""
    dtype, kind, constant = variable
    own: Expr = Load(dtype, places, Var("int64", var))
    value = Var(dtype, name)
    if kind == ADDED:
        new = build.add(value, own)
    else:
        mark = build.const(constant, dtype)
        new = Apply(dtype, "where", (build.compare("equal", own, mark), mark, value))
    return for_(var, build.index(0), build.index(many), [Assign(name, new)])


def _added(
    own: str, buffer: str, dtype: str, low: int, many: int, parts: int
) -> Stmt:  # fmt: skip
    """Return loops that add what all parts have to the elements that it belongs to.

    The range may have places that belong to none, where branches keep iterations from the ends of
    the array: nothing is added there.
    """
    p, k = Var("int64", f"{own}_p"), Var("int64", f"{own}_k")
    place = build.add(k, build.index(low))
    mine = Load(dtype, own, build.add(build.multiply(p, build.index(many)), k))
    test = build.compare("not_equal", mine, build.const(0, dtype))
    store = Store(buffer, place, build.add(Load(dtype, buffer, place), mine))
    adding = for_(k.name, build.index(0), build.index(many), [if_(test, [store])])
    return for_(p.name, build.index(0), build.index(parts), [adding])


def _in_waves(s: For, inner: For, between: list[Stmt], lag: Waves, number: int) -> list[Stmt]:
    """Return a nest in waves, of which each has a block of inner iterations for each thread."""
    tag = f"{s.var}__w{number}"
    wave, half, part = (Var("int64", f"{tag}{x}") for x in ("", "_half", "_part"))
    threads = build.index(lag.threads)
    blocks = build.index(2 * lag.threads)
    trips = build.subtract(s.stop, s.start)
    ahead = build.subtract(wave, part)
    block = build.add(half, build.multiply(build.index(2), part))
    count = build.subtract(inner.stop, inner.start)
    rounded = build.add(count, build.index(2 * lag.threads - 1))
    size = Let(f"{tag}_size", build.call("quotient", "int64", rounded, blocks))
    rows = Var("int64", size.name)
    first = build.add(inner.start, build.multiply(block, rows))
    stop = build.call("minimum", "int64", inner.stop, build.add(first, rows))
    loop = for_(inner.var, first, stop, inner.body, inner.kind)
    inside_ = build.call(
        "logical_and", "bool", build.compare("less", ahead, trips),
        build.compare("greater_equal", ahead, build.index(0)),
    )  # fmt: skip
    body = if_(inside_, [Let(s.var, build.add(s.start, ahead)), *between, size, loop])
    shared_ = for_(part.name, build.index(0), threads, [body], PARALLEL)
    halves = for_(half.name, build.index(0), build.index(2), [shared_])
    many = build.subtract(build.add(trips, threads), build.index(1))
    return [for_(wave.name, build.index(0), many, [halves])]


def is_taped(body: Iterable[Stmt]) -> bool:
    """Whether statements put something on the tape, or take it off."""
    return any(isinstance(s, TAPE) for s in all_statements(tuple(body)))


def _mirrors(forward: tuple[Stmt, ...], back: tuple[Stmt, ...]) -> bool:
    """Whether a loop takes off the tape what another one puts there, as far as types tell."""
    puts: list[Any] = []
    for s in all_statements(forward):
        if isinstance(s, (Pop, Recall)):
            return False
        if isinstance(s, Push):
            puts.append(s.value.dtype)
        if isinstance(s, Record):
            puts.append(tuple(d for _, d in s.arrays))
    takes: list[Any] = []
    for s in all_statements(back):
        if isinstance(s, (Push, Record)):
            return False
        if isinstance(s, Pop):
            takes.append(s.dtype)
        if isinstance(s, Recall):
            takes.append(tuple(d for _, d in s.arrays))
    return sorted(map(repr, puts)) == sorted(map(repr, takes))


def renamed(
    body: Iterable[Stmt], names: Mapping[str, str], memory: Mapping[str, tuple[str, Expr]]
) -> list[Stmt]:
    """Return statements with other variables, and other memory at shifted indices."""
    out: list[Stmt] = []

    def of(e: Expr) -> Expr:
        if isinstance(e, Var):
            return Var(e.dtype, names[e.name]) if e.name in names else e
        if isinstance(e, Load):
            if e.buffer in memory:
                buffer, shift = memory[e.buffer]
                return Load(e.dtype, buffer, build.add(shift, of(e.index)))
            return Load(e.dtype, e.buffer, of(e.index))
        return Apply(e.dtype, e.name, tuple(map(of, e.args))) if isinstance(e, Apply) else e

    for s in body:
        if isinstance(s, Let):
            out.append(Let(s.name, of(s.value)))
        elif isinstance(s, Local):
            out.append(replace(s, init=None if s.init is None else of(s.init)))
        elif isinstance(s, Assign):
            out.append(Assign(names.get(s.name, s.name), of(s.value)))
        elif isinstance(s, Store):
            buffer, shift = memory.get(s.buffer, (s.buffer, None))
            at = of(s.index) if shift is None else build.add(shift, of(s.index))
            out.append(Store(buffer, at, of(s.value)))
        elif isinstance(s, If):
            out.append(if_(of(s.condition), renamed(s.body, names, memory),
                           renamed(s.orelse, names, memory)))  # fmt: skip
        elif isinstance(s, For):
            inner = renamed(s.body, names, memory)
            out.append(for_(s.var, of(s.start), of(s.stop), inner, s.kind))
        elif isinstance(s, While):
            out.append(replace(s, body=tuple(renamed(s.body, names, memory))))
        elif isinstance(s, Push):
            out.append(Push(of(s.value)))
        elif isinstance(s, (Record, Recall)):
            out.append(replace(s, count=of(s.count)))
        else:
            assert isinstance(s, (Comment, Pop)), s
            out.append(s)
    return out


def nest_of(s: For) -> tuple[For, list[Stmt]] | None:
    """Return the loop that is all of another one, and the names that are given before it."""
    body = [t for t in s.body if not isinstance(t, Comment)]
    last = body[-1] if body else None
    if not isinstance(last, For) or not all(isinstance(t, Let) for t in body[:-1]):
        return None
    return last, list(body[:-1])


def is_shared(kernel: ThreadKernel) -> bool:
    """Whether several threads share loops of a kernel of one thread."""
    return any(isinstance(s, For) and s.kind == PARALLEL for s in all_statements(kernel.body))


def shared(kernel: ThreadKernel, integers: Mapping[str, int], threads: int) -> ThreadKernel:
    """Return a kernel of one thread whose loops several threads of a processor share."""
    body = summed(kernel.body)
    sharing = Sharing(body, integers, threads)
    if not sharing.chosen and not sharing.waves:
        return kernel
    writing = _Writing(sharing, kernel.shared)
    writing.dtypes = {b.name: b.dtype for b in kernel.buffers}
    writing.dtypes |= {s.name: s.dtype for s in kernel.shared}
    for s in all_statements(body):
        if isinstance(s, Local) and s.size is not None:
            writing.dtypes[s.name] = s.dtype
    return replace(kernel, body=tuple(writing.block(body)), shared=tuple(writing.shared))

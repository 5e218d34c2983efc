"""The kernel that is being written: its statements, names, parameters, and what is known."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np

from adarray.compiler.ir.loopir import Assign, Const, Expr, Let, Load, Local, Store, Var
from adarray.compiler.ir.threads import Stmt, for_, if_, variables
from adarray.compiler.scalars.dtypes import INTEGERS
from adarray.kernels import build
from adarray.kernels.functions import SPELLED
from adarray.kernels.lower import RESERVED
from adarray.kernels.values import Emitter
from adarray.loops.forms import ArrayForm, Bound, Extent, NotCaptured, Source, Variable, Workspace
from adarray.loops.lower.intervals import Affine, Facts
from adarray.loops.lower.kinds import COMPLEX, INT, PARTS
from adarray.loops.lower.values import Axis, Buffer, Complex, Number, View, integer, number


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of the kernel; `dtype` is that of its elements, or its own."""

    name: str
    source: Source
    dtype: str
    is_buffer: bool


_FAILED = Workspace("int64", (1,)), -1


@dataclass(slots=True)
class State:
    """What is written, and what is known of it.

    Attributes
    ----------
    line : int
        Of the source, for reasons.
    parameters : dict
        By what they are.
    prologue : list of Stmt
        What is computed before the loop.
    contents : callable
        Gives bounds of the integers in an array of the caller's; None if they are not known.
    contents_of : dict
        Those that the text relies on, by the name of the memory.
    steady : set of str
        Memories of which it is assumed that nothing writes them.
    changing : frozenset of str
        Those of which that is not assumed.
    postpones : bool
        Whether names may stand for arrays that are computed where they are used.
    postponed : bool
        Whether a name does.
    tagged : bool
        Whether the kernel finds out which of its kinds a number has.
    ambiguous : bool
        Whether that would help.
    magnitudes : dict
        Variables that are absolute values of complex numbers, and the parts of these.
    """

    line: int
    emitter: Emitter = field(default_factory=Emitter)
    facts: Facts = field(default_factory=Facts)
    parameters: dict[tuple[Source, int], Parameter] = field(default_factory=dict)
    buffers: dict[str, Buffer] = field(default_factory=dict)
    prologue: list[Stmt] = field(default_factory=list)
    written: set[str] = field(default_factory=set)
    workspaces: int = 0
    contents: Callable[[str], tuple[int, int] | None] = lambda _: None
    contents_of: dict[str, tuple[int, int]] = field(default_factory=dict)
    steady: set[str] = field(default_factory=set)
    changing: frozenset[str] = frozenset()
    postpones: bool = True
    postponed: bool = False
    tagged: bool = False
    ambiguous: bool = False
    magnitudes: dict[str, tuple[Expr, Expr]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.emitter.names |= RESERVED | set(SPELLED.values())

    def refusal(self, reason: str) -> NotCaptured:
        """Return why the loop is not captured, for who raises it."""
        return NotCaptured(reason, self.line)

    # -- statements and names ----------------------------------------------------------------------

    def fresh(self, name: str) -> str:
        """Return a name for the kernel's text, after one of the source."""
        plain = re.sub(r"\W", "", name).replace("__", "_").strip("_")
        clear = plain.isascii() and plain.isidentifier() and not (plain.isupper() and plain[2:])
        return self.emitter.fresh(plain if clear else f"v_{plain}" if plain.isascii() else "v")

    def emit(self, s: Stmt) -> None:
        """Add a statement."""
        self.emitter.emit(s)

    def let(self, name: str, value: Expr) -> Expr:
        """Return the value of an expression as it is now, by a name."""
        if isinstance(value, Const):
            return value
        if isinstance(value, Var):
            return value  # each variable has one value where it is seen
        unique = self.fresh(name)
        self.emit(Let(unique, value))
        return Var(value.dtype, unique)

    def named(self, name: str, value: Number) -> Number:
        """Return a number by a name."""
        expr = self.let(name, value.expr)
        return replace(value, expr=expr)

    def local(self, name: str, dtype: str, init: Expr | None = None) -> Var:
        """Declare a variable."""
        unique = self.fresh(name)
        self.emit(Local(unique, dtype, None, init))
        return Var(dtype, unique)

    def assign(self, variable: Var, value: Expr) -> None:
        """Set a variable."""
        self.emit(Assign(variable.name, build.cast(value, variable.dtype)))

    @contextmanager
    def block(self) -> Iterator[list[Stmt]]:
        """Collect the statements that are added inside."""
        out: list[Stmt] = []
        self.emitter.begin()
        try:
            yield out
        finally:
            out += self.emitter.end()

    def branch(self, condition: Expr, body: Sequence[Stmt], orelse: Sequence[Stmt] = ()) -> None:
        """Add a branch."""
        if not body and orelse:
            condition, body, orelse = build.logical_not(condition), orelse, ()
        if body:
            self.emit(if_(condition, body, orelse))

    @contextmanager
    def loop(self, name: str, extent: Number, adds: bool = False) -> Iterator[Number]:
        """Write a loop over indices below `extent`; give the index.

        With `adds`, the order in which it adds to a variable is free.
        """
        assert extent.whole is not None
        if extent.whole == Affine(1):
            yield integer(0)
            return
        index = Var("int64", self.fresh(name))
        whole = self.facts.symbol([Affine(0)], [extent.whole - 1])
        with self.block() as body:
            yield number(index, INT, whole)
        kind = "vector" if adds else "serial"
        self.emit(for_(index.name, build.index(0), extent.expr, body, kind))

    # -- parameters --------------------------------------------------------------------------------

    def parameter(self, name: str, source: Source, dtype: str, is_buffer: bool = False) -> Var:
        """Return a parameter."""
        key = (source, self.workspaces if isinstance(source, Workspace) else 0)
        if key not in self.parameters:
            unique = self.fresh(name)
            self.parameters[key] = Parameter(unique, source, dtype, is_buffer)
        return Var(dtype, self.parameters[key].name)

    def whole(self, name: str, source: Extent | Bound | Variable, value: int) -> Number:
        """Return a parameter that is a whole number."""
        return number(self.parameter(name, source, "int64"), INT, Affine(value))

    def array(self, name: str, form: ArrayForm) -> View:
        """Return an array of the caller's."""
        if name not in self.buffers:
            part = PARTS.get(form.dtype, form.dtype)
            memory = self.parameter(name, Variable(name), part, True)
            shape = tuple(
                self.whole(f"{name}_{axis}", Extent(name, axis), extent)
                for axis, extent in enumerate(form.shape)
            )
            self.buffers[name] = self.buffer(memory.name, form.dtype, shape)
        return whole_view(self.buffers[name])

    def is_fixed(self, *exprs: Expr) -> bool:
        """Whether expressions are computed from parameters alone."""
        fixed = {p.name for p in self.parameters.values()}
        fixed |= {s.name for s in self.prologue if isinstance(s, Let)}
        return all(variables(e) <= fixed for e in exprs)

    def once(self, name: str, value: Expr) -> Expr:
        """Return an expression by a name; before the loop, if it is the same in all iterations."""
        if not self.is_fixed(value):
            return self.let(name, value)
        known = (s.name for s in self.prologue if isinstance(s, Let) and s.value == value)
        unique = next(known, None)
        if unique is None:
            unique = self.fresh(name)
            self.prologue.append(Let(unique, value))
        return Var(value.dtype, unique)

    def buffer(self, name: str, dtype: str, shape: tuple[Number, ...]) -> Buffer:
        """Return memory of an array; its strides get names."""
        strides = [integer(1)]
        for extent in reversed(shape[1:]):
            last = strides[-1]
            assert last.whole is not None
            assert extent.whole is not None
            expr = build.multiply(extent.expr, last.expr)
            if not build.is_simple(expr):
                expr = self.once(f"{name}_row", expr)
            value = last.whole.value
            if value is not None:
                whole = extent.whole.scaled(value)
            elif extent.whole.value is not None:
                whole = last.whole.scaled(extent.whole.value)
            else:
                high = self.facts.range(extent.whole)[1] * self.facts.range(last.whole)[1]
                whole = self.facts.symbol([Affine(0)], [Affine(high)])
            strides.append(number(expr, INT, whole))
        return Buffer(name, dtype, shape, tuple(reversed(strides[: len(shape) or 1])))

    def workspace(self, name: str, dtype: str, shape: tuple[Number, ...]) -> View:
        """Return an array of the kernel's own, whose elements are not set."""
        most = []
        for extent in shape:
            assert extent.whole is not None
            most.append(max(0, self.facts.range(extent.whole)[1]))
        count = math.prod(most)
        if count > 1 << 32:
            raise self.refusal("an array inside of the loop has no known size")
        self.workspaces += 1
        part = PARTS.get(dtype, dtype)
        elements = 2 * count if dtype in COMPLEX else count
        memory = self.parameter(name, Workspace(part, (elements,)), part, True)
        self.written.add(memory.name)
        shape = tuple(
            e if build.is_simple(e.expr) else number(self.once(f"{name}_{i}", e.expr), INT, e.whole)
            for i, e in enumerate(shape)
        )
        return whole_view(self.buffer(memory.name, dtype, shape))

    # -- what Python raises an error for -----------------------------------------------------------

    @property
    def failed(self) -> str | None:
        """Memory of one integer, which is not 0 once Python would have raised an error."""
        parameter = self.parameters.get(_FAILED)
        return None if parameter is None else parameter.name

    def fail_if(self, condition: Expr) -> None:
        """Note where Python would raise an error; what is computed then is not used."""
        if isinstance(condition, Const) and not condition.value:
            return
        if isinstance(condition, Const):
            raise self.refusal("it raises an error")
        self.emit(if_(condition, [self._failure()]))

    def fail(self) -> None:
        """Note that Python raises an error."""
        self.emit(self._failure())

    def _failure(self) -> Stmt:
        if _FAILED not in self.parameters:
            name = self.fresh("failed")
            self.parameters[_FAILED] = Parameter(name, _FAILED[0], "int64", True)
        name = self.parameters[_FAILED].name
        self.written.add(name)
        return Store(name, build.index(0), build.index(1))

    # -- memory ------------------------------------------------------------------------------------

    def load(self, buffer: Buffer, at: Number) -> Number | Complex:
        """Return an element, by a name."""
        if buffer.dtype in COMPLEX:
            return self._pair(buffer, at)
        expr = self.let(f"{buffer.name}_at", Load(buffer.dtype, buffer.name, at.expr))
        whole = None
        if buffer.dtype in INTEGERS and buffer.dtype != "uint64":
            whole = self._loaded(buffer, at)
        return number(expr, buffer.dtype, whole)

    def _pair(self, buffer: Buffer, at: Number) -> Complex:
        part = PARTS[buffer.dtype]
        first = build.multiply(build.index(2), at.expr)
        parts = []
        for name, place in (("re", first), ("im", build.add(first, build.index(1)))):
            expr = self.let(f"{buffer.name}_{name}", Load(part, buffer.name, place))
            parts.append(number(expr, part))
        return Complex(parts[0], parts[1], buffer.dtype)

    def _loaded(self, buffer: Buffer, at: Number) -> Affine:
        """Return what is known of an integer in memory."""
        name, key = buffer.name, ("element", buffer.name, at.whole)
        if name not in self.changing and key in self.facts.known:
            self.steady.add(name)
            return self.facts.known[key]
        limits = np.iinfo(buffer.dtype)
        low, high = self.contents_of.get(name, (int(limits.min), int(limits.max)))
        if name in self.changing:
            return self.facts.symbol([Affine(low)], [Affine(high)])
        whole = self.facts.function(key, [Affine(low)], [Affine(high)])
        self.facts.loaded[whole.terms[0][0]] = name
        return whole

    def narrowed(self, whole: Affine) -> bool:
        """Have integers of which a form consists within the bounds of the arrays they are from.

        Return whether more is known now.
        """
        known = len(self.contents_of)
        names = {self.facts.loaded[s] for s, _ in whole.terms if s in self.facts.loaded}
        for name in names - set(self.contents_of):
            sources = (p.source for p in self.parameters.values() if p.name == name)
            source = next(sources, None)
            bounds = self.contents(source.name) if isinstance(source, Variable) else None
            if bounds is None:
                continue
            self.contents_of[name] = bounds
            self.steady.add(name)
            for symbol, memory in self.facts.loaded.items():
                if memory == name:
                    self.facts.narrow(symbol, *bounds)
        return len(self.contents_of) > known

    def store(self, buffer: Buffer, index: Expr, value: Expr | tuple[Expr, Expr]) -> None:
        """Set an element; a complex one to its parts."""
        if isinstance(value, tuple):
            first = build.multiply(build.index(2), index)
            self.written.add(buffer.name)
            self.emit(Store(buffer.name, first, value[0]))
            self.emit(Store(buffer.name, build.add(first, build.index(1)), value[1]))
            return
        if buffer.dtype in COMPLEX:
            raise self.refusal("complex numbers where only real ones are understood")
        self.written.add(buffer.name)
        self.emit(Store(buffer.name, index, value))


def whole_view(buffer: Buffer) -> View:
    """Return all elements of a buffer."""
    axes = tuple(
        Axis(extent, stride, i)
        for i, (extent, stride) in enumerate(zip(buffer.shape, buffer.strides, strict=False))
    )
    return View(buffer, integer(0), axes, (Affine(0),) * len(axes))

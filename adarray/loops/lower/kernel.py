"""A loop as a kernel: its parameters, its body, and where its results lie."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from adarray.compiler.ir.loopir import Const, Expr, Param
from adarray.compiler.ir.threads import ThreadKernel, used
from adarray.kernels import build
from adarray.kernels.simplify import simplified
from adarray.loops.forms import (
    ArrayForm,
    Bound,
    Form,
    Known,
    Listed,
    ListForm,
    LoopKernel,
    NotCaptured,
    Result,
    Returnable,
    Returned,
    Scalar,
    Variable,
    WholeNumber,
    Workspace,
)
from adarray.loops.lower import names
from adarray.loops.lower.calls import Calls
from adarray.loops.lower.comprehensions import Comprehensions
from adarray.loops.lower.elements import Elements
from adarray.loops.lower.expressions import Expressions
from adarray.loops.lower.functions import Functions, Scope
from adarray.loops.lower.gathering import Gathering
from adarray.loops.lower.intervals import HIGHEST, LOWEST, Affine
from adarray.loops.lower.iteration import Loops
from adarray.loops.lower.kinds import CODES, COMPLEX, DTYPES, FLOAT, INT, PYTHON, dtype_of
from adarray.loops.lower.lists import Lists
from adarray.loops.lower.numbers import Arithmetic
from adarray.loops.lower.reductions import Reductions
from adarray.loops.lower.state import State
from adarray.loops.lower.statements import RESULT, Frame, Statements, flag
from adarray.loops.lower.values import (
    Complex,
    Growing,
    Items,
    Missing,
    Number,
    Pair,
    Span,
    Value,
    View,
    integer,
    number,
    parts_of,
)
from adarray.loops.lower.views import Indexing

_GOES_ON = "%live_loop"  # whether the loop has not returned from the function, among names


class LoopLowering:
    """Reads one loop.

    Attributes
    ----------
    names : dict
        What names stand for where the kernel is being written.
    scope : Scope
        Of the function that is being read.
    stores : int
        How many writes into arrays there are in the text.
    in_test : bool
        Whether only the truth of what is read matters.
    homes : dict
        Where arrays lie that iterations bind anew, by name and depth of calls.
    fresh : set of str
        Memories of those of which an array was bound in this iteration.
    unsure : set of str
        Memories of arrays that another array may lie in, if a loop had no iterations.
    """

    def __init__(self, state: State, scope: Scope, variables: dict[str, Form]) -> None:
        self.state = state
        self.scope = scope
        self.variables = variables
        self.names: dict[str, Value] = {}
        self.stores = 0
        self.in_test = False
        self.homes: dict[tuple[int, str], View] = {}
        self.fresh: set[str] = set()
        self.unsure: set[str] = set()
        self.initial: dict[str, Value] = {}
        self.numbers = Arithmetic(state)
        self.views = Indexing(self.numbers)
        self.elements = Elements(self.numbers, self.views)
        self.reductions = Reductions(self.elements)
        self.gathering = Gathering(self)
        self.loops = Loops(self)
        self.expressions = Expressions(self)
        self.calls = Calls(self)
        self.functions = Functions(self)
        self.lists = Lists(self)
        self.comprehensions = Comprehensions(self)
        self.statements = Statements(self)

    # -- names -------------------------------------------------------------------------------------

    def bind(self, name: str, value: Value) -> None:
        """Have a name stand for a value; the parts of a complex number have their own."""
        if isinstance(value, Complex):
            re, im = parts_of(name)
            self.names |= {name: Pair(value.kind), re: value.re, im: value.im}
        else:
            self.names[name] = value

    def lookup(self, name: str) -> Value:
        """Return what a name stands for."""
        value = self.names.get(name)
        if isinstance(value, Pair):
            re, im = (self.lookup(p) for p in parts_of(name))
            assert isinstance(re, Number)
            assert isinstance(im, Number)
            return Complex(re, im, value.kind)
        if value is None:
            if name in self.scope.own:
                raise self.state.refusal(f"{name!r} may not be bound")
            try:
                value = self.expressions.known(self.scope.resolve(name))
            except NameError:
                raise self.state.refusal(f"the name {name!r} is not known") from None
        if isinstance(value, Missing):
            raise self.state.refusal(value.reason)
        return value

    def int(self, value: int) -> Number:
        """Return a Python integer that stands in the text."""
        return integer(value)

    def is_live(self, name: str, node: ast.AST) -> bool:
        """Whether a name may be read behind a loop."""
        name = name.partition(".")[0]
        return name in self.scope.live or self.scope.loads[name] > names.loaded(node)[name]

    @contextmanager
    def testing(self) -> Iterator[None]:
        """Have only the truth of values matter inside."""
        before, self.in_test = self.in_test, True
        try:
            yield
        finally:
            self.in_test = before

    # -- readings that are taken back --------------------------------------------------------------

    def snapshot(self) -> tuple[Any, ...]:
        """Return where the text and what is known of it stand."""
        s = self.state
        return (
            [len(b) for b in s.emitter.blocks], set(s.emitter.names), dict(s.parameters),
            dict(s.buffers), len(s.prologue), set(s.written), s.workspaces, len(s.facts.symbols),
            dict(self.names), self.stores, dict(self.homes), set(self.fresh), set(self.unsure),
            list(self.statements.frames), self.functions.depth, list(self.functions.callers),
            self.scope, self.in_test, dict(self.lists.memories), dict(s.magnitudes),
        )  # fmt: skip

    def restore(self, saved: tuple[Any, ...]) -> None:
        """Go back to where a snapshot was taken."""
        s = self.state
        (lengths, taken, s.parameters, s.buffers, prologue, s.written, s.workspaces, symbols,
         self.names, self.stores, self.homes, self.fresh, self.unsure,
         self.statements.frames, self.functions.depth, self.functions.callers,
         self.scope, self.in_test, self.lists.memories, s.magnitudes) = saved  # fmt: skip
        for block, length in zip(s.emitter.blocks, lengths, strict=True):
            del block[length:]
        s.emitter.names = set(taken)
        del s.prologue[prologue:]
        s.facts.forget(symbols)

    # -- variables, results ------------------------------------------------------------------------

    def start(self) -> None:
        """Have names stand for the variables as they are before the loop."""
        for name, form in self.variables.items():
            self.bind(name, self._initial(name, form))
        self.initial = dict(self.names)

    def _initial(self, name: str, form: Form) -> Value:
        if isinstance(form, ListForm):
            items = [self._initial(f"{name}[{k}]", f) for k, f in enumerate(form.items)]
            return self.lists.of_caller(name, items)
        if isinstance(form, ArrayForm):
            if form.dtype not in DTYPES | COMPLEX:
                return Missing(f"{name!r} is an array of {form.dtype}")
            return self.state.array(name, form)
        if isinstance(form, WholeNumber):
            if not LOWEST <= form.value <= HIGHEST:
                return Missing(f"{name!r} has more than 64 bits")
            return self.state.whole(name, Variable(name), form.value)
        if isinstance(form, Scalar) and form.dtype in COMPLEX:
            view = self.state.array(name, ArrayForm(form.dtype, ()))
            value = self.state.load(view.buffer, integer(0))
            assert isinstance(value, Complex)
            return replace(value, kind="python complex") if form.weak else value
        if isinstance(form, Scalar):
            if form.dtype not in DTYPES:
                return Missing(f"{name!r} is a number of {form.dtype}")
            kind = FLOAT if form.weak and form.dtype == "float64" else form.dtype
            parameter = self.state.parameter(name, Variable(name), form.dtype)
            return number(parameter, kind)
        return self.expressions.known(form.value)

    def iterated(self, node: ast.For, iterable: Any) -> Value:
        """Return what the loop runs over."""
        saved = self.snapshot()
        try:
            return self.expressions.value(node.iter)
        except NotCaptured:
            if not isinstance(iterable, range):
                raise
            self.restore(saved)
        ends = {"start": iterable.start, "stop": iterable.stop, "step": iterable.step}
        if any(not LOWEST <= e <= HIGHEST for e in ends.values()):
            raise self.state.refusal("a range of more than 64 bits")
        start, stop, step = (
            integer(e) if n == "step" and abs(e) == 1 else self.state.whole(n, Bound(n), e)
            for n, e in ends.items()
        )
        return Span(start, stop, step)

    def read(self, loop: ast.For | ast.While, iterable: Any) -> None:
        """Read the loop."""
        self.start()
        if names.returns(loop):
            self.statements.frames.append(Frame(_GOES_ON, None, True))
            self.names[_GOES_ON] = flag(True)
        if isinstance(loop, ast.For):
            self.loops.walked(loop, self.iterated(loop, iterable))
        else:
            self.loops.while_(loop)

    def is_of_several_kinds(self, wanted: Iterable[str]) -> bool:
        """Whether there are numbers among variables whose type is not known."""
        values = [self.names[n] for n in (*wanted, RESULT) if n in self.names]
        while values:
            v = values.pop()
            if isinstance(v, Items):
                values += v.items
            elif isinstance(v, Number) and v.kind is None:
                return True
        return False

    def result(self, name: str) -> Result | None:
        """Store what a variable is after the loop; None if it is what it was."""
        value = self.names.get(name)
        if value is None:
            raise self.state.refusal(f"{name!r} may not be bound")
        parts = [name] if not isinstance(value, Pair) else [name, *parts_of(name)]
        if all(self.names.get(p) is self.initial.get(p) for p in parts):
            return None
        return self._result(name, self.lookup(name))

    def listed(self) -> tuple[Listed, ...]:
        """Return what the loop has appended to lists of the caller's."""
        out = []
        for name, form in self.variables.items():
            value, before = self.names.get(name), self.initial.get(name)
            if not isinstance(form, ListForm) or not isinstance(before, Growing):
                continue
            if value is not before:
                raise self.state.refusal(f"the name {name!r} of a list is bound anew")
            memory = self.lists.memories.get(before.count)
            count = self.lists.count(before)
            if memory is None or count.whole == Affine(len(form.items)):
                continue
            assert count.whole is not None
            known = count.whole.value
            flag_ = None if known is not None else self._left(f"{name}_count", count.expr)
            if self.state.facts.least(count.whole) < len(form.items):
                raise self.state.refusal(f"items of the list {name!r} are taken away")
            shape = tuple(e.whole.value for e in memory.shape if e.whole is not None)
            assert None not in shape
            item: Form = _form_of(memory.kind)
            if shape:
                item = ArrayForm(memory.dtype, tuple(e for e in shape if e is not None))
            elif memory.kind in COMPLEX or memory.kind == "python complex":
                item = Scalar(memory.dtype, memory.kind == "python complex")
            out.append(Listed(name, memory.name, item, len(form.items), known, flag_))
        return tuple(out)

    def returned(self) -> Returned | None:
        """Store what the function returns if the loop does so; None if it does not."""
        live, value = self.names.get(_GOES_ON), self.names.get(RESULT)
        if not isinstance(live, Number) or value is None:
            return None
        if isinstance(live.expr, Const):
            return None if live.expr.value else Returned(None, self._returnable(value))
        gone = build.cast(self.numbers.negated(live).expr, "int64")
        return Returned(self._left("returned", gone), self._returnable(value))

    def _returnable(self, value: Value) -> Returnable:
        if isinstance(value, Items):
            return tuple(map(self._returnable, value.items))
        if isinstance(value, Known) and value.value is None:
            return value
        return self._result("result", value)

    def _result(self, name: str, value: Value) -> Result:
        """Store a value for what comes after the loop."""
        if isinstance(value, Missing):
            raise self.state.refusal(value.reason.replace("%", ""))
        if isinstance(value, View):
            return self._array_result(name, value)
        if isinstance(value, Complex):
            return self._complex_result(name, value)
        if not isinstance(value, Number):
            raise self.state.refusal(f"{name!r} is {self.expressions.shown(value)} after the loop")
        if value.kind is not None:
            memory = self._left(name, build.cast(value.expr, dtype_of(value.kind)))
            return Result(name, memory, _form_of(value.kind))
        if value.tag is None:
            raise self.state.refusal(f"{name!r} is a number of one type or another after the loop")
        forms = tuple((CODES[k], _form_of(k)) for k in sorted(value.kinds))
        memory = self._left(name, value.expr)
        return Result(name, memory, forms[0][1], self._left(f"{name}_kind", value.tag), forms)

    def _complex_result(self, name: str, value: Complex) -> Result:
        """Return where a complex number is left."""
        weak = value.kind == "python complex"
        dtype = "complex128" if weak else value.kind
        view = self.state.workspace(f"{name}_out", dtype, (integer(1),))
        self.state.store(view.buffer, build.index(0), (value.re.expr, value.im.expr))
        return Result(name, view.buffer.name, Scalar(dtype, weak))

    def _left(self, name: str, value: Expr) -> str:
        """Return memory of one element in which a number is left."""
        dtype = value.dtype
        self.state.workspaces += 1
        memory = self.state.parameter(f"{name}_out", Workspace(dtype, (1,)), dtype, True).name
        view = self.state.buffer(memory, dtype, (integer(1),))
        self.state.store(view, build.index(0), value)
        return memory

    def _array_result(self, name: str, view: View) -> Result:
        """Return where an array lies after the loop."""
        own = view.offset.expr == build.index(0) and self.views.is_whole(view)
        shape = tuple(e.whole.value for e in view.shape if e.whole is not None)
        whole = self.views.count(view.shape).whole
        if whole is None or not self.state.facts.equal(
            whole, self.views.count(view.buffer.shape).whole or whole + 1
        ):
            own = False
        if not own or any(e is None for e in shape):
            raise self.state.refusal(f"{name!r} is a part of an array after the loop")
        form = ArrayForm(view.dtype, tuple(e for e in shape if e is not None))
        return Result(name, view.buffer.name, form)

    def kernel(self, name: str) -> ThreadKernel:
        """Return what was written."""
        s = self.state
        parameters = list(s.parameters.values())
        buffers = tuple(
            Param(p.name, p.dtype, "inout" if p.name in s.written else "in")
            for p in parameters if p.is_buffer
        )  # fmt: skip
        scalars = tuple((p.name, p.dtype) for p in parameters if not p.is_buffer)
        body = (*s.prologue, *s.emitter.end())
        order = tuple(p.name for p in parameters)
        return ThreadKernel(name, buffers, scalars, order, (), body)


def _form_of(kind: str) -> Form:
    """Return the form of a number of a kind."""
    return WholeNumber(0) if kind == INT else Scalar(dtype_of(kind), kind in PYTHON)


def _results(value: Returnable) -> list[Result]:
    """Return what there is of results in what is returned."""
    if isinstance(value, tuple):
        return [r for v in value for r in _results(v)]
    return [value] if isinstance(value, Result) else []


def _used(
    kernel: ThreadKernel, results: Iterable[Result], returned: Returned | None,
    listed: Iterable[Listed],
) -> ThreadKernel:  # fmt: skip
    """Return a kernel without parameters that it does not use, and that are no results."""
    known = used(kernel.body)
    if returned is not None:
        known |= {returned.flag or ""}
        results = [*results, *_results(returned.value)]
    known |= {p for r in results for p in (r.parameter, r.which) if p}
    known |= {p for x in listed for p in (x.parameter, x.count) if p}
    return ThreadKernel(
        kernel.name,
        tuple(b for b in kernel.buffers if b.name in known),
        tuple(s for s in kernel.scalars if s[0] in known),
        tuple(n for n in kernel.order if n in known),
        (), kernel.body,
    )  # fmt: skip


def lower(
    loop: ast.For | ast.While,
    variables: dict[str, Form],
    iterable: Any,
    wanted: frozenset[str],
    resolve: Callable[[str], Any],
    contents: Callable[[str], tuple[int, int] | None] = lambda _: None,
) -> LoopKernel:
    """Return a loop as a kernel.

    Parameters
    ----------
    loop : ast.For or ast.While
    variables : dict
        Forms of the names that are bound when the loop begins.
    iterable : object
        What it runs over; None for a `while`.
    wanted : frozenset of str
        Names that the loop binds and that are read after it.
    resolve : callable
        Gives the objects of all other names; it raises NameError.
    contents : callable, optional
        Gives the least and the largest integer in an array, by the name of the variable; None where
        they are not known. Where these are needed, the kernel's `assumed` has them, or wider ones.

    Raises
    ------
    NotCaptured
        If the kernel might do anything else than Python does.
    """

    def widened(name: str) -> tuple[int, int] | None:
        bounds = contents(name)
        return None if bounds is None else _widened(bounds, variables)

    own = frozenset(names.uses([loop]).bound) | frozenset(variables)
    changing: frozenset[str] = frozenset()
    tagged, postpones = False, True
    while True:
        state = State(
            loop.lineno, contents=widened, changing=changing, tagged=tagged, postpones=postpones
        )
        lowering = LoopLowering(state, Scope(loop, own, resolve, wanted), variables)
        try:
            lowering.read(loop, iterable)
        except NotCaptured:
            if not state.postponed and (tagged or not state.ambiguous):
                raise
            tagged |= not state.postponed
            postpones &= not state.postponed
            continue
        wrong = state.steady & state.written - changing
        several = not tagged and lowering.is_of_several_kinds(wanted)
        if not wrong and not several:
            break
        changing |= wrong
        tagged |= several
    state.line = loop.lineno
    returned = lowering.returned()
    results: tuple[Result, ...] = ()
    if returned is None or returned.flag is not None:
        results = tuple(r for r in map(lowering.result, sorted(wanted)) if r is not None)
    listed = lowering.listed()
    lowering.lists.sized()
    kernel = _used(simplified(lowering.kernel("loop")), results, returned, listed)
    parameters = {p.name: p for p in state.parameters.values()}
    sources = tuple((n, parameters[n].source) for n in kernel.order)
    writes = tuple(s.name for n, s in sources if isinstance(s, Variable) and n in state.written)
    failed = state.failed if state.failed in kernel.order else None
    assumed = []
    for name, bounds in state.contents_of.items():
        source = parameters[name].source
        assert isinstance(source, Variable)
        assumed.append((source.name, *bounds))
    return LoopKernel(kernel, sources, writes, results, tuple(assumed), failed, returned, listed)


def _widened(bounds: tuple[int, int], variables: dict[str, Form]) -> tuple[int, int]:
    """Return bounds that other indices of the same arrays keep to, too."""
    low, high = bounds
    extents = {e for f in variables.values() if isinstance(f, ArrayForm) for e in f.shape}
    ends = sorted(e - less for e in extents for less in (1, 0))
    return min(low, 0), next((e for e in ends if e >= high), high)

"""From a segment to what runs it: passes, plan, compiler, and what is left without them."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

from adarray.codegen.machine import CPU
from adarray.codegen.verify import checking
from adarray.device import DeviceEngine, is_device
from adarray.errors import BackendError, CompileError
from adarray.inplace import WRITE
from adarray.jitting.check import checked
from adarray.jitting.collector import collector_waits
from adarray.jitting.donation import pairs
from adarray.jitting.keys import replace_symbols
from adarray.jitting.options import Options
from adarray.jitting.tree import Node
from adarray.op import Op
from adarray.passes.interpret import Interpreted
from adarray.program import Program
from adarray.recording import PYTHON, Call, Symbol
from adarray.scope import package_of
from adarray.spans import span

Run = Callable[[list[Any]], list[Any]]


class JitWarning(RuntimeWarning):
    """Something that `adarray.jit` was asked to compile is not compiled, or not as asked."""


class FailError(Exception):
    """A compiled segment stopped; f must run eagerly, which raises NumPy's own error."""


# Attribute of exceptions that came when donated arguments had been overwritten: the function
# itself cannot run in the place of its compiled code any more.
SPENT = "adarray_spent"


# Values of a program that is planned for so long that its kernels are compiled meanwhile.
LONG = 4000

# What was said of kernels that do not compile.
_uncompiled: set[str] = set()


def say(text: str) -> None:
    """Warn, at the line of the user's code that led here."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and package_of(frame.f_globals.get("__name__")) == "adarray":
        frame = frame.f_back
        level += 1
    warnings.warn(text, JitWarning, stacklevel=level)


def _no_run(_arrays: list[Any]) -> list[Any]:
    raise AssertionError("a segment is compiled before it runs")


class Draft:
    """A segment between its stages: programs, plan, executable, and what runs it."""

    def __init__(self) -> None:
        self.before: Any = None
        self.after: Any = None
        self.plan: Any = None
        self.executable: Any = None
        self.ahead: Any = None
        self.run: Run = _no_run
        self.seconds: dict[str, float] = {}
        self.eager = ""

    def set(self, executable: Any, seconds: float) -> None:
        """Take in what was compiled."""
        self.executable = executable
        self.run = getattr(executable, "run", executable)
        self.seconds["compile"] = seconds


def _shared_key(node: Node) -> Any:
    """Return what equal segments have in common, wherever they stand."""
    return (node.body, tuple(n - node.first for n in node.targets), _donated(node))


def _donated(node: Node) -> tuple[tuple[int, int], ...]:
    """Return which targets may have the memory of which sources."""
    return pairs(node)


def _donations(node: Node, draft: Draft) -> tuple[tuple[int, int], ...]:
    """Return `_donated`, if nobody may have to run the program again."""
    found = _donated(node)
    if found and any(getattr(v.origin, "errors", None) is not None for v in draft.after.values):
        return ()
    return found


class Builder:
    """Makes the executables of a jitted function for one engine.

    Parameters
    ----------
    engine : Engine or None
        None: programs are interpreted with NumPy.
    options : Options
    """

    def __init__(self, engine: Any, options: Options) -> None:
        self.engine = engine
        self.options = options
        # Of the device where it computes, if it does.
        self.library: Any = engine.library if isinstance(engine, DeviceEngine) else None
        self._said: set[str] = set()
        self._built = False

    def build(self, nodes: list[Node]) -> None:
        """Set ``node.compiled`` and what `explain` shows of it; compile all kernels at once."""
        drafts: dict[Any, Draft] = {}
        with collector_waits(), contextlib.ExitStack() as stack:
            for node in nodes:
                key = _shared_key(node)
                if key not in node.tree.shared and key not in drafts:
                    drafts[key] = self._draft(node, stack)
            self._compile([d for d in drafts.values() if d.plan is not None])
        self._built = self._built or bool(drafts)
        for node in nodes:
            key = _shared_key(node)
            if key in drafts:
                node.tree.shared[key] = drafts[key]
            draft = node.tree.shared[key]
            node.before, node.after, node.plan = draft.before, draft.after, draft.plan
            node.executable, node.seconds, node.eager = draft.executable, draft.seconds, draft.eager
            run = checked(node, draft.run, self.library) if checking() else draft.run
            node.compiled = (node.targets, run)

    def settle(self) -> None:
        """Give memory back, once recorded runs are forgotten that led to something compiled.

        They took the memory of every intermediate; what was compiled needs less.
        """
        if self._built and hasattr(self.engine, "trim"):
            self.engine.trim()
        self._built = False

    def _draft(self, node: Node, stack: contextlib.ExitStack) -> Draft:
        """Return the plan of a segment, or what runs it without one."""
        symbols = node.path.symbols
        inputs = [symbols[n] for n in node.sources]
        outputs = [symbols[n] for n in node.targets]
        strides = {
            symbols[n]: s for n in node.sources if (s := node.tree.strides_of(n)) is not None
        }
        constants = node.path.constants
        draft = Draft()
        start = perf_counter()
        try:
            from adarray.passes import optimise
            from adarray.passes.canonicalise import canonicalise

            with span("passes", "jit"):
                draft.before = canonicalise(
                    node.calls, inputs, outputs, strides=strides, constants=constants
                )
                draft.after = optimise(draft.before, check=checking())
        except Exception as error:  # what the passes cannot do still has to run
            if checking():
                raise
            draft.before = draft.after = None
            draft.eager = f"the passes failed: {type(error).__name__}: {error}"
            self._say(f"jit: {draft.eager}; its operations run one by one")
            draft.run = self._stepwise(Replayed(node.calls, inputs, outputs, constants))
            return draft
        draft.seconds["passes"] = perf_counter() - start
        if self.engine is None or not hasattr(self.engine, "executable"):
            draft.eager = "the backend does not compile programs"
            draft.run = self._interpreted(draft)
            return draft
        start = perf_counter()
        try:
            from adarray.passes.planning import plan

            with span("plan", "jit"):
                machine = getattr(self.engine, "machine", CPU)
                donated = _donations(node, draft)
                draft.ahead = ahead = self._ahead(draft, stack)
                draft.plan = plan(
                    draft.after, self.options.memory_limit, donated, machine, ahead and ahead.take
                )
        except Exception as error:
            self._failed(draft, f"planning failed: {type(error).__name__}: {error}")
        draft.seconds["plan"] = perf_counter() - start
        return draft

    def _ahead(self, draft: Draft, stack: contextlib.ExitStack) -> Any:
        """Return what compiles kernels of a long program while it is planned, if anything does."""
        if len(draft.after.values) < LONG or not hasattr(self.engine, "ahead"):
            return None
        with contextlib.suppress(BackendError, OSError):  # seen when the plan is compiled
            return stack.enter_context(self.engine.ahead(self.options.precise))
        return None

    def _compile(self, drafts: list[Draft]) -> None:
        """Compile plans, all in one run of the compiler where that works."""
        prepare = getattr(self.engine, "prepare", None)
        precise = self.options.precise
        start = perf_counter()
        for draft in drafts:
            if draft.ahead is not None:
                draft.ahead.finish()
        if prepare is not None and len(drafts) > 1:
            with span("compile", "jit"), contextlib.suppress(Exception):  # seen below, one by one
                prepare([d.plan for d in drafts], precise)
        shared = (perf_counter() - start) / max(1, len(drafts))
        for draft in drafts:
            start = perf_counter()
            try:
                with span("compile", "jit"):
                    rerun = Rerun(draft.after, any(b.donor >= 0 for b in draft.plan.buffers))
                    made = self.engine.executable(draft.plan, precise=precise, rerun=rerun)
                draft.set(made, perf_counter() - start + shared)
                if self.library is not None:
                    draft.run = after_numbers(draft.run, draft.after, self.library.kind)
            except BackendError as error:  # no compiler, or source that it refused
                self._failed(draft, str(error), error)
            except Exception as error:
                self._failed(draft, f"compiling failed: {type(error).__name__}: {error}", error)

    def _failed(self, draft: Draft, why: str, error: Exception | None = None) -> None:
        """Let a program run step by step, and say why."""
        if checking() and not isinstance(error, BackendError):
            raise
        draft.eager = why
        draft.plan = None
        draft.run = self._interpreted(draft)
        if isinstance(error, CompileError):
            if why in _uncompiled:
                return  # another function has the same kernel
            _uncompiled.add(why)
        self._say(f"jit: {why.removeprefix('jit: ')}; the optimised program runs step by step")

    def _interpreted(self, draft: Draft) -> Run:
        """Return what runs the optimised program step by step."""
        if self.library is not None:
            return self._stepwise(Interpreted(draft.after, self.engine))
        return Ordered(Interpreted(draft.after, self.engine))

    def _stepwise(self, run: Any) -> Run:
        return run if self.library is None else OnLibrary(run, self.library)

    def _say(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            say(text)


_FLAGS = (("divide", 1), ("over", 2), ("under", 4), ("invalid", 8))
_PYTHON_BITS = sum(bit for name, bit in _FLAGS if PYTHON[name] == "raise")


class Rerun:
    """What happens when a compiled program raised floating-point flags, or stopped.

    NumPy's warnings and errors are those of its own functions, so the program is run again
    with them: where np.errstate asks for warnings only the first time.
    """

    def __init__(self, program: Any, spent: bool = False) -> None:
        self._program = program
        self._spent = spent  # whether arguments hold results by now
        self._run: Run | None = None
        self._warned = 0
        # What the function itself asks for in blocks of np.errstate; None: what the caller does.
        origins = {id(v.origin): v.origin for v in program.values}.values()
        made: list[dict[str, Any] | None] = [getattr(x, "errors", None) for x in origins]
        self._own = [x for x in made if x is not None and x is not PYTHON]
        self._outer = any(x is None for x in made)
        # Arithmetic of Python numbers, which raises errors of its own.
        self._numbers = _numbers_of(program) if any(x is PYTHON for x in made) else None

    def _asked(self, flags: int) -> set[str]:
        """Return what is to happen for raised flags."""
        asked: list[dict[str, Any]] = [*self._own, *([dict(np.geterr())] if self._outer else [])]
        return {errors[name] for name, bit in _FLAGS if flags & bit for errors in asked}

    def hears(self, flags: int) -> bool:
        """Whether anybody asked for any of the raised flags."""
        python = self._numbers is not None and bool(flags & _PYTHON_BITS)
        return python or not self._asked(flags) <= {"ignore"}

    def __call__(self, arrays: list[Any], flags: int, code: int, results: Any) -> Any:
        """Return the results of the call, after NumPy has warned, raised or called."""
        if code:
            raise FailError(f"code {code}")
        if self._numbers is not None and flags & _PYTHON_BITS:
            self._numbers(list(arrays))  # where Python would raise, f runs eagerly
        wants = self._asked(flags)
        if wants <= {"ignore"} or (
            wants <= {"ignore", "warn"} and flags | self._warned == self._warned
        ):
            return results
        self._warned |= flags
        if self._spent:
            _signal(flags)
            return results
        if self._run is None:
            self._run = Interpreted(self._program)
        self._run(list(arrays))
        return results


def _signal(flags: int) -> None:
    """Let NumPy say that flags were raised, without what raised them."""
    one, huge = np.ones(1), np.full(1, 1e308)
    examples: Any = ((np.divide, one, 0.0), (np.multiply, huge, huge), (np.divide, 1e-308, huge),
                (np.subtract, np.inf, np.full(1, np.inf)))  # fmt: skip
    try:
        for (function, x, y), (_, bit) in zip(examples, _FLAGS, strict=True):
            if flags & bit:
                function(x, y)
    except Exception as error:
        setattr(error, SPENT, True)
        raise


def _numbers_of(program: Program) -> Run:
    """Return what computes the values that are arithmetic of Python numbers."""
    found = [v for v in program.values if getattr(v.origin, "errors", None) is PYTHON]
    live = {id(v) for v in (*found, *program.inputs)}
    kept = []
    for v in reversed(program.values):
        if id(v) in live:
            kept.append(v)
            live.update(id(a) for a in v.args)
    return Interpreted(Program(program.inputs, reversed(kept), found))


# Arithmetic of Python numbers that raises, other than by overflow.
_RAISING = frozenset({"divide", "floor_divide", "remainder", "power", "float_power"})


def after_numbers(run: Run, program: Program, kind: type) -> Run:
    """Return `run` after arithmetic of Python numbers that may raise.

    Devices tell of no floating-point flags, so it is done on the host in every call, if the
    numbers are there: where Python would raise, this does, and f runs eagerly. `kind` is the class
    of arrays on the device.
    """
    found = [
        v
        for v in program.values
        if v.args
        and getattr(v.origin, "errors", None) is PYTHON
        and getattr(v.origin.function, "__name__", "") in _RAISING
    ]
    if not found:
        return run
    needed = {id(v) for v in found}
    for v in reversed(program.values):
        if id(v) in needed:
            needed.update(id(a) for a in v.args)
    kept = [v for v in program.values if id(v) in needed or v.kind == "input"]
    numbers = Interpreted(Program(program.inputs, kept, found))
    used = [id(v) in needed for v in program.inputs]

    def both(arrays: list[Any]) -> list[Any]:
        if all(type(x) is not kind for x, u in zip(arrays, used, strict=True) if u):
            numbers([x if u else 0.0 for x, u in zip(arrays, used, strict=True)])
        return run(arrays)

    return both


class Ordered:
    """Runs a program with results in C order, as compiled segments expect them."""

    def __init__(self, run: Interpreted) -> None:
        self._run = run

    def __call__(self, arrays: list[Any], watch: Any = None) -> list[Any]:
        """Return the results for `arrays`; `watch` is told of each step (see `Interpreted`)."""
        return [
            x if x.ndim == 0 or x.flags.c_contiguous else np.ascontiguousarray(x)
            for x in self._run(arrays, watch)
        ]


class OnLibrary:
    """Runs the steps of a segment on values of a device, for arrays of its library."""

    def __init__(self, run: Any, library: Any) -> None:
        self._run = run
        self._library = library

    def __call__(self, arrays: list[Any], *watch: Any) -> list[Any]:
        """Return the results for `arrays`, which are their own and in C order."""
        library = self._library
        values = [library.wrap(x, False) if type(x) is library.kind else x for x in arrays]
        return [self._own(x) for x in self._run(values, *watch)]

    def _own(self, x: Any) -> Any:
        library = self._library
        if not is_device(x):
            return library.send(np.asarray(x, order="C"))
        own = x.raw.base is None and x.flags.c_contiguous
        return x.raw if own else library.copied(x.raw, "C")


class Replayed:
    """The recorded calls of a segment, run by NumPy as they were recorded."""

    def __init__(
        self,
        calls: list[Call],
        inputs: list[Symbol],
        outputs: list[Symbol],
        constants: dict[Symbol, np.ndarray],
    ) -> None:
        self.calls = calls
        self.inputs = inputs
        self.outputs = outputs
        self.constants = constants

    def __call__(self, arrays: list[Any]) -> list[Any]:
        """Return the results for `arrays`."""
        values: dict[Symbol, Any] = dict(self.constants)
        values.update(zip(self.inputs, arrays, strict=True))
        for call in self.calls:
            r = run_call(call, values.__getitem__)
            several = r if call.several else (r,)
            values.update(zip(call.results, several, strict=True))
        return [_fresh(values[s]) for s in self.outputs]


def run_call(call: Call, value: Callable[[Symbol], Any]) -> Any:
    """Compute one recorded call."""
    args = [replace_symbols(a, value) for a in call.args]
    params = {k: replace_symbols(v, value) for k, v in call.params.items()}
    op: Op | None = call.op
    if op is not None and op is not WRITE and op.variadic:
        fixed = op.arity - 1
        args = [*args[:fixed], list(args[fixed:])]
    return call.function(*args, **params)


def _fresh(x: Any) -> Any:
    return np.array(x, order="C") if isinstance(x, np.ndarray) else x

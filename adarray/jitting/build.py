"""From a segment to what runs it: passes, plan, compiler, and what is left without them."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

from adarray.errors import BackendError
from adarray.inplace import WRITE
from adarray.jitting.check import checked
from adarray.jitting.collector import collector_waits
from adarray.jitting.keys import replace_symbols
from adarray.jitting.options import Options
from adarray.jitting.tree import Node
from adarray.op import Op
from adarray.passes.interpret import Interpreted
from adarray.recording import Call, Symbol
from adarray.scope import package_of
from adarray.spans import span

Run = Callable[[list[Any]], list[Any]]


class JitWarning(RuntimeWarning):
    """Something that `adarray.jit` was asked to compile is not compiled, or not as asked."""


class FailError(Exception):
    """A compiled segment stopped; f must run eagerly, which raises NumPy's own error."""


def say(text: str) -> None:
    """Warn, at the line of the user's code that led here."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and package_of(frame.f_globals.get("__name__")) == "adarray":
        frame = frame.f_back
        level += 1
    warnings.warn(text, JitWarning, stacklevel=level)


def checking() -> bool:
    """Whether ``ADARRAY_CHECK`` asks for results to be compared with eager ones."""
    return os.environ.get("ADARRAY_CHECK", "0") not in ("", "0")


def _no_run(_arrays: list[Any]) -> list[Any]:
    raise AssertionError("a segment is compiled before it runs")


class Draft:
    """A segment between its stages: programs, plan, executable, and what runs it."""

    def __init__(self) -> None:
        self.before: Any = None
        self.after: Any = None
        self.plan: Any = None
        self.executable: Any = None
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
    return (node.body, tuple(n - node.first for n in node.targets))


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
        self._said: set[str] = set()

    def build(self, nodes: list[Node]) -> None:
        """Set ``node.compiled`` and what `explain` shows of it; compile all kernels at once."""
        drafts: dict[Any, Draft] = {}
        with collector_waits():
            for node in nodes:
                key = _shared_key(node)
                if key not in node.tree.shared and key not in drafts:
                    drafts[key] = self._draft(node)
            self._compile([d for d in drafts.values() if d.plan is not None])
        for node in nodes:
            key = _shared_key(node)
            if key in drafts:
                node.tree.shared[key] = drafts[key]
            draft = node.tree.shared[key]
            node.before, node.after, node.plan = draft.before, draft.after, draft.plan
            node.executable, node.seconds, node.eager = draft.executable, draft.seconds, draft.eager
            node.compiled = (node.targets, checked(node, draft.run) if checking() else draft.run)

    def _draft(self, node: Node) -> Draft:
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
            draft.run = Replayed(node.calls, inputs, outputs, constants)
            return draft
        draft.seconds["passes"] = perf_counter() - start
        if self.engine is None or not hasattr(self.engine, "executable"):
            draft.eager = "the backend does not compile programs"
            draft.run = Ordered(Interpreted(draft.after, self.engine))
            return draft
        start = perf_counter()
        try:
            from adarray.passes.planning import plan

            with span("plan", "jit"):
                draft.plan = plan(draft.after, memory_limit=self.options.memory_limit)
        except Exception as error:
            self._failed(draft, f"planning failed: {type(error).__name__}: {error}")
        draft.seconds["plan"] = perf_counter() - start
        return draft

    def _compile(self, drafts: list[Draft]) -> None:
        """Compile plans, all in one run of the compiler where that works."""
        prepare = getattr(self.engine, "prepare", None)
        precise = self.options.precise
        shared = 0.0
        if prepare is not None and len(drafts) > 1:
            start = perf_counter()
            with span("compile", "jit"), contextlib.suppress(Exception):  # seen below, one by one
                prepare([d.plan for d in drafts], precise)
            shared = (perf_counter() - start) / len(drafts)
        for draft in drafts:
            start = perf_counter()
            try:
                with span("compile", "jit"):
                    rerun = Rerun(draft.after)
                    made = self.engine.executable(draft.plan, precise=precise, rerun=rerun)
                draft.set(made, perf_counter() - start + shared)
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
        draft.run = Ordered(Interpreted(draft.after, self.engine))
        self._say(f"jit: {why.removeprefix('jit: ')}; the optimised program runs step by step")

    def _say(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            say(text)


class Rerun:
    """What happens when a compiled program raised floating-point flags, or stopped.

    NumPy's warnings and errors are those of its own functions, so the program is run again
    with them: where np.errstate asks for warnings only the first time.
    """

    def __init__(self, program: Any) -> None:
        self._program = program
        self._run: Run | None = None
        self._warned = 0

    def __call__(self, arrays: list[Any], flags: int, code: int, results: Any) -> Any:
        """Return the results of the call, after NumPy has warned, raised or called."""
        if code:
            raise FailError(f"code {code}")
        asked: dict[str, Any] = dict(np.geterr())
        bits = zip((1, 2, 4, 8), ("divide", "over", "under", "invalid"), strict=True)
        wants = {asked[name] for bit, name in bits if flags & bit}
        if wants <= {"ignore"} or (
            wants <= {"ignore", "warn"} and flags | self._warned == self._warned
        ):
            return results
        self._warned |= flags
        if self._run is None:
            self._run = Interpreted(self._program)
        self._run(list(arrays))
        return results


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

"""From a segment to what runs it: passes, plan, compiler, and what is left without them."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

from adarray.errors import BackendError
from adarray.inplace import WRITE
from adarray.jit.check import checked
from adarray.jit.collector import collector_waits
from adarray.jit.keys import replace_symbols
from adarray.jit.options import Options
from adarray.jit.tree import Node
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

    def build(self, node: Node) -> None:
        """Set ``node.compiled`` and what `explain` shows of it."""
        tree = node.tree
        first = node.first
        key = (node.body, tuple(n - first for n in node.targets))
        made = tree.shared.get(key)
        if made is None:
            with collector_waits():
                made = tree.shared[key] = self._made(node)
        node.before, node.after, node.plan, node.executable, node.seconds, node.eager, run = made
        if checking():
            run = checked(node, run)
        node.compiled = (node.targets, run)

    def _made(self, node: Node) -> tuple[Any, ...]:
        symbols = node.path.symbols
        inputs = [symbols[n] for n in node.sources]
        outputs = [symbols[n] for n in node.targets]
        strides = {
            symbols[n]: s for n in node.sources if (s := node.tree.strides_of(n)) is not None
        }
        constants = node.path.constants
        seconds: dict[str, float] = {}
        start = perf_counter()
        before = after = plan = executable = None
        eager = ""
        try:
            from adarray.passes import optimise
            from adarray.passes.canonicalise import canonicalise

            with span("passes", "jit"):
                before = canonicalise(
                    node.calls, inputs, outputs, strides=strides, constants=constants
                )
                after = optimise(before, check=checking())
        except Exception as error:  # what the passes cannot do still has to run
            if checking():
                raise
            eager = f"the passes failed: {type(error).__name__}: {error}"
            self._say(f"jit: {eager}; its operations run one by one")
            run: Run = Replayed(node.calls, inputs, outputs, constants)
            return None, None, None, None, seconds, eager, run
        seconds["passes"] = perf_counter() - start
        if self.engine is not None and hasattr(self.engine, "executable"):
            try:
                plan, executable, run = self._compiled(after, seconds)
                return before, after, plan, executable, seconds, "", run
            except BackendError as error:  # no compiler, or source that it refused
                eager = str(error)
            except Exception as error:
                if checking():
                    raise
                eager = f"planning failed: {type(error).__name__}: {error}"
            self._say(f"jit: {eager}; the optimised program runs step by step")
        else:
            eager = "the backend does not compile programs"
        run = Ordered(Interpreted(after, self.engine))
        return before, after, plan, executable, seconds, eager, run

    def _compiled(self, program: Any, seconds: dict[str, float]) -> tuple[Any, Any, Run]:
        from adarray.passes.planning import plan as make_plan

        start = perf_counter()
        with span("plan", "jit"):
            plan = make_plan(program, memory_limit=self.options.memory_limit)
        seconds["plan"] = perf_counter() - start
        start = perf_counter()
        with span("compile", "jit"):
            rerun = Rerun(program)
            executable = self.engine.executable(plan, precise=self.options.precise, rerun=rerun)
        seconds["compile"] = perf_counter() - start
        return plan, executable, getattr(executable, "run", executable)

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

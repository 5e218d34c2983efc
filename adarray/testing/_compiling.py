"""The checks of `check_backend` for an engine that compiles."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from adarray.base.engines import CompiledPlan, CompilingEngine
from adarray.compiler.ir.plan import Plan
from adarray.compiler.ir.target import Target
from adarray.device import Library
from adarray.jitting.calls.decorator import jit
from adarray.jitting.calls.front import JitFunction
from adarray.jitting.shared.background import pending
from adarray.jitting.tree.tree import TreeNode
from adarray.testing._ops import use_all_sizes
from adarray.transforms import grad

_PATIENCE = 120.0  # seconds that a compiler may take for one function


def _smooth(x: Any) -> Any:
    return np.sum(np.tanh(x) * np.exp(-x * x) + np.sqrt(1.0 + x * x))


def _normalised(x: Any) -> Any:
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return np.sum(np.log(np.sum(e, axis=-1))) - np.sum(x[:, 0] / np.sum(e, axis=-1))


def _layer(x: Any) -> Any:
    h = np.maximum(x @ x.T, 0.1)
    return np.sum((h @ x) * np.where(x > 0.5, x, 1.0))


def _windows(x: Any) -> Any:
    for _ in range(3):
        x = x[1:-1] * 0.5 + (x[2:] + x[:-2]) * 0.25
    return np.sum(x * x) + np.sum(np.cumsum(x, axis=0)[-1])


def _gathered(x: Any) -> Any:
    return np.sum(x[np.array([2, 0, 2, 1])] ** 2 * np.arange(4.0)[:, None]) + np.prod(x[0])


_FUNCTIONS = (_smooth, _normalised, _layer, _windows, _gathered)
_SHAPE = (7, 4)


class _Executable(NamedTuple):
    """An executable, its inputs, and of which arguments they are."""

    plan: Plan
    executable: CompiledPlan
    arrays: list[Any]
    sources: tuple[int, ...]


class Compiles:
    """The checks of one engine.

    Parameters
    ----------
    name : str
        Of the backend.
    engine : CompilingEngine
    """

    def __init__(self, name: str, engine: CompilingEngine) -> None:
        self.name = name
        self.engine = engine
        self.device: Library | None = engine.device

    def checks(self) -> Iterator[Callable[[], None]]:
        """Yield them all; each raises AssertionError if something is wrong."""
        yield self.target
        yield self.gradients
        yield self.strides
        yield self.numbers
        yield self.donation
        yield self.results
        yield self.facts
        yield self.threads
        yield self.refusals

    def target(self) -> None:
        """Check what plans are made for."""
        _require(
            isinstance(self.engine.target, Target),
            f"target: got {self.engine.target!r}, expected an adarray.compiling.Target",
        )

    def _compiled(
        self, f: Callable[..., Any], *args: Any, **options: Any
    ) -> tuple[JitFunction, list[TreeNode]]:
        """Return ``jit(f)`` and its segments, after their executables are there."""
        jitted = jit(f, **options)
        assert isinstance(jitted, JitFunction)
        with use_all_sizes(self.name):
            for _ in range(3):
                jitted(*(map(np.copy, args) if options else args))  # not those that are donated
            nodes = jitted.path(*args)
            _require(bool(nodes), f"jit of {f.__name__}: nothing was compiled")
            _require(
                not pending(nodes, _PATIENCE),
                f"jit of {f.__name__}: the compiler takes more than {_PATIENCE:.0f} s",
            )
            for node in nodes:
                _require(
                    node.executable is not None, f"jit of {f.__name__}: not compiled: {node.eager}"
                )
        return jitted, nodes

    def _agrees(self, f: Callable[..., Any], *args: Any) -> None:
        """Check that compiled code returns what NumPy does."""
        jitted, _ = self._compiled(f, *args)
        expected = f(*args)
        with use_all_sizes(self.name):
            got = jitted(*args)
        wide = np.result_type(expected) == np.float64
        rtol, atol = (1e-9, 1e-11) if wide else (2e-4, 1e-5)
        _require(
            np.shape(got) == np.shape(expected) and np.result_type(got) == np.result_type(expected),
            f"jit of {f.__name__}: got shape {np.shape(got)} and dtype {np.result_type(got)}, "
            f"expected {np.shape(expected)} and {np.result_type(expected)}",
        )
        _require(
            bool(np.allclose(got, expected, rtol, atol, equal_nan=True)),
            f"jit of {f.__name__}: got {got!r}, expected {expected!r}",
        )

    def gradients(self) -> None:
        """Check values and gradients of several functions, in two precisions."""
        for f, dtype in itertools.product(_FUNCTIONS, (np.float64, np.float32)):
            x = _drawn(dtype)
            self._agrees(f, x)
            self._agrees(_named(grad(f), f), x)

    def strides(self) -> None:
        """Check inputs of any strides, negative and zero ones included."""
        x = _drawn(np.float64)
        for view in (x[::-1], x[:, ::2], np.broadcast_to(x[0], _SHAPE), np.asfortranarray(x)):
            self._agrees(_named(grad(_smooth), _smooth), view)

    def numbers(self) -> None:
        """Check Python and NumPy numbers in the place of arrays without axes."""

        def scaled(x: Any, a: Any) -> Any:
            return np.sum(np.sin(x) * a) / a

        x = _drawn(np.float64)
        for a in (3.0, np.float64(3.0), np.array(3.0)):
            self._agrees(scaled, x, a)

    def donation(self) -> None:
        """Check that a result lies in the memory of a donated argument."""

        def step(w: Any, x: Any) -> Any:
            return w - 0.1 * np.tanh(w * x)

        w, x = _drawn(np.float64), _drawn(np.float64) + 1.0
        (jitted, nodes), expected = self._compiled(step, w, x, donate=0), w
        for node in nodes if self.device is None else ():
            executable = self.engine.executable(node.plan, precise=False)
            arrays = [(w.copy(), x)[i] for i in node.sources]
            for r, o in zip(executable.run(list(arrays)), node.plan.outputs, strict=True):
                donated = o.buffer.donor < 0 or np.shares_memory(r, arrays[o.buffer.donor])
                _require(donated, "a donated argument: the result is in other memory")
        with use_all_sizes(self.name):
            for _ in range(4):
                donated, expected = w, step(expected, x)
                w = jitted(w, x)
                _require(w is donated, "a donated argument: the result is another array")
        _require(bool(np.allclose(w, expected, 1e-12)), "a donated argument: a wrong result")

    # -- executables themselves ------------------------------------------------------------

    def _executable(self, f: Callable[..., Any], *args: Any, rerun: Any = None) -> _Executable:
        """Return an executable of ``f(*args)``, made by asking the engine."""
        _, (node,) = self._compiled(f, *args)
        arrays = [self._sent(args[i]) for i in node.sources]
        executable = self.engine.executable(node.plan, precise=False, rerun=rerun)
        _require(
            isinstance(executable, CompiledPlan),
            f"executable: returned {type(executable).__name__}, expected an "
            "adarray.runtime.CompiledPlan",
        )
        return _Executable(node.plan, executable, arrays, node.sources)

    def _sent(self, x: Any) -> Any:
        return self.device.send(x) if self.device is not None and type(x) is np.ndarray else x

    def _received(self, x: Any) -> np.ndarray:
        own = self.device is not None and type(x) is self.device.kind
        return self.device.receive(x) if self.device is not None and own else np.asarray(x)

    def results(self) -> None:
        """Check that results are fresh, and in C order, and that inputs are not written to."""

        def several(x: Any) -> Any:
            return np.exp(x).T, np.sum(x), x + 1.0

        x = _drawn(np.float64)
        before, other = x.copy(), x + 1.0
        _, executable, arrays, _ = self._executable(several, x)
        first = executable.run(list(arrays))
        copies = [self._received(r).copy() for r in first]
        second = executable.run([self._sent(other)])
        _require(
            all(np.array_equal(self._received(r), k) for r, k in zip(first, copies, strict=True)),
            "run: a later run wrote into the results of an earlier one",
        )
        _require(
            bool(np.array_equal(self._received(arrays[0]), before)), "run: it wrote into an input"
        )
        expected = several(other)
        for got, wanted in zip(second, expected, strict=True):
            _require(
                bool(np.allclose(self._received(got), wanted, 1e-12)),
                f"run: got {self._received(got)!r}, expected {wanted!r}",
            )
        if self.device is not None:
            return
        for got, wanted in zip(second, expected, strict=True):
            kind = np.generic if np.ndim(wanted) == 0 else np.ndarray
            _require(
                isinstance(got, kind), f"run: a result is {type(got).__name__}, not {kind.__name__}"
            )
            _require(np.ndim(got) == 0 or got.flags.c_contiguous, "run: a result is not in C order")
        for a, b in itertools.combinations([*first, *second, *arrays, other], 2):
            _require(not np.shares_memory(a, b), "run: results share memory")

    def facts(self) -> None:
        """Check what `explain` and `profile` ask for."""
        plan, executable, arrays, _ = self._executable(
            _named(grad(_smooth), _smooth), _drawn(np.float64)
        )
        results, stamps = executable.timed(list(arrays))
        _require(
            len(stamps) == len(plan.steps) + 1 and list(stamps) == sorted(stamps),
            f"timed: got stamps {list(stamps)} for {len(plan.steps)} steps",
        )
        expected = executable.run(list(arrays))
        for got, wanted in zip(results, expected, strict=True):
            _require(
                bool(np.array_equal(self._received(got), self._received(wanted))),
                "timed: its results are not those of run",
            )
        for i in range(len(plan.steps)):
            _require(isinstance(executable.source_of(i), str), f"source_of({i}): not a str")
        counts = {
            "compiled": executable.compiled,
            "from_disk": executable.from_disk,
            "in_memory": executable.in_memory,
        }
        for name, n in counts.items():
            _require(isinstance(n, int) and n >= 0, f"{name}: got {n!r}, expected a count")

    def threads(self) -> None:
        """Check that several threads run one executable at once, and that another compiles it."""
        x = _drawn(np.float64)
        _, executable, arrays, _ = self._executable(_named(grad(_normalised), _normalised), x)
        expected = self._received(executable.run(list(arrays))[0])
        wrong: list[str] = []

        def work(run: Callable[[list[Any]], list[Any]]) -> None:
            try:
                for _ in range(4):
                    got = self._received(run(list(arrays))[0])
                    if not np.allclose(got, expected, 1e-12):
                        wrong.append(f"got {got!r}, expected {expected!r}")
            except Exception as error:
                wrong.append(f"{type(error).__name__}: {error}")

        workers = [threading.Thread(target=work, args=(executable.run,)) for _ in range(3)]
        for w in workers:
            w.start()
        for w in workers:
            w.join()
        _require(not wrong, f"threads that run one executable: {wrong[:1]}")
        if self.engine.any_thread:
            executables: list[CompiledPlan] = []
            maker = threading.Thread(
                target=lambda: executables.append(
                    self.engine.executable(executable.plan, precise=False)
                )
            )
            maker.start()
            maker.join()
            _require(len(executables) == 1, "any_thread: it did not compile on another thread")
            work(executables[0].run)
            _require(not wrong, f"any_thread: {wrong[:1]}")

    def refusals(self) -> None:
        """Check what happens after a kernel refused its data."""

        def picked(x: Any, i: Any) -> Any:
            return x[i] * 2.0

        x, i = _drawn(np.float64), np.array([0, 2])
        calls: list[tuple[Any, ...]] = []

        class Handler:
            def hears(self, flags: int) -> bool:  # noqa: ARG002
                return False

            def __call__(self, *args: Any) -> Any:
                calls.append(args)
                return ["instead"]

        _, executable, arrays, sources = self._executable(picked, x, i, rerun=Handler())
        wrong = list(arrays)
        wrong[sources.index(1)] = self._sent(np.array([0, 99]))  # beyond the end
        _require(executable.run(wrong) == ["instead"], "rerun: what it returned is not the result")
        (args,) = calls
        _require(
            args[0] is wrong and args[1] == 0 and args[2] != 0 and args[3] is None,
            f"rerun: called with {args[1:]}, expected (inputs, 0, a code, None)",
        )


def checks(name: str, engine: CompilingEngine) -> Iterator[Callable[[], None]]:
    """Yield the checks of a compiling engine."""
    return Compiles(name, engine).checks()


def _drawn(dtype: Any) -> np.ndarray:
    return np.random.default_rng(0).uniform(0.1, 1.0, _SHAPE).astype(dtype)


def _named(g: Any, f: Callable[..., Any]) -> Callable[..., Any]:
    """Return a gradient as a plain function with a name."""

    def gradient(*args: Any) -> Any:
        return g(*args)

    gradient.__name__ = f"grad({f.__name__.strip('_')})"
    return gradient


def _require(condition: bool, message: str) -> None:
    """Raise an AssertionError that also survives ``python -O``."""
    if not condition:
        raise AssertionError(message)

"""Compiled code that is slower than the function itself is not used, and said to be."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import adarray
from adarray.jitting import JitWarning
from adarray.jitting.calls import tracing
from adarray.jitting.tree import trial
from adarray.jitting.tree.run import MissError, TreeWalk
from adarray.jitting.tree.trial import Trial

pytestmark = pytest.mark.unchecked
X = np.linspace(0.1, 1.0, 6)
SLOW = 0.02


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Set what the time is for trials; return it."""
    now = [0.0]
    monkeypatch.setattr(trial, "SUSPECT", 32.0)
    monkeypatch.setattr(trial, "perf_counter", lambda: now[0])
    return now


class Taking:
    """A run that takes the seconds it is told."""

    def __init__(self, clock: list[float]) -> None:
        self.clock = clock
        self.seconds = 0.0

    def __call__(self, values: list[Any]) -> Any:
        self.clock[0] += self.seconds
        return values


def follow(clock: list[float], recorded: float, compiled: Any, plain: Any) -> tuple[str, int]:
    """Let calls of a trial take some seconds; return how it ended, and after how many."""
    t, taking = Trial(recorded), Taking(clock)
    run = t.of(taking)
    for call in range(10_000):
        if t.turn:
            with pytest.raises(MissError):
                run([])
            seconds = plain(call)
            clock[0] += seconds
            if t.ran_plainly(seconds):
                return "eager", call + 1
        elif t.done:
            with pytest.raises(MissError):  # for its end
                run([])
            assert t.of(taking) is taking
            return "compiled", call
        else:
            taking.seconds = compiled(call)
            assert run([1]) == [1]
    raise AssertionError("it never ends")


def constant(seconds: float) -> Callable[[int], float]:
    return lambda _: seconds


def test_fast_code_is_not_tried(clock: list[float]) -> None:
    assert follow(clock, 1.0, constant(0.001), constant(1e-9)) == ("compiled", trial.WARM)


def test_code_that_is_as_fast_stays_after_one_turn(clock: list[float]) -> None:
    assert follow(clock, 0.01, constant(0.001), constant(0.001)) == ("compiled", trial.WARM + 1)


def test_slower_code_goes(clock: list[float]) -> None:
    end, calls = follow(clock, 0.1, constant(0.1), constant(0.05))
    assert end == "eager"
    assert calls == trial.WARM + 2 * trial.TURNS - 1
    end, calls = follow(clock, 0.1, constant(1.0), constant(0.05))
    assert (end, calls) == ("eager", trial.WARM + 2 * trial.SURE - 1)


def test_a_moment_is_not_enough(clock: list[float]) -> None:
    """While another program has the processor, all compiled calls may be slow."""
    end, calls = follow(clock, 1e-3, constant(1e-4), constant(1e-5))
    assert end == "eager"
    assert clock[0] >= trial.SPREAD
    assert calls > 1000
    clock[0] = 0.0
    busy = follow(clock, 1e-3, lambda k: 1e-4 if k < 200 else 1e-5, constant(1e-5))
    assert busy[0] == "compiled"


def test_one_comparison_decides_for_compiled_code(clock: list[float]) -> None:
    rng = np.random.default_rng(1)

    def noisy(_: int) -> float:
        return float(0.01 * (1.0 + rng.exponential(0.5)))

    ends = [follow(clock, 0.1, noisy, noisy)[0] for _ in range(200)]
    assert ends.count("eager") <= 10


def test_no_trials_where_they_are_off(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "SUSPECT", None)
    taking = Taking(clock)
    assert Trial(0.0).of(taking) is taking


@pytest.fixture
def slowed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Let compiled calls take longer than others; return one item for each."""
    slow_calls: list[int] = []
    monkeypatch.setattr(trial, "SUSPECT", 32.0)
    single, walk = tracing.runner, TreeWalk.run

    def runner(*args: Any) -> Any:
        run = single(*args)

        def slow(values: list[Any]) -> Any:
            slow_calls.append(1)
            time.sleep(SLOW)
            return run(values)

        return None if run is None else slow

    def walked(self: TreeWalk) -> Any:
        slow_calls.append(1)
        time.sleep(SLOW)
        return walk(self)

    monkeypatch.setattr(tracing, "runner", runner)
    monkeypatch.setattr(TreeWalk, "run", walked)
    with adarray.use("serial"):
        yield slow_calls


def squares(x: Any) -> Any:
    return np.sum(x * x)


def written(x: Any) -> Any:
    x += 1.0
    x[0] = np.sum(x[1:])


@pytest.mark.skipif("serial" not in adarray.backends(), reason="no C compiler here")
@pytest.mark.parametrize("by_name", [False, True])
def test_a_function_returns_to_eager_code(slowed: list[int], by_name: bool) -> None:
    jf = adarray.jit(squares)

    def many() -> None:
        for k in range(40):
            got = jf(x=X + k) if by_name else jf(X + k)
            assert got == pytest.approx(squares(X + k), rel=1e-14)

    with pytest.warns(JitWarning, match=r"squares\(float64\[6\]\) stays eager: compiled code is "):
        many()
    info = jf.cache_info()
    assert (info.eager, info.compiled) == (1, 0)
    shown = str(jf.explain(x=X) if by_name else jf.explain(X))
    assert "compiled code is slower: a call takes" in shown
    assert "without jit" in shown
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it is said once, and never tried again
        slowed.clear()
        for _ in range(5):
            jf(x=X) if by_name else jf(X)
        assert not slowed


@pytest.mark.usefixtures("slowed")
@pytest.mark.skipif("serial" not in adarray.backends(), reason="no C compiler here")
def test_every_call_is_made_once_while_they_take_turns() -> None:
    jf = adarray.jit(written)
    x, y = X.copy(), X.copy()

    def many() -> None:
        for _ in range(40):
            jf(x)
            written(y)
            np.testing.assert_allclose(x, y, rtol=1e-13)

    with pytest.warns(JitWarning, match="compiled code is slower"):
        many()


@pytest.mark.usefixtures("slowed")
@pytest.mark.skipif("serial" not in adarray.backends(), reason="no C compiler here")
def test_slow_functions_keep_compiled_code(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = []
    plainly = tracing.Tracing.plainly

    def slow(self: Any, args: Any, kwargs: Any) -> Any:
        turns.append(args)
        time.sleep(3 * SLOW)
        return plainly(self, args, kwargs)

    monkeypatch.setattr(tracing.Tracing, "plainly", slow)
    jf = adarray.jit(squares)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(12):
            assert jf(X) == pytest.approx(squares(X), rel=1e-14)
    assert jf.cache_info().compiled == 1
    assert len(turns) == 1
    (variant,) = jf.entries[0].variants
    assert variant.fast is variant.trial.run  # without a clock


def test_trials_are_kept_from_what_gives_memory_up() -> None:
    jf = adarray.jit(lambda x: x * 2.0, donate=0)
    with adarray.use("serial"):
        for _ in range(4):
            jf(X.copy())
    assert all(v.trial is None for e in jf.entries for v in e.variants)

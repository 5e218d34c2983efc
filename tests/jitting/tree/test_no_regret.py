"""No regret: of random programs, compiled code that is slower than the function is given up.

The clock is a fake one: a recorded run, a compiled call and one of the function itself take the
seconds that a test says, whatever they compute.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from programs import as_tuple
from random_programs import seeded

import adarray
from adarray.jitting import JitWarning
from adarray.jitting.calls import front, tracing
from adarray.jitting.calls.attempt import Attempt
from adarray.jitting.tree import trial
from adarray.jitting.tree.run import TreeWalk

pytestmark = pytest.mark.unchecked
CALLS = 60


class Clock:
    """What the time is, and how long each kind of call takes."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.now = 0.0
        self.noise = rng
        self.recorded = self.compiled = self.plain = 0.0
        self.running = False  # the walk along a tree may be inside of a quick call

    def takes(self, seconds: float) -> None:
        """Let a call take some time, more or less."""
        self.now += seconds * self.noise.uniform(1.0, 1.1)

    def around(self, f: Callable[..., Any], what: str) -> Callable[..., Any]:
        """Return a function that takes the seconds of such a call."""

        def call(*args: Any, **kwargs: Any) -> Any:
            outer, self.running = self.running, True
            try:
                return f(*args, **kwargs)
            finally:
                self.running = outer
                if not outer:
                    self.takes(getattr(self, what))

        return call


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Have `jit` read a clock that tests set."""
    clock = Clock(np.random.default_rng(0))
    monkeypatch.setattr(trial, "SUSPECT", 32.0)
    for module in (front, tracing, trial):
        monkeypatch.setattr(module, "perf_counter", lambda: clock.now)
    runner = tracing.runner

    def timed_runner(*args: Any) -> Any:
        run = runner(*args)
        return None if run is None else clock.around(run, "compiled")

    monkeypatch.setattr(tracing, "runner", timed_runner)
    monkeypatch.setattr(TreeWalk, "run", clock.around(TreeWalk.run, "compiled"))
    monkeypatch.setattr(Attempt, "record", clock.around(Attempt.record, "recorded"))
    monkeypatch.setattr(tracing.Tracing, "plainly", clock.around(tracing.Tracing.plainly, "plain"))
    return clock


def called(jf: Any, program: Any) -> list[str]:
    """Call a jitted program many times, check its results, and return what it warned of."""
    f = program.function()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(CALLS):
            got, expected = as_tuple(jf(*program.args(0))), as_tuple(f(*program.args(0)))
            for a, b in zip(got, expected, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)
    return [str(w.message) for w in caught if w.category is JitWarning]


def outcome(clock: Clock, seed: int, ratio: float) -> tuple[str, str, Any]:
    """Return how a program ended whose compiled calls take `ratio` times as long as others."""
    clock.plain = 10.0 ** clock.noise.uniform(-3.0, 0.0)
    clock.compiled = ratio * clock.plain
    clock.recorded = clock.noise.uniform(2.0, 20.0) * clock.plain
    program = seeded(seed)
    jf = adarray.jit(program.function())
    with adarray.use("numpy"):
        said = called(jf, program)
        text = " ".join(str(jf.explain(*program.args(0))).split())
    (entry,) = jf.entries
    assert said == [f"jit: {entry.signature} stays eager: {entry.eager}"] * bool(entry.eager)
    return entry.eager, text, jf


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("ratio", [1.5, 3.0, 160.0])
def test_slower_code_is_given_up(clock: Clock, seed: int, ratio: float) -> None:
    reason, text, jf = outcome(clock, seed, ratio)
    assert reason.startswith("compiled code is slower: a call takes ")
    assert f"stays eager for {jf.entries[0].signature}: {reason}" in text
    assert jf.cache_info()[2:5] == (0, 0, 1)
    # From then on, it runs as if there were no `jit`.
    clock.compiled = 1e9
    before = clock.now
    with adarray.use("numpy"):
        jf(*seeded(seed).args(0))
    assert clock.now - before < 2 * clock.plain


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("ratio", [0.003, 0.3, 1.0])
def test_faster_code_stays(clock: Clock, seed: int, ratio: float) -> None:
    reason, text, jf = outcome(clock, seed, ratio)
    assert reason == ""
    assert "compiled code is slower" not in text
    assert jf.cache_info().compiled > 0


@pytest.mark.parametrize("ratio", [0.1, 1.0, 1.5, 10.0, 100.0])
def test_what_it_costs_to_know(clock: Clock, ratio: float) -> None:
    """A trial adds at most a few calls of the slower kind to what the faster one takes."""
    for seed in range(5):
        start = clock.now
        outcome(clock, seed, ratio)
        fastest = min(clock.plain, clock.compiled)
        few = trial.WARM + 2 * trial.TURNS + 2 + np.ceil(trial.SPREAD / fastest)
        worst = CALLS * fastest + few * max(clock.plain, clock.compiled) + 2 * clock.recorded
        assert clock.now - start < 1.1 * worst

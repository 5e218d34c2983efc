"""checkpointed_loop and checkpointed_while: how many steps run, what is held, and derivatives."""

from __future__ import annotations

import functools
import os
import tempfile
import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from random_programs import seeded

import adarray
from adarray.errors import TraceError
from adarray.transforms import schedules

RNG = np.random.default_rng(5)
W = RNG.normal(size=(3, 3)) / 2
V = RNG.normal(size=(3, 3))
X = np.array([0.3, -0.7, 1.1])
HOW: list[dict[str, Any]] = [
    {}, {"snapshots": 1}, {"snapshots": 3}, {"snapshots": 50}, {"snapshots": "log"},
    {"schedule": "periodic"}, {"snapshots": 3, "schedule": "mixed"},
    {"snapshots": 1, "schedule": "mixed"}, {"snapshots": 2, "disk": 2},
    {"snapshots": 2, "disk": 3, "schedule": "periodic"},
]  # fmt: skip


@pytest.fixture
def engine(backend: str) -> Iterator[None]:
    """Run a test on each backend."""
    with adarray.use(backend):
        yield


def close(a: Any, b: Any) -> None:
    np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


# -- schedules -------------------------------------------------------------------------------------


@functools.cache
def fewest(n: int, units: int, mixed: bool) -> int:
    """Return the fewest steps, by trying all."""
    if n == 1:
        return 1
    if units == 0:
        return 1 << 40
    count = min(m + fewest(m, units, mixed) + fewest(n - m, units - 1, mixed) for m in range(1, n))
    return min(count, 1 + fewest(n - 1, units - 1, mixed)) if mixed else count


def played(schedule: Any, n: int, units: int) -> tuple[int, int]:
    """Return how many steps a schedule runs, and the most units that it takes."""
    stack: list[tuple[bool, int]] = []
    steps = most = 0

    def descend(at: int, end: int) -> None:
        nonlocal steps, most
        for move in schedule(end - at, units - len(stack)):
            stack.append((move.keep, at))
            steps += move.steps
            at += move.steps
            most = max(most, len(stack) - (at == end))  # the last one is walked back at once
        assert at == end

    descend(0, n)
    todo = n
    while todo:
        keep, at = stack.pop()
        if keep:
            descend(at, todo)
        else:
            todo = at
    assert not stack
    return steps, most


@pytest.mark.parametrize("units", [1, 2, 3, 5, 8])
def test_binomial_schedules_run_the_fewest_steps(units: int) -> None:
    for n in range(1, 60):
        steps, most = played(schedules.binomial, n, units)
        assert steps == schedules.least_steps(n, units) == fewest(n, units, False)
        assert most <= units
    for n in (500, 1000):
        steps, most = played(schedules.binomial, n, units)
        assert steps == schedules.least_steps(n, units)
        assert most <= units


@pytest.mark.parametrize("units", [1, 2, 3, 5, 8])
def test_mixed_schedules_run_the_fewest_steps(units: int) -> None:
    for n in range(1, 60):
        steps, most = played(schedules.mixed(n, units), n, units)
        assert steps == fewest(n, units, True) <= schedules.least_steps(n, units)
        assert most <= units


def test_published_numbers() -> None:
    # Griewank and Walther 2000, table I: beta(s, r); Griewank and Walther 2008, section 12.3
    assert [schedules.reach(s, 3) for s in (1, 2, 3, 4)] == [4, 10, 20, 35]
    assert schedules.least_steps(10, 3) - 10 == 15
    assert schedules.repetition(56, 5) == 3


@pytest.mark.parametrize("units", [2, 3, 6])
def test_loops_of_unknown_length_repeat_little(units: int) -> None:
    for n in (1, 2, 5, 17, 60, 200, 500):
        plan = schedules.Dynamic(units)
        references: list[int] = []
        for k in range(n):
            reference = plan.place()
            if reference is not None:
                del references[reference]
            references.append(k)
            assert len(references) <= units
        assert references[0] == 0
        steps, todo = n, n
        for place in range(len(references) - 1, -1, -1):
            steps += schedules.least_steps(todo - references[place], units - place)
            todo = references[place]
        assert steps <= (schedules.repetition(n, units) + 2) * n
        assert steps <= 1.25 * schedules.least_steps(n, units) + 2


# -- what runs, and what is held -------------------------------------------------------------------


def counted(n: int, **how: Any) -> int:
    runs = []

    def step(x: Any) -> Any:
        runs.append(0)
        return np.sin(x)

    g = adarray.grad(lambda x: np.sum(adarray.checkpointed_loop(step, x, n, **how)))(X)
    x, slope = X, np.ones(3)
    for _ in range(n):
        slope, x = slope * np.cos(x), np.sin(x)
    close(g, slope)
    return len(runs)


def test_steps_that_run_are_those_of_the_closed_form() -> None:
    for n in (1, 2, 3, 7, 20, 41, 100):
        for k in (1, 2, 3, 4, 7, 12):
            assert counted(n, snapshots=k) == schedules.least_steps(n, k)
            assert counted(n, snapshots=k, schedule="mixed") == fewest(n, min(k, n), True)
        size = -(-n // 10)
        expected = 2 * n - (n - size * ((n - 1) // size))  # the last segment runs once
        assert counted(n, snapshots=10, schedule="periodic") == expected
    assert counted(100, snapshots=2, disk=4) == schedules.least_steps(100, 6)
    assert counted(0) == 0


def peak(f: Any, *args: Any) -> float:
    """Return the most memory that a gradient takes, in arguments."""
    adarray.grad(loop_of(2))(*args)  # which imports what it takes
    tracemalloc.start()
    adarray.grad(f)(*args)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return float(most / args[0].nbytes)


def loop_of(n: int, **how: Any) -> Any:
    return lambda x: np.sum(adarray.checkpointed_loop(np.sin, x, n, **how))


@pytest.mark.slow
def test_a_loop_holds_twice_the_square_root_of_its_states() -> None:
    x = np.linspace(0.1, 1.0, 8_000)
    assert peak(loop_of(1024, schedule="periodic"), x) < 2.2 * 32


@pytest.mark.slow
def test_states_that_are_held() -> None:
    x = np.linspace(0.1, 1.0, 4_000)
    assert peak(loop_of(400, schedule="periodic"), x) < 2.4 * 20
    assert peak(loop_of(400), x) < 1.5 * 20
    assert peak(loop_of(400, snapshots="log"), x) < 10 + 10
    assert peak(loop_of(200, snapshots=10, schedule="mixed"), x) < 10 + 12
    assert peak(loop_of(200), x) < peak(loop_of(200, snapshots=200), x) / 6


def test_states_on_disk_take_no_memory(tmp_path: Any) -> None:
    x = np.linspace(0.1, 1.0, 4_000)
    adarray.grad(loop_of(9, snapshots=1, disk=2, directory=tmp_path))(x)  # what is imported
    most = peak(loop_of(400, snapshots=2, disk=38, directory=tmp_path), x)
    assert most < 2 + 14
    assert most < peak(loop_of(400, snapshots=40), x) / 2
    expected = adarray.grad(loop_of(400))(x)
    close(adarray.grad(loop_of(400, snapshots=1, disk=5, directory=tmp_path))(x), expected)
    assert os.listdir(tmp_path) == []


def test_no_file_is_left_behind(tmp_path: Any, monkeypatch: Any) -> None:
    opened = []
    real = tempfile.TemporaryFile

    def watched(*args: Any, **kwargs: Any) -> Any:
        opened.append(real(*args, **kwargs))
        return opened[-1]

    monkeypatch.setattr(tempfile, "TemporaryFile", watched)

    def fails_at(last: int, back: bool) -> Any:
        runs = []

        def step(x: Any) -> Any:
            runs.append(0)
            if len(runs) > last + 50 * back:
                raise ZeroDivisionError
            return np.sin(x)

        return lambda x: np.sum(
            adarray.checkpointed_loop(step, x, 50, 1, disk=4, directory=tmp_path)
        )

    for back in (False, True):
        with pytest.raises(ZeroDivisionError):
            adarray.grad(fails_at(20, back))(X)
    y, pullback = adarray.vjp(loop_of(50, snapshots=1, disk=4, directory=tmp_path), X)
    first = pullback(np.ones_like(y))[0]
    close(pullback(np.ones_like(y))[0], first)
    del pullback
    adarray.vjp(loop_of(50, snapshots=1, disk=4, directory=tmp_path), X)  # never walked back
    assert len(opened) >= 4
    assert all(f.closed for f in opened)
    assert os.listdir(tmp_path) == []


@pytest.mark.slow
def test_forward_mode_of_many_steps_has_flat_memory() -> None:
    x = np.linspace(0.1, 1.0, 1_000)

    def most(n: int) -> float:
        tracemalloc.start()
        adarray.jvp(lambda x: adarray.checkpointed_loop(np.sin, x, n), (x,), (np.ones_like(x),))
        peak = tracemalloc.get_traced_memory()[1] / x.nbytes
        tracemalloc.stop()
        return peak

    assert most(4_000) < most(100) + 2 < 20


# -- derivatives -----------------------------------------------------------------------------------


def dynamics(w: Any, x: Any, n: int, run: Any) -> Any:
    """Return a loss of a loop whose step reads weights, has a number, and writes in place."""
    w2 = np.tanh(w)

    def step(state: Any, k: int) -> Any:
        x, t = state["x"], state["t"]
        x[0] += 0.1 * np.sin(t) * w2[0, 1]
        x = x + 0.1 * np.tanh(w @ x) * (k + 1)
        return {"x": x, "t": t + 0.1, "count": state["count"] + 1}, (x[1:], k)

    state = {"x": x * w[1], "t": 0.5, "count": 0}
    state, aux = run(step, state, n)
    assert state["count"] == n
    assert [k for _, k in aux] == list(range(n))
    return np.sum(state["x"] ** 2) * state["t"] + sum(np.sum(a * w[0, :2]) for a, _ in aux)


def plain_run(step: Any, state: Any, n: int) -> Any:
    state = {"x": state["x"] * 1.0, "t": state["t"], "count": state["count"]}
    aux = []
    for k in range(n):
        state, (a, number) = step(state, k)
        aux.append((a * 1.0, number))
    return state, aux


def with_loop(how: dict[str, Any]) -> Any:
    return lambda step, state, n: adarray.checkpointed_loop(step, state, n, **how, has_aux=True)


def with_while(step: Any, state: Any, n: int) -> Any:
    return adarray.checkpointed_while(
        lambda s: s["count"] < n, step, state, snapshots=3, has_aux=True
    )


RUNS = [with_loop(how) for how in HOW] + [with_while]


@pytest.mark.parametrize("run", RUNS)
def test_gradients_of_state_weights_and_outputs(run: Any, engine: None) -> None:
    for n in (0, 1, 2, 11):
        loss = lambda w, x, n=n: dynamics(w, x, n, run)  # noqa: E731
        plain = lambda w, x, n=n: dynamics(w, x, n, plain_run)  # noqa: E731
        value, g = adarray.value_and_grad(loss, (0, 1))(W, X)
        close(value, plain(W, X))
        for a, b in zip(g, adarray.grad(plain, (0, 1))(W, X), strict=True):
            close(a, b)


@pytest.mark.slow
@pytest.mark.parametrize("run", [RUNS[2], RUNS[5], RUNS[6], RUNS[8], with_while])
def test_higher_orders(run: Any, engine: None) -> None:
    loss = lambda w: dynamics(w, X, 7, run)  # noqa: E731
    plain = lambda w: dynamics(w, X, 7, plain_run)  # noqa: E731
    h = adarray.hessian(plain)(W)
    close(adarray.hessian(loss)(W), h)
    close(adarray.jacrev(adarray.grad(loss))(W), h)
    product = adarray.hvp(plain)(W, V)
    close(adarray.hvp(loss)(W, V), product)
    close(adarray.make_hvp(loss)(W)[0](V), product)
    close(adarray.jvp(loss, (W,), (V,))[1], np.sum(adarray.grad(plain)(W) * V))
    third = lambda f: adarray.grad(lambda w: np.sum(adarray.hvp(f)(w, V) * np.cos(w)))  # noqa: E731
    close(third(loss)(W), third(plain)(W))
    w = adarray.array(W, requires_grad=True)
    loss(w).backward()
    close(w.grad, adarray.grad(plain)(W))


@pytest.mark.slow_on("openmp")
def test_compiled(engine: None) -> None:
    for how in ({}, {"snapshots": 3}, {"schedule": "mixed", "snapshots": 2}):
        jitted = adarray.jit(adarray.grad(lambda w, how=how: dynamics(w, X, 5, with_loop(how))))
        for k in range(4):
            w = W + 0.1 * k
            close(jitted(w), adarray.grad(lambda w: dynamics(w, X, 5, plain_run))(w))
        assert jitted.cache_info().eager == 0


def test_weights_of_a_state_that_is_not_traced() -> None:
    def loss(w: Any) -> Any:
        return np.sum(adarray.checkpointed_loop(lambda x: np.tanh(w @ x), X, 9, 3))

    def plain(w: Any) -> Any:
        x = X
        for _ in range(9):
            x = np.tanh(w @ x)
        return np.sum(x)

    close(adarray.grad(loss)(W), adarray.grad(plain)(W))
    close(adarray.hvp(loss)(W, V), adarray.hvp(plain)(W, V))


def test_nested_loops() -> None:
    def loss(w: Any, run: Any) -> Any:
        inner = lambda x: run(lambda y: np.sin(w @ y) + 0.5 * x, x, 4)  # noqa: E731
        return np.sum(run(inner, X, 5))

    def plain(step: Any, x: Any, n: int) -> Any:
        for _ in range(n):
            x = step(x)
        return x

    run = lambda step, x, n: adarray.checkpointed_loop(step, x, n, 2)  # noqa: E731
    close(adarray.grad(loss)(W, run), adarray.grad(loss)(W, plain))
    close(adarray.hvp(loss)(W, run, V), adarray.hvp(loss)(W, plain, V))


@pytest.mark.parametrize("how", HOW)
def test_the_first_state_and_the_last_are_the_callers(how: dict[str, Any]) -> None:
    def step(x: Any) -> Any:
        x *= 2.0
        return x

    def loss(x: Any) -> Any:
        y = adarray.checkpointed_loop(step, x, 6, **how)
        y[0] = 0.0
        again = adarray.checkpointed_loop(np.exp, x * 0.1, 2, **how)
        expected = again * 1.0
        again *= 0.0
        return np.sum(y) + np.sum(x) + np.sum(expected)

    x = X.copy()
    g = adarray.grad(loss)(x)
    u = 0.1 * X
    close(g, np.array([1.0, 65.0, 65.0]) + 0.1 * np.exp(u) * np.exp(np.exp(u)))
    np.testing.assert_array_equal(x, X)
    assert adarray.checkpointed_loop(step, x, 6, **how)[1] == 64 * X[1]
    np.testing.assert_array_equal(x, X)


@pytest.mark.parametrize("seed", range(12))
def test_random_programs(seed: int) -> None:
    program = seeded(seed)
    f, args = program.function("loss"), program.args(0)
    numbers = tuple(range(len(args)))

    def step(state: Any) -> Any:
        total, xs = state
        y = f(*xs)
        return total + y, [x * (1.0 + 0.1 * np.tanh(y)) for x in xs]

    def loss(run: Any) -> Any:
        return lambda *xs: run(step, (0.0, list(xs)), 4)[0]

    def plain(step: Any, state: Any, n: int) -> Any:
        for _ in range(n):
            state = step(state)
        return state

    expected = adarray.grad(loss(plain), numbers)(*args)
    for how in HOW[seed % 3 :: 3]:
        run = lambda s, x, n, how=how: adarray.checkpointed_loop(s, x, n, **how)  # noqa: E731
        for a, b in zip(adarray.grad(loss(run), numbers)(*args), expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-10)


def test_loops_of_unknown_length() -> None:
    runs = []

    def root(a: Any, k: int = 3) -> Any:
        def step(x: Any) -> Any:
            runs.append(0)
            return x - 0.1 * (x * x - a)

        return adarray.checkpointed_while(lambda x: abs(x * x - a) > 1e-6, step, a, k)

    assert root(2.0) == pytest.approx(2**0.5, abs=1e-6)
    n = len(runs)
    for k in (1, 2, 3, 8, 100):
        runs.clear()
        assert adarray.grad(root)(2.0, k) == pytest.approx(8**-0.5, abs=1e-4)
        assert len(runs) <= n + schedules.least_steps(n, k) * 1.2
    jitted = adarray.jit(adarray.grad(root))
    for a in (2.0, 2.1, 2.0):
        assert jitted(a) == pytest.approx(adarray.grad(root)(a), rel=1e-12)


def test_what_is_refused() -> None:
    step = np.sin
    for how, match in (
        (
            {"snapshots": 0},
            "snapshots is 0; pass a number of states of at least 1, 'sqrt' or 'log'",
        ),
        ({"snapshots": "cbrt"}, "snapshots is 'cbrt'; pass a number"),
        ({"schedule": "best"}, "schedule is 'best'; pass 'binomial', 'mixed' or 'periodic'"),
        ({"disk": -1}, "n is 5 and disk is -1; pass numbers of at least 0"),
        ({"disk": 2, "schedule": "mixed"}, "cannot be on disk; take 'binomial' with disk="),
    ):
        with pytest.raises(ValueError, match=match):
            adarray.checkpointed_loop(step, X, 5, **how)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="for 100000 steps and 100 snapshots would take long"):
        adarray.grad(loop_of(100_000, snapshots=100, schedule="mixed"))(X)
    with pytest.raises(ValueError, match="snapshots is 'sqrt'; pass a number of states of at"):
        adarray.checkpointed_while(lambda x: False, step, X, "sqrt")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="checkpointed_loop: expected a function, got float"):
        adarray.checkpointed_loop(3.0, X, 5)  # type: ignore[arg-type]
    for traced in (False, True):
        run = lambda x: np.sum(adarray.checkpointed_loop(step, x, 3, has_aux=True)[0])  # noqa: E731
        with pytest.raises(TypeError, match=r"has_aux=True, but the step returned .*; return a p"):
            adarray.grad(run)(X) if traced else run(X)
    calls: list[int] = []

    def loss(w: Any) -> Any:
        u = w * 1.0  # of the same value

        def step(x: Any) -> Any:
            calls.append(0)
            return x * (w if len(calls) < 6 else u)

        return adarray.checkpointed_loop(step, 1.0, 5, 1)

    with pytest.raises(TraceError, match="a step read other traced values when it ran again"):
        adarray.grad(loss)(2.0)

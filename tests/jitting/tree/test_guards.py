"""Python reads values: every path gives what eager code gives."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import adarray
from adarray.jitting import JitWarning

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def engine(backend: str) -> Iterator[None]:
    """Run each test on one backend."""
    with adarray.use(backend):
        yield


def agree(jf: Any, f: Callable[..., Any], *args: Any) -> None:
    """Check results, of any structure, against the plain function."""
    got, expected = jf(*args), f(*args)
    if not isinstance(expected, tuple):
        got, expected = (got,), (expected,)
    assert len(got) == len(expected)
    for a, b in zip(got, expected, strict=True):
        assert np.shape(a) == np.shape(b)
        assert np.result_type(a) == np.result_type(b)
        np.testing.assert_allclose(a, b, rtol=1e-13, atol=1e-300)


def branches(x: Any) -> Any:
    if np.sum(x) > 0:
        return np.sin(x)
    if x[0] < -5:
        return np.exp(x / 10)
    return x * 2.0


def test_branches_grow_the_tree() -> None:
    jf = adarray.jit(branches)
    ways = [np.array([1.0, 2.0]), np.array([-1.0, -2.0]), np.array([-9.0, 1.0])]
    for i in range(12):
        agree(jf, branches, ways[i % 3] * (1 + i / 100))
    info = jf.cache_info()
    assert (info.paths, info.eager) == (3, 0)
    assert info.traces <= 6
    for way in ways:
        agree(jf, branches, way)
    assert jf.cache_info().traces == info.traces


def collatz(n: Any) -> Any:
    steps = 0
    while n != 1.0:
        n = n / 2.0 if n % 2.0 == 0.0 else 3.0 * n + 1.0
        steps += 1
    return steps


def test_while_loops() -> None:
    jf = adarray.jit(collatz, max_paths=1000)
    for n in (6.0, 7.0, 6.0, 9.0, 1.0, 7.0, 27.0):
        assert jf(n) == collatz(n)


def newton(x: Any, tolerance: float) -> Any:
    guess = x * 0.5
    rounds = 0
    while np.max(np.abs(guess * guess - x)) > tolerance:
        guess = 0.5 * (guess + x / guess)
        rounds += 1
    return guess, rounds


def test_loops_until_convergence() -> None:
    jf = adarray.jit(newton)
    for _ in range(3):
        for scale in (1.0, 100.0, 1e6, 2.0):
            for tolerance in (1e-3, 1e-9):
                agree(jf, newton, RNG.random(5) * scale + 0.1, tolerance)
    assert jf.cache_info().eager == 0


def test_numbers_of_rounds_are_no_new_paths() -> None:
    def f(x: Any, limit: float) -> Any:
        rounds = 0
        while np.sum(x) < limit:
            x = x + 1.0
            rounds += 1
        return x * 2.0, rounds

    jf = adarray.jit(f, max_paths=3)
    x = np.zeros(4)
    for n in (*range(40), *range(40)):
        agree(jf, f, x, 4.0 * n)
    info = jf.cache_info()
    assert (info.eager, info.paths) == (0, 40)
    assert info.traces <= 42


@pytest.mark.unchecked
def test_bodies_of_loops_are_compiled_once() -> None:
    jf = adarray.jit(newton)
    x = np.full(3000, 1e8)  # so large that the loop itself is not captured
    for _ in range(3):
        agree(jf, newton, x, 1e-6)
    nodes = jf.path(x, 1e-6)
    assert len(nodes) > 15
    assert len({id(n.compiled[1]) for n in nodes if n.compiled}) < 8


def test_range_of_a_value() -> None:
    def f(x: Any, n: Any) -> Any:
        for i in range(int(n)):
            x = x + i
        return x

    jf = adarray.jit(f)
    x = np.ones(3)
    for n in (3.0, 5.0, 3.0, 0.0, 5.0, 5.0, 3.0, 0.0, 0.0):
        agree(jf, f, x, n)
    for n in (2, 3, 4, 5, 6, 7, 8, 2, 3, 8, 8):  # ints: by value, then inputs
        agree(jf, f, x, n)


def test_ints_as_shapes_and_indices() -> None:
    def f(x: Any, n: int) -> Any:
        return np.sum(x[:n]) * np.ones(n) + x[n]

    jf = adarray.jit(f)
    x = np.arange(12.0)
    for n in (2, 3, 4, 5, 6, 7, 8, 9, 10, 2, 3, 4, 10, 10):
        agree(jf, f, x, n)


def test_an_element_as_an_index() -> None:
    def f(x: Any, k: Any) -> Any:
        return x[k[0]] + x[: k[1]].sum()

    jf = adarray.jit(f)
    x = np.arange(10.0)
    for k in ([1, 2], [3, 4], [1, 2], [1, 2], [3, 4], [-1, 9], [3, 4]):
        agree(jf, f, x, np.array(k))


def test_float_of_a_value() -> None:
    def f(x: Any) -> Any:
        return x * math.floor(float(np.max(x)))

    jf = adarray.jit(f)
    for k in (1.5, 1.5, 1.5, 2.5, 1.5, 2.5, 2.5):
        agree(jf, f, np.array([k, 0.5]))


def test_data_dependent_shapes() -> None:
    def f(x: Any) -> Any:
        chosen = x[x > 0.0]
        places = np.nonzero(x > 0.5)[0]
        return np.sum(chosen * 2.0), chosen + 1.0, places, np.unique(np.round(x))

    jf = adarray.jit(f)
    for i in range(12):
        x = np.linspace(-1.0, 1.0, 8) + (i % 3) * 0.3
        agree(jf, f, x)
        agree(jf, f, x[::-1].copy())


def test_early_returns_and_kinds_of_results() -> None:
    def f(x: Any) -> Any:
        if x.size == 0:
            return None
        if np.all(x == 0):
            return "nothing"
        if x[0] > 10:
            return 7
        if x[0] > 5:
            return {"x": x, "n": 3}
        return [x, (x.sum(), True)]

    jf = adarray.jit(f)
    for _ in range(4):
        assert jf(np.zeros(0)) is None
        assert jf(np.zeros(2)) == "nothing"
        assert jf(np.full(2, 11.0)) == 7
        r = jf(np.full(2, 6.0))
        assert list(r) == ["x", "n"]
        assert r["n"] == 3
        np.testing.assert_array_equal(r["x"], [6.0, 6.0])
        r = jf(np.ones(2))
        assert type(r) is list
        assert type(r[1]) is tuple
        assert type(r[1][0]) is np.float64
        assert r[1] == (2.0, True)


def test_errors_of_the_function() -> None:
    def f(x: Any) -> Any:
        if np.min(x) < 0:
            raise ValueError("negative")
        return np.sqrt(x)

    jf = adarray.jit(f)
    for _ in range(4):
        agree(jf, f, np.ones(3))
        with pytest.raises(ValueError, match="negative"):
            jf(-np.ones(3))
    agree(jf, f, np.arange(3.0))
    assert jf.cache_info().eager == 0


def test_errors_of_numpy() -> None:
    def f(a: Any) -> Any:
        return np.linalg.inv(a)

    jf = adarray.jit(f)
    good = np.array([[2.0, 1.0], [0.0, 3.0]])
    for _ in range(3):
        agree(jf, f, good)
    with pytest.raises(np.linalg.LinAlgError, match="Singular"):
        jf(np.zeros((2, 2)))
    agree(jf, f, good)


def test_errors_that_the_function_catches() -> None:
    def f(a: Any) -> Any:
        try:
            return np.linalg.cholesky(a)
        except np.linalg.LinAlgError:
            return np.linalg.cholesky(a + 10.0 * np.eye(2))

    jf = adarray.jit(f)
    good, bad = np.array([[2.0, 1.0], [1.0, 3.0]]), np.array([[1.0, 4.0], [4.0, 1.0]])
    for _ in range(3):
        agree(jf, f, good)
    for a in (bad, good, bad, bad, good):
        agree(jf, f, a)
    jf = adarray.jit(f)  # what the function caught depends on values, and no guard shows it
    with pytest.warns(JitWarning, match="stays eager"):
        agree(jf, f, bad)
    for a in (good, bad, bad, good):
        agree(jf, f, a)


def test_wrong_calls_raise_as_ever() -> None:
    jf = adarray.jit(lambda x, y: x @ y)
    for _ in range(4):
        with pytest.raises(ValueError, match="matmul"):
            jf(np.ones(3), np.ones(4))
        with pytest.raises(TypeError, match="positional argument"):
            jf(np.ones(3))
    assert jf(np.ones(3), np.ones(3)) == 3.0


def test_recursion() -> None:
    @adarray.jit
    def total(x: Any) -> Any:
        if x.size == 1:
            return x[0]
        half = x.size // 2
        return total(x[:half]) + total(x[half:])

    for n in (7, 7, 7, 1, 16, 7):
        assert total(np.arange(float(n))) == n * (n - 1) / 2


def test_recursion_on_a_value() -> None:
    @adarray.jit
    def power(x: Any, n: Any) -> Any:
        return x * 0.0 + 1.0 if n <= 0.0 else x * power(x, n - 1.0)

    x = np.array([2.0, 3.0])
    for n in (3.0, 0.0, 3.0, 3.0, 5.0, 0.0, 5.0, 5.0):
        np.testing.assert_array_equal(power(x, n), x**n)


@pytest.mark.unchecked
def test_jit_inside_of_jit() -> None:
    inner = adarray.jit(branches)
    outer = adarray.jit(lambda x: inner(x) + inner(-x))
    for i in range(8):
        x = np.array([1.0, -2.0]) * (-1) ** i * (1 + i)
        agree(outer, lambda x: branches(x) + branches(-x), x)
    assert inner.cache_info().traces == 0


def test_too_many_paths_stay_eager() -> None:
    known = {3.0: 1.0}

    def f(x: Any) -> Any:
        return x * known.get(x[0], 2.0)

    jf = adarray.jit(f, max_paths=5)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for i in range(8):
            agree(jf, f, np.array([float(i), 1.0]))
    assert [w.category for w in said] == [JitWarning]
    assert re.search(r"more than 5 paths.*test_guards\.py", str(said[0].message))
    for i in range(8):
        agree(jf, f, np.array([float(i), 1.0]))
    assert jf.cache_info().eager == 1


def test_special_values_of_looks() -> None:
    def f(x: Any) -> Any:
        return math.copysign(2.0, float(x[0])) + 0.0 * x[1]

    jf = adarray.jit(f)
    for v in (0.0, -0.0, math.nan, 0.0, -0.0, math.nan, -0.0, math.nan, 0.0):
        agree(jf, f, np.array([v, 1.0]))


def test_gradients_through_branches() -> None:
    def loss(x: Any) -> Any:
        y = x * x
        while np.sum(y) > 4.0:
            y = y * 0.5
        return np.sum(np.sin(y)) if x[0] > 0 else np.sum(y)

    f = adarray.value_and_grad(loss)
    jf = adarray.jit(f)
    for _ in range(4):
        for k in (0.5, 3.0, -1.0, 40.0, -40.0):
            agree(jf, f, np.array([k, 1.0, 0.3]))
    assert jf.cache_info().eager == 0


def test_writes_are_committed_after_the_last_look() -> None:
    def f(x: Any) -> Any:
        x[0] += 1.0
        if x[1] > 0:
            x[2] = 5.0
        if x[3] > 0:
            raise ValueError("after the writes")
        return np.sum(x)

    jf = adarray.jit(f)
    for i in range(8):
        start = np.array([0.0, 1.0 if i % 2 else -1.0, 2.0, -1.0, 4.0])
        a, b = start.copy(), start.copy()
        assert jf(a) == f(b)
        np.testing.assert_array_equal(a, b)
    bad = np.array([0.0, 1.0, 2.0, 1.0, 4.0])
    with pytest.raises(ValueError, match="after the writes"):
        jf(bad)
    np.testing.assert_array_equal(bad, [1.0, 1.0, 5.0, 1.0, 4.0])  # as eager code leaves it


def test_generators_as_arguments() -> None:
    def f(rng: Any, x: Any) -> Any:
        y = x + rng.normal(size=4)
        if np.sum(y) > 0:
            return y * rng.random()
        return y - rng.integers(0, 10, size=4)

    jf = adarray.jit(f)
    rng, twin = np.random.default_rng(5), np.random.default_rng(5)
    for i in range(20):
        x = np.full(4, (-1.0) ** i * 0.2)
        np.testing.assert_allclose(jf(rng, x), f(twin, x))
        assert rng.bit_generator.state == twin.bit_generator.state
    assert jf.cache_info().eager == 0
    assert jf.cache_info().traces < 8


def test_checks_find_wrong_results(monkeypatch: pytest.MonkeyPatch) -> None:
    from adarray.jitting.tree.check import CheckError
    from adarray.jitting.tree.leaf import TreeLeaf

    monkeypatch.setenv("ADARRAY_CHECK", "1")
    jf = adarray.jit(lambda x: np.sin(x) * 2.0)
    x = np.ones(3)
    for _ in range(3):
        jf(x)
    result = TreeLeaf.finish
    monkeypatch.setattr(TreeLeaf, "finish", lambda *given: result(*given) + 1e-6)
    with pytest.raises(CheckError, match="result 0"):
        jf(x)


def test_checked_calls_draw_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADARRAY_CHECK", "1")
    jf = adarray.jit(lambda rng, x: x + rng.normal(size=3))
    rng, twin = np.random.default_rng(1), np.random.default_rng(1)
    for _ in range(5):
        np.testing.assert_allclose(jf(rng, np.ones(3)), 1.0 + twin.normal(size=3))

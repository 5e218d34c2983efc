"""Donated arguments: results in their memory, and what cannot be given up."""

from __future__ import annotations

import copy
import functools
import pickle
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import adarray
from adarray.jitting import JitWarning

CALLS = 5  # two are recorded


@pytest.fixture(autouse=True)
def engine(backend: str) -> Iterator[None]:
    """Run each test on one backend, where only expected warnings may come."""
    with adarray.use(backend), warnings.catch_warnings():
        warnings.simplefilter("error", JitWarning)
        yield


def data(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).uniform(0.5, 1.5, size=shape)


def compiled(f: Any, *args: Any) -> bool:
    return all(n.executable is not None for n in f.path(*args))


def in_place(f: Any, *args: Any) -> bool:
    """Whether the compiled code writes a result into an argument."""
    return any(b.donor >= 0 for n in f.path(*args) for b in n.plan.buffers)


def follow(f: Callable[..., Any], x: Any, *others: Any) -> Any:
    """Apply `f` again and again, plain and donating; return the function and its result."""
    jf = adarray.jit(f, donate=0)
    expected, memory = x.copy(), x
    for _ in range(CALLS):
        expected = f(expected, *others)
        x = jf(x, *others)
        assert x is memory
        np.testing.assert_allclose(x, expected, rtol=1e-12, atol=1e-13)
    return jf, x


def softmax(x: Any) -> Any:
    e = np.exp(x - np.max(x, axis=1, keepdims=True))
    return e / np.sum(e, axis=1, keepdims=True)


def heat(x: Any) -> Any:
    return x + 0.1 * (np.roll(x, 1, 0) + np.roll(x, -1, 0) - 2 * x)


def sets_rows(x: Any, v: Any) -> Any:
    x = x.copy()
    x[2:4] = v
    return x


# Whether compiled code can work in place, by what the function does.
STEPS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], bool]] = {
    "elementwise": (lambda x, g: x - 0.1 * g, (data(7, 33, seed=1),), True),
    "broadcast": (lambda x, g: x * g + 1.0, (data(33, seed=1),), True),
    "rows": (softmax, (), True),
    "sum of all": (lambda x: x / np.sum(x), (), True),
    "rows that are set": (sets_rows, (data(33, seed=1),), True),
    "neighbours": (heat, (), False),
    "reversed": (lambda x: x[::-1] + 1.0, (), False),
    "reversed rows": (lambda x: x[:, ::-1] + 1.0, (), False),
    "product": (lambda x, a: x @ a, (data(33, 33, seed=1) / 33,), False),
    "sorted": (lambda x: np.sort(x, axis=1), (), False),
    "sum over columns": (lambda x: x - np.sum(x, axis=0), (), True),
}


@pytest.mark.parametrize("name", STEPS)
def test_the_result_is_the_array_that_was_passed(name: str) -> None:
    f, others, expected = STEPS[name]
    jf, x = follow(f, data(7, 33), *others)
    if adarray.current_backend() != "numpy":
        assert compiled(jf, x, *others)
        assert in_place(jf, x, *others) is expected


@pytest.mark.parametrize("shape", [(3,), (64,), (1001,), (40, 50), (3, 5, 7)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_shapes_and_dtypes(shape: tuple[int, ...], dtype: Any) -> None:
    follow(lambda x: x * x - x, np.arange(np.prod(shape)).reshape(shape).astype(dtype) % 3)


def test_large_arrays_with_threads() -> None:
    follow(lambda x, g: x - 0.01 * np.tanh(g * x), data(600, 700), data(600, 700, seed=1))
    follow(softmax, data(600, 701))


def test_the_compiled_step_allocates_nothing() -> None:
    if adarray.current_backend() == "numpy":
        pytest.skip("nothing is computed in place")
    jf, x = follow(lambda x, g: x - 0.1 * g, data(1000), data(1000, seed=1))
    (node,) = jf.path(x, data(1000, seed=1))
    assert node.executable.peak_bytes < x.nbytes


def test_trees_and_several_arguments() -> None:
    def adam(p: Any, m: Any, v: Any, g: Any) -> Any:
        m = {k: 0.9 * m[k] + 0.1 * g[k] for k in m}
        v = {k: 0.99 * v[k] + 0.01 * g[k] ** 2 for k in v}
        return {k: p[k] - 0.1 * m[k] / (np.sqrt(v[k]) + 1e-8) for k in p}, m, v

    trees = [{"a": data(100, seed=s), "b": data(3, 40, seed=s + 9)} for s in range(4)]
    state, g = trees[:3], trees[3]
    memory = [x for part in state for x in part.values()]
    expected = copy.deepcopy(state)
    jf = adarray.jit(adam, donate=(0, 1, 2))
    for _ in range(CALLS):
        expected = adam(*expected, g)
        state = jf(*state, g)
        got = [x for part in state for x in part.values()]
        assert all(x is y for x, y in zip(got, memory, strict=True))
        for x, y in zip(got, [y for part in expected for y in part.values()], strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-12)


def test_results_in_another_order() -> None:
    def swap(x: Any, y: Any) -> Any:
        return y + 1.0, x * 2.0

    jf = adarray.jit(swap, donate=(0, 1))
    x, y = data(50), data(50, seed=1)
    a, b = x.copy(), y.copy()
    memory = (x, y)
    for _ in range(CALLS):
        a, b = swap(a, b)
        x, y = jf(x, y)
        assert x is memory[0]
        assert y is memory[1]
        np.testing.assert_array_equal(x, a)
        np.testing.assert_array_equal(y, b)


def test_arguments_that_are_returned() -> None:
    jf = adarray.jit(lambda x, y: (y, x), donate=(0, 1))
    for _ in range(CALLS):
        x, y = np.zeros(3), np.ones(3)
        a, b = jf(x, y)
        assert a is x
        assert b is y
        assert (a[0], b[0]) == (1.0, 0.0)


def test_a_view_among_the_results_is_not_overwritten() -> None:
    jf = adarray.jit(lambda x: (x * 2.0, x[:2], x), donate=0)
    for _ in range(CALLS):
        x = np.ones(4)
        double, first, same = jf(x)
        assert double is x
        assert double[0] == 2.0
        np.testing.assert_array_equal(first, [1.0, 1.0])
        np.testing.assert_array_equal(same, np.ones(4))
    jf = adarray.jit(lambda x: (x * 2.0, x), donate=0)
    for _ in range(CALLS):
        double, same = jf(np.ones(4))
        np.testing.assert_array_equal(double - same, np.ones(4))


def test_two_results_of_one_value() -> None:
    def f(x: Any) -> Any:
        y = x * 2.0
        return y, y

    jf = adarray.jit(f, donate=0)
    for _ in range(CALLS):
        x = np.ones(4)
        a, b = jf(x)
        assert a is x
        assert b is a
        np.testing.assert_array_equal(a, 2.0 * np.ones(4))


def test_views_of_a_result_in_a_donated_array() -> None:
    def f(x: Any) -> Any:
        y = x * 2.0
        return y[1:], y, y[::-1], x[:2]

    jf = adarray.jit(f, donate=0)
    for _ in range(CALLS):
        x = np.arange(1.0, 5.0)
        tail, whole, transposed, old = jf(x)
        assert whole is x
        assert np.shares_memory(tail, x)
        assert np.shares_memory(transposed, x)
        np.testing.assert_array_equal(tail, [4.0, 6.0, 8.0])
        np.testing.assert_array_equal(transposed, [8.0, 6.0, 4.0, 2.0])
        np.testing.assert_array_equal(old, [1.0, 2.0])  # of the array as it was: a copy


def test_a_step_with_its_gradient() -> None:
    def loss(w: Any, x: Any, y: Any) -> Any:
        return np.mean((np.tanh(x @ w) - y) ** 2)

    both = adarray.value_and_grad(loss)

    def step(w: Any, x: Any, y: Any) -> Any:
        value, slope = both(w, x, y)
        return value, w - 0.1 * slope

    x, y = data(50, 30), data(50, seed=1)
    w = np.zeros(30)
    memory, expected = w, w.copy()
    jf = adarray.jit(step, donate=0)
    for _ in range(CALLS):
        value, expected = step(expected, x, y)
        got, w = jf(w, x, y)
        assert w is memory
        np.testing.assert_allclose(w, expected, rtol=1e-12)
        np.testing.assert_allclose(got, value, rtol=1e-12)


def test_guards_see_what_was_passed() -> None:
    def f(x: Any) -> Any:
        y = x * 2.0
        if np.sum(x) > 10.0:
            return y - x
        return np.exp(y) if x[0] > 0 else y + x

    jf = adarray.jit(f, donate=0)
    for start in (1.0, 100.0, -1.0, 1.0, 100.0, -1.0, 1.0, 100.0, -1.0, 2.0):
        x = np.full(5, start)
        expected = f(x.copy())
        assert jf(x) is x
        np.testing.assert_allclose(x, expected, rtol=1e-15)


def test_a_loop_that_ends_on_a_value() -> None:
    def halve(x: Any) -> Any:
        while np.max(x) > 1.0:
            x = 0.5 * x
        return x + 1.0

    jf = adarray.jit(halve, donate=0)
    for start in (3.0, 3.0, 9.0, 30.0, 9.0, 0.5, 0.5, 3.0):
        x = np.full(4, start)
        expected = halve(x.copy())
        assert jf(x) is x
        np.testing.assert_array_equal(x, expected)


def test_writes_into_a_donated_argument() -> None:
    def f(x: Any) -> Any:
        x += 1.0
        return x * 2.0

    jf = adarray.jit(f, donate=0)
    for _ in range(CALLS):
        x = np.ones(3)
        assert jf(x) is x
        np.testing.assert_array_equal(x, [4.0, 4.0, 4.0])

    def g(x: Any) -> Any:
        x += 1.0
        return x

    jg = adarray.jit(g, donate=0)
    x = np.zeros(3)
    for k in range(CALLS):
        assert jg(x) is x
        np.testing.assert_array_equal(x, np.full(3, k + 1.0))


# -- what cannot be given up ------------------------------------------------------------------


def read_only() -> Any:
    x = np.ones((3, 4))
    x.flags.writeable = False
    return x


@pytest.mark.parametrize(
    ("array", "why"),
    [
        (lambda: np.ones((6, 4))[:3], "is a view of another array"),
        (lambda: np.frombuffer(bytearray(96)).reshape(3, 4), "is a view of another array"),
        (read_only, "is read-only"),
        (lambda: np.ones((3, 4), order="F"), "is not contiguous in C order"),
    ],
)
def test_arrays_that_cannot_be_donated(array: Callable[[], Any], why: str) -> None:
    jf = adarray.jit(lambda x: x + 1.0, donate=0)
    for _ in range(3):
        jf(np.ones((3, 4)))
    x = array()
    before = x.copy()
    with pytest.raises(ValueError, match=f"donate: .*{why}; pass a copy"):
        jf(x)
    np.testing.assert_array_equal(x, before)


def test_arrays_that_are_passed_twice() -> None:
    jf = adarray.jit(lambda x, y: x + y, donate=0)
    x, y = np.ones(4), np.ones(4)
    for _ in range(3):
        with pytest.raises(ValueError, match="shares memory with another argument"):
            jf(x, x)
        with pytest.raises(ValueError, match="shares memory with another argument"):
            jf(x, x[::-1])
        assert jf(x, y) is x


def test_captured_arrays() -> None:
    w = np.ones(4)
    jf = adarray.jit(lambda x: x + w, donate=0)
    for _ in range(3):
        with pytest.raises(ValueError, match="shares memory with what the function captured"):
            jf(w)
        jf(np.ones(4))
    np.testing.assert_array_equal(w, np.ones(4))


def test_arguments_by_name() -> None:
    jf = adarray.jit(lambda x: x + 1.0, donate=0)
    with pytest.raises(TypeError, match=r"argument 0 of .* pass it by position"):
        jf(x=np.ones(3))


def test_no_result_fits() -> None:
    jf = adarray.jit(lambda x: np.sum(x), donate=0)
    with pytest.warns(JitWarning, match=r"no result has the shape and dtype.*float64\[4\]"):
        assert jf(np.ones(4)) == 4.0
    x = np.ones(4)
    for _ in range(3):  # said once
        assert jf(x) == 4.0
    np.testing.assert_array_equal(x, np.ones(4))


@pytest.mark.parametrize(
    ("donate", "error"),
    [("x", TypeError), (True, TypeError), (1.0, TypeError), (-1, ValueError), ((0, 0), ValueError)],
)
def test_wrong_options(donate: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="jit: donate"):
        adarray.jit(lambda x: x, donate=donate)


# -- with the rest of adarray -----------------------------------------------------------------


def test_derivatives_leave_arguments_alone() -> None:
    jf = adarray.jit(lambda x, g: x - 0.1 * g * x, donate=0)
    x, g = np.ones(5), np.ones(5)
    slope = adarray.grad(lambda x: np.sum(jf(x, g) ** 2))
    for _ in range(CALLS):
        np.testing.assert_allclose(slope(x), 2 * 0.9**2 * np.ones(5), rtol=1e-14)
        np.testing.assert_array_equal(x, np.ones(5))
    second = adarray.grad(lambda x: np.sum(slope(x) * x))
    np.testing.assert_allclose(second(x), 4 * 0.9**2 * np.ones(5), rtol=1e-14)
    for _ in range(CALLS):  # the donating code is another one
        assert jf(x, g) is x
    np.testing.assert_allclose(slope(np.ones(5)), 2 * 0.9**2 * np.ones(5), rtol=1e-14)


def test_inside_of_another_jit() -> None:
    inner = adarray.jit(lambda x: x * 2.0, donate=0)
    jf = adarray.jit(lambda x: inner(x) + 1.0)
    for _ in range(CALLS):
        x = np.ones(3)
        np.testing.assert_array_equal(jf(x), [3.0, 3.0, 3.0])
        np.testing.assert_array_equal(x, np.ones(3))


def test_adarrays_are_not_donated() -> None:
    jf = adarray.jit(lambda x: x * 2.0, donate=0)
    x = adarray.array(np.ones(3))
    for _ in range(CALLS):
        assert np.asarray(jf(x)).tolist() == [2.0, 2.0, 2.0]
        assert np.asarray(x).tolist() == [1.0, 1.0, 1.0]
        jf(np.ones(3))


def test_looking_at_it_writes_nothing() -> None:
    jf = adarray.jit(lambda x: x * 2.0, donate=0)
    x = np.ones(3)
    for _ in range(3):
        jf(np.ones(3))
    jf.path(x)
    str(jf.explain(x))
    np.testing.assert_array_equal(x, np.ones(3))


def test_why_a_result_is_copied_is_explained() -> None:
    if adarray.current_backend() == "numpy":
        pytest.skip("nothing is computed in place")
    jf = adarray.jit(heat, donate=0)
    for _ in range(3):
        jf(data(7, 33))
    assert "not in the memory of the donated argument" in str(jf.explain(data(7, 33)))


def test_floating_point_warnings_and_errors() -> None:
    jf = adarray.jit(lambda x: 1.0 / x, donate=0)
    for _ in range(3):
        jf(np.ones(3))
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        assert jf(np.zeros(3))[0] == np.inf
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError, match="divide by zero"):
        jf(np.zeros(3))
    with np.errstate(all="ignore"):
        assert jf(np.zeros(3))[0] == np.inf


def test_a_function_that_stays_eager() -> None:
    def counts(x: Any) -> Any:
        seen.append(len(seen))
        return x + 1.0

    seen: list[int] = []
    jf = adarray.jit(counts, donate=0)
    jf(np.ones(3))
    with pytest.warns(JitWarning, match="stays eager"):
        jf(np.ones(3))
    x = np.ones(3)
    for _ in range(3):
        assert jf(x) is x
    np.testing.assert_array_equal(x, np.full(3, 4.0))


@adarray.jit(donate=0)
def stepped(x: Any) -> Any:
    return x + 1.0


def test_as_a_decorator_and_pickled() -> None:
    x = np.zeros(3)
    for f in (stepped, pickle.loads(pickle.dumps(stepped))):
        assert f.options.donate == (0,)
        assert f(x) is x
    np.testing.assert_array_equal(x, [2.0, 2.0, 2.0])


def test_what_all_threads_read_is_not_written_over() -> None:
    """An element that every thread reads first: one that was late had read what another wrote."""

    def f(x: Any) -> Any:
        return x * (x[3000] + 1.0)

    jf = adarray.jit(f, donate=0)
    for _ in range(60):
        x = np.ones(400_000)
        np.testing.assert_array_equal(jf(x), 2.0)
    if adarray.current_backend() != "numpy":
        assert not in_place(jf, np.ones(400_000))


class _Holder:
    values = np.ones(4)


@pytest.mark.parametrize("way", ["class", "list", "cache", "view"])
def test_what_the_function_reaches_by_any_way_is_not_donated(way: str) -> None:
    """The array of a class was overwritten in every call, without a word."""
    x = np.arange(4.0)

    class Items(list[Any]):
        pass

    items = Items([x])
    view = x[:]
    cached = functools.lru_cache(lambda: x)
    functions = {
        "class": lambda y: y * 2.0 + np.sum(_Holder.values) * 0,
        "list": lambda y: y * 2.0 + items[0],
        "cache": lambda y: y * 2.0 + cached(),
        "view": lambda y: y * 2.0 + view,
    }
    jf = adarray.jit(functions[way], donate=0)
    _Holder.values = x
    for _ in range(4):
        np.testing.assert_array_equal(jf(np.ones(4)), functions[way](np.ones(4)))
        with pytest.raises(ValueError, match="shares memory with what the function captured"):
            jf(x)
        np.testing.assert_array_equal(x, np.arange(4.0))

"""Writes in place under jit: into locals, views, arguments and captured arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import adarray
import adarray.numpy
from adarray.testing._ops import use_all_sizes

X = np.linspace(-1.0, 2.0, 12).reshape(3, 4)
WRITERS: dict[str, Callable[..., Any]] = {}


def writer(f: Callable[..., Any]) -> Callable[..., Any]:
    WRITERS[f.__name__.replace("_", " ")] = f
    return f


@writer
def fills_an_empty_array(x: Any) -> Any:
    out = np.empty_like(x)
    for i in range(3):
        out[i] = x[i] * (i + 1)
    return out


@writer
def recurrence(x: Any) -> Any:
    y = np.zeros(12)
    flat = x.reshape(-1)
    y[0] = flat[0]
    for i in range(1, 12):
        y[i] = np.tanh(0.5 * y[i - 1] + flat[i])
    return y


@writer
def through_a_view_of_an_array_of_adarrays(x: Any) -> Any:
    y = adarray.numpy.zeros((3, 5))
    back = y[:, ::-1]
    back[:, 0] = 1.0
    back[:, 1:] = x
    return y * y


@writer
def bodies_of_numpy_that_write(x: Any) -> Any:
    return np.vander(x[0]), np.linalg.matrix_power(x[:, :3], 0) * x[:, :3]


@writer
def corners_of_padded_arrays(x: Any) -> Any:
    y = np.pad(np.tanh(x[:, :1]), 1)
    return y * y, (x[:, 1:] * x[:, 1:])[1:, 1:-1] * 2.0, np.tanh(x)[1:2, 2:3] * x[0]


@writer
def through_a_view_of_a_view(x: Any) -> Any:
    y = x * 1.0
    inner = y[1:].T
    row = inner[1]
    row += 10.0
    inner[0, :1] *= -1.0
    return y, row, inner


@writer
def a_view_sees_what_the_base_gets(x: Any) -> Any:
    y = x.copy()
    top = y[0]
    y *= 2.0
    y[0, 1] = 7.0
    return top * 1.0, y


@writer
def overlapping_reads_and_writes(x: Any) -> Any:
    y = x.copy()
    y[1:] += y[:-1]
    y[:, ::-1] -= y
    return y


@writer
def mask_and_list_indices(x: Any) -> Any:
    y = x * 1.0
    y[y < 0] = 0.0
    y[[0, 2]] += y[[1, 1]]
    y[:, [1, 3]] *= 0.5
    return y


@writer
def repeated_indices(x: Any) -> Any:
    counts = np.zeros(4)
    np.add.at(counts, np.array([0, 1, 1, 3, 0, 0]), x.reshape(-1)[:6])
    y = np.zeros(3)
    y[[1, 1, 2]] = x[0, :3]
    return counts, y


@writer
def ufuncs_with_out(x: Any) -> Any:
    buffer = np.zeros_like(x)
    np.multiply(x, 2.0, out=buffer)
    np.add(buffer, x, out=buffer)
    np.exp(x, out=buffer, where=x < 0.5)
    return buffer


@writer
def augmented_operators(x: Any) -> Any:
    y = x.copy()
    y += 1
    y -= x * 0.5
    y *= y
    y /= 3.0
    y **= 2
    return y


@writer
def swaps(x: Any) -> Any:
    y = x.copy()
    y[0], y[1] = y[1].copy(), y[0].copy()
    y[[0, 2]] = y[[2, 0]]
    return y


@writer
def a_branch_that_writes(x: Any) -> Any:
    y = x.copy()
    if np.sum(x) > 5.0:
        y[0] = 0.0
    elif x[0, 0] > -1.2:
        y[1] *= 2.0
    y += 1.0
    return y


@writer
def while_with_a_buffer(x: Any) -> Any:
    y = np.abs(x)
    steps = np.zeros(3)
    while np.max(y) > 0.5:
        y *= 0.5
        steps[0] += 1.0
    return y, steps


@writer
def the_result_is_the_argument(x: Any) -> Any:
    y = x
    return y, x[0], x.T


def results(out: Any) -> tuple[Any, ...]:
    return out if isinstance(out, tuple) else (out,)


def shared(arrays: list[Any]) -> list[bool]:
    """Return which arrays share memory."""
    return [np.shares_memory(a, b) for i, a in enumerate(arrays) for b in arrays[:i]]


@pytest.mark.slow
@pytest.mark.checked
@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_writes_into_locals(name: str, dtype: str, backend: str) -> None:
    f = WRITERS[name]
    tolerance = 1e-14 if dtype == "float64" else 1e-6
    with use_all_sizes(backend):
        jitted = adarray.jit(f)
        for k in range(6):
            x = (X * (1 + 0.3 * (k % 3))).astype(dtype)
            before = x.copy()
            got, expected = results(jitted(x)), results(f(x.copy()))
            np.testing.assert_array_equal(x, before)
            for g, e in zip(got, expected, strict=True):
                assert g.dtype == e.dtype
                np.testing.assert_allclose(g, e, rtol=tolerance, atol=tolerance)
            assert shared([*got, x]) == shared([*results(f(x)), x])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", WRITERS)
def test_gradients_of_writes(name: str, backend: str) -> None:
    f = WRITERS[name]

    def loss(x: Any) -> Any:
        return sum(np.sum(np.sin(r) * (k + 1)) for k, r in enumerate(results(f(x))))

    with use_all_sizes(backend):
        # Buffers that the function makes hold traced numbers: eager code needs `intercept`.
        expected = adarray.value_and_grad(loss, intercept=True)
        jitted = adarray.jit(expected)
        for k in range(6):
            x = X * (1 + 0.3 * (k % 3))
            (v, g), (v2, g2) = jitted(x), expected(x)
            np.testing.assert_allclose(v, v2, rtol=1e-13)
            np.testing.assert_allclose(g, g2, rtol=1e-12, atol=1e-13)


# -- memory that nobody has written into ---------------------------------------------------------

MAKERS: dict[str, Callable[..., Any]] = {
    "empty": lambda x: np.empty(x.shape, x.dtype),
    "empty, columns": lambda x: np.empty(x.shape, x.dtype, "F"),
    "ndarray": lambda x: np.ndarray(x.shape, dtype=x.dtype),
    "ndarray, columns": lambda x: np.ndarray(x.shape, x.dtype, order="F"),
    "empty_like": lambda x: np.empty_like(x),
    "of the drop-in": lambda x: adarray.numpy.empty(x.shape, dtype=x.dtype),
}


def dirty() -> None:
    """Leave other contents in freed memory than there were."""
    for size in (96, 96, 48, 48):
        np.frombuffer(RNG.bytes(size)).copy()


RNG = np.random.default_rng(11)


@pytest.mark.parametrize("name", MAKERS)
def test_what_empty_memory_holds_is_not_part_of_a_recording(backend: str, name: str) -> None:
    make = MAKERS[name]

    def filled(x: Any) -> Any:
        y = make(x)
        assert y.flags.f_contiguous == ("columns" in name)
        for k in range(3):
            y[k] = x[k] ** 2
        part = make(x)
        part[:, 1:] = x[:, 1:]
        return np.sum(y) + np.sum(part[:, 1:])  # the first column of `part` is never written

    def unwritten(x: Any) -> Any:
        part = make(x)
        part[1:] = 3.0 * x[1:]
        return np.sum(part)

    with use_all_sizes(backend):
        jitted = adarray.jit(adarray.grad(filled, intercept=True))
        constant = adarray.jit(adarray.grad(unwritten, intercept=True))
        for _ in range(4):
            dirty()
            x = RNG.normal(size=(3, 4))
            expected = 2 * x
            expected[:, 1:] += 1.0
            np.testing.assert_allclose(jitted(x), expected, rtol=1e-14)
            dirty()
            np.testing.assert_array_equal(constant(x), [[0.0] * 4] + 2 * [[3.0] * 4])
        assert jitted.cache_info().eager == constant.cache_info().eager == 0
        assert jitted.cache_info().traces == 2


def test_empty_arrays_of_objects_stay_what_they_are() -> None:
    def first(x: Any) -> Any:
        names = np.empty(2, object)
        assert names[0] is None
        assert np.ndarray(2, object)[1] is None
        names[:] = "a", "b"
        return 2.0 * x if names[1] == "b" else x

    jitted = adarray.jit(first)
    for _ in range(3):
        np.testing.assert_array_equal(jitted(X), 2.0 * X)


# -- arguments -----------------------------------------------------------------------------------


def step(state: Any, rate: Any) -> Any:
    """Change the argument, as many a simulation does."""
    state *= 1.0 - rate
    state[0] += 1.0
    if np.max(state) > 2.0:
        state[...] = np.minimum(state, 2.0)
    return np.sum(state)


def test_writes_into_arguments(backend: str) -> None:
    with use_all_sizes(backend):
        jitted = adarray.jit(step)
        a, b = X.copy(), X.copy()
        for k in range(12):
            got, expected = jitted(a, 0.1 * (k % 4)), step(b, 0.1 * (k % 4))
            np.testing.assert_allclose(got, expected, rtol=1e-13)
            np.testing.assert_allclose(a, b, rtol=1e-13)


def test_writes_into_a_strided_argument(backend: str) -> None:
    with use_all_sizes(backend):
        jitted = adarray.jit(step)
        a, b = np.zeros((6, 8)), np.zeros((6, 8))
        for _ in range(6):
            jitted(a[::2, ::-2], 0.2)
            step(b[::2, ::-2], 0.2)
            np.testing.assert_allclose(a, b, rtol=1e-13)


def test_arguments_that_overlap(backend: str) -> None:
    def shift(a: Any, b: Any) -> Any:
        a += 1.0
        b *= 2.0
        return np.sum(a) + np.sum(b)

    with use_all_sizes(backend):
        jitted = adarray.jit(shift)
        one, other = np.arange(10.0), np.arange(10.0)
        for k in range(6):
            n = 3 if k % 2 else 5
            got, expected = jitted(one[:6], one[n:]), shift(other[:6], other[n:])
            np.testing.assert_allclose(got, expected)
            np.testing.assert_allclose(one, other)


def test_one_array_as_two_arguments(backend: str) -> None:
    def both(a: Any, b: Any) -> Any:
        a[0] = 5.0
        return np.sum(a * b)

    with use_all_sizes(backend):
        jitted = adarray.jit(both)
        for _ in range(5):
            x, y = X.copy(), X.copy()
            assert jitted(x, x) == pytest.approx(both(y, y))
            np.testing.assert_array_equal(x, y)


def test_a_read_only_argument_is_refused(backend: str) -> None:
    with use_all_sizes(backend):
        jitted = adarray.jit(step)
        for _ in range(4):
            frozen = X.copy()
            frozen.flags.writeable = False
            with pytest.raises(ValueError, match="read-only"):
                jitted(frozen, 0.1)
            np.testing.assert_array_equal(frozen, X)
            x, y = X.copy(), X.copy()
            assert jitted(x, 0.1) == pytest.approx(step(y, 0.1))


def test_a_captured_array_that_changes_between_calls(backend: str) -> None:
    table = np.ones(4)

    def look_up(x: Any) -> Any:
        return np.sum(x * table)

    with use_all_sizes(backend):
        jitted = adarray.jit(look_up)
        for k in range(8):
            assert jitted(X) == pytest.approx(look_up(X), rel=1e-13)
            table[k % 4] += 1.0


# -- written where they are -----------------------------------------------------------------


@pytest.fixture
def compiling(backend: str) -> Iterator[None]:
    with adarray.use(backend):
        yield


def donors(jf: Any, *args: Any) -> int:
    return sum(b.donor >= 0 for n in jf.path(*args) if n.plan for b in n.plan.buffers)


@pytest.mark.usefixtures("compiling")
def test_a_written_argument_is_computed_in_place() -> None:
    def step(w: Any, g: Any) -> None:
        w -= 0.1 * g

    w, g, expected = np.ones(1000), np.linspace(0, 1, 1000), np.ones(1000)
    jf = adarray.jit(step)
    for _ in range(5):
        jf(w, g)
        step(expected, g)
        np.testing.assert_allclose(w, expected, rtol=1e-15)
    if adarray.current_backend() != "numpy":
        assert donors(jf, w, g) == 1
    np.testing.assert_allclose(w, expected, rtol=1e-15)  # looking at it wrote nothing


@pytest.mark.usefixtures("compiling")
def test_what_was_there_before_is_returned() -> None:
    def counts(w: Any) -> Any:
        before = w.copy()
        w += 1.0
        return before, w

    jf, w = adarray.jit(counts), np.zeros(10)
    for k in range(5):
        before, after = jf(w)
        np.testing.assert_array_equal(before, np.full(10, float(k)))
        np.testing.assert_array_equal(after, np.full(10, k + 1.0))
        np.testing.assert_array_equal(w, np.full(10, k + 1.0))


@pytest.mark.usefixtures("compiling")
def test_a_write_into_an_adarray_leaves_what_others_rely_on() -> None:
    def double(a: Any) -> Any:
        a *= 2
        return np.sum(a)

    jf = adarray.jit(double)
    for _ in range(5):
        a = adarray.array(np.arange(1.0, 5.0))
        view = a[1:]
        _, pullback = adarray.vjp(lambda x, a=a: x * a, np.ones(4))
        jf(a)
        np.testing.assert_array_equal(pullback(np.ones(4))[0], np.arange(1.0, 5.0))
        np.testing.assert_array_equal(a.numpy(), 2 * np.arange(1.0, 5.0))
        np.testing.assert_array_equal(view.numpy(), 2 * np.arange(2.0, 5.0))


@pytest.mark.usefixtures("compiling")
def test_two_arguments_that_change_places() -> None:
    def swap(a: Any, b: Any) -> None:
        old = a.copy()
        a[:] = b
        b[:] = 2.0 * old

    jf = adarray.jit(swap)
    a, b = np.arange(20.0), np.ones(20)
    x, y = a.copy(), b.copy()
    for _ in range(6):
        jf(a, b)
        swap(x, y)
        np.testing.assert_array_equal(a, x)
        np.testing.assert_array_equal(b, y)


@pytest.mark.usefixtures("compiling")
def test_errors_of_a_call_that_has_written() -> None:
    def invert(w: Any) -> None:
        w[:] = 1.0 / w

    jf = adarray.jit(invert)
    for _ in range(3):
        jf(np.ones(5))
    w = np.zeros(5)
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        jf(w)
    assert np.all(np.isinf(w))
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError, match="divide by zero"):
        jf(np.zeros(5))

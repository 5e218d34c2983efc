"""Copies on the host of arrays on a device: who holds one and who writes see the same values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg

import adarray
from adarray.device import Library

X = np.linspace(0.3, 1.2, 6)
ELSEWHERE = {"asarray": np.asarray}  # as another module asks, which is not intercepted


def on_device(device_backend: str) -> Any:
    with adarray.use(device_backend):
        return adarray.ADArray(np.arange(6.0)) * 1.0


def test_a_held_copy_follows_the_array(device_backend: str) -> None:
    """It kept what the array held when it was asked for."""
    b = on_device(device_backend)
    captured, part = np.asarray(b), np.asarray(b[2:4])
    with adarray.use(device_backend):
        b[...] = b * 2.0
        b[::-1][0] = 7.0
        b += 1.0
        np.multiply(b, 2.0, out=b)
    np.testing.assert_array_equal(captured, [2.0, 6.0, 10.0, 14.0, 18.0, 16.0])
    np.testing.assert_array_equal(part, [10.0, 14.0])


@pytest.mark.parametrize("view", [lambda b: b, lambda b: b[::2], lambda b: b.reshape(2, 3).T])
def test_what_is_written_into_a_copy_is_seen(device_backend: str, view: Any) -> None:
    """It was refused, or lost where C code wrote."""
    b = on_device(device_backend)
    expected = np.arange(6.0)
    before = b * 1.0
    product = b * b
    view(expected)[...] = 4.0
    copy = np.asarray(view(b))
    copy[...] = 4.0
    np.testing.assert_array_equal((b * 1.0).numpy(), expected)
    np.testing.assert_array_equal(view(b).numpy(), view(expected))
    copy[0] += 1.0
    view(expected)[0] += 1.0
    del copy
    np.testing.assert_array_equal(b.numpy(), expected)
    np.testing.assert_array_equal(before.numpy(), np.arange(6.0))
    np.testing.assert_array_equal(product.numpy(), np.arange(6.0) ** 2)


def test_functions_in_c_write_into_the_array(device_backend: str) -> None:
    b = on_device(device_backend)
    scipy.linalg.blas.dscal(3.0, b)
    scipy.linalg.blas.daxpy(np.ones(3), np.asarray(b)[3:], a=0.5)
    np.testing.assert_array_equal(b.numpy(), [0.0, 3.0, 6.0, 9.5, 12.5, 15.5])


def test_rules_keep_what_they_read(device_backend: str) -> None:
    def f(x: Any) -> Any:
        b = np.zeros_like(x) + 2.0
        y = x * b
        copy = np.asarray(b)
        copy[:] = 7.0
        return np.sum(y + x * b)

    with adarray.use(device_backend):
        np.testing.assert_array_equal(adarray.grad(f)(X), np.full(6, 9.0))


def test_traced_values_wait_until_the_copy_is_given_back(device_backend: str) -> None:
    def filled(x: Any) -> Any:
        b = np.zeros_like(x)
        copy = ELSEWHERE["asarray"](b)
        with pytest.raises(adarray.TraceError, match="in-place update of the memory of a plain"):
            b[0] = x[1]
        assert not copy.any()
        del copy
        b[0] = x[1]
        return np.sum(b)

    with adarray.use(device_backend):
        leaf = adarray.array(X, requires_grad=True)
        filled(leaf).backward()
    np.testing.assert_array_equal(np.asarray(leaf.grad), [0.0, 1.0, 0.0, 0.0, 0.0, 0.0])


@pytest.mark.filterwarnings("ignore::adarray.JitWarning")
@pytest.mark.parametrize("way", ["jvp", "grad", "jit(grad)"])
def test_buffers_that_another_module_holds(device_backend: str, way: str) -> None:
    """A buffer moved to the device with its first write there, and its holder was left behind."""

    def f(x: Any) -> Any:
        b = np.arange(6.0) / 4
        v = b[1:]
        y = x * b[-1]
        b *= 0.75
        copy = ELSEWHERE["asarray"](b)
        v[...] = v * 0.5 - 0.25
        y = np.tanh(y) * b
        copy[0] = 0.5
        return np.sum(y * b) + np.sum(copy) * x[0]

    value, gradient = adarray.value_and_grad(f)(X)
    with adarray.use(device_backend):
        if way == "jvp":
            got, slope = adarray.jvp(f, (X,), (np.ones(6),))
            np.testing.assert_allclose(slope, np.sum(gradient))
        else:
            transformed = adarray.value_and_grad(f)
            if way == "jit(grad)":
                transformed = adarray.jit(transformed)
            for _ in range(3):
                got, actual = transformed(X)
                np.testing.assert_allclose(actual, gradient)
    np.testing.assert_allclose(got, value)
    np.testing.assert_allclose(value, f(X))


WRITES = {
    "put": lambda d, i: np.put(d, i, [9.0, 8.0]),
    "place": lambda d, i: np.place(d, d > 2.0, [9.0, 8.0]),
    "putmask": lambda d, i: np.putmask(d, d > 2.0, [9.0, 8.0]),
    "put_along_axis": lambda d, i: np.put_along_axis(d, i, 9.0, 0),
    "copyto": lambda d, i: np.copyto(d, 9.0, where=d > 2.0),
    "fill_diagonal": lambda d, i: np.fill_diagonal(d.reshape(2, 3), 9.0),
}


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("kind", ["ADArray", "array", "host"])
def test_functions_that_write(device_backend: str, library: Library, name: str, kind: str) -> None:
    """With indices or a mask on the device they wrote into copies."""
    expected, i = np.arange(6.0), np.array([1, 4])
    WRITES[name](expected, i)
    with adarray.use(device_backend):
        index = library.place(i)
        d: Any = np.arange(6.0)
        if kind != "host":
            d = on_device(device_backend)
        if kind == "array":
            d = d._plain
        WRITES[name](d, index)
    np.testing.assert_array_equal(np.asarray(d), expected)


def test_indices_that_put_refuses_or_repeats(library: Library) -> None:
    d = library.place(np.arange(4.0))
    with pytest.raises(IndexError):
        np.put(d, [7], 1.0)
    np.put(d, [1, 1, -1], [5.0, 6.0, 7.0])
    np.testing.assert_array_equal(d.host(), [0.0, 6.0, 2.0, 7.0])


def test_what_numpy_looks_at_for_the_device_is_read_only(library: Library) -> None:
    """It is a copy, and what would be written into it would be lost."""
    x = library.place(np.arange(6.0))
    result = library.on_host(np.reshape, (x, (2, 3)), {})
    with pytest.raises(ValueError, match="read-only"):
        result[0] = 1.0
    library.on_host(np.multiply, (x, x), {})[0] = 1.0
    with pytest.raises(ValueError, match="read-only"):
        library.on_host(lambda a: a.fill(1.0), (x,), {})

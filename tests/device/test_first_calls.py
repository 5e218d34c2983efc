"""First calls of compiled functions on a device: arrays stay there while they are recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import device as standin
import numpy as np
import pytest

import adarray
from adarray.jitting.shared.contents import Content

RNG = np.random.default_rng(7)
ROWS, COLUMNS = 130, 140
FEW = 40  # rows that are read by index


def loss(x: Any, labels: Any) -> Any:
    """Cross-entropy of softmax, with the class of each row."""
    shifted = x - np.max(x, axis=1, keepdims=True)
    logs = np.log(np.sum(np.exp(shifted), axis=1))
    return np.mean(logs - shifted[np.arange(x.shape[0]), labels])


def embedded(table: Any, words: Any) -> Any:
    return np.sum(np.tanh(table[words]) ** 2)


def scattered(table: Any, words: Any) -> Any:
    array = np.zeros(table.shape, table.dtype)
    np.add.at(array, words, np.tanh(table[words]))
    return table - 0.1 * array


def weighted(x: Any, _: Any) -> Any:
    return x * np.full(x.shape, 0.25, x.dtype) + np.ones(x.shape, x.dtype)


def cut(x: Any, _: Any) -> Any:
    return np.sum(x[1:, :-2] * x[:-1, 2:] + x.T[2:, 1:].T) + np.sum(x.T[np.arange(3)])


def unused(x: Any, _: Any) -> Any:
    return adarray.grad(lambda a, b: np.sum(a * 2), argnums=(0, 1))(x, x)


def split(x: Any, _: Any) -> Any:
    a, _b = np.linalg.eigh(np.reshape(x[: x.shape[1]], -1)[:9].reshape(3, 3))
    return np.sum(a)


PROGRAMS: dict[str, Callable[..., Any]] = {
    "cross-entropy": lambda x, k: adarray.value_and_grad(loss)(x, k),
    "embedding": lambda x, k: adarray.grad(embedded)(x, k),
    "add.at": scattered,
    "uniform": weighted,
    "gradient of uniform": lambda x, k: adarray.grad(lambda x: np.sum(weighted(x, k) ** 2))(x),
    "slices": lambda x, k: adarray.grad(cut)(x, k),
    "unused argument": unused,
    "one of two results": lambda x, k: adarray.grad(split)(x, k),
    "second order": lambda x, k: adarray.grad(lambda x: np.sum(adarray.grad(embedded)(x, k) ** 2))(
        x
    ),
}


def leaves(result: Any) -> list[Any]:
    return list(result) if isinstance(result, tuple) else [result]


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_no_array_of_full_size_is_transferred(device_backend: str, library: Any, name: str) -> None:
    f = PROGRAMS[name]
    x = RNG.normal(size=(ROWS, COLUMNS)).astype(np.float32)
    count = ROWS if name == "cross-entropy" else FEW
    k = RNG.integers(0, min(ROWS, COLUMNS), count)
    expected = leaves(f(x, k))
    jf = adarray.jit(f)
    with adarray.use(device_backend):
        operand = adarray.array(x), adarray.array(k)
        moved = library.transfers
        for call in range(2):
            before = moved.bytes_to_device, moved.bytes_to_host
            results = leaves(jf(*operand))
            sent = moved.bytes_to_device - before[0], moved.bytes_to_host - before[1]
            assert max(sent) < x.nbytes / 8, f"call {call}: {sent} bytes"
            for got, want in zip(results, expected, strict=True):
                assert got.device == library.name
                np.testing.assert_allclose(got.numpy(), want, rtol=2e-4, atol=2e-4)
        assert jf.cache_info().eager == 0
        for got, want in zip(leaves(jf(*operand)), expected, strict=True):
            np.testing.assert_allclose(got.numpy(), want, rtol=2e-4, atol=2e-4)


@pytest.mark.slow
def test_other_constants_are_sent_once(device_backend: str, library: Any) -> None:
    def f(x: Any) -> Any:
        mask = np.tri(*x.shape, dtype=x.dtype)
        return np.sum((x * mask + mask) ** 2) + np.max(x - mask)

    x = RNG.normal(size=(ROWS, COLUMNS)).astype(np.float32)
    jf = adarray.jit(adarray.value_and_grad(f))
    value, gradient = adarray.value_and_grad(f)(x)
    with adarray.use(device_backend):
        operand = adarray.array(x)
        before = library.transfers.bytes_to_device
        got = jf(operand)
        assert library.transfers.bytes_to_device - before < 1.5 * x.nbytes
        for _ in range(3):
            np.testing.assert_allclose(float(got[0]), value, rtol=1e-4)
            np.testing.assert_allclose(got[1].numpy(), gradient, rtol=1e-4, atol=1e-4)
            got = jf(operand)
        assert jf.cache_info().eager == 0


def test_constants_that_are_written_between_two_uses(device_backend: str) -> None:
    def f(x: Any) -> Any:
        z = np.zeros(x.shape, x.dtype)
        a = x + z
        z[3:] = 2
        b = x * z
        z[:] = 1
        return a, b, x * z

    x = RNG.normal(size=(ROWS, COLUMNS)).astype(np.float32)
    jf = adarray.jit(f)
    with adarray.use(device_backend):
        operand = adarray.array(x)
        for _ in range(4):
            for got, want in zip(jf(operand), f(x), strict=True):
                np.testing.assert_array_equal(got.numpy(), want)
        assert jf.cache_info().eager == 0


class Holder:
    """An object whose parts clones do not reach, so that plain code reads them."""

    __slots__ = ("weights",)

    def __init__(self, weights: Any) -> None:
        self.weights = weights


def test_contents_are_compared_where_they_are(device_backend: str, library: Any) -> None:
    x = RNG.normal(size=(ROWS, COLUMNS)).astype(np.float32)
    with adarray.use(device_backend):
        holder = Holder(adarray.array(x))
        jf = adarray.jit(lambda y: np.sum(y * holder.weights, axis=0))
        operand = adarray.array(np.ones_like(x))
        for _ in range(3):
            got = jf(operand)
            np.testing.assert_allclose(got.numpy(), x.sum(0), rtol=1e-4, atol=1e-4)
        before = library.transfers.bytes_to_host
        got = jf(operand)
        assert library.transfers.bytes_to_host - before < 64  # whether all of it is the same
        np.testing.assert_allclose(got.numpy(), x.sum(0), rtol=1e-4, atol=1e-4)
        holder.weights[3, 4] = 50.0
        x[3, 4] = 50.0
        np.testing.assert_allclose(jf(operand).numpy(), x.sum(0), rtol=1e-4, atol=1e-4)


FORMS: dict[str, Callable[[Any], Any]] = {
    "as it is": lambda x: x,
    "columns": lambda x: x.T,
    "axes in another order": lambda x: np.transpose(np.reshape(x, (2, -1, COLUMNS)), (1, 2, 0)),
    "gaps": lambda x: x[:, ::2],
    "backwards": lambda x: x[::-1],
}


@pytest.mark.parametrize("name", FORMS)
def test_contents_show_what_was_written(device_backend: str, library: Any, name: str) -> None:
    base = RNG.normal(size=(4 * ROWS, COLUMNS))
    there = library.place(base)
    for x in (base, there):
        view = FORMS[name](x)
        before = Content(view)
        assert before.same(view)
        for change in (np.nextafter(base[-3, 6], np.inf), -base[-3, 6]):
            element = base[-3, 6]
            x[-3, 6] = change
            assert not before.same(view)
            x[-3, 6] = element
            assert before.same(view)
        assert not before.same(FORMS[name](x[2:]))


@pytest.mark.parametrize("name", ["quantile", "median", "tangent of joined arrays"])
def test_derivatives_make_zeros_where_the_values_are(name: str, monkeypatch: Any) -> None:
    """On the stand-in alone: libraries may ask the host for more."""
    standin.installed(monkeypatch)
    x = RNG.normal(size=(ROWS, COLUMNS))

    def derivative(x: Any) -> Any:
        if name == "quantile":
            return adarray.grad(lambda x: np.sum(np.quantile(x, 0.2, axis=1)))(x)
        if name == "median":
            return adarray.grad(lambda x: np.sum(np.median(x, axis=1)))(x)
        return adarray.jvp(lambda x: np.concatenate([x, x * x]), (x,), (x * 0 + 1,))[1]

    expected = derivative(x)
    with adarray.use("standin"):
        operand = adarray.array(x)
        moved = operand._plain.library.transfers
        for f in (derivative, adarray.jit(derivative)):
            before = moved.bytes_to_device
            np.testing.assert_allclose(f(operand).numpy(), expected)
            assert moved.bytes_to_device - before < x.nbytes / 8

"""Typed code that uses adarray: mypy --strict accepts it, and infers the types asserted here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, assert_type

import numpy as np
from numpy.typing import NDArray

import adarray
import adarray.scipy.stats
from adarray import ADArray
from adarray.base.context import copy_context
from adarray.scipy.linalg import expm

Floats = NDArray[np.float64]


def arithmetic(x: ADArray, y: float) -> ADArray:
    assert_type(x + y, ADArray)
    assert_type(1.0 - x, ADArray)
    assert_type(x * x / 2, ADArray)
    assert_type(-x, ADArray)
    assert_type(abs(x), ADArray)
    x += 1.0
    x **= 2
    assert_type(divmod(x, y), tuple[ADArray, ADArray])
    return x**2


def attributes(x: ADArray) -> None:
    assert_type(x.shape, tuple[int, ...])
    assert_type(x.ndim, int)
    assert_type(x.size, int)
    assert_type(x.dtype, np.dtype[Any])
    assert_type(x.T, ADArray)
    assert_type(x.real, ADArray)
    assert_type(x.base, ADArray | None)
    assert_type(x.requires_grad, bool)
    assert_type(x.device, str)
    x.flat[0] = 1.0
    x[1:] = x[:-1]


def methods(x: ADArray) -> ADArray:
    assert_type(x.sum(axis=0, keepdims=True), ADArray)
    assert_type(x.reshape(2, -1), ADArray)
    assert_type(x.astype(np.float32), ADArray)
    assert_type(x.nonzero(), tuple[ADArray, ...])
    assert_type(x.sort(), None)
    assert_type(x.copy(order="F"), ADArray)
    assert_type(x.detach(), ADArray)
    assert_type([row.max() for row in x], list[ADArray])
    x.fill(0.0)
    x.backward()
    return x.clip(0, 1).dot(x.T).std(axis=(0, 1), ddof=1)


def leaving(x: ADArray) -> None:
    assert_type(float(x), float)
    assert_type(bool(x), bool)
    assert_type(len(x), int)
    assert_type(f"{x:.3f}", str)
    assert_type(x.tobytes(), bytes)
    plain: np.ndarray[Any, Any] = x.numpy()
    plain[...] = 0.0


def transforms(f: Callable[..., Any]) -> None:
    g = adarray.grad(f)
    g(np.ones(3))
    value, gradient = adarray.value_and_grad(f)(np.ones(3))
    del value, gradient
    with adarray.use("numpy"), adarray.no_grad():
        f(adarray.array([1.0], requires_grad=True))


def workers(k: int) -> float:
    def work(n: int) -> float:
        return n * 2.0

    assert_type(copy_context(work)(k), float)
    return copy_context(work)(k)


# -- the examples of the README, with annotations, and what it says one can do with them ---------


def loss(w: dict[str, Floats], x: Floats, y: Floats) -> np.floating[Any]:
    h = np.tanh(x @ w["hidden"])
    h[:, 0] = 1.0
    p = 1 / (1 + np.exp(-(h @ w["out"])))
    result: np.floating[Any] = -np.mean(np.where(y, np.log(p), np.log(1 - p)))
    return result


def readme(w: dict[str, Floats], x: Floats, y: Floats) -> None:
    value, gradient = adarray.value_and_grad(loss)(w, x, y)
    assert_type(value, np.floating[Any])
    step = adarray.jit(adarray.value_and_grad(loss))
    assert_type(step(w, x, y=y)[0], np.floating[Any])
    print(step.explain(w, x, y), step.cache_info().compiled)
    step.clear()
    with adarray.use("openmp", threads=4):
        gradient = adarray.grad(loss)(w, x, y)
        gradient = adarray.grad(loss, intercept=True)(w, x, y)
    del gradient


@adarray.jit
def plainly(x: Floats) -> Floats:
    return x * 2.0


@adarray.jit(donate=0)
def donating(w: Floats, x: Floats) -> Floats:
    return w - x


class Model:
    @adarray.jit
    def predict(self, x: Floats) -> Floats:
        return x


def returned(x: Floats) -> None:
    assert_type(plainly(x), Floats)
    assert_type(donating(x, x), Floats)
    assert_type(Model().predict(x), Floats)
    assert_type(adarray.vjp(plainly, x)[0], Floats)
    assert_type(adarray.jvp(plainly, (x,), (x,))[1], Floats)
    adarray.hessian(loss)({"hidden": x, "out": x}, x, x)
    adarray.jacobian(plainly)(x)


def namespaces(x: Floats) -> None:
    adarray.scipy.linalg.expm(expm(x))
    adarray.scipy.stats.norm.logpdf(x)
    adarray.numpy.sum(x)
    adarray.testing.check_grads(plainly, [x])

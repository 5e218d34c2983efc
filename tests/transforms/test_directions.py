"""Jacobians from blocks of directions, beside those from one direction after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import adarray
from adarray.base.op import Op, Opaque
from adarray.core.dispatch import apply
from adarray.transforms import directions

RNG = np.random.default_rng(0)
A = RNG.normal(size=(7, 6)) / 3
X = RNG.normal(size=6)


def dense(x: Any) -> Any:
    return np.tanh(A @ np.sin(x))


def in_place(x: Any) -> Any:
    y = np.zeros((2, 6))
    y[0, 1:] = x[1:] * x[:-1]
    y[1] += np.sort(x) ** 2
    y[y > 0.5] *= x[0]
    return y


def branching(x: Any) -> Any:
    return np.cumsum(x) * x if x[0] > 0 else np.sin(x) * x[np.argmax(x)]


def nested(x: Any) -> Any:
    return {"a": (x[:2] * x[2], np.sum(x**3)), "b": np.outer(x, x)}


FUNCTIONS = [dense, in_place, branching, nested]
TRANSFORMS = [adarray.jacfwd, adarray.jacrev, adarray.jacobian]


@pytest.fixture(params=[(4, 1 << 22), (128, 1 << 22), (128, 40)])
def blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directions, "ROWS", 0)
    monkeypatch.setattr(directions, "COLUMNS", 0)
    monkeypatch.setattr(directions, "DIRECTIONS", request.param[0])
    monkeypatch.setattr(directions, "ELEMENTS", request.param[1])


def _one_by_one(f: Any, *args: Any) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(directions, "DIRECTIONS", 0)
        return f(*args)


def _assert_equal(got: Any, want: Any) -> None:
    if isinstance(want, dict):
        assert got.keys() == want.keys()
        for k in want:
            _assert_equal(got[k], want[k])
    elif isinstance(want, tuple):
        assert len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            _assert_equal(g, w)
    else:
        assert type(got) is type(want)
        assert got.dtype == want.dtype
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-5 if got.dtype == np.float32 else 1e-12)


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("of", TRANSFORMS)
@pytest.mark.parametrize("f", FUNCTIONS)
def test_jacobians(of: Any, f: Any) -> None:
    for x in (X, -X, X.astype(np.float32), adarray.array(X)):
        _assert_equal(of(f)(x), _one_by_one(of(f), x))


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("of", TRANSFORMS)
def test_several_arguments_and_aux(of: Any) -> None:
    def f(x: Any, y: float, k: int) -> Any:
        return (x * y) ** k, {"norm": np.linalg.norm(x)}

    result = of(f, argnums=(1, 0), has_aux=True)
    _assert_equal(result(X, 0.5, 2), _one_by_one(result, X, 0.5, 2))


@pytest.mark.usefixtures("blocks")
def test_second_derivatives() -> None:
    def loss(x: Any) -> Any:
        return np.sum(dense(x) ** 2) + np.sum(in_place(x))

    of_gradient = adarray.jacrev(adarray.grad(loss))
    for result in (
        adarray.hessian(loss),
        of_gradient,
        adarray.grad(lambda x: np.sum(of_gradient(x))),
    ):
        _assert_equal(result(X), _one_by_one(result, X))


@pytest.mark.usefixtures("blocks")
def test_complex() -> None:
    z = X + 1j * X[::-1]
    transformed = adarray.jacobian(lambda z: np.exp(z) * z[0], holomorphic=True)
    _assert_equal(transformed(z), _one_by_one(transformed, z))


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("of", TRANSFORMS)
def test_functions_that_vmap_cannot_take(of: Any) -> None:
    op = Op(
        "doubled", lambda x: x * 2.0, Opaque(), [lambda g, out, x: g * 2.0], jvp="linear",
        samples=lambda rng: [((rng.normal(size=3),), {})],
        needs=lambda _mask: (False, False),
    )  # fmt: skip
    result = of(lambda x: apply(op, (np.sin(x),)))
    np.testing.assert_allclose(result(X), np.diag(2.0 * np.cos(X)))
    jitted = adarray.jit(dense)
    np.testing.assert_allclose(of(jitted)(X), of(dense)(X), rtol=1e-12)
    np.testing.assert_allclose(of(lambda x: 2.0 * jitted(x))(X), 2.0 * of(dense)(X), rtol=1e-12)


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("of", TRANSFORMS)
def test_errors_of_the_function_are_its_own(of: Any) -> None:
    def f(x: Any) -> Any:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        of(f)(X)


@pytest.mark.sampled(3)
@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("of", TRANSFORMS)
@pytest.mark.parametrize("f", FUNCTIONS)
def test_under_jit(of: Any, f: Any) -> None:
    compiled = adarray.jit(of(f))
    for _ in range(3):
        got = compiled(X)
    _assert_equal(got, of(f)(X))


def test_memory_of_large_arrays_is_bounded() -> None:
    """As many directions at once as have `ELEMENTS` elements together."""
    seen = []

    def f(x: Any) -> Any:
        y = x * 2.0
        seen.append(1)
        return np.array([np.sum(y), y[0]])

    x = np.ones(40)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(directions, "ELEMENTS", 40 * 10)
        got = adarray.jacfwd(f)(x)
    assert len(seen) == 4
    np.testing.assert_array_equal(got, [[2.0] * 40, [2.0] + [0.0] * 39])

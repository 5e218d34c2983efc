"""Operations with several results: each is differentiated, alone and together."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import adarray
from adarray.base.op import Op, Opaque
from adarray.core.dispatch import apply, run
from adarray.ops.common import s
from adarray.testing import check_grads


class Polar(NamedTuple):
    length: Any
    angle: Any
    quadrant: Any


def _polar(x: Any, y: Any) -> Polar:
    turn = np.arctan2(y, x)
    return Polar(np.hypot(x, y), turn, np.floor(np.asarray(turn) / (np.pi / 2)).astype(int)[()])


def _pull(g: Any, out: Any, along: Any, across: Any) -> Any:
    assert g[2] is None
    return g[0] * along / out.length + g[1] * across / out.length**2


def _pull_x(g: Any, out: Any, x: Any, y: Any) -> Any:
    return _pull(g, Polar(*out), x, -y)


def _pull_y(g: Any, out: Any, x: Any, y: Any) -> Any:
    return _pull(g, Polar(*out), y, x)


POLAR = Op(
    "polar",
    _polar,
    Opaque(),
    [_pull_x, _pull_y],
    jvp=[
        lambda t, out, x, y: (t * x / out[0], -t * y / out[0] ** 2, None),
        lambda t, out, x, y: (t * y / out[0], t * x / out[0] ** 2, None),
    ],
    samples=lambda rng: [s(rng.uniform(0.5, 2.0, size=3), rng.uniform(0.5, 2.0, size=3))],
    operands=("x", "y"),
    outputs=3,
)


def polar(x: Any, y: Any) -> Any:
    return run(POLAR, x, y)


X = np.array([0.5, -1.5, 2.0])
Y = np.array([1.0, 0.7, -0.4])

USES = {
    "all": lambda x, y: polar(x, y),
    "first": lambda x, y: polar(x, y).length,
    "second": lambda x, y: polar(x, y)[1],
    "both in one sum": lambda x, y: np.sum(polar(x, y).length * polar(x, y).angle),
    "one twice": lambda x, y: (lambda p: p.length * p.length + np.sin(p.angle))(polar(x, y)),
    "only x": lambda x, y: np.sum(polar(x, 1.0 + 0 * Y).angle) + np.sum(y),
}


@pytest.mark.parametrize("use", USES)
def test_derivatives_to_third_order(use: str) -> None:
    check_grads(USES[use], (X, Y), order=3 if use == "both in one sum" else 2)


def test_results_keep_their_type_and_integers_are_constants() -> None:
    def f(x: Any) -> Any:
        p = apply(POLAR, (x, Y))
        assert isinstance(p, Polar)
        assert adarray.ADArray is type(p.quadrant)
        assert not p.quadrant.requires_grad
        assert p.angle.requires_grad
        return np.sum(p.length)

    np.testing.assert_allclose(adarray.grad(f)(X), X / np.hypot(X, Y))


def test_a_result_may_be_written_to_without_harm_to_the_others() -> None:
    def f(x: Any) -> Any:
        p = polar(x, Y)
        length = p.length
        length[0] = 0.0
        return np.sum(length * p.angle)

    check_grads(f, (X,))


def test_backward_and_a_second_walk() -> None:
    x = adarray.array(X, requires_grad=True)
    p = polar(x, Y)
    np.sum(p.length).backward(retain_graph=True)
    np.sum(p.angle).backward()
    expected = X / np.hypot(X, Y) - Y / np.hypot(X, Y) ** 2
    np.testing.assert_allclose(x.grad, expected)


def test_float32_stays() -> None:
    x, y = X.astype(np.float32), Y.astype(np.float32)
    assert adarray.grad(lambda x: np.sum(polar(x, y).angle))(x).dtype == np.float32
    check_grads(lambda x: polar(x, y).angle, (x,))

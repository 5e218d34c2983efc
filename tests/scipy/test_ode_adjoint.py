"""The continuous adjoint: known answers, and derivatives of the discrete solution."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("scipy")
import scipy.integrate as theirs
from scipy.linalg import expm

import adarray
import adarray.scipy.integrate as ours
from adarray import NotDifferentiableError, TraceError

TIGHT = {"rtol": 1e-9, "atol": 1e-11}
A = np.array([[-0.5, 1.0], [-1.0, -0.3]])
Y0 = np.array([1.0, 0.2])
TIMES = [None, [0.5, 2.0], [0.0, 1.0, 2.0]]


def linear(a: Any, y0: Any, adjoint: str, t_eval: Any = None, method: str = "RK45") -> Any:
    r = ours.solve_ivp(
        lambda t, y: a @ y, (0.0, 2.0), y0, method, t_eval=t_eval, adjoint=adjoint, **TIGHT
    )
    return np.sum(r.y[:, -1] ** 2) + r.y[0, 0]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("t_eval", TIMES)
@pytest.mark.parametrize("method", ["RK45", "DOP853", "Radau", "LSODA"])
def test_linear_systems(method: str, t_eval: Any) -> None:
    gradient = adarray.grad(linear, (0, 1))(A, Y0, "continuous", t_eval, method)
    end = expm(2.0 * A)
    first = expm((t_eval[0] if t_eval else 0.0) * A)[0]
    np.testing.assert_allclose(gradient[1], 2.0 * end.T @ end @ Y0 + first, rtol=1e-6)
    expected = adarray.grad(linear, (0, 1))(A, Y0, "discrete", t_eval, "DOP853")
    for mine, known in zip(gradient, expected, strict=True):
        np.testing.assert_allclose(mine, known, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("wrap", [lambda f: f, adarray.jit], ids=["eager", "jit"])
def test_a_pendulum(wrap: Any) -> None:
    """Parameters of all kinds: args, a closure, a nest, single precision."""

    def loss(p: Any, y0: Any, adjoint: str) -> Any:
        def swing(t: Any, y: Any, g: Any) -> Any:
            return [y[1], -g * np.sin(y[0]) - p["damping"] * y[1] + p["push"][0] * np.cos(t)]

        more = {"adjoint": adjoint} if adjoint == "continuous" else {}
        r = theirs.solve_ivp(
            swing, (0.0, 3.0), y0, t_eval=np.linspace(0.0, 3.0, 7), args=(p["g"],), **TIGHT, **more
        )
        return np.sum((r.y[0] - 0.3) ** 2)

    p = {"g": 9.81, "damping": np.float32(0.1), "push": np.array([0.2, 5.0]), "name": "swing"}
    expected = adarray.grad(loss, (0, 1))(p, Y0, "discrete")
    g = wrap(adarray.grad(lambda p, y0: loss(p, y0, "continuous"), (0, 1)))
    if wrap is adarray.jit:
        with pytest.warns(adarray.JitWarning):
            actual = g(p, Y0)
    else:
        actual = g(p, Y0)
    np.testing.assert_allclose(actual[1], expected[1], rtol=1e-6)
    assert actual[0]["g"] == pytest.approx(expected[0]["g"], rel=1e-6)
    assert actual[0]["damping"].dtype == np.float32
    assert actual[0]["damping"] == pytest.approx(expected[0]["damping"], rel=1e-5)
    np.testing.assert_allclose(actual[0]["push"], expected[0]["push"], rtol=1e-6)
    assert actual[0]["name"] is None


def test_values_and_forward_mode() -> None:
    plain = theirs.solve_ivp(lambda t, y: A @ y, (0.0, 2.0), Y0, **TIGHT)
    r = ours.solve_ivp(lambda t, y: A @ y, (0.0, 2.0), Y0, adjoint="continuous", **TIGHT)
    np.testing.assert_array_equal(r.y, plain.y)
    assert adarray.vjp(lambda a: linear(a, Y0, "continuous"), A)[0] == linear(A, Y0, "discrete")
    v = np.array([[1.0, 0.5], [0.0, -1.0]])
    slopes = [
        adarray.jvp(lambda a, h=how: linear(a, Y0, h), (A,), (v,))[1]
        for how in ("continuous", "discrete")
    ]
    assert slopes[0] == pytest.approx(slopes[1], rel=1e-10)
    np.testing.assert_allclose(
        adarray.hessian(lambda y0: linear(A, y0, "continuous"))(Y0),
        2.0 * expm(2.0 * A).T @ expm(2.0 * A), rtol=1e-6,
    )  # fmt: skip


def test_backwards_in_time_and_complex_states() -> None:
    def back(k: Any, adjoint: str) -> Any:
        r = ours.solve_ivp(
            lambda t, y: 1j * k * y, (1.0, -1.0), [1.0 + 0.5j], adjoint=adjoint, **TIGHT
        )
        return np.real(r.y[0, -1])

    expected = np.real(-2j * np.exp(-2j * 0.7) * (1.0 + 0.5j))
    assert adarray.grad(back)(0.7, "continuous") == pytest.approx(expected, rel=1e-7)


def test_what_it_does_not_do() -> None:
    with pytest.raises(ValueError, match=r"solve_ivp: adjoint='both'; pass 'discrete' or 'contin"):
        linear(A, Y0, "both")
    with pytest.raises(
        NotDifferentiableError, match="gives first derivatives in reverse mode only"
    ):
        adarray.grad(lambda y: np.sum(adarray.grad(linear, 1)(A, y, "continuous")))(Y0)
    with pytest.raises(NotDifferentiableError, match="takes no events, no dense_output and no tra"):
        adarray.grad(
            lambda t: ours.solve_ivp(lambda t, y: -y, (0.0, t), [1.0], adjoint="continuous").y[
                0, -1
            ]
        )(1.0)

    def piecewise(ks: Any) -> Any:
        k = [ks[i] * 1.0 for i in range(4)]
        r = ours.solve_ivp(
            lambda t, y: -k[min(int(4.0 * adarray.value_of(t)), 3)] * y, (0.0, 1.0), [1.0],
            t_eval=[1.0], max_step=0.1, adjoint="continuous",
        )  # fmt: skip
        return r.y[0, -1]

    with pytest.raises(TraceError, match="reads other traced values between the times of results"):
        adarray.grad(piecewise)(np.ones(4))

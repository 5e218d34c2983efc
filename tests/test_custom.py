"""`register_rule`: rules of users on their own functions and on ufuncs of others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from registered import rules_taken_back

import adarray
from adarray import NotDifferentiableError
from adarray.base.op import FUNCTIONS, OPS, POINTWISE
from adarray.testing import check_grads

X = np.linspace(0.2, 1.5, 6).reshape(2, 3)
A = np.array([[4.0, 1.0, 0.5], [0.0, 3.0, 1.0], [1.0, 0.0, 5.0]])
B = np.array([1.0, -2.0, 0.5])


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    with rules_taken_back():
        yield


def compiled_solve(a: Any, b: Any, scale: float = 1.0) -> Any:
    """Stand for a function in C: it sees plain arrays only."""
    for x in (a, b):
        assert type(x) is np.ndarray
    return np.linalg.solve(a, b) * scale


def registered_solve() -> Any:
    solve = adarray.register_rule(
        compiled_solve,
        lambda g, out, a, b, scale=1.0: -np.outer(solve(a.T, g), out),
        lambda g, out, a, b, scale=1.0: solve(a.T, g, scale),
    )
    return solve


def test_function_with_two_operands_and_a_parameter() -> None:
    solve = registered_solve()
    check_grads(lambda a, b: solve(a, b), (A, B), modes=["rev"])
    check_grads(lambda a, b: solve(a, b, scale=2.0), (A, B), modes=["rev"])
    np.testing.assert_array_equal(solve(A, B), compiled_solve(A, B))
    assert type(solve(A, B)) is np.ndarray
    assert type(solve(adarray.array(A), B)) is adarray.ADArray


def test_forward_rules() -> None:
    def third_power(x: Any) -> Any:
        return np.asarray(x) ** 3

    cube = adarray.register_rule(
        third_power,
        lambda g, out, x: 3 * g * x**2,
        jvp=[lambda t, out, x: 3 * t * x**2],
    )
    check_grads(lambda x: np.sum(np.sin(cube(x))), (X,))


def test_a_linear_function_needs_no_forward_rule() -> None:
    def double(x: Any) -> Any:
        return np.asarray(x) * 2

    double = adarray.register_rule(double, lambda g, out, x: double(g), jvp="linear")
    check_grads(lambda x: double(x) ** 2, (X,))


def test_ufunc_of_another_package() -> None:
    cubed = np.frompyfunc(lambda x: x**3, 1, 1)
    # As if NumPy's cube root came from elsewhere.
    for registry, key in ((OPS, "cbrt"), (FUNCTIONS, np.cbrt), (POINTWISE, np.cbrt)):
        del registry[key]  # type: ignore[attr-defined]
    with pytest.raises(NotDifferentiableError, match="cbrt: adarray has no derivative rule"):
        adarray.grad(np.cbrt)(2.0)
    ufunc = adarray.register_rule(np.cbrt, lambda g, out, x: g / (3 * out**2))
    assert ufunc is np.cbrt
    check_grads(lambda x: np.cbrt(x) ** 2, (X,))
    check_grads(lambda x: np.cbrt(x + X[:1]) * x, (X[1],))
    with pytest.raises(
        ValueError, match="register_rule: clip is differentiated already, as a comp"
    ):
        adarray.register_rule(np.clip, None)
    with pytest.raises(TypeError, match="has 1 operands and 1 results, and 2 rules were given"):
        adarray.register_rule(cubed, None, None)


def test_what_is_missing_is_named() -> None:
    solve = registered_solve()
    with pytest.raises(NotDifferentiableError, match="no forward-mode derivative with respect to"):
        adarray.jvp(lambda b: solve(A, b), (B,), (B,))
    half = adarray.register_rule(lambda x, y: np.asarray(x) * y, lambda g, out, x, y: g * y, None,
                                 name="half")  # fmt: skip
    check_grads(lambda x: half(x, 2.0), (X,), modes=["rev"])
    with pytest.raises(NotDifferentiableError, match="half: no derivative with respect to operand"):
        adarray.grad(lambda y: np.sum(half(X, y)))(2.0)
    with pytest.raises(NotDifferentiableError, match="solve: the argument scale is traced and has"):
        adarray.grad(lambda k: np.sum(solve(A, B, k)))(2.0)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: adarray.register_rule(3, None),
            TypeError,
            "register_rule: expected a function, got int; pass the function",
        ),
        (
            lambda: adarray.register_rule(np.sin, None),
            ValueError,
            "register_rule: sin has rules; it is the operation 'sin'",
        ),
        (
            lambda: adarray.register_rule(lambda x: x, None, name="sin"),
            ValueError,
            "register_rule: there is an operation named 'sin'; pass name=",
        ),
        (
            lambda: adarray.register_rule(lambda x: x, None, None, name="f"),
            TypeError,
            "register_rule: f has the arguments ['x'], ['x'] are differentiated, and 2 rules were "
            "given; give one rule for each of them",
        ),
        (
            lambda: adarray.register_rule(lambda x: x, None, operands=["y"], name="f"),
            TypeError,
            "register_rule: f has the arguments ['x'], ['y'] are differentiated, and 1 rules were "
            "given; give one rule for each of them",
        ),
    ],
)
def test_error_texts(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value) == message


def test_rows_without_effect() -> None:
    """A rule that saves everything is run again without the nan of rows that were dropped."""

    def product(a: Any, b: Any) -> Any:
        return np.matmul(np.asarray(a), np.asarray(b))

    multiply = adarray.register_rule(
        product,
        lambda g, out, a, b: np.matmul(g, b.T),
        lambda g, out, a, b: np.matmul(a.T, g),
        name="test_custom.product",
    )
    a = np.array([[1.0, 2.0], [np.nan, 1.0], [3.0, 0.0]])
    gradient = adarray.grad(lambda w: np.sum(multiply(a, w)[np.isfinite(a).all(axis=1)]))
    np.testing.assert_array_equal(gradient(np.ones((2, 2))), [[4.0, 4.0], [2.0, 2.0]])

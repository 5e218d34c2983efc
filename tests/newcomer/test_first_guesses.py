"""What people try who come from NumPy, JAX and PyTorch: it works, or one sentence says how.

Wrong answers that nothing announces are the worst of it: most of these calls gave one, or an error
that named neither the transform nor the fix.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import adarray
from adarray.errors import NotDifferentiableError, TraceError

X = np.array([1.0, 2.0])
RNG = np.random.default_rng(3)


def drawing(s: Any) -> Any:
    return s * RNG.normal()


def drawing_globally(s: Any) -> Any:
    return s * (0.5 + np.random.rand())  # noqa: NPY002  (what people write)


def counting() -> Any:
    calls: list[int] = []

    def step(s: Any) -> Any:
        calls.append(0)
        return s * (1.0 + 0.1 * len(calls))

    return step


@pytest.mark.parametrize("how", [{}, {"schedule": "mixed"}, {"schedule": "periodic"}, {"disk": 1}])
@pytest.mark.parametrize("step", [drawing, drawing_globally, counting()])
def test_steps_that_compute_something_else_when_they_run_again(step: Any, how: Any) -> None:
    def f(x: Any) -> Any:
        return np.sum(adarray.checkpointed_loop(step, x, 12, 2, **how))

    with pytest.raises(TraceError, match=r"checkpointed_loop: step \d+ computed something else"):
        adarray.grad(f)(X)
    with pytest.raises(TraceError, match="must be drawn before the loop, or be part of the state"):
        adarray.hvp(f)(X, X)


def test_conditions_with_random_steps() -> None:
    def f(x: Any) -> Any:
        return np.sum(adarray.checkpointed_while(lambda s: s[0] < 9.0, step, x, 1))

    step = counting()
    with pytest.raises(TraceError, match=r"checkpointed_while: step \d+ computed something else"):
        adarray.grad(f)(X)


def test_transposed_states_are_told_apart_by_value_alone() -> None:
    a = np.random.default_rng(0).normal(size=(7, 7)) / 3

    def rotated(s: Any) -> Any:
        return (s @ a).T

    def loop(x: Any) -> Any:
        return np.sum(adarray.checkpointed_loop(rotated, x, 9, 2) ** 2)

    def plain(x: Any) -> Any:
        for _ in range(9):
            x = rotated(x)
        return np.sum(x**2)

    np.testing.assert_allclose(adarray.grad(loop)(a), adarray.grad(plain)(a), rtol=1e-12)


def items(x: Any) -> Any:
    yield x[0]
    yield 2.0 * x[1]


async def later(x: Any) -> Any:
    return np.sum(x)


TRANSFORMS: list[Any] = [
    lambda f: adarray.jvp(f, (X,), (X,)),
    lambda f: adarray.vjp(f, X),
    lambda f: adarray.jacobian(f)(X),
    lambda f: adarray.jacfwd(f)(X),
    lambda f: adarray.jacrev(f)(X),
    lambda f: adarray.elementwise_grad(f)(X),
    lambda f: adarray.linearize(f, X),
    lambda f: adarray.jet(f, (X,), ([X],)),
    lambda f: adarray.directional_derivative(f)(X, X),
]


@pytest.mark.parametrize("call", TRANSFORMS)
def test_forgotten_returns_and_generators(call: Any) -> None:
    with pytest.raises(TypeError, match="the function returned None; return what is to be diff"):
        call(lambda x: None)
    for f, kind in ((items, "generator"), (lambda x: map(np.sin, x), "map")):
        with pytest.raises(TypeError, match=f"returned a {kind}, which computes later, .* list of"):
            call(f)


def test_generators_of_checkpoints_and_batches() -> None:
    with pytest.raises(TypeError, match=r"checkpoint\(items\): the function returned a generator"):
        adarray.grad(lambda x: sum(adarray.checkpoint(items)(x)))(X)
    with pytest.raises(TypeError, match="vmap: the function returned a generator"):
        adarray.vmap(items)(np.ones((3, 2)))
    listed = adarray.checkpoint(lambda x: list(items(x)))
    np.testing.assert_array_equal(adarray.grad(lambda x: sum(listed(x)))(X), [1.0, 2.0])


def test_steps_without_a_return() -> None:
    def run(x: Any) -> Any:
        return np.sum(adarray.checkpointed_loop(lambda s: None, x, 3))

    for call in (run, adarray.grad(run)):
        with pytest.raises(TypeError, match="checkpointed_loop: the step returned None; return th"):
            call(X)
    with pytest.raises(TypeError, match="checkpointed_loop: n is a float; pass an int"):
        adarray.checkpointed_loop(np.sin, X, 3.0)  # type: ignore[arg-type]


def test_loops_of_plain_arrays_return_plain_arrays() -> None:
    def step(s: Any) -> Any:
        s *= 0.5
        return s

    x = X.copy()
    assert type(adarray.checkpointed_loop(step, x, 2)) is np.ndarray
    assert type(adarray.checkpoint_sequential([step], x)) is np.ndarray


def test_arguments_in_the_place_of_argnums() -> None:
    f: Any = np.sum
    wrap: list[Any] = [
        adarray.grad, adarray.value_and_grad, adarray.jacobian, adarray.jacfwd, adarray.jacrev,
        adarray.hessian, adarray.hvp, adarray.make_hvp, adarray.elementwise_grad,
    ]  # fmt: skip
    for transform in wrap:
        name = transform.__name__
        with pytest.raises(TypeError, match=rf"{name}: argnums is of type ndarray; .*: {name}\("):
            transform(f, X)
    with pytest.raises(TypeError, match="grad: argnums is of type float; pass positions or names"):
        adarray.grad(f, 1.0)  # type: ignore[arg-type]


def test_arguments_that_are_no_tuple() -> None:
    calls: list[Any] = [
        lambda: adarray.jvp(np.sin, 1.0, 1.0),
        lambda: adarray.jvp(np.sin, (X,), X),
        lambda: adarray.jet(np.sin, 1.0, ([1.0],)),  # type: ignore[arg-type]
    ]
    for call in calls:
        with pytest.raises(TypeError, match="pass a tuple each, with an item for each argument"):
            call()
    for value in (X, 1.0):
        with pytest.raises(TypeError, match=r"evaluation_trace: primals is of type .*; pass a tup"):
            adarray.evaluation_trace(np.sin, value)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="checkpoint_sequential: functions is of type ufunc; pass"):
        adarray.checkpoint_sequential(np.sin, X)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"checkpoint_sequential: segments is array\(\[1., 2.\]"):
        adarray.checkpoint_sequential([np.sin], 2, X)  # type: ignore[arg-type]


def test_functions_that_write_into_their_argument() -> None:
    def f(x: Any) -> Any:
        x[0] = 5.0
        x *= 2.0
        return x**2

    x = X.copy()
    expected = np.diag([0.0, 16.0])
    for transform in (adarray.jacobian, adarray.jacfwd, adarray.jacrev):
        np.testing.assert_array_equal(transform(f)(x), expected)
        np.testing.assert_array_equal(adarray.jit(transform(f))(x), expected)
    np.testing.assert_array_equal(adarray.elementwise_grad(f)(x), [0.0, 16.0])
    np.testing.assert_array_equal(x, X)


def test_functions_of_math_and_scipy_themselves() -> None:
    assert adarray.grad(math.sin)(1.0) == pytest.approx(math.cos(1.0))
    assert adarray.grad(math.hypot, (0, 1))(3.0, 4.0) == pytest.approx((0.6, 0.8))
    assert adarray.jvp(math.exp, (0.0,), (2.0,))[1] == 2.0
    assert adarray.jit(adarray.grad(math.sin))(1.0) == pytest.approx(math.cos(1.0))
    linalg = pytest.importorskip("scipy.linalg")
    np.testing.assert_allclose(adarray.jacobian(linalg.det)(np.diag([2.0, 3.0])), [[3, 0], [0, 2]])


def test_lists_of_numbers_as_arguments() -> None:
    def length(p: Any) -> Any:
        return np.linalg.norm(p)

    assert adarray.grad(length)([3.0, 4.0]) == pytest.approx([0.6, 0.8])
    assert adarray.grad(lambda p: np.dot(p["a"], p["a"]))({"a": [1.0, 2.0]}) == {"a": [2.0, 4.0]}
    assert adarray.grad(lambda p: np.mean(p))((1.0, 2.0)) == (0.5, 0.5)


def test_functions_that_are_not_linear() -> None:
    for f in (np.square, np.abs, lambda x: np.maximum(x, 0.0), lambda x: x * np.sum(x)):
        with pytest.raises(ValueError, match="linear_transpose: the function is not its derivativ"):
            adarray.linear_transpose(f, X)
    a = np.arange(6.0).reshape(2, 3) * 1e150
    for dtype in (np.float32, np.float64, np.complex128):
        matrix = (a / 1e150).astype(dtype) if dtype is np.float32 else a.astype(dtype)
        transpose = adarray.linear_transpose(lambda x, m=matrix: m @ x, np.ones(3, dtype))
        np.testing.assert_allclose(transpose(np.ones(2, dtype))[0], matrix.sum(0), rtol=1e-6)
    w = adarray.grad(lambda w: np.sum(adarray.linear_transpose(lambda x: w * x, X)(X)[0]))(X)
    np.testing.assert_array_equal(w, X)


def test_members_that_return_other_objects() -> None:
    with pytest.raises(TypeError, match="vmap: members that go different ways return different"):
        adarray.vmap(lambda x: "large" if x > 1.5 else "small")(X)
    with pytest.raises(
        TypeError, match=r"vmap: members that go different ways return different objects"
    ):
        adarray.vmap(lambda x: "large" if x > 1.5 else x)(X)
    assert adarray.vmap(lambda x: ["odd", "all"][1 if x > 1.5 else -1])(X) == "all"


def test_one_array_as_two_arguments_of_a_sparse_jacobian() -> None:
    pytest.importorskip("scipy.sparse")
    f = lambda x, y: x * y**2  # noqa: E731
    for k, expected in enumerate(([1.0, 4.0], [2.0, 8.0])):
        for find in (adarray.sparse_jacobian(f, k), adarray.sparse_jacobian(f, argnums=(0, 1))):
            actual = find(X, X)
            matrix = actual[k] if isinstance(actual, tuple) else actual
            np.testing.assert_array_equal(matrix.toarray(), np.diag(expected))
    nest = adarray.sparse_jacobian(lambda d: d["a"] * d["b"])({"a": X, "b": X})
    np.testing.assert_array_equal(nest["b"].toarray(), np.diag(X))
    second = adarray.sparse_hessian(lambda x, y: np.sum(f(x, y)), 1)(X, X)
    np.testing.assert_array_equal(second.toarray(), np.diag(2.0 * X))
    with pytest.raises(NotDifferentiableError, match="argument 0: is traced"):
        adarray.vmap(adarray.sparse_jacobian(np.square))(np.ones((3, 2)))


def test_tables_of_functions_of_numbers() -> None:
    for f, slope in (
        (lambda x: x**2, 4.0),
        (lambda x: math.exp(x), math.exp(2.0)),
        (lambda x: 3.0 * x, 3.0),
    ):
        trace = adarray.evaluation_trace(f, (2.0,), (1.0,))
        assert trace.gradient == pytest.approx((slope,))
        assert trace.tangent == pytest.approx(slope)
        assert trace.steps[-1].adjoint == 1.0
    with pytest.raises(adarray.DTypeError, match=r"primals\[0\]: has non-floating dtype int"):
        adarray.evaluation_trace(np.square, (2,))
    with pytest.raises(adarray.DTypeError, match=r"primals\[0\] is of type dict; pass an array"):
        adarray.evaluation_trace(lambda d: d["a"], ({"a": 2.0},))

"""What derivatives are where intermediate ones are infinite, and `debug_nans`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import adarray
from adarray.base.op import all_ops

X = np.array([0.0, 1.0, -1.0, 800.0])


def _double_where(x: Any, inside: Any, f: Any, otherwise: float) -> Any:
    safe = np.where(inside, x, otherwise)
    return np.where(inside, f(safe), 0.0)


MASKED = {
    "log": (np.log, lambda x: x > 0),
    "log10": (np.log10, lambda x: x > 0),
    "sqrt": (np.sqrt, lambda x: x > 0),
    "cbrt": (np.cbrt, lambda x: x != 0),
    "exp": (np.exp, lambda x: x < 700),
    "cosh": (np.cosh, lambda x: x < 700),
    "reciprocal": (lambda x: 1 / x, lambda x: x != 0),
    "power": (lambda x: x**0.5, lambda x: x > 0),
    "arcsin": (np.arcsin, lambda x: np.abs(x) < 1),
    "arctanh": (np.arctanh, lambda x: np.abs(x) < 1),
    "log1p": (np.log1p, lambda x: x > -1),
    "entropy": (lambda x: -x * np.log(x), lambda x: x > 0),
}


@pytest.mark.parametrize("backend_name", ["numpy", "serial"])
@pytest.mark.parametrize("name", MASKED)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_masked_branch_has_no_effect(name: str, backend_name: str) -> None:
    f, inside = MASKED[name]
    try:
        context = adarray.use(backend_name)
    except adarray.BackendError:
        pytest.skip("the backend is not available")
    otherwise = {"arcsin": 0.5, "arctanh": 0.5}.get(name, 1.0)

    def masked(x: Any) -> Any:
        return np.sum(np.where(inside(x), f(x), 0.0))

    def careful(x: Any) -> Any:
        return np.sum(_double_where(x, inside(x), f, otherwise))

    with context:
        for x in (X, np.repeat(X, 1000)):
            expected = adarray.grad(careful)(x)
            np.testing.assert_allclose(adarray.grad(masked)(x), expected)
        np.testing.assert_allclose(
            adarray.jacobian(masked, mode="forward")(X), adarray.grad(careful)(X)
        )
        np.testing.assert_allclose(adarray.hessian(masked)(X), adarray.hessian(careful)(X))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_values_that_are_overwritten_have_no_effect() -> None:
    def overwritten(x: Any) -> Any:
        y = x * np.log(x)
        y[x <= 0] = 0.0
        z = np.zeros_like(y)
        z[:] = y
        return np.sum(np.where(x < 2, z, 0.0))

    np.testing.assert_allclose(adarray.grad(overwritten)(X), [0.0, 1.0, 0.0, 0.0])


def test_what_does_not_move_has_tangent_zero() -> None:
    def distances(x: Any) -> Any:
        d = (x[:, None] - x) ** 2
        np.fill_diagonal(d, 0.0)
        return np.sqrt(d)

    x = np.array([1.0, 2.0, 4.0])
    expected = np.zeros((3, 3, 3))
    for i in range(3):
        for j in range(3):
            expected[i, j, i] += np.sign(x[i] - x[j])
            expected[i, j, j] -= np.sign(x[i] - x[j])
    np.testing.assert_allclose(adarray.jacobian(distances, mode="forward")(x), expected)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_products_with_zero_have_their_true_derivative() -> None:
    assert adarray.grad(lambda x: x**1.5 * x)(0.0) == 0.0
    assert np.isnan(adarray.grad(lambda x: np.sqrt(x) ** 2)(0.0))  # unknown, and not 0
    assert adarray.grad(lambda x: x**1.5)(0.0) == 0.0


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_infinite_derivatives_stay_infinite() -> None:
    assert adarray.grad(np.sqrt)(0.0) == np.inf
    assert adarray.grad(np.log)(0.0) == np.inf
    assert np.isnan(adarray.grad(np.log)(np.nan))


def test_documented_subgradients() -> None:
    zero = np.zeros(3)
    np.testing.assert_array_equal(adarray.grad(np.linalg.norm)(zero), zero)
    np.testing.assert_array_equal(adarray.grad(lambda x: np.sum(np.abs(x)))(zero), zero)
    np.testing.assert_array_equal(adarray.grad(np.std)(np.ones(3)), zero)
    np.testing.assert_array_equal(adarray.grad(np.max)(np.ones(2)), [0.5, 0.5])
    assert adarray.grad(lambda x: np.maximum(x, 0.0))(0.0) == 0.5
    assert adarray.grad(lambda x: np.hypot(x, 0.0))(0.0) == 0.0


# -- debug_nans ---------------------------------------------------------------------------


def _a_line_of(f: Any, message: str) -> bool:
    lines = {n for *_, n in f.__code__.co_lines()}
    return any(f"file {__file__}, line {n})" in message for n in lines)


def _bad_value(x: Any) -> Any:
    y = np.sin(x)
    z = np.log(y - 2.0)
    return np.sum(z)


def _bad_derivative(x: Any) -> Any:
    y = np.abs(x)
    z = np.sqrt(y)
    return np.sum(z * z)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", ["numpy", "serial"])
def test_the_first_nan_is_named_with_its_line(name: str) -> None:
    try:
        context = adarray.use(name)
    except adarray.BackendError:
        pytest.skip("the backend is not available")
    with context:
        assert np.isnan(adarray.value_and_grad(_bad_value)(X)[0])
        with adarray.debug_nans(), pytest.raises(FloatingPointError) as caught:
            adarray.grad(_bad_value)(X)
    assert str(caught.value).startswith("log: the result has nan, no operand has")
    assert _a_line_of(_bad_value, str(caught.value))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("shape", [(), (3,)])
def test_a_nan_in_a_derivative_is_named_with_the_line_of_the_operation(shape: Any) -> None:
    def root_of_square(x: Any) -> Any:
        y = x * x
        z = np.sqrt(y)
        return np.sum(z)

    with adarray.debug_nans(), pytest.raises(FloatingPointError) as caught:
        adarray.grad(root_of_square)(np.zeros(shape))
    message = str(caught.value)
    assert message.startswith("multiply: the derivative with respect to operand 0 has nan")
    assert _a_line_of(root_of_square, message)


def test_nothing_is_changed_where_there_is_no_nan() -> None:
    def f(x: Any) -> Any:
        y = x.copy()
        y[0] = y[1] * 2
        return np.sum(np.exp(-y) @ np.ones(4)) + np.linalg.norm(y)

    x = np.arange(1.0, 5.0)
    expected = adarray.value_and_grad(f)(x)
    with adarray.debug_nans():
        got = adarray.value_and_grad(f)(x)
        assert adarray.current_backend() == "numpy"
    np.testing.assert_array_equal(got[0], expected[0])
    np.testing.assert_array_equal(got[1], expected[1])


# Whose zeros are of other kinds: parts of complex numbers, products with zeros, a derivative that
# is zero; or whose operands are read as a whole.
NOT_MARKED = {
    "i0", "imag", "real", "conv2d", "conv2d_weight", "cholesky", "eigvalsh", "fft", "ifft", "rfft",
    "ihfft", "irfft", "hfft", "sums_by_bin", "cumprod", "prod", "pinv", "logaddexp.reduce",
    "logaddexp2.reduce", "hypot.reduce",
}  # fmt: skip


def _has_zeros(op: Any, rng: np.random.Generator) -> bool:
    """Whether the cotangent of an operand has zeros where that of the result has none."""
    for sample in op.samples(rng):
        args = sample.args
        at = [i for i, a in enumerate(args) if isinstance(a, np.ndarray) and a.dtype == float]
        if not at or args[at[0]].size < 2:
            continue

        def f(x: Any, args: Any = args, i: int = at[0], kwargs: Any = sample.kwargs) -> Any:
            return op.numpy(*args[:i], x, *args[i + 1 :], **kwargs)

        try:
            y, pullback = adarray.vjp(f, args[at[0]])
            (g,) = pullback(rng.uniform(1, 2, np.shape(y)))
        except (adarray.ADArrayError, IndexError, TypeError, ValueError):
            continue  # of several results, or not to be called like that
        if np.size(y) and np.any(g == 0):
            return True
    return False


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_operations_that_drop_elements_say_so() -> None:
    rng = np.random.default_rng(0)
    ops = [op for op in all_ops() if not op.pointwise and op.samples is not None]
    ops = [
        op for op in ops if not op.name.startswith(("special.", "scipy."))
    ]  # loaded by other tests
    dropping = [op for op in ops if _has_zeros(op, rng)]
    assert {op.name for op in dropping if not (op.drops or op.masks)} <= NOT_MARKED
    assert {"getitem", "tril", "max", "median", "nansum"} <= {op.name for op in dropping}


M = np.array([[0.0, 1.0, 2.0], [3.0, 0.0, 4.0], [5.0, 6.0, 0.0]])
DROPPED = {
    "tril": lambda x: np.sum(np.tril(np.sqrt(x), -1)),
    "mask": lambda x: np.sum(np.sqrt(x)[M > 0]),
    "indices": lambda x: np.sum(np.sqrt(x)[np.triu_indices(3, 1)]),
    "where": lambda x: np.sum(np.sqrt(x), where=M > 0),
    "max": lambda x: np.max(np.sqrt(x)),
}


@pytest.mark.parametrize("name", DROPPED)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_dropped_elements_made_the_gradient_nan(name: str) -> None:
    f = DROPPED[name]
    gradients = [
        adarray.grad(f)(M), adarray.jacobian(f, mode="forward")(M), adarray.jit(adarray.grad(f))(M)
    ]  # fmt: skip
    for g in gradients:
        assert np.all(np.isfinite(g))
        assert not np.any(np.diagonal(g))
    assert np.all(np.isfinite(adarray.hessian(f)(M)))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_an_element_that_counts_keeps_its_infinite_derivative() -> None:
    x = np.array([0.0, 1.0])
    g = adarray.grad(lambda x: np.sum(np.sqrt(x)) + np.sqrt(x)[1])(x)
    np.testing.assert_array_equal(g, [np.inf, 1.0])
    assert np.isnan(adarray.grad(lambda x: np.sum(np.array([0.0, 1.0]) * np.sqrt(x)))(x)[0])


@pytest.mark.parametrize(
    ("pick", "gradient"),
    [
        (lambda x: x[1], 2.0), (lambda x: x[1], 2), (lambda x: x[1:2], [2.0]),
        (lambda x: x[[1]], [2.0]), (lambda x: x[1:2], np.array([2.0])),
    ],
)  # fmt: skip
def test_backward_of_elements_takes_python_numbers_and_lists(pick: Any, gradient: Any) -> None:
    x = adarray.array(np.arange(3.0), requires_grad=True)
    pick(x).backward(gradient)
    np.testing.assert_array_equal(x.grad, [0.0, 2.0, 0.0])


@pytest.mark.parametrize(
    "masking",
    [
        lambda x: np.maximum(x, 0.0), lambda x: -np.minimum(-x, 0), lambda x: np.clip(x, 0.0, 9.0),
        lambda x: x.clip(0.0, None), lambda x: np.fmax(x, 0.0), lambda x: np.where(x > 0, x, 0.0),
    ],
)  # fmt: skip
def test_an_infinite_derivative_ends_where_an_argument_is_masked(masking: Any) -> None:
    """It gave nan in reverse mode, infinity times the 0 of the mask, and 0 in forward mode."""
    x = np.array([-1.0, 4.0, -0.5, 1.0])
    expected = np.array([0.0, 0.25, 0.0, 0.5])

    def f(x: Any) -> Any:
        return np.sum(np.sqrt(masking(x)))

    with np.errstate(divide="ignore"):
        fast = adarray.jit(adarray.grad(f))
        for transform in (adarray.grad, adarray.jacfwd, adarray.jacrev):
            np.testing.assert_allclose(transform(f)(x), expected)
        for _ in range(3):
            np.testing.assert_allclose(fast(x), expected)
        np.testing.assert_allclose(adarray.vmap(adarray.grad(f))(np.stack([x, -x]))[0], expected)
        curved = np.where(expected > 0, -2 * expected**3, 0.0)
        np.testing.assert_allclose(np.diagonal(adarray.hessian(f)(x)), curved)
        assert adarray.grad(f)(np.array([-1.0, np.nan]))[0] == 0.0

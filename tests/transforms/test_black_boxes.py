"""black_box: functions that come with a Jacobian, or products with it; ufuncs of others."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from registered import rules_taken_back

import adarray
from adarray.errors import ShapeError

X = np.array([0.5, 1.0, 2.0])
Y = np.array([[1.0, 0.5, -1.0], [0.2, 0.1, 2.0]])
V = np.array([1.0, -0.5, 0.3])


@pytest.fixture(autouse=True)
def engine(backend: str) -> Iterator[None]:
    """Run each test on one backend."""
    with rules_taken_back(), adarray.use(backend):
        yield


def close(a: Any, b: Any) -> None:
    np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-13)


def open_box(x: Any, y: Any, power: int = 2) -> Any:
    return np.sin(y @ x) * np.sum(x**power)


def plainly(f: Any) -> Any:
    """Stand for compiled code: it takes plain arrays only."""

    def compiled(*args: Any, **params: Any) -> Any:
        for x in args:
            for a in x if isinstance(x, tuple) else (x,):
                assert type(a) in (np.ndarray, np.float64, float)
        return f(*args, **params)

    return compiled


def box(x: Any, y: Any, *, power: int = 2) -> Any:
    assert type(x) is type(y) is np.ndarray
    return open_box(x, y, power)


def jacobian(x: Any, y: Any, power: int = 2) -> Any:
    s, r = np.sum(x**power), y @ x
    by_x = np.cos(r)[:, None] * y * s + np.sin(r)[:, None] * power * x ** (power - 1)
    by_y = np.cos(r)[:, None, None] * np.eye(2)[:, :, None] * x * s
    return by_x, by_y


def jvp(primals: Any, tangents: Any, power: int = 2) -> Any:
    by_x, by_y = jacobian(*primals, power)
    return by_x @ tangents[0] + np.tensordot(by_y, tangents[1], 2)


def vjp(primals: Any, g: Any, power: int = 2) -> Any:
    by_x, by_y = jacobian(*primals, power)
    return g @ by_x, np.tensordot(g, by_y, 1)


WAYS = [{"jacobian": jacobian}, {"jvp": jvp}, {"vjp": vjp}, {"jvp": jvp, "vjp": vjp}]


@pytest.mark.slow_on("openmp")
@pytest.mark.parametrize("how", WAYS)
def test_one_of_them_is_enough(how: dict[str, Any]) -> None:
    for compiled in (False, True):
        f = adarray.black_box(box, **{k: plainly(v) if compiled else v for k, v in how.items()})
        for power in (2, 3):
            mine = lambda x, y, p=power, f=f: np.sum(f(x, y * x, power=p) ** 2)  # noqa: E731
            expected = lambda x, y, p=power: np.sum(open_box(x, y * x, p) ** 2)  # noqa: E731
            for a, b in zip(
                adarray.grad(mine, (0, 1))(X, Y), adarray.grad(expected, (0, 1))(X, Y), strict=True
            ):
                close(a, b)
            along = (X, Y), (V, Y[::-1].copy())
            close(adarray.jvp(mine, *along)[1], adarray.jvp(expected, *along)[1])
            jitted = adarray.jit(adarray.grad(mine))
            for k in range(3):
                close(jitted(X + k, Y), adarray.grad(expected)(X + k, Y))
            assert jitted.cache_info().eager == 0
        np.testing.assert_array_equal(f(X, Y), open_box(X, Y))
        assert type(f(X, Y)) is np.ndarray


@pytest.mark.sampled(3)
@pytest.mark.slow_on("openmp")
@pytest.mark.parametrize("how", WAYS)
def test_second_derivatives_differentiate_them(how: dict[str, Any]) -> None:
    f = adarray.black_box(box, **how)
    h = adarray.hessian(lambda x: np.sum(open_box(x, Y * x) ** 2))(X)
    mine = lambda x: np.sum(f(x, Y * x) ** 2)  # noqa: E731
    close(adarray.hessian(mine)(X), h)
    close(adarray.jacrev(adarray.grad(mine))(X), h)
    close(adarray.jacfwd(adarray.jacfwd(mine))(X), h)
    close(adarray.jit(adarray.hessian(mine))(X), h)


def test_sparse_jacobians() -> None:
    sparse = pytest.importorskip("scipy.sparse")
    a = sparse.csr_array(np.triu(np.ones((3, 3))))
    f = adarray.black_box(
        lambda x: a @ np.asarray(x).ravel() ** 2,
        lambda x: a @ sparse.diags_array(2.0 * np.asarray(x).ravel()),
    )
    expected = np.triu(np.ones((3, 3))) * 2.0 * X
    close(adarray.jacrev(f)(X), expected)
    close(adarray.jacfwd(f)(X), expected)
    close(adarray.jacrev(f)(X[:, None]), expected[:, :, None])


def test_what_is_refused() -> None:
    with pytest.raises(TypeError, match="black_box: pass jacobian=, jvp= or vjp="):
        adarray.black_box(box)
    with pytest.raises(TypeError, match="no argument without a default"):
        adarray.black_box(lambda *xs: xs[0], jacobian)
    f = adarray.black_box(box, lambda x, y: (jacobian(x, y)[0], None))
    close(
        adarray.grad(lambda x: np.sum(f(x, Y)))(X),
        adarray.grad(lambda x: np.sum(open_box(x, Y)))(X),
    )
    with pytest.raises(TypeError, match="box: jacobian gives no derivative by argument 1"):
        adarray.grad(lambda y: np.sum(f(X, y)))(Y)
    f = adarray.black_box(box, lambda x, y: np.ones(3))
    with pytest.raises(TypeError, match="for 2 arguments it returns a tuple"):
        adarray.grad(lambda y: np.sum(f(X, y)))(Y)
    f = adarray.black_box(box, lambda x, y: (np.ones(3), None))
    with pytest.raises(
        ShapeError, match=r"jacobian returned shape \(3,\), and \(2, 3\) was expected"
    ):
        adarray.grad(lambda x: np.sum(f(x, Y)))(X)


# -- ufuncs of others ------------------------------------------------------------------------------


def softplus(x: float) -> float:
    return math.log1p(math.exp(x))


def rule(g: Any, out: Any, x: Any) -> Any:
    return g / (1.0 + np.exp(-x))


def expr(x: Any) -> Any:
    return np.log1p(np.exp(x))


def made(how: str) -> Any:
    if how == "numba":
        numba = pytest.importorskip("numba")
        return numba.vectorize(softplus)
    return np.frompyfunc(softplus, 1, 1) if how == "frompyfunc" else np.vectorize(softplus)


@pytest.mark.parametrize("with_expr", [False, True])
@pytest.mark.parametrize("how", ["frompyfunc", "vectorize", "numba"])
def test_ufuncs_of_others(how: str, with_expr: bool) -> None:
    f = adarray.register_rule(made(how), rule, name="softplus2", expr=expr if with_expr else None)
    loss = lambda x: np.sum(f(x * x) ** 2)  # noqa: E731
    plain = lambda x: np.sum(expr(x * x) ** 2)  # noqa: E731
    close(loss(X), plain(X))
    close(adarray.grad(loss)(X), adarray.grad(plain)(X))
    close(adarray.hessian(loss)(X), adarray.hessian(plain)(X))
    close(adarray.jvp(loss, (X,), (V,))[1], adarray.jvp(plain, (X,), (V,))[1])
    assert adarray.grad(f)(0.0) == 0.5
    x32 = X.astype(np.float32)
    assert adarray.grad(loss)(x32).dtype == np.float32
    jitted = adarray.jit(adarray.grad(loss))
    for k in range(3):
        close(jitted(X + k), adarray.grad(plain)(X + k))
    assert jitted.cache_info().eager == 0
    if with_expr and adarray.current_backend() != "numpy":
        assert len(jitted.explain(X).kernels) == 1


def _lengths(x: Any, power: float = 2.0) -> Any:
    """Return a norm of each row, from a loop that knows plain arrays only."""
    return np.array([np.sum(np.abs(row) ** power) ** (1 / power) for row in np.asarray(x)])


def _lengths_rule(g: Any, out: Any, x: Any, power: float = 2.0) -> Any:
    return (g * out ** (1 - power))[:, None] * np.abs(x) ** (power - 1) * np.sign(x)


def _logsumexp(x: Any) -> Any:
    x = np.asarray(x)
    return np.asarray(float(np.log(sum(np.exp(v) for v in x.ravel()))), x.dtype)[()]


def test_functions_of_rows_and_reductions_are_compiled() -> None:
    lengths = adarray.register_rule(
        _lengths, _lengths_rule, name="lengths_of_mine",
        expr=lambda x, power=2.0: np.sum(np.abs(x) ** power, axis=1) ** (1 / power),
    )  # fmt: skip
    logsumexp = adarray.register_rule(
        _logsumexp, lambda g, out, x: g * np.exp(x - out), name="logsumexp_of_mine",
        expr=lambda x: np.log(np.sum(np.exp(x))),
    )  # fmt: skip
    x = np.linspace(0.1, 2.0, 12).reshape(4, 3)
    for f, plain in (
        (lambda x: np.sum(np.sin(lengths(x * 2.0, power=3.0))),
         lambda x: np.sum(np.sin(np.sum((2.0 * np.abs(x)) ** 3, axis=1) ** (1 / 3)))),
        (lambda x: logsumexp(np.sin(x)) ** 2, lambda x: np.log(np.sum(np.exp(np.sin(x)))) ** 2),
    ):  # fmt: skip
        expected = adarray.grad(plain)(x)
        close(adarray.grad(f)(x), expected)
        jitted = adarray.jit(adarray.grad(f))
        for _ in range(3):
            close(jitted(x), expected)
        assert jitted.cache_info().eager == 0
        told = jitted.explain(x)
        assert "of_mine" not in str(told)
        if adarray.current_backend() != "numpy":
            assert len(told.kernels) <= 2
        close(adarray.hessian(f)(x), adarray.hessian(plain)(x))
        batch = np.stack([x, 0.5 * x])
        close(adarray.jit(adarray.vmap(f))(batch), np.array([plain(x), plain(0.5 * x)]))


@pytest.mark.parametrize(
    ("expr", "message"),
    [
        (lambda x: np.sum(x**2), "computes something else than the function; they must agree"),
        (lambda x: np.sum(x, axis=0), r"returned shape \(3,\) and dtype float64, and the function "
                                      r"shape \(\) and dtype float64; they must be equal"),
    ],
)  # fmt: skip
def test_an_expression_that_is_another_function(expr: Any, message: str) -> None:
    name = f"total_{adarray.current_backend()}_{'else' in message}"
    total = adarray.register_rule(
        lambda x: np.sum(np.asarray(x)), lambda g, out, x: g * np.ones_like(x), name=name, expr=expr
    )
    x = np.arange(6.0).reshape(2, 3)
    with pytest.warns(adarray.JitWarning, match=f"jit: expr of {name} {message}"):
        assert adarray.jit(lambda x: total(x))(x) == 15.0

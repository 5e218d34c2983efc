"""`numpy.linalg`: derivatives against differences, values against NumPy's, kinks and refusals.

The records' own samples run in tests/test_ops.py; here are the functions made of them,
functions of factors that do not depend on signs and phases, and degenerate matrices.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import adarray
from adarray import ADArray, NotDifferentiableError
from adarray.testing import check_grads

LinAlgError = np.linalg.LinAlgError
DTYPES = [np.float64, np.float32, np.complex128, np.complex64]


def normal(*shape: int, dtype: Any = np.float64, seed: int = 0) -> np.ndarray:
    """Return random numbers, complex ones for complex dtypes."""
    rng = np.random.default_rng((seed, *shape))
    x = rng.normal(size=shape)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * rng.normal(size=shape)
    return np.asarray(x, dtype)


def regular(*shape: int, dtype: Any = np.float64, seed: int = 0) -> np.ndarray:
    """Return matrices with separate eigenvalues and singular values, far from 0."""
    n = shape[-1]
    spread = np.diag(3.0 * np.arange(1, n + 1))
    return np.asarray(normal(*shape, dtype=dtype, seed=seed) / 2 + spread, dtype)


def adjoint(x: Any) -> Any:
    return np.conj(np.swapaxes(x, -1, -2))


def definite(*shape: int, dtype: Any = np.float64) -> np.ndarray:
    """Return Hermitian positive definite matrices."""
    x = normal(*shape, dtype=dtype)
    return np.asarray(x @ adjoint(x) + shape[-1] * np.eye(shape[-1]), dtype)


# -- what the records' samples do not reach -----------------------------------------------------

Inputs = tuple[np.ndarray, ...]
CASES: dict[str, tuple[Callable[..., Any], Callable[[Any], Inputs]]] = {}


def case(name: str, f: Callable[..., Any], make: Callable[[Any], Inputs]) -> None:
    assert name not in CASES
    CASES[name] = (f, make)


def squares(*shape: int) -> Callable[[Any], Inputs]:
    return lambda dtype: (regular(*shape, dtype=dtype),)


def tall(*shape: int) -> Callable[[Any], Inputs]:
    return lambda dtype: (normal(*shape, dtype=dtype),)


for _n in (-3, -1, 0, 1, 2, 5):
    case(f"matrix_power {_n}", lambda a, n=_n: np.linalg.matrix_power(a, n) + a, squares(3, 3))
case("matrix_power stack", lambda a: np.linalg.matrix_power(a, -2), squares(2, 3, 3))
case(
    "multi_dot three",
    lambda a, b, c: np.linalg.multi_dot([a, b, c]),
    lambda d: (normal(2, 3, dtype=d), normal(3, 4, dtype=d), normal(4, 2, dtype=d)),
)
case(
    "multi_dot four, vector ends",
    lambda a, b, c, e: np.linalg.multi_dot([a, b, c, e]),
    lambda d: (
        normal(3, dtype=d),
        normal(3, 4, dtype=d),
        normal(4, 2, dtype=d),
        normal(2, dtype=d),
    ),
)
case(
    "tensorsolve",
    np.linalg.tensorsolve,
    lambda d: (regular(6, 6, dtype=d).reshape(2, 3, 6), normal(2, 3, dtype=d)),
)
case(
    "tensorsolve axes",
    lambda a, b: np.linalg.tensorsolve(a, b, axes=(0,)),
    lambda d: (regular(6, 6, dtype=d).reshape(6, 2, 3), normal(2, 3, dtype=d)),
)
case("tensorinv", np.linalg.tensorinv, lambda d: (regular(6, 6, dtype=d).reshape(2, 3, 3, 2),))
case("tensorinv ind", lambda a: np.linalg.tensorinv(a, ind=1), squares(3, 3))
for _p in (None, 2, -2, 1, -1, np.inf, -np.inf, "fro"):
    case(f"cond {_p}", lambda a, p=_p: np.linalg.cond(a, p), squares(3, 3))
case("cond of a tall stack", np.linalg.cond, tall(2, 4, 3))
case("pinv tall stack", np.linalg.pinv, tall(2, 4, 2))
case(
    "pinv hermitian",
    lambda a: np.linalg.pinv(a, hermitian=True),
    lambda d: (definite(3, 3, dtype=d),),
)
case("pinv product", lambda a: np.linalg.pinv(a) @ a, tall(2, 3))
case("cholesky stack", np.linalg.cholesky, lambda d: (definite(2, 3, 3, dtype=d),))
case(
    "cholesky upper",
    lambda a: np.linalg.cholesky(a, upper=True),
    lambda d: (definite(2, 3, 3, dtype=d),),
)
for _mode in ("reduced", "r"):
    for _shape in ((4, 3), (3, 3), (2, 4), (2, 3, 5)):
        case(f"qr {_mode} {_shape}", lambda a, m=_mode: np.linalg.qr(a, m), tall(*_shape))
case("qr complete square", lambda a: np.linalg.qr(a, "complete"), tall(3, 3))
case("qr complete wide", lambda a: np.linalg.qr(a, mode="complete"), tall(2, 4))
case("qr named", lambda a: np.linalg.qr(a).R, tall(3, 2))
case("svd of values", lambda a: np.linalg.svd(a, compute_uv=False), tall(2, 4, 3))
case("svdvals wide", np.linalg.svdvals, tall(2, 4))
case("svd values only", lambda a: np.linalg.svd(a).S ** 3, tall(4, 3))
case(
    "svd hermitian values",
    lambda a: np.linalg.svd(a, compute_uv=False, hermitian=True),
    squares(3, 3),
)


def hermitian_rebuilt(a: Any) -> Any:
    u, s, vh = np.linalg.svd(a, hermitian=True)
    return (u * np.sqrt(s)[..., None, :]) @ vh


case("svd hermitian", hermitian_rebuilt, squares(2, 3, 3))


def low_rank(a: Any) -> Any:
    """Return the closest matrix of rank 1."""
    u, s, vh = np.linalg.svd(a, full_matrices=False)
    return u[..., :1] * s[..., None, :1] @ vh[..., :1, :]


def kernel(a: Any) -> Any:
    """Return the projector on the kernel."""
    vh = np.linalg.svd(a).Vh[..., a.shape[-2] :, :]
    return adjoint(vh) @ vh


for _shape in ((3, 3), (4, 2), (2, 2, 4)):
    case(f"svd low rank {_shape}", low_rank, tall(*_shape))
case("svd kernel", kernel, tall(2, 4))
case("svd polar factor", lambda a: np.linalg.svd(a)[0] @ np.linalg.svd(a)[2], squares(3, 3))


def root(a: Any) -> Any:
    w, v = np.linalg.eigh(a)
    return (v * np.sqrt(w)[..., None, :]) @ adjoint(v)


case("eigh square root", root, lambda d: (definite(2, 3, 3, dtype=d),))
for _uplo in ("L", "U", "l", "u"):
    case(f"eigvalsh {_uplo}", lambda a, u=_uplo: np.linalg.eigvalsh(a, u), squares(3, 3))
    case(
        f"eigh values {_uplo}",
        lambda a, u=_uplo: np.exp(np.linalg.eigh(a, UPLO=u).eigenvalues / 5),
        squares(3, 3),
    )


def projectors(a: Any) -> Any:
    """Return eigenvalues and projectors on eigenspaces of a general matrix."""
    w, v = np.linalg.eig(a)
    return w, v[..., :, None, :] * np.swapaxes(np.linalg.inv(v), -1, -2)[..., None, :, :]


case("eig projectors", projectors, squares(3, 3))
case("eig stack", lambda a: np.linalg.eig(a), squares(2, 3, 3))


def turning(dtype: Any) -> Inputs:
    """Return a matrix of which two eigenvalues are complex."""
    a = np.array([[1.0, -3.0, 0.2], [2.0, 1.5, 0.1], [0.3, 0.2, 6.0]])
    return (np.asarray(a if np.dtype(dtype).kind == "f" else a + 0.3j * normal(3, 3), dtype),)


case("eig of a real matrix, complex", np.linalg.eig, turning)
case("eigvals magnitudes", lambda a: np.abs(np.linalg.eigvals(a)), turning)
case("slogdet", lambda a: np.linalg.slogdet(a), squares(2, 3, 3))
case("logdet", lambda a: np.linalg.slogdet(a).logabsdet, lambda d: (-regular(3, 3, dtype=d),))
case("det of a long stack", np.linalg.det, tall(5, 2, 2))
case(
    "lstsq",
    lambda a, b: np.linalg.lstsq(a, b)[0],
    lambda d: (normal(5, 3, dtype=d), normal(5, 2, dtype=d)),
)
case(
    "lstsq residuals",
    lambda a, b: np.linalg.lstsq(a, b)[1],
    lambda d: (normal(5, 3, dtype=d), normal(5, dtype=d)),
)
case(
    "lstsq singular values",
    lambda a, b: np.linalg.lstsq(a, b, rcond=None)[3],
    lambda d: (normal(5, 3, dtype=d), normal(5, dtype=d)),
)
case(
    "solve by columns and rows",
    lambda a, b: np.linalg.solve(a, b) + np.linalg.solve(a, b[:, 0])[:, None],
    lambda d: (regular(3, 3, dtype=d), normal(3, 2, dtype=d)),
)
case("inv of a transpose", lambda a: np.linalg.inv(a.T) @ a, squares(3, 3))

# Norms
for _ord in (None, 0, 1, 2, 3, 1.5, -1, -2, np.inf, -np.inf):
    case(f"vector norm {_ord}", lambda a, p=_ord: np.linalg.norm(a, p) * a[0], tall(4))
    case(
        f"vector norm {_ord} along an axis",
        lambda a, p=_ord: np.linalg.norm(a, p, axis=1, keepdims=True) * a,
        tall(3, 4),
    )
    case(
        f"vector_norm {_ord}",
        lambda a, p=2 if _ord is None else _ord: (
            np.linalg.vector_norm(a, ord=p, axis=(0, 2), keepdims=True) * a
        ),
        tall(2, 3, 2),
    )
for _ord in (None, "fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf):
    case(f"matrix norm {_ord}", lambda a, p=_ord: np.linalg.norm(a, p), tall(3, 4))
    for _axes in ((0, 1), (1, 0), (-1, 0)):
        case(
            f"matrix norm {_ord} {_axes}",
            lambda a, p=_ord, x=_axes: np.linalg.norm(a, p, x, keepdims=True),
            tall(3, 4, 2),
        )
    case(
        f"matrix_norm {_ord}",
        lambda a, p="fro" if _ord is None else _ord: np.linalg.matrix_norm(a, ord=p),
        tall(2, 3, 4),
    )

# Products
case("kron", np.kron, lambda d: (normal(2, 3, dtype=d), normal(2, 2, dtype=d)))
case("kron ranks", np.kron, lambda d: (normal(2, dtype=d), normal(3, 1, 2, dtype=d)))
case("kron number", lambda a: np.kron(a, 3.0) + np.kron([2.0], a), tall(2))
case("kron scalar", lambda a: np.kron(a[0], a), tall(3))
case("cross", np.cross, lambda d: (normal(4, 3, dtype=d), normal(3, dtype=d)))
case(
    "cross axes",
    lambda a, b: np.cross(a, b, axisa=0, axisb=-1, axisc=0),
    lambda d: (normal(3, 4, dtype=d), normal(4, 3, dtype=d)),
)
case(
    "linalg.cross",
    lambda a, b: np.linalg.cross(a, b, axis=0),
    lambda d: (normal(3, 2, dtype=d),) * 2,
)
case("vecdot", np.vecdot, lambda d: (normal(4, 3, dtype=d), normal(3, dtype=d)))
case(
    "vecdot axis",
    lambda a, b: np.vecdot(a, b, axis=0),  # type: ignore[call-overload]
    lambda d: (normal(3, 4, dtype=d), normal(3, 4, dtype=d, seed=1)),
)
case(
    "vecdot axes",
    lambda a, b: np.vecdot(a, b, axes=[(0,), (-1,), ()]),
    lambda d: (normal(3, 4, dtype=d), normal(4, 3, dtype=d)),
)
case(
    "vecdot keepdims",
    lambda a, b: np.vecdot(a, b, keepdims=True),  # type: ignore[call-overload]
    lambda d: (normal(4, 3, dtype=d), normal(4, 3, dtype=d, seed=1)),
)
case(
    "linalg.vecdot",
    lambda a, b: np.linalg.vecdot(a, b, axis=0),
    lambda d: (normal(3, 4, dtype=d), normal(3, 4, dtype=d, seed=1)),
)
case("linalg.outer", np.linalg.outer, lambda d: (normal(3, dtype=d), normal(4, dtype=d)))
case("linalg.trace", lambda a: np.linalg.trace(a, offset=1), tall(2, 3, 4))
case("linalg.diagonal", lambda a: np.linalg.diagonal(a, offset=-1), tall(2, 3, 4))
case("linalg.matrix_transpose", np.linalg.matrix_transpose, tall(2, 3, 4))
if hasattr(np, "matvec"):
    case("matvec", np.matvec, lambda d: (normal(2, 3, 4, dtype=d), normal(4, dtype=d)))
    case("vecmat", np.vecmat, lambda d: (normal(3, dtype=d), normal(2, 3, 4, dtype=d)))
    case(
        "matvec axes",
        lambda a, b: np.matvec(a, b, axes=[(0, 1), (0,), (0,)]),
        lambda d: (normal(2, 3, 4, dtype=d), normal(3, 4, dtype=d)),
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=[np.dtype(d).name for d in DTYPES])
@pytest.mark.parametrize("name", CASES)
def test_case(name: str, dtype: type) -> None:
    f, make = CASES[name]
    xs = make(dtype)
    expected = f(*xs)
    got = f(*map(ADArray, xs))
    compare(got, expected, exact=True)
    traced, _ = adarray.vjp(f, *xs)
    compare(traced, expected, exact=False)
    check_grads(f, xs)


def compare(got: Any, expected: Any, exact: bool) -> None:
    """Compare values, shapes, dtypes and names of fields."""
    if isinstance(expected, tuple):
        assert isinstance(got, tuple)
        assert getattr(got, "_fields", None) == getattr(expected, "_fields", None)
        for a, b in zip(got, expected, strict=True):
            compare(a, b, exact)
        return
    values = got.numpy() if isinstance(got, ADArray) else got
    assert np.shape(values) == np.shape(expected)
    assert np.asarray(values).dtype == np.asarray(expected).dtype
    if exact:
        np.testing.assert_array_equal(values, expected)
    else:
        eps = np.finfo(np.asarray(expected).dtype).eps
        np.testing.assert_allclose(values, expected, rtol=200 * eps, atol=200 * eps)


def test_lists_and_numbers_mix_with_traced_arrays() -> None:
    x = normal(3)
    check_grads(lambda b: np.linalg.solve([[4.0, 1, 0], [1, 5, 2], [0, 1, 6]], b), (x,))
    check_grads(lambda a: np.linalg.solve(a, [1.0, 2, 3]), (regular(3, 3),))
    check_grads(lambda a: np.linalg.lstsq(a, [1.0, 2, 3, 4, 5])[0], (normal(5, 2),))
    check_grads(lambda b: np.linalg.lstsq([[1.0, 0], [1, 1], [1, 2]], b)[0], (x,))
    check_grads(lambda b: np.linalg.tensorsolve(np.eye(3).tolist(), b), (x,))
    check_grads(lambda b: np.linalg.multi_dot([[[1.0, 2, 3]], np.diag(b), [[1], [2], [3]]]), (x,))


def test_integers_and_mixed_dtypes_as_numpy() -> None:
    a = np.array([[2, 1], [1, 3]])
    compare(np.linalg.solve(ADArray(a), [1, 2]), np.linalg.solve(a, [1, 2]), exact=True)
    compare(np.linalg.det(ADArray(a)), np.linalg.det(a), exact=True)
    compare(np.linalg.eigh(ADArray(a)), np.linalg.eigh(a), exact=True)
    compare(np.linalg.norm(ADArray(a), "nuc"), np.linalg.norm(a, "nuc"), exact=True)
    assert int(np.linalg.matrix_rank(ADArray(a))) == 2
    check_grads(lambda b: np.linalg.solve(a, b), (normal(2, dtype=np.complex128),))
    # A complex right-hand side gives a real matrix a real gradient.
    rhs = normal(3, dtype=np.complex128)
    check_grads(lambda m: np.linalg.solve(m, rhs), (regular(3, 3),))
    gradient = adarray.grad(lambda m: np.sum(np.abs(np.linalg.solve(m, rhs))))(regular(3, 3))
    assert gradient.dtype == np.float64


@pytest.mark.parametrize(
    "call",
    [
        lambda x: np.linalg.det(x), lambda x: np.linalg.inv(x), lambda x: np.linalg.eigvalsh(x),
        lambda x: np.linalg.svd(x).S, lambda x: np.linalg.solve(x, np.zeros((0, 2))),
        lambda x: np.linalg.pinv(x), lambda x: np.linalg.cholesky(x),
        lambda x: np.linalg.eigh(x)[0],
        lambda x: np.linalg.norm(x), lambda x: np.linalg.slogdet(x)[1],
        lambda x: np.linalg.qr(x)[1],
        lambda x: np.linalg.eigvals(x), lambda x: np.linalg.norm(x, "fro", axis=(0, 1)),
    ],
)  # fmt: skip
def test_empty_matrices(call: Callable[[Any], Any]) -> None:
    x = np.zeros((0, 0))
    y, pullback = adarray.vjp(call, x)
    expected = call(x)
    assert y.shape == expected.shape
    assert y.dtype == expected.dtype
    (gradient,) = pullback(np.ones(expected.shape, expected.dtype)[()])
    assert gradient.shape == (0, 0)


def test_the_triangle_that_is_not_read_has_gradient_zero() -> None:
    a = definite(3, 3)
    for f, upper in (
        (lambda x: np.linalg.cholesky(x), False),
        (lambda x: np.linalg.cholesky(x, upper=True), True),
        (lambda x: np.linalg.eigvalsh(x), False),
        (lambda x: np.linalg.eigvalsh(x, "U"), True),
    ):
        gradient = adarray.grad(lambda x, f=f: np.sum(f(x) ** 3))(a)
        ignored = np.tril(gradient, -1) if upper else np.triu(gradient, 1)
        read = np.triu(gradient, 1) if upper else np.tril(gradient, -1)
        assert not ignored.any()
        assert np.count_nonzero(read) == 3


# -- determinants of singular matrices -----------------------------------------------------------


def minors(a: np.ndarray) -> np.ndarray:
    """Return the cofactors, each from its definition."""
    n = len(a)
    made = np.empty((n, n), a.dtype)
    for i in range(n):
        for j in range(n):
            rest = np.delete(np.delete(a, i, 0), j, 1)
            made[i, j] = (-1) ** (i + j) * np.linalg.det(rest)
    return made


def of_rank(n: int, rank: int, dtype: Any = np.float64) -> np.ndarray:
    return np.asarray(normal(n, rank, dtype=dtype) @ normal(rank, n, dtype=dtype, seed=1), dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=[np.dtype(d).name for d in DTYPES])
@pytest.mark.parametrize(("n", "rank"), [(1, 0), (2, 1), (3, 2), (3, 1), (3, 0), (4, 2), (5, 4)])
def test_det_of_singular_matrices(n: int, rank: int, dtype: type) -> None:
    a = of_rank(n, rank, dtype)
    (g,) = adarray.vjp(np.linalg.det, a)[1](np.ones((), dtype)[()])
    expected = minors(a)
    eps = np.finfo(dtype).eps
    assert g.dtype == dtype
    scale = max(1.0, float(np.max(np.abs(a))) ** (n - 1))
    np.testing.assert_allclose(g, expected, rtol=0, atol=200 * eps * scale)
    check_grads(np.linalg.det, (a,), order=2)


def test_det_of_exactly_singular_matrices_in_a_stack() -> None:
    stack = np.stack([np.ones((3, 3)), regular(3, 3), np.diag([1.0, 0, 2]), np.zeros((3, 3))])
    gradient = adarray.grad(lambda x: np.sum(np.linalg.det(x)))(stack)
    for g, a in zip(gradient, stack, strict=True):
        np.testing.assert_allclose(g, minors(a), atol=1e-13)
    check_grads(np.linalg.det, (stack,))


def test_det_of_a_singular_matrix_to_third_order() -> None:
    # The determinant is linear in each row: the third derivative along three rows is det.
    a = np.diag([1.0, 0.0, 0.0])
    e = regular(3, 3)

    def along(t: Any) -> Any:
        return np.linalg.det(a + t * e)

    third = adarray.grad(adarray.grad(adarray.grad(along)))(0.0)
    assert third == pytest.approx(6 * np.linalg.det(e), rel=1e-10)
    second = adarray.grad(adarray.grad(along))(0.0)
    assert second == pytest.approx(2 * (e[1, 1] * e[2, 2] - e[1, 2] * e[2, 1]), rel=1e-10)


def test_det_passes_nan_on() -> None:
    a = regular(3, 3)
    a[0, 0] = np.nan
    with np.errstate(invalid="ignore"):
        assert np.isnan(adarray.grad(lambda x: np.linalg.det(x))(a)).any()


# -- equal eigenvalues and singular values, norms at 0 ---------------------------------------------


def test_functions_of_equal_eigenvalues_alone() -> None:
    # tr(exp(A)) has the gradient exp(A), whatever the multiplicities.
    q = np.linalg.qr(normal(4, 4)).Q
    for w in ([1.0, 1, 1, 1], [0.0, 0, 2, 2], [1.0, 2, 2, 3]):
        a = q @ np.diag(w) @ q.T
        expected = q @ np.diag(np.exp(w)) @ q.T
        t = normal(4, 4, seed=3)
        t = t + t.T

        def f(x: Any) -> Any:
            return np.sum(np.exp(np.linalg.eigvalsh((x + x.T) / 2)))

        def g(x: Any) -> Any:
            return np.sum(np.exp(np.linalg.eigh((x + x.T) / 2)[0]))

        for function in (f, g):
            np.testing.assert_allclose(adarray.grad(function)(a), expected, atol=1e-13)
        _, tangent = adarray.jvp(f, (a,), (t,))
        assert tangent == pytest.approx(np.sum(expected * t))
    assert np.array_equal(
        adarray.grad(lambda x: np.sum(np.linalg.eigvalsh(x)))(np.eye(3)), np.eye(3)
    )


def test_functions_of_equal_singular_values_alone() -> None:
    # The squares sum to those of the elements; the cubes have gradient 3 (A A.T)^(1/2) A.
    q, r = np.linalg.qr(normal(3, 3)).Q, np.linalg.qr(normal(3, 3, seed=1)).Q
    for s in ([2.0, 2, 2], [3.0, 1, 1], [0.0, 0, 1], [0.0, 0, 0]):
        a = q @ np.diag(s) @ r.T
        cubes = 3 * q @ np.diag(np.square(s)) @ r.T
        for function in (
            lambda x: np.linalg.svdvals(x),
            lambda x: np.linalg.svd(x, compute_uv=False),
            lambda x: np.linalg.svd(x)[1],
            lambda x: np.linalg.lstsq(x, np.ones(3))[3],
        ):
            squared = adarray.grad(lambda x, f=function: np.sum(f(x) ** 2))(a)
            np.testing.assert_allclose(squared, 2 * a, atol=1e-13)
            if s[0] != 0:
                cubed = adarray.grad(lambda x, f=function: np.sum(f(x) ** 3))(a)
                np.testing.assert_allclose(cubed, cubes, atol=1e-13)
        _, tangent = adarray.jvp(lambda x: np.sum(np.linalg.svdvals(x) ** 2), (a,), (q,))
        assert tangent == pytest.approx(np.sum(2 * a * q))


@pytest.mark.parametrize("order", [None, "fro", "nuc", 2, -2])
@pytest.mark.parametrize("dtype", DTYPES, ids=[np.dtype(d).name for d in DTYPES])
def test_matrix_norms_are_flat_at_zero(order: Any, dtype: type) -> None:
    for shape in ((2, 3), (3, 3)):
        zero = np.zeros(shape, dtype)
        gradient = adarray.grad(lambda x: np.linalg.norm(x, order))(zero)
        assert np.array_equal(gradient, zero)
        assert gradient.dtype == dtype
        _, tangent = adarray.jvp(lambda x: np.linalg.norm(x, order), (zero,), (zero + 1,))
        assert tangent == 0


@pytest.mark.parametrize("order", [None, 1, 2, 3, 1.5, np.inf, -np.inf, 0])
def test_complex_vector_norms_are_flat_at_zero(order: Any) -> None:
    zero = np.zeros(3, np.complex128)
    assert np.array_equal(adarray.grad(lambda x: np.linalg.norm(x, order))(zero), zero)


def test_nuclear_and_spectral_norms() -> None:
    q, r = np.linalg.qr(normal(3, 3)).Q, np.linalg.qr(normal(3, 3, seed=1)).Q
    orthogonal = q @ r
    # All singular values are 1: the nuclear norm has the polar factor as its gradient.
    gradient = adarray.grad(lambda x: np.linalg.norm(x, "nuc"))(orthogonal)
    np.testing.assert_allclose(gradient, orthogonal, atol=1e-14)
    # Of a matrix of rank 1, the subgradient of least length: only the singular value that is
    # not 0 counts.
    outer = np.outer(q[0], r[0]) * 3
    for order in ("nuc", 2):
        gradient = adarray.grad(lambda x, p=order: np.linalg.norm(x, p))(outer)
        np.testing.assert_allclose(gradient, outer / 3, atol=1e-14)


def test_what_depends_on_vectors_of_equal_eigenvalues_is_refused() -> None:
    eye, direction = np.eye(3), normal(3, 3) + normal(3, 3).T
    fix = (
        "use eigvalsh for functions of the eigenvalues alone, or add a small diagonal matrix that "
        "separates them"
    )
    with pytest.raises(NotDifferentiableError) as caught:
        adarray.grad(lambda x: np.sum(root(x) * direction))(eye)
    assert str(caught.value) == f"eigh: eigenvalues are equal, and their vectors not unique; {fix}"
    with pytest.raises(NotDifferentiableError, match=r"^eigh: eigenvalues are equal"):
        adarray.jvp(lambda x: np.linalg.eigh(x)[1], (eye,), (direction,))
    # The second derivative of eigenvalues, too, depends on vectors.
    with pytest.raises(NotDifferentiableError, match=r"^eigh: eigenvalues are equal"):
        adarray.hessian(lambda x: np.sum(np.linalg.eigvalsh(x) ** 2))(eye)
    # A function of vectors outside of the space of equal eigenvalues is not refused.
    a = np.diag([1.0, 1.0, 3.0])
    check_grads(lambda x: np.linalg.eigh(x)[1][:, 2] ** 2, (a,), modes=("rev",), order=1)


def test_what_depends_on_vectors_of_equal_singular_values_is_refused() -> None:
    fix = (
        "use svdvals (or compute_uv=False) for functions of the singular values alone, or add a "
        "small matrix that separates them"
    )
    weight = normal(3, 3)
    with pytest.raises(NotDifferentiableError) as caught:
        adarray.grad(lambda x: np.sum(low_rank(x) * weight))(np.eye(3))
    assert str(caught.value) == (
        f"svd: singular values are equal, and their vectors not unique; {fix}"
    )
    with pytest.raises(NotDifferentiableError) as caught:
        adarray.grad(lambda x: np.sum(np.linalg.svd(x)[0] * weight))(
            np.diag([3.0, 1.0, 0.0])[:, [0, 2]]
        )
    assert str(caught.value) == (
        f"svd: a singular value is 0, and its vectors are not unique; {fix}"
    )
    with pytest.raises(NotDifferentiableError, match=r"^svd: singular values are equal"):
        adarray.jvp(lambda x: np.linalg.svd(x)[0], (np.eye(3),), (weight,))
    with pytest.raises(NotDifferentiableError, match=r"^svd: a singular value is 0"):
        adarray.jvp(lambda x: np.linalg.svd(x)[0], (np.eye(3, 2) * [1, 0],), (weight[:, :2],))
    # Of a matrix of rank 1 the closest of rank 1 moves smoothly.
    rank_one = np.outer([1.0, 2.0, 0.5], [1.0, -1.0])
    check_grads(low_rank, (rank_one,), modes=("rev",), order=1)


def test_eigenvalues_of_defective_matrices_are_refused() -> None:
    jordan = np.array([[1.0, 1.0], [0.0, 1.0]])
    for name in ("eigvals", "eig"):
        function = getattr(np.linalg, name)
        with pytest.raises(NotDifferentiableError) as caught:
            adarray.grad(lambda x, f=function: np.sum(np.abs(f(x)[0])))(jordan)
        assert str(caught.value) == (
            f"{name}: the eigenvectors do not span the space (a defective matrix), and eigenvalues "
            "have no derivative; use functions such as det, trace or matrix_power, or move the "
            "matrix"
        )
    # Equal eigenvalues with vectors enough: the trace of the square.
    gradient = adarray.grad(lambda x: np.real(np.sum(np.linalg.eigvals(x) ** 2)))(2 * np.eye(3))
    np.testing.assert_allclose(gradient, 4 * np.eye(3), atol=1e-14)
    with pytest.raises(NotDifferentiableError, match=r"^eig: eigenvalues are equal"):
        adarray.grad(lambda x: np.real(np.sum(np.linalg.eig(x)[1])))(np.diag([2.0, 2.0, 3.0]))


# -- refusals and NumPy's own errors ---------------------------------------------------------------


def test_qr_refusals() -> None:
    a = normal(3, 2)
    with pytest.raises(NotDifferentiableError) as caught:
        adarray.vjp(lambda x: np.linalg.qr(x, mode="raw")[0], a)
    assert str(caught.value) == (
        "qr: the mode 'raw' gives Householder reflectors, which are not differentiated; use the "
        "modes 'reduced', 'complete' or 'r'"
    )
    with pytest.raises(ValueError, match="Unrecognized mode 'nonsense'"):
        adarray.vjp(lambda x: np.linalg.qr(x, mode="nonsense")[0], a)
    with pytest.raises(NotDifferentiableError) as caught:
        adarray.grad(lambda x: np.sum(np.linalg.qr(x)[1]))(np.ones((3, 2)))
    assert str(caught.value) == (
        "qr: the first columns are linearly dependent; the factors are not differentiable there; "
        "use svd, lstsq or pinv"
    )


def test_lstsq_of_deficient_rank_is_refused() -> None:
    a = np.outer(np.arange(1.0, 5), [1.0, 2.0])
    message = (
        "lstsq: operand 0 has shape (4, 2) and rank 1; the solution jumps where the rank changes: "
        "drop dependent columns, or use pinv with a cutoff if the rank stays"
    )
    for f in (
        lambda x: adarray.grad(lambda m: np.sum(np.linalg.lstsq(m, np.ones(4))[0]))(x),
        lambda x: adarray.grad(lambda b: np.sum(np.linalg.lstsq(x, b)[0]))(np.ones(4)),
        lambda x: adarray.jvp(lambda m: np.linalg.lstsq(m, np.ones(4))[0], (x,), (x,)),
        lambda x: adarray.jvp(lambda b: np.linalg.lstsq(x, b)[0], (np.ones(4),), (np.ones(4),)),
    ):
        with pytest.raises(NotDifferentiableError) as caught:
            f(a)
        assert str(caught.value) == message


SINGULAR = np.ones((3, 3))


@pytest.mark.parametrize(
    "call",
    [
        lambda x: np.linalg.solve(x, x), lambda x: np.linalg.inv(x),
        lambda x: np.linalg.cholesky(-x), lambda x: np.linalg.inv(x[0]),
        lambda x: np.linalg.det(x[:2]), lambda x: np.linalg.eigh(x[:2]),
        lambda x: np.linalg.eigvals(x[0]), lambda x: np.linalg.svd(x[0]),
        lambda x: np.linalg.qr(x[0]), lambda x: np.linalg.matrix_power(x, -1),
        lambda x: np.linalg.matrix_power(x[:2], 2), lambda x: np.linalg.cond(x[:2], 1),
        lambda x: np.linalg.cond(x[0]), lambda x: np.linalg.cond(x[:0]),
        lambda x: np.linalg.lstsq(x, x[:2]), lambda x: np.linalg.tensorsolve(x, x),
        lambda x: np.linalg.tensorsolve(x, x[0, :2]), lambda x: np.linalg.tensorinv(x, 0),
        lambda x: np.linalg.multi_dot([x, x[0], x]), lambda x: np.linalg.eigvals(x * np.nan),
        lambda x: np.linalg.slogdet(x[0]), lambda x: np.linalg.matrix_power(x, 1.5),
        lambda x: np.linalg.norm(x, "nonsense"), lambda x: np.linalg.norm(x[0], "fro"),
        lambda x: np.linalg.norm(x, 3), lambda x: np.linalg.norm(x, axis=2),
        lambda x: np.linalg.norm(x, axis=(0, 0)), lambda x: np.linalg.norm(x, axis=[0, 1]),
        lambda x: np.linalg.norm(x, 2, axis=1.5j), lambda x: np.linalg.norm(x[None], 1),
        lambda x: np.linalg.matrix_norm(x[0]), lambda x: np.linalg.vector_norm(x, axis=5),
        lambda x: np.linalg.outer(x, x), lambda x: np.linalg.eigh(x, UPLO="x"),
        lambda x: np.cross(x[:, :1], x), lambda x: np.cross(x[0, 0], x),
        lambda x: np.cross(x, x, axisa=4), lambda x: np.cross(x, x, axisc=-4),
        lambda x: np.linalg.cross(x[:, :2], x), lambda x: np.linalg.matrix_transpose(x[0]),
        lambda x: np.vecdot(x, x[0, :2]), lambda x: np.linalg.solve(x, x[:2]),
        lambda x: np.linalg.pinv(x, rcond=1e-3, rtol=1e-3),
        lambda x: np.linalg.svd(x, True, True, 1, 2),
    ],
)  # fmt: skip
def test_errors_are_numpy_s(call: Callable[[Any], Any]) -> None:
    with pytest.raises((ValueError, TypeError)) as plain:
        call(SINGULAR)
    for run in (
        lambda: call(ADArray(SINGULAR)),
        lambda: adarray.vjp(call, SINGULAR),
        lambda: adarray.jvp(call, (SINGULAR,), (SINGULAR,)),
    ):
        with pytest.raises((ValueError, TypeError)) as caught:
            run()
        assert issubclass(caught.type, plain.type)
        if isinstance(plain.value, LinAlgError):
            assert caught.type is LinAlgError
            assert str(caught.value) == str(plain.value)


def test_slogdet_of_a_singular_matrix() -> None:
    sign, logdet = np.linalg.slogdet(ADArray(np.zeros((2, 2))))
    assert (float(sign), float(logdet)) == (0, -np.inf)
    with pytest.raises(LinAlgError, match="Singular matrix"):
        adarray.grad(lambda x: np.linalg.slogdet(x)[1])(np.zeros((2, 2)))


def test_cond_of_singular_matrices_is_infinite_and_flat() -> None:
    stack = np.stack([np.ones((2, 2)), np.array([[2.0, 1], [0.5, 3]])])
    for p in (None, 1, "fro"):
        values, pullback = adarray.vjp(lambda x, p=p: np.linalg.cond(x, p), stack)
        expected = np.linalg.cond(stack, p)
        if p is not None:
            assert np.isinf(values[0])
        np.testing.assert_allclose(values[1], expected[1])
        (gradient,) = pullback(np.array([1.0, 1.0]))
        alone = adarray.grad(lambda x, p=p: np.linalg.cond(x, p))(stack[1])
        np.testing.assert_allclose(gradient[1], alone, rtol=1e-10)
        if p is not None:
            assert not gradient[0].any()


# -- the plane ---------------------------------------------------------------------------------

FLAT = [((4, 2), (4, 2)), ((2,), (3,)), ((3,), (4, 2)), ((4, 3), (2,)), ((2,), (2,))]


@pytest.mark.parametrize(("first", "second"), FLAT)
def test_cross_of_vectors_in_the_plane_as_long_as_numpy_has_it(
    first: tuple[int, ...], second: tuple[int, ...]
) -> None:
    a, b = normal(*first), normal(*second, seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            expected = np.cross(a, b)
        except ValueError:  # NumPy has dropped it
            with pytest.raises(ValueError, match="3-dimensional vectors"):
                adarray.vjp(np.cross, a, b)
            return
        compare(np.cross(ADArray(a), ADArray(b)), expected, exact=True)
        compare(adarray.vjp(np.cross, a, b)[0], expected, exact=False)
        check_grads(np.cross, (a, b))
    with pytest.warns(DeprecationWarning, match="2-dimensional vectors are deprecated"):
        adarray.vjp(np.cross, a, b)


# -- out= ----------------------------------------------------------------------------------------


def test_out_of_products() -> None:
    a, b = normal(4, 3), normal(4, 3, seed=1)

    def dots(x: Any) -> Any:
        r = np.zeros_like(x, shape=4)
        np.vecdot(x, b, out=r)
        return r

    check_grads(dots, (a,))

    def chain(x: Any) -> Any:
        r = np.zeros_like(x, shape=(3, 3))
        assert np.linalg.multi_dot([x.T, a, x.T @ x], out=r) is r
        return r

    check_grads(chain, (a,))
    assert np.array_equal(chain(ADArray(a)).numpy(), np.linalg.multi_dot([a.T, a, a.T @ a]))


# -- random stacks, dtypes and layouts -----------------------------------------------------------

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "inv": np.linalg.inv,
    "det": np.linalg.det,
    "slogdet": lambda a: np.linalg.slogdet(a).logabsdet,
    "pinv": np.linalg.pinv,
    "cholesky": lambda a: np.linalg.cholesky(a @ adjoint(a)),
    "qr": lambda a: np.linalg.qr(a).R,
    "svdvals": np.linalg.svdvals,
    "low rank": low_rank,
    "eigvalsh": np.linalg.eigvalsh,
    "eigh": lambda a: np.linalg.eigh(a)[0] ** 2,
    "eigvals": lambda a: np.abs(np.linalg.eigvals(a)),
    "solve": lambda a: np.linalg.solve(a, a[..., :1] * a),
    "matrix_power": lambda a: np.linalg.matrix_power(a, -2),
    "cond": np.linalg.cond,
    "norm": lambda a: np.linalg.norm(a, axis=(-2, -1)),
    "nuc": lambda a: np.linalg.matrix_norm(a, ord="nuc"),
    "kron": lambda a: np.kron(a, a[..., :1]),
    "vecdot": lambda a: np.vecdot(a, a[..., :1, :]),
}
LAYOUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "C": np.ascontiguousarray,
    "Fortran": np.asfortranarray,
    "transposed": lambda a: np.swapaxes(np.swapaxes(a, -1, -2).copy(), -1, -2),
    "reversed": lambda a: a[..., ::-1, ::-1].copy()[..., ::-1, ::-1],
    "strided": lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
    "read-only": lambda a: np.broadcast_to(a, a.shape),
}


@settings(max_examples=150, deadline=None)
@given(
    name=st.sampled_from(sorted(FUNCTIONS)),
    stack=st.lists(st.integers(0, 2), max_size=2),
    n=st.integers(1, 4),
    dtype=st.sampled_from(DTYPES),
    layout=st.sampled_from(sorted(LAYOUTS)),
    seed=st.integers(0, 9),
)
def test_random_stacks(
    name: str, stack: list[int], n: int, dtype: Any, layout: str, seed: int
) -> None:
    a = LAYOUTS[layout](regular(*stack, n, n, dtype=dtype, seed=seed))
    f = FUNCTIONS[name]
    expected = f(a)
    compare(f(ADArray(a)), expected, exact=True)
    compare(adarray.vjp(f, a)[0], expected, exact=False)
    check_grads(f, (a,), order=1)

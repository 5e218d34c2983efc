"""`numpy.linalg`: derivatives against differences, values against NumPy's.

The records' own samples run in tests/test_ops.py; here are the functions made of them,
and functions of factors that do not depend on signs and phases.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from linear_algebra import DTYPES, adjoint, compare, definite, low_rank, normal, regular, root

import adarray
from adarray import ADArray
from adarray.ops.matrices import solved_triangle
from adarray.testing import check_grads

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


def kernel(a: Any) -> Any:
    """Return the projector on the kernel."""
    vh = np.linalg.svd(a).Vh[..., a.shape[-2] :, :]
    return adjoint(vh) @ vh


for _shape in ((3, 3), (4, 2), (2, 2, 4)):
    case(f"svd low rank {_shape}", low_rank, tall(*_shape))
case("svd kernel", kernel, tall(2, 4))
case("svd polar factor", lambda a: np.linalg.svd(a)[0] @ np.linalg.svd(a)[2], squares(3, 3))


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


@pytest.mark.sampled(3)
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


@pytest.mark.parametrize("shape", [(3, 3), (2, 4, 3), (2, 3)])
def test_real_vectors_are_differentiated_as_numpy_returns_them(shape: tuple[int, ...]) -> None:
    """Signs are locally constant, so nothing has to be invariant."""
    a = normal(*shape) + 3 * np.diag([1.0, 2, 3, 4])[: shape[-2], : shape[-1]]
    check_grads(lambda x: np.linalg.svd(x), (a,))
    check_grads(lambda x: np.linalg.svd(x, full_matrices=False), (a,))
    if shape == (3, 3):
        check_grads(lambda x: np.linalg.eigh(x), (a,))
        check_grads(lambda x: np.linalg.eigh(x, "U"), (a,))
        check_grads(lambda x: np.linalg.svd(x, hermitian=True), (a,))


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


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("shape", [(7, 7), (2, 9, 9)])
def test_cholesky_by_halves(
    shape: tuple[int, ...], dtype: str, upper: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large factors are pulled back and moved block by block, to any order."""
    rng = np.random.default_rng(5)
    x, w = rng.normal(size=(2, *shape)).astype(dtype)
    if dtype == "complex128":
        x, w = x * np.exp(1j * x), w * np.exp(1j * w)
    a = x @ np.conj(np.swapaxes(x, -1, -2)) + shape[-1] * np.eye(shape[-1])

    def f(a: Any) -> Any:
        return np.real(np.sum(w * np.linalg.cholesky(a, upper=upper) ** 2))

    def slope(a: Any) -> Any:
        return np.sum(np.abs(adarray.grad(f)(a)) ** 2)

    def results() -> list[Any]:
        return [adarray.grad(f)(a), adarray.grad(slope)(a), adarray.jvp(f, (a,), (x,))[1]]

    whole = results()
    for module in ("matrices", "decompositions"):
        monkeypatch.setattr(f"adarray.ops.{module}.block_rows", lambda n: 2)
    for one, other in zip(whole, results(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("lower", [False, True])
def test_triangular_systems_by_halves(lower: bool) -> None:
    rng = np.random.default_rng(6)
    a = rng.normal(size=(300, 300)) / 20 + 3 * np.eye(300)
    a = np.tril(a) if lower else np.triu(a)
    b = rng.normal(size=(300, 4))
    np.testing.assert_allclose(a @ solved_triangle(a, b, lower), b, rtol=1e-10, atol=1e-12)

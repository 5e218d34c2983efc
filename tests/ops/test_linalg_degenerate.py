"""`numpy.linalg` at matrices without an inverse, with equal eigenvalues, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from linear_algebra import DTYPES, low_rank, normal, regular, root

import adarray
from adarray import ADArray, NotDifferentiableError
from adarray.testing import check_grads

LinAlgError = np.linalg.LinAlgError

# -- determinants of singular matrices -----------------------------------------------------------


def minors(a: np.ndarray) -> np.ndarray:
    """Return the cofactors, each from its definition."""
    n = len(a)
    array = np.empty((n, n), a.dtype)
    for i in range(n):
        for j in range(n):
            rest = np.delete(np.delete(a, i, 0), j, 1)
            array[i, j] = (-1) ** (i + j) * np.linalg.det(rest)
    return array


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


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_det_of_a_regular_matrix_beside_one_that_is_not_finite(bad: float) -> None:
    """The determinant was taken for every cofactor of the whole stack."""
    regular = np.random.default_rng(0).normal(size=(3, 3)) + 3 * np.eye(3)
    stack = np.stack([regular, np.full((3, 3), bad)])
    with np.errstate(invalid="ignore"):
        gradient = adarray.grad(lambda a: np.linalg.det(a)[0])(stack)
        _, tangent = adarray.jvp(lambda a: np.linalg.det(a)[0], (stack,), (np.ones((2, 3, 3)),))
        second = adarray.hessian(lambda a: np.linalg.det(a)[0])(stack)[0, :, :, 0]
    expected = np.linalg.det(regular) * np.linalg.inv(regular).T
    np.testing.assert_allclose(gradient[0], expected, rtol=1e-12)
    np.testing.assert_allclose(tangent, np.sum(expected), rtol=1e-12)
    alone = adarray.hessian(np.linalg.det)(regular)
    np.testing.assert_allclose(second, alone, rtol=1e-10, atol=1e-12)


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


def test_traced_orders() -> None:
    x = normal(4)
    check_grads(lambda a, p: np.linalg.norm(a, p), (x, 2.0))
    check_grads(lambda a, p: np.linalg.vector_norm(a * p, ord=p), (x, 2.5))
    with pytest.raises(NotDifferentiableError) as caught:
        adarray.grad(lambda p: np.linalg.norm(p * SINGULAR, p))(2.0)
    assert str(caught.value) == (
        "norm: the order of a matrix norm, ord, is traced; pass adarray.value_of(ord)"
    )
    with pytest.raises(NotDifferentiableError) as caught:
        adarray.grad(lambda p: np.linalg.cond(p * SINGULAR, p))(2.0)
    assert str(caught.value) == "cond: the order p is traced; pass adarray.value_of(p)"


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

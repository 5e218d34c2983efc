# ruff: noqa: N803, N806 - matrices have capital letters
"""`adarray.scipy.sparse` against dense arrays and SciPy, and derivatives against differences."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("scipy")
import scipy.sparse as theirs
import scipy.sparse.linalg as their_linalg

import adarray
import adarray.scipy.sparse as ours
import adarray.scipy.sparse.linalg as linalg
from adarray import ADArray, NotDifferentiableError, TraceError
from adarray.scipy import RECORDS
from adarray.testing import check_grads, opcheck

rng = np.random.default_rng(4)
DENSE = rng.normal(size=(4, 5)) * (rng.uniform(size=(4, 5)) < 0.5)
ROWS, COLS = np.nonzero(DENSE)
DATA = DENSE[ROWS, COLS]
OTHER = theirs.csr_array(rng.normal(size=(4, 5)) * (rng.uniform(size=(4, 5)) < 0.5))
SQUARE = rng.normal(size=(5, 5)) * (rng.uniform(size=(5, 5)) < 0.5) + 4 * np.eye(5)
X, XS = rng.normal(size=5), rng.normal(size=(5, 3))
B = rng.normal(size=4)
FORMATS = ("csr", "csc", "coo")
KINDS = ("array", "matrix")


def _make(fmt: str, kind: str) -> Callable[[Any], Any]:
    """Return the function from the nonzeros, by rows, to a sparse array."""
    member = getattr(ours, f"{fmt}_{kind}")
    return lambda data: member((data, (ROWS, COLS)), shape=(4, 5))


# Operations on a matrix and a vector or matrix; the result is dense or sparse.
CALLS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "A @ x": lambda A, x, xs: A @ x,
    "A @ X": lambda A, x, xs: A @ xs,
    "A.dot": lambda A, x, xs: A.dot(x),
    "x @ A": lambda A, x, xs: x[:4] @ A,
    "X @ A": lambda A, x, xs: xs[:4].T @ A,
    "A.T @ x": lambda A, x, xs: A.T @ x[:4],
    "A.transpose()": lambda A, x, xs: A.transpose() @ xs[:4],
    "A @ B": lambda A, x, xs: A @ ours.csc_array(OTHER.T),
    "A @ A.T": lambda A, x, xs: A @ A.T,
    "A + B": lambda A, x, xs: A + ours.csr_array(OTHER),
    "A - B": lambda A, x, xs: A - OTHER,
    "B - A": lambda A, x, xs: ours.csr_array(OTHER) - A,
    "A + dense": lambda A, x, xs: A + xs[:4, :1] * x,
    "scalar": lambda A, x, xs: x[0] * A * 2.0,
    "A / scalar": lambda A, x, xs: A / x[1],
    "-A": lambda A, x, xs: -A,
    "multiply": lambda A, x, xs: A.multiply(x),
    "multiply column": lambda A, x, xs: A.multiply(xs[:4, :1]),
    "multiply sparse": lambda A, x, xs: A.multiply(ours.csr_array(OTHER)),
    "power": lambda A, x, xs: A.power(2),
    "abs": lambda A, x, xs: abs(A),
    "sum": lambda A, x, xs: A.sum(),
    "sum 0": lambda A, x, xs: A.sum(axis=0),
    "sum 1": lambda A, x, xs: A.sum(axis=-1),
    "mean": lambda A, x, xs: A.mean(axis=0),
    "diagonal": lambda A, x, xs: A.diagonal(),
    "diagonal 1": lambda A, x, xs: A.diagonal(1),
    "diagonal -2": lambda A, x, xs: A.diagonal(-2),
    "trace": lambda A, x, xs: A.trace(),
    "toarray": lambda A, x, xs: A.toarray(),
    "tocsr": lambda A, x, xs: A.tocsr(),
    "tocsc": lambda A, x, xs: A.tocsc(),
    "tocoo": lambda A, x, xs: A.tocoo(),
    "rows": lambda A, x, xs: A.tocsr()[1:3],
    "columns": lambda A, x, xs: A.tocsc()[:, [0, 2]],
    "element": lambda A, x, xs: A.tocsr()[int(ROWS[1]), int(COLS[1])],
    "mask": lambda A, x, xs: A.tocsr()[np.array([True, False, True, False])],
    "reshape": lambda A, x, xs: A.reshape((2, 10)),
    "copy": lambda A, x, xs: A.copy(),
    "hstack": lambda A, x, xs: ours.hstack([A, OTHER, A]),
    "vstack": lambda A, x, xs: ours.vstack([A, OTHER]),
    "block_diag": lambda A, x, xs: ours.block_diag([A, OTHER]),
    "tril": lambda A, x, xs: ours.tril(A),
    "triu": lambda A, x, xs: ours.triu(A, k=1),
    "kron": lambda A, x, xs: ours.kron(A, OTHER[:2, :2]),
    "find": lambda A, x, xs: ours.find(A)[2],
}


def _dense(r: Any) -> Any:
    return r.toarray() if theirs.issparse(r) else r


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("kind", KINDS)
def test_operations(name: str, fmt: str, kind: str) -> None:
    make, call = _make(fmt, kind), CALLS[name]

    def f(data: Any, x: Any, xs: Any) -> Any:
        return _dense(call(make(data), x, xs))

    plain = getattr(theirs, f"{fmt}_{kind}")((DATA, (ROWS, COLS)), shape=(4, 5))
    expected = np.asarray(_dense(call(plain, X, XS)))
    traced, _ = adarray.vjp(f, DATA, X, XS)
    np.testing.assert_allclose(np.reshape(traced, expected.shape), expected, atol=1e-13)
    mine = _dense(call(make(DATA), X, XS))
    np.testing.assert_allclose(np.asarray(mine), expected, atol=1e-13)
    if kind == "array":
        assert np.shape(mine) == np.shape(traced)
    check_grads(f, (DATA, X, XS))


@pytest.mark.parametrize("op", [n for n in RECORDS if n.startswith("scipy.sparse.")])
@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["float64", "float32"])
def test_records(op: str, dtype: type) -> None:
    opcheck(op, "numpy", dtype)


def test_forms_of_construction() -> None:
    def products(data: Any, x: Any) -> Any:
        ordered = theirs.csr_array((DATA, (ROWS, COLS)), shape=(4, 5))
        yield ours.csr_array((data, (ROWS, COLS)), shape=(4, 5)) @ x
        yield ours.csr_array((data, ordered.indices, ordered.indptr), shape=(4, 5)) @ x
        yield ours.csc_array(ours.csr_array((data, (ROWS, COLS)), shape=(4, 5))) @ x
        yield ours.coo_array(ours.csr_matrix((data, (ROWS, COLS)), shape=(4, 5)).toarray()) @ x
        yield ours.csr_array([*data[:1], *data[1:]] and (data, (ROWS, COLS)), shape=(4, 5)) @ x

    check_grads(lambda d, x: list(products(d, x)), (DATA, X))


def test_repeated_positions_add() -> None:
    rows, cols = np.array([0, 1, 0, 1]), np.array([1, 0, 1, 1])
    data = np.array([1.0, 2.0, 3.0, 4.0])
    for fmt in FORMATS:
        member = getattr(ours, f"{fmt}_array")

        def dense(d: Any, result: Any = member) -> Any:
            A = result((d, (rows, cols)), shape=(2, 2))
            return A.toarray(), A.tocsr().power(2).toarray(), A.multiply(A).toarray(), A.diagonal(1)

        expected = np.array([[0.0, 4.0], [2.0, 4.0]])
        np.testing.assert_array_equal(adarray.vjp(dense, data)[0][1], expected**2)
        check_grads(dense, (data,))


def test_scipys_methods_on_traced_nonzeros() -> None:
    """What SciPy computes with NumPy functions of the nonzeros differentiates by itself."""
    check_grads(lambda d: _make("csr", "array")(d).max(), (DATA,), order=1)
    check_grads(lambda d: _make("csr", "array")(d).sin().toarray(), (DATA,), order=1)


def test_diagonals() -> None:
    def f(d: Any, e: Any) -> Any:
        A = ours.diags_array([d, e], offsets=[0, -1])
        M = ours.diags([d, e], [0, 1], shape=(4, 4), format="csc")
        return A @ X[:4], M.toarray()

    d, e = X[:4], X[:3]
    expected = theirs.diags_array([d, e], offsets=[0, -1]) @ X[:4]
    np.testing.assert_allclose(adarray.vjp(f, d, e)[0][0], expected)
    check_grads(f, (d, e))


def test_plain_values_are_scipys() -> None:
    A, mine = theirs.csr_array(DENSE), ours.csr_array(DENSE)
    assert isinstance(mine, theirs.csr_array)
    assert ours.issparse(mine)
    np.testing.assert_array_equal((A @ A.T).toarray(), (mine @ mine.T).toarray())
    for result in (mine + mine, mine * 2, mine.T, mine[1:], mine.tocsc(), ours.eye_array(3),
                 ours.hstack([mine, mine]), ours.random_array((3, 3), density=0.5)):  # fmt: skip
        assert type(result).__module__.startswith("adarray.scipy.sparse")
        assert isinstance(result.data, np.ndarray)
    assert type(mine.sum(axis=0)) is np.ndarray
    back = pickle.loads(pickle.dumps(mine))
    np.testing.assert_array_equal(back.toarray(), DENSE)
    np.testing.assert_array_equal((mine @ ADArray(X)).numpy(), A @ X)


def test_scipys_own_arrays_raise() -> None:
    A = theirs.csr_array(DENSE)
    for f in (lambda x: A.multiply(x), lambda x: A * x):  # products: test_sparse_plain.py
        with pytest.raises(TraceError, match=r"adarray\.scipy\.sparse"):
            adarray.grad(lambda x, f=f: f(x).sum())(X)


def test_what_has_no_rule_raises() -> None:
    with pytest.raises((TraceError, NotDifferentiableError)):
        adarray.grad(lambda d: _make("csr", "array")(d).todia().data.sum())(DATA)
    with pytest.raises(NotDifferentiableError, match="quotient of two sparse arrays"):
        adarray.grad(lambda d: (_make("csr", "array")(d) / ours.csr_array(OTHER)).sum())(DATA)
    with pytest.raises(NotImplementedError, match="adding a nonzero scalar"):
        adarray.grad(lambda d: (_make("csr", "array")(d) + 1.0).sum())(DATA)
    with pytest.raises(ValueError, match="dimension mismatch"):
        adarray.grad(lambda d: (_make("csr", "array")(d) @ B).sum())(DATA)


# -- linalg -----------------------------------------------------------------------------------

_R, _C = np.nonzero(SQUARE)
_D = SQUARE[_R, _C]
SYMMETRIC = SQUARE @ SQUARE.T


def _square(data: Any) -> Any:
    return ours.csc_array((data, (_R, _C)), shape=(5, 5))


def test_spsolve() -> None:
    for b in (X, XS, X[:, None]):
        expected = their_linalg.spsolve(theirs.csc_array(SQUARE), b)
        got = adarray.vjp(lambda d, b: linalg.spsolve(_square(d), b), _D, b)[0]
        assert got.shape == expected.shape
        np.testing.assert_allclose(got, expected)
        check_grads(lambda d, b: linalg.spsolve(_square(d), b), (_D, b))
    check_grads(lambda b: linalg.spsolve(theirs.csr_array(SQUARE), b), (X,))
    g = adarray.grad(lambda a: linalg.spsolve(a, X).sum())(SQUARE)
    dense = adarray.grad(lambda a: np.linalg.solve(a, X).sum())(SQUARE)
    np.testing.assert_allclose(g, np.where(SQUARE != 0, dense, 0.0))


def test_factors() -> None:
    def f(d: Any, b: Any) -> Any:
        lu = linalg.splu(_square(d))
        return lu.solve(b), lu.solve(b, "T"), linalg.factorized(_square(d))(b)

    expected = np.linalg.solve(SQUARE, X), np.linalg.solve(SQUARE.T, X), np.linalg.solve(SQUARE, X)
    for a, b in zip(adarray.vjp(f, _D, X)[0], expected, strict=True):
        np.testing.assert_allclose(a, b)
    check_grads(f, (_D, X))
    assert linalg.splu(_square(_D)).shape == (5, 5)
    complex_a = SQUARE + 0.3j * np.triu(SQUARE)
    rows, cols = np.nonzero(complex_a)

    def h(d: Any, b: Any) -> Any:
        a = ours.csc_array((d, (rows, cols)), shape=(5, 5))
        return linalg.splu(a).solve(b, "H")

    z = X + 1j
    got = adarray.vjp(h, complex_a[rows, cols], z)[0]
    np.testing.assert_allclose(got, np.linalg.solve(complex_a.conj().T, z))
    check_grads(h, (complex_a[rows, cols], z))


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("unit", [True, False])
def test_spsolve_triangular(lower: bool, unit: bool) -> None:
    part = np.tril(SQUARE) if lower else np.triu(SQUARE)
    rows, cols = (i.astype(np.int32) for i in np.nonzero(part))

    def f(d: Any, b: Any) -> Any:
        a = ours.csr_array((d, (rows, cols)), shape=(5, 5))
        return linalg.spsolve_triangular(a, b, lower=lower, unit_diagonal=unit)

    data = part[rows, cols]
    if unit:
        part = part - np.diag(np.diag(part)) + np.eye(5)
    for b in (X, XS):
        np.testing.assert_allclose(adarray.vjp(f, data, b)[0], np.linalg.solve(part, b))
        check_grads(f, (data, b))


@pytest.mark.parametrize(
    "name",
    ["cg", "cgs", "bicg", "bicgstab", "gmres", "lgmres", "minres", "qmr", "tfqmr", "gcrotmk"],
)
def test_iterative(name: str) -> None:
    dense = SYMMETRIC if name in ("cg", "minres") else SQUARE
    rows, cols = np.nonzero(dense)
    solver = getattr(linalg, name)
    options: dict[str, Any] = {"rtol": 1e-13}
    if name not in ("minres",):
        options["atol"] = 1e-14

    def f(d: Any, b: Any) -> Any:
        if name in ("cg", "minres"):  # they read a symmetric matrix
            a = ours.csr_array((d, (rows, cols)), shape=(5, 5))
            a = (a + a.T) * 0.5
        else:
            a = ours.csr_array((d, (rows, cols)), shape=(5, 5))
        x, info = solver(a, b, **options)
        assert info == 0
        return x

    np.testing.assert_allclose(
        adarray.vjp(f, dense[rows, cols], X)[0], np.linalg.solve(dense, X), rtol=1e-7
    )
    check_grads(f, (dense[rows, cols], X), order=1, rtol=1e-5, atol=1e-6)


def test_iterative_with_preconditioner_and_callback() -> None:
    M = np.linalg.inv(np.tril(SQUARE))
    seen = []

    def f(b: Any) -> Any:
        return linalg.bicgstab(
            _square(_D), b, x0=np.ones(5), rtol=1e-13, M=M, callback=seen.append
        )[0]

    check_grads(f, (X,), order=1)
    assert seen
    with pytest.raises(NotDifferentiableError, match="cg: a LinearOperator is not differentiated"):
        adarray.grad(lambda b: linalg.cg(their_linalg.aslinearoperator(SYMMETRIC), b)[0].sum())(X)


def test_expm_multiply() -> None:
    def f(d: Any, b: Any) -> Any:
        return linalg.expm_multiply(_square(d) * -0.4, b)

    expected = their_linalg.expm_multiply(theirs.csc_array(SQUARE) * -0.4, X)
    np.testing.assert_allclose(adarray.vjp(f, _D, X)[0], expected, rtol=1e-12)
    check_grads(f, (_D, X))

    def series(d: Any, b: Any) -> Any:
        return linalg.expm_multiply(_square(d), b, start=0.1, stop=0.5, num=3)

    expected = their_linalg.expm_multiply(theirs.csc_array(SQUARE), XS, 0.1, 0.5, 3)
    np.testing.assert_allclose(adarray.vjp(series, _D, XS)[0], expected, rtol=1e-12)
    check_grads(series, (_D, XS), order=1)


def test_norm() -> None:
    for order in (None, 1, np.inf):
        expected = their_linalg.norm(theirs.csc_array(SQUARE), order)
        got = adarray.vjp(lambda d, order=order: linalg.norm(_square(d), order), _D)[0]
        np.testing.assert_allclose(got, expected)
        check_grads(lambda d, order=order: linalg.norm(_square(d), order), (_D,))


def test_single_precision_stays_single() -> None:
    d, x = _D.astype(np.float32), X.astype(np.float32)
    for f in (lambda a, x: a @ x, linalg.spsolve):
        g = adarray.grad(lambda d, x, f=f: f(_square(d), x).sum(), argnums=(0, 1))(d, x)
        assert [v.dtype for v in g] == [np.float32, np.float32]


def test_namespaces_are_scipys() -> None:
    for name in theirs.__all__:
        assert getattr(ours, name) is not None
    for name in their_linalg.__all__:
        assert getattr(linalg, name) is not None
    assert ours.linalg is linalg

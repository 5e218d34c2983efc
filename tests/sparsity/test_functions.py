"""sparse_jacobian and sparse_hessian: values, paths, structure, and what they refuse."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import adarray
from adarray.errors import DTypeError, NotDifferentiableError, ShapeError
from adarray.sparsity import evaluation

sparse = pytest.importorskip("scipy.sparse")

X = np.array([0.3, 0.7, 1.1, -0.4, 0.9])


@pytest.fixture(autouse=True)
def engine(backend: str) -> Iterator[None]:
    """Run each test on one backend."""
    with adarray.use(backend):
        yield


def neighbours(x: Any) -> Any:
    return np.sin(x[1:]) ** 2 * x[:-1]


def rosenbrock(x: Any) -> Any:
    return np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


def wide(x: Any) -> Any:
    """Return something of which the Hessian has five diagonals."""
    return np.sum(x[2:] ** 2 * x[:-2] ** 3) + np.sum(np.exp(x[1:] * x[:-1]))


def branching(x: Any) -> Any:
    if x[0] > 0.0:
        return x**2
    return x[::-1] * x


@pytest.mark.parametrize("jit", [True, False])
@pytest.mark.parametrize("mode", ["auto", "forward", "reverse"])
def test_jacobians(mode: str, jit: bool) -> None:
    prepared = adarray.sparse_jacobian(neighbours, mode=mode, jit=jit).prepare(X)
    for x in (X, 2.0 * X, X, -X):
        result = prepared(x)
        assert isinstance(result, sparse.csr_array)
        np.testing.assert_allclose(result.toarray(), adarray.jacobian(neighbours)(x))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("jit", [True, False])
@pytest.mark.parametrize("recovery", ["direct", "substitution"])
@pytest.mark.parametrize("f", [rosenbrock, wide])
def test_hessians(f: Any, recovery: str, jit: bool) -> None:
    prepared = adarray.sparse_hessian(f, recovery=recovery, jit=jit).prepare(X)
    for x in (X, 2.0 * X, X, -X):
        np.testing.assert_allclose(prepared(x).toarray(), adarray.hessian(f)(x), atol=1e-10)


@pytest.mark.parametrize("jit", [True, False])
def test_another_path_has_another_pattern(jit: bool) -> None:
    prepared = adarray.sparse_jacobian(branching, jit=jit).prepare(X)
    for sign in (1.0, -1.0, 1.0, 1.0, -1.0, -1.0, 1.0, -1.0):
        actual = prepared(sign * X)
        np.testing.assert_allclose(actual.toarray(), adarray.jacobian(branching)(sign * X))
        assert actual.nnz == (5 if sign > 0 else 9)
    assert prepared.pattern.nnz == 9


@pytest.mark.slow_on("openmp")
@pytest.mark.parametrize("jit", [True, False])
def test_loops_that_end_by_values(jit: bool) -> None:
    def f(x: Any) -> Any:
        y = x
        while np.sum(y) < 20.0:
            y = y + np.roll(y, 1)
        return y

    prepared = adarray.sparse_jacobian(f, jit=jit).prepare(np.full(7, 1.0))
    for start in (1.0, 2.0, 3.0, 1.0, 2.0, 3.0, 1.0, 0.5):
        x = np.full(7, start)
        np.testing.assert_allclose(prepared(x).toarray(), adarray.jacobian(f)(x))


@pytest.mark.slow_on("openmp")
@pytest.mark.parametrize("jit", [True, False])
def test_captured_values_may_change(jit: bool) -> None:
    matrix = np.eye(4)
    state = {"shift": 1, "scale": 0.5, "matrix": matrix}

    def f(x: Any) -> Any:
        return state["scale"] * np.roll(state["matrix"] @ x, state["shift"]) ** 2

    x = np.arange(1.0, 5.0)
    prepared = adarray.sparse_jacobian(f, jit=jit).prepare(x)

    def check() -> None:
        for _ in range(3):
            np.testing.assert_allclose(prepared(x).toarray(), adarray.jacobian(f)(x))

    check()
    for scale in (0.25, 0.125, 3.0):
        state["scale"] = scale
        check()
    state["shift"] = 2
    check()
    matrix[0, 3] = 2.0
    check()
    state["matrix"] = np.ones((4, 4))
    check()
    assert prepared.pattern.nnz == 16


@pytest.mark.parametrize("jit", [True, False])
def test_paths_rely_on_what_they_read(jit: bool) -> None:
    """Two paths have one pattern; a captured index of one of them changes afterwards."""
    index = np.array([0, 1, 2, 3, 4])

    def f(x: Any) -> Any:
        if x[0] > 0.0:
            return np.sin(x[index])
        return x**2

    prepared = adarray.sparse_jacobian(f, jit=jit).prepare(X)
    for _ in range(3):
        for x in (X, -X):
            np.testing.assert_allclose(prepared(x).toarray(), adarray.jacobian(f)(x))
    index[:] = [1, 0, 3, 3, 4]
    for x in (X, -X, X, X):
        np.testing.assert_allclose(prepared(x).toarray(), adarray.jacobian(f)(x))


@pytest.mark.parametrize("jit", [True, False])
def test_indices_may_be_arguments(jit: bool) -> None:
    def f(x: Any, index: Any) -> Any:
        return x[index] * x[:3]

    prepared = adarray.sparse_jacobian(f, jit=jit).prepare(X, np.array([4, 4, 0]))
    for index in ([4, 4, 0], [1, 2, 3], [4, 4, 0], [0, 1, 2]):
        actual = prepared(X, np.array(index)).toarray()
        np.testing.assert_allclose(actual, adarray.jacobian(f)(X, np.array(index)))


def test_zeros_of_other_arguments_are_no_zeros_of_the_pattern() -> None:
    """They change more often than captured arrays, and the pattern would be found again."""
    prepared = adarray.sparse_jacobian(lambda x, a: a @ x, jit=False).prepare(X[:2], np.eye(2))
    assert prepared.pattern.nnz == 4
    np.testing.assert_array_equal(prepared(X[:2], np.ones((2, 2))).toarray(), np.ones((2, 2)))


def test_the_structure_is_shared_and_read_only() -> None:
    prepared = adarray.sparse_jacobian(neighbours).prepare(X)
    one, other = prepared(X), prepared(2.0 * X)
    assert one.indices is other.indices or np.shares_memory(one.indices, other.indices)
    assert not np.shares_memory(one.data, other.data)
    with pytest.raises(ValueError, match="read-only"):
        one.indices[0] = 1
    copy = one.copy()
    copy.indices[0] = 1
    square = adarray.sparse_hessian(rosenbrock)(X)
    solved = pytest.importorskip("scipy.sparse.linalg").spsolve(square.tocsc(), np.ones(5))
    np.testing.assert_allclose(square @ solved, np.ones(5))
    np.testing.assert_allclose((one @ one.T + 2.0 * one @ one.T).toarray(),
                               3.0 * one.toarray() @ one.toarray().T)  # fmt: skip


def test_coordinates() -> None:
    matrix = adarray.sparse_jacobian(neighbours, format="coo")(X)
    assert isinstance(matrix, sparse.coo_array)
    np.testing.assert_allclose(matrix.toarray(), adarray.jacobian(neighbours)(X))


def test_attributes() -> None:
    prepared = adarray.sparse_jacobian(neighbours).prepare(X)
    assert prepared.pattern.dtype == bool
    assert prepared.colors.tolist() == [0, 1, 0, 1, 0]
    assert (prepared.n_colors, prepared.mode, prepared.shape) == (2, "forward", (4, 5))
    assert repr(prepared) == (
        "<prepared sparse_jacobian: 4 by 5, 8 entries, 2 colours, forward mode>"
    )


def test_a_plain_call_prepares_once_for_each_shape() -> None:
    jacobian = adarray.sparse_jacobian(neighbours, jit=False)
    for n in (3, 5, 3):
        assert jacobian(np.ones(n)).shape == (n - 1, n)
    assert len(jacobian._prepared) == 2


def test_nests_and_several_arguments() -> None:
    def f(w: Any, x: Any) -> Any:
        return w["a"] * x[:3] + w["b"] * x[0]

    w, x = {"a": np.array([1.0, 2.0, 3.0]), "b": 0.5, "kind": "linear"}, X
    matrix = adarray.sparse_jacobian(f, jit=False)(w, x)
    np.testing.assert_allclose(matrix["a"].toarray(), np.diag(x[:3]))
    np.testing.assert_allclose(matrix["b"].toarray(), np.full((3, 1), x[0]))
    assert matrix["kind"] is None
    by_w, by_x = adarray.sparse_jacobian(f, argnums=("w", "x"), jit=False)(w, x=x)
    assert by_w["a"].shape == (3, 3)
    np.testing.assert_allclose(by_x.toarray()[:, 1], [0.0, 2.0, 0.0])

    def loss(w: Any, x: Any) -> Any:
        return np.sum(f(w, x) ** 2)

    hessian = adarray.sparse_hessian(loss, jit=False)(w, x)
    np.testing.assert_allclose(hessian["a"]["b"].toarray()[:, 0], 2.0 * x[:3] * x[0])
    blocks = adarray.sparse_hessian(loss, argnums=(1, 0), jit=False)(w, x)
    np.testing.assert_allclose(blocks[0][1]["a"].toarray(), hessian_of_both(loss, w, x))


def hessian_of_both(loss: Any, w: Any, x: np.ndarray) -> np.ndarray:
    """Return the mixed derivatives by `x` and ``w["a"]``."""
    return np.asarray(adarray.hessian(loss, argnums=(1, 0))(w, x)[0][1]["a"])


def test_float32() -> None:
    matrix = adarray.sparse_jacobian(neighbours)(X.astype(np.float32))
    assert matrix.dtype == np.float32


def test_results_of_any_shape_and_jitted_functions() -> None:
    f = adarray.jit(lambda x: np.outer(x, x[:2]))
    for _ in range(3):
        matrix = adarray.sparse_jacobian(f)(X)
        assert matrix.shape == (10, 5)
        np.testing.assert_allclose(matrix.toarray(), adarray.jacobian(f)(X).reshape(10, 5))
    scalar = adarray.sparse_jacobian(lambda x: x[0] * x[1], jit=False)(X)
    assert scalar.shape == (1, 5)
    constant = adarray.sparse_jacobian(lambda x: np.ones(3))(X)
    assert constant.nnz == 0


def test_a_given_pattern_is_taken() -> None:
    pattern = np.eye(4, 5, dtype=bool) | np.eye(4, 5, 1, dtype=bool)
    matrix = adarray.sparse_jacobian(neighbours, pattern=pattern)(X)
    np.testing.assert_allclose(matrix.toarray(), adarray.jacobian(neighbours)(X))
    with pytest.raises(ShapeError, match=r"pattern has shape \(5, 4\) and the matrix \(4, 5\)"):
        adarray.sparse_jacobian(neighbours, pattern=pattern.T)(X)


@pytest.mark.parametrize("mode", ["forward", "reverse"])
@pytest.mark.parametrize("argnums", [0, "x", (0, 1)])
def test_entries_that_a_given_pattern_lacks_are_missed(mode: str, argnums: Any) -> None:
    """Their values went into other entries."""

    def f(x: Any, p: Any) -> Any:
        return neighbours(x) * p["scale"]

    p = {"scale": np.array([1.0, 2.0, 3.0, 0.5]), "n": 3}
    whole = np.eye(4, 5, dtype=bool) | np.eye(4, 5, 1, dtype=bool)
    lacking = whole.copy()
    lacking[2, 3] = False
    if argnums == (0, 1):
        whole, lacking = (np.hstack([m, np.eye(4, dtype=bool)]) for m in (whole, lacking))
    how = {"argnums": argnums, "mode": mode}
    options = {"x": X, "p": p} if argnums == "x" else {}
    args = () if options else (X, p)
    adarray.sparse_jacobian(f, pattern=whole, **how)(*args, **options)
    with pytest.raises(ValueError, match=r"given pattern lacks entries .* shows in row"):
        adarray.sparse_jacobian(f, pattern=lacking, **how)(*args, **options)
    adarray.sparse_jacobian(f, pattern=lacking, check=False, **how)(*args, **options)


@pytest.mark.parametrize("recovery", ["direct", "substitution"])
def test_entries_that_the_pattern_of_a_hessian_lacks_are_missed(recovery: str) -> None:
    def f(x: Any) -> Any:
        return np.sum(x[1:] * x[:-1] ** 2)

    whole = np.eye(5, dtype=bool) | np.eye(5, k=1, dtype=bool)
    matrix = adarray.sparse_hessian(f, recovery=recovery, pattern=whole)(X)
    np.testing.assert_allclose(matrix.toarray(), adarray.hessian(f)(X))
    whole[1, 2] = False
    with pytest.raises(ValueError, match=r"sparse_hessian: the given pattern lacks entries"):
        adarray.sparse_hessian(f, recovery=recovery, pattern=whole)(X)


@pytest.mark.slow_on("openmp")
@pytest.mark.parametrize("small", [0, 1 << 16], ids=["in blocks", "as one batch"])
def test_many_colours(small: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "_SMALL", small)

    def f(x: Any) -> Any:
        return np.concatenate([x * np.sum(x[:9]), np.exp(x[:9]) * x[9:18]])

    x = np.linspace(0.1, 1.0, 20)
    for mode in ("forward", "reverse"):
        prepared = adarray.sparse_jacobian(f, mode=mode).prepare(x)
        assert prepared.n_colors > 8
        for _ in range(3):
            np.testing.assert_allclose(prepared(x).toarray(), adarray.jacobian(f)(x))

    def g(x: Any) -> Any:
        return np.sum(x[:9]) ** 2 * np.sum(x[9:]) + np.sum(x**3)

    for recovery in ("direct", "substitution"):
        matrix = adarray.sparse_hessian(g, recovery=recovery)(x)
        np.testing.assert_allclose(matrix.toarray(), adarray.hessian(g)(x))


@pytest.mark.parametrize("jit", [True, False])
def test_directions_that_no_batch_can_be(jit: bool) -> None:
    """Many colours of a small nest, and a function whose rule cannot be batched."""

    @adarray.custom_jvp
    def told(x: Any) -> Any:
        return np.sin(x)

    @told.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        (x,), (t,) = primals, tangents
        if type(t).__module__.startswith("adarray.batching"):
            raise TypeError("one direction at a time")
        return np.sin(x), np.cos(x) * t

    def f(p: Any) -> Any:
        return np.concatenate([told(p["x"]) * np.sum(p["y"]), np.cumsum(p["y"]) * np.sum(p["x"])])

    p = {"x": np.linspace(0.1, 1.0, 6), "y": np.linspace(1.0, 2.0, 7)}
    for mode in ("forward", "reverse"):
        prepared = adarray.sparse_jacobian(f, mode=mode, jit=jit).prepare(p)
        assert prepared.n_colors == 13
        expected = adarray.jacobian(f)(p)
        for name, result in prepared(p).items():
            np.testing.assert_allclose(result.toarray(), expected[name])


def arrow(x: Any) -> Any:
    """Return a dense row, and a dense column beside the diagonal."""
    return np.concatenate([[np.sum(x**2)], x[1:] ** 2 * x[0] + x[1:]])


@pytest.mark.parametrize("jit", [True, False])
@pytest.mark.parametrize("mode", ["auto", "both"])
def test_dense_rows_and_columns(mode: str, jit: bool) -> None:
    x = np.linspace(1.0, 2.0, 30)
    prepared = adarray.sparse_jacobian(arrow, mode=mode, jit=jit).prepare(x)
    assert (prepared.n_colors, prepared.mode) == (3, "both")
    assert [c.size for c in prepared.colors] == [30, 30]
    assert "3 colours, both mode" in repr(prepared)
    for _ in range(3):
        x = x + 0.1
        np.testing.assert_allclose(prepared(x).toarray(), adarray.jacobian(arrow)(x))
    assert adarray.sparse_jacobian(arrow, mode="forward").prepare(x).n_colors == 30
    # Nothing to divide: as "auto".
    assert adarray.sparse_jacobian(np.square, mode="both").prepare(X).n_colors == 1


def test_another_path_of_both_modes() -> None:
    def f(x: Any) -> Any:
        return arrow(x) if x[1] > 0.0 else arrow(x)[::-1]

    prepared = adarray.sparse_jacobian(f).prepare(np.linspace(1.0, 2.0, 12))
    for sign in (1.0, -1.0, 1.0, -1.0):
        x = sign * np.linspace(1.0, 2.0, 12)
        np.testing.assert_allclose(prepared(x).toarray(), adarray.jacobian(f)(x))


def test_functions_with_a_rule_of_reverse_mode_alone() -> None:
    @adarray.custom_vjp
    def doubled(x: Any) -> Any:
        return x * 2.0

    doubled.defvjp(lambda x: (x * 2.0, None), lambda _, g: (g * 2.0,))
    f = lambda x: doubled(x) ** 2  # noqa: E731
    matrix = adarray.sparse_jacobian(f, mode="forward")(X)
    np.testing.assert_allclose(matrix.toarray(), np.diag(8.0 * X))


REFUSED = [
    (lambda: adarray.sparse_jacobian(lambda x: (x, x))(X), ShapeError,
     "sparse_jacobian: the function returned 2 leaves (ndarray, ndarray); return one array, for "
     "instance by np.concatenate of raveled parts"),
    (lambda: adarray.sparse_jacobian(lambda x: x * 1j)(X), DTypeError,
     "sparse_jacobian: the result has dtype complex128; return real floating point, for instance "
     "real and imaginary parts behind one another"),
    (lambda: adarray.sparse_jacobian(lambda x: x)(X * 1j), DTypeError,
     "sparse_jacobian: argument 0: has dtype complex128; pass real floating point, for instance "
     "real and imaginary parts behind one another"),
    (lambda: adarray.sparse_hessian(lambda x: x**2)(X), ShapeError,
     "sparse_hessian: the function returned shape (5,), not a scalar"),
    (lambda: adarray.sparse_jacobian(neighbours).prepare(X)(X[:3]), ShapeError,
     "sparse_jacobian: prepared for arguments of other shapes, dtypes or structure; call "
     "prepare(...) with arguments like these"),
    (lambda: adarray.sparse_jacobian(neighbours, mode="rows"), ValueError,
     "sparse_jacobian: mode 'rows'; one of 'auto', 'forward', 'reverse', 'both'"),
    (lambda: adarray.sparse_hessian(rosenbrock, recovery="none"), ValueError,
     "sparse_hessian: recovery 'none'; one of 'direct', 'substitution'"),
    (lambda: adarray.sparse_jacobian(neighbours, format="csc"), ValueError,
     "sparse_jacobian: format 'csc'; one of 'csr', 'coo'"),
    (lambda: adarray.sparse_jacobian(3.0), TypeError,
     "sparse_jacobian: expected a function, got float"),
    (lambda: adarray.sparse_jacobian(np.cumsum)(np.ones(100_000)), NotDifferentiableError,
     "sparse_jacobian: the pattern has about 5,000,050,000 entries, which is not sparse; use "
     "adarray.jacobian or hvp"),
    (lambda: adarray.sparse_jacobian(lambda x: x * time.time())(X), NotDifferentiableError,
     "so that the pattern is not known; pass pattern= if you know it"),
]  # fmt: skip


@pytest.mark.parametrize("k", range(len(REFUSED)))
def test_refusals(k: int) -> None:
    call, error, text = REFUSED[k]
    with pytest.raises(error) as raised:
        call()
    assert text in str(raised.value)


def test_traced_arguments_are_refused() -> None:
    def f(x: Any) -> Any:
        return np.sum(adarray.sparse_jacobian(neighbours)(x).data)

    with pytest.raises(NotDifferentiableError, match="is traced, and sparse matrices of"):
        adarray.grad(f)(X)

    with pytest.raises(NotDifferentiableError, match="is traced, and sparse matrices of SciPy"):
        adarray.vmap(f)(np.stack([X, X]))


def test_inside_of_jit_the_function_stays_eager() -> None:
    @adarray.jit
    def f(x: Any) -> Any:
        return np.sum(adarray.sparse_jacobian(neighbours, jit=False)(x).data)

    with pytest.warns(adarray.JitWarning, match="a sparse matrix of SciPy cannot be recorded"):
        first = f(X)
    np.testing.assert_allclose([first, f(X)], np.sum(adarray.jacobian(neighbours)(X)))


def test_scipy_may_be_missing() -> None:
    code = (
        "import sys; sys.modules['scipy'] = None\n"
        "import numpy as np, adarray\n"
        "try:\n"
        "    adarray.sparse_jacobian(np.sin)(np.ones(3))\n"
        "except ImportError as error:\n"
        "    print(error)\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout == (
        "sparse_jacobian: sparse matrices are those of SciPy, which is not installed; install it, "
        "for instance by pip install 'adarray[scipy]'\n"
    )

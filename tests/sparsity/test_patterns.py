"""Patterns of derivatives: what each operation couples, and nothing more where that is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from programs import as_tuple
from random_programs import seeded

import adarray

pytest.importorskip("scipy")

RNG = np.random.default_rng(0)
BAND = np.triu(np.tril(RNG.normal(size=(6, 6)), 1), -1)
WIDE = BAND[:4]
INDEX = np.array([5, 0, 0, 3, 2, 1])
MASK = np.array([1.0, 0.0, 1.0, 1.0, 0.0, 1.0])


def loop(x: Any) -> Any:
    y = np.zeros(6)
    for i in range(5):
        y[i] = x[i] * x[i + 1]
    return y


def shifted_in_place(x: Any) -> Any:
    y = x.copy()
    y[1:4] = 2.0 * y[:3]
    y[::2] += x[1::2]
    y *= x
    return y


def diffused(x: Any) -> Any:
    for _ in range(2):
        x = x + 0.1 * (np.roll(x, 1) - 2.0 * x + np.roll(x, -1))
    return x


def added_at(x: Any) -> Any:
    y = np.zeros(6)
    np.add.at(y, INDEX, x**2)
    return y


def written_at(x: Any) -> Any:
    y = np.sin(x)
    y[[0, 3]] = x[[1, 1]]
    return y


def complex_neighbours(x: Any) -> Any:
    z = x[:3] + 1j * x[3:]
    y = np.zeros(3, complex)
    y[1:] = z[:-1] * z[1:]
    return np.abs(y) ** 2


BLOCKS = 4.0 * np.eye(2) + RNG.normal(size=(3, 2, 2))


# Functions whose patterns are known exactly: the entries that differ from zero at some points.
EXACT: dict[str, Callable[[Any], Any]] = {
    "elementwise": lambda x: np.sin(x) * x,
    "neighbours": lambda x: x[1:] ** 2 * x[:-1],
    "reversed": lambda x: x * x[::-1],
    "rolled": lambda x: np.exp(np.roll(x, 2)),
    "both branches": lambda x: np.where(x > 0.0, x, np.roll(x, 1)),
    "maximum": lambda x: np.maximum(x, np.roll(x, 1)),
    "known branches": lambda x: np.where(MASK > 0.0, x, np.roll(x, 1)),
    "masked": lambda x: x * MASK,
    "matrix": lambda x: BAND @ x,
    "wide matrix": lambda x: WIDE @ x**2,
    "from the left": lambda x: x @ BAND,
    "of matrices": lambda x: (BAND @ x.reshape(6, 1) @ np.ones((1, 2))).ravel(),
    "einsum": lambda x: np.einsum("ij,j->i", BAND, x),
    "index": lambda x: x[INDEX],
    "transposed": lambda x: x.reshape(2, 3).T.ravel() * x,
    "rows": lambda x: np.sum(x.reshape(2, 3), axis=0),
    "products of rows": lambda x: np.prod(x.reshape(3, 2), axis=1),
    "sum": lambda x: np.sum(x[:3], keepdims=True),
    "running sum": np.cumsum,
    "mean taken off": lambda x: x[:2] - np.mean(x[2:4]),
    "joined": lambda x: np.concatenate([x[3:], 2.0 * x[:2], [1.0]]),
    "stacked": lambda x: np.stack([x, x[::-1]], axis=1),
    "padded": lambda x: np.pad(x, 1)[:-2],
    "differences": lambda x: np.diff(x, n=2),
    "constant steps": lambda x: np.floor(x) + x,
    "outer": lambda x: np.outer(x[:2], x[2:4]),
    "constant": lambda x: np.ones(3),
    "one number": lambda x: x[2] * x[4],
    "loop": loop,
    "in place": shifted_in_place,
    "stencil twice": diffused,
    "added at": added_at,
    "written at": written_at,
    "sorted rows": lambda x: np.sort(x.reshape(2, 3), axis=1),
    "complex": complex_neighbours,
    "imaginary parts": lambda x: (np.exp(1j * x)[::-1] * x).imag,
    "solves of a stack": lambda x: np.linalg.solve(BLOCKS, x.reshape(3, 2, 1)),
    "determinants": lambda x: np.linalg.det(np.stack([x.reshape(3, 2), x.reshape(3, 2) ** 2], 1)),
    "transforms of rows": lambda x: np.abs(np.fft.fft(x.reshape(2, 3))) ** 2,
    "medians of rows": lambda x: np.median(x.reshape(2, 3) ** 3, axis=1, keepdims=True),
    "norms of rows": lambda x: np.linalg.norm(x.reshape(3, 2), axis=1),
}


def entries(f: Callable[[Any], Any], x: np.ndarray) -> np.ndarray:
    """Return where the Jacobian differs from zero at some points near `x`."""
    results = [np.asarray(adarray.jacobian(f)(x + 3.0 * d)) for d in RNG.normal(size=(60, x.size))]
    return np.any([np.reshape(j, (-1, x.size)) != 0 for j in results], axis=0)


@pytest.mark.parametrize("name", EXACT)
def test_patterns_are_exact(name: str) -> None:
    x = RNG.normal(size=6)
    pattern = adarray.sparse_jacobian(EXACT[name], jit=False).prepare(x).pattern
    np.testing.assert_array_equal(pattern.toarray(), entries(EXACT[name], x))


def test_sparse_matrices_of_scipy() -> None:
    from adarray.scipy import sparse

    rows, _ = np.nonzero(BAND)
    matrix = sparse.csr_array(BAND)
    functions: list[Callable[[Any], Any]] = [
        lambda x: (matrix @ x) ** 2,
        lambda x: matrix.T @ (matrix @ x),
        lambda x: x @ matrix,
        lambda x: matrix @ np.stack([x, x**2], axis=1),
    ]
    for f in functions:
        x = RNG.normal(size=6)
        prepared = adarray.sparse_jacobian(f, jit=False).prepare(x)
        np.testing.assert_array_equal(prepared.pattern.toarray(), entries(f, x))
        expected = adarray.jacobian(f)(x).reshape(prepared.shape)
        np.testing.assert_allclose(prepared(x).toarray(), expected)

    def of_nonzeros(data: Any) -> Any:
        return sparse.csr_array((data, matrix.indices, matrix.indptr), shape=(6, 6)) @ np.ones(6)

    pattern = adarray.sparse_jacobian(of_nonzeros, jit=False).prepare(np.ones(rows.size)).pattern
    np.testing.assert_array_equal(pattern.toarray(), rows == np.arange(6)[:, None])


DENSE: dict[str, Callable[[Any], Any]] = {
    "solve": lambda x: np.linalg.solve(BAND + 4.0 * np.eye(6), x),
    "sort": np.sort,
    "places that depend on values": lambda x: x[np.argsort(x)],
    "fourier transform": lambda x: np.fft.fft(x).real,
}


@pytest.mark.parametrize("name", DENSE)
def test_what_is_not_known_is_dense(name: str) -> None:
    x = RNG.normal(size=6)
    prepared = adarray.sparse_jacobian(DENSE[name], jit=False).prepare(x)
    assert prepared.pattern.toarray().all()
    expected = adarray.jacobian(DENSE[name])(x)
    np.testing.assert_allclose(prepared(x).toarray(), expected, atol=1e-12)


def test_functions_that_couple_everything_are_named() -> None:
    prepared = adarray.sparse_jacobian(lambda x: np.convolve(x, [1.0, 2.0])).prepare(np.ones(3))
    assert repr(prepared) == (
        "<prepared sparse_jacobian: 4 by 3, 12 entries, 3 colours, forward mode, all depends on "
        "all in convolve>"
    )


def test_many_steps_of_a_stencil() -> None:
    """The band grows by one on each side, whatever terms it is made of."""

    def f(x: Any) -> Any:
        for _ in range(30):
            x = x + 0.1 * (np.roll(x, 1) - 2.0 * x + np.roll(x, -1))
        return x

    prepared = adarray.sparse_jacobian(f, jit=False).prepare(np.ones(200))
    assert np.unique(np.diff(prepared.pattern.indptr)).tolist() == [61]


def test_brusselator() -> None:
    """Each concentration depends on itself, four neighbours, and the other one in its place."""
    n = 10

    def f(u: Any) -> Any:
        a, b = u
        lap_a, lap_b = (
            np.roll(c, 1, 0) + np.roll(c, -1, 0) + np.roll(c, 1, 1) + np.roll(c, -1, 1) - 4.0 * c
            for c in (a, b)
        )
        return np.stack([1.0 + a * a * b - 4.4 * a + lap_a, 3.4 * a - a * a * b + lap_b])

    prepared = adarray.sparse_jacobian(f, jit=False).prepare(np.ones((2, n, n)))
    assert prepared.pattern.nnz == 2 * n * n * 6
    k = np.arange(n * n).reshape(n, n)
    rows = [k, np.roll(k, 1, 0), np.roll(k, -1, 0), np.roll(k, 1, 1), np.roll(k, -1, 1), k + n * n]
    expected = np.sort(np.stack([r.ravel() for r in rows], axis=1), axis=1)
    np.testing.assert_array_equal(prepared.pattern.indices[: 6 * n * n].reshape(-1, 6), expected)
    assert prepared.n_colors <= 12


def test_bundle_adjustment() -> None:
    """Residuals of an observation depend on one camera and one point."""
    cameras, points, observations = 4, 9, 30
    camera = RNG.integers(0, cameras, observations)
    point = RNG.integers(0, points, observations)

    def residuals(c: Any, p: Any, camera: Any, point: Any) -> Any:
        seen, transposed = c[camera], p[point]
        moved = np.cross(seen[:, :3], transposed) + transposed + seen[:, 3:6]
        return (seen[:, 6:7] * moved[:, :2] / (moved[:, 2:] + 9.0)).ravel()

    c, p = RNG.normal(size=(cameras, 7)), RNG.normal(size=(points, 3))
    prepared = adarray.sparse_jacobian(residuals, argnums=(0, 1), jit=False).prepare(
        c, p, camera, point
    )
    assert prepared.shape == (2 * observations, 7 * cameras + 3 * points)
    by_camera, by_point = prepared(c, p, camera, point)
    expected = adarray.jacobian(residuals, argnums=(0, 1))(c, p, camera, point)
    np.testing.assert_allclose(by_camera.toarray(), expected[0].reshape(by_camera.shape))
    np.testing.assert_allclose(by_point.toarray(), expected[1].reshape(by_point.shape))
    # Each residual: translation along its own axis and the line of sight, two turns, the focal
    # length, and the point's three coordinates; all of one camera and one point.
    assert np.unique(np.diff(prepared.pattern.indptr)).tolist() == [9]
    rows, columns = prepared.pattern.nonzero()
    of_camera = columns < 7 * cameras
    np.testing.assert_array_equal(columns[of_camera] // 7, camera[rows[of_camera] // 2])
    np.testing.assert_array_equal(
        (columns[~of_camera] - 7 * cameras) // 3, point[rows[~of_camera] // 2]
    )


def result_of(program: Any, k: int) -> Callable[..., Any]:
    """Return what a program returns as one array, as a function of its argument `k` alone."""
    f = program.function()

    def g(x: Any, *others: Any) -> Any:
        results = f(*others[:k], x, *others[k:])
        return np.concatenate([np.reshape(r, (-1,)) * 1.0 for r in as_tuple(results)])

    return g


@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_random_programs(mode: str) -> None:
    """Branches, loops, views and writes: the matrix is the dense Jacobian, on every path."""
    checked = 0
    for seed in range(60):
        program = seeded(seed, 8)
        floats = [i for i, a in enumerate(program.arguments) if a.dtype == "f8" and a.shape]
        if not floats:
            continue
        k = floats[0]
        g = result_of(program, k)
        sparse = adarray.sparse_jacobian(g, mode=mode, jit=False)
        for values in (seed, seed + 1000):
            args = program.args(values)
            x, others = args[k], [*args[:k], *args[k + 1 :]]
            with np.errstate(all="ignore"):
                actual = sparse(x, *others).toarray()
                expected = np.asarray(adarray.jacobian(g)(x, *others)).reshape(actual.shape)
            np.testing.assert_allclose(
                actual, expected, rtol=1e-4, atol=1e-6, err_msg=repr(program)
            )
            checked += 1
    assert checked > 40

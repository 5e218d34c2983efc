"""Colourings: in C as in Python, valid on random patterns, and few colours where few suffice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import adarray
from adarray.sparsity import bidirectional, coloring, greedy

sparse = pytest.importorskip("scipy.sparse")


def native() -> Any:
    library = coloring.library()
    if library is greedy:
        pytest.skip("the C module of colourings is not there")
    return library


def random_pattern(seed: int, m: int, n: int, symmetric: bool = False) -> Any:
    rng = np.random.default_rng(seed)
    dense = rng.random((m, n)) < rng.choice([0.05, 0.2, 0.5])
    if symmetric:
        dense |= dense.T
    pattern = sparse.csr_array(dense)
    return pattern.indptr.astype(np.int64), pattern.indices.astype(np.int32), dense


def band(n: int, width: int) -> Any:
    near = np.abs(np.arange(n)[:, None] - np.arange(n)) <= width
    pattern = sparse.csr_array(near)
    return pattern.indptr.astype(np.int64), pattern.indices.astype(np.int32)


def without_diagonal(dense: np.ndarray) -> Any:
    pattern = sparse.csr_array(dense & ~np.eye(len(dense), dtype=bool))
    return pattern.indptr.astype(np.int64), pattern.indices.astype(np.int32)


@pytest.mark.parametrize("seed", range(12))
def test_c_is_as_python(seed: int) -> None:
    lib = native()
    start, at, _ = random_pattern(seed, 20, 30)
    down = coloring.transposed((start, at), 30)[:2]
    order = np.random.default_rng(seed).permutation(30).astype(np.int32)
    for one, other in ((lib, greedy),):
        a, b = one.columns((start, at), down, order), other.columns((start, at), down, order)
        np.testing.assert_array_equal(a[0], b[0])
        assert a[1] == b[1]
    start, at, dense = random_pattern(seed, 24, 24, symmetric=True)
    near = without_diagonal(dense)
    order = np.random.default_rng(seed).permutation(24).astype(np.int32)
    a, b = lib.star(near, order), greedy.star(near, order)
    np.testing.assert_array_equal(a[0], b[0])
    rows = np.repeat(np.arange(24, dtype=np.int32), np.diff(start))
    other = coloring.transposed((start, at), 24)[2]
    edges = coloring._edges(rows, at, other, rows != at)
    a, b = lib.acyclic(near, *edges, order), greedy.acyclic(near, *edges, order)
    np.testing.assert_array_equal(a[0], b[0])
    assert sorted(lib.smallest_last((start, at), (start, at)).tolist()) == list(range(24))


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("mode", ["auto", "forward", "reverse"])
def test_columns_of_one_colour_do_not_meet(seed: int, mode: str) -> None:
    start, at, dense = random_pattern(seed, 17, 23)
    colors = coloring.of_jacobian((start, at), 23, mode)
    matrix = np.where(dense, np.random.default_rng(seed).normal(size=dense.shape), 0.0)
    seeds = np.arange(colors.total)[:, None] == colors.colors
    sums = (matrix @ seeds.T).T if colors.mode == "forward" else seeds @ matrix
    np.testing.assert_allclose(sums.ravel()[colors.where], matrix[dense])


@pytest.mark.parametrize("seed", range(30))
def test_both_modes_recover_entries(seed: int) -> None:
    """Rows and columns that are dense: products with all of the matrix show their entries."""
    rng = np.random.default_rng(seed)
    _, _, dense = random_pattern(seed, 24, 30)
    dense[rng.integers(0, 24, 2)] = True
    dense[:, rng.integers(0, 30, 2)] |= rng.random((24, 2)) < 0.8
    pattern = sparse.csr_array(dense)
    start, at = pattern.indptr.astype(np.int64), pattern.indices.astype(np.int32)
    matrix = np.where(dense, rng.normal(size=dense.shape), 0.0)
    both = bidirectional.of_both((start, at), 30)
    assert both is not None
    values = np.full(at.size, np.nan)
    for entries, one in both.parts:
        seeds = np.arange(one.total)[:, None] == one.colors
        sums = (matrix @ seeds.T).T if one.mode == "forward" else seeds @ matrix
        values[entries] = sums.ravel()[one.where]
    np.testing.assert_allclose(values, matrix[dense])
    assert both.total >= bidirectional.bound_of_both((start, at), 30) - 1


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("recovery", ["direct", "substitution"])
@pytest.mark.parametrize("lib", ["C", "Python"])
def test_hessians_are_recovered(
    seed: int, recovery: str, lib: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if lib == "Python":
        monkeypatch.setattr(coloring, "library", lambda: greedy)
    start, at, dense = random_pattern(seed, 25, 25, symmetric=True)
    colors = coloring.of_hessian((start, at), recovery)
    matrix = np.random.default_rng(seed).normal(size=dense.shape)
    matrix = np.where(dense, matrix + matrix.T, 0.0)
    sums = (matrix @ (np.arange(colors.total)[:, None] == colors.colors).T).T.ravel()
    if colors.steps is not None:
        sums = coloring.library().substitute(*colors.steps, sums.copy())
    np.testing.assert_allclose(sums[colors.where], matrix[dense], atol=1e-9)


def known(name: str) -> Callable[[], int]:
    """Return the number of colours of a pattern that needs so many, and no more."""
    n = 300
    return {
        "band": lambda: coloring.of_jacobian(band(n, 2), n, "auto").total,
        "symmetric band": lambda: coloring.of_hessian(band(n, 1), "direct").total,
        "acyclic band": lambda: coloring.of_hessian(band(n, 2), "substitution").total,
        "tridiagonal by substitution": lambda: (
            coloring.of_hessian(band(n, 1), "substitution").total
        ),
        "diagonal": lambda: coloring.of_hessian(band(n, 0), "direct").total,
    }[name]


@pytest.mark.parametrize(
    ("name", "count"),
    [("band", 5), ("symmetric band", 3), ("acyclic band", 3), ("tridiagonal by substitution", 2),
     ("diagonal", 1)],
)  # fmt: skip
def test_colours_of_bands(name: str, count: int) -> None:
    assert known(name)() == count


def test_an_arrow_is_coloured_by_its_rows_or_stars() -> None:
    """A row that is full costs one cotangent; a Hessian with a full row and column two products."""

    def f(x: object) -> object:
        return np.concatenate([x**2, [np.sum(x)]])  # type: ignore[operator]

    prepared = adarray.sparse_jacobian(f, jit=False).prepare(np.ones(50))
    assert (prepared.mode, prepared.n_colors) == ("reverse", 2)
    hessian = adarray.sparse_hessian(lambda x: x[0] * np.sum(x**2), jit=False)
    assert hessian.prepare(np.ones(50)).n_colors == 2


def test_evaluations_do_not_depend_on_the_size() -> None:
    for n in (100, 1000, 100_000):
        prepared = adarray.sparse_jacobian(lambda x: x[1:] ** 2 - x[:-1], jit=False)
        assert prepared.prepare(np.ones(n)).n_colors == 2

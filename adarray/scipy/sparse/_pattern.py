"""Where the nonzeros of a sparse matrix stand, and the operations on their values.

References
----------
- M. B. Giles, "Collected matrix derivative results for forward and reverse mode algorithmic
  differentiation", in Advances in Automatic Differentiation, Springer 2008, 35-44.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse
import scipy.sparse.linalg

from adarray.batching.layouts import columns
from adarray.batching.rules import Coupling
from adarray.ops.common import s
from adarray.ops.indexing import apply_add_at
from adarray.scipy._drop_in import operation


class Pattern:
    """The positions of the nonzeros of a matrix, which carry no derivative.

    Parameters
    ----------
    rows, cols : ndarray of int, shape (nnz,)
    shape : tuple of int
    """

    def __init__(self, rows: Any, cols: Any, shape: tuple[int, ...]) -> None:
        self.rows = np.asarray(rows)
        self.cols = np.asarray(cols)
        self.shape = (int(shape[0]), int(shape[1]))

    def adarray_parts(self) -> tuple[Any, ...]:
        """Return the parts by which `jit` compares patterns: recorded runs make new ones."""
        return self.rows, self.cols, self.shape

    @functools.cached_property
    def T(self) -> Pattern:  # noqa: N802  (NumPy's name)
        """The pattern of the transpose, values in the same order."""
        transpose = Pattern(self.cols, self.rows, self.shape[::-1])
        transpose.__dict__["T"] = self
        return transpose

    @functools.cached_property
    def _layout(self) -> tuple[Any, Any, Any]:
        """Column numbers by rows, where each row begins, and the order of the values."""
        order = np.lexsort((self.cols, self.rows))
        starts = np.searchsorted(self.rows[order], np.arange(self.shape[0] + 1))
        # Some of SciPy's solvers take 32 bits only.
        small = max(order.size, *self.shape) < np.iinfo(np.int32).max
        kind = np.int32 if small else np.int64
        return self.cols[order].astype(kind), starts.astype(kind), order

    def matrix(self, data: Any) -> Any:
        """Return the SciPy matrix with the values `data`."""
        cols, starts, order = self._layout
        matrix = scipy.sparse.csr_array(self.shape, dtype=data.dtype)
        matrix.data, matrix.indices, matrix.indptr = data[order], cols, starts
        return matrix

    def keys(self) -> Any:
        """Return one number for each nonzero that tells its position."""
        return self.rows.astype(np.int64) * self.shape[1] + self.cols


def sum_of_equal(values: Any, keys: Any) -> tuple[Any, Any]:
    """Return the distinct `keys` and the sums of the values that have them."""
    distinct, inverse = np.unique(keys, return_inverse=True)
    if distinct.size == keys.size:
        return distinct, values[np.argsort(keys, kind="stable")]
    zeros = np.zeros(distinct.size, values.dtype)
    return distinct, apply_add_at(zeros, values, (inverse,))


# -- products --------------------------------------------------------------------------------------


def _product(data: Any, x: Any, pattern: Pattern) -> Any:
    return pattern.matrix(data) @ x


def sampled(g: Any, x: Any, pattern: Pattern) -> Any:
    """Return the elements of ``g x^T`` at the nonzeros."""
    picked = g[pattern.rows] * x[pattern.cols]
    return picked if picked.ndim == 1 else np.sum(picked, -1)


def _random_pattern(rng: np.random.Generator, m: int, n: int) -> tuple[Any, Pattern]:
    rows, cols = np.nonzero(rng.uniform(size=(m, n)) < 0.6)
    return rng.normal(size=rows.size), Pattern(rows, cols, (m, n))


def _pairs(i: int, shapes: list[Any], pattern: Pattern) -> tuple[Any, Any]:
    """Return which elements of a product depend on which ones of the nonzeros, or of `x`."""
    width = shapes[1][1] if len(shapes[1]) > 1 else 1
    across = np.arange(width)
    out = pattern.rows[:, None] * width + across
    if i == 0:
        return out, np.broadcast_to(np.arange(pattern.rows.size)[:, None], out.shape)
    return out, pattern.cols[:, None] * width + across


def _samples(rng: np.random.Generator) -> list[Any]:
    data, pattern = _random_pattern(rng, 3, 4)
    return [
        s(data, rng.normal(size=4), pattern),
        s(data, rng.normal(size=(4, 2)), pattern),
        s(data + 1j, rng.normal(size=(3, 2)), pattern.T),
        s(data, rng.normal(size=4) + 1j, pattern),
    ]


product: Any = operation(
    "scipy.sparse.matmul",
    _product,
    [
        lambda g, out, data, x, pattern: sampled(g, x, pattern),
        lambda g, out, data, x, pattern: product(data, g, pattern.T),
    ],
    jvp="linear",
    samples=_samples,
    operands=("data", "x"),
    params=("pattern",),
    batch=Coupling(columns, pairs=_pairs),
    note="the derivative of the matrix is that of its nonzeros",
)


# -- systems ---------------------------------------------------------------------------------------


class LUSolver:
    """A solver by factorisation, which keeps the last factors it made."""

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.factors: Any = None
        self.data: Any = None

    def adarray_parts(self) -> Any:
        """Return the parts by which `jit` compares solvers."""
        return self.options

    def __call__(self, pattern: Pattern, data: Any, b: Any) -> Any:
        forward = self.data is not None and np.array_equal(self.data[1], data)
        if not forward:
            wide = np.result_type(data, np.float64)  # single precision would solve in single only
            matrix = pattern.matrix(data.astype(wide)).tocsc()
            factors = scipy.sparse.linalg.splu(matrix, **self.options)
            self.factors, self.data = factors, (pattern, np.array(data))
        factored = self.data[0]
        trans = "N" if factored is pattern else "T" if factored.T is pattern else None
        if trans is None:
            self.data = None
            return self(pattern, data, b)
        dtype = np.result_type(data, b)
        wide = np.result_type(dtype, np.float64)
        if dtype.kind == "c" and data.dtype.kind != "c":  # the factors are real
            parts = [np.array(p, np.float64) for p in (b.real, b.imag)]
            real, imag = (self.factors.solve(p, trans) for p in parts)
            return (real + 1j * imag).astype(dtype)
        return self.factors.solve(np.ascontiguousarray(b, wide), trans).astype(dtype)


class RepeatedSolver:
    """A solver that is called anew for each right-hand side; keeps what else it returns."""

    def __init__(self, solve: Callable[[Any, Any, bool], Any]) -> None:
        self.solve = solve
        self.first: Pattern | None = None
        self.info: Any = 0

    def adarray_parts(self) -> Any:
        """Return the parts by which `jit` compares solvers."""
        return self.solve

    def __call__(self, pattern: Pattern, data: Any, b: Any) -> Any:
        self.first = self.first or pattern
        forward = self.first is pattern
        if b.ndim == 1:
            x, info = self.solve(pattern.matrix(data), b, forward)
        else:
            parts = [self.solve(pattern.matrix(data), column, forward) for column in b.T]
            x, info = np.stack([p[0] for p in parts], 1), max(p[1] for p in parts)
        if forward:
            self.info = info
        return x


def _solution(data: Any, b: Any, pattern: Pattern, solver: Any) -> Any:
    return solver(pattern, data, b)


def _solve_samples(rng: np.random.Generator) -> list[Any]:
    a = rng.normal(size=(4, 4)) * (rng.uniform(size=(4, 4)) < 0.6) + 4 * np.eye(4)
    rows, cols = np.nonzero(a)
    data, pattern = a[rows, cols], Pattern(rows, cols, (4, 4))
    return [
        s(data, rng.normal(size=4), pattern, LUSolver()),
        s(data, rng.normal(size=(4, 2)), pattern, LUSolver()),
        s(data + 0.1j, rng.normal(size=4) + 1j, pattern, LUSolver()),
        s(data, rng.normal(size=4) + 1j, pattern, LUSolver()),
    ]


solution: Any = operation(
    "scipy.sparse.linalg.spsolve",
    _solution,
    [
        lambda g, out, data, b, pattern, solver: (
            -sampled(solution(data, g, pattern.T, solver), out, pattern)
        ),
        lambda g, out, data, b, pattern, solver: solution(data, g, pattern.T, solver),
    ],
    batch=columns,
    jvp=[
        lambda d, out, data, b, pattern, solver: (
            -solution(data, product(d, out, pattern), pattern, solver)
        ),
        lambda d, out, data, b, pattern, solver: solution(data, d, pattern, solver),
    ],
    samples=_solve_samples,
    operands=("data", "b"),
    params=("pattern", "solver"),
)

"""Linear programs and linear least squares with bounds.

References
----------
- A. V. Fiacco, "Introduction to Sensitivity and Stability Analysis in Nonlinear Programming",
  Academic Press 1983.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import scipy.optimize
import scipy.sparse

from adarray.base.errors import NotDifferentiableError
from adarray.scipy._active import minimum
from adarray.scipy._drop_in import REPLACEMENTS, array, holds, value
from adarray.scipy._functions import corrected
from adarray.scipy._implicit import regular

_AT = 1e-9  # relative: a constraint is active, a multiplier zero


def _dense(matrix: Any, n: int) -> Any:
    """Return the matrix of constraints, without rows if there is none."""
    if matrix is None:
        return np.zeros((0, n))
    if scipy.sparse.issparse(matrix):
        return matrix.toarray()
    return np.reshape(array(matrix), (-1, n))


def _limits(b: Any) -> Any:
    return np.zeros(0) if b is None else np.reshape(array(b), (-1,))


def _box(bounds: Any, n: int) -> tuple[Any, Any]:
    """Return lower and upper bounds of `linprog`: one pair for all variables, or each its own."""
    if hasattr(bounds, "shape") and np.shape(bounds) != (2,):
        return bounds[:, 0], bounds[:, 1]
    pairs = [(0.0, None)] if bounds is None else list(bounds)
    if len(pairs) == 2 and all(p is None or np.ndim(value(p)) == 0 for p in pairs):
        pairs = [tuple(pairs)]
    if len(pairs) == 1:
        pairs = pairs * n
    low = [-np.inf if pair[0] is None else pair[0] for pair in pairs]
    return array(low), array([np.inf if pair[1] is None else pair[1] for pair in pairs])


def _unique(regular_square: bool, forces: Any, size: float) -> None:
    if not regular_square or not np.all(forces > _AT * size):
        raise NotDifferentiableError(
            "linprog: the solution is not unique, or more constraints hold there than it has "
            "variables, so that it has no derivative; change the costs or leave constraints out"
        )


@functools.wraps(scipy.optimize.linprog)
def linprog(c: Any, A_ub: Any = None, b_ub: Any = None, A_eq: Any = None,
            b_eq: Any = None, bounds: Any = (0, None), method: str = "highs",
            callback: Any = None, options: Any = None, x0: Any = None,
            integrality: Any = None) -> Any:  # fmt: skip
    coefficients = (c, A_ub, b_ub, A_eq, b_eq)
    solution = scipy.optimize.linprog(
        *map(value, coefficients), value(bounds), method, callback, options, value(x0), integrality
    )
    if not (holds(coefficients) or holds(bounds)) or solution.x is None:
        return solution
    if integrality is not None and np.any(integrality):
        raise NotDifferentiableError(
            "linprog: a solution in integers moves by jumps; leave integrality out"
        )
    return _differentiable(solution, coefficients, bounds)


def _differentiable(solution: Any, coefficients: tuple[Any, ...], bounds: Any) -> Any:
    """Return the result of `linprog` as the root of the constraints that are active."""
    costs = np.reshape(array(coefficients[0]), (-1,))
    x, n = solution.x, solution.x.size
    a_ub, b_ub = _dense(coefficients[1], n), _limits(coefficients[2])
    a_eq, b_eq = _dense(coefficients[3], n), _limits(coefficients[4])
    low, high = (np.broadcast_to(b, (n,)) for b in _box(bounds, n))
    width = _AT * (1 + np.abs(x))
    at_low, at_high = x - value(low) <= width, value(high) - x <= width
    at_bound = at_low | at_high
    free = np.flatnonzero(~at_bound)
    tight = np.flatnonzero(solution.slack <= _AT * (1 + np.abs(value(b_ub))))
    rows = np.concatenate([a_eq, a_ub[tight]])
    limits = np.concatenate([b_eq, b_ub[tight]])
    square = rows[:, free]
    known = np.where(at_low, low, np.where(at_high, high, 0.0))
    plain = value(square)
    size = max(float(np.max(np.abs(value(costs)), initial=0.0)), 1e-300)
    _unique(plain.shape[0] == plain.shape[1] and regular(plain), np.ones(1), size)
    if free.size:
        moved = np.linalg.solve(square, limits - np.matmul(rows, known))
        source = free.size + np.arange(n)
        source[free] = np.arange(free.size)
        x = np.concatenate([moved, known])[source]
        prices = np.linalg.solve(square.T, costs[free])
    else:
        x, prices = known, np.zeros(len(limits))
    reduced = costs - np.matmul(rows.T, prices)
    plain_reduced, fixed = value(reduced), value(low) == value(high)
    forces = np.where(at_low, plain_reduced, -plain_reduced)[at_bound & ~fixed]
    _unique(True, np.concatenate([forces, -value(prices)[len(b_eq) :]]), size)
    ends = np.where(at_low, reduced, 0.0), np.where(at_high & ~at_low, reduced, 0.0)
    return _result(solution, x, costs, (a_ub, b_ub), (a_eq, b_eq), tight, prices, ends)


def _result(solution: Any, x: Any, costs: Any, above: Any, equal: Any, tight: Any, prices: Any,
            reduced: Any) -> Any:  # fmt: skip
    """Return SciPy's result with differentiable fields."""
    x = corrected(x, solution.x)
    slack = above[1] - np.matmul(above[0], x)
    rest = equal[1] - np.matmul(equal[0], x)
    count = len(rest)
    spread = np.zeros((len(above[1]), len(tight)))
    spread[tight, np.arange(len(tight))] = 1.0
    marginals = {"eqlin": prices[:count], "ineqlin": np.matmul(spread, prices[count:]),
                 "lower": reduced[0], "upper": reduced[1]}  # fmt: skip
    residuals = {"eqlin": rest, "ineqlin": slack}
    fields = {**solution, "x": x, "fun": corrected(np.sum(costs * x), solution.fun), "slack": slack,
            "con": rest}  # fmt: skip
    for name, m in marginals.items():
        if name in solution:
            more = {"marginals": m}
            if name in residuals:
                more["residual"] = residuals[name]
            fields[name] = type(solution[name])(**{**solution[name], **more})
    return type(solution)(**fields)


def _matrix(matrix: Any) -> Any:
    return matrix.toarray() if scipy.sparse.issparse(matrix) else array(matrix)


@functools.wraps(scipy.optimize.nnls)
def nnls(A: Any, b: Any, **options: Any) -> Any:
    solution = scipy.optimize.nnls(value(array(A)), value(array(b)), **options)
    if not holds((A, b)):
        return solution
    matrix, right = array(A), array(b)

    def residual(x: Any) -> Any:
        return np.matmul(matrix, x) - right

    zeros = np.zeros(solution[0].shape)
    x = minimum("nnls", lambda x: np.sum(residual(x) ** 2) / 2, solution[0], zeros, (0.0, np.inf))
    norm = np.sqrt(np.sum(residual(x) ** 2))
    return x, corrected(norm, solution[1])


@functools.wraps(scipy.optimize.lsq_linear)
def lsq_linear(A: Any, b: Any, bounds: Any = (-np.inf, np.inf), *rest: Any,
               **options: Any) -> Any:  # fmt: skip
    pair = (bounds.lb, bounds.ub) if isinstance(bounds, scipy.optimize.Bounds) else bounds
    solution = scipy.optimize.lsq_linear(value(A), value(b), value(pair), *rest, **options)
    if not holds((A, b, pair)):
        return solution
    matrix, right = _matrix(A), array(b)

    def residual(x: Any) -> Any:
        return np.matmul(matrix, x) - right

    def cost(x: Any) -> Any:
        return np.sum(residual(x) ** 2) / 2

    x = minimum("lsq_linear", cost, solution.x, np.zeros(solution.x.shape), tuple(pair))
    fields = {**solution, "x": x, "fun": residual(x), "cost": corrected(cost(x), solution.cost)}
    return type(solution)(**fields)


for _function, _ours in (
    (scipy.optimize.linprog, linprog), (scipy.optimize.nnls, nnls),
    (scipy.optimize.lsq_linear, lsq_linear),
):  # fmt: skip
    REPLACEMENTS[_function] = _ours

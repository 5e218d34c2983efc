"""Derivatives of solutions by the implicit function theorem: recorded Newton steps.

Steps from a solution change its value by rounding alone, and give it the derivatives that the
theorem says. Where they do not settle, the solution has no derivative that is known.

References
----------
- A. Griewank, A. Walther, "Evaluating Derivatives", 2nd ed., SIAM 2008, chapter 15.
- B. Christianson, "Reverse accumulation and attractive fixed points", Optim. Methods Softw. 3
  (1994), 311-326.
- M. Blondel et al., "Efficient and modular implicit differentiation", NeurIPS 2022.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg

from adarray.base.errors import NotDifferentiableError
from adarray.scipy._drop_in import array, value
from adarray.scipy._functions import corrected, recording
from adarray.transforms import grad, jacobian

_STEPS = 2  # k Newton steps have the derivatives of the solution up to order 2**k - 1
_SETTLED = 1e-6  # relative: a second step of this length is ignored
_SINGULAR = 1e-14  # reciprocal condition number, of a matrix with rows and columns of length 1


def elementwise(name: str, f: Callable[[Any], Any], x: Any) -> Any:
    """Return the root near `x` of a function of numbers, with its derivatives."""
    z: Any = np.asarray(x, float)[()]
    steps = []
    for _ in range(_STEPS if recording() else 0):
        slope = grad(lambda v: np.sum(f(v)))(z)
        if np.any(value(slope) == 0):
            raise _singular(name, "slope of the equation is zero")
        step = array(f(z)) / slope
        steps.append(value(step))
        z = z - step
    _check_steps(name, np.asarray(x), steps)
    return corrected(z + np.zeros(np.shape(x)), np.asarray(x))


def system(name: str, f: Callable[[Any], Any], x: Any) -> Any:
    """Return the root near `x` of a system of equations, with its derivatives and its value."""
    return corrected(polished(name, f, x), np.asarray(x, float))


def polished(name: str, f: Callable[[Any], Any], x: Any) -> Any:
    """Return the root near `x` of a system of equations: what Newton steps make of it."""
    x = np.asarray(x, float)
    z: Any = x
    steps = []
    for _ in range(_STEPS if recording() else 0):
        residual = np.reshape(array(f(z)), (-1,))
        matrix = np.reshape(jacobian(lambda v: np.reshape(array(f(v)), (-1,)))(z), (x.size, x.size))
        if not regular(value(matrix)):
            raise _singular(name, "matrix of the linearised equations is singular")
        step = np.reshape(np.linalg.solve(matrix, residual), x.shape)
        steps.append(value(step))
        z = z - step
    _check_steps(name, x, steps)
    return z + np.zeros(x.shape)


def regular(matrix: Any) -> bool:
    """Whether a square matrix of plain numbers can be inverted with some digits."""
    matrix = np.asarray(matrix, float)
    if matrix.size == 0:
        return True
    for axis in (1, 0):
        lengths = np.max(np.abs(matrix), axis=axis, keepdims=True)
        if not np.all(np.isfinite(lengths)) or np.any(lengths == 0):
            return False
        matrix = matrix / lengths
    factors, _, info = scipy.linalg.lapack.dgetrf(matrix)
    if info != 0:
        return False
    reciprocal, _ = scipy.linalg.lapack.dgecon(factors, np.max(np.sum(np.abs(matrix), axis=0)))
    return bool(reciprocal > _SINGULAR)


def _check_steps(name: str, x: Any, steps: list[Any]) -> None:
    """Raise if Newton's method does not converge fast from the solution."""
    if len(steps) < 2:
        return
    scale = 1 + np.abs(x)
    first, second = (np.max(np.abs(s) / scale, initial=0.0) for s in steps[:2])
    if not second <= max(_SETTLED, first / 2):
        raise NotDifferentiableError(
            f"{name}: Newton steps from the solution that SciPy found do not converge to one, so "
            "that its derivative is not known; pass a smaller tolerance"
        )


def _singular(name: str, what: str) -> NotDifferentiableError:
    return NotDifferentiableError(
        f"{name}: the {what} at the solution, which has no derivative there; make the solution "
        "unique by further equations or terms"
    )

"""Minima with bounds and constraints: the equations of Karush, Kuhn and Tucker, solved again.

Bounds and constraints that hold at the solution, by a force that is not zero, are its active set.
With that set fixed, the solution is the root of smooth equations [1]_, which have its derivatives.
Where a force is zero, the derivative jumps, and is refused.

References
----------
.. [1] A. V. Fiacco, "Introduction to Sensitivity and Stability Analysis in Nonlinear Programming",
   Academic Press 1983, theorem 2.4.4.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.optimize

from adarray.base.errors import NotDifferentiableError
from adarray.scipy._drop_in import array, value
from adarray.scipy._functions import corrected, recording
from adarray.scipy._implicit import polished
from adarray.transforms import grad, jacobian

_NEAR = 1e-4  # relative distance from which a bound may be active: solvers may stop inside of it
_AT = 1e-10  # relative distance at which a bound holds, whatever its force
_FORCE = 1e-6  # relative to the gradient: a force that counts as zero
_MOVED = 1e-3  # relative distance that the solution of the solver may be off


class Constraint(NamedTuple):
    """Functions of the variables that lie between two limits.

    Parameters
    ----------
    function : callable
        Returns an array.
    low, high : array
        May be traced.
    """

    function: Callable[[Any], Any]
    low: Any
    high: Any


class _Rows:
    """All constraints as one function with limits."""

    def __init__(self, constraints: Sequence[Constraint], x: Any) -> None:
        self._functions = [c.function for c in constraints]
        self.values = value(self(x))
        sizes = [np.size(value(array(f(x)))) for f in self._functions]
        self.low = self._limits([c.low for c in constraints], sizes)
        self.high = self._limits([c.high for c in constraints], sizes)
        matrix = value(jacobian(self)(x)) if constraints else np.zeros((0, x.size))
        self.normals = np.reshape(matrix, (self.values.size, x.size))

    def __call__(self, x: Any) -> Any:
        """Return the values of all constraints."""
        values = [np.reshape(array(f(x)), (-1,)) for f in self._functions]
        return np.concatenate(values) if values else np.zeros(0)

    @staticmethod
    def _limits(limits: list[Any], sizes: list[int]) -> Any:
        broadcast = [
            np.broadcast_to(np.reshape(array(v), (-1,)), (n,))
            for v, n in zip(limits, sizes, strict=True)
        ]
        return np.concatenate(broadcast) if broadcast else np.zeros(0)


class _Sides(NamedTuple):
    """Which of several quantities are at their lower and upper limits.

    Parameters
    ----------
    low, high : ndarray of bool
        Those of equal limits are in the first.
    both : ndarray of bool
        Those of equal limits.
    """

    low: Any
    high: Any
    both: Any

    @property
    def at_limit(self) -> Any:
        """Those that are at a limit."""
        return self.low | self.high


def _sides(values: Any, low: Any, high: Any, width: float) -> _Sides:
    """Return which values are at most `width` from a limit."""
    low, high = value(low), value(high)
    both = low == high
    width = width * (1 + np.abs(values))
    near_low, near_high = values - low <= width, high - values <= width
    lower = both | (near_low & ~(near_high & (high - values < values - low)))
    return _Sides(lower, near_high & ~lower, both)


def minimum(
    name: str,
    cost: Callable[[Any], Any],
    x: Any,
    start: Any,
    bounds: tuple[Any, Any] = (-np.inf, np.inf),
    constraints: Sequence[Constraint] = (),
) -> Any:
    """Return the minimum near `x` with its derivatives.

    Parameters
    ----------
    name : str
        The function of SciPy that found it, for errors.
    cost : callable
    x : ndarray, shape (n,)
        What SciPy found.
    start : ndarray, shape (n,)
        Where it began: the gradient there says what is large.
    bounds : tuple of array
        May be traced.
    constraints : sequence of Constraint

    Raises
    ------
    NotDifferentiableError
        If a force is zero, the equations are singular, or `x` is no minimum.
    """
    x = np.asarray(x, float)
    if not recording():
        return x + np.zeros(x.shape)
    low, high = (np.broadcast_to(array(b), x.shape) for b in bounds)
    rows = _Rows(constraints, x)
    if not (np.any(np.isfinite(value(low))) or np.any(np.isfinite(value(high))) or constraints):
        return corrected(polished(name, grad(cost), x), x)
    gradient = value(grad(cost)(x))
    size = max(np.max(np.abs(gradient)), np.max(np.abs(value(grad(cost)(start)))))
    box, sides, forces = _active_set(x, low, high, rows, gradient, size)
    free = np.flatnonzero(~box.at_limit)
    fixed = np.where(box.low, low, np.where(box.high, high, x))
    active = np.flatnonzero(sides.at_limit)
    source = free.size + np.arange(x.size)  # fixed variables come from behind the free ones
    source[free] = np.arange(free.size)
    limits = np.where(sides.low, rows.low, rows.high)[active] if active.size else np.zeros(0)

    def placed(u: Any) -> Any:
        return np.concatenate([u, fixed])[source]

    def lagrangian(v: Any, multipliers: Any) -> Any:
        if not active.size:
            return cost(v)
        return cost(v) - np.sum(multipliers * (rows(v)[active] - limits))

    def equations(z: Any) -> Any:
        u, multipliers = z[: free.size], z[free.size :]
        slopes = grad(lambda u: lagrangian(placed(u), multipliers))(u)
        if not active.size:
            return slopes
        return np.concatenate([slopes, rows(placed(u))[active] - limits])

    begin = np.concatenate([x[free], forces[active]])
    if free.size < active.size:
        raise NotDifferentiableError(
            f"{name}: {active.size} constraints are active at the solution, and {free.size} "
            "variables are free, so that the multipliers are not unique; leave constraints out "
            "that follow from others"
        )
    z = polished(name, equations, begin) if begin.size else begin
    solution = placed(z[: free.size])
    multipliers = value(z[free.size :])
    at = value(solution)
    slopes = value(grad(lambda v: lagrangian(v, multipliers))(at))
    _check_forces(name, "bound of variable", slopes, box, size)
    normals = np.max(np.abs(rows.normals), axis=1, initial=0.0)
    forces = np.zeros(normals.shape)
    forces[active] = multipliers
    _check_forces(name, "constraint", forces * normals, sides, size)
    if np.max(np.abs(at - x) / (1 + np.abs(x)), initial=0.0) > _MOVED:
        raise _far(name)
    _check_place(name, "bound of variable", at, low, high, box)
    _check_place(name, "constraint", value(rows(at)), rows.low, rows.high, sides)
    return corrected(solution, x)


def _active_set(
    x: Any, low: Any, high: Any, rows: _Rows, gradient: Any, size: float
) -> tuple[_Sides, _Sides, Any]:
    """Return which bounds and constraints are active, and the multipliers of the constraints."""
    box = _sides(x, low, high, _NEAR)
    sides = _sides(rows.values, rows.low, rows.high, _NEAR)
    variables, active = np.flatnonzero(box.at_limit), np.flatnonzero(sides.at_limit)
    forces = np.zeros(rows.values.shape)
    if active.size:  # the gradient as a sum of the normals, of those that push alone
        matrix = np.concatenate([np.eye(x.size)[variables], rows.normals[active]]).T
        both = np.concatenate([box.both[variables], sides.both[active]])
        lower = np.concatenate([box.low[variables], sides.low[active]])
        limits = np.where(both | ~lower, -np.inf, 0.0), np.where(both | lower, np.inf, 0.0)
        multipliers = scipy.optimize.lsq_linear(matrix, gradient, limits, tol=1e-14).x
        push = np.zeros(x.shape)
        push[variables] = multipliers[: variables.size]
        forces[active] = multipliers[variables.size :]
    else:
        push = gradient
    normals = np.max(np.abs(rows.normals), axis=1, initial=0.0)
    return (
        _pushed(box, _sides(x, low, high, _AT), push, size),
        _pushed(sides, _sides(rows.values, rows.low, rows.high, _AT), forces * normals, size),
        forces,
    )


def _pushed(near: _Sides, at: _Sides, force: Any, size: float) -> _Sides:
    """Return those near their limits that are at them, or are pushed there."""
    limit = _FORCE * size
    return _Sides(near.low & (near.both | at.low | (force > limit)),
                  near.high & (at.high | (force < -limit)), near.both)  # fmt: skip


def _check_forces(name: str, what: str, forces: Any, sides: _Sides, size: float) -> None:
    """Raise if what is at a limit is not held there by a force."""
    limit = _FORCE * size
    if np.any(~sides.both & ((sides.low & (forces < -limit)) | (sides.high & (forces > limit)))):
        raise _far(name)
    weak = ~sides.both & ((sides.low & ~(forces > limit)) | (sides.high & ~(forces < -limit)))
    if np.any(weak):
        raise _weak(name, what, weak)


def _check_place(name: str, what: str, values: Any, low: Any, high: Any, sides: _Sides) -> None:
    """Raise if what is not held at a limit is beyond it, or there."""
    gap = np.minimum(values - value(low), value(high) - values) / (1 + np.abs(values))
    if np.any(~sides.at_limit & (gap < -_NEAR)):
        raise _far(name)
    if np.any(~sides.at_limit & (gap < _AT)):
        raise _weak(name, what, ~sides.at_limit & (gap < _AT))


def _weak(name: str, what: str, which: Any) -> NotDifferentiableError:
    return NotDifferentiableError(
        f"{name}: the {what} {int(np.flatnonzero(which)[0])} is active with a multiplier of zero, "
        "where the derivative of the solution jumps; move it, or leave it out"
    )


def _far(name: str) -> NotDifferentiableError:
    return NotDifferentiableError(
        f"{name}: the solution that SciPy found is too far from the minimum to tell which bounds "
        "and constraints are active there; pass a smaller tol"
    )

"""Bounds and constraints of `scipy.optimize.minimize`, in all forms that it takes."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import numpy as np
import scipy.optimize

from adarray.scipy._active import Constraint
from adarray.scipy._drop_in import array, holds, value
from adarray.scipy._functions import Plainly


@dataclasses.dataclass
class Given:
    """A constraint as the caller gave it.

    Parameters
    ----------
    given : dict, LinearConstraint or NonlinearConstraint
    """

    given: Any

    def plain(self) -> tuple[Any, list[Plainly]]:
        """Return it with plain values, as SciPy takes it, and the functions in it."""
        if isinstance(self.given, scipy.optimize.LinearConstraint):
            parts = map(value, (self.given.A, self.given.lb, self.given.ub))
            return scipy.optimize.LinearConstraint(*parts, self.given.keep_feasible), []
        watched: dict[str, Plainly] = {}
        if isinstance(self.given, dict):
            made, args = dict(self.given), _arguments(self.given)
            for key in ("fun", "jac"):
                if callable(made.get(key)):
                    made[key] = watched[key] = Plainly(made[key], args)
            return {**made, "args": ()}, list(watched.values())
        copied = copy.copy(self.given)
        for key in ("fun", "jac", "hess"):
            if callable(getattr(copied, key)):
                watched[key] = Plainly(getattr(copied, key))
                setattr(copied, key, watched[key])
        copied.lb, copied.ub = value(copied.lb), value(copied.ub)
        return copied, list(watched.values())

    def constraint(self) -> Constraint:
        """Return it as a function with limits."""
        given = self.given
        if isinstance(given, dict):
            args, fun = _arguments(given), given["fun"]
            high = 0.0 if given["type"].lower() == "eq" else np.inf
            return Constraint(lambda x: fun(x, *args), 0.0, high)
        if isinstance(given, scipy.optimize.LinearConstraint):
            matrix = given.A.toarray() if scipy.sparse.issparse(given.A) else given.A
            return Constraint(lambda x: np.matmul(array(matrix), x), given.lb, given.ub)
        return Constraint(given.fun, given.lb, given.ub)

    def traced(self) -> bool:
        """Whether its limits or its matrix are ADArrays."""
        if isinstance(self.given, dict):
            return holds(_arguments(self.given))
        parts = (self.given.lb, self.given.ub, getattr(self.given, "A", None))
        return holds(parts)


def _arguments(given: dict[str, Any]) -> tuple[Any, ...]:
    args = given.get("args", ())
    return args if isinstance(args, tuple) else (args,)


def listed(constraints: Any) -> list[Given]:
    """Return constraints, one or a sequence of them, as a list."""
    if isinstance(constraints, (list, tuple)):
        return [Given(c) for c in constraints]
    return [Given(constraints)] if constraints else []


def sides(bounds: Any) -> tuple[Any, Any]:
    """Return lower and upper bounds of `minimize`, which may be traced."""
    if bounds is None:
        return -np.inf, np.inf
    if isinstance(bounds, scipy.optimize.Bounds):
        return array(bounds.lb), array(bounds.ub)
    if hasattr(bounds, "shape"):
        return bounds[:, 0], bounds[:, 1]
    pairs = [tuple(pair) for pair in bounds]
    low = [-np.inf if a is None else a for a, _ in pairs]
    return array(low), array([np.inf if b is None else b for _, b in pairs])


def plain_bounds(bounds: Any) -> Any:
    """Return bounds as SciPy takes them."""
    if not isinstance(bounds, scipy.optimize.Bounds):
        return value(bounds)
    if not holds((bounds.lb, bounds.ub)):
        return bounds
    return scipy.optimize.Bounds(value(bounds.lb), value(bounds.ub), bounds.keep_feasible)

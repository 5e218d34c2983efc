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
class UserConstraint:
    """A constraint as the caller gave it.

    Parameters
    ----------
    constraint : dict, LinearConstraint or NonlinearConstraint
    """

    constraint: Any

    def plain(self) -> tuple[Any, list[Plainly]]:
        """Return it with plain values, as SciPy takes it, and the functions in it."""
        if isinstance(self.constraint, scipy.optimize.LinearConstraint):
            parts = map(value, (self.constraint.A, self.constraint.lb, self.constraint.ub))
            return scipy.optimize.LinearConstraint(*parts, self.constraint.keep_feasible), []
        watched: dict[str, Plainly] = {}
        if isinstance(self.constraint, dict):
            replaced, args = dict(self.constraint), _arguments(self.constraint)
            for key in ("fun", "jac"):
                if callable(replaced.get(key)):
                    replaced[key] = watched[key] = Plainly(replaced[key], args)
            return {**replaced, "args": ()}, list(watched.values())
        copied = copy.copy(self.constraint)
        for key in ("fun", "jac", "hess"):
            if callable(getattr(copied, key)):
                watched[key] = Plainly(getattr(copied, key))
                setattr(copied, key, watched[key])
        copied.lb, copied.ub = value(copied.lb), value(copied.ub)
        return copied, list(watched.values())

    def as_constraint(self) -> Constraint:
        """Return it as a function with limits."""
        constraint = self.constraint
        if isinstance(constraint, dict):
            args, fun = _arguments(constraint), constraint["fun"]
            high = 0.0 if constraint["type"].lower() == "eq" else np.inf
            return Constraint(lambda x: fun(x, *args), 0.0, high)
        if isinstance(constraint, scipy.optimize.LinearConstraint):
            matrix = constraint.A.toarray() if scipy.sparse.issparse(constraint.A) else constraint.A
            return Constraint(lambda x: np.matmul(array(matrix), x), constraint.lb, constraint.ub)
        return Constraint(constraint.fun, constraint.lb, constraint.ub)

    def traced(self) -> bool:
        """Whether its limits or its matrix are ADArrays."""
        if isinstance(self.constraint, dict):
            return holds(_arguments(self.constraint))
        parts = (self.constraint.lb, self.constraint.ub, getattr(self.constraint, "A", None))
        return holds(parts)


def _arguments(constraint: dict[str, Any]) -> tuple[Any, ...]:
    args = constraint.get("args", ())
    return args if isinstance(args, tuple) else (args,)


def listed(constraints: Any) -> list[UserConstraint]:
    """Return constraints, one or a sequence of them, as a list."""
    if isinstance(constraints, (list, tuple)):
        return [UserConstraint(c) for c in constraints]
    return [UserConstraint(constraints)] if constraints else []


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

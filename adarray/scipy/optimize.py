"""Drop-in for `scipy.optimize`: roots, fixed points and minima by the implicit function theorem.

SciPy finds the solution with plain values. Newton steps from there, recorded, give its
derivatives with respect to ``args``, to what functions use from outside, and to bounds: two
of them all derivatives up to the third order. The starting point and the bracket have
none. Bounds and constraints are in `adarray.scipy._active`.

References
----------
- A. Griewank, A. Walther, "Evaluating Derivatives", 2nd ed., SIAM 2008, chapter 15.
- M. Blondel et al., "Efficient and modular implicit differentiation", NeurIPS 2022.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.optimize

from adarray.base.errors import NotDifferentiableError
from adarray.scipy._active import minimum
from adarray.scipy._constraints import listed, plain_bounds, sides
from adarray.scipy._drop_in import REPLACEMENTS, array, constant, fill_in, holds, value
from adarray.scipy._functions import Plainly, corrected
from adarray.scipy._implicit import elementwise, system
from adarray.scipy._programs import (
    linprog as linprog,
)
from adarray.scipy._programs import (
    lsq_linear as lsq_linear,
)
from adarray.scipy._programs import (
    nnls as nnls,
)
from adarray.transforms import jacobian


def _tuple(args: Any) -> tuple[Any, ...]:
    return args if isinstance(args, tuple) else (args,)


def _on_args(f: Callable[..., Any], args: tuple[Any, ...]) -> Callable[[Any], Any]:
    return lambda x: f(x, *args)


# -- equations in one unknown ----------------------------------------------------------------------


def _bracketing(name: str) -> Callable[..., Any]:
    function = getattr(scipy.optimize, name)

    @functools.wraps(function)
    def call(f: Any, a: Any, b: Any, args: Any = (), *rest: Any, **options: Any) -> Any:
        args = _tuple(args)
        plain = Plainly(f, args)
        solution = function(plain, value(a), value(b), (), *value(rest), **value(options))
        if not (plain.seen or holds((a, b))):
            return solution
        root = solution[0] if isinstance(solution, tuple) else solution
        root = elementwise(name, _on_args(f, args), root)
        return (root, *solution[1:]) if isinstance(solution, tuple) else root

    REPLACEMENTS[function] = call
    return call


brentq, brenth, bisect, ridder, toms748 = map(
    _bracketing, ("brentq", "brenth", "bisect", "ridder", "toms748")
)


@functools.wraps(scipy.optimize.newton)
def newton(func: Any, x0: Any, fprime: Any = None, args: Any = (), *rest: Any,
           fprime2: Any = None, **options: Any) -> Any:  # fmt: skip
    args = tuple(args)  # of any sequence: SciPy unpacks it
    plain = Plainly(func, args)
    slopes = [None if d is None else Plainly(d, args) for d in (fprime, fprime2)]
    solution = scipy.optimize.newton(
        plain, value(x0), slopes[0], (), *rest, fprime2=slopes[1], **value(options)
    )
    if not (plain.seen or holds(x0)):
        return solution
    root = solution[0] if isinstance(solution, tuple) else solution
    root = elementwise("newton", _on_args(func, args), root)
    if not isinstance(solution, tuple):
        return root
    return (
        type(solution)(root, *solution[1:])
        if hasattr(solution, "_fields")
        else (root, *solution[1:])
    )


@functools.wraps(scipy.optimize.root_scalar)
def root_scalar(f: Any, args: Any = (), method: Any = None, bracket: Any = None,
                fprime: Any = None, fprime2: Any = None, x0: Any = None, x1: Any = None,
                **options: Any) -> Any:  # fmt: skip
    args = _tuple(args)
    plain = Plainly(f, args)
    slopes = [Plainly(d, args) if callable(d) else d for d in (fprime, fprime2)]
    solution = scipy.optimize.root_scalar(
        plain, (), method, value(bracket), *slopes, value(x0), value(x1), **options
    )
    if not (plain.seen or holds((bracket, x0, x1))):
        return solution
    if fprime is True:  # the function returns its derivative, too
        solution.root = elementwise("root_scalar", lambda x: f(x, *args)[0], solution.root)
    else:
        solution.root = elementwise("root_scalar", _on_args(f, args), solution.root)
    return solution


# -- systems ---------------------------------------------------------------------------------------


@functools.wraps(scipy.optimize.root)
def root(fun: Any, x0: Any, args: Any = (), method: str = "hybr", jac: Any = None,
         **options: Any) -> Any:  # fmt: skip
    args = _tuple(args)
    plain = Plainly(fun, args)
    slope = Plainly(jac, args) if callable(jac) else jac
    solution = scipy.optimize.root(plain, value(array(x0)), (), method, slope, **options)
    if not (plain.seen or holds(x0)):
        return solution
    if jac is True:
        return _with_x(solution, system("root", lambda x: fun(x, *args)[0], solution.x))
    return _with_x(solution, system("root", _on_args(fun, args), solution.x))


def _with_x(solution: Any, x: Any) -> Any:
    """Return SciPy's result with the differentiable solution in it."""
    return type(solution)(**{**solution, "x": x})


@functools.wraps(scipy.optimize.fsolve)
def fsolve(func: Any, x0: Any, args: Any = (), fprime: Any = None, full_output: Any = 0,
           **options: Any) -> Any:  # fmt: skip
    args = _tuple(args)
    plain = Plainly(func, args)
    slope = None if fprime is None else Plainly(fprime, args)
    solution = scipy.optimize.fsolve(plain, value(array(x0)), (), slope, full_output, **options)
    if not (plain.seen or holds(x0)):
        return solution
    if full_output:
        return (system("fsolve", _on_args(func, args), solution[0]), *solution[1:])
    return system("fsolve", _on_args(func, args), solution)


@functools.wraps(scipy.optimize.fixed_point)
def fixed_point(func: Any, x0: Any, args: Any = (), **options: Any) -> Any:
    args = _tuple(args)
    plain = Plainly(func, args)
    solution = scipy.optimize.fixed_point(plain, value(array(x0)), (), **options)
    if not (plain.seen or holds(x0)):
        return solution
    return system("fixed_point", lambda x: array(func(x, *args)) - x, solution)


# -- minima ----------------------------------------------------------------------------------------


@functools.wraps(scipy.optimize.minimize)
def minimize(fun: Any, x0: Any, args: Any = (), method: Any = None, jac: Any = None,
             hess: Any = None, hessp: Any = None, bounds: Any = None, constraints: Any = (),
             **options: Any) -> Any:  # fmt: skip
    args = _tuple(args)
    plain = Plainly(fun, args)
    slopes = [Plainly(d, args) if callable(d) else d for d in (jac, hess, hessp)]
    rows = listed(constraints)
    plain_rows = [r.plain() for r in rows]
    watched = [plain, *(w for _, functions in plain_rows for w in functions)]
    solution = scipy.optimize.minimize(
        plain, value(array(x0)), (), method, *slopes, plain_bounds(bounds),
        [c for c, _ in plain_rows] if rows else (), **options,
    )  # fmt: skip
    limited = holds((x0, *sides(bounds))) or any(r.traced() for r in rows)
    if not (limited or any(w.seen for w in watched)):
        return solution

    def cost(x: Any) -> Any:
        r = fun(x, *args)
        return np.reshape(array(r[0] if jac is True else r), ())

    start = np.reshape(np.asarray(value(array(x0)), float), (-1,))
    limits = [r.as_constraint() for r in rows]
    x = minimum("minimize", cost, solution.x, start, sides(bounds), limits)
    result = _with_x(solution, x)
    result["fun"] = corrected(cost(x), solution.fun)
    return result


@functools.wraps(scipy.optimize.minimize_scalar)
def minimize_scalar(fun: Any, bracket: Any = None, bounds: Any = None, args: Any = (),
                    **options: Any) -> Any:  # fmt: skip
    args = _tuple(args)
    plain = Plainly(fun, args)
    solution = scipy.optimize.minimize_scalar(plain, value(bracket), value(bounds), (), **options)
    if not (plain.seen or holds((bracket, bounds))):
        return solution
    cost = _on_args(fun, args)
    low, high = (-np.inf, np.inf) if bounds is None else (array(b) for b in bounds)
    at = np.reshape(np.asarray(solution.x, float), (1,))
    start = at if bounds is None else np.reshape((value(low) + value(high)) / 2, (1,))
    x = minimum("minimize_scalar", lambda v: np.reshape(array(cost(v[0])), ()), at, start,
                (low, high))[0]  # fmt: skip
    result = _with_x(solution, x)
    result["fun"] = corrected(array(cost(x)), solution.fun)
    return result


_LOSSES: dict[str, Callable[[Any], Any]] = {
    "linear": lambda z: z,
    "soft_l1": lambda z: 2 * (np.sqrt(1 + z) - 1),
    "huber": lambda z: np.where(z <= 1, z, 2 * np.sqrt(np.where(z <= 1, 1.0, z)) - 1),
    "cauchy": np.log1p,
    "arctan": np.arctan,
}


def _half_squares(
    residual: Callable[[Any], Any], loss: str = "linear", scale: Any = 1.0
) -> Callable[[Any], Any]:
    def cost(x: Any) -> Any:
        r = array(residual(x)) / scale
        return np.sum(_LOSSES[loss](r * r)) * scale**2 / 2

    return cost


@functools.wraps(scipy.optimize.least_squares)
def least_squares(fun: Any, x0: Any, jac: Any = "2-point", bounds: Any = (-np.inf, np.inf),
                  method: str = "trf", *rest: Any, args: Any = (), kwargs: Any = None,
                  loss: Any = "linear", f_scale: Any = 1.0, **options: Any) -> Any:  # fmt: skip
    args, named = _tuple(args), kwargs or {}

    def bound(x: Any) -> Any:
        return fun(x, *args, **named)

    plain = Plainly(bound)
    slope = Plainly(lambda x: jac(x, *args, **named)) if callable(jac) else jac
    pair = (bounds.lb, bounds.ub) if isinstance(bounds, scipy.optimize.Bounds) else bounds
    solution = scipy.optimize.least_squares(
        plain, value(array(x0)), slope, value(pair), method, *rest, loss=loss,
        f_scale=value(f_scale), **options,
    )  # fmt: skip
    if not (plain.seen or holds((x0, pair, f_scale))):
        return solution
    if loss not in _LOSSES:
        raise NotDifferentiableError(
            "least_squares: a loss that is a function is not differentiated; minimize it with "
            "minimize, or take one of SciPy's by its name"
        )
    cost = _half_squares(bound, loss, f_scale)
    start = np.reshape(np.asarray(value(array(x0)), float), (-1,))
    x = minimum("least_squares", cost, solution.x, start, tuple(pair))
    result = _with_x(solution, x)
    result["fun"] = corrected(array(bound(x)), solution.fun)
    result["cost"] = corrected(cost(x), solution.cost)
    return result


@functools.wraps(scipy.optimize.curve_fit)
def curve_fit(f: Any, xdata: Any, ydata: Any, p0: Any = None, sigma: Any = None,
              absolute_sigma: bool = False, check_finite: Any = None,
              bounds: Any = (-np.inf, np.inf), method: Any = None, jac: Any = None,
              full_output: bool = False, **options: Any) -> Any:  # fmt: skip
    plain = Plainly(f)
    if p0 is None:
        p0 = _ones_for(f, bounds)
    slope = Plainly(jac) if callable(jac) else jac
    result = scipy.optimize.curve_fit(
        plain, value(xdata), value(array(ydata)), value(p0), value(sigma), absolute_sigma,
        check_finite if check_finite is not None else True, bounds, method, slope,
        full_output=full_output, **options,
    )  # fmt: skip
    if not (plain.seen or holds((xdata, ydata, sigma))):
        return result
    spread = None if sigma is None else array(sigma)
    if spread is not None and spread.ndim > 1:
        raise NotDifferentiableError(
            "curve_fit: a matrix sigma is not differentiated; pass standard deviations"
        )
    y = array(ydata)

    def residual(p: Any) -> Any:
        r = array(f(xdata, *[p[i] for i in range(len(result[0]))])) - y
        return r if spread is None else r / spread

    pair = bounds if isinstance(bounds, tuple) else (bounds.lb, bounds.ub)
    start = np.broadcast_to(np.asarray(value(p0), float), result[0].shape)
    popt = minimum("curve_fit", _half_squares(residual), result[0], start, pair)
    matrix = jacobian(residual)(popt)
    covariance = np.linalg.inv(np.matmul(matrix.T, matrix))
    if not absolute_sigma:
        excess = y.size - len(result[0])
        if excess <= 0:
            return (popt, result[1], *result[2:])
        covariance = covariance * np.sum(residual(popt) ** 2) / excess
    return (popt, corrected(covariance, result[1]), *result[2:])


def _ones_for(f: Any, bounds: Any) -> Any:
    """Return SciPy's default start, which it takes from the number of arguments."""
    count = len(inspect.signature(f).parameters) - 1
    low, high = bounds if isinstance(bounds, tuple) else (bounds.lb, bounds.ub)
    low, high = (np.broadcast_to(np.asarray(b, float), (count,)) for b in (low, high))
    both = np.isfinite(low) & np.isfinite(high)
    start = np.ones(count)
    start = np.where(np.isfinite(low) & ~both, low + 1, start)
    start = np.where(np.isfinite(high) & ~both, high - 1, start)
    return np.where(both, (np.where(both, low, 0) + np.where(both, high, 0)) / 2, start)


# -- the test function -----------------------------------------------------------------------------


@functools.wraps(scipy.optimize.rosen)
def rosen(x: Any) -> Any:
    if not holds(x):
        return scipy.optimize.rosen(x)
    x = array(x)
    return np.sum(100.0 * (x[1:] - x[:-1] ** 2.0) ** 2.0 + (1 - x[:-1]) ** 2.0, axis=0)


for _function, _ours in (
    (scipy.optimize.newton, newton), (scipy.optimize.root_scalar, root_scalar),
    (scipy.optimize.root, root), (scipy.optimize.fsolve, fsolve),
    (scipy.optimize.fixed_point, fixed_point), (scipy.optimize.minimize, minimize),
    (scipy.optimize.minimize_scalar, minimize_scalar),
    (scipy.optimize.least_squares, least_squares), (scipy.optimize.curve_fit, curve_fit),
    (scipy.optimize.rosen, rosen),
):  # fmt: skip
    REPLACEMENTS[_function] = _ours

linear_sum_assignment = constant(scipy.optimize.linear_sum_assignment)

_JUMPS = "its solution changes by jumps"
__getattr__, __dir__, __all__ = fill_in(
    globals(),
    scipy.optimize,
    dict.fromkeys(("milp", "isotonic_regression"), _JUMPS),
)

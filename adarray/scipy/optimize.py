"""Drop-in for `scipy.optimize`: roots that may depend on traced values.

SciPy finds the root with plain numbers. Where the equation depends on traced values,
by its arguments or as a closure, the root is then given its derivatives by the
implicit function theorem: steps of the chord method from the root, ``x - f(x) / s``
with the plain slope ``s``, move its value by nothing, and each makes one more order
of derivatives exact.

>>> import adarray
>>> from adarray.scipy import optimize
>>> adarray.grad(lambda a: optimize.brentq(lambda x: x**2 - a, 0.0, 10.0))(4.0)
0.25
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.optimize

from adarray.errors import NotDifferentiableError
from adarray.protocol import plain, traced
from adarray.scipy._drop_in import REPLACEMENTS, fill_in, value

Equation = Callable[[Any], Any]

# Chord steps: the derivatives up to this order are exact, the lower ones to rounding.
_STEPS = 4


def _slope(f: Equation, x: Any) -> Any:
    """Return df/dx at a root, elementwise, by central differences of plain values."""
    h = 6e-6 * np.maximum(1e-3, np.abs(x))
    return (value(f(x + h)) - value(f(x - h))) / (2.0 * h)


def _jacobian(f: Equation, x: np.ndarray) -> np.ndarray:
    """Return the matrix df/dx at a root by central differences of plain values."""
    columns = []
    for i in range(x.size):
        move = np.zeros(x.shape)
        move.flat[i] = 6e-6 * max(1e-3, abs(x.flat[i]))
        change = np.asarray(value(f(x + move))) - np.asarray(value(f(x - move)))
        columns.append(np.ravel(change) / (2.0 * move.flat[i]))
    return np.stack(columns, axis=1)


def _singular(name: str, what: str) -> NotDifferentiableError:
    return NotDifferentiableError(
        f"{name}: the root does not depend smoothly on traced values, since {what}; start at a "
        "simple root, or pass adarray.value_of(x) if no gradient should flow through it"
    )


def _moved(name: str, f: Equation, x: Any) -> Any:
    """Return the scalar or elementwise root `x` as a function of what `f` depends on."""
    if not traced(f(x)):
        return x
    slope = _slope(f, x)
    if not np.all(np.isfinite(slope)) or np.any(slope == 0):
        raise _singular(name, f"the slope of the equation there is {slope}")
    root = x
    for _ in range(_STEPS):
        root = root - f(root) / slope
    return root + (x - value(root))  # SciPy's value, to the last bit


def _moved_vector(name: str, f: Equation, x: np.ndarray) -> Any:
    """Return the root `x` of a system as a function of what `f` depends on."""
    first = f(x)
    if not traced(first):
        return x
    matrix = _jacobian(f, x)
    if matrix.shape[0] != matrix.shape[1]:
        raise NotDifferentiableError(
            f"{name}: the system has {matrix.shape[0]} equations for {matrix.shape[1]} unknowns; "
            "as many equations as unknowns are differentiated"
        )
    if not np.all(np.isfinite(matrix)) or np.linalg.matrix_rank(matrix) < matrix.shape[0]:
        raise _singular(name, "the Jacobian of the system there is singular")
    inverse = np.linalg.inv(matrix)
    root: Any = x
    for _ in range(_STEPS):
        equations = f(root)
        if isinstance(equations, (list, tuple)):
            equations = np.stack(equations)
        step = np.matmul(inverse, np.reshape(equations, (-1,)))
        root = root - np.reshape(step, x.shape)
    return root + (x - value(root))


def _plain_function(f: Callable[..., Any], seen: list[bool]) -> Callable[..., Any]:
    """Return `f` such that SciPy gets plain values of it; `seen` notes a traced one."""

    def call(*args: Any, **kwargs: Any) -> Any:
        r = f(*args, **kwargs)
        if not seen and traced(r):
            seen.append(True)
        return plain(r)

    return call


def _stacked(f: Callable[..., Any], args: tuple[Any, ...]) -> Equation:
    """Return the system as a function of the unknowns alone; a list of equations is joined."""

    def equations(x: Any) -> Any:
        y = f(x, *args)
        return np.stack([np.asarray(v) if not hasattr(v, "ndim") else v for v in y]) if isinstance(
            y, (list, tuple)
        ) else y  # fmt: skip

    return equations


def _solver(name: str, read: Callable[..., Any]) -> Callable[..., Any]:
    """Return a root finder of SciPy's for equations that depend on traced values.

    ``read(result, move)`` returns SciPy's result with its root moved.
    """
    original: Any = getattr(scipy.optimize, name)
    signature = inspect.signature(original)
    first = next(iter(signature.parameters))

    @functools.wraps(original)
    def solve(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        f = bound.arguments[first]
        extra = bound.arguments.get("args", ())
        if name == "newton":
            extra = tuple(extra)  # of any sequence; the others take one argument as it is
        elif not isinstance(extra, tuple):
            extra = (extra,)
        depends = [True] if traced(extra) else []
        for key, given in bound.arguments.items():
            changed = _plain_function(given, depends) if callable(given) else plain(given)
            bound.arguments[key] = changed
        result = original(*bound.args, **bound.kwargs)
        if not depends:
            return result
        if any(bound.arguments.get(k) is True for k in ("fprime", "fprime2", "jac")):

            def equation(x: Any) -> Any:
                return f(x, *extra)[0]  # the function returns its derivative with it
        else:

            def equation(x: Any) -> Any:
                return f(x, *extra)

        return read(result, name, equation)

    REPLACEMENTS[original] = solve
    return solve


def _number(result: Any, name: str, f: Equation) -> Any:
    """Move the root that is the result, or the first item of it."""
    if isinstance(result, tuple):
        return (_moved(name, f, result[0]), *result[1:])
    return _moved(name, f, result)


def _scalar_object(result: Any, name: str, f: Equation) -> Any:
    result.root = _moved(name, f, result.root)
    return result


def _vector(result: Any, name: str, f: Equation) -> Any:
    """Move the solution of a system, with or without ``full_output``."""
    f = _stacked(f, ())
    if isinstance(result, tuple):
        return (_moved_vector(name, f, result[0]), *result[1:])
    return _moved_vector(name, f, result)


def _vector_object(result: Any, name: str, f: Equation) -> Any:
    result.x = _moved_vector(name, _stacked(f, ()), result.x)
    return result


def _fixed(result: Any, name: str, f: Equation) -> Any:
    """Move a fixed point: the root of ``f(x) - x``."""
    return _moved(name, lambda x: f(x) - x, result)


brentq = _solver("brentq", _number)
brenth = _solver("brenth", _number)
ridder = _solver("ridder", _number)
bisect = _solver("bisect", _number)
toms748 = _solver("toms748", _number)
newton = _solver("newton", _number)
root_scalar = _solver("root_scalar", _scalar_object)
fsolve = _solver("fsolve", _vector)
root = _solver("root", _vector_object)
fixed_point = _solver("fixed_point", _fixed)

_ARGMIN = "the minimum is not differentiated; solve for a zero of the gradient with root or fsolve"
__getattr__, __dir__, __all__ = fill_in(
    globals(),
    scipy.optimize,
    dict.fromkeys(
        ("minimize", "minimize_scalar", "least_squares", "curve_fit", "leastsq"), _ARGMIN
    ),
)

"""`adarray.intercept` and `adarray.wrap`: existing code, unedited, over ADArrays."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable
from contextvars import Token
from typing import Any

import numpy as np

from adarray.base.scope import SCOPE, InterceptScope, client_of, package_of
from adarray.core.reaching import Reached
from adarray.core.trace import Handle
from adarray.intercepting import imports
from adarray.intercepting.inside import Entered
from adarray.intercepting.rebinding import globals_of, rebind, rebind_reached


class intercept:  # noqa: N801  (reads as a statement)
    """Context manager to differentiate NumPy code that converts or creates arrays.

    Through NumPy's protocols, adarray sees every call of a NumPy function with a traced array. It
    does not see ``np.array([x, 1.0])``, ``np.asarray(x)``, a ``buffer = np.zeros(n)`` that is
    filled later, ``math.exp(x)`` or ``float(x)``. Inside this context, all of these accept and
    return ADArrays. Transforms such as `grad` open it by themselves, unless they are called with
    ``intercept=False``.

    Parameters
    ----------
    *packages : str or module
        Top-level packages or modules whose code is intercepted. By default: every package that is
        written purely in Python, and ``__main__``.

    Notes
    -----
    On first use, the global names in these modules that refer to numpy, math, cmath, scipy and
    their functions are rebound to stand-ins, permanently. Outside of the context, and in other
    threads, a stand-in passes every call through to the original. NumPy itself is never changed,
    and no code runs twice.

    Examples
    --------
    >>> import numpy as np, adarray
    >>> def area(x):
    ...     sides = np.zeros(2)
    ...     sides[0], sides[1] = x, 2.0 * x
    ...     return np.prod(sides)
    >>> with adarray.intercept():
    ...     adarray.grad(area)(3.0)
    12.0
    """

    def __init__(self, *packages: str | types.ModuleType) -> None:
        names = []
        for p in packages:
            name = p.__name__ if isinstance(p, types.ModuleType) else p
            if not isinstance(name, str):
                raise TypeError(
                    f"intercept: expected names of packages or modules, got {type(p).__name__}; "
                    "pass for instance 'mypackage', or nothing for all"
                )
            names.append(package_of(name))
        self._scope = InterceptScope(frozenset(names) if names else None)
        self._tokens: list[Token[InterceptScope | None]] = []

    def __enter__(self) -> None:
        rebind(self._scope.packages, sys._getframe(1).f_globals)
        imports.begin()
        self._tokens.append(SCOPE.set(self._scope.joined(SCOPE.get())))

    def __exit__(self, *error: object) -> None:
        SCOPE.reset(self._tokens.pop())
        imports.end()


def intercepted(f: Callable[..., Any], *packages: str) -> Callable[..., Any]:
    """Return `f` run inside of `intercept`, its plain array arguments as ADArrays.

    Parameters
    ----------
    f : callable
    *packages : str
        As for `intercept`.

    Returns
    -------
    callable
        Takes and returns what `f` does.
    """
    limits = frozenset(packages) if packages else None

    @_wraps(f)
    def inside(*args: Any, **kwargs: Any) -> Any:
        return run_inside(f, args, kwargs, limits)

    return inside


def run_inside(
    f: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    packages: frozenset[str] | None = None,
    reached: Reached | None = None,
) -> Any:
    """Call `f`, of which `reached` may be known, inside of `intercept`; see `intercepted`."""
    rebind_reached(f, packages, reached)
    imports.begin()
    outer = SCOPE.get()
    scope = InterceptScope(packages)
    token = SCOPE.set(scope if outer is None else scope.joined(outer))
    try:
        if not kwargs:
            for x in args:
                if type(x) not in _PASSED:
                    break
            else:
                return f(*args)
        entered = Entered()
        try:
            return f(*map(entered.tree, args), **{k: entered.tree(v) for k, v in kwargs.items()})
        finally:
            entered.give_back()
    finally:
        SCOPE.reset(token)
        imports.end()


# What enters as it is.
_PASSED = frozenset({Handle.array_class, Handle.number_class, float, int, complex, bool, str,
                     types.NoneType, np.float64, np.float32})  # fmt: skip


def _wraps(f: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator like `functools.wraps` for an `f` that may lack some attributes."""

    def decorate(wrapper: Callable[..., Any]) -> Callable[..., Any]:
        try:
            return functools.wraps(f)(wrapper)
        except (AttributeError, TypeError):
            return wrapper

    return decorate


def wrap(f: Callable[..., Any]) -> Callable[..., Any]:
    """Return a version of a package's function that can be differentiated.

    Parameters
    ----------
    f : callable
        A function of a package that uses NumPy.

    Returns
    -------
    callable
        Calls `f` under `intercept`, limited to the top-level package of `f`. Plain arguments give
        plain results, ADArrays give ADArrays.

    Raises
    ------
    TypeError
        If `f` is not callable.

    Examples
    --------
    >>> import numpy as np, adarray
    >>> def pair(x):
    ...     return np.array([x, x**2])
    >>> adarray.jacobian(adarray.wrap(pair))(3.0)
    array([1., 6.])
    """
    if not callable(f):
        raise TypeError(f"wrap: expected a function, got {type(f).__name__}")
    space = globals_of(f)
    package = client_of(space) or package_of(space.get("__name__") or type(f).__module__)
    run = intercepted(f, package)

    @_wraps(f)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if not _holds(args) and not _holds(kwargs):
            return f(*args, **kwargs)
        return run(*args, **kwargs)

    return wrapped


def _holds(tree: Any) -> bool:
    if isinstance(tree, Handle):
        return True
    if isinstance(tree, (list, tuple)):
        return any(map(_holds, tree))
    return isinstance(tree, dict) and any(map(_holds, tree.values()))

"""Running the function that a transform was given."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

from adarray.needs import dispatches
from adarray.reaching import reach, reach_arguments


def prepared(f: Callable[..., Any], intercept: bool) -> Callable[..., Any]:
    """Return what runs `f` in a transform, inside of `adarray.intercept` if `f` needs that."""
    intercept = intercept and not dispatches(f)  # other transforms see to their own function

    def run(*args: Any, **kwargs: Any) -> Any:
        calls = reach_arguments(args, kwargs)
        reached = reach(f)
        if intercept and (reached.needs or calls):
            return _interception()(f, args, kwargs, None, reached)
        return f(*args, **kwargs)

    return run


@functools.cache
def _interception() -> Any:
    # As long to import as all operations.
    return importlib.import_module("adarray.intercepting").run_inside


def check_function(name: str, f: Any) -> None:
    """Raise if what a transform was given is no function.

    Raises
    ------
    TypeError
    """
    if not callable(f):
        raise TypeError(f"{name}: expected a function, got {type(f).__name__}")


def with_aux(name: str, y: Any) -> tuple[Any, Any]:
    """Return what a function with `has_aux` returned, a pair ``(value, aux)``.

    Raises
    ------
    TypeError
    """
    if not isinstance(y, tuple) or len(y) != 2:
        raise TypeError(
            f"{name}: has_aux=True, but the function returned {type(y).__name__}; "
            "return a pair (value, aux)"
        )
    return y

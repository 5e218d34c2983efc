"""Running the function that a transform was given."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable
from types import CoroutineType, FunctionType, ModuleType
from typing import Any

from adarray.base.aval import BATCHED
from adarray.base.errors import DTypeError
from adarray.base.frames import is_labelled
from adarray.base.scope import SCOPE, package_of
from adarray.core.comparing import refuse_truths
from adarray.core.escaping import begin
from adarray.core.holding import DATA, TABLES, attributes_of, items_of
from adarray.core.needs import dispatches
from adarray.core.protocol import followed
from adarray.core.reaching import reach, reach_arguments
from adarray.core.trace import Handle
from adarray.transforms.tree import flatten, is_number

_LOOKED_AT = 500  # objects that a result leads to


def prepared(f: Callable[..., Any], intercept: bool) -> Callable[..., Any]:
    """Return `f` as transforms run it: inside of `adarray.intercept` if it needs that."""
    own = dispatches(f)  # other transforms see to their own function
    plainly = not intercept and not own
    intercept = intercept and not own
    outside = intercept and package_of(getattr(f, "__module__", None)) in _OUTSIDE

    def run(*args: Any, **kwargs: Any) -> Any:
        begin(f)
        calls = reach_arguments(args, kwargs)
        if outside:  # as code that calls it would get it
            return _interception()(_stand_in()(f), args, kwargs)
        reached = reach(f)
        if intercept and (reached.needs or calls):
            return _interception()(f, args, kwargs, None, reached)
        if plainly and reached.truths and SCOPE.get() is None:
            refuse_truths(reached.truths)
        return f(*args, **kwargs)

    return run


# Of functions that are no client's, and open up in client code alone.
_OUTSIDE = frozenset({"math", "cmath", "scipy"})


@functools.cache
def _stand_in() -> Any:
    return importlib.import_module("adarray.intercepting.binding").stand_in_of


@functools.cache
def _interception() -> Any:
    # As long to import as all operations.
    return importlib.import_module("adarray.intercepting").run_inside


def by_position(
    name: str, f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], argnums: Any
) -> tuple[tuple[Any, ...], dict[str, Any], Any, tuple[str, ...]]:
    """Return a call whose differentiated arguments have positions, where some are named.

    Parameters
    ----------
    name : str
        The transform.
    f : callable
    args, kwargs : tuple, dict
        Of the call.
    argnums : int, str, or sequence of them
        Not an int alone.

    Returns
    -------
    args, kwargs : tuple, dict
        Arguments that are differentiated and were given by keyword stand behind the others.
    argnums : int or tuple of int
    moved : tuple of str
        Their names.

    Raises
    ------
    TypeError
        If a name is that of no argument of this call.
    """
    wanted = (argnums,) if isinstance(argnums, str) else tuple(argnums)
    positional, rest, moved, positions = list(args), dict(kwargs), [], []
    for k in wanted:
        if not isinstance(k, str):
            positions.append(k)
        elif k in rest:
            positions.append(len(positional))
            positional.append(rest.pop(k))
            moved.append(k)
        else:
            names = list(inspect.signature(f).parameters) if callable(f) else []
            if k not in names[: len(args)]:
                raise TypeError(
                    f"{name}: argnums={argnums!r}, but no argument {k!r} was passed to "
                    f"{getattr(f, '__name__', 'the function')}({', '.join(names)}); pass it"
                )
            positions.append(names.index(k))
    if moved:  # positions from the end are those of the call
        positions = [
            k % len(args) if isinstance(k, int) and k < 0 and args else k for k in positions
        ]
    places = positions[0] if isinstance(argnums, str) else tuple(positions)
    return tuple(positional), rest, places, tuple(moved)


def with_names(run: Callable[..., Any], moved: tuple[str, ...]) -> Callable[..., Any]:
    """Return `run` such that the last positional arguments have these names."""
    if not moved:
        return run

    def call(*args: Any, **kwargs: Any) -> Any:
        at = len(args) - len(moved)
        return run(*args[:at], **dict(zip(moved, args[at:], strict=True)), **kwargs)

    return call


def check_function(name: str, f: Any) -> None:
    """Raise if the argument of a transform is not a function.

    Raises
    ------
    TypeError
    """
    if not callable(f):
        raise TypeError(f"{name}: expected a function, got {type(f).__name__}")


def check_returned(name: str, y: Any) -> None:
    """Raise if a function returned nothing, or a coroutine or generator.

    Raises
    ------
    TypeError
    """
    if y is None:
        raise TypeError(
            f"{name}: the function returned None; return what is to be differentiated, an array, a "
            "number or a nest of them"
        )
    check_computed(name, y)
    if not is_number(y):
        refuse_containers(name, flatten(y)[0])


def refuse_containers(name: str, leaves: list[Any]) -> None:
    """Raise if a result is an object that holds traced values: it has no derivative itself.

    Raises
    ------
    DTypeError
    """
    for x in leaves:
        if is_number(x) or isinstance(x, (str, bytes)) or callable(x) or not _holds_followed(x):
            continue
        kind = type(x).__name__
        hint = "its .data" if is_labelled(x) else "the arrays that it holds"
        raise DTypeError(
            f"{name}: the function returned a {kind}, which holds values that are followed, and is "
            f"no array: nothing of them would be seen; return {hint}, alone or in a tuple or dict"
        )


def _holds_followed(x: Any) -> bool:
    """Whether an object leads to a value with a derivative, or with one value for each member."""
    waiting, seen = [x], {id(x)}
    while waiting and len(seen) < _LOOKED_AT:
        x = waiting.pop()
        if isinstance(x, Handle):
            if followed(x) or type(x._plain) in BATCHED:
                return True
            continue
        if type(x) in DATA or isinstance(x, (type, ModuleType, FunctionType)):
            continue
        for part in (*attributes_of(x), *(items_of(x) if isinstance(x, TABLES) else ())):
            if id(part) not in seen:
                seen.add(id(part))
                waiting.append(part)
    return False


def check_computed(name: str, y: Any) -> None:
    """Raise if a function has returned a generator or the like, whose code has not run yet.

    Raises
    ------
    TypeError
    """
    kind = type(y)  # an ADArray looks for who asks where it is asked itself
    if hasattr(kind, "__next__") or issubclass(kind, CoroutineType):
        raise TypeError(
            f"{name}: the function returned a {kind.__name__}, which computes later, where no "
            "derivative is taken; return a list of its items"
        )


def with_aux(name: str, y: Any) -> tuple[Any, Any]:
    """Split the result of a function with `has_aux`, a pair ``(value, aux)``.

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

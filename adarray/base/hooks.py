"""Hooks: functions of a layer above that a layer below calls.

The layer below owns the hook and calls ``hook.call(...)``; the module above sets it when it is
imported. They serve where an import would point upwards, since imports only go down the layers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NoReturn, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])


class Hook(Generic[F]):
    """A function that is provided later, by the module that the hook names.

    Parameters
    ----------
    set_by : str
        The module.
    default : callable, optional
        What is called until then; without it a call raises.

    Attributes
    ----------
    call : callable
        The function. It is an attribute and not a method: a call costs no more than any other.

    Examples
    --------
    >>> from collections.abc import Callable
    >>> total: Hook[Callable[[list[float]], float]] = Hook("numbers of a layer above")
    >>> total.call([1.0, 2.0])
    Traceback (most recent call last):
        ...
    RuntimeError: adarray, internal: a function of numbers of a layer above is called before ...
    >>> total.set(sum)
    >>> total.call([1.0, 2.0])
    3.0
    """

    __slots__ = ("call", "is_set")

    def __init__(self, set_by: str, default: F | None = None) -> None:
        def unset(*_args: Any, **_kwargs: Any) -> NoReturn:
            raise RuntimeError(
                f"adarray, internal: a function of {set_by} is called before that is imported"
            )

        self.call: F = cast("F", unset) if default is None else default
        self.is_set = False

    def set(self, function: F) -> None:
        """Provide the function."""
        self.call = function
        self.is_set = True

"""The type of jitted functions for type checkers: called like the wrapped function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, Protocol, TypeVar, overload

from adarray.jitting.shared.options import Options
from adarray.jitting.tree.entries import CacheInfo

_P = ParamSpec("_P")
_R = TypeVar("_R")
_R_co = TypeVar("_R_co", covariant=True)


class Jitted(Protocol[_P, _R_co]):
    """A jitted function; `adarray.jitting.JitFunction` to `isinstance`."""

    __name__: str
    __wrapped__: Callable[..., Any]
    options: Options

    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R_co:
        """Call the function, compiled where that is possible."""
        ...

    @overload
    def __get__(self, obj: None, cls: type | None = None) -> Jitted[_P, _R_co]: ...
    @overload
    def __get__(self, obj: object, cls: type | None = None) -> Callable[..., _R_co]: ...

    def explain(self, *args: Any, **kwargs: Any) -> Any:
        """Return a report of what a call with these arguments compiles to."""
        ...

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compile what a call with these arguments runs, and wait until it is ready."""
        ...

    def cache_info(self) -> CacheInfo:
        """Return how much was recorded and compiled."""
        ...

    def stats(self) -> CacheInfo:
        """Return how much was recorded and compiled."""
        ...

    def clear(self) -> None:
        """Forget everything that was recorded and compiled."""
        ...


class Decorator(Protocol):
    """``jit(donate=0)``, say."""

    def __call__(self, f: Callable[_P, _R], /) -> Jitted[_P, _R]:
        """Return the function, compiled."""
        ...

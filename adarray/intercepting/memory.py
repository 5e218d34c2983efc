"""Functions with `functools.lru_cache` inside of `adarray.intercept`.

Results for plain arguments come from the function's own cache, as everywhere else: code may have
written into it. What is not in it yet is computed as outside of the context, since the cache
outlives it and must not hold ADArrays. Functions of traced values, by their arguments or by what
they captured, use a cache that ends with the context.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable
from typing import Any

import numpy as np

from adarray.base import levels
from adarray.base.runtime import MODE
from adarray.base.scope import SCOPE
from adarray.core.caught import is_refused
from adarray.core.protocol import followed, traced
from adarray.core.trace import Handle, plain_class

_CACHED = type(functools.cache(lambda: None))
_REFUSED = object()


def is_cached(value: Any) -> bool:
    """Whether `value` is a function decorated with `functools.lru_cache` or `cache`."""
    return type(value) is _CACHED


def holds(cached: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a cache holds the result of a call, so that the function itself would not run.

    No method tells. The garbage collector gives the dictionary of the cache, and the object by
    which its keys tell keyword arguments from others; where it does not, nothing is held.
    """
    key: Any = args
    for item in kwargs.items():
        key += item
    referents = gc.get_referents(cached)
    if kwargs:
        marks = [x for x in referents if type(x) is object]
        key = (*args, *marks, *key[len(args) :])
    if cached.cache_parameters()["typed"]:
        key = (*key, *map(type, args), *map(type, kwargs.values()))
    elif not kwargs and len(args) == 1 and type(args[0]) in (int, str):
        key = args[0]
    own = getattr(cached, "__dict__", None)
    return any(type(x) is dict and x is not own and key in x for x in referents)


def _plain(key: Any) -> Any:
    """Return parts of a key with what has a hash, or has none, in a plain run."""
    if isinstance(key, tuple):
        return tuple(map(_plain, key))
    if isinstance(key, Handle):
        return np.zeros(()) if issubclass(plain_class(key), np.ndarray) else 0
    return key


class Memory:
    """A cached function as it is inside of `intercept`."""

    __slots__ = ("cached", "function")

    def __init__(self, cached: Any) -> None:
        self.cached = cached
        self.function = cached.__wrapped__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function, or return what it returned for equal arguments before."""
        scope = SCOPE.get()
        assert scope is not None
        mode = MODE.get()
        if not (followed(args) or followed(kwargs)):
            call: Callable[[], Any] = functools.partial(self.cached, *args, **kwargs)
            if mode is not None and mode.recorder is not None:
                call = mode.recorder.cached(self.cached, args, kwargs)
            r = self._plainly(call)
            if r is not _REFUSED:
                return r
        key = (self, args, tuple(kwargs.items()), *map(type, args))
        try:
            known = key in scope.memory
        except TypeError:
            hash(_plain((*args, *kwargs.values())))  # as the cache: arrays and lists have none
            return self.function(*args, **kwargs)
        if not known:
            r = self.function(*args, **kwargs)
            if traced(r):  # of a closure: it may be another value the next time
                return r
            scope.memory[key] = r
        return scope.memory[key]

    def _plainly(self, call: Callable[[], Any]) -> Any:
        """Return the result outside of the context; `_REFUSED` if that needs the context.

        A result is traced where the function captured what is traced now: that is not for its
        cache.
        """
        refused = levels.remembered()
        token = SCOPE.set(None)
        try:
            r = call()
        except Exception as error:
            if not is_refused(error):  # it is the function's own
                raise
            levels.forget(error)
            levels.restore(refused)
            return _REFUSED
        finally:
            SCOPE.reset(token)
        if traced(r):
            self.cached.cache_clear()
        return r

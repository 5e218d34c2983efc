"""Functions with `functools.lru_cache` inside of `adarray.intercept`.

Results for plain arguments come from the function's own cache, as everywhere else: code may have
written into it. What is not in it yet is computed as outside of the context, since the cache
outlives it and must not hold ADArrays. Functions of traced values, by their arguments or by what
they captured, use a cache that ends with the context.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from adarray.base import levels
from adarray.base.runtime import MODE
from adarray.base.scope import SCOPE
from adarray.core.protocol import followed, traced
from adarray.core.trace import Handle, plain_class

_CACHED = type(functools.cache(lambda: None))
_TRACED = object()


def is_cached(value: Any) -> bool:
    """Whether `value` is a function decorated with `functools.lru_cache` or `cache`."""
    return type(value) is _CACHED


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
            call = functools.partial(self.cached, *args, **kwargs)
            if mode is not None and mode.recorder is not None:
                call = functools.partial(mode.recorder.cached, self.cached, args, kwargs)
            r = self._plainly(call)
            if r is not _TRACED:
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
        """Return the result outside of the context; `_TRACED` if it cannot tell.

        It cannot where the function captured what is traced now: that is not for its cache.
        """
        refused = levels.remembered()
        token = SCOPE.set(None)
        try:
            r = call()
        except Exception as error:
            levels.forget(error)
            levels.restore(refused)
            return _TRACED
        finally:
            SCOPE.reset(token)
        if not traced(r):
            return r
        self.cached.cache_clear()
        return _TRACED

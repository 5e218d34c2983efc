"""Functions with `functools.lru_cache` inside of `adarray.intercept`.

Their cache outlives the context, and must not hold ADArrays made in it: inside, a
function uses a cache that ends with the context. While `jit` records, what they return for
plain arguments comes from their own cache, as in every call that is not recorded: code may
write into it.
"""

from __future__ import annotations

import functools
from typing import Any

from adarray.protocol import followed, traced
from adarray.runtime import MODE
from adarray.scope import SCOPE

_CACHED = type(functools.cache(lambda: None))


def is_cached(value: Any) -> bool:
    """Whether `value` is a function decorated with `functools.lru_cache` or `cache`."""
    return type(value) is _CACHED


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
        if mode is not None and mode.symbolic and not (followed(args) or followed(kwargs)):
            engine: Any = mode.engine
            return engine.cached(self.cached, args, kwargs)
        key = (self, args, tuple(kwargs.items()), *map(type, args))
        try:
            known = key in scope.memory
        except TypeError:  # arrays have no hash: nor would the cache take them
            return self.function(*args, **kwargs)
        if not known:
            r = self.function(*args, **kwargs)
            if traced(r):  # of a closure: it may be another value the next time
                return r
            scope.memory[key] = r
        return scope.memory[key]

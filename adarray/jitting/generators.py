"""Random generators as arguments: their draws are recorded, and run anew in every call."""

from __future__ import annotations

from typing import Any

import numpy as np

from adarray.jitting.symbolic import UntraceableError, concrete, opened, symbolic
from adarray.recording import Symbol


def draw(generator: Any, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a method of a random generator: what a recorded draw runs."""
    return getattr(generator, method)(*args, **kwargs)


class TracedGenerator:
    """A `numpy.random.Generator` argument whose draws are recorded."""

    def __init__(self, generator: np.random.Generator, symbol: Symbol, recorder: Any) -> None:
        self._generator = generator
        self._symbol = symbol
        self._recorder = recorder

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return np.random.Generator

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._generator, name)
        if name.startswith("_") or not callable(found) or name in ("spawn",):
            raise UntraceableError(f"jit: {name} of a random generator cannot be recorded")

        def method(*args: Any, **kwargs: Any) -> Any:
            args, kwargs = opened(args), opened(kwargs)
            r = found(*concrete(args), **concrete(kwargs))
            if r is None:
                raise UntraceableError(
                    f"jit: rng.{name} changes its argument in place; use rng.permutation"
                )
            traced = self._recorder.host(
                draw, (self._symbol, name, symbolic(args), symbolic(kwargs)), r
            )
            return self._recorder.handles(traced)

        return method

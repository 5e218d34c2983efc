"""What a kernel of these tests is, and the table of all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Rng = np.random.Generator


@dataclass(frozen=True)
class Case:
    """A kernel and a launch; ``REAL`` in the source stands for float or double.

    ``args(rng, dtype)`` returns the arguments; `by` are the positions of those that are
    differentiated by; ``expected(*args)`` returns the arrays that are written.
    """

    name: str
    source: str
    grid: Any
    block: Any
    args: Callable[[Rng, Any], list[Any]]
    by: tuple[int, ...]
    expected: Callable[..., Any] | None = None
    shared: Callable[[int], int] = lambda size: 0
    options: tuple[str, ...] = ()
    instance: str = ""

    def text(self, dtype: str) -> str:
        """Return the source for float32 or float64."""
        real = {"float32": "float", "float64": "double"}[dtype]
        return self.source.replace("REAL", real)

    def kernel_name(self, dtype: str) -> str:
        """Return what `RawKernel` is given as the name."""
        real = {"float32": "float", "float64": "double"}[dtype]
        return self.instance.replace("REAL", real) or self.name

    def shared_bytes(self, dtype: str) -> int:
        """Return the bytes of dynamic shared memory."""
        return self.shared(np.dtype(dtype).itemsize)


class Family(dict[str, Case]):
    """Cases by name."""

    def add(self, *args: Any, **kwargs: Any) -> None:
        """Add a case, from what `Case` takes."""
        case = Case(*args, **kwargs)
        self[case.name] = case


def normal(*shape: int) -> Callable[[Rng, Any], np.ndarray]:
    """Return a function that draws normally distributed arguments."""
    return lambda rng, dtype: rng.normal(size=shape).astype(dtype)

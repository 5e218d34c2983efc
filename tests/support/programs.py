"""Programs as text, with inputs made for them, and what shows how they were run.

For tests that compare a program under `jit` with a plain run.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Argument(NamedTuple):
    """An argument of a program: what is passed for it.

    Parameters
    ----------
    name : str
    shape : tuple of int
    dtype : str
    layout : {"C", "F", "strided", "reversed", "python"}
        How the array lies in memory; ``python`` is a float.
    rounded : bool
        Whether values are multiples of 1/4, so that there are ties and zeros.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    layout: str
    rounded: bool

    def make(self, rng: np.random.Generator) -> Any:
        """Return a value between -2 and 2."""
        x = rng.uniform(-2.0, 2.0, self.shape)
        if self.rounded:
            x = np.round(4 * x) / 4
        x = np.asarray(x, self.dtype)
        if self.layout == "python":
            return float(x)
        if self.layout == "F":
            return np.asfortranarray(x)
        if self.layout == "strided" and x.ndim:
            return np.repeat(x, 2, axis=-1)[..., ::2]
        if self.layout == "reversed" and x.ndim:
            return x[::-1].copy()[::-1]
        return x

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}{list(self.shape)} {self.layout}" + (
            ", rounded" if self.rounded else ""
        )


_CONDITION = re.compile(r"^(\s*(?:if|while) )(.*):$", re.MULTILINE)
_LOSS = """

def loss({names}):
    results = f({names})
    if type(results) is not tuple:
        results = (results,)
    return sum(np.sum(np.tanh(r)) for r in results)
"""


class RandomProgram:
    """Source text of a function ``f``, its arguments, and which results have sure bits.

    Attributes
    ----------
    source : str
    arguments : list of Argument
    exact : tuple of bool
        For each result, whether only functions that round one way made it.
    """

    def __init__(self, source: str, arguments: list[Argument], exact: tuple[bool, ...]) -> None:
        names = ", ".join(a.name for a in arguments)
        self.source = source + _LOSS.format(names=names)
        self.arguments = arguments
        self.exact = exact

    def args(self, seed: int) -> list[Any]:
        """Return arguments; equal seeds give equal ones."""
        rng = np.random.default_rng(seed)
        return [a.make(rng) for a in self.arguments]

    def function(self, name: str = "f") -> Callable[..., Any]:
        """Return the function of that name, made anew."""
        return self._run(self.source)[name]  # type: ignore[no-any-return]

    def watched(self, name: str = "f") -> tuple[Callable[..., Any], list[Any]]:
        """Return a function, and the list in which it notes what its conditions saw."""
        seen: list[Any] = []

        def noted(x: Any) -> bool:
            seen.append(bool(x))
            return seen[-1]

        source = _CONDITION.sub(r"\1_look(\2):", self.source)
        return self._run(source, _look=noted)[name], seen

    def _run(self, source: str, **names: Any) -> dict[str, Any]:
        # A file name of its own, so that tracebacks and recordings show the text.
        file = f"<program {hash(source) & 0xFFFFFFFF:08x}>"
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
        namespace: dict[str, Any] = {"np": np, "__name__": "random_program", **names}
        exec(compile(source, file, "exec"), namespace)  # our own text
        return namespace

    def __repr__(self) -> str:
        inputs = "".join(f"# {a}\n" for a in self.arguments)
        return f"\n{inputs}{self.source}"


def as_tuple(results: Any) -> tuple[Any, ...]:
    """Return results as a tuple."""
    return results if isinstance(results, tuple) else (results,)

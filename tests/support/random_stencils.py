"""Random stencils on arrays of several axes for tests: steps along axes, and what is around."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np


class StencilProgram:
    """Steps along some axes of an array, written as NumPy text.

    Parameters
    ----------
    seed : int

    Attributes
    ----------
    text : str
    f : callable
        A number, of the arrays.
    shapes : list of tuple of int
        Of the arrays.
    """

    def __init__(self, seed: int) -> None:
        self.random = r = random.Random(seed)
        self.ndim = r.choice((2, 3, 3, 4, 4))
        self.shape = [r.choice((3, 4, 5, 6, 7, 9, 12)) for _ in range(self.ndim)]
        self.shapes = [tuple(self.shape)]
        self.constants: dict[str, Any] = {"np": np}
        body = ["a = np.tanh(x0)"]
        for _ in range(r.choice((1, 2, 3))):
            body += r.choice((self._steps, self._steps, self._around))()
        lines = [*body, f"return {self._result()}"]
        arguments = ", ".join(f"x{k}" for k in range(len(self.shapes)))
        self.text = f"def f({arguments}):\n" + "\n".join(f"    {line}" for line in lines)
        exec(self.text, self.constants)
        self.f: Callable[..., Any] = self.constants["f"]

    def arguments(self, dtype: str) -> list[np.ndarray]:
        """Return arrays to call it with."""
        rng = np.random.default_rng(len(self.text))
        return [rng.normal(size=s).astype(dtype) for s in self.shapes]

    def _axes(self) -> list[int]:
        return sorted(
            self.random.sample(range(self.ndim), self.random.choice((1, 1, 2, self.ndim)))
        )

    def _steps(self) -> list[str]:
        """Return some steps: rolls along axes, slices along one, or slices that are written."""
        kind = self.random.choice((self._rolled, self._sliced, self._written))
        return [f"for _ in range({self.random.choice((1, 2, 3))}):", *kind()]

    def _rolled(self) -> list[str]:
        far = self.random.choice((1, 1, 2))
        axes = self._axes()
        rolls = [f"np.roll(a, {far * s}, axis={k})" for k in axes for s in (1, -1)]
        inner = f"np.tanh({' + '.join(rolls)} - {2 * len(axes)}.0 * a)"
        factor = self.random.choice(("0.1", "0.1 * a", "0.05 * x0" if self._is_whole() else "0.1"))
        return [f"    a = a + {factor} * {inner}"]

    def _is_whole(self) -> bool:
        return tuple(self.shape) == self.shapes[0]

    def _at(self, axis: int, part: str) -> str:
        return f"a[{', '.join([':'] * axis + [part])}]"

    def _sliced(self) -> list[str]:
        k = self.random.randrange(self.ndim)
        left, mid, right = (self._at(k, s) for s in (":-2", "1:-1", "2:"))
        more = self.random.choice(("", f" - 0.2 * {mid} * ({right} - {left})"))
        ends = self._at(k, ":1"), self._at(k, "-1:")
        return [
            f"    c = {mid} + 0.1 * ({left} - 2.0 * {mid} + {right}){more}",
            f"    a = np.concatenate([{ends[0]}, c, {ends[1]}], axis={k})",
        ]

    def _written(self) -> list[str]:
        k = self.random.randrange(self.ndim)
        return [
            "    b = a.copy()",
            f"    b{self._at(k, '1:-1')[1:]} = 0.5 * ({self._at(k, ':-2')} + {self._at(k, '2:')})",
            "    a = b",
        ]

    def _around(self) -> list[str]:
        """Return what is not a step: another operand, axes that change places, rows taken."""
        r = self.random
        kind = r.choice(("operand", "swap", "take", "centre", "map"))
        if kind == "operand":
            shape = [n if r.random() < 0.5 else 1 for n in self.shape]
            shape = shape[r.choice((0, 0, self.ndim - 1)) :]
            self.shapes.append(tuple(shape))
            name = f"x{len(self.shapes) - 1}"
            return [r.choice((f"a = a * {name}", f"a = a / (1.0 + {name} * {name})"))]
        if kind == "swap":
            i, j = r.sample(range(self.ndim), 2)
            self.shape[i], self.shape[j] = self.shape[j], self.shape[i]
            return [f"a = np.sin(np.swapaxes(a, {i}, {j}))"]
        if kind == "take":
            k, n = r.randrange(self.ndim), r.choice((4, 5, 11))
            name = f"i{len(self.constants)}"
            self.constants[name] = np.array([r.randrange(self.shape[k]) for _ in range(n)])
            self.shape[k] = n
            return [f"a = np.tanh(np.take(a, {name}, axis={k}))"]
        if kind == "centre":
            return [f"a = a - np.mean(a, axis={tuple(self._axes())}, keepdims=True)"]
        return ["a = np.log1p(a * a)"]

    def _result(self) -> str:
        axes = tuple(self._axes())
        return self.random.choice((
            "np.mean(a * a)",
            "np.sum(np.sin(a))",
            f"np.sum(np.mean(a * a, axis={axes}) ** 2)",
        ))  # fmt: skip

"""Random steps of stencils on lines for tests: fields, ways to read neighbours, ends of lines."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np


class LineProgram:
    """Some steps for one to three fields, written as NumPy text.

    Parameters
    ----------
    seed : int
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.fields = ["u", "v", "w"][: self.random.choice((1, 1, 2, 3))]
        self.wide = self.random.random() < 0.3
        self.steps = self.random.choice((2, 3, 5, 9, 14))
        self.number = 0
        lines = [f"def f({', '.join(self.fields)}, c):", f"    for k in range({self.steps}):"]
        for name in self.fields:
            lines += [f"        {line}" for line in self._step(name)]
        lines.append(f"    return {self._result()}")
        self.text = "\n".join(lines)
        scope: dict[str, Any] = {"np": np}
        exec(self.text, scope)
        self.f: Callable[..., Any] = scope["f"]

    def arguments(self, shape: int | tuple[int, ...], dtype: str) -> list[np.ndarray]:
        """Return fields whose lines lie along the last axis, and coefficients."""
        rng = np.random.default_rng(len(self.text))
        return [rng.normal(size=shape).astype(dtype) for _ in (*self.fields, "c")]

    def _new(self) -> str:
        self.number += 1
        return f"t{self.number}"

    def _shift(self) -> int:
        return self.random.choice((1, 2, 3) if self.wide else (1, 1, 1, 2))

    def _pointwise(self, terms: list[str]) -> str:
        """Return a step of what a cell and its neighbours are, which stays bounded."""
        r = self.random
        rate = r.choice(("0.1", "0.05", "0.2"))
        sum_ = " + ".join(terms)
        return r.choice((
            f"{rate} * ({sum_})",
            f"{rate} * np.tanh({sum_})",
            f"{rate} * np.sin({terms[0]}) * ({sum_})",
            f"{rate} * np.maximum({terms[0]}, {terms[-1]})",
            f"np.where({terms[0]} > {terms[-1]}, {rate} * {terms[0]}, -{rate} * {terms[-1]})",
        ))  # fmt: skip

    def _step(self, name: str) -> list[str]:
        """Return the lines of a step of one field."""
        other = self.random.choice(self.fields)
        step = self.random.choice((self._rolled, self._fixed, self._padded, self._written))
        return step(name, other)

    def _rolled(self, name: str, other: str) -> list[str]:
        n = self._shift()
        rolled = f"np.roll({name}, {n}, axis=-1)", f"np.roll({other}, -{self._shift()}, axis=-1)"
        extra = self.random.choice(("", " * c", " + 0.01 * c"))
        return [f"{name} = 0.9 * {name} + ({self._pointwise([name, *rolled])}){extra}"]

    def _fixed(self, name: str, other: str) -> list[str]:
        """Compute all but the ends."""
        n, inner, new = self._shift(), self._new(), self._new()
        center = f"{name}[..., {n}:-{n}]"
        around = f"{other}[..., :-{2 * n}]", f"{other}[..., {2 * n}:]"
        lines = [f"{inner} = 0.9 * {center} + {self._pointwise([center, *around, center])}"]
        left, right = self.random.choice((
            (f"{name}[..., :{n}]", f"{name}[..., -{n}:]"),
            (f"{name}[..., :{n}] * 0.5", f"{other}[..., -{n}:]"),
            (f"np.zeros_like({name}[..., :{n}])", f"{name}[..., -{n}:]"),
            (f"{inner}[..., :{n}]", f"{inner}[..., -{n}:]"),
        ))  # fmt: skip
        whole = f"np.concatenate([{left}, {inner}, {right}], axis=-1)"
        return [*lines, f"{new} = {whole}", f"{name} = {new}"]

    def _padded(self, name: str, other: str) -> list[str]:
        """Read cells beyond the ends: zeros, those at the other end, or the last ones."""
        n, p = self._shift(), self._new()
        if self.random.random() < 0.4:
            n = 1
        left, right = f"{other}[..., -{n}:]", f"{other}[..., :{n}]"
        if self.random.random() < 0.5:
            left, right = right, left
        whole = f"np.concatenate([{left}, {other}, {right}], axis=-1)"
        if self.random.random() < 0.4:
            whole = f"np.pad({other}, [(0, 0)] * ({other}.ndim - 1) + [({n}, {n})])"
        terms = [f"{p}[..., {n}:-{n}]", f"{p}[..., :-{2 * n}]", f"{p}[..., {2 * n}:]", name]
        return [f"{p} = {whole}", f"{name} = 0.8 * {name} + {self._pointwise(terms)}"]

    def _written(self, name: str, other: str) -> list[str]:
        """Write the inner cells of a copy, and maybe an end."""
        n, new = self._shift(), self._new()
        center = f"{name}[..., {n}:-{n}]"
        terms = [center, f"{other}[..., :-{2 * n}]", f"{name}[..., {2 * n}:]"]
        lines = [
            f"{new} = {name}.copy()",
            f"{new}[..., {n}:-{n}] = 0.9 * {center} + {self._pointwise(terms)}",
        ]
        if self.random.random() < 0.5:
            end = self.random.choice(("0.5", f"{name}[..., 1]", f"{other}[..., 0] * 0.5"))
            lines.append(f"{new}[..., 0] = {end}")
        return [*lines, f"{name} = {new}"]

    def _result(self) -> str:
        sums = [f"np.sum({n} * {n})" for n in self.fields]
        return self.random.choice((" + ".join(sums), f"np.mean({self.fields[-1]} * c)", sums[0]))

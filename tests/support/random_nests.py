"""Random functions of nested loops over elements and slices, for the tests of strips."""

from __future__ import annotations

import linecache
import random
from typing import Any

import numpy as np


class NestProgram:
    """A function of three matrices and a vector, and arguments for it.

    Its loops have affine bounds; its statements set elements and slices, or add to them, at
    indices of any loops, shifted, turned around or not, of arrays that other statements write.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.n = self._random.choice((3, 4, 5, 7, 8))
        lines = ["def f(A, B, C, x):", "    A, B, C, x = A * 1.0, B * 1.0, C * 1.0, x * 1.0",
                 f"    n, s, t = {self.n}, 0.5, np.zeros({self.n})"]  # fmt: skip
        for _ in range(self._random.randint(1, 2)):
            lines += self._loop([], "    ", 0)
        total = "np.sum(A * A) + np.sum(B) * s + np.sum(C * C * C) + np.sum(x * x) + np.sum(t)"
        lines.append(f"    return {total}")
        self.text = "\n".join(lines) + "\n"
        name = f"<random nests {seed}>"
        linecache.cache[name] = (len(self.text), None, self.text.splitlines(True), name)
        space: dict[str, Any] = {"np": np, "__name__": "random_nests_of_a_user"}
        exec(compile(self.text, name, "exec", dont_inherit=True), space)
        self.f = space["f"]

    def arguments(self, seed: int) -> tuple[np.ndarray, ...]:
        """Return the matrices and the vector."""
        rng = np.random.default_rng(seed)
        n = self.n
        return (*(rng.normal(size=(n, n)) * 0.5 for _ in range(3)), rng.normal(size=n) * 0.5)

    def _loop(self, outer: list[str], pad: str, depth: int) -> list[str]:
        r = self._random
        v = "ijk"[depth]
        bounds = ["n", "0, n", "1, n", "n - 1", "1, n - 1", "n - 2, -1, -1"]
        if outer:
            last = outer[-1]
            bounds += [last, f"{last} + 1", f"{last} + 1, n", f"{last}, n"]
        lines = [f"{pad}for {v} in range({r.choice(bounds)}):"]
        indices, inside = [*outer, v], pad + "    "
        for _ in range(r.randint(1, 2)):
            if depth < 2 and r.random() < 0.6:
                lines += self._loop(indices, inside, depth + 1)
            else:
                lines.append(inside + self._statement(indices))
        return lines

    def _index(self, indices: list[str]) -> str:
        r = self._random
        v = r.choice(indices)
        # Python's negative indices and those of a step back stay in range.
        return r.choice([v, v, v, v, f"{v} - 1", f"n - 1 - {v}", "0"])

    def _element(self, indices: list[str]) -> str:
        name = self._random.choice("ABCxt")
        if name in "xt":
            return f"{name}[{self._index(indices)}]"
        return f"{name}[{self._index(indices)}, {self._index(indices)}]"

    def _value(self, indices: list[str]) -> str:
        r = self._random
        a, b = self._element(indices), self._element(indices)
        v = r.choice(indices)
        return r.choice([
            f"0.3 * {a} * {b}", f"0.5 * {a}", f"0.2 * {a} + 0.1 * {b}", f"{a} / (2.0 + {b} * {b})",
            f"0.1 * np.dot(A[{v}, :{v}], B[:{v}, {self._index(indices)}])",
            f"0.1 * np.dot(C[{v}, :], x)", f"(0.3 * {a} if {v} > 1 else 0.2 * {b})",
            f"0.3 * np.sin({a})", "s",
        ])  # fmt: skip

    def _statement(self, indices: list[str]) -> str:
        r = self._random
        value = self._value(indices)
        place = self._element(indices)
        v = r.choice(indices)
        return r.choice([
            f"{place} += {value}", f"{place} += {value}", f"{place} -= {value}",
            f"{place} = {value}", f"s += 0.1 * {value}",
            f"C[{v}, :{v}] += 0.2 * A[{v}, :{v}] * {value}", f"t[:] = 0.4 * x + {value}",
            f"B[:, {v}] -= 0.1 * A[:, {v}] * {value}", f"x *= 1 - 0.01 * {place}",
        ])  # fmt: skip

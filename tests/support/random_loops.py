"""Random functions whose bodies are loops, as users write them: text that is compiled.

Variables: ``x``, ``y`` (vectors of `n`), ``A`` (a matrix of `n` rows and `m` columns), ``B`` and
``z``, which the function makes; ``s``, ``t`` numbers, ``k`` a whole number, ``n``, ``m``
arguments of the enclosing function. ``q`` is a Python float until something is added to it, ``out``
a list, ``Z`` a complex vector and ``c`` a complex number, ``K`` a vector of integers. Some programs
raise errors, in Python as well.

For ``tests/loops``.
"""

from __future__ import annotations

import linecache
import random
from collections.abc import Callable
from typing import Any

import numpy as np

_HEAD = """
def make(n, m):
    def f(x, y, A):
        s, t, k = 0.5, 0.25, 0
        z = np.zeros(n)
        B = A * 1.0
        out = []
        q = 0.0
        Z, c = x + 0.5j * y, 0.5j
        K = np.zeros(n, np.int64)
"""
_TAIL = """
        total = s + 0.5 * t + np.sum(z * y) + np.sum(B * B) + 0.1 * k
        for part in out:
            total = total + 0.1 * part
        if out:
            total = total + 0.1 * np.sum(np.array(out))
        total = total + np.sum((Z * Z.conj()).real) + 0.1 * (c.real - c.imag) + 0.1 * np.sum(K)
        return total + q * (0.5 if type(q) is float else 0.25)
    return f
"""


class LoopProgram:
    """A random function.

    Parameters
    ----------
    seed : int

    Attributes
    ----------
    text : str
    f : callable
        Of a vector, a vector and a matrix; returns a number.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.n, self.m = self._random.randint(0, 6), self._random.randint(1, 5)
        if self._random.random() < 0.9:
            self.n = max(self.n, 2)
        lines: list[str] = []
        for _ in range(self._random.randint(1, 3)):
            lines += self._loop([], "        ", 0)
        self.text = _HEAD.lstrip("\n") + "\n".join(lines) + _TAIL
        name = f"<random loops {seed}>"
        linecache.cache[name] = len(self.text), None, self.text.splitlines(keepends=True), name
        space: dict[str, Any] = {"np": np, "__name__": "random_loops_of_a_user"}
        exec(compile(self.text, name, "exec", dont_inherit=True), space)
        self.f: Callable[..., Any] = space["make"](self.n, self.m)

    def arguments(self, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return random arguments."""
        rng = np.random.default_rng(seed)
        return rng.normal(size=self.n), rng.normal(size=self.n), rng.normal(size=(self.n, self.m))

    # -- loops -------------------------------------------------------------------------------------

    def _pick(self, *choices: str) -> str:
        return self._random.choice(choices)

    def _loop(self, outer: list[str], pad: str, depth: int) -> list[str]:
        i = "ijl"[depth]
        kind = self._random.random()
        if kind < 0.12:
            bound = self._random.randint(2, 9)
            c = f"c{depth}"  # which no statement writes: each loop ends
            head = self._pick(
                f"while {c} < {bound}:", f"while s < {bound} and {c} < {bound}:",
                f"while {c} * {c} < {bound}:", f"while {c} < {bound} or {c} < n and t < 0.5:",
            )  # fmt: skip
            body = self._body(outer, pad + "    ", depth)
            return [f"{pad}{c} = 0", f"{pad}{head}", f"{pad}    {c} += 1", *body]
        if kind < 0.2:
            head = self._pick(
                f"for {i}, v{depth} in enumerate(x):", f"for v{depth}, w{depth} in zip(x, y):",
                f"for {i}, row{depth} in enumerate(A):",
            )  # fmt: skip
            inner = [*outer, i] if head.startswith(f"for {i},") else outer
            extra = f"v{depth}" if "row" not in head else f"row{depth}[0]"
            body = self._body(inner, pad + "    ", depth)
            return [f"{pad}{head}", f"{pad}    t = t * 0.5 + {extra}", *body]
        bounds = ["n", "n", "n - 1", "1, n", "n - 1, -1, -1", "0, n, 2", "2"]
        if outer:
            bounds += [outer[-1], f"{outer[-1]} + 1", f"{outer[-1]}, n", f"{outer[-1]} + 1, n"] * 2
        head = f"for {i} in range({self._random.choice(bounds)}):"
        lines = [f"{pad}{head}", *self._body([*outer, i], pad + "    ", depth)]
        if self._random.random() < 0.15:
            if self._random.random() < 0.6:
                lines.append(f"{pad}    if {self._condition([*outer, i])}:")
                lines.append(f"{pad}        {self._pick('break', 'break', 'return s + t')}")
            lines += [f"{pad}else:", f"{pad}    {self._statement(outer)}"]
        return lines

    def _body(self, indices: list[str], pad: str, depth: int) -> list[str]:
        lines: list[str] = []
        for _ in range(self._random.randint(1, 3)):
            kind = self._random.random()
            if kind < 0.3 and depth < 2:
                lines += self._loop(indices, pad, depth + 1)
            elif kind < 0.42:
                lines.append(f"{pad}if {self._condition(indices)}:")
                lines.append(f"{pad}    {self._statement(indices)}")
                if self._random.random() < 0.5:
                    lines.append(f"{pad}else:")
                    lines.append(f"{pad}    {self._statement(indices)}")
            elif kind < 0.47:
                lines.append(f"{pad}if {self._condition(indices)}:")
                lines.append(f"{pad}    {self._pick('break', 'continue')}")
            elif kind < 0.58:
                lines += self._compound(indices, pad)
            else:
                lines.append(f"{pad}{self._statement(indices)}")
        return lines

    # -- statements --------------------------------------------------------------------------------

    def _compound(self, indices: list[str], pad: str) -> list[str]:
        """Return statements of several lines."""
        value, i = self._number(indices), self._index(indices)
        one, two = self._statement(indices), self._statement(indices)
        texts = [
            f"try:\n    {one}\nexcept ZeroDivisionError:\n    s = 0.5\nelse:\n    {two}",
            f"try:\n    s = s + 0.1 / {i}\nexcept (ZeroDivisionError, IndexError):\n    t = 0.25",
            f"with np.errstate(all='ignore'):\n    {one}",
            f"if {self._condition(indices)}:\n    q += {self._pick(value, '0.5', 's')}",
            f"if {self._condition(indices)}:\n    q = q * 0.5 - {self._pick(value, '1')}",
            f"if {self._condition(indices)}:\n    out.append({value})",
            f"if {self._condition(indices)}:\n    return {self._pick('s', 't + s', value, '0.5')}",
            f"if {value} > 1e3:\n    raise ValueError('large')",
            f"g = lambda v, w=0.5: v * w + {self._pick('s', 't', 'k')}\ns = 0.5 * g({value}, 0.25)",
            f"def h(v):\n    if v > 0.0:\n        return v * 0.5\n    return s * v\nt = h({value})",
            f"row = []\nfor e in range({self._pick('2', 'n', 'm')}):\n    row.append({value} * e)\n"
            f"s = 0.5 * s + 0.1 * {self._pick('sum(row)', 'np.sum(np.array(row))', 'len(row)')}",
            f"late = {value}\ns = s * 0.5 + late\ndel late",
            f"s = 0.25 * s + 0.25 * (w := {value}) * w",
            f"a, b = divmod({self._pick('k + 5', *indices)}, 3)\nt = t + 0.1 * a - 0.1 * b",
            *self._comprehensions(indices),
            *self._masks(indices, value), *self._masks(indices, value),
            *(self._of_arrays(i, value) for _ in range(10)),
            "if len(out) > 2:\n    s = 0.5 * s + 0.1 * out[-1] * out[0]",
        ]  # fmt: skip
        return [pad + line for line in self._random.choice(texts).split("\n")]

    def _comprehensions(self, indices: list[str]) -> list[str]:
        """Return statements with comprehensions."""
        over = self._pick("x", "y[:2]", "z", "A[:, 0]", "x[1:]")
        j = self._pick("n", "2", *indices)
        inner = ["e", *indices] if j == "n" or j in indices else indices
        value, test = self._number(inner), self._pick("v > 0.0", f"v < {self._number(indices)}")
        function, every = self._pick("max", "min"), self._pick("any", "all")
        return [
            f"s = 0.25 * s + 0.1 * sum({value} for e in range({j}))",
            f"s = 0.25 * s + 0.1 * sum(v * w for v, w in zip({over}, y) if {test})",
            f"t = 0.25 * t + 0.1 * sum((v * w for v in {over} for w in x if w > v), 0.5)",
            f"k += sum(1 for v in {over} if {test}) % 3",
            f"s = 0.5 * s + 0.1 * {function}({value} for e in range({j}))",
            f"t = 0.5 * t + 0.1 * {function}([v * t for v in {over} if {test}], default=s)",
            f"if {every}({test} for v in {over}):\n    {self._statement(indices)}",
            f"row = [{value} for e in range({j})]\nif row:\n    s += 0.1 * row[-1] * len(row)",
            f"row = [v * 0.5 for v in {over} if {test}]\nt = 0.5 * t + 0.1 * sum(row)",
            f"for v in [w * t for w in {over}]:\n    t = 0.5 * t + 0.1 * v",
            f"s = 0.5 * s + 0.1 * np.sum(np.array([[v * w for v in x] for w in {over}]))",
            f"out.extend([v * 0.5 for v in {over} if {test}])",
            f"out += [{value} for e in range({j})]",
            f"B[0] = B[0] * 0.5 + 0.1 * sum(A[e] for e in range({j}))",
        ]  # fmt: skip

    def _of_arrays(self, i: str, value: str) -> str:
        """Return a statement that puts arrays together, or works on matrices and whole vectors."""
        k, w = self._pick("0", "1", "-1", "k % 3", "n - 1"), self._pick("x", "y", "z")
        axis = self._pick("0", "1", "-1")
        return self._pick(
            f"B = np.triu(B, {k}) + 0.1 * A", f"B -= 0.5 * B + np.tril(A * {w}[0], k={k})",
            "z[:] = np.hstack((z[1:], z[:1])) * 0.5",
            f"B[:] = np.hstack((B[:, 1:], {w}[:, None])) * 0.5",
            "B = np.vstack((A[:1], B[:-1])) * 0.5", "B[:] = np.vstack((B[1:], np.ones(m)))",
            f"B[:] = np.concatenate((A[:, :1] * {w}[:, None], B[:, 1:] * 0.5), axis=1)",
            f"s = 0.5 * s + 0.01 * np.sum(np.stack((x, {w}, y * 2), axis={axis})[1])",
            f"t = 0.5 * t + 0.01 * np.sum(np.column_stack(({w}, B, x))[{i}])",
            f"z[:] = 0.1 * (B @ A.T[:, {i}])", "B[:] = 0.1 * np.dot(np.outer(x, y), B)",
            f"t = 0.1 * t + 0.01 * ({w} @ np.tril(np.outer(y, z)) @ x)", "B = 0.5 * (B - A.T.T)",
            f"s = 0.5 * s + 0.01 * np.sum(np.diag({w}) @ B)", "np.multiply(z, 0.5, z)",
            f"np.add(z, 0.1 * {w}, out=z)", f"np.maximum(z, {w}, out=z[::-1])",
            f"np.add(np.sin({w}), {value}, out=B[:, 0])",
            f"w = {w} * t; w.shape = (n, 1); B += 0.1 * w",
            f"w = np.outer({w}, x); w.shape = -1; s = 0.5 * s + 0.01 * np.sum(w * w)",
            f"z[:] = np.where({w} > {value}, z * 0.5, x)",
            f"B[:] = np.where(A > s, {w}[:, None], 0.5 * B)",
        )  # fmt: skip

    def _masks(self, indices: list[str], value: str) -> list[str]:
        """Return statements with masks, some of which wait, or change, or have two names."""
        a, b, i = self._pick("x", "y", "z"), self._pick("x", "y", "z"), self._index(indices)
        mask = self._pick(
            f"{a} > 0.0", f"{a} < {value}", f"np.logical_and({a} > -0.5, {b} < t)", f"{a} > {b}",
            f"({a} > -0.5) & ({b} < 1.0)", f"~({a} * 2 > {b})",
        )  # fmt: skip
        total = self._pick("np.sum(w[mask])", "w[mask].sum()", "np.sum(w[mask] ** 2)")
        total = total.replace("w", self._pick("x", "y", "z"))
        first = f"mask = {mask}\n"
        return [
            f"z[{mask}] = {value}", "z[z > 0.3] = z[z > 0.3] * 0.5", f"z[{mask}] *= 0.5",
            f"{first}z[mask] += 0.1 * x[mask]\ns = 0.5 * s + 0.1 * {total}",
            f"{first}part = {b}[mask]\npart *= 0.5\nt = 0.5 * t + 0.1 * part.sum()",
            f"{first}part = {b}[mask] * 2\npart -= x[mask]\ns += 0.01 * np.sum(part)",
            f"{first}z[{i}] = {value}\ns = 0.5 * s + 0.1 * {total} + 0.01 * np.sum(mask)",
            f"{first}other = mask\nother[{i}] = True\nt = 0.5 * t + 0.1 * {total}",
            f"{first}np.logical_not(mask, mask)\nt = 0.5 * t + 0.1 * {total}",
            f"{first}mask &= x > {value}\nmask |= y > 0.5\nk += np.sum(mask) % 2",
            f"{first}t = t + 0.1\nif np.any(mask):\n    s = 0.5 * s + 0.1 * {total}",
            f"{first}B[mask[{i}] * 0, 0] = 0.5 * s\ns = 0.5 * s + 0.1 * {total}",
            f"{first}part = x[mask]\nother = part\npart *= 0.5\nt = 0.5 * t + 0.1 * np.sum(other)",
            f"B[A > {value}] *= 0.5", "B[B > A] = A[B > A] * 0.5",
        ]  # fmt: skip

    def _index(self, indices: list[str]) -> str:
        if not indices:
            return self._pick("0", "1", "-1", "k % 2")
        i = self._random.choice(indices)
        choices = [i, i, i, i, i, f"{i} - 1", "0", "-1", f"n - 1 - {i}", f"-{i} - 1"]
        if self._random.random() < 0.1:
            choices += [f"{i} + 1", f"2 * {i}", f"{i} // 2", f"{i} % 2", "k"]
        return self._random.choice(choices)

    def _column(self, indices: list[str]) -> str:
        if indices and self._random.random() < 0.3:
            return f"{self._random.choice(indices)} % m"
        return self._pick("0", "-1", "m - 1", "0")

    def _element(self, indices: list[str]) -> str:
        array = self._pick("x", "y", "z", "A", "B")
        i = self._index(indices)
        return f"{array}[{i}, {self._column(indices)}]" if array in "AB" else f"{array}[{i}]"

    def _number(self, indices: list[str], depth: int = 0) -> str:
        kind = self._random.random()
        if depth > 2 or kind < 0.35:
            return self._element(indices)
        if kind < 0.5:
            return self._pick("s", "t", "0.5", "1.5", "2", *indices)
        a, b = self._number(indices, depth + 1), self._number(indices, depth + 1)
        if kind < 0.8:
            return f"({a} {self._pick('+', '-', '*')} {b})"
        if kind < 0.85:
            return f"{a} / (1.5 + {b} * {b})"
        if kind < 0.87:
            return f"({a}) ** 2"
        if kind < 0.96:
            return self._pick(
                f"np.sin({a})", f"np.tanh({a})", f"np.maximum({a}, {b})", f"max({a}, {b})",
                f"abs({a})", f"np.exp(-({a}) ** 2)", f"min({a}, 1.0)", f"np.sqrt(1 + ({a}) ** 2)",
            )  # fmt: skip
        i = self._index(indices)
        return self._pick(
            f"np.dot(A[{i}], B[{i}])", f"np.sum(x[:{i}])", f"B[{i}].sum()", f"x[:{i}] @ y[:{i}]",
            f"np.sum(B[{i}] * A[{i}])", "np.mean(A[:, 0])",
        )  # fmt: skip

    def _condition(self, indices: list[str]) -> str:
        choices = [f"{self._number(indices)} > {self._pick('0.0', '0.3', 's', 't')}", "s > t"]
        if indices:
            i = self._random.choice(indices)
            choices += [f"{i} % 2 == 0", f"{i} > 1", f"{i} == n - 1 or {i} < 1", f"0 < {i} < n - 1"]
            choices += [f"not {i}"]
        return self._random.choice(choices)

    def _statement(self, indices: list[str]) -> str:
        value = self._number(indices)
        kind = self._random.random()
        if kind < 0.3:
            name = self._pick("s", "t")
            return self._pick(
                f"{name} = 0.5 * {name} + 0.25 * {value}", f"{name} += 0.1 * {value}",
                f"{name} = {value}", f"{name} *= 0.9", "s, t = t, s",
            )  # fmt: skip
        i = self._index(indices)
        if kind < 0.6:
            target = self._pick(f"z[{i}]", f"B[{i}, {self._column(indices)}]")
            return self._pick(f"{target} = {value}", f"{target} += 0.5 * {value}",
                              f"{target} = 0.5 * {target} + {value}")  # fmt: skip
        if kind < 0.8:
            row = f"0.5 * {self._pick('B', 'A')}[{self._index(indices)}]"
            return self._pick(
                f"B[{i}] = {row} + {value}", f"B[{i}, :] += {row}", f"z[:{i}] = y[:{i}] * 0.5",
                f"B[:, 0] = 0.5 * B[:, -1] + {value}", f"z[{i}:] *= 0.5", "z[1:] = z[:-1] + x[1:]",
                f"B[{i}] = {row}.copy()", "z = z * 0.5",
            )  # fmt: skip
        if kind < 0.84:
            return f"out.append({value})"
        if kind < 0.86:
            return self._of_arrays(i, value)
        if kind < 0.88:
            return self._pick("k += 1", "k = k + 2", "k = 1", f"k += round({value}) % 3")
        if kind < 0.91:
            return self._pick(
                f"Z[{i}] = 0.5 * Z[{i}] * c + {value}", f"c = 0.5 * c + Z[{i}]",
                f"Z[{i}] += 0.5 * c",
                f"c = c / (2.0 + Z[{i}] * Z[{i}].conj())", f"Z[{i}] *= {value}", "Z = Z * 0.5j",
                f"s = 0.5 * s + abs(Z[{i}])", f"c = c.conjugate() * 0.5 - 0.5j * {value}",
                f"Z[{i}] = np.exp(1j * {value}) - Z[{i}].imag", "s = s * 0.5 + c.real",
            )  # fmt: skip
        if kind < 0.925:
            return self._pick(f"K[{i}] += 2", f"K[{i}] = k", f"t = t * 0.5 + K[{i}]", "K[1:] -= 1")
        if kind < 0.935:
            j = self._pick("n", *indices)
            return self._pick(
                f"s = 0.5 * s + 0.1 * sum(x[e] * y[e] for e in range({j}))",
                f"z[{i}] = np.sum(np.array([x[e] * e for e in range({j})]))",
            )  # fmt: skip
        if kind < 0.95:
            return self._pick(
                f"t = s / {i}", f"z[{i} + 3] = s", "t = late * 2.0; late = 1.0",
                f"late = {value}", "t = int(s) * 1.0", f"t = float({value})",
            )  # fmt: skip
        return f"z[{i}] = {value}"

"""Random NumPy programs of one member: branches, loops, in-place writes, indices of their own.

For tests of `adarray.vmap`.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable
from typing import Any

import numpy as np

_EXPRESSIONS = (
    "np.sin({v})", "{v} * {u}", "{v} + {u}", "np.cumsum({v})", "np.tanh({v}) * np.sum({u})",
    "{v}[::-1]", "np.where({v} > {u}, {v}, {u})", "np.roll({v}, 1) - {u}", "np.sort({v})",
    "np.outer({v}, {u}) @ {v}", "{v} / (1 + {u}**2)", "np.maximum({v}, {u})",
    "np.concatenate([{v}[1:], {u}[:1]])", "np.mean({v}) * {u}", "{v} * {v}[0]",
    "np.stack([{v}, {u}])[1]", "np.einsum('i,i,j->j', {v}, {u}, {v})", "{v}[np.argsort({u})]",
    "{v} - {u}.max()", "np.linalg.norm({v}) * {u}", "np.dot({v}, {u}) * {v}", "{v}.copy()",
    "np.abs({v}) + 0.1", "np.clip({v}, -1, 1)", "np.arctan2({v}, 1 + {u}**2)",
    "{v}.reshape(1, -1)[0]", "np.array([{v}[k] * {u}[0] for k in range({n})])",
    "np.flip({v}) * 2.0", "np.diff(np.append({v}, {u}[0]))", "np.prod({v}) + {u}",
)  # fmt: skip


def program(seed: int, module: str) -> tuple[Callable[..., Any], Callable[..., Any], int]:
    """Return ``f(x, w)`` of a module, a scalar function of it, and the length of its arguments."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 5))
    lines = ["def f(x, w):", "    a = x", f"    y = np.zeros({n})"]
    for _ in range(int(rng.integers(4, 10))):
        lines += [f"    {line}" for line in _statement(rng, n)]
    lines.append("    return np.tanh(a) + y, np.sum(np.sin(y))")
    lines += [
        "def loss(x, w):",
        "    a, b = f(x, w)",
        f"    return a @ np.arange(1.0, {n + 1}) + b",
    ]
    text = "\n".join(lines)
    name = f"<program {seed}>"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    names: dict[str, Any] = {"np": np, "__name__": module}
    exec(compile(text, name, "exec"), names)
    return names["f"], names["loss"], n


def _expression(rng: np.random.Generator, n: int) -> str:
    text: str = rng.choice(_EXPRESSIONS)
    v, u = rng.choice(["x", "w", "a", "y"], 2)
    return text.format(v=v, u=u, n=n)


def _statement(rng: np.random.Generator, n: int) -> list[str]:
    def e() -> str:
        return _expression(rng, n)

    x, level = rng.choice(["x", "a", "w"]), f"{rng.normal():.2f}"
    choices = (
        [f"y[{rng.integers(0, n)}] = ({e()})[0]"],
        [f"y[{rng.integers(0, n - 1)}:] += ({e()})[:1]"],
        [f"if np.sum({x}) > {level}:", f"    a = {e()}", "else:", f"    y = y + {e()}"],
        [f"y[{x} > {level}] *= 0.5"],
        [f"y[{x} > {level}] = 0.25 * {x}[0]"],
        [f"for k in range({n}):", f"    y[k] = y[k - 1] * 0.5 + ({e()})[k]"],
        ["c = 0", f"while abs({x}[0]) * (c + 1) < 1.0 and c < 3:", "    c += 1",
         "    a = a * 0.5 + x"],
        [f"a = np.tanh({e()})"],
        ["v = y[::2]", f"v += ({e()})[::2]"],
        [f"j = int(np.argmax({x}))", "a = np.tanh(a * x[j])"],
        [f"np.add.at(y, np.argsort({x}), {e()})"],
        [f"y[np.argmax({x})] += {x}[0]"],
        [f"a = np.tanh({e()} + {e()})"],
    )  # fmt: skip
    return choices[int(rng.integers(len(choices)))]

"""Random programs over arrays that share memory, compiled and plain.

For tests of aliasing.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from trust import total

import adarray
from adarray.errors import ADArrayError
from adarray.jitting import JitWarning
from adarray.testing._ops import use_all_sizes

W = np.zeros(6)
VIEWS = ["{0}", "{0}[1:]", "{0}[::-1]", "{0}[:3]", "{0}.T", "{0}[::2]"]


def program(rng: np.random.Generator) -> Any:
    """Return a random function of two arrays, which may write into them and into a global."""
    names, lines = ["x", "y", "W"], []
    for k in range(rng.integers(2, 6)):
        a, b = (str(rng.choice(names)) for _ in range(2))
        view = str(rng.choice(VIEWS)).format(a)
        kind = rng.integers(5)
        if kind == 0:
            lines.append(f"z{k} = np.sin({a}) + np.sum({b})")
            names.append(f"z{k}")
        elif kind == 1:
            lines.append(f"z{k} = {view}")
            names.append(f"z{k}")
        elif kind == 2:
            lines.append(f"z{k} = {view}; z{k} *= 0.5")
            names.append(f"z{k}")
        elif kind == 3:
            lines.append(f"{a}[0] = np.sum({b})")
        else:
            lines.append(f"z{k} = {a} * (2.0 if {a} is {b} else 3.0)")
            names.append(f"z{k}")
    results = ", ".join(str(rng.choice(names)) for _ in range(rng.integers(1, 5)))
    space: dict[str, Any] = {"np": np, "W": W}
    text = "def f(x, y):\n " + "\n ".join(lines) + f"\n return {results},"
    exec(text, space)
    return space["f"], text


def arguments(rng: np.random.Generator) -> Any:
    """Return what makes two arrays of six elements: apart, one, overlapping, or the global's."""
    start, kind = rng.uniform(0.5, 1.5, 18), rng.integers(6)

    def make(k: int) -> Any:
        memory = start + 0.1 * k
        return [
            lambda: (memory[:6].copy(), memory[6:12].copy()), lambda: (memory[:6],) * 2,
            lambda: (memory[:6], memory[3:9]), lambda: (memory[:12:2], memory[5::-1]),
            lambda: (W, memory[:6]), lambda: (memory[:6], W[::-1]),
        ][kind]()  # fmt: skip

    x, y = make(0)
    if x is y:
        return lambda k: (lambda a: (a, a))(make(k)[0])
    return make


def seen(f: Any, args: Any) -> Any:
    """Return the values after a call, and which arrays are one or share memory."""
    W[:] = np.linspace(1.0, 2.0, 6)
    arrays = [*f(*args), *args, W]
    pairs = [(a is b, np.shares_memory(a, b)) for i, a in enumerate(arrays) for b in arrays[:i]]
    return [np.array(a) for a in arrays], pairs


def compare(seed: int, backend: str, views: bool = True) -> None:
    """Raise if four compiled calls of a program differ from plain ones.

    Parameters
    ----------
    seed : int
    backend : str
    views : bool
        Whether results that are views are: on devices they are copies.
    """
    rng = np.random.default_rng(seed)
    (f, text), make = program(rng), arguments(rng)
    with use_all_sizes(backend), warnings.catch_warnings():
        warnings.simplefilter("ignore", JitWarning)
        jitted = adarray.jit(f)
        for k in range(4):
            try:
                expected = seen(f, make(k))
            except ValueError:  # shapes that do not fit
                return
            try:
                got = seen(jitted, make(k))
            except ADArrayError:
                return
            assert [p[: 1 + views] for p in got[1]] == [p[: 1 + views] for p in expected[1]], text
            for a, b in zip(got[0], expected[0], strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-12, err_msg=text)


def differentiated(seed: int, mode: str) -> bool:
    """Compare a derivative of a program with differences; return whether it was refused.

    What a program captured is constant, so that derivatives are compared where no argument is
    the captured array; values always.
    """
    rng = np.random.default_rng(seed)
    (f, text), make = program(rng), arguments(rng)
    directions = np.random.default_rng(seed + 1).uniform(-1, 1, 18)
    x, y = make(0)
    captured = any(np.shares_memory(a, W) for a in (x, y))

    def loss(x: Any, y: Any) -> Any:
        return total(f(x, y))

    def at(h: float) -> tuple[Any, Any]:
        W[:] = np.linspace(1.0, 2.0, 6)
        x, y = make(0)
        if not captured:
            where = base_of(x)
            where += h * directions[: where.size]
            if base_of(y) is not where:
                base_of(y)[...] += h * directions[-base_of(y).size :]
        return x, y

    tangents = [np.array(b) - np.array(a) for a, b in zip(at(0.0), at(1.0), strict=True)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", JitWarning)
        try:
            expected = float(loss(*at(0.0)))
        except ValueError:
            return False
        slope = (float(loss(*at(1e-6))) - float(loss(*at(-1e-6)))) / 2e-6
        both = adarray.value_and_grad(loss, argnums=(0, 1))
        if mode == "jit":
            both = adarray.jit(both)
        try:
            for _ in range(3 if mode == "jit" else 1):
                args = at(0.0)
                if mode == "jvp":
                    value, got = adarray.jvp(loss, args, tangents)
                elif mode == "vjp":
                    value, pull = adarray.vjp(loss, *args)
                    got = sum(np.sum(g * t) for g, t in zip(pull(1.0), tangents, strict=True))
                elif mode == "one":
                    value, _ = adarray.value_and_grad(loss)(*args)
                    got = None
                elif mode == "nested":
                    value = expected
                    got = adarray.jvp(lambda x, y: both(x, y)[0], args, tangents)[1]
                else:
                    value, gradients = both(*args)
                    got = sum(np.sum(g * t) for g, t in zip(gradients, tangents, strict=True))
                np.testing.assert_allclose(value, expected, 1e-12, 1e-12, err_msg=text)
                if got is not None and not captured:
                    np.testing.assert_allclose(got, slope, rtol=1e-5, atol=1e-5, err_msg=text)
        except (ADArrayError, ValueError):
            return True
    return False


def base_of(x: Any) -> Any:
    """Return the array whose memory an array lies in."""
    return x if x.base is None else x.base

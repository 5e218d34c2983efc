"""Programs with a name: what once was slow on a GPU, each at any size."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from asv_bench.random_programs.writer import Argument, Program

N_BODY = """def f(np, p, m):
    d = p[:, None, :] - p[None, :, :]
    s = np.sum(d * d, axis=-1) + 0.01
    w = m[None, :] / (s * np.sqrt(s))
    a = np.sum(d * w[:, :, None], axis=1)
    return np.mean(a * a)
"""
BURGERS = """def f(np, u):
    for _ in range(50):
        c = u[1:-1]
        n = c - 0.1 * c * (c - u[:-2]) + 0.2 * (u[2:] - 2.0 * c + u[:-2])
        u = np.concatenate([u[:1], n, u[-1:]])
    return np.mean(u * u)
"""
ROSENBROCK = """def f(np, x):
    return np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)
"""
ATTENTION = """def f(np, q, k, v):
    s = q @ np.swapaxes(k, -1, -2) * 0.125
    e = np.exp(s - np.max(s, axis=-1, keepdims=True))
    o = (e / np.sum(e, axis=-1, keepdims=True)) @ v
    return np.mean(o * o)
"""
GAUSSIAN_PROCESS = """def f(np, x, y, length):
    d = (x[:, None, :] - x[None, :, :]) / length
    k = np.exp(-0.5 * np.sum(d * d, axis=-1)) + np.eye({n}, dtype=np.float32)
    sign, logdet = np.linalg.slogdet(k)
    return 0.5 * np.sum(y * np.linalg.solve(k, y[:, None])[:, 0]) + 0.5 * logdet
"""


class Named(NamedTuple):
    """A program with a name.

    Parameters
    ----------
    text : str
        ``{n}`` is the size.
    size : int
        The usual one.
    shapes : callable
        ``shapes(n)``: the shapes of the arguments by their names.
    scale : float
        Of the arguments.
    """

    text: str
    size: int
    shapes: Callable[[int], dict[str, tuple[int, ...]]]
    scale: float = 1.0


NAMED = {
    "n-body": Named(N_BODY, 8192, lambda n: {"p": (n, 3), "m": (n,)}),
    "burgers": Named(BURGERS, 1_000_000, lambda n: {"u": (n,)}, 0.3),
    "rosenbrock": Named(ROSENBROCK, 10_000_000, lambda n: {"x": (n,)}),
    "attention": Named(ATTENTION, 64, lambda n: dict.fromkeys("qkv", (n, 1024, 64))),
    "gaussian-process": Named(
        GAUSSIAN_PROCESS, 2048, lambda n: {"x": (n, 4), "y": (n,), "length": (4,)}
    ),
}


def program(name: str) -> Program:
    """Return the program of ``NAME`` or ``NAME:SIZE``.

    Raises
    ------
    KeyError
        If there is none of that name.
    ValueError
        If the size is no number.
    """
    base, _, size = name.partition(":")
    made = NAMED[base]
    n = int(float(size)) if size else made.size
    arguments = tuple(Argument(a, s, scale=made.scale) for a, s in made.shapes(n).items())
    return Program(0, made.text.replace("{n}", str(n)), arguments, (base,))

"""The functions that are differentiated, in the names that NumPy and JAX share.

Each takes the array module first. Loops are loops: JAX unrolls them as adarray does, except where
a second text with ``lax`` is given.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

Function = Callable[..., Any]


class TransformTask(NamedTuple):
    """One measurement.

    Parameters
    ----------
    transform : str
        ``f``, ``jvp``, ``grad``, ``hvp``, ``jacobian``, ``vmap``, ``sparse jacobian`` or
        ``sparse hessian``.
    f : callable
        ``f(module, *args)``.
    args : callable
        Returns the arguments; the first is differentiated, or has the batch.
    scanned : callable, optional
        ``scanned(jax, *args)``: the text with JAX's own loops.
    """

    transform: str
    f: Function
    args: Callable[[], tuple[Any, ...]]
    scanned: Function | None = None


def network(xp: Any, x: Any, w1: Any, w2: Any) -> Any:
    """Return the mean of squares behind two layers of a batch."""
    return xp.mean((xp.tanh(xp.tanh(x @ w1) @ w2)) ** 2)


def network_args() -> tuple[Any, ...]:
    """Return a batch of 128 and two matrices of 256 by 256."""
    rng = np.random.default_rng(0)
    return (
        rng.normal(size=(128, 256)), rng.normal(size=(256, 256)) / 16,
        rng.normal(size=(256, 256)) / 16,
    )  # fmt: skip


def rosenbrock(xp: Any, x: Any) -> Any:
    """Return Rosenbrock's function."""
    return xp.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


def vector(n: int) -> Callable[[], tuple[Any, ...]]:
    """Return a function that draws one vector of `n` elements."""
    return lambda: (np.random.default_rng(1).uniform(0.5, 1.5, n),)


def coupled(xp: Any, x: Any, a: Any) -> Any:
    """Return as many results as elements, each of all of them."""
    y = xp.tanh(a @ x)
    return xp.exp(-(y**2)) * x + a @ y


def coupled_args() -> tuple[Any, ...]:
    """Return 200 elements and a matrix."""
    rng = np.random.default_rng(2)
    return rng.normal(size=200), rng.normal(size=(200, 200)) / 14


def wide(xp: Any, x: Any, a: Any) -> Any:
    """Return 200 results of 50 elements."""
    return xp.sin(a @ x) * xp.sum(x**2)


def wide_args() -> tuple[Any, ...]:
    """Return 50 elements and a matrix."""
    rng = np.random.default_rng(3)
    return rng.normal(size=50), rng.normal(size=(200, 50)) / 7


STEPS, H = 100, 0.05


def _pendulum(xp: Any, y: Any) -> Any:
    return xp.stack([y[1], -xp.sin(y[0]) - 0.1 * y[1]])


def _rk4(xp: Any, y: Any) -> Any:
    k1 = _pendulum(xp, y)
    k2 = _pendulum(xp, y + 0.5 * H * k1)
    k3 = _pendulum(xp, y + 0.5 * H * k2)
    k4 = _pendulum(xp, y + H * k3)
    return y + H / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)


def pendulum(xp: Any, y: Any) -> Any:
    """Return the state of a damped pendulum after 100 steps of Runge and Kutta."""
    for _ in range(STEPS):
        y = _rk4(xp, y)
    return y


def pendulum_scanned(jax: Any, y: Any) -> Any:
    """Return the same with a loop of JAX."""
    return jax.lax.fori_loop(0, STEPS, lambda _, y: _rk4(jax.numpy, y), y)


def starts() -> tuple[Any, ...]:
    """Return 1000 states."""
    return (np.random.default_rng(4).normal(size=(1000, 2)),)


def banded(xp: Any, u: Any) -> Any:
    """Return a residual of bandwidth 5."""
    inner = u[2:-2] * (u[1:-3] + u[3:-1]) - xp.sin(u[:-4]) + u[4:] ** 2
    return xp.concatenate([u[:2] ** 2, inner, u[-2:] ** 3])


def brusselator(xp: Any, u: Any) -> Any:
    """Return the right-hand side of the Brusselator in a square with periodic edges."""
    n = round((u.shape[0] // 2) ** 0.5)
    a, b = u[: n * n].reshape(n, n), u[n * n :].reshape(n, n)

    def laplace(x: Any) -> Any:
        return xp.roll(x, 1, 0) + xp.roll(x, -1, 0) + xp.roll(x, 1, 1) + xp.roll(x, -1, 1) - 4.0 * x

    square = a * a * b
    da = 1.0 + square - 4.4 * a + 10.0 * laplace(a)
    db = 3.4 * a - square + 10.0 * laplace(b)
    return xp.concatenate([da.reshape(-1), db.reshape(-1)])


def chained(xp: Any, x: Any) -> Any:
    """Return an energy whose Hessian has bandwidth 5."""
    return xp.sum((x[2:] - x[1:-1] * x[:-2]) ** 2) + xp.sum(xp.cos(x))


TASKS: dict[str, TransformTask] = {
    "network: f": TransformTask("f", network, network_args),
    "network: jvp": TransformTask("jvp", network, network_args),
    "network: grad": TransformTask("grad", network, network_args),
    "network: hvp": TransformTask("hvp", network, network_args),
    "Rosenbrock 1e5: f": TransformTask("f", rosenbrock, vector(100_000)),
    "Rosenbrock 1e5: jvp": TransformTask("jvp", rosenbrock, vector(100_000)),
    "Rosenbrock 1e5: grad": TransformTask("grad", rosenbrock, vector(100_000)),
    "Rosenbrock 1e5: hvp": TransformTask("hvp", rosenbrock, vector(100_000)),
    "jacobian, 200 of 200": TransformTask("jacobian", coupled, coupled_args),
    "jacobian, 200 of 50": TransformTask("jacobian", wide, wide_args),
    "vmap of RK4, 1000 members": TransformTask("vmap", pendulum, starts, pendulum_scanned),
}
TASKS |= {
    f"sparse {kind}, {name} {n}": TransformTask(f"sparse {kind}", f, vector(n))
    for kind, name, f, sizes in (
        ("jacobian", "banded", banded, (10**3, 10**4, 10**5, 10**6)),
        ("jacobian", "Brusselator", brusselator, (2 * 32**2, 2 * 100**2, 2 * 316**2, 2 * 707**2)),
        ("hessian", "banded", chained, (10**3, 10**4, 10**5, 10**6)),
    )
    for n in sizes
}

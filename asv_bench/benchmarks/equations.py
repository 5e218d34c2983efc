"""Gradients of solutions: of the Brusselator, and of minima with bounds."""

from __future__ import annotations

from typing import Any

import numpy as np

import adarray

from .common import LARGE, warm


def flow(_t: Any, y: Any, p: Any) -> Any:
    """Return the right-hand side of the Brusselator on a line."""
    u, v = y[: y.shape[0] // 2], y[y.shape[0] // 2 :]
    spread = [
        np.concatenate([w[1:2] - w[:1], w[2:] - 2 * w[1:-1] + w[:-2], w[-2:-1] - w[-1:]])
        for w in (u, v)
    ]
    reaction = u * u * v
    return np.concatenate(
        [p[0] + reaction - (p[1] + 1) * u + p[2] * spread[0],
         p[1] * u - reaction + p[2] * spread[1]]
    )  # fmt: skip


class Brusselator:
    """An adaptive solution forward, and its gradient by either adjoint."""

    params = ([5, 100, 10_000, 100_000] if LARGE else [5, 100, 1_000], ["discrete", "continuous"])
    param_names = ("n", "adjoint")

    def setup(self, n: int, adjoint: str) -> None:
        """Make the start and run once."""
        try:
            from adarray.scipy import integrate
        except ImportError as error:
            raise NotImplementedError(str(error)) from None
        x = np.linspace(0.0, 1.0, n)
        y0 = np.concatenate([1.0 + np.sin(2 * np.pi * x), np.full(n, 3.0)])
        self.p = np.array([1.0, 3.0, 0.02])

        def solve(p: Any) -> Any:
            r = integrate.solve_ivp(
                flow, (0.0, 2.0), y0, t_eval=[2.0], args=(p,), rtol=1e-6, atol=1e-8, adjoint=adjoint
            )
            return np.sum(r.y[:, -1] ** 2)

        self.solve, self.gradient = solve, adarray.grad(solve)
        warm(self.gradient, self.p)

    def time_solve(self, *_: Any) -> None:
        """Solve, with plain values."""
        self.solve(self.p)

    def time_gradient(self, *_: Any) -> None:
        """Solve, and back."""
        self.gradient(self.p)

    def peakmem_gradient(self, *_: Any) -> None:
        """Memory of the process."""
        self.gradient(self.p)


class Bounded:
    """A minimum with active bounds, and its Jacobian's product with a vector."""

    params = ([20, 100],)
    param_names = ("n",)

    def setup(self, n: int) -> None:
        """Make the data and run once."""
        try:
            from adarray.scipy import optimize
        except ImportError as error:
            raise NotImplementedError(str(error)) from None
        start, box = np.zeros(n), [(-0.1, 0.1)] * n
        self.point = np.linspace(-0.3, 0.3, n)

        def nearest(point: Any) -> Any:
            def cost(x: Any) -> Any:
                return np.sum((x - point) ** 2) + 0.1 * np.sum(np.diff(x) ** 2)

            def slope(x: Any) -> Any:
                return adarray.value_of(adarray.grad(cost)(x))

            return np.sum(optimize.minimize(cost, start, jac=slope, bounds=box, tol=1e-10).x ** 2)

        self.solve, self.gradient = nearest, adarray.grad(nearest)
        warm(self.gradient, self.point)

    def time_solve(self, *_: Any) -> None:
        """Minimize, with plain values."""
        self.solve(self.point)

    def time_gradient(self, *_: Any) -> None:
        """Minimize, and differentiate the solution."""
        self.gradient(self.point)

"""Transforms as operators on functions of two numbers, with what they make of polynomials.

A polynomial map of the plane knows its derivatives exactly, to any order. Each operator here takes
a function ``f(x)`` of an array of shape (2,) that returns one, and makes another of them; beside
it stands what that is for a polynomial. So any nest of operators has a right answer.

For tests of nested transforms.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import adarray

V = np.array([0.6, -0.8])
W = np.array([1.0, 0.5])
A = np.array([[2.0, 0.5], [-0.5, 1.5]])

Function = Callable[[Any], Any]


class Polynomial:
    """A number that is a polynomial of two: coefficients by powers."""

    def __init__(self, c: Any) -> None:
        self.c = np.atleast_2d(np.asarray(c, float))

    def __add__(self, other: Polynomial) -> Polynomial:
        shape = np.maximum(self.c.shape, other.c.shape)
        total = np.zeros(shape)
        for c in (self.c, other.c):
            total[: c.shape[0], : c.shape[1]] += c
        return Polynomial(total)

    def __mul__(self, other: Any) -> Polynomial:
        if not isinstance(other, Polynomial):
            return Polynomial(self.c * other)
        a, b = self.c, other.c
        total = np.zeros((a.shape[0] + b.shape[0] - 1, a.shape[1] + b.shape[1] - 1))
        for (i, j), value in np.ndenumerate(a):
            if value:
                total[i : i + b.shape[0], j : j + b.shape[1]] += value * b
        return Polynomial(total)

    def by(self, k: int) -> Polynomial:
        """Return the derivative by variable `k`."""
        c = np.moveaxis(self.c, k, 0)
        result = np.arange(1, len(c)).reshape(-1, 1) * c[1:] if len(c) > 1 else 0.0 * c
        return Polynomial(np.moveaxis(result, 0, k))

    def of(self, x: Polynomial, y: Polynomial) -> Polynomial:
        """Return the polynomial of polynomials."""
        total, rows = Polynomial(0.0), self.c.shape[0]
        for i in range(rows - 1, -1, -1):  # Horner's scheme
            row = Polynomial(0.0)
            for value in self.c[i, ::-1]:
                row = row * y + Polynomial(value)
            total = total * x + row
        return total

    def __call__(self, x: Any) -> Any:
        i, j = self.c.shape
        return x[0] ** np.arange(i) @ self.c @ x[1] ** np.arange(j)


Pair = tuple[Polynomial, Polynomial]
SELF: Pair = (Polynomial([[0.0], [1.0]]), Polynomial([[0.0, 1.0]]))
# x0^2 + 0.5 x0 x1 + 0.3, and x1^2 - x0: what the base is.
BASE: Pair = (
    Polynomial([[0.3, 0.0], [0.0, 0.5], [1.0, 0.0]]),
    Polynomial([[0.0, 0.0, 1.0], [-1.0, 0.0, 0.0]]),
)


def base(x: Any) -> Any:
    """Return the base as plain NumPy code, with a write in place."""
    y = np.zeros(2)
    y[0] = x[0] ** 2 + 0.5 * x[0] * x[1]
    y[1] = x[1] * x[1]
    y += np.array([0.3, 0.0])
    y[1] -= x[0]
    return y


def _mixed(p: Pair, weights: Any) -> Polynomial:
    return p[0] * weights[0] + p[1] * weights[1]


def _along(p: Pair) -> Pair:
    """Return J V."""
    return tuple(q.by(0) * V[0] + q.by(1) * V[1] for q in p)  # type: ignore[return-value]


def _back(p: Pair) -> Pair:
    """Return W J."""
    q = _mixed(p, W)
    return q.by(0), q.by(1)


def _twice(p: Pair) -> Pair:
    """Return the Hessian of W f, times V."""
    return _along(_back(p))


def _bent(p: Pair) -> Pair:
    return _along(_along(p))


def _two_members(p: Pair) -> Pair:
    x, y = SELF
    return tuple(q + q.of(x * 0.5, y * 0.5) for q in p)  # type: ignore[return-value]


def _steps(p: Pair) -> Pair:
    x, y = SELF
    for _ in range(2):
        x, y = x + p[0].of(x, y) * 0.25, y + p[1].of(x, y) * 0.25
    return x, y


def _solved(p: Pair) -> Pair:
    inverse = np.linalg.inv(A)
    return _mixed(p, inverse[0]), _mixed(p, inverse[1])


def _loop(f: Function) -> Function:
    def step(x: Any) -> Any:
        return x + 0.25 * f(x)

    return lambda x: adarray.checkpointed_loop(step, x, 2, 1)


def _while(f: Function) -> Function:
    def step(state: Any) -> Any:
        return state[0] + 0.25 * f(state[0]), state[1] + 1

    return lambda x: adarray.checkpointed_while(lambda s: s[1] < 2, step, (x, 0), 1)[0]


def _custom_vjp(f: Function) -> Function:
    transformed = adarray.custom_vjp(lambda x: f(x))
    transformed.defvjp(lambda x: (f(x), x), lambda x, g: adarray.vjp(f, x)[1](g))
    return transformed


def _custom_jvp(f: Function) -> Function:
    transformed = adarray.custom_jvp(lambda x: f(x))
    transformed.defjvp(lambda primals, tangents: adarray.jvp(f, primals, tangents))
    return transformed


def _linear_solve(f: Function) -> Function:
    def solve(_: Any, b: Any) -> Any:
        return np.linalg.solve(A, b)

    def backwards(_: Any, b: Any) -> Any:
        return np.linalg.solve(A.T, b)

    return lambda x: adarray.custom_linear_solve(lambda v: A @ v, f(x), solve, backwards)


def _jet(f: Function) -> Function:
    return lambda x: adarray.jet(f, (x,), ([V, np.zeros(2)],))[1][1]


def _vmap(f: Function) -> Function:
    return lambda x: np.sum(adarray.vmap(f)(np.stack([x, 0.5 * x])), axis=0)


def _transposed(f: Function) -> Function:
    return lambda x: adarray.linear_transpose(adarray.linearize(f, x)[1], np.zeros(2))(W)[0]


class Operator(NamedTuple):
    """A transform of functions, and what it makes of polynomials."""

    of: Callable[[Function], Function]
    known: Callable[[Pair], Pair]


def _same(p: Pair) -> Pair:
    return p


def _weighted(f: Function) -> Function:
    return lambda x: W @ f(x)


OPERATORS: dict[str, Operator] = {
    "jit": Operator(lambda f: adarray.jit(f), _same),
    "grad": Operator(lambda f: adarray.grad(_weighted(f)), _back),
    "value_and_grad": Operator(
        lambda f: lambda x: adarray.value_and_grad(_weighted(f))(x)[1], _back
    ),
    "vjp": Operator(lambda f: lambda x: adarray.vjp(f, x)[1](W)[0], _back),
    "jvp": Operator(lambda f: lambda x: adarray.jvp(f, (x,), (V,))[1], _along),
    "directional_derivative": Operator(
        lambda f: lambda x: adarray.directional_derivative(f)(x, V), _along
    ),
    "linearize": Operator(lambda f: lambda x: adarray.linearize(f, x)[1](V), _along),
    "linear_transpose": Operator(_transposed, _back),
    "jacobian": Operator(lambda f: lambda x: adarray.jacobian(f)(x) @ V, _along),
    "jacfwd": Operator(lambda f: lambda x: adarray.jacfwd(f)(x) @ V, _along),
    "jacrev": Operator(lambda f: lambda x: adarray.jacrev(f)(x) @ V, _along),
    "hessian": Operator(lambda f: lambda x: adarray.hessian(_weighted(f))(x) @ V, _twice),
    "hvp": Operator(lambda f: lambda x: adarray.hvp(_weighted(f))(x, V), _twice),
    "make_hvp": Operator(lambda f: lambda x: adarray.make_hvp(_weighted(f))(x)[0](V), _twice),
    "jet": Operator(_jet, _bent),
    "vmap": Operator(_vmap, _two_members),
    "checkpoint": Operator(lambda f: adarray.checkpoint(lambda x: f(x)), _same),
    "checkpointed_loop": Operator(_loop, _steps),
    "checkpointed_while": Operator(_while, _steps),
    "checkpoint_sequential": Operator(
        lambda f: lambda x: adarray.checkpoint_sequential([f, lambda y: 2.0 * y, lambda y: y], x),
        lambda p: (p[0] * 2.0, p[1] * 2.0),
    ),
    "custom_vjp": Operator(_custom_vjp, _same),
    "custom_jvp": Operator(_custom_jvp, _same),
    "custom_linear_solve": Operator(_linear_solve, _solved),
}
# These return matrices of SciPy, and are outermost.
OUTERMOST: dict[str, Operator] = {
    "sparse_jacobian": Operator(lambda f: lambda x: adarray.sparse_jacobian(f)(x) @ V, _along),
    "sparse_hessian": Operator(
        lambda f: lambda x: adarray.sparse_hessian(_weighted(f))(x) @ V, _twice
    ),
}


def value(p: Pair, x: Any) -> np.ndarray:
    """Return the value of a pair of polynomials."""
    return np.array([p[0](x), p[1](x)])

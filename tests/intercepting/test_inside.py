"""What client code does inside of `adarray.intercept`, differentiated against differences."""

from __future__ import annotations

import cmath
import math
import numbers
from collections import namedtuple
from math import exp, hypot
from typing import Any

import numpy as np
import pytest
from numpy import array, asarray, ndarray, zeros
from numpy.polynomial import Chebyshev

import adarray
from adarray.intercepting import intercepted
from adarray.testing import check_grads

X = np.array([[1.0, 2.0], [0.5, -1.0], [3.0, 0.2]])
OUTSIDE = np.polynomial.Polynomial([1.0, 2.0])
Point = namedtuple("Point", ["x", "y"])


class Model:
    """Holds plain data, as objects do that were made before."""

    def __init__(self) -> None:
        self.data = X.copy()

    def through_numpy(self, w: Any) -> Any:
        return np.asarray(self.data).dot(w).sum()

    def by_method(self, w: Any) -> Any:
        return self.data.dot(w).sum()


def filled(x):
    y = np.zeros(3)
    for i in range(3):
        y[i] = x[0] * i + math.sin(x[1])
    return np.sum(y**2)


def filled_rows(x):
    y = np.empty((2, 3))
    y[0] = x
    y[1, :] = 2.0 * y[0][::-1]
    y[:, 1] *= 3.0
    return (y * np.arange(6.0).reshape(2, 3)).sum()


def recurrence(x):
    y = zeros(5)
    y[0] = x[0]
    for i in range(1, 5):
        y[i] = 0.5 * y[i - 1] + x[1] * y[i - 1] ** 2
    return y[-1] + y.max()


def full_like(x):
    return np.sum(np.full(3, x[0]) * np.full_like(np.arange(3.0), x[1]) * np.ones_like(x[:3]))


def listed(x):
    return array([x[0], 1.0, [x[1]][0]]).dot(asarray([[1.0], [x[2]], [2.0]])).sum()


def nested(x):
    return np.linalg.det(np.array([[x[0], 1.0], [x[1], x[2]]]))


def as_float(x):
    return np.asarray(x, dtype=float).sum() * np.asarray([x[0]], dtype=np.float64)[0] * float(x[1])


def joined(x):
    return np.r_[x[0], 1.0, x[1:]].prod() + np.c_[x, x].sum() + np.hstack([[x[0]], [2.0]]).sum()


def of_lists(x):
    a, b, c = x[0], x[1], x[2]
    return (
        np.sum([a, b]) + np.mean([a, b * c]) + np.max([a, b]) + np.dot([a, b], [c, 1.0])
        + np.exp([a, b]).sum() + np.cumsum([a, b])[-1] + np.linalg.norm([a, b, c]) + np.prod((a, b))
        + np.std([a, b, c]) + np.maximum([a, b], 0.1).sum() + np.interp([a], [0.0, 5.0], [b, c])[0]
    )  # fmt: skip


def scalars(x):
    y = np.float64(x[0]) * x[1].item() + np.float64(2.0)
    return float(y) ** 2 + y.item() + float(np.sum(x))


def out_argument(x):
    buffer = np.empty(3)
    np.multiply(x, 2.0, out=buffer)
    np.add(buffer, x, buffer)
    np.sin(buffer, out=buffer)
    total = np.zeros(())
    return buffer.sum() + np.sum(x, out=total)


def writing_functions(x):
    y = np.zeros((3, 3))
    np.fill_diagonal(y, x)
    np.copyto(y[0], x * 2.0)
    np.put(y, [3, 4], x[:2])
    np.add.at(y, ([0, 0], [1, 1]), x[1:])
    return np.sum(y**2)


def plain_matrix(x):
    data = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    return data.dot(x).sum() + (data @ x).prod() + data.T.copy().T.dot(x)[0] + data[1].dot(x)


def integer_matrix(x):
    data = np.array([[1, 2, 3], [4, 5, 6]])
    return data.dot(x).sum()


def isinstances(x):
    assert isinstance(x, np.ndarray)
    assert isinstance(x, ndarray)
    assert isinstance(x, (list, np.ndarray))
    assert not isinstance(x, (list, float))
    assert isinstance(x[0], float)
    assert isinstance(x[0], np.floating)
    assert isinstance(x[0], numbers.Real)
    assert isinstance(x[0].item(), float)
    assert not isinstance(x[0], int)
    assert isinstance(np.zeros(2), np.ndarray)
    assert np.isscalar(x[0])
    assert not np.isscalar(x)
    return x.sum()


def rounding(x):
    i = int(x[0] * 4.0)
    j = math.floor(x[1] + 2.0)
    return x[2] * i + x[1] * j + math.trunc(x[0]) + [1.0, 2.0, 3.0, 4.0, 5.0][i]


def conversions(x):
    values = [v.item() for v in x]
    total = 0.0
    for v in values:
        total += v * v
    return math.sqrt(total) + sum(values) + min(values) + max(values) + abs(values[0])


def choosing(x):
    out = np.empty_like(x)
    mask = x > 0.5
    out[mask] = x[mask] ** 2
    out[~mask] = -x[~mask]
    return out.sum() + np.where(mask, x, 0.0).sum()


def vectorized(x):
    f = np.vectorize(lambda t: t * t if t > 0.5 else 2.0 * t, otypes=[float])
    return f(x).sum()


@np.vectorize
def hinge(t, slope):
    return t * slope if t > 0.5 else math.exp(t)


def vectorized_before(x):
    return hinge(x, 3.0).sum()


def enumerated(x):
    return sum(k[0] * v for k, v in np.ndenumerate(x))


def grids(x):
    u, v = np.meshgrid(x[:2], x[1:])
    return np.sum(u * v) + np.linspace(x[0], x[1], 4).prod() + np.geomspace(x[0], 2.0, 3).sum()


def polynomials(x):
    return np.polyval([x[0], 1.0, x[1]], x[2]) + np.polynomial.polynomial.polyval(
        x[0], np.array([x[1], 2.0])
    )


def polynomial_classes(x):
    p = np.polynomial.Polynomial([x[0], 1.0, x[1]])
    q = Chebyshev([x[2], x[0]])
    assert isinstance(p, np.polynomial.Polynomial)
    return (
        p(x).sum() + p.deriv()(0.5) + (p * p)(x[2]) + p.integ()(2.0) + q(0.3) + q(x).prod()
        + (np.polynomial.Polynomial([x[0]]) + OUTSIDE)(x[1])
        + np.poly1d([x[0], x[1]])(2.0) + (np.poly1d([1.0, x[0]]) + 2.0)(x[1])
    )  # fmt: skip


def complex_numbers(x):
    z = complex(x[0], x[1]) * cmath.exp(1j * x[2])
    return abs(z) + z.real


def shaped(x):
    y = np.atleast_2d(x)
    y = np.append(y, [[1.0, 2.0, x[0]]], axis=0)
    y = np.insert(y, 0, x, axis=0)
    return np.ravel(y).dot(np.arange(y.size) * 1.0) + np.stack([x, x]).T.flatten()[1]


def while_loop(x):
    t, k = x[0], 0
    while abs(t) < 10.0:
        t = t * (1.0 + math.exp(x[1]))
        k += 1
    return t + k


def state(x):
    s = {"u": np.zeros(2), "p": Point(0.0, [x[2]])}
    s["u"][0] += x[0]
    s["u"][1] -= exp(x[1])
    s["p"] = s["p"]._replace(x=hypot(x[0], x[1]))
    return s["u"].dot(s["u"]) + s["p"].x * s["p"].y[0]


def generator(x):
    def parts():
        for v in x:
            buffer = np.zeros(2)
            buffer[0] = v
            yield buffer.sum() ** 2

    return sum(parts())


def from_iterator(x):
    return np.fromiter((v * v for v in x), dtype=float).sum() if False else np.array(
        [v * v for v in x]
    ).sum()  # fmt: skip


def recursion(x, depth=4):
    return array([x[0], x[1] * recursion(0.5 * x, depth - 1)]).sum() if depth else math.tanh(x[2])


def view_of_buffer(x):
    y = np.zeros((2, 3))
    row, flat = y[1], y.reshape(-1)
    row[:] = x
    flat[0] = x[0] ** 2
    y.T[1, 0] = x[2]
    return np.sum(y * y) + flat[3] + y.ravel()[0]


def random_numbers(x):
    rng = np.random.default_rng(3)
    noise = rng.normal(size=3)
    return (x[0] + x[1] * noise).sum() + rng.uniform()


def random_parameters(x):
    rng = np.random.default_rng(3)
    return rng.normal(x[0], x[1], size=4).sum() + rng.exponential(x[2], size=2).sum()


FUNCTIONS = [
    filled, filled_rows, recurrence, full_like, listed, nested, as_float, joined, of_lists,
    scalars, out_argument, writing_functions, plain_matrix, integer_matrix, isinstances, rounding,
    conversions, choosing, vectorized, vectorized_before, enumerated, grids, polynomials,
    polynomial_classes,
    complex_numbers, shaped, while_loop, state, generator, from_iterator, recursion,
    view_of_buffer, random_numbers, random_parameters,
]  # fmt: skip


@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_gradient(f: Any) -> None:
    x = np.array([0.7, 0.4, 1.3])
    plain = f(x) if f is not isinstances else x.sum()
    inside = intercepted(f)
    check_grads(inside, (x,), order=2 if f is not rounding else 1)
    with adarray.intercept():
        assert float(adarray.value_of(f(np.array(x)))) == pytest.approx(float(plain), rel=1e-15)


@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_gradient_of_wrapped(f: Any) -> None:
    x = np.array([0.7, 0.4, 1.3])
    expected = adarray.grad(intercepted(f))(x)
    assert np.array_equal(adarray.grad(adarray.wrap(f))(x), expected)


def test_float32_stays() -> None:
    def f(x):
        y = np.zeros(3, dtype=np.float32)
        y[:] = x * math.exp(0.5) + float(x[0])
        return y.sum() * math.sqrt(x[1])

    g = adarray.grad(intercepted(f))(np.array([1.0, 2.0, 3.0], np.float32))
    assert g.dtype == np.float32


ONE = ("acos", "asin", "asinh", "atan", "atanh", "cbrt", "cos", "cosh", "degrees", "exp", "exp2",
       "expm1", "fabs", "log", "log10", "log1p", "log2", "radians", "sin", "sinh", "sqrt", "tan",
       "tanh", "erf", "erfc", "gamma", "lgamma")  # fmt: skip
MORE = {
    "acosh": lambda x: math.acosh(x + 1.0),
    "atan2": lambda x: math.atan2(x, 0.3) + math.atan2(0.3, x),
    "copysign": lambda x: math.copysign(x, -2.0),
    "dist": lambda x: math.dist([x, 1.0], [0.2, 2.0 * x]),
    "fmod": lambda x: math.fmod(5.0 * x, 1.1),
    "frexp": lambda x: math.frexp(x * 7.0)[0],
    "fsum": lambda x: math.fsum(v * x for v in (1.0, 2.0)),
    "hypot": lambda x: math.hypot(x, 2.0, x * x),
    "ldexp": lambda x: math.ldexp(x, 3),
    "log base": lambda x: math.log(x, 3.0) + math.log(3.0, x),
    "modf": lambda x: math.modf(5.5 * x)[0],
    "pow": lambda x: math.pow(x, 2.5) + math.pow(2.0, x),
    "prod": lambda x: math.prod([x, 2.0, x]) + math.prod([x], start=3),
    "remainder": lambda x: math.remainder(5.0 * x, 1.1),
    "float": lambda x: float(x) * float("2.0"),
    "cmath": lambda x: (cmath.sqrt(x) * cmath.sin(x)).real + cmath.phase(complex(x, 1.0)),
    "polar": lambda x: cmath.polar(complex(x, 2.0))[0] + cmath.rect(x, x).imag,
}


@pytest.mark.parametrize("name", [*ONE, *MORE])
def test_math(name: str) -> None:
    if name in ("erf", "erfc", "gamma", "lgamma"):
        pytest.importorskip("scipy")
    f = MORE[name] if name in MORE else getattr(math, name)
    for x in (0.37, 0.81):
        with adarray.intercept():
            check_grads(lambda x: MORE[name](x) if name in MORE else getattr(math, name)(x), (x,))
            assert float(adarray.value_of(f(x))) == f(x)


def test_every_function_of_math_is_classified() -> None:
    from adarray.intercepting.mathematics import CMATH, inside_math

    for module, rest in ((math, set()), (cmath, set(CMATH) & set())):
        for name in dir(module):
            value = getattr(module, name)
            if not name.startswith("_") and callable(value):
                assert inside_math(module, name) is not None or name in rest, name


def test_math_raises_pythons_errors() -> None:
    with adarray.intercept():
        for f, x in ((math.sqrt, -1.0), (math.log, 0.0), (math.acos, 2.0)):
            with pytest.raises(ValueError, match=r"math domain error|expected a"):
                adarray.grad(f)(x)
        with pytest.raises(OverflowError):
            adarray.grad(exp)(1e4)
        with pytest.raises(TypeError):
            adarray.grad(lambda x: math.sin(x))(np.ones(2))


def test_truth_values_and_integers_of_math() -> None:
    def f(x):
        assert math.isfinite(x)
        assert not math.isnan(x)
        assert math.isclose(x, 0.5)
        assert math.ceil(x) == 1
        assert type(math.ceil(x)) is int
        return math.floor(10.0 * x) * x

    assert adarray.grad(intercepted(f))(0.5) == 5.0


def test_jvp_vjp_jacobian_hessian() -> None:
    f = intercepted(recurrence)
    x = np.array([0.7, 0.4, 1.3])
    g = adarray.grad(f)(x)
    _, dy = adarray.jvp(f, (x,), (np.array([1.0, 2.0, 3.0]),))
    assert dy == pytest.approx(g @ [1.0, 2.0, 3.0])
    assert np.allclose(adarray.jacobian(f)(x), g)
    h = adarray.hessian(f)(x)
    assert np.allclose(h, h.T)
    assert np.any(h)


def test_wrapped_functions_nest() -> None:
    inner = adarray.wrap(filled)

    def outer(x):
        buffer = np.zeros(2)
        buffer[0] = inner(x)
        return buffer.sum() * adarray.grad(inner)(x)[0]

    check_grads(adarray.wrap(outer), (np.array([0.7, 0.4, 1.3]),), order=1)

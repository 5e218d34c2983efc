"""Transforms intercept by default, where what the function may call needs that."""

import math
import subprocess
import sys

import numpy as np
import pytest
from numpy import sin

import adarray
from adarray.base.scope import SCOPE
from adarray.core.reaching import reach

X = np.array([0.3, 1.2, 2.0])
W = np.arange(9.0).reshape(3, 3)
SETTINGS = {"rate": 0.5}


def power(x):
    return np.sum(np.sin(x) ** 2)


def logistic(w, rows, y):
    z = rows @ w
    return np.mean(np.log1p(np.exp(-z)) + (1 - y) * z)


def network(params, x):
    (w1, b1), (w2, b2) = params
    return np.sum(np.tanh(x @ w1 + b1) @ w2 + b2, axis=0)[0]


def looped(x):
    total = 0.0
    for i in range(3):
        total = total + x[i] * W[i, 0] if x[i] > 0 else total - sin(x[i])
    return total * SETTINGS["rate"]


def calls_others(x):
    return looped(x) + power(x)


def closure():
    scale = 2.0

    def scaled(x):
        return power(x * scale)

    return scaled


HARMLESS = [power, logistic, network, looped, calls_others, closure()]

NEEDING = {
    "math": lambda x: math.sin(x[0]),
    "np.array": lambda x: np.array([x[0], 1.0]).sum(),
    "a list": lambda x: np.sum([x[0], x[1]]),
    "a tuple": lambda x: np.sum((x[0], x[1])),
    "out=": lambda x: np.sum(np.add(x, x, out=np.zeros(3))),
    "a class": lambda x: np.float64(x[0]) * 2.0,
    "float": lambda x: float(x[0]) ** 2,
    "map": lambda x: sum(map(float, x)),
    "a function that is made": lambda x: (lambda y: np.sum(y))(x),
    "a comprehension": lambda x: sum([v * v for v in x]),
    "a generator": lambda x: sum(v * v for v in x),
    "an attribute": lambda x: SETTINGS.get("rate") * x[0],
    "a module that is passed": lambda x: getattr(np, "sum")(x),  # noqa: B009
    "polynomials": lambda x: np.sum(np.polynomial.Polynomial([0.0, 1.0, 2.0])(x)),
    "vectorize": lambda x: np.sum(np.vectorize(math.exp)(x)),
}


def filled(x):
    u = np.zeros(3)
    u[1:] = x[:2] * x[0]
    u[:] += x
    return np.sum(u**2)


def stored(x):
    np.put(u := np.zeros(3), [0], x[:1])
    return np.sum(u * x)


def imported(x):
    import math as m

    return m.exp(x[0])


NEEDING |= {f.__name__: f for f in (filled, stored, imported)}


@pytest.mark.parametrize("f", HARMLESS, ids=lambda f: f.__name__)
def test_what_protocols_show_is_not_intercepted(f):
    assert not reach(f).needs


@pytest.mark.parametrize("what", NEEDING)
def test_the_rest_is_intercepted_and_differentiated(what):
    f = NEEDING[what]
    step = 1e-6
    differences = [(f(X + step * e) - f(X - step * e)) / (2 * step) for e in np.eye(3)]
    assert reach(f).needs
    for _ in range(2):  # the second time, what is known of the function is used
        np.testing.assert_allclose(adarray.grad(f)(X), differences, rtol=1e-7, atol=1e-9)
    assert SCOPE.get() is None


def helper(x):
    return np.sum(x**2)


def by_a_name(x):
    return helper(x)


def by_an_alias(x):
    return sin(x[0])


def test_names_that_are_bound_anew_are_seen(monkeypatch):
    np.testing.assert_array_equal(adarray.grad(by_a_name)(X), 2 * X)
    monkeypatch.setitem(globals(), "helper", lambda x: math.exp(x[0]))
    np.testing.assert_allclose(adarray.grad(by_a_name)(X), [math.exp(X[0]), 0, 0])
    np.testing.assert_allclose(adarray.grad(by_an_alias)(X), [math.cos(X[0]), 0, 0])
    monkeypatch.setitem(globals(), "sin", math.exp)
    np.testing.assert_allclose(adarray.grad(by_an_alias)(X), [math.exp(X[0]), 0, 0])
    monkeypatch.setitem(globals(), "math", np)  # what interception has bound is gone
    np.testing.assert_allclose(adarray.grad(NEEDING["math"])(X), [math.cos(X[0]), 0, 0])


def test_functions_that_are_passed_are_seen():
    def applied(x, g):
        return g(x)

    np.testing.assert_allclose(
        adarray.grad(applied)(X, lambda x: math.exp(x[1])), [0, math.exp(X[1]), 0]
    )
    f = {"g": lambda x: np.array([x[0], x[1]])}
    np.testing.assert_array_equal(adarray.grad(lambda x, fs: fs["g"](x).sum())(X, f), [1, 1, 0])


TRANSFORMS = {
    "grad": lambda f, **k: adarray.grad(f, **k)(X),
    "value_and_grad": lambda f, **k: adarray.value_and_grad(f, **k)(X)[1],
    "vjp": lambda f, **k: adarray.vjp(f, X, **k)[1](1.0)[0],
    "jvp": lambda f, **k: [adarray.jvp(f, (X,), (e,), **k)[1] for e in np.eye(3)],
    "jacobian": lambda f, **k: adarray.jacobian(f, **k)(X),
    "forward": lambda f, **k: adarray.jacobian(f, mode="forward", **k)(X),
    "hessian": lambda f, **k: adarray.hessian(f, **k)(X)[0],
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_every_transform_intercepts_and_can_do_without(name):
    transform = TRANSFORMS[name]
    expected = transform(lambda x: np.sin(x[0]))
    np.testing.assert_allclose(transform(lambda x: math.sin(x[0])), expected)
    with pytest.raises(adarray.TraceError, match="float: a traced value would leave the graph"):
        transform(lambda x: math.sin(x[0]), intercept=False)


def test_an_inner_transform_keeps_its_choice():
    inner = adarray.grad(lambda x: math.sin(x), intercept=False)
    with pytest.raises(adarray.TraceError):
        adarray.grad(inner)(0.5)
    assert adarray.grad(adarray.grad(lambda x: math.sin(x)))(0.5) == pytest.approx(-math.sin(0.5))


def test_harmless_functions_load_nothing_and_rebind_nothing():
    code = (
        "import sys, numpy as np, adarray\n"
        "f = lambda x: np.sum(np.sin(x) ** 2)\n"
        "adarray.grad(f)(np.ones(3))\n"
        "assert 'adarray.intercepting' not in sys.modules and np is sys.modules['numpy']\n"
        "adarray.grad(lambda x: np.sum(np.array([x[0], x[1]])))(np.ones(3))\n"
        "assert 'adarray.intercepting' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_kernels_of_users_compute_outside():
    def cube(x):
        assert type(x) is np.ndarray
        array = np.asarray(x) ** 3
        assert type(array) is np.ndarray
        return array

    cube = adarray.register_rule(cube, lambda g, out, x: 3 * g * x**2, name="cube of a test")
    gradient = adarray.grad(lambda x: np.sum(np.array([1.0, 2.0, 3.0]) * cube(x)))(X)
    np.testing.assert_allclose(gradient, 3 * X**2 * [1, 2, 3])

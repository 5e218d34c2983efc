"""Captured loops, with kernels that are written here by hand."""

import numpy as np
import pytest

import adarray
from adarray.compiler.ir.loopir import Apply, Assign, Const, For, Load, Local, Param, Store, Var
from adarray.compiler.ir.threads import ThreadKernel
from adarray.loops import capture, policy
from adarray.loops.forms import (
    Bound,
    LoopKernel,
    Result,
    Scalar,
    Variable,
    Workspace,
)

F, N = "float64", "int64"
ZERO = Const(N, 0)


def mul(a, b):
    return Apply(F, "multiply", (a, b))


def add(a, b):
    return Apply(F, "add", (a, b))


def running_sum(loop, variables, iterable, wanted, resolve, contents):
    """``for i in range(n): acc = acc + x[i] * x[i]``, and ``y[i] = acc`` if there is a y."""
    i = Var(N, "i")
    x = Load(F, "x", i)
    body = [Assign("s", add(Var(F, "s"), mul(x, x)))]
    buffers = [Param("x", F, "in"), Param("out", F, "inout")]
    sources = [("x", Variable("x")), ("out", Workspace(F, (1,))), ("acc", Variable("acc"))]
    writes = ()
    if "y" in variables:
        body.append(Store("y", i, Var(F, "s")))
        buffers.append(Param("y", F, "inout"))
        sources.append(("y", Variable("y")))
        writes = ("y",)
    sources.append(("stop", Bound("stop")))
    kernel = ThreadKernel(
        f"loop_{loop.lineno}", tuple(buffers), (("acc", F), ("stop", N)),
        tuple(n for n, _ in sources), (),
        (
            Local("s", F, None, Var(F, "acc")),
            For("i", ZERO, Var(N, "stop"), tuple(body)),
            Store("out", ZERO, Var(F, "s")),
        ),
    )  # fmt: skip
    results = tuple(Result(n, "out", Scalar(F, False)) for n in sorted(wanted) if n == "acc")
    return LoopKernel(kernel, tuple(sources), writes, results)


@pytest.fixture
def by_hand(monkeypatch):
    calls = []

    def lower(*args):
        calls.append(args)
        return running_sum(*args)

    monkeypatch.setattr(capture, "lower", lower)
    monkeypatch.setattr(capture, "_lowerings", capture.Lowerings())
    monkeypatch.setattr(policy, "_LIMITS", ((4, 1 << 20),))
    return calls


def summed(x):
    acc = 0.0
    for i in range(len(x)):
        acc = acc + x[i] * x[i]
    return acc


def written(x):
    y = np.zeros(len(x))
    acc = 1.0
    for i in range(len(x)):
        acc = acc + x[i] * x[i]
        y[i] = acc
    return np.sum(y * x) + acc


X = np.random.default_rng(0).normal(size=10)


@pytest.mark.parametrize("f", [summed, written])
def test_value_and_gradient(by_hand, f):
    value, gradient = adarray.value_and_grad(f)(X)
    jf = adarray.jit(adarray.value_and_grad(f))
    for _ in range(4):
        v, g = jf(X)
        np.testing.assert_allclose(v, value, 1e-13)
        np.testing.assert_allclose(g, gradient, 1e-12)
    assert by_hand, "not captured"
    plan = jf.explain(X)
    assert "loop_" in str(plan)


@pytest.mark.parametrize("f", [summed, written])
def test_value(by_hand, f):
    jf = adarray.jit(f)
    for _ in range(4):
        np.testing.assert_allclose(jf(X), f(X), 1e-13)
    assert by_hand


T = np.linspace(1.0, 2.0, X.size)
BATCH = np.stack([X, 2 * X, X + 1])
TRANSFORMED = {
    "jvp": lambda f: lambda x: adarray.jvp(f, (x,), (T,)),
    "hvp": lambda f: lambda x: adarray.hvp(f)(x, T),
    "vmap": lambda f: lambda x: adarray.vmap(f)(BATCH * x),
    "vmap of grad": lambda f: lambda x: adarray.vmap(adarray.grad(f))(BATCH * x),
    "hessian": lambda f: lambda x: adarray.hessian(f)(x),
    "grad of grad": lambda f: adarray.grad(lambda x: np.sum(adarray.grad(f)(x) ** 2)),
    "grad of jvp": lambda f: adarray.grad(lambda x: adarray.jvp(f, (x,), (T,))[1]),
    "jvp of jvp": lambda f: (
        lambda x: adarray.jvp(lambda x: adarray.jvp(f, (x,), (T,))[1], (x,), (T,))
    ),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", TRANSFORMED)
@pytest.mark.parametrize("f", [summed, written])
def test_transformed(by_hand, f, name):
    transformed = TRANSFORMED[name](f)
    expected = transformed(X)
    by_hand.clear()
    jf = adarray.jit(transformed)
    for _ in range(3):
        result = jf(X)
        for a, b in zip(result, expected, strict=True):
            np.testing.assert_allclose(a, b, 1e-11)
    assert by_hand

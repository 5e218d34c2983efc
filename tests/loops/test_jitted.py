"""Loops of jitted functions of all kinds, end to end: captured, with the results of Python."""

# The functions below are what users may write, and not what the linter would.
# ruff: noqa: B905, N806

from __future__ import annotations

import functools
import threading
from typing import Any

import numpy as np
import pytest

import adarray
from adarray.kernels import compiled
from adarray.kernels.execution import Execution
from adarray.loops import policy


@pytest.fixture(autouse=True)
def short_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Capture loops however short they are, and compare them with the loops of Python."""
    monkeypatch.setattr(policy, "_LIMITS", ((1, 1 << 30),))
    monkeypatch.setenv("ADARRAY_CHECK", "1")


def named_as_in_c(double, call):
    register, auto, λ = 0.0, 1.0, 2.0
    for for_ in range(len(double)):
        register = register + double[for_] * call[for_] * λ * auto
    return register


def two_names(x, w):
    y = x * 1.0
    z = y
    for i in range(1, len(y)):
        z[i] = z[i] + 0.5 * y[i - 1] * w[i]
    return np.sum(y * x)


def argument(x, w):
    for i in range(1, len(x)):
        x[i] = x[i] + 0.5 * x[i - 1] * w[i]
    return np.sum(x * x)


TABLE = np.linspace(0.0, 1.0, 12)
FACTOR = 3


def of_globals(x, w):
    s = 0.0
    for i in range(len(x)):
        s = s + x[i] * TABLE[i] * FACTOR * w[0]
    return s


class Filter:
    """A class of a user."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.taps = np.linspace(1.0, 2.0, n)
        self.gain = 0.5

    @property
    def twice(self) -> int:
        return 2 * self.n

    def run(self, x, w):
        s = 0.0
        for i in range(self.n):
            s = s * self.gain + x[i] * self.taps[i] * w[i]
        return s

    def __call__(self, x, w):
        state = np.zeros(self.n)
        for i in range(self.n):
            state[i] = self.gain * state[i - 1] + x[i] * w[i]
        return np.sum(state * self.taps)


def of_a_helper(x, w):
    return Filter(12).run(x, w) ** 2


def closure(x, w):
    n, u = len(x), np.sin(x)

    def inner(y):
        s = 0.0
        for i in range(n):
            s = s + u[i] * y[i]
        return s

    return inner(x) * inner(w)


def inlined(x, w):
    def step(i, v):
        return np.sin(v) * i

    s = 0.0
    for i in range(len(x)):
        s = s + step(i, x[i]) * w[i]
    return s


def over_arrays(x, w):
    s = 0.0
    for v in x:
        s = s * 0.5 + v
    for i, v in enumerate(w):
        s = s + i * v
    for a, b in zip(x, w):
        s = s + a * b
    return s


def while_loop(x, w):
    s, k = x[0] * 1.0, 0
    while k < 10 and s < 1e3:
        s = s + x[k] ** 2 * w[k]
        k += 1
    return s * k


def matrix(x, w):
    A = np.outer(x, w)
    for i in range(A.shape[0]):
        for j in range(i):
            A[i, j] -= A[i, :j] @ A[:j, j]
        A[i] *= 0.5
    return np.sum(A * A)


def types_of_results(x, w):
    k, s, m = 0, 0.0, x[0]
    for i in range(len(x)):
        if x[i] > 0.0:
            k += 1
            s += 2.0
        m = max(m, x[i] * w[i])
    if type(k) is not int or type(s) is not float or not isinstance(m, np.float64):
        raise TypeError  # no assert: pytest writes other code for that
    return m * k + s


def single_precision(x, w):
    y, s = x.astype(np.float32), np.float32(0.0)
    for i in range(len(y)):
        s = s + y[i] * 0.5
    if s.dtype != np.float32:
        raise TypeError
    return s * w[0]


CAPTURED = [
    named_as_in_c, two_names, argument, of_globals, Filter(12).run, Filter(12), of_a_helper,
    closure, inlined, over_arrays, while_loop, matrix, types_of_results, single_precision,
    functools.partial(Filter(12).run, w=TABLE + 1.0),
]  # fmt: skip
X, W = np.random.default_rng(0).normal(size=(2, 12))
TRANSFORMS: dict[str, Any] = {
    "value": lambda f: f,
    "grad": lambda f: adarray.value_and_grad(f),
    "jvp": lambda f: lambda *a: adarray.jvp(f, a, tuple(map(np.ones_like, a))),
    "hvp": lambda f: lambda *a: adarray.hvp(f)(*a, np.ones(12)),
    "vmap": lambda f: lambda *a: adarray.vmap(f)(*(np.stack([v, 2 * v, v + 1]) for v in a)),
}


def name_of(f: Any) -> str:
    return getattr(f, "__name__", type(f).__name__)


def close(a: Any, b: Any) -> None:
    if isinstance(b, tuple):
        for x, y in zip(a, b, strict=True):
            close(x, y)
        return
    single = np.asarray(b).dtype == np.float32
    np.testing.assert_allclose(a, b, 1e-4 if single else 1e-10, 1e-5 if single else 1e-11)


@pytest.mark.slow
@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("f", CAPTURED, ids=name_of)
def test_captured(f: Any, transform: str) -> None:
    args = (X,) if isinstance(f, functools.partial) else (X, W)
    if transform == "hvp":
        of_one = f if len(args) == 1 else lambda x: f(x, W)
        args, transformed = (X,), TRANSFORMS[transform](lambda x: of_one(x))
    else:
        transformed = TRANSFORMS[transform](lambda *a: f(*a))
    plain = tuple(a.copy() for a in args)
    expected = transformed(*plain)
    jf = adarray.jit(transformed)
    for _ in range(3):
        own = tuple(a.copy() for a in args)
        close(jf(*own), expected)
        close(own, plain)
    if transform != "vmap":
        loops = jf.explain(*[a.copy() for a in args]).loops
        assert loops
        assert all(": captured" in line for line in loops), loops


def test_numbers_that_change() -> None:
    """An argument that is a whole number, and a global."""

    def f(x, n):
        s = 0.0
        for i in range(n):
            s = s + x[i] * x[i + 1] * FACTOR
        return s

    jf = adarray.jit(f)
    for n in (3, 3, 5, 5, 7, 8, 9, 0, 1):
        close(jf(X, n), f(X, n))
    global FACTOR
    before = FACTOR
    try:
        for number in (5, 6, 6, 6, 7):
            FACTOR = number
            close(jf(X, 9), f(X, 9))
    finally:
        FACTOR = before


def test_objects_that_change() -> None:
    model = Filter(12)
    jf = adarray.jit(model.run)
    for gain in (0.5, 0.5, 0.5, 0.25, 0.125, 0.75):
        model.gain = gain
        close(jf(X, W), model.run(X, W))
    model.taps = model.taps * 2.0
    close(jf(X, W), model.run(X, W))
    model.taps[3] = 7.0
    close(jf(X, W), model.run(X, W))
    model.n = 5
    for _ in range(3):
        close(jf(X, W), model.run(X, W))


@pytest.mark.filterwarnings("ignore::adarray.JitWarning")
def test_errors_are_those_of_python() -> None:
    def too_far(x):
        s = 0.0
        for i in range(len(x) + 1):
            s = s + x[i]
        return s

    def by_zero(x):
        s = 0.0
        for i in range(3):
            s = s + x[i] + 1 / i
        return s

    def unbound(x):
        for i in range(3):
            s = s + x[i]  # noqa: F821
        return s

    for f, error in ((too_far, IndexError), (by_zero, ZeroDivisionError), (unbound, NameError)):
        jf = adarray.jit(f)
        for _ in range(3):
            with pytest.raises(error):
                jf(X)


def test_views_of_what_is_written() -> None:
    """They see what the loop writes, taken before it or in it."""

    def f(x):
        A = np.outer(x, x)
        row, whole = A[3], A[:, :]
        for i in range(len(x)):
            A[i, 3] = A[i, 2] * 0.5 + x[i]
        return np.sum(row * x) + np.sum(whole) + np.sum(A[3])

    jf = adarray.jit(adarray.value_and_grad(f))
    for _ in range(3):
        close(jf(X), adarray.value_and_grad(f)(X))


def test_array_that_shares_memory_is_not_captured() -> None:
    def f(x):
        A = np.outer(x, x)
        row = A[3]
        for i in range(len(x)):
            A[3, i] = A[i, 2] + row[i - 1]
        return np.sum(A)

    jf = adarray.jit(f)
    for _ in range(3):
        close(jf(X), f(X))
    assert "A, which it writes, and row share memory" in jf.explain(X).loops[0]


def test_plain_array_of_the_user_is_not_written() -> None:
    target = np.zeros(12)

    def f(x):
        for i in range(len(x)):
            target[i] = 2.0
        return x * 1.0

    jf = adarray.jit(f)
    for _ in range(3):
        target[...] = 0.0
        close(jf(X), X)
        assert np.all(target == 2.0)


def test_the_adjoint_of_a_loop_runs_once_while_it_is_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One run is for all inputs, although results that reach nothing have cotangents of zeros."""

    def f(x, w):
        y, z = np.zeros(len(x)), np.zeros(len(x))
        for i in range(1, len(x)):
            z[i] = 0.5 * z[i - 1] * w[i] + x[i]
            y[i] = y[i - 1] * z[i] + w[i]
        return np.sum(y)

    runs: list[frozenset[str]] = []
    gradients = Execution.gradients

    def counted(self: Any, launch: Any, values: Any, cotangents: Any, inputs: Any, *more: Any):
        runs.append(inputs)
        return gradients(self, launch, values, cotangents, inputs, *more)

    monkeypatch.setattr(Execution, "gradients", counted)
    monkeypatch.setenv("ADARRAY_CHECK", "0")
    x, w = np.linspace(0.1, 0.9, 12), np.linspace(0.3, 0.7, 12)
    actual = adarray.jit(adarray.grad(f, argnums=(0, 1)))(x, w)
    assert len(runs) == 1
    assert len(runs[0]) == 2
    for a, b in zip(actual, adarray.grad(f, argnums=(0, 1))(x, w), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_threads() -> None:
    def f(x):
        s = 0.0
        for i in range(len(x)):
            s = s + np.sin(x[i]) * i
        return s

    jf = adarray.jit(adarray.grad(f))
    expected = adarray.grad(f)(X)
    errors: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(5):
                close(jf(X), expected)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors


def test_compiled_once() -> None:
    """The second recording, and another function of the same code, compile nothing again."""

    def make():
        def f(x):
            s = 0.0
            for i in range(len(x)):
                s = s * 0.25 + x[i] * 1.375
            return s

        return f

    counts = []
    for _ in range(2):
        jf = adarray.jit(adarray.grad(make()))
        jf(X)
        jf(X)
        operations = {
            e.op for n in jf.explain(X).segments for e in n.events
            if getattr(e, "op", None) is not None and e.op.name.startswith("loop")
        }  # fmt: skip
        counts.append(operations)
    assert counts[0] == counts[1]


def test_whole_arrays_are_left_to_fusion(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()

    def f(x):
        for _ in range(100):
            x = np.sin(x) * 0.5 + x
        return np.sum(x)

    def g(x):
        s = 0.0
        for i in range(3):
            s = s + x[i]
        return s

    def h(x):
        for _ in range(100):
            x[1:] = np.exp(-x[:-1])
        return np.sum(x)

    def products(x):
        y = np.zeros(len(x))
        for i in range(50):
            y[i] = np.sum((x @ x) @ x[i])
        return np.sum(y)

    large = np.ones(100_000)
    assert "whole arrays" in adarray.jit(f).explain(large).loops[0]
    assert "whole arrays" in adarray.jit(h).explain(large).loops[0]
    assert not adarray.jit(g).explain(large).loops
    square = np.ones((50, 50))
    assert "multiplies matrices, of 2500 elements" in adarray.jit(products).explain(square).loops[0]


@pytest.mark.parametrize("backend", ["serial", "openmp"])
def test_parts_of_whole_arrays_are_written_in_a_loop(
    monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    monkeypatch.undo()

    def f(x):
        x = x.copy()
        for _ in range(20):
            x[1:-1] = 0.3 * (x[:-2] + x[1:-1] + x[2:])
        return np.sum(x**2)

    x = np.random.default_rng(0).normal(size=40_000)
    threads = {"threads": 4} if backend == "openmp" else {}
    with adarray.use(backend, **threads):
        line = adarray.jit(f).explain(x).loops[0]
    assert ("captured" in line) == (backend == "serial"), line


def test_a_loop_that_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def f(x, k):
        y = x * 2
        for i in range(300):
            if k < 0:
                y[i % 5] += 3.0
        return np.sum(y * x)

    x = np.arange(5.0)
    jf = adarray.jit(adarray.value_and_grad(f))
    for _ in range(3):
        value, gradient = jf(x, 3)
        assert value == 60.0
        np.testing.assert_array_equal(gradient, 4 * x)
    assert "captured" in jf.explain(x, 3).loops[0]


def test_derivatives_that_kernels_lack() -> None:
    """Reverse mode over a pullback that was taken before: the loop is unrolled after all."""

    def f(x):
        s = np.zeros(len(x))
        for i in range(len(x)):
            s[i] = s[i - 1] * 0.5 + np.sin(x[i])
        return s

    def of_pullback(x):
        pullback = adarray.vjp(f, x)[1]
        return adarray.grad(lambda g: np.sum(pullback(g)[0] ** 2))(x)

    jf = adarray.jit(of_pullback)
    for _ in range(3):
        close(jf(X), of_pullback(X))
    assert "derivative" in jf.explain(X).loops[0]


def test_kernel_and_adjoint_are_compiled_beside_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    builders: list[str] = []
    built = Execution._built

    def noted(self: Execution, *args: Any) -> Any:
        builders.append(threading.current_thread().name)
        return built(self, *args)

    monkeypatch.setattr(Execution, "_built", noted)

    def f(x):
        y = np.zeros(len(x))
        for i in range(1, len(x)):
            y[i] = 0.75 * y[i - 1] * np.cos(x[i]) + x[i - 1]
        return np.sum(y * y)

    with adarray.use("serial"):
        jf = adarray.jit(adarray.grad(f))
        for _ in range(3):
            close(jf(X), adarray.grad(f)(X))
        assert "captured" in jf.explain(X).loops[0]
        assert builders.count("adarray compiles") >= 2
        builders.clear()
        adarray.jit(lambda x: f(x * 2.0))(X)  # no derivative: no adjoint
    assert len(builders) <= 1


def test_kernels_of_many_sizes_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    executions: set[Execution] = set()
    built = Execution._built

    def noted(self: Execution, *args: Any) -> Any:
        executions.add(self)
        return built(self, *args)

    monkeypatch.setattr(Execution, "_built", noted)
    monkeypatch.setattr(compiled, "LAUNCHES", 4)

    def f(x):
        c = np.zeros((len(x), len(x)))
        for i in range(len(x)):
            for j in range(len(x)):
                c[i, j] += x[i] * x[j]
        return np.sum(c * c)

    with adarray.use("serial"):
        jf = adarray.jit(adarray.grad(f))
        for n in range(8, 13):
            x = np.linspace(0.0, 1.0, n)
            close(jf(x), 4.0 * x * np.sum(x * x))
    assert executions
    assert all(max(len(e._ready), len(e._begun), len(e._arranged)) <= 4 for e in executions)

"""`jit` as users meet it: decorating, options, transforms, information, errors."""

from __future__ import annotations

import contextvars
import copy
import functools
import inspect
import math
import pickle
import subprocess
import sys
import types
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import adarray
from adarray.jitting import JitFunction, JitWarning
from adarray.jitting.calls import front

X = np.linspace(0.1, 2.0, 6)


@pytest.fixture(autouse=True)
def engine(backend: str) -> Iterator[None]:
    """Run each test on one backend."""
    with adarray.use(backend):
        yield


def f(x: Any, k: float = 2.0) -> Any:
    """Document f."""
    return np.sum(np.sin(x) * k)


def test_it_looks_like_the_function() -> None:
    jf = adarray.jit(f)
    assert isinstance(jf, JitFunction)
    assert jf.__name__ == "f"
    assert jf.__doc__ == "Document f."
    assert jf.__wrapped__ is f
    assert inspect.signature(jf) == inspect.signature(f)
    assert "jit" in repr(jf)


def test_the_decorator_with_options() -> None:
    @adarray.jit(precise=True, max_paths=3)
    def g(x: Any) -> Any:
        return np.exp(x)

    assert g.options.precise
    assert g.options.max_paths == 3
    for _ in range(4):
        np.testing.assert_allclose(g(X), np.exp(X), rtol=1e-15)


@pytest.mark.parametrize(
    ("options", "error"),
    [({"precise": 1}, TypeError), ({"memory_limit": "1 GB"}, TypeError),
     ({"memory_limit": 0}, ValueError), ({"max_paths": 0}, ValueError),
     ({"max_paths": True}, TypeError)],
)  # fmt: skip
def test_wrong_options(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match=f"jit: {next(iter(options))} is"):
        adarray.jit(f, **options)


def test_what_a_limit_may_be() -> None:
    with pytest.raises(ValueError, match="pass a number of bytes of at least 1, or None"):
        adarray.jit(f, memory_limit=-1)


def test_what_is_no_function() -> None:
    with pytest.raises(TypeError, match="jit: expected a function, got int"):
        adarray.jit(3)
    with pytest.raises(TypeError):
        adarray.jit(f, True)  # options are named


@pytest.mark.parametrize("function", [np.sin, np.sum, np.linalg.det, np.add.reduce, math.sqrt])
def test_library_functions(function: Any) -> None:
    jf = adarray.jit(function)
    x: Any = 4.0 if function is math.sqrt else np.eye(2) * 3.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", JitWarning)
        for _ in range(4):
            np.testing.assert_allclose(jf(x), function(x))


def test_kinds_of_callables() -> None:
    class Scaled:
        def __init__(self, k: float) -> None:
            self.k = k

        def __call__(self, x: Any) -> Any:
            return x * self.k

        @staticmethod
        @adarray.jit
        def static(x: Any) -> Any:
            return x + 1.0

        @classmethod
        def named(cls, x: Any) -> Any:
            return x * len(cls.__name__)

    for g, expected in (
        (Scaled(3.0), X * 3.0), (functools.partial(f, k=3.0), f(X, 3.0)), (lambda x: x - 1, X - 1),
        (Scaled.named, X * 6), (adarray.jit(Scaled(2.0)), X * 2.0),
    ):  # fmt: skip
        jg = adarray.jit(g)
        for _ in range(4):
            np.testing.assert_allclose(jg(X), expected)
        assert jg.cache_info().traces == 1
    for _ in range(4):
        np.testing.assert_allclose(Scaled.static(X), X + 1.0)
        np.testing.assert_allclose(Scaled(1.0).static(X), X + 1.0)


# -- with transforms ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "transform",
    [adarray.grad, adarray.value_and_grad, adarray.jacobian, adarray.hessian,
     lambda g: adarray.grad(lambda x: adarray.grad(g)(x)[0]),
     lambda g: lambda x: adarray.jvp(g, (x,), (np.ones(6),)),
     lambda g: lambda x: adarray.vjp(g, x)[1](1.0)],
)  # fmt: skip
def test_around_and_under_transforms(transform: Any) -> None:
    expected = transform(f)(X)
    for g in (adarray.jit(transform(f)), transform(adarray.jit(f)),
              adarray.jit(transform(adarray.jit(f)))):  # fmt: skip
        for _ in range(4):
            got = g(X)
            for a, b in zip(flat(got), flat(expected), strict=True):
                assert type(a) is type(b)
                np.testing.assert_allclose(a, b, rtol=1e-12)


def flat(x: Any) -> list[Any]:
    """Return the arrays in nested tuples."""
    return [i for part in x for i in flat(part)] if isinstance(x, tuple) else [x]


def test_a_jitted_closure_over_a_traced_value() -> None:
    def outer(x: Any) -> Any:
        inner = adarray.jit(lambda y: np.sum(x * y))
        return inner(np.ones(6)) + inner(np.full(6, 2.0))

    for _ in range(3):
        np.testing.assert_array_equal(adarray.grad(outer)(X), np.full(6, 3.0))


def test_backward_goes_through() -> None:
    jf = adarray.jit(f)
    for _ in range(3):
        jf(X)
    w = adarray.array(X, requires_grad=True)
    jf(w).backward()
    np.testing.assert_allclose(w.grad, 2.0 * np.cos(X))


def test_aux_values_and_text() -> None:
    def loss(x: Any) -> Any:
        y = np.sum(x * x)
        return y, {"y": y, "note": "fine", "x": x}

    jf = adarray.jit(adarray.value_and_grad(loss, has_aux=True))
    for k in range(4):
        (value, aux), g = jf(X + k)
        assert value == aux["y"]
        assert aux["note"] == "fine"
        np.testing.assert_allclose(g, 2.0 * (X + k))
        np.testing.assert_allclose(aux["x"], X + k)


def test_no_grad_and_modes() -> None:
    jf = adarray.jit(f)
    for _ in range(4):
        with adarray.no_grad():
            assert jf(X) == pytest.approx(f(X))


# -- results -----------------------------------------------------------------------------


def test_results_are_the_callers_own() -> None:
    jf = adarray.jit(lambda x: (x + 1.0, np.sin(x), x.copy()))
    for _ in range(5):
        x = X.copy()
        for r in jf(x):
            assert r.flags.owndata
            assert r.flags.writeable
            r[:] = 0.0
        np.testing.assert_array_equal(x, X)


def test_results_share_memory_as_in_plain_code() -> None:
    jf = adarray.jit(lambda x: (x, x + 1.0, x[:2], x.T))
    for _ in range(5):
        x = X.copy()
        same, fresh, head, transposed = jf(x)
        assert same is x
        assert not np.shares_memory(fresh, x)
        assert head.base is x
        assert transposed.base is x
    twice = adarray.jit(lambda x: [x * 2.0] * 2)
    for _ in range(5):
        a, b = twice(X)
        assert a is b


def test_results_stay_when_the_function_is_called_again() -> None:
    jf = adarray.jit(lambda x: np.exp(x) * 2.0)
    got = [jf(np.full(1000, float(k))) for k in range(6)]
    for k, r in enumerate(got):
        np.testing.assert_allclose(r, np.full(1000, math.exp(k) * 2.0))


def test_constant_results() -> None:
    table = np.arange(3.0)
    jf = adarray.jit(lambda x: (1.5, None, np.zeros(2), "text", table, x.shape, x.dtype))
    for _ in range(5):
        one, none, zeros, text, own, shape, dtype = jf(X)
        assert (one, none, text, shape, dtype) == (1.5, None, "text", (6,), np.dtype(float))
        np.testing.assert_array_equal(zeros, [0.0, 0.0])
        zeros[0] = 9.0
        assert own is table


def test_python_numbers_stay_python_numbers() -> None:
    jf = adarray.jit(lambda x: (x * 2.0, x > 1.0, np.sin(x)))
    for _ in range(4):
        a, b, c = jf(1.5)
        assert type(a) is float
        assert type(b) in (bool, np.bool)
        assert type(c) is np.float64
        assert (a, bool(b)) == (3.0, True)


# -- floating-point warnings -------------------------------------------------------------


def test_warnings_come_as_errstate_asks() -> None:
    jf = adarray.jit(lambda x: np.log(x) / x)
    good, bad = np.ones(5), np.array([1.0, 0.0, 2.0, 1.0, 1.0])
    for _ in range(4):
        jf(good)
    with np.errstate(all="ignore"):
        expected = np.log(bad) / bad
        np.testing.assert_array_equal(jf(bad), expected)
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        np.testing.assert_array_equal(jf(bad), expected)
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError, match="divide by zero"):
        jf(bad)
    with np.errstate(divide="raise"):
        np.testing.assert_array_equal(jf(good), np.zeros(5))
    seen: list[str] = []
    with np.errstate(divide="call", call=lambda kind, _flag: seen.append(kind)):
        jf(bad)
    assert "divide by zero" in seen


# -- information -------------------------------------------------------------------------


def test_information() -> None:
    jf = adarray.jit(f)
    assert jf.cache_info()[:5] == (0, 0, 0, 0, 0)
    for _ in range(3):
        jf(X)
    info = jf.cache_info()
    assert info[:5] == (1, 1, 1, 1, 0)
    assert info.seconds > 0
    assert jf.stats() == info
    (node,) = jf.path(X)
    assert node.leaf is not None
    assert jf.path(np.ones(17)) == []
    assert jf.entries[0].signature == "f(float64[6])"
    jf.clear()
    assert jf.cache_info()[:5] == (0, 0, 0, 0, 0)
    assert jf(X) == pytest.approx(f(X))


def test_the_number_of_signatures_is_bounded() -> None:
    jf = adarray.jit(lambda x: x + 1.0)
    for n in range(300):
        jf(np.ones(n))
    assert jf.cache_info().signatures <= 256


def test_generators_and_coroutines_stay_eager() -> None:
    @adarray.jit
    def items(x: Any) -> Iterator[Any]:
        yield x
        yield x * 2.0

    with pytest.warns(JitWarning, match="it is a generator"):
        got = list(items(X))
    np.testing.assert_array_equal(got[1], X * 2.0)

    @adarray.jit
    async def later(x: Any) -> Any:
        return x * 2.0

    with pytest.warns(JitWarning, match="coroutine"):
        pending = later(X)
    with pytest.raises(StopIteration) as end:
        pending.send(None)
    np.testing.assert_array_equal(end.value.value, X * 2.0)


def test_what_cannot_be_recorded_stays_eager() -> None:
    def g(x: Any) -> Any:
        buffer = bytearray(8)
        np.frombuffer(buffer)[:] = x[0]
        return x * np.frombuffer(buffer)[0]

    jg = adarray.jit(g)
    with pytest.warns(JitWarning, match="stays eager: it cannot be recorded"):
        jg(X)
    for k in range(4):
        np.testing.assert_array_equal(jg(X + k), (X + k) * (X[0] + k))


def test_arguments_that_are_changed_stay_eager() -> None:
    def g(items: list[Any]) -> Any:
        items.append(items[0] * 2.0)
        return items[0] + 1.0

    jg = adarray.jit(g)
    items = [X]
    for _ in range(2):  # a list of another length is another signature
        with pytest.warns(JitWarning, match="an argument"):
            jg(items)
    assert len(items) == 3
    np.testing.assert_array_equal(items[2], X * 2.0)


def test_side_effects_happen_in_recorded_calls_only() -> None:
    lines: list[str] = []
    shout = lines.append.__call__
    jf = adarray.jit(lambda x, out=shout: (out("called"), x * 2.0)[1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", JitWarning)
        for _ in range(5):
            np.testing.assert_array_equal(jf(X), X * 2.0)
    assert len(lines) >= 2


@adarray.jit
def decorated(x: Any) -> Any:
    return x * 3.0


def test_pickles_and_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("module_of_the_user")
    monkeypatch.setitem(sys.modules, "module_of_the_user", module)
    monkeypatch.setattr(decorated, "__module__", "module_of_the_user", raising=False)
    module.decorated = decorated  # type: ignore[attr-defined]
    decorated(X)
    assert pickle.loads(pickle.dumps(decorated)) is decorated
    assert copy.copy(decorated) is decorated
    again = pickle.loads(pickle.dumps(adarray.jit(np.tanh, max_paths=3)))
    assert again.options.max_paths == 3
    np.testing.assert_allclose(again(X), np.tanh(X))


def test_importing_adarray_does_not_import_jit() -> None:
    code = "import adarray, sys; assert 'adarray.jit' not in sys.modules; adarray.jit(abs)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_writes_into_adarrays_leave_their_graphs_alone() -> None:
    def g(x: Any) -> Any:
        x[0] = 5.0
        return np.sum(x)

    jg = adarray.jit(g)
    for k in range(4):
        x = adarray.array(X + k)
        w = adarray.array(X, requires_grad=True)
        y = np.sum(w * x)  # saves x
        assert float(jg(x)) == pytest.approx(g(X + k))
        assert float(x[0]) == 5.0
        y.backward()
        np.testing.assert_allclose(w.grad, np.append(X[0] + k, (X + k)[1:]))


def test_writes_into_captured_adarrays() -> None:
    state = adarray.array(np.zeros(6))

    def g(x: Any) -> Any:
        state[1:] = x[1:]
        return np.sum(state)

    jg = adarray.jit(g)
    with pytest.warns(JitWarning, match="captured ADArray"):
        jg(X)
    for k in range(4):
        assert float(np.sum(X[1:] + k)) == pytest.approx(float(jg(X + k)))
        np.testing.assert_array_equal(state.numpy()[1:], X[1:] + k)


def test_a_machine_without_a_compiling_backend_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str, options: Any) -> Any:
        raise adarray.BackendError(f"backend {name!r}: its C module is missing")

    def calls() -> None:
        jf = adarray.jit(f)
        text = "nothing compiles here: backend 'serial': its C module is missing; operations run"
        with pytest.warns(JitWarning, match=text):
            first = jf(X)
        for _ in range(3):  # told once
            np.testing.assert_array_equal(jf(X), first)
        assert adarray.jit(f)(X).shape == first.shape

    front.default_engine.cache_clear()
    try:
        with monkeypatch.context() as patch:
            patch.setattr(front, "new_engine", missing)
            contextvars.Context().run(calls)  # outside of the block that tests here run in
    finally:
        front.default_engine.cache_clear()

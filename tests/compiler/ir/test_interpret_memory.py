"""The interpreter of programs: calls, memory, liveness, engines."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest
from by_hand import Builder, same

import adarray
from adarray.base.runtime import current_mode
from adarray.compiler.ir.interpret import Interpreted, interpret
from adarray.compiler.ir.primitives import CallResult, Matmul, PythonCall, Reduce, Slot, UpdateSlice
from adarray.compiler.ir.program import c_strides
from adarray.errors import ADArrayError

X = np.arange(12.0).reshape(3, 4) + 0.5


# -- calls -------------------------------------------------------------------------------------


def test_calls_with_slots_anywhere() -> None:
    b = Builder()
    x = b.input(X)
    s = b(PythonCall(np.sort, (Slot(0),), {"axis": 0}), (x,), X.shape)
    k = b(PythonCall(np.stack, ([Slot(0), Slot(1)],), {}), (x, s), (2, 3, 4))  # fmt: skip
    same(interpret(b.program(k), [X])[0], np.stack([X, np.sort(X, axis=0)]))


def test_calls_with_several_results() -> None:
    a = X[:, :3] @ X[:, :3].T + np.eye(3)
    b = Builder()
    results = (((3,), "float64"), ((3, 3), "float64"))
    c = b(PythonCall(np.linalg.eigh, (Slot(0),), {}, results), (b.input(a),), ())  # fmt: skip
    vectors = b(CallResult(1), (c,), (3, 3))
    values = b(CallResult(0), (c,), (3,))
    got = interpret(b.program(vectors, values), [a])
    expected = np.linalg.eigh(a)
    same(got[0], expected[1])
    same(got[1], expected[0])


def test_a_call_whose_shape_depends_on_values_is_caught() -> None:
    b = Builder()
    p = b.program(b(PythonCall(np.unique, (Slot(0),), {}), (b.input(X),), (12,)))
    np.testing.assert_array_equal(interpret(p, [X])[0], X.ravel())
    with pytest.raises(ADArrayError, match=r"unique: its result had shape \(12,\)"):
        interpret(p, [X * 0])


# -- memory ------------------------------------------------------------------------------------


def test_results_share_nothing() -> None:
    b = Builder()
    x = b.input(X)
    y = b.map("sin", x)
    constant = b.array(np.ones(3))
    same_object = b(PythonCall(lambda a: a, (Slot(0),), {}), (y,), X.shape)
    real = b.map("real", y)
    out = [x, x, y, y, b.view(y, lambda a: a.T), b.view(x, lambda a: a[1]), constant, constant]
    run = Interpreted(b.program(*out, same_object, real))
    for _ in range(2):
        got = run([X])
        for i, a in enumerate(got):
            assert a.flags.owndata
            assert a.flags.writeable
            assert not np.shares_memory(a, X)
            for other in got[:i]:
                assert not np.shares_memory(a, other)
        np.testing.assert_array_equal(got[6], np.ones(3))
        for a in got:
            a[...] = -1.0  # must not be seen by the next call


def test_what_is_still_read_is_not_written_in_place() -> None:
    b = Builder()
    x = b.input(X)
    y = b.map("multiply", x, x)
    top = b.view(y, lambda a: a[0])
    z = b(UpdateSlice((1, 0), (1, 1), False), (y, b.view(x, lambda a: a[:1])), X.shape)
    w = b(UpdateSlice((2, 0), (1, 1), True), (z, b.view(z, lambda a: a[:1])), X.shape)
    late = b.map("add", top, b.const(1.0))
    got_w, got_late, got_y = interpret(b.program(w, late, y), [X])
    expected = X * X
    expected[1] = X[0]
    expected[2] += expected[0]
    np.testing.assert_array_equal(got_w, expected)
    np.testing.assert_array_equal(got_late, (X * X)[0] + 1)
    np.testing.assert_array_equal(got_y, X * X)


def test_a_loop_of_writes_copies_once() -> None:
    """Filling an array element by element must not copy it each time."""
    n = 200
    addresses = set()

    def watch(a: Any) -> Any:
        addresses.add(a.ctypes.data)
        return a[:1] + 0.0

    b = Builder()
    x = b.input(np.zeros(n))
    y = x
    for i in range(n):
        seen = b(PythonCall(watch, (Slot(0),), {}), (y,), (1,))
        one = b.map("add", b.view(y, lambda a, i=i: a[i - 1 : i] if i else a[:1]), seen)
        new = b.map("add", one, b.const(1.0))
        y = b(UpdateSlice((i,), (1,), False), (y, new), (n,))
    zeros = np.zeros(n)
    (got,) = interpret(b.program(y), [zeros])
    expected = np.zeros(n)
    for i in range(n):
        expected[i] = expected[max(i - 1, 0)] + expected[0] + 1
    np.testing.assert_array_equal(got, expected)
    assert not zeros.any()
    assert len(addresses) == 2  # the input, and the one copy of it


@pytest.mark.usefixtures("_young_heap")
def test_values_are_dropped_after_their_last_use() -> None:
    alive: list[Any] = []
    most = 0

    def watch(a: Any) -> Any:
        nonlocal most
        out = a + 1.0
        alive.append(weakref.ref(out))
        most = max(most, sum(r() is not None for r in alive))
        return out

    b = Builder()
    y = b.input(X)
    for _ in range(20):
        y = b(PythonCall(watch, (Slot(0),), {}), (y,), X.shape)
    gc.collect()
    (got,) = interpret(b.program(y), [X])
    np.testing.assert_allclose(got, X + 20)
    assert most == 2


def test_a_watcher_sees_every_step() -> None:
    b = Builder()
    x = b.input(X)
    y = b.map("sin", x)
    z = b.map("cos", b.view(y, lambda a: a.T))
    seen: list[Any] = []
    p = b.program(z)
    Interpreted(p)([X], lambda *step: seen.append(step))
    assert [v for v, _, _ in seen] == p.values[1:]
    times = [t for _, start, stop in seen for t in (start, stop)]
    assert times == sorted(times)


def test_a_long_chain() -> None:
    b = Builder()
    x = y = b.input(np.zeros(3))
    for _ in range(20_000):
        y = b.map("add", y, x)
    (got,) = interpret(b.program(y), [np.ones(3)])
    np.testing.assert_array_equal(got, np.full(3, 20_001.0))


# -- engines -----------------------------------------------------------------------------------


def test_with_an_engine_it_computes_what_eager_code_does(backend: str) -> None:
    rng = np.random.default_rng(5)
    x, w = rng.normal(size=(40, 30)), rng.normal(size=(30, 20))
    b = Builder()
    u, v = b.input(x), b.input(w)
    d = b(Matmul(), (u, v), (40, 20))
    t = b.map("tanh", d)
    m = b.map("exp", b.map("multiply", t, b.const(0.5)))
    total = b(Reduce("add", (0, 1)), (m,), ())
    rows = b(Reduce("maximum", (0,)), (m,), (20,))
    p = b.program(t, m, total, rows)

    def eager(x: Any, w: Any) -> Any:
        t = np.tanh(x @ w)
        m = np.exp(t * 0.5)
        return t, m, np.sum(m), np.max(m, axis=0)

    options = {"cutoff": 0} if backend in ("serial", "openmp") else {}
    with adarray.use(backend, **options):
        got = Interpreted(p, current_mode().engine)([x, w])
        expected, _ = adarray.vjp(eager, x, w)
    # cuBLAS may choose another algorithm for the eager product.
    tolerance = 1e-12 if backend == "cuda" else 0
    for a, e in zip(got, expected, strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(e), rtol=tolerance, atol=0)


def test_c_strides_of_the_builder() -> None:
    b = Builder()
    assert b.view(b.input(X), lambda a: a).primitive.strides == c_strides(X.shape)

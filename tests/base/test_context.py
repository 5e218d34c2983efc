"""Backends, modes and traces belong to the context; `copy_context` carries them along."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import adarray
from adarray import current_backend
from adarray.base.context import copy_context
from adarray.testing import check_grads

X = np.linspace(0.1, 1.0, 6).reshape(2, 3)


def other_backend():
    return next((name for name in ("serial", "openmp") if name in adarray.backends()), "numpy")


def test_a_pool_does_not_inherit_and_copy_context_mends_it():
    name = other_backend()
    with adarray.use(name), ThreadPoolExecutor(2) as pool:
        assert pool.submit(lambda: current_backend()).result() == "numpy"
        assert pool.submit(copy_context(lambda: current_backend())).result() == name
        assert list(pool.map(copy_context(lambda _: current_backend()), range(9))) == [name] * 9
    assert current_backend() == "numpy"


def test_no_grad_reaches_the_workers():
    def f(x):
        with ThreadPoolExecutor(2) as pool:
            with adarray.no_grad():
                constant = pool.submit(copy_context(lambda: x * 2)).result()
            traced = pool.submit(copy_context(lambda: x * 3)).result()
        assert not constant.requires_grad
        return np.sum(traced + constant)

    np.testing.assert_array_equal(adarray.grad(f)(X), np.full_like(X, 3.0))


def test_gradients_flow_through_what_workers_return():
    def f(x):
        with ThreadPoolExecutor(3) as pool:
            rows = list(pool.map(copy_context(lambda row: np.sum(np.sin(row) * row)), x))
        return np.sum(np.stack(rows) ** 2)

    check_grads(f, (X,), order=2)


def test_derivatives_inside_of_workers():
    def f(x):
        with ThreadPoolExecutor(3) as pool:
            slopes = pool.map(copy_context(adarray.grad(lambda r: np.sum(r**3))), x)
            return sum(np.sum(s * x[0]) for s in slopes)

    check_grads(f, (X,))


def test_calls_do_not_see_each_other():
    seen = []

    def step(name):
        seen.append(current_backend())
        adarray.use(name).__enter__()
        return current_backend()

    run = copy_context(step)
    assert run(other_backend()) == other_backend()
    run("numpy")
    assert seen == ["numpy", "numpy"]
    assert current_backend() == "numpy"


def test_the_function_is_wrapped_and_errors_pass():
    def f(a, *, b=2):
        """Say so."""
        if b < 0:
            raise KeyError(b)
        return a + b

    g = copy_context(f)
    assert (g.__name__, g.__doc__) == ("f", "Say so.")
    assert g(1, b=3) == 4
    with pytest.raises(KeyError):
        g(1, b=-1)


def names(backend):
    with adarray.use(backend):
        received = yield current_backend()
        yield received, current_backend()
    return "done"


def test_generators_leak_and_copy_context_mends_it():
    name = other_backend()
    plain = names(name)
    next(plain)
    leaked = current_backend()
    plain.close()
    assert leaked == name
    copy = copy_context(names)(name)
    assert next(copy) == name
    assert current_backend() == "numpy"
    assert copy.send(5) == (5, name)
    assert current_backend() == "numpy"
    with pytest.raises(StopIteration) as end:
        next(copy)
    assert end.value.value == "done"
    assert current_backend() == "numpy"


def test_generators_pass_errors_on_and_close():
    closed = []

    @copy_context
    def items():
        try:
            for k in range(3):
                try:
                    yield k
                except KeyError as error:
                    yield f"caught {error}"
        finally:
            closed.append(True)

    result = items()
    assert next(result) == 0
    assert result.throw(KeyError("a")) == "caught 'a'"
    assert next(result) == 1
    result.close()
    assert closed == [True]
    assert list(items()) == [0, 1, 2]
    assert closed == [True, True]
    second = items()
    next(second)
    with pytest.raises(ValueError, match="through"):
        second.throw(ValueError("through"))
    assert closed == [True] * 3


def test_generators_inside_of_traces():
    @copy_context
    def running(x):
        total = 0.0
        for row in x:
            total = total + np.sum(row**2)
            yield total

    check_grads(lambda x: sum(t * k for k, t in enumerate(running(x))), (X,), order=2)


def test_threads_and_tasks_are_independent():
    def loss(x):
        return np.sum(np.tanh(x) ** 2)

    expected = adarray.grad(loss)(X)
    results, start = [], threading.Barrier(4)

    def work():
        start.wait()
        results.extend(adarray.grad(loss)(X) for _ in range(50))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(results) == 200
    for r in results:
        np.testing.assert_array_equal(r, expected)

    async def task(name):
        with adarray.use(name):
            await asyncio.sleep(0)
            assert current_backend() == name
            return adarray.grad(loss)(X)

    async def main():
        return await asyncio.gather(*(task(n) for n in ("numpy", other_backend(), "numpy")))

    for r in asyncio.run(main()):
        np.testing.assert_allclose(r, expected, rtol=1e-13)

"""Depth, memory, threads and the collector."""

from __future__ import annotations

import gc
import threading
import tracemalloc

import numpy as np
import pytest

import adarray

MILLION = 1_000_000


@pytest.mark.slow
def test_chain_of_a_million_operations():
    def f(x):
        for _ in range(MILLION):
            x = x + 1.0
        return np.sum(x)

    np.testing.assert_array_equal(adarray.grad(f)(np.ones(2)), [1.0, 1.0])


@pytest.mark.slow
def test_chain_of_a_million_operations_in_the_tensor_style():
    x = adarray.array([1.0, 2.0], requires_grad=True)
    y = x
    for _ in range(MILLION):
        y = y * 1.0
    np.sum(y).backward(retain_graph=True)
    np.testing.assert_array_equal(x.grad, [1.0, 1.0])
    del y  # freed without recursion


def test_second_order_of_a_deep_chain():
    def f(x):
        y = x
        for _ in range(5_000):
            y = y * 1.0001
        return y * y

    expected = 2 * 1.0001**10_000
    np.testing.assert_allclose(adarray.grad(adarray.grad(f))(1.0), expected, rtol=1e-9)


@pytest.mark.slow
def test_repeated_gradients_keep_memory_flat():
    w = np.ones((20, 20))

    def f(x):
        y = x @ w
        y[0] = np.tanh(y[1])
        return np.sum(np.exp(-y * y)) + np.max(y)

    g = adarray.grad(f)
    x = np.linspace(0, 1, 400).reshape(20, 20)
    gc.collect()
    gc.disable()  # nothing may depend on the cyclic collector
    tracemalloc.start()
    try:
        for _ in range(100):
            g(x)
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(2000):
            g(x)
        after, peak = tracemalloc.get_traced_memory()
    finally:
        gc.enable()
        tracemalloc.stop()
    # Python's free lists fill slowly; one leaked node a call would be over 200 kB.
    assert after - before < 100_000
    assert peak - before < 1_000_000


def test_a_dead_branch_is_freed_while_tracing():
    sizes = []

    def f(x):
        for _ in range(20):
            np.exp(x)  # nobody uses it
            sizes.append(tracemalloc.get_traced_memory()[0])
        return np.sum(x)

    tracemalloc.start()
    try:
        adarray.grad(f)(np.ones(100_000))
    finally:
        tracemalloc.stop()
    assert sizes[-1] - sizes[2] < 100_000


def test_collector_threshold_is_restored():
    before = gc.get_threshold()
    seen = []

    def f(x):
        seen.append(gc.get_threshold()[0])
        return np.sum(x)

    adarray.grad(f)(np.ones(2))
    assert seen[0] >= 100_000
    assert gc.get_threshold() == before


def test_threads_do_not_meet():
    results: dict[int, list[float]] = {}

    def work(k):
        collected = []
        for _ in range(50):
            g = adarray.grad(adarray.grad(lambda x: x ** (k + 2)))
            collected.append(g(1.0))
        results[k] = collected

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for k in range(4):
        assert set(results[k]) == {float((k + 2) * (k + 1))}


def test_traced_value_used_by_a_thread():
    def f(x):
        out = []

        def work():
            out.append(adarray.grad(lambda y: np.sum(y * y * x))(np.ones(3)))

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return np.sum(out[0])

    np.testing.assert_allclose(adarray.grad(f)(np.ones(3)), [2.0, 2.0, 2.0])


def test_only_what_a_rule_needs_is_saved():
    x = adarray.array(np.ones(3), requires_grad=True)
    assert (x + x)._node.saved == (None, None, None)
    assert np.sum(x)._node.saved[1].shape == (3,)
    assert isinstance(np.sum(x)._node.saved[1], adarray.base.aval.Aval)
    out, operand = np.exp(x)._node.saved
    assert out is not None
    assert operand is None
    constant = np.ones((3, 3))
    product = np.matmul(x, constant)._node
    assert isinstance(
        product.saved[1], adarray.base.aval.Aval
    )  # x is not needed for its own gradient
    np.testing.assert_array_equal(product.saved[2], constant)

"""Several threads call one jitted function."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

import adarray

WORKERS = 6


def together(work: Callable[[int], Any]) -> list[Any]:
    """Run `work` in several threads that start at the same time."""
    barrier = threading.Barrier(WORKERS)

    def run(k: int) -> Any:
        barrier.wait()
        return work(k)

    with ThreadPoolExecutor(WORKERS) as pool:
        return list(pool.map(run, range(WORKERS)))


def test_threads_record_and_call_at_once(backend: str) -> None:
    scale = np.full(50, 2.0)

    def f(x: Any) -> Any:
        y = np.sin(x) * scale
        return y.sum() if x[0] > 2.0 else y

    jf = adarray.jit(f)

    def work(k: int) -> None:
        with adarray.use(backend):
            for i in range(60):
                x = np.full(50 if i % 3 else 30, float((k + i) % 5))[:50]
                x = np.resize(x, 50)
                np.testing.assert_allclose(jf(x), f(x), rtol=1e-13)

    together(work)
    info = jf.cache_info()
    assert (info.signatures, info.eager, info.paths) == (1, 0, 2)


def test_each_thread_has_its_own_results(backend: str) -> None:
    jf = adarray.jit(lambda x: np.exp(x) * x)
    with adarray.use(backend):
        for _ in range(3):
            jf(np.ones(20_000))

    def work(k: int) -> None:
        with adarray.use(backend):
            x = np.full(20_000, float(k))
            for _ in range(50):
                np.testing.assert_allclose(jf(x), np.exp(x) * x, rtol=1e-14)

    together(work)


def test_other_threads_see_nothing_of_a_recording(backend: str) -> None:
    """Captured arrays are replaced in a clone of the function only."""
    state = {"w": np.ones(40)}
    stop = threading.Event()
    kinds: set[type] = set()

    def watch() -> None:
        while not stop.is_set():
            kinds.add(type(state["w"]))
            kinds.add(type(state["w"] * 2.0))

    def f(x: Any) -> Any:
        return np.tanh(x * state["w"]).sum()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with adarray.use(backend):
            for n in range(30):
                jf = adarray.jit(f)
                for _ in range(3):
                    assert abs(jf(np.full(40, n / 30)) - f(np.full(40, n / 30))) < 1e-12
    finally:
        stop.set()
        watcher.join()
    assert kinds == {np.ndarray}


def test_methods_of_objects_in_threads(backend: str) -> None:
    class Layer:
        def __init__(self, k: int) -> None:
            self.w = np.full(8, float(k))

        @adarray.jit
        def forward(self, x: Any) -> Any:
            return x * self.w

    def work(k: int) -> None:
        with adarray.use(backend):
            layer = Layer(k)
            for i in range(20):
                np.testing.assert_array_equal(layer.forward(np.full(8, float(i))), k * float(i))
                layer.w = np.full(8, float(k))

    together(work)

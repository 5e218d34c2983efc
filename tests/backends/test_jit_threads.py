"""Compiled plans in threads and processes, and the memory that they keep."""

from __future__ import annotations

import gc
import multiprocessing
import sys
import threading
import time
import weakref
from typing import Any

import numpy as np
import plans
import pytest


def test_threads_are_chosen_by_work(engine: Any) -> None:
    assert engine.executable(plans.scaled_plan(10, work=100.0)).threads == (1,)
    assert engine.executable(plans.scaled_plan(10, work=1e6)).threads == (engine.threads,)


def test_the_number_of_threads_decides_not_their_luck(engine: Any) -> None:
    n = 300_000
    run = engine.executable(plans.scaled_plan(n, "float32", work=1e6))
    x = np.random.default_rng(0).standard_normal(n).astype(np.float32)
    totals = {float(run([x, 1.0])[1]) for _ in range(20)}
    assert len(totals) == 1


def test_many_python_threads_at_once(engine: Any) -> None:
    n = 20_000
    run = engine.executable(plans.sorted_plan(np.sort, n))
    big = engine.executable(plans.scaled_plan(n, work=1e5))
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(n) for _ in range(6)]
    expected = [run([x, 0.5])[0] for x in inputs]
    wrong: list[int] = []

    def work(i: int) -> None:
        for _ in range(30):
            y, _ = run([inputs[i], 0.5])
            z, _ = big([inputs[i], 1.0])
            if not np.array_equal(y, expected[i]) or abs(z[5] - np.exp(inputs[i][5])) > 1e-12:
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []


def test_other_threads_run_beside_long_plans(engine: Any) -> None:
    n = 4_000_000
    run = engine.executable(plans.scaled_plan(n, work=1e7))
    x = np.zeros(n)
    ticks, stop = [0], threading.Event()

    def tick() -> None:
        while not stop.is_set():
            ticks[0] += 1
            time.sleep(0)

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        during = []
        for _ in range(5):
            before = ticks[0]
            run([x, 1.0])
            during.append(ticks[0] - before)
    finally:
        stop.set()
        thread.join()
    assert max(during) > 10


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_computes(engine: Any) -> None:
    if "fork" not in multiprocessing.get_all_start_methods():
        pytest.skip("no fork here")
    n = 100_000
    run = engine.executable(plans.scaled_plan(n, work=1e6))
    x = np.linspace(-1, 1, n)
    expected = run([x, 1.0])[1]
    context = multiprocessing.get_context("fork")
    queue = context.Queue()

    def child() -> None:
        new = engine.executable(plans.scaled_plan(n, kernel=plans.unique(), work=1e6))
        queue.put((float(run([x, 1.0])[1]), float(new([x, 1.0])[1])))

    process = context.Process(target=child)
    process.start()
    old, new = queue.get(timeout=60)
    process.join(60)
    assert process.exitcode == 0
    assert old == expected
    assert new > old
    assert run([x, 1.0])[1] == expected


@pytest.mark.usefixtures("_young_heap")
def test_memory_of_results_is_used_again(engine: Any) -> None:
    n = 1 << 16
    lib = engine.library.lib
    run = engine.executable(plans.scaled_plan(n))
    x = np.zeros(n)
    y = run([x, 1.0])[0]
    address = y.ctypes.data
    if lib.adarray_pool_cached() != 0:
        pytest.skip("another plan holds the pool")
    del y
    if lib.adarray_pool_cached() == 0:
        pytest.skip("no pool on this system")
    y = run([x, 1.0])[0]
    assert y.ctypes.data == address
    z = np.empty(n)  # not the plan's business
    assert lib.adarray_pool_cached() == 0
    del y
    assert lib.adarray_pool_cached() > 0
    del run, z
    gc.collect()
    assert lib.adarray_pool_cached() == 0


def test_nothing_leaks(engine: Any) -> None:
    run = engine.executable(plans.sorted_plan(np.sort))
    x, s = np.linspace(0, 1, 6), np.array(1.0)
    arrays = [x, s]
    run(arrays)
    before = sys.getrefcount(x), sys.getrefcount(s), sys.getrefcount(np.sort)
    for _ in range(100):
        run(arrays)
        with pytest.raises(TypeError):
            run([x, None])
    assert before == (sys.getrefcount(x), sys.getrefcount(s), sys.getrefcount(np.sort))


class _Node:
    """Holds an executable whose `rerun` refers to it."""

    def __init__(self, engine: Any) -> None:
        self.run = engine.executable(plans.scaled_plan(4), rerun=plans.Rerun(self.rerun))

    def rerun(self, *args: Any) -> Any:
        return [self]


@pytest.mark.usefixtures("_young_heap")
def test_an_executable_that_refers_to_itself_is_collected(engine: Any) -> None:
    node = _Node(engine)
    node.run([np.ones(4), 1.0])
    dead = weakref.ref(node)
    del node
    gc.collect()
    assert dead() is None

"""Memory of what the launcher runs, with a driver that is none: see fake_gpu.py."""

from __future__ import annotations

import gc
import weakref
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_gpu import FakeGpu, FakeStream, Memory
from launched import check, executable, moved, values

from adarray.compiler.ir.target import GPU
from adarray.compiler.planning import planner as planning
from adarray.errors import DeviceMemoryError

pytest.importorskip("adarray_native._device")
from adarray_backends.cuda import instances, plans, results

plan = partial(planning.plan, target=GPU)
RNG = np.random.default_rng(12)


@pytest.fixture
def gpu(tmp_path: Path) -> FakeGpu:
    return FakeGpu(tmp_path)


class Shuffling(FakeGpu):
    """A GPU whose pool gives free blocks of one size in any order, as CuPy's does."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.free: list[np.ndarray] = []
        self.order = np.random.default_rng(1)
        self.allocated = 0

    def alloc(self, size: int) -> Memory:
        self.allocated += 1
        room = max(-(-size // 512), 1) * 512 + 256
        fitting = [i for i, b in enumerate(self.free) if b.nbytes == room]
        base = np.empty(room, np.uint8)
        if fitting:
            base = self.free.pop(self.order.choice(fitting))
        owner = base[:]
        weakref.finalize(owner, self.free.append, base)
        return Memory(-(-base.ctypes.data // 256) * 256, owner)


@pytest.mark.parametrize("recycled", [True, False])
def test_results_that_are_the_next_inputs_come_back_to_the_same_addresses(
    recycled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not recycled:
        monkeypatch.setattr(results, "SETS", 1 << 30)

    def step(*xs: Any) -> Any:
        return tuple(x - 0.1 * np.sin(x) for x in xs)

    state = [RNG.normal(size=n) for n in (60, 61, 62, 63, 64)]
    expected = step(*state)
    gpu = Shuffling(tmp_path)
    _, run = executable(gpu, step, state)
    state = run([moved(x) for x in state])
    for got, want in zip(state, expected, strict=True):
        np.testing.assert_allclose(got, want)
    for _ in range(12):
        state = run(state)
    before, allocated = run.counts(), gpu.allocated
    for _ in range(50):
        state = run(state)
    after = run.counts()
    assert after.replays == before.replays + 50
    assert after._replace(replays=0) == before._replace(replays=0)
    assert (gpu.allocated == allocated) == recycled


@pytest.mark.usefixtures("_young_heap")
def test_memory_of_results_that_somebody_looks_at_is_not_taken_again(tmp_path: Path) -> None:
    gpu = Shuffling(tmp_path)
    _, run = executable(gpu, lambda x: (x + 1, np.sum(x), x * 2), [np.zeros(100)])
    views, wanted = [], []
    for i in range(30):
        x = moved(np.full(100, float(i)))
        a, b, c = run([x])
        wanted.append(i)
        views.append((a[3:7], b, c[::2].T) if i % 3 else (a, b[...], c))
        if i % 2:  # others are free again
            views.pop()
            wanted.pop()
        del a, b, c
        for k, (a, b, c) in zip(wanted, views, strict=True):
            np.testing.assert_array_equal(a, k + 1)
            np.testing.assert_array_equal(b, 100 * k)
            np.testing.assert_array_equal(c, 2 * k)
    assert gpu.allocated < 30 * 3
    instances_ = [weakref.ref(k) for xs in run.instances.idle.values() for x in xs for k in x.sets]
    assert 0 < len(instances_) <= results.SETS
    plans.give_back()
    gc.collect()
    assert not any(k() for k in instances_)


@pytest.mark.parametrize("moves", [False, True])
def test_large_temporaries_are_not_kept_but_graphs_are(
    moves: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instances, "LASTING", 0)
    monkeypatch.setattr(instances, "LARGE", 0)
    gpu = Shuffling(tmp_path)
    r, run = executable(gpu)
    arrays, held = [moved(a) for a in r.arrays], []
    for _ in range(30):
        check(r, run, arrays)
        (x,) = run.instances.idle[0]
        assert x.arena is None
        del x
        if moves:  # what somebody else takes is not there for the next run
            held.append(gpu.alloc(run.instances.arena))
    counts = run.counts()
    assert counts.replays == 28
    assert counts.captures <= instances.GRAPHS


@pytest.mark.usefixtures("_young_heap")
def test_plans_share_the_memory_that_large_temporaries_may_keep(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instances, "LASTING", 0)
    (r, first), (_, second) = executable(gpu), executable(gpu)
    arrays = [moved(a) for a in r.arrays]
    monkeypatch.setattr(gpu, "spare", lambda: first.instances.arena)
    monkeypatch.setattr(instances, "LARGE", 1.5)

    def keeps(run: Any) -> bool:
        return run.instances.idle[0][0].arena is not None

    for run in (first, second, first, second):
        check(r, run, arrays)
    assert keeps(first)
    assert not keeps(second)
    plans.give_back()  # after which there is room
    for run in (second, first):
        check(r, run, arrays)
    assert keeps(second)
    assert not keeps(first)


def test_streams_have_memory_of_their_own(gpu: FakeGpu) -> None:
    _, run = executable(gpu)
    arrays = [moved(a) for a in values()]
    x = run.operands.begin(arrays)[0]
    gpu.now = FakeStream(4096)
    y = run.operands.begin(arrays)[0]
    assert x.arena.ptr != y.arena.ptr
    assert x.workspace.ptr != y.workspace.ptr
    run.instances.keep(x)
    run.instances.keep(y)
    assert run.operands.begin(arrays)[0] is y
    for k in range(20):  # no more than a few are kept
        gpu.now = FakeStream(k * 8)
        run(arrays)
    assert len(run.instances.idle) <= instances.STREAMS


@pytest.mark.usefixtures("_young_heap")
def test_memory_is_given_back_and_asked_for_once_more(gpu: FakeGpu) -> None:
    r, run = executable(gpu)
    gpu.room = 1  # not enough for an instance
    with pytest.raises(DeviceMemoryError, match=r"needs [\d,]+ bytes for temporaries and [\d,]+"):
        run([moved(a) for a in r.arrays])
    assert gpu.released == 1
    gpu.room = -1
    check(r, run, r.arrays)
    assert run.instances.idle
    plans.give_back()
    assert not run.instances.idle
    gc.collect()
    check(r, run, r.arrays)


def test_memory_goes_with_the_executable(gpu: FakeGpu) -> None:
    r, run = executable(gpu)
    for _ in range(4):
        run([moved(a) for a in r.arrays])
    reference = weakref.ref(run)
    gc.disable()
    try:
        del run
        assert reference() is None
    finally:
        gc.enable()
    assert gpu.driver.graphs == {}

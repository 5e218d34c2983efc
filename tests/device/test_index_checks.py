"""Indices that are checked before a plan's kernels read them, with a driver that is none."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_gpu import FakeGpu
from launched import check, executable, moved

import adarray
from adarray.errors import BackendError

pytest.importorskip("adarray_native._device")
from adarray_backends.cuda import checks, launcher, plans

RNG = np.random.default_rng(5)
CHECK = checks.TEXTS["int64"].name
X, K = RNG.normal(size=(40, 3)), np.array([3, -1, 39, 0, 7, -40])


@pytest.fixture
def gpu(tmp_path: Path) -> FakeGpu:
    return FakeGpu(tmp_path)


def trained(x: Any, k: Any) -> Any:
    def loss(x: Any) -> Any:
        y = np.take(np.tanh(x), k, axis=0)
        return np.mean(y * y)

    return adarray.value_and_grad(loss)(x)


def launches(gpu: FakeGpu) -> list[str]:
    """Return the kernels that were launched since the last question, in order."""
    names = [about for name, about in gpu.driver.log if name == "launch"]
    gpu.driver.log.clear()
    return names


def test_arguments_are_checked_first_and_once(gpu: FakeGpu) -> None:
    r, run = executable(gpu, trained, [X, K])
    check(r, run, r.arrays)
    names = launches(gpu)
    assert len(names) > 3
    assert names.index(CHECK) == 0
    assert names.count(CHECK) == 1
    for _ in range(5):
        gpu.driver.log.clear()
        check(r, run, r.arrays)
        assert "synchronize" not in gpu.driver.names()


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.int16])
@pytest.mark.parametrize("graphs", [False, True])
@pytest.mark.parametrize("wrong", [40, -41, 1 << 14])
def test_what_is_out_of_bounds_is_an_error_of_that_call(
    wrong: int, graphs: bool, dtype: Any, gpu: FakeGpu
) -> None:
    r, run = executable(gpu, trained, [X, K.astype(dtype)], graphs=graphs)
    bad = K.astype(dtype)
    bad[-1] = wrong
    for _ in range(4):
        check(r, run, r.arrays)
        with pytest.raises(BackendError, match="a kernel refused its data with code 1"):
            run([moved(X), moved(bad)])
    check(r, run, r.arrays)


def test_many_indices_are_checked_by_many_blocks(gpu: FakeGpu) -> None:
    k = RNG.integers(-40, 40, size=5000)
    assert checks.blocks_for(k.size, gpu.target.sms) > 1
    r, run = executable(gpu, trained, [X, k])
    for at in (0, 2500, 4999):
        check(r, run, r.arrays)
        bad = k.copy()
        bad[at] = 40
        with pytest.raises(BackendError, match="refused its data"):
            run([moved(X), moved(bad)])
    check(r, run, r.arrays)


def test_the_smallest_extent_counts(gpu: FakeGpu) -> None:
    def f(x: Any, y: Any, k: Any) -> Any:
        return np.tanh(x)[k] + np.tanh(y)[k]

    r, run = executable(gpu, f, [RNG.normal(size=9), RNG.normal(size=7), np.array([0, 6, -7])])
    check(r, run, r.arrays)
    assert launches(gpu).count(CHECK) == 1
    for wrong in (7, -8):
        with pytest.raises(BackendError, match="refused its data"):
            run([*map(moved, r.arrays[:2]), moved(np.array([0, 1, wrong]))])


def test_indices_that_nobody_reads_may_be_out_of_bounds(gpu: FakeGpu) -> None:
    def f(x: Any, k: Any) -> Any:
        return np.tanh(x)[k[:3]]

    r, run = executable(gpu, f, [X, K])
    assert launches(gpu) == []
    check(r, run, [X, np.array([3, -1, 39, 99, 0, 0])])
    log = [name for name, _ in gpu.driver.log]
    assert log.count("synchronize") == 1
    with pytest.raises(BackendError, match="refused its data"):
        run([moved(X), moved(np.array([3, -1, 40, 0, 0, 0]))])


def test_computed_indices_are_waited_for_but_not_what_follows(gpu: FakeGpu) -> None:
    def f(x: Any, k: Any, w: Any) -> Any:
        return np.tanh(x[k * 2]) @ w

    x, w, k = RNG.normal(size=(40, 64)), RNG.normal(size=(64, 50)), np.arange(-20, 20)
    args = [x, k, w]
    r, run = executable(gpu, f, args)
    (segment,) = run.segments
    assert segment.signals
    check(r, run, args)
    log = [about or name for name, about in gpu.driver.log]
    assert log.index(CHECK) == log.index("product") - 1
    assert "synchronize" not in log
    with pytest.raises(BackendError, match="refused its data"):
        run([moved(x), moved(k + 1), moved(w)])
    check(r, run, args)


def test_strided_indices_are_not_taken_for_dense_ones(gpu: FakeGpu) -> None:
    both = np.array([3, 99, -1, 99, 39, 99])

    def f(x: Any, k: Any) -> Any:
        return np.tanh(x)[k]

    r, run = executable(gpu, f, [X, both[::2]])
    check(r, run, [X, both[::2]])
    assert CHECK not in launches(gpu)
    with pytest.raises(BackendError, match="refused its data"):
        run([moved(X), moved(both[::-2])])


def test_constants_are_checked_once_and_for_all(gpu: FakeGpu) -> None:
    r, run = executable(gpu, lambda x: np.tanh(x)[K], [X])
    assert run.plan.consts
    assert not any(s.may_fail for s in run.segments)
    check(r, run, [X])
    assert CHECK not in launches(gpu)
    bounds = checks.IndexBound(next(b for b in run.plan.buffers if b.kind == "const"), 40)
    wrong = K.copy()
    wrong[0] = 40
    assert checks._holds(bounds, [K])
    assert not checks._holds(bounds, [wrong])


class WorkingGpu(FakeGpu):
    """A GPU that works while the host goes on: graphs wait after their first kernel for `may`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.may = threading.Event()
        self.thread: threading.Thread | None = None
        driver = self.driver

        def launch(graph: Any, _: Any) -> int:
            first, *rest = (node for _, node in driver.graphs[driver._id(graph)])

            def work() -> None:
                driver._do(first)
                self.may.wait(20)
                for node in rest:
                    driver._do(node)

            self.thread = threading.Thread(target=work)
            self.thread.start()
            return 0

        def query(_: Any) -> int:
            return 600 if self.thread is not None and self.thread.is_alive() else 0

        def synchronize(_: Any) -> int:
            if self.thread is not None:
                self.thread.join()
            return 0

        own = {"cuGraphLaunch": launch, "cuStreamQuery": query, "cuStreamSynchronize": synchronize}
        driver.replace(own)


def test_the_host_goes_on_as_soon_as_indices_are_checked(tmp_path: Path) -> None:
    gpu = WorkingGpu(tmp_path)
    r, run = executable(gpu, trained, [X, K])
    expected = [np.asarray(a) for a in check(r, run, r.arrays)]
    check(r, run, r.arrays)
    results = run([moved(X), moved(K)])
    assert gpu.thread is not None
    assert gpu.thread.is_alive()
    gpu.may.set()
    gpu.thread.join()
    for got, want in zip(results, expected, strict=True):
        np.testing.assert_allclose(got, want)
    # Where the check raises an alarm, the host waits to the end.
    with pytest.raises(BackendError, match="refused its data"):
        run([moved(X), moved(np.full(6, 40))])
    assert not gpu.thread.is_alive()


def test_a_fault_of_the_stream_ends_the_wait(tmp_path: Path) -> None:
    gpu = WorkingGpu(tmp_path)
    r, run = executable(gpu, trained, [X, K])
    for _ in range(2):
        check(r, run, r.arrays)
    failing = {
        "cuGraphLaunch": lambda *_: 0, "cuStreamQuery": lambda _: 700,
        "cuStreamSynchronize": lambda _: 700,
    }  # fmt: skip
    gpu.driver.replace(failing)
    with pytest.raises(BackendError, match="CUDA_ERROR_700"):
        run([moved(X), moved(K)])


def test_each_segment_has_a_flag_of_its_own(gpu: FakeGpu) -> None:
    def f(x: Any, *k: Any) -> Any:
        for each in k:
            x = np.sort(np.tanh(x[each] * 2), axis=0)
        return x * 2

    k = np.arange(-20, 20)
    many = [k.copy() for _ in range(launcher.FLAGS + 2)]
    r, run = executable(gpu, f, [X, *many])
    flags = [s.signals for s in run.segments if s.may_fail]
    assert len(set(flags) - {0}) == launcher.FLAGS - 1  # others wait to the end
    assert flags.count(0) == len(flags) - launcher.FLAGS + 1
    for at in (0, 3, launcher.FLAGS + 1):
        check(r, run, [X, *many])
        wrong = [*many[:at], k + 21, *many[at + 1 :]]
        with pytest.raises(BackendError, match="refused its data"):
            run([moved(a) for a in (X, *wrong)])


@pytest.mark.parametrize("runs", range(4))  # before the one with a wrong index
@pytest.mark.parametrize("careful", [False, True])
def test_segments_rely_on_the_checks_of_earlier_ones(
    careful: bool, runs: int, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    def f(x: Any, k: Any) -> Any:
        y = np.sort(np.tanh(x[k[:3]]), axis=0)
        return np.sort(np.tanh(x[k[3:5]]) * y[0], axis=None)

    monkeypatch.setattr(plans, "checking", lambda: careful)
    r, run = executable(gpu, f, [X, K])
    first, last = (s for s in run.segments if s.words is not None)
    assert first.signals
    assert not last.may_fail
    assert len(run.segments) == 4
    for _ in range(runs):
        check(r, run, [X, np.array([0, 1, 2, 3, 4, 40])])  # the last one is not read
    for at in (4, 3, 2, 1, 0):
        bad = K.copy()
        bad[at] = 40
        for call in (run, run.timed):
            gpu.driver.log.clear()
            with pytest.raises(BackendError, match="refused its data"):
                call([moved(X), moved(bad)])
            if call is run:  # nothing is called with what a kernel refused
                assert gpu.driver.names().count("call") == int(at > 2)
        check(r, run, r.arrays)

"""Compiled plans on a GPU: kernels printed from loop IR, cuBLAS and graphs.

What they compute without a GPU is tested in tests/compiler/print_cuda/test_printer.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from functools import partial
from typing import Any

import numpy as np
import pytest
from random_recordings import random_recordings
from recorded import close, recorded

import adarray
from adarray.compiler.ir.interpret import interpret
from adarray.compiler.ir.target import GPU
from adarray.compiler.planning import planner as planning
from adarray.errors import BackendError, DeviceMemoryError

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("on_gpu")]
PROGRAMS = int(os.environ.get("ADARRAY_LONG", "0")) or 40
RNG = np.random.default_rng(11)
plan = partial(planning.plan, target=GPU)


def moved(x: Any) -> Any:
    """Return a copy on the GPU with the strides of `x`, whatever lies between its elements."""
    import cupy

    x = np.asarray(x)
    if not x.size or x.flags.c_contiguous:
        return cupy.asarray(x)
    low, high = np.lib.array_utils.byte_bounds(x)
    memory = cupy.zeros(high - low, cupy.uint8)
    array = cupy.ndarray(
        x.shape, x.dtype, memory.data + (x.__array_interface__["data"][0] - low), x.strides
    )
    array[...] = cupy.asarray(x)
    return array


def compare(r: Any, times: int = 2, **options: Any) -> Any:
    """Run a recorded program on the GPU; compare with the interpreter."""
    from adarray_backends.cuda.plans import executable

    arrays = [np.asarray(a) for a in r.arrays]
    expected = interpret(r.program, arrays)
    run = executable(plan(r.program), **options)
    dtypes = {v.dtype.name for v in r.program.values}
    tight = 1e-2 if "float16" in dtypes else 1e-4 if "float32" in dtypes else 1e-10
    for _ in range(times):
        for got, want in zip(run([moved(a) for a in arrays]), expected, strict=True):
            close(got.get(), want, tight)
    return run


@pytest.mark.parametrize("first", range(0, PROGRAMS, 20))
def test_random_programs(first: int) -> None:
    for r in random_recordings(range(first, min(first + 20, PROGRAMS))):
        compare(r)


def network(w: Any, b: Any, v: Any, x: Any) -> Any:
    h = np.maximum(x @ w + b, 0)
    return np.sum(np.tanh(h @ v))


@pytest.mark.parametrize("graphs", [False, True])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_products_with_and_without_graphs(graphs: bool, dtype: Any) -> None:
    shapes = ((30, 20), (20,), (20, 7), (64, 30))
    args = [RNG.normal(size=s).astype(dtype) for s in shapes]
    r = recorded(adarray.value_and_grad(network, (0, 1, 2)), *args)
    run = compare(r, times=4, graphs=graphs)
    inputs = [moved(a) for a in r.arrays]
    for _ in range(6):
        run(inputs)
    assert (run.counts().replays > 0) == graphs


def test_a_held_result_is_not_overwritten() -> None:
    from adarray_backends.cuda.plans import executable

    args = [RNG.normal(size=s) for s in ((30, 20), (20,), (20, 7), (64, 30))]
    r = recorded(adarray.value_and_grad(network, (0, 1, 2)), *args)
    run = executable(plan(r.program))
    inputs = [moved(a) for a in r.arrays]
    first = run(inputs)
    references = [x.get() for x in first]
    inputs[0] *= 2
    for _ in range(3):
        run(inputs)
    for got, want in zip(first, references, strict=True):
        np.testing.assert_array_equal(got.get(), want)


def test_an_index_out_of_range_is_an_error() -> None:
    from adarray_backends.cuda.plans import executable

    r = recorded(lambda x, k: np.exp(x[k]), RNG.normal(size=9), np.array([1, 2, 8]))
    run = executable(plan(r.program))
    x = moved(r.arrays[0])
    run([x, moved(np.array([1, 2, 8]))])
    with pytest.raises(BackendError, match="refused its data"):
        run([x, moved(np.array([1, 2, 9]))])
    np.testing.assert_allclose(run([x, moved(np.array([0, 0, 0]))])[0].get(), np.exp(x.get()[0]))


@pytest.mark.parametrize("count", [5, 100_000])
def test_indices_are_checked_before_the_rest_is_computed(count: int) -> None:
    def step(x: Any, k: Any) -> Any:
        def loss(x: Any) -> Any:
            y = np.take(np.tanh(x), k, axis=0)
            return np.mean(y * y)

        return adarray.value_and_grad(loss)(x)

    k = RNG.integers(-1000, 1000, size=count)
    r = recorded(step, RNG.normal(size=(1000, 8)), k)
    run = compare(r, times=4)
    assert run.counts().replays > 0
    assert all(s.signals for s in run.segments if s.may_fail)
    x, right = moved(r.arrays[0]), moved(k)
    for at in (0, count // 2, count - 1):
        for wrong in (1000, -1001):
            bad = k.copy()
            bad[at] = wrong
            with pytest.raises(BackendError, match="refused its data"):
                run([x, moved(bad)])
            run([x, right])


def test_filters_of_transforms() -> None:
    def loss(x: Any, w: Any) -> Any:
        return np.mean(np.tanh(np.fft.irfft(np.fft.rfft(x) * w)) ** 2)

    args = [RNG.normal(size=(40, 9, 64)), RNG.normal(size=33)]
    compare(recorded(adarray.value_and_grad(loss, (0, 1)), *args), times=4)
    z = RNG.normal(size=(300, 40)) + 1j * RNG.normal(size=(300, 40))
    compare(recorded(lambda z, x: (np.sum(z * x - z, axis=0), np.conjugate(z)), z, z.real))


def test_a_call_returns_before_the_gpu_is_done() -> None:
    import cupy
    from adarray_backends.cuda.plans import executable

    def f(x: Any, k: Any) -> Any:
        y = x[k]
        for _ in range(40):
            y = np.sin(y) @ x
        return y

    r = recorded(f, RNG.normal(size=(2048, 2048)), np.arange(2048))
    run = executable(plan(r.program))
    arrays = [moved(a) for a in r.arrays]
    end = cupy.cuda.Event()
    for _ in range(5):
        run(arrays)
    end.record()
    assert not end.done
    end.synchronize()


def test_large_temporaries_are_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    from adarray_backends.cuda import instances

    monkeypatch.setattr(instances, "LASTING", 0)
    monkeypatch.setattr(instances, "LARGE", 0)
    args = [RNG.normal(size=s) for s in ((30, 20), (20,), (20, 7), (64, 30))]
    run = compare(recorded(adarray.value_and_grad(network, (0, 1, 2)), *args), times=8)
    assert run.counts().replays > 0


def networks() -> tuple[Any, Any, Any]:
    """Return a recorded step of training, its executable, and what to compare with."""
    from adarray_backends.cuda.plans import executable

    args = [RNG.normal(size=s) for s in ((30, 20), (20,), (20, 7), (64, 30))]

    def step(w: Any, b: Any, v: Any, x: Any) -> Any:
        grads = adarray.grad(network, argnums=(0, 1, 2))(w, b, v, x)
        return tuple(p - 0.1 * g for p, g in zip((w, b, v), grads, strict=True))

    r = recorded(step, *args)
    return r, executable(plan(r.program)), partial(interpret, r.program)


def test_a_loop_of_training_with_new_addresses() -> None:
    import cupy

    r, run, expected = networks()
    host = [np.asarray(a) for a in r.arrays]
    ours = [moved(a) for a in host]
    batches = [RNG.normal(size=host[3].shape) for _ in range(40)]
    device = [cupy.asarray(b) for b in batches]
    for _ in range(2):
        for b, d in zip(batches, device, strict=True):
            host = [*map(np.asarray, expected([*host[:3], b])), b]
            ours = [*run([*ours[:3], d]), d]
    for got, want in zip(ours, host, strict=True):
        np.testing.assert_allclose(got.get(), want, rtol=1e-8, atol=1e-8)
    counts = run.counts()
    assert counts.replays == 78
    assert counts.captures <= 10
    assert counts.recordings > 0


@pytest.mark.parametrize("precision", ["tf32", "bf16", "fp16"])
def test_rounded_products_are_in_the_graph(precision: str) -> None:
    from adarray_backends.cuda.plans import executable

    def f(x: Any, w: Any, v: Any) -> Any:
        return np.tanh(np.tanh(x @ w) @ v.T)

    shapes = ((1030, 1026), (1026, 1100), (1040, 1100))
    args = [RNG.normal(size=s).astype(np.float32) / 30 for s in shapes]
    r = recorded(f, *args)
    run = executable(plan(r.program), precision=precision)
    assert len(run.segments) == 1
    inputs = [moved(a) for a in r.arrays]
    inputs.append(moved(np.zeros(args[0].size + 1, np.float32)))
    odd = inputs.pop()[1:].reshape(shapes[0])
    odd[...] = inputs[0]
    want = f(*args)
    for value in (inputs[0], odd, inputs[0], odd, inputs[0]):
        (got,) = run([value, *inputs[1:]])
        np.testing.assert_allclose(got.get(), want, atol=2e-2)
    assert run.counts().replays > 0


def test_convolutions_are_in_the_graph() -> None:
    from adarray_backends.cuda.plans import executable

    from adarray.ops.nn import conv2d

    def f(x: Any, w: Any) -> Any:
        return np.sum(np.tanh(conv2d(x, w, stride=2, padding="same")))

    args = [RNG.normal(size=s).astype(np.float32) for s in ((2, 3, 18, 18), (4, 3, 3, 3))]
    r = recorded(adarray.value_and_grad(f, (0, 1)), *args)
    run = executable(plan(r.program))
    assert len(run.segments) == 1
    for _ in range(4):
        actual = run([moved(a) for a in r.arrays])
        for got, want in zip(actual, interpret(r.program, r.arrays), strict=True):
            np.testing.assert_allclose(got.get(), want, rtol=1e-4, atol=1e-4)
    assert run.counts().replays > 0


def test_streams_and_threads_at_once() -> None:
    import cupy

    r, run, expected = networks()
    args = [[*map(np.asarray, r.arrays[:3]), RNG.normal(size=(64, 30))] for _ in range(6)]
    want = [expected(x) for x in args]
    wrong: list[Any] = []

    def work(i: int) -> None:
        own = cupy.cuda.Stream(non_blocking=True) if i % 2 else cupy.cuda.Stream.null
        with own:
            arrays = [cupy.asarray(x) for x in args[i]]
            own.synchronize()
            for _ in range(30):
                actual = run(arrays)
            own.synchronize()
            for a, b in zip(actual, want[i], strict=True):
                if not np.allclose(a.get(), b):
                    wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_a_number_is_sent_with_the_call() -> None:
    from adarray_backends.cuda.plans import executable

    r = recorded(lambda x, k: x * k + 1, RNG.normal(size=50), np.array(3.0))
    run = executable(plan(r.program))
    x = moved(r.arrays[0])
    for k in (2.5, np.float32(4), -1):
        np.testing.assert_allclose(run([x, k])[0].get(), x.get() * float(k) + 1)


def test_memory_that_is_short() -> None:
    import cupy
    from adarray_backends.cuda.plans import executable

    pool = cupy.get_default_memory_pool()
    pool.free_all_blocks()
    # More than what lies free between arrays of other tests.
    r = recorded(lambda x: np.exp(x) + 1, np.zeros((1 << 20) + pool.free_bytes() // 8))
    run = executable(plan(r.program))
    x = moved(r.arrays[0])
    first = run([x])[0]
    before = pool.get_limit()
    try:
        pool.free_all_blocks()
        pool.set_limit(size=pool.total_bytes() + (1 << 16))
        second = run([x])[0]  # into memory that the run before has taken
        with pytest.raises(DeviceMemoryError, match="compiled plan: GPU 0 is out of memory"):
            run([x])
    finally:
        pool.set_limit(size=before)
    for result in (first, second, run([x])[0]):
        np.testing.assert_array_equal(result.get(), 2)


def test_memory_of_results_that_somebody_looks_at_is_not_taken_again() -> None:
    import cupy
    from adarray_backends.cuda.plans import executable

    r = recorded(lambda x: (x + 1, np.sum(x), x * 2), np.zeros(100))
    run = executable(plan(r.program))
    views, places = [], set()
    for i in range(40):
        a, b, c = run([cupy.full(100, float(i))])
        places.add(a.data.ptr)
        if i % 4 == 0:
            views.append((i, a[3:7], cupy.from_dlpack(b), c[::2].reshape(5, 10).T))
        del a, b, c
    for i, a, b, c in views:
        np.testing.assert_array_equal(a.get(), i + 1)
        np.testing.assert_array_equal(b.get(), 100 * i)
        np.testing.assert_array_equal(c.get(), 2 * i)
    assert len(places) < 40 - len(views)


def test_times_of_steps() -> None:
    r, run, expected = networks()
    results, stamps = run.timed([moved(a) for a in r.arrays])
    assert len(stamps) == len(run.plan.steps) + 1
    assert list(stamps) == sorted(stamps)
    for got, want in zip(results, expected(list(map(np.asarray, r.arrays))), strict=True):
        np.testing.assert_allclose(got.get(), want)


FAULT = """
import cupy, numpy as np, sys
sys.path[:0] = {path!r}
from recorded import recorded
from adarray.compiler.ir.target import GPU
from adarray.compiler.planning.planner import plan
import adarray
adarray.use("cuda")
from adarray_backends.cuda.plans import executable
r = recorded(lambda x: np.exp(x) + 1, np.zeros(1 << 20))
run = executable(plan(r.program, target=GPU))
x = cupy.zeros(1 << 20)
y = cupy.ndarray((1 << 20,), x.dtype, cupy.cuda.MemoryPointer(
    cupy.cuda.UnownedMemory(1 << 60, 1 << 23, None, 0), 0))
run([y])
"""


def test_checks_name_the_kernel_that_faults() -> None:
    text = FAULT.format(path=[p for p in sys.path if p])
    env = {**os.environ, "ADARRAY_CHECK": "1"}
    done = subprocess.run(
        [sys.executable, "-c", text], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "compiled plan: step 0 of 1 (add, exp; <string>:" in done.stderr
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in done.stderr
    assert ".cu" in done.stderr

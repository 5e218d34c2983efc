"""The pool that serves array memory inside of a `use` block."""

from __future__ import annotations

import gc
import multiprocessing
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cuda_kernels import CASES

import adarray
from adarray.backend import load
from adarray.kernels import RawKernel

N = 1 << 16  # elements of float64: well above the smallest block that is kept
LENGTHS = (5000, 7000, 8000)  # of loops, whose tapes have two numbers for each iteration


@pytest.fixture(autouse=True, scope="module")
def _apart() -> None:
    gc.collect()  # suspended generators of other tests may be in a block


@pytest.fixture(params=["serial", "openmp"])
def library(request: Any) -> Any:
    try:
        lib = load(request.param).library.lib  # type: ignore[attr-defined]
    except adarray.BackendError as error:
        pytest.skip(str(error))
    with adarray.use(request.param):
        np.empty(N)
        if lib.adarray_pool_cached() == 0:
            pytest.skip("no pool on this system")
    return request.param, lib


def in_threads(work: Callable[[int], None]) -> None:
    """Run a function of a number in four threads beside each other."""
    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


def test_memory_is_kept_inside_of_the_block_only(library: Any) -> None:
    name, lib = library
    assert lib.adarray_pool_cached() == 0
    with adarray.use(name):
        x = np.ones(N)
        assert lib.adarray_pool_cached() == 0
        address = x.ctypes.data
        del x
        assert lib.adarray_pool_cached() == 8 * N
        with adarray.use(name):
            assert np.empty(N).ctypes.data == address
        assert lib.adarray_pool_cached() == 8 * N
        with adarray.use("numpy"):
            before = lib.adarray_pool_cached()
            y = np.ones(N)
            assert lib.adarray_pool_cached() <= before
    assert lib.adarray_pool_cached() == 0
    np.testing.assert_array_equal(y, 1.0)


def test_arrays_outlive_the_block(library: Any) -> None:
    name, lib = library
    with adarray.use(name):
        x = np.arange(N)
    np.testing.assert_array_equal(x, np.arange(N))
    del x
    assert lib.adarray_pool_cached() == 0


def test_zeros_are_zeros(library: Any) -> None:
    name, _ = library
    with adarray.use(name):
        for dtype in (np.float64, np.int8, np.complex128):
            dirty = np.full(N, 7, dtype)
            del dirty
            np.testing.assert_array_equal(np.zeros(N, dtype), 0)


def test_sizes_between_classes(library: Any) -> None:
    name, _ = library
    rng = np.random.default_rng(0)
    references: list[tuple[np.ndarray, float]] = []
    with adarray.use(name):
        for n in rng.integers(1, 200_000, 400):
            x = np.full(n, float(n))
            references.append((x, float(n)))
            if len(references) > 12:
                references.pop(int(rng.integers(len(references))))
            if n % 3 == 0:
                y = np.full(n, 1.0)
                y.resize(int(rng.integers(1, 200_000)), refcheck=False)
                y[:] = -1.0
        for x, value in references:
            assert (x == value).all()


def test_blocks_of_other_threads_do_not_meet(library: Any) -> None:
    name, _ = library
    wrong = []

    def work(k: int) -> None:
        with adarray.use(name):
            for _ in range(100):
                x = np.full(N, float(k))
                y = x + 1.0
                if not ((x == k).all() and (y == k + 1).all()):
                    wrong.append(k)

    in_threads(work)
    assert not wrong


def _child(name: str, queue: Any) -> None:
    with adarray.use(name):
        queue.put(float(adarray.grad(lambda x: np.sum(x * x))(np.ones(N)).sum()))


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_after_a_fork(library: Any) -> None:
    name, _ = library
    context = multiprocessing.get_context("fork")
    with adarray.use(name):
        del (x := [np.ones(N)])[:]
        queue = context.Queue()
        process = context.Process(target=_child, args=(name, queue))
        process.start()
        assert queue.get(timeout=60) == 2.0 * N
        process.join(timeout=60)
    assert process.exitcode == 0
    assert x == []


def test_other_contexts_keep_their_allocator(library: Any) -> None:
    name, lib = library
    seen = []

    def work() -> None:
        before = lib.adarray_pool_cached()
        x = np.ones(N)
        del x
        seen.append(lib.adarray_pool_cached() - before)

    with adarray.use(name):
        t = threading.Thread(target=work)
        t.start()
        t.join()
    assert seen == [0]


def test_gradients_do_not_change(library: Any) -> None:
    name, _ = library

    def f(x: Any) -> Any:
        y = np.exp(-x * x)
        y[1:] = y[:-1] * x[1:]
        return np.sum(np.tanh(y) + np.log1p(x * x))

    x = np.random.default_rng(0).normal(size=N)
    expected = adarray.grad(f)(x)
    with adarray.use(name):
        for _ in range(5):
            np.testing.assert_allclose(adarray.grad(f)(x), expected, rtol=1e-12, atol=1e-14)


def _views(x: Any) -> Any:
    y = np.exp(x)
    while np.sum(y) > 10.0:
        y = y * 0.5
    return y


def _loss(x: Any) -> Any:
    return np.sum(np.tanh(x) ** 2)


def _capturing(w: np.ndarray) -> Any:
    return adarray.jit(lambda x: np.exp(x) * w)


CALLS = {
    "one segment": (lambda: adarray.jit(np.exp), lambda f, x: f(x)),
    "looks": (lambda: adarray.jit(_views), lambda f, x: f(x)),
    "captured": (lambda: _capturing(np.ones(N)), lambda f, x: f(x)),
    "nested": (lambda: adarray.jit(lambda d: np.exp(d["x"])), lambda f, x: f({"x": x})),
    "gradient": (lambda: adarray.jit(adarray.value_and_grad(_loss)), lambda f, x: f(x)),
    "gradient of": (lambda: adarray.jit(_loss), lambda f, x: adarray.grad(f)(x)),
}


@pytest.mark.usefixtures("_young_heap")
@pytest.mark.parametrize("name", CALLS)
def test_memory_goes_with_a_jitted_function(name: str) -> None:
    """Without the collector: what a compiled function keeps ends with the last name for it."""
    make, call = CALLS[name]
    lib = load("openmp").library.lib  # type: ignore[attr-defined]
    gc.collect()
    gc.disable()
    try:
        f, x = make(), np.ones(N)
        for _ in range(4):
            call(f, x.copy())
        assert lib.adarray_pool_cached() >= 8 * N
        alive = weakref.ref(f)
        del f
        assert alive() is None
        assert lib.adarray_pool_cached() == 0
    finally:
        gc.enable()


def test_tapes_share_their_memory(library: Any) -> None:
    name, lib = library
    kernel = RawKernel(CASES["long_chain"].text("float64"), "long_chain")

    def gradient(n: int) -> tuple[np.ndarray, int]:
        """Return a gradient, and what is stored then: arrays are too small for that."""
        x = np.linspace(0.999, 1.001, LENGTHS[-1])
        g = adarray.grad(lambda x: np.sum(kernel.apply(1, 1, (x, np.zeros(1), n, 10))))(x)
        return g, lib.adarray_pool_cached()

    expected = {n: gradient(n)[0] for n in LENGTHS}  # nothing is stored between these
    with adarray.use(name):
        gradient(LENGTHS[-1])
        longest = gradient(LENGTHS[-1])[1]
        assert longest > 1 << 16
        for n in (*LENGTHS, *LENGTHS[::-1], LENGTHS[-1]):
            g, cached = gradient(n)
            np.testing.assert_array_equal(g, expected[n])
            assert cached == longest  # there is one tape, which is long enough
        lib.adarray_pool_trim()
        rooms = []
        for n in LENGTHS:
            for _ in range(2):  # the first takes as much as the last one before it
                gradient(n)
                lib.adarray_pool_trim()
            rooms.append(gradient(n)[1])
            assert rooms[-1] == gradient(n)[1]
        assert rooms[0] < rooms[-1] == longest
    assert lib.adarray_pool_cached() == 0


def test_tapes_of_threads_do_not_meet(library: Any) -> None:
    name, lib = library
    kernel = RawKernel(CASES["long_chain"].text("float64"), "long_chain")
    wrong = []

    def gradient(n: int) -> np.ndarray:
        x = np.linspace(0.999, 1.001, LENGTHS[-1])
        return adarray.grad(lambda x: np.sum(kernel.apply(1, 1, (x, np.zeros(1), n, 10))))(x)

    with adarray.use(name):
        expected = {n: gradient(n) for n in LENGTHS}

    def work(k: int) -> None:
        rng = np.random.default_rng(k)
        with adarray.use(name):
            lengths = [int(n) for n in rng.choice(LENGTHS, 15)]
            wrong.extend(n for n in lengths if not np.array_equal(gradient(n), expected[n]))

    in_threads(work)
    assert not wrong
    gc.collect()
    assert lib.adarray_pool_cached() == 0

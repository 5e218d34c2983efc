"""Compiled plans: what they are given, what they return, and what else they must not do."""

from __future__ import annotations

import gc
import multiprocessing
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import plans
import pytest
from plans import buffer, look, operand

import adarray
from adarray.backend import load
from adarray.codegen.plan import CallStep, DotStep, KernelStep, Operand
from adarray.errors import BackendError
from adarray.program import Slot, Value, c_strides


@pytest.fixture(scope="module")
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keep kernels in a folder of these tests."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("ADARRAY_CACHE_DIR", str(folder))
        yield folder


@pytest.fixture(params=["serial", "openmp"])
def engine(request: Any, _cache: Path) -> Any:
    try:
        options = {"threads": 2} if request.param == "openmp" else {}
        engine = load(request.param).engine(**options)
        engine.executable(plans.scaled_plan(3))
    except BackendError as error:
        pytest.skip(str(error))
    return engine


def _dots(a: np.ndarray, b: np.ndarray, base_a: np.ndarray, base_b: np.ndarray) -> Any:
    """Return a plan for ``a @ b`` of looks at two inputs."""
    in_a = buffer("input", base_a.size, 0, a.dtype)
    in_b = buffer("input", base_b.size, 1, b.dtype)
    shape = np.matmul(a, b).shape
    out = buffer("output", int(np.prod(shape)), 0, a.dtype)
    step = DotStep(operand(in_a, a, base_a), operand(in_b, b, base_b), look(out, shape), ())
    return plans.plan([step], [in_a, in_b, out], [look(out, shape)])


# -- kernels -------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1, 7, 64, 1000, 100_003])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_kernel(engine: Any, n: int, dtype: str) -> None:
    run = engine.executable(plans.scaled_plan(n, dtype, work=1e6))
    x = np.linspace(-3, 3, n).astype(dtype)
    y, total = run([x, np.array(1.5, dtype)])
    expected = np.exp(x) * np.dtype(dtype).type(1.5)
    np.testing.assert_allclose(y, expected, rtol=4 * np.finfo(dtype).eps)
    np.testing.assert_allclose(total, expected.sum(), rtol=1e-5 if dtype == "float32" else 1e-12)
    assert type(total) is np.dtype(dtype).type
    assert (y.dtype, y.shape) == (x.dtype, x.shape)
    assert y.flags.owndata
    assert y.flags.writeable
    assert y.flags.c_contiguous


@pytest.mark.parametrize(
    "number", [2.5, 2, True, np.float64(2.5), np.float32(2.5), np.int8(2), np.array(2.5), 10**400]
)
def test_numbers_for_arrays_without_axes(engine: Any, number: Any) -> None:
    run = engine.executable(plans.scaled_plan(5))
    x = np.arange(5.0)
    if isinstance(number, int) and number > 2:
        with pytest.raises(OverflowError):
            run([x, number])
    else:
        np.testing.assert_allclose(run([x, number])[0], np.exp(x) * float(number), rtol=1e-15)


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint64", "int64", "float16", "complex128", "U3"]
)
def test_numbers_of_any_dtype(engine: Any, dtype: str) -> None:
    value = {"U3": "ab", "bool": True, "complex128": 1 - 2j}.get(dtype, 3)
    b = buffer("input", 1, 0, dtype)
    run = engine.executable(plans.plan([], [b], [look(b, ())]))
    for given in (value, np.dtype(dtype).type(value), np.array(value, dtype)):
        (result,) = run([given])
        assert result == value
        assert type(result) is np.dtype(dtype).type


def test_wrong_inputs(engine: Any) -> None:
    run = engine.executable(plans.scaled_plan(5))
    x = np.arange(5.0)
    unaligned = np.frombuffer(b"\0" * 41, np.uint8)[1:].view(np.float64)
    for arrays in (
        [np.arange(6.0), 1.0], [x.astype("f4"), 1.0], [x.astype(">f8"), 1.0], [x.astype("i8"), 1.0],
        [unaligned, 1.0], [[0.0] * 5, 1.0], [3.0, 1.0], [x], (x, 1.0), None, [x, "one"], [x, None],
    ):  # fmt: skip
        with pytest.raises((TypeError, ValueError)):
            run(arrays)
    np.testing.assert_allclose(run([x, 1.0])[0], np.exp(x), rtol=1e-15)


def test_several_steps_and_temporaries(engine: Any) -> None:
    n = 300
    a, s, out, total = (
        buffer("input", n, 0), buffer("input", 1, 1), buffer("output", n, 0), buffer("temp", 1)
    )  # fmt: skip
    middle, first = buffer("temp", n), buffer("output", 1, 1)
    steps = [
        KernelStep(plans.scaled(), (a, s, middle, first), (n,), (), 0.0),
        KernelStep(plans.scaled(), (middle, s, out, total), (n,), (), 0.0),
    ]
    made = plans.plan(
        steps, [a, s, middle, first, out, total], [look(out), look(first, ()), look(total, ())]
    )
    run = engine.executable(made)
    x = np.linspace(-2, 0, n)
    y, one, two = run([x, 0.5])
    half = np.exp(x) * 0.5
    np.testing.assert_allclose(y, np.exp(half) * 0.5, rtol=1e-14)
    np.testing.assert_allclose([one, two], [half.sum(), y.sum()], rtol=1e-13)
    assert len(run.sources()) == 1
    assert run.source_of(0) == run.source_of(1) == run.sources()[0][1]
    assert run.source_of(5) == ""
    assert run.peak_bytes >= run.arena_bytes >= 8 * n


# -- results -------------------------------------------------------------------------------


def test_results_that_share_memory_are_copied(engine: Any) -> None:
    n = 12
    a, s, out, total = (
        buffer("input", n, 0), buffer("input", 1, 1), buffer("output", n, 0), buffer("output", 1, 1)
    )  # fmt: skip
    const = buffer("const", 4, 0)
    step = KernelStep(plans.scaled(), (a, s, out, total), (n,), (), 0.0)
    outputs = [
        look(out), look(out), look(out, (3, 4)), look(a), look(const), Operand(out, 2, (5,), (2,)),
        Operand(a, 11, (12,), (-1,)), Operand(out, 3, (), ()), look(s, ()), look(s, (1, 1)),
        Operand(out, 0, (2, 0), (1, 1)), Operand(total, 0, (2, 3), (0, 0)),
    ]  # fmt: skip
    made = plans.plan([step], [a, s, out, total, const], outputs, [np.arange(4.0)])
    x = np.linspace(0, 1, n)
    results = engine.executable(made)([x, 2.0])
    y = np.exp(x) * 2
    expected = [
        y, y, y.reshape(3, 4), x, np.arange(4.0), y[2:12:2], x[::-1], y[3], 2.0, [[2.0]],
        np.empty((2, 0)), np.full((2, 3), y.sum()),
    ]  # fmt: skip
    for got, want in zip(results, expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-14)
    arrays = [r for r in results if isinstance(r, np.ndarray)]
    for i, r in enumerate(arrays):
        assert r.flags.writeable
        assert r.flags.owndata
        r[...] = -1
        assert not any(np.any(other == -1) for other in [x, *arrays[i + 1 :]])
    np.testing.assert_array_equal(made.consts[0], np.arange(4.0))


def test_results_in_another_order_need_no_copy(engine: Any) -> None:
    n = 24
    a, s, out, total = (
        buffer("input", n, 0), buffer("input", 1, 1), buffer("output", n, 0), buffer("output", 1, 1)
    )  # fmt: skip
    step = KernelStep(plans.scaled(), (a, s, out, total), (n,), (), 0.0)
    strides = tuple(np.arange(24).reshape(2, 3, 4).transpose(2, 0, 1).strides)
    result = Operand(out, 0, (4, 2, 3), tuple(x // 8 for x in strides))
    made = plans.plan([step], [a, s, out, total], [result])
    x = np.linspace(0, 1, n)
    (y,) = engine.executable(made)([x, 1.0])
    np.testing.assert_allclose(y, np.exp(x).reshape(2, 3, 4).transpose(2, 0, 1), rtol=1e-15)
    assert y.strides == strides
    assert y.flags.owndata


def test_a_plan_of_no_steps(engine: Any) -> None:
    a = buffer("input", 4, 1, np.int32)
    run = engine.executable(plans.plan([], [a], [look(a, (2, 2))]))
    x = np.arange(4, dtype=np.int32).reshape(2, 2)
    (y,) = run([None, x])
    np.testing.assert_array_equal(x, y)
    assert not np.shares_memory(x, y)
    assert engine.executable(plans.plan([], [], []))([]) == []
    assert run.sources() == []
    assert run.from_cache


def test_python_objects_are_refused(engine: Any) -> None:
    a = buffer("input", 4, 0, object)
    with pytest.raises(BackendError, match="holds Python objects"):
        engine.executable(plans.plan([], [a], [look(a)]))


# -- products ------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64"])
@pytest.mark.parametrize("seed", range(8))
def test_products(engine: Any, dtype: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(12):
        m, k, n = (int(v) for v in rng.choice([1, 2, 3, 17, 70], 3))
        lead = tuple(int(v) for v in rng.choice([1, 2, 5], rng.integers(0, 3)))
        a, base_a = _matrix(rng, (*lead[rng.integers(0, len(lead) + 1) :], m, k), dtype)
        b, base_b = _matrix(rng, (*lead[rng.integers(0, len(lead) + 1) :], k, n), dtype)
        if rng.random() < 0.15:
            a, base_a = _matrix(rng, (k,), dtype)
        elif rng.random() < 0.15:
            b, base_b = _matrix(rng, (k,), dtype)
        run = engine.executable(_dots(a, b, base_a, base_b))
        (got,) = run([base_a, base_b])
        tolerance = 0 if dtype == "int64" else 1e-4 if dtype == "float32" else 1e-12
        np.testing.assert_allclose(got, np.matmul(a, b), rtol=tolerance, atol=tolerance)


def _matrix(rng: Any, shape: tuple[int, ...], dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Return numbers in some layout: transposed, strided, reversed, repeated; and their memory."""
    base = (rng.standard_normal(shape) * 8).astype(dtype)
    kind = rng.integers(0, 6)
    if kind == 1 and len(shape) > 1:
        base = np.ascontiguousarray(base.swapaxes(-1, -2))
        return base.swapaxes(-1, -2), base
    if kind == 2:
        base = np.repeat(base, 3, axis=-1)
        return base[..., ::3], base
    if kind == 3 and len(shape) > 1:
        base = np.repeat(np.repeat(base, 2, axis=-1), 2, axis=-2)
        return base[..., ::2, ::2], base
    if kind == 4 and len(shape) > 2:
        base = np.ascontiguousarray(base[:1])
        return np.broadcast_to(base, shape), base
    if kind == 5:
        # Its first element is the last one in memory: an input with negative strides.
        return base[..., ::-1], base
    return base, base


@pytest.mark.parametrize(("m", "k", "n"), [(0, 3, 2), (2, 0, 3), (2, 3, 0)])
def test_empty_products(engine: Any, m: int, k: int, n: int) -> None:
    a, b = np.ones((m, k)), np.ones((k, n))
    (got,) = engine.executable(_dots(a, b, a, b))([a, b])
    np.testing.assert_array_equal(got, np.zeros((m, n)))


def test_products_without_blas(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from adarray_native import blas

    monkeypatch.setattr(blas, "ready", lambda lib, ffi: False)
    a, b = np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(3, 4)
    (got,) = engine.executable(_dots(a, b, a, b))([a, b])
    np.testing.assert_array_equal(got, a @ b)


# -- calls of Python -----------------------------------------------------------------------


def _call(function: Any, args: Any, kwargs: Any, operands: Any, made: Any, **params: Any) -> Any:
    shape, dtype = (made[0].size,), made[0].dtype
    value = Value("call", (), params, shape, dtype)
    return CallStep(function, args, kwargs, operands, made, (value,))


def _sorted_plan(function: Any, n: int = 6) -> Any:
    """Return a plan: a kernel, a call of `function` on its result, and another kernel."""
    a, s, out, total = (
        buffer("input", n, 0), buffer("input", 1, 1), buffer("output", n, 0), buffer("output", 1, 1)
    )  # fmt: skip
    middle, called = buffer("temp", n), buffer("temp", n)
    steps = [
        KernelStep(plans.scaled(), (a, s, middle, total), (n,), (), 0.0),
        _call(function, (Slot(0),), {}, (look(middle),), (called,)),
        KernelStep(plans.scaled(), (called, s, out, total), (n,), (), 0.0),
    ]
    return plans.plan(steps, [a, s, middle, called, out, total], [look(out), look(total, ())])


def test_calls_between_kernels(engine: Any) -> None:
    kept = []

    def function(x: Any) -> Any:
        kept.append(x)
        return np.sort(x)

    run = engine.executable(_sorted_plan(function))
    x = np.array([0.1, -3, 0.5, 2, -1, 0])
    for _ in range(3):
        y, total = run([x, 0.5])
        expected = np.exp(np.sort(np.exp(x) * 0.5)) * 0.5
        np.testing.assert_allclose(y, expected, rtol=1e-14)
        np.testing.assert_allclose(total, expected.sum(), rtol=1e-14)
    run([x * 0, 1.0])
    # What a function keeps stays as it was.
    np.testing.assert_allclose(kept[0], np.exp(x) * 0.5, rtol=1e-15)


def test_operands_and_results_of_calls(engine: Any) -> None:
    n = 6
    a, s = buffer("input", n, 0), buffer("input", 1, 1, np.int64)
    const = buffer("const", 3, 0, np.float32)
    one, two = buffer("output", 3, 0, np.float32), buffer("output", n, 1)
    seen: list[Any] = []

    def function(pair: Any, *, named: dict[str, Any]) -> Any:
        seen.append((pair, named))
        return pair[0] * 2, (named["x"][::-1] * pair[1]).reshape(2, 3)

    step = _call(
        function, ((Slot(1), Slot(2)),), {"named": {"x": Slot(0)}},
        (look(a), look(const), look(s, ())), (one, two),
        results=(((3,), np.float32), ((2, 3), np.float64)),
    )  # fmt: skip
    made = plans.plan(
        [step], [a, s, const, one, two], [look(one), look(two, (2, 3))], [np.ones(3, np.float32)]
    )
    x = np.arange(6.0)
    y, z = engine.executable(made)([x, 3])
    np.testing.assert_array_equal(y, np.full(3, 2, np.float32))
    np.testing.assert_array_equal(z, (x[::-1] * 3).reshape(2, 3))
    (pair, named) = seen[0]
    assert type(pair[1]) is np.int64
    assert not named["x"].flags.writeable
    assert y.dtype == np.float32


def test_errors_in_calls(engine: Any) -> None:
    def fails(x: Any) -> Any:
        raise ZeroDivisionError("oh")

    x = np.ones(6)
    with pytest.raises(ZeroDivisionError, match="oh"):
        engine.executable(_sorted_plan(fails))([x, 1.0])
    with pytest.raises(BackendError, match="had shape"):
        engine.executable(_sorted_plan(lambda x: x[:3]))([x, 1.0])
    with pytest.raises(ValueError, match="string to float"):
        engine.executable(_sorted_plan(lambda x: "none"))([x, 1.0])


def test_a_plan_inside_of_a_plan(engine: Any) -> None:
    inner = engine.executable(plans.scaled_plan(6))
    outer = engine.executable(_sorted_plan(lambda x: inner([x, 2.0])[0]))
    x = np.linspace(-1, 0, 6)
    np.testing.assert_allclose(outer([x, 1.0])[0], np.exp(np.exp(np.exp(x)) * 2), rtol=1e-14)


# -- failures and flags --------------------------------------------------------------------


def _refusing_plan(n: int, work: float = 0.0) -> Any:
    a, out = buffer("input", n, 0), buffer("output", n, 0)
    step = KernelStep(plans.refusing(), (a, out), (n,), (), work)
    return plans.plan([step], [a, out], [look(out)])


@pytest.mark.parametrize("n", [10, 100_000])
def test_a_kernel_that_refuses(engine: Any, n: int) -> None:
    x = np.ones(n)
    run = engine.executable(_refusing_plan(n, 1e6))
    np.testing.assert_array_equal(run([x])[0], x)
    x[-1] = -1
    with pytest.raises(BackendError, match="code 7"):
        run([x])
    calls = []

    def rerun(*args: Any) -> Any:
        calls.append(args)
        return ["instead"]

    arrays = [x]
    assert engine.executable(_refusing_plan(n, 1e6), rerun=rerun)(arrays) == ["instead"]
    assert calls == [(arrays, 0, 7, None)]
    assert calls[0][0] is arrays


@pytest.mark.parametrize("n", [10, 100_000])
@pytest.mark.parametrize("at", [0, -1])
def test_floating_point_flags(engine: Any, n: int, at: int) -> None:
    calls = []

    def rerun(arrays: Any, flags: int, code: int, results: Any) -> Any:
        calls.append(flags)
        return ["again", *results]

    run = engine.executable(plans.scaled_plan(n, work=1e6), rerun=rerun)
    x = np.zeros(n)
    assert len(run([x, 1.0])) == 2
    x[at] = 1000.0  # overflows, on the last thread for the last element
    assert run([x, 1.0])[0] == "again"
    assert calls == [calls[0]]
    assert calls[0] & 2
    with np.errstate(all="ignore"):
        assert len(run([x, 1.0])) == 2
    with np.errstate(over="ignore"):
        assert len(run([x, 1.0])) == 2
    x[at] = 0.0
    assert len(run([x, 1.0])) == 2  # flags do not stick
    assert len(calls) == 1
    assert len(engine.executable(plans.scaled_plan(n))([x, 1.0])) == 2


# -- threads, processes, memory ------------------------------------------------------------


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
    run = engine.executable(_sorted_plan(np.sort, n))
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
    run = engine.executable(_sorted_plan(np.sort))
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
        self.run = engine.executable(plans.scaled_plan(4), rerun=self.rerun)

    def rerun(self, *args: Any) -> Any:
        return [self]


def test_an_executable_that_refers_to_itself_is_collected(engine: Any) -> None:
    node = _Node(engine)
    node.run([np.ones(4), 1.0])
    dead = weakref.ref(node)
    del node
    gc.collect()
    assert dead() is None


def test_stamps(engine: Any) -> None:
    made = _sorted_plan(lambda x: (time.sleep(0.02), np.sort(x))[1])
    before = time.perf_counter_ns()
    (y, _total), stamps = engine.executable(made).timed([np.ones(6), 1.0])
    after = time.perf_counter_ns()
    assert len(stamps) == 4
    assert list(stamps) == sorted(stamps)
    assert before <= stamps[0]
    assert stamps[-1] <= after
    assert stamps[2] - stamps[1] >= 20_000_000
    assert y.shape == (6,)


def test_inputs_may_have_any_strides(engine: Any) -> None:
    a, out = buffer("input", 5, 0), buffer("output", 5, 0)
    base = np.arange(20.0)
    for x in (base[::-2][:5], base[3:8], base.reshape(4, 5).T[:, 2:3]):
        flat = x.reshape(-1) if x.ndim == 1 else x[:, 0]
        seen = Operand(a, 0, (5,), (flat.strides[0] // 8,))
        (y,) = engine.executable(plans.plan([], [a, out], [seen]))([x])
        np.testing.assert_array_equal(y, flat)


def test_c_strides_of_the_contract() -> None:
    assert c_strides((2, 3, 4)) == (12, 4, 1)


def test_use_of_a_backend_is_not_needed(engine: Any) -> None:
    run = engine.executable(plans.scaled_plan(100_000, work=1e6))
    x = np.zeros(100_000)
    outside = run([x, 1.0])
    with adarray.use(engine.name):
        inside = run([x, 1.0])
    np.testing.assert_array_equal(outside[0], inside[0])
    assert outside[1] == inside[1]


def test_damaged_words_are_refused(engine: Any) -> None:
    from array import array

    from adarray_native.executor import _maker

    make = _maker(engine.library)
    rng = np.random.default_rng(0)
    good = [64, 64, 1, 0, 1, 1, 3, 0, 0, 0, 0, 0]
    run, _ = make(array("q", good).tobytes(), (), (), (), None)
    assert run([]) == []
    for _ in range(2000):
        bad = list(good)
        for _ in range(rng.integers(1, 4)):
            bad[rng.integers(4, len(bad))] = int(rng.choice([-1, 2, 5, 1 << 40, -(1 << 62)]))
        if bad == good:
            continue
        try:
            make(array("q", bad[: rng.integers(5, 13)]).tobytes(), (), (), (), None)
        except (ValueError, IndexError):
            continue

"""Compiled plans: what they are given, what they return, and what else they must not do."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import plans
import pytest
from plans import buffer, whole

import adarray
from adarray.compiler.ir.plan import KernelStep, Operand
from adarray.compiler.ir.program import c_strides
from adarray.errors import BackendError

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
    run = engine.executable(plans.plan([], [b], [whole(b, ())]))
    for argument in (value, np.dtype(dtype).type(value), np.array(value, dtype)):
        (result,) = run([argument])
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
    new_plan = plans.plan(
        steps, [a, s, middle, first, out, total], [whole(out), whole(first, ()), whole(total, ())]
    )
    run = engine.executable(new_plan)
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
        whole(out), whole(out), whole(out, (3, 4)), whole(a), whole(const),
        Operand(out, 2, (5,), (2,)), Operand(a, 11, (12,), (-1,)), Operand(out, 3, (), ()),
        whole(s, ()), whole(s, (1, 1)),
        Operand(out, 0, (2, 0), (1, 1)), Operand(total, 0, (2, 3), (0, 0)),
    ]  # fmt: skip
    new_plan = plans.plan([step], [a, s, out, total, const], outputs, [np.arange(4.0)])
    x = np.linspace(0, 1, n)
    results = engine.executable(new_plan)([x, 2.0])
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
    np.testing.assert_array_equal(new_plan.consts[0], np.arange(4.0))


def test_results_in_another_order_need_no_copy(engine: Any) -> None:
    n = 24
    a, s, out, total = (
        buffer("input", n, 0), buffer("input", 1, 1), buffer("output", n, 0), buffer("output", 1, 1)
    )  # fmt: skip
    step = KernelStep(plans.scaled(), (a, s, out, total), (n,), (), 0.0)
    strides = tuple(np.arange(24).reshape(2, 3, 4).transpose(2, 0, 1).strides)
    result = Operand(out, 0, (4, 2, 3), tuple(x // 8 for x in strides))
    new_plan = plans.plan([step], [a, s, out, total], [result])
    x = np.linspace(0, 1, n)
    (y,) = engine.executable(new_plan)([x, 1.0])
    np.testing.assert_allclose(y, np.exp(x).reshape(2, 3, 4).transpose(2, 0, 1), rtol=1e-15)
    assert y.strides == strides
    assert y.flags.owndata


def test_a_plan_of_no_steps(engine: Any) -> None:
    a = buffer("input", 4, 1, np.int32)
    run = engine.executable(plans.plan([], [a], [whole(a, (2, 2))]))
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
        engine.executable(plans.plan([], [a], [whole(a)]))


# -- failures and flags --------------------------------------------------------------------


def _refusing_plan(n: int, work: float = 0.0) -> Any:
    a, out = buffer("input", n, 0), buffer("output", n, 0)
    step = KernelStep(plans.refusing(), (a, out), (n,), (), work)
    return plans.plan([step], [a, out], [whole(out)])


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
    assert engine.executable(_refusing_plan(n, 1e6), rerun=plans.Rerun(rerun))(arrays) == [
        "instead"
    ]
    assert calls == [(arrays, 0, 7, None)]
    assert calls[0][0] is arrays


@pytest.mark.parametrize("n", [10, 100_000])
@pytest.mark.parametrize("at", [0, -1])
def test_floating_point_flags(engine: Any, n: int, at: int) -> None:
    calls = []

    def rerun(arrays: Any, flags: int, code: int, results: Any) -> Any:
        calls.append(flags)
        return ["again", *results]

    run = engine.executable(plans.scaled_plan(n, work=1e6), rerun=plans.Rerun(rerun))
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


# -- times, strides, words -----------------------------------------------------------------


def test_stamps(engine: Any) -> None:
    new_plan = plans.sorted_plan(lambda x: (time.sleep(0.02), np.sort(x))[1])
    before = time.perf_counter_ns()
    (y, _total), stamps = engine.executable(new_plan).timed([np.ones(6), 1.0])
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

    from adarray_backends.cpu.executor import _maker

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

"""`adarray.jit` with arrays on a device: state that changes between calls, and writes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from captured_kinds import KINDS, X
from jitted import moves, on_device, plain, settled

import adarray

# -- state ----------------------------------------------------------------------------------


# What the cases read once for a call, here and there, is not the device's to change.
@pytest.mark.parametrize("calls", [1, 3])
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.filterwarnings("ignore::adarray.jitting.JitWarning")
def test_changes_of_state_are_seen(name: str, calls: int, device_backend: str) -> None:
    f, changes = KINDS[name]()
    with adarray.use(device_backend):
        jf = adarray.jit(f)
        for number, change in enumerate([None, *changes]):
            if change is not None:
                change()
            for k in range(calls):
                x = X * (1 + 0.1 * k)
                title = f"{name}: change {number}, call {k}"
                got, expected = outcome(jf, x), outcome(f, x)
                if isinstance(expected, type):
                    assert got is expected, title
                else:
                    np.testing.assert_allclose(got, expected, rtol=1e-12, err_msg=title)


def outcome(f: Any, x: Any) -> Any:
    try:
        return np.asarray(plain(f(x)))
    except Exception as error:
        return type(error)


def test_captured_arrays_are_sent_once(device_backend: str, library: Any) -> None:
    table, big = np.arange(4.0), np.ones((300, 4, 10))
    jf = adarray.jit(lambda x: np.sum(x * table) + np.sum(big, (0, 2)))
    with adarray.use(device_backend):
        x = adarray.array(np.ones(4))
        settled(jf, x, calls=4)
        before = moves(library)
        np.testing.assert_array_equal(plain(jf(x)), 3006.0 * np.ones(4))
        assert moves(library)[0] == before[0]
        table[0] = 7.0
        np.testing.assert_array_equal(plain(jf(x)), 3013.0 * np.ones(4))
        assert moves(library)[0] == before[0] + 1
        big[299, 3, 9] = 3.0
        np.testing.assert_array_equal(plain(jf(x)), [3013.0, 3013.0, 3013.0, 3015.0])
        assert moves(library)[0] == before[0] + 2


@pytest.mark.slow
@pytest.mark.parametrize("n", [1 << 13, 1 << 14, 1 << 15, 100_000])
def test_captured_arrays_that_are_negated_or_doubled_are_sent_again(
    n: int, device_backend: str
) -> None:
    array = np.random.default_rng(n).normal(size=n)
    f = adarray.jit(lambda x: x * np.sum(array))
    with adarray.use(device_backend):
        for _ in range(3):
            f(1.0)
        for factor in (-1.0, 2.0, -0.5, 4.0):
            array *= factor
            np.testing.assert_allclose(float(f(1.0)), np.sum(array), rtol=1e-10)


def test_captured_arrays_of_the_device_are_inputs(device_backend: str, library: Any) -> None:
    with adarray.use(device_backend):
        state = {"w": adarray.array(np.ones(4)), "s": np.sum(adarray.array(np.ones(4)))}
    raw = [library.to_device(np.arange(4.0))]
    jf = adarray.jit(lambda x: x * state["w"] * state["s"] + raw[0])
    for x in (np.arange(4.0), library.to_device(np.arange(4.0))):
        state["w"] = adarray.array(np.ones(4)).to_device(library.name)
        raw[0] = library.to_device(np.arange(4.0))
        for k in range(6):
            got = jf(x)
            assert on_device(got)
            np.testing.assert_array_equal(
                plain(got), np.arange(4.0) * (1 + plain(state["w"]) * plain(state["s"]))
            )
            if k > 2:
                state["w"] = state["w"] + 1
                state["s"] = np.sum(state["w"])
            before = moves(library)
            recorded = jf.cache_info().traces
        assert recorded == jf.cache_info().traces
        assert before[0] <= moves(library)[0]
    assert not jf.cache_info().eager, [e.eager for e in jf.entries]


# -- writes ---------------------------------------------------------------------------------


def test_writes_into_arguments(device_backend: str, library: Any) -> None:
    def f(w: Any, g: Any) -> Any:
        w -= 0.5 * g
        w[0] *= 2
        return np.sum(w)

    jf = adarray.jit(f)
    for kind in ("adarray", "library", "host"):
        expected = np.arange(4.0)
        with adarray.use(device_backend):
            w: Any = np.arange(4.0)
            if kind != "host":
                w = adarray.array(w) if kind == "adarray" else library.to_device(w)
            for k in range(5):
                g = np.cos(np.arange(4.0) + k)
                total = jf(w, adarray.array(g) if kind == "adarray" else g)
                np.testing.assert_allclose(plain(total), f(expected, g), rtol=1e-12)
                np.testing.assert_allclose(plain(w), expected, rtol=1e-12)
    assert not jf.cache_info().eager, [e.eager for e in jf.entries]


def test_a_write_leaves_what_others_rely_on(device_backend: str) -> None:
    def f(a: Any) -> Any:
        a *= 2
        return np.sum(a)

    jf = adarray.jit(f)
    with adarray.use(device_backend):
        for _ in range(5):
            a = adarray.array(np.arange(1.0, 5.0))
            view = a[1:]
            _, pullback = adarray.vjp(lambda x, a=a: x * a, adarray.array(np.ones(4)))
            jf(a)
            np.testing.assert_array_equal(plain(pullback(np.ones(4))[0]), np.arange(1.0, 5.0))
            np.testing.assert_array_equal(plain(a), 2 * np.arange(1.0, 5.0))
            np.testing.assert_array_equal(plain(view), 2 * np.arange(2.0, 5.0))


def test_a_write_leaves_what_a_pullback_has_captured(device_backend: str) -> None:
    with adarray.use(device_backend):
        array = adarray.array(np.full(4, 2.0))
        f = adarray.jit(lambda x: np.sum(np.sin(x) * array * array))
        step = adarray.jit(lambda y: np.add(y, 1.0, out=y))
        x = adarray.array(np.ones(4))
        for _ in range(5):
            before = array.numpy()
            _, pull = adarray.vjp(f, x)
            step(array)
            np.testing.assert_allclose(pull(1.0)[0].numpy(), np.cos(1.0) * before**2, rtol=1e-13)
            np.testing.assert_array_equal(array.numpy(), before + 1.0)


def test_arguments_that_share_memory(device_backend: str) -> None:
    def f(a: Any, b: Any) -> Any:
        a += b
        return np.sum(a)

    jf, apart = adarray.jit(f), adarray.jit(f)
    with adarray.use(device_backend):
        for _ in range(4):
            a, expected = adarray.array(np.arange(6.0)), np.arange(6.0)
            got = jf(a[1:], a[:-1])
            np.testing.assert_array_equal(plain(got), f(expected[1:], expected[:-1]))
            np.testing.assert_array_equal(plain(a), expected)
            apart(a, adarray.array(np.ones(6)))
            expected += 1
            np.testing.assert_array_equal(plain(apart(a, a)), f(expected, expected))
            np.testing.assert_array_equal(plain(a), expected)


def test_donated_arguments(device_backend: str) -> None:
    jf = adarray.jit(lambda w, g: w - 0.5 * g, donate=0)
    with adarray.use(device_backend):
        w, expected = np.arange(4.0), np.arange(4.0)
        for _ in range(5):
            args = w
            w = jf(w, np.ones(4))
            expected = expected - 0.5
            assert w is args
            np.testing.assert_array_equal(w, expected)
        there = adarray.array(np.arange(4.0))
        for _ in range(4):
            np.testing.assert_array_equal(plain(jf(there, np.ones(4))), np.arange(4.0) - 0.5)
        np.testing.assert_array_equal(plain(there), np.arange(4.0))


def test_small_results_are_no_parts_of_each_other(device_backend: str) -> None:
    transformed = adarray.jit(lambda x: (x * 2.0, x * 3.0, np.sum(x)))

    def step(a: Any, b: Any) -> None:
        a -= 0.5 * b
        b *= 2.0

    jf = adarray.jit(step)
    with adarray.use(device_backend):
        x = adarray.array(np.arange(4.0))
        a, b, _ = [transformed(x) for _ in range(5)][-1]
        if device_backend == "cuda":  # where they lie in one piece of memory
            assert a._plain.raw.data.mem is b._plain.raw.data.mem
        assert not np.may_share_memory(a._plain, b._plain)
        assert np.may_share_memory(a._plain, a._plain[1:])
        expected = 2.0 * np.arange(4.0), 3.0 * np.arange(4.0)
        for _ in range(6):
            jf(a, b)
            step(*expected)
            np.testing.assert_array_equal(plain(a), expected[0])
            np.testing.assert_array_equal(plain(b), expected[1])
    assert not jf.cache_info().eager, [e.eager for e in jf.entries]

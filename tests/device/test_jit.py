"""`adarray.jit` with arrays on a device: compiled plans, transfers, guards."""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import device as standin
import numpy as np
import pytest
from jitted import Y, Z, loss, moves, on_device, plain, settled

import adarray
from adarray.errors import BackendError
from adarray.jitting import JitWarning

# -- results, and where they are ------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_ndarrays_give_ndarrays(device_backend: str, library: Any, dtype: type) -> None:
    x, y = Y.astype(dtype), Z.astype(dtype)
    expected = adarray.value_and_grad(loss, (0, 1))(x, y)
    jf = adarray.jit(adarray.value_and_grad(loss, (0, 1)))
    with adarray.use(device_backend):
        value, gradients = settled(jf, x, y)
        before = moves(library)
        jf(x, y)
    sent, back = moves(library)
    assert (sent - before[0], back - before[1]) == (2, 3)
    assert type(value) is dtype
    for g, e in zip((value, *gradients), (expected[0], *expected[1]), strict=True):
        assert type(g) is type(e)
        assert g.dtype == e.dtype
        np.testing.assert_allclose(g, e, rtol=1e-5)
    assert gradients[0].flags.writeable
    assert gradients[0].flags.owndata


def test_a_step_that_stays_on_the_device_transfers_nothing(
    device_backend: str, library: Any
) -> None:
    def step(w: Any, x: Any, y: Any, rate: float) -> Any:
        gradient = adarray.grad(lambda w: np.mean((np.tanh(x @ w) - y) ** 2))(w)
        return w - rate * gradient

    jf = adarray.jit(step)
    x, y, w = np.cos(np.arange(12.0)).reshape(4, 3), np.ones(4), np.zeros(3)
    expected = w
    for _ in range(6):
        expected = step(expected, x, y, 0.5)
    with adarray.use(device_backend):
        x, y, w = map(adarray.array, (x, y, w))
        for k in range(6):
            before = moves(library)
            w = jf(w, x, y, 0.5)
            if k > 2:
                assert moves(library) == before
    assert not jf.cache_info().eager
    assert on_device(w)
    np.testing.assert_allclose(w.numpy(), expected, rtol=1e-12)


def test_results_are_as_eager_ones(device_backend: str, library: Any) -> None:
    """For ADArrays and arrays of the library, in the block and outside of it, alone and mixed."""
    jf, eager = adarray.jit(adarray.value_and_grad(loss)), adarray.value_and_grad(loss)
    expected = eager(Y, Z)
    with adarray.use(device_backend):
        ours = adarray.array(Y), adarray.array(Z)
        home = adarray.array(Z)
    raws = library.to_device(Y), library.to_device(Z)
    cases = [ours, raws, (ours[0], Z), (ours[0], raws[1]), (raws[0], ours[1]), (Y, ours[1])]
    for inside in (True, False):
        for args in (*cases, (adarray.array(Y), home)):
            for _ in range(3):
                if inside:
                    with adarray.use(device_backend):
                        got = jf(*args)
                else:
                    got = jf(*args)
            adarrays = any(isinstance(a, adarray.ADArray) for a in args)
            for g, e in zip(got, expected, strict=True):
                assert on_device(g) if adarrays else type(g) is library.kind
                np.testing.assert_allclose(plain(g), e, rtol=1e-12)
            assert plain(got[0]).shape == ()
    assert not jf.cache_info().eager, [e.eager for e in jf.entries]


def test_kinds_of_results(device_backend: str, library: Any) -> None:
    def f(x: Any) -> Any:
        s = np.sum(x)
        return {"array": x * 2, "same": x, "scalar": s, "number": float(s) * 1.5, "twice": [s, s],
                "cell": np.asarray(np.zeros(())) + s, "constant": np.arange(3), "none": None,
                "name": "n"}  # fmt: skip

    jf = adarray.jit(f)
    with adarray.use(device_backend):
        x = adarray.array(Y)
        for _ in range(4):
            got = jf(x)
    expected = f(Y)
    assert list(got) == list(expected)
    assert on_device(got["array"])
    assert on_device(got["scalar"])
    assert isinstance(got["scalar"]._plain, np.float64)
    assert type(got["number"]).__name__ == "float"
    np.testing.assert_allclose(got["number"], expected["number"], atol=1e-14)
    assert got["none"] is None
    assert got["name"] == "n"
    assert got["twice"][0] is got["twice"][1]
    np.testing.assert_array_equal(plain(got["constant"]), np.arange(3))
    assert got["same"] is x


def test_layouts_of_arguments(device_backend: str) -> None:
    """Strides belong to the signature."""
    big = np.random.default_rng(0).normal(size=(6, 8))
    views = [
        lambda a: a,
        lambda a: a.T,
        lambda a: a[::2, 1:],
        lambda a: a[::-1, ::-2],
        lambda a: a[1],
    ]
    jf = adarray.jit(adarray.value_and_grad(lambda x: np.sum(np.sin(x) * x)))
    with adarray.use(device_backend):
        there = adarray.array(big)
        for view in views:
            expected = adarray.value_and_grad(lambda x: np.sum(np.sin(x) * x))(view(big).copy())
            for argument in (view(there), view(big)):
                value, gradient = settled(jf, argument)
                np.testing.assert_allclose(plain(value), expected[0], rtol=1e-12)
                np.testing.assert_allclose(plain(gradient), expected[1], rtol=1e-12)


def test_numbers_as_arguments(device_backend: str) -> None:
    def f(x: Any, rate: Any, n: int) -> Any:
        return x * rate + n, x - np.float32(2)

    jf = adarray.jit(f)
    with adarray.use(device_backend):
        x = adarray.array(Y)
        for rate, n in ((0.5, 1), (0.25, 1), (0.125, 1), (np.float64(3), 2), (np.float32(3), 2)):
            for _ in range(3):
                for g, e in zip(jf(x, rate, n), f(Y, rate, n), strict=True):
                    assert g.dtype == e.dtype
                    np.testing.assert_array_equal(plain(g), e)
        total = np.sum(x)  # a scalar of the device
        for _ in range(4):
            np.testing.assert_allclose(plain(jf(x, total, 1)[0]), f(Y, np.sum(Y), 1)[0])


# -- host reads ----------------------------------------------------------------------------


def test_a_value_that_python_looks_at_comes_back(device_backend: str, library: Any) -> None:
    def f(x: Any) -> Any:
        if np.sum(x) > 0:
            return np.exp(x)
        y = x
        while np.max(np.abs(y)) > 0.5:
            y = y / 2
        return y * int(np.argmax(x))

    jf = adarray.jit(f)
    with adarray.use(device_backend):
        for value in (Y + 1, Y - 1, Y + 1, Y - 1, Y + 1, Y - 1):
            np.testing.assert_allclose(plain(jf(adarray.array(value))), f(value), rtol=1e-12)
        x = adarray.array(Y + 1)
        jf(x)
        recorded, before = jf.cache_info().traces, library.transfers.bytes_to_host
        sent = library.transfers.to_device
        jf(x)
        assert jf.cache_info().traces == recorded
        assert library.transfers.bytes_to_host - before <= 8
        assert library.transfers.to_device == sent


def test_shapes_that_depend_on_values(device_backend: str) -> None:
    def f(x: Any) -> Any:
        return np.sum(x[x > 0]), np.exp(np.unique(np.round(x))), np.nonzero(x > 0.2)[0] * 2

    jf = adarray.jit(f)
    with adarray.use(device_backend):
        for k in range(5):
            args = Y * (1 + k % 2)
            for g, e in zip(jf(adarray.array(args)), f(args), strict=True):
                np.testing.assert_allclose(plain(g), e, rtol=1e-12)
    assert not jf.cache_info().eager, [e.eager for e in jf.entries]


def test_an_index_out_of_range_raises_numpys_error(device_backend: str) -> None:
    jf = adarray.jit(lambda x, k: np.exp(x[k]) + np.take(x, k))
    with adarray.use(device_backend):
        x, k = adarray.array(np.arange(5.0)), np.array([0, 4, -5])
        for index in (k, adarray.array(k)):
            np.testing.assert_allclose(plain(settled(jf, x, index)), np.exp(k % 5) + k % 5)
        for bad in (np.array([0, 5, 1]), adarray.array(np.array([0, -6, 1]))):
            with pytest.raises(IndexError, match="out of bounds for axis 0 with size 5"):
                jf(x, bad)
            np.testing.assert_allclose(plain(jf(x, k)), np.exp(k % 5) + k % 5)


@pytest.mark.parametrize("both", [True, False])
def test_an_index_out_of_range_in_arrays_of_the_library(
    both: bool, device_backend: str, library: Any
) -> None:
    def f(x: Any, k: Any) -> Any:
        x *= 2.0
        try:
            return x[k]
        except IndexError:
            return x[:1]

    jf, jg = adarray.jit(f), adarray.jit(lambda x, k: np.exp(x[k]))
    good, bad = (library.to_device(np.array(k)) for k in ([0, 4, -5], [0, 4, -6]))

    def indexed() -> Any:
        x = np.arange(5.0)
        return library.to_device(x) if both else x

    with adarray.use(device_backend):
        for _ in range(4):
            np.testing.assert_array_equal(plain(jf(indexed(), good)), [0.0, 8.0, 0.0])
        settled(jg, indexed(), good)
        with pytest.raises(IndexError, match="index -6 is out of bounds for axis 0 with size 5"):
            jg(indexed(), bad)
        x = indexed()
        actual = jf(x, bad)  # which catches the error
        assert type(actual) is library.kind or not both
        np.testing.assert_array_equal(plain(actual), [0.0])
        np.testing.assert_array_equal(plain(x), 2 * np.arange(5.0))


def test_errors_of_python_numbers(device_backend: str) -> None:
    jf = adarray.jit(lambda x, rate: x * (1 / rate) + rate**-2)
    with adarray.use(device_backend):
        x = adarray.array(Y)
        for rate in (0.5, 2.0, 4.0, 8.0):
            np.testing.assert_allclose(plain(jf(x, rate)), Y / rate + rate**-2, rtol=1e-14)
        with pytest.raises(ZeroDivisionError):
            jf(x, 0.0)
        np.testing.assert_allclose(plain(jf(x, 0.25)), Y * 4 + 16, rtol=1e-14)
    assert not jf.cache_info().eager


def test_draws_of_generators(device_backend: str) -> None:
    def f(x: Any, rng: Any) -> Any:
        return x + rng.normal(size=x.shape), rng.random()

    jf = adarray.jit(f)
    ours, theirs = np.random.default_rng(3), np.random.default_rng(3)
    with adarray.use(device_backend):
        x = adarray.array(Y)
        for _ in range(5):
            for g, e in zip(jf(x, ours), f(Y, theirs), strict=True):
                np.testing.assert_allclose(plain(g), e, rtol=1e-12)
    assert not jf.cache_info().eager, [e.eager for e in jf.entries]


# -- transforms, and blocks ------------------------------------------------------------------


def test_derivatives_of_jitted_functions(device_backend: str, library: Any) -> None:
    jf = adarray.jit(loss)
    expected = adarray.grad(loss, (0, 1))(Y, Z)
    with adarray.use(device_backend):
        there = adarray.array(Y), adarray.array(Z)
        for args in ((Y, Z), there, tuple(map(library.to_device, (Y, Z)))):
            for _ in range(4):
                got = adarray.grad(jf, (0, 1))(*args)
            for g, e in zip(got, expected, strict=True):
                assert type(g) is type(args[0])
                np.testing.assert_allclose(plain(g), e, rtol=1e-12)
            for _ in range(3):
                second = adarray.grad(lambda x: np.sum(adarray.grad(jf)(x, x) ** 2))(args[0])
            twice = adarray.grad(lambda x: np.sum(adarray.grad(loss)(x, x) ** 2))(Y)
            np.testing.assert_allclose(plain(second), twice, rtol=1e-10, atol=1e-12)
        x = adarray.array(Y, requires_grad=True)
        for _ in range(3):
            jf(x, there[1]).backward()
        np.testing.assert_allclose(plain(x.grad), 3 * expected[0], rtol=1e-12)


def test_derivatives_with_arguments_of_several_kinds(device_backend: str, library: Any) -> None:
    jf, expected = adarray.jit(loss), adarray.grad(loss)(Y, Z)
    with adarray.use(device_backend):
        kinds = (lambda x: x, adarray.array, library.to_device)
        for first in kinds:
            for second in kinds:
                args = first(Y), second(Z)
                for _ in range(3):
                    got = adarray.grad(jf)(*args)
                assert type(got) is type(args[0])
                np.testing.assert_allclose(plain(got), expected, rtol=1e-12)


def test_jit_in_jit(device_backend: str) -> None:
    inner = adarray.jit(lambda x: np.exp(x) * 2)
    jf = adarray.jit(lambda x: np.sum(inner(x) ** 2))
    with adarray.use(device_backend):
        x = adarray.array(Y)
        np.testing.assert_allclose(plain(settled(jf, x)), np.sum((np.exp(Y) * 2) ** 2))


def test_backends_may_change_between_calls(device_backend: str) -> None:
    jf = adarray.jit(adarray.value_and_grad(loss))
    expected = adarray.value_and_grad(loss)(Y, Y)
    for _ in range(3):
        for name in ("numpy", device_backend, "serial"):
            with adarray.use(name):
                value, gradient = jf(Y, Y)
            assert type(gradient) is np.ndarray
            np.testing.assert_allclose(value, expected[0], rtol=1e-12)
            np.testing.assert_allclose(gradient, expected[1], rtol=1e-12)
        value, gradient = jf(Y, Y)
        np.testing.assert_allclose(gradient, expected[1], rtol=1e-12)


def test_several_threads(device_backend: str) -> None:
    table = np.arange(4.0)

    def f(p: Any, x: Any) -> Any:
        y = p["w"] * x + table
        if np.sum(y) > 6:
            y = y * 2
        return np.sum(np.tanh(y)), y

    jf = adarray.jit(adarray.value_and_grad(f, has_aux=True))

    def work(seed: int) -> int:
        rng, good = np.random.default_rng(seed), 0
        with adarray.use(device_backend):
            for k in range(30):
                w, x = rng.normal(size=(2, 4))
                there = k % 2 == 0
                got = jf({"w": adarray.array(w) if there else w}, adarray.array(x) if there else x)
                (value, y), gradient = adarray.value_and_grad(f, has_aux=True)({"w": w}, x)
                for g, e in ((got[0][0], value), (got[0][1], y), (got[1]["w"], gradient["w"])):
                    np.testing.assert_allclose(plain(g), plain(e), rtol=1e-10)
                    good += 1
        return good

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(4))) == [90] * 4
    assert not jf.cache_info().eager, [e.eager for e in jf.entries]


def test_two_devices_in_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    standin.installed(monkeypatch)
    with adarray.use("standin"):
        a = adarray.array(np.ones(3))
    with adarray.use("standin", device=1):
        b = adarray.array(np.ones(3))
    jf = adarray.jit(lambda x, y: x + y)
    with (
        pytest.warns(JitWarning, match="on two devices, standin:0 and standin:1"),
        pytest.raises(BackendError, match=r"on two devices.*to_device"),
    ):
        jf(a, b)
    for x in (a, b):  # each where it is
        for _ in range(4):
            got = jf(x, x)
        assert got.device == x.device


def test_memory_that_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    standin.installed(monkeypatch)
    jf = adarray.jit(lambda x: np.exp(x) + 1)
    with adarray.use("standin"):
        x = adarray.array(np.ones(1000))
        usage = settled(jf, x)
        monkeypatch.setattr(standin.Allocator, "limit", 5_000)
        with pytest.raises(adarray.DeviceMemoryError, match="standin:0 is out of memory"):
            jf(x)
        monkeypatch.setattr(standin.Allocator, "limit", None)
        np.testing.assert_array_equal(plain(jf(x)), plain(usage))


def test_memory_limit(device_backend: str) -> None:
    def chain(x: Any) -> Any:
        for k in range(20):
            x = np.tanh(x @ x) + k
        return np.sum(x)

    x = np.random.default_rng(0).normal(size=(20, 20)) / 10
    jf = adarray.jit(adarray.grad(chain), memory_limit=40_000)
    with adarray.use(device_backend):
        got = settled(jf, adarray.array(x))
    np.testing.assert_allclose(plain(got), adarray.grad(chain)(x), rtol=1e-9, atol=1e-9)


# -- what is shown --------------------------------------------------------------------------


def test_profile_and_explain(device_backend: str) -> None:
    def f(x: Any) -> Any:
        y = np.exp(x) @ np.ones((4, 2))
        return np.sum(y) if y[0, 0] > 0 else y

    jf = adarray.jit(f)
    with adarray.use(device_backend):
        x = adarray.array(Y)
        settled(jf, x)
        with adarray.profile() as p:
            jf(x)
        text = jf.explain(x).text()
    assert {"kernel", "transfer"} <= {s.kind for s in p.spans}
    assert f"{device_backend} ({device_backend}:0)" in text
    if device_backend == "cuda":
        assert "__global__" in text


def test_looking_writes_nothing(device_backend: str, library: Any) -> None:
    def f(w: Any) -> Any:
        w += 1
        return np.sum(w)

    with adarray.use(device_backend):
        for w in (adarray.array(np.arange(3.0)), library.to_device(np.arange(3.0)), np.arange(3.0)):
            jf = adarray.jit(f)
            for _ in range(2):
                jf.explain(w)
                np.testing.assert_array_equal(plain(w), np.arange(3.0))


def test_checks(device_backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADARRAY_CHECK", "1")

    def f(x: Any) -> Any:
        y = np.cumsum(np.exp(x), axis=1)
        return np.sum(y) if y[0, 0] > 0 else y

    jf = adarray.jit(adarray.value_and_grad(f))
    with adarray.use(device_backend):
        for argument in (Y, adarray.array(Y)):
            value, _ = settled(jf, argument)
            np.testing.assert_allclose(plain(value), f(Y), rtol=1e-12)


def test_programs_that_do_not_compile_run_step_by_step(
    device_backend: str, library: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any, **options: Any) -> Any:
        raise adarray.errors.CompileError("no compiler")

    engine: Any = adarray.use(device_backend)._engine
    monkeypatch.setattr(engine, "executable", refuse)
    jf = adarray.jit(adarray.value_and_grad(lambda x, y: np.sum(np.tanh(x.T) * y.T[:, ::-1])))
    with adarray.use(device_backend), warnings.catch_warnings():
        warnings.simplefilter("ignore", JitWarning)
        x, y = adarray.array(Y), adarray.array(Z)
        for _ in range(4):
            value, gradient = jf(x, y)
    expected = adarray.value_and_grad(lambda x, y: np.sum(np.tanh(x.T) * y.T[:, ::-1]))(Y, Z)
    assert jf.cache_info().compiled == 1
    assert on_device(gradient)
    np.testing.assert_allclose(plain(value), expected[0], rtol=1e-12)
    np.testing.assert_allclose(plain(gradient), expected[1], rtol=1e-12)


@pytest.mark.parametrize("kind", [BackendError, AttributeError])
def test_compiled_code_that_fails_is_told_of_once(kind: Any, device_backend: str) -> None:
    jf = adarray.jit(lambda x: np.tanh(x) * 2.0)

    def fail(values: Any) -> Any:
        raise kind("no data")

    with adarray.use(device_backend):
        x = adarray.array(Y)
        settled(jf, x)
        assert jf.entries[0].variants[0].fast is not None
        jf.entries[0].variants[0].fast = fail
        with pytest.warns(JitWarning, match="failed .*no data.*ran eagerly instead; report this"):
            got = [jf(x)]
        got.append(jf(x))  # another warning would be an error
    for g in got:
        np.testing.assert_allclose(plain(g), np.tanh(Y) * 2.0, rtol=1e-12)


def test_jit_raises_the_index_error_of_each_call(device_backend: str) -> None:
    def taken(x: Any, k: Any) -> Any:
        y = np.take(np.tanh(x), k, axis=0)
        return np.mean(y * y)

    values, numbers = np.random.default_rng(8).normal(size=(50, 4)), np.arange(-20, 20)
    want = adarray.grad(taken)(values, numbers)
    with adarray.use(device_backend):
        f = adarray.jit(adarray.grad(taken))
        x, k = adarray.array(values), adarray.array(numbers)
        for _ in range(6):
            np.testing.assert_allclose(f(x, k).numpy(), want, rtol=1e-6)
        for at in (0, 39):
            k[at] = 50  # in place: the array is the same
            for _ in range(3):
                with pytest.raises(IndexError):
                    f(x, k)
            k[at] = numbers[at]
            np.testing.assert_allclose(f(x, k).numpy(), want, rtol=1e-6)

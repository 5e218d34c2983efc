"""Fourier transforms as steps of plans, with a driver that is none: see fake_gpu.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_gpu import FakeGpu
from launched import check, executable, moved, plan
from recorded import close, recorded

import adarray
from adarray.compiler.ir.interpret import interpret
from adarray.errors import BackendError

pytest.importorskip("adarray_native._device")
from adarray_backends.cuda import instances

RNG = np.random.default_rng(8)
NORMS = ("backward", "ortho", "forward")


@pytest.fixture
def gpu(tmp_path: Path) -> FakeGpu:
    return FakeGpu(tmp_path)


def real(*shape: int, dtype: Any = np.float64) -> np.ndarray:
    return RNG.normal(size=shape).astype(dtype)


def pairs(*shape: int, dtype: Any = np.complex128) -> np.ndarray:
    return (RNG.normal(size=shape) + 1j * RNG.normal(size=shape)).astype(dtype)


def on_host(run: Any) -> list[str]:
    """Return the names of the functions that Python calls."""
    return [
        getattr(run.plan.steps[s.first].function, "__name__", "?")
        for s in run.segments
        if s.words is None
    ]


def compared(gpu: FakeGpu, f: Any, *args: Any) -> Any:
    """Run four times, as launches and graphs; compare with the interpreter; return the run."""
    r, run = executable(gpu, f, list(args))
    assert on_host(run) == []
    for _ in range(4):
        check(r, run, r.arrays)
    assert run.counts().replays == 2
    return run


# Operand, and transforms that suit it.
OF_REAL = ("rfft", "ihfft")
TO_REAL = ("irfft", "hfft")
COMPLEX = ("fft", "ifft")


def operand(name: str, shape: tuple[int, ...], char: str) -> np.ndarray:
    if name in OF_REAL:
        return real(*shape, dtype=char)
    return pairs(*shape, dtype=char.upper())


@pytest.mark.parametrize("char", ["f", "d"])
@pytest.mark.parametrize("name", [*OF_REAL, *TO_REAL, *COMPLEX])
def test_lengths_and_norms(gpu: FakeGpu, name: str, char: str) -> None:
    """Even and odd, cut and filled up; alone and as one of two dimensions."""
    function = getattr(np.fft, name)

    def f(x: Any, y: Any) -> Any:
        results = [function(x, norm=norm) for norm in NORMS]
        for n in (1, 4, 5, 8, 13):
            results += [function(x, n), function(y, n, axis=0)]
        return tuple(results)

    compared(gpu, f, operand(name, (8,), char), operand(name, (9, 3), char))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["rfft", "hfft", "fft", "ifft", "irfft"])
@pytest.mark.parametrize("shape", [(6,), (3, 6), (4, 3, 6), (40, 4, 50), (2, 3, 4, 2)])
def test_axes(gpu: FakeGpu, name: str, shape: tuple[int, ...]) -> None:
    function = getattr(np.fft, name)
    x = operand(name, shape, "d")
    compared(gpu, lambda x: tuple(function(x, axis=k) for k in range(x.ndim)), x)


@pytest.mark.parametrize("name", ["rfft", "irfft", "fft"])
def test_operands_with_gaps(gpu: FakeGpu, name: str) -> None:
    function = getattr(np.fft, name)

    def f(x: Any) -> Any:
        y = np.broadcast_to(x[0], x.shape)
        views = x[:, ::2], x[::-1], x.T, x[1:, 1:-1], y, x.transpose(1, 2, 0), x[:, 1]
        return tuple(function(v, axis=k) for v in views for k in (0, -1))

    compared(gpu, f, operand(name, (5, 6, 7), "d"))


def test_real_operands_of_complex_transforms(gpu: FakeGpu) -> None:
    def f(x: Any, k: Any) -> Any:
        return (
            np.fft.fft(x), np.fft.ifft(x, 4), np.fft.fft(x, 12, norm="ortho"), np.fft.irfft(x),
            np.fft.hfft(x, 6), np.fft.fft(k), np.fft.rfft(k), np.fft.rfft(k > 3),
        )  # fmt: skip

    compared(gpu, f, real(3, 8), RNG.integers(0, 9, (2, 5)))


@pytest.mark.parametrize("derived", [False, True])
@pytest.mark.parametrize("n", [(4, 6, 8), (3, 5, 7), (2, 1, 4), (1, 4, 1)])
def test_several_axes_are_one_transform(
    gpu: FakeGpu, n: tuple[int, ...], derived: bool
) -> None:  # fmt: skip
    """As NumPy's calls, and as what derivatives record of them."""

    def f(x: Any, z: Any) -> Any:
        half = np.fft.rfftn(x)
        return (
            half, np.fft.irfftn(half * 1, x.shape, (0, 1, 2)), np.fft.fftn(z),
            np.fft.ifftn(z, norm="ortho"), np.fft.fft2(z), np.fft.rfft2(x, norm="forward"),
            np.fft.ifft2(z, axes=(0, 1)), np.fft.fftn(z, s=(-1, 5), axes=(2, 0)),
        )  # fmt: skip

    def along(x: Any, z: Any) -> Any:
        return adarray.jvp(f, (x, z), (0 * x, 0 * z))[0]

    r, run = executable(gpu, along if derived else f, [real(*n), pairs(*n)])
    for _ in range(4):
        check(r, run, r.arrays)
    ranks = sorted(len(form.lengths) for form, _ in gpu.driver.plans)
    assert ranks == [1, 1, 2, 2, 2, 3, 3, 3, 3]


def test_transforms_that_others_read_stay(gpu: FakeGpu) -> None:
    def f(z: Any) -> Any:
        once = np.fft.fft(z)
        twice = np.fft.fft(once, axis=0)
        return once, twice, np.fft.fft(np.fft.fft(z, axis=0), axis=2), np.fft.ifft(once, axis=1)

    compared(gpu, f, pairs(3, 4, 5))
    assert [len(form.lengths) for form, _ in gpu.driver.plans] == [1] * 5


def test_operands_of_real_results_live_on(gpu: FakeGpu) -> None:
    """Such a transform destroys what it reads: inputs and what is read again are copied."""

    def f(z: Any, x: Any) -> Any:
        half = np.fft.rfft(x)
        back, again = np.fft.irfft(half), np.fft.irfft(half, 6)
        both = np.concatenate([np.fft.rfft(x + 1), np.fft.rfft(x + 2)])
        return np.fft.irfft(z), back, again, np.fft.irfft(both[:2]), np.fft.irfft(both), z

    r, run = executable(gpu, f, [pairs(4, 5), real(4, 8)])
    for _ in range(4):
        arrays = [moved(a) for a in r.arrays]
        check(r, run, arrays)
        for a, before in zip(arrays, r.arrays, strict=True):
            np.testing.assert_array_equal(np.asarray(a), before)


def test_temporaries_are_not_copied(gpu: FakeGpu) -> None:
    def f(x: Any) -> Any:
        return np.tanh(np.fft.irfft(np.fft.rfft(np.exp(x))))

    run = compared(gpu, f, real(3, 8))
    gpu.driver.log.clear()
    run([moved(real(3, 8))])
    launched = [about for name, about in gpu.driver.log if name == "launch"]
    assert "laid_pairs" not in launched


UNSCALED = {"fftn": "backward", "ifftn": "forward", "rfftn": "backward"}


def random_layout(rng: np.random.Generator, longest: int = 6) -> tuple[Any, Any]:
    """Return a transform of a view with any strides, along axes side by side, and its operand."""
    name = str(rng.choice(list(UNSCALED)))
    ndim = int(rng.integers(1, 5))
    shape = tuple(int(n) for n in rng.integers(1, longest + 1, ndim))
    whole = tuple(n + int(rng.integers(2)) for n in shape)
    order = rng.permutation(ndim)
    box = tuple(slice(int(n > k), None) for n, k in zip(whole, shape, strict=True))
    first = int(rng.integers(ndim))
    axes = tuple(range(first, int(rng.integers(first, min(first + 3, ndim))) + 1))
    function = getattr(np.fft, name)

    def f(x: Any) -> Any:
        return function(x[box].transpose(order), None, axes, UNSCALED[name])

    return f, operand(name.removesuffix("n"), whole, str(rng.choice(["f", "d"])))


def test_random_layouts(gpu: FakeGpu) -> None:
    """Launches agree with NumPy, whatever they copy."""
    rng = np.random.default_rng(2)
    straight = 0
    for _ in range(30):
        f, x = random_layout(rng)
        r, run = executable(gpu, f, [x])
        assert on_host(run) == []
        gpu.driver.log.clear()
        check(r, run, r.arrays)
        straight += [about for name, about in gpu.driver.log if name == "launch"] == []
    assert 5 < straight < 25


def filtered(x: Any, w: Any) -> Any:
    y = np.tanh(np.fft.irfft(np.fft.rfft(np.tanh(x), axis=0, norm="ortho") * w, len(x), 0))
    return np.sum(np.real(np.fft.fftn(y * (1 + 1j))) ** 2)


def test_the_way_back_transforms_too(gpu: FakeGpu) -> None:
    for n in (8, 9):
        compared(gpu, adarray.value_and_grad(filtered, (0, 1)), real(n, 3), real(n // 2 + 1, 1))
    assert {form.kind for form, _ in gpu.driver.plans} == {"C2C", "R2C", "C2R"}


def test_inputs_between_multiples_of_a_number(gpu: FakeGpu) -> None:
    """Pairs are taken at multiples of their size only: others are copied first."""
    r, run = executable(gpu, np.fft.rfft, [real(3, 8, dtype=np.float32)])
    check(r, run, r.arrays)
    x = moved(real(25, dtype=np.float32))[1:].reshape(3, 8)
    assert x.data.ptr % 8
    for _ in range(4):
        (got,) = run([x])
        np.testing.assert_allclose(np.asarray(got), np.fft.rfft(np.asarray(x)), rtol=1e-5)
    check(r, run, r.arrays)


def test_inputs_that_move_are_copied_for_graphs(gpu: FakeGpu) -> None:
    _, run = executable(gpu, lambda x: np.fft.rfft(x[1:], axis=1), [real(5, 6)])
    inputs = [moved(real(5, 6)) for _ in range(40)]
    for x in inputs:
        gpu.driver.names()
        (got,) = run([x])
        np.testing.assert_allclose(np.asarray(got), np.fft.rfft(np.asarray(x)[1:], axis=1))
    assert "copy" in gpu.driver.names()


def test_plans_that_cufft_lacks_are_run_by_python(gpu: FakeGpu) -> None:
    gpu.cufft = False

    def f(x: Any, z: Any) -> Any:
        return (
            np.fft.hfft(z, 7, norm="ortho"), np.fft.ihfft(x), np.fft.fft2(z, norm="ortho"),
            np.fft.fft(z, 20), np.fft.irfft2(z), np.fft.ifft(x),
        )  # fmt: skip

    r, run = executable(gpu, f, [real(4, 6), pairs(4, 6)])
    for _ in range(4):
        check(r, run, r.arrays)
    assert on_host(run) == ["fourier"] * 6


def test_memory_to_work_in_belongs_to_temporaries(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """Much of it is given back after each run, as much of those is."""
    r, run = executable(gpu, np.fft.rfft, [real(8)])
    assert run.instances.arena == run.encoder.arena >= run.plan.arena + 768
    check(r, run, r.arrays)
    assert run.instances.idle[0][0].arena is not None
    monkeypatch.setattr(instances, "LASTING", 0)
    monkeypatch.setattr(gpu, "spare", lambda: 0)
    for _ in range(4):
        check(r, run, r.arrays)
        assert run.instances.idle[0][0].arena is None


def test_errors_of_cufft_name_the_step(gpu: FakeGpu) -> None:
    r, run = executable(gpu, np.fft.rfft, [real(8)])
    check(r, run, r.arrays)
    gpu.driver.failing["transform"] = 6
    with pytest.raises(BackendError, match=r"rfft; .*could not be launched: cuFFT's status 6"):
        run([moved(a) for a in r.arrays])


def test_streams_share_plans(gpu: FakeGpu) -> None:
    r, run = executable(gpu, np.fft.rfft, [real(8)])
    work = set()
    for stream in (0, 48):
        gpu.now = gpu.now._replace(ptr=stream)
        check(r, run, r.arrays)
        assert gpu.driver.told["stream", 0] == stream
        work.add(gpu.driver.told["memory", 0])
    assert len(gpu.driver.plans) == 1
    assert len(work) == 2


def test_arrays_of_many_axes_that_no_plan_covers(gpu: FakeGpu) -> None:
    """Neither cuFFT nor a copy can go through so many strides."""
    x = real(*(3,) * 7)
    r, run = executable(gpu, lambda x: np.fft.rfft(x.transpose(5, 1, 3, 0, 4, 2, 6), axis=3), [x])
    assert on_host(run) == ["fourier"]
    check(r, run, r.arrays)


# -- as users call it, and on a GPU -------------------------------------------------------------


@pytest.mark.parametrize("n", [8, 9])
def test_gradients_under_jit(device_backend: str, n: int) -> None:
    x, w = real(n, 3), real(n // 2 + 1, 1)
    value, grads = adarray.value_and_grad(filtered, (0, 1))(x, w)
    step = adarray.jit(adarray.value_and_grad(filtered, (0, 1)))
    with adarray.use(device_backend):
        place = adarray.array(x), adarray.array(w)
        for _ in range(5):
            got, gradients = step(*place)
            np.testing.assert_allclose(got.numpy(), value, rtol=1e-9)
            for a, b in zip(gradients, grads, strict=True):
                np.testing.assert_allclose(a.numpy(), b, rtol=1e-8, atol=1e-9)


def on_gpu_compared(f: Any, *args: Any) -> Any:
    """Run on a GPU, as launches and graphs, beside the interpreter; return the run."""
    import cupy
    from adarray_backends.cuda.plans import executable as compiled

    r = recorded(f, *args)
    arrays = [np.asarray(x) for x in r.arrays]
    expected = interpret(r.program, arrays)
    run = compiled(plan(r.program))
    assert on_host(run) == []
    single = {np.dtype(np.float32), np.dtype(np.complex64)}
    for _ in range(5):
        for got, want in zip(run([cupy.asarray(x) for x in arrays]), expected, strict=True):
            close(got.get(), want, 1e-4 if np.asarray(want).dtype in single else 1e-10)
    return run


@pytest.mark.gpu
@pytest.mark.usefixtures("on_gpu")
@pytest.mark.parametrize("char", ["f", "d"])
@pytest.mark.parametrize("name", [*OF_REAL, *TO_REAL, *COMPLEX])
def test_kinds_on_a_gpu(name: str, char: str) -> None:
    """Every axis, norm and parity, cut and filled up; prime and large lengths."""
    function = getattr(np.fft, name)

    def f(x: Any, y: Any, z: Any) -> Any:
        results = [function(x, axis=k, norm=norm) for k in range(3) for norm in NORMS]
        results += [function(x, n, axis=k) for k in range(3) for n in (1, 2, 7, 40)]
        results += [function(x[1:, ::2], axis=0), function(x[:, 1], 9), function(x * 2, 12)]
        return (*results, function(y), function(z), function(z[:-1]))

    args = operand(name, (6, 20, 33), char), operand(name, (1 << 18,), char)
    run = on_gpu_compared(f, *args, operand(name, (10007,), char))
    assert run.counts().replays > 0


@pytest.mark.gpu
@pytest.mark.usefixtures("on_gpu")
@pytest.mark.parametrize("char", ["f", "d"])
@pytest.mark.parametrize("n", [(16, 20, 24), (7, 9, 11), (3, 1, 128)])
def test_several_axes_on_a_gpu(n: tuple[int, ...], char: str) -> None:
    def f(x: Any, z: Any) -> Any:
        half = np.fft.rfftn(x)
        return (
            half, np.fft.irfftn(half, n, (0, 1, 2)), np.fft.fftn(z), np.fft.ifftn(z),
            np.fft.rfft2(x, norm="forward"), np.fft.ifft2(z, axes=(0, 1), norm="ortho"),
            np.fft.fft2(z), np.fft.rfftn(x, axes=(2, 0)), np.fft.irfft2(z),
            np.fft.irfft2(np.fft.rfft2(x)),
        )  # fmt: skip

    on_gpu_compared(f, real(*n, dtype=char), pairs(*n, dtype=char.upper()))


@pytest.mark.gpu
@pytest.mark.usefixtures("on_gpu")
def test_random_layouts_on_a_gpu() -> None:
    rng = np.random.default_rng(4)
    for _ in range(100):
        f, x = random_layout(rng, 24)
        on_gpu_compared(f, x)


@pytest.mark.gpu
@pytest.mark.usefixtures("on_gpu")
@pytest.mark.parametrize("n", [64, 63])
def test_gradients_on_a_gpu(n: int) -> None:
    f = adarray.value_and_grad(filtered, (0, 1))
    on_gpu_compared(f, real(n, 40), real(n // 2 + 1, 1))
    on_gpu_compared(f, *(x.astype(np.float32) for x in (real(n, 40), real(n // 2 + 1, 1))))


@pytest.mark.gpu
@pytest.mark.usefixtures("on_gpu")
def test_inputs_and_temporaries_stay_on_a_gpu() -> None:
    import cupy
    from adarray_backends.cuda.plans import executable as compiled

    def f(z: Any, x: Any) -> Any:
        half = np.fft.rfft(x)
        return np.fft.irfft(z), np.fft.irfft(half), np.fft.irfft(half, 100), np.fft.irfft2(z), z

    args = [pairs(300, 65), real(300, 128)]
    r = recorded(f, *args)
    run = compiled(plan(r.program))
    placed = [cupy.asarray(x) for x in args]
    for _ in range(5):
        for got, want in zip(run(placed), interpret(r.program, args), strict=True):
            close(got.get(), want, 1e-10)
    for got, want in zip(placed, args, strict=True):
        np.testing.assert_array_equal(got.get(), want)


@pytest.mark.gpu
@pytest.mark.usefixtures("on_gpu")
def test_a_transform_and_kernels_are_one_graph() -> None:
    """Results move from call to call, inputs too."""
    import cupy
    from adarray_backends.cuda.plans import executable as compiled

    def f(x: Any) -> Any:
        return np.tanh(np.fft.irfft(np.fft.rfft(np.exp(x), norm="ortho")))

    r = recorded(f, real(50, 128, dtype=np.float32))
    run = compiled(plan(r.program))
    assert len(run.segments) == 1
    results = []
    for _ in range(60):
        x = real(50, 128, dtype=np.float32)
        (got,) = run([cupy.asarray(x)])
        results.append((got, f(x)))
    for got, want in results:
        close(got.get(), want, 1e-5)
    assert run.counts().replays > 30


@pytest.mark.gpu
@pytest.mark.usefixtures("on_gpu")
def test_plans_are_shared_and_few_on_a_gpu() -> None:
    """By plans of jit and streams; those that nobody uses go."""
    import cupy
    from adarray_backends.cuda import cufft
    from adarray_backends.cuda.plans import executable as compiled

    r = recorded(np.fft.rfft, real(40, 96))
    runs = [compiled(plan(r.program)) for _ in range(2)]
    first, second = (run.encoder.references for run in runs)
    assert first[0] is second[0]
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(3)]
    several = [cupy.asarray(real(40, 96)) for _ in streams]
    cupy.cuda.Device().synchronize()
    for k in range(12):
        results = []
        for stream, x in zip(streams, several, strict=True):
            with stream:
                results.append(runs[k % 2]([x])[0])
        cupy.cuda.Device().synchronize()
        for x, got in zip(several, results, strict=True):
            close(got.get(), np.fft.rfft(x.get()), 1e-10)
    for n in range(2, cufft.KEPT + 20):
        x = real(3, n)
        run = compiled(plan(recorded(np.fft.rfft, x).program))
        close(run([cupy.asarray(x)])[0].get(), np.fft.rfft(x), 1e-10)
    assert len(cufft._plans) == cufft.KEPT

"""Factorisations and solutions as steps of plans, with a driver that is none: see fake_gpu.py."""

from __future__ import annotations

from dataclasses import replace
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
from adarray.ops.matrices import block_rows

pytest.importorskip("scipy")
pytest.importorskip("adarray_native._device")
from adarray_backends.cuda.solvers import limits_of

SHARED = 43 << 10
LIMITS = limits_of("d", SHARED)
# What one block factorises, what is factorised in blocks, and what cuSOLVER gets.
SMALL, MIDDLE, LARGE = 7, LIMITS.block + 11, LIMITS.solve + 6
SEVERAL = pytest.param(MIDDLE, marks=pytest.mark.slow)  # blocks of columns: emulated for seconds
RNG = np.random.default_rng(5)


@pytest.fixture
def gpu(tmp_path: Path) -> FakeGpu:
    gpu = FakeGpu(tmp_path)
    gpu.target = replace(gpu.target, shared_memory=SHARED)
    return gpu


def matrix(n: int, dtype: Any = np.float64) -> np.ndarray:
    return (RNG.normal(size=(n, n)) / np.sqrt(n) + 3 * np.eye(n)).astype(dtype)


def definite(n: int, dtype: Any = np.float64) -> np.ndarray:
    x = RNG.normal(size=(n, n))
    return (x @ x.T / n + np.eye(n)).astype(dtype)


def segments(run: Any) -> list[str]:
    """Return what runs each segment of a plan."""
    return [
        "python" if s.words is None else "linalg" if s.linalg else "graph" for s in run.segments
    ]


def compared(gpu: FakeGpu, f: Any, *args: Any) -> Any:
    """Run four times, as launches and graphs; compare with the interpreter; return the run."""
    r, run = executable(gpu, f, list(args))
    gpu.driver.names()
    for _ in range(4):
        check(r, run, r.arrays)
    assert "python" not in segments(run)
    assert "call" not in gpu.driver.names()
    return run


@pytest.mark.parametrize(
    ("n", "dtype"),
    [(1, np.float64), (SMALL, np.float32), (SMALL, np.float64), (45, np.float32),
     pytest.param(LIMITS.block, np.float64, marks=pytest.mark.slow),
     pytest.param(MIDDLE, np.float64, marks=pytest.mark.slow), (LARGE, np.float64)],
)  # fmt: skip
def test_systems_share_their_factors(gpu: FakeGpu, n: int, dtype: Any) -> None:
    def f(a: Any, b: Any, c: Any) -> Any:
        sign, logarithm = np.linalg.slogdet(a)
        return (
            np.linalg.solve(a, b), np.linalg.solve(a.T, c), np.linalg.solve(a, c),
            np.linalg.inv(a), np.linalg.inv(a.T), np.linalg.det(a / n), sign, logarithm,
        )  # fmt: skip

    b, c = (RNG.normal(size=s).astype(dtype) for s in ((n,), (n, 21)))
    run = compared(gpu, f, matrix(n, dtype), b, c)
    large = n > LIMITS.solve
    assert ("linalg" in segments(run)) == large
    gpu.driver.names()
    run([moved(a) for a in (matrix(n, dtype), b, c)])
    assert gpu.driver.names().count("getrf") == (2 if large else 0)  # of `a` and of `a / n`


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("n", [SMALL, SEVERAL, LARGE])
def test_what_cholesky_returns_is_a_triangle(gpu: FakeGpu, n: int, upper: bool) -> None:
    def f(a: Any, b: Any) -> Any:
        factor = np.linalg.cholesky(a, upper=upper)
        block = factor[2:, 2:]
        return (
            factor, np.linalg.solve(factor, b), np.linalg.solve(factor.T, b[:, 0]),
            np.linalg.solve(block.T, b[2:]),
        )  # fmt: skip

    run = compared(gpu, f, definite(n), RNG.normal(size=(n, 18)))
    gpu.driver.names()
    run([moved(a) for a in (definite(n), RNG.normal(size=(n, 18)))])
    names = gpu.driver.names()
    assert names.count("trsm") == (3 if n == LARGE else 0)
    assert names.count("potrf") == (n == LARGE)


def test_only_the_named_triangle_is_read(gpu: FakeGpu) -> None:
    for n in (SMALL, MIDDLE, LARGE):
        a = definite(n)
        lower, upper = np.tril(a) + np.triu(RNG.normal(size=(n, n)), 1), np.triu(a)
        compared(gpu, lambda x, y: (np.linalg.cholesky(x), np.linalg.cholesky(y, upper=True)),
                 lower, upper)  # fmt: skip


def test_rows_are_exchanged(gpu: FakeGpu) -> None:
    for n in (SMALL, 40, MIDDLE, LARGE):
        order = RNG.permutation(n)
        a = (np.eye(n) + 0.01 * RNG.normal(size=(n, n)))[order]
        compared(gpu, lambda a, b: (np.linalg.solve(a, b), np.linalg.slogdet(a)[0]), a,
                 RNG.normal(size=n))  # fmt: skip


@pytest.mark.parametrize("n", [SMALL, SEVERAL, LARGE])
def test_operands_with_gaps(gpu: FakeGpu, n: int) -> None:
    def f(a: Any, b: Any) -> Any:
        return np.linalg.solve(a[1:, 1:], b[1:, ::2]), np.linalg.cholesky((a @ a.T)[:-1, :-1])

    compared(gpu, f, matrix(n + 1), RNG.normal(size=(n + 1, 9)))


def gaussian(x: Any, y: Any) -> Any:
    k = np.exp(-0.5 * np.sum((x[:, None] - x[None]) ** 2, -1)) + 0.1 * np.eye(len(x))
    return 0.5 * y @ np.linalg.solve(k, y) + 0.5 * np.linalg.slogdet(k)[1]


@pytest.mark.parametrize("n", [SMALL, SEVERAL, LARGE])
def test_the_way_back_solves_with_the_factors(gpu: FakeGpu, n: int) -> None:
    args = RNG.normal(size=(n, 3)), RNG.normal(size=n)
    run = compared(gpu, adarray.value_and_grad(gaussian, argnums=(0, 1)), *args)
    gpu.driver.names()
    run([moved(a) for a in args])
    names = gpu.driver.names()
    assert names.count("getrf") == (n == LARGE)
    assert names.count("getrs") == (3 if n == LARGE else 0)  # forward, backward, the inverse
    # Whether a matrix was refused is asked once.
    assert names.count("synchronize") == 1


REFUSING = {
    "solve": np.linalg.solve,
    "inv": lambda a, b: np.linalg.inv(a) @ b,
    "cholesky": lambda a, b: np.linalg.cholesky(a) @ b,
}


@pytest.mark.parametrize("name", REFUSING)
@pytest.mark.parametrize("n", [SMALL, SEVERAL, LARGE])
def test_singular_matrices_are_refused(gpu: FakeGpu, n: int, name: str) -> None:
    def f(a: Any, b: Any) -> Any:
        return np.tanh(REFUSING[name](a, b)) * 2

    good, b = definite(n), RNG.normal(size=(n, 2))
    r, run = executable(gpu, f, [good, b])
    bad = good.copy()
    bad[3] = bad[:, 3] = 0
    for _ in range(4):
        check(r, run, r.arrays)
        with pytest.raises(BackendError, match="refused its data"):
            run([moved(bad), moved(b)])
    nan = np.full_like(good, np.nan)
    if name == "cholesky":
        with pytest.raises(BackendError, match="refused its data"):
            run([moved(nan), moved(b)])
    else:
        assert np.all(np.isnan(run([moved(nan), moved(b)])[0]))
    check(r, run, r.arrays)


@pytest.mark.parametrize("n", [SMALL, SEVERAL, LARGE])
def test_a_zero_on_the_diagonal_of_a_triangle_is_refused(gpu: FakeGpu, n: int) -> None:
    """A factor that underflows to zero; where LAPACK's own factorisation refuses nothing."""
    r, run = executable(
        gpu, lambda a, b: np.linalg.solve(np.linalg.cholesky(a), b), [definite(n), np.ones(n)]
    )
    check(r, run, r.arrays)
    with pytest.raises(BackendError, match="refused its data"):
        run([moved(np.diag(np.r_[np.ones(n - 1), 0.0])), moved(np.ones(n))])


@pytest.mark.parametrize("n", [SMALL, SEVERAL, LARGE])
def test_determinants_of_singular_matrices(gpu: FakeGpu, n: int) -> None:
    r, run = executable(gpu, lambda a: (*np.linalg.slogdet(a), np.linalg.det(a / 2)), [matrix(n)])
    check(r, run, r.arrays)
    assert [float(x) for x in run([moved(np.zeros((n, n)))])] == [0, -np.inf, 0]
    nan = [float(x) for x in run([moved(np.full((n, n), np.nan))])]
    assert np.isnan(nan[1:]).all()


def test_errors_of_the_library_name_the_step(gpu: FakeGpu) -> None:
    r, run = executable(gpu, np.linalg.solve, [matrix(LARGE), np.ones(LARGE)])
    check(r, run, r.arrays)
    gpu.driver.failing["getrf"] = 7
    with pytest.raises(
        BackendError, match=r"solve; .*could not be launched: the status 7 of cuSOLVER"
    ):
        run([moved(a) for a in r.arrays])


def test_streams_have_handles_of_their_own(gpu: FakeGpu) -> None:
    r, run = executable(gpu, np.linalg.solve, [matrix(LARGE), np.ones(LARGE)])
    slots = run.encoder.handles
    assert list(slots) == ["cusolver"]
    seen = set()
    for stream in (0, 48):
        gpu.now = gpu.now._replace(ptr=stream)
        check(r, run, r.arrays)
        x = run.instances.idle[stream][0]
        seen.add(int(x.addresses[slots["cusolver"]]))
        assert x.owners == [gpu.now]
    assert seen == {0, 48}


def test_other_matrices_are_not_covered(gpu: FakeGpu) -> None:
    """Stacks and complex numbers are computed by the library's functions."""
    for a in (np.stack([matrix(4)] * 2), matrix(4) + 1j):
        r, run = executable(gpu, np.linalg.inv, [a])
        assert "python" in segments(run)
        want = interpret(r.program, [a])[0]
        np.testing.assert_allclose(np.asarray(run([moved(a)])[0]), want)


# -- as users call it, and on a GPU -------------------------------------------------------------


@pytest.mark.parametrize("name", REFUSING)
@pytest.mark.parametrize("n", [3, 130])
def test_jit_raises_numpys_error_and_goes_on(device_backend: str, n: int, name: str) -> None:
    good, b = definite(n), RNG.normal(size=(n, 2))
    bad = good.copy()
    bad[1] = bad[:, 1] = 0
    step = adarray.jit(lambda a, b: (REFUSING[name](a, b), a + 1))
    with adarray.use(device_backend):
        for a in (good, good, good, bad, good, bad, good):
            place = adarray.array(a), adarray.array(b)
            if a is bad:
                with pytest.raises(np.linalg.LinAlgError):
                    step(*place)
                continue
            got, more = step(*place)
            np.testing.assert_allclose(got.numpy(), REFUSING[name](a, b), rtol=1e-8, atol=1e-8)
            np.testing.assert_allclose(more.numpy(), a + 1)


@pytest.mark.parametrize("n", [40, 130])
def test_a_loop_whose_results_come_back_still_raises(device_backend: str, n: int) -> None:
    """What was refused is computed again from arguments that nobody has written over."""
    step = adarray.jit(lambda a, x: (a - np.eye(n), x + np.linalg.solve(a, x)))
    with adarray.use(device_backend):
        a, x = adarray.array(4 * np.eye(n)), adarray.array(np.ones(n))
        for _ in range(4):
            a, x = step(a, x)
        with pytest.raises(np.linalg.LinAlgError):
            step(a, x)
        want = np.prod([1 + 1 / j for j in (4, 3, 2, 1)])
        np.testing.assert_allclose(x.numpy(), np.full(n, want))
        np.testing.assert_allclose(a.numpy(), np.zeros((n, n)))


def test_recursions_leave_more_rows_to_a_device(device_backend: str) -> None:
    """In eager code, and in what `jit` records."""
    rows: list[int] = []

    def f(a: Any) -> Any:
        rows.append(block_rows(300))
        return 2 * a

    f(np.ones(3))
    adarray.jit(f)(np.ones(3))
    assert set(rows) == {128}
    rows.clear()
    with adarray.use(device_backend):
        f(adarray.array(np.ones(3)))
        adarray.jit(f)(adarray.array(np.ones(3)))
    assert set(rows) == {1024}


@pytest.mark.gpu
@pytest.mark.usefixtures("on_gpu")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 2, 31, 33, 100, 200, 224, 225, 264, 512, 768, 1000])
def test_on_a_gpu(n: int, dtype: Any) -> None:
    """Every step, as launches and in graphs, in columns and rows, beside the interpreter."""
    import cupy
    from adarray_backends.cuda.plans import executable as compiled

    def f(a: Any, s: Any, b: Any, c: Any) -> Any:
        lower, upper = np.linalg.cholesky(s), np.linalg.cholesky(s, upper=True)
        return (
            np.linalg.solve(a, b), np.linalg.solve(a.T, c), np.linalg.solve(a, c),
            np.linalg.inv(a), np.linalg.inv(a.T), *np.linalg.slogdet(a), np.linalg.det(a.T / 5),
            lower, upper, np.linalg.solve(lower, c), np.linalg.solve(lower.T, b),
            np.linalg.solve(upper, b), np.linalg.solve(upper.T, c),
        )  # fmt: skip

    a = matrix(n, dtype)
    b, c = (RNG.normal(size=s).astype(dtype) for s in ((n,), (n, 37)))
    r = recorded(f, a, definite(n, dtype), b, c)
    arrays = [np.asarray(x) for x in r.arrays]
    expected = interpret(r.program, arrays)
    run = compiled(plan(r.program))
    assert "python" not in segments(run)
    for _ in range(5):
        for got, want in zip(run([cupy.asarray(x) for x in arrays]), expected, strict=True):
            close(got.get(), want, 2e-3 if dtype == np.float32 else 1e-9)


@pytest.mark.gpu
@pytest.mark.usefixtures("on_gpu")
@pytest.mark.parametrize("n", [50, 700])
def test_streams_of_a_gpu(n: int) -> None:
    """Two streams at once, each with its own handle and workspace."""
    import cupy
    from adarray_backends.cuda.plans import executable as compiled

    def f(a: Any, b: Any) -> Any:
        return np.linalg.solve(a, b), np.linalg.inv(a), np.linalg.solve(np.linalg.cholesky(a), b)

    several = [(definite(n), RNG.normal(size=(n, 3))) for _ in range(2)]
    r = recorded(f, *several[0])
    run = compiled(plan(r.program))
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in several]
    placed = [[cupy.asarray(x) for x in args] for args in several]
    cupy.cuda.Device().synchronize()
    for _ in range(10):
        results = []
        for stream, arrays in zip(streams, placed, strict=True):
            with stream:
                results.append(run(arrays))
        cupy.cuda.Device().synchronize()
        for args, got in zip(several, results, strict=True):
            for x, want in zip(got, interpret(r.program, list(args)), strict=True):
                close(x.get(), want, 1e-8)

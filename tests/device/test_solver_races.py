"""Kernels of factorisations do not race in shared memory: see device_races.h."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fake_gpu import FakeGpu
from launched import check, executable, moved

from adarray.errors import BackendError

pytest.importorskip("scipy")
pytest.importorskip("adarray_native._device")
from adarray_backends.cuda.solvers import SolverText, limits_of

RNG = np.random.default_rng(6)
SHARED = 43 << 10
LIMITS = limits_of("d", SHARED)
# A warp exchanges values, or a block does. Each in a way that is right, and one that races.
KERNEL = """
template <int N> ADARRAY_IN void exchanged(double *r)
{
    __shared__ double near[N];
    __shared__ unsigned count;
    const int t = threadIdx.x;
    %s
}
extern "C" __global__ void exchange(double *r) { exchanged<64>(r); }
"""
ORDERED = {
    "block": "near[t] = t; __syncthreads(); r[t] = near[63 - t];",
    "warp": "near[t] = t; __syncwarp(~0u); r[t] = near[t ^ 1];",
    "own": "near[t] = t; r[t] = near[t]; near[t] = 2;",
    "readers": "if (t == 40) near[0] = t; __syncthreads(); r[t] = near[0];",
    "atomics": "atomicAdd(&count, 1u); __syncthreads(); r[t] = count;",
    "copies": "adarray_begin<8>(near + t, r + t); adarray_commit(); adarray_arrived<0>(); "
              "__syncthreads(); r[t] = near[63 - t];",
}  # fmt: skip
RACING = {
    "block": "near[t] = t; __syncwarp(~0u); r[t] = near[63 - t];",
    "warp": "near[t] = t; r[t] = near[t ^ 1];",
    "shuffle": "near[t] = t; r[t] = __shfl_sync(~0u, t, 0) + near[t ^ 1];",
    "overwrite": "r[t] = near[t ^ 1]; near[t] = t;",
    "overwrite by another warp": "r[t] = near[t ^ 32]; __syncwarp(~0u); near[t] = t;",
    "writers": "near[t / 2] = t; __syncthreads(); r[t] = near[0];",
    "atomics": "atomicAdd(&count, 1u); r[t] = count;",
    "an early copy": "near[t] = r[t]; __syncthreads(); adarray_begin<8>(near + t, r + t); "
                     "adarray_commit(); r[t] = near[t ^ 1]; adarray_arrived<0>();",
}  # fmt: skip


@pytest.fixture(scope="module")
def gpu(tmp_path_factory: pytest.TempPathFactory) -> FakeGpu:
    """Return a GPU for all tests, since kernels compile slowly."""
    gpu = FakeGpu(tmp_path_factory.mktemp("races"))
    gpu.races = True
    gpu.target = replace(gpu.target, shared_memory=SHARED)
    return gpu


@pytest.mark.parametrize("name", ORDERED)
def test_what_barriers_order_is_no_race(gpu: FakeGpu, name: str) -> None:
    assert exchanged(gpu, ORDERED[name]) == 0


@pytest.mark.parametrize("name", RACING)
def test_what_they_do_not_order_is_one(gpu: FakeGpu, name: str) -> None:
    assert exchanged(gpu, RACING[name]) == 2


def exchanged(gpu: FakeGpu, body: str) -> int:
    """Run a kernel of two warps; return its status."""
    functions = gpu.load([SolverText("exchange", (), KERNEL % body)]).functions
    run = gpu.driver.kernels[functions["exchange"]][2]
    room = np.zeros(64)
    cells = gpu.driver.ffi.new("uint64_t[]", [room.ctypes.data])
    return int(run(cells, 1, 1, 64))


def solutions(a: Any, s: Any, b: Any, c: Any) -> Any:
    lower, upper = np.linalg.cholesky(s), np.linalg.cholesky(s, upper=True)
    return (
        np.linalg.solve(a, b), np.linalg.solve(a.T, c), np.linalg.inv(a), *np.linalg.slogdet(a),
        lower, np.linalg.solve(lower, c), np.linalg.solve(upper, b),
    )  # fmt: skip


def system(n: int, columns: int, dtype: Any) -> list[np.ndarray]:
    """Return a matrix whose rows are exchanged, a definite one, and two right-hand sides."""
    x = RNG.normal(size=(n, n))
    a = (3 * np.eye(n) + x / np.sqrt(n))[RNG.permutation(n)]
    b, c = RNG.normal(size=n), RNG.normal(size=(n, 2 * columns))[:, ::2]
    return [v.astype(dtype) for v in (a, x @ x.T / n + np.eye(n), b, c)]


@pytest.mark.parametrize(
    ("n", "columns", "dtype"),
    [(1, 1, np.float64), (33, 0, np.float32), (LIMITS.block - 3, 33, np.float64),
     (LIMITS.block + 11, 9, np.float64), (95, 9, np.float32)],
)  # fmt: skip
def test_factorisations_and_solutions(gpu: FakeGpu, n: int, columns: int, dtype: Any) -> None:
    r, run = executable(gpu, solutions, system(n, columns, dtype))
    check(r, run, r.arrays)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "dtype"),
    [(160, np.float64), (224, np.float32), (240, np.float64), (300, np.float32)],
)  # fmt: skip
def test_matrices_that_fill_the_memory_of_a_large_gpu(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, n: int, dtype: Any
) -> None:
    monkeypatch.setattr(gpu, "target", replace(gpu.target, shared_memory=227 << 10))
    r, run = executable(gpu, solutions, system(n, 1, dtype))
    check(r, run, r.arrays)


@pytest.mark.parametrize("bad", [0.0, np.nan, np.inf])
def test_pivots_that_are_no_numbers(gpu: FakeGpu, bad: float) -> None:
    """Which threads exchange what depends on the pivots."""
    args = system(37, 2, np.float64)
    for solve, good in ((np.linalg.inv, args[0]), (np.linalg.cholesky, args[1])):
        r, run = executable(gpu, lambda x, solve=solve: solve(x) + 1, [good])
        check(r, run, r.arrays)
        x = good.copy()
        x[20] = x[:, 20] = bad
        if bad == 0 or solve is np.linalg.cholesky:
            with pytest.raises(BackendError, match="refused its data"):
                run([moved(x)])
        else:
            assert np.isnan(run([moved(x)])[0]).any()

"""Tables in shared memory: what they add up, when they are chosen, and that nvcc compiles them."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
from pathlib import Path
from typing import Any

import device
import host_gpu
import numpy as np
import pytest
from cuda_kernels import CASES

import adarray
from adarray.compiling import GPU
from adarray.kernels import RawKernel, print_cuda, print_tables, tables
from adarray.kernels.copies import added

NEEDS_GXX = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
NEEDS_NVCC = pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")

# Sums in bins of two sizes, by a grid-stride loop; rows of three for each; a number of all.
BINS = r"""
__global__ void bins(const double *x, const double *w, const int *at, double *out, double scale,
                     int n) {
    const int first = (blockIdx.y * gridDim.x + blockIdx.x) * blockDim.x + threadIdx.x;
    for (int i = first; i < n; i += gridDim.x * gridDim.y * blockDim.x) {
        double s = 0;
        for (int k = 0; k < 3; k++) s += w[3 * at[i] + k] * x[i];
        out[i] = scale * s * x[i];
    }
}
"""


def _engine(monkeypatch: pytest.MonkeyPatch, together: bool, sms: int) -> list[tables.Plan]:
    """Let `adarray.use("standin")` run CUDA text; return where plans of launches will be."""
    device.installed(monkeypatch)
    engine = host_gpu.HostGpu("standin", device.library())
    engine.together = together
    engine.target = dataclasses.replace(GPU, sms=sms)
    monkeypatch.setattr(device.StandIn, "engine", lambda _self: engine)
    plans: list[tables.Plan] = []
    run = tables.BlockTables.run
    monkeypatch.setattr(
        tables.BlockTables,
        "run",
        lambda self, plan, *args: plans.append(plan) or run(self, plan, *args),
    )
    return plans


def _agree(f: Any, xs: list[Any]) -> None:
    gradients = []
    for backend in ("serial", "standin"):
        with adarray.use(backend):
            gradient = adarray.grad(f, tuple(range(len(xs))))(*xs)
            gradients.append([np.asarray(g) for g in gradient])
    for a, b in zip(*gradients, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11)


@NEEDS_GXX
@pytest.mark.parametrize(("together", "limit"), [(False, 1 << 30), (True, 1 << 30), (False, 6000)])
def test_blocks_add_up_in_tables(
    together: bool, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = _engine(monkeypatch, together, 2)
    case = CASES["cross_sections"]
    args = case.args(np.random.default_rng(0), np.float64)
    blocks = 11
    count = 32 * blocks - (0 if together else 5)
    args[0], args[4] = np.random.default_rng(1).uniform(0, 1, count), np.zeros((count, 5))
    args[5] = count
    kernel = RawKernel(case.text("float64"), case.name, memory_limit=limit)
    f = lambda *by: np.sum(np.sin(kernel.apply(blocks, 32, (*by, *args[4:]))))  # noqa: E731
    _agree(f, args[:4])
    # Two multiprocessors take six blocks each; with little memory, tapes need parts of the grid.
    whole = [(p.tables, p.blocks, p.threads) for p in plans]
    assert whole == [(("densities__b", "grids__b", "data__b"), 2, 192)] * (limit > 6000)


@NEEDS_GXX
def test_blocks_of_several_axes_and_a_sum_over_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    plans = _engine(monkeypatch, False, 2)
    rng = np.random.default_rng(0)
    n, kernel = 700, RawKernel(BINS, "bins")
    at = rng.integers(0, 7, n).astype(np.int32)

    def f(x: Any, w: Any, scale: Any) -> Any:
        return np.sum(np.sin(kernel.apply((3, 2), 64, (x, w, at, np.zeros(n), scale, n))))

    _agree(f, [rng.normal(size=n), rng.normal(size=21), 0.7])
    assert [set(p.tables) for p in plans] == [{"scale__sum", "w__b"}]


def test_tables_are_chosen_where_much_is_added_to_little() -> None:
    case = CASES["cross_sections"]
    kernel = RawKernel(case.text("float32"), case.name)
    args = case.args(np.random.default_rng(0), np.float32)
    adjoint, launch, _ = kernel._adjoint(case.grid, case.block, args, None, 0)

    class Engine:
        target = GPU

    chooser = tables.BlockTables(adjoint.kernel, Engine())
    assert chooser.times["data__b"] == 80  # ten for each of the usual number of iterations

    def plan(blocks: int, threads: int, points: int) -> tables.Plan | None:
        sizes = {"grids__b": 8 * points, "data__b": 40 * points, "densities__b": 8}
        values = {n: np.empty(k, np.float32) for n, k in sizes.items()}
        return chooser.plan(launch._replace(grid=(blocks, 1, 1), block=(threads, 1, 1)), values)

    many = plan(3200, 128, 256)
    assert many is not None
    assert (many.blocks, many.threads) == (132, 1024)
    few = plan(512, 128, 256)
    assert few is not None
    assert (few.blocks, few.threads) == (128, 512)
    assert plan(128, 128, 256) is None  # less than two blocks for each multiprocessor
    assert plan(512, 64, 256) is None  # the tables have more elements than get something
    assert plan(3200, 120, 256) is None  # warps of two blocks
    assert plan(3200, 128, 4096) is None  # no room


def test_threads_that_wait_for_each_other_have_no_tables() -> None:
    for name, expected in (("cross_sections", True), ("dg_volume", False), ("tree_dot", False)):
        case = CASES[name]
        kernel = RawKernel(case.text("float32"), name)
        args = case.args(np.random.default_rng(0), np.float32)
        shared = case.shared_bytes("float32")
        adjoint = kernel._adjoint(case.grid, case.block, args, None, shared)[0]
        assert print_tables.fits(adjoint.kernel) == expected


@NEEDS_NVCC
@pytest.mark.slow
def test_nvcc_compiles_tables(tmp_path: Path) -> None:
    text = print_cuda.HEAD + print_tables.HEAD
    count = 0
    for name, case in CASES.items():
        kernel = RawKernel(case.text("float32"), case.kernel_name("float32"), case.options)
        args = case.args(np.random.default_rng(0), np.float32)
        adjoint = kernel._adjoint(case.grid, case.block, args, None, case.shared_bytes("float32"))[
            0
        ]
        if print_tables.fits(adjoint.kernel):
            adds = added(adjoint.kernel)
            names = (*adds.threads, *adds.blocks)
            text += print_tables.TableCudaPrinter(adjoint.kernel, name, names).source()
            count += bool(names)
    assert count > 5
    source = tmp_path / "tables.cu"
    source.write_text(text)
    done = subprocess.run(
        ["nvcc", "-arch=sm_90", "-cubin", "-w", "-o", str(tmp_path / "t.cubin"), str(source)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr

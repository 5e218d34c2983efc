"""Runs that look at every access: races, and indices out of range."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cuda_kernels import CASES

import adarray
from adarray.errors import KernelError, RaceError
from adarray.kernels import RawKernel

REDUCTION = """
__global__ void total(const float *x, float *y, int n) {
    __shared__ float cache[8];
    int t = threadIdx.x;
    cache[t] = x[t];
    BARRIER
    for (int s = 4; s > 0; s /= 2) {
        if (t < s) cache[t] += cache[t + s];
        BARRIER
    }
    if (t == 0) y[0] = cache[0];
}
"""


def _run(source: str, *args: Any, block: int = 8, grid: int = 1) -> None:
    name = source.partition("void ")[2].partition("(")[0]
    with adarray.use("serial"):
        RawKernel(source, name, check=True)(grid, block, args)


def test_a_missing_barrier_is_a_race() -> None:
    x, y = np.ones(8, np.float32), np.zeros(1, np.float32)
    _run(REDUCTION.replace("BARRIER", "__syncthreads();"), x, y, 8)
    assert y[0] == 8
    with pytest.raises(RaceError) as caught:
        _run(REDUCTION.replace("BARRIER", ""), x, y, 8)
    text = str(caught.value)
    assert "of block 0 touches element" in text
    assert text.endswith(
        "of 'cache', which another thread touches as well, and one of them writes; put a barrier "
        "between them, or use an atomic operation"
    )


def test_blocks_that_write_one_element_are_a_race() -> None:
    source = "__global__ void k(float *y) { y[0] = blockIdx.x; }"
    _run(source, np.zeros(1, np.float32), block=1)
    with pytest.raises(RaceError, match="thread 0 of block 1 touches element 0 of 'y'"):
        _run(source, np.zeros(1, np.float32), block=1, grid=2)
    source = "__global__ void k(float *y) { atomicAdd(y, 1.0f); }"
    y = np.zeros(1, np.float32)
    _run(source, y, grid=2)
    assert y[0] == 16


def test_reading_what_another_block_writes_is_a_race() -> None:
    source = "__global__ void k(float *y, int n) { int i = blockIdx.x; y[i] = y[(i + 1) % n]; }"
    with pytest.raises(RaceError, match="of 'y', which another thread touches as well"):
        _run(source, np.zeros(4, np.float32), 4, block=1, grid=4)


@pytest.mark.parametrize("index", ["n", "-1"])
def test_an_index_out_of_range_is_found(index: str) -> None:
    source = f"__global__ void k(const float *x, float *y, int n) {{ y[0] = x[{index}]; }}"
    element = {"n": 3, "-1": -1}[index]
    with pytest.raises(KernelError, match=f"reaches for element {element} of 'x', which is out of"):
        _run(source, np.zeros(3, np.float32), np.zeros(1, np.float32), 3, block=1)


def test_arrays_of_a_thread_and_tables_have_ranges() -> None:
    source = "__global__ void k(float *y, int n) { float a[4]; a[n] = 1; y[0] = a[0]; }"
    with pytest.raises(KernelError, match="reaches for element 4 of 'a'"):
        _run(source, np.zeros(1, np.float32), 4, block=1)
    source = "__constant__ int c[2] = {1, 2};\n__global__ void k(int *y, int n) { y[0] = c[n]; }"
    kernel = RawKernel(source, "k", check=True)
    with pytest.raises(KernelError, match="reaches for element 2 of 'c'"):
        kernel(1, 1, (np.zeros(1, np.int32), 2))


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "name",
    [
        "tree_dot",
        "tiled_matmul",
        "layernorm",
        "binomial",
        "dg_volume",
        "nbody",
        "scan",
        "warp_sum",
        "warp_votes",
    ],
)
def test_right_kernels_pass(name: str) -> None:
    case = CASES[name]
    kernel = RawKernel(case.text("float32"), case.kernel_name("float32"), check=True)
    args = case.args(np.random.default_rng(0), np.float32)
    with adarray.use("serial"):
        kernel.apply(case.grid, case.block, args, shared_mem=case.shared_bytes("float32"))

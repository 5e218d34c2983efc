"""Runs the convolution kernels on the processor, as `adarray_backends.cuda.conv` launches them.

For tests of convolutions on a GPU.
"""

from __future__ import annotations

import functools
import math
import subprocess
from pathlib import Path
from typing import Any

import adarray_native
import numpy as np
from adarray_backends.cuda import conv_work
from adarray_backends.cuda.conv_tiles import SHAPES, Tile
from adarray_backends.cuda.conv_work import Rounding
from cffi import FFI

from adarray.ops.windows import Geometry

_SUPPORT = Path(__file__).parent
_RUN = """
static void *p[4];
static i64 n[4];
static void body(void *which)
{
    switch (*(int *)which) {
    case 0: gather((const E *)p[0], (const E *)p[1], (T *)p[2], (const Job *)p[3]); break;
    case 1: weigh((const E *)p[0], (const E *)p[1], (T *)p[2], (const Job *)p[3]); break;
    case 2: prepared((const T *)p[0], (E *)p[1], (const Filling *)p[2]); break;
    case 3: folded((const T *)p[0], (T *)p[1], n[0], n[1]); break;
#if KIND == 2 || KIND == 3 || KIND == 4
    case 4: packed((const float *)p[0], (E *)p[1], n[0], n[1], n[2], n[3]); break;
#endif
#if HOPPER
    case 5: rounded((const float *)p[0], (E *)p[1], n[0], n[1], n[2], n[3]); break;
    case 6: settled((const float *)p[0], (float *)p[1], (const Job *)p[2], n[0]); break;
#endif
    }
}
extern "C" int run(int which, int columns, int rows, void **given, long long *numbers)
{
    memcpy(p, given, sizeof p);
    memcpy(n, numbers, sizeof n);
    return host_launch(body, &which, columns, rows, THREADS);
}
"""
_KERNELS = ("gather", "weigh", "prepared", "folded", "packed", "rounded", "settled")
_ffi = FFI()
_ffi.cdef("int run(int which, int columns, int rows, void **given, long long *numbers);")


@functools.cache
def library(kind: int, tile: Tile, folder: Path) -> Any:
    """Return the kernels, compiled for the processor."""
    shape = SHAPES[kind]
    source = folder / f"conv{kind}_{'_'.join(map(str, tile))}.cpp"
    lines = [f"#define KIND {shape.number}"]
    lines += [f"#define {name.upper()} {value}" for name, value in tile._asdict().items()]
    lines += [f"#define HOPPER {shape.hopper:d}", '#include "conv_host.h"']
    lines += [
        f'#include "adarray_conv{name}.h"' for name in ("", *(f"_{x}" for x in shape.headers))
    ]
    lines += ["typedef u32 E;", _RUN] if shape.tensor else [_RUN]
    source.write_text("\n".join(lines))
    made_as = source.with_suffix(".so")
    command = [
        "g++", "-std=c++17", "-O2", "-w", "-shared", "-fPIC", "-ffp-contract=off",
        f"-I{_SUPPORT}", *adarray_native.INCLUDE_CUDA,
        "-o", str(made_as), str(source),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return _ffi.dlopen(str(made_as))


def _aligned(size: int, dtype: Any) -> Any:
    """Return numbers that are wrong where nobody writes them, at a multiple of 64 bytes."""
    raw = np.full(size * np.dtype(dtype).itemsize + 64, 0xFF, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size * np.dtype(dtype).itemsize].view(dtype)


class Runner:
    """Launches kernels of one kind."""

    def __init__(self, work: conv_work.ConvWork, folder: Path) -> None:
        self.work = work
        self.shape = SHAPES[work.kind]
        self.lib = library(work.kind, work.tile, folder)

    def launch(self, name: str, grid: Any, arrays: Any, numbers: Any = ()) -> None:
        pointers = [_ffi.cast("void *", a.__array_interface__["data"][0]) for a in arrays]
        args = _ffi.new("void *[4]", pointers + [_ffi.NULL] * (4 - len(pointers)))
        counts = _ffi.new("long long[4]", [*numbers, 0, 0, 0, 0][:4])
        assert self.lib.run(_KERNELS.index(name), grid[0], grid[1], args, counts) == 0

    def __call__(self, name: str, a: Any, b: Any, k: Geometry) -> Any:
        """Return what an operation gives."""
        work, dtype, shape = self.work, a.dtype, conv_work.shape_of(name, k)
        words = np.uint32 if self.shape.tensor else dtype
        operands = [a, b]
        for i, p in enumerate(work.packings):
            result = _aligned(p.size(self.shape.per), words)
            if isinstance(p, Rounding):
                self.launch("rounded", (2, 1), (operands[i], result), p)
            else:
                grid = conv_work.packing(p)
                self.launch("packed", grid, (operands[i], result), p)
            operands[i] = result
        size = math.prod(shape)
        out, summed = _aligned(size, dtype), _aligned(work.summed or size, dtype)
        for x in work.launches:
            job = _aligned(x.job.size, np.uint8)
            job[:] = x.job
            if name == "conv2d_weight":
                self.launch("weigh", x.grid, (*operands, summed, job))
                continue
            filling, weights = _aligned(x.filling.size, np.uint8), _aligned(x.prepared, words)
            filling[:] = x.filling
            self.launch("prepared", (3, 1), (b, weights, filling))
            self.launch("gather", x.grid, (operands[0], weights, summed, job))
        if name == "conv2d_weight" and self.shape.hopper:
            self.launch("settled", conv_work.settling(k), (summed, out, job), (work.parts,))
        else:
            self.launch("folded", (2, 1), (summed, out), (size, work.parts))
        return out.reshape(shape)

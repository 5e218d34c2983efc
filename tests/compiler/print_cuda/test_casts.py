"""Floats that kernels for GPUs make integers of: as NumPy, in range and out of it."""

from __future__ import annotations

import platform
import shutil
import subprocess
from functools import partial
from typing import Any

import adarray_native
import numpy as np
import pytest
from device_plans import Compiled, DevicePlanRunner
from recorded import recorded

from adarray.compiler.ir.plan import KernelStep
from adarray.compiler.ir.target import GPU
from adarray.compiler.planning import planner as planning
from adarray.compiler.print_cuda import printer as cuda
from adarray.compiler.schedule.gpu.choose import schedule_of

plan = partial(planning.plan, target=GPU)
# NumPy's uint32 out of range are up to its vectors, so those stay calls of NumPy.
INTEGERS = ("i1", "u1", "i2", "u2", "i4", "i8", "u8")
_LIMITS = [float(s * 2.0**k) for k in (7, 8, 15, 16, 31, 32, 63, 64) for s in (1, -1)]
_BESIDE = [np.nextafter(x, to) for x in _LIMITS for to in (np.inf, -np.inf)]
_FRACTIONS = [x + d for x in _LIMITS[:12] for d in (-1.5, -1.0, -0.5, 0.5, 1.0, 1.5)]
VALUES = np.array([
    0.0, -0.0, 1.7, -1.2, 300.7, -300.7, 5e9, -5e9, 1e19, 1e30, -1e30, np.inf, -np.inf, np.nan,
    *_LIMITS, *_BESIDE, *_FRACTIONS,
])  # fmt: skip

on_x86 = pytest.mark.skipif(
    platform.machine().lower() not in ("x86_64", "amd64"), reason="there GPUs do as processors"
)


def _recorded(source: Any, to: str) -> Any:
    x = VALUES.astype(source)
    with np.errstate(all="ignore"):
        return x, recorded(lambda x: (x + source(0)).astype(to), x)


@on_x86
@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")
@pytest.mark.parametrize("source", [np.float32, np.float64])
def test_casts_are_numpys(source: Any, tmp_path: Any) -> None:
    for to in INTEGERS:
        folder = tmp_path / to
        folder.mkdir()
        x, r = _recorded(source, to)
        new_plan = plan(r.program)
        compiled = Compiled([new_plan], folder)
        text = "".join(t.text for _, t in compiled.texts.values())
        assert ("adarray_to_u64(" if to == "u8" else "adarray_whole_i") in text
        (got,) = DevicePlanRunner(new_plan, compiled)(r.arrays)
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(got, x.astype(to), to)


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="there is no nvcc")
def test_nvcc_compiles_casts(tmp_path: Any) -> None:
    texts = {}
    for source in (np.float32, np.float64):
        for to in INTEGERS:
            for s in plan(_recorded(source, to)[1].program).steps:
                if isinstance(s, KernelStep):
                    ints = dict(zip(s.kernel.ints, s.ints, strict=True))
                    text = cuda.source(schedule_of(s.kernel, ints, GPU))
                    texts[text.name] = text.text
    source_file = tmp_path / "casts.cu"
    source_file.write_text("\n".join(texts.values()))
    command = ["nvcc", "-arch=sm_90", "-std=c++17", "-cubin", "-w", *adarray_native.INCLUDE_CUDA]
    done = subprocess.run(
        [*command, str(source_file), "-o", str(tmp_path / "casts.cubin")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[:3000]

"""The convolution kernels themselves, run on the processor, against float64."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from adarray_backends.cuda import conv_tiles, conv_work

from adarray.ops import windows

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
RNG = np.random.default_rng(12)
ERRORS = {"float32": 1e-6, "tf32": 1e-3, "bf16": 1e-2, "fp16": 1e-3, "float64": 1e-13}
# Shapes of images and weights, stride, padding, dilation, groups: several tiles of everything.
CASES = [
    ((5, 21, 9, 10), (70, 21, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 1),
    ((3, 8, 7, 6), (6, 4, 3, 2), (2, 1), ((1, 0), (2, 3)), (1, 2), 2),
    ((3, 3, 21, 19), (70, 3, 4, 5), (2, 3), ((1, 2), (3, 0)), (1, 1), 1),
    ((2, 6, 9, 8), (6, 1, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 6),
    ((2, 10, 19, 16), (6, 5, 3, 4), (2, 1), ((1, 1), (0, 2)), (1, 2), 2),
    ((2, 12, 8, 8), (200, 12, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 1),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kernels")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "precision", "hopper", "processors"),
    [
        *((CASES[0], precision, False, count) for precision in ERRORS for count in (1, 40)),
        *((CASES[0], p, True, count) for p in ("tf32", "bf16", "fp16") for count in (1, 40)),
        (CASES[1], "float32", False, 1),
        *((CASES[1], p, hopper, 1) for p in ("tf32", "bf16") for hopper in (False, True)),
        *((CASES[2], p, True, count) for p in ERRORS for count in (1, 40)),
        *((CASES[3], p, True, 1) for p in ("float32", "float64", "tf32")),
        *((CASES[4], p, True, count) for p in ("float32", "float64") for count in (1, 40)),
        *((CASES[5], p, True, 1) for p in ("tf32", "bf16")),
    ],
)
def test_kernels(case: Any, precision: str, hopper: bool, processors: int, folder: Path) -> None:
    """For forty multiprocessors sums are cut into parts."""
    from conv_runner import Runner

    k = windows.geometry_of("conv2d", *case)
    x, w, g = (RNG.normal(size=s) for s in (case[0], case[1], conv_work.shape_of("conv2d", k)))
    dtype = np.float64 if precision == "float64" else np.float32
    for name, a, b, want in (
        ("conv2d", x, w, windows.forward(x, w, k)),
        ("conv2d_input", g, w, windows.to_input(g, w, k)),
        ("conv2d_weight", x, g, windows.to_weight(x, g, k)),
    ):
        kind = conv_tiles.kind_for(name, precision, k, hopper)
        work = conv_work.work_of(name, k, kind, processors)
        got = Runner(work, folder)(name, a.astype(dtype), b.astype(dtype), k)
        error = np.linalg.norm(got - want) / np.linalg.norm(want)
        assert error < ERRORS[precision], name

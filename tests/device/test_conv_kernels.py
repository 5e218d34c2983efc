"""The convolution kernels themselves, run on the processor, against float64."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from adarray_backends.cuda import conv_work

from adarray.ops import windows

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
RNG = np.random.default_rng(12)
ERRORS = {"float32": 1e-6, "tf32": 1e-3, "bf16": 1e-2, "fp16": 1e-3, "float64": 1e-13}
# Shapes of images and weights, stride, padding, dilation, groups: several tiles of everything.
CASES = [
    ((5, 21, 9, 10), (70, 21, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 1),
    ((3, 8, 7, 6), (6, 4, 3, 2), (2, 1), ((1, 0), (2, 3)), (1, 2), 2),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kernels")


@pytest.mark.parametrize(
    ("case", "precision", "processors"),
    [
        *((CASES[0], precision, count) for precision in ERRORS for count in (1, 40)),
        (CASES[1], "float32", 1),
        (CASES[1], "tf32", 1),
    ],
)
def test_kernels(case: Any, precision: str, processors: int, folder: Path) -> None:
    """For forty multiprocessors sums are cut into parts."""
    from conv_runner import Runner

    kind = conv_work.KINDS[precision]
    k = windows.geometry_of("conv2d", *case)
    x, w, g = (RNG.normal(size=s) for s in (case[0], case[1], conv_work.shape_of("conv2d", k)))
    dtype = np.float64 if precision == "float64" else np.float32
    for name, a, b, want in (
        ("conv2d", x, w, windows.forward(x, w, k)),
        ("conv2d_input", g, w, windows.to_input(g, w, k)),
        ("conv2d_weight", x, g, windows.to_weight(x, g, k)),
    ):
        work = conv_work.work_of(name, k, kind, processors)
        shape = conv_work.shape_of(name, k)
        got = Runner(work, folder)(name, a.astype(dtype), b.astype(dtype), shape)
        error = np.linalg.norm(got - want) / np.linalg.norm(want)
        assert error < ERRORS[precision], name

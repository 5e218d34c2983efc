"""Convolutions on a GPU: each kind of numbers against float64 on the host, and their use."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import adarray_native
import numpy as np
import pytest
from adarray_backends.cuda import conv_tiles, conv_work, winograd

import adarray
from adarray.errors import BackendError
from adarray.ops import windows
from adarray.ops.nn import conv2d

RNG = np.random.default_rng(4)
ERRORS = {"float64": 1e-13, "float32": 3e-6, "tf32": 1.5e-3, "bf16": 1.2e-2, "fp16": 1.5e-3}
CASES = [
    ((2, 4, 5, 6), (3, 4, 3, 2), (2, 1), ((1, 0), (2, 3)), (1, 2), 1),
    ((3, 8, 7, 6), (6, 4, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 2),
    ((2, 3, 9, 9), (5, 3, 1, 1), (2, 2), ((0, 0), (0, 0)), (1, 1), 1),
    ((1, 3, 2, 2), (3, 3, 3, 3), (3, 3), ((5, 5), (2, 2)), (1, 1), 1),
    ((3, 70, 19, 17), (130, 70, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 1),
    ((4, 35, 20, 20), (200, 35, 5, 3), (2, 3), ((2, 2), (1, 1)), (1, 1), 1),
    ((2, 64, 8, 8), (64, 1, 3, 3), (1, 1), ((1, 1), (1, 1)), (2, 2), 64),
    ((8, 256, 7, 7), (96, 256, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 1),
    ((4, 24, 16, 16), (40, 24, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 1),
    ((5, 48, 30, 28), (300, 48, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 1),
    ((9, 3, 40, 42), (64, 3, 7, 7), (2, 2), ((3, 3), (3, 3)), (1, 1), 1),
    ((6, 40, 13, 15), (4, 40, 3, 5), (1, 2), ((1, 0), (2, 2)), (2, 1), 1),
    ((3, 512, 8, 6), (260, 256, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 2),
]
# Windows of 3 x 3 that fewer products pay for in float32.
FEWER = [
    ((32, 128, 14, 14), (128, 128, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 1),
    ((7, 70, 37, 40), (150, 70, 3, 3), (1, 1), ((0, 1), (2, 1)), (1, 1), 1),
]


@pytest.fixture
def cupy() -> Any:
    """Return CuPy, where there is a GPU."""
    try:
        adarray.use("cuda")
    except BackendError as error:
        pytest.skip(str(error))
    import cupy

    return cupy


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
@pytest.mark.parametrize(
    ("kind", "channels"),
    [(1, 128), (2, 128), (3, 64), (4, 128), (5, 64), (6, 128), (7, 64), (8, 3), (9, 3), (10, 1)],
)
def test_kernels_compile(kind: int, channels: int, tmp_path: Path) -> None:
    shape, tile = conv_tiles.SHAPES[kind], conv_tiles.tile_of("conv2d", kind, channels)
    texts = [f"#define KIND {shape.number}"]
    texts += [f"#define {name.upper()} {value}" for name, value in tile._asdict().items()]
    names = ("adarray_conv", *(f"adarray_conv_{x}" for x in shape.headers))
    texts += [adarray_native.text(f"{n}.h") for n in names]
    path = tmp_path / "conv.cu"
    path.write_text("\n".join(texts))
    number = "90a" if shape.hopper else "90"
    command = [
        "nvcc",
        f"-gencode=arch=compute_{number},code=sm_{number}",
        "-cubin",
        "--fmad=false",
        "-o",
        str(tmp_path / "o"),
        str(path),
    ]
    made_by = subprocess.run(command, capture_output=True, text=True, check=False)
    assert made_by.returncode == 0, made_by.stderr


@pytest.mark.parametrize("case", FEWER)
def test_cases_with_fewer_products(case: Any) -> None:
    k = windows.geometry_of("conv2d", *case)
    assert all(winograd.suits(name, k, "float32") for name in conv_work.NAMES)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("case", "precision"),
    [*((c, p) for c in CASES for p in ERRORS), *((c, "float32") for c in FEWER)],
)
def test_values_and_transposes(case: Any, precision: str, cupy: Any) -> None:
    from adarray_backends.cuda import conv

    k = windows.geometry_of("conv2d", *case)
    x, w, g = (RNG.normal(size=s) for s in (case[0], case[1], conv_work.shape_of("conv2d", k)))
    dtype = np.float64 if precision == "float64" else np.float32
    args = "float32" if precision == "float64" else precision
    for name, a, b, want in (
        ("conv2d", x, w, windows.forward(x, w, k)),
        ("conv2d_input", g, w, windows.to_input(g, w, k)),
        ("conv2d_weight", x, g, windows.to_weight(x, g, k)),
    ):
        a, b = (cupy.asarray(v.astype(dtype)) for v in (a, b))
        got = conv.convolve(name, a, b, k, args).get()
        assert got.shape == want.shape
        error = np.linalg.norm(got - want) / np.linalg.norm(want)
        assert error < ERRORS[precision], name
        # Sums of parts are added in order: the same bits each time.
        np.testing.assert_array_equal(got, conv.convolve(name, a, b, k, args).get())


@pytest.mark.gpu
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("precision", ["float32", "tf32", "bf16", "fp16"])
def test_gradients_of_a_network(compiled: bool, precision: str, cupy: Any) -> None:
    def loss(w: Any, v: Any, x: Any) -> Any:
        h = np.maximum(conv2d(x, w, padding=1), 0)
        return np.mean(np.tanh(conv2d(h, v, stride=2)) ** 2)

    args = [RNG.normal(size=s) * 0.3 for s in ((16, 8, 3, 3), (24, 16, 3, 3), (4, 8, 12, 12))]
    want, grads = adarray.value_and_grad(loss, (0, 1, 2))(*args)
    f = adarray.value_and_grad(loss, (0, 1, 2))
    with adarray.use("cuda", matmul_precision=precision):
        f = adarray.jit(f) if compiled else f
        arrays = [adarray.array(a.astype(np.float32)) for a in args]
        for _ in range(3 if compiled else 1):
            value, got = f(*arrays)
    tight = {"float32": 1e-4, "bf16": 1e-1}.get(precision, 3e-2)
    assert abs(float(value) - want) < tight * want
    for a, b in zip(got, grads, strict=True):
        assert np.linalg.norm(a.numpy() - b) < tight * np.linalg.norm(b)


@pytest.mark.gpu
def test_sliding_windows_need_no_copy(cupy: Any) -> None:
    view = np.lib.stride_tricks.sliding_window_view

    def f(x: Any, w: Any) -> Any:
        return np.einsum("ncyxij,ocij->noyx", view(x, (5, 5), axis=(2, 3)), w)

    x, w = (RNG.normal(size=s).astype(np.float32) for s in ((8, 32, 128, 128), (32, 32, 5, 5)))
    with adarray.use("cuda"):
        operand = adarray.array(x), adarray.array(w)
        pool = cupy.get_default_memory_pool()
        before = pool.total_bytes()
        result = f(*operand)
        assert pool.total_bytes() - before < 6 * x.nbytes  # a copy of windows has 25
    small = f(x[:1, :, :9, :9].astype(np.float64), w.astype(np.float64))
    np.testing.assert_allclose(result.numpy()[:1, :, :5, :5], small, rtol=1e-4, atol=1e-3)

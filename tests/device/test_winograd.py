"""Convolutions with fewer products: kernels run on the processor, products by NumPy."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import adarray_native
import numpy as np
import pytest
from adarray_backends.cuda import winograd
from cffi import FFI

from adarray.ops import windows

RNG = np.random.default_rng(5)
SUPPORT = Path(__file__).parents[1] / "support"
RUN = """
static void *p[2];
static long long n[9];
static void body(void *which)
{
    switch (*(int *)which) {
    case 0: images_evaluated((const float *)p[0], (float *)p[1], n[0], n[1], n[2], n[3], n[4], n[5],
                             n[6], n[7], n[8]); break;
    case 1: cotangent_lengthened((const float *)p[0], (float *)p[1], n[0], n[1], n[2], n[3], n[4],
                                 n[5], n[6]); break;
    case 2: result_shortened((const float *)p[0], (float *)p[1], n[0], n[1], n[2], n[3], n[4],
                             n[5], n[6]); break;
    case 3: weights_weighed((const float *)p[0], (float *)p[1], n[0], n[1], n[2], n[3], n[4]);
        break;
    case 4: gradient_unweighed((const float *)p[0], (float *)p[1], n[0], n[1]); break;
    }
}
extern "C" int run(int which, int columns, int rows, void **given, long long *numbers)
{
    memcpy(p, given, sizeof p);
    memcpy(n, numbers, sizeof n);
    return host_launch(body, &which, columns, rows, 128);
}
"""
FFI_ = FFI()
FFI_.cdef("int run(int which, int columns, int rows, void **given, long long *numbers);")
# Shapes of images and weights, padding: tiles that end in the images, on their ends and behind.
CASES = [
    ((5, 18, 9, 10), (20, 18, 3, 3), ((1, 1), (1, 1))),
    ((3, 16, 8, 12), (17, 16, 3, 3), ((1, 1), (1, 1))),
    ((2, 16, 7, 6), (16, 16, 3, 3), ((0, 0), (2, 0))),
    ((2, 19, 5, 4), (16, 19, 3, 3), ((4, 3), (0, 5))),
]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the kernels, compiled for the processor."""
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    path = tmp_path_factory.mktemp("winograd") / "kernels.cpp"
    path.write_text(f'#include "device_host.h"\n#include "adarray_conv_winograd.h"\n{RUN}')
    command = [
        "g++", "-std=c++17", "-O2", "-w", "-shared", "-fPIC", "-ffp-contract=off",
        f"-I{SUPPORT}", *adarray_native.INCLUDE_CUDA, "-o", str(path.with_suffix(".so")), str(path),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return FFI_.dlopen(str(path.with_suffix(".so")))


def looked(m: winograd.Matrices, room: np.ndarray) -> np.ndarray:
    """Return matrices as an array, of memory of float32."""
    strides = tuple(4 * n for n in m.strides)
    assert m.place.base == winograd.ROOM
    return np.ndarray(m.shape, np.float32, room.data, m.place.offset, strides)


def computed(library: Any, name: str, a: np.ndarray, b: np.ndarray, k: Any) -> np.ndarray:
    """Return what an operation gives; memory that is not written holds nan."""
    s = winograd.sizes_of(name, k)
    shape = {
        "conv2d": (k.number, k.filters, *k.out),
        "conv2d_input": (k.number, k.channels, *k.size),
        "conv2d_weight": (k.filters, k.channels, 3, 3),
    }[name]
    out = np.full(shape, np.nan, np.float32)
    room = np.full(sum(winograd.rooms(name, s)) // 4, np.nan, np.float32)
    bases = [v.ctypes.data for v in (a, b, out, room)]
    for x in winograd._steps(name, k):
        if isinstance(x, winograd.PointProducts):
            looked(x.out, room)[...] = looked(x.first, room) @ looked(x.second, room)
        else:
            places = [FFI_.cast("void *", bases[p.base] + p.offset) for p in x.places]
            numbers = FFI_.new("long long[9]", list(x.numbers))
            which = winograd.KERNELS.index(x.name)
            args = FFI_.new("void *[2]", places)
            assert library.run(which, x.grid[0], x.grid[1], args, numbers) == 0
    return out


@pytest.mark.parametrize("together", [1 << 28, 1], ids=["at once", "image by image"])
@pytest.mark.parametrize("case", CASES)
def test_operations(case: Any, together: int, library: Any, monkeypatch: Any) -> None:
    """Sums over tiles are cut into parts."""
    monkeypatch.setattr(winograd, "_ROOM", together)
    monkeypatch.setattr(winograd, "_LEAST", 1)
    monkeypatch.setattr(winograd, "sizes_of", winograd.sizes_of.__wrapped__)  # nothing is kept
    shape, weights, padding = case
    k = windows.geometry_of("conv2d", shape, weights, (1, 1), padding, (1, 1), 1)
    x, w, g = (
        RNG.normal(size=s).astype(np.float32)
        for s in (shape, weights, (k.number, k.filters, *k.out))
    )
    exact = [v.astype(np.float64) for v in (x, w, g)]
    for name, a, b, want in (
        ("conv2d", x, w, windows.forward(exact[0], exact[1], k)),
        ("conv2d_input", g, w, windows.to_input(exact[2], exact[1], k)),
        ("conv2d_weight", x, g, windows.to_weight(exact[0], exact[2], k)),
    ):
        s = winograd.sizes_of(name, k)
        assert s.chunks == (1 if together > 1 else k.number)
        assert (s.parts > 1) == (together > 1 and name == "conv2d_weight")
        got = computed(library, name, a, b, k)
        error = np.linalg.norm(got - want) / np.linalg.norm(want)
        assert error < 3e-6, name


def geometry(number: int, c: int, size: int, o: int, **other: Any) -> Any:
    options = {"window": 3, "stride": (1, 1), "dilation": (1, 1), "groups": 1} | other
    window = options.pop("window")
    shapes = (number, c, size, size), (o, c // options["groups"], window, window)
    return windows.geometry_of(
        "conv2d",
        *shapes,
        options["stride"],
        ((1, 1), (1, 1)),
        options["dilation"],
        options["groups"],
    )


@pytest.mark.parametrize("name", ["conv2d", "conv2d_input", "conv2d_weight"])
def test_where_it_is_used(name: str) -> None:
    """For windows of 3 x 3 next to each other, in float32, with enough channels to pay."""
    assert winograd.suits(name, geometry(32, 64, 56, 64), "float32")
    assert winograd.suits(name, geometry(32, 512, 7, 512), "float32")
    assert not winograd.suits(name, geometry(32, 64, 56, 64), "tf32")
    assert not winograd.suits(name, geometry(32, 64, 56, 64), "float64")
    assert not winograd.suits(name, geometry(32, 3, 56, 64), "float32")
    assert not winograd.suits(name, geometry(1, 16, 8, 16), "float32")
    for other in ({"window": 5}, {"stride": (2, 1)}, {"dilation": (1, 2)}, {"groups": 2}):
        assert not winograd.suits(name, geometry(32, 64, 56, 64, **other), "float32")


def test_memory_is_bounded() -> None:
    k = geometry(1000, 64, 56, 64)
    for name in ("conv2d", "conv2d_input", "conv2d_weight"):
        s = winograd.sizes_of(name, k)
        assert s.each * s.chunks >= k.number
        assert s.each * (s.chunks - 1) < k.number
        assert sum(winograd.rooms(name, s)[1:]) <= winograd._ROOM + 512
        assert k.number % s.each or s.each % s.parts == 0


def test_sums_over_tiles_are_cut_to_keep_a_gpu_busy() -> None:
    counts = {
        c: winograd.sizes_of("conv2d_weight", geometry(32, c, size, c)).parts
        for c, size in ((64, 56), (256, 14), (512, 7))
    }
    assert counts == {64: 8, 256: 2, 512: 1}
    assert winograd.sizes_of("conv2d", geometry(32, 64, 56, 64)).parts == 1
    s = winograd.sizes_of("conv2d_weight", geometry(64, 128, 56, 256))
    assert (s.each, s.chunks, s.parts) == (16, 4, 4)

"""The kernels behind ``any`` and ``all`` on a GPU, run on the processor."""

from __future__ import annotations

import shutil
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cffi import FFI

THREADS, BLOCKS = 32, 3
_HOST = """
#define __global__
#define __restrict__
#define __launch_bounds__(n)
#define __align__(n) __attribute__((aligned(n)))
struct Place {{ unsigned x; }} threadIdx, blockIdx, gridDim;
{text}
extern "C" void run(const void *a, unsigned char *r, long long n, long long packs, int sought)
{{
    gridDim.x = {blocks};
    for (blockIdx.x = 0; blockIdx.x < {blocks}; blockIdx.x++)
        for (threadIdx.x = 0; threadIdx.x < {threads}; threadIdx.x++)
            truth((const {type} *)a, r, n, packs, sought);
}}
"""


def _compiled(folder: Path, char: str) -> Any:
    truths = pytest.importorskip("adarray_backends.cuda.truths")
    text = _HOST.format(
        text=truths.source(char, THREADS), blocks=BLOCKS, threads=THREADS, type=truths._TYPES[char]
    )
    (folder / "truth.cpp").write_text(text)
    library = folder / "truth.so"
    source = str(folder / "truth.cpp")
    command = ["g++", "-shared", "-fPIC", "-O1", "-w", source, "-o", str(library)]
    subprocess.run(command, check=True, capture_output=True)
    ffi = FFI()
    ffi.cdef("void run(void *x, void *r, long long n, long long packs, int sought);")
    run = ffi.dlopen(str(library)).run

    def at(x: np.ndarray, r: np.ndarray, packs: int, sought: int) -> None:
        addresses = [ffi.cast("void *", a.ctypes.data) for a in (x, r)]
        run(*addresses, x.size, packs, sought)

    return at


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@pytest.mark.parametrize("char", ["?", "b", "h", "L", "f", "d"])
def test_truths_of_all_lengths(tmp_path: Path, char: str) -> None:
    run = _compiled(tmp_path, char)
    dtype = np.dtype(char)
    for n in (1, 15, 16, 17, 1000, 16 * THREADS * BLOCKS * 2 + 5):
        room = np.zeros(n * dtype.itemsize + 16, np.uint8)
        x = room[-room.ctypes.data % 16 :][: n * dtype.itemsize].view(dtype)
        for usual in (0, 1):
            for at in {None, 0, n // 2, n - 1}:
                x[:] = usual
                if at is not None:
                    x[at] = 1 - usual
                for packs in (0, x.nbytes // 16):
                    for function, sought in ((np.any, 1), (np.all, 0)):
                        r = np.full(1, 1 - sought, np.uint8)
                        run(x, r, packs, sought)
                        assert bool(r[0]) == bool(function(x))
    if char in "fd":
        x[:] = -0.0
        r = np.zeros(1, np.uint8)
        run(x, r, x.nbytes // 16, 1)
        assert r[0] == 0


def test_solvers_have_short_reductions(monkeypatch: pytest.MonkeyPatch) -> None:
    truths = pytest.importorskip("adarray_backends.cuda.truths")
    accelerators = [1]

    class Accelerator:
        @staticmethod
        def get_reduction_accelerators() -> list[int]:
            return accelerators

        @staticmethod
        def set_reduction_accelerators(new: list[int]) -> None:
            nonlocal accelerators
            accelerators = list(new)

    core = types.ModuleType("cupy._core")
    vars(core)["_accelerator"] = Accelerator
    for module in (types.ModuleType("cupy"), core):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    during: list[Any] = []

    def solve() -> None:
        with truths.without_templates():
            during.extend(accelerators)
            raise ValueError("singular")

    with pytest.raises(ValueError, match="singular"):
        solve()
    assert during == []
    assert accelerators == [1]
    first, second = truths.without_templates(), truths.without_templates()  # of two threads
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert accelerators == []
    second.__exit__(None, None, None)
    assert accelerators == [1]

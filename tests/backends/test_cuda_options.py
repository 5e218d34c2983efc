"""Options of the cuda backend that need no GPU to be checked."""

from __future__ import annotations

import re
import sys
import types
from typing import Any

import pytest
from adarray_backends.cuda import extrema, pointwise, reductions
from adarray_backends.cuda.engine import THREADS, USUAL_THREADS, CudaEngine, checked_threads
from adarray_backends.cuda.folds import Folder, column_lanes

import adarray  # noqa: F401  (registers)
from adarray.base.op import OPS
from adarray.errors import BackendError


@pytest.mark.parametrize("threads", [None, 32, 256, 1024])
def test_threads_that_a_block_may_have(threads: Any) -> None:
    assert checked_threads(threads) == threads


@pytest.mark.parametrize("threads", [0, 33, 1056, -32, 64.0, True, "64"])
def test_other_threads_are_refused(threads: Any) -> None:
    text = (
        f"backend 'cuda': the option threads_per_block is {threads!r}; pass a multiple of 32 from "
        "32 to 1024, or leave it out"
    )
    with pytest.raises(BackendError, match=re.escape(text)):
        checked_threads(threads)


class NoLibrary:
    """What an engine asks of a library."""

    name = "cuda:none"
    place = pointwise = derivative = compute = synchronize = None


def test_blocks_of_nested_engines_follow_each_other(monkeypatch: Any) -> None:
    from adarray.device import DEVICES

    library: Any = NoLibrary()
    outer, inner = CudaEngine(library, threads_per_block=64), CudaEngine(library)
    monkeypatch.delitem(DEVICES, "cuda:none")
    assert THREADS.get() == USUAL_THREADS
    first = outer.enter()
    assert THREADS.get() == 64
    second = inner.enter()
    assert THREADS.get() == USUAL_THREADS
    inner.leave(second)
    assert THREADS.get() == 64
    outer.leave(first)
    assert THREADS.get() == USUAL_THREADS


def test_texts_of_eager_kernels_have_the_threads_that_are_asked_for() -> None:
    text = pointwise.text_of(OPS["exp"], -1, "float32", None)
    assert text is not None
    fold = reductions.fold_of(OPS["sum"], "float32")
    assert fold is not None
    for source in (
        pointwise.source(text, "f", 4, "unsigned int", 96),
        reductions.source(fold, True, True, 4, 4, 96),
        reductions.source(fold, False, True, 4, 4, 96),
        extrema.source(True, "float32", 4, 96),
    ):
        assert "__launch_bounds__(96)" in source
        assert "256" not in source


@pytest.mark.parametrize(
    ("outer", "packs", "size", "lanes"),
    [
        (1, 1024, 16, 8),  # 4096 columns of float32: 128 blocks
        (1, 4096, 16, 32),
        (1, 2048, 16, 16),
        (8, 512, 16, 32),
        (1, 512, 16, 0),  # 64 blocks, of lines at least
        (1, 4097, 4, 32),
        (1, 1024, 4, 0),
    ],
)
def test_columns_that_blocks_fold_whole(outer: int, packs: int, size: int, lanes: int) -> None:
    assert column_lanes(outer, packs, size, 132) == lanes


class PlanOnly:
    """A library whose kernels are their texts."""

    def compiled(self, text: str, *names: str) -> Any:
        return (text, *names)


def test_launches_that_fold_columns() -> None:
    folder = Folder(PlanOnly(), 8 * 132)  # type: ignore[arg-type]
    total = OPS["sum"]
    (step,) = folder.plan(total, "f", (100, 4096), 0, False, False, True).steps
    assert (step.grid, step.block, step.size) == ((128, 1), (8, 128), 4096)
    assert "__launch_bounds__(1024)" in step.kernel[0]
    steps = folder.plan(total, "f", (3000, 520), 0, False, False, True).steps
    assert [s.block for s in steps] == [(32, 8), (32, 8)]
    assert folder.repetition((7, 100, 4096), (1, 4096), "f").shape == (1, 4096)
    assert folder.repetition((100, 4096), (100, 4096), "f") is NotImplemented
    token = THREADS.set(64)
    try:
        first = folder.plan(total, "f", (100, 4096), 0, False, False, True).steps[0]
        assert first.block == (32, 2)
    finally:
        THREADS.reset(token)


# -- machines without a GPU, or with an old driver -----------------------------------------------


class RuntimeFailureError(Exception):
    """What stands for `cupy.cuda.runtime.CUDARuntimeError`."""


def _cupy_whose_count(answer: Any) -> types.ModuleType:
    """Return a module in the place of CuPy, whose runtime counts devices or fails."""

    def count() -> int:
        if isinstance(answer, Exception):
            raise answer
        return int(answer)

    runtime = types.SimpleNamespace(getDeviceCount=count, CUDARuntimeError=RuntimeFailureError)
    module: Any = types.ModuleType("cupy")
    module.cuda = types.SimpleNamespace(runtime=runtime)
    return module  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (0, "this machine has no NVIDIA GPU; use another backend"),
        (
            RuntimeFailureError("cudaErrorInsufficientDriver: CUDA driver version is insufficient"),
            r"the NVIDIA driver is missing, or older than CuPy's CUDA .* update its driver, or "
            r"install CuPy for the CUDA version of the driver .* pip install cupy-cuda12x",
        ),
        (
            RuntimeFailureError("cudaErrorNoDevice: no CUDA-capable device is detected"),
            r"no NVIDIA GPU is visible .* look at nvidia-smi and CUDA_VISIBLE_DEVICES",
        ),
        (
            RuntimeFailureError("cudaErrorUnknown"),
            "the CUDA runtime reports cudaErrorUnknown; look at",
        ),
    ],
)
def test_why_there_is_no_gpu(answer: Any, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from adarray_backends import cuda

    monkeypatch.setitem(sys.modules, "cupy", _cupy_whose_count(answer))
    cuda._cupy.cache_clear()
    with pytest.raises(BackendError, match=f"^backend 'cuda': {text}"):
        cuda.CudaBackend().engine()
    told = cuda.CudaBackend().info()
    assert told["status"] == "unavailable"
    assert re.search(text, told["why"])


def test_without_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    from adarray_backends import cuda

    monkeypatch.setitem(sys.modules, "cupy", None)
    cuda._cupy.cache_clear()
    with pytest.raises(BackendError, match=r"CuPy cannot be imported .* pip install cupy-cuda13x"):
        cuda.CudaBackend().engine()
    with pytest.raises(BackendError, match="unknown option 'precision'; it takes device, matmul"):
        cuda.CudaBackend().engine(precision="tf32")


def test_a_device_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    from adarray_backends import cuda

    monkeypatch.setitem(sys.modules, "cupy", _cupy_whose_count(2))
    cuda._cupy.cache_clear()
    try:
        for device in (2, -1, "0", True):
            text = f"the option device is {device!r}; this machine has 2 of them: pass an integer"
            with pytest.raises(BackendError, match=text):
                cuda.CudaBackend().engine(device=device)
    finally:
        cuda._cupy.cache_clear()

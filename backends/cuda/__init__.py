"""The cuda backend: CuPy's arrays on an NVIDIA GPU, and kernels printed from the records."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from adarray.base.environment import switch
from adarray.device.kinds import register_kind
from adarray.errors import BackendError

if TYPE_CHECKING:
    from adarray_backends.cuda.engine import CudaEngine

_OPTIONS = ("device", "matmul_precision", "threads_per_block")
_INSTALL = (
    "install CuPy for the CUDA version of the driver (nvidia-smi shows it): "
    "pip install cupy-cuda13x, or pip install cupy-cuda12x"
)


@functools.cache
def _cupy() -> Any:
    """Return CuPy, once it is known that a GPU answers.

    Raises
    ------
    BackendError
        If CuPy is missing, there is no GPU, or its driver is too old.
    """
    try:
        import cupy
    except ImportError as error:
        raise BackendError(
            f"backend 'cuda': CuPy cannot be imported ({error}); {_INSTALL}"
        ) from error
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise BackendError(f"backend 'cuda': {_why(error)}") from error
    if not count:
        raise BackendError("backend 'cuda': this machine has no NVIDIA GPU; use another backend")
    return cupy


def _why(error: Exception) -> str:
    """Return what an error of the CUDA runtime means to the user."""
    text = str(error)
    if "InsufficientDriver" in text:
        return (
            f"the NVIDIA driver is missing, or older than CuPy's CUDA ({text}); where there is a "
            f"GPU, update its driver, or {_INSTALL}"
        )
    if "NoDevice" in text:
        return f"no NVIDIA GPU is visible ({text}); look at nvidia-smi and CUDA_VISIBLE_DEVICES"
    return f"the CUDA runtime reports {text}; look at nvidia-smi"


@functools.cache
def library_of(index: int) -> Any:
    """Return the library of one GPU."""
    from adarray_backends.cuda.library import CudaLibrary

    cupy = _cupy()
    register_kind(cupy.ndarray, lambda raw: library_of(raw.device.id), 2, cupy.from_dlpack)
    return CudaLibrary(cupy, index)


class CudaBackend:
    """Arrays in the memory of a GPU."""

    name = "cuda"

    def engine(self, **options: Any) -> CudaEngine:
        """Return an engine.

        Parameters
        ----------
        device : int, optional
            Number of the GPU, 0 if not given.
        matmul_precision : {"float32", "tf32", "bf16", "fp16"}, optional
            What the operands of products and convolutions of float32 arrays are rounded
            to; sums are float32. Exact if not given.
        threads_per_block : int, optional
            Of every kernel: a multiple of 32, up to 1024. Chosen for each kernel if not
            given; the order in which sums are taken follows it.

        Raises
        ------
        BackendError
            If there is no such GPU, or no CuPy; or for an unknown or wrong option, or a value
            of ADARRAY_TUNE.
        """
        for name in sorted(options):
            if name not in _OPTIONS:
                raise BackendError(
                    f"backend 'cuda': unknown option {name!r}; it takes {', '.join(_OPTIONS)}"
                )
        try:
            switch("ADARRAY_TUNE", True)
        except ValueError as error:
            raise BackendError(f"backend 'cuda': {error}") from None
        index = options.get("device", 0)
        cupy = _cupy()
        count = cupy.cuda.runtime.getDeviceCount()
        if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < count:
            raise BackendError(
                f"backend 'cuda': the option device is {index!r}; this machine has {count} of "
                f"them: pass an integer from 0 to {count - 1}"
            )
        from adarray_backends.cuda.engine import CudaEngine, checked_precision, checked_threads

        number = str(cupy.cuda.Device(index).compute_capability)  # "90" is 9.0
        capability = int(number[:-1]), int(number[-1])
        precision = checked_precision(options.get("matmul_precision", "float32"), capability)
        threads = checked_threads(options.get("threads_per_block"))
        return CudaEngine(library_of(index), precision, threads)

    def cache(self, clear: bool = False) -> Iterable[str]:
        """Return lines about the kernels that are kept on disk, or remove them."""
        from adarray_backends.cuda import disk_cache

        return disk_cache.clear() if clear else disk_cache.report()

    def info(self) -> dict[str, str]:
        """Return facts to show in ``python -m adarray info``."""
        try:
            cupy = _cupy()
        except BackendError as error:
            return {"status": "unavailable", "why": str(error)}
        runtime = cupy.cuda.runtime
        devices = [runtime.getDeviceProperties(i) for i in range(runtime.getDeviceCount())]
        return {
            "status": "available",
            "cupy": cupy.__version__,
            "cuda": f"runtime {_version(runtime.runtimeGetVersion())}, "
            f"driver {_version(runtime.driverGetVersion())}",
            "devices": ", ".join(
                f"{i}: {d['name'].decode()}, {d['totalGlobalMem'] >> 30} GiB, "
                f"sm_{d['major']}{d['minor']}"
                for i, d in enumerate(devices)
            ),
        }


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"

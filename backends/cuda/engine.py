"""The engine of the cuda backend: a GPU, and how exact its products are."""

from __future__ import annotations

from contextvars import ContextVar
from functools import cached_property
from typing import Any

from adarray.compiler.ir.plan import Plan
from adarray.compiler.ir.target import GpuTarget
from adarray.device import DeviceEngine, Library
from adarray.errors import BackendError
from adarray.runtime import CompiledPlan, CompilingEngine, FaultHandler

# What the operands of float32 products are rounded to, and the compute capability it needs.
PRECISIONS = {"float32": (0, 0), "tf32": (8, 0), "bf16": (8, 0), "fp16": (7, 0)}
# That of the innermost `use` block: arrays stay on the device, blocks come and go.
PRECISION: ContextVar[str] = ContextVar("adarray_matmul_precision", default="float32")
# Threads of a block, of kernels for single operations: likewise.
USUAL_THREADS = 256
THREADS: ContextVar[int] = ContextVar("adarray_threads_per_block", default=USUAL_THREADS)
_WARP, _MOST_THREADS = 32, 1024


class CudaEngine(DeviceEngine, CompilingEngine):
    """An engine that computes on a GPU.

    Parameters
    ----------
    library : Library
    matmul_precision : {"float32", "tf32", "bf16", "fp16"}
        What the operands of products of float32 matrices are rounded to.
    threads_per_block : int, optional
        Of every kernel; chosen for each one if not given.
    """

    def __init__(
        self,
        library: Library,
        matmul_precision: str = "float32",
        threads_per_block: int | None = None,
    ) -> None:
        super().__init__("cuda", library)
        self.matmul_precision = matmul_precision
        self.threads_per_block = threads_per_block

    @cached_property
    def target(self) -> GpuTarget:
        """Return the GPU that programs are compiled for."""
        from adarray_backends.cuda import gpu  # imports CuPy

        return gpu.target_of(self.library.index)

    def executable(
        self, plan: Plan, precise: bool = False, rerun: FaultHandler | None = None
    ) -> CompiledPlan:
        """Return a compiled plan, which runs on CuPy's arrays.

        Parameters
        ----------
        plan : Plan
        precise : bool
            Taken for the sake of other engines: CUDA has one version of each function.
        rerun : FaultHandler, optional
            Called as ``rerun(arrays, 0, code, None)`` where a kernel refused its data.
        """
        from adarray_backends.cuda import plans  # imports CuPy

        return plans.executable(
            plan,
            precision=self.matmul_precision,
            precise=precise,
            rerun=rerun,
            library=self.library,
            threads=self.threads_per_block,
        )

    language = "CUDA"  # of what `compile_source` takes

    def compile_source(
        self,
        text: str,
        name: str,
        shared: int = 0,
        alone: bool = False,  # noqa: ARG002
    ) -> Any:
        """Compile a kernel; return CuPy's function of it, which may have so much shared memory."""
        import cupy
        from adarray_backends.cuda import modules, nvrtc

        (function,) = nvrtc.load(cupy, text, (name,))
        if shared:
            modules.allow(function, shared)
        return function

    def enter(self) -> tuple[str, int]:
        """Let products and kernels follow this engine's options; return what held before."""
        before = PRECISION.get(), THREADS.get()
        PRECISION.set(self.matmul_precision)
        THREADS.set(self.threads_per_block or USUAL_THREADS)
        return before

    def leave(self, token: tuple[str, int]) -> None:
        """Return to the options that held before."""
        PRECISION.set(token[0])
        THREADS.set(token[1])


def checked_precision(option: Any, capability: tuple[int, int]) -> str:
    """Return the option ``matmul_precision``.

    Raises
    ------
    BackendError
        If it is none that there is, or one that the GPU has no Tensor Cores for.
    """
    if not isinstance(option, str) or option not in PRECISIONS:
        raise BackendError(
            f"backend 'cuda': the option matmul_precision is {option!r}; pass one of "
            f"{', '.join(map(repr, PRECISIONS))} (exact products are 'float32')"
        )
    if capability < PRECISIONS[option]:
        major, minor = PRECISIONS[option]
        raise BackendError(
            f"backend 'cuda': the option matmul_precision is {option!r}, which needs a GPU of "
            f"compute capability {major}.{minor}; this one has "
            f"{capability[0]}.{capability[1]}: leave the option out"
        )
    return option


def checked_threads(option: Any) -> int | None:
    """Return the option ``threads_per_block``.

    Raises
    ------
    BackendError
        If it is no number of threads that a block may have.
    """
    if option is None:
        return None
    whole = isinstance(option, int) and not isinstance(option, bool)
    if not whole or option % _WARP or not _WARP <= option <= _MOST_THREADS:
        raise BackendError(
            f"backend 'cuda': the option threads_per_block is {option!r}; pass a multiple of "
            f"{_WARP} from {_WARP} to {_MOST_THREADS}, or leave it out"
        )
    return int(option)

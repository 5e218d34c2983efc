"""Running kernels: argument lists, and what backends compile and call."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from adarray.backend import use
from adarray.base.runtime import current_mode
from adarray.compiler.ir.threads import ThreadKernel
from adarray.errors import BackendError, KernelError
from adarray.kernels import print_cpu
from adarray.kernels.geometry import Launch

_NAME = "adarray_kernel_name"
_CHUNKS = 8  # pieces of work for each thread of the processor
USUAL_LIMIT = 1 << 31  # bytes of tapes


class _Call(ctypes.Structure):
    """What compiled kernels get; `adarray.kernels.print_cpu` has it in C."""

    _fields_ = (
        ("args", ctypes.c_void_p),
        ("grid", ctypes.c_int64 * 3),
        ("block", ctypes.c_int64 * 3),
        ("dynamic", ctypes.c_int64),
        ("next", ctypes.c_int64),
        ("blocks", ctypes.c_int64),
        ("chunk", ctypes.c_int64),
        ("limit", ctypes.c_int64),
        ("status", ctypes.c_int64),
        ("used", ctypes.c_int64),
    )


def engine() -> Any:
    """Return the engine that compiles kernels here: NumPy's place is taken by the serial one."""
    found = current_mode().engine
    if found is None or not hasattr(found, "compile_source"):
        found = use("serial")._engine
    if not hasattr(found, "compile_source"):
        raise BackendError("kernels: no backend compiles kernels; use serial, openmp or cuda")
    return found


class CpuKernel:
    """A kernel compiled for processors.

    Parameters
    ----------
    kernel : ThreadKernel
    engine : Engine
    """

    def __init__(self, kernel: ThreadKernel, engine: Any) -> None:
        self.kernel = kernel
        self.threads = int(engine.threads)
        text = print_cpu.source(kernel, _NAME, self.threads > 1)
        name = "k" + hashlib.sha256(text.encode()).hexdigest()[:24]
        self.source = text.replace(_NAME, name)
        self.run: Callable[[int], None] = engine.compile_source(self.source, name)
        self.dtypes = dict(kernel.scalars)

    def __call__(self, launch: Launch, values: Mapping[str, Any], limit: int = USUAL_LIMIT) -> int:
        """Run it on arrays and numbers by name; return the bytes of its tapes."""
        held = []
        pointers = (ctypes.c_void_p * max(1, len(self.kernel.order)))()
        for i, name in enumerate(self.kernel.order):
            x = values[name]
            if name in self.dtypes:
                x = np.array(x, self.dtypes[name])
            held.append(x)
            pointers[i] = x.ctypes.data
        call = _Call()
        call.args = ctypes.addressof(pointers)
        call.grid[:], call.block[:] = launch.grid, launch.block
        call.dynamic, call.blocks, call.limit = launch.shared, launch.blocks, limit
        call.chunk = max(1, launch.blocks // (self.threads * _CHUNKS))
        self.run(ctypes.addressof(call))
        if call.status:
            raise KernelError(
                f"kernel {self.kernel.name}: its tape needs more than memory_limit={limit} bytes; "
                "give a larger one, or launch fewer threads at once"
            )
        return int(call.used)


def compiled(kernel: ThreadKernel, engine: Any) -> CpuKernel:
    """Return a kernel that is ready to run on an engine."""
    if getattr(engine, "language", "C") == "C":
        return CpuKernel(kernel, engine)
    raise BackendError(f"kernels: the backend {engine.name!r} is not supported")

"""The serial backend: kernels printed from the operation records as C, one thread."""

from __future__ import annotations

from typing import Any

from adarray_backends.cpu.backend import CPUBackend
from adarray_backends.cpu.runtime import CPUEngine

from adarray.errors import BackendError


class SerialBackend(CPUBackend):
    """Compiled kernels on one thread, with the vector instructions of the processor."""

    name = "serial"
    module = "_serial"
    known = ("threads", "cutoff")

    def engine(self, **options: Any) -> CPUEngine:
        """Return an engine; see `CPUBackend.engine`. `threads` may be 1 only."""
        engine = super().engine(**options)
        if engine.threads != 1:
            raise BackendError(
                f"backend 'serial': the option threads is {engine.threads}, and this backend "
                "computes with one thread; use the backend 'openmp'"
            )
        return engine

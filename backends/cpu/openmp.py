"""The openmp backend: the serial backend's kernels on several threads."""

from __future__ import annotations

import os

from adarray_backends.cpu.backend import CPUBackend
from adarray_backends.cpu.runtime import KernelLibrary

from adarray.errors import BackendError

# Variables that bind threads to processors.
BINDING = frozenset({"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY"})


class OpenMPBackend(CPUBackend):
    """Compiled kernels on a pool of threads.

    Notes
    -----
    Each call names its number of threads, so contexts with different numbers do not
    disturb each other. Without the option, OMP_NUM_THREADS or the processors that this
    process may use decide. While other programs hold the processors, so that a call waits
    for its pool longer than it works, the next calls run on one thread.
    """

    name = "openmp"
    module = "_openmp"
    known = ("threads", "cutoff")

    def load(self) -> KernelLibrary:
        """Load the extension module; have the pool stopped before a fork.

        A forked child has none of the pool's threads and would wait for them.
        """
        library = super().load()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=library.lib.adarray_pause)
        return library

    def default_threads(self) -> int:
        """Return the first number in OMP_NUM_THREADS, or the number of usable processors."""
        number = os.environ.get("OMP_NUM_THREADS", "")
        wanted = number.split(",")[0].strip()
        if wanted.isdecimal() and int(wanted) > 0:
            return int(wanted)
        if number.strip():
            raise BackendError(
                f"backend 'openmp': the environment variable OMP_NUM_THREADS is {number!r}; set it "
                'to a whole number above 0, unset it, or write use("openmp", threads=...)'
            )
        # Where threads are bound to processors, the main thread may use one only.
        if hasattr(os, "sched_getaffinity") and BINDING.isdisjoint(os.environ):
            return len(os.sched_getaffinity(0))
        return max(1, int(self.library.lib.adarray_processors()))

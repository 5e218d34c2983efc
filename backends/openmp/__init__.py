"""The openmp backend: the serial backend's kernels on several threads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from adarray_native.backend import CPUBackend
from adarray_native.runtime import Library

# How often a thread that waits looks for work before it sleeps: about 50 microseconds on
# current processors. GNU's default is some 10 milliseconds, in which a waiting thread takes
# the processor from the very thread it waits for when other programs run: a training step
# of 2 ms took 50 to 80 then.
SPINS = "1000"


@contextmanager
def _short_spin() -> Iterator[None]:
    """Have the OpenMP runtime, if it is loaded in this block, wait for a short time only."""
    if any(name in os.environ for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")):
        yield
        return
    os.environ["GOMP_SPINCOUNT"] = SPINS
    try:
        yield
    finally:
        os.environ.pop("GOMP_SPINCOUNT", None)


class OpenMPBackend(CPUBackend):
    """Compiled kernels on a team of threads.

    Notes
    -----
    Each call names its number of threads, so contexts with different numbers do not
    disturb each other. Without the option, OMP_NUM_THREADS or the processors that this
    process may use decide. OMP_WAIT_POLICY and GOMP_SPINCOUNT are honoured.
    """

    name = "openmp"
    module = "_openmp"
    known = ("threads", "cutoff")

    def load(self) -> Library:
        """Load the extension module; have the team stopped before a fork.

        A forked child has none of the team's members and would wait for them.
        """
        with _short_spin():
            library = super().load()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=library.lib.adarray_pause)
        return library

    def default_threads(self) -> int:
        """Return the first number in OMP_NUM_THREADS, or the number of usable processors."""
        wanted = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
        if wanted.isdigit() and int(wanted) > 0:
            return int(wanted)
        if hasattr(os, "sched_getaffinity"):
            return len(os.sched_getaffinity(0))
        return os.cpu_count() or 1

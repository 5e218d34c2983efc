"""A kernel and those derived from it, printed and compiled once."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from adarray.base.engines import BaseEngine
from adarray.compiler.ir.threads import ThreadKernel
from adarray.jitting.shared.background import Job
from adarray.kernels import lanes, parallel
from adarray.kernels.adjoint import Checkpoints
from adarray.kernels.forward import EVERY
from adarray.kernels.geometry import Launch
from adarray.kernels.launch import compiled, engine

Values = Mapping[str, Any]
T = TypeVar("T")
LAUNCHES = 1024  # of which something is remembered


class CompiledKernels:
    """What was printed and compiled of a kernel and of its derivatives.

    Parameters
    ----------
    kernel : ThreadKernel
    free_sums : bool
        Whether the kernel's own sums may be added up in any order, as those of derivatives are.
    """

    def __init__(self, kernel: ThreadKernel, free_sums: bool) -> None:
        self.kernel = kernel
        self.free_sums = free_sums
        self._lock = threading.Lock()
        self._texts: dict[Any, Any] = {}
        # By the identities of a kernel and an engine, which the entries keep alive.
        self._ready: dict[tuple[int, int, bool], tuple[ThreadKernel, BaseEngine, Any]] = {}
        # Kernels that other threads compile, by the same; see `begin`.
        self._begun: dict[tuple[int, int, bool], tuple[ThreadKernel, Job]] = {}
        # By the identities of kernels, which the entries keep alive, and integers.
        self._arranged: dict[Any, tuple[ThreadKernel, ThreadKernel]] = {}

    def memoised(self, key: Any, make: Callable[[], T]) -> T:
        """Return what was made for a key, once for all threads."""
        with self._lock:
            if key not in self._texts:
                self._texts[key] = make()
            result: T = self._texts[key]
        return result

    def compiled(
        self,
        kernel: ThreadKernel,
        counting: ThreadKernel | None = None,
        checkpoints: Checkpoints | None = None,
        alone: bool = False,
    ) -> Any:
        """Return a kernel that is ready to run where arrays are computed now.

        `alone` says that it will run with one thread, for which a thread pool is not woken up.
        """
        # Equal kernels have one text; a kernel that ran before is found without comparing texts.
        at = engine()
        key = (id(kernel), id(at), alone)
        entry = self._ready.get(key)
        if entry is None:
            begun = self._begun.pop(key, None)
            if begun is not None:
                begun[1].wait()
            run = self._built(kernel, at, counting, checkpoints, alone)
            if len(self._ready) >= LAUNCHES:  # `_arranged` forgets, too
                self._ready.clear()
            entry = self._ready[key] = (kernel, at, run)
        return entry[2]

    def _built(
        self,
        kernel: ThreadKernel,
        at: BaseEngine,
        counting: ThreadKernel | None,
        checkpoints: Checkpoints | None,
        alone: bool,
    ) -> Any:
        """Return what `compiled` does; no lock is held meanwhile."""

        def again(values: Values) -> int:
            """Return how many values come to the tape while iterations run again."""
            return 0 if checkpoints is None else checkpoints.taped * int(values[EVERY.name])

        alone = alone and at.language == "C" and at.threads > 1
        key = (kernel, at, alone)
        with self._lock:
            run = self._texts.get(key)
        if run is None:
            run = compiled(kernel, at, counting, again, alone)
            with self._lock:
                run = self._texts.setdefault(key, run)
        return run

    def begin(
        self, kernel: ThreadKernel, launch: Launch, counting: ThreadKernel | None = None
    ) -> None:
        """Have another thread compile a kernel as a launch needs it."""
        at, kernel = engine(), self.arranged(kernel, launch)
        key = (id(kernel), id(at), launch.alone)

        def work() -> None:
            with contextlib.suppress(Exception):  # raised again where the kernel is run
                self._built(kernel, at, counting, None, launch.alone)

        if key not in self._ready and key not in self._begun:
            if len(self._begun) >= LAUNCHES:  # of which many were never run
                self._begun.clear()
            self._begun[key] = kernel, Job(work)

    def arranged(self, kernel: ThreadKernel, launch: Launch) -> ThreadKernel:
        """Return a kernel for a launch: where it has one thread, as vectors, and shared."""
        if not launch.alone or engine().language != "C":
            return kernel
        if kernel is self.kernel and not self.free_sums:
            return kernel
        threads = engine().threads
        key = (id(kernel), launch.integers, threads)
        entry = self._arranged.get(key)
        if entry is None:
            if len(self._arranged) >= LAUNCHES:
                self._arranged.clear()
            integers, shared = dict(launch.integers), kernel
            if threads > 1:
                shared = parallel.shared(kernel, integers, threads)
            entry = kernel, lanes.arranged(shared, integers)
            self._arranged[key] = entry
        return entry[1]

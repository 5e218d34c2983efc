"""Tables in shared memory, in which the blocks of a GPU add up what they add to small arrays.

The cache of a GPU takes some hundred thousand million scattered additions a second. Where the
threads of a large launch add to few elements again and again, each multiprocessor adds up its own
sums first, in shared memory: `adarray.kernels.print_tables` has the text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from adarray.compiler.ir.loopir import Const, For, If
from adarray.compiler.ir.threads import Atomic, Stmt, ThreadKernel, While
from adarray.kernels import print_cuda
from adarray.kernels.copies import added
from adarray.kernels.geometry import Launch
from adarray.kernels.print_tables import HEAD, MOST, TableCudaPrinter, fits

USUAL_TRIPS = 8  # of a loop whose bounds are not known
WORTH = 3  # additions to each element of a table, at least
_NAME = "adarray_kernel_name"
_WARP = 32


def additions(kernel: ThreadKernel) -> dict[str, int]:
    """Return how many times, as a guess, a thread adds to the arrays of a kernel, each by itself.

    Parameters
    ----------
    kernel : ThreadKernel
    """
    counts: dict[str, int] = {}

    def count(body: tuple[Stmt, ...], times: int) -> None:
        for s in body:
            if isinstance(s, Atomic) and not s.same:
                counts[s.buffer] = counts.get(s.buffer, 0) + times
            elif isinstance(s, For):
                trips = USUAL_TRIPS
                if isinstance(s.start, Const) and isinstance(s.stop, Const):
                    trips = max(0, int(s.stop.value) - int(s.start.value))
                count(s.body, times * trips)
            elif isinstance(s, While):
                count(s.body, times * USUAL_TRIPS)
            elif isinstance(s, If):
                count(s.body, times)
                count(s.orelse, times)

    count(kernel.body, 1)
    return counts


class Plan(NamedTuple):
    """How a launch is made with tables.

    Attributes
    ----------
    tables : tuple of str
    blocks : int
        Of the GPU.
    threads : int
        Of each.
    shared : int
        Bytes of shared memory.
    """

    tables: tuple[str, ...]
    blocks: int
    threads: int
    shared: int


class BlockTables:
    """Launches a kernel with tables where they are worth it.

    Parameters
    ----------
    kernel : ThreadKernel
    engine : Engine
    """

    def __init__(self, kernel: ThreadKernel, engine: Any) -> None:
        self.kernel = kernel
        self.engine = engine
        self.times: dict[str, int] = {}
        self.names: tuple[str, ...] = ()
        if fits(kernel):
            adds = added(kernel)
            times = additions(kernel)
            self.names = (*adds.threads, *adds.blocks)
            self.times = {n: times.get(n, 0) for n in self.names}
        self.printed: dict[tuple[str, ...], TableCudaPrinter] = {}
        self.functions: dict[tuple[str, ...], Any] = {}

    def plan(self, launch: Launch, values: Mapping[str, Any]) -> Plan | None:
        """Return how to launch the kernel with tables; None where it is launched as it is."""
        sms = self.engine.target.sms
        if not any(self.times.values()) or launch.threads % _WARP or launch.blocks < 2 * sms:
            return None
        groups = min(MOST // launch.threads, -(-launch.blocks // sms))
        blocks = min(sms, -(-launch.blocks // groups))
        threads = launch.threads * -(-launch.blocks // blocks)  # that add to one table
        shared = self.engine.target.shared_memory
        taken = 0
        chosen: list[str] = []
        for name in sorted(self.names, key=lambda n: int(values[n].size)):
            size, times = int(values[name].size), self.times[name]
            bytes_ = -(-size // 4) * 4 * int(values[name].dtype.itemsize)
            # The other half of the memory caches what is read.
            if taken + bytes_ <= shared // 2 and (not times or times * threads >= WORTH * size):
                chosen.append(name)
                taken += bytes_
            elif times:
                return None
        tables = tuple(chosen)
        taken += self._printer(tables).stage * groups * launch.threads // _WARP
        return Plan(tables, blocks, groups * launch.threads, taken) if taken <= shared else None

    def _printer(self, tables: tuple[str, ...]) -> TableCudaPrinter:
        if tables not in self.printed:
            self.printed[tables] = TableCudaPrinter(self.kernel, _NAME, tables)
        return self.printed[tables]

    def _function(self, tables: tuple[str, ...]) -> Any:
        if tables not in self.functions:
            text = print_cuda.HEAD + HEAD + self._printer(tables).source()
            name = "k" + hashlib.sha256(text.encode()).hexdigest()[:24]
            room = self.engine.target.shared_memory
            function = self.engine.compile_source(text.replace(_NAME, name), name, room)
            self.functions[tables] = function
        return self.functions[tables]

    def run(self, plan: Plan, launch: Launch, args: Mapping[str, Any], tape: Any) -> None:
        """Launch the kernel.

        Parameters
        ----------
        plan : Plan
        launch : Launch
        args : dict
            Arrays and numbers by name, as functions take them.
        tape : array, optional
            Where the kernel has one.
        """
        rest = [args[n] for n in self.kernel.order]
        rest += [np.uint32(args[n].size) for n in plan.tables]
        rest.append(np.int64(launch.blocks))
        rest += [np.uint32(n) for n in (*launch.block, *launch.grid)]
        if tape is not None:
            rest.append(tape)
        function = self._function(plan.tables)
        function((plan.blocks, 1, 1), (plan.threads, 1, 1), rest, shared_mem=plan.shared)

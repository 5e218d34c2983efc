"""Running kernels: argument lists, and what backends compile and call."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from adarray.backend import use
from adarray.base.engines import BaseEngine, WrappingEngine
from adarray.base.runtime import Mode, current_mode
from adarray.compiler.ir.threads import ThreadKernel
from adarray.compiler.ir.verify_threads import verify
from adarray.device import is_device
from adarray.device.array import host_of
from adarray.errors import BackendError, KernelError
from adarray.kernels import lengths, print_cpu, print_cuda
from adarray.kernels.copies import BlockCopies, added
from adarray.kernels.forward import EVERY
from adarray.kernels.geometry import Launch
from adarray.kernels.parallel import is_shared
from adarray.kernels.tables import BlockTables, Plan

_NAME = "adarray_kernel_name"
_CHUNKS = 8  # pieces of work for each thread of the processor
_LENGTHS = 1024  # launches whose tapes are known
USUAL_LIMIT = 1 << 31  # bytes of tapes


# What compiled kernels get; `adarray.kernels.print_cpu` has it in C.
_CALL = np.dtype([
    ("args", np.uintp), ("sizes", np.uintp), ("grid", np.int64, 3), ("block", np.int64, 3),
    *((n, np.int64) for n in ("dynamic", "next", "blocks", "chunk", "limit", "status", "used")),
])  # fmt: skip


class TapeError(Exception):
    """A tape is larger than it may be; no user sees this error."""


def engine() -> BaseEngine:
    """Return the engine that compiles kernels here: NumPy's place is taken by the serial one."""
    mode: Mode | None = current_mode()
    if mode is not None and mode.recorder is not None:
        mode = mode.recorder.inner  # which computes what is recorded
    current = None if mode is None else mode.engine
    while isinstance(current, WrappingEngine):
        current = current.wrapped
    if current is None or not current.language:
        current = use("serial")._engine
    if current is None or not current.language:
        raise BackendError("kernels: no backend compiles kernels; use serial, openmp or cuda")
    return current


class CpuKernel:
    """A kernel compiled for processors.

    Parameters
    ----------
    kernel : ThreadKernel
    engine : Engine
    alone : bool
        Whether it runs with one thread, which may call others.
    """

    def __init__(self, kernel: ThreadKernel, engine: Any, alone: bool = False) -> None:
        self.kernel = kernel
        shared = is_shared(kernel)  # by threads that the kernel itself calls
        self.threads = 1 if shared or alone else int(engine.threads)
        forks = int(engine.threads) if shared else 1
        text = print_cpu.source(kernel, _NAME, self.threads > 1, forks)
        name = "k" + hashlib.sha256(text.encode()).hexdigest()[:24]
        self.source = text.replace(_NAME, name)
        self.run: Callable[[int], None] = engine.compile_source(
            self.source, name, alone=shared or alone
        )
        self.dtypes = dict(kernel.scalars)

    def __call__(self, launch: Launch, values: Mapping[str, Any], limit: int = USUAL_LIMIT) -> int:
        """Run it on arrays and numbers by name; return the bytes of its tapes."""
        args = [
            np.array(values[name], self.dtypes[name]) if name in self.dtypes else values[name]
            for name in self.kernel.order
        ]
        pointers = np.array([x.ctypes.data for x in args], np.uintp)
        sizes = np.array([x.size for x in args], np.int64)
        call = np.zeros((), _CALL)
        call["args"], call["sizes"] = pointers.ctypes.data, sizes.ctypes.data
        call["grid"], call["block"] = launch.grid, launch.block
        call["dynamic"], call["blocks"], call["limit"] = launch.shared, launch.blocks, limit
        call["chunk"] = max(1, launch.blocks // (self.threads * _CHUNKS))
        self.run(call.ctypes.data)
        if call["status"]:
            raise TapeError(
                f"kernel {self.kernel.name}: its tape needs more than memory_limit={limit} bytes; "
                "give a larger one, or launch fewer threads at once"
            )
        return int(call["used"])


def _nothing(values: Mapping[str, Any]) -> int:  # noqa: ARG001
    return 0


class CudaKernel:
    """A kernel compiled for a GPU; parameters are those of `CpuKernel`.

    `counting` is the part of it that only counts what goes to the tape; ``extra(values)`` is how
    many values may come on top of these.
    """

    def __init__(
        self,
        kernel: ThreadKernel,
        engine: Any,
        counting: ThreadKernel | None = None,
        extra: Callable[[Mapping[str, Any]], int] = _nothing,
    ) -> None:
        self.kernel = kernel
        self.library = engine.library
        self.dtypes = dict(kernel.scalars)
        printer = print_cuda.ThreadCudaPrinter(kernel, _NAME)
        self.dynamic = len(printer.dynamic)
        self.taped = printer.taped
        self.copies = BlockCopies(kernel, added(kernel), engine)
        self.text = print_cuda.HEAD + printer.source()
        self.engine = engine
        self.by_shape = printer.by_shape
        self.functions: dict[Any, Any] = {}  # by the shapes of blocks, where the text depends on it
        self.stage, self.fixed = printer.stage, printer.fixed
        self.tables = BlockTables(kernel, engine)
        self.counting: CudaKernel | None = None
        self.lengths: dict[Any, int] | None = None  # of tapes by launches, where they say it all
        self.extra = extra
        if self.taped:
            assert counting is not None
            self.counting = CudaKernel.__new__(CudaKernel)
            self.counting._count(counting, engine)
            self.lengths = {} if lengths.fixed(counting) else None

    def _count(self, kernel: ThreadKernel, engine: Any) -> None:
        """Become the kernel that counts."""
        verify(kernel)
        self.kernel, self.library, self.dtypes = kernel, engine.library, dict(kernel.scalars)
        printer = print_cuda.ThreadCudaPrinter(kernel, _NAME, True)
        self.dynamic, self.taped, self.counting = len(printer.dynamic), False, None
        self.stage = self.fixed = 0
        self.text, self.engine = print_cuda.HEAD + printer.source(), engine
        self.by_shape, self.functions = False, {}

    def function(self, launch: Launch) -> Any:
        """Return the compiled function for a launch."""
        shape = launch.block if self.by_shape else None
        if shape not in self.functions:
            text = self.text if shape is None else print_cuda.of_shape(shape, self.text)
            self.functions[shape] = _on_gpu(text, self.engine)[1]
        return self.functions[shape]

    def _named(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the kernel's own arguments, in order."""
        args = {}
        for name in self.kernel.order:
            x = values[name]
            if name in self.dtypes:
                args[name] = np.dtype(self.dtypes[name]).type(host_of(x))
            else:
                args[name] = self.library.raw(x)
        return args

    def _arguments(self, launch: Launch, values: Mapping[str, Any]) -> list[Any]:
        args = list(self._named(values).values())
        if self.dynamic:
            args.append(np.int64(launch.shared))
        if self.stage:
            args.append(np.uint32(self._staged(launch) > 0))
        return args

    def _staged(self, launch: Launch) -> int:
        """Return the bytes of shared memory in which warps exchange rows; 0: there is no room."""
        staged = self.stage * (-(-launch.threads // 32)) + 8
        whole = self.fixed + self.dynamic * launch.shared + staged
        return staged if self.stage and whole <= print_cuda.USUAL_SHARED else 0

    def __call__(self, launch: Launch, values: Mapping[str, Any], limit: int = USUAL_LIMIT) -> int:
        """Run it on arrays and numbers by name; return the bytes of its tapes."""
        plan = self.tables.plan(launch, values)
        if plan is not None and (size := self._with_tables(plan, launch, values, limit)) >= 0:
            return size
        args, shared = self._arguments(launch, values), self.dynamic * launch.shared
        if shared > print_cuda.USUAL_SHARED:
            raise KernelError(
                f"kernel {self.kernel.name}: it takes {shared} bytes of shared memory; a block has "
                f"{print_cuda.USUAL_SHARED}: derivatives need as much again as what they are of; "
                "use smaller tiles"
            )
        shared += self._staged(launch)
        copies = self.copies.placed(launch, args)
        if self.counting is None:
            self.function(launch)(launch.grid, launch.block, args, shared_mem=shared)
            self.copies.fold(copies)
            return 0
        words = self._words(self.counting, launch, values) + self.extra(values)
        block = 8 * max(1, words) * launch.threads
        many = min(launch.blocks, limit // block)
        if many < 1:
            raise TapeError(
                f"kernel {self.kernel.name}: the tape of one block takes {block} bytes, more than "
                f"memory_limit={limit}; give a larger one, or fewer threads to a block"
            )
        tape = self.library.run(self.library.xp.empty, many * block // 8, np.float64)
        for first in range(0, launch.blocks, many):
            count = min(many, launch.blocks - first)
            rest = [tape, np.int64(first), *map(np.uint32, launch.grid)]
            function = self.function(launch)
            function((count, 1, 1), launch.block, [*args, *rest], shared_mem=shared)
        self.copies.fold(copies)
        return many * block

    def _with_tables(
        self, plan: Plan, launch: Launch, values: Mapping[str, Any], limit: int
    ) -> int:
        """Run it with tables; return the bytes of its tapes, -1 where there is no room for them."""
        tape, size = None, 0
        if self.counting is not None:
            words = max(1, self._words(self.counting, launch, values) + self.extra(values))
            size = 8 * words * plan.blocks * plan.threads
            if size > limit:
                return -1
            tape = self.library.run(self.library.xp.empty, size // 8, np.float64)
        self.tables.run(plan, launch, self._named(values), tape)
        return size

    def _words(self, counting: CudaKernel, launch: Launch, values: Mapping[str, Any]) -> int:
        """Return how many values a thread puts on its tape at most, counted where it need be."""
        if self.lengths is None:
            return counting.most(launch, values)
        key = (launch._replace(active=()), values.get(EVERY.name))
        if key not in self.lengths:
            if len(self.lengths) >= _LENGTHS:
                self.lengths.clear()
            self.lengths[key] = counting.most(launch, values)
        return self.lengths[key]

    def most(self, launch: Launch, values: Mapping[str, Any]) -> int:
        """Return how many values a thread puts on its tape at most."""
        most = self.library.run(self.library.xp.zeros, 1, np.uint64)
        # What the forward part writes is written again by the whole kernel.
        written = {b.name for b in self.kernel.buffers if b.access != "in"}
        copies = {n: x.copy() if n in written else x for n, x in values.items()}
        args = [*self._arguments(launch, copies), most]
        function = self.function(launch)
        function(launch.grid, launch.block, args, shared_mem=self.dynamic * launch.shared)
        return int(self.library.to_host(most)[0])


def _on_gpu(text: str, engine: Any) -> tuple[str, Any]:
    name = "k" + hashlib.sha256(text.encode()).hexdigest()[:24]
    source = text.replace(_NAME, name)
    return source, engine.compile_source(source, name)


def compiled(
    kernel: ThreadKernel,
    engine: Any,
    counting: ThreadKernel | None = None,
    extra: Callable[[Mapping[str, Any]], int] = _nothing,
    alone: bool = False,
) -> Any:
    """Return a kernel that is ready to run on an engine; see `CpuKernel` for `alone`."""
    verify(kernel)
    if engine.language == "C":
        return CpuKernel(kernel, engine, alone)
    return CudaKernel(kernel, engine, counting, extra)


def zeros(like: Any, shape: tuple[int, ...], dtype: str) -> Any:
    """Return zeros where `like` is."""
    if not is_device(like):
        return np.zeros(shape, dtype)
    return like.library.wrap(like.library.run(like.library.xp.zeros, shape, dtype), False)

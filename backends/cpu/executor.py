"""Plans as callables: their kernels loaded, their steps written down for jit.c."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from adarray_backends.cpu import blas
from adarray_backends.cpu.encoding import CpuEncoder
from adarray_backends.cpu.kernels import Kernels, LoadedKernels, kernels

from adarray.compiler.ir.identity import IdentityMap
from adarray.compiler.ir.loopir import Kernel
from adarray.compiler.ir.plan import KernelStep, Plan
from adarray.compiler.ir.target import CpuTarget
from adarray.compiler.print_c import printer as cprinter
from adarray.errors import BackendError
from adarray.runtime import BaseEngine, CompiledPlan, FaultHandler

_ARRAY_API: Any = np._core._multiarray_umath._ARRAY_API  # type: ignore[attr-defined]
_VECTOR_BYTES = {"base": 16, "avx2": 32, "avx512": 64}
LONG = 100_000  # characters of C from which on compiling fast matters more
_REMEMBERED = 20_000  # kernels whose text is remembered
_makers: dict[Any, Any] = {}
_printed: dict[tuple[Any, CpuTarget], str] = {}


def _maker(library: Any) -> Any:
    """Return the function of an extension module that makes callables of plans."""
    if library not in _makers:
        constructors: dict[str, Any] = {}
        if library.lib.adarray_executable_install(id(_ARRAY_API), id(constructors)) != 0:
            raise BackendError("jit: the extension module cannot use this NumPy; reinstall adarray")
        _makers[library] = constructors["make"]
    return _makers[library]


def _reporter(rerun: FaultHandler | None) -> Callable[[list[Any], int, int, Any], list[Any]]:
    """Return what is called when a run raised flags or a kernel failed.

    It does not refer to the executable: jit.c keeps it.
    """

    def report(arrays: list[Any], flags: int, code: int, results: Any) -> list[Any]:
        if code == 0 and (rerun is None or not rerun.hears(flags)):
            return results  # type: ignore[no-any-return]
        if rerun is not None:
            return rerun(arrays, flags, code, results)
        raise BackendError(
            f"compiled plan: a kernel refused its data with code {code} (an index out of bounds, "
            "for instance); run the function without jit to see NumPy's error"
        )

    return report


class CpuExecutable(CompiledPlan):
    """A plan that is ready to run.

    Attributes
    ----------
    run : callable
        ``run(arrays) -> results``: a list of inputs, in which Python and NumPy numbers may
        stand for arrays without axes, to a list of fresh arrays, and NumPy scalars for
        results without axes. Several threads may run it at once. Calling the executable is
        the same.
    timed : callable
        ``timed(arrays) -> (results, stamps)``; `stamps` has one number more than the plan
        has steps: the nanoseconds of `time.perf_counter_ns` at which each step began and
        the last one ended.
    plan : Plan
    compiled, from_disk, in_memory : int
        How many of its distinct kernels were compiled, loaded from the cache, or there.
    compile_seconds : float
        Time to compile and load them.
    arena_bytes, peak_bytes : int
        Memory of a run: for temporaries; and with results.
    threads : tuple of int
        Of each step of the plan.
    """

    __slots__ = (
        "_loaded",
        "_names",
        "_texts",
        "arena_bytes",
        "compile_seconds",
        "compiled",
        "from_disk",
        "in_memory",
        "peak_bytes",
        "plan",
        "run",
        "threads",
        "timed",
    )  # fmt: skip

    def __init__(
        self,
        plan: Plan,
        names: dict[int, str],
        texts: dict[str, str],
        loaded: LoadedKernels,
        run: Callable[[list[Any]], list[Any]],
        timed: Callable[[list[Any]], tuple[list[Any], tuple[int, ...]]],
    ) -> None:
        self.plan = plan
        self.run = run
        self.timed = timed
        self._names = names
        self._texts = texts
        self.compiled = loaded.compiled
        self.from_disk = loaded.from_disk
        self.in_memory = loaded.in_memory
        self.compile_seconds = loaded.seconds
        self.arena_bytes = self.peak_bytes = 0
        self.threads: tuple[int, ...] = ()

    def __call__(self, arrays: list[Any]) -> list[Any]:
        """Run the plan on inputs; see `run`."""
        return self.run(arrays)

    @property
    def from_cache(self) -> bool:
        """Whether nothing had to be compiled."""
        return self.compiled == 0

    def sources(self) -> list[tuple[str, str]]:
        """Return the name and the C source of each distinct kernel."""
        return list(self._texts.items())

    def source_of(self, step: int) -> str:
        """Return the C source of a step of the plan, "" if it is no kernel."""
        name = self._names.get(step)
        return "" if name is None else self._texts[name]


def text_of(kernel: Kernel, target: CpuTarget) -> str:
    """Return the source of a kernel."""
    text = _printed.get((kernel, target))
    if text is None:
        if len(_printed) >= _REMEMBERED:
            _printed.clear()
        text = _printed[kernel, target] = cprinter.source(kernel, target)
    return text


def _print(plan: Plan, target: CpuTarget) -> tuple[dict[int, str], dict[str, str]]:
    """Return the kernels' names by step, and their sources by name."""
    # Most steps of a long plan share a few kernel objects.
    known: IdentityMap[Kernel, str] = IdentityMap()
    names: dict[int, str] = {}
    texts: dict[str, str] = {}
    for i, step in enumerate(plan.steps):
        if not isinstance(step, KernelStep):
            continue
        kernel = step.kernel
        name = known.get(kernel)
        if name is None:
            text = text_of(kernel, target)
            name = known[kernel] = cprinter.name(text)
            texts[name] = text
        names[i] = name
    return names, texts


def _table(library: Any, precise: bool, texts: Iterable[str]) -> Kernels:
    return kernels(library, precise, quick=sum(map(len, texts)) > LONG)


def target_of(library: Any, threads: int, precise: bool) -> CpuTarget:
    """Return what kernels are printed for."""
    table = kernels(library, precise)
    # The text does not depend on the number of threads.
    return CpuTarget(
        vector_bytes=_VECTOR_BYTES[table.level],
        libmvec=table.compiler.libmvec,
        precise=precise,
        threads=threads,
    )


def prepare(library: Any, threads: int, plans: Iterable[Plan], precise: bool = False) -> None:
    """Compile the kernels of several plans together, which takes less time than one by one.

    Raises
    ------
    BackendError, CompileError
        As `executable`.
    """
    target = target_of(library, threads, precise)
    texts: dict[str, str] = {}
    for plan in plans:
        own = _print(plan, target)[1]
        if sum(map(len, own.values())) <= LONG:  # a long one has flags of its own
            texts |= own
    kernels(library, precise).load(texts)


def executable(
    library: Any, threads: int, plan: Plan, precise: bool = False,
    rerun: FaultHandler | None = None, engine: BaseEngine | None = None,
) -> CpuExecutable:  # fmt: skip
    """Compile a plan.

    Parameters
    ----------
    library : Library
        The extension module that runs it.
    threads : int
        The most that a step may use.
    plan : Plan
    precise : bool, optional
        Whether mathematical functions are the C library's scalar ones.
    rerun : FaultHandler, optional
        Called in the place of returning, if a kernel failed, or floating-point flags were raised
        that it hears. Without it, flags are not looked at.
    engine : BaseEngine, optional
        Computes parts of functions that the plan calls.

    Raises
    ------
    BackendError
        If there is no C compiler, or the plan holds Python objects.
    CompileError
        If a kernel does not compile.
    """
    make = _maker(library)
    names, texts = _print(plan, target_of(library, threads, precise))
    loaded = _table(library, precise, texts.values()).load(texts)
    encoder = CpuEncoder(library, threads, blas.ready(library.lib, library.ffi), engine)
    encoder.encode(plan, names, loaded.functions)
    run, timed = make(
        array("q", encoder.words).tobytes(),
        tuple(encoder.consts),
        tuple(encoder.dtypes),
        tuple(encoder.functions),
        _reporter(rerun),
    )
    executable_ = CpuExecutable(plan, names, texts, loaded, run, timed)
    executable_.arena_bytes = encoder.memory
    executable_.peak_bytes = encoder.memory + encoder.result_bytes
    executable_.threads = tuple(encoder.step_threads)
    return executable_

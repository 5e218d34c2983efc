"""Compiled plans on a GPU: kernels printed for it, cuBLAS, and CUDA graphs."""

from __future__ import annotations

from time import perf_counter, perf_counter_ns
from typing import Any
from weakref import WeakSet

from adarray_backends.cuda import launcher
from adarray_backends.cuda.encoding import CudaEncoder, StepSegment
from adarray_backends.cuda.instances import Instance, Instances
from adarray_backends.cuda.operands import Operands, PlanRun

from adarray.compiler.ir.plan import CallStep, Plan, Step
from adarray.compiler.ir.primitives import Map, mnemonic
from adarray.compiler.ir.verify_loops import checking
from adarray.compiler.schedule.gpu import model
from adarray.compiler.schedule.gpu.schedules import described as schedule_text
from adarray.compiler.schedule.gpu.span import span_of
from adarray.errors import BackendError, DeviceMemoryError
from adarray.runtime import CompiledPlan, FaultHandler

_MEMORY, _UNATTACHED = 2, 201  # the driver's errors
_ALIGNED = 16  # bytes

_executables: WeakSet[CudaExecutable] = WeakSet()


def give_back() -> None:
    """Let compiled plans give back the memory that they keep between runs."""
    for e in list(_executables):
        e.instances.idle.clear()


class CudaExecutable(CompiledPlan):
    """A plan that is ready to run on arrays of one GPU.

    Parameters
    ----------
    plan : Plan
    gpu : Gpu
        That is the current one.
    precision : {"float32", "tf32", "bf16", "fp16"}
        Of products of float32 matrices.
    graphs : bool
        Whether runs are captured and replayed.
    rerun : callable, optional
        ``rerun(arrays, 0, code, None) -> results``: what is returned if a kernel refused its
        data with a code; without it, BackendError is raised.
    threads : int, optional
        Of each block; chosen for each kernel if not given.
    aligned : bool
        Whether inputs lie at multiples of 16 bytes. Only conversions of operands of products
        ask: for inputs that do not, there is another executable.

    Attributes
    ----------
    loose : CudaExecutable or None
        What runs where inputs are not aligned, once there were any.
    arena_bytes, peak_bytes : int
        Memory of a run: for temporaries; and with results.
    compiled, from_disk, in_memory : int
        How many of its distinct kernels were compiled, loaded from the cache, or there.
    compile_seconds : float

    Notes
    -----
    Results are fresh arrays, which no later run touches. Memory for temporaries belongs to the
    stream that uses it. A plan waits for the GPU only if a kernel may refuse its data, such as
    an index out of bounds, until that is known: the error is raised at that call.
    """

    def __init__(
        self, plan: Plan, gpu: Any, precision: str = "float32", graphs: bool = True,
        rerun: FaultHandler | None = None, threads: int | None = None, aligned: bool = True,
    ) -> None:  # fmt: skip
        start = perf_counter()
        self.plan = plan
        self.gpu = gpu
        self.precision = precision
        self.rerun = rerun
        self.encoder = CudaEncoder(plan, gpu, precision, threads, aligned)
        loaded = gpu.load(self.encoder.texts.values())
        self.compiled, self.from_disk, self.in_memory = loaded.counts
        self.segments = self.encoder.segments(loaded.functions)
        self.instances = Instances(gpu, self.encoder, self.segments, graphs)
        self.operands = Operands(gpu, self.encoder, self.instances)
        self.arena_bytes = self.encoder.arena + self.encoder.workspace
        self.peak_bytes = self.arena_bytes + self.operands.bytes
        self._checks = checking()
        self._native = launcher.native().lib.adarray_device_run
        single = len(self.segments) == 1 and self.segments[0].words is not None
        self._single = single and not self._checks
        self._several = gpu.several
        wants = self.encoder.wants_aligned if aligned else ()
        self._aligned = [index for slot, index, _, _ in self.operands.inputs if slot in wants]
        self.loose: CudaExecutable | None = None
        self._options = graphs, rerun, threads
        self.compile_seconds = perf_counter() - start
        self.threads = (1,) * len(plan.steps)
        _executables.add(self)

    # -- facts -----------------------------------------------------------------------------

    @property
    def from_cache(self) -> bool:
        """Whether nothing had to be compiled."""
        return self.compiled == 0

    def sources(self) -> list[tuple[str, str]]:
        """Return the name and the CUDA source of each distinct kernel."""
        return [(name, text.text) for name, text in self.encoder.texts.items()]

    def source_of(self, step: int) -> str:
        """Return the CUDA source of a step of the plan, "" if it is no kernel."""
        kernel = self.encoder.kernels.get(step)
        return "" if kernel is None else kernel.text.text

    def schedule_of(self, step: int) -> str:
        """Return how the kernel of a step runs, in a few words; "" if it is no kernel."""
        kernel = self.encoder.kernels.get(step)
        return "" if kernel is None else schedule_text(kernel.schedule)

    def expected(self, step: int, moved: float, flops: float, calls: float) -> str:
        """Say how long the kernel of a step should take, and at least; "" if it is no kernel."""
        kernel = self.encoder.kernels.get(step)
        if kernel is None:
            return ""
        work = model.Work(moved, flops, calls)
        target, s = self.encoder.target, kernel.schedule
        chain = span_of(s, kernel.sizes, target)
        return model.described(model.predict(kernel.sizes, s.block, work, target, chain))

    def counts(self) -> launcher.GraphCounts:
        """Return what happened with graphs."""
        return self.instances.counts()

    # -- running ---------------------------------------------------------------------------

    def __call__(self, arrays: list[Any]) -> list[Any]:
        """Run on inputs; see `run`."""
        return self.run(arrays)

    def run(self, arrays: list[Any]) -> list[Any]:
        """Run on inputs, in which numbers may stand for arrays of one element.

        Several threads and streams may run it at once; the work goes to the caller's current
        stream.

        Raises
        ------
        BackendError, DeviceMemoryError
        TypeError
            If an input is not what the plan was made for.
        """
        if self._aligned and self._lie_between(arrays):
            return self._loosened().run(arrays)
        if not self._several:
            return self._run(arrays)
        index = self.gpu.index
        for i, a in enumerate(arrays):
            where = getattr(getattr(a, "data", None), "device_id", index)
            if where != index and a.size:
                raise BackendError(
                    f"compiled plan: input {i} is on GPU {where}, and the plan was made for GPU "
                    f"{index}; move the array with to_device('cuda:{index}')"
                )
        with self.gpu.current():
            return self._run(arrays)

    def _lie_between(self, arrays: list[Any]) -> bool:
        """Whether an input that must be aligned is not; numbers are sent to places that are."""
        kind = self.gpu.ndarray
        aligned = (arrays[i] for i in self._aligned)
        return any(isinstance(a, kind) and a.data.ptr % _ALIGNED for a in aligned)

    def _loosened(self) -> CudaExecutable:
        """Return what runs where inputs are not aligned."""
        if self.loose is None:
            with self.gpu.current():
                self.loose = CudaExecutable(
                    self.plan, self.gpu, self.precision, *self._options, aligned=False
                )
        return self.loose

    def _run(self, arrays: list[Any]) -> list[Any]:
        operands = self.operands
        try:
            x, places = operands.begin(arrays)
        except self.gpu.out_of_memory:
            x, places = self._begin_again(arrays)
        if self._single:
            status = self._native(x.runners[0].handle, x.stream)
            # What need not be done before is done while the GPU works.
            results = operands.arrays(places)
            if status and not self._served(x, 0, status):
                return self._refused(arrays, status)
        else:
            results = operands.arrays(places)
            run = PlanRun(x, arrays, results)
            for i, segment in enumerate(self.segments):
                for ask in (self._segment, self._asked):
                    status = ask(i, segment, run)
                    if status and not self._served(x, i, status):
                        return self._refused(arrays, status)
        if not operands.plain:
            results = operands.collect(PlanRun(x, arrays, results))
        operands.prepare(x)
        self.instances.keep(x)
        return results

    def _begin_again(self, arrays: list[Any]) -> tuple[Instance, list[Any]]:
        """Begin a run after memory was short, with what others kept."""
        give_back()
        self.gpu.release()
        try:
            return self.operands.begin(arrays)
        except self.gpu.out_of_memory as error:
            raise DeviceMemoryError(
                f"compiled plan: GPU {self.gpu.index} is out of memory: the call needs "
                f"{self.arena_bytes:,} bytes for temporaries and {self.operands.bytes:,} for "
                f"results ({error}; {self.gpu.memory()}); earlier results are intact: free some, "
                "or compute on smaller arrays"
            ) from error

    def _segment(self, i: int, segment: StepSegment, run: PlanRun) -> int:
        """Run a segment; return a status as device_launch.c does."""
        x = run.instance
        runner = x.runners[i]
        if runner is None:
            self._host_step(self.plan.steps[segment.first], run)
            return 0
        if not self._checks:
            return int(self._native(runner.handle, x.stream))
        for step in range(segment.first, segment.last):
            status = self._launched(i, step, x)
            status = status or runner.lib.adarray_device_wait(runner.handle, x.stream)
            if status >= launcher.REFUSED:
                return int(status)
            if status:
                raise self._fault(step, status, "failed")
        return 0

    def _asked(self, _: int, segment: StepSegment, run: PlanRun) -> int:
        """Return what kernels refused after an alarm of a check that a segment may rely on."""
        x = run.instance
        if segment.words is None or not self.encoder.relies or not self.instances.alarmed(x):
            return 0
        runner = next(x.runners[i] for i, s in enumerate(self.segments) if s.signals)
        status: int = runner.lib.adarray_device_wait(runner.handle, x.stream)
        return status

    def _launched(self, i: int, step: int, x: Instance) -> int:
        """Launch one step of a segment."""
        segment, runner = self.segments[i], x.runners[i]
        k = step - segment.first
        status: int = runner.lib.adarray_device_steps(
            runner.handle, x.stream, segment.bounds[k], segment.bounds[k + 1]
        )
        return status

    def _host_step(self, s: Step, run: PlanRun) -> None:
        if isinstance(s, CallStep):
            self.operands.call(s, run)
        else:
            self.operands.multiply(s, run, self.precision)

    def timed(self, arrays: list[Any]) -> tuple[list[Any], tuple[int, ...]]:
        """Return the results, and when each step began and the last one ended, in nanoseconds.

        The times are the GPU's, counted from the call.
        """
        if self._aligned and self._lie_between(arrays):
            return self._loosened().timed(arrays)
        with self.gpu.current():
            try:
                x, places = self.operands.begin(arrays)
            except self.gpu.out_of_memory:
                x, places = self._begin_again(arrays)
            run = PlanRun(x, arrays, self.operands.arrays(places))
            events = self.gpu.events(len(self.plan.steps) + 1)
            start = perf_counter_ns()
            for i, segment in enumerate(self.segments):
                for step in range(segment.first, segment.last):
                    events[step].record()
                    if x.runners[i] is None:
                        self._host_step(self.plan.steps[step], run)
                    elif status := self._launched(i, step, x):
                        raise self._fault(step, status, "could not be launched")
            events[-1].record()
            events[-1].synchronize()
            stamps = tuple(start + round(self.gpu.elapsed(events[0], e) * 1e6) for e in events)
            for i, segment in enumerate(self.segments):
                runner = x.runners[i]
                if segment.may_fail and (
                    status := runner.lib.adarray_device_wait(runner.handle, x.stream)
                ):
                    return self._refused(arrays, status), stamps
            results = self.operands.collect(run)
            self.instances.keep(x)
            return results, stamps

    # -- what a run brought ----------------------------------------------------------------

    def _served(self, x: Instance, i: int, status: int, attached: bool = False) -> bool:
        """Find what a run asks for, or raise; return False if a kernel refused its data."""
        runner = x.runners[i]
        if status == launcher.MOVES:
            status = self.instances.stage(x, runner)
            return status == 0 or self._served(x, i, status)
        if status < 0:
            self.instances.record(x)
            return True
        if status >= launcher.REFUSED:
            self.instances.keep(x)
            return False
        failed = runner.lib.adarray_device_failed_step(runner.handle)
        if status == _UNATTACHED and failed <= 0 and not attached:  # a thread's first call
            self.gpu.attach()
            status = self._native(runner.handle, x.stream)
            return status == 0 or self._served(x, i, status, True)
        segment = self.segments[i]
        step = next((k for k, b in enumerate(segment.bounds[1:]) if failed < b), 0)
        raise self._fault(segment.first + step, status, "could not be launched")

    def _refused(self, arrays: list[Any], status: int) -> list[Any]:
        """Return what `rerun` gives after a kernel refused its data, or raise."""
        code = status - launcher.REFUSED
        if self.rerun is not None:
            return self.rerun(arrays, 0, code, None)
        raise BackendError(
            f"compiled plan: a kernel refused its data with code {code} (an index out of "
            "bounds, for instance); run the function without jit to see the error"
        )

    def _fault(self, step: int, status: int, what: str) -> BackendError:
        """Return the error for a step."""
        if status >= launcher.FOURIER:
            words = f"cuFFT's status {status - launcher.FOURIER}"
        elif status >= launcher.LINALG:
            words = f"the status {status - launcher.LINALG} of cuSOLVER or cuBLAS"
        elif status >= launcher.BLAS:
            words = f"cuBLAS's status {status - launcher.BLAS}"
        else:
            words = self.gpu.error(status)
        kernel = self.encoder.kernels.get(step)
        source = "" if kernel is None else f"; its source is {self.gpu.keep(kernel.text)}"
        hint = "; an earlier kernel may be at fault: run with ADARRAY_CHECK=1 to see which"
        kind = DeviceMemoryError if status == _MEMORY else BackendError
        return kind(
            f"compiled plan: step {step} of {len(self.plan.steps)} "
            f"({described(self.plan.steps[step])}) {what}: {words}{source}"
            f"{'' if self._checks else hint}"
        )


def described(s: Step) -> str:
    """Return the operations of a step, with the user's line where it is known."""
    names, where = [], None
    for v in s.values:
        op = v.origin.op if v.origin is not None else None
        p = v.primitive
        primitive = p.name if isinstance(p, Map) else mnemonic(p)
        names.append(op.name if op is not None else primitive)
        where = (v.origin.where if v.origin is not None else None) or where
    short = list(dict.fromkeys(names))
    text = ", ".join(short[:6]) + (", ..." if len(short) > 6 else "")
    return f"{text}; {where[0]}:{where[1]}" if where else text


def executable(
    plan: Plan, precision: str = "float32", precise: bool = False,
    rerun: FaultHandler | None = None, library: Any = None, graphs: bool = True,
    threads: int | None = None,
) -> CudaExecutable:  # fmt: skip
    """Compile a plan for a GPU.

    Parameters
    ----------
    plan : Plan
    precision : {"float32", "tf32", "bf16", "fp16"}
        Of products of float32 matrices.
    precise : bool
        Has no effect: mathematical functions are accurate.
    rerun : callable, optional
        See `CudaExecutable`.
    library : CudaLibrary, optional
        Of the GPU; that of the current device if not given.
    graphs : bool
        Whether runs are captured and replayed.
    threads : int, optional
        Of each block.

    Raises
    ------
    CompileError
        If NVRTC refuses a kernel.
    """
    del precise
    from adarray_backends.cuda import library_of
    from adarray_backends.cuda.gpu import Gpu

    if library is None:
        import cupy

        library = library_of(cupy.cuda.runtime.getDevice())
    gpu = Gpu(library)
    with gpu.current():
        return library.run(  # type: ignore[no-any-return]
            CudaExecutable, plan, gpu, precision, graphs, rerun, threads
        )

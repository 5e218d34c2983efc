"""Contracts between adarray, the engines of backends, and `adarray.jit`.

`Engine` is the least that a backend gives; `adarray.use` makes a `BaseEngine` of it, once, which
has everything that adarray asks of any engine. Nothing else asks whether an engine has something.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from time import perf_counter_ns
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal, Protocol

from adarray.base.errors import BackendError
from adarray.base.types import ArrayValue, Function, Operands, Params, Shape

if TYPE_CHECKING:
    from adarray.base.op import Op
    from adarray.base.recording import Recording, Symbol
    from adarray.base.runtime import Mode
    from adarray.compiler.ir.loopir import Kernel
    from adarray.compiler.ir.plan import Plan
    from adarray.compiler.ir.target import Target
    from adarray.core.graph import Node
    from adarray.core.trace import Handle
    from adarray.device.library import Library


class Engine(Protocol):
    """A backend that is ready to compute: its kernels, with options applied.

    Each method may return ``NotImplemented``; NumPy then does the work, so an engine implements
    what it does better. Operands are plain values: ndarrays of any strides, NumPy scalars and
    Python numbers. Results are fresh ndarrays, or NumPy scalars where NumPy returns one.

    Attributes
    ----------
    name : str
        Name of the backend.
    threads : int
        Number of threads it computes with.
    """

    name: str
    threads: int

    def pointwise(self, op: Op, values: Operands) -> Any:
        """Compute the pointwise operation `op` on `values` with broadcasting."""

    def derivative(self, op: Op, operand: int, g: ArrayValue, saved: Operands) -> Any:
        """Compute ``op.rules[operand](g, *saved)`` in one pass over memory.

        `saved` is ``(out, *operands)`` with None where the rule reads nothing.
        """

    def call(self, op: Op, values: Operands, params: Params) -> Any:
        """Compute any other operation, for instance a reduction or a product."""


class BaseEngine:
    """An engine with every method that adarray calls; the inherited ones do nothing special.

    A backend derives from it to have more than the three methods of `Engine`.

    Attributes
    ----------
    name : str
        Name of the backend.
    threads : int
        Number of threads it computes with.
    language : {"", "C", "CUDA"}
        What `compile_source` takes; "" if it compiles no source.
    device : adarray.device.Library or None
        The array library of the device that it computes on; None: the host.
    place : callable or None
        ``place(x)`` returns an operand as an `adarray.device.DeviceArray` if it is an array that
        belongs on the device, and anything else as it is. None: operands stay where they are.
    check_cotangent : callable or None
        ``check_cotangent(op, order, operand, g, ct)`` sees every cotangent that a reverse walk
        computes; `order` is the node's creation number.
    rule : callable or None
        ``rule(node, operand, g, saved)`` runs the derivative rules that are not pointwise, and
        returns what they do; None: they run by themselves.
    """

    name: str = ""
    threads: int = 1
    language: Literal["", "C", "CUDA"] = ""
    device: Library | None = None
    place: Function | None = None
    check_cotangent: Callable[[Op, int, int, ArrayValue, ArrayValue], None] | None = None
    rule: Callable[[Node, int, ArrayValue, Operands], object] | None = None

    @property
    def innermost(self) -> BaseEngine | None:
        """The engine that computes: this one, unless it hands everything to another, or NumPy."""
        return self

    @property
    def recorder(self) -> TracingEngine | None:
        """The engine itself, if it records for `adarray.jit` what it computes."""
        return None

    def pointwise(self, op: Op, values: Operands) -> Any:  # noqa: ARG002
        """Compute a pointwise operation; see `Engine`."""
        return NotImplemented

    def derivative(self, op: Op, operand: int, g: ArrayValue, saved: Operands) -> Any:  # noqa: ARG002
        """Compute a derivative rule of a pointwise operation; see `Engine`."""
        return NotImplemented

    def call(self, op: Op, values: Operands, params: Params) -> Any:  # noqa: ARG002
        """Compute any other operation; see `Engine`."""
        return NotImplemented

    def enter(self) -> object:
        """Begin a `use` block that chose this engine, for instance by providing memory.

        Returns
        -------
        object
            What `leave` needs.
        """
        return None

    def leave(self, token: object) -> None:
        """End a `use` block; `token` is what `enter` returned."""

    def synchronize(self) -> None:
        """Wait until all pending work is done."""

    def compile_source(
        self,
        text: str,  # noqa: ARG002
        name: str,  # noqa: ARG002
        shared: int = 0,  # noqa: ARG002
        alone: bool = False,  # noqa: ARG002
    ) -> Function:
        """Compile the function `name` of a source, for `adarray.kernels`.

        In C it is ``void name(void *data)``, and what is returned takes the address of `data`; each
        thread calls it, and they share the work by what they find there; with `alone`, only the
        caller does. In CUDA it is a kernel, and what is returned takes grid, block, arguments and
        ``shared_mem=``, up to `shared` bytes where that is more than usual.

        Raises
        ------
        BackendError
            If it compiles none.
        """
        raise BackendError(f"backend {self.name!r}: compiles no source; use serial, openmp or cuda")

    def trim(self) -> None:
        """Return cached memory to the system."""


class WrappingEngine(BaseEngine):
    """An engine that delegates to another one (or NumPy), and does something besides.

    Parameters
    ----------
    engine : BaseEngine or None
        The other one.
    name : str
        Of the backend.
    """

    def __init__(self, engine: BaseEngine | None, name: str) -> None:
        self.wrapped = engine
        self.name = name
        if engine is not None:
            self.threads = engine.threads
            self.device = engine.device
            self.place = engine.place
            self.language = engine.language

    def compile_source(
        self, text: str, name: str, shared: int = 0, alone: bool = False
    ) -> Function:  # fmt: skip
        """Compile by the other one."""
        if self.wrapped is None:
            return super().compile_source(text, name, shared, alone)
        return self.wrapped.compile_source(text, name, shared, alone)

    def synchronize(self) -> None:
        """Wait for the wrapped engine."""
        if self.wrapped is not None:
            self.wrapped.synchronize()

    def trim(self) -> None:
        """Return the cached memory of the wrapped engine."""
        if self.wrapped is not None:
            self.wrapped.trim()


# -- compiling ------------------------------------------------------------------------------


class FaultHandler(Protocol):
    """Handles floating-point flags that compiled code raised, and data that it refused."""

    def hears(self, flags: int) -> bool:
        """Whether any of the raised flags matters now: NumPy is to warn or raise."""

    def __call__(self, arrays: list[object], flags: int, code: int, results: Any) -> Any:
        """Return what the call returns in place of `results`; let NumPy warn or raise.

        Parameters
        ----------
        arrays : list
            The inputs of the call.
        flags : int
            Raised floating-point flags: bits 1 divide, 2 overflow, 4 underflow, 8 invalid. 0 from
            engines that cannot tell.
        code : int
            That of the `adarray.compiling.Fail` that a kernel reached; 0 if none did.
        results : list or None
            What was computed; None after a failure.
        """


class CompiledPlan:
    """A plan that is ready to run: what `CompilingEngine.executable` returns. Derive from it.

    Attributes
    ----------
    plan : adarray.compiling.Plan
    run : callable
        ``run(arrays) -> results``. `arrays` is a list of the plan's inputs, in which NumPy scalars
        and Python numbers may stand for arrays without axes. `results` is a list of arrays in C
        order that nothing else refers to, or that lie in the memory of inputs where the plan says
        so (`adarray.compiling.Buffer.donor`); on the host, NumPy scalars stand for those without
        axes. Several threads may run it at once.
    compiled, from_disk, in_memory : int
        How many of its distinct kernels were compiled, loaded from a cache, or there already; for
        `explain`.
    """

    __slots__ = ()

    plan: Plan
    run: Callable[[list[Any]], list[Any]]
    compiled: int = 0
    from_disk: int = 0
    in_memory: int = 0

    def timed(self, arrays: list[Any]) -> tuple[list[Any], Sequence[int]]:
        """Run it, and tell when each step began and the last one ended; for `adarray.profile`.

        Returns
        -------
        results : list
            As of `run`.
        stamps : sequence of int
            One more than the plan has steps: nanoseconds, as of `time.perf_counter_ns`. If this is
            inherited, all of the time counts for the first step.
        """
        start = perf_counter_ns()
        results = self.run(arrays)
        return results, [start, *[perf_counter_ns()] * len(self.plan.steps)]

    def source_of(self, step: int) -> str:  # noqa: ARG002
        """Return the source of a step of the plan, "" if there is none; for `explain`."""
        return ""

    def schedule_of(self, step: int) -> str:  # noqa: ARG002
        """Describe the schedule of a step in a few words, for `explain`; "" for none."""
        return ""

    def expected(self, step: int, moved: float, flops: float, calls: float) -> str:  # noqa: ARG002
        """Say how long a step should take, for `explain`; "" where that is not known.

        Parameters
        ----------
        step : int
        moved : float
            Bytes that it reads and writes.
        flops, calls : float
            Operations, and those of them that are functions of the library.
        """
        return ""


class AheadCompiler(Protocol):
    """Compiles the kernels of a long plan, or of many, while planning goes on."""

    def next_plan(self) -> None:
        """Take the kernels of another plan from now on."""

    def take(self, kernel: Kernel) -> None:
        """Take a kernel that will be in the plan, maybe several times."""

    def finish(self) -> None:
        """Wait for what was begun; `CompilingEngine.executable` is called next."""


class CompilingEngine(BaseEngine, ABC):
    """An engine that compiles plans for `adarray.jit`.

    Attributes
    ----------
    any_thread : bool
        Whether `prepare`, `ahead` and `executable` may be called on threads other than the one that
        will run what they make. Calls then need not wait for a compiler that takes long.
    """

    any_thread: bool = False

    @property
    @abstractmethod
    def target(self) -> Target:
        """What plans are made for; ``target = CPU`` in the class does, of `adarray.compiling`."""

    @abstractmethod
    def executable(
        self, plan: Plan, precise: bool = False, rerun: FaultHandler | None = None
    ) -> CompiledPlan:
        """Compile a plan.

        Parameters
        ----------
        plan : adarray.compiling.Plan
        precise : bool
            Whether mathematical functions must be as exact as the C library's.
        rerun : FaultHandler, optional
            Called in the place of returning, if a kernel failed, or if it raised floating-point
            flags that somebody wants to hear of. Without it a failure raises BackendError.

        Raises
        ------
        BackendError, CompileError
            If it cannot be compiled: the program runs step by step then, and a warning says why.
        """

    def prepare(self, plans: Iterable[Plan], precise: bool = False) -> None:
        """Compile the kernels of several plans together, before `executable` asks for them."""

    def ahead(self, precise: bool = False) -> AbstractContextManager[AheadCompiler] | None:  # noqa: ARG002
        """Return a compiler for kernels of a plan that is still being made; None for none."""
        return None


# -- recording ------------------------------------------------------------------------------


class TracingEngine(Protocol):
    """The engine of a run that `adarray.jit` records, as the code that runs sees it.

    ``Mode.recorder`` is one while a function is recorded. Values that depend on inputs are
    `Symbolic`: they hold the array of this run, and know the recorder.

    Attributes
    ----------
    recording : Recording
        What was recorded so far.
    inner : Mode or None
        What computes the values.
    error : BaseException or None
        Raised by an operation: if the function catches it, what it does next depends on values in
        a way that nothing shows.
    shown : bool
        Whether values were made into text.
    unrolls : bool
        Whether no loop is captured.
    memory_limit : int or None
        Bytes that the tapes of a captured loop may take, where it can run again from checkpoints.
    """

    recording: Recording
    inner: Mode | None
    error: BaseException | None
    shown: bool
    unrolls: bool
    memory_limit: int | None

    def capture(self, array: object) -> Any:
        """Return a plain array that the run reads as a symbolic value."""

    def constant(self, number: object) -> Handle:
        """Return a number of adarray's own as an ADArray, so that what is computed is recorded."""

    def as_operands(self, operands: Operands) -> Operands:
        """Return operands with plain arrays as ADArrays over captures."""

    def handle(self, x: Any) -> Handle:
        """Return a symbolic value as an ADArray."""

    def handles(self, x: object) -> Any:
        """Return symbolic values, or a sequence of them, as ADArrays."""

    def opened(self, x: object) -> Any:
        """Return `x` with the ADArrays in it replaced by their values."""

    def number(self, x: Any) -> Any:
        """Return a symbolic value without axes as a Python number."""

    def function(self, func: Function, args: Operands, kwargs: Params) -> Any:
        """Run a NumPy function on plain and symbolic values, and record it."""

    def write(self, old: object, steps: Operands, index: object, value: object) -> Any:
        """Return `old` with `value` written at ``index`` of the view that `steps` lead to."""

    def zeros(self, beside: object, shape: Shape, dtype: object) -> Any:
        """Return zeros on the device of `beside`; the recorder knows their contents."""

    def guard(self, kind: str, x: Any, outcome: object) -> Any:
        """Record a guard: Python read a value. Return that value."""

    def check(self, function: Function, args: object, kwargs: object) -> None:
        """Run a function that raises if values are invalid, now and in every later call."""

    def expect_not(self, raises: Callable[[], object]) -> None:
        """Have later calls, in which what `raises` returns is true, run the function itself.

        That is what Python's own functions would raise an error for; it is compared at the end.
        """

    def host(self, function: Function, args: object, r: object, params: object = None) -> Any:
        """Record a call that later runs make in Python."""

    def host_object(self, function: Function, args: object, symbol: Symbol) -> None:
        """Record a call in Python whose result is not an array."""

    def cached(self, function: Function, args: Operands, kwargs: Params) -> Callable[[], Any]:
        """Return what calls a function with a cache, as code outside of the recording does."""

    def generator(self, raw: object) -> Any:
        """Return a random generator that is the same one in every run."""

    def seeded(self, kind: Function, seed: object) -> Any:
        """Return a random generator that every run makes anew."""

    def drawn(self) -> int:
        """Return how many draws of random numbers were recorded so far."""

    def lend(self, array: Any, to: FrameType | None) -> None:
        """Note that the memory of an array made in this run is passed to other code."""

    def touched(self) -> None:
        """Note that a transform wrote into what it differentiates."""

    def is_input(self, x: object) -> bool:
        """Whether a traced value is an argument or a captured array, unchanged."""

    def refuse_memory(self, function: Function) -> None:
        """Refuse a question about memory that compiled code would answer differently."""

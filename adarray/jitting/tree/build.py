"""From a segment to what runs it: passes, plan, compiler, and the fallbacks without them."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

from adarray.base.engines import AheadCompiler, BaseEngine, CompiledPlan, CompilingEngine
from adarray.base.errors import BackendError, CompileError
from adarray.base.op import Op
from adarray.base.recording import Call, Symbol
from adarray.base.scope import UNINTERCEPTED, outside, package_of
from adarray.base.spans import span
from adarray.base.telling import SILENT, Progress, SlowNotice, detail
from adarray.compiler.ir.interpret import Interpreted
from adarray.compiler.ir.plan import KernelStep
from adarray.compiler.ir.target import GpuTarget, Target
from adarray.compiler.ir.verify_loops import checking
from adarray.compiler.rewrite.factors import may_refuse
from adarray.core.inplace import WRITE
from adarray.device import Library, is_device
from adarray.jitting.shared.background import Job, Late
from adarray.jitting.shared.collector import collector_waits
from adarray.jitting.shared.keys import replace_symbols
from adarray.jitting.shared.options import Options
from adarray.jitting.tree.check import checked
from adarray.jitting.tree.donation import pairs
from adarray.jitting.tree.reruns import Rerun, Run, after_numbers
from adarray.jitting.tree.tree import TreeNode


class JitWarning(RuntimeWarning):
    """Something that `adarray.jit` should compile stays uncompiled, or differs from the request."""


# Values of a program that is planned for so long that its kernels are compiled meanwhile.
LONG = 4000
# Operations of segments that are planned for so long that a line may have to say so; their kernels
# are compiled meanwhile, too.
MANY = 1000
# Seconds that a call waits for the compiler; after that NumPy runs it. None: any number.
ANSWERED: float | None = 10.0

# Warnings of kernels that do not compile.
_uncompiled: set[str] = set()


def say(text: str) -> None:
    """Warn, at the line of the user's code that led here."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and package_of(frame.f_globals.get("__name__")) == "adarray":
        frame = frame.f_back
        level += 1
    warnings.warn(text, JitWarning, stacklevel=level)


def _no_run(_arrays: list[Any]) -> list[Any]:
    raise AssertionError("a segment is compiled before it runs")


class Draft:
    """A segment between its stages: programs, plan, executable, and what runs it."""

    def __init__(self, operations: int) -> None:
        self.operations = operations
        self.before: Any = None
        self.after: Any = None
        self.plan: Any = None
        self.executable: CompiledPlan | None = None
        self.ahead: AheadCompiler | None = None
        self.run: Run = _no_run
        self.seconds: dict[str, float] = {}
        self.eager = ""
        # The compiled plan and the seconds that it took, from another thread; or the error.
        self.outcome: tuple[CompiledPlan, float] | Exception | None = None
        self.late: list[TreeNode] = []  # that NumPy runs until the code is ready

    def set(self, executable: CompiledPlan, seconds: float) -> None:
        """Set the compiled code."""
        self.executable = executable
        self.run = executable.run
        if package_of(type(executable).__module__) not in UNINTERCEPTED:
            self.run = outside(self.run)  # somebody's code, which is never intercepted
        self.seconds["compile"] = seconds


def _shared_key(node: TreeNode) -> Any:
    """Return the key that equal segments share, wherever they stand."""
    return (node.body, tuple(n - node.first for n in node.targets), _donated(node))


def _donated(node: TreeNode) -> tuple[tuple[int, int], ...]:
    """Return which targets may have the memory of which sources."""
    return pairs(node)


def _donations(node: TreeNode, draft: Draft, target: Target) -> tuple[tuple[int, int], ...]:
    """Return `_donated`; nothing if the program may have to run again."""
    donated = _donated(node)
    on_gpu = isinstance(target, GpuTarget)  # where nobody asks before the end
    if donated and any(
        getattr(v.origin, "errors", None) is not None or (on_gpu and may_refuse(v))
        for v in draft.after.values
    ):
        return ()
    return donated


def _size(drafts: dict[Any, Draft]) -> str:
    """Return how much there is to compile."""
    programs = [d.after or d.before for d in drafts.values()]
    if not all(programs):
        return f"{sum(d.operations for d in drafts.values())} operations"
    values = sum(len(p.values) for p in programs)
    steps = [s for d in drafts.values() if d.plan is not None for s in d.plan.steps]
    kernels = {id(s.kernel) for s in steps if isinstance(s, KernelStep)}
    return f"{values} values" + (f" in {len(kernels)} kernels" if steps else "")


class SegmentCompiler:
    """Makes the executables of a jitted function for one engine.

    Parameters
    ----------
    engine : BaseEngine or None
        Programs are interpreted with NumPy if it is None or does not compile.
    options : Options
    name : str, optional
        What is compiled, in words.
    """

    def __init__(
        self, engine: BaseEngine | None, options: Options, name: str = "a function"
    ) -> None:
        self.engine = engine
        self.compiler = engine if isinstance(engine, CompilingEngine) else None
        self.options = options
        self.name = name
        # Of the device where it computes, if it does.
        self.library = engine.device if engine is not None else None
        self._said: set[str] = set()
        self._built = False

    def build(self, nodes: list[TreeNode]) -> None:
        """Set ``node.compiled`` and what `explain` shows of it; compile all kernels at once."""
        drafts: dict[Any, Draft] = {}
        progress = Progress()
        many = sum(len(n.calls) for n in nodes) > MANY
        timed = many or self.library is not None
        watch = SlowNotice(lambda: self._progress_line(drafts, progress), timed=timed)
        with collector_waits(), contextlib.ExitStack() as stack, watch:
            # One compiler beside all plans of a long path: it gets their kernels as they come.
            early = self._ahead(stack) if many else None
            for node in nodes:
                key = _shared_key(node)
                if key not in node.tree.shared and key not in drafts:
                    drafts[key] = Draft(len(node.calls))
                    self._draft(node, drafts[key], stack, many, early)
            planned = [d for d in drafts.values() if d.plan is not None]
            if planned:
                self._compile(planned, stack, watch, progress)
        self._built = self._built or bool(drafts)
        for node in nodes:
            key = _shared_key(node)
            if key in drafts:
                node.tree.shared[key] = drafts[key]
            self._assign(node, node.tree.shared[key])
        if drafts:
            detail(lambda: self._summary_line(drafts))

    def _assign(self, node: TreeNode, draft: Draft) -> None:
        """Set the results of compiling a segment, or an equal one."""
        node.before, node.after, node.plan = draft.before, draft.after, draft.plan
        node.executable, node.seconds, node.eager = draft.executable, draft.seconds, draft.eager
        run = checked(node, draft.run, self.library) if checking() else draft.run
        node.compiled = (node.targets, run)
        if type(draft.run) is Late:
            draft.late.append(node)

    def _progress_line(self, drafts: dict[Any, Draft], progress: Progress) -> str:
        """Return a progress line about compiling that takes long."""
        at = progress.text or f"its passes and its plan, {_size(drafts)}"
        waits = ANSWERED is None or self.options.wait
        meanwhile = "" if waits else f" NumPy answers calls from {ANSWERED:.0f} s on;"
        return (
            f"compiling {self.name} has taken {SILENT:.0f} s so far: {at};{meanwhile} see "
            "jit(f).explain(...), and more lines with ADARRAY_VERBOSE=1"
        )

    def _summary_line(self, drafts: dict[Any, Draft]) -> str:
        """Return a line that sums up what was compiled, or is not done yet."""
        stages: dict[str, float] = {}
        for d in drafts.values():
            for stage, seconds in d.seconds.items():
                stages[stage] = stages.get(stage, 0.0) + seconds
        times = ", ".join(f"{stage} {seconds:.3f} s" for stage, seconds in stages.items())
        executables = [d.executable for d in drafts.values() if d.executable is not None]
        fresh, disk = sum(e.compiled for e in executables), sum(e.from_disk for e in executables)
        whys = "".join(f"; {d.eager}" for d in drafts.values() if d.eager)
        return (
            f"compiled {self.name}: {_size(drafts)}, {fresh} of them compiled and {disk} from the "
            f"cache; {times}{whys}"
        )

    def settle(self) -> None:
        """Give memory back, once recorded runs are forgotten that led to something compiled.

        They took the memory of every intermediate; what was compiled needs less.
        """
        if self._built and self.engine is not None:
            self.engine.trim()
        self._built = False

    def _draft(
        self,
        node: TreeNode,
        draft: Draft,
        stack: contextlib.ExitStack,
        unrolled: bool,
        early: AheadCompiler | None,
    ) -> None:
        """Make the plan of a segment, or what runs it without one."""
        symbols = node.path.symbols
        inputs = [symbols[n] for n in node.sources]
        outputs = [symbols[n] for n in node.targets]
        strides = {
            symbols[n]: s for n in node.sources if (s := node.tree.strides_of(n)) is not None
        }
        constants = node.path.constants
        start = perf_counter()
        try:
            from adarray.compiler.rewrite import optimise
            from adarray.compiler.translate.canonicalise import canonicalise

            with span("passes", "jit"):
                draft.before = canonicalise(
                    node.calls, inputs, outputs, strides=strides, constants=constants
                )
                draft.after = optimise(draft.before, check=checking())
        except Exception as error:  # what the passes cannot do still has to run
            if checking():
                raise
            draft.before = draft.after = None
            draft.eager = f"the passes failed: {type(error).__name__}: {error}"
            self._say(f"jit: {draft.eager}; its operations run one by one")
            draft.run = self._stepwise(Replayed(node.calls, inputs, outputs, constants))
            return
        draft.seconds["passes"] = perf_counter() - start
        if self.compiler is None:
            draft.eager = "the backend does not compile programs"
            draft.run = self._interpreted(draft)
            return
        start = perf_counter()
        try:
            from adarray.compiler.planning.planner import plan

            with span("plan", "jit"):
                donated = _donations(node, draft, self.compiler.target)
                if early is not None:
                    early.next_plan()
                elif len(draft.after.values) >= LONG:
                    early = self._ahead(stack)
                draft.ahead = early
                draft.plan = plan(
                    draft.after, self.options.memory_limit, donated, self.compiler.target,
                    None if early is None else early.take, unrolled,
                )  # fmt: skip
        except Exception as error:
            self._failed(draft, f"planning failed: {type(error).__name__}: {error}", error)
        draft.seconds["plan"] = perf_counter() - start

    def _ahead(self, stack: contextlib.ExitStack) -> AheadCompiler | None:
        """Return what compiles kernels while their plans are made, or None."""
        compiler = self.compiler
        if compiler is None:
            return None
        started: list[contextlib.AbstractContextManager[AheadCompiler] | None] = []

        def work() -> None:
            with contextlib.suppress(BackendError, OSError):  # seen when the plan is compiled
                started.append(compiler.ahead(self.options.precise))

        if Job(work).wait(SILENT) and started:  # else there is a compiler that does not answer
            (ahead,) = started
            return None if ahead is None else stack.enter_context(ahead)
        return None

    def _compile(
        self,
        drafts: list[Draft],
        stack: contextlib.ExitStack,
        watch: SlowNotice,
        progress: Progress,
    ) -> None:
        """Compile plans; NumPy runs those that take long until they are ready."""
        compiler = self.compiler
        assert compiler is not None  # it has planned these
        if not compiler.any_thread:
            self._make(compiler, drafts)
            for draft in drafts:
                self._collect(draft)
            return
        resources = stack.pop_all()

        def work() -> None:
            with resources:
                self._make(compiler, drafts)

        start = perf_counter()
        job = Job(work, progress)
        if not job.wait(max(0.1, watch.end - start)):
            watch.tell()
            answered = None if checking() or self.options.wait else ANSWERED
            job.wait(answered and max(0.0, start + answered - perf_counter()))
        if job.wait(0.0):
            for draft in drafts:
                self._collect(draft)
            return
        for draft in drafts:
            draft.run = Late(job, self._interpreted(draft), self._settler(draft))
            draft.eager = "it is being compiled; NumPy runs it meanwhile"

    def _settler(self, draft: Draft) -> Callable[[Late], Run]:
        """Return a function that takes in code compiled in the background."""

        def settle(late: Late) -> Run:
            nodes, draft.late, draft.eager = draft.late, [], ""
            try:
                self._collect(draft)
            finally:  # whatever it warns of
                for node in nodes:
                    if node.compiled is not None and node.compiled[1] is late:
                        self._assign(node, draft)
            detail(lambda: self._summary_line({0: draft}))
            return draft.run

        return settle

    def _make(self, compiler: CompilingEngine, drafts: list[Draft]) -> None:
        """Compile plans, all in one run of the compiler where that works."""
        precise = self.options.precise
        start = perf_counter()
        for draft in drafts:
            if draft.ahead is not None:
                draft.ahead.finish()
        if len(drafts) > 1:
            with span("compile", "jit"), contextlib.suppress(Exception):  # seen below, one by one
                compiler.prepare([d.plan for d in drafts], precise)
        shared = (perf_counter() - start) / max(1, len(drafts))
        for draft in drafts:
            start = perf_counter()
            try:
                with span("compile", "jit"):
                    rerun = Rerun(draft.after, any(b.donor >= 0 for b in draft.plan.buffers))
                    executable = compiler.executable(draft.plan, precise=precise, rerun=rerun)
                if not isinstance(executable, CompiledPlan):
                    raise BackendError(
                        f"backend {compiler.name!r}: executable() of {type(compiler).__name__} "
                        f"returned an object of {type(executable).__name__}, which does not "
                        "derive from adarray.runtime.CompiledPlan"
                    )
                draft.outcome = (executable, perf_counter() - start + shared)
            except Exception as error:
                draft.outcome = error

    def _collect(self, draft: Draft) -> None:
        """Take in the outcome of compiling a plan; say so if it is an error."""
        outcome, draft.outcome = draft.outcome, None
        if isinstance(outcome, BackendError):  # no compiler, or source that it refused
            self._failed(draft, str(outcome), outcome)
        elif isinstance(outcome, Exception):
            self._failed(draft, f"compiling failed: {type(outcome).__name__}: {outcome}", outcome)
        else:
            assert outcome is not None
            draft.set(*outcome)
            if self.library is not None:
                draft.run = after_numbers(draft.run, draft.after, self.library.kind)

    def _failed(self, draft: Draft, why: str, error: Exception) -> None:
        """Let a program run step by step, and say why."""
        if checking() and not isinstance(error, BackendError):
            raise error
        draft.eager = why
        draft.plan = None
        draft.run = self._interpreted(draft)
        if isinstance(error, CompileError):
            if why in _uncompiled:
                return  # another function has the same kernel
            _uncompiled.add(why)
        self._say(f"jit: {why.removeprefix('jit: ')}; the optimised program runs step by step")

    def _interpreted(self, draft: Draft) -> Run:
        """Return a function that runs the optimised program step by step."""
        if self.library is not None:
            return self._stepwise(Interpreted(draft.after, self.engine))
        return Ordered(Interpreted(draft.after, self.engine))

    def _stepwise(self, run: Any) -> Run:
        return run if self.library is None else OnLibrary(run, self.library)

    def _say(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            say(text)


class Ordered:
    """Runs a program with results in C order, as compiled segments expect them."""

    def __init__(self, run: Interpreted) -> None:
        self._run = run

    def __call__(self, arrays: list[Any], watch: Any = None) -> list[Any]:
        """Return the results for `arrays`; `watch` is told of each step (see `Interpreted`)."""
        return [
            x if x.ndim == 0 or x.flags.c_contiguous else np.ascontiguousarray(x)
            for x in self._run(arrays, watch)
        ]


class OnLibrary:
    """Runs the steps of a segment on values of a device, for arrays of its library."""

    def __init__(self, run: Any, library: Library) -> None:
        self._run = run
        self._library = library

    def __call__(self, arrays: list[Any], *watch: Any) -> list[Any]:
        """Return the results for `arrays`, which are their own and in C order."""
        library = self._library
        values = [library.wrap(x, False) if type(x) is library.kind else x for x in arrays]
        return [self._own(x) for x in self._run(values, *watch)]

    def _own(self, x: Any) -> Any:
        library = self._library
        if not is_device(x):
            return library.send(np.asarray(x, order="C"))
        own = x.raw.base is None and x.flags.c_contiguous
        return x.raw if own else library.copied(x.raw, "C")


class Replayed:
    """The recorded calls of a segment, run by NumPy as they were recorded."""

    def __init__(
        self,
        calls: list[Call],
        inputs: list[Symbol],
        outputs: list[Symbol],
        constants: dict[Symbol, np.ndarray],
    ) -> None:
        self.calls = calls
        self.inputs = inputs
        self.outputs = outputs
        self.constants = constants

    def __call__(self, arrays: list[Any]) -> list[Any]:
        """Return the results for `arrays`."""
        values: dict[Symbol, Any] = dict(self.constants)
        values.update(zip(self.inputs, arrays, strict=True))
        for call in self.calls:
            r = run_call(call, values.__getitem__)
            several = r if call.several else (r,)
            values.update(zip(call.results, several, strict=True))
        return [_fresh(values[s]) for s in self.outputs]


def run_call(call: Call, value: Callable[[Symbol], Any]) -> Any:
    """Compute one recorded call."""
    args = [replace_symbols(a, value) for a in call.args]
    params = {k: replace_symbols(v, value) for k, v in call.params.items()}
    op: Op | None = call.op
    if op is not None and op is not WRITE and op.variadic:
        fixed = op.arity - 1
        args = [*args[:fixed], list(args[fixed:])]
    return call.function(*args, **params)


def _fresh(x: Any) -> Any:
    return np.array(x, order="C") if isinstance(x, np.ndarray) else x

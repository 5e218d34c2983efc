"""Values of a kernel and of its derivatives, from plain arrays."""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from adarray.backend import use
from adarray.compiler.ir.threads import ThreadKernel
from adarray.device import KINDS, adopt, is_device
from adarray.device.array import host_of
from adarray.errors import DTypeError, KernelError
from adarray.kernels import checking, facts, figures, ownership, restoring, ssa
from adarray.kernels.adjoint import AdjointKernel, adjoint
from adarray.kernels.compiled import LAUNCHES, CompiledKernels, T
from adarray.kernels.dependence import KnownIndices
from adarray.kernels.forward import EVERY
from adarray.kernels.functions import UNBOUNDED
from adarray.kernels.geometry import Launch
from adarray.kernels.launch import TapeError, compiled, engine, zeros
from adarray.kernels.strong_zeros import StrongZeros
from adarray.kernels.tangent import TangentKernel, doubled, tangent
from adarray.kernels.types import FLOATS

Values = Mapping[str, Any]
# An adjoint that ran, its arguments, and the bytes of its tapes.
Ran = tuple[AdjointKernel, dict[str, Any], int]
_LATE = (1 << 62) - 1


class Execution(CompiledKernels):
    """Runs a kernel and its derivatives; what is printed and compiled is kept.

    Parameters
    ----------
    kernel : ThreadKernel
    memory_limit : int
        Bytes that tapes may take.
    check : bool
        Whether each run of the kernel itself is preceded by one that checks all accesses.
    skips : frozenset of str
        See `adarray.kernels.ssa.SsaProgram`. If there are any, gradients that have nan, and all
        on a device, are computed with those of `UNBOUNDED`; see `adarray.kernels.strong_zeros`.
    free_sums : bool
        Whether the kernel's own sums may be added up in any order, as those of derivatives are.
    wanted_limit : int, optional
        Bytes that tapes take where checkpoints make that possible; others are warned of.
    """

    def __init__(
        self,
        kernel: ThreadKernel,
        memory_limit: int,
        check: bool = False,
        skips: frozenset[str] = frozenset(),
        free_sums: bool = False,
        wanted_limit: int | None = None,
    ) -> None:
        super().__init__(kernel, free_sums)
        self.check = check
        self.memory_limit = memory_limit
        self.wanted_limit = wanted_limit
        self._long: set[Any] = set()  # launches whose gradients get checkpoints at once
        self._strong_zeros = StrongZeros(self._with_all)
        self.program = ssa.program(kernel, skips)
        self.dtypes = {b.name: b.dtype for b in kernel.buffers} | dict(kernel.scalars)
        self.buffers = tuple(b.name for b in kernel.buffers)
        written = {n.buffer for n in self.program.nodes if isinstance(n, ssa.Write)}
        self.outputs = tuple(n for n in self.buffers if n in written)
        waits = (ssa.Exchange, ssa.Wait)
        self._waits = any(isinstance(n, waits) for n in self.program.nodes)
        self._facts: dict[Any, Any] = {}

    # -- kernels -----------------------------------------------------------------------------------

    def foresee(self, launch: Launch, inputs: frozenset[str]) -> None:
        """Begin to compile the kernel and its adjoint, which are run one after the other.

        The first run of each waits for it. Only the adjoints of `of_one_thread` are known before
        the kernel has run.
        """
        if self.restores(launch):
            self.begin(self.kernel, launch)
            with contextlib.suppress(KernelError):  # raised again where the adjoint is wanted
                adjoint_kernel = self.of_one_thread(launch, inputs, known=True)
                self.begin(adjoint_kernel.kernel, launch, adjoint_kernel.counting)

    def adjoint(
        self,
        launch: Launch,
        inputs: frozenset[str],
        values: Values | None = None,
        checkpoints: bool = False,
    ) -> AdjointKernel:
        """Return the adjoint by some parameters, for a launch on arrays."""
        owners = ownership.Ownership()
        at = engine()
        if self.restores(launch):
            return self.of_one_thread(launch, inputs, checkpoints)
        if launch.alone and at.language != "C":
            owners = ownership.Ownership(frozenset(self.buffers))
        elif at.language == "C" and at.threads == 1:
            # One thread of the processor adds to all of them.
            once = self._fact(
                ("distinct", launch._replace(active=())),
                lambda: ownership.distinct(self.program, launch),
            )
            owners = ownership.Ownership(frozenset(self.buffers), once)
        elif values is not None:
            owners = self.owned(launch, values, at.language == "C")
        return self.of_facts(launch, inputs, owners, checkpoints)

    def of_facts(
        self,
        launch: Launch,
        inputs: frozenset[str],
        owners: ownership.Ownership,
        checkpoints: bool = False,
    ) -> AdjointKernel:
        """Return the adjoint where it is known who touches the elements of buffers."""
        private = self._fact(("private", launch), lambda: facts.private(self.program, launch))
        return self.memoised(
            ("adjoint", inputs, private, owners, checkpoints),
            lambda: adjoint(self.program, inputs, private, owners, checkpoints),
        )

    def restores(self, launch: Launch) -> bool:
        """Whether adjoints restore memory: in launches of one thread, which a processor runs."""
        return launch.alone and not self._waits and engine().language == "C"

    def of_one_thread(
        self,
        launch: Launch,
        inputs: frozenset[str],
        checkpoints: bool = False,
        known: bool = False,
    ) -> AdjointKernel:
        """Return the adjoint for a processor of a launch of one thread.

        With `known`, it may be one that gets results of the kernel.
        """
        owners = ownership.Ownership(
            frozenset((*self.buffers, *(s.name for s in self.kernel.shared)))
        )
        if checkpoints:
            return self.of_facts(launch, inputs, owners, True)
        private = self._fact(("private", launch), lambda: facts.private(self.program, launch))
        plan = self._fact(
            ("restored", launch, inputs),
            lambda: restoring.plan(
                self.program, inputs, private, owners, KnownIndices(self.program, launch)
            ),
        )
        return self.memoised(
            ("adjoint", inputs, private, owners, False, plan, known and plan.final),
            lambda: adjoint(self.program, inputs, private, owners, plan=plan, known=known),
        )

    def adjoints(self) -> list[AdjointKernel]:
        """Return the adjoints that were asked for so far."""
        with self._lock:
            return [x for x in self._texts.values() if isinstance(x, AdjointKernel)]

    def _fact(self, key: Any, make: Callable[[], T]) -> T:
        with self._lock:
            fact: T | None = self._facts.get(key)
        if fact is None:
            fact = make()
            with self._lock:
                if len(self._facts) >= LAUNCHES:
                    self._facts.clear()
                self._facts[key] = fact
        return fact

    def owned(self, launch: Launch, values: Values, blocks: bool) -> ownership.Ownership:
        """Return which elements of buffers no two blocks, or threads, touch."""
        names = tuple(n for n in self.buffers if self.dtypes[n] in FLOATS)
        sizes = tuple((n, math.prod(values[n].shape)) for n in names)
        shape = launch._replace(active=())

        def find() -> ownership.Ownership:
            kernel, probed = self.memoised(
                ("owners", blocks), lambda: ownership.probe(self.program, set(names), blocks)
            )
            args: dict[str, Any] = dict(launch.integers)
            for n in self.dtypes:
                if n not in args and n not in self.buffers:
                    args[n] = 0.0  # nothing that is probed depends on it
            for n, count in sizes:
                like = values[n]
                args[ownership.size(n)] = count
                notes = ((ownership.first, _LATE), (ownership.last, -1), (ownership.touches, 0))
                for f, start in notes:
                    threads = zeros(like, (count,), "int64")
                    threads[...] = start
                    args[f(n)] = threads
            self._run(kernel, launch, args)
            return ownership.owned(args, probed)

        return self._fact(("owned", shape, sizes, blocks), find)

    def figures(
        self, launch: Launch, adjoint_kernel: AdjointKernel, values: Values, numbers: int
    ) -> figures.Figures:
        """Return what a launch of an adjoint does, counted on the host."""
        at = use("serial")._engine
        kernel = figures.counted(adjoint_kernel.kernel)
        run = self.memoised(("figures", kernel, at), lambda: compiled(kernel, at))
        args = {n: np.array(host_of(x)) if n in self.buffers else x for n, x in values.items()}
        args = self._with_shadows(adjoint_kernel, args, {})
        args[figures.COUNTS] = counts = figures.empty_counts()
        run(launch, args)
        return figures.figures(adjoint_kernel.kernel, launch, counts, numbers, self.memory_limit)

    def tangent(self, inputs: frozenset[str]) -> TangentKernel:
        """Return the tangent by some parameters."""
        return self.memoised(("tangent", inputs), lambda: tangent(self.kernel, inputs))

    def adjoint_tangent(self, first: AdjointKernel, along: frozenset[str]) -> TangentKernel:
        """Return the tangent of an adjoint by some of its parameters."""
        return self.memoised(("second", first.kernel, along), lambda: tangent(first.kernel, along))

    # -- runs --------------------------------------------------------------------------------------

    def checked(self, values: Values) -> dict[str, Any]:
        """Return arguments as kernels take them.

        Raises
        ------
        DTypeError
            If an array has another dtype than the source says.
        """
        args = {}
        place = getattr(engine(), "place", None)
        for name, value in values.items():
            x = value
            if name in self.buffers:
                x = place(x) if place is not None and hasattr(x, "dtype") else x
                if not hasattr(x, "dtype") or x.dtype != self.dtypes[name]:
                    shown = getattr(x, "dtype", type(x).__name__)
                    raise DTypeError(
                        f"kernel {self.kernel.name}: the argument {name!r} is {shown}, and the "
                        f"source has {self.dtypes[name]}; convert it with astype"
                    )
                args[name] = x if x.flags.c_contiguous else x.copy(order="C")
            else:
                args[name] = x
        return args

    def _run(
        self,
        kernel: ThreadKernel,
        launch: Launch,
        values: dict[str, Any],
        counting: ThreadKernel | None = None,
    ) -> int:
        try:
            run = self.compiled(self.arranged(kernel, launch), counting, alone=launch.alone)
            used: int = run(launch, values, self.memory_limit)
        except TapeError as error:
            raise KernelError(str(error)) from None
        self._warn_of(used)
        return used

    def _warn_of(self, used: int) -> None:
        """Warn of a tape that is longer than it was wanted to be."""
        if self.wanted_limit is not None and used > self.wanted_limit:
            warnings.warn(
                f"jit: memory_limit: the tape of a loop needs {used} bytes, got a limit of "
                f"{self.wanted_limit}; raise the limit",
                RuntimeWarning,
                stacklevel=2,
            )

    def _check_accesses(self, launch: Launch, args: dict[str, Any]) -> None:
        """Run the kernel on copies with all accesses checked, if that is wanted."""
        if not self.check:
            return
        kernel, names = self.memoised("checked", lambda: checking.checked(self.kernel))
        at = use("serial")._engine
        run = self.memoised(("checked", at), lambda: compiled(kernel, at))
        copies = {n: np.array(host_of(x)) if n in self.buffers else x for n, x in args.items()}
        copies |= checking.arguments(self.kernel, launch, copies)
        # Notes of dynamic memory take up to eight times the room of what they are about.
        run(launch._replace(shared=8 * launch.shared), copies)
        checking.judge(self.kernel, names, copies[checking.REPORT], launch)

    def results(self, launch: Launch, values: Values) -> dict[str, Any]:
        """Return what the kernel leaves in the arrays that it writes."""
        args = self.checked(values)
        self._check_accesses(launch, args)
        for name in self.outputs:
            args[name] = _copied(args[name])
        self._run(self.kernel, launch, args)
        return {name: args[name] for name in self.outputs}

    def in_place(self, launch: Launch, values: Values) -> None:
        """Run the kernel on arrays themselves."""
        args = self.checked(values)
        self._check_accesses(launch, args)
        self._run(self.kernel, launch, args)
        for name in self.outputs:
            if args[name] is not values[name]:
                here = isinstance(values[name], np.ndarray) and not is_device(values[name])
                values[name][...] = host_of(args[name]) if here else args[name]

    def _with_shadows(
        self, adjoint_kernel: AdjointKernel, args: dict[str, Any], cotangents: Values
    ) -> dict[str, Any]:
        """Add shadows to arguments: cotangents of results, zeros elsewhere."""
        like = next((args[n] for n in self.buffers), None)
        read_only = {b.name for b in adjoint_kernel.kernel.buffers if b.access == "in"}
        for name, shadow in adjoint_kernel.shadows.items():
            if name not in self.buffers:
                args[shadow] = zeros(like, (1,), self.dtypes[name])
            elif cotangents.get(name) is not None:
                cotangent = cotangents[name].astype(self.dtypes[name], copy=False)
                shared = shadow in read_only and cotangent.flags.c_contiguous
                args[shadow] = cotangent if shared else _copied(cotangent)
            else:
                args[shadow] = zeros(args[name], args[name].shape, self.dtypes[name])
        return args

    def gradients(
        self,
        launch: Launch,
        values: Values,
        cotangents: Values,
        inputs: frozenset[str],
        results: Values | None = None,
    ) -> dict[str, Any]:
        """Return derivatives by some parameters, given those of a number by the results.

        Where `results` are given, they need not be computed again.
        """

        def computed(by: Execution) -> dict[str, Any]:
            return by._gradients(launch, values, cotangents, inputs, results)

        return self._derivatives((launch, inputs), computed)

    def _derivatives(
        self, key: Any, compute: Callable[[Execution], dict[str, Any]]
    ) -> dict[str, Any]:
        """Return derivatives: with strong zeros of `UNBOUNDED`, if any function has them."""
        if not self.program.skips or self.program.skips >= UNBOUNDED:
            return compute(self)
        return self._strong_zeros.gradients(key, self, compute, engine().language == "C")

    def _with_all(self) -> Execution:
        """Return the same of the kernel, with strong zeros of all functions."""
        return Execution(
            self.kernel, self.memory_limit, self.check, UNBOUNDED, self.free_sums,
            self.wanted_limit,
        )  # fmt: skip

    def _gradients(
        self,
        launch: Launch,
        values: Values,
        cotangents: Values,
        inputs: frozenset[str],
        results: Values | None = None,
    ) -> dict[str, Any]:
        key, ran = (launch, inputs), None
        try:
            if key not in self._long:
                limit = self.memory_limit if self.wanted_limit is None else self.wanted_limit
                ran = self._with_tape(launch, values, cotangents, inputs, results, limit)
            if ran is None:
                self._note_long(key)
                ran = self._with_checkpoints(launch, values, cotangents, inputs)
            if ran is None:
                limit = self.memory_limit
                ran = self._with_tape(launch, values, cotangents, inputs, results, limit, True)
        except TapeError as error:
            raise KernelError(str(error)) from None
        assert ran is not None
        adjoint_kernel, args, used = ran
        self._warn_of(used)
        return {n: self._gradient(adjoint_kernel, n, args, cotangents) for n in inputs}

    def _note_long(self, key: Any) -> None:
        """Note that the tape of gradients is too long, which the next ones need not try."""
        with self._lock:
            if len(self._long) >= LAUNCHES:
                self._long.clear()
            self._long.add(key)

    def _with_tape(
        self,
        launch: Launch,
        values: Values,
        cotangents: Values,
        inputs: frozenset[str],
        results: Values | None,
        limit: int,
        last: bool = False,
    ) -> Ran | None:
        """Run an adjoint that has a whole tape; None if that is too long, unless it is the last."""
        args = self.checked(values)
        if results is not None and self.restores(launch):
            adjoint_kernel = self.of_one_thread(launch, inputs, known=True)
            if adjoint_kernel.results:
                args |= self.checked({n: results[n] for n in adjoint_kernel.results})
        else:
            adjoint_kernel = self.adjoint(launch, inputs, args)
        args = self._with_shadows(adjoint_kernel, args, cotangents)
        for name in adjoint_kernel.copies:
            args[name] = _copied(args[name])
        kernel = self.arranged(adjoint_kernel.kernel, launch)
        run = self.compiled(kernel, adjoint_kernel.counting, alone=launch.alone)
        try:
            return adjoint_kernel, args, run(launch, args, limit)
        except TapeError:
            if last:
                raise
            return None

    def _with_checkpoints(
        self, launch: Launch, values: Values, cotangents: Values, inputs: frozenset[str]
    ) -> Ran | None:
        """Run an adjoint with checkpoints, as many as make its tape short.

        None if none of its loops can run again.
        """
        args = self.checked(values)
        adjoint_kernel = self.adjoint(launch, inputs, args, True)
        checkpoints = adjoint_kernel.checkpoints
        if checkpoints is None:
            return None
        args = self._with_shadows(adjoint_kernel, args, cotangents)
        # With a checkpoint in each iteration, the tape's length says how many iterations there are.
        args[EVERY.name] = 1
        counted = self._count(launch, adjoint_kernel.counting, args)
        trips = -(-counted // max(1, checkpoints.state))
        apart = math.sqrt(trips * max(1, checkpoints.state) / checkpoints.taped)
        args[EVERY.name] = max(1, math.ceil(apart))
        for name in adjoint_kernel.copies:
            args[name] = _copied(args[name])
        run = self.compiled(
            adjoint_kernel.kernel, adjoint_kernel.counting, checkpoints, launch.alone
        )
        return adjoint_kernel, args, run(launch, args, self.memory_limit)

    def _count(self, launch: Launch, counting: ThreadKernel, args: Values) -> int:
        """Return how many values a thread puts on the tape at most, counted on the host."""
        at = use("serial")._engine
        kernel = figures.counted(counting, False)
        run = self.memoised(("count", kernel, at), lambda: compiled(kernel, at))
        copies = {n: np.array(host_of(x)) if n in self.buffers else x for n, x in args.items()}
        copies[figures.COUNTS] = counts = figures.empty_counts()
        run(launch, copies)
        return int(counts[2])

    def _gradient(
        self, adjoint_kernel: AdjointKernel, name: str, args: dict[str, Any], cotangents: Values
    ) -> Any:
        if name in adjoint_kernel.shadows:
            gradient = args[adjoint_kernel.shadows[name]]
            if gradient is cotangents.get(name):
                return _copied(gradient)
            return gradient if name in self.buffers else gradient.reshape(())
        if name not in self.buffers:
            return np.zeros((), self.dtypes[name])
        if name in self.outputs and cotangents.get(name) is not None:
            return _copied(cotangents[name].astype(self.dtypes[name]))
        return zeros(args[name], args[name].shape, self.dtypes[name])

    def tangents(self, launch: Launch, values: Values, directions: Values) -> dict[str, Any]:
        """Return derivatives of the results along directions of some parameters."""
        tangent_kernel = self.tangent(frozenset(directions))
        args = self.checked(values)
        for name in self.outputs:
            args[name] = _copied(args[name])
        self._add_tangents(tangent_kernel, self.dtypes, args, directions)
        self._run(tangent_kernel.kernel, launch, args)
        return {
            n: args[tangent_kernel.tangents[n]]
            if n in tangent_kernel.tangents
            else zeros(args[n], args[n].shape, self.dtypes[n])
            for n in self.outputs
        }

    def _add_tangents(
        self,
        tangent_kernel: TangentKernel,
        dtypes: Mapping[str, str],
        args: dict[str, Any],
        directions: Values,
    ) -> None:
        for name, derivative in tangent_kernel.tangents.items():
            t = directions.get(name)
            if t is None:
                args[derivative] = zeros(args[name], np.shape(args[name]), dtypes[name])
            elif np.shape(args[name]):
                args[derivative] = _copied(t.astype(dtypes[name]))
            else:
                args[derivative] = t

    def gradient_tangents(
        self,
        launch: Launch,
        values: Values,
        cotangents: Values,
        inputs: frozenset[str],
        directions: Values,
        cotangent_directions: Values,
    ) -> dict[str, Any]:
        """Return derivatives of `gradients` along directions of parameters and cotangents."""

        def computed(by: Execution) -> dict[str, Any]:
            return by._gradient_tangents(
                launch, values, cotangents, inputs, directions, cotangent_directions
            )

        return self._derivatives((launch, inputs, frozenset(directions)), computed)

    def _gradient_tangents(
        self,
        launch: Launch,
        values: Values,
        cotangents: Values,
        inputs: frozenset[str],
        directions: Values,
        cotangent_directions: Values,
    ) -> dict[str, Any]:
        args = self.checked(values)
        first = self.adjoint(launch, inputs, args)
        moving = {n: t for n, t in directions.items() if t is not None}
        for name, t in cotangent_directions.items():
            if t is not None and name in first.shadows:
                moving[first.shadows[name]] = t
        known = set(first.kernel.order)
        along = frozenset(n for n in moving if n in known)
        tangent_kernel = self.adjoint_tangent(first, along)
        counting = doubled(first.counting)
        args = self._with_shadows(first, args, cotangents)
        for name in first.copies:
            args[name] = _copied(args[name])
        dtypes = self.dtypes | {s: self.dtypes[n] for n, s in first.shadows.items()}
        self._add_tangents(tangent_kernel, dtypes, args, moving)
        self._run(tangent_kernel.kernel, launch, args, counting)
        out = {}
        for n in inputs:
            derivative = tangent_kernel.tangents.get(first.shadows.get(n, ""))
            if derivative is not None:
                out[n] = args[derivative] if n in self.buffers else args[derivative].reshape(())
            elif n not in first.shadows and cotangent_directions.get(n) is not None:
                out[n] = _copied(cotangent_directions[n].astype(self.dtypes[n]))
            elif n in self.buffers:
                out[n] = zeros(args[n], args[n].shape, self.dtypes[n])
            else:
                out[n] = np.zeros((), self.dtypes[n])
        return out


def _copied(x: Any) -> Any:
    return x.copy(order="C")


def check_overlap(name: str, arrays: Iterable[tuple[str, Any]], written: Iterable[str]) -> None:
    """Refuse arrays that share memory where one of them is written.

    Raises
    ------
    KernelError
        If there are such.
    """
    # Arrays of a device's library become ours, which NumPy's functions take.
    placed = ((n, adopt(x) if type(x) in KINDS else x) for n, x in arrays)
    known = [(n, x) for n, x in placed if isinstance(x, np.ndarray)]
    wrote = set(written)
    for i, (a, x) in enumerate(known):
        for b, y in known[i + 1 :]:
            if (a in wrote or b in wrote) and np.may_share_memory(x, y) and np.shares_memory(x, y):
                raise KernelError(
                    f"kernel {name}: the arguments {a!r} and {b!r} share memory, and the kernel "
                    "writes one of them; pass a copy"
                )

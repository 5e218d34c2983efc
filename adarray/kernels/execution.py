"""Values of a kernel and of its derivatives, from plain arrays."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import numpy as np

from adarray.backend import use
from adarray.compiler.ir.threads import ThreadKernel
from adarray.device import is_device
from adarray.device.array import host_of
from adarray.errors import DTypeError, KernelError
from adarray.kernels import checking, facts, ownership, ssa
from adarray.kernels.adjoint import Adjoint, adjoint
from adarray.kernels.geometry import Launch
from adarray.kernels.launch import compiled, engine, zeros
from adarray.kernels.tangent import Tangent, doubled, tangent
from adarray.kernels.types import FLOATS

Values = Mapping[str, Any]
T = TypeVar("T")
_FACTS = 1024  # launches of which something is remembered
_LATE = (1 << 62) - 1


class Execution:
    """Runs a kernel and its derivatives; what is printed and compiled is kept.

    Parameters
    ----------
    kernel : ThreadKernel
    memory_limit : int
        Bytes that tapes may take.
    check : bool
        Whether each run of the kernel itself is preceded by one that looks at all accesses.
    """

    def __init__(self, kernel: ThreadKernel, memory_limit: int, check: bool = False) -> None:
        self.kernel = kernel
        self.check = check
        self.memory_limit = memory_limit
        self.program = ssa.program(kernel)
        self.dtypes = {b.name: b.dtype for b in kernel.buffers} | dict(kernel.scalars)
        self.buffers = tuple(b.name for b in kernel.buffers)
        written = {n.buffer for n in self.program.nodes if isinstance(n, ssa.Write)}
        self.outputs = tuple(n for n in self.buffers if n in written)
        self._lock = threading.Lock()
        self._made: dict[Any, Any] = {}
        self._facts: dict[Any, Any] = {}

    # -- texts -------------------------------------------------------------------------------------

    def _kept(self, key: Any, make: Callable[[], T]) -> T:
        with self._lock:
            if key not in self._made:
                self._made[key] = make()
            found: T = self._made[key]
        return found

    def compiled(self, kernel: ThreadKernel, counting: ThreadKernel | None = None) -> Any:
        """Return a kernel that is ready to run where arrays are computed now."""
        at = engine()
        return self._kept((kernel, at), lambda: compiled(kernel, at, counting))

    def adjoint(
        self, launch: Launch, inputs: frozenset[str], values: Values | None = None
    ) -> Adjoint:
        """Return the adjoint by some parameters, for a launch on arrays."""
        plain = frozenset[str]()
        at = engine()
        if values is not None and (at.threads > 1 or at.language != "C"):
            blocks = at.language == "C"
            plain = self.owned(launch, values, blocks)
        return self.of_facts(launch, inputs, plain)

    def of_facts(self, launch: Launch, inputs: frozenset[str], plain: frozenset[str]) -> Adjoint:
        """Return the adjoint where buffers in `plain` have elements of one thread each."""
        private = self._fact(("private", launch), lambda: facts.private(self.program, launch))
        return self._kept(
            ("adjoint", inputs, private, plain),
            lambda: adjoint(self.program, inputs, private, plain),
        )

    def _fact(self, key: Any, make: Callable[[], T]) -> T:
        with self._lock:
            found: T | None = self._facts.get(key)
        if found is None:
            found = make()
            with self._lock:
                if len(self._facts) >= _FACTS:
                    self._facts.clear()
                self._facts[key] = found
        return found

    def owned(self, launch: Launch, values: Values, blocks: bool) -> frozenset[str]:
        """Return buffers of whose elements no two blocks, or threads, touch the same."""
        names = tuple(n for n in self.buffers if self.dtypes[n] in FLOATS)
        sizes = tuple((n, math.prod(values[n].shape)) for n in names)
        shape = launch._replace(active=())

        def find() -> frozenset[str]:
            kernel, looked = self._kept(
                ("owners", blocks), lambda: ownership.probe(self.program, set(names), blocks)
            )
            given: dict[str, Any] = dict(launch.integers)
            for n in self.dtypes:
                if n not in given and n not in self.buffers:
                    given[n] = 0.0  # nothing that is looked at depends on it
            for n, count in sizes:
                like = values[n]
                given[ownership.size(n)] = count
                for f, start in ((ownership.first, _LATE), (ownership.last, -1)):
                    made = zeros(like, (count,), "int64")
                    made[...] = start
                    given[f(n)] = made
            self._run(kernel, launch, given)
            return ownership.owned(given, looked)

        return self._fact(("owned", shape, sizes, blocks), find)

    def tangent(self, inputs: frozenset[str]) -> Tangent:
        """Return the tangent by some parameters."""
        return self._kept(("tangent", inputs), lambda: tangent(self.kernel, inputs))

    def adjoint_tangent(self, first: Adjoint, along: frozenset[str]) -> Tangent:
        """Return the tangent of an adjoint by some of its parameters."""
        return self._kept(("second", first.kernel, along), lambda: tangent(first.kernel, along))

    # -- runs --------------------------------------------------------------------------------------

    def checked(self, values: Values) -> dict[str, Any]:
        """Return arguments as kernels take them.

        Raises
        ------
        DTypeError
            If an array has another dtype than the source says.
        """
        found = {}
        place = getattr(engine(), "place", None)
        for name, given in values.items():
            x = given
            if name in self.buffers:
                x = place(x) if place is not None and hasattr(x, "dtype") else x
                if not hasattr(x, "dtype") or x.dtype != self.dtypes[name]:
                    shown = getattr(x, "dtype", type(x).__name__)
                    raise DTypeError(
                        f"kernel {self.kernel.name}: the argument {name!r} is {shown}, and the "
                        f"source has {self.dtypes[name]}; convert it with astype"
                    )
                found[name] = x if x.flags.c_contiguous else x.copy(order="C")
            else:
                found[name] = x
        return found

    def _run(
        self,
        kernel: ThreadKernel,
        launch: Launch,
        values: dict[str, Any],
        counting: ThreadKernel | None = None,
    ) -> int:
        used: int = self.compiled(kernel, counting)(launch, values, self.memory_limit)
        return used

    def _look(self, launch: Launch, given: dict[str, Any]) -> None:
        """Run the kernel on copies with all accesses looked at, if that is wanted."""
        if not self.check:
            return
        kernel, names = self._kept("checked", lambda: checking.checked(self.kernel))
        at = use("serial")._engine
        run = self._kept(("checked", at), lambda: compiled(kernel, at))
        copies = {n: np.array(host_of(x)) if n in self.buffers else x for n, x in given.items()}
        copies |= checking.arguments(self.kernel, launch, copies)
        # Notes of dynamic memory take up to eight times the room of what they are about.
        run(launch._replace(shared=8 * launch.shared), copies)
        checking.judge(self.kernel, names, copies[checking.REPORT], launch)

    def results(self, launch: Launch, values: Values) -> dict[str, Any]:
        """Return what the kernel leaves in the arrays that it writes."""
        given = self.checked(values)
        self._look(launch, given)
        for name in self.outputs:
            given[name] = _copied(given[name])
        self._run(self.kernel, launch, given)
        return {name: given[name] for name in self.outputs}

    def in_place(self, launch: Launch, values: Values) -> None:
        """Run the kernel on arrays themselves."""
        given = self.checked(values)
        self._look(launch, given)
        self._run(self.kernel, launch, given)
        for name in self.outputs:
            if given[name] is not values[name]:
                here = isinstance(values[name], np.ndarray) and not is_device(values[name])
                values[name][...] = host_of(given[name]) if here else given[name]

    def _with_shadows(
        self, made: Adjoint, given: dict[str, Any], cotangents: Values
    ) -> dict[str, Any]:
        """Add shadows to arguments: cotangents of results, zeros elsewhere."""
        like = next((given[n] for n in self.buffers), None)
        for name, shadow in made.shadows.items():
            if name not in self.buffers:
                given[shadow] = zeros(like, (1,), self.dtypes[name])
            elif cotangents.get(name) is not None:
                given[shadow] = _copied(cotangents[name].astype(self.dtypes[name]))
            else:
                given[shadow] = zeros(given[name], given[name].shape, self.dtypes[name])
        return given

    def gradients(
        self, launch: Launch, values: Values, cotangents: Values, inputs: frozenset[str]
    ) -> dict[str, Any]:
        """Return derivatives by some parameters, given those of a number by the results."""
        given = self.checked(values)
        made = self.adjoint(launch, inputs, given)
        given = self._with_shadows(made, given, cotangents)
        for name in made.copies:
            given[name] = _copied(given[name])
        self._run(made.kernel, launch, given, made.counting)
        return {n: self._gradient(made, n, given, cotangents) for n in inputs}

    def _gradient(self, made: Adjoint, name: str, given: dict[str, Any], cotangents: Values) -> Any:
        if name in made.shadows:
            found = given[made.shadows[name]]
            return found if name in self.buffers else found.reshape(())
        if name not in self.buffers:
            return np.zeros((), self.dtypes[name])
        if name in self.outputs and cotangents.get(name) is not None:
            return _copied(cotangents[name].astype(self.dtypes[name]))
        return zeros(given[name], given[name].shape, self.dtypes[name])

    def tangents(self, launch: Launch, values: Values, directions: Values) -> dict[str, Any]:
        """Return derivatives of the results along directions of some parameters."""
        made = self.tangent(frozenset(directions))
        given = self.checked(values)
        for name in self.outputs:
            given[name] = _copied(given[name])
        self._add_tangents(made, self.dtypes, given, directions)
        self._run(made.kernel, launch, given)
        return {
            n: given[made.tangents[n]]
            if n in made.tangents
            else zeros(given[n], given[n].shape, self.dtypes[n])
            for n in self.outputs
        }

    def _add_tangents(
        self, made: Tangent, dtypes: Mapping[str, str], given: dict[str, Any], directions: Values
    ) -> None:
        for name, dot in made.tangents.items():
            t = directions.get(name)
            if t is None:
                given[dot] = zeros(given[name], np.shape(given[name]), dtypes[name])
            elif np.shape(given[name]):
                given[dot] = _copied(t.astype(dtypes[name]))
            else:
                given[dot] = t

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
        given = self.checked(values)
        first = self.adjoint(launch, inputs, given)
        moving = {n: t for n, t in directions.items() if t is not None}
        for name, t in cotangent_directions.items():
            if t is not None and name in first.shadows:
                moving[first.shadows[name]] = t
        known = set(first.kernel.order)
        along = frozenset(n for n in moving if n in known)
        made = self.adjoint_tangent(first, along)
        counting = doubled(first.counting)
        given = self._with_shadows(first, given, cotangents)
        for name in first.copies:
            given[name] = _copied(given[name])
        dtypes = self.dtypes | {s: self.dtypes[n] for n, s in first.shadows.items()}
        self._add_tangents(made, dtypes, given, moving)
        self._run(made.kernel, launch, given, counting)
        out = {}
        for n in inputs:
            dot = made.tangents.get(first.shadows.get(n, ""))
            if dot is not None:
                out[n] = given[dot] if n in self.buffers else given[dot].reshape(())
            elif n not in first.shadows and cotangent_directions.get(n) is not None:
                out[n] = _copied(cotangent_directions[n].astype(self.dtypes[n]))
            elif n in self.buffers:
                out[n] = zeros(given[n], given[n].shape, self.dtypes[n])
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
    known = [(n, x) for n, x in arrays if isinstance(x, np.ndarray)]
    wrote = set(written)
    for i, (a, x) in enumerate(known):
        for b, y in known[i + 1 :]:
            if (a in wrote or b in wrote) and np.may_share_memory(x, y) and np.shares_memory(x, y):
                raise KernelError(
                    f"kernel {name}: the arguments {a!r} and {b!r} share memory, and the kernel "
                    "writes one of them; pass a copy"
                )

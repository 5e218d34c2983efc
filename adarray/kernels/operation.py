"""A kernel as an operation: with its tangent, its adjoint, and the tangent of that."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from adarray.base.op import Op, Opaque
from adarray.base.runtime import BY_ENGINE
from adarray.batching.rules import BatchCall, members
from adarray.core.dispatch import run
from adarray.errors import KernelError
from adarray.kernels import batched
from adarray.kernels.execution import Execution
from adarray.kernels.geometry import Launch
from adarray.kernels.types import FLOATS

Rule = Callable[..., Any]


class Operation:
    """The operations of a kernel.

    Parameters
    ----------
    name : str
        In messages.
    execution : Execution
    keeps_results : bool
        Whether results are saved for adjoints, which then need not compute them again. It pays
        where launches have one thread.

    Attributes
    ----------
    op : Op
        Its operands are the kernel's arrays and floating-point numbers, in order; its results are
        the arrays that it writes, as they are afterwards.
    """

    def __init__(self, name: str, execution: Execution, keeps_results: bool = False) -> None:
        self.name = name
        self.keeps_results = keeps_results
        self.execution = execution
        dtypes = execution.dtypes
        self.operands = tuple(
            n for n in execution.kernel.order if n in execution.buffers or dtypes[n] in FLOATS
        )
        self.outputs = execution.outputs
        self.floats = tuple(dtypes[n] in FLOATS for n in self.operands)
        self._local = threading.local()
        self._members: Operation | None = None
        count = len(self.operands)
        self.op = self._op(
            name,
            self.evaluate,
            self.operands,
            [self._pull(i) if f else None for i, f in enumerate(self.floats)],
            [self._push(i) if f else None for i, f in enumerate(self.floats)],
            len(self.outputs),
            lambda _mask: (keeps_results,) + (True,) * count,
            self._of_members(lambda all_: all_.op, 0, ()),
        )
        self._adjoints: dict[tuple[bool, ...], Op] = {}
        self._seconds: dict[tuple[int, tuple[bool, ...]], Op] = {}
        self._tangents: dict[int, Op] = {}

    def _op(
        self,
        name: str,
        evaluate: Rule,
        operands: tuple[str, ...],
        rules: list[Rule | None],
        jvp: list[Rule | None],
        outputs: int,
        needs: Any,
        batch: Rule,
    ) -> Op:
        BY_ENGINE.add(evaluate)
        return Op(
            name, evaluate, Opaque(), rules, jvp=jvp, operands=operands, params=("launch",),
            outputs=outputs, needs=needs, batch=batch, drops=bool(self.execution.program.skips),
            signature=", ".join((*operands, "launch")),
        )  # fmt: skip

    def _values(self, xs: tuple[Any, ...], launch: Launch) -> dict[str, Any]:
        return dict(zip(self.operands, xs, strict=True)) | dict(launch.integers)

    # -- members of a batch ------------------------------------------------------------------------

    def _all(self) -> Operation:
        """Return the operations of the kernel that computes for all members of a batch."""
        if self._members is None:
            kernel = batched.batched(self.execution.kernel)
            own = self.execution
            execution = Execution(
                kernel, own.memory_limit, own.check, own.program.skips, own.free_sums,
                own.wanted_limit,
            )  # fmt: skip
            self._members = Operation(self.name, execution, self.keeps_results)
        return self._members

    def _of_members(
        self,
        choose: Callable[[Operation], Op],
        first: int,
        full: tuple[str, ...],
        last: int = 0,
    ) -> Rule:
        """Return the batching rule of one of the operations.

        Parameters
        ----------
        choose : callable
            The same of the operations for all members.
        first : int
            Number of operands before those of the kernel, of which each member has its own.
        full : tuple of str
            Operands of the kernel of which each member gets its own.
        last : int
            Number of operands behind those of the kernel.
        """

        def rule(call: BatchCall) -> Any:
            launch: Launch = call.params["launch"]
            size = call.batch.size
            fits = launch.grid[2] == 1 and 0 < size <= batched.MOST_MEMBERS
            if not fits or batched.uses_z(self.execution.kernel):
                return members(call)
            values = [call.full(k) for k in range(first)]
            strides = []
            for k, name in enumerate(self.operands, first):
                if name not in self.execution.buffers:
                    values.append(call.full(k).astype(self.execution.dtypes[name]))
                    continue
                own = call.has(call.values[k]) or name in self.outputs or name in full
                values.append(call.full(k) if own else call.values[k])
                apart = math.prod(call.shape(k)) if own else 0
                strides.append((batched.stride(name), apart))
            behind = first + len(self.operands)
            values += [call.full(k) for k in range(behind, behind + last)]
            whole = launch._replace(
                grid=(*launch.grid[:2], size), integers=(*launch.integers, *strides)
            )
            return run(choose(self._all()), *values, launch=whole)

        return rule

    # -- the kernel itself -------------------------------------------------------------------------

    def foresee(self, launch: Launch) -> None:
        """Begin to compile what a run and its reverse walk need."""
        if self.keeps_results and any(launch.active):
            wanted = zip(self.operands, launch.active, strict=True)
            self.execution.foresee(launch, frozenset(n for n, a in wanted if a))

    def evaluate(self, *xs: Any, launch: Launch) -> Any:
        """Return what the kernel leaves in the arrays that it writes."""
        results = self.execution.results(launch, self._values(xs, launch))
        return _one(tuple(results[n] for n in self.outputs))

    def _push(self, i: int) -> Rule:
        def rule(t: Any, out: Any, *xs: Any, launch: Launch) -> Any:  # noqa: ARG001
            return run(self._tangent(i), t, *xs, launch=launch)

        return rule

    def _tangent(self, i: int) -> Op:
        """Return the operation of the tangent along one operand."""
        if i not in self._tangents:

            def evaluate(t: Any, *xs: Any, launch: Launch) -> Any:
                tangents = self.execution.tangents(
                    launch, self._values(xs, launch), {self.operands[i]: t}
                )
                return _one(tuple(tangents[n] for n in self.outputs))

            rules: list[Rule | None] = [self._refused("a second derivative in this order")] * (
                len(self.operands) + 1
            )
            self._tangents[i] = self._op(
                f"{self.name}: tangent", evaluate, ("t", *self.operands), rules, rules,
                len(self.outputs), lambda _mask: (True,) * (len(self.operands) + 2),
                self._of_members(lambda all_: all_._tangent(i), 1, (self.operands[i],)),
            )  # fmt: skip
        return self._tangents[i]

    # -- the adjoint -------------------------------------------------------------------------------

    def _pull(self, i: int) -> Rule:
        def rule(g: Any, out: Any, *xs: Any, launch: Launch) -> Any:
            gs = g if len(self.outputs) > 1 else (g,)
            results = ()
            if self.keeps_results:
                results = tuple(out) if len(self.outputs) > 1 else (out,)
            active = launch.active if launch.active[i] else tuple(k == i for k in range(len(xs)))
            key = (*map(id, gs), *map(id, xs), launch)
            cached = getattr(self._local, "cached", None)
            if cached is None or cached[0] != key or i not in cached[2]:
                gradients = run(self._adjoint(active), *gs, *xs, *results, launch=launch)
                wanted = [k for k, a in enumerate(active) if a]
                gradients = gradients if len(wanted) > 1 else (gradients,)
                # The rules of all operands are called one after the other: one launch serves
                # them. References to the arrays stay here, so that no other array gets their
                # identity meanwhile.
                cached = (key, (gs, xs), dict(zip(wanted, gradients, strict=True)))
                self._local.cached = cached
            result = cached[2].pop(i)
            if not cached[2]:
                self._local.cached = None
            return result

        return rule

    def _adjoint(self, active: tuple[bool, ...]) -> Op:
        """Return the operation that is the adjoint by the active operands."""
        if active in self._adjoints:
            return self._adjoints[active]
        wanted = tuple(n for n, a in zip(self.operands, active, strict=True) if a)
        many = len(self.outputs)

        def evaluate(*values: Any, launch: Launch) -> Any:
            gs, xs, results = self._parts(values)
            args = self._values(xs, launch)
            cotangents = dict(zip(self.outputs, gs, strict=True))
            gradients = self.execution.gradients(
                launch, args, cotangents, frozenset(wanted), results
            )
            return _one(tuple(_like(gradients[n], args[n]) for n in wanted))

        names = (*(f"g_{n}" for n in self.outputs), *self.operands)
        last = len(self.outputs) if self.keeps_results else 0
        names += tuple(f"result_{n}" for n in self.outputs[:last])
        refused = self._refused("reverse mode over reverse mode")
        moving = [self.execution.dtypes[n] in FLOATS for n in (*self.outputs, *self.operands)]
        self._adjoints[active] = self._op(
            f"{self.name}: adjoint", evaluate, names,
            [refused if m else None for m in moving] + [refused] * last,
            [self._second_rule(k, active) if m else None for k, m in enumerate(moving)]
            + [_still] * last,
            len(wanted), lambda _mask: (False,) + (True,) * len(names),
            self._of_members(lambda all_: all_._adjoint(active), many, wanted, last),
        )  # fmt: skip
        return self._adjoints[active]

    def _parts(
        self, values: tuple[Any, ...]
    ) -> tuple[tuple[Any, ...], tuple[Any, ...], dict[str, Any] | None]:
        """Return an adjoint's cotangents, operands of the kernel, and results by name."""
        many, behind = len(self.outputs), len(self.outputs) + len(self.operands)
        results = dict(zip(self.outputs, values[behind:], strict=True)) if values[behind:] else None
        return values[:many], values[many:behind], results

    def _second_rule(self, k: int, active: tuple[bool, ...]) -> Rule:
        def rule(t: Any, out: Any, *values: Any, launch: Launch) -> Any:  # noqa: ARG001
            operands = values[: len(self.outputs) + len(self.operands)]
            return run(self._second(k, active), t, *operands, launch=launch)

        return rule

    def _second(self, k: int, active: tuple[bool, ...]) -> Op:
        """Return the operation of the adjoint's tangent along one of its operands."""
        key = (k, active)
        if key in self._seconds:
            return self._seconds[key]
        wanted = tuple(n for n, a in zip(self.operands, active, strict=True) if a)
        many = len(self.outputs)

        def evaluate(t: Any, *values: Any, launch: Launch) -> Any:
            gs, xs = values[:many], values[many:]
            args = self._values(xs, launch)
            cotangents = dict(zip(self.outputs, gs, strict=True))
            along = {} if k < many else {self.operands[k - many]: t}
            across = {self.outputs[k]: t} if k < many else {}
            tangents = self.execution.gradient_tangents(
                launch, args, cotangents, frozenset(wanted), along, across
            )
            return _one(tuple(_like(tangents[n], args[n]) for n in wanted))

        names = ("t", *(f"g_{n}" for n in self.outputs), *self.operands)
        refused: list[Rule | None] = [self._refused("a third derivative")] * len(names)
        full = (*wanted, self.operands[k - many]) if k >= many else wanted
        self._seconds[key] = self._op(
            f"{self.name}: tangent of the adjoint", evaluate, names, refused, refused,
            len(wanted), lambda _mask: (True,) * (len(names) + 1),
            self._of_members(lambda all_: all_._second(k, active), 1 + many, full),
        )  # fmt: skip
        return self._seconds[key]

    def _refused(self, what: str) -> Rule:
        def rule(*args: Any, **params: Any) -> Any:  # noqa: ARG001
            raise KernelError(
                f"kernel {self.name}: {what} is not supported; second derivatives are forward "
                "mode over reverse mode, as `adarray.hvp` takes them"
            )

        return rule


def _still(t: Any, out: Any, *values: Any, launch: Launch) -> Any:  # noqa: ARG001
    """Return the tangent of an adjoint by results: how they move with operands is in theirs."""
    gradients = out if isinstance(out, tuple) else (out,)
    return _one(tuple(np.zeros(np.shape(g), g.dtype) for g in gradients))


def _one(results: tuple[Any, ...]) -> Any:
    return results[0] if len(results) == 1 else results


def _like(gradient: Any, x: Any) -> Any:
    """Return a derivative with the dtype of what it is by."""
    if np.ndim(x):
        return gradient
    dtype = x.dtype if hasattr(x, "dtype") else np.dtype(float)
    return gradient.astype(dtype)[()]

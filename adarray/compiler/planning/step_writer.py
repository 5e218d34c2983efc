"""The steps of a plan: kernels, matrix products and calls over buffers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from adarray.compiler.fusion.fuse import Fusion
from adarray.compiler.fusion.groups import Group
from adarray.compiler.ir.domains import strided
from adarray.compiler.ir.interpret import interpret
from adarray.compiler.ir.loopir import Kernel
from adarray.compiler.ir.plan import Buffer, CallStep, DotStep, KernelStep, Operand, Step
from adarray.compiler.ir.program import Program, Slot, Value, c_strides
from adarray.compiler.kernels import steps as lower_steps
from adarray.compiler.kernels.dependence import overwrites, reads
from adarray.compiler.kernels.lower import Lowered
from adarray.compiler.kernels.nodes import Memory, Nodes, Ref
from adarray.compiler.kernels.scatter import owners, scatter, scatter_last
from adarray.compiler.planning.shared import SharedKernels
from adarray.compiler.planning.storage import Storage

# Bytes of a result that is written past the caches.
STREAM = 32 << 20


class StepWriter:
    """Writes the steps of a plan, one group after the other.

    Parameters
    ----------
    fusion : Fusion
    storage : Storage
    kernels : SharedKernels
    found : callable, optional
        As for `adarray.compiler.planning.planner.plan`.

    Attributes
    ----------
    steps : list of Step
    shared_kernels : SharedKernels
    position : dict
        Which group in their order each one is, by its index.
    last_use : dict
        The position of the last group that reads a value, by ``id`` of the value.
    read : set of int
        Values that some group reads, by ``id``.
    """

    def __init__(
        self,
        fusion: Fusion,
        storage: Storage,
        kernels: SharedKernels,
        found: Callable[[Kernel], None] | None = None,
    ) -> None:
        self.fusion = fusion
        self.storage = storage
        self.target = kernels.target
        self.found = found
        self.shared_kernels = kernels
        self.steps: list[Step] = []
        self.position: dict[int, int] = {}
        self.last_use: dict[int, int] = {}
        self.read: set[int] = set()
        self.picked: dict[tuple[int, int], Value] | None = None
        # By `id` of a buffer that was taken over: the `id` of the value that it holds now.
        self.holds: dict[int, int] = {}
        # Results of calls that nobody reads, and arrays of scatters; kept, since values are
        # known by their `id`.
        self.unread: list[Value] = []

    def kernel(self, lowered: Lowered, values: tuple[Value, ...], work: float) -> None:
        """Add a kernel that computes `values`; `work` is as `work_of` returns it."""
        buffers = tuple(self.storage.buffer(v) for v in lowered.buffers)
        kernel = self._streaming(lowered.kernel, lowered.buffers, buffers)
        if self.found is not None:
            self.found(kernel)
        self.steps.append(KernelStep(kernel, buffers, lowered.ints, values, work))

    def _streaming(
        self, kernel: Kernel, values: tuple[Value, ...], buffers: tuple[Buffer, ...]
    ) -> Kernel:
        """Let large results that no later step reads be written past the caches."""
        stream = [
            b.kind == "output" and v.nbytes >= STREAM and id(v) not in self.read
            for v, b in zip(values, buffers, strict=True)
        ]
        if not any(stream):
            return kernel
        params = tuple(
            replace(p, stream=s and p.access == "out")
            for p, s in zip(kernel.buffers, stream, strict=True)
        )
        return replace(kernel, buffers=params)

    def dot(self, value: Value) -> None:
        """Add a matrix product."""
        a, b, *rest = map(self.storage.memory_look, value.args)
        out = Operand(self.storage.buffer(value), 0, value.shape, c_strides(value.shape))
        p = value.params
        row, relu = p.get("row", False), p.get("relu", False)
        added = rest[0] if rest and not row else None
        self.steps.append(
            DotStep(a, b, out, (value,), added, p.get("scale", 1.0), rest[0] if row else None, relu)
        )

    def call(self, value: Value) -> None:
        """Add a call of a Python function; of several results, `pick` copies one."""
        operands = tuple(self.storage.memory_look(a) for a in value.args)
        if value.kind == "pick":
            return
        picks = self._picks(value)
        p = value.params
        results = tuple(picks) if picks is not None else (self.storage.buffer(value),)
        step = CallStep(p["function"], p["args"], p["kwargs"], operands, results, (value,))
        self.steps.append(step)

    def _picks(self, value: Value) -> list[Buffer] | None:
        """Return buffers for all results of a call with several."""
        if "results" not in value.params:
            return None
        if self.picked is None:
            self.picked = {
                (id(v.args[0]), v.params["index"]): v
                for v in self.fusion.values
                if v.kind == "pick"
            }
        made = []
        for k, (shape, dtype) in enumerate(value.params["results"]):
            v = self.picked.get((id(value), k))
            if v is None:
                v = Value("pick", (value,), {"index": k}, shape, dtype)
                self.unread.append(v)
            made.append(self.storage.buffer(v))
        return made

    def single(self, value: Value, group: Group, nodes: Nodes | None) -> None:
        """Add the kernels of a value that fuses with nothing; NumPy computes it without `nodes`."""
        if nodes is None:
            self._interpreted(value)
            return
        if value.kind == "scan":
            self.kernel(lower_steps.scan(value, nodes, self.target), (value,), 1.5 * value.size)
            return
        if value.kind == "join":
            self._join(value, nodes)
            return
        base = value.args[0]
        if not self._takes_over(group, value, nodes):
            self._piece(value, nodes, base, (0,) * value.ndim, (1,) * value.ndim, False)
        if value.kind == "scatter":
            for lowered in self._scattered(value, nodes):
                self.kernel(lowered, (value,), 2.0 * value.args[1].size)
            return
        p = value.params
        self._piece(value, nodes, value.args[1], p["starts"], p["steps"], p["add"])

    def _scattered(self, value: Value, nodes: Nodes) -> list[Lowered]:
        """Return the kernels of a scatter."""
        if value.params["add"] or not self.target.atomic:
            return [scatter(value, nodes, self.target)]
        owner = owners(value)
        self.unread.append(owner)
        return scatter_last(value, nodes, owner)

    def _takes_over(self, group: Group, value: Value, nodes: Nodes) -> bool:
        """Let a value have the memory of its base, where nobody reads that later.

        A base that is recomputed where it is read may have given its memory to another value.
        A scatter writes at places that are not known: what it writes must come from elsewhere.
        """
        access = self.fusion.uses.access(value.args[0])
        root = access.root
        buffer = self.storage.buffers.get(id(root))
        at = self.position[group.index]
        if (
            buffer is None
            or buffer.kind != "temp"
            or id(buffer) in self.storage.inside
            or id(buffer) in self.storage.divided
            or self.fusion.uses.is_inline(root)
            or root.size != value.size
            or access.offset
            or access.strides != c_strides(value.shape)
            or self.last_use.get(id(root), -1) > at
            or self.holds.get(id(buffer), id(root)) != id(root)
            or id(value) in self.storage.buffers
        ):
            return False
        if value.kind == "scatter":
            there = self._sharing(nodes, buffer)
            for a in value.args[1:]:
                ref = lower_steps.reference(nodes, a)
                if any(True for _ in reads(ref, a.shape, there)):
                    return False
        self.storage.buffers[id(value)] = buffer
        self.holds[id(buffer)] = id(value)
        return True

    def _sharing(self, nodes: Nodes, buffer: Buffer) -> set[int]:
        """Return the values read by some nodes that lie in a buffer, by ``id``."""
        known = self.storage.buffers
        return {key for key in nodes.memories if known.get(key) is buffer}

    def _piece(
        self, value: Value, nodes: Nodes, piece: Value, starts: Any, steps: Any, add: bool
    ) -> None:
        """Write or add a piece into a region of a value's memory.

        What an element of it would be computed from after another one was written there is
        computed before, into memory of its own.
        """
        if piece.size == 0:
            return
        ref = lower_steps.reference(nodes, piece)
        memory = lower_steps.region(value, starts, steps)
        there = self._sharing(nodes, self.storage.buffer(value))
        region = memory.offset, memory.strides
        if there and overwrites(ref, piece.shape, there, region, value.shape):
            ref = self._aside(value, ref, piece)
        lowered = self.shared_kernels.piece(ref, piece.shape, memory, add)
        self.kernel(lowered, (value,), 0.5 * piece.size)

    def _aside(self, value: Value, ref: Ref, piece: Value) -> Ref:
        """Write a piece into memory of its own; return how it is read there."""
        params = {"offset": 0, "strides": c_strides(piece.shape)}
        copy = Value("view", (piece,), params, piece.shape, piece.dtype, value.origin)
        self.unread.append(copy)
        memory = Memory(copy)
        self.kernel(
            self.shared_kernels.piece(ref, piece.shape, memory, False), (value,), 0.5 * piece.size
        )
        return Ref(None, memory, None, strided(0, memory.strides))

    def _join(self, value: Value, nodes: Nodes) -> None:
        axis, at = value.params["axis"], 0
        steps = (1,) * value.ndim
        whole = self.storage.buffer(value)
        for a in value.args:
            starts = tuple(at if k == axis else 0 for k in range(value.ndim))
            root = self.fusion.uses.access(a).root
            there = self.storage.inside.get(id(self.storage.buffers.get(id(root))))
            if there is None or there != (whole, at * self._row(value, axis)):
                self._piece(value, nodes, a, starts, steps, False)
            at += a.shape[axis]

    @staticmethod
    def _row(value: Value, axis: int) -> int:
        """Return the bytes from one index to the next along an axis."""
        return c_strides(value.shape)[axis] * int(value.dtype.itemsize)

    def _interpreted(self, value: Value) -> None:
        """Let NumPy compute a value that kernels cannot."""
        inputs = [
            Value("input", (), {"index": k, "strides": c_strides(a.shape)}, a.shape, a.dtype)
            for k, a in enumerate(value.args)
        ]
        last = Value(value.kind, tuple(inputs), value.params, value.shape, value.dtype)
        run = partial(_one, Program(inputs, [*inputs, last], [last]))
        operands = tuple(self.storage.memory_look(a) for a in value.args)
        slots = tuple(Slot(k) for k in range(len(operands)))
        self.steps.append(
            CallStep(run, slots, {}, operands, (self.storage.buffer(value),), (value,))
        )


def _one(program: Program, *arrays: Any) -> Any:
    """Return the single result of a program."""
    return interpret(program, arrays)[0]

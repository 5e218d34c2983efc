"""The steps of a plan: kernels, matrix products and calls over buffers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from adarray.compiler.fusion.fuse import Fusion
from adarray.compiler.fusion.groups import Group
from adarray.compiler.ir.domains import strided
from adarray.compiler.ir.interpret import interpret
from adarray.compiler.ir.loopir import Kernel
from adarray.compiler.ir.plan import Buffer, CallStep, KernelStep, MatmulStep, Operand, Step
from adarray.compiler.ir.primitives import (
    CallResult,
    Concatenate,
    GatherND,
    Matmul,
    PrefixScan,
    ProgramInput,
    PythonCall,
    ScatterND,
    Shape,
    Slot,
    UpdateSlice,
    View,
)
from adarray.compiler.ir.program import Program, Value, c_strides
from adarray.compiler.kernels import steps as lower_steps
from adarray.compiler.kernels.dependence import overwrites, reads
from adarray.compiler.kernels.lower import Lowered
from adarray.compiler.kernels.nodes import Nodes, Ref, ValueMemory
from adarray.compiler.kernels.scatter import owners, scatter, scatter_add, scatter_last
from adarray.compiler.kernels.scatter_forms import ScatterForm, form_of
from adarray.compiler.kernels.segments import (
    add_others,
    collect,
    count_by_place,
    counted_lists,
    ranked_lists,
    sort_by_place,
)
from adarray.compiler.planning.shared import SharedKernels
from adarray.compiler.planning.storage import Storage

# Bytes of a result that is written past the caches.
STREAM = 32 << 20
# Pieces of a concatenation that a kernel of a GPU writes, at most.
TOGETHER = 24


class StepWriter:
    """Writes the steps of a plan, one group after the other.

    Parameters
    ----------
    fusion : Fusion
    storage : Storage
    kernels : SharedKernels
    on_kernel : callable, optional
        As for `adarray.compiler.planning.planner.plan`.

    Attributes
    ----------
    steps : list of Step
    shared_kernels : SharedKernels
    position : dict
        Which group in their order each one is, by its index.
    last_use : dict
        The position of the last group that reads a value.
    read : set of Value
        Those that some group reads.
    """

    def __init__(
        self,
        fusion: Fusion,
        storage: Storage,
        kernels: SharedKernels,
        on_kernel: Callable[[Kernel], None] | None = None,
    ) -> None:
        self.fusion = fusion
        self.storage = storage
        self.target = kernels.target
        self.on_kernel = on_kernel
        self.shared_kernels = kernels
        self.steps: list[Step] = []
        self.position: dict[int, int] = {}
        self.last_use: dict[Value, int] = {}
        self.read: set[Value] = set()
        self.picked: dict[tuple[Value, int], Value] | None = None
        # What gathers refuse: their axes, indices and the shapes that they read.
        self.gathered: set[tuple[Shape, tuple[Value, ...], Shape]] | None = None
        # What buffers hold that were taken over.
        self.holds: dict[Buffer, Value] = {}

    def kernel(self, lowered: Lowered, values: tuple[Value, ...], work: float) -> None:
        """Add a kernel that computes `values`; `work` is as `work_of` returns it."""
        buffers = tuple(self.storage.buffer(v) for v in lowered.buffers)
        kernel = self._streaming(lowered.kernel, lowered.buffers, buffers)
        if self.on_kernel is not None:
            self.on_kernel(kernel)
        self.steps.append(KernelStep(kernel, buffers, lowered.ints, values, work))

    def _streaming(
        self, kernel: Kernel, values: tuple[Value, ...], buffers: tuple[Buffer, ...]
    ) -> Kernel:
        """Let large results that no later step reads be written past the caches."""
        stream = [
            b.kind == "output" and v.nbytes >= STREAM and v not in self.read
            for v, b in zip(values, buffers, strict=True)
        ]
        if not any(stream):
            return kernel
        params = tuple(
            replace(p, stream=s and p.access == "out")
            for p, s in zip(kernel.buffers, stream, strict=True)
        )
        return replace(kernel, buffers=params)

    def matmul(self, p: Matmul, value: Value) -> None:
        """Add a call of a library's matrix multiplication."""
        a, b, *rest = map(self.storage.memory_operand, value.args)
        out = Operand(self.storage.buffer(value), 0, value.shape, c_strides(value.shape))
        e = p.epilogue
        if e is None:
            self.steps.append(MatmulStep(a, b, out, (value,)))
            return
        (c,) = rest
        added, row = (None, c) if e.row else (c, None)
        self.steps.append(MatmulStep(a, b, out, (value,), added, e.scale, row, e.relu))

    def call(self, p: PythonCall, value: Value) -> None:
        """Add a call of a Python function; it writes all its results."""
        operands = tuple(self.storage.memory_operand(a) for a in value.args)
        results = self._results(p, value)
        step = CallStep(p.function, p.args, p.kwargs, operands, results, (value,))
        self.steps.append(step)

    def _results(self, p: PythonCall, value: Value) -> tuple[Buffer, ...]:
        """Return buffers for all results of a call."""
        if p.results is None:
            return (self.storage.buffer(value),)
        if self.picked is None:
            self.picked = {
                (v.args[0], v.primitive.index): v
                for v in self.fusion.values
                if isinstance(v.primitive, CallResult)
            }
        buffers = []
        for k, (shape, dtype) in enumerate(p.results):
            v = self.picked.get((value, k))
            if v is None:
                v = Value(CallResult(k), (value,), shape, dtype)  # which nobody reads
            buffers.append(self.storage.buffer(v))
        return tuple(buffers)

    def single(self, value: Value, group: Group, nodes: Nodes | None) -> None:
        """Add the kernels of a value that fuses with nothing; NumPy computes it without `nodes`."""
        if nodes is None:
            self._interpreted(value)
            return
        match value.primitive:
            case PrefixScan() as p:
                for lowered in lower_steps.scan(p, value, nodes, self.target):
                    self.kernel(lowered, (value,), 1.5 * value.size)
            case Concatenate() as p:
                self._concatenate(p.axis, value, nodes)
            case ScatterND() as p:
                for lowered in self._scattered(p, group, value, nodes):
                    self.kernel(lowered, (value,), 2.0 * value.args[1].size)
            case UpdateSlice() as p:
                self._base(group, value, nodes)
                self._piece(value, nodes, value.args[1], p.starts, p.steps, p.add)
            case _:
                raise AssertionError(f"{value} is no step of its own")

    def _base(self, group: Group, value: Value, nodes: Nodes) -> None:
        """Write what a value is an update of, unless it takes that memory over."""
        if not self._takes_over(group, value, nodes):
            self._whole_base(value, nodes)

    def _whole_base(self, value: Value, nodes: Nodes) -> None:
        self._piece(value, nodes, value.args[0], (0,) * value.ndim, (1,) * value.ndim, False)

    def _scattered(
        self, p: ScatterND, group: Group, value: Value, nodes: Nodes
    ) -> Iterator[Lowered]:
        """Yield the kernels of a scatter, in the form that should take the least time."""
        base = self.fusion.uses.access(value.args[0]).root
        over = self._takes_over(group, value, nodes)
        read = not self.fusion.uses.is_inline(base)
        form = form_of(p, value, self.target, read, over)
        if form is ScatterForm.COMPARED:
            yield collect(p, value, nodes, None, over, self._refused(p, value))
            return
        if form is ScatterForm.LISTED:
            ranked = ranked_lists(p, value, self.target)
            yield sort_by_place(p, value, nodes, ranked)
            yield collect(p, value, nodes, ranked, over, True)
            if ranked.is_cut:
                yield add_others(p, value, nodes, ranked)
            return
        if form is ScatterForm.COUNTED:
            counted = counted_lists(p, value)
            yield from count_by_place(p, value, nodes, counted)
            yield collect(p, value, nodes, counted, over, True)
            yield add_others(p, value, nodes, counted)
            return
        if not over:
            self._whole_base(value, nodes)
        if not self.target.atomic or (p.add and value.dtype.name not in self.target.atomic):
            yield scatter(p, value, nodes, self.target)
        elif p.add:
            yield scatter_add(p, value, nodes)
        else:
            yield from scatter_last(p, value, nodes, owners(p, value))

    def _refused(self, p: ScatterND, value: Value) -> bool:
        """Whether a gather refuses the indices of a scatter that are out of range.

        A scatter that is the derivative of a gather has its indices.
        """
        if self.gathered is None:
            self.gathered = {
                (v.primitive.axes, v.args[1:], v.args[0].shape)
                for v in self.fusion.values
                if isinstance(v.primitive, GatherND)
            }
        return (p.axes, value.args[2:], value.shape) in self.gathered

    def _takes_over(self, group: Group, value: Value, nodes: Nodes) -> bool:
        """Let a value have the memory of its base, where nobody reads that later.

        A base that is recomputed where it is read may have given its memory to another value.
        A scatter writes at places that are not known: what it writes must come from elsewhere.
        """
        access = self.fusion.uses.access(value.args[0])
        root = access.root
        buffer = self.storage.buffers.get(root)
        at = self.position[group.index]
        if (
            buffer is None
            or buffer.kind != "temp"
            or buffer in self.storage.inside
            or buffer in self.storage.divided
            or self.fusion.uses.is_inline(root)
            or root.size != value.size
            or access.offset
            or access.strides != c_strides(value.shape)
            or self.last_use.get(root, -1) > at
            or self.holds.get(buffer, root) is not root
            or value in self.storage.buffers
        ):
            return False
        if isinstance(value.primitive, ScatterND):
            there = self._sharing(nodes, buffer)
            for a in value.args[1:]:
                ref = lower_steps.reference(nodes, a)
                if any(True for _ in reads(ref, a.shape, there)):
                    return False
        self.storage.buffers[value] = buffer
        self.holds[buffer] = value
        return True

    def _sharing(self, nodes: Nodes, buffer: Buffer) -> set[Value]:
        """Return the values read by some nodes that lie in a buffer."""
        known = self.storage.buffers
        return {key for key in nodes.memories if known.get(key) is buffer}

    def _piece(
        self, value: Value, nodes: Nodes, piece: Value, starts: Shape, steps: Shape, add: bool
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
        lowered = self.shared_kernels.pieces([(ref, memory)], piece.shape, add)
        self.kernel(lowered, (value,), 0.5 * piece.size)

    def _aside(self, value: Value, ref: Ref, piece: Value) -> Ref:
        """Write a piece into memory of its own; return how it is read there."""
        view = View(0, c_strides(piece.shape))
        copy = Value(view, (piece,), piece.shape, piece.dtype, value.origin)
        memory = ValueMemory(copy)
        lowered = self.shared_kernels.pieces([(ref, memory)], piece.shape, False)
        self.kernel(lowered, (value,), 0.5 * piece.size)
        return Ref(None, memory, None, strided(0, memory.strides))

    def _concatenate(self, axis: int, value: Value, nodes: Nodes) -> None:
        at = 0
        steps = (1,) * value.ndim
        whole = self.storage.buffer(value)
        waiting: list[tuple[Value, Shape]] = []
        for a in value.args:
            starts = tuple(at if k == axis else 0 for k in range(value.ndim))
            root = self.fusion.uses.access(a).root
            own = self.storage.buffers.get(root)
            there = None if own is None else self.storage.inside.get(own)
            if there is None or there != (whole, at * self._row(value, axis)):
                if waiting and (waiting[0][0].shape != a.shape or len(waiting) == TOGETHER):
                    self._pieces(value, nodes, waiting)
                    waiting = []
                waiting.append((a, starts))
                if not self.target.along:
                    self._piece(value, nodes, a, starts, steps, False)
                    waiting = []
            at += a.shape[axis]
        self._pieces(value, nodes, waiting)

    def _pieces(self, value: Value, nodes: Nodes, pieces: list[tuple[Value, Shape]]) -> None:
        """Write pieces of one shape into regions of a value's memory, by one kernel.

        None of them is read from that memory: they would be there already.
        """
        if not pieces or pieces[0][0].size == 0:
            return
        steps = (1,) * value.ndim
        there = self._sharing(nodes, self.storage.buffer(value))
        if there or len(pieces) == 1:
            for piece, starts in pieces:
                self._piece(value, nodes, piece, starts, steps, False)
            return
        parts = [
            (lower_steps.reference(nodes, piece), lower_steps.region(value, starts, steps))
            for piece, starts in pieces
        ]
        shape = pieces[0][0].shape
        lowered = self.shared_kernels.pieces(parts, shape, False)
        self.kernel(lowered, (value,), 0.5 * len(pieces) * math.prod(shape))

    @staticmethod
    def _row(value: Value, axis: int) -> int:
        """Return the bytes from one index to the next along an axis."""
        return c_strides(value.shape)[axis] * int(value.dtype.itemsize)

    def _interpreted(self, value: Value) -> None:
        """Let NumPy compute a value that kernels cannot."""
        inputs = [
            Value(ProgramInput(k, c_strides(a.shape)), (), a.shape, a.dtype)
            for k, a in enumerate(value.args)
        ]
        last = Value(value.primitive, tuple(inputs), value.shape, value.dtype)
        run = partial(_one, Program(inputs, [*inputs, last], [last]))
        operands = tuple(self.storage.memory_operand(a) for a in value.args)
        slots = tuple(Slot(k) for k in range(len(operands)))
        self.steps.append(
            CallStep(run, slots, {}, operands, (self.storage.buffer(value),), (value,))
        )


def _one(program: Program, *arrays: np.ndarray) -> np.ndarray | np.generic:
    """Return the single result of a program."""
    result: np.ndarray | np.generic
    (result,) = interpret(program, arrays)
    return result

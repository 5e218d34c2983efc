"""Planning: a program becomes steps over buffers.

Fusion says which values one kernel computes; going backwards, every group then learns which
of its values later steps read from memory, and which are recomputed where they are read;
groups are lowered, and buffers get their places.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from adarray.codegen.loopir import Kernel
from adarray.codegen.plan import (
    Buffer,
    CallStep,
    DotStep,
    KernelStep,
    Note,
    Operand,
    Plan,
    Step,
)
from adarray.passes import lower_steps
from adarray.passes.buffers import place_buffers
from adarray.passes.domains import Access, linear
from adarray.passes.donation import donate
from adarray.passes.fuse import Fusion
from adarray.passes.groups import Group
from adarray.passes.interpret import interpret
from adarray.passes.lower import Lowered
from adarray.passes.lower_collapse import collapse
from adarray.passes.lower_nodes import Memory, Nodes
from adarray.passes.lower_shared import SharedKernels
from adarray.passes.recompute import Recompute
from adarray.passes.remat import within
from adarray.passes.rings import Pipeline, find_chains
from adarray.passes.siblings import Family, Part, find_siblings
from adarray.passes.stretches import stretches
from adarray.passes.uses import numeric
from adarray.passes.work import work_of
from adarray.program import Program, Slot, Value, c_strides

# Bytes of a result that is written past the caches.
STREAM = 32 << 20


def plan(
    program: Program,
    memory_limit: int | None = None,
    donated: tuple[tuple[int, int], ...] = (),
) -> Plan:
    """Return the plan of a program.

    Parameters
    ----------
    program : Program
    memory_limit : int, optional
        Most bytes of temporary memory.
    donated : tuple of (int, int)
        Outputs, and the inputs whose memory they may have, that are contiguous and of the
        same dtype and size.

    Returns
    -------
    Plan
    """
    program = _in_c_order(program)
    if memory_limit is None:
        return Planner(program, donated=donated).run()
    return within(program, memory_limit, partial(Planner, donated=donated))


def _in_c_order(program: Program) -> Program:
    """Return the program with results that are views, other than of whole rows, copied.

    What reads the results, the next segment of a path for one, expects C order.
    """
    values, outputs = list(program.values), []
    for v in program.outputs:
        whole = v.kind != "view" or all(
            n == 1 or s == t
            for n, s, t in zip(v.shape, v.params["strides"], c_strides(v.shape), strict=True)
        )
        if not whole:
            if numeric(v.dtype):
                v = Value("map", (v,), {"name": "cast"}, v.shape, v.dtype, v.origin)
            else:
                call = {"function": np.ascontiguousarray, "args": (Slot(0),), "kwargs": {}}
                v = Value("call", (v,), call, v.shape, v.dtype, v.origin)
            values.append(v)
        outputs.append(v)
    return Program(program.inputs, values, outputs)


class Planner:
    """A plan in the making.

    Parameters
    ----------
    program : Program
    late : mapping, optional
        As for `adarray.passes.fuse.Fusion`.
    donated : tuple of (int, int)
        As for `plan`.
    """

    def __init__(
        self,
        program: Program,
        late: Mapping[int, int] | None = None,
        donated: tuple[tuple[int, int], ...] = (),
    ) -> None:
        self.program = program
        self.donated = donated
        self.fusion = Fusion(program, late)
        self.late = late or {}
        self.requested: dict[int, Value] = {}
        self.nodes: dict[int, Nodes] = {}
        self.shared_kernels = SharedKernels()
        self.pipelines: dict[int, Pipeline] = {}
        self.families: dict[int, Family] = {}
        self.recompute = Recompute(self.fusion, self.requested)
        self.buffers: dict[int, Buffer] = {}
        self.made: list[Buffer] = []
        self.consts: list[Any] = []
        self.steps: list[Step] = []
        self.last_use: dict[int, int] = {}
        self.read: set[int] = set()
        self.picked: dict[tuple[int, int], Value] | None = None
        # Results of calls that nobody reads; kept, since values are known by their `id`.
        self.unread: list[Value] = []
        self.position: dict[int, int] = {}
        # Buffers that are stretches of others, and which those are.
        self.inside: dict[int, tuple[Buffer, int]] = {}
        self.divided: set[int] = set()

    def run(self) -> Plan:
        """Return the plan."""
        for value in self.program.outputs:
            self._request(self._target(value))
        for group in reversed(self.fusion.groups):
            self._settle(group)
        self._number_uses()
        self._make_buffers()
        self._find_pipelines()
        self._find_siblings()
        self._find_stretches()
        for group in self.fusion.groups:
            if not group.dead:
                self._write(group)
        outputs = tuple(self._output(v) for v in self.program.outputs)
        kept: list[tuple[int, int, str]] = []
        if self.donated:
            self.steps, kept = donate(self.steps, self.made, outputs, self.donated)
        arena = place_buffers(self.steps, self.made, outputs, self.inside)
        return Plan(
            tuple(self.steps),
            tuple(self.made),
            tuple(self.consts),
            outputs,
            arena,
            (*self._notes(), *self._kept(kept)),
        )

    def stored_values(self) -> Iterable[tuple[int, Value]]:
        """Yield the values in buffers, with the ``id`` of the buffer."""
        for value in self.requested.values():
            buffer = self.buffers.get(id(value))
            if buffer is not None:
                yield id(buffer), value

    # -- what is stored -------------------------------------------------------------------

    def _target(self, value: Value) -> Value:
        """Return the value whose memory an output is, or is a look at."""
        if id(value) in self.fusion.owner or value.kind in ("input", "array"):
            return value
        return self.fusion.uses.access(value).root

    def _request(self, value: Value) -> None:
        if value.kind not in ("input", "array"):
            self.requested[id(value)] = value

    def _settle(self, group: Group) -> None:
        """Find what a group computes, given what later ones read of it."""
        wanted = [m for m in group.members if id(m) in self.requested]
        value = group.members[0]
        if group.kind == "step" and value.kind == "call" and not wanted:
            wanted = [value]
        group.dead = not wanted
        if group.dead:
            return
        if group.library:
            for a in value.args:
                self._request(self._memory_of(a))
            return
        nodes = self._nodes(group, wanted)
        if self.recompute.choose(group, nodes):
            nodes = self._nodes(group, wanted)
        self.nodes[group.index] = nodes
        for memory in nodes.memories.values():
            self._request(memory.value)

    def _nodes(self, group: Group, wanted: list[Value]) -> Nodes:
        nodes = Nodes(group, self.fusion, self.recompute.cloned)
        if group.kind == "step":
            for a in group.members[0].args:
                lower_steps.reference(nodes, a)
        else:
            for m in wanted:
                nodes.add(m)
        return nodes

    def _memory_of(self, operand: Value) -> Value:
        """Return the value whose memory a library call reads as its operand."""
        root = self.fusion.uses.access(operand).root
        return operand if self.fusion.uses.is_inline(root) else root

    # -- buffers --------------------------------------------------------------------------

    def _number_uses(self) -> None:
        """Note the last group that reads each stored value."""
        for k, group in enumerate(self.fusion.groups):
            self.position[group.index] = k
            if group.dead:
                continue
            for v in self._reads(group):
                self.last_use[id(v)] = k
                self.read.add(id(v))
        for value in self.program.outputs:
            self.last_use[id(self._target(value))] = len(self.fusion.groups)

    def _reads(self, group: Group) -> Iterable[Value]:
        nodes = self.nodes.get(group.index)
        if nodes is not None:
            return [m.value for m in nodes.memories.values()]
        return [self._memory_of(a) for a in group.members[0].args]

    def _make_buffers(self) -> None:
        for v in self.program.inputs:
            self._buffer(v, Buffer("input", v.dtype, v.size, v.params["index"]))
        for j, v in enumerate(self.program.outputs):
            target = self._target(v)
            if id(target) not in self.buffers and target.kind != "array":
                self._buffer(target, Buffer("output", target.dtype, target.size, j))

    def _find_stretches(self) -> None:
        """Let values lie inside of the joins that they are for."""
        for group in self.fusion.groups:
            join = group.members[0]
            if group.dead or group.kind != "step" or join.kind != "join" or group.library:
                continue
            if id(join) in self.buffers:
                continue
            found = [
                (value, start)
                for value, start in stretches(join, self.fusion, self.buffers)
                if id(value) in self.requested  # others are recomputed by who reads them
            ]
            if not found:
                continue
            whole = self.buffer(join)
            self.divided.add(id(whole))
            for value, start in found:
                part = self.buffer(value)
                self.inside[id(part)] = (whole, start)

    def _buffer(self, value: Value, buffer: Buffer) -> Buffer:
        self.buffers[id(value)] = buffer
        self.made.append(buffer)
        return buffer

    def buffer(self, value: Value) -> Buffer:
        """Return the buffer that holds a value."""
        found = self.buffers.get(id(value))
        if found is not None:
            return found
        if value.kind == "array":
            array = value.params["value"]
            self.consts.append(array)
            made = Buffer("const", value.dtype, value.size, len(self.consts) - 1)
            return self._buffer(value, made)
        return self._buffer(value, Buffer("temp", value.dtype, value.size))

    def operand(self, access: Access, shape: tuple[int, ...]) -> Operand:
        """Return a look at the memory of a root."""
        root = access.root
        if root.kind == "input" and access.maps is not None:
            at = linear(access.maps, root.params["strides"])
            found = dict(at.terms)
            strides = tuple(found.get(a, 0) for a in range(len(shape)))
            return Operand(self.buffer(root), at.const, shape, strides)
        return Operand(self.buffer(root), access.offset, shape, access.strides)

    def _look(self, value: Value) -> Operand:
        """Return a look at a value that lies in memory, or is a view of one that does."""
        if id(value) in self.buffers or value.kind == "array":
            strides = value.params["strides"] if value.kind == "input" else c_strides(value.shape)
            return Operand(self.buffer(value), 0, value.shape, strides)
        return self.operand(self.fusion.uses.access(value), value.shape)

    _output = _look

    # -- steps ----------------------------------------------------------------------------

    def _write(self, group: Group) -> None:
        """Add the steps of a group."""
        value = group.members[0]
        if group.index in self.pipelines:
            pipeline = self.pipelines[group.index]
            if pipeline.chain.groups[-1] is group:
                self._pipeline(pipeline)
        elif group.index in self.families:
            family = self.families[group.index]
            if family.groups[0] is group:
                self._family(family)
        elif group.kind != "step":
            self._fused(group)
        elif value.kind == "dot":
            self._dot(value)
        elif value.kind in ("call", "pick"):
            self._call(value)
        else:
            self._single(group, value)

    def _part(self, group: Group) -> Part:
        """Return what a group computes and stores."""
        nodes = self.nodes[group.index]
        stored = {
            id(nodes.by_id[id(m)]): Memory(m) for m in group.members if id(m) in self.requested
        }
        return Part(nodes.order, stored, group.find(group.outer), list(group.extents))

    def _fused(self, group: Group) -> None:
        order, stored, outer, extents = self._part(group)
        outer = collapse(order, stored, outer, extents)
        lowered = self.shared_kernels.lower(order, stored, outer, extents)
        self._kernel(lowered, tuple(n.value for n in order), work_of(order))

    def _find_siblings(self) -> None:
        """Find groups that run as one though they do not fuse."""
        if self.late:
            return  # nothing is computed earlier than it stands

        def part(group: Group) -> Part | None:
            alone = group.kind != "rows" or group.index in self.pipelines
            return None if alone else self._part(group)

        groups = [g for g in self.fusion.groups if not g.dead]
        for family in find_siblings(groups, self._reads, part):
            self.families.update((g.index, family) for g in family.groups)

    def _family(self, family: Family) -> None:
        lowered = self.shared_kernels.siblings(family.parts)
        nodes = [n for p in family.parts for n in p.order]
        values = tuple({id(n.value): n.value for n in nodes}.values())
        self._kernel(lowered, values, work_of(nodes))

    def _find_pipelines(self) -> None:
        """Find chains of groups that run as pipelines."""
        groups = [g for g in self.fusion.groups if not g.dead]
        readers: dict[int, set[int]] = {}
        for g in groups:
            for v in self._reads(g):
                readers.setdefault(id(v), set()).add(g.index)
        results = {id(self._target(v)) for v in self.program.outputs}

        def external(value: Value, chain: list[Group]) -> bool:
            return id(value) in results or not readers.get(id(value), set()) <= {
                g.index for g in chain
            }

        for chain in find_chains(groups, self.nodes, self.requested):
            p = Pipeline(chain, self.fusion, self.recompute.cloned, self.requested, external)
            if p.valid:
                self.pipelines.update((g.index, p) for g in chain.groups)

    def _pipeline(self, p: Pipeline) -> None:
        lowered = self.shared_kernels.pipeline(p)
        values = tuple(n.value for _, nodes, _ in p.parts for n in nodes.order if n.kind != "ring")
        work = sum(work_of(nodes.order) for _, nodes, _ in p.parts)
        self._kernel(lowered, values, work)

    def _kernel(self, lowered: Lowered, values: tuple[Value, ...], work: float) -> None:
        buffers = tuple(self.buffer(v) for v in lowered.buffers)
        kernel = self._streaming(lowered.kernel, lowered.buffers, buffers)
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

    def _dot(self, value: Value) -> None:
        a, b = value.args
        out = Operand(self.buffer(value), 0, value.shape, c_strides(value.shape))
        self.steps.append(DotStep(self._memory_look(a), self._memory_look(b), out, (value,)))

    def _memory_look(self, value: Value) -> Operand:
        memory = self._memory_of(value)
        if memory is value:
            return self._look(value)
        return self.operand(self.fusion.uses.access(value), value.shape)

    def _call(self, value: Value) -> None:
        """Add a call of a Python function; of several results, `pick` copies one."""
        operands = tuple(self._memory_look(a) for a in value.args)
        if value.kind == "pick":
            return
        picks = self._picks(value)
        p = value.params
        results = tuple(picks) if picks is not None else (self.buffer(value),)
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
            made.append(self.buffer(v))
        return made

    def _single(self, group: Group, value: Value) -> None:
        """Add the kernels of a value that fuses with nothing."""
        if group.library:
            self._interpreted(value)
            return
        nodes = self.nodes[group.index]
        if value.kind == "scan":
            self._kernel(lower_steps.scan(value, nodes), (value,), 1.5 * value.size)
            return
        if value.kind == "join":
            self._join(value, nodes)
            return
        base = value.args[0]
        if not self._takes_over(group, value, base):
            self._piece(value, nodes, base, (0,) * value.ndim, (1,) * value.ndim, False)
        if value.kind == "scatter":
            self._kernel(lower_steps.scatter(value, nodes), (value,), 2.0 * value.args[1].size)
            return
        p = value.params
        self._piece(value, nodes, value.args[1], p["starts"], p["steps"], p["add"])

    def _takes_over(self, group: Group, value: Value, base: Value) -> bool:
        """Let a value have the memory of its base, where nobody reads that later."""
        access = self.fusion.uses.access(base)
        root = access.root
        buffer = self.buffers.get(id(root))
        at = self.position[group.index]
        if (
            buffer is None
            or buffer.kind != "temp"
            or id(buffer) in self.inside
            or id(buffer) in self.divided
            or self.fusion.uses.is_inline(root)
            or root.size != value.size
            or access.offset
            or access.strides != c_strides(value.shape)
            or self.last_use.get(id(root), -1) > at
            or any(self.fusion.uses.access(a).root is root for a in value.args[1:])
        ):
            return False
        if id(value) in self.buffers:
            return False
        self.buffers[id(value)] = buffer
        return True

    def _piece(
        self, value: Value, nodes: Nodes, piece: Value, starts: Any, steps: Any, add: bool
    ) -> None:
        """Write or add a piece into a region of a value's memory."""
        if piece.size == 0:
            return
        ref = lower_steps.reference(nodes, piece)
        memory = lower_steps.region(value, starts, steps)
        lowered = self.shared_kernels.piece(ref, piece.shape, memory, add)
        self._kernel(lowered, (value,), 0.5 * piece.size)

    def _join(self, value: Value, nodes: Nodes) -> None:
        axis, at = value.params["axis"], 0
        steps = (1,) * value.ndim
        whole = self.buffer(value)
        for a in value.args:
            starts = tuple(at if k == axis else 0 for k in range(value.ndim))
            root = self.fusion.uses.access(a).root
            there = self.inside.get(id(self.buffers.get(id(root))))
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
        operands = tuple(self._memory_look(a) for a in value.args)
        slots = tuple(Slot(k) for k in range(len(operands)))
        self.steps.append(CallStep(run, slots, {}, operands, (self.buffer(value),), (value,)))

    # -- for people -----------------------------------------------------------------------

    def _notes(self) -> Iterable[Note]:
        """Yield why values and their readers are in different steps."""
        f = self.fusion
        for value in f.values:
            owner = f.owner.get(id(value))
            if owner is None or owner.dead:
                continue
            for use in f.uses.uses(value) if owner.kind != "step" else ():
                first = f.owner.get(id(use.root))
                if first is None or first is owner or first.dead:
                    continue
                family = self.families.get(owner.index)
                if family is not None and family is self.families.get(first.index):
                    continue
                reason = f.reasons.get((id(use.root), id(value)))
                if first.kind == "step":
                    reason = f"a {use.root.kind} is a step of its own"
                yield Note(use.root, value, reason or "another kernel suited it better")

    def _kept(self, refused: Iterable[tuple[int, int, str]]) -> Iterable[Note]:
        """Yield why results are not written into donated arguments."""
        inputs = {v.params["index"]: v for v in self.program.inputs}
        for j, i, why in refused:
            if i in inputs:
                reason = f"not in the memory of the donated argument: {why}"
                yield Note(inputs[i], self.program.outputs[j], reason)


def _one(program: Program, *arrays: Any) -> Any:
    """Return the single result of a program."""
    return interpret(program, arrays)[0]

"""Planning: a program becomes steps over buffers.

Fusion says which values one kernel computes; going backwards, every group then learns which
of its values later steps read from memory, and which are recomputed where they are read;
groups are lowered, and buffers get their places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from adarray.compiler.fusion.divide import SHORT, UNROLLED, Division
from adarray.compiler.fusion.fuse import LAUNCH, Fusion
from adarray.compiler.fusion.groups import Group
from adarray.compiler.ir.loopir import Kernel, statements
from adarray.compiler.ir.plan import Buffer, KernelStep, Operand, Plan
from adarray.compiler.ir.primitives import (
    CallResult,
    Concatenate,
    Matmul,
    PythonCall,
)
from adarray.compiler.ir.program import Program, Value
from adarray.compiler.ir.target import CPU, GpuTarget, Target
from adarray.compiler.ir.uses import is_source
from adarray.compiler.ir.verify_loops import checking, verify
from adarray.compiler.kernels import steps as lower_steps
from adarray.compiler.kernels.collapse import collapse
from adarray.compiler.kernels.lower import Lowered
from adarray.compiler.kernels.nodes import Folded, FromRing, Nodes, ValueMemory
from adarray.compiler.kernels.siblings import Family, Sibling, find_siblings
from adarray.compiler.kernels.work import work_of
from adarray.compiler.planning.buffers import place_buffers
from adarray.compiler.planning.donation import donate
from adarray.compiler.planning.launches import Launches
from adarray.compiler.planning.notes import donation_notes, kernel_notes
from adarray.compiler.planning.passes import prepared
from adarray.compiler.planning.predicted import operations_in_place, operations_once, seconds
from adarray.compiler.planning.recompute import Recompute
from adarray.compiler.planning.remat import within
from adarray.compiler.planning.shared import SharedKernels
from adarray.compiler.planning.step_writer import StepWriter
from adarray.compiler.planning.storage import Storage
from adarray.compiler.planning.stored_again import worth_storing
from adarray.compiler.planning.stretches import stretches
from adarray.compiler.stencil import strips
from adarray.compiler.stencil.line_groups import Lines
from adarray.compiler.stencil.lines import LineKernel
from adarray.compiler.stencil.rings import Pipeline, find_chains
from adarray.compiler.stencil.strips import Strips

# How often what a kernel recomputes is chosen, given what it recomputes already: it reads other
# arrays than before. Those that read least memory in all are taken, with the first where what is
# in memory anyway is not known (see `Recompute`). With what is near, a value may come from another
# one and from what an operation gives of inputs.
ROUNDS = (1, False), (2, False), (5, False), (2, True)
# Values that a kernel stores for loops of its own, at most.
STORED = 2
# Folds of one side of pairs up to which a kernel may have those of the other side as well.
SUMS = 4
# The share of the time without it that steps on a line in one kernel are worth.
WORTH = 0.9


def plan(
    program: Program,
    memory_limit: int | None = None,
    donated: tuple[tuple[int, int], ...] = (),
    target: Target = CPU,
    on_kernel: Callable[[Kernel], None] | None = None,
    unrolled: bool = False,
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
    target : Target
        What the kernels run on.

    on_kernel : callable, optional
        Called with kernels of the plan as soon as they are known, some of them more than once,
        and maybe with some that it will not have. Not with a `memory_limit`.
    unrolled : bool
        Whether the program is part of a long one, which may be an unrolled loop.

    Returns
    -------
    Plan
    """
    program = prepared(program, target)
    if memory_limit is None:
        new_plan = partial(Planner, program, None, donated, target, on_kernel, unrolled)
        try:
            return _better(new_plan).run()
        except UnfitLineError:  # which groups are of a line is seen before what they compute again
            return new_plan(lined=False).run()
    attempt = partial(Planner, donated=donated, target=target, unrolled=unrolled)
    return within(program, memory_limit, attempt)


def _better(new_plan: Callable[..., Planner]) -> Planner:
    """Return the planner with kernels that take several steps on a line, if these are worth it."""
    planner = new_plan()
    if planner.lines.is_near_tie:
        other = new_plan(lined=False)
        if planner.predicted() > WORTH * other.predicted():
            return other
    return planner


class UnfitLineError(Exception):
    """No kernel can take the steps that were put together: see `LineKernel`."""


class Planner:
    """A plan in the making.

    Parameters
    ----------
    program : Program
    late : mapping, optional
        As for `adarray.compiler.fusion.fuse.Fusion`.
    donated : tuple of (int, int)
        As for `plan`.
    target : Target
    on_kernel : callable, optional
    unrolled : bool
        As for `plan`.
    lined : bool
        Whether a kernel may take several steps on a line.
    """

    def __init__(
        self,
        program: Program,
        late: Mapping[Value, int] | None = None,
        donated: tuple[tuple[int, int], ...] = (),
        target: Target = CPU,
        on_kernel: Callable[[Kernel], None] | None = None,
        unrolled: bool = False,
        lined: bool = True,
    ) -> None:
        self.program = program
        self.donated = donated
        self.target = target
        self.fusion = Fusion(program, late, target)
        self.lines = Lines(
            self.fusion, map(self._target, program.outputs), target if lined else CPU
        )
        self.line_kernels: dict[int, LineKernel] = {}
        self.division = Division(self.fusion.uses, self.lines.number, self._statements)
        self.late = late or {}
        self.requested: dict[Value, None] = {}
        self.nodes: dict[int, Nodes] = {}
        self.lowered: dict[int, Lowered] = {}
        self.on_kernel = on_kernel
        self.rounds = ROUNDS[0]
        self.has_chosen = False
        self.pipelines: dict[int, Pipeline | Strips] = {}
        self.families: dict[int, Family] = {}
        self.recompute = Recompute(self.fusion, self.requested, self.lines.borders)
        self.storage = Storage(self.fusion.uses)
        literal = target.small > 1 and (unrolled or len(program.values) >= UNROLLED)
        kernels = SharedKernels(target, SHORT if literal else 0)
        self.writer = StepWriter(self.fusion, self.storage, kernels, on_kernel)
        self.verified: dict[int, Kernel] = {}  # by `id`

    def predicted(self) -> float:
        """Return the seconds of all kernels on a GPU, roughly."""
        self._choose_recomputation()
        return self._tried(self.rounds, self._seconds)

    def run(self) -> Plan:
        """Return the plan."""
        self._choose_recomputation()
        self.fusion.groups = self._settled()
        self._number_uses()
        self._make_buffers()
        self._find_pipelines()
        self._find_siblings()
        self._find_stretches()
        for group in self.fusion.groups:
            if not group.dead:
                self._write(group)
        outputs = tuple(self.storage.operand_of(v) for v in self.program.outputs)
        self._verify("lower")
        refused: list[tuple[int, int, str]] = []
        for name, change in STEP_PASSES:
            refused += change(self, outputs)
            self._verify(name)
        arena = place_buffers(
            self.writer.steps, self.storage.all_buffers, outputs, self.storage.inside
        )
        return Plan(
            tuple(self.writer.steps),
            tuple(self.storage.all_buffers),
            tuple(self.storage.consts),
            outputs,
            arena,
            (*kernel_notes(self.fusion, self.families), *donation_notes(self.program, refused)),
        )

    def _donate(self, outputs: tuple[Operand, ...]) -> list[tuple[int, int, str]]:
        """Let results lie in donated inputs; return which do not, and why."""
        if not self.donated:
            return []
        self.writer.steps, refused = donate(
            self.writer.steps, self.storage.all_buffers, outputs, self.donated
        )
        return refused

    def _merge_kernels(self, _: tuple[Operand, ...]) -> list[tuple[int, int, str]]:
        """Let small kernels run as one."""
        if self.target.merged_bytes and not self.late:
            launches = Launches(
                self.target.merged_bytes, self.storage.all_buffers, self.storage.inside
            )
            self.writer.steps = launches.run(self.writer.steps)
        return []

    def _verify(self, after: str) -> None:
        """Check the kernels after a pass, where ADARRAY_CHECK asks for it."""
        if not checking():
            return
        for step in self.writer.steps:
            if isinstance(step, KernelStep) and id(step.kernel) not in self.verified:
                self.verified[id(step.kernel)] = verify(step.kernel, after)

    def stored_values(self) -> Iterable[tuple[Buffer, Value]]:
        """Yield the values in buffers, with the buffer."""
        for value in self.requested:
            buffer = self.storage.buffers.get(value)
            if buffer is not None:
                yield buffer, value

    # -- what is stored -------------------------------------------------------------------

    def _target(self, value: Value) -> Value:
        """Return the value whose memory an output is, or is a view of."""
        if value in self.fusion.owner or is_source(value):
            return value
        return self.fusion.uses.access(value).root

    def _request(self, value: Value) -> None:
        if not is_source(value):
            self.requested[value] = None

    def _settled(self) -> list[Group]:
        """Find what all groups compute; return them."""
        for value in self.program.outputs:
            self._request(self._target(value))
        settled: list[Group] = []
        for group in reversed(self.fusion.groups):
            settled += self._settle(group)
        return settled[::-1]

    def _choose_recomputation(self) -> None:
        """Find how much kernels compute again: as little as pays, where steps run in one kernel."""
        recompute = self.recompute
        if self.has_chosen or not recompute.likely:
            return
        self.has_chosen = True
        likely, recompute.likely = recompute.likely, frozenset()
        if self._tried(ROUNDS[0], self._has_strips):
            return
        recompute.likely = likely
        self._recompute_in(min(ROUNDS, key=lambda rounds: self._tried(rounds, self._moved)))

    def _recompute_in(self, rounds: tuple[int, bool]) -> None:
        self.rounds, self.recompute.near = rounds, rounds[1]

    def _tried(self, rounds: tuple[int, bool], measure: Callable[[list[Group]], float]) -> float:
        """Return what a function says of the groups that so many rounds lead to."""
        on_kernel, before = self.on_kernel, self.rounds
        self.on_kernel = None
        self._recompute_in(rounds)
        result = measure([group for group in self._settled() if not group.dead])
        for group in self.fusion.groups:
            self._own(group)  # and not a piece of it
        self.requested.clear()
        self.nodes.clear()
        self.lowered.clear()
        self.recompute.chosen.clear()
        self.recompute.spent.clear()
        self.on_kernel = on_kernel
        self._recompute_in(before)
        return result

    def _has_strips(self, groups: list[Group]) -> bool:
        return any(
            True for _ in strips.find_chains(groups, self.nodes, self.requested, self.target)
        )

    def _moved(self, groups: list[Group]) -> float:
        """Return how many bytes kernels move, launches as what could be moved meanwhile."""
        moved = 0.0
        for group in groups:
            nodes = self.nodes.get(group.index)
            if nodes is not None:
                values = [m.value for m in nodes.memories.values()] + self._wanted(group)
                moved += LAUNCH * 4 + sum(v.size * v.dtype.itemsize for v in values)
        return moved

    def _seconds(self, groups: list[Group]) -> float:
        """Return how long kernels take, roughly."""
        target = self.target
        assert isinstance(target, GpuTarget)
        time = 0.0
        for group in groups:
            nodes = self.nodes.get(group.index)
            if nodes is None:
                continue
            moved = [m.value for m in nodes.memories.values()] + self._wanted(group)
            if group.kind == "line":
                sizes = self.line_kernels[group.index].sizes
                operations = operations_once(nodes.order) * sizes.columns / sizes.own
            else:
                operations = operations_in_place(nodes.order)
            time += seconds(moved, operations, target)
        return time

    def _settle(self, group: Group) -> list[Group]:
        """Find what a group computes, given what later ones read of it; return it.

        A small one whose kernel is too large is cut; the pieces come last first.
        """
        value = group.members[0]
        wanted = self._wanted(group)
        group.dead = not wanted and not (
            group.kind == "step" and isinstance(value.primitive, PythonCall)
        )
        if group.dead:
            return [group]
        if group.library:
            for a in value.args:
                self._request(self.storage.memory_of(a))
            return [group]
        if group.kind == "small":
            pieces = self.division.pieces(group)
            if len(pieces) > 1:
                for piece in pieces:
                    self._own(piece)
                return [g for piece in reversed(pieces) for g in self._settle(piece)]
        elif group.kind == "line":
            self._choose_line(group)
        else:
            self._choose(group)
        for memory in self.nodes[group.index].memories.values():
            self._request(memory.value)
        if group.kind == "small" and self.on_kernel is not None:
            self.on_kernel(self.lowered[group.index].kernel)  # long before its step is written
        return [group]

    def _wanted(self, group: Group) -> list[Value]:
        """Return the members that later groups read from memory, or that are results."""
        return [m for m in group.members if m in self.requested]

    def _choose(self, group: Group) -> None:
        """Find the nodes of a group, with what it computes again."""
        wanted = self._wanted(group)
        nodes = self._nodes(group, wanted)
        for _ in range(self.rounds[0]):
            if not self.recompute.choose(group, nodes):
                break
            nodes = self._nodes(group, wanted)
        if group.kind == "rows" and isinstance(self.target, GpuTarget) and not self.late:
            for _ in range(STORED):
                value = worth_storing(group, nodes, wanted, self.target)
                if value is None:
                    break
                self._request(value)
                wanted = self._wanted(group)
                nodes = self._nodes(group, wanted)
        self.nodes[group.index] = nodes

    def _choose_line(self, group: Group) -> None:
        """Find the kernel of a line, with what it computes again where that leaves enough of it."""
        wanted = self._wanted(group)
        kernel = self.lines.kernel(group, wanted, self.recompute.cloned)
        for _ in range(self.rounds[0]):
            if not self.recompute.choose(group, kernel.nodes):
                break
            kernel = self.lines.kernel(group, wanted, self.recompute.cloned)
        if not kernel.valid:
            kernel = self.lines.kernel(group, wanted, lambda *_: False)
        if not kernel.valid:
            raise UnfitLineError
        self.line_kernels[group.index] = kernel
        self.nodes[group.index] = kernel.nodes

    def _own(self, group: Group) -> None:
        """Let a group own its members."""
        self.fusion.owner.update((m, group) for m in group.members)

    def _statements(self, group: Group, old: Group | None) -> int:
        """Return how many statements the kernel of a small group has; see `Division`."""
        if old is not None:
            if not self._wanted(group):
                return 0
            self._own(group)
        self._choose(group)
        self.lowered[group.index] = lowered = self._lower(group)
        if old is not None:
            self._own(old)
        return sum(1 for _ in statements(lowered.kernel.body))

    def _nodes(self, group: Group, wanted: list[Value]) -> Nodes:
        nodes = Nodes(group, self.fusion, self.recompute.cloned)
        if group.kind == "step":
            for a in group.members[0].args:
                lower_steps.reference(nodes, a)
        else:
            for m in wanted:
                nodes.add(m)
        return nodes

    # -- buffers --------------------------------------------------------------------------

    def _number_uses(self) -> None:
        """Note the last group that reads each stored value."""
        for k, group in enumerate(self.fusion.groups):
            self.writer.position[group.index] = k
            if group.dead:
                continue
            for v in self._reads(group):
                self.writer.last_use[v] = k
                self.writer.read.add(v)
        for value in self.program.outputs:
            self.writer.last_use[self._target(value)] = len(self.fusion.groups)

    def _reads(self, group: Group) -> Iterable[Value]:
        nodes = self.nodes.get(group.index)
        if nodes is not None:
            return [m.value for m in nodes.memories.values()]
        return [self.storage.memory_of(a) for a in group.members[0].args]

    def _make_buffers(self) -> None:
        for k, v in enumerate(self.program.inputs):
            self.storage.add(v, Buffer("input", v.dtype, v.size, k))
        for j, v in enumerate(self.program.outputs):
            target = self._target(v)
            if target not in self.storage.buffers and not is_source(target):
                self.storage.add(target, Buffer("output", target.dtype, target.size, j))

    def _find_stretches(self) -> None:
        """Let values lie inside of the concatenations that they are for."""
        for group in self.fusion.groups:
            concatenation = group.members[0]
            primitive = concatenation.primitive
            if not isinstance(primitive, Concatenate) or concatenation in self.storage.buffers:
                continue
            if group.dead or group.kind != "step" or group.library:
                continue
            parts = [
                (value, start)
                for value, start in stretches(
                    primitive.axis, concatenation, self.fusion, self.storage.buffers
                )
                if value in self.requested  # others are recomputed by who reads them
            ]
            if not parts:
                continue
            whole = self.storage.buffer(concatenation)
            self.storage.divided.add(whole)
            for value, start in parts:
                part = self.storage.buffer(value)
                self.storage.inside[part] = (whole, start)

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
        elif group.kind == "line":
            self._line(self.line_kernels[group.index])
        elif group.kind != "step":
            self._fused(group)
        else:
            self._step(value, group)

    def _step(self, value: Value, group: Group) -> None:
        """Add the steps of a value that has them alone."""
        match value.primitive:
            case Matmul() as p:
                self.writer.matmul(p, value)
            case PythonCall() as p:
                self.writer.call(p, value)
            case CallResult():
                pass  # the call writes it
            case _:
                self.writer.single(value, group, self.nodes.get(group.index))

    def _part(self, group: Group) -> Sibling:
        """Return what a group computes and stores."""
        nodes = self.nodes[group.index]
        stored = {nodes.by_value[m]: ValueMemory(m) for m in group.members if m in self.requested}
        return Sibling(nodes.order, stored, group.find(group.outer), list(group.extents))

    def _lower(self, group: Group) -> Lowered:
        order, stored, outer, extents = self._part(group)
        outer = collapse(order, stored, outer, extents, rows=not self.target.along)
        return self.writer.shared_kernels.lower(order, stored, outer, extents)

    def _fused(self, group: Group) -> None:
        lowered = self.lowered.get(group.index) or self._lower(group)
        order = self.nodes[group.index].order
        self.writer.kernel(lowered, tuple(n.value for n in order), work_of(order))

    def _find_siblings(self) -> None:
        """Find groups that run as one though they do not fuse."""
        if self.late:
            return  # nothing is computed earlier than it stands

        def part(group: Group) -> Sibling | None:
            alone = group.kind != "rows" or group.index in self.pipelines
            alone = alone or (
                group.members[0] in self.fusion.apart
                and sum(isinstance(n.operation, Folded) for n in self.nodes[group.index].order)
                > SUMS
            )
            sibling = None if alone else self._part(group)
            return None if sibling is None or (self.target.along and sibling.flattens) else sibling

        groups = [g for g in self.fusion.groups if not g.dead]
        for family in find_siblings(groups, self._reads, part):
            self.families.update((g.index, family) for g in family.groups)

    def _family(self, family: Family) -> None:
        lowered = self.writer.shared_kernels.siblings(family.parts)
        nodes = [n for p in family.parts for n in p.order]
        values = tuple(dict.fromkeys(n.value for n in nodes))
        self.writer.kernel(lowered, values, work_of(nodes))

    def _find_pipelines(self) -> None:
        """Find chains of groups that run as pipelines."""
        groups = [g for g in self.fusion.groups if not g.dead]
        readers: dict[Value, set[int]] = {}
        for g in groups:
            for v in self._reads(g):
                readers.setdefault(v, set()).add(g.index)
        results = {self._target(v) for v in self.program.outputs}

        def external(value: Value, chain: list[Group]) -> bool:
            return value in results or not readers.get(value, set()) <= {g.index for g in chain}

        cloned, requested = self.recompute.cloned, self.requested
        pipelines: list[Pipeline | Strips] = [
            Strips(chain, self.fusion, cloned, requested, external)
            for chain in strips.find_chains(groups, self.nodes, requested, self.target)
        ]
        pipelines += [
            Pipeline(chain, self.fusion, cloned, requested, external)
            for chain in find_chains(groups, self.nodes, requested, self.target)
        ]
        for p in pipelines:
            if p.valid:
                self.pipelines.update((g.index, p) for g in p.chain.groups)

    def _pipeline(self, p: Pipeline | Strips) -> None:
        kernels = self.writer.shared_kernels
        lowered = kernels.strips(p) if isinstance(p, Strips) else kernels.pipeline(p)
        orders = p.orders()
        values = tuple(
            n.value for order in orders for n in order if not isinstance(n.operation, FromRing)
        )
        self.writer.kernel(lowered, values, sum(work_of(order) for order in orders))

    def _line(self, k: LineKernel) -> None:
        orders = k.orders()
        values = tuple(
            n.value for order in orders for n in order if not isinstance(n.operation, FromRing)
        )
        lowered = self.writer.shared_kernels.line(k)
        self.writer.kernel(lowered, values, sum(work_of(order) for order in orders))


# What is done to a plan's steps, in this order; ADARRAY_CHECK verifies their kernels after each.
StepPass = Callable[[Planner, tuple[Operand, ...]], list[tuple[int, int, str]]]
STEP_PASSES: tuple[tuple[str, StepPass], ...] = (
    ("donate", Planner._donate),
    ("merge", Planner._merge_kernels),
)

"""Loops of steps that are one operation each, and keep states as a schedule says."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from adarray.ad.reverse import WALK
from adarray.arrays.adarray import ADArray
from adarray.arrays.plainarrays import opened
from adarray.base.errors import TraceError
from adarray.core.graph import Node
from adarray.core.protocol import traced
from adarray.core.saving import OfMembers
from adarray.core.trace import Extras, Handle, is_weak, save, snapshot
from adarray.transforms import schedules
from adarray.transforms.calls import RuleCall, Whole, dtype_of, plain_number, rest_of
from adarray.transforms.checkpointing import agree, sums
from adarray.transforms.replay import Replay, mark, nodes_before, walk_level
from adarray.transforms.running import check_computed, prepared
from adarray.transforms.storing import Disk, LoopState, Snapshot
from adarray.transforms.tree import flatten, is_array

Step = Callable[..., Any]


class _Recorded(NamedTuple):
    """A step that was recorded, to be walked back.

    Parameters
    ----------
    at : int
        Its number.
    replay : Replay
    places : list of int
        The floating ones among the leaves of the state before.
    before : int
        How many leaves that has.
    moves : list of bool
        Which leaves of the result are floating.
    after : LoopState
    outputs : any
        What it returned besides.
    fingerprint : list or None
        What tells the state before from others.
    """

    at: int
    replay: Replay
    places: list[int]
    before: int
    moves: list[bool]
    after: LoopState
    outputs: Any
    fingerprint: list[Any] | None


class _Stack(list[Any]):
    """States and recorded steps on the way to the step that is walked back next."""

    def __init__(self, disk: Disk | None) -> None:
        super().__init__()
        self.disk = disk
        self.in_memory = 0

    def take(self, place: int = -1) -> Any:
        """Remove an item, the last one if no place is given."""
        item = self.pop(place)
        self.in_memory -= isinstance(item, Snapshot) and item.disk is None
        return item

    def keep(self, snapshot: Snapshot) -> None:
        """Put a state on top."""
        self.append(snapshot)
        self.in_memory += snapshot.disk is None


class _LoopResiduals(OfMembers):
    """The residuals of a loop for its derivative: they serve once, and are computed again then."""

    def __init__(self, stack: _Stack, count: int, last: list[Any] | None, aux: list[int]) -> None:
        self.stacks = [stack]
        self.count = count  # of steps
        self.last = last  # what tells the last state from others
        self.aux = aux  # how many leaves each step has returned besides the state

    def of_member(self, of: Callable[[Any], Any]) -> _LoopResiduals:  # noqa: ARG002
        """Return the residuals of one member of a batch: none, so that its steps run again."""
        residuals = _LoopResiduals(_Stack(None), self.count, None, self.aux)
        residuals.stacks.clear()
        return residuals


class Loop(Whole):
    """A loop of steps, which is one operation.

    Parameters
    ----------
    name : str
    step : callable
    run : callable
        ``run(state)`` runs the loop plainly.
    units : int
        States that are kept at a time.
    schedule : callable
    memory : int
        How many of them are in memory.
    on_disk : set of int or None
        Places of the stack that are on disk; None: those for which memory has no room.
    directory : str or path, optional
        Of the disk.
    count : int or None
        Of steps; None if `cond` tells.
    cond : callable, optional
    has_aux : bool
    """

    captures = True
    keeps_tangents = True

    def __init__(
        self,
        name: str,
        step: Step,
        run: Callable[[Any], Any],
        *,
        units: int,
        schedule: schedules.Schedule,
        memory: int,
        on_disk: set[int] | None,
        directory: Any,
        count: int | None,
        cond: Callable[[Any], Any] | None = None,
        has_aux: bool = False,
    ) -> None:
        super().__init__(name, run)
        self._step = prepared(step, True)
        self._numbered = takes_number(step)
        self._units = units
        self._schedule = schedule
        self._memory_units = memory
        self._on_disk = on_disk
        self._directory = directory
        self._read: dict[int, Node] = {}  # what the steps read besides the state
        self._count = count
        self._cond = None if cond is None else prepared(cond, True)
        self._has_aux = has_aux

    # -- forward ------------------------------------------------------------------------------

    def _evaluate(self, args: list[Any]) -> tuple[Any, Any]:
        aux: list[Any] = []
        stack = self._stack()
        state = LoopState(*flatten(args[0]))
        if self._cond is None:
            state = self._descend(state, 0, self._count or 0, stack, aux)
            count = self._count or 0
        else:
            state, count = self._explore(state, stack, aux)
        y = state.rebuild([_private(x) for x in state.leaves])
        residuals = _LoopResiduals(
            stack, count, _fingerprint(state.leaves), [len(flatten(x)[0]) for x in aux]
        )
        return ((y, aux) if self._has_aux else y), residuals

    def _reached(self, start: Node, seen: list[Any]) -> list[Node]:  # noqa: ARG002
        return [self._read[k] for k in sorted(self._read, reverse=True)]

    def _stack(self) -> _Stack:
        disk = None if self._memory_units == self._units else Disk(self._directory)
        return _Stack(disk)

    def _explore(self, state: LoopState, stack: _Stack, aux: list[Any]) -> tuple[LoopState, int]:
        """Run a loop of unknown length, and keep states on the way."""
        plan, at = schedules.Dynamic(self._units), 0
        assert self._cond is not None
        while self._cond(self._tree(state)):
            place = plan.place()
            if place != -1:
                if place is not None:
                    stack.take(place).drop()
                stack.keep(self._snapshot(stack, at, state))
            state = self._advance(state, at, aux)
            at += 1
        return state, at

    def _descend(
        self,
        state: LoopState,
        at: int,
        end: int,
        stack: _Stack,
        aux: list[Any] | None = None,
        source: Snapshot | None = None,
    ) -> LoopState:
        """Run to the end of a stretch, such that its last step is on top of the stack.

        `aux` says that this is the first time, and takes what the steps return besides; `source`
        is what the state was read from.
        """
        for move in self._schedule(end - at, self._units - len(stack)) if end > at else ():
            if move.keep:
                stack.keep(source or self._snapshot(stack, at, state))
                source = None
                for k in range(at, at + move.steps):
                    state = self._advance(state, k, aux)
            else:
                recorded = self._record(state, at)
                state = recorded.after
                stack.append(recorded)
                if source is not None:
                    source.drop()
                    source = None
                if aux is not None:
                    self._read.update((n.order, n) for n in recorded.replay.captured)
                    aux.append(recorded.outputs)
            at += move.steps
        return state

    def _snapshot(self, stack: _Stack, at: int, state: LoopState) -> Snapshot:
        if self._on_disk is None:
            full = stack.in_memory >= self._memory_units
        else:
            full = len(stack) in self._on_disk
        return Snapshot(at, state, stack.disk if full else None)

    @staticmethod
    def _tree(state: LoopState) -> Any:
        """Return a state as a step gets it: it may write into it."""
        return state.rebuild([_private(x) for x in state.leaves])

    def _call(self, tree: Any, at: int) -> Any:
        y = self._step(tree, at) if self._numbered else self._step(tree)
        check_stepped(self._name, y)
        return parts(self._op.name, y) if self._has_aux else (y, None)

    def _advance(self, state: LoopState, at: int, aux: list[Any] | None) -> LoopState:
        """Run a step, and keep nothing of it."""
        start = mark()
        y, output = self._call(self._tree(state), at)
        leaves, rebuild = flatten(y)
        outputs, rebuild_output = flatten(output)
        if aux is not None:
            nodes = [x._node for x in (*leaves, *outputs) if traced(x)]
            self._read.update((n.order, n) for n in nodes_before(start, nodes))
            aux.append(rebuild_output([_settled(x) for x in outputs]))
        return LoopState([_settled(x) for x in leaves], rebuild)

    def _record(self, state: LoopState, at: int) -> _Recorded:
        """Run a step to be walked back."""
        places = [k for k, x in enumerate(state.leaves) if _moves(x)]
        results: list[Any] = []

        def run(*xs: Any) -> Any:
            leaves = [_private(x) for x in state.leaves]
            for k, x in zip(places, xs, strict=True):
                leaves[k] = _private(x)
            results[:] = self._call(state.rebuild(leaves), at)
            return [flatten(results[0])[0], flatten(results[1])[0]]

        replay = Replay(self._op.name, run, [state.leaves[k] for k in places])
        _, rebuild = flatten(results[0])
        outputs, rebuild_output = flatten(results[1])
        count = len(replay.leaves) - len(outputs)
        after = [_settled(x) for x in replay.leaves[:count]]
        aux = rebuild_output([_settled(x) for x in replay.leaves[count:]])
        moves = [_moves(x) for x in replay.leaves]
        replay.leaves = []  # what they hold is not needed
        fingerprint = _fingerprint(state.leaves)
        last = LoopState(after, rebuild)
        return _Recorded(at, replay, places, len(state.leaves), moves, last, aux, fingerprint)

    # -- back ---------------------------------------------------------------------------------

    def _pull(self, call: RuleCall, operands: list[Any], cotangents: list[Any]) -> dict[int, Any]:
        around = WALK.get()
        record = around is not None and (around.record or call.span[0] < around.level)
        if record and not call.tangents:
            return self._pull_recorded(call, operands, cotangents)
        residuals: _LoopResiduals = call.residuals
        try:
            stack = residuals.stacks.pop()
        except IndexError:  # another walk has used it up
            stack = self._stack()
            self._descend(self._first(call, operands), 0, residuals.count, stack)
        walk, todo = _BackwardWalk(self, call, cotangents), residuals.count
        while todo:
            top = stack.take()
            if isinstance(top, Snapshot):
                self._descend(top.get(), top.at, todo, stack, source=top)
            else:
                walk.pull(top)
                todo = top.at
        return walk.result(operands)

    @staticmethod
    def _first(call: RuleCall, operands: list[Any]) -> LoopState:
        """Return the state that the loop began with, from what its node holds."""
        handles, rebuild = flatten(call.args[0])
        leaves = [
            ADArray(x, None, Extras(weak=True) if is_weak(h) else None, True)
            if isinstance(h, Handle) and not isinstance(x, Handle)
            else x
            for x, h in zip(operands, handles, strict=True)
        ]
        return LoopState(leaves, rebuild)

    def _pull_recorded(
        self, call: RuleCall, operands: list[Any], cotangents: list[Any]
    ) -> dict[int, Any]:
        """Walk back where this is differentiated, too: all states are kept."""
        states = [self._first(call, operands)]
        for k in range(call.residuals.count):
            y, _ = self._call(self._tree(states[-1]), k)
            leaves, rebuild = flatten(y)
            states.append(LoopState([_frozen(x) for x in leaves], rebuild))
        states.pop()
        walk = _BackwardWalk(self, call, cotangents)
        while states:
            state = states.pop()
            walk.pull(self._record(state, len(states)))
        return walk.result(operands)


class _BackwardWalk:
    """One walk back through the steps of a loop."""

    def __init__(self, loop: Loop, call: RuleCall, cotangents: list[Any]) -> None:
        self.loop = loop
        self.call = call
        self.targets = call.targets()
        self.totals: list[Any] = [None] * len(self.targets)
        self.seen: set[int] = set()
        self.aux = list(call.residuals.aux)
        whole: list[Any] = [None] * call.leaves
        for k, g in zip(call.places, cotangents, strict=True):
            whole[k] = g
        last = call.leaves - sum(self.aux)
        self.outputs = whole[last:]  # cotangents of what the steps have returned besides
        self.g: list[Any] = whole[:last]  # of the leaves of the state
        self.expected = (
            call.residuals.last
        )  # fingerprint of the state that the next step must lead to

    def pull(self, step: _Recorded) -> None:
        """Walk back one step."""
        if not agree(self.expected, _fingerprint(step.after.leaves)):
            raise TraceError(
                f"{self.loop._name}: step {step.at} computed something else when it ran again "
                "for its derivative; random numbers and what changes meanwhile must be drawn "
                "before the loop, or be part of the state"
            )
        self.expected = step.fingerprint
        size = self.aux.pop()
        outputs = self.outputs[len(self.outputs) - size :]
        del self.outputs[len(self.outputs) - size :]
        self.seen.update(n.order for n in step.replay.captured if n.span[1] >= walk_level())
        cotangents = [
            g if m else None for g, m in zip([*self.g, *outputs], step.moves, strict=True)
        ]
        pulled = step.replay.pull(cotangents, self.targets)
        self.g = [None] * step.before
        for k, g in zip(step.places, pulled, strict=False):
            self.g[k] = plain_number(g)
        for k, g in enumerate(pulled[len(step.places) :]):
            self.totals[k] = g if self.totals[k] is None else self.totals[k] + g

    def result(self, operands: list[Any]) -> dict[int, Any]:
        """Return the cotangents of the operands, and of the captured nodes."""
        if self.seen != {n.order for n in self.targets}:
            raise TraceError(
                f"{self.loop._name}: a step read other traced values when it ran again for its "
                "derivative; what changes meanwhile must be part of the state"
            )
        n = len(operands)
        at = {id(node): n + k for k, node in enumerate(self.call.captured)}
        by_operand = {at[id(node)]: g for node, g in zip(self.targets, self.totals, strict=True)}
        for k in self.call.followed:
            if k < n:
                by_operand[k] = self.g[k]
        return by_operand


def _moves(x: Any) -> bool:
    """Whether a leaf of a state is differentiated."""
    return is_array(x) and dtype_of(x).kind in "fc"


def _fingerprint(leaves: list[Any]) -> list[Any] | None:
    """Return sums that tell a state from others."""
    with np.errstate(all="ignore"):
        return sums([x for x in leaves if _moves(x)])


def _settled(x: Any) -> Any:
    """Return a leaf of a result apart from how it was computed; its tangents stay."""
    if isinstance(x, np.ndarray):
        return x.copy()
    if not isinstance(x, Handle):
        return x
    traced(x)  # which brings views up to date
    rest = rest_of(x)
    return type(x)(save(x), None, rest, True)


def _frozen(x: Any) -> Any:
    """Return a leaf of a result as it is now."""
    if isinstance(x, Handle):
        traced(x)
        return snapshot(x)
    return x.copy() if isinstance(x, np.ndarray) else x


def _private(x: Any) -> Any:
    """Return a leaf of a state such that who gets it may write into it."""
    if isinstance(x, np.ndarray):
        return x.copy()
    return snapshot(x) if isinstance(x, Handle) else x


def takes_number(step: Step) -> bool:
    """Whether a step takes its number besides the state: it has a second argument to be given."""
    try:
        parameters = inspect.signature(step).parameters.values()
    except (TypeError, ValueError):
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in positional and p.default is p.empty for p in parameters) > 1


def check_stepped(name: str, y: Any) -> None:
    """Raise if a step has returned no state.

    Raises
    ------
    TypeError
    """
    if y is None:
        raise TypeError(f"{name}: the step returned None; return the next state")
    check_computed(name, y)


def parts(name: str, y: Any) -> tuple[Any, Any]:
    """Return the state and the output of a step.

    Raises
    ------
    TypeError
    """
    if not isinstance(y, tuple) or len(y) != 2:
        raise TypeError(
            f"{name}: has_aux=True, but the step returned {type(y).__name__}; return a pair "
            "(state, aux)"
        )
    return y


def plain_loop_of(
    name: str, step: Step, count: int | None, cond: Callable[[Any], Any] | None, has_aux: bool
) -> Callable[[Any], Any]:
    """Return the loop as it would be written."""
    numbered, run = takes_number(step), prepared(step, True)
    goes_on = None if cond is None else prepared(cond, True)

    def plain_loop(state: Any) -> Any:
        leaves, rebuild = flatten(state)
        state = rebuild([_private(x) for x in leaves])
        aux: list[Any] = []
        k = 0
        while k < count if count is not None else goes_on(state):  # type: ignore[misc]
            y = run(state, k) if numbered else run(state)
            check_stepped(name, y)
            state = y
            if has_aux:
                state, output = parts(name, y)
                output_leaves, rebuild = flatten(output)
                aux.append(rebuild([_frozen(x) for x in output_leaves]))
            k += 1
        return opened((state, aux) if has_aux else state)

    return plain_loop

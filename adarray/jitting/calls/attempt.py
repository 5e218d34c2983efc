"""One recorded run of a function: clones in, a recording out, and changes to commit or undo."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from adarray.arrays.adarray import ADArray
from adarray.base.aliasing import firsts, shares_memory, touches
from adarray.base.memory import duplicate
from adarray.base.recording import Symbol
from adarray.core.trace import Handle
from adarray.jitting.captures.cached import CachedCall
from adarray.jitting.captures.effects import StateChanges, apply
from adarray.jitting.captures.proof import unproven_recording
from adarray.jitting.captures.state import CapturedState
from adarray.jitting.recording import record
from adarray.jitting.recording.record import RecordedRun
from adarray.jitting.shared.devices import OnDevice, write
from adarray.jitting.shared.generators import Draws
from adarray.jitting.shared.links import Link, follow_links
from adarray.jitting.shared.signature import Bound, arrays, positional, unaligned
from adarray.jitting.shared.symbolic import UntraceableError
from adarray.jitting.tree.run import _wrapped
from adarray.transforms.tree import flatten


class Attempt:
    """One recorded run of the function, to commit or undo.

    Parameters
    ----------
    state : CapturedState
    bound : Bound
    device : OnDevice, optional
        Where it computes, if not on the host.
    truths : bool
        Whether code may ask which truth value is which object.
    unrolls : bool
        Whether no loop is captured.
    memory_limit : int, optional
        Bytes that the tapes of a captured loop may take.

    Attributes
    ----------
    recorded : Recorded or None
    aliased : bool
        Whether it wrote into an argument that shares memory with another one, which the
        recording does not show.
    hidden : bool
        Whether it wrote into an input whose memory plain code reads as well, by another way.
    split : str
        The name of an object that it changed, and that code also reaches by a way on which it is
        not cloned.
    values : list
        The inputs as they were recorded: where the call computes.
    reason : str
        Why nothing can be compiled; "" if it can.
    plain_operands : list of ndarray
        Arrays that operations read and that are no inputs.
    calls : list of CachedCall
        What it called that has a cache.
    draws : Draws
        What it drew from random generators.
    disturbed : bool
        Whether the recording is no good, since somebody else drew from NumPy's global stream.
    state_changes : StateChanges
        What it changed besides arrays.
    unproven : str
        Why another run has to agree with this one before it is compiled; "" if none has to.
    """

    def __init__(
        self,
        state: CapturedState,
        bound: Bound,
        device: OnDevice | None = None,
        truths: bool = False,
        unrolls: bool = False,
        memory_limit: int | None = None,
    ) -> None:
        self._truths = truths
        self._unrolls = unrolls
        self._memory_limit = memory_limit
        self._state = state
        self._bound = bound
        self._device = device
        self.values: list[Any] = []
        self.recorded: RecordedRun | None = None
        self.aliased = False
        self.split = ""
        self.hidden = False
        self.reason = ""
        self.disturbed = False
        self.seconds = 0.0
        self.plain_operands: list[np.ndarray] = []
        self.draws = Draws()
        self.calls: list[CachedCall] = []
        self.state_changes = StateChanges()
        self.unproven = ""
        self._clones: Any = None
        self._about = ""

    def record(self, about: str) -> None:
        """Run the function on traced inputs; `about` says which one it is."""
        self._about = about
        bound, state = self._bound, self._state
        count = len(bound.leaves)
        leaves = [*bound.leaves, *state.values]
        device = self._device
        leaves = aligned(leaves) if device is None else list(map(device.placed, leaves))
        traced = [*bound.traced, *range(count, len(leaves))]
        self.values = [leaves[k] for k in traced]
        statics = [k for k in range(count) if k not in set(bound.traced)]
        passed: list[Any] = []

        def rebuild(inputs: list[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
            self._clones = state.clone(inputs[count:])
            f, *objects = self._clones.roots
            own = inputs[:count]
            for k, x in zip(statics, objects, strict=True):
                own[k] = x
            args, kwargs = bound.rebuild(own)
            passed[:] = [own, args, kwargs]
            return (f, args, kwargs), {}

        def changes(result: Any) -> list[Any]:
            self.state_changes = state.changes(self._clones, result, tuple(passed[1:]))
            return self.state_changes.values

        owners = [i.captured.value for i in state.inputs]
        same = firsts([*bound.targets, *owners], arrays())
        recorded = record.record(
            _called,
            leaves,
            rebuild,
            traced,
            self.draws,
            self._original,
            self.calls,
            same,
            about,
            changes,
            self._truths,
            self._unrolls,
            memory_limit=self._memory_limit,
        )
        effects = self.state_changes.effects
        if effects:
            recorded = recorded._replace(effects=effects, find=state.finder(effects))
        own, args, kwargs = passed
        if bound.rebuild is not positional:
            now, _ = flatten((args, kwargs))
            if len(now) != len(own) or any(a is not b for a, b in zip(now, own, strict=True)):
                raise UntraceableError(
                    "jit: the function changes a list, dict or object that is an argument; "
                    "return a new one in its place"
                )
        self.recorded = recorded
        written = [i for i, _ in recorded.recording.writes]
        inputs = [*bound.values, *state.values]
        touched = recorded.recording.touched
        self.aliased = shares_memory(inputs, None if touched else written)
        self.plain_operands = [array for _, array, _ in recorded.recording.captures]
        self.split = self._clones.split()
        targets = [inputs[i] for i in written]
        self.hidden = state.overlap(targets) or any(
            touches(x, targets) for x in self.plain_operands
        )
        for call in self.calls:
            # Plain code reads, and may write, what a cache returned; the run saw copies of inputs.
            others = inputs if call.written() else targets
            self.hidden = self.hidden or any(touches(x, others) for x in call.arrays)
        self.unproven = self._unproven(recorded)

    def _unproven(self, recorded: RecordedRun) -> str:
        """Return why one run does not show what each run does; "" if it does."""
        if self.state_changes.effects or self.state_changes.needs_another_run:
            return "it changes what it captured"
        if self.draws or self.calls:
            return "it draws random numbers, or calls a function with a cache"
        if recorded.plain or any(x.of == "constant" for x in recorded.links.values()):
            return "a result is a plain array, which others may own"
        return self._state.unproven() or unproven_recording(recorded.recording)

    def _original(self, x: Any) -> Any:
        """Return the user's object in place of its clone, for code that sees no clones."""
        original = self._clones.original(x)
        if original is not x and self._clones.wrote():
            raise UntraceableError(
                "jit: the function changes an object, and calls a function with a cache on it"
            )
        return original

    def summary(self) -> str:
        """Return a line about the recording."""
        count = 0 if self.recorded is None else len(self.recorded.recording.events)
        return f"recorded {self._about}: {count} operations; {self.seconds:.3f} s"

    def restore(self) -> None:
        """Undo what the run did to random generators and captured objects."""
        for call in reversed(self.calls):  # each knows what was there when it was made
            call.restore()
        if self._clones is not None:
            self._clones.undo()
        self._state.restore(self.draws)  # this, what was there before all of them
        self.draws.undo()

    def changes(self) -> bool:
        """Whether the run changed anything besides computing its result."""
        assert self.recorded is not None
        return bool(
            self.recorded.recording.writes
            or self._clones.wrote()
            or self._state.check(self._bound.statics) is None
            or any(c.written() for c in self.calls)
            or self.draws
            or self._state.drawn(self.draws)
        )

    def commit(self, arguments: tuple[Any, ...]) -> Any:
        """Write and change what the run did; return its result.

        Parameters
        ----------
        arguments : tuple
            ``(args, kwargs)`` of the call.
        """
        recorded = self.recorded
        assert recorded is not None
        targets = [*self._bound.targets, *(i.captured.value for i in self._state.inputs)]
        for (i, _), value in zip(recorded.recording.writes, recorded.written, strict=True):
            write(targets[i], value)
            if i >= len(self._bound.targets) and isinstance(targets[i], ADArray):
                self.reason = "it writes into a captured ADArray; pass it as an argument"
        self._take_back([*recorded.arrays, *((h, targets[i]) for i, h in recorded.handles)])
        self.disturbed = self._state.disturbed(self.draws)
        drawn = self._state.drawn(self.draws)
        if drawn:
            self.reason = f"it draws from {drawn}; pass a np.random.Generator as an argument"
        leaves = [
            x.item() if type(s) is Symbol and s.weak and isinstance(x, np.generic) else x
            for s, x in zip(recorded.recording.outputs, recorded.leaves, strict=True)
        ]
        note_links(self._bound, recorded.links)
        wrap: Callable[[Any], Any] = _itself
        if self._device is not None:
            wrap = self._device.result
        elif self._bound.to_adarray:
            wrap = _wrapped
        result = recorded.rebuild(follow_links(leaves, recorded.concrete_links, targets, wrap))
        if recorded.effects:
            result, values = result
            assert recorded.find is not None
            apply(recorded.effects, recorded.find(self._bound.statics), values, arguments)
        # Handles lead back to the run: it would keep its arrays until the collector comes by.
        self.recorded = recorded._replace(arrays=[], handles=[])
        self.state_changes = self.state_changes._replace(values=[])
        return result

    def _take_back(self, values: list[tuple[Handle, Any]]) -> None:
        """Take back what compiled calls change too, which is put in place afterwards.

        Anything else that the run has changed stays, and is the reason to compile nothing; `values`
        are the user's arrays that the run had handles of.
        """
        changed = self._clones.changed() or "a global, a closure or an attribute"
        self.reason = next((c.opaque for c in self.calls if c.opaque), self.reason)
        read = self._clones.unexpected_read()
        if self.state_changes.effects:
            self._clones.undo()
        before = self._state.check(self._bound.statics)
        wrote = not self.state_changes.effects and self._clones.hand_back(values)
        if self.state_changes.needs_another_run:
            return
        if wrote or before is None or any(c.written() for c in self.calls):
            self.reason = (
                f"it changes what it captured ({changed}), which a compiled call would not; "
                "return the new value, or pass an array to write into"
            )
        if read:
            self.reason = f"it reads a list that it appends to ({read}); return the new items"


def _called(f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return f(*args, **kwargs)


def aligned(values: list[Any]) -> list[Any]:
    """Return inputs with copies of those arrays that cannot be addressed in elements."""
    return [duplicate(x) if unaligned(x) else x for x in values]


def note_links(bound: Bound, links: Mapping[int, Link]) -> None:
    """Note on the arguments of a call which leaves of its result are other memory."""
    bound.linked = frozenset(links)
    bound.loose = any(x.of in ("value", "constant") for x in links.values())


def _itself(x: Any) -> Any:
    return x

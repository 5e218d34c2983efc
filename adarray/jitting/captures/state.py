"""The captured state of a function, as it is when the function is recorded."""

from __future__ import annotations

import os
import pickle
import random
import types
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np

from adarray.base.errors import TraceError
from adarray.core.inplace import sync_if_view
from adarray.core.protocol import traced
from adarray.intercepting.memory import is_cached
from adarray.intercepting.rebinding import rebind_class, rebind_reached
from adarray.jitting.captures import rules as _rules  # noqa: F401  (registers them)
from adarray.jitting.captures.checks import ENVIRONMENT, Maker, same_scalar
from adarray.jitting.captures.clones import Clones
from adarray.jitting.captures.effects import NUMBERS, Effect, EffectReader, StateChanges, can_grow
from adarray.jitting.captures.objects import Edge, TooMuchError
from adarray.jitting.captures.proof import unproven_code
from adarray.jitting.captures.walk import CaptureWalk
from adarray.jitting.shared.generators import STREAM, Draws, set_state, source_of, state_of
from adarray.jitting.shared.options import Constants


class CapturedState:
    """What a function reads besides its arguments.

    Parameters
    ----------
    f : callable
    statics : list
        Arguments that are no inputs.
    floats : set of str
        Names of captured numbers that change, and are inputs.
    constants : Constants
        What the user says is constant.
    growing : set of str
        Names of captured lists that runs only append to.

    Attributes
    ----------
    reason : str
        Why the function cannot be compiled with this state; "" if it can.
    check : callable
        ``check(statics)`` returns the captured inputs as they are now; None if anything else
        has changed.
    owners : callable
        The same, with ADArrays in the places of their values.
    hidden : callable or None
        The same, with the arrays that plain code reads.
    assumed : list
        Objects that the user says are constant.
    values : list
        The captured inputs.
    scalars : dict
        Captured numbers, texts and the like, by name.
    """

    def __init__(
        self,
        f: Callable[..., Any],
        statics: list[Any],
        floats: set[str],
        constants: Constants = Constants(),  # noqa: B008  (it has no parts that change)
        growing: Collection[str] = (),
    ) -> None:
        rebind_reached(f, None)
        self.reason = ""
        self._settings: list[
            Callable[[], None]
        ] = []  # functions that restore settings of the process
        # Of generators whose draws are not seen: name, itself, state now and before, what sets it.
        self._before: list[tuple[str, Any, Callable[[], Any], Any, Callable[[Any], None]]] = []
        try:
            self._walk = CaptureWalk(f, statics, constants, growing)
            if any(
                x.grows(growing) and not can_grow(x, self._walk.names) for x in self._walk.order
            ):
                growing = ()  # other ways lead to them now, by which they are read unseen
                self._walk = CaptureWalk(f, statics, constants)
            cached = {e.key[0] for x in self._walk.order for e in x.edges if _is_cached(e)}
            if cached:
                for cls in cached:
                    rebind_class(cls)
                self._walk = CaptureWalk(f, statics, constants, growing)
            self.reason = self._walk.opaque
        except TooMuchError as error:
            self.reason = str(error)
            return
        if self.reason:
            return
        self.assumed = [obj.value for obj in self._walk.order if obj.kind == "assumed"]
        self._floats = floats
        for obj in self._walk.order:
            if obj.kind == "adarray":
                x = sync_if_view(obj.value)
                if traced(x) or not _is_constant(x):
                    self.reason = (
                        f"the captured ADArray {obj.name} is traced, a view or a leaf with "
                        "requires_grad=True; pass it as an argument"
                    )
            elif obj.kind == "fingerprint" and isinstance(obj.value, random.Random):
                name, x = f"the random generator {obj.name}", obj.value
                self._before.append((name, x, x.getstate, x.getstate(), x.setstate))
            elif obj.kind == "variable":
                self._settings.append(_variable_restorer(obj.value))
            elif obj.kind == "random" and (obj.hidden or not obj.direct):
                name = f"the random generator {obj.name}, which a class or slots hold"
                self._watch(name, source_of(obj.value))
        if not ENVIRONMENT.isdisjoint(self._walk.names):
            self._settings.append(_environment_restorer())
        if not _DRAWING.isdisjoint(self._walk.names) or any(
            _is_of_chance(obj.value) for obj in self._walk.order
        ):
            self._watch("the random state of NumPy", STREAM)
            name, now = "the random state of Python", random.getstate
            self._before.append((name, random, now, now(), random.setstate))
        self._make()

    def _make(self) -> None:
        self._maker = maker = Maker(self._walk, self._floats)
        self.check = maker.function()
        self.inputs = maker.inputs
        has_adarrays = any(i.captured.kind == "adarray" for i in self.inputs)
        self.owners = maker.function("owners") if has_adarrays else self.check
        self.hidden = maker.function("hidden") if maker.contents else None
        self._contents = maker.contents
        self.scalars = maker.scalars
        self.values = [i.value for i in maker.inputs]

    def _watch(self, name: str, generator: Any) -> None:
        def state() -> bytes:
            return pickle.dumps(state_of(generator))

        def restore(old: bytes) -> None:
            set_state(generator, pickle.loads(old))

        self._before.append((name, generator, state, state(), restore))

    def clone(self, values: list[Any]) -> Clones:
        """Return a clone of the function, and of the static arguments, over other inputs."""
        return Clones(self._walk, self.inputs, values)

    def changes(self, clones: Clones, result: Any, args: Any) -> StateChanges:
        """Return the changes of a run over clones, given its result and arguments."""
        walk = self._walk
        return EffectReader(clones, walk.order, walk.names, self._floats).read(result, args)

    def unproven(self) -> str:
        """Return why one run does not show what each run does in this state; "" if it does."""
        if self._before or self._settings:
            return "it may draw random numbers, or change settings, that no name leads to"
        return unproven_code(self._walk)

    def not_compared(self, arrays: list[Any]) -> list[Any]:
        """Return those of some arrays whose contents are not compared in each call."""
        return [x for x in arrays if all(x is not y for y, _ in self._contents)]

    def finder(self, effects: Sequence[Effect]) -> Callable[[Any], list[Any]]:
        """Return ``find(statics)``, which finds the objects that effects change."""
        return self._maker.finder([e.place for e in effects if type(e.place) is int])

    def drawn(self, draws: Draws) -> str:
        """Return the name of what the run has drawn from without recording it."""
        return next((name for name, *_ in self._changed(draws)), "")

    def disturbed(self, draws: Draws) -> bool:
        """Whether somebody drew from NumPy's global stream besides these draws."""
        return draws.drew_from(STREAM) and not draws.complete(STREAM)

    def restore(self, draws: Draws) -> None:
        """Give watched random generators the state that they had before the run."""
        for _, _, old, restore in self._changed(draws):
            restore(old)
        for put_back in self._settings:
            put_back()
        for array, content in self._contents:
            content.restore(array)
            if not content.same(array):
                raise _not_restorable("a captured object", array)
        changed = [
            f
            for f in self._walk.order
            if f.fingerprint is not None and not f.fingerprint.same(f.value)
        ]
        if changed:
            for undo in self._walk.undo:
                undo()
        for obj in changed:
            if obj.fingerprint is not None and not obj.fingerprint.same(obj.value):
                raise _not_restorable(obj.name, obj.value)

    def overlap(self, arrays: list[Any]) -> bool:
        """Whether arrays may share memory with one that plain code reads as well."""
        return any(
            isinstance(x, np.ndarray) and isinstance(y, np.ndarray) and np.may_share_memory(x, y)
            for x, _ in self._contents
            for y in arrays
        )

    def _changed(self, draws: Draws) -> Iterator[tuple[str, Any, Any, Callable[[Any], None]]]:
        for name, generator, state, old, restore in self._before:
            if not draws.drew_from(generator) and state() != old:
                yield name, generator, old, restore

    def readers(self, arrays: list[np.ndarray]) -> set[str]:
        """Return the names of the captured inputs that code outside of the clones has read."""
        return {
            i.captured.name
            for i in self.inputs
            if isinstance(i.value, np.ndarray)
            and any(np.may_share_memory(i.value, a) for a in arrays)
        }

    def hide(self, names: set[str]) -> None:
        """Compare the contents of these captured inputs in every call."""
        objects = [
            i.captured for i in self.inputs if i.captured.name in names and not i.captured.hidden
        ]
        if objects:
            for f in objects:
                f.hidden = True
            self._make()

    def changed_numbers(self, other: CapturedState) -> set[str]:
        """Return the names of the floats, or ints, that alone differ from those of `other`."""
        if self.scalars.keys() != other.scalars.keys():
            return set()
        names = {n for n, x in self.scalars.items() if not same_scalar(x, other.scalars[n])}
        numbers = all(
            type(self.scalars[n]) is type(other.scalars[n]) and type(self.scalars[n]) in NUMBERS
            for n in names
        )
        return names if numbers else set()

    def forget(self) -> None:
        """Release the objects of the walk: later calls follow the paths to them."""
        self._walk = self._maker = None  # type: ignore[assignment]
        self.inputs, self.values, self._contents = [], [], []


# Names by which code draws from streams of the process, besides those of functions that it has.
_DRAWING = frozenset({"random", "samples"})


def _is_of_chance(x: Any) -> bool:
    """Whether something is a module of random numbers."""
    return isinstance(x, types.ModuleType) and x.__name__ in ("random", "numpy.random")


def _is_cached(edge: Edge) -> bool:
    """Whether a class has a method with a cache that code calls as it is."""
    return edge.how == "class" and is_cached(edge.child.value)


def _is_constant(x: Any) -> bool:
    """Whether a captured ADArray that is not traced is an array like others."""
    return x._x is None or (x._x.escaped and x._x.base is None and not x._x.weak)


def _variable_restorer(variable: Any) -> Callable[[], None]:
    """Return a function that restores the present value of a context variable."""
    value = variable.get()

    def put_back() -> None:
        if variable.get() is not value:
            variable.set(value)

    return put_back


def _environment_restorer() -> Callable[[], None]:
    """Return a function that restores the present environment of the process."""
    before = dict(os.environ)

    def put_back() -> None:
        if dict(os.environ) != before:
            for name in os.environ.keys() - before.keys():
                del os.environ[name]
            os.environ.update(before)

    return put_back


def _not_restorable(name: str, x: Any) -> TraceError:
    return TraceError(
        f"jit: {name}, of type {type(x).__name__}, was changed by a run that cannot be recorded, "
        "and cannot be put back for another; call this function without jit"
    )

"""The answer to a loop's question: its kernel, run and recorded as one operation."""

from __future__ import annotations

import math
import operator
import sys
import types
from typing import Any, cast

import numpy as np

from adarray.base.engines import TracingEngine
from adarray.base.levels import FORWARD
from adarray.base.runtime import MODE, WATCHED
from adarray.compiler.ir.verify_loops import checking
from adarray.core.dispatch import apply
from adarray.core.inplace import assign
from adarray.core.protocol import finish, traced
from adarray.core.tangents import SERIES
from adarray.core.trace import Handle, levels_of
from adarray.jitting.shared.symbolic import UntraceableError, concrete
from adarray.kernels.geometry import Launch
from adarray.kernels.operation import Operation
from adarray.kernels.spread import BLOCK
from adarray.kernels.types import FLOATS
from adarray.loops import comparing, names
from adarray.loops.attributes import attributes, names_for
from adarray.loops.forms import (
    ArrayForm,
    Bound,
    Extent,
    Known,
    Listed,
    ListForm,
    LoopKernel,
    NotCaptured,
    Returnable,
    Scalar,
    Source,
    Variable,
    WholeNumber,
    Workspace,
)
from adarray.loops.lower import lower
from adarray.loops.lower.kinds import COMPLEX
from adarray.loops.lower.names import changed_lists
from adarray.loops.memory import Lowering, Lowerings, Operations, RenamedLoops
from adarray.loops.names import Loop
from adarray.loops.notes import note
from adarray.loops.policy import not_worthwhile, unrolled
from adarray.loops.products import Product
from adarray.loops.rewriting import Place
from adarray.loops.variables import (
    form_of,
    from_pairs,
    is_batched,
    is_constant,
    may_overlap,
    number_of,
    pairs,
    result_of,
    shaped,
    standing_for,
    unwritable,
)

_NOT_THERE = object()
_MOST_ITEMS = 16  # of a list that the loop appends to, before it does
# Refusals of a loop, each found by reading it again, after which a run does not ask any more.
_ENOUGH = 8


def _answer(
    place: Place, values: tuple[Any, ...], frame: types.FrameType
) -> tuple[Any, ...] | None:
    """Return what the variables of a loop are after it; None if it is to run as Python does."""
    mode = MODE.get()
    recorder = None if mode is None else mode.recorder
    if recorder is None:
        return None
    iterable = values[0] if values else None
    before = len(recorder.recording.events)
    try:
        if recorder.unrolls:
            raise NotCaptured("a derivative is taken that no captured loop has", place.loop.lineno)
        if place.refusal is not None:
            raise NotCaptured(*place.refusal)
        refused = recorder.recording.refused.get(place, [])
        if len(refused) >= _ENOUGH:
            raise NotCaptured(*refused[-1])
        alone = lists_alone(place.names, values)
        by_name = dict(zip(place.names, values[1:], strict=True))
        call = LoopCall(place, by_name, iterable, frame, alone)
        loop = call.lowered()
        call.check(loop)
    except NotCaptured as reason:
        if reason.anew:
            entry = reason.reason, reason.line
            recorder.recording.refused.setdefault(place, []).append(entry)
        note(recorder, place, iterable, before, reason.reason, reason.line)
        return None
    except Exception as error:  # of ours
        if checking():
            raise
        note(recorder, place, iterable, before, f"{type(error).__name__}: {error}", 0)
        return None
    try:
        results = call.run(loop, recorder)
    except Exception as error:
        recorder.error = error  # what has been written by now would be written again
        raise
    if results is None:
        note(recorder, place, iterable, before, "it raises an error", 0)
        return None
    assert call.operation is not None
    seconds = unrolled(place.loop, call.forms, iterable)
    note(recorder, place, iterable, before, "", 0, call.operation, seconds)
    return results


def _told(value: Any) -> Any:
    """Return what tells a constant from others: of equal numbers, also the type and signs of 0."""
    if isinstance(value, tuple):
        return tuple(map(_told, value))
    shown = repr(value) if isinstance(value, (float, complex, np.generic)) else ""
    return type(value), value, shown


def _references(values: tuple[Any, ...], k: int) -> int:
    return sys.getrefcount(values[k])


_FEWEST = _references(([],), 0)  # where nothing but the tuple refers to an object


def lists_alone(names_: tuple[str, ...], values: tuple[Any, ...]) -> set[str]:
    """Return the variables that are lists to which nothing else refers.

    `values` has an item before theirs.
    """
    return {
        n for k, n in enumerate(names_, 1)
        if type(values[k]) is list and _references(values, k) <= _FEWEST + 1
    }  # fmt: skip


def _has_node(x: Any) -> bool:
    """Whether a reverse walk may come by."""
    return isinstance(x, Handle) and x._node is not None


def _computing() -> tuple[int, bool]:
    """Return by how many threads what is recorded is computed, and whether on a device."""
    mode = MODE.get()
    inner = None if mode is None or mode.recorder is None else mode.recorder.inner
    engine = None if inner is None else inner.engine
    return (1, False) if engine is None else (engine.threads, engine.device is not None)


class LoopCall:
    """A loop that is about to run.

    Parameters
    ----------
    place : Place
    values : dict
        Its variables by name: those that are passed, then arrays and numbers among globals.
    iterable : object
    frame : frame
        Of the function.
    alone : set of str
        Variables that are lists to which nothing else refers.
    """

    def __init__(
        self, place: Place, values: dict[str, Any], iterable: Any, frame: types.FrameType,
        alone: set[str],
    ) -> None:  # fmt: skip
        self.place = place
        self.iterable = iterable
        self._globals = frame.f_globals
        self._builtins = frame.f_builtins
        self.values = {n: standing_for(x) for n, x in values.items()}
        for name in place.others:
            value = self._global(name)
            if value is not _NOT_THERE and not isinstance(form_of(value), Known):
                self.values[name] = value
        self._resolved: list[tuple[str, Any]] = []
        self._read = False  # whether its text was read now
        self._asked = False  # whether the text depends on what arrays of integers hold
        self.written = self.loop = self._with_one_name()
        self.products: dict[str, Product] = {}
        self.operation: Operation | None = None  # that the loop is recorded as
        self.forms = {n: form_of(x) for n, x in self.values.items()}
        for name in alone & self.values.keys() & changed_lists(self.loop):
            self._note_list(name)
        self._find_products()
        self._resolved.clear()

    def _note_list(self, name: str) -> None:
        """Have the items of a list as variables, if they are numbers."""
        items = {f"{name}[{k}]": standing_for(v) for k, v in enumerate(self.values[name])}
        forms = {n: form_of(v) for n, v in items.items()}
        if len(items) <= _MOST_ITEMS and all(isinstance(f, Scalar) for f in forms.values()):
            self.values |= items
            self.forms |= forms
            self.forms[name] = ListForm(tuple(forms.values()))

    # -- its text ----------------------------------------------------------------------------------

    def _find_products(self) -> None:
        """Have products of arrays that the loop reads rows of as variables."""
        traced = frozenset(
            n for n, x in self.values.items()
            if isinstance(x, Handle) and isinstance(self.forms[n], ArrayForm)
        )  # fmt: skip
        usual = "range" not in self.place.local and self._global("range") is range
        self.loop, self.products = _loops.with_products(
            self.loop, self.forms, self.iterable, traced,
            frozenset(self.place.wanted) if usual else None,
        )  # fmt: skip
        self.forms |= {n: p.form(self.forms) for n, p in self.products.items()}

    def _writes_factors(self, loop: LoopKernel) -> bool:
        """Whether the loop changes what products are computed of."""
        factors = {f for p in self.products.values() for f in (p.left.array, p.right.array)}
        return any(
            may_overlap(self.values[w], self.values[f]) for w in loop.writes for f in factors
        )

    def _forget_products(self) -> None:
        self.forms = {n: f for n, f in self.forms.items() if n not in self.products}
        self.loop, self.products = self.written, {}

    def _with_one_name(self) -> Loop:
        """Make variables of arrays and numbers in objects, and give each array one name.

        Returns
        -------
        For or While
            The loop with these names.
        """
        loop = self.place.loop
        in_objects = {
            n: x for n, x in attributes(loop, self._value_of).items()
            if not isinstance(form_of(x), Known)
        }  # fmt: skip
        name_of = names_for(loop, in_objects) if in_objects else {}
        values = self.values | {name_of[n]: x for n, x in in_objects.items()}
        aliases = self._aliases(values)
        if not in_objects and not aliases:
            return loop
        loop = _loops.renamed(self.place, name_of, aliases)
        read = names.read_in(loop) | names.stored_in(loop)
        self.values = {n: x for n, x in values.items() if n in read}
        return loop

    def _aliases(self, values: dict[str, Any]) -> dict[str, str]:
        """Return names of arrays that have another name, and that; they are not bound anew."""
        bound = names.stored_in(self.place.loop)
        first: dict[int, str] = {}
        aliases: dict[str, str] = {}
        for name, x in sorted(values.items()):
            if name not in bound and isinstance(form_of(x), ArrayForm):
                kept = first.setdefault(id(x), name)
                if kept != name:
                    aliases[name] = kept
        return aliases

    def _value_of(self, name: str) -> Any:
        return self.values[name] if name in self.values else self.resolve(name)

    def spaces(self) -> tuple[Any, Any]:
        """Return the globals and the builtins of the function."""
        return self._globals, self._builtins

    def _global(self, name: str) -> Any:
        for space in self.spaces():
            try:
                return standing_for(space[name])
            except KeyError:
                continue
        return _NOT_THERE

    def resolve(self, name: str) -> Any:
        """Return what a name means that is no variable of the function.

        Raises
        ------
        NameError
            If it is a variable, or not bound.
        """
        value = _NOT_THERE if name in self.place.local else self._global(name)
        if value is _NOT_THERE:
            raise NameError(f"name {name!r} is not defined", name=name)
        self._resolved.append((name, value))
        return value

    def lowered(self) -> LoopKernel:
        """Return the loop as a kernel.

        Raises
        ------
        NotCaptured
        """
        line = self.place.loop.lineno
        if not any(isinstance(x, Handle) for x in self.values.values()):
            raise NotCaptured("nothing in it is computed from arguments", line)
        if WATCHED or SERIES:
            raise NotCaptured("a transform looks at every operation", line)
        if not {"raise", "call"}.isdisjoint(np.geterr().values()):
            raise NotCaptured("np.errstate makes errors of what NumPy signals", line)
        entry, kept = self._remembered()
        if entry.loop is not None and self._writes_factors(entry.loop):
            self._forget_products()
            entry, kept = self._remembered()
        if entry.refusal is not None:
            raise NotCaptured(*entry.refusal, anew=self._read and not kept)
        assert entry.loop is not None
        return entry.loop

    def _remembered(self) -> tuple[Lowering, bool]:
        """Return what lowering the loop came to, now or before, and whether it is remembered."""
        key = self._key()
        memo = _lowerings.of(self.place)
        entry = None if key is None else memo.get(key)
        bound = entry is not None and all(self._is_bound(n, x) for n, x in entry.resolved)
        if entry is None or not bound or not self._is_as_assumed(entry.loop):
            entry = self._lowering()
            # A refusal may be due to what arrays hold, which the key does not tell.
            sure = entry.refusal is None or not self._asked
            if key is not None and sure and all(is_constant(x) for _, x in entry.resolved):
                memo.put(key, entry)
        return entry, memo.get(key) is entry

    def _lowering(self) -> Lowering:
        loop = self.loop
        why = not_worthwhile(loop, self.forms, self.iterable, *_computing())
        if why is not None:
            return Lowering(None, (why, loop.lineno), ())
        self._read = True
        kernel, refusal, wanted = None, None, frozenset(self.place.wanted)
        try:
            kernel = lower(loop, self.forms, self.iterable, wanted, self.resolve, self._contents)
        except NotCaptured as reason:
            refusal = reason.reason, reason.line
        return Lowering(kernel, refusal, tuple(self._resolved))

    def _contents(self, name: str) -> tuple[int, int] | None:
        """Return the least and the largest integer in an array."""
        self._asked = True
        x = self.values[name]
        if is_batched(x) or not np.size(x):
            return None
        plain = concrete(x._plain) if isinstance(x, Handle) else x
        return int(plain.min()), int(plain.max())

    def _is_as_assumed(self, loop: LoopKernel | None) -> bool:
        """Whether arrays of integers hold what a kernel takes them to hold."""
        for name, low, high in () if loop is None else loop.assumed:
            bounds = self._contents(name)
            if bounds is None or bounds[0] < low or bounds[1] > high:
                return False
        return True

    def _is_bound(self, name: str, value: Any) -> bool:
        return self._global(name) is value

    def _key(self) -> Any:
        """Return what the kernel depends on, to be compared; None if it cannot be compared."""
        iterable = self.iterable
        if isinstance(iterable, range):
            over: Any = (range, iterable.start, iterable.stop, iterable.step)
        elif iterable is None:
            over = None
        else:
            array = isinstance(iterable, (Handle, np.ndarray))
            over = (type(iterable), form_of(iterable) if array else None)
        parts: list[Any] = []
        for name, form in self.forms.items():
            if isinstance(form, Known):
                if not is_constant(form.value):
                    return None
                parts.append((name, _told(form.value)))
            else:
                parts.append((name, form))
        return over, self.loop, _computing(), tuple(parts)

    # -- memory and derivatives --------------------------------------------------------------------

    def check(self, loop: LoopKernel) -> None:
        """Raise if the loop may not be run as a kernel on these arrays.

        Raises
        ------
        NotCaptured
        """
        line = self.place.loop.lineno
        used = {s.name for _, s in loop.sources if isinstance(s, (Variable, Extent))}
        arrays = {
            n: self.values[n] for n in used - self.products.keys()
            if isinstance(self.forms[n], ArrayForm)
        }  # fmt: skip
        for name, x in arrays.items():
            if str(x.dtype) in COMPLEX and not isinstance(x, Handle):
                raise NotCaptured(f"{name} is a plain array of complex numbers", line)
        for name in loop.writes:
            why = unwritable(self.values[name])
            if why:
                raise NotCaptured(f"it writes into {name}, {why}", line)
            for other, x in arrays.items():
                if other != name and may_overlap(self.values[name], x):
                    raise NotCaptured(f"{name}, which it writes, and {other} share memory", line)
        levels = sorted(set(levels_of(list(self.values.values()))))
        if len(levels) > 2 or (
            len(levels) == 2 and (levels[0] not in FORWARD or levels[1] in FORWARD)
        ):
            raise NotCaptured("derivatives of derivatives are taken in this order", line)
        if self.is_batched():
            self._check_batch(loop)

    def is_batched(self) -> bool:
        """Whether variables stand for those of all members of a batch."""
        return any(map(is_batched, self.values.values()))

    def _check_batch(self, loop: LoopKernel) -> None:
        line = self.place.loop.lineno
        if any(
            is_batched(x) and isinstance(self.forms[n], (Known, WholeNumber))
            for n, x in self.values.items()
        ):
            raise NotCaptured("a whole number is another one for each member of a batch", line)
        if any(str(getattr(x, "dtype", "")) in COMPLEX for x in self.values.values()):
            raise NotCaptured("it has complex numbers for members of a batch", line)
        if any(r.which is not None for r in loop.results):
            raise NotCaptured("a number is of one type or another for members of a batch", line)
        if any(x.count is not None for x in loop.listed):
            raise NotCaptured("a list is of another length for members of a batch", line)
        if loop.returned is not None and loop.returned.flag is not None:
            raise NotCaptured("it may return for some members of a batch", line)
        if loop.failed is not None:
            raise NotCaptured("it may raise an error for some members of a batch", line)

    # -- running it --------------------------------------------------------------------------------

    def run(self, loop: LoopKernel, recorder: TracingEngine) -> tuple[Any, ...] | None:
        """Run the loop's kernel, write into the arrays that the loop writes; return results.

        None if Python raises an error somewhere in the loop.
        """
        self.values |= {n: p.value(self.values) for n, p in self.products.items()}
        for name, form in self.forms.items():  # what the text depends on is the same in later runs
            x = self.values[name]
            if isinstance(x, Handle) and isinstance(form, (WholeNumber, Known)):
                self.values[name] = (
                    bool(x) if isinstance(form, Known) else operator.index(cast("Any", x))
                )
        for name, low, high in loop.assumed:  # and what it is right for
            x = self.values[name]
            if not np.all((x >= low) & (x <= high)):
                raise UntraceableError(f"jit, internal: {name} is not within {low} and {high}")
        operation = _operations.of(loop, recorder.memory_limit)
        operands, launch = self._bound(loop, operation, recorder)
        spread = None
        if _computing()[1] and not self.is_batched():  # on a device
            spread = _operations.spread(loop, launch.integers, recorder.memory_limit)
        if spread is not None:
            operation, blocks = spread
            launch = launch._replace(grid=(blocks, 1, 1), block=(BLOCK, 1, 1))
        self.operation = operation
        compares = checking() and not self.is_batched()
        expected = comparing.expected(self) if compares else None
        by_name: dict[str, Any] = {}
        if operation.outputs:  # else no iteration comes by what it writes
            if not self.is_batched() and any(map(_has_node, operands)):
                operation.foresee(launch)
            outputs = finish(
                apply(operation.op, operands, {"launch": launch}), None, operation.name
            )
            results = outputs if len(operation.outputs) > 1 else (outputs,)
            by_name.update(zip(operation.outputs, results, strict=True))
        if loop.failed is not None and by_name[loop.failed][0] != 0:
            return None
        sources = dict(loop.sources)
        parameters = {s.name: p for p, s in loop.sources if isinstance(s, Variable)}
        for name in loop.writes:
            if parameters[name] in by_name:
                result = by_name[parameters[name]]
                target, form = self.values[name], self.forms[name]
                if isinstance(form, ArrayForm) and form.dtype in COMPLEX:
                    assign(target, from_pairs(result, target.shape, form.dtype))
                else:
                    assign(target, shaped(result, target.shape))

        def left(value: Returnable) -> Any:
            """Return what the kernel has left of a value."""
            if isinstance(value, tuple):
                return tuple(map(left, value))
            if isinstance(value, Known):
                return value.value
            source = sources[value.parameter]
            if isinstance(source, Variable):
                return self.values[source.name]
            form = value.form
            if value.which is not None:  # a host read, and a guard
                form = dict(value.forms)[int(by_name[value.which][0])]
            return result_of(form, by_name[value.parameter])

        for x in loop.listed:
            self._extend(x, by_name)
        if loop.returned is not None:
            flag = loop.returned.flag
            if flag is None or by_name[flag][0] != 0:
                value = left(loop.returned.value)
                if expected is not None:
                    comparing.check(self, expected, {comparing.RETURNED: value})
                return (*(None for _ in self.place.wanted), (value,))
        by_variable = {r.variable: r for r in loop.results}
        bound = []
        for name in self.place.wanted:
            result = by_variable.get(name)
            if result is not None:
                bound.append(left(result))
            elif name in self.values:
                bound.append(self.values[name])  # another reference to what it was
            else:
                raise UntraceableError(f"jit, internal: a captured loop does not bind {name}")
        if expected is not None:
            comparing.check(self, expected, dict(zip(self.place.wanted, bound, strict=True)))
        return (*bound, None) if self.place.returns else tuple(bound)

    def _extend(self, x: Listed, by_name: dict[str, Any]) -> None:
        """Append to a list what the loop has appended."""
        count = x.known
        if x.count is not None:  # a host read, and a guard
            count = int(by_name[x.count][0])
        assert count is not None
        items, form = by_name[x.parameter], x.item
        shape = form.shape if isinstance(form, ArrayForm) else ()
        size = math.prod(shape)
        dtype = form.dtype if isinstance(form, (ArrayForm, Scalar)) else ""
        if dtype in COMPLEX:
            items = from_pairs(items[: 2 * count * size], (count, *shape), dtype)
        else:
            items = shaped(items[: count * size], (count, *shape))
        target = self.values[x.variable]
        for k in range(x.before, count):
            # An array of its own, as the loop would have made one.
            target.append(np.copy(items[k]) if shape else number_of(form, items[k]))

    def _bound(
        self, loop: LoopKernel, operation: Operation, recorder: TracingEngine
    ) -> tuple[tuple[Any, ...], Launch]:
        """Return the operands of a kernel, and its launch."""
        kernel = loop.kernel
        sources = dict(loop.sources)
        buffers = {b.name for b in kernel.buffers}
        operands: dict[str, Any] = {}
        integers: list[tuple[str, int]] = []
        for parameter in kernel.order:
            value = self._value(sources[parameter], recorder)
            if parameter in buffers:
                operands[parameter] = np.reshape(value, (1,)) if not np.shape(value) else value
            elif parameter in operation.operands:
                operands[parameter] = value
            else:
                integers.append((parameter, int(value)))
        ordered = tuple(operands[n] for n in operation.operands)
        dtypes = operation.execution.dtypes
        active = tuple(
            traced(x) and dtypes[n] in FLOATS
            for n, x in zip(operation.operands, ordered, strict=True)
        )
        one = (1, 1, 1)
        return ordered, Launch(one, one, 0, tuple(integers), active)

    def _value(self, source: Source, recorder: TracingEngine) -> Any:
        if isinstance(source, Variable):
            value, form = self.values[source.name], self.forms[source.name]
            is_complex = isinstance(form, (ArrayForm, Scalar)) and form.dtype in COMPLEX
            return pairs(value) if is_complex else value
        if isinstance(source, Extent):
            return self.values[source.name].shape[source.axis]
        if isinstance(source, Bound):
            return getattr(self.iterable, source.which)
        assert isinstance(source, Workspace)
        beside = next((x for x in self.values.values() if isinstance(x, Handle)), None)
        like = None if beside is None else concrete(beside._plain)
        return recorder.zeros(like, source.shape, source.dtype)


_loops = RenamedLoops()
_lowerings = Lowerings()
_operations = Operations()

Place.answer.set(_answer)

"""Recording one run of a function: an engine that notes every operation it computes.

The recorder is the engine of the current mode while a function is recorded. Values are
computed, by the engine that was there before or by NumPy, and wrapped as `Traced`.
"""

from __future__ import annotations

import contextlib
import operator
import types
from collections.abc import Callable
from math import inf
from time import perf_counter
from typing import Any

import numpy as np

from adarray.base.aval import BATCHED
from adarray.base.engines import BaseEngine
from adarray.base.memory import duplicate
from adarray.base.op import FUNCTIONS, METADATA, OPS, WRITERS, Op, Opaque
from adarray.base.recording import PYTHON, Call, Guard, Recording, Symbol, as_number
from adarray.base.runtime import Mode
from adarray.base.telling import SILENT, tell
from adarray.core.dispatch import compute, replay, stands_for_many
from adarray.core.inplace import WRITE
from adarray.core.protocol import traced
from adarray.core.trace import Extras, Handle
from adarray.device import host, is_device
from adarray.jitting.captures.cached import CachedCall, NotHeldError
from adarray.jitting.recording.arguments import (
    array_beside,
    bind,
    checked,
    is_dynamic,
    name_of,
    own_index,
    settled,
    with_initial,
)
from adarray.jitting.recording.buffers import Buffers, Overwritten
from adarray.jitting.recording.places import progress_line, user_place
from adarray.jitting.recording.plain_arrays import PlainArrays
from adarray.jitting.shared.generators import Draws, TracedGenerator, seeded
from adarray.jitting.shared.python_ints import ITEM, Bounds, fitting, is_number, is_traced_int
from adarray.jitting.shared.symbolic import (
    Traced,
    UntraceableError,
    concrete,
    holds,
    opened,
    symbolic,
)

_AS_IT_IS = contextlib.nullcontext()
_LONG = frozenset({np.dtype(np.int64), np.dtype(np.uint64)})


class Recorder(BaseEngine):
    """The engine that records.

    Parameters
    ----------
    mode : Mode or None
        What computes the values.

    Attributes
    ----------
    recording : Recording
    library : Library or None
        Of the device that computes.
    arrays : PlainArrays
        What the run reads, and is not traced.
    """

    def __init__(self, mode: Mode | None, draws: Draws | None = None) -> None:
        self.inner = mode
        self.draws = Draws() if draws is None else draws
        self.name = mode.name if mode is not None else "numpy"
        engine = mode.engine if mode is not None else None
        self.threads = engine.threads if engine is not None else 1
        self.recording = Recording()
        self.library = engine.device if engine is not None else None
        self.arrays = PlainArrays(self.library)
        self._host_reads: dict[tuple[str, int], Any] = {}
        self._bounds = Bounds()
        self._buffers = Buffers()
        self._errors = np.geterr()
        self.about = "a function"  # what is recorded, in words
        self._silent = perf_counter() + SILENT  # until when no line says that it takes long
        self.shown = False  # whether values were made into text
        self.unrolls = False  # whether no loop is captured
        self.memory_limit: int | None = None  # bytes of the tapes of a captured loop
        self.once = False  # whether no later call runs what is recorded
        self.truths = False  # whether code compares truth values as objects
        # An error that an operation raised: if the function catches it, what it does depends
        # on values in a way that nothing here shows.
        self.error: BaseException | None = None
        self._odd: Traced | None = None  # what is true in no run: see `expect_not`
        self.original: Callable[[Any], Any] = _itself  # the user's object of a clone
        self.calls: list[CachedCall] = []  # of functions with a cache

    # -- the engine ------------------------------------------------------------------------

    @property
    def recorder(self) -> Recorder:
        """The engine itself."""
        return self

    def pointwise(self, op: Op, values: tuple[Any, ...]) -> Any:
        """Compute and record a pointwise operation."""
        return self.record(op, values, {})

    def call(self, op: Op, values: tuple[Any, ...], params: dict[str, Any]) -> Any:
        """Compute and record any other operation."""
        return self.record(op, values, params)

    def derivative(self, op: Op, operand: int, g: Any, saved: tuple[Any, ...]) -> Any:  # noqa: ARG002
        """Leave it to the rule, whose operations are recorded one by one."""
        return NotImplemented

    # -- operations --------------------------------------------------------------------------

    def record(self, op: Op, values: tuple[Any, ...], params: dict[str, Any]) -> Any:
        """Compute ``op(*values, **params)``, record it, and return the traced result."""
        if type(op.lower) is Opaque and op.lower.body is not None:
            return self._written_out(op, op.lower.body, values, params)
        values = tuple(self.capture(v) if isinstance(v, np.ndarray) else v for v in values)
        if params:
            params = opened(params)
            if holds(params):
                params = settled(params, op.numpy is not operator.getitem)
        if "initial" in op.operands and values[0].dtype.kind in "iub":
            values = with_initial(op, values)
        limit = None
        if any(map(is_traced_int, values)):
            values, limit = self._bounds.settle(name_of(op), values)
        if not any(type(v) is Traced for v in values) and not holds(params):
            return compute(op, values, params, self.inner)
        operands = tuple(v.value if type(v) is Traced else v for v in values)
        numbers = all(map(is_number, values))
        try:
            with np.errstate(**PYTHON) if numbers else _AS_IT_IS:
                r = compute(op, operands, concrete(params) if params else params, self.inner)
        except Exception as error:
            self.error = error
            raise
        if type(r) is not tuple and r is not None:
            for v, c in zip(values, operands, strict=True):
                if r is c and type(v) is Traced:
                    return v
        function = op.evaluate
        # Of Python numbers, a power is complex or not by their signs.
        became_complex = (
            numbers and isinstance(r, complex) and not any(isinstance(v, complex) for v in operands)
        )
        if became_complex or is_dynamic(op, function, values, params):
            args, kwargs = symbolic(values), symbolic(params)
            if op.variadic:
                fixed = op.arity - 1
                args = (*args[:fixed], list(args[fixed:]))
            return self.host(function, args, r, kwargs)
        result = self._recorded(op, function, symbolic(values), symbolic(params), r, numbers)
        self._bounds.note(result, limit)
        return result

    def _written_out(
        self, op: Op, body: Any, values: tuple[Any, ...], params: dict[str, Any]
    ) -> Any:
        """Record NumPy code in place of a function that it computes, and compare them.

        Raises
        ------
        UntraceableError
            If they disagree.
        """
        operands = tuple(v.value if type(v) is Traced else v for v in values)
        expected = op.evaluate(*operands, **concrete(opened(params)))
        handles = [self.handle(v) if type(v) is Traced else v for v in values]
        output = body(*handles, **params)
        result = output._plain if isinstance(output, Handle) else output
        got = concrete(result)
        form, wanted = (np.shape(got), np.result_type(got)), (np.shape(expected), expected.dtype)
        if form != wanted:
            raise UntraceableError(
                f"jit: expr of {op.name} returned shape {form[0]} and dtype {form[1]}, and the "
                f"function shape {wanted[0]} and dtype {wanted[1]}; they must be equal"
            )
        scale = np.max(np.abs(expected), initial=0.0, where=np.isfinite(expected))
        near = np.finfo(wanted[1]).eps ** 0.5 if wanted[1].kind in "fc" else 0.0
        if not np.allclose(got, expected, near, near * scale, equal_nan=True):
            raise UntraceableError(
                f"jit: expr of {op.name} computes something else than the function; they must agree"
            )
        return result

    def function(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a NumPy function on plain and traced values, and record it."""
        if BATCHED:
            batched = stands_for_many((*args, *kwargs.values()))
            if batched is not None:
                return batched.function(func, args, kwargs)
        if func in METADATA:
            return func(*concrete(args), **concrete(kwargs))
        if func in WRITERS or getattr(func, "__name__", "") == "at":
            raise UntraceableError(
                f"jit: {func.__name__} writes a traced value into a plain array; make the array "
                "with a NumPy function inside of the jitted function"
            )
        kwargs = {k: v for k, v in kwargs.items() if v is not np._NoValue}
        kwargs.pop("overwrite_input", None)  # the contents are nobody's then
        if func is np.nan_to_num and not (*args, kwargs.get("copy", True), True)[1]:
            raise UntraceableError(
                "jit: nan_to_num with copy=False writes into a traced array; write "
                "x[...] = np.nan_to_num(x)"
            )
        out = kwargs.pop("out", None)
        if out is not None and not (type(out) is tuple and all(x is None for x in out)):
            return self._into(func, args, kwargs, out)
        op = FUNCTIONS.get(func)
        if op is not None:
            bound = bind(op, args, kwargs)
            if bound is not None:
                op, operands, params = bound
                return self.record(op, tuple(operands), params)
        limit = None
        if any(map(is_traced_int, args)):
            args, limit = self._bounds.settle(func.__name__, args)
            if not (holds(args) or holds(kwargs)):
                return func(*args, **kwargs)
        if not isinstance(func, np.ufunc):
            args, kwargs = args[:1] + settled(args[1:], True), settled(kwargs, True)
        numbers = isinstance(func, np.ufunc) and all(map(is_number, args))
        try:
            with np.errstate(**PYTHON) if numbers else _AS_IT_IS:
                r = func(*concrete(args), **concrete(kwargs))
        except Exception as error:
            self.error = error
            raise
        args, kwargs = self._entered(args), self._entered(kwargs)
        if is_dynamic(None, func, args, kwargs):
            return self.host(func, symbolic(args), r, symbolic(kwargs))
        result = self._recorded(None, func, symbolic(args), symbolic(kwargs), r, numbers)
        self._bounds.note(result, limit)
        return result

    def _into(self, func: Any, args: Any, kwargs: dict[str, Any], out: Any) -> Any:
        """Return the value that ``out=`` gets, which NumPy itself may not write into."""
        if isinstance(out, tuple):
            if len(out) != 1:
                raise UntraceableError("jit: out= with several arrays cannot be recorded")
            (out,) = out
        if type(out) is not Traced:
            raise UntraceableError(
                f"jit: {func.__name__} writes a computed value into a plain array of shape "
                f"{np.shape(out)} that is no input; make the array with a NumPy function inside of "
                "the jitted function, or pass it as an argument"
            )
        where = kwargs.pop("where", True)
        r = self.function(func, args, kwargs)
        if r.shape != out.shape:
            r = self.function(np.broadcast_to, (r, out.shape), {})
        if r.dtype != out.dtype:
            with np.errstate(all="ignore"):  # for NumPy's error where the dtypes do not cast
                func(*concrete(args), **concrete(kwargs), out=np.copy(concrete(out)))
            r = self.record(OPS["astype"], (r,), {"dtype": out.dtype})
        if where is not True:
            r = self.function(np.where, (where, r, out), {})
        return r

    def _entered(self, x: Any) -> Any:
        """Return arguments with the plain arrays in them as captures."""
        kind = type(x)
        if kind is np.ndarray:
            return self.capture(x)
        if kind is tuple or kind is list:
            return kind(map(self._entered, x))
        if kind is dict:
            return {k: self._entered(v) for k, v in x.items()}
        return x

    def _recorded(
        self, op: Any, function: Any, args: Any, params: Any, r: Any, numbers: bool = False
    ) -> Any:
        """Append a call and return its traced results."""
        several = isinstance(r, (tuple, list))
        results = tuple(r) if several else (r,)
        outputs = tuple(map(self._new, results, [function] * len(results)))
        call = Call(
            op, function, args, params, tuple(t.symbol for t in outputs), several, user_place()
        )
        errors: Any = np.geterr()
        call.errors = PYTHON if numbers else errors if errors != self._errors else None
        self.recording.events.append(call)
        if perf_counter() > self._silent:
            self._silent = inf
            tell(progress_line(self.about, len(self.recording.events), call.where))
        if not several:
            if self.truths and isinstance(r, (bool, np.bool_)):
                return type(r)(bool(outputs[0]))  # its identity is asked for: a guard
            return outputs[0]
        return type(r)(*outputs) if hasattr(r, "_fields") else type(r)(outputs)

    def host(self, function: Any, args: Any, r: Any, params: Any = None) -> Any:
        """Record a call that later runs make in Python, between two segments."""
        several = isinstance(r, (tuple, list))
        outputs = [self._new(x, function) for x in (r if several else (r,))]
        place = user_place()
        results = tuple(t.symbol for t in outputs)
        call = Call(None, function, args, params or {}, results, several, place)
        outcome = tuple((s.shape, s.dtype) for s in call.results)
        self.recording.events.append(Guard("call", None, outcome, place, call))
        if not several:
            return outputs[0]
        return type(r)(*outputs) if hasattr(r, "_fields") else type(r)(outputs)

    def host_object(self, function: Any, args: Any, symbol: Symbol) -> None:
        """Record a call in Python that makes something that is no array."""
        place = user_place()
        call = Call(None, function, args, {}, (symbol,), True, place)
        outcome = ((symbol.shape, symbol.dtype),)
        self.recording.events.append(Guard("call", None, outcome, place, call))

    def refuse_memory(self, function: Any) -> None:
        """Refuse a question of the user's code that compiled code has another answer to."""
        raise UntraceableError(
            f"jit: {function.__name__} asks about memory, and compiled code computes in other "
            "places; ask outside of the jitted function"
        )

    def is_input(self, x: Any) -> bool:
        """Whether a traced value is an argument, or captured, as it was given."""
        return type(x) is Traced and any(s is x.symbol for s in self.recording.inputs)

    def check(self, function: Any, args: Any, kwargs: Any) -> None:
        """Run a function that raises where values are not as they should be, in every call."""
        try:
            function(*concrete(args), **concrete(kwargs))
        except Exception as error:
            self.error = error
            raise
        self.host(checked, (function, symbolic(args), symbolic(kwargs)), ())

    def expect_not(self, raises: Callable[[], Any]) -> None:
        """Have later calls run the function itself if that is true; see `check_expected`."""
        if self.once:
            return
        x = self.opened(raises())
        if type(x) is Traced:
            odd = self._odd
            self._odd = x if odd is None else self.function(np.logical_or, (odd, x), {})

    def check_expected(self) -> None:
        """Record one look at what must not be true, behind all else that the run does."""
        if self._odd is not None:
            self.check(_as_expected, (self._odd,), {})

    def cached(
        self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Callable[[], Any]:
        """Return what calls a function with a cache as code outside of the recording does.

        Raises
        ------
        NotHeldError
            If the cache does not hold the result: what the function itself would do, such as
            writing, happens once for all runs, so it must not happen in one that may be undone.
        """
        args = tuple(map(self.original, args))
        kwargs = {k: self.original(v) for k, v in kwargs.items()}
        call = CachedCall(function, args, kwargs)
        if not call.is_held():
            message = f"jit: the cache of {call.name} does not hold what it asks for"
            self.error = NotHeldError(message)
            raise self.error

        def run() -> Any:
            r = call.run(self.inner)
            if not traced(r):
                self.calls.append(call)
            return r

        return run

    def generator(self, raw: Any) -> TracedGenerator:
        """Return a random generator that is the same one in every run."""
        return TracedGenerator(raw, raw, self)

    def seeded(self, kind: Callable[[Any], Any], seed: Any) -> TracedGenerator:
        """Return a random generator that every run makes anew."""
        return seeded(self, kind, seed)

    def _new(self, r: Any, function: Any) -> Traced:
        """Return a result as a traced value with a symbol of its own."""
        if isinstance(r, (np.ndarray, np.generic)):
            if r.dtype.kind in "biufc":
                if type(r) is not np.ndarray and isinstance(r, np.ndarray) and not is_device(r):
                    r = np.asarray(r)
                traced_array = Traced(r, Symbol(r.shape, r.dtype), self)
                self._buffers.note(traced_array)
                return traced_array
        elif isinstance(r, (bool, int, float, complex)):
            return Traced(r, Symbol((), np.result_type(r), weak=True), self)
        name = getattr(function, "__name__", function)
        raise UntraceableError(f"jit: {name} returned a {type(r).__name__}, which is no number")

    # -- values ------------------------------------------------------------------------------

    def capture(self, array: Any) -> Traced:
        """Return a plain array that the run reads as a traced value."""
        return array if type(array) is Traced else self.arrays.capture(array, self)

    def lend(self, array: np.ndarray, to: types.FrameType | None) -> None:
        """Note that other code is given memory of this run: see `PlainArrays.lend`."""
        self.arrays.lend(array, to)

    def zeros(self, beside: Any, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return zeros for a gradient: see `PlainArrays.zeros`."""
        return self.arrays.zeros(beside, shape, dtype)

    def touched(self) -> None:
        """Note that a transform wrote into what it differentiates: see `Recording.touched`."""
        self.recording.touched = True

    def drawn(self) -> int:
        """Return how many draws of random numbers were recorded so far."""
        return len(self.draws)

    def constant(self, number: Any) -> Handle:
        """Return a scalar as a symbol, so that what is computed of it is recorded.

        One on a device is computed with there, and part of the recording as a number.
        """
        args = (host(number),)
        return self.handle(self._recorded(OPS["positive"], np.positive, args, {}, number))

    def as_operands(self, operands: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return operands with plain arrays as ADArrays over captures.

        They are borrowed: writes into them, or into views of them, would go into copies, and raise.
        """
        return tuple(
            Handle.array_class(self.capture(x), None, Extras(borrowed=True), True)
            if type(x) is np.ndarray else x
            for x in operands
        )  # fmt: skip

    def handle(self, x: Traced) -> Handle:
        """Return a traced value as an ADArray."""
        if x.symbol.weak:
            return Handle.number_class(x, None, Extras(weak=True), True)
        return Handle.array_class(x, None, None, True)

    def handles(self, x: Any) -> Any:
        """Return traced values, or a sequence of them, as ADArrays."""
        if type(x) is Traced:
            return self.handle(x)
        if not isinstance(x, (tuple, list)):
            return x
        items = list(map(self.handles, x))
        return type(x)(*items) if hasattr(x, "_fields") else type(x)(items)

    opened = staticmethod(opened)

    def number(self, x: Traced) -> Handle | int:
        """Return a 0-d value as a traced Python number; Python's truth values are read."""
        if x.dtype.kind == "b":
            return bool(x)  # they add up to ints
        value = x.value.item() if hasattr(x.value, "item") else x.value
        if x.symbol.weak:
            return self.handle(x)
        if x.dtype in _LONG and not self._is_short(x):
            return operator.index(x)
        result = self._recorded(None, as_number, (x.symbol,), {}, value)
        self._bounds.note(result, self._bounds.known(x))
        return self.handle(result)

    def _is_short(self, x: Traced) -> bool:
        """Read whether an integer is small enough for recorded arithmetic of Python ints."""
        above = self.function(np.less, (x, ITEM), {})
        if x.dtype.kind == "u":
            return bool(above)
        return bool(
            self.function(np.logical_and, (above, self.function(np.greater, (x, -ITEM), {})), {})
        )

    def _fitting(self, x: Any, dtype: Any) -> Any:
        """Return a value to be written, read with a guard if an integer dtype may not hold it.

        NumPy refuses such numbers in some places, and casts them in others.
        """
        if is_number(x):
            return fitting(x, dtype, self._bounds.of(x))
        if type(x) is not Traced or not isinstance(x.value, np.generic) or dtype.kind not in "iu":
            return x
        kind = x.dtype.kind
        if kind not in "iuf" or np.can_cast(x.dtype, dtype):
            return x
        info = np.iinfo(dtype)
        if kind == "f":  # a nan is in no range
            low = self.function(np.greater, (x, float(info.min) - 1.0), {})
            high = self.function(np.less, (x, float(info.max) + 1.0), {})
        else:
            low = self.function(np.greater_equal, (x, int(info.min)), {})
            high = self.function(np.less_equal, (x, int(info.max)), {})
        if bool(self.function(np.logical_and, (low, high), {})):
            return x
        return x.dtype.type(float(x) if kind == "f" else operator.index(x))

    def write(self, old: Any, steps: tuple[Any, ...], index: Any, value: Any) -> Traced:
        """Return `old` with `value` written at ``index`` of the view that `steps` lead to."""
        old = self.capture(old)
        value = self.capture(value) if isinstance(value, np.ndarray) else value
        value = self._fitting(value, old.dtype)
        index, steps = settled(opened(index), False), opened(steps)
        where, layout = own_index(concrete(index)), concrete(steps)

        def region(array: Any) -> Any:
            return replay(array, layout)

        in_place = self._buffers.may_write(old) and not is_device(concrete(value))
        if in_place:
            elements = self._buffers.write(old, region, where, concrete(value))
            fresh = old.value
        else:
            fresh = duplicate(old.value) if hasattr(old.value, "flags") else np.array(old.value)
            fresh = array_beside(fresh, concrete(value))
            region(fresh)[where] = concrete(value)
        params = {"steps": symbolic(steps), "index": symbolic(index)}
        result: Traced = self._recorded(
            WRITE, WRITE.evaluate, symbolic((old, value)), params, fresh
        )
        if in_place:
            old.recall(Overwritten(result, region, where, elements))
        if type(fresh) is np.ndarray:
            self._buffers.add(result)
        return result

    def guard(self, kind: str, x: Traced, outcome: Any) -> Any:
        """Record a guard: Python reads the value; return it."""
        key = (kind, id(x.symbol))
        if key not in self._host_reads:
            self._host_reads[key] = outcome
            self.recording.events.append(Guard(kind, x.symbol, outcome, user_place()))
        return outcome


def _itself(x: Any) -> Any:
    return x


def _as_expected(odd: Any) -> None:
    if odd:
        raise ValueError("a function of Python's math raises an error")

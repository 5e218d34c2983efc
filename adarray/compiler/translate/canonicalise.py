"""ValueCall calls as a program of primitives."""

from __future__ import annotations

import importlib
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeGuard

import numpy as np
import numpy.typing as npt

from adarray.base.errors import NotDifferentiableError
from adarray.base.levels import forget
from adarray.base.op import FUNCTIONS as RECORD_OF
from adarray.base.op import Op, load_late
from adarray.base.recording import Call, Symbol, as_number
from adarray.base.types import DType, Function, Operands
from adarray.compiler import translate as translations
from adarray.compiler.ir import complexes
from adarray.compiler.ir.builder import BOOL, PAIRS, PRINTABLE, Builder, NotExactError, Weak
from adarray.compiler.ir.complexes import NoKernelError
from adarray.compiler.ir.primitives import CallResult, PythonCall, Slot
from adarray.compiler.ir.program import Program, Value
from adarray.compiler.ir.views import Shape
from adarray.compiler.translate import Arguments, Translated, ValueCall
from adarray.compiler.translate.elementwise import apply_ufunc, pointwise
from adarray.compiler.translate.reductions import ufunc_accumulate, ufunc_reduce
from adarray.core.graph import Steps
from adarray.core.inplace import WRITE, _region

for _name in ("contraction", "creation", "indexing", "numerics", "shape", "special"):
    importlib.import_module(f"adarray.compiler.translate.{_name}")

# What holds no symbols.
_PLAIN = frozenset({int, float, bool, str, type(None)})
_KINDS: dict[str, type] = {"b": bool, "i": int, "u": int, "f": float, "c": complex}


def canonicalise(
    events: Iterable[Call],
    inputs: Sequence[Symbol],
    outputs: Sequence[object],
    *,
    strides: Mapping[Symbol, Shape] | None = None,
    constants: Mapping[Symbol, object] | None = None,
) -> Program:
    """Translate recorded calls.

    Parameters
    ----------
    events : iterable of Call
    inputs : sequence of Symbol
    outputs : sequence of Symbol or plain values
    strides : mapping, optional
        Strides, in elements, of the inputs that are not in C order.
    constants : mapping, optional
        Symbols that always have the same contents, with these.

    Returns
    -------
    Program
    """
    calls = list(events)
    # A path has the constants of all its segments, whose arrays are copied.
    used = set(_symbols([*[(c.args, c.params) for c in calls], *outputs]))
    mentioned = {s: x for s, x in (constants or {}).items() if s in used}
    return Canonicaliser(inputs, strides or {}, mentioned).run(calls, outputs)


def _symbols(x: object) -> Iterator[Symbol]:
    """Yield the symbols in an argument, wherever `Canonicaliser.read` looks for them."""
    if type(x) is Symbol:
        yield x
    elif isinstance(x, slice):
        yield from _symbols((x.start, x.stop, x.step))
    elif isinstance(x, (tuple, list, dict)):
        for item in x.values() if isinstance(x, dict) else x:
            if type(item) not in _PLAIN:
                yield from _symbols(item)


class Canonicaliser:
    """The state of one translation: which value stands for which symbol."""

    def __init__(
        self,
        inputs: Sequence[Symbol],
        strides: Mapping[Symbol, Shape],
        constants: Mapping[Symbol, object],
    ) -> None:
        self.b = Builder()
        self.env: dict[Symbol, Value] = {}
        for i, symbol in enumerate(inputs):
            self.env[symbol] = self.b.input(i, symbol.shape, symbol.dtype, strides.get(symbol))
        for symbol, x in constants.items():
            self.env[symbol] = self.b.value(np.asarray(x, symbol.dtype))

    def run(self, events: Iterable[Call], outputs: Sequence[object]) -> Program:
        """Translate calls in order, and return the program."""
        for call in events:
            self.b.origin = call
            self.translate(call)
        self.b.origin = None
        return self.b.program([self.b.value(self.read(x)) for x in outputs])

    # -- operands --------------------------------------------------------------------------

    def read(self, x: object) -> object:
        """Return an argument with values in place of its symbols, wherever they stand."""
        if type(x) is Symbol:
            value = self.env[x]
            return Weak(value, _KINDS[x.dtype.kind]) if x.weak else value
        if type(x) in _PLAIN:
            return x
        if isinstance(x, tuple):
            if _PLAIN.issuperset(map(type, x)):
                return x
            items = tuple([self.read(i) for i in x])
            return x if all(map(operator.is_, items, x)) else items
        if type(x) is list:
            return [self.read(i) for i in x]
        if type(x) is dict:
            return {k: self.read(v) for k, v in x.items()}
        if type(x) is slice:
            bounds = [self.read(i) for i in (x.start, x.stop, x.step)]
            return slice(*bounds) if any(isinstance(i, (Value, Weak)) for i in bounds) else x
        return x

    # -- calls -----------------------------------------------------------------------------

    def translate(self, call: Call) -> None:
        """Translate one call: by its translation, or as a call of NumPy."""
        env = self.env
        operands = tuple(
            [env[x] if type(x) is Symbol and not x.weak else self.read(x) for x in call.args]
        )
        params = Arguments({k: self.read(v) for k, v in call.params.items()})
        results = call.results
        try:
            translated = self.primitives(call, operands, params)
        except (NotExactError, NoKernelError):
            translated = None
        values = translated if isinstance(translated, tuple) else (translated,)
        if _fit(values, results):
            env.update(zip(results, values, strict=True))
        else:
            env.update(zip(results, self.opaque(call, operands, params), strict=True))

    def primitives(self, call: Call, operands: Operands, params: Arguments) -> Translated:
        """Return the results of a call in primitives, None if there are none for it.

        Raises
        ------
        NotExactError
            If a number is out of the range of the dtype that it meets.
        """
        b, op, function = self.b, call.op, call.function
        if op is None:
            if function is as_number:
                return b.value(operands[0])
            special = translations.FUNCTIONS.get(function) if _hashable(function) else None
            if special is None:
                bound = self.bind(function, operands, params)
                if bound is not None:
                    op, operands, params = bound
        if not (_printable(call.results) and _printable(operands)):
            pairs = _of_pairs(op, function) and all(
                _printable(x, PRINTABLE | PAIRS) for x in (call.results, operands)
            )
            if not pairs and (op is None or op.name not in translations.OF_ANY_DTYPE):
                return None
        if op is not None:
            special = translations.RECORDS.get(op.name)
            if special is None:
                if params or not op.pointwise:
                    return None
                return pointwise(b, op, operands, call.results[0])
        of_values = ValueCall(operands, params, call.results)
        return self.ufunc(function, of_values) if special is None else special(b, of_values)

    def bind(
        self, function: Function, operands: Operands, params: Arguments
    ) -> tuple[Op, Operands, Arguments] | None:
        """Return the record of a function, with its operands and parameters."""
        op = RECORD_OF.get(function) if _hashable(function) else None
        if op is None and _elsewhere(function) and load_late():
            op = RECORD_OF.get(function)
        if op is None:
            return None
        try:
            bound = op.bind(operands, params)
            if bound[0] is None and op.general is not None:
                op = op.general
                bound = op.bind(operands, params)
        except NotDifferentiableError as error:
            forget(error)
            return None
        of_record, by_name, out = bound
        return None if out is not None else (op, tuple(of_record), Arguments(by_name))

    def ufunc(self, function: Function, call: ValueCall) -> Translated:
        """Translate ufuncs without a record, and the methods of ufuncs."""
        if isinstance(function, np.ufunc):
            if not call.params:
                return apply_ufunc(self.b, function, call.operands)
        elif isinstance(owner := getattr(function, "__self__", None), np.ufunc):
            special = translations.RECORDS.get(f"{owner.__name__}.{function.__name__}")
            if special is not None and len(call.operands) == 1:
                return special(self.b, call)
            if function.__name__ == "reduce":
                return ufunc_reduce(self.b, owner.__name__, call)
            if function.__name__ == "accumulate":
                return ufunc_accumulate(self.b, owner.__name__, call)
        return None

    def opaque(self, call: Call, operands: Operands, params: Arguments) -> tuple[Value, ...]:
        """Make a call of NumPy."""
        function, op = call.function, call.op
        if op is not None:
            function = op.evaluate
            if op is WRITE:
                function = written
            elif op.variadic:
                fixed = op.arity - 1
                operands = (*operands[:fixed], list(operands[fixed:]))
        common = _common_dtype(operands)
        slots: dict[Value, Slot] = {}

        def slot(x: object) -> object:
            if isinstance(x, Weak):
                # NumPy must see a number whose dtype yields.
                x = (
                    x.value
                    if common is None
                    else self.b.cast(x.value, np.result_type(common, x.kind()))
                )
            if isinstance(x, Value):
                if x not in slots:
                    slots[x] = Slot(len(slots))
                return slots[x]
            if type(x) is tuple:
                return tuple([slot(i) for i in x])
            if type(x) is list:
                return [slot(i) for i in x]
            if type(x) is dict:
                return {k: slot(v) for k, v in x.items()}
            if type(x) is slice:
                return slice(slot(x.start), slot(x.stop), slot(x.step))
            return x

        args = tuple([slot(x) for x in operands])
        kwargs = {k: slot(v) for k, v in params.items()}
        values = tuple(slots)
        results = call.results
        if not call.several:
            (symbol,) = results
            one = PythonCall(function, args, kwargs)
            return (self.b.make(one, values, symbol.shape, symbol.dtype),)
        primitive = PythonCall(function, args, kwargs, tuple([(s.shape, s.dtype) for s in results]))
        first = results[0] if results else Symbol((), np.float64)
        several = self.b.make(primitive, values, first.shape, first.dtype)
        return tuple(
            [
                self.b.make(CallResult(i), (several,), s.shape, s.dtype)
                for i, s in enumerate(results)
            ]
        )


def written(base: np.ndarray, value: npt.ArrayLike, steps: Steps, index: object) -> np.ndarray:
    """Return a copy of `base` with a region set: what a recorded write does."""
    copy = np.array(base)
    target, at = _region(copy, steps, index)
    if target.dtype.kind != "c" and np.iscomplexobj(value):
        value = np.real(value)  # a number that was cast with the array: one part takes it
    target[at] = value
    return copy


def _fit(
    values: tuple[Value | None, ...], symbols: Sequence[Symbol]
) -> TypeGuard[tuple[Value, ...]]:
    """Whether there are values of the shapes and dtypes that were recorded."""
    return len(values) == len(symbols) and all(
        v is not None and v.shape == s.shape and (v.dtype is s.dtype or v.dtype == s.dtype)
        for v, s in zip(values, symbols, strict=True)
    )


def _elsewhere(function: Function) -> bool:
    """Whether a function is a ufunc of another library, whose rules may not be loaded yet."""
    return isinstance(function, np.ufunc) and getattr(np, function.__name__, None) is not function


def _hashable(function: Function) -> bool:
    return type(function).__hash__ is not None


def _printable(operands: Iterable[object], dtypes: frozenset[DType] = PRINTABLE) -> bool:
    """Whether all operands have one of some dtypes: those that arithmetic is printed for."""
    for x in operands:
        if type(x) is Value:
            if x.dtype not in dtypes:
                return False
            continue
        if isinstance(x, Weak):
            x = x.value
        if isinstance(x, (list, tuple)):
            if not _printable(x, dtypes):
                return False
        elif (
            np.dtype(complex if isinstance(x, complex) else getattr(x, "dtype", BOOL)) not in dtypes
        ):
            return False
    return True


def _of_pairs(op: Op | None, function: Function) -> bool:
    """Whether calls of a function are translated for complex numbers, too."""
    if op is not None:
        if isinstance(op.numpy, np.ufunc) and op.name not in translations.RECORDS:
            return op.pointwise and complexes.supports(op.numpy.__name__)
        return op.name in translations.OF_PAIRS
    if isinstance(function, np.ufunc):
        return complexes.supports(function.__name__)
    if isinstance(getattr(function, "__self__", None), np.ufunc):
        return function in (np.add.reduce, np.add.accumulate)
    return _hashable(function) and function in translations.OF_PAIRS


def _common_dtype(operands: Operands) -> DType | None:
    """Return the dtype that the arrays among the operands have together, None without any."""
    dtypes = [x.dtype for x in operands if isinstance(x, (Value, np.ndarray, np.generic))]
    try:
        return np.result_type(*dtypes) if dtypes else None
    except TypeError:
        return None

"""How NumPy computes a value of a program: one function for each primitive.

It returns a function that takes the list of values computed so far, and returns the
value; what can be decided beforehand is decided there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias, assert_never

import numpy as np
import numpy.typing as npt

from adarray.base.engines import Engine
from adarray.base.errors import ADArrayError
from adarray.base.op import FUNCTIONS, OPS, Op
from adarray.base.types import Function
from adarray.compiler.ir.array_views import array_view, as_transpose, same_steps
from adarray.compiler.ir.primitives import (
    CallResult,
    Concatenate,
    Constant,
    ConstantArray,
    DType,
    GatherND,
    Iota,
    Map,
    Matmul,
    PrefixScan,
    ProgramInput,
    PythonCall,
    Reduce,
    ScatterND,
    Shape,
    Slot,
    UpdateSlice,
    View,
)
from adarray.compiler.ir.program import Value, c_strides

# Values computed so far: arrays, NumPy scalars, and tuples of calls with several results.
Values: TypeAlias = list[Any]
Run: TypeAlias = Callable[[Values], object]
Array: TypeAlias = np.ndarray | np.generic
Arrays: TypeAlias = Sequence[np.ndarray]
Key: TypeAlias = tuple[slice | np.ndarray, ...]


class RunPlace(NamedTuple):
    """Where a value is computed: its operands, and what may be used for it.

    Parameters
    ----------
    operands : tuple of int
        Where its operands lie in the list of values.
    engine : Engine or None
    mine : bool
        Whether it may write into its first operand, since nothing sees that memory later.
    """

    operands: tuple[int, ...]
    engine: Engine | None
    mine: bool


FOLDS: dict[str, np.ufunc] = {
    name: getattr(np, name)
    for name in ("add", "multiply", "maximum", "minimum", "logical_and", "logical_or")
}
_add_at: Function = np.add.at  # NumPy's stubs know no slices among the indices
# The operations whose kernels an engine has for reductions.
_REDUCTIONS = {"add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min"}


def paired(re: npt.ArrayLike, im: npt.ArrayLike) -> np.ndarray | np.generic:
    """Return the complex numbers of these real and imaginary parts."""
    re, im = np.broadcast_arrays(re, im)
    result = np.empty(re.shape, np.result_type(re.dtype, np.complex64))
    result.real, result.imag = re, im
    return result[()]


def function_of(name: str) -> Function:
    """Return the function that computes a map."""
    function: Function | None = paired if name == "paired" else getattr(np, name, None)
    if function is None:
        op = OPS.get(name) or OPS.get(f"special.{name}")
        function = op.evaluate if op is not None else None
    if function is None:
        raise ADArrayError(f"program: no function is known that computes the map {name!r}")
    return function


def may_alias(v: Value) -> bool:
    """Whether the memory of `v` may be that of an operand, or somebody else's."""
    match v.primitive:
        case Map() as p:
            return p.name != "cast" and not isinstance(function_of(p.name), np.ufunc)
        case (
            Reduce()
            | PrefixScan()
            | Matmul()
            | UpdateSlice()
            | Concatenate()
            | GatherND()
            | ScatterND()
        ):
            return False
        case (
            ProgramInput()
            | Constant()
            | ConstantArray()
            | Iota()
            | View()
            | PythonCall()
            | CallResult()
        ):
            return True
        case _:
            assert_never(v.primitive)


def _conform(x: object, dtype: DType) -> Array:
    """Return the result of a function as an array or scalar of `dtype`."""
    if not isinstance(x, (np.ndarray, np.generic)):
        x = np.asarray(x)
    return x if x.dtype == dtype else x.astype(dtype)


def _cast(v: Value, operands: tuple[int, ...]) -> Run:
    (a,) = operands
    dtype = v.dtype

    def run(values: Values) -> object:
        # `astype` copies, so the result is never an operand's memory.
        return values[a].astype(dtype)

    return run


def _map(p: Map, v: Value, step: RunPlace) -> Run:
    name, operands, engine = p.name, step.operands, step.engine
    if name == "cast":
        return _cast(v, operands)
    f = function_of(name)
    op = FUNCTIONS.get(f) or OPS.get(name)
    if engine is not None and op is not None and op.pointwise and op.arity == len(operands):
        f = _on_engine(engine, op, f)
    dtype = v.dtype
    if len(operands) == 1:
        (a,) = operands

        def run(values: Values) -> object:
            x = f(values[a])
            return x if x.dtype is dtype else _conform(x, dtype)

    elif len(operands) == 2:
        a, b = operands

        def run(values: Values) -> object:
            x = f(values[a], values[b])
            return x if x.dtype is dtype else _conform(x, dtype)

    else:

        def run(values: Values) -> object:
            x = f(*[values[k] for k in operands])
            return x if x.dtype is dtype else _conform(x, dtype)

    return run


def _on_engine(engine: Engine, op: Op, f: Function) -> Function:
    """Return a pointwise function that asks the engine first."""

    def pointwise(*operands: object) -> object:
        out = engine.pointwise(op, operands)
        return f(*operands) if out is NotImplemented else out

    return pointwise


def _view(p: View, v: Value, step: RunPlace) -> Run:
    (a,) = step.operands
    shape, size = v.shape, v.args[0].size
    offset, strides = p.offset, p.strides
    if math.prod(shape) == size and offset == 0 and same_steps(shape, strides, c_strides(shape)):
        return lambda values: np.reshape(values[a], shape)
    from_shape = v.args[0].shape
    permuted = as_transpose(from_shape, shape, offset, strides)
    if permuted is not None:
        axes = permuted
        return lambda values: values[a].transpose(axes)

    def run(values: Values) -> object:
        return array_view(np.asarray(values[a]), offset, shape, strides)

    return run


def _reduce(p: Reduce, v: Value, step: RunPlace) -> Run:
    (a,) = step.operands
    combine, axes, dtype = p.combine, p.axes, v.dtype
    fold = FOLDS[combine].reduce
    source = v.args[0]
    op, engine = OPS.get(_REDUCTIONS.get(combine, "")), step.engine
    if engine is not None and op is not None and source.dtype == dtype and axes:
        return _reduce_on_engine(engine, op, fold, a, axes, source.ndim, dtype)

    def run(values: Values) -> object:
        return fold(values[a], axis=axes, dtype=dtype)

    return run


def _reduce_on_engine(
    engine: Engine,
    op: Op,
    fold: Function,
    a: int,
    axes: tuple[int, ...],
    ndim: int,
    dtype: DType,
) -> Run:
    # As eager code writes it: all axes are None, one axis is a number.
    axis = None if len(axes) == ndim else axes if len(axes) > 1 else axes[0]

    def run(values: Values) -> object:
        x = values[a]
        out = engine.call(op, (x,), {"axis": axis})
        return fold(x, axis=axes, dtype=dtype) if out is NotImplemented else out

    return run


def _prefix_scan(p: PrefixScan, v: Value, step: RunPlace) -> Run:
    (a,) = step.operands
    accumulate, axis, dtype = FOLDS[p.combine].accumulate, p.axis, v.dtype
    return lambda values: accumulate(values[a], axis=axis, dtype=dtype)


def _matmul(step: RunPlace) -> Run:
    a, b = step.operands
    op, engine = OPS["matmul"], step.engine

    def run(values: Values) -> object:
        x, y = values[a], values[b]
        out = NotImplemented if engine is None else engine.call(op, (x, y), {})
        return np.matmul(x, y) if out is NotImplemented else out

    return run


def _concatenate(p: Concatenate, step: RunPlace) -> Run:
    axis, operands = p.axis, step.operands
    return lambda values: np.concatenate([values[k] for k in operands], axis)


def _slices(starts: Shape, steps: Shape, shape: Shape) -> tuple[slice, ...]:
    """Return ``start::step`` for each axis, as far as a value of `shape` goes."""
    key = []
    for start, step, n in zip(starts, steps, shape, strict=True):
        stop = start + step * n
        key.append(slice(start, stop if n and stop >= 0 else None if n else start, step))
    return tuple(key)


def _base(x: Array, mine: bool) -> np.ndarray:
    """Return an array to write into: a copy, unless nobody else has it."""
    if mine and isinstance(x, np.ndarray) and x.flags.owndata and x.flags.writeable:
        return x
    return np.array(x)


def _update_slice(p: UpdateSlice, v: Value, step: RunPlace) -> Run:
    a, b = step.operands
    key = _slices(p.starts, p.steps, v.args[1].shape)
    add, mine = p.add, step.mine

    def run(values: Values) -> object:
        out = _base(values[a], mine)
        if add:
            out[key] += values[b]
        else:
            out[key] = values[b]
        return out

    return run


def _indexed(p: GatherND | ScatterND, v: Value) -> tuple[Callable[[Arrays], Key], int, int]:
    """Return what makes the key of indices, their number of axes, and where NumPy puts these."""
    axes, depth, ndim = p.axes, v.args[-1].ndim, v.args[0].ndim
    together = axes == tuple(range(axes[0], axes[0] + len(axes)))

    def key(indices: Arrays) -> Key:
        parts: list[slice | np.ndarray] = [slice(None)] * ndim
        for axis, index in zip(axes, indices, strict=True):
            parts[axis] = index
        return tuple(parts)

    return key, depth, axes[0] if together else 0


def _moved(x: np.ndarray, depth: int, source: int, destination: int) -> np.ndarray:
    """Return `x` with the axes of the indices in another place."""
    if source == destination or depth == 0:
        return x
    return np.moveaxis(x, range(source, source + depth), range(destination, destination + depth))


def _gather(p: GatherND, v: Value, step: RunPlace) -> Run:
    a, *rest = step.operands
    key, depth, natural = _indexed(p, v)
    position = p.position

    def run(values: Values) -> object:
        picked = np.asarray(values[a])[key([values[k] for k in rest])]
        return _moved(picked, depth, natural, position)

    return run


def _scatter(p: ScatterND, v: Value, step: RunPlace) -> Run:
    a, b, *rest = step.operands
    key, depth, natural = _indexed(p, v)
    position, add, mine = p.position, p.add, step.mine

    def run(values: Values) -> object:
        out = _base(values[a], mine)
        where = key([values[k] for k in rest])
        value = _moved(values[b], depth, position, natural)
        if add:
            _add_at(out, where, value)
        else:
            out[where] = value
        return out

    return run


def _filled(x: object, values: Values, operands: tuple[int, ...]) -> object:
    """Return an argument of a call with its operands in place of the slots."""
    if isinstance(x, Slot):
        return values[operands[x.index]]
    if isinstance(x, (tuple, list)):
        items = [_filled(y, values, operands) for y in x]
        rebuilt: Function = type(x)
        return rebuilt(*items) if hasattr(x, "_fields") else rebuilt(items)
    if isinstance(x, dict):
        return {k: _filled(y, values, operands) for k, y in x.items()}
    return x


def _python_call(p: PythonCall, v: Value, step: RunPlace) -> Run:
    function, args, kwargs = p.function, p.args, p.kwargs
    results, operands = p.results, step.operands

    def run(values: Values) -> object:
        out = function(
            *(_filled(x, values, operands) for x in args),
            **{k: _filled(x, values, operands) for k, x in kwargs.items()},
        )
        if results is None:
            return _checked(function, out, v.shape, v.dtype)
        return tuple(
            _checked(function, x, shape, np.dtype(dtype))
            for x, (shape, dtype) in zip(out, results, strict=True)
        )

    return run


def _checked(function: Function, x: object, shape: Shape, dtype: DType) -> Array:
    """Return a result of a call, which must have the recorded shape."""
    x = _conform(x, dtype)
    if x.shape != tuple(shape):
        raise ADArrayError(
            f"{getattr(function, '__name__', function)}: its result had shape {tuple(shape)} when "
            f"it was recorded and has {x.shape} now; its shape depends on more than its "
            "operands' shapes"
        )
    return x


def _call_result(p: CallResult, step: RunPlace) -> Run:
    (a,) = step.operands
    index = p.index
    return lambda values: values[a][index]


def _iota(axis: int, v: Value) -> np.ndarray:
    counted = np.arange(v.shape[axis]).astype(v.dtype)
    return np.broadcast_to(counted.reshape([-1] + [1] * (v.ndim - axis - 1)), v.shape)


def constant_value(v: Value) -> np.ndarray | np.generic | None:
    """Return a value that is the same in every run; None if it is not by its primitive."""
    match v.primitive:
        case Constant() | ConstantArray() as p:
            return p.value
        case Iota() as p:
            return _iota(p.axis, v)
        case _:
            return None


def run_of(v: Value, step: RunPlace) -> Run:
    """Return what computes a value: neither an input nor a constant."""
    match v.primitive:
        case Map() as p:
            return _map(p, v, step)
        case View() as p:
            return _view(p, v, step)
        case Reduce() as p:
            return _reduce(p, v, step)
        case PrefixScan() as p:
            return _prefix_scan(p, v, step)
        case Matmul():
            return _matmul(step)
        case UpdateSlice() as p:
            return _update_slice(p, v, step)
        case Concatenate() as p:
            return _concatenate(p, step)
        case GatherND() as p:
            return _gather(p, v, step)
        case ScatterND() as p:
            return _scatter(p, v, step)
        case PythonCall() as p:
            return _python_call(p, v, step)
        case CallResult() as p:
            return _call_result(p, step)
        case ProgramInput() | Constant() | ConstantArray() | Iota():
            raise ADArrayError(f"program: {v} is there before the run, and is not computed")
        case _:
            assert_never(v.primitive)

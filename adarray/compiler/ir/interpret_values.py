"""How NumPy computes a value of a program: one maker for each primitive.

A maker returns a function that takes the list of values computed so far, and returns the
value; what can be decided beforehand is decided by the maker.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from adarray.base.errors import ADArrayError
from adarray.base.op import FUNCTIONS, OPS, Op
from adarray.compiler.ir.looks import as_transpose, look, same_steps
from adarray.compiler.ir.program import Slot, Value, c_strides

Values = list[Any]
Run = Callable[[Values], Any]


class Step(NamedTuple):
    """What a step is made with, besides its value.

    Parameters
    ----------
    operands : tuple of int
        Where its operands lie in the list of values.
    engine : Engine or None
    mine : bool
        Whether it may write into its first operand, since nothing sees that memory later.
    """

    operands: tuple[int, ...]
    engine: Any
    mine: bool


FOLDS: dict[str, np.ufunc] = {
    name: getattr(np, name)
    for name in ("add", "multiply", "maximum", "minimum", "logical_and", "logical_or")
}
# The operations whose kernels an engine has for reductions.
_REDUCTIONS = {"add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min"}
# Values whose memory is their own: no operand's, nobody else's.
FRESH = frozenset({"place", "scatter", "join", "gather", "scan", "dot", "reduce"})


def function_of(name: str) -> Callable[..., Any]:
    """Return the function that computes a map."""
    found = getattr(np, name, None)
    if found is None:
        op = OPS.get(name) or OPS.get(f"special.{name}")
        found = op.evaluate if op is not None else None
    if found is None:
        raise ADArrayError(f"program: no function is known that computes the map {name!r}")
    return found


def may_alias(v: Value) -> bool:
    """Whether the memory of `v` may be that of an operand."""
    if v.kind == "map":
        name = v.params["name"]
        return name != "cast" and not isinstance(function_of(name), np.ufunc)
    return v.kind not in FRESH


def _conform(x: Any, dtype: np.dtype[Any]) -> Any:
    """Return the result of a function as an array or scalar of `dtype`."""
    if not isinstance(x, (np.ndarray, np.generic)):
        x = np.asarray(x)
    return x if x.dtype == dtype else x.astype(dtype)


def _cast(v: Value, operands: tuple[int, ...]) -> Run:
    (a,) = operands
    dtype = v.dtype

    def run(values: Values) -> Any:
        # `astype` copies, so the result is never an operand's memory.
        return values[a].astype(dtype)

    return run


def _map(v: Value, step: Step) -> Run:
    name, operands, engine = v.params["name"], step.operands, step.engine
    if name == "cast":
        return _cast(v, operands)
    f = function_of(name)
    op = FUNCTIONS.get(f) or OPS.get(name)
    if engine is not None and op is not None and op.pointwise and op.arity == len(operands):
        f = _on_engine(engine, op, f)
    dtype = v.dtype
    if len(operands) == 1:
        (a,) = operands

        def run(values: Values) -> Any:
            x = f(values[a])
            return x if x.dtype is dtype else _conform(x, dtype)

    elif len(operands) == 2:
        a, b = operands

        def run(values: Values) -> Any:
            x = f(values[a], values[b])
            return x if x.dtype is dtype else _conform(x, dtype)

    else:

        def run(values: Values) -> Any:
            x = f(*[values[k] for k in operands])
            return x if x.dtype is dtype else _conform(x, dtype)

    return run


def _on_engine(engine: Any, op: Op, f: Callable[..., Any]) -> Callable[..., Any]:
    """Return a pointwise function that asks the engine first."""

    def pointwise(*operands: Any) -> Any:
        out = engine.pointwise(op, operands)
        return f(*operands) if out is NotImplemented else out

    return pointwise


def _view(v: Value, step: Step) -> Run:
    (a,) = step.operands
    shape, size = v.shape, v.args[0].size
    offset, strides = v.params["offset"], tuple(v.params["strides"])
    if math.prod(shape) == size and offset == 0 and same_steps(shape, strides, c_strides(shape)):
        return lambda values: np.reshape(values[a], shape)
    from_shape = v.args[0].shape
    permuted = as_transpose(from_shape, shape, offset, strides)
    if permuted is not None:
        axes = permuted
        return lambda values: values[a].transpose(axes)

    def run(values: Values) -> Any:
        return look(np.asarray(values[a]), offset, shape, strides)

    return run


def _reduce(v: Value, step: Step) -> Run:
    (a,) = step.operands
    combine, axes, dtype = v.params["combine"], tuple(v.params["axes"]), v.dtype
    fold = FOLDS[combine].reduce
    source = v.args[0]
    op, engine = OPS.get(_REDUCTIONS.get(combine, "")), step.engine
    if engine is not None and op is not None and source.dtype == dtype and axes:
        return _reduce_on_engine(engine, op, fold, a, axes, source.ndim, dtype)

    def run(values: Values) -> Any:
        return fold(values[a], axis=axes, dtype=dtype)

    return run


def _reduce_on_engine(
    engine: Any,
    op: Op,
    fold: Callable[..., Any],
    a: int,
    axes: tuple[int, ...],
    ndim: int,
    dtype: np.dtype[Any],
) -> Run:
    # As eager code writes it: all axes are None, one axis is a number.
    axis = None if len(axes) == ndim else axes if len(axes) > 1 else axes[0]

    def run(values: Values) -> Any:
        x = values[a]
        out = engine.call(op, (x,), {"axis": axis})
        return fold(x, axis=axes, dtype=dtype) if out is NotImplemented else out

    return run


def _scan(v: Value, step: Step) -> Run:
    (a,) = step.operands
    accumulate, axis, dtype = FOLDS[v.params["combine"]].accumulate, v.params["axis"], v.dtype
    return lambda values: accumulate(values[a], axis=axis, dtype=dtype)


def _dot(_: Value, step: Step) -> Run:
    a, b = step.operands
    op, engine = OPS["matmul"], step.engine

    def run(values: Values) -> Any:
        x, y = values[a], values[b]
        out = NotImplemented if engine is None else engine.call(op, (x, y), {})
        return np.matmul(x, y) if out is NotImplemented else out

    return run


def _join(v: Value, step: Step) -> Run:
    axis, operands = v.params["axis"], step.operands
    return lambda values: np.concatenate([values[k] for k in operands], axis)


def _slices(starts: Any, steps: Any, shape: tuple[int, ...]) -> tuple[slice, ...]:
    """Return ``start::step`` for each axis, as far as a value of `shape` goes."""
    key = []
    for start, step, n in zip(starts, steps, shape, strict=True):
        stop = start + step * n
        key.append(slice(start, stop if n and stop >= 0 else None if n else start, step))
    return tuple(key)


def _base(x: Any, mine: bool) -> np.ndarray:
    """Return an array to write into: a copy, unless nobody else has it."""
    if mine and isinstance(x, np.ndarray) and x.flags.owndata and x.flags.writeable:
        return x
    return np.array(x)


def _place(v: Value, step: Step) -> Run:
    a, b = step.operands
    key = _slices(v.params["starts"], v.params["steps"], v.args[1].shape)
    add, mine = v.params["add"], step.mine

    def run(values: Values) -> Any:
        out = _base(values[a], mine)
        if add:
            out[key] += values[b]
        else:
            out[key] = values[b]
        return out

    return run


def _indexed(v: Value, ndim: int) -> tuple[Callable[[list[Any]], Any], int, int]:
    """Return what makes the key of indices, their number of axes, and where NumPy puts these."""
    axes, depth = tuple(v.params["axes"]), v.args[-1].ndim
    together = axes == tuple(range(axes[0], axes[0] + len(axes)))

    def key(indices: list[Any]) -> Any:
        made: list[Any] = [slice(None)] * ndim
        for axis, index in zip(axes, indices, strict=True):
            made[axis] = index
        return tuple(made)

    return key, depth, axes[0] if together else 0


def _moved(x: Any, depth: int, source: int, destination: int) -> Any:
    """Return `x` with the axes of the indices in another place."""
    if source == destination or depth == 0:
        return x
    return np.moveaxis(x, range(source, source + depth), range(destination, destination + depth))


def _gather(v: Value, step: Step) -> Run:
    a, *rest = step.operands
    key, depth, natural = _indexed(v, v.args[0].ndim)
    position = v.params["position"]

    def run(values: Values) -> Any:
        picked = np.asarray(values[a])[key([values[k] for k in rest])]
        return _moved(picked, depth, natural, position)

    return run


def _scatter(v: Value, step: Step) -> Run:
    a, b, *rest = step.operands
    key, depth, natural = _indexed(v, v.args[0].ndim)
    position, add, mine = v.params["position"], v.params["add"], step.mine

    def run(values: Values) -> Any:
        out = _base(values[a], mine)
        where = key([values[k] for k in rest])
        value = _moved(values[b], depth, position, natural)
        if add:
            np.add.at(out, where, value)
        else:
            out[where] = value
        return out

    return run


def _filled(x: Any, values: Values, operands: tuple[int, ...]) -> Any:
    """Return an argument of a call with its operands in place of the slots."""
    if isinstance(x, Slot):
        return values[operands[x.index]]
    if isinstance(x, (tuple, list)):
        items = [_filled(y, values, operands) for y in x]
        return type(x)(*items) if hasattr(x, "_fields") else type(x)(items)
    if isinstance(x, dict):
        return {k: _filled(y, values, operands) for k, y in x.items()}
    return x


def _call(v: Value, step: Step) -> Run:
    function, args, kwargs = v.params["function"], v.params["args"], v.params["kwargs"]
    results, operands = v.params.get("results"), step.operands

    def run(values: Values) -> Any:
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


def _checked(function: Any, x: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """Return a result of a call, which must have the recorded shape."""
    x = _conform(x, dtype)
    if x.shape != tuple(shape):
        raise ADArrayError(
            f"{getattr(function, '__name__', function)}: its result had shape {tuple(shape)} when "
            f"it was recorded and has {x.shape} now; its shape depends on more than its "
            "operands' shapes"
        )
    return x


def _pick(v: Value, step: Step) -> Run:
    (a,) = step.operands
    index = v.params["index"]
    return lambda values: values[a][index]


def _iota(v: Value) -> np.ndarray:
    axis = v.params["axis"]
    counted = np.arange(v.shape[axis]).astype(v.dtype)
    return np.broadcast_to(counted.reshape([-1] + [1] * (v.ndim - axis - 1)), v.shape)


CONSTANTS: dict[str, Callable[[Value], Any]] = {
    "const": lambda v: v.dtype.type(v.params["value"]),
    "array": lambda v: v.params["value"],
    "iota": _iota,
}

MAKERS: dict[str, Callable[[Value, Step], Run]] = {
    "map": _map, "view": _view, "reduce": _reduce, "place": _place, "join": _join,
    "gather": _gather, "scatter": _scatter, "scan": _scan, "dot": _dot, "call": _call,
    "pick": _pick,
}  # fmt: skip

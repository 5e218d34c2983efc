"""Running a program with NumPy, one value after the other.

This is what the other stages are checked against, and what runs where there is no
compiler: each value is what NumPy's own function of that name makes of its operands,
so results are those of the recorded calls, bit for bit. With an engine, pointwise
operations, reductions and products go to its kernels first, as those of eager code do.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from adarray.errors import ADArrayError
from adarray.op import FUNCTIONS, OPS, Op
from adarray.passes.looks import as_transpose, look, same_steps
from adarray.program import Program, Slot, Value, c_strides

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
_FRESH = frozenset({"place", "scatter", "join", "gather", "scan", "dot", "reduce"})


def interpret(program: Program, arrays: Iterable[Any]) -> list[Any]:
    """Return the results of `program` for the inputs `arrays`.

    Parameters
    ----------
    program : Program
    arrays : iterable of ndarray
        One for each input. They are not written to.

    Returns
    -------
    list
        Fresh arrays, none sharing memory with another or with an input; NumPy scalars for
        results without axes.

    Examples
    --------
    >>> from adarray.program import Program, Value
    >>> x = Value("input", (), {"index": 0, "strides": (1,)}, (3,), "float64")
    >>> y = Value("map", (x, x), {"name": "multiply"}, (3,), "float64")
    >>> interpret(Program([x], [x, y], [y]), [np.arange(3.0)])
    [array([0., 1., 4.])]
    """
    return Interpreted(program)(list(arrays))


class Interpreted:
    """A program made ready to run with NumPy, and with the kernels of an engine if there is one.

    Called with a list of arrays, one for each input, it returns the list of results as
    `interpret` does. Values are dropped after their last use.

    Parameters
    ----------
    program : Program
    engine : Engine, optional
    """

    def __init__(self, program: Program, engine: Any = None) -> None:
        self.program = program
        slots = {id(v): i for i, v in enumerate(program.values)}
        self._inputs = [slots[id(v)] for v in program.inputs]
        self._outputs = [slots[id(v)] for v in program.outputs]
        self._start: Values = [None] * len(slots)
        self._kept: set[int] = set()  # identities of arrays that outlive a call
        self._steps: list[tuple[Run, int, tuple[int, ...]]] = []
        lives = _Lives(program, slots)
        for i, v in enumerate(program.values):
            if v.kind == "input":
                continue
            if v.kind in _CONSTANTS:
                self._start[i] = _CONSTANTS[v.kind](v)
                self._kept.add(id(self._start[i]))
                continue
            step = Step(tuple(slots[id(a)] for a in v.args), engine, lives.last_touch(i))
            run = under(getattr(v.origin, "errors", None), _MAKERS[v.kind](v, step))
            self._steps.append((run, i, lives.dead_after(i)))

    def __call__(
        self, arrays: list[Any], watch: Callable[[Value, int, int], Any] | None = None
    ) -> list[Any]:
        """Return the results for `arrays`.

        Parameters
        ----------
        arrays : list of ndarray
        watch : callable, optional
            ``watch(value, start, stop)`` is called after each step, with the times of
            `time.perf_counter_ns`.
        """
        if len(arrays) != len(self._inputs):
            raise ADArrayError(
                f"program: it has {len(self._inputs)} inputs, got {len(arrays)} arrays"
            )
        values = self._start.copy()
        for i, x in zip(self._inputs, arrays, strict=True):
            values[i] = x if isinstance(x, np.ndarray) else np.asarray(x)
        taken = self._kept | {id(values[i]) for i in self._inputs}
        for run, i, dead in self._steps:
            if watch is None:
                values[i] = run(values)
            else:
                start = time.perf_counter_ns()
                values[i] = run(values)
                watch(self.program.values[i], start, time.perf_counter_ns())
            for k in dead:
                values[k] = None
        return [_result(values[i], taken) for i in self._outputs]

    def __repr__(self) -> str:
        return f"<interpreted {self.program!r}>"


def under(errors: dict[str, Any] | None, run: Run) -> Run:
    """Return a step that runs with what the function itself asked of `numpy.errstate`."""
    if errors is None:
        return run

    def quiet(values: Values) -> Any:
        with np.errstate(**errors):
            return run(values)

    return quiet


def _result(x: Any, taken: set[int]) -> Any:
    """Return a value as a result: a scalar, or an array that nobody else has."""
    if x.ndim == 0:
        return x[()]
    if id(x) in taken or x.base is not None or not (x.flags.owndata and x.flags.writeable):
        x = np.array(x, order="C")
    taken.add(id(x))
    return x


# -- lives of values -----------------------------------------------------------------------


def _may_alias(v: Value) -> bool:
    """Whether the memory of `v` may be that of an operand."""
    if v.kind == "map":
        name = v.params["name"]
        return name != "cast" and not isinstance(function_of(name), np.ufunc)
    return v.kind not in _FRESH


class _Lives:
    """When values are used for the last time, and whose memory they share."""

    def __init__(self, program: Program, slots: dict[int, int]) -> None:
        values = program.values
        group = list(range(len(values)))  # the first value that may share its memory

        def find(i: int) -> int:
            while group[i] != i:
                group[i] = group[group[i]]
                i = group[i]
            return i

        last = list(range(len(values)))
        for i, v in enumerate(values):
            alias = _may_alias(v)
            for a in v.args:
                k = slots[id(a)]
                last[k] = i
                if alias:
                    one, other = sorted((find(k), find(i)))
                    group[other] = one
        for v in program.outputs:
            last[slots[id(v)]] = len(values)
        self._values = values
        self._slots = slots
        self._group = [find(i) for i in range(len(values))]
        self._last_of_group: dict[int, int] = {}
        self._dead: dict[int, list[int]] = {}
        for i, end in enumerate(last):
            g = self._group[i]
            self._last_of_group[g] = max(self._last_of_group.get(g, 0), end)
            self._dead.setdefault(end, []).append(i)

    def dead_after(self, i: int) -> tuple[int, ...]:
        """Return the values that nothing after step `i` reads."""
        return tuple(self._dead.get(i, ()))

    def last_touch(self, i: int) -> bool:
        """Whether step `i` may write into its first operand: nothing sees that memory later."""
        v = self._values[i]
        if not v.args:
            return False
        base = v.args[0]
        g, *others = (self._group[self._slots[id(a)]] for a in v.args)
        owner = self._values[g]
        own = owner.kind in _FRESH or (owner.kind == "map" and not _may_alias(owner))
        return own and owner is base and self._last_of_group[g] == i and g not in others


# -- one maker for each primitive ------------------------------------------------------------


def function_of(name: str) -> Callable[..., Any]:
    """Return the function that computes a map."""
    found = getattr(np, name, None)
    if found is None:
        op = OPS.get(name) or OPS.get(f"special.{name}")
        found = op.evaluate if op is not None else None
    if found is None:
        raise ADArrayError(f"program: no function is known that computes the map {name!r}")
    return found


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


_CONSTANTS: dict[str, Callable[[Value], Any]] = {
    "const": lambda v: v.dtype.type(v.params["value"]),
    "array": lambda v: v.params["value"],
    "iota": _iota,
}

_MAKERS: dict[str, Callable[[Value, Step], Run]] = {
    "map": _map, "view": _view, "reduce": _reduce, "place": _place, "join": _join,
    "gather": _gather, "scatter": _scatter, "scan": _scan, "dot": _dot, "call": _call,
    "pick": _pick,
}  # fmt: skip

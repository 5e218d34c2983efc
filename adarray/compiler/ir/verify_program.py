"""Checks of a program: order, shapes and dtypes of every value."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from adarray.base.errors import ADArrayError
from adarray.compiler.ir.builder import BOOL, INT, PRINTABLE
from adarray.compiler.ir.program import KINDS, Program, Slot, Value
from adarray.compiler.ir.views import broadcast_shape
from adarray.compiler.scalars.catalogue import FUNCTIONS


class ProgramError(ADArrayError):
    """A program breaks a rule of the intermediate representation: an error of a pass."""


def verify_program(program: Program, after: str = "program") -> None:
    """Raise if a program is not well formed.

    Parameters
    ----------
    program : Program
    after : str
        What made it, for the message.

    Raises
    ------
    ProgramError
    """
    seen: set[int] = set()
    for i, v in enumerate(program.values):
        where = f"{after}: value {i}, {v!r}"
        if id(v) in seen:
            raise ProgramError(f"{where}, stands in the program twice")
        if any(id(a) not in seen for a in v.args):
            raise ProgramError(f"{where}, comes before one of its operands")
        if v.kind not in KINDS:
            raise ProgramError(f"{where}, is of no known kind")
        seen.add(id(v))
        wrong = _CHECKS[v.kind](v)
        if wrong:
            raise ProgramError(f"{where}: {wrong}")
    if any(id(v) not in seen for v in (*program.inputs, *program.outputs)):
        raise ProgramError(f"{after}: an input or a result is not among the values")
    for i, v in enumerate(program.inputs):
        if v.kind != "input" or v.params["index"] != i:
            raise ProgramError(f"{after}: input {i} is {v!r}")


def _expect(v: Value, shape: tuple[int, ...], dtype: np.dtype) -> str:
    if v.shape != shape:
        return f"has shape {v.shape}, and the rule gives {shape}"
    return "" if v.dtype == dtype else f"has dtype {v.dtype}, and the rule gives {dtype}"


def _leaf(v: Value) -> str:
    if v.kind in ("const", "array"):
        return _expect(v, np.shape(v.params["value"]), v.params["value"].dtype)
    if v.kind == "iota":
        return "" if v.dtype == INT and 0 <= v.params["axis"] < v.ndim else "is no int64 range"
    return "" if len(v.params["strides"]) == v.ndim else "has other strides than axes"


def _map(v: Value) -> str:
    name = v.params["name"]
    if name not in FUNCTIONS:
        return f"applies {name}, of which there is no record"
    shape = broadcast_shape([a.shape for a in v.args])
    operands = v.args[1:] if name == "where" else v.args
    if any(a.dtype not in PRINTABLE for a in v.args):
        return "computes on a dtype that is not printed"
    if name == "where" and v.args[0].dtype != BOOL:
        return "has a condition that is not bool"
    if len({a.dtype for a in operands}) != 1:
        return f"mixes {[str(a.dtype) for a in operands]}"
    if name.startswith("logical") and operands[0].dtype != BOOL:
        return "is logical, of numbers"
    dtype = v.dtype if name == "cast" else operands[0].dtype
    if FUNCTIONS[name].gives_truth:
        dtype = BOOL
    return _expect(v, shape, dtype)


def _view(v: Value) -> str:
    (x,) = v.args
    strides, offset = v.params["strides"], v.params["offset"]
    if len(strides) != v.ndim:
        return "has other strides than axes"
    if v.size:
        ends = [s * (n - 1) for s, n in zip(strides, v.shape, strict=True)]
        low = offset + sum(e for e in ends if e < 0)
        high = offset + sum(e for e in ends if e > 0)
        if low < 0 or high >= x.size:
            return f"shows elements {low} to {high} of {x.size}"
    return "" if v.dtype == x.dtype else "changes the dtype"


def _reduce(v: Value) -> str:
    (x,) = v.args
    axes = v.params["axes"]
    if not axes or len(set(axes)) != len(axes) or not all(0 <= i < x.ndim for i in axes):
        return f"folds the axes {axes} of {x.shape}"
    return _expect(v, tuple(n for i, n in enumerate(x.shape) if i not in axes), x.dtype)


def _place(v: Value) -> str:
    base, value = v.args
    starts, steps = v.params["starts"], v.params["steps"]
    if value.dtype != base.dtype or not len(starts) == len(steps) == value.ndim == base.ndim:
        return "places a value of another dtype or number of axes"
    for a, d, n, m in zip(starts, steps, value.shape, base.shape, strict=True):
        if d < 1 or a < 0 or a + d * (n - 1) >= m:
            return f"leaves {base.shape}: starts {starts}, steps {steps}, {value.shape}"
    return _expect(v, base.shape, base.dtype)


def _join(v: Value) -> str:
    axis = v.params["axis"]
    first = v.args[0]
    length = sum(a.shape[axis] for a in v.args)
    shape = (*first.shape[:axis], length, *first.shape[axis + 1 :])
    for a in v.args:
        rest = (*a.shape[:axis], length, *a.shape[axis + 1 :])
        if rest != shape or a.dtype != first.dtype:
            return f"joins {[a.shape for a in v.args]}"
    return _expect(v, shape, first.dtype)


def _indexed(v: Value, x: Value, indices: tuple[Value, ...]) -> tuple[str, tuple[int, ...]]:
    axes, position = v.params["axes"], v.params["position"]
    if len(axes) != len(indices) or len({i.shape for i in indices}) != 1:
        return "has indices of several shapes", ()
    if any(i.dtype != INT for i in indices):
        return "has indices that are not int64", ()
    rest = [n for k, n in enumerate(x.shape) if k not in axes]
    return "", (*rest[:position], *indices[0].shape, *rest[position:])


def _gather(v: Value) -> str:
    wrong, shape = _indexed(v, v.args[0], v.args[1:])
    return wrong or _expect(v, shape, v.args[0].dtype)


def _scatter(v: Value) -> str:
    base, value = v.args[:2]
    wrong, shape = _indexed(v, base, v.args[2:])
    return wrong or _expect(value, shape, base.dtype) or _expect(v, base.shape, base.dtype)


def _scan(v: Value) -> str:
    (x,) = v.args
    return "" if 0 <= v.params["axis"] < x.ndim and _expect(v, x.shape, x.dtype) == "" else "bad"


def _dot(v: Value) -> str:
    a, b = v.args
    if a.dtype != b.dtype or a.dtype.kind != "f":
        return "multiplies other numbers than floats of one dtype"
    if not a.ndim or not b.ndim or a.shape[-1] != b.shape[-2 if b.ndim > 1 else -1]:
        return f"multiplies {a.shape} and {b.shape}"
    lead = broadcast_shape([a.shape[:-2], b.shape[:-2]])
    columns = b.shape[-1:] if b.ndim > 1 else ()
    return _expect(v, lead + a.shape[-2:-1] + columns, a.dtype)


def _call(v: Value) -> str:
    todo = [v.params["args"], v.params["kwargs"]]
    while todo:
        x = todo.pop()
        if isinstance(x, Slot):
            if x.index >= len(v.args):
                return "has a slot without operand"
        elif isinstance(x, dict):
            todo.extend(x.values())
        elif isinstance(x, (tuple, list)):
            todo.extend(x)
        elif isinstance(x, slice):
            todo.extend((x.start, x.stop, x.step))
        elif isinstance(x, Value):
            return "holds a value that is no operand"
    return ""


def _pick(v: Value) -> str:
    (x,) = v.args
    results = x.params.get("results")
    if x.kind != "call" or results is None:
        return "picks from a value with one result"
    return _expect(v, *results[v.params["index"]])


_CHECKS: dict[str, Callable[[Value], str]] = {
    "input": _leaf, "const": _leaf, "array": _leaf, "iota": _leaf, "map": _map, "view": _view,
    "reduce": _reduce, "place": _place, "join": _join, "gather": _gather, "scatter": _scatter,
    "scan": _scan, "dot": _dot, "call": _call, "pick": _pick,
}  # fmt: skip

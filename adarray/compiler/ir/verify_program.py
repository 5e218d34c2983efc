"""Checks of a program: order, shapes and dtypes of every value."""

from __future__ import annotations

from typing import assert_never

from adarray.base.errors import ADArrayError
from adarray.compiler.ir.builder import BOOL, INT, PAIRS, PRINTABLE
from adarray.compiler.ir.complexes import PART_OF
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
from adarray.compiler.ir.program import Program, Value
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
        The pass that returned it, for the message.

    Raises
    ------
    ProgramError
    """
    seen: set[Value] = set()
    for i, v in enumerate(program.values):
        if v in seen:
            wrong = ", stands in the program twice"
        elif any(a not in seen for a in v.args):
            wrong = ", comes before one of its operands"
        else:
            rule = _wrong(v)
            wrong = f": {rule}" if rule else ""
        if wrong:
            raise ProgramError(f"{after}: value {i}, {v!r}{wrong}")
        seen.add(v)
    if any(v not in seen for v in (*program.inputs, *program.outputs)):
        raise ProgramError(f"{after}: an input or a result is not among the values")
    for i, v in enumerate(program.inputs):
        if not isinstance(v.primitive, ProgramInput) or v.primitive.index != i:
            raise ProgramError(f"{after}: input {i} is {v!r}")


def _expect(v: Value, shape: Shape, dtype: DType) -> str:
    if v.shape != shape:
        return f"has shape {v.shape}, and the rule gives {shape}"
    return "" if v.dtype == dtype else f"has dtype {v.dtype}, and the rule gives {dtype}"


def _map(p: Map, v: Value) -> str:
    name = p.name
    if name not in FUNCTIONS:
        return f"applies {name}, of which there is no record"
    shape = broadcast_shape([a.shape for a in v.args])
    operands = v.args[1:] if name == "where" else v.args
    if name in ("real", "imag", "paired"):
        return _parts(name, v, shape)
    if name == "cast" and v.dtype == v.args[0].dtype in PAIRS:  # a copy
        return _expect(v, shape, v.dtype)
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


def _parts(name: str, v: Value, shape: Shape) -> str:
    part = v.args[0].dtype if name == "paired" else v.dtype
    whole = v.dtype if name == "paired" else v.args[0].dtype
    if any(a.dtype != v.args[0].dtype for a in v.args) or whole not in PAIRS:
        return f"makes {v.dtype} of {[str(a.dtype) for a in v.args]}"
    if PART_OF[whole] != part:
        return f"has parts of dtype {part}"
    return _expect(v, shape, v.dtype)


def _view(p: View, v: Value) -> str:
    (x,) = v.args
    strides, offset = p.strides, p.offset
    if len(strides) != v.ndim:
        return "has other strides than axes"
    if v.size:
        ends = [s * (n - 1) for s, n in zip(strides, v.shape, strict=True)]
        low = offset + sum(e for e in ends if e < 0)
        high = offset + sum(e for e in ends if e > 0)
        if low < 0 or high >= x.size:
            return f"shows elements {low} to {high} of {x.size}"
    return "" if v.dtype == x.dtype else "changes the dtype"


def _reduce(p: Reduce, v: Value) -> str:
    (x,) = v.args
    axes = p.axes
    if not axes or len(set(axes)) != len(axes) or not all(0 <= i < x.ndim for i in axes):
        return f"folds the axes {axes} of {x.shape}"
    return _expect(v, tuple(n for i, n in enumerate(x.shape) if i not in axes), x.dtype)


def _place(p: UpdateSlice, v: Value) -> str:
    base, value = v.args
    starts, steps = p.starts, p.steps
    if value.dtype != base.dtype or not len(starts) == len(steps) == value.ndim == base.ndim:
        return "places a value of another dtype or number of axes"
    for a, d, n, m in zip(starts, steps, value.shape, base.shape, strict=True):
        if d < 1 or a < 0 or a + d * (n - 1) >= m:
            return f"leaves {base.shape}: starts {starts}, steps {steps}, {value.shape}"
    return _expect(v, base.shape, base.dtype)


def _concatenate(p: Concatenate, v: Value) -> str:
    axis = p.axis
    first = v.args[0]
    length = sum(a.shape[axis] for a in v.args)
    shape = (*first.shape[:axis], length, *first.shape[axis + 1 :])
    for a in v.args:
        rest = (*a.shape[:axis], length, *a.shape[axis + 1 :])
        if rest != shape or a.dtype != first.dtype:
            return f"concatenates {[a.shape for a in v.args]}"
    return _expect(v, shape, first.dtype)


def _indexed(
    p: GatherND | ScatterND, x: Value, indices: tuple[Value, ...]
) -> tuple[str, tuple[int, ...]]:
    axes, position = p.axes, p.position
    if len(axes) != len(indices) or len({i.shape for i in indices}) != 1:
        return "has indices of several shapes", ()
    if any(i.dtype != INT for i in indices):
        return "has indices that are not int64", ()
    rest = [n for k, n in enumerate(x.shape) if k not in axes]
    return "", (*rest[:position], *indices[0].shape, *rest[position:])


def _gather(p: GatherND, v: Value) -> str:
    wrong, shape = _indexed(p, v.args[0], v.args[1:])
    return wrong or _expect(v, shape, v.args[0].dtype)


def _scatter(p: ScatterND, v: Value) -> str:
    base, value = v.args[:2]
    wrong, shape = _indexed(p, base, v.args[2:])
    return wrong or _expect(value, shape, base.dtype) or _expect(v, base.shape, base.dtype)


def _scan(p: PrefixScan, v: Value) -> str:
    (x,) = v.args
    return "" if 0 <= p.axis < x.ndim and _expect(v, x.shape, x.dtype) == "" else "bad"


def _matmul(p: Matmul, v: Value) -> str:
    a, b, *added = v.args
    if a.dtype != b.dtype or a.dtype.kind != "f":
        return "multiplies other numbers than floats of one dtype"
    if not a.ndim or not b.ndim or a.shape[-1] != b.shape[-2 if b.ndim > 1 else -1]:
        return f"multiplies {a.shape} and {b.shape}"
    lead = broadcast_shape([a.shape[:-2], b.shape[:-2]])
    columns = b.shape[-1:] if b.ndim > 1 else ()
    wrong = _expect(v, lead + a.shape[-2:-1] + columns, a.dtype)
    if wrong or p.epilogue is None:
        return wrong or ("has no epilogue for what it adds" if added else "")
    if len(added) != 1:
        return f"adds {len(added)} values"
    (x,) = added
    shapes = (v.shape[-1:], (1, *v.shape[-1:])) if p.epilogue.row else (v.shape,)
    return _expect(x, x.shape, v.dtype) if x.shape in shapes else f"adds {x.shape}"


def _call(p: PythonCall, v: Value) -> str:
    todo: list[object] = [p.args, p.kwargs]
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


def _pick(p: CallResult, v: Value) -> str:
    (x,) = v.args
    call = x.primitive
    if not isinstance(call, PythonCall) or call.results is None:
        return "picks from a value with one result"
    return _expect(v, *call.results[p.index])


def _wrong(v: Value) -> str:
    """Return what is wrong with a value, by the rule of its primitive."""
    match v.primitive:
        case ProgramInput() as p:
            return "" if len(p.strides) == v.ndim else "has other strides than axes"
        case Constant() | ConstantArray() as p:
            return _expect(v, p.value.shape, p.value.dtype)
        case Iota() as p:
            return "" if v.dtype == INT and 0 <= p.axis < v.ndim else "is no int64 range"
        case Map() as p:
            return _map(p, v)
        case View() as p:
            return _view(p, v)
        case Reduce() as p:
            return _reduce(p, v)
        case PrefixScan() as p:
            return _scan(p, v)
        case Matmul() as p:
            return _matmul(p, v)
        case UpdateSlice() as p:
            return _place(p, v)
        case Concatenate() as p:
            return _concatenate(p, v)
        case GatherND() as p:
            return _gather(p, v)
        case ScatterND() as p:
            return _scatter(p, v)
        case PythonCall() as p:
            return _call(p, v)
        case CallResult() as p:
            return _pick(p, v)
        case _:
            assert_never(v.primitive)

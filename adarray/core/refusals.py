"""Errors that several modules raise, with the operation and its operands in them."""

from __future__ import annotations

from typing import NoReturn, TypeVar

import numpy as np

from adarray.base.aval import aval_of
from adarray.base.errors import DTypeError, ShapeError, TraceError
from adarray.base.op import Op
from adarray.base.types import ArrayValue, DType, Operands
from adarray.core.trace import levels_of


def _broadcast(shapes: list[tuple[int, ...]]) -> bool:
    """Whether the shapes broadcast to a common one."""
    try:
        np.broadcast_shapes(*shapes)
    except ValueError:
        return False
    return True


V = TypeVar("V", bound=ArrayValue)


def reraise(op: Op, values: Operands, error: ValueError) -> NoReturn:
    """Raise NumPy's error with the operation and the operands' shapes in it."""
    if type(error) is not ValueError:  # AxisError and the like say more by their type
        raise error
    present = [i for i, v in enumerate(values) if v is not None]
    shapes = [aval_of(values[i]).shape for i in present]
    if op.pointwise and _broadcast(shapes):
        raise error  # about something else, such as integers to negative powers
    listed = " and ".join(map(str, shapes)) if len(shapes) < 4 else str(shapes)
    if op.pointwise or len(shapes) > 1:
        numbers = " and ".join(map(str, present)) if len(shapes) < 4 else "all"
        what = f"operands {numbers} have shapes {listed}"
    else:
        what = f"the operand has shape {listed}"
    why = "which do not broadcast; reshape one of them" if op.pointwise else str(error).strip()
    raise ShapeError(f"{op.name}: {what}{', ' if op.pointwise else ': '}{why}") from error


def no_derivative(op: Op, r: V) -> V:
    """Return the result of an operation on traced values that is not floating or complex."""
    if r.dtype.kind == "O":
        raise DTypeError(
            f"{op.name}: an operand is an array of objects; adarray computes on arrays of "
            "numbers: convert it with .astype(float)"
        )
    return r  # integers and truth values are piecewise constant


def leaves_graph(what: str, fix: str, x: object = None) -> TraceError:
    """Return the error for a traced value that would leave the graph: `x`, if that is known."""
    return TraceError(
        f"{what}: a traced value would leave the graph, and its gradient would be lost; {fix}, "
        "or take adarray.value_of(x) to leave the graph on purpose",
        None if x is None else levels_of(x),
    )


def refuse_whole_numbers(dtype: DType) -> None:
    """Raise if an array of `dtype` cannot hold a traced value.

    Raises
    ------
    TraceError
    """
    if dtype.kind not in "fc":
        raise leaves_graph(
            f"in-place update of an array of dtype {dtype} with floating point",
            "make the array floating point",
        )

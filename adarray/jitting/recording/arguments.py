"""Arguments of calls that are recorded: host reads that shapes depend on, records, copies."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from adarray.base.errors import NotDifferentiableError
from adarray.base.levels import forget
from adarray.base.op import DYNAMIC, Op
from adarray.device import is_device
from adarray.jitting.shared.symbolic import Traced, holds


def own_index(index: Any) -> Any:
    """Return an index with copies of the arrays in it."""
    if isinstance(index, tuple):
        return tuple(map(own_index, index))
    return index.copy() if isinstance(index, np.ndarray) else index


def name_of(op: Op) -> str:
    """Return what users call an operation."""
    return str(getattr(op.numpy, "__name__", op.name))


def array_beside(x: Any, value: Any) -> Any:
    """Return a number as an array, and an array where the value is that is written into it."""
    if is_device(x):
        return x.library.wrap(x.raw, False)
    return value.library.place(np.asarray(x)) if is_device(value) else np.asarray(x)


def checked(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[()]:
    """Run a function that raises where values are not as they should be."""
    function(*args, **kwargs)
    return ()


def host_value(x: Traced) -> Any:
    """Return an integer or truth value as Python reads it: of its dtype, or a Python number."""
    number: Any = bool(x) if x.dtype.kind == "b" else operator.index(x)
    return number if x.symbol.weak else x.dtype.type(number)


def with_initial(op: Op, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return operands after a read of ``initial=``: integers must hold it."""
    i = op.operands.index("initial")
    x = values[i]
    if type(x) is not Traced or x.symbol.shape != () or x.dtype.kind not in "biuf":
        return values
    initial: Any = float(x) if x.dtype.kind == "f" else host_value(x)
    initial = initial if x.symbol.weak else x.dtype.type(initial)
    return (*values[:i], initial, *values[i + 1 :])


def settled(x: Any, everywhere: bool) -> Any:
    """Return parameters after reads of the traced integers on which shapes depend.

    Those are bounds of slices and, if `everywhere`, integers and truth values wherever they are.
    """
    kind = type(x)
    if kind is Traced:
        if everywhere and x.symbol.shape == () and x.dtype.kind in "biu":
            return host_value(x)
        return x
    if kind is tuple or kind is list:
        return kind(settled(i, everywhere) for i in x)
    if kind is dict:
        return {k: settled(v, everywhere) for k, v in x.items()}
    if kind is slice:
        return slice(*[settled(i, True) for i in (x.start, x.stop, x.step)])
    return x


def bind(op: Op, args: Any, kwargs: Any) -> tuple[Op, Any, Any] | None:
    """Return the record that takes a call, its operands and parameters; None if none does."""
    try:
        operands, params, _ = op.bind(args, kwargs)
        if operands is None:
            assert op.general is not None
            op = op.general
            operands, params, _ = op.bind(args, kwargs)
    except NotDifferentiableError as error:
        forget(error)
        return None
    if any(isinstance(x, (list, tuple)) for x in operands):
        return None
    return op, operands, params


def is_dynamic(op: Op | None, function: Any, values: Any, params: Any) -> bool:
    """Whether the shape of a result depends on values that are traced."""
    decides = op.dynamic if op is not None else DYNAMIC.get(function)
    return decides is not None and holds(decides(values, params))

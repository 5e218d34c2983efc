"""NumPy functions whose results carry no derivative."""

from __future__ import annotations

from typing import Any

import numpy as np

from adarray.base.op import ALIKE, METADATA, composite, constant, dynamic, refuse
from adarray.base.runtime import MODE
from adarray.core.dispatch import replay
from adarray.core.origins import origin_of
from adarray.core.protocol import finish, plain
from adarray.core.trace import Handle, root_of
from adarray.ops.common import newer

# Truth values, integers and positions.
constant(
    np.greater, np.greater_equal, np.less, np.less_equal, np.equal, np.not_equal,
    np.logical_and, np.logical_or, np.logical_xor, np.logical_not,
    np.isnan, np.isinf, np.isfinite, np.signbit, np.isneginf, np.isposinf, np.isreal,
    np.iscomplex, np.isrealobj, np.iscomplexobj,
    np.all, np.any, np.allclose, np.isclose, np.array_equal, np.array_equiv,
    np.argmax, np.argmin, np.nanargmax, np.nanargmin, np.argsort, np.lexsort, np.argwhere,
    np.argpartition, np.nonzero, np.flatnonzero, np.count_nonzero, np.searchsorted, np.digitize,
    np.isin, np.shape, np.ndim, np.size, np.result_type, np.can_cast,
    np.common_type, np.array2string, np.array_repr,
    np.array_str, np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.invert, np.left_shift,
    np.right_shift, np.gcd, np.lcm, np.bitwise_count, np.einsum_path, np.linalg.matrix_rank,
    *newer("in1d"),  # until NumPy 2.3
)  # fmt: skip


METADATA.update((
    np.shape, np.ndim, np.size, np.result_type, np.can_cast, np.iscomplexobj, np.isrealobj,
    np.common_type, np.broadcast_shapes, np.isscalar, np.may_share_memory,
    np.shares_memory,
))  # fmt: skip
dynamic(np.argwhere, np.nonzero, np.flatnonzero)


def _of_shape(function: Any) -> None:
    """Let a function of the shape of an array see that alone: there is nothing to record."""

    def positions(arr: Any, *args: Any, **kwargs: Any) -> Any:
        return finish(function(np.broadcast_to(0.0, arr.shape), *args, **kwargs), None, "")

    composite(function)(positions)


for _function in (np.diag_indices_from, np.tril_indices_from, np.triu_indices_from):
    _of_shape(_function)


_NUMBERS: dict[str, type] = {"b": bool, "i": int, "u": int, "f": float, "c": complex}


@composite(np.min_scalar_type)
def _min_scalar_type(a: Any, /) -> Any:
    """``np.min_scalar_type``: of an array its dtype; of a number the smallest that holds it."""
    value = plain(a)
    if np.ndim(value):
        return value.dtype
    # Python's number: `jit` and `vmap` see that the value is read.
    return np.min_scalar_type(_NUMBERS[np.result_type(value).kind](value))


@composite(np.shares_memory)
def _shares_memory(a: Any, b: Any, /, max_work: Any = -1) -> bool:
    return _about_memory(np.shares_memory, a, b, max_work)


@composite(np.may_share_memory)
def _may_share_memory(a: Any, b: Any, /, max_work: Any = 0) -> bool:
    return _about_memory(np.may_share_memory, a, b, max_work)


def _about_memory(function: Any, a: Any, b: Any, max_work: Any) -> bool:
    """Answer whether two arrays share memory; nothing that `jit` records can."""
    mode = MODE.get()
    if mode is not None and mode.recorder is not None:
        mode.recorder.refuse_memory(function)
    return bool(function(_as_passed(a), _as_passed(b), max_work))


def _as_passed(x: Any) -> Any:
    """Return an array that lies where `x` lay before a transform made inputs of its arguments.

    Those that shared memory have memory of their own since.
    """
    if not isinstance(x, Handle):
        return plain(x)
    lies = origin_of(x)
    if lies is not None:
        return lies
    root = root_of(x)
    peers = root._x.peers if root._x is not None else None
    if peers is None:
        return plain(x)
    value = (
        peers[0]._plain
        if isinstance(peers, list)
        else _as_passed(getattr(peers, "array", root._plain))
    )
    return value if x is root or x._x is None else replay(value, x._x.steps)


# Piecewise constant: the derivative is zero wherever it exists.
constant(
    np.floor, np.ceil, np.trunc, np.rint, np.round, np.around, np.fix,
    np.floor_divide, np.spacing,
)  # fmt: skip
# Only the shape and dtype of the argument matter.
constant(np.zeros_like, np.ones_like, np.empty_like)
ALIKE.update((np.zeros_like, np.ones_like, np.empty_like))
# Of integers, bits and dates: NumPy itself refuses floating point.
constant(
    np.busday_count, np.busday_offset, np.datetime_as_string, np.is_busday, np.isnat,
    np.packbits, np.unpackbits, np.ravel_multi_index, np.unravel_index,
)  # fmt: skip

refuse(
    "would write a traced array to a file, where its gradient ends; pass adarray.value_of(x)",
    np.save, np.savetxt, np.savez, np.savez_compressed,
)  # fmt: skip

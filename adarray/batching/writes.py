"""In-place updates of arrays of members, through views too."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from adarray.base.aval import Symbolic
from adarray.base.op import FUNCTIONS
from adarray.base.runtime import MODE
from adarray.batching.calls import write
from adarray.batching.indices import same_mask
from adarray.batching.values import Batched, as_batched, innermost, raw_of
from adarray.core.dispatch import compute, replay
from adarray.core.inplace import index_hook, members_hook, own_buffer
from adarray.core.trace import Handle


def write_members(root: Handle, steps: tuple[Any, ...], index: Any, v: Any) -> Any:
    """Return the value of `root` with `v` written at an index of a view of it.

    Parameters
    ----------
    root : ADArray
        Owns the memory; it is written into where nobody else relies on it.
    steps : tuple
        From it to the view.
    index : index
    v : array
        Of one member.

    Returns
    -------
    Batched or None
        None if none of these is that of a batch.
    """
    batch = innermost(root._plain, index, v, tuple(s[1:] for s in steps))
    if batch is None:
        return None
    value: Any = root._plain
    if type(value) is not Batched or value.batch.level < batch.level:
        raw = raw_of(value, batch)
        mode = MODE.get()
        plain = type(raw) is np.ndarray and not (mode is not None and mode.symbolic)
        value = as_batched(np.array(raw) if plain else np.copy(raw), batch)
    elif root._frozen:
        own_buffer(root)
        value = root._plain
    if not steps:
        return write(value, index, v)
    if not _is_recorded(value.raw) and not _is_recorded(v):
        target = replay(value, steps)
        if not target.flags.writeable:
            raise ValueError("assignment destination is read-only")
        shared = isinstance(target, np.ndarray) and np.may_share_memory(target, value)
        if shared and write(target, index, v) is target:
            return value  # else the view would be another array: of a batch around, too
    return _by_positions(value, steps, index, v)


def _is_recorded(x: Any) -> bool:
    """Whether the arrays of all members are those of a recording of `jit`, which never change."""
    while type(x) is Batched:
        x = x.raw
    return isinstance(x, Symbolic)


def _by_positions(value: Batched, steps: tuple[Any, ...], index: Any, v: Any) -> Any:
    """Write where no memory is shared: at the positions of elements that views lead to."""
    numbers = np.arange(value.size).reshape(value.shape)
    parts = [s[0].name for s in steps if s[0].name in ("real", "imag")]
    # Numbers of elements have no parts.
    followed = tuple(s for s in steps if s[0].name not in ("astype", "real", "imag"))
    flat = replay(numbers, followed)
    at = compute(FUNCTIONS[operator.getitem], (np.asarray(flat),), {"index": index}, None)
    at = at if type(at) is Batched else np.asarray(at)
    places: Any = np.unravel_index(at, value.shape) if value.shape else Ellipsis
    if parts and value.dtype.kind == "c":
        old = compute(FUNCTIONS[operator.getitem], (value,), {"index": places}, None)
        v = old.real + _times_i(v) if parts[0] == "imag" else v + _times_i(old.imag)
    return write(value, places, v)


def _times_i(x: Any) -> Any:
    """Return a number whose imaginary part is `x`: a product would make infinities nan."""
    odd = np.where(
        x > 0, complex(0, np.inf), np.where(x < 0, complex(0, -np.inf), complex(0, np.nan))
    )
    return np.where(np.isfinite(x), np.multiply(1j, np.where(np.isfinite(x), x, 0)), odd)


def _settled(index: Any) -> Any:
    """Return an index whose masks all members have."""
    if innermost(index) is None:
        return index
    parts = tuple(same_mask(i) for i in (index if type(index) is tuple else (index,)))
    return parts if type(index) is tuple else parts[0]


members_hook.set(write_members)
index_hook.set(_settled)

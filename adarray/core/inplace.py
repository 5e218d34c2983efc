"""In-place updates: writes through indices and views, ``out=``, augmented assignment.

A write moves the written handle to a new node, whose parents are the old node and
the value; nodes never change. Physically the buffer is written in place when
nobody else relies on it, else it is copied first. The reverse rule of a write
hands the cotangent's buffer on with the written region set to zero, so that n
writes into an array of n elements cost O(n), forward and backward.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar, cast

import numpy as np

from adarray.base.aval import ARRAYS, BATCHED, Symbolic, aval_of
from adarray.base.errors import TraceError
from adarray.base.frames import is_frame, unframed
from adarray.base.hooks import Hook
from adarray.base.memory import duplicate
from adarray.base.op import Layout, Op, Scatter
from adarray.base.runtime import MODE
from adarray.base.types import DType, Function
from adarray.core.dispatch import replay, sync
from adarray.core.graph import Node, Steps, merge_spans
from adarray.core.guard import guarded
from adarray.core.mirrors import absorb, is_mirrored, reflect
from adarray.core.refusals import leaves_graph, refuse_whole_numbers
from adarray.core.tangents import attach, tangent_of
from adarray.core.trace import Extras, Handle, Tangent, is_borrowed, root_of, snapshot
from adarray.device import KINDS, adopt, host, is_device

T = TypeVar("T")


def _no_call(*_args: object) -> NoReturn:
    raise AssertionError("a write is recorded by `setitem`, never called")


def _write_transfer(g: Any, node: Node) -> tuple[object, object]:
    """Split the owned cotangent `g` of a write: (for the old array, for the value)."""
    assert node.params is not None
    steps: Steps = node.params["steps"]
    index = node.params["index"]
    part = part_of(steps)
    if part is not None and aval_of(plain_value(g)).dtype.kind != "c":
        g = g.astype(node.aval.dtype)
    region, index = _region(g, steps, index)
    value_g = None
    if node.parents[1] is not None:
        value_g = region[index]
        value_g = value_g.copy() if hasattr(value_g, "copy") else value_g
        if _repeats(index, np.shape(region)):
            # An element written twice keeps the last value: the others had no effect.
            count = np.arange(value_g.size).reshape(value_g.shape)
            values = plain_value(region)
            writer = np.empty(np.shape(region), int)
            if is_device(values) or type(values) in BATCHED:
                writer = np.zeros_like(values, int)
            elif isinstance(values, Symbolic):
                writer = np.zeros_like(region, int)  # an ADArray, into which code can write
            writer[index] = count
            value_g = value_g * (writer[index] == count)
        if part is not None and _part(part) == "imag":  # cotangents are a - ib for a and b
            value_g = -value_g
    region[index] = 0
    return g, value_g


def plain_value(x: object) -> Any:
    """Return the plain value of an ADArray, anything else as it is."""
    return x._plain if isinstance(x, Handle) else x


def _repeats(index: object, shape: tuple[int, ...]) -> bool:
    """Whether an index names an element twice: arrays of integers may."""
    parts = index if isinstance(index, tuple) else (index,)
    if any(
        (is_device(i) or type(i) in BATCHED or isinstance(i, Symbolic))
        and i.dtype.kind in "iu"
        and i.ndim
        for i in parts
    ):
        return True  # it may: to look would take longer than what follows
    if not any(isinstance(i, (np.ndarray, list)) for i in parts):
        return False
    axis, ndim = 0, len(shape)
    indexed = sum(_axes_of(i) for i in parts)
    pointers, lengths = [], []
    for i in parts:
        if i is Ellipsis:
            axis += ndim - indexed
            continue
        if isinstance(i, list):
            i = np.asarray(i, None if i else int)
        if np.ndim(i) == 0 and isinstance(i, (bool, np.bool, np.ndarray)) and _axes_of(i) == 0:
            continue  # a truth value adds an axis of its own
        if isinstance(i, np.ndarray) and i.dtype == bool:
            for k, positions in enumerate(np.nonzero(i)):
                pointers.append(positions)
                lengths.append(shape[axis + k])
        elif isinstance(i, (np.ndarray, int, np.integer)):
            pointers.append(np.asarray(i) % max(shape[axis], 1))
            lengths.append(shape[axis])
        axis += _axes_of(i)
    if not pointers or 0 in lengths:
        return False
    flat = np.ravel_multi_index(np.broadcast_arrays(*pointers), lengths)
    return flat.size > 1 and np.unique(flat).size < flat.size


def _axes_of(i: object) -> int:
    """Return how many axes one part of an index takes."""
    if i is None or i is Ellipsis or isinstance(i, (bool, np.bool)):
        return 0
    if isinstance(i, np.ndarray) and i.dtype == bool:
        return i.ndim
    if isinstance(i, list) and i and np.asarray(i).dtype == bool:
        return np.ndim(i)
    return 1


WRITE = Op("write", _no_call, Scatter(), (None, None), transfer=_write_transfer)


def _region(array: Any, steps: Steps, index: Any) -> tuple[Any, Any]:
    """Return ``(target, index)`` such that ``target[index]`` is the region in `array`'s memory."""
    target = replay(array, steps)
    if not steps or _shares(target, array):
        return target, index
    # The layout steps copied this array (say, a reshape of a transposed one):
    # follow them on element numbers instead.
    shape = np.shape(array._plain if isinstance(array, Handle) else array)
    numbers = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    part = part_of(steps)
    if part is not None:
        array = replay(array, ((part, (), {}),))
    # What changes no places: parts, and casts to the dtype that there is.
    steps = tuple(s for s in steps if s[0] is not part and not _casts(s[0]))
    flat = np.asarray(np.asarray(replay(numbers, steps))[index])
    if not shape:  # the one element or none, in as many dimensions
        return array, (flat.size > 0, *(None,) * (flat.ndim - 1)) if flat.ndim else Ellipsis
    return array, np.unravel_index(flat, shape)


def part_of(steps: Steps) -> Op | None:
    """Return which of the `steps` of a view takes the real or imaginary parts, None if none."""
    return next((op for op, _, _ in steps if _part(op) is not None), None)


def _part(op: Op) -> str | None:
    return op.lower.part if isinstance(op.lower, Layout) else None


def _casts(op: Op) -> bool:
    return isinstance(op.lower, Layout) and op.lower.cast


def _shares(target: object, array: object) -> bool:
    if isinstance(array, Handle):
        return isinstance(target, Handle) and root_of(target) is array
    return isinstance(target, np.ndarray) and np.may_share_memory(target, array)


def plain_index(index: object) -> object:
    """Return an index with ADArrays in it replaced by plain arrays.

    Raises
    ------
    TraceError
        If an index is a traced float.
    """
    if type(index) is int or type(index) is slice:
        return index
    if isinstance(index, Handle):
        sync_if_view(index)
        v = index._plain
        return v.copy() if type(v) in ARRAYS else v
    if isinstance(index, tuple):
        return tuple(plain_index(i) for i in index)
    if isinstance(index, list):
        return [plain_index(i) for i in index]
    if isinstance(index, np.ndarray):
        return index.copy()  # the rule reads it later
    if KINDS and type(index) in KINDS:
        return adopt(index).copy()
    return unframed(index, "index") if is_frame(index) else index


def sync_if_view(x: T) -> T:
    """Bring a view up to date and return it."""
    if (
        isinstance(x, Handle)
        and x._x is not None
        and (x._x.base is not None or x._x.mirror is not None)
    ):
        sync(x)
    return x


# Why an array that the caller made read-only is not written into: in NumPy's words.
READ_ONLY = "assignment destination is read-only"


def setitem(x: Handle, index: object, value: object) -> None:
    """Write ``x[index] = value``; `x` may be a view.

    Raises
    ------
    TraceError
        If a traced value would be written into an array of integers or truth
        values, or into a leaf of `backward()` outside `no_grad`.
    ValueError, IndexError
        NumPy's own, with nothing changed.
    """
    sync_if_view(x)
    sync_if_view(value)
    root = root_of(x)
    peers = root._x.peers if root._x is not None else None
    if x is not root and x._x is not None and x._x.peers is not None:  # of the view itself
        peers = x._x.peers
    if peers is None:
        _write(x, index, value)
        return
    if isinstance(peers, str):
        if peers == READ_ONLY:
            error, mode = ValueError(READ_ONLY), MODE.get()
            if mode is not None and mode.recorder is not None:
                # The argument of another call may be written into.
                mode.recorder.error = error
            raise error
        raise TraceError(f"in-place update: {peers}")
    index = plain_index(index)
    value = snapshot(value) if isinstance(value, Handle) else value
    steps = x._x.steps if x._x is not None else ()
    _write(x, index, value)
    for other in peers:
        if other is not root:
            _write(replay(other, steps), index, value)


def _write(x: Handle, index: object, value: object) -> None:
    """Write into one array, whoever shares its memory."""
    index = plain_index(index)
    root = root_of(x)
    steps = x._x.steps if x._x is not None else ()
    if BATCHED and isinstance(value, Handle) and (value._node is not None or _has_tangents(value)):
        index = index_hook.call(index)
    if (
        isinstance(value, Handle)
        and (value._node is not None or _has_tangents(value))
        and aval_of(root._plain).dtype.kind == "b"
    ):
        value = np.not_equal(cast("Any", value), 0)  # a truth value carries no derivative
    mode = MODE.get()
    recording = mode is None or mode.record
    v = value._plain if isinstance(value, Handle) else value
    node = value._node if isinstance(value, Handle) and recording else None
    _check_target(root, value if node is not None or _has_tangents(value) else None, recording)
    if type(root._plain) is np.ndarray and is_device(v):
        if is_borrowed(root):
            v = host(v)
        else:
            root._plain, root._frozen = (
                v.library.place(root._plain),
                False,
            )  # it follows what it holds
            sync_if_view(x)
    if root is x and isinstance(root._plain, np.generic):
        # Zero-dimensional arrays of the array API can be written into; NumPy's scalars cannot.
        root._plain, root._frozen = np.copy(root._plain), False
    if not isinstance(root._plain, np.ndarray):
        raise TypeError(f"'{type(root._plain).__name__}' object does not support item assignment")
    if not isinstance(x._plain, np.ndarray) or not (x._plain.flags.writeable or _is_kept(root)):
        raise ValueError(READ_ONLY)
    if BATCHED and _write_members(root, x, steps, index, v):
        pass
    elif mode is not None and mode.recorder is not None:
        if is_borrowed(root):  # a later run must write there too
            raise leaves_graph(
                "in-place update of the memory of a plain ndarray of shape "
                f"{np.shape(root._plain)}",
                "write into an array made by a NumPy function inside of the jitted function",
            )
        root._plain, root._frozen = mode.recorder.write(root._plain, steps, index, v), True
    else:
        absorb(root)
        own_buffer(root)
        target = replay(root._plain, steps)
        if not target.flags.writeable:  # a view that is read-only by itself, as of a broadcast
            raise ValueError(READ_ONLY)
        target[index] = v
        reflect(root)
    if recording and (node is not None or root._node is not None):
        parents = (root._node, node)
        spans = [p.span for p in parents if p is not None]
        span = spans[0] if len(spans) == 1 else merge_spans(*spans)
        aval = root._node.aval if root._node is not None else aval_of(root._plain)
        saved = (None, None, aval_of(v))
        root._node = Node(WRITE, parents, saved, {"steps": steps, "index": index}, aval, span)
    if recording:
        _write_tangents(root, steps, index, value)


# Writes for all members of a batch: ``(root, steps, index, value)``; None if there are none.
members_hook: Hook[Function] = Hook("adarray.batching.writes")
# Returns an index with masks that are the same for all members, which rules read later.
index_hook: Hook[Callable[[object], object]] = Hook("adarray.batching.writes")


def _write_members(root: Handle, x: Handle, steps: Steps, index: object, v: object) -> bool:
    """Write where the target, the index or the value is that of a batch; return whether one is."""
    written = members_hook.call(root, steps, index, v)
    if written is None:
        return False
    if is_borrowed(root):
        raise leaves_graph(
            "vmap: in-place update of the memory of a plain ndarray of shape "
            f"{np.shape(root._plain)}",
            "return the value, or write into an array made in the function that vmap takes",
        )
    root._plain, root._frozen = written, False
    sync_if_view(x)
    return True


def _has_tangents(value: object) -> bool:
    return isinstance(value, Handle) and value._x is not None and bool(value._x.tangents)


def _check_target(root: Handle, traced: object, recording: bool) -> None:
    """Raise if a write into `root` is not allowed or would lose a gradient."""
    if recording and root._x is not None and root._x.slot is not None:
        raise TraceError(
            "in-place update: the array is a leaf with requires_grad=True, and writing into it "
            "would lose the place of its gradient; update it under `with adarray.no_grad():`, "
            "or work on x.copy()"
        )
    if traced is not None and (is_borrowed(root) or is_mirrored(root)):
        raise leaves_graph(
            f"in-place update of the memory of a plain ndarray of shape {np.shape(root._plain)}",
            "write into a copy (np.copy(x)) or into an array made inside of intercept",
        )
    if traced is not None:
        refuse_whole_numbers(aval_of(root._plain).dtype)


def _is_kept(root: Handle) -> bool:
    """Whether the buffer is read-only for our reasons: a write copies it first.

    It is a plain array that is saved for the rules, or an input, which is never written.
    """
    return root._frozen and (isinstance(root._plain, Symbolic) or guarded(root._plain))


def own_buffer(root: Handle) -> None:
    """Give `root` a buffer that nobody else relies on."""
    if root._frozen:
        v, copy = root._plain, duplicate(root._plain)
        if type(v) is np.ndarray and v.base is not None and copy.base is None:
            copy = copy[...]  # code may ask whether it owns its memory
        root._plain, root._frozen = copy, False


def _write_tangents(root: Handle, steps: Steps, index: object, value: object) -> None:
    """Write the tangents of `value` into those of `root`, for every level that either has."""
    levels = {
        t.level
        for h in (root, value)
        if isinstance(h, Handle) and h._x is not None
        for t in h._x.tangents
    }
    for level in sorted(levels):
        if tangent_of(root, level) is None:
            attach(root, level, np.zeros_like(root._plain))
        assert root._x is not None
        entry: Tangent = next(t for t in root._x.tangents if t.level == level)
        tangent = entry.value if entry.owned else snapshot(entry.value)
        if isinstance(tangent._plain, np.ndarray) and not tangent._plain.flags.writeable:
            # A rule gave a read-only view, such as a diagonal or a broadcast.
            tangent._plain, tangent._frozen = tangent._plain.copy("K"), False
        elif isinstance(tangent._plain, np.generic):  # it has no memory that views could share
            tangent._plain, tangent._frozen = np.copy(tangent._plain), False
        # A new tuple each time: that tells views of `root` to look again.
        if aval_of(tangent._plain).dtype.kind != "c" and part_of(steps) is not None:
            tangent = tangent.astype(aval_of(root._plain).dtype)  # type: ignore[attr-defined]
        entry = Tangent(level, tangent, owned=True)
        root._x.tangents = tuple(entry if t.level == level else t for t in root._x.tangents)
        t_value = tangent_of(value, level)
        target, where = _region(entry.value, steps, index)
        target[where] = 0 if t_value is None else t_value


def assign(x: Handle, result: Any, casting: str = "same_kind") -> Handle:
    """Make `x` hold `result`, as ``x[...] = result`` or ``out=x`` would, and return `x`.

    Raises
    ------
    ValueError
        If the shapes differ.
    TypeError
        If the dtypes do not cast under NumPy's rule `casting`.
    """
    sync_if_view(x)
    sync_if_view(result)
    v = result._plain if isinstance(result, Handle) else result
    if np.shape(v) != np.shape(x._plain):
        raise ValueError(
            f"non-broadcastable output operand with shape {np.shape(x._plain)} "
            f"doesn't match the broadcast shape {np.shape(v)}"
        )
    to = aval_of(x._plain).dtype
    check_cast(aval_of(v).dtype, to, casting)
    tied = x._x is not None and (x._x.base is not None or x._x.peers is not None or is_borrowed(x))
    if tied or not isinstance(result, Handle) or aval_of(v).dtype != to:
        setitem(x, Ellipsis, result)
        return x
    mode = MODE.get()
    recording = mode is None or mode.record
    _check_target(x, None, recording)
    if v.__class__ is not np.ndarray or not recording or v.strides != x._plain.strides:
        setitem(x, Ellipsis, result)  # elements stay where they lie: see `duplicate`
        return x
    if not (x._plain.flags.writeable or _is_kept(x)):
        raise ValueError("output array is read-only")
    move(x, result)
    return x


def check_cast(source: DType, to: DType, casting: str) -> None:
    """Raise the error of NumPy's if a result may not be cast to the dtype of ``out=``.

    Raises
    ------
    TypeError
    """
    if not np.can_cast(source, to, casting):  # type: ignore[arg-type]
        raise TypeError(
            f"Cannot cast in-place output from {source} to {to} with casting rule '{casting}'"
        )


def move(x: Handle, result: Handle) -> None:
    """Move the handle `x`, which is no view, to the value and node of `result`."""
    fresh = result if result._x is None else snapshot(result)
    x._plain, x._node, x._frozen = fresh._plain, fresh._node, fresh._frozen
    reflect(x)
    tangents = fresh._x.tangents if fresh._x is not None else ()
    if x._x is not None:
        x._x.tangents = tangents
    elif tangents:
        x._x = Extras(tangents=tangents)


def augmented(x: Handle, result: Handle) -> object:
    """Finish ``x op= y``, given ``result = x op y``: in place for arrays, as NumPy does."""
    if x._plain.__class__ is not np.ndarray:
        return result  # NumPy scalars and Python numbers are immutable: the name is rebound
    return assign(x, result)

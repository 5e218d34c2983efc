"""Arguments of a transform that are one array, or share memory.

Each position is a variable of its own; what is written into one is written into the others.
"""

from __future__ import annotations

import inspect
import types
from typing import Any, NamedTuple

import numpy as np

from adarray.base.aliasing import overlaps, owner, share
from adarray.base.aval import Symbolic
from adarray.base.errors import TraceError
from adarray.base.levels import INPUTS
from adarray.base.redirecting import all_names, original_of
from adarray.base.runtime import MODE
from adarray.core.comparing import Comparing, bound_to, comparing
from adarray.core.guard import guarded
from adarray.core.holding import arrays_of, captured_last, functions_of
from adarray.core.inplace import READ_ONLY
from adarray.core.reaching import Site, sites
from adarray.core.trace import Extras, Handle, root_of

_FEW = 64  # items of a list that are looked at


class ArgumentPlace(NamedTuple):
    """One array among the arguments.

    Parameters
    ----------
    where : str
        For errors.
    array : ndarray or ADArray
        What the caller passed.
    handle : ADArray or None
        What the function gets, if it is differentiated.
    """

    where: str
    array: Any
    handle: Handle | None


class Refusal(str):
    """Why an ADArray is not written into: it shares memory with others of its kind.

    Attributes
    ----------
    memory : int
        What they have in common, as `_memory` tells it.
    array : ndarray or ADArray
        What the caller passed.
    """

    memory = 0
    array: Any = None


def _memory(x: Any) -> int:
    """Return a key that arrays share which may share memory."""
    if isinstance(x, Handle):
        root = root_of(x)
        peers = root._x.peers if root._x is not None else None
        if isinstance(peers, Refusal):
            return peers.memory
        return id(root) if not isinstance(peers, list) else id(peers)
    return id(x) if x.base is None else id(owner(x))


def tie(f: Any, places: list[ArgumentPlace]) -> list[tuple[ArgumentPlace, np.ndarray]]:
    """Let handles of one array follow each other; others that share memory refuse writes.

    Returns
    -------
    list of (ArgumentPlace, ndarray)
        Plain arrays that must not change while the function runs, and what they hold.

    Raises
    ------
    TraceError
        If one array is there twice and the function asks with ``is``.
    """
    groups: dict[int, list[ArgumentPlace]] = {}
    for p in places:
        groups.setdefault(_memory(p.array), []).append(p)
    copies: list[tuple[ArgumentPlace, np.ndarray]] = []
    for group in groups.values():
        if len(group) > 1 and any(p.handle is not None for p in group):
            _tie_one(f, group, copies)
    return copies


def _tie_one(
    f: Any, group: list[ArgumentPlace], copies: list[tuple[ArgumentPlace, np.ndarray]]
) -> None:
    first = group[0]
    same = all(_is_one(p.array, first.array) for p in group)
    for k, p in enumerate(group):
        if asks_identity(f) and any(p.array is q.array for q in group[:k]):
            raise TraceError(
                f"{p.where} and {first.where} are one array, and the function asks which objects "
                "they are; "
                "as inputs of a derivative they are two; pass a copy of one of them"
            )
    if same and all(p.handle is not None for p in group):
        peers = [p.handle for p in group]
        for p in group:
            _give(p.handle, peers)
        return
    for p in group:
        other = next((q for q in group if q is not p and _may_share(p.array, q.array)), None)
        if other is None:
            continue
        if p.handle is not None:
            refusal = Refusal(
                f"{p.where} shares memory with {other.where}, where a write into it would not be "
                "seen; pass a copy of one of them"
            )
            refusal.memory = _memory(p.array)
            refusal.array = p.array
            _give(p.handle, refusal)
        elif type(p.array) is np.ndarray and other.handle is not None:
            copies.append((p, p.array.copy()))


def _is_one(x: Any, y: Any) -> bool:
    """Whether two arguments are one array, or ADArrays that follow each other."""
    if x is y:
        return True
    return isinstance(x, Handle) and isinstance(y, Handle) and _follows(x) and _follows(y)


def _follows(x: Handle) -> bool:
    return root_of(x) is x and not (x._x is not None and isinstance(x._x.peers, Refusal))


def _may_share(x: Any, y: Any) -> bool:
    return isinstance(x, Handle) or isinstance(y, Handle) or share(x, y)


def _give(handle: Handle | None, peers: Any) -> None:
    assert handle is not None
    x = handle._x
    handle._x = Extras(tangents=x.tangents, weak=x.weak) if x is not None else Extras()
    handle._x.peers = peers


def remember(name: str, level: int, inputs: list[tuple[int, Any, Handle, Any]]) -> None:
    """Let what stands for arguments lie where they do, and refuse the writes that they refuse.

    Parameters
    ----------
    name : str
        For errors.
    level : int
        Of the trace.
    inputs : list of (int, object, ADArray, object)
        See `refuse_unseen`.
    """
    INPUTS[level] = inputs
    for k, array, handle, _ in inputs:
        if type(array) is np.ndarray:
            flags = array.flags
            if flags.writeable and flags.forc:
                continue
        why = _refused(f"{name} {k}", array, handle)
        if why:
            refusal = Refusal(why)
            refusal.memory = _memory(array)
            refusal.array = array
            _give(handle, refusal)


def _refused(where: str, array: Any, handle: Handle) -> str:
    """Return why an argument is not written into, "" if it may be."""
    if isinstance(array, Handle):
        extra = root_of(array)._x
        return READ_ONLY if extra is not None and extra.peers == READ_ONLY else ""
    if type(array) not in (np.ndarray, np.memmap):
        return ""
    if not array.flags.writeable and not guarded(array):
        return READ_ONLY
    if overlaps(array) and (handle._x is None or handle._x.peers is None):
        return (
            f"{where} has elements that share memory, where a write into one would not be seen in "
            "the others; pass a copy"
        )
    return ""


def check_copies(copies: list[tuple[ArgumentPlace, np.ndarray]]) -> None:
    """Raise if the function wrote into an array that shares memory with a differentiated one."""
    for place, before in copies:
        if place.array.tobytes() != before.tobytes():
            raise TraceError(
                f"{place.where} was written into, and shares memory with an argument that is "
                "differentiated, where this is not seen; pass a copy of one of them"
            )


def refuse_captured(f: Any, where: str, array: Any, why: str) -> None:
    """Raise if an argument shares memory with an array that the function captured.

    Raises
    ------
    TraceError
    """
    for name, x in arrays_of(f):
        if _shared(x, array):
            raise TraceError(
                f"{where} {why}, and shares memory with {name or 'an array'} that the function "
                "captured, where this is not seen; pass a copy, or the captured array as an "
                "argument, too"
            )


def _shared(x: Any, y: Any) -> bool:
    """Whether two arrays have memory in common, or are views of one ADArray."""
    if isinstance(x, Handle) and isinstance(y, Handle):
        return root_of(x) is root_of(y)
    return share(x, y)


def refuse_unseen(f: Any, what: str, triples: list[tuple[int, Any, Handle, Any]]) -> None:
    """Raise if what an argument holds was, or may have been, seen or written by another way.

    Parameters
    ----------
    f : callable
    what : str
        For errors, such as "grad: argument".
    triples : list of (int, object, ADArray, object)
        For errors; what the caller passed; what the function got; what that held.

    Raises
    ------
    TraceError
    """
    compared = sites(f)
    comparison = by(f) if compared or type(f) is not types.FunctionType else ""
    for k, array, handle, before in triples:
        written = handle._plain is not before
        if type(array) is np.ndarray and type(before) is np.ndarray:
            if not (before is array or before.dtype != array.dtype or _alike(before, array)):
                raise TraceError(
                    f"{what} {k} was written into while the function ran, not by the name of the "
                    "argument: it shares memory with an array that the function captured, where "
                    "this is not seen; pass a copy, or write into the argument"
                )
        elif isinstance(array, Handle) and array._plain is not before:
            raise TraceError(
                f"{what} {k} was written into while the function ran, not by the name of the "
                "argument, where this is not seen; pass a copy, or write into the argument"
            )
        if written:
            mode = MODE.get() if isinstance(before, Symbolic) else None
            if mode is not None and mode.recorder is not None:
                mode.recorder.touched()
            if type(before) is np.ndarray or isinstance(array, Handle):
                refuse_captured(f, f"{what} {k}", array, "was written into")
        elif comparison and type(array) is np.ndarray:
            refuse_captured(f, f"{what} {k}", array, f"may be compared by {comparison}")
        if compared:
            _refuse_compared(f, f"{what} {k}", array, compared)


# Bytes from which comparing elements is cheaper than making copies for NumPy's ``tobytes``.
_MANY = 1 << 13


def _alike(x: np.ndarray, y: np.ndarray) -> bool:
    """Whether arrays of one dtype hold the same bytes."""
    if x.nbytes < _MANY or x.dtype.kind not in "fc" or x.itemsize % 8:
        return x.tobytes() == y.tobytes()
    if not (x.flags.c_contiguous and y.flags.c_contiguous):
        return x.tobytes() == y.tobytes()
    return bool(np.array_equal(x.view(np.int64), y.view(np.int64)))  # nan is like itself


def by(f: Any) -> str:
    """Return the operation by which a function compares arrays as objects; "" if by none."""
    code = getattr(f, "__code__", None)
    if code is None:
        code = getattr(inspect.unwrap(f), "__code__", None) if hasattr(f, "__wrapped__") else None
    return "" if code is None else comparing(code).by


def asks_identity(f: Any) -> bool:
    """Whether a function, or one that it calls, compares arrays as objects."""
    return bool(by(f)) or any(comparing(g.__code__).by for g in functions_of(f) if g is not f)


def _refuse_compared(f: Any, where: str, array: Any, compared: list[Site]) -> None:
    """Raise if code that the function reaches may compare an argument with a captured array."""
    for reference, what in compared:
        g = f if reference is None else reference()
        values = _named(g, what)
        if what.attributes:
            values += [(n, x) for n, x in arrays_of(f) if n.rpartition(".")[2] in what.attributes]
        for name, x in values:
            if x is array or (what.sharing and _shared(x, array)):
                inside = getattr(g, "__qualname__", "the function")
                like = "is" if x is array else "shares memory with"
                raise TraceError(
                    f"{where} {like} {name or 'an array'} that {inside} captured, and may be "
                    f"compared with it by {what.by}, where they are two; pass a copy, or the "
                    "captured array as an argument, too"
                )


def _named(g: Any, what: Comparing) -> list[tuple[str, Any]]:
    """Return the captured values that a function compares: by these names, or by any."""
    while type(g) is types.MethodType:
        g = g.__func__
    if type(g) is not types.FunctionType:
        return []
    code = original_of(g.__code__)
    cells = dict(zip(code.co_freevars, captured_last(g), strict=False))
    names = what.names if not what.locals else [*all_names(code), *cells]
    values: list[tuple[str, Any]] = [
        (n, cells[n] if n in cells else bound_to(g.__globals__, n)) for n in names
    ]
    if what.locals:
        defaults = captured_last(g)[len(code.co_freevars) :]
        values += [("a default", x) for x in defaults]
    for n, x in tuple(values):
        if type(x) in (list, tuple, dict) and len(x) <= _FEW:
            values += [(n, y) for y in (x.values() if type(x) is dict else x)]
    return values

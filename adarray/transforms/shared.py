"""Arguments of a transform that are one array, or share memory.

Each position is a variable of its own; what is written into one is written into the others.
"""

from __future__ import annotations

import builtins
import dis
import inspect
import types
from typing import Any, NamedTuple

import numpy as np

from adarray.aliasing import owner, share
from adarray.aval import Symbolic
from adarray.errors import TraceError
from adarray.reaching import arrays_of, functions_of
from adarray.redirecting import Noted, all_names, original_of
from adarray.runtime import MODE
from adarray.trace import Extras, Handle, root_of


class Place(NamedTuple):
    """One array among the arguments.

    Parameters
    ----------
    where : str
        For errors.
    given : ndarray or ADArray
        What the caller passed.
    handle : ADArray or None
        What the function gets, if it is differentiated.
    """

    where: str
    given: Any
    handle: Handle | None


class Refusal(str):
    """Why an ADArray is not written into: it shares memory with others of its kind.

    Attributes
    ----------
    memory : int
        What they have in common, as `_memory` tells it.
    """

    memory = 0


def _memory(x: Any) -> int:
    """Return what arrays have in common that may share memory."""
    if isinstance(x, Handle):
        root = root_of(x)
        peers = root._x.peers if root._x is not None else None
        if isinstance(peers, Refusal):
            return peers.memory
        return id(root) if not isinstance(peers, list) else id(peers)
    return id(x) if x.base is None else id(owner(x))


def tie(f: Any, places: list[Place]) -> list[tuple[Place, np.ndarray]]:
    """Let handles of one array follow each other; others that share memory refuse writes.

    Returns
    -------
    list of (Place, ndarray)
        Plain arrays that must not change while the function runs, and what they hold.

    Raises
    ------
    TraceError
        If one array is there twice and the function asks with ``is``.
    """
    groups: dict[int, list[Place]] = {}
    for p in places:
        groups.setdefault(_memory(p.given), []).append(p)
    held: list[tuple[Place, np.ndarray]] = []
    for group in groups.values():
        if len(group) > 1 and any(p.handle is not None for p in group):
            _tie_one(f, group, held)
    return held


def _tie_one(f: Any, group: list[Place], held: list[tuple[Place, np.ndarray]]) -> None:
    first = group[0]
    same = all(_is_one(p.given, first.given) for p in group)
    for k, p in enumerate(group):
        if asks_identity(f) and any(p.given is q.given for q in group[:k]):
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
        other = next((q for q in group if q is not p and _may_share(p.given, q.given)), None)
        if other is None:
            continue
        if p.handle is not None:
            refusal = Refusal(
                f"{p.where} shares memory with {other.where}, where a write into it would not be "
                "seen; pass a copy of one of them"
            )
            refusal.memory = _memory(p.given)
            _give(p.handle, refusal)
        elif type(p.given) is np.ndarray and other.handle is not None:
            held.append((p, p.given.copy()))


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


def check_held(held: list[tuple[Place, np.ndarray]]) -> None:
    """Raise if the function wrote into an array that shares memory with what is differentiated."""
    for place, before in held:
        if place.given.tobytes() != before.tobytes():
            raise TraceError(
                f"{place.where} was written into, and shares memory with an argument that is "
                "differentiated, where this is not seen; pass a copy of one of them"
            )


def refuse_captured(f: Any, where: str, given: Any, why: str) -> None:
    """Raise if an argument shares memory with an array that the function captured.

    Raises
    ------
    TraceError
    """
    for name, x in arrays_of(f):
        if share(given, x) or (isinstance(given, Handle) and _is_view(x, given)):
            raise TraceError(
                f"{where} {why}, and shares memory with {name or 'an array'} that the function "
                "captured, where this is not seen; pass a copy, or the captured array as an "
                "argument, too"
            )


def _is_view(x: Any, of: Handle) -> bool:
    return isinstance(x, Handle) and root_of(x) is root_of(of)


def refuse_unseen(f: Any, triples: list[tuple[str, Any, Handle, Any]]) -> None:
    """Raise if what an argument holds was, or may have been, seen or written by another way.

    Parameters
    ----------
    f : callable
    triples : list of (str, object, ADArray, object)
        For errors; what the caller passed; what the function got; what that held.

    Raises
    ------
    TraceError
    """
    asks = _asks_about_objects(f)
    for where, given, handle, before in triples:
        if isinstance(before, Symbolic) and handle._v is not before:
            mode = MODE.get()
            if mode is not None and mode.symbolic:
                mode.engine.touched()  # type: ignore[union-attr]
        if isinstance(given, Handle) and given._v is not before:
            raise TraceError(
                f"{where} was written into while the function ran, not by the name of the "
                "argument, where this is not seen; pass a copy, or write into the argument"
            )
        if isinstance(given, Handle) and handle._v is not before:
            refuse_captured(f, where, given, "was written into")
        if type(given) is not np.ndarray or type(before) is not np.ndarray:
            continue
        same = before is given or before.dtype != given.dtype
        if not same and before.tobytes() != given.tobytes():
            raise TraceError(
                f"{where} was written into while the function ran, not by the name of the "
                "argument: it shares memory with an array that the function captured, where this "
                "is not seen; pass a copy, or write into the argument"
            )
        if handle._v is not before:
            refuse_captured(f, where, given, "was written into")
        elif asks:
            refuse_captured(f, where, given, f"may be compared by {asks}")


def _asks_about_objects(f: Any) -> str:
    """Return by what the code of a function compares arrays as objects; "" if by nothing."""
    code = getattr(f, "__code__", None)
    if code is None:
        code = getattr(inspect.unwrap(f) if callable(f) else f, "__code__", None)
    return "" if code is None else _asking(code)


_ASKING = ("id", "is_", "is_not", "shares_memory", "may_share_memory")


# By the identity of code, whose hash takes longer than all else here.
_found = Noted()


def _asking(code: types.CodeType) -> str:
    found: str | None = _found.get(code)
    if found is None:
        original = original_of(code)
        names = all_names(original)
        found = "`is`" if _asks(original) else next((n for n in _ASKING if n in names), "")
        _found.note(code, found)
    return found


def asks_identity(f: Any) -> bool:
    """Whether a function, or one that it calls, compares arrays as objects."""
    return bool(_asks_about_objects(f)) or any(
        _asking(g.__code__) for g in functions_of(f) if g is not f
    )


def _asks(code: types.CodeType) -> bool:
    before = None
    for i in dis.get_instructions(code):
        if i.opname == "IS_OP" and before is not None and not _is_no_array(before):
            return True
        if i.opname not in ("CACHE", "EXTENDED_ARG"):
            before = i
    return any(_asks(c) for c in code.co_consts if isinstance(c, types.CodeType))


def _is_no_array(loaded: dis.Instruction) -> bool:
    """Whether an instruction pushes a constant or a class: ``x is None``, ``type(x) is float``."""
    name = str(loaded.argval)
    return "CONST" in loaded.opname or (
        loaded.opname in ("LOAD_GLOBAL", "LOAD_ATTR")
        and any(isinstance(getattr(m, name, None), type) for m in (builtins, np))
    )

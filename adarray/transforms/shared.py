"""Arguments of a transform that are one array, or share memory.

Each position is a variable of its own; what is written into one is written into the others.
"""

from __future__ import annotations

import dis
import inspect
import types
from typing import Any, NamedTuple

import numpy as np

from adarray.aliasing import owner, share
from adarray.errors import TraceError
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


def _memory(x: Any) -> int:
    """Return what arrays have in common that may share memory."""
    if isinstance(x, Handle):
        root = root_of(x)
        peers = root._x.peers if root._x is not None else None
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
                f"{p.where} and {first.where} are one array, and the function asks with `is`; "
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
            _give(
                p.handle,
                f"{p.where} shares memory with {other.where}, where a write into it would not be "
                "seen; pass a copy of one of them",
            )
        elif type(p.given) is np.ndarray and other.handle is not None:
            held.append((p, p.given.copy()))


def _is_one(x: Any, y: Any) -> bool:
    """Whether two arguments are one array, or ADArrays that follow each other."""
    return x is y or (isinstance(x, Handle) and isinstance(y, Handle)
                      and root_of(x) is x and root_of(y) is y)  # fmt: skip


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


def asks_identity(f: Any) -> bool:
    """Whether the code of a function compares objects other than constants by ``is``."""
    code = getattr(inspect.unwrap(f) if callable(f) else f, "__code__", None)
    return code is not None and _asks(code)


def _asks(code: types.CodeType) -> bool:
    before = None
    for i in dis.get_instructions(code):
        if i.opname == "IS_OP" and not (before is not None and "CONST" in before.opname):
            return True
        if i.opname not in ("CACHE", "EXTENDED_ARG"):
            before = i
    return any(_asks(c) for c in code.co_consts if isinstance(c, types.CodeType))

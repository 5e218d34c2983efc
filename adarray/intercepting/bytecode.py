"""What a frame does next, and what functions do with a global, read off CPython's bytecode."""

from __future__ import annotations

import dis
import sys
import types
from collections.abc import Iterator
from types import FrameType

from adarray.base.redirecting import decorates, is_callee

_STORE_GLOBAL = dis.opmap["STORE_GLOBAL"]
_CACHE = dis.opmap["CACHE"]
_PARTS = {_CACHE, dis.EXTENDED_ARG}  # of the instruction before or after
_LOAD_ATTR = dis.opmap["LOAD_ATTR"]
_LOAD_METHOD = dis.opmap.get("LOAD_METHOD", -1)
_LOAD_GLOBAL = dis.opmap["LOAD_GLOBAL"]
_PUSH_NULL = dis.opmap["PUSH_NULL"]


def _before(code: bytes, at: int) -> int:
    """Return the offset of the instruction before the one at `at`, -1 if there is none."""
    at -= 2
    while at >= 0 and code[at] in _PARTS:
        at -= 2
    return at


def is_called(frame: FrameType) -> bool:
    """Whether `frame` loads an attribute in order to call it.

    CPython marks it: by LOAD_METHOD or the lowest bit of LOAD_ATTR for a method
    call, and by a NULL below or above the function for others, but for decorators.
    """
    code, at = frame.f_code.co_code, frame.f_lasti
    if at < 0:
        return False
    if code[at] == _CACHE:  # a specialised LOAD_ATTR (3.12) calls us from behind itself
        at = _before(code, at)
    if code[at] == _LOAD_METHOD:
        return True
    if code[at] != _LOAD_ATTR:
        return False
    if sys.version_info >= (3, 12) and code[at + 1] & 1:
        return True
    if decorates(code, at + 2):
        return True
    if sys.version_info >= (3, 13):
        after = at + 2
        while after < len(code) and code[after] == _CACHE:
            after += 2
        return after < len(code) and code[after] == _PUSH_NULL
    load = _before(code, at)
    if load >= 0 and code[load] == _LOAD_GLOBAL:
        nulled = bool(code[load + 1] & 1)
    else:
        null = _before(code, load)
        nulled = null >= 0 and code[null] == _PUSH_NULL
    return nulled and is_callee(code, at + 2)


def is_dotted(frame: FrameType) -> bool:
    """Whether `frame` loads an attribute in order to take an attribute of it."""
    code, at = frame.f_code.co_code, frame.f_lasti + 2
    while at < len(code) and code[at] in _PARTS:
        at += 2
    return at < len(code) and code[at] in (_LOAD_ATTR, _LOAD_METHOD)


def assigned_globals(code: types.CodeType) -> Iterator[str]:
    """Yield the names of the globals that a function assigns."""
    text = code.co_code
    if _STORE_GLOBAL not in text[::2]:
        return
    argument = 0
    for at in range(0, len(text), 2):
        op, argument = text[at], argument | text[at + 1]
        if op == _STORE_GLOBAL:
            yield code.co_names[argument]
        argument = argument << 8 if op == dis.EXTENDED_ARG else 0

"""Functions whose calls of some globals go through an object of ours, by their bytecode.

A function that calls ``float(x)`` gets a copy of its code in which that load, and no
other, pushes ``~load``: a constant that looks the name up where the function does, and
answers with what is to be called there *now*. The global itself stays what it is, so that
code which looks at it (``type(v) is float``, ``dtype=float``, ``class X(float)``), other
threads, and everything outside of a transform meet the class alone.

The load takes the place of LOAD_GLOBAL and its cache entries: offsets, lines, jumps and
exception tables stay. What reads the names of a function off its code (cloudpickle,
`inspect.getclosurevars`, our own walk over captured state) finds them in instructions at
the end that are never reached.
"""

from __future__ import annotations

import dis
import sys
import types
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from adarray.handlers import has_handlers, telling, without_lines

_LOAD_GLOBAL = dis.opmap["LOAD_GLOBAL"]
_LOAD_CONST = dis.opmap["LOAD_CONST"]
_EXTENDED_ARG = dis.opmap["EXTENDED_ARG"]
_INVERT = dis.opmap["UNARY_INVERT"]
_PUSH_NULL = dis.opmap["PUSH_NULL"]
_POP_TOP = dis.opmap["POP_TOP"]
_NOP = dis.opmap["NOP"]
_CACHE = dis.opmap["CACHE"]
_ATTRIBUTE = {dis.opmap["LOAD_ATTR"], dis.opmap.get("LOAD_METHOD", -1)}
_NULL_FIRST = sys.version_info < (3, 13)  # the NULL of a call lies below the function

_CALLS = {dis.opmap.get("PRECALL", dis.opmap["CALL"])}
_CALL_EX = dis.opmap["CALL_FUNCTION_EX"]
_FOR_ITER = dis.opmap["FOR_ITER"]
_JUMP_FORWARD = dis.opmap["JUMP_FORWARD"]
_ENDS = {dis.opmap.get(n, -1) for n in ("JUMP_BACKWARD", "RETURN_VALUE", "RAISE_VARARGS", "SEND")}
# Instructions that push one value for those that they take.
_ONE = {
    op for name, op in dis.opmap.items()
    if name.startswith(("BUILD_", "BINARY_", "COMPARE_OP", "IS_OP", "CONTAINS_OP", "LOAD_ATTR",
                        "UNARY_", "FORMAT_VALUE", "GET_", "MAKE_FUNCTION", "LIST_TO_TUPLE", "CALL"))
}  # fmt: skip

# ``make(name, how)`` returns what answers for a load; None leaves it. `how` is "call",
# "attribute" (an attribute is taken of it next) or "look".
Maker = Callable[[str, str], Any]


class Noted:
    """Values by the identity of objects that compare by value or not at all, while they live."""

    def __init__(self) -> None:
        self._entries: dict[int, tuple[weakref.ref[Any], Any]] = {}

    def get(self, obj: Any) -> Any:
        """Return what was noted of `obj`; None if nothing was."""
        entry = self._entries.get(id(obj))
        return entry[1] if entry is not None and entry[0]() is obj else None

    def note(self, obj: Any, value: Any) -> Any:
        """Note and return `value`, which must not hold `obj`."""
        key, pop = id(obj), self._entries.pop
        self._entries[key] = weakref.ref(obj, lambda _: pop(key, None)), value
        return value


_originals = Noted()  # of copies: what they are copies of
_copies = Noted()  # of originals: their copies, by what was redirected
_names = Noted()
_handling = Noted()


def original_of(code: types.CodeType) -> types.CodeType:
    """Return the code that the user wrote, of which `code` may be a copy of ours."""
    found: types.CodeType | None = _originals.get(code)
    return code if found is None else found


def all_names(code: types.CodeType) -> frozenset[str]:
    """Return the names of globals and attributes in a code object and those nested in it."""
    found: frozenset[str] | None = _names.get(code)
    if found is None:
        nested = [all_names(c) for c in code.co_consts if isinstance(c, types.CodeType)]
        found = _names.note(code, frozenset(code.co_names).union(*nested))
    return found


def handles(code: types.CodeType) -> bool:
    """Whether code, or code nested in it, handles errors."""
    found: bool | None = _handling.get(code)
    if found is None:
        nested = [handles(c) for c in code.co_consts if isinstance(c, types.CodeType)]
        found = _handling.note(code, has_handlers(code) or any(nested))
    return found


def redirect(
    function: types.FunctionType, names: Iterable[str], make: Maker, key: Any, told: Any = None
) -> None:
    """Redirect the loads of `names` in a function and the functions nested in it.

    Parameters
    ----------
    function : function
        Gets another code object, unless none of its loads is meant.
    names : iterable of str
        Globals.
    make : callable
        See `Maker`.
    key : hashable
        Equal for equal makers.
    told : object, optional
        ``~told`` is evaluated at the start of each handler of errors.
    """
    code = _copy(original_of(function.__code__), frozenset(names), make, key, told)
    if code is not function.__code__:
        function.__code__ = code


def _copy(
    code: types.CodeType, names: frozenset[str], make: Maker, key: Any, told: Any
) -> types.CodeType:
    wanted = all_names(code) & names
    tells = told is not None and handles(code)
    if not wanted and not tells:
        return code
    copies = _copies.get(code)
    if copies is None:
        copies = _copies.note(code, weakref.WeakValueDictionary())
    known: types.CodeType | None = copies.get((wanted, key, tells))
    if known is not None:
        return known
    changes: dict[str, Any] = {}
    if not wanted.isdisjoint(code.co_names):
        changes = _redirected(code, wanted, make)
    constants = changes.get("co_consts", code.co_consts)
    nested = tuple(
        _copy(c, wanted, make, key, told) if isinstance(c, types.CodeType) else c for c in constants
    )
    if any(a is not b for a, b in zip(nested, constants, strict=True)):
        changes["co_consts"] = nested
    copy = code.replace(**changes) if changes else code
    if tells and has_handlers(code):
        copy = telling(copy, told)
    if copy is code:
        return code
    copies[wanted, key, tells] = copy
    _originals.note(copy, code)
    return copy


def _redirected(code: types.CodeType, names: frozenset[str], make: Maker) -> dict[str, Any]:
    """Return what changes of a code object; nothing, if none of its loads is meant."""
    text = bytearray(code.co_code)
    ops = bytes(text[::2])
    constants = list(code.co_consts)
    places: dict[tuple[str, str], int] = {}  # of the objects among the constants
    used: dict[int, None] = {}
    at = ops.find(_LOAD_GLOBAL)
    while at >= 0:
        first, argument = at, text[2 * at + 1]
        while first and ops[first - 1] == _EXTENDED_ARG:
            first -= 1
            argument |= text[2 * first + 1] << 8 * (at - first)
        end = at + 1
        while end < len(ops) and ops[end] == _CACHE:
            end += 1
        name = code.co_names[argument >> 1]
        if name in names:
            called = bool(argument & 1)  # a NULL is pushed: for a call of it, or of its attribute
            how = "call" if called else "look"
            following = end
            while ops[following] == _EXTENDED_ARG:
                following += 1
            if ops[following] in _ATTRIBUTE:
                how = "attribute"
            elif called and _NULL_FIRST and not is_callee(code.co_code, 2 * end):
                how = "look"
            place = places.get((name, how))
            if place is None:
                load = make(name, how)
                place = -1 if load is None else len(constants)
                places[name, how] = place
                if load is not None:
                    constants.append(load)
            if place >= 0:
                _put(text, first, end, place, called)
                used[argument >> 1] = None
        at = ops.find(_LOAD_GLOBAL, end)
    if not used or len(constants) > 0xFFFF or len(code.co_names) > 0x7FFF:
        return {}
    tail = b"".join(_unreached(index, _caches_of(ops)) for index in used)
    return {
        "co_code": bytes(text) + tail,
        "co_consts": tuple(constants),
        "co_linetable": code.co_linetable + without_lines(len(tail) // 2),
    }


def is_callee(text: bytes, at: int) -> bool:
    """Whether what was just pushed, a NULL below it, is what is called.

    Up to Python 3.12, the NULL comes before the expression of what is called, of which that
    value may be a part, as a key in ``{float: f, int: g}[kind](x)``.

    Parameters
    ----------
    text : bytes
        Instructions of the code.
    at : int
        Offset of what follows.
    """
    depth, argument = 1, 0  # values on the stack, from this one on
    while at < len(text):
        op, argument = text[at], argument | text[at + 1]
        at += 2
        if op == _EXTENDED_ARG:
            argument <<= 8
            continue
        if op in _CALLS or op == _CALL_EX:
            count = 1 + (argument & 1) if op == _CALL_EX else argument
            if depth - count == 1:
                return True
        if op in _ENDS:  # a loop: of an argument, since what is called is called once
            return op not in (dis.opmap["RETURN_VALUE"], dis.opmap["RAISE_VARARGS"])
        if op != _CACHE:
            given = argument if op >= dis.HAVE_ARGUMENT else None
            effect = dis.stack_effect(op, given, jump=op == _FOR_ITER)
            if (1 - effect if op in _ONE else -effect) >= depth:
                return False
            depth += effect
        if op in (_FOR_ITER, _JUMP_FORWARD):
            while at < len(text) and text[at] == _CACHE:
                at += 2
            at += 2 * argument
        argument = 0
    return True


def _put(text: bytearray, first: int, end: int, place: int, called: bool) -> None:
    """Write ``~constant`` over the instructions from `first` to `end`."""
    units = [(_LOAD_CONST, place & 255), (_INVERT, 0)]
    if place > 255:
        units.insert(0, (_EXTENDED_ARG, place >> 8))
    if called:
        units.insert(0 if _NULL_FIRST else len(units), (_PUSH_NULL, 0))
    units += [(_NOP, 0)] * (end - first - len(units))
    text[2 * first : 2 * end] = bytes(byte for unit in units for byte in unit)


def _caches_of(ops: bytes) -> int:
    """Return how many cache entries follow a LOAD_GLOBAL."""
    at = end = ops.index(_LOAD_GLOBAL) + 1
    while end < len(ops) and ops[end] == _CACHE:
        end += 1
    return end - at


def _unreached(index: int, caches: int) -> bytes:
    """Return instructions that load the global number `index` and drop it."""
    argument = index << 1
    units = [(_EXTENDED_ARG, argument >> 8)] if argument > 255 else []
    units += [(_LOAD_GLOBAL, argument & 255), *[(_CACHE, 0)] * caches, (_POP_TOP, 0)]
    return bytes(byte for unit in units for byte in unit)

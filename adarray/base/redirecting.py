"""Redirecting calls of some globals to an object of ours, by rewriting bytecode.

A function that calls ``float(x)`` gets a copy of its code in which that load, and no
other, pushes ``~load``: a constant that looks the name up where the function does, and
answers with what is to be called there *now*. The global itself stays what it is, so that
code which reads it (``type(v) is float``, ``dtype=float``, ``class X(float)``), other
threads, and everything outside of a transform meet the class alone.

The load takes the place of LOAD_GLOBAL and its cache entries: offsets, lines, jumps and
exception tables stay. In the same way ``load @ x`` replaces the load of a method, ``x.dot``.
What reads the names of a function off its code (cloudpickle, `inspect.getclosurevars`, our own
walk over captured state) finds them in instructions at the end that are never reached.
"""

from __future__ import annotations

import dis
import sys
import types
import weakref
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, NamedTuple, TypedDict, TypeVar

from adarray.base.handlers import has_handlers, telling, without_lines

_LOAD_GLOBAL = dis.opmap["LOAD_GLOBAL"]
_LOAD_CONST = dis.opmap["LOAD_CONST"]
_EXTENDED_ARG = dis.opmap["EXTENDED_ARG"]
_INVERT = dis.opmap["UNARY_INVERT"]
_MAKE_FUNCTION = dis.opmap["MAKE_FUNCTION"]
_PUSH_NULL = dis.opmap["PUSH_NULL"]
_POP_TOP = dis.opmap["POP_TOP"]
_NOP = dis.opmap["NOP"]
_SWAP = dis.opmap["SWAP"]
_CACHE = dis.opmap["CACHE"]
_METHOD = dis.opmap["LOAD_METHOD" if sys.version_info < (3, 12) else "LOAD_ATTR"]
_METHOD_BIT = dis.opmap["LOAD_ATTR"] == _METHOD  # the lowest bit of its argument marks methods
_ATTRIBUTE = {dis.opmap["LOAD_ATTR"], dis.opmap.get("LOAD_METHOD", -1)}
_NULL_FIRST = sys.version_info < (3, 13)  # the NULL of a call lies below the function

_COMPARES = {dis.opmap[n] for n in ("IS_OP", "COMPARE_OP", "CONTAINS_OP")}
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

V = TypeVar("V")

# ``make(name, how)`` returns what answers for a load; None leaves it. `how` is "call",
# "attribute" (one of its attributes is read next), "read", "compared" (the same, on the right of
# ``is``, ``==`` or ``in``), or "method", of any object.
Maker = Callable[[str, str], object]


class Changes(TypedDict, total=False):
    """Arguments of `types.CodeType.replace`."""

    co_code: bytes
    co_consts: tuple[object, ...]
    co_linetable: bytes
    co_names: tuple[str, ...]
    co_stacksize: int


class IdentityCache(Generic[V]):
    """Maps objects, by identity, to values for as long as the objects live."""

    def __init__(self) -> None:
        self._entries: dict[int, tuple[weakref.ref[object], V]] = {}

    def get(self, obj: object) -> V | None:
        """Return the value noted for `obj`, None if there is none."""
        entry = self._entries.get(id(obj))
        return entry[1] if entry is not None and entry[0]() is obj else None

    def note(self, obj: object, value: V) -> V:
        """Note and return `value`, which must not hold `obj`."""
        key, pop = id(obj), self._entries.pop
        self._entries[key] = weakref.ref(obj, lambda _: pop(key, None)), value
        return value

    def clear(self) -> None:
        """Forget all values."""
        self._entries.clear()


_originals: IdentityCache[types.CodeType] = IdentityCache()  # of copies: what the user wrote
_bases: IdentityCache[types.CodeType] = IdentityCache()  # of copies: with the loads as they were
# Of originals: their copies, by what was redirected.
_copies: IdentityCache[weakref.WeakValueDictionary[Hashable, types.CodeType]] = IdentityCache()
_names: IdentityCache[frozenset[str]] = IdentityCache()
_handling: IdentityCache[bool] = IdentityCache()


def original_of(code: types.CodeType) -> types.CodeType:
    """Return the code that the user wrote, of which `code` may be a copy of ours."""
    original = _originals.get(code)
    return code if original is None else original


def unredirected(code: types.CodeType) -> types.CodeType:
    """Return the code of which `code` is a copy with redirected loads; offsets are the same.

    That is the user's, or what was derived from it (see `derive`).
    """
    base = _bases.get(code)
    return code if base is None else base


def derive(code: types.CodeType, original: types.CodeType) -> None:
    """Note that `code` takes the place of the user's, with other instructions."""
    original = original_of(original)
    if code is not original:
        _originals.note(code, original)


def all_names(code: types.CodeType) -> frozenset[str]:
    """Return the names of globals and attributes in a code object and those nested in it."""
    names = _names.get(code)
    if names is None:
        nested = [all_names(c) for c in code.co_consts if isinstance(c, types.CodeType)]
        names = _names.note(code, frozenset(code.co_names).union(*nested))
    return names


def handles(code: types.CodeType) -> bool:
    """Whether code, or code nested in it, handles errors."""
    answer = _handling.get(code)
    if answer is None:
        nested = [handles(c) for c in code.co_consts if isinstance(c, types.CodeType)]
        answer = _handling.note(code, has_handlers(code) or any(nested))
    return answer


def _matmul() -> bytes:
    """Return the instructions of ``a @ b`` on what is on the stack."""
    code = compile("a @ b", "", "eval").co_code
    at = end = next(i for i in range(0, len(code), 2) if code[i] == dis.opmap["BINARY_OP"])
    end += 2
    while code[end] == _CACHE:
        end += 2
    return code[at:end]


_APPLY = tuple(zip(_matmul()[::2], _matmul()[1::2], strict=True))


class RedirectedMethods(NamedTuple):
    """Methods whose loads are redirected.

    Parameters
    ----------
    names : frozenset of str
    apart : frozenset of str
        Globals whose attributes stay: modules.
    """

    names: frozenset[str]
    apart: frozenset[str]


_NO_METHODS = RedirectedMethods(frozenset(), frozenset())


def redirect(
    function: types.FunctionType,
    names: Iterable[str],
    make: Maker,
    key: Hashable,
    told: object = None,
    methods: RedirectedMethods = _NO_METHODS,
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
    methods : RedirectedMethods
        Of which loads are redirected, too.
    """
    code = _copy(unredirected(function.__code__), frozenset(names), make, key, told, methods)
    if code is not function.__code__:
        function.__code__ = code


def _copy(
    code: types.CodeType,
    names: frozenset[str],
    make: Maker,
    key: Hashable,
    told: object,
    methods: RedirectedMethods,
) -> types.CodeType:
    wanted = all_names(code) & names
    methods = methods._replace(names=all_names(code) & methods.names)
    tells = told is not None and handles(code)
    if not wanted and not tells and not methods.names:
        return code
    copies = _copies.get(code)
    if copies is None:
        copies = _copies.note(code, weakref.WeakValueDictionary())
    known = copies.get((wanted, key, tells, methods))
    if known is not None:
        return known
    changes: Changes = {}
    if not wanted.isdisjoint(code.co_names):
        changes = _redirected(code, wanted, make)
    if not methods.names.isdisjoint(code.co_names):
        changes |= _with_methods(code.replace(**changes), methods, make)
    constants = changes.get("co_consts", code.co_consts)
    nested = tuple(
        _copy(c, wanted, make, key, told, methods) if isinstance(c, types.CodeType) else c
        for c in constants
    )
    if any(a is not b for a, b in zip(nested, constants, strict=True)):
        changes["co_consts"] = nested
    copy = code.replace(**changes) if changes else code
    if tells and has_handlers(code):
        copy = telling(copy, told)
    if copy is code:
        return code
    copies[wanted, key, tells, methods] = copy
    _originals.note(copy, original_of(code))
    _bases.note(copy, code)
    return copy


def _redirected(code: types.CodeType, names: frozenset[str], make: Maker) -> Changes:
    """Return the changes to a code object; none, if it has no load to redirect."""
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
            how = "call" if called else "read"
            following = end
            while ops[following] == _EXTENDED_ARG:
                following += 1
            if ops[following] in _ATTRIBUTE:
                how = "attribute"
            elif called and _NULL_FIRST and not is_callee(code.co_code, 2 * end):
                how = "read"
            elif not called and decorates(code.co_code, 2 * end):
                how = "call"
            if how == "read" and ops[following] in _COMPARES:
                how = "compared"
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


def _with_methods(code: types.CodeType, methods: RedirectedMethods, make: Maker) -> Changes:
    """Return the changes to a code object that redirect its loads of methods."""
    text = bytearray(code.co_code)
    ops = bytes(text[::2])
    constants = list(code.co_consts)
    places: dict[str, int] = {}
    at = ops.find(_METHOD)
    while at >= 0:
        first, argument = at, text[2 * at + 1]
        while first and ops[first - 1] == _EXTENDED_ARG:
            first -= 1
            argument |= text[2 * first + 1] << 8 * (at - first)
        end = at + 1
        while end < len(ops) and ops[end] == _CACHE:
            end += 1
        name = code.co_names[argument >> 1 if _METHOD_BIT else argument]
        if (
            name in methods.names
            and (not _METHOD_BIT or argument & 1)
            and _global_before(code, text, ops, first) not in methods.apart
        ):
            if name not in places:
                places[name] = len(constants)
                constants.append(make(name, "method"))
            _put_method(text, first, end, places[name])
        at = ops.find(_METHOD, end)
    if not places or len(constants) > 0xFFFF:
        return {}
    return {
        "co_code": bytes(text),
        "co_consts": tuple(constants),
        "co_stacksize": code.co_stacksize + 1,
    }


def _global_before(code: types.CodeType, text: bytearray, ops: bytes, at: int) -> str:
    """Return the name of the global that is loaded right before a place; "" if none is."""
    at -= 1
    while at >= 0 and ops[at] == _CACHE:
        at -= 1
    if at < 0 or ops[at] != _LOAD_GLOBAL:
        return ""
    argument, first = text[2 * at + 1], at
    while first and ops[first - 1] == _EXTENDED_ARG:
        first -= 1
        argument |= text[2 * first + 1] << 8 * (at - first)
    return code.co_names[argument >> 1]


def decorates(text: bytes, at: int) -> bool:
    """Whether the value just pushed is a decorator of the function that is made next."""
    return _MAKE_FUNCTION in text[at : at + 64 : 2] and is_callee(text, at, 2)


def is_callee(text: bytes, at: int, above: int = 1) -> bool:
    """Whether the value just pushed, above a NULL, is the callee.

    Up to Python 3.12, the NULL comes before the expression of what is called, of which that
    value may be a part, as a key in ``{float: f, int: g}[kind](x)``.

    Parameters
    ----------
    text : bytes
        Instructions of the code.
    at : int
        Offset of what follows.
    above : int
        How many values of the call, this one among them, lie below its positional arguments: two
        without a NULL, where the other is its first argument.
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
            if depth - count == above:
                return True
        if op in _ENDS:  # a loop: of an argument, since what is called is called once
            return op not in (dis.opmap["RETURN_VALUE"], dis.opmap["RAISE_VARARGS"])
        if op != _CACHE:
            operand = argument if op >= dis.HAVE_ARGUMENT else None
            effect = dis.stack_effect(op, operand, jump=op == _FOR_ITER)
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


def _put_method(text: bytearray, first: int, end: int, place: int) -> None:
    """Write ``constant @ x``, with `x` on the stack, over the load of a method of it."""
    units = [(_LOAD_CONST, place & 255), (_SWAP, 2), *_APPLY]
    if place > 255:
        units.insert(0, (_EXTENDED_ARG, place >> 8))
    if _NULL_FIRST:
        units = [(_PUSH_NULL, 0), (_SWAP, 2), *units]
    else:
        units.append((_PUSH_NULL, 0))
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

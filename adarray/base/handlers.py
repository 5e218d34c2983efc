"""Copies of code whose exception handlers notify an object of ours first.

``except``, ``finally`` and ``with`` begin with PUSH_EXC_INFO, wherever the interpreter jumps
to after an error. A copy of the code jumps to instructions at its end instead, which do the
same, push ``~told``, drop it, and go on behind the first. Nothing moves: offsets, lines, jumps
and what the code looks up stay.

No version of Python promises the layout of the table (Objects/exception_handling_notes.txt
in its sources): code whose table does not come out of our writing as it went into our reading is
left alone.
"""

from __future__ import annotations

import dis
import types
from collections.abc import Iterable
from typing import NamedTuple

_PUSH_EXC_INFO = dis.opmap["PUSH_EXC_INFO"]
_BACK = dis.opmap["JUMP_BACKWARD_NO_INTERRUPT"]
_LOAD_CONST = dis.opmap["LOAD_CONST"]
_EXTENDED_ARG = dis.opmap["EXTENDED_ARG"]
_SAY = ((dis.opmap["UNARY_INVERT"], 0), (dis.opmap["POP_TOP"], 0))
_FIRST, _MORE = 0x80, 0x40  # bits of the bytes of a table: of an entry, of a number
_NO_LOCATION = 0x80 | 15 << 3  # of a line table: instructions that belong to no line


class _Entry(NamedTuple):
    """One entry of an exception table, in units of two bytes."""

    start: int
    length: int
    target: int
    stack: int  # twice the depth, and whether the place is pushed


def has_handlers(code: types.CodeType) -> bool:
    """Whether code itself, without nested functions, handles errors."""
    return bool(code.co_exceptiontable) and _PUSH_EXC_INFO in code.co_code[::2]


def without_lines(count: int) -> bytes:
    """Return the part of a line table for `count` instructions that belong to no line."""
    full, rest = divmod(count, 8)
    return bytes([_NO_LOCATION | 7] * full + ([_NO_LOCATION | rest - 1] if rest else []))


def telling(code: types.CodeType, told: object) -> types.CodeType:
    """Return a copy of code of which each handler first evaluates ``~told``.

    Parameters
    ----------
    code : code object
    told : object
        Its `__invert__` must not raise.
    """
    entries = _read(code.co_exceptiontable)
    if _written(entries) != code.co_exceptiontable:
        return code
    text, ops = bytearray(code.co_code), code.co_code[::2]
    place = len(code.co_consts)
    moved: dict[int, int] = {}
    guarded = []
    for target in sorted({e.target for e in entries}):
        if ops[target] != _PUSH_EXC_INFO:
            continue
        start = moved[target] = len(text) // 2
        text += bytes(byte for unit in _head(place, start, target) for byte in unit)
        # What cleans up behind the handler does it for an interrupt here, too.
        for e in entries:
            if e.start <= target + 1 < e.start + e.length:
                guarded.append(e._replace(start=start, length=len(text) // 2 - start))
                break
    if not moved:
        return code
    entries = [e._replace(target=moved.get(e.target, e.target)) for e in entries]
    return code.replace(
        co_code=bytes(text),
        co_consts=(*code.co_consts, told),
        co_linetable=code.co_linetable + without_lines(len(text) // 2 - len(ops)),
        co_exceptiontable=_written([*entries, *guarded]),
        co_stacksize=code.co_stacksize + 1,
    )


def _head(place: int, start: int, target: int) -> list[tuple[int, int]]:
    """Return the instructions at `start` that notify and continue behind `target`."""
    units = [(_PUSH_EXC_INFO, 0), *_with(_LOAD_CONST, place), *_SAY]
    length = 1  # of the jump, which counts from behind itself
    while len(jump := _with(_BACK, start + len(units) + length - target - 1)) > length:
        length = len(jump)
    return units + jump


def _with(op: int, argument: int) -> list[tuple[int, int]]:
    units = [(op, argument & 255)]
    while argument := argument >> 8:
        units.insert(0, (_EXTENDED_ARG, argument & 255))
    return units


def _read(table: bytes) -> list[_Entry]:
    numbers, number = [], 0
    for byte in table:
        number = number << 6 | byte & 0x3F
        if not byte & _MORE:
            numbers.append(number)
            number = 0
    return [_Entry(*numbers[i : i + 4]) for i in range(0, len(numbers) // 4 * 4, 4)]


def _written(entries: Iterable[_Entry]) -> bytes:
    table = bytearray()
    for entry in entries:
        first = len(table)
        for number in entry:
            size = max(number.bit_length() - 1, 0) // 6
            for k in range(size, -1, -1):
                table.append(number >> 6 * k & 0x3F | (_MORE if k else 0))
        table[first] |= _FIRST
    return bytes(table)

"""Text made of recorded values: printed and logged it does no harm, used it would be stale."""

from __future__ import annotations

import dis
import functools
import sys
import types

from adarray.scope import package_of

# What is given text prints or keeps it, and computes nothing of it.
_OUTLETS = frozenset({"logging", "warnings", "traceback", "tqdm", "rich", "loguru"})
_PASSED = frozenset({"adarray", "adarray_native", "adarray_backends", "numpy"})
_DROPS = frozenset({"POP_TOP", "RAISE_VARARGS"})
_USES = frozenset({
    "COMPARE_OP", "CONTAINS_OP", "IS_OP", "LIST_APPEND", "SET_ADD", "MAP_ADD", "YIELD_VALUE",
})  # fmt: skip


def is_shown_only() -> bool:
    """Whether text that is made now is printed, logged or raised, as far as the code says."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        package = package_of(frame.f_globals.get("__name__"))
        if package in _OUTLETS:
            return True
        if package not in _PASSED:
            return _is_dropped(frame.f_code, frame.f_lasti)
        frame = frame.f_back
    return True


@functools.lru_cache(maxsize=4096)
def _is_dropped(code: types.CodeType, at: int) -> bool:
    """Whether the statement that runs drops its value: a call for its effects, or a raise."""
    for instruction in dis.get_instructions(code):
        if instruction.offset <= at:
            continue
        name = instruction.opname
        if name in _DROPS:
            return True
        if name in _USES or name.startswith(("STORE", "RETURN", "POP_JUMP")):
            return False
    return True

"""Where in the user's code a call is recorded."""

from __future__ import annotations

import sys
from typing import Any

from adarray.base.telling import SILENT

_OURS = frozenset({"adarray", "numpy", "scipy", "adarray_native", "adarray_backends"})


def progress_line(about: str, count: int, where: tuple[str, int] | None) -> str:
    """Return a line about a recording that takes long."""
    line = "" if where is None else f", the last one in line {where[1]} of {where[0]}"
    return (
        f"recording {about} has taken {SILENT:.0f} s so far: {count} operations{line}; the "
        "operations of all rounds of its loops are noted, once for good; more lines with "
        "ADARRAY_VERBOSE=1"
    )


# Globals of modules that are not the user's, by identity, as they were met: a call is
# recorded some 20 frames below the user's code.
_met: dict[int, dict[str, Any]] = {}


def user_place() -> tuple[str, int] | None:
    """Return file and line of the innermost code that is the user's."""
    frame = sys._getframe(2)
    while frame is not None:
        names = frame.f_globals
        if id(names) not in _met:
            if names.get("__name__", "").partition(".")[0] not in _OURS:
                return frame.f_code.co_filename, frame.f_lineno
            _met[id(names)] = names
        frame = frame.f_back  # type: ignore[assignment]
    return None

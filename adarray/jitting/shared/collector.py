"""Holding back the garbage collector while many long-lived objects are made."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator

# Objects that may be made before the collector scans them, in place of Python's 700: the
# stages of compiling make many that stay and next to no cycles, and scanning them again
# and again took half of the time of long programs.
MANY = 2_000_000

_lock = threading.Lock()
_inside = 0
_before: tuple[int, int, int] = (700, 10, 10)


@contextlib.contextmanager
def collector_waits() -> Iterator[None]:
    """Let the garbage collector run more rarely in this block, in all threads."""
    global _inside, _before
    with _lock:
        if _inside == 0:
            _before = gc.get_threshold()
            if 0 < _before[0] < MANY:  # 0: it is switched off
                gc.set_threshold(MANY, *_before[1:])
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                gc.set_threshold(*_before)

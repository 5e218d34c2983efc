"""Holding the garbage collector back where many objects are made that live on."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator

# Objects that may come before the collector looks at them, in place of Python's 700: the
# stages of compiling make many that stay and next to no cycles, and looking at them again
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

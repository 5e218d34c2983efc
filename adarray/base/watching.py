"""Watching for host reads: a traced value that becomes a plain one triggers the watch."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

# Those that are set, with the threads that set them. What makes a value plain looks whether there
# is one at all, which costs nothing to speak of, and only then calls `note_read`.
WATCHES: list[ReadWatch] = []


class ReadWatch:
    """Says whether a value was read.

    Attributes
    ----------
    triggered : bool
    """

    __slots__ = ("thread", "triggered")

    def __init__(self) -> None:
        self.triggered = False
        self.thread = threading.get_ident()


def note_read() -> None:
    """Trigger the watches of this thread."""
    me = threading.get_ident()
    for watch in WATCHES:
        if watch.thread == me:
            watch.triggered = True


@contextmanager
def watched() -> Iterator[ReadWatch]:
    """Watch whether values are read: compared, rounded, or converted to Python numbers."""
    watch = ReadWatch()
    WATCHES.append(watch)
    try:
        yield watch
    finally:
        WATCHES.remove(watch)

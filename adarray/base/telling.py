"""Messages about work that takes long, through the logger ``adarray``.

Where logging is not set up, they go to standard error. With ``ADARRAY_VERBOSE=1`` short work is
reported, too.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from contextvars import ContextVar
from time import perf_counter
from types import TracebackType

from adarray.base.environment import switch

VARIABLE = "ADARRAY_VERBOSE"
SILENT = 3.0  # seconds for which something may run before a line says what


def check() -> None:
    """Raise ValueError if ``ADARRAY_VERBOSE`` is neither 0, 1 nor empty."""
    switch(VARIABLE, False)


def tell(text: str) -> None:
    """Tell the user something important."""
    import logging  # as few programs as possible pay for it

    logging.getLogger("adarray").warning("adarray: %s", text)


def detail(make: Callable[[], str]) -> None:
    """Tell the user something that ADARRAY_VERBOSE asks for."""
    if os.environ.get(VARIABLE, "").strip() != "1":
        return
    import logging

    logger = logging.getLogger("adarray")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.INFO)
    if logger.hasHandlers():
        logger.info("adarray: %s", make())
    elif sys.stderr is not None and logger.isEnabledFor(logging.INFO):
        print("adarray:", make(), file=sys.stderr)


class Progress:
    """The work in progress, and how to stop it.

    Attributes
    ----------
    text : str
        In words.
    ended : bool
        Whether it is to end: nothing new is begun.
    stops : dict
        What ends the processes that are at work on it, by process.
    """

    def __init__(self) -> None:
        self.text = ""
        self.ended = False
        self.stops: dict[object, Callable[[], None]] = {}

    def end(self) -> None:
        """End it."""
        self.ended = True
        for stop in tuple(self.stops.values()):
            stop()


PROGRESS: ContextVar[Progress | None] = ContextVar("adarray_progress", default=None)


def doing(text: str) -> None:
    """Note the work in progress, for the message if it takes long."""
    progress = PROGRESS.get()
    if progress is not None:
        progress.text = text


class SlowNotice:
    """A context manager that tells one line if its block takes long.

    Parameters
    ----------
    make : callable
        Returns the line.
    timed : bool
        Whether another thread waits, since nobody calls `tell` for long.
    """

    def __init__(self, make: Callable[[], str], timed: bool = False) -> None:
        self._make = make
        self._timed = timed
        self._timer: threading.Timer | None = None
        self._lock = threading.Lock()
        self._told = False
        self.end = 0.0

    def __enter__(self) -> SlowNotice:
        self.end = perf_counter() + SILENT
        if self._timed:
            self._timer = threading.Timer(SILENT, self.tell)
            self._timer.daemon = True
            try:
                self._timer.start()
            except RuntimeError:  # the interpreter ends, or there are too many threads
                self._timer = None
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def tell(self) -> None:
        """Tell the line, unless that has happened."""
        with self._lock:
            told, self._told = self._told, True
        if not told:
            tell(self._make())

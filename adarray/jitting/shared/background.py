"""Compiling in the background: another thread waits for the code, and NumPy computes meanwhile."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Iterable
from contextvars import copy_context
from typing import Any

from adarray.base.telling import PROGRESS, Progress

Run = Callable[[list[Any]], list[Any]]
LEAVE = 2.0  # seconds that the end of the program waits for what is stopped

_running: weakref.WeakSet[Job] = weakref.WeakSet()


class Job:
    """Work on a thread of its own, in the context of the thread that started it.

    Parameters
    ----------
    work : callable
    progress : Progress, optional
        Gets what it is at.
    """

    def __init__(self, work: Callable[[], None], progress: Progress | None = None) -> None:
        self._work = work
        self._progress = progress or Progress()
        self._start()

    def _start(self) -> None:
        self._process = os.getpid()
        self._progress.stops.clear()  # in a forked child, those of its parent
        self._done = done = threading.Event()
        context = copy_context()
        context.run(PROGRESS.set, self._progress)

        def run() -> None:
            try:
                context.run(self._work)
            finally:
                done.set()

        # A daemon, or a compiler that hangs would keep the program from ending.
        thread = threading.Thread(target=run, name="adarray compiles", daemon=True)
        _running.add(self)
        try:
            thread.start()
        except RuntimeError:  # the interpreter ends, or there are too many threads
            run()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until it is done, at most this many seconds; return whether it is done."""
        if self._process != os.getpid() and not self._done.is_set():
            self._start()  # a forked child has none of the threads of its parent
        return self._done.wait(seconds)

    def end(self) -> None:
        """Stop its compilers, and let it remove its files."""
        if self._process == os.getpid():
            self._progress.end()
            self._done.wait(LEAVE)


class Late:
    """Runs a segment: with NumPy until its compiled code is ready.

    Parameters
    ----------
    job : Job
        What compiles it.
    meanwhile : callable
        Runs it with NumPy.
    settle : callable
        Called once, when the job is done; returns what runs the segment from then on.
    """

    def __init__(self, job: Job, meanwhile: Run, settle: Callable[[Late], Run]) -> None:
        self._job = job
        self._meanwhile = meanwhile
        self._settle = settle
        self._run: Run | None = None
        self._lock = threading.Lock()

    def ready(self, seconds: float | None = 0.0) -> Run | None:
        """Return the compiled code if it is ready within this many seconds (None: wait)."""
        if self._run is None and self._job.wait(seconds):
            with self._lock:
                if self._run is None:
                    self._run = self._settle(self)
        return self._run

    def __call__(self, arrays: list[Any], *watch: Any) -> list[Any]:
        """Return the results for `arrays`; `watch` is told of each step that NumPy runs."""
        run = self.ready()
        return run(arrays) if run is not None else self._meanwhile(arrays, *watch)


def pending(nodes: Iterable[Any], seconds: float | None = 0.0) -> bool:
    """Whether code of any segment is still being compiled, after waiting this long for each."""
    runs = [n.compiled[1] for n in nodes if n.compiled is not None]
    return any(r.ready(seconds) is None for r in runs if type(r) is Late)


@atexit.register
def _leave() -> None:
    """End the jobs that the program no longer waits for."""
    for job in tuple(_running):
        with contextlib.suppress(Exception):
            job.end()

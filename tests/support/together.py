"""Checks that wait for the compiler together: one run of it compiles the kernels of them all.

Starting the compiler takes longer than most kernels of the tests do. Each check runs in a thread
of its own, one at a time and always up to where it needs kernels that are not there; when all of
them have come that far, all those kernels are compiled as one, and the checks go on.

For tests of every record under `jit`.
"""

from __future__ import annotations

import contextlib
import contextvars
import itertools
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from adarray.errors import CompileError

WIDTH = 24


class _Task:
    """A check in a thread, which runs or waits."""

    def __init__(self, name: str, check: Callable[[], None]) -> None:
        self.name = name
        self.error: BaseException | None = None
        self.ended = False
        self.wanted: tuple[Any, dict[str, str]] | None = None
        self._ready, self._done = threading.Semaphore(0), threading.Semaphore(0)
        self._check = check
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._run,), daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._ready.acquire()
        _CURRENT.set(self)
        try:
            self._check()
        except BaseException as error:  # also what pytest skips and fails with
            self.error = error
        self.ended = True
        self._done.release()

    def go_on(self) -> None:
        """Let it run until it waits for kernels, or ends."""
        self._ready.release()
        self._done.acquire()
        if self.ended:
            self._thread.join()

    def wait(self, kernels: Any, texts: dict[str, str]) -> None:
        """Ask for kernels, from inside of the thread."""
        self.wanted = (kernels, texts)
        self._done.release()
        self._ready.acquire()
        self.wanted = None


_CURRENT: contextvars.ContextVar[_Task | None] = contextvars.ContextVar("task", default=None)


@contextlib.contextmanager
def _meeting() -> Iterator[Callable[..., Any] | None]:
    """Make checks wait where they load kernels; without the native package none do."""
    try:
        from adarray_backends.cpu.kernels import Kernels
    except ImportError:
        yield None
        return
    load = Kernels.load

    def wait_and_load(self: Any, texts: dict[str, str]) -> Any:
        task = _CURRENT.get()
        if task is not None and any(name not in self._functions for name in texts):
            task.wait(self, texts)
        return load(self, texts)

    Kernels.load = wait_and_load
    try:
        yield load
    finally:
        Kernels.load = load


def _compile(waiting: list[_Task], load: Callable[..., Any]) -> None:
    """Compile what tasks wait for; the one whose kernel is wrong hears of it when it loads it."""
    wanted: dict[Any, dict[str, str]] = {}
    for task in waiting:
        assert task.wanted is not None
        kernels, texts = task.wanted
        wanted.setdefault(kernels, {}).update(texts)
    for kernels, texts in wanted.items():
        with contextlib.suppress(CompileError):
            load(kernels, texts)


def together(
    checks: Iterable[tuple[str, Callable[[], None]]], width: int = WIDTH
) -> Iterator[tuple[str, BaseException | None]]:
    """Run checks, and yield the name of each with what it raised, as they end.

    Parameters
    ----------
    checks : iterable of (str, callable)
        With their names.
    width : int, optional
        How many of them run side by side.
    """
    rest = iter(checks)
    running: list[_Task] = []
    # Threads that take turns leave and restore the filters in any order.
    with _meeting() as load, warnings.catch_warnings():
        while True:
            running += [_Task(*c) for c in itertools.islice(rest, width - len(running))]
            if not running:
                return
            for task in running:
                task.go_on()
            for task in running:
                if task.ended:
                    yield task.name, task.error
            running = [task for task in running if not task.ended]
            if running:
                assert load is not None
                _compile(running, load)

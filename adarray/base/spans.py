"""Spans of time, for `adarray.profile`: what ran when, and on which thread.

Code that takes time is wrapped in `span`, which costs one read of a context variable while no
profile is open.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from time import perf_counter_ns
from types import TracebackType
from typing import NamedTuple, TypeVar, cast

T = TypeVar("T")
# Kind, name, bytes moved and operations of a step of compiled code.
Step = tuple[str, str, int, float]


class Span(NamedTuple):
    """Something that ran.

    Parameters
    ----------
    kind : str
        What sort of thing: ``"op"``, ``"rule"`` (a derivative rule), ``"kernel"``,
        ``"product"``, ``"call"`` and ``"step"`` (of an interpreted program), ``"jit"`` (a
        call of a compiled function), ``"trace"``, ``"passes"``, ``"plan"``, ``"compile"``,
        ``"load"``, ``"backward"``, ``"transfer"``.
    name : str
    start, stop : int
        Nanoseconds, as `time.perf_counter_ns` counts.
    thread : int
        Identifier of the thread.
    moved : int
        Bytes read and written; 0 where nobody counted.
    work : float
        Arithmetic operations; 0 where nobody counted.
    shapes : tuple
        Shapes of the operands.
    where : tuple of (str, int) or None
        File and line of the user's code that asked for it.
    """

    kind: str
    name: str
    start: int
    stop: int
    thread: int
    moved: int = 0
    work: float = 0.0
    shapes: tuple[tuple[int, ...], ...] = ()
    where: tuple[str, int] | None = None


class SpanRecorder:
    """Collects spans, of any thread that runs in its context.

    Parameters
    ----------
    outer : SpanRecorder or None
        One that gets them too.
    lines : bool
        Whether spans are to say which line of the user's code asked for them.
    """

    def __init__(self, outer: SpanRecorder | None = None, lines: bool = False) -> None:
        self.outer = outer
        self.lines: bool = lines or (outer is not None and outer.lines)
        self.spans: list[Span] = []
        self.threads: dict[int, str] = {}
        self.start = perf_counter_ns()
        self.stop: int | None = None
        self._cache: dict[int, tuple[object, object]] = {}

    def cached(self, key: object, make: Callable[[], T]) -> T:
        """Return ``make()``, called once for each object `key`, which is kept alive."""
        entry = self._cache.get(id(key))
        if entry is None:
            entry = self._cache[id(key)] = (key, make())
        return cast(T, entry[1])

    def add(
        self,
        kind: str,
        name: str,
        start: int,
        stop: int,
        moved: int = 0,
        work: float = 0.0,
        shapes: tuple[tuple[int, ...], ...] = (),
        where: tuple[str, int] | None = None,
    ) -> None:
        """Add a span of the current thread; nothing once the recorder is closed."""
        thread = threading.get_ident()
        self._take(thread, (Span(kind, name, start, stop, thread, moved, work, shapes, where),))

    def add_steps(self, steps: Iterable[Step], stamps: Sequence[int]) -> None:
        """Add spans of steps that ran one after the other, as `add` would add each.

        Parameters
        ----------
        steps : iterable of (kind, name, moved, work)
        stamps : sequence of int
            When each step began, and when the last one ended.
        """
        thread = threading.get_ident()
        spans = [
            Span(kind, name, start, stop, thread, moved, work)
            for (kind, name, moved, work), start, stop in zip(
                steps, stamps, stamps[1:], strict=False
            )
        ]
        self._take(thread, spans)

    def _take(self, thread: int, spans: Sequence[Span]) -> None:
        """Add spans of a thread here, and to what is around this recorder."""
        to: SpanRecorder | None = self
        while to is not None:
            if to.stop is None:
                if thread not in to.threads:
                    to.threads[thread] = threading.current_thread().name
                to.spans += spans
            to = to.outer

    def close(self) -> None:
        """Take no more spans."""
        if self.stop is None:
            self.stop = perf_counter_ns()

    @property
    def open(self) -> bool:
        """Whether this one or one around it still takes spans."""
        to: SpanRecorder | None = self
        while to is not None:
            if to.stop is None:
                return True
            to = to.outer
        return False


RECORDER: ContextVar[SpanRecorder | None] = ContextVar("adarray_recorder", default=None)


class span:  # noqa: N801  (reads as a statement)
    """Context manager: let an open profile know how long a block took.

    Parameters
    ----------
    kind, name : str
        As in `Span`.
    """

    __slots__ = ("_begun", "kind", "name", "recorder")

    def __init__(self, kind: str, name: str) -> None:
        self.kind = kind
        self.name = name
        self.recorder = RECORDER.get()
        self._begun = 0

    def __enter__(self) -> span:
        if self.recorder is not None:
            self._begun = perf_counter_ns()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.recorder is not None:
            self.recorder.add(self.kind, self.name, self._begun, perf_counter_ns())

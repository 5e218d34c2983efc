"""Which traces are open, and what was refused inside of them.

A refusal is an error that plain NumPy would not have raised. Code that catches it takes another
path than it would without adarray, and may lose a gradient. So each trace remembers the first
refusal that concerns it, and raises at its end.

References
----------
- J. M. Siskind, B. A. Pearlmutter, "Perturbation confusion and referential transparency: correct
  functional implementation of forward-mode AD", IFL 2005.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from typing import Any

from adarray.base.hooks import Hook

# The level of the innermost trace of this context; 0 outside of any.
LEVEL: ContextVar[int] = ContextVar("adarray_level", default=0)

# The open traces of all threads, by their levels: the level of the trace around each.
OPEN: dict[int, int] = {}
# Of an open trace: its inputs with memory, as (number, what was given, what the function gets,
# what that held).
INPUTS: dict[int, list[tuple[int, Any, Any, Any]]] = {}

# Those of them that are in forward mode, which nobody walks back.
FORWARD: set[int] = set()

# What was refused while a function is recorded by `adarray.jit`.
RECORDED: ContextVar[list[BaseException] | None] = ContextVar("adarray_recorded", default=None)

# The same lists, of all threads.
RECORDINGS: list[list[BaseException]] = []

# Finds the levels of what is refused outside of any trace of this context, in another thread, by
# the ADArrays that the code at work looks at.
levels_hook: Hook[Callable[[], Iterable[int]]] = Hook("adarray.core.trace")

# Ends recordings of other threads that what is refused concerns, which are found in the same way.
recordings_hook: Hook[Callable[[BaseException], None]] = Hook(
    "adarray.jitting.shared.symbolic", lambda _error: None
)

_refused: dict[int, BaseException] = {}

# Shapes of pandas' objects that a trace, or a recording by the identity of its list, has met.
MET: dict[int, set[tuple[int, ...]]] = {}

# Traces whose pullbacks run, and how many of them do.
_again: dict[int, int] = {}
_lock = threading.Lock()


def around() -> Iterator[int]:
    """Return the levels of the open traces of this context, innermost first."""
    level = LEVEL.get()
    while level in OPEN:
        yield level
        level = OPEN[level]


def within(low: int, high: int) -> list[int]:
    """Return the levels of open traces from `low` to `high`, in any thread."""
    return [level for level in tuple(OPEN) if low <= level <= high]


def is_walked(low: int, high: int) -> bool:
    """Whether a trace from level `low` to below `high` may be walked back, now or later."""
    return low < high and any(level not in FORWARD for level in range(low, high))


def refused(error: BaseException, levels: Iterable[int] | None = None) -> None:
    """Remember a refusal.

    Parameters
    ----------
    error : exception
    levels : iterable of int, optional
        The levels of the traces that it concerns; of all around, if that is not known.
    """
    recorded = RECORDED.get()
    if recorded is not None:
        recorded.append(error)
    elif RECORDINGS:
        recordings_hook.call(error)
    if levels is None:
        levels = list(around()) or (levels_hook.call() if OPEN else ())
    for level in levels:
        if level in OPEN:
            _refused.setdefault(level, error)


def forget(error: BaseException) -> None:
    """Forget a refusal that adarray itself has caught and handled."""
    recorded = RECORDED.get()
    if recorded is not None:
        recorded[:] = [e for e in recorded if e is not error]
    for level in tuple(_refused):  # of any: it may have been met where no trace is known
        if _refused.get(level) is error:
            del _refused[level]


def remembered() -> dict[int, BaseException]:
    """Return the refusals remembered so far, for `restore`."""
    return dict(_refused) if _refused else {}


def restore(before: dict[int, BaseException]) -> None:
    """Forget what was refused in the traces of this context since `before`."""
    for level in around():
        if level not in before:
            _refused.pop(level, None)


def reopen(level: int) -> None:
    """Reopen a closed trace while its pullback runs; `close_again` ends that."""
    with _lock:
        if level in _again or level not in OPEN:
            _again[level] = _again.get(level, 0) + 1
            OPEN.setdefault(level, LEVEL.get())


def close_again(level: int) -> None:
    """Close a trace, if no other pullback of it runs."""
    with _lock:
        if level in _again:
            _again[level] -= 1
            if not _again[level]:
                del _again[level], OPEN[level]
                _refused.pop(level, None)


def _here() -> list[int]:
    recorded = RECORDED.get()
    return [*around(), *([] if recorded is None else [id(recorded)])]


def meet(shape: tuple[int, ...]) -> None:
    """Note that the traces of this context have met an object of pandas."""
    for key in _here():
        MET.setdefault(key, set()).add(shape)


def has_met(shape: tuple[int, ...]) -> bool:
    """Whether a trace of this context has met an object of pandas of that shape."""
    return any(shape in MET.get(key, ()) for key in _here())


def end(level: int) -> BaseException | None:
    """Close a trace, and return the first refusal inside of it."""
    del OPEN[level]
    INPUTS.pop(level, None)
    MET.pop(level, None)
    FORWARD.discard(level)
    return _refused.pop(level, None) if _refused else None

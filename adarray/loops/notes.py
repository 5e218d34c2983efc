"""What became of loops, for `explain`."""

from __future__ import annotations

import functools
from typing import Any

from adarray.base.engines import TracingEngine
from adarray.base.recording import LoopNote
from adarray.kernels.operation import Operation
from adarray.loops.policy import trips
from adarray.loops.rewriting import Place


def note(
    recorder: TracingEngine,
    place: Place,
    iterable: Any,
    before: int,
    reason: str,
    line: int,
    operation: Operation | None = None,
    seconds: float = 0.0,
) -> None:
    """Note what has become of a loop, for `explain`."""
    loop = place.loop
    where = place.file, loop.lineno
    last = loop.end_lineno or loop.lineno
    count = None if iterable is None else trips(iterable)
    taped = None if operation is None else functools.partial(_taped, operation)
    line = line or loop.lineno
    recorder.recording.loops.append(
        LoopNote(where, last, place.function, count, before, reason, line, taped, seconds)
    )


def _taped(operation: Operation) -> str:
    """Return what the adjoints of a loop put on the tape, in words."""
    adjoints = operation.execution.adjoints()
    if not adjoints:
        return ""
    counts = sorted({a.taped for a in adjoints})
    how = "" if all(a.checkpoints is None for a in adjoints) else ", between checkpoints"
    return f"; its adjoint tapes {' or '.join(map(str, counts))} values{how}"

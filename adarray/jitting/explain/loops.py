"""What an explanation says of the loops in the user's code: captured, or unrolled and why."""

from __future__ import annotations

from collections import Counter

from adarray.base.recording import LoopNote, Recording
from adarray.base.report import count_text

# Loops with fewer iterations, and fewer recorded events in their lines, are not told of.
_ITERATIONS = 8
_EVENTS = 32


def loop_lines(recording: Recording) -> list[str]:
    """Return a line for each loop of a recording that was captured, or unrolled at length."""
    notes: dict[tuple[object, ...], list[LoopNote]] = {}
    for note in recording.loops:
        notes.setdefault((note.where, note.reason, note.line), []).append(note)
    events: Counter[tuple[str, int] | None] = Counter(e.where for e in recording.events)
    lines = []
    for group in notes.values():
        note = group[0]
        file, first = note.where
        inside = sum(events[file, line] for line in range(first, note.last + 1))
        trips = max((n.trips for n in group if n.trips is not None), default=None)
        if not note.reason or inside >= _EVENTS or (trips or 0) >= _ITERATIONS:
            lines.append(_line(group, trips, inside))
    return lines


def _line(group: list[LoopNote], trips: int | None, events: int) -> str:
    note = group[0]
    times = "" if len(group) == 1 else f", {len(group)} times"
    count = "" if trips is None else f", {'' if len(group) == 1 else 'up to '}{trips} iterations"
    if not note.reason:
        taped = note.taped() if note.taped is not None else ""
        what = f"captured{count}{times}{taped}"
    else:
        line = "" if note.line == note.where[1] else f" (line {note.line})"
        what = f"unrolled{count}{times}, {count_text(events)} events: {note.reason}{line}"
    return f"{note.where[0]}:{note.where[1]} ({note.function}): {what}"

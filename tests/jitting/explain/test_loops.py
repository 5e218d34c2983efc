"""Lines about loops."""

from __future__ import annotations

import numpy as np

from adarray.base.recording import Call, LoopNote, Recording, Symbol
from adarray.jitting.explain.loops import loop_lines


def note(reason: str = "", line: int = 3, first: int = 3, trips: int | None = 100) -> LoopNote:
    taped = None if reason else lambda: "; its adjoint tapes 2 values"
    return LoopNote(("m.py", first), first + 4, "f", trips, 0, reason, line, taped)


def recording(*notes: LoopNote, events: int = 0, line: int = 4) -> Recording:
    out = Recording()
    out.loops += notes
    x = Symbol((3,), float)
    out.events += [Call(None, np.sin, (x,), {}, (x,), where=("m.py", line)) for _ in range(events)]
    return out


def test_captured() -> None:
    assert loop_lines(recording(note())) == [
        "m.py:3 (f): captured, 100 iterations; its adjoint tapes 2 values"
    ]
    assert loop_lines(recording(note(trips=5), note(trips=7))) == [
        "m.py:3 (f): captured, up to 7 iterations, 2 times; its adjoint tapes 2 values"
    ]


def test_unrolled() -> None:
    lines = loop_lines(recording(note("it handles errors", 5), events=1200))
    assert lines == [
        "m.py:3 (f): unrolled, 100 iterations, 1.20 k events: it handles errors (line 5)"
    ]
    lines = loop_lines(recording(note("it is short", trips=None), events=40, line=7))
    assert lines == ["m.py:3 (f): unrolled, 40 events: it is short"]


def test_what_is_not_told() -> None:
    assert not loop_lines(recording(note("it is short", trips=7), events=31))
    assert not loop_lines(recording(note("it is short", trips=None), events=100, line=9))
    assert loop_lines(recording(note("it is short", trips=8)))

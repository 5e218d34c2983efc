"""What an explanation says of one segment: recording, programs, steps, buffers, results."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from adarray.base.engines import CompiledPlan
from adarray.base.recording import Call, Guard, Symbol
from adarray.base.report import (
    Code,
    Drawing,
    ReportTable,
    Section,
    count_text,
    size_text,
    time_text,
)
from adarray.compiler.ir.plan import Buffer, KernelStep, Plan
from adarray.compiler.ir.primitives import Constant, Iota, ProgramInput, View
from adarray.compiler.ir.program import Program, Value, text
from adarray.jitting.explain.costs import Cost, costs, nbytes, peak
from adarray.jitting.explain.picture import picture
from adarray.jitting.explain.steps import (
    at,
    call_name,
    origin_text,
    step_buffers,
    step_kind,
    step_title,
    value_title,
)


class ShownSegment(NamedTuple):
    """The straight way between two guards: a node of the trace tree.

    Parameters
    ----------
    parent : int
        Number of the segment before it; -1 for the first.
    outcome : object
        What the guard at the parent's end saw, for this one to follow.
    events : tuple of Call or Guard
        What was recorded, the guard at its end included.
    before, after : Program or None
        As recorded, and after the passes.
    plan : Plan or None
    executable : CompiledPlan or None
        What the backend made of the plan.
    seconds : dict
        How long each stage took, by name.
    runs : int
        How often it ran compiled.
    eager : str
        Why it is not compiled; empty if it is.
    """

    parent: int
    outcome: Any
    events: tuple[Call | Guard, ...]
    before: Program | None
    after: Program | None
    plan: Plan | None
    executable: CompiledPlan | None = None
    seconds: dict[str, float] = {}  # noqa: RUF012  (never written to)
    runs: int = 0
    eager: str = ""

    @property
    def guard(self) -> Guard | None:
        """The guard at its end; None where the function returns."""
        last = self.events[-1] if self.events else None
        return last if isinstance(last, Guard) else None


class KernelInfo(NamedTuple):
    """One kernel of an `Explanation`.

    Parameters
    ----------
    segment, step : int
        Where it runs.
    title : str
        The operations that it computes.
    values : tuple of str
        Names of the values that it computes.
    cost : Cost
        Bytes read and written, and arithmetic, counted from buffers and loops.
    source : str
        Its C text; empty if it is not known.
    schedule : str
        Which threads of a GPU run what of it; empty on processors.
    expected : str
        How long it should take on a GPU, and at least; empty on processors.
    """

    segment: int
    step: int
    title: str
    values: tuple[str, ...]
    cost: Cost
    source: str
    schedule: str = ""
    expected: str = ""


def plural(n: int, what: str) -> str:
    """Return a number of things as text: ``"2 calls"``."""
    return f"{n} {what}{'' if n == 1 else 's'}"


def short(value: Any) -> str:
    """Return a plain value in a few characters."""
    if isinstance(value, np.ndarray):
        return f"<{value.dtype}{list(value.shape)}>"
    shown = getattr(value, "__name__", None) or repr(value)
    return shown if len(shown) <= 40 else f"{shown[:37]}..."


def outcome_text(key: Any) -> str:
    """Return the outcome of a guard as text, given the key of a child of the trace tree."""
    if isinstance(key, bytes):  # of a float
        return repr(struct.unpack("<d", key)[0])
    if isinstance(key, tuple) and len(key) == 2 and all(isinstance(k, bytes) for k in key):
        return repr(complex(*(struct.unpack("<d", k)[0] for k in key)))
    return short(key)


# -- what was recorded ---------------------------------------------------------------------


class SymbolNames:
    """Names of symbols, in the order in which they appear."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}

    def of(self, x: Any) -> str:
        """Return the text of an argument: names of symbols, plain values shortened."""
        if isinstance(x, Symbol):
            return self.names.setdefault(id(x), f"s{len(self.names)}")
        if isinstance(x, tuple | list):
            inner = ", ".join(map(self.of, x))
            return f"({inner})" if isinstance(x, tuple) else f"[{inner}]"
        if isinstance(x, dict):
            return f"{{{', '.join(f'{k}: {self.of(v)}' for k, v in x.items())}}}"
        return short(x)


def recorded(events: Iterable[Call | Guard], names: SymbolNames | None = None) -> str:
    """Return recorded events as lines ``s2 float64[10] = sin(s1) (model.py:12)``."""
    names = names or SymbolNames()
    lines = []
    for e in events:
        if isinstance(e, Guard):
            seen = "shapes of its results" if e.kind == "call" else short(e.outcome)
            what = names.of(e.symbol) if e.symbol is not None else ""
            if e.call is not None:
                what = f"{call_name(e.call)}({names.of(e.call.args)[1:-1]})"
            lines.append(f"guard {e.kind} {what} is {seen}{at(e.where)}")
            continue
        args = [names.of(a) for a in e.args]
        args += [f"{k}={names.of(v)}" for k, v in e.params.items()]
        results = ", ".join(f"{names.of(r)} {r.dtype}{list(r.shape)}" for r in e.results)
        lines.append(f"{results} = {call_name(e)}({', '.join(args)}){at(e.where)}")
    return "\n".join(lines)


# -- one segment ---------------------------------------------------------------------------


def value_names(program: Program) -> dict[Value, str]:
    """Return the names that `program.text` gives to a program's values."""
    return {v: f"v{i}" for i, v in enumerate(program.values)}


def kernels(number: int, s: ShownSegment) -> list[KernelInfo]:
    """Return the kernels of a segment, in the order in which they run."""
    if s.plan is None:
        return []
    names = value_names(s.after) if s.after is not None else {}
    return [
        KernelInfo(
            number, i, step_title(step), tuple(names.get(v, "?") for v in step.values),
            c, "" if s.executable is None else s.executable.source_of(i),
            "" if s.executable is None else s.executable.schedule_of(i),
            "" if s.executable is None else s.executable.expected(i, c.moved, c.flops, c.calls),
        )
        for i, (step, c) in enumerate(zip(s.plan.steps, costs(s.plan), strict=True))
        if isinstance(step, KernelStep)
    ]  # fmt: skip


def segment_section(number: int, s: ShownSegment, names: SymbolNames, pictures: bool) -> Section:
    """Return all there is to say of one segment; with its picture if that is wanted."""
    inside = [Section("recorded", (Code(recorded(s.events, names)),), folded=True)]
    if s.eager:
        inside.append(Section("stays eager", (s.eager,)))
    if s.before is not None:
        title = f"program before the passes ({plural(len(s.before.values), 'value')})"
        inside.append(Section(title, (Code(text(s.before)),), folded=True))
    if s.after is not None:
        title = f"program after the passes ({plural(len(s.after.values), 'value')})"
        inside.append(Section(title, (Code(text(s.after)),), folded=True))
    if s.plan is not None and s.after is not None:
        inside += [_steps(s), _apart(s), _buffers(s.plan), _results(s)]
        inside += _sources(number, s)
        if pictures:
            inside.append(Section("graph", (Drawing(picture(s.after, s.plan).html()),)))
    if s.seconds or s.executable is not None:
        inside.append(_compiling(s))
    return Section(f"segment {number}", inside=tuple(inside))


def _steps(s: ShownSegment) -> Section:
    """Return the table of steps: which values are fused, and what each step costs."""
    assert s.plan is not None
    assert s.after is not None
    names = value_names(s.after)
    rows = []
    for i, (step, c) in enumerate(zip(s.plan.steps, costs(s.plan), strict=True)):
        members = " ".join(
            names.get(v, "?") for v in step.values if not isinstance(v.primitive, Constant)
        )
        rows.append((
            str(i), step_kind(step), step_title(step), members, size_text(c.read),
            size_text(c.written), count_text(c.flops, "flop"), count_text(c.calls),
        ))  # fmt: skip
    heads = ("step", "kind", "computes", "values", "reads", "writes", "arithmetic", "calls")
    table = ReportTable(heads, tuple(rows), frozenset({0, 4, 5, 6, 7}))
    parts: list[str | ReportTable] = [table]
    again = _recomputed(s.plan, names)
    if again:
        parts.append(f"computed in more than one step, rather than stored: {', '.join(again)}")
    return Section(f"steps ({len(rows)})", tuple(parts))


def _recomputed(plan: Plan, names: Mapping[Value, str]) -> list[str]:
    seen = Counter[Value]()
    for step in plan.steps:
        computed = (
            v
            for v in step.values
            if not isinstance(v.primitive, (Constant, ProgramInput, View, Iota))
        )
        seen.update(list(dict.fromkeys(computed)))
    return [names.get(v, "?") for v, n in seen.items() if n > 1]


def _apart(s: ShownSegment) -> Section:
    """Return why neighbours were not fused."""
    assert s.plan is not None
    assert s.after is not None
    names = value_names(s.after)
    rows = []
    for note in s.plan.notes:
        first, second = (
            f"{names.get(v, '?')} {value_title(v)}{at(v.origin and v.origin.where)}"
            for v in (note.first, note.second)
        )
        rows.append((first, second, note.reason))
    title = "not fused" if rows else "not fused: nothing"
    return Section(
        title, (ReportTable(("made", "read by", "because"), tuple(rows)),) if rows else ()
    )


def _buffer_name(b: Buffer, place: int) -> str:
    return f"{b.kind} {b.index}" if b.kind != "temp" else f"temp {place}"


def _buffers(plan: Plan) -> Section:
    """Return the table of buffers: sizes and places in the arena."""
    first: dict[Buffer, int] = {}
    last: dict[Buffer, int] = {}
    for i, step in enumerate(plan.steps):
        for b in step_buffers(step):
            first.setdefault(b, i)
            last[b] = i
    rows, temps = [], 0
    for b in plan.buffers:
        used = f"{first[b]} to {last[b]}" if b in first else "-"
        at = str(b.offset) if b.kind == "temp" and b.offset >= 0 else ""
        rows.append((
            _buffer_name(b, temps), str(b.dtype), str(b.size), size_text(nbytes(b)), at, used,
        ))  # fmt: skip
        temps += b.kind == "temp"
    heads = ("buffer", "dtype", "elements", "bytes", "at", "steps")
    separate = sum(nbytes(b) for b in plan.buffers if b.kind == "temp")
    summary = (
        f"arena {size_text(plan.arena)}, for temporaries of {size_text(separate)} in all; "
        f"peak with arguments and results {size_text(peak(plan))}"
    )
    title = f"buffers ({len(rows)})"
    return Section(title, (summary, ReportTable(heads, tuple(rows), frozenset({2, 3, 4}))))


def _results(s: ShownSegment) -> Section:
    """Return where each result comes from."""
    assert s.after is not None
    names = value_names(s.after)
    step_of: dict[Value, int] = {}
    for i, step in enumerate(s.plan.steps if s.plan is not None else ()):
        for v in step.values:
            step_of.setdefault(v, i)
    rows = []
    for i, v in enumerate(s.after.outputs):
        step_text = f"step {step_of[v]}" if v in step_of else value_title(v)
        rows.append((
            str(i), f"{v.dtype}{list(v.shape)}", names.get(v, "?"), step_text, origin_text(v),
        ))  # fmt: skip
    heads = ("result", "", "value", "made by", "from")
    return Section("results", (ReportTable(heads, tuple(rows), frozenset({0})),))


def _sources(number: int, s: ShownSegment) -> list[Section]:
    """Return the C text of the kernels, equal ones once."""
    steps: dict[str, list[KernelInfo]] = {}
    for k in kernels(number, s):
        steps.setdefault(k.source, []).append(k)
    out = []
    for source, same in steps.items():
        if source:
            where = ", ".join(str(k.step) for k in same)
            title = f"kernel of step{'s' if len(same) > 1 else ''} {where}: {same[0].title}"
            how = dict.fromkeys(x for k in same for x in (k.schedule, k.expected) if x)
            out.append(Section(title, (*how, Code(source)), folded=True))
    return out


def _compiling(s: ShownSegment) -> Section:
    rows = [(stage, time_text(seconds)) for stage, seconds in s.seconds.items()]
    if s.executable is not None:
        rows += [
            ("kernels compiled", str(s.executable.compiled)),
            ("kernels from the disk cache", str(s.executable.from_disk)),
            ("kernels that this process had", str(s.executable.in_memory)),
        ]
    return Section("compiling", (ReportTable(("stage", "time or number"), tuple(rows)),))

"""`profile`: where the time goes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from contextvars import Token
from pathlib import Path
from time import perf_counter_ns
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np

from adarray.ad.reverse import general_rule
from adarray.base.engines import BaseEngine, WrappingEngine
from adarray.base.errors import user_line
from adarray.base.op import Op
from adarray.base.report import ReportTable, table_html, table_lines, time_text
from adarray.base.runtime import MODE, WRAP, Mode, current_mode
from adarray.base.spans import RECORDER, Span, SpanRecorder
from adarray.core.dispatch import compute
from adarray.core.graph import Node


class ProfilingEngine(WrappingEngine):
    """An engine that hands everything to another one (or NumPy) and measures."""

    def __init__(self, engine: BaseEngine | None, name: str) -> None:
        super().__init__(engine, name)
        self.inner = Mode(engine, name=name)
        if engine is not None:
            self.check_cotangent = engine.check_cotangent

    @property
    def innermost(self) -> BaseEngine | None:
        """The engine that is measured: code that it compiles is the same without a profile."""
        return None if self.wrapped is None else self.wrapped.innermost

    def pointwise(self, op: Op, values: tuple[Any, ...]) -> Any:
        """Compute and measure."""
        return self.call(op, values, {})

    def call(self, op: Op, values: tuple[Any, ...], params: dict[str, Any]) -> Any:
        """Compute and measure."""
        start = perf_counter_ns()
        r = compute(op, values, params, self.inner)
        self.synchronize()  # devices return before they are done
        _add("op", op.name, start, values, r)
        return r

    def derivative(self, op: Op, operand: int, g: Any, saved: tuple[Any, ...]) -> Any:
        """Compute a derivative rule and measure."""
        start = perf_counter_ns()
        r: Any = NotImplemented
        if self.wrapped is not None:
            r = self.wrapped.derivative(op, operand, g, saved)
        if r is NotImplemented:
            rule = op.rules[operand]
            assert rule is not None
            r = rule(g, *saved)
        self.synchronize()  # devices return before they are done
        _add("rule", f"{op.name}, operand {operand}", start, (g, *saved), r)
        return r

    def rule(self, node: Node, operand: int, g: Any, saved: tuple[Any, ...]) -> Any:
        """Run a rule of an operation that is not pointwise, and measure."""
        start = perf_counter_ns()
        r = general_rule(node, operand, g, saved)
        self.synchronize()  # devices return before they are done
        _add("rule", f"{node.op.name}, operand {operand}", start, (g,), r)
        return r


def _add(kind: str, name: str, start: int, values: tuple[Any, ...], result: Any) -> None:
    stop = perf_counter_ns()
    recorder = RECORDER.get()
    if recorder is None:
        return
    nbytes = 0
    shapes = []
    for v in values:
        if isinstance(v, np.ndarray | np.generic):
            nbytes += v.nbytes
            shapes.append(v.shape)
        else:
            shapes.append(())
    for r in result if isinstance(result, tuple) else (result,):
        nbytes += getattr(r, "nbytes", 0)
    where = None
    if recorder.lines:
        file, line, _ = user_line()
        where = None if file is None or line is None else (file, line)
    recorder.add(kind, name, start, stop, nbytes, 0.0, tuple(shapes), where)


class Row(NamedTuple):
    """One line of a profile.

    Parameters
    ----------
    kind, name : str
        As in `adarray.base.spans.Span`.
    at : str
        Shapes or place, where the profile is grouped by them.
    calls : int
    total : float
        Seconds, with everything inside.
    own : float
        Seconds outside of other things that are listed.
    share : float
        `own` as a part of the profile's time; those of one thread add up to at most 1.
    rate : float or None
        Bytes a second, where they are known.
    """

    kind: str
    name: str
    at: str
    calls: int
    total: float
    own: float
    share: float
    rate: float | None

    @property
    def mean(self) -> float:
        """Seconds a call."""
        return self.total / self.calls


class profile:  # noqa: N801  (reads as a statement)
    """Context manager: measure how long operations and kernels take.

    Parameters
    ----------
    lines : bool, optional
        Whether to note, for each operation, the line of the user's code that called it.

    Attributes
    ----------
    spans : list of adarray.base.spans.Span
        Everything that was measured, in the order in which it ended.

    Notes
    -----
    This measures operations on ADArrays, derivative rules and reverse walks; and for functions
    under `jit` tracing, optimisation passes, compilation, and every step of the compiled plan.
    Other NumPy calls on plain arrays are not measured. Measuring adds two or three microseconds to
    each operation, or five with ``lines=True``. It adds about 20 microseconds to a call of a
    compiled function, two for each argument after the first, and less than one for each kernel. It
    costs nothing when no profile is open.

    Profiles nest; the outer one includes everything that the inner one measures. A profile covers
    the current thread or task, and workers that run in a copy of its context (`copy_context`). The
    trace file labels it with the name of the thread.

    Examples
    --------
    >>> import numpy as np, adarray
    >>> with adarray.profile() as p:
    ...     _ = adarray.grad(lambda x: np.sum(np.sin(x) * x))(np.ones(1000))
    >>> [(row.name, row.calls) for row in p.rows() if row.kind == "op" and row.name == "sin"]
    [('sin', 1)]
    """

    def __init__(self, *, lines: bool = False) -> None:
        self._lines = lines
        self._recorder: SpanRecorder | None = None
        self._tokens: tuple[Token[Any], ...] = ()

    def __enter__(self) -> profile:
        if self._recorder is not None:
            raise RuntimeError("profile: this one was entered before; make a new one")
        recorder = self._recorder = SpanRecorder(RECORDER.get(), self._lines)
        mode = current_mode()
        engine = _wrap(mode.engine, mode.name)
        self._tokens = (
            RECORDER.set(recorder),
            WRAP.set(_wrap),
            MODE.set(Mode(engine, mode.record, mode.name)),
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._recorder is not None
        self._recorder.close()
        for token in reversed(self._tokens):
            token.var.reset(token)
        self._tokens = ()

    @property
    def spans(self) -> list[Span]:
        """All that was measured so far, in the order in which it ended."""
        return [] if self._recorder is None else list(self._recorder.spans)

    @property
    def elapsed(self) -> float:
        """Seconds that the block took; until now, if it is still open."""
        if self._recorder is None:
            return 0.0
        stop = self._recorder.stop
        return ((perf_counter_ns() if stop is None else stop) - self._recorder.start) / 1e9

    def rows(self, by: str = "name") -> list[Row]:
        """Return the table's lines, longest total time first.

        Parameters
        ----------
        by : {"name", "shapes", "line"}
            What makes one line: the name; also the operands' shapes; also the line of the
            user's code (see `lines`).

        Raises
        ------
        ValueError
            If `by` is something else.
        """
        if by not in ("name", "shapes", "line"):
            raise ValueError(f"profile.rows: by is {by!r}; pass 'name', 'shapes' or 'line'")
        elapsed = max(self.elapsed, 1e-9)
        groups: dict[tuple[str, str, str], list[float]] = {}
        for s, own in own_times(self.spans):
            at = "" if by == "name" else _shapes(s) if by == "shapes" else _place(s)
            sums = groups.setdefault((s.kind, s.name, at), [0, 0, 0, 0])
            for i, x in enumerate((1, s.stop - s.start, own, s.moved)):
                sums[i] += x
        rows = [
            Row(
                *key, int(calls), total / 1e9, own / 1e9, own / 1e9 / elapsed,
                nbytes / total * 1e9 if nbytes and total else None,
            )
            for key, (calls, total, own, nbytes) in groups.items()
        ]  # fmt: skip
        return sorted(rows, key=lambda r: -r.total)

    def table(self, by: str = "name", limit: int | None = 40) -> str:
        """Return the table as text.

        Parameters
        ----------
        by : {"name", "shapes", "line"}
            What makes one line: the name; also the operands' shapes; also the line of the
            user's code (see `lines`).
        limit : int or None, optional
            Number of lines at most.
        """
        rows = self.rows(by)
        lines = table_lines(_table(rows[:limit]))
        if limit is not None and len(rows) > limit:
            lines.append(f"and {len(rows) - limit} more")
        own = sum(r.own for r in rows)
        lines.append(f"measured {time_text(own)} of {time_text(self.elapsed)}")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.table()

    def _repr_html_(self) -> str:
        return "".join(table_html(_table(self.rows())))

    def trace(self, path: str | os.PathLike[str]) -> None:
        """Write a file for chrome://tracing or ui.perfetto.dev.

        Parameters
        ----------
        path : path-like
            Of the file; its name usually ends with ``.json``.
        """
        recorder = self._recorder
        threads = {} if recorder is None else dict(recorder.threads)
        first = 0 if recorder is None else recorder.start
        document = {
            "traceEvents": list(_events(self.spans, threads, first)),
            "displayTimeUnit": "ns",
        }
        Path(path).write_text(json.dumps(document), encoding="utf-8")


def _wrap(engine: BaseEngine | None, name: str) -> BaseEngine:
    if isinstance(engine, ProfilingEngine):
        return engine
    return ProfilingEngine(engine, name)


def own_times(spans: Iterable[Span]) -> list[tuple[Span, int]]:
    """Return each span with the nanoseconds in it that no other span of its thread covers."""
    out: list[tuple[Span, int]] = []
    by_thread: dict[int, list[Span]] = {}
    for s in spans:
        by_thread.setdefault(s.thread, []).append(s)
    for of_one in by_thread.values():
        # Those that begin together: the longest is around the others.
        of_one.sort(key=lambda s: (s.start, -s.stop))
        own = [s.stop - s.start for s in of_one]
        around: list[int] = []
        for i, s in enumerate(of_one):
            while around and of_one[around[-1]].stop <= s.start:
                around.pop()
            if around:
                own[around[-1]] -= s.stop - s.start
            around.append(i)
        out += zip(of_one, own, strict=True)
    return out


def _shapes(s: Span) -> str:
    return " ".join("x".join(map(str, shape)) or "()" for shape in s.shapes)


def _place(s: Span) -> str:
    return "" if s.where is None else f"{os.path.basename(s.where[0])}:{s.where[1]}"


def _table(rows: Iterable[Row]) -> ReportTable:
    heads = ("kind", "name", "at", "calls", "total", "own", "mean", "share", "rate")
    cells = tuple(
        (
            r.kind, r.name, r.at, str(r.calls), time_text(r.total), time_text(r.own),
            time_text(r.mean), f"{r.share:.1%}",
            "" if r.rate is None else f"{r.rate / 1e9:.2f} GB/s",
        )
        for r in rows
    )  # fmt: skip
    return ReportTable(heads, cells, frozenset(range(3, len(heads))))


def _events(spans: list[Span], threads: dict[int, str], first: int) -> Iterable[dict[str, Any]]:
    """Yield the events of a trace file; times count in microseconds from `first`."""
    pid = os.getpid()
    numbers = {ident: i for i, ident in enumerate(threads, 1)}
    process = {"name": "process_name", "args": {"name": "adarray"}}
    yield {"ph": "M", "pid": pid, "tid": 0, **process}
    for ident, name in threads.items():
        about = {"name": "thread_name", "args": {"name": name}}
        yield {"ph": "M", "pid": pid, "tid": numbers[ident], **about}
    for s in sorted(spans, key=lambda s: (s.start, -s.stop)):
        args: dict[str, Any] = {}
        if s.moved:
            args["bytes"] = s.moved
        if s.work:
            args["operations"] = s.work
        if s.shapes:
            args["shapes"] = _shapes(s)
        if s.where is not None:
            args["line"] = f"{s.where[0]}:{s.where[1]}"
        yield {
            "name": s.name, "cat": s.kind, "ph": "X", "ts": (s.start - first) / 1e3,
            "dur": (s.stop - s.start) / 1e3, "pid": pid, "tid": numbers[s.thread], "args": args,
        }  # fmt: skip

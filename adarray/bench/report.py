"""Tables of measurements: Markdown, comma-separated values and JSON."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from adarray.bench.measure import Measurement
from adarray.bench.studies import NUMPY, OF_LIBRARIES, OPERATORS, ORDER

BASE = "serial"
WAYS = ("forward", "backward")


class BenchTable(NamedTuple):
    """A table: name of its file, title, names of columns, cells."""

    name: str
    title: str
    head: list[str]
    cells: list[list[str]]


def faster(rows: list[Measurement], row: Measurement) -> tuple[float | None, float | None]:
    """Return how many times as long the serial backend takes, forward and backward."""
    study = "sizes" if row.study == "threads" else row.study
    for base in rows:
        if (base.study, base.name, base.backend, base.n) == (study, row.name, BASE, row.n):
            backward = base.backward / row.backward if row.backward else None
            return base.forward / row.forward, backward
    return None, None


def ordered(rows: list[Measurement]) -> list[Measurement]:
    """Return rows in the order of tables, whatever the order was that they were measured in."""

    def place(row: Measurement) -> tuple[int, int, int, int]:
        backend = ORDER.index(row.backend) if row.backend in ORDER else len(ORDER)
        name = list(OPERATORS).index(row.name) if row.name in OPERATORS else 0
        return name, row.n, backend, row.threads or 0

    return sorted(rows, key=place)


def ways(backend: str) -> tuple[str, ...]:
    """Return the passes that are measured on a backend: NumPy by itself has no backward one."""
    return WAYS[:1] if backend == NUMPY else WAYS


def _us(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1e6 * seconds:.4g}"


def _times(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def sizes(rows: list[Measurement], largest: bool = False) -> BenchTable:
    """Return the times and speed-ups by size, or those of the largest size alone."""
    selected = [r for r in rows if r.study == "sizes"]
    backends = list(dict.fromkeys(r.backend for r in selected))
    head = ["operation", "n"]
    head += [f"{b} {way}, us" for b in backends for way in ways(b)]
    others = [b for b in backends if b != BASE] if BASE in backends else []
    head += [f"{BASE} / {b}, {way}" for b in others for way in ways(b)]
    by = {(r.name, r.n, r.backend): r for r in selected}
    last = max((r.n for r in selected), default=0)
    cells = []
    for name, n in dict.fromkeys((r.name, r.n) for r in selected):
        if largest and n != last:
            continue
        here = {b: by.get((name, n, b)) for b in backends}
        line = [name, str(n)]
        for b in backends:
            row = here[b]
            line += [_us(getattr(row, way) if row else None) for way in ways(b)]
        for b in others:
            row = here[b]
            pair = faster(rows, row) if row else (None, None)
            line += [_times(x) for x in pair[: len(ways(b))]]
        cells.append(line)
    if largest:
        return BenchTable("largest", f"Matrices of {last} x {last}", head, cells)
    return BenchTable("sizes", "Against the size of matrices", head, cells)


def threads(rows: list[Measurement]) -> BenchTable:
    """Return the speed-ups of the GPU over the serial backend by threads of a block."""
    selected = [r for r in rows if r.study == "threads"]
    counts = sorted({r.threads for r in selected if r.threads is not None})
    head = ["operation", "pass", *(f"{c} threads" for c in counts), "fastest"]
    by = {(r.name, r.threads): r for r in selected}
    cells = []
    for name in dict.fromkeys(r.name for r in selected):
        for way in (0, 1):
            here = {c: by[name, c] for c in counts if (name, c) in by}
            ratios = {c: faster(rows, r)[way] for c, r in here.items()}
            times = {c: (r.forward, r.backward)[way] for c, r in here.items()}
            best = "any" if name in OF_LIBRARIES else str(min(times, key=times.__getitem__))
            if None in ratios.values():  # nothing to compare with
                shown = [f"{_us(times[c])} us" if c in times else "-" for c in counts]
            else:
                shown = [_times(ratios.get(c)) for c in counts]
            cells.append([name, WAYS[way], *shown, best])
    n = selected[0].n if selected else 0
    title = f"Against the threads of a block, {n} x {n}: {BASE} / cuda"
    return BenchTable("threads", title, head, cells)


def network(rows: list[Measurement]) -> BenchTable:
    """Return the times of a step by number of parameters."""
    selected = [r for r in rows if r.study == "network"]
    backends = list(dict.fromkeys(r.backend for r in selected))
    others = [b for b in backends if b != BASE] if BASE in backends else []
    head = ["parameters", *(f"{b}, us" for b in backends), *(f"{BASE} / {b}" for b in others)]
    by = {(r.n, r.backend): r for r in selected}
    cells = []
    for n in dict.fromkeys(r.n for r in selected):
        here = {b: by.get((n, b)) for b in backends}
        line = [str(n)]
        line += [_us(row.forward if row else None) for row in here.values()]
        for b in others:
            row = here[b]
            line.append(_times(faster(rows, row)[0] if row else None))
        cells.append(line)
    title = "A step of the three-layer network, compiled"
    if NUMPY in backends:
        title += f"; of {NUMPY} its loss alone, without a gradient"
    return BenchTable("network", title, head, cells)


def tables(rows: list[Measurement]) -> list[BenchTable]:
    """Return the tables that have something in them."""
    rows = ordered(rows)
    every = (sizes(rows, largest=True), threads(rows), network(rows), sizes(rows))
    return [t for t in every if t.cells]


def markdown(table: BenchTable) -> str:
    """Return a table as Markdown."""
    widths = [max(len(line[i]) for line in (table.head, *table.cells)) for i in range(len(table.head))]  # noqa: E501  # fmt: skip

    def line(cells: list[str]) -> str:
        padded = (c.ljust(w) for c, w in zip(cells, widths, strict=True))
        return f"| {' | '.join(padded)} |"

    rule = [":" + "-" * (widths[0] - 1), *("-" * (w - 1) + ":" for w in widths[1:])]
    return "\n".join([f"**{table.title}**", "", line(table.head), line(rule),
                      *map(line, table.cells)])  # fmt: skip


def text(rows: list[Measurement], facts: dict[str, Any]) -> str:
    """Return all tables, and the machine of the measurements."""
    about = ", ".join(f"{k} {v}" for k, v in facts.items())
    parts = [f"Measured on: {about}.", *(markdown(t) for t in tables(rows))]
    groups = ", ".join(f"{o.name} ({o.group})" for o in OPERATORS.values())
    if any(r.backend == NUMPY for r in rows):
        parts.append(f"{NUMPY}: NumPy by itself, without adarray.")
    return "\n\n".join([*parts, f"Operations: {groups}."]) + "\n"


def write(rows: list[Measurement], facts: dict[str, Any], folder: Path) -> Iterator[Path]:
    """Write all tables into a folder; yield the files."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "bench.md"
    path.write_text(text(rows, facts), encoding="utf-8")
    yield path
    path = folder / "bench.json"
    content = {"measured on": facts, "rows": [r._asdict() for r in rows]}
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    yield path
    for table in tables(rows):
        path = folder / f"bench_{table.name}.csv"
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows([table.head, *table.cells])
        yield path


def read(path: Path) -> tuple[list[Measurement], dict[str, Any]]:
    """Read the rows and facts that `write` wrote into ``bench.json``."""
    content = json.loads(path.read_text(encoding="utf-8"))
    return [Measurement(**r) for r in content["rows"]], content["measured on"]

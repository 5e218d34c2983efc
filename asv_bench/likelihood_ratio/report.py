"""Tables of what was measured: means over seeds, times, memory."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from asv_bench.likelihood_ratio import store
from asv_bench.likelihood_ratio.copies import COPIES_FILE, MEMORY_FILE
from asv_bench.likelihood_ratio.training import PRECISIONS
from asv_bench.tables import table, time_text

Group = dict[str, Any]
METHODS = ("bp", "lr-f", "lr-f-pairs", "lr-l-64", "lr-l", "lr-m")  # in the order of the tables
HEAD = ["", "settings", "backend", "epochs", "test, %", "seeds", "epoch", "memory"]
KEYS = ("problem", "data", "network", "method", "settings", "backend", "precision", "epochs")


def groups(out: Path) -> list[Group]:
    """Return one record for all seeds of a training, with times of the file of speeds if any."""
    by_training: dict[tuple[Any, ...], Group] = {}
    for row in store.read(out / store.RUNS):
        if "error" in row:
            continue
        entry = by_training.setdefault(tuple(row[k] for k in KEYS), {**row, "rows": []})
        entry["rows"].append(row)
    timed = [row for row in store.read(out / store.SPEED) if "epoch_s" in row]
    speeds = {_timed(row): row for row in timed}
    for group in by_training.values():
        tests = [row["test"] for row in group["rows"]]
        group["mean"] = statistics.fmean(tests)
        group["spread"] = statistics.stdev(tests) if len(tests) > 1 else None
        group["alone"] = _timed(group) in speeds
        epoch_s = statistics.median(row["epoch_s"] for row in group["rows"])
        speed = speeds.get(_timed(group), {})
        group["epoch_s"] = speed.get("epoch_s", epoch_s)
        sizes = (row.get("peak_bytes") or 0 for row in (*group["rows"], speed))
        group["peak_bytes"] = max(sizes)
    return list(by_training.values())


def _timed(row: Group) -> tuple[Any, ...]:
    """Return the key of the times of a training."""
    return tuple(row[k] for k in KEYS if k != "epochs")


def _order(group: Group) -> tuple[Any, ...]:
    return (
        group["backend"], PRECISIONS.index(group["precision"]), METHODS.index(group["method"])
    )  # fmt: skip


def cells(group: Group) -> list[str]:
    """Return a line of the table."""
    backend = group["backend"]
    if group["precision"] != "float32":
        backend += f", {group['precision']}"
    test = f"{group['mean']:.2f}"
    if group["spread"] is not None:
        test += f" ± {group['spread']:.2f}"
    return [
        group["title"],
        group["settings"],
        backend,
        str(group["epochs"]),
        test,
        str(len(group["rows"])),
        time_text(group["epoch_s"]) + ("" if group["alone"] else " *"),
        f"{digits(group['peak_bytes'] / 2**20)} MiB" if group["peak_bytes"] else "-",
    ]


def attacks(every: list[Group]) -> tuple[list[str], list[list[str]]]:
    """Return head and lines of the accuracies under attacks, means over seeds."""
    every = [g for g in every if g["rows"][0].get("attacked")]
    if not every:
        return [], []
    steps = list(every[0]["rows"][0]["attacked"])
    lines = []
    for g in every:
        means = [statistics.fmean(row["attacked"][s] for row in g["rows"]) for s in steps]
        name = [g["title"], g["settings"], cells(g)[2]]
        lines.append([*name, *(f"{m:.1f}" for m in means)])
    return ["", "settings", "backend", *(f"step {s}" for s in steps)], lines


def tables(out: Path) -> dict[str, tuple[str, list[str], list[list[str]]]]:
    """Return title, head and lines of every table, by the name of its file."""
    every_table = {}
    every = sorted(groups(out), key=_order)
    for name in sorted({g["problem"] for g in every}):
        of_problem = [g for g in every if g["problem"] == name]
        title = f"{of_problem[0]['data']}, {of_problem[0]['network']}"
        every_table[name] = title, HEAD, [cells(g) for g in of_problem]
        head, lines = attacks(of_problem)
        if lines:
            every_table["attacks"] = f"{title}: test accuracy under attacks, %", head, lines
    return every_table


def digits(x: float) -> str:
    """Return a number with three digits, or all of those before the point."""
    return f"{x:.3g}" if x < 1000 else f"{x:.0f}"


def by_copies(out: Path) -> dict[str, tuple[str, list[str], list[list[str]]]]:
    """Return the tables of what `copies` measured: a line for each method."""
    every_table = {}
    for name, file, what, form in (
        ("copies", COPIES_FILE, "cosine", "{:.3f}".format),
        ("memory", MEMORY_FILE, "peak_bytes", digits),
    ):
        if not (out / file).exists():
            continue
        rows = json.loads((out / file).read_text())
        counts = sorted({row["copies"] for row in rows if row["method"].startswith("lr-f")})
        lines = []
        for key in dict.fromkeys((row["data"], row["title"]) for row in rows):
            by_count = {r["copies"]: r[what] for r in rows if (r["data"], r["title"]) == key}
            unit = 2**20 if name == "memory" else 1
            one = by_count.get(next(iter(by_count))) if len(by_count) == 1 else None
            lines.append([*key, *(form(by_count.get(n, one) / unit) for n in counts)])
        title = {"copies": "Cosine with the exact gradient, by copies", "memory": "MiB, by copies"}
        every_table[name] = title[name], ["data", "", *map(str, counts)], lines
    return every_table


def write(out: Path) -> str:
    """Write ``NAME.tsv`` for every table and ``tables.md`` with all; return the text."""
    every_table = {**tables(out), **by_copies(out)}
    for name, (_, head, lines) in every_table.items():
        text = "".join("\t".join(cell) + "\n" for cell in [head, *lines])
        (out / f"{name}.tsv").write_text(text)
    text = "\n\n".join(table(*t) for t in every_table.values())
    if any(
        " *" in line[6]
        for name, t in every_table.items()
        if name != "attacks"
        for line in t[2]
        if len(line) > 6
    ):
        text += "\n\n\\* measured while other trainings may have run beside it"
    (out / "tables.md").write_text(text + "\n")
    return text

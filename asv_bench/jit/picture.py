"""A picture of the times: every engine in units of `adarray.jit`, workload by workload."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from asv_bench.jit.report import Row, rows

# Colours that stay apart for the colour-blind (Okabe and Ito), and shapes beside them.
MARKS = {
    "torch.compile": ("#D55E00", "s"),
    "jax": ("#0072B2", "o"),
    "torch": ("#E69F00", "D"),
    "autograd": ("#999999", "^"),
}


def points(measured: list[Row]) -> dict[str, list[tuple[float, int]]]:
    """Return ``(time / ours, position)`` by engine; texts count for their library."""
    fastest: dict[str, dict[int, float]] = {name: {} for name in MARKS}
    for position, row in enumerate(measured):
        if not row["ours"]:
            continue
        for engine, seconds in row["times"].items():
            name = engine.partition(",")[0]
            if name in fastest and seconds is not None:
                best = fastest[name].get(position, float("inf"))
                fastest[name][position] = min(best, seconds / row["ours"])
    return {
        name: [(x, position) for position, x in marks.items()] for name, marks in fastest.items()
    }


def draw(report: dict[str, Any], paths: list[Path]) -> None:
    """Write the picture; the names of `paths` end in .svg or .png."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "adarray"  # the same figures give the same file
    from matplotlib.figure import Figure

    drawn = rows(report)
    figure = Figure(figsize=(8.5, 0.33 * len(drawn) + 1.6), layout="constrained")
    axes = figure.add_subplot()
    for name, marks in points(drawn).items():
        colour, shape = MARKS[name]
        xs, ys = [x for x, _ in marks], [y for _, y in marks]
        axes.scatter(xs, ys, color=colour, marker=shape, s=34, label=name, zorder=3)
    floors = [(r["fraction"], i) for i, r in enumerate(drawn) if r["fraction"]]
    axes.scatter(
        [x for x, _ in floors], [y for _, y in floors], color="black", marker="|", s=90,
        label="floor of the machine", zorder=2,
    )  # fmt: skip
    axes.axvline(1.0, color="#009E73", linewidth=2, label="adarray jit", zorder=1)
    axes.set_xscale("log")
    axes.set_yticks(range(len(drawn)), [r["name"] for r in drawn])
    axes.invert_yaxis()
    axes.set_xlabel("time of value and gradient / adarray jit (right of the line: slower)")
    axes.grid(axis="x", color="#DDDDDD", linewidth=0.6, zorder=0)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    for path in paths:
        options = {"metadata": {"Date": None}} if path.suffix == ".svg" else {"dpi": 160}
        figure.savefig(path, **options)

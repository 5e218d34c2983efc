"""A picture of the times: every engine in units of one of them, program by program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from asv_bench.npbench.engines import OURS
from asv_bench.npbench.measure import ratio
from asv_bench.npbench.report import engines

# Colours that stay apart for the colour-blind (Okabe and Ito), and shapes beside them.
MARKS = {
    "jax": ("#0072B2", "o"),
    "dace": ("#D55E00", "s"),
    "autograd": ("#999999", "^"),
    "adarray-serial": ("#E69F00", "v"),
    "adarray-openmp": ("#E69F00", "D"),
    "jit-serial": ("#CC79A7", "P"),
    "jit-cuda": ("#56B4E9", "*"),
}


def unit(report: dict[str, Any]) -> str | None:
    """Return the engine in whose times others are shown; None if no engine of ours ran."""
    names = engines(report)
    wanted = ["jit-openmp", "jit-serial", *OURS]
    return next((n for n in wanted if n in names), None)


def points(report: dict[str, Any], size: str) -> dict[str, list[tuple[float, str]]]:
    """Return ``(time / unit, program)`` by engine; wrong gradients have none."""
    ours = unit(report)
    ratios: dict[str, list[tuple[float, str]]] = {}
    for program, sizes in report["programs"].items():
        row = sizes.get(size, {})
        for name in MARKS:
            x = ratio(row, ours, name) if ours and name != ours else None
            if x is not None and row[name]["right"]:
                ratios.setdefault(name, []).append((x, program))
    return ratios


def draw(report: dict[str, Any], size: str, paths: list[Path]) -> None:
    """Write the picture of one size; the names of `paths` end in .svg or .png."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "adarray"  # the same figures give the same file
    from matplotlib.figure import Figure

    programs = [p for p, sizes in report["programs"].items() if size in sizes]
    figure = Figure(figsize=(8.5, 0.25 * len(programs) + 1.8), layout="constrained")
    axes = figure.add_subplot()
    for name, marks in points(report, size).items():
        colour, shape = MARKS[name]
        xs, ys = [x for x, _ in marks], [programs.index(p) for _, p in marks]
        axes.scatter(xs, ys, color=colour, marker=shape, s=30, label=name, zorder=3)
    axes.axvline(1.0, color="#009E73", linewidth=2, label=f"adarray, {unit(report)}", zorder=1)
    axes.set_xscale("log")
    axes.set_yticks(range(len(programs)), programs)
    axes.invert_yaxis()
    axes.set_xlabel(f"time of value and gradient / {unit(report)} (right of the line: slower)")
    axes.set_title(f"NPBench, size {size}")
    axes.grid(axis="x", color="#DDDDDD", linewidth=0.6, zorder=0)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    for path in paths:
        options = {"metadata": {"Date": None}} if path.suffix == ".svg" else {"dpi": 160}
        figure.savefig(path, **options)

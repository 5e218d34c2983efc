"""A picture of the times on a GPU: every engine in units of `adarray.jit`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from asv_bench.gpu.engines import OURS
from asv_bench.gpu.targets import median
from asv_bench.gpu.workloads import GPU_WORKLOADS

# Colours that stay apart for the colour-blind (Okabe and Ito), and shapes beside them.
MARKS = {
    "torch.compile, CUDA graphs": ("#CC79A7", "v"),
    "torch.compile": ("#D55E00", "s"),
    "jax": ("#0072B2", "o"),
    "torch": ("#E69F00", "D"),
}


def family(engine: str) -> str | None:
    """Return which mark stands for an engine; the best one of a family counts."""
    if engine.startswith("torch.compile"):
        return "torch.compile, CUDA graphs" if "graphs" in engine else "torch.compile"
    name = engine.partition(",")[0]
    return name if name in MARKS else None


def points(report: dict[str, Any]) -> dict[str, dict[int, float]]:
    """Return time / ours by family and position of the workload."""
    marks: dict[str, dict[int, float]] = {name: {} for name in MARKS}
    for position, part in enumerate(report["workloads"].values()):
        ours = median(part, OURS)
        for engine in part if ours else ():
            name, theirs = family(engine), median(part, engine)
            if name is not None and ours and theirs:
                best = marks[name].get(position, float("inf"))
                marks[name][position] = min(best, theirs / ours)
    return marks


def draw(report: dict[str, Any], paths: list[Path]) -> None:
    """Write the picture; the names of `paths` end in .svg or .png."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "adarray"  # the same figures give the same file
    from matplotlib.figure import Figure

    names = list(report["workloads"])
    figure = Figure(figsize=(8.5, 0.36 * len(names) + 1.6), layout="constrained")
    axes = figure.add_subplot()
    for name, marks in points(report).items():
        colour, shape = MARKS[name]
        axes.scatter(
            list(marks.values()), list(marks), color=colour, marker=shape, s=34, label=name,
            zorder=3,
        )  # fmt: skip
    targets = [GPU_WORKLOADS[n].target for n in names]
    axes.scatter(
        targets, range(len(names)), color="black", marker="|", s=90, label="target", zorder=2
    )
    axes.axvline(1.0, color="#009E73", linewidth=2, label=OURS, zorder=1)
    axes.set_xscale("log")
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlabel(f"time / {OURS} (right of the line: slower)")
    axes.grid(axis="x", color="#DDDDDD", linewidth=0.6, zorder=0)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    for path in paths:
        options = {"metadata": {"Date": None}} if path.suffix == ".svg" else {"dpi": 160}
        figure.savefig(path, **options)

"""Pictures: accuracy by epoch and by time, and under attacks."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from asv_bench.likelihood_ratio.copies import COPIES_FILE
from asv_bench.likelihood_ratio.report import METHODS, Group, groups

# Colours that stay apart for the colour-blind (Okabe and Ito), and dashes beside them.
STYLES = {
    "bp": ("#000000", "-"),
    "lr-f": ("#D55E00", ":"),
    "lr-f-pairs": ("#E69F00", "-."),
    "lr-l": ("#0072B2", "-"),
    "lr-l-64": ("#56B4E9", "--"),
    "lr-m": ("#009E73", "--"),
}


def curve(group: Group) -> tuple[list[float], list[float], list[float]]:
    """Return the least, mean and largest test accuracy of the seeds, by epoch."""
    by_epoch = list(zip(*(row["accuracy"]["test"] for row in group["rows"]), strict=True))
    return (
        [min(x) for x in by_epoch],
        [statistics.fmean(x) for x in by_epoch],
        [max(x) for x in by_epoch],
    )


def _plot(axes: Any, group: Group, scale: float) -> None:
    low, mean, high = curve(group)
    xs = [scale * (k + 1) for k in range(len(mean))]
    colour, dash = STYLES.get(group["method"], ("#999999", "-"))
    axes.plot(xs, mean, dash, color=colour, label=group["title"], linewidth=1.5)
    axes.fill_between(xs, low, high, color=colour, alpha=0.15, linewidth=0)


def draw(out: Path) -> list[Path]:
    """Write ``curves`` and ``attacks`` as .svg and .png; return the paths.

    Of each experiment the exact products are shown, on a GPU if there are runs on one.
    """
    every = groups(out)
    names = sorted({g["problem"] for g in every})
    if not names:
        return []
    figure = _figure((9.0, 2.8 * len(names)))
    rows = figure.subplots(len(names), 2, squeeze=False, sharey="row")
    for name, (by_epoch, by_time) in zip(names, rows, strict=True):
        shown = _shown([g for g in every if g["problem"] == name])
        for group in shown:
            _plot(by_epoch, group, 1.0)
            _plot(by_time, group, group["epoch_s"])
        by_epoch.set_ylabel("test accuracy, %")
        by_epoch.set_title(shown[0]["data"], fontsize=10)
        by_epoch.set_ylim(_floor(shown), None)
        by_epoch.set_xlabel("epochs")
        by_time.set_xlabel(f"time of steps, s ({shown[0]['backend']})")
        by_time.set_xscale("log")
        by_epoch.legend(fontsize=8)
    return [*_saved(figure, out, "curves"), *_attacks(out, every)]


def draw_copies(out: Path) -> list[Path]:
    """Write ``copies`` as .svg and .png from what `copies` measured; return the paths."""
    if not (out / COPIES_FILE).exists():
        return []
    figure = _figure((8.5, 3.2))
    rows = json.loads((out / COPIES_FILE).read_text())
    for axes, what in zip(figure.subplots(1, 2), ("cosine", "variance"), strict=True):
        for method in dict.fromkeys(row["method"] for row in rows):
            line = [row for row in rows if row["method"] == method]
            colour, dash = STYLES[method]
            axes.plot(
                [row["copies"] for row in line], [row[what] for row in line], dash,
                color=colour, marker=".", label=line[0]["title"],
            )  # fmt: skip
        axes.set_xscale("log", base=2)
        axes.set_xlabel("copies")
    figure.axes[0].set_ylabel("cosine with the exact gradient")
    figure.axes[1].set_ylabel("relative variance")
    figure.axes[1].set_yscale("log")
    figure.axes[0].legend(fontsize=8)
    return _saved(figure, out, "copies")


def _figure(size: tuple[float, float]) -> Any:
    """Return an empty figure that is written the same way every time."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "adarray"
    from matplotlib.figure import Figure

    return Figure(figsize=size, layout="constrained")


def _shown(every: list[Group]) -> list[Group]:
    """Return a group of each method, of one backend, with exact products."""
    exact = [g for g in every if g["precision"] == "float32"] or every
    backend = "cuda" if any(g["backend"] == "cuda" for g in exact) else exact[0]["backend"]
    most: dict[str, Group] = {}  # of each method that with most seeds
    for g in exact:
        known = most.get(g["method"])
        if g["backend"] == backend and (known is None or len(g["rows"]) > len(known["rows"])):
            most[g["method"]] = g
    return sorted(most.values(), key=lambda g: METHODS.index(g["method"]))


def _floor(shown: list[Group]) -> float:
    """Return where the axis begins: first epochs of the slowest may lie below."""
    return max(0.0, min(g["mean"] for g in shown) - 12.0)


def _attacks(out: Path, every: list[Group]) -> list[Path]:
    attacked = [g for g in every if g["rows"][0].get("attacked")]
    if not attacked:
        return []
    shown = _shown(attacked)
    figure = _figure((5.5, 3.4))
    axes = figure.add_subplot()
    for g in shown:
        steps = list(g["rows"][0]["attacked"])
        means = [statistics.fmean(row["attacked"][s] for row in g["rows"]) for s in steps]
        colour, dash = STYLES.get(g["method"], ("#999999", "-"))
        axes.plot(
            [float(s) for s in steps], means, dash, color=colour, label=g["title"], marker="."
        )
    axes.set_xlabel("step of the attack, range of a pixel = 1")
    axes.set_ylabel("test accuracy, %")
    axes.legend(fontsize=8)
    return _saved(figure, out, "attacks")


def _saved(figure: Any, out: Path, name: str) -> list[Path]:
    paths = [out / f"{name}.{kind}" for kind in ("svg", "png")]
    for path in paths:
        figure.savefig(path, dpi=120, metadata={"Date": None} if path.suffix == ".svg" else None)
    return paths

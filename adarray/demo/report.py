"""What the demo shows: progress, one table, one picture."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from adarray.demo.train import TrainingRun

HOW_TO_GET = "pip install 'adarray[demo]'"
FORWARD = "NumPy, forward alone"


def _optional(name: str) -> Any:
    """Return a module, or None where it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def missing() -> list[str]:
    """Return one line for each optional module that is not installed."""
    wanted = {"tqdm": "plain lines instead of progress bars", "matplotlib": "no picture"}
    return [
        f"{name} is not installed: {effect} ({HOW_TO_GET})"
        for name, effect in wanted.items()
        if _optional(name) is None
    ]


def progress(steps: Iterable[Any], total: int, title: str) -> Iterable[Any]:
    """Return `steps` with a progress bar, or with a line at every quarter without tqdm.

    No bar is drawn where standard error is not a terminal.
    """
    tqdm = _optional("tqdm")
    if tqdm is None:
        return _quarters(steps, total, title)
    return tqdm.tqdm(steps, total=total, desc=f"{title:>11}", unit="step", disable=None)  # type: ignore[no-any-return]


def _quarters(steps: Iterable[Any], total: int, title: str) -> Iterator[Any]:
    for k, step in enumerate(steps, 1):
        yield step
        if k * 4 // total > (k - 1) * 4 // total:
            print(f"{title:>11}: {k} of {total} steps", file=sys.stderr)


def table(runs: list[TrainingRun], forward: float) -> str:
    """Return the table of all runs as text; NumPy's own `forward` seconds are its unit."""
    rows: list[tuple[str, ...]] = [
        ("", "loss and gradient", "NumPy's forward = 1", "test accuracy"),
        (FORWARD, f"{forward * 1e3:.3f} ms", "1.0", ""),
    ]
    rows += [
        (
            run.name,
            f"{run.gradient_ms:.3f} ms",
            _factor(run.gradient_ms / 1e3 / forward),
            f"{run.accuracy:.2%}",
        )
        for run in runs
    ]
    return _lines(rows)


def sizes_table(runs: list[TrainingRun], forward: dict[int, float]) -> str:
    """Return the table of networks of other sizes as text, in units of NumPy's own forward."""
    units = list(forward)
    rows: list[tuple[str, ...]] = [("hidden units", *(str(n) for n in units))]
    rows.append((f"{FORWARD}, ms", *(f"{forward[n] * 1e3:.3f}" for n in units)))
    rows += [(run.name, *(_factor(run.sizes[n] / forward[n]) for n in units)) for run in runs]
    return _lines(rows)


def _factor(value: float) -> str:
    return f"{value:.1f}" if value >= 1 else f"{value:.2f}"


def _lines(rows: list[tuple[str, ...]]) -> str:
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    lines = [
        "  ".join(
            cell.ljust(w) if k == 0 else cell.rjust(w)
            for k, (cell, w) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    lines.insert(1, "  ".join("-" * w for w in widths))
    return "\n".join(lines)


def picture(
    runs: list[TrainingRun], forward: dict[int, float], title: str, folder: Path
) -> list[Path]:
    """Draw the loss curves and the times by size as PNG and SVG; return the files written.

    Nothing is drawn without matplotlib.
    """
    if _optional("matplotlib") is None:
        return []
    from matplotlib.figure import Figure

    # The figure is made without pyplot: no window system is asked for.
    figure = Figure(figsize=(11, 4.4), layout="constrained")
    curves, times = figure.subplots(1, 2)
    for k, run in enumerate(runs):
        # Equal curves lie on top of each other: later ones are thinner.
        width = 1.2 + 2.0 * (len(runs) - 1 - k)
        curves.plot(_smooth(run.losses), label=run.name, linewidth=width)
    curves.set(xlabel="step", ylabel="training loss", yscale="log", title=title)
    curves.legend()
    units = list(forward)
    for run in runs:
        line = "--o" if run.compiled else "-o"
        times.plot(units, [run.sizes[n] / forward[n] for n in units], line, label=run.name)
    times.axhline(1, color="black", linewidth=1)
    times.annotate(FORWARD, (units[-1], 1), ha="right", va="bottom", fontsize=9)
    times.set(
        xscale="log", yscale="log", xlabel="hidden units", ylabel="time / NumPy's forward",
        title="loss and gradient",
    )  # fmt: skip
    times.set_xticks(units, [str(n) for n in units])
    times.minorticks_off()
    ticks = [t for t in (0.2, 0.5, 1, 2, 5, 10, 20, 50) if _inside(t, times.get_ylim())]
    times.set_yticks(ticks, [f"{t:g}" for t in ticks])
    times.grid(color="#DDDDDD", linewidth=0.5)
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"adarray_demo.{suffix}" for suffix in ("png", "svg")]
    for path in paths:
        figure.savefig(path, dpi=120)
    return paths


def _inside(value: float, limits: tuple[float, float]) -> bool:
    return limits[0] <= value <= limits[1]


def _smooth(losses: list[float], window: int = 21) -> Any:
    """Return a running mean: single batches are noisy."""
    width = min(window, len(losses))
    return np.convolve(losses, np.full(width, 1 / width), mode="valid")

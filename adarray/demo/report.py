"""What the demo shows: progress, one table, one picture."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from adarray.demo.train import Run

HOW_TO_GET = "pip install 'adarray[demo]'"
REFERENCE = "serial"


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
    return tqdm.tqdm(steps, total=total, desc=f"{title:>8}", unit="step", disable=None)  # type: ignore[no-any-return]


def _quarters(steps: Iterable[Any], total: int, title: str) -> Iterator[Any]:
    for k, step in enumerate(steps, 1):
        yield step
        if k * 4 // total > (k - 1) * 4 // total:
            print(f"{title:>8}: {k} of {total} steps", file=sys.stderr)


def speedups(runs: list[Run]) -> tuple[str, dict[str, float]]:
    """Return the backend that is compared with, and how many times faster each one is.

    The comparison is with the serial backend, or with the first run where the
    serial one did not take part.
    """
    totals = {run.backend: run.forward_ms + run.backward_ms for run in runs}
    base = REFERENCE if REFERENCE in totals else runs[0].backend
    return base, {name: totals[base] / t for name, t in totals.items()}


def table(runs: list[Run]) -> str:
    """Return the table of all runs as text."""
    base, faster = speedups(runs)
    rows = [("backend", "test accuracy", "forward ms", "backward ms", f"speed-up over {base}")]
    rows += [
        (
            run.backend,
            f"{run.accuracy:.2%}",
            f"{run.forward_ms:.3f}",
            f"{run.backward_ms:.3f}",
            f"{faster[run.backend]:.2f}",
        )
        for run in runs
    ]
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    lines = [
        "  ".join(
            cell.ljust(w) if k == 0 else cell.rjust(w)
            for k, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    lines.insert(1, "  ".join("-" * w for w in widths))
    return "\n".join(lines)


def picture(runs: list[Run], title: str, folder: Path) -> list[Path]:
    """Draw the loss curves and the speed-ups as PNG and SVG; return the files written.

    Nothing is drawn without matplotlib.
    """
    matplotlib = _optional("matplotlib")
    if matplotlib is None:
        return []
    from matplotlib.figure import Figure

    base, faster = speedups(runs)
    # The figure is made without pyplot: no window system is asked for.
    figure = Figure(figsize=(10, 4), layout="constrained")
    curves, bars = figure.subplots(1, 2, width_ratios=(2, 1))
    for k, run in enumerate(runs):
        # Equal curves lie on top of each other: later ones are thinner.
        width = 1.2 + 2.4 * (len(runs) - 1 - k)
        curves.plot(_smooth(run.losses), label=run.backend, linewidth=width)
    curves.set(xlabel="step", ylabel="training loss", yscale="log", title=title)
    curves.legend()
    names = list(faster)
    drawn = bars.bar(names, [faster[n] for n in names], color=[f"C{k}" for k in range(len(names))])
    bars.bar_label(drawn, fmt="%.2f")
    bars.margins(y=0.1)
    bars.axhline(1, color="grey", linewidth=0.8)
    bars.set(ylabel=f"speed-up over {base}", title="forward + backward")
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"adarray_demo.{suffix}" for suffix in ("png", "svg")]
    for path in paths:
        figure.savefig(path, dpi=120)
    return paths


def _smooth(losses: list[float], window: int = 21) -> Any:
    """Return a running mean: single batches are noisy."""
    width = min(window, len(losses))
    return np.convolve(losses, np.full(width, 1 / width), mode="valid")

"""Pictures of the studies: speed-up over the serial backend."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from adarray.bench.measure import Measurement
from adarray.bench.report import BASE, WAYS, faster, ordered, ways
from adarray.bench.studies import NUMPY, OPERATORS

HOW_TO_GET = "pip install 'adarray[demo]'"
# Colours that stay apart for the colour-blind (Okabe and Ito).
COLOURS = {"numpy": "#009E73", "serial": "#999999", "openmp": "#D55E00", "cuda": "#0072B2"}
COLUMNS = 5
STUDIES = ("threads", "sizes", "network")
LABELS = {"threads": "threads of a block", "sizes": "rows and columns of a matrix"}


def available() -> bool:
    """Whether matplotlib is installed; it is imported whole, before anything can interrupt that."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        return False
    return True


def draw(rows: list[Measurement], folder: Path, studies: Sequence[str] = STUDIES) -> Iterator[Path]:
    """Draw a picture of each study that has something to compare with; yield the files."""
    import matplotlib

    matplotlib.rcParams["svg.hashsalt"] = "adarray"  # the same figures give the same file
    folder.mkdir(parents=True, exist_ok=True)
    rows = ordered(rows)
    for study in studies:
        figure = _network(rows) if study == "network" else _panels(rows, study, LABELS[study])
        if figure is None:
            continue
        for suffix in ("svg", "png"):
            path = folder / f"bench_{study}.{suffix}"
            options = {"metadata": {"Date": None}} if suffix == "svg" else {"dpi": 130}
            figure.savefig(path, **options)
            yield path


def _compared(rows: list[Measurement], study: str) -> list[Measurement]:
    """Return the rows of a study that are compared with the serial backend's."""
    return [
        r for r in rows if r.study == study and r.backend != BASE and faster(rows, r)[0] is not None
    ]


def _panels(rows: list[Measurement], study: str, label: str) -> Any:
    """Return a figure with a panel for each operation; None without figures."""
    from matplotlib.figure import Figure

    compared = _compared(rows, study)
    if not compared:
        return None
    names = [n for n in OPERATORS if any(r.name == n for r in compared)]
    columns = min(COLUMNS, len(names))
    lines = -(-len(names) // columns)
    figure = Figure(figsize=(max(2.3 * columns, 6.0), 2.0 * lines + 0.9), layout="constrained")
    swept = study == "threads"
    axes = figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=not swept)
    for place, name in zip(axes.flat, names, strict=False):
        for backend in dict.fromkeys(r.backend for r in compared):
            here = [r for r in compared if r.name == name and r.backend == backend]
            xs = [r.threads if swept else r.n for r in here]
            for way, style in zip(range(len(ways(backend))), ("-o", "--s"), strict=False):
                place.plot(
                    xs, [faster(rows, r)[way] for r in here], style, markersize=3, linewidth=1.2,
                    color=COLOURS.get(backend), label=f"{backend}, {WAYS[way]}",
                )  # fmt: skip
        _dressed(place, name)
        if swept:
            place.set_ylim(bottom=0)
        else:
            place.set_yscale("log")
            place.yaxis.set_major_formatter("{x:g}")
            place.axhline(1.0, color="#999999", linewidth=0.8)
    for place in axes.flat[len(names) :]:
        place.set_visible(False)
    figure.supxlabel(label, fontsize=9)
    figure.supylabel(f"time of {BASE} / time", fontsize=9)
    shown = {
        name: line
        for place in axes.flat
        for line, name in zip(*place.get_legend_handles_labels(), strict=True)
    }
    figure.legend(
        shown.values(), shown.keys(), loc="outside upper center", ncols=4, frameon=False, fontsize=8
    )
    return figure


def _dressed(place: Any, title: str) -> None:
    place.set_title(title, fontsize=9)
    place.set_xscale("log", base=2)
    place.xaxis.set_major_formatter("{x:g}")
    place.tick_params(labelsize=7)
    place.grid(color="#DDDDDD", linewidth=0.5)
    for side in ("top", "right"):
        place.spines[side].set_visible(False)


def _network(rows: list[Measurement]) -> Any:
    """Return the figure of the network; None without figures."""
    from matplotlib.figure import Figure

    of_network = [r for r in rows if r.study == "network"]
    if not of_network:
        return None
    ratios = _compared(rows, "network")
    figure = Figure(figsize=(8.5 if ratios else 4.5, 3.2), layout="constrained")
    places = figure.subplots(1, 2 if ratios else 1, squeeze=False)[0]
    for backend in dict.fromkeys(r.backend for r in of_network):
        here = [r for r in of_network if r.backend == backend]
        label = f"{backend}, loss alone" if backend == NUMPY else backend
        xs, ys = [r.n for r in here], [1e3 * r.forward for r in here]
        places[0].plot(xs, ys, "-o", color=COLOURS.get(backend), label=label)
        pairs = [(r.n, faster(rows, r)[0]) for r in ratios if r.backend == backend]
        if pairs:
            places[1].plot(*zip(*pairs, strict=True), "-o", color=COLOURS.get(backend))
    for place, label in zip(places, ("ms a step", f"time of {BASE} / time"), strict=False):
        place.set(xscale="log", yscale="log", xlabel="parameters", ylabel=label)
        place.grid(color="#DDDDDD", linewidth=0.5)
        for side in ("top", "right"):
            place.spines[side].set_visible(False)
    places[0].legend(frameon=False)
    return figure

"""The performance targets, measured: what, target, figure, met or not."""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np

from asv_bench.benchmarks.workloads import INPLACE, NETWORK, OVERHEAD
from asv_bench.fleet import Fleet, Result, import_times, ratio
from asv_bench.tables import table

VECTOR = dict.fromkeys(("exp", "log", "sin", "cos", "tanh", "expm1", "log1p"), 3.0) | {"power": 1.7}
# "Not slower", with room for noise: some of these NumPy computes on both sides.
NOT_SLOWER = 0.95
BANDWIDTH = dict.fromkeys(("add", "multiply", "sum"), NOT_SLOWER)
SCALING = dict.fromkeys(("exp", "log", "tanh"), 1.5)


def vector_targets() -> dict[str, float]:
    """Return how many times faster than NumPy the serial backend's functions are to be.

    NumPy has vector functions of its own where the CPU has AVX-512: the target there is
    to be no slower.
    """
    simd = np.show_config(mode="dicts")["SIMD Extensions"]
    if any(name.startswith("AVX512") for name in simd.get("found", ())):
        return dict.fromkeys(VECTOR, NOT_SLOWER)
    return VECTOR


def acceptance(fleet: Fleet, ours: list[str]) -> tuple[str, list[dict[str, Any]]]:
    """Measure every target on the engines of `fleet`; return the table and its rows."""
    rows = [*overhead(fleet, ours), *kernels(fleet), *network(fleet, ours)]
    rows += [*guard(fleet, ours), *inplace(fleet, ours), imports()]
    cells = [
        [r["what"], r["target"], r["shown"], "yes" if r["met"] else "NO" if r["figure"] else "-"]
        for r in rows
    ]
    return table("Targets", ["what", "target", "figure", "met"], cells), rows


def _row(
    what: str, figure: float | None, limit: float, most: bool, shown: str = ""
) -> dict[str, Any]:
    """Return one row; a figure of None was not measured and does not meet its target."""
    met = figure is not None and (figure <= limit if most else figure >= limit)
    text = "not measured" if figure is None else f"{figure:.3g}{shown}"
    target = f"at {'most' if most else 'least'} {limit:g}"
    return {"what": what, "target": target, "figure": figure, "shown": text, "met": met}


def _per_op(r: Result) -> str:
    return f"{r.median / OVERHEAD.ops * 1e6:.2f} us"


def overhead(fleet: Fleet, ours: list[str]) -> list[dict[str, Any]]:
    """Gradient time per recorded operation on three numbers, against the eager peers."""
    results = fleet.race("gradient", OVERHEAD.name, [*ours, "torch", "autograd"])
    rows = []
    for engine in ours:
        for peer in ("torch", "autograd"):
            r, p = results[engine], results.get(peer, Result([], [], [], "absent"))
            value = ratio(r, p)
            shown = "" if value is None else f" ({_per_op(r)} / {_per_op(p)})"
            what = f"gradient per recorded op, 100 sin on 3 numbers: {engine} / {peer}"
            rows.append(_row(what, value, 0.75, True, shown))
    return rows


def kernels(fleet: Fleet) -> list[dict[str, Any]]:
    """Functions of a million float64: NumPy / serial, and serial / OpenMP."""
    rows = []
    parallel = []
    for name, least in (vector_targets() | BANDWIDTH).items():
        engines = ["numpy", "adarray-serial", *(["adarray-openmp"] if name in SCALING else [])]
        results = fleet.race("kernel", name, engines)
        absent = Result([], [], [], "absent")
        serial, openmp = (results.get(f"adarray-{e}", absent) for e in ("serial", "openmp"))
        value = ratio(results["numpy"], serial)
        rows.append(_row(f"{name}, 1e6 float64: numpy / adarray-serial", value, least, False))
        if name in SCALING:
            what = f"{name}, 1e6 float64: adarray-serial / adarray-openmp"
            parallel.append(_row(what, ratio(serial, openmp), SCALING[name], False))
    return rows + parallel


def network(fleet: Fleet, ours: list[str]) -> list[dict[str, Any]]:
    """Gradient of the three-layer network: autograd / the fastest backend."""
    results = fleet.race("gradient", NETWORK.name, [*ours, "autograd"])
    peer = results.get("autograd", Result([], [], [], "absent"))
    ratios = {e: value for e in ours if (value := ratio(peer, results[e])) is not None}
    best = max(ratios, key=ratios.__getitem__) if ratios else "adarray"
    others = "; ".join(f"{e} {value:.3g}" for e, value in ratios.items())
    what = f"gradient of {NETWORK.name}: autograd / {best}"
    return [_row(what, ratios.get(best), 2.0, False, f" ({others})")]


def guard(fleet: Fleet, ours: list[str]) -> list[dict[str, Any]]:
    """Cost of protecting plain operands, on logistic regression."""
    results = fleet.race("guard", "logreg", ours)
    return [
        _row(
            f"protection of plain operands, logreg 20000x500: with / without, {engine}",
            None if r.error else statistics.median(r.ratios),
            1.05,
            True,
        )
        for engine, r in results.items()
    ]


def inplace(fleet: Fleet, ours: list[str]) -> list[dict[str, Any]]:
    """Growth of the gradient's time when four times as many elements are filled in."""
    rows = []
    for name in INPLACE:
        results = fleet.race("inplace", name, ours[:1])
        for engine, r in results.items():
            value = None if r.error else statistics.median(r.ratios)
            what = f"filling an array, {name}: time(4n) / time(n), {engine}"
            rows.append(_row(what, value, 6.0, True))
    return rows


def imports() -> dict[str, Any]:
    """Time to import adarray, in units of NumPy's."""
    times = import_times()
    ours, theirs = (statistics.median(times[m]) for m in ("adarray", "numpy"))
    value = statistics.median(a / b for a, b in zip(times["adarray"], times["numpy"], strict=True))
    shown = f" ({ours * 1e3:.0f} ms / {theirs * 1e3:.0f} ms)"
    return _row("import adarray / import numpy", value, 1.5, True, shown)

"""The targets of `jit`, and whether a report meets them: PASS or SHORT."""

from __future__ import annotations

from typing import Any, NamedTuple

from asv_bench.jit.measure import OURS
from asv_bench.jit.report import Row, compile_row, mean_ratio, rows
from asv_bench.tables import table

FASTER = {"tiny": 3.0, "product": 0.95, "elementwise": 1.0, "memory": 1.0}
MEAN = 1.5
BANDWIDTH = 0.6
CALL_S = 10e-6
COMPILE_S, LOAD_S = 2.0, 0.05
RECORD_US = 100.0
LINEAR = 1.5  # microseconds per operation of a long function / of a shorter one
GRADIENT = 2.5
DISTINCT = 100


class Line(NamedTuple):
    """One target.

    Parameters
    ----------
    what : str
    target : str
    figure : float or None
        What was measured; None if nothing was.
    met : bool
    """

    what: str
    target: str
    figure: float | None
    met: bool

    @property
    def verdict(self) -> str:
        """PASS, SHORT, or that nothing was measured."""
        return "PASS" if self.met else "SHORT" if self.figure is not None else "NOT MEASURED"


def least(what: str, figure: float | None, limit: float) -> Line:
    """Return a target that asks for at least `limit`."""
    return Line(what, f"at least {limit:g}", figure, figure is not None and figure >= limit)


def most(what: str, figure: float | None, limit: float) -> Line:
    """Return a target that asks for at most `limit`."""
    return Line(what, f"at most {limit:g}", figure, figure is not None and figure <= limit)


def lines(report: dict[str, Any]) -> list[Line]:
    """Return every target."""
    measured = rows(report)
    return [*speed(measured), *bandwidth(measured), *calls(report), *compiling(report, measured),
            *recording(report), *gradients(measured)]  # fmt: skip


def speed(measured: list[Row]) -> list[Line]:
    """Return the best peer's time in units of ours, and the mean of all."""
    checked = [
        least(f"speed, {r['name']}: {r['peer']} / adarray jit", r["ratio"], FASTER[r["kind"]])
        for r in measured
    ]
    mean = least("speed: geometric mean of best peer / adarray jit", mean_ratio(measured), MEAN)
    return [*checked, mean]


def bandwidth(measured: list[Row]) -> list[Line]:
    """Return the fraction of the copy bandwidth, for workloads that memory limits.

    On a machine whose memory is fast beside its arithmetic, elementary functions may be what
    sets the floor of some: these have no such target there.
    """
    return [
        least(f"fraction of copy bandwidth, {r['name']}", r["bandwidth"], BANDWIDTH)
        for r in measured
        if r["kind"] == r["limit"] == "memory"
    ]


def calls(report: dict[str, Any]) -> list[Line]:
    """Return the cost of a call, absolute and beside JAX."""
    overhead = report["overhead"]
    ours, jax = (overhead.get(n, {}).get("median") for n in (OURS, "jax"))
    us = None if ours is None else 1e6 * ours
    ratio = jax / ours if ours and jax else None
    return [
        most("call of a compiled function, two arrays of 4 numbers, us", us, 1e6 * CALL_S),
        least("call of a compiled function: jax / adarray jit", ratio, 1.0),
    ]


def compiling(report: dict[str, Any], measured: list[Row]) -> list[Line]:
    """Return seconds and numbers of kernels.

    Cold: passes, planning and compiling of all segments, without the recorded runs. From disk:
    what compiling takes where the cache has all kernels; passes and planning, which are done
    again, are in the targets per operation.
    """
    long = report.get("long")
    every = [*measured]
    if long:
        every.append({"name": report["long name"], **compile_row(long, None)})
    checked = []
    for r in every:
        checked += [
            most(f"compile time, cold, {r['name']}, s", r["compile"], COMPILE_S),
            most(f"loading from the disk cache, {r['name']}, s", r["load"], LOAD_S),
            most(f"distinct kernels, {r['name']}", r["distinct"], DISTINCT),
        ]
    return checked


def recording(report: dict[str, Any]) -> list[Line]:
    """Return microseconds of tracing and passes per operation, and their growth."""
    stages_of = report.get("recording", {})

    def per_call(count: str) -> float | None:
        stages = stages_of.get(count)
        if not stages:
            return None
        return float(sum(stages.get(s, 0.0) for s in ("trace", "passes", "plan")))

    long, short = per_call("20000"), per_call("2000")
    growth = long / short if long and short else None
    return [
        most("tracing and passes per operation, 2,000 operations, us", short, RECORD_US),
        most("tracing and passes per operation, 20,000 operations, us", long, RECORD_US),
        most("tracing and passes per operation, 20,000 / 2,000 operations", growth, LINEAR),
    ]


def gradients(measured: list[Row]) -> list[Line]:
    """Return value and gradient in units of the value alone."""
    return [most(f"gradient / value, {r['name']}", r["gradient/value"], GRADIENT) for r in measured]


def text(targets: list[Line]) -> str:
    """Return the targets as a table, and how many are met."""
    cells = [
        [x.what, x.target, "-" if x.figure is None else f"{x.figure:.3g}", x.verdict]
        for x in targets
    ]
    met = sum(x.met for x in targets)
    head = ["what", "target", "figure", "verdict"]
    return f"{table('Targets', head, cells)}\n\n{met} of {len(targets)} met."

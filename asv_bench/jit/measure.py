"""Measure every workload on every engine; return one report of plain numbers."""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from asv_bench.benchmarks.jit_workloads import EVERY, JIT_WORKLOADS, LONG
from asv_bench.benchmarks.workloads import Workload
from asv_bench.engines import PEERS, TEXTS
from asv_bench.fleet import Failed, Fleet, Member, Result, interpreter
from asv_bench.jit import ceilings

OURS = "jit-openmp"
ENGINES = ("jit-openmp", "jit-serial", "adarray-openmp")
JIT_PEERS = tuple(p for p in PEERS if p != "mygrad")
Progress = Callable[[str], None]


def suits(engine: str, w: Workload) -> bool:
    """Return whether `engine` has a text of its own for `w`: the others run them all."""
    if engine == "torch.compile, NumPy text":
        return w.torch is not None
    return engine != "jax, lax.scan" or w.scan is not None


def engines(options: argparse.Namespace) -> list[str]:
    """Return the names of the engines of a run."""
    texts = [t for t in TEXTS if t.partition(",")[0] in options.peers]
    return [*ENGINES, *options.peers, *texts]


def measure(options: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """Return the report."""
    names = engines(options)
    with Fleet(
        ["numpy", *names], options.peer_python, options.threads, options.rounds, progress,
        options.patience,
    ) as fleet:  # fmt: skip
        report: dict[str, Any] = {
            "engines": {n: m.absent or m.version for n, m in fleet.members.items()},
            "ceilings": limits(fleet, options.threads, progress),
            "workloads": {},
        }
        for name in options.workloads:
            report["workloads"][name] = one(fleet, name, names)
        report["overhead"] = figures(fleet.race("overhead", "trivial", _callers(names)))
        report["others"] = fleet.others
    if options.compile:
        for name in options.workloads:
            row = report["workloads"][name]
            compilers = {OURS, best_peer(row["gradients"]), "torch.compile", "jax"}
            compiling(row, name, [n for n in names if n in compilers], options, progress)
        report["long"] = {"gradients": {}, "values": {}}
        compiling(report["long"], LONG.name, [OURS], options, progress)
    return report


def limits(fleet: Fleet, threads: int, progress: Progress) -> dict[str, Any]:
    """Return the machine's ceilings; of matrix products the best library counts."""
    progress("ceilings")
    rates = ceilings.measure(threads)
    products: dict[str, float] = {}
    for engine in ("numpy", "torch"):
        member = fleet.members.get(engine)
        if member is None or member.absent:
            continue
        for dtype in ("float32", "float64"):
            rate = member.ask(do="product", dtype=dtype)["rate"]
            products[dtype] = max(rate, products.get(dtype, 0.0))
    return {**rates, "products": products}


def one(fleet: Fleet, name: str, names: list[str]) -> dict[str, Any]:
    """Return the times of one workload by all engines, and our gradient's beside our value's."""
    able = [n for n in names if suits(n, EVERY[name].workload)]
    row: dict[str, Any] = {"gradients": figures(fleet.race("jit", name, able))}
    both = fleet.race("jit both", name, [OURS])[OURS]
    row["gradient/value"] = [] if both.error else both.ratios
    return row


def _callers(names: list[str]) -> list[str]:
    """Return the engines that compile a function of NumPy arrays."""
    return [n for n in names if n.startswith("jit-") or n in ("jax", "torch.compile")]


def figures(results: dict[str, Result]) -> dict[str, Any]:
    """Return the results as a report holds them: medians per round, or the error."""
    return {
        name: {"error": r.error} if r.error else {
            "median": r.median,
            "times": [row[0] for row in r.times],
            "others": r.others,
        }
        for name, r in results.items()
    }  # fmt: skip


# -- once per process ---------------------------------------------------------------------


@contextmanager
def caches() -> Iterator[dict[str, str]]:
    """Give compilers empty caches on disk; yield the environment that names them."""
    with tempfile.TemporaryDirectory() as folder:
        yield {
            "ADARRAY_CACHE_DIR": f"{folder}/adarray",
            "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor",
        }


def compiling(
    row: dict[str, Any], name: str, names: list[str], options: argparse.Namespace,
    progress: Progress,
) -> None:  # fmt: skip
    """Add compile times and peaks of memory to `row`.

    One process begins with empty caches; a second one finds what the first has left.
    """
    row["cold"], row["warm"] = {}, {}
    for engine in names:
        if row["gradients"].get(engine, {}).get("error"):
            continue
        progress(f"compile: {name}, {engine}")
        with caches() as env:
            row["cold"][engine] = once(engine, name, env, options)
            if engine == OURS:
                row["warm"][engine] = once(engine, name, env, options)


def once(
    engine: str, name: str, env: dict[str, str], options: argparse.Namespace
) -> dict[str, Any]:
    """Return what a fresh process measures once (see `asv_bench.jit.once`)."""
    python = interpreter(engine, options.peer_python)
    member = Member(engine, python, options.threads, env, options.patience)
    if member.absent:
        return {"error": "absent"}
    try:
        return member.ask(do="once", name=name)
    except Failed as error:
        return {"error": str(error)}
    finally:
        if not member.absent:
            member.close()


def recording(options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Return microseconds per recorded operation, by stage, of short and long functions."""
    stages = {}
    for count in (200, 2_000, 20_000):
        member = Member("jit-openmp", interpreter("jit-openmp", ""), options.threads)
        try:
            stages[str(count)] = member.ask(do="record", count=count)
        finally:
            member.close()
    return stages


def ratio(row: dict[str, Any], a: str, b: str) -> float | None:
    """Return `b`'s time in units of `a`'s: the median over rounds that both were in."""
    first, second = row.get(a, {}), row.get(b, {})
    if not first.get("times") or not second.get("times"):
        return None
    pairs = zip(first["times"], second["times"], strict=True)
    return statistics.median(y / x for x, y in pairs)


def best_peer(row: dict[str, Any]) -> str | None:
    """Return the peer with the smallest median."""
    peers = {n: r["median"] for n, r in row.items() if _is_peer(n) and "median" in r}
    return min(peers, key=peers.__getitem__) if peers else None


def _is_peer(name: str) -> bool:
    return name in PEERS or name in TEXTS


def default_workloads(parts: list[str]) -> list[str]:
    """Return the workloads whose names hold one of `parts`; all without parts."""
    return [n for n in JIT_WORKLOADS if not parts or any(p in n for p in parts)]

"""Measure every workload on every engine; return one report of plain numbers.

Workloads are taken in waves. Those of one wave are compiled side by side, on every engine
and in a process for each; then the processes are timed, one at a time and in turn.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from asv_bench.fleet import Failed, Member, agreed
from asv_bench.gpu.ceilings import PRECISIONS
from asv_bench.gpu.engines import OURS, OWN, PEERS, suits
from asv_bench.gpu.machine import machine
from asv_bench.gpu.targets import WAYS, median
from asv_bench.gpu.workloads import GPU_WORKLOADS

WORKER = Path(__file__).with_name("worker.py")
# Sums of the same products in another order, or of operands that Tensor Cores round.
TOLERANCE = {"float32": 1e-3, "tf32": 2e-2}
START_S = 90.0  # patience with a process that starts
REFERENCE = "torch"
PRODUCT_ROUNDS = 3
LARGE = 32 << 20  # bytes that are moved, from where on adarray times its kernels
Progress = Callable[[str], None]
Report = dict[str, Any]


class WorkerGroup:
    """The processes of one place in a wave: one for each engine, kept from wave to wave."""

    def __init__(self, engines: list[str], python: str) -> None:
        self.engines = engines
        self.python = python
        self.members: dict[str, Member] = {}

    def start(self, pool: ThreadPoolExecutor) -> Iterator[Member]:
        """Start the processes, side by side; return them once they have begun."""

        def begin(name: str) -> Member:
            python = sys.executable if name in OWN else self.python
            return Member(name, python, 2, None, START_S, WORKER)

        return pool.map(begin, self.engines)

    def close(self) -> None:
        """End the processes."""
        for member in self.members.values():
            if not member.absent:
                member.close()


@contextmanager
def worker_groups(count: int, engines: list[str], python: str) -> Iterator[list[WorkerGroup]]:
    """Start `count` groups of processes; end their processes at last."""
    groups = [WorkerGroup(engines, python) for _ in range(count)]
    try:
        with ThreadPoolExecutor(count * len(engines)) as pool:
            started = [group.start(pool) for group in groups]
            for group, members in zip(groups, started, strict=True):
                group.members = dict(zip(engines, members, strict=True))
        yield groups
    finally:
        for group in groups:
            group.close()


def measure(options: argparse.Namespace, progress: Progress) -> Report:
    """Return the report."""
    engines = [*(n for n in OWN if n in options.engines), *(n for n in PEERS if n in options.peers)]
    names = options.workloads
    started = time.perf_counter()
    report: Report = {"machine": machine(), "workloads": {}, "seconds": {}}
    with worker_groups(
        min(options.wave, max(len(names), 1)), engines, options.peer_python
    ) as groups:
        report["engines"] = {n: m.absent or m.version for n, m in groups[0].members.items()}
        progress(f"{time.perf_counter() - started:.0f} s: {report['engines']}")
        if all(m.absent for m in groups[0].members.values()):
            raise SystemExit(f"asv_bench.gpu: no engine finds a GPU: {report['engines']}")
        if options.ceilings:
            report["ceilings"] = ceilings(groups[0], progress)
        for first in range(0, len(names), len(groups)):
            wave = dict(zip(names[first : first + len(groups)], groups, strict=False))
            ready = prepared(wave, options.patience, progress)
            progress(f"{time.perf_counter() - started:.0f} s: compiled {', '.join(wave)}")
            for name in wave:
                rounds(ready[name], options)
                report["workloads"][name] = ready[name]["figures"]
                progress(f"{time.perf_counter() - started:.0f} s: {line(name, ready[name])}")
                for member in ready[name]["ready"].values():
                    _answer(member, do="release")
                keep(report, options.output)
            if time.perf_counter() - started > options.budget:
                progress("no time is left for the other workloads")
                break
    report["seconds"]["all"] = time.perf_counter() - started
    return report


def keep(report: Report, path: Path | None) -> None:
    """Write what was measured so far, so that a run that is stopped is not lost."""
    if path is not None:
        path.write_text(json.dumps(report) + "\n")


def line(name: str, part: dict[str, Any]) -> str:
    """Return one line on a workload."""
    figures = part["figures"]
    medians = {n: [median(figures, n, way) for way in WAYS] for n in figures}
    return f"{name}: " + ", ".join(
        f"{n} " + (figures[n].get("error") or " / ".join(f"{1e6 * (t or 0.0):.1f}" for t in times))
        for n, times in medians.items()
    )


def ceilings(group: WorkerGroup, progress: Progress) -> dict[str, Any]:
    """Return rates of copies and of products, of PyTorch and of adarray, alternating."""
    members = [group.members[n] for n in (REFERENCE, OURS) if n in group.members]
    members = [m for m in members if not m.absent]
    rates_of: dict[str, Any] = {m.name: {"products": {}} for m in members}
    if REFERENCE in rates_of:
        rates_of[REFERENCE].update(_answer(group.members[REFERENCE], do="copies"))
    for precision in PRECISIONS:
        answers: dict[str, list[dict[str, Any]]] = {m.name: [] for m in members}
        for _ in range(PRODUCT_ROUNDS):
            for m in members:
                answers[m.name].append(_answer(m, do="product", precision=precision))
        for name, rows in answers.items():
            wrong = [row for row in rows if "error" in row]
            rates = [row["rate"] for row in rows if "rate" in row]
            rates_of[name]["products"][precision] = wrong[0] if wrong else {
                "rate": statistics.median(rates), "rates": rates,
                "relative error": rows[0]["relative error"],
            }  # fmt: skip
            progress(f"product, {precision}, {name}: {rates_of[name]['products'][precision]}")
    for m in members:
        _answer(m, do="release")
    return rates_of


def _answer(member: Member, **request: Any) -> dict[str, Any]:
    """Return the answer of a member, or its error."""
    member.patience = START_S
    try:
        return member.ask(**request)
    except Failed as error:
        return {"error": str(error)}


def prepared(wave: dict[str, WorkerGroup], patience: float, progress: Progress) -> dict[str, Any]:
    """Let all processes of a wave compile; return what ran, and what did not and why."""

    def ask(name: str, member: Member) -> dict[str, Any]:
        member.patience = patience
        try:
            return member.ask(do="prepare", name=name)
        except Failed as error:
            return {"error": str(error)}

    answers: dict[tuple[str, str], dict[str, Any]] = {}
    jobs = [
        (name, engine, member)
        for name, group in wave.items()
        for engine, member in group.members.items()
        if not member.absent and suits(engine, GPU_WORKLOADS[name])
    ]
    with ThreadPoolExecutor(max(1, len(jobs))) as pool:
        side = [job for job in jobs if not _alone(*job[:2])]
        for job, answer in zip(side, pool.map(lambda j: ask(j[0], j[2]), side), strict=True):
            answers[job[:2]] = answer
    for name, engine, member in jobs:
        if _alone(name, engine):
            answers[name, engine] = ask(name, member)
    for (name, engine), answer in answers.items():
        if "digest" in answer:
            took = " ".join(f"{k} {answer[k]:.1f}" for k in ("data", "first", "warm"))
            progress(f"  {name}, {engine}: {took}")
    return {name: _compared(name, group, answers) for name, group in wave.items()}


def _alone(name: str, engine: str) -> bool:
    """Whether an engine may choose among kernels by timing them, for which it must be alone."""
    base = GPU_WORKLOADS[name].base
    if engine == OURS:
        return base.moved > LARGE
    return engine == "jax" and bool(base.flops)


def _compared(
    name: str, group: WorkerGroup, answers: dict[tuple[str, str], dict[str, Any]]
) -> dict[str, Any]:
    """Return the members whose results agree with the reference's, and figures of the others."""
    tolerance = TOLERANCE[GPU_WORKLOADS[name].precision]
    order = sorted(group.members, key=lambda n: n != REFERENCE)
    reference: list[float] | None = None
    ready, figures = {}, {}
    for engine in order:
        answer = answers.get((name, engine))
        if answer is None:
            continue
        try:
            if "error" in answer:
                raise Failed(answer["error"])
            reference = agreed(answer["digest"], reference, tolerance)
        except Failed as error:
            figures[engine] = {"error": str(error)}
            continue
        ready[engine] = group.members[engine]
        figures[engine] = {"waited": [], "row": [], "first": answer["first"] + answer["warm"]}
    return {"ready": ready, "figures": figures}


def rounds(part: dict[str, Any], options: argparse.Namespace) -> None:
    """Time one workload: every engine in turn, round by round, no one always after the same."""
    ready, figures = part["ready"], part["figures"]
    order = random.Random(0)
    for _ in range(options.rounds):
        names = list(ready)
        order.shuffle(names)
        for engine in names:
            try:
                answer = ready[engine].ask(do="measure", seconds=options.round_seconds)
            except Failed as error:
                figures[engine] = {"error": str(error)}
                del ready[engine]
                continue
            for way in WAYS:
                figures[engine][way].append(answer[way])

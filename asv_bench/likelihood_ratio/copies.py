"""The effect of more copies: angle to the exact gradient, variance, and memory."""

from __future__ import annotations

import dataclasses
import gc
import json
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import adarray
from adarray.estimators import diagnose, likelihood_ratio
from asv_bench.likelihood_ratio import store
from asv_bench.likelihood_ratio.problems import PROBLEMS, Problem
from asv_bench.likelihood_ratio.training import Place, Training

COPIES = (2, 8, 32, 128, 512)
COPIES_FILE, MEMORY_FILE = "copies.json", "memory.json"
PLAIN = {"sigma": 0.1, "mode": "full", "antithetic": False, "baseline": None}
# As the experiments have them, with the same scale of noise for all.
ESTIMATORS: dict[str, tuple[str, dict[str, Any]]] = {
    "lr-f": ("LR-F, no pairs", PLAIN),
    "lr-f-pairs": ("LR-F", {"sigma": 0.1, "mode": "full"}),
    "lr-l-64": ("LR-L", {"sigma": 0.1}),
    "lr-l": ("LR-L, orthogonal", {"sigma": 0.1, "directions": "hadamard"}),
}


def angles(
    problem: Problem, repeats: int = 20, copies: tuple[int, ...] = COPIES
) -> list[store.Row]:
    """Return cosine and relative variance of estimates of the first batch's gradient."""
    params = problem.init(np.random.default_rng(0))
    batch = next(iter(problem.batches(np.random.default_rng(1))))
    exact = adarray.grad(lambda p: np.mean(problem.losses(p, *batch)))(params)
    rows = []
    for method, (title, how) in ESTIMATORS.items():
        for n in copies:
            more = problem.estimator_options()
            estimator = likelihood_ratio(problem.losses, copies=n, **how, **more)
            report = diagnose(estimator, exact, params, *batch, repeats=repeats, rng=n)
            row = next(r for r in report.rows if r.leaf == "all")
            rows.append({
                "problem": problem.name, "data": problem.title, "network": problem.network,
                "method": method, "title": title, "copies": n, "cosine": row.cosine,
                "cosine_error": row.cosine_error, "variance": row.variance,
            })  # fmt: skip
            print(f"{problem.name}, {title}, {n} copies: cosine {row.cosine:.4f}", flush=True)
    return rows


def memories(problem: Problem, place: Place, copies: tuple[int, ...] = COPIES) -> list[store.Row]:
    """Return the memory of a compiled step, by the copies that are computed at once."""
    rows = []
    for method in ("bp", "lr-f-pairs", "lr-l", "lr-m"):
        configured = problem.methods[method]
        varied = method in ("lr-f-pairs", "lr-l")
        for n in copies if varied else (configured.estimator.get("copies", 1),):
            if varied:
                how = {**configured.estimator, "copies": n}
                problem.methods[method] = dataclasses.replace(configured, estimator=how)
            with place():
                run = Training(problem, method, 0, place)
                batch = run.epoch()[0]
                for _ in range(3):
                    run.step(batch, 10**6)
                size = run.peak_bytes(batch)
            rows.append({
                "problem": problem.name, "data": problem.title, "network": problem.network,
                "method": method, "title": configured.title, "copies": n, "backend": place.backend,
                "peak_bytes": size,
            })  # fmt: skip
            print(
                f"{problem.name}, {configured.title}, {n} copies: {size / 2**20:.3g} MiB",
                flush=True,
            )
        problem.methods[method] = configured
    return rows


def eager(problem: Problem) -> list[store.Row]:
    """Return the peak of NumPy's memory in uncompiled gradients, beside their arguments.

    Noise is drawn again from a seed, and copies run one after the other: how many there are makes
    no difference.
    """
    params = problem.init(np.random.default_rng(0))
    batch = next(iter(problem.batches(np.random.default_rng(1))))
    rows = []
    exact = adarray.grad(lambda p: np.mean(problem.losses(p, *batch)))
    ways: dict[str, Callable[[], Any]] = {"BP, uncompiled": lambda: exact(params)}
    for title, mode in (("LR-F", "full"), ("LR-L", "layerwise")):
        estimator = likelihood_ratio(
            problem.losses, copies=4, mode=mode, encoding="seed", **problem.estimator_options()
        )
        ways[f"{title}, uncompiled, noise from seeds"] = partial(estimator, params, *batch, rng=0)
    for title, gradient in ways.items():
        gradient()  # what is imported and kept
        gc.collect()
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            gradient()
            size = tracemalloc.get_traced_memory()[1] - before
        finally:
            tracemalloc.stop()
        rows.append({
            "problem": problem.name, "data": problem.title, "network": problem.network,
            "method": title, "title": title, "copies": 4, "backend": "", "peak_bytes": size,
        })  # fmt: skip
        print(f"{problem.name}, {title}: {size / 2**20:.3g} MiB", flush=True)
    return rows


def measure(place: Place, out: Path, quick: bool) -> None:
    """Write both files; angles that are there are not measured again."""
    out.mkdir(parents=True, exist_ok=True)
    some = COPIES[:2] if quick else COPIES
    if not (out / COPIES_FILE).exists():
        rows = angles(PROBLEMS["mnist"](quick=quick), 5 if quick else 20, some)
        (out / COPIES_FILE).write_text(json.dumps(rows, indent=0) + "\n")
    sizes = []
    for make in PROBLEMS.values():
        problem = make(quick=quick)
        sizes += [*memories(problem, place, some), *eager(problem)]
    (out / MEMORY_FILE).write_text(json.dumps(sizes, indent=0) + "\n")

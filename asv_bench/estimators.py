"""What estimates without backpropagation take: variance, memory, throughput of low-rank copies.

``python -m asv_bench.estimators`` writes the tables of docs/likelihood-ratio.
``--backend cuda`` measures throughput on a GPU, and prints it alone.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import adarray
from adarray.base.report import size_text
from adarray.estimators import (
    Diagnosis,
    diagnose,
    evolution_strategies,
    forward_gradient,
    likelihood_ratio,
    noise_site,
    spsa,
)

TABLES = Path(__file__).parents[1] / "docs" / "likelihood-ratio"
COPIES = 1024


# -- memory ----------------------------------------------------------------------------------


def deep(w: Any, x: Any) -> Any:
    """Return losses of a network with a site in each layer."""
    for k, m in enumerate(w):
        x = np.tanh(noise_site(x @ m, f"layer {k}"))
    return np.sum(x**2, axis=1)


def peak(run: Callable[[], Any]) -> int:
    """Return the most bytes that a call has allocated at a time."""
    run()
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def memory_rows(layers: int = 24, width: int = 64, samples: int = 1024) -> list[list[str]]:
    """Return peaks of gradients of one network, with all copies one by one."""
    rng = np.random.default_rng(0)
    w = [(rng.normal(size=(width, width)) / 8).astype(np.float32) for _ in range(layers)]
    x = rng.normal(size=(samples, width)).astype(np.float32)
    exact = adarray.grad(lambda w: np.mean(deep(w, x)))
    rows = [["backpropagation", size_text(peak(lambda: exact(w)))]]
    for mode in ("layerwise", "full"):
        for encoding in ("seed", "sign"):
            est = likelihood_ratio(
                deep, mode=mode, copies=4, encoding=encoding, directions="laplace", credit="rows"
            )
            text = f"mode={mode!r}, encoding={encoding!r}"
            rows.append([text, size_text(peak(lambda est=est: est(w, x, rng=0)))])
    return rows


# -- variance --------------------------------------------------------------------------------


def perceptron(w: Any, x: Any, y: Any) -> Any:
    """Return the cross-entropy of samples, of a network with one hidden layer."""
    h = np.maximum(noise_site(x @ w["in"] + w["b"], "hidden"), 0)
    z = noise_site(h @ w["out"] + w["c"], "out")
    z = z - np.max(z, axis=-1, keepdims=True)
    return np.log(np.sum(np.exp(z), axis=-1)) - np.sum(z * y, axis=-1)


def diagnosis(copies: int = 64, sigma: float = 0.1, samples: int = 128) -> Diagnosis:
    """Return the diagnosis of all estimators on images of random classes."""
    rng = np.random.default_rng(0)
    classes = rng.random((10, 784)) ** 4
    labels = rng.integers(0, 10, samples)
    x = np.clip(classes[labels] + 0.1 * rng.normal(size=(samples, 784)), 0, 1).astype(np.float32)
    y = np.eye(10, dtype=np.float32)[labels]
    w = {
        "in": (rng.normal(size=(784, 128)) * np.sqrt(2 / 784)).astype(np.float32),
        "b": np.zeros(128, np.float32),
        "out": (rng.normal(size=(128, 10)) * np.sqrt(2 / 128)).astype(np.float32),
        "c": np.zeros(10, np.float32),
    }

    def lr(**options: Any) -> Any:
        return likelihood_ratio(perceptron, sigma=sigma, **{"copies": copies, **options})

    ways = {
        "LR-F, one by one": lr(mode="full", antithetic=False, baseline=None),
        "LR-F, baseline": lr(mode="full", antithetic=False),
        "LR-F, pairs": lr(mode="full"),
        "LR-F, orthogonal": lr(mode="full", directions="hadamard"),
        "LR-F, orthogonal, 280 copies": lr(mode="full", directions="hadamard", copies=280),
        "LR-L": lr(),
        "LR-L, signs": lr(directions="rademacher"),
        "LR-L, low rank": lr(directions="lowrank"),
        "LR-L, orthogonal": lr(directions="hadamard"),
        "LR-L, orthogonal, 256 copies": lr(directions="hadamard", copies=256),
        "LR-M, exact output": lr(exact=["out"]),
        "LR-M, noise at the output": lr(sites=["out"], directions="hadamard"),
        "SPSA": spsa(perceptron, copies=copies),
        "evolution strategies": evolution_strategies(perceptron, copies=copies, sigma=0.01),
        "evolution strategies, rank 1": evolution_strategies(
            perceptron, copies=copies, sigma=0.01, rank=1
        ),
        "forward gradient": forward_gradient(perceptron, copies=copies),
    }
    exact = adarray.grad(lambda w, x, y: np.mean(perceptron(w, x, y)))
    return diagnose(ways, exact, w, x, y, repeats=20, rng=1)


def diagnosis_rows(report: Diagnosis) -> list[list[str]]:
    """Return the figures for all parameters together."""
    return [
        [
            r.estimator,
            f"{r.cosine:.3f}",
            f"{r.variance:.2g}",
            f"{r.bias:.2g} ({r.bias_error:.1g})",
            f"{1e3 * report.seconds[r.estimator]:.1f}",
        ]
        for r in report.rows
        if r.leaf == "all"
    ]


# -- throughput ------------------------------------------------------------------------------


def classifier(w: Any, x: Any, y: Any) -> Any:
    """Return the cross-entropy of samples, of a network with rectified layers."""
    *hidden, (last, bias) = w
    for m, b in hidden:
        x = np.maximum(x @ m + b, 0)
    z = x @ last + bias
    z = z - np.max(z, axis=-1, keepdims=True)
    return np.log(np.sum(np.exp(z), axis=-1)) - np.sum(z * y, axis=-1)


def medians(
    runs: list[Callable[[], Any]], wait: Callable[[], None], rounds: int = 15
) -> list[float]:
    """Return the median times of calls in s, which take turns, after some that compile."""
    times: list[list[float]] = [[] for _ in runs]
    for k in range(rounds + 4):
        for run, samples in zip(runs, times, strict=True):
            start = time.perf_counter()
            run()
            wait()
            if k >= 4:
                samples.append(time.perf_counter() - start)
    return list(map(statistics.median, times))


class Throughput:
    """A network, and ways to evaluate it for all copies.

    Parameters
    ----------
    widths : sequence of int
        Of its layers, inputs first.
    samples : int
        That every copy sees.
    backend : str
    """

    def __init__(self, widths: tuple[int, ...], samples: int, backend: str) -> None:
        rng = np.random.default_rng(0)

        def put(x: np.ndarray) -> Any:
            x = x.astype(np.float32)
            return adarray.array(x) if backend == "cuda" else x

        self.w = [
            (put(rng.normal(size=(m, n)) / np.sqrt(m)), put(np.zeros(n)))
            for m, n in itertools.pairwise(widths)
        ]
        x = rng.normal(size=(samples, widths[0]))
        y = np.eye(widths[-1])[rng.integers(0, widths[-1], samples)]
        self.one = put(x), put(y)
        self.all = put(np.tile(x, (COPIES, 1))), put(np.tile(y, (COPIES, 1)))
        self.samples = samples * COPIES
        self.forward = adarray.jit(classifier)
        est = evolution_strategies(classifier, copies=COPIES, rank=1, sigma=0.01)
        self.est = est
        self.rng = sys.modules["cupy"].random.default_rng(0) if backend == "cuda" else rng

        @adarray.jit
        def step(noise: Any, w: Any, x: Any, y: Any) -> Any:
            slopes = est.evaluate(noise, w, x, y).gradient
            return [
                (m - np.float32(0.1) * dm, b - np.float32(0.1) * db)
                for (m, b), (dm, db) in zip(w, slopes, strict=True)
            ]

        self.step = step

    def forward_passes(self) -> Any:
        """Evaluate as many samples as all copies do, with the same weights."""
        return self.forward(self.w, *self.all)

    def train(self) -> Any:
        """Draw noise, evaluate all copies and update."""
        return self.step(self.est.draw(self.w, *self.one, rng=self.rng), self.w, *self.one)


def throughput_rows(backend: str) -> list[list[str]]:
    """Return samples per second of forward passes and of steps."""
    rows = []
    with adarray.use(backend):
        wait = (
            sys.modules["cupy"].cuda.runtime.deviceSynchronize
            if backend == "cuda"
            else lambda: None
        )
        for widths, samples in (((512, 512, 512, 10), 4), ((1024, 1024, 1024, 1024, 10), 8)):
            case = Throughput(widths, samples, backend)
            forward, step = medians([case.forward_passes, case.train], wait)
            rows.append(
                [
                    f"{'-'.join(map(str, widths))}, {samples} samples per copy",
                    f"{case.samples / forward:,.0f}",
                    f"{case.samples / step:,.0f}",
                    f"{100 * forward / step:.0f} %",
                ]
            )
    return rows


def write(name: str, head: list[str], rows: list[list[str]]) -> None:
    """Write a table of the documentation, and print it."""
    text = "".join("\t".join(row) + "\n" for row in [head, *rows])
    TABLES.mkdir(exist_ok=True)
    (TABLES / name).write_text(text)
    print(text)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="openmp", help="of the throughput")
    backend = parser.parse_args().backend
    head = ["network", "forward passes alone", "steps of rank 1", "of forward"]
    if backend == "cuda":
        import cupy  # noqa: F401  (its generator draws)

        for row in [head, *throughput_rows(backend)]:
            print("\t".join(row))
        return
    report = diagnosis()
    write(
        "diagnostics.tsv",
        ["estimator", "cosine", "variance", "bias (noise of it)", "ms, eager"],
        diagnosis_rows(report),
    )
    report.save(TABLES / "diagnostics.svg")
    write("memory.tsv", ["gradient", "peak"], memory_rows())
    write("throughput.tsv", head, throughput_rows(backend))


if __name__ == "__main__":
    main()

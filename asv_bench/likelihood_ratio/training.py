"""Training with any gradient, and what it takes: accuracy, time and memory."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

import adarray
from adarray.demo.report import progress
from asv_bench.likelihood_ratio.models import Params
from asv_bench.likelihood_ratio.problems import Batch, Mnist, Problem
from asv_bench.likelihood_ratio.robustness import attacked

PRECISIONS = ("float32", "tf32", "bf16", "fp16")
BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8


@dataclass(frozen=True)
class Place:
    """Where arrays are and what computes.

    Attributes
    ----------
    backend : str
    precision : str
        What operands of products are rounded to on a GPU.
    """

    backend: str
    precision: str = "float32"

    @property
    def on_gpu(self) -> bool:
        """Whether arrays are on a GPU."""
        return self.backend not in ("numpy", "serial", "openmp")

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Compute there."""
        options = {"matmul_precision": self.precision} if self.backend == "cuda" else {}
        with adarray.use(self.backend, **options):
            yield

    def put(self, x: Any) -> Any:
        """Return an array there."""
        return adarray.array(x) if self.on_gpu else x

    def wait(self) -> None:
        """Wait for all that was begun."""
        if self.backend == "cuda":
            sys.modules["cupy"].cuda.runtime.deviceSynchronize()

    def generator(self, seed: int) -> Any:
        """Return a generator of random numbers that draws there."""
        if self.backend == "cuda":
            return sys.modules["cupy"].random.default_rng(seed)
        return np.random.default_rng(seed)


def adam(
    params: Params, means: Params, squares: Params, slopes: Params, rate: Any, fresh: Any
) -> tuple[Params, Params, Params]:
    """Return parameters and moments after a step of Adam (Kingma and Ba, 2015).

    Parameters
    ----------
    params, means, squares, slopes : dict
    rate : float32
        With the first moments' correction in it.
    fresh : float32
        Factor that corrects the second moments.
    """
    means = {k: BETA1 * m + (1.0 - BETA1) * slopes[k] for k, m in means.items()}
    squares = {k: BETA2 * v + (1.0 - BETA2) * slopes[k] ** 2 for k, v in squares.items()}
    new = {
        k: p - rate * means[k] / (np.sqrt(squares[k] * fresh) + EPSILON) for k, p in params.items()
    }
    return new, means, squares


class Training:
    """A network while it is trained.

    Parameters
    ----------
    problem : Problem
    method : str
    seed : int
        Of weights, batches and noise.
    place : Place
    """

    def __init__(self, problem: Problem, method: str, seed: int, place: Place) -> None:
        self.problem, self.place = problem, place
        self.method = problem.methods[method]
        weights, batches, noise = np.random.SeedSequence(seed).generate_state(3)
        self.rng = np.random.default_rng(batches)
        self.params = {
            k: place.put(p) for k, p in problem.init(np.random.default_rng(weights)).items()
        }
        self.means = {k: place.put(np.zeros(p.shape, p.dtype)) for k, p in self.params.items()}
        self.squares = {k: place.put(np.zeros(p.shape, p.dtype)) for k, p in self.params.items()}
        self.gradient = self.method.gradient(
            problem.losses, place.generator(int(noise)), **self.options()
        )
        gradient, penalty = self.gradient, problem.penalty

        def step(
            noise: Any, params: Params, means: Params, squares: Params, rate: Any, fresh: Any,
            *batch: Any,
        ) -> Any:  # fmt: skip
            slopes = gradient(noise, params, *batch)
            slopes = {
                k: g + penalty[k] * params[k] if k in penalty else g for k, g in slopes.items()
            }
            return adam(params, means, squares, slopes, rate, fresh)

        self.compiled = adarray.jit(step)
        self.logits = adarray.jit(problem.logits)
        self.steps = 0
        self.cached: dict[int, Any] = {}  # large arrays that all epochs have, by identity
        self.parts = {
            part: ([tuple(map(self.put, x)) for x in inputs], labels)
            for part, (inputs, labels) in problem.parts().items()
        }

    def options(self) -> dict[str, Any]:
        """Return the problem's arguments of the estimator, with arrays where the network is."""
        if not self.method.estimator:
            return {}

        def put(x: Any) -> Any:
            if isinstance(x, dict):
                return {k: put(y) for k, y in x.items()}
            return self.place.put(x) if isinstance(x, np.ndarray) else x

        return {k: put(x) for k, x in self.problem.estimator_options().items()}

    def epoch(self) -> list[Batch]:
        """Return the batches of an epoch, where the network is."""
        return [tuple(map(self.put, batch)) for batch in self.problem.batches(self.rng)]

    def put(self, x: Any) -> Any:
        """Return an array where the network is; one that an epoch before had, too, is there."""
        if not self.place.on_gpu or not isinstance(x, np.ndarray):
            return x
        if x.nbytes < 2**20:
            return self.place.put(x)
        if id(x) not in self.cached:
            self.cached[id(x)] = x, self.place.put(x)
        return self.cached[id(x)][1]

    def step(self, batch: Batch, total: int) -> None:
        """Move the parameters along the gradient of one batch; `total` steps are all."""
        fall = 0.5 * (1.0 + np.cos(np.pi * self.steps / total))
        self.steps += 1
        rate = self.problem.rate * self.method.rate * fall / (1.0 - BETA1**self.steps)
        fresh = 1.0 / (1.0 - BETA2**self.steps)
        self.params, self.means, self.squares = self.compiled(*self.arguments(batch, rate, fresh))

    def arguments(self, batch: Batch, rate: float, fresh: float) -> tuple[Any, ...]:
        """Return the arguments of a step."""
        noise = self.gradient.noise(self.params, *batch)
        state = self.params, self.means, self.squares
        return noise, *state, np.float32(rate), np.float32(fresh), *batch

    def peak_bytes(self, batch: Batch) -> int:
        """Return the memory of a compiled step: arguments, noise, results and intermediates."""
        return int(self.compiled.explain(*self.arguments(batch, 0.0, 1.0)).peak_bytes)

    def accuracy(self) -> dict[str, float]:
        """Return percentages of right answers on the sets that are measured."""
        return {part: self.percentage(*known) for part, known in self.parts.items()}

    def percentage(self, inputs: list[Batch], labels: np.ndarray) -> float:
        """Return the percentage of right answers."""
        answers = [self.logits(self.params, *x) for x in inputs]
        predicted = np.concatenate([np.argmax(host(z), axis=1) for z in answers])
        return 100.0 * float(np.mean(predicted == labels))


def host(x: Any) -> np.ndarray:
    """Return an array in host memory."""
    return x.numpy() if isinstance(x, adarray.ADArray) else np.asarray(x)


def train(problem: Problem, method: str, seed: int, place: Place) -> dict[str, Any]:
    """Return figures of a training.

    Returns
    -------
    dict
        ``accuracy``: of each epoch and set, in percent; ``test``: the accuracy reported;
        ``first_epoch_s``: with compiling; ``epoch_s``: the median of the others; ``peak_bytes``:
        what one step needs, for the first seed; ``attacked``: the accuracy under attacks, for
        perceptrons.
    """
    with place():
        run = Training(problem, method, seed, place)
        curves: dict[str, list[float]] = {}
        seconds = []
        title = f"{problem.name} {method} {seed}"
        for _ in progress(range(problem.epochs), problem.epochs, title):
            batches = run.epoch()
            total = len(batches) * problem.epochs
            start = time.perf_counter()
            for batch in batches:
                run.step(batch, total)
            place.wait()
            seconds.append(time.perf_counter() - start)
            for part, value in run.accuracy().items():
                curves.setdefault(part, []).append(value)
        best = int(np.argmax(curves["val"])) if problem.chosen else -1
        return {
            "accuracy": {k: [round(x, 3) for x in v] for k, v in curves.items()},
            "test": curves["test"][best],
            "first_epoch_s": seconds[0],
            "epoch_s": statistics.median(seconds[1:] or seconds),
            "steps": len(batches),
            "peak_bytes": run.peak_bytes(batches[0]) if seed == 0 else None,
            **({"attacked": attacked(run)} if isinstance(problem, Mnist) else {}),
        }

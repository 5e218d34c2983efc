"""Scatters of many shapes on a GPU: each form beside its predicted time, and CuPy's additions.

    python -m asv_bench.gpu.scatters                  # fixed shapes and random ones
    python -m asv_bench.gpu.scatters --random 40 --seed 3 --predict    # needs no GPU

Times are those of the device, in us, with the indices checked and the memory of the result new.
``floor`` is what reading the pieces and writing the result takes.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Callable
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

from adarray.compiler.ir.builder import Builder
from adarray.compiler.ir.primitives import ScatterND
from adarray.compiler.ir.program import Program, Value
from adarray.compiler.ir.target import GPU
from adarray.compiler.kernels.scatter_forms import ScatterForm, times_of
from adarray.compiler.planning import planner, step_writer
from adarray.compiler.schedule.gpu.model import BANDWIDTH, LAUNCH

FIXED = (
    ((8, 524288, 12), 0, 2), ((32768, 16, 16), 1, 32), ((4096, 177, 28), 1, 59), ((100, 4), 0, 33),
    ((26993367,), 0, 8997789), ((261396, 83), 0, 522792), ((261396, 84), 0, 522792),
    ((7,), 0, 1 << 22), ((300,), 0, 1 << 22), ((64, 100000), 1, 100000), ((1000, 1000), 1, 2000),
    ((5000, 512), 0, 10000), ((2048, 2048), 0, 4096), ((1 << 20,), 0, 1 << 20),
    ((40, 40, 1000), 1, 80), ((2000, 16), 1, 5), ((30, 64), 0, 1 << 17), ((8, 639963), 1, 639963),
)  # fmt: skip
MOST = 4e-3  # seconds; forms that should take longer are not run
RUNS = 20


class ScatterShape(NamedTuple):
    """A result, the axis that is indexed, and the number of indices."""

    shape: tuple[int, ...]
    axis: int
    count: int

    @property
    def piece(self) -> tuple[int, ...]:
        """Shape of what is written."""
        return (*self.shape[: self.axis], self.count, *self.shape[self.axis + 1 :])


def random_shapes(count: int, seed: int) -> list[ScatterShape]:
    """Return random shapes of 10^4 to 5 * 10^7 elements, indexed along any axis."""
    choice = random.Random(seed)
    shapes = []
    for _ in range(count):
        axes = choice.randrange(1, 5)
        total = 10 ** choice.uniform(4, 7.7)
        parts = [choice.random() + 0.05 for _ in range(axes)]
        shape = tuple(max(2, round(total ** (p / sum(parts)))) for p in parts)
        axis = choice.randrange(axes)
        n = shape[axis]
        k = max(2, choice.choice((n, n // 3, 2 * n, 10, 40 * n if n < 1000 else n)))
        while k * math.prod(shape) // n > 1 << 27:
            k //= 2
        shapes.append(ScatterShape(shape, axis, k))
    return shapes


def program_of(s: ScatterShape) -> tuple[Program, Value]:
    """Return the program that adds pieces to zeros, and its scatter."""
    b = Builder()
    piece = b.input(0, s.piece, np.float32)
    at = b.input(1, (s.count,), np.int64)
    base = b.full(s.shape, 0, np.float32)
    out = b.scatter(base, piece, [at], (s.axis,), s.axis, add=True)
    return b.program([out]), out


def device_us(run: Callable[[], Any]) -> float:
    """Return the time of a call on the device."""
    import cupy

    for _ in range(3):
        run()
    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    begin.record()
    for _ in range(RUNS):
        run()
    end.record()
    end.synchronize()
    return float(cupy.cuda.get_elapsed_time(begin, end)) * 1e3 / RUNS


def measured(s: ScatterShape, times: dict[ScatterForm, float]) -> dict[str, float]:
    """Return the times of each form, and of CuPy's additions."""
    import cupy
    from adarray_backends.cuda.plans import executable

    rng = np.random.default_rng(0)
    piece = cupy.asarray(rng.standard_normal(s.piece, np.float32))
    at = cupy.asarray(rng.integers(0, s.shape[s.axis], s.count))
    program, _ = program_of(s)
    index = (*(slice(None),) * s.axis, at)

    def add() -> Any:
        out = cupy.zeros(s.shape, np.float32)
        cupy.add.at(out, index, piece)
        return out

    expected = add()
    results = {}
    for form, predicted in times.items():
        if predicted > MOST:
            continue
        with patch.object(step_writer, "form_of", lambda *_, form=form: form):
            run = executable(planner.plan(program, target=GPU))
        (got,) = run([piece, at])
        scale = float(cupy.abs(expected).max())
        wrong = float(cupy.abs(got - expected).max()) > 1e-3 * scale
        results[form.name] = math.nan if wrong else device_us(lambda run=run: run([piece, at]))
    results["CUPY"] = device_us(add)
    return results


def main() -> None:
    """Print a line for each shape."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--random", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--predict", action="store_true")
    args = parser.parse_args()
    for s in (*(ScatterShape(*x) for x in FIXED), *random_shapes(args.random, args.seed)):
        _, out = program_of(s)
        assert isinstance(out.primitive, ScatterND)
        times = times_of(out.primitive, out, GPU, False, False)
        form = min(times, key=lambda f: times[f])
        floor = LAUNCH + (out.nbytes + out.args[1].nbytes + 8 * s.count) / BANDWIDTH
        parts = [f"{s.shape} axis {s.axis}, {s.count}: {form.name}, floor {1e6 * floor:.1f}"]
        parts.append("predicted " + " ".join(f"{f.name}={1e6 * t:.1f}" for f, t in times.items()))
        if not args.predict:
            us = measured(s, times)
            parts.append("measured " + " ".join(f"{k}={v:.1f}" for k, v in us.items()))
        parts.append(f"{times[form] / floor:.1f} of the floor")
        print("; ".join(parts), flush=True)


if __name__ == "__main__":
    main()

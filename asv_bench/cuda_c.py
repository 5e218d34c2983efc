"""What gradients of CUDA C kernels cost, in units of the kernels themselves.

Run as ``python -m asv_bench.cuda_c [--backend serial] [--figures FOLDER]``; with ``--backend cuda``
in less than a minute. The kernels are proxies of the applications of Moses et al., *Reverse-mode
automatic differentiation and optimization of GPU kernels via Enzyme*, SC'21;
tests/support/cuda_kernels has their sources. Each is launched with growing numbers of threads, and
with growing work for each thread.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import adarray
from adarray.kernels import RawKernel, ssa
from adarray.kernels.launch import engine

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from cuda_kernels import CASES

Launch = tuple[Any, Any, list[Any]]
RNG = np.random.default_rng(0)
ROUNDS = 25


def lattice_boltzmann(scale: int) -> Launch:
    """Return a launch with `scale` times 1024 threads."""
    nx, ny = 32 * scale, 32
    f = RNG.uniform(0.5, 1.5, (9, ny, nx)).astype(np.float32)
    return (nx // 32, ny // 8), (32, 8), [f, np.zeros_like(f), np.float32(1.2), nx, ny]


def cross_sections(scale: int, nuclides: int = 8, points: int = 256) -> Launch:
    """Return a launch with `scale` times 256 threads."""
    n = 256 * scale
    grid = np.sort(RNG.uniform(0, 1, (nuclides, points)), axis=1)
    grid[:, 0], grid[:, -1] = 0, 1
    data = RNG.uniform(0, 1, (nuclides, points, 5))
    arrays = (RNG.uniform(0, 1, n), grid, data, RNG.uniform(0, 1, nuclides), np.zeros((n, 5)))
    singles = [a.astype(np.float32) for a in arrays]
    return n // 128, 128, [*singles, n, nuclides, points]


def multipole(scale: int, poles: int = 16) -> Launch:
    """Return a launch with `scale` times 256 threads."""
    n = 256 * scale
    arrays = (
        RNG.uniform(0.3, 1, (poles, 2)), RNG.normal(size=(poles, 2)), RNG.uniform(0.1, 1, n),
        np.zeros((n, 2)),
    )  # fmt: skip
    return n // 128, 128, [*(a.astype(np.float32) for a in arrays), n, poles]


def material(scale: int) -> Launch:
    """Return a launch with `scale` times 1024 threads."""
    n = 1024 * scale
    arrays = [
        RNG.uniform(0.5, 2, n), RNG.uniform(0.1, 1, n), RNG.uniform(0.1, 0.5, n), np.zeros(n),
        RNG.uniform(0.6, 1.2, n), RNG.uniform(-0.2, 0.2, n),
    ]  # fmt: skip
    numbers = [np.float32(x) for x in (1e-7, 1e-7, -1e15, -1e15, 1.3)]
    return n // 128, 128, [*(a.astype(np.float32) for a in arrays), *numbers, n]


def dg_volume(scale: int) -> Launch:
    """Return a launch with `scale` times 1024 threads."""
    elements = 64 * scale
    arrays = (
        RNG.uniform(0.5, 1.5, (16 * elements, 3)), RNG.normal(size=(16 * elements, 4)),
        RNG.normal(size=(4, 4)), np.zeros((16 * elements, 3)),
    )  # fmt: skip
    return elements, (4, 4), [*(a.astype(np.float32) for a in arrays), np.float32(0.4)]


PROXIES: dict[str, Callable[[int], Launch]] = {
    "lattice_boltzmann": lattice_boltzmann,
    "cross_sections": cross_sections,
    "multipole": multipole,
    "material": material,
    "dg_volume": dg_volume,
}
# Work of each thread, where a kernel's arguments say how much there is: by threads, and by work.
WORK: dict[str, Callable[[int, int], Launch]] = {
    "cross_sections": lambda threads, k: cross_sections(threads, 4 * k),
    "multipole": lambda threads, k: multipole(threads, 4 * k),
}
GROWTH = (1, 4, 16, 100)
# How many times the least number of threads a growth of 1 stands for, of threads and of work: the
# launch itself takes less time than so many threads. A GPU needs some ten thousand to be busy, and
# some hundred thousand, `--least 800`, until its multiprocessors are full.
FIRST = {"serial": (4, 2), "openmp": (32, 8), "cuda": (16, 256)}


def best(*runs: Callable[[], Any], clock: Callable[[], float]) -> list[float]:
    """Return the seconds that each run takes at best; they alternate."""
    times: list[list[float]] = [[] for _ in runs]
    for round_ in range(ROUNDS + 1):
        for run, seconds in zip(runs, times, strict=True):
            start = clock()
            run()
            if round_:  # the first one warms up
                seconds.append(clock() - start)
    return [min(seconds) for seconds in times]


_SPIN = r"""
extern "C" __global__ void spin(long long cycles) {
    const long long start = clock64();
    while (clock64() - start < cycles) {}
}
"""


def best_on_gpu(*runs: Callable[[], Any], xp: Any) -> list[float]:
    """Return the seconds of the GPU that each run takes at best; they alternate.

    A kernel that waits keeps the GPU busy while launches are queued, so that the time in which the
    host makes them does not count. Where a run itself waits for the GPU, it does.
    """
    spin = xp.RawKernel(_SPIN, "spin")
    times: list[list[float]] = [[] for _ in runs]
    many = 10
    for round_ in range(8):
        for run, seconds in zip(runs, times, strict=True):
            start, end = xp.cuda.Event(), xp.cuda.Event()
            spin((1,), (1,), (4_000_000,))  # some milliseconds
            start.record()
            for _ in range(many):
                run()
            end.record()
            end.synchronize()
            if round_:
                seconds.append(xp.cuda.get_elapsed_time(start, end) / 1e3 / many)
    return [min(seconds) for seconds in times]


def ratio(name: str, launch: Launch, backend: str) -> tuple[float, float]:
    """Return the seconds of a kernel, and how many times as long its gradient takes.

    Both are timed as launches on arrays that are there; the gradient by all floating-point
    parameters, but for arrays that are only written, contains what it takes of the kernel again.
    """
    case = CASES[name]
    kernel = RawKernel(case.text("float32"), name)
    grid, block, args = launch
    with adarray.use(backend):
        operands, bound = kernel._bound(grid, block, args, 0)
        execution, operation = kernel._execution, kernel._operation
        values = dict(zip(operation.operands, operands, strict=True)) | dict(bound.integers)
        values = execution.checked(values)
        program = execution.program
        read = {n.buffer for n in program.nodes if isinstance(n, ssa.Read)}
        inputs = kernel._inputs_of(None) - (set(execution.outputs) - read)
        original = execution.compiled(execution.kernel)
        adjoint = execution.adjoint(bound, inputs, values)
        gradient = execution.compiled(adjoint.kernel, adjoint.counting)
        cotangents = {n: np.ones_like(values[n]) for n in execution.outputs}
        shadows = execution._with_shadows(adjoint, dict(values), cotangents)
        for n in adjoint.copies:
            shadows[n] = shadows[n].copy()
        runs = (lambda: original(bound, values), lambda: gradient(bound, shadows))
        if backend == "cuda":
            first, second = best_on_gpu(*runs, xp=engine().library.xp)
        else:
            # One thread's own time does not count what other programs take meanwhile.
            clock = time.thread_time if backend == "serial" else time.perf_counter
            first, second = best(*runs, clock=clock)
    return first, second / first


Points = dict[str, dict[str, list[tuple[int, float]]]]


def measured(backend: str, least: int | None = None) -> Points:
    """Return, and print, the cost of gradients as threads and the work of each grow."""
    threads, at_work = FIRST[backend]
    threads = threads if least is None else least
    points: Points = {"threads": {}, "work": {}}
    print(f"{'kernel':20} {'threads x':>10} {'kernel ms':>10} {'gradient':>9}")
    for growth in GROWTH:
        launches = [("threads", n, f(threads * growth)) for n, f in PROXIES.items()]
        launches += [("work", n, f(at_work, growth)) for n, f in WORK.items()]
        for what, name, launch in launches:
            seconds, times = ratio(name, launch, backend)
            points[what].setdefault(name, []).append((growth, times))
            print(
                f"{name:20} {what[:4]} {growth:5} {1e3 * seconds:10.3f} {times:8.2f}x", flush=True
            )
    return points


def summary(points: Points) -> None:
    """Print the cost of gradients, and how much it changes as threads and work grow."""
    print("gradient / kernel, with the most threads:")
    for name, series in points["threads"].items():
        print(f"    {name:20} {series[-1][1]:6.2f}x")
    for what, label in (("threads", "threads"), ("work", "work of each thread")):
        print(f"{label} x {GROWTH[-1]}: gradient / kernel at the end over that at the beginning")
        for name, series in points[what].items():
            print(f"    {name:20} {series[-1][1] / series[0][1]:6.2f}")


def main() -> None:
    """Print a table, and draw it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="serial", choices=tuple(FIRST))
    parser.add_argument(
        "--least", type=int, help="threads that growth begins with, in units of 256 or 1024"
    )
    parser.add_argument("--figures", type=Path)
    options = parser.parse_args()
    points = measured(options.backend, options.least)
    summary(points)
    if options.figures is not None:
        draw(points, options.figures)


def draw(points: Points, folder: Path) -> None:
    """Draw how the cost of gradients grows."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot

    for what, label in (("threads", "threads"), ("work", "work of each thread")):
        figure, axes = pyplot.subplots(figsize=(6, 3.2), layout="constrained")
        for name, series in points[what].items():
            axes.plot(*zip(*series, strict=True), "o-", label=name.replace("_", " "))
        axes.set(xscale="log", ylim=(0, None), xlabel=f"{label}, times the least",
                 ylabel="gradient / kernel")  # fmt: skip
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
        figure.savefig(folder / f"{what}.svg", metadata={"Date": None})
        pyplot.close(figure)


if __name__ == "__main__":
    main()

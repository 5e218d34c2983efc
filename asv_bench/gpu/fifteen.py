"""Fifteen operations on matrices, forward and backward, against torch eager on the same GPU.

Run it where CuPy and torch find a GPU::

    python -m asv_bench.gpu.fifteen [--size 4096] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np

import adarray
from adarray.ops.elementwise import relu
from asv_bench.gpu.needed import needed

cupy: Any = None  # which `main` loads
torch: Any = None
# Name: how many matrices, how they are drawn, the function in NumPy, and in torch, or its name.
OPS: dict[str, tuple[int, str, Callable[..., Any], Any]] = {
    "add": (2, "n", np.add, "add"),
    "broadcast": (1, "row", lambda x: np.broadcast_to(x, (N, N)), lambda x: x.expand(N, N)),
    "copy": (1, "n", np.copy, "clone"),
    "divide": (2, "p", np.divide, "div"),
    "exp": (1, "n", np.exp, "exp"),
    "log": (1, "p", np.log, "log"),
    "matmul": (2, "n", np.matmul, "matmul"),
    "max": (1, "n", lambda x: np.max(x, axis=1), lambda x: torch.max(x, dim=1).values),
    "max (amax)": (1, "n", lambda x: np.max(x, axis=1), lambda x: torch.amax(x, dim=1)),
    "multiply": (2, "n", np.multiply, "mul"),
    "negate": (1, "n", np.negative, "neg"),
    "power": (2, "p", np.power, "pow"),
    "relu": (1, "n", relu, "relu"),
    "subtract": (2, "n", np.subtract, "sub"),
    "sum": (1, "n", lambda x: np.sum(x, axis=1), lambda x: torch.sum(x, dim=1)),
    "sum (axis 0)": (1, "n", lambda x: np.sum(x, axis=0), lambda x: torch.sum(x, dim=0)),
    "sum (all)": (1, "n", np.sum, "sum"),
    "transpose": (1, "n", np.transpose, lambda x: x.T),
}
N = 4096


def of_torch(name: str) -> Callable[..., Any]:
    """Return a function that computes an operation in torch."""
    f = OPS[name][3]
    return getattr(torch, f) if isinstance(f, str) else f  # type: ignore[no-any-return]


def drawn(count: int, how: str) -> list[np.ndarray]:
    """Return matrices (or one row) of random numbers."""
    rng = np.random.default_rng(0)
    shape = (1, N) if how == "row" else (N, N)
    xs = [rng.normal(size=shape).astype(np.float32) for _ in range(count)]
    return [np.abs(x) + 0.5 for x in xs] if how == "p" else xs


def step_of_adarray(f: Callable[..., Any], xs: list[np.ndarray], g: np.ndarray) -> Any:
    """Return a function that computes value and gradients once, on the GPU."""
    inputs = [adarray.array(x, requires_grad=True) for x in xs]
    cotangent = adarray.array(g)

    def step() -> Any:
        for x in inputs:
            x.grad = None
        y = f(*inputs)
        y.backward(cotangent)
        return y, *(x.grad for x in inputs)

    return step


def step_of_torch(f: Callable[..., Any], xs: list[np.ndarray], g: np.ndarray) -> Any:
    """Return the same for torch eager."""
    inputs = [torch.tensor(x, device="cuda", requires_grad=True) for x in xs]
    cotangent = torch.tensor(g, device="cuda")

    def step() -> Any:
        for x in inputs:
            x.grad = None
        y = f(*inputs)
        y.backward(cotangent)
        return y, *(x.grad for x in inputs)

    return step


def microseconds(step: Callable[[], Any], runs: int) -> float:
    """Return the time of one call in a row of calls, by the GPU's clock."""
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    cupy.cuda.Device().synchronize()
    start.record(torch.cuda.default_stream())
    for _ in range(runs):
        step()
    stop.record(torch.cuda.default_stream())
    torch.cuda.synchronize()
    return start.elapsed_time(stop) * 1e3 / runs


def forward_only(name: str, runs: int) -> tuple[float, float]:
    """Return the times of the operation alone, nothing recorded."""
    count, how, f, _ = OPS[name]
    torch_f, xs = of_torch(name), drawn(count, how)
    ours = [adarray.array(x) for x in xs]
    theirs = [torch.tensor(x, device="cuda") for x in xs]
    best = [1e9, 1e9]
    for _ in range(5):
        best[0] = min(best[0], microseconds(lambda: f(*ours), runs))
        best[1] = min(best[1], microseconds(lambda: torch_f(*theirs), runs))
    return best[0], best[1]


def compared(name: str, runs: int, repeats: int) -> tuple[float, float, float, float]:
    """Return the medians of adarray and torch, of their ratio, and the difference of results."""
    count, how, f, _ = OPS[name]
    torch_f, xs = of_torch(name), drawn(count, how)
    shape = np.shape(f(*xs))
    g = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    ours, theirs = step_of_adarray(f, xs, g), step_of_torch(torch_f, xs, g)
    error = 0.0
    for a, b in zip(ours(), theirs(), strict=True):
        a, b = a.numpy().astype(np.float64), b.detach().cpu().numpy().astype(np.float64)
        error = max(error, float(np.linalg.norm(a - b) / max(np.linalg.norm(b), 1e-30)))
    microseconds(ours, runs), microseconds(theirs, runs)
    times = [(microseconds(ours, runs), microseconds(theirs, runs)) for _ in range(repeats)]
    mine, other = (statistics.median(t) for t in zip(*times, strict=True))
    return mine, other, statistics.median(a / b for a, b in times), error


def main(argv: list[str] | None = None) -> None:
    """Print the table."""
    global N, cupy, torch
    parser = argparse.ArgumentParser(prog="python -m asv_bench.gpu.fifteen", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--size", type=int, default=4096, help="rows and columns")
    parser.add_argument("--runs", type=int, default=40, help="calls in a row that are timed")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--json", metavar="FILE", help="file for all figures")
    options = parser.parse_args(argv)
    if min(options.size, options.runs, options.repeats) < 1:
        parser.error("--size, --runs and --repeats are at least 1")
    cupy, torch = needed("asv_bench.gpu.fifteen", "cupy", "torch")
    N = options.size
    rows = {}
    print(f"{torch.cuda.get_device_name()}, {N} x {N}, float32, microseconds forward and backward")
    print(
        f"{'operation':<14}{'adarray':>10}{'torch':>10}{'ratio':>8}{'difference':>12}"
        f"{'forward':>10}{'torch':>10}"
    )
    with adarray.use("cuda"):
        for name in OPS:
            mine, other, ratio, error = compared(name, options.runs, options.repeats)
            alone = forward_only(name, options.runs)
            rows[name] = {
                "adarray": mine, "torch": other, "ratio": ratio, "difference": error,
                "forward": alone[0], "torch forward": alone[1],
            }  # fmt: skip
            print(
                f"{name:<14}{mine:>10.1f}{other:>10.1f}{ratio:>8.2f}{error:>12.1e}"
                f"{alone[0]:>10.1f}{alone[1]:>10.1f}"
            )
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"size": N, "device": torch.cuda.get_device_name(), "rows": rows}, file)


if __name__ == "__main__":
    main()

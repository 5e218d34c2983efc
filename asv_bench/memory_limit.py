"""Memory that gradients take under ``jit(f, memory_limit=...)``, beside the limit.

``python -m asv_bench.memory_limit [PROGRAM ...]`` compiles gradients without a limit
and then under shares of what they took, each in a process of its own. The peak is that of the
process (VmHWM), less what it held before the call and what the call returns.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from cffi import FFI

import adarray

SHARES = (1.0, 0.7, 0.5, 0.35, 0.25, 0.18, 0.12, 0.08, 0.05)


def layers(ws: Any, x: Any) -> Any:
    """Return a loss of a network of fifty layers."""
    for w in ws:
        x = np.tanh(x @ w)
    return np.mean(x**2)


def residual(ws: Any, x: Any) -> Any:
    """Return a loss of residual blocks with normalisation."""
    for w in ws:
        y = (x - np.mean(x, axis=1, keepdims=True)) / (np.std(x, axis=1, keepdims=True) + 1e-3)
        x = x + 0.5 * np.maximum(y @ w, 0.0) @ w.T
    return np.mean(x**2)


def heat(u: Any) -> Any:
    """Return the energy of a nonlinear diffusion after sixty steps."""
    for _ in range(60):
        u = u + 0.1 * np.tanh(np.roll(u, 1, 0) + np.roll(u, -1, 0) - 2 * u)
    return np.sum(u * u)


def wave(speed: Any, u: Any) -> Any:
    """Return the signal of a receiver for a wave, which two states per step describe."""
    before, total = u, 0.0
    for _ in range(60):
        bend = np.roll(u, 1, 0) + np.roll(u, -1, 0) + np.roll(u, 1, 1) + np.roll(u, -1, 1) - 4 * u
        before, u = u, 2 * u - before + 0.1 * speed * bend
        total = total + np.sum(u[3] ** 2)
    return total


def runge_kutta(k: Any, x: Any) -> Any:
    """Return the last state of many oscillators, by the classical method of order four."""
    v = np.zeros_like(x)
    for _ in range(30):
        a1 = -k * np.sin(x)
        a2 = -k * np.sin(x + 0.05 * v)
        a3 = -k * np.sin(x + 0.05 * (v + 0.05 * a1))
        a4 = -k * np.sin(x + 0.1 * (v + 0.05 * a2))
        x, v = x + 0.1 * v + 0.005 / 3 * (a1 + a2 + a3), v + 0.1 / 6 * (a1 + 2 * a2 + 2 * a3 + a4)
    return np.sum(x**2)


def recurrent(w: Any, u: Any, xs: Any) -> Any:
    """Return a loss of a recurrent network with a gate."""
    h = np.zeros((xs.shape[1], w.shape[0]))
    for x in xs:
        z = 1 / (1 + np.exp(-(h @ w)))
        h = (1 - z) * h + z * np.tanh(x @ u)
    return np.mean(h**2)


def skips(ws: Any, x: Any) -> Any:
    """Return a loss of a network whose last layers read the first ones, as a U-net."""
    activations = []
    for w in ws:
        x = np.tanh(x @ w)
        activations.append(x)
    for w in reversed(ws):
        x = np.tanh(x @ w.T) + activations.pop()
    return np.mean(x**2)


def attention(ws: Any, x: Any) -> Any:
    """Return a loss of layers of attention."""
    for w in ws:
        q = x @ w
        s = q @ x.T / 8.0
        e = np.exp(s - np.max(s, axis=1, keepdims=True))
        x = x + (e / np.sum(e, axis=1, keepdims=True)) @ q
    return np.mean(x**2)


def program(name: str) -> tuple[Any, tuple[Any, ...]]:
    """Return a gradient and its arguments."""
    r = np.random.default_rng(0)

    def weights(n: int, size: int) -> list[Any]:
        return [r.normal(size=(size, size)) / np.sqrt(size) for _ in range(n)]

    programs: dict[str, Any] = {
        "layers": lambda: (layers, weights(50, 128), r.normal(size=(1000, 128))),
        "residual": lambda: (residual, weights(20, 128), r.normal(size=(1000, 128))),
        "heat": lambda: (heat, r.normal(size=(400, 400))),
        "wave": lambda: (wave, r.uniform(size=(300, 300)), r.normal(size=(300, 300))),
        "runge_kutta": lambda: (runge_kutta, r.uniform(size=100_000), r.normal(size=100_000)),
        "recurrent": lambda: (
            recurrent, weights(1, 128)[0], weights(1, 128)[0], r.normal(size=(40, 600, 128)),
        ),
        "skips": lambda: (skips, weights(20, 128), r.normal(size=(1000, 128))),
        "attention": lambda: (attention, weights(8, 64), r.normal(size=(400, 64))),
    }  # fmt: skip
    f, *args = programs[name]()
    return adarray.value_and_grad(f), tuple(args)


PROGRAMS = (
    "layers", "residual", "heat", "wave", "runge_kutta", "recurrent", "skips", "attention",
)  # fmt: skip


def resident(key: str) -> int:
    """Return an entry of the memory of this process, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"no {key}")


def settle() -> None:
    """Give all memory that is free back to the system."""
    gc.collect()
    engine = adarray.base.runtime.current_mode().engine
    if engine is not None:
        engine.trim()
    libc = FFI()
    libc.cdef("int malloc_trim(size_t pad);")
    libc.dlopen(None).malloc_trim(0)


def measure(name: str, limit: int | None) -> dict[str, Any]:
    """Return memory and time of a program under a limit."""
    g, args = program(name)
    warning = ""
    with adarray.use("serial"), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        jf = adarray.jit(g, memory_limit=limit)
        start = time.perf_counter()
        for _ in range(3):
            result = jf(*args)
        compiled = time.perf_counter() - start
        warning = next((str(w.message) for w in caught if "memory_limit" in str(w.message)), "")
        (node,) = jf.path(*args)
        seconds = []
        for _ in range(5):
            start = time.perf_counter()
            result = jf(*args)
            seconds.append(time.perf_counter() - start)
        check = float(result[0])
        del result
        settle()
        before = resident("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")
        result = jf(*args)
        peak = resident("VmHWM") - before
        leaves = [x for x in _leaves(result) if isinstance(x, np.ndarray)]
        peak -= sum(x.nbytes for x in leaves)
    return {
        "arena": node.plan.arena, "peak": peak, "seconds": min(seconds), "compile": compiled,
        "said": warning, "value": check,
    }  # fmt: skip


def _leaves(x: Any) -> list[Any]:
    return [y for i in x for y in _leaves(i)] if isinstance(x, (list, tuple)) else [x]


def measured(name: str, limit: int | None) -> dict[str, Any]:
    """Return `measure` of a process of its own."""
    command = [sys.executable, "-m", "asv_bench.memory_limit", "--one", name, str(limit or 0)]
    out = subprocess.run(command, capture_output=True, text=True, check=True)
    figures: dict[str, Any] = json.loads(out.stdout.splitlines()[-1])
    return figures


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", nargs="*", default=PROGRAMS)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        name, limit = options.programs
        print(json.dumps(measure(name, int(limit) or None)))
        return
    for name in options.programs:
        free = measured(name, None)
        print(f"{name}: {free['arena'] / 1e6:.2f} MB, {free['seconds'] * 1e3:.1f} ms", flush=True)
        print(f"  peak {free['peak'] / 1e6:.2f} MB; compiled in {free['compile']:.1f} s")
        for share in SHARES:
            limit = int(share * free["arena"])
            m = measured(name, limit)
            note = "" if not m["said"] else "  cannot be met"
            wrong = "" if abs(m["value"] / free["value"] - 1) < 1e-9 else "  WRONG"
            print(
                f"  {share:5.2f}  limit {limit / 1e6:7.2f}  arena {m['arena'] / 1e6:7.2f}"
                f"  peak {m['peak'] / 1e6:7.2f} ({m['peak'] / limit:4.2f})"
                f"  time x{m['seconds'] / free['seconds']:4.2f}"
                f"  compiled {m['compile']:5.1f} s{note}{wrong}",
                flush=True,
            )


if __name__ == "__main__":
    main()

"""One engine in a process of its own, driven over pipes by `asv_bench.npbench`.

The protocol is that of `asv_bench.worker`.
"""

from __future__ import annotations

import gc
import math
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Appended, so that an installed adarray (with its compiled modules) comes first.
sys.path.append(str(Path(__file__).resolve().parents[2]))

import numpy as np

from asv_bench.jit.once import forget_peak, status, timed
from asv_bench.npbench.engines import NumPyEngine, Task, make
from asv_bench.npbench.programs import copied, differences, directions, find, objective, slopes
from asv_bench.worker import UNTIL_COMPILED, Worker, batch_size, digest_of, serving

# What compiled code that is slower than the program needs to be given up, and calls that it may
# take; and seconds for them.
MORE, MORE_S = 12, 10.0
FEW = 100_000  # elements of a gradient that its digest is made of
# How many times longer than later calls a call may take that runs compiled code alone.
FAST = 1.5


def until_fast(spent: list[float], later: list[float]) -> float:
    """Return the seconds before the first call from which on all are fast.

    Parameters
    ----------
    spent : list of float
        Of preparing and of each of the first calls.
    later : list of float
        Of calls after them.
    """
    usual = FAST * statistics.median(later)
    before = len(spent)
    while before > 1 and spent[before - 1] <= usual:
        before -= 1
    return sum(spent[:before])


class ProgramWorker(Worker):
    """The state of one worker: its engine and the call that was prepared."""

    def __init__(self, engine: str, threads: int) -> None:
        self.engine = make(engine, threads)
        self.calls: list[tuple[Callable[[], Any], int]] = []

    def prepare(self, kind: str, name: str, root: str = "", size: str = "S") -> dict[str, Any]:  # type: ignore[override]
        """Compute the derivatives of a program until compiled code runs; return what was found.

        Returns
        -------
        dict
            ``digest``: of value and gradients; ``slopes``: along `directions`; ``gradients``:
            whether the engine has any; ``first``: seconds until the first fast call begins;
            ``peak``: bytes that they took at most; ``note``: why it is not compiled.
        """
        del kind  # it does one thing
        self.calls.clear()
        gc.collect()
        program = find(Path(root))[name]
        data = program.data(size)
        task = Task(program, data, objective(program, copied(data)))
        before = status("VmRSS")
        forget_peak()
        spent: list[float] = []
        prepared: Any = None
        result: Any = None

        def first() -> None:
            nonlocal prepared
            prepared = self.engine.prepare(task)

        def call() -> None:
            nonlocal result
            result = prepared.call()

        spent.append(timed(first))
        spent += [timed(call) for _ in range(UNTIL_COMPILED)]
        value, gradients = prepared.result(result)
        peak = status("VmHWM") - before
        calls = 0
        later: list[float] = []
        while calls < MORE and sum(later) < MORE_S:  # slow compiled code is given up meanwhile
            later.append(timed(call))
            calls += 1
        products = slopes(gradients, directions(program, data)) if gradients else []
        self.calls.append((prepared.call, batch_size(prepared.call)))
        return {
            "digest": digest_of(value, [_few(_real(g)) for g in gradients.values()]),
            "slopes": products,
            "gradients": not isinstance(self.engine, NumPyEngine),
            "first": until_fast(spent, later),
            "peak": peak,
            "note": prepared.note(),
            "single": any(np.asarray(x).dtype in (np.float32, np.complex64) for x in data.values()),
        }

    def differences(
        self, root: str, name: str, size: str, budget: float = math.inf
    ) -> dict[str, Any]:
        """Return slopes by differences; of one direction at least, then as `budget` s allow."""
        program = find(Path(root))[name]
        return {"slopes": differences(program, program.data(size), budget)}


def _real(g: Any) -> Any:
    """Return a gradient as real numbers."""
    g = np.asarray(g)
    return np.stack([g.real, g.imag]) if g.dtype.kind == "c" else g


def _few(g: np.ndarray) -> np.ndarray:
    """Return some elements of an array: engines are compared by slopes, which take all."""
    flat = np.reshape(g, -1)
    return flat[:: max(1, flat.size // FEW)]


if __name__ == "__main__":
    serving(lambda: ProgramWorker(sys.argv[1], int(sys.argv[2])))

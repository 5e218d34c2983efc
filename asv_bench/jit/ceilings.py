"""The machine's own limits, measured in the run, and the floors that they set."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from asv_bench.benchmarks.jit_workloads import JitWorkload

HERE = Path(__file__).resolve().parent
NATIVE = HERE.parents[1] / "native"
# As kernels are compiled, see native/flags.py.
FLAGS = (
    "-O3", "-march=native", "-mprefer-vector-width=512", "-fopenmp", "-std=gnu11",
    "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off",
    "-fno-builtin-sin", "-fno-builtin-cos", "-fno-builtin-sinf", "-fno-builtin-cosf",
)  # fmt: skip


class Ceilings(NamedTuple):
    """What the machine can do with the given threads.

    Parameters
    ----------
    copy, read : dict
        Bytes per second by the bytes touched; of copies, what is read and what is written
        both count, and the better of plain and streaming stores is taken.
    functions : dict
        Evaluations per second, by dtype and function, from the first level of cache.
    products : dict
        Operations per second of matrix products by dtype: the best library's.
    """

    copy: dict[int, float]
    read: dict[int, float]
    functions: dict[str, dict[str, float]]
    products: dict[str, float]

    def bandwidth(self, touched: float, of: str = "copy") -> float:
        """Return the bytes per second at a footprint, between the sizes that were measured."""
        table = getattr(self, of)
        sizes = sorted(table)
        if touched <= sizes[0]:
            return float(table[sizes[0]])
        if touched >= sizes[-1]:
            return float(table[sizes[-1]])
        above = next(i for i, size in enumerate(sizes) if size >= touched)
        low, high = sizes[above - 1], sizes[above]
        part = math.log(touched / low) / math.log(high / low)
        return float(table[low] ** (1 - part) * table[high] ** part)


class Floor(NamedTuple):
    """The least time of a workload, in s: the largest of three."""

    memory: float
    functions: float
    products: float

    @property
    def seconds(self) -> float:
        """The floor."""
        return max(self)

    @property
    def limit(self) -> str:
        """The resource that limits the time."""
        return max(self._fields, key=lambda name: getattr(self, name))


def measure(threads: int) -> dict[str, Any]:
    """Compile and run ``ceilings.c``; return what it printed."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise RuntimeError("ceilings: no C compiler found; install gcc")
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "ceilings"
        libraries = ("-lmvec", "-lm")
        subprocess.run(
            [compiler, *FLAGS, *(f"-I{NATIVE / part}" for part in ("cpu", "shared")),
             str(HERE / "ceilings.c"), "-o", str(program), *libraries],
            check=True,
        )  # fmt: skip
        done = subprocess.run([program, str(threads)], check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout))


def ceilings(rates: dict[str, Any], products: dict[str, float]) -> Ceilings:
    """Return ceilings of what `measure` found and of the rates of matrix products."""
    plain, stream = rates["copy"], rates["stream"]
    return Ceilings(
        {int(size): max(rate, stream[size]) for size, rate in plain.items()},
        {int(size): rate for size, rate in rates["read"].items()},
        rates["functions"],
        products,
    )


def floor(w: JitWorkload, limits: Ceilings) -> Floor:
    """Return the least time that `w` needs on this machine."""
    footprint = w.footprint or w.moved
    of = "read" if w.reads_only else "copy"
    rates = limits.functions[w.dtype]
    return Floor(
        w.moved / limits.bandwidth(footprint, of),
        sum(count / rates[name] for name, count in w.functions.items()),
        w.flops / limits.products[w.dtype] if w.flops else 0.0,
    )

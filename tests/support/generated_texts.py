"""Print the C and CUDA that workloads and random programs become, to compare two versions.

``python tests/support/generated_texts.py DIR`` writes one file for each program and target;
``diff -r`` of two folders shows what a change of the compiler changed. Needs no GPU.

For changes of the compiler that are to leave kernels as they are.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

import numpy as np  # noqa: E402
from random_recordings import random_recordings  # noqa: E402
from recorded import Recorded, recorded  # noqa: E402

from adarray import value_and_grad  # noqa: E402
from adarray.compiler.ir.plan import KernelStep  # noqa: E402
from adarray.compiler.ir.target import CPU, GPU, CpuTarget  # noqa: E402
from adarray.compiler.planning.planner import plan  # noqa: E402
from adarray.compiler.print_c import printer as cprinter  # noqa: E402
from adarray.compiler.print_cuda import printer as cuda  # noqa: E402
from adarray.compiler.schedule.gpu.choose import schedule_of  # noqa: E402
from asv_bench.benchmarks.jit_workloads import EVERY  # noqa: E402
from asv_bench.gpu.workloads import GPU_WORKLOADS  # noqa: E402

TARGETS = {
    "avx2": CpuTarget(vector_bytes=32, libmvec=1, precise=False, threads=2),
    "avx512": CpuTarget(vector_bytes=64, libmvec=1, precise=False, threads=2),
    "precise": CpuTarget(vector_bytes=32, libmvec=1, precise=True, threads=2),
}
LARGEST = 3e7  # bytes of the arguments of what is recorded
SEEDS = range(60)


def programs() -> Iterator[tuple[str, Recorded]]:
    """Yield what is compiled: names, and recorded values and gradients."""
    workloads = {n: w.workload for n, w in EVERY.items()}
    workloads |= {f"gpu {n}": w.workload for n, w in GPU_WORKLOADS.items()}
    for name, workload in workloads.items():
        variables, constants = workload.data()
        if sum(np.asarray(x).nbytes for x in (*variables, *constants)) > LARGEST:
            continue
        body = partial(workload.body, np)
        run = value_and_grad(body, argnums=tuple(range(len(variables))))
        yield name, recorded(run, *variables, *constants)
    for i, r in enumerate(random_recordings(SEEDS)):
        yield f"random {i}", r


def texts(r: Recorded) -> Iterator[tuple[str, str]]:
    """Yield the targets and what a program becomes for them."""
    for name, target in TARGETS.items():
        steps = plan(r.program, target=CPU).steps
        kernels = [s.kernel for s in steps if isinstance(s, KernelStep)]
        yield name, "\n".join(cprinter.source(k, target) for k in dict.fromkeys(kernels))
    steps = plan(r.program, target=GPU).steps
    texts = []
    for s in steps:
        if isinstance(s, KernelStep):
            ints = dict(zip(s.kernel.ints, s.ints, strict=True))
            texts.append(cuda.source(schedule_of(s.kernel, ints, GPU)).text)
    yield "cuda", "\n".join(dict.fromkeys(texts))


def main(out: Path) -> None:
    """Write all texts into a folder."""
    out.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    for name, r in programs():
        for target, text in texts(r):
            file = out / f"{name.replace(' ', '_').replace('/', '-')}.{target}"
            file.write_text(text + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""What the CUDA backend is measured on: float32 functions, and steps of gradient descent.

Their texts are those of `asv_bench.benchmarks`; here are the sizes that fill a GPU, and the
factors by which the best other library is to be slower.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from asv_bench.benchmarks.jit_workloads import (
    JitWorkload,
    make_chain,
    make_cross_entropy,
    make_heat_equation,
    make_tiny,
    sized_network,
)
from asv_bench.benchmarks.workloads import Workload, make_network

RATE = 0.01  # of gradient descent
BANDWIDTH = 0.72  # of the measured copy bandwidth, that the longest chain is to reach


class GpuWorkload(NamedTuple):
    """A workload on a GPU.

    Parameters
    ----------
    base : JitWorkload
    target : float
        How many times as long the best other library is to take at least.
    precision : {"float32", "tf32"}
        Of matrix products.
    step : bool
        Whether a call is a step of gradient descent: value, gradient and new parameters.
    long : bool
        Whether its text has a hundred steps, which compilers unroll for minutes.
    """

    base: JitWorkload
    target: float
    precision: str = "float32"
    step: bool = False
    long: bool = False

    @property
    def workload(self) -> Workload:
        """The function with its data."""
        return self.base.workload

    @property
    def name(self) -> str:
        """Name of the workload."""
        name = self.base.name.removesuffix(" f32")
        if self.base.flops:
            return f"{name}, {self.precision} step"
        return name


def _step(batch: int, width: int, target: float, precision: str) -> GpuWorkload:
    w = make_network(batch, width, np.float32)
    return GpuWorkload(sized_network(w, batch, width), target, precision, step=True)


GPU_WORKLOADS: dict[str, GpuWorkload] = {
    w.name: w
    for w in (
        GpuWorkload(make_heat_equation(2048, 100, "float32"), 1.5, long=True),
        GpuWorkload(make_tiny("float32"), 3.0),
        GpuWorkload(make_chain(10**3, "float32"), 3.0),
        GpuWorkload(make_chain(10**5, "float32"), 3.0),
        GpuWorkload(make_chain(10**7, "float32"), 1.3),
        GpuWorkload(make_chain(10**8, "float32"), 1.3),
        GpuWorkload(make_cross_entropy(8192, 32768), 1.3),
        _step(128, 128, 1.8, "float32"),
        _step(256, 1024, 1.5, "float32"),
        _step(1024, 4096, 1.1, "tf32"),
        _step(4096, 8192, 0.97, "float32"),
        _step(4096, 8192, 0.97, "tf32"),
    )
}

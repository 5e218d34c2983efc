"""Plans whose kernels are printed for a GPU and run on the processor: see device_host.h.

For tests of schedules and printers for GPUs.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import adarray_native
import numpy as np
from cffi import FFI
from plan_runner import FailedError, PlanRunner, poison
from recorded import close

from adarray.compiler.ir.loopir import Kernel
from adarray.compiler.ir.plan import KernelStep, Plan
from adarray.compiler.ir.target import GpuTarget
from adarray.compiler.print_cuda import printer as cuda
from adarray.compiler.scalars.dtypes import STORED
from adarray.compiler.schedule.gpu.choose import schedule_of
from adarray.compiler.schedule.gpu.launch import ZEROS, grids, launch_of
from adarray.compiler.schedule.gpu.schedules import Schedule

ROOT = Path(__file__).resolve().parents[2]
# So small that blocks take several rows, and arrays lie in the workspace, too.
SMALL = GpuTarget(sms=2, threads_per_sm=256, shared_memory=4096)
FLAGS = ["-std=c++17", "-O0", "-w", "-fPIC", "-shared", "-ffp-contract=off", "-fwrapv"]
_DRIVER = """
static void {name}_body(void *context)
{{
    void **p = (void **)context;
    {name}({arguments});
}}
extern "C" int {name}_run(void **p, unsigned blocks, unsigned chunks, unsigned threads)
{{
    return host_launch({name}_body, p, blocks, chunks, threads);
}}
"""


class Compiled:
    """The kernels of plans, printed for `device` and compiled together for the processor.

    `choose` may change the schedule of a kernel.
    """

    def __init__(
        self,
        plans: Iterable[Plan],
        folder: Path,
        device: GpuTarget = SMALL,
        choose: Callable[[Schedule], Schedule] = lambda schedule: schedule,
    ) -> None:
        self.device = device
        self.ffi = FFI()
        parts, names = ['#include "device_host.h"'], []
        self.texts: dict[int, Any] = {}
        self.steps = [s for p in plans for s in p.steps if isinstance(s, KernelStep)]
        printed: set[str] = set()
        for step in self.steps:
            schedule = choose(schedule_of(step.kernel, self.ints(step), device))
            text = cuda.source(schedule)
            self.texts[id(step)] = schedule, text
            if text.name in printed:
                continue
            printed.add(text.name)
            parts.append(text.text)
            own = [text.name, *text.followers]
            parts += [_driver(step.kernel, n) for n in own]
            names += own
        source, library = folder / "unit.cpp", folder / "unit.so"
        source.write_text("\n".join(parts))
        include = [*adarray_native.INCLUDE_CUDA, f"-I{ROOT / 'tests' / 'support'}"]
        done = subprocess.run(
            ["g++", *FLAGS, *include, str(source), "-o", str(library)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[:3000]
        self.ffi.cdef(
            "".join(f"int {n}_run(void **, unsigned, unsigned, unsigned);" for n in names)
        )
        unit = self.ffi.dlopen(str(library))
        self.functions = {n: getattr(unit, f"{n}_run") for n in names}

    def ints(self, step: KernelStep) -> dict[str, int]:
        """Return the integer arguments of a step by name."""
        return dict(zip(step.kernel.ints, step.ints, strict=True))

    def run(self, step: KernelStep, addresses: list[int]) -> int:
        """Run one step on memory; return its code."""
        schedule, text = self.texts[id(step)]
        launch = launch_of(schedule, self.device)
        assert launch.shared <= self.device.shared_memory
        workspace, fail = poison(launch.workspace, np.uint8), np.zeros(1, np.int32)
        workspace[:ZEROS] = 0
        counts = launch.blocks, launch.blocks * launch.chunks
        numbers = [np.array([n], np.int64) for n in (*step.ints, *counts)]
        values = [*numbers[:-2], workspace, fail, *numbers[-2:]]
        addresses = [*addresses, *(v.ctypes.data for v in values)]
        p = self.ffi.new("void *[]", [self.ffi.cast("void *", a) for a in addresses])
        for name in (text.name, *text.followers):
            grid = grids(schedule, launch, self.device)[name.removeprefix(text.name)]
            sizes = *grid.blocks[:2], grid.threads
            assert self.functions[name](p, *sizes) == 0, "a lost barrier"
        assert not workspace[:ZEROS].any()
        return int(fail[0])


def _driver(kernel: Kernel, name: str) -> str:
    types = [f"({STORED[b.dtype]} *)p" for b in kernel.buffers]
    types += ["*(int64_t *)p"] * len(kernel.ints)
    types += ["(char *)p", "(int *)p", "*(int64_t *)p", "*(int64_t *)p"]
    arguments = ", ".join(f"{t}[{i}]" for i, t in enumerate(types))
    return _DRIVER.format(name=name, arguments=arguments)


class DevicePlanRunner(PlanRunner):
    """Runs a plan with its kernels printed for a GPU."""

    def __init__(self, plan: Plan, compiled: Compiled) -> None:
        super().__init__(plan)
        self.compiled = compiled

    def step(self, step: Any) -> None:
        """Run one step."""
        if not isinstance(step, KernelStep):
            super().step(step)
            return
        memories = [self.memory(b) for b in step.buffers]
        addresses = [m.flat.ctypes.data + m.first * m.flat.itemsize for m in memories]
        code = self.compiled.run(step, addresses)
        if code:
            raise FailedError(code)


def emulated_agree(cases: list[tuple[Any, Plan]], folder: Path, tight: float) -> None:
    """Check that plans of recordings give, on the processor, what was recorded."""
    compiled = Compiled([p for _, p in cases], folder)
    for r, p in cases:
        results = DevicePlanRunner(p, compiled)([np.asarray(a) for a in r.arrays])
        for one, expected in zip(results, r.leaves, strict=True):
            close(one, expected, tight)

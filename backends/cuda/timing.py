"""How long kernels take on the GPU by each of several schedules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import cupy
import numpy as np
from adarray_backends.cuda import tuning

from adarray.compiler.ir.plan import Buffer
from adarray.compiler.print_cuda.printer import KernelText
from adarray.compiler.schedule.gpu.launch import launch_of
from adarray.compiler.schedule.gpu.schedules import Schedule

ROUNDS = 6  # of which the fastest counts; the first warms up
LONG_MS = 5.0  # a round from which on half as many tell schedules apart
_USUAL = 0x3F  # of each byte: 0.75 in float32, 5e-4 in float64, 1.8 in float16


def identity(gpu: Any) -> str:
    """Return the names of a GPU and of its driver."""
    return machine(gpu.index)


def machine(index: int) -> str:
    """Return the names of the GPU of that number and of its driver."""
    name = cupy.cuda.runtime.getDeviceProperties(index)["name"].decode()
    return f"{name}, driver {cupy.cuda.runtime.driverGetVersion()}"


def prepare(texts: Iterable[KernelText], gpu: Any) -> None:
    """Compile kernels side by side, so that none of them is waited for alone."""
    with gpu.current():
        gpu.load(texts)


def fastest(
    schedules: Sequence[Schedule], texts: Sequence[KernelText], buffers: Sequence[Buffer], gpu: Any
) -> int:
    """Return the threads of a block that are fastest; the usual ones where that is close."""
    with gpu.current():
        return _fastest(schedules, texts, buffers, gpu)


def _fastest(
    schedules: Sequence[Schedule], texts: Sequence[KernelText], buffers: Sequence[Buffer], gpu: Any
) -> int:
    usual = schedules[0].block
    functions = gpu.load(texts).functions
    sizes = [launch_of(s, gpu.target) for s in schedules]
    try:
        memory = _filled(buffers)
        workspace = cupy.zeros(max(x.workspace for x in sizes), cupy.uint8)
    except gpu.library.out_of_memory:
        return usual
    refused = cupy.zeros(1, cupy.int32)
    runs = []
    for s, text, x in zip(schedules, texts, sizes, strict=True):
        counts = np.int64(x.blocks), np.int64(x.blocks * x.chunks)
        numbers = (np.int64(s.facts.ints[n]) for n in s.facts.kernel.ints)
        arguments = (*memory, *numbers, workspace, refused, *counts)
        gpu.address(functions[text.name], x.shared)  # lets it have the shared memory
        grid = (x.blocks, x.chunks, 1)
        runs.append((functions[text.name], grid, (s.block, 1, 1), arguments, x.shared))
    rounds = [_round(runs), _round(runs)]
    count = ROUNDS if sum(rounds[1]) < LONG_MS else ROUNDS // 2
    rounds += [_round(runs) for _ in range(count - len(rounds))]
    return schedules[tuning.fastest([*zip(*rounds, strict=True)], 0)].block


def _filled(buffers: Sequence[Buffer]) -> list[Any]:
    """Return memory as large as buffers, one for each that is distinct, with usual numbers.

    Integers are zeros: where they are indices, these are within bounds.
    """
    arrays: dict[Buffer, Any] = {}
    for b in buffers:
        if b not in arrays:
            x = arrays[b] = cupy.empty(b.size, b.dtype)
            # The driver does this: CuPy would compile a kernel for each dtype.
            x.data.memset_async(_USUAL if b.dtype.kind == "f" else 0, x.nbytes)
    return [arrays[b] for b in buffers]


def _round(runs: list[tuple[Any, ...]]) -> list[float]:
    """Run every schedule once; return the times in ms, by the GPU's clock."""
    events = [cupy.cuda.Event() for _ in range(len(runs) + 1)]
    events[0].record()
    for (function, *rest), event in zip(runs, events[1:], strict=True):
        function(*rest)
        event.record()
    events[-1].synchronize()
    return [cupy.cuda.get_elapsed_time(a, b) for a, b in pairwise(events)]

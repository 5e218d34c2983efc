"""Threads of a block, chosen by measurement where that changes no bit, and kept on disk.

A kernel that moves much memory is run once with each schedule that
`adarray.compiler.schedule.gpu.blocks` gives, on memory of the right sizes that holds nothing of
the user's, when its plan is compiled for the first time. The choice depends on timing; results do
not.

References
----------
- R. C. Whaley, A. Petitet, J. J. Dongarra, "Automated empirical optimizations of software and the
  ATLAS project", Parallel Computing 27 (2001), 3-35.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from adarray_backends.cuda import disk_cache

from adarray.base.environment import switch
from adarray.compiler.ir.loopir import Kernel
from adarray.compiler.ir.plan import Buffer
from adarray.compiler.print_cuda import printer as cuda
from adarray.compiler.schedule.gpu import blocks
from adarray.compiler.schedule.gpu.choose import schedule_of
from adarray.compiler.schedule.gpu.schedules import Schedule, SingleBlock

MUCH = 48 << 20  # bytes: about 12 us of an H200's memory
BETTER = 0.97  # of the usual way's time


def schedule(
    kernel: Kernel,
    ints: Mapping[str, int],
    buffers: Sequence[Buffer],
    gpu: Any,
    threads: int | None = None,
) -> Schedule:
    """Return how a kernel runs.

    Parameters
    ----------
    kernel : Kernel
    ints : mapping of str to int
        Its integers.
    buffers : sequence of Buffer
        What it is given.
    gpu : Gpu
    threads : int, optional
        Of each block, where they are not to be chosen.
    """
    usual = schedule_of(kernel, ints, gpu.target)
    if threads is not None:
        return usual if isinstance(usual, SingleBlock) else blocks.resized(usual, threads)
    if not enabled() or sum(_unique(buffers).values()) < MUCH:
        return usual
    schedules = blocks.candidates(usual)
    if len(schedules) == 1 or cuda.may_fail(kernel):
        return usual
    from adarray_backends.cuda import timing  # imports CuPy

    name = _name(usual, timing.identity(gpu))
    block = _known(name)
    if block is None:
        block = timing.fastest(schedules, buffers, gpu)
        _keep(name, block)
    return next((s for s in schedules if s.block == block), usual)


def fastest(times: Sequence[Sequence[float]], usual: int) -> int:
    """Return the number of the fastest way; the usual one unless another is clearly faster.

    Other programs may use the GPU meanwhile: the second best time of a way has to be better
    than the best one of the usual way.

    Parameters
    ----------
    times : sequence of sequence of float
        Of each way, in several rounds, at least two.
    usual : int
        Number of the usual way.
    """
    best = min(range(len(times)), key=lambda i: min(times[i]))
    return best if sorted(times[best])[1] < BETTER * min(times[usual]) else usual


def enabled() -> bool:
    """Whether anything is measured: the environment variable ADARRAY_TUNE is not 0.

    Raises
    ------
    ValueError
        If it is neither 0, 1 nor empty.
    """
    return switch("ADARRAY_TUNE", True)


def _unique(buffers: Sequence[Buffer]) -> dict[Buffer, int]:
    """Return the bytes of each buffer once."""
    return {b: b.size * b.dtype.itemsize for b in buffers}


# -- choices that were made ---------------------------------------------------------------


def _name(usual: Schedule, machine: str) -> str:
    """Return what a choice is kept under: the text, the sizes, the GPU and its driver."""
    about = (cuda.source(usual).text, sorted(usual.facts.ints.items()), machine)
    return hashlib.sha256(repr(about).encode()).hexdigest()[:40]


def _path(name: str) -> Path:
    return disk_cache.folder() / f"{name}.block"


def _known(name: str) -> int | None:
    """Return the threads of a block that were found before."""
    with contextlib.suppress(OSError, ValueError, TypeError):
        return int(json.loads(_path(name).read_text(encoding="utf-8")))
    return None


def _keep(name: str, block: int) -> None:
    """Keep a choice on disk, where that is possible."""
    with contextlib.suppress(OSError):
        disk_cache.write(_path(name), json.dumps(block).encode())

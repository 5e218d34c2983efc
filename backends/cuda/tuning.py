"""Threads of a block, chosen by measurement where that changes no bit, and kept on disk.

A kernel that moves much memory is run a few times with each schedule that
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
from typing import Any, NamedTuple

from adarray_backends.cuda import disk_cache

from adarray.base.environment import switch
from adarray.compiler.ir.identity import IdentityMap
from adarray.compiler.ir.loopir import Kernel
from adarray.compiler.ir.plan import Buffer
from adarray.compiler.print_cuda import printer as cuda
from adarray.compiler.print_cuda.printer import KernelText
from adarray.compiler.schedule.gpu import blocks
from adarray.compiler.schedule.gpu.choose import schedule_of
from adarray.compiler.schedule.gpu.schedules import Schedule, SingleBlock

MUCH = 48 << 20  # bytes: about 12 us of an H200's memory
BETTER = 0.97  # of the usual way's time


class Tuning:
    """The schedules of the kernels of a plan.

    Those that measurement chooses from are known before the first one is measured: what has to
    be compiled for it is compiled side by side.

    Parameters
    ----------
    gpu : Gpu
    threads : int, optional
        Of each block, where they are not to be chosen.
    """

    def __init__(self, gpu: Any, threads: int | None = None) -> None:
        self.gpu = gpu
        self.threads = threads
        self._usual: list[Schedule] = []
        self._waiting: dict[int, _Choice] = {}
        self._texts: IdentityMap[Kernel, dict[Schedule, KernelText]] = IdentityMap()

    def add(self, kernel: Kernel, ints: Mapping[str, int], buffers: Sequence[Buffer]) -> None:
        """Take in the next kernel, its integers, and what it is given."""
        usual = schedule_of(kernel, ints, self.gpu.target)
        if self.threads is not None:
            alone = isinstance(usual, SingleBlock)
            usual = usual if alone else blocks.resized(usual, self.threads)
        elif enabled() and sum(_unique(buffers).values()) >= MUCH:
            schedules = blocks.candidates(usual)
            if len(schedules) > 1 and not cuda.may_fail(kernel):
                self._waiting[len(self._usual)] = _Choice(schedules, buffers)
        self._usual.append(usual)

    def text(self, schedule: Schedule) -> KernelText:
        """Return the text of a kernel, printed once for each schedule."""
        texts = self._texts.setdefault(schedule.facts.kernel, {})
        if schedule not in texts:
            texts[schedule] = cuda.source(schedule)
        return texts[schedule]

    def schedules(self) -> list[Schedule]:
        """Return how the kernels run, in the order in which they were added."""
        if self._waiting:
            self._measure()
        return self._usual

    def _measure(self) -> None:
        """Choose the schedules of large kernels."""
        from adarray_backends.cuda import timing  # imports CuPy

        machine = timing.identity(self.gpu)
        names = {
            i: _name(c.schedules[0], self.text(c.schedules[0]), machine)
            for i, c in self._waiting.items()
        }
        known = {name: _known(name) for name in dict.fromkeys(names.values())}
        measured = [c for i, c in self._waiting.items() if known[names[i]] is None]
        if measured:
            # Those that are not measured are part of the plan: the next to be compiled.
            others = [s for i, s in enumerate(self._usual) if i not in self._waiting]
            schedules = [*(s for c in measured for s in c.schedules), *others]
            timing.prepare([self.text(s) for s in schedules], self.gpu)
        for i, (schedules, buffers) in self._waiting.items():
            block = known[names[i]]
            if block is None:
                texts = [self.text(s) for s in schedules]
                block = timing.fastest(schedules, texts, buffers, self.gpu)
                known[names[i]] = block
                _keep(names[i], block)
            self._usual[i] = next((s for s in schedules if s.block == block), schedules[0])
        self._waiting.clear()


class _Choice(NamedTuple):
    """The schedules of a kernel, the usual one first, and what it is given."""

    schedules: list[Schedule]
    buffers: Sequence[Buffer]


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


def _name(usual: Schedule, text: KernelText, machine: str) -> str:
    """Return what a choice is kept under: the text, the sizes, the GPU and its driver."""
    about = (text.text, sorted(usual.facts.ints.items()), machine)
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

"""Fewer launches: small kernels that need nothing of each other run as one.

On a GPU a kernel takes about a microsecond before it begins, so ten updates of short arrays
are better one. Such kernels wait, each as long as no step needs what it writes, or
writes what it reads; those that are left over then run together.

References
----------
- A. Li, B. Zheng, G. Pekhimenko, F. Long, "Automatic horizontal fusion for GPU kernels", CGO 2022.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from adarray.compiler.fusion.groups import STREAMS
from adarray.compiler.ir.loopir import Kernel
from adarray.compiler.ir.plan import Buffer, CallStep, KernelStep, MatmulStep, Step
from adarray.compiler.planning.buffers import touched
from adarray.compiler.schedule.gpu.loops import is_flat
from adarray.compiler.schedule.vectors import canonical

PARTS = 8  # of one kernel


class _Waiting(NamedTuple):
    """A kernel that was put off, and the memory that it reads and writes."""

    step: KernelStep
    reads: frozenset[Buffer]
    writes: frozenset[Buffer]


class Launches:
    """Merges small kernels of one plan.

    Parameters
    ----------
    most : int
        Bytes of arrays that a kernel may have to be merged with others.
    buffers : sequence of Buffer
        Of the plan.
    inside : mapping
        By buffer that is a stretch of another one: that one, and where in it the stretch
        begins.
    """

    def __init__(
        self, most: int, buffers: Sequence[Buffer], inside: Mapping[Buffer, tuple[Buffer, int]]
    ) -> None:
        self.most = most
        self.inside = inside
        self.inputs = {b.index: b for b in buffers if b.kind == "input"}
        # By `id`: kernels are equal by their text, which takes long to compare.
        self.merged: dict[tuple[int, ...], Kernel] = {}
        self.small: dict[int, bool] = {}

    def run(self, steps: Sequence[Step]) -> list[Step]:
        """Return the steps with kernels merged."""
        merged: list[Step] = []
        waiting: list[_Waiting] = []
        for step in steps:
            reads, writes = self._memory(step)
            needed = [w for w in waiting if w.writes & (reads | writes) or w.reads & writes]
            if needed:
                merged += self._as_few(needed)
                waiting = [w for w in waiting if w not in needed]
            if not self._may_merge(step):
                merged.append(step)
                continue
            assert isinstance(step, KernelStep)
            waiting.append(_Waiting(step, reads, writes))
            if len(waiting) == PARTS:
                merged += self._as_few(waiting)
                waiting = []
        return [*merged, *self._as_few(waiting)]

    def _place(self, b: Buffer) -> Buffer:
        """Return what stands for the memory of a buffer."""
        while b in self.inside:
            b = self.inside[b][0]
        return self.inputs[b.donor] if b.donor >= 0 else b

    def _memory(self, step: Step) -> tuple[frozenset[Buffer], frozenset[Buffer]]:
        """Return the memory that a step reads and writes."""
        written: Sequence[Buffer]
        if isinstance(step, MatmulStep):
            written = [step.out.buffer]
        elif isinstance(step, CallStep):
            written = step.results
        else:
            both = zip(step.kernel.buffers, step.buffers, strict=True)
            written = [b for p, b in both if p.access != "in"]
        return frozenset(map(self._place, touched(step))), frozenset(map(self._place, written))

    def _may_merge(self, step: Step) -> bool:
        """Whether a step is a kernel that may be merged with others."""
        if not isinstance(step, KernelStep):
            return False
        kernel = step.kernel
        small = self.small.get(id(kernel))
        if small is None:  # kernels live as long as the steps
            small = self.small[id(kernel)] = not kernel.totals and is_flat(kernel.body)
        sizes = (b.size * b.dtype.itemsize for b in step.buffers)
        return small and sum(sizes) <= self.most

    def _as_few(self, waiting: Sequence[_Waiting]) -> list[Step]:
        """Return kernels as few ones, in their order."""
        merged: list[Step] = []
        run: list[KernelStep] = []
        count = 0
        for w in waiting:
            count += len(w.step.buffers)
            if run and count > STREAMS:
                merged.append(self._one(run))
                run, count = [], len(w.step.buffers)
            run.append(w.step)
        return [*merged, self._one(run)] if run else merged

    def _one(self, steps: list[KernelStep]) -> KernelStep:
        """Return kernels as one."""
        if len(steps) == 1:
            return steps[0]
        key = tuple(id(s.kernel) for s in steps)
        kernel = self.merged.get(key)
        if kernel is None:
            parts = [canonical(s.kernel, f"k{i}_") for i, s in enumerate(steps)]
            kernel = self.merged[key] = Kernel(
                tuple(b for p in parts for b in p.buffers),
                tuple(n for p in parts for n in p.ints),
                (),
                tuple(s for p in parts for s in p.body),
            )
        return KernelStep(
            kernel,
            tuple(b for s in steps for b in s.buffers),
            tuple(n for s in steps for n in s.ints),
            tuple(v for s in steps for v in s.values),
            sum(s.work for s in steps),
        )

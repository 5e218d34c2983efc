"""Memory of temporaries: who lives when, and where in the arena.

References
----------
- P. R. Wilson, M. S. Johnstone, M. Neely, D. Boles, "Dynamic storage allocation: a survey and
  critical review", IWMM 1995 (best fit).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from adarray.compiler.ir.plan import Buffer, CallStep, MatmulStep, Operand, Step

ALIGN = 64


def touched(step: Step) -> Iterable[Buffer]:
    """Return the buffers that a step reads or writes."""
    if isinstance(step, MatmulStep):
        return (*(o.buffer for o in step.operands), step.out.buffer)
    if isinstance(step, CallStep):
        return (*(o.buffer for o in step.operands), *step.results)
    return step.buffers


def place_buffers(
    steps: Sequence[Step],
    buffers: Sequence[Buffer],
    outputs: Sequence[Operand],
    inside: Mapping[Buffer, tuple[Buffer, int]],
) -> int:
    """Give every temporary a place in the arena; return the arena's bytes.

    A temporary lives from the first step that touches it to the last one; buffers whose
    lives do not meet may share memory. Free stretches are taken by best fit.

    Parameters
    ----------
    steps, buffers, outputs
        Of the plan.
    inside : mapping
        By buffer that is a stretch of another one: that one, and where in it the stretch
        begins, in bytes.
    """
    first: dict[Buffer, int] = {}
    last: dict[Buffer, int] = {}
    for k, step in enumerate(steps):
        for b in touched(step):
            key = inside[b][0] if b in inside else b
            first.setdefault(key, k)
            last[key] = k
    for o in outputs:
        if o.buffer in first:
            last[o.buffer] = len(steps)
    born: dict[int, list[Buffer]] = {}
    dying: dict[int, list[Buffer]] = {}
    for b in buffers:
        if b.kind == "temp" and b in first:
            born.setdefault(first[b], []).append(b)
            dying.setdefault(last[b], []).append(b)
    arena = Arena()
    for k in range(len(steps)):
        for b in sorted(born.get(k, ()), key=lambda b: -b.size):
            b.offset = arena.take(_bytes(b))
        for b in dying.get(k, ()):
            arena.release(b.offset, _bytes(b))
    for b in buffers:
        if b in inside:
            whole, start = inside[b]
            b.offset = whole.offset + start
            b.whole = whole
    return arena.size


def _bytes(b: Buffer) -> int:
    size = max(1, b.size) * int(b.dtype.itemsize)
    return -(-size // ALIGN) * ALIGN


class Arena:
    """Stretches of memory that are free, and how far memory has grown."""

    def __init__(self) -> None:
        self.size = 0
        self.free: list[tuple[int, int]] = []

    def take(self, size: int) -> int:
        """Return the offset of a stretch of `size` bytes: the smallest free one that fits."""
        best = -1
        for i, (_, length) in enumerate(self.free):
            if length >= size and (best < 0 or length < self.free[best][1]):
                best = i
        if best >= 0:
            offset, length = self.free.pop(best)
            if length > size:
                self.free.append((offset + size, length - size))
            return offset
        for i, (offset, length) in enumerate(self.free):
            if offset + length == self.size:  # the last stretch grows
                self.free.pop(i)
                self.size = offset + size
                return offset
        offset = self.size
        self.size += size
        return offset

    def release(self, offset: int, size: int) -> None:
        """Give a stretch back, joined with free neighbours."""
        for i, (at, length) in reversed(list(enumerate(self.free))):
            if at + length == offset or offset + size == at:
                self.free.pop(i)
                offset, size = min(at, offset), length + size
        self.free.append((offset, size))

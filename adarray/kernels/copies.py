"""Copies of small arrays that many blocks of a GPU add to, so that few wait for each other.

Each block adds to one of up to 64 copies of all such arrays of a launch; behind the launch, a
kernel adds the copies to the arrays.
"""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import numpy as np

from adarray.compiler.ir.loopir import For, Store
from adarray.compiler.ir.threads import (
    Atomic,
    ThreadKernel,
    While,
    all_statements,
    loads,
    operands,
)
from adarray.kernels.geometry import Launch
from adarray.kernels.texts import CTYPES
from adarray.kernels.types import FLOATS

LINE = 32  # elements; each copy of an array begins with a line of memory
COPIES = 64
ROOM = 1 << 20  # elements of all copies of a launch
CROWD = 64  # blocks: of fewer, not many wait for each other
SINGLE_CROWD = 1 << 17  # threads: the same where each thread adds once
WHOLE_CROWD = 1 << 14  # blocks: the same where each block adds once
SHARE = 8  # blocks at least that add to one copy
_NONE = (np.uint32(1), np.int64(0))
_WARPS = 8  # of a block that adds copies up
_FOLD = r"""
extern "C" __global__ void NAME(
    const TYPE *copies, const long long many, const long long apart, ARRAYS) {
    __shared__ TYPE parts[WARPS][32];
    long long at = (long long)blockIdx.x * 32 + threadIdx.x;
    TYPE sum = 0;
    for (long long c = threadIdx.y; c < many; c += WARPS) sum += copies[c * apart + at];
    parts[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y) return;
    for (int w = 1; w < WARPS; w++) sum += parts[w][threadIdx.x];
"""


class Added(NamedTuple):
    """Buffers that a kernel does nothing with but add to them, as one step.

    Attributes
    ----------
    threads : tuple of str
        Those to which threads or warps add.
    blocks : tuple of str
        Those to which only blocks do, as a whole.
    repeated : frozenset of str
        Those to which iterations of loops add.
    """

    threads: tuple[str, ...]
    blocks: tuple[str, ...]
    repeated: frozenset[str]


def added(kernel: ThreadKernel) -> Added:
    """Return the buffers to which a kernel only adds."""
    sums: dict[str, set[str]] = {}
    others: set[str] = set()
    for s in all_statements(kernel.body):
        if isinstance(s, Atomic):
            plain = s.combine == "add" and s.result is None and s.value.dtype in FLOATS
            if plain:
                sums.setdefault(s.buffer, set()).add(s.same)
            else:
                others.add(s.buffer)
        elif isinstance(s, Store):
            others.add(s.buffer)
        others |= {x.buffer for e in operands(s) for x in loads(e)}
    names = [b.name for b in kernel.buffers if b.name in sums and b.name not in others]
    whole = tuple(n for n in names if sums[n] <= {"block", "grid"})
    loops = [s.body for s in all_statements(kernel.body) if isinstance(s, (For, While))]
    inner = (s for body in loops for s in all_statements(body))
    repeated = frozenset(s.buffer for s in inner if isinstance(s, Atomic))
    return Added(tuple(n for n in names if n not in whole), whole, repeated)


def fold(dtype: str, count: int, name: str) -> str:
    """Return the text of the kernel that adds copies to `count` arrays."""
    arrays = ", ".join(f"TYPE *to{k}, const long long size{k}" for k in range(count))
    text = _FOLD.replace("ARRAYS", arrays)
    for k in range(count):
        text += f"    if (at < size{k}) to{k}[at] += sum;\n"
        if k + 1 < count:
            padded = f"(size{k} + 31) / 32 * 32"
            text += f"    if (at < {padded}) return;\n    at -= {padded};\n"
    text += "}\n"
    for word, meaning in (("TYPE", CTYPES[dtype]), ("WARPS", str(_WARPS)), ("NAME", name)):
        text = text.replace(word, meaning)
    return text


class _Group(NamedTuple):
    """Arrays of one dtype whose copies lie in one piece of memory."""

    copies: Any
    many: int
    apart: int
    arrays: tuple[Any, ...]


class BlockCopies:
    """Makes copies for the launches of a kernel, and adds them up.

    Parameters
    ----------
    kernel : ThreadKernel
    names : Added
        Buffers that may have copies.
    engine : Engine
    """

    def __init__(self, kernel: ThreadKernel, names: Added, engine: Any) -> None:
        self.engine = engine
        self.library = engine.library
        self.places = {n: kernel.order.index(n) for n in (*names.threads, *names.blocks)}
        self.names = names
        self.folds: dict[tuple[str, int], Any] = {}

    def placed(self, launch: Launch, args: list[Any]) -> list[_Group]:
        """Put copies in the place of arrays in `args`, and say behind them where copies are."""
        if not self.places:
            return []
        chosen: dict[str, dict[str, int]] = {}  # by dtype: first elements of arrays in a copy
        apart: dict[str, int] = {}
        for name, k in sorted(self.places.items(), key=lambda item: int(args[item[1]].size)):
            dtype = str(args[k].dtype)
            first = apart.get(dtype, 0)
            padded = -(-args[k].size // LINE) * LINE
            if self._crowded(name, launch) and padded and 2 * (first + padded) <= ROOM:
                chosen.setdefault(dtype, {})[name] = first
                apart[dtype] = first + padded
        groups, where = [], dict.fromkeys(self.places, _NONE)
        for dtype, firsts in chosen.items():
            many = min(COPIES, launch.blocks // SHARE, ROOM // apart[dtype])
            copies = self.library.run(self.library.xp.zeros, many * apart[dtype], dtype)
            arrays = tuple(args[self.places[name]] for name in firsts)
            groups.append(_Group(copies, many, apart[dtype], arrays))
            for name, first in firsts.items():
                args[self.places[name]] = copies[first:]
                where[name] = (np.uint32(many), np.int64(apart[dtype]))
        args += [x for name in self.places for x in where[name]]
        return groups

    def _crowded(self, name: str, launch: Launch) -> bool:
        """Whether so much is added to an array that copies are worth two launches."""
        if name in self.names.repeated:
            return launch.blocks >= CROWD
        if name in self.names.blocks:
            return launch.blocks >= WHOLE_CROWD
        return launch.blocks * launch.threads >= SINGLE_CROWD

    def fold(self, groups: list[_Group]) -> None:
        """Add copies to the arrays in whose place they were."""
        for g in groups:
            key = (str(g.copies.dtype), len(g.arrays))
            if key not in self.folds:
                digest = hashlib.sha256(repr(key).encode()).hexdigest()[:8]
                name = f"adarray_fold_{digest}"
                self.folds[key] = self.engine.compile_source(fold(*key, name), name)
            sizes = [x for a in g.arrays for x in (a, np.int64(a.size))]
            args = [g.copies, np.int64(g.many), np.int64(g.apart), *sizes]
            self.folds[key]((g.apart // LINE, 1, 1), (LINE, _WARPS, 1), args)


__all__ = ["BlockCopies", "added", "fold"]

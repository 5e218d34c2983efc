"""Figures of an adjoint: what a launch of it adds as one step, and puts on tapes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from adarray.compiler.ir.loopir import Assign, Expr, For, If, Local, Param, Var
from adarray.compiler.ir.threads import (
    Atomic,
    Push,
    Record,
    Stmt,
    ThreadKernel,
    While,
    all_statements,
    for_,
    if_,
)
from adarray.kernels import build
from adarray.kernels.geometry import Launch

COUNTS = "figures__counts"
_THREADS, _WARPS = "figures__threads", "figures__warps"
# Counters by `Atomic.same`.
_ADDED = {"": _THREADS, "x": _THREADS, "y": _THREADS, "warp": _WARPS}
_TAPED = "figures__taped"
_WARP = 32


class Sites(NamedTuple):
    """Additions to memory of all blocks in a text: by threads, by warps and by blocks."""

    threads: int
    warps: int
    blocks: int


def sites(kernel: ThreadKernel) -> Sites:
    """Return how many additions to global memory a text has, but for sums over the whole grid."""
    buffers = {b.name for b in kernel.buffers}
    atomics = [
        s.same for s in all_statements(kernel.body) if isinstance(s, Atomic) and s.buffer in buffers
    ]
    by = {kind: sum(_ADDED.get(a) == kind for a in atomics) for kind in (_THREADS, _WARPS)}
    return Sites(by[_THREADS], by[_WARPS], atomics.count("block"))


class _Counter:
    """Writes counts behind what is counted, or in the place of what goes to the tape."""

    def __init__(self, kernel: ThreadKernel, tape: bool) -> None:
        self.buffers = {b.name for b in kernel.buffers}
        self.tape = tape

    def block(self, body: tuple[Stmt, ...]) -> list[Stmt]:
        """Return statements with counts."""
        out: list[Stmt] = []
        for s in body:
            counter = None
            if isinstance(s, Push):
                counter = _TAPED
            elif isinstance(s, Atomic) and s.buffer in self.buffers:
                counter = _ADDED.get(s.same)
            elif isinstance(s, If):
                s = if_(s.condition, self.block(s.body), self.block(s.orelse))
            elif isinstance(s, For):
                s = for_(s.var, s.start, s.stop, self.block(s.body))
            elif isinstance(s, While):
                s = While(s.condition, tuple(self.block(s.body)), s.line, s.any_thread)
            if self.tape or not isinstance(s, Push):
                out.append(s)
            if isinstance(s, Record):
                room = build.call("maximum", "int64", s.count, build.index(0))
                added = build.multiply(build.index(len(s.arrays)), room)
                out.append(Assign(_TAPED, build.add(Var("int64", _TAPED), added)))
            if counter is not None:
                count = Var("int64", counter)
                out.append(Assign(counter, build.add(count, build.index(1))))
        return out


def counted(kernel: ThreadKernel, tape: bool = True) -> ThreadKernel:
    """Return a kernel that counts, into an array of its own, what it adds and puts on tapes.

    Without `tape`, it puts nothing there.
    """
    names = (_THREADS, _WARPS, _TAPED)
    first: list[Stmt] = [Local(n, "int64", None, build.index(0)) for n in names]

    def note(at: int, combine: str, name: str) -> Stmt:
        value: Expr = Var("int64", name)
        return Atomic(COUNTS, build.index(at), combine, value)

    last = [note(0, "add", names[0]), note(1, "add", names[1]), note(2, "maximum", names[2])]
    body = (*first, *_Counter(kernel, tape).block(kernel.body), *last)
    return ThreadKernel(
        f"{kernel.name}_figures", (*kernel.buffers, Param(COUNTS, "int64", "inout")),
        kernel.scalars, (*kernel.order, COUNTS), kernel.shared, body, kernel.tables,
    )  # fmt: skip


class Figures(NamedTuple):
    """What a launch of an adjoint does.

    Attributes
    ----------
    atomics : int
        Atomic additions to global memory; those of a whole warp or block are one each.
    tape_bytes : int
        Size of the tapes of all threads that run at once on a GPU.
    """

    atomics: int
    tape_bytes: int


def empty_counts() -> Any:
    """Return the array that a counting kernel gets."""
    return np.zeros(3, np.int64)


def figures(kernel: ThreadKernel, launch: Launch, counts: Any, numbers: int, limit: int) -> Figures:
    """Return what a launch does.

    Parameters
    ----------
    kernel : ThreadKernel
        The adjoint.
    launch : Launch
    counts : array, shape (3,), int64
        What its counting kernel left there.
    numbers : int
        How many sums over the whole grid it has.
    limit : int
        Bytes that tapes may take.
    """
    by_threads, by_warps, taped = map(int, counts)
    atomics = by_threads + -(-by_warps // _WARP) + launch.blocks * (sites(kernel).blocks + numbers)
    block = 8 * taped * launch.threads
    at_once = min(launch.blocks, limit // block) if block else 0
    return Figures(atomics, block * at_once)

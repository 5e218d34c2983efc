"""What kernels are compiled for, as passes, planning, schedules and printers know it.

A target is one frozen record from the choice of kernels to their text: `CpuTarget` of a
processor, `GpuTarget` of a GPU. Engines that compile have one, ``engine.target``.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """Sizes by which values become kernels, whatever runs these.

    Parameters
    ----------
    small : int
        Elements up to which values are computed together, whatever their axes are, by one
        thread: sharing them out would cost more.
    aligned : int
        Elements that fill whole vectors of every type: after a border, the long part of a
        row begins at a multiple of them.
    keep : int
        Operations from which on a value that several loops over a row need is kept in local
        memory, rather than computed again in each.
    chain : int
        Most steps of a stencil that one kernel takes through its rows.
    cache : int
        Bytes of the rows that such a kernel keeps.
    block : tuple of int
        Fewest and most rows that it computes in one go.
    along : bool
        Whether kernels must run along the axis that lies farthest apart in memory: threads
        that take neighbouring elements of another one read a line each.
    merged_bytes : int
        Bytes of arrays up to which kernels that need nothing of each other become one.
    choose : bool
        Whether a row out of pieces of one array is chosen before anything is computed of it,
        rather than computed of each piece: there are no prefetched rows to disturb.
    march : int
        Most rows that a step of a stencil may be behind the array that a kernel begins with,
        where threads of a GPU take several steps on their way down a column strip; 0 if
        each step is a kernel.
    strips : int
        Strips that run side by side: one for each scheduler of a GPU.
    strip : tuple of int
        Fewest and most rows that a strip writes.
    short : int
        Elements below which a row is no vector loop: many rows side by side are.
    atomic : frozenset of str
        Dtypes of which threads can add to one element at the same time: sums at repeated
        indices are made by all threads, in an order that varies.
    adds : frozenset of str
        Dtypes of which a product's library adds a multiple of it to a matrix as it writes it.
    """

    small: int = 2048
    aligned: int = 16
    keep: int = 7
    chain: int = 5
    cache: int = 512 * 1024
    block: tuple[int, int] = (32, 256)
    along: bool = False
    merged_bytes: int = 0
    choose: bool = False
    march: int = 0
    strips: int = 1
    strip: tuple[int, int] = (8, 128)
    short: int = 24
    atomic: frozenset[str] = frozenset()
    adds: frozenset[str] = frozenset()


@dataclass(frozen=True)
class CpuTarget(Target):
    """A processor with vector registers.

    Parameters
    ----------
    vector_bytes : int
        Width of vectors: 16, 32 or 64.
    libmvec : int
        Vector functions of the C library: 0 none, 1 those before glibc 2.35, 2 all.
    precise : bool
        Whether mathematical functions are the C library's scalar ones.
    threads : int
        The most threads that a kernel gets. The text does not depend on it.
    """

    vector_bytes: int = 64
    libmvec: int = 2
    precise: bool = False
    threads: int = 1


@dataclass(frozen=True)
class GpuTarget(Target):
    """A GPU; the defaults are those of an H200.

    Threads of a GPU share out small values, too, and there are no vectors to align; a row that
    is computed again is cheaper than one in local memory. Rows of several steps of a stencil in
    shared memory are slower than a kernel for each step: blocks wait for rows too often; those
    in registers of one warp wait for nobody.

    Parameters
    ----------
    sms : int
        Streaming multiprocessors (SMs).
    threads_per_sm : int
        The most threads that reside on an SM.
    shared_memory : int
        Bytes of shared memory that one block may have.
    """

    small: int = 1
    aligned: int = 1
    keep: int = 1 << 30
    chain: int = 1
    cache: int = 200 * 1024
    block: tuple[int, int] = (16, 16)
    along: bool = True
    merged_bytes: int = 4 << 20
    choose: bool = True
    march: int = 8
    strips: int = 4 * 132
    short: int = 3
    atomic: frozenset[str] = frozenset({"float32", "float64", "int32", "uint32", "int64", "uint64"})
    adds: frozenset[str] = frozenset({"float32", "float64"})
    sms: int = 132
    threads_per_sm: int = 2048
    shared_memory: int = 227 * 1024


CPU = CpuTarget()
GPU = GpuTarget()

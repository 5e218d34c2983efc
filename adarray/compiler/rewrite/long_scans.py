"""Long running folds of few lines: blocks of each line are folded side by side, on a GPU.

A line whose elements lie side by side is folded by a group of threads, from its first element to
its last. Where such lines are few and long, most of the GPU waits for them. Each line is cut into
blocks here, which are lines of their own. The folds of all elements of each block, folded
themselves, are what the elements of the next block begin with. The order of folds depends on shapes
alone. Lines across the rows of an array are cut where their kernels are written (see
`adarray.compiler.kernels.steps`): a thread takes a block of one, and its neighbours the same block
of others.

References
----------
- G. E. Blelloch, "Prefix sums and their applications", CMU-CS-90-190, 1990.
- M. Harris, S. Sengupta, J. D. Owens, "Parallel prefix sum (scan) with CUDA", GPU Gems 3, chapter
  39, 2007.
"""

from __future__ import annotations

from adarray.compiler.ir.builder import NEUTRAL, Builder
from adarray.compiler.ir.primitives import PrefixScan
from adarray.compiler.ir.program import Program, Value
from adarray.compiler.ir.target import Target
from adarray.compiler.rewrite.rebuild import keep, rebuild

SIZE = 1 << 18  # elements from which on more kernels are worth their launches
LINES = 1 << 12  # lines that a GPU is busy with: a group of threads takes each of them
FEWEST = 4  # blocks of a line, at least
SHORTEST = 512  # elements of a block
STEP = 0.25e-9  # seconds from one element of a line to the next
MOVED = 2.5e-13  # seconds for a byte of all lines, which pass through memory once more in blocks


def long_scans(program: Program, target: Target) -> Program:
    """Return the program with long running folds of few lines in blocks, for a GPU."""
    if not target.along or not any(_blocks(v) for v in program.values):
        return program

    def rule(b: Builder, v: Value, args: tuple[Value, ...]) -> Value:
        blocks = _blocks(v)
        return _in_blocks(b, v, args[0], blocks) if blocks else keep(b, v, args)

    return rebuild(program, rule)


def _blocks(v: Value) -> int:
    """Return how many blocks each line of a running fold should have; 0 if it stays whole."""
    p = v.primitive
    if not isinstance(p, PrefixScan) or v.size < SIZE:
        return 0
    axis = p.axis % v.ndim
    n, lines = v.shape[axis], v.size // v.shape[axis]
    if lines == 1 or any(m != 1 for m in v.shape[axis + 1 :]):
        return 0  # all blocks of threads share one line anyway
    if n * STEP < 4 * v.nbytes * MOVED:
        return 0
    blocks = min(-(-LINES // lines), n // SHORTEST)
    return blocks if blocks >= FEWEST else 0


def _in_blocks(b: Builder, v: Value, x: Value, blocks: int) -> Value:
    """Return a running fold whose lines are folded block by block."""
    p = v.primitive
    assert isinstance(p, PrefixScan)
    axis = p.axis % v.ndim
    n = v.shape[axis]
    each = -(-n // blocks)
    blocks = -(-n // each)
    lead, tail = v.shape[:axis], v.shape[axis + 1 :]
    # Folds of what fills up the last block are not read.
    whole = x
    if blocks * each > n:
        x = b.concatenate([x, b.full((*lead, blocks * each - n, *tail), 0, v.dtype)], axis)
    x = b.reshape(x, (*lead, blocks, each, *tail))
    totals = b.reduce(p.combine, b.slice(x, axis, 0, blocks - 1), (axis + 1,))
    before = b.scan(p.combine, totals, axis)
    # The least or greatest number so far does not change by the first one of all.
    none = b.slice(whole, axis, 0, 1)
    if p.combine in NEUTRAL:
        none = b.full(none.shape, NEUTRAL[p.combine], v.dtype)
    offsets = b.reshape(b.concatenate([none, before], axis), (*lead, blocks, 1, *tail))
    folded = b.scan(p.combine, x, axis + 1)
    y = b.apply(p.combine, (b.broadcast(offsets, folded.shape), folded), v.dtype)
    return b.slice(b.reshape(y, (*lead, blocks * each, *tail)), axis, 0, n)

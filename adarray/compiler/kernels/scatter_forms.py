"""How a scatter runs on a GPU: by atomic operations, or as a gather of what is written.

Each form has a time by the model, from the bytes that it moves, what its threads do, and how long
they wait for each other. Rates are those of an H200.

References
----------
- J. Gómez-Luna, J. M. González-Linares, J. I. Benavides, N. Guil, "An optimized approach to
  histogram computation on GPU", Machine Vision and Applications 24 (2013), 899-908.
- S. Williams, A. Waterman, D. Patterson, "Roofline: an insightful visual performance model for
  multicore architectures", Commun. ACM 52 (2009), 65-76.
"""

from __future__ import annotations

import math
from enum import Enum

from adarray.compiler.ir.primitives import ScatterND
from adarray.compiler.ir.program import Value
from adarray.compiler.ir.target import Target
from adarray.compiler.kernels.segments import MANY
from adarray.compiler.schedule.gpu.model import BANDWIDTH, CLOCK, LANES, LAUNCH

PEAK = 132 * LANES * CLOCK  # operations a second
SECTOR = 32  # bytes that an atomic operation of a warp takes at a time
CACHE = 40 << 20  # bytes of a result that stays in the cache
NEAR, FAR = 60e9, 18e9  # sectors a second with atomic additions, in the cache and past it
READ = 120e9  # sectors a second that are read here and there
ROW, IN_ROW = 64 << 10, 1.5e12  # bytes of pieces in which an SM does so, and that many a second
COUNTS = 64  # bytes that are moved for each piece and place where pieces are counted
MEETING = 1.2e-9  # seconds from one atomic addition to an element to the next
ALONE = 60e-9  # of an addition of one thread, where there are no atomic ones
COMPARE = 32  # operations that take as long as a comparison of an index with a place
RANK = 8  # the same where a piece is sorted
SHARE = 4  # elements that a thread compares for
STEP = 12e-9  # seconds of a comparison where a thread waits for it
NEXT = 60e-9  # of a piece that a thread adds: several loads are under way at a time


class ScatterForm(Enum):
    """How a scatter runs."""

    ATOMIC = "atomic operations"
    COMPARED = "each element compares all indices"
    LISTED = "each element reads a list of its pieces"
    COUNTED = "each element reads a list of its pieces, which atomic additions sort"


def form_of(p: ScatterND, value: Value, target: Target, base_read: bool, over: bool) -> ScatterForm:
    """Return the form that should take the least time.

    Parameters
    ----------
    p : ScatterND
    value : Value
    target : Target
    base_read : bool
        Whether the base is read from memory.
    over : bool
        Whether the result's memory holds the base.
    """
    if not target.atomic:
        return ScatterForm.ATOMIC
    times = times_of(p, value, target, base_read, over)
    return min(times, key=lambda form: times[form])


def times_of(
    p: ScatterND, value: Value, target: Target, base_read: bool, over: bool
) -> dict[ScatterForm, float]:
    """Return the seconds that each form should take."""
    piece, index = value.args[1], value.args[2]
    count = index.size
    places = math.prod(value.shape[a] for a in p.axes)
    load = max(1.0, count / places)  # pieces for a place
    moved = value.nbytes * (2 if over or base_read else 1) + piece.nbytes
    threads = max(1, value.size // SHARE)
    after = _after(p, value)
    sectors = piece.size / min(after, SECTOR // value.dtype.itemsize)
    reading = IN_ROW if count * after * value.dtype.itemsize <= ROW else READ
    collected = max(moved / BANDWIDTH, sectors / reading) + load * NEXT
    compared = max(collected, COMPARE * count * threads / PEAK + count * STEP)
    sorting = RANK * count * (count + places) / PEAK + count // 32 * STEP
    times = {
        ScatterForm.ATOMIC: _atomic(p, value, target, load, 0 if over else moved - piece.nbytes),
        ScatterForm.COMPARED: LAUNCH + compared,
        ScatterForm.LISTED: (2 + (count > MANY)) * LAUNCH + sorting + collected,
    }
    if p.add and value.dtype.name in target.atomic:
        rate = NEAR if 8 * (places + count) <= CACHE else FAR
        counting = COUNTS * (places + count) / BANDWIDTH + 2 * count / rate + load * MEETING
        times[ScatterForm.COUNTED] = 7 * LAUNCH + counting + collected
    return times


def _after(p: ScatterND, value: Value) -> int:
    """Return the elements that lie side by side wherever indices point to."""
    return math.prod(n for a, n in enumerate(value.shape) if a > max(p.axes))


def _atomic(p: ScatterND, value: Value, target: Target, load: float, base: int) -> float:
    """Return the seconds of a base that is written, and of atomic operations."""
    piece, count = value.args[1], value.args[2].size
    launches = LAUNCH * (2 if base else 1)
    if p.add and value.dtype.name not in target.atomic:
        return launches + base / BANDWIDTH + piece.size * ALONE
    sectors = piece.size / min(_after(p, value), SECTOR // value.dtype.itemsize)
    rate = NEAR if value.nbytes <= CACHE else FAR
    if not p.add:  # a kernel clears who comes last, one finds that out, one writes
        launches += 2 * LAUNCH
        sectors = count
    moved = piece.nbytes + 8 * count
    return launches + base / BANDWIDTH + max(moved / BANDWIDTH, sectors / rate, load * MEETING)

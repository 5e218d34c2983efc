"""How long a kernel should take by a schedule, and the least that any schedule would take.

A thread waits for memory and for its own results most of the time, so few threads reach neither the
rate of the memory nor that of the multiprocessors. Rates are those of an H200.

References
----------
- S. Williams, A. Waterman, D. Patterson, "Roofline: an insightful visual performance model for
  multicore architectures", Commun. ACM 52 (2009), 65-76.
- V. Volkov, "Understanding latency hiding on GPUs", PhD thesis, UC Berkeley 2016.
"""

from __future__ import annotations

from typing import NamedTuple

from adarray.compiler.ir.target import GpuTarget
from adarray.compiler.schedule.gpu.launch import LaunchSizes

BANDWIDTH = 4.1e12  # bytes a second, as copies reach
IN_FLIGHT, LATENCY = 32, 0.8e-6  # bytes that a thread waits for at a time, and seconds
LANES, CLOCK = 128, 1.7e9  # operations of an SM in a cycle, and cycles a second
DEPENDENT = 4  # cycles from one operation of a thread to the next
FUNCTION = 20  # operations of a function such as exp
LAUNCH = 2e-6  # seconds, within a graph
POOR = 0.3  # of what it should reach: such a kernel has a schedule that does not suit it


class Work(NamedTuple):
    """What a kernel does: bytes that it moves, operations, and functions that are among them."""

    moved: float
    flops: float
    calls: float = 0.0


class Prediction(NamedTuple):
    """The time of a kernel in s, the least time of any schedule, and what decides."""

    time: float
    floor: float
    limit: str

    @property
    def is_poor(self) -> bool:
        """Whether it takes several times as long as it would with all threads at work."""
        return self.floor < POOR * self.time


def predict(
    launch: LaunchSizes, block: int, work: Work, target: GpuTarget, span: float = 0.0
) -> Prediction:
    """Return the prediction for a launch with blocks of so many threads.

    `span` is the time of the longest chain (see `adarray.compiler.schedule.gpu.span`).
    """
    blocks = launch.blocks * launch.chunks
    threads = blocks * block
    resident = min(threads, target.sms * target.threads_per_sm)
    sms = min(blocks, target.sms)
    operations = work.flops + work.calls * FUNCTION
    peak = target.sms * LANES * CLOCK
    memory, arithmetic = work.moved / BANDWIDTH, operations / peak
    alone = max(
        work.moved / (resident * IN_FLIGHT / LATENCY),
        operations / min(sms * LANES * CLOCK, resident * CLOCK / DEPENDENT),
    )
    floor = {"memory": memory, "arithmetic": arithmetic}
    parts = {**floor, "launch": LAUNCH, "too few threads": alone, "threads that wait in turn": span}
    limit = max(parts, key=lambda k: parts[k] * (1.01 if k in floor or k == "launch" else 1.0))
    return Prediction(
        max(memory, arithmetic, alone, span) + LAUNCH, max(memory, arithmetic) + LAUNCH, limit
    )


def described(p: Prediction) -> str:
    """Return a prediction in a few words, as `explain` shows it."""
    mark = ": a poor schedule" if p.is_poor else ""
    return (
        f"predicted {1e6 * p.time:.1f} us, limited by {p.limit}; "
        f"at least {1e6 * p.floor:.1f} us by any schedule{mark}"
    )

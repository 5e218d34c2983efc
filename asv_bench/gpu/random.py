"""Time random array programs on one GPU beside PyTorch and JAX; print ratios and the worst.

    python -m asv_bench.gpu.random --n 200 --seed 1000 --output random.json
    python -m asv_bench.gpu.random --programs n-body burgers rosenbrock:1e6

Value and gradient in exact float32, every engine in a process of its own; results are compared
before anything is timed. A run that was stopped goes on where it was, given the same --output.
"""

from __future__ import annotations

import sys

from asv_bench.gpu.engines import OURS
from asv_bench.random_programs import race
from asv_bench.random_programs.worker import ON_GPU

PEERS = ("jax", "torch.compile, whole", "torch.compile, whole, CUDA graphs")


def main(argv: list[str] | None = None) -> int:
    """Run the script; return 1 if a program's results are wrong."""
    peers = tuple(ON_GPU + p for p in PEERS)
    judged = race.Judged(
        "python -m asv_bench.gpu.random", __doc__, ON_GPU + OURS, peers, (1e5, 1e8)
    )
    return race.main(judged, argv)


if __name__ == "__main__":
    sys.exit(main())

"""Time random array programs on CPUs beside PyTorch and JAX; print ratios and the worst.

    python -m asv_bench.jit.random --n 100 --seed 1000 --output random.json

As `asv_bench.gpu.random`, which has the same programs in larger sizes.
"""

from __future__ import annotations

import sys

from asv_bench.random_programs import race

PEERS = ("jax", "torch.compile")


def main(argv: list[str] | None = None) -> int:
    """Run the script; return 1 if a program's results are wrong."""
    judged = race.Judged("python -m asv_bench.jit.random", __doc__, "jit-openmp", PEERS, (1e4, 1e7))
    return race.main(judged, argv)


if __name__ == "__main__":
    sys.exit(main())

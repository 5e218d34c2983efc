"""What C is compiled with, at installation (build.py) and at run time (compiler.py)."""

from __future__ import annotations

# Without the -fno-builtin flags gcc merges sin and cos of one argument into sincos, which
# has no vector version. Contracting to fused multiply-add would make sqrt(a*a - b*b) nan
# for a == b.
FLAGS = [
    "-O3", "-g0", "-std=gnu11", "-Werror=implicit-function-declaration",
    "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off",
    "-fno-builtin-sin", "-fno-builtin-cos", "-fno-builtin-sinf", "-fno-builtin-cosf",
]  # fmt: skip

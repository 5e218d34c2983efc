"""What gradients of loops of one thread cost: in units of the loop, and of adjoints by hand.

Run as ``python -m asv_bench.one_thread [NAMES]``, in half a minute on a quiet processor. The loops
are those of tests/support/one_thread_kernels.py, compiled by the serial backend; one_thread.c has
adjoints of some of them, compiled by ``cc -O3 -march=native`` (``$CC`` names another compiler).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from cffi import FFI

import adarray
from adarray.kernels import RawKernel

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from one_thread_kernels import PATTERNS

FFI_ = FFI()
ROUNDS = 15
FLAGS = ["-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off"]
# Sizes, and the arguments of the adjoints by hand: "x_b" is the cotangent of "x".
LOOPS = {
    "seidel": (400, "A_b n steps"), "heat": (400, "A_b B_b n steps"), "lu": (200, "A A_b n"),
    "cholesky": (200, "A A_b n"), "elimination": (200, "A A_b n"),
    "trisolv": (1000, "L b x L_b b_b x_b n"), "matmul_in_place": (200, "A B A_b B_b C_b n"),
    "floyd_warshall": (150, "d d_b n"), "burgers": (100_000, "u v u_b v_b n steps"),
    "nbody": (300, "x v m x_b v_b m_b n steps"), "scan": (300_000, "x x_b y_b c c_b n"),
    "in_place_map": (300_000, "x c x_b c_b n steps"), "logistic": (300_000, "x r x_b r_b n"),
    "recurrence": (300_000, "x y x_b y_b n"),
}  # fmt: skip


def library(folder: str) -> Any:
    """Return the adjoints by hand, compiled."""
    target = Path(folder) / "one_thread.so"
    source = Path(__file__).with_name("one_thread.c")
    compiler = os.environ.get("CC", "cc")
    command = [compiler, *FLAGS, "-shared", "-fPIC", "-o", str(target), str(source), "-lm"]
    subprocess.run(command, check=True)
    prototypes = re.findall(r"^void \w+\([^)]*\)", source.read_text(), re.MULTILINE)
    FFI_.cdef("typedef double R; typedef int64_t I;")
    FFI_.cdef("".join(re.sub(r"\bRS\b", "", p) + ";\n" for p in prototypes))
    return FFI_.dlopen(str(target))


def least(call: Callable[[], Any]) -> float:
    """Return the least time of several calls, in ms."""
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1e3 * min(times)


class Loop:
    """A loop, its gradient, and that by hand."""

    def __init__(self, name: str, adjoints: Any) -> None:
        size, self.signature = LOOPS[name]
        args = PATTERNS[name].args(size, np.random.default_rng(0))
        kernel = RawKernel(PATTERNS[name].source.replace("REAL", "double"), "k")
        self.execution = kernel._execution
        operands, self.launch = kernel._bound(1, 1, args, 0)
        self.integers = dict(self.launch.integers)
        values = dict(zip(kernel._operation.operands, operands, strict=True))
        self.values = values | self.integers
        self.inputs = frozenset(values)
        rng = np.random.default_rng(1)
        outputs = self.execution.outputs
        self.cotangents = {n: rng.normal(size=self.values[n].shape) for n in outputs}
        self.function = getattr(adjoints, name)

    def value(self) -> Any:
        """Run the loop."""
        return self.execution.results(self.launch, self.values)

    def gradient(self, results: Any = None) -> dict[str, Any]:
        """Return the gradient."""
        return self.execution.gradients(
            self.launch, self.values, self.cotangents, self.inputs, results
        )

    def by_hand(self) -> dict[str, Any]:
        """Return the gradient by the adjoint that was written by hand."""
        gradients = {
            n: self.cotangents[n].copy() if n in self.cotangents else np.zeros(np.shape(x) or (1,))
            for n, x in self.values.items()
            if n in self.inputs
        }
        args: list[Any] = []
        arrays = []
        for word in self.signature.split():
            x: Any = gradients[word[:-2]] if word.endswith("_b") else self.values[word]
            if word in self.integers:
                args.append(int(x))
            elif not np.ndim(x):
                args.append(float(x))
            else:
                arrays.append(x.copy() if word in self.cotangents else x)
                args.append(FFI_.cast("double *", arrays[-1].ctypes.data))
        self.function(*args)
        return gradients


def main() -> None:
    """Print a line for each loop."""
    print(f"{'loop':16}{'ms':>8}{'gradient':>10}{'known':>8}{'by hand':>9}{'/loop':>7}{'/hand':>7}")
    with tempfile.TemporaryDirectory() as folder, adarray.use("serial"):
        adjoints = library(folder)
        for name in sys.argv[1:] or LOOPS:
            loop = Loop(name, adjoints)
            results = loop.value()
            gradients, wanted = loop.gradient(results), loop.by_hand()
            loop.gradient()
            for n, g in gradients.items():
                np.testing.assert_allclose(np.ravel(g), np.ravel(wanted[n]), rtol=1e-7, atol=1e-9)
            value, by_hand = least(loop.value), least(loop.by_hand)
            gradient, known = least(loop.gradient), least(lambda: loop.gradient(results))  # noqa: B023
            print(
                f"{name:16}{value:8.2f}{gradient:10.2f}{known:8.2f}{by_hand:9.2f}"
                f"{gradient / value:7.1f}{gradient / by_hand:7.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()

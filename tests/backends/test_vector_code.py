"""gcc makes vector code of the vector loops that are printed."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recorded import recorded

import adarray
from adarray.compiler.ir.plan import KernelStep
from adarray.compiler.ir.target import CpuTarget
from adarray.compiler.planning.planner import plan
from adarray.compiler.print_c import printer

adarray_native = pytest.importorskip("adarray_native")
compiler = pytest.importorskip("adarray_backends.cpu.compiler")
RNG = np.random.default_rng(2)
SCALAR = re.compile(r"\bcall\s+(exp|log|sin|cos|tan|atan|pow|log1p|expm1)f?@PLT")


def compiled(f: Callable[..., Any], tmp_path: Path, *arrays: np.ndarray) -> tuple[str, str, str]:
    """Return the C of a function's kernels, what gcc says of it, and its assembly."""
    try:
        cc = compiler.find()
    except adarray.BackendError as error:
        pytest.skip(str(error))
    if cc.kind != "gcc" or not compiler.X86 or not cc.libmvec:
        pytest.skip("vector functions of glibc need gcc on x86-64")
    target = CpuTarget(vector_bytes=32, libmvec=cc.libmvec)
    steps = plan(recorded(f, *arrays).program, target=target).steps
    texts = dict.fromkeys(
        printer.source(s.kernel, target) for s in steps if isinstance(s, KernelStep)
    )
    source, assembly = tmp_path / "kernels.c", tmp_path / "kernels.s"
    source.write_text('#include "kernel.h"\n' + "\n".join(texts))
    flags = [x for x in cc.flags("avx2", True) if x != "-shared"]
    told = subprocess.run(
        [*cc.command, *flags, *adarray_native.INCLUDE_CPU, "-fopt-info-vec-optimized", "-S",
         "-o", str(assembly), str(source)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return source.read_text(), told.stderr, assembly.read_text()


def test_comparisons_of_one_value_leave_calls_in_vectors(tmp_path: Path) -> None:
    """Minima and maxima, and their gradients, compare what functions are called with."""

    def f(x: Any) -> Any:
        y = 1.0 / (1.0 + np.exp(-np.minimum(np.cos(np.tanh(x)), 1.5)))
        z = np.maximum(np.cos(np.maximum(y, 0.0)), 0.0)
        return np.mean(z * z)

    x = RNG.normal(size=(4000,)).astype("float32")
    _, _, assembly = compiled(adarray.value_and_grad(f), tmp_path, x)
    assert "_ZGV" in assembly
    assert not SCALAR.search(assembly)


def test_truths_that_iterations_share_leave_loops_in_vectors(tmp_path: Path) -> None:
    """Whether a tap of a convolution is inside is the same for all rows of a block."""

    def f(x: Any, w: Any) -> Any:
        y = w[0] * x[..., 0:4, 0:4]
        for k in range(1, 9):
            y = y + w[k] * x[..., k // 3 : k // 3 + 4, k % 3 : k % 3 + 4]
        return np.sum(y * y)

    x, w = RNG.normal(size=(512, 6, 6)).astype("float32"), RNG.normal(size=9).astype("float32")
    text, told, _ = compiled(adarray.grad(f), tmp_path, x, w)
    assert "adarray_mask" in text
    lines = text.splitlines()
    places = {int(n) for n in re.findall(r"kernels\.c:(\d+):\d+: optimized: +loop vector", told)}
    plain = [
        k
        for k, line in enumerate(lines, 1)
        if "adarray_pick" in line
        and any("#pragma omp simd" in x for x in lines[max(0, k - 60) : k])
    ]
    assert plain
    for k in plain:
        start = max(j for j in range(1, k) if "#pragma omp simd" in lines[j - 1])
        assert {start + 1, start + 2} & places  # the head of the loop, or its first statement

"""Threads of a block on a GPU: measured once, kept, without any bit depending on them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recorded import recorded

import adarray
from adarray.compiler.ir.target import GPU
from adarray.compiler.planning import planner as planning
from adarray.compiler.schedule.gpu.blocks import CHOICES

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("on_gpu")]
plan = partial(planning.plan, target=GPU)
LARGE = 16 << 20  # elements: 64 MiB in float32


def run(r: Any, x: Any, **options: Any) -> list[bytes]:
    """Compile and run; return the results' bytes."""
    from adarray_backends.cuda import plans

    result = plans.executable(plan(r.program), **options)
    return [y.get().tobytes() for y in result.run([x])]


def test_blocks_are_measured_once_and_change_no_bit(tmp_path: Path, monkeypatch: Any) -> None:
    import cupy
    from adarray_backends.cuda import timing

    monkeypatch.setenv("ADARRAY_CACHE_DIR", str(tmp_path))
    values = np.random.default_rng(0).normal(size=LARGE).astype(np.float32)
    r = recorded(lambda x: np.sin(x) * np.exp(-x * x), values)
    x = cupy.asarray(values)
    first = run(r, x)
    files = list((tmp_path / "adarray-kernels" / "cuda").glob("*.block"))
    assert len(files) == 1
    assert int(files[0].read_text()) in CHOICES

    def again(*_: Any) -> int:
        raise AssertionError("measured a second time")

    monkeypatch.setattr(timing, "fastest", again)
    assert run(r, x) == first
    monkeypatch.setenv("ADARRAY_TUNE", "0")
    files[0].unlink()
    assert run(r, x) == first
    for threads in (32, 128, 1024):
        assert run(r, x, threads=threads) == first


def test_sums_keep_the_blocks_of_the_schedule(tmp_path: Path, monkeypatch: Any) -> None:
    import cupy

    monkeypatch.setenv("ADARRAY_CACHE_DIR", str(tmp_path))
    values = np.random.default_rng(0).normal(size=LARGE).astype(np.float32)
    r = recorded(lambda x: np.sum(np.sin(x)), values)
    run(r, cupy.asarray(values))
    assert not list((tmp_path / "adarray-kernels" / "cuda").glob("*.block"))


@pytest.mark.parametrize("threads", [32, 96, 256, 1024])
def test_eager_kernels_take_the_threads_that_are_asked_for(threads: int) -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(130, 1028)).astype(np.float32)
    functions = (
        np.exp,
        lambda x: np.sum(x, axis=0),
        lambda x: np.sum(x, axis=1),
        np.sum,
        lambda x: np.max(x, axis=1),
    )
    for f in functions:
        value, pullback = adarray.vjp(f, x)
        g = np.cos(np.arange(np.size(value))).reshape(np.shape(value)).astype(np.float32)
        expected = [value, *pullback(g)]
        with adarray.use("cuda", threads_per_block=threads):
            value, pullback = adarray.vjp(f, x)
            results = [value, *pullback(g)]
        for a, b in zip(results, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-4)


def test_compiled_kernels_take_the_threads_that_are_asked_for() -> None:
    x = np.random.default_rng(1).normal(size=(130, 1028)).astype(np.float32)
    expected = np.sum(np.tanh(x), axis=0)
    for threads in (64, 512):
        with adarray.use("cuda", threads_per_block=threads):
            f, transformed = adarray.jit(lambda x: np.sum(np.tanh(x), axis=0)), adarray.array(x)
            for _ in range(3):
                actual = f(transformed).numpy()
            np.testing.assert_allclose(actual, expected, rtol=2e-5, atol=2e-4)
            (node,) = f.path(transformed)
            assert node.executable is not None

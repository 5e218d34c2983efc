"""Compiled plans on a GPU: kernels printed from loop IR, cuBLAS and graphs.

What they compute without a GPU is tested in tests/codegen/test_cuda.py.
"""

from __future__ import annotations

import os
import warnings
from typing import Any

import numpy as np
import pytest
from random_programs import seeded
from recorded import recorded

import adarray
from adarray.errors import BackendError
from adarray.passes import fuse, lower_steps
from adarray.passes.interpret import interpret
from adarray.passes.planning import plan

pytestmark = pytest.mark.gpu
PROGRAMS = int(os.environ.get("ADARRAY_LONG", "0")) or 40
RNG = np.random.default_rng(11)


@pytest.fixture(autouse=True)
def gpu(monkeypatch: Any) -> None:
    """Skip without a GPU; let small arrays have the kernels that large ones have."""
    try:
        adarray.use("cuda")
    except BackendError as error:
        pytest.skip(str(error))
    monkeypatch.setattr(fuse, "SMALL", 1)
    monkeypatch.setattr(lower_steps, "SMALL", 1)


def moved(x: Any) -> Any:
    """Return a copy on the GPU with the strides of `x`, whatever lies between its elements."""
    import cupy

    x = np.asarray(x)
    if not x.size or x.flags.c_contiguous:
        return cupy.asarray(x)
    low, high = np.lib.array_utils.byte_bounds(x)
    memory = cupy.zeros(high - low, cupy.uint8)
    made = cupy.ndarray(
        x.shape, x.dtype, memory.data + (x.__array_interface__["data"][0] - low), x.strides
    )
    made[...] = cupy.asarray(x)
    return made


def compare(r: Any, times: int = 2, **options: Any) -> Any:
    """Run a recorded program on the GPU; compare with the interpreter."""
    from adarray_backends.cuda.plans import Executable

    arrays = [np.asarray(a) for a in r.arrays]
    expected = interpret(r.program, arrays)
    run = Executable(plan(r.program), **options)
    single = any(v.dtype == np.float32 for v in r.program.values)
    tight = 1e-4 if single else 1e-10
    for _ in range(times):
        for got, want in zip(run([moved(a) for a in arrays]), expected, strict=True):
            got, want = got.get(), np.asarray(want)
            assert got.dtype == want.dtype
            assert got.shape == want.shape
            if want.dtype.kind != "f":
                np.testing.assert_array_equal(got, want)
                continue
            size = np.max(np.abs(want[np.isfinite(want)]), initial=1.0)
            np.testing.assert_allclose(got, want, rtol=tight, atol=tight * size)
    return run


@pytest.mark.parametrize("first", range(0, PROGRAMS, 20))
def test_random_programs(first: int) -> None:
    for seed in range(first, min(first + 20, PROGRAMS)):
        program = seeded(seed)
        args = program.args(0)
        f, loss = program.function("f"), program.function("loss")
        for g in (f, adarray.value_and_grad(loss, argnums=tuple(range(len(args))))):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    r = recorded(g, *args)
                except AssertionError:  # a call whose result has a shape that depends on values
                    continue
            compare(r)


def network(w: Any, b: Any, v: Any, x: Any) -> Any:
    h = np.maximum(x @ w + b, 0)
    return np.sum(np.tanh(h @ v))


@pytest.mark.parametrize("graphs", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products_with_and_without_graphs(graphs: bool, dtype: Any) -> None:
    shapes = ((30, 20), (20,), (20, 7), (64, 30))
    args = [RNG.normal(size=s).astype(dtype) for s in shapes]
    r = recorded(adarray.value_and_grad(network, (0, 1, 2)), *args)
    run = compare(r, times=4, graphs=graphs)
    assert (run.graphs is not None) == graphs


def test_a_held_result_is_not_overwritten() -> None:
    from adarray_backends.cuda.plans import Executable

    args = [RNG.normal(size=s) for s in ((30, 20), (20,), (20, 7), (64, 30))]
    r = recorded(adarray.value_and_grad(network, (0, 1, 2)), *args)
    run = Executable(plan(r.program))
    inputs = [moved(a) for a in r.arrays]
    first = run(inputs)
    held = [x.get() for x in first]
    inputs[0] *= 2
    for _ in range(3):
        run(inputs)
    for got, want in zip(first, held, strict=True):
        np.testing.assert_array_equal(got.get(), want)


def test_an_index_out_of_range_is_an_error() -> None:
    from adarray_backends.cuda.plans import Executable

    r = recorded(lambda x, k: np.exp(x[k]), RNG.normal(size=9), np.array([1, 2, 8]))
    run = Executable(plan(r.program))
    x = moved(r.arrays[0])
    run([x, moved(np.array([1, 2, 8]))])
    with pytest.raises(BackendError, match="refused its data"):
        run([x, moved(np.array([1, 2, 9]))])
    np.testing.assert_allclose(run([x, moved(np.array([0, 0, 0]))])[0].get(), np.exp(x.get()[0]))

"""Executables of recorded functions on a GPU that is none: see fake_gpu.py.

For tests of launching plans.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from fake_gpu import FakeArray, FakeGpu
from recorded import recorded

import adarray
from adarray.compiler.ir.interpret import interpret
from adarray.compiler.ir.target import GPU
from adarray.compiler.planning import planner as planning

pytest.importorskip("adarray_native._device")
from adarray_backends.cuda import plans

plan = partial(planning.plan, target=GPU)
RNG = np.random.default_rng(12)


def moved(x: Any) -> Any:
    """Return an array with the same strides, whose address is known."""
    x = np.asarray(x)
    if x.flags.c_contiguous:
        return np.array(x).view(FakeArray)
    return x.view(FakeArray)


def check(r: Any, run: Any, arrays: list[Any]) -> list[Any]:
    """Run; compare with the interpreter; return the results."""
    expected = interpret(r.program, [np.asarray(a) for a in arrays])
    actual = run([moved(a) for a in arrays])
    for got, want in zip(actual, expected, strict=True):
        np.testing.assert_allclose(np.asarray(got), want, rtol=1e-5, atol=1e-5)
        assert got.dtype == np.asarray(want).dtype
        assert got.shape == np.shape(want)
    return actual


def network(w: Any, b: Any, v: Any, x: Any) -> Any:
    h = np.maximum(x @ w + b, 0)
    return np.sum(np.tanh(h @ v))


SHAPES = ((30, 20), (20,), (20, 7), (64, 30))


def values() -> list[np.ndarray]:
    return [RNG.normal(size=s) for s in SHAPES]


def trained(w: Any, b: Any, v: Any, x: Any) -> Any:
    grads = adarray.grad(network, argnums=(0, 1, 2))(w, b, v, x)
    return tuple(p - 0.1 * g for p, g in zip((w, b, v), grads, strict=True))


def executable(gpu: FakeGpu, f: Any = trained, args: Any = None, **options: Any) -> Any:
    r = recorded(f, *(values() if args is None else args))
    return r, plans.CudaExecutable(plan(r.program), gpu, **options)

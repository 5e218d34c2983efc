"""Every operation record and every transform under jit on a device, against eager NumPy."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from op_groups import differentiable, grouped, moved
from records import CORE, part_on_a_stand_in
from transformed import INPUTS, TRANSFORMS

import adarray
from adarray.base.op import OPS
from adarray.base.runtime import current_mode
from adarray.device import is_device
from adarray.jitting import JitWarning
from adarray.testing._grads import dtype_of, random_like
from adarray.testing._ops import within_range
from adarray.transforms.tree import flatten

PRECISIONS = pytest.mark.parametrize("dtype", ["float64", "float32"])
# Functions with several right results, of which each library chooses its own.
PHASED = frozenset({"qr", "svd", "eig", "eigh", "eigvals"})
# By what results may be off, of the largest number of a result; dtypes may be mixed.
LIMITS = {"float64": 1e-11, "float32": 2e-5, "float16": 4e-3, "complex64": 2e-5}


def plain(x: Any) -> Any:
    return x.numpy()[()] if isinstance(x, adarray.ADArray) else x


def compare(got: Any, expected: Any, title: str, dtype: str = "float64") -> None:
    actual, wanted = flatten(got)[0], flatten(expected)[0]
    assert len(actual) == len(wanted), title
    for k, (g, e) in enumerate(zip(map(plain, actual), map(plain, wanted), strict=True)):
        a, b = np.asarray(g), np.asarray(e)
        assert a.shape == b.shape, f"{title}, result {k}"
        assert a.dtype == b.dtype, f"{title}, result {k}"
        if b.dtype.kind not in "fc":
            np.testing.assert_array_equal(a, b, err_msg=f"{title}, result {k}")
            continue
        limit = max(LIMITS.get(b.dtype.name, 1e-11), LIMITS[dtype])
        size = np.max(np.abs(b[np.isfinite(b)]), initial=1.0)
        np.testing.assert_allclose(
            a, b, rtol=limit, atol=limit * size, err_msg=f"{title}, result {k}"
        )


def run(
    function: Callable[..., Any], sets: list[Any], backend: str, title: str, dtype: str = "float64"
) -> None:
    """Call a jitted function on the device with several arguments; compare with eager calls.

    The arguments are arrays of the host in some of the calls, and on the device in the others.
    """
    jitted = adarray.jit(function)
    # On a GPU, where compiling takes the time, once: what is sent is tested with others.
    for there in (False, True) if backend == "standin" else (dtype == "float32",):
        for k, args in enumerate(sets):
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)
                warnings.simplefilter("ignore", JitWarning)
                with adarray.use(backend if title in PHASED else "numpy"):
                    expected = function(*(map(placed, args) if title in PHASED else args))
                with adarray.use(backend):
                    got = jitted(*(map(placed, args) if there else args))
            compare(got, expected, f"{title}, call {k}", dtype)
            if there and any(isinstance(x, np.ndarray) for x in args):
                arrays = [r for r in flatten(got)[0] if isinstance(r, adarray.ADArray)]
                assert all(is_device(r._plain) or r.dtype.char in "gG" for r in arrays), title


def placed(x: Any) -> Any:
    return adarray.array(x) if isinstance(x, np.ndarray) else x


@pytest.mark.slow
@PRECISIONS
@pytest.mark.parametrize("name", CORE)
def test_values(name: str, dtype: str, device_backend: str) -> None:
    part_on_a_stand_in(name, dtype, device_backend)
    op = OPS[name]
    group = grouped(op, dtype, lambda _: True)
    if not group.leaves:
        pytest.skip("has no arrays among its operands")
    fixed = type(op.lower).__name__ == "Opaque"  # matrices with a structure
    with adarray.use(device_backend):
        flushes = current_mode().engine.library.flushes
    leaves = [within_range(x, flushes) for x in group.leaves]
    others = leaves if fixed else moved(leaves, 1)
    run(group.function, [leaves, leaves, others], device_backend, name, dtype)


@pytest.mark.slow
@PRECISIONS
@pytest.mark.parametrize("name", [n for n in CORE if OPS[n].rules])
def test_gradients(name: str, dtype: str, device_backend: str) -> None:
    part_on_a_stand_in(name, dtype, device_backend)
    op = OPS[name]
    group = grouped(op, dtype, lambda case: case.order > 0)
    smooth = differentiable(op, group)
    if not smooth:
        pytest.skip("has no sample to differentiate")
    rng = np.random.default_rng(1)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        weights = [
            [random_like(rng, r) if dtype_of(r).kind in "fc" else None for r in map(plain, case)]
            for case in group.function(*group.leaves)
        ]

    def loss(*leaves: Any) -> Any:
        total = 0.0
        for rs, ws in zip(group.function(*leaves), weights, strict=True):
            for r, w in zip(rs, ws, strict=True):
                if w is not None:
                    total = total + np.sum(np.real(r * w))
        return total

    gradient = adarray.value_and_grad(loss, argnums=smooth)
    run(gradient, [group.leaves] * 3, device_backend, name, dtype)


@pytest.mark.slow
@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms(name: str, device_backend: str) -> None:
    inputs = [x if isinstance(x, tuple) else (x,) for x in INPUTS]
    run(TRANSFORMS[name](), inputs, device_backend, name)

"""Every operation record under jit: its samples, values and gradients, on every backend.

All samples of a record are arguments of one jitted function, and neighbouring records are checked
together (`together`), so that one compilation serves them all.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from differential import skip_unless_long
from op_groups import call, differentiable, grouped, is_leaf, moved, operands_of
from records import CORE
from together import together

import adarray
from adarray.base.op import OPS, Contraction, Op, Reduction, Scan
from adarray.compiler.scalars import eager
from adarray.testing._compare import mismatch
from adarray.testing._grads import dtype_of, random_like
from adarray.testing._ops import ULP, use_all_sizes
from adarray.testing._samples import Case
from adarray.transforms.tree import flatten

# Records without a lowering of their own that sum products.
SUMS = frozenset({"convolve", "vecdot", "matvec", "vecmat", "nansum", "nanmean", "nanprod"})
# Eager kernels that the compiler leaves scalar: other bits than the vector functions give.
SCALAR = frozenset({"sinc"})
# Records whose checks wait for the compiler together.
CHUNK = 24
NAMES = tuple(CORE)


def _eager(function: Callable[..., Any], leaves: list[Any]) -> Any:
    """Return the results on ADArrays that are not traced, as plain values."""
    arrays = [adarray.array(x) if isinstance(x, (np.ndarray, np.generic)) else x for x in leaves]
    return tuple(
        tuple(r.numpy()[()] if isinstance(r, adarray.ADArray) else r for r in case)
        for case in function(*arrays)
    )


def _magnitude(op: Op, case: Case, operands: list[Any], expected: Any) -> Any:
    """Return the magnitudes in whose last place folds and products may differ."""
    folds = isinstance(op.lower, (Reduction, Contraction, Scan)) or op.name in SUMS
    if not (folds or op.name.endswith(".where")) or op.name.partition(".")[0] in ("max", "min"):
        return None
    sizes = [np.abs(x) if is_leaf(x) and dtype_of(x).kind in "fc" else x for x in operands]
    (size,) = call(op, sizes, case.params)
    return np.abs(np.asarray(size, dtype_of(expected)))


def _limit(op: Op, operands: list[Any], expected: Any) -> float:
    if isinstance(op.lower, Reduction) and op.lower.combine == "multiply":
        return max(ULP, 2 * (np.size(operands[0]) / max(np.size(expected), 1)) ** 0.5)
    return ULP


def _printed(op: Op, operands: list[Any], expected: Any) -> bool:
    """Whether eager code runs a printed kernel."""
    floats = {dtype_of(x) for x in operands if is_leaf(x)}
    return (
        op.pointwise
        and op.name not in SCALAR
        and all(isinstance(x, np.ndarray) and x.ndim for x in operands)
        and len(floats) == 1
        and np.ndim(expected) > 0
        and str(next(iter(floats))) in eager.DTYPES
        and eager.forward(op, str(next(iter(floats)))) is not None
    )


@functools.cache
def _checked(check: Callable[..., None], chunk: int, *rest: str) -> dict[str, BaseException | None]:
    """Check some neighbouring records; return what each check raised."""
    names = NAMES[chunk * CHUNK : (chunk + 1) * CHUNK]
    return dict(together((name, functools.partial(check, name, *rest)) for name in names))


def _check(check: Callable[..., None], name: str, *rest: str) -> None:
    """Check a record, with its neighbours; raise what its check raised."""
    error = _checked(check, NAMES.index(name) // CHUNK, *rest)[name]
    if error is not None:
        raise error


@pytest.mark.sampled(8)
@pytest.mark.slow_on("numpy", "openmp")
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", NAMES)
def test_values(name: str, dtype: str, backend: str) -> None:
    brief = {"serial": "float64", "openmp": "float32"}  # the printed text is the same
    skip_unless_long(brief.get(backend, dtype) == dtype)
    _check(_check_values, name, dtype, backend)


def _check_values(name: str, dtype: str, backend: str) -> None:
    op = OPS[name]
    with use_all_sizes(backend), np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        group = grouped(op, dtype, lambda _: True)
        jitted = adarray.jit(group.function)
        for seed in range(4):
            leaves = moved(group.leaves, seed) if seed else group.leaves
            if op.lower.__class__.__name__ == "Opaque" and seed:
                leaves = group.leaves  # matrices with a structure
            expected, got = _eager(group.function, leaves), jitted(*leaves)
            for k, (case, operands) in enumerate(operands_of(group, leaves)):
                for g, e in zip(got[k], expected[k], strict=True):
                    printed = backend != "numpy" and _printed(op, operands, e)
                    e = np.asarray(e)[()]
                    limit = 0 if printed else _limit(op, operands, e)
                    difference = mismatch(
                        np.asarray(g)[()], e, limit, _magnitude(op, case, operands, e)
                    )
                    assert difference is None, f"{name}, {case.name}, call {seed}: {difference}"


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", NAMES)
def test_gradients(name: str, backend: str) -> None:
    skip_unless_long(backend == "numpy")
    _check(_check_gradients, name, backend)


def _check_gradients(name: str, backend: str) -> None:
    op = OPS[name]
    if not op.rules:
        pytest.skip("has no derivative")
    with use_all_sizes(backend), np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        group = grouped(op, np.float64, lambda case: case.order > 0)
        rng = np.random.default_rng(1)
        weights = [
            [random_like(rng, r) if dtype_of(r).kind in "fc" else None for r in case]
            for case in _eager(group.function, group.leaves)
        ]

        def loss(*leaves: Any) -> Any:
            total = 0.0
            for rs, ws in zip(group.function(*leaves), weights, strict=True):
                for r, w in zip(rs, ws, strict=True):
                    if w is not None:
                        total = total + np.sum(np.real(r * w))
            return total

        smooth = differentiable(op, group)
        if not smooth:
            pytest.skip("has no sample to differentiate")
        gradient = adarray.value_and_grad(loss, argnums=smooth)
        jitted = adarray.jit(gradient)
        for _ in range(4):
            expected, got = flatten(gradient(*group.leaves))[0], flatten(jitted(*group.leaves))[0]
            for k, (g, e) in enumerate(zip(got, expected, strict=True)):
                assert dtype_of(g) == dtype_of(e)
                scale = max(float(np.max(np.abs(e), initial=0.0)), 1.0)
                np.testing.assert_allclose(
                    g, e, rtol=1e-12, atol=1e-13 * scale, err_msg=f"leaf {k}"
                )

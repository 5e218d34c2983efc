"""Every operation record under jit: tangents, second derivatives in each order of modes, batches.

Values and gradients are in `test_ops`. What jit computes is compared with what is computed eagerly,
which `opcheck` compares with differences and `test_vmap_records` with loops.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from differential import skip_unless_long
from members import spread
from op_groups import differentiable, grouped
from records import CORE
from together import together

import adarray
from adarray.base.op import OPS
from adarray.errors import ADArrayError, ForwardModeError
from adarray.testing._grads import dtype_of, random_like
from adarray.testing._ops import use_all_sizes
from adarray.testing._samples import Case
from adarray.transforms.tree import flatten

pytestmark = pytest.mark.slow

CHUNK = 12  # records whose checks wait for the compiler together
NAMES = tuple(CORE)


@functools.cache
def _checked(check: Callable[..., None], chunk: int, *rest: str) -> dict[str, BaseException | None]:
    names = NAMES[chunk * CHUNK : (chunk + 1) * CHUNK]
    return dict(together((name, functools.partial(check, name, *rest)) for name in names))


def _is_short(name: str, backend: str) -> bool:
    """Whether a check is not left to long runs: a third of the records, one tenth compiled."""
    chunk = NAMES.index(name) // CHUNK
    return chunk % 3 == 0 if backend == "numpy" else backend == "serial" and chunk % 10 == 1


def _check(check: Callable[..., None], name: str, *rest: str) -> None:
    error = _checked(check, NAMES.index(name) // CHUNK, *rest)[name]
    if error is not None:
        raise error


def _compare(got: Any, expected: Any, rtol: float) -> None:
    a, b = flatten(got)[0], flatten(expected)[0]
    assert len(a) == len(b)
    for k, (g, e) in enumerate(zip(a, b, strict=True)):
        assert dtype_of(g) == dtype_of(e), f"leaf {k}"
        size = np.max(np.abs(e), initial=0.0, where=np.isfinite(e))
        scale = max(float(size), 1.0) if dtype_of(e).kind in "fc" else 0.0
        np.testing.assert_allclose(g, e, rtol=rtol, atol=rtol * scale, err_msg=f"leaf {k}")


def _loss(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the sum of all floating results, with weights."""

    def loss(*leaves: Any) -> Any:
        total = 0.0
        for case in function(*leaves):
            for r in case:
                if dtype_of(r).kind in "fc":
                    weights = 1.0 + 0.1 * np.arange(np.size(r)).reshape(np.shape(r))
                    total = total + np.sum(np.real(r * weights))
        return total

    return loss


@pytest.mark.parametrize("name", NAMES)
def test_tangents_and_second_derivatives(name: str, backend: str) -> None:
    skip_unless_long(_is_short(name, backend))
    _check(_check_orders, name, backend)


def _check_orders(name: str, backend: str) -> None:
    op = OPS[name]
    if not op.rules:
        pytest.skip("has no derivative")
    with use_all_sizes(backend), np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        group = grouped(op, np.float64, lambda case: case.order > 1)
        smooth = differentiable(op, group)
        if not smooth:
            pytest.skip("has no sample to differentiate twice")
        rng = np.random.default_rng(2)
        xs = tuple(group.leaves[k] for k in smooth)
        ts = tuple(random_like(rng, x) for x in xs)

        def loss(*xs: Any) -> Any:
            leaves = list(group.leaves)
            for k, x in zip(smooth, xs, strict=True):
                leaves[k] = x
            return _loss(group.function)(*leaves)

        every = tuple(range(len(xs)))
        gradient = adarray.grad(loss, argnums=every)

        def tangent(*xs: Any) -> Any:
            return adarray.jvp(loss, xs, ts)[1]

        def product(*xs: Any) -> Any:
            return sum(np.sum(g * t) for g, t in zip(gradient(*xs), ts, strict=True))

        for f in (
            tangent,
            lambda *xs: adarray.jvp(gradient, xs, ts)[1],
            adarray.grad(tangent, argnums=every),
            adarray.grad(product, argnums=every),
            lambda *xs: adarray.jvp(tangent, xs, ts)[1],
        ):
            try:
                expected = f(*xs)
            except ForwardModeError:
                continue
            jitted = adarray.jit(f)
            for _ in range(2):
                _compare(jitted(*xs), expected, 1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_batches(name: str, backend: str) -> None:
    skip_unless_long(_is_short(name, backend))
    _check(_check_batches, name, backend)


def _check_batches(name: str, backend: str) -> None:
    op = OPS[name]
    with use_all_sizes(backend), np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)

        def wanted(case: Case) -> bool:
            """Whether a loop over members computes the case."""
            one = grouped(op, np.float64, lambda other: other.name == case.name)
            try:
                adarray.vmap(one.function)(*map(spread, one.leaves))
            except (ADArrayError, TypeError, ValueError, ArithmeticError):
                return False
            return True

        group = grouped(op, np.float64, wanted)
        if not group.leaves:
            pytest.skip("no member has an operand")
        members = [spread(x) for x in group.leaves]
        expected = adarray.vmap(group.function)(*members)
        jitted = adarray.jit(adarray.vmap(group.function))
        for _ in range(2):
            _compare(jitted(*members), expected, 1e-10)
        smooth = differentiable(op, group) if op.rules else ()
        if not smooth:
            return
        gradient = adarray.vmap(adarray.grad(_loss(group.function), argnums=smooth))
        jitted = adarray.jit(gradient)
        expected = gradient(*members)
        for _ in range(2):
            _compare(jitted(*members), expected, 1e-10)

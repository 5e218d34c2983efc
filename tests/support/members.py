"""Functions of one member beside what `adarray.vmap` makes of them: a loop is the oracle.

For tests of `adarray.vmap`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import adarray
from adarray.base.op import Op
from adarray.core.dispatch import run
from adarray.testing._samples import cases

# What members have in place of a sample: no number grows, so that domains and shares are kept.
FACTORS = (1.0, 0.97, 0.9)


def looped(f: Callable[..., Any], args: tuple[Any, ...], axes: tuple[Any, ...]) -> Any:
    """Return the results of all members, along the first axis, from a loop in Python."""
    size = next(np.shape(x)[a] for x, a in zip(args, axes, strict=True) if a is not None)
    results = [
        f(*(x if a is None else np.take(x, k, axis=a) for x, a in zip(args, axes, strict=True)))
        for k in range(size)
    ]
    return stacked(results)


def stacked(members: list[Any]) -> Any:
    """Return nests of arrays as one of stacks."""
    first = members[0]
    if isinstance(first, (tuple, list)):
        return [stacked(list(part)) for part in zip(*members, strict=True)]
    return np.stack([np.asarray(x) for x in members])


def assert_same(got: Any, want: Any, rtol: float = 1e-9, atol: float = 1e-11) -> None:
    """Compare nests of arrays: shapes, dtypes, values, nan and inf."""
    if isinstance(want, list):
        assert len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            assert_same(g, w, rtol, atol)
        return
    assert isinstance(got, np.ndarray)
    assert got.shape == want.shape
    assert got.dtype == want.dtype
    near = np.isclose(got, want, rtol=rtol, atol=atol, equal_nan=True) | (got == want)
    assert near.all(), f"{got} and {want}"


def spread(x: Any) -> Any:
    """Return a sample for every member, along the first axis."""
    a = np.asarray(x)
    if a.dtype.kind not in "fc":
        return np.stack([a] * len(FACTORS))
    return np.stack([a * a.dtype.type(f) for f in FACTORS])


def calls_of(op: Op, differentiable: bool = False) -> Iterator[tuple[Any, tuple[Any, ...], bool]]:
    """Yield functions of one member with arguments of all, and whether there is forward mode.

    They call the record on its samples, with each operand that of the members, and all of them.
    """
    # Pointwise records differ by the layouts that are made for each: some of these for each.
    step = 3 if op.pointwise else 1
    result = list(cases(op, np.dtype(float), np.random.default_rng(0)))
    for case in result[:: step if len(result) > step else 1]:
        if differentiable and case.order < 1:
            continue
        operands, params = list(case.operands), dict(case.params)
        able = [i for i, x in enumerate(operands) if isinstance(x, (np.ndarray, np.generic, float))]
        if differentiable:
            able = [
                i for i in able
                if np.asarray(operands[i]).dtype.kind in "fc"
                and (op.variadic or op.rules[i] is not None)
            ]  # fmt: skip
        chosen = [(i,) for i in able] + ([tuple(able)] if len(able) > 1 else [])
        for mask in chosen:
            yield (
                _call(op, operands, params, mask),
                tuple(spread(operands[i]) for i in mask),
                (op.pointwise or op.jvp is not None),
            )


def _call(op: Op, operands: list[Any], params: dict[str, Any], mask: tuple[int, ...]) -> Any:
    def f(*members: Any) -> Any:
        args = iter(members)
        values = [next(args) if i in mask else x for i, x in enumerate(operands)]
        r = run(op, *values, **params)
        return tuple(r) if isinstance(r, tuple) else r

    return f


def check_values(op: Op) -> None:
    """Compare the values of all members with those of a loop."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a mean of nothing
        for f, args, _ in calls_of(op):
            try:
                want = looped(f, args, (0,) * len(args))
            except (TypeError, ValueError, ArithmeticError):
                continue  # the record refuses these operands
            assert_same(adarray.vmap(f)(*args), want)


def check_gradients(op: Op) -> None:
    """Compare gradients and tangents, of members and of sums over members, with those of a loop."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for f, args, forward in calls_of(op, differentiable=True):
            loss = _loss(f)
            every = tuple(range(len(args)))
            gradient = adarray.grad(loss, argnums=every)
            axes = (0,) * len(args)
            try:
                want = looped(gradient, args, axes)
            except (adarray.ADArrayError, ValueError, ArithmeticError):
                continue
            tolerance = (1e-8, 1e-9)
            assert_same(adarray.vmap(gradient)(*args), want, *tolerance)
            total = adarray.grad(_total(loss), argnums=every)
            assert_same(total(*args), want, *tolerance)
            if not forward:
                continue
            along = [np.cos(np.arange(x.size)).reshape(x.shape) for x in args]
            tangent = _tangent(loss, len(args))
            try:
                want = looped(tangent, (*args, *along), axes * 2)
            except (adarray.ADArrayError, ValueError, ArithmeticError):
                continue
            assert_same(adarray.vmap(tangent)(*args, *along), want, *tolerance)
            of_all = adarray.jvp(adarray.vmap(loss), args, tuple(along))[1]
            assert_same(of_all, want, *tolerance)


def _loss(f: Callable[..., Any]) -> Callable[..., Any]:
    def loss(*members: Any) -> Any:
        r = f(*members)
        total = 0.0
        for y in r if isinstance(r, tuple) else (r,):
            if y.dtype.kind in "fc":
                weights = 1.0 + 0.1 * np.arange(y.size).reshape(y.shape)
                total = total + np.sum(np.real(y * weights))
        return total

    return loss


def _total(loss: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: np.sum(adarray.vmap(loss)(*args))


def _tangent(loss: Callable[..., Any], n: int) -> Callable[..., Any]:
    return lambda *given: adarray.jvp(loss, given[:n], given[n:])[1]

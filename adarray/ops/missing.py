"""Reductions and running folds that leave nan out; derivatives with respect to nan are 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from adarray.base.op import Op, Scan, register
from adarray.ops.common import s
from adarray.ops.folding import (
    DEVIATION,
    EXTREMUM,
    MEAN,
    SUM,
    extremum_rules,
    general,
    mean_rules,
    prod_rules,
    sum_rules,
    variance_rules,
)
from adarray.ops.scan import cumprod, cumsum

MASK = np.array([[1, 0, 1, 1], [1, 1, 1, 0], [1, 1, 1, 1]], bool)


def _holes(rng: np.random.Generator) -> np.ndarray:
    x = rng.normal(size=(3, 4))
    x[0, 0] = x[2, 1] = np.nan
    return x


def _samples(
    *more: Callable[[np.ndarray], Any],
) -> Callable[[np.random.Generator], list[Any]]:
    """Return the samples of a reduction: holes, no holes, masks, and `more` of an array."""

    def samples(rng: np.random.Generator) -> list[Any]:
        x, y = _holes(rng), rng.normal(size=(2, 3, 2))
        return [
            s(x),
            s(x, axis=0),
            s(x, axis=1, keepdims=True),
            s(x.T[::-1], axis=(0, 1)),
            s(y, axis=(0, -1)),
            *(f(x) for f in more),
        ]

    return samples


def _where(x: np.ndarray) -> Any:
    return s(x, axis=1, where=MASK)


def _initial(x: np.ndarray) -> Any:
    return s(x, axis=0, initial=np.float64(0.3))


def _initial_where(x: np.ndarray) -> Any:
    return s(x, axis=1, keepdims=True, initial=np.float64(-0.2), where=MASK)


_sum_samples = _samples(_where, _initial, _initial_where)
nansum = general(
    "nansum", np.nansum, SUM, sum_rules(skip=True), samples=_sum_samples, dispatched=True
)
nanprod = general(
    "nanprod", np.nanprod, SUM, prod_rules(skip=True), samples=_sum_samples, dispatched=True,
    note="exact where elements are 0",
)  # fmt: skip
nanmean = general(
    "nanmean", np.nanmean, MEAN, mean_rules(skip=True), samples=_samples(_where), dispatched=True
)
_function: Any
for _name, _function in (("nanmax", np.nanmax), ("nanmin", np.nanmin)):
    general(
        _name, _function, EXTREMUM, extremum_rules(skip=True),
        samples=_samples(_initial, _initial_where), dispatched=True,
        note="ties share the derivative equally",
    )  # fmt: skip
for _name, _function in (("nanvar", np.nanvar), ("nanstd", np.nanstd)):
    general(
        _name, _function, DEVIATION, variance_rules(skip=True, root=_name == "nanstd"),
        samples=_samples(
            _where,
            lambda x: s(x, axis=0, ddof=1),
            lambda x: s(x, axis=1, correction=0.5),
            lambda x: s(x, mean=np.nanmean(x, keepdims=True)),
            lambda x: s(x, axis=1, keepdims=True, mean=np.array([[0.1], [0.2], [0.7]]), where=MASK),
        ),
        dispatched=True,
        note="0 where the deviation is 0" if _name == "nanstd" else "",
    )  # fmt: skip


def _scan(name: str, function: Callable[..., Any], plain: Op, fill: float) -> Op:
    """Register a running fold with `fill` in place of nan, given the one that keeps nan."""
    rule = plain.rules[0]
    assert rule is not None

    def of_a(g: Any, out: Any, a: Any, **params: Any) -> Any:
        hole = np.isnan(a)
        return np.where(hole, 0, rule(g, out, np.where(hole, fill, a), **params))

    def tangent(t: Any, out: Any, a: Any, **params: Any) -> Any:
        hole = np.isnan(a)
        filled, moved = np.where(hole, fill, a), np.where(hole, 0, t)
        if plain.jvp == "linear":
            return plain.numpy(moved, **params)
        assert plain.jvp is not None
        forward = plain.jvp[0]
        return forward(moved, out, filled, **params)  # type: ignore[operator,misc]

    return register(
        Op(
            name,
            function,
            Scan(),
            [of_a],
            jvp=[tangent],
            drops=True,
            samples=lambda rng: [s(x := _holes(rng)), s(x, axis=0), s(x.T[::-1], axis=-1)],
            operands=("a",),
            params=("axis", "dtype"),
        )
    )


nancumsum = _scan("nancumsum", np.nancumsum, cumsum, 0.0)
nancumprod = _scan("nancumprod", np.nancumprod, cumprod, 1.0)

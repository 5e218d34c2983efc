"""Reductions over axes.

A record has the plain form, from which kernels are printed; its general form takes
``where=``, ``initial=`` and ``mean=`` too (see `adarray.ops.folding`).

References
----------
- F. H. Clarke, "Optimization and Nonsmooth Analysis", Wiley 1983 (what extrema return at ties).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from adarray.base.op import Op, Opaque, Reduction, Rule, register
from adarray.batching.rules import along
from adarray.ops.common import keep, s
from adarray.ops.folding import (
    DEVIATION,
    EXTREMUM,
    MEAN,
    SUM,
    extremum_rules,
    general,
    mean_rules,
    prod_rules,
    size_along,
    sum_rules,
    variance_rules,
)


def axes_samples(rng: np.random.Generator) -> list[Any]:
    """Return arrays with the axes to fold."""
    x = rng.normal(size=(3, 4))
    y = rng.normal(size=(2, 3, 4))
    return [
        s(x),
        s(x, axis=0),
        s(x, axis=1, keepdims=True),
        s(y, axis=(0, 2)),
        s(y, axis=(-1, 1), keepdims=True),
        s(y.transpose(2, 0, 1)[::-1], axis=1),
        s(rng.normal(size=5)),
        s(np.float64(0.7)),
        s(rng.normal(size=(1, 1)), axis=0),
        s(rng.normal(size=(3, 1, 2)), axis=1),
        s(x, axis=()),
    ]


def where_samples(rng: np.random.Generator) -> list[Any]:
    """Return arrays with masks: whole, broadcast, none at all."""
    x = rng.normal(size=(3, 4))
    mask = np.array([[1, 0, 1, 1], [0, 0, 1, 0], [1, 1, 1, 1]], bool)
    return [
        s(x, where=mask),
        s(x, axis=0, where=mask[2]),
        s(x, axis=1, keepdims=True, where=mask),
        s(rng.normal(size=(2, 3, 4)), axis=(0, 1), where=mask[:, :1]),
        s(x.T[::-1], axis=0, where=mask.T),
        s(np.float64(0.7), where=np.bool_(True)),
        s(rng.normal(size=5), where=True),
    ]


def initial_samples(rng: np.random.Generator) -> list[Any]:
    """Return arrays with an initial value, which may be traced, and masks."""
    x = rng.normal(size=(3, 4))
    mask = np.array([[1, 0, 1, 1], [0, 0, 0, 0], [1, 1, 1, 0]], bool)
    return [
        s(x, initial=np.float64(0.6)),
        s(x, axis=1, initial=np.float64(-0.3), where=mask),
        s(x, axis=0, keepdims=True, initial=0.25, where=mask),
        s(x, axis=(1, 0), initial=np.float64(1.1), where=mask[:, :1]),
    ]


def _plain(rule: Rule | None, *nothing: Any) -> Rule:
    """Return a rule of a general form for the plain form, in which `nothing` is given."""
    assert rule is not None

    def plain_rule(g: Any, out: Any, a: Any, **params: Any) -> Any:
        return rule(g, out, a, *nothing, **params)

    return plain_rule


# Elements up to which filling an array is cheaper than NumPy's making of a broadcast view.
_SMALL = 4096
_PLAIN = frozenset({np.ndarray, np.float64, np.float32})


def _spread(g: Any, out: Any, a: Any, axis: Any = None, keepdims: bool = False, **_: Any) -> Any:
    g = keep(g, a.shape, axis)
    if a.size <= _SMALL and type(g) in _PLAIN:
        back = np.empty(a.shape, g.dtype)
        back[...] = g
        return back
    return np.broadcast_to(g, a.shape)


sum_ = register(
    Op(
        "sum",
        np.sum,
        Reduction("add", 0.0),
        [_spread],
        jvp="linear",
        samples=lambda rng: [*axes_samples(rng), s(np.zeros((0, 3)), axis=0), s(np.zeros(0))],
        operands=("a",),
        params=("axis", "dtype", "keepdims"),
        methods=("sum",),
        general=general(
            "sum.where", np.sum, SUM, sum_rules(skip=False),
            samples=lambda rng: [
                *where_samples(rng), *initial_samples(rng),
                s(np.zeros((0, 3)), axis=0, initial=np.float64(2.0)),
            ],
        ),
    )
)  # fmt: skip


def _mean_vjp(g: Any, out: Any, a: Any, axis: Any = None, **kw: Any) -> Any:
    return _spread(g / max(size_along(a.shape, axis), 1), out, a, axis)


mean = register(
    Op(
        "mean",
        np.mean,
        Reduction("add", 0.0, post=lambda acc, n: acc / n),
        [_mean_vjp],
        jvp="linear",
        samples=axes_samples,
        operands=("a",),
        params=("axis", "dtype", "keepdims"),
        methods=("mean",),
        general=general("mean.where", np.mean, MEAN, mean_rules(skip=False), samples=where_samples),
    )
)


def _tied(rng: np.random.Generator) -> list[Any]:
    """Return arrays for extrema in which the initial value wins somewhere."""
    x = rng.normal(size=(3, 4))
    mask = np.array([[1, 0, 1, 1], [0, 0, 0, 0], [1, 1, 1, 0]], bool)
    return [
        *initial_samples(rng),
        s(x, axis=0, initial=np.float64(-0.05)),
        s(x, axis=1, keepdims=True, initial=np.float64(0.05), where=mask),
    ]


_function: Any
for _name, _function, _alias in (("max", np.max, np.amax), ("min", np.min, np.amin)):
    _rules = extremum_rules(skip=False)
    register(
        Op(
            _name,
            _function,
            Reduction(f"{_name}imum", None),
            [_plain(_rules.rules[0], None, True)],
            jvp=[_plain(_rules.jvp[0], None, True)],
            drops=True,
            samples=axes_samples,
            operands=("a",),
            params=("axis", "keepdims"),
            aliases=(_alias,) if _alias is not _function else (),
            methods=(_name,),
            general=general(
                f"{_name}.where", _function, EXTREMUM, _rules, samples=_tied,
                note="ties share the derivative equally, the initial value among them",
            ),
            note="ties share the derivative equally",
        )
    )  # fmt: skip

_rules = prod_rules(skip=False)
prod = register(
    Op(
        "prod",
        np.prod,
        Reduction("multiply", 1.0),
        [_plain(_rules.rules[0], None, True)],
        jvp=[_plain(_rules.jvp[0], None, True)],
        samples=lambda rng: [
            *axes_samples(rng), s(np.array([2.0, 0.0, 3.0])), s(np.zeros((0, 3)), axis=0),
        ],
        operands=("a",),
        params=("axis", "dtype", "keepdims"),
        methods=("prod",),
        general=general(
            "prod.where", np.prod, SUM, _rules,
            samples=lambda rng: [
                *where_samples(rng), *initial_samples(rng),
                s(np.array([2.0, 0.0, 3.0]), initial=np.float64(0.0)),
                s(np.zeros((0, 3)), axis=0, initial=np.float64(2.0)),
            ],
            note="exact where elements are 0",
        ),
        note="exact where elements are 0",
    )
)  # fmt: skip


def spread_samples(rng: np.random.Generator) -> list[Any]:
    """Return arrays with the axes and degrees of freedom of a variance."""
    x = rng.normal(size=(3, 4))
    return [
        s(x),
        s(x, axis=0),
        s(x, axis=1, keepdims=True, ddof=1),
        s(rng.normal(size=(2, 3, 4)), axis=(0, 2)),
        s(x.T[::-1], axis=0, correction=1),
        s(rng.normal(size=5)),
    ]


def centered_samples(rng: np.random.Generator) -> list[Any]:
    """Return arrays with masks and with means, right ones and wrong ones."""
    x = rng.normal(size=(3, 4))
    mask = np.array([[1, 0, 1, 1], [0, 1, 1, 0], [1, 1, 1, 1]], bool)
    return [
        s(x, where=mask),
        s(x, axis=0, where=mask[2]),
        s(x, axis=1, keepdims=True, where=mask, ddof=1),
        s(rng.normal(size=(2, 3, 4)), axis=(0, -1), where=mask[:, :1] | mask[:, 1:2]),
        s(x, mean=np.mean(x, keepdims=True)),
        s(x, axis=1, mean=rng.normal(size=(3, 1)), correction=1),
        s(x, axis=0, mean=rng.normal(size=(1, 4)), where=mask, ddof=0.5),
    ]


for _name, _function in (("var", np.var), ("std", np.std)):
    _rules = variance_rules(skip=False, root=_name == "std")
    _note = "0 where the deviation is 0" if _name == "std" else ""
    register(
        Op(
            _name,
            _function,
            Opaque(),
            [_plain(_rules.rules[0], True, None)],
            jvp=[_plain(_rules.jvp[0], True, None)],
            samples=spread_samples,
            operands=("a",),
            params=("axis", "dtype", "ddof", "keepdims", "correction"),
            batch=along(),
            methods=(_name,),
            general=general(
                f"{_name}.where", _function, DEVIATION, _rules, samples=centered_samples,
                note=_note,
            ),
            note=_note,
        )
    )  # fmt: skip

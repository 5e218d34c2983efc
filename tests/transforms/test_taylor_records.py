"""jet of every record, beside nested forward mode."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from curves import check, nested
from records import CORE

from adarray.base.op import OPS, Op
from adarray.errors import ADArrayError

pytestmark = pytest.mark.slow


def curves(op: Op) -> Iterator[tuple[Callable[..., Any], list[Any]]]:
    """Yield calls of an operation as functions of their floating operands."""
    rng = np.random.default_rng(1)
    if op.pointwise:
        args = []
        for low, high, *kind in op.samples:
            x = rng.uniform(low, high, 3) if not kind else rng.uniform(0.2, 0.8, 3)
            args.append(x > 0.5 if "bool" in kind else x)
        samples = [(tuple(args), {})]
    else:
        samples = [(s.args, s.kwargs) for s in op.samples(rng)]
    for args, kwargs in samples:
        places = [i for i, x in enumerate(args) if isinstance(x, np.ndarray) and x.dtype == float]
        places = [i for i in places if args[i].size]

        def f(*xs: Any, args: Any = args, kwargs: Any = kwargs, places: Any = places) -> Any:
            arguments = list(args)
            for i, x in zip(places, xs, strict=True):
                arguments[i] = x
            r = op.numpy(*arguments, **kwargs)
            r = r if op.invariants is None else op.invariants(r)
            parts = r if isinstance(r, tuple) else (r,)
            return np.concatenate([np.ravel(np.real(p)) for p in parts if p.dtype.kind in "fc"])

        if places:
            yield f, [args[i] for i in places]


# Samples of these hold lists of arrays, or arguments of other kinds; test_taylor.py has programs
# with some of them.
NOT_COMPARED = {
    "add.at", "concatenate", "einsum", "max.where", "mean.where", "min.where", "prod.where",
    "std.where", "sum.where", "var.where", "view",
}  # fmt: skip


@pytest.mark.parametrize("name", CORE)
def test_every_record_is_as_nested_forward_mode(name: str) -> None:
    rng = np.random.default_rng(2)
    compared = False
    for k, (f, primals) in enumerate(curves(OPS[name])):
        if k == 4:  # samples differ in axes, which rules see to
            break
        series = [[0.1 * rng.normal(size=x.shape) for _ in range(3)] for x in primals]
        try:
            with np.errstate(all="ignore"):
                nested(f, primals, series)
        except (ADArrayError, ValueError, TypeError, IndexError):
            continue  # not differentiated in forward mode, to this order, or with respect to it
        check(f, primals, series)
        compared = True
    assert compared == (name not in NOT_COMPARED)

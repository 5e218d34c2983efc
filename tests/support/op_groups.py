"""The samples of an operation record as one function, so that one compilation serves them all.

For tests of every record under `jit`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from adarray.base.op import Op
from adarray.core.dispatch import run
from adarray.testing._grads import dtype_of
from adarray.testing._ops import results
from adarray.testing._samples import Case, cases


class Group(NamedTuple):
    """Cases of one record as one function.

    Parameters
    ----------
    cases : list of Case
    leaves : list
        All arrays and floats among the operands, of all cases.
    function : callable
        Takes the leaves, returns one tuple of results for each case.
    """

    cases: list[Case]
    leaves: list[Any]
    function: Callable[..., Any]


def is_leaf(x: Any) -> bool:
    return isinstance(x, (np.ndarray, np.generic, float, complex))


def call(op: Op, operands: Any, params: dict[str, Any]) -> tuple[Any, ...]:
    if isinstance(op.numpy, np.ufunc) and not params:
        return results(op.numpy(*operands))
    return results(run(op, *operands, **params))


def grouped(op: Op, dtype: Any, wanted: Callable[[Case], bool]) -> Group:
    """Return the cases of a record as one function of all their operands."""
    chosen = [
        case
        for case in cases(op, np.dtype(dtype), np.random.default_rng(0))
        if wanted(case) and any(is_leaf(x) for x in case.operands)
    ]

    def function(*leaves: Any) -> Any:
        rest = iter(leaves)
        results = []
        for case in chosen:
            operands = [next(rest) if is_leaf(x) else x for x in case.operands]
            results.append(call(op, operands, case.params))
        return tuple(results)

    return Group(chosen, [x for c in chosen for x in c.operands if is_leaf(x)], function)


def moved(leaves: list[Any], seed: int) -> list[Any]:
    """Return other values of the same kinds: elements in another order."""
    rng = np.random.default_rng(seed)

    def shuffled(x: Any) -> Any:
        if not isinstance(x, np.ndarray) or x.dtype.kind not in "fc":
            return x
        y = np.empty_like(x) if 0 not in x.strides else x.copy("K")
        y[...] = rng.permutation(x.reshape(-1)).reshape(x.shape)
        return y

    return [shuffled(x) for x in leaves]


def operands_of(group: Group, leaves: list[Any]) -> Iterator[tuple[Case, list[Any]]]:
    rest = iter(leaves)
    for case in group.cases:
        yield case, [next(rest) if is_leaf(x) else x for x in case.operands]


def differentiable(op: Op, group: Group) -> tuple[int, ...]:
    """Return the positions of the leaves that have a rule and a floating dtype."""
    results, at = [], 0
    for case in group.cases:
        for i, x in enumerate(case.operands):
            if not is_leaf(x):
                continue
            has_rule = op.variadic or op.rules[i] is not None
            if has_rule and dtype_of(x).kind in "f":
                results.append(at)
            at += 1
    return tuple(results)

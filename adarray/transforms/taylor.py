"""jet: Taylor mode.

References
----------
- A. Griewank, A. Walther, "Evaluating Derivatives", 2nd ed., SIAM 2008, chapter 13.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import math
from collections.abc import Callable, Sequence
from typing import Any

from adarray.ad.forward import dual, split
from adarray.base.errors import ShapeError
from adarray.core.inplace import sync_if_view
from adarray.core.tangents import attach, tangent_of
from adarray.core.trace import Handle, tracing
from adarray.transforms.inputs import mirrored, plain_result
from adarray.transforms.modes import refuse_complex, run_moving, tangents_along
from adarray.transforms.running import check_function, check_returned
from adarray.transforms.tree import LeafPath, flatten, is_number
from adarray.transforms.variables import Variables, check_variables


def jet(
    f: Callable[..., Any],
    primals: Sequence[Any],
    series: Sequence[Any],
    factorial_scaled: bool = True,
    *,
    intercept: bool = True,
) -> Any:
    r"""Return the value of `f` and its derivatives along a curve: Taylor mode, to any order.

    Parameters
    ----------
    f : callable
        Returns an array, or a nest of arrays.
    primals : sequence
        Arguments of `f` at the start of the curve: arrays, numbers, or nests of them.
    series : sequence
        For each argument, a sequence of its derivatives along the curve: the first, the second and
        so on, each with the structure and shapes of the argument. All arguments have equally many.
    factorial_scaled : bool
        Whether `series` and the result are derivatives. If False, they are Taylor coefficients,
        that is, derivatives divided by factorials.
    intercept : bool
        Whether `f` may convert its arguments with ``np.asarray``, call `math` or SciPy, and fill
        arrays that it creates (see `adarray.intercept`). If False, such code raises `TraceError`.

    Returns
    -------
    y : structure of the result of `f`
    y_series : structure of the result, in whose leaves stand lists
        The derivatives of the result along the curve, as many as `series` has.

    Raises
    ------
    ShapeError
        If structures or shapes of the series differ from those of the primals, or their lengths
        differ.
    DTypeError
        If a primal is neither floating point nor complex, or the series of a real one is complex.
    NotDifferentiableError
        If an operation has no rule for forward mode.

    Notes
    -----
    With :math:`x(t) = x_0 + x_1 t + x_2 t^2/2 + \dots`, this computes the derivatives of
    :math:`f(x(t))` at 0 in one pass. To order k, a product takes about :math:`k^2/2` products,
    where nested calls of `jvp` take :math:`2^k`. Products, quotients, roots, exponentials,
    logarithms and trigonometric functions use recurrences; the series of other operations follow
    from their derivative rules. `jet` can be combined with the other transforms and with
    `adarray.jit`.

    References
    ----------
    A. Griewank, A. Walther: Evaluating Derivatives, 2nd ed., SIAM 2008, chapter 13.

    Examples
    --------
    >>> import numpy as np, adarray
    >>> y, derivatives = adarray.jet(np.sin, (np.pi,), ([1.0, 0.0, 0.0],))
    >>> np.array(derivatives).round(12)
    array([-1., -0.,  1.])
    """
    name = "jet"
    check_function(name, f)
    if not isinstance(primals, (tuple, list)) or not isinstance(series, (tuple, list)):
        raise TypeError(
            f"jet: primals is of type {type(primals).__name__} and series of type "
            f"{type(series).__name__}; pass a tuple each, with an item for each argument: "
            "jet(f, (x,), ([v, a],))"
        )
    trees = [Variables(x) for x in primals]
    for k, (x, tree) in enumerate(zip(primals, trees, strict=True)):
        check_variables(name, f"primals[{k}]", x, tree, False)
    order = _order(primals, series)
    terms = [tangents_along(name, trees, [s[k] for s in series]) for k in range(order)]
    xs = [x for tree in trees for x in tree.moving]
    wheres: list[Any] = [
        LeafPath(name, f"primals[{k}]", x, i)
        for k, (x, tree) in enumerate(zip(primals, trees, strict=True))
        for i in tree.places
    ]
    scales = [math.factorial(k + 1) if factorial_scaled else 1 for k in range(order)]
    with contextlib.ExitStack() as stack:
        levels = [stack.enter_context(tracing(name, forward=True)) for _ in range(order)]
        group = _series()(levels)
        stack.callback(group.close)
        duals = []
        for i, (x, where) in enumerate(zip(xs, wheres, strict=True)):
            leaf = None
            for level, ts, scale in zip(levels, terms, scales, strict=True):
                refuse_complex(where, x, ts[i])
                checked = dual(x, ts[i], level, where)  # for what it checks, too
                c: Any = tangent_of(checked, level)
                c = c if scale == 1 else c / scale
                if leaf is None:
                    leaf = checked
                attach(leaf, level, c)
            duals.append(leaf)
        y = run_moving(name, f, trees, duals, intercept, levels[-1])
        check_returned(name, y)
        leaves, rebuild = flatten(y)
        kind = mirrored((*xs, *(t for ts in terms for t in ts)))
        pairs = [_split(x, group, scales) if is_number(x) else (x, None) for x in leaves]
        low = levels[0]
        value = rebuild([plain_result(p, low, kind) for p, _ in pairs])
        coefficients = rebuild(
            [None if c is None else [plain_result(t, low, kind) for t in c] for _, c in pairs]
        )
        return value, coefficients


@functools.cache
def _series() -> Any:
    # What few programs need, and every import would wait for.
    return importlib.import_module("adarray.ad.series").Series


def _order(primals: Sequence[Any], series: Sequence[Any]) -> int:
    """Return how many terms the series have.

    Raises
    ------
    ShapeError
    """
    if len(primals) != len(series):
        raise ShapeError(
            f"jet: {len(primals)} primals and {len(series)} series; pass one series for each"
        )
    lengths = {len(s) if isinstance(s, (tuple, list)) else -1 for s in series}
    if lengths == set() or len(lengths) > 1 or min(lengths) < 1:
        counts = [len(s) if isinstance(s, (tuple, list)) else type(s).__name__ for s in series]
        raise ShapeError(
            f"jet: the series have {counts} terms; pass a list of derivatives for each primal, of "
            "all equally many and at least one"
        )
    return lengths.pop()


def _split(x: Any, group: Any, scales: list[int]) -> tuple[Any, list[Any]]:
    """Return the primal and the terms of a result."""
    terms = []
    for level, scale in zip(group.levels, scales, strict=True):
        t = split(x, level)[1]
        terms.append(t if scale == 1 else t * scale)
    primal = group.strip(sync_if_view(x)) if isinstance(x, Handle) else x
    return primal, terms

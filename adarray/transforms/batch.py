"""vmap: a function of one member, run for all members of a batch at once."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any, ParamSpec

from adarray.base.transformed import Transform, Transformed
from adarray.transforms.running import check_function, prepared

_P = ParamSpec("_P")


def vmap(
    f: Callable[_P, Any],
    in_axes: Any = 0,
    out_axes: Any = 0,
    *,
    intercept: bool = True,
) -> Callable[..., Any]:
    """Return a function that computes `f` for all members of a batch at once.

    Parameters
    ----------
    f : callable
        Plain NumPy code for a single member: takes and returns arrays, or nests of them.
    in_axes : int, None, or nest of them
        The axis of each argument along which the members of the batch lie, or None for an argument
        that all members share. One value for all arguments, or a tuple with one for each; for an
        argument that is a nest, a nest of axes. Members of keyword arguments lie along axis 0.
    out_axes : int, None, or nest of them
        The axis of each result along which to put the members, or None for a result that is the
        same for all members.
    intercept : bool
        Whether `f` may convert its arguments with ``np.asarray``, call `math` or SciPy, and fill
        arrays that it creates (see `adarray.intercept`).

    Returns
    -------
    callable
        Takes the arguments of `f`, with an additional axis according to `in_axes`, and returns the
        results of `f` with an additional axis according to `out_axes`.

    Raises
    ------
    ShapeError
        If arguments disagree about the size of the batch, an argument does not have the given axis,
        or members that take different branches return different shapes.
    TypeError
        If no argument has a batch axis, or `in_axes` or `out_axes` does not match the arguments or
        results.
    UnsupportedFunctionError
        If an operation has no batching rule.

    Notes
    -----
    Every operation is computed once for all members. Where Python reads a value that differs
    between members (``if x > 0``, ``while``, ``int(x)``, ``x[x > 0]``), the batch is split by the
    outcome, and `f` runs again for each part. The result is always right; in the worst case this is
    a loop over the members. Since `f` may run several times, its side effects, such as appending to
    a list, may be repeated.

    Random numbers that `f` draws are the same for all members that take the same branches.

    Examples
    --------
    >>> import numpy as np, adarray
    >>> dots = adarray.vmap(np.dot, in_axes=(0, None))
    >>> dots(np.eye(3), np.array([1.0, 2.0, 3.0]))
    array([1., 2., 3.])
    >>> def root(x):
    ...     return np.sqrt(x) if x > 0 else 0.0
    >>> adarray.vmap(root)(np.array([4.0, -1.0, 9.0]))
    array([2., 0., 3.])
    """
    check_function("vmap", f)
    if getattr(f, "adarray_jitted", False):  # what it compiles is that for all members
        jitted: Any = f
        of_member = jitted.__wrapped__
        batched: Callable[..., Any] = jitted.like(
            vmap(of_member, in_axes, out_axes, intercept=intercept)
        )
        return batched
    run = prepared(f, intercept)

    def transformed(*args: Any, **kwargs: Any) -> Any:
        return _members().run_members(f, run, args, kwargs, in_axes, out_axes)

    options = {"in_axes": in_axes, "out_axes": out_axes, "intercept": intercept}
    return Transformed(Transform(vmap, f, options), transformed)


def vmap_strictly(f: Callable[..., Any], in_axes: tuple[int | None, ...]) -> Callable[..., Any]:
    """As `vmap`, of a function that must not call jitted ones: see `Batch`."""

    def run_all(*args: Any) -> Any:
        return _members().run_members(f, f, args, {}, in_axes, 0, strict=True)

    return run_all


@functools.cache
def _members() -> Any:
    return importlib.import_module("adarray.transforms.members")  # with the rules, when needed

"""grad and value_and_grad: of functions with one real number as their value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, ParamSpec, TypeVar, overload

import numpy as np

from adarray.base.aval import Symbolic
from adarray.base.transformed import Transform, Transformed
from adarray.core.inplace import sync_if_view
from adarray.core.trace import Handle, tracing
from adarray.device import is_device
from adarray.transforms.inputs import (
    Argnums,
    Inputs,
    check_holomorphic,
    check_scalar,
    closed_tree,
    mirrored,
    plain_result,
)
from adarray.transforms.running import (
    by_position,
    check_function,
    prepared,
    with_aux,
    with_names,
)
from adarray.transforms.shared import refuse_unseen

_P = ParamSpec("_P")
_R = TypeVar("_R")


@overload
def value_and_grad(
    f: Callable[_P, _R],
    argnums: Argnums = 0,
    has_aux: Literal[False] = False,
    *,
    holomorphic: bool = False,
    allow_int: bool = False,
    intercept: bool = True,
) -> Callable[_P, tuple[_R, Any]]: ...


@overload
def value_and_grad(
    f: Callable[_P, _R],
    argnums: Argnums = 0,
    has_aux: bool = False,
    *,
    holomorphic: bool = False,
    allow_int: bool = False,
    intercept: bool = True,
) -> Callable[_P, tuple[Any, Any]]: ...


def value_and_grad(
    f: Callable[..., Any],
    argnums: Argnums = 0,
    has_aux: bool = False,
    *,
    holomorphic: bool = False,
    allow_int: bool = False,
    intercept: bool = True,
) -> Callable[..., Any]:
    """Return a function that computes the value of `f` and its gradient.

    Parameters
    ----------
    f : callable
        Plain NumPy code that returns a real scalar (with `has_aux`, a pair of a real scalar and
        anything else).
    argnums : int, str, or sequence of them
        Positions or names of the arguments to differentiate. Each may be an array, a number, or a
        nesting of lists, tuples, dicts, namedtuples and dataclasses of these, of floating or
        complex dtype. Other leaves (integers, text, functions, ...) are passed to `f` unchanged;
        their gradient is None.
    has_aux : bool
        Whether `f` returns a pair ``(value, aux)``.
    holomorphic : bool
        Whether `f` is an analytic function of complex arguments with a complex
        value; the gradient is then its complex derivative.
    allow_int : bool
        Whether to accept an argument without floating-point leaves; its gradient is None.
    intercept : bool
        Whether `f` may convert its arguments with ``np.asarray``, call `math` or SciPy, and fill
        arrays that it creates (see `adarray.intercept`). If False, such code raises `TraceError`.

    Returns
    -------
    callable
        Takes what `f` takes; returns ``(value, gradient)``, or ``((value, aux), gradient)``. The
        gradient has the structure, shapes and dtypes of the differentiated argument; for a sequence
        of `argnums`, it is a tuple of these. Plain arguments give new plain arrays, ADArrays give
        ADArrays.

    Raises
    ------
    ShapeError
        If the value is not a scalar.
    DTypeError
        If an argument has no leaf that is floating or complex, or the value is not real floating
        point (not complex, with `holomorphic`).
    TraceError
        If a value would leave the graph.
    NotDifferentiableError
        If `f` uses a function without a rule.

    Notes
    -----
    Reverse mode: time and memory grow with the number of operations in one call of `f`, not with
    the number of inputs.

    For a real value and a complex argument ``x + i y``, the gradient is ``df/dx - i df/dy``:
    gradient descent follows its negative conjugate.

    References
    ----------
    .. [1] A. Griewank and A. Walther, "Evaluating Derivatives", 2nd ed., SIAM,
       2008, chapter 3.

    Examples
    --------
    >>> import numpy as np, adarray
    >>> adarray.value_and_grad(lambda x: np.sum(np.sin(x) ** 2))(np.array([0.0, 1.0]))
    (np.float64(0.7080734182735712), array([0.        , 0.90929743]))
    """
    options = options_of(argnums, has_aux, holomorphic, allow_int, intercept)
    return reverse(Transform(value_and_grad, f, options), lambda value, g: (value, g))


def options_of(
    argnums: Argnums, has_aux: bool, holomorphic: bool, allow_int: bool, intercept: bool
) -> dict[str, Any]:
    """Return the arguments of `grad` and `value_and_grad` by their names."""
    return {
        "argnums": argnums, "has_aux": has_aux, "holomorphic": holomorphic,
        "allow_int": allow_int, "intercept": intercept,
    }  # fmt: skip


def grad(
    f: Callable[_P, Any],
    argnums: Argnums = 0,
    has_aux: bool = False,
    *,
    holomorphic: bool = False,
    allow_int: bool = False,
    intercept: bool = True,
) -> Callable[_P, Any]:
    """Return a function that computes the gradient of `f`.

    Parameters
    ----------
    f : callable
        Plain NumPy code that returns a real scalar (with `has_aux`, a pair of a real scalar and
        anything else).
    argnums : int, str, or sequence of them
        Positions or names of the arguments to differentiate. Each may be an array, a number, or a
        nesting of lists, tuples, dicts, namedtuples and dataclasses of these, of floating or
        complex dtype. Other leaves (integers, text, functions, ...) are passed to `f` unchanged;
        their gradient is None.
    has_aux : bool
        Whether `f` returns a pair ``(value, aux)``.
    holomorphic : bool
        Whether `f` is an analytic function of complex arguments with a complex
        value; the gradient is then its complex derivative.
    allow_int : bool
        Whether to accept an argument without floating-point leaves; its gradient is None.
    intercept : bool
        Whether `f` may convert its arguments with ``np.asarray``, call `math` or SciPy, and fill
        arrays that it creates (see `adarray.intercept`). If False, such code raises `TraceError`.

    Returns
    -------
    callable
        Takes what `f` takes; returns the gradient, or ``(gradient, aux)``. The gradient has the
        structure, shapes and dtypes of the differentiated argument; for a sequence of `argnums`, it
        is a tuple of these. Plain arguments give new plain arrays, ADArrays give ADArrays.

    Raises
    ------
    ShapeError, DTypeError, TraceError, NotDifferentiableError
        If the value is not a real scalar, an argument has no floating or complex leaf, a
        value would leave the graph, or `f` uses a function without a rule.

    Examples
    --------
    >>> import numpy as np, adarray
    >>> adarray.grad(lambda x: np.sum(x**3))(np.array([1.0, 2.0]))
    array([ 3., 12.])
    >>> adarray.grad(adarray.grad(np.tanh))(1.0)
    -0.6397000084492246
    """
    transform = Transform(grad, f, options_of(argnums, has_aux, holomorphic, allow_int, intercept))
    if has_aux:
        return reverse(transform, lambda value, g: (g, value[1]))
    return reverse(transform, lambda _, g: g)


def reverse(
    transform: Transform, combine: Callable[..., Any], name: str | None = None
) -> Transformed:
    """Return the function that walks back: `combine` of value and gradient.

    `name` is the transform that the user called, if that is not this one.
    """
    name, f = name or transform.function.__name__, transform.f
    argnums, has_aux, holomorphic, allow_int, intercept = transform.options.values()
    check_function(name, f)
    run = prepared(f, intercept)

    def transformed(*args: Any, **kwargs: Any) -> Any:
        places, call = argnums, run
        if type(argnums) is not int:
            args, kwargs, places, moved = by_position(name, f, args, kwargs, argnums)
            call = with_names(run, moved)
        with tracing(name) as level:
            inputs = Inputs(name, args, places, level, f, kwargs, allow_int)
            y = call(*inputs.args, **kwargs)
            if inputs.plain:
                refuse_unseen(f, f"{name}: argument", inputs.plain)
            aux = None
            if has_aux:
                y, aux = with_aux(name, y)
            y = sync_if_view(y)
            check_scalar(name, y, holomorphic)
            if holomorphic:
                check_holomorphic(name, inputs.originals)
            node = y._node if isinstance(y, Handle) else None
            seeds = [] if node is None else [(node, _one_like(y))]
            g = inputs.pull(seeds, release=True)
            kind = mirrored(inputs.originals)
            value = plain_result(y, level, kind)
            if has_aux:
                value = (value, closed_tree(aux, level, kind))
            return combine(value, g)

    return Transformed(transform, transformed)


def _one_like(y: Any) -> Any:
    """Return the cotangent 1 of a traced scalar, where its value is."""
    dtype = y._node.aval.dtype
    v = y._plain.value if isinstance(y._plain, Symbolic) else y._plain
    return np.ones_like(v, dtype)[()] if is_device(v) else dtype.type(1)

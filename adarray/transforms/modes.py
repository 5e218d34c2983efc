"""vjp, jvp and no_grad."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, ParamSpec, TypeVar, overload

import numpy as np

from adarray.ad.forward import dual, split
from adarray.base.aval import BATCHED
from adarray.base.errors import DTypeError, ShapeError
from adarray.base.levels import LEVEL, close_again, reopen
from adarray.base.runtime import MODE, Mode, current_mode
from adarray.core.graph import Node
from adarray.core.inplace import sync_if_view
from adarray.core.protocol import followed
from adarray.core.trace import Handle, root_of, tracing
from adarray.device import KINDS, adopt, is_device
from adarray.transforms.inputs import (
    Inputs,
    closed_tree,
    has_memory,
    mirrored,
    plain_result,
)
from adarray.transforms.running import check_function, check_returned, prepared, with_aux
from adarray.transforms.shared import ArgumentPlace, refuse_unseen, remember, tie
from adarray.transforms.tree import LeafPath, flatten, is_number
from adarray.transforms.variables import Variables, check_variables

_P = ParamSpec("_P")
_R = TypeVar("_R")


@overload
def vjp(
    f: Callable[..., _R],
    *xs: Any,
    has_aux: Literal[False] = False,
    allow_int: bool = False,
    intercept: bool = True,
) -> tuple[_R, Callable[[Any], tuple[Any, ...]]]: ...


@overload
def vjp(
    f: Callable[..., Any],
    *xs: Any,
    has_aux: bool,
    allow_int: bool = False,
    intercept: bool = True,
) -> Any: ...


def vjp(
    f: Callable[..., Any],
    *xs: Any,
    has_aux: bool = False,
    allow_int: bool = False,
    intercept: bool = True,
) -> Any:
    """Return the value of `f` and the function that pulls cotangents back.

    Parameters
    ----------
    f : callable
        Returns an array, or a nest of arrays.
    *xs : array, number, or nest of them
        Arguments of `f`; all are differentiated. Leaves that are not floating point are passed to
        `f` unchanged; their cotangent is None.
    has_aux : bool
        Whether `f` returns a pair ``(y, aux)``.
    allow_int : bool
        Whether to accept an argument without floating-point leaves; its cotangent is None.
    intercept : bool
        Whether `f` may convert its arguments with ``np.asarray``, call `math` or SciPy, and fill
        arrays that it creates (see `adarray.intercept`). If False, such code raises `TraceError`.

    Returns
    -------
    y : structure of the result of `f`
    pullback : callable
        ``pullback(g)``, where `g` has the structure and shapes of `y`, returns a tuple of
        cotangents, one for each of `xs`. It can be called many times. Entries of `g` for results
        that are not floating point are ignored, and may be None.
    aux
        Only with `has_aux`.

    Raises
    ------
    ShapeError
        From the pullback, if the structure or shape of the cotangent differs from that of y.
    DTypeError
        If an argument has no floating or complex leaf. From the pullback, if the cotangent of a
        real array is complex.

    Notes
    -----
    Cotangents g and tangents t are paired as ``Re(sum(g * t))``, without a conjugate: the pullback
    of ``A @ x`` is ``A.T @ g``, also for complex A.

    Examples
    --------
    >>> import numpy as np, adarray
    >>> y, pullback = adarray.vjp(np.sin, np.array([0.0, np.pi]))
    >>> pullback(np.array([1.0, 10.0]))
    (array([  1., -10.]),)
    """
    check_function("vjp", f)
    with tracing("vjp") as level:
        inputs = Inputs("vjp", xs, tuple(range(len(xs))), level, f, None, allow_int)
        y = prepared(f, intercept)(*inputs.args)
        if inputs.plain:
            refuse_unseen(f, "vjp: argument", inputs.plain)
        aux = None
        if has_aux:
            y, aux = with_aux("vjp", y)
        check_returned("vjp", y)
        results = Variables(y)
        moving = results.moving
        # Later in-place updates of a result must not move the pullback's start.
        nodes = [sync_if_view(x)._node if isinstance(x, Handle) else None for x in moving]
        shapes = [np.shape(x._plain if isinstance(x, Handle) else x) for x in moving]
        places = [
            x._plain.library.place if isinstance(x, Handle) and is_device(x._plain) else None
            for x in moving
        ]
        kind = mirrored(inputs.originals)
        value = results.rebuilt([plain_result(x, level, kind) for x in results.leaves])
        closed_aux = closed_tree(aux, level, kind)

    inputs.closed = True
    results.emptied()

    def pullback(g: Any) -> Any:
        cotangents = results.along(g)
        if cotangents is None or any(
            shape_of(c) != s for c, s in zip(cotangents, shapes, strict=True)
        ):
            if cotangents is None and not results.whole:
                raise ShapeError(
                    "vjp: the cotangent has another structure than the result; they must be equal"
                )
            got = [shape_of(c) for c in cotangents or flatten(g)[0]]
            raise ShapeError(
                f"vjp: the cotangent has shapes {got} and the result {shapes}; they must be equal"
            )
        reopen(level)
        token = LEVEL.set(level)
        try:
            seeds = [
                (n, as_cotangent(c, n, place))
                for n, c, place in zip(nodes, cotangents, places, strict=True)
                if n is not None
            ]
            return inputs.pull(seeds)
        finally:
            LEVEL.reset(token)
            close_again(level)

    return (value, pullback, closed_aux) if has_aux else (value, pullback)


def shape_of(x: Any) -> tuple[int, ...]:
    """Return the shape of an array, of a device or not, or a number."""
    shape: tuple[int, ...] = x.shape if hasattr(x, "shape") else np.shape(x)
    return shape


def as_cotangent(c: Any, node: Node, place: Any = None) -> Any:
    """Return a cotangent as a walk from a node begins with it."""
    if type(c) in KINDS:
        c = adopt(c).astype(node.aval.dtype)
    if np.iscomplexobj(c) and node.aval.dtype.kind == "f":
        raise DTypeError(
            f"vjp: the cotangent is complex and the result {node.aval.dtype}; pass a real one"
        )
    if isinstance(c, Handle) and place is not None and not followed(c):
        root_of(sync_if_view(c))._frozen = True  # the gradient may be this very array
        c = c._plain if is_device(c._plain) else c
    if isinstance(c, Handle):
        handle: Any = c
        return c if handle.dtype == node.aval.dtype else handle.astype(node.aval.dtype)
    if type(c) in BATCHED:
        return c if c.dtype == node.aval.dtype else c.astype(node.aval.dtype)
    array = c.astype(node.aval.dtype, copy=False) if is_device(c) else None
    array = np.array(c, dtype=node.aval.dtype) if array is None else array
    return (array if place is None else place(array))[()]


def jvp(
    f: Callable[..., _R],
    primals: Sequence[Any],
    tangents: Sequence[Any],
    has_aux: bool = False,
    *,
    allow_int: bool = False,
    intercept: bool = True,
) -> Any:
    """Return the value of `f` and its derivative along `tangents`: forward mode.

    Parameters
    ----------
    f : callable
        Returns an array, or a nest of arrays.
    primals : sequence
        Arguments of `f`: arrays, numbers, or nests of them.
    tangents : sequence
        Directions, with the structure and shapes of `primals`. Entries for leaves that are not
        floating point are ignored, and may be None.
    has_aux : bool
        Whether `f` returns a pair ``(y, aux)``.
    allow_int : bool
        Whether to accept an argument without floating-point leaves.
    intercept : bool
        Whether `f` may convert its arguments with ``np.asarray``, call `math` or SciPy, and fill
        arrays that it creates (see `adarray.intercept`). If False, such code raises `TraceError`.

    Returns
    -------
    y, dy : structure of the result of `f`
        The tangent of integers and booleans is zero, that of results that are not numbers is None.
    aux
        Only with `has_aux`.

    Raises
    ------
    ShapeError
        If the shape of a tangent differs from that of its primal, or the structures differ.
    DTypeError
        If an argument has no floating-point or complex leaf, or the tangent of a real one is
        complex.

    Notes
    -----
    Tangents are computed along with each operation and nothing is stored: this takes twice the
    memory of `f` itself.

    Examples
    --------
    >>> import numpy as np, adarray
    >>> adarray.jvp(np.square, (np.array([1.0, 2.0]),), (np.array([1.0, 0.5]),))
    (array([1., 4.]), array([2., 2.]))
    """
    y, dy, aux = forward("jvp", f, primals, tangents, intercept, has_aux, allow_int)
    return (y, dy, aux) if has_aux else (y, dy)


def forward(
    name: str,
    f: Callable[..., Any],
    primals: Sequence[Any],
    tangents: Sequence[Any],
    intercept: bool,
    has_aux: bool = False,
    allow_int: bool = False,
) -> tuple[Any, Any, Any]:
    """Return value, tangent and what `f` returned besides, as `jvp` does; `name` is for errors."""
    if not isinstance(primals, (tuple, list)) or not isinstance(tangents, (tuple, list)):
        raise TypeError(
            f"{name}: primals is of type {type(primals).__name__} and tangents of type "
            f"{type(tangents).__name__}; pass a tuple each, with an item for each argument: "
            f"{name}(f, (x,), (v,))"
        )
    check_function(name, f)
    trees = [Variables(x) for x in primals]
    for k, (x, tree) in enumerate(zip(primals, trees, strict=True)):
        check_variables(name, f"primals[{k}]", x, tree, allow_int)
    xs = [x for tree in trees for x in tree.moving]
    ts = tangents_along(name, trees, tangents)
    wheres: list[Any] = [
        LeafPath(name, f"primals[{k}]", x, i)
        for k, (x, tree) in enumerate(zip(primals, trees, strict=True))
        for i in tree.places
    ]
    with tracing(name, forward=True) as level:
        duals = []
        for x, t, where in zip(xs, ts, wheres, strict=True):
            refuse_complex(where, x, t)
            duals.append(dual(x, t, level, where))
        y = run_moving(name, f, trees, duals, intercept, level)
        aux = None
        if has_aux:
            y, aux = with_aux(name, y)
        check_returned(name, y)
        leaves, rebuild_y = flatten(y)
        pairs = [split(x, level) if is_number(x) else (x, None) for x in leaves]
        kind = mirrored((*xs, *ts))
        primal = rebuild_y([plain_result(p, level, kind) for p, _ in pairs])
        tangent = rebuild_y([plain_result(t, level, kind) for _, t in pairs])
        return primal, tangent, closed_tree(aux, level, kind)


def run_moving(
    name: str,
    f: Callable[..., Any],
    trees: list[Variables],
    duals: list[Any],
    intercept: bool,
    level: int,
) -> Any:
    """Call `f` with arguments whose variables have tangents.

    Writes into these must be seen, where others share their memory.
    """
    xs = [x for tree in trees for x in tree.moving]
    plain = [
        (i, x, d, d._plain)
        for i, (x, d) in enumerate(zip(xs, duals, strict=True))
        if has_memory(x) and has_memory(d)
    ]
    constants = [
        ArgumentPlace(f"{name}: input {k}", x, None)
        for k, tree in enumerate(trees)
        if not tree.whole
        for x in tree.constants
        if has_memory(x)
    ]
    if len(plain) + len(constants) > 1:
        tie(f, [ArgumentPlace(f"{name}: input {i}", x, d) for i, x, d, _ in plain] + constants)
    if plain:
        remember(f"{name}: input", level, plain)
    y = prepared(f, intercept)(*_arguments(trees, duals))
    if plain:
        refuse_unseen(f, f"{name}: input", plain)
    return y


def refuse_complex(where: Any, x: Any, t: Any) -> None:
    """Raise if the tangent `t` of a real number `x` is complex.

    Raises
    ------
    DTypeError
    """
    dtype = x.dtype if hasattr(x, "dtype") else np.result_type(x)
    if dtype.kind == "f" and (t.dtype.kind == "c" if type(t) in KINDS else np.iscomplexobj(t)):
        raise DTypeError(
            f"{where}: has dtype {dtype} and its tangent is complex; pass "
            "a real tangent, or the primal as a complex number"
        )


def tangents_along(name: str, trees: list[Variables], tangents: Sequence[Any]) -> list[Any]:
    """Return the tangents of the variables of all arguments."""
    by_argument = None
    if len(trees) == len(tangents):
        by_argument = [tree.along(t) for tree, t in zip(trees, tangents, strict=True)]
    if by_argument is None or any(ts is None for ts in by_argument):
        count = len(flatten(tuple(tangents))[0])
        raise ShapeError(
            f"{name}: primals hold {sum(len(tree.places) for tree in trees)} arrays and tangents "
            f"{count}; their structures must be equal"
        )
    return [t for ts in by_argument for t in ts or ()]


def _arguments(trees: list[Variables], values: list[Any]) -> list[Any]:
    """Return the arguments with these values of their variables."""
    rest = iter(values)
    return [tree.argument(list(itertools.islice(rest, len(tree.places)))) for tree in trees]


@contextlib.contextmanager
def no_grad() -> Iterator[None]:
    """Compute without recording: results are constants, and leaves may be updated.

    Examples
    --------
    >>> import numpy as np, adarray
    >>> w = adarray.array([1.0, 2.0], requires_grad=True)
    >>> np.sum(w * w).backward()
    >>> with adarray.no_grad():
    ...     w -= 0.1 * w.grad
    >>> w.numpy()
    array([0.8, 1.6])
    """
    mode = current_mode()
    token = MODE.set(Mode(mode.engine, record=False, name=mode.name))
    try:
        yield
    finally:
        MODE.reset(token)

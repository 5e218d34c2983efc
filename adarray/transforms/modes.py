"""vjp, jvp and no_grad."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, ParamSpec, TypeVar, overload

import numpy as np

from adarray.ad.forward import dual, split
from adarray.device import KINDS, adopt, is_device
from adarray.errors import DTypeError, ShapeError
from adarray.graph import Node
from adarray.inplace import sync_if_view
from adarray.levels import LEVEL
from adarray.protocol import followed
from adarray.runtime import MODE, Mode, current_mode
from adarray.trace import Handle, root_of, tracing
from adarray.transforms.inputs import (
    Inputs,
    closed_tree,
    has_memory,
    mirrored,
    plain_result,
)
from adarray.transforms.running import check_function, prepared, with_aux
from adarray.transforms.shared import Place, refuse_unseen, tie
from adarray.transforms.tree import Leaf, flatten

_P = ParamSpec("_P")
_R = TypeVar("_R")


@overload
def vjp(
    f: Callable[..., _R], *xs: Any, has_aux: Literal[False] = False, intercept: bool = True
) -> tuple[_R, Callable[[Any], tuple[Any, ...]]]: ...


@overload
def vjp(f: Callable[..., Any], *xs: Any, has_aux: bool, intercept: bool = True) -> Any: ...


def vjp(f: Callable[..., Any], *xs: Any, has_aux: bool = False, intercept: bool = True) -> Any:
    """Return the value of `f` and the function that pulls cotangents back.

    Parameters
    ----------
    f : callable
        Returns an array, or a nest of arrays.
    *xs : array, number, or nest of them
        Arguments of `f`; all are differentiated.
    has_aux : bool
        Whether `f` returns a pair ``(y, aux)``.
    intercept : bool
        Whether `f` may convert its arguments by ``np.asarray``, call `math` or SciPy, or fill
        arrays that it has made (see `adarray.intercept`). If False, such code raises
        `TraceError`.

    Returns
    -------
    y : structure of the result of `f`
    pullback : callable
        ``pullback(g)``, with `g` of the structure and shapes of `y`, returns a
        tuple of cotangents, one for each of `xs`. It can be called many times.
    aux
        Only with `has_aux`.

    Raises
    ------
    ShapeError
        From the pullback, if the cotangent has another structure or shape than y.
    DTypeError
        If all results are integers or truth values. From the pullback, if the cotangent
        of a real array is complex.

    Notes
    -----
    Cotangents g and tangents t are paired as ``Re(sum(g * t))``, without a
    conjugate: the pullback of ``A @ x`` is ``A.T @ g``, for complex A too.

    Examples
    --------
    >>> import numpy as np, adarray
    >>> y, pullback = adarray.vjp(np.sin, np.array([0.0, np.pi]))
    >>> pullback(np.array([1.0, 10.0]))
    (array([  1., -10.]),)
    """
    check_function("vjp", f)
    with tracing("vjp") as level:
        inputs = Inputs("vjp", xs, tuple(range(len(xs))), level, f)
        y = prepared(f, intercept)(*inputs.args)
        if inputs.plain:
            refuse_unseen(f, "vjp: argument", inputs.plain)
        aux = None
        if has_aux:
            y, aux = with_aux("vjp", y)
        leaves, rebuild = flatten(y)
        # Later in-place updates of a result must not move the pullback's start.
        nodes = [sync_if_view(x)._node if isinstance(x, Handle) else None for x in leaves]
        shapes = [np.shape(x._v if isinstance(x, Handle) else x) for x in leaves]
        places = [
            x._v.library.place if isinstance(x, Handle) and is_device(x._v) else None
            for x in leaves
        ]
        given = mirrored(inputs.given)
        value = rebuild([plain_result(x, level, given) for x in leaves])
        closed_aux = closed_tree(aux, level, given)

    inputs.closed = True

    def pullback(g: Any) -> Any:
        cotangents, _ = flatten(g)
        if len(cotangents) != len(shapes) or any(
            shape_of(c) != s for c, s in zip(cotangents, shapes, strict=True)
        ):
            raise ShapeError(
                f"vjp: the cotangent has shapes {[shape_of(c) for c in cotangents]} and the "
                f"result {shapes}; they must be equal"
            )
        token = LEVEL.set(level)
        try:
            seeds = [
                (n, _as_cotangent(c, n, place))
                for n, c, place in zip(nodes, cotangents, places, strict=True)
                if n is not None
            ]
            return inputs.pull(seeds)
        finally:
            LEVEL.reset(token)

    return (value, pullback, closed_aux) if has_aux else (value, pullback)


def shape_of(x: Any) -> tuple[int, ...]:
    """Return the shape of an array, of a device or not, or a number."""
    shape: tuple[int, ...] = x.shape if hasattr(x, "shape") else np.shape(x)
    return shape


def _as_cotangent(c: Any, node: Node, place: Any = None) -> Any:
    if type(c) in KINDS:
        c = adopt(c).astype(node.aval.dtype)
    if np.iscomplexobj(c) and node.aval.dtype.kind == "f":
        raise DTypeError(
            f"vjp: the cotangent is complex and the result {node.aval.dtype}; pass a real one"
        )
    if isinstance(c, Handle) and place is not None and not followed(c):
        root_of(sync_if_view(c))._frozen = True  # the gradient may be this very array
        c = c._v if is_device(c._v) else c
    if isinstance(c, Handle):
        given: Any = c
        return c if given.dtype == node.aval.dtype else given.astype(node.aval.dtype)
    made = c.astype(node.aval.dtype, copy=False) if is_device(c) else None
    made = np.array(c, dtype=node.aval.dtype) if made is None else made
    return (made if place is None else place(made))[()]


def jvp(
    f: Callable[..., _R],
    primals: Sequence[Any],
    tangents: Sequence[Any],
    has_aux: bool = False,
    *,
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
        Directions, of the structure and shapes of `primals`.
    has_aux : bool
        Whether `f` returns a pair ``(y, aux)``.
    intercept : bool
        Whether `f` may convert its arguments by ``np.asarray``, call `math` or SciPy, or fill
        arrays that it has made (see `adarray.intercept`). If False, such code raises
        `TraceError`.

    Returns
    -------
    y, dy : structure of the result of `f`
    aux
        Only with `has_aux`.

    Raises
    ------
    ShapeError
        If a tangent has another shape than its primal, or the structures differ.
    DTypeError
        If a primal is neither floating nor complex, or the tangent of a real one
        is complex.

    Notes
    -----
    Tangents are computed with each operation and nothing is stored: memory is
    that of `f` itself, twice.

    Examples
    --------
    >>> import numpy as np, adarray
    >>> adarray.jvp(np.square, (np.array([1.0, 2.0]),), (np.array([1.0, 0.5]),))
    (array([1., 4.]), array([2., 2.]))
    """
    y, dy, aux = forward("jvp", f, primals, tangents, intercept, has_aux)
    return (y, dy, aux) if has_aux else (y, dy)


def forward(
    name: str,
    f: Callable[..., Any],
    primals: Sequence[Any],
    tangents: Sequence[Any],
    intercept: bool,
    has_aux: bool = False,
) -> tuple[Any, Any, Any]:
    """Return value, tangent and what `f` returned besides, as `jvp` does; `name` is for errors."""
    if not isinstance(primals, (tuple, list)) or not isinstance(tangents, (tuple, list)):
        raise TypeError(f"{name}: primals and tangents are a tuple or list of arguments each")
    check_function(name, f)
    xs, rebuild = flatten(tuple(primals))
    ts, _ = flatten(tuple(tangents))
    if len(xs) != len(ts):
        raise ShapeError(
            f"{name}: primals hold {len(xs)} arrays and tangents {len(ts)}; their structures "
            "must be equal"
        )
    with tracing(name) as level:
        duals = []
        for i, (x, t) in enumerate(zip(xs, ts, strict=True)):
            where: Any = Leaf(name, "primals", tuple(primals), i)
            dtype = x.dtype if hasattr(x, "dtype") else np.result_type(x)
            if dtype.kind not in "fc":
                raise DTypeError(
                    f"{where}: has dtype {dtype}; pass floating point, for instance x.astype(float)"
                )
            if dtype.kind == "f" and (
                t.dtype.kind == "c" if type(t) in KINDS else np.iscomplexobj(t)
            ):
                raise DTypeError(
                    f"{where}: has dtype {dtype} and its tangent is complex; pass "
                    "a real tangent, or the primal as a complex number"
                )
            duals.append(dual(x, t, level, where))
        places = [
            Place(f"{name}: input {i}", x, d)
            for i, (x, d) in enumerate(zip(xs, duals, strict=True))
            if has_memory(x) and has_memory(d)
        ]
        if len(places) > 1:
            tie(f, places)
        plain = [
            (i, x, d, d._v)
            for i, (x, d) in enumerate(zip(xs, duals, strict=True))
            if has_memory(x) and has_memory(d)
        ]
        y = prepared(f, intercept)(*rebuild(duals))
        if plain:
            refuse_unseen(f, f"{name}: input", plain)
        aux = None
        if has_aux:
            y, aux = with_aux(name, y)
        leaves, rebuild_y = flatten(y)
        pairs = [split(x, level) for x in leaves]
        given = mirrored((*xs, *ts))
        primal = rebuild_y([plain_result(p, level, given) for p, _ in pairs])
        tangent = rebuild_y([plain_result(t, level, given) for _, t in pairs])
        return primal, tangent, closed_tree(aux, level, given)


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

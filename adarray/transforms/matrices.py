"""jacobian and hessian."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec

import numpy as np

from adarray.aval import Symbolic
from adarray.errors import DTypeError, ForwardModeError
from adarray.levels import forget
from adarray.protocol import traced
from adarray.trace import Handle, is_weak
from adarray.transformed import Transform, Transformed
from adarray.transforms.gradients import grad, options_of, reverse
from adarray.transforms.inputs import Argnums, check_holomorphic, pick, refuse_whole
from adarray.transforms.modes import jvp, vjp
from adarray.transforms.running import check_function, prepared
from adarray.transforms.tree import Leaf, flatten, is_array

_P = ParamSpec("_P")


def _shape_of(x: Any) -> tuple[int, ...]:
    return tuple(np.shape(x))


def _basis(shapes: list[tuple[int, ...]], dtypes: list[Any]) -> Any:
    """Yield (leaf, element, one-hot arrays of all leaves) for every element of every leaf."""
    for k, shape in enumerate(shapes):
        for e in range(int(np.prod(shape, dtype=int))):
            arrays = [np.zeros(s, d) for s, d in zip(shapes, dtypes, strict=True)]
            arrays[k].reshape(-1)[e] = 1
            yield k, e, [a[()] for a in arrays]


def _dtype(x: Any) -> Any:
    return x.dtype if hasattr(x, "dtype") else np.result_type(x)


def jacobian(
    f: Callable[_P, Any],
    argnums: Argnums = 0,
    mode: str = "auto",
    *,
    holomorphic: bool = False,
    intercept: bool = True,
) -> Callable[_P, Any]:
    """Return a function that computes the Jacobian of `f`.

    Parameters
    ----------
    f : callable
        Returns an array, or a nest of arrays.
    argnums : int or sequence of int
        Positions of the arguments to differentiate; each an array or a nest.
    mode : {"auto", "forward", "reverse"}
        ``forward`` costs one pass per input element, ``reverse`` one per output
        element; ``auto`` takes what has fewer.
    holomorphic : bool
        Whether `f` is an analytic function of complex arguments; the Jacobian is
        then that of complex derivatives.
    intercept : bool
        Whether `f` may convert its arguments by ``np.asarray``, call `math` or SciPy, or fill
        arrays that it has made (see `adarray.intercept`). If False, such code raises
        `TraceError`.

    Returns
    -------
    callable
        Takes what `f` takes. For arrays in and out, returns an array of shape
        ``y.shape + x.shape``. For nests: the structure of the result, in whose
        leaves stands the structure of the argument. A tuple for a sequence of
        `argnums`.

    Raises
    ------
    ValueError
        If `mode` is unknown.
    DTypeError
        If all results are integers or truth values; if arguments and results are complex
        without `holomorphic`; or if one side is complex and `mode` asks for a pass per
        complex element: real functions of complex arguments need ``reverse``, complex
        ones of real arguments ``forward``.

    Examples
    --------
    >>> import numpy as np, adarray
    >>> adarray.jacobian(lambda x: x[:, None] * x)(np.array([1.0, 2.0])).shape
    (2, 2, 2)
    """
    if mode not in ("auto", "forward", "reverse"):
        raise ValueError(f"jacobian: mode {mode!r}; one of 'auto', 'forward', 'reverse'")

    check_function("jacobian", f)
    options = {
        "argnums": argnums, "mode": mode, "holomorphic": holomorphic, "intercept": intercept,
    }  # fmt: skip
    transform = Transform(jacobian, f, options)
    run = prepared(f, intercept)

    def transformed(*args: Any, **kwargs: Any) -> Any:
        picked = pick("jacobian", args, argnums)

        def of_picked(*xs: Any) -> Any:
            full = list(args)
            for k, x in zip(picked, xs, strict=True):
                full[k] = x
            return run(*full, **kwargs)

        xs = tuple(args[k] for k in picked)
        in_leaves, in_rebuild = flatten(xs)
        _check_arguments("jacobian", args, picked)
        if holomorphic:
            check_holomorphic("jacobian", in_leaves)
        complex_in = not holomorphic and any(_dtype(x).kind == "c" for x in in_leaves)
        single = isinstance(argnums, int)
        in_size = sum(int(np.size(_plain(x))) for x in in_leaves)
        if mode != "forward":
            y, pullback = vjp(of_picked, *xs, intercept=False)
            out_leaves, out_rebuild = flatten(y)
            refuse_whole("jacobian", out_leaves)
            out_size = sum(int(np.size(_plain(v))) for v in out_leaves)
            complex_out = not holomorphic and any(_dtype(v).kind == "c" for v in out_leaves)
            if complex_out and (complex_in or mode == "reverse"):
                raise _not_real("forward")
            if mode == "reverse" or complex_in or (out_size <= in_size and not complex_out):
                rows = _reverse_rows(pullback, out_leaves, out_rebuild)
                return _assemble(
                    rows, out_leaves, in_leaves, out_rebuild, in_rebuild, single, "reverse"
                )
        if complex_in:
            raise _not_real("reverse")
        try:
            found = _forward_columns(of_picked, in_leaves, in_rebuild)
        except ForwardModeError as error:
            if mode == "forward" or complex_out:
                raise
            forget(error)
            rows = _reverse_rows(pullback, out_leaves, out_rebuild)
            way = "reverse"
        else:
            rows, out_leaves, out_rebuild = found
            way = "forward"
        return _assemble(rows, out_leaves, in_leaves, out_rebuild, in_rebuild, single, way)

    return Transformed(transform, transformed)


def _check_arguments(name: str, args: tuple[Any, ...], picked: list[int]) -> None:
    """Raise unless all leaves of the differentiated arguments can be differentiated.

    Raises
    ------
    DTypeError
    """
    for k in picked:
        for i, x in enumerate(flatten(args[k])[0]):
            where = Leaf(name, k, args[k], i)
            if not is_array(x):
                raise DTypeError(
                    f"{where}: is a {type(x).__name__}, not an array or a number; choose the "
                    "arguments to differentiate with argnums"
                )
            if _dtype(x).kind not in "fc":
                raise DTypeError(
                    f"{where}: has non-floating dtype {_dtype(x)}, which has no real derivative "
                    "here; pass floating point, for instance x.astype(float) or 3.0 for 3"
                )


def _not_real(mode: str) -> DTypeError:
    return DTypeError(
        "jacobian: complex numbers have two directions each, and one pass per element finds one; "
        f"pass holomorphic=True for an analytic function, or mode={mode!r} where only the other "
        "side is complex, or view complex arrays as pairs of real numbers"
    )


def _plain(x: Any) -> Any:
    return x._v if hasattr(x, "_v") else x


def _reverse_rows(pullback: Any, out_leaves: list[Any], out_rebuild: Any) -> Any:
    """Return, per output leaf, the list of input cotangents of each of its elements."""
    shapes = [_shape_of(v) for v in out_leaves]
    dtypes = [_dtype(v) for v in out_leaves]
    rows: list[list[Any]] = [[] for _ in out_leaves]
    for k, _, hot in _basis(shapes, dtypes):
        rows[k].append(flatten(pullback(out_rebuild(hot)))[0])
    return rows


def _forward_columns(f: Any, in_leaves: list[Any], in_rebuild: Any) -> Any:
    """Return, per input leaf, the list of output tangents of each of its elements."""
    shapes = [_shape_of(x) for x in in_leaves]
    dtypes = [_dtype(x) for x in in_leaves]
    columns: list[list[Any]] = [[] for _ in in_leaves]
    primals = in_rebuild(in_leaves)
    out_leaves, out_rebuild = None, None
    for k, _, hot in _basis(shapes, dtypes):
        y, dy = jvp(f, primals, in_rebuild(hot), intercept=False)
        out_leaves, out_rebuild = flatten(y)
        columns[k].append(flatten(dy)[0])
    if out_leaves is None:
        out_leaves, out_rebuild = flatten(f(*primals))
    refuse_whole("jacobian", out_leaves)
    return columns, out_leaves, out_rebuild


def _number(block: Any, x: Any) -> Any:
    """Return a derivative of a number by a number as what `grad` gives for it."""
    if isinstance(block, Handle):
        recorded = isinstance(x, Handle) and isinstance(x._v, Symbolic) and is_weak(x)
        return block._v.item() if recorded and not traced(block) else block
    if isinstance(x, np.ndarray):
        return block
    return block[()] if isinstance(x, (np.generic, Handle)) else block.item()


def _assemble(
    parts: list[list[Any]],
    out_leaves: list[Any],
    in_leaves: list[Any],
    out_rebuild: Any,
    in_rebuild: Any,
    single: bool,
    mode: str,
) -> Any:
    """Put rows (reverse) or columns (forward) together into arrays of shape y + x."""
    blocks = []
    for o, y in enumerate(out_leaves):
        row = []
        for i, x in enumerate(in_leaves):
            y_shape, x_shape = _shape_of(y), _shape_of(x)
            pieces = [p[i] for p in parts[o]] if mode == "reverse" else [p[o] for p in parts[i]]
            if not pieces:
                row.append(np.zeros(y_shape + x_shape, _dtype(y)))
                continue
            axis = 0 if mode == "reverse" else -1
            block = np.reshape(np.stack(pieces, axis=axis), y_shape + x_shape)
            row.append(block if block.ndim else _number(block, x))
        built = in_rebuild(row)
        blocks.append(built[0] if single else built)
    return out_rebuild(blocks)


def hessian(
    f: Callable[_P, Any], argnums: Argnums = 0, *, intercept: bool = True
) -> Callable[_P, Any]:
    """Return a function that computes the Hessian of a scalar function.

    Parameters
    ----------
    f : callable
        Returns a real scalar.
    argnums : int or sequence of int
        Positions of the arguments to differentiate; real arrays.
    intercept : bool
        Whether `f` may convert its arguments by ``np.asarray``, call `math` or SciPy, or fill
        arrays that it has made (see `adarray.intercept`). If False, such code raises
        `TraceError`.

    Returns
    -------
    callable
        Takes what `f` takes. For an array x, returns an array of shape
        ``x.shape + x.shape``; for nests, a nest in whose leaves stands a nest.

    Notes
    -----
    Forward mode over reverse mode: one gradient, with tangents, per element of
    the argument. Reverse over reverse, where an operation has no rule of forward mode.

    Examples
    --------
    >>> import numpy as np, adarray
    >>> adarray.hessian(lambda x: np.sum(x**3))(np.array([1.0, 2.0]))
    array([[ 6.,  0.],
           [ 0., 12.]])
    """
    check_function("hessian", f)
    transform = Transform(hessian, f, {"argnums": argnums, "intercept": intercept})
    options = options_of(argnums, False, False, intercept)
    gradient = reverse(Transform(grad, f, options), lambda _, g: g, "hessian")
    forward = jacobian(gradient, argnums, mode="forward", intercept=False)
    backward = jacobian(gradient, argnums, mode="reverse", intercept=False)

    def transformed(*args: Any, **kwargs: Any) -> Any:
        _check_arguments("hessian", args, pick("hessian", args, argnums))
        try:
            return forward(*args, **kwargs)
        except ForwardModeError as error:  # a rule of the user's, say
            forget(error)
            return backward(*args, **kwargs)

    return Transformed(transform, transformed)

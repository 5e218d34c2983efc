"""jacobian, jacfwd, jacrev and hessian.

References
----------
- A. Griewank, A. Walther, "Evaluating Derivatives", 2nd ed., SIAM 2008, chapters 3 and 5.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec

import numpy as np

from adarray.base.aval import Symbolic
from adarray.base.errors import DTypeError, ForwardModeError
from adarray.base.levels import forget
from adarray.base.transformed import Transform, Transformed, check_argnums
from adarray.core.protocol import traced
from adarray.core.trace import Handle, is_weak
from adarray.transforms.directions import forward_columns, reverse_rows
from adarray.transforms.gradients import grad, options_of, reverse
from adarray.transforms.inputs import Argnums, check_holomorphic, pick, refuse_whole
from adarray.transforms.modes import vjp
from adarray.transforms.running import (
    by_position,
    check_function,
    check_returned,
    prepared,
    with_names,
)
from adarray.transforms.tree import is_number
from adarray.transforms.variables import Variables, check_variables

_P = ParamSpec("_P")


def _shape_of(x: Any) -> tuple[int, ...]:
    return tuple(np.shape(x))


def _dtype(x: Any) -> Any:
    return x.dtype if hasattr(x, "dtype") else np.result_type(x)


def jacobian(
    f: Callable[_P, Any],
    argnums: Argnums = 0,
    mode: str = "auto",
    *,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    intercept: bool = True,
) -> Callable[_P, Any]:
    """Return a function that computes the Jacobian of `f`.

    Parameters
    ----------
    f : callable
        Returns an array, or a nest of arrays.
    argnums : int, str, or sequence of them
        Positions or names of the arguments to differentiate; each an array or a nest. Leaves that
        are not floating point are passed to `f` unchanged; their derivative is None.
    mode : {"auto", "forward", "reverse"}
        ``forward`` takes one pass per element of the input, ``reverse`` one per element of the
        output; ``auto`` chooses the one with fewer.
    has_aux : bool
        Whether `f` returns a pair ``(y, aux)``; the returned function then returns a pair as well.
    holomorphic : bool
        Whether `f` is an analytic function of complex arguments; the Jacobian then consists of
        complex derivatives.
    allow_int : bool
        Whether to accept an argument without floating-point leaves; its derivative is None.
    intercept : bool
        Whether `f` may convert its arguments with ``np.asarray``, call `math` or SciPy, and fill
        arrays that it creates (see `adarray.intercept`). If False, such code raises `TraceError`.

    Returns
    -------
    callable
        Takes the arguments of `f`. If argument and result are arrays, returns an array of shape
        ``y.shape + x.shape``. For nests, returns the structure of the result, in which each leaf is
        a nest with the structure of the argument; for a sequence of `argnums`, these are tuples.
        Results that are not numbers have the derivative None.

    Raises
    ------
    ValueError
        If `mode` is unknown.
    DTypeError
        If all results are integers or booleans; if arguments and results are complex without
        `holomorphic`; or if `mode` does not fit one side being complex: real functions of complex
        arguments need ``reverse``, complex functions of real arguments ``forward``.

    Notes
    -----
    If there are more than a few passes, they run as a batch (see `vmap`): 256 at once, or fewer for
    large arrays (up to 4 million elements in all). Memory grows accordingly. If `vmap` cannot
    handle `f`, or `f` calls a jitted function, the passes run one by one.

    Examples
    --------
    >>> import numpy as np, adarray
    >>> adarray.jacobian(lambda x: x[:, None] * x)(np.array([1.0, 2.0])).shape
    (2, 2, 2)
    """
    if mode not in ("auto", "forward", "reverse"):
        raise ValueError(f"jacobian: mode {mode!r}; one of 'auto', 'forward', 'reverse'")
    options = {
        "argnums": argnums, "mode": mode, "has_aux": has_aux, "holomorphic": holomorphic,
        "allow_int": allow_int, "intercept": intercept,
    }  # fmt: skip
    return _jacobian(Transform(jacobian, f, options), mode)


def jacfwd(
    f: Callable[_P, Any],
    argnums: Argnums = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    *,
    allow_int: bool = False,
    intercept: bool = True,
) -> Callable[_P, Any]:
    """Return a function that computes the Jacobian of `f` in forward mode.

    This takes one pass for each element of the arguments, so it suits functions of few inputs.
    `jacobian` chooses the mode by the shapes.

    Parameters
    ----------
    f : callable
        Returns an array, or a nest of arrays.
    argnums : int, str, or sequence of them
        Positions or names of the arguments to differentiate; each an array or a nest.
    has_aux : bool
        Whether `f` returns a pair ``(y, aux)``; the returned function then returns a pair as well.
    holomorphic : bool
        Whether `f` is an analytic function of complex arguments.
    allow_int : bool
        Whether to accept an argument without floating-point leaves; its derivative is None.
    intercept : bool
        Whether `f` may convert its arguments with ``np.asarray``, call `math` or SciPy, and fill
        arrays that it creates (see `adarray.intercept`). If False, such code raises `TraceError`.

    Returns
    -------
    callable
        Takes the arguments of `f`, and returns the same as ``jacobian(f)``.

    Raises
    ------
    DTypeError
        As from `jacobian` with ``mode="forward"``.

    Examples
    --------
    >>> import numpy as np, adarray
    >>> adarray.jacfwd(lambda x: np.array([1.0, 2.0, 3.0]) * x**2)(3.0)
    array([ 6., 12., 18.])
    """
    options = {"argnums": argnums, "has_aux": has_aux, "holomorphic": holomorphic,
               "allow_int": allow_int, "intercept": intercept}  # fmt: skip
    return _jacobian(Transform(jacfwd, f, options), "forward")


def jacrev(
    f: Callable[_P, Any],
    argnums: Argnums = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    *,
    allow_int: bool = False,
    intercept: bool = True,
) -> Callable[_P, Any]:
    """Return a function that computes the Jacobian of `f` in reverse mode.

    This takes one pass for each element of the result, so it suits functions with few outputs.
    `jacobian` chooses the mode by the shapes.

    Parameters
    ----------
    f : callable
        Returns an array, or a nest of arrays.
    argnums : int, str, or sequence of them
        Positions or names of the arguments to differentiate; each an array or a nest.
    has_aux : bool
        Whether `f` returns a pair ``(y, aux)``; the returned function then returns a pair as well.
    holomorphic : bool
        Whether `f` is an analytic function of complex arguments.
    allow_int : bool
        Whether to accept an argument without floating-point leaves; its derivative is None.
    intercept : bool
        Whether `f` may convert its arguments with ``np.asarray``, call `math` or SciPy, and fill
        arrays that it creates (see `adarray.intercept`). If False, such code raises `TraceError`.

    Returns
    -------
    callable
        Takes the arguments of `f`, and returns the same as ``jacobian(f)``.

    Raises
    ------
    DTypeError
        As from `jacobian` with ``mode="reverse"``.

    Examples
    --------
    >>> import numpy as np, adarray
    >>> adarray.jacrev(lambda x: np.array([np.sum(x), np.prod(x)]))(np.array([2.0, 3.0]))
    array([[1., 1.],
           [3., 2.]])
    """
    options = {"argnums": argnums, "has_aux": has_aux, "holomorphic": holomorphic,
               "allow_int": allow_int, "intercept": intercept}  # fmt: skip
    return _jacobian(Transform(jacrev, f, options), "reverse")


def _jacobian(transform: Transform, mode: str) -> Transformed:
    """Return the function that computes a Jacobian; see `jacobian`."""
    f, options, name = transform.f, transform.options, transform.function.__name__
    argnums, has_aux = options["argnums"], options["has_aux"]
    holomorphic, intercept = options["holomorphic"], options["intercept"]
    allow_int = options["allow_int"]
    check_function(name, f)

    def transformed(*args: Any, **kwargs: Any) -> Any:
        of_picked, xs = picked_call(name, f, args, kwargs, argnums, intercept, allow_int)
        ins = Variables(xs)
        if holomorphic:
            check_holomorphic(name, ins.moving)
        complex_in = not holomorphic and any(_dtype(x).kind == "c" for x in ins.moving)
        single = isinstance(argnums, (int, str))
        in_size = sum(int(np.size(_plain(x))) for x in ins.moving)
        aux: Any = None
        if mode != "forward":
            aux_part: list[Any]
            y, pullback, *aux_part = vjp(
                of_picked, *xs, has_aux=has_aux, allow_int=True, intercept=False
            )
            aux = aux_part[0] if has_aux else None
            outs = Variables(y, is_number)
            refuse_whole(name, outs.moving)
            out_size = sum(int(np.size(_plain(v))) for v in outs.moving)
            complex_out = not holomorphic and any(_dtype(v).kind == "c" for v in outs.moving)
            if complex_out and (complex_in or mode == "reverse"):
                raise _not_real(name, "forward")
            if mode == "reverse" or complex_in or (out_size <= in_size and not complex_out):
                matrix = _assemble(reverse_rows(pullback, outs, ins), outs, ins, single, "reverse")
                return (matrix, aux) if has_aux else matrix
        if complex_in:
            raise _not_real(name, "reverse")
        try:
            parts, outs, aux = forward_columns(name, of_picked, xs, ins, has_aux)
            way = "forward"
        except ForwardModeError as error:
            if mode == "forward" or complex_out:
                raise
            forget(error)
            parts = reverse_rows(pullback, outs, ins)
            way = "reverse"
        matrix = _assemble(parts, outs, ins, single, way)
        return (matrix, aux) if has_aux else matrix

    return Transformed(transform, transformed)


def picked_call(
    name: str,
    f: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    argnums: Any,
    intercept: bool,
    allow_int: bool,
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return `f` as a function of the differentiated arguments of a call alone, and these.

    Raises
    ------
    TypeError, DTypeError
        If there is no such argument, or it cannot be differentiated.
    """
    places, run = argnums, prepared(f, intercept)
    if type(argnums) is not int:
        args, kwargs, places, moved = by_position(name, f, args, kwargs, argnums)
        run = with_names(run, moved)
    picked = pick(name, args, places)
    # Without those that are picked: they would count as captured where they are written into.
    others = [None if k in picked else x for k, x in enumerate(args)]

    def of_picked(*xs: Any) -> Any:
        full = list(others)
        for k, x in zip(picked, xs, strict=True):
            full[k] = x
        y = run(*full, **kwargs)
        check_returned(name, y)
        return y

    for k in picked:
        check_variables(name, k, args[k], Variables(args[k]), allow_int)
    return of_picked, tuple(args[k] for k in picked)


def _not_real(name: str, mode: str) -> DTypeError:
    return DTypeError(
        f"{name}: complex numbers have two directions each, and one pass per element finds one; "
        f"pass holomorphic=True for an analytic function, or mode={mode!r} where only the other "
        "side is complex, or view complex arrays as pairs of real numbers"
    )


def _plain(x: Any) -> Any:
    return x._plain if isinstance(x, Handle) else x


def number_like(block: Any, x: Any) -> Any:
    """Return a derivative by the number `x` that has no axes as what `grad` gives for it."""
    if np.ndim(block):
        return block
    if isinstance(block, Handle):
        recorded = isinstance(x, Handle) and isinstance(x._plain, Symbolic) and is_weak(x)
        return block._plain.item() if recorded and not traced(block) else block
    if isinstance(x, np.ndarray):
        return block
    if isinstance(x, (np.generic, Handle)):
        return block[()]
    return block.item() if hasattr(block, "item") else block


def _assemble(
    parts: list[list[Any]], outs: Variables, ins: Variables, single: bool, mode: str
) -> Any:
    """Put rows (reverse) or columns (forward) together into arrays of shape y + x."""
    blocks = []
    for o, y in enumerate(outs.moving):
        row = []
        for i, x in enumerate(ins.moving):
            y_shape, x_shape = _shape_of(y), _shape_of(x)
            stacks = parts[o] if mode == "reverse" else parts[i]
            if not stacks:
                row.append(np.zeros(y_shape + x_shape, _dtype(y)))
                continue
            stack = stacks[i] if mode == "reverse" else np.moveaxis(stacks[o], 0, -1)
            block = np.reshape(np.copy(stack, order="C"), y_shape + x_shape)
            row.append(number_like(block, x))
        built = ins.gradient(row)
        blocks.append(built[0] if single else built)
    return outs.gradient(blocks)


def hessian(
    f: Callable[_P, Any],
    argnums: Argnums = 0,
    *,
    allow_int: bool = False,
    intercept: bool = True,
) -> Callable[_P, Any]:
    """Return a function that computes the Hessian of a scalar function.

    Parameters
    ----------
    f : callable
        Returns a real scalar.
    argnums : int, str, or sequence of them
        Positions or names of the arguments to differentiate; real arrays, or nests. Leaves that are
        not floating point are passed to `f` unchanged; the result has None in their places.
    allow_int : bool
        Whether to accept an argument without floating-point leaves; its derivative is None.
    intercept : bool
        Whether `f` may convert its arguments with ``np.asarray``, call `math` or SciPy, and fill
        arrays that it creates (see `adarray.intercept`). If False, such code raises `TraceError`.

    Returns
    -------
    callable
        Takes the arguments of `f`. For an array x, returns an array of shape ``x.shape + x.shape``;
        for a nest, returns a nest in which each leaf is a nest of the same structure.

    Notes
    -----
    Forward mode over reverse mode: one gradient, with tangents, for each element of the argument.
    If an operation has no rule for forward mode, reverse over reverse is used.

    Examples
    --------
    >>> import numpy as np, adarray
    >>> adarray.hessian(lambda x: np.sum(x**3))(np.array([1.0, 2.0]))
    array([[ 6.,  0.],
           [ 0., 12.]])
    """
    check_function("hessian", f)
    check_argnums("hessian", argnums)
    transform = Transform(
        hessian, f, {"argnums": argnums, "allow_int": allow_int, "intercept": intercept}
    )
    options = options_of(argnums, False, False, allow_int, intercept)
    gradient = reverse(Transform(grad, f, options), lambda _, g: g, "hessian")
    ways = [
        jacobian(gradient, argnums, mode=m, allow_int=allow_int, intercept=False)
        for m in ("forward", "reverse")
    ]

    def transformed(*args: Any, **kwargs: Any) -> Any:
        picked_call("hessian", f, args, kwargs, argnums, intercept, allow_int)  # for its errors
        try:
            return ways[0](*args, **kwargs)
        except ForwardModeError as error:  # a rule of the user's, say
            forget(error)
            return ways[1](*args, **kwargs)

    return Transformed(transform, transformed)

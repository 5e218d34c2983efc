"""Derivatives times vectors: hvp, linearize and their like.

References
----------
- B. A. Pearlmutter, "Fast exact multiplication by the Hessian", Neural Computation 6 (1994),
  147-160.
- A. Griewank, A. Walther, "Evaluating Derivatives", 2nd ed., SIAM 2008, chapter 5.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from adarray.base.errors import ForwardModeError, ShapeError
from adarray.base.levels import forget
from adarray.base.transformed import Transform, Transformed, check_argnums
from adarray.core.protocol import concrete
from adarray.core.trace import Handle
from adarray.device import KINDS, host
from adarray.transforms.gradients import grad, options_of, reverse
from adarray.transforms.inputs import Argnums, refuse_whole
from adarray.transforms.linearity import are_transposes
from adarray.transforms.matrices import number_like, picked_call
from adarray.transforms.modes import forward, shape_of, vjp
from adarray.transforms.running import check_function, prepared
from adarray.transforms.tree import flatten, is_array, is_number
from adarray.transforms.variables import Variables


def hvp(
    f: Callable[..., Any],
    argnums: Argnums = 0,
    *,
    allow_int: bool = False,
    intercept: bool = True,
) -> Callable[..., Any]:
    """Return a function that multiplies the Hessian of a scalar function by a vector.

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
        ``hvp(f)(*args, v)`` takes the arguments of `f` followed by the vector `v`, which has the
        structure and shapes of the differentiated argument (for a sequence of `argnums`, a tuple of
        these). Returns the product, with the same structure and shapes.

    Raises
    ------
    ShapeError, DTypeError, TypeError
        If `v` has another structure or shape, or `f` cannot be differentiated (see `grad`).

    Notes
    -----
    Forward mode over reverse mode: a product takes about the time of two gradients and the memory
    of one [1]_. If an operation has no rule for forward mode, reverse over reverse is used.

    References
    ----------
    .. [1] B. A. Pearlmutter, "Fast exact multiplication by the Hessian", Neural Computation 6
       (1994), 147-160.

    Examples
    --------
    >>> import numpy as np, adarray
    >>> adarray.hvp(lambda x: np.sum(x**3))(np.array([1.0, 2.0]), np.array([1.0, 0.5]))
    array([6., 6.])
    """
    check_function("hvp", f)
    gradient = gradient_of("hvp", f, argnums, allow_int, intercept)

    def transformed(*args: Any, **kwargs: Any) -> Any:
        args, v = _with_vector("hvp", args)
        of_picked, xs = picked_call("hvp", gradient, args, kwargs, argnums, False, allow_int)
        single = isinstance(argnums, (int, str))
        vs = (v,) if single else tuple(v)
        try:
            _, product, _ = forward("hvp", of_picked, xs, vs, False, False, True)
            return _numbers_like(product, xs)
        except ForwardModeError as error:  # a rule of the user's, say
            forget(error)
            _, pullback = vjp(of_picked, *xs, allow_int=True, intercept=False)
            products = pullback(_as_gradient(xs, vs, single))  # the Hessian is symmetric
            return products[0] if single else products

    return Transformed(
        Transform(hvp, f, {"argnums": argnums, "allow_int": allow_int, "intercept": intercept}),
        transformed,
    )


def make_hvp(
    f: Callable[..., Any],
    argnums: Argnums = 0,
    *,
    allow_int: bool = False,
    intercept: bool = True,
) -> Callable[..., Any]:
    """Return a function that prepares Hessian-vector products at one point.

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
        ``make_hvp(f)(*args)`` takes the arguments of `f` and returns a pair: a function, and the
        gradient. The function takes `v`, which has the structure and shapes of the differentiated
        argument (for a sequence of `argnums`, a tuple of these), and returns the product.

    Raises
    ------
    ShapeError, DTypeError, TypeError
        If `f` cannot be differentiated (see `grad`), or `v` has another structure or shape.

    Notes
    -----
    Reverse over reverse: `f` and its gradient run once for any number of products, and what they
    computed is stored as long as the returned function exists.

    Examples
    --------
    >>> import numpy as np, adarray
    >>> product, gradient = adarray.make_hvp(lambda x: np.sum(x**3))(np.array([1.0, 2.0]))
    >>> product(np.array([1.0, 0.0])), product(np.array([0.0, 1.0]))
    (array([6., 0.]), array([ 0., 12.]))
    """
    check_function("make_hvp", f)
    gradient = gradient_of("make_hvp", f, argnums, allow_int, intercept)

    def transformed(*args: Any, **kwargs: Any) -> Any:
        of_picked, xs = picked_call("make_hvp", gradient, args, kwargs, argnums, False, allow_int)
        g, pullback = vjp(of_picked, *xs, allow_int=True, intercept=False)
        single = isinstance(argnums, (int, str))

        def product(v: Any) -> Any:
            products = pullback(_as_gradient(xs, (v,) if single else tuple(v), single))
            return products[0] if single else products

        return product, _numbers_like(g, xs)

    options = {"argnums": argnums, "allow_int": allow_int, "intercept": intercept}
    return Transformed(Transform(make_hvp, f, options), transformed)


def directional_derivative(
    f: Callable[..., Any],
    argnums: Argnums = 0,
    *,
    allow_int: bool = False,
    intercept: bool = True,
) -> Callable[..., Any]:
    """Return a function that computes the derivative of `f` along a direction.

    Parameters
    ----------
    f : callable
        Returns an array, or a nest of arrays.
    argnums : int, str, or sequence of them
        Positions or names of the arguments that move along the direction. Leaves that are not
        floating point are passed to `f` unchanged, and have no direction.
    allow_int : bool
        Whether to accept an argument without floating-point leaves.
    intercept : bool
        Whether `f` may convert its arguments with ``np.asarray``, call `math` or SciPy, and fill
        arrays that it creates (see `adarray.intercept`). If False, such code raises `TraceError`.

    Returns
    -------
    callable
        ``directional_derivative(f)(*args, v)`` takes the arguments of `f` followed by the direction
        `v`, which has the structure and shapes of the differentiated argument (for a sequence of
        `argnums`, a tuple of these). Returns the derivative, with the structure and shapes of the
        result of `f`. The direction is not normalised.

    Raises
    ------
    ShapeError, DTypeError, TypeError
        If `v` has another structure or shape, or an argument cannot be differentiated.

    Notes
    -----
    Forward mode: one pass, and nothing is stored. `jvp` also returns the value, and differentiates
    all arguments.

    Examples
    --------
    >>> import numpy as np, adarray
    >>> slope = adarray.directional_derivative(lambda x: np.hypot(x[0], x[1]))
    >>> round(float(slope(np.array([3.0, 4.0]), np.array([1.0, 0.0]))), 3)
    0.6
    """
    name = "directional_derivative"
    check_function(name, f)

    def transformed(*args: Any, **kwargs: Any) -> Any:
        args, v = _with_vector(name, args)
        of_picked, xs = picked_call(name, f, args, kwargs, argnums, intercept, allow_int)
        vs = (v,) if isinstance(argnums, (int, str)) else tuple(v)
        return forward(name, of_picked, xs, vs, False, False, True)[1]

    options = {"argnums": argnums, "allow_int": allow_int, "intercept": intercept}
    return Transformed(Transform(directional_derivative, f, options), transformed)


def elementwise_grad(
    f: Callable[..., Any],
    argnums: Argnums = 0,
    *,
    allow_int: bool = False,
    intercept: bool = True,
) -> Callable[..., Any]:
    """Return a function that computes the derivative of an elementwise function.

    Parameters
    ----------
    f : callable
        Returns an array in which each element depends on one element of the argument, like NumPy's
        elementwise functions.
    argnums : int, str, or sequence of them
        Positions or names of the arguments to differentiate; each an array or a nest. Leaves that
        are not floating point are passed to `f` unchanged; the result has None in their places.
    allow_int : bool
        Whether to accept an argument without floating-point leaves; its derivative is None.
    intercept : bool
        Whether `f` may convert its arguments with ``np.asarray``, call `math` or SciPy, and fill
        arrays that it creates (see `adarray.intercept`). If False, such code raises `TraceError`.

    Returns
    -------
    callable
        Takes what `f` takes; returns the derivatives, of the structure and shapes of the argument
        (a tuple for a sequence of `argnums`).

    Raises
    ------
    DTypeError
        If the result is integer, or an argument cannot be differentiated.

    Notes
    -----
    This is the gradient of the sum of all results: if several elements of the result depend on the
    same element of the argument, their derivatives are added up.

    Examples
    --------
    >>> import numpy as np, adarray
    >>> adarray.elementwise_grad(np.square)(np.array([1.0, 2.0, 3.0]))
    array([2., 4., 6.])
    >>> adarray.elementwise_grad(adarray.elementwise_grad(np.tanh))(np.zeros(2))
    array([-0., -0.])
    """
    name = "elementwise_grad"
    check_function(name, f)

    def transformed(*args: Any, **kwargs: Any) -> Any:
        of_picked, xs = picked_call(name, f, args, kwargs, argnums, intercept, allow_int)
        y, pullback = vjp(of_picked, *xs, allow_int=True, intercept=False)
        leaves, rebuild = flatten(y)
        refuse_whole(name, leaves)
        gradients = pullback(rebuild([_like(x, 1.0) for x in leaves]))
        return gradients[0] if isinstance(argnums, (int, str)) else gradients

    options = {"argnums": argnums, "allow_int": allow_int, "intercept": intercept}
    return Transformed(Transform(elementwise_grad, f, options), transformed)


def linearize(
    f: Callable[..., Any],
    *primals: Any,
    has_aux: bool = False,
    allow_int: bool = False,
    intercept: bool = True,
) -> Any:
    """Return the value of `f` and its derivative as a linear map of tangents.

    Parameters
    ----------
    f : callable
        Returns an array, or a nest of arrays.
    *primals : array, number, or nest of them
        Arguments of `f`; all are differentiated. Leaves that are not floating point are passed to
        `f` unchanged; what a tangent has in their places is ignored.
    has_aux : bool
        Whether `f` returns a pair ``(y, aux)``.
    allow_int : bool
        Whether to accept an argument without floating-point leaves.
    intercept : bool
        Whether `f` may convert its arguments with ``np.asarray``, call `math` or SciPy, and fill
        arrays that it creates (see `adarray.intercept`). If False, such code raises `TraceError`.

    Returns
    -------
    y : structure of the result of `f`
    tangent_map : callable
        ``tangent_map(*tangents)``, with tangents that have the structures and shapes of `primals`,
        returns the tangent of the result, like `jvp`. It can be called many times; `f` does not run
        again.
    aux
        Only with `has_aux`.

    Raises
    ------
    ShapeError
        From the map, if the structures or shapes of the tangents differ from those of `primals`.
    DTypeError
        If an argument has no floating or complex leaf, or all results are integers.

    Notes
    -----
    The pullback of `vjp` is linear in the cotangent, and the map is the pullback of that. So no
    operation needs a rule for forward mode, and the memory is that of reverse mode. For a single
    tangent, `jvp` is faster.

    Examples
    --------
    >>> import numpy as np, adarray
    >>> y, tangent_map = adarray.linearize(np.sin, np.array([0.0, np.pi]))
    >>> tangent_map(np.array([1.0, 10.0]))
    array([  1., -10.])
    """
    y, pullback, *aux = vjp(f, *primals, has_aux=has_aux, allow_int=allow_int, intercept=intercept)
    ins, outs = Variables(primals), Variables(y)
    refuse_whole("linearize", outs.leaves)

    def pulled(*cotangents: Any) -> Any:
        return pullback(outs.gradient(cotangents))

    _, transposed = vjp(pulled, *[_like(x, 0.0) for x in outs.moving], intercept=False)
    shapes = [shape_of(x) for x in ins.moving]
    constant = [_still(x) for x in outs.leaves]

    def tangent_map(*tangents: Any) -> Any:
        ts = ins.along(tangents)
        got = [shape_of(t) for t in (flatten(tangents)[0] if ts is None else ts)]
        if ts is None or got != shapes:
            raise ShapeError(
                f"linearize: the tangents have shapes {got} and the primals {shapes}; they must "
                "be equal"
            )
        full = list(constant)
        for k, t in zip(outs.places, transposed(ins.gradient(ts)), strict=True):
            full[k] = t
        return outs.rebuilt(full)

    return (y, tangent_map, *aux)


def linear_transpose(f: Callable[..., Any], *primals: Any, intercept: bool = True) -> Any:
    """Return the transpose of a linear function.

    Parameters
    ----------
    f : callable
        Linear in its arguments jointly; returns an array, or a nest of arrays.
    *primals : array, number, or nest of them
        Example arguments, of which only shapes and dtypes matter. Leaves that are not floating
        point are passed to `f` unchanged; the result has None in their places.
    intercept : bool
        Whether `f` may convert its arguments with ``np.asarray``, call `math` or SciPy, and fill
        arrays that it creates (see `adarray.intercept`). If False, such code raises `TraceError`.

    Returns
    -------
    callable
        ``transpose(g)``, where `g` has the structure and shapes of the result, returns a tuple of
        arrays, one for each of `primals`. Complex numbers are not conjugated.

    Raises
    ------
    ValueError
        If `f` is found not to be linear: it is not zero at zero, or differs from its derivative at
        a point that is tried.

    Examples
    --------
    >>> import numpy as np, adarray
    >>> transpose = adarray.linear_transpose(np.diff, np.zeros(3))
    >>> transpose(np.array([1.0, 10.0]))
    (array([-1., -9., 10.]),)
    """
    ins = Variables(primals)
    zeros = ins.argument([_like(x, 0.0) for x in ins.moving])
    y, pullback = vjp(f, *zeros, intercept=intercept)
    for x in Variables(y).moving:
        if np.any(host(concrete(x)) != 0):
            raise ValueError(
                "linear_transpose: the function is not zero where its arguments are; it is not "
                "linear: take linearize(f, x), or leave the constant part out"
            )
    _check_linear(prepared(f, intercept), pullback, ins, Variables(y))
    return pullback


def _check_linear(run: Any, pullback: Any, ins: Variables, outs: Variables) -> None:
    """Raise unless a function is its derivative at zero: at one point, along one cotangent.

    Raises
    ------
    ValueError
    """
    moving = [*ins.moving, *outs.moving]
    if not all(isinstance(concrete(x), (np.ndarray, np.generic, float, complex)) for x in moving):
        return  # recorded, or on a device

    def push(vs: list[Any]) -> list[Any]:
        return Variables(run(*ins.argument(vs))).moving

    def pull(gs: list[Any]) -> list[Any]:
        return ins.along(pullback(outs.gradient(gs))) or []

    if not are_transposes(push, pull, ins.moving, outs.moving):
        raise ValueError(
            "linear_transpose: the function is not its derivative at zero; it is not linear: take "
            "linearize(f, x), whose map is"
        )


def gradient_of(
    name: str, f: Any, argnums: Argnums, allow_int: bool, intercept: bool
) -> Transformed:
    """Return the gradient of `f`, whose errors name the transform that was called."""
    check_argnums(name, argnums)
    options = options_of(argnums, False, False, allow_int, intercept)
    return reverse(Transform(grad, f, options), lambda _, g: g, name)


def _numbers_like(g: Any, xs: tuple[Any, ...]) -> Any:
    """Return derivatives by numbers without axes as what `grad` gives for them."""
    leaves, rebuild = flatten(g)
    inputs = Variables(xs).moving
    return rebuild([number_like(t, x) for t, x in zip(leaves, inputs, strict=True)])


def _with_vector(name: str, args: tuple[Any, ...]) -> tuple[tuple[Any, ...], Any]:
    """Return the arguments of the function, and the vector behind them."""
    if len(args) < 2:
        raise TypeError(f"{name}: expected the arguments of the function and a vector behind them")
    return args[:-1], args[-1]


def _as_gradient(xs: tuple[Any, ...], vs: tuple[Any, ...], single: bool) -> Any:
    """Return vectors for the arguments in the structure that their gradients have."""
    ins = Variables(xs)
    moving = ins.along(vs)
    gradients = vs if moving is None else ins.gradient(moving)
    return gradients[0] if single else gradients


def _still(x: Any) -> Any:
    """Return the tangent of a result that is not floating: zeros for a number, else None."""
    return np.zeros(shape_of(x))[()] if is_number(x) else None


def _like(x: Any, value: float) -> Any:
    """Return an array of the shape and dtype of `x` with one value, where `x` is."""
    if not is_array(x):
        return x
    if isinstance(x, (Handle, np.ndarray)) or type(x) in KINDS:
        return np.full_like(x, value)
    return type(x)(value)

"""black_box: compiled functions that come with a Jacobian, or with products with it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from adarray.base.errors import ShapeError
from adarray.base.op import Op, Opaque
from adarray.base.transformed import Transform, Transformed
from adarray.batching.rules import members
from adarray.core.dispatch import run
from adarray.core.protocol import concrete, traced
from adarray.custom import dispatching_of, outside
from adarray.device import is_device
from adarray.device.array import host_of
from adarray.transforms.calls import plain_number
from adarray.transforms.modes import forward, shape_of, vjp
from adarray.transforms.running import check_function

_Function = Callable[..., Any]


def black_box(
    f: _Function,
    jacobian: _Function | None = None,
    *,
    jvp: _Function | None = None,
    vjp: _Function | None = None,
    name: str | None = None,
) -> _Function:
    """Make a differentiable operation of a compiled function, given its derivative.

    Parameters
    ----------
    f : callable
        Takes arrays by position and returns one; it is called with plain arrays. Arguments that
        have a default or are keyword-only count as parameters, which are not differentiated. Values
        on a device are copied to the host, and the result to the device.
    jacobian : callable, optional
        ``jacobian(*arrays, **params)`` returns the derivative with respect to the argument; its
        shape is that of the result followed by that of the argument. For several arguments, it
        returns a tuple, with None where there is no derivative. Matrices of `scipy.sparse`, and
        other objects that multiply vectors by ``@`` and have ``T``, are accepted for results and
        arguments of any shape, which are then taken as flattened.
    jvp : callable, optional
        ``jvp(primals, tangents, **params)`` returns the tangent of the result; both arguments are
        tuples.
    vjp : callable, optional
        ``vjp(primals, cotangent, **params)`` returns a tuple of the cotangents of the arguments.
    name : str, optional
        Name in messages; by default, that of the function.

    Returns
    -------
    callable
        Replaces `f`. Plain arrays give plain arrays.

    Raises
    ------
    TypeError
        If neither `jacobian` nor `jvp` nor `vjp` is given.
    ShapeError
        If one of them returns an array of the wrong shape.

    See Also
    --------
    register_rule : A rule for each operand; also for ufuncs.
    custom_jvp, custom_vjp : For functions that adarray can look into.

    Notes
    -----
    Any one of the three is enough for both modes. With `jvp` alone, reverse mode calls it once for
    each element of the argument; with `vjp` alone, forward mode calls it once for each element of
    the result. For first derivatives they are called with plain arrays, so they may be compiled
    code. Second derivatives differentiate them, so they must then be NumPy code.

    Examples
    --------
    >>> import numpy as np, adarray
    >>> def rotate(x):                     # compiled, say
    ...     return np.array([x[0] * x[1], x[1] ** 2])
    >>> def slopes(x):
    ...     return np.array([[x[1], x[0]], [0.0, 2.0 * x[1]]])
    >>> fast = adarray.black_box(rotate, slopes)
    >>> adarray.grad(lambda x: np.sum(fast(x)))(np.array([2.0, 3.0]))
    array([3., 8.])
    >>> fast = adarray.black_box(rotate, jvp=lambda x, t: slopes(x[0]) @ t[0])
    >>> adarray.grad(lambda x: np.sum(fast(x)))(np.array([2.0, 3.0]))
    array([3., 8.])
    """
    check_function("black_box", f)
    derivatives = {"jacobian": jacobian, "jvp": jvp, "vjp": vjp}
    if not any(derivatives.values()):
        raise TypeError("black_box: pass jacobian=, jvp= or vjp=, the derivative of the function")
    for function in derivatives.values():
        if function is not None:
            check_function("black_box", function)
    operands, params = _arguments(f)
    name = name or str(getattr(f, "__name__", "black_box"))
    products = _Products(name, f, jacobian, jvp, vjp, operands, params)
    op = Op(
        name, f, Opaque(), [products.pull(i) for i in range(len(operands))],
        jvp=[products.push(i) for i in range(len(operands))], evaluate=_of_host(outside(f)),
        operands=operands, params=params, needs=_needs(len(operands)), batch=members,
    )  # fmt: skip
    options = {**derivatives, "name": name}
    return Transformed(Transform(black_box, f, options), dispatching_of(op, f))


def _of_host(function: _Function) -> _Function:
    """Return a function of values on a device that computes on the host, as compiled code does."""

    @functools.wraps(function)
    def evaluate(*args: Any, **params: Any) -> Any:
        library = next((x.library for x in args if is_device(x)), None)
        if library is None:
            return function(*args, **params)
        return library.place(function(*host_of(args), **host_of(params)))

    return evaluate


def _needs(arity: int) -> Callable[..., tuple[bool, ...]]:
    return lambda _mask: (True,) * (arity + 1)


def _arguments(f: _Function) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the arrays that a function takes, and of its parameters."""
    try:
        parameters = inspect.signature(f).parameters.values()
    except (TypeError, ValueError):
        raise TypeError(
            "black_box: the function does not tell its arguments; wrap it in a Python function"
        ) from None
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    arrays = tuple(p.name for p in parameters if p.kind in positional and p.default is p.empty)
    if not arrays:
        raise TypeError("black_box: the function has no argument without a default, by position")
    return arrays, tuple(p.name for p in parameters if p.name not in arrays)


class _Products:
    """Products with the Jacobians of a function, on both sides, as operations of their own."""

    def __init__(
        self,
        name: str,
        f: _Function,
        jacobian: _Function | None,
        jvp: _Function | None,
        vjp: _Function | None,
        operands: Sequence[str],
        params: Sequence[str],
    ) -> None:
        self._name = name
        self._f = f
        self._jacobian = jacobian
        self._jvp = jvp
        self._vjp = vjp
        self._operands = tuple(operands)
        self._params = tuple(params)

    def pull(self, i: int) -> _Function:
        """Return the rule of operand `i` for cotangents."""
        op = self._operation(f"{self._name}: transposed", i, self._pulled)
        return lambda g, out, *xs, **params: run(op, g, *xs, **params)  # noqa: ARG005

    def push(self, i: int) -> _Function:
        """Return the rule of operand `i` for tangents."""
        op = self._operation(f"{self._name}: tangent", i, self._pushed)
        return lambda t, out, *xs, **params: run(op, t, *xs, **params)  # noqa: ARG005

    def _operation(self, name: str, i: int, product: _Function) -> Op:
        """Return a product as an operation: it is computed plainly, and differentiated by its code.

        Its first operand is the vector, in which it is linear.
        """
        count = len(self._operands) + 1

        def evaluate(v: Any, *xs: Any, **params: Any) -> Any:
            return product(i, v, *xs, **params)

        def rule_of(k: int) -> _Function:
            def rule(g: Any, out: Any, *vs: Any, **params: Any) -> Any:  # noqa: ARG001
                at = lambda x: evaluate(*vs[:k], x, *vs[k + 1 :], **params)  # noqa: E731
                _, pullback = vjp(at, vs[k], intercept=True)
                return plain_number(pullback(g)[0])

            return rule

        def tangent_of(k: int) -> _Function:
            def rule(t: Any, out: Any, *vs: Any, **params: Any) -> Any:  # noqa: ARG001
                if k == 0:
                    return run(op, t, *vs[1:], **params)
                at = lambda x: evaluate(*vs[:k], x, *vs[k + 1 :], **params)  # noqa: E731
                return forward(name, at, (vs[k],), (t,), True)[1]

            return rule

        op = Op(
            name, _of_host(outside(evaluate)), Opaque(), [rule_of(k) for k in range(count)],
            jvp=[tangent_of(k) for k in range(count)],
            operands=("v", *self._operands), params=self._params, needs=_needs(count),
            batch=members,
        )  # fmt: skip
        return op

    # -- products, of plain arrays or of traced ones --------------------------------------------

    def _pulled(self, i: int, g: Any, *xs: Any, **params: Any) -> Any:
        """Return the cotangent of operand `i`."""
        shape = shape_of(xs[i])
        if self._vjp is not None:
            cotangents = self._vjp(xs, g, **params)
            part = cotangents[i] if isinstance(cotangents, (tuple, list)) else cotangents
            return self._of_shape("vjp", part, shape)
        if self._jacobian is not None:
            j = self._matrix(i, xs, params)
            if _is_matrix(j):
                return np.reshape(j.T @ np.reshape(g, -1), shape)
            self._of_shape("jacobian", j, (*shape_of(g), *shape))
            return np.tensordot(g, j, len(shape_of(g)))
        columns = [np.sum(g * self._along(i, e, xs, params)) for e in _units(shape, xs[i])]
        return np.reshape(np.stack(columns), shape) if columns else np.zeros(shape)

    def _pushed(self, i: int, t: Any, *xs: Any, **params: Any) -> Any:
        """Return the tangent of the result for that of operand `i`."""
        if self._jvp is not None:
            return self._along(i, t, xs, params)
        if self._jacobian is not None:
            j = self._matrix(i, xs, params)
            if not _is_matrix(j):
                return np.tensordot(j, t, len(shape_of(t)))
            return np.reshape(j @ np.reshape(t, -1), self._shape(xs, params))
        shape = self._shape(xs, params)
        assert self._vjp is not None
        rows = []
        for e in _units(shape, t):
            cotangents = self._vjp(xs, e, **params)
            rows.append(
                np.sum(t * (cotangents[i] if isinstance(cotangents, (tuple, list)) else cotangents))
            )
        return np.reshape(np.stack(rows), shape) if rows else np.zeros(shape)

    def _shape(self, xs: Any, params: Any) -> tuple[int, ...]:
        """Return the shape of the result."""
        return shape_of(_of_host(self._f)(*map(concrete, xs), **params))

    def _along(self, i: int, t: Any, xs: Any, params: Any) -> Any:
        """Return the tangent of the result as the user's function says."""
        assert self._jvp is not None
        tangents = [np.zeros(shape_of(x), np.result_type(float, t)) for x in xs]
        tangents[i] = t
        return self._jvp(tuple(xs), tuple(tangents), **params)

    def _matrix(self, i: int, xs: Any, params: Any) -> Any:
        assert self._jacobian is not None
        jacobian = self._jacobian(*xs, **params)
        if not isinstance(jacobian, (tuple, list)):
            if len(xs) > 1:
                raise TypeError(
                    f"{self._name}: jacobian returned {type(jacobian).__name__}; for {len(xs)} "
                    "arguments it returns a tuple, with None where there is no derivative"
                )
            return jacobian
        if jacobian[i] is None:
            raise TypeError(
                f"{self._name}: jacobian gives no derivative by argument {i}; pass it as a plain "
                "array"
            )
        return jacobian[i]

    def _of_shape(self, what: str, x: Any, shape: tuple[int, ...]) -> Any:
        if shape_of(x) != shape:
            raise ShapeError(
                f"{self._name}: {what} returned shape {shape_of(x)}, and {shape} was expected"
            )
        return x


def _is_matrix(j: Any) -> bool:
    """Whether a Jacobian is a sparse matrix, or an operator."""
    if isinstance(j, np.ndarray) or traced(j) or hasattr(j, "__array__"):
        return False
    return hasattr(j, "T") and getattr(j, "ndim", None) == 2


def _units(shape: tuple[int, ...], like: Any) -> Any:
    """Yield the unit vectors of a shape."""
    dtype = np.result_type(like) if not hasattr(like, "dtype") else like.dtype
    for k in range(int(np.prod(shape, dtype=int))):
        e = np.zeros(shape, dtype)
        e[np.unravel_index(k, shape)] = 1
        yield e[()]

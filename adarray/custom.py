"""Derivative rules of users, for their own functions and for ufuncs of other packages."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from adarray.base.op import (
    COMPOSITES,
    CONSTANT_FUNCTIONS,
    FUNCTIONS,
    OPS,
    REFUSED,
    Op,
    Opaque,
    Pointwise,
    Rule,
    register,
)
from adarray.base.runtime import MODE
from adarray.base.scope import SCOPE
from adarray.batching.rules import members
from adarray.core.dispatch import apply
from adarray.core.protocol import check_params, finish, plain
from adarray.core.trace import Handle
from adarray.device import is_device

# Functions that users have registered, by ``id``.
REGISTERED: dict[int, Any] = {}


def register_rule(
    function: Callable[..., Any],
    *rules: Rule | None,
    jvp: Sequence[Rule | None] | str | None = None,
    operands: Sequence[str] = (),
    params: Sequence[str] = (),
    samples: Callable[[np.random.Generator], list[Any]] | None = None,
    name: str | None = None,
    expr: Callable[..., Any] | None = None,
) -> Callable[..., Any]:
    """Give a function derivative rules, so that adarray treats it as a single operation.

    Parameters
    ----------
    function : callable
        A ufunc of any package (from Numba, say, or made by `numpy.frompyfunc`), an instance of
        `numpy.vectorize`, or a function of arrays (for example in C) that returns one array.
    *rules : callable or None
        One for each operand: given the cotangent `g` of the result `out`, ``rule(g, out, *operands,
        **params)`` returns the cotangent of the operand, with its shape. None where there is no
        derivative. Rules are plain NumPy code, from which derivatives of higher order follow.
    jvp : sequence of callable or None, or "linear", optional
        For each operand, ``jvp(t, out, *operands, **params)`` returns the tangent of the result for
        the tangent `t` of the operand. ``"linear"`` says that the function is linear in each
        operand. Not needed for elementwise ufuncs, whose rules serve both modes. Without it,
        forward mode raises an error, and `hessian` and `jacobian` use reverse mode instead.
    operands : sequence of str, optional
        Names of the differentiable arguments; by default the first ones, one for each rule.
    params : sequence of str, optional
        Names of further arguments; by default, all others.
    samples : callable, optional
        ``samples(rng)`` returns a list of `adarray.base.op.Sample`, for
        `adarray.testing.opcheck`.
    name : str, optional
        Name in messages; by default, that of the function.
    expr : callable, optional
        What the function computes, as NumPy code: ``expr(*operands, **params)``. `adarray.jit` then
        makes it part of its kernels on every backend, together with the rules, and arrays on a GPU
        stay there; otherwise the function is called between two kernels. For an elementwise
        function, it may contain operators, NumPy's ufuncs and `numpy.where`. For others, any NumPy
        function; `jit` compares both when it records a call, and stays eager if they disagree.

    Returns
    -------
    callable
        For a ufunc, the ufunc itself, since NumPy passes its calls to adarray. For other functions,
        a function to call instead; `adarray.intercept` calls it wherever it finds the original.

    Raises
    ------
    ValueError
        If the function already has rules, or the name is taken.
    TypeError
        If the number of rules differs from the number of operands.

    Notes
    -----
    `g` is paired with a tangent t as ``Re(sum(g * t))``, so rules of analytic functions of complex
    numbers use the derivative without a conjugate.

    Examples
    --------
    >>> import numpy as np, adarray
    >>> def cube(x):  # compiled elsewhere, say
    ...     return np.asarray(x) ** 3
    >>> cube = adarray.register_rule(cube, lambda g, out, x: g * 3 * x**2)
    >>> adarray.grad(lambda x: np.sum(cube(x)))(np.array([1.0, 2.0]))
    array([ 3., 12.])
    """
    if not callable(function):
        raise TypeError(
            f"register_rule: expected a function, got {type(function).__name__}; pass the function"
        )
    name = str(name or getattr(function, "__name__", repr(function)))
    if function in FUNCTIONS:
        raise ValueError(
            f"register_rule: {name} has rules; it is the operation {FUNCTIONS[function].name!r}"
        )
    if function in COMPOSITES:
        raise ValueError(
            f"register_rule: {name} is differentiated already, as a composite of others"
        )
    if name in OPS:
        raise ValueError(f"register_rule: there is an operation named {name!r}; pass name=")
    # What was known to have no derivative has one now.
    CONSTANT_FUNCTIONS.discard(function)
    REFUSED.pop(function, None)
    if isinstance(function, np.ufunc):
        return _register_ufunc(function, rules, jvp, samples, name, expr)
    elementwise = _is_elementwise(function)
    if elementwise and jvp is None:
        jvp = rules
    operands, params = _arguments(function, rules, operands, params, name)
    signature = ", ".join((*operands, *params)) if elementwise else None
    if expr is not None and elementwise:
        op = Op(
            name, function, Pointwise(expr), rules, operands=tuple(operands), samples=samples,
            signature=signature, evaluate=outside(function),
        )  # fmt: skip
    else:
        op = Op(
            name, function, Opaque(expr), rules, jvp=jvp, operands=tuple(operands),
            params=tuple(params), samples=samples, signature=signature,
            evaluate=outside(function, expr),
            needs=_all_values(len(rules)) if samples is None else None, batch=members,
        )  # fmt: skip
    register(op)
    REGISTERED[id(function)] = function
    return dispatching_of(op, function)


def outside(
    function: Callable[..., Any], body: Callable[..., Any] | None = None
) -> Callable[..., Any]:
    """Return a function that is one operation as it computes: not intercepted, nor recorded.

    `body` computes the same with NumPy's functions, for arrays on a device.
    """

    def evaluate(*args: Any, **params: Any) -> Any:
        if body is not None and any(map(is_device, args)):
            wrapped = [Handle.array_class(x, None, None, True) if is_device(x) else x for x in args]
            return plain(body(*wrapped, **params))
        scope, mode = SCOPE.set(None), MODE.set(None)
        try:
            return plain(function(*args, **params))
        finally:
            MODE.reset(mode)
            SCOPE.reset(scope)

    evaluate.__name__ = str(getattr(function, "__name__", function))
    return evaluate


def _is_elementwise(function: Any) -> bool:
    """Whether a function that is no ufunc is known to work element by element."""
    if isinstance(function, np.vectorize):
        return function.signature is None and not function.excluded
    kind = type(function)  # Numba's ufuncs are objects of its own
    return kind.__name__ == "DUFunc" and kind.__module__.partition(".")[0] == "numba"


def _of_objects(ufunc: np.ufunc) -> Callable[..., Any] | None:
    """Return how to compute a ufunc that knows Python objects only; None for others."""
    if any(set(t) - set("O->") for t in ufunc.types):
        return None

    def evaluate(*values: Any, **params: Any) -> Any:
        result = np.asarray(ufunc(*values, **params))
        dtype = np.result_type(*(v if hasattr(v, "dtype") else np.asarray(v).dtype for v in values))
        if result.dtype.kind == "O":
            exact = np.asarray(result.tolist())
            dtype = np.result_type(exact.dtype, dtype) if exact.dtype.kind == "c" else dtype
            result = result.astype(dtype if dtype.kind in "fc" else exact.dtype)
        return result[()]

    return evaluate


def _register_ufunc(
    ufunc: np.ufunc, rules: Any, jvp: Any, samples: Any, name: str, expr: Any
) -> Callable[..., Any]:
    if len(rules) != ufunc.nin or ufunc.nout != 1:
        raise TypeError(
            f"register_rule: {name} has {ufunc.nin} operands and {ufunc.nout} results, and "
            f"{len(rules)} rules were given; give one rule for each operand (None where there is "
            "no derivative) of a function with one result"
        )
    if ufunc.signature is None and jvp is None:
        jvp = rules  # a diagonal Jacobian is its own transpose
    names = tuple(f"x{i}" for i in range(ufunc.nin))
    signature = ", ".join(names) + ", /, out=None"
    if expr is not None and ufunc.signature is None:
        op = Op(
            name, ufunc, Pointwise(expr), rules, samples=samples, operands=names,
            signature=signature, evaluate=_of_objects(ufunc),
        )  # fmt: skip
    else:
        op = Op(
            name, ufunc, Opaque(expr), rules, jvp=jvp, samples=samples, operands=names,
            signature=signature, evaluate=_of_objects(ufunc),
            needs=_all_values(ufunc.nin) if samples is None else None, batch=members,
        )  # fmt: skip
    register(op)
    REGISTERED[id(ufunc)] = ufunc
    return ufunc


def _all_values(arity: int) -> Callable[[int], tuple[bool, ...]]:
    return lambda _mask: (True,) * (arity + 1)


def _arguments(
    function: Callable[..., Any],
    rules: Sequence[Any],
    operands: Sequence[str],
    params: Sequence[str],
    name: str,
) -> tuple[Sequence[str], Sequence[str]]:
    """Return the names of the differentiable arguments and of the others."""
    try:
        seen = function.pyfunc if isinstance(function, np.vectorize) else function
        names = list(inspect.signature(seen).parameters)
    except (TypeError, ValueError):
        raise TypeError(
            f"register_rule: {name} does not tell its arguments; wrap it in a Python function"
        ) from None
    operands = operands or names[: len(rules)]
    missing = [n for n in (*operands, *params) if n not in names]
    if missing or len(operands) != len(rules) or not rules:
        raise TypeError(
            f"register_rule: {name} has the arguments {names}, {list(operands)} are "
            f"differentiated, and {len(rules)} rules were given; give one rule for each of them"
        )
    return operands, params or [n for n in names if n not in operands]


def dispatching_of(op: Op, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function to call in place of `function`: ADArrays take the operation's way."""

    @functools.wraps(function)
    def dispatching(*args: Any, **kwargs: Any) -> Any:
        bound, options, _ = op.bind(args, kwargs)
        check_params(op, options)
        if any(isinstance(x, Handle) for x in bound):
            return finish(apply(op, tuple(bound), options), None, op.name)
        return function(*plain(args), **plain(kwargs))

    FUNCTIONS[dispatching] = op
    return dispatching

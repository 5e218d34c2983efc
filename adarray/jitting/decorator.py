"""`jit`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, overload

from adarray.jitting.donating import DonatingFunction
from adarray.jitting.front import JitFunction
from adarray.jitting.jitted import Decorator, Jitted
from adarray.jitting.options import checked

_P = ParamSpec("_P")
_R = TypeVar("_R")


@overload
def jit(
    f: Callable[_P, _R],
    *,
    precise: bool = False,
    memory_limit: int | None = None,
    max_paths: int = 64,
    donate: int | tuple[int, ...] = (),
    assume_constant: Any = (),
) -> Jitted[_P, _R]: ...


@overload
def jit(
    f: None = None,
    *,
    precise: bool = False,
    memory_limit: int | None = None,
    max_paths: int = 64,
    donate: int | tuple[int, ...] = (),
    assume_constant: Any = (),
) -> Decorator: ...


def jit(
    f: Callable[..., Any] | None = None,
    *,
    precise: bool = False,
    memory_limit: int | None = None,
    max_paths: int = 64,
    donate: int | tuple[int, ...] = (),
    assume_constant: Any = (),
) -> Any:
    """Return a function that does what `f` does, compiled.

    Parameters
    ----------
    f : callable
        Plain NumPy code, or a transform such as ``adarray.value_and_grad(loss)``. Not given
        where `jit` is used as a decorator with options.
    precise : bool
        Compute exp, sin and the like with the C library's scalar functions. By default
        vector versions are used, which may differ in the last bits.
    memory_limit : int, optional
        Bytes that intermediate values may take; what does not fit is computed again where
        that is possible.
    max_paths : int
        How many ways through `f` are compiled for one signature. Numbers of rounds of a
        loop, after which `f` goes on in the same way, count once.
    donate : int or tuple of int
        Positional arguments whose arrays the caller gives up: of each, the first result of
        its shape and dtype is written into its memory, and is that array, as with ``out=``
        of NumPy's functions. Meant for loops such as ``w = step(w, x)``. The arrays must be
        contiguous, own their memory and share it with nothing; where a derivative is taken,
        and of ADArrays, nothing is donated.
    assume_constant : str, object, or tuple of them
        What `f` captures and no call need look at, as a name that `f` uses (``"table"``,
        ``"model.weights"``) or as the object itself: it is taken to be what it is when `f` is
        recorded. For large constants, and for objects that cannot be compared.

    Returns
    -------
    callable
        Takes what `f` takes and returns what it returns: plain arrays for plain arrays,
        ADArrays for ADArrays.

    Raises
    ------
    TypeError, ValueError
        If `f` is not callable, or an option is wrong; in calls, if an array cannot be
        donated.

    Warns
    -----
    JitWarning
        Once for each signature that is not compiled, with the reason; and for donated
        arrays that no result fits into.

    Notes
    -----
    The first two calls with arguments of one signature (shapes, dtypes, memory layout,
    types of numbers) run `f` and record its operations; if both runs agree, what they did is
    compiled, and later calls run that. Where Python looks at a value, as in ``if x > 0``,
    the compiled function looks too, and follows the branch that it finds; a branch that is
    new is recorded. What `f` reads besides its arguments is looked at in every call:
    captured arrays are inputs, and other captured values that change are seen; of kinds
    that cannot be compared, `f` stays eager, see `register_captured`. Effects of `f` besides
    its results and writes into arrays happen only in calls that are recorded.

    Examples
    --------
    >>> import numpy as np, adarray
    >>> @adarray.jit
    ... def f(x):
    ...     return np.sum(x * x) if x[0] > 0 else np.max(x)
    >>> [float(f(np.array([a, 2.0]))) for a in (1.0, -1.0, 3.0, -3.0)]
    [5.0, 2.0, 13.0, 2.0]
    """
    options = checked(precise, memory_limit, max_paths, donate, assume_constant)
    if f is None:
        return functools.partial(jit, **options._asdict())
    if not callable(f):
        raise TypeError(f"jit: expected a function, got {type(f).__name__}")
    return (DonatingFunction if options.donate else JitFunction)(f, options)

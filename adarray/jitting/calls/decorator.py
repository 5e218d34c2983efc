"""`jit`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, overload

from adarray.jitting.calls.donating import DonatingFunction
from adarray.jitting.calls.front import JitFunction
from adarray.jitting.calls.jitted import Decorator, Jitted
from adarray.jitting.shared.options import checked

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
    wait: bool = False,
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
    wait: bool = False,
) -> Decorator: ...


def jit(
    f: Callable[..., Any] | None = None,
    *,
    precise: bool = False,
    memory_limit: int | None = None,
    max_paths: int = 64,
    donate: int | tuple[int, ...] = (),
    assume_constant: Any = (),
    wait: bool = False,
) -> Any:
    """Return a compiled version of a function.

    Parameters
    ----------
    f : callable
        Plain NumPy code, or a transform such as ``adarray.value_and_grad(loss)``. Omitted when
        `jit` is used as a decorator with options.
    precise : bool
        Compute exp, sin and the like with the scalar functions of the C library. By default,
        vectorised versions are used, which may differ in the last bits.
    memory_limit : int, optional
        Number of bytes that intermediate values may take; values that do not fit are recomputed
        where possible. So are those that the derivative of a captured loop keeps.
    max_paths : int
        How many paths through `f` to compile for one signature. Paths that differ only in the
        number of iterations of a loop count once.
    donate : int or tuple of int
        Positional arguments whose arrays the caller gives up. The first result with the shape and
        dtype of such an array is written into its memory, and is that array, as with ``out=`` in
        NumPy. Meant for loops such as ``w = step(w, x)``. The arrays must be contiguous, own their
        memory and share it with nothing else. ADArrays are not donated, nor is anything while a
        derivative is taken.
    assume_constant : str, object, or tuple of them
        Captured objects that never change, given by a name that `f` uses (``"table"``,
        ``"model.weights"``) or as the object itself. Calls do not check them: `f` uses them as they
        were when it was recorded. For large constants, and for objects that cannot be compared.
    wait : bool
        Wait for the C compiler, however long it takes. By default, NumPy answers calls after 10 s,
        until the compiled code is ready.

    Returns
    -------
    callable
        Takes the same arguments as `f` and returns the same results: plain arrays for plain arrays,
        ADArrays for ADArrays.

    Raises
    ------
    TypeError, ValueError
        If `f` is not callable, or an option is invalid; in calls, if an array cannot be donated.

    Warns
    -----
    JitWarning
        Once for each signature that is not compiled, with the reason; and if no result fits into a
        donated array.

    Notes
    -----
    The first call with arguments of one signature (shapes, dtypes, memory layout, types of
    numbers) runs `f` and records its operations. The second compiles them, and later calls run the
    compiled code. Where one run does not show what the next one would do, as with random numbers,
    two calls are recorded, and compiled if both recordings agree. Where Python reads a value, as in
    ``if x > 0``, the compiled code checks the value too, and takes the branch that applies; new
    branches are recorded and compiled. Whatever `f` reads besides its arguments is checked in every
    call: captured arrays are read afresh, and changes of other captured values are noticed. If `f`
    captures an object that cannot be compared, it stays uncompiled (see `register_captured`). Side
    effects other than writes into arrays and captured objects, such as printing, happen only in
    calls that are recorded.

    Examples
    --------
    >>> import numpy as np, adarray
    >>> @adarray.jit
    ... def f(x):
    ...     return np.sum(x * x) if x[0] > 0 else np.max(x)
    >>> [float(f(np.array([a, 2.0]))) for a in (1.0, -1.0, 3.0, -3.0)]
    [5.0, 2.0, 13.0, 2.0]
    """
    options = checked(precise, memory_limit, max_paths, donate, assume_constant, wait)
    if f is None:
        return functools.partial(jit, **options._asdict())
    if not callable(f):
        raise TypeError(f"jit: expected a function, got {type(f).__name__}")
    return (DonatingFunction if options.donate else JitFunction)(f, options)

"""checkpoint: functions that run once more for their derivative, and keep their arguments alone.

References
----------
- A. Griewank, A. Walther, "Evaluating Derivatives", 2nd ed., SIAM 2008, chapter 12.
- T. Chen, B. Xu, C. Zhang, C. Guestrin, "Training deep nets with sublinear memory cost",
  arXiv:1604.06174, 2016.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from adarray.arrays.plainarrays import opened
from adarray.base.aval import Symbolic
from adarray.base.errors import TraceError
from adarray.base.runtime import MODE
from adarray.core.protocol import concrete
from adarray.core.trace import Handle
from adarray.device import host
from adarray.transforms.calls import RuleCall, Whole, dtype_of, plain_number
from adarray.transforms.replay import Replay
from adarray.transforms.running import check_function, prepared
from adarray.transforms.tree import flatten, is_array


def sums(x: list[Any]) -> list[Any] | None:
    """Return the sums of arrays, which tell them apart; None where they are recorded."""
    if any(isinstance(h, Handle) and isinstance(h._plain, Symbolic) for h in x):
        return None
    values = [concrete(v) for v in x]
    # In C order, since the rounding error of a sum depends on the order.
    return [np.sum(v.ravel() if isinstance(v, np.ndarray) else v) for v in values]


def agree(before: list[Any] | None, now: list[Any] | None) -> bool:
    """Whether a function has computed the same twice, as far as it is known."""
    if before is None or now is None:
        return True
    return len(before) == len(now) and all(
        np.array_equal(host(a), host(b), equal_nan=True) for a, b in zip(before, now, strict=True)
    )


class Checkpoint(Whole):
    """A function of which only the arguments are kept; see `checkpoint`."""

    captures = True
    keeps_tangents = True
    holds = False

    def _evaluate(self, args: list[Any]) -> tuple[Any, Any]:
        mode = MODE.get()
        recorder = mode.recorder if mode is not None else None
        before = 0 if recorder is None else recorder.drawn()
        y, _ = super()._evaluate(args)
        if recorder is not None and recorder.drawn() != before:
            raise TraceError(
                f"{self._op.name}: the function draws random numbers, which would be others when "
                "it runs again for its derivative; draw them outside, and pass them"
            )
        leaves = [x for x in flatten(y)[0] if is_array(x) and dtype_of(x).kind in "fc"]
        with np.errstate(all="ignore"):
            return y, sums(leaves)

    def _pull(self, call: RuleCall, operands: list[Any], cotangents: list[Any]) -> dict[int, Any]:
        own = [k for k in call.followed if k < len(operands)]
        run = prepared(self._f, True)

        def again(*xs: Any) -> list[Any]:
            leaves = list(operands)
            for k, x in zip(own, xs, strict=True):
                leaves[k] = x
            again_leaves, _ = flatten(run(*self._full(call.args, call.rebuild(leaves))))
            floating = [x for x in again_leaves if is_array(x) and dtype_of(x).kind in "fc"]
            with np.errstate(all="ignore"):
                same = agree(call.residuals, sums(floating))
            if not same:
                raise TraceError(
                    f"{self._op.name}: the function computed something else when it ran again for "
                    "its derivative; random numbers and what changes meanwhile must be arguments"
                )
            return floating

        replay = Replay(self._op.name, again, [operands[k] for k in own])
        if replay.differs(call.captured):
            raise TraceError(
                f"{self._op.name}: the function read other traced values when it ran again for "
                "its derivative; what changes meanwhile must be an argument"
            )
        targets = call.targets()
        parts = replay.pull(cotangents, targets)
        first = len(operands)
        at = {id(n): first + k for k, n in enumerate(call.captured)}
        places = [*own, *(at[id(n)] for n in targets)]
        return dict(zip(places, map(plain_number, parts), strict=True))


def checkpoint(f: Callable[..., Any]) -> Callable[..., Any]:
    r"""Return a version of `f` that recomputes its intermediate values instead of storing them.

    Reverse mode stores what each operation computes until the gradient is known. For a call of
    ``checkpoint(f)`` it stores only the arguments, and runs `f` once more on the way back: this
    saves memory at the cost of one more evaluation. A loop of n steps that is divided into about
    :math:`\sqrt n` checkpoints stores about :math:`2 \sqrt n` states at a time.

    Parameters
    ----------
    f : callable
        Returns an array or a nest of arrays. It must compute the same values both times: create
        random generators inside of `f`, or pass random numbers as arguments.

    Returns
    -------
    callable
        Takes and returns the same as `f`. Without reverse mode it simply calls `f`. `checkpoint`
        can be used as a decorator.

    Raises
    ------
    TraceError
        If `f` writes into an argument, or computes something else the second time.

    Notes
    -----
    Traced values that `f` reads besides its arguments, such as weights captured by a closure,
    receive their gradients too. Derivatives of any order equal those of `f`, and forward over
    reverse mode, as in `hvp`, saves memory as well. Under `adarray.jit` the compiler sees both
    runs; ``jit(f, memory_limit=...)`` lets it decide by itself what to compute again.

    References
    ----------
    A. Griewank, A. Walther: Evaluating Derivatives, 2nd ed., SIAM 2008, chapter 12.

    Examples
    --------
    >>> import numpy as np, adarray
    >>> @adarray.checkpoint
    ... def layer(x, w):
    ...     return np.tanh(np.sin(x @ w))
    >>> def loss(w):
    ...     x = np.ones(2)
    ...     for _ in range(3):
    ...         x = layer(x, w)
    ...     return np.sum(x)
    >>> adarray.grad(loss)(np.eye(2)).round(4)
    array([[0.6955, 0.6955],
           [0.6955, 0.6955]])
    """
    return Checkpoint("checkpoint", f)


def checkpoint_sequential(
    functions: Sequence[Callable[..., Any]], x: Any, segments: int | str = "sqrt"
) -> Any:
    r"""Apply functions one after another, storing only some of the results between them.

    Parameters
    ----------
    functions : sequence of callable
        Each takes what the previous one returns: an array, or a nest of arrays.
    x : array, number, or nest of them
        The argument of the first function.
    segments : int or "sqrt"
        Number of segments, of nearly equal length, into which the functions are divided. Each
        segment but the last is a `checkpoint`. ``"sqrt"`` uses about the square root of the number
        of functions, which stores least.

    Returns
    -------
    structure of the last result

    Raises
    ------
    ValueError
        If `segments` is less than 1.
    TraceError
        As by `checkpoint`.

    See Also
    --------
    checkpointed_loop : For many steps of one function.

    Notes
    -----
    With n functions in s segments, at most :math:`s + n/s` results are stored at a time, and each
    function runs twice.

    Examples
    --------
    >>> import numpy as np, adarray
    >>> layers = [np.sin, np.cos, np.tanh, np.exp]
    >>> f = lambda x: np.sum(adarray.checkpoint_sequential(layers, x))
    >>> adarray.grad(f)(np.array([0.5, 1.0])).round(4)
    array([-0.4083, -0.4765])
    """
    name = "checkpoint_sequential"
    if callable(functions) or not isinstance(functions, Iterable):
        raise TypeError(
            f"{name}: functions is of type {type(functions).__name__}; pass a list of functions, "
            f"then the argument of the first one: {name}([f, g], x)"
        )
    functions = list(functions)
    for f in functions:
        check_function(name, f)
    count = len(functions)
    if isinstance(segments, str) and segments == "sqrt":
        segments = max(1, round(math.sqrt(count)))
    if not isinstance(segments, (int, np.integer)) or isinstance(segments, bool) or segments < 1:
        raise ValueError(
            f"{name}: segments is {segments!r}; pass a number of at least 1, or 'sqrt'"
        )
    size = max(1, math.ceil(count / segments))
    for start in range(0, count, size):
        part = functions[start : start + size]
        last = start + size >= count
        x = _composed(part)(x) if last else Checkpoint(name, _composed(part))(x)
    return x


def _composed(functions: Sequence[Callable[..., Any]]) -> Callable[[Any], Any]:
    """Return a function that applies functions one after the other."""

    def composed(x: Any) -> Any:
        for f in functions:
            x = prepared(f, True)(x)
        return opened(x)

    return composed

"""Loops of many steps whose states are kept at checkpoints only: `checkpointed_loop`."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from adarray.base.runtime import MODE
from adarray.transforms import schedules
from adarray.transforms.running import check_function
from adarray.transforms.stepping import Loop, plain_loop_of


def checkpointed_loop(
    step: Callable[..., Any],
    state: Any,
    n: int,
    snapshots: int | str = "sqrt",
    *,
    schedule: str = "binomial",
    has_aux: bool = False,
    disk: int = 0,
    directory: Any = None,
) -> Any:
    r"""Apply a step n times, storing few states for the derivative and recomputing the others.

    Parameters
    ----------
    step : callable
        ``step(state)``, or ``step(state, i)`` with the index of the step if it has a second
        argument without a default. Returns the next state. It may write into its argument.
    state : array, number, or nest of them
        The initial state, which is not modified.
    n : int
        Number of steps.
    snapshots : int, "sqrt" or "log"
        Number of states to store in memory at a time, including the initial one. ``"sqrt"`` stands
        for :math:`\lceil\sqrt n\,\rceil`, ``"log"`` for :math:`\lceil\log_2 n\rceil + 1`.
    schedule : "binomial", "mixed" or "periodic"
        ``"binomial"`` runs the fewest steps possible with that many states (Revolve). ``"mixed"``
        runs the fewest steps if everything that the derivative of a step needs may be stored in
        place of a state. ``"periodic"`` stores every :math:`\lceil n/s\rceil`-th state and, for one
        such period at a time, all that its steps compute, so that each step runs twice.
    has_aux : bool
        Whether a step returns a pair ``(state, aux)``. Gradients flow through `aux` as well.
    disk : int
        Number of further states to store on disk: those that are read and written least.
    directory : str or path, optional
        Folder for the states on disk; by default, that of `tempfile`. The file has no name, and
        disappears with the graph.

    Returns
    -------
    structure of the state
    list of aux
        Only with `has_aux`.

    Raises
    ------
    ValueError
        If `snapshots`, `schedule`, `disk` or `n` is not valid.
    TraceError
        If a step is found to compute something else when it runs again.

    See Also
    --------
    checkpointed_while : For loops whose number of steps is not known in advance.
    checkpoint : For functions that are not loops.

    Notes
    -----
    With s snapshots, let r be the smallest number with :math:`n \le \binom{s+r}{s}`. The binomial
    schedule runs :math:`(r+1)\,n - \binom{s+r}{s+1}` steps, including those of the forward pass.
    The intermediate values of a step are stored for one step at a time.

    Traced values that `step` reads besides the state receive their gradients. Forward mode stores
    no states, and forward over reverse mode (`hvp`) stores as many as reverse mode does; reverse
    over reverse stores all. Under `adarray.jit` the loop is recorded like any other, and ``jit(f,
    memory_limit=...)`` decides what to store.

    References
    ----------
    A. Griewank, A. Walther: Algorithm 799: Revolve, ACM Trans. Math. Softw. 26 (2000), 19-45;
    P. Stumm, A. Walther, SIAM J. Sci. Comput. 31 (2009), 1946-1967 (disk);
    J. R. Maddison, J. Comput. Sci. 82 (2024), 102405 (mixed).

    Examples
    --------
    >>> import numpy as np, adarray
    >>> def final(x, k):
    ...     return adarray.checkpointed_loop(lambda x: x + 0.01 * np.sin(k * x), x, 1000, 10)
    >>> dx, dk = adarray.grad(final, (0, 1))(0.5, 2.0)
    >>> round(float(dx), 6), round(float(dk), 6)
    (0.0, -0.785398)
    """
    name = "checkpointed_loop"
    check_function(name, step)
    count, disk = _whole(name, "n", n), _whole(name, "disk", disk)
    if count < 0 or disk < 0:
        raise ValueError(f"{name}: n is {count} and disk is {disk}; pass numbers of at least 0")
    memory = _units(name, snapshots, count)
    units = min(memory + disk, max(count, 1))
    memory = min(memory, units)
    makes: dict[str, Callable[[], schedules.Schedule]] = {
        "binomial": lambda: schedules.binomial,
        "mixed": lambda: schedules.mixed(count, units),
        "periodic": lambda: schedules.periodic(max(1, math.ceil(count / units))),
    }
    if schedule not in makes:
        raise ValueError(
            f"{name}: schedule is {schedule!r}; pass 'binomial', 'mixed' or 'periodic'"
        )
    if disk and schedule == "mixed":
        raise ValueError(
            f"{name}: schedule='mixed' holds what steps have computed, which cannot be on disk; "
            "take 'binomial' with disk="
        )
    run = plain_loop_of(name, step, count, None, has_aux)
    if not _is_needed():
        return run(state)
    moves = makes[schedule]()
    on_disk: set[int] = set()
    if memory < units:
        often = schedules.accesses(moves, count, units)
        on_disk = set(sorted(range(units), key=lambda k: (often[k], k))[: units - memory])
    loop = Loop(
        name, step, run, units=units, schedule=moves, memory=memory, on_disk=on_disk,
        directory=directory, count=count, has_aux=has_aux,
    )  # fmt: skip
    return loop(state)


def checkpointed_while(
    cond: Callable[[Any], Any],
    step: Callable[..., Any],
    state: Any,
    snapshots: int,
    *,
    has_aux: bool = False,
    disk: int = 0,
    directory: Any = None,
) -> Any:
    """Apply a step while a condition holds, storing few states for the derivative.

    Parameters
    ----------
    cond : callable
        ``cond(state)`` returns whether to run another step.
    step : callable
        As for `checkpointed_loop`.
    state : array, number, or nest of them
        The initial state, which is not modified.
    snapshots : int
        Number of states to store in memory at a time, including the initial one.
    has_aux : bool
        Whether a step returns a pair ``(state, aux)``. Gradients flow through `aux` as well.
    disk : int
        Number of further states to store on disk.
    directory : str or path, optional
        Folder for the states on disk; by default, that of `tempfile`.

    Returns
    -------
    structure of the state
    list of aux
        Only with `has_aux`.

    Raises
    ------
    ValueError
        If `snapshots` or `disk` is not a valid number of states.
    TraceError
        If a step is found to compute something else when it runs again.

    Notes
    -----
    While the number of steps is unknown, states are stored and dropped such that each step runs at
    most once more than it would with the best schedule for the final number; the way back follows
    the binomial schedule. In total, up to a quarter more steps run than with `checkpointed_loop`.

    References
    ----------
    Q. Wang, P. Moin, G. Iaccarino: Minimal repetition dynamic checkpointing algorithm for unsteady
    adjoint calculation, SIAM J. Sci. Comput. 31 (2009), 2549-2567.

    Examples
    --------
    >>> import numpy as np, adarray
    >>> def root(a):  # Newton's method
    ...     return adarray.checkpointed_while(
    ...         lambda x: abs(x * x - a) > 1e-12, lambda x: 0.5 * (x + a / x), a, 4
    ...     )
    >>> round(float(adarray.grad(root)(2.0)), 6)  # 1 / (2 sqrt(2))
    0.353553
    """
    name = "checkpointed_while"
    check_function(name, cond)
    check_function(name, step)
    disk = _whole(name, "disk", disk)
    if disk < 0:
        raise ValueError(f"{name}: disk is {disk}; pass a number of at least 0")
    memory = _units(name, snapshots, None)
    run = plain_loop_of(name, step, None, cond, has_aux)
    if not _is_needed():
        return run(state)
    loop = Loop(
        name, step, run, units=memory + disk, schedule=schedules.binomial, memory=memory,
        on_disk=None, directory=directory, count=None, cond=cond, has_aux=has_aux,
    )  # fmt: skip
    return loop(state)


def _whole(name: str, what: str, x: Any) -> int:
    try:
        return operator.index(x)
    except TypeError:
        raise TypeError(f"{name}: {what} is a {type(x).__name__}; pass an int") from None


def _units(name: str, snapshots: int | str, count: int | None) -> int:
    """Return how many states are held in memory."""
    words = "" if count is None else ", 'sqrt' or 'log'"
    if isinstance(snapshots, str):
        if count is not None and snapshots == "sqrt":
            return max(1, math.isqrt(max(count, 1) - 1) + 1)
        if count is not None and snapshots == "log":
            return max(count - 1, 1).bit_length() + 1
    elif not isinstance(snapshots, (bool, float)) and operator.index(snapshots) >= 1:
        return operator.index(snapshots)
    raise ValueError(
        f"{name}: snapshots is {snapshots!r}; pass a number of states of at least 1{words}"
    )


def _is_needed() -> bool:
    """Whether current operations may be walked back other than by `jit`'s recording."""
    mode = MODE.get()
    return mode is None or (mode.record and not mode.symbolic)

"""Right-hand sides that jump where the state passes a threshold, in the steps of implicit methods.

The time of such a jump moves with the state, which no step says. Explicit methods notice it, since
their steps are tried (see `adarray.scipy._ode_kinks`); of implicit ones, the steps between whose
ends the slope changes most are halved until it changes less, or there is no step left.

References
----------
- E. Hairer, S. P. Nørsett, G. Wanner, "Solving Ordinary Differential Equations I: Nonstiff
  Problems", 2nd ed., Springer 1993, section II.6.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from adarray.base.errors import NotDifferentiableError
from adarray.scipy._ode_smooth import Field, is_smooth

_TRIED = 24  # steps, of the two orders each
_HALVES = 45  # of a step: a jump is between neighbouring numbers then
_CLEAR = 1e-6  # of the slopes: what is called a jump


def refuse_jumps(name: str, field: Field, slope: Field, times: Any, states: Any) -> None:
    """Raise if the right-hand side of an ODE jumps where its solution passes a threshold.

    Parameters
    ----------
    name : str
        Of the function that solves, for messages.
    field, slope : callable
        The right-hand side; the second gives plain values.
    times : ndarray, shape (n,)
    states : ndarray, shape (m, n)
        What the solver found.

    Raises
    ------
    NotDifferentiableError
    """
    times, states = np.asarray(times, float), np.asarray(states)
    if times.size < 2 or is_smooth(field, float(times[0]), states[:, 0]):
        return
    slopes = np.stack([np.asarray(slope(t, y)) for t, y in zip(times, states.T, strict=True)])
    size = np.max(np.abs(slopes)) + 1e-300
    change = np.max(np.abs(np.diff(slopes, axis=0)), axis=1)
    bend = change / np.maximum(np.abs(np.diff(times)), 1e-300)
    wide = np.concatenate([[0.0], bend, [0.0]])
    alone = bend / (np.maximum(wide[:-2], wide[2:]) + 1e-300)
    tried = {*np.argsort(-bend)[:_TRIED].tolist(), *np.argsort(-alone)[:_TRIED].tolist()}
    for i in sorted(tried):
        if change[i] > _CLEAR * size:
            _refuse_jump(name, slope, times[i : i + 2], states.T[i : i + 2], slopes[i : i + 2])


def _refuse_jump(name: str, slope: Field, times: Any, states: Any, slopes: Any) -> None:
    """Raise if the slope jumps between two states, and not for the time alone."""
    (low, high), (y, z), (f, g) = times, states, slopes
    first = np.max(np.abs(g - f))
    for k in range(_HALVES):
        if k % 6 == 5 and np.max(np.abs(g - f)) < 0.5 * first:
            return  # it changes little by little
        middle, between = low + (high - low) / 2, y + (z - y) / 2
        if middle in (low, high):
            break
        h = np.asarray(slope(middle, between))
        if np.max(np.abs(h - f)) > np.max(np.abs(g - h)):
            high, z, g = middle, between, h
        else:
            low, y, f = middle, between, h
    size = np.maximum(np.abs(f), np.abs(g)) + 1e-300
    if np.any(np.abs(g - np.asarray(slope(high, y))) > _CLEAR * size):
        raise NotDifferentiableError(
            f"{name}: the right-hand side jumps from {f} to {g} at t={high}, where the state "
            f"passes {z}; the derivative of the time of a jump is not taken: solve up to the jump "
            "and from there on, with its time from adarray.scipy.optimize.brentq, or make the "
            "right-hand side continuous"
        )

"""The recorded steps of an ODE's solution: states between them, and times of events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.integrate

from adarray.core.protocol import traced
from adarray.scipy._drop_in import array, holds, value
from adarray.scipy._functions import corrected
from adarray.scipy._implicit import elementwise
from adarray.scipy._ode_kinks import Refinement, Step
from adarray.scipy._ode_smooth import Field
from adarray.scipy._ode_steps import StepRecord, Steps, Tableau, are_small
from adarray.transforms.checkpointing import Checkpoint

# Bytes of states, one for each evaluation of the right-hand side, from which steps run again on the
# way back, and their states alone are kept. What it computes takes a multiple of that.
MUCH = 1 << 24
_STAGES = 6  # of RK45, the usual method


class Track:
    """States at the ends of steps, and steps from there to other times.

    Parameters
    ----------
    step : callable
        Takes one step: ``step(f, t, y, h)``.
    field : callable
        The right-hand side.
    t0, y0 : number, array
        Where it begins; may be traced.
    times : sequence of float
        Ends of the solver's steps, and further ones.
    refinement : Refinement, optional
        Adds times around kinks.
    batched : callable, optional
        ``batched(times, y0)`` returns how these steps go with plain values, and their method, where
        they are to be walked back at once: `StepRecord` and `Tableau`, or None.
    compiled : callable, optional
        Takes one step as one operation, ``compiled(t, y, h)``.
    """

    def __init__(
        self, step: Step, field: Field, t0: Any, y0: Any, times: Sequence[Any],
        refinement: Refinement | None,
        batched: Callable[[Any, Any], tuple[Tableau, StepRecord]] | None = None,
        compiled: Callable[[Any, Any, Any], Any] | None = None,
    ) -> None:  # fmt: skip
        self.step, self.field, self._compiled = step, field, compiled
        ends = np.unique(np.asarray(times, float))
        self._sign = 1.0 if times[0] <= times[-1] else -1.0
        ends = ends[:: int(self._sign)]
        if refinement is not None:
            ends = refinement.times(y0, ends)
        state = y0
        if traced(t0):  # a step of length 0, which has the derivative that the equation gives
            state = step(field, t0, state, float(value(t0)) - t0)
        self.times: list[float] = ends.tolist()
        self.states: Any  # a list of them, or one array, one a row
        start = np.asarray(value(state))
        if batched is not None and are_small(len(self.times) - 1, start):
            tableau, steps = batched(np.asarray(self.times), start)
            self.states = Steps(tableau, field, steps, self._one_by_one)(state)
        else:
            self.states = self._one_by_one(state)
        self._index = {t: i for i, t in enumerate(self.times)}

    def _one_by_one(self, state: Any) -> list[Any]:
        """Take the steps recorded, one after the other."""
        states = [state]

        def one(t: float, y: Any, h: float) -> Any:
            return self.step(self.field, t, y, h)

        advance: Callable[[Any, Any, Any], Any] = one
        if self._compiled is not None:  # which keeps its arguments alone
            advance = self._compiled
        elif _STAGES * len(self.times) * np.asarray(value(state)).nbytes >= MUCH:
            advance = Checkpoint("solve_ivp", one)
        for start, stop in zip(self.times[:-1], self.times[1:], strict=True):
            state = advance(start, state, stop - start)
            states.append(state)
        return states

    def many(self, times: Sequence[Any]) -> Any:
        """Return the states at times, one a column."""
        if not isinstance(self.states, list) and not traced(times):
            rows = [self._index.get(float(t)) for t in times]
            if None not in rows:
                return self.states[rows].T
        return np.stack([self.at(t) for t in times], axis=1)

    def at(self, t: Any) -> Any:
        """Return the state at a time, which may be traced."""
        time = float(value(t))
        i = self._index.get(time)
        if i is None:
            return self.after(time)(t)
        state = self.states[i]
        return state if not traced(t) else self.step(self.field, time, state, t - time)

    def after(self, time: float) -> Callable[[Any], Any]:
        """Return the solution as a function of times near one, by a step from the end before."""
        keys = self._sign * np.asarray(self.times)
        i = max(int(np.searchsorted(keys, self._sign * time)) - 1, 0)
        start, state = self.times[i], self.states[i]
        return lambda t: self.step(self.field, start, state, t - start)


_OdeSolution: Any = scipy.integrate.OdeSolution


class Dense(_OdeSolution):  # type: ignore[misc]
    """SciPy's solution as a function of time, which takes traced times, and is differentiable.

    Parameters
    ----------
    track : callable
        Makes the `Track`.
    plain : OdeSolution
        What SciPy found, which has the values.
    recorded : bool
        Whether states have a derivative, whatever the times are.
    """

    def __init__(self, track: Callable[[], Track], plain: Any, recorded: bool) -> None:
        self.__dict__.update(vars(plain))
        self._make, self._plain = track, plain
        self._track: Track | None = None
        self._recorded = recorded

    def __call__(self, t: Any) -> Any:
        """Return states, one a column where there are several times."""
        if not (self._recorded or holds(t)):
            return self._plain(t)
        times = array(t)
        expected = self._plain(value(times))
        if times.ndim > 1 or times.size == 0 or not (self._recorded or traced(times)):
            return expected
        self._track = track = self._track or self._make()
        if times.ndim == 0:
            return corrected(track.at(times), expected)
        states = [track.at(times[i] if traced(times) else float(value(times[i])))
                 for i in range(times.size)]  # fmt: skip
        return corrected(np.stack(states, axis=1), expected)


def located(
    name: str, track: Track, event: Callable[[Any, Any], Any], times: Any, states: Any
) -> tuple[Any, Any]:
    """Return times and states of an event with their derivatives: roots along the solution."""
    if len(times) == 0:
        return times, states
    located_events = []
    for time, state in zip(np.asarray(times).tolist(), states, strict=True):
        solution = track.after(time)

        def distance(t: Any, solution: Callable[[Any], Any] = solution) -> Any:
            return np.reshape(array(event(t, solution(t))), ())

        t = elementwise(name, distance, time)
        located_events.append((t, corrected(solution(t), state)))
    return np.stack([array(t) for t, _ in located_events]), np.stack([y for _, y in located_events])

"""Steps for the derivative of an ODE's solution where its right-hand side has kinks.

A step over a kink (of abs, maximum, where, clip, interp, ...) has a solution that is accurate to
the square of its length, which a solver accepts, and a derivative that is accurate to its length
only. So each step is tried with one derivative that is known: moved along the solution, it has
to end as much farther along it. A step that misses is cut at the place where it begins to miss,
until what is left of the kink matters no more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from adarray.errors import ADArrayError, NotDifferentiableError
from adarray.scipy._drop_in import value
from adarray.trace import Handle
from adarray.transforms import jvp

Field = Callable[[Any, Any], Any]
Step = Callable[[Field, Any, Any, Any], Any]

_FINEST = 1e-13  # of the whole interval: shorter steps are rounding errors
_MOST = 40  # cuts of one step of the solver; there is no end of kinks then
_TRIES = 2000, 40  # in all: so many, and so many for each step of the solver
_MANY = 16.0  # times the tolerance: no mere step that is too long
_POINT = 1e-2  # of a step: what is left of it at a kink
_CLEAR = 1e-6  # of the slopes: what is called a jump


class _End(NamedTuple):
    """Where a step ends: the state, its slope, and by how much too far the derivative is off."""

    state: Any
    slope: Any
    excess: float


class Refinement:
    """Finds steps whose derivatives are as accurate as their solution.

    Parameters
    ----------
    name : str
        Of the function that solves, for messages.
    step : callable
        Takes one step: ``step(f, t, y, h)``.
    field, plain_field : callable
        The right-hand side; what it is closed over may be traced. The second gives plain values.
    tolerances : tuple of array_like
        Of the solution, relative and absolute.
    """

    def __init__(
        self, name: str, step: Step, field: Field, plain_field: Field, tolerances: tuple[Any, Any]
    ) -> None:
        self._name = name
        self._step = step
        self._field = field
        self._slope = plain_field
        self._relative = np.maximum(np.asarray(tolerances[0], float), 1e-13)
        self._absolute = np.asarray(tolerances[1], float)
        self._span = 1.0
        self._tries = 0
        self.kink: float | None = None  # the time of one that depends on the state
        self._case: tuple[float, Any, Any, float] = (0.0, None, None, 0.0)
        self._in_time = True  # whether the right-hand side takes a traced time

    def times(self, start: Any, times: np.ndarray) -> np.ndarray:
        """Return the times of steps, those of `times` among them."""
        if times.size < 2:
            return times
        self._span = abs(float(times[-1] - times[0]))
        at, state = float(times[0]), np.asarray(value(start))
        slope = self._slope(at, state)
        found = [at]
        for stop in times[1:].tolist():
            end = self._tried(at, state, slope, stop)
            for _ in range(_MOST):
                if end.excess <= 1 or self._tries > _TRIES[0] + _TRIES[1] * times.size:
                    break
                at, (state, slope, _) = self._over_kink(at, state, slope, stop, end, found)
                if at == stop:
                    break
                end = self._tried(at, state, slope, stop)
            if at != stop:
                at, (state, slope, _) = stop, end
                found.append(at)
        return np.asarray(found)

    def _over_kink(
        self, at: float, state: Any, slope: Any, stop: float, whole: _End, found: list[float]
    ) -> tuple[float, _End]:
        """Go as far as a step is right, and over the kink; note both times."""
        start = _End(state, slope, 0.0)
        if whole.excess > _MANY:
            low, high = self._located(at, state, slope, stop, whole)
            here = self._tried(at, state, slope, low) if low != at else start
            over = self._tried(low, here.state, here.slope, high)
            if max(here.excess, over.excess) <= 1:
                if abs(high - low) < _POINT * abs(stop - at):
                    self._note_kink(here, high, over)
                found.extend([low, high] if low != at else [high])
                return high, over
        low, high, here, over = at, stop, start, whole
        while over.excess > 1:
            middle = low + (high - low) / 2
            if middle in (low, high) or abs(high - low) <= _FINEST * self._span:
                self._refuse_jump(here, high, over)
                break
            end = self._tried(at, state, slope, middle)
            if end.excess <= 1:
                low, here = middle, end
            else:
                high = middle
            over = self._tried(low, here.state, here.slope, high)
        found.extend([low, high] if low != at else [high])
        return high, over

    def _located(
        self, at: float, state: Any, slope: Any, stop: float, end: _End
    ) -> tuple[float, float]:
        """Return two close times on both sides of a kink, if there is a single one.

        The slope of a solution changes its own slope there: of a time between, both are compared
        with those at the ends.
        """
        low, high = at, stop
        left = slope, self._bend(at, state, slope)
        right = end.slope, self._bend(stop, end.state, end.slope)
        narrow = abs(stop - at) / (2 * end.excess)
        while abs(high - low) > max(narrow, _FINEST * self._span):
            middle = low + (high - low) / 2
            if middle in (low, high):
                break
            there = np.asarray(self._step(self._slope, at, state, middle - at))
            f = self._slope(middle, there)
            here = f, self._bend(middle, there, f)
            far = [
                np.sum(np.abs(here[0] - x[0])) + abs(stop - at) * np.sum(np.abs(here[1] - x[1]))
                for x in (left, right)
            ]
            if far[0] <= far[1]:
                low, left = middle, here
            else:
                high, right = middle, here
        return low, high

    def _bend(self, t: float, y: Any, slope: Any) -> Any:
        """Return the second derivative of the solution."""
        self._case = t, y, slope, 0.0
        return np.asarray(value(jvp(self._slope_moved, (0.0,), (1.0,))[1]))

    # Methods, not functions made anew: `jvp` looks once at what a function may reach.

    def _slope_moved(self, s: Any) -> Any:
        t, y, along, _ = self._case
        return self._field(t + s if self._in_time else t, y + s * along)

    def _step_moved(self, s: Any) -> Any:
        t, y, along, h = self._case
        return self._step(self._field, t + s if self._in_time else t, y + s * along, h)

    def _tried(self, t: float, y: Any, slope: Any, stop: float) -> _End:
        """Take a step, and compare its derivative along the solution with what it has to be."""
        h = stop - t
        self._tries += 1
        moved: Any
        if self._in_time:
            try:
                state, moved = self._moved(t, y, slope, h)
            except (ADArrayError, TypeError):  # it takes plain times only
                self._in_time = False
        if not self._in_time:
            state, moved = self._moved(t, y, slope, h)
        end = self._slope(stop, state)
        off = np.abs(moved - end) if self._in_time else self._by_halves(t, y, slope, h, moved)
        size = np.maximum(np.abs(slope), np.abs(end)) + np.abs(state) / self._span
        allowed = self._relative * size + self._absolute / self._span
        # Slopes are computed with rounding errors of their own.
        allowed = np.maximum(allowed, 1e-14 * np.max(size))
        excess = float(np.max(off / allowed)) if off.size else 0.0
        return _End(state, end, excess if np.isfinite(excess) else 0.0)

    def _moved(self, t: float, y: Any, along: Any, h: float) -> tuple[Any, Any]:
        """Return the state after a step, and its derivative where the start moves."""
        self._case = t, y, along, h
        state, moved = jvp(self._step_moved, (0.0,), (1.0,))
        return np.asarray(value(state)), np.asarray(value(moved))

    def _by_halves(self, t: float, y: Any, along: Any, h: float, moved: Any) -> Any:
        """Return by how much the derivative of a step differs from that of two halves."""
        state, way = self._moved(t, y, along, h / 2)
        return np.abs(self._moved(t + h / 2, state, way, h / 2)[1] - moved)

    def _note_kink(self, here: _End, high: float, over: _End) -> None:
        """Note a kink where the state is, not when the time is."""
        after = self._bend(high, over.state, over.slope)
        later = self._bend(high, here.state, over.slope)
        if np.any(np.abs(after - later) > 1e-3 * (np.abs(after) + np.abs(later))):
            self.kink = high

    def check_orders(self, results: Sequence[Any]) -> None:
        """Raise if results are differentiated twice over a kink, whose time moves.

        Raises
        ------
        NotDifferentiableError
        """
        if self.kink is None:
            return
        levels: set[int] = set()
        for x in results:
            if isinstance(x, Handle):
                levels.update(x._node.span if x._node is not None else ())
                levels.update(t.level for t in (x._x.tangents if x._x is not None else ()))
        if len(levels) > 1:
            raise NotDifferentiableError(
                f"{self._name}: the right-hand side has a kink at t={self.kink}, where the state "
                "passes a threshold; a second derivative would miss how its time moves: make the "
                "right-hand side smooth, or solve up to the kink and from there on, with its time "
                "from adarray.scipy.optimize.brentq"
            )

    def _refuse_jump(self, here: _End, high: float, over: _End) -> None:
        """Raise if the right-hand side jumps where the state is, not when the time is."""
        size = np.maximum(np.abs(here.slope), np.abs(over.slope)) + 1e-300
        later = self._slope(high, here.state)
        if np.any(np.abs(over.slope - later) > _CLEAR * size):
            raise NotDifferentiableError(
                f"{self._name}: the right-hand side jumps from {here.slope} to {over.slope} at "
                f"t={high}, where the state passes {over.state}; the derivative of the time of a "
                "jump is not taken: solve up to the jump and from there on, with its time from "
                "adarray.scipy.optimize.brentq, or make the right-hand side continuous"
            )

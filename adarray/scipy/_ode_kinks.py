"""Steps for the derivative of an ODE's solution where its right-hand side has kinks.

A step over a kink (of abs, maximum, where, clip, interp, ...) has a solution that is accurate to
the square of its length, which a solver accepts, and a derivative that is accurate to its length
only. So each step is tried with one derivative that is known: moved along the solution, it has
to end as much farther along it. A step that misses is cut at the place where it begins to miss,
until what is left of the kink matters no more.

A right-hand side of smooth operations that reads no values has no kinks, and is not tried (see
`adarray.scipy._ode_smooth`).

All steps are tried at once where the right-hand side takes states that are stacked along a further
axis, which is verified with its values one by one. Where it does not, each step is tried with
plain shifted states first. Steps that miss by little are halved: without a kink, the halves miss
by much less, and the step stays as the solver chose it.

References
----------
- E. Hairer, S. P. Nørsett, G. Wanner, "Solving Ordinary Differential Equations I: Nonstiff
  Problems", 2nd ed., Springer 1993, section II.6.
- A. Griewank, A. Walther, "Evaluating Derivatives", 2nd ed., SIAM 2008, chapter 14.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from adarray.base.errors import ADArrayError, NotDifferentiableError
from adarray.base.levels import forget, remembered, restore
from adarray.base.scope import package_of
from adarray.core.trace import Handle
from adarray.scipy._drop_in import value
from adarray.scipy._ode_smooth import Field, is_smooth
from adarray.transforms import jvp

Step = Callable[[Field, Any, Any, Any], Any]

_FINEST = 1e-13  # of the whole interval: shorter steps are rounding errors
_MOST = 40  # cuts of one step of the solver; there is no end of kinks then
_TRIES = 2000, 40  # in all: so many, and so many for each step of the solver
_MANY = 16.0  # times the tolerance: no mere step that is too long
_SMOOTH = 0.2  # times as much as a step, at most, its halves miss if there is no kink
# Of plain differences, by parts of a step: two points for one state, four for stacked ones.
_STENCILS = (
    ((2e-4, -2e-4), (2500.0, -2500.0)),
    ((2e-3, -2e-3, 4e-3, -4e-3), (1000 / 3, -1000 / 3, -125 / 3, 125 / 3)),
)
_DOUBT = 0.5  # of the tolerance: what plain differences have to find for a closer search
_LEFT = 0.1  # of what a step misses by, at most, after the place of a kink that is believed
_POINT = 1e-2  # of a step: what is left of it at a kink
_CLEAR = 1e-6  # of the slopes: what is called a jump


class _End(NamedTuple):
    """Where a step ends: the state, its slope, and by how much too far the derivative is off."""

    state: Any
    slope: Any
    excess: float


def _alike(x: Any, y: Any) -> bool:
    """Whether values are the same but for rounding."""
    if x.shape != y.shape:
        return False
    size = np.max(np.abs(y), axis=0, initial=0.0)
    return bool(np.all(np.abs(x - y) <= 1e-12 * size))


def _with_neighbours(missed: Any, times: Any) -> Any:
    """Return the steps of `missed`, and those so near that a kink may move into them."""
    near = missed.copy()
    low, high = np.minimum(times[:-1], times[1:]), np.maximum(times[:-1], times[1:])
    usual = float(np.median(high - low))
    for i in np.flatnonzero(missed).tolist():
        reach = max(usual, high[i] - low[i])
        near |= (high >= low[i] - reach) & (low <= high[i] + reach)
    return near


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
    known : sequence of (times, states)
        What the solver found, one state a column: where steps begin that are tried at once.
    """

    def __init__(
        self, name: str, step: Step, field: Field, plain_field: Field, tolerances: tuple[Any, Any],
        known: Sequence[tuple[Any, Any]] = (),
    ) -> None:  # fmt: skip
        self._name = name
        self._step = step
        self._field = field
        self._slope = plain_field
        self._relative = np.maximum(np.asarray(tolerances[0], float), 1e-13)
        self._absolute = np.asarray(tolerances[1], float)
        self._span = 1.0
        self._tries = 0
        self._known = known
        self.kink: float | None = None  # the time of one that depends on the state
        self._case: tuple[float, Any, Any, float] = (0.0, None, None, 0.0)
        self._said = False
        self._in_time = True  # whether the right-hand side takes a traced time

    def times(self, start: Any, times: np.ndarray) -> np.ndarray:
        """Return the times of steps, those of `times` among them."""
        if times.size < 2:
            return times
        self._span = abs(float(times[-1] - times[0]))
        at, state = float(times[0]), np.asarray(value(start))
        if is_smooth(self._field, at, state):
            return times
        missed = self._all_tried(times)
        if missed is not None and not missed.any():
            return times
        # From here on the states have to be those of the steps that are taken in the end: where
        # others pass a kink is found too inaccurately to cut there.
        slope = self._slope(at, state)
        mesh = [at]
        for i, stop in enumerate(times[1:].tolist()):
            if missed is None:
                state_there, slope_there, doubtful = self._doubtful(at, state, slope, stop)
            else:
                state_there = slope_there = None
                doubtful = missed[i]
            if doubtful:
                at, state, slope = self._refined(at, state, slope, stop, times.size, mesh)
                continue
            if state_there is None:
                state_there = np.asarray(self._step(self._slope, at, state, stop - at))
                slope_there = self._slope(stop, state_there)
            at, state, slope = stop, state_there, slope_there
            mesh.append(at)
        return np.asarray(mesh)

    def _refined(
        self, at: float, state: Any, slope: Any, stop: float, count: int, mesh: list[float]
    ) -> tuple[float, Any, Any]:
        """Cut a step wherever it misses; return its end."""
        end = self._tried(at, state, slope, stop)
        trusted = True  # what is said of where a kink is
        for _ in range(_MOST):
            if end.excess <= 1 or self._is_smooth(at, state, slope, stop, end):
                break
            if self._tries > _TRIES[0] + _TRIES[1] * count:
                self._warn(at, stop)
                break
            before = end.excess
            at, (state, slope, _) = self._over_kink(at, state, slope, stop, end, mesh, trusted)
            if at == stop:
                return at, state, slope
            end = self._tried(at, state, slope, stop)
            trusted = not trusted or end.excess <= _LEFT * before
        else:
            if end.excess > 1:
                self._warn(at, stop)
        mesh.append(stop)
        return stop, end.state, end.slope

    def _warn(self, at: float, stop: float) -> None:
        """Say, once, that kinks are left."""
        if not self._said:
            self._said = True
            level, frame = 1, sys._getframe()
            while frame.f_back is not None and package_of(frame.f_globals["__name__"]) == "adarray":
                level, frame = level + 1, frame.f_back
            warnings.warn(
                f"{self._name}: the right-hand side has more kinks from t={at} to t={stop} than "
                "are looked for, so gradients are less accurate than the solution; pass a smaller "
                "max_step, or solve in parts",
                RuntimeWarning,
                stacklevel=level,
            )

    def _is_smooth(self, at: float, state: Any, slope: Any, stop: float, end: _End) -> bool:
        """Whether a step misses by little, and its halves by much less: a kink stays in one."""
        if end.excess > _MANY:
            return False
        middle = at + (stop - at) / 2
        first = self._tried(at, state, slope, middle)
        if first.excess > _SMOOTH * end.excess:
            return False
        last = self._tried(middle, first.state, first.slope, stop)
        return last.excess <= _SMOOTH * end.excess

    def _all_tried(self, times: np.ndarray) -> Any:
        """Return which steps may miss, None if the right-hand side takes one state only."""
        where = {t: y[:, i] for ts, y in self._known for i, t in enumerate(np.asarray(ts).tolist())}
        if times.size < 3 or any(t not in where for t in times.tolist()):
            return None
        states = np.stack([where[t] for t in times.tolist()], axis=1)
        slopes = np.stack(
            [self._slope(t, states[:, i]) for i, t in enumerate(times.tolist())], axis=1
        )
        before = remembered()
        try:
            if not _alike(np.asarray(self._slope(times, states)), slopes):
                return None
            start = times[:-1], states[:, :-1], slopes[:, :-1]
            missed = self._doubtful(*start, times[1:])[2]
        except Exception as error:  # the function is made for one state, which it gets below
            forget(error)
            restore(before)
            return None
        return _with_neighbours(missed, times)

    def _doubtful(self, t: Any, y: Any, slope: Any, stop: Any) -> tuple[Any, Any, Any]:
        """Take a step, or stacked ones, with plain values; return whether a kink may be there."""
        end, after, excess = self._differences(t, y, slope, stop)
        doubtful = excess > _DOUBT
        if np.any(doubtful & (excess <= _MANY)):
            middle = t + (stop - t) / 2
            state, k, first = self._differences(t, y, slope, middle)
            last = self._differences(middle, state, k, stop)[2]
            smooth = (excess <= _MANY) & (np.maximum(first, last) <= _SMOOTH * excess)
            doubtful = doubtful & ~smooth
        return end, after, doubtful

    def _differences(self, t: Any, y: Any, slope: Any, stop: Any) -> tuple[Any, Any, Any]:
        """Return states, slopes and excesses at the ends of steps, from shifted steps."""
        h = stop - t
        shifts, weights = _STENCILS[y.ndim > 1]
        moves = [shift * h for shift in shifts]
        starts = [(t, y), *((t + d, y + d * slope) for d in moves)]
        if y.ndim > 1:  # all in one further stack
            ts, ys = (np.concatenate(x, axis=-1) for x in zip(*starts, strict=True))
            ends = np.asarray(self._step(self._slope, ts, ys, np.tile(h, len(starts))))
            state, *moved = np.split(ends, len(starts), axis=-1)
        else:
            state, *moved = (np.asarray(self._step(self._slope, *x, h)) for x in starts)
        end = self._slope(stop, state)
        if not state.shape == end.shape == y.shape:
            raise ValueError("states do not stay apart")
        slopes = sum(w * x for w, x in zip(weights, moved, strict=True)) / h
        rounding = 1e-15 * sum(map(abs, weights)) * np.abs(state / h)  # 1e-11 of a state, at most
        off = np.maximum(np.abs(slopes - end) - rounding, 0.0)
        return state, end, self._excess(off, slope, end, state)

    def _over_kink(
        self, at: float, state: Any, slope: Any, stop: float, whole: _End, mesh: list[float],
        trusted: bool = True,
    ) -> tuple[float, _End]:  # fmt: skip
        """Go as far as a step is right, and over the kink; note both times."""
        start = _End(state, slope, 0.0)
        if trusted and whole.excess > _MANY:
            low, high = self._located(at, state, slope, stop, whole)
            here = self._tried(at, state, slope, low) if low != at else start
            over = self._tried(low, here.state, here.slope, high)
            if max(here.excess, over.excess) <= 1:
                if abs(high - low) < _POINT * abs(stop - at):
                    self._note_kink(here, high, over)
                mesh.extend([low, high] if low != at else [high])
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
        mesh.extend([low, high] if low != at else [high])
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

    # Methods, not functions made anew: `jvp` inspects once what a function may reach.

    def _slope_moved(self, s: Any) -> Any:
        t, y, along, _ = self._case
        return self._field(t + s if self._in_time else t, y + s * along)

    def _step_moved(self, s: Any) -> Any:
        t, y, along, h = self._case
        return self._step(self._field, t + s if self._in_time else t, y + s * along, h)

    def _tried(self, t: float, y: Any, slope: Any, stop: float) -> _End:
        """Take a step, and compare its derivative along the solution with the slope."""
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
        return _End(state, end, float(self._excess(off, slope, end, state)))

    def _excess(self, off: Any, slope: Any, end: Any, state: Any) -> Any:
        """Return how often too large differences are, the largest of each state."""
        if not off.size:
            return np.zeros(off.shape[1:])
        relative, absolute = (
            x.reshape(x.shape + (1,) * (off.ndim - 1)) if x.ndim else x
            for x in (self._relative, self._absolute)
        )
        size = np.maximum(np.abs(slope), np.abs(end)) + np.abs(state) / self._span
        allowed = relative * size + absolute / self._span
        # Slopes are computed with rounding errors of their own.
        allowed = np.maximum(allowed, 1e-14 * np.max(size, axis=0))
        with np.errstate(divide="ignore", invalid="ignore"):  # of a state that stays 0
            excess = np.max(off / allowed, axis=0)
        return np.where(np.isfinite(excess), excess, 0.0)

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

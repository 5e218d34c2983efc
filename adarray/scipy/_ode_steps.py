"""Steps of an ODE's solution as one operation, walked back for all steps at once.

All states and slopes are known when the derivative is asked for, so that stages need not wait for
each other: the matrices df/dy of all stages of all steps are computed as members of one batch.
What remains is the adjoint of an explicit Runge-Kutta method [1]_ with small matrices; the
cotangents of parameters then come from one walk over all stages. For a small system, whose time
is that of calls of Python, this takes as many of them for a thousand steps as for one.

References
----------
.. [1] W. W. Hager, "Runge-Kutta methods in optimal control and the transformed adjoint system",
   Numer. Math. 87 (2000), 247-282.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from adarray.ad.reverse import WALK
from adarray.base.errors import TraceError
from adarray.base.levels import forget, remembered, restore
from adarray.core.graph import Node
from adarray.core.protocol import plain, traced
from adarray.scipy._drop_in import array
from adarray.scipy._ode_smooth import Field
from adarray.transforms import jvp
from adarray.transforms.batch import vmap, vmap_strictly
from adarray.transforms.calls import RuleCall, Whole
from adarray.transforms.replay import Replay, tangents_of
from adarray.transforms.running import prepared

LARGEST = 32  # elements of a state: the matrices of larger ones take longer than steps one by one
FEWEST = 4  # steps
_COPIES = 8  # of the state, at most, for its elements to be moved one by one
_ELEMENTS = 1 << 21  # of the tangents of all stages that are taken at once
_SAME = 1e-9  # relative: by how much slopes may differ that were computed twice


class Tableau(NamedTuple):
    """The coefficients of an explicit Runge-Kutta method."""

    a: Any
    b: Any
    c: Any


class StepRecord(NamedTuple):
    """Steps that were taken, with plain values.

    Parameters
    ----------
    times : ndarray, shape (steps + 1,)
    states : ndarray, shape (steps + 1, n)
    slopes : ndarray, shape (steps, stages, n)
    """

    times: Any
    states: Any
    slopes: Any


def are_small(count: int, y: Any) -> bool:
    """Whether `count` steps of a state are walked back at once."""
    return bool(y.dtype == float and y.ndim == 1 and count >= FEWEST and 0 < y.size <= LARGEST)


def record_steps(tableau: Tableau, f: Field, times: Any, y0: Any) -> StepRecord:
    """Take steps with plain values."""
    states, slopes = [y0], []
    for t, h in zip(times[:-1].tolist(), np.diff(times).tolist(), strict=True):
        k = np.zeros((len(tableau.b), y0.size))
        for i, (row, c) in enumerate(zip(tableau.a, tableau.c, strict=True)):
            k[i] = f(t + c * h, states[-1] + h * (row[:i] @ k[:i]))
        states.append(states[-1] + h * (tableau.b @ k))
        slopes.append(k)
    return StepRecord(times, np.stack(states), np.stack(slopes))


class Steps(Whole):
    """Steps as one operation: ``steps(y0)`` is their states, one a row.

    Parameters
    ----------
    tableau : Tableau
    field : callable
        The right-hand side; traced values that it reads get their gradients.
    known : StepRecord
    one_by_one : callable
        ``one_by_one(y0)`` takes the steps recorded, and returns a list of states: for derivatives
        in forward mode and of second order, and right-hand sides that `vmap` cannot take.
    """

    captures = True

    def __init__(
        self, tableau: Tableau, field: Field, known: StepRecord,
        one_by_one: Callable[[Any], list[Any]],
    ) -> None:  # fmt: skip
        self._tableau, self._known = tableau, known
        self._slope = vmap(prepared(field, True))
        super().__init__("solve_ivp", lambda y0: np.stack(one_by_one(y0)))

    def _evaluate(self, args: list[Any]) -> tuple[Any, Any]:  # noqa: ARG002
        return self._known.states.copy(), None

    def _captured(self, start: Node, leaves: list[Any], outputs: list[Any]) -> list[Node] | None:
        """Return the nodes that slopes read where steps begin; None if they cannot be batched."""
        captured: dict[int, Node] = {}
        times, states = self._known.times[:-1], self._known.states[:-1]
        before = remembered()
        for part in _parts(len(times), states.shape[1]):
            try:
                slopes = array(self._slope(times[part], states[part]))
            except Exception as error:  # what vmap cannot take: steps one by one show what it is
                forget(error)
                restore(before)
                return None
            if tangents_of([slopes]):  # which the states have, too, and these do not show
                return None
            read = super()._captured(start, leaves, [*outputs, slopes])
            if read is None or slopes.shape != states[part].shape:
                return None
            captured.update((n.order, n) for n in read)
        return [captured[k] for k in sorted(captured, reverse=True)]

    def _pull(self, call: RuleCall, operands: list[Any], cotangents: list[Any]) -> dict[int, Any]:
        around = WALK.get()
        record = around is not None and (around.record or call.span[0] < around.level)
        (g,), targets = cotangents, call.targets()
        if not record and type(g) is np.ndarray and not traced(operands):
            pulled = self._all_at_once(g, targets)
            if pulled is not None:
                return self._placed(call, operands, pulled)
        replay = Replay(self._name, self._f, operands[:1])
        if replay.differs(call.captured):
            raise TraceError(
                "solve_ivp: the right-hand side read other traced values when it ran again for "
                "its derivative; what changes meanwhile must be passed by args="
            )
        return self._placed(call, operands, replay.pull(cotangents, targets))

    @staticmethod
    def _placed(call: RuleCall, operands: list[Any], pulled: list[Any]) -> dict[int, Any]:
        """Return cotangents, of the first state and of captured nodes, by operand."""
        at = {id(n): len(operands) + k for k, n in enumerate(call.captured)}
        by_operand = {at[id(n)]: g for n, g in zip(call.targets(), pulled[1:], strict=True)}
        return {**by_operand, **{k: pulled[0] for k in call.followed if k < len(operands)}}

    def _all_at_once(self, g: Any, targets: list[Node]) -> list[Any] | None:
        """Return the cotangents of the first state and of the captured nodes.

        None if the slopes are others than before.
        """
        known, (a, b, c) = self._known, self._tableau
        count, stages, size = known.slopes.shape
        carried = g[-1].astype(float)
        totals: list[Any] = [None] * len(targets)
        for part in reversed(_parts(count, stages * size * size)):
            h = np.diff(known.times)[part, None]
            slopes = known.slopes[part]
            times = known.times[:-1][part, None] + c * h
            points = known.states[:-1][part, None] + h[:, None] * np.matmul(a, slopes)
            ts, ys = times.reshape(-1), points.reshape(-1, size)
            again, moved = self._matrices(ts, ys)
            if not _are_same(again, slopes.reshape(-1, size)):
                return None
            matrices = moved.reshape(*slopes.shape, size)
            through = np.empty((len(h), size))  # cotangents of the states where steps end
            whole = _of_steps(a, b, h, matrices)
            for k in range(len(h) - 1, -1, -1):
                through[k] = carried
                carried = whole[k] @ carried + g[part.start + k]
            if targets:
                replay = Replay(self._name, lambda y, ts=ts: self._slope(ts, y), [ys])
                if replay.differs(targets):
                    return None
                back = _of_slopes(a, b, h, matrices, through).reshape(-1, size)
                for k, x in enumerate(replay.pull([back], targets)[1:]):
                    totals[k] = x if totals[k] is None else totals[k] + x
        return [carried, *totals]

    def _matrices(self, times: Any, states: Any) -> tuple[Any, Any]:
        """Return slopes at states, one a row, and their derivatives: (states, from, to)."""
        count, size = states.shape
        if size > _COPIES:  # members of a batch of directions
            one = np.repeat(np.eye(size)[:, None], count, axis=1)

            def along(v: Any) -> Any:
                return jvp(lambda y: self._slope(times, y), (states,), (v,))

            slopes, moved = vmap_strictly(along, (0,))(one)
            return np.asarray(plain(slopes))[0], np.asarray(plain(moved)).swapaxes(0, 1)
        ts, ys = np.tile(times, size), np.tile(states, (size, 1))
        every = np.repeat(np.eye(size), count, axis=0)
        slopes, moved = jvp(lambda y: self._slope(ts, y), (ys,), (every,))
        matrices = np.asarray(plain(moved)).reshape(size, count, size)
        return np.asarray(plain(slopes))[:count], matrices.swapaxes(0, 1)


def _parts(count: int, size: int) -> list[slice]:
    """Split the steps into slices that are computed at once, by elements of a step."""
    most = max(1, _ELEMENTS // size)
    return [slice(k, min(k + most, count)) for k in range(0, count, most)]


def _of_steps(a: Any, b: Any, h: Any, matrices: Any) -> Any:
    """Return the transposed matrices of steps from those of stages: (steps, from, to)."""
    _, stages, size, _ = matrices.shape
    moved = np.empty_like(matrices)  # slopes along the start of a step
    for i in range(stages):
        along = np.tensordot(a[i, :i], moved[:, :i], (0, 1)) * h[:, None] if i else 0.0
        moved[:, i] = np.matmul(along + np.eye(size), matrices[:, i])
    return np.eye(size) + h[:, None] * np.tensordot(b, moved, (0, 1))


def _of_slopes(a: Any, b: Any, h: Any, matrices: Any, through: Any) -> Any:
    """Return cotangents of the slopes of all stages from those of the ends of steps."""
    steps, stages, size, _ = matrices.shape
    slopes = np.empty((steps, stages, size))
    states = np.empty_like(slopes)  # cotangents of the states of stages
    for i in range(stages - 1, -1, -1):
        later = np.tensordot(a[i + 1 :, i], states[:, i + 1 :], (0, 1))
        slopes[:, i] = h * (b[i] * through + later)
        states[:, i] = np.matmul(matrices[:, i], slopes[:, i, :, None])[..., 0]
    return slopes


def _are_same(x: Any, y: Any) -> bool:
    size = np.max(np.abs(y), axis=0)
    return x.shape == y.shape and bool(np.all(np.abs(x - y) <= _SAME * size))

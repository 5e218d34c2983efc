"""The continuous adjoint: cotangents of an ODE's solution by another ODE, backward in time.

With the solution y of y' = f(t, y, p), the cotangent of the state obeys a' = -a df/dy, jumps by the
cotangents of results at their times, and that of p is the integral of a df/dp [1]_. Between the
times of results y comes from SciPy's dense output, so that nothing is solved backward but a
linear equation. It has its own steps, and is as accurate as its tolerances.

References
----------
.. [1] L. S. Pontryagin et al., "The Mathematical Theory of Optimal Processes", Wiley 1962;
   Y. Cao, S. Li, L. Petzold, R. Serban, SIAM J. Sci. Comput. 24 (2003), 1076-1089.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.integrate

from adarray.ad.reverse import WALK
from adarray.base.errors import NotDifferentiableError, TraceError
from adarray.core.protocol import plain, traced
from adarray.scipy._ode_smooth import Field
from adarray.transforms.calls import RuleCall, Whole
from adarray.transforms.replay import Replay
from adarray.transforms.running import prepared


class Adjoint(Whole):
    """A solution as one operation: ``adjoint(y0)[0]`` is its states, one a column.

    Parameters
    ----------
    field : callable
        The right-hand side; traced values that it reads get their gradients.
    times : ndarray
        Of the results.
    states : ndarray
        The results, with plain values.
    dense : OdeSolution
        The solution between.
    method, options
        Of `scipy.integrate.solve_ivp`, for the way back.
    forward : callable
        Computes the states recorded, where they are differentiated in forward mode.
    """

    captures = True

    def __init__(
        self, field: Field, times: Any, states: Any, dense: Any, method: Any,
        options: dict[str, Any], forward: Any,
    ) -> None:  # fmt: skip
        self._field, self._times, self._states = prepared(field, True), times, states
        self._dense, self._method, self._options = dense, method, options
        self._forward = forward
        super().__init__("solve_ivp", self._solution)

    def _solution(self, y0: Any) -> Any:  # noqa: ARG002
        # The slopes tell what the right-hand side reads.
        slopes = [
            self._field(float(t), y) for t, y in zip(self._times, self._states.T, strict=True)
        ]
        return [self._states.copy(), *slopes]

    def _along(self, args: tuple[Any, ...]) -> Any:  # noqa: ARG002
        return [self._forward()]

    def _pull(self, call: RuleCall, operands: list[Any], cotangents: list[Any]) -> dict[int, Any]:
        around = WALK.get()
        record = around is not None and (around.record or call.span[0] < around.level)
        if record or any(map(traced, (*operands, *cotangents))):
            raise NotDifferentiableError(
                "solve_ivp: adjoint='continuous' gives first derivatives in reverse mode only; "
                "leave it out for the derivative of the discrete solution, which has all orders"
            )
        targets = call.targets()
        sizes = [n.aval.size for n in targets]
        g = np.asarray(plain(cotangents[0]))
        n = g.shape[0]
        total = np.zeros(n + sum(sizes), np.result_type(g, *(k.aval.dtype for k in targets)))
        known = {id(k) for k in call.captured}

        def slopes(t: float, z: Any) -> Any:
            replay = Replay("solve_ivp", lambda y: self._field(t, y), [self._dense(t)])
            if any(id(k) not in known for k in replay.captured):
                raise TraceError(
                    "solve_ivp: the right-hand side reads other traced values between the times "
                    "of results; pass them by args=, as one array, or leave adjoint= out"
                )
            parts = replay.pull([z[:n]], targets)
            return -np.concatenate([np.reshape(np.asarray(plain(x)), (-1,)) for x in parts])

        for j in range(len(self._times) - 1, 0, -1):
            total[:n] += g[:, j]
            span = float(self._times[j]), float(self._times[j - 1])
            back = scipy.integrate.solve_ivp(slopes, span, total, self._method, **self._options)
            if not back.success:
                raise NotDifferentiableError(
                    f"solve_ivp: the adjoint equation was not solved ({back.message}); leave "
                    "adjoint= out"
                )
            total = back.y[:, -1]
        total[:n] += g[:, 0]
        ends = np.cumsum([n, *sizes])
        parts = [total[:n]]
        for start, stop, node in zip(ends[:-1], ends[1:], targets, strict=True):
            part = np.reshape(total[start:stop], node.aval.shape)
            if node.aval.dtype.kind == "f":
                part = np.real(part)  # it moves along the real axis only
            parts.append(part.astype(node.aval.dtype)[()])
        own = [k for k in call.followed if k < len(operands)]
        at = {id(k): len(operands) + i for i, k in enumerate(call.captured)}
        by_operand = {at[id(k)]: x for k, x in zip(targets, parts[1:], strict=True)}
        return {**by_operand, **dict.fromkeys(own, parts[0])}

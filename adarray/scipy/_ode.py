"""Ordinary differential equations: SciPy chooses the steps, which are then taken recorded.

The derivative is that of the discrete solution on SciPy's steps, and on further ones
around kinks of the right-hand side (see `adarray.scipy._ode_kinks`) for explicit methods:
exact for it, and as accurate as it is [2]_. Explicit methods take their own Runge-Kutta
steps again. For the implicit ones the steps are those of the Radau IIA method of order 5
[1]_, whose stages come from Newton iterations: plain ones for the value, then three
recorded ones with the same matrix, which give derivatives up to the third order [3]_.

References
----------
.. [1] E. Hairer, G. Wanner, "Solving Ordinary Differential Equations II: Stiff and
   Differential-Algebraic Problems", Springer 1996, section IV.8.
.. [2] W. W. Hager, "Runge-Kutta methods in optimal control and the transformed adjoint system",
   Numer. Math. 87 (2000), 247-282.
.. [3] A. Griewank, A. Walther, "Evaluating Derivatives", 2nd ed., SIAM 2008, chapter 15.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.integrate

from adarray.base.errors import NotDifferentiableError
from adarray.base.levels import LEVEL
from adarray.base.op import Op, Opaque
from adarray.core.dispatch import apply
from adarray.core.protocol import traced
from adarray.core.trace import Handle
from adarray.scipy._drop_in import REPLACEMENTS, array, holds, value
from adarray.scipy._functions import Plainly, corrected
from adarray.scipy._ode_adjoint import Adjoint
from adarray.scipy._ode_jumps import refuse_jumps
from adarray.scipy._ode_kinks import Refinement, Step
from adarray.scipy._ode_smooth import Field
from adarray.scipy._ode_steps import FEWEST, StepRecord, Tableau, are_small, record_steps
from adarray.scipy._ode_track import Dense, Track, located

_ORDERS = 3  # derivatives that recorded Newton iterations give
_ROOT = 6**0.5
_RADAU_A = np.array(
    [
        [(88 - 7 * _ROOT) / 360, (296 - 169 * _ROOT) / 1800, (-2 + 3 * _ROOT) / 225],
        [(296 + 169 * _ROOT) / 1800, (88 + 7 * _ROOT) / 360, (-2 - 3 * _ROOT) / 225],
        [(16 - _ROOT) / 36, (16 + _ROOT) / 36, 1 / 9],
    ]
)
_RADAU_C = np.array([(4 - _ROOT) / 10, (4 + _ROOT) / 10, 1.0])


def _tableau(name: str) -> Tableau:
    method = getattr(scipy.integrate, name)
    stages = method.n_stages
    a = np.zeros((stages, stages))
    coefficients = method.A[:stages, :stages]  # SciPy's may lack the last column, of zeros
    a[:, : coefficients.shape[1]] = coefficients
    return Tableau(a, method.B[:stages], method.C[:stages])


def _weighted(weights: Any, slopes: Sequence[Any]) -> Any:
    """Return the sum of slopes that have a weight, None if none has."""
    total: Any = None
    for w, k in zip(weights, slopes, strict=False):
        if w != 0:
            total = w * k if total is None else total + w * k
    return total


def _moved(arrays: list[Any], *, weights: tuple[float, ...]) -> Any:
    """Return a state plus slopes times weights."""
    total, *slopes = arrays
    for n, (w, k) in enumerate(zip(weights, slopes, strict=True)):
        part = w * k
        if n and isinstance(total, np.ndarray) and total.dtype == np.result_type(total, part):
            total += part  # ours, since the first sum
        else:
            total = total + part
    return total


# One operation, where sums and products would be ten for a stage of a step.
_MOVED = Op(
    "move", _moved, Opaque(),
    [lambda g, i, _, *arrays, weights: g * weights[i - 1] if i else g],
    jvp=[lambda t, i, _, *arrays, weights: t * weights[i - 1] if i else t],
    operands=("*arrays",), params=("weights",), needs=lambda _: (False, False),
)  # fmt: skip


def _move(y: Any, h: Any, weights: Any, slopes: Sequence[Any]) -> Any:
    """Return ``y + h * sum(weights * slopes)``."""
    pairs = [(w, k) for w, k in zip(weights, slopes, strict=False) if w != 0]
    if not pairs:
        return y
    if not isinstance(h, float) or np.ndim(y) != 1:
        return y + h * _weighted(weights, slopes)
    factors = tuple(h * float(w) for w, _ in pairs)
    arrays = [y, *(k for _, k in pairs)]
    if any(isinstance(x, Handle) for x in arrays):
        return apply(_MOVED, tuple(arrays), {"weights": factors})
    return _moved(arrays, weights=factors)


def _explicit(name: str) -> Step:
    """Return one step of an explicit method: ``step(f, t, y, h)``."""
    tableau = _tableau(name)

    def step(f: Field, t: Any, y: Any, h: Any) -> Any:
        slopes: list[Any] = []
        for row, c in zip(tableau.a, tableau.c, strict=True):
            slopes.append(f(t + c * h, _move(y, h, row, slopes)))
        return _move(y, h, tableau.b, slopes)

    return step


def _difference_matrix(f: Field, t: Any, y: Any) -> Any:
    """Return the matrix df/dy by central differences, of plain values."""
    columns = []
    for i in range(y.size):
        h = 6e-6 * max(1.0, abs(y[i]))
        move = np.zeros(y.shape)
        move[i] = h
        columns.append((f(t, y + move) - f(t, y - move)) / (2 * h))
    return np.stack(columns, axis=1)


def _radau(plain_f: Field) -> Step:
    """Return one step of the Radau IIA method; `plain_f` gives plain values."""

    def step(f: Field, t: Any, y: Any, h: Any) -> Any:
        t0, y0, h0 = (value(x) for x in (t, y, h))
        n = y0.size
        stages = np.stack([y0 + c * h0 * plain_f(t0, y0) for c in _RADAU_C])
        for _ in range(12):
            matrix = _stage_matrix(plain_f, t0, h0, stages)
            residual = _residual(plain_f, t0, y0, h0, list(stages))
            change = np.linalg.solve(matrix, residual.reshape(-1)).reshape(3, n)
            stages = stages - change
            if np.max(np.abs(change)) <= 1e-13 * (1 + np.max(np.abs(stages))):
                break
        else:
            raise NotDifferentiableError(
                f"solve_ivp: the implicit step from t={t0} of length {h0} did not converge; pass a "
                "smaller rtol or max_step"
            )
        inverse = np.linalg.inv(_stage_matrix(plain_f, t0, h0, stages))
        newton: Any = stages
        for _ in range(_ORDERS):
            residual = _residual(f, t, y, h, [newton[i] for i in range(3)])
            newton = newton - np.reshape(np.matmul(inverse, np.reshape(residual, (-1,))), (3, n))
        return newton[2]

    return step


def _residual(f: Field, t: Any, y: Any, h: Any, stages: Sequence[Any]) -> Any:
    slopes = [f(t + c * h, stage) for c, stage in zip(_RADAU_C, stages, strict=True)]
    return np.stack(
        [
            stage - y - h * _weighted(row, slopes)
            for row, stage in zip(_RADAU_A, stages, strict=True)
        ]
    )


def _stage_matrix(f: Field, t: Any, h: Any, stages: Any) -> Any:
    slopes = [_difference_matrix(f, t + c * h, y) for c, y in zip(_RADAU_C, stages, strict=True)]
    rows = [[-h * a * j for a, j in zip(row, slopes, strict=True)] for row in _RADAU_A]
    matrix = np.block(rows)
    return matrix + np.eye(len(matrix))


def replay(
    step: Step, f: Field, t0: Any, y0: Any, mesh: Any, outputs: Sequence[Any],
    refinement: Refinement | None, batched: Any,
) -> Any:  # fmt: skip
    """Take the steps of `mesh`, and return the states at `outputs`, which may be traced times."""
    track = Track(step, f, t0, y0, _ends(mesh, outputs), refinement, batched)
    results = track.many(outputs)
    if refinement is not None:
        refinement.check_orders([results])
    return results


def _ends(mesh: Any, outputs: Sequence[Any]) -> list[float]:
    """Return the times of steps and results, between the first and the last step."""
    ends = np.asarray(mesh, float).tolist()
    return [*ends[:-1], *(float(value(t)) for t in outputs), ends[-1]]


_EXPLICIT = ("RK45", "RK23", "DOP853")
_STEPPED = (*_EXPLICIT, "Radau", "BDF", "LSODA")


def _text_of(fun: Any) -> Any:
    """Return a function whose operations are seen one by one, in place of a compiled one."""
    return fun.__wrapped__ if getattr(fun, "adarray_jitted", False) else fun


# Steps of jitted right-hand sides, by these and the method.
_COMPILED: weakref.WeakKeyDictionary[Any, dict[str, Any]] = weakref.WeakKeyDictionary()


def _compiled(fun: Any, name: str, step: Step, args: tuple[Any, ...]) -> Any:
    """Return whole steps of a jitted right-hand side, compiled: ``record_steps(t, y, h)``."""
    known = _COMPILED.setdefault(fun, {})
    if name not in known:
        text = _text_of(fun)

        def whole(t: Any, y: Any, h: Any, args: Any) -> Any:
            return step(_field(text, args), t, y, h)

        known[name] = fun.like(whole)
    stepper = known[name]
    return lambda t, y, h: stepper(t, y, h, args)


def _field(fun: Any, args: tuple[Any, ...]) -> Field:
    return lambda t, y: array(fun(t, y, *args))


@functools.wraps(scipy.integrate.solve_ivp)
def solve_ivp(
    fun: Any, t_span: Any, y0: Any, method: Any = "RK45", t_eval: Any = None,
    dense_output: bool = False, events: Any = None, vectorized: bool = False, args: Any = None,
    **options: Any,
) -> Any:  # fmt: skip
    adjoint = options.pop("adjoint", "discrete")
    if adjoint not in ("discrete", "continuous"):
        raise ValueError(f"solve_ivp: adjoint={adjoint!r}; pass 'discrete' or 'continuous'")
    extra = () if args is None else tuple(args) if isinstance(args, (tuple, list)) else (args,)
    # Inside of transforms jitted functions run uncompiled, as they are written.
    call = Plainly(_text_of(fun) if LEVEL.get() > 0 else fun, extra)
    if callable(options.get("jac")):
        options["jac"] = Plainly(options["jac"], extra)
    happenings = () if events is None else events if isinstance(events, (list, tuple)) else [events]
    watched = [_watched(e, extra) for e in happenings]
    span, start, at = value(t_span), np.asarray(value(array(y0))), value(t_eval)
    options["events"] = None if events is None else watched
    name = method if isinstance(method, str) else method.__name__
    noted = _Noted()
    solver = noted.method(name) if name in _EXPLICIT and LEVEL.get() > 0 else method
    solution = scipy.integrate.solve_ivp(
        call, span, start, solver, at, dense_output, vectorized=vectorized, **options
    )
    seen = call.seen or any(w.seen for w in watched)

    def follow(mesh: Any, states: Any) -> tuple[Track, Refinement | None]:
        """Take SciPy's steps again, recorded."""
        step = _step_of(name, lambda t, y: np.asarray(call(t, y)))
        first = array(y0)
        if first.dtype != solution.y.dtype and solution.y.size:
            first = first.astype(solution.y.dtype)
        refinement = None
        if name in _EXPLICIT:  # stiff equations amplify what is no error of the results
            known = [(solution.t, solution.y), (mesh, states)]
            tolerances = options.get("rtol", 1e-3), options.get("atol", 1e-6)  # SciPy's defaults
            refinement = Refinement(
                "solve_ivp", step, _field(_text_of(fun), value(extra)),
                lambda t, y: np.asarray(call(t, y)), tolerances, known,
            )  # fmt: skip
        else:
            refuse_jumps(
                "solve_ivp", _field(fun, value(extra)), lambda t, y: np.asarray(call(t, y)),
                mesh, states,
            )  # fmt: skip
        ends = _ends(mesh, solution.t)
        batched = None
        if name in _EXPLICIT:
            batched = functools.partial(noted.steps, name, lambda t, y: np.asarray(call(t, y)))
        compiled = None
        if name in _EXPLICIT and _text_of(fun) is not fun:
            compiled = _compiled(fun, name, step, extra)
        field = _field(fun, extra)
        track = Track(step, field, t_span[0], first, ends, refinement, batched, compiled)
        return track, refinement

    if not (seen or holds((t_span, y0, t_eval))):
        if dense_output and name in _STEPPED:  # times may be traced
            ts = solution.sol.ts
            solution.sol = Dense(
                lambda: follow(ts, solution.sol(ts))[0], solution.sol, recorded=False
            )
        return solution
    if adjoint == "continuous":
        if events is not None or dense_output or traced((t_span, t_eval)):
            raise NotDifferentiableError(
                "solve_ivp: adjoint='continuous' takes no events, no dense_output and no traced "
                "times; leave it out"
            )
        return _by_adjoint(solution, follow, lambda: scipy.integrate.solve_ivp(
            call, span, start, method, dense_output=True, **options
        ), _field(fun, extra), array(y0), method, options)  # fmt: skip
    mesh, states = solution.t, solution.y
    if t_eval is not None:
        mesh, states = noted.times, noted.states
        if solution.status != 0 or len(mesh) < 2:
            whole = scipy.integrate.solve_ivp(call, span, start, method, **options)
            mesh, states = whole.t, whole.y
    track, refinement = follow(mesh, states)
    happened = [
        located("solve_ivp", track, functools.partial(_called, e, extra), *points)
        for e, *points in zip(
            happenings, solution.t_events or (), solution.y_events or (), strict=True
        )
    ]
    times = _times(t_span, t_eval, solution, [t for t, _ in happened])
    fields = dict(solution)
    if times:
        states = track.many(times)
        fields["t"] = np.stack(list(map(array, times))) if traced(times) else np.asarray(times)
        fields["y"] = corrected(states, solution.y)
    if refinement is not None:
        refinement.check_orders([*([states] if times else ()), *(y for _, y in happened)])
    if events is not None:
        fields["t_events"], fields["y_events"] = [t for t, _ in happened], [y for _, y in happened]
    if dense_output:
        fields["sol"] = Dense(lambda: track, solution.sol, recorded=True)
    return type(solution)(**fields)


class _Noted:
    """The steps of a solver of SciPy: times, states, and slopes of small systems."""

    def __init__(self) -> None:
        self._steps: list[tuple[Any, ...]] = []

    def method(self, name: str) -> Any:
        """Return an explicit method of SciPy that notes its steps."""
        base: Any = getattr(scipy.integrate, name)
        steps = self._steps

        class Noting(base):  # type: ignore[misc]
            def step(self) -> Any:
                if not steps:
                    steps.append((self.t, self.y))
                message = super().step()
                if self.status != "failed":
                    small = are_small(FEWEST, self.y)
                    slopes = self.K[: self.n_stages].copy() if small else None
                    steps.append((self.t, self.y, slopes))
                return message

        return Noting

    @property
    def times(self) -> Any:
        return np.asarray([step[0] for step in self._steps], float)

    @property
    def states(self) -> Any:
        return np.stack([step[1] for step in self._steps], axis=1) if self._steps else None

    def steps(self, name: str, field: Field, times: Any, y0: Any) -> tuple[Tableau, StepRecord]:
        """Return a method, and its steps of a small system, which are taken if they are others."""
        tableau = _tableau(name)
        if np.array_equal(self.times, times):
            slopes = np.stack([step[2] for step in self._steps[1:]])
            return tableau, StepRecord(times, self.states.T, slopes)
        return tableau, record_steps(tableau, field, times, y0)


def _by_adjoint(
    solution: Any, follow: Any, solved: Any, field: Field, y0: Any, method: Any, options: Any
) -> Any:  # fmt: skip
    """Return the result of `solve_ivp`, whose derivative is solved for backward in time."""
    whole = solved()

    def forward() -> Any:
        track, refinement = follow(whole.t, whole.y)
        states = track.many(solution.t)
        if refinement is not None:
            refinement.check_orders([states])
        return corrected(states, solution.y)

    back = {k: options[k] for k in ("rtol", "atol", "max_step") if k in options}
    back["atol"] = np.min(back.get("atol", 1e-6))
    times = solution.t
    starts = times.size and times[0] == whole.t[0]
    if not starts:  # the way back ends where the solution began
        times = np.concatenate([whole.t[:1], times])
    states = solution.y if starts else np.concatenate([whole.y[:, :1], solution.y], axis=1)
    adjoint = Adjoint(field, times, states, whole.sol, method, back, forward)
    y = adjoint(y0)[0]
    return type(solution)(**{**solution, "y": y[:, y.shape[1] - solution.t.size :]})


def _step_of(name: str, plain_field: Field) -> Step:
    """Return one step of a method of SciPy."""
    if name not in _STEPPED:
        raise NotDifferentiableError(
            f"solve_ivp: the method {name} is not differentiated; use one of SciPy's"
        )
    return _explicit(name) if name in _EXPLICIT else _radau(plain_field)


def _called(event: Any, extra: tuple[Any, ...], t: Any, y: Any) -> Any:
    return event(t, y, *extra)


def _watched(event: Any, extra: tuple[Any, ...]) -> Plainly:
    """Return an event as SciPy may call it, with its attributes."""
    watched = Plainly(event, extra)
    for mark in ("terminal", "direction"):
        if hasattr(event, mark):
            setattr(watched, mark, getattr(event, mark))
    return watched


def _times(t_span: Any, t_eval: Any, solution: Any, happened: list[Any]) -> list[Any]:
    """Return the times of the results: ends of `t_span`, `t_eval` and events may be traced."""
    times: list[Any] = list(solution.t)
    if t_eval is not None:
        times_at = array(t_eval)
        return [times_at[i] for i in range(len(times))]
    if traced(t_span[0]):
        times[0] = t_span[0]
    if traced(t_span[1]) and solution.status == 0:
        times[-1] = t_span[1]
    if solution.status == 1:  # a terminal event: it moves
        ends = [ts[-1] for ts in happened if len(ts) and float(value(ts[-1])) == times[-1]]
        times[-1] = ends[0] if ends else times[-1]
    return times


class _TooLong(Exception):  # noqa: N818  (not an error: another method takes over)
    """An explicit method takes too many steps: the equation is stiff."""


def _mesh(call: Plainly, t: Any, y0: Any, rtol: Any, atol: Any) -> tuple[Any, str]:
    """Return a solution for the times `t`, and its method: explicit unless it is stiff."""
    count = [0]

    def counted(time: Any, y: Any) -> Any:
        count[0] += 1
        if count[0] > 4000 + 60 * len(t):
            raise _TooLong
        return call(time, y)

    span = (t[0], t[-1])
    try:
        solution = scipy.integrate.solve_ivp(counted, span, y0, "DOP853", rtol=rtol, atol=atol)
        if solution.success:
            return solution, "DOP853"
    except (_TooLong, FloatingPointError, OverflowError):
        pass
    solution = scipy.integrate.solve_ivp(call, span, y0, "Radau", rtol=rtol, atol=atol)
    return solution, "Radau"


@functools.wraps(scipy.integrate.odeint)
def odeint(
    func: Any, y0: Any, t: Any, args: Any = (), *rest: Any, tfirst: bool = False, **options: Any
) -> Any:
    args = args if isinstance(args, tuple) else (args,)
    call = Plainly(func, args)
    if callable(options.get("Dfun")):
        options["Dfun"] = Plainly(options["Dfun"], args)
    start, times = np.atleast_1d(value(array(y0))), np.asarray(value(array(t)), float)
    result = scipy.integrate.odeint(call, start, times, (), *rest, tfirst=tfirst, **options)
    if not (call.seen or holds((y0, t))):
        return result
    y, *more = result if isinstance(result, tuple) else (result,)
    rtol = 1.49e-8 if options.get("rtol") is None else options["rtol"]
    atol = 1.49e-8 if options.get("atol") is None else options["atol"]
    field_of_time = call if tfirst else Plainly(lambda time, state: func(state, time, *args))
    chosen, name = _mesh(field_of_time, times, np.asarray(start, float), rtol, atol)

    def plain_field(time: Any, state: Any) -> Any:
        return np.atleast_1d(np.asarray(field_of_time(time, state)))

    def f(time: Any, state: Any) -> Any:
        r = func(time, state, *args) if tfirst else func(state, time, *args)
        return np.atleast_1d(array(r))

    step = _explicit(name) if name in _EXPLICIT else _radau(plain_field)
    moments = array(t)
    listed = [moments[i] for i in range(len(times))]
    begin = array(y0)
    begin = np.reshape(begin, (1,)) if begin.ndim == 0 else begin
    refinement = batched = None
    if name in _EXPLICIT:
        batched = functools.partial(_Noted().steps, name, plain_field)
        refinement = Refinement(
            "odeint", step, f, plain_field, (rtol, atol), [(times, y.T), (chosen.t, chosen.y)]
        )
    else:
        refuse_jumps("odeint", f, plain_field, chosen.t, chosen.y)
    first = listed[0] if traced(t) else times[0]
    states = replay(step, f, first, begin, chosen.t, listed, refinement, batched)
    solution = corrected(states.T, y)
    return (solution, *more) if more else solution


REPLACEMENTS[scipy.integrate.solve_ivp] = solve_ivp
REPLACEMENTS[scipy.integrate.odeint] = odeint

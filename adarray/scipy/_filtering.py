"""Recursive filters: `lfilter`, its initial states, and functions built on it.

References
----------
- J. F. Claerbout, "Earth Soundings Analysis: Processing versus Inversion", Blackwell 1992 (the
  adjoint of a recursive filter runs backwards).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.signal

from adarray.base.errors import NotDifferentiableError
from adarray.ops.common import s
from adarray.scipy._drop_in import array, instead_of, operation, value


def _back(x: Any) -> Any:
    return np.flip(x, -1)


def _one(a: Any) -> Any:
    return np.ones(1, a.dtype)


def _anticausal(g: Any, a: Any) -> Any:
    """Solve the transposed recursion: `g` filtered by ``1 / a``, backwards."""
    return _back(lfilter_last(_one(a), a, _back(g)))


def _lagged(w: Any, x: Any, count: int) -> Any:
    """Return the sums of ``w[n] * x[n - k]`` for the lags k below `count`."""
    n = x.shape[-1]
    return np.stack([np.sum(w[..., k:] * x[..., : max(n - k, 0)]) for k in range(count)])


def _evaluate(b: Any, a: Any, x: Any) -> Any:
    return np.asarray(scipy.signal.lfilter(b, a, x), np.result_type(b, a, x))


def _samples(rng: np.random.Generator) -> list[Any]:
    b, a = rng.normal(size=3), np.array([2.0, -0.5, 0.3, 0.1])
    x = rng.normal(size=8)
    return [
        s(b, a, x), s(b, a[:1], np.stack([x, x[::-1]])), s(b[:1], a, x[:2]),
        s(b, a + 0.2j, x), s(b, a, x + 1j),
    ]  # fmt: skip


lfilter_last: Any = operation(
    "scipy.signal.lfilter",
    _evaluate,
    [
        lambda g, out, b, a, x: _lagged(_anticausal(g, a), x, b.shape[0]),
        lambda g, out, b, a, x: -_lagged(_anticausal(g, a), out, a.shape[0]),
        lambda g, out, b, a, x: _back(lfilter_last(b, a, _back(g))),
    ],
    jvp=[
        lambda t, out, b, a, x: lfilter_last(t, a, x),
        lambda t, out, b, a, x: -lfilter_last(t, a, out),
        lambda t, out, b, a, x: lfilter_last(b, a, t),
    ],
    samples=_samples,
    operands=("b", "a", "x"),
    note="linear in the signal; differentiable in the coefficients too",
)


def _tail_matrix(c: Any, order: int) -> Any:
    """Return M with ``state[j] = sum_i M[j, i] * last[i]`` for the last `order` samples."""
    j, i = np.indices((order, order))
    k = order - i + j
    inside = (i >= j) & (k < c.shape[0])
    picked = c[np.where(inside, k, 0)]
    return np.where(inside, picked, np.zeros_like(picked))


def _last(x: Any, count: int) -> Any:
    """Return the last `count` samples, zeros where the signal is shorter."""
    n = x.shape[-1]
    if n < count:
        x = np.concatenate([np.zeros((*x.shape[:-1], count - n), x.dtype), x], -1)
    return x[..., x.shape[-1] - count :]


def _with_state(b: Any, a: Any, x: Any, zi: Any) -> tuple[Any, Any]:
    """Filter along the last axis from the state `zi`; return the signal and the last state."""
    b, a = b / a[0], a / a[0]
    order, n = zi.shape[-1], x.shape[-1]
    if order == 0:
        return lfilter_last(b, a, x), zi
    start = zi[..., :n]
    if n > order:
        start = np.concatenate([start, np.zeros((*zi.shape[:-1], n - order), zi.dtype)], -1)
    y = lfilter_last(b, a, x) + lfilter_last(_one(a), a, start)
    state = np.matmul(_last(x, order), _tail_matrix(b, order).T)
    state = state - np.matmul(_last(y, order), _tail_matrix(a, order).T)
    if n < order:
        remaining = np.concatenate([zi[..., n:], np.zeros((*zi.shape[:-1], n), zi.dtype)], -1)
        state = state + remaining
    return y, state


def _coefficients(c: Any) -> Any:
    c = np.atleast_1d(array(c))
    if c.ndim != 1:
        raise ValueError("object of too small depth for desired array")
    return c


@instead_of(scipy.signal.lfilter)
def lfilter(b: Any, a: Any, x: Any, axis: int = -1, zi: Any = None) -> Any:
    b, a, x = _coefficients(b), _coefficients(a), np.moveaxis(array(x), axis, -1)
    if zi is None:
        return np.moveaxis(lfilter_last(b, a, x), -1, axis)
    zi = np.moveaxis(array(zi), axis, -1)
    order = max(b.shape[0], a.shape[0]) - 1
    if zi.ndim != x.ndim or zi.shape[-1] != order:
        raise ValueError(
            f"lfilter: zi has shape {zi.shape}; the initial state has {order} elements along "
            "the axis and as many axes as x"
        )
    zi = np.broadcast_to(zi, (*x.shape[:-1], order))
    y, zf = _with_state(b, a, x, zi)
    return np.moveaxis(y, -1, axis), np.moveaxis(zf, -1, axis)


@instead_of(scipy.signal.lfilter_zi)
def lfilter_zi(b: Any, a: Any) -> Any:
    b, a = _coefficients(b), _coefficients(a)
    a = a[np.flatnonzero(value(a))[0] :]
    b, a = b / a[0], a / a[0]
    n = max(a.shape[0], b.shape[0])
    b, a = (np.concatenate([c, np.zeros(n - c.shape[0], c.dtype)]) for c in (b, a))
    if n == 1:
        return b[:0]
    # The state that a constant input of 1 leaves as it is.
    shift = np.eye(n - 1, dtype=a.dtype) - np.eye(n - 1, k=1, dtype=a.dtype)
    system = shift + a[1:, None] * np.eye(1, n - 1, dtype=a.dtype)
    return np.linalg.solve(system, b[1:] - a[1:] * b[0])


@instead_of(scipy.signal.lfiltic)
def lfiltic(b: Any, a: Any, y: Any, x: Any = None) -> Any:
    b, a, y = _coefficients(b), _coefficients(a), np.atleast_1d(array(y))
    order = max(a.shape[0], b.shape[0]) - 1
    b, a = b / a[0], a / a[0]
    x = np.zeros(0) if x is None else np.atleast_1d(array(x))

    def recent(v: Any) -> Any:  # oldest first, as `_tail_matrix` reads it
        return _last(_back(v[:order]), order)

    return np.matmul(_tail_matrix(b, order), recent(x)) - np.matmul(
        _tail_matrix(a, order), recent(y)
    )


# -- forward and backward -------------------------------------------------------------------------


def extended(x: Any, kind: str | None, n: int) -> Any:
    """Extend a signal by `n` samples on both sides of the last axis."""
    if n < 1 or kind is None:
        return x
    length = x.shape[-1]
    if n > length - 1 and kind in ("odd", "even"):
        raise ValueError(
            f"The extension length n ({n}) is too big. It must not exceed x.shape[axis]-1, which "
            f"is {length - 1}."
        )
    first, last = x[..., :1], x[..., -1:]
    if kind == "constant":
        left, right = np.repeat(first, n, -1), np.repeat(last, n, -1)
    elif kind == "zeros":
        left = right = np.zeros((*x.shape[:-1], n), x.dtype)
    else:
        left, right = _back(x[..., 1 : n + 1]), _back(x[..., length - 1 - n : length - 1])
        if kind == "odd":
            left, right = 2 * first - left, 2 * last - right
    return np.concatenate([left, x, right], -1)


def _edge(padtype: str | None, padlen: int | None, n: int, ntaps: int) -> int:
    """Return how many samples to extend by, with SciPy's errors."""
    if padtype not in ("even", "odd", "constant", None):
        raise ValueError(
            f"Unknown value '{padtype}' given to padtype. padtype must be 'even', 'odd', "
            "'constant', or None."
        )
    edge = 0 if padtype is None else ntaps * 3 if padlen is None else padlen
    if n <= edge:
        raise ValueError(
            f"The length of the input vector x must be greater than padlen, which is {edge}."
        )
    return edge


def _both_ways(x: Any, kind: str | None, edge: int, run: Callable[[Any, Any], Any]) -> Any:
    """Run a filter forward and backward; ``run(signal, its first sample)`` returns the signal."""
    ext = extended(x, kind, edge)
    y = run(ext, ext[..., :1])
    y = _back(run(_back(y), y[..., -1:]))
    return y[..., edge : y.shape[-1] - edge] if edge else y


@instead_of(scipy.signal.filtfilt)
def filtfilt(
    b: Any,
    a: Any,
    x: Any,
    axis: int = -1,
    padtype: str | None = "odd",
    padlen: int | None = None,
    method: str = "pad",
) -> Any:
    if method not in ("pad", "gust"):
        raise ValueError("method must be 'pad' or 'gust'.")
    if method == "gust":
        raise NotDifferentiableError(
            "filtfilt: method='gust' is not differentiated; use method='pad'"
        )
    b, a, x = _coefficients(b), _coefficients(a), np.moveaxis(array(x), axis, -1)
    edge = _edge(padtype, padlen, x.shape[-1], max(b.shape[0], a.shape[0]))
    zi = lfilter_zi(b, a)
    y = _both_ways(x, padtype, edge, lambda v, v0: _with_state(b, a, v, zi * v0)[0])
    return np.moveaxis(y, -1, axis)


def _sections(sos: Any) -> Any:
    sos = np.atleast_2d(array(sos))
    if sos.ndim != 2 or sos.shape[1] != 6:
        raise ValueError("sos array must be shape (n_sections, 6)")
    if not np.all(value(sos[:, 3]) == 1):
        raise ValueError("sos[:, 3] should be all ones")
    return sos


def _cascade(sos: Any, x: Any, zi: Any = None) -> tuple[Any, list[Any]]:
    states = []
    for k in range(sos.shape[0]):
        if zi is None:
            x = lfilter_last(sos[k, :3], sos[k, 3:], x)
        else:
            x, state = _with_state(sos[k, :3], sos[k, 3:], x, zi[k])
            states.append(state)
    return x, states


@instead_of(scipy.signal.sosfilt)
def sosfilt(sos: Any, x: Any, axis: int = -1, zi: Any = None) -> Any:
    sos, x = _sections(sos), np.moveaxis(array(x), axis, -1)
    if zi is None:
        return np.moveaxis(_cascade(sos, x)[0], -1, axis)
    zi = np.moveaxis(array(zi), axis if axis < 0 else axis + 1, -1)
    if zi.shape != (sos.shape[0], *x.shape[:-1], 2):
        raise ValueError(
            f"Invalid zi shape. With axis={axis}, an input with shape {x.shape}, and an sos array "
            f"with {sos.shape[0]} sections, zi must have 2 elements along the axis of each section"
        )
    y, states = _cascade(sos, x, zi)
    where = axis if axis < 0 else axis + 1
    return np.moveaxis(y, -1, axis), np.moveaxis(np.stack(states), -1, where)


@instead_of(scipy.signal.sosfilt_zi)
def sosfilt_zi(sos: Any) -> Any:
    sos = _sections(sos)
    scale, states = 1.0, []
    for k in range(sos.shape[0]):
        b, a = sos[k, :3], sos[k, 3:]
        states.append(scale * lfilter_zi(b, a))
        scale = scale * (np.sum(b) / np.sum(a))
    return np.stack(states)


@instead_of(scipy.signal.sosfiltfilt)
def sosfiltfilt(
    sos: Any, x: Any, axis: int = -1, padtype: str | None = "odd", padlen: int | None = None
) -> Any:
    sos, x = _sections(sos), np.moveaxis(array(x), axis, -1)
    sections = value(sos)
    ntaps = 2 * len(sections) + 1 - min(np.sum(sections[:, 2] == 0), np.sum(sections[:, 5] == 0))
    edge = _edge(padtype, padlen, x.shape[-1], int(ntaps))
    zi = sosfilt_zi(sos)

    def run(v: Any, v0: Any) -> Any:
        return _cascade(sos, v, [zi[k] * v0 for k in range(len(sections))])[0]

    return np.moveaxis(_both_ways(x, padtype, edge, run), -1, axis)

"""Convolution of arrays along some of their axes, as one operation, and extended edges."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.ndimage
import scipy.signal

from adarray.ops.common import s, unbroadcast
from adarray.scipy._drop_in import operation, value


def cut(x: Any, axis: int, start: int | None, stop: int | None, step: int | None = None) -> Any:
    """Return a slice of `x` along one axis."""
    axis %= x.ndim
    return x[(slice(None),) * axis + (slice(start, stop, step),)]


def _sizes(a: Any, b: Any, axes: tuple[int, ...], mode: str) -> tuple[int, int]:
    """Return how many elements of the result and of the kernel there are along `axes`."""
    out = math.prod(
        a.shape[i] + b.shape[i] - 1 if mode == "full" else a.shape[i] - b.shape[i] + 1 for i in axes
    )
    return out, math.prod(b.shape[i] for i in axes)


def _line(a: Any, b: Any, axis: int, mode: str) -> Any:
    """Convolve with one short row of weights: SciPy's filter for images is fast at that."""
    k = b.shape[axis]
    if mode == "full":
        width = [(0, 0)] * a.ndim
        width[axis] = (k - 1, k - 1)
        a = np.pad(a, width)
    weights = np.conj(np.ravel(b)[::-1])  # a correlation conjugates its weights
    r = scipy.ndimage.correlate1d(a, weights, axis, np.result_type(a, b), mode="constant")
    return np.ascontiguousarray(cut(r, axis, k // 2, k // 2 + a.shape[axis] - k + 1))


def _passes(a: Any, b: Any, axes: tuple[int, ...], mode: str) -> Any:
    """Convolve each line with a row of its own: one pass for each weight or each result."""
    (axis,) = axes
    if mode == "full":
        width = [(0, 0)] * a.ndim
        width[axis] = (b.shape[axis] - 1,) * 2
        a = np.pad(a, width)
    n, k = a.shape[axis] - b.shape[axis] + 1, b.shape[axis]
    back = np.flip(b, axis)
    if n <= k:
        sums = [np.sum(cut(a, axis, j, j + k) * back, axis) for j in range(n)]
        return np.stack(sums, axis)
    total = cut(a, axis, 0, n) * cut(back, axis, 0, 1)
    for j in range(1, k):
        total += cut(a, axis, j, j + n) * cut(back, axis, j, j + 1)
    return total


def _evaluate(a: Any, b: Any, axes: tuple[int, ...], mode: str, method: str) -> Any:
    dtype = np.result_type(a, b)
    a, b = np.asarray(a), np.asarray(b)
    if method == "oa":
        return scipy.signal.oaconvolve(a, b, mode, axes=axes).astype(dtype, copy=False)
    if method == "fft":
        return scipy.signal.fftconvolve(a, b, mode, axes=axes).astype(dtype, copy=False)
    batched = any(b.shape[i] != 1 for i in range(b.ndim) if i not in axes)
    out, k = _sizes(a, b, axes, mode)
    if batched and len(axes) > 1:
        return scipy.signal.fftconvolve(a, b, mode, axes=axes).astype(dtype, copy=False)
    if batched:
        return _passes(a, b, axes, mode)
    wide = [i for i in axes if b.shape[i] != 1]
    if len(wide) == 1 and k <= out and a.size and dtype.char in "fdFD":
        return _line(a, b, wide[0], mode)
    r = scipy.signal.convolve(a, b, mode, "direct")
    return np.asarray(r, dtype)


def _pull(g: Any, other: Any, x: Any, axes: tuple[int, ...], mode: str, method: str) -> Any:
    return unbroadcast(convolution(g, np.flip(other, axes), axes, mode, method), x.shape)


def _rule_a(g: Any, out: Any, a: Any, b: Any, axes: Any, mode: str, method: str) -> Any:
    return _pull(g, b, a, axes, "valid" if mode == "full" else "full", method)


def _rule_b(g: Any, out: Any, a: Any, b: Any, axes: Any, mode: str, method: str) -> Any:
    if mode == "full":
        return _pull(g, a, b, axes, "valid", method)
    r = convolution(a, np.flip(g, axes), axes, "valid", method)
    return unbroadcast(np.flip(r, axes), b.shape)


def _samples(rng: np.random.Generator) -> list[Any]:
    samples = []
    for mode in ("full", "valid"):
        for method in ("direct", "fft", "oa"):
            samples.append(s(rng.normal(size=7), rng.normal(size=3), (0,), mode, method))
            samples.append(
                s(rng.normal(size=(4, 5)), rng.normal(size=(2, 3)), (0, 1), mode, method)
            )
        a, b = rng.normal(size=(2, 6)), rng.normal(size=(1, 3))
        samples.append(s(a, b, (1,), mode, "direct"))
        samples.append(s(a, b * np.array([[1.0], [2.0]]), (1,), mode, "direct"))
        samples.append(s(b, a[:1], (1,), "full", "direct"))
        samples.append(s(a + 0.5j, b, (1,), mode, "direct"))
        samples.append(s(a, b - 0.5j, (1,), mode, "fft"))
        samples.append(s(a + 0.5j, b - 0.5j, (1,), mode, "direct"))
    return samples


convolution: Any = operation(
    "scipy.signal.convolve",
    _evaluate,
    [_rule_a, _rule_b],
    jvp="linear",
    samples=_samples,
    operands=("a", "b"),
    params=("axes", "mode", "method"),
    note="the method (direct, fft) is kept in the derivatives",
)


def pick_method(a: Any, b: Any, mode: str = "full") -> str:
    """Return the faster one of ``"direct"`` and ``"fft"``, as SciPy chooses."""
    if not (a.size and b.size):
        return "direct"
    return str(scipy.signal.choose_conv_method(value(a), value(b), mode))


def centered(full: Any, shape: Any, axes: Any) -> Any:
    """Return the middle of `full`, of the lengths in `shape` along `axes`."""
    index = [slice(None)] * full.ndim
    for i in axes:
        start = (full.shape[i] - shape[i]) // 2
        index[i] = slice(start, start + shape[i])
    return full[tuple(index)]


# -- edges ----------------------------------------------------------------------------------------


def positions(n: int, before: int, after: int, mode: str) -> np.ndarray:
    """Return which elements of a line of `n` stand before, in and after it; -1 for none."""
    i = np.arange(-before, n + after)
    if mode in ("constant", "grid-constant", "zeros"):
        return np.where((i >= 0) & (i < n), i, -1)
    if mode == "nearest" or n == 1:
        return np.clip(i, 0, n - 1)
    if mode in ("wrap", "grid-wrap"):
        return i % n
    if mode in ("reflect", "grid-mirror"):
        i = i % (2 * n)
        return np.where(i < n, i, 2 * n - 1 - i)
    if mode == "mirror":
        i = i % (2 * n - 2)
        return np.where(i < n, i, 2 * n - 2 - i)
    raise ValueError("boundary mode not supported")


def extend(x: Any, axis: int, before: int, after: int, mode: str, cval: Any = 0.0) -> Any:
    """Return `x` with elements put before and after it along `axis`."""
    if not (before or after):
        return x
    n = x.shape[axis]
    at = positions(n, before, after, mode)
    if mode in ("constant", "grid-constant", "zeros"):
        width = [(0, 0)] * x.ndim
        width[axis % x.ndim] = (before, after)
        padded = np.pad(x, width)
        if isinstance(cval, (int, float, complex)) and cval == 0:
            return padded
        shape = [1] * x.ndim
        shape[axis % x.ndim] = at.size
        return padded + np.reshape((at < 0).astype(x.dtype), shape) * cval
    parts = [np.take(x, at[:before], axis)] if before else []
    parts.append(x)
    if after:
        parts.append(np.take(x, at[before + n :], axis))
    return np.concatenate(parts, axis)

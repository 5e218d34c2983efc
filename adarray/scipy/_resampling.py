"""Changing the sampling rate, smoothing and the analytic signal.

References
----------
- A. Savitzky, M. J. E. Golay, "Smoothing and differentiation of data by simplified least squares
  procedures", Anal. Chem. 36 (1964), 1627-1639.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.signal

from adarray.base.errors import NotDifferentiableError
from adarray.scipy._convolution import convolution, extend, pick_method
from adarray.scipy._drop_in import array, instead_of, is_complex, value
from adarray.scipy._filtering import lfilter, sosfilt, sosfiltfilt
from adarray.scipy._spectral import detrended


@instead_of(scipy.signal.detrend)
def detrend(data: Any, axis: int = -1, type: str = "linear", bp: Any = 0) -> Any:
    return np.moveaxis(detrended(np.moveaxis(array(data), axis, -1), type, bp), -1, axis)


@instead_of(scipy.signal.hilbert)
def hilbert(x: Any, N: int | None = None, axis: int = -1) -> Any:
    x = np.moveaxis(array(x), axis, -1)
    if is_complex(x):
        raise ValueError("x must be real.")
    n = x.shape[-1] if N is None else N
    if n <= 0:
        raise ValueError("N must be positive.")
    return np.moveaxis(np.fft.ifft(np.fft.fft(x, n) * _one_sided(n, x.dtype)), -1, axis)


def _one_sided(n: int, dtype: Any) -> Any:
    """Return 2 for positive frequencies, 0 for negative ones, 1 for those that are neither."""
    k = np.arange(n)
    weight = np.where(k == 0, 1, np.where(2 * k < n, 2, 0))
    weight[(2 * k == n) & (k > 0)] = 1
    return weight.astype(np.finfo(dtype).dtype)


def _split(n: int, num: int, dtype: Any) -> tuple[Any, Any]:
    """Return which frequencies of `n` go to those of `num`, as positions and weights."""
    m = min(n, num)
    k = np.arange(num)
    signed = np.where(2 * k <= num, k, k - num)  # num / 2 counts as positive
    at = np.where(2 * np.abs(signed) < m, signed % n, 0)
    weight = np.where(2 * np.abs(signed) < m, 1.0, 0.0)
    if m % 2 == 0 and m:
        middle = 2 * np.abs(signed) == m
        at = np.where(middle, m // 2, at)
        weight = np.where(middle, 1.0 if num <= n else 0.5, weight)
    return at, weight.astype(np.finfo(dtype).dtype)


@instead_of(scipy.signal.resample)
def resample(
    x: Any, num: int, t: Any = None, axis: int = 0, window: Any = None, domain: str = "time"
) -> Any:
    if domain not in ("time", "freq"):
        raise ValueError(f"Parameter domain={domain!r} not in ('time', 'freq')!")
    x = np.moveaxis(array(x), axis, -1)
    n = x.shape[-1]
    spectrum = np.fft.fft(x) if domain == "time" else x
    if window is not None:
        if callable(window):
            w = window(np.fft.fftfreq(n))
        elif hasattr(window, "shape"):
            w = array(window)
            if w.shape != (n,):
                raise ValueError(f"window.shape={w.shape} != ({n},), i.e., window length is not "
                                 "equal to number of frequency bins!")  # fmt: skip
        else:
            w = np.fft.fftshift(scipy.signal.get_window(window, n))
        spectrum = spectrum * w
    at, weight = _split(n, num, x.dtype)
    moved = spectrum[..., at] * weight
    m = min(n, num)
    if m % 2 == 0 and num < n:  # two frequencies meet in the last one
        last = np.zeros(num, weight.dtype)
        last[m // 2] = 1
        moved = moved + spectrum[..., n - m // 2, None] * last
    y = np.fft.ifft(moved) * np.asarray(num / n, weight.dtype)
    if domain == "time" and not is_complex(x):
        y = np.real(y)
    y = np.moveaxis(y, -1, axis)
    if t is None:
        return y
    return y, t[0] + (t[1] - t[0]) * (n / num) * np.arange(num)


@instead_of(scipy.signal.upfirdn)
def upfirdn(h: Any, x: Any, up: int = 1, down: int = 1, axis: int = -1, mode: str = "constant",
            cval: float = 0) -> Any:  # fmt: skip
    if mode != "constant" or cval != 0:
        raise NotDifferentiableError(
            f"upfirdn: mode={mode!r} with cval={cval!r} is not differentiated; extend the signal "
            "with np.pad"
        )
    h, x = array(h), np.moveaxis(array(x), axis, -1)
    if h.ndim != 1 or h.size == 0:
        raise ValueError("h must be 1-D with non-zero length")
    n = x.shape[-1]
    if up > 1:  # zeros between the samples, none behind the last one
        gaps = np.zeros((*x.shape, up - 1), x.dtype)
        x = np.reshape(np.concatenate([x[..., None], gaps], -1), (*x.shape[:-1], n * up))
        x = x[..., : (n - 1) * up + 1]
    row = np.reshape(h, (1,) * (x.ndim - 1) + h.shape)
    method = pick_method(np.zeros(x.shape[-1], x.dtype), value(h))
    y = convolution(x, row, (x.ndim - 1,), "full", method)
    return np.moveaxis(y[..., ::down], -1, axis)


def _length(taps: int, n: int, up: int, down: int) -> int:
    """Return how many samples `upfirdn` gives."""
    return ((n - 1) * up + taps - 1) // down + 1


@instead_of(scipy.signal.resample_poly)
def resample_poly(
    x: Any, up: int, down: int, axis: int = 0, window: Any = ("kaiser", 5.0),
    padtype: str = "constant", cval: Any = None,
) -> Any:  # fmt: skip
    if padtype != "constant" or (cval is not None and cval != 0):
        raise NotDifferentiableError(
            f"resample_poly: padtype={padtype!r} with cval={cval!r} is not differentiated; "
            "subtract a trend before, and add it after"
        )
    x = array(x)
    if up != int(up) or down != int(down) or up < 1 or down < 1:
        raise ValueError("up and down must be >= 1 and integers")
    common = math.gcd(int(up), int(down))
    up, down = int(up) // common, int(down) // common
    if up == down == 1:
        return x + 0
    n = x.shape[axis]
    out = -(-n * up // down)
    if isinstance(window, (list, tuple, str)) and not hasattr(window, "shape"):
        widest = max(up, down)
        half = 10 * widest
        h = scipy.signal.firwin(2 * half + 1, 1.0 / widest, window=window)
        h = h.astype(np.finfo(x.dtype).dtype)
    else:
        h = array(window)
        half = (h.shape[0] - 1) // 2
    # Zeros before the filter so that its middle falls on a sample of the result.
    before = down - half % down
    skip = (half + before) // down
    behind = 0
    while _length(h.shape[0] + before + behind, n, up, down) < out + skip:
        behind += 1
    h = np.concatenate([np.zeros(before, h.dtype), h * up, np.zeros(behind, h.dtype)])
    y = np.moveaxis(upfirdn(h, x, up, down, axis=axis), axis, -1)
    return np.moveaxis(y[..., skip : skip + out], -1, axis)


@instead_of(scipy.signal.decimate)
def decimate(
    x: Any, q: int, n: int | None = None, ftype: Any = "iir", axis: int = -1,
    zero_phase: bool = True,
) -> Any:  # fmt: skip
    x = array(x)
    real = np.finfo(x.dtype).dtype
    if ftype == "iir":
        sos = scipy.signal.cheby1(8 if n is None else n, 0.05, 0.8 / q, output="sos").astype(real)
        y = sosfiltfilt(sos, x, axis=axis) if zero_phase else sosfilt(sos, x, axis=axis)
        return np.moveaxis(np.moveaxis(y, axis, -1)[..., ::q], -1, axis)
    if ftype != "fir":
        raise NotDifferentiableError(
            "decimate: a filter given as an object is not differentiated; pass ftype='iir' or "
            "'fir', or filter and slice"
        )
    b = scipy.signal.firwin((20 * q if n is None else n) + 1, 1.0 / q, window="hamming")
    b = b.astype(real)
    if zero_phase:
        return resample_poly(x, 1, q, axis=axis, window=b)
    y = np.moveaxis(upfirdn(b, x, 1, q, axis=axis), axis, -1)
    return np.moveaxis(y[..., : -(-x.shape[axis] // q)], -1, axis)


def _edge_fit(window: int, order: int, deriv: int, delta: float, points: Any) -> Any:
    """Return the matrix from samples to the derivative of their polynomial fit at `points`."""
    at = np.arange(window, dtype=float)
    fits = np.polynomial.polynomial.polyfit(at, np.eye(window), order)
    fits = np.polynomial.polynomial.polyder(fits, deriv) if deriv else fits
    return np.polynomial.polynomial.polyval(points, fits).T / delta**deriv


@instead_of(scipy.signal.savgol_filter)
def savgol_filter(
    x: Any, window_length: int, polyorder: int, deriv: int = 0, delta: float = 1.0,
    axis: int = -1, mode: str = "interp", cval: float = 0.0,
) -> Any:  # fmt: skip
    if mode not in ("mirror", "constant", "nearest", "interp", "wrap"):
        raise ValueError("mode must be 'mirror', 'constant', 'nearest' 'wrap' or 'interp'.")
    x = np.moveaxis(array(x), axis, -1)
    n, half = x.shape[-1], window_length // 2
    weights = scipy.signal.savgol_coeffs(window_length, polyorder, deriv=deriv, delta=delta)
    weights = np.reshape(weights, (1,) * (x.ndim - 1) + weights.shape).astype(x.dtype)
    line = (x.ndim - 1,)
    if mode != "interp":
        after = half if window_length % 2 else half - 1
        wide = extend(x, -1, after, half, mode, cval)
        return np.moveaxis(convolution(wide, weights, line, "valid", "direct"), -1, axis)
    if window_length > n:
        raise ValueError(
            "If mode is 'interp', window_length must be less than or equal to the size of x."
        )
    inner = convolution(x, weights, line, "valid", "direct")
    left = _edge_fit(window_length, polyorder, deriv, delta, np.arange(half, dtype=float))
    right = _edge_fit(
        window_length, polyorder, deriv, delta, np.arange(window_length - half, window_length)
    )
    if window_length % 2 == 0:  # an even window has one more result than the middle takes
        inner = inner[..., 1:]
    parts = [
        np.matmul(x[..., :window_length], left.T.astype(x.dtype)),
        inner,
        np.matmul(x[..., n - window_length :], right.T.astype(x.dtype)),
    ]
    return np.moveaxis(np.concatenate(parts, -1), -1, axis)


@instead_of(scipy.signal.czt)
def czt(x: Any, m: int | None = None, w: Any = None, a: Any = 1 + 0j, *, axis: int = -1) -> Any:
    x = np.moveaxis(array(x), axis, -1)
    n = x.shape[-1]
    points = scipy.signal.czt_points(n if m is None else m, w, a)
    matrix = points[:, None] ** -np.arange(n, dtype=float)
    return np.moveaxis(np.matmul(x, matrix.T), -1, axis)


@instead_of(scipy.signal.deconvolve)
def deconvolve(signal: Any, divisor: Any) -> Any:
    num, den = np.atleast_1d(array(signal)), np.atleast_1d(array(divisor))
    if num.ndim != 1 or den.ndim != 1 or not num.size or not den.size:
        raise ValueError("Parameter signal must be non-empty 1d array, and divisor too")
    if den.shape[0] > num.shape[0]:
        return np.zeros(0), num
    impulse = np.zeros(num.shape[0] - den.shape[0] + 1, num.dtype)
    impulse[0] = 1
    quotient = lfilter(num, den, impulse)
    return quotient, num - convolution(den, quotient, (0,), "full", "direct")

"""Spectra by short Fourier transforms: `welch`, `stft` and their relatives."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.signal

from adarray.scipy._drop_in import array, instead_of, is_complex, value
from adarray.scipy._filtering import extended


class Frames(NamedTuple):
    """Lengths of the segments, the window, and where each segment begins."""

    window: Any
    nperseg: int
    step: int
    nfft: int


def frames(
    window: Any, nperseg: Any, noverlap: Any, nfft: Any, n: int, dtype: Any, eighth: bool = False
) -> Frames:
    """Settle the segments of a signal of length `n`, with SciPy's errors and warnings."""
    if isinstance(window, (str, tuple)):
        nperseg = 256 if nperseg is None else int(nperseg)
        if nperseg < 1:
            raise ValueError("nperseg must be a positive integer")
        if nperseg > n:
            warnings.warn(
                f"nperseg = {nperseg} is greater than input length = {n}, using nperseg = {n}",
                stacklevel=4,
            )
            nperseg = n
        win = scipy.signal.get_window(window, nperseg).astype(np.finfo(dtype).dtype)
    else:
        win = array(window)
        if win.ndim != 1 or (nperseg is not None and int(nperseg) != win.shape[0]):
            raise ValueError("value specified for nperseg is different from length of window")
        nperseg = win.shape[0]
    nfft = nperseg if nfft is None else int(nfft)
    if nfft < nperseg:
        raise ValueError("nfft must be greater than or equal to nperseg.")
    noverlap = nperseg // (8 if eighth else 2) if noverlap is None else int(noverlap)
    if noverlap >= nperseg:
        raise ValueError("noverlap must be less than nperseg.")
    return Frames(win, nperseg, nperseg - noverlap, nfft)


def transforms(x: Any, f: Frames, detrend: Any, onesided: bool) -> Any:
    """Return the Fourier transforms of the windowed segments: (..., segment, frequency)."""
    count = (x.shape[-1] - f.nperseg) // f.step + 1
    at = np.arange(count)[:, None] * f.step + np.arange(f.nperseg)[None, :]
    pieces = x[..., at]
    if callable(detrend):
        pieces = detrend(pieces)
    elif detrend:
        pieces = detrended(pieces, detrend)
    pieces = pieces * f.window
    return np.fft.rfft(pieces, f.nfft) if onesided else np.fft.fft(pieces, f.nfft)


def detrended(x: Any, kind: str, breaks: Any = 0) -> Any:
    """Remove the mean or straight lines between `breaks` along the last axis."""
    if kind not in ("linear", "l", "constant", "c"):
        raise ValueError("Trend type must be 'linear' or 'constant'.")
    if kind in ("constant", "c"):
        return x - np.mean(x, -1, keepdims=True)
    n = x.shape[-1]
    ends = np.unique(np.concatenate([[0], np.atleast_1d(breaks), [n]])).astype(int)
    if np.any(ends > n):
        raise ValueError("Breakpoints must be less than length of data along given axis.")
    parts = []
    for start, stop in itertools.pairwise(ends):
        piece = x[..., start:stop]
        # An orthonormal basis of the lines on this piece: constants of the data.
        lines = np.stack([np.ones(stop - start), np.arange(stop - start)], 1)
        basis = np.linalg.svd(lines, full_matrices=False)[0][:, : min(2, stop - start)]
        basis = basis.astype(np.finfo(x.dtype).dtype)
        parts.append(piece - np.matmul(np.matmul(piece, basis), basis.T))
    return np.concatenate(parts, -1)


def doubled(p: Any, nfft: int) -> Any:
    """Double the frequencies that stand for a pair in a one-sided spectrum."""
    twice = np.full(p.shape[-1], 2, np.finfo(p.dtype).dtype)
    twice[0] = 1
    if nfft % 2 == 0:
        twice[-1] = 1
    return p * twice


def frequencies(f: Frames, fs: Any, onesided: bool) -> Any:
    """Return the frequencies of the transforms."""
    return np.fft.rfftfreq(f.nfft, 1 / fs) if onesided else np.fft.fftfreq(f.nfft, 1 / fs)


def _size(z: Any) -> Any:
    """Return ``abs(z)**2``, which is smooth at 0."""
    return np.real(z) ** 2 + np.imag(z) ** 2


def _moved_detrend(detrend: Any, axis: int) -> Any:
    """Return a user's detrend function such that it sees the data on the axis it expects."""
    if not callable(detrend) or axis == -1:
        return detrend
    return lambda d: np.moveaxis(detrend(np.moveaxis(d, -1, axis)), axis, -1)


def _weight(f: Frames, fs: Any, scaling: str) -> Any:
    if scaling == "density":
        return 1.0 / (fs * np.sum(f.window**2))
    if scaling == "spectrum":
        return 1.0 / np.sum(f.window) ** 2
    raise ValueError(f"Unknown scaling: {scaling!r}")


def _averaged(p: Any, average: str) -> Any:
    """Average over segments, the last but one axis."""
    if average == "mean" or p.shape[-2] == 1:
        if average not in ("mean", "median"):
            raise ValueError(f"average must be 'median' or 'mean', got {average}")
        return np.mean(p, -2)
    if average != "median":
        raise ValueError(f"average must be 'median' or 'mean', got {average}")
    n = p.shape[-2]
    even = 2.0 * np.arange(1, (n - 1) // 2 + 1)
    bias = 1 + np.sum(1.0 / (even + 1) - 1.0 / even)
    if is_complex(p):
        return (np.median(np.real(p), -2) + 1j * np.median(np.imag(p), -2)) / bias
    return np.median(p, -2) / bias


def _padded(x: Any, n: int) -> Any:
    """Put zeros behind a signal up to the length `n`."""
    if x.shape[-1] >= n:
        return x
    return np.concatenate([x, np.zeros((*x.shape[:-1], n - x.shape[-1]), x.dtype)], -1)


def _cross(
    x: Any, y: Any, fs: Any, window: Any, lengths: tuple[Any, Any, Any], detrend: Any,
    onesided: bool, scaling: str, axis: int, average: str,
) -> tuple[Any, Any]:  # fmt: skip
    """Return frequencies and the cross spectrum; `y` None stands for the spectrum of `x`."""
    x = np.moveaxis(array(x), axis, -1)
    other = None if y is None else np.moveaxis(array(y), axis, -1)
    n = x.shape[-1] if other is None else max(x.shape[-1], other.shape[-1])
    onesided = onesided and not is_complex(x) and (other is None or not is_complex(other))
    f = frames(window, *lengths, n, x.dtype)
    detrend = _moved_detrend(detrend, axis)
    zx = transforms(_padded(x, n), f, detrend, onesided)
    if other is None:
        p = _size(zx)
    else:
        p = np.conjugate(zx) * transforms(_padded(other, n), f, detrend, onesided)
    p = p * _weight(f, fs, scaling)
    p = _averaged(doubled(p, f.nfft) if onesided else p, average)
    return frequencies(f, fs, onesided), np.moveaxis(p, -1, axis)


@instead_of(scipy.signal.csd)
def csd(
    x: Any, y: Any, fs: Any = 1.0, window: Any = "hann", nperseg: Any = None, noverlap: Any = None,
    nfft: Any = None, detrend: Any = "constant", return_onesided: bool = True,
    scaling: str = "density", axis: int = -1, average: str = "mean",
) -> Any:  # fmt: skip
    lengths = (nperseg, noverlap, nfft)
    return _cross(x, y, fs, window, lengths, detrend, return_onesided, scaling, axis, average)


@instead_of(scipy.signal.welch)
def welch(
    x: Any, fs: Any = 1.0, window: Any = "hann", nperseg: Any = None, noverlap: Any = None,
    nfft: Any = None, detrend: Any = "constant", return_onesided: bool = True,
    scaling: str = "density", axis: int = -1, average: str = "mean",
) -> Any:  # fmt: skip
    lengths = (nperseg, noverlap, nfft)
    return _cross(x, None, fs, window, lengths, detrend, return_onesided, scaling, axis, average)


@instead_of(scipy.signal.periodogram)
def periodogram(
    x: Any, fs: Any = 1.0, window: Any = "boxcar", nfft: Any = None, detrend: Any = "constant",
    return_onesided: bool = True, scaling: str = "density", axis: int = -1,
) -> Any:  # fmt: skip
    x = np.moveaxis(array(x), axis, -1)
    window = "boxcar" if window is None else window
    n = x.shape[-1]
    if nfft is not None and nfft < n:
        x, n, nfft = x[..., :nfft], nfft, None
    f, p = _cross(x, None, fs, window, (n, 0, nfft), detrend, return_onesided, scaling, -1, "mean")
    return f, np.moveaxis(p, -1, axis)


@instead_of(scipy.signal.coherence)
def coherence(
    x: Any, y: Any, fs: Any = 1.0, window: Any = "hann", nperseg: Any = None, noverlap: Any = None,
    nfft: Any = None, detrend: Any = "constant", axis: int = -1,
) -> Any:  # fmt: skip
    def spectrum(u: Any, v: Any) -> tuple[Any, Any]:
        lengths = (nperseg, noverlap, nfft)
        return _cross(u, v, fs, window, lengths, detrend, True, "density", axis, "mean")

    f, pxx = spectrum(x, None)
    return f, _size(spectrum(x, y)[1]) / pxx / spectrum(y, None)[1]


def _short(
    x: Any, f: Frames, fs: Any, detrend: Any, onesided: bool, scaling: str, boundary: Any,
    padded: bool,
) -> tuple[Any, Any]:  # fmt: skip
    """Return times and the scaled transforms along the last axis: (..., segment, frequency)."""
    if boundary not in ("even", "odd", "constant", "zeros", None):
        raise ValueError(
            f"Unknown boundary option '{boundary}', must be one of: "
            "['even', 'odd', 'constant', 'zeros', None]"
        )
    x = extended(x, boundary, f.nperseg // 2)
    if padded:
        x = _padded(x, x.shape[-1] + (-(x.shape[-1] - f.nperseg) % f.step) % f.nperseg)
    z = transforms(x, f, detrend, onesided) * np.sqrt(_weight(f, fs, scaling))
    times = np.arange(f.nperseg / 2, x.shape[-1] - f.nperseg / 2 + 1, f.step) / float(value(fs))
    return (times - f.nperseg / 2 / value(fs) if boundary is not None else times), z


def _one_side(x: Any, wanted: bool) -> bool:
    if wanted and is_complex(x):
        warnings.warn("Input data is complex, switching to return_onesided=False", stacklevel=4)
    return wanted and not is_complex(x)


def _placed(z: Any, axis: int) -> Any:
    """Put the frequencies where the samples were, and the segments last."""
    z = np.swapaxes(z, -1, -2)
    return np.moveaxis(z, -2, axis - 1 if axis < 0 else axis)


@instead_of(scipy.signal.stft)
def stft(
    x: Any, fs: Any = 1.0, window: Any = "hann", nperseg: Any = 256, noverlap: Any = None,
    nfft: Any = None, detrend: Any = False, return_onesided: bool = True, boundary: Any = "zeros",
    padded: bool = True, axis: int = -1, scaling: str = "spectrum",
) -> Any:  # fmt: skip
    if scaling not in ("psd", "spectrum"):
        raise ValueError(f"Parameter scaling={scaling!r} not in ['spectrum', 'psd']!")
    x = np.moveaxis(array(x), axis, -1)
    onesided = _one_side(x, return_onesided)
    f = frames(window, nperseg, noverlap, nfft, x.shape[-1], x.dtype)
    kind = "density" if scaling == "psd" else scaling
    times, z = _short(x, f, fs, _moved_detrend(detrend, axis), onesided, kind, boundary, padded)
    return frequencies(f, fs, onesided), times, _placed(z, axis)


@instead_of(scipy.signal.spectrogram)
def spectrogram(
    x: Any, fs: Any = 1.0, window: Any = ("tukey", 0.25), nperseg: Any = None,
    noverlap: Any = None, nfft: Any = None, detrend: Any = "constant",
    return_onesided: bool = True, scaling: str = "density", axis: int = -1, mode: str = "psd",
) -> Any:  # fmt: skip
    if mode not in ("psd", "complex", "magnitude", "angle", "phase"):
        raise ValueError(f"unknown value for mode {mode}, must be one of psd, complex, magnitude, "
                         "angle, phase")  # fmt: skip
    x = np.moveaxis(array(x), axis, -1)
    onesided = _one_side(x, return_onesided)
    f = frames(window, nperseg, noverlap, nfft, x.shape[-1], x.dtype, eighth=True)
    detrend = _moved_detrend(detrend, axis)
    times, z = _short(x, f, fs, detrend, onesided, scaling, None, False)
    finish: dict[str, Callable[[Any], Any]] = {
        "psd": lambda z: doubled(_size(z), f.nfft) if onesided else _size(z),
        "complex": lambda z: z,
        "magnitude": np.abs,
        "angle": np.angle,
        "phase": lambda z: np.unwrap(np.angle(z), axis=-1),
    }
    return frequencies(f, fs, onesided), times, _placed(finish[mode](z), axis)


@instead_of(scipy.signal.istft)
def istft(
    Zxx: Any, fs: Any = 1.0, window: Any = "hann", nperseg: Any = None, noverlap: Any = None,
    nfft: Any = None, input_onesided: bool = True, boundary: bool = True, time_axis: int = -1,
    freq_axis: int = -2, scaling: str = "spectrum",
) -> Any:  # fmt: skip
    z = np.moveaxis(array(Zxx), (freq_axis, time_axis), (-2, -1))
    usual = 2 * (z.shape[-2] - 1) if input_onesided else z.shape[-2]
    nperseg = usual if nperseg is None else int(nperseg)
    if nfft is None:
        nfft = nperseg if input_onesided and nperseg == usual + 1 else usual
    f = frames(window, nperseg, noverlap, nfft, nperseg, z.dtype)
    pieces = np.fft.irfft(z, f.nfft, axis=-2) if input_onesided else np.fft.ifft(z, f.nfft, axis=-2)
    pieces = np.swapaxes(pieces[..., :nperseg, :], -1, -2)
    if scaling == "spectrum":
        pieces = pieces * np.sum(f.window)
    elif scaling == "psd":
        pieces = pieces * np.sqrt(fs * np.sum(f.window**2))
    else:
        raise ValueError(f"Parameter scaling={scaling!r} not in ['spectrum', 'psd']!")
    count = z.shape[-1]
    total = nperseg + (count - 1) * f.step
    x = overlapped(pieces * f.window, f.step, total)
    norm = overlapped(np.broadcast_to(f.window**2, (count, nperseg)), f.step, total)
    if boundary:
        half = nperseg // 2
        x, norm = x[..., half : total - half], norm[half : total - half]
    covered = value(norm) > 1e-10
    if not np.all(covered):
        warnings.warn("NOLA condition failed, STFT may not be invertible.", stacklevel=3)
    x = x / np.where(covered, norm, 1.0)
    if x.ndim > 1 and time_axis != Zxx.ndim - 1 and time_axis != -1:
        time, freq = time_axis % z.ndim, freq_axis % z.ndim
        x = np.moveaxis(x, -1, time - 1 if freq < time else time)
    return np.arange(x.shape[-1]) / float(value(fs)), x


def overlapped(pieces: Any, step: int, total: int) -> Any:
    """Add segments (..., segment, sample) that begin every `step` samples."""
    count, length = pieces.shape[-2:]
    at = np.arange(count)[:, None] * step + np.arange(length)[None, :]
    flat = np.reshape(pieces, (*pieces.shape[:-2], -1))
    # Segments a multiple of ceil(length / step) apart do not overlap: few sums add all.
    stride = -(-length // step)
    result = None
    for first in range(min(stride, count)):
        owner = np.full(total, count * length)
        mine = np.arange(first, count, stride)
        owner[at[mine]] = mine[:, None] * length + np.arange(length)
        zero = np.zeros((*flat.shape[:-1], 1), flat.dtype)
        part = np.concatenate([flat, zero], -1)[..., owner]
        result = part if result is None else result + part
    return result

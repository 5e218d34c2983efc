"""Drop-in for `scipy.signal`: convolution, filters and spectra that differentiate.

Windows, filter design and positions of peaks carry no derivative with respect to the
data. Filters differentiate with respect to the signal and to their coefficients.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.signal

from adarray.base.errors import NotDifferentiableError
from adarray.core.protocol import traced
from adarray.scipy._convolution import centered, convolution, extend, pick_method
from adarray.scipy._drop_in import array, constant, fill_in, instead_of, value

# isort: off
from adarray.scipy._filtering import (
    filtfilt as filtfilt,
    lfilter as lfilter,
    lfilter_zi as lfilter_zi,
    lfiltic as lfiltic,
    sosfilt as sosfilt,
    sosfilt_zi as sosfilt_zi,
    sosfiltfilt as sosfiltfilt,
)
from adarray.scipy._resampling import (
    czt as czt,
    decimate as decimate,
    deconvolve as deconvolve,
    detrend as detrend,
    hilbert as hilbert,
    resample as resample,
    resample_poly as resample_poly,
    savgol_filter as savgol_filter,
    upfirdn as upfirdn,
)
from adarray.scipy._spectral import (
    coherence as coherence,
    csd as csd,
    istft as istft,
    periodogram as periodogram,
    spectrogram as spectrogram,
    stft as stft,
    welch as welch,
)

# isort: on
from adarray.scipy._triangular import conj

_MODES = ("full", "same", "valid")


def _checked(a: Any, b: Any, mode: str) -> None:
    if mode not in _MODES:
        raise ValueError(f"acceptable mode flags are {_MODES}")
    if a.ndim != b.ndim:
        raise ValueError("in1 and in2 should have the same dimensionality")


def _fits(a: Any, b: Any, axes: Any) -> bool:
    return all(a.shape[i] >= b.shape[i] for i in axes)


def _convolved(a: Any, b: Any, mode: str, method: str, axes: Any) -> Any:
    """Convolve along `axes`; in the mode "valid" either array may be the larger one."""
    if not (a.size and b.size):
        return np.zeros(0, np.result_type(a.dtype, b.dtype))
    if mode == "valid":
        if not _fits(a, b, axes):
            a, b = b, a
        if not _fits(a, b, axes):
            raise ValueError(
                "For 'valid' mode, one must be at least as large as the other in every dimension"
            )
        return convolution(a, b, tuple(axes), "valid", method)
    full = convolution(a, b, tuple(axes), "full", method)
    return full if mode == "full" else centered(full, a.shape, axes)


@instead_of(scipy.signal.convolve)
def convolve(in1: Any, in2: Any, mode: str = "full", method: str = "auto") -> Any:
    a, b = array(in1), array(in2)
    if a.ndim == b.ndim == 0:
        return a * b
    _checked(a, b, mode)
    if method not in ("auto", "direct", "fft"):
        raise ValueError("Acceptable method flags are 'auto', 'direct', or 'fft'.")
    if method == "auto":
        method = pick_method(a, b, mode)
    return _convolved(a, b, mode, method, range(a.ndim))


@instead_of(scipy.signal.correlate)
def correlate(in1: Any, in2: Any, mode: str = "full", method: str = "auto") -> Any:
    a, b = array(in1), array(in2)
    if a.ndim == b.ndim == 0:
        return a * conj(b)
    _checked(a, b, mode)
    if method == "auto":
        method = pick_method(a, b, mode)
    return _convolved(a, np.flip(conj(b)), mode, method, range(a.ndim))


def _along(in1: Any, in2: Any, mode: str, axes: Any, method: str) -> Any:
    a, b = array(in1), array(in2)
    if a.ndim == b.ndim == 0:
        return a * b
    _checked(a, b, mode)
    picked: Any = range(a.ndim) if axes is None else np.atleast_1d(axes)
    picked = sorted({int(i) % a.ndim for i in picked})
    # Axes of length 1 broadcast, as in a product.
    picked = [i for i in picked if not (a.shape[i] == 1 or b.shape[i] == 1) or mode != "full"]
    if not picked:
        return a * b
    return _convolved(a, b, mode, method, picked)


@instead_of(scipy.signal.fftconvolve)
def fftconvolve(in1: Any, in2: Any, mode: str = "full", axes: Any = None) -> Any:
    return _along(in1, in2, mode, axes, "fft")


@instead_of(scipy.signal.oaconvolve)
def oaconvolve(in1: Any, in2: Any, mode: str = "full", axes: Any = None) -> Any:
    return _along(in1, in2, mode, axes, "oa")


def _two_d(a: Any, b: Any, mode: str, boundary: str, fillvalue: Any) -> Any:
    """Convolve images with their edges extended; `b` is the flipped kernel of a correlation."""
    if a.ndim != 2 or b.ndim != 2:
        raise ValueError("convolve2d inputs must both be 2-D arrays")
    _checked(a, b, mode)
    if mode == "valid":
        if not _fits(a, b, (0, 1)):
            a, b = b, a
        return _convolved(a, b, "valid", "direct", (0, 1))
    modes = {"fill": "constant", "pad": "constant", "wrap": "wrap", "circular": "wrap",
             "symm": "reflect", "symmetric": "reflect"}  # fmt: skip
    if boundary not in modes:
        raise ValueError("Acceptable boundary flags are 'fill', 'circular' (or 'wrap'), and "
                         "'symmetric' (or 'symm').")  # fmt: skip
    for axis in (0, 1):
        k = b.shape[axis]
        if mode == "full":
            before = after = k - 1
        else:
            before, after = k - 1 - (k - 1) // 2, (k - 1) // 2
        a = extend(a, axis, before, after, modes[boundary], fillvalue)
    return convolution(a, b, (0, 1), "valid", "direct")


@instead_of(scipy.signal.convolve2d)
def convolve2d(
    in1: Any, in2: Any, mode: str = "full", boundary: str = "fill", fillvalue: Any = 0
) -> Any:
    a, b = array(in1), array(in2)
    return _two_d(a, b, mode, boundary, fillvalue)


@instead_of(scipy.signal.correlate2d)
def correlate2d(
    in1: Any, in2: Any, mode: str = "full", boundary: str = "fill", fillvalue: Any = 0
) -> Any:
    a, b = array(in1), array(in2)
    swapped = mode == "valid" and a.ndim == b.ndim == 2 and not _fits(a, b, (0, 1))
    if swapped:
        return np.flip(conj(_two_d(b, np.flip(conj(a)), mode, boundary, fillvalue)))
    if mode == "same":
        # The middle of an even kernel is one element further than in a convolution.
        full = _two_d(a, np.flip(conj(b)), "full", boundary, fillvalue)
        start = [(k - 1) - (k - 1) // 2 for k in b.shape]
        return full[start[0] : start[0] + a.shape[0], start[1] : start[1] + a.shape[1]]
    return _two_d(a, np.flip(conj(b)), mode, boundary, fillvalue)


@instead_of(scipy.signal.wiener)
def wiener(im: Any, mysize: Any = None, noise: Any = None) -> Any:
    im = array(im)
    sizes = np.broadcast_to(3 if mysize is None else mysize, (im.ndim,))
    ones = np.ones(tuple(sizes), im.dtype)
    count = ones.size
    mean = correlate(im, ones, "same") / count
    variance = correlate(im**2, ones, "same") / count - mean**2
    noise = np.mean(variance) if noise is None else noise
    quiet = variance < noise
    ratio = 1 - noise / np.where(quiet, 1.0, variance)
    return np.where(quiet, mean, (im - mean) * ratio + mean)


# -- filters by rank: the elements are picked ------------------------------------------------------


def _picked(a: Any, domain: Any, rank: int) -> Any:
    """Return for each element that of the given rank among its neighbours in `domain`."""
    a = array(a)
    for axis, k in enumerate(domain.shape):
        if k % 2 != 1:
            raise ValueError("Each dimension of domain argument should have an odd number of "
                             "elements.")  # fmt: skip
        a = extend(a, axis, k // 2, k // 2, "constant")
    windows = np.lib.stride_tricks.sliding_window_view(value(a), domain.shape)
    near = windows[..., np.asarray(domain) != 0]
    which = np.argsort(near, axis=-1, kind="stable")[..., rank]
    offsets = np.argwhere(np.asarray(domain) != 0)[which]
    base = np.indices(which.shape)
    at = np.ravel_multi_index(tuple(base[i] + offsets[..., i] for i in range(a.ndim)), a.shape)
    return np.take(np.reshape(a, (-1,)), at)


@instead_of(scipy.signal.order_filter)
def order_filter(a: Any, domain: Any, rank: int) -> Any:
    return _picked(a, np.asarray(value(domain)), rank)


@instead_of(scipy.signal.medfilt)
def medfilt(volume: Any, kernel_size: Any = None) -> Any:
    volume = array(volume)
    sizes = np.broadcast_to(3 if kernel_size is None else kernel_size, (volume.ndim,))
    if np.any(sizes % 2 == 0):
        raise ValueError("Each element of kernel_size should be odd.")
    return _picked(volume, np.ones(tuple(sizes)), int(np.prod(sizes)) // 2)


@instead_of(scipy.signal.medfilt2d)
def medfilt2d(input: Any, kernel_size: Any = 3) -> Any:
    return medfilt(input, kernel_size)


# -- frequency responses ---------------------------------------------------------------------------


def _plain_points(worN: Any, name: str) -> Any:
    if traced(worN):
        raise NotDifferentiableError(
            f"{name}: the frequencies worN are not differentiated; pass adarray.value_of(worN), or "
            "evaluate the polynomials with np.polyval"
        )
    return value(worN)


def _response(c: Any, powers: Any) -> Any:
    c = np.atleast_1d(array(c))
    return np.matmul(powers[:, : c.shape[0]], c)


@instead_of(scipy.signal.freqz)
def freqz(b: Any, a: Any = 1, worN: Any = 512, whole: bool = False, fs: Any = 2 * np.pi,
          include_nyquist: bool = False) -> Any:  # fmt: skip
    b, a = np.atleast_1d(array(b)), np.atleast_1d(array(a))
    if b.ndim > 1 or a.ndim > 1:
        raise NotDifferentiableError("freqz: coefficients of more than one axis are not "
                                     "differentiated; call it for each filter")  # fmt: skip
    points = _plain_points(worN, "freqz")
    w, _ = scipy.signal.freqz(
        value(b), value(a), points, whole, fs=fs, include_nyquist=include_nyquist
    )
    count = max(b.shape[0], a.shape[0])
    powers = np.exp(-1j * np.outer(2 * np.pi * w / fs, np.arange(count)))
    return w, _response(b, powers) / _response(a, powers)


@instead_of(scipy.signal.freqz_sos)
def freqz_sos(sos: Any, worN: Any = 512, whole: bool = False, fs: Any = 2 * np.pi) -> Any:
    sos = array(sos)
    h: Any = 1.0
    for k in range(sos.shape[0]):
        w, part = freqz(sos[k, :3], sos[k, 3:], worN=worN, whole=whole, fs=fs)
        h = h * part
    return w, h


@instead_of(scipy.signal.freqs)
def freqs(b: Any, a: Any, worN: Any = 200) -> Any:
    b, a = np.atleast_1d(array(b)), np.atleast_1d(array(a))
    w, _ = scipy.signal.freqs(value(b), value(a), _plain_points(worN, "freqs"))
    powers = (1j * w)[:, None] ** np.arange(max(b.shape[0], a.shape[0]))
    return w, _response(b[::-1], powers) / _response(a[::-1], powers)


@instead_of(scipy.signal.sos2tf)
def sos2tf(sos: Any) -> Any:
    sos = array(sos)
    b, a = sos[0, :3], sos[0, 3:]
    for k in range(1, sos.shape[0]):
        b, a = convolve(b, sos[k, :3]), convolve(a, sos[k, 3:])
    return b, a


# -- peaks ----------------------------------------------------------------------------------------


@instead_of(scipy.signal.find_peaks)
def find_peaks(
    x: Any, height: Any = None, threshold: Any = None, distance: Any = None,
    prominence: Any = None, width: Any = None, wlen: Any = None, rel_height: float = 0.5,
    plateau_size: Any = None,
) -> Any:  # fmt: skip
    peaks, properties = scipy.signal.find_peaks(
        *map(value, (x, height, threshold, distance, prominence, width, wlen, rel_height,
                     plateau_size))
    )  # fmt: skip
    x = array(x)
    rules = {"peak_heights": lambda: x[peaks],
             "left_thresholds": lambda: x[peaks] - x[peaks - 1],
             "right_thresholds": lambda: x[peaks] - x[peaks + 1]}  # fmt: skip
    if "prominences" in properties:
        left, right = properties["left_bases"], properties["right_bases"]
        rules["prominences"] = lambda: x[peaks] - np.maximum(x[left], x[right])
    lost = {"width_heights", "widths", "left_ips", "right_ips"} & set(properties)
    if lost:
        raise NotDifferentiableError(
            f"find_peaks: the properties {sorted(lost)} are not differentiated; leave out width=, "
            "or pass adarray.value_of(x)"
        )
    return peaks, {k: rules[k]() if k in rules else v for k, v in properties.items()}


_PLAIN = ("argrelextrema", "argrelmax", "argrelmin", "choose_conv_method", "correlation_lags",
          "get_window", "unit_impulse", "check_COLA", "check_NOLA", "max_len_seq",
          "find_peaks_cwt")  # fmt: skip
globals().update({name: constant(getattr(scipy.signal, name)) for name in _PLAIN})

_DESIGN = "filter design is not differentiated"
__getattr__, __dir__, __all__ = fill_in(
    globals(),
    scipy.signal,
    dict.fromkeys(
        ("butter", "cheby1", "cheby2", "ellip", "bessel", "firwin", "firwin2", "firls", "remez",
         "iirfilter", "iirdesign", "iirnotch", "iirpeak"),
        _DESIGN,
    ),
)  # fmt: skip

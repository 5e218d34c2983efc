"""`adarray.scipy.signal` against SciPy, and its derivatives against differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("scipy")
import scipy.signal as theirs

import adarray
import adarray.scipy.signal as ours
from adarray import NotDifferentiableError
from adarray.scipy import RECORDS
from adarray.testing import check_grads, opcheck

rng = np.random.default_rng(1)
X = rng.normal(size=12)
Y = rng.normal(size=5)
M = rng.normal(size=(5, 6))
K = rng.normal(size=(3, 2))
K3 = rng.normal(size=(3, 3))
Z = X + 1j * rng.normal(size=12)
B, A = theirs.butter(3, 0.3)
SOS = theirs.butter(4, 0.4, output="sos")
LONG = rng.normal(size=40)
STFT = theirs.stft(LONG, nperseg=8)[2]

CASES: list[tuple[str, tuple[Any, ...], dict[str, Any], tuple[int, ...]]] = [
    *[(f, (X, Y), {"mode": m}, (0, 1))
      for f in ("convolve", "correlate", "fftconvolve", "oaconvolve")
      for m in ("full", "same", "valid")],
    *[(f, (M, K), {"mode": m}, (0, 1))
      for f in ("convolve", "correlate", "fftconvolve", "convolve2d", "correlate2d")
      for m in ("full", "same", "valid")],
    *[(f, (M, K if k else K3), {"mode": m, "boundary": b, "fillvalue": 0.5}, (0, 1))
      for f in ("convolve2d", "correlate2d")
      for m, b, k in (("same", "wrap", 1), ("same", "symm", 1), ("full", "symm", 0),
                      ("full", "fill", 1), ("same", "fill", 0))],
    ("convolve", (Y, X), {"mode": "valid"}, (0, 1)),
    ("convolve", (Y, X), {"mode": "same", "method": "fft"}, (0, 1)),
    ("correlate", (Y, X), {"mode": "valid"}, (0, 1)),
    ("correlate", (Y, X), {"mode": "same"}, (0, 1)),
    ("correlate", (Z, Y + 1j), {}, (0, 1)),
    ("convolve", (Z, Y), {"method": "direct"}, (0, 1)),
    ("fftconvolve", (M, K[:, :1].copy()), {"axes": 0}, (0, 1)),
    ("fftconvolve", (M, M[:, :3].copy()), {"axes": 1, "mode": "same"}, (0, 1)),
    ("oaconvolve", (M, K3[:1]), {"axes": 1}, (0, 1)),
    ("correlate2d", (K, M), {"mode": "valid"}, (0, 1)),
    ("lfilter", (B, A, X), {}, (0, 1, 2)),
    ("lfilter", (B, A * 2, M), {"axis": 0}, (0, 1, 2)),
    ("lfilter", (B, [1.0], Z), {}, (0, 2)),
    ("lfilter", (B, A, X, -1, Y[:3]), {}, (0, 1, 2, 4)),
    ("lfilter", (B, A * 2, M, 0, rng.normal(size=(3, 6))), {}, (0, 1, 2, 4)),
    ("lfilter", (B, A[:1], X[:2], -1, Y[:3]), {}, (0, 2, 4)),
    ("lfilter_zi", (B, A), {}, (0, 1)),
    ("lfilter_zi", (B[:2], A * 3), {}, (0, 1)),
    # SciPy takes a[0] into account since version 1.16.
    ("lfiltic", (B, A, Y[:3], X[:3]), {}, (0, 2, 3)),
    ("filtfilt", (B, A, LONG), {}, (0, 1, 2)),
    ("filtfilt", (B, A, LONG.reshape(20, 2)), {"axis": 0, "padtype": "even", "padlen": 4}, (2,)),
    ("filtfilt", (B, A, X), {"padtype": "constant", "padlen": 5}, (2,)),
    ("filtfilt", (B, A, X), {"padtype": None}, (0, 2)),
    ("sosfilt", (SOS, X), {}, (1,)),
    ("sosfilt", (SOS, M, 0), {}, (1,)),
    ("sosfilt", (SOS, M, 0, rng.normal(size=(2, 2, 6))), {}, (1, 3)),
    ("sosfiltfilt", (SOS, LONG), {}, (1,)),
    ("detrend", (X,), {}, (0,)),
    ("detrend", (M,), {"axis": 0, "type": "constant"}, (0,)),
    ("detrend", (LONG,), {"bp": [10, 25]}, (0,)),
    ("hilbert", (X,), {}, (0,)),
    ("hilbert", (M, 7), {"axis": 0}, (0,)),
    *[("resample", (x, n), {}, (0,)) for x in (X, X[:7], Z, Z[:7]) for n in (5, 6, 9, 16, 12)],
    ("resample", (M, 8), {"axis": 1, "window": "hamming"}, (0,)),
    ("resample", (X, 8, np.arange(12.0)), {}, (0,)),
    ("resample", (X, 8), {"window": np.linspace(0.2, 1, 12)}, (0,)),
    ("upfirdn", (Y, X), {"up": 3, "down": 2}, (0, 1)),
    ("upfirdn", (Y, M), {"up": 1, "down": 2, "axis": 0}, (0, 1)),
    ("resample_poly", (X, 3, 2), {}, (0,)),
    ("resample_poly", (M, 2, 3), {"axis": 1}, (0,)),
    ("resample_poly", (X, 2, 4), {"window": Y}, (0,)),
    ("decimate", (LONG, 2), {}, (0,)),
    ("decimate", (LONG, 3), {"ftype": "fir"}, (0,)),
    ("decimate", (LONG, 3), {"ftype": "fir", "zero_phase": False}, (0,)),
    ("decimate", (LONG, 2), {"zero_phase": False, "n": 3}, (0,)),
    *[("savgol_filter", (X, 5, 2), {"mode": m, "cval": 0.3}, (0,))
      for m in ("interp", "mirror", "constant", "nearest", "wrap")],
    ("savgol_filter", (M, 5, 3), {"deriv": 1, "delta": 0.5, "axis": 0}, (0,)),
    ("savgol_filter", (X, 6, 2), {}, (0,)),
    ("savgol_filter", (X, 6, 2), {"mode": "nearest"}, (0,)),
    ("welch", (LONG,), {"nperseg": 16}, (0,)),
    ("welch", (LONG,), {"nperseg": 8, "average": "median", "detrend": "linear"}, (0,)),
    ("welch", (LONG.reshape(20, 2),), {"nperseg": 7, "axis": 0, "scaling": "spectrum"}, (0,)),
    ("welch", (Z,), {"nperseg": 8, "return_onesided": False, "nfft": 10}, (0,)),
    ("csd", (LONG, LONG[::-1].copy()), {"nperseg": 16, "fs": 10.0}, (0, 1)),
    ("csd", (LONG, X), {"nperseg": 8, "detrend": False}, (0, 1)),
    ("periodogram", (X,), {}, (0,)),
    ("periodogram", (X,), {"nfft": 16, "window": "hann", "scaling": "spectrum"}, (0,)),
    ("periodogram", (X,), {"nfft": 8}, (0,)),
    ("coherence", (LONG, LONG[::-1].copy()), {"nperseg": 8}, (0, 1)),
    ("stft", (LONG,), {"nperseg": 8}, (0,)),
    ("stft", (LONG,), {"nperseg": 9, "noverlap": 6, "boundary": "odd", "scaling": "psd"}, (0,)),
    ("stft", (LONG.reshape(20, 2),), {"nperseg": 8, "axis": 0, "boundary": None,
                                      "padded": False}, (0,)),
    ("istft", (STFT,), {}, (0,)),
    ("istft", (STFT,), {"scaling": "psd", "fs": 2.0}, (0,)),
    *[("spectrogram", (LONG,), {"nperseg": 8, "mode": m}, (0,))
      for m in ("psd", "complex", "magnitude", "angle", "phase")],
    ("freqz", (B, A), {"worN": 7}, (0, 1)),
    ("freqz", (B,), {"worN": np.linspace(0, 1, 5), "fs": 3.0}, (0,)),
    ("freqs", (B, A), {"worN": np.linspace(0.1, 2, 5)}, (0, 1)),
    ("sos2tf", (SOS,), {}, (0,)),
    ("order_filter", (M, np.ones((3, 3)), 2), {}, (0,)),
    ("medfilt", (X, 5), {}, (0,)),
    ("medfilt", (M,), {}, (0,)),
    ("medfilt2d", (M, 3), {}, (0,)),
    ("wiener", (M,), {}, (0,)),
    ("wiener", (M, (3, 5), 0.2), {}, (0,)),
    ("deconvolve", (X, [2.0, 0.3, 0.1]), {}, (0,)),
    ("deconvolve", (X, np.array([2.0, 0.3, 0.1])), {}, (0, 1)),
    ("czt", (X, 7), {}, (0,)),
    ("czt", (M, 4), {"w": np.exp(-0.3j), "a": 1.1 + 0.2j, "axis": 0}, (0,)),
]  # fmt: skip
# SciPy gives double precision for single, or loses digits by another way of computing.
_DOUBLE = {"czt", "freqz", "freqs", "lfilter_zi", "filtfilt", "sosfiltfilt", "decimate",
           "deconvolve", "upfirdn", "resample_poly", "lfilter", "sosfilt", "lfiltic",
           "wiener", "periodogram", "stft", "istft", "csd", "welch", "coherence",
           "spectrogram", "resample"}  # fmt: skip


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", range(len(CASES)), ids=[c[0] for c in CASES])
def test_values_and_derivatives(case: int, drop_in: Callable[..., None]) -> None:
    name, args, kwargs, argnums = CASES[case]
    single = name not in _DOUBLE
    drop_in(getattr(ours, name), getattr(theirs, name), args, kwargs, argnums, single=single)


@pytest.mark.parametrize("op", [n for n in RECORDS if n.startswith("scipy.signal.")])
@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["float64", "float32"])
def test_records(op: str, dtype: type) -> None:
    opcheck(op, "numpy", dtype)


_SINGLE = {"convolve", "correlate", "fftconvolve", "oaconvolve", "convolve2d", "correlate2d",
           "lfilter", "filtfilt", "sosfilt", "sosfiltfilt", "detrend", "hilbert", "resample",
           "upfirdn", "resample_poly", "savgol_filter", "welch", "periodogram", "stft",
           "istft", "medfilt", "order_filter"}  # fmt: skip


@pytest.mark.parametrize("name", sorted(_SINGLE))
def test_single_precision_stays_single(name: str) -> None:
    _, args, kwargs, argnums = next(c for c in CASES if c[0] == name)
    narrow = [
        np.asarray(x, "F" if np.asarray(x).dtype.kind == "c" else "f")
        if np.asarray(x).dtype.kind in "fc"
        else x
        for x in args
    ]

    def total(x: Any) -> Any:
        args = [*narrow[: argnums[-1]], x, *narrow[argnums[-1] + 1 :]]
        r = getattr(ours, name)(*args, **kwargs)
        r = r[-1] if isinstance(r, tuple) else r
        assert r.dtype.char in "fF"
        return np.sum(np.abs(r) ** 2)

    assert adarray.grad(total)(narrow[argnums[-1]]).dtype.char in "fF"


def _whole(sos: Any, free: Any) -> Any:
    """Return sections whose fourth column is the 1 that SciPy asks for."""
    return np.concatenate([sos[:, :3], np.ones((2, 1)), free], axis=1)


def test_sections() -> None:
    """Second-order sections: all columns but the constant one differentiate."""
    front, back = SOS[:, :3], SOS[:, 4:]
    calls: dict[str, Callable[[Any], Any]] = {
        "sosfilt_zi": lambda sos: ours.sosfilt_zi(sos),
        "sosfilt": lambda sos: ours.sosfilt(sos, X),
        "sosfiltfilt": lambda sos: ours.sosfiltfilt(sos, LONG),
        "freqz_sos": lambda sos: ours.freqz_sos(sos, worN=5)[1],
    }
    for name, call in calls.items():
        plain, _ = adarray.vjp(lambda b, a, call=call: call(_whole(b, a)), front, back)
        np.testing.assert_allclose(plain, call(SOS), rtol=1e-9, err_msg=name)
        check_grads(lambda b, a, call=call: call(_whole(b, a)), (front, back))


def test_find_peaks() -> None:
    options = {"height": 0.1, "threshold": 0.0, "prominence": 0.1}

    def properties(x: Any) -> Any:
        peaks, properties = theirs.find_peaks(adarray.value_of(x), **options)
        positions, mine = ours.find_peaks(x, **options)
        np.testing.assert_array_equal(adarray.value_of(positions), peaks)
        assert mine.keys() == properties.keys()
        for k, v in properties.items():
            np.testing.assert_allclose(adarray.value_of(mine[k]), v)
        return [v for k, v in mine.items() if "bases" not in k]

    check_grads(properties, (LONG,), order=1)
    with pytest.raises(NotDifferentiableError, match="find_peaks: the properties"):
        adarray.grad(lambda x: ours.find_peaks(x, width=1)[1]["widths"].sum())(LONG)


def test_positions_are_constant() -> None:
    def f(x: Any) -> Any:
        (at,) = ours.argrelmax(x)
        return np.sum(x[at])

    g = adarray.grad(f)(X)
    np.testing.assert_array_equal(np.flatnonzero(g), theirs.argrelmax(X)[0])


def test_refusals() -> None:
    with pytest.raises(NotDifferentiableError, match="filtfilt: method='gust'"):
        adarray.grad(lambda x: ours.filtfilt(B, A, x, method="gust").sum())(X)
    with pytest.raises(NotDifferentiableError, match="filter design is not differentiated"):
        adarray.grad(lambda w: ours.butter(2, w)[0].sum())(0.3)
    with pytest.raises(NotDifferentiableError, match="resample_poly: padtype='line'"):
        adarray.grad(lambda x: ours.resample_poly(x, 2, 1, padtype="line").sum())(X)
    with pytest.raises(NotDifferentiableError, match="upfirdn: mode='wrap'"):
        adarray.grad(lambda x: ours.upfirdn(Y, x, mode="wrap").sum())(X)
    with pytest.raises(NotDifferentiableError, match="freqz: the frequencies worN"):
        adarray.grad(lambda w: abs(ours.freqz(B, A, worN=w)[1]).sum())(X)
    with pytest.raises(NotDifferentiableError, match=r"scipy\.signal\.lombscargle: adarray has no"):
        adarray.grad(lambda x: ours.lombscargle(X, x, [1.0]).sum())(X)
    with pytest.raises(ValueError, match="acceptable mode flags"):
        adarray.grad(lambda x: ours.convolve(x, Y, mode="some").sum())(X)
    with pytest.raises(ValueError, match="must be greater than padlen"):
        adarray.grad(lambda x: ours.filtfilt(B, A, x).sum())(X[:3])


def test_namespace_is_scipys() -> None:
    for name in theirs.__all__:
        assert getattr(ours, name) is not None
    assert ours.windows is theirs.windows
    np.testing.assert_array_equal(ours.butter(2, 0.3), theirs.butter(2, 0.3))


def test_data_that_detrend_is_told_to_overwrite() -> None:
    """Under jit the order was dropped like a hint, and the data stayed as they were."""

    def f(x):
        b = np.sin(x)
        theirs.detrend(b, overwrite_data=True)
        return x * b

    x = np.array([0.8, 1.25, 0.5, 2.0])
    jitted = adarray.jit(f)
    with pytest.warns(adarray.JitWarning, match="detrend into an array: a traced value"):
        np.testing.assert_array_equal(jitted(x), f(x))
    np.testing.assert_array_equal(jitted(x), f(x))

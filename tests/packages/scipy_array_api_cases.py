"""SciPy in its array-API mode with ADArrays; run by test_scipy_array_api.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.cluster.hierarchy
import scipy.cluster.vq
import scipy.differentiate
import scipy.fft
import scipy.integrate
import scipy.interpolate
import scipy.linalg
import scipy.ndimage
import scipy.optimize
import scipy.signal
import scipy.spatial.distance
import scipy.spatial.transform
import scipy.special
import scipy.stats
from case_runner import Case, report

import adarray.numpy as xp

special, stats, signal, fft = scipy.special, scipy.stats, scipy.signal, scipy.fft
integrate, optimize, ndimage = scipy.integrate, scipy.optimize, scipy.ndimage
Rotation = scipy.spatial.transform.Rotation

RNG = np.random.default_rng(0)
A = RNG.normal(size=(4, 5))
POSITIVE = np.abs(A) + 0.5
UNIT = 1 / (1 + np.exp(-A))
V = RNG.normal(size=7)
KERNEL = np.array([0.2, 0.5, 0.3])
SPD = A @ A.T + 2 * np.eye(4)

CASES: dict[str, Case] = {}


def _words(text: str) -> list[str]:
    return text.split()


def case(name: str, function: Any, *arguments: Any) -> None:
    CASES[name] = Case(function, arguments or (POSITIVE,))


def refused(name: str, error: str, function: Any, *arguments: Any) -> None:
    CASES[f"refused {name}"] = Case(function, arguments or (POSITIVE,), error)


# -- scipy.special ---------------------------------------------------------------------------
case("special.logsumexp", lambda a: special.logsumexp(a, axis=1), A)
case("special.logsumexp b", lambda a, b: special.logsumexp(a, axis=0, b=b), A, POSITIVE)
case("special.softmax", lambda a: special.softmax(a, axis=0), A)
case("special.log_softmax", lambda a: special.log_softmax(a, axis=0), A)
for _name in _words(
    "erf erfc expit logit log_ndtr ndtr ndtri gammaln digamma i0 i0e i1 i1e erfinv "
    "entr exp10 gamma psi log1p expm1 cosm1"
):
    case(f"special.{_name}", getattr(special, _name), UNIT)
for _name in _words(
    "xlogy xlog1py rel_entr kl_div gammainc gammaincc chdtr chdtrc beta betaln poch binom stdtr"
):
    case(f"special.{_name}", getattr(special, _name), POSITIVE[:2], POSITIVE[1:3] + 0.2)
case("special.betainc", lambda x: special.betainc(xp.asarray(1.5), xp.asarray(2.5), x), UNIT)
case("special.zeta", lambda x: special.zeta(x), POSITIVE + 1)

# -- scipy.stats -------------------------------------------------------------------------------
for _name in _words(
    "zscore gzscore skew kurtosis gmean hmean variation sem tmean tvar tstd tmin tmax "
    "tsem gstd iqr median_abs_deviation entropy circmean circvar circstd kstat kstatvar "
    "lmoment"
):
    case(f"stats.{_name}", getattr(stats, _name))
case("stats.pmean", lambda a: stats.pmean(a, 2.5))
case("stats.moment", lambda a: stats.moment(a, 3))
case("stats.zmap", lambda a: stats.zmap(a, a * 2))
case("stats.describe", lambda a: tuple(stats.describe(a))[2:])
case("stats.boxcox_llf", lambda a: stats.boxcox_llf(0.3, a))
case("stats.trim_mean", lambda a: stats.trim_mean(a, 0.2))
case("stats.sigmaclip", lambda a: stats.sigmaclip(a).clipped)
case("stats.quantile", lambda a: stats.quantile(a, xp.asarray([[0.3], [0.4]]), axis=0))
case("stats.differential_entropy",
     lambda a: stats.differential_entropy(a.reshape(-1), window_length=3))  # fmt: skip
case("stats.directional_stats", lambda a: stats.directional_stats(a).mean_direction)
case("stats.pearsonr statistic", lambda a: stats.pearsonr(a[0], a[1]).statistic)
case("stats.pearsonr pvalue", lambda a: stats.pearsonr(a[0], a[1]).pvalue)
case("stats.ttest_1samp", lambda a: stats.ttest_1samp(a, 0.3)[:2])
for _name in _words("ttest_ind ttest_rel bartlett levene f_oneway"):
    case(f"stats.{_name}", lambda a, n=_name: getattr(stats, n)(a[0], a[1])[:2])
for _name in _words("skewtest kurtosistest normaltest jarque_bera"):
    case(f"stats.{_name}", lambda a, n=_name: getattr(stats, n)(a.reshape(-1))[:2])
for _name in _words("power_divergence chisquare"):
    case(f"stats.{_name}",
         lambda a, n=_name: getattr(stats, n)(a / xp.sum(a, axis=0), xp.ones_like(a) / 4)[:2],
         )  # fmt: skip
case("stats.combine_pvalues", lambda p: stats.combine_pvalues(p, axis=None)[0], UNIT)
case("stats.false_discovery_control", lambda p: stats.false_discovery_control(p), UNIT)
case("stats.alexandergovern", lambda a: stats.alexandergovern(a[0], a[1], a[2]).statistic)
case("stats.bootstrap",
     lambda a: stats.bootstrap((a,), xp.mean, n_resamples=20, rng=np.random.default_rng(0),
                               method="percentile").standard_error, POSITIVE[0])  # fmt: skip

# -- scipy.signal, scipy.fft -----------------------------------------------------------------
case("signal.fftconvolve", lambda a, k: signal.fftconvolve(a, k, mode="same"), V, KERNEL)
case("signal.oaconvolve", lambda a, k: signal.oaconvolve(a, k), V, KERNEL)
case("signal.convolve", lambda a, k: signal.convolve(a, k, method="fft"), V, KERNEL)
case("signal.correlate", lambda a, k: signal.correlate(a, k, method="fft"), V, KERNEL)
case("signal.hilbert", lambda a: xp.abs(signal.hilbert(a)), V)
case("signal.envelope", lambda a: signal.envelope(a), V)
case("signal.resample", lambda a: signal.resample(a, 9), V)
case("signal.freqz", lambda b: xp.abs(signal.freqz(b, worN=5)[1]), KERNEL)
case("signal.gauss_spline", lambda a: signal.gauss_spline(a, 3), V)
case("signal.zpk2tf", lambda z: signal.zpk2tf(z, xp.asarray([0.2, 0.3, 0.4]), 1.0)[0], KERNEL)
for _name in _words("fft ifft rfft fftn ifftn rfftn fft2 hfft"):
    case(f"fft.{_name}", lambda a, n=_name: xp.abs(getattr(fft, n)(a)), A)
case("fft.irfft", lambda a: fft.irfft(a * (1 + 0.5j)), A)
case("fft.fht", lambda a: fft.fht(a, 0.1, 0.5), A)
case("fft.fftshift", lambda a: fft.fftshift(a) ** 2, A)

# -- scipy.integrate and the rest ------------------------------------------------------------
case("integrate.trapezoid", lambda a: integrate.trapezoid(a, dx=0.3), A)
case("integrate.trapezoid x", lambda a, x: integrate.trapezoid(a, x), A, np.sort(V[:5]))
case("integrate.cumulative_trapezoid", lambda a: integrate.cumulative_trapezoid(a, dx=0.3), A)
case("integrate.cumulative_simpson", lambda a: integrate.cumulative_simpson(a, dx=0.3), A)
case("integrate.romb", lambda a: integrate.romb(a, dx=0.3), A)
case("integrate.fixed_quad",
     lambda a: integrate.fixed_quad(lambda t: xp.exp(-t * a[0]), 0.0, a[1])[0],
     POSITIVE[0, :2])  # fmt: skip
case("integrate.tanhsinh",
     lambda a: integrate.tanhsinh(lambda t: xp.exp(-t * t * a[0]), xp.asarray(0.0),
                                  a[1]).integral, POSITIVE[0, :2])  # fmt: skip
case("integrate.cubature",
     lambda a: integrate.cubature(lambda t: xp.exp(-xp.sum(t * t, axis=-1) * a[0]),
                                  xp.asarray([0.0, 0.0]), xp.asarray([1.0, 1.0])).estimate,
     POSITIVE[0, :1])  # fmt: skip
case("integrate.nsum",
     lambda a: integrate.nsum(lambda t: xp.exp(-t * a[0]), xp.asarray(1.0), xp.asarray(20.0)).sum,
     POSITIVE[0, :1])  # fmt: skip
case("differentiate.derivative",
     lambda a: scipy.differentiate.derivative(lambda t: xp.sin(t) * a[0], xp.asarray(0.3)).df,
     V[:1])  # fmt: skip
case("cluster.vq.whiten", lambda a: scipy.cluster.vq.whiten(a), A)
case("optimize.rosen", optimize.rosen, V)
case("optimize.rosen_der", optimize.rosen_der, V)
case("optimize.rosen_hess", optimize.rosen_hess, V)
case("spatial.Rotation.from_rotvec", lambda v: Rotation.from_rotvec(v).as_matrix(), V[:3])
case("spatial.Rotation.apply",
     lambda q, v: Rotation.from_quat(q).apply(v), V[:4], KERNEL)  # fmt: skip
case("spatial.Rotation.from_euler", lambda v: Rotation.from_euler("xyz", v).as_quat(), V[:3])
case("spatial.RigidTransform",
     lambda v: scipy.spatial.transform.RigidTransform.from_translation(v).as_matrix(),
     V[:3])  # fmt: skip

# -- where SciPy leaves the array API ---------------------------------------------------------
COERCES = "TraceError: np.asarray: a traced value would leave the graph"
for _name, _function, _x in (
    ("linalg.inv", scipy.linalg.inv, SPD), ("linalg.det", scipy.linalg.det, SPD),
    ("linalg.cholesky", scipy.linalg.cholesky, SPD), ("linalg.expm", scipy.linalg.expm, SPD),
    ("linalg.eigvalsh", scipy.linalg.eigvalsh, SPD), ("fft.dct", fft.dct, A),
    ("ndimage.gaussian_filter", lambda a: ndimage.gaussian_filter(a, 1.0), A),
    ("ndimage.convolve", lambda a: ndimage.convolve(a, xp.asarray(np.outer(KERNEL, KERNEL))), A),
    ("integrate.simpson", integrate.simpson, A), ("signal.detrend", signal.detrend, A),
    ("signal.welch", lambda a: signal.welch(a, nperseg=4)[1], V),
    ("signal.convolve direct", lambda a: signal.convolve(a, a, method="direct"), V),
    ("signal.upfirdn", lambda a: signal.upfirdn(xp.asarray(KERNEL), a, 2), V),
    ("stats.linregress", lambda a: stats.linregress(a[0], a[1]).slope, A),
    ("stats.trimboth", lambda a: stats.trimboth(a, 0.1), POSITIVE),
    ("stats.wasserstein_distance", lambda a: stats.wasserstein_distance(a[0], a[1]), A),
    ("cluster.hierarchy.linkage", lambda a: scipy.cluster.hierarchy.linkage(a)[:, 2], A),
    ("spatial.distance.cdist", lambda a: scipy.spatial.distance.cdist(a, a), A),
    ("interpolate.CubicSpline",
     lambda a: scipy.interpolate.CubicSpline(xp.arange(7.0), a)(xp.asarray([0.5])), V),
):  # fmt: skip
    refused(_name, COERCES, _function, _x)
refused("signal.convolve auto", "TraceError: int: a traced value would leave the graph",
        lambda a: signal.convolve(a, a), V)  # fmt: skip
refused("mixed namespaces", "TypeError: Multiple namespaces for array inputs",
        lambda a: stats.zmap(a, POSITIVE))  # fmt: skip

if __name__ == "__main__":
    report(CASES)

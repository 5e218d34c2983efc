"""Distributions as functions of their standard forms, and all that follows from these."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

Body = Callable[..., Any]


class Law(NamedTuple):
    """The standard form (loc 0, scale 1) of a continuous distribution.

    Every function takes a value in the interior of the support (a probability in
    (0, 1) for `ppf` and `isf`, nothing for `entropy`, `mean` and `var`) and the
    shape parameters. Only the first must be given; what is missing is derived.
    A distribution function and a quantile that cannot be derived are refused.
    """

    logpdf: Body
    cdf: Body | None = None
    sf: Body | None = None
    logcdf: Body | None = None
    logsf: Body | None = None
    ppf: Body | None = None
    isf: Body | None = None
    entropy: Body | None = None
    mean: Body | None = None
    var: Body | None = None
    # Ends of the support, where they depend on the shape parameters.
    support: Body | None = None
    # The density is even: the upper tail is the lower one of -x.
    even: bool = False
    # The density vanishes at finite ends of the support, where its logarithm has no formula.
    vanishing: bool = False


def _of_minus(f: Body | None) -> Body | None:
    return None if f is None else lambda x, *shapes: f(-x, *shapes)


def _minus(f: Body | None) -> Body | None:
    return None if f is None else lambda *args: -f(*args)


def reflected(law: Law) -> Law:
    """Return the law of the negative of a variable."""
    return Law(
        lambda x, *shapes: law.logpdf(-x, *shapes),
        cdf=_of_minus(law.sf),
        sf=_of_minus(law.cdf),
        logcdf=_of_minus(law.logsf),
        logsf=_of_minus(law.logcdf),
        ppf=_minus(law.isf),
        isf=_minus(law.ppf),
        entropy=law.entropy,
        mean=_minus(law.mean),
        var=law.var,
        vanishing=law.vanishing,
    )


def completed(law: Law) -> Law:
    """Return the law with the functions that follow from others."""
    if law.even:
        tail: Body | None = law.cdf
        law = law._replace(
            sf=law.sf or _of_minus(tail),
            logsf=law.logsf or _of_minus(law.logcdf),
            isf=law.isf or _minus(law.ppf),
        )
    cdf, sf, logcdf, logsf, ppf = law.cdf, law.sf, law.logcdf, law.logsf, law.ppf
    if cdf is None:
        cdf = _exp(logcdf) or _complement(sf or _exp(logsf))
    if sf is None:
        sf = _exp(logsf) or _complement(cdf)
    return law._replace(
        cdf=cdf,
        sf=sf,
        logcdf=logcdf or _log(cdf),
        logsf=logsf or _log(sf),
        isf=law.isf or (None if ppf is None else lambda q, *shapes: ppf(1 - q, *shapes)),
    )


def _exp(f: Body | None) -> Body | None:
    return None if f is None else lambda *args: np.exp(f(*args))


def _log(f: Body | None) -> Body | None:
    return None if f is None else lambda *args: np.log(f(*args))


def _complement(f: Body | None) -> Body | None:
    return None if f is None else lambda *args: 1 - f(*args)


# -- what the laws share ------------------------------------------------------------------------

PI = math.pi
EULER = float(np.euler_gamma)
LOG_2 = math.log(2)
LOG_2PI = math.log(2 * PI)


def normal_log(x: Any) -> Any:
    return -0.5 * x * x - 0.5 * LOG_2PI


def defined(condition: Any, value: Any, other: float = np.inf) -> Any:
    """Return a moment where it exists; the formula is not evaluated elsewhere."""
    return np.where(condition, value, other)


def at(condition: Any, parameter: Any, safe: float) -> Any:
    return np.where(condition, parameter, safe)

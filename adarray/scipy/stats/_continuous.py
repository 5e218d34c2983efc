"""Every continuous distribution with a law, by name."""

from __future__ import annotations

import scipy.stats

from adarray.scipy.stats import _laws_extremes as extremes
from adarray.scipy.stats import _laws_gamma_beta as family
from adarray.scipy.stats import _laws_normal as normal
from adarray.scipy.stats import _laws_simple as simple
from adarray.scipy.stats._distribution import Continuous
from adarray.scipy.stats._law import Law, reflected

LAWS: dict[str, Law] = {
    "arcsine": simple.ARCSINE,
    "beta": family.BETA,
    "cauchy": simple.CAUCHY,
    "chi2": family.CHI2,
    "expon": simple.EXPON,
    "exponnorm": normal.EXPONNORM,
    "f": family.F,
    "gamma": family.GAMMA,
    "genextreme": extremes.GENEXTREME,
    "gennorm": family.GENNORM,
    "genpareto": extremes.GENPARETO,
    "gumbel_l": reflected(simple.GUMBEL_R),
    "gumbel_r": simple.GUMBEL_R,
    "halfcauchy": simple.HALFCAUCHY,
    "halfnorm": simple.HALFNORM,
    "invgamma": family.INVGAMMA,
    "invgauss": normal.INVGAUSS,
    "johnsonsu": normal.JOHNSONSU,
    "laplace": simple.LAPLACE,
    "levy": simple.LEVY,
    "loggamma": family.LOGGAMMA,
    "logistic": simple.LOGISTIC,
    "lognorm": normal.LOGNORM,
    "loguniform": normal.LOGUNIFORM,
    "lomax": family.LOMAX,
    "maxwell": simple.MAXWELL,
    "norm": simple.NORM,
    "pareto": family.PARETO,
    "powerlaw": family.POWERLAW,
    "rayleigh": simple.RAYLEIGH,
    "reciprocal": normal.LOGUNIFORM,
    "skewnorm": normal.SKEWNORM,
    "t": family.STUDENT,
    "triang": extremes.TRIANG,
    "truncexpon": normal.TRUNCEXPON,
    "truncnorm": normal.TRUNCNORM,
    "uniform": simple.UNIFORM,
    "vonmises": extremes.VONMISES,
    "weibull_max": reflected(extremes.WEIBULL_MIN),
    "weibull_min": extremes.WEIBULL_MIN,
    "wrapcauchy": extremes.WRAPCAUCHY,
}


def continuous() -> dict[str, Continuous]:
    """Return the distributions by name."""
    return {n: Continuous(getattr(scipy.stats, n), law) for n, law in LAWS.items()}

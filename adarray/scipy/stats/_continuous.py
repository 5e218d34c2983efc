"""Every continuous distribution with a law, by name."""

from __future__ import annotations

import scipy.stats

from adarray.scipy.stats import _laws_extremes as extremes
from adarray.scipy.stats import _laws_further as further
from adarray.scipy.stats import _laws_gamma_beta as family
from adarray.scipy.stats import _laws_normal as normal
from adarray.scipy.stats import _laws_simple as simple
from adarray.scipy.stats._distribution import Continuous
from adarray.scipy.stats._law import Law, reflected

LAWS: dict[str, Law] = {
    "alpha": further.ALPHA,
    "anglit": further.ANGLIT,
    "arcsine": simple.ARCSINE,
    "beta": family.BETA,
    "betaprime": further.BETAPRIME,
    "bradford": further.BRADFORD,
    "burr": further.BURR,
    "burr12": further.BURR12,
    "cauchy": simple.CAUCHY,
    "chi": further.CHI,
    "chi2": family.CHI2,
    "cosine": further.COSINE,
    "dgamma": further.DGAMMA,
    "dweibull": further.DWEIBULL,
    "erlang": family.GAMMA,
    "expon": simple.EXPON,
    "exponnorm": normal.EXPONNORM,
    "exponweib": further.EXPONWEIB,
    "f": family.F,
    "fatiguelife": further.FATIGUELIFE,
    "fisk": further.FISK,
    "foldnorm": further.FOLDNORM,
    "gamma": family.GAMMA,
    "genextreme": extremes.GENEXTREME,
    "genlogistic": further.GENLOGISTIC,
    "gennorm": family.GENNORM,
    "genpareto": extremes.GENPARETO,
    "gibrat": further.GIBRAT,
    "gompertz": further.GOMPERTZ,
    "gumbel_l": reflected(simple.GUMBEL_R),
    "gumbel_r": simple.GUMBEL_R,
    "halfcauchy": simple.HALFCAUCHY,
    "halfgennorm": further.HALFGENNORM,
    "halflogistic": further.HALFLOGISTIC,
    "halfnorm": simple.HALFNORM,
    "hypsecant": further.HYPSECANT,
    "invgamma": family.INVGAMMA,
    "invgauss": normal.INVGAUSS,
    "invweibull": further.INVWEIBULL,
    "johnsonsb": further.JOHNSONSB,
    "johnsonsu": normal.JOHNSONSU,
    "laplace": simple.LAPLACE,
    "laplace_asymmetric": further.LAPLACE_ASYMMETRIC,
    "levy": simple.LEVY,
    "loggamma": family.LOGGAMMA,
    "logistic": simple.LOGISTIC,
    "lognorm": normal.LOGNORM,
    "loguniform": normal.LOGUNIFORM,
    "lomax": family.LOMAX,
    "maxwell": simple.MAXWELL,
    "moyal": further.MOYAL,
    "nakagami": further.NAKAGAMI,
    "ncx2": further.NCX2,
    "norm": simple.NORM,
    "norminvgauss": further.NORMINVGAUSS,
    "pareto": family.PARETO,
    "powerlaw": family.POWERLAW,
    "powernorm": further.POWERNORM,
    "rayleigh": simple.RAYLEIGH,
    "reciprocal": normal.LOGUNIFORM,
    "rice": further.RICE,
    "semicircular": further.SEMICIRCULAR,
    "skewnorm": normal.SKEWNORM,
    "t": family.STUDENT,
    "triang": extremes.TRIANG,
    "truncexpon": normal.TRUNCEXPON,
    "truncnorm": normal.TRUNCNORM,
    "tukeylambda": further.TUKEYLAMBDA,
    "uniform": simple.UNIFORM,
    "vonmises": extremes.VONMISES,
    "wald": further.WALD,
    "weibull_max": reflected(extremes.WEIBULL_MIN),
    "weibull_min": extremes.WEIBULL_MIN,
    "wrapcauchy": extremes.WRAPCAUCHY,
}


def continuous() -> dict[str, Continuous]:
    """Return the distributions by name."""
    return {n: Continuous(getattr(scipy.stats, n), law) for n, law in LAWS.items()}

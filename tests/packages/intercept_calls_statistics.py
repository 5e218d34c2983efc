"""Statistics, hydrology, fuzzy logic, games, peaks: calls of the table of packages.

``{package: {function: arguments}}``; ``Class().method`` is a method of an instance.
"""

from __future__ import annotations

_P = "np.array([0.3, 0.6])"
_X = "np.linspace(0.05, 9.7, 8)"
_PAIR = "np.array([1.0, 2.0, 0.5, 3.0]), np.array([1.1, 1.8, 0.7, 2.5])"
_RUNOFF = "np.array([1.2, 3.1, 2.4, 5.0, 4.1]), np.array([1.0, 3.3, 2.0, 5.5, 3.9])"
_GRADES = "np.array([0.2, 0.65]), np.array([0.3, 0.6])"
_RELATIONS = "np.array([[0.2, 0.7], [0.4, 0.9]]), np.array([[0.3, 0.6], [0.5, 0.1]])"
_SET = "np.array([1.0, 2.0, 3.0, 4.0]), np.array([0.2, 0.7, 0.5, 0.1])"
# Two fuzzy sets over the same grid, which is looked up in the other.
_SETS = (
    "fixed(np.array([1.0, 2.0, 3.0])), np.array([0.2, 0.9, 0.5]), "
    "fixed(np.array([1.0, 2.0, 3.0])), np.array([0.4, 0.6, 0.1])"
)
_GAME = "np.array([[0.0, 1.0, 2.0], [1.5, 0.2, 1.0], [0.3, 2.0, 0.1]])"
_GAMES = "np.array([[0.0, 1.0], [1.5, 0.2]]), np.array([[1.0, 0.1], [0.5, 1.2]])"
_PEAKS = "np.array([1.0, 2.0, 1.2, 1.9, 3.2, 2.1, 2.4])"

# Where the inverse of each link of generalised linear models is defined.
_LINKS = {
    "Logit": 0.4, "InversePower": 0.7, "Sqrt": 0.7, "InverseSquared": 0.7, "Log": 0.4,
    "LogC": -0.4, "Probit": 0.4, "CLogLog": 0.4, "LogLog": 0.4, "NegativeBinomial": -0.4,
    "CDFLink": 0.4,
}  # fmt: skip
_NORMS = (
    "LeastSquares", "HuberT", "RamsayE", "AndrewWave", "TrimmedMean", "Hampel",
    "TukeyBiweight", "TukeyQuartic",
)  # fmt: skip
# Their results are constant (the second derivative of a square, the weights of a hard cut),
# or taken by finite differences, which magnify the last digit.
_LEFT_OUT = {
    "Sqrt().inverse_deriv2", "LeastSquares().weights", "LeastSquares().psi_deriv",
    "HuberT().psi_deriv", "Hampel().psi_deriv", "TrimmedMean().weights", "TrimmedMean().psi_deriv",
    "CDFLink().inverse_deriv2",
}  # fmt: skip


def _links() -> dict[str, str]:
    calls = {}
    for link, z in _LINKS.items():
        for method in ("__call__", "deriv", "deriv2"):
            calls[f"{link}().{method}"] = _P
        for method in ("inverse", "inverse_deriv", "inverse_deriv2"):
            calls[f"{link}().{method}"] = f"np.array([{z}, {1.2 * z}])"
    return {f"genmod.families.links.{n}": a for n, a in calls.items() if n not in _LEFT_OUT}


def _norms() -> dict[str, str]:
    methods = ("rho", "psi", "weights", "psi_deriv")
    names = [f"{norm}().{m}" for norm in _NORMS for m in methods]
    at = "np.array([0.3, -0.7, 1.7, -2.6, 5.2])"
    return {f"robust.norms.{n}": at for n in names if n not in _LEFT_OUT}


CALLS: dict[str, dict[str, str]] = {
    "statsmodels": {
        **_links(),
        **_norms(),
        "genmod.families.varfuncs.Binomial().__call__": _P,
        "genmod.families.varfuncs.Binomial().deriv": _P,
        "genmod.families.varfuncs.NegativeBinomial().__call__": _P,
        "genmod.families.varfuncs.Power().__call__": _P,
        "distributions.edgeworth.cumulant_from_moments": "[1.0, 2.5, 4.0], 3",
        "regression.linear_model.burg": "np.array([1.0, 2.0, 0.5, 3.0, 1.2, 0.8]), 2",
        "robust.scale.iqr": "np.array([1.0, 2.0, 0.5, 3.0])",
        "stats.gof.chisquare": "np.array([12.0, 25.0, 21.0])",
        "stats.gof.chisquare_effectsize": "np.array([0.2, 0.3, 0.5]), np.array([0.25, 0.35, 0.4])",
        "stats.meta_analysis.effectsize_smd": (
            "np.array([1.0, 2.0]), np.array([0.5, 0.7]), np.array([20, 30]), "
            "np.array([1.3, 1.4]), np.array([0.4, 0.9]), np.array([25, 22])"
        ),
        "stats.multivariate.test_mvmean": (
            "np.array([[1.0, 2.0], [1.5, 2.2], [0.3, 1.8], [2.0, 2.9]])"
        ),
        "stats.proportion.proportion_confint": "12.0, 50.0",
        "stats.proportion.proportion_effectsize": "0.5, 0.4",
        "stats.proportion.std_prop": "0.3, 50",
        "stats.sandwich_covariance.S_white_simple": "np.array([[1.0, 2.0], [0.5, 1.0]])",
        "stats.stattools.medcouple": "np.array([1.0, 2.0, 0.5, 3.0])",
        "stats.stattools.robust_kurtosis": "np.array([1.0, 2.0, 0.5, 3.0, 7.0])",
        "stats.stattools.robust_skewness": "np.array([1.0, 2.0, 0.5, 3.0, 7.0])",
        "stats.weightstats.ttest_ind": "np.array([1.0, 2.0, 0.5, 3.0]), np.array([2.0, 1.4, 3.5])",
        "stats.weightstats.zconfint": "np.array([1.0, 2.0, 0.5, 3.0])",
        "stats.weightstats.ztost": "np.array([1.0, 2.0, 0.5, 3.0]), 0.5, 2.5",
        "tools.eval_measures.aicc": "-12.3, 30, 3",
        "tools.eval_measures.hqic": "-12.3, 30, 3",
        "tools.eval_measures.aic_sigma": "1.3, 30, 3",
        "tools.eval_measures.bic_sigma": "1.3, 30, 3",
        "tools.eval_measures.hqic_sigma": "1.3, 30, 3",
        "tools.eval_measures.bias": _PAIR,
        "tools.eval_measures.maxabs": _PAIR,
        "tools.eval_measures.medianabs": _PAIR,
        "tools.eval_measures.medianbias": _PAIR,
        "tsa.tsatools.lagmat2ds": "np.array([1.0, 2.0, 0.5, 3.0]), 1",
    },
    "hydroeval": {
        f"objective_functions.{name}": _RUNOFF
        for name in (
            "nse",
            "kge",
            "kgeprime",
            "kgenp",
            "rmse",
            "mare",
            "pbias",
            "nse_c2m",
            "kge_c2m",
            "kgeprime_c2m",
            "kgenp_c2m",
        )
    },
    "skfuzzy": {
        "membership.dsigmf": f"{_X}, 2.0, 1.5, 6.0, 2.5",
        "membership.gaussmf": f"{_X}, 4.0, 1.3",
        "membership.gauss2mf": f"{_X}, 3.0, 1.1, 6.0, 1.4",
        "membership.gbellmf": f"{_X}, 2.0, 1.7, 5.0",
        "membership.psigmf": f"{_X}, 2.0, 1.5, 6.0, -2.5",
        "membership.sigmf": f"{_X}, 4.0, 1.2",
        "membership.smf": f"{_X}, 2.0, 8.0",
        "membership.zmf": f"{_X}, 2.0, 8.0",
        "membership.pimf": f"{_X}, 1.0, 3.0, 6.0, 9.0",
        "membership.trapmf": f"{_X}, [1.0, 3.0, 6.0, 9.0]",
        "membership.trimf": f"{_X}, [1.0, 4.0, 9.0]",
        "membership.piecemf": f"{_X}, [1.0, 4.0, 9.0]",
        "fuzzymath.fuzzy_and": _SETS,
        "fuzzymath.fuzzy_or": _SETS,
        "fuzzymath.fuzzy_add": _SETS,
        "fuzzymath.fuzzy_not": "np.array([0.2, 0.7, 0.5])",
        "fuzzymath.cartadd": _GRADES,
        "fuzzymath.cartprod": _GRADES,
        "fuzzymath.classic_relation": _GRADES,
        "fuzzymath.contrast": "np.array([0.2, 0.7, 0.5]), 0.3, 0.4",
        "fuzzymath.inner_product": _GRADES,
        "fuzzymath.outer_product": _GRADES,
        "fuzzymath.maxmin_composition": _RELATIONS,
        "fuzzymath.maxprod_composition": _RELATIONS,
        "fuzzymath.relation_min": _GRADES,
        "fuzzymath.relation_product": _GRADES,
        "fuzzymath.sigmoid": "np.array([0.2, 0.7]), 2.5, 0.4",
        "fuzzymath.interp_membership": "np.array([1.0, 2.0, 3.0]), np.array([0.2, 0.7, 0.5]), 1.7",
        "fuzzymath.partial_dmf": "1.3, 'gaussmf', {'mean': 1.0, 'sigma': 0.5}, 'mean'",
        "fuzzymath.fuzzy_compare": "np.array([[1.0, 0.7], [0.4, 1.0]])",
        "fuzzymath.fuzzy_similarity": _GRADES,
        "fuzzymath.modus_ponens": f"{_GRADES}, np.array([0.25, 0.7])",
        "defuzz": f"{_SET}, 'centroid'",
        "defuzzify.centroid": _SET,
        "defuzzify.dcentroid": f"{_SET}, 2.2",
        "defuzzify.lambda_cut_boundaries": f"{_SET}, 0.4",
    },
    "nashpy": {
        "learning.replicator_dynamics.get_derivative_of_fitness": (
            f"np.array([0.2, 0.3, 0.5]), 0.0, {_GAME}, np.eye(3)"
        ),
        "learning.replicator_dynamics.get_derivative_of_asymmetric_fitness": (
            f"np.array([0.2, 0.8, 0.6, 0.4]), 0.0, {_GAMES}"
        ),
        "learning.replicator_dynamics.replicator_dynamics": (
            f"{_GAME}, np.array([0.2, 0.3, 0.5]), np.linspace(0.0, 2.0, 4)"
        ),
        "learning.replicator_dynamics.asymmetric_replicator_dynamics": (
            f"{_GAMES}, np.array([0.2, 0.8]), np.array([0.6, 0.4]), np.linspace(0.0, 2.0, 4)"
        ),
        "learning.imitation_dynamics.payoff": (
            "np.array([0.2, 0.8]), np.array([0.6, 0.4]), np.array([[0.0, 1.0], [1.5, 0.2]])"
        ),
        "learning.regret_minimization.compute_regrets": (
            "np.array([0.2, 0.8]), np.array([0.6, 0.4])"
        ),
    },
    "peakutils": {
        "baseline.baseline": f"{_PEAKS}, 2",
        "baseline.envelope": f"{_PEAKS}, 2",
        "peak.centroid": "np.array([1.0, 2.0, 3.0]), np.array([0.5, 2.0, 1.0])",
        "peak.centroid2": "np.array([0.5, 2.0, 1.0]), np.array([1.0, 2.0, 3.0])",
        "peak.gaussian": "np.array([1.0, 2.0, 3.0]), 2.0, 2.1, 0.7",
        "peak.gaussian_fit": (
            "np.linspace(0.0, 4.0, 9), 2.0 * np.exp(-(np.linspace(0.0, 4.0, 9) - 2.1) ** 2)"
        ),
        "prepare.scale": "np.array([1.0, 2.5, 0.3]), (0.2, 1.1)",
    },
}

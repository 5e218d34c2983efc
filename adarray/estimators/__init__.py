"""Gradients without a backward pass: estimates from noise, losses and forward derivatives."""

from adarray.estimators.calls import Estimate
from adarray.estimators.decisions import Reinforce, reinforce
from adarray.estimators.diagnostics import Diagnosis, LeafDiagnosis, diagnose
from adarray.estimators.directions import Directions
from adarray.estimators.likelihood import LikelihoodRatio, likelihood_ratio
from adarray.estimators.lowrank import LowRankSum
from adarray.estimators.perturbation import (
    EvolutionStrategies,
    ForwardGradient,
    ParameterEstimator,
    evolution_strategies,
    forward_gradient,
    spsa,
)
from adarray.estimators.sites import noise_site

__all__ = [
    "Diagnosis",
    "Directions",
    "Estimate",
    "EvolutionStrategies",
    "ForwardGradient",
    "LeafDiagnosis",
    "LikelihoodRatio",
    "LowRankSum",
    "ParameterEstimator",
    "Reinforce",
    "diagnose",
    "evolution_strategies",
    "forward_gradient",
    "likelihood_ratio",
    "noise_site",
    "reinforce",
    "spsa",
]

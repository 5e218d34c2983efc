"""Gradients without a backward pass: estimates from noise, losses and forward derivatives."""

from adarray.estimators.calls import Estimate
from adarray.estimators.directions import Directions
from adarray.estimators.likelihood import LikelihoodRatio, likelihood_ratio
from adarray.estimators.sites import noise_site

__all__ = ["Directions", "Estimate", "LikelihoodRatio", "likelihood_ratio", "noise_site"]

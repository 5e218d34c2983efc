"""How well a trained perceptron withstands attacks by the fast gradient sign method."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import adarray
from asv_bench.likelihood_ratio.problems import one_hot

if TYPE_CHECKING:
    from asv_bench.likelihood_ratio.training import Training

STEPS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3)  # in units of the range of a pixel


def attacked(run: Training) -> dict[str, float]:
    """Return percentages of right answers to test images that were changed by `attack`.

    Every network is attacked by the exact gradient of its own loss, however it was trained.
    """
    (inputs, labels) = run.parts["test"]
    x, targets = inputs[0][0], run.put(one_hot(labels, 10))
    losses = run.problem.losses

    def total(x: Any, params: Any, targets: Any) -> Any:
        return np.sum(losses(params, x, targets))

    slope = adarray.grad(total)(x, run.params, targets)
    return {f"{step:g}": run.percentage([(attack(x, slope, step),)], labels) for step in STEPS}


def attack(x: Any, slope: Any, step: float) -> Any:
    """Return images whose pixels, from 0 to 1, have moved by `step` to where the loss is larger.

    References
    ----------
    .. [1] I. J. Goodfellow, J. Shlens, C. Szegedy, "Explaining and harnessing adversarial
       examples", ICLR 2015, section 4.
    """
    return np.clip(x + np.float32(step) * np.sign(slope), 0.0, 1.0)

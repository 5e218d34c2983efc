"""Derivatives through random decisions: the score function, also called likelihood ratio."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from adarray.arrays.adarray import stop_gradient
from adarray.base.errors import ShapeError
from adarray.ops.creation import asarray


def score_function(
    cost: Any, log_prob: Any, baseline: float | np.ndarray | Literal["others"] = 0.0
) -> Any:
    r"""Return costs that include the derivative of the probability of random decisions.

    A discrete decision has no derivative, but its probability has one. The derivatives of the mean
    of the result over many draws are unbiased estimates of those of the expected cost, to any
    order.

    Parameters
    ----------
    cost : array or number, shape (...)
        The cost of each draw; may itself be differentiable.
    log_prob : array or number, broadcasts to the shape of `cost`
        Logarithm of the probability, or density, of all decisions (or noise) on which the cost
        depends; finite. For several decisions, the sum of their logarithms.
    baseline : number, array or "others"
        Subtracted from the cost that weights the score, which reduces the variance of the estimate.
        It must not depend on the draw itself. ``"others"`` uses the mean cost of the other draws
        along the first axis. It is not differentiated.

    Returns
    -------
    ADArray or ndarray, shape (...)
        The values of `cost`.

    Raises
    ------
    ShapeError
        If `log_prob` or `baseline` does not broadcast to the shape of `cost`, or if there is no
        other draw for ``baseline="others"``.

    Notes
    -----
    The gradient is :math:`\nabla c + (c - b)\,\nabla \log p` [1]_. Derivatives of all orders are
    those of :math:`c + (p / p_0 - 1)(c - b)`, where :math:`p_0` is the value of p [2]_.

    References
    ----------
    .. [1] R. J. Williams, "Simple statistical gradient-following algorithms for connectionist
       reinforcement learning", Machine Learning 8 (1992), 229-256.
    .. [2] J. Foerster et al., "DiCE: The infinitely differentiable Monte Carlo estimator",
       ICML 2018.

    Examples
    --------
    The expected number of heads in two throws, of which each has the probability p:

    >>> import numpy as np, adarray
    >>> heads = np.random.default_rng(0).random((20000, 2)) < 0.3
    >>> def expected(p):
    ...     log_prob = np.sum(np.where(heads, np.log(p), np.log(1.0 - p)), axis=1)
    ...     return np.mean(adarray.score_function(np.sum(heads, axis=1), log_prob, "others"))
    >>> round(float(expected(0.3)), 2), round(float(adarray.grad(expected)(0.3)), 1)
    (0.59, 2.0)
    """
    cost, score = asarray(cost), asarray(log_prob)
    if isinstance(baseline, str):
        if baseline != "others":
            raise ValueError(f"score_function: baseline is {baseline!r}; pass numbers or 'others'")
        if cost.ndim == 0 or len(cost) < 2:
            raise ShapeError(
                f"score_function: baseline='others' needs two draws, and the cost has shape "
                f"{cost.shape}; stack draws along the first axis"
            )
        baseline = (np.sum(cost, axis=0) - cost) / (len(cost) - 1)
    level = stop_gradient(asarray(baseline))
    for name, shape in (("log_prob", score.shape), ("baseline", level.shape)):
        try:
            fits = np.broadcast_shapes(shape, cost.shape) == cost.shape
        except ValueError:
            fits = False
        if not fits:
            raise ShapeError(
                f"score_function: {name} has shape {shape} and the cost {cost.shape}; sum it over "
                "decisions, so that one number is left for each cost"
            )
    ratio = np.exp(score - stop_gradient(score))  # 1, with the derivatives of p
    return cost + (ratio - 1.0) * (cost - level)

"""Gradients through discrete random decisions, with the interface of the other estimators.

References
----------
- R. J. Williams, "Simple statistical gradient-following algorithms for connectionist reinforcement
  learning", Machine Learning 8 (1992), 229-256.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from adarray.estimators.calls import Estimate
from adarray.transforms.decisions import score_function
from adarray.transforms.gradients import value_and_grad
from adarray.transforms.modes import shape_of


class Reinforce:
    """An estimator of gradients through decisions; see `reinforce`."""

    def __init__(
        self,
        f: Callable[..., Any],
        argnums: int | Sequence[int],
        copies: int,
        baseline: float | np.ndarray | Literal["others"],
    ) -> None:
        if not callable(f):
            raise TypeError(f"reinforce: f is of type {type(f).__name__}; pass a function")
        least = 2 if isinstance(baseline, str) else 1
        if copies < least:
            raise ValueError(f"reinforce: copies={copies}; pass at least {least}")
        self.f = f
        self.argnums = argnums
        self.copies = copies
        self.baseline = baseline

    def __repr__(self) -> str:
        return f"<reinforce of {self.f!r}, {self.copies} copies>"

    def __call__(self, *args: Any, rng: Any = None) -> Estimate:
        """Return the estimate, from new decisions."""
        rng = np.random.default_rng(rng)

        def mean(*operands: Any) -> Any:
            costs, scores = [], []
            for _ in range(self.copies):
                cost, log_prob = self.f(*operands, rng=rng)
                costs.append(cost)
                scores.append(log_prob)
            cost = np.stack(costs)
            if np.ndim(cost) > 1 or shape_of(scores[0]) != ():
                raise ValueError(
                    f"reinforce: f returned a cost of shape {shape_of(costs[0])} and a log_prob of "
                    f"shape {shape_of(scores[0])}; return two numbers, for all decisions together"
                )
            return np.mean(score_function(cost, np.stack(scores), self.baseline)), cost

        (value, costs), gradient = value_and_grad(mean, self.argnums, has_aux=True)(*args)
        return Estimate(value, gradient, None, costs)


def reinforce(
    f: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    *,
    copies: int = 32,
    baseline: float | np.ndarray | Literal["others"] = "others",
) -> Reinforce:
    r"""Return the estimator of the gradient of an expected cost through random decisions.

    Parameters
    ----------
    f : callable
        ``f(*args, rng=rng)`` decides with the generator `rng`, and returns the pair of the cost
        and the logarithm of the probability of all decisions, two numbers.
    argnums : int or sequence of int
        Positions of the parameters; each an array or a nest.
    copies : int
        How often `f` decides for each estimate.
    baseline : number, array or "others"
        As of `adarray.score_function`.

    Returns
    -------
    Reinforce
        ``est(*args, rng=...)`` returns an `Estimate`: the mean cost, the estimate, and as `losses`
        the costs of all copies.

    Raises
    ------
    ValueError
        If there are too few copies, or `f` does not return two numbers.

    See Also
    --------
    adarray.score_function : What it is made of; for functions that decide many times at once.

    References
    ----------
    R. J. Williams, "Simple statistical gradient-following algorithms for connectionist
    reinforcement learning", Machine Learning 8 (1992), 229-256.

    Examples
    --------
    >>> import numpy as np
    >>> from adarray.estimators import reinforce
    >>> def bet(p, rng):
    ...     heads = rng.random() < p
    ...     return 3.0 * heads, np.log(p if heads else 1.0 - p)
    >>> round(float(reinforce(bet, copies=2000)(0.4, rng=0).gradient), 0)
    3.0
    """
    return Reinforce(f, argnums, copies, baseline)

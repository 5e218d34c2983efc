"""Estimators that move the parameters: SPSA, evolution strategies, forward gradients.

References
----------
- J. C. Spall, "Multivariate stochastic approximation using a simultaneous perturbation gradient
  approximation", IEEE Trans. Automat. Control 37 (1992), 332-341.
- T. Salimans et al., "Evolution strategies as a scalable alternative to reinforcement learning",
  arXiv:1703.03864, 2017.
- A. G. Baydin et al., "Gradients without backpropagation", arXiv:2202.08587, 2022.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from adarray.base.errors import NotDifferentiableError
from adarray.core.protocol import traced
from adarray.estimators.calls import Estimate
from adarray.estimators.credit import check_finite, check_losses
from adarray.estimators.devices import of_devices
from adarray.estimators.directions import generator, normal, signs
from adarray.estimators.lowrank import LowRankSum
from adarray.transforms.batch import vmap
from adarray.transforms.calls import dtype_of
from adarray.transforms.modes import jvp, shape_of
from adarray.transforms.tree import flatten
from adarray.transforms.variables import Variables

Reduce = Literal["mean", "sum"]
Fitness = Literal["raw", "standardized", "ranks", "sign"]


class NoiseFactors(NamedTuple):
    """Moves of a parameter in all copies: ``left @ right.T`` of each, or `left` itself.

    Attributes
    ----------
    left : array, shape (copies, ...) or (copies, n, rank)
    right : array, shape (copies, m, rank), or None
    """

    left: Any
    right: Any


class ParameterEstimator:
    """What the estimators that move parameters share; see `spsa`."""

    name = "spsa"

    def __init__(
        self,
        f: Callable[..., Any],
        argnums: int | Sequence[int],
        sigma: Any,
        copies: int,
        antithetic: bool,
        directions: Literal["gaussian", "rademacher"],
        rank: int | None,
        fitness: Fitness,
        reduce: Reduce,
        copies_per_block: int | None,
        vectorize: bool,
    ) -> None:
        if not callable(f):
            raise TypeError(f"{self.name}: f is of type {type(f).__name__}; pass a function")
        if copies < 1 or (antithetic and copies % 2):
            raise ValueError(
                f"{self.name}: copies={copies}; pass at least 1"
                + (", and an even number, since they come in pairs" if antithetic else "")
            )
        for option, value, among in (
            ("directions", directions, ("gaussian", "rademacher")),
            ("fitness", fitness, ("raw", "standardized", "ranks", "sign")),
            ("reduce", reduce, ("mean", "sum")),
        ):
            if value not in among:
                raise ValueError(f"{self.name}: {option}={value!r}; pass one of {among}")
        if not sigma > 0:
            raise ValueError(f"{self.name}: sigma={sigma}; it must be positive")
        if rank is not None and rank < 1:
            raise ValueError(f"{self.name}: rank={rank}; pass a positive number, or None")
        self.f = f
        self.argnums = (argnums,) if isinstance(argnums, int) else tuple(argnums)
        self.single = isinstance(argnums, int)
        self.sigma = sigma
        self.copies = copies
        self.antithetic = antithetic
        self.directions = directions
        self.rank = rank
        self.fitness = fitness
        self.reduce = reduce
        self.per_block = copies_per_block
        self.vectorize = vectorize

    def __repr__(self) -> str:
        return f"<{self.name} of {self.f!r}, {self.copies} copies>"

    @property
    def draws(self) -> int:
        """How often directions are drawn: a pair of copies shares them."""
        return self.copies // 2 if self.antithetic else self.copies

    def variables(self, args: tuple[Any, ...]) -> Variables:
        """Return the parameters."""
        return Variables(tuple(args[k] for k in self.argnums))

    def draw(self, *args: Any, rng: Any = None) -> list[NoiseFactors]:
        """Return the directions of one call with these arguments, for `evaluate`."""
        rng = generator(rng, flatten(args)[0])
        some = normal if self.directions == "gaussian" else signs
        factors = []
        for x in self.variables(args).moving:
            shape, dtype = shape_of(x), np.dtype(dtype_of(x))
            if self.rank is None or len(shape) != 2:
                factors.append(NoiseFactors(some(rng, (self.draws, *shape), dtype), None))
                continue
            left, right = (some(rng, (self.draws, n, self.rank), dtype) for n in shape)
            factors.append(NoiseFactors(left / math.sqrt(self.rank), right))
        return factors

    def __call__(self, *args: Any, rng: Any = None, sigma: Any = None) -> Estimate:
        """Return the estimate, from new directions."""
        return self.evaluate(self.draw(*args, rng=rng), *args, sigma=sigma)

    @of_devices
    def evaluate(self, noise: list[NoiseFactors], *args: Any, sigma: Any = None) -> Estimate:
        """Return the estimate from given directions: a pure function of its arguments.

        Raises
        ------
        NotDifferentiableError
            If a derivative is taken of the estimate.
        """
        if traced(list(flatten(args)[0])):
            raise NotDifferentiableError(
                f"{self.name}: a derivative is taken of an estimate, which has none; take the "
                "estimate of the gradient of the function that you differentiate"
            )
        losses = check_losses(self.f(*args))
        check_finite(losses, "without noise")
        value = self.total(losses)
        trees = self.variables(args)
        sums = self.sums(noise, args, trees, value, self.sigma if sigma is None else sigma)
        gradient = trees.gradient(sums)
        return Estimate(value, gradient[0] if self.single else gradient, None, losses)

    def sums(
        self,
        noise: list[NoiseFactors],
        args: tuple[Any, ...],
        trees: Variables,
        value: Any,
        sigma: Any,
    ) -> list[Any]:
        """Return the estimates for all parameters."""
        signs = (1.0, -1.0) if self.antithetic else (1.0,)
        of_signs: list[list[Any]] = [[] for _ in signs]
        for part in self.blocks():
            each = [NoiseFactors(*(None if x is None else x[part] for x in d)) for d in noise]
            for k, sign in enumerate(signs):
                of_signs[k].append(self.of_copies(each, args, trees, sign * sigma))
        totals = [x[0] if len(x) == 1 else np.concatenate(x) for x in of_signs]
        weights = self.weights(totals, value) / (sigma * self.draws)
        return [
            weighted(weights, d, shape_of(x), np.dtype(dtype_of(x)))
            for d, x in zip(noise, trees.moving, strict=True)
        ]

    def blocks(self) -> list[slice]:
        """Return the parts of the copies that are computed at once."""
        pair = 2 if self.antithetic else 1
        most = self.draws if self.per_block is None else max(1, self.per_block // pair)
        return [slice(k, min(k + most, self.draws)) for k in range(0, self.draws, most)]

    def of_copies(
        self, each: list[NoiseFactors], args: tuple[Any, ...], trees: Variables, scale: float
    ) -> Any:
        """Return the summed losses of all copies of a block."""

        def one(parts: list[NoiseFactors]) -> Any:
            moved = [
                x + scale * left if right is None else LowRankSum(x, scale * left, right)
                for x, (left, right) in zip(trees.moving, parts, strict=True)
            ]
            new_args = list(args)
            for k, x in zip(self.argnums, trees.argument(moved), strict=True):
                new_args[k] = x
            return self.total(check_losses(self.f(*new_args)))

        if self.vectorize:
            losses = vmap(one)(each)
        else:
            leaves, rebuild = flatten(each)
            losses = np.stack([one(rebuild([x[k] for x in leaves])) for k in range(len(leaves[0]))])
        check_finite(losses, "with noise")
        return losses

    def total(self, losses: Any) -> Any:
        """Return the sum or mean of the losses of samples."""
        return np.mean(losses) if self.reduce == "mean" else np.sum(losses)

    def weights(self, noisy: list[Any], value: Any) -> Any:
        """Return by what each direction is weighted."""
        if self.fitness in ("standardized", "ranks"):
            both = np.concatenate(noisy)
            if self.fitness == "ranks":
                order = np.argsort(np.argsort(both))
                both = (order / max(1, len(both) - 1) - 0.5).astype(both.dtype)
            else:
                both = (both - np.mean(both)) / (np.std(both) + np.finfo(both.dtype).tiny)
            noisy = [both[k * self.draws : (k + 1) * self.draws] for k in range(len(noisy))]
        elif len(noisy) == 1:
            noisy = [noisy[0] - value]
        odd = (noisy[0] - noisy[1]) * 0.5 if len(noisy) == 2 else noisy[0]
        return np.sign(odd) if self.fitness == "sign" else odd


def weighted(weights: Any, d: NoiseFactors, shape: tuple[int, ...], dtype: Any) -> Any:
    """Return the weighted sum of the directions of all copies."""
    weights = weights.astype(dtype)
    if d.right is None:
        flat = np.reshape(d.left, (weights.shape[0], -1))
        return np.reshape(weights @ flat, shape)
    left = np.reshape(np.moveaxis(d.left * weights[:, None, None], 0, 1), (shape[0], -1))
    right = np.reshape(np.moveaxis(d.right, 0, 1), (shape[1], -1))
    return left @ right.T


class EvolutionStrategies(ParameterEstimator):
    """See `evolution_strategies`."""

    name = "evolution_strategies"


class ForwardGradient(ParameterEstimator):
    """See `forward_gradient`."""

    name = "forward_gradient"

    def sums(
        self,
        noise: list[NoiseFactors],
        args: tuple[Any, ...],
        trees: Variables,
        value: Any,  # noqa: ARG002
        sigma: Any,  # noqa: ARG002
    ) -> list[Any]:
        """Return the estimates for all parameters: slopes along directions, times these."""

        def along(parts: list[Any]) -> Any:
            def f(*moving: Any) -> Any:
                new_args = list(args)
                for k, x in zip(self.argnums, trees.argument(list(moving)), strict=True):
                    new_args[k] = x
                return self.total(check_losses(self.f(*new_args)))

            return jvp(f, tuple(trees.moving), tuple(parts))[1]

        parts = []
        for part in self.blocks():
            each = [d.left[part] for d in noise]
            if self.vectorize:
                parts.append(vmap(along)(each))
            else:
                parts.append(np.stack([along([x[k] for x in each]) for k in range(len(each[0]))]))
        slopes = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return [
            weighted(slopes / self.draws, d, shape_of(x), np.dtype(dtype_of(x)))
            for d, x in zip(noise, trees.moving, strict=True)
        ]


def spsa(
    f: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    *,
    sigma: float = 0.01,
    copies: int = 2,
    reduce: Reduce = "mean",
    copies_per_block: int | None = None,
    vectorize: bool = True,
) -> ParameterEstimator:
    r"""Return the estimator of simultaneous perturbation (SPSA): random signs on all parameters.

    Parameters
    ----------
    f : callable
        ``f(*args)`` returns the losses of samples, of shape (samples,), or one number. It is only
        evaluated: with ``vectorize=False`` it may be a black box, such as a simulator.
    argnums : int or sequence of int
        Positions of the parameters; each an array or a nest.
    sigma : float
        By how much each parameter is moved.
    copies : int
        Evaluations for each estimate, in pairs.
    reduce : {"mean", "sum"}
        Whether the gradient is that of the mean of the losses or of their sum.
    copies_per_block : int, optional
        How many copies are computed at once; all, if not given.
    vectorize : bool
        Whether copies are computed at once, by `adarray.vmap`; else one after the other, on plain
        arrays.

    Returns
    -------
    ParameterEstimator
        Called as `LikelihoodRatio` is, and returns an `Estimate`.

    Raises
    ------
    ValueError
        For an odd number of copies, an unknown option, or a scale that is not positive.
    FloatingPointError
        If a loss is not finite.

    Notes
    -----
    The estimate is the mean of :math:`(L_+ - L_-)\Delta / 2\sigma` over random signs
    :math:`\Delta`, which are their own inverses. Its bias is of the order :math:`\sigma^2`.

    References
    ----------
    J. C. Spall, "Multivariate stochastic approximation using a simultaneous perturbation gradient
    approximation", IEEE Transactions on Automatic Control 37 (1992).

    Examples
    --------
    >>> import numpy as np
    >>> from adarray.estimators import spsa
    >>> est = spsa(lambda x: np.sum(x**2), copies=2000)
    >>> np.round(est(np.array([1.0, 2.0]), rng=0).gradient, 0)
    array([2., 4.])
    """
    return ParameterEstimator(
        f, argnums, sigma, copies, True, "rademacher", None, "raw", reduce, copies_per_block,
        vectorize,
    )  # fmt: skip


def evolution_strategies(
    f: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    *,
    sigma: float = 0.1,
    copies: int = 32,
    antithetic: bool = True,
    rank: int | None = None,
    fitness: Fitness = "raw",
    reduce: Reduce = "mean",
    copies_per_block: int | None = None,
    vectorize: bool = True,
) -> EvolutionStrategies:
    r"""Return the estimator of evolution strategies: normal noise on all parameters.

    Parameters
    ----------
    f : callable
        As of `spsa`.
    argnums : int or sequence of int
        Positions of the parameters; each an array or a nest.
    sigma : float
        Scale of the noise.
    copies : int
        Evaluations for each estimate.
    antithetic : bool
        Whether copies come in pairs, of which one gets minus the noise of the other.
    rank : int, optional
        Matrices get noise of this rank, the product of two thin matrices; `f` gets a `LowRankSum`
        in the place of each, and products with it never form it.
    fitness : {"raw", "standardized", "ranks", "sign"}
        What directions are weighted with: losses, losses of mean 0 and variance 1, their ranks
        from -0.5 to 0.5, or signs of the differences of pairs. Only the first gives an estimate
        of the gradient; the others give directions that do not depend on the scale of the loss.
    reduce : {"mean", "sum"}
        Whether the gradient is that of the mean of the losses or of their sum.
    copies_per_block : int, optional
        How many copies are computed at once; all, if not given.
    vectorize : bool
        As of `spsa`.

    Returns
    -------
    EvolutionStrategies
        Called as `LikelihoodRatio` is, and returns an `Estimate`.

    Raises
    ------
    ValueError
        For an odd number of copies in pairs, an unknown option, or a scale that is not positive.
    FloatingPointError
        If a loss is not finite.

    Notes
    -----
    With pairs the mean of :math:`(L_+ - L_-)\varepsilon / 2\sigma`; without, the loss at the
    parameters themselves is subtracted. Noise of low rank is uncorrelated and not independent:
    the estimate has a bias of the order :math:`\sigma^2`.

    References
    ----------
    .. [1] T. Salimans et al., "Evolution strategies as a scalable alternative to reinforcement
       learning", arXiv:1703.03864.
    .. [2] B. Sarkar et al., "Evolution strategies at the hyperscale", arXiv:2511.16652.

    Examples
    --------
    >>> import numpy as np
    >>> from adarray.estimators import evolution_strategies
    >>> est = evolution_strategies(lambda w, x: (x @ w)[:, 0] ** 2, copies=20000, rank=1)
    >>> w, x = np.array([[1.0], [0.5]]), np.eye(2)
    >>> np.round(est(w, x, rng=0).gradient, 1)
    array([[1. ],
           [0.5]])
    """
    return EvolutionStrategies(
        f, argnums, sigma, copies, antithetic, "gaussian", rank, fitness, reduce,
        copies_per_block, vectorize,
    )  # fmt: skip


def forward_gradient(
    f: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    *,
    copies: int = 1,
    directions: Literal["gaussian", "rademacher"] = "gaussian",
    reduce: Reduce = "mean",
    copies_per_block: int | None = None,
    vectorize: bool = True,
) -> ForwardGradient:
    r"""Return the estimator of forward gradients: slopes along random directions, times these.

    Parameters
    ----------
    f : callable
        ``f(*args)`` returns the losses of samples, of shape (samples,), or one number;
        differentiable in forward mode.
    argnums : int or sequence of int
        Positions of the parameters; each an array or a nest.
    copies : int
        Directions for each estimate.
    directions : {"gaussian", "rademacher"}
    reduce : {"mean", "sum"}
        Whether the gradient is that of the mean of the losses or of their sum.
    copies_per_block : int, optional
        How many directions are taken at once; all, if not given.
    vectorize : bool
        Whether directions are taken at once, by `adarray.vmap`.

    Returns
    -------
    ForwardGradient
        Called as `LikelihoodRatio` is, and returns an `Estimate`.

    Raises
    ------
    ValueError
        For an unknown option.

    Notes
    -----
    The mean of :math:`(\nabla L \cdot u)\,u` over directions u of uncorrelated components of
    variance 1 is the gradient, without bias.

    References
    ----------
    A. G. Baydin et al., "Gradients without backpropagation", arXiv:2202.08587.

    Examples
    --------
    >>> import numpy as np
    >>> from adarray.estimators import forward_gradient
    >>> est = forward_gradient(lambda x: np.sum(x**2), copies=2000)
    >>> np.round(est(np.array([1.0, 2.0]), rng=0).gradient, 0)
    array([2., 4.])
    """
    return ForwardGradient(
        f, argnums, 1.0, copies, False, directions, None, "raw", reduce, copies_per_block,
        vectorize,
    )  # fmt: skip

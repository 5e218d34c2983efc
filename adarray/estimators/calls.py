"""What all ways to compute an estimate share: scales, weights, credit and the result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from adarray.base.errors import ShapeError
from adarray.estimators.credit import Credit, credited
from adarray.estimators.devices import adopted
from adarray.estimators.directions import Place
from adarray.transforms.modes import shape_of

if TYPE_CHECKING:
    from adarray.estimators.likelihood import LikelihoodRatio


class Estimate(NamedTuple):
    """The result of an estimator.

    Attributes
    ----------
    value : number
        The loss without noise, summed or averaged over samples.
    gradient : nest of arrays
        The estimate, of the structure of the differentiated argument; a tuple for several.
    sigma : dict of str to array, or None
        With ``learn_sigma=True`` the estimated derivative by the scale of each site.
    losses : array, shape (samples,) or ()
        Losses without noise.
    """

    value: Any
    gradient: Any
    sigma: Any
    losses: Any


class SiteLayout(NamedTuple):
    """The active sites of a function for arguments of some shapes.

    Attributes
    ----------
    places : dict of str to list of (shape, dtype)
        Each time that a site is met.
    credit : dict of str to Credit
        Which losses the noise of a row is held responsible for.
    """

    places: dict[str, list[Place]]
    credit: dict[str, Credit]


class EstimatorCall:
    """One estimate: arguments, noise and scales.

    Parameters
    ----------
    how : LikelihoodRatio
    noise : any
        What `LikelihoodRatio.draw` has returned.
    args : tuple
    sigma : float, array, or dict of them
    """

    def __init__(self, how: LikelihoodRatio, noise: Any, args: tuple[Any, ...], sigma: Any) -> None:
        self.how = how
        self.noise = noise
        self.args = args
        self.moving = tuple(args[k] for k in how.argnums)
        self.places, self.credit = how.layout(*args)
        self.scales = {name: scale_of(sigma, name) for name in self.places}
        self.kind = how.directions

    def with_moving(self, moving: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the arguments with others in the place of those that are differentiated."""
        new_args = list(self.args)
        for k, x in zip(self.how.argnums, moving, strict=True):
            new_args[k] = x
        return tuple(new_args)

    @property
    def signs(self) -> tuple[float, ...]:
        """Return the signs with which copies get the noise that was drawn."""
        return (1.0, -1.0) if self.how.antithetic else (1.0,)

    def level(self, noisy: list[Any], losses: Any) -> Any:
        """Return the baseline: independent of the noise that it is subtracted for."""
        kind = self.how.baseline
        if kind is None:
            return 0.0
        if callable(kind):
            return kind(*self.args)
        if kind == "clean":
            return losses
        total = sum(noisy) / len(noisy)  # of pairs
        count = shape_of(total)[0]
        mean = np.sum(total, axis=0)
        if kind == "mean":
            return mean / count
        return (mean - total) / (count - 1)

    def weights(self, noisy: list[Any], losses: Any) -> Any:
        """Return the weights of the scores, one for each copy and loss."""
        if len(noisy) == 2:
            return (noisy[0] - noisy[1]) * 0.5
        return noisy[0] - self.level(noisy, losses)

    def even(self, noisy: list[Any], losses: Any) -> Any:
        """Return the weights of the derivative by the scale."""
        return sum(noisy) / len(noisy) - self.level(noisy, losses)

    def at(self, name: str, weights: Any, shape: tuple[int, ...]) -> Any:
        """Return the weights of a place, of shape (copies, rows), for the sum or mean of losses."""
        own = credited(name, weights, shape, self.credit[name])
        if self.how.reduce == "mean" and weights.ndim == 2:
            own = own / weights.shape[1]
        return own

    def seed(self, losses: Any) -> Any:
        """Return the cotangent of the losses."""
        shape = shape_of(losses)
        count = shape[0] if shape and self.how.reduce == "mean" else 1
        return np.full(shape, 1.0 / count, losses.dtype)[()]

    def scale(self, name: str, like: Any) -> Any:
        """Return the scale of a site in the precision of an array."""
        scale = self.scales[name]
        return scale if isinstance(scale, (int, float)) else scale.astype(like.dtype)

    def moved(self, v: Any, eps: Any, name: str, sign: float) -> Any:
        """Return a value of a site with noise."""
        if shape_of(eps) != shape_of(v):
            raise ShapeError(
                f"noise_site {name!r}: the value has shape {shape_of(v)}, and {shape_of(eps)} in "
                "the first run; a function may not choose shapes by values"
            )
        eps = adopted(eps)  # beside a scale that is an ADArray
        return v + sign * (eps * self.scale(name, eps))

    def slope(self, slopes: Any, name: str, weights: Any, eps: Any, share: float) -> None:
        """Add to the derivative by the scale of a site.

        Parameters
        ----------
        slopes : dict of str to array
        name : str
        weights, eps : array, shape (copies, ...)
        share : float
            Of these copies among all.
        """
        scale = self.scales[name]
        slope = np.mean(weights * self.kind.scale_score(eps), axis=0) * share
        slope = _folded(slope, shape_of(scale)) / scale
        slopes[name] = slope if name not in slopes else slopes[name] + slope

    def result(self, losses: Any, gradient: Any, slopes: Any) -> Estimate:
        """Return the estimate."""
        value = np.mean(losses) if self.how.reduce == "mean" else np.sum(losses)
        return Estimate(
            value,
            gradient[0] if self.how.single else gradient,
            slopes if self.how.learn_sigma else None,
            losses,
        )


def _folded(x: Any, shape: tuple[int, ...]) -> Any:
    """Return the sum over the axes along which an array of this shape was broadcast."""
    lead = x.ndim - len(shape)
    x = np.sum(x, axis=tuple(range(lead)))
    axes = tuple(k for k, n in enumerate(shape) if n == 1 and x.shape[k] != 1)
    return np.sum(x, axis=axes, keepdims=True) if axes else x


def scale_of(sigma: Any, name: str) -> Any:
    """Return the scale of a site.

    Raises
    ------
    ValueError
        If there is none, or it is not positive.
    """
    if isinstance(sigma, dict):
        if name not in sigma:
            raise ValueError(
                f"likelihood_ratio: sigma has no scale for site {name!r}; it has "
                f"{', '.join(map(repr, sigma)) or 'none'}"
            )
        sigma = sigma[name]
    if isinstance(sigma, (int, float, np.ndarray, np.generic)):
        if not np.all(np.asarray(sigma) > 0):
            raise ValueError(
                f"likelihood_ratio: sigma of site {name!r} is {sigma}; it must be positive"
            )
        return float(sigma) if isinstance(sigma, (int, np.floating)) else sigma
    return sigma

"""Noise: how it is drawn for all copies of a site, and the estimate that it gives.

The noise of one place is kept in parts. Those of `each` have the copies along their first axis,
those of `shared` are the same for all copies: rows of a Hadamard matrix and the signs of samples
take less memory, and are summed by a matrix product, where the noise itself is their product.

References
----------
- I. M. Sobol', "On the distribution of points in a cube and the approximate evaluation of
  integrals", USSR Comput. Math. Math. Phys. 7 (1967), 86-112.
- A. B. Owen, "Scrambled net variance for integrals of smooth functions", Ann. Statist. 25 (1997),
  1541-1562.
- S. Mohamed, M. Rosca, M. Figurnov, A. Mnih, "Monte Carlo gradient estimation in machine learning",
  J. Mach. Learn. Res. 21 (2020), 132.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from adarray.base.errors import ShapeError
from adarray.device import is_device
from adarray.estimators.hadamard import elements, order_for

Place = tuple[tuple[int, ...], Any]  # shape and dtype


class Drawn(NamedTuple):
    """Noise of unit scale for all copies of one place."""

    each: tuple[Any, ...]
    shared: tuple[Any, ...]


class Directions:
    """A distribution of noise of unit scale, of one place, for several copies.

    Attributes
    ----------
    name : str
    normal : bool
        Whether the density is known, so that the scale has a derivative.
    """

    name: ClassVar[str]
    has_density: ClassVar[bool] = False

    def draw(self, rng: Any, copies: int, places: Sequence[Place]) -> list[Drawn]:
        """Return the noise of places that get it together; arrays of the library of `rng`."""
        return [self.draw_one(rng, copies, shape, dtype) for shape, dtype in places]

    def draw_one(self, rng: Any, copies: int, shape: tuple[int, ...], dtype: Any) -> Drawn:
        """Return the noise of one place, independent of that of others."""
        raise NotImplementedError

    def noise(self, each: tuple[Any, ...], shared: tuple[Any, ...]) -> Any:
        """Return the noise of one copy."""
        raise NotImplementedError

    def score(self, eps: Any) -> Any:
        """Return the derivative of minus the logarithm of the density, at noise `eps`.

        Without a density: what makes the estimate right where the loss is linear.
        """
        return eps

    def scale_score(self, eps: Any) -> Any:
        """Return the derivative of the logarithm of the density by that of the scale."""
        raise NotImplementedError

    def estimate(self, weights: Any, drawn: Drawn, shape: tuple[int, ...]) -> Any:
        """Return the mean over copies of weights times scores.

        Parameters
        ----------
        weights : array, shape (copies, rows)
            One for all elements of a row of the place.
        drawn : Drawn
        shape : tuple of int
            Of the place.
        """
        score = self.score(drawn.each[0])
        copies, rows = weights.shape
        flat = np.reshape(score, (copies, rows, -1))
        return np.reshape(np.einsum("kr,krn->rn", weights, flat) / copies, shape)


class Gaussian(Directions):
    """Independent normal numbers."""

    name = "gaussian"
    has_density = True

    def draw_one(self, rng: Any, copies: int, shape: tuple[int, ...], dtype: Any) -> Drawn:
        """Return the noise of one place."""
        return Drawn((normal(rng, (copies, *shape), dtype),), ())

    def noise(self, each: tuple[Any, ...], shared: tuple[Any, ...]) -> Any:  # noqa: ARG002
        """Return the noise of one copy."""
        return each[0]

    def scale_score(self, eps: Any) -> Any:
        """Return the derivative of the logarithm of the density by that of the scale."""
        return eps * eps - 1.0


class Laplace(Gaussian):
    """Independent numbers of Laplace's distribution, of scale 1: their score is their sign."""

    name = "laplace"

    def draw_one(self, rng: Any, copies: int, shape: tuple[int, ...], dtype: Any) -> Drawn:
        """Return the noise of one place."""
        u = uniform(rng, (copies, *shape), dtype) - 0.5  # from -0.5 to 0.5
        size = np.maximum(1.0 - 2.0 * np.abs(u), np.finfo(dtype).tiny)
        return Drawn((-np.sign(u) * np.log(size),), ())

    def score(self, eps: Any) -> Any:
        """Return the derivative of minus the logarithm of the density."""
        return np.sign(eps)

    def scale_score(self, eps: Any) -> Any:
        """Return the derivative of the logarithm of the density by that of the scale."""
        return np.abs(eps) - 1.0


class Rademacher(Gaussian):
    """Independent signs."""

    name = "rademacher"
    has_density = False

    def draw_one(self, rng: Any, copies: int, shape: tuple[int, ...], dtype: Any) -> Drawn:
        """Return the noise of one place."""
        return Drawn((signs(rng, (copies, *shape), dtype),), ())


class Hadamard(Directions):
    """Rows of a Hadamard matrix, times signs of the samples: orthogonal within each sample.

    Places that get noise together have columns of their own.
    """

    name = "hadamard"

    def draw(self, rng: Any, copies: int, places: Sequence[Place]) -> list[Drawn]:
        """Return rows, or points, of which places have columns of their own."""
        widths = [math.prod(shape[1:]) for shape, _ in places]
        order = order_for(max(1, sum(widths)), copies)
        host = host_generator(rng)
        rows = np.concatenate(
            [host.permutation(order) for _ in range(-(-copies // order))]  # each equally often
        )[:copies]
        columns = host.permutation(order)
        drawn, start = [], 0
        for (shape, dtype), width in zip(places, widths, strict=True):
            own = columns[start : start + width]
            start += width
            h = beside(elements(order, rows, own).astype(dtype), rng)
            drawn.append(Drawn((h.reshape(copies, *shape[1:]),), (signs(rng, shape, dtype),)))
        return drawn

    def noise(self, each: tuple[Any, ...], shared: tuple[Any, ...]) -> Any:
        """Return the noise of one copy."""
        return each[0] * shared[0]

    def estimate(self, weights: Any, drawn: Drawn, shape: tuple[int, ...]) -> Any:
        """Return the mean over copies of weights times scores."""
        copies = weights.shape[0]
        h = np.reshape(drawn.each[0], (copies, -1))
        mean = np.matmul(weights.T, h) / copies  # (rows, features)
        return np.reshape(mean, (mean.shape[0], *shape[1:])) * drawn.shared[0]


class LowRank(Directions):
    """Products of two thin normal matrices: cheap to draw, uncorrelated, not independent.

    Parameters
    ----------
    rank : int
    """

    name = "lowrank"

    def __init__(self, rank: int = 1) -> None:
        self.rank = rank

    def draw_one(self, rng: Any, copies: int, shape: tuple[int, ...], dtype: Any) -> Drawn:
        """Return the noise of one place."""
        features = math.prod(shape[1:])
        left = normal(rng, (copies, *shape[:1], self.rank), dtype)
        right = normal(rng, (copies, self.rank, features), dtype)
        return Drawn(
            (left, right / math.sqrt(self.rank)), (beside(np.zeros(shape[1:], bool), rng),)
        )

    def noise(self, each: tuple[Any, ...], shared: tuple[Any, ...]) -> Any:
        """Return the noise of one copy."""
        left, right = each
        return np.reshape(np.matmul(left, right), (*left.shape[:-1], *shared[0].shape))

    def estimate(self, weights: Any, drawn: Drawn, shape: tuple[int, ...]) -> Any:
        """Return the mean over copies of weights times scores."""
        left, right = drawn.each
        copies, rank, features = right.shape
        scaled = np.reshape(np.moveaxis(left * weights[:, :, None], 0, 1), (-1, copies * rank))
        mean = np.matmul(scaled, np.reshape(right, (copies * rank, features))) / copies
        return np.reshape(mean, shape)


class QuasiMonteCarlo(Gaussian):
    """Scrambled points of Sobol', shifted for each sample, made normal.

    Places that get noise together are coordinates of the same points.
    """

    name = "qmc"

    def draw(self, rng: Any, copies: int, places: Sequence[Place]) -> list[Drawn]:
        """Return rows, or points, of which places have columns of their own."""
        from scipy.special import ndtri
        from scipy.stats import qmc

        host = host_generator(rng)
        widths = [math.prod(shape[1:]) for shape, _ in places]
        if not 0 < sum(widths) <= qmc.Sobol.MAXDIM:
            raise ShapeError(
                f"likelihood_ratio: directions='qmc' for {sum(widths)} numbers of a sample; "
                f"there are points of up to {qmc.Sobol.MAXDIM}: use 'hadamard' or 'gaussian'"
            )
        sobol = qmc.Sobol(sum(widths), seed=host)
        points = sobol.random_base2((copies - 1).bit_length())[:copies]
        tiny = np.finfo(np.float64).epsneg
        drawn, start = [], 0
        for (shape, dtype), width in zip(places, widths, strict=True):
            own = points[:, start : start + width]
            start += width
            lead = shape[:1]
            u = own.reshape(copies, *(1,) * len(lead), width) + host.random((*lead, width))
            eps = ndtri(np.clip(u % 1.0, tiny, 1.0 - tiny)).astype(dtype)
            drawn.append(Drawn((beside(eps.reshape(copies, *shape), rng),), ()))
        return drawn


KINDS: dict[str, type[Directions]] = {
    kind.name: kind for kind in (Gaussian, Laplace, Rademacher, Hadamard, LowRank, QuasiMonteCarlo)
}


def generator(rng: Any, leaves: list[Any]) -> Any:
    """Return the generator of random numbers for a call.

    Parameters
    ----------
    rng : Generator, int or None
        That of another array library, such as CuPy's, draws there.
    leaves : list
        Of the arguments: a seed makes the generator of the library that their arrays are of.
    """
    if hasattr(rng, "standard_normal"):
        return rng
    for x in leaves:
        v = getattr(x, "_plain", x)
        if is_device(v):
            v = v.raw
        module = sys.modules.get(type(v).__module__.partition(".")[0])
        default_rng = getattr(getattr(module, "random", None), "default_rng", None)
        if default_rng is not None and module is not np and hasattr(v, "shape"):
            return default_rng(rng)
    return np.random.default_rng(rng)


def host_generator(rng: Any) -> np.random.Generator:
    """Return a generator of NumPy's, seeded by that of another library where it is one."""
    if isinstance(rng, np.random.Generator) or not hasattr(rng, "integers"):
        return rng  # type: ignore[no-any-return]
    if type(rng).__module__.partition(".")[0] == "numpy":
        return rng  # type: ignore[no-any-return]
    return np.random.default_rng(int(rng.integers(0, 2**31 - 1)))


def beside(x: np.ndarray, rng: Any) -> Any:
    """Return an array in the library of a generator."""
    library = type(rng).__module__.partition(".")[0]
    return x if library == "numpy" else sys.modules[library].asarray(x)


def normal(rng: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """Return normal numbers, drawn in the precision that they have."""
    if dtype in (np.float32, np.float64):
        return rng.standard_normal(shape, dtype=dtype)
    return rng.standard_normal(shape).astype(dtype)


def uniform(rng: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """Return numbers from [0, 1)."""
    if dtype in (np.float32, np.float64):
        return rng.random(shape, dtype=dtype)
    return rng.random(shape).astype(dtype)


def signs(rng: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """Return numbers that are 1 or -1, eight of which take a byte of randomness."""
    count = math.prod(shape)
    if isinstance(rng, np.random.Generator):
        drawn = np.frombuffer(rng.bytes(-(-count // 8)), np.uint8)
        bits: Any = np.unpackbits(drawn, count=count).reshape(shape)
    else:
        bits = rng.random(shape, dtype=np.float32) < 0.5
    return (2.0 * bits - 1.0).astype(dtype)

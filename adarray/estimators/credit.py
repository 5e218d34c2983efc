"""From losses to weights: which losses the noise of a row is held responsible for.

References
----------
- J. Schulman, N. Heess, T. Weber, P. Abbeel, "Gradient estimation using stochastic computation
  graphs", NeurIPS 2015.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from adarray.base.aval import Symbolic
from adarray.base.errors import ShapeError
from adarray.device import host, is_device
from adarray.estimators.sites import Probed

# "rows", "total", a matrix of shape (rows, losses), or a linear function of the losses, along the
# first axis, to those of rows.
Credit = Any


def credited(name: str, weights: Any, shape: tuple[int, ...], credit: Credit) -> Any:
    """Return weights of shape (copies, rows) for a place, from those of shape (copies, losses).

    Parameters
    ----------
    name : str
        Of the site, for errors.
    weights : array, shape (copies,) or (copies, losses)
    shape : tuple of int
        Of the place.
    credit : str, matrix or callable

    Raises
    ------
    ShapeError
    """
    if weights.ndim == 1:
        weights = weights[:, None]
    losses = weights.shape[1]
    if isinstance(credit, str):
        if credit == "total":
            return np.sum(weights, axis=1, keepdims=True)
        if shape[:1] != (losses,):
            raise ShapeError(
                f"likelihood_ratio: credit='rows', but site {name!r} has shape {shape} and there "
                f"are {losses} losses; mark an array whose first axis is that of the losses, or "
                "pass credit='total' or a matrix of shape (rows, losses)"
            )
        return weights
    weighted = credit(weights.T) if callable(credit) else credit @ weights.T
    if (
        weighted.ndim != 2
        or weighted.shape[1] != weights.shape[0]
        or not _leads(weighted.shape[0], shape)
    ):
        raise ShapeError(
            f"likelihood_ratio: credit gives shape {weighted.shape} for site {name!r} of shape "
            f"{shape}, from {losses} losses of {weights.shape[0]} copies; it must have a row for "
            "each of the leading axes of the site and a column for each copy"
        )
    return weighted.T


def rows_are_apart(run: Callable[[Probed], Any], name: str, losses: np.ndarray) -> bool:
    """Whether each loss depends on its own row of a site alone, as far as two runs tell.

    Parameters
    ----------
    run : callable
        Returns the losses of a run with a visitor at its sites.
    name : str
    losses : ndarray, shape (rows,)
        Without any change.
    """
    rows = np.arange(len(losses)) % 2 == 0
    rounding = 32 * np.finfo(losses.dtype).eps * (1.0 + np.abs(losses))
    for moved in (rows, ~rows):
        with np.errstate(all="ignore"):  # it may leave the domain of the function
            change = np.abs(host_of(run(Probed(name, moved))) - losses)
        if not np.all((change <= rounding)[~moved]):  # also where it is nan
            return False
    return True


def host_of(x: Any) -> np.ndarray:
    """Return an array in the memory of the host; the values it has, where `jit` records."""
    v = getattr(x, "_plain", x)
    while isinstance(v, Symbolic):
        v = v.value
    return host(v) if is_device(v) else np.asarray(v)


def _leads(rows: int, shape: tuple[int, ...]) -> bool:
    return any(math.prod(shape[:k]) == rows for k in range(len(shape) + 1))


def spread(weights: Any, shape: tuple[int, ...]) -> Any:
    """Return weights of shape (copies, rows) so that they broadcast over places of all copies."""
    copies, rows = weights.shape
    for k in range(len(shape) + 1):
        if math.prod(shape[:k]) == rows:
            return np.reshape(weights, (copies, *shape[:k], *(1,) * (len(shape) - k)))
    raise AssertionError(rows)


def check_losses(losses: Any) -> Any:
    """Return losses as an array, and raise where they are none.

    Raises
    ------
    ShapeError
        If there are more axes than one.
    """
    if not hasattr(losses, "shape"):
        losses = np.asarray(losses)
    if len(losses.shape) > 1:
        raise ShapeError(
            f"likelihood_ratio: f returned shape {losses.shape}; return one loss for each sample, "
            "of shape (samples,), or one number"
        )
    return losses


def check_finite(losses: Any, what: str) -> None:
    """Raise if a loss is not finite; of values that `jit` records nothing is asked.

    Raises
    ------
    FloatingPointError
    """
    value = getattr(losses, "_plain", losses)
    if isinstance(value, Symbolic) or is_device(value):
        return
    bad = np.size(value) - int(np.count_nonzero(np.isfinite(value)))
    if bad:
        raise FloatingPointError(
            f"likelihood_ratio: {bad} of {np.size(value)} losses {what} are not finite; take a "
            "smaller sigma, or a loss that is finite wherever the noise may lead"
        )

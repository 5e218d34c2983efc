"""Sites where noise enters a function, and visitors that replace their values."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Protocol

import numpy as np

from adarray.arrays.adarray import stop_gradient
from adarray.base.errors import DTypeError, ShapeError
from adarray.base.runtime import INLINE
from adarray.transforms.modes import shape_of

# Values of one name, in the order in which a run meets them.
Met = dict[str, list[Any]]


class Visitor(Protocol):
    """What happens at the sites of one run."""

    def visit(self, v: Any, name: str) -> Any:
        """Return the value that the function continues with."""


RUN: ContextVar[Visitor | None] = ContextVar("adarray_noise_sites", default=None)


def noise_site(v: Any, name: str) -> Any:
    """Return `v`, and mark it as a place where an estimator may add noise.

    Parameters
    ----------
    v : array
        A value on the way to the loss, such as the pre-activations of a layer; floating.
    name : str
        Of the layer. A name that is met again, as in each step of a recurrent network, is one
        site with several places, each with noise of its own.

    Returns
    -------
    array
        `v` itself outside of an estimator.

    Raises
    ------
    TypeError
        If the name is no text.
    DTypeError
        Within an estimator, if `v` is not real and floating.

    Examples
    --------
    >>> import numpy as np
    >>> from adarray.estimators import noise_site
    >>> noise_site(np.array([1.0, 2.0]), "hidden")
    array([1., 2.])
    """
    if not isinstance(name, str):
        raise TypeError(
            f"noise_site: the name is {name!r}, of type {type(name).__name__}; pass text"
        )
    run = RUN.get()
    return v if run is None else run.visit(v, name)


def run_with(visitor: Visitor, f: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Call `f` while a visitor replaces the values of its sites."""
    token, inline = RUN.set(visitor), INLINE.set(True)  # compiled code has no sites
    try:
        return f(*args)
    finally:
        INLINE.reset(inline)
        RUN.reset(token)


class Silent:
    """A run without noise."""

    @staticmethod
    def visit(v: Any, name: str) -> Any:  # noqa: ARG004
        """Return the value."""
        return v


class Survey:
    """A run that notes the places: names, shapes and dtypes.

    Attributes
    ----------
    places : dict of str to list of (shape, dtype)
        In the order in which the sites were met first.
    """

    def __init__(self) -> None:
        self.places: dict[str, list[tuple[tuple[int, ...], np.dtype[Any]]]] = {}

    def visit(self, v: Any, name: str) -> Any:
        """Note the place."""
        dtype = v.dtype if hasattr(v, "dtype") else np.result_type(v)
        if dtype.kind != "f":
            raise DTypeError(
                f"noise_site {name!r}: the value is {dtype}; noise is added to real floating-point "
                "arrays alone"
            )
        self.places.setdefault(name, []).append((shape_of(v), dtype))
        return v


class Probed:
    """A run in which some rows of a site are moved, to see which losses depend on them.

    Parameters
    ----------
    name : str
        Of the site.
    rows : ndarray of bool
        Along its first axis.
    """

    def __init__(self, name: str, rows: np.ndarray) -> None:
        self.name = name
        self.rows = rows
        self.rng = np.random.default_rng(0)

    def visit(self, v: Any, name: str) -> Any:
        """Move the rows by numbers of the size of the values."""
        if name != self.name:
            return v
        shape = shape_of(v)
        move = self.rng.uniform(-1.0, 1.0, shape) * self.rows.reshape(-1, *(1,) * (len(shape) - 1))
        return v + (1.0 + np.abs(v)) * move.astype(v.dtype)


class Perturbed:
    """A run with noise at some sites.

    Parameters
    ----------
    noise : dict of str to list of callable
        ``add(v)`` for each place of a site in turn: returns the value with noise.
    cut : callable, optional
        No derivative goes through these sites then. ``cut(v)`` is what is kept of each value.
    plain : bool
        Whether what is cut goes on as an ndarray, where it is one.

    Attributes
    ----------
    values : dict of str to list of array
        With `cut`: what is kept of the values that the sites were given.
    """

    def __init__(
        self,
        noise: dict[str, list[Callable[[Any], Any]]],
        cut: Callable[[Any], Any] | None = None,
        plain: bool = False,
    ) -> None:
        self.noise = noise
        self.cut = cut
        self.plain = plain
        self.met = dict.fromkeys(noise, 0)
        self.values: Met = {name: [] for name in noise}

    def visit(self, v: Any, name: str) -> Any:
        """Add noise, if there is some for the site."""
        places = self.noise.get(name)
        if places is None:
            return v
        at = self.met[name]
        if at >= len(places):
            raise ShapeError(
                f"noise_site {name!r}: met more often than the {len(places)} times of the first "
                "run; a function may not choose its layers by values"
            )
        self.met[name] = at + 1
        if self.cut is not None:
            self.values[name].append(self.cut(v))
            v = constant(v, self.plain)
        return places[at](v)

    def finish(self) -> None:
        """Raise if a site was met less often than its noise was drawn for.

        Raises
        ------
        ShapeError
        """
        for name, places in self.noise.items():
            if self.met[name] != len(places):
                raise ShapeError(
                    f"noise_site {name!r}: met {self.met[name]} times, and {len(places)} times in "
                    "the first run; a function may not choose its layers by values"
                )


def constant(v: Any, plain: bool) -> Any:
    """Return a value of which no derivative is taken; an ndarray of its own, if `plain`."""
    v = stop_gradient(v)
    if plain:
        inner = getattr(v, "_plain", v)
        if type(inner) is np.ndarray or issubclass(type(inner), np.generic):
            return inner.copy()
    return v

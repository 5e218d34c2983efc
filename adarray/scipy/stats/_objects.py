"""SciPy's distributions that are made by calling a class: ``Normal(mu=0, sigma=1)``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import scipy.stats

from adarray.base.errors import UnsupportedFunctionError
from adarray.scipy._drop_in import guarded, holds
from adarray.scipy.stats._distribution import Continuous, wide

# Methods of these objects, by what `scipy.stats.norm` and its relatives call them.
_METHODS = {
    "pdf": "pdf", "logpdf": "logpdf", "cdf": "cdf", "ccdf": "sf", "logcdf": "logcdf",
    "logccdf": "logsf", "icdf": "ppf", "iccdf": "isf", "mean": "mean", "median": "median",
    "variance": "var", "standard_deviation": "std", "entropy": "entropy",
}  # fmt: skip
# Class -> the distribution, parameters, and its (loc, scale).
_CLASSES: dict[str, tuple[str, tuple[str, ...], Callable[..., tuple[Any, Any]]]] = {
    "Normal": ("norm", ("mu", "sigma"), lambda mu=0.0, sigma=1.0: (mu, sigma)),
    "Logistic": ("logistic", ("mu", "sigma"), lambda mu=0.0, sigma=1.0: (mu, sigma)),
    "Uniform": ("uniform", ("a", "b"), lambda a, b: (a, b - a)),
}


class Distribution:
    """A distribution with its parameters; SciPy's own, where neither they nor points are traced.

    Parameters
    ----------
    **kwargs
        The parameters, by their names.
    """

    law: Continuous
    scipy: Any
    parameters: tuple[str, ...]
    place: Callable[..., tuple[Any, Any]]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        parameters = dict(zip(self.parameters, args, strict=False), **kwargs)
        self._parameters = {
            n: x for n, x in parameters.items() if n in self.parameters and x is not None
        }
        self._own = None if holds(self._parameters) else self.scipy(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        """Return a parameter, a method of ours, or one of SciPy's without a rule."""
        if name.startswith("__") or name in ("_parameters", "_own"):
            raise AttributeError(name)
        if name in self._parameters:
            return self._parameters[name]
        member = getattr(self.scipy if self._own is None else self._own, name)
        if not callable(member):
            return member
        where = f"scipy.stats.{self.scipy.__name__}"
        if name not in _METHODS:
            if self._own is None:
                raise UnsupportedFunctionError(
                    f"{where}.{name}: adarray has no derivative rule for this method, and a "
                    "parameter is traced; use others of the distribution, or give it "
                    "adarray.value_of(x)"
                )
            return guarded(member, where)

        def method(*x: Any, method: Any = None, **kwargs: Any) -> Any:
            if self._own is not None and not (holds(x) or holds(kwargs)):
                return member(*x, method=method, **kwargs)
            return self._computed(name, *x, **kwargs)

        return method

    def _computed(self, name: str, *x: Any, y: Any = None) -> Any:
        if len(x) > 1:
            x, y = x[:1], x[-1]
        loc, scale = type(self).place(**self._parameters)
        of = getattr(self.law, _METHODS[name])
        if not x:
            return of(loc=loc, scale=scale)
        if y is None:
            return of(*x, loc=loc, scale=scale)
        if name not in ("cdf", "ccdf"):
            raise UnsupportedFunctionError(
                f"scipy.stats.{self.scipy.__name__}.{name}: of two points there is no rule; "
                "write it with cdf"
            )
        inside = of(wide(y), loc=loc, scale=scale) - of(*x, loc=loc, scale=scale)
        return inside if name == "cdf" else 1.0 + inside

    def __repr__(self) -> str:
        parts = ", ".join(f"{n}={x!r}" for n, x in self._parameters.items())
        return f"{self.scipy.__name__}({parts})"


def objects(laws: dict[str, Any]) -> dict[str, type]:
    """Return the classes that this SciPy has, by their names."""
    classes = {}
    for name, (law, parameters, place) in _CLASSES.items():
        own = getattr(scipy.stats, name, None)
        if own is not None:
            classes[name] = type(
                name, (Distribution,),
                {"law": laws[law], "scipy": own, "parameters": parameters,
                 "place": staticmethod(place), "__doc__": own.__doc__},
            )  # fmt: skip
    return classes

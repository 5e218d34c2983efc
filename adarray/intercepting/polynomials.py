"""NumPy's polynomial classes with traced coefficients: their own methods over ADArrays."""

from __future__ import annotations

import copyreg
import functools
import types
from typing import Any

import numpy as np

from adarray.base.scope import package_of
from adarray.ops.borrow import over_adarrays

POLYNOMIALS = frozenset(
    {
        np.poly1d, np.polynomial.Polynomial, np.polynomial.Chebyshev, np.polynomial.Legendre,
        np.polynomial.Laguerre, np.polynomial.Hermite, np.polynomial.HermiteE,
    }
)  # fmt: skip


def _borrowed(value: Any) -> Any:
    """Return a method such that ADArrays pass through it; other attributes as they are."""
    if isinstance(value, types.FunctionType):
        return over_adarrays(value)
    if isinstance(value, (staticmethod, classmethod)):
        function = value.__func__
        kind: Any = type(value)
        return kind(over_adarrays(function)) if isinstance(function, types.FunctionType) else value
    if isinstance(value, property):
        parts = (value.fget, value.fset, value.fdel)
        return property(*(None if f is None else _borrowed(f) for f in parts))
    return value


@functools.cache
def over(cls: type) -> type:
    """Return a subclass of a polynomial class whose coefficients and arguments may be traced."""
    space: dict[str, Any] = {}
    for base in cls.__mro__:
        if package_of(base.__module__) == "numpy":
            for name, value in vars(base).items():
                space.setdefault(name, _borrowed(value))
    kinds = (types.FunctionType, staticmethod, classmethod, property)
    space = {n: v for n, v in space.items() if isinstance(v, kinds)}

    def reduce(self: Any) -> Any:
        # A reader of the pickle gets NumPy's own class.
        return copyreg._reconstructor, (cls, object, None), dict(self.__dict__)  # type: ignore[attr-defined]

    def is_instance(_: type, x: object) -> bool:
        # The methods ask it of the other operand, which may have been made outside.
        return isinstance(x, cls)

    meta = type("PolynomialType", (type(cls),), {"__instancecheck__": is_instance})
    space.update(__module__=cls.__module__, __qualname__=cls.__qualname__, __reduce__=reduce)
    return types.new_class(cls.__name__, (cls,), {"metaclass": meta}, lambda d: d.update(space))

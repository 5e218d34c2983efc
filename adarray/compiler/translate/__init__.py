"""Translations of NumPy calls to primitives, by the name of an operation or by the function.

A translation is ``f(b, call)``, given a `Builder` and a `ValueCall`. It returns the value of the
result, or None where NumPy is to be called: then no value that it built is used.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, SupportsIndex, TypeAlias, cast, overload

import numpy as np

from adarray.base.recording import Symbol
from adarray.base.types import DType
from adarray.compiler.ir.builder import Builder, Weak
from adarray.compiler.ir.program import Value

if TYPE_CHECKING:
    import numpy.typing as npt

# Of a reduction; None: all axes.
Axis: TypeAlias = int | Sequence[int] | None
# None where there is no translation; a tuple of a call with several results.
Translated: TypeAlias = Value | tuple[Value, ...] | None


class Arguments(dict[str, object]):
    """Arguments by name, read as NumPy reads them.

    Values and `Weak` values stand for those that depend on the inputs.
    """

    def axis(self, default: Axis = None) -> Axis:
        """Return ``axis`` of a function that takes several."""
        x = self.get("axis", default)
        return None if x is None else axes_of(x)

    def dtype(self) -> DType | None:
        """Return ``dtype``."""
        x = self.get("dtype")
        return None if x is None else np.dtype(cast("npt.DTypeLike", x))

    def flag(self, name: str) -> bool:
        """Return a truth value, false where it is not given."""
        x = self.get(name, False)
        return x is not np._NoValue and bool(x)

    @overload
    def integer(self, name: str, default: int) -> int: ...
    @overload
    def integer(self, name: str, default: int | None = None) -> int | None: ...

    def integer(self, name: str, default: int | None = None) -> int | None:
        """Return an integer or None."""
        x = self.get(name, default)
        return None if x is None else index_of(x)

    def integers(self, name: str) -> np.ndarray | None:
        """Return one or several integers as an array, None if they depend on the inputs."""
        x = self[name]
        if isinstance(x, (Value, Weak)):
            return None
        array = np.asarray(x)
        return array if array.size else array.astype(np.intp)


def axes_of(x: object) -> int | Sequence[int]:
    """Return an argument that NumPy takes for one axis or several."""
    x = x.tolist() if isinstance(x, np.ndarray) else x
    return x if isinstance(x, (tuple, list)) else index_of(x)


def ndim_of(x: object) -> int:
    """Return the number of axes of an operand."""
    x = x.value if isinstance(x, Weak) else x
    return x.ndim if isinstance(x, Value) else np.asarray(x).ndim


def index_of(x: object) -> int:
    """Return an argument that NumPy takes for an integer."""
    if not isinstance(x, SupportsIndex):
        raise TypeError(f"an integer is needed, got {x!r}")
    return operator.index(x)


class ValueCall(NamedTuple):
    """A recorded call with values in place of symbols.

    Parameters
    ----------
    operands : tuple
        Values, `Weak` values, or plain numbers and arrays as they were given. Those of the
        record; of a function without one, its positional arguments.
    params : Arguments
        Keyword arguments.
    results : tuple of Symbol
        Shapes and dtypes of the results.
    """

    operands: tuple[object, ...]
    params: Arguments
    results: tuple[Symbol, ...]

    @property
    def result(self) -> Symbol:
        """The first or only result."""
        return self.results[0]

    def bound(self, *names: str) -> Arguments | None:
        """Return the arguments by name; None if there are others, or ``out`` is given."""
        if len(self.operands) > len(names) or not self.params.keys() <= set(names):
            return None
        args = Arguments(zip(names, self.operands, strict=False))
        args.update(self.params)
        return None if args.pop("out", None) is not None else args


class Translation(Protocol):
    """How calls of one function become values."""

    def __call__(self, b: Builder, call: ValueCall, /) -> Translated:
        """Return the results; None where there is no translation."""


# By the name of an operation's record.
RECORDS: dict[str, Translation] = {}
# By the NumPy function, for functions without a record.
FUNCTIONS: dict[object, Translation] = {}


# Names of records whose translations are right for dtypes, too, that kernels do not compute with.
OF_ANY_DTYPE: set[str] = set()


def of_any_dtype(*names: str) -> None:
    """Note that translations of operations need no arithmetic that kernels do not have."""
    OF_ANY_DTYPE.update(names)


# Names of records, and functions without one, whose translations are right for complex numbers.
OF_PAIRS: set[object] = set()


def of_pairs(*names: object) -> None:
    """Note that translations are right for complex numbers, too."""
    OF_PAIRS.update(names)


def record(*names: str) -> Callable[[Translation], Translation]:
    """Register the translation of operations with these names."""

    def add(translation: Translation) -> Translation:
        for name in names:
            assert name not in RECORDS, name
            RECORDS[name] = translation
        return translation

    return add


def function(*functions: object) -> Callable[[Translation], Translation]:
    """Register the translation of NumPy functions; `operands` are the positional arguments."""

    def add(translation: Translation) -> Translation:
        for f in functions:
            assert f not in FUNCTIONS, f
            FUNCTIONS[f] = translation
        return translation

    return add

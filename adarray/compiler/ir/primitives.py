"""Primitives: what computes a value of a program, one frozen dataclass each with its parameters.

A primitive is declared here and nowhere else: its class, and its place in `Primitive`. What the
compiler does with each of them stands in ``match`` statements that end in `assert_never`, so
the type checker names those that do not know a new one. Comparing and printing go over the
fields of the dataclass.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, TypeAlias, get_args

import numpy as np

from adarray.base.types import Function

Shape: TypeAlias = tuple[int, ...]
DType: TypeAlias = np.dtype[Any]

# Arrays of more bytes are compared by identity.
SMALL_ARRAY = 1 << 16


# -- leaves ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProgramInput:
    """An array that the program is given.

    Attributes
    ----------
    index : int
        Position among the program's inputs.
    strides : tuple of int
        In elements; any that an array can have.
    """

    index: int
    strides: Shape


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """One number, of shape ``()``; equal to another one of the same dtype and bits."""

    value: np.generic

    # As those of `_Compared`, in a third of the time: every pass asks for every constant.
    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Constant):
            return False
        x, y = self.value, other.value
        return x is y or (x.dtype == y.dtype and x.tobytes() == y.tobytes())

    def __hash__(self) -> int:
        return hash(self.value.tobytes())


class _Compared:
    """Equality by the fields as `comparable` returns them: of numbers and arrays, by their bits."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return other is self or (type(other) is type(self) and _key(self) == _key(other))

    def __hash__(self) -> int:
        return hash((type(self), _key(self)))


@dataclass(frozen=True, slots=True, eq=False)
class ConstantArray(_Compared):
    """An array that never changes; equal to another one of the same dtype, shape and bits.

    Attributes
    ----------
    value : ndarray
        In C order, not writeable.
    table : bool
        Whether maps read single places of it, and nothing else does.
    """

    value: np.ndarray
    table: bool = False


@dataclass(frozen=True, slots=True)
class Iota:
    """Element ``i`` along `axis` is ``i``; int64."""

    axis: int


# -- elements ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Map:
    """A scalar function of each element.

    Operands broadcast as NumPy's. All have one dtype unless the function says otherwise: the
    condition of ``where`` is bool, and comparisons give bool.

    Attributes
    ----------
    name : str
        In `adarray.compiler.scalars.catalogue`; ``"cast"`` among them.
    """

    name: str


@dataclass(frozen=True, slots=True)
class View:
    """Elements of an operand: slices, transposes, broadcasts, reshapes, diagonals, windows.

    Element ``(i, j, ...)`` is element ``offset + i*strides[0] + j*strides[1] + ...`` of the
    operand in C order.
    """

    offset: int
    strides: Shape


# -- folds and products ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reduce:
    """A fold of `axes`, which disappear.

    Attributes
    ----------
    combine : {"add", "multiply", "maximum", "minimum", "logical_and", "logical_or"}
    axes : tuple of int
    """

    combine: str
    axes: Shape


@dataclass(frozen=True, slots=True)
class PrefixScan:
    """A fold along an axis that keeps every step.

    Attributes
    ----------
    combine : {"add", "multiply", "maximum", "minimum"}
    axis : int
    """

    combine: str
    axis: int


@dataclass(frozen=True, slots=True)
class Epilogue:
    """What a library does with a product before it writes it: ``scale * (a @ b) + c``.

    Attributes
    ----------
    scale : float
    row : bool
        Whether ``c`` is a vector, added to each row.
    relu : bool
        Whether numbers below zero become zero.
    """

    scale: float
    row: bool = False
    relu: bool = False


@dataclass(frozen=True, slots=True)
class Matmul:
    """`numpy.matmul` of two arrays of at least one axis.

    With an epilogue, which only planning adds, there is a third operand. `loops` says that loops
    of a kernel compute it, whatever its size is.
    """

    epilogue: Epilogue | None = None
    loops: bool = False


# -- writing and indexing ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class UpdateSlice:
    """An array with a box of it set: operands ``base, value``.

    ``base[start::step]``, as far as the value goes, one start and step for each axis, is set to
    the value, or with `add` gets it added.
    """

    starts: Shape
    steps: Shape
    add: bool


@dataclass(frozen=True, slots=True)
class Concatenate:
    """Operands one after the other along `axis`."""

    axis: int


@dataclass(frozen=True, slots=True)
class GatherND:
    """Elements at indices: operands ``x, *indices``.

    Attributes
    ----------
    axes : tuple of int
        Those of ``x`` that are indexed. Indices are int64 of one shape, not yet wrapped.
    position : int
        Where the axes of the indices stand in the result.
    """

    axes: Shape
    position: int


@dataclass(frozen=True, slots=True)
class ScatterND:
    """The transpose of `GatherND`: operands ``base, value, *indices``.

    Of repeated indices the last one wins, or with `add` all add up.
    """

    axes: Shape
    position: int
    add: bool


# -- everything else ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Slot:
    """Stands for operand number `index` in the arguments of a call."""

    index: int

    def __repr__(self) -> str:
        return f"${self.index}"


@dataclass(frozen=True, slots=True, eq=False)
class PythonCall(_Compared):
    """Anything else, run by NumPy, or by the library of a device.

    Attributes
    ----------
    function : callable
    args, kwargs
        With `Slot` where operands go.
    results : tuple of (shape, dtype) or None
        Where there are several.
    """

    function: Function
    args: tuple[object, ...]
    kwargs: Mapping[str, object]
    results: tuple[tuple[Shape, DType], ...] | None = None


@dataclass(frozen=True, slots=True)
class CallResult:
    """Result number `index` of a call with several."""

    index: int


Primitive: TypeAlias = (
    ProgramInput
    | Constant
    | ConstantArray
    | Iota
    | Map
    | View
    | Reduce
    | PrefixScan
    | Matmul
    | UpdateSlice
    | Concatenate
    | GatherND
    | ScatterND
    | PythonCall
    | CallResult
)
PRIMITIVES: tuple[type[Primitive], ...] = get_args(Primitive)
_FIELDS: dict[type, tuple[str, ...]] = {p: tuple(f.name for f in fields(p)) for p in PRIMITIVES}


# Most values are maps and views, and long programs repeat themselves: these are one object each,
# since a look-up takes a fifth of the time of a new one.


@lru_cache(None)
def map_of(name: str) -> Map:
    """Return the map of a scalar function."""
    return Map(name)


@lru_cache(1 << 14)
def view_of(offset: int, strides: Shape) -> View:
    """Return the view with an offset and strides."""
    return View(offset, strides)


# -- comparing and printing --------------------------------------------------------------------


def _key(primitive: object) -> tuple[Hashable, ...]:
    return tuple([comparable(getattr(primitive, name)) for name in _FIELDS[type(primitive)]])


def comparable(x: object) -> Hashable:
    """Return what equal parameters have in common.

    Types count, since ``1 == 1.0 == True``, and bits, since ``0.0 == -0.0`` and nan is not nan.
    """
    match x:
        case np.generic():
            return (x.dtype, x.tobytes())
        case np.ndarray():
            if x.nbytes > SMALL_ARRAY or x.dtype.hasobject:
                return ("array", id(x))  # arrays have no hash; whoever asks holds this one
            return ("array", x.dtype, x.shape, x.tobytes())
        case tuple() | list():
            return (type(x), *map(comparable, x))
        case Mapping():
            return ("mapping", *((k, comparable(i)) for k, i in sorted(x.items())))
        case slice():
            return ("slice", comparable(x.start), comparable(x.stop), comparable(x.step))
        case float() | complex():
            return (type(x), repr(x))
        case Hashable():
            return x if isinstance(x, (Slot, np.dtype)) else (type(x), x)
    raise TypeError(f"comparing parameters: {type(x).__name__} has no hash")


def mnemonic(primitive: Primitive) -> str:
    """Return the word for a primitive in printed programs: ``"map"``, ``"update_slice"``."""
    return _MNEMONICS[type(primitive)]


def _words(name: str) -> str:
    """Return the name of a class as words joined by underscores: ``GatherND``, ``gather_nd``."""
    parts = [
        f"_{c}" if c.isupper() and i and not name[i - 1].isupper() else c
        for i, c in enumerate(name)
    ]
    return "".join(parts).lower()


_MNEMONICS: dict[type[Primitive], str] = {p: _words(p.__name__) for p in PRIMITIVES}
# Parameters that are printed without their names.
_BARE = frozenset({"name", "combine", "value", "function"})


def shown(primitive: Primitive) -> str:
    """Return a primitive with its parameters, for people and tests: ``"reduce add axes=(0,)"``."""
    parts = [mnemonic(primitive)]
    for f in fields(primitive):
        value = getattr(primitive, f.name)
        if value is None or value is f.default:
            continue
        if isinstance(value, np.ndarray):
            value = f"<{value.dtype}{list(value.shape)}>"
        elif callable(value):
            value = getattr(value, "__name__", value)
        parts.append(str(value) if f.name in _BARE else f"{f.name}={value}")
    return " ".join(parts)

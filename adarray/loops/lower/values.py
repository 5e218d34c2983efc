"""What the expressions of a loop's body are."""

from __future__ import annotations

import ast
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from adarray.compiler.ir.loopir import Expr
from adarray.kernels import build
from adarray.loops.forms import Known, NotCaptured
from adarray.loops.lower.intervals import Affine
from adarray.loops.lower.kinds import INT, Kinds, dtype_of


@dataclass(frozen=True, slots=True)
class Number:
    """A number or a truth value.

    Attributes
    ----------
    expr : Expr
        Reads no memory that may change: a load has a name of its own.
    kinds : frozenset of str
        Of which it has one when it runs; `expr` has a dtype for all of them.
    whole : Affine, optional
        Of a whole number.
    holds, fails : tuple of Affine
        Of a truth value: forms that are not negative if it is true, and if it is not.
    tag : Expr, optional
        Of a number of several kinds: which it has, as `CODES` tells.
    """

    expr: Expr
    kinds: Kinds
    whole: Affine | None = None
    holds: tuple[Affine, ...] = ()
    fails: tuple[Affine, ...] = ()
    tag: Expr | None = None

    @property
    def kind(self) -> str | None:
        """The kind, where there is only one."""
        return next(iter(self.kinds)) if len(self.kinds) == 1 else None


@dataclass(frozen=True, slots=True)
class Complex:
    """A complex number."""

    re: Number
    im: Number
    kind: str

    @property
    def kinds(self) -> Kinds:
        """The kind, as that of other numbers."""
        return frozenset((self.kind,))

    @property
    def expr(self) -> Expr:
        """What a real number is in the text: no complex one is that."""
        raise NotCaptured("complex numbers where only real ones are understood", 0)


@dataclass(frozen=True, slots=True)
class Pair:
    """What a name of a complex number stands for: its parts have names of their own."""

    kind: str


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory of the kernel that holds an array row by row.

    The parts of a complex number lie one behind the other; `strides` count numbers.
    """

    name: str
    dtype: str
    shape: tuple[Number, ...]
    strides: tuple[Number, ...]


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis of a view.

    Attributes
    ----------
    extent, stride : Number
    base : int, optional
        Axis of the buffer that it runs along; None where it repeats an element.
    step : int
        Steps along that for a step along this one.
    """

    extent: Number
    stride: Number
    base: int | None
    step: int = 1


@dataclass(frozen=True, slots=True)
class View:
    """Elements of a buffer.

    Attributes
    ----------
    offset : Number
        Where the first element is.
    first : tuple of Affine
        Its index along each axis of the buffer.
    """

    buffer: Buffer
    offset: Number
    axes: tuple[Axis, ...]
    first: tuple[Affine, ...]

    @property
    def shape(self) -> tuple[Number, ...]:
        """Extents."""
        return tuple(a.extent for a in self.axes)

    @property
    def dtype(self) -> str:
        """Dtype of the elements."""
        return self.buffer.dtype


@dataclass(frozen=True, slots=True)
class Lazy:
    """An array whose elements are computed where they are wanted.

    Attributes
    ----------
    element : callable
        Writes what an element takes at the indices that it gets; returns it.
    pointwise : tuple of View
        Views of this shape of which an element reads the one at its own indices.
    others : tuple of View
        Views of which it may read any element.
    heavy : bool
        Whether an element takes a loop.
    key : tuple
        Arrays with equal keys have equal elements, as long as nothing is written.
    mask : Array, optional
        Of its elements there are only those where this holds, one behind the other.
    shares : bool
        Whether it is memory in NumPy, in which others may write.
    """

    dtype: str
    shape: tuple[Number, ...]
    element: Callable[[tuple[Number, ...]], Number | Complex]
    pointwise: tuple[View, ...] = ()
    others: tuple[View, ...] = ()
    heavy: bool = False
    key: tuple[Hashable, ...] = ()
    mask: View | Lazy | None = None
    shares: bool = False


@dataclass(frozen=True, slots=True)
class Items:
    """A tuple or a list that is only read."""

    items: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Span:
    """A range."""

    start: Number
    stop: Number
    step: Number


@dataclass(frozen=True, slots=True)
class Walk:
    """What a loop runs over.

    Attributes
    ----------
    count : Number
    item : callable
        Gives the item of an iteration.
    most : Affine, optional
        What `count` is if there is an iteration at all.
    """

    count: Number
    item: Callable[[Number], Value]
    most: Affine | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """A slice, before it is known of how many elements."""

    start: Number | None
    stop: Number | None
    step: Number | None


@dataclass(frozen=True, slots=True)
class Missing:
    """What a name stands for that cannot be read."""

    reason: str


@dataclass(frozen=True, slots=True)
class Method:
    """A method of a value, before it is called."""

    value: Value
    name: str


@dataclass(frozen=True, slots=True)
class Closure:
    """A function that the loop itself defines.

    Attributes
    ----------
    node : FunctionDef or Lambda
    depth : int
        Of the calls in which it is defined: the names there are what it reads.
    defaults : tuple of (str, Value)
        Of its parameters.
    """

    node: ast.FunctionDef | ast.Lambda
    depth: int
    defaults: tuple[tuple[str, Value], ...]


@dataclass(frozen=True, slots=True)
class Growing:
    """A list that the loop appends to.

    Attributes
    ----------
    count : str
        What its number of items has as a name.
    depth : int
        Of the calls of the function that has it.
    """

    count: str
    depth: int


Scalar = Number | Complex
Array = View | Lazy
Value = (
    Number | Complex | Pair | View | Lazy | Items | Span | Walk | Part | Missing | Method
    | Closure | Growing | Known
)  # fmt: skip


def parts_of(name: str) -> tuple[str, str]:
    """Return the names of the parts of a complex number that has a name."""
    return f"{name}.re", f"{name}.im"


def integer(value: int) -> Number:
    """Return a Python int that stands in the text."""
    return Number(build.index(value), frozenset((INT,)), Affine(value))


def number(expr: Expr, kind: str, whole: Affine | None = None) -> Number:
    """Return a number of one kind."""
    assert expr.dtype == dtype_of(kind), (expr, kind)
    return Number(expr, frozenset((kind,)), whole)

"""Loop IR: one small, frozen form of kernels, printed as C, OpenMP C and CUDA.

A `Kernel` gets buffers and integers. Extents, strides and offsets are integers, never part
of the text, so that equal kernels of different sizes are one; only literal strides 0 and 1,
which decide how a loop becomes vector code, stand in it.

Expressions are typed: bool, int32, int64, float32, float64 (other integers as they come).
Scalar functions have the names of `adarray.base.scalar`; integers wrap.

Nodes are equal by their contents, and their hash goes over all that lies below them, as often as
it is reached. So walks over expressions that share parts note what they have seen by ``id``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

# -- expressions --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Expr:
    """A typed scalar expression; `dtype` is NumPy's name of it."""

    dtype: str


@dataclass(frozen=True, slots=True)
class Const(Expr):
    """A number or truth value."""

    value: Any


@dataclass(frozen=True, slots=True)
class Var(Expr):
    """A loop variable or integer parameter (int64), a `Let`, or a `Local` scalar."""

    name: str


@dataclass(frozen=True, slots=True)
class Apply(Expr):
    """A scalar function of expressions: `name` as in `adarray.base.scalar`, or ``"cast"``."""

    name: str
    args: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Load(Expr):
    """Element `index` (int64) of a buffer or of a local array."""

    buffer: str
    index: Expr


# -- statements ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Let:
    """Name the value of an expression, once."""

    name: str
    value: Expr


@dataclass(frozen=True, slots=True)
class Local:
    """Declare a scalar, or an array of `size` elements, for one iteration of the loop around it.

    Scalars begin as `init`. Arrays lie in the thread's workspace, are not set,
    and have room for a multiple of 64 elements.
    """

    name: str
    dtype: str
    size: Expr | None = None
    init: Expr | None = None


@dataclass(frozen=True, slots=True)
class Assign:
    """Set a local scalar."""

    name: str
    value: Expr


@dataclass(frozen=True, slots=True)
class Store:
    """Set element `index` of a buffer or local array."""

    buffer: str
    index: Expr
    value: Expr


@dataclass(frozen=True, slots=True)
class Fold:
    """Combine `value` into a scalar, an element of a local array, or a `Total`.

    On machines with atomic additions also into an element of a buffer that nothing else in
    the kernel reads or writes: iterations of a parallel loop may then fold into the same one.

    `combine` is one of ``add multiply maximum minimum logical_and logical_or``. In a vector
    loop, folds into one scalar run in lanes that are combined after the loop.

    `before` is a local scalar that is set to what the element of a buffer was until then: of
    several iterations that add 1 to one element each gets another number. Not in vector loops.
    """

    target: str
    combine: str
    value: Expr
    index: Expr | None = None
    before: str = ""


@dataclass(frozen=True, slots=True)
class For:
    """``for (var = start; var < stop; var++)``.

    kind
        ``"serial"``; ``"parallel"``: iterations are independent but for `Total`, and may be
        shared among threads (only as the outermost loop, and one at most); ``"vector"``:
        iterations are independent but for folds, and run in vectors; its body holds `Let`,
        `Store`, `Assign` and `Fold` only.
    """

    var: str
    start: Expr
    stop: Expr
    body: tuple[Stmt, ...]
    kind: str = "serial"


@dataclass(frozen=True, slots=True)
class If:
    """Run `body` where `condition` (bool) holds, else `orelse`."""

    condition: Expr
    body: tuple[Stmt, ...]
    orelse: tuple[Stmt, ...] = ()


@dataclass(frozen=True, slots=True)
class Fail:
    """Leave the kernel: the call returns `code`, and nobody reads what was written."""

    code: int


Stmt = Let | Local | Assign | Store | Fold | For | If | Fail

# -- kernels ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Param:
    """A buffer: memory that no other parameter overlaps, unless both are only read.

    `access` is ``"in"``, ``"out"`` (all elements are written) or ``"inout"``. `stream` says
    that what is written is not read soon and would not stay in a cache: it goes past them.
    """

    name: str
    dtype: str
    access: str = "in"
    stream: bool = False


@dataclass(frozen=True, slots=True)
class Total:
    """A fold over the iterations of the parallel loop: a scalar or an array of `size` elements.

    Every thread folds into memory of its own, which begins as the neutral element; in the
    order of the threads these are combined, and stored at elements 0, 1, ... of `out`.
    """

    name: str
    dtype: str
    combine: str
    out: str
    size: Expr | None = None


# Names of integer parameters that are distances between elements begin so. None of these is 0: an
# index has no term for an axis along which it does not move.
STRIDE = "stride"


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel: buffers, integer parameters, totals, and statements.

    Two kernels that are equal up to names are printed alike (see `canonical` in
    `adarray.compiler.schedule.vectors`), and compiled once.
    """

    buffers: tuple[Param, ...]
    ints: tuple[str, ...]
    totals: tuple[Total, ...]
    body: tuple[Stmt, ...]


def walk(expr: Expr) -> Iterator[Expr]:
    """Yield `expr` and all below it, operands first."""
    if isinstance(expr, Apply):
        for arg in expr.args:
            yield from walk(arg)
    elif isinstance(expr, Load):
        yield from walk(expr.index)
    yield expr


def integer(value: int) -> Const:
    """Return an int64 constant."""
    return Const("int64", value)


def statements(body: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """Yield every statement of `body`, and those inside of them."""
    stack = list(reversed(body))
    while stack:
        s = stack.pop()
        yield s
        if isinstance(s, For):
            stack += reversed(s.body)
        elif isinstance(s, If):
            stack += reversed(s.orelse)
            stack += reversed(s.body)

"""Loop IR of kernels that are written for one thread of a grid.

The statements of `adarray.compiler.ir.loopir`, and those that only make sense where many threads
run one text: `While`, `Barrier`, `WarpOp`, `Atomic`, memory of a block, and the tape of a thread.
Integer arithmetic is C's; `Var` may name one of `INDICES`, which differ between threads and blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import cast

from adarray.compiler.ir.loopir import (
    Apply,
    Assign,
    Expr,
    Fold,
    For,
    If,
    Let,
    Load,
    Local,
    Param,
    Store,
    Var,
    walk,
)
from adarray.compiler.ir.loopir import Stmt as LoopStmt

THREAD = tuple(f"threadIdx.{a}" for a in "xyz")
BLOCK = tuple(f"blockIdx.{a}" for a in "xyz")
SIZES = tuple(f"{n}.{a}" for n in ("blockDim", "gridDim") for a in "xyz")
INDICES = frozenset((*THREAD, *BLOCK, *SIZES))


@dataclass(frozen=True, slots=True)
class While:
    """Run `body` as long as the local scalar `condition` (bool) holds; it tells `line`.

    With `any_thread`, all threads of a block go on as long as it holds for one of them.
    """

    condition: str
    body: tuple[Stmt, ...]
    line: int = 0
    any_thread: bool = False


@dataclass(frozen=True, slots=True)
class Barrier:
    """All threads of the block wait for each other, and see what the others wrote.

    With `warp`, those of a warp do.
    """

    line: int = 0
    warp: bool = False


SHUFFLES = frozenset(("idx", "up", "down", "xor"))
# What each reduction of a warp has in the place of the values of threads that take no part.
REDUCTIONS = {"add": 0, "minimum": None, "maximum": None, "and": -1, "or": 0, "xor_all": 0,
              "ballot": 0}  # fmt: skip


@dataclass(frozen=True, slots=True)
class WarpOp:
    """Name what a thread gets from the others of its warp.

    Parameters
    ----------
    name : str
    kind : str
        One of `SHUFFLES`: the `value` that another thread has, which `lane` (int32) chooses as
        ``__shfl_sync``, ``__shfl_up_sync``, ``__shfl_down_sync`` and ``__shfl_xor_sync`` do. Or one
        of `REDUCTIONS`: the values of all threads combined; ``"ballot"`` sets a bit for each
        thread whose `value` (bool) is true. Or ``"match"``: a bit for each thread whose value has
        the same bits.
    value, lane : Expr
    mask : Expr, optional
        Bits (uint32) of the threads that take part; None: those that come here.
    width : int, optional
        Size of the parts of a warp that exchange values: a power of 2.
    """

    name: str
    kind: str
    value: Expr
    lane: Expr
    mask: Expr | None = None
    width: int = 32

    @property
    def dtype(self) -> str:
        """Dtype of what is named."""
        return "uint32" if self.kind in ("ballot", "match") else self.value.dtype


@dataclass(frozen=True, slots=True)
class Atomic:
    """Combine `value` into an element, whatever other threads do; `result` names its old value.

    `same` says who names the same element, for sums that no thread reads: ``"grid"``, all threads;
    ``"block"``, all threads of a block, which all come here; ``"warp"``, those of a warp that come
    here together. Of the first two, nothing happens where what is added is 0. ``"x"`` and
    ``"y"``, threads of a block that differ only there in their indices; ``"row"``, nobody:
    the loop around it, which does nothing else, adds an array of the thread to neighbours.
    """

    buffer: str
    index: Expr
    combine: str
    value: Expr
    result: str | None = None
    same: str = ""


@dataclass(frozen=True, slots=True)
class Push:
    """Put a value on the thread's tape."""

    value: Expr


@dataclass(frozen=True, slots=True)
class Pop:
    """Name the value that was put on the thread's tape last, and take it off."""

    name: str
    dtype: str


@dataclass(frozen=True, slots=True)
class Record:
    """Name arrays of `count` elements each on the thread's tape; they stay there until `Recall`.

    `arrays` are names and dtypes. Only kernels of one thread have such.
    """

    arrays: tuple[tuple[str, str], ...]
    count: Expr


@dataclass(frozen=True, slots=True)
class Recall:
    """Name the arrays that were put on the thread's tape last, and take them off it."""

    arrays: tuple[tuple[str, str], ...]
    count: Expr


@dataclass(frozen=True, slots=True)
class Comment:
    """A line for those who read the text."""

    text: str


Stmt = LoopStmt | While | Barrier | WarpOp | Atomic | Push | Pop | Record | Recall | Comment


@dataclass(frozen=True, slots=True)
class Shared:
    """Memory of a block. `size` is None where the launch says how much there is.

    `zero` says that threads set it to zero before they do anything else.
    """

    name: str
    dtype: str
    size: int | None
    zero: bool = False


@dataclass(frozen=True, slots=True)
class ConstantTable:
    """An array of constants."""

    name: str
    dtype: str
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class ThreadKernel:
    """What each thread of a grid runs.

    Parameters
    ----------
    name : str
    buffers : tuple of Param
    scalars : tuple of (str, str)
        Parameters that are numbers, and their dtypes.
    order : tuple of str
        Names of both, in the order of arguments.
    shared : tuple of Shared
    body : tuple of Stmt
    tables : tuple of ConstantTable
    """

    name: str
    buffers: tuple[Param, ...]
    scalars: tuple[tuple[str, str], ...]
    order: tuple[str, ...]
    shared: tuple[Shared, ...]
    body: tuple[Stmt, ...]
    tables: tuple[ConstantTable, ...] = ()


def if_(condition: Expr, body: Iterable[Stmt], orelse: Iterable[Stmt] = ()) -> If:
    """Return a branch whose bodies hold statements of threads, too."""
    return If(
        condition, cast("tuple[LoopStmt, ...]", tuple(body)),
        cast("tuple[LoopStmt, ...]", tuple(orelse)),
    )  # fmt: skip


def for_(var: str, start: Expr, stop: Expr, body: Iterable[Stmt], kind: str = "serial") -> For:
    """Return a loop whose body holds statements of threads, too.

    The order of additions to one variable is free in a loop of kind ``"vector"``.
    """
    return For(var, start, stop, cast("tuple[LoopStmt, ...]", tuple(body)), kind)


def with_bodies(s: Stmt, block: Callable[[Iterable[Stmt]], Iterable[Stmt]]) -> Stmt:
    """Return a statement with what `block` makes of the statements inside of it."""
    bodies = [block(body) for body in inside(s)]
    if isinstance(s, For):
        return for_(s.var, s.start, s.stop, bodies[0], s.kind)
    if isinstance(s, If):
        return if_(s.condition, *bodies)
    return replace(s, body=tuple(bodies[0])) if isinstance(s, While) else s


def sums_of(loop: For) -> dict[str, str]:
    """Return dtypes of the variables from outside that a loop adds to, by name.

    Others that it assigns to have no dtype: "".
    """
    statements = list(all_statements(cast("tuple[Stmt, ...]", loop.body)))
    own = {s.name for s in statements if isinstance(s, Let | Local | Pop)}
    dtypes: dict[str, str] = {}
    for s in statements:
        if isinstance(s, Assign) and s.name not in own:
            e = s.value
            adds = isinstance(e, Apply) and e.name in ("add", "subtract")
            first = e.args[0] if isinstance(e, Apply) and adds else None
            rest = variables(e.args[1]) if isinstance(e, Apply) and adds else {s.name}
            good = isinstance(first, Var) and first.name == s.name and s.name not in rest
            dtypes[s.name] = e.dtype if good and dtypes.get(s.name, e.dtype) else ""
    read = {
        e.name
        for s in statements
        for e in reads(s)
        if isinstance(e, Var) and not (isinstance(s, Assign) and s.name == e.name)
    }
    return {n: "" if n in read else d for n, d in dtypes.items()}


def is_vector(loop: For) -> bool:
    """Whether iterations of a ``"vector"`` loop may run side by side.

    They are independent but for sums: a variable from outside is only added to.
    """
    fit = (Let, Local, Assign, Store, If, Comment)
    statements = all_statements(cast("tuple[Stmt, ...]", loop.body))
    whole = all(isinstance(s, fit) and getattr(s, "size", None) is None for s in statements)
    return whole and all(sums_of(loop).values())


def inside(s: Stmt) -> tuple[tuple[Stmt, ...], ...]:
    """Return the bodies of a statement."""
    if isinstance(s, For | While):
        return (s.body,)
    return (s.body, s.orelse) if isinstance(s, If) else ()


def all_statements(body: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """Yield every statement of `body`, and those inside of them."""
    stack = list(reversed(body))
    while stack:
        s = stack.pop()
        yield s
        for part in reversed(inside(s)):
            stack += reversed(part)


def operands(s: Stmt) -> tuple[Expr, ...]:
    """Return the expressions that stand in a statement itself."""
    if isinstance(s, Let | Assign | Push):
        return (s.value,)
    if isinstance(s, Local):
        return tuple(e for e in (s.size, s.init) if e is not None)
    if isinstance(s, Store | Atomic):
        return (s.index, s.value)
    if isinstance(s, WarpOp):
        return (s.value, s.lane) if s.mask is None else (s.value, s.lane, s.mask)
    if isinstance(s, Fold):
        return (s.value,) if s.index is None else (s.index, s.value)
    if isinstance(s, For):
        return (s.start, s.stop)
    if isinstance(s, Record | Recall):
        return (s.count,)
    return (s.condition,) if isinstance(s, If) else ()


def reads(s: Stmt) -> Iterator[Expr]:
    """Yield every expression of a statement, and those inside of them."""
    for e in operands(s):
        yield from walk(e)


def used(body: tuple[Stmt, ...]) -> set[str]:
    """Return the names of memory and variables in statements."""
    names: set[str] = set()
    for s in all_statements(body):
        if isinstance(s, (Store, Atomic)):
            names.add(s.buffer)
        for e in reads(s):
            if isinstance(e, Var):
                names.add(e.name)
            elif isinstance(e, Load):
                names.add(e.buffer)
    return names


def variables(e: Expr) -> set[str]:
    """Return the names of the variables in an expression."""
    return {x.name for x in walk(e) if isinstance(x, Var)}


def has_barrier(body: tuple[Stmt, ...]) -> bool:
    """Whether all threads of a block wait for each other in `body`."""
    return any(isinstance(s, Barrier) and not s.warp for s in all_statements(body))


def is_collective(body: tuple[Stmt, ...]) -> bool:
    """Whether threads of a block or of a warp wait for each other in `body`."""
    return any(isinstance(s, (Barrier, WarpOp)) for s in all_statements(body))


def loads(e: Expr) -> Iterator[Load]:
    """Yield the loads in an expression."""
    return (x for x in walk(e) if isinstance(x, Load))


def replaced(e: Expr, by: dict[str, Expr]) -> Expr:
    """Return an expression with other expressions in the place of variables."""
    if isinstance(e, Var):
        return by.get(e.name, e)
    if isinstance(e, Apply):
        return Apply(e.dtype, e.name, tuple(replaced(a, by) for a in e.args))
    if isinstance(e, Load):
        return Load(e.dtype, e.buffer, replaced(e.index, by))
    return e

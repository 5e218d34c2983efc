"""Handles, and what recording needs: saving, views, levels, garbage collection.

`Handle` is the state of an `ADArray`; the behaviour that users see is added in
`adarray.array`. A handle is mutable, its node is not: an in-place update moves the
handle to a new node.
"""

from __future__ import annotations

import gc
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from adarray.base.aval import ARRAYS, Aval, Tracked, aval_of, refuse_subclass
from adarray.base.errors import DTypeError, TraceError
from adarray.base.hooks import Hook
from adarray.base.levels import FORWARD, LEVEL, OPEN, end, levels_hook, within
from adarray.base.memory import duplicate
from adarray.base.runtime import MODE
from adarray.base.types import ArrayValue, Function
from adarray.core.graph import LEAF, Node, Steps, next_level
from adarray.core.guard import keep_plain, unwatch, watch
from adarray.device import KINDS, adopt

if TYPE_CHECKING:
    from adarray.core.mirrors import Mirror
    from adarray.device import Library

T = TypeVar("T")


class Tangent:
    """The tangent of a value at one level of forward mode."""

    __slots__ = ("level", "owned", "value")

    def __init__(self, level: int, value: Handle, owned: bool = False) -> None:
        self.level = level
        self.value = value
        # Whether `value` belongs to one handle alone, so that a write into that
        # handle may write into the tangent too.
        self.owned = owned


class GradSlot:
    """Where `backward()` accumulates the gradient of a leaf.

    `library` is that of the device where the leaf is, None on the host.
    """

    __slots__ = ("grad", "library")

    def __init__(self, library: Library | None = None) -> None:
        self.grad: Any = None
        self.library = library


class Extras:
    """What only some handles have: a base (views), tangents, a gradient slot, weakness.

    Or memory that belongs to a plain array of the user. A handle without any of it
    has no `Extras` at all, which one test tells, and takes the short way through
    dispatch.
    """

    __slots__ = (
        "base", "borrowed", "escaped", "loan", "mirror", "peers", "seen", "slot", "steps",
        "tangents", "weak",
    )  # fmt: skip

    def __init__(
        self,
        base: Handle | None = None,
        steps: Steps = (),
        tangents: tuple[Tangent, ...] = (),
        slot: GradSlot | None = None,
        weak: bool = False,
        borrowed: bool = False,
    ) -> None:
        self.base = base
        self.borrowed = borrowed  # see adarray.intercepting: never traced, written through
        self.escaped = False  # see `is_over`
        self.loan: weakref.ref[Loan] | None = None  # see adarray.core.lending
        self.mirror: Mirror | None = None  # see adarray.core.mirrors
        # Handles of one array, each of which takes what is written into another; or why none can.
        self.peers: list[Handle] | str | None = None
        self.steps = steps  # ((op, other operands, params), ...) from base to view
        self.seen = state_of(base) if base is not None else (None, None, ())
        self.tangents = tangents
        self.slot = slot
        self.weak = weak


def state_of(base: Handle) -> tuple[Node | None, object, tuple[Tangent, ...]]:
    """Return what a write into `base` replaces, whichever way it is done.

    A recorded write replaces the node, a copy on write the buffer, a write of
    tangents their tuple. A write that replaces nothing goes into the buffer that
    the views of `base` look at.
    """
    return base._node, base._plain, base._x.tangents if base._x is not None else ()


class Handle(Tracked):
    """The state of an ADArray.

    Attributes
    ----------
    _plain : ndarray, NumPy scalar or Python number
        The value.
    _node : Node or None
        The recorded operation that made it; None for a constant.
    _x : Extras or None
    _frozen : bool
        Whether someone else relies on the buffer `_plain`; the next write copies it.
    """

    __slots__ = ("_frozen", "_node", "_plain", "_x")
    # The class that users see; modules below adarray.array make instances of it.
    array_class: ClassVar[type[Handle]]
    # That of Python numbers: see adarray.kinds.
    number_class: ClassVar[type[Handle]]

    if TYPE_CHECKING:  # of ADArray
        __array_ufunc__: Function

    def __init_subclass__(cls) -> None:
        if not hasattr(Handle, "array_class"):  # a user's subclass takes no part
            Handle.array_class = cls

    def __init__(
        self, v: ArrayValue, node: Node | None = None, x: Extras | None = None, frozen: bool = False
    ) -> None:
        self._plain = v
        self._node = node
        self._x = x
        self._frozen = frozen


def plain_class(handle: Handle) -> type:
    """Return the class of the plain value: ndarray, a NumPy scalar's, or a Python number's."""
    cls: type = handle._plain.__class__  # a symbolic value passes for its concrete one
    if handle._x is not None and handle._x.weak and issubclass(cls, np.generic):
        return bool if cls is np.bool_ else type(cls(0).item())
    return cls


def extras(handle: Handle) -> Extras:
    """Return the handle's `Extras`, made if it has none."""
    if handle._x is None:
        handle._x = Extras()
    return handle._x


def root_of(handle: Handle) -> Handle:
    """Return the handle whose buffer holds the values: itself unless it is a view."""
    x = handle._x
    return handle if x is None or x.base is None else x.base


class Loan:
    """The memory of an ADArray as NumPy takes it; lives as long as an array that is made of it."""

    __slots__ = ("__array_interface__", "__weakref__", "_memory")

    def __init__(self, memory: Any) -> None:
        self._memory = memory
        self.__array_interface__ = memory.__array_interface__


def is_weak(x: object) -> bool:
    """Whether `x` stands for a Python number, whose dtype yields to others (NEP 50)."""
    return isinstance(x, Handle) and x._x is not None and x._x.weak


def is_python_number(x: object) -> bool:
    """Whether `x` is a Python number that is no truth value, or stands for one."""
    return type(x) in (int, float, complex) or is_weak(x)


def is_borrowed(handle: Handle) -> bool:
    """Whether plain arrays that nobody sees written share the memory of the values.

    It belongs to a plain array of the user, or others were given it and hold it still.
    """
    x = root_of(handle)._x
    if x is None:
        return False
    if x.loan is not None and x.loan() is None:
        x.loan = None
    return x.borrowed or x.loan is not None


def save(handle: Handle) -> ArrayValue:
    """Return the value of a (synchronised) handle as a node may keep it.

    A view that is smaller than its base is copied: it would otherwise keep the
    base alive, and every write into the base would have to copy the base.
    """
    value = handle._plain
    if type(value) in ARRAYS:
        root = root_of(handle)
        if (root is not handle and value.nbytes < root._plain.nbytes) or is_borrowed(root):
            return value.copy("K")
        root._frozen = True
    return value


def alive(handle: Handle, level: int, closed: bool = False) -> bool:
    """Whether a trace other than `level` still sees the (synchronised) handle.

    `closed` says that the trace `level` ended earlier (its pullback runs now), so
    that traces with higher levels may be open too; at its end they are all over.
    """
    node, x = handle._node, handle._x
    if node is not None and (node.span[0] < level or (closed and node.span[1] > level)):
        return True
    return x is not None and any(t.level < level or closed for t in x.tangents)


def is_over(handle: Handle) -> bool:
    """Whether all traces that saw a (synchronised) traced handle have ended.

    An attribute or a list of the user may still hold it. From now on it is a plain value.
    """
    node, x = handle._node, handle._x
    if node is not None:
        low, high = node.span
        if high in OPEN or low == 0 or within(low, high):  # 0: of a leaf, which has no end
            return False
    if x is not None and any(t.level in OPEN for t in x.tangents):
        return False
    handle._node = None
    x = extras(handle)
    x.tangents = ()
    x.escaped = True
    return True


def snapshot(handle: Handle) -> Handle:
    """Return an independent handle with the same value, node and tangents, without a copy."""
    if is_borrowed(handle):
        return type(handle)(duplicate(handle._plain), handle._node)
    root_of(handle)._frozen = True
    x = handle._x
    rest = None
    if x is not None and (x.tangents or x.weak):
        rest = Extras(tangents=x.tangents, weak=x.weak)
        for t in x.tangents:
            t.owned = False
    return type(handle)(handle._plain, handle._node, rest, True)


def placed(x: T) -> T:
    """Return a plain value, moved to where the current backend computes."""
    mode = MODE.get()
    return x if mode is None or mode.place is None else mode.place(x)


def leaf(cls: type[Handle], value: Any, level: int, name: str) -> Handle:
    """Return a new input of the trace `level` from a plain value or an ADArray.

    Raises
    ------
    DTypeError
        If `value` is neither floating point nor complex.
    """
    parent: Node | None = None
    tangents: tuple[Tangent, ...] = ()
    guard = None
    weak = False
    if isinstance(value, Handle):
        source = snapshot(value)
        value, parent = source._plain, source._node
        if source._x is not None:
            tangents, weak = source._x.tangents, source._x.weak
        aval = aval_of(value)
    else:
        value = refuse_subclass(value, name)
        if KINDS and type(value) in KINDS:
            value = adopt(value)
        aval = aval_of(value)
        weak = aval.weak
        if not isinstance(value, np.ndarray) and not isinstance(value, np.generic) and not weak:
            value = np.asarray(value)
        mode = MODE.get()
        recorder = mode.recorder if mode is not None else None
        if recorder is not None and isinstance(value, np.ndarray):
            value = recorder.capture(value)
        if mode is not None and mode.place is not None:
            value = mode.place(value)
        value, guard = keep_plain(value, layout=True)
    if aval.dtype.kind not in "fc":
        raise DTypeError(
            f"{name}: has non-floating dtype {aval.dtype}, which has no real derivative here; "
            "pass floating point, for instance x.astype(float) or 3.0 for 3"
        )
    # Tangents mean that an outer trace in forward mode sees what happens to the input.
    first = level
    if tangents or parent is not None:
        outer = [] if parent is None else [parent.span[0]]
        first = min([level, *outer, *[t.level for t in tangents]])
    span = (first, level)
    node = Node(LEAF, (parent,), (), None, Aval(aval.shape, aval.dtype, weak), span, guard)
    x = Extras(tangents=tangents, weak=weak) if tangents or weak else None
    return (Handle.number_class if weak else cls)(value, node, x, True)


_gc_lock = threading.Lock()
_gc_users = 0
_gc_before: tuple[int, int, int] = (700, 10, 10)


def levels_of(x: object) -> list[int]:
    """Return the levels of the open traces that see `x`, or an ADArray in it."""
    if isinstance(x, Handle):
        levels = [] if x._node is None else within(*x._node.span)
        return levels if x._x is None else [*levels, *(t.level for t in x._x.tangents)]
    if isinstance(x, (list, tuple)):
        return [level for i in x for level in levels_of(i)]
    return levels_of(list(x.values())) if isinstance(x, dict) else []


def values_at_work() -> Iterator[object]:
    """Yield what the variables hold in the frames of our code, and of the code that called it."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        yield from list(frame.f_locals.values())
        if not str(frame.f_globals.get("__name__")).startswith("adarray"):
            break
        frame = frame.f_back


def _levels_at_work() -> list[int]:
    """Return the levels of the traces that see the ADArrays in the frames of our code."""
    return levels_of(list(values_at_work()))


levels_hook.set(_levels_at_work)


# Makes plain what is left of an outermost trace; given its level.
settle_hook: Hook[Callable[[int], None]] = Hook("adarray.core.escaping")


class tracing:  # noqa: N801  (reads as a statement)
    """Context manager that opens a trace of the transform `name`; ``with tracing(name) as level``.

    It raises if the code inside caught a refusal: see `adarray.base.levels`. `forward` says that
    nobody will walk back what is recorded of it.

    The cyclic garbage collector would look at every live node again and again
    (nodes make no cycles); its threshold is raised while any trace is open.
    """

    __slots__ = ("_forward", "_level", "_level_token", "_name", "_watch_token")

    def __init__(self, name: str, forward: bool = False) -> None:
        self._name = name
        self._forward = forward

    def __enter__(self) -> int:
        global _gc_users, _gc_before
        self._level = level = next_level()
        OPEN[level] = around = LEVEL.get()
        if self._forward:
            FORWARD.add(level)
        self._watch_token = watch() if around == 0 else None
        self._level_token = LEVEL.set(level)
        with _gc_lock:
            if _gc_users == 0:
                _gc_before = gc.get_threshold()
                if _gc_before[0]:
                    gc.set_threshold(max(_gc_before[0], 200_000), *_gc_before[1:])
            _gc_users += 1
        return level

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        global _gc_users
        LEVEL.reset(self._level_token)
        if self._watch_token is not None:
            unwatch(self._watch_token, failed=kind is not None)
        with _gc_lock:
            _gc_users -= 1
            if _gc_users == 0:
                gc.set_threshold(*_gc_before)
        refusal = end(self._level)
        if self._watch_token is not None:
            settle_hook.call(self._level)
        if isinstance(error, ValueError) and isinstance(error.__cause__, TraceError):
            # NumPy has wrapped it: "setting an array element ...". No circle of causes.
            cause = error.__cause__
            error.__cause__ = None
            raise cause from cause.__cause__
        if kind is None and refusal is not None:
            raise TraceError(
                f"{self._name}: the function caught an error that NumPy would not have raised, and "
                f"what it did instead may have lost a gradient: {type(refusal).__name__}: "
                f"{refusal}; do not catch it, or take adarray.value_of(x) to "
                "leave the graph on purpose",
                (),
            ) from refusal

"""The operators of ADArrays."""

from __future__ import annotations

import importlib
import operator
import sys
import types
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from adarray.arrays.plainarrays import shown_to
from adarray.base.aval import BATCHED, Symbolic
from adarray.base.frames import PRIORITY, is_frame
from adarray.base.op import FUNCTIONS
from adarray.base.scope import SCOPE, package_of
from adarray.core.dispatch import apply, binary, join_hook, unary
from adarray.core.guard import CALLED_BY_OPERATORS
from adarray.core.inplace import augmented, sync_if_view
from adarray.core.protocol import call_ufunc, defers, is_foreign, traced
from adarray.core.refusals import leaves_graph
from adarray.core.trace import Extras, Handle, is_weak, plain_class

if TYPE_CHECKING:
    from adarray.arrays.adarray import ADArray

_NUMBERS = (float, int, complex)


def weakened(x: ADArray) -> ADArray:
    """Return the 0-d array as a traced Python number, whose dtype yields to others."""
    tangents = x._x.tangents if x._x is not None else ()
    if isinstance(x._plain, Symbolic):
        opened: Any = x._plain
        number = opened.item()
        number = number._plain if isinstance(number, Handle) else number
    elif x.dtype.kind in "iu":
        number = int(x._plain)
    else:
        number = complex(x._plain) if x.dtype.kind == "c" else float(x._plain)
    out: Any = Handle.number_class(number, x._node, Extras(tangents=tangents, weak=True), True)
    return out  # type: ignore[no-any-return]


# The usual operands: asking whether another one defers would cost time at each operator.
_KNOWN = frozenset({np.ndarray, float, int, bool, complex, np.float64, np.float32, np.int64})


def _is_number(x: Any) -> bool:
    """Whether `x` is a Python number, or traced as one."""
    if isinstance(x, Handle):
        return x._x is not None and x._x.weak
    return isinstance(x, _NUMBERS) and not isinstance(x, np.generic)


def _joins(y: Any, x: Any) -> bool:
    """Whether Python computes with a number `y` on the right of a Python number `x`.

    A float64 is a float of Python: it goes first beside another, but a complex number takes it.
    """
    if _is_number(y):
        return True
    kind = plain_class(y) if isinstance(y, Handle) else type(y)
    return kind is np.float64 and plain_class(x) is complex


def counted(x: Any) -> Any:
    """Return a Python truth value as the int that it is in Python's arithmetic; others as given."""
    if isinstance(x, Handle) and x._plain.__class__ is np.bool_ and _is_number(x):
        return weakened(binary(FUNCTIONS[np.add], x, 0))
    return x


# What Python raises on a zero divisor; NumPy computes on.
_DIVIDING = {
    np.true_divide: operator.truediv, np.remainder: operator.mod,
    np.floor_divide: operator.floordiv,
}  # fmt: skip


def _raise_for_zero(ufunc: Any, x: Any, y: Any) -> None:
    """Raise ZeroDivisionError where Python does: for two numbers of its own, of which `y` is 0."""
    if not (_is_number(x) and _is_number(y)):
        return
    divisor: Any = y
    if isinstance(y, Handle):
        if type(y._plain) in BATCHED:
            return
        # A later run of what is recorded looks at its own divisor.
        divisor = divisor != 0 if isinstance(y._plain, Symbolic) else y._plain
    if not divisor and not _is_of_rule():
        kind = plain_class(x) if isinstance(x, Handle) else type(x)
        _DIVIDING[ufunc](kind(1), (plain_class(y) if isinstance(y, Handle) else type(y))(0))


def _is_of_rule() -> bool:
    """Whether adarray's own code computes: derivatives at zero are infinite."""
    frame: types.FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_globals is globals():
        frame = frame.f_back
    return frame is not None and package_of(frame.f_globals.get("__name__")) == "adarray"


def _joined(x: Any) -> Any:
    """Return a list with ADArrays in it as the array that NumPy would make of it."""
    return join_hook.call(x, None) if type(x) is list or type(x) is tuple else x


def _binary(ufunc: Any) -> Callable[[Any, Any], ADArray]:
    """Return ``x op y`` of a pointwise operation; Python numbers give a Python number."""
    divides = ufunc in _DIVIDING

    def forward(self: Any, other: Any) -> Any:
        kind = type(other)
        if kind is not type(self) and kind not in _KNOWN:
            if defers(other):
                product = ufunc is np.multiply and _is_sparse(other)
                return _ours(other).__rmul__(self) if product else NotImplemented
            if is_frame(other):
                return call_ufunc(ufunc, "__call__", (self, other), {})
            if is_foreign(other):
                return ufunc(self, other)
            other = _joined(other)
        if self._x is not None and self._x.weak and _is_number(other):
            self, other = counted(self), counted(other)
            if divides:
                _raise_for_zero(ufunc, self, other)
        r = binary(FUNCTIONS[ufunc], self, other)
        if self._x is not None and _is_number(self) and _joins(other, self):
            return weakened(r) if r.dtype.kind in "fci" else r
        return r

    CALLED_BY_OPERATORS[forward.__code__] = 1
    return forward


_TRUTHS = np.dtype(bool)
_raised = _binary(np.power)


def _power(self: Any, other: Any) -> Any:
    """Return ``x ** y``; NumPy's operator squares truth values where np.power makes integers."""
    if self._plain.__class__ is np.ndarray and self._plain.dtype is _TRUTHS:
        if is_weak(other) and np.result_type(other._plain).kind == "i":
            other = operator.index(other)
        if type(other) is int and other == 2:
            return np.square(self)
    return _raised(self, other)


def _reflected(ufunc: Any) -> Callable[[Any, Any], ADArray]:
    divides = ufunc in _DIVIDING

    def reflected(self: Any, other: Any) -> Any:
        if type(other) not in _KNOWN:
            if is_frame(other):
                return call_ufunc(ufunc, "__call__", (other, self), {})
            if ufunc is np.multiply and _is_sparse(other):  # a matrix, whose * is @
                return _ours(other) * self
            other = _joined(other)
        if self._x is not None and self._x.weak and _is_number(other):
            self = counted(self)
            if divides:
                _raise_for_zero(ufunc, other, self)
        r = binary(FUNCTIONS[ufunc], other, self)
        if self._x is not None and _is_number(self) and _is_number(other):
            return weakened(r) if r.dtype.kind in "fci" else r
        return weakened(r) if type(other) is complex and plain_class(self) is np.float64 else r

    return reflected


_raising = _reflected(np.power)


def _power_of(self: Any, other: Any) -> Any:
    """Return ``other ** self``: for ``x ** n`` with a traced `n`, Python asks `n` first."""
    if isinstance(other, Handle) and other._plain.__class__ is np.ndarray and is_weak(self):
        return _power(other, self) if other._plain.dtype is _TRUTHS else _raising(self, other)
    return _raising(self, other)


def _inplace(forward: Callable[[Any, Any], Any]) -> Callable[[Any, Any], ADArray]:
    def inplace(self: Any, other: Any) -> Any:
        return augmented(self, forward(self, other))

    return inplace


def _general(ufunc: Any) -> Callable[[Any, Any], Any]:
    """``@``, comparisons, ``//`` and operators of integers."""
    equality = ufunc in (np.equal, np.not_equal)
    divides = ufunc in _DIVIDING

    def forward(self: Any, other: Any) -> Any:
        kind = type(other)
        if kind is not type(self) and kind not in _KNOWN and defers(other):
            if ufunc is np.matmul and _is_sparse(other):
                return _ours(other).__rmatmul__(self)
            return NotImplemented
        if equality and _is_number(self) and not _is_number(other) and _joins(other, self):
            number: Any = other
            other = weakened(number) if isinstance(other, Handle) else float(other)
        if divides and self._x is not None and self._x.weak:
            _raise_for_zero(ufunc, self, other)
        op = FUNCTIONS.get(ufunc)
        if op is not None and not is_foreign(other) and not is_frame(other):
            r = _whole(apply(op, (self, _joined(other))), self, other)
        else:
            r = _whole(call_ufunc(ufunc, "__call__", (self, other), {}), self, other)
        return r if SCOPE.get() is None else shown_to(r, sys._getframe(1))

    return forward


def _is_sparse(x: Any) -> bool:
    """Whether `x` is a sparse array or matrix of SciPy's."""
    return hasattr(type(x), "tocsr")


# Of a sparse array, by identity: its nonzeros, copies of its indices, and the array of ours.
_converted: dict[int, tuple[weakref.ref[Any], Any, list[np.ndarray], Any]] = {}
_INDICES = {"csr": ("indices", "indptr"), "csc": ("indices", "indptr"), "coo": ("row", "col")}


def _ours(a: Any) -> Any:
    """Return a sparse array of SciPy's as one of adarray's, over the same nonzeros.

    It is kept, since products of one pattern share what they find out about it. Other formats do
    not share memory with what they are converted to, and are converted in each product.
    """
    names = _INDICES.get(a.format)
    if names is None:
        return importlib.import_module("adarray.scipy.sparse").ours(a)
    nonzeros, cached = a.data, _converted.get(id(a))
    if (
        cached is not None
        and cached[0]() is a
        and cached[1] is nonzeros
        # The indices may have been written into.
        and all(np.array_equal(getattr(a, n), x) for n, x in zip(names, cached[2], strict=True))
    ):
        return cached[3]
    converted = importlib.import_module("adarray.scipy.sparse").ours(a)
    indices = [np.array(getattr(a, n)) for n in names]
    key, table = id(a), _converted  # whose name is gone when the interpreter ends
    table[key] = weakref.ref(a, lambda _: table.pop(key, None)), nonzeros, indices, converted
    return converted


def _whole(r: Any, x: Any, y: Any) -> Any:
    """Return the result of an operator on two Python numbers as one of them."""
    if x._x is None or r is NotImplemented or not (_is_number(x) and _is_number(y)):
        return r
    if r.dtype.kind == "b":
        if isinstance(r._plain, Symbolic):
            return Handle.number_class(r._plain, None, Extras(weak=True), True)
        return bool(r._plain)
    return weakened(r) if r.dtype.kind in "if" else r


def _general_reflected(ufunc: Any) -> Callable[[Any, Any], Any]:
    def reflected(self: Any, other: Any) -> Any:
        if ufunc is np.matmul and _is_sparse(other):
            return _ours(other) @ self
        if ufunc in _DIVIDING and self._x is not None and self._x.weak:
            _raise_for_zero(ufunc, other, self)
        r = _whole(call_ufunc(ufunc, "__call__", (_joined(other), self), {}), self, other)
        return r if SCOPE.get() is None else shown_to(r, sys._getframe(1))

    return reflected


def _unary(ufunc: Any) -> Callable[[Any], ADArray]:
    def method(self: Any) -> Any:
        op = FUNCTIONS.get(ufunc)
        if self._x is not None and self._x.weak:
            self = counted(self)
        r = unary(op, self) if op else call_ufunc(ufunc, "__call__", (self,), {})
        if self._x is not None and _is_number(self) and r.dtype.kind in "fci":
            return weakened(r)
        return r

    return method


class Operators:
    """NumPy's operators; arithmetic on traced Python numbers gives traced Python numbers."""

    __slots__ = ()
    # Arrays of devices leave their operators to the other operand if this is above their own.
    __array_priority__ = 1000.0
    # As does pandas.
    __pandas_priority__ = PRIORITY

    __add__ = _binary(np.add)
    __radd__ = _reflected(np.add)
    __iadd__ = _inplace(__add__)
    __sub__ = _binary(np.subtract)
    __rsub__ = _reflected(np.subtract)
    __isub__ = _inplace(__sub__)
    __mul__ = _binary(np.multiply)
    __rmul__ = _reflected(np.multiply)
    __imul__ = _inplace(__mul__)
    __truediv__ = _binary(np.true_divide)
    __rtruediv__ = _reflected(np.true_divide)
    __itruediv__ = _inplace(__truediv__)
    __pow__ = _power
    __rpow__ = _power_of
    __ipow__ = _inplace(__pow__)
    __mod__ = _binary(np.remainder)
    __rmod__ = _reflected(np.remainder)
    __imod__ = _inplace(__mod__)

    __floordiv__ = _general(np.floor_divide)
    __rfloordiv__ = _general_reflected(np.floor_divide)
    __ifloordiv__ = _inplace(__floordiv__)
    __matmul__ = _general(np.matmul)
    __rmatmul__ = _general_reflected(np.matmul)
    __imatmul__ = _inplace(__matmul__)
    __and__ = _general(np.bitwise_and)
    __rand__ = _general_reflected(np.bitwise_and)
    __iand__ = _inplace(__and__)
    __or__ = _general(np.bitwise_or)
    __ror__ = _general_reflected(np.bitwise_or)
    __ior__ = _inplace(__or__)
    __xor__ = _general(np.bitwise_xor)
    __rxor__ = _general_reflected(np.bitwise_xor)
    __ixor__ = _inplace(__xor__)
    __lshift__ = _general(np.left_shift)
    __rlshift__ = _general_reflected(np.left_shift)
    __ilshift__ = _inplace(__lshift__)
    __rshift__ = _general(np.right_shift)
    __rrshift__ = _general_reflected(np.right_shift)
    __irshift__ = _inplace(__rshift__)

    __lt__ = _general(np.less)
    __le__ = _general(np.less_equal)
    __gt__ = _general(np.greater)
    __ge__ = _general(np.greater_equal)
    __eq__ = _general(np.equal)
    __ne__ = _general(np.not_equal)

    def __hash__(self) -> int:
        # As in NumPy, scalars have a hash. A traced one has none: what a dictionary or a
        # cache keeps under it would belong to another trace the next time.
        own: Any = self
        value = sync_if_view(own)._plain
        if isinstance(value, np.ndarray) or traced(self):
            what = f"unhashable type: '{'traced ADArray' if traced(self) else 'ADArray'}'"
            asking = str(sys._getframe(1).f_globals.get("__name__"))
            if isinstance(value, np.ndarray) or asking.startswith("adarray."):
                raise TypeError(what)  # as NumPy; our own code does without
            raise leaves_graph(what, "a key is a constant", self)
        return hash(value)

    __neg__ = _unary(np.negative)
    __pos__ = _unary(np.positive)
    __abs__ = _unary(np.absolute)
    __invert__ = _unary(np.invert)

    def __divmod__(self, other: Any) -> tuple[ADArray, ADArray]:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> tuple[ADArray, ADArray]:
        return other // self, other % self


for _name, _function in list(vars(Operators).items()):
    if callable(_function):
        _function.__name__ = _name
        _function.__qualname__ = f"ADArray.{_name}"

"""ADArray: the array that users hold, with NumPy's operators, methods and protocols."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from sys import _getframe, getrefcount
from types import GenericAlias
from typing import Any

import numpy as np

from adarray.arrays.attributes import Attributes
from adarray.arrays.conversion import Conversions
from adarray.arrays.interchange import Interchange
from adarray.arrays.operators import Operators, weakened
from adarray.arrays.plainarrays import constant_data, is_client, shown_to
from adarray.arrays.questions import is_array, of_some, seen_class, shown_class
from adarray.arrays.signatures import Methods
from adarray.base.aval import PLAIN_ARRAYS, Symbolic, refuse_subclass
from adarray.base.errors import DTypeError, TraceError
from adarray.base.frames import REDUCING, refuse_pandas_method
from adarray.base.hooks import Hook
from adarray.base.levels import LEVEL, MET
from adarray.base.op import FUNCTIONS, POINTWISE
from adarray.base.runtime import MODE
from adarray.base.scope import SCOPE, UNINTERCEPTED_MODULES
from adarray.core.dispatch import apply, binary, join_hook, unary
from adarray.core.guard import CALLED_BY_OPERATORS
from adarray.core.inplace import plain_index, setitem, sync_if_view
from adarray.core.protocol import call_function, call_ufunc, traced
from adarray.core.trace import Extras, GradSlot, Handle, leaf, snapshot
from adarray.device import is_device, of_dlpack


class ADArray(Operators, Conversions, Attributes, Interchange, Methods, Handle):
    """An array whose operations are recorded, so that they can be differentiated.

    It behaves like the `numpy.ndarray` of its values: operators, methods, indexing, in-place
    updates, views, and every NumPy function that adarray knows. Create one with `adarray.array`;
    transforms such as `adarray.grad` pass them to the function that they differentiate.

    Notes
    -----
    A traced array (one on which a derivative may depend) never turns into a plain number or array
    implicitly: outside of `intercept`, ``float(x)`` and ``np.asarray(x)`` raise `TraceError`. Use
    ``x.numpy()`` to leave the graph on purpose.
    """

    __slots__ = ("__weakref__",)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        # isinstance(x, np.ndarray) holds in user code: see adarray.arrays.questions.
        if LEVEL.get() == 0 and SCOPE.get() is None and type(self) is ADArray:
            # Outside of all transforms; the general way below comes to the same.
            x = self._x
            if (
                self._node is None
                and (x is None or not (x.base is not None or x.tangents or x.escaped))
                and type(self._plain) is np.ndarray
            ):
                return ADArray
        frame = _getframe(1)
        if frame.f_globals.get("__name__") in UNINTERCEPTED_MODULES:
            return shown_class(self)
        return seen_class(self, frame)

    # -- NumPy's protocols ----------------------------------------------------------

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method == "__call__" and not kwargs:
            op = POINTWISE.get(ufunc)
            if op is not None:
                if len(inputs) == 1:
                    return unary(op, inputs[0])
                if len(inputs) == 2:
                    r = binary(op, inputs[0], inputs[1])
                    if r is not NotImplemented:
                        return r
        return call_ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if len(types) > 1 and not PLAIN_ARRAYS.isdisjoint(types):
            return NotImplemented  # NumPy asks those next, and they ask us
        return call_function(func, args, kwargs)

    # -- containers -------------------------------------------------------------------

    @of_some("object of type '{}' has no len()")
    def __len__(self) -> int:
        if self.ndim == 0:
            raise TypeError("len() of unsized object")
        value: Any = sync_if_view(self)._plain
        return len(value)

    @of_some("'{}' object is not iterable")
    def __iter__(self) -> Iterator[ADArray]:
        if self.ndim == 0:
            raise TypeError("iteration over a 0-d array")
        items = (self[i] for i in range(len(self)))
        if self.ndim == 1 and self.dtype.kind == "b" and is_client(_getframe(1)):
            return map(constant_data, items)
        return items

    @of_some("argument of type '{}' is not iterable")
    def __contains__(self, value: Any) -> bool:
        return bool((self == value).any())

    def __getitem__(self, index: Any) -> ADArray:
        op = FUNCTIONS[operator.getitem]
        if isinstance(self._plain, np.generic) and (index.__class__ is not tuple or index):
            # NumPy's scalars know few indices, and no masks.
            self = call_function(np.copy, (self,), {})
        r: ADArray = apply(op, (self,), {"index": plain_index(index)})
        return shown_to(r, _getframe(1)) if type(r._plain) is np.bool_ else r

    @of_some("'{}' object does not support item assignment")
    def __setitem__(self, index: Any, value: Any) -> None:
        if type(value) is list or type(value) is tuple:
            # One array of the ADArrays in it; integers must hold the numbers.
            whole = self.dtype.kind in "iub" and not traced(value)
            value = join_hook.call(value, self.dtype if whole else None)
        setitem(self, index, value)

    @of_some("'{}' object does not support item deletion")
    def __delitem__(self, index: Any) -> None:
        raise ValueError("cannot delete array elements")

    def _leaf_slot(self) -> GradSlot | None:
        """Return what holds the gradient of a leaf that no trace sees; None of other arrays."""
        return None if self._x is None or self._x.tangents else self._x.slot

    def __deepcopy__(self, memo: Any) -> ADArray:
        """Copy; the copy of a leaf is a leaf of its own, as optimisers and models expect."""
        slot = self._leaf_slot()
        return self.__copy__() if slot is None else _leaf_of(np.array(self._plain), slot.grad)

    def __reduce__(self) -> Any:
        """Pickle the values; a leaf stays a leaf, with its gradient."""
        slot = self._leaf_slot()
        if slot is not None:
            return (_leaf_of, (np.array(self._plain), slot.grad))
        self._must_be_constant("pickle", "pickle x.numpy()")
        return (Handle.array_class, (self._plain,))

    def __class_getitem__(cls, arguments: Any) -> Any:
        return GenericAlias(cls, arguments)

    # -- methods whose call differs from the function's ---------------------------------

    def reshape(self, *shape: Any, order: Any = "C", copy: bool | None = None) -> ADArray:
        """Return the elements in another shape; a view where NumPy gives one."""
        to = shape[0] if len(shape) == 1 else shape
        if order == "A":
            order = "F" if self.flags.fnc else "C"
        return call_function(np.reshape, (self, to), {"order": order, "copy": copy})  # type: ignore[no-any-return]

    def transpose(self, *axes: Any) -> ADArray:
        """Return a view with the axes permuted."""
        to: Any = axes or None
        if len(axes) == 1:
            to = axes[0]
        return call_function(np.transpose, (self, to), {})  # type: ignore[no-any-return]

    def copy(self, order: Any = "C") -> ADArray:
        """Return a copy, in C order unless `order` says otherwise (as the ndarray method)."""
        if not is_array(self):
            return snapshot(sync_if_view(self))  # type: ignore[return-value]
        return call_function(np.copy, (self,), {"order": order})  # type: ignore[no-any-return]

    def flatten(self, order: Any = "C") -> ADArray:
        """Return a one-dimensional copy."""
        return call_function(np.copy, (call_function(np.ravel, (self, order), {}),), {})  # type: ignore[no-any-return]

    def conjugate(self, out: Any = None) -> ADArray:
        """Return the conjugate; the array itself if it is real (the function returns a copy)."""
        if self.dtype.kind == "c" or out is not None:
            return call_function(np.conjugate, (self,), {"out": out})  # type: ignore[no-any-return]
        return self

    conj = conjugate

    def astype(
        self,
        dtype: Any,
        order: Any = "K",
        casting: Any = "unsafe",
        subok: bool = True,  # noqa: ARG002  (NumPy's signature; there are no subclasses)
        copy: bool = True,
    ) -> ADArray:
        """Return the array in another dtype; itself with ``copy=False`` if that changes nothing."""
        to = np.dtype(dtype)
        if not np.can_cast(self.dtype, to, casting):
            raise TypeError(
                f"Cannot cast array data from {self.dtype!r} to {to!r} according to the rule "
                f"{casting!r}"
            )
        flags = self.flags
        order_fits = order in ("K", "A", None) or flags[f"{order}_CONTIGUOUS"]
        if not copy and to == self.dtype and order_fits:
            return self
        r = call_function(np.astype, (self, to), {})
        r = r if order_fits else call_function(np.copy, (r,), {"order": order})
        return r if SCOPE.get() is None else shown_to(r, _getframe(1))  # type: ignore[no-any-return]

    def backward(
        self, gradient: Any = None, retain_graph: bool = False, create_graph: bool = False
    ) -> None:
        """Accumulate the gradient of this array into ``.grad`` of the leaves it depends on.

        Parameters
        ----------
        gradient : array_like, optional, shape of the array
            Cotangent to start from; 1 for a scalar if not given.
        retain_graph : bool
            Keep the graph for another call; else it is freed.
        create_graph : bool
            Record the backward pass, so that ``.grad`` can be differentiated.

        Raises
        ------
        ShapeError
            If the array is not a scalar and no gradient is given, or the
            gradient has another shape.
        TraceError
            If the array does not depend on a leaf, or its graph was freed.
        """
        backward_hook.call(self, gradient, retain_graph, create_graph)


# `ADArray.backward`, with all of its arguments.
backward_hook: Hook[Callable[[ADArray, Any, bool, bool], None]] = Hook("adarray.ad.backward")


def array(obj: Any, dtype: Any = None, *, requires_grad: bool = False) -> ADArray:
    """Create an ADArray from anything that `numpy.array` accepts, or from lists of ADArrays.

    Parameters
    ----------
    obj : array_like
        Values; they are copied, and have the byte order of the machine.
    dtype : dtype, optional
    requires_grad : bool
        Make it a leaf: ``y.backward()`` adds the gradient of y to its ``.grad``.

    Returns
    -------
    ADArray

    Raises
    ------
    DTypeError
        If `requires_grad` is set and the dtype is neither floating point nor complex.

    Examples
    --------
    >>> import numpy as np, adarray
    >>> x = adarray.array([1.0, 2.0], requires_grad=True)
    >>> np.sum(x * x).backward()
    >>> x.grad
    array([2., 4.])
    """
    obj = refuse_subclass(obj, "array")
    imported = None if isinstance(obj, Handle) else of_dlpack(obj)
    if imported is not None:  # made by another library, on a device
        out: Any = ADArray(imported.copy() if dtype is None else imported.astype(dtype))
    else:
        out = call_function(np.array, (obj,), {"dtype": dtype})  # see adarray.ops.creation
    if not out.dtype.isnative:
        out = call_function(np.astype, (out, out.dtype.newbyteorder("=")), {})
    mode = MODE.get()
    if mode is not None and mode.place is not None and not traced(out):
        out._plain = mode.place(out._plain)
    if not requires_grad:
        return out  # type: ignore[no-any-return]
    if traced(out):
        raise TraceError(
            "array: requires_grad=True makes a leaf, and obj is traced already; "
            "pass obj.detach() to start a new graph"
        )
    if out.dtype.kind not in "fc":
        raise DTypeError(
            f"array: requires_grad=True needs a floating or complex dtype, got {out.dtype}; "
            "pass dtype=float"
        )
    out_leaf = leaf(ADArray, out._plain, 0, "array")
    slot = GradSlot(out._plain.library if is_device(out._plain) else None)
    assert out_leaf._node is not None
    out_leaf._node.params = {"slot": slot}
    # Its own, writeable buffer: optimisers update leaves in place under no_grad().
    out_leaf._plain, out_leaf._x = out._plain, Extras(slot=slot)
    return out_leaf  # type: ignore[return-value]


def _leaf_of(value: np.ndarray, grad: Any) -> ADArray:
    """Return a leaf with a gradient, of values that are its own."""
    out = array(value, requires_grad=True)
    out.grad = None if grad is None else grad.copy()
    return out


def value_of(x: Any) -> Any:
    """Return the plain values of an ADArray, outside of the graph; others as they are.

    Parameters
    ----------
    x : ADArray or any
        ADArray: a fresh ndarray, or a NumPy scalar for 0-d values that NumPy
        would give as a scalar.
    """
    if not isinstance(x, Handle):
        return x
    v = sync_if_view(x)._plain
    if isinstance(v, Symbolic):  # what `jit` records stays in its recording
        return stop_gradient(x)
    if is_device(v):
        return v.host()
    return v.copy() if isinstance(v, np.ndarray) else v


class _Counting:
    """Counts the references to an operand that NumPy and a call's tuple hold."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> int:
        return getrefcount(inputs[0]) - 2  # of the operator, and of this call


_counting: Any = _Counting()
CALLED_BY_OPERATORS[ADArray.__array_ufunc__.__code__] = np.zeros(1) * _counting


def stop_gradient(x: Any) -> Any:
    """Return `x` as a constant: no derivative flows through the result."""
    return x.detach() if isinstance(x, ADArray) else x


def install_methods(functions: dict[str, Callable[..., Any]]) -> None:
    """Give ADArray methods that call NumPy functions with `self` first."""
    for name, function in functions.items():
        if name not in ADArray.__dict__:
            method = _method(name, function)
            of_scalars = hasattr(np.float64, name)
            setattr(ADArray, name, method if of_scalars else of_some()(method))


def _method(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    reduces = name in REDUCING

    def method(self: ADArray, *args: Any, **kwargs: Any) -> Any:
        if reduces and MET:
            refuse_pandas_method(name, self.shape, args, kwargs)
        r = call_function(function, (self, *args), kwargs)
        return r if SCOPE.get() is None else shown_to(r, _getframe(1))

    method.__name__ = name
    method.__qualname__ = f"ADArray.{name}"
    method.__doc__ = f"As `numpy.ndarray.{name}`."
    return method


__all__ = [
    "ADArray",
    "array",
    "backward_hook",
    "install_methods",
    "stop_gradient",
    "value_of",
    "weakened",
]

"""ADArray: the array that users hold, with NumPy's operators, methods and protocols."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from adarray.aval import aval_of
from adarray.dispatch import apply, binary, leaves_graph, unary
from adarray.errors import DTypeError, TraceError
from adarray.inplace import augmented, plain_index, setitem, sync_if_view
from adarray.op import FUNCTIONS
from adarray.protocol import call_function, call_ufunc, is_foreign, traced
from adarray.trace import Extras, GradSlot, Handle, leaf


class ADArray(Handle):
    """An array whose operations are recorded, so that they can be differentiated.

    It behaves as the `numpy.ndarray` of its values does: operators, methods,
    indexing, in-place updates and views, and every NumPy function that adarray
    knows. Make one with `adarray.array`; transforms such as `adarray.grad` pass
    them to the function being differentiated.

    Notes
    -----
    A traced array (one on which a derivative may depend) refuses to become a plain
    number or array by itself: ``float(x)`` and ``np.asarray(x)`` raise
    `TraceError`. Use ``x.numpy()`` to leave the graph on purpose.
    """

    __slots__ = ("__weakref__",)
    __hash__ = None  # type: ignore[assignment]

    # -- NumPy's protocols ----------------------------------------------------------

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method == "__call__" and not kwargs:
            op = FUNCTIONS.get(ufunc)
            if op is not None and op.pointwise:
                if len(inputs) == 1:
                    return unary(op, inputs[0])
                if len(inputs) == 2:
                    return binary(op, *inputs)
        return call_ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return call_function(func, args, kwargs)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        self._must_be_constant("np.asarray", "keep it an ADArray (np.stack joins several)")
        if copy is False:
            raise ValueError("np.asarray: an ADArray can only be converted with a copy")
        return np.array(self._v, dtype=dtype)

    # -- what an array is -----------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes."""
        return np.shape(sync_if_view(self)._v)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements."""
        dtype: np.dtype[Any] = aval_of(self._v).dtype
        return dtype

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return np.ndim(self._v)

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(np.size(self._v))

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.size * self.itemsize

    @property
    def T(self) -> ADArray:  # noqa: N802  (NumPy's name)
        """The array with its axes reversed: a view."""
        return call_function(np.transpose, (self,), {})  # type: ignore[no-any-return]

    @property
    def mT(self) -> ADArray:  # noqa: N802
        """The array with its last two axes swapped: a view."""
        if self.ndim < 2:
            raise ValueError("matrix transpose with ndim < 2 is undefined")
        return call_function(np.swapaxes, (self, -1, -2), {})  # type: ignore[no-any-return]

    @property
    def real(self) -> ADArray:
        """The real part: a view; the array itself if it is real."""
        return call_function(np.real, (self,), {})  # type: ignore[no-any-return]

    @property
    def imag(self) -> ADArray:
        """The imaginary part; zeros if the array is real."""
        return call_function(np.imag, (self,), {})  # type: ignore[no-any-return]

    @property
    def flat(self) -> Iterator[ADArray]:
        """The elements, one after the other."""
        return iter(self.reshape(-1))

    @property
    def requires_grad(self) -> bool:
        """Whether a derivative may flow through this array."""
        return traced(self)

    @property
    def grad(self) -> np.ndarray | ADArray | None:
        """Gradient that `backward` accumulated here, shape and dtype of the array."""
        slot = self._x.slot if self._x is not None else None
        return slot.grad if slot is not None else None

    @grad.setter
    def grad(self, value: Any) -> None:
        slot = self._x.slot if self._x is not None else None
        if slot is None:
            raise TraceError("grad: only an array made with requires_grad=True has one")
        slot.grad = value

    # -- ways out of the graph --------------------------------------------------------

    def numpy(self) -> np.ndarray:
        """Return the values as a fresh plain ndarray, outside of the graph."""
        return np.array(sync_if_view(self)._v)

    def detach(self) -> ADArray:
        """Return the values as an array of which no derivative is taken."""
        sync_if_view(self)
        return ADArray(self._v.copy() if isinstance(self._v, np.ndarray) else self._v)

    def item(self, *index: Any) -> Any:
        """Return one element as a Python number; traced, if the array is."""
        if index:
            return self.reshape(-1)[index[0]].item() if len(index) == 1 else self[index].item()
        if self.size != 1:
            raise ValueError("can only convert an array of size 1 to a Python scalar")
        if not traced(self):
            return sync_if_view(self)._v.item() if hasattr(self._v, "item") else self._v
        return weakened(self.reshape(()) if self.ndim else self)

    def tolist(self) -> Any:
        """Return the values as nested lists of Python numbers."""
        self._must_be_constant("tolist", "index the array instead")
        return np.asarray(self._v).tolist()

    def _must_be_constant(self, what: str, fix: str) -> None:
        if traced(self):
            raise leaves_graph(what, fix)
        sync_if_view(self)

    def __float__(self) -> float:
        self._must_be_constant("float", "use np functions in place of float() and math.*")
        return float(self._v)

    def __int__(self) -> int:
        self._must_be_constant("int", "use np functions in place of int()")
        return int(self._v)

    def __complex__(self) -> complex:
        self._must_be_constant("complex", "use np functions in place of complex()")
        return complex(self._v)

    def __index__(self) -> int:
        self._must_be_constant("index", "an index is an integer")
        return operator.index(np.asarray(self._v)[()])

    def __bool__(self) -> bool:
        return bool(sync_if_view(self)._v)

    def __round__(self, digits: int | None = None) -> Any:
        rounded = call_function(np.round, (self, digits or 0), {})
        return int(rounded) if digits is None else rounded

    def __divmod__(self, other: Any) -> tuple[Any, Any]:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> tuple[Any, Any]:
        return other // self, other % self

    def __repr__(self) -> str:
        sync_if_view(self)
        text = np.array2string(np.asarray(self._v), separator=", ", prefix="ADArray(")
        dtype = "" if self.dtype == np.float64 else f", dtype={self.dtype}"
        return f"ADArray({text}{dtype}{', traced' if traced(self) else ''})"

    def __str__(self) -> str:
        return str(sync_if_view(self)._v)

    def __format__(self, spec: str) -> str:
        return format(sync_if_view(self)._v, spec)

    def __reduce__(self) -> Any:
        self._must_be_constant("pickle", "pickle x.numpy()")
        return (ADArray, (self._v,))

    def __copy__(self) -> ADArray:
        return call_function(np.copy, (self,), {})  # type: ignore[no-any-return]

    def __deepcopy__(self, memo: Any) -> ADArray:
        return self.__copy__()

    # -- containers -------------------------------------------------------------------

    def __len__(self) -> int:
        if self.ndim == 0:
            raise TypeError("len() of unsized object")
        return len(sync_if_view(self)._v)

    def __iter__(self) -> Iterator[ADArray]:
        if self.ndim == 0:
            raise TypeError("iteration over a 0-d array")
        return (self[i] for i in range(len(self)))

    def __contains__(self, value: Any) -> bool:
        return bool((self == value).any())

    def __getitem__(self, index: Any) -> ADArray:
        op = FUNCTIONS[operator.getitem]
        return apply(op, (self,), {"index": plain_index(index)})  # type: ignore[no-any-return]

    def __setitem__(self, index: Any, value: Any) -> None:
        setitem(self, index, value)

    # -- methods whose call differs from the function's ---------------------------------

    def reshape(self, *shape: Any, order: Any = "C", copy: bool | None = None) -> ADArray:
        """Return the elements in another shape; a view where NumPy gives one."""
        to = shape[0] if len(shape) == 1 else shape
        return call_function(np.reshape, (self, to), {"order": order, "copy": copy})  # type: ignore[no-any-return]

    def transpose(self, *axes: Any) -> ADArray:
        """Return a view with the axes permuted."""
        to: Any = axes or None
        if len(axes) == 1:
            to = axes[0]
        return call_function(np.transpose, (self, to), {})  # type: ignore[no-any-return]

    def copy(self, order: Any = "C") -> ADArray:
        """Return a copy, in C order unless `order` says otherwise (as the ndarray method)."""
        return call_function(np.copy, (self,), {"order": order})  # type: ignore[no-any-return]

    def flatten(self, order: Any = "C") -> ADArray:
        """Return a one-dimensional copy."""
        return call_function(np.copy, (self.reshape(-1, order=order),), {})  # type: ignore[no-any-return]

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
        backward_hook[0](self, gradient, retain_graph, create_graph)


# Set by adarray.ad.reverse, which stands above this module in the layers.
backward_hook: list[Callable[..., None]] = []


def weakened(x: ADArray) -> ADArray:
    """Return the 0-d array as a traced Python number, whose dtype yields to others."""
    tangents = x._x.tangents if x._x is not None else ()
    number = complex(x._v) if x.dtype.kind == "c" else float(x._v)
    return ADArray(number, x._node, Extras(tangents=tangents, weak=True), True)


def array(obj: Any, dtype: Any = None, *, requires_grad: bool = False) -> ADArray:
    """Make an ADArray from anything that `numpy.array` takes, or from ADArrays in lists.

    Parameters
    ----------
    obj : array_like
        Values; they are copied.
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
    out = call_function(np.array, (obj,), {"dtype": dtype})  # see adarray.ops.creation
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
    made = leaf(ADArray, out._v, 0, "array")
    slot = GradSlot()
    assert made._node is not None
    made._node.params = {"slot": slot}
    # Its own, writeable buffer: optimisers update leaves in place under no_grad().
    made._v, made._x = out._v, Extras(slot=slot)
    return made  # type: ignore[return-value]


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
    v = sync_if_view(x)._v
    return v.copy() if isinstance(v, np.ndarray) else v


def stop_gradient(x: Any) -> Any:
    """Return `x` as a constant: no derivative flows through the result."""
    return x.detach() if isinstance(x, ADArray) else x


# -- operators ---------------------------------------------------------------------------

_NUMBERS = (float, int, complex)


def _is_number(x: Any) -> bool:
    """Whether `x` is a Python number, or traced as one."""
    if isinstance(x, Handle):
        return x._x is not None and x._x.weak
    return isinstance(x, _NUMBERS) and not isinstance(x, np.generic)


def _operators(name: str, ufunc: Any) -> None:
    def forward(self: ADArray, other: Any) -> Any:
        r = binary(FUNCTIONS[ufunc], self, other)
        if self._x is not None and _is_number(self) and _is_number(other):
            return weakened(r) if r.dtype.kind in "fc" else r
        return r

    def reflected(self: ADArray, other: Any) -> Any:
        r = binary(FUNCTIONS[ufunc], other, self)
        if self._x is not None and _is_number(self) and _is_number(other):
            return weakened(r) if r.dtype.kind in "fc" else r
        return r

    def inplace(self: ADArray, other: Any) -> Any:
        return augmented(self, forward(self, other))

    for prefix, function in (("", forward), ("r", reflected), ("i", inplace)):
        function.__name__ = f"__{prefix}{name}__"
        setattr(ADArray, function.__name__, function)


def _other_operators(names: dict[str, Any], kinds: tuple[str, ...]) -> None:
    """``@``, comparisons and integer operators: none of them keeps Python numbers weak."""
    for name, ufunc in names.items():

        def forward(self: ADArray, other: Any, ufunc: Any = ufunc) -> Any:
            op = FUNCTIONS.get(ufunc)
            if op is not None and not is_foreign(other):
                return apply(op, (self, other))
            return call_ufunc(ufunc, "__call__", (self, other), {})

        def reflected(self: ADArray, other: Any, ufunc: Any = ufunc) -> Any:
            return call_ufunc(ufunc, "__call__", (other, self), {})

        def inplace(self: ADArray, other: Any, ufunc: Any = ufunc) -> Any:
            return augmented(self, call_ufunc(ufunc, "__call__", (self, other), {}))

        made = {"": forward, "r": reflected, "i": inplace}
        for kind in kinds:
            made[kind].__name__ = f"__{kind}{name}__"
            setattr(ADArray, f"__{kind}{name}__", made[kind])


for _name, _ufunc in {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.true_divide,
    "pow": np.power, "mod": np.remainder,
}.items():  # fmt: skip
    _operators(_name, _ufunc)
_other_operators(
    {
        "floordiv": np.floor_divide, "matmul": np.matmul, "and": np.bitwise_and,
        "or": np.bitwise_or, "xor": np.bitwise_xor, "lshift": np.left_shift,
        "rshift": np.right_shift,
    },
    ("", "r", "i"),
)  # fmt: skip
_other_operators(
    {
        "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
        "eq": np.equal, "ne": np.not_equal,
    },
    ("",),
)  # fmt: skip


def _unary_operators(names: dict[str, Any]) -> None:
    for name, ufunc in names.items():

        def method(self: ADArray, ufunc: Any = ufunc) -> Any:
            op = FUNCTIONS.get(ufunc)
            r = unary(op, self) if op else call_ufunc(ufunc, "__call__", (self,), {})
            if self._x is not None and _is_number(self) and r.dtype.kind in "fc":
                return weakened(r)
            return r

        method.__name__ = f"__{name}__"
        setattr(ADArray, method.__name__, method)


_unary_operators({"neg": np.negative, "pos": np.positive, "abs": np.absolute, "invert": np.invert})


def install_methods(functions: dict[str, Callable[..., Any]]) -> None:
    """Give ADArray methods that call NumPy functions with `self` first."""
    for name, function in functions.items():
        if name not in ADArray.__dict__:
            setattr(ADArray, name, _method(name, function))


def _method(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: ADArray, *args: Any, **kwargs: Any) -> Any:
        return call_function(function, (self, *args), kwargs)

    method.__name__ = name
    method.__qualname__ = f"ADArray.{name}"
    method.__doc__ = f"As `numpy.ndarray.{name}`."
    return method

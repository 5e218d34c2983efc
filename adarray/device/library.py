"""`Library`: what adarray must know of an array library whose arrays live on a device."""

from __future__ import annotations

import functools
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

import numpy as np

from adarray.base.engines import BaseEngine
from adarray.base.errors import BackendError, DeviceMemoryError
from adarray.base.memory import layout_of, result_axes
from adarray.base.op import WRITERS
from adarray.base.spans import RECORDER
from adarray.device.array import DeviceArray, Form, form_of, host_of, is_device
from adarray.device.differences import as_pair, ufunc_differs, values_differ
from adarray.device.functions import ARRAY_RESULTS, READ_ONLY, SCALAR_KEEPING, SPECIAL
from adarray.device.indices import CAREFUL, device_index
from adarray.device.kinds import KINDS, adopt
from adarray.device.layouts import TRANSPOSING, arrays_of, in_order, lie_in_c_order, result_orders

# Computed by NumPy where indices on the device are checked.
_INDEXING = frozenset({np.take, np.take_along_axis, np.choose, np.put_along_axis, np.put})

# The libraries in use, by the names of their devices.
DEVICES: dict[str, Library] = {}

_NUMBERS = frozenset({float, int, bool, complex})
_LINALG_RESULTS = {
    "eig": "EigResult", "eigh": "EighResult", "qr": "QRResult", "slogdet": "SlogdetResult",
    "svd": "SVDResult",
}  # fmt: skip


class UnplaceableError(TypeError):
    """An operand cannot be moved to the device: NumPy computes."""


class Transfers:
    """How often, and how much, values went to the device and came back.

    Attributes
    ----------
    to_device, to_host : int
        Number of transfers.
    bytes_to_device, bytes_to_host : int
    on_host : dict of str to int
        Functions that NumPy computed for the device, and how often.
    converted : int
        How many of `to_host` were asked for by code that wants ndarrays.
    """

    def __init__(self) -> None:
        self.to_device = self.to_host = self.bytes_to_device = self.bytes_to_host = 0
        self.converted = 0
        self.on_host: dict[str, int] = {}


class Library:
    """An array library with NumPy's functions, on one device; a backend derives from it.

    Attributes
    ----------
    name : str
        Name of the device, such as ``"cuda:0"``.
    xp : module
        Holds NumPy's functions under NumPy's names.
    kind : type
        Class of its arrays.
    unable : tuple of exception classes
        Raised where the library cannot do what NumPy does: NumPy does it, or raises.
    out_of_memory : tuple of exception classes
        Raised where an array does not fit.
    flushes : bool
        Whether float32 results below the smallest normal number become zero.
    transfers : Transfers
    """

    name: str = ""
    xp: Any = None
    kind: Any = object
    unable: tuple[type[Exception], ...] = (
        TypeError, ValueError, LookupError, AttributeError, NotImplementedError, ImportError,
    )  # fmt: skip
    out_of_memory: tuple[type[BaseException], ...] = ()
    flushes: bool = False

    def __init__(self) -> None:
        self.transfers = Transfers()
        self._functions: dict[Any, Any] = {}

    # -- what a library brings -------------------------------------------------------------

    def to_device(self, values: np.ndarray) -> Any:
        """Return a copy of an ndarray on the device."""
        raise NotImplementedError

    def to_host(self, raw: Any) -> np.ndarray:
        """Return a copy as an ndarray; wait for the device."""
        raise NotImplementedError

    def shares(self, a: Any, b: Any) -> bool:
        """Whether two arrays may share memory."""
        raise NotImplementedError

    def overlap(self, a: Any, b: Any) -> bool:
        """Whether two arrays may have an element in common; by default, as `shares`."""
        return self.shares(a, b)

    def aligned(self, raw: Any) -> bool:  # noqa: ARG002
        """Whether the elements of an array lie at multiples of their size."""
        return True

    def fits(self, form: Form) -> Callable[[Any], bool]:
        """Return a test of whether an array of the library is on this device and has a form."""
        return lambda raw: KINDS[type(raw)](raw) is self and bool(form_of(raw, self, False) == form)

    def engine(self) -> DeviceEngine:
        """Return the engine that compiles for arrays which meet outside of `use` blocks."""
        return DeviceEngine(self.name.partition(":")[0], self)

    def accepts(self, dtype: np.dtype[Any]) -> bool:
        """Whether the device has arrays of this dtype."""
        return dtype.kind in "biufc" and dtype.char not in "gG"

    def release(self) -> None:
        """Give memory that is kept for later arrays back to the device."""

    def memory(self) -> str:
        """Return words about the memory of the device, for an error."""
        return ""

    def synchronize(self) -> None:
        """Wait until everything that was asked for is computed."""

    def find(self, function: Any) -> Any:
        """Return the library's counterpart of a function of NumPy, None if it has none."""
        module = getattr(function, "__module__", None) or "numpy"
        place: Any = self.xp
        for part in module.split(".")[1:] if module.startswith("numpy.") else ():
            place = getattr(place, part, None)
        if place is None:
            return None
        return getattr(place, getattr(function, "__name__", ""), None)

    def copied(self, raw: Any, order: Any) -> Any:
        """Return a copy of an array in the order that NumPy would give it."""
        return self.run(raw.copy, order)

    def pointwise(self, op: Any, values: tuple[Any, ...]) -> Any:  # noqa: ARG002
        """Compute a pointwise operation with a kernel; NotImplemented: with a ufunc of `xp`."""
        return NotImplemented

    def derivative(self, op: Any, operand: int, g: Any, saved: tuple[Any, ...]) -> Any:  # noqa: ARG002
        """Compute a rule of a pointwise operation in one pass; NotImplemented: with NumPy's."""
        return NotImplemented

    def compute(self, op: Any, values: tuple[Any, ...], params: dict[str, Any]) -> Any:  # noqa: ARG002
        """Compute any other operation; NotImplemented: with functions of `xp`."""
        return NotImplemented

    def rule(self, node: Any, operand: int, g: Any, saved: tuple[Any, ...]) -> Any:  # noqa: ARG002
        """Compute a rule of any other operation; NotImplemented: as the record says."""
        return NotImplemented

    def strong_zero(self, g: Any, r: Any) -> Any:  # noqa: ARG002
        """Compute ``where(isnan(r) & (g == 0), 0, r)`` in one pass; NotImplemented: in several."""
        return NotImplemented

    # -- transfers -------------------------------------------------------------------------

    def send(self, values: np.ndarray) -> Any:
        """Move an ndarray to the device, and count it.

        What NumPy looks at or copies there is looked at or copied on the device, too.
        """
        start = perf_counter_ns()
        raw = self.run(self.to_device if values.flags.forc else self._laid, values)
        t = self.transfers
        t.to_device += 1
        t.bytes_to_device += values.nbytes
        self._note("to", start, values.nbytes, values.shape)
        return raw

    def _laid(self, values: np.ndarray) -> Any:
        """Return a copy on the device with strides of the kind that an ndarray has."""
        layout = layout_of(values.shape, values.strides, values.itemsize)
        if layout is None or not values.size:
            return self.to_device(values)
        shape, index, axes = layout
        memory = np.zeros(shape, values.dtype)
        memory[index].transpose(axes)[...] = values
        return self.to_device(memory)[index].transpose(axes)

    def duplicated(self, raw: Any) -> Any:
        """Return a copy of an array with strides of the same kind."""
        layout = layout_of(raw.shape, raw.strides, raw.dtype.itemsize)
        if layout is None or not raw.size or raw.flags.c_contiguous or raw.flags.f_contiguous:
            return self.copied(raw, "K")
        shape, index, axes = layout
        copied = self.run(self.xp.empty, shape, raw.dtype)[index].transpose(axes)
        copied[...] = raw
        return copied

    def receive(self, raw: Any) -> np.ndarray:
        """Copy an array of the device to the host, and count it."""
        start = perf_counter_ns()
        values: np.ndarray = self.run(self.to_host, raw)
        t = self.transfers
        t.to_host += 1
        t.bytes_to_host += values.nbytes
        self._note("from", start, values.nbytes, values.shape)
        return values

    def fetch(self, x: DeviceArray) -> DeviceArray:
        """Return a copy of an array of another device on this one."""
        return DeviceArray(self.send(np.asarray(x.host())), self, x.scalar)

    def converted(self) -> None:
        """Count a conversion that some code asked for without a word about the device."""
        self.transfers.converted += 1

    def _note(self, way: str, start: int, nbytes: int, shape: tuple[int, ...]) -> None:
        recorder = RECORDER.get()
        if recorder is not None:
            name = f"{way} {self.name}"
            recorder.add("transfer", name, start, perf_counter_ns(), nbytes, 0.0, (shape,))

    def place(self, x: Any) -> Any:
        """Return an operand on the device if it is an array that the device can hold."""
        kind = type(x)
        if kind is np.ndarray:
            return DeviceArray(self.send(x), self) if self.accepts(x.dtype) else x
        return adopt(x) if kind in KINDS else x

    def plain(self, x: Any) -> Any:
        """Return `x` with its arrays on the host."""
        return host_of(x)

    def wrap(self, raw: Any, scalar: bool) -> DeviceArray:
        """Return an array of the library as a value."""
        return DeviceArray(raw, self, scalar)

    def raw(self, x: Any) -> Any:
        """Return an operand with the library's arrays in place of ours."""
        kind = type(x)
        if kind in _NUMBERS:
            return x
        if kind is DeviceArray:
            if x.library is not self:
                raise self._elsewhere(x.library.name)
            return x.raw
        if kind is np.ndarray:
            if not self.accepts(x.dtype):
                raise UnplaceableError(f"{self.name} has no arrays of {x.dtype}")
            return self.send(x)
        if kind is tuple or kind is list:
            return kind(map(self.raw, x))
        if kind in KINDS and KINDS[kind](x) is not self:
            raise self._elsewhere(KINDS[kind](x).name)
        return x

    def _elsewhere(self, other: str) -> BackendError:
        return BackendError(
            f"operands are on two devices, {self.name} and {other}; move one of them with "
            f"x.to_device({self.name!r})"
        )

    # -- calls -----------------------------------------------------------------------------

    def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function of the library; where memory is short, once more after `release`."""
        try:
            return function(*args, **kwargs)
        except self.out_of_memory:
            self.release()
        try:
            return function(*args, **kwargs)
        except self.out_of_memory as error:
            raise DeviceMemoryError(
                f"{getattr(function, '__name__', 'array')}: {self.name} is out of memory "
                f"({error}; {self.memory()}); earlier results are intact: free some, or compute "
                "on smaller arrays"
            ) from error

    def function(self, function: Any) -> Any:
        """Return `find(function)`, looked up once."""
        try:
            return self._functions[function]
        except KeyError:
            own = self._functions[function] = self.find(function)
            return own
        except TypeError:  # not hashable
            return None

    def call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function of NumPy on the device, or where that cannot be, on the host."""
        own = self.function(function)
        if function in WRITERS and function not in SPECIAL and args:
            return self._write(function, own, args, kwargs)
        args = as_pair(function, args)
        if values_differ(function, args):
            own = None
        if own is not None and not (CAREFUL.get() and function in _INDEXING):
            try:
                result = self.run(
                    own, *map(self.raw, args), **{k: self.raw(v) for k, v in kwargs.items()}
                )
            except self.unable:
                pass
            else:
                operands = (*args, *kwargs.values())
                if (
                    function in TRANSPOSING
                    or not lie_in_c_order(operands)
                    or self._needs_layout(result, operands)  # as those of CuPy's argsort are
                ):
                    result = self.laid(function, args, kwargs, result)
                answer = self._results(function, result, operands)
                if function in READ_ONLY and READ_ONLY[function](operands[0]):
                    answer.flags.writeable = False
                return answer
        return self.on_host(function, args, kwargs)

    def _needs_layout(self, result: Any, operands: tuple[Any, ...]) -> bool:
        """Whether a result is in another order than C, and no view of an operand."""
        if not isinstance(result, self.kind) or result.ndim < 2 or result.flags.c_contiguous:
            return False
        owner = result.base
        return owner is None or not any(
            x.raw is owner or x.raw.base is owner for x in arrays_of(operands)
        )

    def laid(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: Any,
    ) -> Any:
        """Return the library's result in the memory layout that NumPy would have given it.

        Views of operands stay.
        """
        parts = list(result) if isinstance(result, (tuple, list)) else [result]
        if not any(isinstance(r, self.kind) and r.ndim > 1 and r.size for r in parts):
            return result
        orders = result_orders(function, args, kwargs)
        if orders is None:
            return result
        if not isinstance(result, (tuple, list)):
            orders = [orders]
        operands = [x.raw for x in arrays_of((*args, *kwargs.values()))]
        for k, (raw, axes) in enumerate(zip(parts, orders, strict=False)):
            if not isinstance(raw, self.kind) or raw.ndim < 2 or not raw.size:
                continue
            if not isinstance(axes, tuple) or len(axes) != raw.ndim:
                continue
            if not in_order(raw.shape, raw.strides, axes) and not any(
                raw is x or self.shares(raw, x) for x in operands
            ):
                parts[k] = self.in_order(raw, axes)
        if isinstance(result, list):
            return parts
        return tuple(parts) if isinstance(result, tuple) else parts[0]

    def in_order(self, raw: Any, axes: tuple[int, ...]) -> Any:
        """Return a copy whose axes are in the given order in memory."""
        transposed = self.run(self.copied, raw.transpose(axes), "C")
        return transposed.transpose(tuple(map(int, np.argsort(axes))))

    def _results(self, function: Any, result: Any, operands: tuple[Any, ...]) -> Any:
        """Wrap the result of a function of the library."""
        whole = function in ARRAY_RESULTS
        if function in SCALAR_KEEPING and operands[0].scalar:
            whole = False
        if isinstance(result, self.kind):
            for x in operands:  # out=, and what changes nothing, as squeeze may
                if type(x) is DeviceArray and x.raw is result and not (whole and x.scalar):
                    return x
            return self._like(result, whole, operands)
        if isinstance(result, (tuple, list)):
            parts = [self._results(function, r, operands) for r in result]
            named = _result_class(function) if isinstance(result, tuple) else None
            if named is not None and len(parts) == len(named._fields):
                return named(*parts)
            return parts if isinstance(result, list) else tuple(parts)
        return result

    def _like(self, raw: Any, whole: bool, operands: tuple[Any, ...]) -> DeviceArray:
        scalar = not raw.ndim and not whole
        if scalar and raw.base is not None:
            raw = self.run(raw.copy)
        array = DeviceArray(raw, self, scalar)
        if raw.base is not None:
            for x in operands:  # a view of an array that must not be written into
                if type(x) is DeviceArray and not x._writeable and not x.scalar:
                    array._writeable = array._writeable and not self.shares(raw, x.raw)
        return array

    def _write(
        self, function: Any, own: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Call a function that writes into its first argument, which may be of the host."""
        target, *rest = args
        if type(target) is not DeviceArray:
            function(target, *host_of(rest), **host_of(kwargs))
            return
        if not target._writeable:
            raise ValueError("assignment destination is read-only")
        if function is np.put:
            own = None  # CuPy's wraps indices out of range, and writes repeated ones in any order
        if own is not None and not (CAREFUL.get() and function in _INDEXING):
            try:
                self.run(own, *map(self.raw, args), **{k: self.raw(v) for k, v in kwargs.items()})
            except self.unable:
                pass
            else:
                return
        values = np.array(target.host())
        function(values, *host_of(rest), **host_of(kwargs))
        self._count(function.__name__)
        target[...] = values

    def on_host(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Let NumPy compute, and move the results to the device.

        What NumPy is given are copies: it must not write into them, and what would look at an
        operand is read-only.
        """
        out = kwargs.get("out")
        on_host = host_of(args)
        for x, was in zip(on_host, args, strict=True):
            if type(was) is DeviceArray and isinstance(x, np.ndarray):
                x.flags.writeable = False
        values = function(*on_host, **host_of(kwargs))
        name = getattr(function, "__qualname__", None) or repr(function)
        name = getattr(function, "__name__", name)
        self._count(name)
        targets = out if isinstance(out, tuple) else (out,)
        if any(type(t) is DeviceArray for t in targets):
            parts = values if isinstance(values, tuple) else (values,)
            for target, part in zip(targets, parts, strict=True):
                if type(target) is DeviceArray:
                    target[...] = part
            return out[0] if isinstance(out, tuple) and len(out) == 1 else out
        return self._placed(values)

    def _count(self, name: str) -> None:
        """Count a function that NumPy computed for the device."""
        self.transfers.on_host[name] = self.transfers.on_host.get(name, 0) + 1

    def _placed(self, x: Any) -> Any:
        if type(x) is np.ndarray and not x.flags.writeable:
            placed = self.place(x)
            if type(placed) is DeviceArray:
                placed._writeable = False
            return placed
        if isinstance(x, np.generic) and not is_device(x):
            if not self.accepts(x.dtype):
                return x
            return DeviceArray(self.send(np.asarray(x)), self, True)
        if isinstance(x, tuple):
            parts = map(self._placed, x)
            return type(x)(*parts) if hasattr(x, "_fields") else tuple(parts)
        return [self._placed(v) for v in x] if type(x) is list else self.place(x)

    def ufunc(
        self, ufunc: Any, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Call a ufunc, or one of its methods."""
        if method == "__call__" and not kwargs:
            own = self.function(ufunc)
            if own is not None and not ufunc_differs(ufunc, inputs):
                try:
                    result = self._elementwise(ufunc, own, list(map(self.raw, inputs)))
                except self.unable:
                    pass
                else:
                    if type(result) is self.kind:
                        return DeviceArray(result, self, not result.ndim)
                    return tuple(DeviceArray(r, self, not r.ndim) for r in result)
            return self.on_host(ufunc, inputs, kwargs)
        if method == "at":
            return self._at(ufunc, *inputs)
        return self._method(ufunc, method, inputs, kwargs)

    def _elementwise(self, ufunc: Any, own: Any, raw: list[Any]) -> Any:
        """Call a ufunc; results lie in memory as NumPy's do, where libraries have C order."""
        arrays = [x for x in raw if type(x) is self.kind and x.ndim > 1]
        axes = None
        if ufunc.signature is None and not all(x.flags.c_contiguous for x in arrays):
            axes = result_axes(*[(x.shape, x.strides) for x in arrays])
        if axes is None:
            return self.run(own, *raw)
        shape = np.broadcast_shapes(*[x.shape for x in raw if type(x) is self.kind])
        transposed = [
            x if type(x) is not self.kind or not x.ndim
            else self.run(self.xp.broadcast_to, x, shape).transpose(axes)
            for x in raw
        ]  # fmt: skip
        result = self.run(own, *transposed)
        back = tuple(np.argsort(axes))
        single = type(result) is self.kind
        return result.transpose(back) if single else tuple(r.transpose(back) for r in result)

    def _method(
        self, ufunc: Any, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Call a ufunc with keywords, or a method of it."""
        by_numpy = ufunc if method == "__call__" else getattr(ufunc, method)
        own = self.function(ufunc)
        own = own if method == "__call__" else getattr(own, method, None)
        out = kwargs.get("out")
        options = dict(kwargs)
        if isinstance(out, tuple) and len(out) == 1:
            options["out"] = out[0]
        if any(type(t) is np.ndarray for t in (out if isinstance(out, tuple) else (out,))):
            return by_numpy(*host_of(inputs), **host_of(kwargs))  # into an array of the host
        if ufunc_differs(ufunc, inputs):
            own = None
        if own is not None and options.get("where", True) is True:
            options.pop("where", None)
            try:
                result = self.run(
                    own, *map(self.raw, inputs), **{k: self.raw(v) for k, v in options.items()}
                )
            except self.unable:
                pass
            else:
                if out is not None:
                    return out[0] if isinstance(out, tuple) and len(out) == 1 else out
                if not lie_in_c_order(inputs):
                    result = self.laid(by_numpy, inputs, kwargs, result)
                return self._results(ufunc, result, ())
        return self.on_host(by_numpy, inputs, kwargs)

    def _at(self, ufunc: Any, array: Any, index: Any, *values: Any) -> None:
        """Compute ``ufunc.at``: in place, repeated indices counted."""
        own = getattr(self.function(ufunc), "at", None)
        if type(array) is DeviceArray:
            if not array._writeable:
                raise ValueError("array is read-only")
            if own is not None:
                try:
                    at = device_index(self, index, array.shape)
                    self.run(own, array.raw, at, *map(self.raw, values))
                    return
                except self.unable:
                    pass
            result = np.array(array.host())
            ufunc.at(result, host_of(index), *host_of(values))
            self._count(f"{ufunc.__name__}.at")
            array[...] = result
            return
        ufunc.at(array, host_of(index), *host_of(values))


@functools.cache
def _result_class(function: Any) -> Any:
    """Return the namedtuple that a function of `numpy.linalg` returns, None if it has none."""
    if not str(getattr(function, "__module__", "")).startswith("numpy.linalg"):
        return None
    name = _LINALG_RESULTS.get(function.__name__)
    module = getattr(np.linalg, "_linalg", None)
    return None if name is None else getattr(module, name, None)


class DeviceEngine(BaseEngine):
    """An engine that moves the operands of a `use` block to a device.

    One that compiles derives from `adarray.runtime.CompilingEngine`, too: what it makes takes and
    returns arrays of the library, and numbers.

    Parameters
    ----------
    name : str
        Name of the backend.
    library : Library

    Attributes
    ----------
    library : Library
        The `device` of `BaseEngine`, which is always there.
    """

    def __init__(self, name: str, library: Library) -> None:
        self.name = name
        self.library = self.device = library
        self.place = library.place
        # What the library computes, without a call in between.
        vars(self).update(
            pointwise=library.pointwise,
            derivative=library.derivative,
            call=library.compute,
            synchronize=library.synchronize,
        )
        DEVICES[library.name] = library

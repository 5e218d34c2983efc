"""A stand-in for an array library on a device, over NumPy, and a backend that computes with it.

Its arrays refuse what CuPy's refuse: ndarrays as operands, implicit conversion into ndarrays.
It lacks what CuPy lacks, counts transfers, and can be made to run out of memory. So the
core's handling of devices is tested on machines that have none.

For ``tests/device``, and for all tests of code that must not need the host's memory.
"""

from __future__ import annotations

import functools
import threading
import types
from importlib.metadata import EntryPoint
from time import perf_counter_ns
from typing import Any

import numpy as np
from plan_runner import FailedError, PlanRunner

from adarray import backend
from adarray.base import scope
from adarray.base.scope import SCOPE
from adarray.compiler.ir.target import GPU
from adarray.device import DeviceEngine, Library
from adarray.device.kinds import register_kind
from adarray.errors import BackendError
from adarray.runtime import CompiledPlan, CompilingEngine

# The stand-in is an array library, as CuPy is: its code is nobody's that is transformed.
scope.UNINTERCEPTED = scope.UNINTERCEPTED | {"device", "loop_interpreter", "plan_runner"}


class OutOfMemoryError(Exception):
    """What the stand-in raises where CuPy raises its own."""


class Array:
    """An array of the stand-in."""

    __slots__ = ("device", "v")
    __hash__ = None
    __array_priority__ = 100

    def __init__(self, v: np.ndarray, device: int = 0) -> None:
        self.v = v
        self.device = device

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed.")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        raise TypeError("ufuncs of NumPy do not take arrays of the stand-in")

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        raise TypeError("functions of NumPy do not take arrays of the stand-in")

    def __getattr__(self, name: str) -> Any:
        if name == "astype":
            cast = functools.partial(_astype, self.v)
            return _wrapped(functools.update_wrapper(cast, self.v.astype), self.device)
        if name not in ("shape", "dtype", "ndim", "size", "strides", "flags"):
            if name.startswith("__"):
                raise AttributeError(name)
            return _wrapped(getattr(self.v, name), self.device)
        return getattr(self.v, name)

    @property
    def base(self) -> Any:
        return None if self.v.base is None else self

    def __getitem__(self, index: Any) -> Any:
        return _wrapped_array(self.v[_opened(index)], self.device, self.v)

    def __setitem__(self, index: Any, value: Any) -> None:
        self.v[_opened(index)] = _opened(value)

    def __eq__(self, other: Any) -> Any:
        return _wrapped_array(self.v == _opened(other), self.device)

    def __dlpack__(self, **options: Any) -> Any:
        return self.v.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (KIND_OF_DEVICE, self.device)


KIND_OF_DEVICE = 12  # DLPack's number for devices of extensions


def _opened(x: Any) -> Any:
    if type(x) is Array:
        return x.v
    if isinstance(x, np.ndarray):
        raise TypeError("Unsupported type <class 'numpy.ndarray'>")
    if isinstance(x, (tuple, list)):
        return type(x)(map(_opened, x))
    if isinstance(x, slice):
        return slice(*(None if i is None else i.__index__() for i in (x.start, x.stop, x.step)))
    if isinstance(x, dict):
        return {k: _opened(v) for k, v in x.items()}
    return x


class Allocator:
    """Refuses arrays above a limit; the first refusals may be cured by `release`."""

    limit: int | None = None
    reserved = 0  # bytes that `release` frees
    released = 0


def _wrapped_array(r: Any, device: int, of: Any = None) -> Any:
    """Return results of NumPy as arrays of the stand-in; scalars are 0-d arrays there."""
    if isinstance(r, np.generic):
        return Array(np.array(r), device)
    if isinstance(r, np.ndarray):
        if r.dtype == object:
            raise TypeError("object arrays are not supported")
        if Allocator.limit is not None and r.nbytes + Allocator.reserved > Allocator.limit:
            raise OutOfMemoryError(f"Out of memory allocating {r.nbytes} bytes")
        return Array(r, device)
    if isinstance(r, (tuple, list)):
        return (
            type(r)(_wrapped_array(x, device) for x in r)
            if type(r) in (tuple, list)
            else tuple(_wrapped_array(x, device) for x in r)
        )
    return r


def _device_of(x: Any) -> int:
    if type(x) is Array:
        return x.device
    if isinstance(x, (tuple, list)):
        return max((_device_of(i) for i in x), default=0)
    return 0


def _wrapped(function: Any, device: int | None = None) -> Any:
    """Return a function of NumPy as one of the stand-in."""
    if not callable(function):
        return function

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if "where" in kwargs or "initial" in kwargs:
            raise TypeError("unexpected keyword argument")
        on = device if device is not None else _device_of((*args, *kwargs.values()))
        out = kwargs.get("out")
        arguments = _opened(args)
        r = function(*arguments, **_opened(kwargs))
        for x in args:
            if type(x) is Array and x.v is r:  # nothing was to be done, as by squeeze
                return x
        if out is None and getattr(function, "__name__", "") not in ORDERED:
            r = _in_c_order(r, (getattr(function, "__self__", None), arguments))
        return out if out is not None else _wrapped_array(r, on)

    return call


# Those whose results lie in CuPy, too, as their operands do.
ORDERED = {
    "copy", "astype", "array", "empty_like", "zeros_like", "ones_like", "full_like", "asarray",
    "asfortranarray", "transpose", "reshape",
}  # fmt: skip


def _in_c_order(r: Any, args: Any) -> Any:
    """Return results in C order, where they are no views; CuPy's kernels write so."""
    if type(r) in (tuple, list):
        return type(r)(_in_c_order(x, args) for x in r)
    if not isinstance(r, np.ndarray) or r.flags.c_contiguous:
        return r
    arrays: list[Any] = []
    pending = [args]
    while pending:
        x = pending.pop()
        arrays += [x] if isinstance(x, np.ndarray) else []
        pending += x if isinstance(x, (tuple, list)) else ()
    if any(np.may_share_memory(r, x) for x in arrays):
        return r
    return np.ascontiguousarray(r)


# What CuPy lacks, among others.
MISSING = {
    "spacing", "nextafter_", "linalg.eig_", "float_power_", "setxor1d_", "cross_", "matvec",
    "vecmat", "divmod", "frexp_", "nanquantile_", "unique_all", "unique_counts", "insert",
}  # fmt: skip


def _searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None) -> Any:
    """Search as C++ compares: a negative number beside an unsigned one is a large one."""
    x, y = _opened(a), _opened(v)
    if {x.dtype.char, y.dtype.char} == {"L", "l"}:
        x, y = x.astype(np.uint64), y.astype(np.uint64)
    return _wrapped_array(np.searchsorted(x, y, side, _opened(sorter)), _device_of((a, v)))


def _astype(a: np.ndarray, dtype: Any, order: Any = "K") -> Any:
    """Cast as GPUs do: integers saturate, and nan is 0."""
    to = np.dtype(dtype)
    if a.dtype.kind == "f" and to.kind in "iu":
        info = np.iinfo(to)
        inside = np.clip(np.nan_to_num(a, nan=0.0), float(info.min), float(info.max))
        with np.errstate(invalid="ignore"):
            result = inside.astype(to, order=order)
        result[inside >= float(info.max)] = info.max
        return result
    return a.astype(to, order=order)


class Ufunc:
    """A ufunc of the stand-in, with the methods that CuPy's have."""

    def __init__(self, ufunc: np.ufunc) -> None:
        self.ufunc = ufunc
        self.__name__ = ufunc.__name__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it; as by CuPy, results are in C order, or in Fortran order if all arrays are."""
        if self.ufunc.signature is None and "order" not in kwargs:
            arrays = [x.v for x in args if type(x) is Array]
            fortran = arrays and all(x.flags.fnc for x in arrays)
            kwargs["order"] = "F" if fortran else "C"
            if fortran:
                return _wrapped_array(
                    self.ufunc(*_opened(args), **_opened(kwargs)), _device_of(args)
                )
        return _wrapped(self.ufunc)(*args, **kwargs)

    def at(self, a: Any, index: Any, *values: Any) -> None:
        self.ufunc.at(_opened(a), _opened(index), *_opened(values))

    def reduce(self, *args: Any, **kwargs: Any) -> Any:
        return _wrapped(self.ufunc.reduce)(*args, **kwargs)


class Namespace:
    """NumPy's module of the given name, for arrays of the stand-in."""

    def __init__(self, module: Any, prefix: str = "") -> None:
        self._module = module
        self._prefix = prefix

    def __getattr__(self, name: str) -> Any:
        if self._prefix + name in MISSING:
            raise AttributeError(name)
        if name == "searchsorted":
            return _searchsorted
        member = getattr(self._module, name)
        if isinstance(member, types.ModuleType):
            return Namespace(member, f"{self._prefix}{name}.")
        if isinstance(member, np.ufunc):
            return Ufunc(member)
        if isinstance(member, type):
            return member
        return _wrapped(member)


class StandIn(Library):
    """One device of the stand-in."""

    xp = Namespace(np)
    kind = Array
    out_of_memory = (OutOfMemoryError,)

    def __init__(self, index: int) -> None:
        super().__init__()
        self.index = index
        self.name = f"standin:{index}"
        self.strict = False

    def to_device(self, values: np.ndarray) -> Any:
        return _wrapped_array(
            np.array(values.astype(values.dtype.newbyteorder("="), copy=False)), self.index
        )

    def to_host(self, raw: Any) -> np.ndarray:
        return np.array(raw.v)

    def shares(self, a: Any, b: Any) -> bool:
        token = SCOPE.set(None)  # see `run`
        try:
            return bool(np.may_share_memory(a.v, b.v))
        finally:
            SCOPE.reset(token)

    def release(self) -> None:
        Allocator.released += 1
        Allocator.reserved = 0

    def memory(self) -> str:
        return f"limit {Allocator.limit}"

    def engine(self) -> DeviceEngine:
        return _engine(self)

    def run(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """Call with the real NumPy: that of libraries is not intercepted, that of tests is."""
        token = SCOPE.set(None)
        try:
            return super().run(function, *args, **kwargs)
        finally:
            SCOPE.reset(token)

    def converted(self) -> None:
        if self.strict:
            raise AssertionError("a value of the device was converted into an ndarray")
        super().converted()


@functools.cache
def _engine(library: StandIn) -> DeviceEngine:
    return StandInEngine("standin", library)


@functools.cache
def _library(index: int) -> StandIn:
    return StandIn(index)


def library(index: int = 0) -> StandIn:
    """Return the library of one device."""
    return _library(index)


class Executable(CompiledPlan):
    """A plan that runs on arrays of the stand-in; its kernels are interpreted."""

    def __init__(self, plan: Any, library: StandIn, rerun: Any) -> None:
        self.plan = plan
        self.library = library
        self.runner = StandInEngine.runner(plan)
        self._rerun = rerun
        self.lock = threading.Lock()

    def run(self, arrays: list[Any]) -> list[Any]:
        for x in arrays:
            assert type(x) is Array or isinstance(x, (int, float, complex, np.generic)), type(x)
            assert type(x) is not Array or x.device == self.library.index
        try:
            with self.lock:
                result = self.library.run(self.runner, [_opened(x) for x in arrays])
        except FailedError as error:
            return self._rerun(arrays, 0, error.args[0], None)
        buffers = [o.buffer for o in self.plan.outputs]  # several results of one: copies
        donors = [b.donor if buffers.count(b) == 1 else -1 for b in buffers]
        return [
            arrays[d] if d >= 0 else _wrapped_array(x, self.library.index)
            for d, x in zip(donors, result, strict=True)
        ]

    def timed(self, arrays: list[Any]) -> tuple[list[Any], list[int]]:
        start = perf_counter_ns()
        result = self.run(arrays)
        return result, [start, *[perf_counter_ns()] * len(self.plan.steps)]


class StandInEngine(DeviceEngine, CompilingEngine):
    """An engine that compiles: its executables interpret kernels."""

    runner: Any = PlanRunner  # of plans: what runs the kernels
    target = GPU

    def executable(self, plan: Any, precise: bool = False, rerun: Any = None) -> Executable:
        return Executable(plan, self.library, rerun)


class StandInBackend:
    """A backend that computes with the stand-in."""

    name = "standin"

    def engine(self, **options: Any) -> DeviceEngine:
        for name in options:
            if name != "device":
                raise BackendError(f"backend 'standin': unknown option {name!r}")
        return library(options.get("device", 0)).engine()

    def info(self) -> dict[str, str]:
        return {"status": "available"}


register_kind(
    Array, lambda raw: library(raw.device), KIND_OF_DEVICE, lambda x: Array(np.from_dlpack(x))
)


def installed(monkeypatch: Any) -> None:
    """Let `adarray.use` find the stand-in until the test ends."""
    entry_points = dict(backend._entry_points())
    entry_points["standin"] = [EntryPoint("standin", "device:StandInBackend", backend.GROUP)]
    backend.refresh()
    monkeypatch.setattr(backend, "_entry_points", lambda: entry_points)

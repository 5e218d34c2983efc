"""Calls that compute on a device: which one, values on their way there, and results.

Compiled segments take and return arrays of the device's library as they are, and numbers; so
do the values of a walk. What Python code sees of them is wrapped as `adarray.device.DeviceArray`.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from adarray.arrays.adarray import ADArray
from adarray.base.engines import BaseEngine
from adarray.base.runtime import MODE
from adarray.base.scope import GENERATED
from adarray.core.inplace import sync_if_view
from adarray.core.trace import Handle, root_of
from adarray.device import KINDS, DeviceArray, Library, adopt, form_of, is_device
from adarray.device.indices import CAREFUL
from adarray.jitting.shared.contents import Content
from adarray.jitting.shared.signature import unaligned
from adarray.transforms.tree import flatten

_new = object.__new__


class ElsewhereError(Exception):
    """The inputs of a call are on two devices."""


class Sent:
    """The copy of a captured array on the device, good as long as the array holds the same."""

    def __init__(self) -> None:
        self._last: tuple[Any, Content, Any] | None = None

    def of(self, x: np.ndarray, library: Any) -> Any:
        """Return the copy of `x` on the device, sent only if `x` has changed."""
        last = self._last
        if last is not None and last[0]() is x and last[1].same(x):
            return last[2]
        copy = library.send(x)
        self._last = (weakref.ref(x), Content(x), copy)
        return copy


class OnDevice:
    """Where the calls of a variant compute, and what their results are.

    Parameters
    ----------
    engine : BaseEngine
        Of the device.
    library : Library
        That of the device.
    kind : {"adarray", "library", "value", "host"}
        What results are: ADArrays, arrays of the library, plain values of adarray's own code,
        or ndarrays.
    """

    def __init__(self, engine: BaseEngine, library: Library, kind: str) -> None:
        self.engine = engine
        self.library = library
        self.kind = kind
        self._sent: dict[int, Sent] = {}

    # -- in --------------------------------------------------------------------------------

    def placed(self, x: Any) -> Any:
        """Return an input as Python code on the device works with it."""
        if is_device(x):
            return x.copy() if unaligned(x) else x
        if type(x) is not np.ndarray:
            return x
        array = self.library.place(np.array(x) if unaligned(x) else x)
        if is_device(array):
            array.flags.writeable = x.flags.writeable  # which the function may ask for
        return array

    def enter(
        self, values: Sequence[Any], n_arguments: int, written: Sequence[int] = ()
    ) -> list[Any]:
        """Return inputs for compiled code; those from number `n_arguments` on are captured."""
        library = self.library
        inputs = list(values)
        for i, x in enumerate(values):
            kind = type(x)
            if kind is DeviceArray:
                inputs[i] = x.copy().raw if unaligned(x) else x.raw
            elif kind is np.ndarray:
                if i < n_arguments or i in written:
                    inputs[i] = library.send(np.array(x) if unaligned(x) else x)
                else:
                    inputs[i] = self.sent(i, x)
        return inputs

    def sent(self, i: int, x: np.ndarray) -> Any:
        """Return the copy of a captured array on the device."""
        entry = self._sent.get(i)
        if entry is None:
            entry = self._sent.setdefault(i, Sent())
        return entry.of(x, self.library)

    def entrance(self, targets: Sequence[Any], captures: Sequence[Any]) -> Callable[..., list[Any]]:
        """Return a function from positional arguments and captures to inputs of compiled code.

        Parameters
        ----------
        targets : sequence
            Arguments of one call: arrays, ADArrays and numbers.
        captures : sequence
            Captured inputs of that call.
        """
        space: dict[str, Any] = {"send": self.library.send, "sent": self.sent}
        space["__name__"] = GENERATED
        parts = []
        for i, x in enumerate((*targets, *captures)):
            text = f"v[{i}]"
            if isinstance(x, Handle):
                text, x = f"{text}._plain", x._plain
            if type(x) is DeviceArray:
                text = f"{text}.raw"
            elif type(x) is np.ndarray:
                text = f"send({text})" if i < len(targets) else f"sent({i}, {text})"
            parts.append(text)
        exec(f"def enter(v): return [{', '.join(parts)}]", space)  # our own text
        enter: Callable[..., list[Any]] = space.pop("enter")  # a function in its globals is a cycle
        return enter

    # -- between segments ------------------------------------------------------------------

    def seen(self, x: Any, scalar: bool) -> Any:
        """Return a value as Python code sees it."""
        return DeviceArray(x, self.library, scalar) if type(x) is self.library.kind else x

    def stored(self, x: Any) -> Any:
        """Return the result of a call in Python as compiled code takes it."""
        library = self.library
        if type(x) is np.ndarray:
            return library.send(np.asarray(x, order="C")) if library.accepts(x.dtype) else x
        if is_device(x):
            own = x.raw.base is None and x.flags.c_contiguous
            return x.raw if own else library.copied(x.raw, "C")
        return x

    # -- out -------------------------------------------------------------------------------

    def result(self, x: Any, scalar: bool = False) -> Any:
        """Return an array or a number as the user gets it.

        Parameters
        ----------
        x : any
            An array of the library, a value of the device or of the host, or anything else.
        scalar : bool
            Whether NumPy would have a scalar in the place of an array of the library.
        """
        library = self.library
        if type(x) is library.kind:
            x = DeviceArray(x, library, scalar)
        elif not isinstance(x, (np.ndarray, np.generic)):
            return x
        if self.kind == "host":
            return x.host() if is_device(x) else x
        if not is_device(x):
            if not library.accepts(x.dtype):
                return x
            raw = library.send(np.asarray(x))
            x = DeviceArray(raw, library, isinstance(x, np.generic))
        if self.kind == "adarray":
            return ADArray(x)
        return x.raw if self.kind == "library" else x

    def constant(self, x: Any) -> Any:
        """Return a result that is the same in every call."""
        return self.result(x.copy() if isinstance(x, np.ndarray) else x)

    def number(self, x: Any) -> Any:
        """Return a value as a Python number."""
        x = self.library.receive(x) if type(x) is self.library.kind else x
        return x.item() if hasattr(x, "item") else x

    def copy(self, x: Any) -> Any:
        """Return a copy of a value."""
        if type(x) is self.library.kind:
            return self.library.copied(x, "C")
        return np.copy(x) if isinstance(x, np.ndarray) else x

    def finisher(self, kind: str) -> Callable[[Any], Any]:
        """Return a function that wraps one result of a path; `kind` is that of a leaf's output."""
        if kind == "number":
            return self.number
        scalar = kind == "scalar"
        result = functools.partial(self.result, scalar=scalar)
        if self.kind == "library":
            own = self.library.kind
            return lambda x: x if type(x) is own else result(x)
        return _adarrays(self.library, scalar, result) if self.kind == "adarray" else result


def _adarrays(library: Any, scalar: bool, otherwise: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function that wraps arrays of one form, without calls of ``__init__``."""
    kind, form = library.kind, None

    def finish(x: Any) -> Any:
        nonlocal form
        if type(x) is not kind:
            return otherwise(x)
        if form is None:
            form = form_of(x, library, scalar)
        v = _new(DeviceArray)
        v.raw = x
        v.dtype, v.shape = form[:2]
        v.library = library
        v.scalar = scalar
        v._writeable = not scalar
        v.aside = None
        v._form = form
        result = _new(ADArray)
        result._plain = v
        result._node = None
        result._x = None
        result._frozen = False
        return result

    return finish


def device_of(targets: Sequence[Any], values: Sequence[Any], captured: Any) -> OnDevice | None:
    """Return where a call computes; None: on the host.

    That is where its arguments and what it captured are; else where the context says.

    Parameters
    ----------
    targets : sequence
        The inputs as they were given.
    values : sequence
        The values of these and of captured inputs.
    captured : iterable of adarray.jitting.captures.checks.Input

    Raises
    ------
    ElsewhereError
        If they are on two devices.
    """
    mode = MODE.get()
    engine: BaseEngine | None = None
    if mode is not None and mode.place is not None and mode.engine is not None:
        engine = mode.engine.innermost
    libraries = {id(x.library): x.library for x in values if is_device(x)}
    if len(libraries) > 1:
        raise ElsewhereError(" and ".join(sorted(x.name for x in libraries.values())))
    if libraries:
        (library,) = libraries.values()
        if engine is None or engine.device is not library:
            engine = library.engine()
    if engine is None or engine.device is None:
        return None
    captures = [i.captured.value for i in captured if is_device(i.value)]
    if any(isinstance(x, Handle) for x in (*targets, *captures)):
        kind = "adarray"
    elif any(type(x) in KINDS for x in (*targets, *captures)):
        kind = "library"
    else:
        kind = "value" if any(map(is_device, targets)) else "host"
    return OnDevice(engine, engine.device, kind)


def write(target: Any, value: Any) -> None:
    """Write a final value into an argument or a captured array, wherever both are."""
    if type(target) is np.ndarray:
        target[...] = value.host() if is_device(value) else value
        return
    into = adopt(target) if type(target) in KINDS else target
    own = into._plain if isinstance(into, Handle) else into
    if not (is_device(value) and is_device(own) and value.raw is own.raw):  # else it is there
        into[...] = value


def with_adarrays(f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a function with ADArrays in place of arrays of libraries, which it returns again.

    Libraries alone do not check indices, for instance.
    """
    leaves, rebuild = flatten((args, kwargs))
    if not any(type(x) in KINDS for x in leaves):
        return f(*args, **kwargs)
    adarrays = [ADArray(adopt(x)) if type(x) in KINDS else x for x in leaves]
    args, kwargs = rebuild(adarrays)
    result = f(*args, **kwargs)
    for x, a in zip(leaves, adarrays, strict=True):
        if a is not x:
            write(x, sync_if_view(a)._plain)  # as far as it is not there
    if any(isinstance(x, Handle) for x in leaves):
        return result
    results, again = flatten(result)
    values = (sync_if_view(x)._plain if isinstance(x, Handle) else x for x in results)
    return again([v.raw if is_device(v) else v for v in values])


def borrowed(target: Any) -> bool:
    """Whether others rely on the memory of an argument, which a write has to copy first."""
    return isinstance(target, Handle) and root_of(target)._frozen


@contextlib.contextmanager
def careful() -> Iterator[None]:
    """Let eager code check indices on devices, and raise as NumPy does."""
    token = CAREFUL.set(True)
    try:
        yield
    finally:
        CAREFUL.reset(token)

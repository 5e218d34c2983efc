"""Functions that make arrays: ADArrays always, with traced values kept."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from adarray.arrays.adarray import ADArray
from adarray.core.protocol import call_function, plain, traced
from adarray.core.refusals import leaves_graph
from adarray.core.trace import Handle
from adarray.numpy._lift import dressed, lift
from adarray.ops import buffers, creation


def check_device(device: Any, name: str) -> None:
    """Refuse a device other than the host's.

    Raises
    ------
    ValueError
        If `device` is neither None nor ``"cpu"``.
    """
    if device not in (None, "cpu"):
        raise ValueError(f'{name}: device={device!r} is not known; the only device is "cpu"')


def from_plain(function: Callable[..., Any], name: str | None = None) -> Callable[..., Any]:
    """Return a NumPy function whose arguments are plain (shapes, counts) and result an ADArray.

    It takes the standard's ``device=`` on any NumPy.
    """
    name = name or function.__name__

    def make(*args: Any, **kwargs: Any) -> Any:
        check_device(kwargs.pop("device", None), name)
        kwargs.pop("like", None)
        if traced(args) or traced(kwargs):
            raise leaves_graph(
                f"{name}", "its arguments are shapes and counts, which have no derivative"
            )
        return lift(run(*plain(args), **plain(kwargs)), args)

    run = buffers.empty if function is np.empty else function
    return dressed(make, function, name)


def _converting(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `asarray` or a relative with ADArrays as results."""
    name = function.__name__

    def convert(a: Any, *args: Any, **kwargs: Any) -> Any:
        check_device(kwargs.pop("device", None), name)
        kwargs.pop("like", None)
        if kwargs.get("copy") is False and isinstance(a, np.ndarray):
            raise ValueError(
                f"{name}: copy=False, and an ADArray has memory of its own, so that a plain "
                "ndarray is copied; pass copy=None"
            )
        return lift(function(a, *args, **kwargs), (a,))

    return dressed(convert, getattr(np, name), name)


def full(
    shape: Any,
    fill_value: Any,
    dtype: Any = None,
    order: Any = "C",
    *,
    device: Any = None,
    like: Any = None,  # noqa: ARG001  (the result is an ADArray as it is)
) -> Any:
    """As `numpy.full`; a traced fill value stays traced."""
    check_device(device, "full")
    if not creation.holds(fill_value):
        return lift(np.full(plain(shape), fill_value, dtype, order))
    value = creation.asarray(fill_value, dtype)
    shape = plain(shape)
    spread = np.broadcast_to(value, (shape,) if np.ndim(shape) == 0 else tuple(shape))
    return call_function(np.copy, (spread,), {"order": order})


def arange(*args: Any, **kwargs: Any) -> Any:
    """As `numpy.arange`; start and step may be traced, the number of elements follows stop."""
    check_device(kwargs.pop("device", None), "arange")
    kwargs.pop("like", None)  # the result is an ADArray as it is
    names = ("start", "stop", "step", "dtype")
    bounds = dict(zip(names, args, strict=False), **kwargs) if len(args) <= len(names) else kwargs
    if not traced(bounds):  # or NumPy's errors
        return lift(np.arange(*plain(args), **plain(kwargs)))
    dtype = bounds.pop("dtype", None)
    if bounds.get("stop") is None:
        return lift(np.arange(plain(bounds["start"]), dtype=dtype))  # stop: only the count
    start, step = bounds.get("start"), bounds.get("step")
    start, step = (0 if start is None else start), (1 if step is None else step)
    shown = np.arange(plain(start), plain(bounds["stop"]), plain(step), dtype=dtype)
    if not (traced(start) or traced(step)):
        return ADArray(shown)
    values = start + step * np.arange(shown.size)
    return values if values.dtype == shown.dtype else creation.asarray(values, shown.dtype)


def _signature_of_arange() -> inspect.Signature:
    """Return NumPy's signature: the first argument is start or stop."""
    only, either, named = (
        inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.KEYWORD_ONLY,
    )  # fmt: skip
    return inspect.Signature([
        inspect.Parameter("start_or_stop", only),
        inspect.Parameter("stop", either, default=None),
        inspect.Parameter("step", either, default=1),
        *(inspect.Parameter(n, named, default=None) for n in ("dtype", "device", "like")),
    ])  # fmt: skip


arange.__signature__ = _signature_of_arange()  # type: ignore[attr-defined]


def fromiter(iter: Iterable[Any], dtype: Any, count: int = -1, *, like: Any = None) -> Any:  # noqa: A002, ARG001
    """As `numpy.fromiter`; traced items stay traced."""
    items = list(iter if count < 0 else itertools.islice(iter, count))
    if not creation.holds(items):
        return lift(np.fromiter(items, dtype, count))
    if len(items) < count:
        raise ValueError(f"iterator too short: Expected {count} but iterator had only {len(items)}")
    return creation.array(items, dtype)


def fromfunction(
    function: Callable[..., Any],
    shape: Any,
    *,
    dtype: Any = float,
    like: Any = None,  # noqa: ARG001
    **kwargs: Any,
) -> Any:
    """As `numpy.fromfunction`; the function gets ADArrays."""
    grids = [ADArray(g) for g in np.indices(plain(shape), dtype=dtype)]
    return lift(function(*grids, **kwargs))


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Any:
    """As `numpy.from_dlpack`: an ADArray with a copy of the values.

    Raises
    ------
    BufferError
        If ``copy=False``: an ADArray has memory of its own.
    """
    check_device(device, "from_dlpack")
    if isinstance(x, Handle):
        return creation.asarray(x, copy=copy)
    if copy is False:
        raise BufferError(
            "from_dlpack: copy=False, and an ADArray has memory of its own; pass copy=None"
        )
    return ADArray(np.array(x if isinstance(x, np.ndarray) else np.from_dlpack(x)))


def _like(name: str) -> Callable[..., Any]:
    """Return ``zeros_like`` and its relatives, with the standard's ``device=``."""
    function = getattr(np, name)

    def make(*args: Any, **kwargs: Any) -> Any:
        check_device(kwargs.pop("device", None), name)
        return lift(function(*args, **kwargs))

    return dressed(make, function)


def _with_device(name: str) -> Callable[..., Any]:
    function = getattr(np, name)

    def make(*args: Any, **kwargs: Any) -> Any:
        check_device(kwargs.pop("device", None), name)
        return lift(function(*args, **kwargs), args)

    return dressed(make, function)


def eye(
    N: Any,  # noqa: N803  (NumPy's names)
    M: Any = None,  # noqa: N803
    k: int = 0,
    dtype: Any = None,
    order: Any = "C",
    *,
    device: Any = None,
    like: Any = None,  # noqa: ARG001
) -> Any:
    """As `numpy.eye`; ``dtype=None`` is the default floating dtype, as in the array API."""
    check_device(device, "eye")
    options: dict[str, Any] = {"k": plain(k), "dtype": dtype, "order": order}
    return lift(np.eye(*plain((N, M)), **options))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: _converting(f) for name, f in creation.CREATION.items()},
    **{
        name: from_plain(getattr(np, name))
        for name in (
            "zeros", "ones", "empty", "identity", "tri", "indices", "bartlett", "blackman",
            "hamming", "hanning", "diag_indices", "tril_indices", "triu_indices", "mask_indices",
            "frombuffer", "fromfile", "fromstring", "fromregex", "loadtxt", "genfromtxt",
        )
    },
    **{name: _like(name) for name in ("zeros_like", "ones_like", "empty_like", "full_like")},
    "linspace": _with_device("linspace"),
    "full": full,
    "arange": arange,
    "fromiter": fromiter,
    "fromfunction": fromfunction,
    "from_dlpack": from_dlpack,
    "eye": eye,
}  # fmt: skip

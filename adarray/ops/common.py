"""What the records of several modules share."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from adarray.base.aval import BATCHED, Aval, Symbolic
from adarray.base.op import Op, Sample, composite
from adarray.core.dispatch import replay
from adarray.core.inplace import plain_value
from adarray.core.lending import lent
from adarray.core.protocol import finish, followed, plain, traced
from adarray.core.trace import Handle
from adarray.device import is_device


def unbroadcast(g: Any, shape: tuple[int, ...]) -> Any:
    """Sum `g` over the axes along which an operand of `shape` was broadcast."""
    lead = g.ndim - len(shape)
    axes = tuple(range(lead)) + tuple(
        i + lead for i, n in enumerate(shape) if n == 1 and g.shape[i + lead] != 1
    )
    if axes:
        g = np.sum(g, axis=axes, keepdims=True)
    return np.reshape(g, shape) if g.shape != shape else g


def in_order(r: Any, order: Any = "C") -> Any:
    """Return a result in the memory order that NumPy gives it: views of it depend on that."""
    if not isinstance(r, Handle) or not isinstance(r._plain, np.ndarray) or is_device(r._plain):
        return r
    flags = r._plain.flags
    if flags.c_contiguous if order == "C" else flags.f_contiguous:
        return r
    out: Any = r
    return np.copy(out, order=order)


def arrayed(x: Any) -> Any:
    """Return a plain value as an array; one on a device stays there."""
    return x if hasattr(x, "dtype") else np.asarray(x)


def always_array(_operand: bool, _params: Any) -> bool:
    """NumPy returns an array where a result has no axes: `zero_d` of a record."""
    return True


def as_operand(operand: bool, _params: Any) -> bool:
    """NumPy returns an array without axes for one, a scalar for a scalar: `zero_d` of a record."""
    return operand


def zeros_beside(x: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """Return zeros on the device where the plain value `x` is, if it is on one."""
    if isinstance(x, Symbolic):
        return x.zeros(shape, dtype)
    return np.zeros_like(x, dtype, shape=shape) if is_device(x) else np.zeros(shape, dtype)


def zero_beside(x: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """Return `zeros_beside`, a scalar where there are no axes."""
    zeros = zeros_beside(x, shape, dtype)
    return zeros if shape else zeros[()]


def weighted(t: Any, weights: Any) -> Any:
    """Return ``t * weights``, 0 where the weight is: an infinite tangent of what was dropped."""
    return np.where(np.equal(weights, 0), 0, t) * weights


def depth(x: Any) -> int:
    """Return of how many batches a plain value has the members."""
    n = 0
    while type(x) in BATCHED:
        x, n = x.raw, n + 1
    return n


def first_of_many(index: Any, default: Any) -> Any:
    """Return what stands for many in an index, `default` if nothing does."""
    parts = index if isinstance(index, (tuple, list)) else (index,)
    return next((i for i in parts if type(i) in BATCHED), default)


class Placed:
    """A cotangent that is zero outside of one region: (array, region), never dense zeros.

    Parameters
    ----------
    aval : Aval
        Shape and dtype of the whole.
    index : index
        The region.
    g : array
        Its values.
    steps : tuple
        Layout steps to take before `index`.
    """

    __slots__ = ("aval", "g", "index", "steps")

    def __init__(self, aval: Aval, index: Any, g: Any, steps: tuple[Any, ...] = ()) -> None:
        self.aval = aval
        self.index = index
        self.g = g
        self.steps = steps

    def zeros(self) -> Any:
        """Return zeros of the whole's shape, ADArray if the values are one."""
        beside = plain_value(self.g)
        if BATCHED and type(beside) not in BATCHED:  # an index of members places what all have
            beside = first_of_many(self.index, beside)
        zeros = zeros_beside(beside, self.aval.shape, self.aval.dtype)
        return type(self.g)(zeros) if isinstance(self.g, Handle) else zeros

    def add_to(self, total: Any) -> Any:
        """Add the region into `total`, in place, and return it."""
        if isinstance(self.g, Handle) and not isinstance(total, Handle):
            total = type(self.g)(total)
        elif BATCHED and depth(total) < max(depth(self.g), depth(first_of_many(self.index, 0))):
            total = self.zeros() + total
        target = replay(total, self.steps)
        if _may_repeat(self.index):
            np.add.at(target, self.index, self.g)
        elif isinstance(self.g, Handle) and isinstance(self.g._plain, Symbolic):
            target[self.index] = target[self.index] + self.g  # one write, not two
        else:
            target[self.index] += self.g
        return total


def _may_repeat(index: Any) -> bool:
    """Whether an index may name an element twice: it holds integer arrays."""
    for i in index if isinstance(index, tuple) else (index,):
        if isinstance(i, list):
            i = np.asarray(i)
        # Arrays, ADArrays, and what `jit` records of them.
        if getattr(i, "ndim", 0) and i.dtype.kind in "iu":
            return True
    return False


def normalized_axes(axis: Any, ndim: int) -> tuple[int, ...]:
    """Return `axis` (None, an int, or a sequence of them) as a tuple of non-negative axes."""
    if axis is None:
        return tuple(range(ndim))
    if isinstance(axis, tuple):
        axes = axis
    else:
        axes = tuple(axis) if isinstance(axis, (list, np.ndarray)) and np.ndim(axis) else (axis,)
    if not ndim:
        return ()
    for a in axes:
        if not -ndim <= a < ndim:
            raise np.exceptions.AxisError(a, ndim)
    return tuple(int(a) % ndim for a in axes)


def keep(g: Any, shape: tuple[int, ...], axis: Any) -> Any:
    """Give a reduction's result back its reduced axes, with length 1.

    A scalar stays one: it broadcasts as it is.
    """
    if axis is None and g.ndim == 0:
        return g
    axes = normalized_axes(axis, len(shape))
    return np.reshape(g, tuple(1 if i in axes else n for i, n in enumerate(shape)))


def newer(*names: str) -> tuple[Callable[..., Any], ...]:
    """Return those among NumPy's functions that this version has; the floor lacks some."""
    return tuple(getattr(np, n) for n in names if hasattr(np, n))


def s(*args: Any, **kwargs: Any) -> Sample:
    """Return a `Sample`, as records write it."""
    return Sample(args, kwargs)


# Functions that call functions of the user's, which `jit` looks into.
_APPLYING = frozenset({"piecewise", "apply_along_axis", "apply_over_axes"})


def composite_if_traced(*functions: Callable[..., Any]) -> Callable[[Callable[..., Any]], Any]:
    """Register a body for traced arguments; NumPy itself computes the others.

    For bodies that give NumPy's values on real floating point numbers only, such
    as one that fills in infinities. The results must not be views.
    """

    def decorate(body: Callable[..., Any]) -> Callable[..., Any]:
        positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        names = [n for n, p in inspect.signature(body).parameters.items() if p.kind in positional]
        # Without a place of its own for `out`, more arguments belong to the function (*args).
        at = names.index("out") if "out" in names else sys.maxsize

        def choose(function: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(body)
            def either(*args: Any, **kwargs: Any) -> Any:
                if traced(args) or traced(kwargs):
                    return body(*args, **kwargs)
                convert = plain
                if function.__name__ in _APPLYING:
                    if followed(args) or followed(kwargs):
                        return body(*args, **kwargs)
                    convert = lent  # the user's functions may write into it
                out = args[at] if len(args) > at else kwargs.pop("out", None)
                args = tuple(None if i == at else x for i, x in enumerate(args))
                values = convert(args)
                r = function(*values, **convert(kwargs))
                for x, v in zip(args, values, strict=True):
                    if r is v and isinstance(x, Handle):  # as by nan_to_num with copy=False
                        return x
                return finish(r, out, function.__name__)

            return either

        for function in functions:
            composite(function)(choose(function))
        return body

    return decorate


__all__ = [
    "Op",
    "Placed",
    "composite_if_traced",
    "keep",
    "newer",
    "normalized_axes",
    "s",
    "unbroadcast",
]

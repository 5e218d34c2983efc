"""The variables of a loop: what the kernel's text may depend on, and what becomes of them."""

from __future__ import annotations

import types
from typing import Any

import numpy as np

from adarray.base.aval import BATCHED, aval_of
from adarray.core.inplace import sync_if_view
from adarray.core.loads import StandIn, original
from adarray.core.trace import Handle, is_borrowed, is_weak, plain_class, root_of
from adarray.jitting.shared.symbolic import concrete
from adarray.loops.forms import ArrayForm, Form, Known, Scalar, WholeNumber
from adarray.loops.lower.kinds import COMPLEX

_WORD = 1 << 63


def standing_for(x: Any) -> Any:
    """Return what a name is bound to outside of interception."""
    return original(x) if issubclass(type(x), StandIn) else x


def form_of(x: Any) -> Form:
    """Return what the text of a kernel may depend on of a variable."""
    kind = type(x)
    if kind is int and -_WORD <= x < _WORD:
        return WholeNumber(x)
    if kind is float:
        return Scalar("float64", True)
    if issubclass(kind, Handle):
        return _form_of_handle(x)
    if issubclass(kind, np.ndarray) and x.dtype.kind in "biufc" and x.dtype.isnative:
        return ArrayForm(str(x.dtype), x.shape)
    if issubclass(kind, np.generic) and x.dtype.kind in "biuf":
        return Scalar(str(x.dtype), False)
    return Known(x)


def _form_of_handle(x: Handle) -> Form:
    sync_if_view(x)
    aval = aval_of(x._plain)
    if not is_weak(x):
        if issubclass(plain_class(x), np.generic):
            return Scalar(str(aval.dtype), False)
        return ArrayForm(str(aval.dtype), tuple(aval.shape))
    if aval.dtype.kind in "fc":
        return Scalar("float64" if aval.dtype.kind == "f" else "complex128", True)
    value = concrete(x._plain)
    if aval.dtype.kind == "i" and not is_batched(x):
        return WholeNumber(int(value))
    return Known(bool(value)) if aval.dtype.kind == "b" and not is_batched(x) else Known(x)


def is_batched(x: Any) -> bool:
    """Whether a value stands for those of all members of a batch."""
    while isinstance(x, Handle):
        x = x._plain
    return type(x) in BATCHED


def is_constant(x: Any) -> bool:
    """Whether an object is the same one in every run, and does not change."""
    if isinstance(x, tuple):
        return all(map(is_constant, x))
    return isinstance(x, _CONSTANTS)


_CONSTANTS = (
    type(None), bool, str, bytes, int, float, complex, np.generic, np.dtype, np.ufunc, type,
    types.ModuleType, types.BuiltinFunctionType, types.EllipsisType, type(np.sum),
)  # fmt: skip


def unwritable(x: Any) -> str:
    """Return why an array cannot take what a kernel writes; "" if it can."""
    if not isinstance(x, Handle):
        return "a plain array, which cannot hold computed values"
    root = root_of(x)
    if is_borrowed(root):
        return "the memory of a plain array"
    extra = root._x
    if extra is not None and (extra.mirror is not None or extra.peers is not None):
        return "an array that is there twice, or read-only"
    if x._x is not None and x._x.peers is not None:
        return "an array that is there twice, or read-only"
    if is_batched(x):
        return ""
    plain = x._plain
    return "" if plain.flags.writeable or root._frozen else "a read-only array"


def may_overlap(x: Any, y: Any) -> bool:
    """Whether a write into the first array may be seen in the second one."""
    if isinstance(x, Handle) and isinstance(y, Handle):
        return root_of(x) is root_of(y)
    a, b = (concrete(v._plain) if isinstance(v, Handle) else v for v in (x, y))
    return isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and np.may_share_memory(a, b)


def shaped(x: Any, shape: tuple[int, ...]) -> Any:
    """Return an array in another shape, itself if it has that."""
    return x if x.shape == shape else x.reshape(shape)


def pairs(x: Any) -> Any:
    """Return the parts of complex numbers, one behind the other."""
    return np.stack([np.real(x), np.imag(x)], axis=-1)


def from_pairs(x: Any, shape: tuple[int, ...], dtype: str) -> Any:
    """Return the complex numbers of which an array has the parts."""
    x = x.reshape((*shape, 2))
    result = np.zeros_like(x[..., 0], dtype=dtype)
    result.real[...] = x[..., 0]
    result.imag[...] = x[..., 1]
    return result


def result_of(form: Form, output: Any) -> Any:
    """Return a variable after the loop, given what the kernel left of it."""
    if isinstance(form, ArrayForm):
        if form.dtype in COMPLEX:
            return from_pairs(output, form.shape, form.dtype)
        return shaped(output, form.shape)
    if isinstance(form, Scalar) and form.dtype in COMPLEX:
        number = from_pairs(output, (1,), form.dtype)[0]
        return number.item() if form.weak else number
    return number_of(form, shaped(output, (1,))[0])


def number_of(form: Form, number: Any) -> Any:
    """Return a number of a form, given it as an element of an array."""
    if isinstance(form, WholeNumber):
        return int(number)
    assert isinstance(form, Scalar)
    if str(number.dtype) != form.dtype:  # which has its digits, of a type that the run decides
        number = number.astype(form.dtype)
    if not form.weak:
        return number
    return bool(number) if form.dtype == "bool" else number.item()

"""Arrays of other libraries that are operands: which they are, and what makes values of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from adarray.base.aval import PLAIN
from adarray.base.errors import BackendError
from adarray.device.array import DeviceArray

if TYPE_CHECKING:
    from adarray.device.library import Library

# Classes of the arrays of libraries that are in use, and what gives the library of one.
KINDS: dict[type, Callable[[Any], Library]] = {}
# By DLPack's number of a type of device: what makes an array of ours of an exporter of that.
_IMPORTERS: dict[int, Callable[[Any], Any]] = {}

_CUDA = 2  # that number of CUDA's


def adopt(x: Any) -> DeviceArray:
    """Return an array of a registered library as a value, which shares its memory."""
    return DeviceArray(x, KINDS[type(x)](x))


def register_kind(
    kind: type, library_of: Callable[[Any], Library], dlpack: int, importer: Callable[[Any], Any]
) -> None:
    """Let arrays of a library be operands.

    Parameters
    ----------
    kind : type
        Class of the arrays.
    library_of : callable
        Returns the `Library` of one of them.
    dlpack : int
        DLPack's number of its type of device.
    importer : callable
        Makes such an array of an object that exports DLPack from such a device.
    """
    KINDS[kind] = library_of
    PLAIN.add(kind)
    _IMPORTERS[dlpack] = importer


def of_dlpack(x: Any) -> DeviceArray | None:
    """Return an array of another library on a device as a value; None if it is none.

    Raises
    ------
    BackendError
        If it is on a GPU, and no backend has taken such arrays yet.
    """
    if type(x) in KINDS:
        return adopt(x)
    if isinstance(x, (np.ndarray, np.generic)) or not hasattr(type(x), "__dlpack_device__"):
        return None
    kind = int(x.__dlpack_device__()[0])
    importer = _IMPORTERS.get(kind)
    if importer is None and kind == _CUDA:
        raise BackendError(
            f"array: obj is a {type(x).__module__}.{type(x).__qualname__} on a GPU, which no "
            "backend has used yet; call adarray.use('cuda') before"
        )
    return None if importer is None else adopt(importer(x))

"""cuSOLVER's functions by their addresses, its handles, and the kernels that `solvers` launches.

Plans call them without Python; here is what a plan is made of.
"""

from __future__ import annotations

import functools
import weakref
from typing import Any

import cupy
from adarray_backends.cuda import cublas, modules, nvrtc, solvers
from cffi import FFI

from adarray.errors import BackendError

_PREFIXES = {"f": "S", "d": "D"}
_ffi = FFI()
_ffi.cdef(
    """
typedef void *handle;
int cusolverDnCreate(handle *);
int cusolverDnSetStream(handle, void *);
int cusolverDnSgetrf(); int cusolverDnDgetrf();
int cusolverDnSgetrs(); int cusolverDnDgetrs();
int cusolverDnSpotrf(); int cusolverDnDpotrf();
int cusolverDnSgetrf_bufferSize(handle, int, int, void *, int, int *);
int cusolverDnDgetrf_bufferSize(handle, int, int, void *, int, int *);
int cusolverDnSpotrf_bufferSize(handle, int, int, void *, int, int *);
int cusolverDnDpotrf_bufferSize(handle, int, int, void *, int, int *);
"""
)
_spare: dict[int, list[Any]] = {}  # of each device: what cuSOLVER made, and no plan has any more


@functools.cache
def _load() -> Any:
    """Return the library that CuPy has loaded."""
    from cupy_backends.cuda.libs import cusolver

    cusolver.destroy(cusolver.create())  # loads it
    return _ffi.dlopen(cublas.loaded_path("libcusolver.so"))


def _check(what: str, status: int) -> None:
    if status != 0:
        raise BackendError(f"backend 'cuda': {what} failed with status {status}")


class CusolverHandle:
    """A cuSOLVER handle of the current device for one stream.

    Parameters
    ----------
    stream : int
        Address of the stream.

    Attributes
    ----------
    address : int
        What cuSOLVER knows it by.
    """

    def __init__(self, stream: int) -> None:
        spare = _spare.setdefault(cupy.cuda.runtime.getDevice(), [])
        try:
            raw = spare.pop()
        except IndexError:
            pointer = _ffi.new("handle *")
            _check("cusolverDnCreate", _load().cusolverDnCreate(pointer))
            raw = pointer[0]
        # It is never destroyed, for which the host would wait until the whole GPU is done.
        weakref.finalize(self, spare.append, raw).atexit = False
        self._raw = raw
        self.address = int(_ffi.cast("uintptr_t", raw))
        place = _ffi.cast("void *", stream)
        _check("cusolverDnSetStream", _load().cusolverDnSetStream(raw, place))


def function(name: str, char: str) -> int:
    """Return the address of one of `solvers.NAMES` for float32 or float64."""
    if name == "trsm":
        return cublas.triangular_address(char)
    symbol = f"cusolverDn{_PREFIXES[char]}{name}"
    return int(_ffi.cast("uintptr_t", _ffi.addressof(_load(), symbol)))


@functools.lru_cache(maxsize=1024)
def room(name: str, n: int, char: str) -> int:
    """Return how many elements a factorisation of `n` rows needs to work in.

    Parameters
    ----------
    name : {"getrf", "potrf"}
    n : int
    char : {"f", "d"}
    """
    handle = CusolverHandle(cupy.cuda.get_current_stream().ptr)
    sizes = getattr(_load(), f"cusolverDn{_PREFIXES[char]}{name}_bufferSize")
    # potrf takes a triangle in the place of the rows: room for either.
    worst = 0
    for first in (n,) if name == "getrf" else (0, 1):
        size = _ffi.new("int *")
        raw = _ffi.cast("void *", handle.address)
        _check(f"{name}_bufferSize", sizes(raw, first, n, _ffi.NULL, n, size))
        worst = max(worst, int(size[0]))
    return worst


@functools.cache
def kernel(device: int, name: str, char: str) -> Any:
    """Return a kernel of `solvers` for float32 or float64."""
    return _kernels(device, solvers.part_of(name), char)[name]


@functools.cache
def _kernels(device: int, part: str, char: str) -> dict[str, Any]:  # noqa: ARG001
    text = solvers.text_of(part, char)
    names = (text.name, *text.followers)
    return dict(zip(names, nvrtc.load(cupy, modules.whole(text.text), names), strict=True))

"""cuFFT's plans, its functions by their addresses, and the kernels that `fourier` launches.

Plans of `jit` call them without Python; here is what such a plan is made of. A plan of cuFFT
belongs to no stream: native code sets that, and the memory to work in, at each call.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections import OrderedDict
from typing import Any

import cupy
from adarray_backends.cuda import cublas, fourier, nvrtc
from adarray_backends.cuda.fourier import TransformForm
from cffi import FFI

from adarray.errors import BackendError

KEPT = 64  # plans that are ready for others; those in use live on
# cufftType, and the function that runs such a plan.
_TYPES = {
    ("C2C", "f"): (0x29, "cufftExecC2C"), ("R2C", "f"): (0x2A, "cufftExecR2C"),
    ("C2R", "f"): (0x2C, "cufftExecC2R"), ("C2C", "d"): (0x69, "cufftExecZ2Z"),
    ("R2C", "d"): (0x6A, "cufftExecD2Z"), ("C2R", "d"): (0x6C, "cufftExecZ2D"),
}  # fmt: skip
_ffi = FFI()
_ffi.cdef(
    """
int cufftCreate(int *);
int cufftDestroy(int);
int cufftSetAutoAllocation(int, int);
int cufftMakePlanMany64(int, int, long long *, long long *, long long, long long, long long *,
                        long long, long long, int, long long, size_t *);
int cufftSetStream(int, void *);
int cufftSetWorkArea(int, void *);
int cufftExecC2C(int, void *, void *, int); int cufftExecZ2Z(int, void *, void *, int);
int cufftExecR2C(int, void *, void *); int cufftExecD2Z(int, void *, void *);
int cufftExecC2R(int, void *, void *); int cufftExecZ2D(int, void *, void *);
"""
)
_lock = threading.Lock()
_plans: OrderedDict[tuple[int, TransformForm], CufftPlan] = OrderedDict()
_unused: list[tuple[int, int]] = []  # devices, and plans that nobody has any more


@functools.cache
def _load() -> Any:
    """Return the library that CuPy has loaded."""
    from cupy.cuda import cufft  # noqa: F401  # loads it

    try:
        path = cublas.loaded_path("libcufft.so")
    except BackendError:
        cupy.fft.fft(cupy.ones(2, "F"))  # needs it
        path = cublas.loaded_path("libcufft.so")
    return _ffi.dlopen(path)


class CufftPlan:
    """A plan of cuFFT for the current device, which has no memory to work in.

    Attributes
    ----------
    number : int
        What cuFFT knows it by.
    room : int
        Bytes that it needs to work in.
    functions : tuple of int
        Addresses of what runs it, and of what sets its stream and its memory.
    """

    def __init__(self, form: TransformForm) -> None:
        library, pointer = _load(), _ffi.new("int *")
        _check("cufftCreate", library.cufftCreate(pointer))
        self.number = int(pointer[0])
        about = cupy.cuda.runtime.getDevice(), self.number
        weakref.finalize(self, _unused.append, about).atexit = False
        _check("cufftSetAutoAllocation", library.cufftSetAutoAllocation(self.number, 0))
        kind, name = _TYPES[form.kind, form.char]
        size = _ffi.new("size_t *")
        of, to = form.operand, form.result
        lengths, before, after = (
            _ffi.new("long long[]", list(x)) for x in (form.lengths, of.embed, to.embed)
        )
        status = library.cufftMakePlanMany64(
            self.number, len(form.lengths), lengths, before, of.step, of.distance, after, to.step,
            to.distance, kind, form.count, size,
        )  # fmt: skip
        _check("cufftMakePlanMany64", status)
        self.room = int(size[0])
        self.functions = (
            _address(name), _address("cufftSetStream"), _address("cufftSetWorkArea"),
        )  # fmt: skip


def _address(name: str) -> int:
    return int(_ffi.cast("uintptr_t", _ffi.addressof(_load(), name)))


def _check(what: str, status: int) -> None:
    if status != 0:
        raise BackendError(f"backend 'cuda': {what} failed with status {status}")


def plan(form: TransformForm) -> CufftPlan | None:
    """Return a plan for the current device; None if cuFFT has none."""
    key = cupy.cuda.runtime.getDevice(), form
    with _lock:
        known = _plans.get(key)
        if known is not None:
            _plans.move_to_end(key)
            return known
        _destroy_unused()
        try:
            new = _plans[key] = CufftPlan(form)
        except BackendError:  # a length that it does not cover, or no memory for its tables
            return None
        while len(_plans) > KEPT:
            _plans.popitem(last=False)
        return new


def _destroy_unused() -> None:
    """Destroy plans that nobody has any more; the host may wait for the GPU."""
    while _unused:
        device, number = _unused.pop()
        with cupy.cuda.Device(device):
            _load().cufftDestroy(number)


@functools.cache
def kernels(device: int, char: str) -> dict[str, Any]:  # noqa: ARG001
    """Return the kernels of `fourier` for float32 or float64 by their names."""
    text = fourier.text_of(char)
    names = (text.name, *text.followers)
    return dict(zip(names, nvrtc.load(cupy, text.text, names), strict=True))

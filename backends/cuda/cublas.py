"""Matrix products of cuBLAS, called directly so that a stream capture can record them.

CuPy's own products refuse to run under capture. Matrices lie in rows here and in columns
there, so the product of the transposes is what is asked for.
"""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import cupy
from cffi import FFI

from adarray.errors import BackendError

WORKSPACE = 32 << 20
_CDEF = """
typedef void *handle;
int cublasCreate_v2(handle *);
int cublasSetStream_v2(handle, void *);
int cublasSetWorkspace_v2(handle, void *, size_t);
int cublasGemmStridedBatchedEx(handle, int, int, int, int, int, const void *, const void *, int,
    int, long long, const void *, int, int, long long, const void *, void *, int, int, long long,
    int, int, int);
"""
_TYPES = {"float32": 0, "float64": 1, "float16": 2}  # cudaDataType
# cublasComputeType_t: sums are float32, operands are rounded to less where it is asked for.
_COMPUTE = {"float32": 68, "tf32": 77, "bf16": 75, "fp16": 74}
_COMPUTE_64 = 70
_lock = threading.Lock()
_ffi = FFI()
_ffi.cdef(_CDEF)
_library: Any = None
_handles: dict[tuple[int, int], Handle] = {}


class Matrix(NamedTuple):
    """A matrix, or several at equal distances: address, shape, strides in elements."""

    address: int
    rows: int
    columns: int
    strides: tuple[int, int]
    count: int = 1
    distance: int = 0


class Handle:
    """A cuBLAS handle for one device and stream, with memory to work in."""

    def __init__(self, stream: int) -> None:
        made = _ffi.new("handle *")
        _check("cublasCreate", _load().cublasCreate_v2(made))
        self.handle = made[0]
        _check("cublasSetStream", _load().cublasSetStream_v2(self.handle, _pointer(stream)))
        self.memory = cupy.cuda.alloc(WORKSPACE)
        place = _pointer(self.memory.ptr)
        _check("cublasSetWorkspace", _load().cublasSetWorkspace_v2(self.handle, place, WORKSPACE))


def _load() -> Any:
    """Return the library that CuPy has loaded."""
    global _library
    if _library is None:
        from cupy_backends.cuda.libs import cublas

        cublas.create()  # loads it
        with open("/proc/self/maps") as maps:
            paths = {line.split()[-1] for line in maps if "libcublas.so" in line}
        if not paths:
            raise BackendError("backend 'cuda': CuPy did not load libcublas; install cuBLAS")
        _library = _ffi.dlopen(min(paths))
    return _library


def _pointer(address: int) -> Any:
    return _ffi.cast("void *", address)


def _check(what: str, status: int) -> None:
    if status != 0:
        raise BackendError(f"backend 'cuda': {what} failed with status {status}")


def handle() -> Handle:
    """Return the handle of the current device and stream."""
    stream = cupy.cuda.get_current_stream().ptr
    key = (cupy.cuda.runtime.getDevice(), stream)
    with _lock:
        if key not in _handles:
            _handles[key] = Handle(stream)
        return _handles[key]


def _turned(m: Matrix) -> tuple[int, int] | None:
    """Return cuBLAS's operation (0 as it is, 1 transposed) and leading dimension.

    None stands for a matrix whose rows and columns both have gaps.
    """
    row, column = m.strides
    if (column == 1 or m.columns == 1) and (row >= m.columns or m.rows == 1):
        return 0, max(row if m.rows > 1 else m.columns, 1)
    if (row == 1 or m.rows == 1) and (column >= m.rows or m.columns == 1):
        return 1, max(column if m.columns > 1 else m.rows, 1)
    return None


def suits(m: Matrix) -> bool:
    """Whether cuBLAS can read a matrix where it lies."""
    return _turned(m) is not None


def multiply(a: Matrix, b: Matrix, out: Matrix, dtype: str, precision: str = "float32") -> None:
    """Write ``a @ b`` to `out`, which is in C order, on the current stream.

    Parameters
    ----------
    a, b, out : Matrix
        Of ``out.count`` products; a distance of 0 repeats an operand.
    dtype : {"float32", "float64"}
    precision : {"float32", "tf32", "bf16", "fp16"}
        What float32 operands are rounded to for Tensor Cores; sums are float32.
    """
    turned_a, turned_b = _turned(a), _turned(b)
    assert turned_a is not None
    assert turned_b is not None
    kind = _TYPES[dtype]
    compute = _COMPUTE_64 if dtype == "float64" else _COMPUTE[precision]
    c = "double *" if dtype == "float64" else "float *"
    one, zero = _ffi.new(c, 1.0), _ffi.new(c, 0.0)
    _check(
        "cublasGemmStridedBatchedEx",
        _load().cublasGemmStridedBatchedEx(
            handle().handle, turned_b[0], turned_a[0], out.columns, out.rows, a.columns, one,
            _pointer(b.address), kind, turned_b[1], b.distance,
            _pointer(a.address), kind, turned_a[1], a.distance, zero,
            _pointer(out.address), kind, out.columns, out.distance, out.count, compute, -1,
        ),
    )  # fmt: skip

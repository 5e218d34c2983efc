"""Matrix products of cuBLAS, called directly so that a stream capture can record them.

CuPy's own products refuse to run under capture. Matrices lie in rows here and in columns
there, so the product of the transposes is what is asked for.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any, NamedTuple

import cupy
import numpy as np
from cffi import FFI

from adarray.errors import BackendError

WORKSPACE = 32 << 20
# Multiply-adds of a product of eager code from which on its algorithm is measured: the time that
# Python takes hides the rest.
LARGE = 1 << 30
_CDEF = """
typedef void *handle;
int cublasCreate_v2(handle *);
int cublasSetStream_v2(handle, void *);
int cublasStrsm_v2();
int cublasDtrsm_v2();
int cublasSetWorkspace_v2(handle, void *, size_t);
int cublasGemmStridedBatchedEx(handle, int, int, int, int, int, const void *, const void *, int,
    int, long long, const void *, int, int, long long, const void *, void *, int, int, long long,
    int, int, int);
"""
# cudaDataType
TYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 14}
# cublasComputeType_t: sums are float32 (float64 of float64 operands). cuBLAS rounds float32
# operands to tf32 for its types named after 16 bits, too (measured); bf16 and fp16 come converted.
_COMPUTE = {"float32": 68, "tf32": 77, "bf16": 77, "fp16": 77}
_COMPUTE_64 = 70
_lock = threading.Lock()
_ffi = FFI()
_ffi.cdef(_CDEF)
_ONE = {"float32": _ffi.new("float *", 1.0), "float64": _ffi.new("double *", 1.0)}
_ZERO = {"float32": _ffi.new("float *", 0.0), "float64": _ffi.new("double *", 0.0)}
_library: Any = None
STREAMS = 16  # whose handles are kept, with a workspace each
_handles: dict[tuple[int, int, int], CublasHandle] = {}
_captured: set[CublasHandle] = set()  # those whose memory a graph of the user's may read
_spare: dict[int, list[Any]] = {}  # of each device: what cuBLAS made, and no stream has any more
_mine = threading.local()  # the handle that a thread has used last, which it may be using
_PER_THREAD = 2  # the address of the stream that every thread has for itself


class Matrix(NamedTuple):
    """A matrix, or several at equal distances: address, shape, strides in elements."""

    address: int
    rows: int
    columns: int
    strides: tuple[int, int]
    count: int = 1
    distance: int = 0


class CublasHandle:
    """A cuBLAS handle for one device and stream, with memory to work in.

    Parameters
    ----------
    stream : int
        Address of the stream.
    memory : optional
        That of another handle, whose work never runs at the same time.
    """

    def __init__(self, stream: int, memory: Any = None) -> None:
        self.memory = cupy.cuda.alloc(WORKSPACE) if memory is None else memory
        self.handle = _handle(cupy.cuda.runtime.getDevice(), self)
        _check("cublasSetStream", _load().cublasSetStream_v2(self.handle, _pointer(stream)))
        place = _pointer(self.memory.ptr)
        _check("cublasSetWorkspace", _load().cublasSetWorkspace_v2(self.handle, place, WORKSPACE))
        self.used = True  # since a place was last looked for
        self._rooms = threading.local()
        self._captured_rooms: list[Any] = []

    def room(self, size: int) -> int:
        """Return the address of so many bytes, for one product of this thread at a time.

        Threads that share a stream take turns between the launches of a product, so each has a
        room of its own, each twice as large as the one before, or larger. None is given back
        while the handle and the thread live, and those that a graph holds never.
        """
        rooms = self._rooms.__dict__.setdefault("all", [])
        if not rooms or rooms[-1].mem.size < size:
            least = 2 * rooms[-1].mem.size if rooms else 0
            rooms.append(cupy.cuda.alloc(max(size, least)))
        if self in _captured and rooms[-1] not in self._captured_rooms:
            self._captured_rooms.append(rooms[-1])
        return int(rooms[-1].ptr)


def _handle(device: int, owner: CublasHandle) -> Any:
    """Return what cuBLAS knows a new handle by: one that no stream has any more, or a new one.

    It is never destroyed, for which cuBLAS would wait until the whole GPU is done. Work that was
    launched with it needs the workspace, which is back in the pool, in the order of its stream.
    """
    spare = _spare.setdefault(device, [])
    try:
        raw = spare.pop()
    except IndexError:
        pointer = _ffi.new("handle *")
        _check("cublasCreate", _load().cublasCreate_v2(pointer))
        raw = pointer[0]
    weakref.finalize(owner, spare.append, raw).atexit = False
    return raw


def _load() -> Any:
    """Return the library that CuPy has loaded."""
    global _library
    if _library is None:
        from cupy_backends.cuda.libs import cublas

        cublas.create()  # loads it
        _library = _ffi.dlopen(loaded_path("libcublas.so"))
    return _library


def loaded_path(name: str) -> str:
    """Return where a library lies that CuPy has loaded.

    Raises
    ------
    BackendError
        If it was not loaded.
    """
    with open("/proc/self/maps") as maps:
        paths = {line.split()[-1] for line in maps if name in line}
    if not paths:
        raise BackendError(
            f"backend 'cuda': CuPy did not load {name}; install the libraries of CUDA"
        )
    return min(paths)


def _pointer(address: int) -> Any:
    return _ffi.cast("void *", address)


def _check(what: str, status: int) -> None:
    if status != 0:
        raise BackendError(f"backend 'cuda': {what} failed with status {status}")


def handle() -> CublasHandle:
    """Return the handle of the current device and stream.

    Those of the last streams are kept: programs that make streams all the time would use up
    memory otherwise. Plans own theirs, a thread owns the last one that it got, and those that a
    graph of the user's was captured with stay, since nobody knows for how long it lives.
    """
    stream = cupy.cuda.get_current_stream().ptr
    thread = threading.get_ident() if stream == _PER_THREAD else 0
    key = (cupy.cuda.runtime.getDevice(), stream, thread)
    handle_ = _handles.get(key)
    if handle_ is None:
        handle_ = _new(key)
    handle_.used = True
    _mine.handle = handle_
    # The default stream cannot be captured, and must not be asked while another one is.
    if stream and cupy.cuda.runtime.streamIsCapturing(stream):
        _captured.add(handle_)
    return handle_


def _new(key: tuple[int, int, int]) -> CublasHandle:
    """Make the handle of a stream; those let go that were not used since the last ones were."""
    with _lock:
        handle_ = _handles.get(key)
        if handle_ is None:
            while len(_handles) >= STREAMS:
                oldest = next(iter(_handles))
                x = _handles.pop(oldest)
                if x.used:  # another round
                    x.used = False
                    _handles[oldest] = x
            handle_ = _handles[key] = CublasHandle(key[1])
        return handle_


def product_address() -> int:
    """Return the address of ``cublasGemmStridedBatchedEx``."""
    return int(_ffi.cast("uintptr_t", _ffi.addressof(_load(), "cublasGemmStridedBatchedEx")))


def triangular_address(char: str) -> int:
    """Return the address of the triangular solve for float32 or float64."""
    name = {"f": "cublasStrsm_v2", "d": "cublasDtrsm_v2"}[char]
    return int(_ffi.cast("uintptr_t", _ffi.addressof(_load(), name)))


def one(char: str) -> int:
    """Return the address of the number 1 as float32 or float64."""
    return int(_ffi.cast("uintptr_t", _ONE[{"f": "float32", "d": "float64"}[char]]))


def address(handle_: CublasHandle) -> int:
    """Return the address that cuBLAS knows a handle by."""
    return int(_ffi.cast("uintptr_t", handle_.handle))


def _transposition(m: Matrix) -> tuple[int, int] | None:
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
    return _transposition(m) is not None and m.distance >= 0


class Address(int):
    """An address among the arguments of a kernel."""


class DirectCalls:
    """Does at once what a product consists of; others may write it down for later.

    Addresses are handed on as they came, but for offsets that are added to them.
    """

    def room(self, size: int) -> int:
        """Return the address of so many bytes, for one product at a time."""
        return handle().room(size)

    def keep(self, x: Any) -> None:
        """Keep what owns an address among the arguments of kernels for as long as they run."""

    def copy(
        self, function: Any, grid: tuple[int, ...], block: tuple[int, ...],
        args: tuple[int, ...], shared: int = 0,
    ) -> None:  # fmt: skip
        """Launch a kernel whose arguments have 8 bytes each."""
        function(grid, block, tuple(map(np.int64, args)), shared)

    def multiply(self, first: int, second: int, out: int, form: tuple[int, ...]) -> None:
        """Multiply with addresses and `numbers`, large matrices by the fastest algorithm."""
        large = form[2] * form[3] * form[4] >= LARGE
        if not (large and self._fast(first, second, out, form)):
            self.plainly(first, second, out, form)

    def _fast(self, first: int, second: int, out: int, form: tuple[int, ...]) -> bool:
        """Multiply by an algorithm that was measured; return False if there is none."""
        from adarray_backends.cuda import algorithms, lt  # which need this module

        if (first | second | out) % lt.ALIGNED:
            return False
        fast = algorithms.chosen(lt.MatmulForm(form))
        if fast is None:
            return False
        stream = cupy.cuda.get_current_stream().ptr
        _check("cublasLtMatmul", fast.run(first, second, out, 0, handle().memory.ptr, stream))
        return True

    def plainly(self, first: int, second: int, out: int, form: tuple[int, ...]) -> None:
        """Call cublasGemmStridedBatchedEx with addresses and `numbers`."""
        op_a, op_b, m, n, k, lda, da, ldb, db, ldc, dc, count, kind, out_kind, compute = form
        scale = "float64" if compute == _COMPUTE_64 else "float32"
        status = _load().cublasGemmStridedBatchedEx(
            handle().handle, op_a, op_b, m, n, k, _ONE[scale], _pointer(first), kind, lda, da,
            _pointer(second), kind, ldb, db, _ZERO[scale], _pointer(out), out_kind, ldc, dc, count,
            compute, -1,
        )  # fmt: skip
        _check("cublasGemmStridedBatchedEx", status)


DIRECT = DirectCalls()


def is_exact(kind: int, compute: int) -> bool:
    """Whether products of operands of that cudaDataType round none of them."""
    whole = kind in (TYPES["float32"], TYPES["float64"])
    return whole and compute in (_COMPUTE["float32"], _COMPUTE_64)


def numbers(
    a: Matrix, b: Matrix, out: Matrix, dtype: str, precision: str = "float32", factors: str = ""
) -> tuple[int, ...]:
    """Return what cuBLAS must know of a product beside addresses.

    Operations of both operands, rows, columns and depth of the result as cuBLAS sees them,
    leading dimension and distance of both operands and the result, how many there are, the types
    of operands and result, and the type of sums. The first operand is `b`.
    """
    operation_a, operation_b = _transposition(a), _transposition(b)
    assert operation_a is not None
    assert operation_b is not None
    out_kind = TYPES[dtype]
    kind = TYPES[factors] if factors else out_kind
    compute = _COMPUTE["float32"]
    if dtype == "float64":
        compute = _COMPUTE_64
    elif kind == TYPES["float32"]:
        compute = _COMPUTE[precision]
    return (
        operation_b[0], operation_a[0], out.columns, out.rows, a.columns, operation_b[1],
        b.distance, operation_a[1], a.distance, max(out.columns, out.strides[0]), out.distance,
        out.count, kind, out_kind, compute,
    )  # fmt: skip


def multiply(
    a: Matrix, b: Matrix, out: Matrix, dtype: str, precision: str = "float32", factors: str = "",
    to: Any = DIRECT,
) -> None:  # fmt: skip
    """Write ``a @ b`` to `out`, whose rows have no gaps, on the current stream.

    Parameters
    ----------
    a, b, out : Matrix
        Of ``out.count`` products; a distance of 0 repeats an operand.
    dtype : {"float32", "float64", "float16"}
        Of `out`.
    precision : {"float32", "tf32", "bf16", "fp16"}
        What float32 operands are rounded to for Tensor Cores; sums are float32.
    factors : {"", "float16", "bfloat16"}
        What `a` and `b` are, if they are not of `dtype`.
    to : DirectCalls
        Takes the call.
    """
    form = numbers(a, b, out, dtype, precision, factors)
    to.multiply(b.address, a.address, out.address, form)

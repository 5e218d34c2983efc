"""Products of cuBLASLt: of two matrices, with a third one added, by a given algorithm.

What cuBLASLt must know beside addresses is made once and kept: descriptions of the product
and of its matrices, the algorithm, the factors. device_launch.c is given their addresses.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from adarray_backends.cuda import cublas
from cffi import FFI

from adarray.errors import BackendError

ALIGNED = 16  # bytes: addresses of all matrices are multiples
ROW, ROW_RELU = 4, 6  # cublasLtEpilogue_t, whose columns are our rows
WORKSPACE = 32 << 20  # bytes that an algorithm may ask for
_CDEF = """
typedef struct { uint64_t words[8]; } algorithm;
typedef struct {
    algorithm chosen; size_t workspace; int state; float waves; int reserved[4];
} proposal;
size_t cublasLtGetVersion(void);
int cublasLtMatmulDescCreate(void **, int, int);
int cublasLtMatmulDescDestroy(void *);
int cublasLtMatmulDescSetAttribute(void *, int, const void *, size_t);
int cublasLtMatrixLayoutCreate(void **, int, uint64_t, uint64_t, int64_t);
int cublasLtMatrixLayoutDestroy(void *);
int cublasLtMatmulPreferenceCreate(void **);
int cublasLtMatmulPreferenceDestroy(void *);
int cublasLtMatmulPreferenceSetAttribute(void *, int, const void *, size_t);
int cublasLtMatmulAlgoGetHeuristic(void *, void *, void *, void *, void *, void *, void *, int,
    proposal *, int *);
int cublasLtMatmulAlgoCheck(void *, void *, void *, void *, void *, void *, const algorithm *,
    proposal *);
int cublasLtMatmul(void *, void *, const void *, const void *, void *, const void *, void *,
    const void *, const void *, void *, void *, void *, const algorithm *, void *, size_t,
    void *);
"""
# Attributes of descriptions (cublasLt.h).
_TRANSPOSE_A, _TRANSPOSE_B, _EPILOGUE, _ROW = 3, 4, 7, 8
_MOST_WORKSPACE, _REDUCTIONS, _ALIGNMENTS = 1, 3, range(5, 9)
# Partial sums are added in a fixed order: none, or in the workspace; not in the result.
_ORDERED = 2 | 4
_FLOAT32, _FLOAT64 = 0, 1
_ffi = FFI()
_ffi.cdef(_CDEF)


class MatmulForm(NamedTuple):
    """A product beside addresses.

    Parameters
    ----------
    numbers : tuple of int
        As `cublas.numbers` gives them, of a single product.
    scale : float
        Factor of the product.
    added : int
        Distance of the rows of a matrix that is added, 0 if there is none.
    epilogue : int
        `ROW` if a vector is added to each row of the result, `ROW_RELU` if numbers below zero
        become zero after that; 0 if not.
    """

    numbers: tuple[int, ...]
    scale: float = 1.0
    added: int = 0
    epilogue: int = 0


class Algorithm(NamedTuple):
    """What cuBLASLt calls an algorithm: eight words; and the bytes that it works in."""

    words: tuple[int, ...]
    workspace: int


@functools.cache
def library() -> Any:
    """Return the library that came with cuBLAS; None if there is none."""
    cublas.product_address()  # loads it
    with open("/proc/self/maps") as maps:
        paths = {line.split()[-1] for line in maps if "libcublasLt.so" in line}
    try:
        lib = _ffi.dlopen(min(paths))
        return lib if lib.cublasLtGetVersion() else None
    except (ValueError, OSError, AttributeError):
        return None


def version() -> int:
    """Return the version of the library."""
    return int(library().cublasLtGetVersion())


def address() -> int:
    """Return the address of ``cublasLtMatmul``; 0 if there is no library."""
    lib = library()
    if lib is None:
        return 0
    return int(_ffi.cast("uintptr_t", _ffi.addressof(lib, "cublasLtMatmul")))


def _pointer(address: int) -> Any:
    return _ffi.cast("void *", address)


def _described(create: Any, destroy: Any, *args: Any) -> Any:
    """Return a description that is destroyed with its last reader."""
    pointer = _ffi.new("void **")
    status = create(pointer, *args)
    if status:
        raise BackendError(f"backend 'cuda': cuBLASLt failed with status {status}")
    return _ffi.gc(pointer[0], destroy)


def _set(setter: Callable[..., int], what: Any, attribute: int, kind: str, value: Any) -> None:
    status = setter(what, attribute, _ffi.new(f"{kind} *", value), _ffi.sizeof(kind))
    if status:
        raise BackendError(f"backend 'cuda': cuBLASLt failed with status {status}")


class LtMatmul:
    """A product of cuBLASLt, ready but for addresses and, at first, its algorithm.

    Parameters
    ----------
    form : MatmulForm
    algorithm : Algorithm, optional
    """

    def __init__(self, form: MatmulForm, algorithm: Algorithm | None = None) -> None:
        op_a, op_b, m, n, k, lda, _, ldb, _, ldc, _, _, kind, out_kind, compute = form.numbers
        lib = library()
        wide = out_kind == _FLOAT64
        self.form = form
        self.description = _described(
            lib.cublasLtMatmulDescCreate, lib.cublasLtMatmulDescDestroy, compute,
            _FLOAT64 if wide else _FLOAT32,
        )  # fmt: skip
        for attribute, transposed in ((_TRANSPOSE_A, op_a), (_TRANSPOSE_B, op_b)):
            _set(lib.cublasLtMatmulDescSetAttribute, self.description, attribute, "int", transposed)

        self.setter = 0
        if form.epilogue:
            put = lib.cublasLtMatmulDescSetAttribute
            _set(put, self.description, _EPILOGUE, "int", form.epilogue)
            self.place_row(ALIGNED)  # until the row is known: its alignment matters
            f = _ffi.addressof(lib, "cublasLtMatmulDescSetAttribute")
            self.setter = int(_ffi.cast("uintptr_t", f))
        matrix = partial(
            _described, lib.cublasLtMatrixLayoutCreate, lib.cublasLtMatrixLayoutDestroy
        )
        self.a = matrix(kind, *((k, m) if op_a else (m, k)), lda)
        self.b = matrix(kind, *((n, k) if op_b else (k, n)), ldb)
        self.out = matrix(out_kind, m, n, ldc)
        self.c = self.out if form.added in (0, ldc) else matrix(out_kind, m, n, form.added)
        factor = "double *" if wide else "float *"
        self.scale = _ffi.new(factor, form.scale)
        self.factor = _ffi.new(factor, 1.0 if form.added else 0.0)
        self.algorithm = _ffi.new("algorithm *")
        self.workspace = 0
        if algorithm is not None:
            self.take(algorithm)

    def place_row(self, address: int) -> None:
        """Say where the vector is that is added to each row."""
        put = library().cublasLtMatmulDescSetAttribute
        _set(put, self.description, _ROW, "void *", _pointer(address))

    def take(self, algorithm: Algorithm) -> None:
        """Compute with this algorithm from now on."""
        self.algorithm.words = algorithm.words
        self.workspace = algorithm.workspace

    def proposals(self, most: int) -> list[Algorithm]:
        """Return the algorithms that cuBLASLt proposes, the likeliest first."""
        lib = library()
        wishes = _described(lib.cublasLtMatmulPreferenceCreate, lib.cublasLtMatmulPreferenceDestroy)
        put = lib.cublasLtMatmulPreferenceSetAttribute
        _set(put, wishes, _MOST_WORKSPACE, "uint64_t", WORKSPACE)
        _set(put, wishes, _REDUCTIONS, "uint32_t", _ORDERED)
        for attribute in _ALIGNMENTS:
            _set(put, wishes, attribute, "uint32_t", ALIGNED)
        proposals, count = _ffi.new("proposal[]", most), _ffi.new("int *")
        status = lib.cublasLtMatmulAlgoGetHeuristic(
            cublas.handle().handle, self.description, self.a, self.b, self.c, self.out, wishes,
            most, proposals, count,
        )  # fmt: skip
        if status:
            return []
        usable = (p for p in proposals[0 : count[0]] if p.state == 0)
        return [Algorithm(tuple(p.chosen.words), int(p.workspace)) for p in usable]

    def suits(self, algorithm: Algorithm) -> bool:
        """Whether the library can compute this product so."""
        chosen = _ffi.new("algorithm *", {"words": algorithm.words})
        checked = _ffi.new("proposal *")
        status = library().cublasLtMatmulAlgoCheck(
            cublas.handle().handle, self.description, self.a, self.b, self.c, self.out, chosen,
            checked,
        )  # fmt: skip
        return bool(status == 0 and checked.workspace <= algorithm.workspace)

    def run(
        self, first: int, second: int, out: int, added: int, workspace: int, stream: int
    ) -> int:
        """Compute on a stream; return cuBLAS's status.

        Parameters
        ----------
        first, second, out, added : int
            Addresses of the operands as cuBLAS has them, of the result and of what is added.
        workspace : int
            Address of `workspace` bytes.
        stream : int
        """
        status: int = library().cublasLtMatmul(
            cublas.handle().handle, self.description, self.scale, _pointer(first), self.a,
            _pointer(second), self.b, self.factor, _pointer(added or out), self.c, _pointer(out),
            self.out, self.algorithm, _pointer(workspace), self.workspace, _pointer(stream),
        )  # fmt: skip
        return status

    def words(self) -> tuple[int, ...]:
        """Return what device_launch.c hands on, in the order of the parameters."""
        parts = (self.description, self.scale, self.a, self.b, self.factor, self.c, self.out,
                 self.algorithm)  # fmt: skip
        return (*(int(_ffi.cast("uintptr_t", x)) for x in parts), self.workspace, self.setter)

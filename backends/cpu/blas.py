"""Matrix products of the serial and openmp backends: BLAS for large ones, NumPy for the rest.

The BLAS is the shared library of the wheel scipy-openblas32, in a copy that only adarray
uses: it is set to one thread, and the openmp backend's own thread pool shares out the product.
NumPy's BLAS keeps its threads, and is asked only for products too small to wake them.

References
----------
- J. J. Dongarra, J. Du Croz, S. Hammarling, I. S. Duff, "A set of level 3 basic linear algebra
  subprograms", ACM Trans. Math. Softw. 16 (1990), 1-17.
- K. Goto, R. A. van de Geijn, "Anatomy of high-performance matrix multiplication", ACM Trans. Math.
  Softw. 34 (2008), article 12.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

WHEEL = "scipy-openblas32"
# Multiplications below which NumPy computes: a call of C gives up the GIL, and NumPy's BLAS
# wakes its threads only for larger ones. Those of a matrix and a vector wait for memory.
MATRIX_CUTOFF = 131072
VECTOR_CUTOFF = 9216

_FLOAT32, _FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
_FLAGS = (("divide", 1), ("over", 2), ("under", 4), ("invalid", 8))
_COPY_X, _COPY_Y, _COPY_BOTH = -8, -9, -10

ndarray, empty = np.ndarray, np.empty

_lock = threading.Lock()
_path: str | None = None  # what the first library opened; the others must open the same
_functions: dict[Any, Any] = {}  # {library: its adarray_matmul, or why there is no BLAS}


def find() -> Path | None:
    """Return the shared library in the wheel; None if there is none.

    Notes
    -----
    The wheel's Python module is not imported: it would load the library into the global
    scope, with threads.
    """
    spec = importlib.util.find_spec(WHEEL.replace("-", "_"))
    for folder in (spec.submodule_search_locations or []) if spec is not None else []:
        for path in sorted(Path(folder, "lib").glob("libscipy_openblas*")):
            if path.suffix in (".so", ".dylib"):
                return path
    return None


@contextmanager
def _one_thread() -> Iterator[None]:
    """Have OpenBLAS start no threads while it is loaded; it does so at once otherwise."""
    name = "OPENBLAS_NUM_THREADS"
    before = os.environ.get(name)
    if before != "1":
        os.environ[name] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        elif before != "1":
            os.environ[name] = before


def _private(path: Path, lib: Any) -> str:
    """Return a name under which loading `path` gives a copy that nobody else uses."""
    if not lib.adarray_blas_loaded(os.fsencode(path)):
        return str(path)
    # Somebody loaded the file, perhaps with threads. The loader knows a file by its inode,
    # so a copy in memory is another library. Its descriptor stays open, for the second
    # extension module to find the copy by the same name.
    copy = os.memfd_create("adarray-blas")
    with open(path, "rb") as source, open(copy, "wb", closefd=False) as target:
        shutil.copyfileobj(source, target, 1 << 20)
    return f"/proc/self/fd/{copy}"


def _open(lib: Any, ffi: Any) -> Any:
    """Give `lib` its BLAS, once; return its product function, or what is wrong."""
    global _path
    with _lock:
        if lib in _functions:
            return _functions[lib]
        function: Any
        wheel = find()
        if wheel is None:
            function = f"{WHEEL} is not installed"
        else:
            try:
                path = _path or _private(wheel, lib)
                with _one_thread():
                    error = lib.adarray_blas_open(os.fsencode(path))
                if error == ffi.NULL:
                    _path, function = path, lib.adarray_matmul
                else:
                    function = ffi.string(error).decode(errors="replace")
            except (OSError, AttributeError) as error:  # no memfd_create here, or none allowed
                function = f"{wheel} is in use by other code, and cannot be copied ({error})"
        _functions[lib] = function
        return function


def ready(lib: Any, ffi: Any) -> bool:
    """Whether the extension module has a BLAS; the first call of a process loads it."""
    return not isinstance(_open(lib, ffi), str)


def status(lib: Any, ffi: Any) -> str:
    """Return one line that says what computes matrix products, for ``python -m adarray info``.

    Parameters
    ----------
    lib, ffi
        Of the extension module of a backend.
    """
    function = _open(lib, ffi)
    if isinstance(function, str):
        return (
            f"NumPy, with its own threads: {function}; install {WHEEL} for products on the "
            "backend's threads"
        )
    return f"{ffi.string(lib.adarray_blas_config()).decode()} ({WHEEL} {_version()})"


def _version() -> str:
    try:
        return importlib.metadata.version(WHEEL)
    except importlib.metadata.PackageNotFoundError:
        return "of unknown version"


def _shape(
    x: tuple[int, ...], y: tuple[int, ...], least: int, least_vector: int
) -> tuple[int, ...] | None:
    """Return the shape of a product of arrays of any dimension.

    None where np.matmul raises an error, or the product is so small that NumPy should compute.
    """
    if not x or not y:
        return None
    k = x[-1]
    m, n = x[-2:-1], y[-1:] if len(y) > 1 else ()
    if k != (y[-2] if len(y) > 1 else y[0]):
        return None
    lead_x, lead_y = x[:-2], y[:-2]
    if lead_x == lead_y or not lead_y:
        lead = lead_x
    elif not lead_x:
        lead = lead_y
    else:
        try:
            lead = np.broadcast_shapes(lead_x, lead_y)
        except ValueError:
            return None
    shape = (*lead, *m, *n)
    work = k
    for length in shape:
        work *= length
    vector = not m or not n or m[0] == 1 or n[0] == 1
    return None if work < (least_vector if vector else least) else shape


def _copied(x: Any) -> Any:
    """Return a C-contiguous copy; leading axes that only repeat keep one repetition."""
    lead = x.ndim - 2
    if lead > 0:
        x = x[tuple(slice(0, 1) if s == 0 else slice(None) for s in x.strides[:lead])]
    return x.copy()


def _reported(flags: int) -> bool:
    """Whether the caller's errstate wants to hear of any of the raised flags."""
    handling: Any = np.geterr()
    return any(flags & bit and handling[name] != "ignore" for name, bit in _FLAGS)


def matmul(
    lib: Any,
    ffi: Any,
    threads: int,
    x: Any,
    y: Any,
    least: int = MATRIX_CUTOFF,
    least_vector: int = VECTOR_CUTOFF,
) -> Any:
    """Compute ``np.matmul(x, y)`` on `threads` threads.

    Parameters
    ----------
    lib, ffi
        Of the extension module of a backend.
    threads : int
        Size of the thread pool; BLAS itself uses one thread. The serial module ignores it.
    x, y : object
        Operands of np.matmul.
    least, least_vector : int, optional
        Numbers of multiplications below which NumPy computes a product of matrices, and of
        a matrix and a vector.

    Returns
    -------
    ndarray or scalar or NotImplemented
        A fresh C-contiguous array, a NumPy scalar for two vectors; NotImplemented where
        NumPy should compute, warn or raise: other dtypes than float32 and float64 or two of
        them, subclasses, shapes that do not match, small or empty operands, a
        floating-point error that the caller's `np.errstate` does not ignore.

    Notes
    -----
    Operands of any strides are right. One whose last two axes BLAS cannot address (both
    strides larger than an element, negative, or zero) is copied first. The sum over the
    inner axis is never shared out.
    """
    if type(x) is not ndarray or type(y) is not ndarray:
        return NotImplemented
    dtype = x.dtype
    if dtype is not y.dtype or (dtype is not _FLOAT32 and dtype is not _FLOAT64):
        return NotImplemented
    shape_x, shape_y = x.shape, y.shape
    shape: tuple[int, ...] | None
    if len(shape_x) == 2 == len(shape_y):
        m, k = shape_x
        rows, n = shape_y
        if k != rows or m * n * k < (least_vector if m == 1 or n == 1 else least):
            return NotImplemented
        shape = (m, n)
    else:
        shape = _shape(shape_x, shape_y, least, least_vector)
        if shape is None:
            return NotImplemented
    function = _functions.get(lib) or _open(lib, ffi)
    if type(function) is str:
        return NotImplemented
    out = empty(shape, dtype)
    flags = function(id(x), id(y), id(out), threads)
    if flags:
        if flags in (_COPY_X, _COPY_Y, _COPY_BOTH):
            if flags != _COPY_Y:
                x = _copied(x)
            if flags != _COPY_X:
                y = _copied(y)
            flags = function(id(x), id(y), id(out), threads)
        if flags < 0 or (flags and _reported(flags)):
            return NotImplemented
    return out if shape else out[()]

"""Threads of the BLAS that NumPy and SciPy bring along, while a plan calls them.

A factorisation of a hundred rows gains nothing from threads, and those of OpenBLAS go on looking
for work some 25 milliseconds after it, on the processors that the next kernels need. So small
matrices are left to the calling thread. Other libraries than the OpenBLAS of the wheels are not
touched.

References
----------
- Z. Xianyi, W. Qian, Z. Yunquan, "Model-driven level 3 BLAS performance optimization on Loongson 3A
  processor", ICPADS 2012 (OpenBLAS).
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from cffi import FFI

from adarray.compiler.ir.plan import CallStep

# Elements of matrices up to which one thread is enough.
SMALL = 512 * 512
# Modules of functions that call LAPACK.
ALGEBRA = ("numpy.linalg", "scipy.linalg", "adarray.compiler.rewrite.factors")


class _Library(NamedTuple):
    """An OpenBLAS: how many threads it has, and how that is set."""

    threads: Callable[[], int]
    set_threads: Callable[[int], None]


_lock = threading.Lock()
_found: dict[str, list[_Library]] = {}  # by the package that brought it along
_before: list[tuple[_Library, int]] = []
_users = 0


def _libraries() -> list[_Library]:
    """Return the libraries that are loaded."""
    for package in ("numpy", "scipy"):
        if package not in _found and package in sys.modules:
            _found[package] = _of(package)
    return [library for libraries in _found.values() for library in libraries]


def _of(package: str) -> list[_Library]:
    """Return what the wheel of a package has brought along and loaded."""
    found: list[_Library] = []
    file = sys.modules[package].__file__
    if file is None or sys.platform == "win32":
        return found
    ffi = FFI()
    for suffix in ("", "64_"):  # by the integers of the library
        ffi.cdef(f"int scipy_openblas_get_num_threads{suffix}(void);")
        ffi.cdef(f"void scipy_openblas_set_num_threads{suffix}(int);")
    for path in sorted((Path(file).parents[1] / f"{package}.libs").glob("libscipy_openblas*")):
        try:
            library = ffi.dlopen(str(path), ffi.RTLD_NOW | ffi.RTLD_NOLOAD)
        except OSError:
            continue
        for functions in (_of_int32, _of_int64):
            with suppress(AttributeError):  # it has the other ones
                found.append(functions(library))
    return found


def _of_int32(library: Any) -> _Library:
    return _Library(library.scipy_openblas_get_num_threads, library.scipy_openblas_set_num_threads)


def _of_int64(library: Any) -> _Library:
    return _Library(
        library.scipy_openblas_get_num_threads64_, library.scipy_openblas_set_num_threads64_
    )


@contextmanager
def one_thread() -> Iterator[None]:
    """Let calls of LAPACK have one thread; others that run meanwhile have one, too."""
    global _users
    with _lock:
        _users += 1
        if _users == 1:
            for library in _libraries():
                threads = library.threads()
                if threads > 1:
                    library.set_threads(1)
                    _before.append((library, threads))
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if not _users:
                for library, threads in _before:
                    library.set_threads(threads)
                _before.clear()


def is_small(step: CallStep) -> bool:
    """Whether a step calls LAPACK for matrices that one thread is enough for."""
    module = getattr(step.function, "__module__", None) or ""
    sizes = [x.buffer.size for x in step.operands]
    return module.startswith(ALGEBRA) and max(sizes, default=0) <= SMALL


def alone(function: Callable[[list[Any]], list[Any]]) -> Callable[[list[Any]], list[Any]]:
    """Return a function of operands that calls LAPACK from one thread."""

    def run(operands: list[Any]) -> list[Any]:
        with one_thread():
            return function(operands)

    return run

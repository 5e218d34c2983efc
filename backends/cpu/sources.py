"""C that somebody else has printed, as functions of an address."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

from adarray_backends.cpu.executor import LONG
from adarray_backends.cpu.kernels import kernels
from cffi import FFI

_ffi = FFI()
_ffi.cdef("void GOMP_parallel(void (*run)(void *), void *data, unsigned threads, unsigned flags);")


@functools.cache
def _parallel() -> Callable[..., None] | None:
    """Return the function of the OpenMP library that has its threads call another, if there is one.

    It is looked up in our extension module, whose thread pool then runs it.
    """
    module = importlib.import_module("adarray_native._openmp")
    try:
        function: Callable[..., None] = _ffi.dlopen(module.__file__).GOMP_parallel
    except AttributeError:
        return None
    return function


def compiled(library: Any, threads: int, text: str, name: str) -> Callable[[int], None]:
    """Return a function of a source; see `adarray_backends.cpu.runtime.CPUEngine.compile_source`.

    Raises
    ------
    BackendError
        If there is no C compiler.
    CompileError
        If it does not compile the text.
    """
    table = kernels(library, quick=len(text) > LONG)
    address = table.load({name: text}).functions[name].run
    run = _ffi.cast("void (*)(void *)", address)
    parallel = _parallel() if threads > 1 else None

    def call(data: int) -> None:
        pointer = _ffi.cast("void *", data)
        if parallel is None:
            run(pointer)
        else:
            parallel(run, pointer, threads, 0)

    return call

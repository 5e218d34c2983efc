"""C that somebody else has printed, as functions of an address."""

from __future__ import annotations

import ctypes
import functools
import importlib
from collections.abc import Callable
from typing import Any

from adarray_backends.cpu.kernels import kernels

_RUN = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


@functools.cache
def _team() -> Any:
    """Return the function of the OpenMP library that has a team call a function, if there is one.

    It is looked up in our extension module, whose team then runs it.
    """
    module = importlib.import_module("adarray_native._openmp")
    try:
        found = ctypes.CDLL(module.__file__).GOMP_parallel
    except AttributeError:
        return None
    found.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
    found.restype = None
    return found


def compiled(library: Any, threads: int, text: str, name: str) -> Callable[[int], None]:
    """Return a function of a source; see `adarray_backends.cpu.runtime.CPUEngine.compile_source`.

    Raises
    ------
    BackendError
        If there is no C compiler.
    CompileError
        If it does not compile the text.
    """
    address = kernels(library).load({name: text}).functions[name].run
    team = _team() if threads > 1 else None
    if team is None:
        run: Callable[[int], None] = _RUN(address)
        return run

    def together(data: int) -> None:
        team(address, data, threads, 0)

    return together

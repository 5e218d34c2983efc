"""Kernels printed from loop IR, compiled and kept by their names."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import adarray_native
import cupy
from adarray_backends.cuda import nvrtc
from adarray_backends.cuda.launcher import ModuleFunctions

from adarray.compiler.print_cuda.printer import KernelText

_INCLUDE = '#include "'
ABREAST = 16  # kernels that are compiled side by side, at most; NVRTC holds no lock
_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
USUAL_SHARED = 48 << 10  # bytes of shared memory that a kernel may have without asking
_lock = threading.Lock()
_functions: dict[tuple[int, str], Any] = {}
_allowed: dict[int, int] = {}


@functools.cache
def _header(name: str) -> str:
    """Return one of our headers with those that it includes written out."""
    lines = []
    for line in adarray_native.text(name).split("\n"):
        own = line.startswith(_INCLUDE)
        lines.append(_header(line.removeprefix(_INCLUDE).rstrip('"')) if own else line)
    return "\n".join(lines)


def whole(text: str) -> str:
    """Return the text of a kernel with our headers written out."""
    return text.replace(f'{_INCLUDE}adarray_device.h"', _header("adarray_device.h"))


def keep(text: KernelText) -> str:
    """Return the path of a file that holds the text of a kernel."""
    return nvrtc.keep(whole(text.text), text.name)


def load(texts: Iterable[KernelText]) -> ModuleFunctions:
    """Return the kernels of texts, and those that follow them, by name.

    Raises
    ------
    CompileError
        If NVRTC refuses a text.
    """
    device = cupy.cuda.runtime.getDevice()
    wanted = {t.name: t for t in texts}

    def compiled(t: KernelText) -> tuple[bool, tuple[Any, ...]]:
        with cupy.cuda.Device(device):
            return nvrtc.loaded(cupy, whole(t.text), (t.name, *t.followers))

    disk = 0
    with _lock:
        missing = [t for n, t in wanted.items() if (device, n) not in _functions]
        with ThreadPoolExecutor(max_workers=ABREAST) as pool:
            for t, (from_disk, loaded) in zip(missing, pool.map(compiled, missing), strict=True):
                disk += from_disk
                for name, function in zip((t.name, *t.followers), loaded, strict=True):
                    _functions[device, name] = function
    functions = {n: _functions[device, n] for t in wanted.values() for n in (t.name, *t.followers)}
    return ModuleFunctions(functions, (len(missing) - disk, disk, len(wanted) - len(missing)))


def allow(function: Any, shared: int) -> None:
    """Let a kernel have so many bytes of shared memory, or more if others asked for more."""
    with _lock:
        if shared > _allowed.get(function.ptr, USUAL_SHARED):
            cupy.cuda.driver.funcSetAttribute(function.ptr, _DYNAMIC_SHARED, shared)
            _allowed[function.ptr] = shared

"""Compiling printed kernels with NVRTC, and keeping what was compiled on disk."""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path
from typing import Any

from adarray_backends.cuda import kept

from adarray.errors import CompileError

# Products and sums are rounded one by one, and small numbers kept, as on the host.
OPTIONS = ("--std=c++17", "--fmad=false")


def load(cupy: Any, source: str, names: tuple[str, ...]) -> tuple[Any, ...]:
    """Return kernels of a text, loaded on the current device.

    Raises
    ------
    CompileError
        If NVRTC refuses the text; the message names a file that holds it.
    """
    return loaded(cupy, source, names)[1]


def loaded(cupy: Any, source: str, names: tuple[str, ...]) -> tuple[bool, tuple[Any, ...]]:
    """Return whether a text was on disk, compiled, and what `load` does."""
    key = _key(cupy, source)
    data = kept.find(key)
    known = data is not None
    if data is None:
        data = _compiled(cupy, source, key)
        kept.add(key, data)
    module = cupy.cuda.function.Module()
    module.load(data)
    return known, tuple(module.get_function(name) for name in names)


def _key(cupy: Any, source: str) -> str:
    """Return what a text that is compiled for the current device is kept under."""
    arch = cupy.cuda.Device().compute_capability
    about = f"{arch} {cupy.cuda.nvrtc.getVersion()} {OPTIONS} {source}"
    return hashlib.sha256(about.encode()).hexdigest()[:40]


def _compiled(cupy: Any, source: str, key: str) -> bytes:
    """Return a text compiled for the current device."""
    compiler = cupy.cuda.compiler
    arch = cupy.cuda.Device().compute_capability
    try:
        binary, _ = compiler.compile_using_nvrtc(source, OPTIONS, arch, f"{key}.cu")
    except compiler.CompileException as error:
        path = keep(source, key)
        message = f"backend 'cuda': NVRTC does not compile {path}: {error}"
        raise CompileError(message, path) from error
    data: bytes = binary if isinstance(binary, bytes) else binary.encode()
    return data


def keep(source: str, name: str) -> str:
    """Write a text to disk, where that is possible; return the path of the file."""
    path = Path(f"{name}.cu")
    with contextlib.suppress(OSError):
        path = kept.folder() / path
        kept.write(path, source.encode())
    return str(path)

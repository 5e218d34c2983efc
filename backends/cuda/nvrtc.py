"""Compiling printed kernels with NVRTC, and keeping what was compiled on disk."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path
from typing import Any

from adarray_native import cache

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
    module = cupy.cuda.function.Module()
    module.load(_binary(cupy, source))
    return tuple(module.get_function(name) for name in names)


def _kept(cupy: Any, source: str) -> Path:
    """Return where a text that was compiled for the current device is kept."""
    arch = cupy.cuda.Device().compute_capability
    about = f"{arch} {cupy.cuda.nvrtc.getVersion()} {OPTIONS} {source}"
    name = hashlib.sha256(about.encode()).hexdigest()[:40]
    return cache.usual_folder() / "cuda" / f"{name}.cubin"


def is_kept(cupy: Any, source: str) -> bool:
    """Whether `load` need not compile a text."""
    return _kept(cupy, source).exists()


def _binary(cupy: Any, source: str) -> bytes:
    """Return a text compiled for the current device."""
    compiler = cupy.cuda.compiler
    arch = cupy.cuda.Device().compute_capability
    kept = _kept(cupy, source)
    with contextlib.suppress(OSError):
        return kept.read_bytes()
    try:
        binary, _ = compiler.compile_using_nvrtc(source, OPTIONS, arch, f"{kept.stem}.cu")
    except compiler.CompileException as error:
        path = keep(source, kept.stem)
        message = f"backend 'cuda': NVRTC does not compile {path}: {error}"
        raise CompileError(message, path) from error
    data: bytes = binary if isinstance(binary, bytes) else binary.encode()
    _write(kept, data)
    return data


def keep(source: str, name: str) -> str:
    """Write a text to disk; return the path of the file."""
    path = cache.usual_folder() / "cuda" / f"{name}.cu"
    _write(path, source.encode())
    return str(path)


def _write(path: Path, data: bytes) -> None:
    """Write a file at once, so that no other process reads a part of it."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(temporary).replace(path)

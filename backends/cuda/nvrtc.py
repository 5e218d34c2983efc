"""Compiling printed kernels with NVRTC, and keeping what was compiled on disk."""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path
from typing import Any

from adarray_backends.cuda import disk_cache

from adarray.errors import CompileError

# Products and sums are rounded one by one, and small numbers kept, as on the host.
# Lambdas that take any type, within others, are functions of the host to NVRTC unless it is told
# otherwise; warnings would hide what is wrong.
OPTIONS = (
    "--std=c++17",
    "--fmad=false",
    "--device-as-default-execution-space",
    "--disable-warnings",
)


def load(cupy: Any, source: str, names: tuple[str, ...], own: str = "") -> tuple[Any, ...]:
    """Return kernels of a text, loaded on the current device.

    Parameters
    ----------
    cupy : module
    source : str
    names : tuple of str
    own : str
        What follows the number of an architecture: "a" for instructions that no other has.

    Raises
    ------
    CompileError
        If NVRTC refuses the text; the message names a file that holds it.
    """
    return loaded(cupy, source, names, own)[1]


def loaded(
    cupy: Any, source: str, names: tuple[str, ...], own: str = ""
) -> tuple[bool, tuple[Any, ...]]:
    """Return whether a text was on disk, compiled, and what `load` does."""
    key = _key(cupy, source, own)
    data = disk_cache.find(key)
    known = data is not None
    if data is None:
        data = _compiled(cupy, source, key, own)
        disk_cache.add(key, data)
    module = cupy.cuda.function.Module()
    module.load(data)
    return known, tuple(module.get_function(name) for name in names)


def _key(cupy: Any, source: str, own: str = "") -> str:
    """Return what a text that is compiled for the current device is kept under."""
    arch = cupy.cuda.Device().compute_capability
    about = f"{arch}{own} {cupy.cuda.nvrtc.getVersion()} {OPTIONS} {source}"
    return hashlib.sha256(about.encode()).hexdigest()[:40]


def _compiled(cupy: Any, source: str, key: str, own: str = "") -> bytes:
    """Return a text compiled for the current device."""
    compiler = cupy.cuda.compiler
    arch = cupy.cuda.Device().compute_capability
    try:
        if own:
            return _exactly(cupy.cuda, source, f"{arch}{own}")
        binary, _ = compiler.compile_using_nvrtc(source, OPTIONS, arch, f"{key}.cu")
    except compiler.CompileException as error:
        path = keep(source, key)
        message = f"backend 'cuda': NVRTC does not compile {path}: {error}"
        raise CompileError(message, path) from error
    data: bytes = binary if isinstance(binary, bytes) else binary.encode()
    return data


def _exactly(cuda: Any, source: str, arch: str) -> bytes:
    """Return a text compiled for an architecture whose name CuPy's compiler does not know."""
    nvrtc = cuda.nvrtc
    options = (*OPTIONS, f"--gpu-architecture=sm_{arch}")
    program = nvrtc.createProgram(source, "kernels.cu", (), ())
    try:
        nvrtc.compileProgram(program, options)
        data: bytes = nvrtc.getCUBIN(program)
    except nvrtc.NVRTCError as error:
        log = nvrtc.getProgramLog(program)
        raise cuda.compiler.CompileException(log, source, "kernels.cu", options) from error
    finally:
        nvrtc.destroyProgram(program)
    return data


def keep(source: str, name: str) -> str:
    """Write a text to disk, where that is possible; return the path of the file."""
    path = Path(f"{name}.cu")
    with contextlib.suppress(OSError):
        path = disk_cache.folder() / path
        disk_cache.write(path, source.encode())
    return str(path)

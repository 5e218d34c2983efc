"""What the cuda backend keeps on disk: compiled kernels, and what was measured.

Kernels are files named by all that their machine code depends on; each ends with a hash of
its content, so that damage shows. The folder is one of the cache of `adarray_native.cache`, as
private as that, and what was not used for longest is removed from it as there.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from adarray_native import cache

_PART = "cuda"
KERNEL = ".cubin"
ALGORITHM = ".algorithm"
SUFFIXES = (KERNEL, ".cu", ".block", ALGORITHM)
_DIGEST = len(cache.digest(b""))  # bytes at the end of a kernel's file


def folder() -> Path:
    """Return the folder of kernels for GPUs; it is another one where the usual one is unsafe.

    Raises
    ------
    OSError
        If there is none that can be written to.
    """
    return cache.default(_PART).folder


def find(key: str) -> bytes | None:
    """Return a kernel that was kept; None if there is none, or only a damaged one."""
    with contextlib.suppress(OSError):
        path = folder() / (key + KERNEL)
        whole = path.read_bytes()
        data = whole[:-_DIGEST]
        if whole[-_DIGEST:] == cache.digest(data).encode():
            if time.time() - path.stat().st_mtime > cache.RECENT:
                os.utime(path)
            return data
    return None


def add(key: str, data: bytes) -> None:
    """Keep a kernel, where that is possible."""
    with contextlib.suppress(OSError):
        write(folder() / (key + KERNEL), data + cache.digest(data).encode())
        if key.startswith("0"):  # a look at all files, now and then
            trim(cache.LIMIT)


def write(path: Path, data: bytes) -> None:
    """Write a file at once, so that no other process reads a part of it."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=cache.WORK)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(temporary).replace(path)
    except OSError:  # a full disk
        Path(temporary).unlink()
        raise


def trim(limit: int) -> None:
    """Remove what was not used for longest until the rest has at most so many bytes.

    Choices of algorithms stay: they are small, and the last bits of results follow them.
    """
    found = []
    for path in _files(folder()):
        if path.suffix == ALGORITHM:
            continue
        with contextlib.suppress(OSError):  # another process may have removed it
            told = path.stat()
            found.append((told.st_mtime, told.st_size, path))
    total = sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if total <= limit:
            break
        with contextlib.suppress(OSError):
            path.unlink()
        total -= size


def _files(place: Path) -> list[Path]:
    """Return what the backend has written into a folder."""
    with contextlib.suppress(OSError):
        return [p for p in place.iterdir() if p.suffix in SUFFIXES or p.name.startswith(cache.WORK)]
    return []


def _usual() -> Path:
    return cache.usual_folder() / _PART


def report() -> Iterator[str]:
    """Yield lines about the folder."""
    found = _files(_usual())
    kernels = sum(p.suffix == KERNEL for p in found)
    size = 0
    for p in found:
        with contextlib.suppress(OSError):  # another process may have removed it
            size += p.stat().st_size
    yield f"folder: {_usual()}"
    yield (
        f"{kernels} kernels for GPUs, {size / (1 << 20):.1f} MiB of at most "
        f"{cache.LIMIT >> 20}; blocks measured for {sum(p.suffix == '.block' for p in found)}"
    )


def clear() -> Iterator[str]:
    """Remove all of it; yield a line that says so."""
    found = _files(_usual())
    for p in found:
        with contextlib.suppress(OSError):
            p.unlink()
    kernels = sum(p.suffix == KERNEL for p in found)
    yield f"removed {kernels} kernels for GPUs, and what was measured of them, from {_usual()}"

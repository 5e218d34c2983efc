"""What the cuda backend keeps on disk: compiled kernels, and what was measured.

Kernels are files named by all that their machine code depends on; each ends with a hash of
its content, so that damage shows. The folder is one of the cache of `adarray_native.cache`, as
private as that, and what was not used for longest is removed from it as there.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

from adarray_native import cache, owned

_PART = "cuda"
KERNEL = ".cubin"
ALGORITHM = ".algorithm"
_NAMES = re.compile(r"[0-9a-f]{40}\.(cubin|cu|block|algorithm)|adk_[0-9a-f]{24}\.cu")
_ON_ITS_WAY = re.compile(r"work-[0-9a-f]{16}|work-[0-9]+-[0-9a-f]{40}\.algorithm")
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
        if key.startswith("0"):  # check all files, now and then
            trim(cache.LIMIT)


def write(path: Path, data: bytes) -> None:
    """Write a file at once, so that no other process reads a part of it."""
    temporary = path.with_name(f"{cache.WORK}{secrets.token_hex(8)}")
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
        temporary.replace(path)
    except OSError:  # a full disk
        temporary.unlink(missing_ok=True)
        raise


def trim(limit: int) -> None:
    """Remove what was not used for longest until the rest has at most so many bytes.

    Choices of algorithms stay: they are small, and the last bits of results follow them.
    """
    place = folder()
    entries = [
        (told.st_mtime, told.st_size, name)
        for name, told in _files(place).items()
        if not name.endswith(ALGORITHM)
    ]
    total = sum(size for _, size, _ in entries)
    old: set[str] = set()
    for _, size, name in sorted(entries):
        if total <= limit:
            break
        old.add(name)
        total -= size
    owned.remove(place, lambda entry: entry.name in old)


def _ours(entry: os.DirEntry[str]) -> bool:
    named = _NAMES.fullmatch(entry.name) or _ON_ITS_WAY.fullmatch(entry.name)
    return bool(named) and entry.is_file(follow_symlinks=False)


def _files(place: Path) -> dict[str, os.stat_result]:
    """Return what the backend has written into a folder."""
    return owned.files(place, _ours)


def _usual() -> Path:
    return cache.usual_folder() / _PART


def report() -> Iterator[str]:
    """Yield lines about the folder."""
    files = _files(_usual())
    kernels = sum(name.endswith(KERNEL) for name in files)
    size = sum(told.st_size for told in files.values())
    yield f"folder: {_usual()}"
    yield (
        f"{kernels} kernels for GPUs, {size / (1 << 20):.1f} MiB of at most "
        f"{cache.LIMIT >> 20}; blocks measured for {sum(n.endswith('.block') for n in files)}"
    )


def clear() -> Iterator[str]:
    """Remove all of it; yield a line that says so."""
    kernels = sum(name.endswith(KERNEL) for name in owned.names(_usual(), _ours))
    owned.remove(_usual(), _ours)
    owned.give_up(_usual())
    owned.give_up(_usual().parent)
    yield f"removed {kernels} kernels for GPUs, and what was measured of them, from {_usual()}"

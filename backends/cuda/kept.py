"""What the cuda backend keeps on disk: compiled kernels, and blocks that were measured."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from adarray_native import cache

SUFFIXES = (".cubin", ".cu", ".block")


def folder() -> Path:
    """Return the folder of kernels for GPUs, within that of all kernels."""
    return Path(cache.usual_folder()) / "cuda"


def files() -> list[Path]:
    """Return what the backend has written there."""
    with contextlib.suppress(OSError):
        return [p for p in folder().iterdir() if p.suffix in SUFFIXES]
    return []


def report() -> Iterator[str]:
    """Yield lines about the folder."""
    found = files()
    kernels = sum(p.suffix == ".cubin" for p in found)
    size = 0
    for p in found:
        with contextlib.suppress(OSError):  # another process may have removed it
            size += p.stat().st_size
    yield f"folder: {folder()}"
    yield (
        f"{kernels} kernels for GPUs, {size / (1 << 20):.1f} MiB; blocks measured for "
        f"{sum(p.suffix == '.block' for p in found)}"
    )


def clear() -> Iterator[str]:
    """Remove all of it; yield a line that says so."""
    found = files()
    for p in found:
        with contextlib.suppress(OSError):
            p.unlink()
    kernels = sum(p.suffix == ".cubin" for p in found)
    yield f"removed {kernels} kernels for GPUs, and what was measured of them, from {folder()}"

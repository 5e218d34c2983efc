"""Native sources and their builder: for processors, for GPUs, and headers that both share."""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__).resolve().parent
# Where a compiler looks for the headers of kernels for processors, and of those for GPUs.
CPU = (_HERE / "cpu", _HERE / "shared")
CUDA = (_HERE / "cuda", _HERE / "shared")
INCLUDE_CPU = tuple(f"-I{folder}" for folder in CPU)
INCLUDE_CUDA = tuple(f"-I{folder}" for folder in CUDA)


def source(name: str) -> Path:
    """Return the path of a header or C file."""
    return next(path for folder in (*CPU, *CUDA) if (path := folder / name).exists())


def text(name: str) -> str:
    """Return the text of a header or C file."""
    return source(name).read_text(encoding="utf-8")

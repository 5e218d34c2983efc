"""Native sources and their builder: for processors, for GPUs, and headers that both share."""

from __future__ import annotations

import importlib
import types
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


def compiled(name: str, what: str, backend: str) -> types.ModuleType:
    """Return a module that needs C code compiled when adarray was installed.

    Parameters
    ----------
    name : str
        Of the module.
    what : str
        What it is for, in an error.
    backend : str
        Name of the backend that asks.

    Raises
    ------
    BackendError
        If its C module is missing or cannot be loaded.
    """
    from adarray.errors import BackendError  # the build needs none of adarray to find sources

    try:
        return importlib.import_module(f"adarray_native.{name}")
    except ImportError as error:
        raise BackendError(
            f"backend {backend!r}: the C module of {what} cannot be loaded ({error}); reinstall "
            "adarray on this machine"
        ) from error

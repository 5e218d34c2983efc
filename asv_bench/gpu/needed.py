"""Modules that a script of this package needs; one line says which are missing."""

from __future__ import annotations

import importlib
from typing import Any

import adarray
from adarray.errors import BackendError

_PACKAGES = {"cupy": "pip install 'adarray[cuda]'", "torch": "pip install torch"}


def needed(script: str, *names: str) -> tuple[Any, ...]:
    """Return modules that a script needs beside a GPU, after a check that all are there.

    Parameters
    ----------
    script : str
        Name of the script, for the message.
    names : str
        Of modules: ``"cupy"``, ``"torch"``.

    Raises
    ------
    SystemExit
        If a module or a GPU is missing, with the line that says so.
    """
    modules = []
    for name in names:
        try:
            modules.append(importlib.import_module(name))
        except ImportError as error:
            raise SystemExit(
                f"{script}: {name} cannot be imported ({error}); {_PACKAGES[name]}, on a machine "
                "with an NVIDIA GPU"
            ) from None
    try:
        adarray.use("cuda")
    except BackendError as error:
        raise SystemExit(f"{script}: there is no GPU to measure: {error}") from None
    for module in modules:
        if module.__name__ == "torch" and not module.cuda.is_available():
            raise SystemExit(
                f"{script}: this torch finds no GPU; install one that is built for CUDA"
            )
    return tuple(modules)

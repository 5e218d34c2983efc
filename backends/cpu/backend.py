"""The classes that the serial and openmp backends derive from: options, errors, facts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import adarray_native
import numpy as np
from adarray_backends.cpu import blas
from adarray_backends.cpu.runtime import CPUEngine, Cutoffs, KernelLibrary

from adarray.errors import BackendError


def load(backend: str, module: str) -> KernelLibrary:
    """Return the library of a backend.

    Raises
    ------
    BackendError
        If the extension module is missing or cannot be loaded.
    """
    try:
        return KernelLibrary(module)
    except ModuleNotFoundError as error:
        if error.name != f"adarray_native.{module}":
            raise
        raise BackendError(
            f"backend {backend!r}: its C module is missing ({error}), because no C compiler "
            "worked when adarray was installed; install one (gcc, with OpenMP for 'openmp') and "
            "reinstall adarray, or use the backend 'numpy'"
        ) from error
    except ImportError as error:
        raise BackendError(
            f"backend {backend!r}: its C module cannot be loaded ({error}); reinstall adarray on "
            "this machine, or use the backend 'numpy'"
        ) from error


def check_count(backend: str, option: str, value: Any, least: int) -> int:
    """Return an option that counts something.

    Raises
    ------
    BackendError
        If it is not an integer, or less than `least`.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise BackendError(
            f"backend {backend!r}: the option {option} is {value!r}; "
            f"pass an integer of at least {least}"
        )
    return int(value)


def check_options(backend: str, options: dict[str, Any], known: tuple[str, ...]) -> None:
    """Refuse options that a backend does not have.

    Raises
    ------
    BackendError
        If there is one.
    """
    for name in sorted(options):
        if name not in known:
            raise BackendError(
                f"backend {backend!r}: unknown option {name!r}; it takes {', '.join(known)}"
            )


def cutoffs(defaults: Cutoffs, value: int | None) -> Cutoffs:
    """Return the cutoffs for the option ``cutoff=``: one number for all, None for measured."""
    return defaults if value is None else Cutoffs(*[value] * len(defaults))


class CPUBackend:
    """What both backends are made of.

    Attributes
    ----------
    name : str
    module : str
        Name of the extension module.
    known : tuple of str
        Options of `engine`.
    """

    name: str
    module: str
    known: tuple[str, ...]

    def __init__(self) -> None:
        self._library: KernelLibrary | None = None

    @property
    def library(self) -> KernelLibrary:
        """The extension module, loaded when first asked for."""
        if self._library is None:
            self._library = self.load()
        return self._library

    def load(self) -> KernelLibrary:
        """Load the extension module and make it ready."""
        return load(self.name, self.module)

    def default_threads(self) -> int:
        """Return the number of threads without an option."""
        return 1

    def engine(self, **options: Any) -> CPUEngine:
        """Return an engine.

        Parameters
        ----------
        threads : int, optional
            Number of threads.
        cutoff : int, optional
            Number of elements below which NumPy computes; by default what measurement
            found, one number for each class of kernels.

        Raises
        ------
        BackendError
            If an option is unknown or wrong, or the C module is missing.
        """
        check_options(self.name, options, self.known)
        threads = options.get("threads")
        cutoff = options.get("cutoff")
        if threads is not None:
            threads = check_count(self.name, "threads", threads, 1)
        if cutoff is not None:
            cutoff = check_count(self.name, "cutoff", cutoff, 0)
        library = self.library
        return CPUEngine(
            self.name, library, threads or self.default_threads(), cutoffs(Cutoffs(), cutoff)
        )

    def coloring(self) -> Any:
        """Return the module that colours sparse patterns.

        Raises
        ------
        BackendError
            If its C module is missing or cannot be loaded.
        """
        return adarray_native.compiled("coloring", "colourings", self.name)

    def info(self) -> dict[str, str]:
        """Return facts to show in ``python -m adarray info``."""
        try:
            library = self.library
        except BackendError as error:
            return {"status": "unavailable", "why": str(error)}
        lib = library.lib
        return {
            "status": "available",
            "compiler": library.text(lib.adarray_compiler()),
            "simd": library.level_name(lib.adarray_level()),
            "libmvec": ("no", "yes, before glibc 2.35", "yes")[lib.adarray_libmvec()],
            "threads": str(self.default_threads()),
            "kernels": str(len(library.maps) + len(library.folds)),
            "blas": blas.status(library.lib, library.ffi),
        }

    def cache(self, clear: bool = False) -> Iterable[str]:
        """Yield lines about the kernels kept on disk, or remove them and say so.

        The serial and openmp backends share the folder.
        """
        from adarray_native import cache  # only jit and this need it

        return cache.clear() if clear else cache.report()

"""The reference backend: NumPy computes everything."""

from __future__ import annotations

from typing import Any

import adarray_native
import numpy as np

from adarray.errors import BackendError


class NumPyBackend:
    """NumPy as it is installed, with whatever BLAS and threads it brings."""

    name = "numpy"

    def engine(self, **options: Any) -> None:
        """Return None: operations call NumPy directly.

        Raises
        ------
        BackendError
            If any option is given.
        """
        if options:
            raise BackendError(
                f"backend 'numpy': unknown option {sorted(options)[0]!r}; it takes none "
                "(NumPy's threads are set by its BLAS, for instance OPENBLAS_NUM_THREADS)"
            )

    def seals(self) -> Any:
        """Return the module that tells which memory was written to.

        Raises
        ------
        BackendError
            If its C module is missing or cannot be loaded.
        """
        return adarray_native.compiled("seals", "seals", self.name)

    def info(self) -> dict[str, str]:
        """Return facts to show in ``python -m adarray info``."""
        return {"numpy": np.__version__, "status": "available"}

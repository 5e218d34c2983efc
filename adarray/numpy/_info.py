"""The inspection API of the array API standard."""

from __future__ import annotations

from typing import Any

import numpy as np

from adarray.numpy._creation import check_device

API_VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")

_KINDS: dict[str, tuple[str, ...]] = {
    "bool": ("bool",),
    "signed integer": ("int8", "int16", "int32", "int64"),
    "unsigned integer": ("uint8", "uint16", "uint32", "uint64"),
    "real floating": ("float32", "float64"),
    "complex floating": ("complex64", "complex128"),
}
_KINDS["integral"] = _KINDS["signed integer"] + _KINDS["unsigned integer"]
_KINDS["numeric"] = _KINDS["integral"] + _KINDS["real floating"] + _KINDS["complex floating"]


class NamespaceInfo:
    """The answers of ``__array_namespace_info__()``: capabilities, devices, dtypes.

    Examples
    --------
    >>> import adarray.numpy as np
    >>> np.__array_namespace_info__().default_device()
    'cpu'
    """

    __module__ = "adarray.numpy"

    def capabilities(self) -> dict[str, Any]:
        """Return the capabilities: data-dependent shapes, and the number of axes."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> str:
        """Return the device of new arrays."""
        return "cpu"

    def default_dtypes(self, *, device: Any = None) -> dict[str, np.dtype[Any]]:
        """Return the dtypes of arrays made of Python numbers, and of indices."""
        check_device(device, "default_dtypes")
        return {
            "real floating": np.dtype(np.float64),
            "complex floating": np.dtype(np.complex128),
            "integral": np.dtype(np.intp),
            "indexing": np.dtype(np.intp),
        }

    def dtypes(
        self, *, device: Any = None, kind: str | tuple[str, ...] | None = None
    ) -> dict[str, np.dtype[Any]]:
        """Return the dtypes of a kind (or of several), all if none is given, by name.

        Raises
        ------
        ValueError
            If a kind is not one of the standard's.
        """
        check_device(device, "dtypes")
        kinds = ("bool", "numeric") if kind is None else kind
        names: list[str] = []
        for one in (kinds,) if isinstance(kinds, str) else kinds:
            if one not in _KINDS:
                raise ValueError(f"dtypes: kind={one!r} is not known; it is one of {[*_KINDS]}")
            names += _KINDS[one]
        return {name: np.dtype(name) for name in dict.fromkeys(names)}

    def devices(self) -> list[str]:
        """Return the devices that arrays can be on."""
        return ["cpu"]


def __array_namespace_info__() -> NamespaceInfo:  # noqa: N807
    """Return the inspection object of the array API standard."""
    return NamespaceInfo()

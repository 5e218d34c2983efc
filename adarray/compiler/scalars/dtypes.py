"""The dtypes of compiled code: one record each, from which all tables of dtypes are made."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Dtype:
    """What printers know of a dtype.

    Parameters
    ----------
    name : str
        NumPy's.
    type : str
        C type of a value.
    suffix : str
        Ending of the names of our functions of it.
    stored : str, optional
        C type of an element in memory, if it is another.
    moved : str, optional
        Ending of the names of functions that move elements, if it is another.
    ending : str, optional
        What literals and the names of the C library's functions end with.
    wide : str, optional
        The dtype in which it is computed, if that is another: its elements are converted when
        they are read, and the result of each operation is rounded. Kernels move such elements
        and do nothing else with them. ``native/shared/adarray_math.h`` has the conversions:
        ``adarray_<suffix>_to_<wide suffix>``, its inverse, and one for each floating-point dtype
        whose numbers would be rounded twice on the way through `wide`. Constants are printed as
        the bits of an unsigned integer.
    """

    name: str
    type: str
    suffix: str
    stored: str = ""
    moved: str = ""
    ending: str = ""
    wide: str = ""

    @property
    def kind(self) -> str:
        """NumPy's letter for the kind: of ``"biufc"``."""
        return np.dtype(self.name).kind

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return int(np.dtype(self.name).itemsize)


DTYPES = {
    d.name: d
    for d in (
        Dtype("bool", "_Bool", "bool", stored="uint8_t", moved="u8"),
        Dtype("float64", "double", "f64"),
        Dtype("float32", "float", "f32", ending="f"),
        Dtype("float16", "uint16_t", "f16", moved="u16", wide="float32"),
        Dtype("int8", "int8_t", "i8"),
        Dtype("int16", "int16_t", "i16"),
        Dtype("int32", "int32_t", "i32"),
        Dtype("int64", "int64_t", "i64"),
        Dtype("uint8", "uint8_t", "u8"),
        Dtype("uint16", "uint16_t", "u16"),
        Dtype("uint32", "uint32_t", "u32"),
        Dtype("uint64", "uint64_t", "u64"),
        # Kernels take complex numbers apart when they read them, and put them together when they
        # write them; all arithmetic is on their parts.
        Dtype("complex64", "adarray_c64", "c64"),
        Dtype("complex128", "adarray_c128", "c128"),
    )
}


def of_kind(kind: str) -> tuple[str, ...]:
    """Return the names of the dtypes of a kind, as NumPy's letter says it."""
    return tuple(d.name for d in DTYPES.values() if d.kind == kind)


# Floating-point dtypes with functions of their own, and those that are computed in another.
FLOATS = tuple(d for d in of_kind("f") if not DTYPES[d].wide)
NARROW = frozenset(d.name for d in DTYPES.values() if d.wide)
COMPLEX = frozenset(of_kind("c"))
SIGNED = of_kind("i")
UNSIGNED = of_kind("u")
INTEGERS = SIGNED + UNSIGNED
SUFFIX = {d.name: d.suffix for d in DTYPES.values() if d.kind != "b"}
CTYPES = {d.name: d.type for d in DTYPES.values()}
# How elements lie in memory, and the ending of the names of functions that move them.
STORED = {d.name: d.stored or d.type for d in DTYPES.values()}
MOVED = {d.name: d.moved or d.suffix for d in DTYPES.values()}
# Bytes of an element.
SIZES = {d.name: d.size for d in DTYPES.values()}

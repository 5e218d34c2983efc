"""Products and convolutions of values on a GPU, as exact as the `use` block says."""

from __future__ import annotations

from typing import Any

import numpy as np
from adarray_backends.cuda import conv, conv_work, products
from adarray_backends.cuda.engine import PRECISION

from adarray.device import DeviceArray, Library
from adarray.ops.windows import geometry_for


def matmul(library: Library, a: Any, b: Any) -> Any:
    """Multiply stacks of matrices of one dtype that cuBLAS knows."""
    if type(a) is not DeviceArray or type(b) is not DeviceArray:
        return NotImplemented
    x, y = library.raw(a), library.raw(b)
    if not products.suits(x, y):
        return NotImplemented
    return DeviceArray(library.run(products.matmul, x, y, PRECISION.get()), library)


def convolve(library: Library, name: str, a: Any, b: Any, params: dict[str, Any]) -> Any:
    """Compute a convolution, or a gradient of one, of floating-point numbers of one dtype."""
    if type(a) is not DeviceArray or type(b) is not DeviceArray or a.dtype != b.dtype:
        return NotImplemented
    if a.dtype.char not in "efd":
        return NotImplemented
    sizes = geometry_for(name, a.shape, b.shape, params)
    if not conv_work.suits(sizes):
        return NotImplemented
    x, y, precision = library.raw(a), library.raw(b), PRECISION.get()
    if a.dtype.char == "e":  # summed in float32
        x, y = (library.run(v.astype, np.float32) for v in (x, y))
        raw = library.run(conv.convolve, name, x, y, sizes, "fp16")
        raw = library.run(raw.astype, np.float16)
    else:
        raw = library.run(conv.convolve, name, x, y, sizes, precision)
    return DeviceArray(raw, library)


def einsum(library: Library, subscripts: Any, a: Any, b: Any, **kwargs: Any) -> Any:
    """Contract two arrays as one product of matrices."""
    if not isinstance(subscripts, str) or kwargs.keys() - {"optimize"}:
        return NotImplemented
    if type(a) is not DeviceArray or type(b) is not DeviceArray:
        return NotImplemented
    x, y = library.raw(a), library.raw(b)
    r = library.run(products.einsum, subscripts, x, y, PRECISION.get())
    return NotImplemented if r is None else DeviceArray(r, library)

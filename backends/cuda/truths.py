"""``any`` and ``all`` of whole arrays.

CuPy's own take two kernels of CUB's templates, which NVRTC compiles for two seconds each, once for
each dtype: these are compiled in a twentieth of a second.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from adarray_backends.cuda.engine import THREADS

if TYPE_CHECKING:
    from adarray_backends.cuda.library import CudaLibrary

_BYTES = 16  # that a thread reads at a time
_BLOCKS = 4096  # at most: each goes on where the others have not been
_TYPES = {
    "?": "unsigned char", "b": "signed char", "B": "unsigned char", "h": "short",
    "H": "unsigned short", "i": "int", "I": "unsigned", "l": "long long",
    "L": "unsigned long long", "q": "long long", "Q": "unsigned long long", "f": "float",
    "d": "double",
}  # fmt: skip
# `sought` ends the search: a true element for `any`, a false one for `all`. Threads that find one
# write the same value.
_TEXT = """\
typedef struct __align__({bytes}) {{ {type} v[{pack}]; }} Pack;
extern "C" __global__ void __launch_bounds__({threads}) truth(
    const {type} *__restrict__ a, unsigned char *r, const long long n, const long long packs,
    const int sought)
{{
    const long long step = (long long)gridDim.x * {threads};
    const long long first = (long long)blockIdx.x * {threads} + threadIdx.x;
    for (long long p = first; p < packs; p += step) {{
        const Pack k = ((const Pack *)a)[p];
        bool here = false;
#pragma unroll
        for (int j = 0; j < {pack}; j++) here |= (k.v[j] != 0) == (sought != 0);
        if (here) {{
            *r = (unsigned char)sought;
            return;
        }}
    }}
    for (long long i = packs * {pack} + first; i < n; i += step)
        if ((a[i] != 0) == (sought != 0)) {{
            *r = (unsigned char)sought;
            return;
        }}
}}
"""


def source(char: str, threads: int) -> str:
    """Return the text of the kernel for arrays of a dtype."""
    pack = _BYTES // np.dtype(char).itemsize
    return _TEXT.format(type=_TYPES[char], bytes=_BYTES, pack=pack, threads=threads)


class Truths:
    """Finds out whether any, or all, elements of arrays on a GPU are true.

    Parameters
    ----------
    library : CudaLibrary
    """

    def __init__(self, library: CudaLibrary) -> None:
        self._library = library
        self._kernels: dict[tuple[str, int], Any] = {}

    def of(self, function: Any, x: Any) -> Any:
        """Return ``function(x)``, `np.any` or `np.all`, as an array without axes.

        NotImplemented for dtypes and layouts that are CuPy's.
        """
        char = x.dtype.char
        if char not in _TYPES or not (x._c_contiguous or x.flags.f_contiguous):
            return NotImplemented
        library, sought = self._library, int(function is np.any)
        result = library.run(library.xp.empty, (), np.bool_)
        library.run(result.data.memset_async, 1 - sought, 1)
        if x.size:
            threads = THREADS.get()
            kernel = self._kernels.get((char, threads))
            if kernel is None:
                kernel = library.compiled(source(char, threads), "truth")
                self._kernels[char, threads] = kernel
            packs = 0 if x.data.ptr % _BYTES else x.nbytes // _BYTES
            blocks = min(-(-max(packs, x.size % _BYTES if packs else x.size) // threads), _BLOCKS)
            arguments = (x, result, np.int64(x.size), np.int64(packs), np.int32(sought))
            library.run(kernel, (max(1, blocks),), (threads,), arguments)
        return result


class _Accelerators:
    """A setting of CuPy's that threads share, and how many of them have changed it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users = 0
        self.usual: list[Any] = []


_ACCELERATORS = _Accelerators()


@contextlib.contextmanager
def without_templates() -> Iterator[None]:
    """Have CuPy compile short kernels where it reduces what a solver says of its success."""
    from cupy._core import _accelerator

    own = _ACCELERATORS
    with own.lock:
        if not own.users:
            own.usual = _accelerator.get_reduction_accelerators()
            _accelerator.set_reduction_accelerators([])
        own.users += 1
    try:
        yield
    finally:
        with own.lock:
            own.users -= 1
            if not own.users:
                _accelerator.set_reduction_accelerators(own.usual)

"""A stand-in for a GPU that runs kernels in CUDA C++ on the processor: see kernel_host.h.

For tests of `adarray.kernels`.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import device
import numpy as np
from cffi import FFI

_FFI = FFI()
_FFI.cdef("int host_launch(void **args, const unsigned *grid, const unsigned *block);")
_HERE = Path(__file__).parent
_FOLDER = Path(tempfile.mkdtemp(prefix="adarray-kernels-"))


class Function:
    """A kernel, called as CuPy's functions are."""

    def __init__(self, text: str, name: str, together: bool = False) -> None:
        rest = text.partition(f"void {name}(")[2]
        declared = rest.partition(") {")[0]
        types = [re.sub(r"__restrict__|\w+$", "", p.strip()).strip() for p in declared.split(",")]
        args = ", ".join(
            f"*({t} *)a[{i}]" if "*" not in t else f"*({t}*)a[{i}]" for i, t in enumerate(types)
        )
        call = f"static void host_kernel(void **a) {{ {name}({args}); }}\n"
        source = _FOLDER / f"{name}{'_together' * together}.cpp"
        text = text.replace("extern __shared__ double adarray_dynamic[];", "")  # the header has it
        source.write_text(f'#include "kernel_host.h"\n{text}\n{call}')
        target = source.with_suffix(".so")
        done = subprocess.run(
            ["g++", "-O1", "-w", "-std=c++17", "-ffp-contract=off", "-shared", "-fPIC",
             *["-DHOST_TOGETHER"] * together, f"-I{_HERE}", "-o", str(target), str(source)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[:3000]
        self._launch = _FFI.dlopen(str(target)).host_launch

    def __call__(self, grid: Any, block: Any, args: Any, shared_mem: int = 0) -> None:
        """Run it."""
        values: list[Any] = []  # arrays by their addresses, numbers as they are
        for x in args:  # without functions of NumPy: a function that is recorded may call this
            if isinstance(x, device.Array):
                assert x.v.flags.c_contiguous
                values.append(_FFI.new("uintptr_t[]", [x.v.ctypes.data]))
            else:
                assert isinstance(x, np.generic)
                values.append(_FFI.from_buffer(bytearray(x.tobytes())))
        pointers = [_FFI.cast("void *", x) for x in values]
        assert shared_mem <= 1 << 17
        status = self._launch(_FFI.new("void *[]", pointers), [*grid], [*block])
        assert status == 0, "a barrier was not reached by all threads"


class HostGpu(device.StandInEngine):
    """An engine of the stand-in that runs kernels in CUDA C++.

    Attributes
    ----------
    together : bool
        Whether all threads of a warp come to each addition, if one comes.
    """

    language = "CUDA"
    together = False
    _functions: dict[str, Function] = {}  # noqa: RUF012  (a cache)

    def compile_source(
        self,
        text: str,
        name: str,
        shared: int = 0,
        alone: bool = False,
    ) -> Function:
        """Return a kernel of a text."""
        key = hashlib.sha256(f"{self.together} {text}".encode()).hexdigest()
        if key not in self._functions:
            self._functions[key] = Function(text, name, self.together)
        return self._functions[key]

"""Running what is printed for loop IR beside an interpreter of it, for tests of printers."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
from adarray_backends.cpu import compiler
from cffi import FFI
from loop_interpreter import Interpreter

from adarray.compiler.ir.target import CpuTarget
from adarray.compiler.ir.verify_loops import verify
from adarray.compiler.print_c import printer as cprinter

VECTOR_BYTES = {"base": 16, "avx2": 32, "avx512": 64}


class Compiled:
    """A kernel, printed, compiled and loaded."""

    def __init__(self, kernel, target=None):
        c_compiler = compiler.find()
        level = os.environ.get("ADARRAY_SIMD", "avx512")
        if target is None:
            target = CpuTarget(vector_bytes=VECTOR_BYTES[level], libmvec=c_compiler.libmvec)
        self.kernel = verify(kernel)
        self.source = cprinter.source(kernel, target)
        name = cprinter.name(self.source)
        self.ffi = FFI()
        self.ffi.cdef(
            f"int64_t {name}(char *const *, const int64_t *, char *, int64_t, int);"
            f"int64_t {name}_scratch(const int64_t *);"
        )
        precise = "#define ADARRAY_PRECISE\n" if target.precise else ""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "kernel.c"
            path.write_text(f'{precise}#include "kernel.h"\n{self.source}')
            flags = c_compiler.flags(level, limited=level != "avx512", quick=True)
            compiler.compile_units(c_compiler, flags, [path], [path.with_suffix(".so")])
            self.library = self.ffi.dlopen(str(path.with_suffix(".so")))
        self.run = getattr(self.library, name)
        self.workspace = getattr(self.library, f"{name}_scratch")

    def __call__(self, arrays, ints=(), threads=1):
        for a, b in zip(arrays, self.kernel.buffers, strict=True):
            assert a.dtype == b.dtype
            assert a.flags.c_contiguous
        p = self.ffi.new("char *[]", [self.ffi.cast("char *", a.ctypes.data) for a in arrays])
        n = self.ffi.new("int64_t[]", [*ints, 0])
        per = (self.workspace(n) + 63) // 64 * 64
        # Kernels must not rely on what the workspace holds.
        memory = np.full(per * threads + 64, 0xFF, np.uint8)
        start = memory.ctypes.data + -memory.ctypes.data % 64
        return self.run(p, n, self.ffi.cast("char *", start), per, threads)


def both(kernel, arrays, ints=(), threads=1, target=None, compiled=None):
    """Return code and arrays by the interpreter, then code and arrays by the compiled kernel."""
    expected, got = [a.copy() for a in arrays], [a.copy() for a in arrays]
    wanted = Interpreter(kernel, expected, ints).run()
    code = (compiled or Compiled(kernel, target))(got, ints, threads)
    return (wanted, expected), (code, got)

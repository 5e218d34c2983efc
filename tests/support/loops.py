"""Loop IR in tests: a slow interpreter of it, and running what is printed for it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
from adarray_backends.cpu import compiler
from cffi import FFI

from adarray.compiler.ir.loopir import (
    Apply,
    Assign,
    Const,
    Fail,
    Fold,
    For,
    If,
    Let,
    Load,
    Local,
    Store,
    Var,
)
from adarray.compiler.ir.target import CpuTarget
from adarray.compiler.ir.verify_loops import verify
from adarray.compiler.print_c import printer as cprinter

VECTOR_BYTES = {"base": 16, "avx2": 32, "avx512": 64}
NEUTRAL = {"add": 0, "multiply": 1, "logical_and": True, "logical_or": False}


class LeftError(Exception):
    """A kernel was left by Fail."""


def neutral(combine, dtype):
    if combine in NEUTRAL:
        return np.dtype(dtype).type(NEUTRAL[combine])
    sign = -1 if combine == "maximum" else 1
    if np.dtype(dtype).kind == "f":
        return np.dtype(dtype).type(sign * np.inf)
    if dtype == "bool":
        return np.bool_(sign > 0)
    info = np.iinfo(dtype)
    return np.dtype(dtype).type(info.max if sign > 0 else info.min)


class Interpreter:
    """Runs a kernel on NumPy arrays, one element at a time, in the order of its text."""

    def __init__(self, kernel, arrays, ints):
        self.kernel = kernel
        self.memory = {b.name: a.reshape(-1) for b, a in zip(kernel.buffers, arrays, strict=True)}
        self.names = {n: np.int64(v) for n, v in zip(kernel.ints, ints, strict=True)}

    def run(self):
        totals = self.kernel.totals
        for t in totals:
            shape = () if t.size is None else (int(self.expr(t.size)),)
            self.memory[t.name] = np.full(shape, neutral(t.combine, t.dtype), t.dtype)
        stored = not any(isinstance(s, For) and s.kind == "parallel" for s in self.kernel.body)
        try:
            for s in self.kernel.body:
                self.statement(s)
                if isinstance(s, For) and s.kind == "parallel":
                    self.store_totals()
            if stored:
                self.store_totals()
        except LeftError as left:
            return left.args[0]
        return 0

    def store_totals(self):
        for t in self.kernel.totals:
            total = self.memory[t.name]
            self.memory[t.out][: total.size] = total

    def expr(self, e):
        if isinstance(e, Const):
            return np.dtype(e.dtype).type(e.value)
        if isinstance(e, Var):
            return self.names[e.name]
        if isinstance(e, Load):
            return self.memory[e.buffer][int(self.expr(e.index))]
        assert isinstance(e, Apply)
        args = [self.expr(a) for a in e.args]
        with np.errstate(all="ignore"):
            if e.name == "cast":
                return np.asarray(args[0]).astype(e.dtype)[()]
            # Arrays: NumPy's loops for them are the standard, not those of its scalars.
            # One element is a scalar to np.power, whose -inf ** 0.5 is nan then; in others the
            # length decides about the sign of the larger of two zeros.
            arrays = [np.asarray(a)[None] for a in args]
            if e.name == "power":
                arrays = [np.repeat(a, 2) for a in arrays]
            made = getattr(np, e.name)(*arrays)[0]
        return made.astype(e.dtype)

    def body(self, body):
        for s in body:
            self.statement(s)

    def statement(self, s):
        if isinstance(s, Let):
            self.names[s.name] = self.expr(s.value)
        elif isinstance(s, Local):
            if s.size is not None:
                self.memory[s.name] = np.zeros(int(self.expr(s.size)), s.dtype)
            else:
                self.names[s.name] = (
                    np.dtype(s.dtype).type(0) if s.init is None else self.expr(s.init)
                )
        elif isinstance(s, Assign):
            self.names[s.name] = self.expr(s.value)
        elif isinstance(s, Store):
            self.memory[s.buffer][int(self.expr(s.index))] = self.expr(s.value)
        elif isinstance(s, Fold):
            self.fold(s)
        elif isinstance(s, If):
            self.body(s.body if self.expr(s.condition) else s.orelse)
        elif isinstance(s, Fail):
            raise LeftError(s.code)
        else:
            for i in range(int(self.expr(s.start)), int(self.expr(s.stop))):
                self.names[s.var] = np.int64(i)
                self.body(s.body)

    def fold(self, s):
        value, combine = self.expr(s.value), getattr(np, s.combine)
        with np.errstate(all="ignore"):
            if s.index is not None:
                i = int(self.expr(s.index))
                self.memory[s.target][i] = combine(self.memory[s.target][i], value)
            elif s.target in self.memory:
                self.memory[s.target][()] = combine(self.memory[s.target], value)
            else:
                self.names[s.target] = combine(self.names[s.target], value)


class Compiled:
    """A kernel, printed, compiled and loaded."""

    def __init__(self, kernel, target=None):
        found = compiler.find()
        level = os.environ.get("ADARRAY_SIMD", "avx512")
        if target is None:
            target = CpuTarget(vector_bytes=VECTOR_BYTES[level], libmvec=found.libmvec)
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
            flags = found.flags(level, limited=level != "avx512", quick=True)
            compiler.compile_units(found, flags, [path], [path.with_suffix(".so")])
            self.library = self.ffi.dlopen(str(path.with_suffix(".so")))
        self.run = getattr(self.library, name)
        self.scratch = getattr(self.library, f"{name}_scratch")

    def __call__(self, arrays, ints=(), threads=1):
        for a, b in zip(arrays, self.kernel.buffers, strict=True):
            assert a.dtype == b.dtype
            assert a.flags.c_contiguous
        p = self.ffi.new("char *[]", [self.ffi.cast("char *", a.ctypes.data) for a in arrays])
        n = self.ffi.new("int64_t[]", [*ints, 0])
        per = (self.scratch(n) + 63) // 64 * 64
        # Kernels must not rely on what scratch memory holds.
        memory = np.full(per * threads + 64, 0xFF, np.uint8)
        start = memory.ctypes.data + -memory.ctypes.data % 64
        return self.run(p, n, self.ffi.cast("char *", start), per, threads)


def both(kernel, arrays, ints=(), threads=1, target=None, compiled=None):
    """Return code and arrays by the interpreter, then code and arrays by the compiled kernel."""
    expected, got = [a.copy() for a in arrays], [a.copy() for a in arrays]
    wanted = Interpreter(kernel, expected, ints).run()
    code = (compiled or Compiled(kernel, target))(got, ints, threads)
    return (wanted, expected), (code, got)

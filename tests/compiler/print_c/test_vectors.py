"""C from loop IR: vector functions in all loops, with the bits of eager kernels."""

from __future__ import annotations

import shutil
import subprocess

import numpy as np
import pytest
from adarray_backends.cpu import compiler
from loop_kernels import (
    AT,
    N,
    add,
    arity,
    compared,
    fn,
    many,
    mul,
    var,
)
from loops import Compiled

from adarray import use
from adarray.base.op import OPS
from adarray.base.runtime import current_mode
from adarray.compiler.ir.loopir import (
    Const,
    Fold,
    For,
    Kernel,
    Let,
    Load,
    Param,
    Store,
    Total,
    Var,
    integer,
)
from adarray.compiler.ir.target import CpuTarget
from adarray.compiler.ir.verify_loops import verify
from adarray.compiler.print_c import printer as cprinter
from adarray.errors import BackendError

try:
    compiler.find()
except BackendError:
    pytest.skip("there is no C compiler", allow_module_level=True)

AVX512 = [f"-mavx512{part}" for part in ("f", "cd", "bw", "dq", "vl")]
OTHER = {"float64": "float32", "float32": "float64"}
ALIKE = fn("equal", Load("int64", "k", integer(1)), Load("int64", "k", integer(0)), dtype="bool")
BODIES = {
    "store": lambda x, y: (Store("y", AT, mul(fn("exp", x), x)),),
    "fold": lambda x, y: (Fold("s", "add", fn("exp", x)),),
    "both": lambda x, y: (Store("y", AT, fn("exp", x)), Fold("s", "add", mul(fn("exp", x), x))),
    "where": lambda x, y: (
        Store("y", AT, fn("where", compared(x), mul(fn("exp", x), x), Const(x.dtype, 1.0))),
    ),
    "where both": lambda x, y: (
        Fold("s", "add", fn("where", compared(x), fn("exp", x), mul(fn("sin", x), x))),
    ),
    "compared": lambda x, y: (
        Store("y", AT, fn("cast", compared(fn("exp", x)), dtype=x.dtype)),
        Fold("s", "add", fn("cast", fn("logical_not", compared(fn("sin", x))), dtype=x.dtype)),
    ),
    "nested where": lambda x, y: (
        Let("c", fn("logical_and", compared(x), compared(fn("exp", x)))),
        Let("w", fn("where", Var("bool", "c"), fn("exp", mul(x, x)), fn("sin", x))),
        Store("y", AT, fn("where", compared(Var(x.dtype, "w")), Var(x.dtype, "w"), fn("cos", x))),
    ),
    "extremes": lambda x, y: (
        Store("y", AT, fn("maximum", fn("exp", x), Const(x.dtype, 1.0))),
        Fold("s", "add", fn("minimum", fn("sin", x), fn("cos", x))),
    ),
    "position": lambda x, y: (
        Let("hit", fn("equal", AT, Load("int64", "k", integer(0)), dtype="bool")),
        Store("y", AT, fn("where", Var("bool", "hit"), fn("exp", x), x)),
    ),
    # Truths that are the same for all elements of the loop.
    "same for all": lambda x, y: (
        Store("y", AT, fn("where", ALIKE, fn("exp", x), mul(fn("sin", x), x))),
        Fold("s", "add", mul(fn("cos", x), fn("where", ALIKE, x, Const(x.dtype, 1.0)))),
    ),
    "same for all and not": lambda x, y: (
        Let("c", fn("logical_and", ALIKE, compared(fn("exp", x)))),
        Let("d", fn("where", ALIKE, Var("bool", "c"), compared(x), dtype="bool")),
        Store("y", AT, fn("where", Var("bool", "d"), fn("sin", x), fn("cos", x))),
        Fold("s", "add", fn("cast", fn("logical_or", ALIKE, compared(x)), dtype=x.dtype)),
    ),
    "remainder": lambda x, y: (
        Store("y", AT, fn("exp", fn("negative", fn("remainder", x, Const(x.dtype, 3.0))))),
        Fold("s", "add", fn("nextafter", fn("sin", x), fn("fmod", x, fn("cos", x)))),
    ),
    "integers": lambda x, y: (
        Let("q", fn("floor_divide", Load("int64", "k", AT), add(AT, integer(2)))),
        Store("y", AT, mul(fn("exp", x), fn("cast", Var("int64", "q"), dtype=x.dtype))),
    ),
    "gather": lambda x, y: (
        Let("at", Load("int64", "k", AT)),
        Let("bad", fn("logical_or", fn("less", var("at"), integer(0), dtype="bool"),
                      fn("greater_equal", var("at"), N, dtype="bool"))),
        Fold("failed", "logical_or", Var("bool", "bad")),
        Let("safe", fn("minimum", fn("maximum", var("at"), integer(0)), integer(2))),
        Store("y", AT, fn("exp", Load(x.dtype, "x", var("safe")))),
    ),
    "two dtypes": lambda x, y: (
        Let("w", fn("cast", fn("exp", x), dtype=OTHER[x.dtype])),
        Store("y", AT, fn("cast", fn("sin", Var(OTHER[x.dtype], "w")), dtype=x.dtype)),
    ),
}  # fmt: skip


@pytest.mark.skipif(shutil.which("nm") is None, reason="there is no nm")
@pytest.mark.skipif(compiler.find().libmvec < 2, reason="there are no vector functions")
class TestVectors:
    """Functions in vector loops are called in their vector versions alone."""

    @pytest.mark.slow
    @pytest.mark.parametrize("dtype", ["float64", "float32"])
    @pytest.mark.parametrize("name", BODIES)
    def test_no_scalar_call_is_left(self, name, dtype, tmp_path):
        body = BODIES[name](Load(dtype, "x", AT), None)
        buffers = (
            Param("x", dtype),
            Param("y", dtype, "out"),
            Param("z", dtype, "out"),
            Param("k", "int64"),
        )
        buffers += (Param("f", "bool", "out"),)
        totals = (Total("s", dtype, "add", "z"), Total("failed", "bool", "logical_or", "f"))
        kernel = verify(Kernel(buffers, ("n",), totals, (For("i", integer(0), N, body, "vector"),)))
        path = compiler.find()
        source, target = tmp_path / "kernel.c", tmp_path / "kernel.so"
        source.write_text('#include "kernel.h"\n' + cprinter.source(kernel, CpuTarget()))
        # gcc has no gathers of float32 by 64-bit indices below AVX-512.
        wide = [*path.flags("avx512", limited=False), *AVX512]
        small = path.flags("avx2", limited=True, quick=True)
        for flags in (wide,) if (name, dtype) == ("gather", "float32") else (wide, small):
            compiler.compile_units(path, flags, [source], [target])
            symbols = subprocess.run(
                ["nm", "-D", "-u", str(target)], capture_output=True, text=True, check=True
            )
            called = {line.split()[-1].split("@")[0] for line in symbols.stdout.splitlines()}
            assert any(s.startswith("_ZGV") for s in called)
            assert not called & {f"{f}{e}" for f in ("exp", "sin", "cos") for e in ("", "f")}


class TestEagerAgreement:
    """Values of vector loops are those of the eager kernels, to the last bit."""

    @pytest.mark.parametrize("dtype", ["float64", "float32"])
    def test_bits(self, dtype):
        names = ["exp", "log", "sin", "cos", "tanh", "log1p", "expm1", "sqrt", "arctan", "maximum"]
        kernel = many(names, [dtype, dtype], dtype)
        rng = np.random.default_rng(13)
        x, y = rng.gamma(2.0, size=(2, 70001)).astype(dtype)
        outs = [np.zeros_like(x) for _ in names]
        Compiled(kernel)([x, y, *outs], (len(x),), 2)
        with use("openmp", threads=2), np.errstate(all="ignore"):
            engine = current_mode().engine
            for name, out in zip(names, outs, strict=True):
                compiled = engine._kernel(OPS[name], -1, None, dtype)
                args = (x, y)[: arity(name)]
                eager = engine._compute(OPS[name], -1, None, args)
                assert compiled is not None
                np.testing.assert_array_equal(out, eager, err_msg=name)

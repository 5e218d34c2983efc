"""Kernels of loop IR for tests, and numbers to run them on.

For tests of printers.
"""

from __future__ import annotations

import numpy as np

from adarray.compiler.ir.loopir import Apply, Const, For, Kernel, Load, Param, Store, Var, integer
from adarray.compiler.scalars.catalogue import FUNCTIONS

I64 = "int64"
SIZES = (0, 1, 3, 15, 16, 17, 64, 100, 1025, 5000)


def fn(name, *args, dtype=None):
    return Apply(dtype or args[-1].dtype, name, args)


def var(name, dtype=I64):
    return Var(dtype, name)


def add(a, b):
    return fn("add", a, b)


def mul(a, b):
    return fn("multiply", a, b)


N, AT, J = var("n"), var("i"), var("j")


def elementwise(expr, inputs, dtype, kind="vector"):
    """Return the kernel ``y[i] = expr(x0[i], ...)`` for inputs of the given dtypes."""
    loads = [Load(d, f"x{k}", AT) for k, d in enumerate(inputs)]
    body = (Store("y", AT, expr(*loads)),)
    buffers = (*(Param(f"x{k}", d) for k, d in enumerate(inputs)), Param("y", dtype, "out"))
    return Kernel(buffers, ("n",), (), (For("i", integer(0), N, body, kind),))


def ulps(a, b):
    """Return the distance of two arrays of numbers in units of the last place."""
    a, b = np.asarray(a), np.asarray(b)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(all="ignore"):
        off = np.abs(a.astype(np.float64) - b) / np.spacing(np.maximum(np.abs(a), np.abs(b)))
    return float(np.max(np.where(same, 0, off), initial=0))


SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 1e-300, -1e300, 1e-45, np.inf, -np.inf, np.nan]


def numbers(rng, n, dtype):
    """Return numbers of a dtype, special ones among them."""
    kind = np.dtype(dtype).kind
    if kind == "b":
        return rng.random(n) < 0.5
    if kind in "iu":
        info = np.iinfo(dtype)
        small = rng.integers(max(info.min, -7), 8, n)
        wide = rng.integers(info.min, info.max, n, dtype, endpoint=True)
        x = np.where(rng.random(n) < 0.7, small.astype(dtype), wide)
        x[: min(n, 3)] = np.array([info.min, info.max, 0], dtype)[:n]
        return x
    x = rng.normal(size=n) * np.exp(rng.normal(size=n))
    with np.errstate(all="ignore"):
        special = rng.choice(np.array(SPECIAL), n)
        return np.where(rng.random(n) < 0.2, special, x).astype(dtype)


INTEGERS = [f"{u}int{b}" for u in ("", "u") for b in (8, 16, 32, 64)]


def arity(name):
    return FUNCTIONS[name].arity


def many(functions, inputs, dtype):
    """Return a kernel that stores each function of its inputs in an output of its own."""
    loads = [Load(d, f"x{k}", AT) for k, d in enumerate(inputs)]
    body = tuple(
        Store(f"y{k}", AT, Apply(dtype, name, tuple(loads[: arity(name)])))
        for k, name in enumerate(functions)
    )
    buffers = tuple(Param(f"x{k}", d) for k, d in enumerate(inputs))
    buffers += tuple(Param(f"y{k}", dtype, "out") for k in range(len(functions)))
    return Kernel(buffers, ("n",), (), (For("i", integer(0), N, body, "vector"),))


def touched(x, heavy):
    return fn("exp", x) if heavy else add(x, Const(x.dtype, 1.0))


def compared(x):
    return fn("greater", x, Const(x.dtype, 0.5), dtype="bool")

"""Discrete Fourier transforms of processors, by SciPy where it is installed.

Both libraries have the same algorithm and the same arguments. SciPy transforms several rows at once
in the lanes of vectors, computes single precision throughout, and shares rows among threads. Some
of real numbers are computed as complex ones of half the length (`packed_transforms`).

References
----------
- M. Frigo, S. G. Johnson, "The design and implementation of FFTW3", Proc. IEEE 93 (2005), 216-231
  (transforms of several rows in the lanes of a vector).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import numpy as np

from adarray.base.types import Function
from adarray.compiler.ir.builder import Builder
from adarray.compiler.ir.primitives import PythonCall, Slot
from adarray.compiler.ir.program import Program, Value
from adarray.compiler.ir.target import CpuTarget, Target
from adarray.compiler.rewrite.packed_transforms import packed
from adarray.compiler.rewrite.rebuild import rebuild, renewed

TRANSFORMS: Mapping[Function, str] = {
    getattr(np.fft, name): name
    for name in (
        "fft", "ifft", "rfft", "irfft", "hfft", "ihfft",
        "fft2", "ifft2", "rfft2", "irfft2", "fftn", "ifftn", "rfftn", "irfftn",
    )
}  # fmt: skip
DTYPES = "fdFD"
# Of real numbers, SciPy's have imaginary parts of -0.0 where NumPy's are 0.0.
OF_COMPLEX = frozenset({"ifft", "ifft2", "ifftn"})
# Positional arguments, and those by name, that mean the same in both libraries. Lengths of several
# axes may be left out one by one in NumPy alone.
POSITIONAL, NAMED = 4, frozenset({"n", "axis", "axes", "norm"})
# Elements from which on threads share a transform.
SHARED = 1 << 17


@dataclass(frozen=True)
class Transform:
    """A function of `numpy.fft` as SciPy computes it.

    Parameters
    ----------
    name : str
    workers : int
        Threads.
    """

    name: str
    workers: int

    @property
    def __name__(self) -> str:
        return self.name

    def __call__(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the transform of an array."""
        from scipy import fft

        return getattr(fft, self.name)(x, *args, workers=self.workers, **kwargs)


def scipy_transforms(program: Program, target: Target) -> Program:
    """Return the program with transforms that SciPy computes."""
    if not isinstance(target, CpuTarget) or find_spec("scipy") is None:
        return program
    if not any(_known(v) for v in program.values):
        return program

    def rule(b: Builder, v: Value, args: tuple[Value, ...]) -> Value:
        if isinstance(p := v.primitive, PythonCall) and _known(v):
            workers = target.threads if max(v.size, args[0].size) >= SHARED else 1
            half = packed(b, v, TRANSFORMS[p.function], args[0], workers)
            if half is not None:
                return half
            call = replace(p, function=Transform(TRANSFORMS[p.function], workers))
            return b.make(call, args, v.shape, v.dtype)
        return renewed(b, v, args)

    return rebuild(program, rule)


def _known(v: Value) -> bool:
    """Whether a value is a transform with arguments that both libraries take."""
    p = v.primitive
    if not isinstance(p, PythonCall) or p.results is not None or len(v.args) != 1:
        return False
    try:
        name = TRANSFORMS.get(p.function)
    except TypeError:  # it cannot be hashed
        return False
    if name is None or not p.args or p.args[0] != Slot(0) or len(p.args) > POSITIONAL:
        return False
    several = name.endswith(("2", "n"))
    lengths = p.args[1] if len(p.args) > 1 else None
    rest = [*p.args[1:], *p.kwargs.values()]
    return (
        p.kwargs.keys() <= NAMED
        and not (several and (lengths is not None or _has_axis_twice(p, v.args[0].ndim)))
        and not any(isinstance(x, Slot) for x in rest)
        and v.args[0].dtype.char in (DTYPES[2:] if name in OF_COMPLEX else DTYPES)
        and v.args[0].ndim > 0
        and v.size > 0
    )


def _has_axis_twice(p: PythonCall, ndim: int) -> bool:
    """Whether a transform goes over an axis several times, which SciPy refuses."""
    axes = p.args[2] if len(p.args) > 2 else p.kwargs.get("axes")
    return isinstance(axes, tuple | list) and len({a % ndim for a in axes}) < len(axes)

"""Parts, conjugates, phases and signs of complex numbers.

Real numbers are pairs (g, t) of a cotangent and a tangent; a complex cotangent is
paired as ``Re(sum(g * t))``. So the rules of analytic functions, which have complex
derivatives, read the same for real and complex operands, and
the gradient of a real function of ``x + i y`` is ``df/dx - i df/dy``.

References
----------
- W. Wirtinger, "Zur formalen Theorie der Funktionen von mehr komplexen Veränderlichen", Math. Ann.
  97 (1927), 357-375.
- K. Kreutz-Delgado, "The complex gradient operator and the CR-calculus", arXiv:0906.4835, 2009.
- C. Boeddeker, P. Hanebrink, L. Drude, J. Heymann, R. Haeb-Umbach, "On the computation of
  complex-valued gradients with application to statistically optimum beamforming", arXiv:1701.00392,
  2017.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from adarray.arrays.operators import weakened
from adarray.arrays.questions import is_array
from adarray.base.aval import Symbolic
from adarray.base.op import Layout, Op, Pointwise, composite, register
from adarray.batching.rules import same
from adarray.core.dispatch import apply
from adarray.core.inplace import READ_ONLY
from adarray.core.protocol import plain, traced
from adarray.core.trace import Handle, extras, is_weak
from adarray.ops.common import as_operand, composite_if_traced, s


def is_complex(x: Any) -> bool:
    """Whether an operand (array, number or symbol of a scalar expression) is complex."""
    dtype = getattr(x, "dtype", None)
    return isinstance(x, complex) if dtype is None else bool(dtype.kind == "c")


def conjugate_of(x: Any) -> Any:
    """Return the conjugate; `x` itself, and no copy of it, if it is real."""
    return np.conjugate(x) if is_complex(x) else x


def _samples(rng: np.random.Generator) -> list[Any]:
    z = rng.normal(size=(3, 4)) + 1j * rng.normal(size=(3, 4))
    return [s(z), s(z[::-1, ::2]), s(np.complex128(1 - 2j)), s(rng.normal(size=4))]


conjugate = register(
    Op(
        "conjugate",
        np.conjugate,
        Pointwise(lambda x: np.positive(x)),  # kernels are printed for real numbers
        [lambda g, out, x: conjugate_of(g)],
        samples=((-3.0, 3.0),),
        operands=("x",),
        signature="x, /, out=None",
    )
)


def _real_part(x: Any) -> Any:
    return x.real


real = register(
    Op(
        "real",
        _real_part,
        Layout(part="real"),
        [lambda g, out, x: g],
        jvp="linear",
        samples=_samples,
        operands=("x",),
        batch=same,
        zero_d=as_operand,
        note="a view, as in NumPy",
    )
)


def _imaginary_part(x: Any) -> Any:
    return x.imag


imag = register(
    Op(
        "imag",
        _imaginary_part,
        Layout(part="imag"),
        [lambda g, out, x: g * (-1j if is_complex(x) else 0.0)],
        jvp="linear",
        samples=_samples,
        operands=("x",),
        batch=same,
        zero_d=as_operand,
        note="a view, as in NumPy",
    )
)


@composite(np.real)
def _real(val: Any) -> Any:
    return _of(val, apply(real, (val,))) if is_complex(val) else val


def _of(val: Any, part: Any) -> Any:
    """Return a part of a number as a number of its kind."""
    if not isinstance(val, Handle) or is_array(val):
        return part
    return weakened(part) if is_weak(val) else part[()]


@composite(np.imag)
def _imag(val: Any) -> Any:
    if is_complex(val):
        return _of(val, apply(imag, (val,)))
    zeros = _of(val, np.zeros_like(val))
    if isinstance(zeros, Handle):  # for reading only, as NumPy's: what is written would be lost
        if isinstance(zeros._plain, Symbolic):
            if np.ndim(zeros._plain):
                extras(zeros).peers = READ_ONLY
        elif isinstance(zeros._plain, np.ndarray):  # of the host or a device
            zeros._plain.flags.writeable = False
    return zeros


@composite_if_traced(np.angle)
def _angle(z: Any, deg: bool = False) -> Any:
    phase = np.arctan2(np.imag(z), np.real(z))
    return phase * (180 / np.pi) if deg else phase


@composite(np.sign)
def _sign(x: Any, /) -> Any:
    """``np.sign``: constant for real numbers, ``x / |x|`` for complex ones, 0 at 0."""
    if not (is_complex(x) and traced(x)):
        return type(x)(np.sign(plain(x)))
    length = np.absolute(x)
    return np.divide(x, length + (length == 0))


# -- numpy.emath: complex results where real ones would be nan -----------------------------------


def _domain(function: Any, outside: Callable[[Any], Any]) -> None:
    """Register a function of `numpy.emath` whose argument turns complex `outside` of a domain."""
    name = function.__name__

    def body(*args: Any) -> Any:
        *first, x = args
        if not is_complex(x) and bool(np.any(outside(plain(x)))):
            x = x.astype(np.result_type(x.dtype, np.complex64)) if traced(x) else x + 0j
        if name == "logn":
            (n,) = first
            return np.emath.log(x) / np.emath.log(n)
        return getattr(np, name)(x)

    composite_if_traced(function)(body)


def _negative(x: Any) -> Any:
    return np.asarray(x) < 0


def _beyond_one(x: Any) -> Any:
    return np.abs(np.asarray(x)) > 1


for _function in (
    np.emath.sqrt, np.emath.log, np.emath.log2, np.emath.log10, np.emath.logn,
):  # fmt: skip
    _domain(_function, _negative)
for _function in (np.emath.arccos, np.emath.arcsin, np.emath.arctanh):
    _domain(_function, _beyond_one)


@composite_if_traced(np.emath.power)
def _emath_power(x: Any, p: Any) -> Any:
    """``np.emath.power``: a negative base or an integer one turns complex or floating."""
    if not is_complex(x) and bool(np.any(_negative(plain(x)))):
        x = np.add(x, 0j)
    if not is_complex(p) and bool(np.any(_negative(plain(p)))):
        p = np.multiply(p, 1.0)
    return np.power(x, p)

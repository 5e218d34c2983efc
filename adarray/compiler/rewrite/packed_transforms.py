"""Transforms of real numbers of even length as complex ones of half the length.

A row of real numbers is one of half as many complex ones in the same memory; what is left to do is
one sum for each frequency, which joins the kernels beside the transform. Of lengths with a large
prime factor, SciPy (pocketfft) computes transforms as convolutions of at least twice the length
(Bluestein), and those of real numbers as complex ones: these take half the time so.

References
----------
- J. W. Cooley, P. A. W. Lewis, P. D. Welch, "The fast Fourier transform algorithm: programming
  considerations in the calculation of sine, cosine and Laplace transforms", J. Sound Vib. 12
  (1970), 315-337 (two halves of a real row as one complex row).
- L. I. Bluestein, "A linear filtering approach to the computation of discrete Fourier transform",
  IEEE Trans. Audio Electroacoust. 18 (1970), 451-455.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from adarray.compiler.ir.builder import Builder
from adarray.compiler.ir.primitives import PythonCall, Slot
from adarray.compiler.ir.program import Value

# What each transform of real numbers is: whether it goes to frequencies or comes from them,
# whether frequencies are conjugate ones, and whether its plain form divides by the length.
REAL: dict[str, tuple[bool, bool, bool]] = {
    "rfft": (True, False, False), "ihfft": (True, True, True),
    "irfft": (False, False, True), "hfft": (False, True, False),
}  # fmt: skip
PARAMETERS = ("n", "axis", "norm")
# Of SciPy: what its authors measured a convolution to cost beside its two transforms, and a
# butterfly of another length than 2 to 5 for each of its numbers.
CONVOLVED, OTHER = 1.5, 1.1
SMOOTH = (2, 3, 5, 7, 11)


@dataclass(frozen=True)
class PackedTransform:
    """A complex transform without a factor, of rows that are real in the same memory.

    Parameters
    ----------
    forward : bool
        From real rows to complex frequencies, half as many; or the way back.
    workers : int
        Threads.
    """

    forward: bool
    workers: int

    @property
    def __name__(self) -> str:
        return "fft" if self.forward else "ifft"

    def __call__(self, x: Any) -> Any:
        """Return the transform of an array along its last axis."""
        from scipy import fft

        if self.forward:
            pairs = np.ascontiguousarray(x)
            pairs = pairs.view(np.result_type(pairs.dtype, np.complex64))
            return fft.fft(pairs, workers=self.workers)
        y = np.ascontiguousarray(fft.ifft(x, norm="forward", workers=self.workers))
        return y.view(y.real.dtype)


def packed(
    b: Builder, v: Value, name: str, x: Value, workers: int
) -> Value | None:  # fmt: skip
    """Return a transform of real numbers as one of half the length; None if that gains nothing."""
    p = v.primitive
    if name not in REAL or not isinstance(p, PythonCall):
        return None
    options = dict(zip(PARAMETERS, p.args[1:], strict=False)) | dict(p.kwargs)
    forward, conjugate, divides = REAL[name]
    time, frequencies = (x, v) if forward else (v, x)
    n = time.shape[-1]
    fits = (
        options.get("axis") in (None, -1, v.ndim - 1)
        and options.get("n") in (None, n)
        and frequencies.shape[-1] == n // 2 + 1
        and time.dtype.kind == "f"
        and frequencies.dtype.kind == "c"
    )
    if not fits or n % 2 or not is_convolved(n):
        return None
    norm = options.get("norm")
    scale = n**-0.5 if norm == "ortho" else 1.0 / n if divides != (norm == "forward") else 1.0
    sign = -1.0 if conjugate else 1.0
    call = replace(p, function=PackedTransform(forward, workers), args=(Slot(0),), kwargs={})
    halves = _Halves(b, n, time.dtype)
    if forward:
        z = b.make(call, (x,), (*x.shape[:-1], n // 2), v.dtype)
        re, im = halves.joined(*b.parts(z))
        return b.paired(halves.times(re, scale), halves.times(im, sign * scale))
    re, im = b.parts(x)
    re, im = halves.parted(re, halves.times(im, sign))
    z = b.paired(halves.times(re, scale), halves.times(im, scale))
    return b.make(call, (z,), v.shape, v.dtype)


class _Halves:
    """What stands between the frequencies of a row and those of its elements in pairs."""

    def __init__(self, b: Builder, n: int, dtype: np.dtype[Any]) -> None:
        self.b = b
        self.dtype = dtype
        self.half = n // 2
        angles = 2 * np.pi * np.arange(n // 2 + 1) / n
        sines = np.sin(angles)
        sines[-1] = 0.0
        self.cos = np.cos(angles).astype(dtype)
        self.sin = sines.astype(dtype)

    def times(self, x: Value, factor: float) -> Value:
        """Return a multiple of real numbers."""
        if factor == 1:
            return x
        return self.b.map("multiply", x, self._same(self.b.const(factor, self.dtype), x))

    def joined(self, re: Value, im: Value) -> tuple[Value, Value]:
        """Return the frequencies of a row, from those of its pairs."""
        b, axis = self.b, re.ndim - 1
        re, im = (b.concatenate((x, b.slice(x, axis, 0, 1)), axis) for x in (re, im))
        (even_re, odd_im), (odd_re, even_im) = self._sides(re), self._sides(im)
        cos, sin = self._same(b.array(self.cos), re), self._same(b.array(self.sin), re)
        both_re = b.map("subtract", b.map("multiply", cos, odd_re), b.map("multiply", sin, odd_im))
        both_im = b.map("add", b.map("multiply", cos, odd_im), b.map("multiply", sin, odd_re))
        twice = b.map("add", even_re, both_re), b.map("subtract", even_im, both_im)
        return self.times(twice[0], 0.5), self.times(twice[1], 0.5)

    def parted(self, re: Value, im: Value) -> tuple[Value, Value]:
        """Return the frequencies of a row's pairs, twice as large, from those of the row."""
        b, axis, h = self.b, re.ndim - 1, self.half
        zero = b.full((*im.shape[:-1], 1), 0, self.dtype)
        im = b.concatenate((zero, b.slice(im, axis, 1, h), zero), axis)
        (even_re, odd_re), (odd_im, even_im) = self._sides(re), self._sides(im)
        cos, sin = self._same(b.array(self.cos), re), self._same(b.array(self.sin), re)
        both_re = b.map("subtract", b.map("multiply", cos, odd_re), b.map("multiply", sin, odd_im))
        both_im = b.map("add", b.map("multiply", cos, odd_im), b.map("multiply", sin, odd_re))
        real, imag = b.map("subtract", even_re, both_im), b.map("add", even_im, both_re)
        return b.slice(real, axis, 0, h), b.slice(imag, axis, 0, h)

    def _sides(self, x: Value) -> tuple[Value, Value]:
        """Return a row plus and minus itself from its end."""
        back = self.b.flip(x, (x.ndim - 1,))
        return self.b.map("add", x, back), self.b.map("subtract", x, back)

    def _same(self, x: Value, like: Value) -> Value:
        return self.b.broadcast(x, like.shape)


def is_convolved(n: int) -> bool:
    """Whether SciPy computes a transform of `n` real numbers as a convolution.

    By its estimate: the cost of direct butterflies, beside that of two transforms of a length
    with small factors.
    """
    factors = _factors(n)
    if n < 50 or max(factors, default=1) ** 2 <= n:
        return False
    return 2 * CONVOLVED * _cost(_smooth(2 * n - 1)) < 0.5 * _cost(n)


def _factors(n: int) -> list[int]:
    factors, p = [], 2
    while p * p <= n:
        while n % p == 0:
            factors.append(p)
            n //= p
        p += 1
    return [*factors, n] if n > 1 else factors


def _cost(n: int) -> float:
    return n * sum(f if f <= 5 else OTHER * f for f in _factors(n))


def _smooth(n: int) -> int:
    """Return the least number that is no less, with small factors alone."""
    while max(_factors(n), default=1) > SMOOTH[-1]:
        n += 1
    return n

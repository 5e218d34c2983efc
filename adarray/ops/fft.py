"""`numpy.fft`: discrete Fourier transforms, which are linear.

The matrix of the complex transform is symmetric, so a transform is its own pullback. The
transforms between real sequences and halves of Hermitian ones are each other's, but for the
frequencies that such a half stands for twice: they count twice one way and half the other.

References
----------
- J. F. Claerbout, "Earth Soundings Analysis: Processing versus Inversion", Blackwell 1992 (adjoints
  of linear operators).
- J. W. Cooley, J. W. Tukey, "An algorithm for the machine calculation of complex Fourier series",
  Math. Comp. 19 (1965), 297-301.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from adarray.base.op import Op, Opaque, Sample, register
from adarray.batching.rules import along
from adarray.core.protocol import finish
from adarray.ops.borrow import borrow, borrowed
from adarray.ops.common import composite_if_traced, s

Transform = Callable[..., Any]


def _resized(x: Any, n: int, axis: int) -> Any:
    """Return `x` cut or filled up with zeros to length `n` along `axis`."""
    at = normalize_axis_index(axis, x.ndim)
    have = x.shape[at]
    if have > n:
        return x[(slice(None),) * at + (slice(n),)]
    if have < n:
        shape = (*x.shape[:at], n - have, *x.shape[at + 1 :])
        return np.concatenate([x, np.zeros(shape, x.dtype)], axis=at)
    return x


def _weighted(x: Any, n: int, axis: int, weight: float) -> Any:
    """Multiply the frequencies that stand for two of the `n` of a real sequence."""
    at = normalize_axis_index(axis, x.ndim)
    weights = np.ones(n // 2 + 1, np.finfo(x.dtype).dtype)
    weights[1 : (n + 1) // 2] = weight
    return x * np.reshape(weights, (-1,) + (1,) * (x.ndim - at - 1))


def _complex(transform: Transform) -> Callable[..., Any]:
    """Return the rule of ``fft`` or ``ifft``: the same transform."""

    def rule(g: Any, out: Any, a: Any, n: Any = None, axis: int = -1, norm: Any = None) -> Any:
        return _resized(transform(g, None, axis, norm), a.shape[axis], axis)

    return rule


def _to_half(back: Transform) -> Callable[..., Any]:
    """Return the rule of ``rfft`` or ``ihfft``: `back` of the halves."""

    def rule(g: Any, out: Any, a: Any, n: Any = None, axis: int = -1, norm: Any = None) -> Any:
        n = a.shape[axis] if n is None else n
        return _resized(back(_weighted(g, n, axis, 0.5), n, axis, norm), a.shape[axis], axis)

    return rule


def _from_half(back: Transform) -> Callable[..., Any]:
    """Return the rule of ``irfft`` or ``hfft``: `back`, doubled."""

    def rule(g: Any, out: Any, a: Any, n: Any = None, axis: int = -1, norm: Any = None) -> Any:
        n = out.shape[axis]
        half = _weighted(back(g, None, axis, norm), n, axis, 2.0)
        return _resized(half, a.shape[axis], axis)

    return rule


def _samples(kind: str) -> Callable[[np.random.Generator], list[Sample]]:
    """Return samples of lengths even and odd, cut and filled up, for real or complex input."""

    def samples(rng: np.random.Generator) -> list[Sample]:
        def make(*shape: int) -> np.ndarray:
            x = rng.normal(size=shape)
            return x if kind == "real" else x + 1j * rng.normal(size=shape)

        samples = [
            s(make(6)),
            s(make(5), norm="ortho"),
            s(make(2, 4), n=7, norm="forward"),
            s(make(6, 2)[::-1], n=4, axis=0),
            s(make(3, 4, 2), n=5, axis=-2),
            s(make(2)),
        ]
        if kind == "complex":  # of real numbers, too
            samples += [s(rng.normal(size=5)), s(rng.normal(size=(2, 3)), n=1)]
        return samples

    return samples


def _register(transform: Transform, rule: Callable[..., Any], kind: str) -> None:
    register(
        Op(
            transform.__name__,
            transform,
            Opaque(),
            [rule],
            jvp="linear",
            samples=_samples(kind),
            operands=("a",),
            params=("n", "axis", "norm"),
            batch=along("last"),
        )
    )


_register(np.fft.fft, _complex(np.fft.fft), "complex")
_register(np.fft.ifft, _complex(np.fft.ifft), "complex")
_register(np.fft.rfft, _to_half(np.fft.hfft), "real")
_register(np.fft.ihfft, _to_half(np.fft.irfft), "real")
_register(np.fft.irfft, _from_half(np.fft.ihfft), "complex")
_register(np.fft.hfft, _from_half(np.fft.rfft), "complex")


def _many(function: Callable[..., Any], default_axes: Any) -> None:
    """Register a transform of several axes: NumPy's own, one axis after the other."""
    body = borrowed(function)

    def transform(
        a: Any, s: Any = None, axes: Any = default_axes, norm: Any = None, out: Any = None
    ) -> Any:
        return finish(body(a, s, axes, norm), out, function.__name__)

    composite_if_traced(function)(transform)


for _function in (np.fft.fftn, np.fft.ifftn, np.fft.rfftn, np.fft.irfftn):
    _many(_function, None)
for _function in (np.fft.fft2, np.fft.ifft2, np.fft.rfft2, np.fft.irfft2):
    _many(_function, (-2, -1))

# Rolls.
borrow(np.fft.fftshift, np.fft.ifftshift)

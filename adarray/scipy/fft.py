"""Drop-in for `scipy.fft`: Fourier, cosine, sine and Hankel transforms.

References
----------
- G. Strang, "The discrete cosine transform", SIAM Review 41 (1999), 135-147.
- A. J. S. Hamilton, "Uncorrelated modes of the non-linear power spectrum", Mon. Not. R. Astron.
  Soc. 312 (2000), 257-284 (Hankel transforms).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.fft

from adarray.batching.rules import same
from adarray.ops.common import s as sample
from adarray.scipy._drop_in import array, constant, fill_in, instead_of, operation, refuse_traced


def _one(name: str) -> Callable[..., Any]:
    ours = getattr(np.fft, name)

    @instead_of(getattr(scipy.fft, name))
    def call(x: Any, n: Any = None, axis: int = -1, norm: Any = None) -> Any:
        return ours(array(x), n, axis, norm)

    transform: Callable[..., Any] = call
    return transform


def _many(name: str) -> Callable[..., Any]:
    ours = getattr(np.fft, name)

    @instead_of(getattr(scipy.fft, name))
    def call(x: Any, s: Any = None, axes: Any = None, norm: Any = None) -> Any:
        x = array(x)
        if s is not None and axes is None:
            axes = tuple(range(x.ndim - len(np.atleast_1d(s)), x.ndim))
        return ours(x, s, axes, norm)

    transform: Callable[..., Any] = call
    return transform


fft, ifft, rfft, irfft, hfft, ihfft = map(_one, ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"))
fft2, ifft2, rfft2, irfft2 = map(_many, ("fft2", "ifft2", "rfft2", "irfft2"))
fftn, ifftn, rfftn, irfftn = map(_many, ("fftn", "ifftn", "rfftn", "irfftn"))

_INVERSE = {None: "forward", "backward": "forward", "forward": "backward", "ortho": "ortho"}


def _hermitian(name: str, forward: bool) -> Callable[..., Any]:
    @instead_of(getattr(scipy.fft, name))
    def call(x: Any, s: Any = None, axes: Any = None, norm: Any = None) -> Any:
        x = array(x)
        if norm not in _INVERSE:
            raise ValueError(f'Invalid norm value {norm!r}; should be "backward", "ortho" or '
                             '"forward".')  # fmt: skip
        if forward:
            return irfftn(np.conjugate(x), s, axes, _INVERSE[norm])
        return np.conjugate(rfftn(x, s, axes, _INVERSE[norm]))

    transform: Callable[..., Any] = call
    return transform


hfft2, hfftn = _hermitian("hfft2", True), _hermitian("hfftn", True)
ihfft2, ihfftn = _hermitian("ihfft2", False), _hermitian("ihfftn", False)


@instead_of(scipy.fft.fftshift)
def fftshift(x: Any, axes: Any = None) -> Any:
    return np.fft.fftshift(array(x), axes)


@instead_of(scipy.fft.ifftshift)
def ifftshift(x: Any, axes: Any = None) -> Any:
    return np.fft.ifftshift(array(x), axes)


# -- cosines and sines -----------------------------------------------------------------------------


def _plain(x: Any, kind: str, form: int) -> Any:
    function = scipy.fft.dct if kind == "dct" else scipy.fft.dst
    return function(x, form, norm="backward", orthogonalize=False)


def _scaled(x: Any, where: list[int], by: float) -> Any:
    """Multiply single elements of the last axis."""
    factor = np.ones(x.shape[-1], np.finfo(x.dtype).dtype)
    factor[where] = by
    return x * factor


def _transposed(g: Any, kind: str, type: int) -> Any:
    """Apply the transpose of an unnormalised transform to `g`."""
    end = 0 if kind == "dct" else -1
    if type == 1 and kind == "dct":
        return _scaled(line(_scaled(g, [0, -1], 2.0), kind, 1), [0, -1], 0.5)
    if type == 2:
        return line(_scaled(g, [end], 2.0), kind, 3)
    if type == 3:
        return _scaled(line(g, kind, 2), [end], 0.5)
    return line(g, kind, type)


line: Any = operation(
    "scipy.fft.dct",
    _plain,
    [lambda g, out, x, kind, form: _transposed(g, kind, form)],
    jvp="linear",
    samples=lambda rng: [
        sample(rng.normal(size=(2, n)) + (1j if form == 2 else 0), kind, form)
        for kind in ("dct", "dst")
        for form in (1, 2, 3, 4)
        for n in (2, 5)
    ],
    operands=("x",),
    params=("kind", "form"),
    batch=same,
    note="cosine and sine transforms of the types 1 to 4",
)


def _trigonometric(x: Any, kind: str, type: int, norm: Any, orthogonalize: Any) -> Any:
    """Transform the last axis."""
    if type not in (1, 2, 3, 4):
        raise ValueError(f"{kind}: type {type} is not one of 1, 2, 3, 4")
    if norm not in _INVERSE:
        raise ValueError(f'Invalid norm value {norm!r}; should be "backward", "ortho" or "forward"')
    orthogonal = norm == "ortho" if orthogonalize is None else orthogonalize
    n, root = x.shape[-1], float(np.sqrt(2.0))
    end = [0] if kind == "dct" else [-1]
    if orthogonal and kind == "dct" and type == 1:
        x = _scaled(x, [0, -1], root)
    if orthogonal and type == 3:
        x = _scaled(x, end, root)
    y = line(x, kind, type)
    if orthogonal and kind == "dct" and type == 1:
        y = _scaled(y, [0, -1], 1 / root)
    if orthogonal and type == 2:
        y = _scaled(y, end, 1 / root)
    period = 2 * (n if type != 1 else n - 1 if kind == "dct" else n + 1)
    if norm == "ortho":
        return y * float(period**-0.5)
    return y * (1.0 / period) if norm == "forward" else y


def _resized(x: Any, n: Any) -> Any:
    """Cut the last axis to `n` or fill it up with zeros."""
    if n is None or n == x.shape[-1]:
        return x
    if n < 1:
        raise ValueError(f"invalid number of data points ({n}) specified")
    if n < x.shape[-1]:
        return x[..., :n]
    return np.concatenate([x, np.zeros((*x.shape[:-1], n - x.shape[-1]), x.dtype)], -1)


_SWAPPED = {1: 1, 2: 3, 3: 2, 4: 4}


def _along(x: Any, kind: str, inverse: bool, type: int, n: Any, axis: int, norm: Any,
           orthogonalize: Any) -> Any:  # fmt: skip
    x = _resized(np.moveaxis(x, axis, -1), n)
    if inverse:
        orthogonalize = norm == "ortho" if orthogonalize is None else orthogonalize
        norm = _INVERSE.get(norm, norm)
    form = _SWAPPED.get(type, type) if inverse else type
    return np.moveaxis(_trigonometric(x, kind, form, norm, orthogonalize), -1, axis)


def _transform(name: str, kind: str, inverse: bool) -> Callable[..., Any]:
    @instead_of(getattr(scipy.fft, name))
    def call(
        x: Any, type: int = 2, n: Any = None, axis: int = -1, norm: Any = None,
        orthogonalize: Any = None,
    ) -> Any:  # fmt: skip
        return _along(array(x), kind, inverse, type, n, axis, norm, orthogonalize)

    transform: Callable[..., Any] = call
    return transform


def _transform_n(name: str, kind: str, inverse: bool) -> Callable[..., Any]:
    @instead_of(getattr(scipy.fft, name))
    def call(
        x: Any, type: int = 2, s: Any = None, axes: Any = None, norm: Any = None,
        orthogonalize: Any = None,
    ) -> Any:  # fmt: skip
        x = array(x)
        sizes = None if s is None else [int(k) for k in np.atleast_1d(s)]
        if axes is None:
            count = x.ndim if sizes is None else len(sizes)
            axes = range(x.ndim - count, x.ndim)
        for k, axis in enumerate(np.atleast_1d(list(axes) if not np.isscalar(axes) else axes)):
            n = None if sizes is None else sizes[k]
            x = _along(x, kind, inverse, type, n, int(axis), norm, orthogonalize)
        return x

    transform: Callable[..., Any] = call
    return transform


dct, idct = _transform("dct", "dct", False), _transform("idct", "dct", True)
dst, idst = _transform("dst", "dst", False), _transform("idst", "dst", True)
dctn, idctn = _transform_n("dctn", "dct", False), _transform_n("idctn", "dct", True)
dstn, idstn = _transform_n("dstn", "dst", False), _transform_n("idstn", "dst", True)


def _hankel(name: str) -> Callable[..., Any]:
    function = getattr(scipy.fft, name)
    first = "a" if name == "fht" else "A"

    def body(samples: Any, dln: Any, mu: Any, offset: Any, bias: Any) -> Any:
        refuse_traced(name, dln=dln, mu=mu, offset=offset, bias=bias)
        x = array(samples)
        # Linear in the samples: the transforms of unit vectors are the matrix.
        return np.matmul(x, function(np.eye(x.shape[-1]), dln, mu, offset, bias))

    if first == "a":

        @instead_of(function)
        def forward(a: Any, dln: Any, mu: Any, offset: Any = 0.0, bias: Any = 0.0) -> Any:
            return body(a, dln, mu, offset, bias)

        transform: Callable[..., Any] = forward
    else:

        @instead_of(function)
        def backward(A: Any, dln: Any, mu: Any, offset: Any = 0.0, bias: Any = 0.0) -> Any:
            return body(A, dln, mu, offset, bias)

        transform = backward
    return transform


fht, ifht = _hankel("fht"), _hankel("ifht")
next_fast_len, prev_fast_len = map(constant, (scipy.fft.next_fast_len, scipy.fft.prev_fast_len))

__getattr__, __dir__, __all__ = fill_in(globals(), scipy.fft)

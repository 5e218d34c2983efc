"""Convolutions of images, and the two operations that are their derivatives.

All three are parts of one form that is linear in the images `x`, the weights `w` and a
cotangent `g`: the sum of ``g * conv2d(x, w)``. Each operation is that form without one of
the three, so the rules of each are the other two, and derivatives of every order are
convolutions.

References
----------
- V. Dumoulin, F. Visin, "A guide to convolution arithmetic for deep learning", arXiv:1603.07285,
  2016.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from adarray.base.aval import refuse_subclass
from adarray.base.errors import DTypeError
from adarray.base.op import Contraction, Op, register
from adarray.base.runtime import BY_ENGINE
from adarray.batching.rules import BatchCall, Rule, members
from adarray.core.dispatch import apply, run
from adarray.core.protocol import check_params, finish
from adarray.core.trace import Handle
from adarray.device import KINDS, adopt, is_device
from adarray.ops import windows
from adarray.ops.common import arrayed, s
from adarray.ops.creation import asarray
from adarray.ops.windows import Geometry, geometry_of

__all__ = ["conv2d", "conv2d_input", "conv2d_weight"]

_PARAMS = ("stride", "padding", "dilation", "groups")
_ARRAY = (Handle, np.ndarray, np.generic)


def _operands(name: str, *args: Any) -> tuple[Any, ...]:
    """Return the operands as arrays of numbers."""
    operands = tuple(x if isinstance(x, _ARRAY) or type(x) in KINDS else asarray(x) for x in args)
    for i, x in enumerate(operands):
        refuse_subclass(x, name)
        if x.dtype.kind not in "biufc":
            raise DTypeError(f"{name}: operand {i} has dtype {x.dtype}; pass an array of numbers")
    return operands


def _applied(op: Op, operands: tuple[Any, ...], params: dict[str, Any]) -> Any:
    if any(isinstance(x, Handle) for x in operands):
        return finish(apply(op, operands, params), None, op.name)
    if any(type(x) in KINDS for x in operands):
        return op.evaluate(*(adopt(x) if type(x) in KINDS else x for x in operands), **params).raw
    return op.evaluate(*operands, **params)


def conv2d(
    x: Any, w: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Any:
    """Slide windows of weights over images: a cross-correlation, as neural networks have it.

    Parameters
    ----------
    x : array_like, shape (n, c, h, w), numbers
        Images: number, channels, height, width.
    w : array_like, shape (o, c // groups, i, j), numbers
        Weights: channels of the result, channels of a group, height and width of windows.
    stride : int or pair of int, optional
        Steps of the windows along height and width.
    padding : int, pair of int, pair of pairs, {"valid", "same"}, optional
        Zeros around the images: along height and width, or before and after each. With
        ``"same"``, the result has ``ceil(h / stride)`` rows; an odd zero comes after.
    dilation : int or pair of int, optional
        Distances between the elements of a window.
    groups : int, optional
        Into how many groups channels are divided; each group of the result sees one of `x`.

    Returns
    -------
    ndarray or ADArray, shape (n, o, oh, ow)
        ``sum_cij w[o, c, i, j] * x[n, c, oh * stride + i * dilation - padding, ...]``, of the
        dtype that the operands' dtypes promote to.

    Raises
    ------
    ShapeError
        If the operands do not fit each other, or a window does not fit the images.
    DTypeError
        If an operand does not hold numbers.

    Notes
    -----
    ``2 * n * o * oh * ow * (c // groups) * i * j`` operations. On processors, windows are
    copied block by block into memory that fits a cache, and multiplied by BLAS. On GPUs,
    windows are never copied.

    Examples
    --------
    >>> import numpy as np, adarray
    >>> from adarray.ops.nn import conv2d
    >>> x = np.arange(16.0).reshape(1, 1, 4, 4)
    >>> conv2d(x, np.ones((1, 1, 3, 3)), padding="same")[0, 0, :2]
    array([[10., 18., 24., 18.],
           [27., 45., 54., 39.]])
    >>> adarray.grad(lambda w: np.sum(conv2d(x, w, stride=2)))(np.ones((1, 1, 2, 2)))
    array([[[[20., 24.],
             [36., 40.]]]])
    """
    x, w = _operands("conv2d", x, w)
    check_params(_conv2d, {"stride": stride, "padding": padding, "dilation": dilation})
    geometry = geometry_of("conv2d", x.shape, w.shape, stride, padding, dilation, groups)
    return _applied(_conv2d, (x, w), geometry.params())


def conv2d_input(
    g: Any, w: Any, size: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
    groups: int = 1,
) -> Any:  # fmt: skip
    """Spread each element over a window of weights: the transpose of `conv2d` in its images.

    Known as transposed convolution.

    Parameters
    ----------
    g : array_like, shape (n, o, oh, ow), numbers
        What `conv2d` of images of `size` has the shape of.
    w : array_like, shape (o, c // groups, i, j), numbers
    size : pair of int
        Height and width of the result.
    stride : int or pair of int, optional
        Steps of the windows along height and width.
    padding : int, pair of int, pair of pairs, {"valid", "same"}, optional
        Zeros around the images: along height and width, or before and after each.
    dilation : int or pair of int, optional
        Distances between the elements of a window.
    groups : int, optional
        Into how many groups channels are divided.

    Returns
    -------
    ndarray or ADArray, shape (n, c, height, width)

    Raises
    ------
    ShapeError
        If the operands do not fit each other or `size`.

    Examples
    --------
    >>> import numpy as np
    >>> from adarray.ops.nn import conv2d_input
    >>> conv2d_input(np.ones((1, 1, 2, 2)), np.ones((1, 1, 2, 2)), (3, 3))[0, 0]
    array([[1., 2., 1.],
           [2., 4., 2.],
           [1., 2., 1.]])
    """
    g, w = _operands("conv2d_input", g, w)
    geometry = windows.geometry_of_input(g.shape, w.shape, size, stride, padding, dilation, groups)
    return _applied(_conv2d_input, (g, w), {"size": geometry.size, **geometry.params()})


def conv2d_weight(
    x: Any, g: Any, window: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
    groups: int = 1,
) -> Any:  # fmt: skip
    """Correlate images with a cotangent: the transpose of `conv2d` in its weights.

    Parameters
    ----------
    x : array_like, shape (n, c, h, w), numbers
    g : array_like, shape (n, o, oh, ow), numbers
        What `conv2d` of `x` and such weights has the shape of.
    window : pair of int
        Height and width of the weights.
    stride : int or pair of int, optional
        Steps of the windows along height and width.
    padding : int, pair of int, pair of pairs, {"valid", "same"}, optional
        Zeros around the images: along height and width, or before and after each.
    dilation : int or pair of int, optional
        Distances between the elements of a window.
    groups : int, optional
        Into how many groups channels are divided.

    Returns
    -------
    ndarray or ADArray, shape (o, c // groups, i, j)

    Raises
    ------
    ShapeError
        If the operands do not fit each other or `window`.

    Examples
    --------
    >>> import numpy as np
    >>> from adarray.ops.nn import conv2d_weight
    >>> conv2d_weight(np.ones((1, 1, 3, 3)), np.ones((1, 1, 2, 2)), (2, 2))[0, 0]
    array([[4., 4.],
           [4., 4.]])
    """
    x, g = _operands("conv2d_weight", x, g)
    geometry = windows.geometry_of_weight(
        x.shape, g.shape, window, stride, padding, dilation, groups
    )
    return _applied(_conv2d_weight, (x, g), {"window": geometry.window, **geometry.params()})


# -- values ----------------------------------------------------------------------------------------


def _computed(
    op: Op, a: Any, b: Any, params: dict[str, Any], geometry: Geometry, blocked: Callable[..., Any],
    plain: Callable[..., Any],
) -> Any:  # fmt: skip
    """Compute on the device where the operands are, or block by block on the host."""
    a, b = arrayed(a), arrayed(b)
    if is_device(a) or is_device(b):
        library = (a if is_device(a) else b).library
        out = library.compute(op, (a, b), params)
        return plain(a, b, geometry) if out is NotImplemented else out
    return blocked(np.asarray(a), np.asarray(b), geometry)


def _forward(
    x: Any, w: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Any:
    geometry = geometry_of("conv2d", x.shape, w.shape, stride, padding, dilation, groups)
    return _computed(
        _conv2d, x, w, geometry.params(), geometry, windows.forward, windows.forward_whole
    )


def _to_input(g: Any, w: Any, size: Any, **settings: Any) -> Any:
    geometry = windows.geometry_of_input(
        g.shape, w.shape, size, *(settings.get(n, d) for n, d in windows.DEFAULTS)
    )
    params = {"size": geometry.size, **geometry.params()}
    return _computed(
        _conv2d_input, g, w, params, geometry, windows.to_input, windows.to_input_whole
    )


def _to_weight(x: Any, g: Any, window: Any, **settings: Any) -> Any:
    geometry = windows.geometry_of_weight(
        x.shape, g.shape, window, *(settings.get(n, d) for n, d in windows.DEFAULTS)
    )
    params = {"window": geometry.window, **geometry.params()}
    return _computed(
        _conv2d_weight, x, g, params, geometry, windows.to_weight, windows.to_weight_whole
    )


BY_ENGINE.update((_forward, _to_input, _to_weight))


# -- records ---------------------------------------------------------------------------------------


def _reads(mask: int) -> tuple[bool, ...]:
    """Each rule reads the other operand."""
    return False, bool(mask & 2), bool(mask & 1)


def _of(x: Any, w: Any, params: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of a convolution, whatever way they were given."""
    settings = (params.get(n, d) for n, d in windows.DEFAULTS)
    return geometry_of("conv2d", x.shape, w.shape, *settings).params()


def _conv2d_vjp_x(g: Any, out: Any, x: Any, w: Any, **params: Any) -> Any:
    return run(_conv2d_input, g, w, size=x.shape[2:], **_of(x, w, params))


def _conv2d_vjp_w(g: Any, out: Any, x: Any, w: Any, **params: Any) -> Any:
    return run(_conv2d_weight, x, g, window=w.shape[2:], **_of(x, w, params))


def _samples(rng: np.random.Generator) -> list[Any]:
    n = rng.normal
    x = n(size=(2, 4, 5, 6))
    return [
        s(n(size=(1, 2, 4, 5)), n(size=(3, 2, 3, 2))),
        s(x, n(size=(2, 4, 3, 3)), (2, 1), 1),
        s(x, n(size=(4, 2, 2, 3)), 2, ((1, 0), (0, 2)), (2, 1), 2),
        s(x, n(size=(4, 1, 2, 2)), groups=4, padding="same"),
        s(x[:, ::-1, :, ::2], n(size=(3, 4, 1, 1))),
        s(x, n(size=(3, 4, 1, 1)), 2),
        s(x[:0], n(size=(3, 4, 2, 2)), padding=(0, 1)),
        s(x[:0], n(size=(3, 4, 1, 1))),
        s(n(size=(1, 1, 2, 2)), n(size=(1, 1, 3, 3)), 3, 2),
    ]


def _images(call: BatchCall) -> Any:
    """Convolve the images of all members as one batch of images, where they share the window."""
    if call.has(call.values[0]) and call.only(0):
        x = call.full(0)
        out = call.run(np.reshape(x, (-1, *x.shape[2:])), call.values[1], **call.params)
        return np.reshape(out, (*x.shape[:2], *out.shape[1:]))
    return members(call)


def _windows(call: BatchCall) -> Any:
    """Convolve with the windows of all members at once, where they share the images."""
    w, groups = call.values[1], call.params.get("groups", 1)
    if not (call.has(w) and call.only(1) and groups == 1):
        return _images(call)
    full = call.full(1)
    out = call.run(call.values[0], np.reshape(full, (-1, *full.shape[2:])), **call.params)
    shape = (out.shape[0], *full.shape[:2], *out.shape[2:])
    return np.moveaxis(np.reshape(out, shape), 1, 0)


def _registered(
    function: Callable[..., Any], evaluate: Callable[..., Any], rules: Any, samples: Any,
    names: tuple[str, ...], note: str, batch: Rule = members,
) -> Op:  # fmt: skip
    """Register one of the three; `names` are those of its operands and of what else it takes."""
    return register(
        Op(
            function.__name__,
            function,
            Contraction(),
            rules,
            jvp="linear",
            samples=samples,
            operands=names[:2],
            params=(*names[2:], *_PARAMS),
            evaluate=evaluate,
            batch=batch,
            needs=_reads,
            note=f"{note}, in adarray.ops.nn",
        )
    )


_conv2d = _registered(
    conv2d, _forward, [_conv2d_vjp_x, _conv2d_vjp_w], _samples, ("x", "w"), "of images", _windows
)


def _input_vjp_g(ct: Any, out: Any, g: Any, w: Any, size: Any, **params: Any) -> Any:
    return run(_conv2d, ct, w, **_of(ct, w, params))


def _input_vjp_w(ct: Any, out: Any, g: Any, w: Any, size: Any, **params: Any) -> Any:
    return run(_conv2d_weight, ct, g, window=w.shape[2:], **_of(ct, w, params))


_conv2d_input = _registered(
    conv2d_input,
    _to_input,
    [_input_vjp_g, _input_vjp_w],
    lambda rng: [
        s(rng.normal(size=(2, 3, 2, 4)), rng.normal(size=(3, 2, 3, 2)), (4, 5)),
        s(rng.normal(size=(1, 4, 3, 3)), rng.normal(size=(4, 1, 3, 3)), (5, 6), 2, 1, 1, 2),
        s(rng.normal(size=(2, 2, 2, 2)), rng.normal(size=(2, 2, 2, 2)), (6, 7), 3, 0, 2),
    ],
    ("g", "w", "size"),
    "transposed convolution",
    _images,
)


def _weight_vjp_x(ct: Any, out: Any, x: Any, g: Any, window: Any, **params: Any) -> Any:
    return run(_conv2d_input, g, ct, size=x.shape[2:], **_of(x, ct, params))


def _weight_vjp_g(ct: Any, out: Any, x: Any, g: Any, window: Any, **params: Any) -> Any:
    return run(_conv2d, x, ct, **_of(x, ct, params))


_conv2d_weight = _registered(
    conv2d_weight,
    _to_weight,
    [_weight_vjp_x, _weight_vjp_g],
    lambda rng: [
        s(rng.normal(size=(2, 2, 4, 5)), rng.normal(size=(2, 3, 2, 4)), (3, 2)),
        s(rng.normal(size=(1, 2, 5, 6)), rng.normal(size=(1, 4, 3, 3)), (3, 3), 2, 1, 1, 2),
        s(rng.normal(size=(2, 2, 6, 7)), rng.normal(size=(2, 2, 2, 2)), (2, 2), 3, 0, 2),
    ],
    ("x", "g", "window"),
    "the gradient of conv2d's weights",
)

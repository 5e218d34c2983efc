"""Operations that move elements and keep their values."""

from __future__ import annotations

from typing import Any

import numpy as np

from adarray.op import Layout, Op, Opaque, composite, register
from adarray.ops.common import normalized_axes, s, unbroadcast


def _linear(
    function: Any,
    rule: Any,
    samples: Any,
    *,
    operands: tuple[str, ...] = ("a",),
    name: str | None = None,
    lower: Any = None,
    **options: Any,
) -> Op:
    """Register an operation that is linear in its operands."""
    return register(
        Op(
            name or function.__name__,
            function,
            lower or Layout(),
            [rule],
            jvp="linear",
            samples=samples,
            operands=operands,
            **options,
        )
    )


# -- one array, other axes -----------------------------------------------------------------

reshape = _linear(
    np.reshape,
    lambda g, out, a, shape, order="C", copy=None: np.reshape(g, a.shape, order=order),
    lambda rng: [
        s(rng.normal(size=(3, 4)), (2, 6)),
        s(rng.normal(size=(3, 4)), -1),
        s(rng.normal(size=(3, 4)).T, (2, 6)),
        s(rng.normal(size=(3, 4)), (6, 2), order="F"),
        s(np.float64(2.0), (1, 1)),
        s(np.zeros((0, 3)), (3, 0)),
    ],
    signature="a, shape=None, order='C', *, newshape=_, copy=None",
    params=("shape", "order", "copy"),
)
transpose = _linear(
    np.transpose,
    lambda g, out, a, axes=None: np.transpose(
        g, None if axes is None else tuple(int(i) for i in np.argsort([x % a.ndim for x in axes]))
    ),
    lambda rng: [
        s(rng.normal(size=(3, 4))),
        s(rng.normal(size=(2, 3, 4)), (2, 0, 1)),
        s(rng.normal(size=(2, 3, 4)), (-1, 0, 1)),
        s(rng.normal(size=3)),
        s(np.float64(1.0)),
    ],
    params=("axes",),
    aliases=(np.permute_dims,) if np.permute_dims is not np.transpose else (),
)
swapaxes = _linear(
    np.swapaxes,
    lambda g, out, a, axis1, axis2: np.swapaxes(g, axis1, axis2),
    lambda rng: [s(rng.normal(size=(2, 3, 4)), 0, -1), s(rng.normal(size=(3, 4)), 0, 1)],
    params=("axis1", "axis2"),
    methods=("swapaxes",),
)
moveaxis = _linear(
    np.moveaxis,
    lambda g, out, a, source, destination: np.moveaxis(g, destination, source),
    lambda rng: [
        s(rng.normal(size=(2, 3, 4)), 0, -1),
        s(rng.normal(size=(2, 3, 4)), (0, 1), (2, 0)),
    ],
    params=("source", "destination"),
)
squeeze = _linear(
    np.squeeze,
    lambda g, out, a, axis=None: np.reshape(g, a.shape),
    lambda rng: [s(rng.normal(size=(1, 3, 1))), s(rng.normal(size=(1, 3, 1)), axis=0)],
    params=("axis",),
    methods=("squeeze",),
)
expand_dims = _linear(
    np.expand_dims,
    lambda g, out, a, axis: np.reshape(g, a.shape),
    lambda rng: [s(rng.normal(size=(3, 4)), 1), s(rng.normal(size=3), (0, 2))],
    params=("axis",),
)
ravel = _linear(
    np.ravel,
    lambda g, out, a, order="C": np.reshape(g, a.shape, order=order),
    lambda rng: [s(rng.normal(size=(3, 4))), s(rng.normal(size=(3, 4)), order="F")],
    params=("order",),
    methods=("ravel",),
)
broadcast_to = _linear(
    np.broadcast_to,
    lambda g, out, array, shape, subok=False: unbroadcast(g, array.shape),
    lambda rng: [
        s(rng.normal(size=(3, 1)), (2, 3, 4)),
        s(rng.normal(size=4), (3, 4)),
        s(np.float64(2.0), (2, 2)),
        s(rng.normal(size=(1,)), (0,)),
    ],
    operands=("array",),
    params=("shape",),
)
flip = _linear(
    np.flip,
    lambda g, out, m, axis=None: np.flip(g, axis),
    lambda rng: [s(rng.normal(size=(3, 4))), s(rng.normal(size=(2, 3, 4)), axis=(0, 2))],
    operands=("m",),
    params=("axis",),
)
rot90 = _linear(
    np.rot90,
    lambda g, out, m, k=1, axes=(0, 1): np.rot90(g, -k, axes),
    lambda rng: [s(rng.normal(size=(3, 4))), s(rng.normal(size=(2, 3, 4)), 3, (1, 2))],
    operands=("m",),
    params=("k", "axes"),
)
roll = _linear(
    np.roll,
    lambda g, out, a, shift, axis=None: np.roll(
        g, tuple(-k for k in shift) if isinstance(shift, tuple) else -shift, axis
    ),
    lambda rng: [
        s(rng.normal(size=(3, 4)), 2),
        s(rng.normal(size=(3, 4)), -1, axis=1),
        s(rng.normal(size=(3, 4)), (1, 2), axis=(0, 1)),
    ],
    params=("shift", "axis"),
)
copy = _linear(
    np.copy,
    lambda g, out, a, order="K", subok=False: g,
    lambda rng: [s(rng.normal(size=(3, 4))), s(rng.normal(size=(3, 4)).T), s(np.float64(2.0))],
    params=("order",),
    methods=("copy",),
    lower=Opaque(),
)
astype = _linear(
    np.astype,
    lambda g, out, x, dtype, copy=True: g,
    lambda rng: [s(rng.normal(size=(3, 4)), np.float64), s(np.ones(3), np.float32)],
    operands=("x",),
    params=("dtype", "copy"),
    signature="x, dtype, /, *, copy=True, order='K', casting='unsafe', subok=True, device=None",
    methods=("astype",),
    evaluate=lambda x, dtype, copy=True: np.asarray(x).astype(dtype, copy=copy)[()],
    lower=Opaque(),
    note="an integer result has no derivative",
)


def _tri_samples(rng: np.random.Generator) -> list[Any]:
    return [s(rng.normal(size=(3, 4))), s(rng.normal(size=(2, 3, 3)), 1), s(rng.normal(size=3))]


tril = _linear(
    np.tril,
    lambda g, out, m, k=0: unbroadcast(np.tril(g, k), m.shape),
    _tri_samples,
    operands=("m",),
    params=("k",),
    lower=Opaque(),
)
triu = _linear(
    np.triu,
    lambda g, out, m, k=0: unbroadcast(np.triu(g, k), m.shape),
    _tri_samples,
    operands=("m",),
    params=("k",),
    lower=Opaque(),
)


def _diagonal_vjp(
    g: Any, out: Any, a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1
) -> Any:
    shape = list(a.shape)
    axis1, axis2 = axis1 % a.ndim, axis2 % a.ndim
    rows, columns = shape[axis1], shape[axis2]
    back = np.zeros_like(g, shape=tuple(n for i, n in enumerate(shape) if i not in (axis1, axis2))
                         + (rows, columns))  # fmt: skip
    i = np.arange(out.shape[-1])
    back[..., i + max(-offset, 0), i + max(offset, 0)] = g
    return np.moveaxis(back, (-2, -1), (axis1, axis2))


diagonal = _linear(
    np.diagonal,
    _diagonal_vjp,
    lambda rng: [
        s(rng.normal(size=(3, 4))),
        s(rng.normal(size=(3, 4)), 1),
        s(rng.normal(size=(2, 3, 4)), -1, 2, 0),
    ],
    params=("offset", "axis1", "axis2"),
    methods=("diagonal",),
)


@composite(np.trace)
def _trace(
    a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: Any = None
) -> Any:
    return np.sum(np.diagonal(a, offset, axis1, axis2), axis=-1, dtype=dtype, out=out)


@composite(np.diag)
def _diag(v: Any, k: int = 0) -> Any:
    if v.ndim == 2:
        return np.copy(np.diagonal(v, k))
    if v.ndim != 1:
        raise ValueError("Input must be 1- or 2-d.")
    n = v.shape[0] + abs(k)
    out = np.zeros_like(v, shape=(n, n))
    i = np.arange(v.shape[0])
    out[i + max(-k, 0), i + max(k, 0)] = v
    return out


# -- repeating ---------------------------------------------------------------------------------


def _repeat_vjp(g: Any, out: Any, a: Any, repeats: Any, axis: int | None = None) -> Any:
    shape = a.shape
    if axis is None:
        g, n, at = np.reshape(g, (-1,)), a.size, 0
    else:
        at = axis % a.ndim
        n = shape[at]
    counts = np.broadcast_to(np.asarray(repeats), (n,))
    back = np.zeros_like(g, shape=g.shape[:at] + (n,) + g.shape[at + 1 :])
    index = (slice(None),) * at + (np.repeat(np.arange(n), counts),)
    np.add.at(back, index, g)
    return np.reshape(back, shape)


repeat = _linear(
    np.repeat,
    _repeat_vjp,
    lambda rng: [
        s(rng.normal(size=(3, 4)), 2),
        s(rng.normal(size=(3, 4)), 3, axis=0),
        s(rng.normal(size=(3, 4)), np.array([1, 0, 2]), axis=0),
    ],
    params=("repeats", "axis"),
    methods=("repeat",),
    lower=Opaque(),
)


def _tile_vjp(g: Any, out: Any, A: Any, reps: Any) -> Any:  # noqa: N803  (NumPy's name)
    reps = (reps,) if np.ndim(reps) == 0 else tuple(reps)
    d = max(len(reps), A.ndim)
    reps = (1,) * (d - len(reps)) + reps
    shape = (1,) * (d - A.ndim) + A.shape
    split = np.reshape(g, tuple(n for pair in zip(reps, shape, strict=True) for n in pair))
    return np.reshape(np.sum(split, axis=tuple(range(0, 2 * d, 2))), A.shape)


tile = _linear(
    np.tile,
    _tile_vjp,
    lambda rng: [
        s(rng.normal(size=(3, 4)), 2),
        s(rng.normal(size=(3, 4)), (2, 3)),
        s(rng.normal(size=3), (2, 2)),
        s(rng.normal(size=(2, 3)), (2, 1, 2)),
    ],
    operands=("A",),
    params=("reps",),
    lower=Opaque(),
    # NumPy's own asks for writeable subclasses on the way; values are all we need.
    evaluate=lambda A, reps: np.tile(np.asarray(A), reps),
)

# -- padding -----------------------------------------------------------------------------------


def _widths(pad_width: Any, ndim: int) -> list[tuple[int, int]]:
    if isinstance(pad_width, dict):
        return [
            (w, w) if isinstance(w, int) else tuple(w)  # type: ignore[misc]
            for w in (pad_width.get(i, pad_width.get(i - ndim, 0)) for i in range(ndim))
        ]
    return [(int(a), int(b)) for a, b in np.broadcast_to(np.asarray(pad_width), (ndim, 2))]


def _constant_pad(array: Any, pad_width: Any) -> Any:
    return np.pad(array, pad_width)


pad_zeros = _linear(
    _constant_pad,
    lambda g, out, array, pad_width: g[
        tuple(
            slice(low, low + n)
            for (low, _), n in zip(_widths(pad_width, array.ndim), array.shape, strict=True)
        )
    ],
    lambda rng: [
        s(rng.normal(size=(3, 4)), 2),
        s(rng.normal(size=(3, 4)), ((1, 0), (0, 2))),
        s(rng.normal(size=3), (1, 2)),
    ],
    name="pad",
    operands=("array",),
    params=("pad_width",),
    lower=Opaque(),
)


@composite(np.pad)
def _pad(array: Any, pad_width: Any, mode: Any = "constant", **kwargs: Any) -> Any:
    """``np.pad``: zeros by `pad_zeros`, other modes by gathering from numbered elements."""
    from adarray.dispatch import apply

    widths = _widths(pad_width, array.ndim)
    if mode == "constant":
        out = apply(pad_zeros, (array,), {"pad_width": widths})
        values = kwargs.pop("constant_values", 0)
        if kwargs:
            raise TypeError(f"pad: unexpected keyword argument {sorted(kwargs)[0]!r}")
        if isinstance(values, (int, float)) and values == 0:
            return out
        inside = np.pad(np.ones(array.shape, bool), widths)
        fill = np.pad(np.zeros(array.shape), widths, constant_values=values)
        return np.where(inside, out, fill.astype(array.dtype))
    if mode in ("edge", "wrap", "reflect", "symmetric") and kwargs.get("reflect_type") != "odd":
        numbers = np.arange(array.size).reshape(array.shape)
        return np.reshape(array, (-1,))[np.pad(numbers, widths, mode=mode, **kwargs)]
    from adarray.errors import NotDifferentiableError

    raise NotDifferentiableError(
        f"pad: the mode {mode!r} is not differentiated; use one of 'constant', 'edge', 'wrap', "
        "'reflect', 'symmetric'"
    )


# -- several arrays ----------------------------------------------------------------------------


def _concatenate_vjp(
    g: Any, i: int, out: Any, *arrays: Any, axis: int | None = 0, dtype: Any = None
) -> Any:
    if axis is None:
        start = sum(a.size for a in arrays[:i])
        return np.reshape(g[start : start + arrays[i].size], arrays[i].shape)
    at = axis % g.ndim
    start = sum(a.shape[at] for a in arrays[:i])
    return g[(slice(None),) * at + (slice(start, start + arrays[i].shape[at]),)]


def _concatenate_jvp(t: Any, i: int, out: Any, *arrays: Any, **params: Any) -> Any:
    parts = [t if j == i else np.zeros(a.shape, a.dtype) for j, a in enumerate(arrays)]
    return np.concatenate(parts, **params)


concatenate = register(
    Op(
        "concatenate",
        np.concatenate,
        Layout(),
        [_concatenate_vjp],
        jvp=[_concatenate_jvp],
        samples=lambda rng: [
            s([rng.normal(size=(2, 3)), rng.normal(size=(1, 3))]),
            s([rng.normal(size=(2, 3)), rng.normal(size=(2, 1)), np.zeros((2, 0))], axis=-1),
            s([rng.normal(size=(2, 3)), rng.normal(size=2)], axis=None),
        ],
        operands=("*arrays",),
        params=("axis", "dtype"),
        signature="arrays, /, axis=0, out=None, *, dtype=None, casting='same_kind'",
        aliases=(np.concat,) if np.concat is not np.concatenate else (),
    )
)


def _as_arrays(arrays: Any) -> list[Any]:
    return [a if hasattr(a, "ndim") else np.asarray(a) for a in arrays]


@composite(np.stack)
def _stack(
    arrays: Any, axis: int = 0, out: Any = None, *, dtype: Any = None, casting: Any = "same_kind"
) -> Any:
    arrays = _as_arrays(arrays)
    if not arrays:
        raise ValueError("need at least one array to stack")
    if len({a.shape for a in arrays}) != 1:
        raise ValueError("all input arrays must have the same shape")
    (at,) = normalized_axes(axis, arrays[0].ndim + 1)
    parts = [np.expand_dims(a, at) for a in arrays]
    return np.concatenate(parts, axis=at, out=out, dtype=dtype)


@composite(np.atleast_1d)
def _atleast_1d(*arrays: Any) -> Any:
    made = tuple(a if a.ndim >= 1 else np.reshape(a, (1,)) for a in _as_arrays(arrays))
    return made[0] if len(made) == 1 else made


@composite(np.atleast_2d)
def _atleast_2d(*arrays: Any) -> Any:
    made = tuple(
        a if a.ndim >= 2 else np.reshape(a, (1, 1) if a.ndim == 0 else (1, a.shape[0]))
        for a in _as_arrays(arrays)
    )
    return made[0] if len(made) == 1 else made


@composite(np.atleast_3d)
def _atleast_3d(*arrays: Any) -> Any:
    made = tuple(
        a
        if a.ndim >= 3
        else np.reshape(a, {0: (1, 1, 1), 1: (1, a.size, 1), 2: (*a.shape, 1)}[a.ndim])
        for a in _as_arrays(arrays)
    )
    return made[0] if len(made) == 1 else made


@composite(np.vstack)
def _vstack(tup: Any, *, dtype: Any = None, casting: Any = "same_kind") -> Any:
    return np.concatenate([np.atleast_2d(a) for a in tup], axis=0, dtype=dtype)


@composite(np.hstack)
def _hstack(tup: Any, *, dtype: Any = None, casting: Any = "same_kind") -> Any:
    arrays = [np.atleast_1d(a) for a in tup]
    return np.concatenate(arrays, axis=0 if arrays and arrays[0].ndim == 1 else 1, dtype=dtype)


@composite(np.dstack)
def _dstack(tup: Any) -> Any:
    return np.concatenate([np.atleast_3d(a) for a in tup], axis=2)


@composite(np.column_stack)
def _column_stack(tup: Any) -> Any:
    arrays = [a if a.ndim > 1 else np.reshape(a, (-1, 1)) for a in _as_arrays(tup)]
    return np.concatenate(arrays, axis=1)


@composite(np.append)
def _append(arr: Any, values: Any, axis: int | None = None) -> Any:
    if axis is None:
        arr, values = np.ravel(arr), np.ravel(values)
        axis = 0
    return np.concatenate((arr, values), axis=axis)


@composite(np.broadcast_arrays)
def _broadcast_arrays(*args: Any, subok: bool = False) -> Any:
    arrays = _as_arrays(args)
    shape = np.broadcast_shapes(*(a.shape for a in arrays))
    return tuple(np.broadcast_to(a, shape) for a in arrays)


@composite(np.array_split)
def _array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    n = ary.shape[axis]
    if np.ndim(indices_or_sections) == 0:
        sections = int(indices_or_sections)
        if sections <= 0:
            raise ValueError("number sections must be larger than 0.")
        small, extra = divmod(n, sections)
        sizes = [small + 1] * extra + [small] * (sections - extra)
        edges = [0, *(int(e) for e in np.cumsum(sizes))]
    else:
        edges = [0, *(int(i) for i in indices_or_sections), n]
    lead = (slice(None),) * (axis % ary.ndim)
    return [ary[(*lead, slice(a, b))] for a, b in zip(edges[:-1], edges[1:], strict=True)]


@composite(np.split)
def _split(ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    if np.ndim(indices_or_sections) == 0 and ary.shape[axis] % int(indices_or_sections):
        raise ValueError("array split does not result in an equal division")
    return _array_split(ary, indices_or_sections, axis)


@composite(np.hsplit)
def _hsplit(ary: Any, indices_or_sections: Any) -> Any:
    return np.split(ary, indices_or_sections, 1 if ary.ndim > 1 else 0)


@composite(np.vsplit)
def _vsplit(ary: Any, indices_or_sections: Any) -> Any:
    return np.split(ary, indices_or_sections, 0)


@composite(np.dsplit)
def _dsplit(ary: Any, indices_or_sections: Any) -> Any:
    return np.split(ary, indices_or_sections, 2)


@composite(np.fliplr)
def _fliplr(m: Any) -> Any:
    return np.flip(m, 1)


@composite(np.flipud)
def _flipud(m: Any) -> Any:
    return np.flip(m, 0)


@composite(np.rollaxis)
def _rollaxis(a: Any, axis: int, start: int = 0) -> Any:
    axis %= a.ndim
    start = start + a.ndim if start < 0 else start
    return np.moveaxis(a, axis, start - 1 if axis < start else start)


@composite(np.matrix_transpose)
def _matrix_transpose(x: Any, /) -> Any:
    return np.swapaxes(x, -1, -2)


# Real arrays are their own real part and conjugate, and have no imaginary one.
@composite(np.real, np.conjugate)
def _real(x: Any) -> Any:
    return x


@composite(np.imag)
def _imag(val: Any) -> Any:
    return np.zeros_like(val)

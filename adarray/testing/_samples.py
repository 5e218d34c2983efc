"""Inputs for checking operations: every memory layout, shape and special value."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from adarray.base.op import Domain, Op, Reduction
from adarray.testing._grads import cast_like

# An array of a shape, filled with values from the operand's domain.
Fill = Callable[[tuple[int, ...]], np.ndarray]


class Case(NamedTuple):
    """Operands and parameters of one call, and how much to check about it.

    `order` is the order of derivatives; 0 checks the value only.
    """

    name: str
    operands: list[Any]
    params: dict[str, Any]
    order: int


# -- one operand ---------------------------------------------------------------------------


def _strided(fill: Fill, shape: tuple[int, ...]) -> np.ndarray:
    """Every second element of the last axis, with a gap in front."""
    wide = fill((*shape[:-1], 2 * shape[-1] + 1))
    return wide[..., 1::2]


def _reversed(fill: Fill, shape: tuple[int, ...]) -> np.ndarray:
    return fill(shape)[(slice(None, None, -1),) * len(shape)]


def _fortran(fill: Fill, shape: tuple[int, ...]) -> np.ndarray:
    return np.asfortranarray(fill(shape))


def _stride_zero(fill: Fill, shape: tuple[int, ...]) -> np.ndarray:
    return np.broadcast_to(fill((*shape[:-1], 1)), shape)


def _unaligned(fill: Fill, shape: tuple[int, ...]) -> np.ndarray:
    """Return an array whose memory begins at an odd address."""
    values = fill(shape)
    buffer = np.zeros(values.nbytes + 1, np.uint8)
    unaligned = buffer[1:].view(values.dtype).reshape(shape)
    unaligned[...] = values
    return unaligned


def _scalar(fill: Fill, _: tuple[int, ...]) -> Any:
    return fill(())[()]


def _python(fill: Fill, _: tuple[int, ...]) -> Any:
    """Return a Python number, whose dtype yields to that of the other operand."""
    return fill(()).item()


def _plain(fill: Fill, shape: tuple[int, ...]) -> np.ndarray:
    return fill(shape)


Layout = tuple[Callable[[Fill, tuple[int, ...]], Any], tuple[int, ...]]

_UNARY: dict[str, tuple[Layout, int]] = {
    "vector": ((_plain, (7,)), 2),
    "matrix": ((_plain, (3, 4)), 1),
    "0-d array": ((_plain, ()), 1),
    "scalar": ((_scalar, ()), 2),
    "size 1": ((_plain, (1, 1)), 1),
    "empty": ((_plain, (0,)), 1),
    "empty 3-d": ((_plain, (2, 0, 3)), 0),
    "strided": ((_strided, (2, 5)), 2),
    "reversed": ((_reversed, (3, 4)), 2),
    "Fortran": ((_fortran, (4, 3)), 1),
    "stride 0": ((_stride_zero, (3, 4)), 1),
    "unaligned": ((_unaligned, (5,)), 0),
    "long": ((_plain, (1003,)), 0),
    "long strided": ((_strided, (3, 335)), 0),
}
# Pairs; an operation with three operands takes the first layout again for its third.
_PAIRS: dict[str, tuple[Layout, Layout, int]] = {
    "vectors": ((_plain, (7,)), (_plain, (7,)), 2),
    "column and row": ((_plain, (3, 1)), (_plain, (1, 4)), 2),
    "matrix and row": ((_plain, (3, 4)), (_plain, (4,)), 1),
    "row and 3-d": ((_plain, (4,)), (_plain, (2, 3, 4)), 1),
    "array and Python number": ((_plain, (5,)), (_python, ()), 1),
    "Python number and array": ((_python, ()), (_plain, (5,)), 1),
    "scalar and array": ((_scalar, ()), (_plain, (2, 3)), 1),
    "scalars": ((_scalar, ()), (_scalar, ()), 1),
    "0-d arrays": ((_plain, ()), (_plain, ()), 0),
    "0-d array and matrix": ((_plain, ()), (_plain, (3, 4)), 1),
    "size 1 and matrix": ((_plain, (1, 1)), (_plain, (3, 4)), 1),
    "empty": ((_plain, (0,)), (_plain, (0,)), 1),
    "empty and size 1": ((_plain, (3, 0)), (_plain, (1,)), 1),
    "strided and reversed": ((_strided, (3, 4)), (_reversed, (3, 4)), 2),
    "Fortran and C": ((_fortran, (3, 4)), (_plain, (3, 4)), 1),
    "Fortran": ((_fortran, (3, 4)), (_fortran, (3, 4)), 1),
    "stride 0 and strided": ((_stride_zero, (3, 4)), (_strided, (4,)), 1),
    "unaligned": ((_unaligned, (5,)), (_unaligned, (5,)), 0),
    "long": ((_plain, (1003,)), (_plain, (1003,)), 0),
    "long and scalar": ((_plain, (1003,)), (_scalar, ()), 0),
    "long strided and row": ((_strided, (5, 201)), (_reversed, (201,)), 0),
}


def domains_of(op: Op) -> tuple[Domain, ...]:
    """Return where the operands of a pointwise operation are sampled."""
    assert isinstance(op.samples, tuple)
    return op.samples


def _filler(domain: tuple[Any, ...], dtype: np.dtype[Any], rng: np.random.Generator) -> Fill:
    """Return the function that makes arrays of values from ``(low, high[, "bool"])``."""
    low, high, *kind = domain
    if kind == ["bool"]:
        return lambda shape: rng.integers(0, 2, size=shape).astype(bool)
    if dtype.kind == "c":
        # Real parts from the domain, imaginary ones of its width: no cut is crossed from
        # within (-1, 1) or the positive half plane, where most of them begin.
        return lambda shape: np.asarray(
            rng.uniform(low, high, size=shape) + 1j * rng.uniform(0.1, 1.0, size=shape)
        ).astype(dtype)
    return lambda shape: np.asarray(rng.uniform(low, high, size=shape)).astype(dtype)


def special_values(dtype: np.dtype[Any]) -> np.ndarray:
    """Return zeros, infinities, nan, denormal, tiny, huge and ordinary values."""
    info = np.finfo(dtype)
    least, small, huge = info.smallest_subnormal, info.tiny, info.max
    with np.errstate(all="ignore"):
        positive = [
            0.0,
            np.inf,
            least,
            small,
            huge,
            huge / 2,
            1.0,
            0.5,
            2.0,
            3.0,
            1e-3,
            17.25,
            90.0,
        ]
        values = [v for p in positive for v in (p, -p)]
    return np.array([*values, np.nan], dtype)


def _special_operands(op: Op, dtype: np.dtype[Any]) -> list[np.ndarray]:
    """Return operands that hold every combination of special values."""
    values = special_values(dtype)
    pools = [values] * op.arity
    if op.arity > 2:  # combinations grow as a power: keep those that matter most
        few = values[[0, 1, 2, 3, 6, 7, 8, 12, 13, -1]]
        # No zeros as bounds: np.clip of -0.0 at the bound 0.0 gives the bound's sign for
        # an array of bounds and the value's for a scalar, so there is no right sign.
        pools = [few, *([few[2:]] * (op.arity - 1))]
    pools = [
        np.array([False, True]) if d[2:] == ("bool",) else pool
        for d, pool in zip(domains_of(op), pools, strict=True)
    ]
    grid = np.meshgrid(*pools, indexing="ij")
    return [np.ascontiguousarray(g).reshape(-1) for g in grid]


def pointwise_cases(op: Op, dtype: np.dtype[Any], rng: np.random.Generator) -> Iterator[Case]:
    """Yield the cases of a pointwise operation."""
    fills = [_filler(d, dtype, rng) for d in domains_of(op)]
    if len(fills) == 1:
        for name, ((make, shape), order) in _UNARY.items():
            yield Case(name, [make(fills[0], shape)], {}, order)
    else:
        for name, (first, second, order) in _PAIRS.items():
            layouts = itertools.cycle((first, second))
            operands = [
                make(fill, shape) for fill, (make, shape) in zip(fills, layouts, strict=False)
            ]
            yield Case(name, operands, {}, order)
    if dtype.kind == "c":
        return  # special values of complex functions are NumPy's own
    specials = _special_operands(op, dtype)
    yield Case("special values", specials, {}, 0)
    yield Case("special values, reversed", [x[::-1] for x in specials], {}, 0)


# -- other operations ------------------------------------------------------------------------


def sample_cases(op: Op, dtype: np.dtype[Any], rng: np.random.Generator) -> Iterator[Case]:
    """Yield the cases that a record lists, and more for reductions."""
    assert callable(op.samples)
    for k, sample in enumerate(op.samples(rng)):
        operands, params, _ = op.bind(sample.args, sample.kwargs)
        cast = [_cast(x, dtype, rng) for x in operands]
        yield Case(f"sample {k}", cast, params, 2)
    if isinstance(op.lower, Reduction) and dtype.kind == "f":
        yield from _reduction_cases(op.lower, dtype, rng)


def _cast(x: Any, dtype: np.dtype[Any], rng: np.random.Generator) -> Any:
    """Return an operand in `dtype`, or in the complex or real dtype of its precision."""
    if not isinstance(x, (np.ndarray, np.generic)) or x.dtype.kind not in "fc":
        return x
    if x.dtype.kind == "c":
        return cast_like(x, np.result_type(dtype, np.complex64))
    if dtype.kind == "c":
        wide = cast_like(x, dtype)
        if isinstance(wide, np.ndarray):
            wide += 1j * rng.normal(size=wide.shape)
            return wide
        return dtype.type(wide + 1j * rng.normal())
    return cast_like(x, dtype)


def _reduction_cases(
    lower: Reduction, dtype: np.dtype[Any], rng: np.random.Generator
) -> Iterator[Case]:
    """Yield values-only cases over layouts and axes, and over special values."""
    fill = _filler((-1.5, 1.5), dtype, rng)
    arrays = {
        "3-d": fill((3, 4, 5)),
        "strided": _strided(fill, (4, 3, 5)),
        "reversed": _reversed(fill, (3, 5)),
        "Fortran": _fortran(fill, (3, 4, 2)),
        "stride 0": _stride_zero(fill, (3, 4)),
        "unaligned": _unaligned(fill, (3, 4)),
        "long": fill((5, 203)),
        "long strided": _strided(fill, (7, 101)),
        "size 1": fill((1, 1)),
    }
    if lower.identity is not None:
        arrays |= {"empty": fill((0, 3)), "empty inside": fill((2, 0, 3))}
    for name, x in arrays.items():
        for axis in (None, 0, -1, (0, 1)):
            for keepdims in (False, True):
                params = {"axis": axis, "keepdims": keepdims}
                yield Case(f"{name}, axis={axis}, keepdims={keepdims}", [x], params, 0)
    values = special_values(dtype)
    pairs = np.stack(np.broadcast_arrays(values[:, None], values), axis=-1).reshape(-1, 2)
    for axis, x in ((1, pairs), (0, pairs.T), (0, np.ascontiguousarray(pairs.T))):
        yield Case(f"special values, axis={axis}", [x], {"axis": axis}, 0)


def cases(op: Op, dtype: np.dtype[Any], rng: np.random.Generator) -> Iterator[Case]:
    """Yield the cases of any operation."""
    if op.pointwise and isinstance(op.samples, tuple):
        yield from pointwise_cases(op, dtype, rng)
    else:
        yield from sample_cases(op, dtype, rng)

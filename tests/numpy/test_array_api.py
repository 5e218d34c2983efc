"""The array API standard 2024.12 through `adarray.numpy`, against array-api-strict."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import adarray.numpy as xp
from adarray import ADArray


def _words(text: str) -> list[str]:
    return text.split()


# Every name of the standard's main namespace, version 2024.12.
CONSTANTS = _words("e inf nan newaxis pi")
DTYPES = _words(
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 complex64 complex128"
)
FUNCTIONS = _words("""
arange asarray empty empty_like eye from_dlpack full full_like linspace meshgrid ones ones_like
tril triu zeros zeros_like
astype can_cast finfo iinfo isdtype result_type
abs acos acosh add asin asinh atan atan2 atanh bitwise_and bitwise_left_shift bitwise_invert
bitwise_or bitwise_right_shift bitwise_xor ceil clip conj copysign cos cosh divide equal exp expm1
floor floor_divide greater greater_equal hypot imag isfinite isinf isnan less less_equal log log1p
log2 log10 logaddexp logical_and logical_not logical_or logical_xor maximum minimum multiply
negative nextafter not_equal positive pow real reciprocal remainder round sign signbit sin sinh
square sqrt subtract tan tanh trunc
take take_along_axis
matmul matrix_transpose tensordot vecdot
broadcast_arrays broadcast_to concat expand_dims flip moveaxis permute_dims repeat reshape roll
squeeze stack tile unstack
argmax argmin count_nonzero nonzero searchsorted where
unique_all unique_counts unique_inverse unique_values
argsort sort
cumulative_prod cumulative_sum max mean min prod std sum var
all any diff
""")
LINALG = _words("""
cholesky cross det diagonal eigh eigvalsh inv matmul matrix_norm matrix_power matrix_rank
matrix_transpose outer pinv qr slogdet solve svd svdvals tensordot trace vecdot vector_norm
""")
FFT = _words("""
fft ifft fftn ifftn rfft irfft rfftn irfftn hfft ihfft fftfreq rfftfreq fftshift ifftshift
""")
ATTRIBUTES = _words("T device dtype mT ndim shape size")
METHODS = _words("""
abs add and array_namespace bool complex dlpack dlpack_device eq float floordiv ge getitem gt
index int invert le lshift lt matmul mod mul ne neg or pos pow rshift setitem sub truediv xor
iadd isub imul itruediv ifloordiv ipow imod imatmul iand ior ixor ilshift irshift
radd rsub rmul rtruediv rfloordiv rpow rmod rmatmul rand ror rxor rlshift rrshift
""")


@pytest.mark.parametrize("name", [*CONSTANTS, *DTYPES, *FUNCTIONS])
def test_main_namespace_has(name: str) -> None:
    assert hasattr(xp, name)
    assert name in dir(xp)


@pytest.mark.parametrize("name", LINALG)
def test_linalg_has(name: str) -> None:
    assert callable(getattr(xp.linalg, name))
    assert name in dir(xp.linalg)


@pytest.mark.parametrize("name", FFT)
def test_fft_has(name: str) -> None:
    assert callable(getattr(xp.fft, name))
    assert name in dir(xp.fft)


def test_array_object_has() -> None:
    x = xp.ones((2, 3))
    missing = [n for n in (*ATTRIBUTES, "to_device") if not hasattr(x, n)]
    missing += [n for n in METHODS if not hasattr(x, f"__{n}__")]
    assert missing == []


# -- values, against the reference implementation -------------------------------------------

RNG = np.random.default_rng(0)
A = RNG.normal(size=(3, 4))
B = RNG.normal(size=(3, 4))
POSITIVE = np.abs(A) + 0.5
UNIT = np.tanh(A)
SQUARE = RNG.normal(size=(2, 3, 3))
SPD = SQUARE @ np.swapaxes(SQUARE, -1, -2) + 3 * np.eye(3)
INTS = np.array([[3, 1, 2, 1], [0, -4, 7, 3], [5, 5, 5, 2]])
SHIFTS = np.array([[0, 1, 2, 1], [0, 3, 1, 3], [2, 1, 0, 2]])
BOOLS = INTS > 1
SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.5, -2.5])
COMPLEX = A + 1j * B

UNARY_FLOAT = {
    **dict.fromkeys(_words("abs ceil cos cosh exp expm1 floor negative positive round sign sin "
                    "sinh square tan tanh trunc asinh atan isfinite isinf isnan signbit"), A),
    **dict.fromkeys(_words("log log1p log2 log10 sqrt reciprocal"), POSITIVE),
    **dict.fromkeys(_words("acos asin atanh"), UNIT),
    "acosh": POSITIVE + 1,
    "conj": COMPLEX, "real": COMPLEX, "imag": COMPLEX,
    "bitwise_invert": INTS, "logical_not": BOOLS,
}  # fmt: skip
BINARY = {
    **dict.fromkeys(_words("add atan2 copysign divide floor_divide hypot logaddexp maximum minimum "
                    "multiply nextafter remainder subtract equal not_equal less less_equal greater "
                    "greater_equal"), (A, B)),
    "pow": (POSITIVE, B),
    **dict.fromkeys(_words("bitwise_and bitwise_or bitwise_xor"), (INTS, SHIFTS)),
    **dict.fromkeys(_words("bitwise_left_shift bitwise_right_shift"), (INTS, SHIFTS)),
    **dict.fromkeys(_words("logical_and logical_or logical_xor"), (BOOLS, SHIFTS > 0)),
}  # fmt: skip

# name -> cases; each gets a namespace and its asarray, and gives a result of that namespace.
CASES: dict[str, list[Any]] = {
    "arange": [lambda p, a: p.arange(5), lambda p, a: p.arange(1, 9, 2, dtype=p.float32),
               lambda p, a: p.arange(0.0, 1.0, 0.25, device=None)],
    "asarray": [lambda p, a: p.asarray([[1, 2], [3, 4]]), lambda p, a: p.asarray(2.5),
                lambda p, a: p.asarray([1, 2], dtype=p.float32), lambda p, a: p.asarray([True]),
                lambda p, a: p.asarray(a(A), copy=True), lambda p, a: p.asarray([1.0, 2j])],
    "empty": [lambda p, a: p.empty((2, 0), dtype=p.int16)],
    "empty_like": [lambda p, a: p.empty_like(a(A)[:0, ...], dtype=p.float32)],
    "eye": [lambda p, a: p.eye(3), lambda p, a: p.eye(2, 4, k=1, dtype=p.int8)],
    "from_dlpack": [lambda p, a: p.from_dlpack(a(A))],
    "full": [lambda p, a: p.full((2, 3), 7), lambda p, a: p.full(3, 1.5, dtype=p.float32),
             lambda p, a: p.full((), True)],
    "full_like": [lambda p, a: p.full_like(a(INTS), 2), lambda p, a: p.full_like(a(A), 1.5)],
    "linspace": [lambda p, a: p.linspace(0, 1, 5),
                 lambda p, a: p.linspace(-2.0, 3.0, 4, endpoint=False, dtype=p.float32)],
    "meshgrid": [lambda p, a: p.meshgrid(a(A[0]), a(B[:, 0])),
                 lambda p, a: p.meshgrid(a(A[0]), a(B[:, 0]), indexing="ij")],
    "ones": [lambda p, a: p.ones((2, 3)), lambda p, a: p.ones(3, dtype=p.bool)],
    "ones_like": [lambda p, a: p.ones_like(a(A), dtype=p.int32)],
    "tril": [lambda p, a: p.tril(a(A)), lambda p, a: p.tril(a(SQUARE), k=-1)],
    "triu": [lambda p, a: p.triu(a(A), k=1)],
    "zeros": [lambda p, a: p.zeros((2, 3)), lambda p, a: p.zeros(3, dtype=p.complex64)],
    "zeros_like": [lambda p, a: p.zeros_like(a(INTS))],
    "astype": [lambda p, a: p.astype(a(A), p.float32), lambda p, a: p.astype(a(INTS), p.bool),
               lambda p, a: p.astype(a(A), p.float64, copy=False)],
    "clip": [lambda p, a: p.clip(a(A), -0.5, 0.5), lambda p, a: p.clip(a(A)),
             lambda p, a: p.clip(a(A), min=a(np.full(4, -0.3))),
             lambda p, a: p.clip(a(A), max=0.25), lambda p, a: p.clip(a(INTS), 1, 4)],
    "take": [lambda p, a: p.take(a(A), a(np.array([2, 0, 2])), axis=0),
             lambda p, a: p.take(a(A[0]), a(np.array([1, 1])))],
    "take_along_axis": [lambda p, a: p.take_along_axis(a(A), a(SHIFTS[:, :2])),
                        lambda p, a: p.take_along_axis(a(A), a(SHIFTS[:1] % 3), axis=0)],
    "matmul": [lambda p, a: p.matmul(a(SQUARE), a(A)), lambda p, a: p.matmul(a(A), a(B[0]))],
    "matrix_transpose": [lambda p, a: p.matrix_transpose(a(SQUARE))],
    "tensordot": [lambda p, a: p.tensordot(a(A), a(B), axes=((0,), (0,))),
                  lambda p, a: p.tensordot(a(SQUARE), a(A), axes=1)],
    "vecdot": [lambda p, a: p.vecdot(a(A), a(B)), lambda p, a: p.vecdot(a(A), a(B), axis=-2),
               lambda p, a: p.vecdot(a(COMPLEX), a(COMPLEX))],
    "broadcast_arrays": [lambda p, a: p.broadcast_arrays(a(A), a(B[0]))],
    "broadcast_to": [lambda p, a: p.broadcast_to(a(A), (2, 3, 4))],
    "concat": [lambda p, a: p.concat([a(A), a(B[:1])]), lambda p, a: p.concat((a(A), a(B)), axis=1),
               lambda p, a: p.concat([a(A), a(B[0])], axis=None)],
    "expand_dims": [lambda p, a: p.expand_dims(a(A), axis=1)],
    "flip": [lambda p, a: p.flip(a(A)), lambda p, a: p.flip(a(A), axis=0)],
    "moveaxis": [lambda p, a: p.moveaxis(a(SQUARE), 0, -1)],
    "permute_dims": [lambda p, a: p.permute_dims(a(SQUARE), (2, 0, 1))],
    "repeat": [lambda p, a: p.repeat(a(A), 2, axis=0), lambda p, a: p.repeat(a(A[0]), 3),
               lambda p, a: p.repeat(a(A), a(np.array([1, 0, 2])), axis=0)],
    "reshape": [lambda p, a: p.reshape(a(A), (2, 6)), lambda p, a: p.reshape(a(A), (-1,)),
                lambda p, a: p.reshape(a(A), (4, 3), copy=True),
                lambda p, a: p.reshape(a(A), (12,), copy=False)],
    "roll": [lambda p, a: p.roll(a(A), 2), lambda p, a: p.roll(a(A), (1, -1), axis=(0, 1))],
    "squeeze": [lambda p, a: p.squeeze(a(A[:1]), axis=0)],
    "stack": [lambda p, a: p.stack([a(A), a(B)], axis=-1)],
    "tile": [lambda p, a: p.tile(a(A), (2, 1, 2))],
    "unstack": [lambda p, a: p.unstack(a(A)), lambda p, a: p.unstack(a(A), axis=1)],
    "argmax": [lambda p, a: p.argmax(a(A)), lambda p, a: p.argmax(a(A), axis=1, keepdims=True)],
    "argmin": [lambda p, a: p.argmin(a(A), axis=0)],
    "count_nonzero": [lambda p, a: p.count_nonzero(a(INTS)),
                      lambda p, a: p.count_nonzero(a(INTS), axis=1, keepdims=True)],
    "nonzero": [lambda p, a: p.nonzero(a(INTS))],
    "searchsorted": [lambda p, a: p.searchsorted(a(np.array([1.0, 2, 3])), a(POSITIVE[0])),
                     lambda p, a: p.searchsorted(a(INTS[0]), a(INTS[1]), side="right",
                                                 sorter=a(np.argsort(INTS[0])))],
    "where": [lambda p, a: p.where(a(BOOLS), a(A), a(B)),
              lambda p, a: p.where(a(BOOLS), a(A), 0.0)],
    "unique_all": [lambda p, a: p.unique_all(a(INTS))],
    "unique_counts": [lambda p, a: p.unique_counts(a(INTS))],
    "unique_inverse": [lambda p, a: p.unique_inverse(a(INTS))],
    "unique_values": [lambda p, a: p.unique_values(a(INTS))],
    "argsort": [lambda p, a: p.argsort(a(INTS)), lambda p, a: p.argsort(a(INTS), descending=True),
                lambda p, a: p.argsort(a(INTS), axis=0, stable=True, descending=True)],
    "sort": [lambda p, a: p.sort(a(A)), lambda p, a: p.sort(a(A), axis=0, descending=True),
             lambda p, a: p.sort(a(INTS), stable=False)],
    "cumulative_prod": [lambda p, a: p.cumulative_prod(a(A), axis=1),
                        lambda p, a: p.cumulative_prod(a(A[0]), include_initial=True)],
    "cumulative_sum": [lambda p, a: p.cumulative_sum(a(A), axis=0, include_initial=True),
                       lambda p, a: p.cumulative_sum(a(INTS[0]), dtype=p.float64)],
    **{n: [lambda p, a, n=n: getattr(p, n)(a(A)),
           lambda p, a, n=n: getattr(p, n)(a(SQUARE), axis=(0, -1), keepdims=True)]
       for n in ("max", "min", "mean", "prod", "sum", "std", "var")},
    "all": [lambda p, a: p.all(a(BOOLS)), lambda p, a: p.all(a(INTS), axis=0, keepdims=True)],
    "any": [lambda p, a: p.any(a(BOOLS), axis=1)],
    "diff": [lambda p, a: p.diff(a(A)), lambda p, a: p.diff(a(A), n=2, axis=0),
             lambda p, a: p.diff(a(A), prepend=a(B[:, :1]), append=a(B[:, 1:3]))],
}  # fmt: skip
CASES["sum"] += [
    lambda p, a: p.sum(a(INTS.astype(np.int8))),
    lambda p, a: p.sum(a(A.astype(np.float32)), dtype=p.float64, axis=0),
]
CASES["std"] += [lambda p, a: p.std(a(A), axis=0, correction=1.0)]
CASES["var"] += [lambda p, a: p.var(a(A), correction=1.5)]
for _name, _x in UNARY_FLOAT.items():
    CASES[_name] = [lambda p, a, n=_name, x=_x: getattr(p, n)(a(x))]
    if np.asarray(_x).dtype.kind == "f":
        CASES[_name] += [
            lambda p, a, n=_name, x=_x: getattr(p, n)(a(x.astype(np.float32))),
            lambda p, a, n=_name: getattr(p, n)(a(SPECIAL)),
        ]
for _name in ("floor", "ceil", "trunc", "round", "abs", "sign", "square", "negative"):
    CASES[_name] += [lambda p, a, n=_name: getattr(p, n)(a(INTS))]
for _name in ("exp", "sin", "sqrt", "tanh", "abs", "sign", "log", "square"):
    CASES[_name] += [lambda p, a, n=_name: getattr(p, n)(a(COMPLEX))]
for _name, _xy in BINARY.items():
    CASES[_name] = [
        lambda p, a, n=_name, xy=_xy: getattr(p, n)(a(xy[0]), a(xy[1])),
        lambda p, a, n=_name, xy=_xy: getattr(p, n)(a(xy[0]), a(xy[1][0])),
        lambda p, a, n=_name, xy=_xy: getattr(p, n)(a(xy[0]), xy[1][0, 0].item()),
    ]

LINALG_CASES: dict[str, list[Any]] = {
    "cholesky": [lambda p, a: p.cholesky(a(SPD)), lambda p, a: p.cholesky(a(SPD), upper=True)],
    "cross": [lambda p, a: p.cross(a(SQUARE[0]), a(SQUARE[1])),
              lambda p, a: p.cross(a(SQUARE[0]), a(SQUARE[1]), axis=-2)],
    "det": [lambda p, a: p.det(a(SQUARE))],
    "diagonal": [lambda p, a: p.diagonal(a(SQUARE), offset=1)],
    "eigh": [lambda p, a: p.eigh(a(SPD)).eigenvalues],
    "eigvalsh": [lambda p, a: p.eigvalsh(a(SPD))],
    "inv": [lambda p, a: p.inv(a(SPD))],
    "matmul": [lambda p, a: p.matmul(a(SQUARE), a(SPD))],
    "matrix_norm": [lambda p, a: p.matrix_norm(a(SQUARE)),
                    lambda p, a: p.matrix_norm(a(SQUARE), ord=2, keepdims=True),
                    lambda p, a: p.matrix_norm(a(A), ord="nuc"),
                    lambda p, a: p.matrix_norm(a(A), ord=1)],
    "matrix_power": [lambda p, a: p.matrix_power(a(SPD), 3),
                     lambda p, a: p.matrix_power(a(SPD), -1)],
    "matrix_rank": [lambda p, a: p.matrix_rank(a(SPD)),
                    lambda p, a: p.matrix_rank(a(A), rtol=0.5)],
    "matrix_transpose": [lambda p, a: p.matrix_transpose(a(SQUARE))],
    "outer": [lambda p, a: p.outer(a(A[0]), a(B[:, 0]))],
    "pinv": [lambda p, a: p.pinv(a(A)), lambda p, a: p.pinv(a(SQUARE), rtol=0.01)],
    "qr": [lambda p, a: p.qr(a(SQUARE)), lambda p, a: p.qr(a(A.T), mode="complete")],
    "slogdet": [lambda p, a: p.slogdet(a(SQUARE))],
    "solve": [lambda p, a: p.solve(a(SPD), a(SQUARE)), lambda p, a: p.solve(a(SPD), a(A[:, 0]))],
    "svd": [lambda p, a: p.svd(a(SQUARE)).S, lambda p, a: p.svd(a(A), full_matrices=False).S],
    "svdvals": [lambda p, a: p.svdvals(a(A))],
    "tensordot": [lambda p, a: p.tensordot(a(A), a(B.T), axes=1)],
    "trace": [lambda p, a: p.trace(a(SQUARE)),
              lambda p, a: p.trace(a(INTS[:, :3].astype(np.int8)), offset=1)],
    "vecdot": [lambda p, a: p.vecdot(a(A), a(B), axis=-2)],
    "vector_norm": [lambda p, a: p.vector_norm(a(A)),
                    lambda p, a: p.vector_norm(a(SQUARE), axis=(0, 2), keepdims=True),
                    lambda p, a: p.vector_norm(a(A), axis=0, ord=1),
                    lambda p, a: p.vector_norm(a(A), axis=1, ord=3),
                    lambda p, a: p.vector_norm(a(A), ord=float("inf"))],
}  # fmt: skip
FFT_CASES: dict[str, list[Any]] = {
    **{n: [lambda p, a, n=n: getattr(p, n)(a(COMPLEX)),
           lambda p, a, n=n: getattr(p, n)(a(COMPLEX), n=6, axis=0, norm="ortho")]
       for n in ("fft", "ifft", "irfft", "hfft")},
    **{n: [lambda p, a, n=n: getattr(p, n)(a(A)), lambda p, a, n=n: getattr(p, n)(a(A), n=3)]
       for n in ("rfft", "ihfft")},
    **{n: [lambda p, a, n=n: getattr(p, n)(a(COMPLEX)),
           lambda p, a, n=n: getattr(p, n)(a(COMPLEX), s=(2,), axes=(1,), norm="forward")]
       for n in ("fftn", "ifftn", "irfftn")},
    "rfftn": [lambda p, a: p.rfftn(a(A)), lambda p, a: p.rfftn(a(A.astype(np.float32)))],
    "fftfreq": [lambda p, a: p.fftfreq(5), lambda p, a: p.fftfreq(4, d=0.5)],
    "rfftfreq": [lambda p, a: p.rfftfreq(6, d=2.0)],
    "fftshift": [lambda p, a: p.fftshift(a(A)), lambda p, a: p.fftshift(a(A), axes=0)],
    "ifftshift": [lambda p, a: p.ifftshift(a(A))],
}  # fmt: skip
# Not a result that can be compared as an array; they have tests of their own below.
OTHERWISE = {"can_cast", "finfo", "iinfo", "isdtype", "result_type"}


def test_every_function_has_cases() -> None:
    assert set(CASES) | OTHERWISE == set(FUNCTIONS)
    assert set(LINALG_CASES) == set(LINALG)
    assert set(FFT_CASES) == set(FFT)


def _flat(r: Any) -> list[Any]:
    return [part for x in r for part in _flat(x)] if isinstance(r, (tuple, list)) else [r]


def _compare(case: Any, ours: Any, reference: Any) -> None:
    strict = pytest.importorskip("array_api_strict")
    with np.errstate(all="ignore"):
        wanted = _flat(case(reference, strict.asarray))
        got = _flat(case(ours, xp.asarray))
    assert len(got) == len(wanted)
    for r, w in zip(got, wanted, strict=True):
        assert isinstance(r, ADArray)
        w = np.asarray(w)
        assert (r.shape, r.dtype) == (w.shape, w.dtype)
        np.testing.assert_allclose(
            r.numpy(), w, rtol=1e-6 if w.itemsize <= 4 else 1e-12, atol=1e-12
        )


@pytest.mark.parametrize("name", sorted(CASES))
def test_main_values(name: str) -> None:
    strict = pytest.importorskip("array_api_strict")
    for case in CASES[name]:
        _compare(case, xp, strict)


@pytest.mark.parametrize("name", sorted(LINALG_CASES))
def test_linalg_values(name: str) -> None:
    strict = pytest.importorskip("array_api_strict")
    for case in LINALG_CASES[name]:
        _compare(case, xp.linalg, strict.linalg)


@pytest.mark.parametrize("name", sorted(FFT_CASES))
def test_fft_values(name: str) -> None:
    strict = pytest.importorskip("array_api_strict")
    for case in FFT_CASES[name]:
        _compare(case, xp.fft, strict.fft)


@pytest.mark.parametrize("part", ["", "linalg", "fft"])
def test_keywords_of_the_standard(part: str) -> None:
    """Every keyword-only argument of the standard is taken."""
    strict = pytest.importorskip("array_api_strict")
    reference, ours = (getattr(m, part) if part else m for m in (strict, xp))
    missing = []
    for name in {"": FUNCTIONS, "linalg": LINALG, "fft": FFT}[part]:
        wanted = inspect.signature(getattr(reference, name))
        try:
            have = inspect.signature(getattr(ours, name)).parameters
        except (TypeError, ValueError):  # a ufunc or a class; its cases pass the arguments
            continue
        if any(p.kind is p.VAR_KEYWORD for p in have.values()):
            continue
        missing += [
            f"{name}({p.name}=)"
            for p in wanted.parameters.values()
            if p.kind is p.KEYWORD_ONLY and p.name not in have
        ]
    assert missing == []


# -- every dtype, empty and zero-dimensional arrays -------------------------------------------

SHAPES = [(), (0,), (3,), (2, 0), (2, 3)]


def _values(dtype: str, shape: tuple[int, ...], seed: int) -> Any:
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.startswith("complex"):
        return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)
    if dtype.startswith("float"):
        return np.asarray(rng.uniform(0.1, 0.9, shape)).astype(dtype)
    return rng.integers(1, 5, shape).astype(dtype)


def _both(function: Any, strict: Any, *arrays: Any) -> None:
    """Compare a function where the reference takes these arguments."""
    try:
        with np.errstate(all="ignore"):
            wanted = function(strict, *map(strict.asarray, arrays))
    except (TypeError, ValueError, IndexError):
        return  # not of the standard for these dtypes or shapes
    with np.errstate(all="ignore"):
        got = function(xp, *map(xp.asarray, arrays))
    for r, w in zip(_flat(got), _flat(wanted), strict=True):
        w = np.asarray(w)
        assert (r.shape, r.dtype) == (w.shape, w.dtype)
        np.testing.assert_allclose(r.numpy(), w, rtol=1e-5 if w.itemsize <= 8 else 1e-12)


@pytest.mark.parametrize("name", sorted(UNARY_FLOAT))
def test_elementwise_functions_of_every_dtype(name: str) -> None:
    strict = pytest.importorskip("array_api_strict")
    for dtype in DTYPES:
        for shape in SHAPES:
            _both(lambda p, x: getattr(p, name)(x), strict, _values(dtype, shape, 0))


@pytest.mark.parametrize("name", sorted(BINARY))
def test_binary_functions_promote(name: str) -> None:
    strict = pytest.importorskip("array_api_strict")
    for first in DTYPES:
        for second in DTYPES:
            x, y = _values(first, (2, 3), 0), _values(second, (3,), 1)
            _both(lambda p, x, y: getattr(p, name)(x, y), strict, x, y)
        for number in (True, 2, 0.5, 0.5j):
            x = _values(first, (2,), 0)
            _both(lambda p, x, n=number: getattr(p, name)(x, n), strict, x)
            _both(lambda p, x, n=number: getattr(p, name)(n, x), strict, x)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, of empty slices
@pytest.mark.parametrize(
    "name", ["all", "any", "argmax", "argmin", "count_nonzero", "cumulative_prod", "cumulative_sum",
             "max", "mean", "min", "prod", "sort", "argsort", "std", "sum", "var", "flip", "diff",
             "nonzero", "unique_all", "unique_values", "squeeze", "zeros_like", "ones_like"]
)  # fmt: skip
def test_array_functions_of_every_dtype(name: str) -> None:
    strict = pytest.importorskip("array_api_strict")
    for dtype in DTYPES:
        for shape in SHAPES:
            x = _values(dtype, shape, 0)
            _both(lambda p, x: getattr(p, name)(x), strict, x)
            _both(lambda p, x: getattr(p, name)(x, axis=0), strict, x)
            _both(lambda p, x: getattr(p, name)(x, axis=-1, keepdims=True), strict, x)


@pytest.mark.parametrize(
    "operator", ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor",
                 "lshift", "rshift", "eq", "ne", "lt", "le", "gt", "ge", "matmul"]
)  # fmt: skip
def test_operators_of_every_dtype(operator: str) -> None:
    strict = pytest.importorskip("array_api_strict")
    method = f"__{operator}__"
    for dtype in DTYPES:
        x, y = _values(dtype, (3, 3), 0), _values(dtype, (3, 3), 1)
        _both(lambda p, x, y: getattr(x, method)(y), strict, x, y)
        _both(lambda p, x: getattr(x, method)(2), strict, x)

"""Integer and boolean arrays with Python numbers at their limits: as NumPy, or NumPy's error.

Python's numbers take the dtype of the array that they meet (NEP 50): NumPy compares with those
that the dtype does not hold, clips to them, and raises OverflowError for all else. A compiled
program that casts them wraps.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from trust import COMPILED, seeds

import adarray
from adarray.jitting import JitWarning
from adarray.testing._ops import use_all_sizes

DTYPES = "?bhilBHIL"
NUMBERS = [
    *(s * (1 << p) + d for p in (7, 8, 15, 16, 31, 32, 53, 63, 64) for s in (1, -1)
      for d in (-1, 0, 1)),
    0, 1, -1, 2, 3, 5, True, False, 300, 1 << 80, 0.5, -1.5, 2.0, 1e10, 1e300, np.inf, np.nan,
]  # fmt: skip


def _written(write: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def f(a: Any, k: Any) -> Any:
        b = a.copy()
        write(b, k)
        return b

    return f


def _set(index: Any) -> Callable[[Any, Any], Any]:
    def f(a: Any, k: Any) -> None:
        a[index] = k

    return _written(f)


def _augmented(a: Any, k: Any) -> Any:
    b = a.copy()
    b += k
    b *= 2
    return b


OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "clip above": lambda a, k: np.clip(a, 0, k),
    "clip below": lambda a, k: np.clip(a, k, None),
    "clip from -1": lambda a, k: np.clip(a, -1, k),
    "clip to 256": lambda a, k: np.clip(a, k, 256),
    "clip method": lambda a, k: a.clip(None, k),
    "clip keywords": lambda a, k: np.clip(a, min=k, max=100),
    "clip tight": lambda a, k: np.clip(np.add(a, a), k, k),
    "maximum": lambda a, k: np.maximum(a, k),
    "minimum": lambda a, k: np.minimum(k, a),
    "fmax": lambda a, k: np.fmax(a, k),
    "greater": lambda a, k: a > k,
    "less": lambda a, k: k < a,
    "greater_equal": lambda a, k: np.greater_equal(a, k),
    "equal": lambda a, k: a == k,
    "not_equal": lambda a, k: np.not_equal(k, a),
    "where": lambda a, k: np.where(a > 1, a, k),
    "where first": lambda a, k: np.where(a > 1, k, a),
    "select": lambda a, k: np.select([a > 1], [a], k),
    "choose": lambda a, k: np.choose(np.array([0, 1, 0, 1, 1]), [a, k]),
    "add": lambda a, k: a + k,
    "subtract": lambda a, k: k - a,
    "multiply": lambda a, k: a * k,
    "divide": lambda a, k: a / k,
    "floor_divide": lambda a, k: a // k,
    "remainder": lambda a, k: a % k,
    "fmod": lambda a, k: np.fmod(a, k),
    "divmod": lambda a, k: divmod(a, k)[1],
    "power": lambda a, k: a**k if abs(k) < 100 else a,
    "power of": lambda a, k: k ** np.minimum(a, 3),
    "shift": lambda a, k: a << k,
    "shift right": lambda a, k: a >> k,
    "and": lambda a, k: a & k,
    "xor": lambda a, k: k ^ a,
    "gcd": lambda a, k: np.gcd(a, k),
    "hypot": lambda a, k: np.hypot(a, k),
    "arctan2": lambda a, k: np.arctan2(k, a),
    "copysign": lambda a, k: np.copysign(a, k),
    "logical_and": lambda a, k: np.logical_and(a, k),
    "full_like": lambda a, k: np.full_like(a, k),
    "full": lambda a, k: np.full(3, k, a.dtype) + a[:3],
    "full of all": lambda a, k: np.full(a.shape, k) + a,
    "sum": lambda a, k: np.sum(a, initial=k),
    "sum narrow": lambda a, k: np.sum(a, dtype=a.dtype, initial=k),
    "prod": lambda a, k: np.prod(a, initial=k),
    "max": lambda a, k: np.max(a, initial=k),
    "min where": lambda a, k: np.min(a, initial=k, where=a > 1),
    "pad": lambda a, k: np.pad(a, 1, constant_values=k),
    "pad both": lambda a, k: np.pad(a, (1, 2), constant_values=(k, 1)),
    "searchsorted": lambda a, k: np.searchsorted(np.sort(a), k),
    "isin": lambda a, k: np.isin(a, k),
    "isin list": lambda a, k: np.isin(a, [k, 1]),
    "digitize": lambda a, k: np.digitize(a, [k]),
    "outer": lambda a, k: np.add.outer(a, k),
    "append": lambda a, k: np.append(a, k),
    "insert": lambda a, k: np.insert(a, 1, k),
    "concatenate": lambda a, k: np.concatenate([a, np.array([k])]),
    "array": lambda a, k: np.array(k, a.dtype) + a,
    "asarray": lambda a, k: np.asarray([k, 1], dtype=a.dtype)[0] + a,
    "astype": lambda a, k: (a + np.float64(k)).astype(a.dtype),
    "astype small": lambda a, k: (a * 1.0 * np.float64(k)).astype(np.int16),
    "astype unsigned": lambda a, k: (a * 1.0 * np.float64(k)).astype(np.uint32),
    "nan_to_num": lambda a, k: np.nan_to_num(a, nan=k),
    "isclose": lambda a, k: np.isclose(a, k),
    "diff": lambda a, k: np.diff(a, prepend=k),
    "ediff1d": lambda a, k: np.ediff1d(a, to_end=k),
    "arange": lambda a, k: np.arange(3) + k + a[0],
    "linspace": lambda a, k: np.linspace(0, k, 3) * a[0],
    "dot": lambda a, k: np.dot(a, k),
    "scalar": lambda a, k: a[1] + k,
    "scalar equal": lambda a, k: a[1] == k,
    "scalar clip": lambda a, k: np.clip(a[2], 0, k),
    "item": lambda a, k: a[1].item() + k if abs(k) < 1 << 40 else a,
    "out": lambda a, k: np.add(a, k, out=np.zeros(a.shape, a.dtype)),
    "set item": _set(0),
    "set slice": _set(slice(1, None)),
    "set list": _set([0, 2]),
    "set all": _set(Ellipsis),
    "set mask": _written(lambda b, k: b.__setitem__(b > 1, k)),
    "set row": _written(lambda b, k: b.__setitem__(slice(0, 2), [k, 1])),
    "augmented": _augmented,
    "fill": _written(lambda b, k: b.fill(k)),
    "put": _written(lambda b, k: np.put(b, [0, 1], k)),
    "put list": _written(lambda b, k: np.put(b, [0, 1], [1, k])),
    "copyto": _written(lambda b, k: np.copyto(b, k)),
    "copyto where": _written(lambda b, k: np.copyto(b, k, where=b > 1, casting="unsafe")),
    "place": _written(lambda b, k: np.place(b, b > 1, [k])),
    "putmask": _written(lambda b, k: np.putmask(b, b > 1, k)),
    "put_along_axis": _written(lambda b, k: np.put_along_axis(b, np.array([1]), k, 0)),
    "add.at": _written(lambda b, k: np.add.at(b, [0, 0], k)),
}
ERRORS = (ArithmeticError, TypeError, ValueError)
HOW = ("constant", "argument", "list", "scalar", "changing")


def _array(rng: np.random.Generator, dtype: str) -> np.ndarray:
    if dtype == "?":
        return rng.integers(0, 2, 5).astype(bool)
    info = np.iinfo(dtype)
    pool = [info.min, info.max, info.max - 1, info.min + 1, *map(int, rng.integers(0, 9, 8))]
    return np.array([pool[i] for i in rng.integers(0, len(pool), 5)], dtype)


def _outcome(f: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    try:
        return f(*args)
    except ERRORS as error:
        return error


def _same(got: Any, expected: Any) -> bool:
    if isinstance(got, adarray.DTypeError):
        return "array of objects" in str(got)  # refused
    if isinstance(expected, Exception):
        return any(isinstance(got, e) and isinstance(expected, e) for e in ERRORS)
    if isinstance(got, Exception) or isinstance(got, np.ndarray) != isinstance(
        expected, np.ndarray
    ):
        return False
    if np.result_type(got) != np.result_type(expected):
        return False
    rounded = np.result_type(expected).kind in "fc"
    if rounded:
        rtol = max(1e-14, 2 * float(np.finfo(np.result_type(expected)).eps))
        return np.shape(got) == np.shape(expected) and np.allclose(
            got, expected, rtol=rtol, atol=0, equal_nan=True
        )
    return np.array_equal(got, expected)


def _program(seed: int) -> tuple[str, Callable[..., Any], list[tuple[Any, ...]]]:
    """Return a description, a function, and the arguments of its calls."""
    rng = np.random.default_rng(seed)
    name = list(OPERATIONS)[rng.integers(len(OPERATIONS))]
    dtype = DTYPES[rng.integers(len(DTYPES))]
    how = HOW[rng.integers(len(HOW))]
    operation = OPERATIONS[name]
    numbers = [NUMBERS[i] for i in rng.integers(0, len(NUMBERS), 2)]
    arrays = [_array(rng, dtype) for _ in range(2)]
    if name.startswith("shift"):  # C leaves others to the processor
        numbers = [abs(int(k)) % 7 if abs(k) < 1e9 else 3 for k in numbers]
    k = numbers[0]
    calls: list[tuple[Any, ...]]
    if how == "constant":
        f: Callable[..., Any] = lambda a: operation(a, k)  # noqa: E731
        calls = [(arrays[i % 2],) for i in range(5)]
    elif how == "list":
        references = [1, k]
        f = lambda a: operation(a, references[1])  # noqa: E731
        calls = [(arrays[i % 2],) for i in range(5)]
    else:
        f = operation
        if how == "scalar":
            numbers = [np.asarray(n)[()] if abs(n) < 1 << 63 else np.float64(n) for n in numbers]
        calls = [(arrays[i % 2], numbers[i // 4 % 2]) for i in range(8)]
        if how == "changing":  # until it is an input of the compiled function
            calls = [(arrays[i % 2], i % 5 + 1) for i in range(10)] + calls
    return f"{name} of {np.dtype(dtype)} by {how} {numbers}", f, calls


def _check(seed: int, backend: str) -> None:
    what, f, calls = _program(seed)
    # NumPy also tells when integers overflow that are scalars, which kernels do not know.
    # GPUs tell nothing, and cast floats out of range as their hardware does.
    device = backend not in ("numpy", "serial", "openmp")
    strict = seed % 4 == 0 and not what.startswith("scalar") and not device
    state: Any = {"all": "raise", "under": "ignore"} if strict else {"all": "ignore"}
    with warnings.catch_warnings(), use_all_sizes(backend), np.errstate(**state):
        warnings.simplefilter("ignore", JitWarning)
        jitted = adarray.jit(f)
        for number, args in enumerate(calls):
            references = [x.copy() if isinstance(x, np.ndarray) else x for x in args]
            expected = _outcome(f, args)
            got = _outcome(jitted, args)
            if device and any(np.result_type(x).kind == "f" for x in args):
                continue
            assert _same(got, expected), (
                f"seed {seed}, {what}, call {number} of {references} on {backend}: {got!r}, "
                f"expected {expected!r}"
            )


@pytest.mark.parametrize("backend", ["numpy", "serial"])
@pytest.mark.parametrize(
    ("x", "low", "high"),
    [
        (np.array([0, 1, 200, 255], np.uint8), 0, 256),
        (np.array([0, 1, 200, 255], np.uint8), -1, 2),
        (np.array([-128, 0, 127], np.int8), -300, 300),
        (np.array([-5, 0, 5], np.int32), 0, 2**40),
        (np.array([0, 5], np.uint64), -1, 3),
    ],
)
def test_clip_wrapped_its_bounds(x: np.ndarray, low: int, high: int, backend: str) -> None:
    with use_all_sizes(backend):
        f = adarray.jit(lambda x: np.clip(x, low, high))
        for _ in range(4):
            np.testing.assert_array_equal(f(x), np.clip(x, low, high), strict=True)


def test_casts_of_numbers_out_of_range_are_numpys() -> None:
    values = [1.5, -1.0, 300.0, -129.0, 2.0**31, 2.0**32 + 5, -(2.0**63), 1e300, np.inf, np.nan]
    x = np.tile(values, 13)
    with use_all_sizes("serial"), np.errstate(invalid="ignore"):
        for dtype in DTYPES:
            f = adarray.jit(lambda x: (x * 1.0).astype(dtype))  # noqa: B023
            for _ in range(4):
                np.testing.assert_array_equal(f(x), x.astype(dtype), err_msg=dtype)
    with use_all_sizes("serial"), np.errstate(invalid="raise"):
        f = adarray.jit(lambda x: (x * 1.0).astype(np.int32))
        for _ in range(4):
            np.testing.assert_array_equal(f(np.ones(3)), np.ones(3, np.int32), strict=True)
        with pytest.raises(FloatingPointError):
            f(np.array([1.0, np.nan, 2.0]))


UFUNCS = [u for u in vars(np).values() if isinstance(u, np.ufunc) and not u.signature]


@pytest.mark.parametrize("ufunc", UFUNCS, ids=lambda u: u.__name__)
def test_dtypes_are_numpys(ufunc: np.ufunc) -> None:
    """The power of truth values and a Python number had the operator's dtype."""
    arrays = [np.ones(2, d) for d in "?bhilBHILefdFD"]
    others: list[Any] = [*arrays, *(x[0] for x in arrays), True, 2, -1, 2.0, 1j]
    pairs = [
        (x, *rest) for x in arrays for rest in ([(y,) for y in others] if ufunc.nin > 1 else [()])
    ]
    for args in pairs if ufunc.nin < 3 else ():
        with np.errstate(all="ignore"):
            expected = _outcome(ufunc, args)
            got = _outcome(ufunc, (adarray.array(args[0]), *args[1:]))
        if isinstance(expected, Exception):
            assert isinstance(got, Exception), args
            continue
        several = expected if isinstance(expected, tuple) else (expected,)
        for e, g in zip(several, got if isinstance(got, tuple) else (got,), strict=True):
            assert g.dtype == e.dtype, args


@pytest.mark.parametrize("k", [0, 1, 2, 3, True, 2.0, np.int64(2)])
def test_powers_of_truth_values(k: Any) -> None:
    x = np.array([True, False])
    with use_all_sizes("numpy"):
        for f in (lambda x: np.power(x, k), lambda x: x**k):
            jitted = adarray.jit(f)
            assert f(adarray.array(x)).dtype == f(x).dtype
            for _ in range(4):
                np.testing.assert_array_equal(jitted(x), f(x), strict=True)


OF_NUMBERS: list[Callable[[Any, Any], Any]] = [
    lambda a, k: np.append(a, k),
    lambda a, k: np.append(k, a),
    lambda a, k: np.add.outer(a, k),
    lambda a, k: np.multiply.outer(k, a),
    lambda a, k: np.select([a > 1], [a], k),
    lambda a, k: np.select([a > 1], [k], a),
    lambda a, k: np.select([a > 1, a > 0], [k, 2], a),
    lambda a, k: np.choose([0, 1, 0, 1, 1], [a, k]),
    lambda a, k: np.linspace(a[0], k, 3),
    lambda a, k: np.hstack([a, k]),
    lambda a, k: np.insert(a, 1, k),
    lambda a, k: np.minimum(a, [k]),
    lambda a, k: np.array(k, np.int16) + a,
    lambda a, k: a**k,
]


@pytest.mark.parametrize("number", range(len(OF_NUMBERS)))
def test_traced_python_numbers_give_numpys_dtypes(number: int) -> None:
    """Where NumPy makes arrays of them, traced ones kept yielding: add.outer of int8 wrapped."""
    f = OF_NUMBERS[number]
    with warnings.catch_warnings(), use_all_sizes("numpy"), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", JitWarning)
        for dtype in ("f4", "i1", "u1", "i4", "u8", "?"):
            a = np.array([0, 1, 100, 120, 1], dtype)
            jitted = adarray.jit(f)
            for k in (1.5, 2.5, 0.5, 2, 1, 3, 4, 5, 2, 300, 2):
                expected = _outcome(f, (a, k))
                for _ in range(2):
                    got = _outcome(jitted, (a, k))
                    assert _same(got, expected), f"{dtype} {k}: {got!r}, expected {expected!r}"
            if number < 10:
                got = _outcome(lambda k: adarray.vjp(lambda k: f(a, k), k)[0], (1.5,))  # noqa: B023
                assert isinstance(got, adarray.ADArrayError) or _same(got, _outcome(f, (a, 1.5)))


def test_what_is_written_into_integers_is_cast_before_it_is_chosen() -> None:
    """A choice between int64 and a float was made in float64, which does not hold all of int64."""

    def f(a: Any, k: float) -> Any:
        b = a.copy()
        np.copyto(b, k, where=b > 1, casting="unsafe")
        return b

    jitted = adarray.jit(f)
    a = np.array([2, -(2**63) + 1, 2**53 + 1])
    for _ in range(4):
        np.testing.assert_array_equal(jitted(a, -1.5), f(a, -1.5), strict=True)


@pytest.mark.parametrize("index", [0, slice(0, 1), (0, ...), [0]])
def test_numbers_of_numpy_that_are_written(index: Any) -> None:
    """NumPy refuses those that the integers do not hold, but where it takes them for arrays."""

    def f(a: Any, k: Any) -> Any:
        a[index] = k
        return a * 1

    with warnings.catch_warnings(), use_all_sizes("numpy"), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", JitWarning)
        numbers: list[Any] = [np.int64(n) for n in (1, 5, -(2**31), 7)]
        numbers += [np.float64(3.5), np.float64(1e10), np.float64(np.nan), np.uint64(2**63)]
        for dtype in ("i1", "u4", "i8"):
            jitted = adarray.jit(f)
            for k in numbers:
                for _ in range(3):
                    expected = _outcome(f, (np.zeros(3, dtype), k))
                    got = _outcome(jitted, (np.zeros(3, dtype), k))
                    assert _same(got, expected), f"{dtype} {k!r}: {got!r}, expected {expected!r}"


def _eager(seed: int) -> None:
    what, f, calls = _program(seed)
    with np.errstate(all="ignore"):
        for args in (calls[0], calls[-1]):
            expected = _outcome(f, args)
            got = _outcome(f, (adarray.array(args[0]), *args[1:]))
            got = adarray.value_of(got) if isinstance(got, adarray.ADArray) else got
            if not isinstance(got, Exception) and not isinstance(expected, Exception):
                got, expected = np.asarray(got), np.asarray(expected)
            assert _same(got, expected), f"seed {seed}, {what}: {got!r}, expected {expected!r}"


def test_eager() -> None:
    for seed in seeds(600):
        _eager(seed)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("part", range(4))
def test_jit(part: int) -> None:
    for seed in seeds(600):
        if seed % 4 == part:
            _check(seed, "numpy")


@pytest.mark.parametrize("backend", COMPILED)
def test_compiled(backend: str) -> None:
    for seed in list(seeds(1200))[:: 40 if len(seeds(1200)) == 1200 else 4]:
        _check(seed, backend)


def _differentiated(seed: int, mode: str) -> None:
    what, f, calls = _program(seed)
    args = calls[0]

    def loss(x: Any, *rest: Any) -> Any:
        return np.sum(x * f(*rest))

    expected = _outcome(lambda *a: np.sum(1.0 * f(*a)), args)
    if isinstance(expected, Exception):
        with pytest.raises(type(expected)):
            adarray.grad(loss)(2.0, *args)
        return
    whole = adarray.value_and_grad(loss, intercept=mode == "intercept")
    if mode == "jit(grad)":
        whole = adarray.jit(whole)
    if isinstance(expected, np.ndarray) or type(expected) is not np.float64:
        return  # of Python's long ints
    for _ in range(4 if mode == "jit(grad)" else 1):
        if mode == "jvp":
            value, gradient = adarray.jvp(lambda x: loss(x, *args), (2.0,), (1.0,))
        else:
            value, gradient = whole(2.0, *args)
        np.testing.assert_allclose(value, loss(2.0, *args), err_msg=f"seed {seed}, {what}, {mode}")
        np.testing.assert_allclose(gradient, expected, err_msg=f"seed {seed}, {what}, {mode}")


@pytest.mark.parametrize("mode", ["plain", "intercept", "jit(grad)", "jvp"])
def test_beside_what_is_differentiated(mode: str) -> None:
    state: Any = {"all": "ignore"}
    with warnings.catch_warnings(), use_all_sizes("numpy"), np.errstate(**state):
        warnings.simplefilter("ignore", JitWarning)
        for seed in seeds(100):
            _differentiated(seed, mode)

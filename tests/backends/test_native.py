"""The compiled kernels against NumPy: strides, broadcasting, special values, warnings."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np
import pytest
from records import CORE

import adarray
from adarray.backend import load
from adarray.base.op import OPS, Op, Reduction
from adarray.compiler.scalars import eager
from adarray.errors import BackendError

POINTWISE = [name for name, op in CORE.items() if op.pointwise]
REDUCTIONS = [name for name, op in CORE.items() if isinstance(op.lower, Reduction)]
DTYPES = [np.float64, np.float32]
ULP = 4


def _engine(name: str, **options: Any) -> Any:
    """Return an engine, or skip where the C modules are not built."""
    try:
        return load(name).engine(**options)
    except BackendError as error:
        pytest.skip(str(error))


@pytest.fixture(params=["serial", "openmp"])
def engine(request: pytest.FixtureRequest) -> Any:
    options = {"threads": 3} if request.param == "openmp" else {}
    return _engine(request.param, cutoff=0, **options)


def ulps(got: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Return how many floating-point numbers lie between; inf where one is special."""
    integer = np.int64 if expected.dtype == np.float64 else np.int32
    a, b = (v.view(integer).astype(np.int64) for v in (got, expected))
    lowest = np.int64(np.iinfo(integer).min)
    a, b = np.where(a < 0, lowest - a, a), np.where(b < 0, lowest - b, b)
    far = np.abs(a / 2 - b / 2) > 1e9
    distance = np.where(far, np.inf, np.abs(np.where(far, 0, a) - np.where(far, 0, b)))
    same = (got == expected) | (np.isnan(got) & np.isnan(expected))
    special = ~np.isfinite(got) | ~np.isfinite(expected)
    return np.where(same, 0.0, np.where(special, np.inf, distance))


def check(got: Any, expected: Any, what: str, signs: bool = True) -> None:
    """Compare within ULP, special values and signed zeros exactly."""
    assert got is not NotImplemented, what
    assert type(got) is type(expected), what
    assert got.dtype == expected.dtype, what
    assert got.shape == expected.shape, what
    got, expected = np.atleast_1d(got).ravel(), np.atleast_1d(expected).ravel()
    distance = ulps(got, expected)
    worst = int(np.argmax(distance))
    assert distance[worst] <= ULP, f"{what}: {got[worst]!r} for {expected[worst]!r}"
    if signs:
        zero = (got == 0) & (expected == 0)
        assert not np.any(np.signbit(got[zero]) != np.signbit(expected[zero])), what


def special_values(dtype: type) -> np.ndarray:
    f = np.finfo(dtype)
    values = [
        0.0, 1, 0.5, 2, 3, np.inf, f.max, f.tiny, f.smallest_subnormal, f.tiny / 4, 1e-30, 1e10,
        1e30, f.eps, 1 + f.eps, 1 - f.eps, 700, 710, 745, 88, 104, 0.1, 22, 1e5, 7.5, 4, 100,
    ]  # fmt: skip
    return np.array([*values, *(-v for v in values), np.nan], dtype)


def spread(dtype: type, arity: int) -> list[list[np.ndarray]]:
    """Return operands over wide ranges: ordinary, huge, denormal, every bit pattern."""
    rng = np.random.default_rng(7)
    n, top = 4003, 300 if dtype is np.float64 else 37
    ranges = [(-1, 1), (-10, 10), (0, 4), (-1000, 1000), (0.3, 1e6)]
    arrays = [[rng.uniform(*r, n).astype(dtype) for _ in range(arity)] for r in ranges]
    for low, high in ((-top, top), (-top - 7, -top), (0, 20)):
        arrays.append(
            [
                (rng.choice([-1, 1], n) * 10.0 ** rng.uniform(low, high, n)).astype(dtype)
                for _ in range(arity)
            ]
        )
    kind = np.uint64 if dtype is np.float64 else np.uint32
    arrays.append(list(rng.integers(0, np.iinfo(kind).max, (arity, n), dtype=kind).view(dtype)))
    return arrays


def operands_of(op: Op, arrays: list[np.ndarray]) -> tuple[np.ndarray, ...]:
    """Return the arrays as operands: conditions become truth values."""
    truths = eager.truth_variables(op.expression(*eager._symbols(op)))
    return tuple(a > 0 if f"x{i}" in truths else a for i, a in enumerate(arrays))


# NumPy itself chooses one or the other zero of two equal bounds, by the kind of its arguments.
UNSIGNED = frozenset({"clip"})


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", POINTWISE)
def test_values(engine: Any, name: str, dtype: type) -> None:
    op = OPS[name]
    grid = np.meshgrid(*[special_values(dtype)] * op.arity) if op.arity < 3 else []
    sets = spread(dtype, op.arity)
    if op.arity < 3:
        sets.append([g.ravel() for g in grid])
    for i, arrays in enumerate(sets):
        operands = operands_of(op, arrays)
        with np.errstate(all="ignore"):
            got, expected = engine.pointwise(op, operands), op.evaluate(*operands)
        check(got, expected, f"{name}, set {i}", name not in UNSIGNED)


def layouts(shape: tuple[int, ...], dtype: type, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Return arrays of one shape in many memory layouts, all broadcastable to it."""

    def new(*dims: int) -> np.ndarray:
        return rng.uniform(0.3, 0.9, dims).astype(dtype)

    m, n = shape
    odd = np.zeros(m * n * new(1).itemsize + 1, np.uint8)[1:].view(dtype).reshape(m, n)
    odd[:] = new(m, n)
    return {
        "plain": new(m, n),
        "transposed": new(n, m).T,
        "strided": new(2 * m, 3 * n)[::2, ::3],
        "reversed": new(m, n)[::-1, ::-1],
        "row": new(n),
        "column": new(m, 1),
        "one": new(1, 1),
        "broadcast": np.broadcast_to(new(m, 1), (m, n)),
        "unaligned": odd,
    }


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (7, 64), (130, 33), (1, 3000), (2, 1031)])
def test_layouts_give_equal_bits(engine: Any, shape: tuple[int, int], dtype: type) -> None:
    """A value does not depend on the place or the strides of its operands."""
    rng = np.random.default_rng(3)
    result = layouts(shape, dtype, rng)
    for name in ("exp", "tanh", "sin"):
        for kind, x in result.items():
            got = engine.pointwise(OPS[name], (x,))
            check(got, OPS[name].evaluate(x), f"{name}, {kind}")
            flat = engine.pointwise(OPS[name], (np.ascontiguousarray(x).reshape(-1),))
            assert np.array_equal(got.ravel(), flat), f"{name}, {kind}"
    for name in ("power", "multiply", "arctan2"):
        for (kind, x), (other, y) in itertools.product(result.items(), repeat=2):
            got = engine.pointwise(OPS[name], (x, y))
            check(got, OPS[name].evaluate(x, y), f"{name}, {kind} and {other}")
            whole = [np.ascontiguousarray(np.broadcast_to(v, got.shape)) for v in (x, y)]
            assert np.array_equal(got, engine.pointwise(OPS[name], tuple(whole)))


def test_equal_inputs_give_equal_outputs(engine: Any) -> None:
    for n in (1, 7, 15, 17, 1025, 100_003):
        got = engine.pointwise(OPS["exp"], (np.full(n, 0.7),))
        assert np.all(got == got[0])


def test_more_dims_and_order(engine: Any) -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(4, 5, 6, 7))
    for axes in itertools.permutations(range(4)):
        v = x.transpose(axes)
        got, expected = engine.pointwise(OPS["exp"], (v,)), np.exp(v)
        check(got, expected, str(axes))
        assert got.strides == expected.strides
        both = engine.pointwise(OPS["add"], (v, v))
        assert both.strides == (v + v).strides
        check(engine.pointwise(OPS["add"], (v, x[0, 0, 0, 0])), v + x[0, 0, 0, 0], "scalar")
    check(
        engine.pointwise(OPS["add"], (x[:, :1], x[2, :, :1])), x[:, :1] + x[2, :, :1], "broadcast"
    )
    assert engine.pointwise(OPS["add"], (x, 2.0)).flags.owndata


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", POINTWISE)
def test_fused_rules(engine: Any, name: str, dtype: type) -> None:
    op = OPS[name]
    rng = np.random.default_rng(5)
    ranges = [d if len(d) == 2 or d[2] != "bool" else (-1, 1) for d in op.samples]
    xs = operands_of(op, [rng.uniform(r[0], r[1], (5, 203)).astype(dtype) for r in ranges])
    out = op.evaluate(*xs)
    # Some operands are broadcast, and the cotangent of a sum has no strides.
    xs = (xs[0][:, :1], *xs[1:]) if len(xs) > 1 else xs
    out = op.evaluate(*xs)
    cotangents = [rng.normal(size=out.shape).astype(dtype), np.broadcast_to(dtype(0.5), out.shape)]
    for i, rule in enumerate(op.rules):
        if rule is None or op.derivative_expression(i).op == "var":
            continue
        plan = op.plan(1 << i)
        saved = tuple(v if want else None for v, want in zip((out, *xs), plan, strict=True))
        for g in cotangents:
            got = engine.derivative(op, i, g, saved)
            expected = rule(g, *saved)
            if got is NotImplemented:
                expr = op.derivative_expression(i)
                assert expr.op not in OPS, f"{name}: no kernel for rule {i}"
                continue
            # Rules subtract: what counts is the last place of the terms.
            scale = np.maximum(np.abs(expected), np.abs(g))
            assert got.dtype == expected.dtype
            assert got.shape == expected.shape
            assert np.all(np.abs(got - expected) <= 16 * np.finfo(dtype).eps * scale), (
                f"{name}, {i}"
            )


@pytest.mark.parametrize("exponent", [2, 3, 0.5, -1, 2.0, 1, 4, -2, 1.7, True])
def test_python_number_exponents(engine: Any, exponent: float) -> None:
    op = OPS["power"]
    for dtype in DTYPES:
        x = np.abs(special_values(dtype))
        x = np.concatenate([x, -x[:4], np.linspace(0.1, 9, 100, dtype=dtype)])
        g = np.linspace(-1, 1, x.size, dtype=dtype)
        with np.errstate(all="ignore"):
            got, expected = engine.pointwise(op, (x, exponent)), x**exponent
            if got is not NotImplemented:
                check(got, expected, f"power of {exponent}")
            got = engine.derivative(op, 0, g, (None, x, exponent))
            if got is not NotImplemented:
                check(got, op.rules[0](g, None, x, exponent), f"derivative of power {exponent}")


@pytest.mark.parametrize("dtype", DTYPES)
def test_numbers_are_weak(engine: Any, dtype: type) -> None:
    x = np.linspace(0.1, 2, 37, dtype=dtype)
    for number in (2, 0.1, -1.5, np.inf, True):
        for values in ((x, number), (number, x)):
            got = engine.pointwise(OPS["multiply"], values)
            if got is not NotImplemented:
                check(got, np.multiply(*values), str(number))
    strong = engine.pointwise(OPS["multiply"], (x, dtype(0.1)))
    check(strong, x * dtype(0.1), "scalar of the same dtype")


def test_refusals(engine: Any) -> None:
    """What is left to NumPy."""
    x = np.linspace(0.1, 1, 32)
    add, exp, total = OPS["add"], OPS["exp"], OPS["sum"]

    class Sub(np.ndarray):
        pass

    refused: list[Any] = [
        engine.pointwise(add, (x, x.astype(np.float32))),
        engine.pointwise(add, (x.astype(np.float32), np.float64(1))),
        engine.pointwise(add, (x.astype(np.float32), 1e300)),
        engine.pointwise(add, (x, 1 << 60)),
        engine.pointwise(add, (x, 1j)),
        engine.pointwise(add, (x, [1.0] * 32)),
        engine.pointwise(add, (x, np.ones(31))),
        engine.pointwise(exp, (x.view(Sub),)),
        engine.pointwise(exp, (x.astype(">f8"),)),
        engine.pointwise(exp, (x.astype(int),)),
        engine.pointwise(exp, (x.astype(object),)),
        engine.pointwise(exp, (x.astype(np.float16),)),
        engine.pointwise(exp, (np.float64(1),)),
        engine.pointwise(exp, (np.array(1.0),)),
        engine.pointwise(exp, (np.zeros(0),)),
        engine.pointwise(exp, (np.zeros((3, 0)),)),
        engine.call(total, (x,), {"dtype": np.float32}),
        engine.call(total, (np.zeros(0),), {}),
        engine.call(total, (x,), {"axis": 1}),
        engine.call(total, (x,), {"axis": (0, 0)}),
        engine.call(total, (x,), {"axis": ()}),
        engine.call(total, (x.astype(int),), {}),
        engine.call(OPS["cumsum"], (x,), {}),
    ]
    assert all(r is NotImplemented for r in refused), [r is NotImplemented for r in refused]


def test_warnings_are_numpys(engine: Any) -> None:
    x = np.array([0.0, 1.0, -1.0] * 20)
    divides = pytest.warns(RuntimeWarning, match="divide by zero encountered in divide")
    with divides, adarray.use(engine.name, cutoff=0):
        adarray.grad(lambda a: np.sum(1 / a))(x)
    assert engine.pointwise(OPS["log"], (x,)) is NotImplemented
    with np.errstate(all="ignore"):
        assert engine.pointwise(OPS["log"], (x,)) is not NotImplemented
    with np.errstate(all="raise"):
        assert engine.pointwise(OPS["divide"], (x, 0.0)) is NotImplemented
    # Vector functions raise flags for nothing; a masked softmax must not compute twice.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert engine.pointwise(OPS["exp"], (x,)) is not NotImplemented
        assert engine.pointwise(OPS["exp"], (np.where(x < 0, -np.inf, x),)) is not NotImplemented
        assert engine.pointwise(OPS["sin"], (x * 1e300,)) is not NotImplemented


REDUCED = [
    ((1000,), None), ((3, 4, 5), None), ((3, 4, 5), 0), ((3, 4, 5), 1), ((3, 4, 5), 2),
    ((3, 4, 5), (0, 2)), ((3, 4, 5), (-1, 1)), ((64, 100), 0), ((64, 100), 1), ((5000, 3), 0),
    ((3, 5000), 1), ((200, 7, 33), (0, 1)), ((200, 7, 33), (1,)), ((1, 300, 1), 1), ((40000,), 0),
    ((300, 700), None), ((2, 70000), 1), ((70000, 20), 0), ((2, 3, 4, 5, 6), (1, 3)),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "axis"), REDUCED)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(engine: Any, name: str, shape: Any, axis: Any, dtype: type) -> None:
    rng = np.random.default_rng(1)
    op = OPS[name]
    x = rng.normal(size=shape)
    x = (np.exp(x / np.sqrt(x.size)) if name == "prod" else x).astype(dtype)
    axes = range(x.ndim) if axis is None else np.atleast_1d(axis) % x.ndim
    if all(shape[a] == 1 for a in axes):
        pytest.skip("nothing is folded")
    views = [x, np.ascontiguousarray(x.T).T, x[::-1], np.repeat(x, 2, axis=-1)[..., ::2]]
    if x.ndim > 2:
        views.append(np.ascontiguousarray(np.moveaxis(x, 1, 0)).swapaxes(0, 1))
    for v in views:
        with np.errstate(all="ignore"):
            exact = op.evaluate(v.astype(np.longdouble), axis=axis)
            size = op.evaluate(np.abs(v.astype(np.longdouble)), axis=axis)
        for keepdims in (False, True):
            params = {"axis": axis, "keepdims": keepdims}
            with np.errstate(all="ignore"):
                got = engine.call(op, (v,), params)
                expected = op.evaluate(v, **params)
            assert type(got) is type(expected)
            assert got.shape == expected.shape
            assert got.dtype == expected.dtype
            if name in ("max", "min"):
                assert np.array_equal(got, expected)
                continue
            # The bound of pairwise summation, of what is folded without signs.
            steps = 48 + np.log2(v.size) if name != "prod" else 8 + 4 * np.sqrt(v.size)
            error = np.abs(np.reshape(got, np.shape(exact)) - exact)
            assert np.all(error <= steps * np.finfo(dtype).eps * np.abs(size))


@pytest.mark.parametrize("name", ["max", "min"])
def test_extrema_propagate_nan(engine: Any, name: str) -> None:
    for n in (5, 64, 3000):
        for place in (0, n // 2, n - 1):
            x = np.random.default_rng(0).normal(size=(n, 40))
            x[place, 7] = np.nan
            with np.errstate(all="ignore"):
                for axis in (None, 0, 1):
                    got = engine.call(OPS[name], (x,), {"axis": axis})
                    assert np.array_equal(got, OPS[name].evaluate(x, axis=axis), equal_nan=True)
                    edge = engine.call(OPS[name], (np.full((n, 2), -np.inf),), {"axis": axis})
                    assert np.all(edge == -np.inf)


def test_sums_are_as_accurate_as_numpys(engine: Any) -> None:
    rng = np.random.default_rng(0)
    ours, theirs = [], []
    for _ in range(20):
        x = rng.uniform(size=300_000).astype(np.float32)
        exact = np.sum(x, dtype=np.float64)
        ours.append(engine.call(OPS["sum"], (x,), {}) - exact)
        theirs.append(np.sum(x) - exact)
    assert np.std(ours) <= 1.5 * np.std(theirs)
    # Along the first axis NumPy adds row by row.
    tall = rng.uniform(size=(300_000, 20)).astype(np.float32)
    exact = np.sum(tall, axis=0, dtype=np.float64)
    assert np.all(np.abs(engine.call(OPS["sum"], (tall,), {"axis": 0}) - exact) < 1e-6 * exact)


def test_results_do_not_depend_on_threads() -> None:
    rng = np.random.default_rng(0)
    cases = [
        (rng.normal(size=s), a)
        for s, a in (((999_983,), None), ((70_001, 17), 0), ((9, 70_001), 1))
    ]
    x = rng.normal(size=100_003)
    serial = _engine("serial", cutoff=0)
    sums = [serial.call(OPS["sum"], (v,), {"axis": a}) for v, a in cases]
    values = serial.pointwise(OPS["tanh"], (x,))
    for threads in (1, 2, 3, 7):
        engine = _engine("openmp", cutoff=0, threads=threads)
        assert engine.threads == threads
        for (v, a), expected in zip(cases, sums, strict=True):
            assert np.array_equal(engine.call(OPS["sum"], (v,), {"axis": a}), expected)
        assert np.array_equal(engine.pointwise(OPS["tanh"], (x,)), values)

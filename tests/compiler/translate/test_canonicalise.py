"""From recorded calls to primitives: values, dtypes, and what is left to NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from recorded import agrees, close, recorded

import adarray
from adarray.base.op import OPS
from adarray.base.recording import Call, Symbol, as_number
from adarray.compiler.ir.builder import Builder
from adarray.compiler.ir.interpret import interpret
from adarray.compiler.ir.primitives import Matmul, PythonCall, mnemonic
from adarray.compiler.scalars import catalogue
from adarray.compiler.translate import RECORDS
from adarray.compiler.translate.canonicalise import canonicalise

RNG = np.random.default_rng(5)
X, V, U = RNG.normal(size=(4, 5)), RNG.normal(size=5), RNG.normal(size=4)
K = np.array([2, 0, 1, 3])
ORDER = np.argsort(X, axis=1)


def _set(index, value):
    def f(x, v):
        y = x.copy()
        y[index] = value
        return y

    return f


def _write_through(view, index=Ellipsis):
    def f(x, v):
        y = x * 1.0
        view(y)[index] = 7.0
        return y

    return f


def _add_at(x, v):
    y = x.copy()
    np.add.at(y, (K % 4, slice(None)), 1.5)
    return y


def _masked(x, v):
    y = x.copy()
    y[y > 0] = -1.0
    return y


FUNCTIONS = {
    "operators": lambda x, v: (-x + v) * 2 - v / 3 + x**2 + np.abs(x) ** 1.5 + abs(x) ** -1,
    "comparisons": lambda x, v: ((x > v) & (x <= 1)) | ~(x != 0) ^ (v < 0),
    "remainders": lambda x, v: x % 2 + x // 0.5 + np.fmod(x, v),
    "exponentials": lambda x, v: np.exp(x) + np.expm1(x) + np.log1p(x * x) + np.exp2(v),
    "rounding": lambda x, v: np.floor(x) + np.ceil(x) + np.trunc(x) + np.rint(x) + np.round(x, 2),
    "signs": lambda x, v: np.sign(x) + np.copysign(x, v) + np.signbit(x) + np.heaviside(x, 0.5),
    "parts": lambda x, v: np.modf(x * 3)[0] + np.divmod(x, 2)[1],
    "choices": lambda x, v: np.where(x > 0, x, v) + np.maximum(x, v) + np.fmin(x, v),
    "clip": lambda x, v: np.clip(x, -1, 1) + np.clip(x, None, 0) + x.clip(0.1) + np.nan_to_num(x),
    "select": lambda x, v: np.select([x > 1, x > 0], [x, x * 2], 0.5),
    "sums": lambda x, v: x.sum() + x.sum(0) + x.sum(axis=1, keepdims=True) + np.prod(v),
    "moments": lambda x, v: x.mean() + x.var(axis=0) + np.std(x, axis=1, keepdims=True, ddof=1),
    "extrema": lambda x, v: x.max() - x.min(axis=0) + np.ptp(x) + np.max(x, initial=0.3),
    "truths": lambda x, v: np.any(x > 1, axis=0) | np.all(x > -5) | (np.count_nonzero(x > 0) > 3),
    "counts": lambda x, v: np.sum(x > 0, axis=1) + np.count_nonzero(x > 0),
    "masked sums": lambda x, v: np.sum(x, where=x > 0) + np.mean(x, axis=0, where=x > -9),
    "holes": lambda x, v: np.nansum(x) + np.nanmean(x, axis=0) + np.nanmax(x) + np.nanmin(x),
    "norms": lambda x, v: (
        np.linalg.norm(x) + np.linalg.norm(x, axis=1).sum() + np.linalg.norm(v, 1)
    ),
    "log-sum-exp": lambda x, v: np.logaddexp.reduce(x, axis=1).sum() + np.logaddexp(x, v),
    "running": lambda x, v: np.cumsum(x, axis=1) + np.cumprod(v) + np.maximum.accumulate(x),
    "positions": lambda x, v: np.argmax(x, axis=1) + np.argmin(v) + x.argmax(),
    "positions of a number": lambda x, v: (
        np.argmax(x[0, 0], axis=0), np.argmin(v.sum(), -1, keepdims=True),
    ),
    "close": lambda x, v: np.isclose(x, v) | np.allclose(x, x) | np.array_equal(x, v),
    "reductions of ufuncs": lambda x, v: np.add.reduce(x, axis=1).sum() + np.multiply.reduce(v),
    "matrix products": lambda x, v: (x @ v, v @ x.T, x @ x.T, v @ v, np.dot(x, v), x.T.dot(x)),
    "stacks": lambda x, v: np.ones((2, 3, 4)) @ x + (x.reshape(2, 2, 5) @ np.ones((5, 5)))[:, :1],
    "contractions": lambda x, v: (np.inner(x, v), np.outer(v, v), np.vdot(x, x), np.vecdot(x, v)),
    "tensordot": lambda x, v: np.tensordot(x, x, ([0], [0])) + np.tensordot(v, v, 0),
    "einsum": lambda x, v: (
        np.einsum("ij,j->i", x, v), np.einsum("ij,kj->ki", x, x), np.einsum("ij,ij,j->", x, x, v),
        np.einsum("ij->ji", x), np.einsum("ii->i", x[:, :4]), np.einsum("ij,jk,k->ik", x.T, x, v),
    ),
    "shapes": lambda x, v: (x.T.ravel(), x.reshape(2, 10), x[None], np.squeeze(x[:1]), x.T[::-1]),
    "fortran": lambda x, v: x.reshape(5, 4, order="F") + np.ravel(x, order="F")[:4],
    "axes": lambda x, v: np.moveaxis(x.reshape(2, 2, 5), 0, -1) + np.swapaxes(x, 0, 1)[:, :2],
    "looks": lambda x, v: (np.diagonal(x, 1), np.rot90(x), np.flip(x), np.broadcast_to(v, (2, 5))),
    "windows": lambda x, v: np.lib.stride_tricks.sliding_window_view(v, 3).sum(-1),
    "joins": lambda x, v: (np.concatenate([x, x * 2], 1), np.stack([v, v]), np.vstack([v, x])),
    "hstack": lambda x, v: np.hstack([v, v * 2]) + np.append(v, v),
    "repeats": lambda x, v: (
        (np.tile(v, (2, 2)), np.repeat(x, 2, axis=1), np.repeat(v, [0, 2, 1, 1, 0]))
    ),
    "rolls": lambda x, v: np.roll(x, 1, 0) + np.roll(x, (1, -2), (0, 1)) + np.roll(x, 3),
    "pads": lambda x, v: (
        (np.pad(x, 1), np.pad(v, (1, 2), constant_values=3.0), np.pad(x, 2, "wrap"))
    ),
    "triangles": lambda x, v: np.tril(x) + np.triu(x, 1) + np.triu(v)[:4],
    "differences": lambda x, v: np.diff(x, axis=0).sum() + np.diff(v, 2),
    "slices": lambda x, v: x[1:3, ::2] + x[::-2, -3:] + x[1, 2] + x[..., 0][:2, None],
    "fancy": lambda x, v: (x[K], x[:, K], x[K, 1:], x[1:, [0, 2], None], x[np.ix_([0, 3], [1, 2])]),
    "pairs": lambda x, v: x[np.arange(4), K] + x[K, [0, 1, 2, 3]] + x[K, 0] + x[-1, K],
    "apart": lambda x, v: x.reshape(2, 2, 5)[[0, 1], :, [3, 4]] + x.reshape(2, 2, 5)[0, :, K[:2]],
    "takes": lambda x, v: np.take(x, [0, 4], axis=1) + np.take_along_axis(x, ORDER, 1)[:, :2],
    "writes": _set((slice(1, 3), 0), 7.0),
    "writes backwards": _set((slice(None, None, -2), slice(3, 1, -1)), np.ones(2)),
    "writes all": _set(Ellipsis, 2.0),
    "writes rows": _set([2, 0], np.arange(5.0)),
    "writes pairs": _set(([2, 0, 2], [1, 1, 1]), np.arange(3.0)),
    "writes parts": _set((slice(1, None), [0, 2]), 5.0),
    "writes new axes": _set((None, slice(2)), 4.0),
    "writes through a transpose": _write_through(lambda y: y.T, (slice(1, 3), 0)),
    "writes through slices": _write_through(lambda y: y[::2][:, 1:], (1, slice(None, None, -1))),
    "writes through a reshape": _write_through(lambda y: y.reshape(2, 10), (1, slice(2, 7))),
    "writes pairs through a view": _write_through(lambda y: y.T, ([0, 2], [1, 3])),
    "writes on a diagonal": _write_through(lambda y: np.einsum("ii->i", y[:, :4])),
    "writes where": _masked,
    "adds at": _add_at,
    "made arrays": lambda x, v: (
        np.zeros_like(x) + np.ones((4, 5)) * v + np.arange(5) + np.full(5, 2)
    ),
    "casts": lambda x, v: x.astype(np.float32).astype(np.int64) + (x > 0).astype(np.int32),
    "pieces": lambda x, v: np.array([v[0], v[1] * 2, 3.0]) + np.split(x, 2)[0][0, :3],
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("optimised", [False, True])
def test_values_and_dtypes(name, dtype, optimised):
    """Everything here becomes primitives, and they compute what NumPy does."""
    r = recorded(FUNCTIONS[name], X.astype(dtype), V.astype(dtype), optimised=optimised)
    agrees(r)
    assert r.functions() == []


SMOOTH = [
    "operators", "exponentials", "choices", "clip", "sums", "moments", "extrema", "norms",
    "log-sum-exp", "matrix products", "stacks", "contractions", "tensordot", "einsum",
    "shapes", "fortran", "axes", "looks", "windows", "joins", "repeats", "rolls", "pads",
    "triangles", "slices", "fancy", "pairs", "apart", "takes", "writes", "writes rows",
    "writes through a transpose", "writes pairs through a view", "writes where", "adds at",
]  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("optimised", [False, True])
def test_half_precision(name, optimised):
    """Sums are rounded when they are complete, by NumPy on the way."""
    args = X.astype(np.float16), V.astype(np.float16)
    r = recorded(FUNCTIONS[name], *args, optimised=optimised)
    results = interpret(r.program, [np.asarray(a) for a in r.arrays])
    for got, expected in zip(results, r.leaves, strict=True):
        close(np.asarray(got), expected, 8e-3)
    assert r.functions() == []


def _total(results):
    parts = results if isinstance(results, tuple) else (results,)
    return sum(np.sum(np.cos(p)) for p in parts)


@pytest.mark.parametrize("name", SMOOTH)
def test_gradients(name):
    """The backward pass is a part of the recording; it too becomes primitives."""
    f = adarray.value_and_grad(lambda x, v: _total(FUNCTIONS[name](x, v)), argnums=(0, 1))
    r = recorded(f, X, V)
    agrees(r, rtol=1e-10)
    assert r.functions() == []


INTEGERS = {
    "arithmetic": lambda a, b: a + b * 3 - a * a,
    "division": lambda a, b: a / b,
    "floor division": lambda a, b: a // b + a % b,
    "powers": lambda a, b: a**2 + b**3,
    "bits": lambda a, b: (a & b) | (a ^ 3) + (~a) + (a << 1) + (b >> 1),
    "sums": lambda a, b: np.sum(a) + np.max(a) + np.sum(a > 2),
    "means": lambda a, b: np.mean(a) + np.std(b),
    "comparisons": lambda a, b: (a < b) & (a != 3),
    "functions": lambda a, b: np.sin(a) + np.sqrt(b),
    "no change": lambda a, b: np.floor(a) + np.sign(b) + abs(-b) + np.isnan(a),
    "running": lambda a, b: np.cumsum(a) + np.cumsum(b),
}


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("dtypes", ["ii", "hl", "BB", "Bh", "lL"])
def test_integers(name, dtypes):
    """NumPy's loops decide: small integers divide as float64, and sum as int64."""
    if name == "bits" and "L" in dtypes:
        pytest.skip("NumPy has no common integer")
    if name == "comparisons" and "L" in dtypes:
        pytest.skip("NumPy has loops of its own for mixed signs")
    one, two = (np.array([1, 5, 2, 7], d) for d in dtypes)
    r = recorded(INTEGERS[name], one, two)
    agrees(r, rtol=1e-3 if name == "functions" and "B" in dtypes else 1e-12)  # in float16
    assert r.functions() == []


def test_truth_values():
    a, b = np.array([True, False, True]), np.array([True, True, False])
    r = recorded(lambda a, b: ((a & b) | ~a, a + b, a * b, a ^ b, np.maximum(a, b), a.sum()), a, b)
    agrees(r)
    assert r.functions() == []


def test_numbers_yield_to_arrays():
    """A Python number that is an input keeps float32 arrays in float32."""
    x = X.astype(np.float32)
    r = recorded(lambda x, t, k: (x * t + k, t * 2, np.full(3, t), np.linspace(0, t, 4)), x, 0.5, 3)
    agrees(r)
    assert r.leaves[0].dtype == np.float32


def test_what_kernels_do_not_compute_is_called():
    z = X + 1j
    r = recorded(lambda z: np.log(z) * 2, z)
    agrees(r)
    assert r.functions() == ["log"]
    r = recorded(lambda x: np.linalg.inv(x[:, :4]) @ np.sort(x[:, 4]), X)
    agrees(r)
    assert sorted(r.functions()) == ["inv", "sort"]


def test_several_results():
    r = recorded(lambda x: np.linalg.eigh(x @ x.T), X)
    agrees(r, rtol=1e-8)
    assert r.kinds().count("call_result") == 2
    assert r.kinds().count("python_call") == 1


def test_uniform_arrays_and_ranges_hold_no_memory():
    def f(v):
        return v + np.zeros(5) + np.arange(5) + np.arange(3, 13, 2) + np.full((6, 5), 2.5)

    r = recorded(f, V)
    agrees(r)
    assert "constant_array" not in r.kinds()


def test_indices_known_at_run_time():
    def f(x, k, i):
        y = x.copy()
        y[k, i] = 0.0
        return x[k], x[:, i], x[k, i], y, np.take(x, k, axis=0)

    r = recorded(f, X, K, np.array([0, 4, 1, -1]))
    agrees(r)
    assert r.functions() == []
    first = r.program
    other = [X * 2, K[::-1].copy(), np.array([1, 1, -2, 3])]
    expected = f(*other)
    for got, want in zip(interpret(first, other), expected, strict=True):
        np.testing.assert_array_equal(got, want)


def test_contractions_of_three_take_the_cheap_way():
    x, y, z = X[:, :3].copy(), RNG.normal(size=(3, 40)), RNG.normal(size=40)
    r = recorded(lambda x, y, z: np.einsum("ij,jk,k->i", x, y, z), x, y, z)
    agrees(r)
    dots = [v for v in r.program.values if isinstance(v.primitive, Matmul)]
    assert [v.shape for v in dots] == [(3,), (4,)]


def test_constant_masks():
    x, y = Symbol((4,), "float64"), Symbol((2,), "float64")
    mask = np.array([False, True, False, True])
    program = canonicalise([Call(OPS["getitem"], None, (x,), {"index": mask}, (y,))], [x], [y])
    assert [mnemonic(v.primitive) for v in program.values] == [
        "program_input",
        "constant_array",
        "gather_nd",
    ]
    np.testing.assert_array_equal(interpret(program, [np.arange(4.0)])[0], [1, 3])


def test_strides_of_inputs():
    r = recorded(lambda x: x.sum(axis=0) * 2, X.T[::-1])
    assert r.program.inputs[0].primitive.strides == (-1, 5)
    agrees(r)


def test_a_result_that_does_not_fit_is_called():
    """What a lowering makes is used only if it is what was recorded."""
    x, y = Symbol((3,), "float64"), Symbol((3,), "float32")
    call = Call(None, lambda x: np.sin(x).astype("f4"), (x,), {}, (y,))
    assert isinstance(canonicalise([call], [x], [y]).values[-1].primitive, PythonCall)
    odd = Call(None, np.sin, (x,), {}, (y,))
    assert isinstance(canonicalise([odd], [x], [y]).values[-1].primitive, PythonCall)


def test_symbols_inside_of_arguments():
    x, i, y = Symbol((3,), "float64"), Symbol((2,), "int64"), Symbol((2,), "float64")

    def f(arrays, *, options):
        return arrays[0][options["at"]]

    call = Call(None, f, ([x, 1],), {"options": {"at": i}}, (y,))
    program = canonicalise([call], [x, i], [y])
    (got,) = interpret(program, [np.arange(3.0), np.array([2, 0])])
    np.testing.assert_array_equal(got, [2.0, 0.0])


def test_a_python_number_is_its_value():
    x, n, y = Symbol((), "float32"), Symbol((), "float64", weak=True), Symbol((3,), "float32")
    events = [
        Call(None, as_number, (x,), {}, (n,)),
        Call(None, np.multiply, (n, np.ones(3, "f4")), {}, (y,)),
    ]
    (got,) = interpret(canonicalise(events, [x], [y]), [np.float32(2)])
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, [2, 2, 2])


def test_plain_results():
    x = Symbol((2,), "float64")
    program = canonicalise([], [x], [x, 3.0, np.arange(2)])
    got = interpret(program, [np.ones(2)])
    np.testing.assert_array_equal(got[0], [1, 1])
    assert got[1] == 3.0
    np.testing.assert_array_equal(got[2], [0, 1])


def test_only_constants_that_are_read_become_values(monkeypatch):
    """A path has the constants of all its segments, whose arrays would be copied for each."""
    made = []
    array = Builder.array
    monkeypatch.setattr(Builder, "array", lambda b, x: made.append(x.shape) or array(b, x))
    x, y, z = (Symbol((n,), "float64") for n in (3, 3, 6))
    a, b, unread, d = (Symbol((n,), "float64") for n in (3, 3, 4, 5))
    constants = {s: np.arange(s.shape[0]) + 0.5 for s in (a, b, unread, d)}
    events = [
        Call(None, np.multiply, (x, a), {}, (y,)),
        Call(None, np.concatenate, ([y, b],), {"axis": 0}, (z,)),
    ]
    program = canonicalise(events, [x], [y, d], constants=constants)
    assert made == [(3,), (3,), (5,)]
    got = interpret(program, [np.ones(3)])
    np.testing.assert_array_equal(got[0], [0.5, 1.5, 2.5])
    np.testing.assert_array_equal(got[1], np.arange(5) + 0.5)


SPECIAL = np.array([0, -0.0, 1, -1, 0.5, 0.3, 0.31, 30, -800, 800, np.inf, -np.inf, np.nan, 1e-30])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    "name",
    [
        "expit", "log_expit", "logit", "xlogy", "xlog1py", "entr", "ndtr",
        *(n for n in catalogue.FUNCTIONS if f"special.{n}" in RECORDS),
    ],
)  # fmt: skip
def test_functions_of_scipy(name, dtype):
    special = pytest.importorskip("scipy.special")
    f = getattr(special, name)
    args = [SPECIAL.astype(dtype), np.roll(SPECIAL, 5).astype(dtype)][: f.nin]
    with np.errstate(all="ignore"):
        r = recorded(f, *args)
        agrees(r)
    assert r.functions() == []


def test_gradients_of_functions_of_scipy():
    special = pytest.importorskip("scipy.special")

    def f(x):
        rows = special.softmax(x, axis=1) + special.log_softmax(x, axis=0)
        return np.sum(rows**2) + np.sum(special.logsumexp(x, axis=1)) + special.logsumexp(x)

    r = recorded(adarray.value_and_grad(f), X)
    agrees(r)
    assert r.functions() == []


@pytest.mark.parametrize("side", ["left", "right"])
def test_places_among_few_sorted_numbers(side):
    edges = np.array([-1.0, 0.0, 0.0, 2.0, np.nan])
    x = np.concatenate([edges, [-3.0, 0.5, 7.0, -np.inf, np.inf]])
    r = recorded(lambda x: np.searchsorted(edges, x, side), x)
    agrees(r)
    assert r.functions() == []


def test_sums_by_bin():
    w, at, y = Symbol((5,), "float32"), Symbol((5,), "int64"), Symbol((3,), "float32")
    call = Call(OPS["sums_by_bin"], None, (w,), {"places": at, "n": 3}, (y,))
    program = canonicalise([call], [w, at], [y])
    assert all(not isinstance(v.primitive, PythonCall) for v in program.values)
    args = [np.arange(1, 6, dtype="f4"), np.array([0, 2, 3, 0, 2])]
    (got,) = interpret(program, args)
    np.testing.assert_array_equal(got, OPS["sums_by_bin"].evaluate(args[0], args[1], 3))
    assert got.dtype == np.float32

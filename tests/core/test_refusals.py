"""A traced value never leaves the graph unseen; bad input gets an error that says what to do."""

from __future__ import annotations

import math
import pickle
import re

import numpy as np
import pytest

import adarray
from adarray import DTypeError, NotDifferentiableError, ShapeError, TraceError

X = np.linspace(0.1, 1.0, 5)


def gradient(f):
    return adarray.grad(f, intercept=False)(X.copy())


LEAVES = ": a traced value would leave the graph, and its gradient would be lost; "
EXIT = ", or take adarray.value_of(x) to leave the graph on purpose"
BUFFER = (
    "make the array with np.zeros_like(x) or another function of a traced array, "
    "or write `y = y + x` in place of `y += x`"
)


@pytest.mark.parametrize(
    ("f", "message"),
    [
        (
            lambda x: float(x[0]),
            "float" + LEAVES + "use np functions in place of float() and math.*",
        ),
        (lambda x: math.exp(x[0]), "float" + LEAVES),
        (lambda x: int(x[0]), "int" + LEAVES + "use np functions in place of int()"),
        (lambda x: complex(x[0]), "complex" + LEAVES),
        (lambda x: np.asarray(x).sum(), "np.asarray" + LEAVES + "keep it an ADArray"),
        (lambda x: np.array([x[0], 1.0]).sum(), "np.asarray" + LEAVES),
        (lambda x: x.tolist()[0], "tolist" + LEAVES + "index the array instead"),
        (lambda x: np.ones((5, 5)).dot(x).sum(), "np.asarray" + LEAVES),
        (lambda x: np.copyto(np.zeros(5), x), "copyto into a plain ndarray of shape (5,)" + LEAVES),
        (
            lambda x: np.put(np.zeros(5), [0], x[0]),
            "put into a plain ndarray of shape (5,)" + LEAVES,
        ),
        (lambda x: np.place(np.zeros(5), [True] * 5, x), "place into a plain ndarray"),
        (lambda x: np.putmask(np.zeros(5), [True] * 5, x), "putmask into a plain ndarray"),
        (lambda x: np.fill_diagonal(np.zeros((5, 5)), x), "np.asarray" + LEAVES),
        (lambda x: np.add.at(np.zeros(5), [0], x[0]), "add.at into a plain ndarray"),
    ],
)
def test_ways_out_of_the_graph(f, message):
    with pytest.raises(TraceError, match=re.escape(message)) as caught:
        gradient(f)
    # The message ends with the place in the user's code: here, the line of the lambda above.
    code = f.__code__
    line = caught.value.lineno
    place = f" (in {code.co_name}, file {code.co_filename}, line {line})"
    assert str(caught.value).endswith(EXIT + place)
    assert caught.value.filename == __file__
    assert line in {n for *_, n in code.co_lines()}


def test_trace_errors_survive_pickling():
    with pytest.raises(TraceError) as caught:
        gradient(lambda x: float(x[0]))
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value)
    assert again.lineno == caught.value.lineno


def _write_item(x):
    buf = np.zeros(5)
    buf[0] = x[0]
    return buf.sum()


def _write_slice(x):
    buf = np.zeros(5)
    buf[:] = x
    return buf.sum()


@pytest.mark.parametrize("f", [_write_item, _write_slice])
def test_writing_into_a_plain_array(f):
    with pytest.raises((TraceError, ValueError)) as caught:
        gradient(f)
    error = caught.value
    assert isinstance(error, TraceError) or isinstance(error.__cause__, TraceError)


def _two_holders(x):
    acc = np.zeros(5)
    other = acc
    acc += x
    return other.sum()


def _in_a_list(x):
    store = [np.zeros(5)]
    store[0] += x
    return store[0].sum()


def _attribute(x):
    class Holder:
        pass

    holder = Holder()
    holder.acc = np.zeros(5)
    holder.acc += x
    return holder.acc.sum()


def _row_of_a_buffer(x):
    acc = np.zeros((5, 5))
    acc[0] += x
    return acc.sum()


def _explicit_out(x):
    acc = np.zeros(5)
    np.add(acc, x, out=acc)
    return acc.sum()


def _view(x):
    base = np.zeros(10)
    acc = base[:5]
    acc += x
    return base.sum()


def _global(x):
    global _ACC
    _ACC = np.zeros(5)
    alias = _ACC
    _ACC += x
    return alias.sum()


@pytest.mark.parametrize(
    "f",
    [_two_holders, _in_a_list, _attribute, _row_of_a_buffer, _explicit_out, _view, _global],
    ids=lambda f: f.__name__,
)
def test_plain_out_is_refused_in_doubt(f):
    with pytest.raises(TraceError, match="into a plain ndarray of shape") as caught:
        gradient(f)
    assert BUFFER in str(caught.value)


def _accumulate_local(x):
    acc = np.zeros(5)
    acc += x
    return acc.sum()


def _accumulate_nested(x):
    acc = np.zeros(5)

    def inner():
        nonlocal acc
        acc += x
        return acc.sum()

    return inner()


def _accumulate_global(x):
    exec("acc = np.zeros(5)\nacc += x\nresult = acc.sum()", space := {"np": np, "x": x})
    return space["result"]


@pytest.mark.parametrize("f", [_accumulate_local, _accumulate_nested, _accumulate_global])
def test_plain_accumulator_with_one_holder(f):
    np.testing.assert_array_equal(gradient(f), np.ones(5))


def test_untraced_arrays_convert_freely():
    x = adarray.array([1.0, 2.0])
    assert float(x[0]) == 1.0
    assert int(x[1]) == 2
    assert math.exp(x[0]) == math.exp(1.0)
    np.testing.assert_array_equal(np.asarray(x), [1.0, 2.0])
    buf = np.zeros(2)
    buf[:] = x
    buf += x
    np.testing.assert_array_equal(buf, [2.0, 4.0])
    assert type(buf) is np.ndarray
    np.add(x, 1.0, out=buf)
    np.testing.assert_array_equal(buf, [2.0, 3.0])


def test_values_of_traced_arrays_steer_python():
    def f(x):
        if x[0] > 0 and np.argmax(x) == 4 and bool(x.any()):
            return x[int(np.argsort(x)[-1])] * len(x)
        return x.sum()

    np.testing.assert_array_equal(gradient(f), [0, 0, 0, 0, 5])


@pytest.mark.parametrize(
    ("f", "error", "message"),
    [
        (
            lambda x: x * 2,
            ShapeError,
            "grad: the function returned shape (5,), not a scalar; reduce it (for instance with "
            "np.sum), or use adarray.jacobian or adarray.vjp",
        ),
        (
            lambda x: (x.sum(), 1),
            TypeError,
            "grad: the function returned a tuple, not a number; return one scalar (with "
            "has_aux=True, a pair of it and anything else)",
        ),
        (
            lambda x: np.frompyfunc(abs, 1, 1)(x).sum(),
            NotDifferentiableError,
            "abs (vectorized): adarray has no derivative rule for this function; write it with "
            "other NumPy functions, or pass adarray.value_of(x) if no gradient should flow "
            "through it",
        ),
        (
            lambda x: (x + np.ones(4)).sum(),
            ShapeError,
            "add: operands 0 and 1 have shapes (5,) and (4,), which do not broadcast; "
            "reshape one of them",
        ),
        (
            lambda x: (x @ np.ones((4, 2))).sum(),
            ShapeError,
            "matmul: operands 0 and 1 have shapes (5,) and (4, 2): ",
        ),
        (
            lambda x: x.reshape(2, 3).sum(),
            ShapeError,
            "reshape: the operand has shape (5,): cannot reshape array of size 5 into shape (2,3)",
        ),
        (
            lambda x: np.sum(x * np.arange(5).astype(object)),
            DTypeError,
            "an operand is an array of objects",
        ),
    ],
)
def test_error_texts(f, error, message):
    with pytest.raises(error, match=re.escape(message)):
        gradient(f)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: adarray.grad(np.sum)(np.arange(3)),
            DTypeError,
            "grad: argument 0: has non-floating dtype int64, which has no real derivative here; "
            "pass floating point, for instance x.astype(float) or 3.0 for 3",
        ),
        (lambda: adarray.grad(np.sum)("a"), DTypeError, "grad: argument 0: is a str"),
        (lambda: adarray.grad(3), TypeError, "grad: expected a function, got int"),
        (
            lambda: adarray.grad(np.sin, argnums=1)(1.0),
            TypeError,
            "grad: argnums=1, but the function got 1 positional arguments",
        ),
        (lambda: adarray.grad(np.add, argnums=(0, -2))(1.0, 2.0), TypeError, "twice"),
        (
            lambda: adarray.jvp(np.sin, (np.ones(3),), (np.ones(2),)),
            ShapeError,
            "jvp: primals[0]: the tangent has shape (2,) and its primal (3,); they must be equal",
        ),
        (
            lambda: adarray.jvp(np.sin, (1.0,), ()),
            ShapeError,
            "jvp: primals hold 1 arrays and tangents 0; their structures must be equal",
        ),
        (
            lambda: adarray.vjp(np.sin, np.ones(3))[1](np.ones(2)),
            ShapeError,
            "vjp: the cotangent has shapes [(2,)] and the result [(3,)]; they must be equal",
        ),
        (
            lambda: adarray.value_and_grad(np.sum, has_aux=True)(np.ones(2)),
            TypeError,
            "value_and_grad: has_aux=True, but the function returned",
        ),
        (
            lambda: adarray.jacobian(np.sin, mode="both"),
            ValueError,
            "jacobian: mode 'both'; one of 'auto', 'forward', 'reverse'",
        ),
        (
            lambda: adarray.array([1, 2], requires_grad=True),
            DTypeError,
            "array: requires_grad=True needs a floating or complex dtype, got int64; "
            "pass dtype=float",
        ),
        (
            lambda: adarray.array([1.0]).backward(),
            TraceError,
            "backward: the array does not depend on a leaf",
        ),
    ],
)
def test_bad_calls(call, error, message):
    with pytest.raises(error, match=re.escape(message)):
        call()

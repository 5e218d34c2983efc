"""Padding, windows, inserting, joining and splitting, with all their arguments."""

import numpy as np
import pytest

import adarray
import adarray.numpy
from adarray.errors import NotDifferentiableError, TraceError
from adarray.ops.borrow import borrowed
from adarray.testing import check_grads

RNG = np.random.default_rng(5)
X = RNG.normal(size=(3, 4))
V = RNG.normal(size=5)


def same(f, *args, order=2):
    """Check values, shapes and dtypes against NumPy's, then derivatives."""
    got, _ = adarray.vjp(f, *args)
    want = f(*args)
    got, want = (x if isinstance(x, (list, tuple)) else (x,) for x in (got, want))
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        assert np.asarray(a).dtype == np.asarray(b).dtype
        np.testing.assert_allclose(np.asarray(a), b, rtol=1e-14, atol=1e-15)
    check_grads(f, args, order=order)


# -- padding ---------------------------------------------------------------------------------

PADS = {
    "constant": {},
    "constant_values": {"mode": "constant", "constant_values": ((1.0, 2.0), (3.0, 4.0))},
    "edge": {},
    "linear_ramp": {},
    "end_values": {"mode": "linear_ramp", "end_values": (1.0, -2.0)},
    "maximum": {},
    "maximum of some": {"mode": "maximum", "stat_length": 2},
    "mean": {},
    "mean of some": {"mode": "mean", "stat_length": ((1, 2), (2, 1))},
    "median": {},
    "minimum": {},
    "reflect": {},
    "reflect odd": {"mode": "reflect", "reflect_type": "odd"},
    "symmetric": {},
    "symmetric odd": {"mode": "symmetric", "reflect_type": "odd"},
    "wrap": {},
}


@pytest.mark.parametrize("name", PADS)
@pytest.mark.parametrize("width", [2, ((1, 0), (0, 5)), (0, 3)])
def test_pad(name, width):
    kwargs = {"mode": name, **PADS[name]}
    same(lambda x: np.pad(x, width, **kwargs), X)


def test_pad_with_traced_values():
    same(lambda x, c: np.pad(x, 2, constant_values=c), X, 0.5)
    same(
        lambda x, c: np.pad(x, ((1, 2), (2, 0)), constant_values=c), X, np.array([[1.0, 2], [3, 4]])
    )
    same(lambda x, c: np.pad(x, 2, "linear_ramp", end_values=c), X, np.array([1.0, 2.0]))
    grad = adarray.grad(lambda c: np.sum(np.pad(adarray.array(X), 1, constant_values=c)))(2.0)
    assert grad == 5 * 6 - X.size


def test_pad_by_a_function():
    def scaled(vector, widths, axis, kwargs):
        vector[: widths[0]] = kwargs["by"] * vector[widths[0]]
        vector[-widths[1] :] = axis

    same(lambda x: np.pad(x, 2, scaled, by=3.0), X)


@pytest.mark.parametrize(
    ("width", "kwargs"),
    [
        (2, {"mode": "nothing"}),
        (2, {"mode": "constant", "stat_length": 3}),
        (2, {"mode": "edge", "end_values": 3}),
        (-1, {}),
        (1.5, {}),
        (((1, 2), (3, 4), (5, 6)), {}),
    ],
)
def test_pad_raises_numpys_errors(width, kwargs):
    with pytest.raises((ValueError, TypeError)) as want:
        np.pad(X, width, **kwargs)
    with pytest.raises(type(want.value)) as got:
        adarray.vjp(lambda x: np.pad(x, width, **kwargs), X)
    assert str(want.value) in str(got.value)


# -- windows ---------------------------------------------------------------------------------


def test_sliding_windows_of_a_convolution():
    weights = np.array([1.0, -2.0, 0.5])
    windows = np.lib.stride_tricks.sliding_window_view
    same(lambda x, w: windows(x, 3) @ w, V, weights)
    grad = adarray.grad(lambda x: np.sum((windows(x, 3) @ weights) ** 2))(V)
    other = adarray.grad(lambda x: np.sum(np.convolve(x, weights[::-1], "valid") ** 2))(V)
    np.testing.assert_allclose(grad, other)


def test_sliding_windows_follow_their_base_and_are_read_only():
    windows = np.lib.stride_tricks.sliding_window_view

    def f(x):
        x = x * 1.0
        seen = windows(x, 2)
        x[0] = x[1] ** 2
        return np.sum(seen * [[1.0, 10.0]])

    same(f, V)
    with pytest.raises(ValueError, match="assignment destination is read-only"):
        adarray.vjp(lambda x: windows(x, 2).__setitem__(0, 1.0), V)
    with pytest.raises(NotDifferentiableError, match="sliding_window_view: the argument writeable"):
        adarray.vjp(lambda x: windows(x, 2, writeable=True), V)


def test_as_strided_is_refused():
    strided = np.lib.stride_tricks.as_strided
    with pytest.raises(TraceError, match=r"np\.asarray: a traced value would leave the graph"):
        adarray.vjp(lambda x: strided(x, (2, 2), (8, 8)), V, intercept=False)
    with pytest.raises(NotDifferentiableError) as error:
        adarray.vjp(lambda x: borrowed(strided)(x, (2, 2), (8, 8)), V)
    assert str(error.value).startswith(
        "as_strided: operand 0 is traced, and strides of memory do not say which elements they "
        "reach; use np.lib.stride_tricks.sliding_window_view, np.broadcast_to or indexing"
    )
    with pytest.raises(NotDifferentiableError, match="as_strided: operand 0 is traced"):
        adarray.vjp(lambda x: adarray.numpy.lib.stride_tricks.as_strided(x, (2, 2), (8, 8)), V)
    np.testing.assert_array_equal(borrowed(strided)(V, (2, 2), (8, 8)), strided(V, (2, 2), (8, 8)))


# -- inserting and deleting ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "values", "axis"),
    [
        (1, 2.0, None),
        (1, np.arange(3.0), 1),
        ([1, 3], 7.0, 1),
        ([0, 2], np.arange(4.0), 0),
        (slice(0, 3, 2), np.ones((2, 4)), 0),
        (np.array([0, 2]), np.ones((2, 4)), 0),
        (-1, 1.5, 1),
        ([], np.zeros(0), None),
    ],
)
def test_insert(where, values, axis):
    same(lambda x, v: np.insert(x, where, v, axis), X, values)
    same(lambda x: np.insert(x, where, values, axis), X)
    same(lambda v: np.insert(X, where, v, axis), values)


@pytest.mark.parametrize(
    ("where", "axis"),
    [
        (1, None),
        (-1, 0),
        ([0, 2], 1),
        (slice(None, None, 2), 1),
        (np.array([True, False, True]), 0),
    ],
)
def test_delete(where, axis):
    same(lambda x: np.delete(x, where, axis), X)
    same(lambda x: np.delete(arr=x, obj=where, axis=axis), X)


@pytest.mark.parametrize("shape", [5, (2, 3), (4, 5), (0,)])
def test_resize(shape):
    same(lambda x: np.resize(x, shape), X)
    same(lambda x: np.resize(a=x, new_shape=shape), X)


def test_resize_of_nothing_gives_zeros():
    got, _ = adarray.vjp(lambda x: np.resize(x, (2, 2)), np.zeros(0))
    np.testing.assert_array_equal(got, np.zeros((2, 2)))


def test_append():
    same(lambda x, y: np.append(x, y), X, V)
    same(lambda x, y: np.append(x, y, axis=1), X, X[:, :2])
    same(lambda x, y: np.append(x, [y, 2.0]), V, 1.5)
    with pytest.raises(ValueError, match="dimension"):
        adarray.vjp(lambda x: np.append(x, V, axis=0), X)


# -- joining and splitting -----------------------------------------------------------------------


def test_block():
    same(lambda x, y: np.block([[x, 2 * x], [y, np.zeros((1, 4))]]), X, X[:1])
    same(lambda x, y: np.block([x, y, 1.0]), V, 0.5)
    same(lambda x: np.block([[1.0, x], [x, x]]), 0.5)
    same(lambda x: np.block(x), X)
    same(lambda x: np.block([[[x]], [[x]]]), X)


def test_a_large_block_is_filled_in_place():
    big = RNG.normal(size=(600, 500))
    value, pull = adarray.vjp(lambda x, y: np.block([[x, x], [y, 2.0 * y]]), big, big)
    np.testing.assert_array_equal(value, np.block([[big, big], [big, 2.0 * big]]))
    back = pull(np.ones((1200, 1000)))
    np.testing.assert_array_equal(back[0], np.full((600, 500), 2.0))
    np.testing.assert_array_equal(back[1], np.full((600, 500), 3.0))


@pytest.mark.parametrize("arrays", [[[X, X], X], [X, []], [[X], (X,)], [X, V]])
def test_block_raises_numpys_errors(arrays):
    with pytest.raises((ValueError, TypeError)) as want:
        np.block(arrays)

    def traced(x):
        def replace(a):
            return x if a is X else [replace(i) for i in a] if isinstance(a, list) else a

        return np.block(replace(arrays))

    with pytest.raises(type(want.value)):
        adarray.vjp(traced, X)


@pytest.mark.parametrize("function", [np.stack, np.hstack, np.vstack, np.concatenate])
def test_joins_honour_dtype_and_casting(function):
    got, _ = adarray.vjp(lambda x: function([x, x], dtype=np.float32), X)
    assert np.asarray(got).dtype == np.float32
    check_grads(lambda x: function([x, x[::-1]], dtype=np.float64, casting="no"), (X,))
    with pytest.raises(TypeError, match="according to the rule 'safe'"):
        adarray.vjp(lambda x: function([x, x], dtype=np.float32, casting="safe"), X)


@pytest.mark.parametrize(
    "function", [np.stack, np.hstack, np.vstack, np.dstack, np.column_stack, np.concatenate]
)
def test_joins_take_lists_of_traced_numbers(function):
    same(lambda x, y: function([x, [y, 2.0, y, 1.0, 0.5]]), V, 0.5)


def test_splits():
    same(lambda x: np.split(x, 2, axis=1), X)
    same(lambda x: np.split(x, [1, 2]), X)
    same(lambda x: np.array_split(x, 3, axis=-1), X)
    same(lambda x: np.hsplit(x, [1]), X)
    same(lambda x: np.hsplit(x, [1]), V)
    same(lambda x: np.vsplit(x, 3), X)
    same(lambda x: np.dsplit(x, [2]), X.reshape(1, 3, 4))
    if hasattr(np, "unstack"):
        same(lambda x: np.unstack(x, axis=1), X)


def test_pieces_are_views():
    def f(x):
        x = x * 1.0
        first, _ = np.split(x, [2])
        first[:] = 3.0
        return np.sum(x**2)

    np.testing.assert_array_equal(adarray.grad(f)(V), [0, 0, *(2 * V[2:])])


@pytest.mark.parametrize(
    ("function", "args"),
    [(np.split, (X, 2)), (np.hsplit, (np.float64(1.0), 2)), (np.vsplit, (V, 2)),
     (np.dsplit, (X, 2)), (np.array_split, (X, 0))],
)  # fmt: skip
def test_splits_raise_numpys_errors(function, args):
    with pytest.raises(ValueError) as want:  # noqa: PT011  (its text is compared)
        function(*args)
    with pytest.raises(ValueError) as got:  # noqa: PT011
        adarray.vjp(lambda x: function(x, *args[1:]), args[0])
    assert str(got.value) == str(want.value)


def test_broadcast_arrays():
    same(lambda x, y: np.broadcast_arrays(x, y, 2.0), X, X[:, :1])
    check_grads(lambda x: np.broadcast_to(x, (2, 3, 4), subok=True), (X,))


@pytest.mark.parametrize(
    "f",
    [
        lambda x: np.concatenate(([0.0], x)),
        lambda x: np.concatenate(([x[0]], x, (1, x[1]))),
        lambda x: np.dot(x, [x[0], 1.0, 2.0, 3.0, x[1]]),
        lambda x: np.outer(x, [x[0], 2.0]),
        lambda x: np.inner([x[0], 1.0, 2.0, 3.0, x[1]], x),
        lambda x: np.tensordot(x, [x[0], 1.0], 0),
        lambda x: np.where(x > 0, [x[0], 1.0, 2.0, 3.0, 4.0], x),
        lambda x: np.multiply(x, [x[0], 1.0, 2.0, 3.0, 4.0]),
        lambda x: [x[0], 1.0, 2.0, 3.0, 4.0] * x,
        lambda x: np.convolve(x, [x[0], 2.0]),
        lambda x: np.interp(x, [0, 1], [x[0], x[1]]),
    ],
)
def test_lists_with_traced_numbers_beside_a_traced_array(f):
    got, _ = adarray.vjp(f, V)
    np.testing.assert_allclose(np.asarray(got), f(V), rtol=1e-15)
    check_grads(f, (V,))


# -- diagonals -------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [0, 1, -1])
def test_diagonals_see_what_is_written_later(k):
    """np.diag of a matrix is a view, which cannot be written through; it was a copy."""

    def f(x):
        y = x * 2.0
        d = np.diag(y, k)
        y[1, 1:] = x[0, 0] ** 2
        y[2, 1] *= 3.0
        with pytest.raises(ValueError, match="read-only"):
            d[0] = 1.0
        return d * 1.0

    same(f, X)

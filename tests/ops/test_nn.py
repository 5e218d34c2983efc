"""Convolutions of images, and sums over sliding windows that are convolutions."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

import adarray
from adarray.errors import DTypeError, ShapeError
from adarray.ops import nn, windows
from adarray.ops.nn import conv2d, conv2d_input, conv2d_weight
from adarray.testing import check_grads

RNG = np.random.default_rng(5)

# Shapes of images and weights, stride, padding, dilation, groups.
CASES = [
    ((2, 4, 5, 6), (3, 4, 3, 2), (2, 1), ((1, 0), (2, 3)), (1, 2), 1),
    ((3, 4, 7, 6), (6, 2, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 2),
    ((2, 3, 9, 9), (5, 3, 1, 1), (2, 2), ((0, 0), (0, 0)), (1, 1), 1),
    ((2, 3, 4, 4), (5, 3, 1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1), 1),
    ((1, 1, 2, 2), (1, 1, 3, 3), (3, 3), ((5, 5), (2, 2)), (1, 1), 1),
    ((4, 6, 3, 8), (6, 1, 2, 3), (1, 2), ((0, 1), (1, 0)), (2, 1), 6),
    ((0, 2, 4, 4), (3, 2, 2, 2), (1, 1), ((0, 0), (0, 0)), (1, 1), 1),
]


def by_loops(x: Any, w: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    """Return the convolution as its definition reads."""
    x = np.pad(x, ((0, 0), (0, 0), *padding))
    result, of_group, height, width = w.shape
    rows, columns = (
        (n - (k - 1) * d - 1) // s + 1
        for n, k, d, s in zip(x.shape[2:], w.shape[2:], dilation, stride, strict=True)
    )
    out = np.zeros((x.shape[0], result, rows, columns), np.result_type(x, w))
    for n, o, p, q in np.ndindex(*out.shape):
        first = o // (result // groups) * of_group
        for c, i, j in itertools.product(range(of_group), range(height), range(width)):
            y, z = p * stride[0] + i * dilation[0], q * stride[1] + j * dilation[1]
            out[n, o, p, q] += w[o, c, i, j] * x[n, first + c, y, z]
    return out


def drawn(case: Any) -> tuple[Any, Any, dict[str, Any]]:
    x, w, stride, padding, dilation, groups = case
    settings = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    return RNG.normal(size=x), RNG.normal(size=w), settings


@pytest.mark.parametrize("block", [1 << 21, 3000, 200])
@pytest.mark.parametrize("case", CASES)
def test_values_are_those_of_the_definition(case: Any, block: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(windows, "BLOCK", block)
    x, w, settings = drawn(case)
    want = by_loops(x, w, **settings)
    got = conv2d(x, w, **settings)
    assert type(got) is np.ndarray
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)
    # The other two are its transposes: <g, conv2d(x, w)> three times.
    g = RNG.normal(size=want.shape)
    back, weights = (
        conv2d_input(g, w, x.shape[2:], **settings),
        conv2d_weight(x, g, w.shape[2:], **settings),
    )
    assert back.shape == x.shape
    assert weights.shape == w.shape
    np.testing.assert_allclose(np.sum(back * x), np.sum(g * want), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(np.sum(weights * w), np.sum(g * want), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("case", CASES)
def test_functions_of_numpy_alone_give_the_same(case: Any) -> None:
    x, w, settings = drawn(case)
    k = windows.geometry_of("conv2d", x.shape, w.shape, **settings)
    g = RNG.normal(size=(k.number, k.filters, *k.out))
    for a, b, whole, blocked in (
        (x, w, windows.forward_whole, windows.forward),
        (g, w, windows.to_input_whole, windows.to_input),
        (x, g, windows.to_weight_whole, windows.to_weight),
    ):
        np.testing.assert_allclose(whole(a, b, k), blocked(a, b, k), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("case", CASES[:3])
def test_derivatives_to_second_order(case: Any) -> None:
    x, w, settings = drawn(case)
    check_grads(lambda x, w: np.sin(conv2d(x, w, **settings)), (x, w), order=2)


def test_padding_by_name_and_by_sides() -> None:
    x, w = RNG.normal(size=(1, 2, 5, 6)), RNG.normal(size=(3, 2, 3, 2))
    for stride in (1, 2, 3):
        assert conv2d(x, w, stride, "same").shape[2:] == (-(-5 // stride), -(-6 // stride))
    np.testing.assert_array_equal(conv2d(x, w, 1, "same"), conv2d(x, w, 1, ((1, 1), (0, 1))))
    np.testing.assert_array_equal(conv2d(x, w, 1, "valid"), conv2d(x, w))
    np.testing.assert_array_equal(conv2d(x, w, 1, (2, 1)), conv2d(x, w, 1, ((2, 2), (1, 1))))


@pytest.mark.parametrize(
    ("dtypes", "result_dtype"),
    [("ff", "f"), ("fd", "d"), ("ee", "e"), ("ll", "l"), ("Ff", "F"), ("dl", "d")],
)
def test_dtypes_promote(dtypes: str, result_dtype: str) -> None:
    x, w = np.ones((1, 2, 4, 4), dtypes[0]), np.ones((1, 2, 3, 3), dtypes[1])
    got = conv2d(x, w)
    assert got.dtype.char == result_dtype
    np.testing.assert_array_equal(got, np.full((1, 1, 2, 2), 18))


def test_lists_and_adarrays() -> None:
    x, w = np.arange(9.0).reshape(1, 1, 3, 3), [[[[1.0, 2.0], [3.0, 4.0]]]]
    want = conv2d(x, np.array(w))
    np.testing.assert_array_equal(conv2d(x.tolist(), w), want)
    got = conv2d(adarray.array(x), w)
    assert isinstance(got, adarray.ADArray)
    np.testing.assert_array_equal(got.numpy(), want)


@pytest.mark.parametrize("window", [(1, 1), (2, 2)])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(("n", "c", "o"), [(0, 3, 2), (1, 3, 0), (1, 0, 2)])
def test_nothing_to_compute(n: int, c: int, o: int, stride: int, window: Any) -> None:
    x, w = np.ones((n, c, 4, 4)), np.ones((o, c, *window))
    y = conv2d(x, w, stride)
    assert y.shape[:2] == (n, o)
    assert not y.any()
    for i, like in enumerate((x, w)):
        g = adarray.grad(lambda x, w: np.sum(conv2d(x, w, stride)), i)(x, w)
        np.testing.assert_array_equal(g, np.zeros_like(like))


def test_groups_may_be_integers_of_numpy() -> None:
    x, w = np.ones((1, 4, 3, 3)), np.ones((2, 2, 2, 2))
    y = conv2d(x, w, groups=np.int64(2))
    for f, operands, last in ((conv2d_input, (y, w), (3, 3)), (conv2d_weight, (x, y), (2, 2))):
        got = f(*operands, last, groups=np.int64(2))
        np.testing.assert_array_equal(got, f(*operands, last, groups=2))


X, W = np.ones((1, 3, 4, 5)), np.ones((2, 3, 3, 3))


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: conv2d(X[0], W), ShapeError,
         r"conv2d: operand 0 has shape \(3, 4, 5\), and images \(number, channels, height, width\)"
         " have four axes; reshape it"),
        (lambda: conv2d(X, W[0]), ShapeError, "conv2d: operand 1 has shape"),
        (lambda: conv2d(X, W[:, :2]), ShapeError,
         r"conv2d: operands 0 and 1 have shapes \(1, 3, 4, 5\) and \(2, 2, 3, 3\): images have 3 "
         "channels, and weights are for 2 in each of 1 groups"),
        (lambda: conv2d(X[:, :, :2], W), ShapeError,
         "a window reaches over 3 elements of the height, and images with their padding have 2; "
         "pad them"),
        (lambda: conv2d(X, W[:, :1], groups=3), ShapeError,
         "2 channels of the result are no multiple of groups=3"),
        (lambda: conv2d(X, W, stride=0), ShapeError, "conv2d: the argument stride is 0; pass an"),
        (lambda: conv2d(X, W, dilation=(1, 2, 3)), ShapeError, "the argument dilation is"),
        (lambda: conv2d(X, W, padding="full"), ShapeError, "the argument padding is 'full'; pass"),
        (lambda: conv2d(X, W, padding=((1, 1),)), ShapeError, "pass one pair for the height"),
        (lambda: conv2d(X, W, groups=1.5), ShapeError, "the argument groups is 1.5; pass an"),
        (lambda: conv2d_input(X, W, (4, 4)), ShapeError,
         r"conv2d_input: operands 0 and 1 have shapes .* a convolution of images of \(4, 4\) has "
         r"results of the shape \(1, 2, 2, 2\); pass the size of its images"),
        (lambda: conv2d_weight(X, X, (9, 1)), ShapeError, "conv2d_weight: operands 0 and 1"),
        (lambda: conv2d(np.ma.array(X, mask=False), W), DTypeError,
         "conv2d: an operand is a masked array: its mask would be lost"),
        (lambda: conv2d(X, np.full(W.shape, "a")), DTypeError,
         "conv2d: operand 1 has dtype <U1; pass an array of numbers"),
    ],
)  # fmt: skip
def test_errors_name_operands_and_shapes(call: Any, error: type, text: str) -> None:
    with pytest.raises(error, match=text):
        call()


def test_errors_of_traced_operands() -> None:
    with pytest.raises(ShapeError, match="images have 3 channels"):
        adarray.grad(lambda w: np.sum(conv2d(X, w)))(W[:, :2])
    with pytest.raises(adarray.NotDifferentiableError, match="the argument padding is traced"):
        adarray.grad(lambda k: np.sum(conv2d(X, W, padding=((k, 0), (0, 0)))))(1.0)


# -- sums over sliding windows ---------------------------------------------------------------------


def sums(text: str, window: Any, axis: Any = None, index: Any = ()) -> Any:
    return lambda x, w: np.einsum(text, sliding_window_view(x, window, axis=axis)[index], w)


EVERY = slice(None)
IMAGES, LAST = (2, 3, 8, 9), (2, 8, 9, 3)
SUMS = {
    "channels first": (
        sums("ncyxij,ocij->noyx", (3, 2), (2, 3)), IMAGES, (4, 3, 3, 2)),
    "channels last": (
        sums("nyxcij,ijco->nyxo", (3, 2), (1, 2)), LAST, (3, 2, 3, 4)),
    "strides": (
        sums("ncyxij,ocij->noyx", (3, 4), (2, 3), (EVERY, EVERY, slice(None, None, 2),
                                                    slice(0, None, 3))), IMAGES, (4, 3, 3, 4)),
    "dilation": (
        sums("ncyxij,ocij->noyx", (5, 3), (-2, -1), (..., slice(None, None, 2),
                                                      slice(None, None, 2))), IMAGES, (4, 3, 3, 2)),
    "weights first": (
        lambda x, w: np.einsum("ocij,ncyxij->yxno", w, sliding_window_view(x, (3, 2), (2, 3))),
        IMAGES, (4, 3, 3, 2)),
    "one image": (sums("yxij,ij", (3, 2)), (8, 9), (3, 2)),
    "one result": (sums("cyxij,cij->xy", (3, 2), (1, 2)), (3, 8, 9), (3, 3, 2)),
    "padded": (
        lambda x, w: np.einsum(
            "ncyxij,ocij->noyx",
            sliding_window_view(np.pad(x, ((0, 0), (0, 0), (1, 1), (0, 2))), (3, 2), (2, 3)), w),
        IMAGES, (4, 3, 3, 2)),
}  # fmt: skip
# Sums that look alike, and are no convolution.
OTHERS = {
    "channel by channel": (sums("ncyxij,cij->ncyx", (3, 2), (2, 3)), IMAGES, (3, 3, 2)),
    "a window is kept": (sums("ncyxij,oci->noyxj", (3, 2), (2, 3)), IMAGES, (4, 3, 3)),
    "from the second": (
        sums("ncyxij,ocij->noyx", (3, 2), (2, 3), (EVERY, EVERY, slice(1, None))),
        IMAGES, (4, 3, 3, 2)),
    "backwards": (
        sums("ncyxij,ocij->noyx", (3, 2), (2, 3), (..., slice(None, None, -1))),
        IMAGES, (4, 3, 3, 2)),
    "one axis": (sums("ncyxj,ocj->noyx", 2, 3), IMAGES, (4, 3, 2)),
    "weights for each row": (sums("ncyxij,cyij->nxy", (3, 2), (2, 3)), IMAGES, (3, 6, 3, 2)),
    "weights for each place": (sums("yxij,oyxij->oyx", (3, 2)), (8, 9), (2, 6, 8, 3, 2)),
    "places are summed": (sums("ncyxij,ocij->no", (3, 2), (2, 3)), IMAGES, (4, 3, 3, 2)),
}  # fmt: skip


@pytest.fixture
def calls(monkeypatch: Any) -> list[Any]:
    """Names of the operations on images that are computed."""
    seen: list[Any] = []
    for op in (nn._conv2d, nn._conv2d_input, nn._conv2d_weight):

        def noted(*args: Any, _op: Any = op, _compute: Any = op.evaluate, **kwargs: Any) -> Any:
            seen.append(_op.name)
            return _compute(*args, **kwargs)

        monkeypatch.setattr(op, "evaluate", noted)
    return seen


@pytest.mark.parametrize("name", [*SUMS, *OTHERS])
def test_einsum_over_sliding_windows(name: str, calls: list[Any]) -> None:
    f, *shapes = (SUMS | OTHERS)[name]
    x, w = (RNG.normal(size=s) for s in shapes)
    want = f(x, w)
    got, pull = adarray.vjp(f, x, w)
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)
    pull(np.ones_like(want))
    assert sorted(set(calls)) == (
        ["conv2d", "conv2d_input", "conv2d_weight"] if name in SUMS else []
    )
    check_grads(lambda x, w: np.sin(f(x, w)), (x, w), order=2)


@pytest.mark.parametrize("name", ["channels first", "channels last", "one image", "padded"])
def test_weights_alone_are_traced(name: str, calls: list[Any]) -> None:
    f, *shapes = SUMS[name]
    x, w = (RNG.normal(size=s) for s in shapes)
    _, pull = adarray.vjp(lambda w: f(x, w), w)
    (got,) = pull(np.ones(f(x, w).shape))
    assert set(calls) == {"conv2d", "conv2d_weight"}
    _, both = adarray.vjp(f, x, w)
    np.testing.assert_allclose(got, both(np.ones(f(x, w).shape))[1], rtol=1e-12, atol=1e-12)


def test_contiguous_operands_are_no_windows(calls: list[Any]) -> None:
    x, w = RNG.normal(size=(2, 3, 4, 5, 3, 2)), RNG.normal(size=(4, 3, 3, 2))
    _, pull = adarray.vjp(lambda w: np.einsum("ncyxij,ocij->noyx", x, w), w)
    pull(np.ones((2, 4, 4, 5)))
    assert not calls


def test_a_write_between_windows_and_sum_is_seen() -> None:
    x, w = RNG.normal(size=(1, 1, 5, 5)), RNG.normal(size=(1, 1, 2, 2))

    def f(x: Any, w: Any) -> Any:
        y = x * 1.0
        view = sliding_window_view(y, (2, 2), axis=(2, 3))
        y[0, 0, 2] = 3.0 * y[0, 0, 1]
        return np.einsum("ncyxij,ocij->noyx", view, w)

    got, _ = adarray.vjp(f, x, w)
    np.testing.assert_allclose(got, f(x, w), rtol=1e-12)
    check_grads(f, (x, w))

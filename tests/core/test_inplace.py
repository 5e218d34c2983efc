"""In-place updates give NumPy's values and the right gradients."""

from __future__ import annotations

import numpy as np
import pytest

import adarray
from adarray.testing import check_grads

RNG = np.random.default_rng(7)
VECTOR = RNG.normal(size=5)
MATRIX = RNG.normal(size=(3, 4))


def item_and_slice(x):
    y = x.copy()
    y[1] = y[0] * y[2]
    y[2:4] *= y[1]
    y += x
    return np.sum(y**2)


def view_of_a_row(x):
    y = x * 1.0
    v = y[0]
    v *= 3
    v[1] = y[1, 1] * 2
    y[0, 0] = v[1] ** 2
    return np.sum(np.sin(y) + v.sum())


def saved_then_overwritten(x):
    y = np.exp(x)
    z = y * y  # saves y
    y[0] = 5.0
    np.exp(y * 0.1, out=y)
    return np.sum(z * y) * 1e-2


def mask(x):
    y = np.zeros_like(x)
    y[x > 0] = x[x > 0] ** 2
    y[~(x > 0)] -= x[~(x > 0)]
    return np.sum(np.cos(y))


def view_through_reshape_and_transpose(x):
    y = x.T.copy()
    w = y.reshape(-1)
    w[2:5] = np.sin(w[:3])
    y.T[1] += w[4]
    return np.sum(y**3)


def fortran_buffer(x):
    y = x.T if isinstance(x, adarray.ADArray) else np.array(x.T, copy=False)
    y = y.copy("K")
    flat = y.T.reshape(-1)
    flat[1:3] = flat[3:5] * 2
    return np.sum(y**2)


def split_views(x):
    y = x.copy()
    a, b = np.split(y, [2])
    a *= b[0]
    b += a[1]
    return np.sum(y * y)


def repeated_indices(x):
    y = x.copy()
    np.add.at(y, [0, 0, 2], x[:3])
    np.subtract.at(y, [1, 1], x[3] ** 2)
    y.T[...] = y * 2
    return (y**2).sum()


def fancy_write(x):
    y = np.stack([x, x * 2])
    y[:, 1] = y[:, 0]
    y[[0, 1], [2, 3]] += 1.5 * x[0]
    return np.prod(y)


def overlapping(x):
    y = x.copy()
    y[1:] = y[:-1]
    y[...] = y[::-1] * y
    return np.sum(y**2 * x)


def all_augmented(x):
    y = x[:3] + 3
    y *= 2
    y /= x[3]
    y -= 1
    y **= 2
    y %= 100.0
    return y.mean()


def writers(x):
    y = x.copy()
    np.copyto(y, x[::-1] * 2, where=x > 0)
    np.put(y, [0, 3], x[1] * x[2])
    np.putmask(y, [False, True, False, False, True], x**2)
    np.place(y, [True, False, False, False, False], x[2:3])
    z = y[:, None] * x
    np.fill_diagonal(z, x**3)
    np.put_along_axis(z, np.array([[1], [2], [0], [1], [4]]), x[:, None], 1)
    return np.sum(z**2)


def broadcast_value(x):
    y = np.zeros_like(x, shape=(4, 5))
    y[1:3] = x
    y[:, 2] = x[0]
    return np.sum(np.sin(y))


CASES = [
    (item_and_slice, VECTOR),
    (view_of_a_row, MATRIX),
    (saved_then_overwritten, VECTOR),
    (mask, VECTOR),
    (view_through_reshape_and_transpose, MATRIX),
    (fortran_buffer, MATRIX),
    (split_views, VECTOR),
    (repeated_indices, VECTOR),
    (fancy_write, VECTOR),
    (overlapping, VECTOR),
    (all_augmented, np.abs(VECTOR) + 0.5),
    (writers, VECTOR),
    (broadcast_value, VECTOR),
]


@pytest.mark.parametrize(("f", "x"), CASES, ids=lambda v: getattr(v, "__name__", ""))
def test_in_place_code(f, x):
    traced_value, _ = adarray.value_and_grad(f)(x)
    np.testing.assert_allclose(traced_value, f(x.copy()), rtol=1e-14)
    check_grads(f, (x,), order=2)


def test_the_argument_itself_is_never_changed():
    x = VECTOR.copy()

    def f(x):
        x *= 2
        x[0] = 0
        return np.sum(x * x)

    g = adarray.grad(f)(x)
    np.testing.assert_array_equal(x, VECTOR)
    np.testing.assert_allclose(g, [0, *(8 * VECTOR[1:])])


def test_plain_accumulator_is_rebound_to_the_result():
    def f(x):
        acc = np.zeros(5)
        for _ in range(3):
            acc += np.sin(x)
        return np.sum(acc * acc)

    check_grads(f, (VECTOR,), order=2)


def test_augmented_scalars_rebind_the_name_only():
    def f(x):
        a = x.sum()
        b = a
        b += 1
        b *= 2
        return a * b

    check_grads(f, (VECTOR,), order=2)
    s = VECTOR.sum()
    np.testing.assert_allclose(adarray.grad(f)(VECTOR), np.full(5, 4 * s + 2))


def test_work_buffer_reused_between_iterations():
    # autograd returns 6 here: it keeps a reference to the buffer, not its values.
    def f(x):
        buf = np.zeros(1)
        loss = 0.0
        for k in range(3):
            buf[:] = k
            loss = loss + np.sum(x * buf)
        return loss

    np.testing.assert_allclose(adarray.grad(f)(np.ones(1)), [3.0])


def test_big_operand_is_read_only_until_the_gradient_is_done():
    big = np.ones(50_000)

    def f(x):
        y = np.sum(x * big)
        big[:] = 2.0
        return y

    with pytest.raises(ValueError, match="read-only"):
        adarray.grad(f)(np.ones(50_000))
    big[:] = 3.0  # writeable again
    assert big.flags.writeable


def test_big_operand_changed_through_an_older_view_is_refused():
    big = np.ones(50_000)
    alias = big[:]

    def f(x):
        y = np.sum(x * big)
        alias[:] = 2.0
        return y

    with pytest.raises(adarray.TraceError, match=r"multiply: an operand of shape \(50000,\) was"):
        adarray.grad(f)(np.ones(50_000))


def test_pullback_protects_its_input():
    x = np.linspace(0.0, 1.0, 50_000)
    _, pullback = adarray.vjp(np.sin, x)
    with pytest.raises(ValueError, match="read-only"):
        x[0] = 5.0
    small = np.zeros(3)
    _, pullback_small = adarray.vjp(np.sin, small)
    small[:] = 1.0  # was copied
    np.testing.assert_array_equal(pullback_small(np.ones(3))[0], np.ones(3))
    del pullback
    x[0] = 5.0


def test_result_of_vjp_may_be_changed_before_the_pullback_runs():
    y, pullback = adarray.vjp(np.exp, np.zeros(3))
    y[:] = 100.0
    np.testing.assert_array_equal(pullback(np.ones(3))[0], np.ones(3))


def test_reading_a_view_after_its_base_was_written():
    def f(x):
        y = x.copy()
        v = y[1:3]
        y[:] = x**2
        return np.sum(v * x[1:3])

    np.testing.assert_allclose(
        adarray.grad(f)(VECTOR), [0, 3 * VECTOR[1] ** 2, 3 * VECTOR[2] ** 2, 0, 0]
    )


def test_read_only_and_bad_writes_change_nothing():
    x = adarray.array(VECTOR)
    y = np.broadcast_to(x, (2, 5))
    with pytest.raises(ValueError, match="read-only"):
        y[0] = 1.0
    with pytest.raises(ValueError, match="could not broadcast"):
        x[0:2] = np.ones(3)
    with pytest.raises(IndexError):
        x[9] = 1.0
    with pytest.raises(TypeError, match="does not support item assignment"):
        x.sum().item()[()] = 1.0
    with pytest.raises(ValueError, match="non-broadcastable output operand"):
        x += np.ones((2, 5))
    i = adarray.array([1, 2])
    with pytest.raises(TypeError, match="same_kind"):
        i += adarray.array([0.5, 0.5])
    np.testing.assert_array_equal(x.numpy(), VECTOR)


def test_writing_where_the_tangent_is_a_read_only_view():
    def f(x):
        w = np.linalg.eigvalsh(np.outer(x, x) + np.diag(x))
        w[w < 0] = 0
        return w**2

    check_grads(f, (VECTOR,))


def test_zero_dimensional_results_can_be_written_into():
    def f(x):
        y = np.sum(adarray.array(x) ** 2)
        y[y > 0] = y[()] * x[0]
        y[...] = 3 * y
        view = y.reshape(1, 1)
        view[0, 0] = view[0, 0] * x[1]
        view[view > 0] *= 2.0
        return y + view

    check_grads(f, (VECTOR,))


def _fill(n):
    def f(x):
        y = np.zeros_like(x)
        y[0] = x[0]
        for i in range(1, n):
            y[i] = np.sin(y[i - 1]) + x[i]
        return y.sum()

    return adarray.grad(f)(np.ones(n))


def test_filling_touches_each_element_once():
    """Work grows linearly: counted in bytes that are copied, not in seconds."""
    copied = []
    original = adarray.core.inplace.own_buffer

    def counting(root):
        if root._frozen:
            copied.append(root._plain.nbytes)
        original(root)

    adarray.core.inplace.own_buffer = counting
    try:
        _fill(50)
        small = sum(copied)
        copied.clear()
        _fill(200)
        large = sum(copied)
    finally:
        adarray.core.inplace.own_buffer = original
    assert large <= 4 * max(small, 200 * 8)


@pytest.mark.parametrize(
    "index",
    [
        [0, 0],
        np.array([1, -3, 1]),
        ([0, 1, 0], [1, 1, 1]),
        (slice(None), [2, 2]),
        (Ellipsis, [0, -4, 1]),
        ([1, 1], slice(0, 2)),
        (0, [3, 3]),
        (np.array([True, False, True]), [1, 1]),
        ([True, False, True], 2),
        (None, [0, 0]),
        np.zeros((2, 2), int),
        [],
        (np.array([[0], [0]]), np.array([1, 2])),
    ],
    ids=str,
)
def test_of_values_written_to_one_element_the_last_counts(index):
    a = np.linspace(0.5, 1.5, 12).reshape(3, 4)
    values = np.cos(np.arange(a[index].size) + 1.0).reshape(a[index].shape)

    def f(a, v):
        b = a * 1.0
        b[index] = v
        return b**2

    check_grads(f, (a, values))

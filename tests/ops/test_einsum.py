"""einsum in all its forms: values as NumPy's, derivatives as differences."""

import numpy as np
import pytest

import adarray
from adarray.testing import check_grads

RNG = np.random.default_rng(2)
A, B, C = RNG.normal(size=(2, 3)), RNG.normal(size=(3, 4)), RNG.normal(size=(4, 2))
CUBE, SQUARE = RNG.normal(size=(3, 3, 4)), RNG.normal(size=(3, 3))


def same(f, *args):
    """Check values and dtype against NumPy's, then derivatives."""
    got, _ = adarray.vjp(f, *args)
    want = f(*args)
    assert np.asarray(got).dtype == np.asarray(want).dtype
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-12)
    check_grads(f, args)


@pytest.mark.parametrize(
    ("subscripts", "arrays"),
    [
        ("ij,jk->ik", (A, B)),
        ("ij,jk", (A, B)),
        ("ij , jk -> ki", (A, B)),
        ("ba", (A,)),
        ("ij->", (A,)),
        ("ij", (A,)),
        ("ii", (SQUARE,)),
        ("ii->i", (SQUARE,)),
        ("iij->j", (CUBE,)),
        ("iij->ij", (CUBE,)),
        ("...j,jk->...k", (A, B)),
        ("i...,i...->...", (A, A)),
        ("...,...", (CUBE, B)),
        ("i...->...", (A,)),
        ("...i->i...", (CUBE,)),
        ("ij,jk,kl->il", (A, B, C)),
        ("ij,jk,kl->", (A, B, C)),
        ("ij,jk,ki", (A, B, C)),
        ("i,j,k->kji", (A[0], B[0], C[0])),
        (",ij->ij", (np.float64(2.0), A)),
        (",", (np.float64(2.0), np.float64(3.0))),
        ("ij,ij,ij->i", (A, A, A)),
    ],
)
@pytest.mark.parametrize("optimize", [False, True, "greedy", "optimal"])
def test_forms(subscripts, arrays, optimize):
    same(lambda *xs: np.einsum(subscripts, *xs, optimize=optimize), *arrays)


def test_a_path_of_ones_own():
    path = ["einsum_path", (0, 1), (0, 1)]
    same(lambda *xs: np.einsum("ij,jk,kl->il", *xs, optimize=path), A, B, C)
    chosen = np.einsum_path("ij,jk,kl->il", adarray.array(A), B, C, optimize="optimal")[0]
    assert chosen[0] == "einsum_path"


def test_sublists():
    same(lambda a, b: np.einsum(a, [0, 1], b, [1, 2]), A, B)
    same(lambda a, b: np.einsum(a, [0, 1], b, [1, 2], [2, 0]), A, B)
    same(lambda a: np.einsum(a, [Ellipsis, 1], [1, Ellipsis]), CUBE)
    same(lambda a: np.einsum(a, [0, 0], [0]), SQUARE)
    same(lambda a: np.einsum("ij,j->i", a, [1.0, 2.0, 3.0]), A)


@pytest.mark.parametrize("optimize", [False, True])
def test_complex_arrays_are_not_conjugated(optimize):
    a, b, c = A + 1j * A[::-1], B - 2j * B, C + 1j
    same(lambda *xs: np.einsum("ij,jk,kl->il", *xs, optimize=optimize), a, b, c)
    same(lambda x, y: np.einsum("ij,jk->ki", x, y), a, b)
    same(lambda x, y: np.einsum("ij,jk->ki", x, y), A, b)


@pytest.mark.parametrize("optimize", [False, True])
def test_out(optimize):
    def f(a, b, c):
        out = np.zeros_like(a, shape=(2, 2))
        assert np.einsum("ij,jk,kl->il", a, b, c, out=out, optimize=optimize) is out
        return out

    same(f, A, B, C)


def test_dtype_order_and_casting():
    same(lambda a: np.einsum("ij,jk->ik", a, B.astype(np.float32), dtype=np.float64), A)
    got, _ = adarray.vjp(
        lambda a: np.einsum("ij,jk->ik", a, B, dtype=np.float32, casting="same_kind"), A
    )
    assert np.asarray(got).dtype == np.float32
    x = adarray.array(A)
    for order in "CFAK":
        result, numpys = (
            np.einsum("ij,jk->ik", x, B, order=order),
            np.einsum("ij,jk->ik", A, B, order=order),
        )
        assert result.flags.c_contiguous == numpys.flags.c_contiguous
    same(lambda a: np.einsum("ij->ji", a, order="C"), A)


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        (("ij,jk->ik", B), {"dtype": np.float32}),
        (("ij,jk->ik", B), {"nothing": 1}),
        (("ij,jk->ik", C), {}),
        (("ijk,jk->ik", B), {}),
        (("i...,jk->i", B), {}),
        (("ij,jk->iz", B), {}),
    ],
)
def test_numpys_errors(args, kwargs):
    with pytest.raises((TypeError, ValueError)) as want:
        np.einsum(args[0], A, *args[1:], **kwargs)
    with pytest.raises(type(want.value)):
        adarray.vjp(lambda a: np.einsum(args[0], a, *args[1:], **kwargs), A)


def test_the_diagonal_is_a_view_that_can_be_written():
    def f(x):
        x = x * 1.0
        np.einsum("ii->i", x)[:] = 2.0
        np.einsum("ij->ji", x)[0, 1] = 5.0
        return np.sum(x**2)

    expected = 2 * SQUARE * (1 - np.eye(3))
    expected[1, 0] = 0
    np.testing.assert_allclose(adarray.grad(f)(SQUARE), expected)
    check_grads(f, (SQUARE,))

"""`adarray.numpy`, the drop-in namespace, against NumPy."""

from __future__ import annotations

import io
import pickle
import subprocess
import sys
from typing import Any

import numpy
import pytest

import adarray
import adarray.numpy as np
from adarray import ADArray
from adarray.testing import check_grads

X = numpy.array([[1.5, 0.3, -0.7], [0.2, 2.5, 0.9]])
V = numpy.array([0.4, -1.2, 2.0])


def _same(ours: Any, wanted: Any) -> None:
    if isinstance(wanted, (tuple, list)):
        assert len(ours) == len(wanted)
        for o, w in zip(ours, wanted, strict=True):
            _same(o, w)
        return
    assert isinstance(ours, ADArray)
    assert ours.dtype == wanted.dtype
    assert ours.shape == wanted.shape
    numpy.testing.assert_array_equal(ours.numpy(), wanted)


def test_every_public_name_is_there() -> None:
    names = [n for n in dir(numpy) if not n.startswith("_")]
    assert len(names) > 400
    assert [n for n in names if not hasattr(np, n)] == []
    assert set(names) <= set(dir(np))
    for part in ("linalg", "fft", "random", "polynomial", "lib", "testing", "emath"):
        ours, theirs = getattr(np, part), getattr(numpy, part)
        public = [n for n in dir(theirs) if not n.startswith("_")]
        assert [n for n in public if not hasattr(ours, n)] == []
        assert set(public) <= set(dir(ours))


def test_star_import() -> None:
    space: dict[str, Any] = {}
    exec("from adarray.numpy import *", space)
    assert space["array"] is np.array
    assert space["random"] is np.random
    assert "_np" not in space


def test_submodules_are_imported_by_name() -> None:
    code = (
        "from adarray.numpy.lib.stride_tricks import sliding_window_view\n"
        "from adarray.numpy.polynomial import Polynomial, chebyshev\n"
        "from adarray.numpy.polynomial.polynomial import polyval\n"
        "from adarray.numpy.testing import assert_allclose\n"
        "from adarray.numpy.typing import NDArray\n"
        "from adarray.numpy.random import default_rng\n"
        "import adarray.numpy.linalg as la, adarray.numpy.fft, adarray.numpy as np, numpy\n"
        "from adarray.numpy.ma import masked_array\n"
        "assert masked_array is numpy.ma.masked_array and np.ma is numpy.ma\n"
        "assert np.lib.stride_tricks.sliding_window_view is sliding_window_view\n"
        "assert np.polynomial.polynomial.polyval is polyval\n"
        "assert type(polyval(2.0, [1, 2])).__name__ == 'ADArray'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_functions_pickle() -> None:
    for f in (np.sum, np.zeros, np.linalg.inv, np.fft.fft, np.add, np.random.default_rng):
        assert pickle.loads(pickle.dumps(f)) is f


def test_positional_out() -> None:
    out = numpy.zeros(3)
    assert np.add(V, V, out) is out
    mine = np.zeros(3)
    assert np.add(V, V, mine) is mine
    numpy.testing.assert_array_equal(mine, V + V)


def test_unknown_names() -> None:
    for module, name in ((np, "adarray.numpy"), (np.linalg, "adarray.numpy.linalg"),
                         (np.random, "adarray.numpy.random")):  # fmt: skip
        with pytest.raises(AttributeError, match=f"module '{name}' has no attribute 'nothing'"):
            module.nothing  # noqa: B018
    with pytest.raises(AttributeError, match="nothing"):
        np.lib.nothing  # noqa: B018
    with pytest.raises(
        AttributeError, match=r"`np.float_` was removed .* Use `np.float64` instead"
    ):
        np.float_  # noqa: B018
    with pytest.raises(AttributeError, match=r"module 'adarray\.numpy' has no attribute '_core_'"):
        np._core_  # noqa: B018


def test_adarray_import_does_not_load_it() -> None:
    code = (
        "import sys, adarray\n"
        "assert 'adarray.numpy' not in sys.modules\n"
        "assert adarray.numpy.zeros(2).shape == (2,)\n"
        "assert 'scipy' not in sys.modules and 'adarray.numpy.random' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_constants_and_dtypes_are_numpys() -> None:
    for name in ("pi", "e", "inf", "newaxis", "float32", "int64", "bool", "dtype", "errstate",
                 "s_", "index_exp", "exceptions", "generic"):  # fmt: skip
        assert getattr(np, name) is getattr(numpy, name)
    assert np.__version__ == numpy.__version__


CREATION = {
    "zeros": lambda m: m.zeros((2, 3), m.float32), "ones": lambda m: m.ones(3, dtype=int),
    "full": lambda m: m.full((2, 2), 7.0), "full order": lambda m: m.full((2, 3), 1, order="F"),
    "full array": lambda m: m.full((2, 3), numpy.arange(3.0)),
    "arange": lambda m: m.arange(2, 11, 3), "arange 1": lambda m: m.arange(4.0),
    "arange dtype": lambda m: m.arange(3, dtype="f4"),
    "arange positional": lambda m: m.arange(0, 6, 2, "f8"),
    "linspace": lambda m: m.linspace(0, 1, 5), "logspace": lambda m: m.logspace(0, 2, 3),
    "linspace step": lambda m: [m.asarray(x) for x in m.linspace(0, 1, 5, retstep=True)],
    "geomspace": lambda m: m.geomspace(1, 8, 4), "eye": lambda m: m.eye(2, 3, k=1),
    "eye named": lambda m: m.eye(N=2, M=3), "identity": lambda m: m.identity(2),
    "tri": lambda m: m.tri(3, 4, 1), "array": lambda m: m.array([[1, 2], [3, 4.5]]),
    "array ndmin": lambda m: m.array([1.0], ndmin=3), "asarray": lambda m: m.asarray((1, 2)),
    "asanyarray": lambda m: m.asanyarray([True]), "copy": lambda m: m.copy([1, 2]),
    "ascontiguousarray": lambda m: m.ascontiguousarray(1.0),
    "asfortranarray": lambda m: m.asfortranarray(X), "diag": lambda m: m.diag([1.0, 2.0]),
    "require": lambda m: m.require(X, "f4", ["F", "O"]), "vander": lambda m: m.vander(V, 3),
    "fromfunction": lambda m: m.fromfunction(lambda i, j: i + 2 * j, (2, 3)),
    "fromiter": lambda m: m.fromiter((k * k for k in range(5)), float, 4),
    "frombuffer": lambda m: m.frombuffer(b"\1\2\3", dtype=numpy.uint8),
    "fromstring": lambda m: m.fromstring("1 2 3", sep=" "),
    "loadtxt": lambda m: m.loadtxt(io.StringIO("1 2\n3 4")),
    "genfromtxt": lambda m: m.genfromtxt(io.StringIO("1,2\n3,4"), delimiter=","),
    "meshgrid": lambda m: m.meshgrid([1, 2], [3.0, 4.0, 5.0], indexing="ij"),
    "indices": lambda m: m.indices((2, 3)), "mgrid": lambda m: m.mgrid[0:2, 0:3:2j],
    "ogrid": lambda m: list(m.ogrid[0:2, 0:3]), "r_": lambda m: m.r_[1:4, 0, [5.0, 6.0]],
    "c_": lambda m: m.c_[[1, 2], [3, 4]], "r_ directive": lambda m: m.r_["0,2", [1, 2], [3, 4]],
    "hanning": lambda m: m.hanning(5), "kaiser": lambda m: m.kaiser(5, 2.0),
    "triu_indices": lambda m: m.triu_indices(3, 1), "zeros_like": lambda m: m.zeros_like([1, 2]),
    "full_like": lambda m: m.full_like([1.0, 2.0], 3), "unpackbits": lambda m: m.unpackbits(
        numpy.array([7], numpy.uint8)),
    "sin": lambda m: m.sin([0.0, 1.0]), "add": lambda m: m.add(1, [2.0, 3.0]),
    "reduce": lambda m: m.add.reduce([1, 2, 3]),
    "outer": lambda m: m.multiply.outer([1, 2], [3, 4]),
    "accumulate": lambda m: m.maximum.accumulate([1, 3, 2]), "sum": lambda m: m.sum(X, axis=0),
    "divmod": lambda m: m.divmod([7, 8], 3), "split": lambda m: m.split(V[:2], 2),
    "svd": lambda m: tuple(m.linalg.svd(X)), "fft": lambda m: m.fft.fft(V),
    "fftfreq": lambda m: m.fft.fftfreq(4, 0.1), "unique": lambda m: m.unique(
        [3, 1, 3], return_counts=True),
    "where": lambda m: m.where([True, False], 1.0, 2), "sort": lambda m: m.sort([3, 1, 2]),
    "argsort": lambda m: m.argsort([3, 1, 2], kind="mergesort"), "clip": lambda m: m.clip(
        [1, 5], 2, 3),
    "clip named": lambda m: m.clip([1, 5, 9], a_min=2, a_max=6),
    "diff": lambda m: m.diff([1, 4, 9]),
    "reshape": lambda m: m.reshape([1, 2, 3, 4], (2, 2), order="F"), "cov": lambda m: m.cov(X),
    "polyval": lambda m: m.polynomial.polynomial.polyval(V, [1, 2, 3]),
    "scimath": lambda m: m.emath.sqrt([-1.0, 4.0]), "histogram": lambda m: m.histogram(V, 3),
    "sliding": lambda m: m.lib.stride_tricks.sliding_window_view([1, 2, 3], 2),
    "vectorize": lambda m: m.vectorize(lambda a, b: a * b + 1.0)([1.0, 2.0], 3.0),
    "nan_to_num": lambda m: m.nan_to_num([1.0, numpy.nan]), "einsum": lambda m: m.einsum(
        "ij,j->i", X, V),
    "apply_along_axis": lambda m: m.apply_along_axis(lambda r: r[::-1], 1, X),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(CREATION))
def test_plain_arguments_give_numpys_values_as_adarrays(name: str) -> None:
    _same(CREATION[name](np), CREATION[name](numpy))


def test_what_is_not_an_array_of_numbers_stays_numpys() -> None:
    assert np.ndim(X) == 2
    assert np.shape(X) == (2, 3)
    assert np.result_type(numpy.float32, 1) == numpy.float32
    assert np.allclose(X, X) is True
    assert np.isscalar(2.0)
    assert type(np.array(["a", "b"])) is numpy.ndarray
    assert type(np.array([None, 1])) is numpy.ndarray
    assert type(np.ma.array([1.0])) is numpy.ma.MaskedArray
    out = numpy.zeros(3)
    assert np.add(V, V, out=out) is out
    with np.printoptions(precision=2):
        assert str(np.asarray([0.12345])) == "[0.12]"


def test_lists_of_plain_numbers_in_an_adarray_list() -> None:
    x = adarray.array([1.0, 2.0])
    _same(np.array([x, [3, 4]]), numpy.array([[1.0, 2.0], [3, 4]]))
    _same(np.array([x[0], 2, numpy.float32(3)]), numpy.array([1.0, 2, 3]))
    _same(np.array([x[:0], []]), numpy.array([[], []]))
    with pytest.raises(ValueError, match="inhomogeneous"):
        np.array([x, [1.0]])


TRACED = {
    "array": lambda x: np.array([[x[0, 0], 1, 2.5], [x[1, 1] * x[0, 2], 3, x[0, 0]]]),
    "array of rows": lambda x: np.array([x[0], (1.0, 2.0, 3.0), x[1] ** 2]),
    "array of one element arrays": lambda x: np.array([[x[0, :1]], [x[1, :1]]]),
    "array dtype": lambda x: np.array([x[0, 0], 1], dtype=float) ** 2,
    "array ndmin": lambda x: np.array(x[0], ndmin=3) ** 2,
    "array F": lambda x: np.array([x[0], x[1]], order="F") ** 2,
    "array float32 back": lambda x: np.asarray(np.array(x, copy=True), float) ** 2,
    "many": lambda x: np.array([x[0, k % 3] * k for k in range(150)]),
    "asfortranarray": lambda x: np.asfortranarray(x) ** 2,
    "asarray_chkfinite": lambda x: np.asarray_chkfinite([x[0], x[1]]) ** 2,
    "require": lambda x: np.require(x[:, ::2], None, ["C", "O", "W"]) ** 2,
    "copy of list": lambda x: np.copy([x[0, 0], 1.0]) ** 2,
    "fromiter": lambda x: np.fromiter((x[0, k] ** 2 for k in range(3)), float, 2),
    "fromfunction": lambda x: np.fromfunction(lambda i, j: i * x + j, (2, 3)) ** 2,
    "full": lambda x: np.full((2, 3), x[0]) ** 2,
    "arange start": lambda x: np.arange(x[0, 0], 5.0) ** 2,
    "arange step": lambda x: np.arange(0.0, 5.0, x[0, 0]) ** 2,
    "linspace": lambda x: np.linspace(x[0, 0], x[1, 1], 4) ** 2,
    "r_": lambda x: np.r_[x[0], 0.5, x[1, 1], 1:4, [x[0, 0], 2]] ** 2,
    "r_ slice": lambda x: np.r_[x[0, 1] : 4.0, x[0, 1] : 2.0 : 3j] ** 2,
    "r_ directive": lambda x: np.r_["1,3,1", x[0], x[1]] ** 2,
    "r_ rows": lambda x: np.r_["0,2", x[0], x[1]] ** 2,
    "c_": lambda x: np.c_[x[0], x[1], 1:4] ** 2,
    "list operands": lambda x: np.sum([x[0], x[1] ** 2], axis=0) * np.exp([x[0, 0], 1.0, x[0, 1]]),
    "list ufunc method": lambda x: np.multiply.reduce([x[0], x[1]], axis=0),
    "list in a keyword": lambda x: np.average(x[0], weights=[x[0, 0], 1.0, x[1, 1]]),
    "stack of lists": lambda x: np.stack([[x[0, 0], 2.0], [x[1, 1], x[0, 2]]], axis=1) ** 2,
    "concatenate of lists": lambda x: np.concatenate((x[0], [x[1, 1], 3.0])) ** 2,
    "vstack of tuples": lambda x: np.vstack([x[:, :2], (x[0, 0], 1.0)]) ** 2,
    "block": lambda x: np.block([[x, x**2], [np.ones((1, 3)), x[:1]]]),
    "fill": lambda x: _filled(x),
    "vectorize": lambda x: np.vectorize(lambda a, b: a * b if a > 0 else a)(x, x[0] ** 2),
    "vectorize tuple": lambda x: np.vectorize(lambda a: (a * a, a))(x)[0],
    "vectorize excluded": lambda x: np.vectorize(lambda a, c: a * c[0], excluded=["c"])(x, c=x[1]),
    "vectorize otypes": lambda x: np.vectorize(lambda a, b: a * b, otypes=[float])(x, b=2.0),
    "vectorize signature": lambda x: np.vectorize(lambda r: r[0] * r[1:], signature="(n)->(m)")(x),
    "ndenumerate": lambda x: sum(v * v * (i + 2 * j) for (i, j), v in np.ndenumerate(x)),
    "polyval": lambda x: np.polynomial.polynomial.polyval(x[1], x[0]),
    "chebyshev": lambda x: np.polynomial.chebyshev.chebval(0.3, x),
    "polyfromroots": lambda x: np.polynomial.polynomial.polyfromroots(x[0]),
    "emath": lambda x: np.emath.sqrt(x**2 + 1.0),
    "out": lambda x: np.multiply(x, x, out=np.zeros((2, 3))),
    "isinstance": lambda x: x**2 if isinstance(x, np.ndarray) else x,
    "meshgrid": lambda x: np.meshgrid(x[0], x[1])[0] ** 2,
    "fftfreq": lambda x: np.fft.fftfreq(4, x[0, 0]) ** 2,
    "plain matmul": lambda x: np.ones((3, 2)) @ x,
}  # fmt: skip


def _filled(x: Any) -> Any:
    y = np.zeros((2, 3))
    for k in range(3):
        y[0, k] = x[0, k] * x[1, k]
    y[1] = x[0]
    return y**2


@pytest.mark.parametrize("name", sorted(TRACED))
def test_traced_arguments_are_differentiated(name: str) -> None:
    check_grads(TRACED[name], (X,))


Series = np.polynomial.Polynomial
POLYNOMIALS = {
    "value": lambda c: Series(c)(0.7),
    "values": lambda c: Series(c)(V),
    "argument": lambda c: np.polynomial.Chebyshev([1.0, 2.0, 3.0])(c),
    "product": lambda c: (Series(c) * Series(c)).coef,
    "sum": lambda c: (1.5 - Series(c) + c[0]).coef,
    "power": lambda c: (Series(c) ** 3).coef,
    "division": lambda c: divmod(Series(c), Series(c[:2]))[0].coef,
    "derivative": lambda c: Series(c).deriv()(0.3),
    "integral": lambda c: Series(c).integ(2, k=[c[0], 1.0])(0.3),
    "roots": lambda c: np.sum(Series(c).roots() ** 2),
    "convert": lambda c: Series(c).convert(kind=np.polynomial.Chebyshev).coef,
    "composition": lambda c: Series(c)(Series(c[:2]))(0.3),
    "from roots": lambda c: Series.fromroots(c).coef,
    "fit": lambda c: Series.fit(np.arange(3.0), c, 1).coef,
    "domain": lambda c: Series([1, 2.0, 3], domain=c[:2])(0.3),
    "legendre": lambda c: np.polynomial.Legendre(c)(V),
    "poly1d": lambda c: np.poly1d(c)(0.7),
    "poly1d product": lambda c: (np.poly1d(c) * np.poly1d(c) + 2.0).coeffs,
    "poly1d derivative": lambda c: np.poly1d(c).deriv()(c[0]) + np.poly1d(c).integ()(0.2),
}


@pytest.mark.parametrize("name", sorted(POLYNOMIALS))
def test_polynomials_with_traced_coefficients(name: str) -> None:
    check_grads(POLYNOMIALS[name], (numpy.array([1.0, 3.0, 0.5]),))


def test_polynomials_are_numpys_too() -> None:
    p = Series([1, 2, 3])
    assert isinstance(p, numpy.polynomial.Polynomial)
    assert type(p * p) is Series
    assert str(p) == str(numpy.polynomial.Polynomial([1, 2, 3]))
    assert pickle.loads(pickle.dumps(p)) == p
    assert np.polynomial.polynomial.Polynomial is Series
    assert str(np.poly1d([1, 2])) == str(numpy.poly1d([1, 2]))


def test_a_ufunc_is_a_function_to_differentiate() -> None:
    assert adarray.grad(np.sin)(0.5) == numpy.cos(0.5)
    numpy.testing.assert_array_equal(adarray.grad(np.sum)(V), numpy.ones(3))


def test_weak_numbers_promote_as_numpy_does() -> None:
    x32 = numpy.ones(2, numpy.float32)

    def f(x: Any) -> Any:
        assert np.array([x, 1]).dtype == numpy.float64
        assert np.full(2, x, dtype=numpy.float32).dtype == numpy.float32
        assert np.r_[x32, x].dtype == numpy.r_[x32, 2.0].dtype
        return np.sum(np.full(2, x, dtype=numpy.float32) * x32)

    assert adarray.grad(f)(2.0) == 2.0


REFUSED = [
    (
        lambda x: np.array([x[0], 1], dtype=int),
        "array with dtype=int64: a traced value",
    ),
    (lambda x: np.asarray(x, dtype=bool), "asarray with dtype=bool: a traced value would leave"),
    (lambda x: np.zeros(x[0]), "zeros: a traced value would leave the graph"),
    (lambda x: np.random.default_rng(0).poisson(x), "poisson: draws whole numbers, which jump"),
    (lambda x: np.random.default_rng(0).choice(3, p=x), "choice: picks jump as the argument p"),
    (lambda x: np.random.default_rng(0).wald(x, 1.0), "no derivative rule with respect to the"),
    (lambda x: np.random.default_rng(0).vonmises(0.0, x), "vonmises: the draw has no derivative"),
    (
        lambda x: np.random.default_rng(0).standard_gamma(x, dtype="f4"),
        "argument dtype='f4' does",
    ),
    (lambda x: np.r_["r", x, x], "makes a numpy.matrix, which ADArray is not"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_refusals(call: Any, message: str) -> None:
    with pytest.raises((TypeError, adarray.NotDifferentiableError), match=message):
        adarray.grad(lambda x: np.sum(call(x)))(numpy.ones(2) / 2)


def test_asarray_conserves_identity_and_writes_through() -> None:
    def f(x: Any) -> Any:
        y = np.asarray(x) * 1.0
        z = np.asarray(y)
        assert z is y
        z[0] = 5.0 * x[1]
        return np.sum(y**2)

    check_grads(f, (V,))


def test_ndarray_stands_for_both_kinds() -> None:
    assert isinstance(adarray.array([1.0]), np.ndarray)
    assert isinstance(numpy.ones(1), np.ndarray)
    assert not isinstance([1.0], np.ndarray)
    assert issubclass(ADArray, np.ndarray)
    assert np.ndarray((2, 3)).shape == (2, 3)
    assert np.ndarray.sum(np.ones(3)) == 3.0
    assert np.ndarray[Any, Any] == numpy.ndarray[Any, Any]
    with pytest.raises(TypeError, match=r"adarray.numpy.ndarray: cannot be subclassed"):
        type("Mine", (np.ndarray,), {})


def test_ufuncs_keep_their_attributes() -> None:
    assert isinstance(np.add, np.ufunc)
    assert isinstance(numpy.add, np.ufunc)
    assert not isinstance(np.sum, np.ufunc)
    assert (np.add.nin, np.add.identity, np.add.__name__) == (2, 0, "add")
    assert np.add is np.add
    assert pickle.loads(pickle.dumps(np.add)) is np.add
    assert "sine" in np.sin.__doc__.lower()
    assert repr(np.sin) == "<ufunc 'sin'>"
    x = np.zeros(3)
    np.add.at(x, [0, 0], 1.0)
    _same(x, numpy.array([2.0, 0, 0]))


def test_testing_looks_at_values() -> None:
    def f(x: Any) -> Any:
        np.testing.assert_allclose(x, V)
        with pytest.raises(AssertionError, match="not equal"):
            np.testing.assert_array_equal(x, 0.0)
        return np.sum(x)

    adarray.grad(f)(V)


def test_save_and_load(tmp_path: Any) -> None:
    np.save(tmp_path / "x.npy", np.asarray(X))
    _same(np.load(tmp_path / "x.npy"), X)
    np.savetxt(tmp_path / "x.txt", np.asarray(X))
    _same(np.loadtxt(tmp_path / "x.txt"), X)


def test_like_gives_adarrays_from_numpy_itself() -> None:
    x = adarray.array([1.0])
    for r in (numpy.asarray([1, 2], like=x), numpy.array([x, x], like=x), numpy.zeros(2, like=x),
              numpy.arange(3, like=x), numpy.require([1.0], like=x)):  # fmt: skip
        assert isinstance(r, ADArray)
    with pytest.raises(adarray.TraceError, match="full with like=: a traced value would leave"):
        adarray.grad(lambda y: np.sum(numpy.full(2, y, like=y)))(1.0)

"""`scipy.special`: every record, every name, and how each is computed."""

from __future__ import annotations

import importlib
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import scipy.special as scipy_special

import adarray
import adarray.scipy.special as special
from adarray.base.op import COMPOSITES, CONSTANT_FUNCTIONS, FUNCTIONS
from adarray.core.dispatch import run
from adarray.core.protocol import traced
from adarray.errors import DTypeError, NotDifferentiableError, UnsupportedFunctionError
from adarray.scipy import RECORDS
from adarray.scipy._elementwise import REFUSED, sp
from adarray.testing import check_grads, opcheck

RECORD_NAMES = [n for n in RECORDS if n.startswith("special.")]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("name", RECORD_NAMES)
def test_record(name: str, dtype: type) -> None:
    opcheck(name, "numpy", dtype)


# -- the namespace -----------------------------------------------------------------------------

PUBLIC = [n for n in scipy_special.__all__ if not n.startswith("_")]


def kind_of(name: str) -> str:
    """Return how a public name is classified: differentiable, constant, refused or other."""
    member = getattr(special, name)
    if name in special.OTHERS:
        return "other"
    if isinstance(member, np.ufunc):
        if member in REFUSED:
            return "refused"
        if member in CONSTANT_FUNCTIONS:
            return "constant"
        return "differentiable" if member in FUNCTIONS or member in COMPOSITES else "unknown"
    if name in special.REASONS:
        return "refused"
    from adarray.scipy._drop_in import REPLACEMENTS

    if name in special.DISPATCHING or member in REPLACEMENTS.values():
        return "differentiable"
    return "unknown"


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_classified(name: str) -> None:
    assert kind_of(name) != "unknown"


def test_the_counts_of_the_classes() -> None:
    kinds = [kind_of(n) for n in PUBLIC]
    assert kinds.count("differentiable") > 220
    assert {"constant", "refused", "other"} <= set(kinds)


def test_the_drop_in_has_every_name() -> None:
    assert set(PUBLIC) <= set(dir(special))
    assert set(special.__all__) == set(PUBLIC)
    with pytest.raises(AttributeError, match=r"module 'adarray\.scipy\.special' has no attribute"):
        special.no_such_function  # noqa: B018


@pytest.mark.parametrize("ufunc", REFUSED, ids=lambda u: u.__name__)
def test_refused_ufuncs_give_the_reason(ufunc: np.ufunc) -> None:
    x = adarray.array(0.5, requires_grad=True)
    with pytest.raises(NotDifferentiableError) as caught:
        ufunc(*[1.0] * (ufunc.nin - 1), x)
    assert str(caught.value) == (
        f"{ufunc.__name__}: {REFUSED[ufunc]}; pass adarray.value_of(x) if no gradient should "
        "flow through it"
    )


def test_refused_functions_give_the_reason() -> None:
    x = adarray.array(2.0, requires_grad=True)
    with pytest.raises(UnsupportedFunctionError) as caught:
        special.factorial2(x)
    assert str(caught.value) == (
        "scipy.special.factorial2: it is a product over integers, which has no derivative; use "
        "gamma; write it with functions that have one, or pass adarray.value_of(x) if no "
        "gradient should flow through it"
    )
    assert special.factorial2(7) == scipy_special.factorial2(7)


def test_an_order_is_refused_by_name() -> None:
    v = adarray.array(0.5, requires_grad=True)
    with pytest.raises(NotDifferentiableError, match=r"special\.jv: no derivative with respect"):
        special.jv(v, 1.0)


@pytest.mark.parametrize(("name", "fixed"), [("jve", 0.5), ("yve", 0.5), ("ive", 0.5)])
@pytest.mark.parametrize("z", [0.7 + 0.4j, -0.6 - 0.3j, 0.5 - 1.1j])
def test_scaled_functions_are_not_analytic(name: str, fixed: float, z: complex) -> None:
    """Their change is linear over the reals only: real and imaginary steps are apart."""
    function = getattr(special, name)
    check_grads(lambda x, y: np.abs(function(fixed, x + 1j * y) + 1.0) ** 2, (z.real, z.imag))


def test_without_scipy_the_import_tells_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules["adarray.scipy"]
    monkeypatch.setitem(sys.modules, "scipy", None)
    monkeypatch.delitem(sys.modules, "adarray.scipy")
    with pytest.raises(ImportError, match=r"pip install adarray\[scipy\]"):
        importlib.import_module("adarray.scipy")
    sys.modules["adarray.scipy"] = module
    adarray.scipy = module


# -- ufuncs that are computed as others --------------------------------------------------------

P = (0.15, 0.8)
COMPOSED: list[tuple[str, tuple[Any, ...], tuple[int, ...]]] = [
    ("gdtr", (1.3, 2.1, 0.9), (0, 1, 2)),
    ("gdtrc", (1.3, 2.1, 0.9), (0, 1, 2)),
    ("gdtrix", (1.3, 2.1, 0.4), (0, 1, 2)),
    ("gdtria", (0.4, 2.1, 0.9), (0, 1, 2)),
    ("chdtr", (3.4, 2.1), (0, 1)),
    ("chdtrc", (3.4, 2.1), (0, 1)),
    ("chdtri", (3.4, 0.3), (0, 1)),
    ("pdtr", (3.0, 2.1), (1,)),
    ("pdtrc", (3.0, 2.1), (1,)),
    ("pdtri", (3, 0.4), (1,)),
    ("bdtr", (2.0, 7, 0.3), (2,)),
    ("bdtr", (7.0, 7, 0.3), (2,)),
    ("bdtrc", (2.0, 7, 0.3), (2,)),
    ("bdtri", (2.0, 7, 0.3), (2,)),
    ("nbdtr", (2, 7, 0.3), (2,)),
    ("nbdtrc", (2, 7, 0.3), (2,)),
    ("nbdtri", (2, 7, 0.3), (2,)),
    ("fdtr", (2.5, 3.5, 1.2), (0, 1, 2)),
    ("fdtrc", (2.5, 3.5, 1.2), (0, 1, 2)),
    ("fdtri", (2.5, 3.5, 0.6), (0, 1, 2)),
    ("nrdtrimn", (0.3, 1.5, 2.2), (0, 1, 2)),
    ("nrdtrisd", (0.3, 0.8, 2.2), (0, 1, 2)),
]


@pytest.mark.parametrize(("name", "args", "places"), COMPOSED, ids=lambda v: str(v)[:12])
def test_composed_ufunc(name: str, args: tuple[Any, ...], places: tuple[int, ...]) -> None:
    ufunc = getattr(special, name)
    arrays = tuple(np.array([a, a]) if i in places else a for i, a in enumerate(args))
    marked = [adarray.array(a, requires_grad=True) if i in places else a
              for i, a in enumerate(arrays)]  # fmt: skip
    got = ufunc(*marked)
    assert traced(got)
    np.testing.assert_allclose(adarray.value_of(got), ufunc(*arrays), rtol=1e-12)
    check_grads(ufunc, arrays, argnums=places)


# -- functions in Python -----------------------------------------------------------------------

X = np.array([[0.3, -1.2, 0.8], [2.0, 0.5, -0.4]])
FUNCTIONS_IN_PYTHON: list[tuple[str, Any, tuple[Any, ...]]] = [
    ("softmax", lambda x: special.softmax(x, axis=0), (X,)),
    ("log_softmax", lambda x: special.log_softmax(x, axis=1), (X,)),
    ("logsumexp", lambda x: special.logsumexp(x, axis=0, keepdims=True), (X,)),
    ("logsumexp b", lambda x, b: special.logsumexp(x, axis=1, b=b), (X, np.abs(X))),
    ("logsumexp sign", lambda x, b: special.logsumexp(x, b=b, return_sign=True)[0], (X, -X)),
    ("polygamma", lambda x: special.polygamma(2, x), (np.array([0.4, 2.5]),)),
    ("multigammaln", lambda a: special.multigammaln(a, 3), (np.array([2.1, 4.0]),)),
    ("comb", lambda n: special.comb(n, 2.0), (np.array([4.3, 1.5]),)),
    ("comb repeated", lambda n: special.comb(n, 2.0, repetition=True), (np.array([4.3]),)),
    ("perm", lambda n: special.perm(n, 2.0), (np.array([4.3, 1.5]),)),
    ("factorial", special.factorial, (np.array([4.3, 1.5, -1.5]),)),
    ("diric", lambda x: special.diric(x, 5), (np.array([0.3, 2.0, 2 * np.pi]),)),
    ("sinc", special.sinc, (np.array([0.0, 0.4]),)),
    ("softplus", special.softplus, (X,)),
    ("zeta", special.zeta, (np.array([2.2, 3.1]), np.array([1.0, 0.4]))),
    ("zeta of Riemann", special.zeta, (np.array([2.2, 0.4]),)),
    ("lambertw", lambda x: np.real(special.lambertw(x)), (np.array([0.0, 1.4]),)),
    ("lambertw -1", lambda x: np.real(special.lambertw(x, -1)), (np.array([-0.1, -0.3]),)),
    ("assoc_laguerre", lambda x: special.assoc_laguerre(x, 3, 0.5), (X,)),
    *[
        (f"spherical_{k}", lambda z, k=k, d=d: getattr(special, f"spherical_{k}")(2, z, d), (z,))
        for k, z in (("jn", X), ("yn", X), ("in", X), ("kn", np.abs(X)))
        for d in (False, True)
    ],
    *[
        (n, lambda z, n=n: getattr(special, n)(0.5, z, 2), (np.array([0.8, 2.3]),))
        for n in ("jvp", "yvp", "ivp", "kvp")
    ],
    ("legendre_p", lambda z: special.legendre_p(3, z, diff_n=2), (np.array([0.3, -0.7]),)),
    ("legendre_p_all", lambda z: special.legendre_p_all(3, z, diff_n=1), (np.array([0.3, -0.7]),)),
    (
        "assoc_legendre_p",
        lambda z: special.assoc_legendre_p(3, 2, z, norm=True, diff_n=2),
        (np.array([0.3, -0.7]),),
    ),
    (
        "assoc_legendre_p_all",
        lambda z: special.assoc_legendre_p_all(3, 2, z, diff_n=1),
        (np.array([0.3, -0.7]),),
    ),
    (
        "sph_legendre_p",
        lambda z: special.sph_legendre_p(3, 2, z, diff_n=2),
        (np.array([0.3, 2.7]),),
    ),
    (
        "sph_legendre_p_all",
        lambda z: special.sph_legendre_p_all(2, 2, z, diff_n=1),
        (np.array([0.3, 2.7]),),
    ),
    (
        "sph_harm_y",
        lambda t, p: np.abs(special.sph_harm_y(3, 1, t, p) + 1.0) ** 2,
        (np.array([0.3, 2.7]), np.array([0.3, 5.0])),
    ),
    (
        "sph_harm_y_all",
        lambda t, p: np.real(special.sph_harm_y_all(2, 2, t, p) * (1 - 0.5j)),
        (np.array([0.3, 2.7]), np.array([0.3, 5.0])),
    ),
]


@pytest.mark.parametrize(("name", "f", "args"), FUNCTIONS_IN_PYTHON, ids=lambda v: str(v)[:20])
def test_function_in_python(name: str, f: Any, args: tuple[np.ndarray, ...]) -> None:
    with np.errstate(all="ignore"):
        got = f(*(adarray.array(a, requires_grad=True) for a in args))
        assert traced(got)
        expected = f(*args)
        np.testing.assert_allclose(adarray.value_of(got), expected, rtol=1e-12, atol=1e-14)
        assert adarray.value_of(got).dtype == np.asarray(expected).dtype
        check_grads(f, args)


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp"])
def test_float32_stays(name: str) -> None:
    x = np.array([0.4, 1.2], np.float32)
    y, back = adarray.vjp(getattr(special, name), x)
    assert y.dtype == np.float32
    assert back(np.ones_like(y))[0].dtype == np.float32


def test_logsumexp_of_complex_numbers() -> None:
    z = np.array([0.3 + 0.4j, -0.2 + 1.0j])
    got = adarray.grad(lambda z: np.real(special.logsumexp(z)))(z)
    np.testing.assert_allclose(got, np.exp(z) / np.exp(z).sum())
    with pytest.raises(DTypeError, match="return_sign=True is not differentiated for complex"):
        adarray.grad(lambda z: special.logsumexp(z, return_sign=True)[0])(z)


def test_logsumexp_where_parts_are_minus_infinity() -> None:
    x = np.array([-np.inf, 0.0, 1.0])
    got = adarray.grad(special.logsumexp)(x)
    np.testing.assert_allclose(got, scipy_special.softmax(x), rtol=1e-14)


# -- complex arguments -------------------------------------------------------------------------

ANALYTIC = {
    "gamma": (), "loggamma": (), "psi": (), "rgamma": (), "erf": (), "erfc": (), "erfcx": (),
    "erfi": (), "dawsn": (), "wofz": (), "expm1": (), "log1p": (), "log_ndtr": (), "ndtr": (),
    "exp1": (), "expi": (), "spence": (), "wrightomega": (), "jv": (0.5,), "yv": (0.5,),
    "iv": (0.5,), "kv": (0.5,), "kve": (0.5,), "hankel1": (0.5,), "hankel2": (0.5,),
    "hankel1e": (0.5,), "hankel2e": (0.5,), "hyp0f1": (1.5,), "hyp1f1": (0.7, 1.5),
    "hyp2f1": (0.7, 0.4, 1.5), "xlogy": (0.7,), "xlog1py": (0.7,), "eval_legendre": (3,),
    "eval_chebyt": (3,), "eval_jacobi": (3, 0.5, 0.2), "elliprf": (1.0, 2.0),
    "elliprd": (1.0, 2.0), "elliprg": (1.0, 2.0), "elliprc": (1.0,), "elliprj": (1.0, 2.0, 0.5),
    "lambertw": (), "zeta": (),
}  # fmt: skip


@pytest.mark.parametrize("name", ANALYTIC)
def test_complex_derivative(name: str) -> None:
    """The gradient of Re f(z) is f'(z), without conjugate; so is the second one of f'."""
    function = getattr(special, name)
    fixed = ANALYTIC[name]
    z = np.array([0.4 + 0.3j, 0.7 - 0.2j])

    def f(z: Any) -> Any:
        return function(*fixed, z)

    def slope(z: Any) -> Any:
        return adarray.vjp(f, z)[1](np.ones(2, complex))[0]

    h = 1e-4
    along = (f(z + h) - f(z - h)) / (2 * h)
    np.testing.assert_allclose(slope(z), along, rtol=3e-7, atol=3e-8)
    transposed = (f(z + 1j * h) - f(z - 1j * h)) / (2j * h)
    np.testing.assert_allclose(slope(z), transposed, rtol=3e-7, atol=3e-8)
    again = adarray.vjp(slope, z)[1](np.ones(2, complex))[0]
    np.testing.assert_allclose(again, (slope(z + h) - slope(z - h)) / (2 * h), rtol=1e-6, atol=1e-7)


# -- the drop-in and plain SciPy ---------------------------------------------------------------


def test_plain_scipy_dispatches_without_the_drop_in() -> None:
    """In a fresh process, which imports nothing of `adarray.scipy`: the rules load themselves."""
    code = (
        "import numpy as np, adarray\n"
        "from scipy import special\n"
        "print(adarray.grad(lambda x: np.sum(special.gammaln(x)))(np.array([1.0, 2.0])).tolist())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    got = [float(v) for v in done.stdout.strip().strip("[]").split(",")]
    np.testing.assert_allclose(got, scipy_special.psi([1.0, 2.0]), rtol=1e-15)


@pytest.mark.parametrize("name", RECORD_NAMES)
def test_empty_operands(name: str) -> None:
    op = RECORDS[name]
    operands, params, _ = op.bind(*op.samples(np.random.default_rng(0))[0])
    empty = [None if x is None else np.zeros((0, 3), np.asarray(x).dtype) for x in operands]
    axis = {"axis": -1} if "axis" in op.params else {}
    places = [
        i
        for i, rule in enumerate(op.rules)
        if rule is not None and empty[i] is not None and empty[i].dtype.kind == "f"
    ]

    def f(*xs: Any) -> Any:
        full = list(empty)
        for i, x in zip(places, xs, strict=True):
            full[i] = x
        r = run(op, *full, **(params | axis))
        return sum(np.sum(np.real(part)) for part in (r if isinstance(r, tuple) else (r,)))

    slopes = adarray.grad(f, argnums=tuple(range(len(places))))(*(empty[i] for i in places))
    assert [s.shape for s in slopes] == [(0, 3)] * len(places)


def test_integrals_of_values_that_are_not_valid_are_nan() -> None:
    with np.errstate(all="ignore"):
        got = adarray.grad(lambda x: np.sum(special.elliprf(x, 1.0, 2.0)))(
            np.array([np.nan, np.inf, 0.5])
        )
        assert np.isnan(got[:2]).all()
        assert np.isfinite(got[2])
        got = adarray.grad(lambda a: np.sum(special.gammainc(a, 2.0)))(np.array([np.nan, -1.0]))
        assert np.isnan(got).all()


def test_untraced_adarrays_get_scipys_values() -> None:
    x = adarray.array([0.2, 0.4])
    for f in (special.gammaln, special.softmax, special.expit, special.logsumexp):
        got = f(x)
        assert isinstance(got, adarray.ADArray)
        np.testing.assert_array_equal(got.numpy(), f(np.array([0.2, 0.4])))
    counts = special.factorial2(adarray.array([3, 5]))
    np.testing.assert_allclose(counts.numpy(), [3, 15], rtol=1e-14)


def test_the_ufuncs_are_scipys_own() -> None:
    assert special.gammaln is sp.gammaln
    assert isinstance(special.gammaln, np.ufunc)


def test_slopes_close_to_zero() -> None:
    slope = adarray.grad(sp.zetac)
    assert slope(-1e-8) == pytest.approx(slope(0.0), rel=1e-6)
    assert adarray.grad(slope)(-1e-8) == pytest.approx(adarray.grad(slope)(0.0), rel=1e-6)
    assert adarray.grad(sp.it2struve0)(0.0) == pytest.approx(-2 / np.pi)


def test_logsumexp_without_elements_of_weight_zero() -> None:
    x, b = np.array([0.0, 0.4, 0.9]), np.array([0.0, 1.0, 2.0])
    with np.errstate(divide="ignore"):
        g = adarray.grad(lambda x: special.logsumexp(np.sqrt(x), b=b))(x)
        weights = b[1:] * np.exp(np.sqrt(x[1:]))
        expected = weights / weights.sum() / (2 * np.sqrt(x[1:]))
        np.testing.assert_allclose(g, [0.0, *expected])
        jitted = adarray.jit(adarray.grad(lambda x, b: special.logsumexp(np.sqrt(x), b=b)))
        for _ in range(3):
            np.testing.assert_allclose(jitted(x, b), g)
    with np.errstate(divide="ignore"):
        both = adarray.grad(lambda a, b: special.logsumexp(a, b=b), argnums=(0, 1))
        np.testing.assert_allclose(both(np.zeros(2), np.array([0.0, 2.0])), [[0, 1], [0.5, 0.5]])

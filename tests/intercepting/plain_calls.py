"""Calls on plain data, as a client module makes them; each one returns what it computed.

The tests load this file under several names, of which only some are intercepted.
It never heard of adarray.
"""

import builtins
import cmath
import copy
import functools
import io
import math
import operator
import pickle
import types
from math import exp, gamma
from math import sqrt as root

import numpy
import numpy as np
import numpy.linalg as la
import scipy.fft
import scipy.integrate
import scipy.interpolate
import scipy.linalg
import scipy.ndimage
import scipy.optimize
import scipy.signal
import scipy.sparse
import scipy.spatial
import scipy.special
import scipy.stats
from numpy import add, array, concatenate, float32, float64, linspace, ndarray, pi, sin, zeros
from numpy.linalg import norm, solve
from numpy.polynomial import Chebyshev
from numpy.random import default_rng

A = np.arange(12.0).reshape(3, 4)
S = np.array([[4.0, 1.0, 0.5], [1.0, 3.0, 0.2], [0.5, 0.2, 2.0]])
B = np.array([1.0, -2.0, 0.5])
FLOAT = builtins.float
DTYPE = np.float64


def rng():
    return np.random.default_rng(7)


def legacy():
    return np.random.RandomState(7)


def shuffled(x):
    r = rng()
    r.shuffle(x)
    return x


def saved(x):
    file = io.BytesIO()
    np.save(file, x)
    file.seek(0)
    return np.load(file)


def archived(**arrays):
    file = io.BytesIO()
    np.savez(file, **arrays)
    file.seek(0)
    return dict(np.load(file))


def written(x):
    file = io.StringIO()
    np.savetxt(file, x, fmt="%.4f")
    return file.getvalue()


def filled(n):
    out = np.zeros(n)
    for k in range(n):
        out[k] = math.sqrt(k) + float(k)
    return out


def into(function, *args):
    out = np.empty(np.shape(args[0]))
    r = function(*args, out=out)
    assert r is out
    return out


def raised(function, *args, **kwargs):
    try:
        function(*args, **kwargs)
    except Exception as error:
        return type(error).__name__, str(error)
    raise AssertionError


def records():
    x = np.zeros(2, dtype=[("name", "U4"), ("mass", "f8")])
    x["name"] = "a", "bc"
    x["mass"] = 1.5, 2.5
    return x


def alias():
    x = np.arange(6.0)
    y = np.asarray(x).reshape(2, 3)
    x[0] = 10.0
    y[1, 1] = -1.0
    return x, y


CALLS = {
    # random generators
    "choice p": lambda: rng().choice(5, 3, p=np.array([0.1, 0.2, 0.3, 0.2, 0.2])),
    "choice without": lambda: rng().choice(np.arange(10), 4, replace=False),
    "choice rows": lambda: rng().choice(A, 2, axis=0),
    "normal": lambda: rng().normal(np.array([0.0, 1.0]), np.array([1.0, 2.0])),
    "permutation": lambda: rng().permutation(np.arange(8)),
    "permuted": lambda: rng().permuted(np.arange(12).reshape(3, 4), axis=1),
    "multivariate": lambda: rng().multivariate_normal(np.zeros(3), S),
    "integers": lambda: rng().integers(0, np.array([3, 10, 100])),
    "dirichlet": lambda: rng().dirichlet(np.array([1.0, 2.0, 3.0])),
    "multinomial": lambda: rng().multinomial(20, np.array([0.2, 0.3, 0.5])),
    "legacy choice": lambda: legacy().choice(4, 3, p=np.array([0.1, 0.2, 0.3, 0.4])),
    "legacy normal": lambda: legacy().normal(size=(2, 2)),
    "legacy multivariate": lambda: legacy().multivariate_normal(B, S, size=2),
    "bit generator": lambda: np.random.Generator(np.random.PCG64(3)).random(3),
    "from import": lambda: default_rng(11).standard_normal(4),
    "seed sequence": lambda: np.random.SeedSequence(5).generate_state(3),
    "shuffle": lambda: shuffled([1, 2, 3, 4]),
    "poisson": lambda: rng().poisson(np.array([1.0, 10.0])),
    # sorting and searching
    "sort": lambda: np.sort(B),
    "sort method": lambda: np.array([3.0, 1.0, 2.0]).argsort(),
    "stable": lambda: np.argsort(np.array([1, 0, 1, 0]), kind="stable"),
    "lexsort": lambda: np.lexsort((np.array([1, 0, 1]), np.array([2, 2, 0]))),
    "unique": lambda: np.unique(np.array([3, 1, 3]), return_inverse=True, return_counts=True),
    "searchsorted": lambda: np.searchsorted(np.array([1.0, 2.0, 3.0]), [0.5, 2.0, 9.0]),
    "partition": lambda: np.partition(np.array([3, 1, 2, 0]), 2),
    "python sorted": lambda: sorted(np.array([3.0, 1.0, 2.0])),
    "argmax": lambda: np.argmax(A, axis=1),
    "where": lambda: np.where(A > 5),
    # creation
    "array": lambda: np.array([[1, 2], [3, 4]]),
    "array float32": lambda: np.array([1, 2], dtype=np.float32),
    "array dtype float": lambda: np.array([1, 2], dtype=float),
    "zeros dtype int": lambda: np.zeros(3, int),
    "full": lambda: np.full((2, 2), 7.0),
    "arange": lambda: np.arange(0, 1, 0.25),
    "linspace": lambda: linspace(0, 1, 5),
    "linspace step": lambda: np.linspace(0, 1, 5, retstep=True),
    "meshgrid": lambda: np.meshgrid(np.arange(2), np.arange(3.0)),
    "mgrid": lambda: np.mgrid[0:2, 0:3],
    "r_": lambda: np.r_[1:4, 0, [7.5]],
    "c_": lambda: np.c_[np.array([1, 2]), np.array([3, 4])],
    "eye": lambda: np.eye(3, k=1),
    "fromiter": lambda: np.fromiter((k * k for k in range(4)), dtype=float),
    "frombuffer": lambda: np.frombuffer(b"\x01\x02\x03\x04", dtype=np.uint8),
    "fromfunction": lambda: np.fromfunction(lambda i, j: i + j, (2, 3)),
    "fromstring": lambda: np.fromstring("1 2 3", sep=" "),
    "empty_like": lambda: np.empty_like(A).shape,
    "filled": lambda: filled(5),
    "indices": lambda: np.indices((2, 2)),
    "tri": lambda: np.tril(np.ones((3, 3))),
    "copy": lambda: np.copy(A, order="F").flags.f_contiguous,
    "block": lambda: np.block([[np.eye(2), np.zeros((2, 1))], [np.ones((1, 3))]]),
    "aliasing": alias,
    "from numpy": lambda: concatenate([array([1.0]), zeros(2)]),
    # ufuncs and their methods
    "reduce": lambda: np.add.reduce(A, axis=1),
    "accumulate": lambda: np.multiply.accumulate(np.array([1, 2, 3])),
    "outer": lambda: np.subtract.outer(B, B),
    "reduceat": lambda: np.add.reduceat(np.arange(8), [0, 4, 1, 5]),
    "at": lambda: (lambda x: (np.add.at(x, [0, 0, 1], 1.0), x)[1])(np.zeros(3)),
    "from import reduce": lambda: add.reduce(B),
    "out": lambda: into(np.multiply, B, 2.0),
    "where argument": lambda: np.sqrt(np.array([4.0, -1.0]), out=np.zeros(2), where=[True, False]),
    "casting": lambda: np.add(1, 2, dtype=np.float32, casting="unsafe"),
    "two results": lambda: np.divmod(np.array([7, 9]), 2),
    "modf": lambda: np.modf(np.array([1.5, -2.25])),
    "errstate": lambda: np.errstate(divide="ignore")(np.log)(0.0),
    "frompyfunc": lambda: np.frompyfunc(lambda a, b: a + b, 2, 1)(np.arange(3), 1).tolist(),
    "vectorize": lambda: np.vectorize(lambda a: a + 1.5, otypes=[float])(np.arange(3)),
    "nin": lambda: (np.add.nin, np.add.types[:2], add.identity, sin.__name__),
    "functools": lambda: functools.reduce(np.add, [1, 2, 3]),
    "map": lambda: list(map(np.sin, [0.0, 1.0])),
    # reductions and statistics
    "mean": lambda: np.mean(A, axis=0, keepdims=True),
    "std": lambda: A.std(ddof=1),
    "median": lambda: np.median(A, axis=1),
    "percentile": lambda: np.percentile(A, [25, 75]),
    "histogram": lambda: np.histogram(A, bins=3),
    "bincount": lambda: np.bincount([0, 1, 1, 3], weights=[1.0, 2.0, 3.0, 4.0]),
    "cov": lambda: np.cov(A),
    "corrcoef": lambda: np.corrcoef(rng().normal(size=(2, 5))),
    "nanmean": lambda: np.nanmean(np.array([1.0, np.nan, 3.0])),
    "cumsum": lambda: np.cumsum(A, axis=1),
    "interp": lambda: np.interp([0.5, 1.5], [0, 1, 2], [0.0, 10.0, 5.0]),
    "gradient": lambda: np.gradient(np.array([1.0, 4.0, 9.0])),
    "polyfit": lambda: np.polyfit([0.0, 1.0, 2.0], [1.0, 3.0, 7.0], 2).round(9),
    "polyval": lambda: np.polyval([1.0, 2.0, 3.0], 2.0),
    "Polynomial": lambda: np.polynomial.Polynomial([1.0, 2.0])(np.array([1.0, 2.0])),
    "polynomial objects": lambda: (
        repr(Chebyshev([1.0, 2.0])), pickle.loads(pickle.dumps(Chebyshev([1.0, 2.0])))(0.5),
        Chebyshev.basis(2)(0.3), Chebyshev.fit(np.arange(4.0), np.arange(4.0) ** 2, 2)(1.5),
        isinstance(Chebyshev([1]), np.polynomial.Chebyshev), np.poly1d([1.0, -3.0, 2.0]).r.tolist(),
        (np.polynomial.Polynomial([1, 2]) ** 2).coef, str(np.poly1d([1, 2])),
        np.poly1d([1, 2]) == np.poly1d([1, 2]),
    ),
    "legendre": lambda: np.polynomial.legendre.leggauss(3),
    "roots": lambda: np.sort(np.roots([1.0, -3.0, 2.0])),
    # linear algebra and Fourier transforms
    "solve": lambda: np.linalg.solve(S, B),
    "solve from import": lambda: solve(S, B),
    "inv": lambda: la.inv(S),
    "eigh": lambda: np.linalg.eigh(S).eigenvalues,
    "svd": lambda: la.svd(A, compute_uv=False),
    "qr": lambda: np.linalg.qr(S, mode="r"),
    "lstsq": lambda: np.linalg.lstsq(S, B, rcond=None)[0],
    "norm": lambda: norm(A, axis=1),
    "det": lambda: np.linalg.slogdet(S),
    "singular": lambda: raised(np.linalg.solve, np.zeros((2, 2)), np.ones(2)),
    "einsum": lambda: np.einsum("ij,kj->ik", A, A),
    "matmul": lambda: A @ A.T,
    "tensordot": lambda: np.tensordot(A, A, axes=([1], [1])),
    "fft": lambda: np.fft.fft(B),
    "rfft": lambda: np.fft.irfft(np.fft.rfft(B, 4), 4),
    "fftfreq": lambda: np.fft.fftfreq(4, 0.5),
    # SciPy: Cython and Fortran callers
    "cholesky": lambda: scipy.linalg.cholesky(S, lower=True),
    "expm": lambda: scipy.linalg.expm(S / 10),
    "lu": lambda: scipy.linalg.lu_solve(scipy.linalg.lu_factor(S), B),
    "scipy fft": lambda: scipy.fft.dct(B),
    "quad": lambda: scipy.integrate.quad(np.sin, 0.0, 1.0),
    "quad math": lambda: scipy.integrate.quad(exp, 0.0, 1.0),
    "odeint": lambda: scipy.integrate.odeint(lambda y, t: -y, 1.0, np.linspace(0, 1, 3)),
    "solve_ivp": lambda: scipy.integrate.solve_ivp(lambda t, y: -y, (0, 1), [1.0]).y[:, -1],
    "minimize": lambda: scipy.optimize.minimize(lambda x: np.sum(x**2), B).x.round(4),
    "brentq": lambda: scipy.optimize.brentq(lambda x: math.cos(x) - x, 0.0, 1.0),
    "curve_fit": lambda: scipy.optimize.curve_fit(
        lambda x, a: a * x, np.arange(3.0), np.arange(3.0) * 2
    )[0],
    "spline": lambda: scipy.interpolate.CubicSpline([0, 1, 2], [0.0, 1.0, 0.0])(0.5),
    "interp1d": lambda: scipy.interpolate.interp1d([0, 1], [0.0, 2.0])(0.25),
    "sparse": lambda: (scipy.sparse.csr_matrix(S) @ B),
    "sparse build": lambda: scipy.sparse.coo_matrix(
        (np.array([1.0, 2.0]), (np.array([0, 1]), np.array([1, 0])))
    ).toarray(),
    "kdtree": lambda: scipy.spatial.cKDTree(A.T).query(np.zeros(3)),
    "cdist": lambda: scipy.spatial.distance.cdist(A, A),
    "gamma": lambda: scipy.special.gamma(np.array([0.5, 4.0])),
    "logsumexp": lambda: scipy.special.logsumexp(B),
    "convolve": lambda: scipy.signal.convolve(B, np.array([1.0, 1.0])),
    "lfilter": lambda: scipy.signal.lfilter([1.0], [1.0, -0.5], B),
    "gaussian": lambda: scipy.ndimage.gaussian_filter1d(np.arange(5.0), 1.0),
    "label": lambda: scipy.ndimage.label(np.array([1, 0, 1])),
    "stats": lambda: scipy.stats.norm.pdf(np.array([0.0, 1.0]), 0.0, 2.0),
    "linregress": lambda: tuple(scipy.stats.linregress(np.arange(4.0), [1.0, 2.0, 2.5, 4.0])),
    "rvs": lambda: scipy.stats.norm.rvs(size=3, random_state=1),
    "rvs from a generator": lambda: scipy.stats.gamma.rvs(
        2.0, size=3, random_state=np.random.default_rng(1)
    ),
    "compiled code that draws": lambda: scipy.stats.dunnett(
        np.array([7.4, 8.5, 7.2]), np.array([9.76, 8.8, 7.7]),
        control=np.array([12.8, 9.68, 12.2]), rng=np.random.default_rng(0),
    ).pvalue,
    "frozen": lambda: scipy.stats.gamma(2.0).cdf([1.0, 2.0]),
    # pickling, copying, printing, files
    "pickle ufunc": lambda: pickle.loads(pickle.dumps(np.sin)) is pickle.loads(
        pickle.dumps(numpy.sin)
    ),
    "pickle function": lambda: pickle.loads(pickle.dumps(np.mean))(A),
    "pickle from import": lambda: pickle.loads(pickle.dumps(sin))(1.0),
    "pickle array function": lambda: pickle.loads(pickle.dumps(array))([1.0]),
    "pickle partial": lambda: pickle.loads(pickle.dumps(functools.partial(sin, 1.0)))(),
    "pickle math": lambda: pickle.loads(pickle.dumps(exp))(1.0),
    "pickle array": lambda: pickle.loads(pickle.dumps(A)),
    "pickle generator": lambda: pickle.loads(pickle.dumps(rng())).random(),
    "pickle float": lambda: pickle.loads(pickle.dumps([float, 1.5, {"t": float}])) == [
        float, 1.5, {"t": float}
    ],
    "copy function": lambda: copy.deepcopy(sin)(1.0),
    "deepcopy": lambda: copy.deepcopy({"a": A})["a"],
    "str": lambda: str(np.array([1.0, 2.5])),
    "repr plain": lambda: repr(A),
    "array2string": lambda: np.array2string(np.array([1.0, 2.0]), precision=2),
    "printoptions": lambda: np.format_float_scientific(1234.5, precision=2),
    "format": lambda: f"{np.float64(1.5):.3f} {np.sum(A):.1f} {np.pi:.4f}",
    "percent": lambda: f"{np.mean(A):.2f} {np.argmax(A):d}",
    "save": lambda: saved(A),
    "save made": lambda: saved(np.array([1, 2, 3])),
    "savez": lambda: archived(a=np.ones(2), b=np.array(3)),
    "savetxt": lambda: written(np.array([[1.0, 2.0]])),
    "loadtxt": lambda: np.loadtxt(io.StringIO("1 2\n3 4")),
    "genfromtxt": lambda: np.genfromtxt(io.StringIO("1,2\n3,4"), delimiter=","),
    "tolist": lambda: np.array([[1, 2], [3, 4]]).tolist(),
    "tobytes": lambda: np.array([1.0]).tobytes() if hasattr(np.zeros(1), "tobytes") else 0,
    "memoryview": lambda: bytes(memoryview(A)[0]) if A.ndim == 1 else A.tobytes(),
    # dtypes, structured arrays, text, dates, masks
    "dtype": lambda: (np.dtype(float), np.dtype("f4"), np.dtype(np.int64).name),
    "finfo": lambda: (np.finfo(float).eps, np.iinfo(np.int32).max, np.finfo(np.float32).tiny),
    "result_type": lambda: np.result_type(np.float32, 1.0, np.array([1])),
    "can_cast": lambda: np.can_cast(np.float64, np.float32),
    "issubdtype": lambda: np.issubdtype(np.array([1.0]).dtype, np.floating),
    "scalar types": lambda: (np.float32(1.5), np.int64(3), np.float64("2.5"), np.bool_(1)),
    "astype": lambda: np.array([1.7, -1.7]).astype(int),
    "view": lambda: A.view(np.int64)[0, 0],
    "structured": records,
    "structured math": lambda: np.sort(records(), order="mass")["mass"],
    "recarray": lambda: np.rec.array([(1, 2.0)], dtype=[("a", int), ("b", float)]).b,
    "strings": lambda: np.strings.upper(np.array(["ab", "c"])),
    "char": lambda: np.char.add(np.array(["a"]), np.array(["b"])),
    "objects": lambda: np.array([1, "a", None], dtype=object),
    "dates": lambda: np.arange("2020-01", "2020-03", dtype="datetime64[M]"),
    "timedelta": lambda: np.datetime64("2020-01-03") - np.datetime64("2020-01-01"),
    "masked": lambda: np.ma.masked_array([1.0, 2.0, 3.0], mask=[0, 1, 0]).mean(),
    "masked filled": lambda: np.ma.masked_invalid(np.array([1.0, np.nan])).filled(0.0),
    "matrix": lambda: (np.ma.getmaskarray(np.ma.array([1, 2])), np.ndim(np.float64(1))),
    "complex": lambda: np.abs(np.array([3 + 4j])),
    "big endian": lambda: np.array([1.0, 2.0], dtype=">f8").sum(),
    "bits": lambda: np.packbits(np.array([1, 0, 1, 0, 0, 0, 0, 1], dtype=np.uint8)),
    "types of one's own": lambda: (
        DTYPE(2.5), float32([1, 2]), float64("3"), np.zeros(2, DTYPE), np.dtype(float32),
        np.zeros(1).dtype == DTYPE, DTYPE in (float64, float32), {float64: 1}[DTYPE],
        isinstance(DTYPE(1), float64), issubclass(float64, DTYPE), issubclass(DTYPE, float),
        np.issubdtype(DTYPE, np.floating), np.issubdtype(np.float64, float64), repr(float32),
        np.result_type(float32, float64), np.finfo(float32).max, DTYPE.__name__,
        float64.fromhex("0x1p0"),
    ),
    "types in calls": lambda: (
        np.array([1, 2]).astype(float32), np.random.default_rng(0).random(2, dtype=float32),
        np.frombuffer(bytes(8), DTYPE), np.dtype([("a", DTYPE)]), np.asarray([1], dtype=float32),
        np.fromiter([1, 2], dtype=DTYPE), np.can_cast(float64, float32), float64(np.ones((1, 1))),
    ),
    "pickle types": lambda: pickle.loads(pickle.dumps([DTYPE, float32])) == [float64, float32],
    # indexing and in-place updates
    "take": lambda: np.take(A, [0, 2], axis=1),
    "fancy": lambda: A[np.array([0, 2]), np.array([1, 3])],
    "mask": lambda: A[np.array([True, False, True])],
    "index array scalar": lambda: [10, 20, 30][np.argmax(B)],
    "range": lambda: list(range(np.array([2, 3])[1])),
    "slice": lambda: [1, 2, 3, 4][np.array([1, 2])[0] :],
    "dictionary": lambda: {float(k): int(k) for k in np.array([1.0, 2.0])},
    "ix_": lambda: A[np.ix_([0, 1], [1, 2])],
    "put": lambda: (lambda x: (np.put(x, [0, 2], [9.0, 8.0]), x)[1])(np.zeros(3)),
    "fill_diagonal": lambda: (lambda x: (np.fill_diagonal(x, 5.0), x)[1])(np.zeros((2, 2))),
    "copyto": lambda: (lambda x: (np.copyto(x, 3.0), x)[1])(np.zeros(2)),
    "augmented": lambda: operator.iadd(np.ones(2), np.array([1.0, 2.0])),
    "nditer": lambda: [float(x) for x in np.nditer(np.array([1.0, 2.0]))],
    "ndenumerate": lambda: [(i, float(v)) for i, v in np.ndenumerate(np.array([[1.0, 2.0]]))],
    "broadcast": lambda: np.broadcast_shapes((2, 1), (3,)),
    "sliding": lambda: np.lib.stride_tricks.sliding_window_view(np.arange(4), 2),
    "apply": lambda: np.apply_along_axis(np.sum, 0, A),
    "pad": lambda: np.pad(B, 1, mode="edge"),
    "roll": lambda: np.roll(A, 1, axis=1),
    # numpy.testing
    "assert_allclose": lambda: np.testing.assert_allclose(np.array([1.0]), [1.0 + 1e-12]),
    "assert fails": lambda: raised(np.testing.assert_array_equal, B, -B),
    # Python's own functions
    "math": lambda: (math.sqrt(2.0), math.floor(2.7), math.log(8, 2), root(9.0), gamma(5.0)),
    "math array": lambda: math.fsum(np.array([0.1] * 10)),
    "math error": lambda: raised(math.sqrt, -1.0),
    "math domain": lambda: raised(math.log, 0.0),
    "math overflow": lambda: raised(exp, 1e4),
    "cmath": lambda: cmath.sqrt(-1.0),
    "isinstance": lambda: (
        isinstance(np.ones(2), np.ndarray), isinstance(np.ones(2), ndarray),
        isinstance(np.float64(1), float), isinstance(1.5, float), isinstance(1, float),
        isinstance(np, types.ModuleType), isinstance(np.add, np.ufunc), isinstance([], ndarray),
        issubclass(np.float64, float), isinstance(np.array(1.0), (list, np.ndarray)),
    ),
    "float": lambda: (float("1.5"), float(np.float64(2)), float(np.array(3.0)), complex(1, 2)),
    "float error": lambda: raised(float, "x"),
    "float class": lambda: (
        float.__name__, hash(float) == hash(FLOAT), operator.eq(float, FLOAT),
        operator.eq(FLOAT, float),
        float in (int, FLOAT), {FLOAT: 1}[float], float.fromhex("0x1p-1"), repr(float),
    ),
    "constants": lambda: (np.pi, pi, np.inf, math.e, np.newaxis is None, np.nan != np.nan),
    "attributes": lambda: (np.__name__, np.sin.__name__, sin.__doc__ == np.sin.__doc__,
                           array.__module__, math.__name__, np.linalg.__name__),
    "unknown attribute": lambda: raised(getattr, np, "no_such_name"),
    "wrong arguments": lambda: raised(np.sum),
    "dir": lambda: len(dir(np)) == len(dir(numpy)) and "sin" in dir(np),
}  # fmt: skip

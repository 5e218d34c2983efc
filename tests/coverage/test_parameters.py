"""Every parameter of every function that is differentiated: honoured or refused, never swallowed.

A parameter is given a value that changes NumPy's own result. The traced call must
then give that changed result, with right derivatives, or an error of adarray's.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from numpy_calls import MODULES, RNG, SPD, V, X, Y, call_of, function_of, leaves_of, table

from adarray import ADArray, ADArrayError, vjp
from adarray.testing import check_grads

MASK = np.array([True, False, True])
# Values to try for a parameter of this name, or of this function and name.
VALUES: dict[str, list[Any]] = {
    "aweights": [np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 2.0, 0.5])],
    "allow_pickle": [],
    "append": [0.7],
    "assume_unique": [True],
    "axes": [(1, 0), ([1], [0]), 1, [(-1,), (-1,), ()], (0,), (0, 1)],
    "axis": [0, 1, -1, (0, 1), None, (0,)],
    "axis1": [1],
    "axis2": [2],
    "axisa": [0],
    "axisb": [0],
    "axisc": [0],
    "a_max": [0.5],
    "a_min": [0.5],
    "max": [0.5],
    "min": [0.5],
    "base": [2.0],
    "bias": [True],
    "bins": [4, np.linspace(0.0, 1.0, 4)],
    "bitorder": ["little"],
    "compute_uv": [False],
    "condition": [],
    "copy": [True],
    "correction": [1, 1.0],
    "cov": [True],
    "ddof": [1],
    "decimals": [1],
    "default": [0.5],
    "deg": [True],
    "descending": [True],
    "density": [True],
    "discont": [4.0, 3.3],
    "dtype": [np.float32, np.complex128],
    "dx": [0.5],
    "edge_order": [2],
    "endpoint": [False],
    "exact": [],
    "full": [True],
    "full_matrices": [False],
    "fweights": [np.array([1, 2, 3, 1]), np.array([1, 2, 3])],
    "hermitian": [True],
    "include_initial": [True],
    "increasing": [True],
    "ind": [2],
    "indexing": ["ij"],
    "initial": [0.55, 10.0, -10.0],
    "interpolation": ["lower"],
    "invert": [True],
    "k": [1],
    "keepdims": [True],
    "kind": ["stable"],
    "left": [-1.0],
    "m": [2],
    "M": [2],
    "mean": [np.float64(0.3)],
    "method": ["lower", "midpoint", "weibull"],
    "mode": ["same", "full", "clip", "wrap", "reduced", "complete", "edge", "reflect"],
    "n": [2, 3, 5],
    "N": [3],
    "nan": [0.5],
    "ndmin": [3],
    "neginf": [0.0],
    "norm": ["ortho", "forward"],
    "num": [7],
    "offset": [1],
    "optimize": [True],
    "ord": [1, np.inf, "fro"],
    "order": ["F"],
    "overwrite_input": [True],
    "period": [0.5],
    "posinf": [0.0],
    "prepend": [0.3],
    "range": [(0.0, 0.6)],
    "rcond": [0.5, 0.4],
    "repeats": [3],
    "return_counts": [True],
    "return_index": [True],
    "return_indices": [True],
    "return_inverse": [True],
    "returned": [True],
    "right": [2.0, True],
    "rowvar": [False],
    "rtol": [0.5],
    "s": [(2, 4)],
    "shape": [(2, 2), (5,)],
    "shift": [1],
    "side": ["right"],
    "sorted": [True],
    "sorter": [np.array([1, 0, 2, 3])],
    "spacing": [],
    "step": [],
    "to_begin": [0.5],
    "to_end": [0.5],
    "tol": [0.5],
    "trim": ["f"],
    "upper": [True],
    "UPLO": ["U"],
    "w": [np.array([1.0, 2.0, 3.0, 4.0])],
    "weights": [np.array([1.0, 2.0, 3.0, 4.0]), X],
    "where": [MASK, np.array([True, False, True, True]), X > 0.5],
    "x": [V, np.array([0.0, 1.0, 3.0])],
    "y": [X, V],
    "period of unwrap": [5.0],
    "fill_value": [0.5],
    "constant_values": [0.5],
    "separator": [],
    "zi": [],
}
# Parameters that never change values, shapes or dtypes: memory, subclasses, speed.
NEUTRAL = {
    "subok", "like", "device", "copy", "casting", "kind", "stable", "optimize", "order",
    "overwrite_input", "check_rep", "equal_nan", "allow_pickle", "fix_imports", "readonly",
    "writeable", "strict", "out", "sorted", "signature",
}  # fmt: skip
# Parameters for which no value changes the result, and why.
WITHOUT_EFFECT: dict[str, str] = {
    "numpy.nan_to_num.copy": "memory",
    "numpy.linalg.matrix_rank.hermitian": "another algorithm",
    "numpy.linalg.pinv.hermitian": "another algorithm",
    "numpy.linalg.svd.hermitian": "another algorithm",
    "numpy.polyfit.rcond": "refused: drops directions",
    "numpy.intersect1d.assume_unique": "the data are",
    "numpy.setxor1d.assume_unique": "the data are",
    "numpy.setdiff1d.assume_unique": "the data are",
    "numpy.histogram_bin_edges.weights": "NumPy does not read it",
    "numpy.corrcoef.bias": "until NumPy 2.3, which warns of it",
    "numpy.corrcoef.ddof": "until NumPy 2.3, which warns of it",
}
B4 = np.linspace(0.2, 1.4, 16).reshape(4, 4) ** 2 + np.eye(4)
T3 = RNG.uniform(0.2, 0.9, size=(2, 3, 4))
NANS = np.array([0.3, np.nan, np.inf, -np.inf, 0.4])
# Where the usual call cannot show an effect: a call that takes the argument, x, and values.
SPECIAL: dict[str, tuple[Callable[..., Any], Any, list[Any]]] = {
    "numpy.angle.deg": (lambda f, x, **k: f(x * 1j + 1.0, **k), X, [True]),
    "numpy.reshape.newshape": (
        lambda f, x, **k: f(x, **(k or {"shape": (3, 3)})), X, [(9,)]  # until NumPy 2.3
    ),
    "numpy.append.axis": (lambda f, x, **k: f(x, x, **k), X, [0, 1]),
    "numpy.array_split.axis": (lambda f, x, **k: f(x, 3, **k), X, [1]),
    "numpy.bincount.minlength": (lambda f, x, **k: f([0, 1, 1], weights=x, **k), X[0], [6]),
    "numpy.apply_along_axis.kwargs": (
        lambda f, x, **k: f(np.sum, 0, x, **k.get("kwargs", {})), X, [{"keepdims": True}]
    ),
    "numpy.choose.mode": (
        lambda f, x, **k: f([0, -1, 1], [x, 2 * x], **{"mode": "wrap", **k}), X[0], ["clip"]
    ),
    "numpy.clip.a_min": (lambda f, x, **k: f(x, **{"a_min": 0.1, **k}, a_max=0.8), X, [0.5]),
    "numpy.clip.a_max": (lambda f, x, **k: f(x, 0.1, **{"a_max": 0.8, **k}), X, [0.5]),
    "numpy.clip.kwargs": (lambda f, x, **k: f(x, 0.3, 0.6, **k.get("kwargs", {})), X,
                          [{"dtype": np.float32}, {"casting": "unsafe"}]),
    "numpy.compress.axis": (lambda f, x, **k: f([True, False, True], x, **k), X, [0, 1]),
    "numpy.concat.axis": (lambda f, x, **k: f([x, x], **k), X, [1, None]),
    "numpy.concatenate.axis": (lambda f, x, **k: f([x, x], **k), X, [1, None]),
    "numpy.copyto.where": (lambda f, x, **k: _copied(f, x, **k), X, [X > 0.5]),
    "numpy.cov.ddof": (lambda f, x, **k: f(x, **k), X, [0]),
    "numpy.cov.fweights": (lambda f, x, **k: f(x, **k), X, [np.array([1, 2, 3])]),
    "numpy.cov.aweights": (lambda f, x, **k: f(x, **k), X, [np.array([1.0, 2.0, 0.5])]),
    "numpy.cumulative_prod.axis": (lambda f, x, **k: f(x, **{"axis": 0, **k}), X, [1]),
    "numpy.cumulative_sum.axis": (lambda f, x, **k: f(x, **{"axis": 0, **k}), X, [1]),
    "numpy.diagonal.axis1": (lambda f, x, **k: f(x, **k), T3, [2]),
    "numpy.diagonal.axis2": (lambda f, x, **k: f(x, **k), T3, [2]),
    "numpy.trace.axis1": (lambda f, x, **k: f(x, **k), T3, [2]),
    "numpy.trace.axis2": (lambda f, x, **k: f(x, **k), T3, [2]),
    "numpy.einsum.kwargs": (lambda f, x, **k: f("ij,jk", x, x, **k.get("kwargs", {})), X,
                            [{"dtype": np.float32, "casting": "same_kind"}, {"order": "F"}]),
    "numpy.fill_diagonal.wrap": (lambda f, x, **k: _filled(f, x, **k), T3.reshape(8, 3), [True]),
    "numpy.geomspace.axis": (lambda f, x, **k: f(x, 2 * x, 4, **k), V, [1, -1]),
    "numpy.linspace.axis": (lambda f, x, **k: f(x, 2 * x, 5, **k), V, [1, -1]),
    "numpy.linspace.retstep": (lambda f, x, **k: f(x, 2 * x, 5, **k), V, [True]),
    "numpy.logspace.axis": (lambda f, x, **k: f(x, 2 * x, 5, **k), V, [1, -1]),
    "numpy.histogram2d.range": (lambda f, x, **k: f(V, V, 2, weights=x, **k)[0], V,
                                [[[0.0, 0.5], [0.0, 2.0]]]),
    "numpy.histogramdd.range": (lambda f, x, **k: f((V, V), 2, weights=x, **k)[0], V,
                                [[[0.0, 0.5], [0.0, 2.0]]]),
    "numpy.insert.axis": (lambda f, x, **k: f(x, 1, x[0], **k), X, [0, 1]),
    "numpy.interp.left": (lambda f, x, **k: f([-1.0, 0.5], V, x, **k), V, [3.0]),
    "numpy.max.where": (lambda f, x, **k: f(x, initial=0.1, **k), X, [X < 0.5]),
    "numpy.min.where": (lambda f, x, **k: f(x, initial=2.0, **k), X, [X > 0.5]),
    "numpy.amax.where": (lambda f, x, **k: f(x, initial=0.1, **k), X, [X < 0.5]),
    "numpy.amin.where": (lambda f, x, **k: f(x, initial=2.0, **k), X, [X > 0.5]),
    "numpy.nanmax.where": (lambda f, x, **k: f(x, initial=0.1, **k), X, [X < 0.5]),
    "numpy.nanmin.where": (lambda f, x, **k: f(x, initial=2.0, **k), X, [X > 0.5]),
    "numpy.meshgrid.sparse": (lambda f, x, **k: f(x, V[:2], **k), V, [True]),
    "numpy.meshgrid.indexing": (lambda f, x, **k: f(x, V[:2], **k), V, ["ij"]),
    "numpy.nan_to_num.nan": (lambda f, x, **k: f(x, **k), NANS, [0.5]),
    "numpy.nan_to_num.posinf": (lambda f, x, **k: f(x, **k), NANS, [0.5]),
    "numpy.nan_to_num.neginf": (lambda f, x, **k: f(x, **k), NANS, [0.5]),
    "numpy.pad.kwargs": (lambda f, x, **k: f(x, 1, **k.get("kwargs", {})), X,
                         [{"constant_values": 2.0}, {"constant_values": (1.0, 3.0)}]),
    "numpy.piecewise.kw": (
        lambda f, x, **k: f(x, [x > 0.0], [lambda y, a=1.0: a * y], **k.get("kw", {})),
        V,
        [{"a": 3.0}],
    ),
    "numpy.put.mode": (lambda f, x, **k: _put(f, x, **k), V, ["wrap", "clip"]),
    "numpy.roll.axis": (lambda f, x, **k: f(x, 1, **k), X, [0, 1]),
    "numpy.rollaxis.start": (lambda f, x, **k: f(x, 2, **k), T3, [1]),
    "numpy.rot90.k": (lambda f, x, **k: f(x, **k), X, [2]),
    "numpy.split.axis": (lambda f, x, **k: f(x, 3, **k), X, [1]),
    "numpy.squeeze.axis": (lambda f, x, **k: f(x, **k), X[None, :, None], [0, 2]),
    "numpy.take.mode": (lambda f, x, **k: f(x, [0, -1], **k), X, ["clip"]),
    "numpy.trapezoid.dx": (lambda f, x, **k: f(x, **k), V, [0.5]),
    "numpy.trapezoid.axis": (lambda f, x, **k: f(x, **k), X, [0]),
    "numpy.trim_zeros.trim": (lambda f, x, **k: f(x * [0, 1, 1, 0], **k), V, ["f"]),
    "numpy.trim_zeros.axis": (lambda f, x, **k: f(np.pad(x, 1), **k), X, [0, 1]),
    "numpy.unwrap.axis": (lambda f, x, **k: f(x, **k), 9 * X, [0]),
    "numpy.linalg.cond.p": (lambda f, x, **k: f(x, **k), SPD, [1, "fro", np.inf, -2]),
    "numpy.linalg.eigh.UPLO": (lambda f, x, **k: f(x, **k)[0], B4, ["U"]),
    "numpy.linalg.eigvalsh.UPLO": (lambda f, x, **k: f(x, **k), B4, ["U"]),
    "numpy.linalg.lstsq.rcond": (lambda f, x, **k: f(x, V, **k)[0], B4, [0.5]),
    "numpy.linalg.pinv.rcond": (lambda f, x, **k: f(x, **k), B4, [0.5]),
    "numpy.real_if_close.tol": (lambda f, x, **k: f(x + 1e-12j, **k), V, [1e6]),
    "numpy.linalg.pinv.rtol": (lambda f, x, **k: f(x, **k), B4, [0.5]),
    "numpy.linalg.qr.mode": (lambda f, x, **k: f(x, **k), B4[:, :3], ["r", "complete"]),
    "numpy.linalg.svd.full_matrices": (lambda f, x, **k: [v.shape for v in f(x, **k)], B4[:, :3],
                                       [False]),
    "numpy.linalg.tensorsolve.axes": (
        lambda f, x, **k: f(x, V[:2], **k), RNG.normal(size=(2, 2, 1)), [(0,)]
    ),
    "numpy.lib.stride_tricks.sliding_window_view.axis": (
        lambda f, x, **k: f(x, 2, **{"axis": 0, **k}), X, [1]
    ),
}  # fmt: skip
for _name in ("percentile", "quantile", "nanpercentile", "nanquantile"):
    _q = 30.0 if "percentile" in _name else 0.3
    SPECIAL[f"numpy.{_name}.axis"] = (lambda f, x, _q=_q, **k: f(x, _q, **k), X, [0, (0, 1)])
    SPECIAL[f"numpy.{_name}.weights"] = (
        lambda f, x, _q=_q, **k: f(x, _q, method="inverted_cdf", **k),
        V,
        [np.array([3.0, 1.0, 1.0, 1.0]), np.array([1.0, 1.0, 1.0, 9.0])],
    )


def _copied(copyto: Any, x: Any, **kwargs: Any) -> Any:
    array = np.zeros_like(x)
    copyto(array, x, **kwargs)
    return array


def _filled(fill_diagonal: Any, x: Any, **kwargs: Any) -> Any:
    result = x * 1.0
    fill_diagonal(result, 7.0, **kwargs)
    return result


def _put(put: Any, x: Any, **kwargs: Any) -> Any:
    array = np.zeros_like(x)
    with contextlib.suppress(IndexError):  # without a mode
        put(array, [1, 6], x[:2], **kwargs)
    return array


def parameters() -> Iterator[Any]:
    """Yield (function name, parameter) pairs to test.

    What is differentiable is read from the table, which other tests compare with what they find.
    """
    for name in (row["name"] for row in table().values() if row["status"] == "differentiable"):
        function = function_of(name)
        if not hasattr(function, "_implementation"):
            continue
        try:
            signature = inspect.signature(function)
        except ValueError:
            continue
        for parameter in signature.parameters.values():
            kinds = (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL)
            needed = parameter.default is parameter.empty
            if parameter.kind not in kinds and (
                not needed or parameter.kind is parameter.VAR_KEYWORD
            ):
                yield pytest.param(name, parameter.name, id=f"{name}-{parameter.name}")


def with_argument(function: Callable[..., Any], name: str, value: Any) -> Callable[..., Any]:
    """Return the function with one more argument in each call."""

    def called(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs, **{name: value})

    return called


def same(a: Any, b: Any) -> bool:
    """Whether two results are equal in structure, dtypes, shapes and values."""
    a, b = leaves_of(a), leaves_of(b)
    if len(a) != len(b):
        return False
    for p, q in zip(a, b, strict=True):
        p = p.numpy() if isinstance(p, ADArray) else p
        if not isinstance(q, (np.ndarray, np.generic, float, complex)):
            if not np.all(np.asarray(p == q)):
                return False
            continue
        p, q = np.asarray(p), np.asarray(q)
        if p.shape != q.shape or p.dtype != q.dtype:
            return False
        tolerance = 1e-6 if q.dtype.itemsize < 8 else 1e-12
        if q.dtype.kind in "fc" and not np.allclose(p, q, tolerance, tolerance, equal_nan=True):
            return False
        if q.dtype.kind not in "fc" and not np.array_equal(p, q):
            return False
    return True


def candidates(name: str, parameter: str) -> list[Any]:
    short = name.rpartition(".")[2]
    return VALUES.get(f"{parameter} of {short}", VALUES.get(parameter, []))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "parameter"), list(parameters()))
def test_parameter(name: str, parameter: str) -> None:
    function = function_of(name)
    special = SPECIAL.get(f"{name}.{parameter}")
    call, x = special[:2] if special else call_of(name)  # type: ignore[misc]
    base = call(function, x.copy())
    if parameter == "out":
        _out(call, function, x, base)
        return
    tried = []
    for value in special[2] if special else candidates(name, parameter):
        changed: Any = with_argument(function, parameter, value)
        if special:
            changed = functools.partial(_with_keyword, call, function, parameter, value)
        try:
            expected = changed(x.copy()) if special else call(changed, x.copy())
        except TypeError as error:
            if "multiple values" in str(error):
                return  # the call itself gives this parameter
            continue
        except (ValueError, IndexError, np.linalg.LinAlgError):
            continue
        tried.append(value)
        _compare(_only if special else call, changed, x, expected)
        if not same(base, expected):
            return
    if parameter in NEUTRAL or f"{name}.{parameter}" in WITHOUT_EFFECT:
        return
    if _passes(call, function, x, parameter):
        return
    raise AssertionError(
        f"{name}: no value is known that changes the result through {parameter} (tried {tried}); "
        "add one to VALUES"
    )


def _with_keyword(call: Any, function: Any, name: str, value: Any, x: Any) -> Any:
    return call(function, x, **{name: value})


def _only(function: Any, x: Any) -> Any:
    return function(x)


def _passes(call: Callable[..., Any], function: Any, x: Any, parameter: str) -> bool:
    """Whether the call itself gives the parameter."""
    try:
        call(with_argument(function, parameter, object()), x.copy())
    except TypeError as error:
        return "multiple values" in str(error)
    except Exception:
        return False
    return False


def _compare(call: Callable[..., Any], changed: Any, x: Any, expected: Any) -> None:
    got: list[Any] = []

    def run(value: Any) -> Any:
        got[:] = [call(changed, value.copy())]
        return [
            r for r in leaves_of(got[0])
            if isinstance(r, (ADArray, np.ndarray, np.generic, float, complex))
        ]  # fmt: skip

    try:
        vjp(run, x, intercept=False)
    except ADArrayError:
        return  # refused
    assert same(got[0], expected), f"got {got[0]}, expected {expected}"
    results = [np.asarray(r) for r in leaves_of(expected) if not isinstance(r, (str, type(None)))]
    if any(r.dtype.kind in "fc" and r.dtype.itemsize >= 8 for r in results):
        with contextlib.suppress(ADArrayError):  # refused by a rule
            check_grads(run, (x,), order=1, intercept=False)


def _out(call: Callable[..., Any], function: Any, x: Any, base: Any) -> None:
    """``out=``: an ADArray receives the result and is returned; plain arrays are refused."""
    array = np.asarray(base)
    target = ADArray(np.zeros_like(array))

    def run(value: Any) -> Any:
        result = call(with_argument(function, "out", target), value.copy())
        assert result is target
        return target

    try:
        vjp(run, x, intercept=False)
    except ADArrayError:
        return
    assert same(target, array)
    plain = np.zeros_like(array)
    with pytest.raises(ADArrayError):
        vjp(lambda v: call(with_argument(function, "out", plain), v.copy()), x, intercept=False)
    assert not plain.any()


def test_enough_is_tested() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert len(list(parameters())) > 400
    assert {"numpy", "numpy.linalg", "numpy.fft"} <= set(MODULES)
    assert SPD.shape == Y.shape

"""Functions that read arrays and objects of packages around them; see `captured_kinds`.

For tests of captured state.
"""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.interpolate
import scipy.sparse
import scipy.stats
from captured_kinds import KINDS, Made, X, kind, sets

# -- arrays of NumPy's -------------------------------------------------------------------------


@kind
def objects_in_an_array() -> Made:
    w = np.empty(2, object)
    w[0], w[1] = [2.0], {"k": 3.0}
    return (lambda x: x * w[0][0] + w[1]["k"]), [
        lambda: w[0].__setitem__(0, 5.0),
        lambda: w[1].update(k=X * 1),
        lambda: w.__setitem__(0, [7.0]),
    ]


@kind
def masked_arrays() -> Made:
    w = np.ma.array([1.0, 2.0, 3.0], mask=[0, 0, 1])
    return (lambda x: x * float(w.sum())), [
        lambda: w.__setitem__(0, 5.0),
        lambda: w.__setitem__(1, np.ma.masked),
    ]


@kind
def record_arrays() -> Made:
    w: Any = np.rec.array([(1.0, 2)], dtype=[("a", float), ("b", int)])
    return (lambda x: x * float(w.a[0]) + int(w.b[0])), [
        lambda: w.a.__setitem__(0, 5.0),
        lambda: w.b.__setitem__(0, 7),
    ]


@kind
def structured_arrays() -> Made:
    w = np.zeros(2, [("a", "f8"), ("o", object)])
    w["o"][0] = [2.0]
    return (lambda x: x * float(w["a"][1]) + w["o"][0][0]), [
        lambda: w["a"].__setitem__(1, 5.0),
        lambda: w["o"][0].__setitem__(0, 9.0),
    ]


@kind
def dates_and_text_in_arrays() -> Made:
    days, names = np.array(["2020-01-01"], "M8[D]"), np.array(["abc"])

    def f(x: Any) -> Any:
        return x * float((days[0] - np.datetime64("2019-12-31")).astype(int)) + len(names[0])

    return f, [lambda: days.__iadd__(np.timedelta64(3, "D")), lambda: names.__setitem__(0, "a")]


@kind
def mapped_files() -> Made:
    with tempfile.TemporaryFile() as file:
        w = np.memmap(file, float, "w+", shape=4)
    return (lambda x: x * float(w[1])), [lambda: w.__setitem__(1, 5.0), lambda: w.fill(2.0)]


@kind
def matrices() -> Made:
    w: Any = np.array([[1.0, 2.0]]).view(np.matrix)
    return (lambda x: x * float(w[0, 1])), [lambda: w.__setitem__((0, 1), 5.0)]


@kind
def flat_iterators() -> Made:
    w = np.arange(4.0)
    flat = w.flat
    return (lambda x: x * flat[1]), [lambda: w.__setitem__(1, 5.0)]


@kind
def views_of_one_array() -> Made:
    w = np.arange(8.0)
    a, b = w[:4], w[::-2]
    return (lambda x: x * a + b), [lambda: w.fill(2.0), lambda: w.__setitem__(1, 7.0)]


@kind
def elements_without_dimensions() -> Made:
    w = np.array(2.0)
    return (lambda x: x * w), [lambda: w.__setitem__((), 5.0), lambda: w.fill(7.0)]


@kind
def large_arrays_of_a_class() -> Made:
    class Holder:
        table = np.zeros(8191 * 8)

    def swap() -> None:  # sums of rows and of columns stay as they are
        t = Holder.table.reshape(8, 8191)
        t[0, 0] += 1.0
        t[1, 1] += 1.0
        t[0, 1] -= 1.0
        t[1, 0] -= 1.0

    weights = np.sin(np.arange(8191 * 8))
    return (lambda x: x + float(np.sum(Holder.table * weights))), [
        swap,
        lambda: Holder.table.__setitem__(77, 3.0),
    ]


@kind
def polynomials() -> Made:
    p, q = np.poly1d([1.0, 2.0]), np.polynomial.Polynomial([1.0, 2.0])
    return (lambda x: x * float(p(2.0)) + float(q(2.0))), [
        lambda: p.__setitem__(0, 7.0),
        lambda: q.coef.__setitem__(1, 5.0),
    ]


@kind
def vectorized_functions() -> Made:
    table = {"k": 2.0}
    v = np.vectorize(lambda n: n * table["k"])
    return (lambda x: x * float(v(3.0))), [*sets(table, k=5.0)]


# -- SciPy -------------------------------------------------------------------------------------


@kind
def splines() -> Made:
    s = scipy.interpolate.CubicSpline([0.0, 1.0, 2.0, 3.0], [1.0, 2.0, 0.0, 1.0])
    return (lambda x: x * float(s(1.5))), [lambda: s.c.__setitem__(slice(None), 2.0)]


@kind
def splines_of_b() -> Made:
    s = scipy.interpolate.make_interp_spline([0.0, 1.0, 2.0, 3.0], [1.0, 2.0, 0.0, 1.0])
    return (lambda x: x * float(s(1.5))), [lambda: s.c.__setitem__(slice(None), 2.0)]


@kind
def grids() -> Made:
    g = scipy.interpolate.RegularGridInterpolator(([0.0, 1.0], [0.0, 1.0]), np.eye(2))
    return (lambda x: x * float(g((0.5, 0.25)))), [
        lambda: g.values.__setitem__((0, 0), 7.0),
        *sets(g, method="nearest"),
    ]


def _sparse(form: str) -> Callable[[], Made]:
    def make() -> Made:
        m = scipy.sparse.eye_array(4).asformat(form)
        changes: list[Callable[[], Any]] = []
        if form in ("dok", "lil", "csr"):
            changes.append(lambda: m.__setitem__((0, 0), 5.0))
        if form in ("csr", "csc", "coo", "bsr", "dia"):
            changes.append(lambda: m.data.__setitem__(Ellipsis, 3.0))
        return (lambda x: x + (m @ X)), changes

    make.__name__ = f"sparse_{form}"
    return make


for _form in ("csr", "csc", "coo", "bsr", "dia", "dok", "lil"):
    KINDS[f"sparse_{_form}"] = _sparse(_form)


@kind
def frozen_distributions() -> Made:
    d = scipy.stats.norm(1.0, scale=2.0)
    return (lambda x: x * float(d.cdf(2.0))), [lambda: d.kwds.update(scale=5.0)]


@kind
def densities() -> Made:
    d = scipy.stats.gaussian_kde(np.arange(5.0))
    return (lambda x: x * float(d(1.0)[0])), [lambda: d.set_bandwidth(2.0)]


# -- packages that may not be there ------------------------------------------------------------

# Name of a kind -> the package that it needs.
NEEDS: dict[str, str] = {}


def needing(package: str) -> Callable[[Callable[[Any], Made]], Callable[[Any], Made]]:
    """Return what registers a kind whose maker takes a package."""

    def register(make: Callable[[Any], Made]) -> Callable[[Any], Made]:
        NEEDS[make.__name__] = package
        KINDS[make.__name__] = lambda: make(importlib.import_module(package))
        return make

    return register


@needing("pandas")
def series_of_pandas(pd: Any) -> Made:
    s, t = pd.Series([1.0, 2.0, 3.0]), pd.Series(["a", "b"])
    return (lambda x: x * float(s.iloc[0]) + len(t.iloc[0])), [
        lambda: s.__setitem__(0, 5.0),
        lambda: t.__setitem__(0, "abc"),
    ]


@needing("pandas")
def frames_of_pandas(pd: Any) -> Made:
    d = pd.DataFrame({"a": [1.0, 2.0], "b": [3, 4]})

    def write() -> None:  # a statement: pandas 2 takes a call for a chained assignment
        d.loc[0, "a"] = 5.0

    def add() -> None:
        d["c"] = 1.0

    return (lambda x: x * float(d["a"].sum()) + d.shape[1]), [write, add]


@needing("pandas")
def indices_of_pandas(pd: Any) -> Made:
    s = pd.Series([1.0, 2.0], index=["a", "b"])
    return (lambda x: x * float(s["a"])), [lambda: setattr(s, "index", ["b", "a"])]


@needing("pandas")
def categories_of_pandas(pd: Any) -> Made:
    s = pd.Series(pd.Categorical(["a", "bb"]))
    return (lambda x: x * len(s.iloc[0])), [lambda: s.__setitem__(0, "bb")]


@needing("xarray")
def arrays_of_xarray(xr: Any) -> Made:
    d = xr.DataArray(np.arange(3.0), dims="x", coords={"x": [1, 2, 3]})
    return (lambda x: x * float(d.sel(x=1))), [
        lambda: d.__setitem__(0, 5.0),
        lambda: d.coords.__setitem__("x", [3, 2, 1]),
    ]


@needing("xarray")
def data_sets_of_xarray(xr: Any) -> Made:
    d = xr.Dataset({"a": ("x", np.arange(3.0))})
    return (lambda x: x * float(d["a"].sum())), [
        lambda: d["a"].__setitem__(0, 5.0),
        lambda: d.__setitem__("a", ("x", np.ones(3))),
    ]


@needing("torch")
def tensors(torch: Any) -> Made:
    t = torch.arange(4.0)
    return (lambda x: x * float(t.sum())), [
        lambda: t.__setitem__(0, 5.0),
        lambda: t.numpy().fill(2.0),
        lambda: t.resize_(2),
    ]

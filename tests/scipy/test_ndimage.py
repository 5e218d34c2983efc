"""`adarray.scipy.ndimage` against SciPy, and its derivatives against differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("scipy")
import scipy.ndimage as theirs

import adarray
import adarray.scipy.ndimage as ours
from adarray import NotDifferentiableError
from adarray.scipy import RECORDS
from adarray.testing import check_grads, opcheck

rng = np.random.default_rng(3)
X = rng.normal(size=7)
M = rng.normal(size=(5, 6))
P = M + 4.0
V = rng.normal(size=(3, 4, 5))
W = rng.normal(size=3)
W4 = rng.normal(size=4)
K = rng.normal(size=(3, 2))
LABELS = rng.integers(0, 4, size=(5, 6))
MODES = ("reflect", "constant", "nearest", "mirror", "wrap", "grid-mirror", "grid-constant",
         "grid-wrap")  # fmt: skip
INSIDE = rng.uniform(0.1, 3.9, size=(2, 6))
FAR = rng.uniform(-7.0, 11.0, size=(2, 9))
FAR[:, 0] = 0.37, -40.2
CROSS = np.array([[0, 1, 0], [1, 1, 1], [0, 1, 0]])

CASES: list[tuple[str, tuple[Any, ...], dict[str, Any], tuple[int, ...]]] = [
    *[(f, (M, W4), {"axis": 0, "mode": m, "cval": 0.7}, (0, 1))
      for f in ("correlate1d", "convolve1d") for m in MODES],
    *[(f, (X, w), {"origin": o}, (0, 1))
      for f in ("correlate1d", "convolve1d") for w in (W, W4) for o in (-1, 1)],
    ("correlate1d", (X[:2], rng.normal(size=7)), {"mode": "mirror"}, (0, 1)),
    ("correlate1d", (X + 1j, W - 0.5j), {}, (0, 1)),
    ("convolve1d", (X + 1j, W - 0.5j), {"mode": "wrap"}, (0, 1)),
    *[(f, (M, K), {"mode": m, "cval": 0.7}, (0, 1))
      for f in ("correlate", "convolve") for m in ("reflect", "constant", "nearest", "wrap")],
    *[(f, (M, K), {"origin": o}, (0, 1))
      for f in ("correlate", "convolve") for o in (0, (-1, -1), (1, 0))],
    ("correlate", (V, W[:, None] * W4[None, :]), {"axes": (0, 2)}, (0, 1)),
    ("convolve", (M + 1j, K), {}, (0, 1)),
    *[("gaussian_filter1d", (X, 1.3), {"order": o}, (0, 1)) for o in (0, 1, 2, 3)],
    ("gaussian_filter1d", (M, 0.7), {"axis": 0, "mode": "wrap", "truncate": 2.0}, (0, 1)),
    ("gaussian_filter1d", (M, 0.7), {"radius": 2, "mode": "constant", "cval": 1.0}, (0, 1)),
    ("gaussian_filter", (M, 0.8), {}, (0, 1)),
    ("gaussian_filter", (M, np.array([0.8, 1.1])),
     {"order": (0, 1), "mode": ("wrap", "mirror")}, (0, 1)),
    ("gaussian_filter", (V, 0.8), {"axes": (1,)}, (0,)),
    ("gaussian_filter", (M, (0.0, 1.0)), {}, (0,)),
    ("gaussian_laplace", (M, 0.8), {}, (0, 1)),
    ("gaussian_laplace", (M, 0.8), {"mode": "nearest", "truncate": 2.0}, (0,)),
    ("gaussian_gradient_magnitude", (M, 0.8), {}, (0, 1)),
    *[("uniform_filter1d", (X, k), {"mode": m}, (0,))
      for k in (1, 3, 4) for m in ("reflect", "wrap")],
    ("uniform_filter1d", (M, 4), {"axis": 0, "origin": 1}, (0,)),
    ("uniform_filter", (M, 3), {}, (0,)),
    ("uniform_filter", (M, (2, 3)), {"mode": "constant", "cval": 2.0, "origin": (-1, 0)}, (0,)),
    ("sobel", (M,), {}, (0,)),
    ("sobel", (V, 0), {"mode": "mirror"}, (0,)),
    ("prewitt", (M, 0), {"mode": "constant"}, (0,)),
    ("laplace", (M,), {}, (0,)),
    ("laplace", (V,), {"mode": "wrap"}, (0,)),
    *[(f, (M, 3), {"mode": m, "cval": 0.2}, (0,))
      for f in ("maximum_filter", "minimum_filter", "median_filter")
      for m in ("reflect", "constant", "nearest", "mirror", "wrap")],
    ("maximum_filter", (M, (2, 3)), {"origin": (-1, 1)}, (0,)),
    ("maximum_filter", (M,), {"footprint": CROSS}, (0,)),
    ("median_filter", (M,), {"footprint": CROSS}, (0,)),
    ("median_filter", (M, (2, 4)), {}, (0,)),
    ("maximum_filter1d", (M, 4), {"axis": 0}, (0,)),
    ("minimum_filter1d", (M, 3), {"origin": 1}, (0,)),
    ("rank_filter", (M, 2, 3), {}, (0,)),
    ("rank_filter", (M, -2, (2, 3)), {}, (0,)),
    *[("percentile_filter", (M, p, 3), {}, (0,)) for p in (0, 30, 50, 100, -20)],
    *[(f, (M,), {"size": (3, 2)}, (0,))
      for f in ("grey_erosion", "grey_dilation", "grey_opening", "grey_closing", "white_tophat",
                "black_tophat", "morphological_gradient", "morphological_laplace")],
    *[(f, (M,), {"footprint": CROSS, "structure": np.abs(M[:3, :3])}, (0,))
      for f in ("grey_erosion", "grey_dilation", "grey_opening", "morphological_gradient")],
    ("grey_dilation", (M,), {"structure": K.T.copy(), "origin": (0, -1)}, (0,)),
    *[("spline_filter1d", (M, o), {"axis": 0, "mode": m}, (0,))
      for o in (2, 3, 5) for m in ("mirror", "reflect", "wrap")],
    ("spline_filter", (M,), {"order": 4}, (0,)),
    *[("map_coordinates", (M, INSIDE), {"order": o}, (0, 1)) for o in range(6)],
    *[("map_coordinates", (M, FAR), {"order": o, "mode": m, "cval": 0.7}, (0, 1))
      for o in (1, 2, 3) for m in MODES],
    *[("map_coordinates", (M, FAR), {"order": o, "mode": m, "prefilter": False}, (0, 1))
      for o in (0, 4, 5) for m in ("reflect", "nearest", "constant", "grid-constant", "wrap")],
    ("map_coordinates", (M + 1j, INSIDE), {}, (0, 1)),
    *[("shift", (M, (0.3, -1.6)), {"mode": m, "cval": 0.7, "order": o}, (0,))
      for m in MODES for o in (1, 3)],
    ("shift", (M, np.array([0.3, -1.6])), {}, (0, 1)),
    ("shift", (X, 0.4), {"mode": "nearest"}, (0, 1)),
    *[("zoom", (M, z), {"mode": m, "order": o}, (0,))
      for z in (1.7, (0.6, 2.0)) for m in ("constant", "nearest", "reflect")
      for o in (0, 1, 3)],
    ("zoom", (M, 1.0), {"order": 1}, (0,)),
    ("zoom", (M, 2.0), {"grid_mode": True, "mode": "grid-constant"}, (0,)),
    ("zoom", (M, 2.0), {"grid_mode": True, "mode": "grid-wrap", "order": 2}, (0,)),
    *[("rotate", (M, 30.0), {"mode": m, "reshape": r}, (0,))
      for m in ("constant", "nearest", "mirror") for r in (False, True)],
    ("rotate", (V, 20.0), {"axes": (2, 0), "order": 1}, (0,)),
    ("rotate", (M, 90.0), {}, (0,)),
    ("affine_transform", (M, np.array([[0.9, 0.2], [-0.1, 1.1]]), np.array([0.317, -0.213])),
     {}, (0, 1, 2)),
    ("affine_transform", (M, np.array([0.9, 1.2]), 0.3), {"mode": "mirror"}, (0, 1, 2)),
    ("affine_transform", (M, np.array([[0.9, 0.2, 0.31], [-0.1, 1.1, 0.12]])),
     {"output_shape": (4, 4)}, (0, 1)),
    *[(f, (M,), {}, (0,)) for f in ("sum", "sum_labels", "mean", "variance", "standard_deviation",
                                   "maximum", "minimum", "median", "extrema")],
    *[(f, (M, LABELS, np.array([1, 3, 2])), {}, (0,))
      for f in ("sum", "sum_labels", "mean", "variance", "standard_deviation", "maximum",
                "minimum", "median")],
    *[(f, (M, LABELS), {}, (0,)) for f in ("sum", "mean", "maximum", "extrema")],
    ("center_of_mass", (P,), {}, (0,)),
    ("center_of_mass", (P, LABELS, [1, 2]), {}, (0,)),
    *[(f, (np.fft.fft2(M), b), {}, (0,))
      for f, b in (("fourier_gaussian", 1.5), ("fourier_uniform", 3),
                   ("fourier_shift", (1.0, -0.4)),
                   ("fourier_ellipsoid", 3))],
    ("fourier_gaussian", (M, 1.5), {}, (0,)),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The behavior of affine_transform")  # before SciPy 1.16
@pytest.mark.parametrize("case", range(len(CASES)), ids=[c[0] for c in CASES])
def test_values_and_derivatives(case: int, drop_in: Callable[..., None]) -> None:
    name, args, kwargs, argnums = CASES[case]
    drop_in(getattr(ours, name), getattr(theirs, name), args, kwargs, argnums, single=False,
            order=1 if name == "map_coordinates" and kwargs.get("order", 3) < 2 else 2)  # fmt: skip


@pytest.mark.parametrize("op", [n for n in RECORDS if n.startswith("scipy.ndimage.")])
@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["float64", "float32"])
def test_records(op: str, dtype: type) -> None:
    opcheck(op, "numpy", dtype)


_SINGLE = {"correlate1d": (W,), "convolve": (K,), "gaussian_filter": (0.8,), "sobel": (),
           "uniform_filter": (3,), "laplace": (), "maximum_filter": (3,), "median_filter": (3,),
           "grey_opening": (3,), "zoom": (2.0,), "shift": (0.4,), "rotate": (30.0,),
           "gaussian_gradient_magnitude": (0.8,)}  # fmt: skip


@pytest.mark.parametrize("name", sorted(_SINGLE))
def test_single_precision_stays_single(name: str) -> None:
    def total(x: Any) -> Any:
        r = getattr(ours, name)(x, *_SINGLE[name])
        assert r.dtype == np.float32
        return np.sum(r**2)

    g = adarray.grad(total)(M.astype(np.float32))
    assert g.dtype == np.float32
    double = adarray.grad(lambda x: np.sum(getattr(ours, name)(x, *_SINGLE[name]) ** 2))(M)
    np.testing.assert_allclose(g, double, rtol=2e-3, atol=2e-4)


def test_output_dtype_is_honoured() -> None:
    r, pull = adarray.vjp(lambda x: ours.gaussian_filter(x, 0.8, output=np.float32), M)
    assert r.dtype == np.float32
    assert pull(np.ones_like(r))[0].dtype == np.float64
    with pytest.raises(NotDifferentiableError, match="sobel: output= as an array"):
        adarray.grad(lambda x: ours.sobel(x, output=np.zeros((5, 6))).sum())(M)


def test_structure_and_angle_differentiate() -> None:
    s = 0.3 * rng.normal(size=(3, 3))
    check_grads(lambda x, s: ours.grey_dilation(x, structure=s), (M, s), order=1)
    check_grads(lambda x, s: ours.grey_erosion(x, structure=s), (M, s), order=1)

    def rotated(x: Any, angle: Any) -> Any:
        # Traced, the angle goes through np.cos; its plain difference through SciPy.
        return ours.rotate(x, angle, reshape=False, mode="mirror")

    check_grads(rotated, (M, 31.7), rtol=1e-5, atol=1e-5)


def test_geometric_transform() -> None:
    def moved(x: Any, a: Any) -> Any:
        return ours.geometric_transform(x, lambda i: (i[0] * a + 0.3, i[1] * 0.7), mode="mirror")

    plain = theirs.geometric_transform(M, lambda i: (i[0] * 0.8 + 0.3, i[1] * 0.7), mode="mirror")
    np.testing.assert_allclose(adarray.vjp(lambda x: moved(x, 0.8), M)[0], plain)
    check_grads(lambda x: moved(x, 0.8), (M,))


def test_constants_and_refusals() -> None:
    def f(x: Any) -> Any:
        marks, count = ours.label(x > 0.5)
        return ours.sum(x, marks, np.arange(1, int(count) + 1)).sum()

    np.testing.assert_array_equal(adarray.grad(f)(M), (M > 0.5).astype(float))
    with pytest.raises(NotDifferentiableError, match=r"generic_filter: it calls a function"):
        adarray.grad(lambda x: ours.generic_filter(x, np.mean, 3).sum())(M)
    with pytest.raises(
        NotDifferentiableError, match="zoom: there is no derivative with respect to"
    ):
        adarray.grad(lambda z: ours.zoom(M, z).sum())(2.0)
    with pytest.raises(NotDifferentiableError, match="argument sigma"):
        adarray.grad(lambda z: ours.fourier_gaussian(M, z).sum())(2.0)
    with pytest.raises(RuntimeError, match="spline order not supported"):
        adarray.grad(lambda x: ours.shift(x, 0.5, order=7).sum())(M)


def test_namespace_is_scipys() -> None:
    for name in theirs.__all__:
        assert getattr(ours, name) is not None

"""`adarray.scipy.fft` against SciPy, and its derivatives against differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("scipy")
import scipy.fft as theirs

import adarray
import adarray.scipy.fft as ours
from adarray import NotDifferentiableError
from adarray.scipy import RECORDS
from adarray.testing import opcheck

rng = np.random.default_rng(5)
X = rng.normal(size=6)
M = rng.normal(size=(4, 5))
Z = M + 1j * rng.normal(size=(4, 5))

CASES: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    *[(f, (M,), {"n": n, "axis": 0, "norm": norm}) for f in ("fft", "rfft", "ifft", "ihfft")
      for n, norm in ((None, None), (3, "ortho"), (7, "forward"))],
    *[(f, (Z,), {"n": n, "norm": norm}) for f in ("fft", "ifft", "irfft", "hfft")
      for n, norm in ((None, None), (4, "ortho"), (7, "forward"))],
    *[(f, (Z,), {"norm": norm}) for f in ("fft2", "ifft2", "irfft2", "fftn", "ifftn", "irfftn",
                                         "hfft2", "hfftn") for norm in (None, "ortho", "forward")],
    *[(f, (M,), {"s": (3, 6)}) for f in ("rfft2", "rfftn", "fftn", "ihfft2", "ihfftn")],
    ("fftn", (Z,), {"axes": (0,), "workers": 2}),
    ("fftshift", (M,), {}),
    ("ifftshift", (M,), {"axes": 1}),
    *[(f, (x,), {"type": t, "norm": norm})
      for f in ("dct", "idct", "dst", "idst") for t in (1, 2, 3, 4)
      for norm in (None, "ortho", "forward") for x in (X, Z)],
    *[(f, (M,), {"type": t, "norm": norm, "orthogonalize": o, "axis": 0, "n": n})
      for f in ("dct", "idct", "dst", "idst") for t in (1, 2, 3)
      for norm, o, n in (("ortho", False, 3), (None, True, 6))],
    *[(f, (M,), {"type": t, "s": s, "axes": axes})
      for f in ("dctn", "idctn", "dstn", "idstn")
      for t, s, axes in ((2, None, None), (3, (3, 6), None), (1, (4,), (1,)), (4, None, (0,)))],
    ("fht", (X,), {"dln": 0.2, "mu": 0.5}),
    ("ifht", (M,), {"dln": 0.2, "mu": 0.5, "offset": 0.1, "bias": 0.2}),
]  # fmt: skip


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", range(len(CASES)), ids=[c[0] for c in CASES])
def test_values_and_derivatives(case: int, drop_in: Callable[..., None]) -> None:
    name, args, kwargs = CASES[case]
    single = name not in ("fht", "ifht")
    drop_in(getattr(ours, name), getattr(theirs, name), args, kwargs, (0,), single=single)


@pytest.mark.parametrize("op", [n for n in RECORDS if n.startswith("scipy.fft.")])
@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["float64", "float32"])
def test_records(op: str, dtype: type) -> None:
    opcheck(op, "numpy", dtype)


def test_errors() -> None:
    with pytest.raises(NotDifferentiableError, match="fht: there is no derivative with respect"):
        adarray.grad(lambda mu: ours.fht(X, 0.2, mu).sum())(0.5)
    with pytest.raises(ValueError, match="type 5 is not one of"):
        adarray.grad(lambda x: ours.dct(x, 5).sum())(X)
    with pytest.raises(ValueError, match="Invalid norm value"):
        adarray.grad(lambda x: ours.dst(x, norm="none").sum())(X)


def test_namespace_is_scipys() -> None:
    for name in theirs.__all__:
        assert getattr(ours, name) is not None
    assert ours.next_fast_len(11) == theirs.next_fast_len(11)

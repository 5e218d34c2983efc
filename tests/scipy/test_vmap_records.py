"""Every record of SciPy's functions for all members of a batch, beside a loop over them."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
from members import check_gradients, check_values

import adarray
from adarray.base.op import OPS
from adarray.batching.rules import rule_of

pytest.importorskip("scipy")
for _name in ("fft", "linalg", "ndimage", "signal", "sparse.linalg", "special", "stats"):
    importlib.import_module(f"adarray.scipy.{_name}")
SCIPY = sorted(n for n in OPS if n.partition(".")[0] in ("special", "stats", "scipy"))
FEW = [n for n in SCIPY if not n.startswith("special.")] + SCIPY[::12]


@pytest.mark.parametrize("op", FEW)
def test_values_are_those_of_a_loop(op: str) -> None:
    assert rule_of(OPS[op]) is not None
    check_values(OPS[op])


@pytest.mark.slow
@pytest.mark.parametrize("op", sorted({*SCIPY} - {*FEW}))
def test_values_of_others_are_those_of_a_loop(op: str) -> None:
    assert rule_of(OPS[op]) is not None
    check_values(OPS[op])


@pytest.mark.slow
@pytest.mark.parametrize("op", SCIPY)
def test_gradients_and_tangents_are_those_of_a_loop(op: str) -> None:
    check_gradients(OPS[op])


def test_a_sparse_matrix_times_the_vectors_of_members() -> None:
    sparse = pytest.importorskip("scipy.sparse")
    a = sparse.random_array((4, 3), density=0.6, rng=np.random.default_rng(0), format="csr")
    x = np.random.default_rng(1).normal(size=(5, 3))
    got = adarray.vmap(lambda v: adarray.scipy.sparse.csr_array(a) @ v)(x)
    np.testing.assert_allclose(got, x @ a.toarray().T)

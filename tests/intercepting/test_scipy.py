"""SciPy in client code: drop-ins inside of `adarray.intercept`, SciPy itself outside."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import adarray
from adarray.intercepting.standins import FunctionStandIn, ModuleStandIn
from adarray.testing import check_grads

scipy = pytest.importorskip("scipy")

SOURCE = """
import numpy as np
import scipy
import scipy.linalg as sla
import scipy.sparse as sp
from scipy import special, stats
from scipy.integrate import quad
from scipy.linalg import solve
from scipy.optimize import brentq
from scipy.signal import fftconvolve
from scipy.sparse import csr_matrix
from scipy.sparse.linalg import spsolve
from scipy.special import gammaln, logsumexp
from scipy.stats import norm

S = np.array([[4.0, 1.0, 0.5], [1.0, 3.0, 0.2], [0.5, 0.2, 2.0]])

def linear(x):
    m = S + np.diag(x)
    return solve(m, x).sum() + sla.cholesky(m)[0, 1] + scipy.linalg.expm(0.1 * m)[0, 2]

def functions(x):
    return gammaln(x).sum() + special.erf(x).prod() + logsumexp(x) + gammaln([x[0], 2.0]).sum()

def distributions(x):
    return norm.logpdf(x, 0.1, 2.0).sum() + stats.norm.cdf(x[0]) + stats.gamma.logpdf(x, 2.0).sum()

def sparse(x):
    m = csr_matrix(S + np.diag(x))
    return (m @ x).sum() + spsolve(m, x).sum()

def signals(x):
    return fftconvolve(x, np.array([1.0, 2.0])).dot(np.arange(4.0))

def roots(x):
    return brentq(lambda t: t**3 + t - x[0], 0.0, 5.0)

def integral(x):
    return quad(lambda t: np.exp(-x[0] * t) * x[1], 0.0, 1.0)[0]

def local(x):
    from scipy.special import expit
    import scipy.linalg
    return expit(x).sum() + scipy.linalg.det(S + np.diag(x))
"""
X = np.array([0.7, 0.4, 1.3])


@pytest.mark.parametrize(
    "name",
    ["linear", "functions", "distributions", "sparse", "signals", "roots", "integral", "local"],
)
def test_gradient(client: Any, name: str) -> None:
    module = client(f"client_scipy_{name}", SOURCE)
    f = getattr(module, name)
    plain = f(X)
    check_grads(adarray.wrap(f), (X,), order=1)
    assert f(X) == plain
    with adarray.intercept():
        assert float(adarray.value_of(f(X))) == plain


def test_a_class_of_scipys_stays_itself(client: Any) -> None:
    module = client("client_class", SOURCE + "def made():\n    return csr_matrix\n")
    original = module.csr_matrix
    for _ in range(2):
        adarray.wrap(module.sparse)(adarray.array(X))
        assert module.csr_matrix is module.made() is original
        with adarray.intercept("client_class"):
            assert module.csr_matrix is module.made() is original


def test_names_outside(client: Any) -> None:
    module = client("client_scipy_names", SOURCE)
    adarray.wrap(module.linear)(adarray.array(X))
    assert isinstance(module.scipy, ModuleStandIn)
    assert type(module.solve) is FunctionStandIn
    assert module.scipy.linalg.solve == module.solve
    assert module.solve(np.eye(2), np.ones(2)).tolist() == [1.0, 1.0]
    assert pickle.loads(pickle.dumps(module.solve)) is scipy.linalg.solve
    assert module.norm.rvs(random_state=0) == scipy.stats.norm.rvs(random_state=0)
    assert module.norm.name == "norm"
    assert isinstance(module.norm, scipy.stats.rv_continuous)

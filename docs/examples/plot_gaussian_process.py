"""
Gaussian process: hyperparameters by maximum likelihood
=======================================================

The marginal likelihood of a Gaussian process contains a Cholesky factorisation. adarray
differentiates it through ``np.linalg``, so no formula is needed for the gradient with respect to
the length scale, the amplitude and the noise.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import minimize

from adarray import jit, value_and_grad

rng = np.random.default_rng(3)
x = np.sort(rng.uniform(0, 10, 40))
y = np.sin(x) + 0.5 * np.sin(2.5 * x) + 0.2 * rng.normal(size=x.size)


def kernel(a, b, p):
    d = (a[:, None] - b[None, :]) / np.exp(p["scale"])
    return np.exp(2 * p["amplitude"] - 0.5 * d**2)


def covariance(p):
    K = kernel(x, x, p)
    K[np.diag_indices_from(K)] += np.exp(2 * p["noise"])
    return K


NAMES = ("scale", "amplitude", "noise")


def loss(v):
    """Return the negative logarithm of the marginal likelihood."""
    K = covariance(dict(zip(NAMES, v, strict=True)))
    L = np.linalg.cholesky(K)
    r = np.linalg.solve(L, y)
    return 0.5 * r @ r + np.sum(np.log(np.diag(L))) + 0.5 * len(y) * np.log(2 * np.pi)


fit = minimize(jit(value_and_grad(loss)), np.zeros(3), jac=True, method="L-BFGS-B")
p = dict(zip(NAMES, fit.x, strict=True))
print({name: round(float(np.exp(v)), 3) for name, v in p.items()})

# %%
# The prediction, plus and minus two standard deviations.

at = np.linspace(-1, 11, 300)
cross = kernel(at, x, p)
mean = cross @ np.linalg.solve(covariance(p), y)
variance = np.exp(2 * p["amplitude"]) - np.sum(cross * np.linalg.solve(covariance(p), cross.T).T, 1)
width = 2 * np.sqrt(variance)

fig, ax = plt.subplots(figsize=(7, 3.5), layout="constrained")
ax.fill_between(at, mean - width, mean + width, alpha=0.25)
ax.plot(at, mean)
ax.plot(x, y, "k.")
ax.set(xlabel="x", ylabel="y")
plt.show()

"""
Inverse heat conduction: recovering the initial temperature
===========================================================

A rod is heated, and its temperature is measured some time later. Going back in time is an
ill-posed problem, so we look for the smoothest initial temperature that explains the measurement.
The time steps update one array in place through its slices, as in any NumPy solver.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import minimize

from adarray import jit, value_and_grad

N, STEPS, ALPHA = 80, 100, 0.4


def diffuse(first):
    u = first.copy()
    for _ in range(STEPS):
        u[1:-1] += ALPHA * (u[2:] - 2 * u[1:-1] + u[:-2])
        u[0] = u[-1] = 0.0  # the ends are kept cold
    return u


# %%
# The truth has two hot spots, which diffusion has almost merged by the time of the measurement.

x = np.linspace(0, 1, N)
truth = np.exp(-(((x - 0.35) / 0.06) ** 2)) + 0.7 * np.exp(-(((x - 0.65) / 0.08) ** 2))
rng = np.random.default_rng(1)
measured = diffuse(truth) + 0.002 * rng.normal(size=N)


def loss(first):
    misfit = np.sum((diffuse(first) - measured) ** 2)
    return misfit + 1e-4 * np.sum(np.diff(first, 2) ** 2)


fit = minimize(jit(value_and_grad(loss)), measured, jac=True, method="L-BFGS-B",
               options={"maxiter": 500})  # fmt: skip
print(f"{fit.nit} iterations, loss {fit.fun:.2e}")

fig, ax = plt.subplots(figsize=(7, 3.5), layout="constrained")
ax.plot(x, truth, "k", label="truth")
ax.plot(x, measured, ".", color="grey", label="measured at the end")
ax.plot(x, fit.x, "C1", label="reconstructed")
ax.set(xlabel="position", ylabel="temperature")
ax.legend()
plt.show()

"""
Differential equations with SciPy: predators and prey
=====================================================

The rates of the Lotka-Volterra equations are fitted to noisy counts. SciPy's ``solve_ivp`` solves
the equations, and adarray differentiates its solution.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.integrate import solve_ivp
from scipy.optimize import minimize

from adarray import value_and_grad

times = np.linspace(0, 12, 30)


def rates(t, y, a, b, c, d):
    prey, predators = y
    return np.array([a * prey - b * prey * predators, c * prey * predators - d * predators])


def populations(p, at):
    return solve_ivp(rates, (0, 12), [1.0, 0.5], t_eval=at, args=tuple(p), rtol=1e-6).y


truth = np.array([1.1, 0.8, 0.6, 0.9])
rng = np.random.default_rng(2)
counts = populations(truth, times) * np.exp(0.1 * rng.normal(size=(2, 30)))


def loss(logarithms):
    return np.mean((np.log(populations(np.exp(logarithms), times)) - np.log(counts)) ** 2)


# %%
# The rates are positive, so their logarithms are fitted.

start = np.log([1.0, 1.0, 0.5, 1.0])
fit = minimize(value_and_grad(loss), start, jac=True, method="BFGS", options={"gtol": 1e-4})
print("rates", np.exp(fit.x).round(3), "truth", truth)

at = np.linspace(0, 12, 300)
fig, ax = plt.subplots(figsize=(7, 3.5), layout="constrained")
for row, name, colour in zip((0, 1), ("prey", "predators"), ("C0", "C3"), strict=True):
    ax.plot(times, counts[row], "o", color=colour, mfc="none")
    ax.plot(at, populations(np.exp(fit.x), at)[row], color=colour, label=name)
    ax.plot(at, populations(np.exp(start), at)[row], ":", color=colour)
ax.set(xlabel="time", ylabel="population", title="circles: counts; dotted: first guess")
ax.legend()
plt.show()

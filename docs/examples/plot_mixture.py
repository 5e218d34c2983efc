"""
Mixture of Gaussians: a density by maximum likelihood, in a class
=================================================================

Many models are classes that hold their parameters and a history. Here the density is a method,
its parameters are passed as a dict, and the values of the loss in the history are plain numbers.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.special import logsumexp

from adarray import jit, value_and_grad


class Mixture:
    def __init__(self, parts, rng):
        self.p = {
            "centres": rng.normal(size=parts),
            "log_widths": np.zeros(parts),
            "weights": np.zeros(parts),
        }
        self.history = []

    def log_density(self, p, x):
        weights = p["weights"] - logsumexp(p["weights"])
        z = (x[:, None] - p["centres"]) / np.exp(p["log_widths"])
        each = weights - 0.5 * z**2 - p["log_widths"] - 0.5 * np.log(2 * np.pi)
        return logsumexp(each, axis=1)

    def fit(self, x, steps=400, rate=0.1):
        step = jit(value_and_grad(lambda p: -np.mean(self.log_density(p, x))))
        for _ in range(steps):
            value, g = step(self.p)
            self.history.append(value)
            self.p = {k: a - rate * g[k] for k, a in self.p.items()}
        return self


# %%
# Samples from three normal distributions, and the density that the model finds.

rng = np.random.default_rng(4)
x = np.concatenate([rng.normal(-2, 0.5, 300), rng.normal(1, 0.8, 500), rng.normal(4, 0.4, 200)])
model = Mixture(3, rng).fit(x, steps=1500, rate=0.3)
print("centres", np.sort(model.p["centres"]).round(2))

at = np.linspace(-5, 6.5, 400)
fig, axes = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained", width_ratios=(2, 3))
axes[0].plot(model.history)
axes[0].set(xlabel="step", ylabel="negative log-likelihood")
axes[1].hist(x, 60, density=True, color="lightgrey")
axes[1].plot(at, np.exp(model.log_density(model.p, at)))
axes[1].set(xlabel="x", ylabel="density")
plt.show()

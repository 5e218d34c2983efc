"""
Black-Scholes: the Greeks of an option
======================================

The sensitivities of an option's price, known as the Greeks, are derivatives: delta, vega, theta
and rho are of first order, gamma is of second. ``norm.cdf`` is SciPy's.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import norm

from adarray import grad


def call(spot, strike, rate, volatility, years):
    """Return the price of a European call option."""
    root = volatility * np.sqrt(years)
    d1 = (np.log(spot / strike) + (rate + volatility**2 / 2) * years) / root
    return spot * norm.cdf(d1) - strike * np.exp(-rate * years) * norm.cdf(d1 - root)


def total(*args):
    """Add the prices of many options. Each price depends on its own spot only."""
    return np.sum(call(*args))


# %%
# Therefore the gradient of the sum, with respect to an array of spots, is the array of their
# deltas.

spot = np.linspace(50.0, 150.0, 201)
market = (100.0, 0.03, 0.2, 0.5)  # strike, rate, volatility, years

# A volatility and a time for each spot, so that there is a vega and a theta for each as well.
columns = [np.full_like(spot, v) for v in market]
delta, rho, vega, theta = grad(total, argnums=(0, 2, 3, 4))(spot, *columns)
gamma = grad(lambda s: np.sum(grad(total)(s, *columns)))(spot)

fig, axes = plt.subplots(2, 3, figsize=(9, 5), layout="constrained", sharex=True)
shown = {"price": call(spot, *columns), "delta": delta, "gamma": gamma, "vega": vega,
         "theta": -theta, "rho": rho}  # fmt: skip
for ax, (name, values) in zip(axes.flat, shown.items(), strict=True):
    ax.plot(spot, values)
    ax.axvline(100, color="grey", linewidth=0.8)
    ax.set_title(name)
for ax in axes[1]:
    ax.set_xlabel("spot")
plt.show()

# %%
# At the strike, compared with the textbook formulas:

d1 = (0.03 + 0.2**2 / 2) * 0.5 / (0.2 * np.sqrt(0.5))
print(f"delta {delta[100]:.6f}, formula {norm.cdf(d1):.6f}")
print(f"gamma {gamma[100]:.6f}, formula {norm.pdf(d1) / (100 * 0.2 * np.sqrt(0.5)):.6f}")

"""
Black-Scholes: the Greeks of an option
======================================

Sensitivities of a price are derivatives. Delta, vega and theta are first ones, gamma is a
second one; ``norm.cdf`` is SciPy's.
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
    """Add the prices of many options: each spot only has an effect on its own price."""
    return np.sum(call(*args))


# %%
# The derivative of the sum with respect to an array of spots is the array of derivatives.

spot = np.linspace(50.0, 150.0, 201)
market = (100.0, 0.03, 0.2, 0.5)  # strike, rate, volatility, years

# One value of volatility and time for each spot, so that vega and theta come one for each, too.
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
# At the strike, against the formula in the books:

d1 = (0.03 + 0.2**2 / 2) * 0.5 / (0.2 * np.sqrt(0.5))
print(f"delta {delta[100]:.6f}, formula {norm.cdf(d1):.6f}")
print(f"gamma {gamma[100]:.6f}, formula {norm.pdf(d1) / (100 * 0.2 * np.sqrt(0.5)):.6f}")

"""
Kalman filter: noise levels by maximum likelihood
=================================================

A Kalman filter needs to know how noisy the measurement and the motion are. Both can be estimated
from the data: the filter computes the likelihood, which is differentiated through the whole
recursion.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import minimize

from adarray import value_and_grad

F = np.array([[1.0, 1.0], [0.0, 1.0]])  # position and speed
H = np.array([[1.0, 0.0]])
G = np.array([[0.25, 0.5], [0.5, 1.0]])

rng = np.random.default_rng(5)
speed = np.cumsum(0.1 * rng.normal(size=120))
position = np.cumsum(speed)
measured = position + 2.0 * rng.normal(size=120)


def filtered(p):
    """Return the negative log-likelihood and the filtered positions."""
    motion, noise = np.exp(2 * p)
    x, P = np.zeros(2), 100.0 * np.eye(2)
    loss = 0.0
    positions = []
    for z in measured:
        x, P = F @ x, F @ P @ F.T + motion * G
        innovation = z - H @ x
        S = H @ P @ H.T + noise
        K = P @ H.T / S
        x = x + K @ innovation
        P = (np.eye(2) - K @ H) @ P
        loss = loss + 0.5 * np.sum(innovation**2 / S + np.log(S))
        positions.append(x[0])
    return loss, np.array(positions)


def loss(p):
    return filtered(p)[0]


fit = minimize(value_and_grad(loss), np.zeros(2), jac=True, method="BFGS")
motion, noise = np.exp(fit.x)
print(f"standard deviation of the motion {motion:.2f} (truth 0.1)")
print(f"standard deviation of the measurement {noise:.2f} (truth 2.0)")

fig, ax = plt.subplots(figsize=(7, 3.5), layout="constrained")
ax.plot(measured - position, ".", color="grey", label="measured")
ax.plot(filtered(np.zeros(2))[1] - position, "--", label="filter, first guess")
ax.plot(filtered(fit.x)[1] - position, label="filter, fitted")
ax.axhline(0, color="k", linewidth=0.8)
ax.set(xlabel="step", ylabel="error of position")
ax.legend()
plt.show()

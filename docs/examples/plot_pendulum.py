"""
Pendulum fit: physical constants from noisy measurements
========================================================

From the measured angles of a damped pendulum we estimate the length of its rod and its friction.
The model is a loop of Runge-Kutta steps that writes into an array, in ordinary NumPy code, and
adarray differentiates all of it.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import minimize

from adarray import value_and_grad

STEPS, DT, G = 120, 0.08, 9.81


def rate(state, length, friction):
    angle, speed = state
    return np.array([speed, -G / length * np.sin(angle) - friction * speed])


def swing(p):
    """Return the angle at every step."""
    length, friction, start = p
    angles = np.zeros(STEPS)
    state = np.array([start, 0.0])
    for k in range(STEPS):
        angles[k] = state[0]
        k1 = rate(state, length, friction)
        k2 = rate(state + DT / 2 * k1, length, friction)
        k3 = rate(state + DT / 2 * k2, length, friction)
        k4 = rate(state + DT * k3, length, friction)
        state = state + DT / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return angles


# %%
# The data: a rod of 1.3 m, with some noise.

rng = np.random.default_rng(0)
truth = np.array([1.3, 0.25, 1.2])
t = DT * np.arange(STEPS)
measured = swing(truth) + 0.05 * rng.normal(size=STEPS)


def loss(p):
    return np.mean((swing(p) - measured) ** 2)


# %%
# SciPy's BFGS method gets the value and the gradient from one function.

start = np.array([1.0, 0.1, 1.0])
fit = minimize(value_and_grad(loss), start, jac=True, method="BFGS")
length, friction, angle = fit.x
print(f"length {length:.3f} m, friction {friction:.3f} 1/s, initial angle {angle:.3f}")

fig, ax = plt.subplots(figsize=(7, 3.5), layout="constrained")
ax.plot(t, measured, ".", color="grey", label="measured")
ax.plot(t, swing(start), "--", label="first guess")
ax.plot(t, swing(fit.x), label="fit")
ax.set(xlabel="time, s", ylabel="angle, rad")
ax.legend()
plt.show()

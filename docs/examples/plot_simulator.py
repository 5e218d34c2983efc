"""
Throwing over a wall: a network trained through a simulator
===========================================================

A network is to throw balls at targets that stand behind a wall. The simulator is a loop over
floats that adarray does not look into, and where a ball lands jumps as soon as it touches the
wall: there is no derivative to take. Noise at the two outputs of the network, the angle and the
speed, tells how the loss responds; from there to the weights the network is differentiated as ever.
"""

import math

import matplotlib.pyplot as plt
import numpy as np

from adarray.estimators import evolution_strategies, likelihood_ratio, noise_site

WALL, HEIGHT, DT, G = 4.0, 2.0, 0.04, 9.81


def throw(angle, speed):
    """Return the points of a flight with drag, which ends at the wall or on the ground."""
    x, y = 0.0, 0.0
    u, v = speed * math.cos(angle), speed * math.sin(angle)
    path = [(x, y)]
    while y >= 0.0 and len(path) < 200:
        drag = 0.02 * math.hypot(u, v)
        u, v = u - DT * drag * u, v - DT * (G + drag * v)
        if x < WALL <= x + DT * u and y < HEIGHT:
            u = -0.3 * u  # it bounces off
        x, y = x + DT * u, y + DT * v
        path.append((x, y))
    return path


def aim(w, targets):
    """Return angles and speeds, shape (targets, 2)."""
    h = np.tanh(np.stack([targets / 10.0, np.ones_like(targets)], axis=1) @ w["in"])
    return h @ w["out"] + np.array([0.9, 9.0])


def losses(w, targets):
    controls = noise_site(aim(w, targets), "controls")
    landed = np.array([throw(*c)[-1][0] for c in np.asarray(controls).tolist()])
    return (landed - targets) ** 2


# %%
# Copies run one by one, on plain arrays. The noise must be wide enough to get over the wall: with
# half of these scales it sees only balls that bounce off. Evolution strategies, which move all
# weights, get as many throws.

rng = np.random.default_rng(0)
start = {"in": rng.normal(size=(2, 12)), "out": 0.1 * rng.normal(size=(12, 2))}
targets = np.linspace(5.0, 12.0, 15)


def train(estimator, steps=100, rate=0.02):
    w = {k: p.copy() for k, p in start.items()}
    square = {k: 1e-3 * np.ones_like(p) for k, p in w.items()}
    history = []
    for k in range(steps):
        estimate = estimator(w, targets, rng=rng)
        history.append(float(estimate.value))
        for name, g in estimate.gradient.items():
            square[name] = 0.9 * square[name] + 0.1 * g**2
            w[name] = w[name] - rate * (1.0 - k / steps) * g / np.sqrt(square[name])
    return w, history


scales = {"controls": np.array([0.1, 0.6])}  # rad, m/s
ours = likelihood_ratio(losses, sigma=scales, copies=16, vectorize=False)
theirs = evolution_strategies(losses, sigma=0.05, copies=16, vectorize=False)
trained, history = train(ours)
_, other = train(theirs)
print(f"root mean square miss: {history[0] ** 0.5:.2f} m before, {history[-1] ** 0.5:.2f} m after")
print(f"by evolution strategies: {other[-1] ** 0.5:.2f} m")

fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
for target, controls in zip(targets[::3], aim(trained, targets)[::3], strict=True):
    (line,) = left.plot(*np.transpose(throw(*controls.tolist())))
    left.plot(target, 0.0, "x", color=line.get_color())
left.plot([WALL, WALL], [0.0, HEIGHT], color="black", linewidth=4)
left.set(xlabel="m", ylabel="m", title="throws after training")
right.semilogy(history, label="likelihood ratio")
right.semilogy(other, label="evolution strategies")
right.set(xlabel="step", title="mean squared miss, m²")
right.legend()
plt.show()

"""
Matrix factorisation: filling in missing entries
================================================

About a third of the entries of a low-rank matrix are known. A dict of two factors is fitted to
these entries and predicts the others.
"""

import matplotlib.pyplot as plt
import numpy as np

from adarray import jit, value_and_grad

rng = np.random.default_rng(0)
m, n, rank = 60, 90, 3
truth = rng.normal(size=(m, rank)) @ rng.normal(size=(rank, n))
known = rng.random((m, n)) < 0.35
data = np.where(known, truth + 0.05 * rng.normal(size=(m, n)), np.nan)


def loss(p):
    difference = p["left"] @ p["right"] - data
    fit = np.nansum(difference**2) / known.sum()  # missing entries are nan
    return fit + 1e-4 * sum(np.sum(f**2) for f in p.values())


step = jit(value_and_grad(loss))
p = {"left": rng.normal(size=(m, rank)), "right": rng.normal(size=(rank, n))}
velocity = {k: np.zeros_like(f) for k, f in p.items()}
history = []
for _ in range(600):
    value, g = step(p)
    history.append(value)
    for k in p:
        velocity[k] = 0.9 * velocity[k] - 2.0 * g[k]
        p[k] = p[k] + velocity[k]

estimate = p["left"] @ p["right"]
error = np.sqrt(np.mean((estimate - truth)[~known] ** 2))
print(f"error of unknown entries: {error:.3f}, their standard deviation: {truth.std():.2f}")

# %%
# Two thirds of the entries were unknown; they are predicted nearly as well as the known ones.

fig, axes = plt.subplots(1, 3, figsize=(9, 2.8), layout="constrained")
for ax, a, title in zip(axes, (data, estimate, truth), ("known", "found", "truth"), strict=True):
    ax.imshow(a, cmap="coolwarm", vmin=-4, vmax=4)
    ax.set_title(title)
    ax.axis("off")
plt.show()

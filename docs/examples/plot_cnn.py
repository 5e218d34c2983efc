"""
Convolutional network: handwritten digits
=========================================

A network with one convolutional and one dense layer, written with NumPy's ``sliding_window_view``
and ``einsum``, learns to recognise the digits that come with adarray's demo.
"""

from importlib import resources

import matplotlib.pyplot as plt
import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from adarray import jit, value_and_grad

with resources.files("adarray.demo").joinpath("digits.npz").open("rb") as file:
    stored = np.load(file)
    images, labels = stored["images"] / np.float32(16), stored["labels"].astype(int)
order = np.random.default_rng(0).permutation(len(labels))
images, labels = images[order].reshape(-1, 8, 8), labels[order]
train, test = slice(0, 1400), slice(1400, None)


def scores(p, x):
    windows = sliding_window_view(x, (3, 3), axis=(1, 2))  # (batch, 6, 6, 3, 3)
    h = np.einsum("bijkl,klc->bijc", windows, p["kernels"]) + p["offset"]
    h = np.maximum(h, 0)
    h = h.reshape(len(x), 3, 2, 3, 2, -1).max(axis=(2, 4))  # max pooling, 2 by 2
    return h.reshape(len(x), -1) @ p["weights"] + p["bias"]


def loss(p, x, y):
    s = scores(p, x)
    s = s - s.max(axis=1, keepdims=True)
    return np.mean(np.log(np.sum(np.exp(s), axis=1)) - s[np.arange(len(y)), y])


# %%
# Training with Adam. After its first calls, ``step`` runs compiled code.

rng = np.random.default_rng(1)
shapes = {"kernels": (3, 3, 12), "offset": (12,), "weights": (108, 10), "bias": (10,)}
p = {k: rng.normal(scale=0.1, size=s).astype(np.float32) for k, s in shapes.items()}
m = {k: np.zeros_like(a) for k, a in p.items()}
v = {k: np.zeros_like(a) for k, a in p.items()}
step = jit(value_and_grad(loss))
history = []
for k in range(1, 501):
    batch = rng.integers(0, 1400, 64)
    value, g = step(p, images[batch], labels[batch])
    history.append(value)
    for name in p:
        m[name] = 0.9 * m[name] + 0.1 * g[name]
        v[name] = 0.99 * v[name] + 0.01 * g[name] ** 2
        p[name] -= 0.01 * (m[name] / (1 - 0.9**k)) / (np.sqrt(v[name] / (1 - 0.99**k)) + 1e-8)

guess = scores(p, images[test]).argmax(axis=1)
print(f"{np.mean(guess == labels[test]):.1%} of {len(guess)} unseen digits recognised correctly")

fig, axes = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained", width_ratios=(3, 2))
axes[0].semilogy(history)
axes[0].set(xlabel="step", ylabel="loss of a batch")
tiles = p["kernels"].transpose(2, 0, 1).reshape(3, 4, 3, 3)
tiles = np.pad(tiles, ((0, 0), (0, 0), (0, 1), (0, 1)), constant_values=np.nan)
axes[1].imshow(tiles.transpose(0, 2, 1, 3).reshape(12, 16), cmap="coolwarm")
axes[1].set_title("the twelve kernels")
axes[1].axis("off")
plt.show()

"""
Deconvolution: sharpening a blurred image
=========================================

An image has been blurred by a known kernel and is noisy. We look for the image of small total
variation whose blurred version fits the data. The convolution is computed with ``np.fft``, whose
gradient is another Fourier transform.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import minimize

from adarray import value_and_grad

N = 64
rng = np.random.default_rng(0)
rows, columns = np.mgrid[:N, :N]
truth = np.zeros((N, N))
truth[12:28, 10:50] = 1.0
truth[(rows - 44) ** 2 + (columns - 22) ** 2 < 100] = 0.6
truth[36:56, 42:46] = 0.9
truth[44:48, 34:54] = 0.9

distance = np.minimum(rows, N - rows) ** 2 + np.minimum(columns, N - columns) ** 2
kernel = np.exp(-distance / (2 * 2.0**2))
spectrum = np.fft.rfft2(kernel / kernel.sum())


def blur(picture):
    return np.fft.irfft2(np.fft.rfft2(picture) * spectrum, s=(N, N))


blurred = blur(truth) + 0.01 * rng.normal(size=(N, N))


def loss(flat):
    picture = flat.reshape(N, N)
    down, right = np.diff(picture, axis=0)[:, :-1], np.diff(picture, axis=1)[:-1, :]
    variation = np.sum(np.sqrt(down**2 + right**2 + 1e-6))
    return np.sum((blur(picture) - blurred) ** 2) + 2e-3 * variation


fit = minimize(value_and_grad(loss), blurred.ravel(), jac=True, method="L-BFGS-B",
               options={"maxiter": 200})  # fmt: skip
sharp = fit.x.reshape(N, N)
for name, picture in (("blurred", blurred), ("sharpened", sharp)):
    print(f"{name}: root mean square error {np.sqrt(np.mean((picture - truth) ** 2)):.3f}")

fig, axes = plt.subplots(1, 3, figsize=(9, 3.2), layout="constrained")
for ax, picture, title in zip(axes, (truth, blurred, sharp), ("truth", "blurred", "sharpened"),
                              strict=True):  # fmt: skip
    ax.imshow(picture, cmap="gray", vmin=0, vmax=1)
    ax.set_title(title)
    ax.axis("off")
plt.show()

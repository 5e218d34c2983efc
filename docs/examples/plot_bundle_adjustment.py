"""
Bundle adjustment: cameras and points from images
=================================================

Several cameras see the same points. The positions and orientations of the cameras, and the
positions of the points, are recovered from the images alone. All parameters form one vector; the
rotation of each camera is a Rodrigues vector.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import least_squares

from adarray import jacobian

CAMERAS, POINTS = 5, 30
rng = np.random.default_rng(0)


def rotate(points, r):
    """Rotate points by the Rodrigues vector of each camera: (cameras, points, 3)."""
    angle = np.sqrt(np.sum(r**2, axis=1) + 1e-12)[:, None, None]
    k = r[:, None, :] / angle
    p = points[None, :, :]
    along = np.sum(k * p, axis=2, keepdims=True)
    return p * np.cos(angle) + np.cross(k, p) * np.sin(angle) + k * along * (1 - np.cos(angle))


def project(r, t, points):
    p = rotate(points, r) + t[:, None, :]
    return p[..., :2] / p[..., 2:]


def unpack(v):
    n = 3 * CAMERAS
    return v[:n].reshape(-1, 3), v[n : 2 * n].reshape(-1, 3), v[2 * n :].reshape(-1, 3)


# %%
# The truth, the images of it, and a poor first guess.

r = np.column_stack([0.1 * rng.normal(size=CAMERAS), np.linspace(-0.6, 0.6, CAMERAS),
                     0.1 * rng.normal(size=CAMERAS)])  # fmt: skip
t = np.column_stack([0.2 * rng.normal(size=(CAMERAS, 2)), np.full(CAMERAS, 6.0)])
points = rng.uniform(-1, 1, (POINTS, 3))
truth = np.concatenate([r.ravel(), t.ravel(), points.ravel()])
seen = project(r, t, points) + 1e-3 * rng.normal(size=(CAMERAS, POINTS, 2))
start = truth + 0.15 * rng.normal(size=truth.size)


def residuals(v):
    return (project(*unpack(v)) - seen).ravel()


# %%
# The Levenberg-Marquardt method uses the Jacobian, here of 300 residuals and 120 parameters.

fit = least_squares(residuals, start, jac=jacobian(residuals), method="lm", max_nfev=100)
error = np.sqrt(np.mean(residuals(fit.x) ** 2))
print(f"{fit.njev} Jacobians, mean reprojection error {error:.1e}")

fig, axes = plt.subplots(1, 2, figsize=(8, 3.8), layout="constrained", sharex=True, sharey=True)
for ax, v, title in zip(axes, (start, fit.x), ("first guess", "adjusted"), strict=True):
    image = project(*unpack(v))[0]
    ax.plot(*seen[0].T, "o", mfc="none", color="grey", label="seen by the first camera")
    ax.plot(*image.T, "x", color="C1", label="projected")
    ax.set(title=title, aspect="equal")
axes[0].legend(fontsize=8)
plt.show()

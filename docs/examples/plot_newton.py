"""
Newton's method: logistic regression with error bars
====================================================

`adarray.hessian` computes second derivatives. With these, Newton's method needs only a handful of
steps, and the inverse of the final Hessian is the covariance of the estimate.
"""

import matplotlib.pyplot as plt
import numpy as np

from adarray import grad, hessian

rng = np.random.default_rng(0)
X = np.column_stack([np.ones(300), rng.normal(size=(300, 3))])
truth = np.array([0.5, 1.5, -1.0, 0.0])
y = rng.random(300) < 1 / (1 + np.exp(-X @ truth))


def loss(w):
    """Return the negative log-likelihood."""
    z = X @ w
    return np.sum(np.logaddexp(0, z) - y * z)


w = np.zeros(4)
sizes = []
for _ in range(7):
    g = grad(loss)(w)
    sizes.append(np.linalg.norm(g))
    w = w - np.linalg.solve(hessian(loss)(w), g)
error = np.sqrt(np.diag(np.linalg.inv(hessian(loss)(w))))
for name, value, e in zip(("intercept", "x1", "x2", "x3"), w, error, strict=True):
    print(f"{name:>9}: {value:6.3f} +- {e:.3f}")

# %%
# The gradient converges to zero quadratically, and all intervals but one cover the truth.

fig, axes = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
axes[0].semilogy(sizes, "o-")
axes[0].set(xlabel="Newton step", ylabel="norm of the gradient")
axes[1].errorbar(w, range(4), xerr=1.96 * error, fmt="o", capsize=4, label="estimate, 95 %")
axes[1].plot(truth, range(4), "kx", label="truth")
axes[1].set_yticks(range(4), ["intercept", "x1", "x2", "x3"])
axes[1].legend(loc="upper left", fontsize=8)
plt.show()

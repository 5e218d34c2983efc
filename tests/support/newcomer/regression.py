"""Fits of curves and lines to data."""

import math

import numpy as np
import scipy.special
from scipy.spatial.distance import cdist

rng = np.random.default_rng(0)
X = rng.normal(size=(20, 3))
Y = X @ np.array([1.0, -2.0, 0.5]) + 0.1 * rng.normal(size=20)
LABELS = (Y > 0).astype(int)
COUNTS = rng.poisson(2.0, size=20)
T = np.linspace(0, 1, 12)
S = np.sin(3 * T) + 0.05 * rng.normal(size=12)


# linear regression


def linear_dot(w):
    residual = X.dot(w) - Y
    return residual.dot(residual) / len(Y)


def linear_loop(w):
    total = 0.0
    for i in range(len(Y)):
        prediction = 0.0
        for j in range(X.shape[1]):
            prediction += X[i, j] * w[j]
        total += (prediction - Y[i]) ** 2
    return total / len(Y)


def linear_bias(params):
    w, b = params
    predictions = [sum(wj * xj for wj, xj in zip(w, row)) + b for row in X]
    return np.mean((np.array(predictions) - Y) ** 2)


# polynomial regression


def polynomial_vander(c):
    return np.mean((np.vander(T, len(c)).dot(c) - S) ** 2)


def polynomial_columns(c):
    A = np.column_stack([T**k for k in range(len(c))])
    r = A @ c - S
    return np.sqrt(np.mean(r**2))


def polynomial_polyval(c):
    return np.sum(np.square(np.polyval(c, T) - S))


# ridge regression, its best penalty


def ridge_closed_form(log_lam):
    lam = math.exp(log_lam)
    A = X[:14].T.dot(X[:14]) + lam * np.eye(3)
    w = np.linalg.inv(A).dot(X[:14].T).dot(Y[:14])
    return ((X[14:].dot(w) - Y[14:]) ** 2).mean()


def ridge_diagonal(log_lam):
    A = np.dot(X[:14].T, X[:14])
    A[np.diag_indices_from(A)] += np.exp(log_lam)
    w = np.linalg.solve(A, np.dot(X[:14].T, Y[:14]))
    return np.linalg.norm(np.dot(X[14:], w) - Y[14:])


# logistic regression


def sigmoid(z):
    if z >= 0:
        return 1 / (1 + math.exp(-z))
    return math.exp(z) / (1 + math.exp(z))


def logistic_math(w):
    loss = 0
    for row, label in zip(X, LABELS):
        p = sigmoid(row.dot(w))
        loss -= math.log(p) if label == 1 else math.log(1 - p)
    return loss / len(LABELS)


def logistic_expit(w):
    p = np.clip(scipy.special.expit(X @ w), 1e-12, 1 - 1e-12)
    return -np.mean(LABELS * np.log(p) + (1 - LABELS) * np.log(1 - p))


def logistic_masks(w):
    z = X.dot(w)
    positive = z[LABELS == 1]
    negative = z[LABELS == 0]
    return np.logaddexp(0, -positive).sum() + np.logaddexp(0, negative).sum()


# softmax regression

CLASSES = rng.integers(0, 3, size=20)


def softmax_one_hot(W):
    scores = X.dot(W)
    scores -= scores.max(axis=1, keepdims=True)
    p = np.exp(scores)
    p /= p.sum(axis=1, keepdims=True)
    one_hot = np.zeros((20, 3))
    one_hot[np.arange(20), CLASSES] = 1
    return -(one_hot * np.log(p)).sum() / 20


def softmax_pick(W):
    z = X @ W
    logp = z - scipy.special.logsumexp(z, axis=1, keepdims=True)
    return -np.mean(logp[range(len(CLASSES)), CLASSES])


# Poisson regression


def poisson_gammaln(w):
    rate = np.exp(X.dot(w))
    return -np.sum(COUNTS * np.log(rate) - rate - scipy.special.gammaln(COUNTS + 1))


def poisson_lgamma(w):
    return sum(math.exp(x.dot(w)) - n * x.dot(w) + math.lgamma(n + 1) for x, n in zip(X, COUNTS))


# robust regression


def huber(r, delta=0.5):
    return np.where(np.abs(r) < delta, 0.5 * r**2, delta * (np.abs(r) - 0.5 * delta))


def robust_where(w):
    return huber(Y - X.dot(w)).sum()


def robust_if(w):
    total = 0.0
    for x, y in zip(X, Y):
        r = abs(y - np.dot(x, w))
        if r < 0.5:
            total += 0.5 * r**2
        else:
            total += 0.5 * (r - 0.25)
    return total


def robust_piecewise(w):
    r = Y - X.dot(w)
    parts = np.piecewise(
        r, [np.abs(r) < 0.5], [lambda v: 0.5 * v**2, lambda v: 0.5 * (np.abs(v) - 0.25)]
    )
    return parts.mean()


# Gaussian process


def gp_loops(theta):
    length, amplitude, noise = np.exp(theta)
    n = len(T)
    K = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            K[i, j] = amplitude * math.exp(-0.5 * ((T[i] - T[j]) / length) ** 2)
        K[i, i] += noise
    L = np.linalg.cholesky(K)
    alpha = np.linalg.solve(L.T, np.linalg.solve(L, S))
    return 0.5 * S.dot(alpha) + np.sum(np.log(np.diag(L))) + 0.5 * n * np.log(2 * np.pi)


def gp_slogdet(theta):
    length, amplitude, noise = np.exp(theta[0]), np.exp(theta[1]), np.exp(theta[2])
    d = np.subtract.outer(T, T)
    K = amplitude * np.exp(-0.5 * d**2 / length**2) + noise * np.eye(len(T))
    sign, logdet = np.linalg.slogdet(K)
    assert sign > 0
    return 0.5 * S @ np.linalg.inv(K) @ S + 0.5 * logdet


def gp_cdist(theta):
    points = T[:, None] / np.exp(theta[0])
    K = np.exp(theta[1]) * np.exp(-0.5 * cdist(points, points, "sqeuclidean"))
    K[np.diag_indices(len(T))] += np.exp(theta[2])
    from scipy.linalg import cho_factor, cho_solve

    c = cho_factor(K, lower=True)
    return 0.5 * S.dot(cho_solve(c, S)) + np.log(np.diag(c[0])).sum()


# kernel regression


def kernel_fit(centre):
    out = []
    for t in T:
        weights = np.exp(-((T - t) ** 2) / (2 * centre**2))
        out.append(np.sum(weights * S) / weights.sum())
    return np.sum((np.array(out) - S) ** 2)


def kernel_average(centre):
    w = np.exp(-((T[:, None] - T[None]) ** 2) / (2 * centre**2))
    return np.square(np.average(np.tile(S, (len(T), 1)), axis=1, weights=w) - S).sum()


W0 = np.array([0.3, -0.2, 0.1])
PROGRAMS = {
    "linear regression": [
        (linear_dot, (W0,)),
        (linear_loop, (W0,)),
        (linear_bias, ((W0, 0.2),)),
    ],
    "polynomial regression": [
        (polynomial_vander, (np.array([0.1, -0.3, 0.2, 0.4]),)),
        (polynomial_columns, (np.array([0.1, -0.3, 0.2, 0.4]),)),
        (polynomial_polyval, (np.array([0.1, -0.3, 0.2, 0.4]),)),
    ],
    "ridge penalty": [(ridge_closed_form, (-1.0,)), (ridge_diagonal, (-1.0,))],
    "logistic regression": [
        (logistic_math, (W0,)),
        (logistic_expit, (W0,)),
        (logistic_masks, (W0,)),
    ],
    "softmax regression": [
        (softmax_one_hot, (rng.normal(size=(3, 3)),)),
        (softmax_pick, (rng.normal(size=(3, 3)),)),
    ],
    "Poisson regression": [(poisson_gammaln, (W0,)), (poisson_lgamma, (W0,))],
    "robust regression": [(robust_where, (W0,)), (robust_if, (W0,)), (robust_piecewise, (W0,))],
    "Gaussian process": [
        (gp_loops, (np.array([-1.0, 0.1, -2.0]),)),
        (gp_slogdet, (np.array([-1.0, 0.1, -2.0]),)),
        (gp_cdist, (np.array([-1.0, 0.1, -2.0]),)),
    ],
    "kernel regression": [(kernel_fit, (0.2,)), (kernel_average, (0.2,))],
}

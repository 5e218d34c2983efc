"""Roots, fits inside of functions, control, linear algebra."""

import math

import numpy as np
import scipy.linalg
import scipy.optimize
from scipy.optimize import curve_fit, fsolve, least_squares, minimize, root

rng = np.random.default_rng(5)
PLACES = rng.random((5, 2))


# roots and fixed points


def newton_root(a):
    x = 1.0
    iterations = 0
    while abs(x**3 + a * x - 2) > 1e-13 and iterations < 100:
        x = x - (x**3 + a * x - 2) / (3 * x**2 + a)
        iterations += 1
    return x


def root_scipy(a):
    solution = root(lambda x: [x[0] ** 3 + a * x[0] - 2 - x[1], x[1] - 0.1 * x[0]], [1.0, 0.1])
    return solution.x[0]


def root_fsolve(a):
    return fsolve(lambda x: x**3 + a * x - 2, 1.0)[0]


def bisection(a):
    low, high = 0.0, 2.0
    for _ in range(60):
        middle = (low + high) / 2
        if middle**3 + a * middle - 2 > 0:
            high = middle
        else:
            low = middle
    x = middle
    return x - (x**3 + a * x - 2) / (3 * x**2 + a)


# fits of SciPy, differentiated by the data

XS = np.linspace(0, 1, 8)


def fit_minimize(y):
    result = minimize(lambda p: np.sum((p[0] * np.exp(-p[1] * XS) - y) ** 2), [1.0, 1.0], tol=1e-12)
    return result.x[1]


def fit_least_squares(y):
    return least_squares(lambda p: p[0] * np.exp(-p[1] * XS) - y, [1.0, 1.0], xtol=1e-14).x[1]


def fit_curve_fit(y):
    popt, pcov = curve_fit(lambda x, a, b: a * np.exp(-b * x), XS, y, p0=[1.0, 1.0])
    return popt[0] + popt[1]


# control


def lqr_rollout(K):
    A, B = np.array([[1.0, 0.1], [0.0, 1.0]]), np.array([[0.0], [0.1]])
    x = np.array([1.0, 0.0])
    cost = 0.0
    for _ in range(20):
        u = -K @ x
        cost += x @ x + 0.1 * u**2
        x = A @ x + (B * u).flatten()
    return cost


def lqr_riccati(q):
    A, B = np.array([[1.0, 0.1], [0.0, 1.0]]), np.array([[0.0], [0.1]])
    P = Q = np.diag(q)
    for _ in range(20):
        K = np.linalg.inv(np.array([[0.1]]) + B.T @ P @ B) @ B.T @ P @ A
        P = Q + A.T @ P @ (A - B @ K)
    return np.trace(P)


def lqr_scipy(q):
    A, B = np.array([[1.0, 0.1], [0.0, 1.0]]), np.array([[0.0], [0.1]])
    return np.trace(scipy.linalg.solve_discrete_are(A, B, np.diag(q), np.array([[0.1]])))


# principal components


def pca_svd(D):
    centred = D - D.mean(axis=0)
    U, s, Vt = np.linalg.svd(centred, full_matrices=False)
    return s[0] ** 2 / np.sum(s**2)


def pca_eigh(D):
    C = np.cov(D, rowvar=False)
    values, vectors = np.linalg.eigh(C)
    return values[-1] / values.sum() + np.abs(vectors[0, -1])


def pca_power(D):
    C = np.dot((D - D.mean(0)).T, D - D.mean(0))
    v = np.ones(C.shape[0])
    for _ in range(100):
        v = C.dot(v)
        v /= np.linalg.norm(v)
    return v.dot(C).dot(v) / np.trace(C)


# clusters


def k_means(centres):
    d = ((PLACES[:, None] - centres[None]) ** 2).sum(axis=2)
    labels = d.argmin(axis=1)
    total = 0.0
    for k in np.unique(labels):
        total += d[labels == k, k].sum()
    return total


def k_means_counts(centres):
    nearest = [min(centres, key=lambda c: np.sum((p - c) ** 2)) for p in PLACES]
    return np.sum((np.asarray(nearest) - PLACES) ** 2)


# least squares


def least_squares_lstsq(A):
    x, residuals, rank, s = np.linalg.lstsq(A, np.arange(6.0), rcond=None)
    return np.sum(x**2)


def least_squares_qr(A):
    Q, R = np.linalg.qr(A)
    return np.sum(scipy.linalg.solve_triangular(R, Q.T @ np.arange(6.0)) ** 2)


def least_squares_pinv(A):
    return np.linalg.norm(np.linalg.pinv(A) @ np.arange(6.0)) ** 2


# elimination written by hand


def elimination(A):
    M = np.hstack([A, np.ones((4, 1))])
    n = 4
    for i in range(n):
        p = i + int(np.argmax(np.abs(M[i:, i])))
        M[[i, p]] = M[[p, i]]
        M[i] /= M[i, i]
        for k in range(n):
            if k != i:
                M[k] -= M[k, i] * M[i]
    return M[:, -1].sum()


def cholesky_by_hand(A):
    S = A @ A.T + 4 * np.eye(4)
    L = np.zeros((4, 4))
    for i in range(4):
        for j in range(i + 1):
            s = sum(L[i, k] * L[j, k] for k in range(j))
            if i == j:
                L[i, j] = math.sqrt(S[i, i] - s)
            else:
                L[i, j] = (S[i, j] - s) / L[j, j]
    return np.log(np.diag(L)).sum()


def conjugate_gradients(A):
    S = A @ A.T + 4 * np.eye(4)
    b = np.ones(4)
    x = np.zeros(4)
    r = b - S.dot(x)
    p = r.copy()
    rs = r.dot(r)
    for _ in range(4):
        Sp = S.dot(p)
        alpha = rs / p.dot(Sp)
        x += alpha * p
        r -= alpha * Sp
        new = r.dot(r)
        if np.sqrt(new) < 1e-12:
            break
        p = r + new / rs * p
        rs = new
    return x.sum()


DATA = rng.normal(size=(8, 3)) * np.array([2.0, 1.0, 0.3])
DECAY = 1.3 * np.exp(-0.8 * XS) + 0.01 * rng.normal(size=8)
PROGRAMS = {
    "root": [
        (newton_root, (0.7,)),
        (root_scipy, (0.7,)),
        (root_fsolve, (0.7,)),
        (bisection, (0.7,)),
    ],
    "fit inside": [
        (fit_minimize, (DECAY,)),
        (fit_least_squares, (DECAY,)),
        (fit_curve_fit, (DECAY,)),
    ],
    "control": [
        (lqr_rollout, (np.array([1.0, 1.5]),)),
        (lqr_riccati, (np.array([1.0, 1.5]),)),
        (lqr_scipy, (np.array([1.0, 1.5]),)),
    ],
    "principal components": [(pca_svd, (DATA,)), (pca_eigh, (DATA,)), (pca_power, (DATA,))],
    "clusters": [(k_means, (PLACES[:2] + 0.1,)), (k_means_counts, (PLACES[:2] + 0.1,))],
    "least squares": [
        (least_squares_lstsq, (rng.normal(size=(6, 2)),)),
        (least_squares_qr, (rng.normal(size=(6, 2)),)),
        (least_squares_pinv, (rng.normal(size=(6, 2)),)),
    ],
    "elimination": [
        (elimination, (rng.normal(size=(4, 4)),)),
        (cholesky_by_hand, (rng.normal(size=(4, 4)),)),
        (conjugate_gradients, (rng.normal(size=(4, 4)),)),
    ],
}

"""Geometry, graphs, control, optimisation and linear algebra."""

import cmath
import itertools
import math
from functools import reduce

import numpy as np
import scipy.linalg
import scipy.optimize
from scipy.optimize import curve_fit, fsolve, least_squares, minimize, root

rng = np.random.default_rng(4)
POINTS = rng.normal(size=(6, 3)) + np.array([0, 0, 5.0])
SEEN = rng.normal(size=(6, 2)) * 0.2
CITIES = rng.random((5, 2))


# bundle adjustment


def rodrigues(r):
    theta = np.sqrt(np.sum(r**2))
    if theta < 1e-12:
        return np.eye(3)
    k = r / theta
    K = np.array([[0, -k[2], k[1]], [k[2], 0, -k[0]], [-k[1], k[0], 0]])
    return np.eye(3) + np.sin(theta) * K + (1 - np.cos(theta)) * K.dot(K)


def bundle_loop(camera):
    R, t, f = rodrigues(camera[:3]), camera[3:6], camera[6]
    error = 0.0
    for P, uv in zip(POINTS, SEEN):
        q = R.dot(P) + t
        error += np.sum((f * q[:2] / q[2] - uv) ** 2)
    return error


def bundle_vectorised(camera):
    r = camera[:3]
    theta = np.linalg.norm(r)
    with np.errstate(invalid="ignore", divide="ignore"):
        v = np.nan_to_num(r / theta)
    dot = (POINTS * v).sum(axis=1)[:, None]
    rotated = (
        np.cos(theta) * POINTS + np.sin(theta) * np.cross(v, POINTS) + (1 - np.cos(theta)) * dot * v
    )
    q = rotated + camera[3:6]
    projected = camera[6] * q[:, :2] / q[:, 2, np.newaxis]
    return ((projected - SEEN).ravel() ** 2).sum()


# rotations by quaternions


def quaternion_multiply(a, b):
    w1, x1, y1, z1 = a
    w2, x2, y2, z2 = b
    return np.array(
        [
            w1 * w2 - x1 * x2 - y1 * y2 - z1 * z2,
            w1 * x2 + x1 * w2 + y1 * z2 - z1 * y2,
            w1 * y2 - x1 * z2 + y1 * w2 + z1 * x2,
            w1 * z2 + x1 * y2 - y1 * x2 + z1 * w2,
        ]
    )


def quaternion_chain(q):
    q = q / np.linalg.norm(q)
    conj = q * np.array([1, -1, -1, -1])
    total = 0
    for p in POINTS:
        v = quaternion_multiply(quaternion_multiply(q, np.insert(p, 0, 0.0)), conj)[1:]
        total += v[0] ** 2 - v[1] * v[2]
    return total


def quaternion_scipy(q):
    from scipy.spatial.transform import Rotation

    R = Rotation.from_quat(np.roll(q, -1)).as_matrix()
    v = POINTS.dot(R.T)
    return np.sum(v[:, 0] ** 2 - v[:, 1] * v[:, 2])


# a robot's arm


def arm_angles(angles):
    x = y = heading = 0.0
    for a, length in zip(angles, [1.0, 0.8, 0.5]):
        heading += a
        x += length * math.cos(heading)
        y += length * math.sin(heading)
    return math.hypot(x - 1.2, y - 0.9)


def arm_matrices(angles):
    def joint(a, length):
        c, s = np.cos(a), np.sin(a)
        return np.array([[c, -s, length * c], [s, c, length * s], [0, 0, 1]])

    M = reduce(np.matmul, [joint(a, n) for a, n in zip(angles, (1.0, 0.8, 0.5))])
    return np.linalg.norm(M[:2, 2] - [1.2, 0.9])


def arm_complex(angles):
    z = sum(n * cmath.exp(1j * sum(angles[: k + 1])) for k, n in enumerate((1.0, 0.8, 0.5)))
    return abs(z - (1.2 + 0.9j))


# polygons and distances


def polygon_area(p):
    x, y = p[:, 0], p[:, 1]
    return 0.5 * np.abs(np.dot(x, np.roll(y, 1)) - np.dot(y, np.roll(x, 1)))


def polygon_perimeter(p):
    n = len(p)
    return sum(math.dist(p[i], p[(i + 1) % n]) for i in range(n))


def spread_pairs(p):
    energy = 0.0
    for a, b in itertools.combinations(p, 2):
        energy += 1 / np.linalg.norm(a - b)
    return energy


# embedding of a graph

ADJACENCY = np.array([
    [0, 1, 0, 0, 1], [1, 0, 1, 0, 0], [0, 1, 0, 1, 0], [0, 0, 1, 0, 1], [1, 0, 0, 1, 0],
])  # fmt: skip


def graph_springs(pos):
    d = np.sqrt(((pos[:, None] - pos[None]) ** 2).sum(-1) + np.eye(5))
    return np.sum(ADJACENCY * (d - 0.5) ** 2) + np.sum(1 / d[np.triu_indices(5, k=1)])


def graph_page_rank(w):
    A = ADJACENCY * np.exp(w)
    A = A / A.sum(axis=0)
    rank = np.ones(5) / 5
    while True:
        new = 0.15 / 5 + 0.85 * A.dot(rank)
        if np.linalg.norm(new - rank) < 1e-13:
            return new[0]
        rank = new


def graph_neighbours(w):
    neighbours = {i: list(np.flatnonzero(row)) for i, row in enumerate(ADJACENCY)}
    h = {i: w[i] for i in neighbours}
    for _ in range(2):
        h = {i: np.tanh(h[i] + np.mean([h[j] for j in js], axis=0)) for i, js in neighbours.items()}
    return sum(v.sum() for v in h.values())


# dynamic programming

COSTS = rng.random((5, 6))


def softmin(values):
    values = np.array(values)
    m = values.min()
    return m - 0.1 * np.log(np.sum(np.exp(-(values - m) / 0.1)))


def time_warping(x):
    y = np.array([0.1, 0.4, 0.8, 0.5])
    n, m = len(x), len(y)
    D = np.full((n + 1, m + 1), np.inf)
    D[0, 0] = 0
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            cost = (x[i - 1] - y[j - 1]) ** 2
            D[i, j] = cost + softmin([D[i - 1, j], D[i, j - 1], D[i - 1, j - 1]])
    return D[n, m]


def path_recursive(costs):
    memo = {}

    def best(i, j):
        if i == 0:
            return costs[0, j]
        if (i, j) not in memo:
            options = [best(i - 1, k) for k in (j - 1, j, j + 1) if 0 <= k < costs.shape[1]]
            memo[i, j] = costs[i, j] + min(options)
        return memo[i, j]

    return min(best(4, j) for j in range(6))


def path_table(costs):
    table = costs.copy()
    for i in range(1, len(table)):
        for j in range(table.shape[1]):
            lo, hi = max(j - 1, 0), min(j + 2, table.shape[1])
            table[i, j] += np.min(table[i - 1, lo:hi])
    return table[-1].min()


# recursion


def legendre(n, x):
    if n == 0:
        return 1.0
    if n == 1:
        return x
    return ((2 * n - 1) * x * legendre(n - 1, x) - (n - 1) * legendre(n - 2, x)) / n


def recursion(x):
    return legendre(5, x) + fast_power(x, 7)


def fast_power(x, n):
    if n == 0:
        return 1
    half = fast_power(x, n // 2)
    return half * half * (x if n % 2 else 1)


def tree_sum(x):
    if len(x) == 1:
        return np.sin(x[0])
    middle = len(x) // 2
    return tree_sum(x[:middle]) * 0.9 + tree_sum(x[middle:])


def generator_total(x):
    def walk():
        value = x
        for k in range(6):
            yield value
            value = math.sin(value) + k / 10

    return sum(v * v for v in walk())


# logistic map


def logistic_map(r):
    x = 0.3
    for _ in range(25):
        x = r * x * (1 - x)
    return x


def lyapunov(r):
    x, total = 0.3, 0.0
    for _ in range(25):
        x = r * x * (1 - x)
        total += math.log(abs(r * (1 - 2 * x)))
    return total / 25


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
    d = ((CITIES[:, None] - centres[None]) ** 2).sum(axis=2)
    labels = d.argmin(axis=1)
    total = 0.0
    for k in np.unique(labels):
        total += d[labels == k, k].sum()
    return total


def k_means_counts(centres):
    nearest = [min(centres, key=lambda c: np.sum((p - c) ** 2)) for p in CITIES]
    return np.sum((np.asarray(nearest) - CITIES) ** 2)


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


CAMERA = np.array([0.1, -0.2, 0.15, 0.1, 0.2, 0.3, 1.1])
SQUARE = np.array([[0.0, 0.1], [1.0, 0.0], [1.2, 1.0], [0.1, 0.9]])
DATA = rng.normal(size=(8, 3)) * np.array([2.0, 1.0, 0.3])
DECAY = 1.3 * np.exp(-0.8 * XS) + 0.01 * rng.normal(size=8)
PROGRAMS = {
    "bundle adjustment": [(bundle_loop, (CAMERA,)), (bundle_vectorised, (CAMERA,))],
    "quaternions": [
        (quaternion_chain, (np.array([0.9, 0.1, -0.2, 0.3]),)),
        (quaternion_scipy, (np.array([0.9, 0.1, -0.2, 0.3]),)),
    ],
    "robot arm": [
        (arm_angles, (np.array([0.3, 0.4, -0.2]),)),
        (arm_matrices, (np.array([0.3, 0.4, -0.2]),)),
        (arm_complex, (np.array([0.3, 0.4, -0.2]),)),
    ],
    "polygon": [
        (polygon_area, (SQUARE,)),
        (polygon_perimeter, (SQUARE,)),
        (spread_pairs, (SQUARE,)),
    ],
    "graph": [
        (graph_springs, (CITIES,)),
        (graph_page_rank, (rng.normal(size=(5, 5)),)),
        (graph_neighbours, (CITIES,)),
    ],
    "dynamic programming": [
        (time_warping, (np.array([0.2, 0.3, 0.9]),)),
        (path_recursive, (COSTS,)),
        (path_table, (COSTS,)),
    ],
    "recursion": [
        (recursion, (0.4,)),
        (tree_sum, (np.array([0.1, 0.5, 0.7, -0.2, 0.3]),)),
        (generator_total, (0.4,)),
    ],
    "logistic map": [(logistic_map, (3.1,)), (lyapunov, (3.1,))],
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
    "clusters": [(k_means, (CITIES[:2] + 0.1,)), (k_means_counts, (CITIES[:2] + 0.1,))],
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

"""Geometry, graphs, dynamic programming, recursion."""

import cmath
import itertools
import math
from functools import reduce

import numpy as np

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


CAMERA = np.array([0.1, -0.2, 0.15, 0.1, 0.2, 0.3, 1.1])
SQUARE = np.array([[0.0, 0.1], [1.0, 0.0], [1.2, 1.0], [0.1, 0.9]])
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
}

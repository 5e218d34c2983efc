"""Functions with loops, and arguments, for `test_lower`: run as kernels and as Python."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

Function = Callable[..., Any]


class Case(NamedTuple):
    """A function with its arguments.

    Parameters
    ----------
    function : callable
    args : callable
        Makes the arguments, with a generator of random numbers.
    gradient : bool
        Whether its derivatives are checked.
    """

    function: Function
    args: Callable[[np.random.Generator], tuple[Any, ...]]
    gradient: bool = True


CASES: dict[str, Case] = {}


def case(args: Callable[[np.random.Generator], tuple[Any, ...]], gradient: bool = True) -> Any:
    """Register a function."""

    def add(function: Function) -> Function:
        CASES[function.__name__] = Case(function, args, gradient)
        return function

    return add


def _dominant(r: np.random.Generator, n: int) -> Any:
    return r.normal(size=(n, n)) + n * np.eye(n)


# -- elements --------------------------------------------------------------------------------------


@case(lambda r: (r.normal(size=(7, 6)), 3))
def relaxation(a, steps):
    for _ in range(steps):
        for i in range(1, a.shape[0] - 1):
            for j in range(1, a.shape[1] - 1):
                a[i, j] = (a[i - 1, j] + a[i, j - 1] + a[i, j] * 2 + a[i, j + 1] + a[i + 1, j]) / 6
    return a


@case(lambda r: (_dominant(r, 6), np.zeros(6)))
def triangle_sums(a, out):
    for i in range(a.shape[0]):
        s = 0
        for j in range(i):
            s += a[i, j] * a[j, i]
        out[i] = s
    return out


@case(lambda r: (r.normal(size=9), np.zeros(9)))
def branches(x, y):
    for i in range(x.shape[0]):
        if x[i] > 0.5:
            y[i] = x[i] ** 2
        elif x[i] > 0:
            y[i] = math.sin(x[i])
        else:
            y[i] = -x[i]
    return y


@case(lambda r: (r.normal(size=9), 0.1))
def oscillator(x, dt):
    v = 0.0
    pos = 1.0
    count = 0
    for i in range(len(x)):
        v += dt * (x[i] - pos)
        pos, v = pos + dt * v, v * 0.5 + pos
        count += 1
        if i % 3 == 0:
            count += 2
    return pos, v, count


@case(lambda r: (r.normal(size=12), np.zeros(12)))
def leaky(x, y):
    for i in range(len(x)):
        y[i] = x[i] if x[i] > 0 else x[i - 1] * 0.1
    return y


@case(lambda r: (r.normal(size=12),))
def argument_of_maximum(x):
    best = 0
    m = x[0]
    for i in range(1, len(x)):
        if x[i] > m:
            m = x[i]
            best = i
    return m, best


@case(lambda r: (r.normal(size=12),))
def bubble_sort(x):
    n = len(x)
    for i in range(n):
        for j in range(n - i - 1):
            if x[j] > x[j + 1]:
                x[j], x[j + 1] = x[j + 1], x[j]
    return x


@case(lambda r: (r.integers(0, 7, 13), r.normal(size=13)))
def binned(where, weights):
    out = np.zeros(5)
    for i in range(13):
        k = where[i]
        if 0 <= k < 5:
            out[k] += weights[i]
    return out


@case(lambda r: (r.normal(size=(4, 5, 6)), 2))
def strides_and_steps(x, step):
    for i in range(0, x.shape[0], step):
        for j in range(x.shape[1] - 1, 0, -2):
            for k in range(5, -1, -step):
                x[i, j, k] = 0.5 * x[i, j - 1, k] + math.cos(x[-i - 1, -j, -1])
    return x


# -- while, break, continue ------------------------------------------------------------------------


@case(lambda r: (r.normal(size=20),))
def until_large(x):
    s = 0.0 * x[0]
    for i in range(x.shape[0]):
        if x[i] < -1:
            continue
        s += x[i] ** 2
        if s > 5:
            break
    return s


@case(lambda r: (r.normal(size=12),))
def every_second(x):
    i = 0
    s = 0.0 * x[0]
    while i < len(x) and x[i] < 3:
        s += x[i]
        i += 2
    return s, i


@case(lambda r: (r.uniform(1, 5, 8), 30))
def roots(x, most):
    for i in range(x.shape[0]):
        y = 1.0
        n = 0
        while True:
            y = 0.5 * (y + x[i] / y)
            n += 1
            if n > most or abs(y * y - x[i]) < 1e-15:
                break
        x[i] = y
    return x


@case(lambda r: (r.integers(0, 2, 40), 3), gradient=False)
def shift_register(bits, taps):
    state = 0xACE
    for b in bits:
        low = (state ^ (state >> 2) ^ (state >> taps)) & 1
        state = (state >> 1) | (low << 11)
        if b:
            state ^= 0x5A
    return state


@case(lambda r: (r.integers(0, 9, 30).astype(np.uint8),), gradient=False)
def checksum(data):
    total = 0
    parity = 0
    for b in data:
        total = (total * 31 + int(b)) % 65521
        for _ in range(8):
            parity ^= int(b & 1)
            b >>= 1
    return total, parity


# -- slices ----------------------------------------------------------------------------------------


@case(lambda r: (r.normal(size=(6, 8)),))
def rows_ahead(a):
    for i in range(1, a.shape[0] - 1):
        a[i, 1:-1] += 0.3 * a[i - 1, :-2] - a[i, 2:] + a[i + 1, 1:-1]
        for j in range(2, a.shape[1]):
            a[i, j] -= a[i, j - 2]
            a[i, j] *= 0.7
    return a


@case(lambda r: (_dominant(r, 6),))
def crout(a):
    n = a.shape[0]
    for k in range(n):
        a[k:, k] -= a[k:, :k] @ a[:k, k]
        for j in range(k + 1, n):
            a[k, j] = (a[k, j] - a[k, :k] @ a[:k, j]) / a[k, k]
    return a


@case(lambda r: (_dominant(r, 6), r.normal(size=6), np.zeros(6)))
def backwards(a, b, x):
    n = len(b)
    for i in range(n - 1, -1, -1):
        x[i] = (b[i] - np.dot(a[i, i + 1 :], x[i + 1 :])) / a[i, i]
    return x


@case(lambda r: (np.cov(r.normal(size=(5, 20))) + np.eye(5), np.zeros(5)))
def ldl(a, d):
    for j in range(a.shape[0]):
        d[j] = a[j, j] - np.sum(a[j, :j] ** 2 * d[:j])
        a[j, j] = 1.0
        for i in range(j + 1, a.shape[0]):
            a[i, j] = (a[i, j] - np.sum(a[i, :j] * a[j, :j] * d[:j])) / d[j]
    return a, d


@case(lambda r: (_dominant(r, 6), r.normal(size=(6, 4)), 1.5, 0.5))
def rank_two(c, v, alpha, beta):
    for i in range(c.shape[0]):
        c[i, i:] *= beta
        for k in range(v.shape[1]):
            c[i, i:] += alpha * v[i, k] * v[i:, k]
        c[i:, i] = c[i, i:]
    return c


@case(lambda r: (r.normal(size=10),))
def shifted_onto_itself(x):
    for i in range(3):
        x[1:] = x[:-1] * 2
        x[i:-2] = x[i + 2 :] + x[::-1][i + 2 :]
    return x


@case(lambda r: (r.normal(size=(5, 5)),))
def transposed_onto_itself(x):
    for _ in range(2):
        x[:] = x.T + 1
        x += x.T
        x[::2] = x[:, ::2].T
    return x


@case(lambda r: (r.normal(size=(5, 6)), 3))
def copied_first(p, n):
    for _ in range(n):
        before = p.copy()
        p[1:-1, 1:-1] = 0.3 * before[1:-1, 2:] + before[:-2, 1:-1] * 0.7
        p[:, -1] = p[:, -2]
        p[0, :] = 0
    return p


@case(lambda r: (r.normal(size=(6, 8)),))
def angles(data):
    out = np.zeros((8, 8))
    for i in range(8):
        out[i:, i] = out[i, i:] = data[:, i] @ data[:, i:] / np.sqrt(data[:, i] @ data[:, i])
    return out


@case(lambda r: (r.normal(size=(6, 4)),))
def orthogonalised(a):
    for k in range(a.shape[1]):
        for j in range(k):
            a[:, k] -= (a[:, j] @ a[:, k]) * a[:, j]
        a[:, k] /= np.linalg.norm(a[:, k])
    return a


@case(lambda r: (abs(r.normal(size=(6, 6))),))
def widest(w):
    for k in range(w.shape[0]):
        w[:] = np.maximum(w, np.minimum.outer(w[:, k], w[k]))
    return w


@case(lambda r: (r.normal(size=7) * 0.1,))
def reflected(r):
    y = np.zeros_like(r)
    beta = 1.0
    for k in range(1, r.shape[0]):
        beta *= 1.0 - r[k] * r[k]
        alpha = -(r[k] + np.flip(r[:k]) @ y[:k]) / beta
        y[:k] += alpha * y[:k][::-1]
        y[k] = alpha
    return y


@case(lambda r: (r.normal(size=(2, 6, 7)), r.normal(size=(2, 3, 3, 4))))
def filtered(x, w):
    n = w.shape[1]
    out = np.empty((x.shape[1] - n + 1, x.shape[2] - n + 1, 4))
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = np.sum(x[:, i : i + n, j : j + n, None] * w, axis=(0, 1, 2))
    return out


@case(lambda r: (r.normal(size=(6, 8, 3)),))
def pooled(x):
    out = np.zeros((3, 4, 3))
    for i in range(x.shape[0] // 2):
        for j in range(x.shape[1] // 2):
            out[i, j] = x[2 * i : 2 * i + 2, 2 * j : 2 * j + 2].max(axis=(0, 1))
    return out


@case(lambda r: (r.normal(size=(4, 6)), r.normal(size=(4, 6)), 3.0))
def thomas(d, lower, main):
    c = np.zeros_like(d)
    for k in range(d.shape[1]):
        if k > 0:
            low = 0.1 * lower[:, k - 1]
            scale = 1.0 / (main - c[:, k - 1] * low)
            d[:, k] = (d[:, k] - low * d[:, k - 1]) * scale
        else:
            scale = 1.0 / (main + 0.0 * lower[:, 0])
            d[:, k] *= scale
        c[:, k] = 0.2 * lower[:, k] * scale
    return c, d


# -- whole arrays, and those that iterations pass on -----------------------------------------------


@case(lambda r: (r.normal(size=6),))
def euler(x):
    for _ in range(4):
        slope = np.sin(x)
        x = x + 0.1 * slope
        x[0] = 1.0
    return x


@case(lambda r: (r.normal(size=6), r.normal(size=(6, 6))))
def power_iteration(x, a):
    for _ in range(4):
        y = a @ x
        x = y / np.linalg.norm(y)
    return x


@case(lambda r: (r.normal(size=(5, 5)), r.normal(size=5)))
def runge_kutta(a, y):
    h = 0.1
    for _ in range(3):
        k1 = a @ y
        k2 = a @ (y + h / 2 * k1)
        k3 = a @ (y + h / 2 * k2)
        k4 = a @ (y + h * k3)
        y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return y


@case(lambda r: (r.normal(size=6), 5))
def two_buffers(u, steps):
    v = np.zeros(6)
    for _ in range(steps):
        v[1:-1] = u[1:-1] + 0.1 * (u[2:] - 2 * u[1:-1] + u[:-2])
        u, v = v, u
    return u


@case(lambda r: (r.normal(size=6),))
def fibonacci(a):
    b = a + 1
    for _ in range(5):
        a, b = b, 0.5 * (a + b)
    return a, b


@case(lambda r: (r.normal(size=6),))
def kept_in_a_tuple(x):
    for _ in range(3):
        pair = x, x[1:]
        x = x * 2 - pair[0][::-1]
        x[0] += pair[0][0] + pair[1][2]
    return x


@case(lambda r: (r.normal(size=6), r.normal(size=6)))
def two_steps(x, before):
    for _ in range(4):
        old = x
        x = 2 * x - before + 0.1 * np.sin(x)
        before = old
    return x, before


@case(lambda r: (r.normal(size=(4, 3)), r.normal(size=(4, 3)), r.normal(size=4)))
def attraction(pos, vel, mass):
    n = 4
    for _ in range(3):
        acc = np.zeros((n, 3))
        for i in range(n):
            for j in range(n):
                if i != j:
                    d = pos[j] - pos[i]
                    r2 = d[0] ** 2 + d[1] ** 2 + d[2] ** 2 + 0.1
                    acc[i] += mass[j] * d / (r2 * np.sqrt(r2))
        vel += 0.01 * acc
        pos += 0.01 * vel
    return pos, vel


@case(lambda r: (r.normal(size=(4, 5)), r.normal(size=(5, 5))))
def summed_up(x, w):
    total = 0.0
    acc = 0
    for row in x:
        acc = acc + row @ w
        total += np.tanh(acc).sum()
    return total, acc


@case(lambda r: (r.normal(size=9), r.normal(size=9)))
def enumerated(x, y):
    s = 0.0
    for i, (a, b) in enumerate(zip(x, y)):  # noqa: B905
        s += a * b * i
        y[i] = s
    return s, y


@case(lambda r: (r.normal(size=(5, 3)),))
def rows(x):
    s = 0.0
    for row in x:
        s += np.sqrt(np.sum(row**2)) + row.mean() * row.max()
    return s


@case(lambda r: (r.normal(size=(3, 4)),))
def rolled(x):
    for k in range(3):
        x = 0.5 * (np.roll(x, 1, axis=1) + np.roll(x, -k, axis=0)) + np.clip(x, -0.5, 0.5)
    return x


# -- lists -----------------------------------------------------------------------------------------


def _lorenz(state, rho=28.0):
    x, y, z = state
    return np.array([10.0 * (y - x), x * (rho - z) - y, x * y - 8 / 3 * z])


@case(lambda r: (r.normal(size=3), np.zeros((6, 3))))
def attractor(state, path):
    for k in range(len(path)):
        middle = state + 0.005 * _lorenz(state)
        state = state + 0.01 * _lorenz(middle)
        path[k] = state
    return path


@case(lambda r: (r.normal(size=6), r.normal(size=(4, 6))))
def comprehensions(x, a):
    for i in range(a.shape[0]):
        s = sum(a[i, j] * x[j] for j in range(len(x)))
        row = np.array([np.sin(v) + s for v in a[i]])
        a[i] = row / (1 + np.argmax(row))
        x[:4] += np.concatenate((a[i, :2], row[2:4])) * np.trace(a[:3, :3])
    return x, a


@case(lambda r: (r.normal(size=(3, 4)), r.normal(size=3)))
def all_indices(a, v):
    for i, j in np.ndindex(3, 4):
        w = np.cross(v, a[:, j])
        a[i, j] += w[i] * np.cumsum(w)[1] + len(a)
    return a


# -- chosen elements -------------------------------------------------------------------------------


def _sparse(r: np.random.Generator) -> tuple[Any, ...]:
    where = r.uniform(size=(5, 6)) < 0.5
    ends = np.concatenate([[0], np.cumsum(where.sum(1))]).astype(np.int32)
    return ends, np.nonzero(where)[1], r.normal(size=int(ends[-1])), r.normal(size=6), np.zeros(5)


@case(_sparse)
def sparse_product(ends, columns, values, x, y):
    for i in range(len(ends) - 1):
        chosen = columns[ends[i] : ends[i + 1]]
        y[i] = values[ends[i] : ends[i + 1]] @ x[chosen]
        for k in range(ends[i], ends[i + 1]):
            y[i] += 0.5 * values[k] * x[columns[k]]
    return y


@case(lambda r: (r.integers(-4, 4, (3, 5)), r.normal(size=(4, 6)), r.normal(size=(5, 6))))
def scattered(where, x, y):
    for i in range(where.shape[0]):
        x[where[i], :] += y
        x[where[i], 1:3] = x[where[i], 3:5] * 2
        np.add.at(x, where[i], 0.5 * y)
    return x


@case(lambda r: (r.normal(size=30), r.uniform(size=30), 5))
def mean_by_ring(data, radius, n):
    out = np.zeros(n)
    for i in range(n):
        ring = np.logical_and(i / n <= radius, radius < (i + 1) / n)
        inside = data[ring]
        out[i] = inside.mean() + (inside**2).sum() + len(inside)
    return out


@case(lambda r: (r.normal(size=(5, 6)), r.normal(size=(5, 6))))
def masked(x, y):
    for i in range(3):
        x[x < 0] = 0.1 * i
        y[y > 0.5] = y[y > 0.5] ** -0.5
        small = np.abs(y) < 1
        x[small] += y[small] * 2
        y[small] -= x[small]
    return x, y


# -- functions of the user's -----------------------------------------------------------------------


def _pairs(a, b):
    if a + b == 3:
        return 1
    return 0


def _smooth(x, out, weight=0.25):
    out[1:-1] = weight * (x[:-2] + 2 * x[1:-1] + x[2:])
    out[0] = out[-1] = 0


def _norm(x):
    scale = np.abs(x).max()
    return scale * np.sqrt(np.sum((x / scale) ** 2))


def _first_above(x, limit):
    for i in range(len(x)):
        if x[i] > limit:
            return i
    return -1


def _first_pair(a, limit):
    for i in range(a.shape[0]):
        for j in range(i):
            if a[i, j] > limit:
                return a[i, j] * 2
            if a[i, j] < -limit:
                break
        if i > 3:
            continue
    return 0.0


def _halvings(n):
    k = 0
    while True:
        k += 1
        if 2**3 * k > n:
            return k


@case(lambda r: (r.normal(size=(6, 6)), r.normal(size=8), np.zeros(8)))
def searched(a, x, y):
    for i in range(len(y)):
        k = _first_above(x, 0.2 * i)
        y[i] = _first_pair(a, 0.3 * i) + k + _halvings(i)
        if k >= 0:
            y[i] += x[k % 8]
    return y


@case(lambda r: (r.integers(0, 4, 9), np.zeros((9, 9), np.int32)), gradient=False)
def foldings(seq, table):
    n = len(seq)
    for i in range(n - 2, -1, -1):
        for j in range(i + 1, n):
            best = max(table[i + 1, j], table[i, j - 1])
            if j > i + 1:
                best = max(best, table[i + 1, j - 1] + _pairs(seq[i], seq[j]))
            for k in range(i + 1, j):
                best = max(best, table[i, k] + table[k + 1, j])
            table[i, j] = best
    return table


@case(lambda r: (r.normal(size=9),))
def smoothed(x):
    out = np.zeros(9)
    norms = np.zeros(4)
    for k in range(4):
        _smooth(x, out, weight=0.3)
        norms[k] = _norm(out)
        x[:] = out
    return norms


# -- dtypes ----------------------------------------------------------------------------------------


@case(lambda r: (r.normal(size=8).astype(np.float32), 2.5), gradient=False)
def singles(x, scale):
    s = 0.0
    t = np.float32(1)
    for i in range(len(x)):
        s += x[i] * scale
        t = t * x[i] + 1
        x[i] = s / 3 + math.exp(-1.0)
    return s, t, x


@case(lambda r: (r.integers(-9, 9, 8).astype(np.int32), r.integers(1, 9, 8)), gradient=False)
def integers(a, b):
    total = 0
    for i in range(len(a)):
        a[i] = a[i] // b[i] + a[i] % b[i] * 2
        total += a[i]
        b[i] = abs(a[i]) ** 2 - (b[i] << 2)
    return a, b, total


@case(lambda r: (r.normal(size=8), np.zeros(8, bool)), gradient=False)
def truths(x, flags):
    count = 0
    for i in range(len(x)):
        flags[i] = (x[i] > 0 and not x[i] > 1) or i == 3
        if flags[i]:
            count += 1
    return flags, count


@case(lambda r: (r.integers(-100, 100, 16).astype(np.int8),), gradient=False)
def wrapping(x):
    for i in range(1, len(x)):
        x[i] = x[i] * x[i - 1] + x[i] - 3
    return x


# -- what may raise an error -----------------------------------------------------------------------


@case(lambda r: (r.uniform(0, 0.99, 12), np.zeros(9), 0.125))
def looked_up(x, y, width):
    for i in range(len(x)):
        k = int(x[i] / width)
        left = x[i] / width - math.floor(x[i] / width)
        y[k] += 1 - left
        y[k + 1] += left
    return y


@case(lambda r: (r.normal(size=6), 2.0, 0.5))
def pythons_floats(x, a, b):
    for i in range(len(x)):
        a, b = 0.5 * (a + b), math.sqrt(a * b)
        x[i] += a / b + a**0.3 + a % (b + 2)
    return a, b, x


@case(lambda r: (r.integers(-9, 9, 8), np.zeros(8)), gradient=False)
def divided(n, y):
    for i in range(len(n)):
        k = int(n[i])
        if k != 0:
            y[i] = 7 // k + 7 % k + 1 / k
    return y


@case(lambda r: (np.zeros(12),), gradient=False)
def collatz(x):
    n = 27
    for i in range(len(x)):
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        x[i] = n
    return n


@case(lambda r: (r.normal(size=6), 5.0))
def past_the_end(x, a):
    for i in range(len(x)):
        x[i] = x[i + 1] * a
    return x


@case(lambda r: (r.normal(size=6), 0.0))
def by_zero(x, a):
    for i in range(len(x)):
        x[i] = x[i] + 1 / a
    return x


@case(lambda r: (r.normal(size=6), 3.0))
def outside_of_the_domain(x, a):
    for i in range(len(x)):
        a = a - 1
        x[i] = math.sqrt(a)
    return x


RAISING = ("past_the_end", "by_zero", "outside_of_the_domain")

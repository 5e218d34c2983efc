"""Functions with loops over arrays that are put together or chosen by masks, for `test_language`.

Each takes two vectors of nine numbers, and returns a number, or a tuple or None.
"""

# The functions below are what users may write, and not what the linter would.
# ruff: noqa: N806

from __future__ import annotations

import numpy as np
from loop_language import real

# -- arrays that are put together, triangles, out= -------------------------------------------------


@real
def side_by_side(x, y):
    s = 0.0
    for i in range(len(x)):
        rows = np.vstack((x, y * i, np.outer(x[:2], y)))
        wide = np.hstack((rows, rows[:, :2] * x[i], rows.T[:4, :1]))
        s += np.sum(wide * wide) * 0.01 + np.sum(np.hstack([x[:i], y, x[:2]])) * y[i]
    return s


@real
def along_new_axes(x, y):
    s = 0.0
    for i in range(4):
        columns = np.column_stack((x, y + i, np.outer(y, x[:2])))
        pairs = np.stack((x * i, y), axis=1)
        last = np.stack([np.outer(x, y), np.outer(y, y)], axis=-1)
        s += np.sum(np.concatenate((columns, pairs), axis=1) ** 2) * 0.01
        s += np.sum(np.concatenate([pairs, pairs[:2]], axis=0)) + np.sum(last[:, i, 1] * x)
    return s


@real
def triangles(x, y):
    M, s = np.outer(x, y), 0.0
    for i in range(5):
        M = M * 0.5 + np.triu(M, i - 2).T - np.tril(M, -1) * x[i]
        s += np.sum(np.triu(M @ M, 1)) + np.sum(np.tril(M[:4], k=i) * 2)
        s += np.sum(np.diag(x * i) @ y) + np.sum(np.triu(M > 0.1)) + np.sum(np.tril(np.outer(x, y)))
    return s * 0.1


@real
def into_arrays(x, y):
    z, big, m = x.copy(), np.zeros((3, len(x))), np.zeros(len(x), bool)
    for i in range(6):
        np.multiply(z, 0.25, z)
        np.add(z, x, out=z)
        np.add(np.tanh(z[::-1], out=z), y, out=(z,))
        np.multiply(z, i, big)
        np.add(big[0], big[2], out=big[1])
        np.greater(z, 0.1, m)
        np.logical_not(m, m)
        z[m] = z[m] * 0.5 + big[1][m]
        np.divide(2, 4, out=z[:1])
    return np.sum(z * x) + np.sum(big)


@real
def shapes_that_are_set(x, y):
    s = 0.0
    for i in range(4):
        w = x * y[i]
        w.shape = 3, 3
        s += np.sum(w[1] * w[:, 2])
        w.shape = -1
        v = np.outer(w, y[:2])
        v.shape = (2, len(x))
        s += np.sum(v[1] * x)
    return s


# -- truth values that are computed where they are used --------------------------------------------


@real
def binned(x, y):
    low, high = np.zeros(6), np.zeros(6)
    for i in range(6):
        inside = np.logical_and(x >= -1.5 + 0.5 * i, x < -1.0 + 0.5 * i)
        chosen = y[inside]
        low[i] = chosen.sum() + np.sum(x[~inside] ** 2) * 0.1
        high[i] = np.sum(inside) + (y[inside] * x[inside]).sum()
    return np.sum(low * high) + np.sum(low)


@real
def masks_of_what_changes(x, y):
    z, s = x * 1.0, 0.0
    for i in range(5):
        above = z > 0.0
        z[above] = z[above] * 0.5 - y[i]
        z[i] += 0.25
        s += np.sum(y[above]) + np.sum(above)
        t = z[i]
        below = y < t
        t = t + 10.0
        s += np.sum(x[below]) * t
    return s + np.sum(z)


@real
def masks_that_are_written(x, y):
    s = 0.0
    for i in range(5):
        m = x > 0.0
        n = m
        n[i] = not m[i]
        k = x < y
        np.logical_not(k, k)
        w = x > y[i]
        w &= y > 0.0
        w |= x < -1.0
        s += np.sum(y[m]) + np.sum(x[k]) * 2 + np.sum(x[n]) + np.sum(y[w] * 3)
    return s


def _flipped(m, y):
    m[0] = not m[0]
    return np.sum(y[m])


@real
def masks_that_a_function_writes(x, y):
    s = 0.0
    for i in range(5):
        m = x > 0.1 * i
        v = _flipped(m, y)
        s += v * 0.5 + np.sum(y[m])
        m = y > 0.1 * i
        s += np.sum(x[m])
    return s + np.sum(x[m])


@real
def chosen_that_change(x, y):
    n, s = np.arange(9), 0.0
    for i in range(5):
        inside = x > -0.5 + 0.1 * i
        a = y[inside]
        a *= 2.0
        a -= x[inside]
        k = n[inside]
        k *= 2
        s += np.sum(a) + np.sum(k) * 0.1 + np.max(n)
    return s

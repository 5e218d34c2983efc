"""Functions that take steps of stencils, for tests of kernels that take several at once."""

from __future__ import annotations

import numpy as np


def heat(u, steps=5):
    for _ in range(steps):
        around = np.roll(u, 1, 0) + np.roll(u, -1, 0) + np.roll(u, 1, 1) + np.roll(u, -1, 1)
        u = u + 0.1 * (around - 4.0 * u)
    return np.sum(u * u)


def wave(u):
    """Read two steps and two rows back; the gradient reads values of all steps."""
    before = 0.5 * u
    for _ in range(4):
        d = np.roll(u, 2, 0) - np.roll(u, -1, 1)
        after = 2.0 * u - before + 0.1 * d * d
        before, u = u, after
    return np.sum(u * before)


def nine_points(u):
    for _ in range(3):
        a = np.roll(u, 1, 0) + np.roll(u, -1, 0)
        b = np.roll(a, 1, 1) + np.roll(a, (-1, 1), (1, 0)) + np.roll(u, 4, 1)
        u = np.maximum(u, 0.1 * (a + b) * u)
    return np.sum(u * u)


def ahead(u):
    """Read only rows and columns that come later."""
    for _ in range(5):
        u = u - 0.5 * (u - np.roll(u, -1, 0)) * np.roll(u, -3, 1)
    return np.sum(u)


def with_coefficients(u, c, row, column, s):
    for _ in range(4):
        u = u + 0.1 * c * (np.roll(u, 1, 0) - u) + row * (np.roll(u, 1, 1) - u) * column * s
    return np.sum(u * u)


def with_neighbours_of_coefficients(u, c):
    for _ in range(3):
        u = u + np.roll(c, -1, 1) * (np.roll(u, 1, 0) - u) - c * u
    return np.sum(u * u)


def with_all_results(u):
    states = []
    for _ in range(3):
        d = np.roll(u, 1, 0) - np.roll(u, 1, 1)
        u = u + 0.1 * d * np.abs(d)
        states.append(u)
    return tuple(states)


def by_position(u):
    i, j = np.arange(u.shape[0])[:, None], np.arange(u.shape[1])
    for _ in range(3):
        inside = (i > 3) & (j < 50)
        u = np.where(inside, np.roll(u, 1, 0) + np.roll(u, -1, 1), u) * (i * j)
    return u


def by_truth(u):
    for _ in range(3):
        b = u > 0
        u = np.where(np.roll(b, 1, 1), np.roll(u, 1, 0) + np.roll(u, -1, 1), u * 0.5)
    return u


def life(u):
    for _ in range(3):
        around = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j]
        n = sum(np.roll(u, by, (0, 1)) for by in around)
        u = ((n == 3) | ((u == 1) & (n == 2))).astype(np.int32)
    return u


def of_two_types(u):
    v = u.astype(np.float64)
    for _ in range(3):
        u = u + np.roll(u, 1, 1) * np.float32(0.5)
        v = v + np.roll(v, -1, 0) * 0.5 + np.roll(u, -1, 0)
    return np.sum(u) + np.sum(v * v)


def fixed_edges(u):
    """Write all but the edges of a copy."""
    for _ in range(5):
        v = u.copy()
        inner = u[1:-1, 1:-1]
        around = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]
        v[1:-1, 1:-1] = inner + 0.1 * (around - 4.0 * inner)
        u = v
    return np.sum(u * u)


def zeros_outside(u):
    for _ in range(4):
        p = np.pad(u, 1)
        around = p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2]
        u = u + 0.1 * (around - 4.0 * u)
    return np.sum(u * u)


def smaller_and_smaller(u):
    for _ in range(3):
        u = u[1:-1, 1:-1] + 0.25 * (u[2:, 1:-1] + u[:-2, 2:])
    return u


def edges_that_go_round(u):
    """Turn what is written in part: rows of the part are needed behind both ends."""
    for _ in range(3):
        v = u.copy()
        v[1:-1, 1:-1] = u[:-2, 2:] * 0.5
        u = v + 0.1 * np.roll(v, -1, 0) - 0.1 * np.roll(v, 2, 1)
    return np.sum(u * u)


def with_a_smaller_array(u, w):
    """Read an array that has fewer rows and columns, behind the ends of the others, too."""
    for _ in range(4):
        v = u.copy()
        v[1:-1, 1:-1] = u[1:-1, 1:-1] + w
        u = 0.5 * v + 0.25 * np.roll(u, -1, 0) - 0.25 * np.roll(u, 1, 1)
    return np.sum(u * u)


def turned_positions(u):
    """Turn what depends on the row: the row before the first one is the last one."""
    i = np.arange(u.shape[0])[:, None] * 1.0
    for _ in range(3):
        u = u + 0.1 * np.roll(u * i, 1, 0)
    return np.sum(u * u)


VALUED = (heat, wave, nine_points, ahead, fixed_edges, zeros_outside, edges_that_go_round)

"""Loops as kernels: against the loops themselves, and their derivatives against differences."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from loop_programs import Program

rng = np.random.default_rng(0)


def _square(n: int) -> Any:
    return rng.normal(size=(n, n)) + n * np.eye(n)


# -- nests of loops over elements --------------------------------------------------------------


def sweep(a, steps):
    for _ in range(steps):
        for i in range(1, a.shape[0] - 1):
            for j in range(1, a.shape[1] - 1):
                a[i, j] = (a[i - 1, j] + a[i, j - 1] + a[i, j] * 2 + a[i, j + 1] + a[i + 1, j]) / 6
    return a


def lower_triangle(a):
    n = a.shape[0]
    for i in range(n):
        for j in range(i):
            a[i, j] -= a[i, :j] @ a[:j, j]
            a[i, j] /= a[j, j]
        for j in range(i, n):
            a[i, j] -= a[i, :i] @ a[:i, j]
    return a


def row_sums(a, out):
    for i in range(a.shape[0]):
        s = 0
        for j in range(i):
            s += a[i, j] * a[j, i]
        out[i] = s
    return out


def stencil_rows(a):
    for i in range(1, a.shape[0] - 1):
        a[i, 1:-1] += a[i - 1, :-2] + a[i, 2:] + a[i + 1, 1:-1]
        for j in range(1, a.shape[1] - 1):
            a[i, j] += a[i, j - 1]
            a[i, j] /= 9.0
    return a


def rank_updates(c, a, alpha, beta):
    for i in range(a.shape[0]):
        c[i, : i + 1] *= beta
        for k in range(a.shape[1]):
            c[i, : i + 1] += alpha * a[i, k] * a[: i + 1, k]
    return c


def backwards(a, b, x):
    n = len(b)
    for i in range(n - 1, -1, -1):
        x[i] = (b[i] - a[i, i + 1 :] @ x[i + 1 :]) / a[i, i]
    return x


def factor(a):
    for i in range(a.shape[0]):
        for j in range(i):
            a[i, j] = (a[i, j] - np.dot(a[i, :j], a[j, :j])) / a[j, j]
        a[i, i] = np.sqrt(a[i, i] - np.dot(a[i, :i], a[i, :i]))
    return a


def branches(x, y):
    for i in range(x.shape[0]):
        if x[i] > 0.5:
            y[i] = x[i] ** 2
        elif x[i] > 0:
            y[i] = math.sin(x[i])
        else:
            y[i] = -x[i]
    return y


def carried(x, dt):
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


PROGRAMS = {
    "sweep": (sweep, lambda: (rng.normal(size=(7, 6)), 3)),
    "lower_triangle": (lower_triangle, lambda: (_square(7),)),
    "row_sums": (row_sums, lambda: (_square(6), np.zeros(6))),
    "stencil_rows": (stencil_rows, lambda: (rng.normal(size=(6, 8)),)),
    "rank_updates": (
        rank_updates,
        lambda: (_square(6), rng.normal(size=(6, 4)), 1.5, 0.5),
    ),
    "backwards": (backwards, lambda: (_square(6), rng.normal(size=6), np.zeros(6))),
    "factor": (factor, lambda: (np.cov(rng.normal(size=(5, 20))) + np.eye(5),)),
    "branches": (branches, lambda: (rng.normal(size=9), np.zeros(9))),
    "carried": (carried, lambda: (rng.normal(size=9), 0.1)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_kernel_does_what_the_loop_does(name: str) -> None:
    function, args = PROGRAMS[name]
    Program(function, *args()).check()


@pytest.mark.parametrize("name", PROGRAMS)
def test_derivatives_are_differences(name: str) -> None:
    function, args = PROGRAMS[name]
    Program(function, *args()).check_gradients()

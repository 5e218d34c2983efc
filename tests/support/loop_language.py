"""Functions with loops in all that is understood of Python's language, for `test_language`.

Each takes two vectors of nine numbers, and returns a number, or a tuple or None.
"""

# The functions below are what users may write, and not what the linter would.
# ruff: noqa: B007, B023, B905, E731, F821, N806, PERF401

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Function = Callable[..., Any]
REAL: list[Function] = []
COMPLEX: list[Function] = []


def real(f: Function) -> Function:
    """Register a function of real vectors."""
    REAL.append(f)
    return f


def complex_(f: Function) -> Function:
    """Register a function of complex vectors."""
    COMPLEX.append(f)
    return f


# -- comprehensions --------------------------------------------------------------------------------


@real
def extremes_of_generators(x, y):
    s = 0.0
    for i in range(len(x)):
        s += max(x[j] * y[i] for j in range(i + 1)) - min([a * y[i] for a in x if a < 50.0])
        s += max((a for a in x[:i] if a > y[i]), default=0.5)
    return s


@real
def truths_of_generators(x, y):
    s = 0.0
    for i in range(len(x)):
        if all(x[j] < y[i] + 1 for j in range(i)):
            s += x[i]
        if any(a > b + y[i] for a in x for b in y):
            s = s * 0.5 - y[i]
    return s


@real
def sums_of_generators(x, y):
    s = 0.0
    for i in range(len(x)):
        s += sum(a * b for a in x if a > y[i] for b in y[:i] if b < a)
        s += sum((x[j] for j in range(i)), 0.25) + sum(1 for a in x if a > y[i])
        s += sum(sum((a * b for a in x if a > b), 0.0) * b for b in y[:i] if b < 1)
    return s


@real
def sum_that_may_be_empty(x, y):
    s = 0
    for i in range(len(x)):
        s = sum(a for a in x[:i] if a > 0.5)
    return s, type(s) is int, y[0]


@real
def lists_of_comprehensions(x, y):
    s = 0.0
    for i in range(len(x)):
        row = [x[j] * y[i] for j in range(i + 1)]
        pair = tuple(a * 0.5 for a in x)
        squares = [j * j for j in range(i)]
        s += row[0] + row[-1] * len(row) + pair[1] * pair[-1] + sum(squares) * y[i] + max(row)
    return s


@real
def list_before_the_loop_over_it(x, y):
    z = x * 1.0
    for i in range(3):
        for v, w in zip(y, [a * z[0] for a in y]):
            z[0] = 0.5 * z[0] + v * w
        for v in [a * z[1] for a in x]:
            z[1] = 0.5 * z[1] + v
    return np.sum(z)


@real
def arrays_of_comprehensions(x, y):
    s = 0.0
    for i in range(len(x)):
        s += np.sum(np.array([[a * b * x[i] for a in x] for b in y]))
        s += np.max([a * y[i] for a in x]) + np.sum(np.array([a for a in x if a > y[i]]))
        s += np.sum(sum(x * a for a in y)) + np.sum(np.array([x * a for a in y])[i])
    return s


@real
def lists_extended(x, y):
    out = []
    for i in range(len(x)):
        out.extend([x[i] * j for j in range(3)])
        out += [x[i] * y[j] for j in range(i)]
        out.extend(a * 0.5 for a in y if a > 0)
    return sum(out)


@real
def names_that_are_its_own(x, y):
    s = 0.0
    for a in x:
        s += a * np.sum(np.array([[a * 0.5 for a in x * a] for a in y]))
    return s + a


def _spread(u, v):
    return max([a * v for a in u if a < 1.0]) + sum(1.0 for a in u if a > v)


@real
def comprehensions_of_a_function(x, y):
    s = 0.0
    for i in range(len(x)):
        try:
            s += _spread(x, y[i]) * _spread(y, x[i]) if y[i] < 3.0 else 0.25
        except ValueError:
            s *= 0.5
    return s


@real
def arguments_beside_comprehensions(x, y):
    s = 0.0
    for i in range(len(x)):
        s += max((a for a in x if a > 50.0), default=y[i]) * sum((a > y[i] for a in x), x[i])
        s += sum([a * b for a in x for b in y], s) * 0.01 + sum(a > y[i] for a in x)
    return s


# -- numbers of one type or another ----------------------------------------------------------------


@real
def never_added(x, y):
    s, n, first = 0.0, 0, False
    for i in range(len(x)):
        if x[i] > 0:
            s += x[i]
            n += y[i]
        first = i > 2 and x[i] > 0
    return s, n, first, type(s) is float


@real
def of_single_precision(x, y):
    v, s = x.astype(np.float32), 0.0
    for i in range(len(x)):
        if v[i] > 0:
            s = s * 0.5 + v[i]
    return s * np.ones(2, np.float32)[0], y[0]


@real
def one_of_three(x, y):
    m = 0
    for i in range(len(x)):
        if x[i] > 1.0:
            m = 1.5
        elif y[i] > 1.0:
            m = m * x[i]
    return m, type(m) is int


@real
def exchanged_types(x, y):
    s, t = 0.5, x[0]
    for i in range(len(x) - 1):
        if y[i] > 0 or i % 2:
            s, t = t, s
    return s, t, type(s) is float


@real
def returned_after_an_exchange(x, y):
    s, t, k = 0.5, x[0], 0
    while k < 8:
        k += 1
        s, t = t, s
        if y[k] > 1.0:
            return t
    return s


@real
def shifts_beyond_32_bits(x, y):
    m, n = 0, 0
    for i in range(9):
        if x[i] > 0:
            m |= 1 << (6 * i)
            n += 2 ** (5 * i)
        m ^= (3 if y[i] > 0 else -5) << (i + 31)
        n += (100000 if y[i] > 0 else 70000) * (90000 if x[i] > 0.5 else 80000)
    return m, n


# -- statements ------------------------------------------------------------------------------------


@real
def searched(x, y):
    k = 0
    for i in range(len(x)):
        if x[i] > 1.5:
            k = i
            break
    else:
        k = -1
    return k * np.sum(y), k


@real
def smaller_before(x, y):
    s = 0.0
    for i in range(len(x)):
        j = 0
        while j < i:
            if x[j] > x[i]:
                break
            j += 1
        else:
            s = s + x[i] * y[i]
    return s


@real
def returned(x, y):
    s = 0.0
    for i in range(len(x)):
        s = s + x[i]
        if s > 2.0:
            return s * y[i], i
    return s, -1


@real
def returned_from_within(x, y):
    for i in range(len(x)):
        for j in range(i):
            if x[i] * y[j] > 1.0:
                return x[i] * y[j]
    return None


@real
def returned_of_types(x, y):
    for i in range(len(x)):
        if x[i] > 1.0:
            return i
        if y[i] < -0.9:
            return x[i]
    return 2.5


@real
def handled(x, y):
    s = 0.0
    for i in range(len(x)):
        try:
            s = s + x[i] / (1 + i)
        except ZeroDivisionError:
            s = 7.0
        else:
            s = s * y[i]
        finally:
            s = s + 1.0
    return s


@real
def silenced(x, y):
    s = 0.0
    for i in range(len(x)):
        with np.errstate(divide="ignore", invalid="ignore"):
            s = s + np.sqrt(np.abs(x[i])) * y[i]
    return s


@real
def asserted(x, y):
    s = 0.0
    for i in range(len(x)):
        assert x[i] < 10.0
        if y[i] > 50:
            raise ValueError("large")
        s = s + x[i]
    return s


@real
def bound_in_a_test(x, y):
    s, i = 0.0, 0
    while (v := x[i]) < 1.5 and i < len(x) - 1:
        s = s + (w := v * 2) * w
        i += 1
    return s + v * y[0]


@real
def defined_inside(x, y):
    f = lambda t: t * t + 1
    s = 0.0
    for i in range(len(x)):
        g = lambda a, b=2.0: f(a) * b + i

        def h(u, v=1):
            if u > 0:
                return u * v
            return g(u) * s

        s = 0.5 * s + g(x[i]) + h(y[i], v=3)
        del g
    return s


@real
def pythons_functions(x, y):
    s, n = 0.0, 0
    for i in reversed(range(len(x))):
        q, r = divmod(i * 3 + 1, 4)
        a, b = divmod(x[i], 0.3)
        n += round(x[i] * 3) + q * r
        s = s + a + b * max(x[i], y[i], 0.1) * (1 if 0 < i < 5 else 2)
    return s + n, n


# -- lists -----------------------------------------------------------------------------------------


@real
def appended(x, y):
    out = []
    for i in range(len(x)):
        out.append(x[i] * y[i])
    return np.sum(np.array(out) ** 2) + len(out) * out[-1]


@real
def appended_if(x, y):
    out, rest = [], [y[0]]
    for v, w in zip(x, y):
        if v > 0:
            out.append(v * w)
        else:
            rest += [v, w]
    if not out:
        return 0.0
    return sum(out) * len(out) + out[-1] * rest[-1]


@real
def recursion(x, y):
    xs, ys = [0.5], [x[0]]
    for i in range(1, len(x)):
        xs.append(xs[-1] * 0.5 + 1.0)
        ys.append(ys[-1] * ys[i - 1] * xs[i] + y[i])
    return sum(xs) * sum(ys)


@real
def path(x, y):
    u = x * 1.0
    out = []
    for _ in range(5):
        u = u + 0.1 * np.sin(u) * y
        out.append(u.copy())
    out[1][0] = 7.0
    return np.sum(np.stack(out) ** 2) + np.sum(out[2])


@real
def list_inside(x, y):
    s = 0.0
    for i in range(len(x)):
        row = []
        for j in range(i + 1):
            if x[j] > -0.5:
                row.append(x[j] * j)
        s = s + sum(row) * y[i]
        if len(row) > 2:
            a = np.array(row)
            s = s + a[-1] * row[1] + np.max(a)
    return s


@real
def stack_inside(x, y):
    total = 0.0
    for i in range(3):
        stack, n = [x[i]], 0
        while stack:
            v = stack.pop()
            total = total + v * v * y[i]
            n += 1
            if n < 9:
                stack.append(v * 0.5 + x[n % 4])
                stack += [v * 0.25]
    return total


@real
def comprehensions(x, y):
    s = 0.0
    for i in range(1, len(x)):
        s = s + sum(x[j] * x[j - 1] for j in range(1, i + 1))
        w = np.array([x[j] * y[j] for j in range(i)])
        s = s + np.max(w)
    return s


@real
def until(x, y):
    times, t = [], x[0] * 0
    while t < 1.0:
        t = t + 0.1 + y[1] ** 2
        times.append(t)
    return sum(times)


# -- complex numbers -------------------------------------------------------------------------------


@complex_
def product(z, w):
    s = 0j
    for i in range(len(z)):
        s = s * 0.5 + z[i] * w[i].conjugate()
    return np.real(s * s)


@complex_
def from_an_integer(z, w):
    s = 0
    for v, u in zip(z, w):
        s += v * u
    return abs(s)


@complex_
def recurrence(z, w):
    y = z.copy()
    for i in range(1, len(z)):
        y[i] = y[i - 1] / (w[i] + 2.0) + np.exp(1j * z[i]) * y[i].real
        if abs(y[i]) > 1.0:
            y[i] = y[i] / abs(y[i])
        y[i] += 0.3
    return np.sum(y.real * y.imag)


@complex_
def matrices(z, w):
    A = np.outer(z, w)
    B = np.zeros_like(A)
    for i in range(4):
        B[i] += A[i] @ A
        B[i, 0] = np.sum(A[:, i]) * -1j + A[i, 1] ** 2
        B[i] -= A[:, i] * (1 - 2j)
    return np.sum(np.abs(B))


@complex_
def escaping(z, w):
    Z, N = z * 0, np.zeros(len(z), np.int64)
    for n in range(12):
        inside = np.abs(Z) < 2.0
        N[inside] = n
        Z[inside] = Z[inside] ** 2 + z[inside] * 0.5
    return np.sum(np.abs(Z * w)) + np.sum(N)


@complex_
def escape_time(z, w):
    k, c = 0, z[0]
    v = c * w[0]
    while abs(v) < 2.0 and k < 10:
        v = v * v + c
        k += 1
    return v.real * k


@complex_
def numbers_of_numpy(z, w):
    a, b, s = np.complex64(0.5 - 1j), np.complex128(2j), 0.0
    for i in range(len(z)):
        s += (a * z[i] + b * w[i] * a.imag).real
    return s


@complex_
def listed(z, w):
    out = []
    for i in range(len(z)):
        out.append(z[i] * w[i])
    return abs(sum(out)) + np.array(out)[1].imag


@complex_
def left_early(z, w):
    s = z[0] * 1j
    for i in range(len(z)):
        s = s * z[i] - w[i]
        if abs(s) > 2.0:
            return s
    return s / (z[0] * z[0] + w[0])

"""Functions with loops that are not captured, and why, for `test_language`."""

# The functions below are what users may write, and not what the linter would.
# ruff: noqa: B007, B023, PERF401

from __future__ import annotations

import numpy as np
from loop_language import Function


def two_names(x, y):
    a = b = []
    for i in range(len(x)):
        a.append(x[i])
        b.append(y[i] * 2)
    return sum(a) + len(b)


def array_with_a_name(x, y):
    out = []
    u = x * 1.0
    for i in range(len(x)):
        u = u * y[i]
        out.append(u)
    u[0] = 7.0
    return np.sum(np.array(out))


def of_a_caller(x, y, out=None):
    def fill(out):
        for i in range(len(x)):
            out.append(x[i] * y[i])

    out = []
    fill(out)
    return sum(out)


def handled_each_time(x, y):
    s = 0.0
    for i in range(len(x)):
        try:
            s = s + x[i] * (1 / i)
        except ZeroDivisionError:
            s = y[i]
    return s


def list_of_types(x, y):
    out = []
    for i in range(len(x)):
        out.append(i if x[i] > 0 else y[i])
    return sum(out)


def kept_function(x, y):
    fs = []
    for i in range(len(x)):
        fs.append(lambda: x[i] * y[i])
    return sum(f() for f in fs)


def variance(x, y):
    s, z = 0.0, x + 1j * y
    for i in range(len(x)):
        s = s + np.var(z) * y[i]
    return s


def bound_in_a_comprehension(x, y):
    s = w = 0.0
    for i in range(len(x)):
        row = [(w := a * y[i]) for a in x]
        s += row[0] + w
    return s


def extended_by_itself(x, y):
    out = [1.0]
    for i in range(len(x)):
        out += [out[0] * a for a in y[:2]]
    return sum(out) * x[0]


def default_that_is_not_needed(x, y):
    s = 0.0
    for i in range(len(x)):
        try:
            s += max((a for a in x), default=y[i + 5])
        except IndexError:
            s += 1.0
    return s


def array_of_a_generator(x, y):
    s = 0.0
    for i in range(len(x)):
        s += np.array(a for a in y).size * x[i]
    return s


def shape_of_two_names(x, y):
    s = 0.0
    for i in range(len(x)):
        w = x * y[i]
        v = w
        w.shape = 3, 3
        s += v.ndim * np.sum(w[1])
    return s


def chosen_that_have_two_names(x, y):
    s = 0.0
    for i in range(len(x)):
        a = y[x > 0.0]
        b = a
        a *= 2.0
        s += np.sum(b) * x[i]
    return s


def mask_of_chosen_elements(x, y):
    s = 0.0
    for i in range(len(x)):
        part = y[x > -50.0]
        s += np.sum(y[part > 0.0]) * x[i]
        if i == 8:
            s += np.sum(y[part[1:] > 0.0])
    return s


def integers_that_become_floats(x, y):
    n, s = np.arange(9), 0.0
    for i in range(len(x)):
        k = n[x > 0.0]
        try:
            k *= 0.5
        except TypeError:
            s += x[i]
        s += np.sum(k)
    return s


def integers_into_floats(x, y):
    n = np.zeros(3, np.int64)
    for i in range(len(x)):
        try:
            np.add(x[:3], 1, out=n)
        except TypeError:
            n[0] += i
    return np.sum(n) * x[0]


def sides_that_do_not_fit(x, y):
    s = 0.0
    for i in range(len(x)):
        try:
            s += np.sum(np.concatenate((np.outer(x, y), y[None, :3])))
        except ValueError:
            s += x[i]
    return s


UNROLLED: dict[Function, str] = {
    two_names: "the attribute 'append' of an object of list",
    array_with_a_name: "an array that has a name is appended to a list",
    of_a_caller: "the attribute 'append' of an object of list",
    handled_each_time: "it raises an error",
    list_of_types: "a number that is one of several types in a list",
    kept_function: "it assigns i, which another function uses",
    variance: "squares of complex numbers",
    bound_in_a_comprehension: "a name is bound, or a function made, in a comprehension",
    extended_by_itself: "a list is extended by what is computed from it",
    default_that_is_not_needed: "it raises an error",
    shape_of_two_names: "the shape of an array is set that may have other names",
    chosen_that_have_two_names: "chosen elements change that may have another name",
    mask_of_chosen_elements: "a mask of chosen elements",
    integers_that_become_floats: "multiply in place gives float64, and the array has int64",
    integers_into_floats: "add in place gives float64, and the array has int64",
    sides_that_do_not_fit: "np.concatenate of arrays of several shapes",
    array_of_a_generator: "this where a number or an array is expected",
}

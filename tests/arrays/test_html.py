"""What notebooks show of an ADArray."""

from __future__ import annotations

import numpy as np
import pytest

import adarray


def cells(text):
    return [row.count("<td>") for row in text.split("<tr>")[1:]]


@pytest.mark.parametrize(
    ("shape", "expected"),
    [((3,), [3]), ((2, 3), [2 * [3]][0]), ((100,), [11]), ((100, 2), 5 * [2] + [1] + 5 * [2])],
)
def test_vectors_and_matrices_are_tables(shape, expected):
    x = adarray.array(np.arange(float(np.prod(shape))).reshape(shape))
    text = x._repr_html_()
    assert cells(text) == expected
    assert f"{shape}, float64" in text
    assert "traced" not in text


def test_others_are_text_with_nothing_that_is_markup():
    text = adarray.array(np.zeros((2, 1, 2), complex))._repr_html_()
    assert "<pre>" in text
    assert "(2, 1, 2), complex128" in text
    assert "3.5" in adarray.array(3.5)._repr_html_()
    assert "(0,)" in adarray.array(np.zeros(0))._repr_html_()


def test_a_traced_array_shows_its_values_and_says_that_it_is_traced():
    seen = []

    def f(x):
        seen.append(x._repr_html_())
        return np.sum(x)

    adarray.grad(f)(np.array([1.25, 2.0]))
    assert "traced" in seen[0]
    assert "<td>1.25</td>" in seen[0]

"""Arguments of recorded calls: read as NumPy reads them."""

from __future__ import annotations

import numpy as np
import pytest
from recorded import recorded

from adarray.compiler.ir.builder import Builder, Weak
from adarray.compiler.ir.interpret import interpret
from adarray.compiler.ir.primitives import PythonCall
from adarray.compiler.translate import Arguments, axes_of, index_of, ndim_of


def symbolic():
    return Builder().input(0, (3,), np.int64)


@pytest.mark.parametrize(
    ("x", "axes"),
    [(2, 2), (np.int64(-1), -1), ((0, 1), (0, 1)), ([1], [1]), (np.array(1), 1),
     (np.array([0, 2]), [0, 2]), (True, 1)],
)  # fmt: skip
def test_axes(x, axes):
    assert axes_of(x) == axes
    assert Arguments(axis=x).axis() == axes


def test_what_is_not_given_has_its_default():
    args = Arguments(dtype=None, keepdims=np._NoValue)
    assert args.axis() is None
    assert args.axis(0) == 0
    assert args.dtype() is None
    assert not args.flag("keepdims")
    assert not args.flag("copy")
    assert args.integer("k") is None
    assert args.integer("k", 3) == 3
    assert Arguments(dtype="f4", keepdims=1).dtype() == np.float32
    assert Arguments(keepdims=1).flag("keepdims")


@pytest.mark.parametrize("x", [1.0, "1", symbolic()])
def test_no_integer(x):
    with pytest.raises(TypeError, match="an integer is needed, got"):
        index_of(x)


def test_integers_are_known_or_not():
    x = symbolic()
    assert Arguments(shift=x).integers("shift") is None
    assert Arguments(shift=Weak(x, int)).integers("shift") is None
    assert Arguments(shift=(1, 2)).integers("shift").tolist() == [1, 2]
    assert Arguments(repeats=[]).integers("repeats").dtype == np.intp


def test_number_of_axes():
    x = symbolic()
    assert [ndim_of(i) for i in (x, Weak(x, int), 3, [[1, 2]])] == [1, 1, 0, 2]


def test_a_number_known_at_run_time_scales_in_dot():
    x = np.arange(3.0)
    r = recorded(np.dot, 2.5, x)
    assert not any(isinstance(v.primitive, PythonCall) for v in r.program.values)
    assert interpret(r.program, r.arrays)[0].tolist() == [0.0, 2.5, 5.0]

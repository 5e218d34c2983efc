"""Eager kernels printed from the operation records."""

from __future__ import annotations

import re

import numpy as np
import pytest

from adarray.base.op import OPS, Op, Pointwise, Reduction
from adarray.base.scalar import variables
from adarray.compiler.scalars import eager

POINTWISE = [name for name, op in OPS.items() if op.pointwise]
REDUCTIONS = [name for name, op in OPS.items() if isinstance(op.lower, Reduction)]


@pytest.mark.parametrize("dtype", eager.DTYPES)
@pytest.mark.parametrize("name", POINTWISE)
def test_every_pointwise_record_prints(name: str, dtype: str) -> None:
    op = OPS[name]
    if not eager.keeps_dtype(op, dtype):
        pytest.skip(f"NumPy computes {name} of {dtype} in another dtype")
    kernel = eager.forward(op, dtype)
    assert kernel is not None
    assert kernel.inputs == tuple(f"x{i}" for i in range(op.arity))
    for i, rule in enumerate(op.rules):
        if rule is None:
            continue
        expr = op.derivative_expression(i)
        fused = eager.derivative(op, i, dtype)
        # What is not fused is g itself or one call of NumPy.
        assert (fused is None) == eager.is_one_pass(expr)
        if fused is not None:
            assert set(fused.inputs) <= variables(expr)


@pytest.mark.parametrize("dtype", eager.DTYPES)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_every_reduction_record_prints(name: str, dtype: str) -> None:
    kernel = eager.reduction(OPS[name], dtype)
    assert kernel is not None
    assert len(kernel.parts) == 5
    for part in kernel.parts:
        assert f"static void {part}@(" in kernel.text


def test_float_kernels_hold_no_double() -> None:
    for kernel in eager.all_kernels():
        if kernel.dtype == "float32":
            text = kernel.text.replace("double count", "")
            assert "double" not in text, kernel.name
            literals = re.findall(r"(?<![\w.)])\d+\.\d*(?:e[+-]?\d+)?(f?)", text)
            assert all(literals), kernel.name


def test_names_are_unique() -> None:
    names = [k.name for k in eager.all_kernels()]
    assert len(names) == len(set(names))
    assert {"sin_f64", "sin_d0_f32", "sum_f64", "power_v0_f64", "power_v0_d0_f32"} <= set(names)


def test_text_of_a_fused_rule() -> None:
    kernel = eager.derivative(OPS["tanh"], 0, "float64")
    assert kernel is not None
    assert (
        kernel.text
        == """\
static void tanh_d0_f64@(const void *const *in, void *result, intptr_t n)
{
    double *restrict r = result;
    const double *restrict a0 = in[0];
    const double *restrict a1 = in[1];
    n &= ~(intptr_t)15;
#pragma omp simd
    for (intptr_t i = 0; i < n; i++) {
        const double g = a0[i];
        const double out = a1[i];
        const double t0 = out * out;
        const double t1 = 1.0 - t0;
        const double t2 = g * t1;
        r[i] = t2;
    }
}
"""
    )


def test_a_condition_is_one_byte() -> None:
    kernel = eager.forward(OPS["where"], "float32")
    assert kernel is not None
    assert kernel.truths == {"x0"}
    assert "const uint8_t *restrict a0" in kernel.text
    assert "const _Bool x0 = a0[i] != 0;" in kernel.text


def test_a_rule_of_one_call_names_it() -> None:
    expr = eager.single_call(OPS["multiply"], 0)
    assert repr(expr) == "multiply(g, x1)"
    assert eager.single_call(OPS["add"], 0) is None
    assert eager.single_call(OPS["tanh"], 0) is None


def test_hash_follows_the_record() -> None:
    def record(rule: object) -> Op:
        return Op("thing", np.sin, Pointwise(rule), [lambda g, out, x: g])  # type: ignore[arg-type]

    one = eager.forward(record(lambda x: np.sin(x) * 2), "float64")
    same = eager.forward(record(lambda x: np.sin(x) * 2), "float64")
    other = eager.forward(record(lambda x: np.sin(x) * 3), "float64")
    assert one is not None
    assert same is not None
    assert other is not None
    assert one.hash == same.hash != other.hash
    assert len(one.hash) == 16


def test_an_unprintable_record_has_no_kernel() -> None:
    op = Op(
        "odd", np.sin, Pointwise(lambda x: np.spacing(x)), [lambda g, out, x: np.spacing(g) * x]
    )
    assert eager.forward(op, "float64") is None
    assert eager.derivative(op, 0, "float64") is None

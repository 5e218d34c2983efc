"""Every operation in half and extended precision: NumPy's dtype, and gradients in it."""

from __future__ import annotations

import warnings
import zlib

import numpy as np
import pytest
from records import CORE

import adarray
from adarray.base.op import OPS
from adarray.core.dispatch import apply
from adarray.errors import NotDifferentiableError
from adarray.testing._samples import cases

# Relative to the largest element of a gradient; half precision overflows in some samples.
TOLERANCE = {np.float16: 0.06, np.longdouble: 1e-10}
CASES = 6


def in_dtype(x, dtype):
    return x.astype(dtype) if getattr(x, "dtype", None) == np.float64 else x


def gradients(op, operands, params, picked):
    """Return the result and the cotangents of the picked operands for a cotangent of ones."""

    def f(*xs):
        options = dict(zip(picked, xs, strict=True))
        result = apply(op, tuple(options.get(k, x) for k, x in enumerate(operands)), params)
        return [
            r for r in (result if isinstance(result, tuple) else (result,)) if r.dtype.kind == "f"
        ]

    values, pullback = adarray.vjp(f, *(operands[k] for k in picked))
    return values, pullback([np.ones_like(v) for v in values])


def sampled(op):
    rng = np.random.default_rng(zlib.crc32(op.name.encode()))
    results = []
    for case in cases(op, np.dtype(np.float64), rng):
        arrays = [k for k, x in enumerate(case.operands) if isinstance(x, np.ndarray)]
        picked = [
            k
            for k in arrays
            if case.operands[k].dtype == np.float64
            and (op.variadic or (k < len(op.rules) and op.rules[k] is not None))
        ]
        if case.order and picked:
            results.append((case, picked))
        if len(results) == CASES:
            break
    return results


DIFFERENTIABLE = [n for n, op in CORE.items() if op.samples is not None and any(op.rules)]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=lambda d: d.__name__)
@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients_have_the_dtype_of_their_operand(name, dtype):
    op = OPS[name]
    for case, picked in sampled(op):
        operands = [in_dtype(x, dtype) for x in case.operands]
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                values, actual = gradients(op, operands, case.params, picked)
            except (TypeError, NotDifferentiableError):
                with pytest.raises(TypeError):  # NumPy has no loop for it, as in linear algebra
                    call_numpy(op, operands, case.params)
                continue
            expected = gradients(op, case.operands, case.params, picked)[1]
            plain = call_numpy(op, operands, case.params)
        for v, p in zip(values, plain, strict=True):
            assert v.dtype == p.dtype, (case.name, v.dtype)
        for k, g, e in zip(picked, actual, expected, strict=True):
            assert g.dtype == operands[k].dtype, (case.name, g.dtype)
            close = np.isfinite(e) & np.isfinite(g.astype(float))
            scale = np.max(np.abs(e[close]), initial=0.02)
            np.testing.assert_allclose(
                g[close].astype(float), e[close], atol=TOLERANCE[dtype] * scale, err_msg=case.name
            )


def call_numpy(op, operands, params):
    """Return NumPy's floating results for plain operands."""
    if op.variadic:
        fixed = op.arity - 1
        result = op.evaluate(*operands[:fixed], list(operands[fixed:]), **params)
    else:
        result = op.evaluate(*operands, **params)
    parts = result if isinstance(result, tuple) else (result,)
    return [np.asarray(p) for p in parts if np.asarray(p).dtype.kind == "f"]

"""The records of scalar functions: there is one for each that an operation can produce."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest
from adarray_backends.cpu import compiler
from loop_kernels import many
from loops import Compiled

from adarray.base.op import Pointwise, Reduction, all_ops
from adarray.base.scalar import ScalarExpr, as_expr, var
from adarray.compiler.ir.target import CpuTarget
from adarray.compiler.scalars import functions
from adarray.compiler.scalars.catalogue import FUNCTIONS
from adarray.compiler.scalars.dtypes import INTEGERS
from adarray.compiler.scalars.record import HEAVY, LIGHT, MEDIUM, LibraryFunction, ScalarFunction
from adarray.errors import BackendError

NATIVE = Path(__file__).resolve().parents[3] / "native"
DTYPES = ("float64", "float32")
# Finite ends of what is sampled of a domain: results are numbers, and no operand is huge.
LARGEST = 300.0
WIDER = {"float64": np.longdouble, "float32": np.float64}


def expressions() -> list[ScalarExpr]:
    """Return what the records of all operations compute of one element, derivatives included."""
    formulas: list[ScalarExpr] = []
    for op in all_ops():
        if isinstance(op.lower, Pointwise):
            formulas.append(op.expression(*(var(f"x{i}") for i in range(op.arity))))
            rules = [i for i, rule in enumerate(op.rules) if rule is not None]
            formulas += [op.derivative_expression(i) for i in rules]
        elif isinstance(op.lower, Reduction):
            formulas.append(ScalarExpr(op.lower.combine, (var("acc"), var("x0"))))
            formulas += [as_expr(op.lower.map(var("x0")))] if op.lower.map else []
            formulas += [as_expr(op.lower.post(var("acc"), var("n")))] if op.lower.post else []
    return formulas


def test_every_function_of_an_operation_has_a_record() -> None:
    for expr in expressions():
        for e in expr.walk():
            if e.op not in ("var", "const"):
                assert e.op in FUNCTIONS, f"no record of the scalar function {e.op}"
                assert FUNCTIONS[e.op].arity == len(e.args), e


@pytest.mark.parametrize("f", FUNCTIONS.values(), ids=lambda f: f.name)
def test_records_are_whole(f: ScalarFunction) -> None:
    assert FUNCTIONS[f.name] is f
    assert len(f.domain) == f.arity
    assert f.cost in (LIGHT, MEDIUM, HEAVY)
    assert f.flops in (0, 1)
    assert f.ulp >= 0
    named = {n for n in (f.same_as, f.integers_as, f.truths_as) if n is not None}
    assert named <= FUNCTIONS.keys()
    if f.gives_truth or f.flops == 0:
        assert f.ulp == 0 or f.name == "cast"
    if f.libmvec or f.vector_versions or f.is_call:
        assert isinstance(f.floats, LibraryFunction)
        assert f.is_heavy or f.name in ("erf", "erfc")
        assert f.flops == 1
    # In some dtype kernels compute it, or what it is the same as.
    args = [["bool", *2 * [d]] if f.name == "where" else f.arity * [d] for d in ("bool", *DTYPES)]
    args += [f.arity * [d] for d in INTEGERS]
    if f.name in ("real", "imag", "paired"):
        whole, part = ("complex64", "float32") if f.name == "paired" else ("float32", "complex64")
        assert functions.supports(f.name, f.arity * [part], whole)
        assert not functions.supports(f.name, f.arity * [part], "float64")
        return
    assert any(functions.supports(f.name, d, r) for d in args for r in (d[-1], "bool"))


def test_headers_hold_what_records_name() -> None:
    """The vector versions that C declares, and the functions that CUDA kernels call out of line."""
    text = (NATIVE / "cpu" / "libmvec.h").read_text()
    first, later = text.split("__GLIBC_PREREQ(2, 35)")
    for level, part in ((1, first), (2, later)):
        declared = set(re.findall(r"^ADARRAY_VECTOR\d\((\w+)\)", part, re.M))
        assert declared == {_spelled(f) for f in FUNCTIONS.values() if f.libmvec == level}
    loops = (NATIVE / "cpu" / "adarray_loops.h").read_text()
    ones = set(re.findall(r"^ADARRAY_ONES\(ADARRAY_ONE\d, (\w+)\)", loops, re.M))
    assert ones | {"tanh"} == {_spelled(f) for f in FUNCTIONS.values() if f.libmvec}
    device = (NATIVE / "cuda" / "adarray_device.h").read_text()
    far = set(re.findall(r"\bADARRAY_FAR_(?:1|2|OWN)\((\w\w+)\)", device))
    assert far == {_spelled(f) for f in FUNCTIONS.values() if f.cuda_far}
    vectors = (NATIVE / "cpu" / "adarray_vector.h").read_text()
    own = set(re.findall(r"ADARRAY_FN \w+ ADARRAY_LEVEL\((\w+)\)", vectors))
    assert own == {v.name for f in FUNCTIONS.values() for v in f.vector_versions.values()}
    quick = (NATIVE / "cuda" / "adarray_quick.h").read_text()
    for f in FUNCTIONS.values():
        assert not f.cuda_careful or f" adarray_{f.cuda_careful}(" in quick


def _spelled(f: ScalarFunction) -> str:
    assert isinstance(f.floats, LibraryFunction)
    return f.floats.name


def sampled(f: ScalarFunction, operand: int, n: int, rng: np.random.Generator) -> np.ndarray:
    """Return numbers of a function's domain: of all magnitudes, and near its ends."""
    low, high = (float(np.clip(x, -LARGEST, LARGEST)) for x in f.domain[operand])
    even = rng.uniform(low, high, n)
    small = rng.choice([-1.0, 1.0], n) * 10.0 ** rng.uniform(-6, 2, n)
    x = np.where(rng.random(n) < 0.5, even, small)
    return np.where((x > low) & (x < high), x, even)


def true_values(name: str, xs: list[np.ndarray], dtype: str) -> np.ndarray:
    """Return what `name` is of numbers of `dtype`, in a wider one."""
    if not hasattr(np, name):  # the C library's scalar functions are within 1 ulp
        function = getattr(math, name)

        def value(x: float) -> float:
            try:
                return function(x)
            except OverflowError:
                return math.inf

        return np.array([value(float(x)) for x in xs[0]], WIDER[dtype])
    return getattr(np, name)(*(x.astype(WIDER[dtype]) for x in xs))


def errors(got: np.ndarray, true: np.ndarray, dtype: str) -> np.ndarray:
    """Return errors in units in the last place of the true values, which may be zero."""
    finfo = np.finfo(dtype)
    exponent = np.maximum(np.frexp(true)[1], finfo.minexp + 1)
    return np.abs(got - true) / np.ldexp(np.ones_like(true), exponent - 1 - finfo.nmant)


ROUNDED = [
    f
    for f in FUNCTIONS.values()
    if f.floats is not None and not f.gives_truth and math.isfinite(f.ulp)
    if f.name not in ("where", "nextafter", "conjugate")
]


@pytest.mark.parametrize("precise", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_errors_are_within_the_records_bounds(dtype: str, precise: bool) -> None:
    try:
        libmvec = compiler.find().libmvec
    except BackendError:
        pytest.skip("there is no C compiler")
    target = CpuTarget(libmvec=libmvec, precise=precise)
    n, tiny = 2000, np.finfo(dtype).tiny
    for k in (1, 2):
        rng = np.random.default_rng(k)
        group = [f for f in ROUNDED if f.arity == k]
        for domain in sorted({f.domain for f in group}):
            like = [f for f in group if f.domain == domain]
            xs = [sampled(like[0], i, n, rng).astype(dtype) for i in range(k)]
            ys = [np.zeros(n, dtype) for _ in like]
            Compiled(many([f.name for f in like], k * [dtype], dtype), target)([*xs, *ys], (n,))
            for f, y in zip(like, ys, strict=True):
                with np.errstate(all="ignore"):
                    true = true_values(f.name, xs, dtype)
                    normal = np.isfinite(true.astype(dtype)) & (np.abs(true) >= tiny)
                    worst = float(errors(y, true, dtype)[normal].max())
                assert worst <= f.ulp + 1e-3, f"{f.name}: {worst:.3f} ulp"

"""Pointwise operations: scalar expressions as maps, in NumPy's loop dtypes."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from adarray.base.op import Op, Pointwise
from adarray.base.recording import Symbol
from adarray.base.scalar import COMPARISONS, LOGICAL, ScalarExpr, var
from adarray.base.scalar import call as scalar_call
from adarray.base.types import DType, Operands
from adarray.compiler.ir import complexes
from adarray.compiler.ir.builder import (
    BOOL,
    PAIRS,
    PRINTABLE,
    WIDE,
    Builder,
    Weak,
    number_of,
    uniform,
)
from adarray.compiler.ir.primitives import Constant
from adarray.compiler.ir.program import Value
from adarray.compiler.scalars.catalogue import FUNCTIONS
from adarray.compiler.scalars.record import ScalarFunction
from adarray.compiler.scalars.rewrite import simplify
from adarray.compiler.translate import Translated, ValueCall, function, of_pairs

# -- one scalar function in one dtype ----------------------------------------------------------


def emit(b: Builder, name: str, args: tuple[Value, ...], literal: bool = False) -> Value | None:
    """Apply the scalar function `name` to operands of one dtype (condition of where: bool).

    `literal` says that the last operand stood as a Python number in the code. None where no
    kernel computes the function in this dtype.
    """
    f = FUNCTIONS.get(name)
    if f is None:
        return None
    dtype = args[-1].dtype
    if dtype in PAIRS:
        return _complex(b, name, args, literal)
    if f.name == "where" or f.is_comparison:
        return b.map(f.name, *args)
    if f.is_logical:
        return b.map(f.name, *(b.cast(a, BOOL) for a in args))
    f = FUNCTIONS[f.same_as or f.name]
    if dtype in WIDE:  # rounded once, however many operations it takes
        wide = None if f.of_spacing else _floats(b, f, tuple(map(b.widened, args)), literal)
        return None if wide is None else b.cast(wide, BOOL if f.gives_truth else dtype)
    if dtype.kind == "f":
        return _floats(b, f, args, literal)
    f = FUNCTIONS[f.integers_as or f.name]
    if f.name == "positive":
        return args[0]
    if f.is_predicate:  # an integer is finite
        return None if f.name == "signbit" else b.full(args[0].shape, f.name == "isfinite", BOOL)
    if f.name == "square":
        return emit(b, "multiply", (args[0], args[0]))
    if f.name == "absolute" and dtype.kind in "bu":
        return args[0]
    if dtype == BOOL:
        return None if f.truths_as is None else b.map(f.truths_as, *args)
    if f.name == "power":
        return _integer_power(b, args) if literal else None
    return None if f.signed is None else b.map(f.name, *args)


def _complex(b: Builder, name: str, args: tuple[Value, ...], literal: bool) -> Value | None:
    """Apply a scalar function to complex numbers."""
    if FUNCTIONS[name].is_logical:
        return b.map(name, *(b.cast(a, BOOL) for a in args))
    if name != "power":
        return b.map(name, *args)
    re, im = (number_of(c) if (c := uniform(p)) else None for p in b.parts(args[1]))
    if re is None or im is None or im != 0 or not literal:
        return None
    return complexes.power(b, args[0], float(re.item()))


def _floats(b: Builder, f: ScalarFunction, args: tuple[Value, ...], literal: bool) -> Value | None:
    x = args[0]
    if f.name == "positive":
        return x
    if f.name == "square":
        return b.map("multiply", x, x)
    if f.name == "reciprocal":
        return b.map("divide", b.const(1, x.dtype), x)
    if f.name in ("deg2rad", "rad2deg"):
        factor = math.pi / 180 if f.name == "deg2rad" else 180 / math.pi
        return b.map("multiply", x, b.const(factor, x.dtype))
    if f.name == "power" and literal and isinstance(args[1].primitive, Constant):
        return _power(b, x, args[1])
    return None if f.floats is None else b.map(f.name, *args)


def _power(b: Builder, x: Value, exponent: Value) -> Value:
    """Return ``x ** exponent`` as `adarray.compiler.scalars.rewrite` writes it."""
    n = float(number_of(exponent).item())
    if n == 0.5 and not x.ndim:  # NumPy's scalars take the power, which differs at -0.0
        return b.map("power", x, exponent)
    expr = simplify(scalar_call("power", var("x"), n))
    if expr.op == "power":
        return b.map("power", x, exponent)
    done: dict[ScalarExpr, Value] = {}
    return _expression(b, expr, {"x": x}, x.dtype, done)


def _integer_power(b: Builder, args: tuple[Value, ...]) -> Value | None:
    n = number_of(args[1]) if isinstance(args[1].primitive, Constant) else None
    if n not in (1, 2, 3, 4):
        return None
    x = args[0]
    if n == 1:
        return x
    square = b.map("multiply", x, x)
    if n == 2:
        return square
    return b.map("multiply", square, x if n == 3 else square)


# -- expressions -------------------------------------------------------------------------------


def _expression(
    b: Builder, expr: ScalarExpr, env: dict[str, Value], dtype: DType, done: dict[ScalarExpr, Value]
) -> Value:
    """Return the value of a scalar expression: truth values and numbers of one dtype.

    As the printer writes it: where a number is needed truth values are 1 and 0, where a
    truth value is needed numbers are true unless 0.
    """
    if expr.op == "var":
        return env[expr.value]
    if expr.op == "const":
        return b.const(expr.value, BOOL if isinstance(expr.value, bool) else dtype)
    if expr in done:
        return done[expr]
    args = [_expression(b, a, env, dtype, done) for a in expr.args]
    if expr.op == "where":
        kind = BOOL if args[1].dtype == args[2].dtype == BOOL else dtype
        args = [b.cast(args[0], BOOL), b.cast(args[1], kind), b.cast(args[2], kind)]
    elif expr.op in LOGICAL:
        args = [b.cast(a, BOOL) for a in args]
    elif not (expr.op in COMPARISONS and all(a.dtype == BOOL for a in args)):
        args = [b.cast(a, dtype) for a in args]
    literal = expr.args[-1].op == "const"
    value = emit(b, expr.op, tuple(args), literal)
    if value is None:
        raise _NoKernel(expr.op)
    done[expr] = value
    return value


class _NoKernel(Exception):  # noqa: N818  (caught in this module)
    """A scalar function that kernels do not have in some dtype."""


# -- dtypes ------------------------------------------------------------------------------------


# What decides the dtype of a result: a dtype, or the type of a Python number (NEP 50).
Promoted: TypeAlias = DType | type


def promoted_as(x: object) -> Promoted:
    """Return what an operand decides the dtype of a result by."""
    if isinstance(x, Value):
        return x.dtype
    if isinstance(x, Weak):
        return x.kind
    if type(x) in (bool, int, float, complex):
        return type(x)
    return np.asarray(x).dtype


@functools.lru_cache(4096)
def loop(ufunc: np.ufunc, operands: tuple[Promoted, ...]) -> tuple[DType, ...] | None:
    """Return the dtypes of the operands and of the result in NumPy's loop."""
    wanted = tuple(BOOL if p is bool else p for p in operands)
    try:
        return tuple(ufunc.resolve_dtypes((*wanted, *(None,) * ufunc.nout)))
    except TypeError:
        return None


@functools.lru_cache(4096)
def _common(ufunc: np.ufunc, operands: tuple[Promoted, ...]) -> DType | None:
    """Return the dtype to which operands are converted; None if there is no one for all."""
    dtypes = loop(ufunc, operands)
    if dtypes is None or not (PRINTABLE | PAIRS).issuperset(dtypes):
        return None
    if any(d != dtypes[0] for d in dtypes[:-1]):
        return None
    # Small integers are divided as float64; comparisons compare in the operands' dtype, and
    # absolute values of complex numbers are real.
    return dtypes[0] if dtypes[-1] == BOOL or dtypes[0] in PAIRS else dtypes[-1]


def apply_ufunc(
    b: Builder, ufunc: np.ufunc, operands: Sequence[object], literal: bool | None = None
) -> Value | None:
    """Apply a ufunc by its name, in NumPy's loop; None where no kernel does."""
    if ufunc.nout != 1:
        return None
    common = _common(ufunc, tuple(map(promoted_as, operands)))
    if common is None:
        return None
    args = [b.value(x, common) for x in operands]
    if literal is None:
        literal = type(operands[-1]) in (int, float)
    return emit(b, ufunc.__name__, tuple(args), literal)


# -- records -----------------------------------------------------------------------------------


def pointwise(b: Builder, op: Op, operands: Operands, result: Symbol) -> Value | None:
    """Translate an operation whose record is `Pointwise`."""
    assert isinstance(op.lower, Pointwise)
    if op.lower.expr is None and isinstance(op.numpy, np.ufunc):
        return apply_ufunc(b, op.numpy, operands)
    if any(getattr(x, "dtype", None) in PAIRS for x in (result, *operands)) or any(
        isinstance(x, complex) or (isinstance(x, Weak) and x.kind is complex) for x in operands
    ):
        if isinstance(op.numpy, np.ufunc):
            return apply_ufunc(b, op.numpy, operands)
    elif result.dtype not in PRINTABLE:
        return None
    names = [f"x{i}" for i in range(len(operands))]
    expr, truths = _template(op)
    env = {
        n: b.value(x, BOOL if n in truths else result.dtype)
        for n, x in zip(names, operands, strict=True)
    }
    dtype = result.dtype
    if dtype in WIDE and isinstance(op.numpy, np.ufunc):  # rounded once, whatever it is made of
        dtype = WIDE[dtype]
        env = {n: b.widened(x) for n, x in env.items()}
    try:
        value = _expression(b, expr, env, dtype, {})
    except _NoKernel:
        return None
    return b.cast(value, result.dtype)


@functools.lru_cache(512)
def _template(op: Op) -> tuple[ScalarExpr, frozenset[str]]:
    """Return the simplified expression of an operation, and its operands that are truths."""
    from adarray.compiler.scalars.eager import truth_variables  # it imports every record

    expr = simplify(op.expression(*(var(f"x{i}") for i in range(op.arity))))
    return expr, truth_variables(expr)


# -- functions without a record ----------------------------------------------------------------


@function(np.isneginf)
def _isneginf(b: Builder, call: ValueCall) -> Translated:
    return _is_infinity(b, call, -math.inf)


@function(np.isposinf)
def _isposinf(b: Builder, call: ValueCall) -> Translated:
    return _is_infinity(b, call, math.inf)


def _is_infinity(b: Builder, call: ValueCall, number: float) -> Translated:
    x = b.value(call.operands[0])
    if call.params or len(call.operands) != 1:
        return None
    if x.dtype.kind != "f":
        return b.full(x.shape, False, BOOL)
    return b.map("equal", x, b.const(number, x.dtype))


of_pairs("where", np.where, np.angle)


@function(np.angle)
def _angle(b: Builder, call: ValueCall) -> Translated:
    args = call.bound("z", "deg")
    if args is None:
        return None
    z = b.value(args["z"])
    if z.dtype not in PAIRS:
        return None
    re, im = b.parts(z)
    phase = b.map("arctan2", im, re)
    return (
        b.map("multiply", phase, b.const(180 / math.pi, phase.dtype)) if args.flag("deg") else phase
    )


@function(np.where)
def _where(b: Builder, call: ValueCall) -> Translated:
    if len(call.operands) != 3 or call.params:
        return None
    condition, x, y = call.operands
    return b.map(
        "where",
        b.value(condition, BOOL),
        b.value(x, call.result.dtype),
        b.value(y, call.result.dtype),
    )

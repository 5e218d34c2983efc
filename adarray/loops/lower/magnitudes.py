"""Comparisons of absolute values of complex numbers, nearly all of which need no root.

``abs(z) < limit`` is what the squares of both say, where these are apart by more than rounding
can be, and neither too small nor too large. Elsewhere the absolute value itself is compared.
"""

from __future__ import annotations

from adarray.compiler.ir.loopir import Apply, Expr, Var
from adarray.kernels import build
from adarray.loops.lower.state import State

COMPARISONS = frozenset(("less", "less_equal", "greater", "greater_equal"))
_SWAPPED = {
    "less": "greater", "less_equal": "greater_equal", "greater": "less",
    "greater_equal": "less_equal",
}  # fmt: skip
# By dtype: more than squares, sums and a root may be wrong by, relative; and between which numbers
# the square of the limit has to lie, so that nothing has become 0 or infinite.
_APART = {"float64": 2.0**-48, "float32": 2.0**-19}
_RANGE = {"float64": (1e-280, 1e280), "float32": (1e-30, 1e30)}


def compared(state: State, name: str, x: Expr, y: Expr) -> Expr | None:
    """Return a comparison of numbers of which one is an absolute value; None for others."""
    if name not in COMPARISONS or x.dtype not in _APART:
        return None
    if isinstance(x, Var) and x.name in state.magnitudes:
        return _compared(state, name, x, y)
    if isinstance(y, Var) and y.name in state.magnitudes:
        return _compared(state, _SWAPPED[name], y, x)
    return None


def _compared(state: State, name: str, size: Var, limit: Expr) -> Expr:
    re, im = state.magnitudes[size.name]
    dtype = size.dtype

    def of(function: str, *args: Expr) -> Expr:
        return Apply(dtype, function, args)

    limit = state.let("limit", limit)
    square = state.let("square", of("add", of("multiply", re, re), of("multiply", im, im)))
    bound = state.let("bound", of("multiply", limit, limit))
    least, most = (build.const(x, dtype) for x in _RANGE[dtype])
    gap = of("absolute", of("subtract", square, bound))
    apart = build.const(_APART[dtype], dtype)
    clear = build.both(
        build.call("greater", "bool", gap, of("multiply", apart, bound)),
        build.both(
            build.call("greater", "bool", limit, build.const(0, dtype)),
            build.both(
                build.call("greater", "bool", bound, least), build.call("less", "bool", bound, most)
            ),
        ),
    )
    result = state.local("size", "bool")
    with state.block() as by_squares:
        state.assign(result, build.call(name, "bool", square, bound))
    with state.block() as by_root:
        state.assign(result, build.call(name, "bool", of("hypot", re, im), limit))
    state.branch(clear, by_squares, by_root)
    return result

"""Products whose library adds something as it writes them, so that a pass over memory is saved.

That is a matrix, ``w - rate * (x.T @ g)``, as steps of gradient descent have it, or a vector to
each row, ``np.maximum(x @ w + b, 0)``, as layers of networks have it.

References
----------
- J. J. Dongarra, J. Du Croz, S. Hammarling, I. S. Duff, "A set of level 3 basic linear algebra
  subprograms", ACM Trans. Math. Softw. 16 (1990), 1-17.
"""

from __future__ import annotations

from adarray.compiler.ir.program import Program, Value, c_strides
from adarray.compiler.ir.uses import sweeps
from adarray.compiler.rewrite.algebra import is_map, number
from adarray.compiler.rewrite.rebuild import uses

# Bytes of a matrix from which on it is added to: smaller ones are updated by one kernel together
# with others, and where a library writes, the launcher cannot change addresses.
LEAST = 1 << 20


def accumulated(program: Program, dtypes: frozenset[str]) -> Program:
    """Return the program with results that are an input plus a multiple of a product as one value.

    Such a value is a ``dot`` with a third operand and a parameter ``scale``.

    Parameters
    ----------
    program : Program
    dtypes : frozenset of str
        Of matrices that are added to.
    """
    if not dtypes:
        return program
    count = uses(program)
    made: dict[int, Value] = {}
    for v in program.outputs:
        fits = v.ndim == 2 and v.dtype.name in dtypes and v.nbytes >= LEAST
        if fits and id(v) not in made and count[id(v)] == 1:
            found = _sum(v, count)
            if found is not None:
                made[id(v)] = found
    if not made:
        return program
    values = [made.get(id(v), v) for v in program.values]
    outputs = [made.get(id(v), v) for v in program.outputs]
    return Program(program.inputs, values, outputs)


def _sum(v: Value, count: dict[int, int]) -> Value | None:
    """Return a sum or difference as one product; None if it is none."""
    if not is_map(v, "add") and not is_map(v, "subtract"):
        return None
    x, y = v.args
    sign = -1.0 if is_map(v, "subtract") else 1.0
    found = _multiple(y, count)
    if found is None and sign > 0:
        x, found = y, _multiple(x, count)
    if found is None or not _in_rows(x, v):
        return None
    dot, scale = found
    params = {"scale": sign * scale}
    return Value("dot", (*dot.args, x), params, v.shape, v.dtype, v.origin or dot.origin)


def _multiple(x: Value, count: dict[int, int]) -> tuple[Value, float] | None:
    """Return the product and the factor of a multiple of a product that nothing else reads."""
    scale = 1.0
    if is_map(x, "multiply") and count[id(x)] == 1:
        for given, other in (x.args, x.args[::-1]):
            n = number(given)
            # With a factor of zero, libraries leave the product out, and its nan with it.
            if n is not None and n != 0 and other.shape == x.shape:
                scale, x = float(n), other
                break
    matrices = x.kind == "dot" and x.ndim == 2 and all(a.ndim == 2 for a in x.args)
    if not matrices or "scale" in x.params or count[id(x)] != 1 or x.size == 0 or sweeps(x):
        return None
    return x, scale


def biased(program: Program, dtypes: frozenset[str]) -> Program:
    """Return the program with products and a vector added to each row as one value.

    Such a value is a ``dot`` with the vector as third operand and parameters ``row`` and
    ``relu``: whether numbers below zero become zero. Only what products read, or what is
    large and a result, is found; other kernels add on the way.

    Parameters
    ----------
    program : Program
    dtypes : frozenset of str
        Of the products.
    """
    if not dtypes or not any(v.kind == "dot" for v in program.values):
        return program
    count, multiplied = uses(program), _multiplied(program)
    outputs = set(map(id, program.outputs))
    made: dict[int, Value] = {}
    values = []
    for v in program.values:
        new = v
        if any(id(a) in made for a in v.args):
            args = tuple(made.get(id(a), a) for a in v.args)
            new = Value(v.kind, args, v.params, v.shape, v.dtype, v.origin)
        kept = v.nbytes >= LEAST if id(v) in outputs else count[id(v)] > 0
        if v.dtype == "float32" and v.dtype.name in dtypes and id(v) in multiplied and kept:
            new = _row_sum(v, count, made) or new
        if new is not v:
            made[id(v)] = new
        values.append(new)
    if not made:
        return program
    return Program(program.inputs, values, [made.get(id(v), v) for v in program.outputs])


def _multiplied(program: Program) -> set[int]:
    """Return the values that only products read, or only the caller, by their id."""
    others: set[int] = set()
    for v in reversed(program.values):
        if v.kind == "dot" and not sweeps(v):
            continue
        if v.kind != "view" or id(v) in others:
            others.update(map(id, v.args))
    return {id(v) for v in program.values if v.kind == "map"} - others


def _row_sum(v: Value, count: dict[int, int], made: dict[int, Value]) -> Value | None:
    """Return a product with a vector added to each row as one value; None if it is none."""
    relu = is_map(v, "maximum") and any(_zero(a) for a in v.args)
    total = next(a for a in v.args if not _zero(a)) if relu and not all(map(_zero, v.args)) else v
    if not is_map(total, "add") or total.shape != v.shape or v.ndim != 2:
        return None
    if relu and count[id(total)] != 1:
        return None
    for dot, row in (total.args, total.args[::-1]):
        matrices = dot.kind == "dot" and dot.ndim == 2 and all(a.ndim == 2 for a in dot.args)
        if not matrices or count[id(dot)] != 1 or dot.shape != v.shape or dot.size == 0:
            continue
        fits = row.shape in ((v.shape[1],), (1, v.shape[1])) and row.dtype == v.dtype
        if fits and _dense(row) and "scale" not in dot.params and not sweeps(dot):
            args = tuple(made.get(id(a), a) for a in (*dot.args, row))
            params = {"scale": 1.0, "row": True, "relu": relu}
            return Value("dot", args, params, v.shape, v.dtype, v.origin or dot.origin)
    return None


def _dense(row: Value) -> bool:
    """Whether a row is of an argument, without gaps."""
    root = row.args[0] if row.kind == "view" else row
    if root.kind != "input" or root.params["strides"] != c_strides(root.shape):
        return False
    return row.size == 1 or bool(row.params["strides"][-1] == 1)


def _zero(x: Value) -> bool:
    return x.size > 0 and number(x) == 0


def _in_rows(x: Value, like: Value) -> bool:
    """Whether a value is an array of the caller's in C order, as large as another one."""
    fits = x.kind == "input" and x.shape == like.shape and x.dtype == like.dtype
    return fits and x.params["strides"] == c_strides(x.shape)

"""Products whose library adds something as it writes them, so that a pass over memory is saved.

That is a matrix, ``w - rate * (x.T @ g)``, as steps of gradient descent have it, or a vector to
each row, ``np.maximum(x @ w + b, 0)``, as layers of networks have it.

References
----------
- J. J. Dongarra, J. Du Croz, S. Hammarling, I. S. Duff, "A set of level 3 basic linear algebra
  subprograms", ACM Trans. Math. Softw. 16 (1990), 1-17.
"""

from __future__ import annotations

from collections.abc import Mapping

from adarray.compiler.ir.primitives import Epilogue, Map, Matmul, ProgramInput, View
from adarray.compiler.ir.program import Program, Value, c_strides
from adarray.compiler.ir.uses import sweeps
from adarray.compiler.rewrite.algebra import is_map, number
from adarray.compiler.rewrite.rebuild import uses

# Bytes of a matrix from which on it is added to: smaller ones are updated by one kernel together
# with others, and where a library writes, the launcher cannot change addresses.
LEAST = 1 << 20


def accumulated(program: Program, dtypes: frozenset[str]) -> Program:
    """Return the program with results that are an input plus a multiple of a product as one value.

    Such a value is a `Matmul` with an epilogue, and a third operand.

    Parameters
    ----------
    program : Program
    dtypes : frozenset of str
        Of matrices that are added to.
    """
    if not dtypes:
        return program
    count = uses(program)
    changed: dict[Value, Value] = {}
    for v in program.outputs:
        fits = v.ndim == 2 and v.dtype.name in dtypes and v.nbytes >= LEAST
        if fits and v not in changed and count[v] == 1:
            total = _sum(v, count)
            if total is not None:
                changed[v] = total
    if not changed:
        return program
    values = [changed.get(v, v) for v in program.values]
    outputs = [changed.get(v, v) for v in program.outputs]
    return Program(program.inputs, values, outputs)


def _sum(v: Value, count: Mapping[Value, int]) -> Value | None:
    """Return a sum or difference as one product; None if it is none."""
    if not is_map(v, "add") and not is_map(v, "subtract"):
        return None
    x, y = v.args
    sign = -1.0 if is_map(v, "subtract") else 1.0
    multiple = _multiple(y, count)
    if multiple is None and sign > 0:
        x, multiple = y, _multiple(x, count)
    if multiple is None or not _in_rows(x, v):
        return None
    matmul, scale = multiple
    primitive = Matmul(Epilogue(sign * scale))
    return Value(primitive, (*matmul.args, x), v.shape, v.dtype, v.origin or matmul.origin)


def _multiple(x: Value, count: Mapping[Value, int]) -> tuple[Value, float] | None:
    """Return the product and the factor of a multiple of a product that nothing else reads."""
    scale = 1.0
    if is_map(x, "multiply") and count[x] == 1:
        for factor, other in (x.args, x.args[::-1]):
            n = number(factor)
            # With a factor of zero, libraries leave the product out, and its nan with it.
            if n is not None and n != 0 and other.shape == x.shape:
                scale, x = float(n), other
                break
    if not _multiplies_matrices(x) or count[x] != 1 or x.size == 0 or sweeps(x):
        return None
    return x, scale


def _multiplies_matrices(x: Value) -> bool:
    """Whether a value is the product of two matrices, and nothing else yet."""
    return x.primitive == Matmul() and x.ndim == 2 and all(a.ndim == 2 for a in x.args)


def biased(program: Program, dtypes: frozenset[str]) -> Program:
    """Return the program with products and a vector added to each row as one value.

    Such a value is a `Matmul` with an epilogue, and the vector as third operand. Only what
    products read, or what is large and a result, is found; other kernels add on the way.

    Parameters
    ----------
    program : Program
    dtypes : frozenset of str
        Of the products.
    """
    if not dtypes or not any(isinstance(v.primitive, Matmul) for v in program.values):
        return program
    count, multiplied = uses(program), _multiplied(program)
    outputs = set(program.outputs)
    changed: dict[Value, Value] = {}
    values = []
    for v in program.values:
        new = v
        if any(a in changed for a in v.args):
            args = tuple(changed.get(a, a) for a in v.args)
            new = v.with_args(args)
        stays = v.nbytes >= LEAST if v in outputs else count[v] > 0
        if v.dtype == "float32" and v.dtype.name in dtypes and v in multiplied and stays:
            new = _row_sum(v, count, changed) or new
        if new is not v:
            changed[v] = new
        values.append(new)
    if not changed:
        return program
    return Program(program.inputs, values, [changed.get(v, v) for v in program.outputs])


def _multiplied(program: Program) -> set[Value]:
    """Return the maps that only products read, or only the caller."""
    others: set[Value] = set()
    for v in reversed(program.values):
        if isinstance(v.primitive, Matmul) and not sweeps(v):
            continue
        if not isinstance(v.primitive, View) or v in others:
            others.update(v.args)
    return {v for v in program.values if isinstance(v.primitive, Map)} - others


def _row_sum(v: Value, count: Mapping[Value, int], changed: Mapping[Value, Value]) -> Value | None:
    """Return a product with a vector added to each row as one value; None if it is none."""
    relu = is_map(v, "maximum") and any(_zero(a) for a in v.args)
    total = next(a for a in v.args if not _zero(a)) if relu and not all(map(_zero, v.args)) else v
    if not is_map(total, "add") or total.shape != v.shape or v.ndim != 2:
        return None
    if relu and count[total] != 1:
        return None
    for matmul, row in (total.args, total.args[::-1]):
        if (
            not _multiplies_matrices(matmul)
            or count[matmul] != 1
            or matmul.shape != v.shape
            or not matmul.size
        ):
            continue
        fits = row.shape in ((v.shape[1],), (1, v.shape[1])) and row.dtype == v.dtype
        if fits and _dense(row) and not sweeps(matmul):
            args = tuple(changed.get(a, a) for a in (*matmul.args, row))
            primitive = Matmul(Epilogue(1.0, row=True, relu=relu))
            return Value(primitive, args, v.shape, v.dtype, v.origin or matmul.origin)
    return None


def _dense(row: Value) -> bool:
    """Whether a row is of an argument, without gaps."""
    root = row.args[0] if isinstance(row.primitive, View) else row
    if not _in_c_order(root):
        return False
    strided = row.primitive
    assert isinstance(strided, (View, ProgramInput))
    return row.size == 1 or strided.strides[-1] == 1


def _in_c_order(x: Value) -> bool:
    """Whether a value is an array of the caller's in C order."""
    return isinstance(x.primitive, ProgramInput) and x.primitive.strides == c_strides(x.shape)


def _zero(x: Value) -> bool:
    return x.size > 0 and number(x) == 0


def _in_rows(x: Value, like: Value) -> bool:
    """Whether a value is an array of the caller's in C order, as large as another one."""
    return _in_c_order(x) and x.shape == like.shape and x.dtype == like.dtype

"""Loops that add up products by themselves, as one product of two rows.

``for k in range(n): c[i, j] += 0.5 * a[i, k] * b[k, j]`` adds ``0.5 * (a[i, :] @ b[:, j])`` if n is
the extent of both axes. Loops between that over ``k`` and the sum change places with it.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping, Set
from dataclasses import dataclass

from adarray.loops import names
from adarray.loops.forms import ArrayForm, Form, Scalar
from adarray.loops.policy import extent


@dataclass(frozen=True, slots=True)
class Contraction:
    """What stands in the place of a loop: a statement, and the product of rows in it."""

    statement: ast.stmt
    product: ast.BinOp


def contractions(
    loop: ast.For, forms: Mapping[str, Form], read_later: Set[str]
) -> dict[int, Contraction]:
    """Return what stands in the place of loops in a loop, by the identities of these.

    Parameters
    ----------
    loop : For
    forms : mapping of str to Form
        Of variables before it.
    read_later : set of str
        Variables that are read behind it.
    """
    out: dict[int, Contraction] = {}
    bound = names.stored_in(loop)
    if "range" in bound or "range" in forms:
        return out
    for s in ast.walk(loop):
        if isinstance(s, ast.For) and s is not loop and isinstance(s.target, ast.Name):
            k = s.target.id
            if k in read_later or not _is_own(loop, k):
                continue
            c = _contraction(s, loop, forms, bound)
            if c is not None:
                out[id(s)] = c
    return out


def _is_own(loop: ast.For, k: str) -> bool:
    """Whether a variable is set by loops over it alone, and read in these alone."""
    inside: set[int] = set()
    for s in ast.walk(loop):
        if isinstance(s, ast.For) and isinstance(s.target, ast.Name) and s.target.id == k:
            inside |= {id(n) for part in (s.target, *s.body) for n in ast.walk(part)}
    return all(
        id(n) in inside for n in ast.walk(loop) if isinstance(n, ast.Name) and n.id == k
    )  # fmt: skip


def _contraction(
    s: ast.For, loop: ast.For, forms: Mapping[str, Form], bound: Set[str]
) -> Contraction | None:  # fmt: skip
    """Return what stands in the place of one loop inside of another one."""
    assert isinstance(s.target, ast.Name)
    k, around, body = s.target.id, [s], s.body
    while len(body) == 1 and isinstance(body[0], ast.For):
        around.append(body[0])
        body = body[0].body
    if len(body) != 1 or not isinstance(body[0], ast.AugAssign):
        return None
    for x in around:
        function = x.iter.func if isinstance(x.iter, ast.Call) else None
        if not isinstance(function, ast.Name) or function.id != "range" or x.orelse:
            return None
        if not isinstance(x.target, ast.Name) or (x is not s and k in names.read_in(x.iter)):
            return None
    add = body[0]
    if not isinstance(add.op, (ast.Add, ast.Sub)) or k in names.read_in(add.target):
        return None
    target = add.target
    name = target.value if isinstance(target, ast.Subscript) else target
    if not isinstance(name, ast.Name) or name.id in names.read_in(add.value):
        return None
    inner = {x.target.id for x in around if isinstance(x.target, ast.Name)}
    if len(inner) < len(around) or name.id in inner:
        return None
    factors = _factors(add.value)
    mine = [f for f in factors if k in names.read_in(f)]
    others = [f for f in factors if k not in names.read_in(f)]
    if len(mine) != 2 or not all(map(_is_plain, others)):
        return None
    if names.read_in(s.iter) & bound:  # its extent is not that before the loop
        return None
    count = extent(s.iter, forms)
    if not isinstance(s.iter, ast.Call) or len(s.iter.args) != 1 or not count:
        return None
    rows = [r for f in mine if (r := _row(f, k, count, forms, bound)) is not None]
    if len(rows) < len(mine):
        return None
    # Two slices, or a slice and an array of indices, are multiplied element by element.
    if any(isinstance(r[2], ast.Slice) for r in rows) and not any(
        isinstance(r[2], ast.Name) for r in rows
    ):  # fmt: skip
        return None
    dtypes = {r[1] for r in rows}
    if not isinstance(target, ast.Subscript):
        if name.id in forms or not _starts_as_constant(loop, add):
            dtypes.add("float64")  # of which the variable may be, whatever is added to it
    else:
        form = forms.get(name.id)
        # An array of integers would cut off what each iteration adds.
        if not isinstance(form, ArrayForm) or name.id in bound:
            return None
        dtypes.add(form.dtype)
    if len(dtypes) != 1 or not (dtypes == {"float64"} or not others):
        return None
    if not all(_is_real(f, forms) for f in others):
        return None
    product = ast.BinOp(rows[0][0], ast.MatMult(), rows[1][0])
    value: ast.expr = product
    for f in others:
        value = ast.BinOp(copy.deepcopy(f), ast.Mult(), value)
    out: ast.stmt = ast.AugAssign(copy.deepcopy(target), add.op, value)
    ast.fix_missing_locations(ast.copy_location(out, add))
    for x in reversed(around[1:]):
        out = ast.copy_location(ast.For(x.target, x.iter, [out], []), x)
        ast.fix_missing_locations(out)
    for n in ast.walk(value):
        ast.copy_location(n, add)
    return Contraction(out, product)


def _starts_as_constant(loop: ast.For, add: ast.AugAssign) -> bool:
    """Whether a loop sets a variable to numbers of the text alone, but where it adds to it.

    Such have the dtype of what is added to them.
    """
    assert isinstance(add.target, ast.Name)
    fit = {id(add.target)}
    for n in ast.walk(loop):
        value = n.value if isinstance(n, ast.Assign) else None
        if isinstance(n, ast.Assign) and isinstance(value, ast.Constant):
            fit |= {id(t) for t in n.targets} if isinstance(value.value, (int, float)) else set()
    return all(
        id(n) in fit for n in ast.walk(loop)
        if isinstance(n, ast.Name) and n.id == add.target.id and not isinstance(n.ctx, ast.Load)
    )  # fmt: skip


def _factors(e: ast.expr) -> list[ast.expr]:
    """Return what is multiplied."""
    if isinstance(e, ast.BinOp) and isinstance(e.op, ast.Mult):
        return [*_factors(e.left), *_factors(e.right)]
    return [e]


def _is_plain(e: ast.expr) -> bool:
    """Whether an expression is a number, a name, or an element at such indices."""
    if isinstance(e, ast.Subscript):
        parts = e.slice.elts if isinstance(e.slice, ast.Tuple) else [e.slice]
        return isinstance(e.value, ast.Name) and all(map(_is_plain, parts))
    return isinstance(e, (ast.Name, ast.Constant))


def _is_real(e: ast.expr, forms: Mapping[str, Form]) -> bool:
    """Whether a factor is no complex number."""
    if isinstance(e, ast.Constant):
        return isinstance(e.value, (int, float))
    name = e.value if isinstance(e, ast.Subscript) else e
    form = forms.get(name.id) if isinstance(name, ast.Name) else None
    return not isinstance(form, (ArrayForm, Scalar)) or not form.dtype.startswith("complex")


def _row(
    e: ast.expr, k: str, count: int, forms: Mapping[str, Form], bound: Set[str]
) -> tuple[ast.expr, str, ast.expr] | None:  # fmt: skip
    """Return a row for an element of a matrix whose index is `k`, its dtype, and its index."""
    if not isinstance(e, ast.Subscript) or not isinstance(e.value, ast.Name):
        return None
    form = forms.get(e.value.id)
    if not isinstance(form, ArrayForm) or e.value.id in bound or len(form.shape) != 2:
        return None
    if not isinstance(e.slice, ast.Tuple) or len(e.slice.elts) != 2:
        return None
    parts = list(e.slice.elts)
    at = [isinstance(p, ast.Name) and p.id == k for p in parts]
    if sum(at) != 1:
        return None
    axis = at.index(True)
    if k in names.read_in(parts[1 - axis]) or form.shape[axis] != count:
        return None
    parts[axis] = ast.Slice()
    whole = copy.deepcopy(ast.Subscript(e.value, ast.Tuple(parts, ast.Load()), ast.Load()))
    return ast.fix_missing_locations(ast.copy_location(whole, e)), form.dtype, parts[1 - axis]

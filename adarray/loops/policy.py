"""Whether a loop is worth capturing: what unrolling it would record, and how large its arrays are.

A captured loop is compiled in the same time whatever its iterations, and where it writes parts of
arrays, it is as fast on one core as the fused kernels of an unrolled one. Where whole arrays are
computed from whole arrays, many iterations are fused into one kernel; functions such as exp are
vectorised there, products of matrices are BLAS's, and threads share them. So the more calls
unrolling would record, the larger are the arrays with which such loops are captured.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

from adarray.loops.forms import ArrayForm, Form, WholeNumber

# Calls that unrolling records, and the elements of the largest array statement that a loop of at
# least that many is captured with. The others: where parts of arrays are written; where several
# threads share what is unrolled, for each of them; in products; where a thread of a GPU runs it.
_LIMITS = ((100, 1 << 7), (2_000, 1 << 11), (10_000, 1 << 14), (50_000, 1 << 22))
_WRITING = ((0, 1 << 26),)
_SHARED = ((0, 1 << 14), (500, 1 << 26))
_PRODUCTS = ((0, 1 << 7), (1_000, 1 << 12), (2_000, 1 << 26))
_ON_DEVICE = ((3_200, 1 << 7), (32_000, 1 << 11), (160_000, 1 << 14), (800_000, 1 << 22))
_OPERATION_S = 3e-8  # seconds of an operation on elements in NumPy, at least
_UNKNOWN = 32  # iterations of a loop of which nothing is known before it runs
_RECORDED = (ast.BinOp, ast.UnaryOp, ast.Compare, ast.Call, ast.Subscript, ast.AugAssign)
_PRODUCT_NAMES = frozenset(("dot", "matmul", "inner", "vdot", "tensordot", "einsum"))
_NOT_OF_ELEMENTS = _PRODUCT_NAMES | {"linalg"}
_FUNCTIONS = frozenset((
    "sin", "cos", "tan", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sinh", "cosh",
    "tanh", "arcsin", "arccos", "arctan", "arctan2", "power", "logaddexp",
))  # fmt: skip
_ABOUT = frozenset(("shape", "size", "ndim", "dtype"))


def not_worthwhile(
    loop: ast.For | ast.While,
    variables: Mapping[str, Form],
    iterable: Any,
    threads: int = 1,
    on_device: bool = False,
) -> str | None:
    """Return why a loop is better unrolled, None if it is not.

    Parameters
    ----------
    loop : For or While
    variables : mapping of str to Form
    iterable : object
        What it runs over; None for ``while``.
    threads : int
        How many share what is unrolled.
    on_device : bool
        Whether a GPU would run it, whose single threads are slow.
    """
    counted = _trips(loop, variables, iterable)
    if counted is not None and counted < 2:
        return f"it has {counted} iterations"
    calls = (_UNKNOWN if counted is None else counted) * _calls(loop.body, variables, counted)
    least = (_ON_DEVICE if on_device else _LIMITS)[0][0]
    if calls < least:
        return f"it is short: about {calls} operations"
    width = _width(loop.body, variables)
    if _is_elementwise_complex(loop, variables):
        return None if width <= _LIMITS[-1][1] else f"it works on arrays of {width} elements"
    if on_device:
        pays = _pays(calls, width, _ON_DEVICE)
    elif _writes_parts(loop, variables):
        functions = _width(_operands(loop, _FUNCTIONS), variables)
        pays = _pays(calls, width, _WRITING) and _pays(calls, functions, _LIMITS)
        pays = pays and (threads == 1 or _pays(calls, width, _SHARED, threads))
    else:
        pays = _pays(calls, width, _LIMITS)
    if not pays:
        return f"it works on whole arrays, of {width} elements, which are fused"
    width = _width(_operands(loop, _PRODUCT_NAMES), variables)
    if not _pays(calls, width, _PRODUCTS):
        return f"it multiplies matrices, of {width} elements"
    return None


def _trips(
    loop: ast.For | ast.While, variables: Mapping[str, Form], iterable: Any
) -> int | None:  # fmt: skip
    """Return the number of iterations, None if it is not known."""
    counted = trips(iterable)
    if counted is None and isinstance(loop, ast.For):
        counted = extent(loop.iter, variables)
    return counted


def unrolled(loop: ast.For | ast.While, variables: Mapping[str, Form], iterable: Any) -> float:
    """Return the seconds that the operations of a loop take in NumPy, at least; 0: not known."""
    counted = _trips(loop, variables, iterable)
    return (
        0.0 if counted is None else _OPERATION_S * counted * _calls(loop.body, variables, counted)
    )


def _pays(calls: int, width: int, limits: tuple[tuple[int, int], ...], threads: int = 1) -> bool:
    """Whether saving some calls outweighs that one thread works on arrays of a width."""
    return any(calls >= least * threads and width <= most for least, most in limits)


def _writes_parts(loop: ast.For | ast.While, variables: Mapping[str, Form]) -> bool:
    """Whether a loop writes elements or slices of arrays that it does not make."""
    for node in ast.walk(loop):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            owner = node.value
            if isinstance(owner, ast.Name) and isinstance(variables.get(owner.id), ArrayForm):
                return True
    return False


def _operands(loop: ast.For | ast.While, names: frozenset[str]) -> list[ast.expr]:
    """Return the operands of calls of some functions; of ``@``, too, where `names` has matmul."""
    found: list[ast.expr] = []
    for node in ast.walk(loop):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            found += [node.left, node.right] if "matmul" in names else []
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in names
        ):
            found += [*node.args, node.func.value]
    return found


def _is_elementwise_complex(
    loop: ast.For | ast.While, variables: Mapping[str, Form]
) -> bool:  # fmt: skip
    """Whether a loop works on elements of complex arrays: calls on those are not fused."""
    used = {n.id for n in ast.walk(loop) if isinstance(n, ast.Name)}
    forms = (variables.get(n) for n in used)
    if not any(isinstance(f, ArrayForm) and f.dtype.startswith("complex") for f in forms):
        return False
    return not any(
        isinstance(n, ast.MatMult) or (isinstance(n, ast.Attribute) and n.attr in _NOT_OF_ELEMENTS)
        for n in ast.walk(loop)
    )


def trips(iterable: Any) -> int | None:
    """Return the number of iterations over an object, None if it is not known."""
    try:
        return len(iterable)
    except (TypeError, OverflowError):
        return None


def _calls(body: list[ast.stmt], variables: Mapping[str, Form], outer: int | None) -> int:
    """Return about how many calls one iteration records."""
    count = 0
    for s in body:
        if isinstance(s, (ast.For, ast.While)):
            inner = extent(s.iter, variables) if isinstance(s, ast.For) else None
            if inner is None:  # bounds in the outer index, most often
                inner = _UNKNOWN if outer is None else max(1, outer // 2)
            count += inner * _calls(s.body, variables, inner)
        elif isinstance(s, ast.If):
            count += _in(s.test, variables, outer)
            count += max(_calls(s.body, variables, outer), _calls(s.orelse, variables, outer))
        else:
            count += _in(s, variables, outer)
    return max(1, count)


def _in(node: ast.AST, variables: Mapping[str, Form], outer: int | None) -> int:
    """Return about how many calls an expression or a statement records."""
    if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
        count = max(1, _in(node.elt, variables, outer))
        for g in reversed(node.generators):
            inner = extent(g.iter, variables)
            if inner is None:
                inner = _UNKNOWN if outer is None else max(1, outer // 2)
            tests = sum(_in(test, variables, outer) for test in g.ifs)
            count = inner * (count + tests) + _in(g.iter, variables, outer)
        return count
    parts = (_in(n, variables, outer) for n in ast.iter_child_nodes(node))
    return isinstance(node, _RECORDED) + sum(parts)


def extent(iterable: ast.expr, variables: Mapping[str, Form]) -> int | None:
    """Return the number of iterations over an expression, None if it is not known."""
    if isinstance(iterable, ast.Name):
        form = variables.get(iterable.id)
        return form.shape[0] if isinstance(form, ArrayForm) and form.shape else None
    if not (isinstance(iterable, ast.Call) and isinstance(iterable.func, ast.Name)):
        return None
    if iterable.func.id in ("enumerate", "zip") and iterable.args:
        return extent(iterable.args[0], variables)
    if iterable.func.id != "range" or not 1 <= len(iterable.args) <= 3:
        return None
    bounds = [_number(a, variables) for a in iterable.args]
    if any(b is None for b in bounds) or (len(bounds) == 3 and not bounds[2]):
        return None
    return len(range(*[b for b in bounds if b is not None]))


def _number(e: ast.expr, variables: Mapping[str, Form]) -> int | None:
    """Return the value of an expression of known whole numbers and extents."""
    if isinstance(e, ast.Constant):
        return e.value if type(e.value) is int else None
    if isinstance(e, ast.Name):
        form = variables.get(e.id)
        return form.value if isinstance(form, WholeNumber) else None
    if isinstance(e, ast.BinOp):
        a, b = _number(e.left, variables), _number(e.right, variables)
        if a is None or b is None:
            return None
        if isinstance(e.op, ast.Add):
            return a + b
        if isinstance(e.op, ast.Sub):
            return a - b
        if isinstance(e.op, ast.Mult):
            return a * b
        return a // b if isinstance(e.op, ast.FloorDiv) and b else None
    if isinstance(e, ast.UnaryOp) and isinstance(e.op, ast.USub):
        a = _number(e.operand, variables)
        return None if a is None else -a
    shape, axis = _axis(e)
    form = variables.get(shape)
    if isinstance(form, ArrayForm) and -len(form.shape) <= axis < len(form.shape):
        return form.shape[axis]
    return None


def _axis(e: ast.expr) -> tuple[str, int]:
    """Return the array and the axis of ``a.shape[k]`` or ``len(a)``; ("", 0) for anything else."""
    if (
        isinstance(e, ast.Subscript)
        and isinstance(e.value, ast.Attribute)
        and e.value.attr == "shape"
        and isinstance(e.value.value, ast.Name)
        and isinstance(e.slice, ast.Constant)
        and type(e.slice.value) is int
    ):
        return e.value.value.id, e.slice.value
    if (
        isinstance(e, ast.Call)
        and isinstance(e.func, ast.Name)
        and e.func.id == "len"
        and len(e.args) == 1
        and isinstance(e.args[0], ast.Name)
    ):
        return e.args[0].id, 0
    return "", 0


def _width(nodes: Sequence[ast.AST], variables: Mapping[str, Form]) -> int:
    """Return about how many elements the largest array has that statements work on."""
    largest = 1
    waiting: list[ast.AST] = list(nodes)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Attribute) and node.attr in _ABOUT:
            continue
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "len":
            continue
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
            form = variables.get(node.value.id)
            if isinstance(form, ArrayForm):
                largest = max(largest, _region(form.shape, node.slice, variables))
                waiting.append(node.slice)
                continue
        if isinstance(node, ast.Name):
            form = variables.get(node.id)
            if isinstance(form, ArrayForm):
                largest = max(largest, _region(form.shape, None, variables))
        waiting += ast.iter_child_nodes(node)
    return largest


def _region(shape: tuple[int, ...], index: ast.expr | None, variables: Mapping[str, Form]) -> int:
    """Return the most elements that an index of an array leads to."""
    parts = [] if index is None else index.elts if isinstance(index, ast.Tuple) else [index]
    sizes = list(shape)
    axis = 0
    for p in parts:
        if isinstance(p, ast.Constant) and p.value is Ellipsis:
            break
        if isinstance(p, ast.Constant) and p.value is None:
            continue
        if axis < len(sizes):
            sizes[axis] = _length(p, sizes[axis], variables) if isinstance(p, ast.Slice) else 1
        axis += 1
    count = 1
    for n in sizes:
        count *= n
    return count


def _length(part: ast.Slice, extent: int, variables: Mapping[str, Form]) -> int:
    """Return the most elements of an axis that a slice leads to: of ``i:i + n`` these are n."""
    low, high = part.lower, part.upper
    if low is None or not isinstance(high, ast.BinOp) or not isinstance(high.op, ast.Add):
        return extent
    if ast.dump(high.left) != ast.dump(low):
        return extent
    count = _number(high.right, variables)
    return extent if count is None else max(0, min(count, extent))

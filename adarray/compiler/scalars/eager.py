"""Eager kernels: every pointwise and reduction record, printed as C.

The same functions run when the package is built, which compiles what they return,
and lazily at run time, which compares hashes: a kernel whose record was edited
since the build is not used.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from adarray.base.op import OPS, Op, Pointwise, Reduction, all_ops
from adarray.base.scalar import LOGICAL, ScalarExpr, as_expr, var, variables
from adarray.compiler.scalars.catalogue import FUNCTIONS
from adarray.compiler.scalars.expressions import C, Dialect, Printer, UnprintableError
from adarray.compiler.scalars.rewrite import simplify, substitute

DTYPES = ("float64", "float32")

# Operands for whose Python-number values there are kernels of their own, because
# NumPy has fast cases for them: {op: (operand, values)}.
FIXED: dict[str, tuple[int, tuple[float, ...]]] = {"power": (1, (2, 3, 0.5, -1))}

# Elements are computed in groups of this many, tails padded, so that a value never
# depends on its place in the array (a vector function and its scalar counterpart
# differ in the last bits). A multiple of the widest vector: 16 floats.
GROUP = 16

# Accumulators of a fold: enough vectors to hide the latency of the addition.
LANES = {"float64": 32, "float32": 64}

# Elements that one call folds; the results are merged pairwise, against rounding errors.
# Choices have none.
LEAF, EXACT_LEAF = 1024, 4096

NEUTRAL = {"maximum": -np.inf, "minimum": np.inf}


def is_heavy(expr: ScalarExpr) -> bool:
    """Whether NumPy takes tens of cycles an element for a function in `expr`.

    The others wait for memory.
    """
    functions = [FUNCTIONS[e.op] for e in expr.walk() if e.op in FUNCTIONS]
    return any(f.is_heavy or f.slow_in_numpy for f in functions)


class EagerKernel(NamedTuple):
    """One printed kernel.

    Parameters
    ----------
    name : str
        C identifier, without the ending that names the instruction set.
    dtype : str
        Dtype of the numbers in it.
    inputs : tuple of str
        Variables it reads, in the order of its arguments; none for a reduction.
    truths : frozenset of str
        Those among them that are truth values, one byte each.
    text : str
        C definitions; ``@`` stands for the ending of the function's name.
    heavy : bool
        Whether arithmetic rather than memory bounds its speed.
    parts : tuple of str
        Names of a reduction's functions, empty for a pointwise kernel.
    exact : bool
        Whether a reduction rounds nothing.
    """

    name: str
    dtype: str
    inputs: tuple[str, ...]
    truths: frozenset[str]
    text: str
    heavy: bool
    parts: tuple[str, ...] = ()
    exact: bool = False

    @property
    def hash(self) -> str:
        """Fingerprint of the printed source."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]


_LOOP = """\
static void {name}@(const void *const *in, void *result, intptr_t n)
{{
    {type} *restrict r = result;
{pointers}
    n &= ~(intptr_t){mask};
#pragma omp simd
    for (intptr_t i = 0; i < n; i++) {{
{body}
        r[i] = {value};
    }}
}}
"""


def _order(names: frozenset[str]) -> tuple[str, ...]:
    """Return variables in the order of kernel arguments: g, out, x0, x1, ..."""
    return tuple(sorted(names, key=lambda n: (n[0] != "g", n[0] == "x", n)))


def truth_variables(expr: ScalarExpr) -> frozenset[str]:
    """Return the variables that `expr` reads as truth values: conditions of `where`."""
    truths: set[str] = set()
    for e in expr.walk():
        read = e.args[:1] if e.op == "where" else e.args if e.op in LOGICAL else ()
        truths.update(a.value for a in read if a.op == "var")
    return frozenset(truths)


def pointwise_kernel(
    name: str, expr: ScalarExpr, dtype: str, dialect: Dialect = C
) -> EagerKernel | None:
    """Return a kernel that computes `expr` for every element, None if it is not printable."""
    truths = truth_variables(expr)
    printer = Printer(dtype, dialect, truths)
    try:
        lines, value = printer.body(expr)
    except UnprintableError:
        return None
    inputs = _order(variables(expr))
    pointers, loads = [], []
    for i, x in enumerate(inputs):
        stored, loaded, test = printer.type, printer.type, ""
        if x in truths:
            stored, loaded, test = "uint8_t", dialect.bool_type, " != 0"
        pointers.append(f"    const {stored} *restrict a{i} = in[{i}];")
        loads.append(f"const {loaded} {x} = a{i}[i]{test};")
    text = _LOOP.format(
        name=name,
        type=printer.type,
        pointers="\n".join(pointers),
        mask=GROUP - 1,
        body="\n".join(f"        {line}" for line in (*loads, *lines)),
        value=value,
    )
    heavy = is_heavy(expr)
    return EagerKernel(name, dtype, inputs, truths, text, heavy)


def _symbols(op: Op) -> list[ScalarExpr]:
    return [var(f"x{i}") for i in range(op.arity)]


def keeps_dtype(op: Op, dtype: str) -> bool:
    """Whether NumPy computes a pointwise `op` of `dtype` operands in `dtype`."""
    truths = truth_variables(op.expression(*_symbols(op)))
    ones = [np.ones(1, "bool" if f"x{i}" in truths else dtype) for i in range(op.arity)]
    with np.errstate(all="ignore"):
        return bool(op.evaluate(*ones).dtype == dtype)


def _fix(op: Op, expr: ScalarExpr, fixed: int | None) -> ScalarExpr:
    """Put the value number `fixed` in place of the operand that has kernels of its own."""
    if fixed is None:
        return simplify(expr)
    operand, values = FIXED[op.name]
    return substitute(expr, {f"x{operand}": values[fixed]})


def _name(op: Op, part: str, fixed: int | None, dtype: str) -> str:
    middle = "" if fixed is None else f"_v{fixed}"
    return f"{op.name}{middle}{part}_{C.suffix[dtype]}"


def forward(op: Op, dtype: str, fixed: int | None = None) -> EagerKernel | None:
    """Return the kernel that computes a pointwise `op`.

    Parameters
    ----------
    op : Op
    dtype : {"float64", "float32"}
    fixed : int, optional
        Which of the values in `FIXED` stands in place of an operand.

    Returns
    -------
    EagerKernel or None
        None where NumPy computes it in another dtype or it cannot be printed.
    """
    if not isinstance(op.lower, Pointwise) or not keeps_dtype(op, dtype):
        return None
    expr = _fix(op, op.expression(*_symbols(op)), fixed)
    return pointwise_kernel(_name(op, "", fixed, dtype), expr, dtype)


def is_one_pass(expr: ScalarExpr) -> bool:
    """Whether NumPy computes `expr` in at most one pass, so that fusing saves nothing."""
    return all(a.op in ("var", "const") for a in expr.args)


def derivative(op: Op, operand: int, dtype: str, fixed: int | None = None) -> EagerKernel | None:
    """Return the kernel that fuses rule `operand` of a pointwise `op`.

    Parameters
    ----------
    op : Op
    operand : int
    dtype : {"float64", "float32"}
    fixed : int, optional
        Which of the values in `FIXED` stands in place of an operand.

    Returns
    -------
    EagerKernel or None
        None where there is no rule, fusing it saves no pass, or it cannot be printed.
    """
    if not isinstance(op.lower, Pointwise) or op.rules[operand] is None:
        return None
    if not keeps_dtype(op, dtype):
        return None
    expr = _fix(op, op.derivative_expression(operand), fixed)
    if is_one_pass(expr):
        return None
    return pointwise_kernel(_name(op, f"_d{operand}", fixed, dtype), expr, dtype)


def single_call(op: Op, operand: int) -> ScalarExpr | None:
    """Return rule `operand` of a pointwise `op` where it is one call of a registered operation."""
    if op.rules[operand] is None:
        return None
    expr = op.derivative_expression(operand)
    if not expr.args or not is_one_pass(expr) or expr.op not in OPS:
        return None
    return expr if isinstance(OPS[expr.op].lower, Pointwise) else None


_REDUCTION = """\
static void {name}_fold@(const void *x, intptr_t n, void *result)
{{
    const {type} *restrict a = x;
    {type} acc[{lanes}];
    intptr_t i = 0;
    for (int l = 0; l < {lanes}; l++) acc[l] = {neutral};
    for (; i + {lanes} <= n; i += {lanes})
#pragma omp simd
        for (int l = 0; l < {lanes}; l++) {{
            const {type} x0 = a[i + l];
{map}
            acc[l] = {combined};
        }}
    for (int l = 0; i + l < n; l++) {{
        const {type} x0 = a[i + l];
{map}
        acc[l] = {combined};
    }}
    for (int w = {lanes} / 2; w > 0; w /= 2)
        for (int l = 0; l < w; l++) acc[l] = {merged_lanes};
    *({type} *)result = acc[0];
}}
static void {name}_add@(void *total, const void *x, intptr_t n)
{{
    {type} *restrict acc = total;
    const {type} *restrict a = x;
#pragma omp simd
    for (intptr_t l = 0; l < n; l++) {{
        const {type} x0 = a[l];
{map}
        acc[l] = {combined};
    }}
}}
static void {name}_merge@(void *total, const void *x, intptr_t n)
{{
    {type} *restrict acc = total;
    const {type} *restrict a = x;
#pragma omp simd
    for (intptr_t l = 0; l < n; l++) acc[l] = {merged};
}}
static void {name}_start@(void *total, intptr_t n)
{{
    {type} *restrict acc = total;
    for (intptr_t l = 0; l < n; l++) acc[l] = {neutral};
}}
static void {name}_post@(void *total, intptr_t n, double count)
{{
    {type} *restrict r = total;
    const {type} n_ = ({type})count;
    (void)n_;
    for (intptr_t l = 0; l < n; l++) {{
        const {type} acc = r[l];
{post}
        r[l] = {posted};
    }}
}}
"""


def reduction(op: Op, dtype: str) -> EagerKernel | None:
    """Return the functions that fold elements as a `Reduction` record says."""
    lower = op.lower
    if not isinstance(lower, Reduction):
        return None
    neutral = NEUTRAL.get(lower.combine, lower.identity)
    if neutral is None:
        return None
    mapped = as_expr(lower.map(var("x0"))) if lower.map else var("x0")
    post = as_expr(lower.post(var("acc"), var("n_"))) if lower.post else var("acc")
    printer = Printer(dtype)
    try:
        map_lines, map_value = Printer(dtype).body(simplify(mapped))
        post_lines, post_value = Printer(dtype).body(simplify(post))
        combined = printer._call(
            lower.combine, [("acc[l]", False), (map_value, False)], is_bool=False
        )
    except UnprintableError:
        return None

    def merged(other: str) -> str:
        return printer._call(lower.combine, [("acc[l]", False), (other, False)], is_bool=False)

    name = f"{op.name}_{C.suffix[dtype]}"
    text = _REDUCTION.format(
        name=name,
        type=printer.type,
        lanes=LANES[dtype],
        neutral=printer.literal(neutral),
        map="\n".join(f"            {line}" for line in map_lines),
        combined=combined,
        merged_lanes=merged("acc[l + w]"),
        merged=merged("a[l]"),
        post="\n".join(f"        {line}" for line in post_lines),
        posted=post_value,
    )
    heavy = is_heavy(mapped) or is_heavy(post)
    parts = tuple(f"{name}_{p}" for p in ("fold", "add", "merge", "start", "post"))
    return EagerKernel(name, dtype, (), frozenset(), text, heavy, parts, lower.combine in NEUTRAL)


def kernels_of(op: Op) -> Iterator[EagerKernel]:
    """Yield every kernel that is printed for one operation."""
    kernels: list[EagerKernel | None] = []
    for dtype in DTYPES:
        kernels.append(reduction(op, dtype))
        if isinstance(op.lower, Pointwise):
            values = FIXED[op.name][1] if op.name in FIXED else ()
            for fixed in (None, *range(len(values))):
                kernels.append(forward(op, dtype, fixed))
                own = -1 if fixed is None else FIXED[op.name][0]
                kernels += [derivative(op, i, dtype, fixed) for i in range(op.arity) if i != own]
    yield from (k for k in kernels if k is not None)


def all_kernels() -> Iterator[EagerKernel]:
    """Yield the kernels of every registered operation."""
    for op in all_ops():
        yield from kernels_of(op)

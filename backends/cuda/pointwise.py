"""CUDA text of pointwise kernels, printed from the operation records."""

from __future__ import annotations

from typing import NamedTuple

from adarray.base.op import Op
from adarray.base.scalar import ScalarExpr, var, variables
from adarray.compiler.scalars.catalogue import FUNCTIONS
from adarray.compiler.scalars.eager import FIXED, keeps_dtype, truth_variables
from adarray.compiler.scalars.expressions import (
    Dialect,
    Printer,
    UnprintableError,
    library_name,
)
from adarray.compiler.scalars.rewrite import simplify, substitute

CUDA = Dialect(bool_type="bool", versions="checked")
LOGARITHMS = "".join(
    f"static __device__ __forceinline__ double {name}(double x)\n"
    f"{{ return x < 0 ? (double)ADARRAY_NAN : {library_name(f, dtype)}(x); }}\n"
    for f in FUNCTIONS.values()
    for dtype, name in f.cuda_checked.items()
)

THREADS = 256

# How an operand is read: every element, one for each row or column of the result, one for
# all of them, or passed with the launch.
FULL, ROW, COLUMN, SINGLE, NUMBER = "frcsn"


class PointwiseText(NamedTuple):
    """What a kernel computes, before it is known how its operands lie in memory.

    Parameters
    ----------
    name : str
    dtype : str
    inputs : tuple of str
        Variables, in the order of the arguments.
    truths : frozenset of str
        Those that are truth values.
    lines : tuple of str
        Statements, for one element.
    value : str
        Its value, or the variable that the whole expression is.
    """

    name: str
    dtype: str
    inputs: tuple[str, ...]
    truths: frozenset[str]
    lines: tuple[str, ...]
    value: str


def text_of(op: Op, operand: int, dtype: str, fixed: int | None) -> PointwiseText | None:
    """Return the kernel of an operation (operand -1), or of one of its rules.

    Parameters
    ----------
    op : Op
        Pointwise.
    operand : int
    dtype : {"float64", "float32"}
    fixed : int or None
        Which of the values in `adarray.compiler.scalars.eager.FIXED` stands in place of an operand.

    Returns
    -------
    Text or None
        None where NumPy computes in another dtype, there is nothing to compute, or a
        function is not known.
    """
    if not keeps_dtype(op, dtype):
        return None
    symbols = [var(f"x{i}") for i in range(op.arity)]
    expr = op.expression(*symbols) if operand < 0 else op.derivative_expression(operand)
    if expr.op in ("var", "const"):
        return None
    return _text(f"{op.name}_{operand + 1}", _fix(op, expr, fixed), dtype)


def identity(dtype: str) -> PointwiseText:
    """Return the kernel that copies."""
    return PointwiseText("copied", dtype, ("x0",), frozenset(), (), "x0")


def _fix(op: Op, expr: ScalarExpr, fixed: int | None) -> ScalarExpr:
    if fixed is None:
        return simplify(expr)
    operand, values = FIXED[op.name]
    return substitute(expr, {f"x{operand}": values[fixed]})


def _text(name: str, expr: ScalarExpr, dtype: str) -> PointwiseText | None:
    truths = truth_variables(expr)
    if expr.is_bool:
        return None
    try:
        lines, value = Printer(dtype, CUDA, truths).body(expr)
    except UnprintableError:
        return None
    named = "".join(c if c.isalnum() else "_" for c in name)
    return PointwiseText(named, dtype, tuple(sorted(variables(expr))), truths, tuple(lines), value)


_KERNEL = """\
typedef struct __align__({bytes}) {{ {type} v[{pack}]; }} Pack;
typedef struct __align__({pack}) {{ unsigned char v[{pack}]; }} Truths;
extern "C" __global__ void __launch_bounds__({threads}) {name}(
    {parameters}{type} *__restrict__ r, const {index} n, const {index} columns)
{{
    const {index} packs = n / {pack};
    const {index} step = ({index})gridDim.x * {threads};
    for ({index} p = ({index})blockIdx.x * {threads} + threadIdx.x; p < packs; p += step) {{
{positions}{loads}
        Pack result;
#pragma unroll
        for (int j = 0; j < {pack}; j++) {{
{body}
            result.v[j] = {value};
        }}
        ((Pack *)r)[p] = result;
    }}
}}
"""


def source(text: PointwiseText, kinds: str, pack: int, index: str, threads: int = THREADS) -> str:
    """Return the CUDA text of a kernel whose operands lie in memory as `kinds` say.

    Parameters
    ----------
    text : PointwiseText
    kinds : str
        One letter for each input.
    pack : int
        Elements that one thread reads at a time; it divides the length of rows, or of
        the whole array if no operand is one for each row or column.
    index : str
        C type of positions.
    threads : int
        Of a block.
    """
    kind = CUDA.types[text.dtype]
    parameters, loads, body = [], [], []
    for x, how in zip(text.inputs, kinds, strict=True):
        truth = x in text.truths
        stored, packed = ("unsigned char", "Truths") if truth else (kind, "Pack")
        loaded, test = ("bool", " != 0") if truth else (kind, "")
        if how == NUMBER:
            parameters.append(f"const {stored} v_{x},")
            body.append(f"const {loaded} {x} = v_{x}{test};")
            continue
        parameters.append(f"const {stored} *__restrict__ p_{x},")
        if how == SINGLE:
            loads.append(f"const {stored} s_{x} = p_{x}[0];")
            body.append(f"const {loaded} {x} = s_{x}{test};")
        elif how == COLUMN:
            loads.append(f"const {stored} s_{x} = p_{x}[row];")
            body.append(f"const {loaded} {x} = s_{x}{test};")
        else:
            where = "p" if how == FULL else f"column / {pack}"
            loads.append(f"const {packed} k_{x} = ((const {packed} *)p_{x})[{where}];")
            body.append(f"const {loaded} {x} = k_{x}.v[j]{test};")
    positions = ""
    if ROW in kinds or COLUMN in kinds:
        positions = (
            f"        const {index} row = p * {pack} / columns;\n"
            f"        const {index} column = p * {pack} - row * columns; (void)column;\n"
        )
    return _KERNEL.format(
        bytes=pack * (8 if text.dtype == "float64" else 4),
        type=kind,
        pack=pack,
        threads=threads,
        name=text.name,
        parameters="".join(f"{p}\n    " for p in parameters),
        index=index,
        positions=positions,
        loads="\n".join(f"        {line}" for line in loads),
        body="\n".join(f"            {line}" for line in (*body, *text.lines)),
        value=text.value,
    )


def lies(strides: tuple[int, ...], shape: tuple[int, ...], itemsize: int) -> tuple[str, int] | None:
    """Return how an operand, broadcast to the shape of the result, is read, and its columns.

    The columns are the product of the last axes along which it has values (ROW) or none
    (COLUMN); 0 where every division into rows does. None where no kernel reads it.
    """
    expected, axis, n = itemsize, len(shape) - 1, 1
    while axis >= 0 and (shape[axis] == 1 or strides[axis] == expected):
        n *= shape[axis]
        expected *= shape[axis]
        axis -= 1
    if axis < 0:
        return FULL, 0
    if n > 1:  # values along the last axes: one for each column, if none along the others
        rest = all(s == 0 or d == 1 for s, d in zip(strides[: axis + 1], shape, strict=False))
        return (ROW, n) if rest else None
    while axis >= 0 and (shape[axis] == 1 or strides[axis] == 0):
        n *= shape[axis]
        axis -= 1
    if axis < 0:
        return SINGLE, 0
    expected = itemsize
    while axis >= 0 and (shape[axis] == 1 or strides[axis] == expected):
        expected *= shape[axis]
        axis -= 1
    return (COLUMN, n) if axis < 0 else None


def arrangement(
    operands: list[tuple[tuple[int, ...], tuple[int, ...]]], itemsizes: list[int],
    shape: tuple[int, ...],
) -> tuple[str, int] | None:  # fmt: skip
    """Return the kinds of all operands and the number of columns; None if they do not fit.

    `operands` are pairs of shapes and strides.
    """
    kinds, columns = "", 0
    for (mine, strides), itemsize in zip(operands, itemsizes, strict=True):
        lead = len(shape) - len(mine)
        spread = (0,) * lead + tuple(
            0 if m == 1 and n != 1 else s
            for s, m, n in zip(strides, mine, shape[lead:], strict=True)
        )
        lying = lies(spread, shape, itemsize)
        if lying is None or (lying[1] and columns and lying[1] != columns):
            return None
        kinds += lying[0]
        columns = columns or lying[1]
    return kinds, columns

"""CUDA text of reductions, printed from the operation records.

An array is folded as (outer, fold, inner). Where `inner` is 1, blocks fold stretches of a
row; elsewhere, threads fold columns, side by side in memory. Both leave one partial result
for each stretch, which a second kernel folds in order: results do not depend on timing.

References
----------
- M. Harris, "Optimizing parallel reduction in CUDA", NVIDIA 2007.
- N. J. Higham, "The accuracy of floating point summation", SIAM J. Sci. Comput. 14 (1993), 783-799.
"""

from __future__ import annotations

from typing import NamedTuple

from adarray_backends.cuda.pointwise import CUDA

from adarray.base.op import Op, Reduction
from adarray.base.scalar import as_expr, var
from adarray.compiler.scalars.expressions import Printer, UnprintableError
from adarray.compiler.scalars.rewrite import simplify

THREADS = 256
NEUTRAL = {"maximum": "-({type})ADARRAY_INF", "minimum": "({type})ADARRAY_INF"}


class FoldText(NamedTuple):
    """The parts of a reduction's text."""

    type: str
    neutral: str
    map: str
    combined: str
    post: str


_ROWS = """\
#define MAP(x0) ({map})
__device__ __forceinline__ {type} both({type} a, {type} b) {{ return {combined}; }}
__device__ __forceinline__ {type} last({type} acc, {type} n_) {{ {post} }}
typedef struct __align__({bytes}) {{ {type} v[{pack}]; }} Pack;
extern "C" __global__ void __launch_bounds__({threads}) rows(
    const {type} *__restrict__ a, {type} *__restrict__ r, const long long n,
    const long long stretch, const int parts, const int finish, const {type} count)
{{
    __shared__ {type} shared[32];
    const long long row = blockIdx.x / parts;
    const long long from = (blockIdx.x % parts) * stretch;
    const long long to = from + stretch < n ? from + stretch : n;
    const Pack *packs = (const Pack *)(a + row * n);
    {type} acc[{pack}];
#pragma unroll
    for (int j = 0; j < {pack}; j++) acc[j] = {neutral};
#pragma unroll 4
    for (long long p = from / {pack} + threadIdx.x; p < to / {pack}; p += {threads}) {{
        const Pack k = packs[p];
#pragma unroll
        for (int j = 0; j < {pack}; j++) acc[j] = both(acc[j], MAP(k.v[j]));
    }}
#pragma unroll
    for (int w = {pack} / 2; w > 0; w /= 2)
#pragma unroll
        for (int j = 0; j < w; j++) acc[j] = both(acc[j], acc[j + w]);
    {type} x = acc[0];
    for (int w = 16; w > 0; w /= 2) x = both(x, __shfl_down_sync(0xffffffff, x, w));
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
    __syncthreads();
    if (threadIdx.x < 32) {{
        x = threadIdx.x < {threads} / 32 ? shared[threadIdx.x] : {neutral};
        for (int w = 16; w > 0; w /= 2) x = both(x, __shfl_down_sync(0xffffffff, x, w));
        if (threadIdx.x == 0) r[blockIdx.x] = finish ? last(x, count) : x;
    }}
}}
"""

_COLUMNS = """\
#define MAP(x0) ({map})
__device__ __forceinline__ {type} both({type} a, {type} b) {{ return {combined}; }}
__device__ __forceinline__ {type} last({type} acc, {type} n_) {{ {post} }}
typedef struct __align__({bytes}) {{ {type} v[{pack}]; }} Pack;
extern "C" __global__ void __launch_bounds__({threads}) columns(
    const {type} *__restrict__ a, {type} *__restrict__ r, const long long n,
    const long long inner, const long long stretch, const int parts, const int finish,
    const {type} count)
{{
    __shared__ Pack shared[{threads}];
    const long long packs = inner / {pack};
    const long long pack = (long long)blockIdx.x * 32 + threadIdx.x;
    const long long outer = blockIdx.y / parts, part = blockIdx.y % parts;
    const long long from = part * stretch;
    const long long to = from + stretch < n ? from + stretch : n;
    Pack acc;
#pragma unroll
    for (int j = 0; j < {pack}; j++) acc.v[j] = {neutral};
    if (pack < packs) {{
        const Pack *column = (const Pack *)a + outer * n * packs + pack;
#pragma unroll 4
        for (long long i = from + threadIdx.y; i < to; i += {threads} / 32) {{
            const Pack k = column[i * packs];
#pragma unroll
            for (int j = 0; j < {pack}; j++) acc.v[j] = both(acc.v[j], MAP(k.v[j]));
        }}
    }}
    shared[threadIdx.y * 32 + threadIdx.x] = acc;
    __syncthreads();
    if (threadIdx.y == 0 && pack < packs) {{
        for (int w = 1; w < {threads} / 32; w++) {{
            const Pack k = shared[w * 32 + threadIdx.x];
#pragma unroll
            for (int j = 0; j < {pack}; j++) acc.v[j] = both(acc.v[j], k.v[j]);
        }}
        if (finish)
#pragma unroll
            for (int j = 0; j < {pack}; j++) acc.v[j] = last(acc.v[j], count);
        ((Pack *)r)[(long long)blockIdx.y * packs + pack] = acc;
    }}
}}
"""

# All of a column in one block, whose threads each fold some of its rows: one launch.
_WHOLE = """\
#define MAP(x0) ({map})
__device__ __forceinline__ {type} both({type} a, {type} b) {{ return {combined}; }}
__device__ __forceinline__ {type} last({type} acc, {type} n_) {{ {post} }}
typedef struct __align__({bytes}) {{ {type} v[{pack}]; }} Pack;
extern "C" __global__ void __launch_bounds__({threads}) columns(
    const {type} *__restrict__ a, {type} *__restrict__ r, const long long n,
    const long long inner, const {type} count)
{{
    __shared__ Pack shared[{threads}];
    const long long packs = inner / {pack};
    const long long pack = (long long)blockIdx.x * {lanes} + threadIdx.x;
    const int own = threadIdx.y * {lanes} + threadIdx.x;
    Pack acc;
#pragma unroll
    for (int j = 0; j < {pack}; j++) acc.v[j] = {neutral};
    if (pack < packs) {{
        const Pack *column = (const Pack *)a + blockIdx.y * n * packs + pack;
#pragma unroll 8
        for (long long i = threadIdx.y; i < n; i += {threads} / {lanes}) {{
            const Pack k = column[i * packs];
#pragma unroll
            for (int j = 0; j < {pack}; j++) acc.v[j] = both(acc.v[j], MAP(k.v[j]));
        }}
    }}
    shared[own] = acc;
    for (int w = {threads} / {lanes} / 2; w > 0; w /= 2) {{
        __syncthreads();
        if (threadIdx.y < w) {{
            const Pack k = shared[own + w * {lanes}];
#pragma unroll
            for (int j = 0; j < {pack}; j++) acc.v[j] = both(acc.v[j], k.v[j]);
            shared[own] = acc;
        }}
    }}
    if (threadIdx.y == 0 && pack < packs) {{
#pragma unroll
        for (int j = 0; j < {pack}; j++) acc.v[j] = last(acc.v[j], count);
        ((Pack *)r)[(long long)blockIdx.y * packs + pack] = acc;
    }}
}}
"""


def fold_of(op: Op, dtype: str) -> FoldText | None:
    """Return the parts of a reduction's text; None where something in it is not known."""
    lower = op.lower
    if not isinstance(lower, Reduction):
        return None
    kind = CUDA.types[dtype]
    printer = Printer(dtype, CUDA)
    if lower.combine in NEUTRAL:
        neutral = NEUTRAL[lower.combine].format(type=kind)
    elif lower.identity is not None:
        neutral = printer.literal(lower.identity)
    else:
        return None
    try:
        mapped = "x0"
        if lower.map is not None:
            lines, value = Printer(dtype, CUDA).body(simplify(as_expr(lower.map(var("x0")))))
            mapped = (
                value if not lines else "[&] { " + " ".join(lines) + f" return {value}; " + "}()"
            )
            if lines:  # a statement per subexpression: not an expression that a macro can be
                return None
        post = as_expr(lower.post(var("acc"), var("n_"))) if lower.post else var("acc")
        lines, value = Printer(dtype, CUDA).body(simplify(post))
        combined = printer._call(lower.combine, [("a", False), ("b", False)], is_bool=False)
    except UnprintableError:
        return None
    return FoldText(kind, neutral, mapped, combined, " ".join([*lines, f"return {value};"]))


def source(
    fold: FoldText, rows: bool, first: bool, pack: int, itemsize: int, threads: int = THREADS
) -> str:
    """Return the text of one kernel; a later one folds partial results, which are mapped."""
    return (_ROWS if rows else _COLUMNS).format(
        **fold._replace(map=fold.map if first else "x0")._asdict(),
        pack=pack,
        bytes=pack * itemsize,
        threads=threads,
    )


def whole_columns(fold: FoldText, lanes: int, pack: int, itemsize: int, threads: int) -> str:
    """Return the text of a kernel whose blocks fold `lanes` packs of columns, all rows.

    The numbers of lanes and of threads are powers of two.
    """
    return _WHOLE.format(
        **fold._asdict(), lanes=lanes, pack=pack, bytes=pack * itemsize, threads=threads
    )

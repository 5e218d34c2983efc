"""CUDA text of max and min along an axis that also find how often and where, and their rule.

The number of ties comes with the extremum at no cost, since all elements are read; so does
the place of one of them. The derivative rule then writes zeros and one number for each
extremum, and reads the operand only where there are ties.
"""

from __future__ import annotations

THREADS = 256

_PARTS = """\
typedef struct {{ {type} v; int c; int i; }} Best;
__device__ __forceinline__ Best best(const Best &a, const Best &b)
{{
    Best r = a;
    const bool nan = (a.v != a.v) | (b.v != b.v);
    if (nan) {{ r.v = a.v != a.v ? a.v : b.v; r.c = 0; return r; }}
    if (b.v {beats} a.v) return b;
    if (b.v == a.v) {{
        r.c = a.c + b.c;
        r.i = a.c == 0 ? b.i : b.c == 0 ? a.i : (a.i < b.i ? a.i : b.i);
        r.v = a.c == 0 ? b.v : a.v;
    }}
    return r;
}}
typedef struct __align__({bytes}) {{ {type} v[{pack}]; }} Pack;
"""

_ROWS = _PARTS + """\
extern "C" __global__ void __launch_bounds__({threads}) forward(
    const {type} *__restrict__ a, {type} *__restrict__ r, int *__restrict__ counts,
    int *__restrict__ places, const int n)
{{
    __shared__ Best shared[{threads} / 32];
    const Pack *packs = (const Pack *)(a + (long long)blockIdx.x * n);
    Best x = {{{start}, 0, 0}};
#pragma unroll 4
    for (int p = threadIdx.x; p < n / {pack}; p += {threads}) {{
        const Pack k = packs[p];
#pragma unroll
        for (int j = 0; j < {pack}; j++) x = best(x, Best{{k.v[j], 1, p * {pack} + j}});
    }}
    for (int w = 16; w > 0; w /= 2) {{
        Best y;
        y.v = __shfl_down_sync(0xffffffff, x.v, w);
        y.c = __shfl_down_sync(0xffffffff, x.c, w);
        y.i = __shfl_down_sync(0xffffffff, x.i, w);
        x = best(x, y);
    }}
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
    __syncthreads();
    if (threadIdx.x == 0) {{
        for (int w = 1; w < {threads} / 32; w++) x = best(x, shared[w]);
        r[blockIdx.x] = x.v; counts[blockIdx.x] = x.c; places[blockIdx.x] = x.i;
    }}
}}
extern "C" __global__ void __launch_bounds__({threads}) backward(
    const {type} *__restrict__ a, const {type} *__restrict__ out, const {type} *__restrict__ g,
    const int g_step, const int *__restrict__ counts, const int *__restrict__ places,
    {type} *__restrict__ r, const int n)
{{
    const long long row = blockIdx.x;
    const int c = counts[row], place = places[row];
    const {type} share = g[row * g_step] / ({type})c, value = out[row];
    const {type} other = c == 0 ? g[row * g_step] * ({type})ADARRAY_NAN : ({type})0;
    const Pack *packs = (const Pack *)(a + row * n);
    Pack *to = (Pack *)(r + row * n);
    for (int p = threadIdx.x; p < n / {pack}; p += {threads}) {{
        Pack k;
        if (c <= 1) {{
#pragma unroll
            for (int j = 0; j < {pack}; j++)
                k.v[j] = c == 1 && p * {pack} + j == place ? share : other;
        }} else {{
            k = packs[p];
#pragma unroll
            for (int j = 0; j < {pack}; j++) k.v[j] = k.v[j] == value ? share : other;
        }}
        to[p] = k;
    }}
}}
"""

def source(maximum: bool, dtype: str, pack: int) -> str:
    """Return the text of `forward` and `backward` for rows."""
    kind = "double" if dtype == "float64" else "float"
    sign = "-" if maximum else ""
    return _ROWS.format(
        type=kind,
        pack=pack,
        bytes=pack * (8 if dtype == "float64" else 4),
        threads=THREADS,
        beats=">" if maximum else "<",
        start=f"{sign}({kind})ADARRAY_INF",
    )

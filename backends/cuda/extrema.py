"""CUDA text of max and min along an axis that also find how often and where, and their rule.

The number of ties comes with the extremum at no cost, since all elements are read; so does
the place of one of them. The derivative rule then writes zeros and one number for each
extremum, and reads the operand only where there are ties.

References
----------
- M. Harris, "Optimizing parallel reduction in CUDA", NVIDIA 2007.
- F. H. Clarke, "Optimization and Nonsmooth Analysis", Wiley 1983 (ties share the derivative).
"""

from __future__ import annotations

THREADS = 256

_ROWS = """\
typedef struct __align__({bytes}) {{ {type} v[{pack}]; }} Pack;
__device__ __forceinline__ {type} both({type} a, {type} b)
{{
    return ((b {beats} a) | (b != b)) ? b : a;
}}
extern "C" __global__ void __launch_bounds__({threads}) forward(
    const {type} *__restrict__ a, {type} *__restrict__ r, int *__restrict__ ties, const int n)
{{
    __shared__ {type} values[{threads} / 32];
    __shared__ int counts[{threads} / 32], places[{threads} / 32];
    const Pack *packs = (const Pack *)(a + (long long)blockIdx.x * n);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    {type} x = {start};
#pragma unroll 4
    for (int p = threadIdx.x; p < n / {pack}; p += {threads}) {{
        const Pack k = packs[p];
#pragma unroll
        for (int j = 0; j < {pack}; j++) x = both(x, k.v[j]);
    }}
    for (int w = 16; w > 0; w /= 2) x = both(x, __shfl_xor_sync(0xffffffff, x, w));
    if (lane == 0) values[warp] = x;
    __syncthreads();
    x = values[0];
    for (int w = 1; w < {threads} / 32; w++) x = both(x, values[w]);
    int count = 0, place = 0x7fffffff; // the row is in the cache now
#pragma unroll 4
    for (int p = threadIdx.x; p < n / {pack}; p += {threads}) {{
        const Pack k = packs[p];
#pragma unroll
        for (int j = 0; j < {pack}; j++) {{
            const bool hit = k.v[j] == x;
            count += hit;
            place = hit ? min(place, p * {pack} + j) : place;
        }}
    }}
    count = __reduce_add_sync(0xffffffff, count);
    place = __reduce_min_sync(0xffffffff, place);
    if (lane == 0) {{ counts[warp] = count; places[warp] = place; }}
    __syncthreads();
    if (threadIdx.x == 0) {{
        for (int w = 1; w < {threads} / 32; w++) {{
            count += counts[w];
            place = min(place, places[w]);
        }}
        r[blockIdx.x] = x;
        ties[2 * blockIdx.x] = count;
        ties[2 * blockIdx.x + 1] = place;
    }}
}}
extern "C" __global__ void __launch_bounds__({threads}) backward(
    const {type} *__restrict__ a, const {type} *__restrict__ out, const {type} *__restrict__ g,
    const int g_step, const int *__restrict__ ties, {type} *__restrict__ r, const int n)
{{
    const long long row = blockIdx.x;
    const int c = ties[2 * row], place = ties[2 * row + 1];
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


def source(maximum: bool, dtype: str, pack: int, threads: int = THREADS) -> str:
    """Return the text of `forward` and `backward` for rows."""
    kind = "double" if dtype == "float64" else "float"
    sign = "-" if maximum else ""
    return _ROWS.format(
        type=kind,
        pack=pack,
        bytes=pack * (8 if dtype == "float64" else 4),
        threads=threads,
        beats=">" if maximum else "<",
        start=f"{sign}({kind})ADARRAY_INF",
    )

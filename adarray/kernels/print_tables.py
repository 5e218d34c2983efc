"""Kernels as CUDA C++ whose blocks keep sums of their own, in shared memory.

A block of the GPU stands for many blocks of the kernel: groups of its threads take one after the
other. What they add to small arrays is added up in tables in shared memory, which are added to the
arrays at the end. Threads of a kernel that wait for each other are not grouped.
"""

from __future__ import annotations

from adarray.compiler.ir.loopir import Expr
from adarray.compiler.ir.threads import (
    BLOCK,
    SIZES,
    THREAD,
    Atomic,
    Barrier,
    ThreadKernel,
    WarpOp,
    all_statements,
)
from adarray.kernels.print_cuda import ThreadCudaPrinter
from adarray.kernels.texts import STORED

MOST = 1024  # threads of a block
HEAD = r"""
// Adds N neighbours of a table, the first at `at`. Threads of a warp whose places are far apart add
// those of one thread together, by way of a piece of shared memory: few of them meet in one bank.
template <int N, typename T> __device__ __forceinline__ void adarray_table_row_add(
    T *base, int at, const T (&row)[N], void *memory) {
    bool apart = ADARRAY_TOGETHER == 0xffffffffu;
    if (apart) {
        const int by = at - __shfl_xor_sync(0xffffffffu, at, 1);
        apart = __popc(__ballot_sync(0xffffffffu, by < 32 && by > -32)) < 16;
    }
    if (!apart) {
        #pragma unroll
        for (int k = 0; k < N; k++) atomicAdd(base + at + k, row[k]);
        return;
    }
    T *const stage = (T *)memory;
    const unsigned lane = adarray_thread() & 31u;
    #pragma unroll
    for (int k = 0; k < N; k++) stage[lane * N + k] = row[k];
    __syncwarp();
    #pragma unroll
    for (int s = 0; s < N; s++) {
        const unsigned e = s * 32u + lane;
        const int to = __shfl_sync(0xffffffffu, at, e / N);
        atomicAdd(base + to + e % N, stage[e]);
    }
    __syncwarp();
}
"""


def fits(kernel: ThreadKernel) -> bool:
    """Whether blocks of a kernel can share one block of the GPU.

    Parameters
    ----------
    kernel : ThreadKernel
    """
    for s in all_statements(kernel.body):
        if isinstance(s, (Barrier, WarpOp)):
            return False
        if isinstance(s, Atomic) and s.same in ("x", "y"):
            return False
    return not kernel.shared


class TableCudaPrinter(ThreadCudaPrinter):
    """Prints one kernel.

    Parameters
    ----------
    kernel : ThreadKernel
    name : str
        Of the function.
    tables : tuple of str
        Buffers that have a table in each block.
    """

    def __init__(self, kernel: ThreadKernel, name: str, tables: tuple[str, ...]) -> None:
        super().__init__(kernel, name)
        self.own = tables
        for n in (*THREAD, *BLOCK, *SIZES):
            self.text.names[n] = n.replace(".", "_") + "_of"
        for n in tables:
            self.text.names[n] = f"{n}_own"

    def source(self) -> str:
        """Return the text of the function."""
        params = [*self.params(), *(f"const uint32_t {n}_size" for n in self.own)]
        params.append("const int64_t adarray_blocks")
        params += [f"const uint32_t {n.replace('.', '_')}_of" for n in SIZES]
        if self.taped:
            params.append("double *__restrict__ adarray_tape")
        head = f'extern "C" __global__ __launch_bounds__({MOST}) void {self.name}'
        self.line(f"{head}({', '.join(params)}) {{")
        self.depth = 1
        self.tables(self.kernel)
        self._own()
        self._groups()
        self.depth -= 1
        self.line("}")
        self._folded()
        self.depth = 0
        self.line("}")
        return "\n".join(self.lines) + "\n"

    def _own(self) -> None:
        """Print the tables, set to zero."""
        self.line("extern __shared__ double adarray_dynamic[];")
        place = "(char *)adarray_dynamic"
        for n in self.own:
            t = STORED[self.buffers[n].dtype]
            self.line(f"{t} *const {n}_own = ({t} *)({place});")
            place = f"(char *)({n}_own + ({n}_size + 3) / 4 * 4)"
        if self.stage:
            own = f"threadIdx.x / 32u * {self.stage}"
            self.line(f"void *const adarray_stage = {place} + {own};")
        for n in self.own:
            self.line(f"for (uint32_t i_ = threadIdx.x; i_ < {n}_size; i_ += blockDim.x) "
                      f"{n}_own[i_] = 0;")  # fmt: skip
        self.line("__syncthreads();")

    def _groups(self) -> None:
        """Print the loop in which a group of threads takes blocks, and the kernel in it."""
        of = {n: n.replace(".", "_") + "_of" for n in (*THREAD, *BLOCK, *SIZES)}
        x, y, z = (of[f"blockDim.{a}"] for a in "xyz")
        self.line(f"const uint32_t group_ = {x} * {y} * {z};")
        self.line("const uint32_t t_ = threadIdx.x % group_;")
        self.line(f"const uint32_t {of['threadIdx.x']} = t_ % {x};")
        self.line(f"const uint32_t {of['threadIdx.y']} = t_ / {x} % {y};")
        self.line(f"const uint32_t {of['threadIdx.z']} = t_ / {x} / {y};")
        if self.taped:
            self.line("const int64_t adarray_step = (int64_t)blockDim.x * gridDim.x;")
            self.line("adarray_tape += (int64_t)blockIdx.x * blockDim.x + threadIdx.x;")
        self.line(
            "const int64_t first_ = blockIdx.x + (int64_t)(threadIdx.x / group_) * gridDim.x;"
        )
        self.line("const int64_t groups_ = (int64_t)(blockDim.x / group_) * gridDim.x;")
        self.line("for (int64_t block_ = first_; block_ < adarray_blocks; block_ += groups_) {")
        self.depth += 1
        if self.taped:
            self.line("int64_t adarray_top = 0;")
        x, y = of["gridDim.x"], of["gridDim.y"]
        self.line(f"const uint32_t {of['blockIdx.x']} = block_ % {x};")
        self.line(f"const uint32_t {of['blockIdx.y']} = block_ / {x} % {y};")
        self.line(f"const uint32_t {of['blockIdx.z']} = block_ / {x} / {y};")
        self.block(self.kernel.body)

    def _folded(self) -> None:
        """Print how tables are added to arrays; blocks begin at different elements."""
        self.line("__syncthreads();")
        for n in self.own:
            self.line(f"for (uint32_t i_ = threadIdx.x; i_ < {n}_size; i_ += blockDim.x) {{")
            self.line(f"    const uint32_t e_ = (i_ + blockIdx.x * 32u) % {n}_size;")
            self.line(f"    if ({n}_own[e_] != 0) atomicAdd(&{n}[e_], {n}_own[e_]);")
            self.line("}")

    def row(self, buffer: str, first: Expr, row: str) -> None:
        """Print the addition of an array to neighbours."""
        if buffer not in self.own:
            super().row(buffer, first, row)
            return
        place = f"(int32_t)({self.text(first)})"
        self.line(f"adarray_table_row_add({buffer}_own, {place}, {row}, adarray_stage);")

    def atomic(self, s: Atomic) -> None:
        """Print an atomic operation: what a block would add as a whole, its warps add."""
        if s.same in ("block", "grid"):
            place, value = f"&{self.element(s.buffer, s.index)}", self.text(s.value)
            self.line(f"adarray_warp_add({place}, {value});")
            return
        super().atomic(s)

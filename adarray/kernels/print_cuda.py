"""Kernels as CUDA C++: one thread of the text is one thread of the GPU.

A kernel with a tape runs on a part of its blocks at a time, as many as there is memory for; its
`blockIdx` is computed. The tapes of all threads lie side by side, so that threads of a warp that
put a value on them write to neighbouring places.
"""

from __future__ import annotations

from adarray.compiler.ir.loopir import Const, Expr, For, Load
from adarray.compiler.ir.threads import (
    BLOCK,
    SHUFFLES,
    SIZES,
    THREAD,
    Atomic,
    Barrier,
    Pop,
    Push,
    Stmt,
    ThreadKernel,
    WarpOp,
    all_statements,
    replaced,
)
from adarray.errors import KernelError
from adarray.kernels.copies import added
from adarray.kernels.printing import ThreadPrinter
from adarray.kernels.rows import gathered
from adarray.kernels.texts import CTYPES, STORED

HEAD = r"""
#ifdef __CUDACC_RTC__
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
#else
#include <cstdint>
#endif
#define _Bool bool
#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif
#ifndef NAN
#define NAN __int_as_float(0x7fffffff)
#endif
// Sizes of a block: numbers where the text is compiled for one shape of blocks.
#ifndef adarray_block_size_x
#define adarray_block_size_x blockDim.x
#define adarray_block_size_y blockDim.y
#define adarray_block_size_z blockDim.z
#endif
#ifndef ADARRAY_TOGETHER
#define ADARRAY_TOGETHER __activemask()
#endif
__device__ __forceinline__ unsigned adarray_thread() {
    return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
}
// The sum of the first `count` lanes, in lane 0.
template <typename T> __device__ __forceinline__ T adarray_lanes(T value, unsigned count) {
    const unsigned lane = adarray_thread() & 31u;
    const unsigned mask = count == 32u ? 0xffffffffu : (1u << count) - 1u;
    for (unsigned by = 16; by > 0; by /= 2) {
        const T other = __shfl_down_sync(mask, value, by);
        if (lane + by < count) value += other;
    }
    return value;
}
// The sum over the threads of a block, all of which come here, added as one step.
template <typename T> __device__ void adarray_block_add(T *place, T value) {
    __shared__ T parts[32];
    const unsigned t = adarray_thread(), all = blockDim.x * blockDim.y * blockDim.z;
    const unsigned first = t & ~31u, warps = (all + 31u) / 32u;
    value = adarray_lanes(value, all - first < 32u ? all - first : 32u);
    if (warps > 1u) {
        if (t == first) parts[t / 32u] = value;
        __syncthreads();
        if (t < warps) value = adarray_lanes(parts[t], warps);
        __syncthreads();
    }
    if (t == 0 && value != T(0)) atomicAdd(place, value);
}
// The sum over a warp whose threads come here together, added as one step.
template <typename T> __device__ __forceinline__ void adarray_warp_add(T *place, T value) {
    const unsigned mask = __activemask();
    int same = 0;
    if (mask == 0xffffffffu) __match_all_sync(mask, (unsigned long long)place, &same);
    if (!same) {
        atomicAdd(place, value);
        return;
    }
    value = adarray_lanes(value, 32u);
    if ((adarray_thread() & 31u) == 0) atomicAdd(place, value);
}
// The sum over `count` threads whose numbers are `step` apart, as far as they are in one warp.
template <typename T> __device__ __forceinline__ void adarray_line_add(
    T *place, T value, unsigned step, unsigned count) {
    const unsigned all = adarray_block_size_x * adarray_block_size_y * adarray_block_size_z;
    const unsigned warp = all < 32u ? (1u << all) - 1u : 0xffffffffu;
    const bool fits = step < 32u && count > 1u && !(step & (step - 1u)) && !(count & (count - 1u));
    if (!fits || ADARRAY_TOGETHER != warp) {
        atomicAdd(place, value);
        return;
    }
    const unsigned end = step * count < 32u ? step * count : 32u;
    #pragma unroll
    for (unsigned by = step; by < end; by *= 2u) value += __shfl_xor_sync(warp, value, by);
    if (!(adarray_thread() & (end - step))) atomicAdd(place, value);
}
// Adds N neighbours. Threads of a warp whose places are far apart add those of one thread together,
// by way of a piece of shared memory.
template <int N, typename T>
__device__ __forceinline__ void adarray_row_add(T *place, const T (&row)[N], void *memory) {
    bool apart = memory && ADARRAY_TOGETHER == 0xffffffffu;
    if (apart) {
        const long long other = __shfl_xor_sync(0xffffffffu, (long long)place, 1);
        const long long by = (long long)place - other, least = 32 * sizeof(T);
        apart = __popc(__ballot_sync(0xffffffffu, by < least && by > -least)) < 16;
    }
    if (!apart) {
        #pragma unroll
        for (int k = 0; k < N; k++) atomicAdd(place + k, row[k]);
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
        T *const to = (T *)__shfl_sync(0xffffffffu, (unsigned long long)place, e / N);
        atomicAdd(to + e % N, stage[e]);
    }
    __syncwarp();
}
"""
_THREAD = "(threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x"
USUAL_SHARED = 48 << 10  # bytes that a kernel's own shared memory may have
_SIZE = {"float64": 8, "int64": 8, "uint64": 8, "float32": 4, "int32": 4, "uint32": 4,
         "int16": 2, "uint16": 2, "int8": 1, "uint8": 1, "bool": 1}  # fmt: skip
_WARP = {"idx": "__shfl_sync", "up": "__shfl_up_sync", "down": "__shfl_down_sync",
         "xor": "__shfl_xor_sync", "ballot": "__ballot_sync",
         "match": "__match_any_sync", "add": "__reduce_add_sync",
         "minimum": "__reduce_min_sync", "maximum": "__reduce_max_sync",
         "and": "__reduce_and_sync", "or": "__reduce_or_sync",
         "xor_all": "__reduce_xor_sync"}  # fmt: skip
# Functions that add what threads share, and sizes that they get, by `Atomic.same`.
_SUMS = {"warp": ("adarray_warp_add", ""), "block": ("adarray_block_add", ""),
         "grid": ("adarray_block_add", ""), "x": ("adarray_line_add", ", 1u, adarray_block_size_x"),
         "y": ("adarray_line_add", ", adarray_block_size_x, adarray_block_size_y")}  # fmt: skip
_ATOMIC = {"add": "atomicAdd", "minimum": "atomicMin", "maximum": "atomicMax"}


def _row(s: Stmt) -> Atomic | None:
    """Return the addition of a loop that does nothing but add a row."""
    if isinstance(s, For) and len(s.body) == 1:
        (atomic,) = s.body
        if isinstance(atomic, Atomic) and atomic.same == "row":
            return atomic
    return None


def _stage(s: Stmt) -> int:
    """Return the bytes in which a warp exchanges the rows that a statement adds."""
    atomic = _row(s)
    if atomic is None or not isinstance(s, For) or not isinstance(s.stop, Const):
        return 0
    return 32 * int(s.stop.value) * _SIZE[atomic.value.dtype]


class ThreadCudaPrinter(ThreadPrinter):
    """Prints one kernel.

    Parameters
    ----------
    kernel : ThreadKernel
    name : str
        Of the function.
    counting : bool
        Whether it only counts what goes to the tape.
    """

    def __init__(self, kernel: ThreadKernel, name: str, counting: bool = False) -> None:
        super().__init__()
        adds = added(kernel)
        self.copied = () if counting else (*adds.threads, *adds.blocks)
        kernel = kernel if counting else gathered(kernel, adds.threads)
        self.kernel = kernel
        self.stage = max(map(_stage, all_statements(kernel.body)), default=0)
        self.fixed = 0  # bytes of shared memory
        # Sums over lines of threads are many instructions where a block's shape is not known.
        self.by_shape = any(
            isinstance(s, Atomic) and s.same in ("x", "y") for s in all_statements(kernel.body)
        )
        self.name = name
        self.counting = counting
        self.buffers = {b.name: b for b in kernel.buffers}
        self.taped = any(isinstance(s, Push) for s in all_statements(kernel.body))
        self.dynamic = [s for s in kernel.shared if s.size is None]
        for n in (*THREAD, *BLOCK, *SIZES):
            self.text.names[n] = n
        if self.taped and not counting:
            # A launch has a part of the blocks, in a row.
            for n in (*BLOCK, "gridDim.x", "gridDim.y", "gridDim.z"):
                self.text.names[n] = n.replace(".", "_") + "_of"

    def params(self) -> list[str]:
        """Return what the function takes of the kernel's own parameters."""
        params = []
        for name in self.kernel.order:
            if name in self.buffers:
                b = self.buffers[name]
                star = "const " if b.access == "in" else ""
                params.append(f"{star}{STORED[b.dtype]} *__restrict__ {name}")
            else:
                params.append(f"const {STORED[dict(self.kernel.scalars)[name]]} {name}")
        return params

    def source(self) -> str:
        """Return the text of the function."""
        k = self.kernel
        params = self.params()
        if self.dynamic:
            params.append("const int64_t adarray_dynamic_bytes")
        if self.stage:
            params.append("const uint32_t adarray_staged")
        for name in self.copied:
            params += [f"const uint32_t {name}_copies", f"const int64_t {name}_apart"]
        if self.counting:
            params.append("unsigned long long *adarray_most")
        elif self.taped:
            params.append("double *__restrict__ adarray_tape")
            params.append("const int64_t adarray_first")
            params += [f"const uint32_t gridDim_{a}_of" for a in "xyz"]
        self.line(f'extern "C" __global__ void {self.name}({", ".join(params)}) {{')
        self.depth = 1
        self.tables(k)
        for name in self.copied:
            block = "blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z)"
            self.line(f"{name} += ({block}) % {name}_copies * {name}_apart;")
        self._geometry()
        self._shared()
        self.block(k.body)
        if self.counting:
            self.line("atomicMax(adarray_most, (unsigned long long)adarray_top);")
        self.depth = 0
        self.line("}")
        return "\n".join(self.lines) + "\n"

    def _geometry(self) -> None:
        if not self.taped and not self.counting:
            return
        self.line("int64_t adarray_top = 0;")
        if self.counting:
            return
        self.line("const int64_t adarray_threads = (int64_t)blockDim.x * blockDim.y * blockDim.z;")
        self.line("const int64_t adarray_step = adarray_threads * gridDim.x;")
        self.line(f"adarray_tape += blockIdx.x * adarray_threads + {_THREAD};")
        self.line("const int64_t adarray_block = adarray_first + blockIdx.x;")
        self.line("const uint32_t blockIdx_x_of = adarray_block % gridDim_x_of;")
        self.line("const uint32_t blockIdx_y_of = adarray_block / gridDim_x_of % gridDim_y_of;")
        self.line("const uint32_t blockIdx_z_of = adarray_block / gridDim_x_of / gridDim_y_of;")

    def _shared(self) -> None:
        """Print the memory of a block, set to zero where it has to be."""
        fixed = sum(_SIZE[s.dtype] * (s.size or 0) for s in self.kernel.shared)
        # Sums over a block have a place for each of its warps.
        added = {s.value.dtype for s in all_statements(self.kernel.body)
                 if isinstance(s, Atomic) and s.same in ("block", "grid")}  # fmt: skip
        fixed += sum(32 * _SIZE[d] for d in added)
        if fixed > USUAL_SHARED:
            raise KernelError(
                f"kernel {self.kernel.name}: it takes {fixed} bytes of shared memory; a block "
                f"has {USUAL_SHARED}: derivatives need as much again as what they are of; use "
                "smaller tiles"
            )
        self.fixed = fixed
        if self.dynamic or self.stage:
            self.line("extern __shared__ double adarray_dynamic[];")
        for k, s in enumerate(self.dynamic):
            t = STORED[s.dtype]
            self.line(f"{t} *const {s.name} = ({t} *)((char *)adarray_dynamic + "
                      f"{k} * adarray_dynamic_bytes);")  # fmt: skip
        for s in self.kernel.shared:
            if s.size is not None:
                self.line(f"__shared__ {STORED[s.dtype]} {s.name}[{s.size}];")
        if self.stage:
            dynamic = f"{len(self.dynamic)} * adarray_dynamic_bytes" if self.dynamic else "0"
            first = f"(char *)adarray_dynamic + ({dynamic} + 7) / 8 * 8"
            own = f"adarray_thread() / 32u * {self.stage}"
            self.line(f"void *const adarray_stage = adarray_staged ? {first} + {own} : nullptr;")
        cleared = [s for s in self.kernel.shared if s.zero]
        if cleared:
            self.line("{")
            self.line("    const int n_ = blockDim.x * blockDim.y * blockDim.z;")
            self.line(f"    const int t_ = {_THREAD};")
            for s in cleared:
                size = (
                    str(s.size)
                    if s.size is not None
                    else f"adarray_dynamic_bytes / {_SIZE[s.dtype]}"
                )
                self.line(f"    for (int i_ = t_; i_ < {size}; i_ += n_) {s.name}[i_] = 0;")
            self.line("    __syncthreads();")
            self.line("}")

    def statement(self, s: Stmt) -> None:
        """Print one statement; loops that add a row are a call."""
        atomic = _row(s)
        if atomic is None or not isinstance(s, For):
            super().statement(s)
            return
        assert isinstance(atomic.value, Load)
        first = replaced(atomic.index, {s.var: Const("int64", 0)})
        self.row(atomic.buffer, first, atomic.value.buffer)

    def row(self, buffer: str, first: Expr, row: str) -> None:
        """Print the addition of an array to neighbours."""
        self.line(f"adarray_row_add(&{self.element(buffer, first)}, {row}, adarray_stage);")

    def barrier(self, s: Barrier) -> None:
        """Print a barrier."""
        self.line("__syncwarp();" if s.warp else "__syncthreads();")

    def warp_op(self, s: WarpOp) -> None:
        """Print an operation of a warp."""
        mask = "__activemask()" if s.mask is None else self.text(s.mask)
        args = [mask, self.text(s.value)]
        if s.kind in SHUFFLES:
            args += [self.text(s.lane), *([str(s.width)] if s.width != 32 else [])]
        self.let(s.name, s.dtype, f"{_WARP[s.kind]}({', '.join(args)})")

    def atomic(self, s: Atomic) -> None:
        """Print an atomic operation."""
        place, value = f"&{self.element(s.buffer, s.index)}", self.text(s.value)
        if s.same:
            name, sizes = _SUMS[s.same]
            self.line(f"{name}({place}, {value}{sizes});")
            return
        dtype = s.value.dtype
        text = f"{_ATOMIC[s.combine]}({place}, {value})"
        if dtype == "int64":
            cast = "(unsigned long long *)" if s.combine == "add" else "(long long *)"
            text = f"{_ATOMIC[s.combine]}({cast}{place}, {value})"
        self.line(f"const {CTYPES[dtype]} {s.result} = {text};" if s.result else f"{text};")

    def push(self, value: Expr) -> None:
        """Print how a value gets onto the tape."""
        if self.counting:
            self.line("adarray_top++;")
            return
        text = self.text(value)
        if value.dtype in ("int64", "uint64"):
            text = f"__longlong_as_double({text})"
        self.line(f"adarray_tape[adarray_top++ * adarray_step] = {text};")

    def pop(self, s: Pop) -> None:
        """Print how a value comes off the tape."""
        text = "adarray_tape[--adarray_top * adarray_step]"
        if s.dtype in ("int64", "uint64"):
            text = f"__double_as_longlong({text})"
        self.let(s.name, s.dtype, f"({CTYPES[s.dtype]}){text}")


def of_shape(block: tuple[int, int, int], text: str) -> str:
    """Return a text for blocks of one shape."""
    sizes = zip("xyz", block, strict=True)
    return "".join(f"#define adarray_block_size_{a} {n}u\n" for a, n in sizes) + text


def source(kernel: ThreadKernel, name: str, counting: bool = False) -> str:
    """Return the text of a kernel as CUDA C++."""
    return HEAD + ThreadCudaPrinter(kernel, name, counting).source()

"""A GPU that is none: the driver's functions in Python, kernels run by the processor.

`FakeGpu` has what `adarray_backends.cuda.gpu.Gpu` has; arrays are NumPy's, streams run at once,
and `FakeDriver.log` holds what was asked for.
"""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from adarray_backends.cuda.launcher import FUNCTIONS, Flag, Loaded, Recorder, native
from cffi import FFI

from adarray.codegen.cuda import Text
from adarray.codegen.device import Device

ROOT = Path(__file__).resolve().parents[2]
FLAGS = ["-std=c++17", "-O0", "-w", "-fPIC", "-shared", "-ffp-contract=off", "-fwrapv"]
SMALL = Device(processors=2, threads=256, shared=4096)
_ANY = """
struct Any {
    uint64_t v;
    template <class T> operator T *() const { return (T *)v; }
    operator int64_t() const { return (int64_t)v; }
};
"""
_RUN = """
static void {name}_body(void *c)
{{
    const uint64_t *v = (const uint64_t *)c;
    {name}({arguments});
}}
extern "C" int {name}_run(uint64_t *cells, unsigned blocks, unsigned chunks, unsigned threads)
{{
    return host_launch({name}_body, cells, blocks, chunks, threads);
}}
"""
_SIGNATURES = {
    "cuLaunchKernel": "int(*)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, "
    "unsigned, unsigned, void *, void **, void **)",
    "cuMemcpyDtoDAsync_v2": "int(*)(uint64_t, uint64_t, size_t, void *)",
    "cuStreamSynchronize": "int(*)(void *)",
    "cuStreamBeginCapture_v2": "int(*)(void *, int)",
    "cuStreamEndCapture": "int(*)(void *, void **)",
    "cuStreamGetCaptureInfo_v2": "int(*)(void *, int *, uint64_t *, void **, void ***, size_t *)",
    "cuGraphInstantiateWithFlags": "int(*)(void **, void *, unsigned long long)",
    "cuGraphLaunch": "int(*)(void *, void *)",
    "cuGraphExecKernelNodeSetParams": "int(*)(void *, void *, void *)",
    "cuGraphExecUpdate_v2": "int(*)(void *, void *, void *)",
    "cuGraphExecDestroy": "int(*)(void *)",
    "cuGraphDestroy": "int(*)(void *)",
    "cublasGemmStridedBatchedEx": "int(*)(void *, int, int, int, int, int, void *, void *, int, "
    "int, long long, void *, int, int, long long, void *, void *, int, int, long long, int, int, "
    "int)",
}


class Node(NamedTuple):
    """A launch: the kernel, its sizes and the values of its arguments."""

    function: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cells: tuple[int, ...]


class FakeDriver:
    """The driver's functions; `fail` makes the next call of one return an error.

    Attributes
    ----------
    log : list of (str, object)
        Names of the functions that were called, and what about them matters.
    """

    def __init__(self) -> None:
        self.ffi = FFI()
        self.ffi.cdef("typedef struct { void *f; unsigned g[3], b[3], s; void **p, **e; } Params;")
        self.log: list[tuple[str, Any]] = []
        self.failing: dict[str, int] = {}
        self.kernels: dict[int, tuple[str, int, Callable[..., int]]] = {}
        self.graphs: dict[int, list[Any]] = {}
        self.recording: dict[int, list[Any]] = {}
        self._next = 1 << 20
        self._busy = threading.Lock()  # device_host.h runs one kernel at a time
        self._slot = self.ffi.new("void *[1]")
        self.callbacks = [
            self.ffi.callback(_SIGNATURES[name], getattr(self, name))
            for name in (*FUNCTIONS, "cublasGemmStridedBatchedEx")
        ]
        self.addresses = [int(self.ffi.cast("uintptr_t", f)) for f in self.callbacks]

    def names(self) -> list[str]:
        """Return the names of the functions that were called, and forget them."""
        found = [name for name, _ in self.log]
        self.log.clear()
        return found

    def _noted(self, name: str, about: Any = None) -> int:
        self.log.append((name, about))
        return self.failing.pop(name, 0)

    def _id(self, pointer: Any) -> int:
        return int(self.ffi.cast("uintptr_t", pointer))

    def _handle(self) -> int:
        self._next += 16
        return self._next

    def _do(self, node: Any) -> int:
        if not isinstance(node, Node):
            node()
            return 0
        _, _, run = self.kernels[node.function]
        cells = self.ffi.new("uint64_t[]", list(node.cells))
        with self._busy:
            return run(cells, node.grid[0], node.grid[1], node.block[0])

    def _cells(self, function: int, parameters: Any) -> tuple[int, ...]:
        count = self.kernels[function][1]
        return tuple(self.ffi.cast("uint64_t *", parameters[i])[0] for i in range(count))

    def _put(self, stream: int, node: Any) -> int:
        if stream in self.recording:
            self.recording[stream].append([self._handle(), node])
            return 0
        return self._do(node)

    def cuLaunchKernel(self, f: Any, *rest: Any) -> int:  # noqa: N802
        gx, gy, gz, bx, by, bz, _, stream, parameters, _ = rest
        function = self._id(f)
        node = Node(function, (gx, gy, gz), (bx, by, bz), self._cells(function, parameters))
        status = self._noted("launch", self.kernels[function][0])
        return status or self._put(self._id(stream), node)

    def cuMemcpyDtoDAsync_v2(self, to: int, of: int, size: int, _: Any) -> int:  # noqa: N802
        status = self._noted("copy", size)
        if not status:
            self.ffi.memmove(self.ffi.cast("char *", to), self.ffi.cast("char *", of), size)
        return status

    def cuStreamSynchronize(self, _: Any) -> int:  # noqa: N802
        return self._noted("synchronize")

    def cuStreamBeginCapture_v2(self, stream: Any, _: int) -> int:  # noqa: N802
        self.recording[self._id(stream)] = []
        return self._noted("begin")

    def cuStreamEndCapture(self, stream: Any, graph: Any) -> int:  # noqa: N802
        handle = self._handle()
        self.graphs[handle] = self.recording.pop(self._id(stream))
        graph[0] = self.ffi.cast("void *", handle)
        return self._noted("end")

    def cuStreamGetCaptureInfo_v2(self, stream: Any, *rest: Any) -> int:  # noqa: N802
        last = self.recording[self._id(stream)][-1][0]
        self._slot[0] = self.ffi.cast("void *", last)
        rest[3][0] = self._slot
        rest[4][0] = 1
        return 0

    def cuGraphInstantiateWithFlags(self, made: Any, graph: Any, _: int) -> int:  # noqa: N802
        status = self._noted("instantiate")
        if not status:
            handle = self._handle()
            self.graphs[handle] = [list(n) for n in self.graphs[self._id(graph)]]
            made[0] = self.ffi.cast("void *", handle)
        return status

    def cuGraphLaunch(self, graph: Any, _: Any) -> int:  # noqa: N802
        status = self._noted("replay")
        for _, node in [] if status else self.graphs[self._id(graph)]:
            status = status or self._do(node)
        return status

    def cuGraphExecKernelNodeSetParams(self, graph: Any, node: Any, given: Any) -> int:  # noqa: N802
        status = self._noted("set")
        if status:
            return status
        p = self.ffi.cast("Params *", given)
        wanted = self._id(node)
        (entry,) = (n for n in self.graphs[self._id(graph)] if n[0] == wanted)
        function = self._id(p.f)
        assert isinstance(entry[1], Node)
        entry[1] = Node(function, tuple(p.g), tuple(p.b), self._cells(function, p.p))
        return 0

    def cuGraphExecUpdate_v2(self, graph: Any, given: Any, _: Any) -> int:  # noqa: N802
        status = self._noted("update")
        if status:
            return status
        old, new = self.graphs[self._id(graph)], self.graphs[self._id(given)]
        assert len(old) == len(new)
        for entry, (_, node) in zip(old, new, strict=True):
            entry[1] = node
        return 0

    def cuGraphExecDestroy(self, graph: Any) -> int:  # noqa: N802
        del self.graphs[self._id(graph)]
        return self._noted("destroy")

    def cuGraphDestroy(self, graph: Any) -> int:  # noqa: N802
        del self.graphs[self._id(graph)]
        return 0

    def _memory(self, p: Any, dtype: Any, shape: Any, strides: Any) -> np.ndarray:
        size = dtype.itemsize
        return view_at(self._id(p), shape, dtype, [s * size for s in strides], self)

    def cublasGemmStridedBatchedEx(self, handle: Any, *rest: Any) -> int:  # noqa: N802
        """Compute a product as cuBLAS does, whose matrices lie in columns."""
        (op_a, op_b, m, n, k, _, a, kind, lda, step_a, b, _, ldb, step_b, _, c, made, ldc, step_c,
         count, _, _) = rest  # fmt: skip
        types = {0: np.dtype(np.float32), 1: np.dtype(np.float64)}
        x = self._memory(a, types[kind], (count, m, k), (step_a, *((lda, 1) if op_a else (1, lda))))
        y = self._memory(b, types[kind], (count, k, n), (step_b, *((ldb, 1) if op_b else (1, ldb))))
        z = self._memory(c, types[made], (count, m, n), (step_c, 1, ldc))

        def multiply() -> None:
            z[...] = x @ y

        return self._noted("product") or self._put(self._id(handle), multiply)


class Memory(NamedTuple):
    """Memory at an address, with what keeps it."""

    ptr: int
    owner: Any

    def __add__(self, offset: Any) -> Memory:
        return Memory(self.ptr + offset, self.owner)


class _Interface:
    def __init__(self, interface: dict[str, Any], owner: Any) -> None:
        self.__array_interface__ = interface
        self.owner = owner


def view_at(address: int, shape: Any, dtype: Any, strides: Any, owner: Any) -> np.ndarray:
    """Return an array of the memory at an address."""
    if 0 in tuple(shape):
        return np.empty(shape, dtype)
    dtype = np.dtype(dtype)
    interface = {
        "data": (address, False), "shape": tuple(shape), "strides": tuple(strides),
        "typestr": dtype.str, "version": 3,
    }  # fmt: skip
    return np.asarray(_Interface(interface, owner))


class Address(int):
    """An address among the arguments of a kernel."""


class FakeArray(np.ndarray):
    """An array whose address is ``data.ptr``, as CuPy's."""

    def __new__(cls, shape: Any, dtype: Any, memory: Memory) -> FakeArray:
        strides = np.empty(shape, np.int8).strides
        size = np.dtype(dtype).itemsize
        return view_at(memory.ptr, shape, dtype, [s * size for s in strides], memory).view(cls)

    @property
    def data(self) -> Any:  # type: ignore[override]
        """Where the array begins."""
        return Memory(self.__array_interface__["data"][0], self)


class FullError(Exception):
    """Memory is short."""


class FakeStream(NamedTuple):
    """A stream."""

    ptr: int


class FakeGpu:
    """A GPU that runs on the processor.

    Attributes
    ----------
    driver : FakeDriver
    now : FakeStream
        The current stream.
    room : int
        How many more allocations succeed; -1 for all.
    """

    ndarray = FakeArray
    out_of_memory = (FullError,)
    several = False
    index = 0

    def __init__(self, folder: Path) -> None:
        self.driver = FakeDriver()
        self.folder = folder
        self.now = FakeStream(0)
        self.room = -1
        self.released = 0
        self.handles: dict[int, int] = {}
        self._units = 0
        self.busy = native().ffi.new("int *")
        self.kept: list[Any] = []
        self.copy = 1 << 30
        self.driver.kernels[self.copy] = "copied", 7, self._copied

    def _copied(self, cells: Any, *_: int) -> int:
        """Copy a matrix into rows without gaps."""
        of, to, rows, columns, row, column, kind = (int(cells[i]) for i in range(7))
        dtype = np.dtype(np.float64 if kind else np.float32)
        size = dtype.itemsize
        x = view_at(of, (rows, columns), dtype, (row * size, column * size), self)
        view_at(to, (rows, columns), dtype, (columns * size, size), self)[...] = x
        return 0

    def stream(self) -> FakeStream:
        return self.now

    def current(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def attach(self) -> None:
        self.driver.log.append(("attach", None))

    def device(self) -> Device:
        return SMALL

    def functions(self, products: bool) -> list[int]:
        found = list(self.driver.addresses)
        return found if products else [*found[:-1], 0]

    def product(self, stacks: Any, dtype: str, precision: str, to: Any) -> bool:
        """Write down products of matrices of one leading axis at most, after copies into rows."""
        kinds = {"float32": 0, "float64": 1}
        if dtype not in kinds or min(len(shape) for _, shape, _ in stacks) < 2:
            return False
        lead = stacks[2][1][:-2]
        if any(shape[:-2] not in ((), lead) for _, shape, _ in stacks) or len(lead) > 1:
            return False
        count = lead[0] if lead else 1
        found, distances, begin = [], [], 0
        for address, shape, strides in stacks:
            distances.append(strides[0] if len(shape) > 2 and count > 1 else 0)
            row, column = strides[-2:]
            rows, columns = shape[-2:]
            if precision == "bf16" and len(found) < 2:  # as what converts operands
                size = 8 * count * rows * columns
                place = to.room(begin + size) + begin
                begin += size
                numbers = (rows, columns, row, column, kinds[dtype])
                to.copy(
                    self.copy, (1, 1, 1), (32, 1, 1), (Address(address), Address(place), *numbers)
                )
                found.append((place, 0, columns))
            elif column == 1 or columns == 1:
                found.append((address, 0, max(row if rows > 1 else columns, 1)))
            elif row == 1 or rows == 1:
                found.append((address, 1, max(column if columns > 1 else rows, 1)))
            else:
                return False
        (a, op_a, lda), (b, op_b, ldb), (out, _, ldc) = found
        (m, k), n = stacks[0][1][-2:], stacks[1][1][-1]
        numbers = (
            op_b, op_a, n, m, k, ldb, distances[1], lda, distances[0], ldc, distances[2], count,
            kinds[dtype], kinds[dtype], 0,
        )  # fmt: skip
        to.multiply(b, a, out, numbers)
        return True

    def convolution(self, function: Any) -> str:
        return ""

    def load(self, texts: Iterable[Text]) -> Loaded:
        """Compile kernels for the processor; return handles by name."""
        texts = list(texts)
        parts, names = ['#include "device_host.h"', _ANY], {}
        for t in texts:
            parts.append(t.text)
            for name in (t.name, *t.followers):
                signature = re.search(rf"\b{name}\(([^)]*)\)", t.text)
                assert signature is not None
                count = signature[1].count(",") + 1
                arguments = ", ".join(f"Any{{v[{i}]}}" for i in range(count))
                parts.append(_RUN.format(name=name, arguments=arguments))
                names[name] = count
        self._units += 1
        source, library = (self.folder / f"unit{self._units}.{e}" for e in ("cpp", "so"))
        source.write_text("\n".join(parts))
        include = [f"-I{ROOT / 'native'}", f"-I{ROOT / 'tests' / 'support'}"]
        subprocess.run(["g++", *FLAGS, *include, str(source), "-o", str(library)], check=True)
        ffi = FFI()
        ffi.cdef("".join(f"int {n}_run(uint64_t *, unsigned, unsigned, unsigned);" for n in names))
        unit = ffi.dlopen(str(library))
        self.kept.append(unit)
        found = {}
        for name, count in names.items():
            run = getattr(unit, f"{name}_run")
            found[name] = int(ffi.cast("uintptr_t", run))

            def call(cells: Any, *sizes: int, run: Any = run, ffi: FFI = ffi) -> int:
                address = int(self.driver.ffi.cast("uintptr_t", cells))
                return int(run(ffi.cast("uint64_t *", address), *sizes))

            self.driver.kernels[found[name]] = name, count, call
        return Loaded(found, (len(texts), 0, 0))

    def address(self, function: Any, shared: int) -> int:
        assert shared <= SMALL.shared
        return int(function)

    def keep(self, text: Text) -> str:
        path = self.folder / f"{text.name}.cu"
        path.write_text(text.text)
        return str(path)

    def _allocated(self, size: int, value: int) -> Memory:
        if self.room == 0:
            raise FullError(f"{size} bytes")
        self.room -= self.room > 0
        made = np.full(size + 256, value, np.uint8)
        return Memory(-(-made.ctypes.data // 256) * 256, made)

    def alloc(self, size: int) -> Memory:
        return self._allocated(size, 0xC3)

    def zeros(self, size: int) -> Memory:
        return self._allocated(size, 0)

    def upload(self, values: np.ndarray) -> FakeArray:
        return np.array(values).view(FakeArray)

    def send(self, to: int, values: np.ndarray, stream: int) -> None:
        self.driver.log.append(("send", stream))
        view_at(to, values.shape, values.dtype, values.strides, self)[...] = values

    def look(self, memory: Any, offset: int, shape: Any, dtype: Any, strides: Any) -> FakeArray:
        return view_at(memory.ptr + offset, shape, dtype, strides, memory.owner).view(FakeArray)

    def flag(self) -> Any:
        owner = np.zeros(1, np.int32)
        return Flag(owner, owner.ctypes.data, owner.ctypes.data)

    def release(self) -> None:
        self.released += 1

    def memory(self) -> str:
        return "0 bytes are free"

    def blas(self) -> int:
        return self.now.ptr

    def recorder(self, products: bool) -> Any:
        stream = (1 << 40) + self.now.ptr
        return Recorder(stream, stream if products else 0, self.busy)

    def error(self, status: int) -> str:
        return f"CUDA_ERROR_{status}"

    def multiply(self, a: Any, b: Any, out: Any, precision: str) -> None:
        self.driver.log.append(("multiply", precision))
        out[...] = np.matmul(a, b)

    def call(self, function: Any, values: list[Any], arguments: Any) -> list[Any]:
        self.driver.log.append(("call", function))
        args, kwargs = arguments([np.asarray(v) for v in values])
        made = function(*args, **kwargs)
        return [np.asarray(x) for x in (made if isinstance(made, (tuple, list)) else (made,))]

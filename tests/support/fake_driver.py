"""The driver of a GPU that is none: launches run kernels on the processor, graphs are lists.

`FakeDriver.log` holds what was asked for.

For tests of launching plans (``native/cuda/device_launch.c``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from adarray_backends.cuda.fourier import Layout, TransformForm
from adarray_backends.cuda.launcher import FUNCTIONS, PRODUCTS
from cffi import FFI

from adarray.compiler.rewrite.factors import lapack

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
    "cuStreamQuery": "int(*)(void *)",
    "cublasGemmStridedBatchedEx": "int(*)(void *, int, int, int, int, int, void *, void *, int, "
    "int, long long, void *, int, int, long long, void *, void *, int, int, long long, int, int, "
    "int)",
    "getrf": "int(*)(void *, int, int, void *, int, void *, int *, int *)",
    "getrs": "int(*)(void *, int, int, int, void *, int, int *, void *, int, int *)",
    "potrf": "int(*)(void *, int, int, void *, int, void *, int, int *)",
    "trsm": "int(*)(void *, int, int, int, int, int, int, void *, void *, int, void *, int)",
    "transform": "int(*)(int, void *, void *, int)",
    "real transform": "int(*)(int, void *, void *)",
    "set": "int(*)(int, void *)",
    "cublasLtMatmul": "int(*)(void *, void *, void *, void *, void *, void *, void *, void *, "
    "void *, void *, void *, void *, void *, void *, size_t, void *)",
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
        # Of products of cuBLASLt; and where the vectors are that are added to their rows.
        self.forms: list[tuple[tuple[int, ...], float, int, bool | None]] = []
        self.rows: dict[int, int] = {}
        tell = self.ffi.callback("int(*)(void *, int, void **, size_t)", self._told)
        self.tell = tell, int(self.ffi.cast("uintptr_t", tell))
        self.kernels: dict[int, tuple[str, int, Callable[..., int]]] = {}
        self.ones = {"f": self.ffi.new("float *", 1.0), "d": self.ffi.new("double *", 1.0)}
        self._linalg: dict[tuple[str, str], tuple[Any, int]] = {}
        # Of cuFFT: what plans are for, and the stream and memory that each was told last.
        self.plans: list[tuple[TransformForm, int]] = []
        self.told: dict[tuple[str, int], int] = {}
        self._cufft = [
            self.ffi.callback(_SIGNATURES[kind], body)
            for kind, body in (
                ("transform", self._transform),
                ("real transform", partial(self._transform, direction=0)),
                ("set", partial(self._tell_plan, "stream")),
                ("set", partial(self._tell_plan, "memory")),
            )
        ]
        self.graphs: dict[int, list[Any]] = {}
        self.recording: dict[int, list[Any]] = {}
        self._next = 1 << 20
        self._busy = threading.Lock()  # device_host.h runs one kernel at a time
        self._slot = self.ffi.new("void *[1]")
        self.own: dict[str, Callable[..., int]] = {}

        def function(name: str) -> Any:
            usual = getattr(self, name)
            return lambda *args: self.own.get(name, usual)(*args)

        self.callbacks = [
            self.ffi.callback(_SIGNATURES[name], function(name)) for name in (*FUNCTIONS, *PRODUCTS)
        ]
        self.addresses = [int(self.ffi.cast("uintptr_t", f)) for f in self.callbacks]

    def _told(self, about: Any, attribute: int, place: Any, _: int) -> int:
        """Take in where the vector is that is added to the rows of a product."""
        assert attribute == 8
        self.rows[self._id(about)] = self._id(place[0])
        return self._noted("row")

    def replace(self, own: dict[str, Callable[..., int]]) -> None:
        """Let functions of the driver, by name, do something else."""
        self.own |= own

    def linalg(self, name: str, char: str) -> int:
        """Return the address of a function of cuSOLVER or cuBLAS, which LAPACK computes."""
        if (name, char) not in self._linalg:
            body = partial(getattr(self, f"_{name}"), np.dtype(char))
            function = self.ffi.callback(_SIGNATURES[name], body)
            address = int(self.ffi.cast("uintptr_t", function))
            self._linalg[name, char] = function, address
        return self._linalg[name, char][1]

    def _in_columns(self, p: Any, dtype: Any, rows: int, columns: int, step: int) -> np.ndarray:
        return self._memory(p, dtype, (rows, columns), (1, step))

    def _numbers(self, p: Any, n: int) -> np.ndarray:
        return self._memory(p, np.dtype(np.int32), (n,), (1,))

    def _lapack(self, name: str, dtype: Any) -> Any:
        return getattr(lapack(), {"f": "s", "d": "d"}[dtype.char] + name)

    def _getrf(self, dtype: Any, _: Any, m: int, n: int, *rest: Any) -> int:
        a, lda, room, pivots, info = rest
        x = self._in_columns(a, dtype, m, n, lda)
        self._memory(room, dtype, (n,), (1,))[...] = np.nan
        x[...], places, failed = self._lapack("getrf", dtype)(x)
        self._numbers(pivots, n)[...] = places + 1
        self._numbers(info, 1)[0] = failed
        return self._noted("getrf")

    def _getrs(self, dtype: Any, _: Any, trans: int, n: int, count: int, *rest: Any) -> int:
        lu, lda, pivots, b, ldb, info = rest
        x = self._in_columns(b, dtype, n, count, ldb)
        factors = self._in_columns(lu, dtype, n, n, lda)
        places = self._numbers(pivots, n) - 1
        x[...], failed = self._lapack("getrs", dtype)(factors, places, x, trans=trans)
        self._numbers(info, 1)[0] = failed
        return self._noted("getrs")

    def _potrf(self, dtype: Any, _: Any, upper: int, n: int, *rest: Any) -> int:
        a, lda, room, size, info = rest
        x = self._in_columns(a, dtype, n, n, lda)
        self._memory(room, dtype, (size,), (1,))[...] = np.nan
        x[...], failed = self._lapack("potrf", dtype)(x, lower=1 - upper, clean=0)
        self._numbers(info, 1)[0] = failed
        return self._noted("potrf")

    def _trsm(self, dtype: Any, _: Any, *rest: Any) -> int:
        """Solve from the right, ``x op(a) = scale b``."""
        side, upper, trans, unit, m, n, scale, a, lda, b, ldb = rest
        assert (side, unit) == (1, 0)
        x = self._in_columns(b, dtype, m, n, ldb)
        triangle = self._in_columns(a, dtype, n, n, lda)
        by = self._memory(scale, dtype, (1,), (1,))[0]
        solution, _info = self._lapack("trtrs", dtype)(
            triangle, by * x.T, lower=1 - upper, trans=1 - trans
        )
        x[...] = solution.T
        return self._noted("trsm")

    def cufft(self, form: TransformForm, room: int) -> tuple[int, tuple[int, int, int]]:
        """Return a plan's number, and addresses of what runs it, and sets stream and memory."""
        self.plans.append((form, room))
        run, real, *setting = (int(self.ffi.cast("uintptr_t", f)) for f in self._cufft)
        return len(self.plans) - 1, (run if form.kind == "C2C" else real, *setting)  # type: ignore[return-value]

    def _tell_plan(self, what: str, plan: int, place: Any) -> int:
        self.told[what, plan] = self._id(place)
        return self._noted(f"set {what}")

    def _transform(self, plan: int, operand: Any, out: Any, direction: int) -> int:
        """Compute what cuFFT does; what it destroys becomes nan."""
        form, room = self.plans[plan]
        place = self.told["memory", plan]
        assert (place != 0) == (room > 0)  # cuFFT fails where its memory is that of an array
        real, pairs = np.dtype(form.char), np.dtype(form.char.upper())
        work = self._memory(self.ffi.cast("void *", place), np.dtype(np.uint8), (room,), (1,))
        half = (*form.lengths[:-1], form.lengths[-1] // 2 + 1)
        axes = range(1, 1 + len(half))

        def array(p: Any, layout: Layout, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
            assert not self._id(p) % pairs.itemsize
            strides = [layout.step]
            for n, length in zip(layout.embed[:0:-1], shape[:0:-1], strict=True):
                assert n >= length
                strides.insert(0, strides[0] * n)
            assert layout.embed[0] >= shape[0]
            return self._memory(p, dtype, (form.count, *shape), (layout.distance, *strides))

        if form.kind == "C2C":
            assert direction in (-1, 1)
            x = array(operand, form.operand, form.lengths, pairs)
            y = array(out, form.result, form.lengths, pairs)
        elif form.kind == "R2C":
            assert direction == 0
            x = array(operand, form.operand, form.lengths, real)
            y = array(out, form.result, half, pairs)
        else:
            assert direction == 0
            x = array(operand, form.operand, half, pairs)
            y = array(out, form.result, form.lengths, real)

        def compute() -> None:
            work[...] = 0xA5
            if form.kind == "R2C":
                y[...] = np.fft.rfftn(x, form.lengths, axes)
            elif form.kind == "C2R":
                y[...] = np.fft.irfftn(x, form.lengths, axes, norm="forward")
                x[...] = np.nan
            elif direction < 0:
                y[...] = np.fft.fftn(x, axes=axes)
            else:
                y[...] = np.fft.ifftn(x, axes=axes, norm="forward")

        return self._noted("transform", form) or self._put(self.told["stream", plan], compute)

    def names(self) -> list[str]:
        """Return the names of the functions that were called, and forget them."""
        calls = [name for name, _ in self.log]
        self.log.clear()
        return calls

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

    def cuStreamSynchronize(self, stream: Any) -> int:  # noqa: N802
        return self._noted("synchronize") or (900 if self._id(stream) in self.recording else 0)

    def cuStreamBeginCapture_v2(self, stream: Any, _: int) -> int:  # noqa: N802
        self.recording[self._id(stream)] = []
        return self._noted("begin")

    def cuStreamEndCapture(self, stream: Any, graph: Any) -> int:  # noqa: N802
        handle = self._handle()
        self.graphs[handle] = self.recording.pop(self._id(stream))
        graph[0] = self.ffi.cast("void *", handle)
        return self._noted("end")

    def cuStreamGetCaptureInfo_v2(self, stream: Any, *rest: Any) -> int:  # noqa: N802
        nodes = self.recording.get(self._id(stream))
        rest[0][0] = nodes is not None
        if nodes:
            self._slot[0] = self.ffi.cast("void *", nodes[-1][0])
            rest[3][0] = self._slot
            rest[4][0] = 1
        return 0

    def cuGraphInstantiateWithFlags(self, executable: Any, graph: Any, _: int) -> int:  # noqa: N802
        status = self._noted("instantiate")
        if not status:
            handle = self._handle()
            self.graphs[handle] = [list(n) for n in self.graphs[self._id(graph)]]
            executable[0] = self.ffi.cast("void *", handle)
        return status

    def cuGraphLaunch(self, graph: Any, stream: Any) -> int:  # noqa: N802
        status = self._noted("replay") or (900 if self._id(stream) in self.recording else 0)
        for _, node in [] if status else self.graphs[self._id(graph)]:
            status = status or self._do(node)
        return status

    def cuGraphExecKernelNodeSetParams(self, graph: Any, node: Any, params: Any) -> int:  # noqa: N802
        status = self._noted("set")
        if status:
            return status
        p = self.ffi.cast("Params *", params)
        wanted = self._id(node)
        (entry,) = (n for n in self.graphs[self._id(graph)] if n[0] == wanted)
        function = self._id(p.f)
        assert isinstance(entry[1], Node)
        entry[1] = Node(function, tuple(p.g), tuple(p.b), self._cells(function, p.p))
        return 0

    def cuGraphExecUpdate_v2(self, graph: Any, other: Any, _: Any) -> int:  # noqa: N802
        status = self._noted("update")
        if status:
            return status
        old, new = self.graphs[self._id(graph)], self.graphs[self._id(other)]
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

    def cuStreamQuery(self, _: Any) -> int:  # noqa: N802
        return self._noted("query")

    def _memory(self, p: Any, dtype: Any, shape: Any, strides: Any) -> np.ndarray:
        size = dtype.itemsize
        return view_at(self._id(p), shape, dtype, [s * size for s in strides], self)

    def cublasGemmStridedBatchedEx(self, handle: Any, *rest: Any) -> int:  # noqa: N802
        """Compute a product as cuBLAS does, whose matrices lie in columns."""
        (op_a, op_b, m, n, k, scale, a, kind, lda, step_a, b, _, ldb, step_b, factor, c, out_kind,
         ldc, step_c, count, compute, _) = rest  # fmt: skip
        numbers = (op_a, op_b, m, n, k, lda, step_a, ldb, step_b, ldc, step_c, count, kind,
                   out_kind,
                   compute)  # fmt: skip
        x, y, z = self._matrices(numbers, a, b, c)
        by, times = (
            self.ffi.cast("double *" if out_kind else "float *", p)[0] for p in (scale, factor)
        )

        def multiply() -> None:
            z[...] = by * (x @ y) + (times * z if times else 0)

        return self._noted("product") or self._put(self._id(handle), multiply)

    def _matrices(self, numbers: tuple[int, ...], *addresses: Any) -> list[np.ndarray]:
        """Return both operands and the result of a product."""
        (op_a, op_b, m, n, k, lda, step_a, ldb, step_b, ldc, step_c, count, kind, out_kind,
         _) = numbers  # fmt: skip
        types = {0: np.dtype(np.float32), 1: np.dtype(np.float64)}
        shapes = (count, m, k), (count, k, n), (count, m, n)
        strides = (
            (step_a, *((lda, 1) if op_a else (1, lda))),
            (step_b, *((ldb, 1) if op_b else (1, ldb))),
            (step_c, 1, ldc),
        )
        dtypes = types[kind], types[kind], types[out_kind]
        every = zip(addresses, dtypes, shapes, strides, strict=True)
        return [self._memory(*x) for x in every]

    def cublasLtMatmul(self, handle: Any, about: Any, *rest: Any) -> int:  # noqa: N802
        """Compute a product whose description is the number of its form."""
        _, a, _, b, _, _, c, _, out, _, _, workspace, size, stream = rest
        numbers, scale, step, relu = self.forms[self._id(about) - 1]
        row = self.rows.pop(self._id(about), 0)
        assert not any(self._id(p) % 16 for p in (a, b, c, out))
        assert row % 16 == 0
        assert bool(row) == (relu is not None)
        x, y, z = self._matrices(numbers, a, b, out)
        m, n, dtype = numbers[2], numbers[3], z.dtype
        w = self._memory(c, dtype, (1, m, n), (0, 1, step)) if step else np.zeros(1)
        if row:
            w = view_at(row, (1, m, 1), dtype, (0, dtype.itemsize, 0), self)
        room = self._memory(workspace, np.dtype(np.uint8), (size,), (1,))

        def multiply() -> None:
            room[...] = 0xA5
            z[...] = w + scale * (x @ y)
            if relu:
                np.maximum(z, 0, out=z)

        return self._noted("product lt") or self._put(self._id(stream), multiply)


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

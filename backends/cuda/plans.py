"""Compiled plans on a GPU: kernels printed for it, cuBLAS, and CUDA graphs."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

import cupy
import numpy as np
from adarray_backends.cuda import cublas, modules

from adarray.codegen import cuda
from adarray.codegen.device import Device, Form, form_of, launch_of
from adarray.codegen.device import Launch as Sizes
from adarray.codegen.plan import CallStep, DotStep, KernelStep, Operand, Plan, Step
from adarray.errors import BackendError
from adarray.program import Slot, c_strides

GRAPHS = 8  # of one plan: memory of callers that repeat use the same few addresses
FEW = 3  # kernels that are launched sooner than a graph


class Launch(NamedTuple):
    """One kernel with everything but the addresses of its buffers."""

    function: Any
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    rest: tuple[Any, ...]


def device_of() -> Device:
    """Return what schedules need to know of the current device."""
    found = cupy.cuda.Device().attributes
    return Device(
        found["MultiProcessorCount"],
        found["MaxThreadsPerMultiProcessor"],
        found["MaxSharedMemoryPerBlockOptin"],
    )


class Executable:
    """A plan that is ready to run on device arrays.

    Parameters
    ----------
    plan : Plan
    precision : {"float32", "tf32", "bf16", "fp16"}
        Of products of float32 matrices.
    graphs : bool
        Whether runs are captured and replayed.

    Notes
    -----
    The arena belongs to the executable, so runs on one stream follow each other; results
    are fresh arrays. A graph holds the addresses of inputs and results: there is one for each
    combination that has come up lately.
    """

    def __init__(self, plan: Plan, precision: str = "float32", graphs: bool = True) -> None:
        self.plan = plan
        self.precision = precision
        self.device = device_of()
        self.lock = threading.Lock()
        self.consts = [cupy.asarray(c) for c in plan.consts]
        self.arena = cupy.empty(max(plan.arena, 1), cupy.uint8)
        self.fail = cupy.zeros(1, cupy.int32)
        self.may_fail = False
        self.launches = self._prepare()
        # Results that are whole buffers are made in their shape; others are looks at them.
        whole = {
            id(o.buffer): o.shape
            for o in plan.outputs
            if o.buffer.kind == "output"
            and o.offset == 0
            and o.buffer.size == math.prod(o.shape)
            and o.strides == c_strides(o.shape)
            and sum(p.buffer is o.buffer for p in plan.outputs) == 1
        }
        self.made = [
            (id(b), whole.get(id(b), b.size), b.dtype) for b in plan.buffers if b.kind == "output"
        ]
        self.given = [(id(b), b.index) for b in plan.buffers if b.kind == "input"]
        self.kept = {id(b): self.consts[b.index] for b in plan.buffers if b.kind == "const"}
        for b in plan.buffers:
            if b.kind == "temp":
                end = b.offset + b.size * b.dtype.itemsize
                self.kept[id(b)] = self.arena[b.offset : end].view(b.dtype)
        self.results = [(o, id(o.buffer) if id(o.buffer) in whole else 0) for o in plan.outputs]
        capturable = not any(isinstance(s, CallStep) for s in plan.steps)
        self.graphs: OrderedDict[tuple[int, ...], Any] | None = None
        if graphs and capturable and len(plan.steps) > FEW:
            self.graphs = OrderedDict()
        self.stream = cupy.cuda.Stream(non_blocking=True) if self.graphs is not None else None

    def _prepare(self) -> dict[int, list[Launch]]:
        """Print, compile and size the kernels; return the launches of each step."""
        sized: list[tuple[KernelStep, Form, Sizes, cuda.Text]] = []
        printed: dict[tuple[int, Form], cuda.Text] = {}
        for s in self.plan.steps:
            if not isinstance(s, KernelStep):
                continue
            ints = dict(zip(s.kernel.ints, s.ints, strict=True))
            form = form_of(s.kernel, ints, self.device)
            key = (id(s.kernel), form)
            if key not in printed:
                printed[key] = cuda.source(s.kernel, form)
            sizes = launch_of(s.kernel, form, ints, self.device)
            sized.append((s, form, sizes, printed[key]))
            self.may_fail |= cuda.may_fail(s.kernel)
        functions = modules.load(printed.values())
        # Kernels run one after the other, and each leaves the first bytes zero.
        room = max((sizes.scratch for _, _, sizes, _ in sized), default=256)
        self.scratch = cupy.zeros(room, cupy.uint8)
        return {
            id(s): [
                self._launch(functions[name], name, s, form, sizes)
                for name in (text.name, *text.followers)
            ]
            for s, form, sizes, text in sized
        }

    def _launch(self, function: Any, name: str, s: KernelStep, form: Form, sizes: Sizes) -> Launch:
        """Return the launch of a kernel, or of one that follows it."""
        counts = sizes.blocks, sizes.blocks * sizes.chunks
        rest = (*map(np.int64, s.ints), self.scratch, self.fail, *map(np.int64, counts))
        modules.allow(function, sizes.shared)
        grid, threads = (sizes.blocks, sizes.chunks, 1), form.block
        if name.endswith("_merge"):
            grid, threads = (self._columns(s), 1, 1), cuda.MERGE
        elif name.endswith("_after"):
            grid = (1, 1, 1)
        return Launch(function, grid, (threads, 1, 1), sizes.shared, rest)

    def _columns(self, s: KernelStep) -> int:
        """Return how many blocks combine array totals."""
        outs = {t.out for t in s.kernel.totals if t.size is not None}
        sizes = [b.size for p, b in zip(s.kernel.buffers, s.buffers, strict=True) if p.name in outs]
        return max(1, min(-(-max(sizes) // 32), 8 * self.device.processors))

    # -- running ---------------------------------------------------------------------------

    def __call__(self, arrays: list[Any]) -> list[Any]:
        """Run on the inputs, arrays of the device; return fresh arrays of the device."""
        with self.lock:
            memory = self._memory(arrays)
            if self.graphs is None:
                self._steps(memory)
            else:
                self._replay(memory, arrays)
            if self.may_fail:
                self._look()
            return [memory[key] if key else self._result(o, memory) for o, key in self.results]

    def _memory(self, arrays: list[Any]) -> dict[int, Any]:
        """Return the memory of every buffer."""
        found = dict(self.kept)
        for key, index in self.given:
            found[key] = arrays[index]
        for key, shape, dtype in self.made:
            found[key] = cupy.empty(shape, dtype)
        return found

    def _replay(self, memory: dict[int, Any], arrays: list[Any]) -> None:
        assert self.graphs is not None
        key = tuple(a.data.ptr for a in arrays)
        key += tuple(memory[k].data.ptr for k, _, _ in self.made)
        graph = self.graphs.get(key)
        if graph is None:
            graph = self._captured(memory)
            self.graphs[key] = graph
            if len(self.graphs) > GRAPHS:
                self.graphs.popitem(last=False)
        else:
            self.graphs.move_to_end(key)
        graph.launch(cupy.cuda.get_current_stream())

    def _captured(self, memory: dict[int, Any]) -> Any:
        """Return the graph of all steps."""
        assert self.stream is not None
        with self.stream:
            cublas.handle()  # made outside of the capture
            self.stream.begin_capture()
            try:
                self._steps(memory)
            finally:
                graph = self.stream.end_capture()
        return graph

    def _steps(self, memory: dict[int, Any]) -> None:
        for s in self.plan.steps:
            self._step(s, memory)

    def _step(self, s: Step, memory: dict[int, Any]) -> None:
        if isinstance(s, KernelStep):
            buffers = [memory[id(b)] for b in s.buffers]
            for x in self.launches[id(s)]:
                x.function(x.grid, x.block, (*buffers, *x.rest), x.shared)
        elif isinstance(s, DotStep):
            self._product(s, memory)
        else:
            self._call(s, memory)

    def _look(self) -> None:
        """Raise if a kernel refused its data."""
        code = int(self.fail[0])
        if code:
            self.fail.fill(0)
            raise BackendError(
                f"compiled plan: a kernel refused its data with code {code} (an index out of "
                "bounds, for instance); run the function without jit to see the error"
            )

    # -- steps that are no kernels ---------------------------------------------------------

    def _look_at(self, o: Operand, memory: dict[int, Any]) -> Any:
        base = memory[id(o.buffer)]
        strides = tuple(n * base.itemsize for n in o.strides)
        place = base.data + o.offset * base.itemsize  # keeps the memory
        return cupy.ndarray(o.shape, base.dtype, place, strides)

    def _product(self, s: DotStep, memory: dict[int, Any]) -> None:
        found = [_matrices(o, memory[id(o.buffer)]) for o in (s.a, s.b, s.out)]
        dtype = s.out.buffer.dtype.name
        if dtype in ("float32", "float64") and all(
            m is not None and cublas.suits(m) for m in found
        ):
            cublas.multiply(*found, dtype, self.precision)  # type: ignore[arg-type]
            return
        a, b, out = (self._look_at(o, memory) for o in (s.a, s.b, s.out))
        out[...] = cupy.matmul(a, b)

    def _call(self, s: CallStep, memory: dict[int, Any]) -> None:
        values = [self._look_at(o, memory) for o in s.operands]
        try:
            made = s.function(*_filled(s.args, values), **_filled(s.kwargs, values))
        except Exception:  # what CuPy lacks; NumPy raises what the user's fault is
            values = [x.get() for x in values]
            made = s.function(*_filled(s.args, values), **_filled(s.kwargs, values))
        many = made if isinstance(made, (tuple, list)) else (made,)
        for b, x in zip(s.results, many, strict=True):
            memory[id(b)][...] = cupy.asarray(x).ravel()

    def _result(self, o: Operand, memory: dict[int, Any]) -> Any:
        made = self._look_at(o, memory)
        shared = sum(p.buffer is o.buffer for p in self.plan.outputs) > 1
        return made.copy() if o.buffer.kind != "output" or shared else made


def _matrices(o: Operand, base: Any) -> cublas.Matrix | None:
    """Return an operand of a product for cuBLAS; None if its leading axes are no single one."""
    *lead, rows, columns = o.shape
    *steps, row, column = o.strides
    count, distance = 1, 0
    for n, step in zip(reversed(lead), reversed(steps), strict=True):
        if n == 1:
            continue
        if count == 1:
            distance = step
        elif step != distance * count:
            return None
        count *= n
    address = base.data.ptr + o.offset * base.itemsize
    return cublas.Matrix(address, rows, columns, (row, column), count, distance)


def _filled(x: Any, values: list[Any]) -> Any:
    if isinstance(x, Slot):
        return values[x.index]
    if isinstance(x, (tuple, list)):
        return type(x)(_filled(y, values) for y in x)
    if isinstance(x, dict):
        return {k: _filled(y, values) for k, y in x.items()}
    return x


def executable(plan: Plan, **options: Any) -> Callable[[list[Any]], list[Any]]:
    """Return `plan` as a function of device arrays."""
    return Executable(plan, **options)

"""The arrays of one run of a plan: inputs, results, and views of either."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from adarray_backends.cuda.encoding import CudaEncoder
from adarray_backends.cuda.instances import Instance, Instances
from adarray_backends.cuda.results import Results

from adarray.compiler.ir.plan import CallStep, MatmulStep, Operand
from adarray.compiler.ir.primitives import Slot
from adarray.compiler.ir.program import c_strides
from adarray.compiler.rewrite.fourier import fourier

FRESH, DONATED, VIEW, COPY = range(4)  # what a result is


class PlanRun(NamedTuple):
    """One run: its instance, the inputs and the arrays of its results."""

    instance: Instance
    arrays: list[Any]
    results: list[Any]


class Operands:
    """How a plan's buffers are arrays.

    Parameters
    ----------
    gpu : Gpu
    encoder : CudaEncoder
    instances : Instances
    """

    def __init__(self, gpu: Any, encoder: CudaEncoder, instances: Instances) -> None:
        self.gpu = gpu
        self.plan = plan = encoder.plan
        self.slots = slots = encoder.slots
        self.instances = instances
        self.inputs = [
            (slots[b], b.index, b.size, np.dtype(b.dtype))
            for b in plan.buffers
            if b.kind == "input"
        ]
        self._point = _pointer(self.inputs)
        outputs = [b for b in plan.buffers if b.kind == "output"]
        readers = {b: sum(o.buffer is b for o in plan.outputs) for b in outputs}
        # Results that are whole buffers are allocated in their shape; others are views of them.
        whole = {
            o.buffer: o.shape
            for o in plan.outputs
            if readers.get(o.buffer) == 1
            and o.offset == 0
            and o.buffer.size == math.prod(o.shape)
            and o.strides == c_strides(o.shape)
        }
        self.fresh = [
            (slots[b], whole.get(b, (b.size,)), np.dtype(b.dtype)) for b in outputs if b.donor < 0
        ]
        self.donated = [(slots[b], b.donor) for b in outputs if b.donor >= 0]
        memories = Results(gpu, self.fresh)
        self.bytes, self._begin, self.prepare = memories.bytes, memories.begin, memories.prepare
        self._fresh = {slot: i for i, (slot, _, _) in enumerate(self.fresh)}
        donors = dict(self.donated)
        self.results: list[tuple[int, int]] = []
        for o in plan.outputs:
            slot = slots.get(o.buffer, -1)
            if o.buffer in whole:
                is_fresh = slot in self._fresh
                source = (FRESH, self._fresh[slot]) if is_fresh else (DONATED, donors[slot])
            else:
                source = (COPY if readers.get(o.buffer, 2) > 1 else VIEW, 0)
            self.results.append(source)
        self.plain = self.results == [(FRESH, i) for i in range(len(self.fresh))]

    def begin(self, arrays: list[Any]) -> tuple[Instance, list[Any]]:
        """Write the addresses of a run down; return its instance and the memory of its results."""
        stream = self.gpu.stream().ptr
        x = self.instances.take(stream)
        addresses = x.addresses
        if not self._point(arrays, addresses):
            self._point_with_numbers(x, arrays, stream)
        places = self._begin(x)
        for slot, index in self.donated:
            a = arrays[index]
            if not isinstance(a, self.gpu.ndarray) or not a.flags.c_contiguous:
                raise TypeError(f"compiled plan: input {index} is donated, and no array in C order")
            addresses[slot] = a.data.ptr
        return x, places

    def _point_with_numbers(self, x: Instance, arrays: list[Any], stream: int) -> None:
        """Write the addresses of inputs down, among which are numbers."""
        for i, (slot, index, size, dtype) in enumerate(self.inputs):
            a = arrays[index]
            try:
                x.addresses[slot] = a.data.ptr
            except AttributeError:
                if size != 1 or np.ndim(a) != 0:
                    raise self._unfit(index, size, dtype) from None
                x.addresses[slot] = self.instances.number(x, i, a)
                continue
            if a.size != size or a.dtype != dtype:
                raise self._unfit(index, size, dtype)
        if x.numbers is not None:
            self.gpu.send(x.numbers.ptr, x.values, stream)

    def arrays(self, places: list[Any]) -> list[Any]:
        """Return the arrays of results in their memory."""
        ndarray = self.gpu.ndarray
        return [
            ndarray(shape, dtype, place)
            for (_, shape, dtype), place in zip(self.fresh, places, strict=True)
        ]

    def _unfit(self, index: int, size: int, dtype: np.dtype[Any]) -> TypeError:
        return TypeError(
            f"compiled plan: input {index} is not the array of {size} elements of {dtype} on "
            f"GPU {self.gpu.index} that the plan was made for; make a plan for this signature"
        )

    def view(self, o: Operand, run: PlanRun) -> Any:
        """Return an operand or a result as an array."""
        b, offset = o.buffer, o.offset * o.buffer.dtype.itemsize
        if b.kind == "temp":
            base, offset = run.instance.arena, offset + b.offset
        elif b.kind == "const":
            base = self.instances.consts[b.index].data
        elif b.kind == "input" or b.donor >= 0:
            array = run.arrays[b.index if b.kind == "input" else b.donor]
            if isinstance(array, self.gpu.ndarray):
                base = array.data
            else:
                base = run.instance.numbers
                offset = int(run.instance.addresses[self.slots[b]]) - base.ptr
        else:
            base = run.results[self._fresh[self.slots[b]]].data
        strides = tuple(n * b.dtype.itemsize for n in o.strides)
        return self.gpu.view(base, offset, o.shape, b.dtype, strides)

    def collect(self, run: PlanRun) -> list[Any]:
        """Return the results."""
        results = []
        for o, (how, i) in zip(self.plan.outputs, self.results, strict=True):
            if how == FRESH:
                results.append(run.results[i])
            elif how == DONATED:
                results.append(run.arrays[i])
            else:
                view = self.view(o, run)
                results.append(view.copy() if how == COPY else view)
        return results

    def multiply(self, s: MatmulStep, run: PlanRun, precision: str) -> None:
        """Run a product that cuBLAS cannot do in one call."""
        a, b, out = (self.view(o, run) for o in (s.a, s.b, s.out))
        added = None if s.added is None else self.view(s.added, run).copy()
        self.gpu.multiply(a, b, out, precision)
        if added is not None:
            out *= out.dtype.type(s.scale)
            out += added
        if s.row is not None:
            out += self.view(s.row, run)
        if s.relu:
            out[out < 0] = 0

    def call(self, s: CallStep, run: PlanRun) -> None:
        """Call a function on the GPU's arrays as the library does, and store what it returns."""
        values = [self.view(o, run) for o in s.operands]
        if writes_its_result(s):
            out = s.values[0].shape
            target = self.view(Operand(s.results[0], 0, out, c_strides(out)), run)
            if self.gpu.write(s.function, values, target):
                return
        if not keeps_nothing(s.function):
            # What lies in memory that is used again is not the function's to keep.
            values = [
                x.copy() if o.buffer.kind in ("temp", "output") else x
                for x, o in zip(values, s.operands, strict=True)
            ]

        def arguments(values: list[Any]) -> tuple[Any, Any]:
            return _filled(s.args, values), _filled(s.kwargs, values)

        results = self.gpu.call(s.function, values, arguments)
        for b, value in zip(s.results, results, strict=True):
            self.view(Operand(b, 0, (b.size,), (1,)), run)[...] = value.ravel()


def keeps_nothing(function: Any) -> bool:
    """Whether a function neither writes to its operands nor keeps them for later."""
    module = getattr(function, "__module__", None) or ""
    known = function is np.sum or function is fourier
    return isinstance(function, np.ufunc) or known or module.startswith("numpy.fft")


def writes_its_result(s: CallStep) -> bool:
    """Whether a call is a ufunc of complex arrays that computes in the dtype of its result."""
    f = s.function
    if not isinstance(f, np.ufunc) or f.signature or f.nout != 1 or s.kwargs:
        return False
    if len(s.args) != f.nin or not all(isinstance(x, Slot) for x in s.args):
        return False
    of = s.results[0].dtype
    same = {np.dtype("F"): ("F", "f"), np.dtype("D"): ("D", "d")}.get(of, ())
    return all(o.buffer.dtype.char in same for o in s.operands)


def _pointer(inputs: Iterable[tuple[int, int, int, Any]]) -> Callable[[list[Any], Any], bool]:
    """Return what writes the addresses of inputs down: False unless all are as they should be."""
    lines: list[str] = []
    space: dict[str, Any] = {"__name__": "adarray.generated"}
    for k, (slot, index, size, dtype) in enumerate(inputs):
        space[f"d{k}"] = dtype
        lines.append(f"x = v[{index}]; to[{slot}] = x.data.ptr")
        lines.append(
            f"if x.size != {size} or (x.dtype is not d{k} and x.dtype != d{k}): return False"
        )
    body = "".join(f"\n        {line}" for line in lines)
    text = f"def point(v, to):\n    try:{body}\n        return True\n"
    exec(f"{text}    except AttributeError:\n        return False", space)  # our own text
    point: Callable[[list[Any], Any], bool] = space.pop(
        "point"
    )  # or its globals and it are a cycle
    return point


def _filled(x: Any, values: list[Any]) -> Any:
    """Return arguments with their operands in place."""
    if isinstance(x, Slot):
        return values[x.index]
    if isinstance(x, (tuple, list)):
        items = [_filled(y, values) for y in x]
        return type(x)(*items) if hasattr(x, "_fields") else type(x)(items)
    if isinstance(x, dict):
        return {k: _filled(y, values) for k, y in x.items()}
    return x

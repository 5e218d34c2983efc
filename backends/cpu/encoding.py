"""Plans as lists of integers, which jit.c reads (see `plan_read` there)."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from adarray_backends.cpu.kernels import Functions

from adarray.base.runtime import BY_ENGINE, MODE, Mode
from adarray.compiler.ir.interpret import under
from adarray.compiler.ir.plan import Buffer, CallStep, KernelStep, MatmulStep, Operand, Plan
from adarray.compiler.ir.primitives import PythonCall, Slot
from adarray.compiler.ir.program import c_strides
from adarray.errors import ADArrayError, BackendError

_INPUT, _CONST, _RESULT, _ARENA = range(4)
_KERNEL, _PRODUCT, _COPY, _CALL = range(4)
_ARRAY, _SCALAR = range(2)
_COPY_X, _COPY_Y, _COPY_BOTH = -8, -9, -10
_ALIGNMENT = 64

# Nanoseconds of one thread's work that are worth a thread; and from which on a run lets
# other Python threads go on, which takes 1 to 500 microseconds to end.
SHARE = 20_000.0
RELEASE = 30_000.0
# What products do in a nanosecond on one thread, for those two decisions.
PRODUCT_RATE = 20.0


def _align(n: int) -> int:
    return -(-n // _ALIGNMENT) * _ALIGNMENT


def _dense(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether a view of memory covers a stretch of it, each element once, from its begin."""
    expected = 1
    for stride, n in sorted((s, n) for s, n in zip(strides, shape, strict=True) if n != 1):
        if stride != expected:
            return False
        expected *= n
    return True


class _Product:
    """A matrix product as jit.c wants it; strides in bytes."""

    def __init__(self, x: Operand, y: Operand, step: MatmulStep, threads: int) -> None:
        size = step.out.buffer.dtype.itemsize
        self.size = size
        self.threads = threads
        # A vector is a row of a, or a column of b.
        self.matrix_a = len(x.shape) > 1
        self.matrix_b = len(y.shape) > 1
        core = self.matrix_a + self.matrix_b
        self.dims = step.out.shape[: len(step.out.shape) - core]
        self.a, self.b = x, y

    def _matrix(self, x: Operand, column: bool) -> list[int]:
        size = self.size
        lead = len(x.shape) - 2
        if lead < 0:
            n, stride = x.shape[0], x.strides[0] * size
            words = [n, 1, stride, stride] if column else [1, n, stride, stride]
            return words + [0] * len(self.dims)
        words = [*x.shape[lead:], *(s * size for s in x.strides[lead:])]
        missing = len(self.dims) - lead
        batch = [0 if n == 1 else s * size for n, s in zip(x.shape, x.strides, strict=True)][:lead]
        return words + [0] * missing + batch

    def words(self) -> list[int]:
        """Return what follows the slots in the product's step."""
        return [
            self.size, self.threads, len(self.dims), *self.dims,
            *self._matrix(self.a, False), *self._matrix(self.b, True),
        ]  # fmt: skip


def _filled(x: Any, operands: list[Any]) -> Any:
    """Return an argument of a call with its operands in place of the slots."""
    if isinstance(x, Slot):
        return operands[x.index]
    if isinstance(x, tuple | list):
        items = [_filled(y, operands) for y in x]
        return type(x)(*items) if hasattr(x, "_fields") else type(x)(items)
    if isinstance(x, dict):
        return {k: _filled(y, operands) for k, y in x.items()}
    return x


def _caller(step: CallStep, engine: Any) -> Callable[[list[Any]], list[Any]]:
    """Return a function of the operands, as arrays, that gives a list of arrays in C order."""
    function, args, kwargs = step.function, step.args, step.kwargs
    calls = ((v, v.primitive) for v in step.values if isinstance(v.primitive, PythonCall))
    call, primitive = next(calls, (None, None))
    several = primitive is not None and primitive.results is not None
    if call is None:
        forms: list[tuple[tuple[int, ...], Any]] = [((b.size,), b.dtype) for b in step.results]
    elif several:
        forms = list(primitive.results)
    else:
        forms = [(call.shape, call.dtype)]
    name = getattr(function, "__name__", str(function))

    def run(operands: list[Any]) -> list[Any]:
        # Values without axes are NumPy scalars, as they were when the call was recorded.
        operands = [x if x.ndim else x[()] for x in operands]
        out = function(
            *(_filled(x, operands) for x in args),
            **{k: _filled(x, operands) for k, x in kwargs.items()},
        )
        results = []
        for x, (shape, dtype) in zip(out if several else (out,), forms, strict=True):
            x = np.array(x, dtype, order="C", copy=None)
            if x.shape != shape and call is not None:
                raise ADArrayError(
                    f"{name}: its result had shape {shape} when it was recorded and has "
                    f"{x.shape} now; its shape depends on more than its operands' shapes"
                )
            results.append(x)
        return results

    caller = under(getattr(getattr(call, "origin", None), "errors", None), run)
    return _by_engine(engine, caller) if function in BY_ENGINE and engine is not None else caller


def _by_engine(engine: Any, function: Callable[..., Any]) -> Callable[[list[Any]], list[Any]]:
    """Return a function that computes with an engine, whatever was chosen meanwhile."""
    mode = Mode(engine, name=engine.name)

    def run(operands: list[Any]) -> list[Any]:
        token = MODE.set(mode)
        try:
            results: list[Any] = function(operands)
        finally:
            MODE.reset(token)
        return results

    return run


def _product_caller(dtype: np.dtype[Any]) -> Callable[[list[Any]], list[Any]]:
    return lambda operands: [np.array(np.matmul(*operands), dtype, order="C", copy=None)]


class CpuEncoder:
    """Writes a plan down.

    Parameters
    ----------
    library : Library
        The extension module that will run the plan.
    threads : int
        The most that a step may use.
    products : bool
        Whether the extension module has a BLAS.
    engine : Engine, optional
        Computes parts of functions that the plan calls.

    Attributes
    ----------
    words : list of int
    consts, dtypes, functions : list
        What the words refer to by number.
    memory, result_bytes : int
        Bytes of arena and workspace, and of results.
    step_threads : list of int
        Number of threads of each step of the plan.
    """

    def __init__(self, library: Any, threads: int, products: bool, engine: Any = None) -> None:
        self._engine = engine
        self._library = library
        self._threads = threads
        self._products = products
        self.words: list[int] = []
        self.consts: list[Any] = []
        self.dtypes: list[np.dtype[Any]] = []
        self.functions: list[Any] = []
        self.step_threads: list[int] = []
        self.memory = self.result_bytes = 0
        self._dtype_numbers: dict[Any, int] = {}
        self._slots: list[int] = []
        self._numbers: dict[Buffer, int] = {}
        self._arena = self._workspace = self._count = 0
        self._copied: list[tuple[int, int]] = []  # slots and sizes of copied factors
        self._known_products: dict[Any, tuple[int, list[int]]] = {}

    # -- memory ------------------------------------------------------------------------------

    def _dtype(self, dtype: Any) -> int:
        dtype = np.dtype(dtype)
        if dtype.hasobject:
            raise BackendError(
                f"compiled plan: a value of dtype {dtype} holds Python objects; such functions "
                "run step by step"
            )
        number = self._dtype_numbers.get(dtype)
        if number is None:
            number = self._dtype_numbers[dtype] = len(self.dtypes)
            self.dtypes.append(dtype)
        return number

    def _slot(self, kind: int, index: int, offset: int = 0) -> int:
        self._slots += (kind, index, offset)
        return len(self._slots) // 3 - 1

    def _reserve(self, size: int) -> int:
        """Return the offset of more memory in the arena."""
        offset = self._arena
        self._arena += _align(max(size, 1))
        return offset

    def _place_buffers(self, plan: Plan, direct: Mapping[Buffer, int]) -> None:
        """Give every buffer a slot; `direct` maps output buffers to results."""
        self._arena = _align(plan.arena)
        for b in plan.buffers:
            nbytes = b.size * b.dtype.itemsize
            self._dtype(b.dtype)
            if b.kind == "input":
                slot = self._slot(_INPUT, b.index)
            elif b.kind == "const":
                slot = self._slot(_CONST, b.index)
            elif b.kind == "temp" and b.offset >= 0:  # else nothing reads it
                slot = self._slot(_ARENA, 0, b.offset)
            elif b in direct:
                slot = self._slot(_RESULT, direct[b])
            else:
                slot = self._slot(_ARENA, 0, self._reserve(nbytes))
            self._numbers[b] = slot

    def _input_words(self, plan: Plan) -> list[int]:
        used = {b.index: b for b in plan.buffers if b.kind == "input"}
        count = max(used, default=-1) + 1
        words = [count]
        for i in range(count):
            b = used.get(i)
            if b is None:
                words += (0, 0, 0, 0, -1)
                continue
            place = self._reserve(b.dtype.itemsize) if b.size == 1 else -1
            words += (ord(b.dtype.kind), b.dtype.itemsize, b.size, self._dtype(b.dtype), place)
        return words

    # -- views of memory -----------------------------------------------------------------------

    def _view(self, x: Operand, slot: int | None = None) -> list[int]:
        size = x.buffer.dtype.itemsize
        return [
            self._numbers[x.buffer] if slot is None else slot, x.offset * size,
            self._dtype(x.buffer.dtype), len(x.shape), *x.shape, *(s * size for s in x.strides),
        ]  # fmt: skip

    def _whole(self, b: Buffer) -> Operand:
        return Operand(b, 0, (b.size,), (1,))

    def _emit(self, steps: list[int], *words: int) -> None:
        steps += words
        self._count += 1

    def _copy(self, steps: list[int], origin: int, to: int, x: Operand) -> None:
        self._emit(steps, _COPY, origin, to, x.buffer.dtype.itemsize, *self._view(x))

    # -- results -------------------------------------------------------------------------------

    def _direct(self, plan: Plan) -> dict[Buffer, int]:
        """Return the output buffers that are the memory of a result, with its number."""
        direct: dict[Buffer, int] = {}
        for i, x in enumerate(plan.outputs):
            b = x.buffer
            whole = x.offset == 0 and math.prod(x.shape) == b.size and _dense(x.shape, x.strides)
            if b.kind == "output" and x.shape and whole and b not in direct:
                direct[b] = i
        return direct

    def _results(self, plan: Plan, direct: Mapping[Buffer, int], steps: list[int]) -> list[int]:
        """Return the words of the results; append the copies that some of them need."""
        words = [len(plan.outputs)]
        last = max(len(plan.steps) - 1, 0)
        for i, x in enumerate(plan.outputs):
            if not x.shape:
                words += (_SCALAR, 1, -1, *self._view(x))
                continue
            own = direct.get(x.buffer) == i
            donor = x.buffer.donor if own else -1
            if donor < 0:
                self.result_bytes += math.prod(x.shape) * x.buffer.dtype.itemsize
            if own:
                ordered = x.strides == c_strides(x.shape) or math.prod(x.shape) == 0
                words += (_ARRAY, ordered, donor, *self._view(x))
                continue
            slot = self._slot(_RESULT, i)
            fresh = x._replace(offset=0, strides=c_strides(x.shape))
            words += (_ARRAY, 1, donor, *self._view(fresh, slot))
            self._copy(steps, last, slot, x)
        return words

    # -- steps ---------------------------------------------------------------------------------

    def _kernel(self, steps: list[int], i: int, step: KernelStep, f: Functions) -> None:
        ints = array("q", step.ints)
        ffi, lib = self._library.ffi, self._library.lib
        size = lib.adarray_jit_workspace(f.workspace, ffi.from_buffer("int64_t[]", ints))
        self._workspace = max(self._workspace, _align(size))
        threads = max(1, min(self._threads, int(step.work / SHARE)))
        self.step_threads[i] = threads
        slots = [self._numbers[b] for b in step.buffers]
        self._emit(
            steps, _KERNEL, i, f.run, threads, len(slots), *slots, len(step.ints), *step.ints
        )

    def _product(self, a: Operand, b: Operand, step: MatmulStep) -> tuple[int, list[int]]:
        """Return why BLAS refuses a product of two factors, if it does, and its words.

        Products of equal shapes and strides are looked at once.
        """
        dtype, shape = step.out.buffer.dtype, step.out.shape
        key = (dtype.char, shape, a.shape, a.strides, b.shape, b.strides)
        encoded = self._known_products.get(key)
        if encoded is None:
            words = _Product(a, b, step, self._threads).words()
            ffi, lib = self._library.ffi, self._library.lib
            read = ffi.from_buffer("int64_t[]", array("q", words))
            refused = int(lib.adarray_jit_product(read, len(words)))
            encoded = self._known_products[key] = (refused, words)
        return encoded

    def _copied_factor(self, steps: list[int], i: int, which: int, x: Operand) -> Operand:
        """Copy a factor that BLAS cannot address; axes that only repeat keep one repetition."""
        lead = max(len(x.shape) - 2, 0)
        shape = tuple(
            1 if axis < lead and s == 0 else n
            for axis, (n, s) in enumerate(zip(x.shape, x.strides, strict=True))
        )
        nbytes = math.prod(shape) * x.buffer.dtype.itemsize
        copy = Buffer("temp", x.buffer.dtype, math.prod(shape))
        # All first factors share one place, and all second ones: they are used at once.
        slot, size = self._copied[which]
        self._copied[which] = (slot, max(size, nbytes))
        self._numbers[copy] = slot
        self._copy(steps, i, slot, x._replace(shape=shape))
        strides = tuple(
            0 if n != m else s for n, m, s in zip(x.shape, shape, c_strides(shape), strict=True)
        )
        return Operand(copy, 0, x.shape, strides)

    def _dot(self, steps: list[int], i: int, step: MatmulStep) -> None:
        dtype = step.out.buffer.dtype
        if math.prod(step.out.shape) == 0:
            return
        known = dtype in (np.dtype(np.float32), np.dtype(np.float64))
        alike = step.a.buffer.dtype == dtype == step.b.buffer.dtype
        if not (self._products and known and alike and step.a.shape[-1]):
            self._call_words(steps, i, _product_caller(dtype), (step.a, step.b), (step.out.buffer,))
            return
        self.step_threads[i] = self._threads
        a, b = step.a, step.b
        refused, words = self._product(a, b, step)
        if refused in (_COPY_X, _COPY_BOTH):
            a = self._copied_factor(steps, i, 0, a)
        if refused in (_COPY_Y, _COPY_BOTH):
            b = self._copied_factor(steps, i, 1, b)
        if a is not step.a or b is not step.b:
            refused, words = self._product(a, b, step)
        if refused:
            self._call_words(steps, i, _product_caller(dtype), (step.a, step.b), (step.out.buffer,))
            return
        places: list[int] = []
        for x in (a, b, step.out):
            places += (self._numbers[x.buffer], x.offset * x.buffer.dtype.itemsize)
        self._emit(steps, _PRODUCT, i, *places, *words)

    def _call_words(
        self,
        steps: list[int],
        i: int,
        function: Any,
        operands: tuple[Operand, ...],
        results: tuple[Buffer, ...],
    ) -> None:
        number = len(self.functions)
        self.functions.append(function)
        self._emit(steps, _CALL, i, number, len(operands), len(results))
        for x in operands:
            steps += self._view(x)
        for b in results:
            steps += self._view(self._whole(b))

    def encode(
        self, plan: Plan, names: Mapping[int, str], functions: Mapping[str, Functions]
    ) -> None:
        """Write down a plan whose kernels have these names, by step, and addresses."""
        direct = self._direct(plan)
        self.consts = [np.array(x, order="C", copy=None) for x in plan.consts]
        self.step_threads = [1] * len(plan.steps)
        self._place_buffers(plan, direct)
        first = len(self._slots)
        copies = [self._slot(_ARENA, 0), self._slot(_ARENA, 0)]
        self._copied = [(slot, 0) for slot in copies]
        steps: list[int] = []
        for i, step in enumerate(plan.steps):
            if isinstance(step, KernelStep):
                self._kernel(steps, i, step, functions[names[i]])
            elif isinstance(step, MatmulStep):
                self._dot(steps, i, step)
            else:
                self._call_words(steps, i, _caller(step, self._engine), step.operands, step.results)
        for k, (_, size) in enumerate(self._copied):
            self._slots[first + 3 * k + 2] = self._reserve(size)
        results = self._results(plan, direct, steps)
        inputs = self._input_words(plan)
        head = [
            self._arena, self._workspace, max(self.step_threads, default=1),
            _estimate(plan) > RELEASE, max(1, len(plan.steps)), len(self._slots) // 3,
        ]  # fmt: skip
        self.words = [*map(int, head), *self._slots, *inputs, *results, self._count, *steps]
        self.memory = self._arena + self._workspace * max(self.step_threads, default=1)


def _estimate(plan: Plan) -> float:
    """Return about how many nanoseconds the steps take that are not Python's."""
    total = 0.0
    for step in plan.steps:
        if isinstance(step, KernelStep):
            total += step.work
        elif isinstance(step, MatmulStep):
            total += 2.0 * math.prod(step.out.shape) * step.a.shape[-1] / PRODUCT_RATE
    return total

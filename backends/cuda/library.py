"""CuPy on one GPU, as adarray's core uses it."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

import adarray_native
import numpy as np
from adarray_backends.cuda import contractions, conv_work, nvrtc, pointwise
from adarray_backends.cuda.engine import THREADS, CudaEngine
from adarray_backends.cuda.folds import CHARS, Folder, in_parts, normalized, of_parts
from adarray_backends.cuda.truths import Truths, without_templates

from adarray.base.op import FUNCTIONS, POINTWISE, Op, Pointwise, Reduction
from adarray.compiler.scalars.eager import FIXED
from adarray.device import DeviceArray, Form, Library
from adarray.device.layouts import lie_in_c_order

_FLOATS = {np.dtype(np.float32): "float32", np.dtype(np.float64): "float64"}
POSITIVE = FUNCTIONS[np.positive]
_BROADCAST = FUNCTIONS[np.broadcast_to]
_LINEAR = FUNCTIONS[np.sum], FUNCTIONS[np.mean]
_NUMBERS = frozenset({float, int, bool})
_REDUCTIONS = frozenset({np.sum, np.prod, np.mean, np.max, np.min})
_FOLDED = frozenset({"axis", "keepdims"})
_TRUTHS = frozenset({np.any, np.all})
# Those of numpy.linalg whose only reductions are of what their solvers say.
_SOLVERS = frozenset({"solve", "inv", "cholesky", "eigh", "eigvalsh", "svd", "qr"})
# What NumPy refuses or computes otherwise for complex operands.
_REAL_ONLY = frozenset({
    "clip", "ihfft", "rfft", "rfft2", "rfftn", "interp", "nanprod", "nanstd", "nansum", "nanvar",
    "nanmean", "percentile", "quantile", "nanpercentile", "nanquantile", "i0", "bincount",
    "arctan2", "copysign", "hypot",
})  # fmt: skip
_MUCH = 1 << 20  # bytes
_SHORT_INDEX = 1 << 31


@functools.cache
def _header() -> str:
    text = adarray_native.text("adarray_math.h")
    return text + pointwise.LOGARITHMS


def _no_nan(g: Any, r: Any) -> Any:
    return np.where(np.isnan(r) & np.equal(g, 0), 0, r)


_STRONG_ZERO = Op("strong_zero", _no_nan, Pointwise(_no_nan), (), operands=("g", "r"))


class CudaLibrary(Library):
    """CuPy on the GPU number `index`.

    Parameters
    ----------
    cupy : module
    index : int
    """

    def __init__(self, cupy: Any, index: int) -> None:
        super().__init__()
        self.xp = cupy
        self.kind = cupy.ndarray
        self.index = index
        self.name = f"cuda:{index}"
        self.flushes = True  # CuPy compiles everything so
        self.out_of_memory = (cupy.cuda.memory.OutOfMemoryError,)
        self.unable = (*Library.unable, cupy.cuda.compiler.CompileException)
        self.device = cupy.cuda.Device(index)
        self._several = cupy.cuda.runtime.getDeviceCount() > 1
        properties = cupy.cuda.runtime.getDeviceProperties(index)
        self._engine = CudaEngine(self)
        self._texts: dict[Any, Any] = {}
        self._kernels: dict[Any, Any] = {}
        self._folds: dict[Any, Any] = {}
        self._repeated: dict[Any, Any] = {}
        self._folder = Folder(self, 8 * int(properties["multiProcessorCount"]))
        self._truths = Truths(self)

    # -- for compiled code -----------------------------------------------------------------

    def aligned(self, raw: Any) -> bool:
        """Whether the elements of an array lie at multiples of their size."""
        size = raw.itemsize
        return raw.data.ptr % size == 0 and all(s % size == 0 for s in raw.strides)

    def fits(self, form: Form) -> Callable[[Any], bool]:
        """Return a test of whether an array is on this GPU and has a form."""
        dtype, shape, strides, aligned, *_ = form
        if strides is not None or not aligned:
            return super().fits(form)
        index, size = self.index, dtype.itemsize

        def test(x: Any) -> bool:
            at = x.data
            return (
                x.dtype is dtype
                and x.shape == shape
                and x.flags.c_contiguous
                and at.ptr % size == 0
                and at.device_id == index
            )

        return test

    def engine(self) -> CudaEngine:
        """Return the engine that compiles for arrays which meet outside of `use` blocks."""
        return self._engine

    # -- transfers and memory --------------------------------------------------------------

    def to_device(self, values: np.ndarray) -> Any:
        """Return a copy of an ndarray on the GPU, in the machine's byte order."""
        if not values.dtype.isnative:
            values = values.astype(values.dtype.newbyteorder("="))
        return self.xp.array(values)

    def to_host(self, raw: Any) -> np.ndarray:
        """Return a copy as an ndarray, with the axes in the same order in memory."""
        if raw.flags.forc:
            values: np.ndarray = raw.get(order="A")
            return values
        axes = np.argsort([-abs(s) for s in raw.strides], kind="stable")
        values = raw.transpose(tuple(map(int, axes))).get()
        return values.transpose(np.argsort(axes))

    def fetch(self, x: DeviceArray) -> DeviceArray:
        """Return a copy of an array of another GPU, in the order of both GPUs' streams."""
        if x.library.kind is not self.kind:
            return super().fetch(x)
        start = perf_counter_ns()
        raw = self.run(self._fetched, x.library.run(self.xp.ascontiguousarray, x.raw))
        self.transfers.to_device += 1
        self.transfers.bytes_to_device += raw.nbytes
        self._note("to", start, raw.nbytes, raw.shape)
        return DeviceArray(raw, self, x.scalar)

    def _fetched(self, raw: Any) -> Any:
        """Copy from GPU to GPU; what is behind either array waits for the other's stream."""
        cuda = self.xp.cuda
        copy = self.xp.empty(raw.shape, raw.dtype)
        to = cuda.get_current_stream()
        with raw.device:
            to.wait_event(cuda.get_current_stream().record(cuda.Event(disable_timing=True)))
        copy.data.copy_from_device_async(raw.data, raw.nbytes, to)
        done = to.record(cuda.Event(disable_timing=True))
        with raw.device:
            cuda.get_current_stream().wait_event(done)
        return copy

    def shares(self, a: Any, b: Any) -> bool:
        """Whether two arrays lie in the same allocation."""
        return bool(a.data.mem is b.data.mem)

    def overlap(self, a: Any, b: Any) -> bool:
        """Whether two arrays may have an element in common."""
        # Small results of a compiled plan lie in one allocation, one behind the other.
        return a.data.mem is b.data.mem and bool(self.xp.may_share_memory(a, b))

    def release(self) -> None:
        """Give the memory that compiled plans keep, and the pool's free blocks, back."""
        from adarray_backends.cuda import plans

        plans.give_back()
        self.xp.get_default_memory_pool().free_all_blocks()

    def memory(self) -> str:
        """Return words about the GPU's memory."""
        free, total = self.xp.cuda.runtime.memGetInfo()
        used = self.xp.get_default_memory_pool().used_bytes()
        return (
            f"{used / 2**30:.2f} GiB are in use by arrays, {free / 2**30:.2f} of "
            f"{total / 2**30:.2f} GiB are free"
        )

    def synchronize(self) -> None:
        """Wait for the current stream of this GPU."""
        if not self._several:
            self.xp.cuda.get_current_stream().synchronize()
            return
        with self.device:
            self.xp.cuda.get_current_stream().synchronize()

    def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function of CuPy with this GPU as the current one."""
        if not self._several:
            try:
                return function(*args, **kwargs)
            except self.out_of_memory:
                return super().run(function, *args, **kwargs)
        with self.device:
            return super().run(function, *args, **kwargs)

    def find(self, function: Any) -> Any:
        """Return CuPy's counterpart; those of numpy.linalg raise NumPy's errors."""
        if function is np.linalg.eig:
            return None  # the derivative rule relies on LAPACK's choice of phases
        implementation = super().find(function)
        module = getattr(function, "__module__", None) or ""
        if implementation is not None and function.__name__ in _REAL_ONLY:
            return _real_only(implementation)
        if implementation is None or not module.startswith("numpy.linalg"):
            return implementation
        import cupyx

        solves = function.__name__ in _SOLVERS

        def checked(*args: Any, **kwargs: Any) -> Any:
            short = without_templates() if solves else contextlib.nullcontext()
            with cupyx.errstate(linalg="raise"), short:
                return implementation(*args, **kwargs)

        return checked

    def ufunc(
        self, ufunc: Any, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Call a ufunc: where it has a record, the printed kernel."""
        if method == "__call__" and not kwargs:
            op = POINTWISE.get(ufunc)
            if op is not None:
                r = self._map(op, -1, inputs, 0)
                if r is not NotImplemented:
                    return r
            elif ufunc is np.matmul:
                inputs = tuple(map(self.place, inputs))
                r = contractions.matmul(self, *inputs)
                if r is not NotImplemented:
                    if r.ndim > 2 and not lie_in_c_order(inputs):
                        r.raw = self.laid(ufunc, inputs, {}, r.raw)
                    return r
        return super().ufunc(ufunc, method, inputs, kwargs)

    def call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function of NumPy: reductions with printed kernels, products with cuBLAS."""
        if function in _REDUCTIONS and len(args) <= 2 and kwargs.keys() <= _FOLDED:
            params = kwargs if len(args) == 1 else {"axis": args[1], **kwargs}
            r = self.compute(FUNCTIONS[function], args[:1], params)
            if r is not NotImplemented:
                return r
        elif function in _TRUTHS and len(args) == 1 and type(args[0]) is DeviceArray:
            whole = all(v is None or v is False for v in kwargs.values())
            if whole and args[0].library is self:
                raw = self._truths.of(function, args[0].raw)
                if raw is not NotImplemented:
                    return DeviceArray(raw, self, True)
        elif function is np.einsum and len(args) == 3:
            r = contractions.einsum(self, *args, **kwargs)
            if r is not NotImplemented:
                r.raw = self.laid(function, args, kwargs, r.raw)
                return r
        return super().call(function, args, kwargs)

    def copied(self, raw: Any, order: Any) -> Any:
        """Return a copy; a kernel is twice as fast as the driver's copy."""
        if order != "C" and raw.flags.f_contiguous and not raw._c_contiguous:  # stays in columns
            transposed = self.copied(raw.T, "C")
            return self.kind(raw.shape, raw.dtype, transposed.data, transposed.strides[::-1])
        if raw.nbytes < _MUCH or raw.dtype.char not in CHARS or not raw._c_contiguous:
            return super().copied(raw, order)
        text = pointwise.identity(CHARS[raw.dtype.char])
        return self._run((POSITIVE, -1, raw.dtype.char, None), text, [raw], "f", 0, raw.shape).raw

    # -- pointwise operations ------------------------------------------------------------------

    def pointwise(self, op: Op, values: tuple[Any, ...]) -> Any:
        """Compute a pointwise operation with a printed kernel."""
        return self._map(op, -1, values, 0)

    def derivative(self, op: Op, operand: int, g: Any, saved: tuple[Any, ...]) -> Any:
        """Compute a derivative rule with one printed kernel."""
        return self._map(op, operand, (g, *saved), 2)

    def strong_zero(self, g: Any, r: Any) -> Any:
        """Return `r`, zeros in place of nan where `g` is zero, with a printed kernel."""
        return self._map(_STRONG_ZERO, -1, (g, r), 0)

    def _map(self, op: Op, operand: int, values: tuple[Any, ...], first: int) -> Any:
        """Run a kernel on ``values``: operands, or ``(g, out, *operands)`` with `first` 2."""
        char = ""
        for x in values:
            if type(x) is DeviceArray and x.raw.dtype.char in CHARS:
                char = x.raw.dtype.char
                break
        else:
            return NotImplemented
        fixed = _fixed(op, values[first:]) if op.name in FIXED else None
        key = (op, operand, char, fixed)
        try:
            text, reads = self._texts[key]
        except KeyError:
            text, reads = self._texts[key] = self._text(key, first)
        if text is None:
            return NotImplemented
        arguments, arrays, shape, same, plain = [], 0, (), True, True
        for position, truth in reads:
            x = values[position]
            if type(x) is DeviceArray:
                raw = x.raw
                if x.library is not self:
                    raise self._elsewhere(x.library.name)
                if raw.dtype.char != ("?" if truth else char):
                    return NotImplemented
                if not arrays:
                    shape = raw.shape
                elif raw.shape != shape:
                    same = False
                plain = plain and raw._c_contiguous
                arrays += 1
                arguments.append(raw)
            else:
                argument = _argument(x, char, truth)
                if argument is None:
                    return NotImplemented
                arguments.append(argument)
        if not arrays:
            return NotImplemented
        if same and plain and (first or len(reads) == len(values)):
            kinds = "f" * arrays if arrays == len(arguments) else _kinds(arguments, self.kind)
            return self._run(key, text, arguments, kinds, 0, shape)
        kind = self.kind
        shapes = {x.shape for x in arguments if type(x) is kind}
        if operand < 0:  # operands that the kernel does not read give the result its shape, too
            shapes.update(x.raw.shape for x in values if type(x) is DeviceArray)
        (shape,) = shapes if len(shapes) == 1 else (np.broadcast_shapes(*shapes),)
        return self._launch(key, text, arguments, shape)

    def _text(self, key: Any, first: int) -> Any:
        """Return the text of a kernel and, for each input, where it is and if it is a truth."""
        op, operand, char, fixed = key
        text = pointwise.text_of(op, operand, CHARS[char], fixed)
        if text is None:
            return None, ()
        places = {"g": 0, "out": 1}
        return text, tuple(
            (places[n] if n in places else first + int(n[1:]), n in text.truths)
            for n in text.inputs
        )

    def _launch(
        self, key: Any, text: pointwise.PointwiseText, arguments: list[Any], shape: tuple[int, ...]
    ) -> Any:
        kind = self.kind
        arrays = [x for x in arguments if type(x) is kind]
        same = all(x.shape == shape for x in arrays)
        if same and all(x.flags.c_contiguous for x in arrays):
            kinds, columns = _kinds(arguments, kind), 0
        else:
            if len(shape) > 1 and all(
                x.flags.f_contiguous and x.ndim == len(shape) and not x.flags.c_contiguous
                for x in arrays
            ):
                transposed = [x.T if type(x) is kind else x for x in arguments]
                result = self._launch(key, text, transposed, shape[::-1])
                return result if result is NotImplemented else DeviceArray(result.raw.T, self)
            arrangement = pointwise.arrangement(
                [(x.shape, x.strides) for x in arrays], [x.itemsize for x in arrays], shape
            )
            if arrangement is None:
                return NotImplemented
            letters, columns = iter(arrangement[0]), arrangement[1]
            kinds = "".join(next(letters) if type(x) is kind else "n" for x in arguments)
        return self._run(key, text, arguments, kinds, columns, shape)

    def _run(
        self, key: Any, text: pointwise.PointwiseText, operands: list[Any], kinds: str,
        columns: int, shape: tuple[int, ...],
    ) -> Any:  # fmt: skip
        out = self.run(self.xp.empty, shape, key[2])
        size = out.size
        if size:
            pack = 2 if key[2] == "d" else 4
            if size % pack or columns % pack or not _aligned(operands, kinds):
                pack = 1
            threads = THREADS.get()
            full = (key, kinds, pack, size < _SHORT_INDEX, threads)
            kernel = self._kernels.get(full)
            if kernel is None:
                index = "unsigned int" if size < _SHORT_INDEX else "long long"
                source = pointwise.source(text, kinds, pack, index, threads)
                kernel = self.compiled(source, text.name)
                self._kernels[full] = kernel
            whole: Any = np.uint32 if size < _SHORT_INDEX else np.int64
            blocks = -(-size // (pack * threads))
            arguments = (*operands, out, whole(size), whole(columns or 1))
            self.run(kernel, (min(blocks, 1 << 30),), (threads,), arguments)
        return DeviceArray(out, self, not shape and key[0].name != "where")

    def compiled(self, source: str, *names: str) -> Any:
        """Return the kernels of a text, compiled once and kept on disk."""
        kernels = self.run(nvrtc.load, self.xp, f"{_header()}\n{source}", names)
        return kernels if len(kernels) > 1 else kernels[0]

    # -- reductions ----------------------------------------------------------------------------

    def compute(self, op: Op, values: tuple[Any, ...], params: dict[str, Any]) -> Any:
        """Compute a reduction with printed kernels, a convolution, or a view of repeated rows."""
        if op.name in conv_work.NAMES:
            return contractions.convolve(self, op.name, *values, params)
        if not values or type(values[0]) is not DeviceArray:
            return NotImplemented
        if op is _BROADCAST and type(params["shape"]) is tuple:
            result = DeviceArray(
                self.run(self.xp.broadcast_to, values[0].raw, params["shape"]), self
            )
            result._writeable = False  # its elements share memory
            return result
        if not isinstance(op.lower, Reduction):
            return NotImplemented
        x = values[0].raw
        char = x.dtype.char
        if not x.size or params.get("dtype") is not None:
            return NotImplemented
        axis, keep = params.get("axis"), bool(params.get("keepdims"))
        if char not in CHARS:
            return self._of_parts(op, x, axis, keep)
        transposed = not x._c_contiguous
        if transposed:
            if not x.flags.f_contiguous:
                return NotImplemented
            x = x.T
        aligned = x.data.ptr % 16 == 0
        try:
            key = (op, char, x.shape, axis, keep, transposed, aligned, THREADS.get())
            plan = self._folds.get(key)
        except TypeError:  # an axis that is no number
            return NotImplemented
        if plan is None:
            plan = self._folds[key] = self._folder.plan(*key[:-1])
        if plan is NotImplemented:
            return NotImplemented
        raw, aside = plan.run(self, x)
        result = DeviceArray(raw, self, not raw.ndim)
        result.aside = None if transposed else aside
        return result

    def _of_parts(self, op: Op, x: Any, axis: Any, keep: bool) -> Any:
        """Fold the real and the imaginary parts of an array, for each of which a sum is one."""
        if op not in _LINEAR or x.dtype.kind != "c" or not x._c_contiguous:
            return NotImplemented
        axes = normalized(axis, x.ndim)
        if not axes:
            return NotImplemented
        parts = DeviceArray(in_parts(x), self)
        folded = self.compute(op, (parts,), {"axis": tuple(axes), "keepdims": keep})
        if folded is NotImplemented:
            return NotImplemented
        return DeviceArray(of_parts(folded.raw, x.dtype), self, folded.raw.ndim == 1)

    def rule(self, node: Any, operand: int, g: Any, saved: tuple[Any, ...]) -> Any:  # noqa: ARG002
        """Compute the cotangent of what was broadcast, or of a maximum.

        That of a maximum along the last axes, if its kernel found the ties.
        """
        if node.op is _BROADCAST:
            return self._summed(g, saved[1].shape)
        if node.op.name not in ("max", "min"):
            return NotImplemented
        out = saved[0]
        if type(out) is not DeviceArray or out.aside is None:
            return NotImplemented
        a, dtype = saved[1].raw, _FLOATS.get(saved[1].raw.dtype)
        if dtype is None or not a.flags.c_contiguous or g.raw.dtype != a.dtype:
            return NotImplemented
        outer = out.raw.size
        n, raw = a.size // outer, g.raw
        single = all(s == 0 for s, d in zip(raw.strides, raw.shape, strict=True) if d > 1)
        if not single and not raw.flags.c_contiguous:
            raw = self.run(self.xp.ascontiguousarray, raw)
        wide = 2 if dtype == "float64" else 4
        pack = wide if n % wide == 0 and a.data.ptr % 16 == 0 else 1
        _, backward = self._folder.extrema(node.op.name, dtype, pack)
        result = self.run(self.xp.empty, a.shape, dtype)
        self.run(backward, (outer,), (THREADS.get(),),
                 (a, out.raw, raw, np.int32(not single), out.aside, result,
                  np.int32(n)))  # fmt: skip
        return DeviceArray(result, self)

    def _summed(self, g: Any, shape: tuple[int, ...]) -> Any:
        """Sum over the axes along which an array of `shape` was broadcast."""
        if type(g) is not DeviceArray or not shape:
            return NotImplemented
        raw = g.raw
        if not raw._c_contiguous or raw.data.ptr % 16:
            return NotImplemented
        key = (raw.shape, shape, raw.dtype.char, THREADS.get())
        plan = self._repeated.get(key)
        if plan is None:
            plan = self._repeated[key] = self._folder.repetition(*key[:-1])
        if plan is NotImplemented:
            return NotImplemented
        return DeviceArray(plan.run(self, raw)[0], self)


def _fixed(op: Op, values: tuple[Any, ...]) -> int | None:
    """Return which of the values with kernels of their own an operand has."""
    operand, fixed = FIXED[op.name]
    value = values[operand]
    if (type(value) is int or type(value) is float) and value in fixed:
        return fixed.index(value)
    return None


def _aligned(arguments: list[Any], kinds: str) -> bool:
    """Whether arrays that are read several elements at a time begin where that is allowed."""
    for x, how in zip(arguments, kinds, strict=True):
        # Of arrays that are no views, too: other libraries' memory begins anywhere.
        if (how == "f" or how == "r") and x.data.ptr % 16:
            return False
    return True


def _kinds(arguments: list[Any], kind: type) -> str:
    """Return how arrays in C order, of the shape of the result, and numbers are read."""
    return "".join("f" if type(x) is kind else "n" for x in arguments)


def _argument(x: Any, char: str, truth: bool) -> Any:
    """Return a number as kernels take it; None if they do not."""
    if type(x) in _NUMBERS:
        if truth:
            return np.uint8(bool(x))
        with np.errstate(over="ignore"):
            return np.float32(x) if char == "f" else np.float64(x)
    if isinstance(x, np.generic) and x.dtype.char == ("?" if truth else char):
        return np.uint8(bool(x)) if truth else x
    return None


def _real_only(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that leaves complex operands to NumPy."""

    def call(*args: Any, **kwargs: Any) -> Any:
        if any(getattr(x, "dtype", _REAL).kind == "c" for x in args):
            raise TypeError("complex operands")
        return function(*args, **kwargs)

    return call


_REAL = np.dtype(float)

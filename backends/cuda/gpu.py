"""One GPU as compiled plans use it: its memory, streams, and the driver's functions."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import cupy
import numpy as np
from adarray_backends.cuda import (
    algorithms,
    conv,
    conv_work,
    cublas,
    cufft,
    cusolver,
    fourier,
    lt,
    modules,
    products,
    rounding,
)
from adarray_backends.cuda.launcher import (
    FLAGS,
    FUNCTIONS,
    Flag,
    ModuleFunctions,
    RecordingStream,
    native,
)
from cffi import FFI

from adarray.base.op import OPS
from adarray.compiler.ir.target import GpuTarget
from adarray.compiler.print_cuda.printer import KernelText
from adarray.errors import BackendError
from adarray.ops.windows import geometry_for

_TO_DEVICE = 1  # cudaMemcpyHostToDevice
_FLAG_BYTES = 4 * FLAGS
_SHARE = 256  # of a GPU's memory, the part that a plan may keep for results
_PRODUCTS = frozenset({"float32", "float64", "float16"})  # dtypes that cuBLAS multiplies
_MOST_RECORDERS = 16  # that are kept for plans to come
_lock = threading.Lock()
_recorders: dict[Any, RecordingStream] = {}
_ffi = FFI()
_ffi.cdef("""
int cuGetErrorName(int, const char **);
int cuGetErrorString(int, const char **);
""")


@functools.cache
def _driver() -> Any:
    """Return the driver's library.

    Raises
    ------
    BackendError
        If there is none.
    """
    names = (f"int {name}();" for name in FUNCTIONS)
    ffi = FFI()
    ffi.cdef("".join(names))
    try:
        return ffi, ffi.dlopen("libcuda.so.1"), _ffi.dlopen("libcuda.so.1")
    except OSError as error:
        raise BackendError(
            f"backend 'cuda': libcuda.so.1 cannot be loaded ({error}); install the NVIDIA driver"
        ) from error


@functools.cache
def functions() -> tuple[int, ...]:
    """Return the addresses of what device_launch.c calls of the driver.

    Raises
    ------
    BackendError
        If the driver lacks one of them.
    """
    ffi, library, _ = _driver()
    try:
        pointers = [ffi.addressof(library, name) for name in FUNCTIONS]
    except AttributeError as error:
        raise BackendError(
            f"backend 'cuda': the driver is too old for compiled plans ({error}); update it"
        ) from error
    return tuple(int(ffi.cast("uintptr_t", f)) for f in pointers)


@functools.cache
def _total(index: int) -> int:
    """Return the bytes of memory that a GPU has."""
    return int(cupy.cuda.Device(index).mem_info[1])


@functools.cache
def target_of(index: int) -> GpuTarget:
    """Return what the compiler knows of a GPU."""
    attributes = cupy.cuda.Device(index).attributes
    sms = attributes["MultiProcessorCount"]
    return GpuTarget(
        strips=4 * sms,
        sms=sms,
        threads_per_sm=attributes["MaxThreadsPerMultiProcessor"],
        shared_memory=attributes["MaxSharedMemoryPerBlockOptin"],
    )


class Gpu:
    """One GPU.

    Parameters
    ----------
    library : CudaLibrary

    Attributes
    ----------
    alloc : callable
        Returns memory of the current allocator; its address is ``ptr``.
    """

    def __init__(self, library: Any) -> None:
        self.library = library
        self.index: int = library.index
        self.ndarray = cupy.ndarray
        self.alloc = cupy.cuda.alloc
        self.out_of_memory = library.out_of_memory
        self.stream = cupy.cuda.get_current_stream
        self.several = cupy.cuda.runtime.getDeviceCount() > 1
        self.target = target_of(self.index)

    def current(self) -> AbstractContextManager[Any]:
        """Return what makes this GPU the current one."""
        if not self.several or cupy.cuda.runtime.getDevice() == self.index:
            return nullcontext()
        return cupy.cuda.Device(self.index)  # type: ignore[no-any-return]

    def attach(self) -> None:
        """Let this thread call the driver."""
        with cupy.cuda.Device(self.index):
            cupy.cuda.runtime.free(0)

    def functions(self, products: bool) -> list[int]:
        """Return the addresses of what device_launch.c calls."""
        matmuls = (cublas.product_address(), lt.address()) if products else (0, 0)
        return [*functions(), *matmuls]

    def product(self, stacks: list[Any], dtype: str, precision: str, to: Any) -> bool:
        """Hand what cuBLAS does for a product to `to`; return False if it cannot do it.

        Parameters
        ----------
        stacks : list of (int, tuple, tuple)
            Addresses, shapes and strides in elements of both operands and the result.
        dtype : str
        precision : str
        to : Notes
        """
        a, b, out = (products.MatrixStack(*x) for x in stacks)
        vectors = len(a.shape) == 1 and len(b.shape) == 1
        if dtype not in _PRODUCTS or vectors or 0 in (*a.shape, *b.shape):
            return False
        products.product(a, b, out, dtype, precision, to)
        return True

    def algorithm(
        self, numbers: tuple[int, ...], scale: float, step: int, relu: bool | None
    ) -> lt.LtMatmul | None:
        """Return a product of cuBLASLt; None if cuBLAS is to compute it.

        Parameters
        ----------
        numbers : tuple of int
            As `cublas.numbers` gives them.
        scale : float
            Its factor.
        step : int
            Distance of the rows of the matrix that is added, 0 if there is none.
        relu : bool or None
            Whether numbers below zero become zero once a vector was added to each row; None: no
            vector is added.
        """
        epilogue = 0 if relu is None else lt.ROW_RELU if relu else lt.ROW
        return algorithms.chosen(lt.MatmulForm(numbers, scale, step, epilogue))

    def add_row(
        self, out: int, row: int, numbers: tuple[int, ...], relu: bool, through: Any
    ) -> None:
        """Hand the addition of a vector to each row of a product, float32, to `through`."""
        rounding.add_row(out, row, numbers[3], numbers[2], relu, through)

    def copy_result(self, address: int, to: int, numbers: tuple[int, ...], through: Any) -> None:
        """Hand the copy of a matrix like a product's result, in C order, to `through`."""
        kind = next(k for k, n in cublas.TYPES.items() if n == numbers[13])
        shape = 1, 1, 1, numbers[2] * numbers[3]
        rounding.copy(address, to, shape, (0, 0, 0, 1), kind, kind, through)

    def convolution(self, function: Any) -> str:
        """Return the name of the convolution that a function computes, "" for others."""
        return next((n for n in conv_work.NAMES if OPS[n].evaluate is function), "")

    def convolve(
        self, name: str, addresses: list[int], shapes: list[tuple[int, ...]], params: Any,
        dtype: str, precision: str, to: Any,
    ) -> bool:  # fmt: skip
        """Hand the kernels of a convolution to `to`; return False if there are none.

        Parameters
        ----------
        name : str
        addresses : list of int
            Of both operands and the result, in C order.
        shapes : list of tuple
            Of the operands.
        params : dict
            Of the call.
        dtype, precision : str
        to : Notes
        """
        if dtype not in ("float32", "float64"):
            return False
        sizes = geometry_for(name, *shapes, params)
        if not conv_work.suits(sizes):
            return False
        setting = dtype if dtype == "float64" else precision
        conv.launch(name, *addresses, sizes, setting, to)
        return True

    def solver(self) -> tuple[int, Any]:
        """Return the address of a cuSOLVER handle for the current stream, and what owns it."""
        handle = cusolver.CusolverHandle(self.stream().ptr)
        return handle.address, handle

    def solver_kernel(self, name: str, char: str, shared: int) -> int:
        """Return the address of a kernel of `solvers` that may have so much shared memory."""
        function = cusolver.kernel(cupy.cuda.runtime.getDevice(), name, char)
        # With what the kernel has beside, it may be more than one gets without asking.
        return self.address(function, max(shared, modules.USUAL_SHARED + 1) if shared else 0)

    def solver_function(self, name: str, char: str) -> int:
        """Return the address of one of `solvers.NAMES` for a dtype."""
        return cusolver.function(name, char)

    def solver_room(self, name: str, n: int, char: str) -> int:
        """Return how many elements a factorisation needs to work in."""
        return cusolver.room(name, n, char)

    def solver_one(self, char: str) -> int:
        """Return the address of the number 1, on the host."""
        return cublas.one(char)

    def transform(self, form: fourier.TransformForm) -> cufft.CufftPlan | None:
        """Return a plan of cuFFT; None if it has none."""
        return cufft.plan(form)

    def fourier_kernel(self, name: str, char: str) -> int:
        """Return the address of a kernel of `fourier` for a dtype."""
        return int(cufft.kernels(cupy.cuda.runtime.getDevice(), char)[name].ptr)

    def load(self, texts: Iterable[KernelText]) -> ModuleFunctions:
        """Return compiled kernels."""
        return modules.load(texts)

    def address(self, function: Any, shared: int) -> int:
        """Return the address of a kernel that may have so much shared memory."""
        modules.allow(function, shared)
        return int(function.ptr)

    def keep(self, text: KernelText) -> str:
        """Return the path of a file that holds the text of a kernel."""
        return modules.keep(text)

    # -- memory ----------------------------------------------------------------------------

    def spare(self) -> int:
        """Return how many bytes of results a plan may keep on each stream."""
        return _total(self.index) // _SHARE

    def owner(self, memory: Any) -> Any:
        """Return what all pointers into one piece of memory refer to."""
        return memory.mem

    def zeros(self, size: int) -> Any:
        """Return memory that holds zeros."""
        memory = cupy.cuda.alloc(size)
        memory.memset_async(0, size, self.stream())
        return memory

    def upload(self, values: np.ndarray) -> Any:
        """Return a copy on the GPU, which is complete before any stream can use it."""
        array = cupy.asarray(values)
        self.stream().synchronize()
        return array

    def send(self, to: int, values: np.ndarray, stream: int) -> None:
        """Copy few bytes to an address."""
        cupy.cuda.runtime.memcpyAsync(to, values.ctypes.data, values.nbytes, _TO_DEVICE, stream)

    def view(
        self, memory: Any, offset: int, shape: tuple[int, ...], dtype: Any, strides: Any
    ) -> Any:
        """Return an array that lies in memory, which it keeps."""
        return cupy.ndarray(shape, dtype, memory + offset, strides)

    def flag(self) -> Flag:
        """Return int32 with the value 0."""
        owner = cupy.cuda.alloc_pinned_memory(_FLAG_BYTES)
        _ffi.memmove(_ffi.cast("char *", owner.ptr), bytes(_FLAG_BYTES), _FLAG_BYTES)
        # Addresses of pinned memory are the same on both sides.
        return Flag(owner, owner.ptr, owner.ptr)

    def release(self) -> None:
        """Give back the memory that nobody uses."""
        self.library.release()

    def memory(self) -> str:
        """Return words about memory."""
        return str(self.library.memory())

    # -- steps that Python runs ------------------------------------------------------------

    def multiply(self, a: Any, b: Any, out: Any, precision: str) -> None:
        """Write a product to an array in C order."""
        if products.suits(a, b):
            stacks = (products.stack_of(x) for x in (a, b, out))
            products.product(*stacks, out.dtype.name, precision)  # type: ignore[arg-type]
        else:
            out[...] = cupy.matmul(a, b)

    def call(
        self, function: Callable[..., Any], values: list[Any], arguments: Callable[[list[Any]], Any]
    ) -> list[Any]:
        """Return what a function of NumPy gives for arrays of this GPU, as such arrays.

        Parameters
        ----------
        function : callable
        values : list
            The operands.
        arguments : callable
            Makes positional and named arguments of operands.
        """
        args, kwargs = arguments([self.library.wrap(x, False) for x in values])
        results = function(*args, **kwargs)
        many = results if isinstance(results, (tuple, list)) else (results,)
        return [cupy.asarray(self.library.raw(x)) for x in many]

    def write(self, function: np.ufunc, values: list[Any], out: Any) -> bool:
        """Let a ufunc write to an array that no operand overlaps; return False if CuPy has none."""
        implementation = self.library.function(function)
        if not isinstance(implementation, cupy.ufunc):
            return False
        self.library.run(implementation, *values, out=out)
        return True

    # -- products, graphs and errors -------------------------------------------------------

    def blas(self) -> tuple[int, Any]:
        """Return the address of the cuBLAS handle of the current stream, and what owns it."""
        handle = cublas.handle()
        return cublas.address(handle), handle

    def recorder(self, products: bool) -> RecordingStream:
        """Return what graphs for the current stream are recorded with, shared by all plans."""
        key = (self.index, self.stream().ptr, threading.get_ident(), products)
        with _lock:
            recorder_ = _recorders.get(key)
            if recorder_ is None:
                stream = cupy.cuda.Stream(non_blocking=True)
                # Work that was recorded runs on the current stream: its handle's memory is free.
                handle = (
                    cublas.CublasHandle(stream.ptr, cublas.handle().memory) if products else None
                )
                blas = cublas.address(handle) if handle is not None else 0
                busy = native().ffi.new("int *")
                recorder_ = RecordingStream(stream.ptr, blas, busy, (stream, handle))
                while len(_recorders) >= _MOST_RECORDERS:
                    _recorders.pop(next(iter(_recorders)))
                _recorders[key] = recorder_
        return recorder_

    def error(self, status: int) -> str:
        """Return the driver's words for an error."""
        _, _, driver = _driver()
        words = []
        for f in (driver.cuGetErrorName, driver.cuGetErrorString):
            text = _ffi.new("const char **")
            if f(status, text) == 0 and text[0] != _ffi.NULL:
                words.append(_ffi.string(text[0]).decode())
        return ": ".join(words) or f"error {status}"

    def events(self, count: int) -> list[Any]:
        """Return events that measure time."""
        return [cupy.cuda.Event() for _ in range(count)]

    def elapsed(self, first: Any, last: Any) -> float:
        """Return the milliseconds between two events."""
        return float(cupy.cuda.get_elapsed_time(first, last))

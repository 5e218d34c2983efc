"""A GPU that is none: a driver in Python (see fake_driver.py), kernels run by the processor.

`FakeGpu` has what `adarray_backends.cuda.gpu.Gpu` has; arrays are NumPy's, streams run at once.

For tests of launching plans.
"""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import adarray_native
import numpy as np
from adarray_backends.cuda import fourier, solvers
from adarray_backends.cuda.launcher import (
    FLAGS as WORDS,
)
from adarray_backends.cuda.launcher import (
    PRODUCTS,
    Flag,
    ModuleFunctions,
    RecordingStream,
    native,
)
from cffi import FFI
from fake_driver import FakeDriver, view_at

from adarray.compiler.ir.target import GpuTarget
from adarray.compiler.print_cuda.printer import KernelText

ROOT = Path(__file__).resolve().parents[2]
FLAGS = ["-std=c++17", "-O0", "-w", "-fPIC", "-shared", "-ffp-contract=off", "-fwrapv"]
NOTING = ["-O1", "-c", "-DHOST_RACES", "-fsanitize=thread"]
SMALL = GpuTarget(sms=2, threads_per_sm=256, shared_memory=4096)
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


@functools.cache
def _compiled(text: str, names: tuple[str, ...], races: bool) -> tuple[FFI, Any]:
    """Return a library of kernels: those of solvers are the same for all tests of a process."""
    folder = Path(tempfile.mkdtemp(prefix="adarray-kernels-"))
    source, library = folder / "unit.cpp", folder / "unit.so"
    source.write_text(text)
    include = [*adarray_native.INCLUDE_CUDA, f"-I{ROOT / 'tests' / 'support'}"]
    if races:  # linked apart, without the sanitiser's library
        flags = [f for f in FLAGS if f not in ("-O0", "-shared")]
        noted = source.with_suffix(".o")
        subprocess.run(
            ["g++", *flags, *NOTING, *include, str(source), "-o", str(noted)], check=True
        )
        source = noted
    subprocess.run(["g++", *FLAGS, *include, str(source), "-o", str(library)], check=True)
    ffi = FFI()
    ffi.cdef("".join(f"int {n}_run(uint64_t *, unsigned, unsigned, unsigned);" for n in names))
    unit = ffi.dlopen(str(library))
    shutil.rmtree(folder)
    return ffi, unit


class FakeProduct(NamedTuple):
    """A product of cuBLASLt: the number of its form."""

    number: int
    tell: int
    workspace: int = 512

    def words(self) -> tuple[int, ...]:
        return (self.number, *(0,) * 7, self.workspace, self.tell)


class FakeTransform(NamedTuple):
    """A plan of cuFFT."""

    number: int
    functions: tuple[int, int, int]
    room: int = 768


class Memory(NamedTuple):
    """Memory at an address, with what keeps it."""

    ptr: int
    owner: Any

    def __add__(self, offset: Any) -> Memory:
        return Memory(self.ptr + offset, self.owner)


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


class FakeEvent:
    """A time that the processor reads."""

    def record(self) -> None:
        self.seconds = perf_counter()

    def synchronize(self) -> None:
        assert self.seconds


class FakeGpu:
    """A GPU that runs on the processor.

    Attributes
    ----------
    driver : FakeDriver
    now : FakeStream
        The current stream.
    room : int
        How many more allocations succeed; -1 for all.
    lt : bool
        Whether cuBLASLt computes products that only it adds to something.
    cufft : bool
        Whether cuFFT has plans.
    races : bool
        Whether kernels fail whose threads race in shared memory: see device_races.h.
    """

    ndarray = FakeArray
    out_of_memory = (FullError,)
    several = False
    index = 0
    races = False

    def __init__(self, folder: Path) -> None:
        self.driver = FakeDriver()
        self.folder = folder
        self.now = FakeStream(0)
        self.room = -1
        self.lt = True
        self.released = 0
        self.handles: dict[int, int] = {}
        self.solvers: dict[tuple[str, str], dict[str, Any]] = {}
        self.transforms: dict[str, dict[str, Any]] = {}
        self.cufft = True
        self.busy = native().ffi.new("int *")
        self.copy = 1 << 30
        self.driver.kernels[self.copy] = "copied", 7, self._copied
        self.addition = self.copy + 16
        self.driver.kernels[self.addition] = "added", 5, self._added

    def _copied(self, cells: Any, *_: int) -> int:
        """Copy a matrix into rows without gaps."""
        of, to, rows, columns, row, column, kind = (int(cells[i]) for i in range(7))
        dtype = np.dtype(np.float64 if kind else np.float32)
        size = dtype.itemsize
        x = view_at(of, (rows, columns), dtype, (row * size, column * size), self)
        view_at(to, (rows, columns), dtype, (columns * size, size), self)[...] = x
        return 0

    def _added(self, cells: Any, *_: int) -> int:
        """Add a vector to each row of a float32 matrix."""
        to, row, rows, columns, relu = (int(cells[i]) for i in range(5))
        x = view_at(to, (rows, columns), np.float32, (4 * columns, 4), self)
        x += view_at(row, (columns,), np.float32, (4,), self)
        if relu:
            np.maximum(x, 0, out=x)
        return 0

    def stream(self) -> FakeStream:
        return self.now

    def current(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def attach(self) -> None:
        self.driver.log.append(("attach", None))

    target = SMALL

    def functions(self, products: bool) -> list[int]:
        functions = list(self.driver.addresses)
        return functions if products else [*functions[: -len(PRODUCTS)], 0, 0]

    def product(self, stacks: Any, dtype: str, precision: str, to: Any) -> bool:
        """Write down products of matrices of one leading axis at most, after copies into rows."""
        kinds = {"float32": 0, "float64": 1}
        if dtype not in kinds or min(len(shape) for _, shape, _ in stacks) < 2:
            return False
        lead = stacks[2][1][:-2]
        if any(shape[:-2] not in ((), lead) for _, shape, _ in stacks) or len(lead) > 1:
            return False
        count = lead[0] if lead else 1
        results, distances, begin = [], [], 0
        for address, shape, strides in stacks:
            distances.append(strides[0] if len(shape) > 2 and count > 1 else 0)
            row, column = strides[-2:]
            rows, columns = shape[-2:]
            if precision == "bf16" and len(results) < 2:  # as what converts operands
                size = 8 * count * rows * columns
                place = to.room(begin + size) + begin
                begin += size
                numbers = (rows, columns, row, column, kinds[dtype])
                to.copy(
                    self.copy, (1, 1, 1), (32, 1, 1), (Address(address), Address(place), *numbers)
                )
                results.append((place, 0, columns))
            elif column == 1 or columns == 1:
                results.append((address, 0, max(row if rows > 1 else columns, 1)))
            elif row == 1 or rows == 1:
                results.append((address, 1, max(column if columns > 1 else rows, 1)))
            else:
                return False
        (a, op_a, lda), (b, op_b, ldb), (out, _, ldc) = results
        (m, k), n = stacks[0][1][-2:], stacks[1][1][-1]
        numbers = (
            op_b, op_a, n, m, k, ldb, distances[1], lda, distances[0], ldc, distances[2], count,
            kinds[dtype], kinds[dtype], 0,
        )  # fmt: skip
        to.multiply(b, a, out, numbers)
        return True

    def algorithm(
        self, numbers: tuple[int, ...], scale: float, step: int, relu: bool | None
    ) -> Any:
        if not self.lt or not (step or relu is not None):
            return None
        self.driver.forms.append((numbers, scale, step, relu))
        return FakeProduct(len(self.driver.forms), 0 if relu is None else self.driver.tell[1])

    def add_row(
        self, out: int, row: int, numbers: tuple[int, ...], relu: bool, through: Any
    ) -> None:
        """Add a vector to each row of a product."""
        args = (numbers[3], numbers[2], int(relu))
        through.copy(self.addition, (1, 1, 1), (32, 1, 1), (Address(out), Address(row), *args))

    def copy_result(self, address: int, to: int, numbers: tuple[int, ...], through: Any) -> None:
        """Copy a matrix like a product's result."""
        args = (1, numbers[2] * numbers[3], 0, 1, numbers[13])
        through.copy(self.copy, (1, 1, 1), (32, 1, 1), (Address(address), Address(to), *args))

    def convolution(self, function: Any) -> str:
        return ""

    def solver(self) -> tuple[int, Any]:
        return self.now.ptr, self.now

    def solver_kernel(self, name: str, char: str, shared: int) -> int:
        """Return a kernel of linear algebra, which the processor runs."""
        assert shared <= self.target.shared_memory
        part = solvers.part_of(name)
        if (part, char) not in self.solvers:
            self.solvers[part, char] = self.load([solvers.text_of(part, char)]).functions
        return int(self.solvers[part, char][name])

    def solver_function(self, name: str, char: str) -> int:
        return self.driver.linalg(name, char)

    def solver_room(self, name: str, n: int, char: str) -> int:
        return n

    def solver_one(self, char: str) -> int:
        return int(self.driver.ffi.cast("uintptr_t", self.driver.ones[char]))

    def transform(self, form: fourier.TransformForm) -> FakeTransform | None:
        if not self.cufft:
            return None
        return FakeTransform(*self.driver.cufft(form, FakeTransform._field_defaults["room"]))

    def fourier_kernel(self, name: str, char: str) -> int:
        """Return a kernel that copies beside transforms, which the processor runs."""
        if char not in self.transforms:
            self.transforms[char] = self.load([fourier.text_of(char)]).functions
        return int(self.transforms[char][name])

    def load(
        self, texts: Iterable[KernelText | solvers.SolverText | fourier.FourierText]
    ) -> ModuleFunctions:
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
        ffi, unit = _compiled("\n".join(parts), tuple(names), self.races)
        table = {}
        for name, count in names.items():
            run = getattr(unit, f"{name}_run")
            table[name] = int(ffi.cast("uintptr_t", run))

            def call(cells: Any, *sizes: int, run: Any = run, ffi: FFI = ffi) -> int:
                address = int(self.driver.ffi.cast("uintptr_t", cells))
                return int(run(ffi.cast("uint64_t *", address), *sizes))

            self.driver.kernels[table[name]] = name, count, call
        return ModuleFunctions(table, (len(texts), 0, 0))

    def address(self, function: Any, shared: int) -> int:
        assert shared <= self.target.shared_memory
        return int(function)

    def keep(self, text: KernelText) -> str:
        path = self.folder / f"{text.name}.cu"
        path.write_text(text.text)
        return str(path)

    def _allocated(self, size: int, value: int) -> Memory:
        if self.room == 0:
            raise FullError(f"{size} bytes")
        self.room -= self.room > 0
        array = np.full(size + 256, value, np.uint8)
        return Memory(-(-array.ctypes.data // 256) * 256, array)

    def alloc(self, size: int) -> Memory:
        return self._allocated(size, 0xC3)

    def spare(self) -> int:
        return 1 << 20

    def owner(self, memory: Memory) -> Any:
        return memory.owner

    def zeros(self, size: int) -> Memory:
        return self._allocated(size, 0)

    def upload(self, values: np.ndarray) -> FakeArray:
        return np.array(values).view(FakeArray)

    def send(self, to: int, values: np.ndarray, stream: int) -> None:
        self.driver.log.append(("send", stream))
        view_at(to, values.shape, values.dtype, values.strides, self)[...] = values

    def view(self, memory: Any, offset: int, shape: Any, dtype: Any, strides: Any) -> FakeArray:
        return view_at(memory.ptr + offset, shape, dtype, strides, memory.owner).view(FakeArray)

    def flag(self) -> Any:
        owner = np.zeros(WORDS, np.int32)
        return Flag(owner, owner.ctypes.data, owner.ctypes.data)

    def release(self) -> None:
        self.released += 1

    def memory(self) -> str:
        return "0 bytes are free"

    def blas(self) -> tuple[int, Any]:
        return self.now.ptr, self.now

    def recorder(self, products: bool) -> Any:
        stream = (1 << 40) + self.now.ptr
        return RecordingStream(stream, stream if products else 0, self.busy)

    def events(self, count: int) -> list[FakeEvent]:
        return [FakeEvent() for _ in range(count)]

    def elapsed(self, first: FakeEvent, last: FakeEvent) -> float:
        return 1e3 * (last.seconds - first.seconds)

    def error(self, status: int) -> str:
        return f"CUDA_ERROR_{status}"

    def multiply(self, a: Any, b: Any, out: Any, precision: str) -> None:
        self.driver.log.append(("multiply", precision))
        out[...] = np.matmul(a, b)

    def write(self, function: Any, values: list[Any], out: Any) -> bool:
        if function is np.arctan:  # as if the library had none
            return False
        assert not any(np.may_share_memory(x, out) for x in values)
        self.driver.log.append(("write", function))
        function(*values, out=out)
        return True

    def call(self, function: Any, values: list[Any], arguments: Any) -> list[Any]:
        self.driver.log.append(("call", function))
        args, kwargs = arguments([np.asarray(v) for v in values])
        result = function(*args, **kwargs)
        return [np.asarray(x) for x in (result if isinstance(result, (tuple, list)) else (result,))]

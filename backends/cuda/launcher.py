"""Steps of plans written down for device_launch.c, and what runs them.

Kernels and products name memory by slots; each run has a table of where slots are.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from adarray.errors import BackendError

# In the order of DeviceFunctions in device_steps.h, where those of `PRODUCTS` follow.
FUNCTIONS = (
    "cuLaunchKernel",
    "cuMemcpyDtoDAsync_v2",
    "cuStreamSynchronize",
    "cuStreamBeginCapture_v2",
    "cuStreamEndCapture",
    "cuStreamGetCaptureInfo_v2",
    "cuGraphInstantiateWithFlags",
    "cuGraphLaunch",
    "cuGraphExecKernelNodeSetParams",
    "cuGraphExecUpdate_v2",
    "cuGraphExecDestroy",
    "cuGraphDestroy",
    "cuStreamQuery",
)
PRODUCTS = "cublasGemmStridedBatchedEx", "cublasLtMatmul"
BLAS = 1 << 16
LINALG = 1 << 17
FOURIER = 3 << 16
REFUSED = 1 << 20
MOVES = -2
FLAGS = 16
STAGED = 4 << 20  # bytes that products read of an input which may be copied at each run


class SlotOffset(NamedTuple):
    """Where something is: a slot, and bytes from its beginning."""

    slot: int
    offset: int = 0


class KernelRecord(NamedTuple):
    """A launch of a kernel; its arguments are places and integers, 8 bytes each."""

    function: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    arguments: tuple[SlotOffset | int, ...]

    def words(self) -> list[int]:
        """Return the launch as device_steps.c reads it."""
        words = [1, len(self.arguments), self.function, *self.grid, *self.block, self.shared]
        for x in self.arguments:
            words += (x.slot, x.offset) if isinstance(x, SlotOffset) else (-1, int(x))
        return words


class MatmulRecord(NamedTuple):
    """A product of cuBLAS: operands, and numbers as device_steps.c has them.

    The result is `scale` times the product, and `factor` times what was there before.
    """

    first: SlotOffset
    second: SlotOffset
    out: SlotOffset
    numbers: tuple[int, ...]
    scale: float = 1.0
    factor: float = 0.0

    def words(self) -> list[int]:
        """Return the product as device_steps.c reads it."""
        factors = np.array([self.scale, self.factor]).view(np.int64).tolist()
        return [2, 3, *self.first, *self.second, *self.out, *self.numbers, *factors]


class LtMatmulRecord(NamedTuple):
    """A product of cuBLASLt: operands, what is added, memory to work in, and `lt.Product.words`.

    What is added is a matrix, or a vector to each row.
    """

    first: SlotOffset
    second: SlotOffset
    out: SlotOffset
    added: SlotOffset
    workspace: SlotOffset
    row: SlotOffset
    about: tuple[int, ...]

    def words(self) -> list[int]:
        """Return the product as device_steps.c reads it."""
        places = self.first, self.second, self.out, self.added, self.workspace, self.row
        return [3, 6, *(x for place in places for x in place), *self.about]


class LinalgRecord(NamedTuple):
    """A call of cuSOLVER, or of cuBLAS's triangular solve: what they take, a handle first.

    `which` is the number of the function, as device_steps.h has them.
    """

    function: int
    which: int
    arguments: tuple[SlotOffset | int, ...]

    def words(self) -> list[int]:
        """Return the call as device_steps.c reads it."""
        words = [4, len(self.arguments), self.function]
        for x in self.arguments:
            words += (x.slot, x.offset) if isinstance(x, SlotOffset) else (-1, int(x))
        return [*words, self.which]


class FourierRecord(NamedTuple):
    """A transform of cuFFT: operand, result, memory to work in, and the plan.

    `direction` is 0 where one side is real. `functions` are the addresses of what runs the plan,
    sets its stream, and sets its memory.
    """

    operand: SlotOffset
    out: SlotOffset
    workspace: SlotOffset
    plan: int
    direction: int
    functions: tuple[int, int, int]

    def words(self) -> list[int]:
        """Return the transform as device_steps.c reads it."""
        places = *self.operand, *self.out, *self.workspace
        return [5, 3, *places, self.plan, self.direction, *self.functions]


class Extent(NamedTuple):
    """The bytes of a slot that products read; none if it cannot be copied for them."""

    low: int = 0
    bytes: int = 0


class ModuleFunctions(NamedTuple):
    """Kernels by name; how many were compiled, loaded from disk, and there."""

    functions: dict[str, Any]
    counts: tuple[int, int, int] = (0, 0, 0)


class Flag(NamedTuple):
    """`FLAGS` int32 of the host that kernels can write: owner, and addresses on both sides.

    The first one is for what kernels refuse, others for checks that are through.
    """

    owner: Any
    host: int
    device: int


class RecordingStream(NamedTuple):
    """A stream to record graphs on: its address, a cuBLAS handle's, and what owns them.

    `busy` is an int of C that says whether somebody records.
    """

    stream: int
    blas: int
    busy: Any
    owners: tuple[Any, ...] = ()


Record = KernelRecord | MatmulRecord | LtMatmulRecord | LinalgRecord | FourierRecord


def encode(records: list[Record], extents: list[Extent]) -> np.ndarray:
    """Return steps as words.

    Parameters
    ----------
    records : list
    extents : list of Extent
        Of each slot.
    """
    words = [len(extents), len(records)]
    for e in extents:
        words += e if e.bytes <= STAGED else Extent()
    for record in records:
        words += record.words()
    return np.array(words, np.int64)


class GraphCounts(NamedTuple):
    """How often graphs were launched, made, nodes of them changed, and graphs recorded again."""

    replays: int = 0
    captures: int = 0
    updates: int = 0
    recordings: int = 0


_module: Any = None


def native() -> Any:
    """Return the extension module that runs steps.

    Raises
    ------
    BackendError
        If it was not built.
    """
    global _module
    if _module is None:
        try:
            from adarray_native import _device
        except ImportError as error:
            raise BackendError(
                f"backend 'cuda': its C module is missing ({error}), because no C compiler worked "
                "when adarray was installed; install one (gcc) and reinstall adarray, or leave "
                "jit out"
            ) from error
        _module = _device
    return _module


class Runner:
    """Steps with everything that they need to run on one stream.

    Parameters
    ----------
    words : ndarray of int64
        From `encode`.
    functions : list of int
        Addresses of `FUNCTIONS` and `PRODUCTS`.
    addresses : cffi array
        Of each slot; kept and read at every run.
    refused : int
        Address of the int32 that kernels may write; 0 if none does.
    blas : int
        Address of the cuBLAS handle of the stream.
    checked : int
        Address of the int32 in which a kernel says that no other will write there; 0 if none does.
    """

    __slots__ = ("_addresses", "handle", "lib", "words")

    def __init__(
        self, words: np.ndarray, functions: list[int], addresses: Any, refused: int, blas: int,
        checked: int = 0,
    ) -> None:  # fmt: skip
        module = native()
        ffi, self.lib = module.ffi, module.lib
        self._addresses = addresses
        self.words = words
        runner = self.lib.adarray_device_new(
            ffi.cast("int64_t *", ffi.from_buffer(words)), len(words),
            ffi.new("uintptr_t[]", functions), addresses, ffi.cast("int *", refused),
            ffi.cast("int *", checked), ffi.cast("void *", blas),
        )  # fmt: skip
        if runner == ffi.NULL:
            raise BackendError("compiled plan: its steps cannot be written down; report this")
        self.handle = ffi.gc(runner, self.lib.adarray_device_free)

    def extent(self, slot: int) -> Extent:
        """Return what products read of a slot."""
        return Extent(*self.words[2 + 2 * slot : 4 + 2 * slot].tolist())

    def counts(self) -> GraphCounts:
        """Return what happened with graphs."""
        return GraphCounts(*(self.lib.adarray_device_count(self.handle, i) for i in range(4)))

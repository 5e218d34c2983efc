"""Loop IR as CUDA C: one kernel, and those that combine what its groups have folded.

Threads of a group do the same, but for vector loops, whose iterations they share, and for
writes, which its first thread makes. The schedule (`adarray.compiler.schedule.gpu.schedules`)
says who is a group, its outline (`adarray.compiler.schedule.gpu.outline`) how each statement is
printed.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from adarray.compiler.ir.loopir import Fail, Kernel, Local, statements
from adarray.compiler.print_cuda.emitters import emit
from adarray.compiler.print_cuda.statements import CudaPrinter
from adarray.compiler.print_cuda.totals import Totals
from adarray.compiler.scalars.dtypes import SIZES, STORED
from adarray.compiler.schedule.gpu.launch import MERGE, ZEROS
from adarray.compiler.schedule.gpu.outline import Outline, outlined
from adarray.compiler.schedule.gpu.schedules import DeviceScan, FlatLoops, Schedule, SheetRows

_KERNEL = """\
extern "C" __global__ void __launch_bounds__({threads}) {name}({parameters})
{{
{body}
}}
"""


class KernelText(NamedTuple):
    """A printed kernel.

    Parameters
    ----------
    name : str
        Of the kernel, which begins with ``adk_``.
    text : str
    followers : tuple of str
        Kernels that must run after it, in this order, with the same arguments:
        ``<name>_scan``, ``<name>_merge`` and ``<name>_after``, whose sizes
        `adarray.compiler.schedule.gpu.launch.grids` gives.
    """

    name: str
    text: str
    followers: tuple[str, ...] = ()


def source(schedule: Schedule) -> KernelText:
    """Return the CUDA C text of a kernel.

    Its parameters are the buffers, the integers (int64), the workspace, which begins
    with `ZEROS` bytes of zeros, an int32 that is set to the code of a `Fail`, the number of
    blocks that share out rows, and of all blocks (int64). Those of the kernels that follow
    it are the same.
    """
    main, after = outlined(schedule)
    texts = {"": _kernel("@", main)}
    if isinstance(schedule, DeviceScan):
        texts["_scan"] = _kernel("@_scan", main, second=True)
    if main.separate:
        texts["_merge"] = _merge(main)
    if after is not None:
        texts["_after"] = _kernel("@_after", after)
    text = "".join(texts.values())
    name = "adk_" + hashlib.sha256(text.encode()).hexdigest()[:24]
    text = '#include "adarray_device.h"\n' + text.replace("@", name)
    return KernelText(name, text, tuple(name + suffix for suffix in texts if suffix))


def may_fail(kernel: Kernel) -> bool:
    """Whether a kernel may refuse its data."""
    return any(isinstance(s, Fail) for s in statements(kernel.body))


def _kernel(name: str, outline: Outline, second: bool = False) -> str:
    """Return the text of a kernel."""
    p = CudaPrinter(outline)
    _head(p)
    emit(p, second)
    return _function(p, name, outline.schedule.block, outline.resident)


def _merge(outline: Outline) -> str:
    """Return the text of the kernel that combines the groups' totals."""
    p = CudaPrinter(outline)
    _head(p)
    Totals(p).merge()
    return _function(p, "@_merge", MERGE, 1)


def _function(p: CudaPrinter, name: str, threads: int, resident: int) -> str:
    """Return what a printer has printed as a function."""
    lines = [f"    {line}" for line in p.scopes[0].lines]
    if p.rooms:
        lines.insert(0, f"    __shared__ double rooms_[{64 * p.rooms}];")
        lines.insert(1, "    int turn_ = 0;")
    bounds = f"{threads}, {resident}" if resident else str(threads)
    parameters = ", ".join(_parameters(p.kernel))
    return _KERNEL.format(threads=bounds, name=name, parameters=parameters, body="\n".join(lines))


def _parameters(kernel: Kernel) -> list[str]:
    parameters = []
    for i, b in enumerate(kernel.buffers):
        const = "const " if b.access == "in" else ""
        parameters.append(f"{const}{STORED[b.dtype]} *__restrict__ const b{i}")
    parameters += [f"const int64_t n{i}" for i in range(len(kernel.ints))]
    return [
        *parameters, "char *const scratch", "int *const fail", "const int64_t blocks",
        "const int64_t parts",
    ]  # fmt: skip


def _head(p: CudaPrinter) -> None:
    """Print who this thread is, and where the parts of the workspace begin."""
    group, block = p.schedule.group, p.schedule.block
    if isinstance(p.schedule, FlatLoops):
        p.line(f"const {p.counter} lane = ({p.counter})blockIdx.x * {block} + threadIdx.x;")
        p.line(f"const {p.counter} span = ({p.counter})gridDim.x * {block};")
    elif isinstance(p.schedule, SheetRows):
        p.line(f"const int lane = blockIdx.y * {group} + threadIdx.x % {group};")
        p.line(f"const int span = gridDim.y * {group};")
    else:
        p.line(f"const int lane = threadIdx.x % {group};")
        p.line(f"const int span = {group};")
    p.line(f"const int64_t groups = blocks * {block // group};")
    p.line(f"const int64_t group = (int64_t)blockIdx.x * {block // group} + threadIdx.x / {group};")
    p.line("__shared__ double room_[32];")
    p.line("ADARRAY_NEAR(near_);")
    for text in _offsets(p):
        p.line(text)
    names = "lane", "span", "groups", "group", "room_", "near_", "merge_"
    p.line(", ".join(f"(void){name}" for name in names) + ";")


def _offsets(p: CudaPrinter) -> list[str]:
    """Return lines that compute where totals and local arrays begin, in either memory."""
    lines, far, close, memory = [], str(ZEROS), "0", p.outline.memory
    for x in memory.placed:
        i = memory.places[x]
        size = None if x.size is None else f"({p.index(x.size)} + 63) / 64 * 64"
        if x.name in memory.shared:
            letter = "o" if isinstance(x, Local) else "p"
            lines.append(f"const int64_t {letter}{i} = {close};")
            per = p.schedule.block // p.schedule.group
            close = f"{letter}{i} + {size} * {per * SIZES[x.dtype]}"
            if isinstance(x, Local):
                continue
        lines.append(f"const int64_t o{i} = {far};")
        count = f"{'blocks' if x.name in memory.merged else 'groups'} * ({size})"
        if size is None:
            count = "(parts + 63) / 64 * 64"
        far = f"o{i} + {count} * {SIZES[x.dtype]}"
    lines.append(f"const int64_t merge_ = {close};")
    return lines

"""Loop IR as CUDA C: one kernel, and those that combine what its groups have folded.

Threads of a group do the same, but for vector loops, whose passes they share, and for
writes, which its first thread makes. `adarray.compiler.schedule.gpu` says who is a group.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from adarray.compiler.ir.affine import ZERO
from adarray.compiler.ir.loopir import (
    Apply,
    Const,
    Expr,
    Fail,
    Fold,
    For,
    Kernel,
    Let,
    Local,
    Stmt,
    Store,
    Total,
    Var,
    statements,
    walk,
)
from adarray.compiler.print_c.printer import is_parallel
from adarray.compiler.print_c.values import Operand, Scope, fixed
from adarray.compiler.print_cuda.fetch import Fetching
from adarray.compiler.print_cuda.held import Holding
from adarray.compiler.print_cuda.lanes import LaneLoops
from adarray.compiler.print_cuda.scans import RunningLoops
from adarray.compiler.print_cuda.tiles import TileLoops
from adarray.compiler.print_cuda.waits import Waits
from adarray.compiler.scalars.catalogue import FUNCTIONS
from adarray.compiler.scalars.expressions import Dialect
from adarray.compiler.scalars.functions import SIZES, STORED
from adarray.compiler.schedule.gpu import LARGEST, MARCHING, ZEROS, Form, is_merged, merging
from adarray.compiler.schedule.gpu_fetch import Fetched
from adarray.compiler.schedule.gpu_kept import KEPT, chosen
from adarray.compiler.schedule.gpu_loops import arrays
from adarray.compiler.schedule.gpu_rows import Held, held
from adarray.compiler.schedule.gpu_tiles import tiled
from adarray.compiler.schedule.vectors import expressions

CUDA = Dialect(bool_type="bool", versions="library")
# With calls out of line: inlined hundreds of times they do not fit the instruction cache (200
# sines took 150 us in place of 10).
CUDA_FAR = CUDA._replace(far=True)
_SHORT = 40  # statements, whose values few registers hold
_TOGETHER = {1: 2048, 2: 2048, 3: 1536}  # threads of an SM, by arrays that are moved
FAR = 12  # calls of mathematical functions from which on they are not inlined
MERGE = 1024  # threads of a block that combines array totals
UNROLLED = 40  # statements of a sheet's pass, up to which several are begun at once

_KERNEL = """\
extern "C" __global__ void __launch_bounds__({threads}) {name}({parameters})
{{
{body}
}}
"""


class Text(NamedTuple):
    """A printed kernel.

    Parameters
    ----------
    name : str
        Of the kernel, which begins with ``adk_``.
    text : str
    followers : tuple of str
        Kernels that must run after it, in this order, with the same arguments:
        ``<name>_scan`` in the same blocks, ``<name>_merge`` in blocks of `MERGE` threads, for
        32 elements of an array total each, and ``<name>_after`` in one block of as many threads
        as the kernel has.
    """

    name: str
    text: str
    followers: tuple[str, ...] = ()


def source(kernel: Kernel, form: Form) -> Text:
    """Return the CUDA C text of a kernel.

    Its parameters are the buffers, the integers (int64), the scratch memory, which begins
    with `ZEROS` bytes of zeros, an int32 that is set to the code of a `Fail`, the number of
    blocks that share out passes, and of all blocks (int64). Those of the kernels that follow
    it are the same.
    """
    kernel, found = chosen(kernel, form.kept) if form.slots else (kernel, None)
    holds = held(kernel) if form.turns else None
    kernel = kernel if holds is None else holds.kernel
    where = [i for i, s in enumerate(kernel.body) if is_parallel(s)]
    before = kernel.body[: where[0] + 1] if where else kernel.body
    after = kernel.body[where[0] + 1 :] if where else ()
    sized = [t for t in kernel.totals if t.size is not None]
    totals = [t for t in sized if form.far or not is_merged(form, t)]
    text = CudaPrinter(kernel, form, found, holds).kernel_text("@", before)
    if form.kind == "scan":
        again = CudaPrinter(kernel, form)
        again.second = True
        text += again.kernel_text("@_scan", before)
    if totals:
        text += CudaPrinter(kernel, form).merge_text(totals)
    if after:
        lets = tuple(s for s in before if isinstance(s, Let))
        alone = Form("alone", form.block, form.block)
        text += CudaPrinter(kernel, alone).kernel_text("@_after", (*lets, *after), totals=False)
    name = "adk_" + hashlib.sha256(text.encode()).hexdigest()[:24]
    followers = [f"{name}_scan"] if form.kind == "scan" else []
    followers += [f"{name}_merge"] if totals else []
    followers += [f"{name}_after"] if after else []
    text = '#include "adarray_device.h"\n' + text.replace("@", name)
    return Text(name, text, tuple(followers))


def may_fail(kernel: Kernel) -> bool:
    """Whether a kernel may refuse its data."""
    return any(isinstance(s, Fail) for s in statements(kernel.body))


class CudaPrinter(LaneLoops, RunningLoops, TileLoops):
    """Prints one kernel."""

    def __init__(
        self, kernel: Kernel, form: Form, found: Fetched | None = None, holds: Held | None = None
    ) -> None:
        super().__init__(kernel, form)
        self.found = found
        self.holding = None if holds is None else Holding(self, holds)
        if found is not None and form.kept:  # no memory but the slots
            dtype = self.local[KEPT] = found.sources[0].dtype
            self.memory[KEPT] = f"(({STORED[dtype]} *)nullptr)"
        loops = (s for s in self.statements if isinstance(s, For) and s.kind == "vector")
        self.each = {x.name for s in loops for x in s.body if isinstance(x, Let)}
        applied = [e for s in self.statements for x in expressions(s) for e in walk(x)]
        calls = sum(isinstance(e, Apply) and FUNCTIONS[e.name].is_call for e in applied)
        self.dialect = CUDA_FAR if calls > FAR else CUDA
        self.both = _both(applied)
        self.cares = any(self._careful(e) for e in applied)
        self.waits = Waits(self.touches, self.home)

    # -- functions -------------------------------------------------------------------------

    def kernel_text(self, name: str, body: tuple[Stmt, ...], totals: bool = True) -> str:
        """Return the text of a kernel that runs `body`."""
        self._head()
        self.lane_integers()
        found = self.kernel.totals if totals else ()
        for t in found:
            self.begin_total(t)
        self.line("(void)fail;")
        if self.cares:
            self.line("adarray_careful care;")
        if self.form.kind not in ("flat", "sheet", "lanes", "tiles") and self.form.group > 1:
            self.waits.block(body)
        pairs = tiled(self.kernel) if self.form.kind == "tiles" else None
        if pairs is not None:
            self.tiles(pairs)
        else:
            self.block(body)
        self.end_totals(found)
        return self._kernel(name, self.form.block)

    def merge_text(self, totals: list[Total]) -> str:
        """Return the text of the kernel that combines the groups' totals."""
        self._head()
        self.merge_lines(totals)
        return self._kernel("@_merge", MERGE)

    def _kernel(self, name: str, threads: int) -> str:
        lines = [f"    {line}" for line in self.scopes[0].lines]
        if self.rooms:
            lines.insert(0, f"    __shared__ double rooms_[{64 * self.rooms}];")
            lines.insert(1, "    int turn_ = 0;")
        body = "\n".join(lines)
        # So large a block fills an SM: more registers do not cost it a neighbour.
        least = 1 if threads == LARGEST else self._resident(threads)
        bounds = f"{threads}, {least}" if least else str(threads)
        return _KERNEL.format(
            threads=bounds, name=name, parameters=", ".join(self._parameters()), body=body
        )

    def _resident(self, threads: int) -> int:
        """Return how many blocks are to reside on an SM at least; 0: as many as do.

        Where nothing branches, the elements of a pack are computed side by side, in so many
        registers that too few threads are there to wait for memory: 245 us became 281.
        """
        if self.form.slots:
            return max(1, LARGEST // threads)
        if self.form.turns:
            return self.form.side
        if self.form.lanes:  # two warps for each scheduler, as planning has it
            return 2 * MARCHING // threads
        short = len(self.statements) <= _SHORT and self.form.kind == "flat"
        arrays = len(self.kernel.buffers) - len(self.kernel.totals)
        return _TOGETHER.get(arrays, 0) // threads if self.cares and short else 0

    def _parameters(self) -> list[str]:
        found = []
        for i, b in enumerate(self.kernel.buffers):
            const = "const " if b.access == "in" else ""
            found.append(f"{const}{STORED[b.dtype]} *__restrict__ const b{i}")
        found += [f"const int64_t n{i}" for i in range(len(self.kernel.ints))]
        return [
            *found, "char *const scratch", "int *const fail", "const int64_t blocks",
            "const int64_t parts",
        ]  # fmt: skip

    def _head(self) -> None:
        """Print who this thread is, and where the parts of scratch memory begin."""
        group, block = self.form.group, self.form.block
        if self.form.kind == "flat":
            self.line(
                f"const {self.counter} lane = ({self.counter})blockIdx.x * {block} + threadIdx.x;"
            )
            self.line(f"const {self.counter} span = ({self.counter})gridDim.x * {block};")
        elif self.form.kind == "sheet":
            self.line(f"const int lane = blockIdx.y * {group} + threadIdx.x % {group};")
            self.line(f"const int span = gridDim.y * {group};")
        else:
            self.line(f"const int lane = threadIdx.x % {group};")
            self.line(f"const int span = {group};")
        self.line(f"const int64_t groups = blocks * {block // group};")
        self.line(
            f"const int64_t group = (int64_t)blockIdx.x * {block // group} + threadIdx.x / {group};"
        )
        self.line("__shared__ double room_[32];")
        self.line("ADARRAY_NEAR(near_);")
        for text in self._offsets():
            self.line(text)
        names = "lane", "span", "groups", "group", "room_", "near_", "merge_"
        self.line(", ".join(f"(void){name}" for name in names) + ";")

    def _offsets(self) -> list[str]:
        lines, far, close = [], str(ZEROS), "0"
        locals_ = [] if self.form.lanes or self.form.kind == "tiles" else arrays(self.kernel)
        placed: list[Total | Local] = [*self.kernel.totals, *locals_]
        for x in placed:
            i = self.places[id(x)]
            size = None if x.size is None else f"({self.index(x.size)} + 63) / 64 * 64"
            if x.name in self.form.shared:
                letter = "o" if isinstance(x, Local) else "p"
                lines.append(f"const int64_t {letter}{i} = {close};")
                per = self.form.block // self.form.group
                close = f"{letter}{i} + {size} * {per * SIZES[x.dtype]}"
                if isinstance(x, Local):
                    continue
            lines.append(f"const int64_t o{i} = {far};")
            merged = isinstance(x, Total) and is_merged(self.form, x)
            count = f"{'blocks' if merged else 'groups'} * ({size})"
            if size is None:
                count = "(parts + 63) / 64 * 64"
            far = f"o{i} + {count} * {SIZES[x.dtype]}"
        lines.append(f"const int64_t merge_ = {close};")
        return lines

    # -- waiting ---------------------------------------------------------------------------

    def _wait_for(self, s: Stmt) -> None:
        """Print a barrier if `s` needs what other threads of the group did."""
        if id(s) in self.waits.before:
            self.line(f"adarray_sync<{self.form.group}>();")

    # -- values ----------------------------------------------------------------------------

    def apply(self, e: Apply, args: list[Operand]) -> Operand:
        """Name the value of a function; a sine and a cosine of one operand come together."""
        number = self.number_of_pass(e, args) or self._quotient(e, args)
        if number is not None:
            return number
        own = None if self._is_quotient(e) else self._careful(e)
        if e.name not in ("sin", "cos") or (e.dtype, e.args) not in self.both:
            if own is None:
                return super().apply(e, args)
            text = f"adarray_{own}(care, {args[-1].text})"
            return self.named(f"{own}: {args[-1].key}", e.dtype, lambda: text)
        keys = [f"{e.dtype} {n} {e.dtype}: {args[0].key}" for n in ("sin", "cos")]
        if self._known(keys[0]) is None:
            kind, sine, cosine = STORED[e.dtype], self.fresh("t"), self.fresh("t")
            suffix = self.dialect.library_suffix[e.dtype]
            far = "adarray_far_" if self.dialect is CUDA_FAR else ""
            call = f"{far}sincos{suffix}(" if own is None else "adarray_sincosf(care, "
            self.line(f"{kind} {sine}, {cosine};")
            self.line(f"{call}{args[0].text}, &{sine}, &{cosine});")
            for key, name in zip(keys, (sine, cosine), strict=True):
                self.scopes[-1].known[key] = fixed(name)
        found = self._known(keys[e.name == "cos"])
        assert found is not None
        return found

    def _careful(self, e: Expr) -> str | None:
        """Return the name of a function that takes a care; None for others."""
        if not isinstance(e, Apply) or e.dtype != "float32":
            return None
        name, first = e.name, e.args[0]
        if self._is_quotient(e):
            return "quotient"
        if name == "divide" and isinstance(first, Const) and first.value == 1:
            name = "reciprocal"
        far = self.dialect is CUDA_FAR and name != "reciprocal"  # out of line, with care
        return None if far else FUNCTIONS[name].cuda_careful or None

    def _is_quotient(self, e: Apply) -> bool:
        """Whether the passes of a loop over a row that is held divide by one number."""
        if not self.form.turns or e.name != "divide" or e.dtype != "float32":
            return False
        return isinstance(e.args[1], Var) and e.args[1].name not in self.each

    def _quotient(self, e: Apply, args: list[Operand]) -> Operand | None:
        """Name a quotient by a number that is the same in all passes."""
        if not self.inside or not self._is_quotient(e):
            return None
        key, before = f"divisor: {args[1].key}", self.scopes[-2]
        found = self._known(key)
        if found is None:
            name = self.fresh("d")
            before.lines.append(f"const float {name} = adarray_divisor({args[1].text});")
            found = before.known[key] = fixed(name)
        text = f"adarray_quotientf(care, {args[0].text}, {args[1].text}, {found.text})"
        return self.named(f"quotient: {args[0].key} {args[1].key}", e.dtype, lambda: text)

    def careful(self, body: tuple[Stmt, ...]) -> bool:
        """Whether statements call functions that take a care."""
        return any(self._careful(e) for s in body for x in expressions(s) for e in walk(x))

    # -- statements ------------------------------------------------------------------------

    def statement(self, s: Stmt) -> None:
        """Print one statement."""
        if not self.inside:
            self._wait_for(s)
        if isinstance(s, Fail):
            who = "threadIdx.x" if self.form.kind == "flat" else "lane"
            self.line(f"if ({who} == 0) atomicExch(fail, {s.code});")
            self.line("return;")
        else:
            super().statement(s)

    def _local(self, s: Local) -> None:
        if s.size is None:
            super()._local(s)
            return
        if self.form.lanes:
            self.lane_array(s)
            return
        c, kind = self.fresh("s"), STORED[s.dtype]
        self.dtypes[s.name] = s.dtype
        first = self.home[s.name]
        if first != s.name:
            self.line(f"{kind} *const {c} = ({kind} *){self.memory[first]};")
            self.memory[s.name] = c
            self.changed(s.name)
            return
        if s.name in self.form.shared:
            base, index = "near_", f"threadIdx.x / {self.form.group}"
        else:
            base, index = "scratch", "group"
        size = f"(({self.index(s.size)} + 63) / 64 * 64)"
        self.line(
            f"{kind} *const {c} = ({kind} *)({base} + o{self.places[id(s)]}) + {index} * {size};"
        )
        self.memory[s.name] = c
        self.changed(s.name)

    def store(self, s: Store) -> None:
        """Set an element: in a vector loop every pass its own, else the first thread."""
        value, index = self.operand(s.value), self.index(s.index)
        only = (
            ""
            if self.inside or (self.form.group == 1 and self.form.kind != "flat")
            else "if (lane == 0) "
        )
        self.line(f"{only}{self.memory[s.buffer]}[{index}] = {value.text};")
        self.changed(s.buffer)
        self.remember(s.buffer, index, value)

    def fold(self, s: Fold) -> None:
        """Combine a value into a scalar, which all threads of a group have, or an element."""
        value = self.value(s.value)
        shared = s.index is not None or s.target in {t.name for t in self.kernel.totals}
        only = "if (lane == 0) " if shared and not self.inside else ""
        if s.target in self.outs:
            assert s.index is not None
            assert s.combine in ("add", "maximum")
            place = f"{self.memory[s.target]} + {self.index(s.index)}"
            self.line(f"{only}adarray_atomic_{s.combine}({place}, {value});")
            return
        if s.index is not None:
            place = f"{self.memory[s.target]}[{self.index(s.index)}]"
        else:
            place = self.changing[s.target]
        self.line(f"{only}{place} = {self.combined(s.combine, s.value.dtype, place, value)};")
        self.changed(s.target)

    def _loop(self, s: For) -> None:
        if s.kind == "vector":
            self.written(s)
            (self.lane_loop if self.form.lanes else self.shared_loop)(s)
        elif is_parallel(s):
            self._passes(s)
        else:
            self.serial(s)
        self.written(s)

    def _passes(self, s: For) -> None:
        """Print the parallel loop: a function of the pass, from which `Fail` may return."""
        start, stop = self.index(s.start), self.index(s.stop)
        self.written(s)
        if self.found is not None:
            self.fetching = Fetching(self, self.found)
            self.fetching.begin(f"merge_ + {merging(self.kernel, self.form)}", start, stop)
        if self.holding is not None:
            self.holding.fetch_first(f"merge_ + {merging(self.kernel, self.form)}", s)
        v, one = self.fresh("v"), self.fresh("f")
        scope = Scope()
        scope.lines += [] if self.holding is None else self.holding.begin()
        own = self._own_part(s)
        self.chosen = bool(own)
        self.scopes.append(scope)
        self.bind(s.var, fixed(v))
        self.block(s.body)
        self.scopes.pop()
        self.chosen = False
        self.braced(f"const auto {one} = [&](const int64_t {v})", scope, "};")
        count = sum(1 for _ in statements(s.body))
        if own:
            self.line(f"if ({own})")
        if self.held and count <= UNROLLED:
            self.line(f"#pragma unroll {8 if 2 * count <= UNROLLED else 4}")
        self.line(f"for (int64_t {v} = {start} + group; {v} < {stop}; {v} += groups) {one}({v});")
        if self.fetching is not None:
            self.fetching.end()

    def _own_part(self, s: For) -> str:
        """Return which threads have a part in the passes of a sheet, if that is always the same.

        Then nothing stands between the loads of several passes, so they come together.
        """
        loops = [x for x in s.body if isinstance(x, For)]
        totals = [t for t in self.kernel.totals if t.name in self.held]
        if not totals or any(self.sheet_width(t) > 1 for t in totals):
            return ""
        ends = {x.stop for x in loops}
        if len(ends) > 1 or any(x.start != ZERO for x in loops):
            return ""
        holds = all(any(self._holds(y) for y in x.body) for x in loops)
        (end,) = ends
        known = isinstance(end, Var) and end.name in self.kernel.ints
        return f"lane < {self.index(end)}" if holds and known else ""


def _both(applied: list[Expr]) -> set[tuple[str, tuple[Expr, ...]]]:
    """Return the operands of which both the sine and the cosine are computed."""
    found: dict[str, set[tuple[str, tuple[Expr, ...]]]] = {"sin": set(), "cos": set()}
    for e in applied:
        if isinstance(e, Apply) and e.name in found and isinstance(e.args[0], Var):
            found[e.name].add((e.dtype, e.args))
    return found["sin"] & found["cos"]

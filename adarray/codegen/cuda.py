"""Loop IR as CUDA C: one kernel, and those that combine what its groups have folded.

Threads of a group do the same, but for vector loops, whose passes they share, and for
writes, which its first thread makes. `adarray.codegen.device` says who is a group.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from adarray.codegen import functions
from adarray.codegen.cprinter import is_parallel
from adarray.codegen.cuda_loops import GroupLoops
from adarray.codegen.cuda_waits import Waits
from adarray.codegen.cvalues import Operand, Scope, fixed
from adarray.codegen.device import LARGEST, Form, sheet_width
from adarray.codegen.device_loops import arrays, folding, running
from adarray.codegen.functions import SIZES, STORED
from adarray.codegen.loopir import (
    Apply,
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
from adarray.codegen.printer import Dialect
from adarray.codegen.schedule import expressions

CUDA = Dialect(bool_type="bool", instead={})
# Functions that adarray_device.h has out of line, too: inlined hundreds of times they do not
# fit the instruction cache (200 sines took 150 us in place of 10).
_HEAVY = frozenset(
    [
        "pow",
        "cbrt",
        "hypot",
        "exp",
        "exp2",
        "expm1",
        "log",
        "log2",
        "log10",
        "log1p",
        "sin",
        "cos",
        "tan",
        "asin",
        "acos",
        "atan",
        "atan2",
        "sinh",
        "cosh",
        "tanh",
        "asinh",
        "acosh",
        "atanh",
        "erf",
        "erfc",
    ]
)
CUDA_FAR = CUDA._replace(
    library={k: f"adarray_far_{v}" if v in _HEAVY else v for k, v in CUDA.library.items()}
)
FAR = 12  # calls of mathematical functions from which on they are not inlined
MERGE = 1024  # threads of a block that combines array totals

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
        ``<name>_merge`` in blocks of `MERGE` threads, for 32 elements of an array total each,
        and ``<name>_after`` in one block of as many threads as the kernel has.
    """

    name: str
    text: str
    followers: tuple[str, ...] = ()


def source(kernel: Kernel, form: Form) -> Text:
    """Return the CUDA C text of a kernel.

    Its parameters are the buffers, the integers (int64), the scratch memory, which begins
    with 256 bytes of zeros, an int32 that is set to the code of a `Fail`, the number of
    blocks that share out passes, and of all blocks (int64). Those of the kernels that follow
    it are the same.
    """
    where = [i for i, s in enumerate(kernel.body) if is_parallel(s)]
    before = kernel.body[: where[0] + 1] if where else kernel.body
    after = kernel.body[where[0] + 1 :] if where else ()
    totals = [t for t in kernel.totals if t.size is not None]
    text = CudaPrinter(kernel, form).kernel_text("@", before)
    if totals:
        text += CudaPrinter(kernel, form).merge_text(totals)
    if after:
        lets = tuple(s for s in before if isinstance(s, Let))
        alone = Form("alone", form.block, form.block)
        text += CudaPrinter(kernel, alone).kernel_text("@_after", (*lets, *after), totals=False)
    name = "adk_" + hashlib.sha256(text.encode()).hexdigest()[:24]
    followers = [f"{name}_merge"] if totals else []
    followers += [f"{name}_after"] if after else []
    text = '#include "adarray_device.h"\n' + text.replace("@", name)
    return Text(name, text, tuple(followers))


def may_fail(kernel: Kernel) -> bool:
    """Whether a kernel may refuse its data."""
    return any(isinstance(s, Fail) for s in statements(kernel.body))


class CudaPrinter(GroupLoops):
    """Prints one kernel."""

    def __init__(self, kernel: Kernel, form: Form) -> None:
        super().__init__(kernel, form)
        applied = [e for s in self.statements for x in expressions(s) for e in walk(x)]
        heavy = sum(isinstance(e, Apply) and CUDA.library.get(e.name) in _HEAVY for e in applied)
        self.dialect = CUDA_FAR if heavy > FAR else CUDA
        self.both = _both(applied)
        self.waits = Waits(self.touches, self.home)

    # -- functions -------------------------------------------------------------------------

    def kernel_text(self, name: str, body: tuple[Stmt, ...], totals: bool = True) -> str:
        """Return the text of a kernel that runs `body`."""
        self._head()
        found = self.kernel.totals if totals else ()
        for t in found:
            self._begin_total(t)
        self.line("(void)fail;")
        if self.form.kind not in ("flat", "sheet") and self.form.group > 1:
            self.waits.block(body)
        self.block(body)
        for t in found:
            self._end_total(t)
        return self._kernel(name, self.form.block)

    def merge_text(self, totals: list[Total]) -> str:
        """Return the text of the kernel that combines the groups' totals."""
        self._head()
        for t in totals:
            kind = STORED[t.dtype]
            place = f"({kind} *)(scratch + o{self.places[id(t)]})"
            size = self.index(t.size) if t.size is not None else "1"
            neutral = functions.neutral(t.combine, t.dtype)
            self.line(
                f"adarray_merge<{kind}>({place}, groups, ({size} + 63) / 64 * 64, {size}, "
                f"{neutral}, {self.memory[t.out]}, {self.combiner(t.combine, t.dtype)});"
            )
        return self._kernel("@_merge", MERGE)

    def _kernel(self, name: str, threads: int) -> str:
        lines = "\n".join(f"    {line}" for line in self.scopes[0].lines)
        # So large a block fills a multiprocessor: more registers do not cost it a neighbour.
        bounds = f"{threads}, 1" if threads == LARGEST else str(threads)
        return _KERNEL.format(
            threads=bounds, name=name, parameters=", ".join(self._parameters()), body=lines
        )

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
        self.line("(void)lane, (void)span, (void)groups, (void)group, (void)room_, (void)near_;")

    def _offsets(self) -> list[str]:
        lines, far, close = [], "256", "0"
        placed: list[Total | Local] = [*self.kernel.totals, *arrays(self.kernel)]
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
            count = "(parts + 63) / 64 * 64" if size is None else f"groups * ({size})"
            far = f"o{i} + {count} * {SIZES[x.dtype]}"
        return lines

    # -- totals ----------------------------------------------------------------------------

    def _begin_total(self, t: Total) -> None:
        kind, c = STORED[t.dtype], self.fresh("s")
        neutral = functions.neutral(t.combine, t.dtype)
        self.dtypes[t.name] = t.dtype
        if t.size is None:
            self.changing[t.name] = c
            self.line(f"{kind} {c} = {neutral};")
            return
        self.memory[t.name] = c
        size, place = self.index(t.size), self.places[id(t)]
        if self.form.kind == "sheet":
            width, pack, one = self._sheet_width(t), self.fresh("a"), self.fresh("a")
            self.held[t.name] = pack, one
            self.line(f"adarray_pack<{kind}, {width}> {pack};")
            self.line(f"for (int u = 0; u < {width}; u++) {pack}.v[u] = {neutral};")
            self.line(f"{kind} {one} = {neutral};")
            return
        near = t.name in self.form.shared
        base = f"near_ + p{place}" if near else f"scratch + o{place}"
        who = f"threadIdx.x / {self.form.group}" if near else "group"
        self.line(
            f"{kind} *__restrict__ const {c} = ({kind} *)({base}) "
            f"+ {who} * (({size} + 63) / 64 * 64);"
        )
        self.line(f"for (int64_t k = lane; k < {size}; k += span) {c}[k] = {neutral};")
        self.waits.written[t.name] = None

    def _sheet_width(self, t: Total) -> int:
        """Return how many elements of an array total a thread of a sheet has side by side.

        Blocks share such a total, and cannot wait for each other, so an element belongs to
        the same thread in every pass.
        """
        (loop,) = folding(self.kernel, t)
        return sheet_width(self.kernel, loop)

    def _end_sized(self, t: Total) -> None:
        """Print the stores of an array total that was not in scratch memory."""
        assert t.size is not None
        kind, size, place = STORED[t.dtype], self.index(t.size), self.places[id(t)]
        c = self.fresh("s")
        out = f"({kind} *)(scratch + o{place}) + group * (({size} + 63) / 64 * 64)"
        if self.form.kind == "sheet":
            width, (pack, one) = self._sheet_width(t), self.held[t.name]
            whole = f"{size} / {width} * {width}" if width > 1 else "0"
            self.line(f"{kind} *const {c} = {out};")
            if width > 1:
                each = f"{c}[(int64_t)lane * {width} + u] = {pack}.v[u];"
                self.line(f"if (lane < {size} / {width}) for (int u = 0; u < {width}; u++) {each}")
            self.line(f"if (lane < {size} - {whole}) {c}[{whole} + lane] = {one};")
        elif t.name in self.form.shared:
            self.line(f"{kind} *const {c} = {out};")
            self.line(f"adarray_sync<{self.form.group}>();")
            held = self.memory[t.name]
            self.line(f"for (int64_t k = lane; k < {size}; k += span) {c}[k] = {held}[k];")

    def _end_total(self, t: Total) -> None:
        if t.size is not None:
            self._end_sized(t)
            return
        kind, c = STORED[t.dtype], self.changing[t.name]
        combine = self.combiner(t.combine, t.dtype)
        neutral = functions.neutral(t.combine, t.dtype)
        place = self.places[id(t)]
        room = f"({kind} *)room_"
        self.line(f"{c} = adarray_together<{self.form.block}>({c}, {room}, {combine});")
        self.line(
            f"adarray_last<{self.form.block}>({c}, ({kind}){neutral}, "
            f"({kind} *)(scratch + o{place}), (unsigned *)scratch + {place}, {room}, "
            f"{self.memory[t.out]}, {combine});"
        )

    # -- waiting ---------------------------------------------------------------------------

    def _wait_for(self, s: Stmt) -> None:
        """Print a barrier if `s` needs what other threads of the group did."""
        if id(s) in self.waits.before:
            self.line(f"adarray_sync<{self.form.group}>();")

    # -- values ----------------------------------------------------------------------------

    def apply(self, e: Apply, args: list[Operand]) -> Operand:
        """Name the value of a function; a sine and a cosine of one operand come together."""
        number = self.number_of_pass(e, args)
        if number is not None:
            return number
        if e.name not in ("sin", "cos") or (e.dtype, e.args) not in self.both:
            return super().apply(e, args)
        keys = [f"{e.dtype} {n} {e.dtype}: {args[0].key}" for n in ("sin", "cos")]
        if self._known(keys[0]) is None:
            kind, sine, cosine = STORED[e.dtype], self.fresh("t"), self.fresh("t")
            suffix = self.dialect.library_suffix[e.dtype]
            far = "adarray_far_" if self.dialect is CUDA_FAR else ""
            self.line(f"{kind} {sine}, {cosine};")
            self.line(f"{far}sincos{suffix}({args[0].text}, &{sine}, &{cosine});")
            for key, name in zip(keys, (sine, cosine), strict=True):
                self.scopes[-1].known[key] = fixed(name)
        found = self._known(keys[e.name == "cos"])
        assert found is not None
        return found

    # -- statements ------------------------------------------------------------------------

    def statement(self, s: Stmt) -> None:
        """Print one statement."""
        if not self.inside:
            self._wait_for(s)
        if isinstance(s, Fail):
            self.line(f"if (lane == 0) atomicExch(fail, {s.code});")
            self.line("return;")
        else:
            super().statement(s)

    def _local(self, s: Local) -> None:
        if s.size is None:
            super()._local(s)
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
            self.shared_loop(s)
        elif is_parallel(s):
            self._passes(s)
        else:
            self._serial(s)
        self.written(s)

    def _running(self, s: For, fold: Fold, store: Store) -> None:
        """Print a loop that stores what it has folded so far: a pass for each thread."""
        start, stop = self.index(s.start), self.index(s.stop)
        self.written(s)
        if any(id(x) in self.waits.before for x in s.body):
            self.line(f"adarray_sync<{self.form.group}>();")
        kind, combine = STORED[fold.value.dtype], self.combiner(fold.combine, fold.value.dtype)
        sofar, v = self.changing[fold.target], self.fresh("v")
        term, put = self.fresh("f"), self.fresh("f")
        self.inside = True
        for name, last in ((term, fold), (put, store)):
            scope = Scope()
            self.scopes.append(scope)
            self.bind(s.var, fixed(v))
            self.block(tuple(x for x in s.body if isinstance(x, Let)))
            if last is fold:
                self.line(f"return {self.value(fold.value)};")
            else:
                self.line(f"{self.memory[store.buffer]}[{self.index(store.index)}] = y;")
            self.scopes.pop()
            more = "" if last is fold else f", const {kind} y"
            result = kind if last is fold else "void"
            self.braced(
                f"const auto {name} = [&](const int64_t {v}{more}) -> {result}", scope, "};"
            )
        self.inside = False
        lines, x, all_, k = Scope(), self.fresh("x"), self.fresh("x"), self.fresh("k")
        neutral = functions.neutral(fold.combine, fold.value.dtype)
        room = f"({kind} *)room_"
        lines.lines += [
            f"const int64_t {v} = {k} + lane;",
            f"{kind} {x} = {v} < {stop} ? {term}({v}) : ({kind}){neutral}, {all_};",
            f"{x} = adarray_scan<{self.form.group}>({x}, {room}, {all_}, {combine});",
            f"if ({v} < {stop}) {put}({v}, {self._sum(fold, sofar, x)});",
            f"{sofar} = {self._sum(fold, sofar, all_)};",
        ]
        self.braced(f"for (int64_t {k} = {start}; {k} < {stop}; {k} += span)", lines)
        self.changed(fold.target)
        self.changed(store.buffer)

    def _sum(self, fold: Fold, left: str, right: str) -> str:
        return self.combined(fold.combine, fold.value.dtype, left, right)

    def _serial(self, s: For) -> None:
        found = running(s) if self.form.group > 1 and self.form.kind in ("rows", "alone") else None
        if found is not None:
            self._running(s, *found)
            return
        start, stop = self.index(s.start), self.index(s.stop)
        self.written(s)
        v = self.fresh("v")
        scope = Scope()
        self.scopes.append(scope)
        self.bind(s.var, fixed(v))
        self.block(s.body)
        self.scopes.pop()
        self.braced(f"for (int64_t {v} = {start}; {v} < {stop}; {v}++)", scope)

    def _passes(self, s: For) -> None:
        """Print the parallel loop: a function of the pass, from which `Fail` may return."""
        start, stop = self.index(s.start), self.index(s.stop)
        self.written(s)
        v, one = self.fresh("v"), self.fresh("f")
        scope = Scope()
        self.scopes.append(scope)
        self.bind(s.var, fixed(v))
        self.block(s.body)
        self.scopes.pop()
        self.braced(f"const auto {one} = [&](const int64_t {v})", scope, "};")
        self.line(f"for (int64_t {v} = {start} + group; {v} < {stop}; {v} += groups) {one}({v});")


def _both(applied: list[Expr]) -> set[tuple[str, tuple[Expr, ...]]]:
    """Return the operands of which both the sine and the cosine are computed."""
    found: dict[str, set[tuple[str, tuple[Expr, ...]]]] = {"sin": set(), "cos": set()}
    for e in applied:
        if isinstance(e, Apply) and e.name in found and isinstance(e.args[0], Var):
            found[e.name].add((e.dtype, e.args))
    return found["sin"] & found["cos"]

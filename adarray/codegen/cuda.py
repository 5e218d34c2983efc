"""Loop IR as CUDA C: one kernel, and those that combine what its groups have folded.

Threads of a group do the same, but for vector loops, whose passes they share, and for
writes, which its first thread makes. `adarray.codegen.device` says who is a group.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from adarray.codegen import functions
from adarray.codegen.affine import ONE, ZERO, at, slope
from adarray.codegen.cprinter import CPrinter, is_parallel
from adarray.codegen.cvalues import Operand, Scope, fixed
from adarray.codegen.device import Form, scattered
from adarray.codegen.functions import SIZES, STORED
from adarray.codegen.loopir import (
    Apply,
    Expr,
    Fail,
    Fold,
    For,
    If,
    Kernel,
    Let,
    Load,
    Local,
    Stmt,
    Store,
    Total,
    Var,
    statements,
    walk,
)
from adarray.codegen.printer import Dialect
from adarray.codegen.schedule import Scheduled, Target, expressions

CUDA = Dialect(bool_type="bool", instead={})
PACK = 16  # bytes that one instruction moves
MERGE = 256  # threads of a block that combines array totals

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
    with 256 bytes of zeros, an int32 that is set to the code of a `Fail`, and the number of
    blocks (int64). Those of the kernels that follow it are the same.
    """
    where = [i for i, s in enumerate(kernel.body) if is_parallel(s)]
    before = kernel.body[: where[0] + 1] if where else kernel.body
    after = kernel.body[where[0] + 1 :] if where else ()
    arrays = [t for t in kernel.totals if t.size is not None]
    text = CudaPrinter(kernel, form).kernel_text("@", before)
    if arrays:
        text += CudaPrinter(kernel, form).merge_text(arrays)
    if after:
        lets = tuple(s for s in before if isinstance(s, Let))
        alone = Form("alone", form.block, form.block)
        text += CudaPrinter(kernel, alone).kernel_text("@_after", (*lets, *after), totals=False)
    name = "adk_" + hashlib.sha256(text.encode()).hexdigest()[:24]
    followers = [f"{name}_merge"] if arrays else []
    followers += [f"{name}_after"] if after else []
    text = '#include "adarray_device.h"\n' + text.replace("@", name)
    return Text(name, text, tuple(followers))


class CudaPrinter(CPrinter):
    """Prints one kernel."""

    def __init__(self, kernel: Kernel, form: Form) -> None:
        super().__init__(Scheduled(kernel, Target(precise=True), {}, frozenset()))
        self.dialect = CUDA
        self.form = form
        self.inside = False  # of a vector loop
        # What threads of the group have read and written since they last waited.
        self.read_: set[str] = set()
        self.written_: set[str] = set()
        self.outs = {b.name for b in kernel.buffers if b.access != "in"}

    # -- functions -------------------------------------------------------------------------

    def kernel_text(self, name: str, body: tuple[Stmt, ...], totals: bool = True) -> str:
        """Return the text of a kernel that runs `body`."""
        self._head()
        found = self.kernel.totals if totals else ()
        for t in found:
            self._begin_total(t)
        self._warn_fail()
        self.block(body)
        for t in found:
            self._end_total(t)
        return self._kernel(name, self.form.block)

    def merge_text(self, arrays: list[Total]) -> str:
        """Return the text of the kernel that combines the groups' totals."""
        self._head()
        for t in arrays:
            kind = STORED[t.dtype]
            place = f"({kind} *)(scratch + o{self.places[id(t)]})"
            size = self.index(t.size) if t.size is not None else "1"
            neutral = functions.neutral(t.combine, t.dtype)
            self.line(
                f"adarray_merge<{kind}>({place}, groups, ({size} + 63) / 64 * 64, {size}, "
                f"{neutral}, {self.memory[t.out]}, {self._combiner(t.combine, t.dtype)});"
            )
        return self._kernel("@_merge", MERGE)

    def _kernel(self, name: str, threads: int) -> str:
        lines = "\n".join(f"    {line}" for line in self.scopes[0].lines)
        return _KERNEL.format(
            threads=threads, name=name, parameters=", ".join(self._parameters()), body=lines
        )

    def _parameters(self) -> list[str]:
        found = []
        for i, b in enumerate(self.kernel.buffers):
            const = "const " if b.access == "in" else ""
            found.append(f"{const}{STORED[b.dtype]} *__restrict__ const b{i}")
        found += [f"const int64_t n{i}" for i in range(len(self.kernel.ints))]
        return [*found, "char *const scratch", "int *const fail", "const int64_t blocks"]

    def _head(self) -> None:
        """Print who this thread is, and where the parts of scratch memory begin."""
        group, block = self.form.group, self.form.block
        if self.form.kind == "flat":
            self.line(f"const int64_t lane = (int64_t)blockIdx.x * {block} + threadIdx.x;")
            self.line(f"const int64_t span = (int64_t)gridDim.x * {block};")
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
        arrays = [s for s in self.statements if isinstance(s, Local) and s.size]
        for x in (*self.kernel.totals, *arrays):
            i = self.places[id(x)]
            size = None if x.size is None else f"({self.index(x.size)} + 63) / 64 * 64"
            if isinstance(x, Local) and x.name in self.form.shared:
                lines.append(f"const int64_t o{i} = {close};")
                per = self.form.block // self.form.group
                close = f"o{i} + {size} * {per * SIZES[x.dtype]}"
                continue
            lines.append(f"const int64_t o{i} = {far};")
            count = "(blocks + 63) / 64 * 64" if size is None else f"groups * ({size})"
            far = f"o{i} + {count} * {SIZES[x.dtype]}"
        return lines

    def _warn_fail(self) -> None:
        if any(isinstance(s, Fail) for s in self.statements):
            return
        self.line("(void)fail;")

    # -- totals ----------------------------------------------------------------------------

    def _combiner(self, combine: str, dtype: str) -> str:
        kind = STORED[dtype]
        return f"[](const {kind} a, const {kind} b) -> {kind} {{ return {self.combined(combine, dtype, 'a', 'b')}; }}"

    def _begin_total(self, t: Total) -> None:
        kind, c = STORED[t.dtype], self.fresh("s")
        neutral = functions.neutral(t.combine, t.dtype)
        self.dtypes[t.name] = t.dtype
        if t.size is None:
            self.changing[t.name] = c
            self.line(f"{kind} {c} = {neutral};")
            return
        self.memory[t.name] = c
        size = self.index(t.size)
        self.line(
            f"{kind} *__restrict__ const {c} = ({kind} *)(scratch + o{self.places[id(t)]}) "
            f"+ group * (({size} + 63) / 64 * 64);"
        )
        self.line(f"for (int64_t k = lane; k < {size}; k += span) {c}[k] = {neutral};")
        self.written_.add(t.name)

    def _end_total(self, t: Total) -> None:
        if t.size is not None:
            return
        kind, c = STORED[t.dtype], self.changing[t.name]
        combine = self._combiner(t.combine, t.dtype)
        neutral = functions.neutral(t.combine, t.dtype)
        place = self.places[id(t)]
        room = f"({kind} *)room_"
        self.line(f"{c} = adarray_together<{self.form.block}>({c}, {room}, {combine});")
        self.line(
            f"adarray_last<{self.form.block}>({c}, ({kind}){neutral}, ({kind} *)(scratch + o{place}), "
            f"(unsigned *)scratch + {place}, {room}, {self.memory[t.out]}, {combine});"
        )

    # -- waiting ---------------------------------------------------------------------------

    def _touches(self, body: tuple[Stmt, ...]) -> tuple[set[str], set[str]]:
        """Return the memory that statements read and write, of that which threads share."""
        read, written = set(), set()
        for s in statements(body):
            for e in expressions(s):
                read |= {x.buffer for x in walk(e) if isinstance(x, Load)}
            if isinstance(s, Store):
                written.add(s.buffer)
            elif isinstance(s, Fold) and s.index is not None:
                written.add(s.target)
                read.add(s.target)
        shared = self.outs | {s.name for s in self.statements if isinstance(s, Local) and s.size}
        shared |= {t.name for t in self.kernel.totals if t.size is not None}
        return read & shared, written & shared

    def _wait_for(self, s: Stmt) -> None:
        """Print a barrier if `s` needs what other threads of the group did."""
        if self.form.kind == "flat" or self.form.group == 1:
            return
        read, written = self._touches((s,))
        if read & self.written_ or written & (self.written_ | self.read_):
            self._wait()
        self.read_ |= read
        self.written_ |= written

    def _wait(self) -> None:
        self.line(f"adarray_sync<{self.form.group}>();")
        self.read_.clear()
        self.written_.clear()

    # -- statements ------------------------------------------------------------------------

    def statement(self, s: Stmt) -> None:
        """Print one statement."""
        if not self.inside and not isinstance(s, For | If):
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
        only = "" if self.inside or self.form.group == 1 and self.form.kind != "flat" else "if (lane == 0) "
        self.line(f"{only}{self.memory[s.buffer]}[{index}] = {value.text};")
        self.changed(s.buffer)
        self.remember(s.buffer, index, value)

    def fold(self, s: Fold) -> None:
        """Combine a value into a scalar, which all threads of a group have, or an element."""
        value = self.value(s.value)
        shared = s.index is not None or s.target in {t.name for t in self.kernel.totals}
        only = "if (lane == 0) " if shared and not self.inside else ""
        if s.index is not None:
            place = f"{self.memory[s.target]}[{self.index(s.index)}]"
        else:
            place = self.changing[s.target]
        self.line(f"{only}{place} = {self.combined(s.combine, s.value.dtype, place, value)};")
        self.changed(s.target)

    def _if(self, s: If) -> None:
        self._wait_for(Let("", s.condition))
        before = (set(self.read_), set(self.written_))
        super()._if(s)
        self.read_ |= before[0]
        self.written_ |= before[1]

    def _loop(self, s: For) -> None:
        if s.kind == "vector":
            self._wait_for(s)
            self.written(s)
            self._shared_loop(s)
        elif is_parallel(s):
            self._passes(s)
        else:
            self._serial(s)
        self.written(s)

    def _serial(self, s: For) -> None:
        start, stop = self.index(s.start), self.index(s.stop)
        self.written(s)
        v = self.fresh("v")
        scope = Scope()
        self.scopes.append(scope)
        self.bind(s.var, fixed(v))
        if self.form.kind != "flat" and self.form.group > 1:
            read, written = self._touches(s.body)
            if written:  # by this pass, or the one before
                self._wait()
        self.block(s.body)
        self.scopes.pop()
        self._braced(f"for (int64_t {v} = {start}; {v} < {stop}; {v}++)", scope)

    def _braced(self, head: str, scope: Scope, end: str = "}") -> None:
        self.line(f"{head} {{")
        for text in scope.lines:
            self.line(text if text.startswith("#") else f"    {text}")
        self.line(end)

    def _passes(self, s: For) -> None:
        """Print the parallel loop: a function of the pass, from which `Fail` may return."""
        start, stop = self.index(s.start), self.index(s.stop)
        self.written(s)
        v, one = self.fresh("v"), self.fresh("f")
        scope = Scope()
        self.scopes.append(scope)
        self.bind(s.var, fixed(v))
        if self.form.group > 1:
            self._wait()  # the pass before may have used the same memory
        self.block(s.body)
        self.scopes.pop()
        self._braced(f"const auto {one} = [&](const int64_t {v})", scope, "};")
        self.line(
            f"for (int64_t {v} = {start} + group; {v} < {stop}; {v} += groups) {one}({v});"
        )

    # -- vector loops ----------------------------------------------------------------------

    def _shared_loop(self, s: For) -> None:
        """Print a loop whose passes the threads of the group share."""
        start, stop = self.index(s.start), self.index(s.stop)
        lo, hi = self.fresh("m"), self.fresh("e")
        self.line(f"const int64_t {lo} = {start}, {hi} = {stop};")
        if scattered(s):
            self._first_thread(s, lo, hi)
            return
        lets = {x.name: x.value for x in s.body if isinstance(x, Let)}
        partial = self._partials(s, lets)
        packed = self._packed(s, lets)
        body, parameters = self._pass(s, packed, partial)
        one = self.fresh("f")
        self._braced(f"const auto {one} = [&]({', '.join(parameters)})", body, "};")
        v = self.fresh("v")
        first = f"{lo} + lane"
        width = _width(packed)
        bases = self._bases(s, packed, lets, lo)
        if width > 1:
            first = self._packs(s, packed, bases, one, lo, hi, width)
        scope = Scope()
        args = [v]
        after = []
        for (kind, dtype, _), base in zip(packed, bases, strict=True):
            c = STORED[dtype]
            if kind == "load":
                args.append(f"{base}[{v} - {lo}]")
            else:
                y = self.fresh("y")
                scope.lines.append(f"{c} {y};")
                args.append(y)
                after.append(f"{base}[{v} - {lo}] = {y};")
        scope.lines.append(f"{one}({', '.join(args)});")
        scope.lines += after
        self._braced(f"for (int64_t {v} = {first}; {v} < {hi}; {v} += span)", scope)
        for fold, c in partial:
            self._gather(fold, c)

    def _first_thread(self, s: For, lo: str, hi: str) -> None:
        """Print a loop whose passes may fold into the same element: one thread does it."""
        v = self.fresh("v")
        scope = Scope()
        self.scopes.append(scope)
        self.bind(s.var, fixed(v))
        self.inside = True
        self.block(s.body)
        self.inside = False
        self.scopes.pop()
        self._braced(f"if (lane == 0) for (int64_t {v} = {lo}; {v} < {hi}; {v}++)", scope)

    def _partials(self, s: For, lets: dict[str, Expr]) -> list[tuple[Fold, str]]:
        """Print the threads' accumulators of folds into one place."""
        found = []
        totals = {t.name for t in self.kernel.totals if t.size is None}
        for x in s.body:
            if not isinstance(x, Fold) or x.target in totals:
                continue
            if x.index is not None and slope(x.index, s.var, lets) != ZERO:
                continue
            c = self.fresh("p")
            neutral = functions.neutral(x.combine, x.value.dtype)
            self.line(f"{STORED[x.value.dtype]} {c} = {neutral};")
            found.append((x, c))
        return found

    def _gather(self, s: Fold, c: str) -> None:
        """Print the combination of the threads' accumulators."""
        dtype = s.value.dtype
        combine = self._combiner(s.combine, dtype)
        room = f"({STORED[dtype]} *)room_"
        self.line(f"{c} = adarray_together<{self.form.group}>({c}, {room}, {combine});")
        if s.index is None:
            place, only = self.changing[s.target], ""
        else:
            place, only = f"{self.memory[s.target]}[{self.index(s.index)}]", "if (lane == 0) "
        self.line(f"{only}{place} = {self.combined(s.combine, dtype, place, c)};")
        self.changed(s.target)

    def _packed(self, s: For, lets: dict[str, Expr]) -> list[tuple[str, str, Load | Store]]:
        """Return the loads and stores of neighbouring elements of buffers, once each."""
        found: list[tuple[str, str, Load | Store]] = []
        seen: set[Expr] = set()
        buffers = {b.name: b for b in self.kernel.buffers}
        written = self._touches((s,))[1]
        for x in s.body:
            for e in (y for root in expressions(x) for y in walk(root)):
                if (
                    isinstance(e, Load)
                    and e.buffer in buffers
                    and e.buffer not in written
                    and e not in seen
                    and _walks(e.index, s.var, lets)
                ):
                    seen.add(e)
                    found.append(("load", buffers[e.buffer].dtype, e))
            if isinstance(x, Store) and x.buffer in buffers and _walks(x.index, s.var, lets):
                read = self._touches((s,))[0]
                if x.buffer not in read and sum(
                    isinstance(y, Store) and y.buffer == x.buffer for y in s.body
                ) == 1:
                    found.append(("store", buffers[x.buffer].dtype, x))
        return found

    def _bases(
        self, s: For, packed: list[tuple[str, str, Load | Store]], lets: dict[str, Expr], lo: str
    ) -> list[str]:
        """Print pointers to the elements of the first pass."""
        found = []
        self.bind("first_", fixed(lo))
        for kind, dtype, x in packed:
            index = self.index(at(x.index, s.var, Var("int64", "first_"), lets))
            base = self.fresh("q")
            const = "const " if kind == "load" else ""
            self.line(f"{const}{STORED[dtype]} *const {base} = {self.memory[x.buffer]} + {index};")
            found.append(base)
        return found

    def _pass(
        self, s: For, packed: list[tuple[str, str, Load | Store]], partial: list[tuple[Fold, str]]
    ) -> tuple[Scope, list[str]]:
        """Print one pass as a function of what it loads and stores."""
        v = self.fresh("v")
        parameters = [f"const int64_t {v}"]
        loads: dict[Expr, Operand] = {}
        stores: dict[int, str] = {}
        for kind, dtype, x in packed:
            name = self.fresh("x")
            c = STORED[dtype]
            if kind == "load":
                parameters.append(f"const {c} {name}")
                assert isinstance(x, Load)
                loads[x] = fixed(f"({name} != 0)" if dtype == "bool" else name)
            else:
                parameters.append(f"{c} &{name}")
                stores[id(x)] = name
        scope = Scope()
        self.scopes.append(scope)
        self.bind(s.var, fixed(v))
        self.inside, self.load = True, lambda e: loads.get(e) or self.element(e)
        places = {id(f): c for f, c in partial}
        for x in s.body:
            if id(x) in stores:
                assert isinstance(x, Store)
                self.line(f"{stores[id(x)]} = {self.value(x.value)};")
            elif isinstance(x, Fold) and id(x) in places:
                c = places[id(x)]
                text = self.combined(x.combine, x.value.dtype, c, self.value(x.value))
                self.line(f"{c} = {text};")
            else:
                self.statement(x)
        self.inside, self.load = False, None
        self.scopes.pop()
        scope.lines.append(f"(void){v};")
        return scope, parameters

    def _packs(
        self, s: For, packed: list[tuple[str, str, Load | Store]], bases: list[str], one: str,
        lo: str, hi: str, width: int,
    ) -> str:  # fmt: skip
        """Print the loop over packs of neighbouring passes; return where the rest begins."""
        rest = self.fresh("r")
        self.line(f"int64_t {rest} = {lo} + lane;")
        aligned = " && ".join(
            f"adarray_aligned({base}, {width * SIZES[dtype]})"
            for (_, dtype, _), base in zip(packed, bases, strict=True)
        )
        v, scope, after = self.fresh("v"), Scope(), []
        args = [f"{lo} + {v} + u"]
        for (kind, dtype, _), base in zip(packed, bases, strict=True):
            pack = f"adarray_pack<{STORED[dtype]}, {width}>"
            y = self.fresh("y")
            if kind == "load":
                scope.lines.append(f"const {pack} {y} = *(const {pack} *)({base} + {v});")
            else:
                scope.lines.append(f"{pack} {y};")
                after.append(f"*({pack} *)({base} + {v}) = {y};")
            args.append(f"{y}.v[u]")
        scope.lines.append("#pragma unroll")
        scope.lines.append(f"for (int u = 0; u < {width}; u++) {one}({', '.join(args)});")
        scope.lines += after
        count = self.fresh("m")
        outer = Scope()
        self.scopes.append(outer)
        self.line(f"const int64_t {count} = {hi} > {lo} ? ({hi} - {lo}) / {width} * {width} : 0;")
        self._braced(
            f"for (int64_t {v} = (int64_t)lane * {width}; {v} < {count}; {v} += (int64_t)span * {width})",
            scope,
        )
        self.line(f"{rest} += {count};")
        self.scopes.pop()
        self._braced(f"if ({aligned})", outer)
        return rest


def _walks(index: Expr, var: str, lets: dict[str, Expr]) -> bool:
    """Whether an index grows by one each pass, from a place that is known before the loop."""
    if slope(index, var, lets) != ONE:
        return False
    first = at(index, var, ZERO, lets)
    return not any(isinstance(e, Var) and (e.name in lets or e.name == var) for e in walk(first))


def _width(packed: list[tuple[str, str, Load | Store]]) -> int:
    """Return how many passes share the widest loads and stores."""
    return PACK // max((SIZES[dtype] for _, dtype, _ in packed), default=PACK)

"""Loop IR as CUDA C: one kernel, and those that combine what its groups have folded.

Threads of a group do the same, but for vector loops, whose passes they share, and for
writes, which its first thread makes. `adarray.codegen.device` says who is a group.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from adarray.codegen import functions
from adarray.codegen.affine import ZERO, at, slope
from adarray.codegen.cprinter import CPrinter, is_parallel
from adarray.codegen.cvalues import Operand, Scope, fixed
from adarray.codegen.device import (
    PACK,
    Form,
    arrays,
    folding,
    places,
    scattered,
    walks,
)
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
from adarray.codegen.schedule import Scheduled, Target, expressions, longest

CUDA = Dialect(bool_type="bool", instead={})
# Functions that adarray_device.h has out of line, too: inlined hundreds of times they do not
# fit the instruction cache (200 sines took 150 us in place of 10).
_HEAVY = frozenset(
    "pow cbrt hypot exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan atan2 sinh "
    "cosh tanh asinh acosh atanh erf erfc".split()
)
CUDA_FAR = CUDA._replace(
    library={k: f"adarray_far_{v}" if v in _HEAVY else v for k, v in CUDA.library.items()}
)
LONG = 100  # statements of a loop whose passes are printed once
FAR = 12  # calls of mathematical functions from which on they are not inlined
MERGE = 256  # threads of a block that combines array totals

_KERNEL = """\
extern "C" __global__ void __launch_bounds__({threads}) {name}({parameters})
{{
{body}
}}
"""


# What a vector loop loads or stores at neighbouring places: which of both, dtype, statement.
Moved = tuple[str, str, Load | Store]


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
    blocks that share out passes, and of all blocks (int64). Those of the kernels that follow it are the same.
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


class CudaPrinter(CPrinter):
    """Prints one kernel."""

    def __init__(self, kernel: Kernel, form: Form) -> None:
        super().__init__(Scheduled(kernel, Target(precise=True), {}, frozenset()))
        applied = [e for s in self.statements for x in expressions(s) for e in walk(x)]
        heavy = sum(isinstance(e, Apply) and CUDA.library.get(e.name) in _HEAVY for e in applied)
        self.dialect = CUDA_FAR if heavy > FAR else CUDA
        self.both = _both(applied)
        self.form = form
        self.inside = False  # of a vector loop
        self.counter = "int" if form.narrow else "int64_t"
        self.place = places(kernel)
        self.cached: dict[tuple[str, Expr], str] = {}  # what is read once for several loops
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
        self.line("(void)fail;")
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
        return [
            *found, "char *const scratch", "int *const fail", "const int64_t blocks",
            "const int64_t parts",
        ]  # fmt: skip

    def _head(self) -> None:
        """Print who this thread is, and where the parts of scratch memory begin."""
        group, block = self.form.group, self.form.block
        if self.form.kind == "flat":
            self.line(f"const {self.counter} lane = ({self.counter})blockIdx.x * {block} + threadIdx.x;")
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
        mine = (s for s in arrays(self.kernel) if s.name not in self.form.kept)
        for x in (*self.kernel.totals, *mine):
            i = self.places[id(x)]
            size = None if x.size is None else f"({self.index(x.size)} + 63) / 64 * 64"
            if isinstance(x, Local) and x.name in self.form.shared:
                lines.append(f"const int64_t o{i} = {close};")
                per = self.form.block // self.form.group
                close = f"o{i} + {size} * {per * SIZES[x.dtype]}"
                continue
            lines.append(f"const int64_t o{i} = {far};")
            count = "(parts + 63) / 64 * 64" if size is None else f"groups * ({size})"
            far = f"o{i} + {count} * {SIZES[x.dtype]}"
        return lines

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
        width = self._sheet_width(t)
        if width > 1:  # by the threads that fold into them later
            self.line(
                f"for (int64_t k = (int64_t)lane * {width}; k < {size} / {width} * {width}; "
                f"k += (int64_t)span * {width}) for (int u = 0; u < {width}; u++) "
                f"{c}[k + u] = {neutral};"
            )
        self.line(
            f"for (int64_t k = {size} / {width} * {width} + lane; k < {size}; k += span) "
            f"{c}[k] = {neutral};"
            if width > 1
            else f"for (int64_t k = lane; k < {size}; k += span) {c}[k] = {neutral};"
        )
        self.written_.add(t.name)

    def _sheet_width(self, t: Total) -> int:
        """Return how many elements of an array total a thread of a sheet has side by side.

        Blocks share such a total, and cannot wait for each other, so an element belongs to
        the same thread in every pass.
        """
        if self.form.kind != "sheet":
            return 1
        (loop,) = folding(self.kernel, t)
        lets = {x.name: x.value for x in loop.body if isinstance(x, Let)}
        return self._width(loop, self._packed(loop, lets))

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
        return (
            {self.place.get(n, n) for n in read & shared} - self.form.kept,
            {self.place.get(n, n) for n in written & shared} - self.form.kept,
        )

    def _wait_for(self, s: Stmt) -> None:
        """Print a barrier if `s` needs what other threads of the group did."""
        if self.form.kind in ("flat", "sheet") or self.form.group == 1:
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

    # -- values ----------------------------------------------------------------------------

    def apply(self, e: Apply, args: list[Operand]) -> Operand:
        """Name the value of a function; a sine and a cosine of one operand come together."""
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
        first = self.place[s.name]
        if first in self.form.kept and first != s.name:
            self.memory[s.name] = self.memory[first]
            return
        if first != s.name:
            self.line(f"{kind} *const {c} = ({kind} *){self.memory[first]};")
            self.memory[s.name] = c
            self.changed(s.name)
            return
        if s.name in self.form.kept:
            count = self.form.passes // self.form.width
            self.line(f"adarray_pack<{kind}, {self.form.width}> {c}[{count}];")
            self.memory[s.name] = c
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
        if self.form.kind not in ("flat", "sheet") and self.form.group > 1:
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
        if self.form.kind == "rows" and self.form.group > 1:
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
        self.line(f"const {self.counter} {lo} = {start}, {hi} = {stop};")
        if scattered(s):
            self._first_thread(s, lo, hi)
            return
        lets = {x.name: x.value for x in s.body if isinstance(x, Let)}
        partial = self._partials(s, lets)
        if self.form.passes:
            self._kept_loop(s, lets, partial, (lo, hi))
            return
        packed = self._packed(s, lets)
        body, parameters = self._pass(s, packed, partial)
        one = self.fresh("f")
        self._braced(f"const auto {one} = [&]({', '.join(parameters)})", body, "};")
        guarded = Scope()
        self.scopes.append(guarded)
        bases = self._bases(s, packed, lets, lo)
        head, count = "0", "0"
        if self._width(s, packed) > 1:
            sized = {t.name for t in self.kernel.totals if t.size is not None}
            still = self.form.kind == "sheet" and any(
                isinstance(x, Fold) and x.target in sized for x in s.body
            )
            width = self._width(s, packed)
            head, count = self._packs(packed, bases, one, (lo, hi), width, still)
        self._singles(packed, bases, one, lo, hi, head, count)
        self.scopes.pop()
        self._braced(f"if (lane < {hi} - {lo})", guarded)
        for fold, c in partial:
            self._gather(fold, c)

    def _kept_loop(
        self, s: For, lets: dict[str, Expr], partial: list[tuple[Fold, str]],
        bounds: tuple[str, str],
    ) -> None:  # fmt: skip
        """Print a loop all of whose passes are written out: what they keep is in registers."""
        lo, hi = bounds
        width, count = self.form.width, self.form.passes // self.form.width
        packed = [*self._packed(s, lets), *self._registers(s)]
        body, parameters = self._pass(s, packed, partial)
        one, q, v = self.fresh("f"), self.fresh("k"), self.fresh("v")
        self._braced(f"const auto {one} = [&]({', '.join(parameters)})", body, "};")
        moved = [m for m in packed if m[0] in ("load", "store")]
        bases = dict(zip(map(id, (m[2] for m in moved)), self._bases(s, moved, lets, lo), strict=True))
        scope, after, args = Scope(), [], [f"{lo} + {v} + u"]
        for kind, dtype, x in packed:
            pack = f"adarray_pack<{STORED[dtype]}, {width}>"
            if kind == "register":
                name = x.target if isinstance(x, Fold) else x.buffer
                args.append(f"{self.memory[name]}[{q}].v[u]")
                continue
            base = bases[id(x)]
            straight = self.fresh("w")
            self.line(f"const bool {straight} = adarray_aligned<{width}>({base});")
            if kind == "store":
                y = self.fresh("y")
                scope.lines.append(f"{pack} {y};")
                after.append(f"adarray_store({y}, {base} + {v}, {straight});")
                args.append(f"{y}.v[u]")
                continue
            key = (x.buffer, at(x.index, s.var, ZERO, lets))
            if key in self.form.loads:
                known = self.cached.get(key)
                if known is None:
                    known = self.cached[key] = self.fresh("c")
                    self.line(f"{pack} {known}[{count}];")
                    scope.lines.append(f"adarray_load({known}[{q}], {base} + {v}, {straight});")
                args.append(f"{known}[{q}].v[u]")
            else:
                y = self.fresh("y")
                scope.lines.append(f"{pack} {y};")
                scope.lines.append(f"adarray_load({y}, {base} + {v}, {straight});")
                args.append(f"{y}.v[u]")
        scope.lines.append("#pragma unroll")
        scope.lines.append(f"for (int u = 0; u < {width}; u++) {one}({', '.join(args)});")
        scope.lines += after
        outer = Scope()
        outer.lines.append(f"const {self.counter} {v} = ({q} * span + lane) * {width};")
        self.scopes.append(outer)
        self._braced(f"if ({v} < {hi} - {lo})", scope)
        self.scopes.pop()
        self.line("#pragma unroll")
        self._braced(f"for (int {q} = 0; {q} < {count}; {q}++)", outer)
        for fold, c in partial:
            self._gather(fold, c)

    def _registers(self, s: For) -> list[Moved]:
        """Return one access of each array in registers that a loop touches."""
        found: dict[str, Moved] = {}
        for x in s.body:
            touched: list[Load | Store] = [
                e for r in expressions(x) for e in walk(r) if isinstance(e, Load)
            ]
            touched += [x] if isinstance(x, Store) else []
            for e in touched:
                first = self.place.get(e.buffer)
                if first in self.form.kept:
                    found.setdefault(first, ("register", self.dtypes[e.buffer], e))
        return list(found.values())

    def _singles(
        self, packed: list[Moved], bases: list[str], one: str, lo: str, hi: str, head: str,
        count: str,
    ) -> None:  # fmt: skip
        """Print the loop over the passes before and after the packs."""
        k, v, scope = self.fresh("k"), self.fresh("v"), Scope()
        at_ = k if count == "0" else f"({k} < {head} ? {k} : {k} + {count})"
        scope.lines.append(f"const {self.counter} {v} = {at_};")
        args, after = [f"{lo} + {v}"], []
        for (kind, dtype, _), base in zip(packed, bases, strict=True):
            if kind == "load":
                args.append(f"{base}[{v}]")
                continue
            y = self.fresh("y")
            scope.lines.append(f"{STORED[dtype]} {y};")
            args.append(y)
            after.append(f"{base}[{v}] = {y};")
        scope.lines += [f"{one}({', '.join(args)});", *after]
        self._braced(
            f"for ({self.counter} {k} = lane; {k} < {hi} - {lo} - {count}; {k} += span)", scope
        )

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

    def _packed(self, s: For, lets: dict[str, Expr]) -> list[Moved]:
        """Return the loads and stores of neighbouring elements of buffers, once each."""
        found: list[Moved] = []
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
                    and walks(e.index, s.var, lets)
                ):
                    seen.add(e)
                    found.append(("load", buffers[e.buffer].dtype, e))
            if isinstance(x, Store) and x.buffer in buffers and walks(x.index, s.var, lets):
                read = self._touches((s,))[0]
                if x.buffer not in read and sum(
                    isinstance(y, Store) and y.buffer == x.buffer for y in s.body
                ) == 1:
                    found.append(("store", buffers[x.buffer].dtype, x))
        return found

    def _bases(
        self, s: For, packed: list[Moved], lets: dict[str, Expr], lo: str
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
        self, s: For, packed: list[Moved], partial: list[tuple[Fold, str]]
    ) -> tuple[Scope, list[str]]:
        """Print one pass as a function of what it loads and stores."""
        v = self.fresh("v")
        parameters = [f"const int64_t {v}"]
        loads: dict[Expr, Operand] = {}
        stores: dict[int, str] = {}
        elements: dict[str, str] = {}  # of arrays in registers
        for kind, dtype, x in packed:
            name = self.fresh("x")
            c = STORED[dtype]
            if kind == "register":
                parameters.append(f"{c} &{name}")
                elements[self.place[x.buffer]] = name
            elif kind == "load":
                parameters.append(f"const {c} {name}")
                assert isinstance(x, Load)
                loads[x] = fixed(f"({name} != 0)" if dtype == "bool" else name)
            else:
                parameters.append(f"{c} &{name}")
                stores[id(x)] = name
        scope = Scope()
        self.scopes.append(scope)
        self.bind(s.var, fixed(v))


        def load(e: Load) -> Operand:
            if e in loads:
                return loads[e]
            name = elements.get(self.place.get(e.buffer, ""))
            return self.element(e) if name is None else self._copied(e, name)

        self.inside, self.load = True, load
        places = {id(f): c for f, c in partial}
        for x in s.body:
            if id(x) in stores:
                assert isinstance(x, Store)
                self.line(f"{stores[id(x)]} = {self.value(x.value)};")
            elif isinstance(x, Store) and self.place.get(x.buffer, "") in elements:
                value = self.operand(x.value)
                self.line(f"{elements[self.place[x.buffer]]} = {value.text};")
                self.changed(x.buffer)
                self.remember(x.buffer, "kept", value)
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

    def _copied(self, e: Load, name: str) -> Operand:
        """Name the element of an array in registers."""
        key = f"{e.buffer}[kept]@{self.versions.get(e.buffer, 0)}"
        test = " != 0" if e.dtype == "bool" else ""
        return self.named(key, e.dtype, lambda: f"{name}{test}")

    def _packs(
        self, packed: list[Moved], bases: list[str], one: str, bounds: tuple[str, str],
        width: int, still: bool,
    ) -> tuple[str, str]:  # fmt: skip
        """Print the loop over packs of neighbouring passes.

        They begin where the first result, or else operand, is aligned, unless they must stay
        where they are; what then is not is moved element by element. Return how many passes
        come before, and how many it makes.
        """
        lo, hi = bounds
        moves = list(zip(packed, bases, strict=True))
        (_, dtype, _), base = next((m for m in moves if m[0][0] == "store"), moves[0])
        head, count = self.fresh("h"), self.fresh("m")
        n = f"({hi} > {lo} ? {hi} - {lo} : 0)"
        first = "0" if still else f"adarray_head<{width}>({base}, {n})"
        self.line(f"const {self.counter} {head} = {first};")
        self.line(f"const {self.counter} {count} = ({n} - {head}) / {width} * {width};")
        v, scope, after = self.fresh("v"), Scope(), []
        args = [f"{lo} + {v} + u"]
        for (kind, dtype, _), base in moves:
            straight = self.fresh("w")
            place = f"{base} + {head}"
            self.line(f"const bool {straight} = adarray_aligned<{width}>({place});")
            y = self.fresh("y")
            scope.lines.append(f"adarray_pack<{STORED[dtype]}, {width}> {y};")
            if kind == "load":
                scope.lines.append(f"adarray_load({y}, {base} + {v}, {straight});")
            else:
                after.append(f"adarray_store({y}, {base} + {v}, {straight});")
            args.append(f"{y}.v[u]")
        scope.lines.append("#pragma unroll")
        scope.lines.append(f"for (int u = 0; u < {width}; u++) {one}({', '.join(args)});")
        scope.lines += after
        cast = f"({self.counter})"
        first, step = f"{head} + {cast}lane * {width}", f"{cast}span * {width}"
        self._braced(
            f"for ({self.counter} {v} = {first}; {v} < {head} + {count}; {v} += {step})", scope
        )
        return head, count

    def _width(self, s: For, packed: list[Moved]) -> int:
        """Return how many passes share the widest loads and stores; 1 in long bodies."""
        passes = longest(s, {})
        if len(s.body) > LONG or (passes is not None and passes < 64):
            return 1
        return PACK // max((SIZES[dtype] for _, dtype, _ in packed), default=PACK)


def _both(applied: list[Expr]) -> set[tuple[str, tuple[Expr, ...]]]:
    """Return the operands of which both the sine and the cosine are computed."""
    found: dict[str, set[tuple[str, tuple[Expr, ...]]]] = {"sin": set(), "cos": set()}
    for e in applied:
        if isinstance(e, Apply) and e.name in found and isinstance(e.args[0], Var):
            found[e.name].add((e.dtype, e.args))
    return found["sin"] & found["cos"]

"""Kernels as C for processors: blocks one after the other, threads of a block as loops.

Between two barriers, the threads of a block run one after the other. What a thread keeps beyond a
barrier is an array with a place for each thread; what costs nothing to compute is computed again.
Barriers stand in control flow that all threads share, whose conditions are those of the first
thread.
"""

from __future__ import annotations

from dataclasses import replace

from adarray.compiler.ir.loopir import (
    Apply,
    Assign,
    Const,
    Expr,
    For,
    If,
    Let,
    Load,
    Local,
    Store,
    Var,
)
from adarray.compiler.ir.threads import (
    INDICES,
    SHUFFLES,
    Atomic,
    Barrier,
    Pop,
    Push,
    Recall,
    Record,
    Stmt,
    ThreadKernel,
    WarpOp,
    While,
    all_statements,
    inside,
    is_collective,
    is_vector,
    reads,
    sums_of,
)
from adarray.kernels import build
from adarray.kernels.c_head import BRANCHES, END, HEAD, TAPE_ARRAYS
from adarray.kernels.exits import neutral
from adarray.kernels.lockstep import in_lockstep
from adarray.kernels.outlining import Name, Outlines
from adarray.kernels.parallel import PARALLEL, is_taped
from adarray.kernels.printing import ThreadPrinter
from adarray.kernels.texts import CTYPES, STORED
from adarray.kernels.types import FLOATS

_ALL = build.const(0xFFFFFFFF, "uint32")


def _of_warp(s: Stmt) -> bool:
    return isinstance(s, WarpOp) or (isinstance(s, Barrier) and s.warp)


class ThreadCPrinter(ThreadPrinter):
    """Prints one kernel.

    Parameters
    ----------
    kernel : ThreadKernel
    name : str
        Of the function.
    threads : bool
        Whether several threads of the processor run blocks at the same time.
    forks : int
        How many threads share the loops of a kernel of one thread that are to be shared.
    """

    def __init__(self, kernel: ThreadKernel, name: str, threads: bool, forks: int = 1) -> None:
        super().__init__()
        self.forks = forks
        if any(_of_warp(s) for s in all_statements(kernel.body)):
            kernel = in_lockstep(kernel)
        self.kernel = kernel
        self.name = name
        self.threads = threads
        self.buffers = {b.name: b for b in kernel.buffers}
        self.waits = is_collective(kernel.body)
        self.taped = any(isinstance(s, (Push, Record)) for s in all_statements(kernel.body))
        self.leaves = any(isinstance(s, Record) for s in all_statements(kernel.body))
        # Sums over all threads, added to memory once.
        self.totals = {
            s.buffer: self.buffers[s.buffer].dtype
            for s in all_statements(kernel.body)
            if isinstance(s, Atomic) and s.same == "grid"
        }
        # Buffers that are only added to: each thread of the processor may add into its own.
        self.own = self._only_added() if threads else {}
        known = {f"{n}__total": Name(d) for n, d in self.totals.items()}
        for n, d in self.own.items():
            known[f"{n}__own"] = Name(d, f"{STORED[d]} *restrict const ")
        self.outlines = None if self.waits else Outlines(kernel, name, known)
        self.functions: list[str] = []  # the lines of those that are cut out
        self.spilled: dict[str, Let | Local | Pop] = {}
        self.again: dict[str, Let] = {}
        self.work: list[tuple[str, str, str]] = []  # arrays of a block: type, name, size
        self.sent = {
            s.name: s for s in all_statements(kernel.body) if isinstance(s, WarpOp)
        }  # what threads give to others of their warp, by the names of what these get

    def _only_added(self) -> dict[str, str]:
        """Return the dtypes of buffers that atomic additions alone touch, by name."""
        dtypes: dict[str, str] = {}
        others: set[str] = set()
        for s in all_statements(self.kernel.body):
            if isinstance(s, Atomic) and s.buffer in self.buffers and s.same != "grid":
                if s.combine == "add" and s.result is None:
                    dtypes[s.buffer] = self.buffers[s.buffer].dtype
                else:
                    others.add(s.buffer)
            elif isinstance(s, Store):
                others.add(s.buffer)
            others |= {e.buffer for e in reads(s) if isinstance(e, Load)}
        return {n: d for n, d in dtypes.items() if n not in others}

    def source(self) -> str:
        """Return the text of the function."""
        k = self.kernel
        if self.waits:
            self._plan()
        self.line(f"void {self.name}(void *adarray_data) {{")
        self.depth = 1
        self.line("adarray_call *const call = adarray_data;")
        for i, name in enumerate(k.order):
            if name in self.buffers:
                b = self.buffers[name]
                star = "const " if b.access == "in" else ""
                self.line(f"{star}{STORED[b.dtype]} *restrict const {name} = call->args[{i}];")
            else:
                t = STORED[dict(k.scalars)[name]]
                self.line(f"const {t} {name} = *({t} *)call->args[{i}];")
        for a, axis in enumerate("xyz"):
            self.line(f"const uint32_t gridDim_{axis} = call->grid[{a}], "
                      f"blockDim_{axis} = call->block[{a}];")  # fmt: skip
        self.tables(k)
        self._memory()
        for name, dtype in self.totals.items():
            self.line(f"{CTYPES[dtype]} {name}__total = 0;")
        for name, dtype in self.own.items():
            t, size = STORED[dtype], f"call->sizes[{k.order.index(name)}]"
            self.line(f"{t} *restrict const {name}__own = adarray_own(call, {size}, sizeof({t}));")
        self.line("for (;;) {")
        self.line(
            "    int64_t b_ = __atomic_fetch_add(&call->next, call->chunk, __ATOMIC_RELAXED);"
        )
        self.line("    if (b_ >= call->blocks) break;")
        self.line(
            "    int64_t e_ = b_ + call->chunk < call->blocks ? b_ + call->chunk : call->blocks;"
        )
        self.line("    for (; b_ < e_; b_++) {")
        self.depth = 3
        self.line("const uint32_t blockIdx_x = b_ % gridDim_x;")
        self.line("const uint32_t blockIdx_y = b_ / gridDim_x % gridDim_y;")
        self.line("const uint32_t blockIdx_z = b_ / ((int64_t)gridDim_x * gridDim_y);")
        for s in k.shared:
            if s.zero:
                self.line(f"memset({s.name}, 0, {self._bytes(s.name)});")
        if self.waits:
            self.region(k.body)
        else:
            self.loop(k.body)
        self.depth = 1
        self.line("    }")
        self.line("}")
        if self.leaves:
            self.line("adarray_out:;")
        for name, dtype in self.totals.items():
            self.line(self._added(f"&{name}[0]", dtype, "add", f"{name}__total", True) + ";")
        for name, dtype in self.own.items():
            t, size = STORED[dtype], f"call->sizes[{k.order.index(name)}]"
            added = self._added(f"&{name}[i_]", dtype, "add", f"{name}__own[i_]", True)
            self.line(f"if ({name}__own) {{")
            self.line(f"    for (int64_t i_ = 0; i_ < {size}; i_++)")
            self.line(f"        if ({name}__own[i_] != 0) {added};")
            self.line(f"    free({name}__own);")
            self.line("}")
        self._release()
        self.depth = 0
        self.line("}")
        self.line(f"int64_t {self.name}_scratch(const int64_t *i) {{ return 0; }}")
        return "\n".join([*self.functions, *self.lines]) + "\n"

    def statement(self, s: Stmt) -> None:
        """Print one statement, or the call of the function that it has become."""
        part = self.outlines.parts.get(id(s)) if self.outlines is not None else None
        if part is None:
            self._in_place(s)
            return
        lines, depth, self.lines, self.depth = self.lines, self.depth, part.head(self.taped), 1
        self._in_place(s)
        self.functions += [*self.lines, *part.end(self.leaves)]
        self.lines, self.depth = lines, depth
        call = part.call(self.taped)
        self.line(f"if ({call}) goto adarray_out;" if self.leaves else f"{call};")

    def _in_place(self, s: Stmt) -> None:
        """Print one statement where it stands; of a loop that threads share, the fork."""
        forks = isinstance(s, For) and s.kind == PARALLEL and self.forks > 1
        if not forks or self.outlines is None:
            super().statement(s)
            return
        assert isinstance(s, For)
        part = self.outlines.cut(s)
        assert not part.set
        taped = is_taped(s.body)
        lines, depth, self.lines, self.depth = self.lines, self.depth, part.shared(self.taped), 1
        head = f"int64_t {s.var} = part_; {s.var} < {self.text(s.stop, 11)}; {s.var} += parts_"
        self.line(f"for ({head}) {{")
        self.depth += 1
        if taped:  # each part has a tape of its own, behind that of the kernel
            self.line(f"adarray_tape *const tapes_ = c_->tapes_ + 1 + {s.var};")
        self.block(s.body)
        self.depth -= 1
        self.line("}")
        self.functions += [*self.lines, *["    adarray_out:;"] * self.leaves, "}"]
        self.lines, self.depth = lines, depth
        self.line("{")
        self.depth += 1
        for line in part.fork(self.forks, self.taped):
            self.line(line)
        if taped and self.leaves:
            self.line("if (call->status) goto adarray_out;")
        self.depth -= 1
        self.line("}")

    def vector(self, s: For) -> None:
        """Print that iterations may run side by side, and their sums be added up in any order."""
        if s.kind == "vector" and is_vector(s):
            names = ", ".join(self.text.names.get(n, n) for n in sums_of(s))
            self.line("#pragma omp simd" + (f" reduction(+:{names})" if names else ""))

    # -- memory of a block ---------------------------------------------------------------------

    def _bytes(self, name: str) -> str:
        return next(size for _, n, size in self.work if n == name)

    def _memory(self) -> None:
        """Print the memory that a block works in."""
        for s in self.kernel.shared:
            t = STORED[s.dtype]
            size = f"{s.size} * sizeof({t})" if s.size is not None else "call->dynamic + 64"
            self.work.append((t, s.name, size))
        if self.spilled or self.taped or self.sent:
            self.line("const int64_t threads_ = (int64_t)blockDim_x * blockDim_y * blockDim_z;")
        for name, d in self.spilled.items():
            dtype = d.value.dtype if isinstance(d, Let) else d.dtype
            t, many = STORED[dtype], ""
            if isinstance(d, Local) and d.size is not None:
                assert isinstance(d.size, Const)
                many = f"{d.size.value} * "
                self.text.names[name] = f"({name}__all + {d.size.value} * t_)"
            else:
                self.text.names[name] = f"{name}__all[t_]"
            self.work.append((t, f"{name}__all", f"{many}threads_ * sizeof({t})"))
        for name, op in self.sent.items():
            t = "uint32_t" if op.kind == "ballot" else STORED[op.value.dtype]
            self.work.append((t, f"{name}__sent", f"threads_ * sizeof({t})"))
        for t, name, size in self.work:
            self.line(f"{t} *restrict const {name} = adarray_pool.take({size});")
        if self.taped:
            count = self._tapes()
            last = "0"
            if not self.waits:  # one thread's tapes are as long as in its last run, mostly
                last = f"{self.name}_last"
                self.functions.append(f"static int64_t {last}[{count}];")
            self.line(f"adarray_tape *const tapes_ = adarray_tapes({count}, {last});")

    def _tapes(self) -> str:
        """Return how many tapes there are: of threads, or of parts of loops that are shared."""
        if self.waits:
            return "threads_"
        parts = [
            s.stop.value
            for s in all_statements(self.kernel.body)
            if isinstance(s, For) and s.kind == PARALLEL and is_taped(s.body)
            if isinstance(s.stop, Const)
        ]
        return str(1 + max(parts, default=0))

    def _release(self) -> None:
        for _, name, size in self.work:
            self.line(f"adarray_pool.give({name}, {size});")
        if self.taped:
            count = self._tapes()
            self.line(f"adarray_release(tapes_, {count});")

    # -- barriers ------------------------------------------------------------------------------

    def _plan(self) -> None:
        """Find what threads keep beyond barriers, and what they compute again."""
        places: dict[str, set[int]] = {}
        declared: dict[str, Let | Local | Pop] = {}
        steady = {n for n, _ in self.kernel.scalars} | INDICES
        loops: set[str] = set()
        count = 0

        def note(s: Stmt, place: int) -> None:
            for t in (s,) if place < 0 else all_statements((s,)):
                if isinstance(t, (Let, Local, Pop)):
                    declared[t.name] = t
                if isinstance(t, WarpOp):
                    declared[t.name] = Local(t.name, t.dtype)
                    places.setdefault(t.name, set()).add(place)
                    t = Let("", t.lane)
                if isinstance(t, Atomic) and t.result is not None:
                    dtype = t.value.dtype
                    declared[t.result] = Local(t.result, dtype)
                    places.setdefault(t.result, set()).add(place)
                if isinstance(t, (Let, Local, Pop, Assign)):
                    places.setdefault(t.name, set()).add(place)
                if isinstance(t, (Store, Atomic)):
                    places.setdefault(t.buffer, set()).add(place)
                if isinstance(t, While):
                    places.setdefault(t.condition, set()).add(place)
                for e in reads(t):
                    name = (
                        getattr(e, "name", None)
                        if isinstance(e, Var)
                        else getattr(e, "buffer", None)
                    )
                    if name is not None:
                        places.setdefault(name, set()).add(place)

        def walk(body: tuple[Stmt, ...]) -> None:
            nonlocal count
            count += 1
            for s in body:
                if not is_collective((s,)):
                    note(s, count)
                    continue
                if isinstance(s, WarpOp):
                    note(Let("", s.value), count)
                    if s.mask is not None:
                        note(Let("", s.mask), count)
                    count += 1
                    note(s, count)
                    continue
                count += 1
                if isinstance(s, For):
                    loops.add(s.var)
                if not isinstance(s, Barrier):
                    note(s, -1)
                for part in inside(s):
                    walk(part)
                count += 1

        walk(self.kernel.body)
        steady |= loops
        cheap: dict[str, Let] = {}
        loaded: set[str] = set()
        for name, d in declared.items():
            if isinstance(d, Let) and self._cheap(d.value):
                names = {e.name for e in reads(d) if isinstance(e, Var)}
                loads = any(isinstance(e, Load) for e in reads(d))
                if names <= steady | set(cheap) and not (loads and names & loaded):
                    cheap[name] = d
                    loaded |= {name} if loads else set()
        beyond = {name for name in declared if len(places.get(name, ())) > 1}
        again = beyond & set(cheap)
        for name in reversed(cheap):
            if name in again:
                again |= {e.name for e in reads(cheap[name]) if isinstance(e, Var)} & set(cheap)
        self.again = {name: d for name, d in cheap.items() if name in again}
        self.spilled = {n: declared[n] for n in declared if n in beyond - again}

    def _cheap(self, e: Expr) -> bool:
        """Whether a value is computed or read again rather than kept."""
        if isinstance(e, Load):
            fixed = e.buffer in self.buffers and self.buffers[e.buffer].access == "in"
            return fixed and self._cheap(e.index)
        if isinstance(e, Apply):
            whole = e.dtype not in FLOATS or e.name == "negative"
            return whole and build.is_harmless(e) and all(map(self._cheap, e.args))
        return True

    def region(self, body: tuple[Stmt, ...]) -> None:
        """Print statements of a whole block of threads."""
        group: list[Stmt] = []
        for s in body:
            if not is_collective((s,)):
                group.append(s)
                continue
            if isinstance(s, WarpOp):
                self.loop(tuple(group), s)
                group = [s]
                continue
            if group:
                self.loop(tuple(group))
                group = []
            self._together(s)
        if group:
            self.loop(tuple(group))

    def _together(self, s: Stmt) -> None:
        """Print a statement that holds a barrier, which all threads carry out together."""
        if isinstance(s, For):
            start, stop = self._first(s.start), self._first(s.stop)
            self.line(f"for (int64_t {s.var} = {start}; {s.var} < {stop}; {s.var}++) {{")
            self.depth += 1
            self.region(s.body)
            self.depth -= 1
            self.line("}")
        elif isinstance(s, While):
            self._while(s)
            self.depth += 1
            self.region(s.body)
            self.depth -= 1
            self.line("}")
        elif isinstance(s, If):
            self.line(f"if ({self._first(s.condition)}) {{")
            self.depth += 1
            self.region(s.body)
            self.depth -= 1
            self.line("}" if not s.orelse else "} else {")
            if s.orelse:
                self.depth += 1
                self.region(s.orelse)
                self.depth -= 1
                self.line("}")

    def _while(self, s: While) -> None:
        """Print the head of a loop that all threads run together."""
        if not s.any_thread:
            self.line(f"while ({self._first(Var('bool', s.condition))}) {{")
            return
        self.line("for (;;) {")
        self.line("    int64_t any_ = 0;")
        goes_on = self.text.names[s.condition]
        self.line(f"    for (int64_t t_ = 0; t_ < threads_; t_++) any_ |= {goes_on};")
        self.line("    if (!any_) break;")

    def _first(self, e: Expr) -> str:
        """Return the text of what is alike for all threads, as the first one has it."""
        needed = self._needed(Let("", e))
        by = {n: d.value for n, d in self.again.items() if n in needed}
        from adarray.compiler.ir.threads import replaced

        for _ in by:
            e = replaced(e, by)
        text = f"({self.text(e)})"
        for axis in "xyz":
            text = text.replace(f"threadIdx_{axis}", "0u")
        return text.replace("[t_]", "[0]").replace("* t_)", "* 0)")

    def _needed(self, *body: Stmt) -> set[str]:
        """Return names of what is computed again for statements."""
        names: set[str] = set()
        stack = [e.name for s in all_statements(body) for e in reads(s) if isinstance(e, Var)]
        while stack:
            name = stack.pop()
            if name in self.again and name not in names:
                names.add(name)
                stack += [e.name for e in reads(self.again[name]) if isinstance(e, Var)]
        return names

    def loop(self, body: tuple[Stmt, ...], sends: WarpOp | None = None) -> None:
        """Print the loop over the threads of a block, which end with what they send to others."""
        own = tuple(s for s in body if not (isinstance(s, Let) and s.name in self.again))
        if not own and sends is None:
            return
        needed = self._needed(*own, *([sends] if sends is not None else []))
        for axis in "zyx":
            self.line(
                f"for (int32_t t{axis}_ = 0; t{axis}_ < (int32_t)blockDim_{axis}; t{axis}_++) {{"
            )
            self.depth += 1
        for axis in "xyz":
            self.line(f"const uint32_t threadIdx_{axis} = t{axis}_;")
        if self.spilled or self.sent or (self.taped and self.waits):
            self.line("const int64_t t_ = ((int64_t)tz_ * blockDim_y + ty_) * blockDim_x + tx_;")
        for name, d in self.again.items():
            if name in needed:
                self.line(f"const {CTYPES[d.value.dtype]} {name} = {self.text(d.value)};")
        self.block(own)
        if sends is not None:
            self._send(sends)
        for _ in "xyz":
            self.depth -= 1
            self.line("}")

    def _send(self, s: WarpOp) -> None:
        """Print what a thread gives to others of its warp."""
        value = self.text(s.value)
        if s.kind not in SHUFFLES and s.mask is not None and s.mask != _ALL:
            takes_part = f"{self.text(s.mask, 12)} >> (t_ & 31) & 1"
            value = f"{takes_part} ? {value} : {self.text(neutral(s))}"
        self.line(f"{s.name}__sent[t_] = {value};")

    def warp_op(self, s: WarpOp) -> None:
        """Print what a thread gets from others of its warp."""
        sent = f"{s.name}__sent"
        if s.kind in SHUFFLES:
            lane = self.text(s.lane)
            text = f"{sent}[adarray_lane_{s.kind}(t_, {lane}, {s.width}, threads_)]"
        else:
            text = f"adarray_warp_{s.kind}_{s.value.dtype}({sent}, t_, threads_)"
        self.let(s.name, s.dtype, text)

    def barrier(self, s: Barrier) -> None:
        """Barriers are where loops over threads end."""

    # -- atomics and the tape ------------------------------------------------------------------

    def atomic(self, s: Atomic) -> None:
        """Print an addition that other threads may make at the same time."""
        if s.same == "grid":
            self.line(f"{s.buffer}__total += {self.text(s.value)};")
            return
        if s.same == "block":
            # The index may be out of range for threads that have nothing to add.
            self.nested(f"if ({self.text(s.value, 10)} != 0)", (replace(s, same=""),))
            return
        place = self.element(s.buffer, s.index)
        dtype = s.value.dtype
        if s.buffer in self.own:
            index, value = self.text(s.index), self.text(s.value)
            added = self._added(f"&{place}", dtype, s.combine, value, True)
            self.line(f"if ({s.buffer}__own) {s.buffer}__own[{index}] += {value};")
            self.line(f"else {added};")
            return
        if s.result is not None:
            name = self.text.names.get(s.result)
            head = f"{name} = " if name else f"const {CTYPES[dtype]} {s.result} = "
            if self.threads and s.buffer in self.buffers:
                self.line(
                    head
                    + self._added(f"&{place}", dtype, s.combine, self.text(s.value), True)
                    + ";"
                )
                return
            self.line(f"{head}{place};")
        if self.threads and s.buffer in self.buffers:
            self.line(self._added(f"&{place}", dtype, s.combine, self.text(s.value), True) + ";")
        elif s.combine == "add":
            self.line(f"{place} += {self.text(s.value)};")
        else:
            self.line(f"{place} = {self.combined(s, place)};")

    def _added(self, place: str, dtype: str, combine: str, value: str, atomic: bool) -> str:
        if not (self.threads and atomic):
            return f"*({place}) += {value}"
        return f"adarray_atomic_{combine}_{dtype}({place}, {value})"

    def _tape(self) -> str:
        return "&tapes_[t_]" if self.waits else "tapes_"

    def arrays_of_tape(self, s: Record | Recall) -> None:
        """Print how arrays get onto the tape, or come off it; without room, the call ends."""
        count = f"{s.arrays[0][0]}_n"
        text = self.text(s.count)
        self.line(f"const int64_t {count} = adarray_more({text}, 0);")
        sizes = [f"adarray_words({count}, sizeof({STORED[d]}))" for _, d in s.arrays]
        total = " + ".join(sizes)
        take = f"adarray_take({self._tape()}, {total}, call)"
        back = f"adarray_back({self._tape()}, {total})"
        first = f"{s.arrays[0][0]}_at"
        self.line(f"double *{first} = {take if isinstance(s, Record) else back};")
        self.line(f"if (!{first}) goto adarray_out;")
        for (name, dtype), size in zip(s.arrays, sizes, strict=True):
            const = "" if isinstance(s, Record) else "const "
            t = STORED[dtype]
            self.line(f"{const}{t} *restrict const {name} = ({const}{t} *){first};")
            if name != s.arrays[-1][0]:
                self.line(f"{first} += {size};")

    def push(self, value: Expr) -> None:
        """Print how a value gets onto the tape."""
        text = self.text(value)
        if value.dtype in ("int64", "uint64"):
            text = f"adarray_as_double({text})"
        self.line(f"adarray_push({self._tape()}, {text}, call);")

    def pop(self, s: Pop) -> None:
        """Print how a value comes off the tape."""
        text = f"adarray_pop({self._tape()})"
        if s.dtype in ("int64", "uint64"):
            text = f"adarray_as_int({text})"
        self.let(s.name, s.dtype, f"({CTYPES[s.dtype]}){text}")


def source(kernel: ThreadKernel, name: str, threads: bool, forks: int = 1) -> str:
    """Return the text of a kernel as a function of C; see `ThreadCPrinter`."""
    printer = ThreadCPrinter(kernel, name, threads, forks)
    arrays = TAPE_ARRAYS if printer.leaves else ""
    return BRANCHES + HEAD + arrays + printer.source() + END

"""Loop IR as C: one function for a kernel, which a pool of threads runs."""

from __future__ import annotations

import hashlib
import re

from adarray.compiler.ir.identity import IdentityMap
from adarray.compiler.ir.loopir import (
    Apply,
    Const,
    Expr,
    Fail,
    Fold,
    For,
    Kernel,
    Let,
    Load,
    Local,
    Stmt,
    Store,
    Total,
    Var,
    statements,
)
from adarray.compiler.ir.target import CpuTarget
from adarray.compiler.ir.verify_loops import checking, verify
from adarray.compiler.print_c.statements import Statements
from adarray.compiler.print_c.values import fixed
from adarray.compiler.print_c.vectors import VectorPrinter
from adarray.compiler.scalars import functions
from adarray.compiler.scalars.dtypes import CTYPES, FLOATS, MOVED, SIZES, STORED, SUFFIX
from adarray.compiler.scalars.expressions import C, Dialect
from adarray.compiler.schedule.carried import added_at_once
from adarray.compiler.schedule.vectors import Scheduled, expressions, schedule

# A dialect without functions of our own in place of the library's.
PRECISE = C._replace(versions="library")

_HEAD = """\
typedef struct { char *const *p; const int64_t *n; char *scratch; int64_t per; } @_call;
"""
_FUNCTION = """\
{head}
{{
{body}
}}
"""
_PART = """\
static void @_part(void *context, int thread, int threads)
{{
    const @_call *const call = context;
    char *const scratch = call->scratch + thread * call->per;
    *(int64_t *)scratch = 0;
    (void)threads;
{body}
}}
"""
_ENTRY = """\
int64_t @(char *const *p, const int64_t *n, char *scratch, int64_t per, int threads)
{{
    @_call call = {{p, n, scratch, per}};
{run}
{body}
    return 0;
}}
"""
_RUN = """\
    if (threads > 1) adarray_team(threads, @_part, &call);
    else @_part(&call, 0, 1);"""
_ALONE = """\
    (void)threads;
    @_part(&call, 0, 1);"""
_FAILED = """\
for (int t = 0; t < {threads}; t++) {{
        const int64_t code = *(const int64_t *)(scratch + t * per);
        if (code) return code;
    }}"""


def source(kernel: Kernel, target: CpuTarget) -> str:
    """Return the C functions of a kernel, named by the hash of their text.

    Parameters
    ----------
    kernel : Kernel
    target : CpuTarget

    Returns
    -------
    str
        ``int64_t adk_<hash>(p, n, scratch, scratch_bytes_per_thread, threads)`` and
        ``int64_t adk_<hash>_scratch(n)``, which says how many bytes of workspace each
        thread needs. The workspace is aligned to 64 bytes, also that of each thread.
    """
    if not checking():
        return CPrinter(schedule(added_at_once(kernel), target)).text()
    scheduled = schedule(added_at_once(verify(kernel)), target)
    verify(scheduled.kernel, "schedule")
    return CPrinter(scheduled).text()


def name(text: str) -> str:
    """Return the name of the function that `source` printed."""
    match = re.search(r"int64_t (adk_[0-9a-f]+)\(char", text)
    if match is None:
        raise ValueError("cprinter.name: this is no text of cprinter.source")
    return match[1]


def _indent(lines: list[str], by: int = 4) -> str:
    return "\n".join(" " * by + line for line in lines)


class CPrinter(Statements):
    """Prints one scheduled kernel: a thread's part, or what follows the given `part`."""

    def __init__(self, scheduled: Scheduled, part: CPrinter | None = None) -> None:
        target = scheduled.target
        dialect: Dialect = PRECISE if target.precise else C
        super().__init__(dialect, 0 if target.precise else target.libmvec)
        self.scheduled = scheduled
        self.kernel = scheduled.kernel
        self.after = part is not None
        if part is None:
            self.statements = tuple(statements(self.kernel.body))
            self.used = names_read(self.kernel, self.statements)
        else:
            self.statements, self.used = part.statements, part.used
        self.dtypes = {b.name: b.dtype for b in self.kernel.buffers}
        self.pairs: set[str] = set()
        # Lines at the end of a thread's part that add lanes to totals, and where in it lanes that
        # go on from row to row are declared.
        self.carried: dict[str, list[str]] = {}
        self.first_lines = 0
        self._name_parameters()
        self.places = self._places()

    # -- the functions ---------------------------------------------------------------------

    def text(self) -> str:
        """Return the text of all functions."""
        body = self.kernel.body
        where = [i for i, s in enumerate(body) if is_parallel(s)]
        before = body[: where[0] + 1] if where else body
        after = body[where[0] + 1 :] if where else ()
        sizes = [*self._integers("n"), *self._offsets()]
        sizes.append(f"return o{len(self.places)};")
        text = _HEAD + self._part(before)
        text += _FUNCTION.format(head="int64_t @_scratch(const int64_t *n)", body=_indent(sizes))
        text += self._entry(before, after, bool(where))
        return text.replace("@", "adk_" + hashlib.sha256(text.encode()).hexdigest()[:24])

    def _name_parameters(self) -> None:
        for i, b in enumerate(self.kernel.buffers):
            self.memory[b.name] = f"b{i}"
        for i, n in enumerate(self.kernel.ints):
            self.bind(n, fixed(f"n{i}"))

    def _integers(self, array: str) -> list[str]:
        return [
            f"const int64_t n{i} = {array}[{i}];"
            for i, n in enumerate(self.kernel.ints)
            if n in self.used
        ]

    def _buffers(self, array: str) -> list[str]:
        lines = []
        for i, b in enumerate(self.kernel.buffers):
            kind = ("const " if b.access == "in" else "") + STORED[b.dtype]
            if b.name in self.used:
                lines.append(f"{kind} *restrict const b{i} = ({kind} *){array}[{i}];")
        return lines

    def _places(self) -> IdentityMap[Total | Local, int]:
        """Return the number of the place in the workspace of totals and arrays."""
        arrays = [s for s in self.statements if isinstance(s, Local) and s.size]
        places: tuple[Total | Local, ...] = (*self.kernel.totals, *arrays)
        return IdentityMap((x, i) for i, x in enumerate(places))

    def _offsets(self) -> list[str]:
        """Return lines that compute where the parts of the workspace begin."""
        lines = []
        for x, i in self.places.items():
            count = "1" if x.size is None else self.index(x.size)
            room = f"({count} + 63) / 64 * {64 * SIZES[x.dtype]}"
            lines.append(f"const int64_t o{i + 1} = o{i} + {room};")
        return ["const int64_t o0 = 64;", *lines]

    def _part(self, body: tuple[Stmt, ...]) -> str:
        """Return the function that one thread runs."""
        for text in (*self._integers("call->n"), *self._buffers("call->p"), *self._offsets()):
            self.line(text)
        for t in self.kernel.totals:
            self._begin_total(t)
        self.first_lines = len(self.scopes[0].lines)
        self.block(body)
        for t in self.kernel.totals:
            self._end_total(t)
        if any(form.stream for form in self.scheduled.loops.values()):
            self.line("adarray_stream_end();")
        return _PART.format(body=_indent(self.scopes[0].lines))

    def _entry(self, before: tuple[Stmt, ...], after: tuple[Stmt, ...], parallel: bool) -> str:
        """Return the function that runs the pool, merges totals and runs what comes after."""
        p = CPrinter(self.scheduled, self)
        run = _RUN if parallel else _ALONE
        for text in (*p._integers("n"), *p._buffers("p"), *p._offsets()):
            p.line(text)
        if any(isinstance(s, Fail) for s in statements(before)):
            p.line(_FAILED.format(threads="threads" if parallel else "1"))
        for t in self.kernel.totals:
            p._merge(t, "threads" if parallel else "1")
        if after:
            p.block(tuple(s for s in before if isinstance(s, Let)))
            p.block(after)
        return _ENTRY.format(run=run, body=_indent(p.scopes[0].lines))

    # -- totals ----------------------------------------------------------------------------

    def _begin_total(self, t: Total) -> None:
        """Print the total of one thread, which begins as the neutral element."""
        kind, c = STORED[t.dtype], self.fresh("s")
        neutral = functions.neutral(t.combine, t.dtype)
        self.dtypes[t.name] = t.dtype
        if t.size is not None:
            self.memory[t.name] = c
            size = self.index(t.size)
            self.line(f"{kind} *restrict const {c} = ({kind} *)(scratch + o{self.places[t]});")
            self.line(f"adarray_fill_{MOVED[t.dtype]}({c}, {size}, {neutral});")
            return
        self.changing[t.name] = c
        if t.combine == "add" and t.dtype in FLOATS:
            self.pairs.add(t.name)
            self.line(f"adarray_pairs_{SUFFIX[t.dtype]} {c};")
            self.line(f"adarray_pairs_start_{SUFFIX[t.dtype]}(&{c});")
        else:
            self.line(f"{CTYPES[t.dtype]} {c} = {neutral};")

    def carry(self, total: str, declared: list[str], end: list[str]) -> None:
        """Declare lanes of a total before the loop over rows; add them to it after that loop."""
        self.scopes[0].lines[self.first_lines : self.first_lines] = declared
        self.first_lines += len(declared)
        self.carried.setdefault(total, []).extend(end)

    def _end_total(self, t: Total) -> None:
        if t.size is None:
            c = self.changing[t.name]
            for text in self.carried.get(t.name, ()):
                self.line(text)
            value = f"adarray_pairs_sum_{SUFFIX[t.dtype]}(&{c})" if t.name in self.pairs else c
            self.line(f"*({STORED[t.dtype]} *)(scratch + o{self.places[t]}) = {value};")

    def _merge(self, t: Total, threads: str) -> None:
        """Print the combination of the threads' totals, in their order."""
        size = "1" if t.size is None else self.index(t.size)
        place = f"scratch + o{self.places[t]}"
        call = functions.folder("merge", t.combine, t.dtype)
        self.line(f"{call}({self.memory[t.out]}, {place}, {size}, per, {threads});")

    # -- statements ------------------------------------------------------------------------

    def array(self, s: Local) -> None:
        """Declare an array, which lies in the workspace."""
        c, kind = self.fresh("s"), STORED[s.dtype]
        self.dtypes[s.name] = s.dtype
        self.line(f"{kind} *restrict const {c} = ({kind} *)(scratch + o{self.places[s]});")
        self.memory[s.name] = c
        self.changed(s.name)

    def fail(self, s: Fail) -> None:
        """Leave the kernel: from a thread's part, or from what follows it."""
        if self.after:
            self.line(f"return {s.code};")
        else:
            self.line(f"{{ *(int64_t *)scratch = {s.code}; return; }}")

    def store(self, s: Store) -> None:
        """Set an element of memory; loads of it know its value from here on."""
        value, index = self.operand(s.value), self.index(s.index)
        self.line(f"{self.memory[s.buffer]}[{index}] = {value.text};")
        self.changed(s.buffer)
        self.remember(s.buffer, index, value)

    def fold(self, s: Fold) -> None:
        """Combine a value into a scalar or an element."""
        value = self.value(s.value)
        if s.index is not None:
            place = f"{self.memory[s.target]}[{self.index(s.index)}]"
        else:
            place = self.changing[s.target]
        if s.before:
            self.line(f"{self.changing[s.before]} = {place};")
            self.changed(s.before)
        if s.target in self.pairs:
            self.line(f"adarray_pairs_push_{SUFFIX[s.value.dtype]}(&{place}, {value});")
        else:
            self.line(f"{place} = {self.combined(s.combine, s.value.dtype, place, value)};")
        self.changed(s.target)

    def loop(self, s: For) -> None:
        """Print a loop."""
        start, stop = self.index(s.start), self.index(s.stop)
        self.written(s)
        form = self.scheduled.loops.get(s)
        if form is not None and form.form != "serial":
            VectorPrinter(self, s, form).print(start, stop)
        else:
            v = self.fresh("v")
            if s.kind == "parallel" and not self.after:
                count = self.fresh("m")
                self.line(f"const int64_t {count} = {stop} > {start} ? {stop} - {start} : 0;")
                stop = f"{start} + {count} * (thread + 1) / threads"
                start = f"{start} + {count} * thread / threads"
                limit = self.fresh("e")
                self.line(f"const int64_t {limit} = {stop};")
                stop = limit
            head = f"for (int64_t {v} = {start}; {v} < {stop}; {v}++)"
            self.nested(head, s.body, (s.var, v))
        self.written(s)


def is_parallel(s: Stmt) -> bool:
    """Whether a statement is the parallel loop."""
    return isinstance(s, For) and s.kind == "parallel"


def names_read(kernel: Kernel, body: tuple[Stmt, ...]) -> set[str]:
    """Return the names of buffers and integers that a kernel's statements mention."""
    names: set[str] = {t.out for t in kernel.totals}
    stack: list[Expr] = [t.size for t in kernel.totals if t.size is not None]
    for s in body:
        stack += expressions(s)
        if isinstance(s, Store):
            names.add(s.buffer)
        elif isinstance(s, Fold):
            names.add(s.target)
    seen: set[int] = set()
    while stack:
        e = stack.pop()
        kind = type(e)
        if kind is Const or id(e) in seen:
            continue
        seen.add(id(e))
        if kind is Var:
            names.add(e.name)  # type: ignore[attr-defined]
        elif kind is Apply:
            stack += e.args  # type: ignore[attr-defined]
        elif isinstance(e, Load):
            names.add(e.buffer)
            stack.append(e.index)
    return names

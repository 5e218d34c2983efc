"""Parts of long kernels as C functions of their own.

Compilers take more than twice the time for a function that is twice as long: what they know of each
register they keep for each place. So loop nests of a long kernel become functions, which are not
inlined again. A nest is not cut where that is avoidable: a call costs as much as some elements.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from adarray.compiler.ir.loopir import Assign, For, Let, Local
from adarray.compiler.ir.threads import (
    INDICES,
    Atomic,
    Pop,
    Recall,
    Record,
    Stmt,
    ThreadKernel,
    While,
    all_statements,
    inside,
    reads,
    used,
)
from adarray.kernels.texts import CTYPES, STORED

# Numbers of statements and expressions: kernels with less stay one function; functions that are
# cut out have so many at least and at most.
LONG, LEAST, MOST = 2000, 20, 1200


@dataclass(frozen=True)
class Name:
    """What a name of a kernel is in C.

    Parameters
    ----------
    dtype : str
    memory : str, optional
        The type of a pointer to it, where it is memory; "" for a number.
    """

    dtype: str
    memory: str = ""


def size(s: Stmt) -> int:
    """Return the number of statements and expressions."""
    return sum(1 + sum(1 for _ in reads(t)) for t in all_statements((s,)))


def parts(body: tuple[Stmt, ...]) -> Iterator[For]:
    """Yield the loop nests that become functions: the outermost ones that are not too long."""
    for s in body:
        many = size(s)
        if many < LEAST:
            continue
        if isinstance(s, For) and many <= MOST:
            yield s
        else:
            for part in inside(s):
                yield from parts(part)


def chosen(kernel: ThreadKernel) -> list[For]:
    """Return the loop nests of a kernel that become functions."""
    if sum(map(size, kernel.body)) < LONG:
        return []
    return list(parts(kernel.body))


def names_of(kernel: ThreadKernel) -> dict[str, Name]:
    """Return what is known everywhere in a kernel."""
    names = {index: Name("uint32") for index in INDICES}
    names |= {n: Name(dtype) for n, dtype in kernel.scalars}
    for b in kernel.buffers:
        const = "const " if b.access == "in" else ""
        names[b.name] = Name(b.dtype, f"{const}{STORED[b.dtype]} *restrict const ")
    for m in kernel.shared:
        names[m.name] = Name(m.dtype, f"{STORED[m.dtype]} *restrict const ")
    for t in kernel.tables:
        names[t.name] = Name(t.dtype, f"const {STORED[t.dtype]} *const ")
    return names


def declared(s: Stmt) -> dict[str, Name]:
    """Return what a statement declares for those after it, or inside of it."""
    if isinstance(s, Let):
        return {s.name: Name(s.value.dtype)}
    if isinstance(s, Local):
        array = "" if s.size is None else f"{STORED[s.dtype]} *restrict const "
        return {s.name: Name(s.dtype, array)}
    if isinstance(s, Pop):
        return {s.name: Name(s.dtype)}
    if isinstance(s, For):
        return {s.var: Name("int64")}
    if isinstance(s, Atomic) and s.result is not None:
        return {s.result: Name(s.value.dtype)}
    if isinstance(s, (Record, Recall)):
        const = "" if isinstance(s, Record) else "const "
        return {n: Name(d, f"{const}{STORED[d]} *restrict const ") for n, d in s.arrays}
    return {}


@dataclass(frozen=True)
class Part:
    """A loop nest that is cut out, and the parameters of its function.

    Parameters
    ----------
    function : str
    read : dict
        Names from outside that it does not set.
    set : dict
        Numbers from outside that it sets.
    """

    function: str
    read: dict[str, Name]
    set: dict[str, Name]

    def head(self, taped: bool) -> list[str]:
        """Return the lines that begin the function, which reads what it sets once."""
        tape = ["adarray_tape *const tapes_"] * taped
        read = [
            f"{n.memory}{name}" if n.memory else f"const {CTYPES[n.dtype]} {_text(name)}"
            for name, n in self.read.items()
        ]
        places = [f"{CTYPES[n.dtype]} *const {k}__at" for k, n in self.set.items()]
        parameters = ", ".join(["adarray_call *const call", *tape, *read, *places])
        first = f"static __attribute__((noinline)) int {self.function}({parameters}) {{"
        return [first, *(f"    {CTYPES[n.dtype]} {k} = *{k}__at;" for k, n in self.set.items())]

    def end(self, leaves: bool) -> list[str]:
        """Return the lines that end the function; it returns whether there was no room."""
        lines = [f"    *{k}__at = {k};" for k in self.set]
        return [*lines, "    return 0;", *["adarray_out:", "    return 1;"] * leaves, "}"]

    def call(self, taped: bool) -> str:
        """Return the call."""
        read, places = map(_text, self.read), [f"&{name}" for name in self.set]
        arguments = ", ".join(["call", *["tapes_"] * taped, *read, *places])
        return f"{self.function}({arguments})"

    def shared(self, taped: bool) -> list[str]:
        """Return the lines that begin a function of which each thread runs a part."""
        tape = ["adarray_tape *const tapes_"] * taped
        members = [
            f"{n.memory}{name}" if n.memory else f"const {CTYPES[n.dtype]} {_text(name)}"
            for name, n in self.read.items()
        ]
        fields = ["adarray_call *const call", *tape, *members]
        names = ["call", *["tapes_"] * taped, *map(_text, self.read)]
        return [
            f"struct {self.function} {{",
            *(f"    {x};" for x in fields),
            "};",
            f"static void {self.function}(void *context_, int part_, int parts_) {{",
            f"    const struct {self.function} *const c_ = context_;",
            *(f"    {x} = c_->{name};" for x, name in zip(fields, names, strict=True)),
        ]

    def fork(self, threads: int, taped: bool) -> list[str]:
        """Return the lines that have threads run it, each its part."""
        names = ", ".join(["call", *["tapes_"] * taped, *map(_text, self.read)])
        context = f"{self.function}_c"
        return [
            f"struct {self.function} {context} = {{{names}}};",
            f"adarray_team({threads}, {self.function}, &{context});",
        ]


def _text(name: str) -> str:
    return name.replace(".", "_") if name in INDICES else name


class Outlines:
    """The parts of a kernel that become functions.

    Parameters
    ----------
    kernel : ThreadKernel
    name : str
        Of its function.
    known : dict
        What the printer declares beside what the kernel does, by name.
    """

    def __init__(self, kernel: ThreadKernel, name: str, known: Mapping[str, Name]) -> None:
        self.name = name
        self.names = dict(known) | names_of(kernel)
        for s in all_statements(kernel.body):
            self.names |= declared(s)
        self.parts: dict[int, Part] = {}  # by the ids of their loops
        self._count = -1
        for s in chosen(kernel):
            self.parts[id(s)] = self.cut(s)

    def cut(self, s: For) -> Part:
        """Return a loop nest that becomes a function."""
        self._count += 1
        statements = tuple(all_statements((s,)))
        inner = {name for t in statements for name in declared(t)}
        mentioned = used((s,)) | {t.condition for t in statements if isinstance(t, While)}
        written = {t.name for t in statements if isinstance(t, Assign)}
        for t in statements:
            if isinstance(t, Atomic):
                mentioned.add(f"{t.buffer}__own")
                written |= {f"{t.buffer}__total"} if t.same == "grid" else set()
        outer = {n: self.names[n] for n in sorted((mentioned | written) - inner) if n in self.names}
        return Part(
            f"{self.name}_{self._count}",
            {n: x for n, x in outer.items() if n not in written},
            {n: x for n, x in outer.items() if n in written},
        )

"""Which values of a kernel depend on what is differentiated by, and matter to its results.

Integers and truth values carry no derivative. Scalars are analysed one by one, since each has
one definition; a memory is active as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from adarray.compiler.ir.loopir import Apply, Expr, Var
from adarray.kernels.functions import PARTIALS
from adarray.kernels.ssa import Branch, Def, Exchange, Read, SsaLoop, SsaProgram, Write
from adarray.kernels.types import FLOATS

_FLAT = frozenset(("floor", "ceil", "rint", "round", "trunc"))


@dataclass(slots=True)
class Activity:
    """What is active.

    Attributes
    ----------
    values : set of str
        Names of scalars.
    memory : set of str
        Names of buffers and arrays that have a shadow: the derivative by their elements.
    """

    values: set[str] = field(default_factory=set)
    memory: set[str] = field(default_factory=set)


def dependent(e: Expr, varied: set[str]) -> bool:
    """Whether an expression has a derivative by one of `varied`."""
    if isinstance(e, Var):
        return e.name in varied
    if not isinstance(e, Apply) or e.dtype not in FLOATS or e.name in _FLAT:
        return False
    return any(dependent(a, varied) for a in e.args)


def active_names(e: Expr) -> set[str]:
    """Return the names of floating-point values that an expression has a derivative by."""
    if isinstance(e, Var):
        return {e.name} if e.dtype in FLOATS else set()
    if not isinstance(e, Apply) or e.dtype not in FLOATS or e.name in _FLAT:
        return set()
    return {n for a in e.args for n in active_names(a)}


def activity(program: SsaProgram, inputs: set[str]) -> Activity:
    """Return what is active where a kernel is differentiated by the parameters `inputs`."""
    varied, changing = _varied(program, inputs)
    useful, mattering = _useful(program)
    return Activity(varied & useful, changing & mattering)


def _varied(program: SsaProgram, inputs: set[str]) -> tuple[set[str], set[str]]:
    """Return values and memories that depend on `inputs`."""
    names, memory = set(inputs), set(inputs)
    dtypes = {b.name: b.dtype for b in program.kernel.buffers}
    memory &= {n for n, d in dtypes.items() if d in FLOATS}
    while True:
        size = len(names) + len(memory)
        for node in program.nodes:
            if (isinstance(node, Def) and dependent(node.value, names)) or (
                isinstance(node, Read) and node.dtype in FLOATS and node.buffer in memory
            ):
                names.add(node.name)
            elif isinstance(node, Exchange):
                if node.dtype in FLOATS and dependent(node.op.value, names):
                    names.add(node.name)
            elif isinstance(node, Write):
                if dependent(node.value, names):
                    memory.add(node.buffer)
                if node.result is not None and node.buffer in memory:
                    names.add(node.result)
            elif isinstance(node, Branch):
                for p in node.phis:
                    if dependent(p.then, names) or dependent(p.orelse, names):
                        names.add(p.name)
            elif isinstance(node, SsaLoop):
                for c in node.carried:
                    if c.dtype in FLOATS and (
                        dependent(c.first, names) or dependent(c.next, names)
                    ):
                        names |= {c.name, c.out}
        if len(names) + len(memory) == size:
            return names, memory


def _useful(program: SsaProgram) -> tuple[set[str], set[str]]:
    """Return values and memories that results depend on."""
    names: set[str] = set()
    written = {n.buffer for n in program.nodes if isinstance(n, Write)}
    memory = {b.name for b in program.kernel.buffers if b.name in written and b.dtype in FLOATS}
    while True:
        size = len(names) + len(memory)
        for node in reversed(program.nodes):
            if isinstance(node, Def) and node.name in names:
                names |= active_names(node.value)
            elif isinstance(node, Read) and node.name in names:
                memory.add(node.buffer)
            elif isinstance(node, Exchange) and node.name in names:
                names |= active_names(node.op.value)
            elif isinstance(node, Write):
                if node.buffer in memory:
                    names |= active_names(node.value)
                if node.result is not None and node.result in names:
                    memory.add(node.buffer)
            elif isinstance(node, Branch):
                for p in node.phis:
                    if p.name in names:
                        names |= active_names(p.then) | active_names(p.orelse)
            elif isinstance(node, SsaLoop):
                for c in node.carried:
                    if c.name in names or c.out in names:
                        names |= {c.name, c.out} | active_names(c.first) | active_names(c.next)
        if len(names) + len(memory) == size:
            return names, memory


def without_rule(program: SsaProgram, active: Activity) -> str | None:
    """Return the name of an active function whose derivative is not known."""
    for node in program.nodes:
        if isinstance(node, Def) and node.name in active.values:
            stack: list[Expr] = [node.value]
            while stack:
                e = stack.pop()
                if isinstance(e, Apply) and e.dtype in FLOATS:
                    if e.name not in PARTIALS and dependent(e, active.values):
                        return e.name
                    stack += e.args
    return None

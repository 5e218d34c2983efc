"""What is known of a kernel's indices once it is launched: which elements they touch."""

from __future__ import annotations

from typing import Any

import numpy as np

from adarray.compiler.ir.loopir import Apply, Const, Expr, Var
from adarray.kernels.geometry import Launch
from adarray.kernels.needs import candidates
from adarray.kernels.ssa import Branch, Def, Node, Place, Read, SsaLoop, SsaProgram, Write, inner

_MOST = 1 << 22  # elements that are evaluated


class _UnknownError(Exception):
    """An index depends on something that differs from launch to launch."""


_FUNCTIONS: dict[str, Any] = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply,
    "minimum": np.minimum, "maximum": np.maximum, "negative": np.negative,
    "left_shift": np.left_shift, "right_shift": np.right_shift,
    "bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor,
    "less": np.less, "less_equal": np.less_equal, "greater": np.greater,
    "greater_equal": np.greater_equal, "equal": np.equal, "not_equal": np.not_equal,
    "logical_and": np.logical_and, "logical_or": np.logical_or, "logical_not": np.logical_not,
    "where": np.where,
    "quotient": lambda a, b: _quotient(a, b),
    "modulo": lambda a, b: np.fmod(a, b),
}  # fmt: skip


def _quotient(a: Any, b: Any) -> Any:
    return np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))


class _Cells:
    """Evaluates indices for all threads of a block."""

    def __init__(self, program: SsaProgram, launch: Launch) -> None:
        self.program = program
        x, y, z = launch.block
        zs, ys, xs = np.meshgrid(np.arange(z), np.arange(y), np.arange(x), indexing="ij")
        self.threads = x * y * z
        self.known: dict[str, Any] = {
            "threadIdx.x": xs.ravel(), "threadIdx.y": ys.ravel(), "threadIdx.z": zs.ravel(),
            **{f"blockDim.{a}": n for a, n in zip("xyz", launch.block, strict=True)},
            **{f"gridDim.{a}": n for a, n in zip("xyz", launch.grid, strict=True)},
            **dict(launch.integers),
        }  # fmt: skip

    def value(self, e: Expr, at: dict[str, Any]) -> Any:
        """Return the value of an expression: a number, or one for each thread and iteration."""
        if isinstance(e, Const):
            return e.value
        if isinstance(e, Var):
            if e.name in at:
                return at[e.name]
            if e.name in self.known:
                v = self.known[e.name]
                return v.reshape(-1, *[1] * at["axes"]) if isinstance(v, np.ndarray) else v
            node = self.program.values.get(e.name)
            if isinstance(node, Def):
                return self.value(node.value, at)
            raise _UnknownError
        if not isinstance(e, Apply):
            raise _UnknownError
        args = [self.value(a, at) for a in e.args]
        if e.name == "cast":
            if e.dtype.startswith("float") or e.args[0].dtype.startswith("float"):
                raise _UnknownError
            return np.asarray(args[0]).astype(e.dtype).astype(np.int64)
        if e.name not in _FUNCTIONS or e.dtype.startswith("float"):
            raise _UnknownError
        with np.errstate(all="ignore"):
            return _FUNCTIONS[e.name](*args)

    def cells(self, node: Read | Write, loops: list[SsaLoop], per_thread: bool) -> np.ndarray:
        """Return which elements an access touches, over iterations of `loops`."""
        at: dict[str, Any] = {"axes": len(loops)}
        size = self.threads
        for k, loop in enumerate(loops):
            if loop.var is None:
                raise _UnknownError
            start, stop = (np.asarray(self.value(e, at)) for e in (loop.start, loop.stop))
            if start.size != 1 or stop.size != 1:
                raise _UnknownError
            shape = [1] * (len(loops) + 1)
            count = max(0, int(stop.ravel()[0]) - int(start.ravel()[0]))
            shape[k + 1] = count
            size *= count
            if size > _MOST:
                raise _UnknownError
            at[loop.var] = (np.arange(count) + int(start.ravel()[0])).reshape(shape)
        shape = [self.threads, *(at[x.var].size for x in loops if x.var is not None)]
        elements = np.broadcast_to(self.value(node.index, at), shape)
        keep = np.ones(shape, bool)
        for b in node.branches:
            try:
                holds = np.broadcast_to(self.value(b.condition, at), shape) != 0
            except _UnknownError:
                continue
            keep = keep & (holds if _inside(node, b.body) else ~holds)
        if per_thread:
            width = 1 + int(np.max(elements, initial=0))
            elements = elements + (np.arange(self.threads) * (1 << 32)).reshape(
                -1, *[1] * len(loops)
            )
            assert width < 1 << 32
        return np.unique(elements[keep])


def _inside(node: Node, body: list[Node]) -> bool:
    return any(n is node or any(_inside(node, part) for part in inner(n)) for n in body)


def private(program: SsaProgram, launch: Launch) -> frozenset[tuple[str, int]]:
    """Return memories of which iterations of a loop read what they wrote, and nothing else."""
    memories = set()
    for name, loop in candidates(program):
        own = any(isinstance(n, Place) and n.name == name and n.home is loop for n in program.nodes)
        if own or _covered(program, name, loop, launch):
            memories.add((name, loop.number))
    return frozenset(memories)


def _covered(program: SsaProgram, name: str, loop: SsaLoop, launch: Launch) -> bool:
    """Whether each iteration of a loop writes all elements that it reads."""
    cells = _Cells(program, launch)
    shared = any(s.name == name for s in program.kernel.shared)
    try:
        written = _written(cells, loop.body, name, loop, not shared)
        for n in program.accesses(name):
            if isinstance(n, Read):
                inside = list(n.loops[n.loops.index(loop) + 1 :])
                touched = cells.cells(n, inside, not shared)
                if not np.isin(touched, written).all():
                    return False
    except _UnknownError:
        return False
    return True


def _written(
    cells: _Cells, body: list[Node], name: str, loop: SsaLoop, per_thread: bool
) -> np.ndarray:
    """Return the elements that are written whatever conditions are that are not known."""
    elements = np.empty(0, np.int64)
    for n in body:
        if isinstance(n, Write) and n.buffer == name:
            inside = list(n.loops[n.loops.index(loop) + 1 :])
            elements = np.union1d(elements, cells.cells(n, inside, per_thread))
        elif isinstance(n, SsaLoop):
            elements = np.union1d(elements, _written(cells, n.body, name, loop, per_thread))
        elif isinstance(n, Branch):
            then, orelse = (_written(cells, part, name, loop, per_thread) for part in inner(n))
            try:
                cells.value(n.condition, {"axes": len(n.loops) - n.loops.index(loop) - 1})
                elements = np.union1d(elements, np.union1d(then, orelse))
            except (_UnknownError, KeyError):
                elements = np.union1d(elements, np.intersect1d(then, orelse))
    return elements

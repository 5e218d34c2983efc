"""How the dependence of a value follows from those of its operands: a rule per primitive.

The rules speak of the primitives of programs (`adarray.compiler.ir.primitives`), to which each
operation is translated; so whatever `jit` compiles has exact rules. A call that stays one depends
on all of its operands as a whole.

References
----------
- A. Griewank, A. Walther, "Evaluating Derivatives", 2nd ed., SIAM 2008, chapter 7.
- A. Walther, "Computing sparse Hessians with automatic differentiation", ACM Trans. Math. Softw. 34
  (2008), article 3.
"""

from __future__ import annotations

from typing import Any, assert_never

import numpy as np

from adarray.base.op import CONSTANT_FUNCTIONS
from adarray.compiler.ir.array_views import array_view
from adarray.compiler.ir.interpret_values import RunPlace, _slices, run_of
from adarray.compiler.ir.primitives import (
    CallResult,
    Concatenate,
    Constant,
    ConstantArray,
    GatherND,
    Iota,
    Map,
    Matmul,
    PrefixScan,
    ProgramInput,
    PythonCall,
    Reduce,
    ScatterND,
    UpdateSlice,
    View,
)
from adarray.compiler.ir.program import Program, Value
from adarray.sparsity.calls import of_record
from adarray.sparsity.known import Known
from adarray.sparsity.terms import (
    Term,
    Terms,
    _check,
    gathered,
    identity,
    masked,
    reduced,
    settled,
    slotted,
    union,
    whole,
)

# Maps whose result does not move with their operands, and those that choose.
_CONSTANT = frozenset(f.__name__ for f in CONSTANT_FUNCTIONS) | {"sign"}


class Dependence:
    """The walk over a program.

    Parameters
    ----------
    program : Program
    known : Known
    inputs : dict of int to int
        The differentiated inputs: the number of the first element of each.
    n : int
        Number of their elements.
    steady : set of int
        Inputs whose zeros count as zeros of the pattern: they seldom change.

    Attributes
    ----------
    dense : set of str
        Functions of which nothing is known but their operands.
    """

    def __init__(
        self, program: Program, known: Known, inputs: dict[int, int], n: int, steady: set[int]
    ) -> None:
        self.program = program
        self.known = known
        self.inputs = inputs
        self.n = n
        self.steady = steady
        self.dense: set[str] = set()
        self._terms: dict[Value, Any] = {}

    def run(self) -> list[Terms]:
        """Return the dependence of each result."""
        last: dict[Value, int] = {}
        uses: dict[Value, int] = {}
        for i, v in enumerate(self.program.values):
            for a in v.args:
                last[a] = i
                uses[a] = uses.get(a, 0) + 1
        outputs = set(self.program.outputs)
        for i, v in enumerate(self.program.values):
            terms = self._compute(v)
            if len(terms) > SHARED and uses.get(v, 0) > 1 and type(terms) is tuple:
                terms = settled(terms, v.shape, self.n)
            self._terms[v] = terms
            for a in v.args:
                if last[a] == i and a not in outputs:
                    self._terms[a] = ()
        return [self.of(v) for v in self.program.outputs]

    def of(self, v: Value) -> Terms:
        """Return the dependence of an operand."""
        terms: Terms = self._terms[v]
        return terms

    def _compute(self, v: Value) -> Any:
        match v.primitive:
            case ProgramInput() as p:
                first = self.inputs.get(p.index)
                return () if first is None else identity(first, v.shape, self.n)
            case PythonCall() as p:
                return self._call(p, v)
            case CallResult() as p:
                return self.of(v.args[0])[p.index]
        if v.dtype.kind not in "fc" or not v.size or not any(self.of(a) for a in v.args):
            return ()
        return self._of_operands(v)

    def _of_operands(self, v: Value) -> Terms:
        """Return the dependence of a value by the rule of its primitive."""
        match v.primitive:
            case Map() as p:
                return self._map(p, v)
            case View() as p:
                return self._view(p, v)
            case UpdateSlice() as p:
                return self._place(p, v)
            case Concatenate() as p:
                return self._join(p, v)
            case GatherND() as p:
                return self._gather(p, v)
            case ScatterND() as p:
                return self._scatter(p, v)
            case Reduce() as p:
                return self._reduce(p, v)
            case PrefixScan() as p:
                return self._scan(p, v)
            case Matmul():
                return self._dot(v)
            case Constant() | ConstantArray() | Iota():
                return ()
            case ProgramInput() | PythonCall() | CallResult():
                raise AssertionError(f"{v} has no rule of its operands")
            case _:
                assert_never(v.primitive)

    # -- elementwise -----------------------------------------------------------------------

    def _map(self, p: Map, v: Value) -> Terms:
        name = p.name
        if name in _CONSTANT:
            return ()
        if name == "where":
            return self._where(v)
        parts = [self.of(a) for a in v.args]
        terms = union(parts, v.shape, self.n)
        if name == "multiply" and not all(parts):
            (factor,) = [a for a, terms in zip(v.args, parts, strict=True) if not terms]
            zero = self._zeros(factor)
            if zero is not None:
                return masked(terms, np.broadcast_to(~zero, v.shape))
        return terms

    def _where(self, v: Value) -> Terms:
        condition, *branches = v.args
        if not self._is_steady(condition):
            return union([self.of(a) for a in branches], v.shape, self.n)
        chosen = np.broadcast_to(self.known.value(condition), v.shape)
        parts = [union([self.of(a)], v.shape, self.n) for a in branches]
        return slotted([(parts[0], chosen, None), (parts[1], ~chosen, None)], v.shape, self.n)

    def _is_steady(self, v: Value) -> bool:
        """Whether a value is known, and of contents that seldom change."""
        return not self.known.varies(v) and self.known.inputs_of(v) <= self.steady

    def _zeros(self, v: Value) -> Any:
        """Return where a factor is zero in all runs; None if it is nowhere."""
        if not self._is_steady(v):
            return None
        before = set(self.known.used)
        zero = np.equal(self.known.value(v), 0)
        if zero.any():
            return zero
        self.known.used = before  # the pattern does not rely on what it holds
        return None

    # -- places ----------------------------------------------------------------------------

    def _view(self, p: View, v: Value) -> Terms:
        offset, strides = p.offset, p.strides
        return tuple(
            Term(t.table, array_view(t.row, offset, v.shape, strides)) for t in self.of(v.args[0])
        )

    def _place(self, p: UpdateSlice, v: Value) -> Terms:
        base, value = v.args
        key = _slices(p.starts, p.steps, value.shape)
        if p.add:
            return slotted([(self.of(base), None, None), (self.of(value), None, key)],
                           v.shape, self.n, apart=True)  # fmt: skip
        return slotted([(self.of(base), None, None), (self.of(value), None, key)], v.shape, self.n)

    def _join(self, p: Concatenate, v: Value) -> Terms:
        axis, at, parts = p.axis, 0, []
        for a in v.args:
            key = (slice(None),) * axis + (slice(at, at + a.shape[axis]),)
            at += a.shape[axis]
            parts.append((self.of(a), None, key))
        return slotted(parts, v.shape, self.n)

    def _gather(self, p: GatherND, v: Value) -> Terms:
        source, *indices = v.args
        terms = self.of(source)
        varying = [a for a, i in zip(p.axes, indices, strict=True) if self.known.varies(i)]
        if varying:  # anything along these axes, which become one element each
            keepdims_shape = tuple(1 if a in varying else m for a, m in enumerate(source.shape))
            folded = reduced(terms, tuple(sorted(varying)), self.n)
            terms = tuple(Term(t.table, t.row.reshape(keepdims_shape)) for t in folded)
        positions = [
            np.zeros(i.shape, np.int64) if self.known.varies(i) else np.asarray(self.known.value(i))
            for i in indices
        ]
        run = run_of(v, RunPlace(tuple(range(1 + len(positions))), None, False))
        return tuple(Term(t.table, np.asarray(run([t.row, *positions]))) for t in terms)

    def _scatter(self, p: ScatterND, v: Value) -> Terms:
        base, value, *indices = v.args
        axes, position = p.axes, p.position
        if any(map(self.known.varies, indices)):
            depth = indices[0].ndim
            folded = reduced(self.of(value), tuple(range(position, position + depth)), self.n)
            spread = []
            for t in folded:
                row = t.row
                for a in sorted(axes):
                    row = np.expand_dims(row, a)
                spread.append(Term(t.table, np.broadcast_to(row, v.shape)))
            return union([self.of(base), tuple(spread)], v.shape, self.n)
        positions = [np.asarray(self.known.value(i)) for i in indices]
        numbers = np.arange(v.size, dtype=np.int64).reshape(v.shape)
        gather = GatherND(p.axes, p.position)
        look_up = Value(gather, (base, *indices), value.shape, np.int64)
        run = run_of(look_up, RunPlace(tuple(range(1 + len(positions))), None, False))
        targets = np.asarray(run([numbers, *positions]))
        if p.add:
            count = np.bincount(targets.reshape(-1), minlength=v.size)
            if count.max(initial=0) > 1:
                pairs = [(t.table, targets, t.row) for t in self.of(value)]
                added = gathered(pairs, v.shape, self.n)
                return union([self.of(base), added], v.shape, self.n)
        key = np.unravel_index(targets, v.shape)
        return slotted([(self.of(base), None, None), (self.of(value), None, key)],
                       v.shape, self.n, apart=p.add)  # fmt: skip

    # -- what is folded --------------------------------------------------------------------

    def _reduce(self, p: Reduce, v: Value) -> Terms:
        return reduced(self.of(v.args[0]), p.axes, self.n)

    def _scan(self, p: PrefixScan, v: Value) -> Terms:
        axis, length = p.axis, v.shape[p.axis]
        terms = self.of(v.args[0])
        lines = v.size // max(length, 1)
        _check(len(terms) * lines * (length * (length + 1) // 2))
        i, j = np.tril_indices(length)
        numbers = np.moveaxis(np.arange(v.size).reshape(v.shape), axis, -1)
        pairs = [(t.table, numbers[..., i], np.moveaxis(t.row, axis, -1)[..., j]) for t in terms]
        return gathered(pairs, v.shape, self.n)

    def _dot(self, v: Value) -> Terms:
        parts: list[Terms] = []
        for k, (x, other) in enumerate((v.args, v.args[::-1])):
            terms = self.of(x)
            if not terms:
                continue
            zero = self._zeros(other) if not self.of(other) else None
            if zero is not None and x.ndim <= 2 and other.ndim <= 2:
                parts.append(self._by_matrix(v, terms, ~zero, k == 0))
                continue
            axis = x.ndim - 1 if k == 0 or x.ndim == 1 else x.ndim - 2
            parts.append(self._spread(v, reduced(terms, (axis,), self.n), x, other, k == 0))
        return union(parts, v.shape, self.n)

    @staticmethod
    def _spread(v: Value, folded: Terms, x: Value, other: Value, left: bool) -> Terms:
        """Return the dependence of products on whole rows (left) or columns of an operand."""
        spread = []
        for t in folded:
            row = t.row
            if left and other.ndim > 1:
                row = row[..., None] if x.ndim > 1 else row[None]
                row = row if x.ndim > 1 else row.reshape((1,) * v.ndim)
            elif not left and other.ndim > 1:
                row = row[..., None, :] if x.ndim > 1 else row.reshape((1,) * max(v.ndim, 1))
            spread.append(Term(t.table, np.broadcast_to(row, v.shape)))
        return tuple(spread)

    def _by_matrix(self, v: Value, terms: Terms, nonzero: np.ndarray, left: bool) -> Terms:
        """Return the dependence of a product with a matrix of which the zeros are known."""
        i, j = np.nonzero(nonzero if nonzero.ndim == 2 else
                          nonzero[:, None] if left else nonzero[None])  # fmt: skip
        pairs = []
        for t in terms:
            if left:  # (a, j) by (j, b)
                row = t.row if t.row.ndim == 2 else t.row[None]
                numbers = np.arange(v.size).reshape((row.shape[0], -1))
                pairs.append((t.table, numbers[:, j], row[:, i]))
            else:  # (i, j) by (j, b)
                row = t.row if t.row.ndim == 2 else t.row[:, None]
                numbers = np.arange(v.size).reshape((-1, row.shape[1]))
                pairs.append((t.table, numbers[i], row[j]))
        return gathered(pairs, v.shape, self.n)

    # -- the rest ----------------------------------------------------------------------------

    def _call(self, p: PythonCall, v: Value) -> Any:
        """Return the dependence of a call: all results on all operands, if nothing else is said."""
        results = p.results
        shapes = [(v.shape, v.dtype)] if results is None else list(results)
        recorded = of_record(p, v, shapes, self.of, self.known, self.n)
        if recorded is not None:
            return recorded[0] if results is None else recorded
        terms: Terms = ()
        for a in v.args:
            if a.dtype.kind in "fc":
                terms = union([terms, whole(self.of(a), self.n)], (), self.n)
        name = getattr(p.function, "__name__", "?")
        if terms and name not in _CONSTANT:
            self.dense.add(name)
        of_results = [
            tuple(Term(t.table, np.broadcast_to(t.row, shape)) for t in terms)
            if np.dtype(dtype).kind in "fc" and name not in _CONSTANT
            else ()
            for shape, dtype in shapes
        ]
        return of_results[0] if results is None else of_results


# Terms of a value with several uses, which would meet again in different places.
SHARED = 8

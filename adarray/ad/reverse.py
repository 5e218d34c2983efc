"""Reverse mode: cotangents are pulled back along recorded nodes.

Nodes are visited last made first, which is a reverse topological order,
with a heap; nothing recurses, so the depth of a graph is not limited.

References
----------
- S. Linnainmaa, "Taylor expansion of the accumulated rounding error", BIT 16 (1976), 146-160.
- A. Griewank, A. Walther, "Evaluating Derivatives", 2nd ed., SIAM 2008, chapter 3.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextvars import ContextVar
from heapq import heappop, heappush
from typing import Any

import numpy as np

from adarray.ad.dropped import cleared, without_masked
from adarray.arrays.adarray import ADArray
from adarray.base.aval import ARRAYS, BATCHED, Aval, aval_of
from adarray.base.engines import BaseEngine
from adarray.base.errors import NotDifferentiableError, TraceError
from adarray.base.hooks import Hook
from adarray.base.levels import is_walked
from adarray.base.op import FUNCTIONS, Op
from adarray.base.runtime import MODE
from adarray.base.spans import RECORDER, span
from adarray.batching.batch import WALKING
from adarray.core.dispatch import apply, pick
from adarray.core.graph import FREED, LEAF, STOP, Node, ResultCotangent
from adarray.core.inplace import plain_value
from adarray.core.protocol import plain
from adarray.core.tangents import strong_zero
from adarray.core.trace import Extras, Handle
from adarray.device import DeviceArray, Library, is_device
from adarray.ops.common import Placed, unbroadcast, zero_beside

# The walk whose rules run now. Rules that walk themselves go as far as it does, and record what
# it records.
WALK: ContextVar[Pullback | None] = ContextVar("adarray_walk", default=None)


class Pullback:
    """One reverse walk.

    Parameters
    ----------
    level : int
        Level of the trace whose inputs are the targets. Nodes that an outer trace
        also depends on run their rules on ADArrays, which records them.
    targets : set of int
        Creation numbers of the leaves whose cotangents are wanted; empty: all
        leaves with a gradient slot.
    record : bool
        Record every rule, whatever the level.
    release : bool
        Drop what a node saved as soon as its rules have run: nobody else will walk
        it, and the memory serves the rest of this walk.
    """

    def __init__(
        self, level: int, targets: set[int], record: bool = False, release: bool = False
    ) -> None:
        self.level = level
        self.targets = targets
        self.record = record
        self.release = release
        # Nodes that wait, the newest first.
        self.heap: list[tuple[int, Node]] = []
        self.cotangents: dict[int, Any] = {}
        self.owned: set[int] = set()  # nodes whose cotangent's buffer belongs to this walk
        # Nodes below one that masks: a cotangent of zero there means "no effect".
        self.masked: set[int] = set()
        # Nodes of which elements were dropped, and nodes that also count as a whole: those are
        # nobody's dropped elements.
        self.dropped: set[int] = set()
        self.dense: set[int] = set()
        self.quiet: np.errstate | None = None
        # The engine's check of cotangents, if it has one, and its way to run a rule.
        self.check: Callable[[Op, int, int, Any, Any], None] | None = None
        self.rule: Callable[[Node, int, Any, tuple[Any, ...]], Any] = general_rule
        mode = MODE.get()
        # What records for jit what the rules compute: they see ADArrays then.
        self.recorder = mode.recorder if mode is not None else None
        self.symbolic = self.recorder is not None
        self.results: dict[int, Any] = {}
        self.slots: list[tuple[Any, Any]] = []  # gradient slots of leaves, and what to add

    def seed(self, ct: Any) -> Any:
        """Return a cotangent to begin with; a number of ours becomes part of the recording."""
        recorder = self.recorder
        if recorder is None or isinstance(ct, Handle):
            return ct
        if isinstance(ct, np.ndarray):
            return recorder.handle(recorder.capture(ct))
        return recorder.constant(ct)

    def add(self, p: Node, ct: Any) -> None:
        """Accumulate the cotangent `ct` of node `p`."""
        key = p.order
        before = self.cotangents.get(key)
        if type(ct) is ResultCotangent:
            self._add_part(p, before, ct)
        elif before is None:
            if type(ct) is Placed:
                ct = ct.add_to(ct.zeros())
                self.owned.add(key)
            self.cotangents[key] = ct
            heappush(self.heap, (key, p))
        elif type(ct) is Placed:
            if key not in self.owned:
                before = owned_copy(before)
                self.owned.add(key)
            self.cotangents[key] = ct.add_to(before)
        elif key in self.owned and not isinstance(ct, Handle):
            self.cotangents[key] = _add_owned(before, ct)
        else:
            self.cotangents[key] = total = before + ct
            if type(total) in ARRAYS or isinstance(total, Handle):
                self.owned.add(key)

    def _add_part(self, p: Node, before: Any, part: ResultCotangent) -> None:
        """Accumulate the cotangent of one result of `p`; a dict holds those of all."""
        if before is None:
            self.cotangents[p.order] = {part.index: part.g}
            heappush(self.heap, (p.order, p))
        else:
            total = before.get(part.index)
            before[part.index] = part.g if total is None else total + part.g

    def stop_at(self, mark: Node) -> None:
        """Stop at nodes that were made before `mark`, whose cotangents are results, too."""
        self.cotangents[mark.order] = None
        heappush(self.heap, (mark.order, mark))

    def run(self) -> dict[int, Any]:
        """Walk, and return the cotangents of the targets by creation number."""
        token = WALK.set(self)
        batches = WALKING.set(True) if BATCHED else None
        try:
            if RECORDER.get() is None:
                return self._walk()
            with span("backward", "reverse walk"):
                return self._walk()
        finally:
            WALK.reset(token)
            if batches is not None:
                WALKING.reset(batches)
            if self.quiet is not None:
                self.quiet.__exit__(None, None, None)

    def _walk(self) -> dict[int, Any]:
        heap, cotangents = self.heap, self.cotangents
        level, record_all, release = self.level, self.record, self.release
        mode = MODE.get()
        engine = mode.engine if mode is not None else None
        if engine is not None:
            self.check = engine.check_cotangent
            self.rule = engine.rule or general_rule
        checked, masked, dropped, dense = (
            self.check is not None, self.masked, self.dropped, self.dense
        )  # fmt: skip
        watch = checked  # whether some nodes need care; ordinary walks pay one test for it
        node: Node | None = None  # the next node, where that is known without the heap
        g: Any = None
        while heap or node is not None:
            if node is None:
                order, node = heappop(heap)
                g = cotangents.pop(order)
            op = node.op
            drops = False
            if op.special:
                watch = True
                drops = op.drops
                if not (drops or op.masks) and self._special(node, g):
                    node = None
                    continue
            if node.guard is not None:
                check_guard(node)
            saved: Any = node.saved
            record = keep = record_all or node.span[0] < level
            if record or self.symbolic or type(saved) is list:
                keep = record_all or is_walked(node.span[0], level)
                saved = self._handles(node, keep)
            plain_engine: BaseEngine | Library | None = engine
            if type(g) is not np.ndarray:
                plain_engine = device_engine(g, engine) if is_device(g) else None
                if BATCHED and batch_of(g) is not None:
                    self._batched(node, g)
                    node = None
                    continue
            if record:
                plain_engine = None
            aval, rules, pointwise, parents, i = node.aval, op.rules, op.pointwise, node.parents, -1
            careful = watch and (
                checked
                or op.masks
                or node.order in masked
                or (node.order in dropped and node.order not in dense)
            )
            last: Node | None = None
            last_ct: Any = None
            if pointwise and len(parents) == 1 and not careful and not drops:
                # The loop below for the most common case; the parent has the levels of the node.
                last, parents = parents[0], ()
                if watch:
                    dense.add(last.order)  # type: ignore[union-attr]
                last_ct = NotImplemented
                if plain_engine is not None:
                    last_ct = plain_engine.derivative(op, 0, g, saved)
                if last_ct is NotImplemented:
                    last_ct = rules[0](g, *saved)  # type: ignore[misc]
                if last.aval is not aval:  # type: ignore[union-attr]
                    last_ct = fit(last_ct, last)  # type: ignore[arg-type]
            for p in parents:
                i += 1
                if p is None or p.span[1] < level:
                    continue
                if careful:
                    ct = self._carefully(node, p, i, g, saved, plain_engine)
                    if last is not None:
                        self.add(last, last_ct)
                    last, last_ct = p, ct
                    continue
                if pointwise:
                    ct = NotImplemented
                    if plain_engine is not None:
                        ct = plain_engine.derivative(op, i, g, saved)
                    if ct is NotImplemented:
                        ct = rules[i](g, *saved)  # type: ignore[misc]
                    if p.aval is not aval:
                        ct = fit(ct, p)
                else:
                    ct = fit(self.rule(node, i, g, saved), p)
                if watch:
                    (dropped if drops and not is_whole(ct) else dense).add(p.order)
                if last is not None:
                    self.add(last, last_ct)
                last, last_ct = p, ct
            if release and not keep:
                node.op, node.saved, node.guard = FREED, (), None
            node = None
            if last is not None:
                order = last.order
                if (
                    order in cotangents
                    or (heap and heap[0][0] < order)
                    or (not pointwise and type(last_ct) in (Placed, ResultCotangent))
                ):
                    self.add(last, last_ct)
                else:  # it would come off the heap next
                    node, g = last, last_ct
        return self.results

    def _batched(self, node: Node, g: Any) -> None:
        """Run the rules of a node on the cotangents of the members of a batch."""
        level = self.level
        if node.guard is not None:
            check_guard(node)
        saved: Any = node.saved
        record = self.record or node.span[0] < level
        if record or self.symbolic or type(saved) is list:
            saved = self._handles(node, record)
        for i, p in enumerate(node.parents):
            if p is None or p.span[1] < level:
                continue
            ct = rule_hook.call(self._carefully, node, p, i, g, saved)
            self.add(p, outside(ct, p))

    def _carefully(
        self, node: Node, p: Node, i: int, g: Any, saved: tuple[Any, ...], engine: Any
    ) -> Any:
        """Run rule `i` of a node below one that masks or drops, or while nan is looked for."""
        op, order = node.op, node.order
        masked = op.masks or order in self.masked
        dropped = not masked and order in self.dropped and order not in self.dense
        if masked:
            self.masked.add(p.order)
        if self.quiet is None and (masked or dropped or self.check is not None):
            # What happens to elements without effect is nothing to warn of, and the check for
            # nan says more than a warning.
            self.quiet = np.errstate(divide="ignore", over="ignore", invalid="ignore")
            self.quiet.__enter__()
        if op.pointwise:
            ct = NotImplemented
            if engine is not None:
                ct = engine.derivative(op, i, g, saved)
            if ct is NotImplemented:
                ct = op.rules[i](g, *saved)  # type: ignore[misc]
            if op.masks:
                ct = without_masked(op.rules[i], g, saved, ct)  # type: ignore[arg-type]
            if masked or dropped:
                for v in saved:
                    if v is not None:  # a rule that reads no values gives no nan
                        ct = strong_zero(g, ct)
                        break
            ct = fit(ct, p)
        else:
            ct = self.rule(node, i, g, saved)
            if masked or dropped:
                ct = cleared(node, i, g, saved, ct, self.rule)
            ct = fit(ct, p)
        if not masked:
            if dropped or (op.drops and not is_whole(ct)):
                self.dropped.add(p.order)
            else:
                self.dense.add(p.order)
        if self.check is not None:
            self.check(op, node.order, i, g, ct)
        return ct

    def _special(self, node: Node, g: Any) -> bool:
        """Deal with leaves, writes and freed nodes; return whether the node is done."""
        op = node.op
        if op is STOP:
            for order, _ in self.heap:
                self.results[order] = self.cotangents.pop(order)
            self.heap.clear()
            return True
        if op is LEAF:
            if node.order in self.targets:
                self.results[node.order] = g
                return True
            if not self.targets and node.params:
                self.slots.append((node.params["slot"], g))
                return True
            return False  # the input of an inner trace: on to where it came from
        if op is FREED:
            if node.span[0] > self.level:  # of inner traces alone: it leads to nothing of ours
                return True
            raise TraceError(
                "backward: the graph was freed by an earlier backward() or gradient; pass "
                "retain_graph=True to that backward() to walk it again"
            )
        self._transfer(node, g)
        return True

    def _handles(self, node: Node, record: bool) -> tuple[Any, ...]:
        """Return the saved values as ADArrays on the nodes and tangents they came from."""
        handles: list[Any] = []
        for v, p in zip(node.saved, (node, *node.parents), strict=False):
            if isinstance(v, tuple):  # several results
                avals = [w if isinstance(w, Aval) else aval_of(plain(w)) for w in v]
                picks = [pick(node, k, a) if record else node for k, a in enumerate(avals)]
                each = zip(v, avals, picks, strict=True)
                handles.append(
                    tuple(
                        self._handle(w, q, record) if a.dtype.kind in "fc" else w
                        for w, a, q in each
                    )
                )
            else:
                handles.append(self._handle(v, p, record))
        return tuple(handles)

    def _handle(self, v: Any, p: Node | None, record: bool) -> Any:
        """Return one saved value as an ADArray on the node it came from, where rules need it."""
        if not isinstance(v, (np.ndarray, np.generic, float, int, complex, Handle)) or p is None:
            return v
        tangents: tuple[Any, ...] = ()
        if isinstance(v, Handle):
            assert v._x is not None
            tangents = tuple(t for t in v._x.tangents if t.level < self.level)
            v = v._plain
        weak = type(v) is float or type(v) is int or type(v) is complex
        x = Extras(tangents=tangents, weak=weak) if tangents or weak else None
        if record or tangents:
            return ADArray(v, p if record else None, x, True)
        return ADArray(v, None, x, True) if self.symbolic else v

    def _transfer(self, node: Node, g: Any) -> None:
        """Hand the buffer of `g` on to the array that was written into."""
        if node.order in self.owned:
            self.owned.discard(node.order)
        else:
            g = owned_copy(g, self.record or node.span[0] < self.level)
        assert node.op.transfer is not None
        base_g, value_g = node.op.transfer(g, node)
        base, value = node.parents
        if base is not None:
            self.masked.add(base.order)  # what was overwritten has no effect
        if value is not None:
            if node.order in self.masked:
                self.masked.add(value.order)
            elif node.order in self.dropped and node.order not in self.dense:
                self.dropped.add(value.order)
            else:
                self.dense.add(value.order)
        if value is not None and value.span[1] >= self.level:
            self.add(value, outside(fit(value_g, value), value))
        if base is not None and base.span[1] >= self.level:
            if base.order not in self.cotangents:
                self.owned.add(base.order)
                self.cotangents[base.order] = base_g
                heappush(self.heap, (base.order, base))
            else:
                self.add(base, base_g)


def is_whole(ct: Any) -> bool:
    """Whether a cotangent is that of an index which names every element."""
    if type(ct) is not Placed or ct.steps:
        return False
    shape = getattr(ct.g, "shape", None)
    if shape is None:  # a number or a list that the walk began with
        shape = np.shape(ct.g)
    if type(ct.index) is slice:  # the usual one
        return bool(shape == ct.aval.shape)
    if math.prod(shape) != ct.aval.size:
        return False
    parts = ct.index if isinstance(ct.index, tuple) else (ct.index,)
    return not any(isinstance(i, (list, np.ndarray)) for i in parts)


def general_rule(node: Node, i: int, g: Any, saved: tuple[Any, ...]) -> Any:
    """Run rule `i` of an operation that is not pointwise."""
    op = node.op
    params = node.params or {}
    if op.variadic and i >= op.arity - 1:
        return op.rules[-1](g, i, *saved, **params)  # type: ignore[misc]
    rule = op.rules[i] if i < len(op.rules) else None
    if is_device(g):
        r = g.library.rule(node, i, g, saved)
        if r is not NotImplemented:
            return r
    if type(g) is dict:
        g = _all_parts(g, saved[0])
    if rule is None:
        raise NotDifferentiableError(
            f"{op.name}: no derivative with respect to operand {i}; pass it as a plain array, "
            "or use adarray.stop_gradient on it"
        )
    return rule(g, *saved, **params)


def _all_parts(g: dict[int, Any], results: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the cotangents of all results: zeros, and None for integers, where none came.

    The zeros stay among the parts: rules of all operands get the same arrays, by which those that
    compute the cotangents of several operands together know each other.
    """
    avals = [r if isinstance(r, Aval) else aval_of(plain(r)) for r in results]
    known = plain_value(next(iter(g.values()), None))
    for k, a in enumerate(avals):
        if k not in g and a.dtype.kind in "fc":
            g[k] = zero_beside(known, a.shape, a.dtype)
    return tuple(g.get(k) for k in range(len(avals)))


def fit(ct: Any, p: Node) -> Any:
    """Bring a cotangent to the shape and dtype of the value it belongs to."""
    aval = p.aval
    if type(ct) is Placed or type(ct) is ResultCotangent:
        return ct
    if ct.shape != aval.shape:
        ct = unbroadcast(ct, aval.shape)
    if ct.dtype != aval.dtype:
        if aval.dtype.kind == "f" and ct.dtype.kind == "c":
            ct = np.real(ct)  # the operand moves along the real axis only
        ct = ct.astype(aval.dtype)
    return ct


def owned_copy(g: Any, record: bool = False) -> Any:
    """Return a copy of a cotangent that the walk may write into."""
    if isinstance(g, Handle):
        return apply(FUNCTIONS[np.copy], (g,), {})
    g = np.copy(g) if is_device(g) or type(g) in BATCHED else np.array(g)
    return ADArray(g) if record else g


def _add_owned(before: Any, ct: Any) -> Any:
    if isinstance(before, Handle):
        before += ct
        return before
    if type(ct) in BATCHED and type(before) not in BATCHED:
        return before + ct
    return np.add(before, ct, out=before)


# The sum over the members of a batch.
sum_hook: Hook[Callable[[Any], Any]] = Hook("adarray.ad.batches")
# Runs a rule, ``rule(node, parent, operand, g, saved, engine)``, member by member where it looks at
# values: ``(rule, node, parent, operand, g, saved)``.
rule_hook: Hook[Callable[[Callable[..., Any], Node, Node, int, Any, tuple[Any, ...]], Any]] = Hook(
    "adarray.ad.batches"
)


def batch_of(g: Any) -> Any:
    """Return the batch whose members a cotangent belongs to, None if it is one for all."""
    if type(g) is Placed:
        g = g.g
    if type(g) is dict:
        return next((b for b in map(batch_of, g.values()) if b is not None), None)
    v: Any = g._plain if isinstance(g, Handle) else g
    return v.batch if type(v) in BATCHED else None


def outside(ct: Any, p: Node) -> Any:
    """Return the cotangent of a node that is older than a batch: the sum of those of members.

    Within the function that `vmap` runs, members have cotangents of their own of what all have.
    """
    if not BATCHED:
        return ct
    batch = batch_of(ct.g if type(ct) is ResultCotangent else ct)
    while batch is not None and not batch.open and p.order > batch.order:
        if type(ct) is ResultCotangent:
            ct = ResultCotangent(ct.index, sum_hook.call(ct.g))
        elif type(ct) is Placed:
            ct = sum_hook.call(ct.add_to(ct.zeros()))
        else:
            ct = sum_hook.call(ct)
        batch = batch_of(ct.g if type(ct) is ResultCotangent else ct)
    return ct


def check_guard(node: Node) -> None:
    """Raise if a plain operand that `node` saved was changed since."""
    guard = node.guard
    if isinstance(guard, list):
        for part in guard:
            part.check(node.op.name)
    elif guard is not None:
        guard.check(node.op.name)


def device_engine(g: DeviceArray, engine: BaseEngine | None) -> BaseEngine | Library:
    """Return what computes derivative rules on the device where the cotangent `g` is."""
    return engine if engine is not None and engine.device is g.library else g.library

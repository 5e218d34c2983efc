"""What is remembered of loops: how they were lowered, and the operations of their kernels."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from adarray.compiler.ir.threads import ThreadKernel
from adarray.kernels import print_cpu
from adarray.kernels.execution import Execution
from adarray.kernels.functions import SINGULAR
from adarray.kernels.launch import USUAL_LIMIT
from adarray.kernels.operation import Operation
from adarray.kernels.spread import spread
from adarray.loops.attributes import named
from adarray.loops.forms import ArrayForm, Form, LoopKernel, WholeNumber, Workspace
from adarray.loops.names import Loop
from adarray.loops.products import Product, products
from adarray.loops.rewriting import Place

_MOST = 256  # lowerings of a place that are remembered


@dataclass(frozen=True, slots=True)
class Lowering:
    """What lowering a loop came to: a kernel, or a reason and a line; and what it asked for."""

    loop: LoopKernel | None
    refusal: tuple[str, int] | None
    resolved: tuple[tuple[str, Any], ...]


@dataclass(slots=True)
class LoweringMemo:
    """The lowerings of one place."""

    entries: dict[Any, Lowering] = field(default_factory=dict)

    def get(self, key: Any) -> Lowering | None:
        """Return what was remembered, if anything was."""
        return self.entries.get(key)

    def put(self, key: Any, entry: Lowering) -> None:
        """Remember a lowering, and forget the oldest one if there are too many."""
        if len(self.entries) >= _MOST:
            self.entries.pop(next(iter(self.entries)), None)
        self.entries[key] = entry


class RenamedLoops:
    """Loops with other names, and with names in the place of products."""

    def __init__(self) -> None:
        self._renamed: dict[Any, tuple[Place, Loop]] = {}
        self._products: dict[Any, tuple[Loop, tuple[Loop, dict[str, Product]]]] = {}

    def renamed(self, place: Place, attribute_names: dict[str, str], aliases: Any) -> Loop:
        """Return the loop of a place with other names: see `named`."""
        key = id(place), tuple(attribute_names.items()), tuple(aliases.items())
        if key not in self._renamed:
            self._renamed[key] = place, named(place.loop, attribute_names, aliases)
        return self._renamed[key][1]

    def with_products(
        self,
        loop: Loop,
        forms: dict[str, Form],
        iterable: Any,
        traced: frozenset[str],
        read_later: frozenset[str] | None,
    ) -> tuple[Loop, dict[str, Product]]:
        """Return a loop that reads products, and these: see `products`."""
        arrays = tuple((n, f) for n, f in forms.items() if isinstance(f, (ArrayForm, WholeNumber)))
        trips = len(iterable) if isinstance(iterable, range) else None
        key = id(loop), arrays, trips, traced, read_later
        if key not in self._products:
            if len(self._products) >= _MOST:
                self._products.clear()
            self._products[key] = loop, products(loop, forms, iterable, traced, read_later)
        return self._products[key][1]


class Lowerings:
    """Memos of places."""

    def __init__(self) -> None:
        self._memos: dict[int, tuple[Place, LoweringMemo]] = {}

    def of(self, place: Place) -> LoweringMemo:
        """Return the memo of a place."""
        entry = self._memos.get(id(place))
        if entry is None:
            entry = self._memos[id(place)] = place, LoweringMemo()
        return entry[1]


class Operations:
    """Operations of kernels: equal kernels have one, so that two recordings agree."""

    def __init__(self) -> None:
        self._by_identity: dict[tuple[int, int | None], tuple[LoopKernel, Operation]] = {}
        self._by_text: dict[tuple[str, int | None], Operation] = {}
        self._spread: dict[Any, tuple[LoopKernel, tuple[Operation, int] | None]] = {}
        self._lock = threading.Lock()

    def spread(
        self, loop: LoopKernel, integers: tuple[tuple[str, int], ...], memory_limit: int | None
    ) -> tuple[Operation, int] | None:
        """Return the operation of a loop's kernel with a thread for each iteration, and its blocks.

        None if iterations depend on each other.
        """
        key = id(loop), integers, memory_limit
        known = self._spread.get(key)
        if known is not None:
            return known[1]
        zeros = {name for name, source in loop.sources if isinstance(source, Workspace)}
        result = spread(loop.kernel, dict(integers), zeros)
        with self._lock:
            entry = None
            if result is not None:
                entry = self._operation(result.kernel, memory_limit, False), result.blocks
            if len(self._spread) >= _MOST:
                self._spread.clear()
            self._spread[key] = loop, entry
        return entry

    def _operation(self, kernel: ThreadKernel, memory_limit: int | None, alone: bool) -> Operation:
        """Return the operation of a kernel; the caller has the lock."""
        text = print_cpu.source(kernel, kernel.name, False)
        operation = self._by_text.get((text, memory_limit))
        if operation is None:
            execution = Execution(
                kernel, max(USUAL_LIMIT, memory_limit or 0), skips=SINGULAR,
                free_sums=True, wanted_limit=memory_limit,
            )  # fmt: skip
            operation = Operation(kernel.name, execution, keeps_results=alone)
            self._by_text[text, memory_limit] = operation
        return operation

    def of(self, loop: LoopKernel, memory_limit: int | None) -> Operation:
        """Return the operation of a loop's kernel, whose tapes are to stay within a limit."""
        known = self._by_identity.get((id(loop), memory_limit))
        if known is not None:
            return known[1]
        with self._lock:
            operation = self._operation(loop.kernel, memory_limit, True)
            if len(self._by_identity) >= _MOST:
                self._by_identity.clear()
            self._by_identity[id(loop), memory_limit] = loop, operation
        return operation

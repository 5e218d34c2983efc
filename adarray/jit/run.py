"""Running the compiled paths of a trace tree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from adarray.jit.build import run_call
from adarray.jit.check import CheckError
from adarray.jit.keys import outcome_key
from adarray.jit.recorder import draw
from adarray.jit.tree import Leaf, Node, Tree
from adarray.recording import Call, Symbol
from adarray.spans import RECORDER


class MissError(Exception):
    """A call left the paths that are compiled. Nothing was committed; f runs again."""


def single(tree: Tree, build: Callable[[Node], None]) -> Callable[[list[Any]], Any] | None:
    """Return what runs a tree of one segment: inputs -> result; None for other trees.

    The segment must be compiled, and must write into none of its inputs.
    """
    root = tree.root
    if root is None or root.leaf is None or root.leaf.writes or not root.ready or not root.calls:
        return None
    targets, run = prepare(root, build)
    leaf = root.leaf
    picked = _picker(root.sources, len(tree.strides))
    if not {n for n, _ in leaf.outputs} <= {*targets, None}:
        return None  # an argument is returned
    if tuple(n for n, _ in leaf.outputs) == targets and len(leaf.outputs) == 1:
        ((_, kind),) = leaf.outputs
        if leaf.rebuild([leaf]) is leaf:  # the result is one array or number
            return _one(run, picked, kind)
    finish = finisher(leaf, targets, 0)
    if picked is None:
        return lambda values: finish(run(values))
    return lambda values: finish(run(picked(values)))


def _picker(sources: tuple[int, ...], count: int) -> Callable[[list[Any]], list[Any]] | None:
    """Return what picks the values at `sources`; None if those are all, in order."""
    if sources == tuple(range(count)):
        return None
    return lambda values: [values[i] for i in sources]


def _one(
    run: Callable[[list[Any]], list[Any]], picked: Any, kind: str
) -> Callable[[list[Any]], Any]:
    """Return what runs a segment with one result."""
    if kind == "array":
        if picked is None:
            return lambda values: run(values)[0]
        return lambda values: run(picked(values))[0]
    convert = _CONVERT[kind]
    if picked is None:
        return lambda values: convert(run(values)[0])
    return lambda values: convert(run(picked(values))[0])


_CONVERT: dict[str, Callable[[Any], Any]] = {
    "array": lambda x: x,
    "cell": np.array,
    "scalar": lambda x: x[()],
    "number": lambda x: x.item() if hasattr(x, "item") else x,
}


def finisher(leaf: Leaf, numbers: Sequence[int], inputs: int) -> Callable[[list[Any]], Any]:
    """Return what makes the user's result of the values with `numbers`.

    Values with numbers below `inputs` are the caller's own arrays, which are copied.
    """
    at = {n: i for i, n in enumerate(numbers)}
    seen: set[int] = set()
    steps: list[tuple[int, Any]] = []
    for number, kind in leaf.outputs:
        if number is None:
            steps.append((-1, kind))
            continue
        convert = _CONVERT[kind]
        if kind == "array" and (number in seen or number < inputs):
            convert = np.copy  # one value twice in a result: two arrays
        seen.add(number)
        steps.append((at[number], convert))
    rebuild = leaf.rebuild

    def finish(values: list[Any]) -> Any:
        return rebuild([_plain(how) if i < 0 else how(values[i]) for i, how in steps])

    return finish


def _plain(x: Any) -> Any:
    """Return a result that is the same every time; arrays are the caller's own."""
    return x.copy() if isinstance(x, np.ndarray) else x


def prepare(node: Node, build: Callable[[Node], None]) -> tuple[tuple[int, ...], Any]:
    """Compile a segment that is not compiled yet; return its targets and what computes them."""
    compiled = node.compiled
    if compiled is None:
        with node.tree.lock:
            if node.compiled is None:
                build(node)
            compiled = node.compiled
    assert compiled is not None
    return compiled


class Walk:
    """One call along a tree.

    Attributes
    ----------
    values : list
        By number: inputs, then results of the segments that ran.
    nodes : list of Node
        The segments that ran.
    """

    def __init__(self, tree: Tree, values: list[Any], build: Callable[[Node], None]) -> None:
        self.tree = tree
        self.given = len(values)
        self.values = values
        self.build = build
        self.nodes: list[Node] = []
        self._generators: list[tuple[Any, Any]] = []

    def run(self) -> Leaf:
        """Follow the path that the values take; return how it ends.

        Raises
        ------
        MissError
            If the path, or a part of it, is not compiled.
        """
        node = self.tree.root
        try:
            while node is not None and node.ready:
                node.runs += 1
                self.nodes.append(node)
                self._segment(node)
                if node.leaf is not None:
                    return node.leaf
                node = node.children.get(self._look(node))
        except CheckError:
            raise
        except Exception as error:  # eager code raises its own
            self.undo()
            raise MissError from error
        self.undo()
        raise MissError

    def undo(self) -> None:
        """Give random generators the state that they had before the call."""
        for generator, state in self._generators:
            generator.bit_generator.state = state
        self._generators.clear()

    def _segment(self, node: Node) -> None:
        values = self.values
        targets, run = node.compiled or prepare(node, self.build)
        missing = node.stop - len(values)
        if missing > 0:
            values.extend([None] * missing)
        if targets:
            recorder = RECORDER.get()
            if recorder is None:
                results = run([values[i] for i in node.sources])
            else:
                from adarray.jit.timed import run_timed

                results = run_timed(recorder, node, [values[i] for i in node.sources])
            for n, r in zip(targets, results, strict=True):
                values[n] = r

    def _look(self, node: Node) -> Any:
        """Return what Python sees at the end of a segment, and run what it runs there."""
        guard = node.guard
        assert guard is not None
        if guard.call is not None:
            return self._call(node, guard.call)
        assert guard.symbol is not None
        x = self._value(node, guard.symbol)
        return outcome_key(guard.kind, _LOOKS[guard.kind](x))

    def _value(self, node: Node, symbol: Symbol) -> Any:
        number = node.path.numbers[id(symbol)]
        if not isinstance(number, int):
            return node.path.constants[symbol]
        x = self.values[number]
        if symbol.shape == () and symbol.dtype != object:
            if symbol.weak:
                return x.item() if hasattr(x, "item") else x
            return x[()] if isinstance(x, np.ndarray) else x
        return x

    def _call(self, node: Node, call: Call) -> Any:
        if call.function is draw:
            generator = self._value(node, call.args[0])
            if all(g is not generator for g, _ in self._generators):
                self._generators.append((generator, generator.bit_generator.state))
        r = run_call(call, lambda symbol: self._value(node, symbol))
        several = r if call.several else (r,)
        for symbol, x in zip(call.results, several, strict=True):
            number = node.path.numbers[id(symbol)]
            assert isinstance(number, int)
            missing = number + 1 - len(self.values)
            if missing > 0:
                self.values.extend([None] * missing)
            if isinstance(x, np.ndarray) and not (x.base is None and x.flags.c_contiguous):
                x = np.array(x, order="C")
            self.values[number] = x
        return outcome_key("call", [(np.shape(x), np.result_type(x)) for x in several])


_LOOKS: dict[str, Callable[[Any], Any]] = {
    "bool": bool,
    "index": int,
    "int": int,
    "float": float,
    "complex": complex,
}
